/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-show - print documents, checkpoints and metrics as tables, for scripts, or as JSON.
 *
 * It adds nothing to the history: its JSON is the document that it read.
 */
#include "base/file.h"
#include "bench/doc.h"
#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "cli/cli.h"
#include "doc/doc.h"
#include "doc/history.h"
#include "doc/tree_print.h"
#include "plan/print.h"
#include "topology/print.h"
#include "train/report/metrics.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Metrics of long runs can exceed the size limit of documents. */
#define MAX_INPUT_BYTES ((size_t)1 << 30)

enum { ID_HISTORY = 256 };

static const struct cli_option options[] = {
    {ID_HISTORY, "history", NULL, "print the commands that made the document"},
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
    {MICS_METRICS_KIND, mics_metrics_print},
};

struct request {
    struct cli_common common;
    bool history;
    char **files;
    int file_count;
};

static enum mics_status handle(void *context, int id, const char *value, struct mics_err *err)
{
    struct request *request = context;

    (void)value;
    (void)err;
    if (id == ID_HISTORY)
        request->history = true;
    return MICS_OK;
}

static enum mics_status decode(const char *data, size_t size, json_t **out, struct mics_err *err)
{
    if (mics_metrics_recognize(data, size))
        return mics_metrics_summarize(data, size, out, err);
    return mics_doc_decode(data, size, out, err);
}

static bool is_folder(const char *path)
{
    struct stat info;

    return strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The file to read. For the folder of a checkpoint: its manifest; for the folder of a run: the
 * manifest of its latest checkpoint. */
static enum mics_status find_file(const char *path, char file[MICS_PATH_MAX], struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    bool found;
    enum mics_status status;

    if (!is_folder(path))
        return mics_path_format(file, err, "%s", path);
    status = mics_checkpoint_find(path, false, folder, &found, err);
    if (status != MICS_OK)
        return status;
    return mics_path_format(file, err, "%s/%s", folder, MICS_MANIFEST_NAME);
}

/* `name` is for messages. */
static enum mics_status load(const char *file, const char *name, json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read(file, MAX_INPUT_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    status = decode(data, size, out, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name);
    free(data);
    return status;
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

static enum mics_status show(FILE *out, const struct request *request, const char *path,
                             struct mics_err *err)
{
    char file[MICS_PATH_MAX];
    const char *name = strcmp(path, "-") == 0 ? "standard input" : file;
    json_t *doc = NULL;
    enum mics_status status = find_file(path, file, err);

    if (status == MICS_OK)
        status = load(file, name, &doc, err);
    if (status != MICS_OK)
        return status;
    status = print(out, request, doc, err);
    if (status == MICS_ERR_FORMAT)
        mics_err_prefix(err, "%s", name);
    json_decref(doc);
    return status;
}

static enum mics_status show_all(FILE *out, const struct request *request, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (request->file_count == 0)
        return show(out, request, "-", err);
    for (int i = 0; i < request->file_count && status == MICS_OK; i++) {
        if (request->file_count > 1)
            fprintf(out, "%s==> %s <==\n", i > 0 ? "\n" : "", request->files[i]);
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
        if ((request.common.json || request.common.tsv) && request.file_count > 1)
            code = cli_usage("--json and --tsv take one file, not %d", request.file_count);
        else if (request.common.json && request.history)
            code = cli_usage("--json and --history exclude each other");
        else
            code = cli_report(run(&request, &err), &err);
    }
    return cli_finish(code);
}
