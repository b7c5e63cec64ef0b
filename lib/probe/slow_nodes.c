/* SPDX-License-Identifier: Apache-2.0 */
/* slow_nodes.c - measure, compare, and measure again while something is slow; then list it. */
#include "probe/slow_nodes.h"

#include <stdlib.h>
#include <string.h>

enum mics_status mics_slow_nodes_init(struct mics_slow_nodes *nodes, const struct mics_world *world,
                                      struct mics_err *err)
{
    *nodes = (struct mics_slow_nodes){
        .world = world,
        .list = json_array(),
        .slow = calloc(world->node_count, sizeof *nodes->slow),
        .slow_edge = calloc(world->node_count, sizeof *nodes->slow_edge),
        .edge_times = calloc(world->node_count, sizeof *nodes->edge_times),
    };
    if (nodes->list && nodes->slow && nodes->slow_edge && nodes->edge_times)
        return MICS_OK;
    mics_slow_nodes_fini(nodes);
    return mics_err_nomem(err);
}

void mics_slow_nodes_fini(struct mics_slow_nodes *nodes)
{
    json_decref(nodes->list);
    free(nodes->slow);
    free(nodes->slow_edge);
    free(nodes->edge_times);
    *nodes = (struct mics_slow_nodes){0};
}

static uint32_t node_of(const struct mics_slow_nodes *nodes, uint32_t rank)
{
    return rank / nodes->world->local_size;
}

/* An entry of the list; `value` and `median` are in the unit of `what`. */
struct entry {
    const char *what;
    double value, median, times_slower;
};

static enum mics_status append(struct mics_slow_nodes *nodes, const struct entry *values,
                               json_t *where, json_t *host, struct mics_err *err)
{
    json_t *entry = json_object();
    bool failed = json_object_set_new(entry, "what", json_string(values->what)) != 0;

    failed |= json_object_set_new(entry, "where", where) != 0;
    failed |= json_object_set_new(entry, "host", host) != 0;
    failed |= json_object_set_new(entry, "value", json_real(values->value)) != 0;
    failed |= json_object_set_new(entry, "median", json_real(values->median)) != 0;
    failed |= json_object_set_new(entry, "times_slower", json_real(values->times_slower)) != 0;
    failed |= json_array_append_new(nodes->list, entry) != 0;
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_slow_nodes_add_ranks(struct mics_slow_nodes *nodes,
                                           const struct mics_slow_candidates *candidates,
                                           struct mics_err *err)
{
    static const char *const what[MICS_SLOW_METRICS] = {"flops", "memory_bandwidth"};
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < candidates->count * MICS_SLOW_METRICS && status == MICS_OK; i++) {
        const uint32_t kind = i / candidates->count, rank = i % candidates->count;
        const double time = candidates->times[kind][rank],
                     median = candidates->classes[kind].median;
        const uint32_t node = node_of(nodes, rank);

        if (!candidates->slow[kind][rank])
            continue;
        nodes->slow[node] = true;
        status = append(nodes, &(struct entry){what[kind], 1 / time, 1 / median, time / median},
                        json_sprintf("rank %u", rank),
                        json_string(nodes->world->host_of_node[node]), err);
    }
    return status;
}

/* Two nodes' names, or the one that both ranks are on. */
static json_t *pair_hosts(const struct mics_slow_nodes *nodes, uint32_t a, uint32_t b)
{
    const char *first = nodes->world->host_of_node[a];

    return a == b ? json_string(first)
                  : json_sprintf("%s %s", first, nodes->world->host_of_node[b]);
}

enum mics_status mics_slow_nodes_add_pairs(struct mics_slow_nodes *nodes,
                                           enum mics_link_class class,
                                           const struct mics_pair *pairs,
                                           const struct mics_slow_candidates *candidates,
                                           struct mics_err *err)
{
    const char *what = class == MICS_LINK_NODE ? "node_link" : "net_link";
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < candidates->count && status == MICS_OK; i++) {
        const int kind = candidates->slow[1][i]; /* prefer the long message */
        const uint32_t a = node_of(nodes, pairs[i].a), b = node_of(nodes, pairs[i].b);
        const double time = candidates->times[kind][i], median = candidates->classes[kind].median;

        if (a != b)
            nodes->edge_times[a] = candidates->times[1][i];
        if (!candidates->slow[kind][i])
            continue;
        if (a == b)
            nodes->slow[a] = true;
        else
            nodes->slow_edge[a] = true;
        status = append(nodes, &(struct entry){what, time, median, time / median},
                        json_sprintf("ranks %u and %u", pairs[i].a, pairs[i].b),
                        pair_hosts(nodes, a, b), err);
    }
    return status;
}

/* Slow edges of the ring of nodes that end at this node. */
static int slow_edges_at(const struct mics_slow_nodes *nodes, uint32_t node)
{
    const uint32_t count = nodes->world->node_count;

    return nodes->slow_edge[node] + nodes->slow_edge[(node + count - 1) % count];
}

/* Mark the end of a slow edge that has more slow edges. On a busy machine one of the two links of a
 * slow node may be fast for a moment; it is still slower than the other link of its neighbour. */
static void mark_edge_end(const struct mics_slow_nodes *nodes, uint32_t edge, bool *slow)
{
    const uint32_t count = nodes->world->node_count, a = edge, b = (edge + 1) % count;
    const int at_a = slow_edges_at(nodes, a), at_b = slow_edges_at(nodes, b);
    const double before_a = nodes->edge_times[(a + count - 1) % count],
                 after_b = nodes->edge_times[b];

    if (at_a != at_b)
        slow[at_a > at_b ? a : b] = true;
    else if (before_a != after_b)
        slow[before_a > after_b ? a : b] = true;
    else
        slow[a > b ? a : b] = true;
}

static json_t *list_indices(const bool *set, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        if (set[i] && json_array_append_new(list, json_integer(i)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

enum mics_status mics_slow_nodes_indices(const struct mics_slow_nodes *nodes, json_t **out,
                                         struct mics_err *err)
{
    const uint32_t count = nodes->world->node_count;
    bool *slow = calloc(count, sizeof *slow);

    if (!slow)
        return mics_err_nomem(err);
    memcpy(slow, nodes->slow, count * sizeof *slow);
    for (uint32_t i = 0; i < count; i++)
        if (nodes->slow_edge[i])
            mark_edge_end(nodes, i, slow);
    *out = list_indices(slow, count);
    free(slow);
    return *out ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_slow_candidates_init(struct mics_slow_candidates *candidates, uint32_t count,
                                           struct mics_err *err)
{
    *candidates = (struct mics_slow_candidates){.count = count};
    for (int k = 0; k < MICS_SLOW_METRICS; k++) {
        candidates->times[k] = calloc(count, sizeof *candidates->times[k]);
        candidates->slow[k] = malloc(count * sizeof *candidates->slow[k]);
        if (!candidates->times[k] || !candidates->slow[k]) {
            mics_slow_candidates_fini(candidates);
            return mics_err_nomem(err);
        }
        memset(candidates->slow[k], true, count * sizeof *candidates->slow[k]);
    }
    return MICS_OK;
}

void mics_slow_candidates_fini(struct mics_slow_candidates *candidates)
{
    for (int k = 0; k < MICS_SLOW_METRICS; k++) {
        free(candidates->times[k]);
        free(candidates->slow[k]);
    }
    *candidates = (struct mics_slow_candidates){0};
}

enum mics_status mics_slow_candidates_filter(struct mics_slow_candidates *candidates,
                                             uint32_t *left, struct mics_err *err)
{
    double *scratch = malloc(candidates->count * sizeof *scratch);

    if (!scratch)
        return mics_err_nomem(err);
    *left = 0;
    for (int k = 0; k < MICS_SLOW_METRICS; k++) {
        candidates->classes[k] = mics_class_of(candidates->times[k], candidates->count, scratch);
        for (uint32_t i = 0; i < candidates->count; i++) {
            if (!mics_class_is_slow(&candidates->classes[k], candidates->times[k][i]))
                candidates->slow[k][i] = false;
            *left += candidates->slow[k][i];
        }
    }
    free(scratch);
    return MICS_OK;
}

enum { ROUNDS = 3 };

static double median_rate(const struct mics_rates *rates, uint32_t count, bool memory,
                          double *scratch)
{
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = memory ? rates[i].memory_rate : rates[i].flops;
    return mics_median(scratch, count);
}

static enum mics_status compare_rates(const struct mics_rates *rates,
                                      struct mics_slow_candidates *candidates, uint32_t *left,
                                      struct mics_err *err)
{
    for (uint32_t i = 0; i < candidates->count; i++) {
        candidates->times[0][i] = 1 / rates[i].best_flops;
        candidates->times[1][i] = 1 / rates[i].best_memory_rate;
    }
    return mics_slow_candidates_filter(candidates, left, err);
}

/* candidates->times serves as scratch memory before it gets its values. */
enum mics_status mics_slow_nodes_measure_ranks(struct mics_slow_nodes *nodes,
                                               const struct mics_bench *bench, double seconds,
                                               double *flops, double *memory_rate,
                                               struct mics_err *err)
{
    const uint32_t count = bench->world->size;
    struct mics_rates *rates = calloc(count, sizeof *rates);
    struct mics_slow_candidates candidates = {0};
    uint32_t left = 1;
    enum mics_status status =
        rates ? mics_slow_candidates_init(&candidates, count, err) : mics_err_nomem(err);

    for (int round = 0; round < ROUNDS && left > 0 && status == MICS_OK; round++) {
        status = mics_bench_rates(bench, (1 << round) * seconds, rates, err);
        if (status != MICS_OK)
            break;
        nodes->own = rates[bench->world->rank];
        *flops = median_rate(rates, count, false, candidates.times[0]);
        *memory_rate = median_rate(rates, count, true, candidates.times[1]);
        status = compare_rates(rates, &candidates, &left, err);
    }
    if (status == MICS_OK)
        status = mics_slow_nodes_add_ranks(nodes, &candidates, err);
    mics_slow_candidates_fini(&candidates);
    free(rates);
    return status;
}

static enum mics_status compare_links(const struct mics_links *links,
                                      struct mics_slow_candidates *candidates, uint32_t *left,
                                      struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (candidates->count == 0)
        status = mics_slow_candidates_init(candidates, links->pair_count, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < links->pair_count; i++) {
        candidates->times[0][i] = links->pairs[i].small_s;
        candidates->times[1][i] = links->pairs[i].large_s;
    }
    return mics_slow_candidates_filter(candidates, left, err);
}

enum mics_status mics_slow_nodes_measure_links(struct mics_slow_nodes *nodes,
                                               const struct mics_bench *bench,
                                               enum mics_link_class class, double seconds,
                                               struct mics_link *link, struct mics_err *err)
{
    struct mics_links links = {0};
    struct mics_slow_candidates candidates = {0};
    uint32_t left = 1;
    enum mics_status status = MICS_OK;

    for (int round = 0; round < ROUNDS && left > 0 && status == MICS_OK; round++) {
        mics_links_fini(&links);
        status = mics_links_measure(bench, class, (1 << round) * seconds, &links, err);
        if (status == MICS_OK)
            status = compare_links(&links, &candidates, &left, err);
    }
    if (status == MICS_OK)
        status = mics_slow_nodes_add_pairs(nodes, class, links.pairs, &candidates, err);
    if (status == MICS_OK)
        *link = links.link;
    mics_slow_candidates_fini(&candidates);
    mics_links_fini(&links);
    return status;
}

enum mics_status mics_slow_nodes_measure(struct mics_slow_nodes *nodes,
                                         const struct mics_bench *bench, double seconds,
                                         struct mics_err *err)
{
    const struct mics_world *world = bench->world;
    struct mics_link link;
    double flops, rate;
    enum mics_status status =
        mics_slow_nodes_measure_ranks(nodes, bench, seconds / 8, &flops, &rate, err);

    if (status == MICS_OK && world->local_size > 1)
        status =
            mics_slow_nodes_measure_links(nodes, bench, MICS_LINK_NODE, seconds / 3, &link, err);
    if (status == MICS_OK && world->node_count > 1)
        status =
            mics_slow_nodes_measure_links(nodes, bench, MICS_LINK_NET, seconds / 3, &link, err);
    return status;
}
