/* SPDX-License-Identifier: Apache-2.0 */
/* test_node_info.c - the machine that runs the tests. */
#include "tap.h"
#include "topology/node_info.h"

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
    TAP_RUN(this_machine_has_cores_and_memory);
    return tap_done();
}
