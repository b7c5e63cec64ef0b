/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the meeting place of ranks that are threads of one process.
 */
#ifndef MICS_COMM_THREADS_H
#define MICS_COMM_THREADS_H

#include "comm/backend.h"

#include <pthread.h>
#include <stdatomic.h>

/* Shared by all communicators that come from one mics_comm_new_threads(). */
struct threads_world {
    pthread_mutex_t lock;         /* guards groups and refs; taken before a group's */
    struct threads_group *groups; /* all that live, so that an abort can wake everybody */
    int refs;                     /* groups */
    atomic_bool aborted;
    int code; /* of the abort */
};

/* Shared by the ranks of one communicator. */
struct threads_group {
    struct threads_world *world;
    struct threads_group *next; /* of the world */
    int size;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t met;
    int refs;            /* communicators that use the group */
    int arrived;         /* at the meeting that is on */
    int busy;            /* ranks that use each other's memory */
    uint64_t generation; /* of meetings */

    const struct comm_call **calls; /* [size]; each rank writes its own between meetings */
};

struct threads_comm {
    struct comm_base base;
    struct threads_group *group;
};

/* Wait until all ranks are here; then all may use each other's memory until they meet again.
 * `was_busy`: this rank did so since the last meeting. MICS_ERR_COMM after an abort; by then nobody is
 * using this rank's memory. */
enum mics_status mics_threads_meet(struct threads_group *group, bool was_busy, bool will_be_busy,
                                   struct mics_err *err);

/* comm_threads_execute.c */
enum mics_status mics_threads_execute(struct comm_base *base, const struct comm_call *call,
                                      struct comm_sent *sent, struct mics_err *err);

#endif
