/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c - time slices of threads. */
#include "base/threads.h"
#include "tap.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NICE = 7, SHORT_NS = 100000 };

/* As sched_getattr(2) fills it. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static enum mics_status shorten(void *context, struct mics_err *err)
{
    struct attributes *after = context;

    (void)err;
    setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone */
    mics_thread_shorten_slices();
    syscall(SYS_sched_getattr, 0, after, sizeof *after, 0u);
    return MICS_OK;
}

static void slices_become_short_and_priorities_stay(void)
{
    struct mics_background_task task = {0};
    struct attributes after = {0};
    struct mics_err err;

    mics_background_task_start(&task, shorten, &after);
    CHECK_INT(mics_background_task_wait(&task, &err), MICS_OK);
    CHECK_INT(after.policy, SCHED_OTHER);
    CHECK_INT(after.nice, NICE);
    if (after.runtime == 0)
        TAP_SKIP("this kernel has no slices of threads");
    CHECK_INT(after.runtime, SHORT_NS);
}

int main(void)
{
    TAP_RUN(slices_become_short_and_priorities_stay);
    return tap_done();
}
