/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime.h - a CUDA runtime that executes nothing and records everything.
 *
 * The objects that nvcc makes of kernels/cuda are linked with it instead of with libcudart. Device
 * memory is a range of addresses that no code of the host can read. Launches, memsets and copies
 * are checked as the driver would check them and kept in order. A process has one GPU, because
 * CUDA's functions have no argument that selects one; only one thread may use it.
 */
#ifndef MICS_TESTS_PTX_RUNTIME_H
#define MICS_TESTS_PTX_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

struct gpu_chip {
    const char *name;    /* "sm_80" */
    const char *ptx[3];  /* folders with its PTX, the last NULL */
    int multiprocessors; /* as the chip has them */
    int capability;      /* 80: compute capability 8.0 */
    int shared_bytes;    /* dynamic shared memory of a block, at most */
};

/* One allocation. */
struct gpu_buffer {
    struct gpu_buffer *next;
    uint64_t address;
    size_t bytes;
    unsigned char *content; /* what the host copied to it; NULL: nothing */
};

enum gpu_operation_kind { GPU_LAUNCH, GPU_MEMSET, GPU_COPY };

struct gpu_operation {
    struct gpu_operation *next;
    enum gpu_operation_kind kind;
    const char *kernel; /* of a launch, and what follows up to the parameters */
    dim3 grid, block;
    size_t shared;             /* dynamic, in bytes */
    unsigned char *parameters; /* one after the other, each at a multiple of its alignment */
    size_t parameter_bytes;
    uint64_t to, from, bytes; /* of a memset or copy */
    int value;                /* of a memset */
};

/* The chip of that name, NULL if there is none. */
const struct gpu_chip *gpu_chip_find(const char *name);

/* Make this process's GPU that chip, with the kernels in `ptx`/FOLDER/NAME.ptx. Ends the program
 * where that fails. */
void gpu_open(const struct gpu_chip *chip, const char *ptx);

/* Device memory `shift` bytes behind an address that is aligned to 256 bytes. Beyond its `bytes` at
 * least 4 KiB are not mapped. Undefined until the host copies to it: tests make that 0xff, a NaN in
 * every type. */
void *gpu_alloc(size_t bytes, size_t shift);

/* What was allocated, and what was enqueued since gpu_reset(), in order. */
const struct gpu_buffer *gpu_buffers(void);
const struct gpu_operation *gpu_operations(void);

/* Free all memory and forget all operations. */
void gpu_reset(void);

/* Print a line on standard error and end the program with status 1. */
void gpu_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
