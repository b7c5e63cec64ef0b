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
    ID_TOKENIZER,
    ID_PACK,
    ID_MASK_PROMPT,
    ID_BAD_LINES,
    ID_BINARY,
    ID_OUT,
    ID_RESUME,
    ID_INIT,
    ID_OVERWRITE,
    ID_EVAL,
    ID_OTHER_DATA,
    ID_SAVE_EVERY,
    ID_KEEP,
    ID_KEEP_EVERY,
    ID_DISCARD_LATER,
    ID_SAVE_FAILURES,
    ID_MEMORY_EVERY,
    ID_MEMORY_COPIES,
    ID_ON_NONFINITE,
    ID_SKIP_SAMPLES,
    ID_METRICS,
    ID_TENSORBOARD,
    ID_PROMETHEUS,
    ID_LOG_EVERY,
    ID_SAMPLE,
    ID_TEMPERATURE,
    ID_DEVICE,
    ID_PACE,
    ID_END_TOKEN,
    ID_TRACE,
    ID_TRACE_STEPS,
    ID_TIMEOUT,
    ID_NOTICE_COMMAND,
    ID_SETTING, /* from here on: settings, identified by name */
};

static const struct cli_option options[] = {
    {'p', "plan", "FILE", "plan (default: standard input; with --resume: from the checkpoint)"},
    {ID_DATA, "data", "PATTERNS",
     "files to train on (text, .jsonl, tokens): shell patterns, or WEIGHT:PATTERN"},
    {ID_VAL_DATA, "val-data", "PATTERNS",
     "files to validate with, instead of a part of --data (with --eval: to evaluate)"},
    {ID_TOKENIZER, "tokenizer", "PATH|bytes",
     "of text and JSON lines (default: the checkpoint's with --resume, else bytes)"},
    {ID_END_TOKEN, "end-token", "TEXT|ID",
     "token that ends a document (default: as the tokenizer's files say)"},
    {ID_PACK, "pack", "concat|document",
     "cut sequences from all documents, or keep documents apart (default: concat)"},
    {ID_MASK_PROMPT, "mask-prompt", NULL, "of JSON lines, learn the answers only"},
    {ID_BAD_LINES, "bad-lines", "skip:N",
     "skip N damaged JSON lines of each data set at most (default: none)"},
    {ID_BINARY, "binary", NULL, "take files as they are, whatever bytes they have"},
    {ID_OUT, "out", "FOLDER", "folder for the checkpoints (default: run)"},
    {ID_RESUME, "resume", "PATH|auto", "continue from a checkpoint; auto: from the latest, if any"},
    {ID_INIT, "init", "PATH", "initial parameters, from a checkpoint or a Hugging Face folder"},
    {ID_EVAL, "eval", NULL, "print loss and perplexity of --init on all of --data; train nothing"},
    {ID_OVERWRITE, "overwrite", NULL, "start a new run in a folder that has checkpoints"},
    {ID_OTHER_DATA, "other-data", NULL, "resume with different data"},
    {ID_SETTING, "steps", "N", "steps to train in total (default: 600)"},
    {ID_SETTING + 1, "seed", "N", "seed of parameters, order of data and sample (default: 1)"},
    {ID_SETTING + 2, "lr", "RATE", "highest learning rate (default: by the model's size)"},
    {ID_SETTING + 3, "min-lr", "RATE", "learning rate of the last step (default: a tenth of --lr)"},
    {ID_SETTING + 4, "lr-schedule", "constant|linear|cosine|wsd",
     "decay to --min-lr (default: cosine)"},
    {ID_SETTING + 5, "warmup", "N", "steps of warm-up (default: a tenth of --steps, at most 100)"},
    {ID_SETTING + 6, "lr-decay", "N", "steps of the decay of wsd (default: a fifth of --steps)"},
    {ID_SETTING + 7, "beta1", "X", "of AdamW and Lion (default: 0.9)"},
    {ID_SETTING + 8, "beta2", "X", "of AdamW (default: 0.95) and Lion (default: 0.99)"},
    {ID_SETTING + 9, "eps", "X", "of AdamW (default: 1e-8)"},
    {ID_SETTING + 10, "momentum", "X", "of SGD (default: 0.9)"},
    {ID_SETTING + 11, "weight-decay", "X", "of matrices (default: 0.1)"},
    {ID_SETTING + 12, "clip", "NORM",
     "largest gradient norm (default: 1 if planned with clipping)"},
    {ID_SETTING + 13, "val-fraction", "X", "fraction of each file for validation (default: 0.05)"},
    {ID_SETTING + 14, "val-every", "N", "steps between validations, 0: none (default: 100)"},
    {ID_SETTING + 15, "val-batches", "N", "global batches per validation (default: 8)"},
    {ID_SAVE_EVERY, "save-every", "N", "steps between checkpoints (default: only at the end)"},
    {ID_KEEP, "keep", "N", "checkpoints to keep, 0: all (default: 0)"},
    {ID_KEEP_EVERY, "keep-every", "N",
     "with --keep, also keep those of every N-th step (default: 0)"},
    {ID_DISCARD_LATER, "discard-later", NULL,
     "at the first save, remove checkpoints of later steps that another run left"},
    {ID_SAVE_FAILURES, "save-failures", "N", "failed saves in a row that end the run (default: 3)"},
    {ID_MEMORY_EVERY, "memory-every", "N",
     "keep states in the memory of the nodes, so that losing one costs at most N steps; 0: none "
     "(default: the plan's)"},
    {ID_MEMORY_COPIES, "memory-copies", "N",
     "nodes that have each part of such a state (default: the plan's, 2)"},
    {ID_ON_NONFINITE, "on-nonfinite", "stop|skip|skip:N",
     "a step that is not finite ends the run, or is skipped, N in a row (default: stop; 10)"},
    {ID_SKIP_SAMPLES, "skip-samples", "A-B", "do not learn these samples, from 1"},
    {ID_METRICS, "metrics", "FILE|none",
     "JSON lines of all events (default: metrics.jsonl in --out)"},
    {ID_TENSORBOARD, "tensorboard", "FOLDER", "write event files for TensorBoard"},
    {ID_PROMETHEUS, "prometheus", "FILE.prom",
     "keep FILE up to date for Prometheus' textfile collector"},
    {ID_LOG_EVERY, "log-every", "N", "steps between printed lines (default: by time)"},
    {ID_SAMPLE, "sample", "N", "characters to generate at the end (default: 300)"},
    {ID_TEMPERATURE, "temperature", "X",
     "of the sample; 0: the most likely character (default: 0.8)"},
    {ID_TRACE, "trace", "FILE", "write the timeline of every rank, for Perfetto"},
    {ID_TRACE_STEPS, "trace-steps", "A-B", "steps in the trace (default: the last three)"},
    {ID_DEVICE, "device", "auto|host|cuda|paced",
     "device to compute on; paced: take the predicted times only (default: auto)"},
    {ID_PACE, "pace", "FILE", "with --device=paced, take the times from another plan"},
    {ID_TIMEOUT, "timeout", "SECONDS",
     "end the job after this time without progress (default: 60)"},
    {ID_NOTICE_COMMAND, "notice-command", "COMMAND",
     "run it on each node every 5 s; if it exits with 0, save and stop"},
};

const struct cli_program train_program = {
    .name = "mics-train",
    .synopsis = "[options] --data=PATTERNS",
    .summary = "Train a model according to a plan, on the ranks of this job.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_HISTORY,
};

static enum mics_status take_setting(struct train_request *request, int id, const char *value,
                                     struct mics_err *err)
{
    struct mics_job_options *job = &request->job;
    const char *name = NULL;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].id == id)
            name = options[i].name;
    if (job->override_count == MICS_JOB_MAX_OVERRIDES)
        return mics_err_set(err, MICS_ERR_ARG, "too many options");
    job->overrides[job->override_count++] =
        (struct mics_setting_override){.name = name, .text = value};
    return mics_settings_set(&request->scratch, name, value, err);
}

static enum mics_status take_pattern(const char **patterns, size_t *count, const char *value,
                                     struct mics_err *err)
{
    if (*count == TRAIN_MAX_PATTERNS)
        return mics_err_set(err, MICS_ERR_ARG, "more than %d times", TRAIN_MAX_PATTERNS);
    patterns[(*count)++] = value;
    return MICS_OK;
}

/* What to train on, and how sequences are made of it. */
static enum mics_status take_data(struct train_request *request, int id, const char *value,
                                  struct mics_err *err)
{
    struct mics_job_options *job = &request->job;
    enum mics_pack pack;

    if (id == ID_DATA)
        return take_pattern(request->patterns, &job->pattern_count, value, err);
    if (id == ID_VAL_DATA)
        return take_pattern(request->val_patterns, &job->val_pattern_count, value, err);
    if (id == ID_BAD_LINES)
        return mics_bad_lines_parse(value, &job->bad_lines, err);
    if (id == ID_BINARY)
        job->binary = true;
    else if (id == ID_TOKENIZER)
        job->tokenizer = value;
    else if (id == ID_END_TOKEN)
        job->end_token = value;
    else if (id == ID_PACK)
        job->pack = value;
    else
        job->mask_prompt = true;
    return id == ID_PACK ? mics_pack_parse(value, &pack, err) : MICS_OK;
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

static enum mics_status take_memory(struct mics_job_options *job, int id, const char *value,
                                    struct mics_err *err)
{
    const bool every = id == ID_MEMORY_EVERY;
    uint64_t number = 0;
    const enum mics_status status =
        mics_parse_u64(value, every ? 0 : 1, every ? UINT32_MAX : 64, &number, err);

    *(every ? &job->memory_every : &job->memory_copies) = (int64_t)number;
    return status;
}

/* When checkpoints are written, which are kept, and what a run survives. */
static enum mics_status take_save(struct mics_job_options *job, int id, const char *value,
                                  struct mics_err *err)
{
    switch (id) {
    case ID_SAVE_EVERY:
        return mics_parse_u64(value, 0, UINT32_MAX, &job->save_every, err);
    case ID_KEEP:
        return mics_parse_u64(value, 0, UINT32_MAX, &job->keep.last, err);
    case ID_KEEP_EVERY:
        return mics_parse_u64(value, 0, UINT32_MAX, &job->keep.every, err);
    case ID_SAVE_FAILURES:
        return mics_parse_u64(value, 1, UINT32_MAX, &job->max_save_failures, err);
    case ID_MEMORY_EVERY:
    case ID_MEMORY_COPIES:
        return take_memory(job, id, value, err);
    case ID_ON_NONFINITE:
        return take_nonfinite(job, value, err);
    case ID_SKIP_SAMPLES:
        return take_range(value, "sample", INT64_MAX, INT64_MAX, &job->skip_first, &job->skip_last,
                          err);
    default: /* ID_DISCARD_LATER */
        job->keep.discard_later = true;
        return MICS_OK;
    }
}

static enum mics_status take_device(struct mics_job_options *job, const char *value,
                                    struct mics_err *err)
{
    job->paced = strcmp(value, "paced") == 0;
    if (job->paced)
        job->kind = MICS_DEVICE_HOST;
    if (job->paced || mics_device_kind_parse(value, &job->kind))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of auto, host, cuda, paced", value);
}

/* Prometheus' collector only reads files of this ending. */
static enum mics_status take_output(struct mics_run_reporter_paths *paths, int id,
                                    const char *value, struct mics_err *err)
{
    const size_t length = strlen(value);

    if (id == ID_METRICS)
        paths->metrics = strcmp(value, "none") == 0 ? "" : value;
    else if (id == ID_TENSORBOARD)
        paths->tensorboard = value;
    else if (length < 5 || strcmp(value + length - 5, ".prom") != 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "'%s': the textfile collector only reads files named *.prom", value);
    else
        paths->prometheus = value;
    return MICS_OK;
}

/* Where the text of an option is kept as it is; NULL: it is parsed. */
static const char **text_of(struct train_request *request, int id)
{
    switch (id) {
    case 'p':
        return &request->job.plan;
    case ID_OUT:
        return &request->job.out;
    case ID_RESUME:
        return &request->job.resume;
    case ID_INIT:
        return &request->job.init;
    case ID_PACE:
        return &request->job.pace;
    case ID_TRACE:
        return &request->job.trace;
    case ID_NOTICE_COMMAND:
        return &request->notice_command;
    default:
        return NULL;
    }
}

static enum mics_status handle(void *context, int id, const char *value, struct mics_err *err)
{
    struct train_request *request = context;
    struct mics_job_options *job = &request->job;
    const char **text = text_of(request, id);

    if (text) {
        *text = value;
        return MICS_OK;
    }
    switch (id) {
    case ID_DATA:
    case ID_VAL_DATA:
    case ID_TOKENIZER:
    case ID_END_TOKEN:
    case ID_PACK:
    case ID_MASK_PROMPT:
    case ID_BAD_LINES:
    case ID_BINARY:
        return take_data(request, id, value, err);
    case ID_EVAL:
    case ID_OVERWRITE:
    case ID_OTHER_DATA:
        *(id == ID_EVAL        ? &job->eval
          : id == ID_OVERWRITE ? &job->overwrite
                               : &job->other_data) = true;
        return MICS_OK;
    case ID_SAVE_EVERY:
    case ID_KEEP:
    case ID_KEEP_EVERY:
    case ID_SAVE_FAILURES:
    case ID_MEMORY_EVERY:
    case ID_MEMORY_COPIES:
    case ID_DISCARD_LATER:
    case ID_ON_NONFINITE:
    case ID_SKIP_SAMPLES:
        return take_save(job, id, value, err);
    case ID_METRICS:
    case ID_TENSORBOARD:
    case ID_PROMETHEUS:
        return take_output(&request->paths, id, value, err);
    case ID_LOG_EVERY:
        return mics_parse_u64(value, 1, UINT32_MAX, &request->log_every, err);
    case ID_SAMPLE:
        return mics_parse_u64(value, 0, MAX_SAMPLE, &request->sample, err);
    case ID_TEMPERATURE:
        return mics_parse_double(value, 0, 100, &request->temperature, err);
    case ID_TIMEOUT:
        return mics_parse_double(value, 1, 1e6, &request->timeout, err);
    case ID_DEVICE:
        return take_device(job, value, err);
    case ID_TRACE_STEPS:
        return take_range(value, "step", UINT32_MAX, MAX_TRACE_STEPS, &job->trace_first,
                          &job->trace_last, err);
    }
    return take_setting(request, id, value, err);
}

int train_parse(int argc, char **argv, struct train_request *request)
{
    int operands = 0;
    int code = cli_parse(argc, argv, &request->common, handle, request, &operands);

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
    return -1;
}
