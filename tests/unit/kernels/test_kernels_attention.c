/* SPDX-License-Identifier: Apache-2.0 */
/* Blocked attention and its gradient against plain loops in double. */
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

/* A problem, its reference in double, and the results of the kernels. */
struct problem {
    struct attention_dims s;
    size_t C, W, rows;     /* H D, (H + 2 H_kv) D, B T */
    float *qkv, *grad_out; /* [rows, W], [rows, C] */
    double *p;             /* [T], one row of probabilities */
    double *out, *lse, *grad_qkv;
    float *got_out, *got_lse, *got_grad, *delta;
    int32_t *targets; /* [rows], or NULL */
};

/* Where the key of position j for query head h is in qkv, and behind it by H_kv D its value. */
static size_t key_at(const struct problem *t, size_t b, size_t h, size_t j)
{
    return (b * t->s.T + j) * t->W + t->C + h / (t->s.H / t->s.H_kv) * t->s.D;
}

static size_t value_at(const struct problem *t, size_t b, size_t h, size_t j)
{
    return key_at(t, b, h, j) + (size_t)t->s.H_kv * t->s.D;
}

static double score(const struct problem *t, size_t b, size_t h, size_t i, size_t j)
{
    const float *q = t->qkv + (b * t->s.T + i) * t->W + h * t->s.D;
    const float *k = t->qkv + key_at(t, b, h, j);
    double sum = 0;

    for (size_t d = 0; d < t->s.D; d++)
        sum += (double)q[d] * k[d];
    return sum / sqrt(t->s.D);
}

/* Documents of 1, 2, ... tokens up to the longest, and again: across the blocks of keys. */
static int32_t *make_targets(const struct problem *t)
{
    int32_t *targets = malloc(t->rows * sizeof *targets);
    uint32_t length = 0, wanted = 1;

    for (size_t i = 0; i < t->rows; i++) {
        length = i % t->s.T == 0 ? 1 : length + 1;
        targets[i] = (int32_t)(i % 3) - 1; /* some are not counted */
        if (length >= wanted) {
            targets[i] = MICS_TARGET_LAST;
            length = 0;
            wanted = wanted % t->s.documents + 1;
        }
    }
    return targets;
}

/* The first key that query i sees. */
static size_t first_key(const struct problem *t, size_t b, size_t i)
{
    size_t j = i;

    while (j > 0 && !(t->targets && t->targets[b * t->s.T + j - 1] == MICS_TARGET_LAST) &&
           !(t->s.window > 0 && i - j + 1 == t->s.window))
        j--;
    return j;
}

/* The key behind the last one that query i sees. */
static size_t keys_end(const struct problem *t, size_t b, size_t i)
{
    size_t end = i + 1;

    while (!t->s.causal && end < t->s.T &&
           !(t->targets && t->targets[b * t->s.T + end - 1] == MICS_TARGET_LAST))
        end++;
    return end;
}

/* Probabilities of query i into t->p, 0 for keys of other documents; returns how many there are. */
static size_t probabilities(struct problem *t, size_t b, size_t h, size_t i, double *lse)
{
    size_t keys = keys_end(t, b, i), first = t->s.causal || t->targets ? first_key(t, b, i) : 0;
    double max = -INFINITY, sum = 0;

    for (size_t j = first; j < keys; j++)
        max = fmax(max, t->p[j] = score(t, b, h, i, j));
    for (size_t j = 0; j < keys; j++)
        sum += t->p[j] = j < first ? 0 : exp(t->p[j] - max);
    for (size_t j = 0; j < keys; j++)
        t->p[j] /= sum;
    *lse = max + log(sum);
    return keys;
}

static void reference_query(struct problem *t, size_t b, size_t h, size_t i)
{
    size_t D = t->s.D, C = t->C, row = b * t->s.T + i;
    size_t keys = probabilities(t, b, h, i, &t->lse[(b * t->s.H + h) * t->s.T + i]);
    const float *dout = t->grad_out + row * C + h * D, *q = t->qkv + row * t->W + h * D;
    double *out = t->out + row * C + h * D, delta = 0;

    for (size_t j = 0; j < keys; j++)
        for (size_t d = 0; d < D; d++)
            out[d] += t->p[j] * t->qkv[value_at(t, b, h, j) + d];
    for (size_t d = 0; d < D; d++)
        delta += dout[d] * out[d];
    for (size_t j = 0; j < keys; j++) {
        const float *k = t->qkv + key_at(t, b, h, j), *v = t->qkv + value_at(t, b, h, j);
        double *dk = t->grad_qkv + key_at(t, b, h, j), *dv = t->grad_qkv + value_at(t, b, h, j);
        double dp = 0, ds;

        for (size_t d = 0; d < D; d++)
            dp += (double)dout[d] * v[d];
        ds = t->p[j] * (dp - delta) / sqrt(D);
        for (size_t d = 0; d < D; d++) {
            dv[d] += t->p[j] * dout[d];
            dk[d] += ds * q[d];
            t->grad_qkv[row * t->W + h * D + d] += ds * k[d];
        }
    }
}

static void run_kernels(struct problem *t, struct mics_pool *pool)
{
    struct attention_dims s = t->s;
    struct mics_args_attention forward = {.out = t->got_out,
                                          .lse = t->got_lse,
                                          .qkv = t->qkv,
                                          .B = s.B,
                                          .T = s.T,
                                          .H = s.H,
                                          .H_kv = s.H_kv,
                                          .D = s.D,
                                          .causal = s.causal,
                                          .targets = t->targets,
                                          .window = s.window};
    struct mics_args_attention_grad backward = {.grad_qkv = t->got_grad,
                                                .delta = t->delta,
                                                .grad_out = t->grad_out,
                                                .out = t->got_out,
                                                .qkv = t->qkv,
                                                .lse = t->got_lse,
                                                .B = s.B,
                                                .T = s.T,
                                                .H = s.H,
                                                .H_kv = s.H_kv,
                                                .D = s.D,
                                                .causal = s.causal,
                                                .targets = t->targets,
                                                .window = s.window};

    mics_host_attention(pool, &forward);
    mics_host_attention_grad(pool, &backward);
}

static struct problem make_problem(struct attention_dims s, float size)
{
    struct problem t = {.s = s, .C = (size_t)s.H * s.D, .rows = (size_t)s.B * s.T};

    t.W = ((size_t)s.H + 2 * (size_t)t.s.H_kv) * s.D;
    t.targets = s.documents ? make_targets(&t) : NULL;
    t.qkv = random_floats(t.rows * t.W, 11);
    for (size_t i = 0; i < t.rows * t.W; i++)
        t.qkv[i] *= size;
    t.grad_out = random_floats(t.rows * t.C, 12);
    t.p = zero_doubles(s.T);
    t.out = zero_doubles(t.rows * t.C);
    t.lse = zero_doubles(t.rows * s.H);
    t.grad_qkv = zero_doubles(t.rows * t.W);
    t.got_out = random_floats(t.rows * t.C, 13);
    t.got_lse = random_floats(t.rows * s.H, 14);
    t.got_grad = random_floats(t.rows * t.W, 15); /* to be overwritten */
    t.delta = random_floats(t.rows * s.H, 16);
    for (size_t b = 0; b < s.B; b++)
        for (size_t h = 0; h < s.H; h++)
            for (size_t i = 0; i < s.T; i++)
                reference_query(&t, b, h, i);
    return t;
}

static void free_problem(struct problem *t)
{
    void *all[] = {t->qkv,     t->grad_out, t->p,        t->out,   t->lse,    t->grad_qkv,
                   t->got_out, t->got_lse,  t->got_grad, t->delta, t->targets};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

/* Tolerances of out, lse and grad_qkv are of inputs of that size. */
static void check_problem(const struct attention_dims *s, float size, struct mics_pool *pool)
{
    struct problem t = make_problem(*s, size);

    run_kernels(&t, pool);
    CHECK_CLOSE(t.got_out, t.out, t.rows * t.C, size > 2 ? 6e-6 : 2e-6);
    CHECK_CLOSE(t.got_lse, t.lse, t.rows * t.s.H, 2e-6);
    CHECK_CLOSE(t.got_grad, t.grad_qkv, t.rows * t.W, size > 2 ? 2e-5 : 1e-5);
    free_problem(&t);
}

static void outputs_and_gradients_agree_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(attention_cases); i++)
        if (!attention_cases[i].documents && !attention_cases[i].window)
            check_problem(&attention_cases[i], 1.5f, pools[i % POOLS]);
}

static void no_token_sees_another_document(void)
{
    for (size_t i = 0; i < LENGTH(attention_cases); i++)
        if (attention_cases[i].documents && !attention_cases[i].window)
            check_problem(&attention_cases[i], 3.0f, pools[i % POOLS]);
}

/* In one pass and in two. */
static void no_token_sees_more_than_its_window(void)
{
    for (size_t i = 0; i < LENGTH(attention_cases); i++)
        for (unsigned threads = 0; threads < 2 && attention_cases[i].window; threads++)
            check_problem(&attention_cases[i], 3.0f, pools[threads ? POOLS - 1 : 0]);
}

/* Bit for bit. */
static void a_window_of_the_whole_sequence_changes_nothing(void)
{
    struct problem t =
        make_problem((struct attention_dims){2, 200, 4, 2, 20, true, 0, 0, HOST_ONLY}, 1.0f);

    run_kernels(&t, pools[0]);
    float *out = copy_floats(t.got_out, t.rows * t.C);
    float *grad = copy_floats(t.got_grad, t.rows * t.W);

    t.s.window = 200;
    run_kernels(&t, pools[0]);
    CHECK_SAME_BITS(t.got_out, out, t.rows * t.C);
    CHECK_SAME_BITS(t.got_grad, grad, t.rows * t.W);
    free(out);
    free(grad);
    free_problem(&t);
}

/* NaN in a key outside of all windows of a block of queries reaches none of them. */
static void keys_outside_of_the_window_are_not_read(void)
{
    struct problem t =
        make_problem((struct attention_dims){1, 300, 1, 1, 8, true, 0, 10, HOST_ONLY}, 1.0f);

    t.qkv[3 * t.W + t.C] = NAN;
    run_kernels(&t, pools[1]);
    CHECK(isnan(t.got_out[3 * t.C]) && isnan(t.got_out[12 * t.C]));
    for (size_t i = 128; i < 300; i++)
        CHECK(!isnan(t.got_out[i * t.C]) && !isnan(t.got_grad[i * t.W]));
    free_problem(&t);
}

/* Nor does one in a block of queries or keys that has no token of its document. */
static void keys_of_other_documents_are_not_read(void)
{
    for (size_t side = 0; side < 2; side++) {
        const size_t bad = side ? 290 : 3, first = side ? 0 : 128, end = side ? 192 : 300;
        struct problem t =
            make_problem((struct attention_dims){1, 300, 1, 1, 8, false, 300, 0, HOST_ONLY}, 1.0f);

        for (size_t i = 0; i < t.rows; i++)
            t.targets[i] = i == 100 || i == 250 ? MICS_TARGET_LAST : MICS_TARGET_NONE;
        t.qkv[bad * t.W + t.C] = NAN;
        for (unsigned i = 0; i < POOLS; i++) {
            run_kernels(&t, pools[i]);
            CHECK(isnan(t.got_out[bad * t.C]));
            for (size_t row = first; row < end; row++)
                CHECK(!isnan(t.got_out[row * t.C]) && !isnan(t.got_grad[row * t.W]));
        }
        free_problem(&t);
    }
}

static void large_scores_neither_overflow_nor_vanish(void)
{
    struct problem t =
        make_problem((struct attention_dims){1, 130, 1, 1, 32, true, 0, 0, HOST_ONLY}, 15.0f);

    run_kernels(&t, pools[0]);
    CHECK_CLOSE(t.got_out, t.out, t.rows * t.C, 2e-4);
    CHECK_CLOSE(t.got_lse, t.lse, t.rows, 1e-5);
    CHECK_CLOSE(t.got_grad, t.grad_qkv, t.rows * t.W, 2e-3);
    free_problem(&t);
}

/* Groups of heads for all threads, and for one: in one pass and in two. */
static void threads_do_not_change_attention(void)
{
    static const struct attention_dims cases[] = {
        {2, 150, 3, 1, 20, true, 0, 0, HOST_ONLY},   {1, 200, 4, 1, 64, true, 0, 0, HOST_ONLY},
        {3, 130, 2, 2, 17, false, 0, 0, HOST_ONLY},  {1, 200, 2, 1, 80, true, 70, 0, HOST_ONLY},
        {1, 200, 2, 1, 80, true, 0, 70, HOST_ONLY},  {1, 70, 1, 1, 5, true, 9, 0, HOST_ONLY},
        {1, 129, 2, 1, 128, false, 0, 0, HOST_ONLY}, {1, 200, 4, 2, 80, false, 70, 0, HOST_ONLY},
    };

    for (size_t c = 0; c < LENGTH(cases); c++) {
        struct problem t = make_problem(cases[c], 1.0f);

        run_kernels(&t, pools[0]);
        float *out = copy_floats(t.got_out, t.rows * t.C);
        float *grad = copy_floats(t.got_grad, t.rows * t.W);

        for (unsigned i = 1; i < POOLS; i++) {
            for (size_t at = 0; at < t.rows * t.W; at++)
                t.got_grad[at] = NAN;
            run_kernels(&t, pools[i]);
            CHECK_SAME_BITS(t.got_out, out, t.rows * t.C);
            CHECK_SAME_BITS(t.got_grad, grad, t.rows * t.W);
        }
        free(out);
        free(grad);
        free_problem(&t);
    }
}

/* d(sum of grad_out * out) / d(one input), from the reference's own forward pass. */
static void the_references_gradient_is_that_of_its_output(void)
{
    struct problem t =
        make_problem((struct attention_dims){1, 9, 4, 2, 3, true, 0, 0, HOST_ONLY}, 1.0f);
    const float step = 1.0f / 1024;

    for (size_t i = 0; i < t.rows * t.W; i += 7) {
        double sums[2] = {0, 0}, want = t.grad_qkv[i], lse;
        float kept = t.qkv[i];

        for (int side = 0; side < 2; side++) {
            t.qkv[i] = side ? kept + step : kept - step;
            for (size_t at = 0; at < t.rows * t.C; at++) {
                size_t row = at / t.C, h = at % t.C / t.s.D;
                size_t keys = probabilities(&t, 0, h, row, &lse);

                for (size_t j = 0; j < keys; j++)
                    sums[side] +=
                        t.grad_out[at] * t.p[j] * t.qkv[value_at(&t, 0, h, j) + at % t.s.D];
            }
        }
        CHECK_NEAR((sums[1] - sums[0]) / ((double)(kept + step) - (double)(kept - step)), want,
                   1e-6);
        t.qkv[i] = kept;
    }
    free_problem(&t);
}

static void nan_in_a_value_reaches_the_queries_that_see_it(void)
{
    struct problem t =
        make_problem((struct attention_dims){1, 100, 1, 1, 8, true, 0, 0, HOST_ONLY}, 1.0f);

    t.qkv[70 * 3 * t.C] = NAN; /* a query */
    run_kernels(&t, pools[1]);
    CHECK(isnan(t.got_out[70 * t.C]) && isnan(t.got_lse[70]));
    CHECK(!isnan(t.got_out[69 * t.C]) && !isnan(t.got_out[71 * t.C]));
    t.qkv[70 * 3 * t.C] = 0;
    t.qkv[60 * 3 * t.C + t.C] = NAN; /* a key */
    run_kernels(&t, pools[1]);
    for (size_t i = 60; i < 100; i++)
        CHECK(isnan(t.got_out[i * t.C]));
    CHECK(!isnan(t.got_out[59 * t.C]));
    free_problem(&t);
}

static void zero_sequences_are_allowed(void)
{
    float none = 5;

    mics_host_attention(pools[0], &(struct mics_args_attention){.out = &none,
                                                                .lse = &none,
                                                                .qkv = &none,
                                                                .B = 0,
                                                                .T = 4,
                                                                .H = 1,
                                                                .H_kv = 1,
                                                                .D = 1,
                                                                .causal = true});
    mics_host_attention_grad(pools[0], &(struct mics_args_attention_grad){.grad_qkv = &none,
                                                                          .delta = &none,
                                                                          .grad_out = &none,
                                                                          .out = &none,
                                                                          .qkv = &none,
                                                                          .lse = &none,
                                                                          .B = 1,
                                                                          .T = 0,
                                                                          .H = 1,
                                                                          .H_kv = 1,
                                                                          .D = 1,
                                                                          .causal = true});
    CHECK(none == 5);
}

int main(void)
{
    open_pools();
    TAP_RUN(outputs_and_gradients_agree_with_plain_loops);
    TAP_RUN(no_token_sees_another_document);
    TAP_RUN(no_token_sees_more_than_its_window);
    TAP_RUN(a_window_of_the_whole_sequence_changes_nothing);
    TAP_RUN(keys_outside_of_the_window_are_not_read);
    TAP_RUN(keys_of_other_documents_are_not_read);
    TAP_RUN(large_scores_neither_overflow_nor_vanish);
    TAP_RUN(threads_do_not_change_attention);
    TAP_RUN(the_references_gradient_is_that_of_its_output);
    TAP_RUN(nan_in_a_value_reaches_the_queries_that_see_it);
    TAP_RUN(zero_sequences_are_allowed);
    return close_pools();
}
