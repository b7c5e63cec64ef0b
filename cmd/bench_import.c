/* SPDX-License-Identifier: Apache-2.0 */
/* bench_import.c - mics-bench --import and --expect: measurements against a topology. */
#include "bench_options.h"

#include "doc/doc.h"
#include "measure/expect.h"
#include "measure/import.h"
#include "measure/measure_doc.h"
#include "topology/catalogue.h"

#include <string.h>

enum mics_status bench_open_topology(const struct bench_request *request, json_t *doc,
                                     struct mics_topology **out, struct mics_err *err)
{
    enum mics_status status;

    *out = NULL;
    if (!request->topology)
        return doc ? mics_topology_from_doc(doc, out, err) : MICS_OK;
    status = mics_topology_open(request->topology, out, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "--topology");
    return status;
}

static const char *text_of(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

/* The worst case of each collective and group. */
static void report_low(const json_t *doc)
{
    const json_t *rows = json_object_get(json_object_get(doc, "expected"), "rows"), *row;
    const json_t *worst = NULL;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        const json_t *next = json_array_get(rows, i + 1);
        const double low_by = json_number_value(json_object_get(row, "low_by"));

        if (low_by > json_number_value(json_object_get(worst, "low_by")))
            worst = row;
        if (!worst || (next && strcmp(text_of(row, "op"), text_of(next, "op")) == 0 &&
                       strcmp(text_of(row, "group"), text_of(next, "group")) == 0))
            continue;
        cli_error(
            "%s of %lld bytes on %lld x %lld ranks: %.4g GB/s on the bus, low by %.0f %%%s%s",
            text_of(worst, "op"), (long long)json_integer_value(json_object_get(worst, "bytes")),
            (long long)json_integer_value(json_object_get(worst, "nodes")),
            (long long)json_integer_value(json_object_get(worst, "per_node")),
            json_number_value(json_object_get(worst, "measured")) / 1e9,
            100 * json_number_value(json_object_get(worst, "low_by")),
            text_of(worst, "why") ? ": " : "", text_of(worst, "why") ? text_of(worst, "why") : "");
        worst = NULL;
    }
}

enum mics_status bench_expect(const struct bench_request *request,
                              const struct mics_topology *topology, json_t *doc, size_t *low,
                              struct mics_err *err)
{
    size_t compared = 0;
    const enum mics_status status =
        mics_bench_expect(doc, topology, request->tolerance_percent / 100, low, &compared, err);

    if (status == MICS_OK)
        report_low(doc);
    if (status == MICS_OK && compared == 0)
        cli_warn("--expect: no case can be compared; the table says why");
    return status;
}

enum mics_status bench_write(const struct bench_request *request, json_t *doc, struct mics_err *err)
{
    const struct cli_common *common = &request->common;

    if (common->output || common->json || common->tsv)
        return cli_write_document(common, doc, request->argc, request->argv, mics_bench_print, err);
    return mics_bench_print(stdout, doc, 0, err);
}

/* Collectives that mics has not are left out. */
static void report_left_out(const json_t *doc)
{
    const json_t *runs = json_object_get(doc, "imported"), *run;
    size_t i;

    json_array_foreach(runs, i, run)
    {
        const json_int_t rows = json_integer_value(json_object_get(run, "left_out"));

        if (rows > 0)
            cli_warn("%s: left out %lld rows%s%s", text_of(run, "file"), (long long)rows,
                     text_of(run, "program") ? " of " : "",
                     text_of(run, "program") ? text_of(run, "program") : "");
    }
}

static enum mics_status import_logs(const struct bench_request *request, size_t *low,
                                    struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    json_t *operand = NULL, *doc = NULL;
    enum mics_status status = cli_check_output(request->common.output, err);

    if (status == MICS_OK && request->file)
        status = mics_doc_read_file(request->file, &operand, err);
    if (status == MICS_OK)
        status = bench_open_topology(request, operand, &topology, err);
    if (status != MICS_OK && request->file && operand)
        mics_err_prefix(err, "%s",
                        strcmp(request->file, "-") == 0 ? "standard input" : request->file);
    if (status == MICS_OK)
        status = mics_bench_import(request->import, topology, request->bench.ops, &doc, err);
    if (status == MICS_OK && request->expect)
        status = bench_expect(request, topology, doc, low, err);
    if (status == MICS_OK) {
        report_left_out(doc);
        status = cli_write_document(&request->common, doc, request->argc, request->argv,
                                    mics_bench_print, err);
    }
    mics_topology_free(topology);
    json_decref(operand);
    json_decref(doc);
    return status;
}

int bench_import(const struct bench_request *request)
{
    struct mics_err err;
    size_t low = 0;

    if (cli_rank() > 0)
        return CLI_DONE; /* under a launcher one rank imports */
    const enum mics_status status = import_logs(request, &low, &err);
    return status != MICS_OK ? cli_report(status, &err) : low > 0 ? CLI_NO_ANSWER : CLI_DONE;
}
