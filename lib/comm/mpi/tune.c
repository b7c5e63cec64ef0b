/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c - up to which piece size the direct algorithm replaces the ring.
 *
 * A ring needs as many hops as ranks; direct needs one for a reduction and log2 m for a gather.
 * Both send the same bytes and sum in the same order, so the choice changes only the time. It is
 * measured when a communicator is created: from short pieces to long ones, each four times as long,
 * both are timed in turn until the ring wins. All ranks use the times of the slowest rank, and so
 * choose alike.
 */
#include "comm/mpi/mpi.h"

#include "base/clock.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, FIRST_BYTES = 512, GROWTH = 4 };
/* Time of direct over that of the ring: below `faster` direct is used, above `slower` tuning
 * ends. */
static const double faster = 0.95, slower = 1.05;

static uint64_t longest_piece(const struct mpi_comm *comm)
{
    return COMM_MPI_STAGING / (uint64_t)comm->base.comm.size / sizeof(double) * sizeof(double);
}

/* The minimum over several rounds on this rank: times_s[0] of the ring, [1] of direct. */
static enum mics_status time_algorithms(struct mpi_comm *comm, const struct comm_call *call,
                                        uint64_t *limit, double times_s[2], struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    struct comm_sent sent = {0};

    times_s[0] = times_s[1] = HUGE_VAL;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        *limit = i % 2 ? call->bytes : 0;
        enum mics_status status = mics_comm_barrier_now(base, err);
        const double start_s = mics_now_s();
        if (status == MICS_OK)
            status = comm->base.backend->execute(&comm->base, call, 1, &sent, err);
        if (status != MICS_OK)
            return status;
        times_s[i % 2] = fmin(times_s[i % 2], mics_now_s() - start_s);
    }
    return MICS_OK;
}

/* *ratio = time of direct over that of the ring, each on its slowest rank. `all`: [2 * size]. */
static enum mics_status compare(struct mpi_comm *comm, const struct comm_call *call,
                                uint64_t *limit, double *all, double *ratio, struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    double times_s[2], slowest_s[2] = {0};
    enum mics_status status = time_algorithms(comm, call, limit, times_s, err);

    if (status == MICS_OK)
        status = mics_comm_all_gather_now(base, times_s, all, sizeof times_s, err);
    for (int i = 0; i < 2 * base->size && status == MICS_OK; i++)
        slowest_s[i % 2] = fmax(slowest_s[i % 2], all[i]);
    *ratio = slowest_s[1] / slowest_s[0];
    return status;
}

/* Set *limit to the longest piece for which direct is faster. `memory`: `size` longest pieces. */
static enum mics_status tune_kind(struct mpi_comm *comm, enum comm_call_kind kind, char *memory,
                                  double *all, uint64_t *limit, struct mics_err *err)
{
    struct comm_call call = {.kind = kind, .dtype = MICS_F32, .send = memory, .recv = memory};
    enum mics_status status = MICS_OK;
    const int size = comm->base.comm.size;
    double ratio = 0;
    uint64_t best = 0;

    uint64_t bytes = FIRST_BYTES;

    while (bytes <= mics_comm_short_bytes(size) / (uint64_t)size)
        bytes *= GROWTH;
    for (; bytes <= longest_piece(comm) && ratio < slower; bytes *= GROWTH) {
        call.bytes = bytes;
        call.count = bytes / sizeof(float);
        char *own = memory + (uint64_t)comm->base.comm.block * bytes;
        *(kind == COMM_ALL_GATHER ? &call.send : &call.recv) = own;
        status = compare(comm, &call, limit, all, &ratio, err);
        if (status != MICS_OK)
            break;
        if (ratio < faster)
            best = bytes;
    }
    *limit = best;
    return status;
}

enum mics_status mics_mpi_tune(struct mpi_comm *comm, struct mics_err *err)
{
    const size_t size = (size_t)comm->base.comm.size;
    if (size <= 2)
        return MICS_OK; /* both take one hop */

    char *memory = calloc(size, longest_piece(comm));
    double *all = calloc(2 * size, sizeof *all);
    enum mics_status status = memory && all ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = tune_kind(comm, COMM_ALL_GATHER, memory, all, &comm->direct.gather_bytes, err);
    if (status == MICS_OK)
        status = tune_kind(comm, COMM_REDUCE_SCATTER, memory, all, &comm->direct.reduce_bytes, err);
    free(memory);
    free(all);
    return status;
}

static bool is_mpi(const struct mics_comm *comm)
{
    return strcmp(comm->backend, "mpi") == 0 && comm->size > 1;
}

struct mpi_direct_limits mics_mpi_direct_limits(const struct mics_comm *comm)
{
    if (!is_mpi(comm))
        return (struct mpi_direct_limits){0, 0};
    return ((const struct mpi_comm *)comm)->direct;
}

void mics_mpi_set_direct_limits(struct mics_comm *base, struct mpi_direct_limits limits)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;

    if (!is_mpi(base))
        return;
    comm->direct.gather_bytes = mics_min_u64(limits.gather_bytes, longest_piece(comm));
    comm->direct.reduce_bytes = mics_min_u64(limits.reduce_bytes, longest_piece(comm));
}
