/* SPDX-License-Identifier: Apache-2.0 */
/* run_faults.c - what a run survives: steps that are not finite, and saves that fail. */
#include "base/clock.h"
#include "base/num.h"
#include "train/run_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* After its k-th failure in a row a save is due again in so many seconds times k, or earlier if the
 * next checkpoint is. */
static const double save_retry_s = 10;

void mics_run_warn(const struct mics_run *run, const char *fmt, ...)
{
    struct mics_device_note note = {.level = 0};
    va_list args;

    if (run->options.world->rank != 0 || !run->options.observer.note)
        return;
    va_start(args, fmt);
    vsnprintf(note.text, sizeof note.text, fmt, args);
    va_end(args);
    run->options.observer.note(&note);
}

void mics_run_warn_dropped(const struct mics_run *run, const struct mics_step_record *record)
{
    if (record->step == 1 && record->router->dropped > 0.5)
        mics_run_warn(
            run,
            "step 1: experts dropped %.0f %% of their rows: a --capacity of %g is too small for a "
            "load this uneven",
            100 * record->router->dropped, record->model->config.expert_capacity);
}

void mics_run_report_fault(const struct mics_run *run, json_t *event,
                           enum mics_status *rank0_status, struct mics_err *err)
{
    const struct mics_run_observer *observer = &run->options.observer;

    if (*rank0_status == MICS_OK && run->options.world->rank == 0 && observer->fault)
        *rank0_status = observer->fault(observer->context, event, err);
    else
        json_decref(event);
}

/* All digits of a power of two. */
static json_t *scale_to_json(double scale)
{
    return scale >= 1 ? json_integer((json_int_t)scale) : json_real(scale);
}

/* In fp16 an overflow is no fault, unless a smaller loss scale is of no help. */
static enum mics_status report_overflow(struct mics_run *run, const struct mics_step_record *record,
                                        enum mics_status *rank0_status, struct mics_err *err)
{
    const unsigned long long step = record->step;
    const struct mics_plan_choice *choice = &run->options.plan->choice;
    const uint32_t replicas = choice->outer_steps > 0 ? mics_choice_replicas(choice) : 0;

    if (record->at_minimum)
        return mics_err_set(
            err, MICS_ERR_DEVICE,
            "step %llu: overflow in fp16 with the least loss scale, %g: training has diverged (a "
            "lower --lr or a longer --warmup may help), or the model needs bf16, as those that "
            "were trained in it often do; %s%s",
            step, record->loss_scale,
            run->disk.last[0] ? "last checkpoint: " : "there is no checkpoint", run->disk.last);
    if (replicas > 0)
        mics_run_warn(run, "step %llu: overflow in fp16 on %u of %u replicas, which skip the step",
                      step, record->skipped, replicas);
    else
        mics_run_warn(
            run,
            "step %llu: overflow in fp16 with a loss scale of %g: skipped, the next one is %g%s",
            step, record->loss_scale, record->next_loss_scale,
            mics_choice_interval(choice) > 1 ? "; so are gradients that units have carried" : "");
    json_t *event = json_pack("{s:s,s:I,s:o,s:o}", "event", "overflow", "step", (json_int_t)step,
                              "loss_scale", scale_to_json(record->loss_scale), "next_loss_scale",
                              scale_to_json(record->next_loss_scale));
    if (event && replicas > 0)
        json_object_set_new(event, "replicas", json_integer(record->skipped));
    mics_run_report_fault(run, event, rank0_status, err);
    return MICS_OK;
}

enum mics_status mics_run_check_finite(struct mics_run *run, const struct mics_step_record *record,
                                       enum mics_status *rank0_status, struct mics_err *err)
{
    const bool loss = !isfinite(record->loss);
    const double value = loss ? record->loss : record->grad_norm;
    const char *const what = loss ? "loss" : "gradient norm";
    /* With an interval, a bad gradient stays in the shards of units until each has had its turn. */
    const uint32_t interval = mics_choice_interval(&run->options.plan->choice);
    const uint64_t window = run->global_batch * (loss ? 1 : interval);
    const uint64_t trained = run->samples - run->start.samples;
    const unsigned long long step = record->step, last = run->samples,
                             first = last - mics_min_u64(window, trained) + 1;
    const uint64_t most = run->options.max_nonfinite * interval;

    if (!loss && isfinite(record->grad_norm)) {
        run->totals.nonfinite_row = 0;
        return MICS_OK;
    }
    if (record->overflow)
        return report_overflow(run, record, rank0_status, err);
    run->totals.nonfinite++;
    if (run->totals.nonfinite_row < most) {
        run->totals.nonfinite_row++;
        mics_run_warn(
            run,
            "step %llu: the %s is %g: skipped (%llu in a row of at most %llu; samples %llu-%llu)",
            step, what, value, (unsigned long long)run->totals.nonfinite_row,
            (unsigned long long)most, first, last);
        mics_run_report_fault(run,
                              json_pack("{s:s,s:I,s:I,s:I,s:I}", "event", "skipped", "step",
                                        (json_int_t)step, "in_a_row",
                                        (json_int_t)run->totals.nonfinite_row, "first_sample",
                                        (json_int_t)first, "last_sample", (json_int_t)last),
                              rank0_status, err);
        return MICS_OK;
    }
    return mics_err_set(
        err, MICS_ERR_DEVICE,
        "step %llu: the %s is %g%s: training has diverged (a lower --lr, a longer "
        "--warmup or clipping may help), or its samples %llu-%llu are bad "
        "(--on-nonfinite=skip or --skip-samples=%llu-%llu); %s%s",
        step, what, value, run->options.max_nonfinite ? ", once too often" : "", first, last, first,
        last, run->disk.last[0] ? "last checkpoint: " : "there is no checkpoint", run->disk.last);
}

enum mics_status mics_run_survive_save(struct mics_run *run, enum mics_status status,
                                       enum mics_status *rank0_status, struct mics_err *err)
{
    const unsigned long long step = run->step, limit = run->options.max_save_failures;

    if (status != MICS_ERR_IO || ++run->disk.failures >= limit)
        return status;
    const double wait_s = save_retry_s * (double)run->disk.failures;

    run->disk.retry_s = mics_now_s() + wait_s;
    run->disk.begun_step = UINT64_MAX;
    mics_run_warn(run,
                  "a checkpoint failed (%llu in a row; %llu end the run), next try in %g s: %s",
                  (unsigned long long)run->disk.failures, limit, wait_s, err->text);
    mics_run_report_fault(run,
                          json_pack("{s:s,s:I,s:I,s:s%}", "event", "save_failed", "step",
                                    (json_int_t)step, "in_a_row", (json_int_t)run->disk.failures,
                                    "error", err->text, strlen(err->text)),
                          rank0_status, err);
    return MICS_OK;
}

enum mics_status mics_run_survive_keep(struct mics_run *run, uint64_t step, enum mics_status status,
                                       enum mics_status *rank0_status, struct mics_err *err)
{
    if (status != MICS_ERR_IO)
        return status;
    mics_run_warn(run, "the state of step %llu was not kept in memory: %s",
                  (unsigned long long)step, err->text);
    mics_run_report_fault(run,
                          json_pack("{s:s,s:I,s:s%}", "event", "keep_failed", "step",
                                    (json_int_t)step, "error", err->text, strlen(err->text)),
                          rank0_status, err);
    return MICS_OK;
}
