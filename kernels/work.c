/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - one function for each operation.
 *
 * Bytes are those of the operands and results in ops.h. Statistics of rows are counted, vectors of
 * C parameters are not. `kernels` is what kernels/cuda launches: sums over rows have a second stage
 * that adds up the partial sums.
 */
#include "work.h"

#include <stddef.h>

/* Bytes of so many numbers. */
static double bytes_of(double count, enum mics_dtype dtype)
{
    return count * (double)mics_dtype_bytes(dtype);
}

static struct mics_kernel_work pass(double read, double written, uint32_t kernels)
{
    return (struct mics_kernel_work){
        .work_class = MICS_WORK_MEMORY, .read = read, .written = written, .kernels = kernels};
}

static struct mics_kernel_work zero_work(const struct mics_args_zero *op)
{
    struct mics_kernel_work work = pass(0, (double)op->bytes, 1);

    work.work_class = MICS_WORK_COPY;
    return work;
}

static struct mics_kernel_work copy_work(const struct mics_args_copy *op)
{
    struct mics_kernel_work work = pass((double)op->bytes, (double)op->bytes, 1);

    work.work_class = MICS_WORK_COPY;
    return work;
}

static struct mics_kernel_work call_work(const struct mics_args_call *op)
{
    (void)op;
    return (struct mics_kernel_work){.work_class = MICS_WORK_CALL};
}

static struct mics_kernel_work cast_work(const struct mics_args_cast *op)
{
    const double count = (double)op->count;

    return pass(bytes_of(count, op->src_dtype), bytes_of(count, op->dst_dtype), 1);
}

static struct mics_kernel_work accumulate_work(const struct mics_args_accumulate *op)
{
    const double count = (double)op->count;
    struct mics_kernel_work work =
        pass(bytes_of(count, MICS_F32) + bytes_of(count, op->dtype), bytes_of(count, MICS_F32), 1);

    work.flops = count;
    return work;
}

static struct mics_kernel_work sum_blocks_work(const struct mics_args_sum_blocks *op)
{
    struct mics_kernel_work work =
        pass((double)op->parts * (double)mics_wire_bytes(op->src_dtype, op->count),
             (double)mics_wire_bytes(op->dst_dtype, op->count), 1);

    work.flops = (double)op->parts * (double)op->count;
    return work;
}

static bool is_aligned(const struct mics_args_matmul *op)
{
    const size_t in = mics_dtype_bytes(op->dtype), out = mics_dtype_bytes(op->out_dtype);

    return (op->lda * in | op->ldb * in | op->ldout * out) % 16 == 0;
}

static struct mics_kernel_work matmul_work(const struct mics_args_matmul *op)
{
    const double m = op->m, n = op->n, k = op->k;
    const size_t size = mics_dtype_bytes(op->dtype), out_size = mics_dtype_bytes(op->out_dtype);
    const size_t read = (op->add ? out_size : 0) + (op->gelu_of ? size : 0);
    const size_t written = out_size + (op->pre_gelu ? size : 0);

    return (struct mics_kernel_work){
        .work_class = MICS_WORK_PRODUCT,
        .dtype = op->dtype,
        .flops = 2 * m * n * k,
        .read = (double)size * (m * k + k * n) + (double)read * m * n,
        .written = (double)written * m * n,
        .kernels = 1,
        .m = op->m,
        .n = op->n,
        .k = op->k,
        .trans_a = op->trans_a,
        .trans_b = op->trans_b,
        .out_bytes = (uint32_t)(read + written),
        .aligned = is_aligned(op),
    };
}

static struct mics_kernel_work bias_grad_work(const struct mics_args_bias_grad *op)
{
    return pass(bytes_of((double)op->rows * op->n, op->dtype), 0, 2);
}

/* `statistics` fp32 numbers of each row. */
static struct mics_kernel_work norm_work(uint32_t rows, uint32_t C, int statistics,
                                         enum mics_dtype dtype)
{
    const double bytes = bytes_of((double)rows * C, dtype);

    return pass(bytes, bytes + bytes_of((double)rows * statistics, MICS_F32), 1);
}

/* Reads the gradient of the output, the input, and the gradient of the input, to which it adds. */
static struct mics_kernel_work norm_grad_work(uint32_t rows, uint32_t C, int statistics,
                                              enum mics_dtype dtype)
{
    const double bytes = bytes_of((double)rows * C, dtype);

    return pass(3 * bytes + bytes_of((double)rows * statistics, MICS_F32), bytes, 2);
}

static struct mics_kernel_work layernorm_work(const struct mics_args_layernorm *op)
{
    return norm_work(op->rows, op->C, 2, op->dtype);
}

static struct mics_kernel_work layernorm_grad_work(const struct mics_args_layernorm_grad *op)
{
    return norm_grad_work(op->rows, op->C, 2, op->dtype);
}

static struct mics_kernel_work rmsnorm_work(const struct mics_args_rmsnorm *op)
{
    return norm_work(op->rows, op->C, 1, op->dtype);
}

static struct mics_kernel_work rmsnorm_grad_work(const struct mics_args_rmsnorm_grad *op)
{
    return norm_grad_work(op->rows, op->C, 1, op->dtype);
}

static struct mics_kernel_work gelu_work(const struct mics_args_gelu *op)
{
    const double bytes = bytes_of((double)op->count, op->dtype);

    return pass(bytes, bytes, 1);
}

static struct mics_kernel_work gelu_grad_work(const struct mics_args_gelu_grad *op)
{
    const double bytes = bytes_of((double)op->count, op->dtype);

    return pass(2 * bytes, bytes, 1);
}

static struct mics_kernel_work swiglu_work(const struct mics_args_swiglu *op)
{
    const double bytes = bytes_of((double)op->rows * op->F, op->dtype);

    return pass(2 * bytes, bytes, 1);
}

static struct mics_kernel_work swiglu_grad_work(const struct mics_args_swiglu_grad *op)
{
    const double bytes = bytes_of((double)op->rows * op->F, op->dtype);

    return pass(3 * bytes, 2 * bytes, 1);
}

static struct mics_kernel_work qk_norm_work(const struct mics_args_qk_norm *op)
{
    const double width = (double)op->H * op->D + 2.0 * op->H_kv * op->D_kv;
    const double bytes = bytes_of(op->rows * width, op->dtype);

    return pass(bytes, bytes + bytes_of((double)op->rows * (op->H + op->H_kv), MICS_F32), 1);
}

static struct mics_kernel_work qk_norm_grad_work(const struct mics_args_qk_norm_grad *op)
{
    const double heads = (double)op->rows * (op->H + op->H_kv);
    const double width = (double)op->H * op->D + (double)op->H_kv * op->D_kv;
    const double bytes = bytes_of(op->rows * width, op->dtype);

    return pass(2 * bytes + bytes_of(heads, MICS_F32), bytes, 2);
}

static struct mics_kernel_work rope_work(const struct mics_args_rope *op)
{
    const double bytes = bytes_of((double)op->B * op->T * op->heads * op->D, op->dtype);

    return pass(bytes, bytes, 1);
}

/* One product of scores or values has 2 D FLOPs for each pair of a query and a key of a head. */
static double product_flops(const struct mics_kernel_work *work)
{
    const double pairs =
        work->causal ? mics_attention_pairs(work->T, work->window) : (double)work->T * work->T;

    return 2 * work->heads * pairs * work->D;
}

static struct mics_kernel_work attention_work(const struct mics_args_attention *op)
{
    const double rows = (double)op->B * op->T, D = op->D;
    struct mics_kernel_work work = {
        .work_class = MICS_WORK_ATTENTION,
        .dtype = op->dtype,
        .read = bytes_of(rows * (op->H + 2 * op->H_kv) * D, op->dtype),
        .written = bytes_of(rows * op->H * D, op->dtype) + bytes_of(rows * op->H, MICS_F32),
        .kernels = 1,
        .heads = op->B * op->H,
        .T = op->T,
        .D = op->D,
        .causal = op->causal,
        .window = mics_attention_window(op->window, op->T),
    };

    work.flops = 2 * product_flops(&work);
    return work;
}

/* Five products, since the scores are computed again. `delta` is a kernel of its own. */
static struct mics_kernel_work attention_grad_work(const struct mics_args_attention_grad *op)
{
    const double rows = (double)op->B * op->T, D = op->D;
    struct mics_kernel_work work = {
        .work_class = MICS_WORK_ATTENTION,
        .dtype = op->dtype,
        .read = bytes_of(rows * (3 * op->H + 2 * op->H_kv) * D, op->dtype) +
                bytes_of(rows * op->H, MICS_F32),
        .written = bytes_of(rows * (op->H + 2 * op->H_kv) * D, op->dtype) +
                   bytes_of(rows * op->H, MICS_F32),
        .kernels = 2,
        .heads = op->B * op->H,
        .T = op->T,
        .D = op->D,
        .causal = op->causal,
        .window = mics_attention_window(op->window, op->T),
        .gradient = true,
    };

    work.flops = 5 * product_flops(&work);
    return work;
}

static struct mics_kernel_work embedding_work(const struct mics_args_embedding *op)
{
    const double bytes = bytes_of((double)op->B * op->T * op->C, op->dtype);

    return pass((op->wpe ? 2 : 1) * bytes, bytes, 1);
}

/* A radix sort of the tokens, three kernels for each 8 bits, then the sums by token in two, and by
 * position in one. */
static struct mics_kernel_work embedding_grad_work(const struct mics_args_embedding_grad *op)
{
    const double count = (double)op->B * op->T * op->C;
    const double positions = op->grad_wpe ? (double)op->T * op->C : 0;
    const double grads = bytes_of(count + positions, op->grad_dtype);
    uint32_t kernels = op->grad_wpe ? 3 : 2;

    for (uint32_t left = op->V; left > 0; left >>= 8)
        kernels += 3;
    return pass(bytes_of((op->grad_wpe ? 2 : 1) * count, op->dtype) + grads, grads, kernels);
}

static struct mics_kernel_work cross_entropy_work(const struct mics_args_cross_entropy *op)
{
    const double bytes = bytes_of((double)op->rows * op->V, op->dtype);

    return pass(bytes, op->grad ? bytes : 0, 2);
}

static struct mics_kernel_work squared_norm_work(const struct mics_args_squared_norm *op)
{
    struct mics_kernel_work work = pass(bytes_of((double)op->count, MICS_F32), 0, 2);

    work.flops = 2 * (double)op->count;
    return work;
}

static struct mics_kernel_work loss_scale_work(const struct mics_args_loss_scale *op)
{
    return pass(sizeof *op->state + sizeof *op->scalars, sizeof *op->state, 1);
}

static struct mics_kernel_work update_work(const struct mics_args_update *op)
{
    const double count = (double)op->count, states = mics_optimizer_states(op->optimizer);
    struct mics_kernel_work work = pass(
        bytes_of(count * (2 + states), MICS_F32),
        bytes_of(count * (1 + states), MICS_F32) + (op->copy ? bytes_of(count, MICS_BF16) : 0), 1);

    work.flops = mics_optimizer_get(op->optimizer)->flops * count;
    return work;
}

static struct mics_kernel_work difference_work(const struct mics_args_difference *op)
{
    const double count = (double)op->count;
    struct mics_kernel_work work =
        pass(bytes_of((op->b ? 2 : 1) * count, MICS_F32), bytes_of(count, MICS_F32), 1);

    work.flops = (op->b ? 2 : 1) * count;
    return work;
}

static struct mics_kernel_work outer_update_work(const struct mics_args_outer_update *op)
{
    const double count = (double)op->count;
    struct mics_kernel_work work =
        pass(bytes_of(3 * count, MICS_F32),
             bytes_of(3 * count, MICS_F32) + (op->copy ? bytes_of(count, MICS_BF16) : 0), 1);

    work.flops = 7 * count;
    return work;
}

/* The work of mixtures of experts. Offsets and permutations are counted; how many rows an expert
 * has is not known, so its matrices are counted once. */
static struct mics_kernel_work route_work(const struct mics_args_route *op)
{
    const double rows = op->rows;

    return pass(4 * rows * op->E, 8 * rows * op->k, 1);
}

static struct mics_kernel_work route_grad_work(const struct mics_args_route_grad *op)
{
    const double rows = op->rows;

    return pass(4 * rows * op->E + 12 * rows * op->k, bytes_of(rows * op->E, op->dtype), 1);
}

static struct mics_kernel_work router_load_work(const struct mics_args_router_load *op)
{
    const double rows = op->rows;

    return pass(4 * rows * op->E + 4 * rows * op->k, 0, 2);
}

static struct mics_kernel_work balance_loss_work(const struct mics_args_balance_loss *op)
{
    const double groups = op->groups;

    return pass(8 * groups * op->E + 4 * groups * op->group_rows,
                op->balance ? 4 * groups * op->E : 0, 1);
}

static struct mics_kernel_work router_stats_work(const struct mics_args_router_stats *op)
{
    return pass(4 * (double)op->rows * op->E, 0, 2);
}

static struct mics_kernel_work sort_experts_work(const struct mics_args_sort_experts *op)
{
    const double assignments = (double)op->rows * op->k;

    return pass(8 * assignments, 8 * assignments, 4);
}

static struct mics_kernel_work gather_rows_work(const struct mics_args_gather_rows *op)
{
    const double rows = (double)op->rows * op->k, bytes = bytes_of(rows * op->C, op->dtype);

    return pass(bytes + 4 * rows, bytes, 1);
}

static struct mics_kernel_work select_rows_work(const struct mics_args_select_rows *op)
{
    return pass(8 * (double)op->rows, 8 * (double)op->most, 1);
}

static struct mics_kernel_work combine_rows_work(const struct mics_args_combine_rows *op)
{
    const double rows = op->rows, bytes = bytes_of(rows * op->C, op->dtype);

    return pass((op->k + (op->add ? 1 : 0)) * bytes + 4 * rows * op->k, bytes, 1);
}

static struct mics_kernel_work scatter_rows_work(const struct mics_args_scatter_rows *op)
{
    const double rows = op->rows, bytes = bytes_of(rows * op->C, op->dtype);

    return pass(bytes + 4 * rows, bytes, 1);
}

static struct mics_kernel_work dispatch_round_work(const struct mics_args_dispatch_round *op)
{
    const double slots = (double)op->ranks * op->slots;

    return pass(4 * slots + 4 * (double)op->ranks * op->E, 12 * slots, 1);
}

static struct mics_kernel_work grouped_matmul_work(const struct mics_args_grouped_matmul *op)
{
    const double rows = op->rows, n = op->n, k = op->k;
    const size_t size = mics_dtype_bytes(op->dtype);

    return (struct mics_kernel_work){
        .work_class = MICS_WORK_PRODUCT,
        .dtype = op->dtype,
        .flops = 2 * rows * n * k,
        .read = (double)size * (rows * k + op->E * n * k),
        .written = (double)size * rows * n,
        .kernels = 1,
        .m = op->rows,
        .n = op->n,
        .k = op->k,
        .trans_b = op->trans_b,
        .out_bytes = (uint32_t)size,
        .aligned = (op->n | op->k) * size % 16 == 0,
    };
}

static struct mics_kernel_work
grouped_matmul_grad_work(const struct mics_args_grouped_matmul_grad *op)
{
    const double rows = op->rows, m = op->m, n = op->n;
    const size_t size = mics_dtype_bytes(op->dtype), out_size = mics_dtype_bytes(op->grad_dtype);

    return (struct mics_kernel_work){
        .work_class = MICS_WORK_PRODUCT,
        .dtype = op->dtype,
        .flops = 2 * rows * m * n,
        .read = (double)size * rows * (m + n) + (op->add ? (double)out_size * op->E * m * n : 0),
        .written = (double)out_size * op->E * m * n,
        .kernels = 1,
        .m = op->m,
        .n = op->n,
        .k = op->rows,
        .trans_a = true,
        .out_bytes = (uint32_t)(out_size * (op->add ? 2 : 1)),
        .aligned = (op->m | op->n) * size % 16 == 0,
    };
}

static struct mics_kernel_work expert_swiglu_work(const struct mics_args_expert_swiglu *op)
{
    const double bytes = bytes_of((double)op->rows * op->F, op->dtype);

    return pass(2 * bytes + 8 * (double)op->rows, bytes, 1);
}

static struct mics_kernel_work
expert_swiglu_grad_work(const struct mics_args_expert_swiglu_grad *op)
{
    const double bytes = bytes_of((double)op->rows * op->F, op->dtype);

    return pass(3 * bytes + 8 * (double)op->rows, 2 * bytes + 4 * (double)op->rows, 1);
}

void mics_kernel_work_of(enum mics_kernel kernel, const void *args, struct mics_kernel_work *out)
{
    switch (kernel) {
#define WORK_OF(KEY, name, gpu)                                                                    \
    case MICS_K_##KEY:                                                                             \
        *out = name##_work(args);                                                                  \
        return;
        MICS_OPERATIONS(WORK_OF)
#undef WORK_OF
    case MICS_KERNEL_COUNT:
        break;
    }
    *out = (struct mics_kernel_work){.work_class = MICS_WORK_CALL};
}
