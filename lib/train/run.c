/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the training loop.
 *
 * One step is always in flight while the one before it is reported: submit step t, collect step t -
 * 1. While step t computes, the ranks exchange one word of flags each, to agree on what follows it.
 * So agreeing never stalls the pipeline; only validation and checkpoints drain it.
 */
#include "train/run.h"

#include "base/clock.h"
#include "base/num.h"
#include "comm/agree.h"
#include "train/run_internal.h"
#include "train/watch/signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The grace period for a request to stop: so many of the slowest steps so far, and some seconds. */
#define GRACE_STEPS     4
#define GRACE_S         5
#define GRACE_INITIAL_S 60 /* before the first step is timed */

/* The flags of a rank: these, and its requests (enum mics_request). */
enum {
    FLAG_FAILED = 1 << 8,
    FLAG_SAVING = 1 << 9,
    FLAG_RETRY = 1 << 10,
    FLAG_KEEPING = 1 << 11,
    FLAG_LINKS = 1 << 12
};

enum mics_status mics_run_init(struct mics_run *run, const struct mics_run_options *options,
                               struct mics_err *err)
{
    const struct mics_plan_choice *choice = &options->plan->choice;

    *run = (struct mics_run){
        .options = *options,
        .lr = mics_train_settings_lr(options->settings),
        .global_batch = (uint64_t)options->world->size * choice->micro_batch * choice->micro_steps,
        .read = mics_read_sums_from(0),
        .doing = {.what = MICS_RUN_AGREEING, .since_ns = (uint64_t)(mics_now_s() * 1e9)},
        .form = {.model = options->plan->model,
                 .choice = choice,
                 .layouts = mics_engine_schedule(options->engine)->layouts,
                 .states = 1 + mics_choice_states(choice)},
    };
    run->form.parts = mics_ckpt_parts(&run->form);
    if (options->settings->steps > UINT32_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "more than %u steps", UINT32_MAX);
    run->rank_flags = calloc(options->world->size, sizeof *run->rank_flags);
    if (!run->rank_flags)
        return mics_err_nomem(err);
    if (options->eval)
        return MICS_OK;

    const struct mics_reader_options reading = {.data = options->data,
                                                .rank = options->world->rank,
                                                .world_size = options->world->size,
                                                .micro_batch = choice->micro_batch,
                                                .micro_steps = choice->micro_steps,
                                                .skip_first = options->skip_first,
                                                .skip_last = options->skip_last,
                                                .before_read = options->before_read,
                                                .context = options->before_read_context};
    enum mics_status status =
        mics_agree(options->control, mics_reader_open(&run->reader, &reading, err), err);

    if (status == MICS_OK)
        status = mics_run_slow_open(run, err);
    return status == MICS_OK ? mics_run_open_saver(run, err) : status;
}

void mics_run_fini(struct mics_run *run)
{
    mics_saver_free(run->disk.saver);
    mics_reader_close(&run->reader);
    mics_run_slow_close(run);
    free(run->rank_flags);
    run->disk.saver = NULL;
    run->rank_flags = NULL;
}

enum mics_status mics_run_mark_local(struct mics_run *run, enum mics_status status)
{
    run->local_failure = run->local_failure || status != MICS_OK;
    return status;
}

enum mics_status mics_run_begin(struct mics_run *run, struct mics_err *err)
{
    if (run->options.paced)
        return mics_run_start_loss_scale(run, err);
    if (run->options.init)
        return mics_run_load_init(run, err);
    return mics_engine_init(run->options.engine, run->options.settings->seed, err);
}

/* Context of the callback that fills a validation batch: which sequences this rank works on. */
struct batch {
    const struct mics_data *data;
    uint32_t rank, world_size, micro_batch, seq;
    uint64_t first; /* slot of the pass */
    uint64_t total; /* windows to evaluate */
    enum mics_status status;
    struct mics_err err; /* of the first read that failed */
};

static struct batch make_batch(const struct mics_run *run)
{
    const struct mics_plan_choice *choice = &run->options.plan->choice;

    return (struct batch){.data = run->options.data,
                          .rank = run->options.world->rank,
                          .world_size = run->options.world->size,
                          .micro_batch = choice->micro_batch,
                          .seq = choice->seq};
}

static uint64_t slot_of_row(const struct batch *batch, uint32_t micro_step, uint32_t row)
{
    return batch->first + mics_data_batch_slot(micro_step, batch->world_size, batch->rank,
                                               batch->micro_batch, row);
}

/* After a read that failed the batch is still computed, of rows without targets. */
static void note_read(struct batch *batch, enum mics_status status, const struct mics_err *err,
                      int32_t *tokens, int32_t *targets)
{
    if (status == MICS_OK)
        return;
    mics_mask_tokens(batch->seq, tokens, targets);
    if (batch->status == MICS_OK)
        batch->err = *err;
    batch->status = status;
}

static enum mics_status check_reads(const struct batch *batch, struct mics_err *err)
{
    return batch->status == MICS_OK ? MICS_OK
                                    : mics_err_set(err, batch->status, "data: %s", batch->err.text);
}

static void fill_train(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct mics_run *run = context;

    mics_reader_copy(&run->reader, micro_step, tokens, targets);
}

/* Slot i of `total` evaluates window floor(i * windows / total); slots past the end are masked. */
static void fill_val(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    struct batch *batch = context;
    struct mics_err err = {""};

    for (uint32_t row = 0; row < batch->micro_batch; row++) {
        const uint64_t slot = slot_of_row(batch, micro_step, row);
        const size_t offset = (size_t)row * batch->seq;

        if (slot < batch->total) {
            const uint64_t window = slot * batch->data->val_windows / batch->total;

            note_read(
                batch,
                mics_data_read_val(batch->data, window, tokens + offset, targets + offset, &err),
                &err, tokens + offset, targets + offset);
        } else {
            mics_mask_tokens(batch->seq, tokens + offset, targets + offset);
        }
    }
}

/* Over `windows` windows, spread evenly over the text for validation. All steps must be collected.
 * Collective. */
static enum mics_status evaluate(struct mics_run *run, uint64_t windows, struct mics_eval *out,
                                 struct mics_err *err)
{
    struct batch batch = make_batch(run);
    const uint64_t pass_windows = (uint64_t)batch.world_size * batch.micro_batch;
    const double begin = mics_now_s();
    struct mics_eval_sums sums = {0};

    batch.total = windows;
    for (; batch.first < batch.total; batch.first += pass_windows) {
        enum mics_status status =
            mics_engine_eval(run->options.engine, fill_val, &batch, &sums, err);

        if (status == MICS_OK)
            status = check_reads(&batch, err);
        if (status != MICS_OK)
            return mics_run_mark_local(run, status);
    }
    *out = (struct mics_eval){.loss = sums.loss / sums.targets,
                              .accuracy = batch.data->masking ? sums.hits / sums.targets : NAN,
                              .targets = sums.targets,
                              .seconds = mics_now_s() - begin};
    return MICS_OK;
}

/* Over at most val_batches * global_batch windows. */
static enum mics_status validate(struct mics_run *run, enum mics_status *rank0_status,
                                 struct mics_err *err)
{
    const struct mics_run_options *options = &run->options;
    const struct mics_run_observer *observer = &options->observer;
    const uint64_t windows = mics_min_u64(options->settings->val_batches * run->global_batch,
                                          options->data->val_windows);
    struct mics_eval eval = {0};
    bool shown = false;
    enum mics_status status =
        mics_run_mark_local(run, mics_engine_show_average(options->engine, &shown, err));

    if (status == MICS_OK)
        status = evaluate(run, windows, &eval, err);
    if (status == MICS_OK && shown)
        status = mics_run_mark_local(run, mics_engine_hide_average(options->engine, err));
    if (status == MICS_OK && windows > 0 && options->world->rank == 0 && observer->val)
        *rank0_status = observer->val(observer->context, run->step, &eval, err);
    return status;
}

enum mics_status mics_run_eval(struct mics_run *run, struct mics_eval *out, struct mics_err *err)
{
    const enum mics_status status = evaluate(run, run->options.data->val_windows, out, err);

    if (status == MICS_OK && !(out->targets > 0))
        return mics_err_set(err, MICS_ERR_FORMAT, "data: there is no token to predict");
    if (status == MICS_OK && !isfinite(out->loss))
        return mics_err_set(err, MICS_ERR_DEVICE, "the loss is %g", out->loss);
    return status;
}

const char *mics_run_activity_name(unsigned what)
{
    static const char *const names[] = {
        [MICS_RUN_TRAINING] = "training",
        [MICS_RUN_READING] = "reading",
        [MICS_RUN_AGREEING] = "agreeing",
        [MICS_RUN_VALIDATING] = "validating",
        [MICS_RUN_SAVING] = "saving",
        [MICS_RUN_KEEPING] = "keeping",
        [MICS_RUN_MEASURING] = "measuring links",
    };

    return what < sizeof names / sizeof *names ? names[what] : "training";
}

/* For the watchdog. */
static void begin_activity(struct mics_run *run, enum mics_run_activity what)
{
    run->doing.since_ns = (uint64_t)(mics_now_s() * 1e9);
    run->doing.what = what;
}

/* While the step computes, the next one is read. */
static enum mics_status submit(struct mics_run *run, uint64_t step, struct mics_err *err)
{
    const uint64_t first = run->start.samples + (step - run->start.step - 1) * run->global_batch;
    struct mics_step_input input = {.step = (uint32_t)step,
                                    .lr = (float)mics_lr_at(&run->lr, step),
                                    .fill = fill_train,
                                    .fill_context = run};
    struct mics_err read_err = {""};

    begin_activity(run, MICS_RUN_READING);
    run->slow.read[step & 1].begin_s = mics_now_s();
    const enum mics_status read = mics_reader_take(&run->reader, first, &read_err);
    run->slow.read[step & 1].end_s = mics_now_s();
    begin_activity(run, MICS_RUN_TRAINING);
    enum mics_status status = mics_engine_submit(run->options.engine, &input, err);

    if (status == MICS_OK && read != MICS_OK)
        status = mics_err_set(err, read, "data: %s", read_err.text);
    if (status == MICS_OK && step < run->options.settings->steps)
        mics_reader_ahead(&run->reader);
    return mics_run_mark_local(run, status);
}

static void add_to_totals(struct mics_run *run, const struct mics_step_record *record)
{
    const bool finite = isfinite(record->loss);

    run->totals.recent_loss[run->totals.steps % MICS_RUN_RECENT_STEPS] =
        finite ? record->loss : mics_run_recent_loss(run);
    run->totals.steps++;
    run->totals.sum.seconds += record->seconds;
    run->totals.sum.compute_s += record->compute_s;
    run->totals.sum.comm_s += record->comm_s;
    run->totals.sum.exposed_s += record->exposed_s;
    run->totals.sum.cpu.own_s += record->cpu.own_s;
    run->totals.sum.cpu.mpi_s += record->cpu.mpi_s;
    run->totals.sum.cpu.kernel_s += record->cpu.kernel_s;
    run->totals.slowest_s = fmax(run->totals.slowest_s, record->seconds);
    mics_signals_set_grace(GRACE_S + GRACE_STEPS * run->totals.slowest_s);
}

double mics_run_recent_loss(const struct mics_run *run)
{
    const uint64_t count = mics_min_u64(run->totals.steps, MICS_RUN_RECENT_STEPS);
    double sum = 0;

    for (uint64_t i = 0; i < count; i++)
        sum += run->totals.recent_loss[i];
    return sum / (double)count;
}

/* Times by class are taken in the first steps of a run, and then in every tenth. */
enum { SAMPLED_STEPS = 10 };

static enum mics_status sample_classes(const struct mics_run *run, struct mics_step_record *record,
                                       struct mics_class_times *times, struct mics_err *err)
{
    const struct mics_engine *engine = run->options.engine;

    if (run->options.world->rank != 0 ||
        (run->totals.steps > SAMPLED_STEPS && record->step % SAMPLED_STEPS != 0))
        return MICS_OK;
    record->classes = times;
    return mics_timeline_classes(mics_engine_schedule(engine), mics_engine_timeline(engine), times,
                                 err);
}

/* CPU time of communication since the last step. Two steps are in flight, so a step's may be
 * counted in part with the next one. */
static struct mics_comm_cpu take_cpu(struct mics_run *run)
{
    const struct mics_comm_cpu now = mics_comm_cpu_now(), last = run->totals.cpu;

    run->totals.cpu = now;
    return (struct mics_comm_cpu){now.own_s - last.own_s, now.mpi_s - last.mpi_s,
                                  now.kernel_s - last.kernel_s};
}

/* Where the bytes of a step of this turn are in run->sync. */
static uint32_t sync_index(const struct mics_plan_choice *choice, uint32_t turn)
{
    const uint32_t others = 2; /* with outer steps: those without a meeting or its merging */

    if (turn == MICS_TURN_WARMUP || turn == MICS_TURN_ALL)
        return MICS_RUN_SYNC_WARMUP;
    return choice->outer_steps > 0 && turn > others ? others : turn;
}

/* Collect the oldest step and report it. Loss and gradient norm are equal on all ranks, so all
 * ranks fail together if one is not finite. */
static enum mics_status collect(struct mics_run *run, enum mics_status *rank0_status,
                                struct mics_err *err)
{
    const struct mics_run_observer *observer = &run->options.observer;
    const struct mics_plan_choice *choice = &run->options.plan->choice;
    struct mics_step_result result;
    enum mics_status status = mics_engine_collect(run->options.engine, &result, err);

    if (status != MICS_OK)
        return mics_run_mark_local(run, status);
    const struct mics_comm_cpu cpu = take_cpu(run);
    if (run->options.trace)
        mics_trace_record(run->options.trace, run->options.engine, &result, &cpu);
    const double seconds = fmax(result.seconds - run->totals.pause_s, 1e-9);
    struct mics_class_times times;
    struct mics_router_summary router;
    struct mics_step_record record = {
        .step = result.step,
        .loss = result.loss,
        .lr = mics_lr_at(&run->lr, result.step),
        .grad_norm = result.grad_norm,
        .seconds = seconds,
        .tokens_per_s = (double)run->global_batch * choice->seq / seconds,
        .compute_s = result.overlap.compute_s,
        .comm_s = result.overlap.comm_s,
        .exposed_s = result.overlap.exposed_s,
        .cpu = cpu,
        .sync_bytes = run->sync.bytes[sync_index(choice, result.turn)],
        .exact_sync_bytes = run->sync.exact_bytes,
        .model = run->options.plan->model,
        .stats = result.stats,
        .loss_scale = result.loss_scale,
        .next_loss_scale = result.next_loss_scale,
        .overflow = result.overflow,
        .at_minimum = result.at_minimum,
        .skipped = result.skipped,
    };
    if (result.stats) {
        mics_model_router_summary(record.model, result.stats, result.targets,
                                  (double)run->global_batch * choice->seq,
                                  choice->shapes[MICS_UNIT_EXPERT].p_param, &router);
        record.router = &router;
        mics_run_warn_dropped(run, &record);
    }
    mics_run_slow_note(run, &result, seconds);
    run->totals.pause_s = 0;
    run->step = result.step;
    run->totals.step_s = seconds;
    run->samples += run->global_batch;
    add_to_totals(run, &record);
    status = sample_classes(run, &record, &times, err);
    if (status != MICS_OK)
        return mics_run_mark_local(run, status);
    if (*rank0_status == MICS_OK && run->options.world->rank == 0 && observer->step)
        *rank0_status = observer->step(observer->context, &record, err);
    return mics_run_check_finite(run, &record, rank0_status, err);
}

/* Collect every step in flight. */
static enum mics_status drain(struct mics_run *run, enum mics_status *rank0_status,
                              struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && mics_engine_uncollected(run->options.engine) > 0)
        status = collect(run, rank0_status, err);
    return status;
}

static bool save_is_due_again(const struct mics_run *run)
{
    return run->disk.retry_s > 0 && mics_now_s() >= run->disk.retry_s &&
           !mics_saver_active(run->disk.saver);
}

/* *flags: those of all ranks, or-ed together. Collective. */
static enum mics_status exchange_flags(struct mics_run *run, enum mics_status rank0_status,
                                       uint32_t *flags, struct mics_err *err)
{
    struct mics_comm *control = run->options.control;
    const uint32_t own =
        mics_signals_requests() | (rank0_status != MICS_OK ? FLAG_FAILED : 0) |
        (mics_saver_busy(run->disk.saver) ? FLAG_SAVING : 0) |
        (run->memory.saver && mics_memory_saver_busy(run->memory.saver) ? FLAG_KEEPING : 0) |
        (run->slow.measure_links ? FLAG_LINKS : 0) |
        (run->options.world->rank == 0 && save_is_due_again(run) ? FLAG_RETRY : 0);

    begin_activity(run, MICS_RUN_AGREEING);
    enum mics_status status =
        mics_comm_all_gather_now(control, &own, run->rank_flags, sizeof own, err);
    begin_activity(run, MICS_RUN_TRAINING);

    *flags = 0;
    for (int i = 0; status == MICS_OK && i < control->size; i++)
        *flags |= run->rank_flags[i];
    return mics_run_mark_local(run, status);
}

/* Once in a window of steps. Collective. */
static enum mics_status name_slow_ranks(struct mics_run *run, enum mics_status *rank0_status,
                                        struct mics_err *err)
{
    if (run->slow.steps < MICS_SLOW_WINDOW)
        return MICS_OK;
    begin_activity(run, MICS_RUN_AGREEING);
    const enum mics_status status = mics_run_slow_judge(run, rank0_status, err);
    begin_activity(run, MICS_RUN_TRAINING);
    return status;
}

/* Not before the run ends. */
static bool must_measure_links(const struct mics_run *run, uint64_t step, uint32_t flags)
{
    return (flags & FLAG_LINKS) && !(flags & (FLAG_FAILED | MICS_REQUEST_STOP)) &&
           step < run->options.settings->steps;
}

/* Between steps. Collective. */
static enum mics_status measure_links(struct mics_run *run, enum mics_status *rank0_status,
                                      struct mics_err *err)
{
    begin_activity(run, MICS_RUN_MEASURING);
    const enum mics_status status = mics_run_slow_measure_links(run, rank0_status, err);
    begin_activity(run, MICS_RUN_TRAINING);
    return status;
}

/* Begin a checkpoint after completing the one before. With `wait`, the last of the run, complete
 * it; then a failure is not survived. */
static enum mics_status save(struct mics_run *run, bool wait, enum mics_status *rank0_status,
                             struct mics_err *err)
{
    enum mics_status status;

    run->disk.waiting = true;
    status =
        mics_run_survive_save(run, mics_run_finish_save(run, rank0_status, err), rank0_status, err);
    if (status == MICS_OK)
        status = mics_run_save(run, err);
    if (status == MICS_OK && wait)
        status = mics_run_finish_save(run, rank0_status, err);
    if (!wait)
        status = mics_run_survive_save(run, status, rank0_status, err);
    run->disk.waiting = false;
    return status;
}

/* Is it time to keep the state in memory? Not while the one before is on its way, but early enough
 * that it is complete memory_every steps after the one before. */
static bool must_keep(const struct mics_run *run, uint64_t step)
{
    return run->memory.saver && step < run->options.settings->steps &&
           !mics_memory_saver_active(run->memory.saver) &&
           (run->memory.now ||
            step + run->memory.steps >= run->memory.begun_step + run->memory.every);
}

/* Before the state is saved: use up the gradients that units have accumulated. */
static enum mics_status update_carried(struct mics_run *run, enum mics_status *rank0_status,
                                       struct mics_err *err)
{
    struct mics_step_result result;
    const enum mics_status status =
        mics_run_mark_local(run, mics_engine_update_carried(run->options.engine, &result, err));

    if (status != MICS_OK || isfinite(result.grad_norm))
        return status;
    const struct mics_step_record record = {
        .step = run->step,
        .grad_norm = result.grad_norm,
        .loss_scale = result.loss_scale,
        .next_loss_scale = result.next_loss_scale,
        .overflow = result.overflow,
        .at_minimum = result.at_minimum,
    };
    return mics_run_check_finite(run, &record, rank0_status, err);
}

/* Between steps, with none in flight: agree on *rank0_status, validate, save. What is saved has all
 * gradients in it, so that training goes on from it as this run does. */
static enum mics_status validate_and_save(struct mics_run *run, uint32_t requests,
                                          enum mics_status *rank0_status, struct mics_err *err)
{
    const struct mics_train_settings *settings = run->options.settings;
    const bool last = run->step == settings->steps, stop = requests & MICS_REQUEST_STOP;
    const uint64_t every = run->options.save_every;
    const bool saves = last || stop || requests & (MICS_REQUEST_SAVE | FLAG_RETRY) ||
                       (every && run->step % every == 0);
    const bool keeps = !stop && must_keep(run, run->step);
    enum mics_status status = MICS_OK;

    if (run->options.paced)
        return mics_agree(run->options.control, *rank0_status, err);
    if (saves || keeps)
        status = update_carried(run, rank0_status, err);
    /* Replicas that train on their own become one state, of which the checkpoint has parts. */
    if (status == MICS_OK && (saves || keeps))
        status = mics_run_mark_local(run, mics_engine_average(run->options.engine, err));
    if (status == MICS_OK && settings->val_every && !stop &&
        (last || run->step % settings->val_every == 0)) {
        begin_activity(run, MICS_RUN_VALIDATING);
        status = validate(run, rank0_status, err);
    }
    begin_activity(run, MICS_RUN_AGREEING);
    if (status == MICS_OK)
        status = mics_agree(run->options.control, *rank0_status, err);
    begin_activity(run, MICS_RUN_SAVING);
    if (status == MICS_OK && saves)
        status = save(run, last || stop, rank0_status, err);
    begin_activity(run, MICS_RUN_KEEPING);
    if (status == MICS_OK && keeps)
        status = mics_run_begin_keep(run, err);
    begin_activity(run, MICS_RUN_TRAINING);
    if (requests & MICS_REQUEST_SAVE)
        mics_signals_clear_save(); /* not earlier: the launcher's signal has reached all ranks */
    return status;
}

static bool must_drain(const struct mics_run *run, uint64_t step, uint32_t flags)
{
    const struct mics_train_settings *settings = run->options.settings;
    const uint64_t save_every = run->options.save_every, val_every = settings->val_every;

    return flags || step == settings->steps || (save_every && step % save_every == 0) ||
           (val_every && step % val_every == 0) || must_keep(run, step);
}

/* One iteration of the loop: submit `step`, report the step before it, and do what the ranks agree
 * on. */
static enum mics_status run_iteration(struct mics_run *run, uint64_t step, bool *stop,
                                      enum mics_status *rank0_status, struct mics_err *err)
{
    uint32_t flags = 0;

    run->submitted_step = step;
    enum mics_status status = submit(run, step, err);

    if (status == MICS_OK && mics_engine_uncollected(run->options.engine) == 2)
        status = collect(run, rank0_status, err);
    if (status == MICS_OK)
        status = exchange_flags(run, *rank0_status, &flags, err);
    if (status == MICS_OK)
        status = name_slow_ranks(run, rank0_status, err);
    if (status == MICS_OK && mics_saver_active(run->disk.saver) && !(flags & FLAG_SAVING))
        status = mics_run_survive_save(run, mics_run_advance_save(run, rank0_status, err),
                                       rank0_status, err);
    if (status == MICS_OK && run->memory.saver && mics_memory_saver_active(run->memory.saver) &&
        !(flags & FLAG_KEEPING))
        status = mics_run_end_keep(run, step, rank0_status, err);
    flags &= ~(uint32_t)(FLAG_SAVING | FLAG_KEEPING);
    if (status != MICS_OK || !must_drain(run, step, flags))
        return status;
    status = drain(run, rank0_status, err);
    if (status != MICS_OK)
        return status;
    const double begin = mics_now_s();

    mics_signals_hold_grace();
    if (must_measure_links(run, step, flags))
        status = measure_links(run, rank0_status, err);
    if (status == MICS_OK)
        status = validate_and_save(run, flags, rank0_status, err);
    *stop = flags & MICS_REQUEST_STOP;
    if (!*stop && step < run->options.settings->steps)
        mics_signals_resume_grace();
    run->totals.pause_s = mics_now_s() - begin;
    run->totals.cpu = mics_comm_cpu_now();
    mics_run_slow_resume(run);
    return status;
}

/* All ranks fail together, for a reason other than the checkpoint under way: complete it. */
static void complete_save(struct mics_run *run)
{
    enum mics_status rank0_status = MICS_OK;

    run->disk.waiting = true;
    mics_run_finish_save(run, &rank0_status, NULL);
    run->disk.waiting = false;
}

enum mics_status mics_run_sum(struct mics_run *run, uint64_t *value, struct mics_err *err)
{
    struct mics_comm *control = run->options.control;
    const uint64_t own = *value;
    enum mics_status status;
    uint64_t *all = mics_all_gather(control, &own, sizeof own, &status, err);

    *value = 0;
    for (int i = 0; status == MICS_OK && i < control->size; i++)
        *value += all[i];
    free(all);
    return mics_run_mark_local(run, status);
}

/* Pass on the device's pending messages. */
static void forward_notes(const struct mics_run *run)
{
    struct mics_device *device = run->options.device;
    struct mics_device_note note;

    while (run->options.observer.note && device && device->ops->next_note &&
           device->ops->next_note(device, &note))
        run->options.observer.note(&note);
}

static bool syncs_exactly(const struct mics_plan_choice *choice)
{
    return !mics_choice_compresses_sync(choice) && mics_choice_interval(choice) == 1 &&
           choice->outer_steps == 0;
}

/* Collective. */
static enum mics_status plan_sync(struct mics_run *run, struct mics_err *err)
{
    const struct mics_plan *plan = run->options.plan;
    const struct mics_plan_choice *choice = &plan->choice;
    const struct mics_schedule *schedule = mics_engine_schedule(run->options.engine);
    const uint32_t rank = run->options.world->rank;
    const uint32_t turns = choice->outer_steps > 0 ? 3 : mics_choice_interval(choice);
    const uint32_t first = choice->outer_steps > 0 ? MICS_TURN_WARMUP : MICS_TURN_ALL;
    enum mics_status status;

    if (syncs_exactly(choice))
        return MICS_OK;
    status = mics_schedule_exact_sync_bytes(plan->model, choice, rank, &run->sync.exact_bytes, err);
    status = mics_agree(run->options.control, status, err);
    for (uint32_t turn = 0; turn < turns; turn++)
        run->sync.bytes[turn] = mics_schedule_sync_bytes(schedule, choice, rank, turn);
    run->sync.bytes[MICS_RUN_SYNC_WARMUP] = mics_schedule_sync_bytes(schedule, choice, rank, first);
    for (uint32_t i = 0; status == MICS_OK && i < MICS_RUN_SYNC_TURNS; i++)
        if (i < turns || i == MICS_RUN_SYNC_WARMUP)
            status = mics_run_sum(run, &run->sync.bytes[i], err);
    return status == MICS_OK ? mics_run_sum(run, &run->sync.exact_bytes, err) : status;
}

/* Collective. */
static enum mics_status count_sync(struct mics_run *run, struct mics_err *err)
{
    struct mics_comm_counts counts[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    struct mics_run_totals *totals = &run->totals;

    if (syncs_exactly(&run->options.plan->choice))
        return MICS_OK;
    mics_engine_counts(run->options.engine, counts);
    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        totals->sync_bytes += counts[groups][MICS_COMM_SCATTER].sent_bytes +
                              counts[groups][MICS_COMM_REPLICA].sent_bytes;
    totals->exact_sync_bytes = run->sync.exact_bytes * totals->steps;
    return mics_run_sum(run, &totals->sync_bytes, err);
}

enum mics_status mics_run_steps(struct mics_run *run, enum mics_run_end *end, struct mics_err *err)
{
    const uint64_t last = run->options.settings->steps;
    enum mics_status status = MICS_OK, rank0_status = MICS_OK;
    bool stop = false;

    begin_activity(run, MICS_RUN_AGREEING);
    mics_signals_set_grace(GRACE_INITIAL_S);
    run->totals.cpu = mics_comm_cpu_now();
    mics_run_slow_resume(run);
    forward_notes(run);
    status = plan_sync(run, err);
    for (uint64_t step = run->step + 1; status == MICS_OK && !stop && step <= last; step++) {
        status = run_iteration(run, step, &stop, &rank0_status, err);
        forward_notes(run);
    }
    *end = run->step < last ? MICS_RUN_STOPPED : MICS_RUN_DONE;
    if (status != MICS_OK && !run->local_failure && mics_saver_active(run->disk.saver))
        complete_save(run);
    if (status != MICS_OK)
        return status; /* the streams may still be running */
    run->totals.net_bytes = mics_engine_net_bytes(run->options.engine);
    status = mics_run_sum(run, &run->totals.net_bytes, err);
    return status == MICS_OK ? count_sync(run, err) : status;
}
