/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_class.h - the times of a step by class of operation: what a plan predicts, a run measures, and
 * mics-plan --check compares.
 */
#ifndef MICS_PLAN_OP_CLASS_H
#define MICS_PLAN_OP_CLASS_H

#include "doc/cursor.h"

/* What an operation contributes to a step: its kind, and for exchanges whether they cross the
 * network (the net streams) or stay inside nodes. The head's forward includes its backward. */
enum mics_op_class {
    MICS_CLASS_FORWARD,
    MICS_CLASS_BACKWARD,
    MICS_CLASS_UPDATE,     /* the optimizer, and the norm of gradients */
    MICS_CLASS_ACCUMULATE, /* adding reduced gradients to the shard, and conversions */
    MICS_CLASS_GATHER_NET,
    MICS_CLASS_GATHER_NODE,
    MICS_CLASS_REDUCE_NET,
    MICS_CLASS_REDUCE_NODE,
    MICS_CLASS_SYNC_NET, /* the second hop: scatter and sync */
    MICS_CLASS_SYNC_NODE,
    MICS_CLASS_PUBLISH_NET,
    MICS_CLASS_PUBLISH_NODE,
    MICS_CLASS_DISPATCH_NET, /* tokens to experts, and back */
    MICS_CLASS_DISPATCH_NODE,
    MICS_CLASS_OFFLOAD, /* updates of states in host memory, and their copies there and back */
    MICS_CLASS_SCALARS, /* sums of targets, loss and norm */
    MICS_CLASS_COUNT
};

const char *mics_op_class_name(enum mics_op_class op_class); /* "gather_net" */

/* Sets of classes, as bits. */
#define MICS_CLASSES_COMPUTE                                                                       \
    (1u << MICS_CLASS_FORWARD | 1u << MICS_CLASS_BACKWARD | 1u << MICS_CLASS_UPDATE)
#define MICS_CLASSES_NET                                                                           \
    (1u << MICS_CLASS_GATHER_NET | 1u << MICS_CLASS_REDUCE_NET | 1u << MICS_CLASS_SYNC_NET |       \
     1u << MICS_CLASS_PUBLISH_NET | 1u << MICS_CLASS_DISPATCH_NET)
#define MICS_CLASSES_NODE                                                                          \
    (1u << MICS_CLASS_GATHER_NODE | 1u << MICS_CLASS_REDUCE_NODE | 1u << MICS_CLASS_SYNC_NODE |    \
     1u << MICS_CLASS_PUBLISH_NODE | 1u << MICS_CLASS_DISPATCH_NODE)

/* Seconds of a step by class: with at least one operation of the class, and the part of that
 * without computation (0 for computation itself). The same for all exchanges over the network, and
 * for all inside nodes. Only doubles: means and differences are taken member by member. */
struct mics_class_times {
    double busy_s[MICS_CLASS_COUNT], exposed_s[MICS_CLASS_COUNT];
    double net_s, net_exposed_s, node_s, node_exposed_s;
};

/* to += times * from, for each member. */
void mics_class_times_add(struct mics_class_times *to, const struct mics_class_times *from,
                          double times);

/* {net_s, net_exposed_s, node_s, node_exposed_s, classes {forward {busy_s, exposed_s}, ...}}, with
 * the classes that take time. NULL: out of memory. */
json_t *mics_class_times_to_json(const struct mics_class_times *times);
/* The same from the member `key`. Unknown classes are ignored. */
void mics_class_times_read(const struct mics_cursor *parent, const char *key,
                           struct mics_class_times *out);

#endif
