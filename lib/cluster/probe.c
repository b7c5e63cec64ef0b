/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - the order of the measurements, and the document of what they found. */
#include "cluster/probe.h"
#include "cluster/collectives.h"
#include "cluster/links.h"
#include "cluster/outliers.h"
#include "cluster/probe_doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of the time: products and copies each, and each class of links; the collectives have the rest,
 * or this part where a loaded machine left less. */
static const double rates_part = 0.06, links_part = 0.12, collectives_part = 0.5;

/* A suspect is measured twice again, each time for twice as long: on a loaded machine others come and go. */
enum { ROUNDS = 3 };

/* What is measured, of which the document is made. */
struct probe {
    struct mics_bench bench;
    double seconds;
    struct mics_topology *topology;
    struct mics_outliers outliers;
    struct mics_measured *measured;
    uint32_t measured_count;
};

static double median_rate(const struct mics_rates *rates, uint32_t count, bool memory,
                          double *scratch)
{
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = memory ? rates[i].memory_rate : rates[i].flops;
    return mics_median(scratch, count);
}

/* suspects->times serves as scratch memory before it gets its values. */
static enum mics_status judge_rates(struct probe *probe, const struct mics_rates *rates,
                                    struct mics_suspects *suspects, uint32_t *left,
                                    struct mics_err *err)
{
    const uint32_t count = probe->bench.world->size;

    probe->topology->flops = median_rate(rates, count, false, suspects->times[0]);
    probe->topology->memory_bandwidth = median_rate(rates, count, true, suspects->times[1]);
    for (uint32_t i = 0; i < count; i++) {
        suspects->times[0][i] = 1 / rates[i].best_flops;
        suspects->times[1][i] = 1 / rates[i].best_memory_rate;
    }
    return mics_suspects_judge(suspects, left, err);
}

static enum mics_status probe_rates(struct probe *probe, struct mics_err *err)
{
    const uint32_t count = probe->bench.world->size;
    struct mics_rates *rates = calloc(count, sizeof *rates);
    struct mics_suspects suspects = {0};
    uint32_t left = 1;
    enum mics_status status =
        rates ? mics_suspects_init(&suspects, count, err) : mics_err_nomem(err);

    for (int round = 0; round < ROUNDS && left > 0 && status == MICS_OK; round++) {
        status =
            mics_bench_rates(&probe->bench, (1 << round) * rates_part * probe->seconds, rates, err);
        if (status == MICS_OK)
            status = judge_rates(probe, rates, &suspects, &left, err);
    }
    if (status == MICS_OK)
        status = mics_outliers_add_ranks(&probe->outliers, &suspects, err);
    mics_suspects_fini(&suspects);
    free(rates);
    return status;
}

static enum mics_status judge_links(const struct mics_links *links, struct mics_suspects *suspects,
                                    uint32_t *left, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (suspects->count == 0)
        status = mics_suspects_init(suspects, links->pair_count, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < links->pair_count; i++) {
        suspects->times[0][i] = links->pairs[i].small_s;
        suspects->times[1][i] = links->pairs[i].large_s;
    }
    return mics_suspects_judge(suspects, left, err);
}

static enum mics_status probe_links(struct probe *probe, enum mics_link_class class,
                                    struct mics_link *out, struct mics_err *err)
{
    struct mics_links links = {0};
    struct mics_suspects suspects = {0};
    uint32_t left = 1;
    enum mics_status status = MICS_OK;

    for (int round = 0; round < ROUNDS && left > 0 && status == MICS_OK; round++) {
        mics_links_fini(&links);
        status = mics_links_measure(&probe->bench, class,
                                    (1 << round) * links_part * probe->seconds, &links, err);
        if (status == MICS_OK)
            status = judge_links(&links, &suspects, &left, err);
    }
    if (status == MICS_OK)
        status = mics_outliers_add_pairs(&probe->outliers, class, links.pairs, &suspects, err);
    if (status == MICS_OK)
        *out = links.link;
    mics_suspects_fini(&suspects);
    mics_links_fini(&links);
    return status;
}

static enum mics_status probe_collectives(struct probe *probe, struct mics_err *err)
{
    const double left_s = fmax(probe->seconds - mics_bench_elapsed_s(&probe->bench),
                               collectives_part * probe->seconds);
    struct mics_topology *topology = probe->topology;
    const enum mics_status status = mics_collectives_measure(
        &probe->bench, left_s, &probe->measured, &probe->measured_count, err);

    if (status != MICS_OK)
        return status;
    topology->costs = calloc(probe->measured_count, sizeof *topology->costs);
    if (!topology->costs)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < probe->measured_count; i++)
        topology->costs[i] = probe->measured[i].cost;
    topology->cost_count = probe->measured_count;
    return MICS_OK;
}

static void name_topology(const struct probe *probe)
{
    const struct mics_world *world = probe->bench.world;
    struct mics_topology *topology = probe->topology;
    const char *host = world->host_of_node[0];
    const int length = (int)strcspn(host, "#"); /* a declared node's number follows */

    snprintf(topology->name, sizeof topology->name, "%.*s", length, host);
    snprintf(topology->source, sizeof topology->source, "measured");
    snprintf(topology->device, sizeof topology->device, "%s", probe->bench.device->name);
    snprintf(topology->flops_dtype, sizeof topology->flops_dtype, "f32");
    topology->nodes = world->node_count;
    topology->per_node = world->local_size;
    topology->memory_bytes = probe->bench.memory_bytes;
    topology->cores = probe->bench.threads;
}

static enum mics_status measure(struct probe *probe, struct mics_err *err)
{
    const struct mics_world *world = probe->bench.world;
    struct mics_topology *topology = probe->topology;
    enum mics_status status = probe_rates(probe, err);

    if (status == MICS_OK && world->local_size > 1)
        status = probe_links(probe, MICS_LINK_NODE, &topology->node_link, err);
    if (status == MICS_OK && world->node_count > 1)
        status = probe_links(probe, MICS_LINK_NET, &topology->net_link, err);
    if (status == MICS_OK && world->size > 1)
        status = probe_collectives(probe, err);
    return status;
}

static enum mics_status make_document(const struct probe *probe, json_t **out, struct mics_err *err)
{
    const struct mics_probe_parts parts = {
        .topology = probe->topology,
        .outliers = &probe->outliers,
        .measured = probe->measured,
        .measured_count = probe->measured_count,
    };
    json_t *doc = NULL;
    enum mics_status status = mics_probe_doc(&parts, &doc, err);

    if (status == MICS_OK && probe->bench.world->rank == 0)
        status = mics_probe_doc_add_machine(doc, err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

static void list_nodes(const struct mics_world *world, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < world->node_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %u", i ? ", " : "",
                                 world->host_of_node[i], world->ranks_of_node[i]);
}

static enum mics_status check_even(const struct mics_world *world, struct mics_err *err)
{
    char list[300];

    if (mics_world_is_even(world))
        return MICS_OK;
    list_nodes(world, list, sizeof list);
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "a plan needs the same number of ranks on every node, but they are %s",
                        list);
}

enum mics_status mics_probe_run(struct mics_world *world, double seconds, json_t **out,
                                struct mics_err *err)
{
    struct probe probe = {.seconds = seconds};
    enum mics_status status = check_even(world, err);

    if (status == MICS_OK)
        status = mics_bench_init(&probe.bench, world, err);
    if (status == MICS_OK)
        status = mics_outliers_init(&probe.outliers, world, err);
    if (status == MICS_OK && !(probe.topology = calloc(1, sizeof *probe.topology)))
        status = mics_err_nomem(err);
    if (status == MICS_OK) {
        name_topology(&probe);
        status = measure(&probe, err);
    }
    if (status == MICS_OK)
        status = make_document(&probe, out, err);
    free(probe.measured);
    mics_topology_free(probe.topology);
    mics_outliers_fini(&probe.outliers);
    mics_bench_fini(&probe.bench);
    return status;
}
