/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_state.c - saves and resumes a run's state.
 *
 * *rank0_status is an error of rank 0 alone, which the ranks have not agreed on yet.
 */
#include "base/clock.h"
#include "base/num.h"
#include "comm/agree.h"
#include "doc/cursor.h"
#include "plan/memory_ckpt_cost.h"
#include "train/run_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum mics_status take(void *context, uint32_t unit, uint32_t state, uint64_t first,
                             uint64_t count, float *dst, struct mics_err *err)
{
    return mics_engine_export(context, unit, (enum mics_state)state, first, count, dst, err);
}

static enum mics_status put(void *context, uint32_t unit, uint32_t state, uint64_t first,
                            uint64_t count, const float *src, struct mics_err *err)
{
    return mics_engine_import(context, unit, (enum mics_state)state, first, count, src, err);
}

struct mics_ckpt_source mics_run_source(const struct mics_run *run)
{
    return (struct mics_ckpt_source){.take = take, .put = put, .context = run->options.engine};
}

struct mics_checkpoint mics_run_checkpoint(const struct mics_run *run)
{
    return (struct mics_checkpoint){.comm = run->options.control,
                                    .host_ranks = mics_world_host_ranks(run->options.world),
                                    .form = &run->form,
                                    .source = mics_run_source(run)};
}

/* What was read of each source: a new array, or NULL if out of memory. */
static json_t *sources_to_json(const struct mics_data *data, uint64_t samples)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < data->source_count; i++) {
        const struct mics_part *part = &data->sources[i].train;
        const uint64_t read = mics_data_source_samples(data, i, samples);
        json_t *source = json_pack("{s:f,s:I,s:I,s:I}", "weight", data->weights[i], "train_tokens",
                                   (json_int_t)part->tokens.count, "samples", (json_int_t)read,
                                   "epoch", (json_int_t)(read / part->windows));

        if (json_array_append_new(list, source) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *data_to_json(const struct mics_run *run)
{
    const struct mics_data *data = run->options.data;
    char fingerprint[17], val[17];

    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, data->fingerprint);
    if (data->val)
        snprintf(val, sizeof val, "%016" PRIx64, data->val->fingerprint);
    json_t *const words = data->masking && data->masking->begins_word ? json_true() : NULL;
    return json_pack("{s:s,s:s*,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:b,s:o*,s:o}", "fingerprint",
                     fingerprint, "val_fingerprint", data->val ? val : NULL, "read",
                     mics_read_sums_to_json(&run->read), "documents", (json_int_t)data->documents,
                     "bytes", (json_int_t)data->bytes, "train_tokens",
                     (json_int_t)data->train_tokens, "seq", (json_int_t)data->seq, "tokens",
                     (json_int_t)(run->samples * data->seq), "seed", (json_int_t)data->seed, "pack",
                     mics_pack_name(data->pack), "mask_prompt", data->mask_prompt,
                     "mask_whole_words", words, "sources", sources_to_json(data, run->samples));
}

/* The loss scale of a plan in fp16; else *out is NULL. */
static enum mics_status loss_scale_to_json(const struct mics_run *run, json_t **out,
                                           struct mics_err *err)
{
    struct mics_loss_scale_state state;
    enum mics_status status;

    *out = NULL;
    if (run->options.plan->choice.dtype != MICS_F16)
        return MICS_OK;
    status = mics_engine_get_loss_scale(run->options.engine, &state, err);
    if (status != MICS_OK)
        return status;
    *out = json_pack("{s:f,s:I,s:I,s:I}", "scale", state.scale, "clean_steps",
                     (json_int_t)state.clean, "hysteresis", (json_int_t)state.patience, "overflows",
                     (json_int_t)state.overflows);
    return *out ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_run_training_json(const struct mics_run *run, json_t **out,
                                        struct mics_err *err)
{
    json_t *data = data_to_json(run), *scale = NULL;
    json_t *settings = mics_train_settings_to_json(run->options.settings);
    const enum mics_status status = loss_scale_to_json(run, &scale, err);

    *out = data && settings && status == MICS_OK ? json_pack("{s:O,s:O,s:O*}", "settings", settings,
                                                             "data", data, "loss_scale", scale)
                                                 : NULL;
    json_decref(data);
    json_decref(settings);
    json_decref(scale);
    if (status != MICS_OK)
        return status;
    return *out ? MICS_OK : mics_err_nomem(err);
}

/* End a stage of the save. When the checkpoint is complete, rank 0's observer is called. */
static enum mics_status advance(struct mics_run *run, bool *done, enum mics_status *rank0_status,
                                struct mics_err *err)
{
    const struct mics_run_observer *observer = &run->options.observer;
    struct mics_saved saved;
    enum mics_status status = mics_saver_advance(run->disk.saver, done, &saved, err);

    if (status != MICS_OK || !*done)
        return status;
    snprintf(run->disk.last, sizeof run->disk.last, "%s", saved.path);
    run->disk.failures = 0;
    run->disk.retry_s = 0;
    if (*rank0_status == MICS_OK && run->options.world->rank == 0 && observer->saved)
        *rank0_status = observer->saved(observer->context, saved.step, &saved, saved.seconds, err);
    return MICS_OK;
}

enum mics_status mics_run_advance_save(struct mics_run *run, enum mics_status *rank0_status,
                                       struct mics_err *err)
{
    bool done;

    return advance(run, &done, rank0_status, err);
}

enum mics_status mics_run_finish_save(struct mics_run *run, enum mics_status *rank0_status,
                                      struct mics_err *err)
{
    bool done = !mics_saver_active(run->disk.saver);
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && !done)
        status = advance(run, &done, rank0_status, err);
    return status == MICS_OK ? mics_agree(run->options.control, *rank0_status, err) : status;
}

/* What the manifest of the present state says, besides the files. Collective. */
static enum mics_status make_manifest(struct mics_run *run, struct mics_manifest *manifest,
                                      struct mics_err *err)
{
    const enum mics_status status =
        mics_read_sums_add(run->options.control, &run->reader.sums, &run->read, err);

    *manifest = (struct mics_manifest){.step = 0};
    if (status != MICS_OK)
        return status;
    *manifest = (struct mics_manifest){.step = run->step,
                                       .samples = run->samples,
                                       .base_step = run->start.step,
                                       .base_samples = run->start.samples,
                                       .plan = json_incref(run->options.plan_doc),
                                       .tokenizer = json_incref(run->options.tokenizer_doc),
                                       .history = json_incref(run->options.history)};
    return mics_agree(run->options.control, mics_run_training_json(run, &manifest->training, err),
                      err);
}

enum mics_status mics_run_begin_keep(struct mics_run *run, struct mics_err *err)
{
    const double begin_s = mics_now_s();
    const double copy_steps = run->memory.now ? 0 : mics_memory_ckpt_copy_steps(run->memory.every);
    struct mics_manifest manifest;
    const enum mics_status status = make_manifest(run, &manifest, err);

    if (status == MICS_OK)
        mics_memory_saver_begin(run->memory.saver, &manifest, copy_steps * run->totals.step_s);
    run->memory.begun_step = run->step;
    run->memory.now = false;
    mics_manifest_free(&manifest);
    run->memory.pause_s = mics_now_s() - begin_s;
    return status;
}

enum mics_status mics_run_end_keep(struct mics_run *run, uint64_t step,
                                   enum mics_status *rank0_status, struct mics_err *err)
{
    const struct mics_run_observer *observer = &run->options.observer;
    struct mics_memory_ckpt kept;
    enum mics_status status = mics_memory_saver_advance(run->memory.saver, &kept, err);

    run->memory.steps = mics_max_u64(step - run->memory.begun_step,
                                     mics_max_u64(run->memory.steps - 1, MICS_KEEP_STEPS_MIN));
    if (status != MICS_OK)
        return mics_run_survive_keep(run, kept.step, status, rank0_status, err);
    status = mics_run_sum(run, &kept.sent_bytes, err);
    if (status != MICS_OK || run->options.world->rank != 0)
        return status;
    kept.pause_s = run->memory.pause_s;
    run->memory.record->step = kept.step;
    if (*rank0_status == MICS_OK)
        *rank0_status = mics_run_survive_keep(
            run, kept.step,
            mics_memory_ckpt_record_write(run->options.out, run->memory.record, err), rank0_status,
            err);
    if (*rank0_status == MICS_OK && observer->kept)
        *rank0_status = observer->kept(observer->context, &kept, err);
    return MICS_OK;
}

enum mics_status mics_run_save(struct mics_run *run, struct mics_err *err)
{
    struct mics_manifest manifest = {0};
    enum mics_status status;

    if (run->disk.begun_step == run->step)
        return MICS_OK;
    status = make_manifest(run, &manifest, err);
    if (status == MICS_OK)
        status = mics_saver_begin(run->disk.saver, &manifest, err);
    if (status == MICS_OK)
        run->disk.begun_step = run->step;
    mics_manifest_free(&manifest);
    return status;
}

enum mics_status mics_run_open_saver(struct mics_run *run, struct mics_err *err)
{
    const struct mics_checkpoint checkpoint = mics_run_checkpoint(run);

    enum mics_status status =
        mics_saver_new(&checkpoint, run->options.out, &run->options.keep, &run->disk.saver, err);

    if (status == MICS_OK && run->options.tokenizer_files)
        mics_saver_add_tokenizer(run->disk.saver, run->options.tokenizer_files);
    return mics_agree(run->options.control, status, err);
}

enum mics_status mics_run_read_settings(const json_t *doc, struct mics_train_settings *settings,
                                        struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor training = mics_cursor_get_object(&root, "training");

    /* Another trainer's state, which mics-shard has converted, has none. */
    if (mics_cursor_ok(&root) && !mics_cursor_has(&training, "settings"))
        return MICS_OK;
    const struct mics_cursor at = mics_cursor_get_object(&training, "settings");

    return reading.status == MICS_OK ? mics_train_settings_from_json(at.value, settings, err)
                                     : reading.status;
}

/* What a checkpoint says about its data. */
struct data_record {
    const char *fingerprint, *pack;
    const char *val; /* fingerprint of the data for validation only, or NULL */
    uint64_t tokens, seq, seed;
    struct mics_read_sums read;
    uint64_t trained; /* tokens, all samples */
};

static enum mics_status read_record(const json_t *doc, struct data_record *out,
                                    struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor training = mics_cursor_get_object(&root, "training");
    const struct mics_cursor at = mics_cursor_get_object(&training, "data");

    *out = (struct data_record){0};
    out->fingerprint = mics_cursor_get_string(&at, "fingerprint");
    out->val = mics_cursor_opt_string(&at, "val_fingerprint", NULL);
    out->tokens = mics_cursor_get_u64(&at, "train_tokens", 1, INT64_MAX);
    out->seq = mics_cursor_get_u64(&at, "seq", 1, UINT32_MAX);
    out->trained = mics_cursor_get_u64(&at, "tokens", 0, INT64_MAX);
    out->pack = mics_cursor_get_string(&at, "pack");
    out->seed = mics_cursor_get_u64(&at, "seed", 0, INT64_MAX);
    if (reading.status != MICS_OK)
        return reading.status;
    return mics_read_sums_from_json(json_object_get(at.value, "read"), &out->read, err);
}

static enum mics_status match_data(const struct mics_run *run, const struct data_record *then,
                                   struct mics_err *err)
{
    const struct mics_data *data = run->options.data;
    char now[17];

    snprintf(now, sizeof now, "%016" PRIx64, data->fingerprint);
    if (then->trained != run->samples * then->seq)
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "the manifest contradicts itself: %llu samples of %llu tokens do not make "
            "%llu",
            (unsigned long long)run->samples, (unsigned long long)then->seq,
            (unsigned long long)then->trained);
    if (then->seq != data->seq)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint has sequences of %llu tokens, the plan %u%s: "
                            "--other-data resumes with the plan's",
                            (unsigned long long)then->seq, data->seq,
                            strcmp(then->fingerprint, now) == 0 ? "; the text is the same" : "");
    if (strcmp(then->pack, mics_pack_name(data->pack)) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "trained with --pack=%s, now --pack=%s: --other-data resumes with that",
                            then->pack, mics_pack_name(data->pack));
    if (then->seed != data->seed)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "trained in the order of --seed=%llu, now --seed=%llu: --other-data "
                            "resumes in that",
                            (unsigned long long)then->seed, (unsigned long long)data->seed);
    if (strcmp(then->fingerprint, now) != 0 || then->tokens != data->train_tokens)
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "trained on other data (%llu tokens, fingerprint %s; now %llu, %s): --other-data "
            "resumes with the data that is there now",
            (unsigned long long)then->tokens, then->fingerprint,
            (unsigned long long)data->train_tokens, now);
    if (then->val && !data->val)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "validated with --val-data, which is missing now: --other-data resumes "
                            "without");
    snprintf(now, sizeof now, "%016" PRIx64, data->val ? data->val->fingerprint : 0);
    if (then->val && strcmp(then->val, now) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "validated with other data (fingerprint %s; now %s): --other-data "
                            "resumes with the data that is there now",
                            then->val, now);
    return MICS_OK;
}

/* Fingerprints have few of the bytes of large files; so what was read is read again. Collective. */
static enum mics_status resume_data(struct mics_run *run, const json_t *doc, bool other_data,
                                    struct mics_err *err)
{
    const json_t *training = json_object_get(doc, "training");
    struct data_record then = {0};
    enum mics_status status = MICS_OK;

    if (!other_data && !json_object_get(training, "data"))
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "does not say on which data it was trained: --other-data goes on "
                              "with the data that is there now");
    else if (!other_data)
        status = read_record(doc, &then, err);

    if (status == MICS_OK && !other_data)
        status = match_data(run, &then, err);
    status = mics_agree(run->options.control, status, err);
    if (status == MICS_OK && !other_data)
        status = mics_read_sums_check(run->options.control, run->options.data, &then.read,
                                      run->samples, err);
    if (status != MICS_OK)
        return status;
    run->read = other_data ? mics_read_sums_from(run->samples) : then.read;
    run->reader.sums = (struct mics_read_sums){.first = run->read.first, .each = run->read.each};
    if (run->options.world->rank == 0)
        run->reader.sums = run->read;
    return MICS_OK;
}

/* The checkpoint's plan may have had no outer steps, or those that the present plan has not. */
static enum mics_status resume_outer(struct mics_run *run, const json_t *doc, struct mics_err *err)
{
    const size_t then = json_array_size(json_object_get(doc, "states"));

    if (then == run->form.states)
        return MICS_OK;
    if (then > run->form.states) {
        snprintf(run->start.note, sizeof run->start.note,
                 "the plan has no outer steps: their state in the checkpoint is ignored");
        return MICS_OK;
    }
    snprintf(run->start.note, sizeof run->start.note,
             "the checkpoint has no state of outer steps: they begin at its parameters");
    return mics_engine_start_outer(run->options.engine, err);
}

enum mics_status mics_run_start_loss_scale(struct mics_run *run, struct mics_err *err)
{
    const struct mics_loss_scale_settings with =
        mics_train_settings_loss_scale(run->options.settings);
    const struct mics_loss_scale_state state = {.scale = with.initial, .patience = with.hysteresis};

    if (run->options.plan->choice.dtype != MICS_F16)
        return MICS_OK;
    return mics_engine_set_loss_scale(run->options.engine, &state, err);
}

/* Also where the plan, and so how gradients are divided, is another. A static scale, or another
 * first one, is that of the present settings, and so is that after training in another type. */
static enum mics_status resume_loss_scale(struct mics_run *run, const json_t *doc,
                                          struct mics_err *err)
{
    const struct mics_train_settings *settings = run->options.settings;
    const json_t *training = json_object_get(doc, "training");
    struct mics_train_settings then = *settings;
    struct mics_loss_scale_state state = {0};
    enum mics_status status;

    if (run->options.plan->choice.dtype != MICS_F16)
        return MICS_OK;
    if (!json_object_get(training, "loss_scale"))
        return mics_run_start_loss_scale(run, err);
    status = mics_run_read_settings(doc, &then, err);
    if (status != MICS_OK)
        return status;
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor in = mics_cursor_get_object(&root, "training");
    const struct mics_cursor at = mics_cursor_get_object(&in, "loss_scale");

    state.scale = mics_cursor_get_double(&at, "scale", 0x1p-64, 0x1p64);
    state.clean = (uint32_t)mics_cursor_get_u64(&at, "clean_steps", 0, UINT32_MAX);
    state.patience = (uint32_t)mics_cursor_get_u64(&at, "hysteresis", 0, UINT32_MAX);
    state.overflows = mics_cursor_get_u64(&at, "overflows", 0, INT64_MAX);
    if (reading.status != MICS_OK)
        return reading.status;
    if (then.loss_scale != settings->loss_scale ||
        then.initial_loss_scale != settings->initial_loss_scale) {
        state.scale = mics_train_settings_loss_scale(settings).initial;
        state.clean = 0;
    }
    if (then.hysteresis != settings->hysteresis || then.loss_scale != settings->loss_scale)
        state.patience = mics_train_settings_loss_scale(settings).hysteresis;
    return mics_engine_set_loss_scale(run->options.engine, &state, err);
}

enum mics_status mics_run_resume(struct mics_run *run, const char *folder, json_t *doc,
                                 const struct mics_run_memory *memory, bool other_data,
                                 struct mics_err *err)
{
    const struct mics_checkpoint checkpoint = mics_run_checkpoint(run);
    const char *const what = memory ? "state in memory" : folder;
    struct mics_manifest manifest = {0};
    enum mics_status status = mics_manifest_from_doc(doc, &manifest, err);

    if (status == MICS_OK) {
        run->step = run->start.step = manifest.step;
        run->disk.begun_step = memory ? UINT64_MAX : manifest.step;
        run->samples = run->start.samples = manifest.samples;
    }
    mics_manifest_free(&manifest);
    status = mics_agree(run->options.control, status, err);
    if (status == MICS_OK)
        status = resume_data(run, doc, other_data, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", what);
    if (status == MICS_OK)
        status = memory ? mics_memory_load(&checkpoint, memory->node, memory->state, err)
                        : mics_checkpoint_load(&checkpoint, folder, doc, err);
    if (status == MICS_OK)
        status = resume_outer(run, doc, err);
    if (status == MICS_OK)
        status = resume_loss_scale(run, doc, err);
    if (status == MICS_OK)
        status = mics_engine_publish(run->options.engine, err);
    status = mics_agree(run->options.control, status, err);
    run->start.received_bytes = memory ? memory->state->received_bytes : 0;
    if (status == MICS_OK)
        status = mics_run_sum(run, &run->start.received_bytes, err);
    run->start.from_memory = memory != NULL;
    snprintf(run->disk.last, sizeof run->disk.last, "%s", folder);
    return status;
}
