/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule.h - one training step as data.
 *
 * A flat array of operations, in the order in which a host thread issues them. Each operation names
 * its stream and the operations that it waits for. Operations of one stream run in order and need no
 * dependency on each other. A dependency on an operation that stands *later* in the array (or on itself)
 * means that operation in the step before. The trainer runs it, the simulator walks it with a cost
 * for each operation, and both see the same thing.
 *
 * A communication operation is one collective on one communicator. Several of them that are short may join: they
 * begin when the last of them can, go over the wires as one, and are over together.
 */
#ifndef MICS_PLAN_SCHEDULE_SCHEDULE_H
#define MICS_PLAN_SCHEDULE_SCHEDULE_H

#include "plan/layout.h"

#include <stdio.h>

enum mics_op_kind {
    MICS_OP_COUNT,    /* all-reduce the step's number of targets; once, first */
    MICS_OP_GATHER,   /* all-gather one segment of a unit into its slot; one stage */
    MICS_OP_FORWARD,  /* a stage; the head's includes its backward when training */
    MICS_OP_BACKWARD, /* a stage */
    MICS_OP_REDUCE,   /* reduce-scatter one segment of a unit's gradient in its slot; one stage */
    MICS_OP_ACCUMULATE, /* add the reduced pieces of the slot to the gradient shard (micro-step 0: copy) */
    MICS_OP_SCATTER, /* last micro-step, p_optim > p_grad: reduce-scatter the gradient shard, one segment */
    MICS_OP_SYNC, /* last micro-step: all-reduce over the replicas; the second hop. One per segment */
    MICS_OP_NORM,  /* add the squared norm of a unit's optimizer shard of gradients, on this rank */
    MICS_OP_TOTAL, /* all-reduce squared norm and loss; once */
    MICS_OP_UPDATE, /* the optimizer, on one unit's optimizer shard */
    MICS_OP_PUBLISH, /* p_optim > p_param: all-gather the updated piece into the parameter shard, one segment */
    MICS_OP_READ, /* copy the scalars to the host; once, last */
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
    uint32_t param_slot; /* where the unit's parameters are: MICS_NONE = in the shard (p_param 1) */
    bool blind;          /* a computation that reads no parameters; its param_slot is MICS_NONE */
    uint32_t grad_slot;  /* likewise for gradients (p_grad 1: accumulated in the shard) */
    bool
        joins; /* travels with the next operation, of the same kind, stream, communicator and type */
    bool first;                 /* of this gradient buffer in this micro-step: zero it before */
    uint64_t count;             /* communication: elements of the whole array, gathered size */
    uint64_t bytes;             /* the same in bytes */
    enum mics_dtype dtype;      /* of what is communicated */
    double flops, memory_bytes; /* computation */
    uint32_t dep_begin, dep_count;
};

struct mics_schedule {
    struct mics_op *ops;
    uint32_t op_count;
    uint32_t *deps; /* op indices */
    uint32_t dep_total;
    uint32_t unit_count;
    struct mics_layout *layouts; /* [unit_count] */
    uint32_t param_slots,
        grad_slots; /* rotating ones; residents have slots of their own after them */
    uint64_t *param_slot_count, *grad_slot_count;   /* elements of each slot */
    uint64_t *param_slot_offset, *grad_slot_offset; /* in their region, in elements */
    uint32_t param_slot_total, grad_slot_total;
    bool train;
};

/* One training step, or (train false) one evaluation of one micro-batch: gathers and forwards only,
 * COUNT, TOTAL and READ. Pure: the same arguments give the same schedule on every rank. */
enum mics_status mics_schedule_new(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, bool train,
                                   struct mics_schedule **out, struct mics_err *err);
void mics_schedule_free(struct mics_schedule *schedule); /* NULL is fine */

/* For tests and messages: "reduce", "gather_net". */
const char *mics_op_kind_name(enum mics_op_kind kind);
const char *mics_stream_kind_name(enum mics_stream_kind kind);
bool mics_op_is_comm(enum mics_op_kind kind);

/* Executor "print": one line an operation. */
enum mics_status mics_schedule_print(const struct mics_schedule *schedule,
                                     const struct mics_model *model, FILE *out,
                                     struct mics_err *err);

/* Collectives, and bytes that `rank` sends, in one step: what the backend's counters must say. A ring:
 * all-gather and reduce-scatter of S bytes on m ranks send (m-1)/m S each; an all-reduce as
 * mics_comm_all_reduce_sent() says, which differs a little from rank to rank. */
void mics_schedule_counts(const struct mics_schedule *schedule, const struct mics_shape *shape,
                          uint32_t rank, uint64_t calls[MICS_COMM_KIND_COUNT],
                          uint64_t sent_bytes[MICS_COMM_KIND_COUNT]);

/*
 * routes.h - which communicator and stream each exchange of a strategy takes.
 *
 * Exchanges between nodes go to the net streams, those inside a node to the node streams, so that the two
 * stages of a hierarchical one can overlap, and gathers never queue behind reductions.
 */

/* One stage of an exchange: `share` of the segment's elements is the gathered size, as 1 / divisor. */
struct mics_hop {
    enum mics_comm_kind comm;
    enum mics_stream_kind stream;
    uint32_t divisor; /* gathered size = segment_count / divisor */
};

/* Hops in the order in which they run; a count of 0 means that there is nothing to exchange. */
struct mics_exchange {
    struct mics_hop hops[2];
    uint32_t hop_count;
};

struct mics_wiring {
    struct mics_exchange gather, reduce, scatter, sync, publish;
    enum mics_stream_kind accumulate; /* stream of the last reduce hop */
};

struct mics_wiring mics_wiring_of(const struct mics_plan_choice *choice);

#endif
