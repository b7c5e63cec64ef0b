/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_print.c - the tables of a benchmark.
 *
 * The default format has lines of at most 120 columns with a case out of place and in place, in the
 * columns of nccl-tests, and a second table with the spread of its times and how the algorithms
 * compare. As TSV, for scripts, every row is a line with plain numbers.
 */
#include "doc/table.h"
#include "doc/tree_print.h"
#include "measure/expect.h"
#include "measure/measure_doc.h"
#include "measure/statistics.h"

#include <stdlib.h>
#include <string.h>

static bool same_line(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->algo == b->algo && a->group == b->group && a->bytes == b->bytes;
}

static bool same_table(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->group == b->group && a->nodes == b->nodes &&
           a->per_node == b->per_node && a->groups == b->groups;
}

/* Decimals as in nccl-tests: at most 7 characters up to 10 s. */
static int us_decimals(double us)
{
    return us >= 10000 ? 0 : us >= 100 ? 1 : 2;
}

/* At most 7 characters, with three significant digits down to 1 MB/s. */
static int rate_decimals(double gb_per_s)
{
    return gb_per_s < 0.1 ? 5 : gb_per_s < 10 ? 3 : 2;
}

static void print_header(FILE *out, const struct mics_bench_row *row)
{
    const uint32_t ranks = row->nodes * row->per_node;
    static const char columns[] = "#%10s %10s %5s %5s %4s  %7s %7s %7s %6s  %7s %7s %7s%s\n";

    fprintf(out, "# %s, %s: %u rank%s (%u node%s x %u), %u group%s side by side\n",
            mics_bench_op_name(row->op), mics_bench_group_name(row->group), ranks,
            ranks == 1 ? "" : "s", row->nodes, row->nodes == 1 ? "" : "s", row->per_node,
            row->groups, row->groups == 1 ? "" : "s");
    fprintf(out, "#%61s%30s\n", "out of place", "in place");
    fprintf(out, columns, "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
            "#wrong", "time", "algbw", "busbw", " #wrong algo");
    fprintf(out, columns, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
            "(GB/s)", "(GB/s)", "");
}

/* time algbw busbw #wrong */
static void print_times(FILE *out, const struct mics_bench_row *row)
{
    if (!row) {
        fprintf(out, "  %7s %7s %7s %6s", "-", "-", "-", "-");
        return;
    }

    const double us = row->time_s * 1e6;
    const double alg = mics_bench_algbw(row) / 1e9, bus = mics_bench_busbw(row) / 1e9;

    fprintf(out, "  %7.*f %7.*f %7.*f", us_decimals(us), us, rate_decimals(alg), alg,
            rate_decimals(bus), bus);
    if (!row->checked)
        fprintf(out, " %6s", "N/A");
    else if (row->wrong < 1000000)
        fprintf(out, " %6llu", (unsigned long long)row->wrong);
    else
        fprintf(out, " %6.0e", (double)row->wrong);
}

/* `in` or `out_of_place` may be NULL. */
static void print_line(FILE *out, const struct mics_bench_row *out_of_place,
                       const struct mics_bench_row *in)
{
    const struct mics_bench_row *row = out_of_place ? out_of_place : in;

    fprintf(out, "%11llu %10llu %5s %5s %4s", (unsigned long long)row->bytes,
            (unsigned long long)row->count, "float",
            row->op == MICS_BENCH_ALL_GATHER || row->op == MICS_BENCH_ALL_TO_ALL ? "none" : "sum",
            "-1");
    print_times(out, out_of_place);
    print_times(out, in);
    fprintf(out, " %s\n", mics_bench_algo_name(row->algo));
}

/* The rows of one operation and group, from `first` on; returns how many there are. */
static size_t print_group(FILE *out, const struct mics_bench_result *result, size_t first)
{
    const struct mics_bench_row *rows = result->rows + first;
    size_t count = 0;

    if (first > 0)
        fputc('\n', out);
    print_header(out, rows);
    while (first + count < result->count && same_table(rows, &rows[count])) {
        const struct mics_bench_row *row = &rows[count++];
        const struct mics_bench_row *next = first + count < result->count ? row + 1 : NULL;
        const bool pair = next && !row->in_place && next->in_place && same_line(row, next);

        print_line(out, row->in_place ? NULL : row, row->in_place ? row : pair ? next : NULL);
        count += pair;
    }
    return count;
}

/* Rows of the same case in several sizes. */
static bool same_curve(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return same_table(a, b) && a->nodes == b->nodes && a->per_node == b->per_node &&
           a->algo == b->algo && a->in_place == b->in_place;
}

/* The line that mics-probe and mics-bench --calibrate would fit to the times of the curve of row
 * `index`, whose first row it is, or that of its first row. Bandwidth 0: none. */
static struct mics_link fit_curve(const struct mics_bench_result *result, size_t index,
                                  const struct mics_link *before)
{
    const struct mics_bench_row *row = &result->rows[index];
    struct mics_sample *samples;
    struct mics_link fit = {0};
    size_t count = 0;

    for (size_t i = 0; i < index; i++)
        if (same_curve(&result->rows[i], row))
            return before[i];
    samples = calloc(result->count, sizeof *samples);
    for (size_t i = index; samples && i < result->count; i++)
        if (same_curve(&result->rows[i], row) && result->rows[i].time_s > 0)
            samples[count++] =
                (struct mics_sample){(double)result->rows[i].bytes, result->rows[i].time_s};
    count = mics_samples_thin(samples, count, MICS_FIT_MAX);
    if (mics_fit_link(samples, mics_fit_drop_bursts(samples, count), &fit, NULL) != MICS_OK)
        fit = (struct mics_link){0};
    free(samples);
    return fit;
}

#define TSV_COLUMNS                                                                                \
    "op|group|algo|in_place|nodes|per_node|groups|segments|bytes|count|time_s|min_s|median_s|"     \
    "p99_s|spread_s|algbw_bytes_per_s|busbw_bytes_per_s|wrong|slowest_rank|slowest_s|"             \
    "fit_latency_s|fit_bandwidth_bytes_per_s"

/* What is expected of row `index`, in the columns that only a document with expectations has. */
static void put_expected(struct mics_table *table, const json_t *expected, size_t index)
{
    static const char *const keys[] = {"expected", "source", "verdict", "low_by", "why"};

    for (size_t i = 0; expected && i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(json_array_get(expected, index), keys[i]);

        if (json_is_number(value))
            mics_table_cell(table, "%.9g", json_number_value(value));
        else
            mics_table_cell(table, "%s", json_is_string(value) ? json_string_value(value) : "-");
    }
}

static enum mics_status print_tsv(FILE *out, const struct mics_bench_result *result,
                                  const json_t *expected, struct mics_err *err)
{
    struct mics_link *fits = calloc(result->count + 1, sizeof *fits);
    struct mics_table *table =
        mics_table_new(expected ? TSV_COLUMNS "|expected_busbw_bytes_per_s|expected_by|verdict|"
                                              "low_by|why"
                                : TSV_COLUMNS);

    if (!fits) {
        mics_table_free(table);
        return mics_err_nomem(err);
    }

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
        fits[i] = fit_curve(result, i, fits);
        mics_table_cell(table, fits[i].bandwidth_bytes > 0 ? "%.9g" : "-", fits[i].latency_s);
        mics_table_cell(table, fits[i].bandwidth_bytes > 0 ? "%.9g" : "-", fits[i].bandwidth_bytes);
        put_expected(table, expected, i);
    }
    free(fits);
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

static void put_us(struct mics_table *table, double time_s)
{
    const double us = time_s * 1e6;

    mics_table_cell(table, "%.*f", us_decimals(us), us);
}

static void put_ratio(struct mics_table *table, const struct mics_bench_row *row,
                      const struct mics_bench_row *other)
{
    if (other && other != row)
        mics_table_cell(table, "%.2f", other->median_s / row->median_s);
    else
        mics_table_cell(table, "-");
}

/* Each row's times, and the medians of flat (of sync: 1-hop) and of MPI divided by its own. */
static enum mics_status print_spread(FILE *out, const struct mics_bench_result *result,
                                     struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new("<# times (us)|<group|<place|>size(B)|<algo|>min|>median|>p99|>slowest|"
                       ">vs flat|>vs mpi");

    for (size_t i = 0; i < result->count; i++) {
        const struct mics_bench_row *row = &result->rows[i];
        const enum mics_bench_algo plain =
            row->op == MICS_BENCH_SYNC ? MICS_BENCH_ONE_HOP : MICS_BENCH_FLAT;

        mics_table_cell(table, "%s", mics_bench_op_name(row->op));
        mics_table_cell(table, "%s", mics_bench_group_name(row->group));
        mics_table_cell(table, row->in_place ? "in" : "out");
        mics_table_cell(table, "%llu", (unsigned long long)row->bytes);
        mics_table_cell(table, "%s", mics_bench_algo_name(row->algo));
        put_us(table, row->min_s);
        put_us(table, row->median_s);
        put_us(table, row->p99_s);
        mics_table_cell(table, "%u", row->slowest_rank);
        put_ratio(table, row, find_algo(result, row, plain));
        put_ratio(table, row, find_algo(result, row, MICS_BENCH_MPI));
    }
    fputc('\n', out);
    return mics_table_finish(table, out, 0, err);
}

/* The closing line of nccl-tests: the mean of all rows, out of place and in place, in GB/s. */
static void print_average(FILE *out, const struct mics_bench_result *result)
{
    double sum = 0;

    for (size_t i = 0; i < result->count; i++)
        sum += mics_bench_busbw(&result->rows[i]) / 1e9;
    fprintf(out, "\n# Avg bus bandwidth    : %g\n", sum / (double)result->count);
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
        mics_tree_print_cell(table, json_object_get(item, keys[k]));
    fputc('\n', out);
    return mics_table_finish(table, out, 0, err);
}

static enum mics_status print_lists(FILE *out, const json_t *doc, struct mics_err *err)
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

/* The device and the transport, unless the device is the host. */
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

/* NULL: there are none. */
static const json_t *expected_rows(const json_t *doc, const struct mics_bench_result *result)
{
    const json_t *rows = json_object_get(json_object_get(doc, "expected"), "rows");

    return rows && json_array_size(rows) == result->count ? rows : NULL;
}

enum mics_status mics_bench_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_bench_result result;
    enum mics_status status = mics_bench_from_doc(doc, &result, err);

    if (status != MICS_OK)
        return status;
    if (tsv) {
        status = print_tsv(out, &result, expected_rows(doc, &result), err);
    } else {
        status = print_device(out, doc, err);
        for (size_t i = 0; i < result.count;)
            i += print_group(out, &result, i);
        if (status == MICS_OK && result.count > 0 && !json_object_get(doc, "imported"))
            status = print_spread(out, &result, err);
        if (status == MICS_OK)
            status = mics_bench_expect_print(out, doc, err);
        if (status == MICS_OK)
            status = print_lists(out, doc, err);
        if (status == MICS_OK && result.count > 0)
            print_average(out, &result);
        if (status == MICS_OK && ferror(out))
            status = mics_err_set_errno(err, "cannot write");
    }
    mics_bench_result_fini(&result);
    return status;
}
