/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-train - trains a model by a plan, on the ranks that it is started on.
 *
 * Every rank runs this program; rank 0 reports for all. This file decides what is printed, how the
 * job ends after a failure, and the exit code. The options are in train_options.c, the job itself
 * is in lib/train.
 */
#include "train_options.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "data/corpus.h"
#include "report/flights.h"
#include "train/job_memory.h"
#include "train/report/run_reporter.h"
#include "train/sample.h"
#include "train/watch/flight.h"
#include "train/watch/notice.h"
#include "train/watch/signals.h"
#include "train/watch/startup_watchdog.h"
#include "train/watch/watchdog.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long other ranks wait for rank 0 to report a failure and end the job: after a failure of
 * their own, and when the time of the start is over. */
#define LOCAL_FAILURE_DELAY_S 0.5
#define STARTUP_RANK1_DELAY_S 3
#define STARTUP_OTHER_DELAY_S 6

/* --notice-command: how often it runs, and for how long at most. */
#define NOTICE_EVERY_S 5
#define NOTICE_LIMIT_S 5

/* What is needed to end the job from any thread. */
struct abort_context {
    struct mics_comm *comm;
    struct mics_watchdog *watchdog;
    struct mics_flight *flight;
    const char *out;
    atomic_bool aborting; /* a thread is ending the job, and reports why */
};

/* The other ranks wait for rank 0, so that the watchdogs of all report a rank that dies. */
static enum mics_status print_sample(const struct train_request *request,
                                     const struct mics_job *job, struct mics_run *run,
                                     struct mics_err *err)
{
    char note[256], *text = NULL;

    run->generating = true;
    enum mics_status status = mics_sample_generate(job, (uint32_t)request->sample,
                                                   request->temperature, &text, note, err);
    if (note[0])
        cli_warn("%s", note);
    if (text)
        printf("\n%s\n", text);
    free(text);
    return status == MICS_OK ? mics_agree(job->control, status, err) : status;
}

/* Files of tokens do not say what text they are of. */
static bool can_decode(const struct mics_job *job)
{
    for (size_t i = 0; !job->tokenizer.tokenizer && i < job->data.source_count; i++)
        if (job->data.sources[i].content == MICS_CONTENT_TOKENS)
            return false;
    return true;
}

static void print_warning(const char *text)
{
    cli_warn("%s", text);
}

/* Damaged JSON lines that were skipped, and the first of them. */
static void report_bad_lines(const struct mics_data *data)
{
    const struct mics_source *source = data->sources;

    if (data->bad_lines == 0)
        return;
    while (source->encoded.bad_lines.count == 0)
        source++;
    cli_warn("data: skipped %llu damaged line%s: %s", (unsigned long long)data->bad_lines,
             data->bad_lines == 1 ? "" : "s", source->encoded.bad_lines.shown[0]);
}

static enum mics_status open_reporter(struct mics_run_reporter *reporter,
                                      const struct train_request *request,
                                      const struct mics_job *job, struct mics_err *err)
{
    reporter->out = request->common.verbosity < 0 ? NULL : stdout;
    reporter->is_terminal = cli_is_terminal(STDOUT_FILENO);
    reporter->verbose = request->common.verbosity > 0;
    reporter->log_every = request->log_every;
    reporter->warn = print_warning;
    if (job->settings.val_every && job->settings.val_fraction > 0 && job->data.val_windows == 0)
        cli_warn("data: too little text for validation: there will be none");
    if (job->data.special)
        cli_warn("data: special tokens in the text (%llu) are taken as ordinary text",
                 (unsigned long long)job->data.special);
    report_bad_lines(&job->data);
    return mics_run_reporter_open(reporter, job, &request->paths, err);
}

static void print_note(const struct mics_device_note *note)
{
    if (note->level == 0)
        cli_warn("%s", note->text);
    else
        cli_note(note->level, "%s", note->text);
}

/* Everything before the first step, except the watchdog. */
static enum mics_status prepare(const struct train_request *request, struct mics_job *job,
                                struct mics_run *run, struct mics_run_reporter *reporter,
                                struct mics_err *err)
{
    struct mics_run_observer observer = mics_run_reporter_observer(reporter);
    enum mics_status status = mics_job_open(job, err);

    observer.note = print_note;
    if (status == MICS_OK && job->chosen.why_host.text[0])
        cli_note(1, "computing on the host: %s", job->chosen.why_host.text);
    if (status == MICS_OK)
        status = mics_job_start(job, &observer, run, err);
    if (job->world && job->world->rank == 0 && run->start.note[0])
        cli_warn("%s", run->start.note);
    if (status != MICS_OK)
        return status;
    if (job->options->eval)
        return mics_agree(
            job->control,
            mics_handle_sigbus(mics_data_find_path, &job->data, train_program.name, err), err);
    status = mics_signals_install(train_program.name, job->world->rank == 0, err);
    if (status == MICS_OK)
        status = mics_handle_sigbus(mics_data_find_path, &job->data, train_program.name, err);
    if (job->lock.method == MICS_LOCK_OWNER)
        cli_warn("%s: the file system has no locks: '%s' keeps other runs out", job->out,
                 job->lock.path);
    for (size_t i = 0; i < 2; i++)
        if (job->world->rank == 0 && job->memory.note[i][0])
            cli_warn("%s", job->memory.note[i]);
    if (status == MICS_OK && job->world->rank == 0)
        status = open_reporter(reporter, request, job, err);
    return mics_agree(job->control, status, err);
}

static enum mics_status write_trace(struct mics_job *job, struct mics_err *err)
{
    uint32_t steps = 0;
    enum mics_status status = mics_job_write_trace(job, &steps, err);

    if (status != MICS_OK)
        return status;
    if (steps == 0 && job->world->rank == 0)
        cli_warn("%s: none of the steps to trace was run", job->options->trace);
    return status;
}

/* Report why the job ends, by the thread that is the first to end it. */
static int report_end(const struct abort_context *context, enum mics_status status,
                      const struct mics_err *fault)
{
    struct mics_err shown = *fault;

    if (mics_flight_wait(context->flight) && status == MICS_ERR_COMM)
        mics_err_set(&shown, status, "%s (which rank waited for which: mics-show %s/%s)",
                     fault->text, context->out, MICS_FLIGHT_FOLDER);
    mics_watchdog_expect_exit(context->watchdog);
    return cli_report(status, &shown);
}

/* In the watchdog's thread, while other threads may be blocked for ever. */
static void on_fault(void *context, bool reports, const struct mics_err *fault)
{
    struct abort_context *abort_context = context;

    if (atomic_exchange(&abort_context->aborting, true))
        return;
    if (reports)
        cli_enable_reporting();
    mics_comm_abort(abort_context->comm, report_end(abort_context, MICS_ERR_COMM, fault));
}

/* In the start-up watchdog's thread. Without heartbeats the ranks do not know of each other: rank 0
 * reports, and another rank only if it has not been killed until then. */
static void on_startup_fault(void *context, const struct mics_err *err)
{
    (void)context;
    if (cli_rank() != 0) {
        mics_sleep_s(cli_rank() == 1 ? STARTUP_RANK1_DELAY_S : STARTUP_OTHER_DELAY_S);
        cli_enable_reporting();
    }
    _exit(cli_report(MICS_ERR_COMM, err));
}

/* An evaluation writes nothing, and has no folder. */
static enum mics_status open_flight(const struct mics_job *job, const struct mics_run *run,
                                    struct abort_context *context, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (job->options->eval)
        return MICS_OK;
    context->out = job->out;
    if (job->world->rank == 0)
        status = mics_flight_clear(job->out, err);
    if (status == MICS_OK)
        status = mics_flight_open(job->world, job->engine, run, job->out, &context->flight, err);
    return mics_agree(job->control, status, err);
}

static enum mics_status start_watchdog(const struct train_request *request,
                                       const struct mics_job *job, const struct mics_run *run,
                                       struct abort_context *context, struct mics_err *err)
{
    const struct mics_watchdog_options options = {.world = job->world,
                                                  .engine = job->engine,
                                                  .run = run,
                                                  .flight = context->flight,
                                                  .timeout_s = request->timeout,
                                                  .on_fault = on_fault,
                                                  .context = context};

    context->comm = job->comm;
    return mics_agree(job->control, mics_watchdog_start(&options, &context->watchdog, err), err);
}

/* A node's notice stops the whole job, so the rank that has it says so whatever its number. */
static void on_notice(void *context, const char *text)
{
    const struct mics_job *job = context;
    const struct mics_world *world = job->world;

    cli_enable_reporting();
    cli_warn("%s: notice: %s", world->host_of_node[world->node], text[0] ? text : "(no reason)");
    mics_signals_request_stop();
}

static void on_notice_problem(void *context, const char *text)
{
    (void)context;
    cli_warn("--notice-command: %s", text);
}

/* One rank of each node asks. */
static enum mics_status start_notice(const struct train_request *request, struct mics_job *job,
                                     struct mics_notice **out, struct mics_err *err)
{
    const struct mics_notice_options options = {.command = request->notice_command,
                                                .every_s = NOTICE_EVERY_S,
                                                .limit_s = NOTICE_LIMIT_S,
                                                .on_notice = on_notice,
                                                .on_problem = on_notice_problem,
                                                .context = job};
    enum mics_status status = MICS_OK;

    if (request->notice_command && job->world->local_rank == 0)
        status = mics_notice_start(&options, out, err);
    return mics_agree(job->control, status, err);
}

static void stop_startup_watchdog(struct train_request *request)
{
    mics_startup_watchdog_stop(request->job.startup);
    request->job.startup = NULL;
}

static enum mics_status evaluate(const struct mics_job *job, struct mics_run *run,
                                 struct mics_err *err)
{
    struct mics_eval eval = {0};
    enum mics_status status = mics_run_eval(run, &eval, err);

    if (status != MICS_OK)
        return status;
    if (job->world->rank != 0)
        return MICS_OK;
    printf("loss %.6f, perplexity %.6g", eval.loss, exp(eval.loss));
    if (!isnan(eval.accuracy))
        printf(", masked accuracy %.6f", eval.accuracy);
    printf(", of %.0f tokens in %.1f s (%.0f tokens/s)\n", eval.targets, eval.seconds,
           eval.targets / eval.seconds);
    return status;
}

static enum mics_status train(struct train_request *request, struct mics_job *job,
                              struct mics_run *run, struct mics_run_reporter *reporter,
                              struct abort_context *context, enum mics_run_end *end,
                              struct mics_err *err)
{
    struct mics_notice *notice = NULL;
    enum mics_status status = prepare(request, job, run, reporter, err);

    if (status == MICS_OK)
        status = open_flight(job, run, context, err);
    if (status == MICS_OK)
        status = start_watchdog(request, job, run, context, err);
    stop_startup_watchdog(request);
    if (status == MICS_OK && request->job.eval)
        return evaluate(job, run, err);
    if (status == MICS_OK)
        status = start_notice(request, job, &notice, err);
    if (status == MICS_OK)
        status = mics_run_steps(run, end, err);
    mics_notice_stop(notice);
    if (status == MICS_OK && job->options->trace)
        status = write_trace(job, err);
    if (status == MICS_OK && *end == MICS_RUN_DONE && request->sample && can_decode(job))
        status = mics_run_mark_local(run, print_sample(request, job, run, err));
    if (status == MICS_OK && job->world->rank == 0)
        status = mics_run_reporter_end(reporter, *end, err);
    if (status == MICS_OK)
        mics_job_remove_memory(job);
    if (status == MICS_OK && *end == MICS_RUN_STOPPED)
        cli_warn("stopped after step %llu as requested; continue with --resume=%s",
                 (unsigned long long)run->step, job->out);
    return status;
}

/* End the job after a failure that the other ranks may not know of. If the watchdog is ending the
 * job already, the failure is a consequence of that and is not reported. */
static int abort_job(const struct mics_job *job, struct abort_context *context,
                     enum mics_status status, const struct mics_err *err)
{
    const struct mics_world *world = job->world;
    struct mics_comm *comm = job->comm ? job->comm : world->comm;
    struct mics_err shown = *err;

    mics_flight_write(context->flight,
                      status == MICS_ERR_PEER ? MICS_FLIGHT_PEER : MICS_FLIGHT_FAILURE, err->text,
                      NULL, 0);
    while (atomic_exchange(&context->aborting, true))
        mics_sleep_s(1);
    if (world->rank != 0) {
        mics_sleep_s(LOCAL_FAILURE_DELAY_S);
        cli_enable_reporting();
    }
    if (status == MICS_ERR_COMM)
        mics_err_prefix(&shown, "rank %u (%s)", world->rank, world->host_of_node[world->node]);
    const int code = report_end(context, status, &shown);
    mics_comm_abort(comm, code);
    _exit(code);
}

static int run_job(struct train_request *request)
{
    struct mics_job job;
    struct mics_run run = {0};
    struct mics_run_reporter reporter = {.run = &run};
    struct abort_context context = {0};
    enum mics_run_end end = MICS_RUN_DONE;
    struct mics_err err = {""};
    enum mics_status status;
    int code;

    status = request->job.eval ? MICS_OK : mics_signals_catch_save(&err);
    if (status == MICS_OK)
        status = mics_startup_watchdog_start(request->timeout, "joining the other ranks",
                                             on_startup_fault, NULL, &request->job.startup, &err);
    if (status != MICS_OK)
        return cli_fail_start(status, &err);
    status = mics_job_join(&job, &request->job, &err);
    if (status != MICS_OK) {
        stop_startup_watchdog(request);
        code = cli_fail_start(status, &err);
        mics_job_close(&job);
        return code;
    }
    cli_set_rank((int)job.world->rank, (int)job.world->size);
    mics_startup_watchdog_join(request->job.startup, job.world);
    status = train(request, &job, &run, &reporter, &context, &end, &err);
    stop_startup_watchdog(request);
    if (status != MICS_OK && run.local_failure)
        return abort_job(&job, &context, status, &err);
    mics_watchdog_stop(context.watchdog);
    mics_flight_remove(context.flight);
    mics_flight_close(context.flight);
    mics_run_reporter_close(&reporter);
    code = cli_report(status, &err);
    mics_run_fini(&run);
    mics_job_close(&job);
    return code == CLI_DONE && end == MICS_RUN_STOPPED ? CLI_STOPPED : code;
}

int main(int argc, char **argv)
{
    struct train_request request = {
        .job = {.out = "run",
                .max_save_failures = 3,
                .memory_every = -1,
                .memory_copies = -1,
                .argc = argc,
                .argv = argv},
        .scratch = mics_train_settings_default(),
        .sample = 300,
        .temperature = 0.8,
        .timeout = 60,
    };
    int code;

    cli_init(&train_program);
    code = train_parse(argc, argv, &request);
    if (code < 0)
        code = run_job(&request);
    json_decref(request.settings_text);
    return cli_finish(code);
}
