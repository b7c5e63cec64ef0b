/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where each element of a unit lives.
 *
 * A unit's flat vector is padded to a multiple of segments * p_optim * 64 elements and cut into
 * `segments` equal segments; each segment is cut p_param ways (p_grad, p_optim ways for gradients and
 * optimizer state). A rank's shard is its piece of each segment, one after another.
 * Counts are elements.
 */
#ifndef MICS_PLAN_LAYOUT_H
#define MICS_PLAN_LAYOUT_H

#include "model/model.h"
#include "plan/group.h"

struct mics_layout {
    uint64_t count;  /* of the unit, unpadded */
    uint64_t padded; /* segments * segment_count */
    uint32_t segments;
    uint64_t segment_count;
    uint64_t param_piece, grad_piece, optim_piece; /* of one segment */
};

/* Without padding: `count` is a multiple of segments * p_optim. */
struct mics_layout mics_layout_cut(const struct mics_shape *shape, uint64_t count,
                                   uint32_t segments);

struct mics_layout mics_layout_make(const struct mics_shape *shape, uint64_t unit_count,
                                    uint32_t segments);

/* Elements of one rank's shard. */
uint64_t mics_layout_param_shard(const struct mics_layout *layout);
uint64_t mics_layout_grad_shard(const struct mics_layout *layout);
uint64_t mics_layout_optim_shard(const struct mics_layout *layout);

/* Offset in the unit's flat vector of the piece `index` (of `piece` elements) of a segment. */
uint64_t mics_layout_piece_offset(const struct mics_layout *layout, uint32_t segment,
                                  uint64_t piece, uint32_t index);

#endif
