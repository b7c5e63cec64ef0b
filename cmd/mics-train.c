/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-train - train a model by a plan, on the ranks that it is started on.
 *
 * Every rank runs this program; rank 0 speaks for all. Here are what is printed and written of a run, and the exit
 * code; the options are in train_options.c, the job itself is in lib/train.
 */
#include "train_options.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "data/corpus.h"
#include "train/report/run_reporter.h"
#include "train/sample.h"
#include "train/watch/signals.h"
#include "train/watch/watchdog.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* The rank that fails alone lets rank 0 speak first, if it knows. */
#define FIRST_WORD_S 0.5
/* Before the first step others wait longer for it. */
#define SECOND_WORD_S 3
#define ANY_WORD_S    6

/* What the watchdog's thread needs to end the job. */
struct guard {
    const struct mics_world *world;
    struct mics_comm *comm; /* that ends the job */
    atomic_bool ending;     /* the watchdog has spoken, and ends it */
    struct mics_watchdog *watchdog;
};

static enum mics_status print_sample(const struct train_request *request,
                                     const struct mics_job *job, struct mics_err *err)
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

static enum mics_status open_desk(struct mics_desk *desk, const struct train_request *request,
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
static enum mics_status prepare(const struct train_request *request, struct mics_job *job,
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
    status = mics_signals_install(train_program.name, job->world->rank == 0, err);
    if (status == MICS_OK)
        status = mics_data_guard(train_program.name, &job->data.corpus, err);
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

static enum mics_status watch(const struct train_request *request, const struct mics_job *job,
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

static void end_startup(struct train_request *request)
{
    mics_startup_end(request->job.startup);
    request->job.startup = NULL;
}

static enum mics_status train(struct train_request *request, struct mics_job *job,
                              struct mics_run *run, struct mics_desk *desk, struct guard *guard,
                              enum mics_run_end *end, struct mics_err *err)
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

static int run_job(struct train_request *request)
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
    struct train_request request = {
        .job = {.out = "run", .argc = argc, .argv = argv},
        .scratch = mics_settings_default(),
        .sample = 300,
        .temperature = 0.8,
        .timeout = 60,
    };
    int code;

    cli_init(&train_program);
    code = train_parse(argc, argv, &request);
    if (code < 0)
        code = run_job(&request);
    return cli_finish(code);
}
