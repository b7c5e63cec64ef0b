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
#include "plan/plan.h"

struct mics_layout {
    uint64_t count;  /* of the unit, unpadded */
    uint64_t padded; /* segments * segment_count */
    uint32_t segments;
    uint64_t segment_count;
    uint64_t param_piece, grad_piece, optim_piece; /* of one segment */
};

struct mics_layout mics_layout_make(const struct mics_shape *shape, uint64_t unit_count,
                                    uint32_t segments);

/* Elements of one rank's shard. */
uint64_t mics_layout_param_shard(const struct mics_layout *layout);
uint64_t mics_layout_grad_shard(const struct mics_layout *layout);
uint64_t mics_layout_optim_shard(const struct mics_layout *layout);

/* Offset in the unit's flat vector of the piece `index` (of `piece` elements) of a segment. */
uint64_t mics_layout_piece_offset(const struct mics_layout *layout, uint32_t segment,
                                  uint64_t piece, uint32_t index);

/*
 * slots.h - the buffers that units pass through, shared by memory, schedule and engine.
 *
 * Rotating slots come first, all of the size of the largest unit that is not resident; then each
 * resident unit has one of its own. Where p_param (p_grad) is 1 there are no parameter (gradient)
 * slots. Counts and offsets are elements, each slot a multiple of 64 elements.
 */

/* Sizes that memory, schedule and engine can rely on: shape, batch, sequence, slots, segments.
 * MICS_ERR_ARG with the reason. */
enum mics_status mics_choice_check(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, struct mics_err *err);

/* How a unit is cut: in choice->segments where each rank's optimizer piece of a segment then still
 * has 64 elements, else in one. */
struct mics_layout mics_choice_layout(const struct mics_model *model,
                                      const struct mics_plan_choice *choice, uint32_t unit);

/* One kind of slots, parameters' or gradients'. */
struct mics_slot_set {
    uint32_t rotating, total;
    uint64_t *count, *offset; /* [total] */
    uint64_t elements;        /* of all */
};

/* `group` is p_param or p_grad, `rotating` the slots wanted: at most one for each unit that is not
 * resident is made. The caller ends it by mics_slots_fini(), also after a failure. */
enum mics_status mics_slots_init(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, uint32_t group,
                                 uint32_t rotating, struct mics_slot_set *out,
                                 struct mics_err *err);
void mics_slots_fini(struct mics_slot_set *slots);

/* The same for choice->prefetch + 1 parameter slots, and for choice->grad_slots. */
enum mics_status mics_slots_init_params(const struct mics_model *model,
                                        const struct mics_plan_choice *choice,
                                        struct mics_slot_set *out, struct mics_err *err);
enum mics_status mics_slots_init_grads(const struct mics_model *model,
                                       const struct mics_plan_choice *choice,
                                       struct mics_slot_set *out, struct mics_err *err);

/* The slot of a resident unit's own in a set. */
uint32_t mics_slots_of_resident(const struct mics_model *model, const struct mics_slot_set *slots,
                                uint32_t unit);

#endif
