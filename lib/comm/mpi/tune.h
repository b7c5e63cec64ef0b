/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.h - up to which size the short routes are taken instead of the ring.
 *
 * A ring moves the fewest bytes over a network but needs as many hops as ranks. What is short goes in fewer
 * hops: an all-gather in log2 m rounds, a reduce-scatter in one. The routes send the same bytes and add
 * in the same order, so results and counts do not tell which one was taken; only the time does, and it is measured when
 * a communicator over MPI is made. Other backends have one route.
 */
#ifndef MICS_COMM_MPI_TUNE_H
#define MICS_COMM_MPI_TUNE_H

#include "comm/comm.h"

/* Pieces (one rank's block) of up to so many bytes go the short way; 0: none do. The same on all ranks. An
 * all_reduce whose count the ranks divide goes as both of its halves can. */
struct mics_comm_tuned {
    uint64_t gather_bytes, reduce_bytes;
};

/* What was measured; nothing for another backend than MPI. */
struct mics_comm_tuned mics_comm_get_tuned(const struct mics_comm *comm);

/* For tests and comparisons: all ranks the same, while nothing is under way. Longer than the staging memory holds
 * is cut down to that. Another backend than MPI ignores it. */
void mics_comm_set_tuned(struct mics_comm *comm, struct mics_comm_tuned tuned);

#endif
