/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the loop.
 *
 * One step is always in flight while the one before is told: submit t, collect t - 1. In between the ranks
 * exchange one word each, while step t computes, to agree on what to do at its end; so an
 * agreement never stops the pipeline, and only validation and checkpoints drain it.
 */
#include "train/run.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "train/run_internal.h"
#include "train/watch/signals.h"

#include <math.h>
#include <stdlib.h>

#define RECENT (sizeof((struct mics_run *)0)->recent_loss / sizeof(double))

/* A request to stop must be met within this many of the slowest steps so far, and some seconds. */
#define GRACE_STEPS 4
#define GRACE_S     5
#define GRACE_FIRST 60 /* before any step is known */

/* What one rank tells the others once a step. */
enum { TELL_FAILED = 1 << 8, TELL_SAVING = 1 << 9 }; /* beside enum mics_wish */

enum mics_status mics_run_init(struct mics_run *run, const struct mics_run_options *options,
                               struct mics_err *err)
{
    const struct mics_plan_choice *choice = &options->plan->choice;

    *run = (struct mics_run){
        .options = *options,
        .lr = mics_settings_lr(options->settings),
        .global_batch = (uint64_t)options->world->size * choice->micro_batch * choice->micro_steps,
        .form = {.model = options->plan->model,
                 .choice = choice,
                 .layouts = mics_engine_schedule(options->engine)->layouts,
                 .states = 1 + mics_optimizer_states(choice->optimizer)},
    };
    run->form.parts = mics_ckpt_parts(&run->form);
    if (options->settings->steps > UINT32_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "more than %u steps", UINT32_MAX);
    run->words = calloc(options->world->size, sizeof *run->words);
    if (!run->words)
        return mics_err_nomem(err);
    return mics_run_open_saver(run, err);
}

void mics_run_fini(struct mics_run *run)
{
    mics_saver_free(run->saver);
    free(run->words);
    run->saver = NULL;
    run->words = NULL;
}

enum mics_status mics_run_alone(struct mics_run *run, enum mics_status status)
{
    run->alone = run->alone || status != MICS_OK;
    return status;
}

enum mics_status mics_run_begin(struct mics_run *run, struct mics_err *err)
{
    enum mics_status status;

    if (run->options.paced)
        return MICS_OK;
    status = mics_engine_init(run->options.engine, run->options.settings->seed, err);
    if (!run->options.init)
        return status;
    status = mics_agree(run->options.control, status, err);
    return status == MICS_OK ? mics_run_load_init(run, err) : status;
}

static enum mics_status submit(struct mics_run *run, uint64_t step, struct mics_err *err)
{
    struct mics_run_batch batch = mics_run_batch(run);
    struct mics_step_input input = {.step = (uint32_t)step,
                                    .lr = (float)mics_lr_at(&run->lr, step),
                                    .fill = mics_run_fill_train,
                                    .fill_context = &batch};

    batch.first = run->base_samples + (step - run->base_step - 1) * run->global_batch;
    return mics_run_alone(run, mics_engine_submit(run->options.engine, &input, err));
}

static void remember(struct mics_run *run, const struct mics_step_record *record)
{
    run->recent_loss[run->counted++ % RECENT] = record->loss;
    run->sum.seconds += record->seconds;
    run->sum.compute_s += record->compute_s;
    run->sum.comm_s += record->comm_s;
    run->sum.exposed_s += record->exposed_s;
    run->slowest_s = fmax(run->slowest_s, record->seconds);
    mics_signals_set_grace(GRACE_S + GRACE_STEPS * run->slowest_s);
}

double mics_run_recent_loss(const struct mics_run *run)
{
    const uint64_t count = run->counted < RECENT ? run->counted : RECENT;
    double sum = 0;

    for (uint64_t i = 0; i < count; i++)
        sum += run->recent_loss[i];
    return sum / (double)count;
}

static enum mics_status check_finite(const struct mics_run *run,
                                     const struct mics_step_record *record, struct mics_err *err)
{
    const bool loss = !isfinite(record->loss);

    if (!loss && isfinite(record->grad_norm))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_DEVICE,
                        "step %llu: the %s is %g: training has diverged (a lower --lr, a longer "
                        "--warmup or clipping may help); %s%s",
                        (unsigned long long)record->step, loss ? "loss" : "gradient norm",
                        loss ? record->loss : record->grad_norm,
                        run->last_checkpoint[0] ? "last checkpoint: " : "there is no checkpoint",
                        run->last_checkpoint);
}

/* Collect the oldest step. The same numbers come out on all ranks, so all fail together if they are not
 * finite; *told is what only rank 0 may have met, and must share. */
static enum mics_status collect(struct mics_run *run, enum mics_status *told, struct mics_err *err)
{
    const struct mics_run_observer *observer = &run->options.observer;
    const struct mics_plan_choice *choice = &run->options.plan->choice;
    struct mics_step_result result;
    enum mics_status status = mics_engine_collect(run->options.engine, &result, err);

    if (status != MICS_OK)
        return mics_run_alone(run, status);
    if (run->options.trace)
        mics_trace_take(run->options.trace, run->options.engine, &result);
    const double seconds = fmax(result.seconds - run->pause_s, 1e-9);
    const struct mics_step_record record = {
        .step = result.step,
        .loss = result.loss,
        .lr = mics_lr_at(&run->lr, result.step),
        .grad_norm = result.grad_norm,
        .seconds = seconds,
        .tokens_per_s = (double)run->global_batch * choice->seq / seconds,
        .compute_s = result.overlap.compute_s,
        .comm_s = result.overlap.comm_s,
        .exposed_s = result.overlap.exposed_s,
    };
    run->pause_s = 0;
    run->step = result.step;
    run->samples += run->global_batch;
    remember(run, &record);
    if (*told == MICS_OK && run->options.world->rank == 0 && observer->step)
        *told = observer->step(observer->context, &record, err);
    return check_finite(run, &record, err);
}

static uint32_t mine(const struct mics_run *run, enum mics_status told)
{
    return mics_signals_wishes() | (told != MICS_OK ? TELL_FAILED : 0) |
           (mics_saver_busy(run->saver) ? TELL_SAVING : 0);
}

/* Or-ed together, what the ranks tell. */
static enum mics_status exchange(struct mics_run *run, uint32_t own, uint32_t *all,
                                 struct mics_err *err)
{
    struct mics_comm *control = run->options.control;
    enum mics_status status =
        control->ops->all_gather_now(control, &own, run->words, sizeof own, err);

    *all = 0;
    for (int i = 0; status == MICS_OK && i < control->size; i++)
        *all |= run->words[i];
    return mics_run_alone(run, status);
}

static enum mics_status drain(struct mics_run *run, enum mics_status *told, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && mics_engine_uncollected(run->options.engine) > 0)
        status = collect(run, told, err);
    return status;
}

static enum mics_status save(struct mics_run *run, bool to_the_end, enum mics_status *told,
                             struct mics_err *err)
{
    enum mics_status status;

    run->saves = true;
    status = mics_run_save(run, told, err);
    if (status == MICS_OK && to_the_end)
        status = mics_run_finish_save(run, told, err);
    run->saves = false;
    return status;
}

/* At the end of a step: agree on what rank 0 may have met, validate, save. */
static enum mics_status halt(struct mics_run *run, uint32_t wishes, enum mics_status *told,
                             struct mics_err *err)
{
    const struct mics_settings *settings = run->options.settings;
    const bool last = run->step == settings->steps, stop = wishes & MICS_WISH_STOP;
    const uint64_t every = run->options.save_every;
    enum mics_status status = MICS_OK;

    if (run->options.paced)
        return mics_agree(run->options.control, *told, err);
    if (settings->val_every && !stop && (last || run->step % settings->val_every == 0))
        status = mics_run_validate(run, told, err);
    if (status == MICS_OK)
        status = mics_agree(run->options.control, *told, err);
    if (status == MICS_OK &&
        (last || stop || wishes & MICS_WISH_SAVE || (every && run->step % every == 0)))
        status = save(run, last || stop, told, err);
    if (wishes & MICS_WISH_SAVE)
        mics_signals_saved(); /* only now: the launcher's signal has reached all ranks */
    return status;
}

static bool must_halt(const struct mics_run *run, uint64_t step, uint32_t wishes)
{
    const struct mics_settings *settings = run->options.settings;
    const uint64_t save = run->options.save_every, val = settings->val_every;

    return wishes || step == settings->steps || (save && step % save == 0) ||
           (val && step % val == 0);
}

/* One turn of the loop: step `step` is submitted, the one before is told. */
static enum mics_status turn(struct mics_run *run, uint64_t step, bool *stop,
                             enum mics_status *told, struct mics_err *err)
{
    uint32_t wishes = 0;

    run->told_step = step;
    enum mics_status status = submit(run, step, err);

    if (status == MICS_OK && mics_engine_uncollected(run->options.engine) == 2)
        status = collect(run, told, err);
    if (status == MICS_OK)
        status = exchange(run, mine(run, *told), &wishes, err);
    if (status == MICS_OK && mics_saver_active(run->saver) && !(wishes & TELL_SAVING))
        status = mics_run_advance_save(run, told, err);
    wishes &= ~(uint32_t)TELL_SAVING;
    if (status != MICS_OK || !must_halt(run, step, wishes))
        return status;
    status = drain(run, told, err);
    if (status != MICS_OK)
        return status;
    const double begin = mics_now_s();

    mics_signals_hold();
    status = halt(run, wishes, told, err);
    *stop = wishes & MICS_WISH_STOP;
    if (!*stop && step < run->options.settings->steps)
        mics_signals_release();
    run->pause_s = mics_now_s() - begin;
    return status;
}

/* All ranks fail together, for a reason that is not the checkpoint's: what is under way becomes whole. */
static void finish_quietly(struct mics_run *run)
{
    enum mics_status told = MICS_OK;

    run->saves = true;
    mics_run_finish_save(run, &told, NULL);
    run->saves = false;
}

/* Steps are collected, so the counts stand still. */
static enum mics_status count_net_bytes(struct mics_run *run, struct mics_err *err)
{
    struct mics_comm *control = run->options.control;
    const uint64_t own = mics_engine_net_bytes(run->options.engine);
    uint64_t *all = calloc((size_t)control->size, sizeof *all);
    enum mics_status status = MICS_ERR_NOMEM;

    run->net_bytes = 0;
    if (all)
        status = control->ops->all_gather_now(control, &own, all, sizeof own, err);
    else
        mics_err_nomem(err);
    for (int i = 0; status == MICS_OK && i < control->size; i++)
        run->net_bytes += all[i];
    free(all);
    return mics_run_alone(run, status);
}

/* What the device had to say up to now. */
static void tell_notes(const struct mics_run *run)
{
    struct mics_device *device = run->options.device;
    struct mics_device_note note;

    while (run->options.observer.note && device->ops->next_note &&
           device->ops->next_note(device, &note))
        run->options.observer.note(&note);
}

enum mics_status mics_run_steps(struct mics_run *run, enum mics_run_end *end, struct mics_err *err)
{
    const uint64_t last = run->options.settings->steps;
    enum mics_status status = MICS_OK, told = MICS_OK;
    bool stop = false;

    mics_signals_set_grace(GRACE_FIRST);
    tell_notes(run);
    for (uint64_t step = run->step + 1; status == MICS_OK && !stop && step <= last; step++) {
        status = turn(run, step, &stop, &told, err);
        tell_notes(run);
    }
    *end = run->step < last ? MICS_RUN_STOPPED : MICS_RUN_DONE;
    if (status != MICS_OK && !run->alone && mics_saver_active(run->saver))
        finish_quietly(run);
    return status == MICS_OK ? count_net_bytes(run, err) : status;
}
