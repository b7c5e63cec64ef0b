/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_writer.c - threads of all ranks write the files of a target in pieces.
 *
 * Any piece of a file can be made by itself from the header and the store; only its sum runs from
 * end to end, so that threads wait for their turn to hash. Each thread takes the next piece of this
 * rank's list. The list interleaves a few files, each from its beginning to its end: so the disk
 * sees long runs, hashing is in order, and even a single large file is written by all threads.
 * Ranks share hashed files file by file, and the others by ranges of each file.
 *
 * Ranks do not communicate while they write. A rank that fails creates the abort marker in the
 * folder, and the others poll for it.
 */
#include "ckpt/convert/target.h"

#include "base/num.h"
#include "base/threads.h"
#include "base/timed_wait.h"
#include "ckpt/format/direct_file.h"
#include "comm/agree.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define PIECE_BYTES      ((size_t)2 << 20)
#define MAX_THREADS      24u
#define THREADS_PER_CORE 2u /* one of them waits for the disk */
#define FILES_AT_ONCE    4u
#define PROGRESS_S       0.1

/* Bytes [begin, begin + PIECE_BYTES) of a file, up to its end. */
struct piece {
    uint32_t file;
    uint64_t begin;
};

/* A file of the target. Every rank has the paths of all, also of those that it does not write. */
struct output_file {
    char *path;
    struct mics_direct_file out;
    XXH64_state_t *hash; /* NULL: not hashed, or by another rank */
    uint64_t hashed;     /* bytes; the next piece to hash begins here. Protected by hash_lock */
};

struct abort_marker {
    char path[MICS_PATH_MAX];
    bool enabled; /* there are other ranks */
    bool created; /* by this rank */
};

/* What the threads of one rank share. */
struct file_writer {
    const struct mics_store *store;
    struct mics_target *target;
    const struct mics_target_options *options;
    struct output_file *files;
    struct abort_marker marker;

    struct piece *pieces; /* of this rank */
    size_t count;
    uint64_t bytes;        /* of these */
    atomic_size_t next;    /* piece */
    _Atomic uint64_t done; /* bytes */
    atomic_bool stop;

    pthread_mutex_t hash_lock;
    pthread_cond_t hash_turn; /* a piece was hashed, or all threads are to stop */

    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t ended; /* a thread has ended */
    unsigned running;
    enum mics_status status;
    struct mics_err err;
};

/* One thread's memory. */
struct buffers {
    char *out;      /* [PIECE_BYTES], aligned to MICS_DIRECT_ALIGN */
    float *scratch; /* [3 * MICS_STORE_CHUNK] */
};

static enum mics_status init_marker(struct file_writer *writer, const char *folder,
                                    struct mics_err *err)
{
    writer->marker.enabled = writer->options->comm->size > 1;
    return mics_path_format(writer->marker.path, err, "%s/" MICS_ABORT_MARKER, folder);
}

/* If the marker cannot be created, the other ranks see the failure when they have finished. */
static void create_marker(struct abort_marker *marker)
{
    const int fd =
        marker->enabled && !marker->created ? open(marker->path, O_WRONLY | O_CREAT, 0666) : -1;

    if (fd >= 0)
        close(fd);
    marker->created = true;
}

static bool marker_exists(const struct abort_marker *marker)
{
    return marker->enabled && !marker->created && access(marker->path, F_OK) == 0;
}

static bool is_stopped(const struct file_writer *writer)
{
    const atomic_bool *cancel = writer->options->cancel;

    return atomic_load(&writer->stop) || (cancel && atomic_load(cancel));
}

static void stop(struct file_writer *writer)
{
    pthread_mutex_lock(&writer->hash_lock);
    atomic_store(&writer->stop, true);
    pthread_cond_broadcast(&writer->hash_turn);
    pthread_mutex_unlock(&writer->hash_lock);
}

uint64_t mics_target_bytes(const struct mics_target *target)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < target->file_count; i++)
        bytes += target->files[i].bytes;
    return bytes;
}

/* The section that holds byte `at` of a file's data, or the last one before it. */
static size_t find_section(const struct mics_target_file *file, uint64_t at)
{
    size_t low = 0, high = file->section_count; /* the first section that begins after `at` */

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (file->sections[middle].offset <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* What is not in a section, but before the next one or the end, is zeros. */
static enum mics_status fill_data(const struct file_writer *writer,
                                  const struct mics_target_file *file, uint64_t at, char *dst,
                                  size_t size, float *scratch, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = find_section(file, at); status == MICS_OK && size > 0; i++) {
        const struct mics_section *section = &file->sections[i];
        const uint64_t bytes = mics_section_bytes(section), skip = at - section->offset;
        const uint64_t left = skip < bytes ? bytes - skip : 0;
        const size_t some = (size_t)mics_min_u64(size, left);
        const uint64_t gap =
            i + 1 < file->section_count ? section[1].offset - section->offset - bytes : UINT64_MAX;
        const uint64_t past = skip > bytes ? skip - bytes : 0;
        const size_t zeros = (size_t)mics_min_u64(size - some, gap > past ? gap - past : 0);

        if (some > 0)
            status = mics_section_fill(writer->store, section, file->index, skip, dst, some,
                                       scratch, err);
        memset(dst + some, 0, zeros);
        at += some + zeros;
        dst += some + zeros;
        size -= some + zeros;
    }
    return status;
}

static enum mics_status fill(const struct file_writer *writer, const struct mics_target_file *file,
                             uint64_t begin, size_t size, const struct buffers *buffers,
                             struct mics_err *err)
{
    size_t head = 0;

    if (begin < file->header_bytes) {
        head = (size_t)mics_min_u64(size, file->header_bytes - begin);
        memcpy(buffers->out, file->header + begin, head);
    }
    if (head == size)
        return MICS_OK;
    return fill_data(writer, file, begin + head - file->header_bytes, buffers->out + head,
                     size - head, buffers->scratch, err);
}

/* Hash a piece after all pieces before it. False: stopped. */
static bool hash_in_turn(struct file_writer *writer, struct output_file *file, uint64_t begin,
                         const char *data, size_t size)
{
    bool my_turn;

    pthread_mutex_lock(&writer->hash_lock);
    while (file->hashed != begin && !is_stopped(writer))
        pthread_cond_wait(&writer->hash_turn, &writer->hash_lock);
    my_turn = file->hashed == begin;
    if (!my_turn) /* the threads that wait for this piece must stop, too */
        pthread_cond_broadcast(&writer->hash_turn);
    pthread_mutex_unlock(&writer->hash_lock);
    if (!my_turn)
        return false;
    XXH64_update(file->hash, data, size);
    pthread_mutex_lock(&writer->hash_lock);
    file->hashed += size;
    pthread_cond_broadcast(&writer->hash_turn);
    pthread_mutex_unlock(&writer->hash_lock);
    return true;
}

/* Fill, hash and write one piece. Threads must take the pieces of a file in order. */
static enum mics_status write_piece(struct file_writer *writer, const struct piece *piece,
                                    const struct buffers *buffers, struct mics_err *err)
{
    const struct mics_target_file *file = &writer->target->files[piece->file];
    struct output_file *output = &writer->files[piece->file];
    const size_t size = (size_t)mics_min_u64(PIECE_BYTES, file->bytes - piece->begin);
    enum mics_status status = fill(writer, file, piece->begin, size, buffers, err);

    if (status != MICS_OK)
        return status;
    if (output->hash && !hash_in_turn(writer, output, piece->begin, buffers->out, size))
        return MICS_OK;
    status = mics_direct_file_write(&output->out, buffers->out, size, piece->begin, err);
    if (status != MICS_OK)
        return status;
    atomic_fetch_add(&writer->done, size);
    return status;
}

static enum mics_status init_files(struct file_writer *writer, const char *folder,
                                   struct mics_err *err)
{
    const struct mics_target *target = writer->target;
    char path[MICS_PATH_MAX];

    writer->files = calloc((size_t)target->file_count + 1, sizeof *writer->files);
    if (!writer->files)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < target->file_count; i++)
        writer->files[i].out.fd = -1;
    for (uint32_t i = 0; i < target->file_count; i++) {
        const enum mics_status status =
            mics_path_format(path, err, "%s/%s", folder, target->files[i].name);

        if (status != MICS_OK)
            return status;
        writer->files[i].path = strdup(path);
        if (!writer->files[i].path)
            return mics_err_nomem(err);
    }
    mics_raise_open_files();
    return MICS_OK;
}

/* Create all files, or open those of this rank's pieces. */
static enum mics_status open_files(struct file_writer *writer, bool create, struct mics_err *err)
{
    const size_t count = create ? writer->target->file_count : writer->count;

    for (size_t i = 0; i < count; i++) {
        const size_t file = create ? i : writer->pieces[i].file;

        if (writer->files[file].out.fd >= 0)
            continue;
        const enum mics_status status =
            mics_direct_file_open(writer->files[file].path, writer->target->files[file].bytes,
                                  create, &writer->files[file].out, err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

/* fsync (unless `status` is an error) and close. Returns `status`, or else the first error. */
static enum mics_status close_files(struct file_writer *writer, enum mics_status status,
                                    struct mics_err *err)
{
    for (uint32_t i = 0; writer->files && i < writer->target->file_count; i++) {
        const bool discard = status != MICS_OK || is_stopped(writer);
        const enum mics_status closed =
            mics_direct_file_close(&writer->files[i].out, discard, status == MICS_OK ? err : NULL);

        status = status == MICS_OK ? closed : status;
    }
    return status;
}

static void free_files(struct file_writer *writer)
{
    for (uint32_t i = 0; writer->files && i < writer->target->file_count; i++) {
        free(writer->files[i].path);
        XXH64_freeState(writer->files[i].hash);
    }
    free(writer->files);
}

/* The rank that writes a piece of a file, by its index in the file. */
static uint32_t owner_of(const struct file_writer *writer, uint32_t file, uint64_t piece)
{
    const struct mics_target *target = writer->target;
    const uint32_t ranks = (uint32_t)writer->options->comm->size;

    return target->hashed
               ? file % ranks
               : (uint32_t)(piece * ranks / mics_ceil_div(target->files[file].bytes, PIECE_BYTES));
}

/* Append piece `piece` of each of the files that are interleaved, `first` and those after it.
 * False: all are shorter. */
static bool append_pieces(struct file_writer *writer, uint32_t first, uint32_t stride,
                          uint64_t piece)
{
    const struct mics_target *target = writer->target;
    bool any = false;

    for (uint32_t i = 0; i < FILES_AT_ONCE && first < target->file_count; i++, first += stride) {
        const struct mics_target_file *file = &target->files[first];
        const uint64_t begin = piece * PIECE_BYTES;

        if (begin >= file->bytes)
            continue;
        any = true;
        if (owner_of(writer, first, piece) != (uint32_t)writer->options->comm->rank)
            continue;
        writer->pieces[writer->count++] = (struct piece){.file = first, .begin = begin};
        writer->bytes += mics_min_u64(PIECE_BYTES, file->bytes - begin);
    }
    return any;
}

static enum mics_status list_pieces(struct file_writer *writer, struct mics_err *err)
{
    const struct mics_target *target = writer->target;
    const struct mics_comm *comm = writer->options->comm;
    const uint32_t stride = target->hashed ? (uint32_t)comm->size : 1;
    size_t most = 1;

    for (uint32_t i = 0; i < target->file_count; i++)
        most += mics_ceil_div(target->files[i].bytes, PIECE_BYTES);
    writer->pieces = malloc(most * sizeof *writer->pieces);
    if (!writer->pieces)
        return mics_err_nomem(err);
    for (uint64_t first = target->hashed ? (uint32_t)comm->rank : 0; first < target->file_count;
         first += (uint64_t)FILES_AT_ONCE * stride)
        for (uint64_t piece = 0; append_pieces(writer, (uint32_t)first, stride, piece);)
            piece++;
    return MICS_OK;
}

static void set_error(struct file_writer *writer, enum mics_status status,
                      const struct mics_err *err)
{
    pthread_mutex_lock(&writer->lock);
    if (writer->status == MICS_OK) {
        writer->status = status;
        writer->err = *err;
    }
    pthread_mutex_unlock(&writer->lock);
    stop(writer);
}

static void *write_pieces(void *context)
{
    struct file_writer *writer = context;
    struct buffers buffers = {.out = aligned_alloc(MICS_DIRECT_ALIGN, PIECE_BYTES),
                              .scratch = malloc(3 * MICS_STORE_CHUNK * sizeof(float))};
    struct mics_err err = {""};
    enum mics_status status = buffers.out && buffers.scratch ? MICS_OK : mics_err_nomem(&err);

    while (status == MICS_OK && !is_stopped(writer)) {
        const size_t i = atomic_fetch_add(&writer->next, 1);

        if (i >= writer->count)
            break;
        status = write_piece(writer, &writer->pieces[i], &buffers, &err);
    }
    if (status != MICS_OK)
        set_error(writer, status, &err);
    free(buffers.out);
    free(buffers.scratch);
    pthread_mutex_lock(&writer->lock);
    writer->running--;
    pthread_cond_signal(&writer->ended);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* If this rank is stopped, stop the others, and vice versa. */
static void poll_marker(struct file_writer *writer)
{
    if (is_stopped(writer))
        create_marker(&writer->marker);
    else if (marker_exists(&writer->marker))
        stop(writer);
}

/* Write the pieces with threads, and report progress, extrapolated to all ranks from this one. */
static void run_threads(struct file_writer *writer)
{
    const struct mics_target_options *options = writer->options;
    const uint64_t cores = mics_workers_max(options->host_ranks);
    const unsigned wanted = (unsigned)mics_min_u64(
        mics_min_u64(cores * THREADS_PER_CORE, MAX_THREADS), mics_max_u64(writer->count, 1));
    const uint64_t total = mics_target_bytes(writer->target);
    pthread_t threads[MAX_THREADS];
    unsigned started = 0;

    writer->running = wanted;
    while (started < wanted && pthread_create(&threads[started], NULL, write_pieces, writer) == 0)
        started++;
    pthread_mutex_lock(&writer->lock);
    writer->running -= wanted - started;
    pthread_mutex_unlock(&writer->lock);
    if (started == 0)
        set_error(writer, MICS_ERR_NOMEM, &(struct mics_err){"cannot start a thread"});
    pthread_mutex_lock(&writer->lock);
    while (writer->running > 0) {
        mics_cond_wait_for(&writer->ended, &writer->lock, PROGRESS_S);
        const double part =
            writer->bytes ? (double)atomic_load(&writer->done) / (double)writer->bytes : 1;
        if (options->progress)
            options->progress(options->progress_context, (uint64_t)(part * (double)total), total);
        poll_marker(writer);
    }
    pthread_mutex_unlock(&writer->lock);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

static enum mics_status start_hashes(struct file_writer *writer, struct mics_err *err)
{
    const struct mics_target *target = writer->target;
    const uint32_t ranks = (uint32_t)writer->options->comm->size;

    for (uint32_t i = (uint32_t)writer->options->comm->rank;
         target->hashed && i < target->file_count; i += ranks) {
        writer->files[i].hash = XXH64_createState();
        if (!writer->files[i].hash)
            return mics_err_nomem(err);
        XXH64_reset(writer->files[i].hash, 0);
    }
    return MICS_OK;
}

/* All ranks get the sums of all files. */
static enum mics_status share_sums(struct file_writer *writer, struct mics_err *err)
{
    struct mics_target_file *files = writer->target->files;
    struct mics_comm *comm = writer->options->comm;
    const uint32_t count = writer->target->file_count, ranks = (uint32_t)comm->size;
    const size_t most = (size_t)mics_ceil_div(count, ranks);
    struct mics_file_sum *own = calloc(most, sizeof *own);
    struct mics_file_sum *all = malloc(most * ranks * sizeof *all);
    enum mics_status status = mics_agree(comm, own && all ? MICS_OK : mics_err_nomem(err), err);

    for (uint32_t i = (uint32_t)comm->rank; status == MICS_OK && i < count; i += ranks)
        own[i / ranks] = (struct mics_file_sum){.bytes = files[i].bytes,
                                                .xxh64 = XXH64_digest(writer->files[i].hash)};
    if (status == MICS_OK)
        status = mics_comm_all_gather_now(comm, own, all, most * sizeof *own, err);
    for (uint32_t i = 0; status == MICS_OK && i < count; i++)
        files[i].sum = all[(size_t)(i % ranks) * most + i / ranks];
    free(own);
    free(all);
    return status;
}

static enum mics_status write_files(struct file_writer *writer, const char *folder,
                                    struct mics_err *err)
{
    struct mics_comm *comm = writer->options->comm;
    enum mics_status status = list_pieces(writer, err);

    if (status == MICS_OK)
        status = init_marker(writer, folder, err);
    if (status == MICS_OK)
        status = init_files(writer, folder, err);
    if (status == MICS_OK && comm->rank == 0)
        status = open_files(writer, true, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = open_files(writer, false, err);
    if (status == MICS_OK)
        status = start_hashes(writer, err);
    poll_marker(writer);
    if (status == MICS_OK) {
        run_threads(writer);
        status = writer->status;
        if (status != MICS_OK && err)
            *err = writer->err;
    }
    if (status != MICS_OK || is_stopped(writer))
        create_marker(&writer->marker);
    return mics_agree(comm, close_files(writer, status, err), err);
}

enum mics_status mics_target_write(const struct mics_store *store, struct mics_target *target,
                                   const char *folder, const struct mics_target_options *options,
                                   struct mics_err *err)
{
    struct file_writer writer = {.store = store, .target = target, .options = options};
    enum mics_status status;

    pthread_mutex_init(&writer.lock, NULL);
    mics_cond_init_timed(&writer.ended);
    pthread_mutex_init(&writer.hash_lock, NULL);
    pthread_cond_init(&writer.hash_turn, NULL);
    status = write_files(&writer, folder, err);
    if (status == MICS_OK && target->hashed)
        status = share_sums(&writer, err);
    free_files(&writer);
    free(writer.pieces);
    pthread_cond_destroy(&writer.hash_turn);
    pthread_mutex_destroy(&writer.hash_lock);
    pthread_cond_destroy(&writer.ended);
    pthread_mutex_destroy(&writer.lock);
    return status;
}
