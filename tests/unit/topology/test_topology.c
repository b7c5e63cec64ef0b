/* SPDX-License-Identifier: Apache-2.0 */
/* test_topology.c - the document of a topology, and the synthetic grammar. */
#include "doc/doc.h"
#include "tap.h"
#include "topology/topology.h"

#include <stdlib.h>

static const char small[] =
    "{'kind':'mics.topology','v':1,'name':'lab','source':'measured','nodes':2,'per_node':4,"
    "'rack':'B7','device':{'name':'host','flops_per_s':1e11,'flops_dtype':'f32',"
    "'memory_bandwidth_bytes_per_s':1e10,'memory_bytes':4294967296,'cores':2,'colour':'green'},"
    "'links':{'node':{'latency_s':1e-6,'bandwidth_bytes_per_s':5e9,'samples':30,'spread':0.04},"
    "'net':{'latency_s':5e-5,'bandwidth_bytes_per_s':1e9,'cable':'copper'}},"
    "'collectives':[{'collective':'all_reduce','nodes':2,'per_node':1,'latency_s':1e-4,"
    "'bandwidth_bytes_per_s':2e8,'points':[[1024,1e-4]]}]}";

/* The document, written with single quotes in place of double ones; `from` is replaced by `to`
 * unless NULL. */
static json_t *make(const char *from, const char *to)
{
    char text[4096] = "", *quote;
    const char *at = from ? strstr(small, from) : NULL;
    json_t *doc;

    if (at)
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, to, at + strlen(from));
    else
        snprintf(text, sizeof text, "%s", small);
    while ((quote = strchr(text, '\'')))
        *quote = '"';
    doc = json_loads(text, 0, NULL);
    CHECK(doc != NULL);
    CHECK(!from || at);
    return doc;
}

static void a_document_becomes_a_topology(void)
{
    json_t *doc = make(NULL, NULL);
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_doc(doc, &topology, NULL), MICS_OK);
    if (!topology)
        return;
    CHECK_STR(topology->name, "lab");
    CHECK_INT(topology->nodes * 10 + topology->per_node, 24);
    CHECK_STR(topology->flops_dtype, "f32");
    CHECK_INT(topology->memory_bytes, 4294967296);
    CHECK_INT(topology->node_link.samples, 30);
    CHECK_NEAR(topology->net_link.latency_s, 5e-5, 1e-12);
    CHECK_INT(topology->cost_count, 1);
    CHECK_INT(topology->costs[0].collective, MICS_ALL_REDUCE);
    CHECK_NEAR(topology->costs[0].cost.bandwidth_bytes, 2e8, 1);
    mics_topology_free(topology);
    json_decref(doc);
}

/* Older documents do not say who multiplies bf16; newer ones do, and say it again. */
static void whether_onednn_multiplies_is_kept(void)
{
    static const char *const members[] = {"'bf16'", "'bf16','onednn':false",
                                          "'bf16','onednn':true"};

    for (size_t i = 0; i < 3; i++) {
        json_t *doc = make("'f32'", members[i]), *again = NULL;
        struct mics_topology *topology = NULL;

        CHECK_INT(mics_topology_from_doc(doc, &topology, NULL), MICS_OK);
        if (!topology)
            return;
        CHECK_INT(topology->onednn, i != 1);
        CHECK_INT(mics_topology_to_doc(topology, &again, NULL), MICS_OK);
        json_t *member = json_object_get(json_object_get(again, "device"), "onednn");
        CHECK(i == 1 ? json_is_false(member) : json_is_true(member));
        json_decref(again);
        json_decref(doc);
        mics_topology_free(topology);
    }
}

static void unknown_keys_survive_everywhere(void)
{
    json_t *doc = make(NULL, NULL), *again = NULL;
    struct mics_topology *topology = NULL;
    char *before, *after;

    CHECK_INT(mics_topology_from_doc(doc, &topology, NULL), MICS_OK);
    topology->net_link.latency_s = 7e-5;
    CHECK_INT(mics_topology_to_doc(topology, &again, NULL), MICS_OK);
    CHECK_STR(json_string_value(json_object_get(again, "rack")), "B7");
    CHECK_STR(json_string_value(json_object_get(json_object_get(again, "device"), "colour")),
              "green");
    json_t *net = json_object_get(json_object_get(again, "links"), "net");
    CHECK_STR(json_string_value(json_object_get(net, "cable")), "copper");
    CHECK_NEAR(json_real_value(json_object_get(net, "latency_s")), 7e-5, 1e-12);
    CHECK(json_object_get(json_array_get(json_object_get(again, "collectives"), 0), "points"));
    mics_topology_free(topology);
    /* The document that it came from is unchanged. */
    json_t *fresh = make(NULL, NULL);
    before = json_dumps(fresh, 0);
    after = json_dumps(doc, 0);
    CHECK_STR(after, before);
    free(before);
    free(after);
    json_decref(fresh);
    json_decref(doc);
    json_decref(again);
}

static void every_wrong_value_is_refused_with_its_path(void)
{
    static const struct {
        const char *from, *to, *path;
    } table[] = {
        {"'mics.topology'", "'mics.plan'", ""},
        {"'v':1", "'v':2", ""},
        {"'nodes':2,'per", "'nodes':0,'per", "nodes: "},
        {"'nodes':2,'per", "'nodes':65537,'per", "nodes: "},
        {"'per_node':4", "'per_node':1025", "per_node: "},
        {"'name':'lab',", "", "name: "},
        {"'lab'", "'0123456789012345678901234567890123456789012345678901234567890123456'",
         "name: longer than 63 bytes"},
        {"'flops_per_s':1e11", "'flops_per_s':0", "device.flops_per_s: "},
        {"'flops_per_s':1e11", "'flops_per_s':'fast'", "device.flops_per_s: "},
        {"'f32'", "'fp8'", "device.flops_dtype: 'fp8': expected f32, bf16 or f16"},
        {"4294967296", "-1", "device.memory_bytes: "},
        {"'latency_s':1e-6", "'latency_s':-1e-6", "links.node.latency_s: "},
        {"'bandwidth_bytes_per_s':5e9", "'bandwidth_bytes_per_s':0",
         "links.node.bandwidth_bytes_per_s: "},
        {"'net':{", "'nut':{", "links.net: "},
        {"'spread':0.04", "'spread':-1", "links.node.spread: "},
        {"'all_reduce'", "'all_to_some'",
         "collectives[0].collective: 'all_to_some': expected all_gather, reduce_scatter, "
         "all_reduce or all_to_all"},
        {"'nodes':2,'per_node':1", "'nodes':3,'per_node':1", "collectives[0].nodes: "},
        {"'bandwidth_bytes_per_s':2e8", "'bandwidth_bytes_per_s':null",
         "collectives[0].bandwidth_bytes_per_s: "},
        {"[[1024,1e-4]]", "[[1024]]", "collectives[0].points[0]: expected [bytes, seconds]"},
        {"[[1024,1e-4]]", "[[1024,0]]", "collectives[0].points[0][1]: expected a number above 0"},
        {"[[1024,1e-4]]", "[[1024,1e-4],[1024,2e-4]]",
         "collectives[0].points[1]: sizes must increase"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *doc = make(table[i].from, table[i].to);
        struct mics_topology *topology = NULL;
        struct mics_err err = {{0}};

        CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_ERR_FORMAT);
        CHECK(topology == NULL);
        if (strncmp(err.text, table[i].path, strlen(table[i].path)) != 0)
            CHECK_STR(err.text, table[i].path);
        CHECK(err.text[0] != '\0');
        json_decref(doc);
    }
}

static void an_unused_link_may_be_absent(void)
{
    json_t *doc = make("'nodes':2,'per_node':4", "'nodes':1,'per_node':1");
    struct mics_topology *topology = NULL;

    json_object_del(doc, "links");
    json_object_del(doc, "collectives");
    CHECK_INT(mics_topology_from_doc(doc, &topology, NULL), MICS_OK);
    mics_topology_free(topology);
    json_decref(doc);
}

static void words_describe_a_cluster(void)
{
    struct mics_topology *topology = NULL;
    struct mics_err err = {{0}};

    CHECK_INT(mics_topology_parse("node:4 gpu:8 flops:312T  mem:40G membw:1.5TB/s cores:6 "
                                  "link:300GB/s,3us net:400gbit,20us dtype:f16",
                                  &topology, &err),
              MICS_OK);
    CHECK_STR(err.text, "");
    if (!topology)
        return;
    CHECK_INT(topology->nodes * 100 + topology->per_node * 10 + topology->cores, 486);
    CHECK_NEAR(topology->flops, 312e12, 1);
    CHECK_STR(topology->flops_dtype, "f16");
    CHECK_INT(topology->memory_bytes, 40ll << 30);
    CHECK_NEAR(topology->memory_bandwidth, 1.5e12, 1);
    CHECK_NEAR(topology->node_link.bandwidth_bytes, 300e9, 1);
    CHECK_NEAR(topology->node_link.latency_s, 3e-6, 1e-12);
    CHECK_NEAR(topology->net_link.bandwidth_bytes, 50e9, 1);
    CHECK_NEAR(topology->net_link.latency_s, 20e-6, 1e-12);
    CHECK_STR(topology->source, "synthetic");
    mics_topology_free(topology);
}

static void words_name_a_gpu_of_the_catalogue_and_a_kind_of_network(void)
{
    static const char *const texts[] = {"node:2 gpu:8xRTX4090-24 eth:10gbit mem:20G",
                                        "mem:20G eth:10gbit gpu:8xrtx4090-24 node:2"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct mics_topology *topology = NULL;
        struct mics_err err = {{0}};

        CHECK_INT(mics_topology_parse(texts[i], &topology, &err), MICS_OK);
        CHECK_STR(err.text, "");
        if (!topology)
            return;
        CHECK_INT(topology->nodes * 10 + topology->per_node, 28);
        CHECK_STR(topology->device, "NVIDIA GeForce RTX 4090 24GB");
        CHECK_NEAR(topology->flops, .97 * 165.2e12, 1e9);
        CHECK_INT(topology->rates.sms, 128);
        CHECK_INT(topology->memory_bytes, 20ll << 30); /* not the GPU's */
        CHECK_NEAR(topology->node_link.bandwidth_bytes, .4 * 31.5e9, 1);
        CHECK_NEAR(topology->net_link.bandwidth_bytes, .94 * 1.25e9, 1);
        CHECK_NEAR(topology->net_link.latency_s, 75e-6, 1e-12);
        const json_t *device = json_object_get(topology->doc, "device");
        CHECK_NEAR(json_real_value(json_object_get(device, "peak_flops_per_s")), 165.2e12, 1);
        mics_topology_free(topology);
    }
}

static void networks_differ_in_latency_and_part_reached(void)
{
    static const struct {
        const char *text;
        double reached, latency_s;
    } table[] = {{"roce:100gbit", .95 * 12.5e9, 15e-6},
                 {"ib:400gbit", .96 * 50e9, 5e-6},
                 {"ib:8gbit,9us", .96e9, 9e-6}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct mics_topology *topology = NULL;

        CHECK_INT(mics_topology_parse(table[i].text, &topology, NULL), MICS_OK);
        CHECK_NEAR(topology ? topology->net_link.bandwidth_bytes : 0, table[i].reached, 1);
        CHECK_NEAR(topology ? topology->net_link.latency_s : 0, table[i].latency_s, 1e-12);
        mics_topology_free(topology);
    }
}

static void omitted_words_have_defaults(void)
{
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_parse("gpu:2", &topology, NULL), MICS_OK);
    CHECK_INT(topology->nodes, 1);
    CHECK_INT(topology->per_node, 2);
    CHECK(topology->flops > 0 && topology->net_link.bandwidth_bytes > 0);
    mics_topology_free(topology);
}

static void a_wrong_word_is_quoted(void)
{
    static const char *const table[][2] = {
        {"node:4 gpus:8", "'gpus:8': expected gpu, node"},
        {"node:4 8", "'8': expected gpu, node"},
        {"node:0", "'node:0': "},
        {"node:65537", "'node:65537': "},
        {"gpu:2000", "'gpu:2000': "},
        {"node:2 node:3", "'node:3': given twice"},
        {"flops:fast", "'flops:fast': "},
        {"flops:0", "'flops:0': less than 1 FLOP/s"},
        {"flops:", "'flops:': "},
        {"flops:-5T", "'flops:-5T': "},
        {"mem:0", "'mem:0': "},
        {"mem:40X", "'mem:40X': "},
        {"dtype:fp8", "'dtype:fp8': expected f32, bf16 or f16"},
        {"link:3us", "'link:3us': "},
        {"net:100gbit,", "'net:100gbit,': "},
        {"net:100gbit,2h", "'net:100gbit,2h': "},
        {"net:0gbit", "'net:0gbit': "},
        {"gpu:8xH101", "'gpu:8xH101': GPU \"H101\" is not in the catalogue, which has V100-32, "},
        {"gpu:8xa100", "'gpu:8xa100': GPU \"a100\" is one of A100-40, A100-80, A100-40-PCIe, "},
        {"gpu:RTX4090:4", "'gpu:RTX4090:4': expected N or NxGPU"},
        {"gpu:x8", "'gpu:x8': expected N or NxGPU"},
        {"gpu:8x", "'gpu:8x': GPU \"\" is not in the catalogue"},
        {"gpu:0xL4-24", "'gpu:0xL4-24': "},
        {"node:2 gpu:2 gpu:3", "'gpu:3': given twice"},
        {"eth:fast", "'eth:fast': "},
        {"ib:100gbit net:100gbit", "'net:' and 'ib:': only one of them"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct mics_topology *topology = NULL;
        struct mics_err err = {{0}};

        CHECK_INT(mics_topology_parse(table[i][0], &topology, &err), MICS_ERR_ARG);
        CHECK(topology == NULL);
        if (strncmp(err.text, table[i][1], strlen(table[i][1])) != 0)
            CHECK_STR(err.text, table[i][1]);
    }
}

static void a_word_of_any_length_is_safe(void)
{
    static const char *const keys[] = {"flops:", "link:", "net:1gbit,", "x"};
    char text[400];

    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        for (size_t length = 80; length < 120; length++) {
            struct mics_topology *topology = NULL;
            const size_t used = (size_t)snprintf(text, sizeof text, "node:1 %s", keys[k]);

            memset(text + used, '1', length);
            text[used + length] = '\0';
            CHECK_INT(mics_topology_parse(text, &topology, NULL), MICS_ERR_ARG);
        }
    }
}

static void words_and_documents_agree(void)
{
    struct mics_topology *made = NULL, *read = NULL;
    json_t *doc = NULL;

    CHECK_INT(mics_topology_parse("node:1024 gpu:8 net:3gbit,1ms", &made, NULL), MICS_OK);
    CHECK_INT(mics_topology_to_doc(made, &doc, NULL), MICS_OK);
    CHECK_INT(mics_topology_from_doc(doc, &read, NULL), MICS_OK);
    CHECK_STR(read->name, made->name);
    CHECK_INT(read->nodes, made->nodes);
    CHECK_NEAR(read->flops, made->flops, 0);
    CHECK_NEAR(read->net_link.bandwidth_bytes, made->net_link.bandwidth_bytes, 0);
    CHECK_NEAR(read->node_link.latency_s, made->node_link.latency_s, 0);
    mics_topology_free(made);
    mics_topology_free(read);
    json_decref(doc);
}

int main(void)
{
    TAP_RUN(a_document_becomes_a_topology);
    TAP_RUN(whether_onednn_multiplies_is_kept);
    TAP_RUN(unknown_keys_survive_everywhere);
    TAP_RUN(every_wrong_value_is_refused_with_its_path);
    TAP_RUN(an_unused_link_may_be_absent);
    TAP_RUN(words_describe_a_cluster);
    TAP_RUN(words_name_a_gpu_of_the_catalogue_and_a_kind_of_network);
    TAP_RUN(networks_differ_in_latency_and_part_reached);
    TAP_RUN(omitted_words_have_defaults);
    TAP_RUN(a_wrong_word_is_quoted);
    TAP_RUN(a_word_of_any_length_is_safe);
    TAP_RUN(words_and_documents_agree);
    return tap_done();
}
