/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-shard - converts between Hugging Face files and checkpoints of any plan, and inspects both.
 *
 * split and reshard copy the plan from standard input to standard output. Under a launcher the
 * ranks share the work of split, merge, reshard, cast and verify; list and diff run on rank 0.
 */
#include "base/clock.h"
#include "base/units.h"
#include "ckpt/checkpoint.h"
#include "ckpt/convert/convert.h"
#include "cli/cli.h"
#include "comm/agree.h"
#include "data/tokenizer_gguf.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "plan/plan.h"
#include "plan/plan_print.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_DTYPE = 256, ID_MAX_FILE, ID_TO };

struct request {
    struct cli_common common;
    struct mics_convert_request convert;
    struct mics_diagnostics diagnostics;
    const char *plan, *command;
    char **paths;
    int path_count;
    bool has_dtype, has_file_bytes, has_format;
    bool no_tokenizer; /* of a file of GGUF */
    bool no_template;  /* it has several, none of which is the default */
    struct cli_progress progress;
};

static const struct cli_option options[] = {
    {'o', "output", "FOLDER", "folder to write (split, merge, reshard, cast); of GGUF a file",
     CLI_TO_TEXT(struct request, common.output)},
    {'p', "plan", "FILE", "plan for split and reshard (default: standard input)",
     CLI_TO_TEXT(struct request, plan)},
    {ID_TO, "to", "hf|gguf|dcp", "format that merge writes (default: hf, Hugging Face files)",
     CLI_TO_HANDLER},
    {ID_DTYPE, "dtype", "f32|f16|bf16|q8_0",
     "storage type that merge and cast write (default of merge: f32; q8_0: GGUF only)",
     CLI_TO_HANDLER},
    {0, "base", "FOLDER", "copy the tokenizer's files from FOLDER (merge, cast)",
     CLI_TO_TEXT(struct request, convert.base)},
    {ID_MAX_FILE, "max-file", "SIZE",
     "maximum size of the tensors in a file (merge, cast; default: 5GB)", CLI_TO_HANDLER},
    {0, "dry-run", NULL, "check the input, print what would be written, write nothing",
     CLI_TO_TRUE(struct request, convert.dry_run)},
};

static const struct cli_command commands[] = {
    {"split", "convert files of Hugging Face, PyTorch or DeepSpeed to a checkpoint of a plan"},
    {"merge", "convert a checkpoint to Hugging Face files, GGUF or PyTorch's format"},
    {"reshard", "convert a checkpoint with its optimizer state to another plan"},
    {"cast", "convert Hugging Face files to another storage type"},
    {"list", "print the tensors of a model or checkpoint"},
    {"verify", "check that a model or checkpoint is undamaged"},
    {"diff", "compare the numbers of two models or checkpoints"},
};

static const struct cli_program program = {
    .name = "mics-shard",
    .synopsis = "COMMAND [options] PATH...",
    .summary = "Convert between Hugging Face files and sharded checkpoints of any plan.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_FORMAT | CLI_VERBOSE | CLI_HISTORY,
    .commands = commands,
    .command_count = sizeof commands / sizeof *commands,
};

static enum mics_status parse_format(const char *value, enum mics_merge_format *out,
                                     struct mics_err *err)
{
    static const char *const names[] = {
        [MICS_MERGE_HF] = "hf", [MICS_MERGE_GGUF] = "gguf", [MICS_MERGE_DCP] = "dcp"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], value) == 0) {
            *out = (enum mics_merge_format)i;
            return MICS_OK;
        }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected hf, gguf or dcp", value);
}

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct request *request = context;

    if (option->id == ID_TO) {
        request->has_format = true;
        return parse_format(value, &request->convert.format, err);
    }
    if (option->id == ID_DTYPE) {
        request->has_dtype = true;
        request->convert.q8_0 = strcmp(value, "q8_0") == 0;
        if (request->convert.q8_0 ||
            mics_storage_dtype_parse(value, &request->convert.dtype, NULL) == MICS_OK)
            return MICS_OK;
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected f32, f16, bf16 or q8_0", value);
    }
    request->has_file_bytes = true;
    return mics_parse_positive_bytes(value, &request->convert.file_bytes, err);
}

static void report_problem(void *context, const char *text)
{
    (void)context;
    cli_error("%s", text);
}

static enum mics_status print_dry(const struct request *request,
                                  const struct mics_convert_report *report, struct mics_err *err)
{
    const int tsv = request->common.tsv;
    struct mics_table *table = mics_table_new("<|>");

    mics_table_cell(table, "files");
    mics_table_cell(table, "%u", report->files);
    mics_table_cell(table, "bytes");
    mics_table_bytes(table, tsv, report->bytes);
    mics_table_cell(table, "free");
    mics_table_bytes(table, tsv, report->free_bytes);
    return mics_table_finish(table, stdout, tsv, err);
}

/* Rank 0 reads the plan for all. */
static enum mics_status read_plan(const struct request *request, json_t **doc, struct mics_err *err)
{
    const char *path = request->plan ? request->plan : "-";
    struct mics_comm *comm = request->convert.comm;
    enum mics_status status = MICS_OK;

    if (comm->rank == 0) {
        status = mics_doc_read_file(path, doc, err);
        if (status == MICS_OK) {
            status = mics_doc_expect(*doc, MICS_PLAN_KIND, MICS_PLAN_VERSION, err);
            if (status != MICS_OK)
                mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
        }
    }
    status = mics_agree(comm, status, err);
    return status == MICS_OK && comm->size > 1 ? mics_broadcast_doc(comm, doc, err) : status;
}

/* Copy a plan from standard input to standard output. */
static enum mics_status copy_plan(const struct request *request, json_t *doc, struct mics_err *err)
{
    struct cli_common common = request->common;

    if (request->plan || request->convert.comm->rank > 0)
        return MICS_OK;
    common.output = NULL;
    return cli_write_document(&common, doc, request->convert.argc, request->convert.argv,
                              mics_plan_print, err);
}

static enum mics_status make_shards(struct request *request, struct mics_convert_report *report,
                                    struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = read_plan(request, &doc, err);

    if (status == MICS_OK && strcmp(request->command, "split") == 0)
        status = mics_convert_split(&request->convert, (const char *const *)request->paths,
                                    (size_t)request->path_count, doc, report, err);
    else if (status == MICS_OK)
        status = mics_convert_reshard(&request->convert, request->paths[0], doc, report, err);
    if (status == MICS_OK && !request->convert.dry_run)
        status = copy_plan(request, doc, err);
    json_decref(doc);
    return status;
}

/* Add the tokenizer of --base, or else of the checkpoint, to a file of GGUF. */
static enum mics_status add_tokenizer(void *context, uint32_t vocab_size, struct mics_gguf *gguf,
                                      struct mics_err *err)
{
    struct request *request = context;
    struct mics_disk_tokenizer tokenizer = {0};
    enum mics_status status =
        request->convert.base ? mics_disk_tokenizer_open(request->convert.base, &tokenizer, err)
                              : mics_disk_tokenizer_open_model(request->paths[0], &tokenizer, err);

    if (status == MICS_OK)
        status =
            mics_tokenizer_add_to_gguf(&tokenizer, vocab_size, gguf, &request->no_template, err);
    request->no_tokenizer = !tokenizer.tokenizer;
    mics_disk_tokenizer_close(&tokenizer);
    return status;
}

/* Rank 0 reports the result. */
static enum mics_status report_result(const struct request *request,
                                      const struct mics_convert_report *report,
                                      struct mics_err *err)
{
    const struct mics_convert_request *convert = &request->convert;
    char size[32], time[32];

    if (convert->comm->rank > 0)
        return MICS_OK;
    if (convert->dry_run)
        return print_dry(request, report, err);
    cli_note(1, "%s: %u files, %s, in %s", request->common.output, report->files,
             mics_format_bytes(report->bytes, size, sizeof size),
             mics_format_time(mics_now_s() - request->progress.begin_s, time, sizeof time));
    if (convert->format == MICS_MERGE_GGUF && request->no_tokenizer)
        cli_warn("'%s' has no tokenizer: llama.cpp takes and gives ids only; --base=FOLDER names "
                 "one",
                 request->paths[0]);
    if (convert->format == MICS_MERGE_GGUF && request->no_template)
        cli_warn("'%s' has no chat template: of those of the tokenizer none is called \"default\"",
                 request->common.output);
    if (convert->format == MICS_MERGE_HF && convert->base && report->tokenizer_files == 0)
        cli_warn("%s: has no tokenizer files", convert->base);
    return MICS_OK;
}

static enum mics_status convert(struct request *request, struct mics_err *err)
{
    struct mics_convert_report report = {.files = 0};
    enum mics_status status;

    if (strcmp(request->command, "merge") == 0)
        status = mics_convert_merge(&request->convert, request->paths[0], &report, err);
    else if (strcmp(request->command, "cast") == 0)
        status = mics_convert_cast(&request->convert, (const char *const *)request->paths,
                                   (size_t)request->path_count, &report, err);
    else
        status = make_shards(request, &report, err);
    cli_progress_clear(&request->progress);
    return status == MICS_OK ? report_result(request, &report, err) : status;
}

/* Documents of list and diff are printed: as a table, or as JSON. */
static enum mics_status print(const struct request *request, const json_t *doc,
                              cli_printer *printer, struct mics_err *err)
{
    if (request->common.json)
        return mics_doc_write(stdout, doc, MICS_DOC_JSON, err);
    return printer(stdout, doc, request->common.tsv, err);
}

static int list(struct request *request)
{
    struct mics_err err = {""};
    json_t *doc = NULL;
    enum mics_status status =
        mics_convert_list(request->paths[0], &request->diagnostics, &doc, &err);

    if (status == MICS_OK)
        status = print(request, doc, mics_tensors_print, &err);
    json_decref(doc);
    return cli_report(status, &err);
}

static enum mics_status verify(struct request *request, struct mics_err *err)
{
    struct mics_convert_report report;
    char size[32];
    enum mics_status status =
        mics_convert_verify(&request->convert, request->paths[0], &report, err);

    cli_progress_clear(&request->progress);
    if (status == MICS_OK && request->convert.comm->rank == 0)
        cli_note(1, "%s: %u files, %s: undamaged", request->paths[0], report.files,
                 mics_format_bytes(report.bytes, size, sizeof size));
    return status;
}

/* Count the ranks on this rank's node. */
static enum mics_status count_host_ranks(struct mics_convert_request *convert, struct mics_err *err)
{
    struct mics_comm *comm = convert->comm;
    enum mics_status status;
    int *nodes = mics_all_gather(comm, &comm->node, sizeof comm->node, &status, err);

    for (int i = 0; status == MICS_OK && i < comm->size; i++)
        convert->host_ranks += nodes[i] == comm->node;
    free(nodes);
    return status;
}

/* Run a command on all ranks of a launcher. */
static int run_on_all_ranks(struct request *request,
                            enum mics_status (*work)(struct request *request, struct mics_err *err))
{
    struct mics_convert_request *convert = &request->convert;
    struct mics_err err = {""};
    enum mics_status status = mics_comm_open(&convert->comm, &err);
    int code;

    if (status != MICS_OK)
        return cli_report(status, &err);
    cli_set_rank(convert->comm->rank, convert->comm->size);
    request->progress.begin_s = mics_now_s();
    if (convert->comm->rank == 0 && cli_progress_wanted()) {
        convert->progress = cli_progress_show;
        convert->progress_context = &request->progress;
    }
    status = count_host_ranks(convert, &err);
    if (status == MICS_OK)
        status = work(request, &err);
    code = cli_report(status, &err);
    if (status == MICS_ERR_COMM)
        mics_comm_abort(convert->comm, code);
    mics_comm_free(convert->comm);
    return code;
}

static void warn_about_states(const struct request *request, const json_t *doc)
{
    const json_t *states = json_object_get(doc, "states");
    const json_int_t a = json_integer_value(json_array_get(states, 0));
    const json_int_t b = json_integer_value(json_array_get(states, 1));

    if (a != b)
        cli_warn("'%s' lacks optimizer state that '%s' has: it is not compared",
                 request->paths[a < b ? 0 : 1], request->paths[a < b ? 1 : 0]);
}

static int diff(struct request *request)
{
    struct mics_err err = {""};
    json_t *doc = NULL;
    bool same = false;
    enum mics_status status = mics_convert_diff(request->paths[0], request->paths[1],
                                                &request->diagnostics, &doc, &same, &err);
    int code;

    if (status == MICS_OK) {
        warn_about_states(request, doc);
        status = print(request, doc, mics_diff_print, &err);
    }
    json_decref(doc);
    code = cli_report(status, &err);
    return code == CLI_DONE && !same ? CLI_NO_ANSWER : code;
}

/* The arguments of each command. It runs on all ranks (collective) or on rank 0 (run). */
static const struct command_spec {
    const char *command;
    int min, max; /* paths */
    bool makes, plan, dtype, cast;
    enum mics_status (*collective)(struct request *request, struct mics_err *err);
    int (*run)(struct request *request);
} command_specs[] = {
    {"split", 1, INT32_MAX, true, true, false, false, convert, NULL},
    {"merge", 1, 1, true, false, true, false, convert, NULL},
    {"reshard", 1, 1, true, true, false, false, convert, NULL},
    {"cast", 1, INT32_MAX, true, false, true, true, convert, NULL},
    {"list", 1, 1, false, false, false, false, NULL, list},
    {"verify", 1, 1, false, false, false, false, verify, NULL},
    {"diff", 2, 2, false, false, false, false, NULL, diff},
};

static const struct command_spec *find_command(const char *command)
{
    for (size_t i = 0; i < sizeof command_specs / sizeof *command_specs; i++)
        if (strcmp(command_specs[i].command, command) == 0)
            return &command_specs[i];
    return NULL;
}

/* -1: go on; else the exit code. */
static int check_options(const struct request *request, const struct command_spec *spec)
{
    const struct mics_convert_request *convert = &request->convert;

    if (spec->makes && !request->common.output)
        return cli_usage("%s: -o %s is missing", spec->command,
                         convert->format == MICS_MERGE_GGUF ? "FILE" : "FOLDER");
    if (!spec->makes && request->common.output)
        return cli_usage("%s: does not take --output", spec->command);
    if (spec->makes && strcmp(request->common.output, "-") == 0)
        return cli_usage("--output: '-' is not a %s",
                         convert->format == MICS_MERGE_GGUF ? "file" : "folder");
    if (request->plan && !spec->plan)
        return cli_usage("%s: does not take --plan", spec->command);
    if (request->has_dtype && !spec->dtype)
        return cli_usage("%s: does not take --dtype", spec->command);
    if (spec->cast && !request->has_dtype)
        return cli_usage("cast: --dtype is missing");
    if ((convert->base || request->has_file_bytes) && !spec->dtype)
        return cli_usage("%s: does not take --base or --max-file", spec->command);
    if (request->has_format && strcmp(spec->command, "merge") != 0)
        return cli_usage("%s: does not take --to", spec->command);
    if (convert->q8_0 && convert->format != MICS_MERGE_GGUF)
        return cli_usage("--dtype=q8_0: only merge --to=gguf writes it");
    if (request->has_file_bytes && convert->format != MICS_MERGE_HF)
        return cli_usage("--max-file: only of Hugging Face files");
    if (convert->base && convert->format == MICS_MERGE_DCP)
        return cli_usage("--base: merge --to=dcp writes no tokenizer's files");
    if (convert->dry_run && !spec->makes)
        return cli_usage("%s: does not take --dry-run", spec->command);
    if (spec->plan && !request->plan && isatty(STDIN_FILENO))
        return cli_usage("no plan: -p FILE, or one on standard input");
    return -1;
}

static int run(struct request *request, char **operands, int count)
{
    const struct command_spec *spec = count ? find_command(operands[0]) : NULL;
    int code;

    if (count == 0)
        return cli_usage("no command: expected split, merge, reshard, cast, list, verify or diff");
    if (!spec)
        return cli_unknown_command(operands[0]);
    request->command = spec->command;
    request->paths = operands + 1;
    request->path_count = count - 1;
    if (request->path_count < spec->min)
        return cli_usage("%s: %s", spec->command,
                         spec->min > 1 ? "two paths are required" : "a path is missing");
    if (request->path_count > spec->max)
        return cli_usage("%s: '%s': too many paths", spec->command, request->paths[spec->max]);
    code = check_options(request, spec);
    if (code >= 0)
        return code;
    request->convert.out = request->common.output;
    request->convert.no_history = request->common.no_history;
    if (spec->collective)
        return run_on_all_ranks(request, spec->collective);
    return cli_rank() == 0 ? spec->run(request) : CLI_DONE;
}

int main(int argc, char **argv)
{
    struct request request = {.diagnostics = {.report = report_problem},
                              .convert = {.dtype = MICS_STORAGE_F32,
                                          .file_bytes = MICS_HF_FILE_BYTES,
                                          .argc = argc,
                                          .argv = argv}};
    int operands, code;

    request.convert.diagnostics = &request.diagnostics;
    request.convert.add_tokenizer = add_tokenizer;
    request.convert.tokenizer_context = &request;
    cli_init(&program);
    code = cli_parse(argc, argv, &request.common, handle, &request, &operands);
    if (code < 0)
        code = run(&request, argv + operands, argc - operands);
    if (request.diagnostics.note[0] && cli_rank() == 0)
        cli_warn("%s", request.diagnostics.note);
    return cli_finish(code);
}
