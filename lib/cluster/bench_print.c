/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_print.c - the tables of a benchmark.
 *
 * For people a line holds a case out of place and in place, with the columns of nccl-tests; for scripts every row is a
 * line of its own with plain numbers.
 */
#include "cluster/bench_doc.h"
#include "doc/outline.h"
#include "doc/table.h"

#include <stdlib.h>
#include <string.h>

static bool same_line(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->algo == b->algo && a->group == b->group && a->bytes == b->bytes;
}

static bool same_table(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->group == b->group;
}

/* GB/s, three digits of it also on a slow network. */
static void put_rate(struct mics_table *table, double rate)
{
    const double gb = rate / 1e9;

    mics_table_cell(table, "%.*f", gb < 0.1 ? 5 : gb < 10 ? 3 : 2, gb);
}

/* time algbw busbw #wrong */
static void put_times(struct mics_table *table, const struct mics_bench_row *row)
{
    if (!row) {
        for (int i = 0; i < 4; i++)
            mics_table_cell(table, "-");
        return;
    }
    mics_table_cell(table, "%.2f", row->time_s * 1e6);
    put_rate(table, mics_bench_algbw(row));
    put_rate(table, mics_bench_busbw(row));
    if (row->checked)
        mics_table_cell(table, "%llu", (unsigned long long)row->wrong);
    else
        mics_table_cell(table, "N/A");
}

/* `in` or `out` may be NULL. */
static void put_line(struct mics_table *table, const struct mics_bench_row *out,
                     const struct mics_bench_row *in)
{
    const struct mics_bench_row *row = out ? out : in;

    mics_table_cell(table, "%llu", (unsigned long long)row->bytes);
    mics_table_cell(table, "%llu", (unsigned long long)row->count);
    mics_table_cell(table, "float");
    mics_table_cell(table, row->op == MICS_BENCH_ALL_GATHER ? "none" : "sum");
    mics_table_cell(table, "-1");
    put_times(table, out);
    put_times(table, in);
    mics_table_cell(table, "%s", mics_bench_algo_name(row->algo));
    mics_table_cell(table, "%.2f", row->min_s * 1e6);
    mics_table_cell(table, "%.2f", row->median_s * 1e6);
    mics_table_cell(table, "%.2f", row->p99_s * 1e6);
    mics_table_cell(table, "%u", row->slowest_rank);
}

/* The rows of one operation and group, from `first` on; returns how many there are. */
static size_t print_group(FILE *out, const struct mics_bench_result *result, size_t first,
                          enum mics_status *status, struct mics_err *err)
{
    const struct mics_bench_row *rows = result->rows + first;
    struct mics_table *table = mics_table_new(
        ">size(B)|>count|<type|<redop|>root|>time(us)|>algbw(GB/s)|>busbw(GB/s)|>#wrong|"
        ">in-place(us)|>algbw(GB/s)|>busbw(GB/"
        "s)|>#wrong|<algo|>min(us)|>median(us)|>p99(us)|>slowest");
    size_t count = 0;

    fprintf(out, "%s# %s, %s: %u rank%s (%u node%s x %u), %u group%s side by side\n",
            first > 0 ? "\n" : "", mics_bench_op_name(rows->op), mics_bench_group_name(rows->group),
            rows->nodes * rows->per_node, rows->nodes * rows->per_node == 1 ? "" : "s", rows->nodes,
            rows->nodes == 1 ? "" : "s", rows->per_node, rows->groups,
            rows->groups == 1 ? "" : "s");
    while (first + count < result->count && same_table(rows, &rows[count])) {
        const struct mics_bench_row *row = &rows[count++];
        const struct mics_bench_row *next = first + count < result->count ? row + 1 : NULL;
        const bool pair = next && !row->in_place && next->in_place && same_line(row, next);

        put_line(table, row->in_place ? NULL : row, row->in_place ? row : pair ? next : NULL);
        count += pair;
    }
    *status = mics_table_finish(table, out, 0, err);
    return count;
}

static enum mics_status print_tsv(FILE *out, const struct mics_bench_result *result,
                                  struct mics_err *err)
{
    struct mics_table *table = mics_table_new(
        "op|group|algo|in_place|nodes|per_node|groups|segments|bytes|count|time_s|min_s|median_s|"
        "p99_s|spread_s|algbw_bytes_per_s|busbw_bytes_per_s|wrong|slowest_rank|slowest_s");

    for (size_t i = 0; i < result->count; i++) {
        const struct mics_bench_row *row = &result->rows[i];
        const uint64_t whole[] = {row->in_place, row->nodes, row->per_node, row->groups,
                                  row->segments, row->bytes, row->count};
        const double reals[] = {row->time_s,          row->min_s,    row->median_s,
                                row->p99_s,           row->spread_s, mics_bench_algbw(row),
                                mics_bench_busbw(row)};

        mics_table_cell(table, "%s", mics_bench_op_name(row->op));
        mics_table_cell(table, "%s", mics_bench_group_name(row->group));
        mics_table_cell(table, "%s", mics_bench_algo_name(row->algo));
        for (size_t k = 0; k < sizeof whole / sizeof *whole; k++)
            mics_table_cell(table, "%llu", (unsigned long long)whole[k]);
        for (size_t k = 0; k < sizeof reals / sizeof *reals; k++)
            mics_table_cell(table, "%.9g", reals[k]);
        if (row->checked)
            mics_table_cell(table, "%llu", (unsigned long long)row->wrong);
        else
            mics_table_cell(table, "-");
        mics_table_cell(table, "%u", row->slowest_rank);
        mics_table_cell(table, "%.9g", row->slowest_s);
    }
    return mics_table_finish(table, out, 1, err);
}

static const struct mics_bench_row *find_algo(const struct mics_bench_result *result,
                                              const struct mics_bench_row *like,
                                              enum mics_bench_algo algo)
{
    for (size_t i = 0; i < result->count; i++) {
        const struct mics_bench_row *row = &result->rows[i];

        if (same_table(row, like) && row->bytes == like->bytes && row->in_place == like->in_place &&
            row->algo == algo)
            return row;
    }
    return NULL;
}

static void put_ratio(struct mics_table *table, const struct mics_bench_row *row,
                      const struct mics_bench_row *other)
{
    if (!other) {
        mics_table_cell(table, "-");
        mics_table_cell(table, "-");
        return;
    }
    mics_table_cell(table, "%.2f", other->median_s * 1e6);
    mics_table_cell(table, "%.2f", other->median_s / row->median_s);
}

/* Medians of algorithms side by side: how many times as long as the first takes each other one. */
static enum mics_status print_sides(FILE *out, const struct mics_bench_result *result,
                                    struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new("<# medians|<group|<place|>size(B)|<algo|>time(us)|>flat or "
                       "1-hop(us)|>ratio|>mpi(us)|>ratio");
    size_t lines = 0;

    for (size_t i = 0; i < result->count; i++) {
        const struct mics_bench_row *row = &result->rows[i];
        const bool hops = row->algo == MICS_BENCH_TWO_HOP;
        const struct mics_bench_row *flat =
            row->algo == MICS_BENCH_FLAT
                ? NULL
                : find_algo(result, row, hops ? MICS_BENCH_ONE_HOP : MICS_BENCH_FLAT);
        const struct mics_bench_row *mpi = find_algo(result, row, MICS_BENCH_MPI);

        if (row->algo == MICS_BENCH_MPI || row->algo == MICS_BENCH_ONE_HOP || (!flat && !mpi))
            continue;
        mics_table_cell(table, "%s", mics_bench_op_name(row->op));
        mics_table_cell(table, "%s", mics_bench_group_name(row->group));
        mics_table_cell(table, row->in_place ? "in" : "out");
        mics_table_cell(table, "%llu", (unsigned long long)row->bytes);
        mics_table_cell(table, "%s", mics_bench_algo_name(row->algo));
        mics_table_cell(table, "%.2f", row->median_s * 1e6);
        put_ratio(table, row, flat);
        put_ratio(table, row, mpi);
        lines++;
    }
    if (lines == 0) {
        mics_table_free(table);
        return MICS_OK;
    }
    fputc('\n', out);
    return mics_table_finish(table, out, 0, err);
}

/* A list of maps with these members; nothing when it is empty. */
static enum mics_status print_list(FILE *out, const json_t *list, const char *columns,
                                   const char *const *keys, struct mics_err *err)
{
    struct mics_table *table;
    const json_t *item;
    size_t i;

    if (json_array_size(list) == 0)
        return MICS_OK;
    table = mics_table_new(columns);
    json_array_foreach(list, i, item) for (size_t k = 0; keys[k]; k++)
        mics_outline_cell(table, json_object_get(item, keys[k]));
    fputc('\n', out);
    return mics_table_finish(table, out, 0, err);
}

static enum mics_status print_findings(FILE *out, const json_t *doc, struct mics_err *err)
{
    static const char *const found[] = {"what", "where", "host", "times_slower", NULL};
    static const char *const worse[] = {"op",       "algo",  "group",        "bytes",
                                        "before_s", "now_s", "times_slower", NULL};
    enum mics_status status = print_list(out, json_object_get(doc, "outliers"),
                                         "<# outlier|<where|<host|>times slower", found, err);

    if (status != MICS_OK)
        return status;
    return print_list(out, json_object_get(doc, "regressions"),
                      "<# slower than before|<algo|<group|>bytes|>before(s)|>now(s)|>times slower",
                      worse, err);
}

/* What was measured, unless it is the usual: memory of hosts. */
static enum mics_status print_device(FILE *out, const json_t *doc, struct mics_err *err)
{
    const char *device = json_string_value(json_object_get(doc, "device"));
    const char *transport = json_string_value(json_object_get(doc, "transport"));

    if (!device || !transport || strcmp(device, "host") == 0)
        return MICS_OK;
    return fprintf(out, "# device: %s, by %s\n", device, transport) < 0
               ? mics_err_set_errno(err, "output")
               : MICS_OK;
}

enum mics_status mics_bench_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_bench_result result;
    enum mics_status status = mics_bench_from_doc(doc, &result, err);

    if (status != MICS_OK)
        return status;
    if (tsv) {
        status = print_tsv(out, &result, err);
    } else {
        status = print_device(out, doc, err);
        for (size_t i = 0; i < result.count && status == MICS_OK;)
            i += print_group(out, &result, i, &status, err);
        if (status == MICS_OK)
            status = print_sides(out, &result, err);
        if (status == MICS_OK)
            status = print_findings(out, doc, err);
    }
    mics_bench_result_fini(&result);
    return status;
}
