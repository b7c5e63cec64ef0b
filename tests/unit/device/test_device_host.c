/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "device_checks.h"

#include <sys/resource.h>

static void a_huge_block_is_refused_with_its_size(void)
{
    struct mics_err err;
    void *memory;

    CHECK_INT(ops->alloc(device, (size_t)PTRDIFF_MAX + 1, &memory, &err), MICS_ERR_NOMEM);
    CHECK_STR(err.text, "host: no memory for 9223372036854775808 bytes");
    CHECK_INT(ops->alloc(device, SIZE_MAX, &memory, &err), MICS_ERR_NOMEM);
    CHECK_INT(ops->alloc(device, 3 << 22, &memory, &err), MICS_OK);
    memset(memory, 1, 3 << 22);
    ops->release(device, memory);
}

static void threads_are_chosen_from_the_cores_or_by_the_environment(void)
{
    struct mics_device *none = NULL;
    struct mics_err err;

    unsetenv("MICS_THREADS");
    CHECK(mics_threads_per_rank(1) >= 1);
    CHECK_INT(mics_threads_per_rank(100000), 1);
    setenv("MICS_THREADS", "3", 1);
    CHECK_INT(mics_threads_per_rank(100000), 3);
    setenv("MICS_THREADS", "many", 1);
    CHECK_INT(mics_threads_per_rank(1), 0);
    CHECK_INT(mics_device_new_host(0, &none, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "MICS_THREADS: expected a number from 1 to 1024, found \"many\"");
    unsetenv("MICS_THREADS");
}

static void work_for_20_us(void *context)
{
    const double begin = mics_now_s();

    (void)context;
    while (mics_now_s() - begin < 20e-6)
        continue;
}

/* Of this thread, because it waited. */
static long switches(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void a_thread_that_is_far_ahead_is_not_woken_for_each_operation(void)
{
    enum { COUNT = 8192 };
    struct mics_stream *stream = NULL;

    CHECK_INT(ops->stream_open(device, "test", 0, &stream, NULL), MICS_OK);
    const long before = switches();
    for (int i = 0; i < COUNT; i++)
        mics_launch_call(stream, &(struct mics_args_call){.fn = work_for_20_us});
    CHECK(switches() - before < COUNT / 8);
    CHECK_INT(ops->stream_sync(stream, NULL), MICS_OK);
    ops->stream_close(stream);
}

int main(void)
{
    CHECK_INT(mics_device_new_host(2, &device, NULL), MICS_OK);
    ops = device->ops;
    TAP_RUN(a_huge_block_is_refused_with_its_size);
    TAP_RUN(threads_are_chosen_from_the_cores_or_by_the_environment);
    TAP_RUN(a_thread_that_is_far_ahead_is_not_woken_for_each_operation);
    check_device();
    device->ops->free(device);
    return tap_done();
}
