/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of Llama cost, counted in the order of llama_block.c and llama_ends.c. */
#include "model/decoder/llama.h"
#include "model/flops.h"

/* Numbers that turning queries and keys moves. */
static double rope(const struct mics_llama_sizes *s)
{
    return 2.0 * s->rows * (s->H + s->H_kv) * s->D;
}

static struct mics_work to_hidden(struct mics_work work, const struct mics_llama_sizes *s, double T)
{
    const double R = s->rows, C = s->C, F = s->F, A = s->heads_width, W = s->qkv_width;

    mics_work_pass(&work, MICS_WORK_NORM * R * C);
    mics_work_matmul(&work, R, W, C, false);
    mics_work_pass(&work, rope(s));
    work.flops += 2 * R * T * A; /* two products of 2 R T A, half of each masked */
    mics_work_pass(&work, R * (W + A));
    mics_work_matmul(&work, R, C, A, true); /* added to the residual stream */
    mics_work_pass(&work, MICS_WORK_NORM * R * C);
    mics_work_matmul(&work, R, 2 * F, C, false);
    return work;
}

static struct mics_work block_forward(struct mics_work none, const struct mics_llama_sizes *s,
                                      double T)
{
    struct mics_work work = to_hidden(none, s, T);

    mics_work_pass(&work, 3.0 * s->rows * s->F);
    mics_work_matmul(&work, s->rows, s->C, s->F, true);
    return work;
}

static struct mics_work block_backward(struct mics_work work, const struct mics_llama_sizes *s,
                                       double T, enum mics_recompute recompute)
{
    const double R = s->rows, C = s->C, F = s->F, A = s->heads_width, W = s->qkv_width;

    if (recompute == MICS_RECOMPUTE_FULL)
        work = to_hidden(work, s, T);
    if (recompute != MICS_RECOMPUTE_NONE) { /* SwiGLU and both norms */
        mics_work_pass(&work, 3 * R * F);
        mics_work_pass(&work, 2 * MICS_WORK_NORM * R * C);
    }
    mics_work_linear_grad(&work, R, F, C);
    mics_work_pass(&work, 5 * R * F);
    mics_work_linear_grad(&work, R, C, 2 * F);
    mics_work_pass(&work, MICS_WORK_NORM_GRAD * R * C);

    mics_work_linear_grad(&work, R, A, C);
    work.flops += 5 * R * T * A; /* five products: the scores are made again */
    mics_work_pass(&work, 2 * R * (A + W));
    mics_work_pass(&work, rope(s));
    mics_work_linear_grad(&work, R, C, W);
    mics_work_pass(&work, MICS_WORK_NORM_GRAD * R * C);
    return work;
}

void mics_llama_work(const struct mics_model *model, const struct mics_batch *batch, uint32_t stage,
                     struct mics_stage_work *out)
{
    const struct mics_llama_sizes s = mics_llama_sizes_of(model, batch);
    struct mics_work there = mics_work_of(batch), back = there;

    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED:
        mics_work_pass(&there, 2.0 * s.rows * s.C);
        back.bytes += (double)s.rows * s.C * (back.size + 2 * back.grad_size);
        break;
    case MICS_STAGE_BLOCK:
        there = block_forward(mics_work_of(batch), &s, batch->T);
        back = block_backward(mics_work_of(batch), &s, batch->T, batch->recompute);
        break;
    case MICS_STAGE_HEAD:
        there = mics_work_head(model, batch,
                               mics_llama_head_carve(model, batch, NULL, NULL, NULL).rows);
        break;
    }
    *out = mics_work_stage(batch, &there, &back);
}
