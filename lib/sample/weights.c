/* SPDX-License-Identifier: Apache-2.0 */
#include "sample/weights.h"

#include "base/num.h"
#include "base/threads.h"
#include "base/units.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum mics_status mics_params_new(const struct mics_model *model, float ***out, struct mics_err *err)
{
    float **params = calloc(model->unit_count, sizeof *params);
    char size[32];

    if (!params)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->unit_count; i++) {
        params[i] = calloc(model->units[i].count, sizeof(float));
        if (!params[i]) {
            mics_params_free(model, params);
            return mics_err_set(
                err, MICS_ERR_NOMEM, "out of memory: the parameters take %s in fp32",
                mics_format_bytes(model->param_count * sizeof(float), size, sizeof size));
        }
    }
    *out = params;
    return MICS_OK;
}

void mics_params_free(const struct mics_model *model, float **params)
{
    for (uint32_t i = 0; params && i < model->unit_count; i++)
        free(params[i]);
    free(params);
}

/* What the threads of a load have in common. */
struct load {
    const struct mics_weights *weights;
    const struct mics_store *store;
    atomic_uint_fast64_t next; /* chunk, counted over all units */
    pthread_mutex_t lock;      /* protects the members below */
    enum mics_status status;
    struct mics_err err;
};

/* Read chunk number `chunk`. *done: there is none. */
static enum mics_status load_chunk(const struct load *load, uint64_t chunk, float *scratch,
                                   bool *done, struct mics_err *err)
{
    const struct mics_model *model = load->weights->model;

    for (uint32_t i = 0; i < model->unit_count; i++) {
        const uint64_t count = model->units[i].count, first = chunk * MICS_STORE_CHUNK;

        if (first < count)
            return mics_store_read(load->store, mics_vector_of(i, 0), first,
                                   (size_t)mics_min_u64(MICS_STORE_CHUNK, count - first),
                                   MICS_STORAGE_F32, load->weights->params[i] + first, scratch,
                                   err);
        chunk -= mics_ceil_div(count, MICS_STORE_CHUNK);
    }
    *done = true;
    return MICS_OK;
}

static void *load_some(void *context)
{
    struct load *load = context;
    struct mics_err err = {""};
    float *scratch = malloc(2 * MICS_STORE_CHUNK * sizeof *scratch);
    enum mics_status status = scratch ? MICS_OK : mics_err_nomem(&err);
    bool done = false;

    while (status == MICS_OK && !done)
        status = load_chunk(load, atomic_fetch_add(&load->next, 1), scratch, &done, &err);
    pthread_mutex_lock(&load->lock);
    if (status != MICS_OK && load->status == MICS_OK) {
        load->status = status;
        load->err = err;
    }
    pthread_mutex_unlock(&load->lock);
    free(scratch);
    return NULL;
}

static enum mics_status load_all(struct mics_weights *weights, const struct mics_store *store,
                                 struct mics_err *err)
{
    struct load load = {.weights = weights, .store = store};

    pthread_mutex_init(&load.lock, NULL);
    mics_workers_run(load_some, &load, 1);
    pthread_mutex_destroy(&load.lock);
    if (load.status != MICS_OK && err)
        *err = load.err;
    return load.status;
}

static enum mics_status open_model(const char *path, struct mics_weights *out,
                                   struct mics_diagnostics *diagnostics,
                                   const struct mics_store **store, struct mics_err *err)
{
    struct mics_disk_model *disk = &out->disk;
    enum mics_status status = mics_disk_model_open(path, diagnostics, disk, err);

    if (status == MICS_OK)
        status = mics_disk_model_config(disk, err);
    if (status != MICS_OK)
        return status;
    out->model = mics_disk_model_of(disk);
    if (!out->model)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: no config.json: the model is not known",
                            path);
    status = mics_path_format(out->folder, err, "%s",
                              disk->is_hf ? disk->hf.folder : disk->shards.reader.folder);
    if (status == MICS_OK)
        status = mics_disk_model_match(disk, out->model, path, diagnostics, store, err);
    return status;
}

enum mics_status mics_weights_load(const char *path, struct mics_weights *out, struct mics_err *err)
{
    struct mics_diagnostics diagnostics = {.report = NULL};
    const struct mics_store *store = NULL;
    enum mics_status status;

    *out = (struct mics_weights){.params = NULL};
    status = open_model(path, out, &diagnostics, &store, err);
    memcpy(out->note, diagnostics.note, sizeof out->note);
    if (status == MICS_OK && !out->disk.is_hf)
        status = mics_ckpt_verify_own(&out->disk.shards.reader, 0, 1, 1, &diagnostics, err);
    if (status == MICS_OK)
        status = mics_params_new(out->model, &out->params, err);
    return status == MICS_OK ? load_all(out, store, err) : status;
}

void mics_weights_free(struct mics_weights *weights)
{
    mics_params_free(weights->model, weights->params);
    weights->params = NULL;
    mics_disk_model_close(&weights->disk);
}
