/* SPDX-License-Identifier: Apache-2.0 */
#include "train_options.h"

#include "base/units.h"

#include <string.h>
#include <unistd.h>

#define MAX_SAMPLE      1000000
#define MAX_TRACE_STEPS 10000
#define DEFAULT_SKIPPED 10 /* steps in a row that are not finite */

enum {
    ID_DATA = 256,
    ID_VAL_DATA,
    ID_PACK,
    ID_BAD_LINES,
    ID_ON_NONFINITE,
    ID_SKIP_SAMPLES,
    ID_METRICS,
    ID_PROMETHEUS,
    ID_DEVICE,
    ID_TRACE_STEPS,
    ID_SETTING, /* by its name */
};

static const struct cli_option options[] = {
    {'p', "plan", "FILE", "plan (default: standard input; with --resume: from the checkpoint)",
     CLI_TO_TEXT(struct train_request, job.plan)},
    {0, "settings", "FILE", "more of these options, in JSON; those of the command line win",
     CLI_TO_TEXT(struct train_request, settings)},
    {ID_DATA, "data", "PATTERNS",
     "files to train on (text, .jsonl, tokens): shell patterns, or WEIGHT:PATTERN", CLI_TO_HANDLER},
    {ID_VAL_DATA, "val-data", "PATTERNS",
     "files to validate with, instead of a part of --data (with --eval: to evaluate)",
     CLI_TO_HANDLER},
    {0, "tokenizer", "PATH|bytes",
     "of text and JSON lines (default: the checkpoint's with --resume, else bytes)",
     CLI_TO_TEXT(struct train_request, job.tokenizer)},
    {0, "end-token", "TEXT|ID",
     "token that ends a document (default: as the tokenizer's files say)",
     CLI_TO_TEXT(struct train_request, job.end_token)},
    {0, "mask-token", "TEXT|ID",
     "token that masks others, of an encoder (default: the tokenizer's)",
     CLI_TO_TEXT(struct train_request, job.mask_token)},
    {ID_SETTING, "mask-rate", "X",
     "share of the tokens that an encoder has to predict (default: the plan's, 0.15)",
     CLI_TO_HANDLER},
    {0, "mask-whole-words", NULL, "mask all tokens of a word, or none of them",
     CLI_TO_TRUE(struct train_request, job.mask_whole_words)},
    {ID_PACK, "pack", "concat|document",
     "cut sequences from all documents, or keep documents apart (default: concat)", CLI_TO_HANDLER},
    {0, "mask-prompt", NULL, "of JSON lines, learn the answers only",
     CLI_TO_TRUE(struct train_request, job.mask_prompt)},
    {ID_BAD_LINES, "bad-lines", "skip:N",
     "skip N damaged JSON lines of each data set at most (default: none)", CLI_TO_HANDLER},
    {0, "binary", NULL, "take files as they are, whatever bytes they have",
     CLI_TO_TRUE(struct train_request, job.binary)},
    {0, "out", "FOLDER", "folder for the checkpoints (default: run)",
     CLI_TO_TEXT(struct train_request, job.out)},
    {0, "resume", "PATH|auto", "continue from a checkpoint; auto: from the latest, if any",
     CLI_TO_TEXT(struct train_request, job.resume)},
    {0, "init", "PATH", "initial parameters, from a checkpoint or a Hugging Face folder",
     CLI_TO_TEXT(struct train_request, job.init)},
    {0, "eval", NULL, "print loss and perplexity of --init on all of --data; train nothing",
     CLI_TO_TRUE(struct train_request, job.eval)},
    {0, "overwrite", NULL, "start a new run in a folder that has checkpoints",
     CLI_TO_TRUE(struct train_request, job.overwrite)},
    {0, "other-data", NULL, "resume with different data",
     CLI_TO_TRUE(struct train_request, job.other_data)},
    {ID_SETTING, "steps", "N", "steps to train in total (default: 600)", CLI_TO_HANDLER},
    {ID_SETTING, "seed", "N", "seed of parameters, order of data and sample (default: 1)",
     CLI_TO_HANDLER},
    {ID_SETTING, "lr", "RATE", "highest learning rate (default: by the model's size)",
     CLI_TO_HANDLER},
    {ID_SETTING, "min-lr", "RATE", "learning rate of the last step (default: a tenth of --lr)",
     CLI_TO_HANDLER},
    {ID_SETTING, "lr-schedule", "constant|linear|cosine|wsd", "decay to --min-lr (default: cosine)",
     CLI_TO_HANDLER},
    {ID_SETTING, "warmup", "N", "steps of warm-up (default: a tenth of --steps, at most 100)",
     CLI_TO_HANDLER},
    {ID_SETTING, "lr-decay", "N", "steps of the decay of wsd (default: a fifth of --steps)",
     CLI_TO_HANDLER},
    {ID_SETTING, "beta1", "X", "of AdamW and Lion (default: 0.9)", CLI_TO_HANDLER},
    {ID_SETTING, "beta2", "X", "of AdamW (default: 0.95) and Lion (default: 0.99)", CLI_TO_HANDLER},
    {ID_SETTING, "eps", "X", "of AdamW (default: 1e-8)", CLI_TO_HANDLER},
    {ID_SETTING, "momentum", "X", "of SGD (default: 0.9)", CLI_TO_HANDLER},
    {ID_SETTING, "weight-decay", "X", "of matrices (default: 0.1)", CLI_TO_HANDLER},
    {ID_SETTING, "clip", "NORM", "largest gradient norm (default: 1 if planned with clipping)",
     CLI_TO_HANDLER},
    {ID_SETTING, "val-fraction", "X", "fraction of each file for validation (default: 0.05)",
     CLI_TO_HANDLER},
    {ID_SETTING, "val-every", "N", "steps between validations, 0: none (default: 100)",
     CLI_TO_HANDLER},
    {ID_SETTING, "val-batches", "N", "global batches per validation (default: 8)", CLI_TO_HANDLER},
    {0, "save-every", "N", "steps between checkpoints (default: only at the end)",
     CLI_TO_U64(struct train_request, job.save_every, 0, UINT32_MAX)},
    {0, "keep", "N", "checkpoints to keep, 0: all (default: 0)",
     CLI_TO_U64(struct train_request, job.keep.last, 0, UINT32_MAX)},
    {0, "keep-every", "N", "with --keep, also keep those of every N-th step (default: 0)",
     CLI_TO_U64(struct train_request, job.keep.every, 0, UINT32_MAX)},
    {0, "discard-later", NULL,
     "at the first save, remove checkpoints of later steps that another run left",
     CLI_TO_TRUE(struct train_request, job.keep.discard_later)},
    {0, "save-failures", "N", "failed saves in a row that end the run (default: 3)",
     CLI_TO_U64(struct train_request, job.max_save_failures, 1, UINT32_MAX)},
    {0, "memory-every", "N",
     "keep states in the memory of the nodes, so that losing one costs at most N steps; 0: none "
     "(default: the plan's)",
     CLI_TO_I64(struct train_request, job.memory_every, 0, UINT32_MAX)},
    {0, "memory-copies", "N", "nodes that have each part of such a state (default: the plan's, 2)",
     CLI_TO_I64(struct train_request, job.memory_copies, 1, 64)},
    {ID_SETTING, "loss-scale", "N",
     "of a plan in fp16: a static loss scale (default: 0, a dynamic one)", CLI_TO_HANDLER},
    {ID_SETTING, "initial-loss-scale", "N", "the first dynamic loss scale (default: 65536)",
     CLI_TO_HANDLER},
    {ID_SETTING, "min-loss-scale", "N", "the least dynamic loss scale (default: 1)",
     CLI_TO_HANDLER},
    {ID_SETTING, "loss-scale-factor", "N",
     "by which the dynamic loss scale rises or falls (default: 2)", CLI_TO_HANDLER},
    {ID_SETTING, "loss-scale-window", "N",
     "steps without overflow after which it rises (default: 1000)", CLI_TO_HANDLER},
    {ID_SETTING, "hysteresis", "N", "overflows from which on it falls (default: 2)",
     CLI_TO_HANDLER},
    {ID_ON_NONFINITE, "on-nonfinite", "stop|skip|skip:N",
     "a step that is not finite ends the run, or is skipped, N in a row (default: stop; 10)",
     CLI_TO_HANDLER},
    {ID_SKIP_SAMPLES, "skip-samples", "A-B", "do not learn these samples, from 1", CLI_TO_HANDLER},
    {ID_METRICS, "metrics", "FILE|none",
     "JSON lines of all events (default: metrics.jsonl in --out)", CLI_TO_HANDLER},
    {0, "tensorboard", "FOLDER", "write event files for TensorBoard",
     CLI_TO_TEXT(struct train_request, paths.tensorboard)},
    {ID_PROMETHEUS, "prometheus", "FILE.prom",
     "keep FILE up to date for Prometheus' textfile collector", CLI_TO_HANDLER},
    {0, "log-every", "N", "steps between printed lines (default: by time)",
     CLI_TO_U64(struct train_request, log_every, 1, UINT32_MAX)},
    {0, "sample", "N", "characters to generate at the end (default: 300)",
     CLI_TO_U64(struct train_request, sample, 0, MAX_SAMPLE)},
    {0, "temperature", "X", "of the sample; 0: the most likely character (default: 0.8)",
     CLI_TO_DOUBLE(struct train_request, temperature, 0, 100)},
    {0, "trace", "FILE", "write the timeline of every rank, for Perfetto",
     CLI_TO_TEXT(struct train_request, job.trace)},
    {ID_TRACE_STEPS, "trace-steps", "A-B", "steps in the trace (default: the last three)",
     CLI_TO_HANDLER},
    {ID_DEVICE, "device", "auto|host|cuda|paced",
     "device to compute on; paced: take the predicted times only (default: auto)", CLI_TO_HANDLER},
    {0, "pace", "FILE", "with --device=paced, take the times from another plan",
     CLI_TO_TEXT(struct train_request, job.pace)},
    {0, "timeout", "SECONDS", "end the job after this time without progress (default: 60)",
     CLI_TO_DOUBLE(struct train_request, timeout, 1, 1e6)},
    {0, "notice-command", "COMMAND",
     "run it on each node every 5 s; if it exits with 0, save and stop",
     CLI_TO_TEXT(struct train_request, notice_command)},
};

const struct cli_program train_program = {
    .name = "mics-train",
    .synopsis = "[options] --data=PATTERNS",
    .summary = "Train a model according to a plan, on the ranks of this job.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_HISTORY,
};

static enum mics_status take_setting(struct train_request *request, const char *name,
                                     const char *value, struct mics_err *err)
{
    struct mics_job_options *job = &request->job;

    if (job->override_count == MICS_JOB_MAX_OVERRIDES)
        return mics_err_set(err, MICS_ERR_ARG, "too many options");
    job->overrides[job->override_count++] =
        (struct mics_train_setting_override){.name = name, .text = value};
    return mics_train_settings_set(&request->scratch, name, value, err);
}

static enum mics_status take_pattern(const char **patterns, size_t *count, const char *value,
                                     struct mics_err *err)
{
    if (*count == TRAIN_MAX_PATTERNS)
        return mics_err_set(err, MICS_ERR_ARG, "more than %d times", TRAIN_MAX_PATTERNS);
    patterns[(*count)++] = value;
    return MICS_OK;
}

static enum mics_status take_nonfinite(struct mics_job_options *job, const char *value,
                                       struct mics_err *err)
{
    job->max_nonfinite = strcmp(value, "skip") == 0 ? DEFAULT_SKIPPED : 0;
    if (strcmp(value, "skip") == 0 || strcmp(value, "stop") == 0)
        return MICS_OK;
    if (strncmp(value, "skip:", 5) == 0)
        return mics_parse_u64(value + 5, 1, UINT32_MAX, &job->max_nonfinite, err);
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of stop, skip, skip:N", value);
}

/* "A-B", or "A" for one, from 1; at most `most` of them. */
static enum mics_status take_range(const char *value, const char *what, uint64_t max, uint64_t most,
                                   uint64_t *begin, uint64_t *end, struct mics_err *err)
{
    char first[24];
    const char *dash = strchr(value, '-');
    const size_t length = dash ? (size_t)(dash - value) : strlen(value);
    enum mics_status status;

    if (length >= sizeof first)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected A-B", value);
    memcpy(first, value, length);
    first[length] = 0;
    status = mics_parse_u64(first, 1, max, begin, err);
    *end = *begin;
    if (status != MICS_OK || !dash)
        return status;
    if (mics_parse_u64(dash + 1, 1, max, end, err) == MICS_OK && *end < *begin)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': the last %s comes before the first", value,
                            what);
    return mics_parse_u64(dash + 1, *begin, most < max - *begin ? *begin + most - 1 : max, end,
                          err);
}

static enum mics_status take_device(struct mics_job_options *job, const char *value,
                                    struct mics_err *err)
{
    job->paced = strcmp(value, "paced") == 0;
    if (job->paced)
        job->kind = MICS_DEVICE_HOST;
    if (job->paced || mics_device_kind_parse(value, &job->kind, NULL) == MICS_OK)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of auto, host, cuda, paced", value);
}

/* Prometheus' collector only reads files of this ending. */
static enum mics_status take_prometheus(struct mics_run_reporter_paths *paths, const char *value,
                                        struct mics_err *err)
{
    const size_t length = strlen(value);

    if (length < 5 || strcmp(value + length - 5, ".prom") != 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "'%s': the textfile collector only reads files named *.prom", value);
    paths->prometheus = value;
    return MICS_OK;
}

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct train_request *request = context;
    struct mics_job_options *job = &request->job;
    enum mics_pack pack;

    switch (option->id) {
    case ID_DATA:
        return take_pattern(request->patterns, &job->pattern_count, value, err);
    case ID_VAL_DATA:
        return take_pattern(request->val_patterns, &job->val_pattern_count, value, err);
    case ID_PACK:
        job->pack = value;
        return mics_pack_parse(value, &pack, err);
    case ID_BAD_LINES:
        return mics_bad_lines_parse(value, &job->bad_lines, err);
    case ID_ON_NONFINITE:
        return take_nonfinite(job, value, err);
    case ID_SKIP_SAMPLES:
        return take_range(value, "sample", INT64_MAX, INT64_MAX, &job->skip_first, &job->skip_last,
                          err);
    case ID_METRICS:
        request->paths.metrics = strcmp(value, "none") == 0 ? "" : value;
        return MICS_OK;
    case ID_PROMETHEUS:
        return take_prometheus(&request->paths, value, err);
    case ID_DEVICE:
        return take_device(job, value, err);
    case ID_TRACE_STEPS:
        return take_range(value, "step", UINT32_MAX, MAX_TRACE_STEPS, &job->trace_first,
                          &job->trace_last, err);
    default: /* ID_SETTING */
        return take_setting(request, option->name, value, err);
    }
}

/* With one pattern of the data. -1: continue; else the exit code. */
static int check_files_with(const struct train_request *request, const char *option,
                            const char *pattern)
{
    const struct cli_file files[] = {
        {CLI_WRITES, "metrics", request->paths.metrics},
        {CLI_WRITES, "prometheus", request->paths.prometheus},
        {CLI_WRITES, "trace", request->job.trace},
        {CLI_READS, "plan", request->job.plan},
        {CLI_READS, "settings", request->settings},
        {CLI_READS, "pace", request->job.pace},
        {CLI_READS, "tokenizer", request->job.tokenizer},
        {CLI_READS, option, pattern},
    };

    return cli_check_files(files, sizeof files / sizeof *files);
}

static int check_files(const struct train_request *request)
{
    int code = check_files_with(request, "data", NULL);

    for (size_t i = 0; i < request->job.pattern_count && code < 0; i++)
        code = check_files_with(request, "data", request->patterns[i]);
    for (size_t i = 0; i < request->job.val_pattern_count && code < 0; i++)
        code = check_files_with(request, "val-data", request->val_patterns[i]);
    return code;
}

int train_parse(int argc, char **argv, struct train_request *request)
{
    int operands = 0;
    int code = cli_parse(argc, argv, &request->common, handle, request, &operands);

    if (code >= 0)
        return code;
    if (request->settings)
        code = cli_parse_settings(request->settings, &request->common, handle, request,
                                  &request->settings_text);
    if (code >= 0)
        return code;
    if (operands < argc)
        return cli_usage("unexpected argument '%s'; plans go with -p, file patterns in quotes",
                         argv[operands]);
    if (request->job.trace_first && !request->job.trace)
        return cli_usage("--trace-steps goes with --trace");
    if (request->job.pace && !request->job.paced)
        return cli_usage("--pace goes with --device=paced");
    if (request->job.paced && (request->job.resume || request->job.init))
        return cli_usage("--device=paced computes nothing: it cannot resume or initialise");
    if (request->job.eval && !request->job.init)
        return cli_usage("--eval needs the model: --init=PATH");
    if (request->job.eval && (request->job.resume || request->job.trace || request->job.paced))
        return cli_usage("--eval goes without --resume, --trace and --device=paced");
    if (request->job.pattern_count == 0 &&
        !(request->job.eval && request->job.val_pattern_count > 0))
        return cli_usage("--data is missing");
    if (!request->job.plan && !request->job.resume && isatty(STDIN_FILENO))
        return cli_usage("no plan: -p FILE, or one on standard input");
    if (request->job.paced)
        request->sample = 0; /* the model is not trained */
    request->job.patterns = request->patterns;
    request->job.val_patterns = request->val_patterns;
    request->job.no_history = request->common.no_history;
    return check_files(request);
}
