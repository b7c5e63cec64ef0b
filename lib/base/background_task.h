/* SPDX-License-Identifier: Apache-2.0 */
/* errand.h - one piece of work at a time on a thread of its own, which no signal reaches. */
#ifndef MICS_BASE_BACKGROUND_TASK_H
#define MICS_BASE_BACKGROUND_TASK_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mics_errand {
    pthread_t thread;
    bool started;
    atomic_bool busy;
    enum mics_status (*work)(void *context, struct mics_err *err);
    void *context;
    enum mics_status status;
    struct mics_err err;
};

/* Begin. None may be under way. A thread that cannot be made is a failure of the work. */
void mics_errand_start(struct mics_errand *errand,
                       enum mics_status (*work)(void *context, struct mics_err *err),
                       void *context);
bool mics_errand_busy(const struct mics_errand *errand);
/* Wait for its end, and tell it once: MICS_OK when there was none. */
enum mics_status mics_errand_finish(struct mics_errand *errand, struct mics_err *err);

#endif
