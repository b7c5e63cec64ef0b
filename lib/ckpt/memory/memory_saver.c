/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/memory/memory_saver.h"

#include "base/clock.h"
#include "base/threads.h"
#include "comm/agree.h"
#include "doc/doc.h"
#include "plan/copies.h"
#include "plan/memory_ckpt_cost.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* A shard that this rank keeps: its own, or, of a round of copies, another's. */
struct place {
    uint32_t shard;
    struct mics_memory_ckpt_shard generations[2];
};

/* The shards of the units that use the groups of one kind. */
struct shards {
    struct mics_copies copies;
    struct place *places; /* [1 + rounds]; of a place without memory nothing is kept. NULL: there
                             are no such units */
    uint64_t bytes;       /* of a shard */
    struct mics_memory_ckpt_header
        header; /* of this rank's, of the save under way; all zeros: it could not be taken */
};

struct mics_memory_saver {
    struct mics_checkpoint checkpoint;
    struct mics_ckpt_layout form; /* that of the checkpoint, with one file for each shard */
    struct mics_memory_saver_options options;
    struct shards shards[MICS_UNIT_KIND_COUNT];
    uint32_t rounds;        /* of all of these */
    struct mics_comm *comm; /* for copies; NULL: none are sent */
    int reserve;            /* file of the memory for manifests; -1: of another rank */
    uint32_t generation;    /* the next one to write */
    bool has_kept;          /* a generation is complete */
    uint64_t steps[2];      /* of the generations; 0: none of this start */
    /* The save under way. */
    bool active;
    struct mics_background_task task;
    struct mics_manifest manifest;
    struct mics_memory_ckpt ckpt;
    enum mics_status taken;
    struct mics_err taken_err;
    const struct place *damaged; /* received with another sum; NULL: none */
    double begin_s;
    double within_s; /* how long copies may give way */
};

static uint32_t own_rank(const struct mics_memory_saver *saver)
{
    return (uint32_t)saver->checkpoint.comm->rank;
}

static uint32_t shard_count(const struct mics_memory_saver *saver)
{
    return mics_ckpt_first_shard(&saver->form, MICS_UNIT_KIND_COUNT);
}

/* Open place `i` of a kind for the shard of `rank`, if it is one. */
static enum mics_status open_place(struct mics_memory_saver *saver, int kind, uint32_t i,
                                   int64_t rank, struct mics_err *err)
{
    const struct shards *shards = &saver->shards[kind];
    struct place *place = &shards->places[i];
    enum mics_status status = MICS_OK;

    if (rank < 0)
        return MICS_OK;
    place->shard = mics_ckpt_shard_of(&saver->form, kind, (uint32_t)rank);
    for (uint32_t g = 0; status == MICS_OK && g < 2; g++)
        status =
            mics_memory_ckpt_shard_open(saver->options.folder, place->shard, shard_count(saver), g,
                                        shards->bytes, &place->generations[g], err);
    return status;
}

static enum mics_status open_places(struct mics_memory_saver *saver, int kind, struct mics_err *err)
{
    struct shards *shards = &saver->shards[kind];
    const struct mics_copies *copies = &shards->copies;
    const uint32_t rank = own_rank(saver);
    enum mics_status status;

    shards->places = calloc(1 + copies->rounds, sizeof *shards->places);
    if (!shards->places)
        return mics_err_nomem(err);
    status =
        open_place(saver, kind, 0, mics_copies_keeps_own(copies, rank) ? (int64_t)rank : -1, err);
    for (uint32_t i = 0; status == MICS_OK && i < copies->rounds; i++)
        status = open_place(saver, kind, 1 + i, mics_copies_source(copies, rank, i), err);
    return status;
}

/* The shards of all kinds. */
static enum mics_status init_shards(struct mics_memory_saver *saver, struct mics_err *err)
{
    const struct mics_ckpt_layout *form = &saver->form;
    enum mics_status status = MICS_OK;

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        struct shards *shards = &saver->shards[kind];

        if (mics_ckpt_kind_shards(form, kind) == 0)
            continue;
        shards->copies = mics_copies_make(&form->choice->shapes[kind], saver->options.copies);
        shards->bytes =
            mics_shard_part_count(form, mics_ckpt_first_shard(form, kind)) * sizeof(float);
        saver->rounds += shards->copies.rounds;
        if (status == MICS_OK)
            status = open_places(saver, kind, err);
    }
    return status;
}

static enum mics_status open_reserve(struct mics_memory_saver *saver, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/reserve", saver->options.folder);

    if (status != MICS_OK)
        return status;
    saver->reserve = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (saver->reserve < 0)
        return mics_err_set_errno(err, "%s", path);
    errno = posix_fallocate(saver->reserve, 0, (off_t)MICS_MEMORY_CKPT_RESERVE_BYTES);
    return errno == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

/* The memory of a manifest comes from the reserve. What other processes took meanwhile is not
 * there any more; a smaller reserve will do for the next one. */
static void renew_reserve(const struct mics_memory_saver *saver)
{
    off_t bytes = (off_t)MICS_MEMORY_CKPT_RESERVE_BYTES;

    while (bytes >= MICS_MEMORY_CKPT_DATA && posix_fallocate(saver->reserve, 0, bytes) != 0)
        bytes /= 2;
}

enum mics_status mics_memory_saver_new(const struct mics_checkpoint *checkpoint,
                                       const struct mics_memory_saver_options *options,
                                       struct mics_memory_saver **out, struct mics_err *err)
{
    struct mics_comm *comm = checkpoint->comm;
    struct mics_memory_saver *saver = calloc(1, sizeof *saver);
    enum mics_status status = saver ? MICS_OK : mics_err_nomem(err);

    status = mics_agree(comm, status, err);
    if (status != MICS_OK) {
        free(saver);
        return status;
    }
    saver->checkpoint = *checkpoint;
    saver->reserve = -1;
    saver->form = *checkpoint->form;
    saver->form.parts = 1;
    saver->options = *options;
    saver->generation = options->generation;
    status = init_shards(saver, err);
    if (status == MICS_OK && options->lead)
        status = open_reserve(saver, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK && saver->rounds > 0)
        status = mics_comm_split(comm, 0, comm->rank, comm->rank, &saver->comm, err);
    if (status == MICS_OK)
        *out = saver;
    else
        mics_memory_saver_free(saver);
    return status;
}

void mics_memory_saver_free(struct mics_memory_saver *saver)
{
    if (!saver)
        return;
    mics_background_task_wait(&saver->task, NULL);
    mics_manifest_free(&saver->manifest);
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct shards *shards = &saver->shards[kind];

        for (uint32_t i = 0; shards->places && i < 1 + shards->copies.rounds; i++)
            for (int j = 0; j < 2; j++)
                mics_memory_ckpt_shard_close(&shards->places[i].generations[j]);
        free(shards->places);
    }
    if (saver->comm)
        mics_comm_free(saver->comm);
    if (saver->reserve >= 0)
        close(saver->reserve);
    free(saver);
}

bool mics_memory_saver_active(const struct mics_memory_saver *saver)
{
    return saver->active;
}

bool mics_memory_saver_busy(const struct mics_memory_saver *saver)
{
    return mics_background_task_busy(&saver->task);
}

static struct mics_memory_ckpt_shard *place_now(const struct mics_memory_saver *saver,
                                                const struct shards *shards, uint32_t place)
{
    return &shards->places[place].generations[saver->generation];
}

/* Clear one generation of all shards that this rank keeps. */
static void clear_shards(struct mics_memory_saver *saver, uint32_t generation)
{
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct shards *shards = &saver->shards[kind];

        for (uint32_t i = 0; shards->places && i < 1 + shards->copies.rounds; i++)
            if (shards->places[i].generations[generation].header)
                mics_memory_ckpt_shard_clear(&shards->places[i].generations[generation]);
    }
}

/* Send this rank's shard and receive another's, whose sum its header has. */
static enum mics_status copy_round(struct mics_memory_saver *saver, struct shards *shards,
                                   uint32_t round, struct mics_err *err)
{
    struct mics_comm *comm = saver->comm;
    struct mics_memory_ckpt_shard *own = place_now(saver, shards, 0),
                                  *copy = place_now(saver, shards, 1 + round);
    const int to = (int)mics_copies_target(&shards->copies, own_rank(saver), round);
    const int from = (int)mics_copies_source(&shards->copies, own_rank(saver), round);
    const uint32_t shard = shards->places[1 + round].shard;
    const uint64_t bytes = shards->bytes;
    struct mics_memory_ckpt_header header = {.version = 0};
    enum mics_status status = mics_comm_sendrecv_now(comm, &shards->header, sizeof header, to,
                                                     &header, sizeof header, from, 0, err);

    if (status != MICS_OK)
        return status;
    status = mics_comm_sendrecv_now(comm, own->data, bytes, to, copy->data, bytes, from,
                                    saver->within_s / saver->rounds, err);
    if (status != MICS_OK)
        return status;
    if (to >= 0)
        saver->ckpt.sent_bytes += bytes + sizeof header;
    if (from < 0 || header.version == 0)
        return MICS_OK; /* the other rank tells what it could not take */
    if (!mics_memory_ckpt_header_valid(&header) || header.step != saver->ckpt.step ||
        header.shard != shard || header.bytes != bytes ||
        XXH64(copy->data, bytes, 0) != header.xxh64) {
        saver->damaged = &shards->places[1 + round]; /* the other ranks wait for the next round */
        return MICS_OK;
    }
    mics_memory_ckpt_shard_complete(copy, &header);
    return MICS_OK;
}

static enum mics_status keep_shards(struct mics_memory_saver *saver, struct shards *shards,
                                    struct mics_err *err)
{
    struct mics_memory_ckpt_shard *own = place_now(saver, shards, 0);
    enum mics_status status = MICS_OK;

    if (saver->taken == MICS_OK && own->header) {
        shards->header = mics_memory_ckpt_header(shards->places[0].shard, shard_count(saver),
                                                 saver->options.stamp, saver->ckpt.step, own->bytes,
                                                 XXH64(own->data, own->bytes, 0));
        mics_memory_ckpt_shard_complete(own, &shards->header);
    }
    for (uint32_t i = 0; status == MICS_OK && i < shards->copies.rounds; i++)
        status = copy_round(saver, shards, i, err);
    return status;
}

static enum mics_status keep(void *context, struct mics_err *err)
{
    struct mics_memory_saver *saver = context;
    enum mics_status status = MICS_OK;

    for (int kind = 0; status == MICS_OK && kind < MICS_UNIT_KIND_COUNT; kind++)
        if (saver->shards[kind].places)
            status = keep_shards(saver, &saver->shards[kind], err);
    if (saver->taken != MICS_OK)
        return mics_err_set(err, saver->taken, "%s", saver->taken_err.text);
    if (status == MICS_OK && saver->damaged)
        return mics_err_set(err, MICS_ERR_IO, "the copy of shard %u was damaged on its way",
                            saver->damaged->shard);
    return status;
}

/* The generation to overwrite becomes incomplete: first its manifest is removed. */
static void clear_generation(struct mics_memory_saver *saver)
{
    const uint64_t step = saver->steps[saver->generation];
    char path[MICS_PATH_MAX];

    if (saver->options.lead && step > 0 &&
        mics_memory_ckpt_manifest_path(saver->options.folder, saver->options.stamp, step, path,
                                       NULL) == MICS_OK)
        unlink(path);
    clear_shards(saver, saver->generation);
    saver->steps[saver->generation] = 0;
}

/* Copy the shards that this rank keeps of its own. */
static enum mics_status take_shards(struct mics_memory_saver *saver, struct mics_err *err)
{
    const struct mics_ckpt_source *source = &saver->checkpoint.source;

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct shards *shards = &saver->shards[kind];

        if (!shards->places || !place_now(saver, shards, 0)->header)
            continue;
        const enum mics_status status = mics_shard_part_take(
            &saver->form, shards->places[0].shard, source, place_now(saver, shards, 0)->data, err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

void mics_memory_saver_begin(struct mics_memory_saver *saver, struct mics_manifest *manifest,
                             double within_s)
{
    saver->begin_s = mics_now_s();
    saver->within_s = within_s;
    saver->manifest = *manifest;
    *manifest = (struct mics_manifest){0};
    saver->ckpt = (struct mics_memory_ckpt){.step = saver->manifest.step};
    saver->damaged = NULL;
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        saver->shards[kind].header = (struct mics_memory_ckpt_header){.version = 0};
    clear_generation(saver);
    saver->taken = take_shards(saver, &saver->taken_err);
    saver->ckpt.copy_s = mics_now_s() - saver->begin_s;
    saver->active = true;
    mics_background_task_start(&saver->task, keep, saver);
}

/* Every rank gets the sums of all shards: the first rank that holds a shard has its sum. */
static enum mics_status gather_sums(struct mics_memory_saver *saver, struct mics_err *err)
{
    struct mics_comm *comm = saver->checkpoint.comm;
    struct mics_manifest *manifest = &saver->manifest;
    struct mics_file_sum *all = malloc((size_t)comm->size * sizeof *all);
    enum mics_status status;

    manifest->file_count = shard_count(saver);
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    status = mics_agree(comm, all && manifest->files ? MICS_OK : mics_err_nomem(err), err);
    if (status != MICS_OK)
        goto out;
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct mics_memory_ckpt_header *header = &saver->shards[kind].header;
        const struct mics_file_sum own = {header->bytes, header->xxh64};
        const uint32_t shards = mics_ckpt_kind_shards(&saver->form, kind);

        if (shards == 0)
            continue;
        status = mics_comm_all_gather_now(comm, &own, all, sizeof own, err);
        if (status != MICS_OK)
            goto out;
        for (uint32_t rank = 0; rank < shards; rank++)
            manifest->files[mics_ckpt_shard_of(&saver->form, kind, rank)] = all[rank];
    }
out:
    free(all);
    return status;
}

static enum mics_status write_manifest(const struct mics_memory_saver *saver, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_memory_ckpt_manifest_path(
        saver->options.folder, saver->options.stamp, saver->ckpt.step, path, err);

    if (status != MICS_OK)
        goto out;
    status = mics_manifest_to_doc(&saver->manifest, &saver->form, &doc, err);
    if (status != MICS_OK)
        goto out;
    if (ftruncate(saver->reserve, 0) != 0)
        status = mics_err_set_errno(err, "%s/reserve", saver->options.folder);
    if (status != MICS_OK)
        goto out;
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        goto out;
    fchmod(fileno(mics_file_stream(writer)), 0600);
    status = mics_doc_write(mics_file_stream(writer), doc, MICS_DOC_MSGPACK, err);
    if (status == MICS_OK)
        status = mics_file_publish(writer, err);
    else
        mics_file_discard(writer);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
out:
    renew_reserve(saver);
    json_decref(doc);
    return status;
}

/* What an older start has left may go: its generation in the files of this one, and all others. */
static enum mics_status remove_older(struct mics_memory_saver *saver, struct mics_err *err)
{
    struct mics_comm *comm = saver->checkpoint.comm;
    enum mics_status status = MICS_OK;

    clear_shards(saver, 1 - saver->generation);
    status = mics_comm_barrier_now(comm, err);
    if (status != MICS_OK)
        return status;
    if (saver->options.lead)
        return mics_memory_ckpt_prune(saver->options.folder, saver->options.stamp, 0, false, err);
    return MICS_OK;
}

enum mics_status mics_memory_saver_advance(struct mics_memory_saver *saver,
                                           struct mics_memory_ckpt *ckpt, struct mics_err *err)
{
    struct mics_comm *comm = saver->checkpoint.comm;
    enum mics_status status = mics_agree(comm, mics_background_task_wait(&saver->task, err), err);

    if (status == MICS_OK)
        status = gather_sums(saver, err);
    if (status == MICS_OK) {
        if (saver->options.lead)
            status = write_manifest(saver, err);
        status = mics_agree(comm, status, err);
    }
    mics_manifest_free(&saver->manifest);
    saver->active = false;
    *ckpt = saver->ckpt;
    saver->steps[saver->generation] = saver->ckpt.step; /* some nodes may have its manifest */
    if (status != MICS_OK)
        return status;
    if (!saver->has_kept)
        status = mics_agree(comm, remove_older(saver, err), err);
    saver->has_kept = true;
    saver->generation = 1 - saver->generation;
    saver->ckpt.seconds = mics_now_s() - saver->begin_s;
    *ckpt = saver->ckpt;
    return status;
}
