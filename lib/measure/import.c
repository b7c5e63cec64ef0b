/* SPDX-License-Identifier: Apache-2.0 */
/* import.c - logs of nccl-tests to a document, and to the costs of a topology. */
#include "measure/import.h"

#include "base/file.h"
#include "measure/measure_doc.h"
#include "measure/nccl_log.h"
#include "measure/statistics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LOG_BYTES ((size_t)64 << 20)

enum { MAX_ROWS = 20000 };

/* What is imported so far. */
struct import {
    const struct mics_topology *topology; /* or NULL */
    struct mics_bench_result rows;
    struct mics_nccl_run largest; /* without rows; owns its hosts */
    json_t *runs;                 /* what each run was: see man/mics-documents.5 */
};

static void import_fini(struct import *import)
{
    mics_bench_result_fini(&import->rows);
    free(import->largest.hosts);
    json_decref(import->runs);
}

static enum mics_status check_shape(const struct import *import, const char *name,
                                    const struct mics_nccl_run *run, struct mics_err *err)
{
    const struct mics_topology *topology = import->topology;

    if (!topology || run->result.count == 0 ||
        (run->nodes <= topology->nodes && run->per_node <= topology->per_node))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "%s: ran on %u x %u ranks, but the topology has %u x %u", name, run->nodes,
                        run->per_node, topology->nodes, topology->per_node);
}

static bool note_run(struct import *import, const char *name, const struct mics_nccl_run *run)
{
    json_t *entry = json_pack("{s:s, s:i, s:i, s:i, s:I, s:I}", "file", name, "nodes", run->nodes,
                              "per_node", run->per_node, "groups", run->groups, "rows",
                              (json_int_t)run->result.count, "left_out", (json_int_t)run->left_out);
    bool failed = !entry;

    if (entry && run->program[0])
        failed |= json_object_set_new(entry, "program", json_string(run->program)) != 0;
    if (entry && run->device[0])
        failed |= json_object_set_new(entry, "device", json_string(run->device)) != 0;
    if (entry && run->network[0])
        failed |= json_object_set_new(entry, "network", json_string(run->network)) != 0;
    if (entry && (run->shared_memory || run->has_p2p))
        failed |= json_object_set_new(entry, "shared_memory",
                                      json_boolean(run->shared_memory && !run->has_p2p)) != 0;
    return json_array_append_new(import->runs, entry) == 0 && !failed;
}

/* Keep the run that has the most ranks: the document describes its job. */
static void keep_largest(struct import *import, struct mics_nccl_run *run)
{
    struct mics_nccl_run *largest = &import->largest;
    char(*hosts)[64] = largest->hosts;

    if (run->job_nodes * run->job_per_node <= largest->job_nodes * largest->job_per_node)
        return;
    *largest = *run;
    largest->result = (struct mics_bench_result){0};
    run->hosts = hosts;
}

static enum mics_status take_run(struct import *import, const char *name, struct mics_nccl_run *run,
                                 struct mics_err *err)
{
    enum mics_status status = check_shape(import, name, run, err);

    if (status != MICS_OK)
        return status;
    if (!note_run(import, name, run))
        return mics_err_nomem(err);
    if (import->rows.count + run->result.count > MAX_ROWS)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: more than %d rows", name, MAX_ROWS);
    for (size_t i = 0; i < run->result.count; i++) {
        struct mics_bench_row *row = mics_bench_result_add(&import->rows);

        if (!row)
            return mics_err_nomem(err);
        *row = run->result.rows[i];
    }
    if (run->result.count > 0)
        keep_largest(import, run);
    return MICS_OK;
}

static enum mics_status take_file(struct import *import, const char *path, unsigned ops,
                                  struct mics_err *err)
{
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    struct mics_nccl_hints hints = {.ops = ops};
    struct mics_nccl_log log;
    char *text = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read(path, MAX_LOG_BYTES, &text, &size, err);

    if (status != MICS_OK)
        return status;
    if (import->topology) {
        hints.nodes = import->topology->nodes;
        hints.per_node = import->topology->per_node;
    }
    status = mics_nccl_log_parse(name, text, size, &hints, &log, err);
    free(text);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < log.count && status == MICS_OK; i++)
        status = take_run(import, name, &log.runs[i], err);
    mics_nccl_log_fini(&log);
    return status;
}

/* The names that mics-bench has for groups of these shapes. */
static void name_groups(struct import *import, uint32_t nodes, uint32_t per_node)
{
    for (size_t i = 0; i < import->rows.count; i++) {
        struct mics_bench_row *row = &import->rows.rows[i];

        if (row->nodes == nodes && row->per_node == per_node)
            row->group = MICS_BENCH_WORLD;
        else if (row->nodes == 1 && row->per_node == per_node)
            row->group = MICS_BENCH_NODE;
        else if (row->nodes == nodes && row->per_node == 1)
            row->group = MICS_BENCH_NETWORK;
        else
            row->group = MICS_BENCH_PARTITION;
    }
}

/* As mics-bench writes them; runs of the same case by their times. */
static int by_case(const void *a, const void *b)
{
    const struct mics_bench_row *x = a, *y = b;
    const uint64_t keys[][2] = {
        {x->group, y->group},      {x->nodes, y->nodes}, {x->per_node, y->per_node},
        {x->groups, y->groups},    {x->op, y->op},       {x->bytes, y->bytes},
        {x->in_place, y->in_place}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return x->time_s < y->time_s ? -1 : x->time_s > y->time_s;
}

/* Times of one collective on groups of one shape, by increasing size: in place, where that was
 * measured. samples[rows]. */
static size_t collect(const struct import *import, const struct mics_bench_row *like,
                      struct mics_sample *samples)
{
    size_t count = 0;

    for (int in_place = 1; in_place >= 0 && count == 0; in_place--)
        for (size_t i = 0; i < import->rows.count; i++) {
            const struct mics_bench_row *row = &import->rows.rows[i];

            if (row->op != like->op || row->nodes != like->nodes ||
                row->per_node != like->per_node || row->groups != like->groups ||
                row->in_place != in_place || (row->checked && row->wrong > 0))
                continue;
            samples[count++] = (struct mics_sample){(double)row->bytes, row->median_s};
        }
    return count;
}

/* Equal sizes, which several runs measured, become their median. Sorted by size. times[count] is
 * overwritten. */
static size_t merge_sizes(struct mics_sample *samples, size_t count, double *times)
{
    size_t merged = 0;

    for (size_t i = 0; i < count;) {
        size_t n = 0;

        while (i + n < count && samples[i + n].bytes == samples[i].bytes) {
            times[n] = samples[i + n].seconds;
            n++;
        }
        samples[merged++] = (struct mics_sample){samples[i].bytes, mics_median(times, n)};
        i += n;
    }
    return merged;
}

/* The cost model takes a group of several nodes to have been measured while all ranks of these
 * nodes were in such groups. */
static bool is_usable(const struct mics_topology *topology, const struct mics_bench_row *row)
{
    return row->nodes == 1 || (uint64_t)row->groups * row->per_node >= topology->per_node;
}

static bool has_cost(const struct mics_collective_cost *costs, uint32_t count,
                     enum mics_collective collective, const struct mics_bench_row *row)
{
    for (uint32_t i = 0; i < count; i++)
        if (costs[i].collective == collective && costs[i].nodes == row->nodes &&
            costs[i].per_node == row->per_node)
            return true;
    return false;
}

static const enum mics_collective collective_of[] = {
    [MICS_BENCH_ALL_GATHER] = MICS_ALL_GATHER,
    [MICS_BENCH_REDUCE_SCATTER] = MICS_REDUCE_SCATTER,
    [MICS_BENCH_ALL_REDUCE] = MICS_ALL_REDUCE,
    [MICS_BENCH_ALL_TO_ALL] = MICS_ALL_TO_ALL,
};

/* The document of the topology with the measured costs, and with its own for other shapes. */
static enum mics_status put_topology(const struct import *import, json_t *doc, struct mics_err *err)
{
    const struct mics_topology *topology = import->topology;
    struct mics_collective_cost *costs =
        calloc(import->rows.count + topology->cost_count + 1, sizeof *costs);
    struct mics_sample *samples = calloc(import->rows.count + 1, sizeof *samples);
    double *times = calloc(import->rows.count + 1, sizeof *times);
    json_t *out = NULL;
    uint32_t count = 0;
    enum mics_status status = costs && samples && times ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < import->rows.count && status == MICS_OK; i++) {
        const struct mics_bench_row *row = &import->rows.rows[i];
        size_t sizes;

        if (!is_usable(topology, row) || has_cost(costs, count, collective_of[row->op], row))
            continue;
        sizes = merge_sizes(samples, collect(import, row, samples), times);
        sizes = mics_samples_thin(samples, sizes, MICS_COLLECTIVE_POINTS);
        if (sizes < 2)
            continue;
        status = mics_collective_cost_fit(collective_of[row->op], row->nodes, row->per_node,
                                          samples, sizes, &costs[count++], err);
    }
    const uint32_t measured = count;
    for (uint32_t i = 0; i < topology->cost_count && status == MICS_OK; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];
        const struct mics_bench_row like = {.nodes = cost->nodes, .per_node = cost->per_node};

        if (!has_cost(costs, measured, cost->collective, &like))
            costs[count++] = *cost;
    }
    if (status == MICS_OK)
        status = mics_topology_to_doc(topology, &out, err);
    if (status == MICS_OK && count > 0)
        status = mics_topology_set_costs(out, costs, count, err);
    if (status == MICS_OK && json_object_set(doc, "topology", out) != 0)
        status = mics_err_nomem(err);
    json_decref(out);
    free(costs);
    free(samples);
    free(times);
    return status;
}

static enum mics_status make_doc(struct import *import, json_t **out, struct mics_err *err)
{
    const struct mics_nccl_run *run = &import->largest;
    /* What is written of a world: its nodes. */
    struct mics_world world = {.node_count = run->hosts ? run->job_nodes : 0,
                               .local_size = run->job_per_node,
                               .host_of_node = run->hosts};
    const struct mics_bench_request request = {
        .iters = run->iters, .warmup = run->warmup, .micro_steps = 1};
    enum mics_status status;

    snprintf(import->rows.device, sizeof import->rows.device, "%s",
             run->device[0] ? run->device : "unknown");
    snprintf(import->rows.transport, sizeof import->rows.transport, "nccl");
    name_groups(import, run->job_nodes, run->job_per_node);
    if (import->rows.count > 0)
        qsort(import->rows.rows, import->rows.count, sizeof *import->rows.rows, by_case);
    status = mics_bench_to_doc(&world, &request, &import->rows, out, err);
    if (status != MICS_OK)
        return status;
    if (json_object_set_new(*out, "nodes", json_integer(run->job_nodes)) != 0 ||
        json_object_set(*out, "imported", import->runs) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK && import->topology)
        status = put_topology(import, *out, err);
    if (status != MICS_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

enum mics_status mics_bench_import(const char *files, const struct mics_topology *topology,
                                   unsigned ops, json_t **out, struct mics_err *err)
{
    struct import import = {.topology = topology, .runs = json_array()};
    enum mics_status status = import.runs ? MICS_OK : mics_err_nomem(err);
    char path[MICS_PATH_MAX];

    for (const char *at = files; status == MICS_OK; at++) {
        const size_t length = strcspn(at, ",");

        status = mics_path_format(path, err, "%.*s", (int)length, at);
        if (status == MICS_OK && length == 0)
            status = mics_err_set(err, MICS_ERR_ARG, "'%s': an empty name of a file", files);
        if (status == MICS_OK)
            status = take_file(&import, path, ops, err);
        at += length;
        if (!*at)
            break;
    }
    if (status == MICS_OK)
        status = make_doc(&import, out, err);
    import_fini(&import);
    return status;
}

json_t *mics_bench_topology(const json_t *doc)
{
    return json_object_get(doc, "topology");
}
