/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c - walks from a control group up to the root of its hierarchy.
 *
 * In a container the folder at `root` may already be the container's group while the membership is
 * that of the host: folders that do not exist are skipped, and the root itself is always read.
 */
#include "base/cgroup.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH = 4096 };

/* Reads the limit of one group from its folder; UINT64_MAX: it has none. */
typedef uint64_t limit_reader(const char *folder);

/* A limit, and where it is. */
struct limit {
    const char *controller; /* of version 1 */
    limit_reader *version1, *version2;
};

/* The text of a file, without its line feed; false: it cannot be read. */
static bool read_text(const char *folder, const char *file, char text[64])
{
    char path[MAX_PATH + 64];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *in = fopen(path, "r");
    if (!in)
        return false;
    const size_t used = fread(text, 1, 63, in);
    fclose(in);
    text[used] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
}

/* "max" and negative numbers are no limit. */
static uint64_t number_of(const char *text, char **end)
{
    errno = 0;
    const long long value = strtoll(text, end, 10);
    return *end == text || errno != 0 || value < 0 ? UINT64_MAX : (uint64_t)value;
}

static uint64_t read_limit(const char *folder, const char *file)
{
    char text[64], *end;

    return read_text(folder, file, text) ? number_of(text, &end) : UINT64_MAX;
}

static uint64_t memory1(const char *folder)
{
    return read_limit(folder, "memory.limit_in_bytes");
}

static uint64_t memory2(const char *folder)
{
    return read_limit(folder, "memory.max");
}

/* A number of memory.stat, which covers the groups below, too; 0: it is not there. */
static uint64_t read_stat(const char *folder, const char *name)
{
    char path[MAX_PATH + 64], line[128], key[64];
    unsigned long long value, found = 0;

    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "%63s %llu", key, &value) == 2 && strcmp(key, name) == 0)
            found = value;
    if (in)
        fclose(in);
    return found;
}

/* Files in memory do not count: the kernel takes their memory back. */
static uint64_t left_of(uint64_t limit, uint64_t used)
{
    return limit == UINT64_MAX ? UINT64_MAX : limit - mics_min_u64(limit, used);
}

static uint64_t memory_left1(const char *folder)
{
    return left_of(memory1(folder),
                   read_stat(folder, "total_rss") + read_stat(folder, "total_shmem"));
}

static uint64_t memory_left2(const char *folder)
{
    return left_of(memory2(folder), read_stat(folder, "anon") + read_stat(folder, "shmem"));
}

static uint64_t threads(const char *folder)
{
    return read_limit(folder, "pids.max");
}

/* Processors, rounded up. */
static uint64_t processors_of(uint64_t quota_us, uint64_t period_us)
{
    if (quota_us == UINT64_MAX || period_us == UINT64_MAX || period_us == 0)
        return UINT64_MAX;
    return mics_max_u64(1, mics_ceil_div(quota_us, period_us));
}

static uint64_t processors1(const char *folder)
{
    char quota[64], period[64], *end;

    if (!read_text(folder, "cpu.cfs_quota_us", quota) ||
        !read_text(folder, "cpu.cfs_period_us", period))
        return UINT64_MAX;
    return processors_of(number_of(quota, &end), number_of(period, &end));
}

/* "max 100000", or "400000 100000". */
static uint64_t processors2(const char *folder)
{
    char text[64], *end;

    if (!read_text(folder, "cpu.max", text))
        return UINT64_MAX;
    const uint64_t quota = number_of(text, &end);
    return processors_of(quota, number_of(end, &end));
}

static const struct limit memory = {"memory", memory1, memory2};
static const struct limit memory_left = {"memory", memory_left1, memory_left2};
static const struct limit processors = {"cpu", processors1, processors2};
static const struct limit pids = {"pids", threads, threads};

/* The lowest limit of the folder base + group and of its parents, up to base itself. */
static uint64_t lowest_limit(const char *base, const char *group, limit_reader *read)
{
    char folder[MAX_PATH];
    const size_t least = strlen(base);
    uint64_t lowest = UINT64_MAX;

    if (snprintf(folder, sizeof folder, "%s%s", base, group) >= (int)sizeof folder)
        return UINT64_MAX;
    for (;;) {
        lowest = mics_min_u64(lowest, read(folder));

        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < least)
            return lowest;
        *slash = '\0';
    }
}

static bool has_controller(const char *controllers, const char *wanted)
{
    while (*controllers) {
        const size_t word = strcspn(controllers, ",");

        if (word == strlen(wanted) && memcmp(controllers, wanted, word) == 0)
            return true;
        controllers += word + (controllers[word] == ',');
    }
    return false;
}

/* One line "hierarchy:controllers:/group"; in version 2 the controllers are empty. A group outside
 * of the namespace begins with "/..", and only the root of what is seen counts. Where both versions
 * are there, version 2 is in a folder of its own. */
static uint64_t limit_of_line(char *line, const char *root, const struct limit *limit)
{
    char base[MAX_PATH];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group)
        return UINT64_MAX;
    *group++ = '\0';
    controllers++;
    if (strstr(group, ".."))
        group = "";
    if (*controllers == '\0') {
        snprintf(base, sizeof base, "%s/unified", root);
        return mics_min_u64(lowest_limit(root, group, limit->version2),
                            lowest_limit(base, group, limit->version2));
    }
    if (!has_controller(controllers, limit->controller))
        return UINT64_MAX;
    snprintf(base, sizeof base, "%s/%s", root, limit->controller);
    const uint64_t alone = lowest_limit(base, group, limit->version1);
    snprintf(base, sizeof base, "%s/%s", root, controllers);
    return mics_min_u64(alone, lowest_limit(base, group, limit->version1));
}

static uint64_t lowest_of_groups(const char *membership, const char *root,
                                 const struct limit *limit)
{
    char *text = strdup(membership), *rest = NULL;
    uint64_t lowest = UINT64_MAX;

    if (!text)
        return UINT64_MAX;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        lowest = mics_min_u64(lowest, limit_of_line(line, root, limit));
    free(text);
    return lowest;
}

uint64_t mics_cgroup_memory_limit(const char *membership, const char *root)
{
    return lowest_of_groups(membership, root, &memory);
}

uint64_t mics_cgroup_memory_left(const char *membership, const char *root)
{
    return lowest_of_groups(membership, root, &memory_left);
}

uint64_t mics_cgroup_processors(const char *membership, const char *root)
{
    return lowest_of_groups(membership, root, &processors);
}

static uint64_t limit_here(const struct limit *limit)
{
    char *membership;
    size_t size;

    if (mics_file_read("/proc/self/cgroup", 1 << 20, &membership, &size, NULL) != MICS_OK)
        return UINT64_MAX;
    const uint64_t lowest = lowest_of_groups(membership, "/sys/fs/cgroup", limit);
    free(membership);
    return lowest;
}

uint64_t mics_cgroup_memory_limit_here(void)
{
    return limit_here(&memory);
}

uint64_t mics_cgroup_memory_left_here(void)
{
    return limit_here(&memory_left);
}

uint64_t mics_cgroup_threads_here(void)
{
    return limit_here(&pids);
}

/* More processors than a cpu_set_t holds: as many as are online. */
unsigned mics_processors(void)
{
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = online > 0 ? (uint64_t)online : 1;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        count = (uint64_t)CPU_COUNT(&set);
    return (unsigned)mics_max_u64(1, mics_min_u64(count, limit_here(&processors)));
}
