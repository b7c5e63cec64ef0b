/* SPDX-License-Identifier: Apache-2.0 */
/* check_collectives.c - series of collectives in nodes and over all ranks, compared between nodes,
 * with the links, and, beside other rates, with what a topology should reach. */
#include "probe/check_collectives.h"

#include "measure/expect.h"
#include "measure/measure_doc.h"
#include "measure/series.h"
#include "probe/check.h"
#include "probe/check_measure.h"
#include "probe/findings_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, OPS = MICS_CHECK_OPS };

static const struct {
    enum mics_collective collective;
    enum mics_bench_op op;
} ops[OPS] = {
    {MICS_ALL_GATHER, MICS_BENCH_ALL_GATHER},
    {MICS_REDUCE_SCATTER, MICS_BENCH_REDUCE_SCATTER},
    {MICS_ALL_REDUCE, MICS_BENCH_ALL_REDUCE},
};

/* One collective in one kind of group: the best seconds of each rank, by size. */
struct curve {
    size_t count;
    uint64_t bytes[MICS_SERIES_MAX];
    double median_s[MICS_SERIES_MAX];
    double *best; /* [MICS_SERIES_MAX][world size] */
};

/* The groups of one kind, and their curves. */
struct study {
    const struct mics_bench *bench;
    enum mics_bench_group group;
    struct mics_bench_comms comms;
    struct curve curves[OPS];
};

static void study_close(struct study *study)
{
    for (int i = 0; i < OPS; i++)
        free(study->curves[i].best);
    mics_bench_comms_close(&study->comms);
}

static enum mics_status study_open(const struct mics_bench *bench, enum mics_bench_group group,
                                   struct study *out, struct mics_err *err)
{
    const struct mics_bench_grouping grouping = mics_bench_grouping_of(bench->world, group, 0);
    const size_t cells = MICS_SERIES_MAX * (size_t)bench->world->size;
    enum mics_status status = MICS_OK;

    *out = (struct study){.bench = bench, .group = group};
    for (int i = 0; i < OPS && status == MICS_OK; i++)
        if (!(out->curves[i].best = malloc(cells * sizeof(double))))
            status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_bench_comms_open(bench, &grouping, false, &out->comms, err);
    if (status != MICS_OK)
        study_close(out);
    return status;
}

/* Another series of each collective; of those before, the best of each rank counts. Series that end
 * earlier shorten the curve. */
static enum mics_status study_repeat(struct study *study, double seconds, struct mics_err *err)
{
    const uint32_t size = study->bench->world->size;
    enum mics_status status = MICS_OK;

    for (int i = 0; i < OPS && status == MICS_OK; i++) {
        struct curve *curve = &study->curves[i];
        const bool first = curve->count == 0;
        struct mics_series series;

        status = mics_series_run(study->bench, &study->comms, ops[i].collective, study->comms.size,
                                 seconds, &series, err);
        if (status != MICS_OK)
            break;
        curve->count = first || series.count < curve->count ? series.count : curve->count;
        for (size_t k = 0; k < curve->count; k++) {
            double *best = curve->best + k * size;

            curve->bytes[k] = (uint64_t)series.samples[k].bytes;
            curve->median_s[k] = first ? series.samples[k].seconds
                                       : fmin(curve->median_s[k], series.samples[k].seconds);
            for (uint32_t r = 0; r < size; r++)
                best[r] = first ? series.best[k][r] : fmin(best[r], series.best[k][r]);
        }
        mics_series_fini(&series);
    }
    return status;
}

/* The slowest of `count` ranks from `first` on. */
static uint32_t slowest_of(const double *best, uint32_t first, uint32_t count)
{
    uint32_t slowest = first;

    for (uint32_t r = first; r < first + count; r++)
        slowest = best[r] > best[slowest] ? r : slowest;
    return slowest;
}

/* A row of mics.bench of a size of a curve. Its mean is the median of the batches. */
static struct mics_bench_row row_of(const struct study *study, int op, size_t k)
{
    const struct curve *curve = &study->curves[op];
    const uint32_t size = study->bench->world->size;
    const double *best = curve->best + k * size;
    const uint32_t slowest = slowest_of(best, 0, size);
    double least = INFINITY;

    for (uint32_t r = 0; r < size; r++)
        least = fmin(least, best[r]);
    return (struct mics_bench_row){
        .op = ops[op].op,
        .algo = MICS_BENCH_FLAT,
        .group = study->group,
        .in_place = true,
        .nodes = study->comms.nodes,
        .per_node = study->comms.per_node,
        .groups = study->comms.groups,
        .segments = 1,
        .bytes = curve->bytes[k],
        .count = op == 2 ? curve->bytes[k] / 4 : curve->bytes[k] / 4 / study->comms.size,
        .iters = 1,
        .time_s = best[slowest],
        .min_s = least,
        .median_s = curve->median_s[k],
        .p99_s = best[slowest],
        .slowest_rank = slowest,
        .slowest_s = best[slowest],
    };
}

/* The rate on the bus of each node in a size of a curve: its slowest rank's best. */
static void rates_of_nodes(const struct study *study, int op, size_t k, double *out)
{
    const struct mics_world *world = study->bench->world;
    struct mics_bench_row row = row_of(study, op, k);

    for (uint32_t node = 0; node < world->node_count; node++) {
        const double *best = study->curves[op].best + k * world->size;

        row.time_s = best[slowest_of(best, node * world->local_size, world->local_size)];
        out[node] = mics_bench_busbw(&row);
    }
}

bool mics_check_slow_nodes(const double *rates, uint32_t nodes, bool on_host, double *scratch,
                           struct mics_class *classes, unsigned char *slow)
{
    bool any = false;

    memset(slow, 0, nodes);
    for (int op = 0; op < OPS; op++) {
        const double *own = rates + op * (size_t)nodes;

        classes[op] = mics_class_of(own, nodes, scratch);
        for (uint32_t i = 0; i < nodes; i++)
            if (mics_check_is_slow(&classes[op], own[i], on_host))
                slow[i] |= (unsigned char)(1 << op);
    }
    for (uint32_t i = 0; i < nodes; i++) {
        if ((slow[i] & (slow[i] - 1)) == 0) /* one only */
            slow[i] = 0;
        any |= slow[i] != 0;
    }
    return any;
}

/* The ops that are slow, and how slow the worst is. */
static void add_slow_node(struct mics_findings *findings, uint32_t node, uint32_t nodes,
                          unsigned slow, const double *rates, const struct mics_class *classes)
{
    char where[96] = "", found[64], expected[64];
    int worst = -1;

    for (int op = 0; op < OPS; op++) {
        if (!(slow >> op & 1))
            continue;
        snprintf(where + strlen(where), sizeof where - strlen(where), "%s%s", where[0] ? ", " : "",
                 mics_bench_op_name(ops[op].op));
        if (worst < 0 || rates[op * (size_t)nodes + node] / classes[op].median <
                             rates[worst * (size_t)nodes + node] / classes[worst].median)
            worst = op;
    }
    const double rate = rates[worst * (size_t)nodes + node];
    mics_findings_add_slow(findings, "node_links", (int)node, where,
                           mics_figure(found, rate, MICS_FIGURE_BYTES_PER_S),
                           mics_figure(expected, classes[worst].median, MICS_FIGURE_BYTES_PER_S),
                           (struct mics_slowdown){"node", classes[worst].median / rate, false});
}

/* "collectives" of each node. */
static enum mics_status describe_nodes(const struct study *study, double *rates, json_t *nodes,
                                       struct mics_err *err)
{
    const uint32_t count = study->bench->world->node_count;
    bool ok = true;

    for (uint32_t i = 0; i < count; i++)
        ok = json_object_set_new(json_array_get(nodes, i), "collectives", json_array()) == 0 && ok;
    for (int op = 0; op < OPS && ok; op++)
        for (size_t k = 0; k < study->curves[op].count && ok; k++) {
            rates_of_nodes(study, op, k, rates);
            for (uint32_t i = 0; i < count && ok; i++)
                ok = json_array_append_new(json_object_get(json_array_get(nodes, i), "collectives"),
                                           json_pack("{s:s, s:I, s:f}", "op",
                                                     mics_bench_op_name(ops[op].op), "bytes",
                                                     (json_int_t)study->curves[op].bytes[k],
                                                     "bytes_per_s", rates[i])) == 0;
        }
    return ok ? MICS_OK : mics_err_nomem(err);
}

static enum mics_status study_nodes(struct study *study, struct mics_findings *findings,
                                    double seconds, json_t *nodes, struct mics_err *err)
{
    const uint32_t count = study->bench->world->node_count;
    double *rates = calloc((OPS + 1) * (size_t)count, sizeof *rates);
    unsigned char *slow = calloc(count, 1);
    struct mics_class classes[OPS];
    enum mics_status status = rates && slow ? MICS_OK : mics_err_nomem(err);
    bool any = true;

    for (int round = 0; round < ROUNDS && any && status == MICS_OK; round++) {
        status = study_repeat(study, (1 << round) * seconds, err);
        for (int op = 0; op < OPS && status == MICS_OK; op++)
            rates_of_nodes(study, op, study->curves[op].count - 1, rates + op * (size_t)count);
        any =
            status == MICS_OK && mics_check_slow_nodes(rates, count, study->bench->device->on_host,
                                                       rates + OPS * (size_t)count, classes, slow);
    }
    for (uint32_t i = 0; i < count && status == MICS_OK; i++)
        if (slow[i])
            add_slow_node(findings, i, count, slow[i], rates, classes);
    if (status == MICS_OK)
        status = describe_nodes(study, rates, nodes, err);
    free(slow);
    free(rates);
    return status;
}

static enum mics_status add_rows(const struct study *study, struct mics_bench_result *result,
                                 struct mics_err *err)
{
    for (int op = 0; op < OPS; op++)
        for (size_t k = 0; k < study->curves[op].count; k++) {
            struct mics_bench_row *row = mics_bench_result_add(result);

            if (!row)
                return mics_err_nomem(err);
            *row = row_of(study, op, k);
        }
    return MICS_OK;
}

enum mics_status mics_check_measure_collectives(struct mics_findings *findings,
                                                const struct mics_bench *bench, double seconds,
                                                json_t *nodes, json_t **out, struct mics_err *err)
{
    const struct mics_world *world = bench->world;
    const struct mics_bench_request request = {.iters = 1};
    struct mics_bench_result result = {0};
    enum mics_status status = MICS_OK;

    *out = NULL;
    if (!mics_world_is_even(world))
        mics_findings_add(findings, "uneven_ranks", -1, NULL, "different numbers of ranks", NULL);
    if (!mics_world_is_even(world) || world->size == 1)
        return MICS_OK;
    snprintf(result.device, sizeof result.device, "%s", mics_bench_device_name(bench));
    snprintf(result.transport, sizeof result.transport, "%s", bench->comm->backend);
    for (int group = MICS_BENCH_WORLD; group <= MICS_BENCH_NODE && status == MICS_OK; group++) {
        struct study study;

        if (group == MICS_BENCH_NODE ? world->local_size == 1 : world->node_count == 1)
            continue;
        status = study_open(bench, (enum mics_bench_group)group, &study, err);
        if (status != MICS_OK)
            break;
        status = group == MICS_BENCH_NODE ? study_nodes(&study, findings, seconds, nodes, err)
                                          : study_repeat(&study, seconds, err);
        if (status == MICS_OK)
            status = add_rows(&study, &result, err);
        study_close(&study);
    }
    if (status == MICS_OK)
        status = mics_bench_to_doc(world, &request, &result, out, err);
    mics_bench_result_fini(&result);
    return status;
}

/* Over all ranks, this share of what pairs of nodes reach at the same time, or ranks of a node. */
static const double links_share = 0.3;

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

const char *mics_check_name_row(const json_t *row, char text[96])
{
    char bytes[64];

    mics_figure(bytes, mics_number_of(row, "bytes"), MICS_FIGURE_BYTES);
    snprintf(text, 96, "%.20s of %.40s %s", text_of(row, "op"), bytes,
             strcmp(text_of(row, "group"), "world") == 0 ? "over all ranks" : "in nodes");
    return text;
}

static const char *slows_of(const json_t *row)
{
    return strcmp(text_of(row, "group"), "world") == 0 ? "net" : "node";
}

bool mics_check_is_largest(const json_t *rows, const json_t *row)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);

        if (strcmp(text_of(other, "op"), text_of(row, "op")) == 0 &&
            strcmp(text_of(other, "group"), text_of(row, "group")) == 0 &&
            mics_number_of(other, "bytes") > mics_number_of(row, "bytes"))
            return false;
    }
    return true;
}

void mics_check_compare_with_links(struct mics_findings *findings, const json_t *bench,
                                   const json_t *links)
{
    const json_t *rows = json_object_get(bench, "rows");
    const double link = mics_number_of(links, "reference_bytes_per_s");
    char found[64], expected[64], where[96];

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double rate = mics_number_of(row, "busbw_bytes_per_s");

        if (strcmp(text_of(row, "group"), "world") == 0 && mics_check_is_largest(rows, row) &&
            rate < links_share * link)
            mics_findings_add(findings, "collectives_low", -1, mics_check_name_row(row, where),
                              mics_figure(found, rate, MICS_FIGURE_BYTES_PER_S),
                              mics_figure(expected, link, MICS_FIGURE_BYTES_PER_S));
    }
}

/* Note in `map` what was expected, and add a finding if much less was found. */
static void expect(struct mics_findings *findings, json_t *map, const char *where, double found,
                   double expected, const char *why, const char *name, const char *slows)
{
    const enum mics_figure_unit unit =
        strcmp(slows, "compute") == 0 ? MICS_FIGURE_FLOPS : MICS_FIGURE_BYTES_PER_S;
    char figure[64], is[256], should[160];

    if (!(found > 0 && expected > 0))
        return;
    if (json_object_set_new(map, where, json_real(expected)) != 0)
        findings->failed = true;
    if (found >= (1 - MICS_EXPECT_TOLERANCE) * expected)
        return;
    snprintf(is, sizeof is, "%s%s%.160s", mics_figure(figure, found, unit), *why ? ": " : "", why);
    snprintf(should, sizeof should, "%s (%.80s)", mics_figure(figure, expected, unit), name);
    mics_findings_add_slow(findings, "below_expected", -1, where, is, should,
                           (struct mics_slowdown){slows, expected / found, false});
}

/* "host", or the name of the GPUs that were measured: by the collectives, which one rank does not
 * have, or by the driver of the first node that has some. */
static const char *measured_device(const json_t *doc)
{
    const char *name = text_of(json_object_get(doc, "collectives"), "device");
    const json_t *nodes = json_object_get(doc, "nodes");

    if (strcmp(text_of(doc, "device"), "host") == 0)
        return "host";
    for (size_t i = 0; i < json_array_size(nodes) && !*name; i++) {
        const json_t *facts = json_object_get(json_array_get(nodes, i), "facts");

        name = text_of(json_array_get(json_object_get(facts, "gpus"), 0), "name");
    }
    return *name ? name : "a GPU without a name";
}

/* Nodes exchange by MPI from host memory: on GPUs only the collectives tell of the network. */
static void expect_rates(struct mics_findings *findings, const json_t *doc, json_t *map,
                         const struct mics_topology *topology, const char *name)
{
    const char *device = measured_device(doc);
    const json_t *links = json_object_get(doc, "links");

    if (!mics_bench_is_same_device(topology, device))
        return;
    if (strcmp(text_of(doc, "flops_dtype"), topology->flops_dtype) == 0)
        expect(findings, map, "products", mics_check_usual_rate(doc, "flops_per_s"),
               topology->flops, "", name, "compute");
    expect(findings, map, "memory", mics_check_usual_rate(doc, "memory_bytes_per_s"),
           topology->memory_bandwidth, "", name, "memory");
    if (strcmp(device, "host") == 0 && topology->nodes > 1)
        expect(findings, map, "between nodes", mics_number_of(links, "reference_bytes_per_s"),
               topology->net_link.bandwidth_bytes, "", name, "net");
}

enum mics_status mics_check_expect(json_t *doc, const struct mics_topology *topology,
                                   const char *name, struct mics_err *err)
{
    json_t *bench = json_object_get(doc, "collectives"), *map = json_object();
    struct mics_findings findings = {.nodes = json_object_get(doc, "nodes"),
                                     .list = json_object_get(doc, "findings")};
    enum mics_status status = map ? MICS_OK : mics_err_nomem(err);
    size_t low, compared;
    char where[96];

    if (status == MICS_OK && bench)
        status = mics_bench_expect(bench, topology, MICS_EXPECT_TOLERANCE, &low, &compared, err);
    if (status == MICS_OK)
        expect_rates(&findings, doc, map, topology, name);
    const json_t *rows = json_object_get(json_object_get(bench, "expected"), "rows");
    for (size_t i = 0; i < json_array_size(rows) && status == MICS_OK; i++) {
        const json_t *row = json_array_get(rows, i);

        if (mics_check_is_largest(rows, row))
            expect(&findings, map, mics_check_name_row(row, where), mics_number_of(row, "measured"),
                   mics_number_of(row, "expected"), text_of(row, "why"), name, slows_of(row));
    }
    if (status == MICS_OK && json_object_size(map) == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "it says nothing of what was measured here");
    if (status == MICS_OK && (findings.failed || json_object_set(doc, "expected", map) != 0 ||
                              json_object_set_new(doc, "expected_by", json_string(name)) != 0))
        status = mics_err_nomem(err);
    json_decref(map);
    return status == MICS_OK ? mics_check_settle(doc, err) : status;
}
