/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_init.c - begin with the parameters of a model on disk (--init).
 *
 * Every rank reads the ranges of its own optimizer shard, which together are all parameters: no
 * random initialisation happens, and a tensor that the model on disk lacks is an error. The sums of
 * a checkpoint's files are compared first, each by one rank.
 */
#include "base/num.h"
#include "ckpt/convert/disk_model.h"
#include "comm/agree.h"
#include "train/run_internal.h"

#include <stdlib.h>

/* Keep the first problem: a job prints one line. */
static void keep_first(void *context, const char *text)
{
    struct mics_err *first = context;

    if (!first->text[0])
        mics_err_set(first, MICS_ERR_FORMAT, "%s", text);
}

/* Elements [from, from + count) of a unit's flat vector to the place `to` of this rank's shard. */
static enum mics_status load_piece(struct mics_run *run, const struct mics_store *store,
                                   uint32_t unit, uint64_t from, uint64_t to, uint64_t count,
                                   float *buffer, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint64_t done = 0; status == MICS_OK && done < count;) {
        const size_t some = (size_t)mics_min_u64(count - done, MICS_STORE_CHUNK);

        status = mics_store_read(store, mics_space_of(unit, 0), from + done, some, MICS_STORAGE_F32,
                                 buffer, buffer + MICS_STORE_CHUNK, err);
        if (status == MICS_OK)
            status = mics_engine_import(run->options.engine, unit, MICS_STATE_PARAM, to + done,
                                        some, buffer, err);
        done += some;
    }
    return status;
}

static enum mics_status load_units(struct mics_run *run, const struct mics_store *store,
                                   struct mics_err *err)
{
    const uint32_t index =
        mics_shape_index(&run->form.choice->shape, (uint32_t)run->options.world->rank).optim;
    float *buffer = malloc(3 * MICS_STORE_CHUNK * sizeof *buffer);
    enum mics_status status = buffer ? MICS_OK : mics_err_nomem(err);

    for (uint32_t unit = 0; status == MICS_OK && unit < run->form.model->unit_count; unit++) {
        const struct mics_layout *layout = &run->form.layouts[unit];
        const uint64_t piece = layout->optim_piece;

        for (uint32_t i = 0; status == MICS_OK && i < layout->segments; i++)
            status = load_piece(run, store, unit, mics_layout_piece_offset(layout, i, piece, index),
                                i * piece, piece, buffer, err);
    }
    free(buffer);
    return status;
}

/* Each file is read by one rank, which reports it for all. */
static enum mics_status verify_files(const struct mics_run *run,
                                     const struct mics_ckpt_reader *reader,
                                     struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const struct mics_world *world = run->options.world;
    struct mics_ckpt_verification verification = {.reader = reader,
                                                  .first = world->rank,
                                                  .stride = world->size,
                                                  .host_ranks = mics_world_host_ranks(world)};
    enum mics_status status = mics_ckpt_verify_files(&verification, err);

    if (status == MICS_OK)
        status = mics_ckpt_verify_status(&verification, diagnostics, err);
    mics_ckpt_verify_free(&verification);
    return status;
}

static enum mics_status load(struct mics_run *run, struct mics_err *err)
{
    struct mics_err first = {""};
    struct mics_diagnostics diagnostics = {.report = keep_first, .context = &first};
    const struct mics_store *store = NULL;
    struct mics_disk_model disk;
    enum mics_status status = mics_disk_model_open(run->options.init, &diagnostics, &disk, err);

    if (status == MICS_OK)
        status = mics_disk_model_config(&disk, err);
    if (status == MICS_OK)
        status =
            mics_disk_model_match(&disk, run->form.model, "the plan", &diagnostics, &store, err);
    if (status == MICS_OK && !disk.is_hf)
        status = verify_files(run, &disk.shards.reader, &diagnostics, err);
    if (status == MICS_OK)
        status = load_units(run, store, err);
    if (status == MICS_OK)
        status = mics_engine_zero_state(run->options.engine, err);
    if (status == MICS_ERR_FORMAT && diagnostics.count == 1)
        mics_err_set(err, status, "%s", first.text);
    else if (status == MICS_ERR_FORMAT && diagnostics.count)
        mics_err_prefix(err, "%s (the first)", first.text);
    mics_disk_model_close(&disk);
    if (status != MICS_OK)
        mics_err_prefix(err, "--init");
    return status;
}

enum mics_status mics_run_load_init(struct mics_run *run, struct mics_err *err)
{
    enum mics_status status = mics_agree(run->options.control, load(run, err), err);

    return status == MICS_OK ? mics_engine_publish(run->options.engine, err) : status;
}
