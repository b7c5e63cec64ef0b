/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_rates.c - the sizes of each operation, the fit, and device.kernel_rates of a topology. */
#include "topology/kernel_rates.h"

#include "doc/cursor.h"
#include "work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SERIES = 256 };

static const double max_size = 1e15, max_seconds = 3600;

/* Shapes ------------------------------------------------------------------------------------- */

static enum mics_dtype wider(enum mics_dtype a, enum mics_dtype b)
{
    return mics_dtype_is_half(a) || mics_dtype_is_half(b) ? MICS_BF16 : MICS_F32;
}

/* Forms of sums of blocks; F32 stands for BF16, too. */
static const struct sum_blocks_form {
    const char *name;
    enum mics_dtype from, to;
    bool stochastic;
} sum_blocks_forms[MICS_SUM_BLOCKS_FORMS] = {
    [MICS_BLOCKS_PLAIN] = {"plain", MICS_F32, MICS_F32, false},
    [MICS_BLOCKS_INT8_PLAIN] = {"int8-plain", MICS_INT8, MICS_F32, false},
    [MICS_BLOCKS_INT4_PLAIN] = {"int4-plain", MICS_INT4, MICS_F32, false},
    [MICS_BLOCKS_PLAIN_INT8] = {"plain-int8", MICS_F32, MICS_INT8, false},
    [MICS_BLOCKS_INT8_INT8] = {"int8-int8", MICS_INT8, MICS_INT8, false},
    [MICS_BLOCKS_INT4_INT8] = {"int4-int8", MICS_INT4, MICS_INT8, false},
    [MICS_BLOCKS_PLAIN_INT4] = {"plain-int4", MICS_F32, MICS_INT4, false},
    [MICS_BLOCKS_INT8_INT4] = {"int8-int4", MICS_INT8, MICS_INT4, false},
    [MICS_BLOCKS_INT4_INT4] = {"int4-int4", MICS_INT4, MICS_INT4, false},
    [MICS_BLOCKS_PLAIN_INT8_RANDOM] = {"plain-int8-random", MICS_F32, MICS_INT8, true},
    [MICS_BLOCKS_INT8_INT8_RANDOM] = {"int8-int8-random", MICS_INT8, MICS_INT8, true},
    [MICS_BLOCKS_INT4_INT8_RANDOM] = {"int4-int8-random", MICS_INT4, MICS_INT8, true},
    [MICS_BLOCKS_PLAIN_INT4_RANDOM] = {"plain-int4-random", MICS_F32, MICS_INT4, true},
    [MICS_BLOCKS_INT8_INT4_RANDOM] = {"int8-int4-random", MICS_INT8, MICS_INT4, true},
    [MICS_BLOCKS_INT4_INT4_RANDOM] = {"int4-int4-random", MICS_INT4, MICS_INT4, true},
};

static enum mics_dtype plain_or_blocks(enum mics_dtype dtype, enum mics_dtype plain)
{
    return mics_dtype_is_blocks(dtype) ? dtype : plain;
}

void mics_sum_blocks_set_form(uint32_t form, enum mics_dtype plain,
                              struct mics_args_sum_blocks *args)
{
    args->src_dtype = plain_or_blocks(sum_blocks_forms[form].from, plain);
    args->dst_dtype = plain_or_blocks(sum_blocks_forms[form].to, plain);
    args->stochastic = sum_blocks_forms[form].stochastic;
}

static uint32_t sum_blocks_form(const struct mics_args_sum_blocks *op)
{
    const bool stochastic = op->stochastic && mics_dtype_is_blocks(op->dst_dtype);
    uint32_t form = 0;

    while (sum_blocks_forms[form].from != plain_or_blocks(op->src_dtype, MICS_F32) ||
           sum_blocks_forms[form].to != plain_or_blocks(op->dst_dtype, MICS_F32) ||
           sum_blocks_forms[form].stochastic != stochastic)
        form++;
    return form;
}

/* A pass over `elements`. */
static struct mics_kernel_shape pass(double elements, enum mics_dtype dtype)
{
    return (struct mics_kernel_shape){.dtype = dtype, .m = elements, .n = 1, .k = 1};
}

static struct mics_kernel_shape zero_shape(const struct mics_args_zero *op)
{
    return pass((double)op->bytes, MICS_F32);
}

static struct mics_kernel_shape copy_shape(const struct mics_args_copy *op)
{
    return pass(op->src == op->dst ? 0 : (double)op->bytes, MICS_F32);
}

static struct mics_kernel_shape call_shape(const struct mics_args_call *op)
{
    (void)op;
    return (struct mics_kernel_shape){0};
}

static struct mics_kernel_shape cast_shape(const struct mics_args_cast *op)
{
    return pass((double)op->count, wider(op->dst_dtype, op->src_dtype));
}

static struct mics_kernel_shape accumulate_shape(const struct mics_args_accumulate *op)
{
    return pass((double)op->count, op->dtype);
}

/* Elements and parts: so a fit has the time of an element that is added and of one that is
 * written. */
static struct mics_kernel_shape sum_blocks_shape(const struct mics_args_sum_blocks *op)
{
    struct mics_kernel_shape shape = pass((double)op->count, wider(op->dst_dtype, op->src_dtype));

    shape.n = op->parts;
    shape.form = sum_blocks_form(op);
    return shape;
}

static struct mics_kernel_shape matmul_shape(const struct mics_args_matmul *op)
{
    return (struct mics_kernel_shape){.form = (op->trans_a ? 2u : 0u) + (op->trans_b ? 1u : 0u),
                                      .dtype = op->dtype,
                                      .m = op->m,
                                      .n = op->n,
                                      .k = op->k};
}

/* Shape of an operation on rows of `width` elements: all elements. */
#define ROWS_SHAPE(name, width)                                                                    \
    static struct mics_kernel_shape name##_shape(const struct mics_args_##name *op)                \
    {                                                                                              \
        return pass((double)op->rows * (width), op->dtype);                                        \
    }
ROWS_SHAPE(bias_grad, op->n)
ROWS_SHAPE(layernorm, op->C)
ROWS_SHAPE(layernorm_grad, op->C)
ROWS_SHAPE(rmsnorm, op->C)
ROWS_SHAPE(rmsnorm_grad, op->C)
ROWS_SHAPE(swiglu, op->F)
ROWS_SHAPE(swiglu_grad, op->F)
ROWS_SHAPE(qk_norm, (double)op->H * op->D + 2.0 * op->H_kv * op->D_kv)
ROWS_SHAPE(qk_norm_grad, (double)op->H * op->D + 2.0 * op->H_kv * op->D_kv)
ROWS_SHAPE(cross_entropy, op->V)
#undef ROWS_SHAPE

static struct mics_kernel_shape gelu_shape(const struct mics_args_gelu *op)
{
    return pass((double)op->count, op->dtype);
}

static struct mics_kernel_shape gelu_grad_shape(const struct mics_args_gelu_grad *op)
{
    return pass((double)op->count, op->dtype);
}

static struct mics_kernel_shape rope_shape(const struct mics_args_rope *op)
{
    return pass((double)op->B * op->T * op->heads * op->D, op->dtype);
}

/* Heads of causal attention without a window that compute as many pairs of a query and a key as one
 * head: whole blocks of them at the beginning of a window. */
static double causal_heads(bool causal, uint32_t T, uint32_t window)
{
    enum { BLOCK = 64 };
    const uint32_t seen = mics_attention_window(window, T);

    if (!causal)
        return 2;
    if (seen == 0 || seen + BLOCK >= T)
        return 1;
    return mics_attention_pairs(T, seen + BLOCK) / mics_attention_pairs(T, 0);
}

static struct mics_kernel_shape attention_of(double heads, double T, double D,
                                             enum mics_dtype dtype)
{
    return (struct mics_kernel_shape){.dtype = dtype, .m = heads, .n = T, .k = D};
}

static struct mics_kernel_shape attention_shape(const struct mics_args_attention *op)
{
    return attention_of((double)op->B * op->H * causal_heads(op->causal, op->T, op->window), op->T,
                        op->D, op->dtype);
}

static struct mics_kernel_shape attention_grad_shape(const struct mics_args_attention_grad *op)
{
    return attention_of((double)op->B * op->H * causal_heads(op->causal, op->T, op->window), op->T,
                        op->D, op->dtype);
}

static struct mics_kernel_shape embedding_shape(const struct mics_args_embedding *op)
{
    return pass((double)op->B * op->T * op->C, op->dtype);
}

static struct mics_kernel_shape embedding_grad_shape(const struct mics_args_embedding_grad *op)
{
    return pass((double)op->B * op->T * op->C, op->dtype);
}

static struct mics_kernel_shape squared_norm_shape(const struct mics_args_squared_norm *op)
{
    return pass((double)op->count, MICS_F32);
}

static struct mics_kernel_shape loss_scale_shape(const struct mics_args_loss_scale *op)
{
    (void)op;
    return pass(1, MICS_F32);
}

static struct mics_kernel_shape update_shape(const struct mics_args_update *op)
{
    struct mics_kernel_shape shape = pass((double)op->count, op->copy ? MICS_BF16 : MICS_F32);

    shape.form = op->optimizer;
    return shape;
}

static struct mics_kernel_shape difference_shape(const struct mics_args_difference *op)
{
    return pass((double)op->count, MICS_F32);
}

static struct mics_kernel_shape outer_update_shape(const struct mics_args_outer_update *op)
{
    return pass((double)op->count, op->copy ? MICS_BF16 : MICS_F32);
}

/* Shapes of what routes tokens to experts. */
static struct mics_kernel_shape route_shape(const struct mics_args_route *op)
{
    return pass((double)op->rows * op->E, MICS_F32);
}

static struct mics_kernel_shape route_grad_shape(const struct mics_args_route_grad *op)
{
    return pass((double)op->rows * op->E, op->dtype);
}

static struct mics_kernel_shape router_load_shape(const struct mics_args_router_load *op)
{
    return pass((double)op->rows * op->E, MICS_F32);
}

static struct mics_kernel_shape balance_loss_shape(const struct mics_args_balance_loss *op)
{
    return pass((double)op->groups * op->group_rows, MICS_F32);
}

static struct mics_kernel_shape router_stats_shape(const struct mics_args_router_stats *op)
{
    return pass((double)op->rows * op->E, MICS_F32);
}

static struct mics_kernel_shape sort_experts_shape(const struct mics_args_sort_experts *op)
{
    return pass((double)op->rows * op->k, MICS_F32);
}

static struct mics_kernel_shape gather_rows_shape(const struct mics_args_gather_rows *op)
{
    return pass((double)op->rows * op->k * op->C, op->dtype);
}

static struct mics_kernel_shape select_rows_shape(const struct mics_args_select_rows *op)
{
    return pass((double)op->rows, MICS_F32);
}

static struct mics_kernel_shape combine_rows_shape(const struct mics_args_combine_rows *op)
{
    return pass((double)op->rows * op->k * op->C, op->dtype);
}

static struct mics_kernel_shape scatter_rows_shape(const struct mics_args_scatter_rows *op)
{
    return pass((double)op->rows * op->C, op->dtype);
}

static struct mics_kernel_shape dispatch_round_shape(const struct mics_args_dispatch_round *op)
{
    return pass((double)op->ranks * op->slots, MICS_F32);
}

static struct mics_kernel_shape grouped_matmul_shape(const struct mics_args_grouped_matmul *op)
{
    return (struct mics_kernel_shape){
        .form = op->trans_b, .dtype = op->dtype, .m = op->rows, .n = op->n, .k = op->k};
}

static struct mics_kernel_shape
grouped_matmul_grad_shape(const struct mics_args_grouped_matmul_grad *op)
{
    return (struct mics_kernel_shape){
        .form = 2, .dtype = op->dtype, .m = op->m, .n = op->n, .k = op->rows};
}

static struct mics_kernel_shape expert_swiglu_shape(const struct mics_args_expert_swiglu *op)
{
    return pass((double)op->rows * op->F, op->dtype);
}

static struct mics_kernel_shape
expert_swiglu_grad_shape(const struct mics_args_expert_swiglu_grad *op)
{
    return pass((double)op->rows * op->F, op->dtype);
}

/* false: its time depends on more than its arguments (a call). `args` is the operation's
 * structure; what its pointers point to is not read. */
static bool shape_of(enum mics_kernel kernel, const void *args, struct mics_kernel_shape *out)
{
    switch (kernel) {
#define SHAPE_OF(KEY, name, gpu)                                                                   \
    case MICS_K_##KEY:                                                                             \
        *out = name##_shape(args);                                                                 \
        break;
        MICS_OPERATIONS(SHAPE_OF)
#undef SHAPE_OF
    case MICS_KERNEL_COUNT:
        return false;
    }
    out->kernel = kernel;
    return kernel != MICS_K_CALL;
}

/* m n k; of attention m n^2 k. */
static double work_of(const struct mics_kernel_shape *shape)
{
    const bool attention =
        shape->kernel == MICS_K_ATTENTION || shape->kernel == MICS_K_ATTENTION_GRAD;

    return shape->m * shape->n * shape->k * (attention ? shape->n : 1);
}

const char *mics_kernel_name(enum mics_kernel kernel)
{
    static const char *const names[MICS_KERNEL_COUNT] = {
#define NAME_OF(KEY, name, gpu) [MICS_K_##KEY] = #name,
        MICS_OPERATIONS(NAME_OF)
#undef NAME_OF
    };

    return names[kernel];
}

const char *mics_kernel_form_name(enum mics_kernel kernel, uint32_t form)
{
    static const char *const products[] = {"nn", "nt", "tn", "tt"};

    if (kernel == MICS_K_MATMUL || kernel == MICS_K_GROUPED_MATMUL ||
        kernel == MICS_K_GROUPED_MATMUL_GRAD)
        return form < 4 ? products[form] : NULL;
    if (kernel == MICS_K_UPDATE)
        return form < MICS_OPT_COUNT ? mics_optimizer_name((enum mics_optimizer)form) : NULL;
    if (kernel == MICS_K_SUM_BLOCKS)
        return form < MICS_SUM_BLOCKS_FORMS ? sum_blocks_forms[form].name : NULL;
    return form == 0 ? "" : NULL;
}

/* The fit ------------------------------------------------------------------------------------ */

/* The factors of the terms in seconds / work. */
static void factors_of(double m, double n, double k, double *out)
{
    out[0] = 1;
    out[1] = 1 / m;
    out[2] = 1 / n;
    out[3] = 1 / k;
}

/* Solve the `size` x `size` system by elimination with pivots; false: it is singular. */
static bool solve(double system[MICS_KERNEL_TERMS][MICS_KERNEL_TERMS + 1], int size, double *out)
{
    for (int i = 0; i < size; i++) {
        int pivot = i;

        for (int r = i + 1; r < size; r++)
            if (fabs(system[r][i]) > fabs(system[pivot][i]))
                pivot = r;
        if (!(fabs(system[pivot][i]) > 1e-10))
            return false;
        for (int c = 0; c <= size; c++) {
            const double swapped = system[i][c];

            system[i][c] = system[pivot][c];
            system[pivot][c] = swapped;
        }
        for (int r = i + 1; r < size; r++)
            for (int c = size; c >= i; c--)
                system[r][c] -= system[r][i] / system[i][i] * system[i][c];
    }
    for (int i = size - 1; i >= 0; i--) {
        out[i] = system[i][size];
        for (int c = i + 1; c < size; c++)
            out[i] -= system[i][c] * out[c];
        out[i] /= system[i][i];
    }
    return true;
}

/* factors[point][term], each divided by the measured seconds / work and then scaled by the largest
 * of its term, so that all numbers are of the order of 1. */
struct rows {
    uint32_t count;
    double factors[MICS_KERNEL_POINTS][MICS_KERNEL_TERMS], scale[MICS_KERNEL_TERMS];
};

static void make_rows(const struct mics_kernel_rates *rates, struct rows *out)
{
    *out = (struct rows){.count = rates->count};
    for (uint32_t i = 0; i < rates->count; i++) {
        const struct mics_kernel_point *p = &rates->points[i];
        const struct mics_kernel_shape shape = {
            .kernel = rates->kernel, .m = p->m, .n = p->n, .k = p->k};

        factors_of(p->m, p->n, p->k, out->factors[i]);
        for (int t = 0; t < MICS_KERNEL_TERMS; t++) {
            out->factors[i][t] *= work_of(&shape) / p->seconds;
            out->scale[t] = fmax(out->scale[t], out->factors[i][t]);
        }
    }
    for (uint32_t i = 0; i < rates->count; i++)
        for (int t = 0; t < MICS_KERNEL_TERMS; t++)
            out->factors[i][t] /= out->scale[t];
}

/* Least squares with the terms in `set` only: those terms, the others 0. Returns the sum of squared
 * relative deviations; infinite: singular, or a term is negative. */
static double fit_terms(const struct rows *rows, unsigned set, double *terms)
{
    double system[MICS_KERNEL_TERMS][MICS_KERNEL_TERMS + 1] = {{0}}, found[MICS_KERNEL_TERMS];
    int index[MICS_KERNEL_TERMS] = {0}, size = 0;
    double sum = 0;

    for (int t = 0; t < MICS_KERNEL_TERMS; t++) {
        terms[t] = 0;
        if (set >> t & 1)
            index[size++] = t;
    }
    for (uint32_t i = 0; i < rows->count; i++)
        for (int r = 0; r < size; r++) {
            for (int c = 0; c < size; c++)
                system[r][c] += rows->factors[i][index[r]] * rows->factors[i][index[c]];
            system[r][size] += rows->factors[i][index[r]];
        }
    if (!solve(system, size, found))
        return INFINITY;
    for (int r = 0; r < size; r++) {
        if (!(found[r] >= 0))
            return INFINITY;
        terms[index[r]] = found[r];
    }
    for (uint32_t i = 0; i < rows->count; i++) {
        double deviation = -1;

        for (int t = 0; t < MICS_KERNEL_TERMS; t++)
            deviation += rows->factors[i][t] * terms[t];
        sum += deviation * deviation;
    }
    return sum;
}

/* Each subset of the terms is tried, smaller ones first among equals; `a` alone always fits, so the
 * minimum under terms >= 0 is found. */
void mics_kernel_rates_fit(struct mics_kernel_rates *rates)
{
    struct rows rows;
    double least = INFINITY, terms[MICS_KERNEL_TERMS];

    make_rows(rates, &rows);
    for (unsigned set = 1; set < 1u << MICS_KERNEL_TERMS; set++) {
        const double sum = fit_terms(&rows, set, terms);

        if (!(sum < least * (1 - 1e-9)))
            continue;
        least = sum;
        for (int t = 0; t < MICS_KERNEL_TERMS; t++)
            rates->terms[t] = terms[t] / rows.scale[t];
    }
}

static double fitted_seconds(const struct mics_kernel_rates *rates,
                             const struct mics_kernel_shape *shape)
{
    double factors[MICS_KERNEL_TERMS], seconds = 0;

    factors_of(shape->m, shape->n, shape->k, factors);
    for (int t = 0; t < MICS_KERNEL_TERMS; t++)
        seconds += rates->terms[t] * factors[t];
    return seconds * work_of(shape);
}

enum { SIZES = 3 }; /* m, n, k */

static double size_of(const struct mics_kernel_point *point, int size)
{
    return size == 0 ? point->m : size == 1 ? point->n : point->k;
}

/* The nearest measured sizes on both sides of x, and where x is between them: 0 to 1, in
 * logarithms. Outside of all, the last on both sides. */
struct between {
    double low, high, at;
};

static struct between sizes_around(const struct mics_kernel_rates *rates, int size, double x)
{
    struct between found = {0, INFINITY, 0};

    for (uint32_t i = 0; i < rates->count; i++) {
        const double measured = size_of(&rates->points[i], size);

        if (measured <= x)
            found.low = fmax(found.low, measured);
        if (measured >= x)
            found.high = fmin(found.high, measured);
    }
    if (found.low == 0)
        found.low = found.high;
    else if (isinf(found.high))
        found.high = found.low;
    else if (found.low < found.high)
        found.at = log(x / found.low) / log(found.high / found.low);
    return found;
}

static const struct mics_kernel_point *find_point(const struct mics_kernel_rates *rates,
                                                  const double sizes[SIZES])
{
    for (uint32_t i = 0; i < rates->count; i++)
        if (rates->points[i].m == sizes[0] && rates->points[i].n == sizes[1] &&
            rates->points[i].k == sizes[2])
            return &rates->points[i];
    return NULL;
}

/* What was measured over the fit, interpolated between the points around a shape; 1 where one of
 * them is missing. */
static double correction(const struct mics_kernel_rates *rates,
                         const struct mics_kernel_shape *shape)
{
    const struct between around[SIZES] = {sizes_around(rates, 0, shape->m),
                                          sizes_around(rates, 1, shape->n),
                                          sizes_around(rates, 2, shape->k)};
    double sum = 0; /* of logarithms */

    for (unsigned corner = 0; corner < 1u << SIZES; corner++) {
        double sizes[SIZES], weight = 1;

        for (int i = 0; i < SIZES; i++) {
            const bool high = corner >> i & 1;

            sizes[i] = high ? around[i].high : around[i].low;
            weight *= high ? around[i].at : 1 - around[i].at;
        }
        if (weight == 0)
            continue;
        const struct mics_kernel_point *point = find_point(rates, sizes);
        if (!point)
            return 1;
        const struct mics_kernel_shape measured = {
            .kernel = rates->kernel, .m = sizes[0], .n = sizes[1], .k = sizes[2]};
        sum += weight * log(point->seconds / fitted_seconds(rates, &measured));
    }
    return exp(sum);
}

/* Seconds by the fit and its correction. */
static double rates_seconds(const struct mics_kernel_rates *rates,
                            const struct mics_kernel_shape *shape)
{
    if (shape->m == 0 || shape->n == 0 || shape->k == 0)
        return 0;
    return fitted_seconds(rates, shape) * correction(rates, shape);
}

/* The type whose rates an operation has. On hosts products of fp16 are computed in fp32; passes
 * over memory take the time of bf16, of which as many bytes are read and written. */
static enum mics_dtype rated_dtype(const struct mics_kernel_shape *shape)
{
    if (shape->dtype != MICS_F16)
        return shape->dtype;
    return shape->kernel == MICS_K_MATMUL || shape->kernel == MICS_K_ATTENTION ||
                   shape->kernel == MICS_K_ATTENTION_GRAD
               ? MICS_F32
               : MICS_BF16;
}

static double seconds_of(const struct mics_kernel_rates *list, uint32_t count,
                         const struct mics_kernel_shape *shape)
{
    const enum mics_dtype dtype = rated_dtype(shape);

    for (uint32_t i = 0; i < count; i++)
        if (list[i].kernel == shape->kernel && list[i].form == shape->form &&
            list[i].dtype == dtype)
            return rates_seconds(&list[i], shape);
    return -1;
}

/* An expert's product takes the time of an ordinary one of its size, so a grouped product takes
 * that of as many as there are experts, with equal rows. Makes the shape that of one of them;
 * returns their number. */
static double split_experts(enum mics_kernel kernel, const void *args,
                            struct mics_kernel_shape *shape)
{
    const struct mics_args_grouped_matmul *product = args;
    const struct mics_args_grouped_matmul_grad *grad = args;

    if (kernel != MICS_K_GROUPED_MATMUL && kernel != MICS_K_GROUPED_MATMUL_GRAD)
        return 1;
    const bool by_rows = kernel == MICS_K_GROUPED_MATMUL;
    const double rows = by_rows ? product->rows : grad->rows, E = by_rows ? product->E : grad->E;
    const double experts = fmax(1, fmin(E, rows));
    shape->kernel = MICS_K_MATMUL;
    *(by_rows ? &shape->m : &shape->k) = rows / experts;
    return experts;
}

double mics_kernel_launch_seconds(const struct mics_kernel_rates *list, uint32_t count,
                                  enum mics_kernel kernel, const void *args)
{
    const struct mics_args_matmul *product = args;
    struct mics_kernel_shape shape;

    if (!shape_of(kernel, args, &shape))
        return -1;
    const double experts = split_experts(kernel, args, &shape);
    const double one = seconds_of(list, count, &shape);
    const double seconds = one < 0 ? one : experts * one;
    if (kernel != MICS_K_MATMUL || seconds < 0 || (!product->pre_gelu && !product->gelu_of))
        return seconds;
    struct mics_kernel_shape gelu = pass(shape.m * shape.n, shape.dtype);
    gelu.kernel = product->pre_gelu ? MICS_K_GELU : MICS_K_GELU_GRAD;
    return seconds + fmax(0, seconds_of(list, count, &gelu));
}

/* The document ------------------------------------------------------------------------------- */

static void read_kernel(const struct mics_cursor *at, struct mics_kernel_rates *rates)
{
    const char *name = mics_cursor_get_string(at, "kernel");
    const char *form = mics_cursor_opt_string(at, "form", "");
    uint32_t kernel = 0;

    while (kernel < MICS_KERNEL_COUNT && strcmp(name, mics_kernel_name((enum mics_kernel)kernel)))
        kernel++;
    if (kernel == MICS_KERNEL_COUNT || kernel == MICS_K_CALL) {
        mics_cursor_reject(at, "kernel", "'%.32s': no such operation; measure anew", name);
        return;
    }
    rates->kernel = (enum mics_kernel)kernel;
    for (const char *known; (known = mics_kernel_form_name(rates->kernel, rates->form)) != NULL;
         rates->form++)
        if (strcmp(form, known) == 0)
            return;
    mics_cursor_reject(at, "form", "'%.32s': no such form of '%s'", form, name);
}

static void read_point(const struct mics_cursor *points, size_t index,
                       struct mics_kernel_point *out)
{
    const struct mics_cursor at = mics_cursor_item_any(points, index);
    double numbers[4];

    if (!json_is_array(at.value) || json_array_size(at.value) != 4)
        mics_cursor_reject(&at, NULL, "expected [m, n, k, seconds]");
    for (size_t i = 0; i < 4; i++) {
        const struct mics_cursor number = mics_cursor_item_any(&at, i);

        numbers[i] = json_number_value(number.value);
        if (i < 3 && (!json_is_number(number.value) || !(numbers[i] >= 1) || numbers[i] > max_size))
            mics_cursor_reject(&number, NULL, "expected a size from 1 to 1e15");
        if (!json_is_number(number.value) || !(numbers[i] > 1e-12) ||
            (i == 3 && numbers[i] > max_seconds))
            mics_cursor_reject(&number, NULL, "expected seconds from 1e-12 to 3600");
    }
    *out = (struct mics_kernel_point){numbers[0], numbers[1], numbers[2], numbers[3]};
}

static void read_series(const struct mics_cursor *at, struct mics_kernel_rates *rates)
{
    const char *dtype;

    read_kernel(at, rates);
    dtype = mics_cursor_get_string(at, "dtype");
    if (strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0)
        mics_cursor_reject(at, "dtype", "'%.16s': expected f32 or bf16", dtype);
    rates->dtype = strcmp(dtype, "f32") == 0 ? MICS_F32 : MICS_BF16;
    const struct mics_cursor points = mics_cursor_get_array(at, "points", 1, MICS_KERNEL_POINTS);
    rates->count = (uint32_t)mics_cursor_count(&points);
    for (size_t i = 0; i < rates->count; i++)
        read_point(&points, i, &rates->points[i]);
    if (mics_cursor_ok(at))
        mics_kernel_rates_fit(rates);
}

void mics_kernel_rates_read(const struct mics_cursor *device, struct mics_kernel_rates **out,
                            uint32_t *count)
{
    struct mics_kernel_rates *list;

    *out = NULL;
    *count = 0;
    if (!mics_cursor_has(device, "kernel_rates"))
        return;
    const struct mics_cursor array = mics_cursor_get_array(device, "kernel_rates", 0, MAX_SERIES);

    *out = list = mics_cursor_calloc(&array, sizeof *list);
    *count = list ? (uint32_t)mics_cursor_count(&array) : 0;
    for (size_t i = 0; i < *count && mics_cursor_ok(device); i++) {
        const struct mics_cursor at = mics_cursor_get_item(&array, i);

        read_series(&at, &list[i]);
        for (size_t j = 0; j < i; j++)
            if (list[j].kernel == list[i].kernel && list[j].form == list[i].form &&
                list[j].dtype == list[i].dtype)
                mics_cursor_reject(&at, NULL, "same operation, form and type as in item %zu", j);
    }
}

static json_t *series_to_doc(const struct mics_kernel_rates *rates)
{
    json_t *series = json_object(), *points = json_array();
    const char *form = mics_kernel_form_name(rates->kernel, rates->form);
    bool failed = false;

    for (uint32_t i = 0; i < rates->count; i++) {
        const struct mics_kernel_point *p = &rates->points[i];

        failed |= json_array_append_new(points, json_pack("[I, I, I, f]", (json_int_t)p->m,
                                                          (json_int_t)p->n, (json_int_t)p->k,
                                                          p->seconds)) != 0;
    }
    failed |=
        json_object_set_new(series, "kernel", json_string(mics_kernel_name(rates->kernel))) != 0;
    if (form[0])
        failed |= json_object_set_new(series, "form", json_string(form)) != 0;
    failed |= json_object_set_new(series, "dtype",
                                  json_string(rates->dtype == MICS_F32 ? "f32" : "bf16")) != 0;
    failed |= json_object_set_new(series, "points", points) != 0;
    if (failed) {
        json_decref(series);
        return NULL;
    }
    return series;
}

enum mics_status mics_kernel_rates_to_doc(const struct mics_kernel_rates *list, uint32_t count,
                                          json_t **out, struct mics_err *err)
{
    json_t *array = json_array();
    bool failed = !array;

    for (uint32_t i = 0; i < count; i++)
        failed |= json_array_append_new(array, series_to_doc(&list[i])) != 0;
    if (failed) {
        json_decref(array);
        return mics_err_nomem(err);
    }
    *out = array;
    return MICS_OK;
}
