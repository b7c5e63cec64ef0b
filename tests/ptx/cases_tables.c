/* SPDX-License-Identifier: Apache-2.0 */
/* cases_tables.c - operations on rows that tokens name: the embedding, its gradient, the loss. */
#include "record.h"

#include <stdlib.h>

static const struct shape {
    uint32_t B, T, C, V;
    uint32_t distinct; /* tokens that occur */
    unsigned shift;
    bool positions;
} embeddings[] = {{2, 7, 520, 50, 9, 0, true}, {1, 13, 33, 31, 31, 1, false}},
  gradients[] = {
      {3, 100, 16, 300, 3, 0, true}, {1, 70, 8, 66000, 40, 0, false}, {2, 35, 9, 7, 2, 1, true}};

/* `distinct` tokens below V, far apart, in an order without pattern; the caller frees them. */
static int32_t *make_tokens(uint32_t rows, uint32_t V, uint32_t distinct)
{
    int32_t *tokens = malloc((rows + 1) * sizeof(*tokens));

    if (!tokens)
        gpu_die("out of memory");
    for (uint32_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)((uint64_t)(i * 2654435761u % 1000003 % distinct) * (V - 1) /
                              (distinct > 1 ? distinct - 1 : 1));
    return tokens;
}

static void embedding_case(struct recorder *r, enum mics_dtype dtype, struct shape s)
{
    const size_t rows = (size_t)s.B * s.T;
    int32_t *tokens = make_tokens((uint32_t)rows, s.V, s.distinct);
    struct tensor wte, wpe = {0}, out;
    const int32_t *device;

    record_begin(r, 0, "embedding_%s_%u", record_dtype_name(dtype), s.C);
    device = record_bytes(r, "tokens", tokens, rows * sizeof(*tokens));
    wte = record_random(r, "wte", dtype, (size_t)s.V * s.C, 1, 1, s.shift);
    if (s.positions)
        wpe = record_random(r, "wpe", dtype, (size_t)s.T * s.C, 1, 2, s.shift);
    out = record_output(r, "out", dtype, rows * s.C, s.shift);
    record_ran(r, mics_cuda_embedding(&r->at, &(struct mics_args_embedding){out.device, device,
                                                                            wte.device, wpe.device,
                                                                            s.B, s.T, s.C, dtype}));
    mics_host_embedding(r->pool,
                        &(struct mics_args_embedding){out.values, tokens, wte.values, wpe.values,
                                                      s.B, s.T, s.C, MICS_F32});
    record_expect(r, &out, 0);
    record_end(r);
    free(tokens);
}

static void embedding_grad_case(struct recorder *r, enum mics_dtype dtype,
                                enum mics_dtype grad_dtype, struct shape s)
{
    const size_t rows = (size_t)s.B * s.T;
    int32_t *tokens = make_tokens((uint32_t)rows, s.V, s.distinct);
    struct tensor from, wte, wpe = {0};
    const int32_t *device;

    record_begin(r, 0, "embedding_grad_%s_%s_%ux%u", record_dtype_name(dtype),
                 record_dtype_name(grad_dtype), s.B * s.T, s.C);
    device = record_bytes(r, "tokens", tokens, rows * sizeof(*tokens));
    from = record_random(r, "grad_out", dtype, rows * s.C, 1, 1, s.shift);
    wte = record_random(r, "grad_wte", grad_dtype, (size_t)s.V * s.C, 1, 2, s.shift);
    if (s.positions)
        wpe = record_random(r, "grad_wpe", grad_dtype, (size_t)s.T * s.C, 1, 3, 0);
    record_ran(r, mics_cuda_embedding_grad(&r->at, &(struct mics_args_embedding_grad){
                                                       wte.device, wpe.device, device, from.device,
                                                       s.B, s.T, s.C, s.V, dtype, grad_dtype}));
    mics_host_embedding_grad(
        r->pool, &(struct mics_args_embedding_grad){wte.values, wpe.values, tokens, from.values,
                                                    s.B, s.T, s.C, s.V, MICS_F32, MICS_F32});
    record_expect(r, &wte, 2e-5);
    if (s.positions)
        record_expect(r, &wpe, 4e-6);
    record_end(r);
    free(tokens);
}

/* Every fifth target is masked, one by being too large; what is between rows is NaN and stays. */
static void cross_entropy_case(struct recorder *r, enum mics_dtype dtype, uint32_t rows, uint32_t V,
                               uint32_t gap, unsigned shift, bool grad)
{
    const uint32_t ld = V + gap;
    const size_t count = (size_t)(rows - 1) * ld + V;
    int32_t *targets = make_tokens(rows, V, rows);
    double loss = 2, *device_loss;
    struct tensor logits;
    void *device;

    for (uint32_t i = 3; i < rows; i += 5)
        targets[i] = i % 2 ? -1 : (int32_t)V;
    record_begin(r, 0, "cross_entropy_%s_%ux%u", record_dtype_name(dtype), rows, V);
    logits = record_random(r, "logits", dtype, count, 12, V, shift);
    device = record_bytes(r, "targets", targets, rows * sizeof(*targets));
    device_loss = record_bytes(r, "loss_sum", &loss, sizeof(loss));
    record_ran(r, mics_cuda_cross_entropy(&r->at, &(struct mics_args_cross_entropy){
                                                      logits.device, device, device_loss, rows, V,
                                                      gap ? ld : 0, grad, dtype}));
    mics_host_cross_entropy(r->pool,
                            &(struct mics_args_cross_entropy){logits.values, targets, &loss, rows,
                                                              V, ld, grad, MICS_F32});
    record_expect_double(r, device_loss, loss, 1e-6);
    if (grad)
        record_expect(r, &logits, 2e-6);
    record_end(r);
    free(targets);
}

void record_table_cases(struct recorder *r)
{
    for (size_t d = 0; d < LENGTH(record_dtypes); d++) {
        const enum mics_dtype dtype = record_dtypes[d];

        for (size_t s = 0; s < LENGTH(embeddings); s++)
            embedding_case(r, dtype, embeddings[s]);
        for (size_t s = 0; s < LENGTH(gradients); s++)
            for (size_t g = 0; g < LENGTH(record_dtypes); g++)
                embedding_grad_case(r, dtype, record_dtypes[g], gradients[s]);
        cross_entropy_case(r, dtype, 7, 1003, 5, 1, true);
        cross_entropy_case(r, dtype, 2, 96, 0, 0, false);
        /* A row that does not fit shared memory. */
        cross_entropy_case(r, dtype, 1, dtype == MICS_BF16 ? 57001 : 28519, 0, 0, true);
    }
}
