/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_verify.c - is what is on disk what was written?
 *
 * A checkpoint's files are summed, several at a time; files of Hugging Face have no sums, so that their
 * headers, and that no number is infinite or NaN, is all that can be checked.
 */
#include "ckpt/convert_ops.h"

#include "base/num.h"
#include "ckpt/agree.h"
#include "ckpt/convert_model.h"
#include "ckpt/convert_sums.h"

#include <stdlib.h>

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

static enum mics_status check_sums(const struct mics_convert_request *request,
                                   const struct mics_shard_source *source, struct mics_err *err)
{
    struct mics_sums sums = {.source = source,
                             .first = (uint32_t)request->comm->rank,
                             .stride = (uint32_t)request->comm->size,
                             .host_ranks = request->host_ranks};
    enum mics_status status = mics_sums_check(&sums, err);

    status = mics_sums_share(&sums, request->comm, status, request->problems, err);
    mics_sums_free(&sums);
    return status;
}

enum mics_status mics_convert_verify(const struct mics_convert_request *request, const char *path,
                                     struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_disk_model disk;
    enum mics_status status = mics_disk_model_open(path, request->problems, &disk, err);
    const struct mics_store *store = disk.is_hf ? &disk.hf.store : &disk.shards.store;

    *report = (struct mics_convert_report){.files = store->file_count};
    for (uint32_t i = 0; i < store->file_count; i++)
        report->bytes += store->files[i].bytes;
    status = mics_agree(request->comm, status, err);
    if (status == MICS_OK && !disk.is_hf)
        status = check_sums(request, &disk.shards, err);
    else if (status == MICS_OK && request->comm->rank == 0)
        status = check_numbers(&disk.hf, request->problems, err);
    if (disk.is_hf)
        status = mics_agree(request->comm, status, err);
    mics_disk_model_close(&disk);
    return status;
}
