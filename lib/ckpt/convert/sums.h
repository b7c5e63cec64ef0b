/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.h - are the files of a checkpoint what its manifest says? Each rank reads some of them whole, and then
 * all know the verdict on all.
 */
#ifndef MICS_CKPT_CONVERT_SUMS_H
#define MICS_CKPT_CONVERT_SUMS_H

#include "base/diagnostics.h"
#include "base/progress.h"
#include "ckpt/convert/shards.h"
#include "comm/comm.h"

#include <stdatomic.h>

struct mics_sums {
    const struct mics_shard_source *source;
    uint32_t first, stride;         /* files first, first + stride, ... are this rank's */
    uint32_t host_ranks;            /* ranks that share the cores of this machine, with this one */
    const atomic_bool *cancel;      /* when true, nobody wants to know any more; or NULL */
    struct mics_progress *progress; /* told of every byte; or NULL */
    unsigned char *damaged;         /* [file]: 1, 0. By mics_sums_check() */
};

/* Read this rank's files, several at a time, with 1 MiB for each core. Any thread. A file that is damaged is no failure
 * here. */
enum mics_status mics_sums_check(struct mics_sums *sums, struct mics_err *err);

/* Tell every damaged file that is known of, and fail if there is one. */
enum mics_status mics_sums_verdict(const struct mics_sums *sums,
                                   struct mics_diagnostics *diagnostics, struct mics_err *err);

/* Tell every damaged file of any rank, and fail if there is one. `status` is what this rank's check gave. Collective; the same
 * result on all ranks. */
enum mics_status mics_sums_share(struct mics_sums *sums, struct mics_comm *comm,
                                 enum mics_status status, struct mics_diagnostics *diagnostics,
                                 struct mics_err *err);

/* Bytes of all files of this rank's. */
uint64_t mics_sums_bytes(const struct mics_sums *sums);
void mics_sums_free(struct mics_sums *sums); /* of zeros is fine */

#endif
