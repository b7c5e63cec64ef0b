/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_slices.cu - how large slices are. What the sums need gives the first guess; then slices become smaller
 * until cuDNN's own part fits, too.
 */
#include "cuda/cudnn_slices.cuh"

/* Slices of even size. */
struct cut {
    int64_t sequences, key_heads;
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* All cuts, those that make fewer slices first: at 2 p the sequences and at 2 p + 1 the heads in p + 1 parts, then one
 * sequence in 2, 3, ... */
static int64_t cut_count(const struct mics_cudnn_shape *whole)
{
    return 2 * (whole->B > whole->H_kv ? whole->B : whole->H_kv) + whole->H_kv - 1;
}

static struct cut cut_of(const struct mics_cudnn_shape *whole, int64_t i)
{
    const int64_t most = whole->B > whole->H_kv ? whole->B : whole->H_kv, parts = i / 2 + 1;

    if (i >= 2 * most)
        return {1, ceil_div(whole->H_kv, i - 2 * most + 2)};
    if (i % 2 == 0)
        return {ceil_div(whole->B, parts), whole->H_kv};
    return {whole->B, ceil_div(whole->H_kv, parts)};
}

static size_t sums_bytes(const struct mics_cudnn_shape *shape)
{
    const size_t bytes = sizeof(float) * (size_t)(shape->B * shape->H * shape->T * shape->D);

    return shape->grad ? (bytes + 255) / 256 * 256 : 0;
}

/* What cuDNN asks for besides is little, but for the gradients of all heads that share a key head, in bf16. */
static bool may_fit(const struct mics_cudnn_shape *whole, struct cut cut, size_t limit)
{
    struct mics_cudnn_shape shape = *whole;

    shape.B = cut.sequences;
    shape.H = cut.key_heads * (whole->H / whole->H_kv);
    return sums_bytes(&shape) * (whole->H == whole->H_kv ? 1 : 2) <= limit;
}

static cudnnStatus_t make_slice(struct mics_cudnn_slice *slice,
                                const struct mics_cudnn_library *library,
                                const struct mics_cudnn_place *place,
                                const struct mics_cudnn_shape *whole, struct cut cut, size_t limit)
{
    slice->shape = *whole;
    slice->shape.B = cut.sequences;
    slice->shape.H_kv = cut.key_heads;
    slice->shape.H = cut.key_heads * (whole->H / whole->H_kv);
    slice->sums_bytes = sums_bytes(&slice->shape);
    if (slice->sums_bytes > limit)
        return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    mics_cudnn_plan_fini(&slice->plan);
    mics_cudnn_graph_init(&slice->plan.graph, library);
    mics_cudnn_attention_build(&slice->plan.graph, &slice->shape);
    return mics_cudnn_plan_make(&slice->plan, place, limit - slice->sums_bytes);
}

/* The smaller slice at the end of the batch, or of a sequence. */
static cudnnStatus_t make_last(struct mics_cudnn_slices *slices,
                               const struct mics_cudnn_library *library,
                               const struct mics_cudnn_place *place,
                               const struct mics_cudnn_shape *whole, struct cut cut, size_t limit)
{
    struct cut last = cut;

    if (cut.key_heads < whole->H_kv)
        last.key_heads = whole->H_kv % cut.key_heads;
    else
        last.sequences = whole->B % cut.sequences;
    if (last.sequences == 0 || last.key_heads == 0)
        return CUDNN_STATUS_SUCCESS;
    return make_slice(&slices->last, library, place, whole, last, limit);
}

/* lse and delta of every slice are to be aligned as promised. */
static bool is_aligned(const struct mics_cudnn_shape *whole, struct cut cut)
{
    const int64_t heads = cut.key_heads * (whole->H / whole->H_kv);

    if (cut.key_heads < whole->H_kv)
        return heads * whole->T % 4 == 0 && whole->H * whole->T % 4 == 0;
    return cut.sequences == whole->B || cut.sequences * whole->H * whole->T % 4 == 0;
}

cudnnStatus_t mics_cudnn_slices_make(struct mics_cudnn_slices *slices,
                                     const struct mics_cudnn_library *library,
                                     const struct mics_cudnn_place *place,
                                     const struct mics_cudnn_shape *whole, size_t limit)
{
    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    struct cut tried = {0, 0};

    for (int64_t i = 0; i < cut_count(whole); i++) {
        const struct cut cut = cut_of(whole, i);

        if (cut.sequences == tried.sequences && cut.key_heads == tried.key_heads)
            continue;
        tried = cut;
        if (!may_fit(whole, cut, limit) || !is_aligned(whole, cut))
            continue;
        status = make_slice(&slices->most, library, place, whole, cut, limit);
        if (status == CUDNN_STATUS_SUCCESS)
            return make_last(slices, library, place, whole, cut, limit);
        if (status != CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT)
            return status;
    }
    return status;
}

void mics_cudnn_slices_fini(struct mics_cudnn_slices *slices)
{
    mics_cudnn_plan_fini(&slices->most.plan);
    mics_cudnn_plan_fini(&slices->last.plan);
}
