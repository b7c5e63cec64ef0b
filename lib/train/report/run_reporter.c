/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/run_reporter.h"

#include "base/file.h"
#include "base/num.h"
#include "base/units.h"
#include "base/version.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "train/run_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

/* The rare lines of the metrics, each a new reference; NULL: out of memory. */

static json_t *describe_ranks(const struct mics_job *job)
{
    const struct mics_shape *shape = &job->plan->choice.shape;

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

/* *out: NULL if out of memory. */
static enum mics_status event_run(const struct mics_job *job, const struct mics_run *run,
                                  json_t **out, struct mics_err *err)
{
    json_t *training = NULL;
    enum mics_status status = mics_run_training_json(run, &training, err);

    if (status != MICS_OK)
        return status;
    json_t *event = json_pack("{s:s,s:s}", "event", "run", "version", MICS_VERSION);
    json_t *parts[] = {describe_model_and_step(job, run), describe_ranks(job), training};
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

static json_t *event_val(uint64_t step, double loss, double tokens, double seconds)
{
    return json_pack("{s:s,s:I,s:o,s:I,s:f}", "event", "val", "step", (json_int_t)step, "loss",
                     mics_metrics_number(loss), "tokens", (json_int_t)tokens, "ms", 1e3 * seconds);
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
    const struct mics_step_record *sum = &run->sum;
    const double steps = run->counted ? (double)run->counted : NAN;

    return json_pack("{s:s,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:I,s:s,s:I,s:I}", "event", "end", "step",
                     (json_int_t)run->step, "reason", reason, "steps", (json_int_t)run->counted,
                     "recent_loss", mics_metrics_number(mics_run_recent_loss(run)), "compute_ms",
                     mics_metrics_number(1e3 * sum->compute_s / steps), "exposed_ms",
                     mics_metrics_number(1e3 * sum->exposed_s / steps), "hidden_ms",
                     mics_metrics_number(1e3 * (sum->comm_s - sum->exposed_s) / steps), "net_bytes",
                     (json_int_t)run->net_bytes, "path", run->last_checkpoint, "peak_rss_bytes",
                     (json_int_t)peak_rss_bytes(), "skipped", (json_int_t)run->nonfinite);
}

static void print_groups(FILE *out, const struct mics_plan_choice *choice, unsigned threads)
{
    const struct mics_shape *shape = &choice->shape;

    fprintf(out, "ranks     %u nodes of %u, %u thread%s each\n", shape->nodes, shape->per_node,
            threads, threads == 1 ? "" : "s");
    fprintf(out, "strategy  %s: parameters in groups of %u, gradients %u, optimizer %u",
            choice->strategy, shape->p_param, shape->p_grad, shape->p_optim);
    if (mics_shape_has_hierarchy(shape, shape->p_param))
        fprintf(out, "; %s gathers", choice->hierarchical_gather ? "hierarchical" : "flat");
    if (mics_shape_has_hierarchy(shape, shape->p_grad))
        fprintf(out, "; %s reductions", choice->hierarchical_reduce ? "hierarchical" : "flat");
    putc('\n', out);
}

static void print_model_and_data(FILE *out, const struct mics_run *run)
{
    const struct mics_plan_choice *choice = &run->options.plan->choice;
    const struct mics_model *model = run->options.plan->model;
    const struct mics_data *data = run->options.data;
    static const char *const recompute_text[MICS_RECOMPUTE_LEVELS] = {
        [MICS_RECOMPUTE_NONE] = "",
        [MICS_RECOMPUTE_SELECTIVE] = ", recomputing norms and activation functions",
        [MICS_RECOMPUTE_FULL] = ", recomputing blocks",
    };
    char buf[3][32];

    fprintf(out, "model     %s, %s parameters, %s\n", model->config.name,
            mics_format_count((double)model->param_count, buf[0], sizeof buf[0]),
            mics_optimizer_get(choice->optimizer)->title);
    fprintf(
        out, "data      %zu documents, %s: %s tokens to train on, %" PRIu64 " validation windows\n",
        (size_t)data->documents, mics_format_bytes(data->bytes, buf[0], sizeof buf[0]),
        mics_format_count((double)data->train_tokens, buf[1], sizeof buf[1]), data->val_windows);
    fprintf(out, "step      %" PRIu64 " sequences of %u: %u ranks x %u x %u micro-step%s%s\n",
            run->global_batch, choice->seq, choice->shape.nodes * choice->shape.per_node,
            choice->micro_batch, choice->micro_steps, choice->micro_steps == 1 ? "" : "s",
            recompute_text[choice->recompute]);
}

static void put_row(struct mics_table *table, const char *name, uint64_t bytes)
{
    char buf[32];

    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%" PRIu64, bytes);
    mics_table_cell(table, "%s", mics_format_bytes(bytes, buf, sizeof buf));
}

static enum mics_status print_memory(FILE *out, const struct mics_run *run, struct mics_err *err)
{
    const struct mics_memory *memory = &run->options.plan->memory;
    const uint64_t comm_bytes = mics_engine_comm_bytes(run->options.engine);
    struct mics_table *table = mics_table_new("<memory of a rank|>bytes|>size");
    enum mics_status status;

    if (!table)
        return mics_err_nomem(err);
    for (int i = 0; i < MICS_REGION_COUNT; i++)
        put_row(table, memory->regions[i].name, memory->regions[i].bytes);
    put_row(table, "arena", memory->arena_bytes);
    put_row(table, "snapshot for checkpoints", mics_saver_bytes(run->saver));
    if (comm_bytes)
        put_row(table, "communicators (measured)", comm_bytes);
    status = mics_table_print(table, out, 0, err);
    mics_table_free(table);
    return status;
}

/* "device    cuda: NVIDIA H200 (GPU 0), communication by nccl (2.28.9)" */
static void print_device(FILE *out, const struct mics_device *device, const struct mics_comm *comm)
{
    fprintf(out, "device    %s: %s", device->name, device->description);
    if (comm->size > 1)
        fprintf(out, ", communication by %s", comm->backend);
    if (comm->size > 1 && comm->detail)
        fprintf(out, " (%s)", comm->detail);
    putc('\n', out);
}

static enum mics_status report_begin(FILE *out, const struct mics_run *run,
                                     const struct mics_device *device, const struct mics_comm *comm,
                                     unsigned threads, struct mics_err *err)
{
    enum mics_status status;

    print_model_and_data(out, run);
    print_groups(out, &run->options.plan->choice, threads);
    if (run->step)
        fprintf(out, "resumed   %s, after step %" PRIu64 "\n", run->last_checkpoint, run->step);
    if (run->options.paced)
        fprintf(out, "device    paced: nothing is computed or saved, and the loss is 0\n");
    else if (device->description)
        print_device(out, device, comm);
    putc('\n', out);
    status = print_memory(out, run, err);
    putc('\n', out);
    fflush(out);
    return status;
}

static void report_step(FILE *out, const struct mics_step_record *record, bool header)
{
    if (header)
        fprintf(out, "%8s %10s %10s %10s %10s %10s\n", "step", "loss", "lr", "grad norm", "ms",
                "tokens/s");
    fprintf(out, "%8" PRIu64 " %10.4f %10.2e %10.4f %10.1f %10.0f\n", record->step, record->loss,
            record->lr, record->grad_norm, 1e3 * record->seconds, record->tokens_per_s);
    fflush(out);
}

static void print_traffic(FILE *out, const struct mics_run *run)
{
    const double per_step_and_node =
        (double)run->net_bytes / (double)run->counted / run->options.world->node_count;
    char buf[2][32];

    if (run->net_bytes > 0)
        fprintf(out, "sent between nodes: %s in total, %s per step and node\n",
                mics_format_bytes(run->net_bytes, buf[0], sizeof buf[0]),
                mics_format_bytes((uint64_t)per_step_and_node, buf[1], sizeof buf[1]));
}

static void report_end(FILE *out, const struct mics_run *run)
{
    const struct mics_step_record *sum = &run->sum;
    const double steps = (double)run->counted;
    const uint64_t recent = mics_min_u64(run->counted, MICS_RUN_RECENT_STEPS);

    putc('\n', out);
    if (run->counted == 0) {
        fprintf(out, "no steps left to train\n");
    } else {
        fprintf(out, "%" PRIu64 " steps in %.1f s; mean loss of the last %" PRIu64 ": %.4f\n",
                run->counted, sum->seconds, recent, mics_run_recent_loss(run));
        fprintf(out,
                "communication per step: %.1f ms exposed, %.1f ms hidden under %.1f ms of "
                "computation\n",
                1e3 * sum->exposed_s / steps, 1e3 * (sum->comm_s - sum->exposed_s) / steps,
                1e3 * sum->compute_s / steps);
        print_traffic(out, run);
    }
    if (run->nonfinite > 0)
        fprintf(out, "skipped, because they were not finite: %" PRIu64 " steps\n", run->nonfinite);
    if (!run->options.paced)
        fprintf(out, "checkpoint: %s\n", run->last_checkpoint[0] ? run->last_checkpoint : "none");
    fflush(out);
}

static enum mics_status flush(const struct mics_run_reporter *reporter, struct mics_err *err)
{
    if (reporter->out && (fflush(reporter->out) != 0 || ferror(reporter->out)))
        return mics_err_set_errno(err, "standard output");
    return MICS_OK;
}

static enum mics_status on_step(void *context, const struct mics_step_record *record,
                                struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;
    const bool first_or_last = record->step == reporter->run->base_step + 1 ||
                               record->step == reporter->run->options.settings->steps;
    enum mics_status status = mics_metrics_step(reporter->metrics, record, err);

    if (status == MICS_OK && reporter->metrics && record->classes)
        status = mics_metrics_event(reporter->metrics, event_operations(record), err);
    if (status != MICS_OK || !reporter->out ||
        (!first_or_last && record->step % reporter->log_every != 0))
        return status;
    report_step(reporter->out, record, !reporter->header_printed);
    reporter->header_printed = true;
    return flush(reporter, err);
}

static enum mics_status on_val(void *context, uint64_t step, double loss, double tokens,
                               double seconds, struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;
    enum mics_status status =
        mics_metrics_event(reporter->metrics, event_val(step, loss, tokens, seconds), err);

    if (status != MICS_OK || !reporter->out)
        return status;
    fprintf(reporter->out, "%8" PRIu64 " validation loss %.4f\n", step, loss);
    return flush(reporter, err);
}

static enum mics_status on_saved(void *context, uint64_t step, const struct mics_saved *saved,
                                 double seconds, struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;
    enum mics_status status =
        mics_metrics_event(reporter->metrics, event_checkpoint(step, saved, seconds), err);
    char size[32];

    if (status != MICS_OK || !reporter->out)
        return status;
    fprintf(reporter->out, "%8" PRIu64 " saved %s, %s\n", step, saved->path,
            mics_format_bytes(saved->bytes, size, sizeof size));
    return flush(reporter, err);
}

static enum mics_status on_fault(void *context, json_t *event, struct mics_err *err)
{
    struct mics_run_reporter *reporter = context;

    return mics_metrics_event(reporter->metrics, event, err);
}

struct mics_run_observer mics_run_reporter_observer(struct mics_run_reporter *reporter)
{
    return (struct mics_run_observer){
        .step = on_step, .val = on_val, .saved = on_saved, .fault = on_fault, .context = reporter};
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

static enum mics_status open_metrics(struct mics_run_reporter *reporter, const struct mics_job *job,
                                     const char *path, struct mics_err *err)
{
    const bool resumed = job->checkpoint_doc != NULL;
    char own[MICS_PATH_MAX];
    enum mics_status status;

    if (path)
        return mics_metrics_open(*path ? path : NULL, resumed, &reporter->metrics, err);
    status = mics_path_format(own, err, "%s/%s", job->out, MICS_METRICS_NAME);
    if (status == MICS_OK)
        status = write_plan(job, err);
    return status == MICS_OK ? mics_metrics_open(own, resumed, &reporter->metrics, err) : status;
}

enum mics_status mics_run_reporter_open(struct mics_run_reporter *reporter,
                                        const struct mics_job *job, const char *metrics_path,
                                        struct mics_err *err)
{
    json_t *event = NULL;
    enum mics_status status = open_metrics(reporter, job, metrics_path, err);

    if (status == MICS_OK)
        status = event_run(job, reporter->run, &event, err);
    if (status == MICS_OK)
        status = mics_metrics_event(reporter->metrics, event, err);
    if (status == MICS_OK && reporter->out)
        status =
            report_begin(reporter->out, reporter->run, job->device, job->comm, job->threads, err);
    return status == MICS_OK ? flush(reporter, err) : status;
}

enum mics_status mics_run_reporter_end(struct mics_run_reporter *reporter, enum mics_run_end end,
                                       struct mics_err *err)
{
    const char *reason = end == MICS_RUN_DONE ? "done" : "stopped";
    enum mics_status status =
        mics_metrics_event(reporter->metrics, event_end(reporter->run, reason), err);

    if (status == MICS_OK && reporter->out)
        report_end(reporter->out, reporter->run);
    return status == MICS_OK ? flush(reporter, err) : status;
}

enum mics_status mics_run_reporter_close(struct mics_run_reporter *reporter, struct mics_err *err)
{
    struct mics_metrics *metrics = reporter->metrics;

    reporter->metrics = NULL;
    return mics_metrics_close(metrics, err);
}
