/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include "base/cgroup.h"
#include "base/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void append_limit(char *text, size_t size, const char *name, const char *value)
{
    const size_t used = strlen(text);

    snprintf(text + used, size - used, "%s%s %s", used ? ", " : ": ", name, value);
}

/* Append a limit to the text, if it is set. */
static void append_bytes(char *text, size_t size, const char *name, int resource)
{
    struct rlimit limit;
    char value[32];

    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        append_limit(text, size, name, mics_format_bytes(limit.rlim_cur, value, sizeof value));
}

static void append_count(char *text, size_t size, const char *name, uint64_t count)
{
    char value[32];

    snprintf(value, sizeof value, "%" PRIu64, count);
    append_limit(text, size, name, value);
}

static void describe_memory_limits(char *text, size_t size)
{
    text[0] = '\0';
    append_bytes(text, size, "ulimit -v", RLIMIT_AS);
    append_bytes(text, size, "ulimit -d", RLIMIT_DATA);
}

struct trial {
    pthread_mutex_t lock; /* the trial holds it until all threads have been started */
};

static void *wait_for_end(void *context)
{
    struct trial *trial = context;

    pthread_mutex_lock(&trial->lock);
    pthread_mutex_unlock(&trial->lock);
    return NULL;
}

enum mics_status mics_limits_try_threads(unsigned threads, struct mics_err *err)
{
    struct trial trial;
    pthread_t *started = calloc(threads ? threads : 1, sizeof *started);
    unsigned count = 0;
    struct rlimit processes;
    char limits[256];
    int code = 0;

    if (!started)
        return mics_err_nomem(err);
    pthread_mutex_init(&trial.lock, NULL);
    pthread_mutex_lock(&trial.lock);
    while (count < threads &&
           (code = pthread_create(&started[count], NULL, wait_for_end, &trial)) == 0)
        count++;
    pthread_mutex_unlock(&trial.lock);
    for (unsigned i = 0; i < count; i++)
        pthread_join(started[i], NULL);
    pthread_mutex_destroy(&trial.lock);
    free(started);
    if (count == threads)
        return MICS_OK;
    describe_memory_limits(limits, sizeof limits);
    if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY)
        append_count(limits, sizeof limits, "ulimit -u", processes.rlim_cur);
    if (mics_cgroup_threads_here() != UINT64_MAX)
        append_count(limits, sizeof limits, "pids.max", mics_cgroup_threads_here());
    return mics_err_set(err, MICS_ERR_NOMEM, "only %u of %u threads can be started: %s%s", count,
                        threads, strerror(code), limits);
}

enum mics_status mics_limits_try_memory(uint64_t bytes, struct mics_err *err)
{
    char limits[256], amount[32];
    void *memory = bytes <= SIZE_MAX ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                     : MAP_FAILED;

    if (memory != MAP_FAILED) {
        munmap(memory, (size_t)bytes);
        return MICS_OK;
    }
    describe_memory_limits(limits, sizeof limits);
    mics_format_bytes(bytes, amount, sizeof amount);
    return mics_err_set(err, MICS_ERR_NOMEM, "no memory for the %s that are needed%s", amount,
                        limits);
}
