/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - threads take parts of files from one list until all are made.
 *
 * A summed file is one part, as a sum runs from end to end; any other is cut, so that one large file, too,
 * is made by all threads.
 */
#include "ckpt/convert_part.h"

#include "base/num.h"
#include "base/temporaries.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PART_BYTES  ((uint64_t)32 << 20)
#define MAX_THREADS 16u
#define PROGRESS_NS 100000000L

/* The list and what came of it. */
struct work {
    struct mics_copier copier;
    struct mics_part *parts;
    size_t count;
    atomic_size_t next;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t ended;
    unsigned running;
    enum mics_status status;
    struct mics_err err;
};

uint64_t mics_sections_bytes(const struct mics_section *sections, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += sections[i].count * mics_number_bytes(sections[i].number);
    return bytes;
}

uint64_t mics_target_bytes(const struct mics_target *target)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < target->file_count; i++)
        bytes += target->files[i].bytes;
    return bytes;
}

static enum mics_status add_part(struct work *work, const struct mics_part *part,
                                 struct mics_err *err)
{
    struct mics_part *parts = realloc(work->parts, (work->count + 1) * sizeof *parts);

    if (!parts)
        return mics_err_nomem(err);
    work->parts = parts;
    parts[work->count++] = *part;
    return MICS_OK;
}

/* Parts of `limit` bytes, give or take a number. */
static enum mics_status cut_file(struct work *work, uint32_t index, uint64_t limit,
                                 struct mics_err *err)
{
    const struct mics_target_file *file = &work->copier.target->files[index];
    struct mics_part part = {.file = index, .offset = file->header_bytes};
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < file->section_count; i++) {
        const uint64_t size = mics_number_bytes(file->sections[i].number);

        for (uint64_t at = 0; status == MICS_OK && at < file->sections[i].count;) {
            const uint64_t fit = mics_max_u64((limit - part.bytes) / size, 1);
            const uint64_t count = mics_min_u64(file->sections[i].count - at, fit);

            at += count;
            part.bytes += count * size;
            if (part.bytes + size <= limit)
                continue;
            status = add_part(work, &part, err);
            part = (struct mics_part){
                .file = index, .section = i, .skip = at, .offset = part.offset + part.bytes};
        }
    }
    if (status == MICS_OK && (part.bytes > 0 || part.offset == file->header_bytes))
        status = add_part(work, &part, err);
    return status;
}

static void remember(struct work *work, enum mics_status status, const struct mics_err *err)
{
    pthread_mutex_lock(&work->lock);
    if (work->status == MICS_OK) {
        work->status = status;
        work->err = *err;
    }
    pthread_mutex_unlock(&work->lock);
    atomic_store(&work->copier.stop, true);
}

static void *make_parts(void *context)
{
    struct work *work = context;
    struct mics_copy_buffers buffers = {.out = malloc(MICS_STORE_CHUNK * sizeof(float)),
                                        .scratch = malloc(2 * MICS_STORE_CHUNK * sizeof(float))};
    struct mics_err err = {""};
    enum mics_status status = buffers.out && buffers.scratch ? MICS_OK : mics_err_nomem(&err);

    while (status == MICS_OK && !atomic_load(&work->copier.stop)) {
        const size_t i = atomic_fetch_add(&work->next, 1);

        if (i >= work->count)
            break;
        status = mics_part_make(&work->copier, &work->parts[i], &buffers, &err);
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

static void wait_for_all(struct work *work, mics_progress *progress, void *context, uint64_t total)
{
    struct timespec until;

    pthread_mutex_lock(&work->lock);
    while (work->running > 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PROGRESS_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&work->ended, &work->lock, &until);
        if (progress)
            progress(context, atomic_load(&work->copier.done), total);
    }
    pthread_mutex_unlock(&work->lock);
}

static unsigned thread_count(size_t parts)
{
    cpu_set_t cores;
    unsigned count = 1;

    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        count = (unsigned)CPU_COUNT(&cores);
    return (unsigned)mics_min_u64(mics_min_u64(count, MAX_THREADS), mics_max_u64(parts, 1));
}

static void run_threads(struct work *work, mics_progress *progress, void *context, uint64_t total)
{
    pthread_t threads[MAX_THREADS];
    const unsigned wanted = thread_count(work->count);
    unsigned started = 0;

    work->running = wanted;
    while (started < wanted && pthread_create(&threads[started], NULL, make_parts, work) == 0)
        started++;
    pthread_mutex_lock(&work->lock);
    work->running -= wanted - started;
    pthread_mutex_unlock(&work->lock);
    if (started == 0)
        remember(work, MICS_ERR_NOMEM, &(struct mics_err){"cannot start a thread"});
    wait_for_all(work, progress, context, total);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

static enum mics_status open_file(struct mics_copier *copier, uint32_t index, struct mics_err *err)
{
    struct mics_target_file *file = &copier->target->files[index];
    char path[MICS_PATH_MAX], *copy;
    enum mics_status status = mics_path_format(path, err, "%s/%s", copier->folder, file->name);

    if (status != MICS_OK)
        return status;
    copy = strdup(path);
    file->entry = copy ? mics_temporary_add(copy) : NULL;
    if (!file->entry) {
        free(copy);
        return mics_err_nomem(err);
    }
    copier->fds[index] = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return copier->fds[index] < 0 ? mics_err_set_errno(err, "%s", path) : MICS_OK;
}

static enum mics_status open_files(struct mics_copier *copier, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    mics_raise_open_files();
    for (uint32_t i = 0; status == MICS_OK && i < copier->target->file_count; i++)
        status = open_file(copier, i, err);
    return status;
}

static enum mics_status close_files(struct mics_copier *copier, enum mics_status status,
                                    struct mics_err *err)
{
    for (uint32_t i = 0; i < copier->target->file_count; i++) {
        struct mics_target_file *file = &copier->target->files[i];

        if (copier->fds[i] < 0)
            continue;
        if (status == MICS_OK && fsync(copier->fds[i]) != 0)
            status = mics_err_set_errno(err, "%s/%s", copier->folder, file->name);
        if (close(copier->fds[i]) != 0 && status == MICS_OK)
            status = mics_err_set_errno(err, "%s/%s", copier->folder, file->name);
    }
    return status;
}

static enum mics_status make_files(struct work *work, mics_progress *progress, void *context,
                                   struct mics_err *err)
{
    const struct mics_target *target = work->copier.target;
    enum mics_status status = open_files(&work->copier, err);

    for (uint32_t i = 0; status == MICS_OK && i < target->file_count; i++)
        status = cut_file(work, i, target->hashed ? UINT64_MAX : PART_BYTES, err);
    if (status == MICS_OK) {
        run_threads(work, progress, context, mics_target_bytes(target));
        status = work->status;
        if (status != MICS_OK && err)
            *err = work->err;
    }
    status = close_files(&work->copier, status, err);
    for (uint32_t i = 0; i < target->file_count; i++) {
        if (target->files[i].entry)
            mics_temporary_drop(target->files[i].entry);
        target->files[i].entry = NULL;
    }
    return status;
}

enum mics_status mics_convert(const struct mics_store *store, struct mics_target *target,
                              const char *folder, mics_progress *progress, void *context,
                              struct mics_err *err)
{
    struct work work = {.copier = {.store = store, .target = target, .folder = folder}};
    enum mics_status status;

    work.copier.fds = malloc(((size_t)target->file_count + 1) * sizeof *work.copier.fds);
    if (!work.copier.fds)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < target->file_count; i++)
        work.copier.fds[i] = -1;
    pthread_mutex_init(&work.lock, NULL);
    pthread_cond_init(&work.ended, NULL);
    status = make_files(&work, progress, context, err);
    pthread_cond_destroy(&work.ended);
    pthread_mutex_destroy(&work.lock);
    free(work.parts);
    free(work.copier.fds);
    return status;
}
