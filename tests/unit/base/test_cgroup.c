/* SPDX-License-Identifier: Apache-2.0 */
/* test_cgroup.c - limits of control groups in temporary folders. */
#include "base/cgroup.h"
#include "base/file.h"
#include "tap.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[300];

    snprintf(path, sizeof path, "%s%s", root, folder);
    CHECK_INT(mics_file_make_folders(path, NULL), MICS_OK);
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    FILE *out = fopen(path, "w");
    CHECK(out && fputs(text, out) >= 0);
    if (out)
        fclose(out);
}

static void the_lowest_limit_on_the_way_to_the_root_counts(void)
{
    put_file("/v2", "memory.max", "max\n");
    put_file("/v2/job", "memory.max", "8000000\n");
    put_file("/v2/job/step", "memory.max", "9000000\n");
    char v2[80];
    snprintf(v2, sizeof v2, "%s/v2", root);
    CHECK_INT(mics_cgroup_memory_limit("0::/job/step\n", v2), 8000000);
    CHECK_INT(mics_cgroup_memory_limit("0::/job\n", v2), 8000000);
    CHECK(mics_cgroup_memory_limit("0::/\n", v2) == UINT64_MAX);
    CHECK(mics_cgroup_memory_limit("0::/elsewhere\n", v2) == UINT64_MAX);
}

static void version_one_has_a_folder_for_each_controller(void)
{
    put_file("/v1/memory/box", "memory.limit_in_bytes", "7000000\n");
    char v1[80];
    snprintf(v1, sizeof v1, "%s/v1", root);
    CHECK_INT(mics_cgroup_memory_limit("5:cpu:/box\n4:pids,memory:/box\n", v1), 7000000);
    CHECK(mics_cgroup_memory_limit("5:cpu:/box\n4:pids,memoryx:/box\n", v1) == UINT64_MAX);
}

static void cached_files_leave_memory(void)
{
    put_file("/left2", "memory.max", "max\n");
    put_file("/left2/job", "memory.max", "8000000\n");
    put_file("/left2/job", "memory.stat",
             "anon 5000000\nfile 2500000\nkernel 1\nshmem 500000\nanon_thp 77\n");
    put_file("/left2/job/step", "memory.max", "3000000\n");
    put_file("/left2/job/step", "memory.stat", "anon 100000\nfile 0\nshmem 0\n");
    put_file("/left2/full", "memory.max", "1000\n");
    put_file("/left2/full", "memory.stat", "anon 2000\n");
    put_file("/left2/bare", "memory.max", "1000\n");
    char left2[80];
    snprintf(left2, sizeof left2, "%s/left2", root);
    CHECK_INT(mics_cgroup_memory_left("0::/job/step\n", left2), 2500000);
    CHECK_INT(mics_cgroup_memory_left("0::/full\n", left2), 0);
    CHECK_INT(mics_cgroup_memory_left("0::/bare\n", left2), 1000);
    CHECK(mics_cgroup_memory_left("0::/\n", left2) == UINT64_MAX);
    put_file("/left1/memory/box", "memory.limit_in_bytes", "7000000\n");
    put_file("/left1/memory/box", "memory.stat",
             "cache 3\nrss 1\ntotal_cache 600000\ntotal_rss 1000000\ntotal_shmem 200000\n");
    char left1[80];
    snprintf(left1, sizeof left1, "%s/left1", root);
    CHECK_INT(mics_cgroup_memory_left("4:memory:/box\n", left1), 5800000);
}

/* Files of a group: "folder/name=text", separated by blanks; '_' in a text is a blank. */
static void put_files(const char *files)
{
    char list[600], *rest = NULL;

    snprintf(list, sizeof list, "%s", files);
    for (char *word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *text = strchr(word, '='), *name;

        *text++ = '\0';
        for (char *at = text; (at = strchr(at, '_')) != NULL;)
            *at = ' ';
        name = strrchr(word, '/');
        *name++ = '\0';
        put_file(word, name, text);
    }
}

static void quotas_are_processors(void)
{
    static const struct {
        const char *files, *membership;
        uint64_t processors;
    } cases[] = {
        /* version 2 */
        {"/job/cpu.max=400000_100000", "0::/job\n", 4},
        {"/job/cpu.max=max_100000", "0::/job\n", UINT64_MAX},
        {"/job/cpu.max=50000_100000", "0::/job\n", 1},
        {"/job/cpu.max=150000_100000", "0::/job\n", 2},
        {"/job/cpu.max=1000_100000", "0::/job\n", 1},
        {"/job/cpu.max=20000_10000", "0::/job\n", 2},
        {"/job/cpu.max=max_100000 /cpu.max=300000_100000", "0::/job/step/task\n", 3},
        {"/a/cpu.max=800000_100000 /a/b/cpu.max=200000_100000 /a/b/c/cpu.max=600000_100000",
         "0::/a/b/c\n", 2},
        {"/cpu.max=100000_100000", "0::/\n", 1},              /* a namespace of its own */
        {"/cpu.max=100000_100000", "0::/docker/4ad971\n", 1}, /* the host's name of the group */
        {"/cpu.max=200000_100000", "0::/../../system.slice\n", 2},
        {"/job/cpu.max=400000", "0::/job\n", UINT64_MAX},
        {"/job/cpu.max=text", "0::/job\n", UINT64_MAX},
        {"/job/cpu.max=400000_0", "0::/job\n", UINT64_MAX},
        /* version 1 */
        {"/cpu/job/cpu.cfs_quota_us=250000 /cpu/job/cpu.cfs_period_us=100000",
         "7:memory:/\n4:cpu:/job\n", 3},
        {"/cpu,cpuacct/j/cpu.cfs_quota_us=50000 /cpu,cpuacct/j/cpu.cfs_period_us=50000",
         "4:cpu,cpuacct:/j\n", 1},
        {"/cpu/j/cpu.cfs_quota_us=200000 /cpu/j/cpu.cfs_period_us=100000", "4:cpu,cpuacct:/j/k\n",
         2},
        {"/cpu/cpu.cfs_quota_us=-1 /cpu/cpu.cfs_period_us=100000", "4:cpu:/\n", UINT64_MAX},
        {"/cpu/cpu.cfs_quota_us=100000 /cpu/cpu.cfs_period_us=100000", "4:cpu:/box\n", 1},
        {"/cpu/cpu.cfs_quota_us=100000", "4:cpu:/\n", UINT64_MAX},
        {"/cpu/j/cpu.cfs_quota_us=100000 /cpu/j/cpu.cfs_period_us=100000", "4:cpuacct,cpuset:/j\n",
         UINT64_MAX},
        /* both side by side */
        {"/cpu/j/cpu.cfs_quota_us=300000 /cpu/j/cpu.cfs_period_us=100000", "4:cpu:/j\n0::/j\n", 3},
        {"/unified/j/cpu.max=200000_100000", "4:memory:/j\n0::/j\n", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[120], whole[64];

        snprintf(whole, sizeof whole, "%s", root);
        snprintf(root + strlen(root), sizeof root - strlen(root), "/%zu", i);
        put_files(cases[i].files);
        snprintf(folder, sizeof folder, "%s", root);
        CHECK(mics_cgroup_processors(cases[i].membership, folder) == cases[i].processors);
        if (mics_cgroup_processors(cases[i].membership, folder) != cases[i].processors)
            printf("# %s\n", cases[i].files);
        snprintf(root, sizeof root, "%s", whole);
    }
}

static void this_process_has_processors(void)
{
    const unsigned all = mics_processors();
    cpu_set_t before, one;
    int first = 0;

    CHECK(all >= 1);
    CHECK_INT(sched_getaffinity(0, sizeof before, &before), 0);
    CHECK(all <= (unsigned)CPU_COUNT(&before));
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK_INT(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_INT(mics_processors(), 1);
    CHECK_INT(sched_setaffinity(0, sizeof before, &before), 0);
}

static void odd_memberships_have_no_limit(void)
{
    CHECK(mics_cgroup_memory_limit("", root) == UINT64_MAX);
    CHECK(mics_cgroup_memory_limit("nonsense", root) == UINT64_MAX);
    CHECK(mics_cgroup_memory_limit("0::/../v2/job\n", root) == UINT64_MAX);
}

int main(void)
{
    snprintf(root, sizeof root, "/tmp/mics-cgroup-XXXXXX");
    if (!mkdtemp(root))
        return 1;
    TAP_RUN(the_lowest_limit_on_the_way_to_the_root_counts);
    TAP_RUN(version_one_has_a_folder_for_each_controller);
    TAP_RUN(cached_files_leave_memory);
    TAP_RUN(quotas_are_processors);
    TAP_RUN(odd_memberships_have_no_limit);
    TAP_RUN(this_process_has_processors);
    mics_file_remove_tree(root, NULL);
    return tap_done();
}
