/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source is read twice, once for its numbers and once from end to end for its sums. As the numbers wait for the disk, most
 * of the second reading costs no time; what was made of a damaged source is never given its name.
 */
#include "ckpt/convert/write.h"

#include "comm/agree.h"
#include "ckpt/convert/abort_marker.h"
#include "ckpt/convert/sums.h"
#include "base/background_task.h"

struct watch {
    struct mics_sums sums;
    atomic_bool stop_sums, stop_making;
};

static enum mics_status check(void *context, struct mics_err *err)
{
    struct watch *watch = context;
    enum mics_status status = mics_sums_check(&watch->sums, err);

    for (uint32_t i = 0; status == MICS_OK && i < watch->sums.source->store.file_count; i++)
        if (watch->sums.damaged[i])
            atomic_store(&watch->stop_making, true);
    if (status != MICS_OK)
        atomic_store(&watch->stop_making, true);
    return status;
}

/* What is wrong with the source explains what is wrong with its numbers; it does not explain a full disk. */
static enum mics_status make_watched(const struct mics_convert_request *request,
                                     const struct mics_store *store, struct mics_target *target,
                                     const char *folder, struct watch *watch, struct mics_err *err)
{
    const struct mics_convert_how how = {.comm = request->comm,
                                         .host_ranks = request->host_ranks,
                                         .progress = request->progress,
                                         .progress_context = request->progress_context,
                                         .cancel = &watch->stop_making};
    struct mics_err sums_err = {""}, made_err = {""};
    struct mics_errand errand = {.started = false};
    enum mics_status made, sums;

    mics_errand_start(&errand, check, watch);
    made = mics_convert(store, target, folder, &how, &made_err);
    if (made != MICS_OK && made != MICS_ERR_FORMAT)
        atomic_store(&watch->stop_sums, true);
    sums = mics_errand_finish(&errand, &sums_err);
    if (made == MICS_OK || made == MICS_ERR_FORMAT) {
        sums = mics_sums_share(&watch->sums, request->comm, sums, request->problems, &sums_err);
        if (sums != MICS_OK)
            made_err = sums_err;
        made = sums != MICS_OK ? sums : made;
    }
    if (made != MICS_OK && err)
        *err = made_err;
    return made;
}

enum mics_status mics_convert_check_sums(const struct mics_convert_request *request,
                                         const struct mics_shard_source *source,
                                         struct mics_err *err)
{
    struct mics_meter meter;
    struct mics_sums sums = {.source = source,
                             .first = (uint32_t)request->comm->rank,
                             .stride = (uint32_t)request->comm->size,
                             .host_ranks = request->host_ranks,
                             .meter = &meter};
    enum mics_status status;

    mics_meter_init(&meter, request->progress, request->progress_context, mics_sums_bytes(&sums));
    status = mics_sums_check(&sums, err);
    status = mics_sums_share(&sums, request->comm, status, request->problems, err);
    mics_sums_free(&sums);
    return status;
}

/* None is made before every rank knows them all. */
static enum mics_status remember_files(const struct mics_convert_request *request,
                                       const struct mics_target *target,
                                       struct mics_new_folder *folder, struct mics_err *err)
{
    enum mics_status status = mics_new_folder_remember(folder, MICS_HALT_NAME, err);

    for (uint32_t i = 0; status == MICS_OK && i < target->file_count; i++)
        status = mics_new_folder_remember(folder, target->files[i].name, err);
    return mics_agree(request->comm, status, err);
}

static enum mics_status make(const struct mics_convert_request *request,
                             const struct mics_store *store, struct mics_target *target,
                             const char *folder, struct mics_err *err)
{
    const struct mics_convert_how how = {.comm = request->comm,
                                         .host_ranks = request->host_ranks,
                                         .progress = request->progress,
                                         .progress_context = request->progress_context};

    return mics_convert(store, target, folder, &how, err);
}

static enum mics_status write_files(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_target *target,
                                    const struct mics_shard_source *source,
                                    struct mics_new_folder *folder, struct mics_err *err)
{
    struct watch watch = {.sums = {.source = source,
                                   .first = (uint32_t)request->comm->rank,
                                   .stride = (uint32_t)request->comm->size,
                                   .host_ranks = request->host_ranks,
                                   .cancel = &watch.stop_sums}};
    enum mics_status status = MICS_OK;

    if (!request->dry)
        status = remember_files(request, target, folder, err);
    if (status != MICS_OK || (!source && request->dry))
        return status;
    if (!source)
        return make(request, store, target, folder->temporary, err);
    if (request->dry)
        status = mics_convert_check_sums(request, source, err);
    else
        status = make_watched(request, store, target, folder->temporary, &watch, err);
    mics_sums_free(&watch.sums);
    return status;
}

enum mics_status mics_convert_make(const struct mics_convert_request *request,
                                   enum mics_status prepared, const struct mics_store *store,
                                   const struct mics_shard_source *source,
                                   const struct mics_convert_output *output, struct mics_err *err)
{
    struct mics_new_folder folder = {.lock = -1};
    enum mics_status status = mics_agree(request->comm, prepared, err);

    if (status == MICS_OK)
        status = mics_new_folder_begin(&folder, request->comm, request->out,
                                       mics_target_bytes(output->target) + output->room,
                                       request->dry, err);
    if (status == MICS_OK)
        status = write_files(request, store, output->target, source, &folder, err);
    if (status == MICS_OK && !request->dry) {
        if (request->comm->rank == 0)
            status = output->finish(output->context, &folder, err);
        status = mics_agree(request->comm, status, err);
    }
    mics_new_folder_discard(&folder);
    return status;
}
