/* SPDX-License-Identifier: Apache-2.0 */
/* outliers.c - one entry for each finding. */
#include "probe/outliers.h"

#include <stdlib.h>
#include <string.h>

enum mics_status mics_outliers_init(struct mics_outliers *outliers, const struct mics_world *world,
                                    struct mics_err *err)
{
    *outliers = (struct mics_outliers){
        .world = world,
        .list = json_array(),
        .bad = calloc(world->node_count, sizeof *outliers->bad),
        .slow_edge = calloc(world->node_count, sizeof *outliers->slow_edge),
    };
    if (outliers->list && outliers->bad && outliers->slow_edge)
        return MICS_OK;
    mics_outliers_fini(outliers);
    return mics_err_nomem(err);
}

void mics_outliers_fini(struct mics_outliers *outliers)
{
    json_decref(outliers->list);
    free(outliers->bad);
    free(outliers->slow_edge);
    *outliers = (struct mics_outliers){0};
}

static uint32_t node_of(const struct mics_outliers *outliers, uint32_t rank)
{
    return rank / outliers->world->local_size;
}

/* One finding; `value` and `median` are in the unit of what it is about. */
struct finding {
    const char *what;
    double value, median, times_slower;
};

static enum mics_status append(struct mics_outliers *outliers, const struct finding *finding,
                               json_t *where, json_t *host, struct mics_err *err)
{
    json_t *entry = json_object();
    bool failed = json_object_set_new(entry, "what", json_string(finding->what)) != 0;

    failed |= json_object_set_new(entry, "where", where) != 0;
    failed |= json_object_set_new(entry, "host", host) != 0;
    failed |= json_object_set_new(entry, "value", json_real(finding->value)) != 0;
    failed |= json_object_set_new(entry, "median", json_real(finding->median)) != 0;
    failed |= json_object_set_new(entry, "times_slower", json_real(finding->times_slower)) != 0;
    failed |= json_array_append_new(outliers->list, entry) != 0;
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_outliers_add_ranks(struct mics_outliers *outliers,
                                         const struct mics_suspects *suspects, struct mics_err *err)
{
    static const char *const what[MICS_SUSPECT_KINDS] = {"flops", "memory_bandwidth"};
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < suspects->count * MICS_SUSPECT_KINDS && status == MICS_OK; i++) {
        const uint32_t kind = i / suspects->count, rank = i % suspects->count;
        const double time = suspects->times[kind][rank], median = suspects->classes[kind].median;
        const uint32_t node = node_of(outliers, rank);

        if (!suspects->slow[kind][rank])
            continue;
        outliers->bad[node] = true;
        status = append(
            outliers, &(struct finding){what[kind], 1 / time, 1 / median, time / median},
            json_sprintf("rank %u", rank), json_string(outliers->world->host_of_node[node]), err);
    }
    return status;
}

/* Two nodes' names, or the one that both ranks are on. */
static json_t *hosts_of(const struct mics_outliers *outliers, uint32_t a, uint32_t b)
{
    const char *first = outliers->world->host_of_node[a];

    return a == b ? json_string(first)
                  : json_sprintf("%s %s", first, outliers->world->host_of_node[b]);
}

enum mics_status mics_outliers_add_pairs(struct mics_outliers *outliers, enum mics_link_class class,
                                         const struct mics_pair *pairs,
                                         const struct mics_suspects *suspects, struct mics_err *err)
{
    const char *what = class == MICS_LINK_NODE ? "node_link" : "net_link";
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < suspects->count && status == MICS_OK; i++) {
        const int kind = suspects->slow[1][i]; /* the long message tells more */
        const uint32_t a = node_of(outliers, pairs[i].a), b = node_of(outliers, pairs[i].b);
        const double time = suspects->times[kind][i], median = suspects->classes[kind].median;

        if (!suspects->slow[kind][i])
            continue;
        if (a == b)
            outliers->bad[a] = true;
        else
            outliers->slow_edge[a] = true;
        status = append(outliers, &(struct finding){what, time, median, time / median},
                        json_sprintf("ranks %u and %u", pairs[i].a, pairs[i].b),
                        hosts_of(outliers, a, b), err);
    }
    return status;
}

/* Slow edges of the ring of nodes that end at this node. */
static int slow_edges_at(const struct mics_outliers *outliers, uint32_t node)
{
    const uint32_t count = outliers->world->node_count;

    return outliers->slow_edge[node] + outliers->slow_edge[(node + count - 1) % count];
}

static void blame_an_end(const struct mics_outliers *outliers, uint32_t edge, bool *bad)
{
    const uint32_t a = edge, b = (edge + 1) % outliers->world->node_count;
    const int at_a = slow_edges_at(outliers, a), at_b = slow_edges_at(outliers, b);

    if (at_a != at_b)
        bad[at_a > at_b ? a : b] = true;
    else
        bad[a > b ? a : b] = true;
}

static json_t *list_bad(const bool *bad, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        if (bad[i] && json_array_append_new(list, json_integer(i)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

enum mics_status mics_outliers_bad_nodes(const struct mics_outliers *outliers, json_t **out,
                                         struct mics_err *err)
{
    const uint32_t count = outliers->world->node_count;
    bool *bad = calloc(count, sizeof *bad);

    if (!bad)
        return mics_err_nomem(err);
    memcpy(bad, outliers->bad, count * sizeof *bad);
    for (uint32_t i = 0; i < count; i++)
        if (outliers->slow_edge[i])
            blame_an_end(outliers, i, bad);
    *out = list_bad(bad, count);
    free(bad);
    return *out ? MICS_OK : mics_err_nomem(err);
}
