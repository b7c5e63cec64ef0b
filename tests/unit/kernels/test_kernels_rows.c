/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows: layer normalisation, embeddings, the loss. */
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

#define EPS 1e-5

/* Layer normalisation of one row in double, and the gradient of sum(grad * out) by its inputs. */
static void reference_row(uint32_t C, const float *in, const float *weight, const float *bias,
                          const float *grad, double *out, double *grad_in, double *grad_weight)
{
    double mean = 0, var = 0, rstd, sum_g = 0, sum_gx = 0;

    for (uint32_t c = 0; c < C; c++)
        mean += in[c] / (double)C;
    for (uint32_t c = 0; c < C; c++)
        var += (in[c] - mean) * (in[c] - mean) / C;
    rstd = 1 / sqrt(var + EPS);
    for (uint32_t c = 0; c < C; c++) {
        double x = (in[c] - mean) * rstd;

        out[c] = x * weight[c] + bias[c];
        grad_weight[c] += grad[c] * x;
        sum_g += grad[c] * weight[c];
        sum_gx += grad[c] * weight[c] * x;
    }
    for (uint32_t c = 0; c < C; c++)
        grad_in[c] += rstd * (grad[c] * weight[c] - sum_g / C - (in[c] - mean) * rstd * sum_gx / C);
}

struct norm {
    uint32_t rows, C;
    float *in, *weight, *bias, *grad, *start; /* start: what the gradients are added to */
    double *out, *grad_in, *grad_weight, *grad_bias;
};

static struct norm make_norm(uint32_t rows, uint32_t C)
{
    size_t count = (size_t)rows * C;
    struct norm t = {rows,
                     C,
                     random_floats(count, 1),
                     random_floats(C, 2),
                     random_floats(C, 3),
                     random_floats(count, 4),
                     random_floats(count + C, 5),
                     zero_doubles(count),
                     zero_doubles(count),
                     zero_doubles(C),
                     zero_doubles(C)};

    for (size_t i = 0; i < count; i++) {
        t.grad_in[i] = t.start[i];
        t.in[i] += i % C % 2 ? 3 : 0;
    }
    for (uint32_t c = 0; c < C; c++) {
        t.grad_weight[c] = t.grad_bias[c] = t.start[c];
        for (uint32_t i = 0; i < rows; i++)
            t.grad_bias[c] += t.grad[(size_t)i * C + c];
    }
    for (size_t i = 0; i < count; i += C)
        reference_row(C, t.in + i, t.weight, t.bias, t.grad + i, t.out + i, t.grad_in + i,
                      t.grad_weight);
    return t;
}

static void free_norm(struct norm *t)
{
    void *all[] = {t->in,  t->weight,  t->bias,        t->grad,     t->start,
                   t->out, t->grad_in, t->grad_weight, t->grad_bias};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static void check_norm(uint32_t rows, uint32_t C)
{
    struct norm t = make_norm(rows, C);
    size_t count = (size_t)rows * C;
    float *first = NULL;
    /* out, grad_in, then mean, rstd, grad_weight, grad_bias */
    size_t total = 2 * count + 2 * rows + 2 * C;

    for (unsigned i = 0; i < POOLS; i++) {
        float *got = random_floats(total, 6), *mean = got + 2 * count, *rstd = mean + rows;
        float *grad_weight = rstd + rows, *grad_bias = grad_weight + C;

        memcpy(got + count, t.start, count * sizeof(float));
        memcpy(grad_weight, t.start, C * sizeof(float));
        memcpy(grad_bias, t.start, C * sizeof(float));
        mics_host_layernorm(pools[i], &(struct mics_args_layernorm){.out = got,
                                                                    .mean = mean,
                                                                    .rstd = rstd,
                                                                    .in = t.in,
                                                                    .weight = t.weight,
                                                                    .bias = t.bias,
                                                                    .rows = rows,
                                                                    .C = C,
                                                                    .eps = (float)EPS});
        mics_host_layernorm_grad(pools[i],
                                 &(struct mics_args_layernorm_grad){.grad_in = got + count,
                                                                    .grad_weight = grad_weight,
                                                                    .grad_bias = grad_bias,
                                                                    .grad_out = t.grad,
                                                                    .in = t.in,
                                                                    .weight = t.weight,
                                                                    .mean = mean,
                                                                    .rstd = rstd,
                                                                    .rows = rows,
                                                                    .C = C});
        CHECK_CLOSE(got, t.out, count, 1e-5);
        CHECK_CLOSE(got + count, t.grad_in, count, 2e-5);
        CHECK_CLOSE(grad_weight, t.grad_weight, C, 2e-5);
        CHECK_CLOSE(grad_bias, t.grad_bias, C, 1e-5);
        if (i == 0)
            first = copy_floats(got, total);
        CHECK_SAME_BITS(got, first, total);
        free(got);
    }
    free(first);
    free_norm(&t);
}

static void layernorm_and_its_gradient_agree_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(edge_sizes); i++)
        for (size_t j = 0; j < LENGTH(edge_sizes); j++)
            check_norm(edge_sizes[i], edge_sizes[j]);
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        check_norm(row_cases[i].rows, row_cases[i].C);
}

static void layernorms_reference_agrees_with_differences(void)
{
    enum { C = 7 };
    float *in = random_floats(C, 21), *weight = random_floats(C, 22), *bias = random_floats(C, 23);
    float *grad = random_floats(C, 24);
    double out[2][C], unused[C], want[C] = {0}, none[C] = {0};

    reference_row(C, in, weight, bias, grad, out[0], want, none);
    for (unsigned i = 0; i < C; i++) {
        float kept = in[i], at[2] = {kept - 1.0f / 512, kept + 1.0f / 512};
        double slope = 0;

        for (unsigned side = 0; side < 2; side++) {
            in[i] = at[side];
            reference_row(C, in, weight, bias, grad, out[side], unused, none);
        }
        for (unsigned c = 0; c < C; c++)
            slope += grad[c] * (out[1][c] - out[0][c]) / ((double)at[1] - at[0]);
        CHECK_NEAR(slope, want[i], 1e-4);
        in[i] = kept;
    }
    free(in);
    free(weight);
    free(bias);
    free(grad);
}

static void a_large_mean_does_not_spoil_the_variance(void)
{
    float in[64], out[64], one[64], zero[64] = {0}, mean, rstd;

    for (int i = 0; i < 64; i++) {
        in[i] = 10000.0f + (float)(i % 2);
        one[i] = 1;
    }
    mics_host_layernorm(pools[0], &(struct mics_args_layernorm){.out = out,
                                                                .mean = &mean,
                                                                .rstd = &rstd,
                                                                .in = in,
                                                                .weight = one,
                                                                .bias = zero,
                                                                .rows = 1,
                                                                .C = 64,
                                                                .eps = (float)EPS});
    CHECK_NEAR(mean, 10000.5, 0);
    CHECK_NEAR(rstd, 2, 1e-4);
    CHECK_NEAR(out[1], 1, 1e-4);
}

static void nan_in_a_row_stays_in_that_row(void)
{
    float in[2 * 40] = {0}, out[2 * 40], one[40], mean[2], rstd[2];

    for (int c = 0; c < 40; c++)
        one[c] = 1;
    in[39] = NAN;
    mics_host_layernorm(pools[0], &(struct mics_args_layernorm){.out = out,
                                                                .mean = mean,
                                                                .rstd = rstd,
                                                                .in = in,
                                                                .weight = one,
                                                                .bias = one,
                                                                .rows = 2,
                                                                .C = 40,
                                                                .eps = (float)EPS});
    CHECK(isnan(out[0]) && isnan(out[39]) && out[40] == 1 && out[79] == 1);
}

static int32_t *make_tokens(const struct embedding_case *c)
{
    int32_t *tokens = malloc((c->B * c->T + 1) * sizeof *tokens);

    if (!tokens)
        abort();
    for (uint32_t i = 0; i < c->B * c->T; i++)
        tokens[i] = case_token(i, c->V, c->distinct);
    return tokens;
}

static void embeddings_are_looked_up_and_added(void)
{
    for (size_t s = 0; s < LENGTH(embedding_cases); s++) {
        const struct embedding_case *c = &embedding_cases[s];
        const uint32_t T = c->T, C = c->C;
        const size_t count = (size_t)c->B * T * C;
        float *wte = random_floats((size_t)c->V * C, 31), *wpe = random_floats(T * C, 32);
        float *out = random_floats(count, 33);
        int32_t *tokens = make_tokens(c);
        struct mics_args_embedding args = {
            .out = out, .tokens = tokens, .wte = wte, .wpe = wpe, .B = c->B, .T = T, .C = C};

        mics_host_embedding(pools[s % POOLS], &args);
        for (size_t i = 0; i < count; i++)
            CHECK(out[i] == wte[(size_t)tokens[i / C] * C + i % C] + wpe[i / C % T * C + i % C]);
        args.wpe = NULL;
        mics_host_embedding(pools[s % POOLS], &args);
        for (size_t i = 0; i < count; i++)
            CHECK(out[i] == wte[(size_t)tokens[i / C] * C + i % C]);
        free(wte);
        free(wpe);
        free(out);
        free(tokens);
    }
}

static void gradients_of_equal_tokens_add_up_in_one_order(void)
{
    for (size_t s = 0; s < LENGTH(embedding_cases); s++) {
        const struct embedding_case *c = &embedding_cases[s];
        const uint32_t T = c->T, C = c->C;
        const size_t count = (size_t)c->B * T * C, words = (size_t)c->V * C, all = words + T * C;
        float *grad = random_floats(count, 34), *start = random_floats(all, 35), *first = NULL;
        double *want = zero_doubles(all);
        int32_t *tokens = make_tokens(c);

        for (size_t i = 0; i < all; i++)
            want[i] = start[i];
        for (size_t i = 0; i < count; i++) {
            want[(size_t)tokens[i / C] * C + i % C] += grad[i];
            want[words + i / C % T * C + i % C] += grad[i];
        }
        for (unsigned i = 0; i < POOLS; i++) {
            float *got = copy_floats(start, all), *separate = copy_floats(start, all);
            struct mics_args_embedding_grad args = {.grad_wte = got,
                                                    .grad_wpe = got + words,
                                                    .tokens = tokens,
                                                    .grad_out = grad,
                                                    .B = c->B,
                                                    .T = T,
                                                    .C = C,
                                                    .V = c->V};

            mics_host_embedding_grad(pools[i], &args);
            CHECK_CLOSE(got, want, all, 1e-5);
            args.grad_wte = separate;
            args.grad_wpe = NULL;
            mics_host_embedding_grad(pools[i], &args);
            CHECK_SAME_BITS(separate, got, words);
            CHECK_SAME_BITS(separate + words, start + words, T * C);
            free(separate);
            if (i == 0)
                first = copy_floats(got, all);
            CHECK_SAME_BITS(got, first, all);
            free(got);
        }
        free(first);
        free(start);
        free(grad);
        free(want);
        free(tokens);
    }
}

int main(void)
{
    open_pools();
    TAP_RUN(layernorm_and_its_gradient_agree_with_plain_loops);
    TAP_RUN(layernorms_reference_agrees_with_differences);
    TAP_RUN(a_large_mean_does_not_spoil_the_variance);
    TAP_RUN(nan_in_a_row_stays_in_that_row);
    TAP_RUN(embeddings_are_looked_up_and_added);
    TAP_RUN(gradients_of_equal_tokens_add_up_in_one_order);
    return close_pools();
}
