/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/build.h"

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

void mics_build_exchange(struct mics_build *build, const struct mics_exchange *exchange,
                         enum mics_collective collective, const struct mics_op *like)
{
    const struct mics_layout *layout = &build->out->layouts[like->unit];

    for (uint32_t segment = 0; segment < layout->segments; segment++) {
        for (uint32_t i = 0; i < exchange->hop_count; i++) {
            const struct mics_hop *hop = &exchange->hops[i];
            struct mics_op op = *like;

            op.stream = hop->stream;
            op.comm = hop->comm;
            op.collective = collective;
            op.segment = segment;
            op.count = layout->segment_count / hop->divisor;
            op.bytes = op.count * mics_dtype_bytes(op.dtype);
            mics_build_append(build, &op);
        }
    }
}
