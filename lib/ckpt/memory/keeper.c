/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/memory/keeper.h"

#include "base/clock.h"
#include "base/threads.h"
#include "comm/agree.h"
#include "doc/doc.h"
#include "plan/copies.h"
#include "plan/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* A shard that this rank keeps: its own, or, of a round of copies, another's. */
struct place {
    uint32_t shard;
    struct mics_kept_shard generations[2];
};

struct mics_keeper {
    struct mics_checkpoint checkpoint;
    struct mics_ckpt_form form; /* that of the checkpoint, with one part */
    struct mics_keeper_options options;
    struct mics_copies copies;
    struct mics_comm *comm; /* for copies; NULL: none are sent */
    struct place *places;   /* [1 + rounds]; of a place without memory nothing is kept */
    int reserve;            /* file of the memory for manifests; -1: of another rank */
    uint32_t generation;    /* the next one to write */
    bool has_kept;          /* a generation is complete */
    uint64_t steps[2];      /* of the generations; 0: none of this start */
    /* Of what is under way. */
    bool active;
    struct mics_background_task task;
    struct mics_manifest manifest;
    struct mics_kept kept;
    struct mics_kept_header header; /* of this rank's shard; all zeros: it could not be taken */
    enum mics_status taken;
    struct mics_err taken_err;
    double begin_s;
    double within_s; /* how long copies may give way */
};

struct mics_ckpt_form mics_keeper_form(const struct mics_ckpt_form *form)
{
    struct mics_ckpt_form whole = *form;

    whole.parts = 1;
    return whole;
}

uint64_t mics_keeper_shard_bytes(const struct mics_ckpt_form *form)
{
    const struct mics_ckpt_form whole = mics_keeper_form(form);

    return mics_shard_part_count(&whole, 0) * sizeof(float);
}

static uint32_t own_rank(const struct mics_keeper *keeper)
{
    return (uint32_t)keeper->checkpoint.comm->rank;
}

static uint32_t shard_of(const struct mics_keeper *keeper, uint32_t rank)
{
    return mics_shape_index(&keeper->form.choice->shape, rank).optim;
}

static enum mics_status open_place(struct mics_keeper *keeper, struct place *place, int64_t rank,
                                   struct mics_err *err)
{
    const uint32_t shards = keeper->form.choice->shape.p_optim;
    const uint64_t bytes = mics_keeper_shard_bytes(&keeper->form);
    enum mics_status status = MICS_OK;

    if (rank < 0)
        return MICS_OK;
    place->shard = shard_of(keeper, (uint32_t)rank);
    for (uint32_t i = 0; status == MICS_OK && i < 2; i++)
        status = mics_kept_shard_open(keeper->options.folder, place->shard, shards, i, bytes,
                                      &place->generations[i], err);
    return status;
}

static enum mics_status open_places(struct mics_keeper *keeper, struct mics_err *err)
{
    const struct mics_copies *copies = &keeper->copies;
    const uint32_t rank = own_rank(keeper);
    enum mics_status status;

    keeper->places = calloc(1 + copies->rounds, sizeof *keeper->places);
    if (!keeper->places)
        return mics_err_nomem(err);
    status = open_place(keeper, &keeper->places[0],
                        mics_copies_keeps_own(copies, rank) ? (int64_t)rank : -1, err);
    for (uint32_t i = 0; status == MICS_OK && i < copies->rounds; i++)
        status =
            open_place(keeper, &keeper->places[1 + i], mics_copies_source(copies, rank, i), err);
    return status;
}

static enum mics_status open_reserve(struct mics_keeper *keeper, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/reserve", keeper->options.folder);

    if (status != MICS_OK)
        return status;
    keeper->reserve = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (keeper->reserve < 0)
        return mics_err_set_errno(err, "%s", path);
    errno = posix_fallocate(keeper->reserve, 0, (off_t)MICS_KEPT_RESERVE_BYTES);
    return errno == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

/* The memory of a manifest comes from the reserve. What other processes took meanwhile is not
 * there any more; a smaller reserve will do for the next one. */
static void renew_reserve(const struct mics_keeper *keeper)
{
    off_t bytes = (off_t)MICS_KEPT_RESERVE_BYTES;

    while (bytes >= MICS_KEPT_DATA && posix_fallocate(keeper->reserve, 0, bytes) != 0)
        bytes /= 2;
}

enum mics_status mics_keeper_new(const struct mics_checkpoint *checkpoint,
                                 const struct mics_keeper_options *options,
                                 struct mics_keeper **out, struct mics_err *err)
{
    struct mics_comm *comm = checkpoint->comm;
    struct mics_keeper *keeper = calloc(1, sizeof *keeper);
    enum mics_status status = keeper ? MICS_OK : mics_err_nomem(err);

    status = mics_agree(comm, status, err);
    if (status != MICS_OK) {
        free(keeper);
        return status;
    }
    keeper->checkpoint = *checkpoint;
    keeper->reserve = -1;
    keeper->form = mics_keeper_form(checkpoint->form);
    keeper->options = *options;
    keeper->generation = options->generation;
    keeper->copies = mics_copies_make(&checkpoint->form->choice->shape, options->copies);
    status = open_places(keeper, err);
    if (status == MICS_OK && options->lead)
        status = open_reserve(keeper, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK && keeper->copies.rounds > 0)
        status = comm->ops->split(comm, 0, comm->rank, comm->rank, &keeper->comm, err);
    if (status == MICS_OK)
        *out = keeper;
    else
        mics_keeper_free(keeper);
    return status;
}

void mics_keeper_free(struct mics_keeper *keeper)
{
    if (!keeper)
        return;
    mics_background_task_wait(&keeper->task, NULL);
    mics_manifest_free(&keeper->manifest);
    for (uint32_t i = 0; keeper->places && i < 1 + keeper->copies.rounds; i++)
        for (int j = 0; j < 2; j++)
            mics_kept_shard_close(&keeper->places[i].generations[j]);
    if (keeper->comm)
        keeper->comm->ops->free(keeper->comm);
    if (keeper->reserve >= 0)
        close(keeper->reserve);
    free(keeper->places);
    free(keeper);
}

bool mics_keeper_active(const struct mics_keeper *keeper)
{
    return keeper->active;
}

bool mics_keeper_busy(const struct mics_keeper *keeper)
{
    return mics_background_task_busy(&keeper->task);
}

static struct mics_kept_shard *place_now(struct mics_keeper *keeper, uint32_t place)
{
    return &keeper->places[place].generations[keeper->generation];
}

/* Send this rank's shard and receive another's, whose sum its header has. */
static enum mics_status copy_round(struct mics_keeper *keeper, uint32_t round, struct mics_err *err)
{
    struct mics_comm *comm = keeper->comm;
    struct mics_kept_shard *own = place_now(keeper, 0), *copy = place_now(keeper, 1 + round);
    const int to = (int)mics_copies_target(&keeper->copies, own_rank(keeper), round);
    const int from = (int)mics_copies_source(&keeper->copies, own_rank(keeper), round);
    const uint64_t bytes = mics_keeper_shard_bytes(&keeper->form);
    struct mics_kept_header header = {.version = 0};
    enum mics_status status = comm->ops->exchange_now(comm, &keeper->header, sizeof header, to,
                                                      &header, sizeof header, from, 0, err);

    if (status == MICS_OK)
        status = comm->ops->exchange_now(comm, own->data, bytes, to, copy->data, bytes, from,
                                         keeper->within_s / keeper->copies.rounds, err);
    if (status != MICS_OK)
        return status;
    if (to >= 0)
        keeper->kept.sent_bytes += bytes + sizeof header;
    if (from < 0 || header.version == 0)
        return MICS_OK; /* the other rank tells what it could not take */
    if (!mics_kept_header_valid(&header) || header.step != keeper->kept.step ||
        header.shard != keeper->places[1 + round].shard || header.bytes != bytes ||
        XXH64(copy->data, bytes, 0) != header.xxh64)
        return mics_err_set(err, MICS_ERR_IO, "the copy of shard %u was damaged on its way",
                            keeper->places[1 + round].shard);
    mics_kept_shard_complete(copy, &header);
    return MICS_OK;
}

static enum mics_status keep(void *context, struct mics_err *err)
{
    struct mics_keeper *keeper = context;
    struct mics_kept_shard *own = place_now(keeper, 0);
    enum mics_status status = MICS_OK;

    if (keeper->taken == MICS_OK && own->header) {
        keeper->header = mics_kept_header(
            keeper->places[0].shard, keeper->form.choice->shape.p_optim, keeper->options.stamp,
            keeper->kept.step, own->bytes, XXH64(own->data, own->bytes, 0));
        mics_kept_shard_complete(own, &keeper->header);
    }
    for (uint32_t i = 0; status == MICS_OK && i < keeper->copies.rounds; i++)
        status = copy_round(keeper, i, err);
    if (keeper->taken != MICS_OK)
        return mics_err_set(err, keeper->taken, "%s", keeper->taken_err.text);
    return status;
}

/* The generation to overwrite becomes incomplete: first its manifest is removed. */
static void clear_generation(struct mics_keeper *keeper)
{
    const uint64_t step = keeper->steps[keeper->generation];
    char path[MICS_PATH_MAX];

    if (keeper->options.lead && step > 0 &&
        mics_kept_manifest_path(keeper->options.folder, keeper->options.stamp, step, path, NULL) ==
            MICS_OK)
        unlink(path);
    for (uint32_t i = 0; i < 1 + keeper->copies.rounds; i++)
        if (place_now(keeper, i)->header)
            mics_kept_shard_clear(place_now(keeper, i));
    keeper->steps[keeper->generation] = 0;
}

void mics_keeper_begin(struct mics_keeper *keeper, struct mics_manifest *manifest, double within_s)
{
    const struct mics_ckpt_source *source = &keeper->checkpoint.source;
    struct mics_kept_shard *own = place_now(keeper, 0);

    keeper->begin_s = mics_now_s();
    keeper->within_s = within_s;
    keeper->manifest = *manifest;
    *manifest = (struct mics_manifest){0};
    keeper->kept = (struct mics_kept){.step = keeper->manifest.step};
    keeper->header = (struct mics_kept_header){.version = 0};
    clear_generation(keeper);
    keeper->taken =
        own->header ? mics_shard_part_take(&keeper->form, 0, source, own->data, &keeper->taken_err)
                    : MICS_OK;
    keeper->kept.copy_s = mics_now_s() - keeper->begin_s;
    keeper->active = true;
    mics_background_task_start(&keeper->task, keep, keeper);
}

/* Every rank gets the sums of all shards: the first rank that holds a shard has its sum. */
static enum mics_status gather_sums(struct mics_keeper *keeper, struct mics_err *err)
{
    struct mics_comm *comm = keeper->checkpoint.comm;
    struct mics_manifest *manifest = &keeper->manifest;
    const struct mics_file_sum own = {keeper->header.bytes, keeper->header.xxh64};
    struct mics_file_sum *all = malloc((size_t)comm->size * sizeof *all);
    enum mics_status status;

    manifest->file_count = keeper->form.choice->shape.p_optim;
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    status = mics_agree(comm, all && manifest->files ? MICS_OK : mics_err_nomem(err), err);
    if (status == MICS_OK)
        status = comm->ops->all_gather_now(comm, &own, all, sizeof own, err);
    for (uint32_t rank = 0; status == MICS_OK && rank < manifest->file_count; rank++)
        manifest->files[shard_of(keeper, rank)] = all[rank];
    free(all);
    return status;
}

static enum mics_status write_manifest(const struct mics_keeper *keeper, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_kept_manifest_path(keeper->options.folder, keeper->options.stamp,
                                                      keeper->kept.step, path, err);

    if (status == MICS_OK)
        status = mics_manifest_to_doc(&keeper->manifest, &keeper->form, &doc, err);
    if (status == MICS_OK && ftruncate(keeper->reserve, 0) != 0)
        status = mics_err_set_errno(err, "%s/reserve", keeper->options.folder);
    if (status == MICS_OK)
        status = mics_file_create(path, &writer, err);
    if (status == MICS_OK) {
        fchmod(fileno(mics_file_stream(writer)), 0600);
        status = mics_doc_write(mics_file_stream(writer), doc, MICS_DOC_MSGPACK, err);
        if (status == MICS_OK)
            status = mics_file_publish(writer, err);
        else
            mics_file_discard(writer);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    renew_reserve(keeper);
    json_decref(doc);
    return status;
}

/* What an older start has left may go: its generation in the files of this one, and all others. */
static enum mics_status remove_older(struct mics_keeper *keeper, struct mics_err *err)
{
    struct mics_comm *comm = keeper->checkpoint.comm;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < 1 + keeper->copies.rounds; i++)
        if (keeper->places[i].generations[1 - keeper->generation].header)
            mics_kept_shard_clear(&keeper->places[i].generations[1 - keeper->generation]);
    status = comm->ops->barrier_now(comm, err);
    if (status == MICS_OK && keeper->options.lead)
        status = mics_kept_prune(keeper->options.folder, keeper->options.stamp, 0, false, err);
    return status;
}

enum mics_status mics_keeper_advance(struct mics_keeper *keeper, struct mics_kept *kept,
                                     struct mics_err *err)
{
    struct mics_comm *comm = keeper->checkpoint.comm;
    enum mics_status status = mics_agree(comm, mics_background_task_wait(&keeper->task, err), err);

    if (status == MICS_OK)
        status = gather_sums(keeper, err);
    if (status == MICS_OK) {
        if (keeper->options.lead)
            status = write_manifest(keeper, err);
        status = mics_agree(comm, status, err);
    }
    mics_manifest_free(&keeper->manifest);
    keeper->active = false;
    *kept = keeper->kept;
    keeper->steps[keeper->generation] = keeper->kept.step; /* some nodes may have its manifest */
    if (status != MICS_OK)
        return status;
    if (!keeper->has_kept)
        status = mics_agree(comm, remove_older(keeper, err), err);
    keeper->has_kept = true;
    keeper->generation = 1 - keeper->generation;
    keeper->kept.seconds = mics_now_s() - keeper->begin_s;
    *kept = keeper->kept;
    return status;
}
