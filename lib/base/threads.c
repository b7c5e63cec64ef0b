/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include "base/cgroup.h"
#include "base/num.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_WORKERS    16u
#define SHORT_SLICE_NS 100000u /* the shortest that the kernel takes */

static void *thread_main(void *context)
{
    struct mics_background_task *task = context;

    task->status = task->run(task->context, &task->err);
    atomic_store(&task->busy, false);
    return NULL;
}

void mics_background_task_start(struct mics_background_task *task,
                                enum mics_status (*run)(void *context, struct mics_err *err),
                                void *context)
{
    sigset_t all, before;
    int code;

    task->run = run;
    task->context = context;
    task->status = MICS_OK;
    atomic_store(&task->busy, true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&task->thread, NULL, thread_main, task);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    task->started = code == 0;
    if (code != 0) {
        task->status =
            mics_err_set(&task->err, MICS_ERR_NOMEM, "cannot start a thread: %s", strerror(code));
        atomic_store(&task->busy, false);
    }
}

bool mics_background_task_busy(const struct mics_background_task *task)
{
    return atomic_load(&task->busy);
}

enum mics_status mics_background_task_wait(struct mics_background_task *task, struct mics_err *err)
{
    enum mics_status status;

    if (task->started)
        pthread_join(task->thread, NULL);
    task->started = false;
    status = task->status;
    task->status = MICS_OK;
    if (status != MICS_OK && err)
        *err = task->err;
    return status;
}

unsigned mics_workers_max(uint32_t host_ranks)
{
    const uint64_t count = mics_ceil_div(mics_processors(), mics_max_u64(host_ranks, 1));

    return (unsigned)mics_min_u64(count, MAX_WORKERS);
}

void mics_workers_run(void *(*work)(void *context), void *context, uint32_t host_ranks)
{
    const unsigned wanted = mics_workers_max(host_ranks);
    pthread_t threads[MAX_WORKERS];
    unsigned started = 0;

    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, context) == 0)
        started++;
    work(context);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* struct sched_attr of sched_setattr(2), for which this C library has no declaration. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* ns; of a normal thread, runtime is its slice */
};

void mics_thread_shorten_slices(void)
{
    const int thread = 0; /* the calling one */
    struct attributes attributes = {.size = sizeof attributes,
                                    .policy = SCHED_OTHER,
                                    .nice = getpriority(PRIO_PROCESS, 0),
                                    .runtime = SHORT_SLICE_NS};

    if (sched_getscheduler(0) == SCHED_OTHER)
        syscall(SYS_sched_setattr, thread, &attributes, 0u);
}
