/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - what ranks tell all others: a common status for ranks that must continue together or
 * fail together, and data of each rank.
 */
#ifndef MICS_COMM_AGREE_H
#define MICS_COMM_AGREE_H

#include "comm/comm.h"

#include <stddef.h>

/* Each rank passes its status and, if it failed, the text in `err`. If all ranks pass MICS_OK, all
 * return MICS_OK. Otherwise all ranks return the status and the text of the lowest rank that
 * failed, with "rank R: " before the text unless R is 0 or all ranks failed with the same status.
 * Collective over `comm`; blocks. If the exchange itself fails, its error is returned. */
enum mics_status mics_agree(struct mics_comm *comm, enum mics_status mine, struct mics_err *err);

/* The `bytes` of every rank, in the order of ranks, in new memory: the caller's. NULL if *status is
 * not MICS_OK. Collective over `comm`, on the host; blocks. */
void *mics_all_gather(struct mics_comm *comm, const void *own, size_t bytes,
                      enum mics_status *status, struct mics_err *err);

#endif
