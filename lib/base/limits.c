/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include "base/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* The limit of processes of this control group, or "": none is known. */
static void read_pids_max(char *out, size_t size)
{
    static const char *const folders[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/pids"};
    char line[512], path[768], value[32];
    FILE *groups = fopen("/proc/self/cgroup", "re");

    out[0] = '\0';
    while (groups && !out[0] && fgets(line, sizeof line, groups)) {
        const char *controllers = strchr(line, ':'), *group;

        line[strcspn(line, "\n")] = '\0';
        group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        for (size_t i = 0; i < sizeof folders / sizeof folders[0] && !out[0]; i++) {
            snprintf(path, sizeof path, "%s%s/pids.max", folders[i], group + 1);
            FILE *file = fopen(path, "re");

            if (file && fgets(value, sizeof value, file) && strncmp(value, "max", 3) != 0)
                snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
            if (file)
                fclose(file);
        }
    }
    if (groups)
        fclose(groups);
}

/* Append a limit to the text, if it is set. */
static void append_limit(char *text, size_t size, const char *value, const char *name)
{
    const size_t used = strlen(text);

    if (value[0])
        snprintf(text + used, size - used, "%s%s %s", used ? ", " : ": ", name, value);
}

static void append_rlimit(char *text, size_t size, int resource, bool in_bytes, const char *name)
{
    struct rlimit limit;
    char value[32];

    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    if (in_bytes)
        mics_format_bytes(limit.rlim_cur, value, sizeof value);
    else
        snprintf(value, sizeof value, "%" PRIu64, (uint64_t)limit.rlim_cur);
    append_limit(text, size, value, name);
}

static void describe_memory_limits(char *text, size_t size)
{
    text[0] = '\0';
    append_rlimit(text, size, RLIMIT_AS, true, "ulimit -v");
    append_rlimit(text, size, RLIMIT_DATA, true, "ulimit -d");
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
    char limits[256], pids[32];
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
    append_rlimit(limits, sizeof limits, RLIMIT_NPROC, false, "ulimit -u");
    read_pids_max(pids, sizeof pids);
    append_limit(limits, sizeof limits, pids, "pids.max of the control group");
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
