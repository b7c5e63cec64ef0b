/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/events.h"

#include "base/version.h"
#include "train/run_internal.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *describe_ranks(const struct mics_job *job)
{
    const struct mics_shape *shape = &job->plan->choice.shape;

    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:I}", "device",
                     job->device->description ? job->device->description : job->device->name,
                     "world_size", (json_int_t)job->world->size, "nodes", (json_int_t)shape->nodes,
                     "per_node", (json_int_t)shape->per_node, "p_param", (json_int_t)shape->p_param,
                     "p_grad", (json_int_t)shape->p_grad, "p_optim", (json_int_t)shape->p_optim,
                     "threads", (json_int_t)job->threads, "transport", job->comm->backend,
                     "comm_bytes", (json_int_t)mics_engine_comm_bytes(job->engine));
}

static json_t *describe_work(const struct mics_job *job, const struct mics_run *run)
{
    const struct mics_plan_choice *choice = &job->plan->choice;

    return json_pack(
        "{s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "model", job->plan->model->config.name,
        "parameters", (json_int_t)job->plan->model->param_count, "strategy", choice->strategy,
        "micro_batch", (json_int_t)choice->micro_batch, "micro_steps",
        (json_int_t)choice->micro_steps, "seq", (json_int_t)choice->seq, "global_batch",
        (json_int_t)run->global_batch, "arena_bytes", (json_int_t)job->plan->memory.arena_bytes,
        "after_step", (json_int_t)run->step);
}

json_t *mics_event_run(const struct mics_job *job, const struct mics_run *run)
{
    json_t *event = json_pack("{s:s,s:s}", "event", "run", "version", MICS_VERSION);
    json_t *parts[] = {describe_work(job, run), describe_ranks(job), mics_run_training_json(run)};
    int failed = event == NULL;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        failed |= !parts[i] || json_object_update(event, parts[i]) != 0;
        json_decref(parts[i]);
    }
    if (failed) {
        json_decref(event);
        return NULL;
    }
    return event;
}

json_t *mics_event_val(uint64_t step, double loss, double tokens, double seconds)
{
    return json_pack("{s:s,s:I,s:o,s:I,s:f}", "event", "val", "step", (json_int_t)step, "loss",
                     number(loss), "tokens", (json_int_t)tokens, "ms", 1e3 * seconds);
}

json_t *mics_event_checkpoint(uint64_t step, const struct mics_saved *saved, double seconds)
{
    return json_pack("{s:s,s:I,s:s%,s:I,s:f,s:f,s:f}", "event", "checkpoint", "step",
                     (json_int_t)step, "path", saved->path, strlen(saved->path), "bytes",
                     (json_int_t)saved->bytes, "ms", 1e3 * seconds, "pause_ms",
                     1e3 * saved->pause_s, "copy_ms", 1e3 * saved->copy_s);
}

json_t *mics_event_end(const struct mics_run *run, const char *reason)
{
    const struct mics_step_record *sum = &run->sum;
    const double steps = run->counted ? (double)run->counted : NAN;
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    return json_pack("{s:s,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:I,s:s,s:I}", "event", "end", "step",
                     (json_int_t)run->step, "reason", reason, "steps", (json_int_t)run->counted,
                     "recent_loss", number(mics_run_recent_loss(run)), "compute_ms",
                     number(1e3 * sum->compute_s / steps), "exposed_ms",
                     number(1e3 * sum->exposed_s / steps), "hidden_ms",
                     number(1e3 * (sum->comm_s - sum->exposed_s) / steps), "net_bytes",
                     (json_int_t)run->net_bytes, "path", run->last_checkpoint, "peak_rss_bytes",
                     (json_int_t)usage.ru_maxrss * 1024);
}
