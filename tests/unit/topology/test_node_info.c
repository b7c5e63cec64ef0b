/* SPDX-License-Identifier: Apache-2.0 */
/* test_node_info.c - the machine, and limits of control groups in temporary folders. */
#include "base/file.h"
#include "tap.h"
#include "topology/node_info.h"

#include <stdlib.h>
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

static void odd_memberships_have_no_limit(void)
{
    CHECK(mics_cgroup_memory_limit("", root) == UINT64_MAX);
    CHECK(mics_cgroup_memory_limit("nonsense", root) == UINT64_MAX);
    CHECK(mics_cgroup_memory_limit("0::/../v2/job\n", root) == UINT64_MAX);
}

static void this_machine_has_cores_and_memory(void)
{
    json_t *machine = NULL;
    struct mics_err err = {{0}};

    CHECK_INT(mics_node_describe(&machine, &err), MICS_OK);
    CHECK(json_integer_value(json_object_get(machine, "cores")) >= 1);
    CHECK(json_integer_value(json_object_get(machine, "threads")) >=
          json_integer_value(json_object_get(machine, "cores")));
    CHECK_INT(json_array_size(json_object_get(machine, "cache_bytes")), 3);
    CHECK((uint64_t)json_integer_value(json_object_get(machine, "memory_bytes")) >=
          mics_node_memory_bytes());
    CHECK(mics_node_memory_bytes() > 64 << 20);
    json_decref(machine);
}

int main(void)
{
    snprintf(root, sizeof root, "/tmp/mics-cgroup-XXXXXX");
    if (!mkdtemp(root))
        return 1;
    TAP_RUN(the_lowest_limit_on_the_way_to_the_root_counts);
    TAP_RUN(version_one_has_a_folder_for_each_controller);
    TAP_RUN(odd_memberships_have_no_limit);
    TAP_RUN(this_machine_has_cores_and_memory);
    mics_file_remove_tree(root, NULL);
    return tap_done();
}
