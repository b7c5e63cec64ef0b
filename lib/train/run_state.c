/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_state.c - saves and resumes a run's state.
 *
 * *rank0_status is an error of rank 0 alone, which the ranks have not agreed on yet.
 */
#include "comm/agree.h"
#include "doc/cursor.h"
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

struct mics_checkpoint mics_run_checkpoint(const struct mics_run *run)
{
    return (struct mics_checkpoint){
        .comm = run->options.control,
        .host_ranks = mics_world_host_ranks(run->options.world),
        .form = &run->form,
        .source = {.take = take, .put = put, .context = run->options.engine}};
}

static void format_fingerprint(const struct mics_data *data, char text[17])
{
    snprintf(text, 17, "%016" PRIx64, data->corpus.fingerprint);
}

json_t *mics_run_training_json(const struct mics_run *run)
{
    const struct mics_data *data = run->options.data;
    json_t *settings = mics_settings_to_json(run->options.settings);
    char fingerprint[17];

    format_fingerprint(data, fingerprint);
    return settings
               ? json_pack("{s:o,s:{s:s,s:I,s:I,s:I,s:I}}", "settings", settings, "data",
                           "fingerprint", fingerprint, "documents", (json_int_t)data->corpus.count,
                           "bytes", (json_int_t)data->corpus.bytes, "train_tokens",
                           (json_int_t)data->train.count, "seq", (json_int_t)data->seq)
               : NULL;
}

/* End a stage of the save. When the checkpoint is complete, rank 0's observer is called. */
static enum mics_status advance(struct mics_run *run, bool *done, enum mics_status *rank0_status,
                                struct mics_err *err)
{
    const struct mics_run_observer *observer = &run->options.observer;
    struct mics_saved saved;
    enum mics_status status = mics_saver_advance(run->saver, done, &saved, err);

    if (status != MICS_OK || !*done)
        return status;
    snprintf(run->last_checkpoint, sizeof run->last_checkpoint, "%s", saved.path);
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
    bool done = !mics_saver_active(run->saver);
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && !done)
        status = advance(run, &done, rank0_status, err);
    return status == MICS_OK ? mics_agree(run->options.control, *rank0_status, err) : status;
}

enum mics_status mics_run_save(struct mics_run *run, enum mics_status *rank0_status,
                               struct mics_err *err)
{
    struct mics_manifest manifest = {0};
    enum mics_status status;

    if (run->saved_step == run->step)
        return MICS_OK;
    status = mics_run_finish_save(run, rank0_status, err);
    if (status != MICS_OK)
        return status;
    manifest = (struct mics_manifest){.step = run->step,
                                      .samples = run->samples,
                                      .plan = json_incref(run->options.plan_doc),
                                      .history = json_incref(run->options.history),
                                      .training = mics_run_training_json(run)};
    status =
        mics_agree(run->options.control, manifest.training ? MICS_OK : mics_err_nomem(err), err);
    if (status == MICS_OK)
        status = mics_saver_begin(run->saver, &manifest, err);
    if (status == MICS_OK)
        run->saved_step = run->step;
    mics_manifest_free(&manifest);
    return status;
}

enum mics_status mics_run_open_saver(struct mics_run *run, struct mics_err *err)
{
    const struct mics_checkpoint checkpoint = mics_run_checkpoint(run);

    return mics_agree(
        run->options.control,
        mics_saver_new(&checkpoint, run->options.out, &run->options.keep, &run->saver, err), err);
}

enum mics_status mics_run_read_settings(const json_t *doc, struct mics_settings *settings,
                                        struct mics_err *err)
{
    struct mics_cursor root = mics_cursor_root(doc), training, at;
    enum mics_status status = mics_cursor_object(&root, "training", &training, err);

    if (status == MICS_OK)
        status = mics_cursor_object(&training, "settings", &at, err);
    if (status == MICS_OK)
        status = mics_settings_from_json(at.value, settings, err);
    return status;
}

static enum mics_status match_data(const struct mics_run *run, const json_t *doc,
                                   struct mics_err *err)
{
    const struct mics_data *data = run->options.data;
    struct mics_cursor root = mics_cursor_root(doc), training, at;
    const char *then = NULL;
    uint64_t tokens = 0, seq = 0;
    char now[17];
    enum mics_status status = mics_cursor_object(&root, "training", &training, err);

    if (status == MICS_OK)
        status = mics_cursor_object(&training, "data", &at, err);
    if (status == MICS_OK)
        status = mics_cursor_string(&at, "fingerprint", &then, err);
    if (status == MICS_OK)
        status = mics_cursor_u64(&at, "train_tokens", 1, INT64_MAX, &tokens, err);
    if (status == MICS_OK)
        status = mics_cursor_u64(&at, "seq", 1, UINT32_MAX, &seq, err);
    if (status != MICS_OK)
        return status;
    format_fingerprint(data, now);
    if (strcmp(then, now) == 0 && tokens == data->train.count && seq == data->seq)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "trained on other data (%llu tokens in sequences of %llu, fingerprint %s; "
                        "now %llu in %u, %s): --other-data resumes with the data that is there now",
                        (unsigned long long)tokens, (unsigned long long)seq, then,
                        (unsigned long long)data->train.count, data->seq, now);
}

enum mics_status mics_run_resume(struct mics_run *run, const char *folder, json_t *doc,
                                 bool other_data, struct mics_err *err)
{
    const struct mics_checkpoint checkpoint = mics_run_checkpoint(run);
    struct mics_manifest manifest = {0};
    enum mics_status status = mics_manifest_from_doc(doc, &manifest, err);

    if (status == MICS_OK) {
        run->step = run->base_step = run->saved_step = manifest.step;
        run->samples = run->base_samples = manifest.samples;
    }
    mics_manifest_free(&manifest);
    if (status == MICS_OK && !other_data)
        status = match_data(run, doc, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", folder);
    status = mics_agree(run->options.control, status, err);
    if (status == MICS_OK)
        status = mics_checkpoint_load(&checkpoint, folder, doc, err);
    if (status == MICS_OK)
        status = mics_engine_publish(run->options.engine, err);
    snprintf(run->last_checkpoint, sizeof run->last_checkpoint, "%s", folder);
    return mics_agree(run->options.control, status, err);
}
