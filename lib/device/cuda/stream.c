/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - streams, and the operations that are launched on them. */
#include "device/cuda/cuda.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * The operations by number. STREAM operations are the stream's own.
 */

struct cuda_operation {
    cudaError_t (*run)(const struct mics_cuda_at *at, const void *args);
    /* The reason for which the operation would be refused, if any. NULL: run() gives it. */
    enum mics_status (*check)(const struct mics_cuda_at *at, const void *args,
                              struct mics_err *err);
    const char *name;
    size_t args_size;
    bool needs_workspace;
};

#define RUN(name)                                                                                  \
    static cudaError_t run_##name(const struct mics_cuda_at *at, const void *args)                 \
    {                                                                                              \
        return mics_cuda_##name(at, args);                                                         \
    }
#define RUN_STREAM(name)
#define RUN_PLAIN(name)     RUN(name)
#define RUN_WORKSPACE(name) RUN(name)
#define RUN_CHECKED(name)                                                                          \
    RUN(name)                                                                                      \
    static enum mics_status check_##name(const struct mics_cuda_at *at, const void *args,          \
                                         struct mics_err *err)                                     \
    {                                                                                              \
        return mics_cuda_##name##_check(at, args, err);                                            \
    }
#define RUN_ROW(KEY, name, gpu) RUN_##gpu(name)
MICS_OPERATIONS(RUN_ROW)

#define ENTRY_STREAM(op)    .name = #op
#define ENTRY_PLAIN(op)     .name = #op, .run = run_##op
#define ENTRY_WORKSPACE(op) .name = #op, .run = run_##op, .needs_workspace = true
#define ENTRY_CHECKED(op)   .name = #op, .run = run_##op, .check = check_##op
#define ENTRY_ROW(KEY, op, gpu)                                                                    \
    [MICS_K_##KEY] = {ENTRY_##gpu(op), .args_size = sizeof(struct mics_args_##op)},

static const struct cuda_operation operations[MICS_KERNEL_COUNT] = {MICS_OPERATIONS(ENTRY_ROW)};

/* Streams of communication usually need none: theirs is allocated by the first operation that
 * does. */
static enum mics_status open_workspace(struct cuda_stream *stream, struct mics_err *err)
{
    const enum mics_status status = mics_cuda_alloc_own(
        cuda_device_of(&stream->base), MICS_CUDA_WORKSPACE_BYTES, &stream->at.workspace, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "the workspace of stream %s", stream->name);
    return status;
}

static enum mics_status open_parts(struct cuda_stream *stream, int priority, struct mics_err *err)
{
    struct cuda_device *device = cuda_device_of(&stream->base);
    char what[64];

    /* Non-blocking: not ordered with the legacy default stream. */
    const cudaError_t error =
        cudaStreamCreateWithPriority(&stream->stream, cudaStreamNonBlocking, priority);
    snprintf(what, sizeof what, "stream %s", stream->name);
    if (error != cudaSuccess)
        return mics_cuda_error(err, error, what);
    stream->at = (struct mics_cuda_at){.stream = stream->stream,
                                       .multiprocessors = device->multiprocessors,
                                       .products = device->products,
                                       .attention = device->attention};
    return priority == 0 ? open_workspace(stream, err) : MICS_OK;
}

enum mics_status mics_cuda_stream_open(struct mics_device *base, const char *name, int priority,
                                       struct mics_stream **out, struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)base;
    struct cuda_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return mics_err_nomem(err);
    mics_cuda_use(device);
    stream->base.device = base;
    snprintf(stream->name, sizeof stream->name, "%s", name);
    const enum mics_status status = open_parts(stream, priority ? device->high_priority : 0, err);
    if (status == MICS_OK)
        *out = &stream->base;
    else
        mics_cuda_stream_close(&stream->base);
    return status;
}

void mics_cuda_stream_close(struct mics_stream *base)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;

    if (!stream)
        return;
    mics_cuda_use(cuda_device_of(base));
    if (stream->stream) {
        (void)cudaStreamSynchronize(stream->stream);
        mics_cuda_calls_close(stream->calls);
        (void)cudaStreamDestroy(stream->stream);
    }
    mics_cuda_release(base->device, stream->at.workspace);
    free(stream);
}

enum mics_status mics_cuda_stream_sync(struct mics_stream *base, struct mics_err *err)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;
    struct cuda_device *device = cuda_device_of(base);

    mics_cuda_use(device);
    mics_cuda_fail(device, cudaStreamSynchronize(stream->stream),
                   "an operation on stream %s (MICS_GPU_SYNC=1 finds out which)", stream->name);
    return mics_cuda_device_failure(base->device, err);
}

enum mics_status mics_cuda_stream_prepare(struct mics_stream *base,
                                          const struct mics_args_matmul *products, size_t count,
                                          bool given, struct mics_matmul_choice *choices,
                                          struct mics_err *err)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;
    enum mics_status status = mics_cuda_device_failure(base->device, err);

    mics_cuda_use(cuda_device_of(base));
    if (status == MICS_OK && !stream->at.workspace)
        status = open_workspace(stream, err);
    if (status != MICS_OK)
        return status;
    const cudaError_t error =
        mics_cuda_products_prepare(&stream->at, products, count, given, choices);
    if (given && error == cudaErrorInvalidValue)
        return mics_err_set(err, MICS_ERR_DEVICE,
                            "%s: the algorithms of matrix products that another rank with this GPU "
                            "chose do not fit (is MICS_TF32 the same on all ranks?)",
                            base->device->description);
    return mics_cuda_error(err, error, "algorithms of matrix products");
}

static cudaError_t copy(struct cuda_stream *stream, const struct mics_args_copy *op)
{
    if (op->bytes == 0 || op->dst == op->src)
        return cudaSuccess;
    return cudaMemcpyAsync(op->dst, op->src, op->bytes, cudaMemcpyDefault, stream->stream);
}

static cudaError_t zero(struct cuda_stream *stream, const struct mics_args_zero *op)
{
    return op->bytes ? cudaMemsetAsync(op->dst, 0, op->bytes, stream->stream) : cudaSuccess;
}

static void compute(struct cuda_stream *stream, enum mics_kernel kernel, const void *args)
{
    struct cuda_device *device = cuda_device_of(&stream->base);
    const struct cuda_operation *operation = &operations[kernel];
    struct mics_err err;

    if (operation->needs_workspace && !stream->at.workspace &&
        open_workspace(stream, &err) != MICS_OK) {
        mics_cuda_device_fail(&device->base, MICS_ERR_NOMEM, err.text);
        return;
    }
    if (operation->check) {
        const enum mics_status status = operation->check(&stream->at, args, &err);

        if (status != MICS_OK) {
            mics_cuda_device_fail(&device->base, status, err.text);
            return;
        }
    }
    mics_cuda_fail(device, operation->run(&stream->at, args), "%s on stream %s", operation->name,
                   stream->name);
    if (device->each)
        mics_cuda_fail(device, cudaStreamSynchronize(stream->stream),
                       "%s on stream %s, while it ran", operation->name, stream->name);
}

static void launch(struct cuda_stream *stream, enum mics_kernel kernel, const void *args)
{
    struct cuda_device *device = cuda_device_of(&stream->base);

    switch (kernel) {
    case MICS_K_ZERO:
        mics_cuda_fail(device, zero(stream, args), "zero on stream %s", stream->name);
        return;
    case MICS_K_COPY:
        mics_cuda_fail(device, copy(stream, args), "copy on stream %s", stream->name);
        return;
    case MICS_K_CALL:
        mics_cuda_fail(device, mics_cuda_call(stream, args), "call on stream %s", stream->name);
        return;
    default:
        compute(stream, kernel, args);
    }
}

void mics_cuda_stream_launch(struct mics_stream *base, enum mics_kernel kernel, const void *args,
                             size_t size)
{
    struct cuda_device *device = cuda_device_of(base);

    assert(kernel >= 0 && kernel < MICS_KERNEL_COUNT && size <= MICS_ARGS_MAX);
    assert(size == operations[kernel].args_size);
    (void)size;
    if (atomic_load(&device->failed))
        return;
    mics_cuda_use(device);
    launch((struct cuda_stream *)base, kernel, args);
}
