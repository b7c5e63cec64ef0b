/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_init.c - begin with the parameters of a model on disk (--init).
 *
 * Every rank reads the ranges of its own optimizer shard, which together are all parameters: no
 * random initialisation happens, and a tensor that the model on disk lacks is an error. The sums of
 * a checkpoint's files are compared first, each by one rank.
 */
#include "ckpt/convert/disk_model.h"
#include "comm/agree.h"
#include "train/run_internal.h"

#include <stdlib.h>
#include <string.h>

/* What ranges are read from. */
struct ranges {
    const struct mics_store *store;
    float *scratch; /* [2 * MICS_STORE_CHUNK] */
};

static enum mics_status read_range(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                   uint64_t count, float *dst, struct mics_err *err)
{
    const struct ranges *ranges = context;

    return mics_store_read(ranges->store, mics_vector_of(unit, state), first, (size_t)count,
                           MICS_STORAGE_F32, dst, ranges->scratch, err);
}

static enum mics_status load_params(struct mics_run *run, const struct mics_store *store,
                                    struct mics_err *err)
{
    const struct mics_checkpoint own = mics_run_checkpoint(run);
    struct ranges ranges = {store, malloc(2 * MICS_STORE_CHUNK * sizeof(float))};
    enum mics_status status = ranges.scratch ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_shard_read(own.form, run->options.world->rank, 1, read_range, &ranges,
                                 &own.source, err);
    free(ranges.scratch);
    return status;
}

static enum mics_status load(struct mics_run *run, struct mics_err *err)
{
    const struct mics_world *world = run->options.world;
    struct mics_diagnostics diagnostics = {.report = NULL};
    const struct mics_store *store = NULL;
    struct mics_disk_model disk;
    enum mics_status status = mics_disk_model_open(run->options.init, &diagnostics, &disk, err);

    if (status == MICS_OK)
        status = mics_disk_model_config(&disk, err);
    if (status == MICS_OK)
        status =
            mics_disk_model_match(&disk, run->form.model, "the plan", &diagnostics, &store, err);
    if (status == MICS_OK && !disk.is_hf)
        status = mics_ckpt_verify_own(&disk.shards.reader, world->rank, world->size,
                                      mics_world_host_ranks(world), &diagnostics, err);
    if (status == MICS_OK)
        status = load_params(run, store, err);
    if (status == MICS_OK)
        status = mics_engine_zero_state(run->options.engine, err);
    memcpy(run->start.note, diagnostics.note, sizeof run->start.note);
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
