/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - checks a model on disk.
 *
 * A checkpoint has sums. Hugging Face files have none: only their headers can be checked, and that
 * all numbers are finite.
 */
#include "ckpt/convert/convert.h"

#include "base/num.h"
#include "base/threads.h"
#include "ckpt/convert/disk_model.h"
#include "ckpt/tokenizer_files.h"
#include "comm/agree.h"

#include <pthread.h>
#include <stdlib.h>

#define PIECE_NUMBERS ((uint64_t)4 << 20)

/* What the threads share. */
struct scan {
    const struct mics_hf *hf;
    struct mics_progress progress;
    pthread_mutex_t lock; /* protects the members below */
    size_t tensor;        /* the next piece begins at number `at` of this tensor */
    uint64_t at;
    unsigned char *bad; /* [tensor] 1: has been reported */
    struct mics_diagnostics *diagnostics;
    enum mics_status status;
    struct mics_err err;
};

/* *piece = the next piece of a tensor. False: there is none, or a thread has failed. */
static bool take_piece(struct scan *scan, struct mics_extent *piece)
{
    const struct mics_store *store = &scan->hf->store;
    bool found = false;

    pthread_mutex_lock(&scan->lock);
    while (scan->tensor < store->table_count && scan->at >= store->table[scan->tensor].count) {
        scan->tensor++;
        scan->at = 0;
    }
    if (scan->status == MICS_OK && scan->tensor < store->table_count) {
        *piece = store->table[scan->tensor];
        piece->start = scan->at;
        piece->count = mics_min_u64(piece->count - scan->at, PIECE_NUMBERS);
        scan->at += piece->count;
        found = true;
    }
    pthread_mutex_unlock(&scan->lock);
    return found;
}

/* Numbers that are not finite are reported once for each tensor. Any other error ends the scan. */
static void add_result(struct scan *scan, const struct mics_extent *piece, enum mics_status status,
                       const struct mics_err *err)
{
    if (status == MICS_OK)
        return;
    pthread_mutex_lock(&scan->lock);
    if (status != MICS_ERR_FORMAT && scan->status == MICS_OK) {
        scan->status = status;
        scan->err = *err;
    } else if (status == MICS_ERR_FORMAT && !scan->bad[piece->vector]) {
        mics_diagnostics_add(scan->diagnostics, "%s", err->text);
        scan->bad[piece->vector] = 1;
    }
    if (scan->tensor == piece->vector) /* skip the rest */
        scan->at = UINT64_MAX;
    pthread_mutex_unlock(&scan->lock);
}

static void *check_pieces(void *context)
{
    struct scan *scan = context;
    float *buffer = malloc(4 * MICS_STORE_CHUNK * sizeof *buffer);
    struct mics_extent piece = {.vector = 0};
    struct mics_err err = {""};
    enum mics_status status;

    if (!buffer)
        add_result(scan, &piece, mics_err_nomem(&err), &err);
    while (buffer && take_piece(scan, &piece)) {
        const uint64_t end = piece.start + piece.count;

        status = MICS_OK;
        for (uint64_t at = piece.start; status == MICS_OK && at < end; at += MICS_STORE_CHUNK)
            status = mics_store_read(&scan->hf->store, piece.vector, at,
                                     (size_t)mics_min_u64(end - at, MICS_STORE_CHUNK), piece.dtype,
                                     buffer, buffer + 2 * MICS_STORE_CHUNK, &err);
        add_result(scan, &piece, status, &err);
        mics_progress_add(&scan->progress, piece.count * mics_storage_dtype_bytes(piece.dtype));
    }
    free(buffer);
    return NULL;
}

/* Check that all numbers are finite. */
static enum mics_status check_numbers(const struct mics_convert_request *request,
                                      struct mics_hf *hf, struct mics_err *err)
{
    struct mics_diagnostics *diagnostics = request->diagnostics;
    const uint64_t before = diagnostics->count;
    struct scan scan = {.hf = hf, .diagnostics = diagnostics};
    uint64_t bytes = 0;
    enum mics_status status = mics_hf_list_tensors(hf, err);

    if (status != MICS_OK)
        return status;
    mics_hf_check_index(hf, diagnostics);
    scan.bad = calloc(hf->store.table_count + 1, 1);
    if (!scan.bad)
        return mics_err_nomem(err);
    for (size_t i = 0; i < hf->tensor_count; i++)
        bytes += hf->tensors[i].header->end - hf->tensors[i].header->begin;
    mics_progress_init(&scan.progress, request->progress, request->progress_context, bytes);
    pthread_mutex_init(&scan.lock, NULL);
    mics_workers_run(check_pieces, &scan, 1);
    pthread_mutex_destroy(&scan.lock);
    free(scan.bad);
    if (scan.status != MICS_OK) {
        if (err)
            *err = scan.err;
        return scan.status;
    }
    return mics_diagnostics_status(diagnostics, before,
                                   hf->folder[0] ? hf->folder : hf->files[0].name, err);
}

/* Compare the sums of the tokenizer's files, on rank 0, and agree. */
static enum mics_status verify_tokenizer(const struct mics_convert_request *request,
                                         const struct mics_ckpt_reader *reader,
                                         struct mics_err *err)
{
    struct mics_tokenizer_files files = {0};
    enum mics_status status = MICS_OK;

    if (request->comm->rank == 0)
        status = mics_tokenizer_files_load(&files, reader->manifest.tokenizer, reader->folder, err);
    mics_tokenizer_files_free(&files);
    return mics_agree(request->comm, status, err);
}

enum mics_status mics_convert_verify(const struct mics_convert_request *request, const char *path,
                                     struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_disk_model disk;
    enum mics_status status = mics_disk_model_open(path, request->diagnostics, &disk, err);
    const struct mics_store *store = disk.is_hf ? &disk.hf.store : &disk.shards.reader.store;

    *report = (struct mics_convert_report){.files = store->file_count};
    for (uint32_t i = 0; i < store->file_count; i++)
        report->bytes += store->files[i].bytes;
    status = mics_agree(request->comm, status, err);
    if (status == MICS_OK && !disk.is_hf)
        status = mics_convert_verify_sums(request, &disk.shards.reader, err);
    if (status == MICS_OK && !disk.is_hf)
        status = verify_tokenizer(request, &disk.shards.reader, err);
    else if (status == MICS_OK && request->comm->rank == 0)
        status = check_numbers(request, &disk.hf, err);
    if (disk.is_hf)
        status = mics_agree(request->comm, status, err);
    mics_disk_model_close(&disk);
    return status;
}
