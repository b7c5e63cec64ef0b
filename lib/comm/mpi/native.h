/* SPDX-License-Identifier: Apache-2.0 */
/* comm_native.h - MPI's own collectives behind the table, to compare ours with. */
#ifndef MICS_COMM_MPI_NATIVE_H
#define MICS_COMM_MPI_NATIVE_H

#include "comm/comm.h"

#include <stdbool.h>

/* Can the ranks of `comm` use MPI's own: is it of the backend "mpi", of more than one rank, in block order? */
bool mics_comm_has_native(const struct mics_comm *comm);

/* The same ranks with MPI_Allgather, MPI_Reduce_scatter_block, MPI_Allreduce, MPI_Bcast and MPI_Barrier in place
 * of ours; they block the thread of MPI, so nothing else of this rank may be under way. It counts no bytes, and
 * cannot be split. Messages of more than INT_MAX elements a rank fail. Collective over `comm`; *out is the
 * caller's and to be freed, collectively, before it. MICS_ERR_UNSUPPORTED: mics_comm_has_native() is false. */
enum mics_status mics_comm_new_native(struct mics_comm *comm, struct mics_comm **out,
                                      struct mics_err *err);

#endif
