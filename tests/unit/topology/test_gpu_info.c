/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_info.c - GPUs by a fake NVML (tests/fake/nvml.c), on a machine that hwloc loads from a
 * file. */
#include "missing.h"
#include "plugin_path.h"
#include "tap.h"
#include "topology/gpu_info.h"

#include <math.h>
#include <string.h>

static char fake[4096];

static json_t *describe(void)
{
    json_t *machine = json_object();
    struct mics_err err = {""};

    CHECK_INT(mics_gpu_info_add(machine, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return machine;
}

static void names_links_and_memory_come_from_NVML(void)
{
    struct mics_nvml_gpu *gpus = NULL;
    uint32_t count = 0;

    setenv("MICS_NVML_PATH", fake, 1);
    CHECK_INT(mics_nvml_list(&gpus, &count, NULL), MICS_OK);
    CHECK_INT(count, 3);
    CHECK_STR(gpus[0].name, "NVIDIA H200");
    CHECK_INT(gpus[0].memory_bytes, 150754820096);
    CHECK_INT(gpus[0].nvlinks, 18);
    CHECK_INT(gpus[0].nvlinks_to_switches, 18);
    CHECK(fabs(gpus[0].nvlink_rate - 18 * 20.6e9) < 1);
    CHECK_INT(gpus[1].nvlinks, 11);
    CHECK_INT(gpus[1].nvlinks_to_switches, 0);
    CHECK(fabs(gpus[1].nvlink_rate - 11 * 20e9) < 1);
    CHECK_INT(gpus[2].nvlinks, 0);
    CHECK_INT(gpus[2].memory_bytes, 0);
    CHECK_INT(gpus[2].pcie_width, 16);
    CHECK_INT(gpus[2].pcie_width_now, 8);
    free(gpus);
}

static void CUDAs_identity_finds_the_GPU_and_its_free_memory(void)
{
    char uuid[16] = "mics emulated";
    struct mics_nvml_gpu *gpus = NULL;
    uint32_t count = 0;

    setenv("MICS_FAKE_NVML", "emulated", 1);
    CHECK_INT(mics_nvml_list(&gpus, &count, NULL), MICS_OK);
    unsetenv("MICS_FAKE_NVML");
    CHECK_INT(count, 2);
    CHECK(mics_nvml_gpu_is(&gpus[0], uuid));
    CHECK(!mics_nvml_gpu_is(&gpus[1], uuid));
    uuid[15] = 1;
    CHECK(!mics_nvml_gpu_is(&gpus[0], uuid));
    CHECK(mics_nvml_gpu_is(&gpus[1], uuid));
    CHECK_INT(gpus[0].memory_bytes, 16ll << 30);
    CHECK_INT(gpus[0].free_bytes, 8ll << 30);
    CHECK_INT(gpus[1].free_bytes, 7ll << 30);
    uuid[15] = (char)0xfe;
    CHECK(!mics_nvml_gpu_is(&gpus[0], uuid));
    free(gpus);
}

static void check_network(const json_t *gpu, const char *distance, const char *first, size_t count)
{
    const json_t *network = json_object_get(gpu, "network");
    const json_t *names = json_object_get(network, "names");

    CHECK_STR(json_string_value(json_object_get(network, "distance")), distance);
    CHECK_INT(json_array_size(names), count);
    CHECK_STR(json_string_value(json_array_get(names, 0)), first);
}

static void the_nearest_network_cards_come_from_hwloc(void)
{
    setenv("HWLOC_XMLFILE", "tests/fake/hwloc.xml", 1);
    json_t *machine = describe();
    const json_t *gpus = json_object_get(machine, "gpus");

    unsetenv("HWLOC_XMLFILE");
    CHECK_INT(json_array_size(gpus), 3);
    check_network(json_array_get(gpus, 0), "switch", "mlx5_0", 1);
    check_network(json_array_get(gpus, 1), "numa node", "mlx5_0", 1);
    check_network(json_array_get(gpus, 2), "host bridge", "mlx5_1", 2);
    CHECK_STR(json_string_value(json_object_get(json_array_get(gpus, 1), "capability")), "8.0");
    CHECK(!json_object_get(json_array_get(gpus, 2), "nvlink_bytes_per_s"));
    json_decref(machine);
}

static void a_machine_that_hwloc_cannot_load_has_no_network_cards(void)
{
    setenv("HWLOC_SYNTHETIC", "package:1 core:2 pu:1", 1);
    json_t *machine = describe();

    unsetenv("HWLOC_SYNTHETIC");
    CHECK_INT(json_array_size(json_object_get(machine, "gpus")), 3);
    CHECK(!json_object_get(json_array_get(json_object_get(machine, "gpus"), 0), "network"));
    json_decref(machine);
}

static void errors_of_the_driver_are_in_the_document(void)
{
    setenv("MICS_FAKE_NVML", "mismatch", 1);
    json_t *machine = describe();

    unsetenv("MICS_FAKE_NVML");
    CHECK_STR(json_string_value(json_object_get(machine, "gpus_error")),
              "NVML: nvmlInit: Driver/library version mismatch");
    CHECK(!json_object_get(machine, "gpus"));
    json_decref(machine);
}

static void a_machine_without_NVML_or_with_another_library_has_no_GPUs_to_tell_of(void)
{
    struct mics_nvml_gpu *gpus = NULL;
    struct mics_err err;
    uint32_t count;

    setenv("MICS_NVML_PATH", missing_path("libnvidia-ml.so.1"), 1);
    json_t *machine = describe();
    CHECK_INT(json_object_size(machine), 0);
    json_decref(machine);
    setenv("MICS_NVML_PATH", "libm.so.6", 1);
    CHECK_INT(mics_nvml_list(&gpus, &count, &err), MICS_ERR_UNSUPPORTED);
    CHECK_STR(err.text, "libm.so.6: function nvmlInit_v2 not found");
}

int main(void)
{
    in_build("tests/fake/nvml.so", fake);
    TAP_RUN(names_links_and_memory_come_from_NVML);
    TAP_RUN(CUDAs_identity_finds_the_GPU_and_its_free_memory);
    TAP_RUN(the_nearest_network_cards_come_from_hwloc);
    TAP_RUN(a_machine_that_hwloc_cannot_load_has_no_network_cards);
    TAP_RUN(errors_of_the_driver_are_in_the_document);
    TAP_RUN(a_machine_without_NVML_or_with_another_library_has_no_GPUs_to_tell_of);
    return tap_done();
}
