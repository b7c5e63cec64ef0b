/* SPDX-License-Identifier: Apache-2.0 */
/* convert_write.h - files into their folder, while the sums of what they are made of are compared. Private to the
 * conversion. */
#ifndef MICS_CKPT_CONVERT_WRITE_H
#define MICS_CKPT_CONVERT_WRITE_H

#include "ckpt/convert_ops.h"
#include "ckpt/convert_shards.h"

/* `source` is where the store's numbers are from, if they have sums, else NULL. With request->dry the sums are
 * compared and nothing is made. Collective: the same result on all ranks. */
enum mics_status mics_convert_write(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_target *target,
                                    const struct mics_shard_source *source,
                                    struct mics_new_folder *folder, struct mics_err *err);

/* Compare the sums of a checkpoint's files. Collective: the same result on all ranks. */
enum mics_status mics_convert_check_sums(const struct mics_convert_request *request,
                                         const struct mics_shard_source *source,
                                         struct mics_err *err);

#endif
