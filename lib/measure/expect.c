/* SPDX-License-Identifier: Apache-2.0 */
/* expect.c - measured against expected bandwidth, and what a low one probably comes from. */
#include "measure/expect.h"

#include "doc/table.h"
#include "measure/measure_doc.h"
#include "topology/cost.h"
#include "topology/nccl_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Below this size, latencies and NCCL's choice of a protocol (LL, LL128, Simple) dominate, which
 * the models do not predict well enough. Only sizes from here on are judged by a model. */
#define MODEL_FROM_BYTES ((uint64_t)1 << 20)

enum source { SOURCE_MEASURED, SOURCE_NCCL, SOURCE_LINKS };
enum verdict { NORMAL, LOW, NOT_COMPARABLE };

static const char *const source_names[] = {"measured", "nccl", "links"};
static const char *const verdict_names[] = {"normal", "low", "not comparable"};

/* One case. */
struct judgement {
    const struct mics_bench_row *row;
    enum source source;
    enum verdict verdict;
    double measured, expected, low_by; /* bytes/s on the bus; a fraction */
    char why[160];                     /* of a verdict that is not normal; may be empty */
};

/* What is known of how the rows were measured. */
struct context {
    const struct mics_topology *topology;
    double tolerance;
    uint32_t nodes;     /* of the job */
    const char *device; /* "host", or the model of a GPU */
    bool imported, socket, shared_memory;
    struct judgement *list;
    size_t count;
};

static const enum mics_collective collective_of[] = {
    [MICS_BENCH_ALL_GATHER] = MICS_ALL_GATHER,
    [MICS_BENCH_REDUCE_SCATTER] = MICS_REDUCE_SCATTER,
    [MICS_BENCH_ALL_REDUCE] = MICS_ALL_REDUCE,
    [MICS_BENCH_ALL_TO_ALL] = MICS_ALL_TO_ALL,
};

/* Has the topology measured this collective on such groups in about this size? */
static bool is_measured(const struct mics_topology *topology, const struct mics_bench_row *row)
{
    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];
        const double bytes = (double)row->bytes;

        if (cost->collective == collective_of[row->op] && cost->nodes == row->nodes &&
            cost->per_node == row->per_node)
            return cost->point_count == 0 ||
                   (bytes >= .5 * cost->points[0].bytes &&
                    bytes <= 4 * cost->points[cost->point_count - 1].bytes);
    }
    return false;
}

/* "A100" of "NVIDIA A100 40GB": is it in the name that the driver gives? */
bool mics_bench_is_same_device(const struct mics_topology *topology, const char *device)
{
    const char *model = topology->device;
    char word[32];

    if (strcmp(device, "unknown") == 0)
        return true;
    if (mics_topology_is_host(topology))
        return strcmp(device, "host") == 0;
    if (strncmp(model, "NVIDIA ", 7) != 0)
        return true;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(model + 7, " "), model + 7);
    return strstr(device, word) != NULL;
}

/* Why a row cannot be compared, or NULL. */
static const char *obstacle(const struct context *context, const struct mics_bench_row *row,
                            enum source source)
{
    const struct mics_topology *topology = context->topology;

    if (row->op == MICS_BENCH_SYNC)
        return "sync is several collectives";
    if (row->algo != MICS_BENCH_FLAT)
        return "the model is of flat collectives";
    if (row->checked && row->wrong > 0)
        return "it gave wrong elements";
    if (row->nodes > topology->nodes || row->per_node > topology->per_node)
        return "the topology has no such group";
    if (!mics_bench_is_same_device(topology, context->device))
        return "measured on another device than the topology's";
    if (source != SOURCE_MEASURED && row->bytes < MODEL_FROM_BYTES)
        return "below 1 MiB latency and protocol decide";
    return NULL;
}

static void judge(const struct context *context, const struct mics_bench_row *row,
                  struct judgement *out)
{
    const struct mics_topology *topology = context->topology;
    const uint32_t sharing =
        row->nodes > 1 ? (uint32_t)fmax(1, (double)row->groups * row->nodes / context->nodes) : 1;
    const struct mics_span span = {row->nodes, row->per_node, sharing};
    const char *why;

    *out = (struct judgement){.row = row, .measured = mics_bench_busbw(row)};
    out->source = row->op != MICS_BENCH_SYNC && is_measured(topology, row) ? SOURCE_MEASURED
                  : mics_nccl_is_used(topology)                            ? SOURCE_NCCL
                                                                           : SOURCE_LINKS;
    why = obstacle(context, row, out->source);
    if (why) {
        out->verdict = NOT_COMPARABLE;
        snprintf(out->why, sizeof out->why, "%s", why);
        return;
    }
    struct mics_bench_row ideal = *row;
    ideal.time_s = mics_cost_collective(topology, collective_of[row->op], span, row->bytes);
    out->expected = mics_bench_busbw(&ideal);
    out->low_by = fmax(0, 1 - out->measured / out->expected);
    out->verdict = out->low_by > context->tolerance ? LOW : NORMAL;
}

static bool same_curve(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->algo == b->algo && a->nodes == b->nodes &&
           a->per_node == b->per_node && a->groups == b->groups && a->in_place == b->in_place;
}

/* The largest size of the curve of a case that was compared. */
static const struct judgement *largest_of(const struct context *context,
                                          const struct judgement *like)
{
    const struct judgement *found = like;

    for (size_t i = 0; i < context->count; i++) {
        const struct judgement *other = &context->list[i];

        if (other->verdict != NOT_COMPARABLE && same_curve(other->row, like->row) &&
            other->row->bytes > found->row->bytes)
            found = other;
    }
    return found;
}

/* Between nodes: fewer cards than there are, or not RDMA. `ratio`: measured / expected bandwidth of
 * the largest size. */
static void explain_network(const struct context *context, double ratio, char *why, size_t size)
{
    const struct mics_nccl_node node = mics_nccl_node_from_topology(context->topology);
    const double cards = context->imported || mics_nccl_is_used(context->topology) ? node.cards : 1;
    const double used = round(ratio * cards);

    if (context->socket)
        snprintf(why, size, "NCCL used sockets (TCP), not RDMA");
    else if (cards > 1 && ratio * cards < .6)
        snprintf(why, size, "less than one of %.0f network cards: TCP instead of RDMA?", cards);
    else if (cards > 1 && used < cards && fabs(ratio * cards - used) < .2 * used)
        snprintf(why, size, "about the rate of %.0f of %.0f network cards", used, cards);
    else if (ratio < .25)
        snprintf(why, size, "far below the network's rate: TCP instead of RDMA, another network?");
}

/* Inside a node of GPUs. PCI Express 5.0 x16 carries 63 GB/s. */
static void explain_node(const struct context *context, const struct judgement *largest, char *why,
                         size_t size)
{
    const double link = context->topology->node_link.bandwidth_bytes;

    if (context->shared_memory)
        snprintf(why, size, "NCCL copied through the host's memory, not by NVLink or PCIe P2P");
    else if (mics_nccl_is_used(context->topology) && link > 100e9 && largest->measured < 63e9)
        snprintf(why, size, "a rate of PCIe, not of NVLink");
}

/* The likely cause of a low case, where the pattern is known. */
static void explain(const struct context *context, struct judgement *judgement)
{
    const struct judgement *largest = largest_of(context, judgement);
    char *why = judgement->why;
    const size_t size = sizeof judgement->why;

    if (largest->verdict == NORMAL)
        snprintf(why, size, "%llu bytes are normal: latency, or the choice of protocol",
                 (unsigned long long)largest->row->bytes);
    else if (judgement->row->nodes > 1)
        explain_network(context, largest->measured / largest->expected, why, size);
    else
        explain_node(context, largest, why, size);
}

static json_t *to_doc(const struct judgement *judgement)
{
    const struct mics_bench_row *row = judgement->row;
    json_t *entry = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:f, s:s}", "op", mics_bench_op_name(row->op), "algo",
        mics_bench_algo_name(row->algo), "group", mics_bench_group_name(row->group), "nodes",
        (json_int_t)row->nodes, "per_node", (json_int_t)row->per_node, "in_place",
        (int)row->in_place, "bytes", (json_int_t)row->bytes, "measured", judgement->measured,
        "verdict", verdict_names[judgement->verdict]);
    bool failed = !entry;

    if (entry && judgement->verdict != NOT_COMPARABLE)
        failed |=
            json_object_set_new(entry, "expected", json_real(judgement->expected)) != 0 ||
            json_object_set_new(entry, "source", json_string(source_names[judgement->source])) != 0;
    if (entry && judgement->verdict == LOW)
        failed |= json_object_set_new(entry, "low_by", json_real(judgement->low_by)) != 0;
    if (entry && judgement->why[0])
        failed |= json_object_set_new(entry, "why", json_string(judgement->why)) != 0;
    if (!failed)
        return entry;
    json_decref(entry);
    return NULL;
}

/* What the logs of an imported document tell. */
static void read_runs(const json_t *doc, struct context *context)
{
    const json_t *runs = json_object_get(doc, "imported"), *run;
    size_t i;

    context->imported = runs != NULL;
    json_array_foreach(runs, i, run)
    {
        const char *network = json_string_value(json_object_get(run, "network"));

        context->socket |= network && strncmp(network, "Socket", 6) == 0;
        context->shared_memory |= json_is_true(json_object_get(run, "shared_memory"));
    }
}

static enum mics_status put_expected(const struct context *context, json_t *doc,
                                     struct mics_err *err)
{
    json_t *expected = json_pack("{s:f, s:[]}", "tolerance", context->tolerance, "rows");
    json_t *rows = json_object_get(expected, "rows");
    bool failed = !expected;

    for (size_t i = 0; i < context->count && !failed; i++)
        failed |= json_array_append_new(rows, to_doc(&context->list[i])) != 0;
    if (json_object_set_new(doc, "expected", expected) != 0 || failed)
        return mics_err_nomem(err);
    return MICS_OK;
}

enum mics_status mics_bench_expect(json_t *doc, const struct mics_topology *topology,
                                   double tolerance, size_t *low, size_t *compared,
                                   struct mics_err *err)
{
    struct context context = {.topology = topology, .tolerance = tolerance};
    struct mics_bench_result result;
    const char *device = json_string_value(json_object_get(doc, "device"));
    const json_int_t nodes = json_integer_value(json_object_get(doc, "nodes"));
    enum mics_status status = mics_bench_from_doc(doc, &result, err);

    *low = *compared = 0;
    if (status != MICS_OK)
        return status;
    context.device = device ? device : "unknown";
    context.nodes = nodes > 0 && nodes < MICS_MAX_NODES ? (uint32_t)nodes : 1;
    read_runs(doc, &context);
    context.list = calloc(result.count + 1, sizeof *context.list);
    if (!context.list)
        status = mics_err_nomem(err);
    context.count = context.list ? result.count : 0;
    for (size_t i = 0; i < context.count; i++) {
        judge(&context, &result.rows[i], &context.list[i]);
        *low += context.list[i].verdict == LOW;
        *compared += context.list[i].verdict != NOT_COMPARABLE;
    }
    for (size_t i = 0; i < context.count; i++)
        if (context.list[i].verdict == LOW)
            explain(&context, &context.list[i]);
    if (status == MICS_OK)
        status = put_expected(&context, doc, err);
    free(context.list);
    mics_bench_result_fini(&result);
    return status;
}

static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));

    return text ? text : "-";
}

static void put_rate(struct mics_table *table, const json_t *rate)
{
    if (json_is_number(rate))
        mics_table_cell(table, "%.4g", json_number_value(rate) / 1e9);
    else
        mics_table_cell(table, "-");
}

enum mics_status mics_bench_expect_print(FILE *out, const json_t *doc, struct mics_err *err)
{
    const json_t *rows = json_object_get(json_object_get(doc, "expected"), "rows"), *row;
    struct mics_table *table;
    size_t i;

    if (json_array_size(rows) == 0)
        return MICS_OK;
    table = mics_table_new("<# bus bandwidth (GB/s)|<algo|>ranks|<place|>size(B)|>expected|"
                           ">measured|<by|<verdict|<likely cause, or why not");
    json_array_foreach(rows, i, row)
    {
        const json_t *low_by = json_object_get(row, "low_by");
        const bool in_place = json_is_true(json_object_get(row, "in_place"));

        mics_table_cell(table, "%s", text_of(row, "op"));
        mics_table_cell(table, "%s", text_of(row, "algo"));
        mics_table_cell(table, "%lldx%lld",
                        (long long)json_integer_value(json_object_get(row, "nodes")),
                        (long long)json_integer_value(json_object_get(row, "per_node")));
        mics_table_cell(table, in_place ? "in" : "out");
        mics_table_cell(table, "%lld",
                        (long long)json_integer_value(json_object_get(row, "bytes")));
        put_rate(table, json_object_get(row, "expected"));
        put_rate(table, json_object_get(row, "measured"));
        mics_table_cell(table, "%s", text_of(row, "source"));
        if (low_by)
            mics_table_cell(table, "low by %.0f %%", 100 * json_number_value(low_by));
        else
            mics_table_cell(table, "%s", text_of(row, "verdict"));
        mics_table_cell(table, "%s", text_of(row, "why"));
    }
    fputc('\n', out);
    return mics_table_finish(table, out, 0, err);
}
