/* SPDX-License-Identifier: Apache-2.0 */
/* convert_write.h - files into their folder, while the sums of what they are made of are compared. Private to the
 * conversion. */
#ifndef MICS_CKPT_CONVERT_WRITE_H
#define MICS_CKPT_CONVERT_WRITE_H

#include "ckpt/convert/ops.h"
#include "ckpt/convert/shards.h"

/* What is to be made, and how the first rank ends it when all files are whole: `finish` writes what else belongs
 * into the folder and commits it. `room`: bytes of that, beyond the target's. */
struct mics_convert_output {
    struct mics_target *target;
    uint64_t room;
    enum mics_status (*finish)(void *context, struct mics_new_folder *folder, struct mics_err *err);
    void *context;
};

/* Make the folder request->out whole, or not at all. `prepared` is how far this rank is; `source` is where the store's
 * numbers are from, if they have sums, else NULL. With request->dry the sums are compared and nothing is made.
 * Collective: the same result on all ranks. */
enum mics_status mics_convert_make(const struct mics_convert_request *request,
                                   enum mics_status prepared, const struct mics_store *store,
                                   const struct mics_shard_source *source,
                                   const struct mics_convert_output *output, struct mics_err *err);

/* Compare the sums of a checkpoint's files. Collective: the same result on all ranks. */
enum mics_status mics_convert_check_sums(const struct mics_convert_request *request,
                                         const struct mics_shard_source *source,
                                         struct mics_err *err);

#endif
