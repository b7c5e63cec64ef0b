/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - is what is on disk what was written?
 *
 * A checkpoint's files are summed, several at a time; files of Hugging Face have no sums, so that their
 * headers, and that no number is infinite or NaN, is all that can be checked.
 */
#include "ckpt/convert/ops.h"

#include "base/num.h"
#include "comm/agree.h"
#include "ckpt/convert/model.h"
#include "ckpt/convert/write.h"
#include "base/workers.h"

#include <pthread.h>
#include <stdlib.h>

#define PIECE_NUMBERS ((uint64_t)4 << 20)

/* Threads take pieces of tensors from one row. */
struct row {
    const struct mics_hf *hf;
    struct mics_meter meter;
    pthread_mutex_t lock; /* of what follows */
    size_t tensor;        /* the next piece */
    uint64_t at;
    unsigned char *bad; /* [tensor]: 1, 0 */
    struct mics_problems *problems;
    enum mics_status status;
    struct mics_err err;
};

/* The next piece of a tensor; false: there is none, or there was a failure. */
static bool take_piece(struct row *row, struct mics_extent *piece)
{
    const struct mics_store *store = &row->hf->store;
    bool found = false;

    pthread_mutex_lock(&row->lock);
    while (row->tensor < store->table_count && row->at >= store->table[row->tensor].count) {
        row->tensor++;
        row->at = 0;
    }
    if (row->status == MICS_OK && row->tensor < store->table_count) {
        *piece = store->table[row->tensor];
        piece->start = row->at;
        piece->count = mics_min_u64(piece->count - row->at, PIECE_NUMBERS);
        row->at += piece->count;
        found = true;
    }
    pthread_mutex_unlock(&row->lock);
    return found;
}

/* A number that is not finite is a problem of its tensor, and is told once; whatever else goes wrong ends it all. */
static void put_result(struct row *row, const struct mics_extent *piece, enum mics_status status,
                       const struct mics_err *err)
{
    if (status == MICS_OK)
        return;
    pthread_mutex_lock(&row->lock);
    if (status != MICS_ERR_FORMAT && row->status == MICS_OK) {
        row->status = status;
        row->err = *err;
    } else if (status == MICS_ERR_FORMAT && !row->bad[piece->space]) {
        mics_problem(row->problems, "%s", err->text);
        row->bad[piece->space] = 1;
    }
    if (row->tensor == piece->space) /* the rest of it tells no more */
        row->at = UINT64_MAX;
    pthread_mutex_unlock(&row->lock);
}

static void *check_pieces(void *context)
{
    struct row *row = context;
    float *buffer = malloc(3 * MICS_STORE_CHUNK * sizeof *buffer);
    struct mics_extent piece = {.space = 0};
    struct mics_err err = {""};
    enum mics_status status;

    if (!buffer)
        put_result(row, &piece, mics_err_nomem(&err), &err);
    while (buffer && take_piece(row, &piece)) {
        const uint64_t end = piece.start + piece.count;

        status = MICS_OK;
        for (uint64_t at = piece.start; status == MICS_OK && at < end; at += MICS_STORE_CHUNK)
            status = mics_store_read(&row->hf->store, piece.space, at,
                                     (size_t)mics_min_u64(end - at, MICS_STORE_CHUNK), piece.number,
                                     buffer, buffer + MICS_STORE_CHUNK, &err);
        put_result(row, &piece, status, &err);
        mics_meter_add(&row->meter, piece.count * mics_number_bytes(piece.number));
    }
    free(buffer);
    return NULL;
}

/* All numbers, as what they are. */
static enum mics_status check_numbers(const struct mics_convert_request *request,
                                      struct mics_hf *hf, struct mics_err *err)
{
    struct mics_problems *problems = request->problems;
    const uint64_t before = problems->count;
    struct row row = {.hf = hf, .problems = problems};
    uint64_t bytes = 0;
    enum mics_status status = mics_hf_list_tensors(hf, err);

    if (status != MICS_OK)
        return status;
    row.bad = calloc(hf->store.table_count + 1, 1);
    if (!row.bad)
        return mics_err_nomem(err);
    for (size_t i = 0; i < hf->tensor_count; i++)
        bytes += hf->tensors[i].is->end - hf->tensors[i].is->begin;
    mics_meter_init(&row.meter, request->progress, request->progress_context, bytes);
    pthread_mutex_init(&row.lock, NULL);
    mics_run_threads(check_pieces, &row, 1);
    pthread_mutex_destroy(&row.lock);
    free(row.bad);
    if (row.status != MICS_OK) {
        if (err)
            *err = row.err;
        return row.status;
    }
    return mics_problems_end(problems, before, hf->folder[0] ? hf->folder : hf->files[0].name, err);
}

enum mics_status mics_convert_verify(const struct mics_convert_request *request, const char *path,
                                     struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_disk_model disk;
    enum mics_status status = mics_disk_model_open(path, request->problems, &disk, err);
    const struct mics_store *store = disk.is_hf ? &disk.hf.store : &disk.shards.store;

    *report = (struct mics_convert_report){.files = store->file_count};
    for (uint32_t i = 0; i < store->file_count; i++)
        report->bytes += store->files[i].bytes;
    status = mics_agree(request->comm, status, err);
    if (status == MICS_OK && !disk.is_hf)
        status = mics_convert_check_sums(request, &disk.shards, err);
    else if (status == MICS_OK && request->comm->rank == 0)
        status = check_numbers(request, &disk.hf, err);
    if (disk.is_hf)
        status = mics_agree(request->comm, status, err);
    mics_disk_model_close(&disk);
    return status;
}
