/* SPDX-License-Identifier: Apache-2.0 */
/* test_slow_nodes.c - which ranks and links are reported, and which nodes are left out. */
#include "base/file.h"
#include "probe/slow_nodes.h"
#include "tap.h"
#include "topology/hostfile.h"

#include <stdlib.h>
#include <unistd.h>

enum { NODES = 5, PER_NODE = 2, RANKS = NODES * PER_NODE };

static char names[NODES][64] = {"a", "b", "c", "d", "e"};

static const struct mics_world world = {
    .size = RANKS,
    .node_count = NODES,
    .local_size = PER_NODE,
    .host_of_node = names,
};

static const char *text_of(const json_t *list, size_t index, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(list, index), key));

    return text ? text : "(none)";
}

/* The indices of the bad nodes as text: "1 4". */
static const char *bad_nodes(const struct mics_slow_nodes *nodes, char *text)
{
    json_t *list = NULL;

    text[0] = '\0';
    CHECK_INT(mics_slow_nodes_indices(nodes, &list, NULL), MICS_OK);
    for (size_t i = 0; i < json_array_size(list); i++)
        sprintf(text + strlen(text), "%s%d", i ? " " : "",
                (int)json_integer_value(json_array_get(list, i)));
    json_decref(list);
    return text;
}

static void only_what_is_slow_twice_is_reported(void)
{
    struct mics_slow_candidates candidates;
    uint32_t left = 0;

    CHECK_INT(mics_slow_candidates_init(&candidates, 5, NULL), MICS_OK);
    for (uint32_t i = 0; i < 5; i++)
        candidates.times[0][i] = candidates.times[1][i] = 1;
    candidates.times[0][1] = candidates.times[0][2] = 20;
    CHECK_INT(mics_slow_candidates_filter(&candidates, &left, NULL), MICS_OK);
    CHECK_INT(left, 2);
    candidates.times[0][1] = 1;  /* it was a disturbance */
    candidates.times[0][4] = 20; /* and so is this, the second time */
    CHECK_INT(mics_slow_candidates_filter(&candidates, &left, NULL), MICS_OK);
    CHECK_INT(left, 1);
    CHECK(candidates.slow[0][2] && !candidates.slow[0][1] && !candidates.slow[0][4]);
    mics_slow_candidates_fini(&candidates);
}

static void a_slow_rank_is_described_and_its_node_left_out(void)
{
    struct mics_slow_candidates candidates;
    struct mics_slow_nodes nodes;
    char text[64];
    uint32_t left;

    CHECK_INT(mics_slow_candidates_init(&candidates, RANKS, NULL), MICS_OK);
    CHECK_INT(mics_slow_nodes_init(&nodes, &world, NULL), MICS_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        candidates.times[0][i] = candidates.times[1][i] = 1e-9;
    candidates.times[0][7] = 8e-9;
    mics_slow_candidates_filter(&candidates, &left, NULL);
    CHECK_INT(mics_slow_nodes_add_ranks(&nodes, &candidates, NULL), MICS_OK);
    CHECK_INT(json_array_size(nodes.list), 1);
    CHECK_STR(text_of(nodes.list, 0, "what"), "flops");
    CHECK_STR(text_of(nodes.list, 0, "where"), "rank 7");
    CHECK_STR(text_of(nodes.list, 0, "host"), "d");
    const json_t *entry = json_array_get(nodes.list, 0);
    CHECK_NEAR(json_real_value(json_object_get(entry, "value")), 1.25e8, 1);
    CHECK_NEAR(json_real_value(json_object_get(entry, "median")), 1e9, 1);
    CHECK_NEAR(json_real_value(json_object_get(entry, "times_slower")), 8, 1e-9);
    CHECK_STR(bad_nodes(&nodes, text), "3");
    mics_slow_nodes_fini(&nodes);
    mics_slow_candidates_fini(&candidates);
}

/* One pair for each edge of the ring of nodes; those of `slow`, a NUL-terminated list of digits,
 * are slow. */
static void compare_edges(const char *slow, struct mics_slow_nodes *nodes)
{
    struct mics_pair pairs[NODES];
    struct mics_slow_candidates candidates;
    uint32_t left;

    CHECK_INT(mics_slow_candidates_init(&candidates, NODES, NULL), MICS_OK);
    CHECK_INT(mics_slow_nodes_init(nodes, &world, NULL), MICS_OK);
    for (uint32_t e = 0; e < NODES; e++) {
        pairs[e] = (struct mics_pair){.a = e * PER_NODE, .b = (e + 1) % NODES * PER_NODE};
        candidates.times[0][e] = 1e-5;
        candidates.times[1][e] = strchr(slow, (int)('0' + e)) ? 1e-1 : 1e-3;
    }
    mics_slow_candidates_filter(&candidates, &left, NULL);
    CHECK_INT(left, strlen(slow));
    CHECK_INT(mics_slow_nodes_add_pairs(nodes, MICS_LINK_NET, pairs, &candidates, NULL), MICS_OK);
    mics_slow_candidates_fini(&candidates);
}

static void two_slow_links_of_one_node_exclude_that_node(void)
{
    struct mics_slow_nodes nodes;
    char text[64];

    compare_edges("12", &nodes);
    CHECK_INT(json_array_size(nodes.list), 2);
    CHECK_STR(text_of(nodes.list, 0, "what"), "net_link");
    CHECK_STR(text_of(nodes.list, 0, "where"), "ranks 2 and 4");
    CHECK_STR(text_of(nodes.list, 0, "host"), "b c");
    CHECK_STR(bad_nodes(&nodes, text), "2");
    mics_slow_nodes_fini(&nodes);
    compare_edges("40", &nodes); /* around the end of the ring */
    CHECK_STR(bad_nodes(&nodes, text), "0");
    mics_slow_nodes_fini(&nodes);
}

static void of_the_ends_of_one_slow_link_the_one_with_the_slower_other_link_is_excluded(void)
{
    struct mics_slow_nodes nodes;
    char text[64];

    compare_edges("1", &nodes); /* from b to c */
    nodes.edge_times[0] = 1.2e-3;
    CHECK_STR(bad_nodes(&nodes, text), "1");
    nodes.edge_times[2] = 1.5e-3;
    CHECK_STR(bad_nodes(&nodes, text), "2");
    mics_slow_nodes_fini(&nodes);
}

static void one_slow_link_excludes_the_later_of_its_nodes(void)
{
    struct mics_slow_nodes nodes;
    char text[64];

    compare_edges("1", &nodes);
    CHECK_STR(bad_nodes(&nodes, text), "2");
    mics_slow_nodes_fini(&nodes);
    compare_edges("", &nodes);
    CHECK_INT(json_array_size(nodes.list), 0);
    CHECK_STR(bad_nodes(&nodes, text), "");
    mics_slow_nodes_fini(&nodes);
}

static void a_slow_link_inside_a_node_excludes_that_node(void)
{
    const struct mics_pair pairs[3] = {{0, 1, 0, 0}, {2, 3, 0, 0}, {4, 5, 0, 0}};
    struct mics_slow_candidates candidates;
    struct mics_slow_nodes nodes;
    char text[64];
    uint32_t left;

    CHECK_INT(mics_slow_candidates_init(&candidates, 3, NULL), MICS_OK);
    CHECK_INT(mics_slow_nodes_init(&nodes, &world, NULL), MICS_OK);
    for (uint32_t i = 0; i < 3; i++)
        candidates.times[0][i] = candidates.times[1][i] = i == 1 ? 1e-3 : 1e-5;
    mics_slow_candidates_filter(&candidates, &left, NULL);
    CHECK_INT(left, 2); /* of both sizes */
    CHECK_INT(mics_slow_nodes_add_pairs(&nodes, MICS_LINK_NODE, pairs, &candidates, NULL), MICS_OK);
    CHECK_INT(json_array_size(nodes.list), 1);
    CHECK_STR(text_of(nodes.list, 0, "what"), "node_link");
    CHECK_STR(text_of(nodes.list, 0, "host"), "b");
    CHECK_STR(bad_nodes(&nodes, text), "1");
    mics_slow_nodes_fini(&nodes);
    mics_slow_candidates_fini(&candidates);
}

static void a_hostfile_has_the_hosts_that_are_not_slow(void)
{
    json_t *doc = json_pack("{s:i, s:[s,s,s], s:[i]}", "per_node", 4, "hosts", "a", "b", "c#1",
                            "bad_nodes", 1);
    char path[] = "/tmp/mics-hostfile-XXXXXX", *text = NULL;
    struct mics_err err = {{0}};
    size_t size;

    close(mkstemp(path));
    CHECK_INT(mics_hostfile_write(path, doc, &err), MICS_OK);
    CHECK_INT(mics_file_read(path, 1000, &text, &size, &err), MICS_OK);
    CHECK_STR(text ? text : "", "a slots=4\nc slots=4\n");
    free(text);
    json_object_set_new(doc, "bad_nodes", json_pack("[i,i,i]", 0, 1, 2));
    CHECK_INT(mics_hostfile_write(path, doc, &err), MICS_ERR_INFEASIBLE);
    CHECK(strstr(err.text, "no host is without a fault") != NULL);
    unlink(path);
    json_decref(doc);
}

int main(void)
{
    TAP_RUN(only_what_is_slow_twice_is_reported);
    TAP_RUN(a_slow_rank_is_described_and_its_node_left_out);
    TAP_RUN(two_slow_links_of_one_node_exclude_that_node);
    TAP_RUN(of_the_ends_of_one_slow_link_the_one_with_the_slower_other_link_is_excluded);
    TAP_RUN(one_slow_link_excludes_the_later_of_its_nodes);
    TAP_RUN(a_slow_link_inside_a_node_excludes_that_node);
    TAP_RUN(a_hostfile_has_the_hosts_that_are_not_slow);
    return tap_done();
}
