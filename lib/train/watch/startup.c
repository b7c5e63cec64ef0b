/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/startup.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double look_s = 0.1; /* between looks */

struct mics_startup {
    double timeout_s;
    mics_startup_fault *fault;
    void *context;
    pthread_t thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t ended;
    bool over;
    const char *doing;
    double limit_s, since_s;
};

static void report(const struct mics_startup *startup)
{
    struct mics_err err;

    mics_err_set(&err, MICS_ERR_COMM, "no progress for %g s before the first step: still %s",
                 startup->limit_s, startup->doing);
    startup->fault(startup->context, &err);
}

/* Wait a little, or less when it is over. The start is locked. */
static void pause_locked(struct mics_startup *startup)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(look_s * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&startup->ended, &startup->lock, &until);
}

static void *watch(void *context)
{
    struct mics_startup *startup = context;

    pthread_mutex_lock(&startup->lock);
    while (!startup->over && mics_now_s() - startup->since_s < startup->limit_s)
        pause_locked(startup);
    if (!startup->over)
        report(startup);
    pthread_mutex_unlock(&startup->lock);
    return NULL;
}

enum mics_status mics_startup_begin(double timeout_s, const char *doing, mics_startup_fault *fault,
                                    void *context, struct mics_startup **out, struct mics_err *err)
{
    struct mics_startup *startup = calloc(1, sizeof *startup);

    if (!startup)
        return mics_err_nomem(err);
    *startup = (struct mics_startup){.timeout_s = timeout_s,
                                     .fault = fault,
                                     .context = context,
                                     .doing = doing,
                                     .limit_s = MICS_STARTUP_USUAL * timeout_s,
                                     .since_s = mics_now_s()};
    pthread_mutex_init(&startup->lock, NULL);
    pthread_cond_init(&startup->ended, NULL);
    const int code = pthread_create(&startup->thread, NULL, watch, startup);
    if (code != 0) {
        free(startup);
        return mics_err_set(err, MICS_ERR_NOMEM, "cannot start a thread: %s", strerror(code));
    }
    pthread_setname_np(startup->thread, "mics-startup");
    *out = startup;
    return MICS_OK;
}

void mics_startup_at(struct mics_startup *startup, const char *doing, double patience)
{
    if (!startup)
        return;
    pthread_mutex_lock(&startup->lock);
    startup->doing = doing;
    startup->limit_s = patience * startup->timeout_s;
    startup->since_s = mics_now_s();
    pthread_mutex_unlock(&startup->lock);
}

void mics_startup_end(struct mics_startup *startup)
{
    if (!startup)
        return;
    pthread_mutex_lock(&startup->lock);
    startup->over = true;
    pthread_cond_signal(&startup->ended);
    pthread_mutex_unlock(&startup->lock);
    pthread_join(startup->thread, NULL);
    pthread_cond_destroy(&startup->ended);
    pthread_mutex_destroy(&startup->lock);
    free(startup);
}
