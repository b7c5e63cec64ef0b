/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include "tap.h"

#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Address space of which a process that has started can be left some. */
#define LIMIT_BYTES ((rlim_t)256 << 20)

static void without_limits_all_is_granted(void)
{
    struct mics_err err;

    CHECK_INT(mics_limits_try_threads(4, &err), MICS_OK);
    CHECK_INT(mics_limits_try_threads(0, &err), MICS_OK);
    CHECK_INT(mics_limits_try_memory((uint64_t)1 << 20, &err), MICS_OK);
}

/* In a process of its own. Returns whether the text of `status` has both parts. */
static int limited(bool threads)
{
    const struct rlimit limit = {.rlim_cur = LIMIT_BYTES, .rlim_max = LIMIT_BYTES};
    struct mics_err err = {""};
    enum mics_status status;

    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 1;
    status = threads ? mics_limits_try_threads(200, &err)
                     : mics_limits_try_memory(2 * (uint64_t)LIMIT_BYTES, &err);
    if (status != MICS_ERR_NOMEM || !strstr(err.text, "ulimit -v 256 MiB") ||
        !strstr(err.text, threads ? "of 200 threads can be started" : "no memory for the 512 MiB"))
        return 2;
    return mics_limits_try_memory(1 << 20, &err) == MICS_OK ? 0 : 3;
}

static void a_limit_is_met_and_named(void)
{
    if (TAP_SANITIZED)
        TAP_SKIP("sanitizers reserve more address space than the limit");
    for (int threads = 0; threads < 2; threads++) {
        int result = -1;
        const pid_t child = fork();

        if (child == 0)
            _exit(limited(threads));
        CHECK(child > 0 && waitpid(child, &result, 0) == child);
        CHECK_INT(WIFEXITED(result) ? WEXITSTATUS(result) : -1, 0);
    }
}

int main(void)
{
    TAP_RUN(without_limits_all_is_granted);
    TAP_RUN(a_limit_is_met_and_named);
    return tap_done();
}
