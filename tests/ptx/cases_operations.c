/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_operations.c - the operations that tests/gpu/check_kernels_*.c check too, in the cases of
 * kernel_cases.h that are small enough.
 */
#include "record.h"

#include "gpu/operation_blocks.h"
#include "gpu/operation_flat.h"
#include "gpu/operation_rows.h"
#include "gpu/operation_tables.h"
#include "gpu/operation_update.h"

static void flat_cases_of(struct suite *suite)
{
    for (const struct flat_case *c = flat_cases; c < flat_cases + LENGTH(flat_cases); c++) {
        if (!(c->suites & PTX))
            continue;
        difference_case(suite, c);
        cast_case(suite, c, MICS_F32, MICS_F16);
        outer_update_case(suite, c);
        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            cast_case(suite, c, dtypes[d], dtypes[d] == MICS_F32 ? MICS_BF16 : MICS_F32);
            accumulate_case(suite, c, dtypes[d]);
            gelu_case(suite, c, dtypes[d]);
            gelu_grad_case(suite, c, dtypes[d]);
        }
    }
    for (size_t i = 0; i < LENGTH(square_cases); i++)
        if (square_cases[i].suites & PTX) {
            squared_norm_case(suite, &square_cases[i]);
            check_only_case(suite, &square_cases[i]);
        }
}

/* Gradients of parameters in either type, in turn. */
static void row_cases_of(struct suite *suite, enum mics_dtype dtype)
{
    for (size_t i = 0; i < LENGTH(row_cases); i++) {
        const struct row_case *c = &row_cases[i];

        for (int layer = 0; layer < 2 && c->suites & PTX_NORM; layer++) {
            norm_case(suite, layer, c, dtype);
            norm_grad_case(suite, layer, c, dtype, grad_type(dtype, i % 2));
        }
        if (c->suites & PTX_SUM)
            bias_grad_case(suite, c, dtype, grad_type(dtype, i % 2));
        if (c->suites & PTX_GATED) {
            swiglu_case(suite, c, dtype);
            swiglu_grad_case(suite, c, dtype, true);
        }
    }
    for (size_t i = 0; i < LENGTH(head_cases); i++)
        if (head_cases[i].suites & PTX)
            qk_norm_case(suite, &head_cases[i], dtype,
                         grad_type(dtype, head_cases[i].D == 34 || head_cases[i].D == 300));
    for (const struct rope_case *c = rope_cases; c < rope_cases + LENGTH(rope_cases); c++)
        if (c->suites & PTX)
            rope_case(suite, c, dtype, c->inverse);
}

static void table_cases_of(struct suite *suite, enum mics_dtype dtype)
{
    for (size_t i = 0; i < LENGTH(embedding_cases); i++) {
        const struct embedding_case *c = &embedding_cases[i];

        if (c->suites & PTX_LOOK_UP)
            embedding_case(suite, c, dtype, c->positions);
        for (int form = 0; form < grad_types(dtype) && c->suites & PTX_ADD_UP; form++)
            embedding_grad_case(suite, c, dtype, grad_type(dtype, form));
    }
    for (size_t i = 0; i < LENGTH(loss_cases); i++)
        if (loss_cases[i].suites & (dtype == MICS_F32 ? PTX_F32 : PTX_BF16))
            cross_entropy_case(suite, &loss_cases[i], dtype);
}

static void select_cases_of(struct suite *suite)
{
    for (size_t i = 0; i < LENGTH(select_cases); i++)
        if (select_cases[i].suites & PTX)
            for (uint32_t part = 1; part <= 2; part++) /* with less room than is needed, too */
                select_rows_case(suite, &select_cases[i], select_cases[i].most / part);
}

static void block_cases_of(struct suite *suite)
{
    const uint32_t count = block_cases[PTX_BLOCKS].count;

    for (size_t from = 0; from < LENGTH(wire_dtypes); from++)
        for (size_t to = 0; to < LENGTH(wire_dtypes); to++) {
            const enum mics_dtype in = wire_dtypes[from], out = wire_dtypes[to];

            sum_blocks_case(suite, in, out, count, from % 2 ? 1 : 3, false, false, 0);
            if (mics_dtype_is_blocks(out))
                sum_blocks_case(suite, in, out, count, from % 2 ? 2 : 1, true, false, 0);
        }
}

void record_operation_cases(struct suite *suite)
{
    flat_cases_of(suite);
    block_cases_of(suite);
    select_cases_of(suite);
    for (size_t d = 0; d < LENGTH(dtypes); d++) {
        row_cases_of(suite, dtypes[d]);
        table_cases_of(suite, dtypes[d]);
    }
    for (const struct update_case *c = update_cases; c < update_cases + LENGTH(update_cases); c++)
        for (int optimizer = 0; c->name && optimizer < MICS_OPT_COUNT; optimizer++)
            update_case(suite, (enum mics_optimizer)optimizer, c,
                        (struct mics_args_scalars){.targets = 8, .squared_norm = c->squared_norm},
                        c->clip);
    loss_scale_cases(suite);
}
