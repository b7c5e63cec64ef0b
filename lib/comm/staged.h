/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged.h - collectives on the memory of any device.
 *
 * Communicators of the host (self, threads, mpi) touch the memory that they are given. For a device with memory
 * of its own there are the device's communicators (NCCL), or the host's with a detour: pieces of the
 * data are copied to staging memory, exchanged there and copied back, all in the order of the stream.
 */
#ifndef MICS_COMM_STAGED_H
#define MICS_COMM_STAGED_H

#include "comm/comm.h"

/* Staging of one communicator of more than one rank: this, or 64 bytes for each rank if that is more. Pinned memory
 * of the host, so it takes nothing of the GPU memory that a plan is about. */
#define MICS_COMM_DETOUR_BYTES (4u << 20)

/* The ranks of `control` in the same order, with collectives for memory of `device`: of its own if it has them,
 * else through the host unless its memory is the host's. MICS_COMM=staged in the environment chooses the detour, for
 * tests and to go without NCCL. Collective over `control`, of which every rank's block is its rank, and which is
 * freed after *out. MICS_ERR_ARG: MICS_COMM is something else; MICS_ERR_COMM, MICS_ERR_DEVICE: as the device says. */
enum mics_status mics_comm_new_for_device(struct mics_comm *control, struct mics_device *device,
                                          struct mics_comm **out, struct mics_err *err);

/* The detour itself (comm_staged.c), over a communicator of the host, which it takes, also on failure. Its splits are
 * of the same kind. An all_reduce of more than the staging memory adds up in another order than one
 * without a detour. */
enum mics_status mics_comm_new_staged(struct mics_comm *host, struct mics_device *device,
                                      struct mics_comm **out, struct mics_err *err);

#endif
