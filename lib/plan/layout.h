/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where parameters are: units cut into shards, and the slots that units are gathered
 * into.
 *
 * A unit's flat vector is padded to a multiple of segments * p_optim * 64 elements (256 where an
 * exchange sends blocks, which then do not depend on segments) and cut into `segments` equal
 * segments. Each segment is cut into p_param pieces (gradients p_grad, optimizer
 * state p_optim). A rank's shard is its piece of each segment, one after another.
 *
 * Slots are shared by memory, schedule and engine. A unit needs one for its parameters (gradients)
 * if it is cut: if its p_param (p_grad) is not 1, and tokens do not travel to it. Rotating slots
 * come first, each of the size of the largest unit that takes turns in them; then each resident
 * unit has a slot of its own.
 *
 * Counts and offsets are in elements; each slot is a multiple of 64 elements.
 */
#ifndef MICS_PLAN_LAYOUT_H
#define MICS_PLAN_LAYOUT_H

#include "plan/plan.h"

struct mics_layout {
    uint64_t count;  /* of the unit, unpadded */
    uint64_t padded; /* segments * segment_count */
    uint32_t segments;
    uint64_t segment_count;
    uint64_t param_piece, grad_piece, optim_piece; /* of one segment */
    uint64_t run;                                  /* between the hops of a hierarchical exchange */
    /* What one of `replicas` adds up of an optimizer piece: whole blocks, so that all replicas
     * together may have more than it has. */
    uint64_t sync_piece;
    uint32_t replicas;
};

/* Without padding: `count` is a multiple of segments * p_optim. */
struct mics_layout mics_layout_cut(const struct mics_shape *shape, uint64_t count,
                                   uint32_t segments);

/* segments >= 1. Every optimizer piece is a multiple of `align` elements: MICS_TENSOR_ALIGN or
 * MICS_BLOCK. */
struct mics_layout mics_layout_make(const struct mics_shape *shape, uint64_t unit_count,
                                    uint32_t segments, uint32_t align);

/* The alignment of a plan's layouts. */
uint32_t mics_choice_align(const struct mics_plan_choice *choice);

/* The layout of a unit in a plan: choice->segments segments if each rank's optimizer piece of a
 * segment then has at least one alignment of elements, else one segment. One, too, for experts to
 * which tokens travel, so that the shard of a rank is whole experts. */
struct mics_layout mics_choice_layout(const struct mics_model *model,
                                      const struct mics_plan_choice *choice, uint32_t unit);

/* Elements of what the backward pass of a unit adds gradients to: the whole unit, or of experts to
 * which tokens travel the shard. `written`: of these, from the first on, what it writes. */
uint64_t mics_choice_grad_extent(const struct mics_plan_choice *choice,
                                 const struct mics_unit *unit, const struct mics_layout *layout,
                                 uint64_t *written);

/* Elements of one rank's shard. */
uint64_t mics_layout_param_shard(const struct mics_layout *layout);
uint64_t mics_layout_grad_shard(const struct mics_layout *layout);
uint64_t mics_layout_optim_shard(const struct mics_layout *layout);

/* Offset in the unit's flat vector of piece `index`, of `piece` elements, of a segment. */
uint64_t mics_layout_piece_offset(const struct mics_layout *layout, uint32_t segment,
                                  uint64_t piece, uint32_t index);

/* What a rank may hold of a segment: all of it, its run between the hops of a hierarchical
 * exchange, or its piece of a shard. Each contains the optimizer piece and begins at a multiple of
 * its own length. And what it may hold while replicas exchange the optimizer piece. */
enum mics_piece {
    MICS_PIECE_SEGMENT,
    MICS_PIECE_RUN,
    MICS_PIECE_PARAM,
    MICS_PIECE_GRAD,
    MICS_PIECE_OPTIM,
    MICS_PIECE_SYNC,     /* sync_piece */
    MICS_PIECE_SYNC_ALL, /* that of all replicas */
    MICS_PIECE_REPLICAS, /* optimizer pieces of all replicas, each in whole blocks */
    MICS_PIECE_COUNT
};

uint64_t mics_layout_piece_count(const struct mics_layout *layout, enum mics_piece piece);
/* Where the piece of a rank begins in another one that contains it. */
uint64_t mics_layout_piece_begin(const struct mics_layout *layout, struct mics_index index,
                                 enum mics_piece piece, enum mics_piece in);

/* In which of the steps of an interval each unit takes its turn: in steps t, from 1, with
 * t % mics_choice_interval() == turns[unit]. Each turn has about as many bytes; the same model and
 * interval give the same turns. turns: [unit_count]. */
void mics_choice_turns(const struct mics_model *model, const struct mics_plan_choice *choice,
                       uint32_t *turns);

/* What mics_slot_set.of_unit says of units that have no slot of their own. */
#define MICS_SLOT_NONE     UINT32_MAX       /* is not cut */
#define MICS_SLOT_ROTATING (UINT32_MAX - 1) /* takes any of the rotating ones */

/* The slots for parameters, or those for gradients. */
struct mics_slot_set {
    uint32_t rotating, total;
    uint64_t *count, *offset; /* [total] */
    uint64_t elements;        /* of all slots */
    uint32_t *of_unit;        /* [unit_count] slot of a resident unit, or one of the above */
};

/* mics_choice_param_slots() rotating slots for parameters, choice->grad_slots for gradients; at
 * most one for each unit that takes turns in them. The caller calls mics_slots_fini(), also after a
 * failure. MICS_ERR_ARG: a unit that several stages use is not resident. MICS_ERR_NOMEM: out of
 * memory. */
enum mics_status mics_slots_init_params(const struct mics_model *model,
                                        const struct mics_plan_choice *choice,
                                        struct mics_slot_set *out, struct mics_err *err);
enum mics_status mics_slots_init_grads(const struct mics_model *model,
                                       const struct mics_plan_choice *choice,
                                       struct mics_slot_set *out, struct mics_err *err);
void mics_slots_fini(struct mics_slot_set *slots);

#endif
