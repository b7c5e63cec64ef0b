/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/sums.h"

#include "base/num.h"
#include "base/workers.h"
#include "comm/agree.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define PIECE_BYTES ((size_t)1 << 20)

struct check {
    struct mics_sums *sums;
    atomic_uint next;
    pthread_mutex_t lock; /* of what follows */
    enum mics_status status;
    struct mics_err err;
};

static bool is_cancelled(const struct mics_sums *sums)
{
    return sums->cancel && atomic_load(sums->cancel);
}

static enum mics_status sum_file(const struct mics_sums *sums, const struct mics_store_file *file,
                                 void *piece, XXH64_state_t *state, struct mics_err *err)
{
    for (uint64_t at = 0; at < file->bytes && !is_cancelled(sums);) {
        const ssize_t got =
            pread(file->fd, piece, mics_min_u64(PIECE_BYTES, file->bytes - at), (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_err_set_errno(err, "%s", file->path);
        if (got == 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: ends early", file->path);
        XXH64_update(state, piece, (size_t)got);
        at += (uint64_t)got;
        if (sums->progress)
            mics_progress_add(sums->progress, (uint64_t)got);
    }
    return MICS_OK;
}

static void fail(struct check *check, enum mics_status status, const struct mics_err *err)
{
    pthread_mutex_lock(&check->lock);
    if (check->status == MICS_OK) {
        check->status = status;
        check->err = *err;
    }
    pthread_mutex_unlock(&check->lock);
}

static void *check_files(void *context)
{
    struct check *check = context;
    const struct mics_shard_source *source = check->sums->source;
    void *piece = malloc(PIECE_BYTES);
    XXH64_state_t *state = XXH64_createState();
    struct mics_err err = {""};
    enum mics_status status = piece && state ? MICS_OK : mics_err_nomem(&err);

    while (status == MICS_OK && !is_cancelled(check->sums)) {
        const uint32_t i = atomic_fetch_add(&check->next, check->sums->stride);

        if (i >= source->store.file_count)
            break;
        XXH64_reset(state, 0);
        status = sum_file(check->sums, &source->store.files[i], piece, state, &err);
        if (status == MICS_OK && !is_cancelled(check->sums))
            check->sums->damaged[i] = XXH64_digest(state) != source->manifest.files[i].xxh64;
    }
    if (status != MICS_OK)
        fail(check, status, &err);
    XXH64_freeState(state);
    free(piece);
    return NULL;
}

enum mics_status mics_sums_check(struct mics_sums *sums, struct mics_err *err)
{
    struct check check = {.sums = sums, .next = sums->first};

    sums->damaged = calloc(sums->source->store.file_count, 1);
    if (!sums->damaged)
        return mics_err_nomem(err);
    pthread_mutex_init(&check.lock, NULL);
    mics_workers_run(check_files, &check, sums->host_ranks);
    pthread_mutex_destroy(&check.lock);
    if (check.status != MICS_OK && err)
        *err = check.err;
    return check.status;
}

/* The verdicts of all ranks, into each one's. */
static enum mics_status gather(struct mics_sums *sums, struct mics_comm *comm, struct mics_err *err)
{
    const uint32_t count = sums->source->store.file_count;
    unsigned char *all = malloc((size_t)comm->size * count);
    enum mics_status status = mics_agree(comm, all ? MICS_OK : mics_err_nomem(err), err);

    if (status == MICS_OK)
        status = comm->ops->all_gather_now(comm, sums->damaged, all, count, err);
    for (size_t i = 0; status == MICS_OK && i < (size_t)comm->size * count; i++)
        sums->damaged[i % count] |= all[i];
    free(all);
    return status;
}

enum mics_status mics_sums_verdict(const struct mics_sums *sums,
                                   struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const struct mics_shard_source *source = sums->source;
    const uint64_t before = diagnostics->count;

    for (uint32_t i = 0; i < source->store.file_count; i++)
        if (sums->damaged[i])
            mics_diagnostics_add(diagnostics, "%s: is damaged: its sum is not the manifest's",
                                 source->store.files[i].path);
    return mics_diagnostics_status(diagnostics, before, source->folder, err);
}

enum mics_status mics_sums_share(struct mics_sums *sums, struct mics_comm *comm,
                                 enum mics_status status, struct mics_diagnostics *diagnostics,
                                 struct mics_err *err)
{
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = gather(sums, comm, err);
    return status == MICS_OK ? mics_sums_verdict(sums, diagnostics, err) : status;
}

uint64_t mics_sums_bytes(const struct mics_sums *sums)
{
    const struct mics_store *store = &sums->source->store;
    uint64_t bytes = 0;

    for (uint32_t i = sums->first; i < store->file_count; i += sums->stride)
        bytes += store->files[i].bytes;
    return bytes;
}

void mics_sums_free(struct mics_sums *sums)
{
    free(sums->damaged);
    sums->damaged = NULL;
}
