/* SPDX-License-Identifier: Apache-2.0 */
#include "base/background_task.h"

#include <signal.h>
#include <string.h>

static void *run(void *context)
{
    struct mics_errand *errand = context;

    errand->status = errand->work(errand->context, &errand->err);
    atomic_store(&errand->busy, false);
    return NULL;
}

void mics_errand_start(struct mics_errand *errand,
                       enum mics_status (*work)(void *context, struct mics_err *err), void *context)
{
    sigset_t all, before;
    int code;

    errand->work = work;
    errand->context = context;
    errand->status = MICS_OK;
    atomic_store(&errand->busy, true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&errand->thread, NULL, run, errand);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errand->started = code == 0;
    if (code != 0) {
        errand->status =
            mics_err_set(&errand->err, MICS_ERR_NOMEM, "cannot start a thread: %s", strerror(code));
        atomic_store(&errand->busy, false);
    }
}

bool mics_errand_busy(const struct mics_errand *errand)
{
    return atomic_load(&errand->busy);
}

enum mics_status mics_errand_finish(struct mics_errand *errand, struct mics_err *err)
{
    enum mics_status status;

    if (errand->started)
        pthread_join(errand->thread, NULL);
    errand->started = false;
    status = errand->status;
    errand->status = MICS_OK;
    if (status != MICS_OK && err)
        *err = errand->err;
    return status;
}
