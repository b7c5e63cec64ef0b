/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/run_reporter.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "base/utf8.h"
#include "base/version.h"
#include "doc/doc.h"
#include "train/report/run_text.h"
#include "train/run_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Between printed lines, unless log_every says. */
#define TERMINAL_INTERVAL_S 0.2
#define LOG_FIRST_S         1
#define LOG_LAST_S          30
#define LOG_FRACTION        0.05 /* of the time since the first step */

/* The remaining time comes from a mean over about so many steps, pauses between them included. */
#define RECENT_STEPS 200

/* For the comparison at the end. */
#define MEASURED_STEPS 8192

/* The rare lines of the metrics, each a new reference; NULL: out of memory. */

static json_t *describe_ranks(const struct mics_job *job)
{
    const struct mics_shape *shape = &job->plan->choice.shapes[MICS_UNIT_DENSE];

    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:I,s:I}", "device",
                     job->device->description ? job->device->description : job->device->name,
                     "world_size", (json_int_t)job->world->size, "nodes", (json_int_t)shape->nodes,
                     "per_node", (json_int_t)shape->per_node, "p_param", (json_int_t)shape->p_param,
                     "p_grad", (json_int_t)shape->p_grad, "p_optim", (json_int_t)shape->p_optim,
                     "threads", (json_int_t)job->threads, "transport", job->comm->backend,
                     "comm_bytes", (json_int_t)mics_engine_comm_bytes(job->engine),
                     "arena_used_bytes", (json_int_t)mics_engine_high_water(job->engine));
}

static json_t *describe_model_and_step(const struct mics_job *job, const struct mics_run *run)
{
    const struct mics_plan_choice *choice = &job->plan->choice;

    return json_pack(
        "{s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "model", job->plan->model->config.name,
        "parameters", (json_int_t)job->plan->model->param_count, "strategy", choice->strategy,
        "micro_batch", (json_int_t)choice->micro_batch, "micro_steps",
        (json_int_t)choice->micro_steps, "seq", (json_int_t)choice->seq, "global_batch",
        (json_int_t)run->global_batch, "arena_bytes",
        (json_int_t)mics_engine_arena_bytes(job->engine), "after_step", (json_int_t)run->step);
}

/* Where the start took its state from; the bytes of memory that came over the network. */
static json_t *describe_source(const struct mics_job *job, const struct mics_run *run)
{
    if (run->start.from_memory)
        return json_pack("{s:s,s:I}", "state_from", "memory", "received_bytes",
                         (json_int_t)run->start.received_bytes);
    return json_pack("{s:s}", "state_from", job->checkpoint_doc ? "disk" : "nothing");
}

/* The start itself: when, and if it is a restart, which and why (MICS_RESTART). */
static json_t *describe_start(uint64_t *restart)
{
    const char *text = getenv("MICS_RESTART");
    json_t *start = json_pack("{s:I}", "time", (json_int_t)time(NULL));
    char reason[512], *end = NULL;

    *restart = text ? strtoull(text, &end, 10) : 0;
    if (*restart == 0)
        return start;
    snprintf(reason, sizeof reason, "%s", end + strspn(end, " "));
    mics_utf8_make_printable(reason, strlen(reason));
    if (json_object_set_new(start, "restart", json_integer((json_int_t)*restart)) == 0 &&
        json_object_set_new(start, "restart_reason", json_string(reason)) == 0)
        return start;
    json_decref(start);
    return NULL;
}

/* *out: NULL if out of memory. *restart: its number; 0: this is none, or it is not known. */
static enum mics_status event_run(const struct mics_job *job, const struct mics_run *run,
                                  uint64_t *restart, json_t **out, struct mics_err *err)
{
    json_t *training = NULL;
    enum mics_status status = mics_run_training_json(run, &training, err);

    if (status != MICS_OK)
        return status;
    json_t *event = json_pack("{s:s,s:s}", "event", "run", "version", MICS_VERSION);
    json_t *parts[] = {describe_start(restart), describe_model_and_step(job, run),
                       describe_source(job, run), describe_ranks(job), training};
    int failed = event == NULL;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        failed |= !parts[i] || json_object_update(event, parts[i]) != 0;
        json_decref(parts[i]);
    }
    if (failed) {
        json_decref(event);
        event = NULL;
    }
    *out = event;
    return MICS_OK;
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static json_t *event_operations(const struct mics_step_record *record)
{
    return json_pack("{s:s,s:I,s:f,s:I,s:o}", "event", "operations", "step",
                     (json_int_t)record->step, "step_ms", 1e3 * record->seconds, "peak_rss_bytes",
                     (json_int_t)peak_rss_bytes(), "operations",
                     mics_class_times_to_json(record->classes));
}

static json_t *event_val(uint64_t step, const struct mics_eval *eval)
{
    json_t *event = json_pack("{s:s,s:I,s:o,s:I,s:f}", "event", "val", "step", (json_int_t)step,
                              "loss", mics_metrics_number(eval->loss), "tokens",
                              (json_int_t)eval->targets, "ms", 1e3 * eval->seconds);

    if (event && !isnan(eval->accuracy) &&
        json_object_set_new(event, "accuracy", mics_metrics_number(eval->accuracy)) != 0) {
        json_decref(event);
        return NULL;
    }
    return event;
}

static json_t *event_checkpoint(uint64_t step, const struct mics_saved *saved, double seconds)
{
    return json_pack("{s:s,s:I,s:s%,s:I,s:f,s:f,s:f}", "event", "checkpoint", "step",
                     (json_int_t)step, "path", saved->path, strlen(saved->path), "bytes",
                     (json_int_t)saved->bytes, "ms", 1e3 * seconds, "pause_ms",
                     1e3 * saved->pause_s, "copy_ms", 1e3 * saved->copy_s);
}

static json_t *event_end(const struct mics_run *run, const char *reason)
{
    const struct mics_step_record *sum = &run->totals.sum;
    const double steps = run->totals.steps ? (double)run->totals.steps : NAN;

    json_t *event = json_pack(
        "{s:s,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:s,s:I,s:I}", "event", "end", "step",
        (json_int_t)run->step, "reason", reason, "steps", (json_int_t)run->totals.steps,
        "recent_loss", mics_metrics_number(mics_run_recent_loss(run)), "compute_ms",
        mics_metrics_number(1e3 * sum->compute_s / steps), "exposed_ms",
        mics_metrics_number(1e3 * sum->exposed_s / steps), "hidden_ms",
        mics_metrics_number(1e3 * (sum->comm_s - sum->exposed_s) / steps), "comm_cpu_own_ms",
        mics_metrics_number(1e3 * sum->cpu.own_s / steps), "comm_cpu_mpi_ms",
        mics_metrics_number(1e3 * sum->cpu.mpi_s / steps), "comm_cpu_kernel_ms",
        mics_metrics_number(1e3 * sum->cpu.kernel_s / steps), "net_bytes",
        (json_int_t)run->totals.net_bytes, "path", run->disk.last, "peak_rss_bytes",
        (json_int_t)peak_rss_bytes(), "skipped", (json_int_t)run->totals.nonfinite);
    if (run->totals.sync_bytes > 0 &&
        (json_object_set_new(event, "sync_bytes",
                             json_integer((json_int_t)run->totals.sync_bytes)) != 0 ||
         json_object_set_new(event, "exact_sync_bytes",
                             json_integer((json_int_t)run->totals.exact_sync_bytes)) != 0)) {
        json_decref(event);
        return NULL;
    }
    return event;
}

static enum mics_status flush(const struct mics_run_reporter *reporter, struct mics_err *err)
{
    if (reporter->out && (fflush(reporter->out) != 0 || ferror(reporter->out)))
        return mics_err_set_errno(err, "standard output");
    return MICS_OK;
}

/* Seconds to the last step; NAN: not known yet. */
static double update_remaining(struct mics_run_reporter *reporter, uint64_t step)
{
    const double now = mics_now_s(), elapsed = now - reporter->step_end_s;
    const uint64_t done = step - reporter->run->start.step;
    const uint64_t left = reporter->run->options.settings->steps - step;

    if (done == 1)
        reporter->first_end_s = now;
    else if (done == 2)
        reporter->mean_step_s = elapsed;
    else
        reporter->mean_step_s += (elapsed - reporter->mean_step_s) /
                                 (done - 1 < RECENT_STEPS ? (double)(done - 1) : RECENT_STEPS);
    reporter->step_end_s = now;
    return done < 2 ? NAN : (double)left * reporter->mean_step_s;
}

/* Lines of a log become rarer, those for a person only keep to a rate that can be read. */
static bool must_print(struct mics_run_reporter *reporter, uint64_t step)
{
    const double now = reporter->step_end_s;
    double interval = TERMINAL_INTERVAL_S;

    if (step == reporter->run->start.step + 1 || step == reporter->run->options.settings->steps)
        return true;
    if (reporter->log_every)
        return step % reporter->log_every == 0;
    if (!reporter->is_terminal)
        interval =
            fmin(fmax(LOG_FRACTION * (now - reporter->first_end_s), LOG_FIRST_S), LOG_LAST_S);
    return now - reporter->printed_s >= interval;
}

static enum mics_status measure(struct mics_run_reporter *reporter,
                                const struct mics_step_record *record, struct mics_err *err)
{
    struct mics_measured *measured = &reporter->measured;
    enum mics_status status = mics_measured_add(measured, record->step, record->seconds, NULL, err);

    if (status == MICS_OK && record->classes)
        status = mics_measured_add(measured, record->step, record->seconds, record->classes, err);
    return status;
}

static double unix_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum mics_status on_step(void *context, const struct mics_step_record *record,
                                struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;
    const struct mics_run *run = reporter->run;
    struct mics_prometheus_values *values = &reporter->outputs.values;
    const enum mics_status status = measure(reporter, record, err);

    values->step_timestamp = unix_time();
    values->remaining_seconds = update_remaining(reporter, record->step);
    values->epoch = (double)run->samples / (double)run->options.data->train_windows;
    values->tokens = (double)run->samples * run->options.plan->choice.seq;
    mics_outputs_step(&reporter->outputs, record,
                      mics_plan_mfu(run->options.plan, record->tokens_per_s));
    if (record->classes)
        mics_outputs_event(&reporter->outputs, event_operations(record));
    if (status != MICS_OK || !reporter->out || !must_print(reporter, record->step))
        return status;
    if (!reporter->header_printed)
        mics_run_text_step_header(reporter->out, record);
    mics_run_text_step(reporter->out, record, values->epoch, values->remaining_seconds);
    reporter->header_printed = true;
    reporter->printed_s = reporter->step_end_s;
    return flush(reporter, err);
}

static enum mics_status on_val(void *context, uint64_t step, const struct mics_eval *eval,
                               struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;

    mics_outputs_val(&reporter->outputs, step, eval->loss);
    mics_outputs_event(&reporter->outputs, event_val(step, eval));
    if (!reporter->out)
        return MICS_OK;
    fprintf(reporter->out, "%8" PRIu64 " validation loss %.4f", step, eval->loss);
    if (!isnan(eval->accuracy))
        fprintf(reporter->out, ", masked accuracy %.4f", eval->accuracy);
    fputc('\n', reporter->out);
    return flush(reporter, err);
}

static enum mics_status on_saved(void *context, uint64_t step, const struct mics_saved *saved,
                                 double seconds, struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;
    char size[32];

    reporter->outputs.values.checkpoint_step = (double)step;
    reporter->outputs.values.checkpoint_timestamp = unix_time();
    mics_outputs_event(&reporter->outputs, event_checkpoint(step, saved, seconds));
    if (!reporter->out)
        return MICS_OK;
    fprintf(reporter->out, "%8" PRIu64 " saved ", step);
    mics_utf8_put(reporter->out, saved->path, strlen(saved->path));
    fprintf(reporter->out, ", %s\n", mics_format_bytes(saved->bytes, size, sizeof size));
    return flush(reporter, err);
}

static enum mics_status on_kept(void *context, const struct mics_memory_ckpt *kept,
                                struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;

    (void)err;
    mics_outputs_event(&reporter->outputs,
                       json_pack("{s:s,s:I,s:f,s:f,s:f,s:I}", "event", "kept", "step",
                                 (json_int_t)kept->step, "ms", 1e3 * kept->seconds, "pause_ms",
                                 1e3 * kept->pause_s, "copy_ms", 1e3 * kept->copy_s, "sent_bytes",
                                 (json_int_t)kept->sent_bytes));
    return MICS_OK;
}

static enum mics_status on_fault(void *context, json_t *event, struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;

    (void)err;
    mics_outputs_event(&reporter->outputs, event);
    return MICS_OK;
}

struct mics_run_observer mics_run_reporter_observer(struct mics_run_reporter *reporter)
{
    return (struct mics_run_observer){.step = on_step,
                                      .val = on_val,
                                      .saved = on_saved,
                                      .kept = on_kept,
                                      .fault = on_fault,
                                      .context = reporter};
}

/* The plan beside the metrics, for who compares them. */
static enum mics_status write_plan(const struct mics_job *job, struct mics_err *err)
{
    struct mics_file_writer *file = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", job->out, MICS_RUN_PLAN_NAME);

    if (status == MICS_OK)
        status = mics_file_create(path, &file, err);
    if (status != MICS_OK)
        return status;
    status = mics_doc_write(mics_file_stream(file), job->plan_doc, MICS_DOC_MSGPACK, err);
    if (status == MICS_OK)
        return mics_file_commit(file, err);
    mics_err_prefix(err, "%s", path);
    mics_file_discard(file);
    return status;
}

/* The folder, so that it names the run whatever the working folder is. */
static const char *absolute_path(const char *path, char buf[PATH_MAX])
{
    return realpath(path, buf) ? buf : path;
}

static enum mics_status open_outputs(struct mics_run_reporter *reporter, const struct mics_job *job,
                                     const struct mics_run_reporter_paths *paths, uint64_t restart,
                                     json_t *event, struct mics_err *err)
{
    const char *job_id = getenv("SLURM_JOB_ID");
    char own[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(own, err, "%s/%s", job->out, MICS_METRICS_NAME);

    if (status == MICS_OK && !paths->metrics)
        status = write_plan(job, err);
    if (status != MICS_OK) {
        json_decref(event);
        return status;
    }
    absolute_path(job->out, reporter->folder);
    const struct mics_outputs_options options = {
        .paths = {[MICS_OUTPUT_METRICS] = !paths->metrics   ? strcpy(reporter->metrics_path, own)
                                          : *paths->metrics ? paths->metrics
                                                            : NULL,
                  [MICS_OUTPUT_TENSORBOARD] = paths->tensorboard,
                  [MICS_OUTPUT_PROMETHEUS] = paths->prometheus},
        .append = job->checkpoint_doc || (restart > 0 && !job->options->overwrite),
        .restarts = restart,
        .first_step = reporter->run->step + 1,
        .labels = {.run = reporter->folder,
                   .model = job->plan->model->config.name,
                   .job_id = job_id ? job_id : ""},
        .warn = reporter->warn,
    };

    status = mics_outputs_open(&reporter->outputs, &options, event, err);
    if (status != MICS_OK)
        return status;
    reporter->outputs.values.step = (double)reporter->run->step;
    reporter->outputs.values.last_step = (double)reporter->run->options.settings->steps;
    return MICS_OK;
}

enum mics_status mics_run_reporter_open(struct mics_run_reporter *reporter,
                                        const struct mics_job *job,
                                        const struct mics_run_reporter_paths *paths,
                                        struct mics_err *err)
{
    uint64_t restart = 0;
    json_t *event = NULL;
    enum mics_status status = event_run(job, reporter->run, &restart, &event, err);

    reporter->plan = job->plan;
    mics_measured_clear(&reporter->measured);
    reporter->measured.limit = MEASURED_STEPS;
    reporter->measured.comm_bytes = mics_engine_comm_bytes(job->engine);
    if (status == MICS_OK)
        status = open_outputs(reporter, job, paths, restart, event, err);
    if (status == MICS_OK && reporter->out)
        status = mics_run_text_begin(reporter->out, reporter->run, job->device, job->comm,
                                     job->threads, err);
    return status == MICS_OK ? flush(reporter, err) : status;
}

/* What was predicted of a step, and what was measured. A run that only did its first step says
 * little. */
static enum mics_status print_check(struct mics_run_reporter *reporter, struct mics_err *err)
{
    struct mics_plan_check check;
    enum mics_status status;

    if (reporter->measured.steps.count < 2 || reporter->measured.sampled.count < 2)
        return MICS_OK;
    reporter->measured.peak_rss_bytes = peak_rss_bytes();
    status = mics_plan_check_measured(reporter->plan, &reporter->measured, &check, err);
    if (status == MICS_OK)
        status = mics_plan_check_print_brief(reporter->out, &check, err);
    return status;
}

enum mics_status mics_run_reporter_end(struct mics_run_reporter *reporter, enum mics_run_end end,
                                       struct mics_err *err)
{
    const char *reason = end == MICS_RUN_DONE ? "done" : "stopped";
    enum mics_status status = MICS_OK;

    reporter->outputs.values.finished = end == MICS_RUN_DONE;
    reporter->measured.state = reason;
    mics_outputs_event(&reporter->outputs, event_end(reporter->run, reason));
    if (!reporter->out)
        return MICS_OK;
    mics_run_text_end(reporter->out, reporter->run, reporter->verbose);
    status = print_check(reporter, err);
    return status == MICS_OK ? flush(reporter, err) : status;
}

void mics_run_reporter_close(struct mics_run_reporter *reporter)
{
    mics_outputs_close(&reporter->outputs);
    mics_measured_fini(&reporter->measured);
}
