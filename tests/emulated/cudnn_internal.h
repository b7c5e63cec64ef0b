/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_internal.h - descriptors of the emulated cuDNN, and graphs made of them. */
#ifndef MICS_TESTS_EMULATED_CUDNN_INTERNAL_H
#define MICS_TESTS_EMULATED_CUDNN_INTERNAL_H

#include "cudnn_graph.h"

#include <map>
#include <string>
#include <vector>

struct emu_cudnn_tensor {
    int64_t uid, dims[4], strides[4], alignment;
    cudnnDataType_t type;
    bool is_virtual, by_value;
};

/* One operation: the tensors that it reads, then the one that it writes. */
struct emu_cudnn_op {
    cudnnBackendDescriptorType_t kind;
    int mode; /* of pointwise operations and reductions */
    int64_t axis;
    std::vector<int64_t> in;
    int64_t out;
};

struct emu_cudnn_graph {
    std::vector<emu_cudnn_op> ops;
    std::map<int64_t, emu_cudnn_tensor> tensors;
    std::map<int64_t, size_t> writers; /* of a tensor: number in ops */
    bool is_grad;

    int64_t heads(void) const; /* key heads of all sequences */
};

/* Where tensors of a graph are: device memory, and the host's for numbers. */
typedef std::map<int64_t, void *> emu_cudnn_memory;

/* A line on standard error, and the status. */
cudnnStatus_t emu_cudnn_refuse(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether it is attention or its gradient, with tensors that fit. */
cudnnStatus_t emu_cudnn_recognise(struct emu_cudnn_graph *graph);

/* Do it, operation by operation; what is not virtual is written where it lies. */
void emu_cudnn_compute(const struct emu_cudnn_graph &graph, const emu_cudnn_memory &memory);

#endif
