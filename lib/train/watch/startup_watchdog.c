/* SPDX-License-Identifier: Apache-2.0 */
/* startup_watchdog.c - which phase before the first step is too long, or which rank is silent. */
#include "train/watch/startup_watchdog.h"

#include "base/clock.h"
#include "base/threads.h"
#include "base/timed_wait.h"
#include "plan/schedule/schedule.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const double poll_interval_s = 0.1;
static const double silent_after_min_s = 3; /* heartbeats are sent about once a second */
static const double suspended_after_s = 2;  /* a poll that late: this process was stopped */

struct mics_startup_watchdog {
    double timeout_s;
    mics_startup_on_fault *on_fault;
    void *context;
    pthread_t thread;

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t stopped;
    bool stop;
    const char *phase;
    double limit_s;
    double began_s;                 /* the phase */
    const struct mics_world *world; /* NULL: not joined yet */
    double heard_s;                 /* ranks without a heartbeat are silent since then */
    double polled_s;
};

static void report_phase(const struct mics_startup_watchdog *startup)
{
    struct mics_err err;

    mics_err_set(&err, MICS_ERR_COMM, "no progress for %g s before the first step: still %s",
                 startup->limit_s, startup->phase);
    startup->on_fault(startup->context, &err);
}

/* The first rank whose heartbeats have ended, for `limit_s`, or MICS_NONE; only ranks that receive
 * heartbeats know. */
static uint32_t find_silent_rank(const struct mics_startup_watchdog *startup, double limit_s)
{
    const struct mics_world *world = startup->world;
    struct mics_comm *comm = world ? world->comm : NULL;
    const double since_heard_s = mics_now_s() - startup->heard_s;
    uint64_t word;

    if (!comm || !comm->heartbeat || comm->heartbeat->age_s(comm, comm->rank, &word) < 0)
        return MICS_NONE;
    for (int rank = 0; rank < comm->size; rank++) {
        const double age_s = comm->heartbeat->age_s(comm, rank, &word);

        if ((age_s < 0 || age_s > limit_s) && since_heard_s > limit_s)
            return (uint32_t)rank;
    }
    return MICS_NONE;
}

/* True: a fault was reported. */
static bool poll_startup(struct mics_startup_watchdog *startup)
{
    const double now_s = mics_now_s();
    const double limit_s = fmax(startup->timeout_s, silent_after_min_s);
    struct mics_err err;
    uint32_t first;

    if (now_s - startup->polled_s > suspended_after_s) /* this process was stopped */
        startup->heard_s = startup->began_s = now_s;
    startup->polled_s = now_s;
    const uint32_t silent = find_silent_rank(startup, limit_s);
    if (silent != MICS_NONE) {
        const uint32_t node = mics_world_node_of(startup->world, silent, &first);

        mics_err_set(
            &err, MICS_ERR_COMM,
            "no progress for %g s: rank %u (%s) does not answer; last seen before the first "
            "step, %s",
            limit_s, silent, startup->world->host_of_node[node], startup->phase);
        startup->on_fault(startup->context, &err);
        return true;
    }
    if (now_s - startup->began_s < startup->limit_s)
        return false;
    report_phase(startup);
    return true;
}

static void *run_startup_watchdog(void *context)
{
    struct mics_startup_watchdog *startup = context;

    pthread_mutex_lock(&startup->lock);
    startup->polled_s = mics_now_s();
    while (!startup->stop && !poll_startup(startup))
        mics_cond_wait_for(&startup->stopped, &startup->lock, poll_interval_s);
    pthread_mutex_unlock(&startup->lock);
    return NULL;
}

enum mics_status mics_startup_watchdog_start(double timeout_s, const char *phase,
                                             mics_startup_on_fault *on_fault, void *context,
                                             struct mics_startup_watchdog **out,
                                             struct mics_err *err)
{
    struct mics_startup_watchdog *startup = calloc(1, sizeof *startup);

    if (!startup)
        return mics_err_nomem(err);
    *startup = (struct mics_startup_watchdog){.timeout_s = timeout_s,
                                              .on_fault = on_fault,
                                              .context = context,
                                              .phase = phase,
                                              .limit_s = MICS_STARTUP_LIMIT_DEFAULT * timeout_s,
                                              .began_s = mics_now_s()};
    pthread_mutex_init(&startup->lock, NULL);
    mics_cond_init_timed(&startup->stopped);
    const int code = pthread_create(&startup->thread, NULL, run_startup_watchdog, startup);
    if (code != 0) {
        free(startup);
        return mics_err_set(err, MICS_ERR_NOMEM, "cannot start a thread: %s", strerror(code));
    }
    pthread_setname_np(startup->thread, "mics-startup");
    *out = startup;
    return MICS_OK;
}

void mics_startup_watchdog_set_phase(struct mics_startup_watchdog *startup, const char *phase,
                                     double limit)
{
    if (!startup)
        return;
    pthread_mutex_lock(&startup->lock);
    startup->phase = phase;
    startup->limit_s = limit * startup->timeout_s;
    startup->began_s = mics_now_s();
    pthread_mutex_unlock(&startup->lock);
}

void mics_startup_watchdog_join(struct mics_startup_watchdog *startup,
                                const struct mics_world *world)
{
    if (!startup)
        return;
    if (world->comm->heartbeat)
        world->comm->heartbeat->set(world->comm, 0);
    pthread_mutex_lock(&startup->lock);
    startup->world = world;
    startup->heard_s = mics_now_s();
    pthread_mutex_unlock(&startup->lock);
}

void mics_startup_watchdog_stop(struct mics_startup_watchdog *startup)
{
    if (!startup)
        return;
    pthread_mutex_lock(&startup->lock);
    startup->stop = true;
    pthread_cond_signal(&startup->stopped);
    pthread_mutex_unlock(&startup->lock);
    pthread_join(startup->thread, NULL);
    pthread_cond_destroy(&startup->stopped);
    pthread_mutex_destroy(&startup->lock);
    free(startup);
}
