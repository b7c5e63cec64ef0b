/* SPDX-License-Identifier: Apache-2.0 */
#include "device_checks.h"

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

int main(void)
{
    CHECK_INT(mics_device_new_host(2, &device, NULL), MICS_OK);
    ops = device->ops;
    TAP_RUN(a_huge_block_is_refused_with_its_size);
    TAP_RUN(threads_are_chosen_from_the_cores_or_by_the_environment);
    check_device();
    device->ops->free(device);
    return tap_done();
}
