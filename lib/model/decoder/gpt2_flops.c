/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of GPT-2 cost, counted in the order of gpt2_block.c and gpt2_ends.c. */
#include "model/decoder/gpt2.h"
#include "model/flops.h"

/* Both gradients of a linear layer with a bias. */
static void add_linear_grad(struct mics_work *work, double rows, double in, double out)
{
    mics_work_linear_grad(work, rows, in, out);
    mics_work_pass(work, rows * out); /* the bias */
}

static struct mics_work to_hidden(struct mics_work work, double R, double T, double C, double F)
{
    mics_work_pass(&work, MICS_WORK_NORM * R * C);
    mics_work_matmul(&work, R, 3 * C, C, false);
    work.flops += 2 * R * T * C; /* two products of 2 R T C, half of each masked */
    mics_work_pass(&work, 4 * R * C);
    mics_work_matmul(&work, R, C, C, true); /* added to the residual stream */
    mics_work_pass(&work, MICS_WORK_NORM * R * C);
    mics_work_matmul(&work, R, F, C, false);
    return work;
}

static struct mics_work block_forward(struct mics_work none, double R, double T, double C, double F)
{
    struct mics_work work = to_hidden(none, R, T, C, F);

    mics_work_pass(&work, R * F); /* both sides of GELU are written */
    mics_work_matmul(&work, R, C, F, true);
    return work;
}

static struct mics_work block_backward(struct mics_work work, double R, double T, double C,
                                       double F, enum mics_recompute recompute)
{
    if (recompute == MICS_RECOMPUTE_FULL)
        work = to_hidden(work, R, T, C, F);
    if (recompute != MICS_RECOMPUTE_NONE) { /* GELU and both norms */
        mics_work_pass(&work, 2 * R * F);
        mics_work_pass(&work, 2 * MICS_WORK_NORM * R * C);
    }
    add_linear_grad(&work, R, F, C);
    mics_work_pass(&work, R * F); /* where the derivative of GELU is taken */
    add_linear_grad(&work, R, C, F);
    mics_work_pass(&work, MICS_WORK_NORM_GRAD * R * C);

    add_linear_grad(&work, R, C, C);
    work.flops += 5 * R * T * C; /* five products: the scores are made again */
    mics_work_pass(&work, 8 * R * C);
    add_linear_grad(&work, R, C, 3 * C);
    mics_work_pass(&work, MICS_WORK_NORM_GRAD * R * C);
    return work;
}

void mics_gpt2_work(const struct mics_model *model, const struct mics_batch *batch, uint32_t stage,
                    struct mics_stage_work *out)
{
    const double R = (double)batch->B * batch->T, T = batch->T;
    const double C = model->config.n_embd, F = model->config.n_inner;
    struct mics_work there = mics_work_of(batch), back = there;

    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED:
        mics_work_pass(&there, 3 * R * C);
        back.bytes += R * C * (back.size + 4 * back.grad_size);
        break;
    case MICS_STAGE_BLOCK:
        there = block_forward(mics_work_of(batch), R, T, C, F);
        back = block_backward(mics_work_of(batch), R, T, C, F, batch->recompute);
        break;
    case MICS_STAGE_HEAD:
        there =
            mics_work_head(model, batch, mics_gpt2_head_carve(model, batch, NULL, NULL, NULL).rows);
        break;
    }
    *out = mics_work_stage(batch, &there, &back);
}
