/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "base/workers.h"
#include "comm/agree.h"

#include "ckpt/convert/target.h"
#include "ckpt/format/direct_file.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

struct mics_halt {
    char path[MICS_PATH_MAX];
    bool alone, told;
};

/* One rank alone tells nobody. */
enum mics_status mics_halt_init(struct mics_halt *halt, const char *folder, int ranks,
                                struct mics_err *err);
void mics_halt_tell(struct mics_halt *halt);
bool mics_halt_heard(const struct mics_halt *halt);

#define MICS_PIECE_BYTES ((size_t)2 << 20)

/* Bytes [begin, begin + MICS_PIECE_BYTES) of a file, as far as it goes. */
struct mics_piece {
    uint32_t file;
    uint64_t begin;
};

/* One file while it is made. */
struct mics_making {
    char *path;
    struct mics_piece_file out;
    XXH64_state_t *hash; /* or NULL */
    uint64_t hashed; /* bytes: the piece that begins there is the next. Under the copier's lock */
};

/* What all threads share. */
struct mics_copier {
    const struct mics_store *store;
    const struct mics_target *target;
    struct mics_making *files;
    const atomic_bool *cancel; /* or NULL */
    _Atomic uint64_t done;     /* bytes */
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* a piece was summed, or all is to stop */
};

/* One thread's buffers. */
struct mics_copy_buffers {
    char *out;      /* [MICS_PIECE_BYTES], aligned to MICS_PIECE_ALIGN */
    float *scratch; /* [3 * MICS_STORE_CHUNK] */
};

/* Fill, sum and write one piece. Of a summed file, whoever has a later piece waits for its turn: pieces of a file must be
 * begun in order. */
enum mics_status mics_piece_make(struct mics_copier *copier, const struct mics_piece *piece,
                                 const struct mics_copy_buffers *buffers, struct mics_err *err);

/* The files of a target, which may be none of this rank's: named on all ranks; created by one; opened by whoever has a piece (it may be open already); synced, unless the status tells that
 * they are lost, and closed: the status, or what went wrong. */
enum mics_status mics_copier_name_files(struct mics_copier *copier, const char *folder,
                                        struct mics_err *err);
enum mics_status mics_copier_create_files(struct mics_copier *copier, struct mics_err *err);
enum mics_status mics_copier_open_file(struct mics_copier *copier, uint32_t file,
                                       struct mics_err *err);
enum mics_status mics_copier_close_files(struct mics_copier *copier, enum mics_status status,
                                         struct mics_err *err);
void mics_copier_forget_files(struct mics_copier *copier);

/* Make all threads end soon. */
void mics_copier_stop(struct mics_copier *copier);
bool mics_copier_stops(const struct mics_copier *copier);

enum mics_status mics_halt_init(struct mics_halt *halt, const char *folder, int ranks,
                                struct mics_err *err)
{
    halt->alone = ranks == 1;
    halt->told = false;
    return mics_path_format(halt->path, err, "%s/" MICS_HALT_NAME, folder);
}

/* If it cannot be made, the others find out when they are done. */
void mics_halt_tell(struct mics_halt *halt)
{
    const int fd = halt->alone || halt->told ? -1 : open(halt->path, O_WRONLY | O_CREAT, 0666);

    if (fd >= 0)
        close(fd);
    halt->told = true;
}

bool mics_halt_heard(const struct mics_halt *halt)
{
    return !halt->alone && !halt->told && access(halt->path, F_OK) == 0;
}

/*
 * A file is a row of bytes, header and numbers, of which any piece can be made by itself; only its sum runs from
 * end to end, so that threads take turns there.
 */
bool mics_copier_stops(const struct mics_copier *copier)
{
    return atomic_load(&copier->stop) || (copier->cancel && atomic_load(copier->cancel));
}

void mics_copier_stop(struct mics_copier *copier)
{
    pthread_mutex_lock(&copier->lock);
    atomic_store(&copier->stop, true);
    pthread_cond_broadcast(&copier->turn);
    pthread_mutex_unlock(&copier->lock);
}

/* Bytes [at, at + size) of a section. Numbers go straight to their place where they are whole and aligned there;
 * behind a tensor of single bytes they may not be. */
static enum mics_status fill_section(const struct mics_copier *copier,
                                     const struct mics_section *section, uint64_t start,
                                     uint64_t at, char *dst, size_t size, float *scratch,
                                     struct mics_err *err)
{
    const size_t width = mics_number_bytes(section->number);
    char *const aside = (char *)(scratch + 2 * MICS_STORE_CHUNK);

    while (size > 0) {
        const size_t skip = at % width;
        const bool straight = skip == 0 && size >= width && (uintptr_t)dst % width == 0;
        const size_t some =
            (size_t)mics_min_u64(straight ? size / width * width : size, MICS_STORE_CHUNK);
        const enum mics_status status = mics_store_read(
            copier->store, section->space, start + at / width, (skip + some + width - 1) / width,
            section->number, straight ? dst : aside, scratch, err);

        if (status != MICS_OK)
            return status;
        if (!straight)
            memcpy(dst, aside + skip, some);
        at += some;
        dst += some;
        size -= some;
    }
    return MICS_OK;
}

/* The section that holds byte `at` of a file's data. */
static size_t find_section(const struct mics_target_file *file, uint64_t at)
{
    size_t low = 0, high = file->section_count; /* the first that begins after it */

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (file->sections[middle].offset <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static enum mics_status fill_data(const struct mics_copier *copier,
                                  const struct mics_target_file *file, uint64_t at, char *dst,
                                  size_t size, float *scratch, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = find_section(file, at); status == MICS_OK && size > 0; i++) {
        const struct mics_section *section = &file->sections[i];
        const uint64_t bytes = section->count * mics_number_bytes(section->number);
        const uint64_t skip = at - section->offset;
        const size_t some = (size_t)mics_min_u64(size, bytes - skip);

        status = fill_section(copier, section, section->start + file->index * section->count, skip,
                              dst, some, scratch, err);
        at += some;
        dst += some;
        size -= some;
    }
    return status;
}

static enum mics_status fill(const struct mics_copier *copier, const struct mics_target_file *file,
                             uint64_t begin, size_t size, const struct mics_copy_buffers *buffers,
                             struct mics_err *err)
{
    size_t head = 0;

    if (begin < file->header_bytes) {
        head = (size_t)mics_min_u64(size, file->header_bytes - begin);
        memcpy(buffers->out, file->header + begin, head);
    }
    if (head == size)
        return MICS_OK;
    return fill_data(copier, file, begin + head - file->header_bytes, buffers->out + head,
                     size - head, buffers->scratch, err);
}

/* False: all is to stop. */
static bool sum_in_turn(struct mics_copier *copier, struct mics_making *making, uint64_t begin,
                        const char *data, size_t size)
{
    bool mine;

    pthread_mutex_lock(&copier->lock);
    while (making->hashed != begin && !mics_copier_stops(copier))
        pthread_cond_wait(&copier->turn, &copier->lock);
    mine = making->hashed == begin;
    if (!mine) /* so whoever waits for this piece waits in vain */
        pthread_cond_broadcast(&copier->turn);
    pthread_mutex_unlock(&copier->lock);
    if (!mine)
        return false;
    XXH64_update(making->hash, data, size);
    pthread_mutex_lock(&copier->lock);
    making->hashed += size;
    pthread_cond_broadcast(&copier->turn);
    pthread_mutex_unlock(&copier->lock);
    return true;
}

enum mics_status mics_piece_make(struct mics_copier *copier, const struct mics_piece *piece,
                                 const struct mics_copy_buffers *buffers, struct mics_err *err)
{
    const struct mics_target_file *file = &copier->target->files[piece->file];
    struct mics_making *making = &copier->files[piece->file];
    const size_t size = (size_t)mics_min_u64(MICS_PIECE_BYTES, file->bytes - piece->begin);
    enum mics_status status = fill(copier, file, piece->begin, size, buffers, err);

    if (status == MICS_OK && making->hash &&
        !sum_in_turn(copier, making, piece->begin, buffers->out, size))
        return MICS_OK;
    if (status == MICS_OK)
        status = mics_piece_file_write(&making->out, buffers->out, size, piece->begin, err);
    if (status == MICS_OK)
        atomic_fetch_add(&copier->done, size);
    return status;
}

/* convert_files.c - the files of a conversion, from their names to their sync. */
static enum mics_status name_file(struct mics_making *making, const char *folder, const char *name,
                                  struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);

    if (status != MICS_OK)
        return status;
    making->path = strdup(path);
    making->out.path = making->path;
    return making->path ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_copier_name_files(struct mics_copier *copier, const char *folder,
                                        struct mics_err *err)
{
    const struct mics_target *target = copier->target;
    enum mics_status status = MICS_OK;

    copier->files = calloc((size_t)target->file_count + 1, sizeof *copier->files);
    if (!copier->files)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < target->file_count; i++)
        copier->files[i].out.fd = -1;
    for (uint32_t i = 0; status == MICS_OK && i < target->file_count; i++)
        status = name_file(&copier->files[i], folder, target->files[i].name, err);
    mics_raise_open_files();
    return status;
}

enum mics_status mics_copier_create_files(struct mics_copier *copier, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < copier->target->file_count; i++)
        status = mics_piece_file_open(copier->files[i].path, copier->target->files[i].bytes, true,
                                      &copier->files[i].out, err);
    return status;
}

enum mics_status mics_copier_open_file(struct mics_copier *copier, uint32_t file,
                                       struct mics_err *err)
{
    struct mics_making *making = &copier->files[file];

    if (making->out.fd >= 0)
        return MICS_OK;
    return mics_piece_file_open(making->path, copier->target->files[file].bytes, false,
                                &making->out, err);
}

enum mics_status mics_copier_close_files(struct mics_copier *copier, enum mics_status status,
                                         struct mics_err *err)
{
    for (uint32_t i = 0; copier->files && i < copier->target->file_count; i++) {
        const bool lost = status != MICS_OK || mics_copier_stops(copier);
        const enum mics_status closed =
            mics_piece_file_close(&copier->files[i].out, lost, status == MICS_OK ? err : NULL);

        status = status == MICS_OK ? closed : status;
    }
    return status;
}

void mics_copier_forget_files(struct mics_copier *copier)
{
    for (uint32_t i = 0; copier->files && i < copier->target->file_count; i++) {
        struct mics_making *making = &copier->files[i];

        free(making->path);
        XXH64_freeState(making->hash);
    }
    free(copier->files);
    copier->files = NULL;
}

/*
 * convert.c - threads take pieces of files from one list until all are made.
 *
 * Some files are made side by side, each from its beginning to its end: so the disk sees long runs, sums are taken in
 * their order, and one large file, too, is made by all threads. Ranks share files that are summed, and ranges of
 * those that are not.
 */
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
    const uint64_t count = mics_workers_max(work->how->host_ranks) * THREADS_PER_CORE;

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
