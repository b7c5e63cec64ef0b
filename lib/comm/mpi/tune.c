/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the shortest pieces upwards, each four times as long, both routes are timed in turn until the ring wins. All
 * ranks look at the same numbers, the times of the slowest rank, and so come to the same end.
 */
#include "comm/mpi/mpi.h"


#include <string.h>

#if MICS_HAVE_MPI

#include "base/clock.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 5, FIRST_BYTES = 512, GROWTH = 4 };
static const double worth = 0.95, worse = 1.05; /* of the ring's time; between them it is a draw */

static uint64_t longest_piece(const struct mpi_comm *comm)
{
    return COMM_MPI_STAGING / (uint64_t)comm->base.comm.size / sizeof(double) * sizeof(double);
}

/* The fastest of a few rounds on this rank: times_s[0] by ring, [1] the short way. */
static enum mics_status time_routes(struct mpi_comm *comm, const struct comm_call *call,
                                    uint64_t *limit, double times_s[2], struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    struct comm_sent sent;

    times_s[0] = times_s[1] = HUGE_VAL;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        *limit = i % 2 ? call->bytes : 0;
        enum mics_status status = base->ops->barrier_now(base, err);
        const double start_s = mics_now_s();
        if (status == MICS_OK)
            status = comm->base.execute(&comm->base, call, &sent, err);
        if (status != MICS_OK)
            return status;
        times_s[i % 2] = fmin(times_s[i % 2], mics_now_s() - start_s);
    }
    return MICS_OK;
}

/* *ratio = time of the short way over that of the ring, each on its slowest rank. `all` [2 * size]. */
static enum mics_status compare(struct mpi_comm *comm, const struct comm_call *call,
                                uint64_t *limit, double *all, double *ratio, struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    double times_s[2], slowest_s[2] = {0};
    enum mics_status status = time_routes(comm, call, limit, times_s, err);

    if (status == MICS_OK)
        status = base->ops->all_gather_now(base, times_s, all, sizeof times_s, err);
    for (int i = 0; i < 2 * base->size && status == MICS_OK; i++)
        slowest_s[i % 2] = fmax(slowest_s[i % 2], all[i]);
    *ratio = slowest_s[1] / slowest_s[0];
    return status;
}

/* Find the longest piece that is worth the short way. `memory`: of a longest piece from each rank. */
static enum mics_status tune(struct mpi_comm *comm, enum comm_kind kind, char *memory, double *all,
                             uint64_t *limit, struct mics_err *err)
{
    struct comm_call call = {.kind = kind, .dtype = MICS_F32, .send = memory, .recv = memory};
    enum mics_status status = MICS_OK;
    double ratio = 0;
    uint64_t best = 0;

    for (uint64_t bytes = FIRST_BYTES; bytes <= longest_piece(comm) && ratio < worse;
         bytes *= GROWTH) {
        call.bytes = bytes;
        call.count = bytes / sizeof(float);
        char *own = memory + (uint64_t)comm->base.comm.block * bytes;
        *(kind == COMM_ALL_GATHER ? &call.send : &call.recv) = own;
        status = compare(comm, &call, limit, all, &ratio, err);
        if (status != MICS_OK)
            break;
        if (ratio < worth)
            best = bytes;
    }
    *limit = best;
    return status;
}

enum mics_status mics_mpi_tune(struct mpi_comm *comm, struct mics_err *err)
{
    const size_t size = (size_t)comm->base.comm.size;
    if (size <= 2)
        return MICS_OK; /* one hop either way */

    char *memory = calloc(size, longest_piece(comm));
    double *all = calloc(2 * size, sizeof *all);
    enum mics_status status = memory && all ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = tune(comm, COMM_ALL_GATHER, memory, all, &comm->tuned.gather_bytes, err);
    if (status == MICS_OK)
        status = tune(comm, COMM_REDUCE_SCATTER, memory, all, &comm->tuned.reduce_bytes, err);
    free(memory);
    free(all);
    return status;
}

static bool is_ours(const struct mics_comm *comm)
{
    return strcmp(comm->backend, "mpi") == 0 && comm->size > 1;
}

struct mics_comm_tuned mics_comm_get_tuned(const struct mics_comm *comm)
{
    if (!is_ours(comm))
        return (struct mics_comm_tuned){0, 0};
    return ((const struct mpi_comm *)comm)->tuned;
}

void mics_comm_set_tuned(struct mics_comm *base, struct mics_comm_tuned tuned)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;

    if (!is_ours(base))
        return;
    comm->tuned.gather_bytes = mics_min_u64(tuned.gather_bytes, longest_piece(comm));
    comm->tuned.reduce_bytes = mics_min_u64(tuned.reduce_bytes, longest_piece(comm));
}

#else

struct mics_comm_tuned mics_comm_get_tuned(const struct mics_comm *comm)
{
    (void)comm;
    return (struct mics_comm_tuned){0, 0};
}

void mics_comm_set_tuned(struct mics_comm *comm, struct mics_comm_tuned tuned)
{
    (void)comm, (void)tuned;
}

#endif
