/* SPDX-License-Identifier: Apache-2.0 */
/* build_ops.h - a schedule that is being built, and the operations that its parts append. Private
 * to the files that build one. */
#ifndef MICS_PLAN_SCHEDULE_BUILD_OPS_H
#define MICS_PLAN_SCHEDULE_BUILD_OPS_H

#include "plan/schedule/build.h"

/* The exchanges of units by their kind, and of those with an exact second hop. */
struct route_set {
    struct mics_routes all[MICS_UNIT_KIND_COUNT], exact[MICS_UNIT_KIND_COUNT];
};

/* Units that are reduced together. The last of them may be there twice
 * (mics_trainer_exchange_times()). */
enum { REDUCED_MAX = MICS_COALESCE_MAX + 1 };

struct build {
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
    struct route_set routes;
    struct route_set warmup; /* of what only the first steps do */
    struct mics_compute_order order;
    struct mics_slot_set params, grads;
    struct mics_residency residency;
    uint32_t next_fetch; /* fetches before it have their gathers */
    uint32_t next_grad_slot;
    uint32_t next_piece;           /* of states in host memory */
    uint32_t pending[REDUCED_MAX]; /* units whose gradients wait to be reduced together */
    uint32_t pending_count;
    uint32_t *grad_slot_of_unit; /* while it holds the unit's gradients; else MICS_NONE */
    uint32_t *grads_left;        /* stages of the unit whose gradients are not computed yet */
    bool *gathered;              /* units that have been gathered in this step */
    uint32_t *unit_order;        /* units by their first use */
    struct mics_schedule *out;
    uint32_t capacity; /* of out->ops */
    bool failed;       /* out of memory; reported at the end */
};

void build_append(struct build *build, const struct mics_op *op);
struct mics_op build_plain_op(enum mics_op_kind kind, enum mics_stream_kind stream, uint32_t unit,
                              uint32_t micro_step);
/* One that is for the unit's turn. */
struct mics_op build_turn_op(const struct build *build, enum mics_op_kind kind, uint32_t unit,
                             uint32_t micro_step);
/* All-reduce `count` doubles. */
void build_reduce_scalars(struct build *build, enum mics_op_kind kind, enum mics_comm_kind comm,
                          uint32_t micro_step, uint32_t count);
/* The ranks whose gradients are summed: all, or with outer steps those of one replica. */
enum mics_comm_kind build_summing_ranks(const struct build *build);
void build_set_routes(struct route_set *set, const struct mics_plan_choice *choice);
/* The route of an exchange of the unit of `like`. */
const struct mics_exchange *build_route_of(const struct build *build, enum mics_op_kind exchange,
                                           const struct mics_op *like);
/* Append every segment and hop of an exchange of `count` units, coalesced if they have equally many
 * segments, the same groups and formats, and need no staging, which has room for one of them.
 * `like` gives unit, micro-step and slots of each. The units of one hop are consecutive, so that
 * nothing between them waits for the first of them. */
void build_exchange(struct build *build, enum mics_op_kind kind, const struct mics_op *like,
                    uint32_t count);
/* All segments of a unit at once. */
void build_accumulate(struct build *build, const struct mics_op *like);
/* A copy of the unit's optimizer shard: its gradients to host memory and back, or its updated
 * parameters from there. */
void build_host_copy(struct build *build, enum mics_op_kind kind, enum mics_buffer buffer,
                     enum mics_stream_kind stream, const struct mics_op *like, uint32_t width);
bool build_updates_on_host(const struct build *build);
/* The optimizer's operations at the end of a step (build_optimizer.c). */
void build_optimizer_tail(struct build *build);

#endif
