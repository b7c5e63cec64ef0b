/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_graph.cuh - a graph of cuDNN's operations, made of its backend's descriptors.
 *
 * Operations are added in an order in which each follows those that it reads. The first failure stays in `status`;
 * after it nothing happens, and descriptors are NULL, so that only the end needs to look.
 */
#ifndef MICS_KERNELS_CUDA_CUDNN_GRAPH_CUH
#define MICS_KERNELS_CUDA_CUDNN_GRAPH_CUH

#include "cuda/cudnn_library.cuh"

#define MICS_CUDNN_OPS_MAX  32
#define MICS_CUDNN_MADE_MAX 160

/* Numbers of tensors that no memory has count from here on. */
#define MICS_CUDNN_FIRST_VIRTUAL 100

typedef cudnnBackendDescriptor_t mics_cudnn_descriptor;

struct mics_cudnn_graph {
    const struct mics_cudnn_library *library;
    cudnnStatus_t status;
    int64_t next_virtual;
    mics_cudnn_descriptor ops[MICS_CUDNN_OPS_MAX], made[MICS_CUDNN_MADE_MAX];
    int op_count, made_count;
    mics_cudnn_descriptor graph; /* of mics_cudnn_graph_finish() */
};

/* [dims[0], ... dims[3]], with the distance in elements from one to the next of each. */
struct mics_cudnn_layout {
    int64_t dims[4], strides[4];
};

void mics_cudnn_graph_init(struct mics_cudnn_graph *graph,
                           const struct mics_cudnn_library *library);
void mics_cudnn_graph_fini(struct mics_cudnn_graph *graph);

/* A descriptor that lives as long as the graph. */
mics_cudnn_descriptor mics_cudnn_make(struct mics_cudnn_graph *graph,
                                      cudnnBackendDescriptorType_t type);
void mics_cudnn_set(struct mics_cudnn_graph *graph, mics_cudnn_descriptor to,
                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *values);
void mics_cudnn_finalize(struct mics_cudnn_graph *graph, mics_cudnn_descriptor of);

/* A tensor in memory that is aligned to 16 bytes; its number stands in the variant pack. */
mics_cudnn_descriptor mics_cudnn_tensor(struct mics_cudnn_graph *graph, int64_t uid,
                                        cudnnDataType_t type,
                                        const struct mics_cudnn_layout *layout);
/* One fp32 number, which is read from the host's memory when the graph is run. */
mics_cudnn_descriptor mics_cudnn_number(struct mics_cudnn_graph *graph, int64_t uid);
/* One that only operations of the graph see. */
mics_cudnn_descriptor mics_cudnn_virtual(struct mics_cudnn_graph *graph, cudnnDataType_t type,
                                         const struct mics_cudnn_layout *layout);

/* c = a b, summed in fp32. */
void mics_cudnn_matmul(struct mics_cudnn_graph *graph, mics_cudnn_descriptor a,
                       mics_cudnn_descriptor b, mics_cudnn_descriptor c);

/* y = mode(x, b), element by element; b may be NULL; where both are given y = t ? x : b. */
struct mics_cudnn_elementwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    int64_t axis; /* of CUDNN_POINTWISE_GEN_INDEX */
    mics_cudnn_descriptor x, b, t, y;
};
void mics_cudnn_pointwise(struct mics_cudnn_graph *graph, const struct mics_cudnn_elementwise *op);

/* y = x reduced over the dimensions of which y has one. */
void mics_cudnn_reduce(struct mics_cudnn_graph *graph, cudnnReduceTensorOp_t how,
                       mics_cudnn_descriptor x, mics_cudnn_descriptor y);

/* y is x with other dimensions or of another type. */
void mics_cudnn_reshape(struct mics_cudnn_graph *graph, mics_cudnn_descriptor x,
                        mics_cudnn_descriptor y);

/* All operations are there. `handle`: NULL where there is no GPU. */
cudnnStatus_t mics_cudnn_graph_finish(struct mics_cudnn_graph *graph, cudnnHandle_t handle);

#endif
