/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of each file is read once and kept as the offsets of its tensors, so that a range is
 * one pread() per run (mics_store_locate()). Without mics_ckpt_reader_open_files() only some files
 * are open at a time: all are closed when the limit is reached.
 */
#include "ckpt/ckpt_reader.h"

#include "base/num.h"
#include "base/threads.h"
#include "ckpt/format/safetensors.h"
#include "comm/agree.h"
#include "doc/doc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OPEN    128u
#define PIECE_BYTES ((size_t)1 << 20)

/* Tensors of all units. */
static size_t tensor_count(const struct mics_ckpt_reader *reader)
{
    return (size_t)reader->table.unit_count * reader->table.states;
}

/* Does a file have this tensor? */
static bool has_tensor(const struct mics_ckpt_reader *reader, uint32_t file, size_t tensor)
{
    const struct mics_ckpt_table *table = &reader->table;

    return mics_ckpt_file_has(table, &table->units[tensor / table->states], file);
}

/* Elements of a unit in a file that has it. */
static uint64_t part_count(const struct mics_ckpt_reader *reader, uint32_t unit, uint32_t file)
{
    const uint32_t parts = reader->table.parts, part = file % parts;
    const uint64_t count = mics_layout_optim_shard(&reader->table.units[unit].layout);

    return mics_ckpt_part_begin(count, parts, part + 1) - mics_ckpt_part_begin(count, parts, part);
}

/* The store with the paths of all files, none open. */
static enum mics_status init_store(struct mics_ckpt_reader *reader, struct mics_err *err)
{
    const struct mics_ckpt_table *table = &reader->table;
    struct mics_store *store = &reader->store;
    char name[64], path[MICS_PATH_MAX];

    store->shards = table;
    store->files = calloc(reader->manifest.file_count, sizeof *store->files);
    store->tensor_names = calloc(tensor_count(reader), sizeof *store->tensor_names);
    if (!store->files || !store->tensor_names)
        return mics_err_nomem(err);
    for (size_t i = 0; i < tensor_count(reader); i++)
        snprintf(store->tensor_names[i], sizeof *store->tensor_names, "%s.%s",
                 table->units[i / table->states].name,
                 mics_ckpt_state_name(table->states, (uint32_t)(i % table->states)));
    for (uint32_t i = 0; i < reader->manifest.file_count; i++) {
        enum mics_status status;

        mics_ckpt_file_name(i, name, sizeof name);
        status = mics_path_format(path, err, "%s/%s", reader->folder, name);
        if (status != MICS_OK)
            return status;
        store->files[i] = (struct mics_store_file){.path = strdup(path), .fd = -1};
        if (!store->files[i].path)
            return mics_err_nomem(err);
        store->file_count++;
    }
    return MICS_OK;
}

static enum mics_status read_table(struct mics_ckpt_reader *reader, struct mics_err *err)
{
    const struct mics_ckpt_table *table = &reader->table;
    enum mics_status status = mics_manifest_from_doc(reader->doc, &reader->manifest, err);

    if (status == MICS_OK)
        status = mics_ckpt_table_read(reader->doc, &reader->table, err);
    if (status == MICS_OK &&
        reader->manifest.file_count != (uint64_t)table->shard_count * table->parts)
        status = mics_err_set(err, MICS_ERR_FORMAT, "files: %u, but %u shards have %u parts each",
                              reader->manifest.file_count, table->shard_count, table->parts);
    return status;
}

enum mics_status mics_ckpt_reader_open(const char *folder, json_t *doc,
                                       struct mics_ckpt_reader *reader, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status;

    *reader = (struct mics_ckpt_reader){.doc = json_incref(doc), .max_open = MAX_OPEN};
    status = mics_path_format(reader->folder, err, "%s", folder);
    if (status != MICS_OK)
        return status;
    status = mics_path_format(path, err, "%s/" MICS_MANIFEST_NAME, folder);
    if (status != MICS_OK)
        return status;
    if (!doc)
        status = mics_doc_read_regular(path, &reader->doc, err);
    if (status != MICS_OK)
        return status;
    status = read_table(reader, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status == MICS_OK ? init_store(reader, err) : status;
}

void mics_ckpt_reader_close(struct mics_ckpt_reader *reader)
{
    mics_store_close(&reader->store);
    mics_ckpt_table_free(&reader->table);
    mics_manifest_free(&reader->manifest);
    json_decref(reader->doc);
    reader->doc = NULL;
}

/* Open file number `index`, in a structure that has its path, and check its size. */
static enum mics_status open_shard(const struct mics_ckpt_reader *reader, uint32_t index,
                                   struct mics_store_file *file, struct mics_err *err)
{
    const uint64_t expected = reader->manifest.files[index].bytes;
    enum mics_status status = mics_store_file_open(file, err);

    if (status == MICS_OK && file->bytes != expected)
        status =
            mics_err_set(err, MICS_ERR_FORMAT, "%s: has %llu bytes, the manifest says %llu",
                         file->path, (unsigned long long)file->bytes, (unsigned long long)expected);
    if (status != MICS_OK && file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
    return status;
}

static enum mics_status check_tensors(const struct mics_ckpt_reader *reader, uint32_t index,
                                      const struct mics_safetensors *header, uint64_t *offsets,
                                      struct mics_err *err)
{
    size_t count = 0;

    for (size_t i = 0; i < tensor_count(reader); i++)
        count += has_tensor(reader, index, i);
    if (header->count != count)
        return mics_err_set(err, MICS_ERR_FORMAT, "has %zu tensors, not %zu", header->count, count);
    for (size_t i = 0; i < tensor_count(reader); i++) {
        if (!has_tensor(reader, index, i))
            continue;
        const char *name = reader->store.tensor_names[i];
        const uint64_t elements = part_count(reader, (uint32_t)(i / reader->table.states), index);
        const struct mics_safetensor *found = mics_safetensors_find(header, name);

        if (!found)
            return mics_err_set(err, MICS_ERR_FORMAT, "has no tensor '%s'", name);
        if (strcmp(found->dtype, "F32") != 0 || found->rank != 1 || found->shape[0] != elements)
            return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%s' is not F32 of %llu elements",
                                name, (unsigned long long)elements);
        offsets[i] = header->data_offset + found->begin;
    }
    return MICS_OK;
}

static enum mics_status read_header(struct mics_ckpt_reader *reader, uint32_t index,
                                    struct mics_err *err)
{
    struct mics_store_file *file = &reader->store.files[index];
    struct mics_safetensors header = {0};
    uint64_t *offsets = calloc(tensor_count(reader), sizeof *offsets);
    enum mics_status status = offsets ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_safetensors_load(file->fd, file->bytes, &header, err);
    if (status == MICS_OK)
        status = check_tensors(reader, index, &header, offsets, err);
    mics_safetensors_free(&header);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", file->path);
        free(offsets);
        return status;
    }
    file->tensor_offsets = offsets;
    return MICS_OK;
}

static void close_files(struct mics_ckpt_reader *reader)
{
    for (uint32_t i = 0; i < reader->store.file_count; i++) {
        if (reader->store.files[i].fd >= 0)
            close(reader->store.files[i].fd);
        reader->store.files[i].fd = -1;
    }
    reader->open_count = 0;
}

/* Make sure that a file is open and its header has been read. */
static enum mics_status need_file(struct mics_ckpt_reader *reader, uint32_t index,
                                  struct mics_err *err)
{
    struct mics_store_file *file = &reader->store.files[index];
    enum mics_status status = MICS_OK;

    if (file->fd < 0) {
        if (reader->open_count == reader->max_open)
            close_files(reader);
        status = open_shard(reader, index, file, err);
        reader->open_count += status == MICS_OK;
    }
    if (status == MICS_OK && !file->tensor_offsets)
        status = read_header(reader, index, err);
    return status;
}

enum mics_status mics_ckpt_reader_open_files(struct mics_ckpt_reader *reader, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    mics_raise_open_files();
    reader->max_open = UINT32_MAX;
    for (uint32_t i = 0; status == MICS_OK && i < reader->store.file_count; i++)
        status = need_file(reader, i, err);
    return status;
}

enum mics_status mics_ckpt_reader_read(struct mics_ckpt_reader *reader, uint32_t unit,
                                       uint32_t state, uint64_t first, uint64_t count, float *dst,
                                       struct mics_err *err)
{
    const struct mics_ckpt_unit *has = &reader->table.units[unit];
    const uint64_t end = mics_min_u64(has->layout.count, first + count);

    for (uint64_t at = first; at < end;) {
        const uint32_t file = mics_ckpt_locate(has, reader->table.parts, at).file;
        enum mics_status status = need_file(reader, file, err);

        if (status != MICS_OK)
            return status;
        const struct mics_extent run =
            mics_store_locate(&reader->store, mics_vector_of(unit, state), at, end - at);

        status = mics_store_read_extent(&reader->store, &run, dst + (at - first), err);
        if (status != MICS_OK)
            return status;
        at += run.count;
    }
    if (first + count > end) {
        const uint64_t real = end > first ? end - first : 0;

        memset(dst + real, 0, (count - real) * sizeof *dst);
    }
    return MICS_OK;
}

static enum mics_status sum_mismatch(const struct mics_store_file *file, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: is damaged: its checksum is not the manifest's",
                        file->path);
}

/* One tensor of a file, for sorting by offset. */
struct tensor_place {
    uint64_t offset;
    uint32_t unit, state;
};

static int by_offset(const void *a, const void *b)
{
    const struct tensor_place *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Returns how many tensors the file has. */
static size_t sort_tensors(const struct mics_ckpt_reader *reader, uint32_t file,
                           struct tensor_place *places)
{
    const uint32_t states = reader->table.states;
    size_t count = 0;

    for (size_t i = 0; i < tensor_count(reader); i++)
        if (has_tensor(reader, file, i))
            places[count++] =
                (struct tensor_place){.offset = reader->store.files[file].tensor_offsets[i],
                                      .unit = (uint32_t)(i / states),
                                      .state = (uint32_t)(i % states)};
    qsort(places, count, sizeof *places, by_offset);
    return count;
}

/* One pass over a file. */
struct pass {
    const struct mics_ckpt_reader *reader;
    uint32_t file;
    struct mics_hashed_reader bytes;
    float *buffer;
    uint64_t capacity;
    mics_ckpt_put *put;
    void *context;
};

static enum mics_status pass_header(struct pass *pass, uint64_t end, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && pass->bytes.offset < end)
        status = mics_hashed_reader_read(
            &pass->bytes, pass->buffer,
            mics_min_u64(pass->capacity * sizeof(float), end - pass->bytes.offset), err);
    return status;
}

static enum mics_status pass_tensor(struct pass *pass, const struct tensor_place *place,
                                    struct mics_err *err)
{
    const struct mics_ckpt_table *table = &pass->reader->table;
    const uint64_t count = part_count(pass->reader, place->unit, pass->file);
    const uint64_t shard = mics_layout_optim_shard(&table->units[place->unit].layout);
    const uint64_t first = mics_ckpt_part_begin(shard, table->parts, pass->file % table->parts);
    enum mics_status status = MICS_OK;

    for (uint64_t done = 0; status == MICS_OK && done < count; done += pass->capacity) {
        const uint64_t some = mics_min_u64(pass->capacity, count - done);

        status =
            mics_hashed_reader_read(&pass->bytes, pass->buffer, some * sizeof *pass->buffer, err);
        if (status == MICS_OK)
            status = pass->put(pass->context, place->unit, place->state, first + done, some,
                               pass->buffer, err);
    }
    return status;
}

/* Tensors tile the data of a file, so reading them by offset reads it from end to end. */
static enum mics_status pass_file(struct pass *pass, const struct tensor_place *places,
                                  size_t count, struct mics_err *err)
{
    const struct mics_ckpt_reader *reader = pass->reader;
    const struct mics_store_file *file = &reader->store.files[pass->file];
    enum mics_status status;

    mics_hashed_reader_start(&pass->bytes, file->path, file->fd);
    status = pass_header(pass, places[0].offset, err);
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        status = pass_tensor(pass, &places[i], err);
    if (status == MICS_OK &&
        mics_hashed_reader_sum(&pass->bytes) != reader->manifest.files[pass->file].xxh64)
        status = sum_mismatch(file, err);
    return status;
}

enum mics_status mics_ckpt_reader_read_file(struct mics_ckpt_reader *reader, uint32_t file,
                                            float *buffer, uint64_t capacity, mics_ckpt_put *put,
                                            void *context, struct mics_err *err)
{
    struct pass pass = {.reader = reader,
                        .file = file,
                        .buffer = buffer,
                        .capacity = capacity,
                        .put = put,
                        .context = context};
    struct tensor_place *places = malloc(tensor_count(reader) * sizeof *places);
    enum mics_status status = places ? MICS_OK : mics_err_nomem(err);

    if (status != MICS_OK)
        goto out;
    status = mics_hashed_reader_init(&pass.bytes, err);
    if (status != MICS_OK)
        goto out;
    status = need_file(reader, file, err);
    if (status != MICS_OK)
        goto out;
    status = pass_file(&pass, places, sort_tensors(reader, file, places), err);
out:
    mics_hashed_reader_fini(&pass.bytes);
    free(places);
    return status;
}

/* What the threads of a verification share. */
struct verify_job {
    struct mics_ckpt_verification *verification;
    atomic_uint next;     /* file */
    pthread_mutex_t lock; /* protects the members below */
    enum mics_status status;
    struct mics_err err;
};

static bool is_cancelled(const struct mics_ckpt_verification *verification)
{
    return verification->cancel && atomic_load(verification->cancel);
}

/* The sum of a file; of a part of it when cancelled. */
static enum mics_status sum_file(const struct mics_ckpt_verification *verification, uint32_t index,
                                 struct mics_hashed_reader *bytes, void *piece,
                                 struct mics_err *err)
{
    const struct mics_store_file *file = &verification->reader->store.files[index];
    struct mics_store_file own = {.path = file->path, .fd = -1};
    enum mics_status status = MICS_OK;

    if (file->fd < 0) {
        status = open_shard(verification->reader, index, &own, err);
        file = &own;
    }
    if (status == MICS_OK)
        mics_hashed_reader_start(bytes, file->path, file->fd);
    while (status == MICS_OK && bytes->offset < file->bytes && !is_cancelled(verification)) {
        const size_t some = (size_t)mics_min_u64(PIECE_BYTES, file->bytes - bytes->offset);

        status = mics_hashed_reader_read(bytes, piece, some, err);
        if (status == MICS_OK && verification->progress)
            mics_progress_add(verification->progress, some);
    }
    if (own.fd >= 0)
        close(own.fd);
    return status;
}

static void *verify_some(void *context)
{
    struct verify_job *job = context;
    struct mics_ckpt_verification *verification = job->verification;
    const struct mics_manifest *manifest = &verification->reader->manifest;
    struct mics_hashed_reader bytes;
    struct mics_err err = {""};
    void *piece = malloc(PIECE_BYTES);
    enum mics_status status = mics_hashed_reader_init(&bytes, &err);

    if (status == MICS_OK && !piece)
        status = mics_err_nomem(&err);
    while (status == MICS_OK && !is_cancelled(verification)) {
        const uint32_t i = atomic_fetch_add(&job->next, verification->stride);

        if (i >= manifest->file_count)
            break;
        status = sum_file(verification, i, &bytes, piece, &err);
        if (status == MICS_OK && !is_cancelled(verification))
            verification->damaged[i] = mics_hashed_reader_sum(&bytes) != manifest->files[i].xxh64;
    }
    pthread_mutex_lock(&job->lock);
    if (status != MICS_OK && job->status == MICS_OK) {
        job->status = status;
        job->err = err;
    }
    pthread_mutex_unlock(&job->lock);
    mics_hashed_reader_fini(&bytes);
    free(piece);
    return NULL;
}

enum mics_status mics_ckpt_verify_files(struct mics_ckpt_verification *verification,
                                        struct mics_err *err)
{
    struct verify_job job = {.verification = verification, .next = verification->first};

    verification->damaged = calloc(verification->reader->manifest.file_count, 1);
    if (!verification->damaged)
        return mics_err_nomem(err);
    pthread_mutex_init(&job.lock, NULL);
    mics_workers_run(verify_some, &job, verification->host_ranks);
    pthread_mutex_destroy(&job.lock);
    if (job.status != MICS_OK && err)
        *err = job.err;
    return job.status;
}

enum mics_status mics_ckpt_verify_status(const struct mics_ckpt_verification *verification,
                                         struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const struct mics_ckpt_reader *reader = verification->reader;
    const uint64_t before = diagnostics ? diagnostics->count : 0;
    struct mics_err text = {""};

    for (uint32_t i = 0; i < reader->store.file_count; i++) {
        if (!verification->damaged[i])
            continue;
        if (!diagnostics)
            return sum_mismatch(&reader->store.files[i], err);
        sum_mismatch(&reader->store.files[i], &text);
        mics_diagnostics_add(diagnostics, "%s", text.text);
    }
    return diagnostics ? mics_diagnostics_status(diagnostics, before, reader->folder, err)
                       : MICS_OK;
}

enum mics_status mics_ckpt_verify_own(const struct mics_ckpt_reader *reader, uint32_t first,
                                      uint32_t stride, uint32_t host_ranks,
                                      struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    struct mics_ckpt_verification verification = {
        .reader = reader, .first = first, .stride = stride, .host_ranks = host_ranks};
    enum mics_status status = mics_ckpt_verify_files(&verification, err);

    if (status == MICS_OK)
        status = mics_ckpt_verify_status(&verification, diagnostics, err);
    mics_ckpt_verify_free(&verification);
    return status;
}

/* Combine the results of all ranks. */
static enum mics_status gather_results(struct mics_ckpt_verification *verification,
                                       struct mics_comm *comm, struct mics_err *err)
{
    const uint32_t count = verification->reader->manifest.file_count;
    unsigned char *all = malloc((size_t)comm->size * count);
    enum mics_status status = mics_agree(comm, all ? MICS_OK : mics_err_nomem(err), err);

    if (status != MICS_OK)
        goto out;
    status = mics_comm_all_gather_now(comm, verification->damaged, all, count, err);
    if (status != MICS_OK)
        goto out;
    for (size_t i = 0; i < (size_t)comm->size * count; i++)
        verification->damaged[i % count] |= all[i];
out:
    free(all);
    return status;
}

enum mics_status mics_ckpt_verify_share(struct mics_ckpt_verification *verification,
                                        struct mics_comm *comm, enum mics_status status,
                                        struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    status = mics_agree(comm, status, err);
    if (status != MICS_OK)
        return status;
    status = gather_results(verification, comm, err);
    if (status != MICS_OK)
        return status;
    return mics_ckpt_verify_status(verification, diagnostics, err);
}

uint64_t mics_ckpt_verify_bytes(const struct mics_ckpt_verification *verification)
{
    const struct mics_manifest *manifest = &verification->reader->manifest;
    uint64_t bytes = 0;

    for (uint32_t i = verification->first; i < manifest->file_count; i += verification->stride)
        bytes += manifest->files[i].bytes;
    return bytes;
}

void mics_ckpt_verify_free(struct mics_ckpt_verification *verification)
{
    free(verification->damaged);
    verification->damaged = NULL;
}
