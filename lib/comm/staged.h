/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged.h - collectives on the memory of any device.
 *
 * The backends of the host (self, threads, mpi) access memory directly. A device with memory of its
 * own either has communicators of its own (NCCL) or uses a host backend through staging memory:
 * chunks of the data are copied to host memory, exchanged there and copied back, in the order of
 * the stream.
 */
#ifndef MICS_COMM_STAGED_H
#define MICS_COMM_STAGED_H

#include "comm/comm.h"

/* Staging memory of one communicator of more than one rank, or 64 bytes per rank if that is more.
 * Pinned host memory: it takes none of the GPU memory that a plan accounts for. */
#define MICS_COMM_STAGED_BYTES (4u << 20)

/* The ranks of `control` in the same order, with collectives on memory of `device`: the device's
 * own if it has them, else through staging memory unless the device's memory is the host's.
 * MICS_COMM=staged in the environment always selects staging memory, for tests and to run without
 * NCCL. Collective over `control`, whose blocks must equal its ranks and which must outlive *out.
 * MICS_ERR_ARG: MICS_COMM has another value; MICS_ERR_COMM, MICS_ERR_DEVICE: from the device. */
enum mics_status mics_comm_new_for_device(struct mics_comm *control, struct mics_device *device,
                                          struct mics_comm **out, struct mics_err *err);

/* The backend "staged" over a communicator of the host, of which it takes ownership, also on
 * failure. Its splits are staged as well. An all_reduce that is longer than the staging memory sums
 * in another order than the host's communicator would. */
enum mics_status mics_comm_new_staged(struct mics_comm *host, struct mics_device *device,
                                      struct mics_comm **out, struct mics_err *err);

#endif
