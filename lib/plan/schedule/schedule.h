/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule.h - one training step as data.
 *
 * A schedule is a flat array of operations, in the order in which a host thread issues them. Each
 * operation names its stream and the operations that it waits for. Operations of one stream run in
 * order and need no dependency on each other. A dependency on an operation at the same or a later
 * index means that operation in the previous step. The engine runs the schedule, the simulator
 * walks it with a cost for each operation; both see the same operations.
 *
 * A hop of an exchange (routes.h) is one operation: a collective on one communicator, or a
 * conversion. Consecutive short collectives may be coalesced: they start when the last of them can,
 * are transferred as one, and complete together.
 *
 * With an interval (mics_plan_choice.sync_interval) every step has the same operations, but those
 * of units whose turn it is not do nothing. Their waits and their place in the stream stay, so that
 * what is ordered in a step with all of them is ordered in each.
 */
#ifndef MICS_PLAN_SCHEDULE_SCHEDULE_H
#define MICS_PLAN_SCHEDULE_SCHEDULE_H

#include "plan/schedule/routes.h"

#include <stdio.h>

#define MICS_NONE       UINT32_MAX
#define MICS_TURN_NEVER (UINT32_MAX - 1) /* mics_op.turn of what is left out */
/* mics_op.turn of what only the first steps do (mics_plan_choice.sync_warmup) */
#define MICS_TURN_WARMUP (UINT32_MAX - 2)
/* Turn of a step that is the turn of all units of an interval. */
#define MICS_TURN_ALL (UINT32_MAX - 3)

struct mics_op {
    enum mics_op_kind kind;
    enum mics_stream_kind stream;
    /* Members of a hop, as in struct mics_hop. */
    enum mics_unit_kind groups;
    enum mics_comm_kind comm;
    enum mics_collective collective;
    struct mics_operand from, to;
    uint32_t parts;
    uint32_t unit, stage; /* or MICS_NONE */
    /* Of a stage to whose experts tokens travel, and of its dispatch and combine: the part of the
     * stage, or the one whose results are sent; and of the latter which array of them. */
    enum mics_phase phase;
    uint32_t round, array;
    /* In a round that no rank needs at the load that the choice expects (expert_load): it has
     * nothing to compute and sends nothing. */
    bool surplus;
    bool backward;      /* dispatch and combine: of a backward pass */
    bool between_nodes; /* likewise: the group spans several */
    uint32_t micro_step;
    uint32_t segment;
    /* Forward and backward: does it read the unit's parameters? */
    bool needs_params;
    /* MICS_NONE: parameters in the shard (p_param 1) or unused; gradients accumulated in the shard
     * (p_grad 1) or unused. */
    uint32_t param_slot, grad_slot;
    /* The unit's turn, in which alone the second hop, the norm, the update and what follows it do
     * something (mics_op_is_idle()). MICS_NONE: the operation does in every step. */
    uint32_t turn;
    /* Executed with the next operation, which has the same kind, stream, communicator and type. */
    bool coalesce_next;
    bool first;     /* the first use of its gradient buffer in this micro-step: zero it before; of a
                   gather: the unit's first in this step */
    uint64_t count; /* of a hop: mics_hop_count(); of a piece in host memory: its elements */
    uint64_t bytes; /* the same in bytes, as it is read; of a piece: of all its vectors */
    /* Load, update and store of a piece: its number in the step, and in its segment's part of the
     * shard its first element. */
    uint32_t piece;
    uint64_t begin;
    double flops, memory_bytes; /* computation: of all its launches */
    uint32_t dep_begin, dep_count;
};

struct mics_schedule {
    struct mics_op *ops;
    uint32_t op_count;
    uint32_t *deps; /* op indices */
    uint32_t dep_total;
    uint32_t unit_count;
    uint32_t interval;                /* mics_choice_interval() */
    uint32_t *turns;                  /* [unit_count] mics_choice_turns() */
    struct mics_layout *layouts;      /* [unit_count] */
    uint32_t param_slots, grad_slots; /* rotating ones; those of resident units follow them */
    uint64_t *param_slot_count, *grad_slot_count;   /* elements of each slot */
    uint64_t *param_slot_offset, *grad_slot_offset; /* in their region, in elements */
    uint32_t param_slot_total, grad_slot_total;
    bool train;
};

/* One training step, or (train false) one evaluation of one micro-batch: gathers, forwards, and the
 * operations on scalars. The same arguments give the same schedule on every rank. *out belongs to
 * the caller, who calls mics_schedule_free().
 * MICS_ERR_ARG: mics_choice_check() fails. MICS_ERR_NOMEM: out of memory. */
enum mics_status mics_schedule_new(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, bool train,
                                   struct mics_schedule **out, struct mics_err *err);
void mics_schedule_free(struct mics_schedule *schedule); /* NULL is fine */

/* The end of a training step alone, without forward and backward: the second hop of all units,
 * exact, in fp32 and in place, then norm, update and what follows; for gradients that are in the
 * shards already. Memory and turns are those of the choice. Errors as above. */
enum mics_status mics_schedule_new_drain(const struct mics_model *model,
                                         const struct mics_plan_choice *choice,
                                         struct mics_schedule **out, struct mics_err *err);

/* An exchange on its own, as benchmarks run it. */
enum mics_exchange_kind {
    MICS_EXCHANGE_GATHER,    /* gather the parameters of a unit */
    MICS_EXCHANGE_REDUCE,    /* reduce-scatter its gradients; the sum stays in the gradient slot */
    MICS_EXCHANGE_SYNC,      /* the second hop: all-reduce the gradient shard over the replicas */
    MICS_EXCHANGE_GRADIENTS, /* all of a step: reduce, accumulate per micro-step, then sync */
};

/* A schedule of this exchange of one unit, numbered 0, in parameter slot 0 and gradient slot 0. Of
 * `choice` only shape, hierarchy, segments, micro_steps and types matter. MICS_ERR_ARG: `count`, in
 * elements, is no multiple of segments * p_optim. The caller frees *out. */
enum mics_status mics_schedule_new_exchange(const struct mics_plan_choice *choice,
                                            enum mics_exchange_kind kind, uint64_t count,
                                            struct mics_schedule **out, struct mics_err *err);

/* Does the operation do nothing in a step of this turn? */
static inline bool mics_op_is_idle(const struct mics_op *op, uint32_t turn)
{
    return op->turn != MICS_NONE && op->turn != turn && turn != MICS_TURN_ALL;
}

/* In how many of as many steps as the schedule's interval does the operation do something? */
static inline uint32_t mics_op_times(const struct mics_op *op, const struct mics_schedule *schedule)
{
    if (op->turn == MICS_NONE)
        return schedule->interval;
    return op->turn < schedule->interval;
}

/* The turn of a step, from 1. */
static inline uint32_t mics_schedule_turn(const struct mics_schedule *schedule,
                                          const struct mics_plan_choice *choice, uint64_t step)
{
    if (!mics_choice_warms_up(choice, step))
        return (uint32_t)(step % schedule->interval);
    return choice->outer_steps > 0 ? MICS_TURN_WARMUP : MICS_TURN_ALL;
}

/* What it works on: its unit's name; of a stage without parameters "block 3 part 2", in `text`;
 * else "". */
const char *mics_op_subject(const struct mics_op *op, const struct mics_model *model, char *text,
                            size_t size);

/* Executor "print": one line per operation. MICS_ERR_IO: the lines could not be written. */
enum mics_status mics_schedule_print(const struct mics_schedule *schedule,
                                     const struct mics_model *model, FILE *out,
                                     struct mics_err *err);

/* Collectives, and bytes that `rank` sends, by mics_op.groups and comm, in as many steps as the
 * schedule's interval, usually one: equal to what the communicators count. In a ring of m ranks,
 * all-gather and reduce-scatter of S bytes send (m-1)/m S each; for an all-reduce, which differs
 * between ranks, mics_comm_all_reduce_sent() has the number. Where tokens travel to experts, what
 * is sent depends on the choices of routers: bytes are those of the load that is expected. */
void mics_schedule_counts(const struct mics_schedule *schedule,
                          const struct mics_plan_choice *choice, uint32_t rank,
                          uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT],
                          uint64_t sent_bytes[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT]);

/* Bytes that `rank` sends in second hops, and in the scatters before them, in a step of this turn
 * (mics_schedule_turn()). */
uint64_t mics_schedule_sync_bytes(const struct mics_schedule *schedule,
                                  const struct mics_plan_choice *choice, uint32_t rank,
                                  uint32_t turn);
/* *out: the same with an exact second hop of all units in each step. MICS_ERR_NOMEM. */
enum mics_status mics_schedule_exact_sync_bytes(const struct mics_model *model,
                                                const struct mics_plan_choice *choice,
                                                uint32_t rank, uint64_t *out, struct mics_err *err);

#endif
