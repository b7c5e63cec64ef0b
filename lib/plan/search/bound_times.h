/* SPDX-License-Identifier: Apache-2.0 */
/* bound_times.h - what bound.c adds up. Private to these two files. */
#ifndef MICS_PLAN_SEARCH_BOUND_TIMES_H
#define MICS_PLAN_SEARCH_BOUND_TIMES_H

#include "plan/search/bound.h"

/* The links inside nodes and the network cards, which are divided among the collectives that
 * transfer, while their latencies may overlap; and the streams of communication, which run one
 * operation at a time. On those of reductions gradients are also accumulated. */
enum resource {
    NODE_LINKS,
    NETWORK,
    GATHER_NODE_STREAM,
    GATHER_NET_STREAM,
    REDUCE_NODE_STREAM,
    REDUCE_NET_STREAM,
    RESOURCE_COUNT
};

struct load {
    double seconds[RESOURCE_COUNT];
    double lost; /* seconds of computation, if it runs all the time */
    /* The most seconds before transfers begin, inside nodes and between them. */
    double node_latency, net_latency;
};

/* What a collective costs: on its stream, on its links, and of computation. */
enum amount { AMOUNT_SECONDS, AMOUNT_TRANSFER, AMOUNT_LOST, AMOUNT_COUNT };

/* One hop of one segment of a unit of a class. */
struct class_hop {
    uint64_t bytes;
    uint32_t segments;
    double alone[AMOUNT_COUNT]; /* not coalesced */
    double part[AMOUNT_COUNT];  /* at most 1; what remains of `alone` in any group */
    double most_part;           /* at least 1; what may become of alone[AMOUNT_LOST] */
    /* A collective with this unit; most_lost is a fraction. */
    double least_s, most_lost, most_latency_s;
};

/* One exchange of one unit. */
struct exchange_times {
    double chain; /* the least time from its begin to its end */
    /* One segment, on the first and on the second stream of the route. */
    double hops[2];  /* of coalesced units each has its part */
    double least[2]; /* of the whole collectives */
};

/* One unit of a class. */
struct unit_times {
    struct load gather_load, first_gather_load, reduce_load, second_hop_load, publish_load;
    /* What follows the gather's first hop into the slot, which hops into a staging buffer do not
     * need. */
    struct load slot_load;
    double slot_chain;
    struct exchange_times gather, first_gather, reduce, scatter, sync, publish;
    double accumulate[2]; /* in the first and in a later micro-step */
    double norm, update;
    double most_lost_to_gather, most_lost_to_reduce; /* by the hop inside nodes */
};

struct mics_exchange_times {
    struct load scalars; /* of the two reductions of scalars */
    double norm_reduce;  /* the second of them */
    double offload;      /* the stream that copies most of the states that are in host memory */
    enum resource accumulate;         /* the stream */
    double most_lost[RESOURCE_COUNT]; /* of computation, by stream; fractions */
    double most_lost_at_once;         /* by all streams; a fraction */
    /* The part of load.lost by which a step is longer, at least: of all, and of what transfers
     * take; and what is not lost then in a second of latency. */
    double counted, counted_of_transfers, node_excess, net_excess;
    bool one_second_stream; /* do scatter and sync share a stream? */
    /* Segments of every unit; 0: they differ, and are not coalesced. */
    uint32_t segments;
    struct unit_times units[]; /* [class_count] */
};

/* Gathers, by class, that fall completely into a part of the step. `between` are the parts from one
 * head to the next, of the first two micro-steps and of two later ones. */
enum gather_window {
    WINDOW_STEP,  /* all */
    WINDOW_FIRST, /* before the first head */
    WINDOW_BACKWARD,
    WINDOW_FORWARD,
    WINDOW_BETWEEN,
    WINDOW_LATER_BACKWARD,
    WINDOW_LATER_FORWARD,
    WINDOW_LATER_BETWEEN,
    WINDOW_LAST, /* after the last head */
    WINDOW_COUNT
};

/* Units that are alike. */
struct unit_class {
    uint32_t unit; /* one of them */
    uint32_t count;
    bool resident;
};

struct mics_bounds {
    struct mics_op_costs *costs;
    const struct mics_model *model;
    struct unit_class *classes;
    uint32_t class_count;
    uint32_t *class_of; /* [unit_count] */
    uint32_t rotating;  /* units that are not resident */
    uint32_t *gathers;  /* [rotating + 1][3][WINDOW_COUNT][class_count]; by slots, micro-steps */
    bool *have_gathers; /* [rotating + 1][3] */
    enum mics_trainer trainer; /* of these gathers */
    uint32_t *leading;         /* [unit_count + 1][class_count]: units of the first stages */
    uint32_t *reduced; /* [rotating + 1][class_count]: the first units whose gradients come */
    struct passes_entry *passes;
    struct class_hop *hops; /* [class_count]; while exchanges are timed */
    uint32_t *group;        /* [class_count] */
};

/* Counts of gathers by window and class, with this many slots and micro-steps (1, 2, or 3 for
 * more). NULL: out of memory. They are valid until those of another trainer are asked for. */
const uint32_t *mics_bounds_gathers(struct mics_bounds *bounds, enum mics_trainer trainer,
                                    uint32_t slots, uint32_t micro_steps);

#endif
