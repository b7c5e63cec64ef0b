/* SPDX-License-Identifier: Apache-2.0 */
/* operation_tables.h - operations on rows that tokens name: the embedding, its gradient, the loss,
 * and the rows that have a target. */
#ifndef MICS_TESTS_GPU_OPERATION_TABLES_H
#define MICS_TESTS_GPU_OPERATION_TABLES_H

#include "operation.h"

static inline int32_t *new_tokens(const struct embedding_case *c)
{
    int32_t *tokens = new_zeros(c->B * c->T * sizeof *tokens);

    for (uint32_t i = 0; i < c->B * c->T; i++)
        tokens[i] = case_token(i, c->V, c->distinct);
    return tokens;
}

static inline void embedding_case(struct suite *suite, const struct embedding_case *c,
                                  enum mics_dtype dtype, bool positions)
{
    const size_t rows = (size_t)c->B * c->T;
    int32_t *tokens = new_tokens(c);
    struct tensor wte, wpe = {0}, each = {0}, out;
    const int32_t *sent;

    case_begin(suite, 0, "embedding_%s_%u", dtype_name(dtype), c->C);
    sent = case_bytes(suite, "tokens", tokens, rows * sizeof *tokens, 0);
    wte = case_random(suite, "wte", dtype, (size_t)c->V * c->C, 1, 1, c->shift);
    if (positions)
        wpe = case_random(suite, "wpe", dtype, (size_t)c->T * c->C, 1, 2, c->shift);
    if (c->B > 1) /* a row for all tokens */
        each = case_random(suite, "each", dtype, c->C, 1, 4, c->shift);
    out = case_output(suite, "out", dtype, rows * c->C, c->shift);
    OPERATION(suite, embedding, AT(out), PLACE(sent, tokens), AT(wte), AT(wpe), c->B, c->T, c->C,
              TYPE(dtype), AT(each));
    case_expect(suite, &out, 0);
    case_end(suite);
    free(tokens);
}

static inline void embedding_grad_case(struct suite *suite, const struct embedding_case *c,
                                       enum mics_dtype dtype, enum mics_dtype grad_dtype)
{
    const size_t rows = (size_t)c->B * c->T;
    int32_t *tokens = new_tokens(c);
    struct tensor from, wte, wpe = {0};
    const int32_t *sent;

    case_begin(suite, 0, "embedding_grad_%s_%s_%ux%u", dtype_name(dtype), dtype_name(grad_dtype),
               c->B * c->T, c->C);
    sent = case_bytes(suite, "tokens", tokens, rows * sizeof *tokens, 0);
    from = case_random(suite, "grad_out", dtype, rows * c->C, 1, 1, c->shift);
    wte = case_random(suite, "grad_wte", grad_dtype, (size_t)c->V * c->C, 1, 2, c->shift);
    if (c->positions)
        wpe = case_random(suite, "grad_wpe", grad_dtype, (size_t)c->T * c->C, 1, 3, 0);
    OPERATION(suite, embedding_grad, AT(wte), AT(wpe), PLACE(sent, tokens), AT(from), c->B, c->T,
              c->C, c->V, TYPE(dtype), TYPE(grad_dtype));
    case_expect(suite, &wte, 2e-5);
    if (c->positions)
        case_expect(suite, &wpe, 4e-6);
    case_end(suite);
    free(tokens);
}

/* What is between rows stays. */
static inline void cross_entropy_case(struct suite *suite, const struct loss_case *c,
                                      enum mics_dtype dtype)
{
    const uint32_t rows = c->rows, V = c->V, ld = c->gap ? V + c->gap : 0;
    const size_t count = rows ? (size_t)(rows - 1) * (V + c->gap) + V : 0;
    int32_t *targets = new_zeros(rows * sizeof *targets);
    double loss = 2, hits = 3, scale = 0.5, *sum, *counted, *scaled;
    struct tensor logits;
    const int32_t *sent;

    for (uint32_t i = 0; i < rows; i++)
        targets[i] = case_target(i, rows, V);
    case_begin(suite, 0, "cross_entropy_%s_%ux%u", dtype_name(dtype), rows, V);
    logits = case_random(suite, "logits", dtype, count, 12, V, c->shift);
    sent = case_bytes(suite, "targets", targets, rows * sizeof *targets, 0);
    sum = case_bytes(suite, "loss_sum", &loss, sizeof loss, 0);
    counted = case_bytes(suite, "hits", &hits, sizeof hits, 0);
    scaled = case_bytes(suite, "scale", &scale, sizeof scale, 0);
    OPERATION(suite, cross_entropy, AT(logits), PLACE(sent, targets), PLACE(sum, &loss), rows, V,
              ld, !c->no_grad, TYPE(dtype), PLACE(counted, &hits),
              c->gap ? PLACE(scaled, &scale) : NULL);
    case_expect_double(suite, sum, loss, 1e-6);
    case_expect_double(suite, counted, hits, 0);
    if (!c->no_grad)
        case_expect(suite, &logits, 2e-6);
    case_end(suite);
    free(targets);
}

/* With room for `most` rows. */
static inline void select_rows_case(struct suite *suite, const struct select_case *c, uint32_t most)
{
    const size_t bytes = most * sizeof(int32_t);
    int32_t *targets = new_zeros(c->rows * sizeof *targets);
    uint32_t *order = new_zeros(bytes);
    int32_t *selected = new_zeros(bytes);
    double loss = 2;

    for (uint32_t i = 0; i < c->rows; i++)
        targets[i] = select_target(c, i);
    case_begin(suite, 0, "select_rows_%u_%u", c->rows, most);
    const void *sent = case_bytes(suite, "targets", targets, c->rows * sizeof *targets, 0);
    void *const at = case_bytes(suite, "order", order, bytes, 0);
    void *const taken = case_bytes(suite, "selected", selected, bytes, 0);
    void *const sum = case_bytes(suite, "loss_sum", &loss, sizeof loss, 0);
    OPERATION(suite, select_rows, PLACE(at, order), PLACE(taken, selected), PLACE(sum, &loss),
              PLACE(sent, targets), c->rows, most);
    case_expect_bytes(suite, at, order, bytes);
    case_expect_bytes(suite, taken, selected, bytes);
    case_expect_double(suite, sum, loss, 0);
    case_end(suite);
    free(targets);
    free(order);
    free(selected);
}

#endif
