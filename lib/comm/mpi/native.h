/* SPDX-License-Identifier: Apache-2.0 */
/* native.h - MPI's own collectives behind the table of comm.h, to compare ours with. */
#ifndef MICS_COMM_MPI_NATIVE_H
#define MICS_COMM_MPI_NATIVE_H

#include "comm/comm.h"

#include <stdbool.h>

/* Is `comm` of the backend "mpi", of more than one rank, and in block order? */
bool mics_comm_has_native(const struct mics_comm *comm);

/* The same ranks with MPI_Allgather, MPI_Reduce_scatter_block, MPI_Allreduce, MPI_Bcast and
 * MPI_Barrier. These block the progress thread, so nothing else of this rank may be in progress.
 * Bytes are not counted, the communicator cannot be split, and messages of more than INT_MAX
 * elements per rank fail. Collective over `comm`; the caller frees *out, collectively, before
 * `comm`. MICS_ERR_UNSUPPORTED: mics_comm_has_native() is false. */
enum mics_status mics_comm_new_native(struct mics_comm *comm, struct mics_comm **out,
                                      struct mics_err *err);

#endif
