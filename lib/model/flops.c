/* SPDX-License-Identifier: Apache-2.0 */
#include "model/flops.h"

#include "model/activation_layout.h"

struct mics_work mics_work_of(const struct mics_batch *batch)
{
    return (struct mics_work){.size = (double)mics_dtype_bytes(batch->dtype),
                              .grad_size = (double)mics_dtype_bytes(batch->grad_dtype)};
}

void mics_work_matmul(struct mics_work *work, double m, double n, double k, bool add)
{
    work->flops += 2 * m * n * k;
    work->bytes += work->size * (m * k + k * n + (add ? 2 : 1) * m * n);
}

void mics_work_pass(struct mics_work *work, double numbers)
{
    work->bytes += work->size * numbers;
}

void mics_work_matrix_grad(struct mics_work *work, double m, double n, double k)
{
    work->flops += 2 * m * n * k;
    work->bytes += work->size * (m * k + k * n) + work->grad_size * 2 * m * n;
}

void mics_work_linear_grad(struct mics_work *work, double rows, double in, double out)
{
    mics_work_matrix_grad(work, in, out, rows);
    mics_work_matmul(work, rows, in, out, false);
}

struct mics_work mics_work_head(const struct mics_model *model, const struct mics_batch *batch,
                                uint32_t at_once)
{
    const uint32_t rows = batch->B * batch->T;
    const double R = rows, C = model->config.n_embd,
                 V = mics_carve_head_columns(model->config.vocab_size);
    const double more = (rows + at_once - 1) / at_once - 1; /* pieces after the first */
    struct mics_work work = mics_work_of(batch);

    mics_work_pass(&work, MICS_WORK_NORM * R * C);
    mics_work_matmul(&work, R, V, C, false);
    mics_work_pass(&work, more * V * C); /* the matrix is read for every piece */
    mics_work_pass(&work, (batch->train ? 2 : 1) * R * model->config.vocab_size);
    if (!batch->train)
        return work;
    mics_work_matrix_grad(&work, V, C, R);
    mics_work_matmul(&work, R, C, V, false);
    work.bytes += more * V * C * (work.size + 2 * work.grad_size);
    mics_work_pass(&work, R * C);
    mics_work_pass(&work, MICS_WORK_NORM_GRAD * R * C);
    return work;
}

struct mics_stage_work mics_work_stage(const struct mics_batch *batch,
                                       const struct mics_work *forward,
                                       const struct mics_work *backward)
{
    struct mics_stage_work out = {.forward_flops = forward->flops, .forward_bytes = forward->bytes};

    if (batch->train) {
        out.backward_flops = backward->flops;
        out.backward_bytes = backward->bytes;
    }
    return out;
}
