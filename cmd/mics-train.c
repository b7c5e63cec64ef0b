/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-train - train a model by a plan, on the ranks that it is started on.
 *
 * Every rank runs this program; rank 0 speaks for all. Here are the options, what is printed and
 * written of a run, and the exit code; the job itself is in lib/train.
 */
#include "base/clock.h"
#include "base/units.h"
#include "ckpt/agree.h"
#include "cli/cli.h"
#include "train/data_guard.h"
#include "train/desk.h"
#include "train/job.h"
#include "train/sample.h"
#include "train/signals.h"
#include "train/watchdog.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PATTERNS    256
#define MAX_SAMPLE      1000000
#define MAX_TRACE_STEPS 10000

/* The rank that fails alone lets rank 0 speak first, if it knows. */
#define FIRST_WORD_S 0.5
/* Before the first step others wait longer for it. */
#define SECOND_WORD_S 3
#define ANY_WORD_S    6

enum {
    ID_DATA = 256,
    ID_OUT,
    ID_RESUME,
    ID_INIT,
    ID_OVERWRITE,
    ID_OTHER_DATA,
    ID_SAVE_EVERY,
    ID_KEEP,
    ID_KEEP_EVERY,
    ID_METRICS,
    ID_LOG_EVERY,
    ID_SAMPLE,
    ID_TEMPERATURE,
    ID_DEVICE,
    ID_PACE,
    ID_TRACE,
    ID_TRACE_STEPS,
    ID_TIMEOUT,
    ID_SETTING, /* those below are settings, by their names */
};

static const struct cli_option options[] = {
    {'p', "plan", "FILE", "plan to train by (default: standard input; with --resume: its own)"},
    {ID_DATA, "data", "PATTERNS", "text files to train on, shell patterns separated by blanks"},
    {ID_OUT, "out", "FOLDER", "folder for the checkpoints (default: run)"},
    {ID_RESUME, "resume", "PATH|auto", "go on from a checkpoint; auto: from the latest, if any"},
    {ID_INIT, "init", "PATH",
     "begin with the parameters of a checkpoint or of a Hugging Face folder"},
    {ID_OVERWRITE, "overwrite", NULL, "begin anew in a folder that has checkpoints"},
    {ID_OTHER_DATA, "other-data", NULL, "resume on other data than before"},
    {ID_SETTING, "steps", "N", "steps to train in all (default: 600)"},
    {ID_SETTING + 1, "seed", "N", "seed of parameters, order and sample (default: 1)"},
    {ID_SETTING + 2, "lr", "RATE", "highest learning rate (default: 3e-3)"},
    {ID_SETTING + 3, "min-lr", "RATE", "learning rate of the last step (default: a tenth of --lr)"},
    {ID_SETTING + 4, "lr-schedule", "constant|linear|cosine", "its way there (default: cosine)"},
    {ID_SETTING + 5, "warmup", "N", "steps until --lr (default: a tenth of --steps, at most 100)"},
    {ID_SETTING + 6, "beta1", "X", "AdamW's (default: 0.9)"},
    {ID_SETTING + 7, "beta2", "X", "AdamW's (default: 0.95)"},
    {ID_SETTING + 8, "eps", "X", "AdamW's (default: 1e-8)"},
    {ID_SETTING + 9, "momentum", "X", "SGD's (default: 0.9)"},
    {ID_SETTING + 10, "weight-decay", "X", "of matrices (default: 0.1)"},
    {ID_SETTING + 11, "clip", "NORM", "clip the gradient (default: 1 if planned with clipping)"},
    {ID_SETTING + 12, "val-fraction", "X", "end of each file kept for validation (default: 0.05)"},
    {ID_SETTING + 13, "val-every", "N", "steps between validations, 0: none (default: 100)"},
    {ID_SETTING + 14, "val-batches", "N", "global batches of a validation (default: 8)"},
    {ID_SAVE_EVERY, "save-every", "N", "steps between checkpoints (default: only at the end)"},
    {ID_KEEP, "keep", "N", "checkpoints to keep, 0: all (default: 0)"},
    {ID_KEEP_EVERY, "keep-every", "N",
     "with --keep, keep those of every N-th step too (default: 0)"},
    {ID_METRICS, "metrics", "FILE", "write JSON lines of all that happens"},
    {ID_LOG_EVERY, "log-every", "N", "steps between lines (default: 1 on a terminal, else 10)"},
    {ID_SAMPLE, "sample", "N", "characters drawn from the model at the end (default: 300)"},
    {ID_TEMPERATURE, "temperature", "X", "of the sample; 0: the likeliest (default: 0.8)"},
    {ID_TRACE, "trace", "FILE", "write when each operation ran, on every rank, for Perfetto"},
    {ID_TRACE_STEPS, "trace-steps", "A-B", "steps in the trace (default: the last three)"},
    {ID_DEVICE, "device", "auto|host|cuda|paced", "what to compute on; paced: only take the time"},
    {ID_PACE, "pace", "FILE", "take the time that another plan's step would (--device=paced)"},
    {ID_TIMEOUT, "timeout", "SECONDS", "end the job after so long without progress (default: 60)"},
};

static const struct cli_program program = {
    .name = "mics-train",
    .synopsis = "[options] --data=PATTERNS",
    .summary = "Train a model by a plan, on the ranks of this job.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_HISTORY,
};

struct request {
    struct cli_common common;
    struct mics_job_options job;
    struct mics_settings scratch; /* values are checked here first */
    const char *patterns[MAX_PATTERNS];
    const char *metrics;
    uint64_t log_every, sample; /* log_every 0: by the terminal */
    double temperature, timeout;
};

/* What the watchdog's thread needs to end the job. */
struct guard {
    const struct mics_world *world;
    struct mics_comm *comm; /* that ends the job */
    atomic_bool ending;     /* the watchdog has spoken, and ends it */
    struct mics_watchdog *watchdog;
};

static enum mics_status take_setting(struct request *request, int id, const char *value,
                                     struct mics_err *err)
{
    struct mics_job_options *job = &request->job;
    const char *name = NULL;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].id == id)
            name = options[i].name;
    if (job->given_count == MICS_JOB_MAX_GIVEN)
        return mics_err_set(err, MICS_ERR_ARG, "too many options");
    job->given[job->given_count++] = (struct mics_given){.name = name, .text = value};
    return mics_settings_set(&request->scratch, name, value, err);
}

static enum mics_status take_pattern(struct request *request, const char *value,
                                     struct mics_err *err)
{
    if (request->job.pattern_count == MAX_PATTERNS)
        return mics_err_set(err, MICS_ERR_ARG, "more than %d times", MAX_PATTERNS);
    request->patterns[request->job.pattern_count++] = value;
    return MICS_OK;
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

/* "A-B", or "A" for one. */
static enum mics_status take_trace_steps(struct mics_job_options *job, const char *value,
                                         struct mics_err *err)
{
    char first[24];
    const char *dash = strchr(value, '-');
    const size_t length = dash ? (size_t)(dash - value) : strlen(value);
    enum mics_status status;

    if (length >= sizeof first)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected steps as A-B", value);
    memcpy(first, value, length);
    first[length] = 0;
    status = mics_parse_u64(first, 1, UINT32_MAX, &job->trace_first, err);
    job->trace_last = job->trace_first;
    if (status != MICS_OK || !dash)
        return status;
    return mics_parse_u64(dash + 1, job->trace_first, job->trace_first + MAX_TRACE_STEPS - 1,
                          &job->trace_last, err);
}

static enum mics_status handle(void *context, int id, const char *value, struct mics_err *err)
{
    struct request *request = context;
    struct mics_job_options *job = &request->job;

    switch (id) {
    case 'p':
        job->plan = value;
        return MICS_OK;
    case ID_DATA:
        return take_pattern(request, value, err);
    case ID_OUT:
        job->out = value;
        return MICS_OK;
    case ID_RESUME:
        job->resume = value;
        return MICS_OK;
    case ID_INIT:
        job->init = value;
        return MICS_OK;
    case ID_OVERWRITE:
        job->overwrite = true;
        return MICS_OK;
    case ID_OTHER_DATA:
        job->other_data = true;
        return MICS_OK;
    case ID_SAVE_EVERY:
        return mics_parse_u64(value, 0, UINT32_MAX, &job->save_every, err);
    case ID_KEEP:
        return mics_parse_u64(value, 0, UINT32_MAX, &job->keep.last, err);
    case ID_KEEP_EVERY:
        return mics_parse_u64(value, 0, UINT32_MAX, &job->keep.every, err);
    case ID_METRICS:
        request->metrics = value;
        return MICS_OK;
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
    case ID_PACE:
        job->pace = value;
        return MICS_OK;
    case ID_TRACE:
        job->trace = value;
        return MICS_OK;
    case ID_TRACE_STEPS:
        return take_trace_steps(job, value, err);
    }
    return take_setting(request, id, value, err);
}

/* -1 to go on, else the exit code. */
static int parse(int argc, char **argv, struct request *request)
{
    int operands = 0;
    int code = cli_parse(argc, argv, &request->common, handle, request, &operands);

    if (code >= 0)
        return code;
    if (operands < argc)
        return cli_usage("'%s': no operand is expected", argv[operands]);
    if (request->job.trace_first && !request->job.trace)
        return cli_usage("--trace-steps goes with --trace");
    if (request->job.pace && !request->job.paced)
        return cli_usage("--pace goes with --device=paced");
    if (request->job.paced && (request->job.resume || request->job.init))
        return cli_usage("--device=paced computes nothing: there is nothing to go on from");
    if (request->job.pattern_count == 0)
        return cli_usage("--data is missing: which text files?");
    if (!request->job.plan && !request->job.resume && isatty(STDIN_FILENO))
        return cli_usage("no plan: -p FILE, or one on standard input");
    if (request->job.paced)
        request->sample = 0; /* there is no model to draw from */
    request->job.patterns = request->patterns;
    request->job.no_history = request->common.no_history;
    return -1;
}

static enum mics_status print_sample(const struct request *request, const struct mics_job *job,
                                     struct mics_err *err)
{
    const struct mics_sample_options sample = {.count = (uint32_t)request->sample,
                                               .temperature = request->temperature,
                                               .seed = job->settings.seed,
                                               .seq = job->plan->choice.seq,
                                               .vocab_size = job->plan->model->config.vocab_size};
    char *text = malloc((size_t)sample.count + 1);
    enum mics_status status;

    if (!text)
        return mics_err_nomem(err);
    status = mics_sample(job->engine, &sample, text, err);
    if (status == MICS_OK && job->world->rank == 0) {
        mics_sample_make_printable(text);
        printf("\n%s\n", text);
    }
    free(text);
    return status;
}

static enum mics_status open_desk(struct mics_desk *desk, const struct request *request,
                                  const struct mics_job *job, struct mics_err *err)
{
    desk->out = request->common.verbosity < 0 ? NULL : stdout;
    desk->log_every = request->log_every ? request->log_every : isatty(STDOUT_FILENO) ? 1 : 10;
    if (job->settings.val_every && job->data.val_windows == 0)
        cli_warn("data: too little text for validation: there will be none");
    return mics_desk_open(desk, job, request->metrics, err);
}

static void print_note(const struct mics_device_note *note)
{
    if (note->level == 0)
        cli_warn("%s", note->text);
    else
        cli_note(note->level, "%s", note->text);
}

/* Everything before the first step. */
static enum mics_status prepare(const struct request *request, struct mics_job *job,
                                struct mics_run *run, struct mics_desk *desk, struct mics_err *err)
{
    struct mics_run_observer observer = mics_desk_observer(desk);
    enum mics_status status = mics_job_open(job, err);

    observer.note = print_note;
    if (status == MICS_OK && job->chosen.why_host.text[0])
        cli_note(1, "computing on the host: %s", job->chosen.why_host.text);
    if (status == MICS_OK)
        status = mics_job_start(job, &observer, run, err);
    if (status != MICS_OK)
        return status;
    status = mics_signals_install(program.name, job->world->rank == 0, err);
    if (status == MICS_OK)
        status = mics_data_guard(program.name, &job->data.corpus, err);
    if (status == MICS_OK && job->world->rank == 0)
        status = open_desk(desk, request, job, err);
    return mics_agree(job->control, status, err);
}

static enum mics_status write_trace(struct mics_job *job, struct mics_err *err)
{
    uint32_t steps = 0;
    enum mics_status status = mics_job_write_trace(job, &steps, err);

    if (status == MICS_OK && steps == 0 && job->world->rank == 0)
        cli_warn("%s: none of the steps to be traced was run", job->options->trace);
    return status;
}

/* In the watchdog's thread: nothing else can be hoped for. */
static void on_fault(void *context, bool speaks, const struct mics_err *err)
{
    struct guard *guard = context;

    atomic_store(&guard->ending, true);
    if (speaks)
        cli_set_rank(0, (int)guard->world->size);
    mics_watchdog_excuse(guard->watchdog);
    guard->comm->ops->abort(guard->comm, cli_report(MICS_ERR_COMM, err));
}

/* The same before the first step, when nobody knows of anybody: the first rank speaks, then another, if it is still
 * there. */
static void on_late(void *context, const struct mics_err *err)
{
    (void)context;
    if (cli_rank() != 0) {
        mics_sleep_s(cli_rank() == 1 ? SECOND_WORD_S : ANY_WORD_S);
        cli_set_rank(0, 1);
    }
    _exit(cli_report(MICS_ERR_COMM, err));
}

static enum mics_status watch(const struct request *request, const struct mics_job *job,
                              const struct mics_run *run, struct guard *guard, struct mics_err *err)
{
    const struct mics_watchdog_options watching = {.world = job->world,
                                                   .engine = job->engine,
                                                   .run = run,
                                                   .timeout_s = request->timeout,
                                                   .fault = on_fault,
                                                   .context = guard};

    guard->world = job->world;
    guard->comm = job->comm;
    return mics_agree(job->control, mics_watchdog_start(&watching, &guard->watchdog, err), err);
}

static void end_startup(struct request *request)
{
    mics_startup_end(request->job.startup);
    request->job.startup = NULL;
}

static enum mics_status train(struct request *request, struct mics_job *job, struct mics_run *run,
                              struct mics_desk *desk, struct guard *guard, enum mics_run_end *end,
                              struct mics_err *err)
{
    enum mics_status status = prepare(request, job, run, desk, err);

    if (status == MICS_OK)
        status = watch(request, job, run, guard, err);
    end_startup(request);
    if (status == MICS_OK)
        status = mics_run_steps(run, end, err);
    if (status == MICS_OK && job->options->trace)
        status = write_trace(job, err);
    if (status == MICS_OK && *end == MICS_RUN_DONE && request->sample)
        status = mics_run_alone(run, print_sample(request, job, err));
    if (status == MICS_OK && job->world->rank == 0)
        status = mics_desk_end(desk, *end, err);
    if (status == MICS_OK && *end == MICS_RUN_STOPPED)
        cli_warn("stopped after step %llu as asked; --resume=%s goes on",
                 (unsigned long long)run->step, job->out);
    return status;
}

/* A failure that the others may not know of ends the job at once. If the watchdog is ending it, this is what comes of
 * that, and nothing to talk about. */
static int give_up(const struct mics_job *job, struct guard *guard, enum mics_status status,
                   const struct mics_err *err)
{
    struct mics_comm *comm = job->comm ? job->comm : job->world->comm;

    while (atomic_load(&guard->ending))
        mics_sleep_s(1);
    mics_watchdog_excuse(guard->watchdog);
    if (job->world->rank != 0) {
        mics_sleep_s(FIRST_WORD_S);
        cli_set_rank(0, (int)job->world->size);
    }
    int code = cli_report(status, err);
    comm->ops->abort(comm, code);
    _exit(code);
}

static int run_job(struct request *request)
{
    struct mics_job job;
    struct mics_run run = {0};
    struct mics_desk desk = {.run = &run};
    struct guard guard = {0};
    enum mics_run_end end = MICS_RUN_DONE;
    struct mics_err err = {""};
    enum mics_status status, closed;
    int code;

    status = mics_startup_begin(request->timeout, "joining the other ranks", on_late, NULL,
                                &request->job.startup, &err);
    if (status != MICS_OK)
        return cli_report(status, &err);
    status = mics_job_join(&job, &request->job, &err);
    if (status == MICS_OK) {
        cli_set_rank((int)job.world->rank, (int)job.world->size);
        status = train(request, &job, &run, &desk, &guard, &end, &err);
    }
    end_startup(request);
    if (status != MICS_OK && run.alone)
        return give_up(&job, &guard, status, &err);
    mics_watchdog_stop(guard.watchdog);
    closed = mics_desk_close(&desk, status == MICS_OK ? &err : NULL);
    code = cli_report(status == MICS_OK ? closed : status, &err);
    mics_run_fini(&run);
    mics_job_close(&job);
    return code == CLI_DONE && end == MICS_RUN_STOPPED ? CLI_STOPPED : code;
}

int main(int argc, char **argv)
{
    struct request request = {
        .job = {.out = "run", .argc = argc, .argv = argv},
        .scratch = mics_settings_default(),
        .sample = 300,
        .temperature = 0.8,
        .timeout = 60,
    };
    int code;

    cli_init(&program);
    code = parse(argc, argv, &request);
    if (code < 0)
        code = run_job(&request);
    return cli_finish(code);
}
