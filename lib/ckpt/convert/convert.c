/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - threads take pieces of files from one list until all are made.
 *
 * Some files are made side by side, each from its beginning to its end: so the disk sees long runs, sums are taken in
 * their order, and one large file, too, is made by all threads. Ranks share files that are summed, and ranges of
 * those that are not.
 */
#include "ckpt/convert/abort_marker.h"
#include "ckpt/convert/part.h"

#include "base/num.h"
#include "comm/agree.h"
#include "base/workers.h"

#include <stdlib.h>
#include <time.h>

#define MAX_THREADS      24u
#define THREADS_PER_CORE 2u /* one waits for the disk meanwhile */
#define FILES_AT_ONCE    4u
#define PROGRESS_NS      100000000L

/* The list and what came of it. */
struct work {
    struct mics_copier copier;
    const struct mics_convert_how *how;
    struct mics_piece *pieces; /* of this rank */
    size_t count;
    uint64_t bytes; /* of these */
    struct mics_halt halt;
    atomic_size_t next;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t ended;
    unsigned running;
    enum mics_status status;
    struct mics_err err;
};

uint64_t mics_sections_place(struct mics_section *sections, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        sections[i].offset = bytes;
        bytes += sections[i].count * mics_number_bytes(sections[i].number);
    }
    return bytes;
}

uint64_t mics_target_bytes(const struct mics_target *target)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < target->file_count; i++)
        bytes += target->files[i].bytes;
    return bytes;
}

static uint64_t pieces_of(const struct mics_target_file *file)
{
    return mics_ceil_div(file->bytes, MICS_PIECE_BYTES);
}

/* The rank that makes piece `piece` of a file. */
static uint32_t owner_of(const struct work *work, uint32_t file, uint64_t piece)
{
    const struct mics_target *target = work->copier.target;
    const uint32_t ranks = (uint32_t)work->how->comm->size;

    return target->hashed ? file % ranks
                          : (uint32_t)(piece * ranks / pieces_of(&target->files[file]));
}

/* Piece `piece` of the files that are made at once from `first` on; false: none is so long. */
static bool add_row(struct work *work, uint32_t first, uint32_t stride, uint64_t piece)
{
    const struct mics_target *target = work->copier.target;
    bool any = false;

    for (uint32_t i = 0; i < FILES_AT_ONCE && first < target->file_count; i++, first += stride) {
        const struct mics_target_file *file = &target->files[first];
        const uint64_t begin = piece * MICS_PIECE_BYTES;

        if (begin >= file->bytes)
            continue;
        any = true;
        if (owner_of(work, first, piece) != (uint32_t)work->how->comm->rank)
            continue;
        work->pieces[work->count++] = (struct mics_piece){.file = first, .begin = begin};
        work->bytes += mics_min_u64(MICS_PIECE_BYTES, file->bytes - begin);
    }
    return any;
}

static enum mics_status list_pieces(struct work *work, struct mics_err *err)
{
    const struct mics_target *target = work->copier.target;
    const struct mics_comm *comm = work->how->comm;
    const uint32_t stride = target->hashed ? (uint32_t)comm->size : 1;
    size_t most = 1;

    for (uint32_t i = 0; i < target->file_count; i++)
        most += pieces_of(&target->files[i]);
    work->pieces = malloc(most * sizeof *work->pieces);
    if (!work->pieces)
        return mics_err_nomem(err);
    for (uint64_t first = target->hashed ? (uint32_t)comm->rank : 0; first < target->file_count;
         first += (uint64_t)FILES_AT_ONCE * stride)
        for (uint64_t piece = 0; add_row(work, (uint32_t)first, stride, piece);)
            piece++;
    return MICS_OK;
}

static void remember(struct work *work, enum mics_status status, const struct mics_err *err)
{
    pthread_mutex_lock(&work->lock);
    if (work->status == MICS_OK) {
        work->status = status;
        work->err = *err;
    }
    pthread_mutex_unlock(&work->lock);
    mics_copier_stop(&work->copier);
}

static void *make_pieces(void *context)
{
    struct work *work = context;
    struct mics_copy_buffers buffers = {.out = aligned_alloc(MICS_PIECE_ALIGN, MICS_PIECE_BYTES),
                                        .scratch = malloc(3 * MICS_STORE_CHUNK * sizeof(float))};
    struct mics_err err = {""};
    enum mics_status status = buffers.out && buffers.scratch ? MICS_OK : mics_err_nomem(&err);

    while (status == MICS_OK && !mics_copier_stops(&work->copier)) {
        const size_t i = atomic_fetch_add(&work->next, 1);

        if (i >= work->count)
            break;
        status = mics_piece_make(&work->copier, &work->pieces[i], &buffers, &err);
    }
    if (status != MICS_OK)
        remember(work, status, &err);
    free(buffers.out);
    free(buffers.scratch);
    pthread_mutex_lock(&work->lock);
    work->running--;
    pthread_cond_signal(&work->ended);
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

/* As if all ranks were as far as this one. */
static void tell_progress(const struct work *work, uint64_t total)
{
    const double part =
        work->bytes ? (double)atomic_load(&work->copier.done) / (double)work->bytes : 1;

    if (work->how->progress)
        work->how->progress(work->how->progress_context, (uint64_t)(part * (double)total), total);
}

/* One that stops stops all. */
static void mind_others(struct work *work)
{
    if (mics_copier_stops(&work->copier))
        mics_halt_tell(&work->halt);
    else if (mics_halt_heard(&work->halt))
        mics_copier_stop(&work->copier);
}

static void wait_for_all(struct work *work, uint64_t total)
{
    struct timespec until;

    pthread_mutex_lock(&work->lock);
    while (work->running > 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PROGRESS_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&work->ended, &work->lock, &until);
        tell_progress(work, total);
        mind_others(work);
    }
    pthread_mutex_unlock(&work->lock);
}

static unsigned thread_count(const struct work *work)
{
    const uint64_t count = mics_core_share(work->how->host_ranks) * THREADS_PER_CORE;

    return (unsigned)mics_min_u64(mics_min_u64(count, MAX_THREADS), mics_max_u64(work->count, 1));
}

static void run_threads(struct work *work)
{
    pthread_t threads[MAX_THREADS];
    const unsigned wanted = thread_count(work);
    unsigned started = 0;

    work->running = wanted;
    while (started < wanted && pthread_create(&threads[started], NULL, make_pieces, work) == 0)
        started++;
    pthread_mutex_lock(&work->lock);
    work->running -= wanted - started;
    pthread_mutex_unlock(&work->lock);
    if (started == 0)
        remember(work, MICS_ERR_NOMEM, &(struct mics_err){"cannot start a thread"});
    wait_for_all(work, mics_target_bytes(work->copier.target));
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* What this rank has a piece of. */
static enum mics_status open_files(struct work *work, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < work->count; i++)
        status = mics_copier_open_file(&work->copier, work->pieces[i].file, err);
    return status;
}

static enum mics_status start_sums(struct work *work, struct mics_err *err)
{
    const struct mics_target *target = work->copier.target;
    const uint32_t ranks = (uint32_t)work->how->comm->size;

    for (uint32_t i = (uint32_t)work->how->comm->rank; target->hashed && i < target->file_count;
         i += ranks) {
        work->copier.files[i].hash = XXH64_createState();
        if (!work->copier.files[i].hash)
            return mics_err_nomem(err);
        XXH64_reset(work->copier.files[i].hash, 0);
    }
    return MICS_OK;
}

/* All ranks get the sums of all files. */
static enum mics_status share_sums(struct work *work, struct mics_target_file *files,
                                   struct mics_err *err)
{
    struct mics_comm *comm = work->how->comm;
    const uint32_t count = work->copier.target->file_count, ranks = (uint32_t)comm->size;
    const size_t most = (size_t)mics_ceil_div(count, ranks);
    struct mics_file_sum *own = calloc(most, sizeof *own);
    struct mics_file_sum *all = malloc(most * ranks * sizeof *all);
    enum mics_status status = mics_agree(comm, own && all ? MICS_OK : mics_err_nomem(err), err);

    for (uint32_t i = (uint32_t)comm->rank; status == MICS_OK && i < count; i += ranks)
        own[i / ranks] = (struct mics_file_sum){.bytes = files[i].bytes,
                                                .xxh64 = XXH64_digest(work->copier.files[i].hash)};
    if (status == MICS_OK)
        status = comm->ops->all_gather_now(comm, own, all, most * sizeof *own, err);
    for (uint32_t i = 0; status == MICS_OK && i < count; i++)
        files[i].sum = all[(size_t)(i % ranks) * most + i / ranks];
    free(own);
    free(all);
    return status;
}

static enum mics_status make_files(struct work *work, const char *folder, struct mics_err *err)
{
    struct mics_comm *comm = work->how->comm;
    enum mics_status status = list_pieces(work, err);

    if (status == MICS_OK)
        status = mics_halt_init(&work->halt, folder, comm->size, err);
    if (status == MICS_OK)
        status = mics_copier_name_files(&work->copier, folder, err);
    if (status == MICS_OK && comm->rank == 0)
        status = mics_copier_create_files(&work->copier, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = open_files(work, err);
    if (status == MICS_OK)
        status = start_sums(work, err);
    mind_others(work);
    if (status == MICS_OK) {
        run_threads(work);
        status = work->status;
        if (status != MICS_OK && err)
            *err = work->err;
    }
    if (status != MICS_OK || mics_copier_stops(&work->copier))
        mics_halt_tell(&work->halt);
    return mics_agree(comm, mics_copier_close_files(&work->copier, status, err), err);
}

enum mics_status mics_convert(const struct mics_store *store, struct mics_target *target,
                              const char *folder, const struct mics_convert_how *how,
                              struct mics_err *err)
{
    struct work work = {.copier = {.store = store, .target = target, .cancel = how->cancel},
                        .how = how};
    enum mics_status status;

    pthread_mutex_init(&work.lock, NULL);
    pthread_cond_init(&work.ended, NULL);
    pthread_mutex_init(&work.copier.lock, NULL);
    pthread_cond_init(&work.copier.turn, NULL);
    status = make_files(&work, folder, err);
    if (status == MICS_OK && target->hashed)
        status = share_sums(&work, target->files, err);
    mics_copier_forget_files(&work.copier);
    pthread_cond_destroy(&work.copier.turn);
    pthread_mutex_destroy(&work.copier.lock);
    pthread_cond_destroy(&work.ended);
    pthread_mutex_destroy(&work.lock);
    free(work.pieces);
    return status;
}
