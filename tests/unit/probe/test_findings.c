/* SPDX-License-Identifier: Apache-2.0 */
/* test_findings.c - good nodes give no finding; one changed fact of one node gives one finding. */
#include "probe/findings.h"
#include "tap.h"

enum { NODES = 5, BAD = 2 };

static const char good_facts[] =
    "{\"versions\": {\"mics\": \"0.1.0\", \"mpi\": \"Open MPI v4.1.4\", \"kernel\": \"6.1.0\","
    " \"nvidia\": \"550.90.07\"}, \"cores\": 64, \"memory_bytes\": 1081101176832,"
    " \"memory_free_bytes\": 1041101176832, \"shm_bytes\": 540550588416,"
    " \"shm_free_bytes\": 540550588416, \"disk_free_bytes\": 540550588416,"
    " \"governor\": \"performance\","
    " \"interfaces\": [{\"name\": \"eth0\", \"up\": true, \"bits_per_s\": 100000000000,"
    " \"mtu\": 9000}, {\"name\": \"eth1\", \"up\": false}],"
    " \"rdma\": [{\"name\": \"mlx5_0\", \"port\": \"1\", \"state\": \"ACTIVE\","
    " \"gbit_per_s\": 400.0, \"link_layer\": \"InfiniBand\"}]}";

static const char good_gpu[] =
    "{\"name\": \"NVIDIA H100 80GB HBM3\", \"pci_id\": \"00000000:1B:00.0\","
    " \"memory_bytes\": 85520809984, \"used_bytes\": 600000000, \"nvlinks\": 18,"
    " \"pcie\": {\"generation\": 5, \"width\": 16, \"width_now\": 16}, \"ecc\": 1,"
    " \"ecc_errors\": 0, \"remap_pending\": 0, \"remap_failed\": 0, \"throttle\": 1,"
    " \"celsius\": 40, \"limit_celsius\": 87, \"power_limit_mw\": 700000,"
    " \"default_power_limit_mw\": 700000, \"persistence\": 1, \"mig\": 0, \"processes\": 0,"
    " \"link_recoveries\": 0}";

static json_t *good_nodes(size_t count)
{
    json_t *nodes = json_array();

    for (size_t i = 0; i < count; i++) {
        json_t *facts = json_loads(good_facts, 0, NULL), *gpus = json_array();
        char host[24];

        for (int gpu = 0; gpu < 8; gpu++)
            json_array_append_new(gpus, json_loads(good_gpu, 0, NULL));
        json_object_set_new(facts, "gpus", gpus);
        snprintf(host, sizeof host, "n%zu", i);
        json_array_append_new(nodes, json_pack("{s:s, s:o, s:f, s:i}", "host", host, "facts", facts,
                                               "time_offset_s", 0.01 * (double)i, "throttled", 0));
    }
    return nodes;
}

static json_t *judge(const json_t *nodes)
{
    json_t *list = json_array();
    struct mics_err err = {""};

    CHECK_INT(mics_findings_of_facts(nodes, list, &err), MICS_OK);
    return list;
}

static const char *text_of(const json_t *list, size_t index, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(list, index), key));

    return text ? text : "(none)";
}

/* One finding of this kind, of node BAD; takes both. */
static void expect_one(json_t *nodes, json_t *list, const char *what)
{
    const json_t *node = json_object_get(json_array_get(list, 0), "node");

    CHECK_INT(json_array_size(list), 1);
    CHECK_STR(text_of(list, 0, "what"), what);
    CHECK_STR(text_of(list, 0, "host"), "n2");
    CHECK_INT(json_integer_value(node), BAD);
    if (json_array_size(list) != 1)
        printf("# looking for %s\n", what);
    json_decref(list);
    json_decref(nodes);
}

static void good_nodes_have_no_finding(void)
{
    for (size_t count = 1; count <= NODES; count++) {
        json_t *nodes = good_nodes(count), *list = judge(nodes);

        CHECK_INT(json_array_size(list), 0);
        json_decref(list);
        json_decref(nodes);
    }
}

static void a_changed_fact_of_a_node_is_its_finding(void)
{
    static const struct {
        const char *what, *patch;
    } cases[] = {
        {"mics_version", "{\"versions\": {\"mics\": \"0.0.9\", \"mpi\": \"Open MPI v4.1.4\"}}"},
        {"mpi_version", "{\"versions\": {\"mics\": \"0.1.0\", \"mpi\": \"Open MPI v4.1.9\"}}"},
        {"kernel", "{\"versions\": {\"kernel\": \"6.9.0\"}}"},
        {"driver", "{\"versions\": {\"nvidia\": \"535.1\"}}"},
        {"cores", "{\"cores\": 60}"},
        {"memory", "{\"memory_bytes\": 981101176832}"},
        {"memory_in_use", "{\"memory_free_bytes\": 241101176832}"},
        {"shm", "{\"shm_free_bytes\": 40550588416}"},
        {"shm_small", "{\"shm_bytes\": 67108864}"},
        {"memlock", "{\"memlock_bytes\": 65536}"},
        {"disk", "{\"disk_free_bytes\": 65536}"},
        {"governor", "{\"governor\": \"powersave\"}"},
        {"interface_missing", "{\"interfaces\": [{\"name\": \"eth1\", \"up\": false}]}"},
        {"interface_down", "{\"interfaces\": [{\"name\": \"eth0\", \"up\": false, \"mtu\": 9000},"
                           " {\"name\": \"eth1\", \"up\": false}]}"},
        {"interface_rate", "{\"interfaces\": [{\"name\": \"eth0\", \"up\": true, \"mtu\": 9000,"
                           " \"bits_per_s\": 10000000000}, {\"name\": \"eth1\", \"up\": false}]}"},
        {"mtu", "{\"interfaces\": [{\"name\": \"eth0\", \"up\": true, \"mtu\": 1500,"
                " \"bits_per_s\": 100000000000}, {\"name\": \"eth1\", \"up\": false}]}"},
        {"rdma_missing", "{\"rdma\": []}"},
        {"rdma_state", "{\"rdma\": [{\"name\": \"mlx5_0\", \"port\": \"1\", \"state\": \"INIT\","
                       " \"gbit_per_s\": 400.0}]}"},
        {"rdma_rate", "{\"rdma\": [{\"name\": \"mlx5_0\", \"port\": \"1\", \"state\": \"ACTIVE\","
                      " \"gbit_per_s\": 100.0}]}"},
        {"gpu_driver", "{\"gpus\": [], \"gpus_error\": \"NVML: version mismatch\"}"},
        {"gpu_xid", "{\"xids\": [{\"pci_id\": \"0000:1b:00\", \"xid\": 79},"
                    " {\"pci_id\": \"0000:1b:00\", \"xid\": 31}]}"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *nodes = good_nodes(NODES), *patch = json_loads(cases[i].patch, 0, NULL);

        json_object_update(json_object_get(json_array_get(nodes, BAD), "facts"), patch);
        json_decref(patch);
        expect_one(nodes, judge(nodes), cases[i].what);
    }
}

/* Set how all GPUs of a node, or the first two, reach each other. */
static void set_peers(json_t *nodes, size_t node, const char *how, bool all)
{
    json_t *gpus = json_object_get(json_object_get(json_array_get(nodes, node), "facts"), "gpus");

    for (size_t i = 0; i < json_array_size(gpus); i++) {
        json_t *peers = json_array();

        for (size_t k = 0; k < json_array_size(gpus); k++)
            json_array_append_new(peers, i == k              ? json_null()
                                         : all || i + k == 1 ? json_string(how)
                                                             : json_string("NVLink"));
        json_object_set_new(json_array_get(gpus, i), "peers", peers);
    }
}

static json_t *nodes_with_peers(size_t count, const char *how)
{
    json_t *nodes = good_nodes(count);

    for (size_t i = 0; i < count; i++)
        set_peers(nodes, i, how, true);
    return nodes;
}

static void peer_access_is_compared_with_other_nodes(void)
{
    json_t *nodes = nodes_with_peers(NODES, "NVLink"), *list;

    set_peers(nodes, BAD, "disabled by registry key", true);
    list = judge(nodes);
    CHECK_STR(text_of(list, 0, "where"), "GPU 0 to GPU 1, and 27 other pairs");
    CHECK_STR(text_of(list, 0, "found"), "disabled by registry key");
    CHECK_STR(text_of(list, 0, "expected"), "NVLink");
    expect_one(nodes, list, "gpu_peer_access");
    nodes = nodes_with_peers(NODES, "NVLink");
    set_peers(nodes, BAD, "PCIe", false);
    list = judge(nodes);
    CHECK_STR(text_of(list, 0, "where"), "GPU 0 to GPU 1");
    expect_one(nodes, list, "gpu_peer_access");
    for (size_t count = 1; count <= NODES; count++) { /* consumer cards */
        nodes = nodes_with_peers(count, "chipset not supported");
        list = judge(nodes);
        CHECK_INT(json_array_size(list), 0);
        json_decref(list);
        json_decref(nodes);
    }
}

static void peer_access_of_one_node_is_compared_with_its_other_pairs(void)
{
    static const struct {
        const char *how;
        size_t findings;
    } cases[] = {{"disabled by registry key", 1}, {"topology not supported", 0}, {"PCIe", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *nodes = nodes_with_peers(1, "NVLink"), *list;

        set_peers(nodes, 0, cases[i].how, false);
        list = judge(nodes);
        CHECK_INT(json_array_size(list), cases[i].findings);
        json_decref(list);
        json_decref(nodes);
    }
}

static json_t *gpus_of_node(json_t *nodes, size_t node)
{
    return json_object_get(json_object_get(json_array_get(nodes, node), "facts"), "gpus");
}

/* Keep the first `count` GPUs of each node. */
static void keep_gpus(json_t *nodes, size_t count)
{
    for (size_t node = 0; node < json_array_size(nodes); node++)
        while (json_array_size(gpus_of_node(nodes, node)) > count)
            json_array_remove(gpus_of_node(nodes, node), count);
}

static void set_peer(json_t *nodes, size_t node, size_t from, size_t to, const char *how)
{
    json_t *gpus = gpus_of_node(nodes, node);

    json_array_set_new(json_object_get(json_array_get(gpus, from), "peers"), to, json_string(how));
    json_array_set_new(json_object_get(json_array_get(gpus, to), "peers"), from, json_string(how));
}

static void consumer_cards_of_one_node_are_alike(void)
{
    static const size_t counts[] = {1, 2, 3, 4, 8};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_t *nodes = good_nodes(1), *list;

        keep_gpus(nodes, counts[i]);
        set_peers(nodes, 0, "chipset not supported", true);
        list = judge(nodes);
        CHECK_INT(json_array_size(list), 0);
        json_decref(list);
        if (counts[i] > 2) /* and one pair that is not known */
            json_array_set_new(json_object_get(json_array_get(gpus_of_node(nodes, 0), 0), "peers"),
                               1, json_null());
        list = judge(nodes);
        CHECK_INT(json_array_size(list), 0);
        json_decref(list);
        json_decref(nodes);
    }
}

/* Four cards with two bridges of NVLink. */
static void put_bridges(json_t *nodes, size_t node, size_t partner_of_first)
{
    set_peers(nodes, node, "PCIe", true);
    set_peer(nodes, node, 0, partner_of_first, "NVLink");
    set_peer(nodes, node, 3, 3 - partner_of_first, "NVLink");
}

static void bridges_at_other_places_are_no_finding(void)
{
    for (size_t count = 2; count <= NODES; count++) {
        json_t *nodes = good_nodes(count), *list;

        keep_gpus(nodes, 4);
        for (size_t node = 0; node < count; node++)
            put_bridges(nodes, node, 1 + node % 2);
        list = judge(nodes);
        CHECK_INT(json_array_size(list), 0);
        json_decref(list);
        json_decref(nodes);
    }
    json_t *nodes = good_nodes(NODES), *list;

    keep_gpus(nodes, 4);
    for (size_t node = 0; node < NODES; node++)
        put_bridges(nodes, node, 1);
    set_peer(nodes, BAD, 2, 3, "PCIe"); /* lost */
    list = judge(nodes);
    CHECK_STR(text_of(list, 0, "where"), "GPU 2 to GPU 3");
    CHECK_STR(text_of(list, 0, "expected"), "NVLink");
    expect_one(nodes, list, "gpu_peer_access");
}

/* Slurm gives GPUs of one socket on one node, and of two on another. */
static void other_GPUs_of_a_node_are_no_finding(void)
{
    json_t *nodes = good_nodes(2), *list;

    keep_gpus(nodes, 4);
    for (size_t node = 0; node < 2; node++)
        put_bridges(nodes, node, 1);
    set_peer(nodes, 1, 2, 3, "PCIe");
    for (size_t i = 0; i < 4; i++)
        set_peer(nodes, 1, i / 2, 2 + i % 2, "topology not supported");
    for (size_t gpu = 0; gpu < 4; gpu++)
        json_object_set_new(json_array_get(gpus_of_node(nodes, 1), gpu), "pci_id",
                            json_sprintf("00000000:%zu1:00.0", gpu));
    list = judge(nodes);
    CHECK_INT(json_array_size(list), 0);
    json_decref(list);
    set_peer(nodes, 1, 2, 3, "chipset not supported"); /* whichever they are */
    list = judge(nodes);
    CHECK_INT(json_array_size(list), 1);
    CHECK_STR(text_of(list, 0, "where"), "GPU 2 to GPU 3");
    CHECK_STR(text_of(list, 0, "expected"), "PCIe");
    json_decref(list);
    json_decref(nodes);
}

static void clocks_and_heat_are_findings(void)
{
    json_t *nodes = good_nodes(NODES);

    json_object_set_new(json_array_get(nodes, BAD), "time_offset_s", json_real(-3600));
    expect_one(nodes, judge(nodes), "clock");
    nodes = good_nodes(NODES);
    json_object_set_new(json_array_get(nodes, BAD), "throttled", json_integer(3));
    expect_one(nodes, judge(nodes), "throttled");
}

static void a_changed_figure_of_a_GPU_is_its_finding(void)
{
    static const struct {
        const char *what, *patch;
    } cases[] = {
        {"gpu_model", "{\"name\": \"NVIDIA H100 PCIe\"}"},
        {"gpu_memory", "{\"memory_bytes\": 42949672960}"},
        {"gpu_in_use", "{\"processes\": 1}"},
        {"gpu_in_use", "{\"used_bytes\": 8589934592}"},
        {"gpu_ecc_off", "{\"ecc\": 0}"},
        {"gpu_ecc_errors", "{\"ecc_errors\": 2}"},
        {"gpu_remap_pending", "{\"remap_pending\": 1}"},
        {"gpu_remap_failed", "{\"remap_failed\": 1}"},
        {"gpu_throttled", "{\"throttle\": 72}"},
        {"gpu_hot", "{\"celsius\": 86}"},
        {"gpu_power_limit", "{\"power_limit_mw\": 500000}"},
        {"gpu_pcie_width", "{\"pcie\": {\"generation\": 5, \"width\": 16, \"width_now\": 8}}"},
        {"gpu_pcie_width", "{\"pcie\": {\"generation\": 5, \"width\": 8, \"width_now\": 8}}"},
        {"gpu_pcie_generation",
         "{\"pcie\": {\"generation\": 3, \"width\": 16, \"width_now\": 16}}"},
        {"gpu_nvlinks", "{\"nvlinks\": 17}"},
        {"gpu_nvlink_errors", "{\"link_recoveries\": 5}"},
        {"gpu_persistence", "{\"persistence\": 0}"},
        {"gpu_mig", "{\"mig\": 1}"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *nodes = good_nodes(NODES), *patch = json_loads(cases[i].patch, 0, NULL);
        json_t *facts = json_object_get(json_array_get(nodes, BAD), "facts");

        json_object_update(json_array_get(json_object_get(facts, "gpus"), 3), patch);
        json_decref(patch);
        json_t *list = judge(nodes);
        CHECK_STR(text_of(list, 0, "where"), "GPU 3 00000000:1B:00.0");
        expect_one(nodes, list, cases[i].what);
    }
    json_t *nodes = good_nodes(NODES);
    json_t *facts = json_object_get(json_array_get(nodes, BAD), "facts");
    json_array_remove(json_object_get(facts, "gpus"), 7);
    expect_one(nodes, judge(nodes), "gpu_count");
}

static void of_two_nodes_the_one_with_less_is_named_and_texts_blame_none(void)
{
    json_t *nodes = good_nodes(2), *list;
    json_t *facts = json_object_get(json_array_get(nodes, 1), "facts");

    json_object_set_new(facts, "cores", json_integer(32));
    json_object_set_new(json_object_get(facts, "versions"), "mpi", json_string("Open MPI v5.0.1"));
    list = judge(nodes);
    CHECK_INT(json_array_size(list), 2);
    CHECK_STR(text_of(list, 0, "what"), "mpi_version");
    CHECK_STR(text_of(list, 0, "host"), "(none)");
    CHECK_STR(text_of(list, 0, "found"), "Open MPI v4.1.4 and Open MPI v5.0.1");
    CHECK_STR(text_of(list, 1, "what"), "cores");
    CHECK_STR(text_of(list, 1, "host"), "n1");
    json_decref(list);
    json_decref(nodes);
}

static void only_faults_make_a_node_bad(void)
{
    json_t *nodes = good_nodes(NODES), *list, *bad;

    json_object_set_new(json_object_get(json_array_get(nodes, 1), "facts"), "governor",
                        json_string("powersave"));
    json_object_set_new(json_object_get(json_array_get(nodes, 4), "facts"), "cores",
                        json_integer(1));
    list = judge(nodes);
    bad = mics_findings_bad_nodes(list, NODES);
    CHECK_INT(json_array_size(list), 2);
    CHECK_INT(json_array_size(bad), 1);
    CHECK_INT(json_integer_value(json_array_get(bad, 0)), 4);
    json_decref(bad);
    json_decref(list);
    json_decref(nodes);
}

int main(void)
{
    TAP_RUN(good_nodes_have_no_finding);
    TAP_RUN(a_changed_fact_of_a_node_is_its_finding);
    TAP_RUN(peer_access_is_compared_with_other_nodes);
    TAP_RUN(peer_access_of_one_node_is_compared_with_its_other_pairs);
    TAP_RUN(consumer_cards_of_one_node_are_alike);
    TAP_RUN(bridges_at_other_places_are_no_finding);
    TAP_RUN(other_GPUs_of_a_node_are_no_finding);
    TAP_RUN(clocks_and_heat_are_findings);
    TAP_RUN(a_changed_figure_of_a_GPU_is_its_finding);
    TAP_RUN(of_two_nodes_the_one_with_less_is_named_and_texts_blame_none);
    TAP_RUN(only_faults_make_a_node_bad);
    return tap_done();
}
