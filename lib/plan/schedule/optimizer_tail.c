/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_tail.c - what ends a step: norm, update, publish, scalars.
 *
 * Nothing of it stands between the computations of the last backward pass, which it would hold up. With
 * clipping the norm is a barrier, and units are updated in the order in which the next step needs
 * them, so that their gathers begin early. Without, they are updated in the order in which their
 * gradients arrive, the first needed last: the optimizer works while gradients still travel.
 */
#include "plan/schedule/build.h"

#include "plan/memory.h"

static struct mics_op plain_op(const struct mics_build *build, enum mics_op_kind kind,
                               enum mics_stream_kind stream)
{
    return (struct mics_op){.kind = kind,
                            .stream = stream,
                            .unit = MICS_NONE,
                            .stage = MICS_NONE,
                            .micro_step = build->course.micro_steps - 1,
                            .param_slot = MICS_NONE,
                            .grad_slot = MICS_NONE};
}

static void norm(struct mics_build *build, uint32_t unit)
{
    struct mics_op op = plain_op(build, MICS_OP_NORM, MICS_STREAM_COMPUTE);
    uint64_t count = mics_layout_optim_shard(&build->out->layouts[unit]);

    op.unit = unit;
    op.flops = 2.0 * (double)count;
    op.memory_bytes = (double)(count * sizeof(float));
    mics_build_append(build, &op);
}

/* Reads parameter, gradient and states; writes all but the gradient, and a copy where there is a master. */
static void update(struct mics_build *build, uint32_t unit)
{
    struct mics_op op = plain_op(build, MICS_OP_UPDATE, MICS_STREAM_COMPUTE);
    uint64_t count = mics_layout_optim_shard(&build->out->layouts[unit]);
    uint32_t states = mics_optimizer_states(build->choice->optimizer);

    op.unit = unit;
    op.flops = mics_optimizer_get(build->choice->optimizer)->flops * (double)count;
    op.memory_bytes = (double)(count * sizeof(float)) * (3 + 2 * states);
    if (build->choice->dtype != MICS_F32)
        op.memory_bytes += (double)(count * mics_dtype_bytes(build->choice->dtype));
    mics_build_append(build, &op);
    op = plain_op(build, MICS_OP_PUBLISH, MICS_STREAM_COMPUTE);
    op.unit = unit;
    op.dtype = build->choice->dtype;
    mics_build_exchange(build, &build->wiring.publish, MICS_ALL_GATHER, &op, 1);
}

/* Norm and loss: two doubles. */
static void total(struct mics_build *build)
{
    struct mics_op op = plain_op(build, MICS_OP_TOTAL, MICS_STREAM_REDUCE_NET);

    op.comm = MICS_COMM_WORLD;
    op.collective = MICS_ALL_REDUCE;
    op.count = 2;
    op.dtype = MICS_F64;
    op.bytes = op.count * sizeof(double);
    mics_build_append(build, &op);
}

void mics_build_finish(struct mics_build *build)
{
    uint32_t units = build->model->unit_count;
    bool clip = build->choice->clip;
    struct mics_op read = plain_op(build, MICS_OP_READ, MICS_STREAM_REDUCE_NET);

    for (uint32_t i = units; i-- > 0 && build->course.train;) {
        norm(build, build->unit_order[i]);
        if (!clip)
            update(build, build->unit_order[i]);
    }
    total(build);
    for (uint32_t i = 0; i < units && build->course.train && clip; i++)
        update(build, build->unit_order[i]);
    read.memory_bytes = 2.0 * sizeof(struct mics_op_scalars);
    mics_build_append(build, &read);
}
