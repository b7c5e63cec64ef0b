/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - how fast the host's kernels are, beside what bounds them.
 *
 * Products and attention are compared with the rate of a 1024 x 1024 x 1024 sgemm by OpenBLAS on one
 * thread in the same run; operations bound by memory with memcpy() over as many bytes. Each figure is the
 * best of several repetitions. Flops of causal attention count what the mask leaves.
 *
 *     kernels [THREADS]        (make bench)
 */
#include "host/kernels.h"
#include "base/clock.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEAT_S    0.15
#define SMALL_BATCH 8 /* larger ones are for what memory bounds */

struct model {
    const char *name;
    uint32_t B, T, C, H, V, chunk; /* chunk: rows of logits at a time */
    uint64_t params;               /* of an update */
};

static const struct model models[] = {
    {"gpt2-nano", 2, 256, 128, 4, 257, 512, 800 * 1000},
    {"gpt2-124M", 2, 256, 768, 12, 50257, 64, 8 * 1000 * 1000},
    {"out of cache", 48, 256, 768, 12, 50257, 512, 40 * 1000 * 1000},
};

/* What the operations work on: `count` floats each, enough for the largest. */
struct arrays {
    float *a, *b, *c, *d;
    int32_t *tokens;
    struct mics_op_scalars scalars;
    uint64_t count;
    struct mics_pool *pool;
    const struct model *model;
};

/* One line of the table. flops or bytes of one run; the other is 0. */
struct entry {
    const char *name;
    void (*run)(struct arrays *x);
    double (*flops)(const struct model *m);
    double (*bytes)(const struct model *m);
};

static double rows(const struct model *m)
{
    return (double)m->B * m->T;
}

static void product(struct arrays *x, uint32_t m, uint32_t n, uint32_t k, bool trans_a,
                    bool trans_b)
{
    mics_host_matmul(x->pool, &(struct mics_op_matmul){.out = x->c,
                                                       .a = x->a,
                                                       .b = x->b,
                                                       .m = m,
                                                       .n = n,
                                                       .k = k,
                                                       .lda = trans_a ? m : k,
                                                       .ldb = trans_b ? k : n,
                                                       .ldout = n,
                                                       .trans_a = trans_a,
                                                       .trans_b = trans_b,
                                                       .bias = trans_a ? NULL : x->d,
                                                       .add = trans_a ? x->c : NULL});
}

static void run_forward(struct arrays *x)
{
    product(x, x->model->B * x->model->T, 4 * x->model->C, x->model->C, false, false);
}

static void run_grad_in(struct arrays *x)
{
    product(x, x->model->B * x->model->T, x->model->C, 4 * x->model->C, false, true);
}

static void run_grad_weight(struct arrays *x)
{
    product(x, x->model->C, 4 * x->model->C, x->model->B * x->model->T, true, false);
}

static double mlp_flops(const struct model *m)
{
    return 2 * rows(m) * m->C * 4 * m->C;
}

static void run_head(struct arrays *x)
{
    product(x, x->model->chunk, x->model->V, x->model->C, false, true);
}

static double head_flops(const struct model *m)
{
    return 2.0 * m->chunk * m->V * m->C;
}

static void run_attention(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_attention(x->pool, &(struct mics_op_attention){.out = x->c,
                                                             .lse = x->d,
                                                             .qkv = x->a,
                                                             .B = m->B,
                                                             .T = m->T,
                                                             .H = m->H,
                                                             .H_kv = m->H,
                                                             .D = m->C / m->H,
                                                             .causal = true});
}

static double attention_flops(const struct model *m)
{
    return 2 * rows(m) * (m->T + 1) * m->C;
}

static void run_attention_grad(struct arrays *x)
{
    const struct model *m = x->model;
    size_t C = m->C, count = (size_t)m->B * m->T;

    mics_host_attention_grad(x->pool, &(struct mics_op_attention_grad){.grad_qkv = x->b,
                                                                       .delta = x->d + count * m->H,
                                                                       .grad_out = x->c,
                                                                       .out = x->c,
                                                                       .qkv = x->a,
                                                                       .lse = x->d,
                                                                       .B = m->B,
                                                                       .T = m->T,
                                                                       .H = m->H,
                                                                       .H_kv = m->H,
                                                                       .D = (uint32_t)C / m->H,
                                                                       .causal = true});
}

static double attention_grad_flops(const struct model *m)
{
    return 2.5 * attention_flops(m);
}

static void run_layernorm(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_layernorm(x->pool, &(struct mics_op_layernorm){.out = x->b,
                                                             .mean = x->d,
                                                             .rstd = x->d + m->B * m->T,
                                                             .in = x->a,
                                                             .weight = x->c,
                                                             .bias = x->c,
                                                             .rows = m->B * m->T,
                                                             .C = m->C,
                                                             .eps = 1e-5f});
}

static double bytes_2(const struct model *m)
{
    return 8 * rows(m) * m->C;
}

static double bytes_3(const struct model *m)
{
    return 12 * rows(m) * m->C;
}

/* The least: grad_out, in and grad_in read once, grad_in written. */
static double bytes_4(const struct model *m)
{
    return 16 * rows(m) * m->C;
}

static void run_layernorm_grad(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_layernorm_grad(x->pool,
                             &(struct mics_op_layernorm_grad){.grad_in = x->b,
                                                              .grad_weight = x->c,
                                                              .grad_bias = x->c + m->C,
                                                              .grad_out = x->a,
                                                              .in = x->a + m->B * m->T * m->C,
                                                              .weight = x->c + 2 * m->C,
                                                              .mean = x->d,
                                                              .rstd = x->d + m->B * m->T,
                                                              .rows = m->B * m->T,
                                                              .C = m->C});
}

static void run_add(struct arrays *x)
{
    mics_host_add(
        x->pool, &(struct mics_op_add){.out = x->b,
                                       .a = x->b,
                                       .b = x->a,
                                       .count = (uint64_t)x->model->B * x->model->T * x->model->C});
}

static void run_gelu(struct arrays *x)
{
    mics_host_gelu(x->pool,
                   &(struct mics_op_gelu){.out = x->b,
                                          .in = x->a,
                                          .count = 4ull * x->model->B * x->model->T * x->model->C});
}

static double gelu_bytes(const struct model *m)
{
    return 4 * bytes_2(m);
}

static void run_gelu_grad(struct arrays *x)
{
    mics_host_gelu_grad(x->pool, &(struct mics_op_gelu_grad){.grad_in = x->b,
                                                             .in = x->a,
                                                             .grad_out = x->b,
                                                             .count = 4ull * x->model->B *
                                                                      x->model->T * x->model->C});
}

static double gelu_grad_bytes(const struct model *m)
{
    return 4 * bytes_3(m);
}

static void run_bias_grad(struct arrays *x)
{
    mics_host_bias_grad(x->pool, &(struct mics_op_bias_grad){.grad_bias = x->c,
                                                             .grad_out = x->a,
                                                             .rows = x->model->B * x->model->T,
                                                             .n = 4 * x->model->C});
}

static double bias_grad_bytes(const struct model *m)
{
    return 16 * rows(m) * m->C;
}

static void run_embedding(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_embedding(x->pool, &(struct mics_op_embedding){.out = x->b,
                                                             .tokens = x->tokens,
                                                             .wte = x->a,
                                                             .wpe = x->c,
                                                             .B = m->B,
                                                             .T = m->T,
                                                             .C = m->C});
}

static void run_embedding_grad(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_embedding_grad(x->pool, &(struct mics_op_embedding_grad){.grad_wte = x->b,
                                                                       .grad_wpe = x->c,
                                                                       .tokens = x->tokens,
                                                                       .grad_out = x->a,
                                                                       .B = m->B,
                                                                       .T = m->T,
                                                                       .C = m->C,
                                                                       .V = m->V});
}

/* Read: grad_out, the token's and the position's row; written: both rows. */
static double embedding_grad_bytes(const struct model *m)
{
    return 20 * rows(m) * m->C;
}

static void run_cross_entropy(struct arrays *x)
{
    double loss = 0;

    mics_host_cross_entropy(x->pool, &(struct mics_op_cross_entropy){.logits = x->b,
                                                                     .targets = x->tokens,
                                                                     .loss_sum = &loss,
                                                                     .rows = x->model->chunk,
                                                                     .V = x->model->V,
                                                                     .grad = true});
}

static double cross_entropy_bytes(const struct model *m)
{
    return 8.0 * m->chunk * m->V;
}

static void run_squared_norm(struct arrays *x)
{
    double sum = 0;

    mics_host_squared_norm(x->pool, &(struct mics_op_squared_norm){
                                        .sum = &sum, .in = x->a, .count = x->model->params});
}

static double norm_bytes(const struct model *m)
{
    return 4.0 * (double)m->params;
}

static void run_adamw(struct arrays *x)
{
    uint64_t count = x->model->params;

    mics_host_adamw(x->pool, &(struct mics_op_adamw){.param = x->b,
                                                     .m = x->c,
                                                     .v = x->d,
                                                     .grad = x->a,
                                                     .scalars = &x->scalars,
                                                     .count = count,
                                                     .decay_count = count / 2,
                                                     .lr = 1e-9f,
                                                     .beta1 = 0.9f,
                                                     .beta2 = 0.95f,
                                                     .eps = 1e-8f,
                                                     .weight_decay = 0.1f,
                                                     .clip = 1,
                                                     .step = 9});
}

static double adamw_bytes(const struct model *m)
{
    return 28.0 * (double)m->params;
}

static void run_sgd(struct arrays *x)
{
    uint64_t count = x->model->params;

    mics_host_sgd(x->pool, &(struct mics_op_sgd){.param = x->b,
                                                 .momentum = x->c,
                                                 .grad = x->a,
                                                 .scalars = &x->scalars,
                                                 .count = count,
                                                 .decay_count = count / 2,
                                                 .lr = 1e-9f,
                                                 .mu = 0.9f,
                                                 .weight_decay = 0.1f,
                                                 .clip = 1});
}

static double sgd_bytes(const struct model *m)
{
    return 20.0 * (double)m->params;
}

static const struct entry entries[] = {
    {"matmul, MLP forward", run_forward, mlp_flops, NULL},
    {"matmul, MLP grad in", run_grad_in, mlp_flops, NULL},
    {"matmul, MLP grad weight", run_grad_weight, mlp_flops, NULL},
    {"matmul, head chunk", run_head, head_flops, NULL},
    {"attention", run_attention, attention_flops, NULL},
    {"attention_grad", run_attention_grad, attention_grad_flops, NULL},
    {"layernorm", run_layernorm, NULL, bytes_2},
    {"layernorm_grad", run_layernorm_grad, NULL, bytes_4},
    {"add", run_add, NULL, bytes_3},
    {"gelu", run_gelu, NULL, gelu_bytes},
    {"gelu_grad", run_gelu_grad, NULL, gelu_grad_bytes},
    {"bias_grad", run_bias_grad, NULL, bias_grad_bytes},
    {"embedding", run_embedding, NULL, bytes_3},
    {"embedding_grad", run_embedding_grad, NULL, embedding_grad_bytes},
    {"cross_entropy", run_cross_entropy, NULL, cross_entropy_bytes},
    {"squared_norm", run_squared_norm, NULL, norm_bytes},
    {"adamw", run_adamw, NULL, adamw_bytes},
    {"sgd", run_sgd, NULL, sgd_bytes},
};

/* Small, harmless numbers: nothing may become subnormal or infinite however often it is worked on. */
static void fill(struct arrays *x)
{
    for (uint64_t i = 0; i < x->count; i++) {
        x->a[i] = (float)(i % 101) / 101 - 0.5f;
        x->b[i] = (float)(i % 97) / 97 - 0.5f;
        x->c[i] = (float)(i % 89) / 89 + 0.01f;
        x->d[i] = (float)(i % 83) / 83 + 1.0f;
    }
}

/* Time that counts: the processor's for one thread, so that other programs disturb less. */
static double clock_s(const struct arrays *x)
{
    struct timespec now;

    if (mics_pool_threads(x->pool) > 1)
        return mics_now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Seconds of the fastest run. */
static double best_s(void (*run)(struct arrays *x), struct arrays *x)
{
    double best = 1e9, start = mics_now_s();

    run(x);
    do {
        double before = clock_s(x);

        run(x);
        double took = clock_s(x) - before;
        best = took < best ? took : best;
    } while (mics_now_s() - start < REPEAT_S);
    return best;
}

static void run_peak(struct arrays *x)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1024, 1024, 1024, 1, x->a, 1024, x->b,
                1024, 0, x->c, 1024);
}

static struct {
    uint64_t bytes;
} copy_size;

static void run_memcpy(struct arrays *x)
{
    memcpy(x->b, x->a, copy_size.bytes / 2);
}

/* GB/s of a copy that reads and writes `bytes` in all. */
static double copy_rate(struct arrays *x, double bytes)
{
    copy_size.bytes = (uint64_t)bytes;
    if (copy_size.bytes / 2 > x->count * sizeof(float))
        copy_size.bytes = x->count * sizeof(float) * 2;
    return (double)copy_size.bytes / best_s(run_memcpy, x) / 1e9;
}

static void print_entry(struct arrays *x, const struct entry *e, double peak)
{
    double seconds, bytes;

    if (e->flops && x->model->B > SMALL_BATCH)
        return;
    fill(x);
    seconds = best_s(e->run, x);
    if (e->flops) {
        double rate = e->flops(x->model) / seconds / 1e9;

        printf("%-26s %10.1f us %8.1f GFLOP/s %5.2f of sgemm\n", e->name, seconds * 1e6, rate,
               rate / peak);
        return;
    }
    bytes = e->bytes(x->model);
    printf("%-26s %10.1f us %8.1f GB/s    %5.2f of memcpy\n", e->name, seconds * 1e6,
           bytes / seconds / 1e9, bytes / seconds / 1e9 / copy_rate(x, bytes));
}

int main(int argc, char **argv)
{
    struct arrays x = {.count = 48 * 1000 * 1000, .scalars = {.targets = 1, .squared_norm = 1}};
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    float *memory = malloc(4 * x.count * sizeof(float));
    int32_t tokens[48 * 256];
    double peak;

    x.pool = mics_pool_new(threads > 0 ? threads : 1);
    if (!memory || !x.pool)
        return 1;
    x.a = memory;
    x.b = memory + x.count;
    x.c = memory + 2 * x.count;
    x.d = memory + 3 * x.count;
    x.tokens = tokens;
    for (int i = 0; i < 48 * 256; i++)
        tokens[i] = i * 37 % 257;
    fill(&x);
    openblas_set_num_threads(1);
    peak = 2.0 * 1024 * 1024 * 1024 / best_s(run_peak, &x) / 1e9;
    printf("%u thread(s); OpenBLAS core %s, sgemm of 1024^3 on one: %.0f GFLOP/s\n", threads,
           openblas_get_corename(), peak);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        x.model = &models[i];
        printf("%s, B %u, T %u\n", models[i].name, models[i].B, models[i].T);
        for (size_t j = 0; j < sizeof(entries) / sizeof(entries[0]); j++)
            print_entry(&x, &entries[j], peak);
    }
    mics_pool_free(x.pool);
    free(memory);
    return 0;
}
