/* SPDX-License-Identifier: Apache-2.0 */
/* test_node_sets.c - documents that contradict themselves, and sets of alike nodes. */
#include "tap.h"
#include "topology/node_sets.h"

/* A cluster of four nodes of two ranks, with `more` members. */
static struct mics_topology *open_with(const char *more, struct mics_err *err)
{
    static const char start[] =
        "{\"kind\": \"mics.topology\", \"v\": 1, \"name\": \"t\", \"source\": \"measured\","
        "\"nodes\": 4, \"per_node\": 2, \"device\": {\"name\": \"gpu\", \"flops_per_s\": 1e14,"
        "\"flops_dtype\": \"bf16\", \"memory_bandwidth_bytes_per_s\": 1e12,"
        "\"memory_bytes\": 1000000}, \"links\": {\"node\": {\"latency_s\": 1e-6,"
        "\"bandwidth_bytes_per_s\": 1e11}, \"net\": {\"latency_s\": 1e-5,"
        "\"bandwidth_bytes_per_s\": 1e10}}";
    char text[4000];
    struct mics_topology *topology = NULL;
    json_t *doc;

    snprintf(text, sizeof text, "%s%s%s}", start, *more ? ", " : "", more);
    doc = json_loads(text, 0, NULL);
    CHECK(doc != NULL);
    *err = (struct mics_err){{0}};
    if (doc)
        (void)mics_topology_from_doc(doc, &topology, err);
    json_decref(doc);
    return topology;
}

static void node_sets_refuse_contradictions(void)
{
    static const struct {
        const char *more, *message;
    } cases[] = {
        {"\"hosts\": [\"a\"]", "hosts: 1 names, but \"nodes\" says 4"},
        {"\"hosts\": [\"a\", \"b\", \"c\", \"b\"]", "hosts: 'b' is listed twice"},
        {"\"hosts\": [\"a\", \"b\", \"\", \"d\"]", "hosts[2]: expected the name of a host"},
        {"\"hosts\": [\"a\", \"b\", \"c\", 4]", "hosts[3]: expected the name of a host"},
        {"\"bad_nodes\": [4]", "bad_nodes[0]: expected the index of a node, 0 to 3"},
        {"\"bad_nodes\": [-1]", "bad_nodes[0]: expected the index of a node, 0 to 3"},
        {"\"bad_nodes\": [1, 1]", "bad_nodes[1]: node 1 is listed twice"},
        {"\"outliers\": [{\"what\": \"flops\", \"value\": 0, \"median\": 1, \"times_slower\": 4}]",
         "outliers[0].value"},
        {"\"outliers\": [{\"what\": \"flops\", \"value\": 1, \"median\": 2, \"times_slower\": 4}]",
         "outliers[0].times_slower: says 4, but \"value\" and \"median\" make 2"},
        {"\"outliers\": [{\"what\": \"net_link\", \"value\": 1, \"median\": 4, \"times_slower\": "
         "4}]",
         "make 0.25"},
        {"\"outliers\": [{\"what\": \"x\", \"value\": 1, \"median\": 4, \"times_slower\": 4}]",
         "'x': expected flops"},
        {"\"node_classes\": [{\"nodes\": [0, 1, 2], \"device\": \"g\", \"memory_bytes\": 1,"
         "\"flops_per_s\": 1, \"memory_bandwidth_bytes_per_s\": 1}]",
         "node_classes: 1 of 4 nodes is in no class"},
        {"\"other_parts\": [{\"kind\": \"mics.plan\"}]", "other_parts[0]"},
        {"\"collectives\": [{\"collective\": \"all_gather\", \"nodes\": 1, \"per_node\": 2,"
         "\"latency_s\": 0, \"bandwidth_bytes_per_s\": 5}, {\"collective\": \"all_gather\","
         "\"nodes\": 1, \"per_node\": 2, \"latency_s\": 0, \"bandwidth_bytes_per_s\": 6}]",
         "collectives: items 0 and 1 are both all_gather of 1 x 2 ranks"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_err err;
        struct mics_topology *topology = open_with(cases[i].more, &err);

        CHECK(topology == NULL);
        CHECK(strstr(err.text, cases[i].message) != NULL);
        if (!strstr(err.text, cases[i].message))
            printf("# %s\n", err.text);
        mics_topology_free(topology);
    }
}

static const char *why(const struct mics_node_set *set, size_t index)
{
    const char *text =
        json_string_value(json_object_get(json_array_get(set->left_out, index), "why"));

    return text ? text : "";
}

static void node_sets_leave_out_bad_nodes(void)
{
    struct mics_err err;
    struct mics_topology *topology = open_with(
        "\"hosts\": [\"a\", \"b\", \"c\", \"d\"], \"bad_nodes\": [2], \"outliers\": [{\"what\":"
        "\"flops\", \"where\": \"rank 4\", \"host\": \"c\", \"value\": 1e13, \"median\": 1e14,"
        "\"times_slower\": 10}]",
        &err);
    struct mics_node_set *sets = NULL;
    uint32_t count = 0;

    CHECK_STR(err.text, "");
    CHECK_INT(mics_node_sets_new(topology, false, &sets, &count, &err), MICS_OK);
    CHECK_INT(count, 1);
    CHECK_INT(sets[0].topology->nodes, 3);
    CHECK_STR(json_string_value(json_array_get(json_object_get(sets[0].topology->doc, "hosts"), 2)),
              "d");
    CHECK_STR(why(&sets[0], 0), "flops of rank 4 is 10.0 times slower than the median");
    mics_node_sets_free(sets, count);
    CHECK_INT(mics_node_sets_new(topology, true, &sets, &count, &err), MICS_OK);
    CHECK_INT(sets[0].topology->nodes, 4);
    CHECK(sets[0].topology->flops == 1e13);
    CHECK_INT(json_array_size(sets[0].left_out), 0);
    mics_node_sets_free(sets, count);
    mics_topology_free(topology);
}

static void node_sets_cover_classes_and_parts(void)
{
    struct mics_err err;
    struct mics_topology *topology = open_with(
        "\"node_classes\": [{\"nodes\": [0, 3], \"device\": \"big\", \"memory_bytes\": 2000000,"
        "\"flops_per_s\": 1e14, \"memory_bandwidth_bytes_per_s\": 1e12}, {\"nodes\": [1, 2],"
        "\"device\": \"small\", \"memory_bytes\": 1000000, \"flops_per_s\": 5e13,"
        "\"memory_bandwidth_bytes_per_s\": 2e12}], \"other_parts\": [{\"kind\": \"mics.topology\","
        "\"v\": 1, \"name\": \"o\", \"source\": \"measured\", \"nodes\": 1, \"per_node\": 1,"
        "\"device\": {\"name\": \"gpu\", \"flops_per_s\": 1e14, \"flops_dtype\": \"bf16\","
        "\"memory_bandwidth_bytes_per_s\": 1e12, \"memory_bytes\": 5}, \"hosts\": [\"odd\"]}]",
        &err);
    struct mics_node_set *sets = NULL;
    uint32_t count = 0;

    CHECK_STR(err.text, "");
    CHECK_INT(mics_node_sets_new(topology, false, &sets, &count, &err), MICS_OK);
    CHECK_INT(count, 4); /* all, big, small, and the other part */
    if (count == 4) {
        CHECK_INT(sets[0].topology->nodes, 4);
        CHECK_INT(sets[0].topology->memory_bytes, 1000000);
        CHECK(sets[0].topology->flops == 5e13 && sets[0].topology->memory_bandwidth == 1e12);
        CHECK_STR(sets[0].topology->device, "small");
        CHECK_STR(why(&sets[0], 0), "it has 1 rank, the nodes of this plan have 2");
        CHECK_INT(sets[1].topology->nodes, 2);
        CHECK_INT(sets[1].topology->memory_bytes, 2000000);
        CHECK(strstr(why(&sets[1], 0), "a plan without its class is faster: small with"));
        CHECK_INT(sets[3].topology->per_node, 1);
        CHECK_INT(json_array_size(sets[3].left_out), 4);
    }
    mics_node_sets_free(sets, count);
    CHECK_INT(mics_node_sets_new(topology, true, &sets, &count, &err), MICS_ERR_INFEASIBLE);
    mics_topology_free(topology);
}

int main(void)
{
    TAP_RUN(node_sets_refuse_contradictions);
    TAP_RUN(node_sets_leave_out_bad_nodes);
    TAP_RUN(node_sets_cover_classes_and_parts);
    return tap_done();
}
