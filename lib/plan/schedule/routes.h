/* SPDX-License-Identifier: Apache-2.0 */
/*
 * routes.h - by which hops each exchange of a step goes.
 *
 * An exchange moves one segment of a unit between shards, slots and ranks. Its route is a list of
 * hops, each of which reads one operand and writes another: a collective on one communicator, or a
 * conversion between two formats on each rank. The operands of a hop say all that others need to
 * know of it: dependencies.c derives its waits, mics_executor_issue() its addresses, and memory.c
 * the size of staging buffers.
 */
#ifndef MICS_PLAN_SCHEDULE_ROUTES_H
#define MICS_PLAN_SCHEDULE_ROUTES_H

#include "plan/layout.h"

/* "Segment" operations exist once per segment of a unit, and once per hop of their route. */
enum mics_op_kind {
    MICS_OP_TARGET_COUNT, /* all-reduce the number of targets of the step; first */
    MICS_OP_GATHER,       /* segment: all-gather parameters into their slot */
    MICS_OP_FORWARD,      /* a stage; in training the head's includes its backward */
    MICS_OP_BACKWARD,     /* a stage */
    MICS_OP_DISPATCH,     /* rows, or their number, to the ranks of their experts */
    MICS_OP_COMBINE,      /* their results, or gradients, back */
    MICS_OP_REDUCE,       /* segment: reduce-scatter gradients in their slot */
    MICS_OP_ACCUMULATE, /* add a unit's reduced pieces to its gradient shard; micro-step 0: copy */
    MICS_OP_SCATTER,    /* segment, last micro-step, p_optim > p_grad: reduce-scatter the gradient
                             shard */
    MICS_OP_SYNC,       /* segment, last micro-step: all-reduce over the replicas, the second hop */
    MICS_OP_OUTER_DELTA,  /* segment, outer steps: how far the parameters are from the anchor */
    MICS_OP_OUTER_UPDATE, /* segment: the outer step, with the sum of that over the replicas */
    MICS_OP_CONVERT,      /* segment: from one format to another, before or after a collective */
    MICS_OP_NORM, /* add the squared norm of a unit's optimizer shard of gradients, on this rank */
    MICS_OP_LOSS_NORM_REDUCE, /* all-reduce loss and squared norm; once */
    MICS_OP_LOAD,   /* offloading: from host memory, a piece of masters and states; host_update.h */
    MICS_OP_UPDATE, /* the optimizer, on a unit's optimizer shard; offloading: on a piece of it */
    MICS_OP_STORE,  /* offloading: the updated piece back to host memory; host_update.h */
    MICS_OP_REPLICA_REDUCE, /* outer steps: all-reduce the scalars of the replicas; once */
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
    MICS_STREAM_DISPATCH, /* these two only where tokens travel to experts */
    MICS_STREAM_COMBINE,
    MICS_STREAM_LOAD, /* these three only where the optimizer's states are in host memory */
    MICS_STREAM_UPDATE,
    MICS_STREAM_STORE,
    MICS_STREAM_COUNT
};

const char *mics_op_kind_name(enum mics_op_kind kind);         /* "reduce" */
const char *mics_stream_kind_name(enum mics_stream_kind kind); /* "gather_net" */
bool mics_op_is_comm(enum mics_op_kind kind);                  /* is it a collective? */

/* Where operands are. Each buffer holds the piece that mics_buffer_piece() names, of each segment
 * of a unit; a staging buffer those pieces of one segment that hops have in it. */
enum mics_buffer {
    MICS_BUFFER_NONE,
    MICS_BUFFER_PARAM_SHARD,
    MICS_BUFFER_PARAM_SLOT,
    MICS_BUFFER_GRAD_SLOT,
    MICS_BUFFER_REDUCED,     /* a piece of the gradient slot; benchmarks have it elsewhere */
    MICS_BUFFER_GRAD_SHARD,  /* fp32 */
    MICS_BUFFER_OUTER_DELTA, /* fp32; of outer steps that overlap with the next step */
    MICS_BUFFER_SCATTER_STAGING,
    MICS_BUFFER_SCATTER_RECEIVED, /* blocks of the ranks of an optimizer group */
    MICS_BUFFER_SYNC_STAGING,
    MICS_BUFFER_SYNC_RECEIVED, /* blocks of the replicas */
    MICS_BUFFER_GATHER_STAGING,
    MICS_BUFFER_COUNT
};

#define MICS_BUFFER_FIRST_STAGING MICS_BUFFER_SCATTER_STAGING

enum mics_piece mics_buffer_piece(enum mics_buffer buffer);

/* A piece of a segment: in which buffer, and in which format. */
struct mics_operand {
    enum mics_buffer buffer;
    enum mics_piece piece;
    enum mics_dtype dtype;
};

struct mics_hop {
    enum mics_op_kind kind;          /* of its operations: that of the exchange, or CONVERT */
    enum mics_collective collective; /* unless it converts */
    /* A conversion has those of the collective that it belongs to. `groups` is the kind of unit
     * whose groups these are (mics_choice_groups()). */
    enum mics_unit_kind groups;
    enum mics_comm_kind comm;
    enum mics_stream_kind stream;
    struct mics_operand from, to;
    uint32_t parts; /* a conversion: equal arrays in `from`, which it adds; 0: 1 */
};

/* Enough for: convert, all-to-all, convert and add, all-gather, convert; in an outer step after the
 * difference to the anchor, and before the update. */
enum { MICS_HOPS_MAX = 7 };

/* Hops in the order in which they run; hop_count 0: there is nothing to exchange. */
struct mics_exchange {
    struct mics_hop hops[MICS_HOPS_MAX];
    uint32_t hop_count;
};

/* The exchanges of units of one kind, by the kind of their operations: GATHER, REDUCE, ACCUMULATE,
 * SCATTER, SYNC and PUBLISH; all others are empty, but OUTER_DELTA and OUTER_UPDATE where these do
 * not belong to the exchange of SYNC. */
struct mics_routes {
    struct mics_exchange of[MICS_OP_KIND_COUNT];
    struct mics_exchange first_gather; /* of a unit in a step, with secondary shards; else empty */
};

struct mics_routes mics_choice_routes(const struct mics_plan_choice *choice,
                                      enum mics_unit_kind kind);
/* The same choice with gradients that are summed in each step, as in its first steps. */
struct mics_plan_choice mics_choice_warmup(const struct mics_plan_choice *choice);
/* Those of its units that are among the choice's sync_exact_units. */
struct mics_routes mics_choice_exact_routes(const struct mics_plan_choice *choice,
                                            enum mics_unit_kind kind);

/* Those of gradients that units have carried through several steps (mics_schedule_new_drain()): the
 * second hop is in fp32. */
struct mics_routes mics_choice_drain_routes(const struct mics_plan_choice *choice,
                                            enum mics_unit_kind kind);
/* Are there gradients that are carried, and exchanged in another format than in a step? */
bool mics_choice_has_drain(const struct mics_plan_choice *choice);

/* Elements of one segment that a hop handles: of a collective those of the whole, gathered array.
 */
uint64_t mics_hop_count(const struct mics_hop *hop, const struct mics_layout *layout);

/* Elements that a conversion writes on the ranks of a replica: of whole blocks of all replicas only
 * those that the optimizer piece has. */
uint64_t mics_convert_count(const struct mics_layout *layout, const struct mics_operand *from,
                            const struct mics_operand *to, uint32_t replica);

/* Does the exchange use a staging buffer? That has room for one unit, so units are not coalesced.
 */
bool mics_exchange_has_staging(const struct mics_exchange *exchange);

/* Bytes of a staging buffer, for the unit that needs most. 0: no exchange of the choice uses it. */
uint64_t mics_staging_bytes(const struct mics_model *model, const struct mics_plan_choice *choice,
                            enum mics_buffer buffer);

#endif
