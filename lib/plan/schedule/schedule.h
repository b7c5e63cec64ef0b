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
 * A communication operation is one collective on one communicator. Consecutive short ones may be
 * coalesced: they start when the last of them can, are transferred as one collective, and complete
 * together.
 */
#ifndef MICS_PLAN_SCHEDULE_SCHEDULE_H
#define MICS_PLAN_SCHEDULE_SCHEDULE_H

#include "plan/layout.h"

#include <stdio.h>

/* "Segment" operations exist once per segment of a unit, and once per hop of their route. */
enum mics_op_kind {
    MICS_OP_TARGET_COUNT, /* all-reduce the number of targets of the step; once, first */
    MICS_OP_GATHER,       /* segment: all-gather parameters into their slot */
    MICS_OP_FORWARD,      /* a stage; in training the head's includes its backward */
    MICS_OP_BACKWARD,     /* a stage */
    MICS_OP_REDUCE,       /* segment: reduce-scatter gradients in their slot */
    MICS_OP_ACCUMULATE, /* add a unit's reduced pieces to its gradient shard; micro-step 0: copy */
    MICS_OP_SCATTER,    /* segment, last micro-step, p_optim > p_grad: reduce-scatter the gradient
                             shard */
    MICS_OP_SYNC,       /* segment, last micro-step: all-reduce over the replicas, the second hop */
    MICS_OP_NORM, /* add the squared norm of a unit's optimizer shard of gradients, on this rank */
    MICS_OP_LOSS_NORM_REDUCE, /* all-reduce loss and squared norm; once */
    MICS_OP_UPDATE,           /* the optimizer, on a unit's optimizer shard */
    MICS_OP_PUBLISH, /* segment, p_optim > p_param: all-gather updated parameters into the shard */
    MICS_OP_READ,    /* copy the scalars to the host; once, last */
    MICS_OP_KIND_COUNT
};

enum mics_stream_kind {
    MICS_STREAM_COMPUTE,
    MICS_STREAM_GATHER_NET,
    MICS_STREAM_GATHER_NODE,
    MICS_STREAM_REDUCE_NODE,
    MICS_STREAM_REDUCE_NET,
    MICS_STREAM_COUNT
};

#define MICS_NONE UINT32_MAX

struct mics_op {
    enum mics_op_kind kind;
    enum mics_stream_kind stream;
    enum mics_comm_kind comm; /* of a communication operation */
    enum mics_collective collective;
    uint32_t unit, stage; /* or MICS_NONE */
    uint32_t micro_step;
    uint32_t segment;
    /* Forward and backward: does it read the unit's parameters? */
    bool needs_params;
    /* MICS_NONE: parameters in the shard (p_param 1) or unused; gradients accumulated in the shard
     * (p_grad 1) or unused. */
    uint32_t param_slot, grad_slot;
    /* Executed with the next operation, which has the same kind, stream, communicator and type. */
    bool coalesce_next;
    bool first;     /* the first use of its gradient buffer in this micro-step: zero it before */
    uint64_t count; /* communication: elements of the whole (gathered) array */
    uint64_t bytes; /* the same in bytes */
    enum mics_dtype dtype;      /* of what is communicated */
    double flops, memory_bytes; /* computation: of all its launches */
    uint32_t dep_begin, dep_count;
};

struct mics_schedule {
    struct mics_op *ops;
    uint32_t op_count;
    uint32_t *deps; /* op indices */
    uint32_t dep_total;
    uint32_t unit_count;
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

const char *mics_op_kind_name(enum mics_op_kind kind);         /* "reduce" */
const char *mics_stream_kind_name(enum mics_stream_kind kind); /* "gather_net" */
/* What it works on: its unit's name; of a stage without parameters "block 3 part 2", in `text`; else
 * "". */
const char *mics_op_subject(const struct mics_op *op, const struct mics_model *model, char *text,
                            size_t size);
bool mics_op_is_comm(enum mics_op_kind kind);

/* Executor "print": one line per operation. MICS_ERR_IO: the lines could not be written. */
enum mics_status mics_schedule_print(const struct mics_schedule *schedule,
                                     const struct mics_model *model, FILE *out,
                                     struct mics_err *err);

/* Collectives, and bytes that `rank` sends, in one step: equal to what the communicators count. In
 * a ring of m ranks, all-gather and reduce-scatter of S bytes send (m-1)/m S each; for an
 * all-reduce, which differs between ranks, mics_comm_all_reduce_sent() has the number. */
void mics_schedule_counts(const struct mics_schedule *schedule, const struct mics_shape *shape,
                          uint32_t rank, uint64_t calls[MICS_COMM_KIND_COUNT],
                          uint64_t sent_bytes[MICS_COMM_KIND_COUNT]);

/* One hop of an exchange: a collective on a communicator, whose gathered size is
 * segment_count / divisor elements. */
struct mics_hop {
    enum mics_comm_kind comm;
    enum mics_stream_kind stream;
    uint32_t divisor;
};

/* Hops in the order in which they run; hop_count 0: there is nothing to exchange. */
struct mics_exchange {
    struct mics_hop hops[2];
    uint32_t hop_count;
};

/* The communicators and streams of each exchange of a choice. Exchanges between nodes use the net
 * streams, those inside a node the node streams, so that the two hops of a hierarchical exchange
 * can overlap, and gathers never queue behind reductions. */
struct mics_routes {
    struct mics_exchange gather, reduce, scatter, sync, publish;
    enum mics_stream_kind accumulate; /* the stream of the last hop of `reduce` */
};

struct mics_routes mics_choice_routes(const struct mics_plan_choice *choice);

#endif
