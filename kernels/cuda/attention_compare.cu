/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_compare.cu - how far the results of one variant of attention are from those of another.
 *
 * Results are parts: out and lse, or the gradients of q, k and v; a part has vectors of D numbers. Two numbers are
 * made of each part: the norm of all differences, and the largest norm of a vector's difference, which shows what
 * is wrong in few rows only. Vectors of very small norm are mostly rounding, so each counts as at least a quarter
 * of the usual norm, and a part's as at least a hundredth of the largest part's.
 *
 * The kernel reads both results once: 4 bytes and 4 flops a number of bf16.
 */
#include "cuda/attention_choice.cuh"
#include "cuda/gpu.h"

#include <cuda_bf16.h>
#include <math.h>

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32, BLOCKS = 64, PARTS_MAX = 3 };

struct part {
    const char *name;
    const char *got;
    size_t kept_at, rows, stride; /* bytes; rows of `heads` vectors; elements from row to row */
    unsigned heads, D;
    enum mics_dtype dtype;
    bool relative_to_one; /* lse, which may be 0 */
};

/* Over vectors: squared norms, and the largest ratio of squares. */
struct sums {
    double want, difference;
    float worst;
};

static __device__ __forceinline__ float widen(float value)
{
    return value;
}

static __device__ __forceinline__ float widen(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

static __device__ __forceinline__ float warp_sum(float value)
{
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    return value;
}

/* Each warp takes every so many vectors; the block's sums go to out[blockIdx.x]. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    compare_vectors(struct sums *out, const T *want, const T *got, size_t vectors, unsigned heads,
                    size_t stride, unsigned D, float least)
{
    MICS_SHARED(struct sums, of_warp, [WARPS]);
    struct sums mine = {0, 0, 0};

    for (size_t i = blockIdx.x * WARPS + threadIdx.x / 32; i < vectors; i += gridDim.x * WARPS) {
        const size_t at = i / heads * stride + i % heads * D;
        float wanted = 0, off = 0, ratio;

        for (unsigned d = threadIdx.x % 32; d < D; d += 32) {
            const float w = widen(want[at + d]), difference = widen(got[at + d]) - w;

            wanted += w * w;
            off += difference * difference;
        }
        wanted = warp_sum(wanted);
        off = warp_sum(off);
        ratio = off == 0 ? 0 : off / (wanted + least);
        mine.want += wanted;
        mine.difference += off;
        mine.worst = ratio <= 1e30f ? fmaxf(mine.worst, ratio) : INFINITY; /* NaN, too */
    }
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < WARPS; i++) {
        mine.want += of_warp[i].want;
        mine.difference += of_warp[i].difference;
        mine.worst = fmaxf(mine.worst, of_warp[i].worst);
    }
    out[blockIdx.x] = mine;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t out_bytes(const struct mics_op_attention *f)
{
    return (size_t)f->B * f->T * f->H * f->D * mics_dtype_bytes(f->dtype);
}

static size_t lse_bytes(const struct mics_op_attention *f)
{
    return (size_t)f->B * f->T * f->H * sizeof(float);
}

static size_t grad_bytes(const struct mics_op_attention_grad *g)
{
    return (size_t)g->B * g->T * (g->H + 2 * g->H_kv) * g->D * mics_dtype_bytes(g->dtype);
}

static int forward_parts(const struct mics_op_attention *f, struct part parts[PARTS_MAX])
{
    const size_t rows = (size_t)f->B * f->T;

    parts[0] = {"out", (const char *)f->out, 0, rows, (size_t)f->H * f->D, f->H, f->D, f->dtype,
                false};
    parts[1] = {"lse", (const char *)f->lse, aligned(out_bytes(f)), rows * f->H, 1, 1, 1, MICS_F32,
                true};
    return 2;
}

static int grad_parts(const struct mics_op_attention_grad *g, struct part parts[PARTS_MAX])
{
    static const char *const names[] = {"grad_q", "grad_k", "grad_v"};
    const unsigned heads[] = {g->H, g->H_kv, g->H_kv};
    const size_t stride = (size_t)(g->H + 2 * g->H_kv) * g->D;
    size_t at = 0;

    for (int i = 0; i < 3; i++) {
        parts[i] = {names[i], (const char *)g->grad_qkv + at,
                    at,       (size_t)g->B * g->T,
                    stride,   heads[i],
                    g->D,     g->dtype,
                    false};
        at += (size_t)heads[i] * g->D * mics_dtype_bytes(g->dtype);
    }
    return 3;
}

static int parts_of(const struct mics_attention_task *task, struct part parts[PARTS_MAX])
{
    return task->grad ? grad_parts(task->grad, parts) : forward_parts(task->forward, parts);
}

template <typename T>
static cudaError_t launch(const struct mics_attention_task *task, const struct part *part,
                          const void *want, const void *got, float least)
{
    return MICS_LAUNCH((compare_vectors<T>), BLOCKS, THREADS, 0, task->at->stream,
                       static_cast<struct sums *>(task->at->workspace),
                       static_cast<const T *>(want), static_cast<const T *>(got),
                       part->rows * part->heads, part->heads, part->stride, part->D, least);
}

/* The sums of a part; each vector's ratio is of its squared norm and `least`. */
static cudaError_t sum_part(const struct mics_attention_task *task, const struct part *part,
                            const void *want, const void *got, float least, struct sums *out)
{
    struct sums blocks[BLOCKS];
    cudaError_t error = part->dtype == MICS_BF16
                            ? launch<__nv_bfloat16>(task, part, want, got, least)
                            : launch<float>(task, part, want, got, least);

    if (error == cudaSuccess)
        error = cudaMemcpyAsync(blocks, task->at->workspace, sizeof(blocks), cudaMemcpyDeviceToHost,
                                task->at->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(task->at->stream);
    *out = {0, 0, 0};
    for (int i = 0; i < BLOCKS && error == cudaSuccess; i++) {
        out->want += blocks[i].want;
        out->difference += blocks[i].difference;
        out->worst = fmaxf(out->worst, blocks[i].worst);
    }
    return error;
}

/* The usual squared norm of a vector of each part. They prove something where all are finite and none is 0. */
static cudaError_t usual_norms(const struct mics_attention_task *task, const struct part *parts,
                               int count, const char *kept, double usual[PARTS_MAX], bool *prove)
{
    double most = 0;
    struct sums sums;

    *prove = true;

    for (int i = 0; i < count; i++) {
        const char *want = kept + parts[i].kept_at;
        const cudaError_t error = sum_part(task, &parts[i], want, want, 0, &sums);

        if (error != cudaSuccess)
            return error;
        usual[i] = sums.want / (double)(parts[i].rows * parts[i].heads);
        *prove = *prove && isfinite(usual[i]) && (usual[i] > 0 || parts[i].relative_to_one);
        most = parts[i].relative_to_one ? most : fmax(most, usual[i]);
    }
    for (int i = 0; i < count; i++)
        usual[i] = fmax(usual[i], parts[i].relative_to_one ? 1 : most * 1e-4);
    return cudaSuccess;
}

/* Note a part that is further off than those before it. */
static void judge(const struct part *part, double all, double worst,
                  struct mics_attention_deviation *out)
{
    const double limit = part->dtype == MICS_BF16 ? 0.02 : 1e-4;
    const bool excessive = !(all <= limit && worst <= 10 * limit);

    if (excessive == out->excessive ? !out->worst_of || !(worst <= out->worst) : excessive)
        *out = {all, worst, part->name, excessive};
}

} // namespace

size_t mics_attention_kept_bytes(const struct mics_attention_task *task)
{
    return task->grad ? grad_bytes(task->grad)
                      : aligned(out_bytes(task->forward)) + lse_bytes(task->forward);
}

cudaError_t mics_attention_keep(const struct mics_attention_task *task, void *kept)
{
    const struct mics_op_attention *f = task->forward;
    const cudaStream_t stream = task->at->stream;
    cudaError_t error;

    if (task->grad)
        return cudaMemcpyAsync(kept, task->grad->grad_qkv, grad_bytes(task->grad),
                               cudaMemcpyDeviceToDevice, stream);
    error = cudaMemcpyAsync(kept, f->out, out_bytes(f), cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess)
        return error;
    return cudaMemcpyAsync((char *)kept + aligned(out_bytes(f)), f->lse, lse_bytes(f),
                           cudaMemcpyDeviceToDevice, stream);
}

cudaError_t mics_attention_clear(const struct mics_attention_task *task)
{
    const struct mics_op_attention *f = task->forward;
    const cudaStream_t stream = task->at->stream;
    cudaError_t error;

    if (task->grad)
        return cudaMemsetAsync(task->grad->grad_qkv, 0xff, grad_bytes(task->grad), stream);
    error = cudaMemsetAsync(f->out, 0xff, out_bytes(f), stream);
    return error == cudaSuccess ? cudaMemsetAsync(f->lse, 0xff, lse_bytes(f), stream) : error;
}

cudaError_t mics_attention_kept_proves(const struct mics_attention_task *task, const void *kept,
                                       bool *out)
{
    double usual[PARTS_MAX] = {};
    struct part parts[PARTS_MAX];
    const int count = parts_of(task, parts);

    return usual_norms(task, parts, count, (const char *)kept, usual, out);
}

cudaError_t mics_attention_compare(const struct mics_attention_task *task, const void *kept,
                                   struct mics_attention_deviation *out)
{
    double usual[PARTS_MAX] = {};
    struct part parts[PARTS_MAX];
    const int count = parts_of(task, parts);
    bool prove;
    cudaError_t error = usual_norms(task, parts, count, (const char *)kept, usual, &prove);

    *out = {0, 0, NULL, false};
    for (int i = 0; i < count && error == cudaSuccess; i++) {
        const double vectors = (double)(parts[i].rows * parts[i].heads);
        const double least = parts[i].relative_to_one ? 1 : usual[i] / 16;
        struct sums sums;

        error = sum_part(task, &parts[i], (const char *)kept + parts[i].kept_at, parts[i].got,
                         (float)least, &sums);
        if (error == cudaSuccess)
            judge(&parts[i], sqrt(sums.difference / (usual[i] * vectors)), sqrt(sums.worst), out);
    }
    return error;
}
