/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_rates.c - how collectives and other rates of a check are judged. */
#include "probe/check.h"
#include "probe/check_collectives.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

enum { NODES = 16 };

/* Rates of 100 with noise of up to 5 %. */
static void fill(double *rates, uint32_t *seed)
{
    for (int i = 0; i < MICS_CHECK_OPS * NODES; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        rates[i] = 100 * (1 - 0.05 * (*seed >> 8) / (1 << 24));
    }
}

static void a_node_is_slow_if_two_collectives_are(void)
{
    double rates[MICS_CHECK_OPS * NODES], scratch[NODES];
    struct mics_class classes[MICS_CHECK_OPS];
    unsigned char slow[NODES];
    uint32_t seed = 1;

    for (int run = 0; run < 40; run++) {
        fill(rates, &seed);
        CHECK(!mics_check_slow_nodes(rates, NODES, false, scratch, classes, slow));
        const int node = run % NODES;
        rates[node] *= 0.4; /* only one */
        CHECK(!mics_check_slow_nodes(rates, NODES, false, scratch, classes, slow));
        rates[2 * NODES + node] *= 0.4;
        CHECK(mics_check_slow_nodes(rates, NODES, false, scratch, classes, slow));
        for (int i = 0; i < NODES; i++)
            CHECK_INT(slow[i], i == node ? 5 : 0);
    }
}

static json_t *parse(const char *text)
{
    json_t *doc = json_loads(text, 0, NULL);

    CHECK(doc != NULL);
    return doc;
}

static const char *text_of(const json_t *list, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(list, i), key));
}

static void collectives_far_below_the_links_are_a_notice(void)
{
    json_t *bench = parse("{\"rows\": ["
                          "{\"op\": \"all_gather\", \"group\": \"world\", \"bytes\": 4096,"
                          " \"busbw_bytes_per_s\": 1e6},"
                          "{\"op\": \"all_gather\", \"group\": \"world\", \"bytes\": 1048576,"
                          " \"busbw_bytes_per_s\": 4e8},"
                          "{\"op\": \"all_reduce\", \"group\": \"world\", \"bytes\": 1048576,"
                          " \"busbw_bytes_per_s\": 2e8},"
                          "{\"op\": \"all_reduce\", \"group\": \"node\", \"bytes\": 1048576,"
                          " \"busbw_bytes_per_s\": 1e6}]}");
    json_t *links = parse("{\"reference_bytes_per_s\": 1e9}"), *list = json_array();
    struct mics_findings findings = {.list = list};

    mics_check_compare_with_links(&findings, bench, links);
    CHECK_INT(json_array_size(list), 1);
    CHECK_STR(text_of(list, 0, "what"), "collectives_low");
    CHECK_STR(text_of(list, 0, "level"), "notice");
    CHECK_STR(text_of(list, 0, "where"), "all_reduce of 1 MiB over all ranks");
    json_decref(list);
    json_decref(links);
    json_decref(bench);
}

/* A node of one GPU. */
static json_t *checked(double from_host)
{
    char text[1024];

    snprintf(text, sizeof text,
             "{\"kind\": \"mics.check\", \"v\": 1, \"verdict\": \"good\", \"device\": \"cuda\","
             " \"hosts\": [\"n0\"], \"nodes\": [{\"host\": \"n0\", \"ranks\": 1, \"facts\": {},"
             " \"rates\": [{\"flops_per_s\": 1e12, \"memory_bytes_per_s\": 1e12,"
             " \"from_host_bytes_per_s\": %g, \"to_host_bytes_per_s\": 2e10}]}],"
             " \"findings\": []}",
             from_host);
    return parse(text);
}

static void copies_of_gpus_are_compared_with_a_baseline(void)
{
    json_t *now = checked(1e10), *before = checked(2e10);
    const json_t *list = json_object_get(now, "findings");
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK_INT(mics_check_compare(now, before, NULL), MICS_OK);
    CHECK_INT(json_array_size(list), 1);
    CHECK_STR(text_of(list, 0, "what"), "slower");
    CHECK_STR(text_of(list, 0, "where"), "copies from the host of local rank 0");
    CHECK_STR(text_of(list, 0, "slows"), "copies");
    CHECK_STR(json_string_value(json_object_get(now, "verdict")), "bad");
    CHECK_INT(mics_check_print(out, now, 0, NULL), MICS_OK);
    fclose(out);
    const char *from = strstr(text, "\ncopies from the host "), *to = strstr(text, "\ncopies to ");
    CHECK(from && to && strstr(from, "low\n") < to);
    CHECK(to && strncmp(strchr(to + 1, '\n') - 10, "not judged", 10) == 0);
    free(text);
    json_decref(now);
    json_decref(before);
}

/* Two nodes of these memory rates, and the faults of one of them. */
static json_t *with_memory(double first, double second, double cores, const char *findings)
{
    char text[1024];

    snprintf(text, sizeof text,
             "{\"kind\": \"mics.check\", \"v\": 1, \"verdict\": \"good\", \"device\": \"host\","
             " \"hosts\": [\"n0\", \"n1\"], \"nodes\": [{\"host\": \"n0\", \"ranks\": 1,"
             " \"facts\": {\"cores\": 8}, \"rates\": [{\"memory_bytes_per_s\": %g}]},"
             " {\"host\": \"n1\", \"ranks\": 1, \"facts\": {\"cores\": %g},"
             " \"rates\": [{\"memory_bytes_per_s\": %g}]}], \"findings\": [%s]}",
             first, cores, second, findings);
    return parse(text);
}

static void a_rate_that_nodes_like_it_had_is_not_slower(void)
{
    static const char fault[] = "{\"level\": \"fault\", \"what\": \"memory_rate\","
                                " \"host\": \"n1\", \"found\": \"4\", \"expected\": \"10\"}";
    const struct {
        double before[2], now, cores; /* of n0 and n1; of n0; of n1 */
        const char *findings;
        size_t slower;
    } table[] = {
        {{10e9, 4e9}, 6e9, 8, "", 0}, /* n1 had less, and was good */
        {{10e9, 4e9}, 3e9, 8, "", 1},  {{10e9, 4e9}, 6e9, 8, fault, 1},
        {{10e9, 4e9}, 6e9, 16, "", 1}, /* n1 is another machine */
        {{10e9, 9e9}, 7e9, 8, "", 1},  {{10e9, 9e9}, 8.5e9, 8, "", 0},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *now = with_memory(table[i].now, table[i].before[1], table[i].cores, "");
        json_t *before =
            with_memory(table[i].before[0], table[i].before[1], table[i].cores, table[i].findings);

        CHECK_INT(mics_check_compare(now, before, NULL), MICS_OK);
        CHECK_INT(json_array_size(json_object_get(now, "findings")), table[i].slower);
        json_decref(now);
        json_decref(before);
    }
}

/* The table of two checks compares them; what the later one found against its baseline is not said
 * a second time. */
static void changes_since_a_check_are_said_once(void)
{
    json_t *now = checked(1e10), *before = checked(2e10);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK_INT(mics_check_compare(now, before, NULL), MICS_OK);
    CHECK_INT(mics_check_print_changes(out, before, now, 0, NULL), MICS_OK);
    fclose(out);
    const char *first = strstr(text, "copies from the host of local rank 0");
    CHECK(first && !strstr(first + 1, "copies from the host of local rank 0"));
    CHECK(strstr(text, "worse"));
    free(text);
    json_decref(now);
    json_decref(before);
}

/* Two nodes of which packets are lost, or with "" none; with rates between them, or without. */
static json_t *with_loss(const char *finding, bool links)
{
    char text[1024];

    snprintf(text, sizeof text,
             "{\"kind\": \"mics.check\", \"v\": 1, \"verdict\": \"bad\", \"device\": \"host\","
             " \"hosts\": [\"n0\", \"n1\"], \"nodes\": [{\"host\": \"n0\", \"ranks\": 1, \"facts\":"
             " {}}, {\"host\": \"n1\", \"ranks\": 1, \"facts\": {}}]%s, \"findings\": [%s]}",
             links ? ", \"links\": {\"reference_bytes_per_s\": 1e9, \"send\": [1e9, 1e9],"
                     " \"receive\": [1e9, 1e9], \"pairs\": [[0, 1, 1e9], [1, 0, 1e9]]}"
                   : "",
             finding);
    return parse(text);
}

/* Does the table, or the graph where `now` is NULL, have the word? Takes both. */
static bool shows(json_t *before, json_t *now, const char *word)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK_INT(now ? mics_check_print_changes(out, before, now, 1, NULL)
                  : mics_check_dot(out, before, NULL),
              MICS_OK);
    fclose(out);
    const bool has = strstr(text, word) != NULL;
    free(text);
    json_decref(before);
    json_decref(now);
    return has;
}

static void lost_packets_are_gone_only_where_links_are_measured(void)
{
    static const char sends[] = "{\"what\": \"packet_loss\", \"level\": \"fault\", \"node\": 1,"
                                " \"host\": \"n1\", \"where\": \"sending\", \"found\": \"1 %\"}",
                      both[] = "{\"what\": \"packet_loss\", \"level\": \"fault\", \"node\": 1,"
                               " \"host\": \"n1\", \"where\": \"sending and receiving\","
                               " \"found\": \"1 %\"}";

    CHECK(shows(with_loss(sends, true), with_loss("", true), "gone"));
    CHECK(!shows(with_loss(sends, true), with_loss("", false), "gone"));
    CHECK(!shows(with_loss(sends, true), with_loss(both, true), "gone"));
    CHECK(!shows(with_loss(sends, true), with_loss(both, true), "new"));
}

static void only_slow_pairs_are_drawn_as_slow(void)
{
    static const char loss[] = "{\"what\": \"packet_loss\", \"level\": \"fault\","
                               " \"where\": \"from n0 to n1\", \"found\": \"1 %\"}",
                      slow[] = "{\"what\": \"slow_link\", \"level\": \"fault\","
                               " \"where\": \"from n0 to n1\", \"found\": \"1 MB/s\"}";

    CHECK(shows(with_loss(slow, true), NULL, "penwidth=2, label"));
    CHECK(!shows(with_loss(loss, true), NULL, "penwidth=2, label"));
}

/* The status of a comparison of one rank's GPU with a topology's, and what was found. */
static enum mics_status expect_of(const char *gpu, const char *model, size_t *found)
{
    struct mics_topology topology = {
        .flops = 1e15, .flops_dtype = "bf16", .memory_bandwidth = 3e12, .nodes = 1};
    json_t *doc = json_pack("{s:s, s:s, s:[], s:[{s:{s:[{s:s}]}, s:[{s:f, s:f}]}]}", "device",
                            "cuda", "flops_dtype", "bf16", "findings", "nodes", "facts", "gpus",
                            "name", gpu, "rates", "flops_per_s", 2e14, "memory_bytes_per_s", 1e12);
    enum mics_status status;

    CHECK(doc != NULL);
    snprintf(topology.device, sizeof topology.device, "%s", model);
    status = mics_check_expect(doc, &topology, "it", NULL);
    *found = json_array_size(json_object_get(doc, "findings"));
    json_decref(doc);
    return status;
}

static void gpus_are_compared_with_a_topology_of_the_same_model_only(void)
{
    size_t found;

    CHECK_INT(expect_of("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB", &found), MICS_OK);
    CHECK_INT(found, 2);
    CHECK_INT(expect_of("NVIDIA H100 80GB HBM3", "described", &found), MICS_OK);
    CHECK_INT(found, 2);
    CHECK_INT(expect_of("NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB", &found), MICS_ERR_FORMAT);
    CHECK_INT(found, 0);
    CHECK_INT(expect_of("NVIDIA A100-SXM4-40GB", "host", &found), MICS_ERR_FORMAT);
    CHECK_INT(found, 0);
}

int main(void)
{
    TAP_RUN(a_node_is_slow_if_two_collectives_are);
    TAP_RUN(collectives_far_below_the_links_are_a_notice);
    TAP_RUN(copies_of_gpus_are_compared_with_a_baseline);
    TAP_RUN(a_rate_that_nodes_like_it_had_is_not_slower);
    TAP_RUN(changes_since_a_check_are_said_once);
    TAP_RUN(lost_packets_are_gone_only_where_links_are_measured);
    TAP_RUN(only_slow_pairs_are_drawn_as_slow);
    TAP_RUN(gpus_are_compared_with_a_topology_of_the_same_model_only);
    return tap_done();
}
