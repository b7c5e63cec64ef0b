/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_verify.c - is what is on disk what was written?
 *
 * A checkpoint's files are summed, several at a time; files of Hugging Face have no sums, so that their
 * headers, and that no number is infinite or NaN, is all that can be checked.
 */
#include "ckpt/convert_ops.h"

#include "base/num.h"
#include "ckpt/convert_model.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define MAX_THREADS 16

struct check {
    const struct mics_shard_source *source;
    uint32_t stride;
    atomic_uint next;
    pthread_mutex_t lock; /* of what follows */
    struct mics_problems *problems;
    enum mics_status status;
    struct mics_err err;
};

static enum mics_status sum_file(const struct mics_store_file *file, void *piece, uint64_t *sum,
                                 struct mics_err *err)
{
    XXH64_state_t *state = XXH64_createState();
    enum mics_status status = state ? MICS_OK : mics_err_nomem(err);
    uint64_t at = 0;

    if (state)
        XXH64_reset(state, 0);
    while (status == MICS_OK && at < file->bytes) {
        const ssize_t got =
            pread(file->fd, piece, mics_min_u64(PIECE_BYTES, file->bytes - at), (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            status = got < 0 ? mics_err_set_errno(err, "%s", file->path)
                             : mics_err_set(err, MICS_ERR_FORMAT, "%s: ends early", file->path);
            break;
        }
        XXH64_update(state, piece, (size_t)got);
        at += (uint64_t)got;
    }
    if (status == MICS_OK)
        *sum = XXH64_digest(state);
    XXH64_freeState(state);
    return status;
}

static void check_file(struct check *check, uint32_t index, void *piece)
{
    const struct mics_store_file *file = &check->source->store.files[index];
    struct mics_err err = {""};
    uint64_t sum = 0;
    const enum mics_status status = sum_file(file, piece, &sum, &err);

    pthread_mutex_lock(&check->lock);
    if (status != MICS_OK && check->status == MICS_OK) {
        check->status = status;
        check->err = err;
    }
    if (status == MICS_OK && sum != check->source->manifest.files[index].xxh64)
        mics_problem(check->problems, "%s: is damaged: its sum is not the manifest's", file->path);
    pthread_mutex_unlock(&check->lock);
}

static void *check_files(void *context)
{
    struct check *check = context;
    void *piece = malloc(PIECE_BYTES);
    uint32_t i;

    if (!piece) {
        pthread_mutex_lock(&check->lock);
        check->status = mics_err_nomem(&check->err);
        pthread_mutex_unlock(&check->lock);
        return NULL;
    }
    while ((i = atomic_fetch_add(&check->next, check->stride)) < check->source->store.file_count)
        check_file(check, i, piece);
    free(piece);
    return NULL;
}

enum mics_status mics_shard_source_sums(const struct mics_shard_source *source, uint32_t first,
                                        uint32_t stride, struct mics_problems *problems,
                                        struct mics_err *err)
{
    struct check check = {.source = source, .stride = stride, .next = first, .problems = problems};
    const uint64_t before = problems->count;
    pthread_t threads[MAX_THREADS];
    cpu_set_t cores;
    unsigned wanted = 1, started = 0;

    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        wanted = (unsigned)mics_min_u64((uint64_t)CPU_COUNT(&cores), MAX_THREADS);
    pthread_mutex_init(&check.lock, NULL);
    while (started + 1 < wanted &&
           pthread_create(&threads[started], NULL, check_files, &check) == 0)
        started++;
    check_files(&check); /* this thread is one of them */
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&check.lock);
    if (check.status != MICS_OK) {
        if (err)
            *err = check.err;
        return check.status;
    }
    return mics_problems_end(problems, before, source->folder, err);
}

/* All numbers, as what they are. */
static enum mics_status check_numbers(struct mics_hf *hf, struct mics_problems *problems,
                                      struct mics_err *err)
{
    const uint64_t before = problems->count;
    float *buffer = malloc(3 * MICS_STORE_CHUNK * sizeof *buffer);
    enum mics_status status = buffer ? mics_hf_spread(hf, err) : mics_err_nomem(err);

    for (size_t i = 0; status == MICS_OK && i < hf->store.table_count; i++) {
        const struct mics_extent *tensor = &hf->store.table[i];

        for (uint64_t at = 0; status == MICS_OK && at < tensor->count;) {
            const size_t count = (size_t)mics_min_u64(tensor->count - at, MICS_STORE_CHUNK);

            status = mics_store_read(&hf->store, tensor->space, at, count, tensor->number, buffer,
                                     buffer + MICS_STORE_CHUNK, err);
            at += count;
        }
        if (status == MICS_ERR_FORMAT) {
            mics_problem(problems, "%s", err->text);
            status = MICS_OK;
        }
    }
    free(buffer);
    return status == MICS_OK
               ? mics_problems_end(problems, before, hf->folder[0] ? hf->folder : hf->files[0].name,
                                   err)
               : status;
}

enum mics_status mics_convert_verify(const char *path, struct mics_problems *problems,
                                     struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_disk_model disk;
    enum mics_status status = mics_disk_model_open(path, problems, &disk, err);
    const struct mics_store *store = disk.is_hf ? &disk.hf.store : &disk.shards.store;

    *report = (struct mics_convert_report){.files = store->file_count};
    for (uint32_t i = 0; i < store->file_count; i++)
        report->bytes += store->files[i].bytes;
    if (status == MICS_OK)
        status = disk.is_hf ? check_numbers(&disk.hf, problems, err)
                            : mics_shard_source_sums(&disk.shards, 0, 1, problems, err);
    mics_disk_model_close(&disk);
    return status;
}
