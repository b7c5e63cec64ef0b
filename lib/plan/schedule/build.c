/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/build.h"

#include <stdlib.h>

void mics_build_append(struct mics_build *build, const struct mics_op *op)
{
    struct mics_schedule *out = build->out;

    if (build->failed)
        return;
    if (out->op_count == build->capacity) {
        uint32_t capacity = build->capacity ? build->capacity * 2 : 256;
        struct mics_op *ops = NULL;

        if (capacity <= 1u << 26)
            ops = realloc(out->ops, capacity * sizeof *ops);
        if (!ops) {
            build->failed = true;
            return;
        }
        out->ops = ops;
        build->capacity = capacity;
    }
    out->ops[out->op_count++] = *op;
}

static bool same_segments(const struct mics_build *build, const struct mics_op *like,
                          uint32_t count)
{
    const struct mics_layout *layouts = build->out->layouts;

    for (uint32_t i = 1; i < count; i++)
        if (layouts[like[i].unit].segments != layouts[like[0].unit].segments)
            return false;
    return true;
}

/* Gradient shards that travel as another type are converted before and after. */
static bool may_join(const struct mics_op *op)
{
    return op->kind == MICS_OP_GATHER || op->kind == MICS_OP_REDUCE || op->dtype == MICS_F32;
}

static void append_hop(struct mics_build *build, const struct mics_hop *hop, uint32_t segment,
                       enum mics_collective collective, const struct mics_op *like, bool joins)
{
    struct mics_op op = *like;

    op.stream = hop->stream;
    op.comm = hop->comm;
    op.collective = collective;
    op.segment = segment;
    op.joins = joins && may_join(&op);
    op.count = build->out->layouts[op.unit].segment_count / hop->divisor;
    op.bytes = op.count * mics_dtype_bytes(op.dtype);
    mics_build_append(build, &op);
}

/* The units of one hop stand side by side, so that nothing between them waits for the first of them. */
void mics_build_exchange(struct mics_build *build, const struct mics_exchange *exchange,
                         enum mics_collective collective, const struct mics_op *like,
                         uint32_t count)
{
    const uint32_t segments = build->out->layouts[like->unit].segments;

    if (!same_segments(build, like, count)) {
        for (uint32_t i = 0; i < count; i++)
            mics_build_exchange(build, exchange, collective, &like[i], 1);
        return;
    }
    for (uint32_t segment = 0; segment < segments; segment++)
        for (uint32_t h = 0; h < exchange->hop_count; h++)
            for (uint32_t i = 0; i < count; i++)
                append_hop(build, &exchange->hops[h], segment, collective, &like[i], i + 1 < count);
}
