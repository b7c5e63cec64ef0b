/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-show - print documents, checkpoints and metrics as tables, for scripts, as JSON, or as
 * pictures that gnuplot and Graphviz draw.
 *
 * It adds nothing to the history: its JSON is the document that it read.
 */
#include "base/file.h"
#include "base/utf8.h"
#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "cli/cli.h"
#include "data/dataset.h"
#include "doc/doc.h"
#include "doc/gnuplot.h"
#include "doc/history.h"
#include "doc/tree_print.h"
#include "measure/measure_doc.h"
#include "plan/plan_print.h"
#include "probe/check.h"
#include "report/flights.h"
#include "report/metrics.h"
#include "report/plan_check.h"
#include "show_pictures.h"
#include "topology/topology_print.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Metrics of long runs can exceed the size limit of documents. */
#define MAX_INPUT_BYTES ((size_t)1 << 30)

enum { ID_TERMINAL = 256 };

struct request {
    struct cli_common common;
    bool history, gnuplot, dot;
    const char *plot, *terminal, *expect;
    char **files;
    int file_count;
};

static const struct cli_option options[] = {
    {0, "history", NULL, "print the commands that made the document",
     CLI_TO_TRUE(struct request, history)},
    {0, "gnuplot", NULL, "write a gnuplot script: of a plan, several plans, ...",
     CLI_TO_TRUE(struct request, gnuplot)},
    {0, "plot", "NAME", "with --gnuplot, only this picture", CLI_TO_TEXT(struct request, plot)},
    {ID_TERMINAL, "terminal", MICS_GNUPLOT_TERMINALS,
     "with --gnuplot, what gnuplot draws to its output (default: gnuplot's own)", CLI_TO_HANDLER},
    {0, "dot", NULL, "write a cluster, its check, or the groups of a plan, as a graph for Graphviz",
     CLI_TO_TRUE(struct request, dot)},
    {0, "expect", "NAME",
     "with --dot, compare measured links with those of this instance of the catalogue",
     CLI_TO_TEXT(struct request, expect)},
};

static const struct cli_program program = {
    .name = "mics-show",
    .synopsis = "[options] [FILE...]",
    .summary = "Print plans, topologies, checkpoints, metrics and any other document of mics.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_OUTPUT | CLI_FORMAT | CLI_VERBOSE,
};

/* Kinds with tables of their own; any other is printed as a tree. */
static const struct kind {
    const char *name;
    cli_printer *print;
} kinds[] = {
    {MICS_TOPOLOGY_KIND, mics_topology_print}, {MICS_PLAN_KIND, mics_plan_print},
    {MICS_BENCH_KIND, mics_bench_print},       {MICS_CHECKPOINT_KIND, mics_manifest_print},
    {MICS_METRICS_KIND, mics_metrics_print},   {MICS_DATASET_KIND, mics_dataset_print},
    {MICS_CHECK_KIND, mics_check_print},       {MICS_FLIGHT_KIND, mics_flight_print},
    {MICS_FLIGHTS_KIND, mics_flights_print},
};

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct request *request = context;

    (void)option; /* --terminal */
    if (!mics_gnuplot_has_terminal(value))
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected dumb, pdf, png or svg", value);
    request->terminal = value;
    return MICS_OK;
}

static enum mics_status decode(const char *data, size_t size, bool draw, json_t **out,
                               struct mics_err *err)
{
    if (mics_metrics_recognize(data, size))
        return mics_metrics_summarize(data, size, draw ? MICS_METRICS_DRAWN : MICS_METRICS_CURVE,
                                      out, err);
    return mics_doc_decode(data, size, out, err);
}

static bool is_folder(const char *path)
{
    struct stat info;

    return strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The folder of a run has its metrics, unless they are written elsewhere. */
static bool is_run(const char *path)
{
    char file[MICS_PATH_MAX];
    struct stat info;

    return is_folder(path) &&
           mics_path_format(file, NULL, "%s/%s", path, MICS_METRICS_NAME) == MICS_OK &&
           stat(file, &info) == 0 && S_ISREG(info.st_mode);
}

/* The file to read. For the folder of a run: its metrics, or without them the manifest of its
 * latest checkpoint; for the folder of a checkpoint: its manifest. */
static enum mics_status find_file(const char *path, char file[MICS_PATH_MAX], struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    bool found;
    enum mics_status status;

    if (!is_folder(path))
        return mics_path_format(file, err, "%s", path);
    if (is_run(path))
        return mics_path_format(file, err, "%s/%s", path, MICS_METRICS_NAME);
    status = mics_checkpoint_find(path, false, folder, &found, err);
    if (status != MICS_OK)
        return status;
    return mics_path_format(file, err, "%s/%s", folder, MICS_MANIFEST_NAME);
}

static void input_fini(struct show_input *input)
{
    free(input->name);
    json_decref(input->doc);
}

/* *out is the caller's, to input_fini(), also after a failure. `draw`: for a picture. */
static enum mics_status load(const char *path, bool draw, struct show_input *out,
                             struct mics_err *err)
{
    char file[MICS_PATH_MAX], *data;
    size_t size;
    enum mics_status status;

    *out = (struct show_input){0};
    if (mics_flights_recognize(path)) {
        out->name = strdup(path);
        return out->name ? mics_flights_load(path, &out->doc, err) : mics_err_nomem(err);
    }
    status = find_file(path, file, err);
    if (status != MICS_OK)
        return status;
    out->name = strdup(strcmp(path, "-") == 0 ? "standard input" : file);
    if (!out->name)
        return mics_err_nomem(err);
    status = mics_file_read(file, MAX_INPUT_BYTES, &data, &size, err);
    if (status != MICS_OK)
        return status;
    status = decode(data, size, draw, &out->doc, err);
    free(data);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", out->name);
        return status;
    }
    const json_int_t bad = json_integer_value(json_object_get(out->doc, "bad_lines"));
    if (bad > 0)
        cli_warn("%s: left out %" JSON_INTEGER_FORMAT
                 " line%s that cannot be read, the first of them line %" JSON_INTEGER_FORMAT,
                 out->name, bad, bad == 1 ? "" : "s",
                 json_integer_value(json_object_get(out->doc, "first_bad_line")));
    return MICS_OK;
}

static cli_printer *choose_printer(const struct request *request, const json_t *doc)
{
    const char *name = json_string_value(json_object_get(doc, "kind"));

    if (request->history)
        return mics_history_print;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].print;
    return mics_tree_print;
}

static enum mics_status print(FILE *out, const struct request *request, const json_t *doc,
                              struct mics_err *err)
{
    if (request->common.json)
        return mics_doc_write(out, doc, MICS_DOC_JSON, err);
    return choose_printer(request, doc)(out, doc, request->common.tsv, err);
}

/* For the folder of a run, add what its plan predicted beside what was measured. That there is
 * nothing to compare is no failure. */
static enum mics_status add_check(FILE *out, const struct request *request, const char *path,
                                  json_t *doc, struct mics_err *err)
{
    struct mics_plan_check check;
    struct mics_err why = {""};
    json_t *check_doc = NULL;
    enum mics_status status = mics_plan_check_run(path, NULL, &check, &why);

    if (status != MICS_OK) {
        cli_warn("predicted times are not shown: %s", why.text);
        return MICS_OK;
    }
    if (request->common.json) {
        status = mics_plan_check_to_doc(&check, &check_doc, err);
        if (status == MICS_OK && json_object_set_new(doc, "check", check_doc) != 0)
            status = mics_err_nomem(err);
    } else if (request->common.tsv) {
        fputc('\n', out);
        status = mics_plan_check_print(out, &check, 1, err);
    } else {
        status = mics_plan_check_print_brief(out, &check, err);
    }
    mics_plan_check_fini(&check);
    return status;
}

static enum mics_status show(FILE *out, const struct request *request, const char *path,
                             struct mics_err *err)
{
    const bool checks = is_run(path) && !request->history;
    struct show_input input;
    enum mics_status status = load(path, false, &input, err);

    if (status != MICS_OK)
        goto out;
    if (checks && request->common.json)
        status = add_check(out, request, path, input.doc, err);
    if (status != MICS_OK)
        goto out;
    status = print(out, request, input.doc, err);
    if (status == MICS_ERR_FORMAT)
        mics_err_prefix(err, "%s", input.name);
    if (status != MICS_OK)
        goto out;
    if (checks && !request->common.json)
        status = add_check(out, request, path, input.doc, err);
out:
    input_fini(&input);
    return status;
}

/* One picture of all files. */
static enum mics_status draw(FILE *out, const struct request *request, struct mics_err *err)
{
    const size_t count = request->file_count > 0 ? (size_t)request->file_count : 1;
    struct show_input *inputs = calloc(count, sizeof *inputs);
    enum mics_status status = inputs ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = load(request->file_count > 0 ? request->files[i] : "-", request->gnuplot,
                      &inputs[i], err);
    if (status == MICS_OK)
        status = request->dot
                     ? show_dot(out, inputs, request->expect, err)
                     : show_gnuplot(out, inputs, count, request->terminal, request->plot, err);
    for (size_t i = 0; inputs && i < count; i++)
        input_fini(&inputs[i]);
    free(inputs);
    return status;
}

/* Is it a file with a document of this kind? Its kind stands first. Pipes are not looked at: they
 * can be read once only. */
static bool has_kind(const char *path, const char *wanted)
{
    char begin[64] = "";
    struct stat info;
    FILE *file;

    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || !(file = fopen(path, "rb")))
        return false;
    const size_t size = fread(begin, 1, sizeof begin - 1, file);
    fclose(file);
    const char *kind = memmem(begin, size, wanted, strlen(wanted));
    return kind && !isalpha((unsigned char)kind[strlen(wanted)]);
}

/* What has changed between two checks of a cluster. */
static enum mics_status show_changes(FILE *out, const struct request *request, struct mics_err *err)
{
    struct show_input before, now = {0};
    enum mics_status status = load(request->files[0], false, &before, err);

    if (status == MICS_OK)
        status = load(request->files[1], false, &now, err);
    if (status == MICS_OK) {
        status = mics_check_print_changes(out, before.doc, now.doc, 0, err);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(err, "%s and %s", request->files[0], request->files[1]);
    }
    input_fini(&before);
    input_fini(&now);
    return status;
}

/* Those of several ranks are one table. */
static enum mics_status show_flights(FILE *out, const struct request *request, struct mics_err *err)
{
    const size_t count = (size_t)request->file_count;
    struct show_input *inputs = calloc(count, sizeof *inputs);
    json_t **docs = calloc(count, sizeof *docs), *doc = NULL;
    enum mics_status status = inputs && docs ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        status = load(request->files[i], false, &inputs[i], err);
        docs[i] = inputs[i].doc;
    }
    if (status == MICS_OK)
        status = mics_flights_gather(docs, count, &doc, err);
    if (status == MICS_OK)
        status = mics_flights_print(out, doc, false, err);
    json_decref(doc);
    for (size_t i = 0; inputs && i < count; i++)
        input_fini(&inputs[i]);
    free(inputs);
    free(docs);
    return status;
}

static enum mics_status show_all(FILE *out, const struct request *request, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (request->gnuplot || request->dot)
        return draw(out, request, err);
    if (request->file_count == 0)
        return show(out, request, "-", err);
    if (request->file_count == 2 && !request->history &&
        has_kind(request->files[0], MICS_CHECK_KIND) &&
        has_kind(request->files[1], MICS_CHECK_KIND))
        return show_changes(out, request, err);
    if (request->file_count > 1 && !request->history &&
        has_kind(request->files[0], MICS_FLIGHT_KIND))
        return show_flights(out, request, err);
    for (int i = 0; i < request->file_count && status == MICS_OK; i++) {
        if (request->file_count > 1) {
            fprintf(out, "%s==> ", i > 0 ? "\n" : "");
            mics_utf8_put(out, request->files[i], strlen(request->files[i]));
            fputs(" <==\n", out);
        }
        status = show(out, request, request->files[i], err);
    }
    return status;
}

static enum mics_status run(const struct request *request, struct mics_err *err)
{
    const char *path = request->common.output;
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (!path || strcmp(path, "-") == 0)
        return show_all(stdout, request, err);
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    status = show_all(mics_file_stream(writer), request, err);
    if (status == MICS_OK)
        return mics_file_commit(writer, err);
    mics_file_discard(writer);
    return status;
}

/* -1: continue; else the exit code. */
static int check_files(const struct request *request)
{
    int code = -1;

    for (int i = 0; i < request->file_count && code < 0; i++)
        code = cli_check_files(
            (const struct cli_file[]){{CLI_WRITES, "output", request->common.output},
                                      {CLI_READS, NULL, request->files[i]}},
            2);
    return code;
}

/* -1: continue; else the exit code. */
static int check_usage(const struct request *request)
{
    const bool draws = request->gnuplot || request->dot;

    if ((request->common.json || request->common.tsv || request->dot) && request->file_count > 1)
        return cli_usage("--json, --tsv and --dot take one file, not %d", request->file_count);
    if (request->common.json && request->history)
        return cli_usage("--json and --history exclude each other");
    if (request->gnuplot && request->dot)
        return cli_usage("--gnuplot and --dot exclude each other");
    if (draws && (request->common.json || request->common.tsv || request->history))
        return cli_usage("--%s: goes with neither --json, --tsv nor --history",
                         request->dot ? "dot" : "gnuplot");
    if (!request->gnuplot && (request->plot || request->terminal))
        return cli_usage("--%s goes with --gnuplot", request->plot ? "plot" : "terminal");
    if (request->file_count == 0 && isatty(STDIN_FILENO))
        return cli_usage("nothing to show: a file, a folder, or a document on standard input");
    if (!request->dot && request->expect)
        return cli_usage("--expect goes with --dot");
    return check_files(request);
}

int main(int argc, char **argv)
{
    struct request request = {0};
    struct mics_err err;
    int code, first;

    cli_init(&program);
    code = cli_parse(argc, argv, &request.common, handle, &request, &first);
    if (code < 0) {
        request.files = argv + first;
        request.file_count = argc - first;
        code = check_usage(&request);
        if (code < 0 && cli_rank() > 0)
            code = CLI_DONE; /* under a launcher one rank shows */
        if (code < 0)
            code = cli_report(run(&request, &err), &err);
    }
    return cli_finish(code);
}
