/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life. Once a second each rank sends a word about itself to two ranks, the first and the last of the
 * launch, which are on different nodes wherever there are several. The thread of MPI sends them, so they go on while
 * collectives hang, and they stop when a process is stopped or its node is cut off.
 */
#include "comm/mpi/mpi.h"

#if MICS_HAVE_MPI

#include "base/clock.h"

#include <stdlib.h>

enum { PULSE_TAG = 0 }; /* communicators have tags from 1 on */

static const double period_s = 1;

static int listener(const struct mpi_engine *engine, int which)
{
    return which == 0 ? 0 : engine->world_size - 1;
}

static bool listens(const struct mpi_engine *engine)
{
    return engine->world_rank == listener(engine, 0) || engine->world_rank == listener(engine, 1);
}

enum mics_status mics_mpi_pulse_init(struct mpi_engine *engine)
{
    struct mpi_pulse *pulse = &engine->pulse;

    pulse->sends[0] = pulse->sends[1] = MPI_REQUEST_NULL;
    if (!listens(engine))
        return MICS_OK;
    pulse->heard = calloc((size_t)engine->world_size, sizeof *pulse->heard);
    return pulse->heard ? MICS_OK : mics_err_nomem(&engine->start_err);
}

/* A message that was not taken yet is the listener's trouble. */
void mics_mpi_pulse_fini(struct mpi_engine *engine)
{
    for (int i = 0; i < 2; i++)
        if (engine->pulse.sends[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&engine->pulse.sends[i]);
}

static void send_word(struct mpi_engine *engine)
{
    struct mpi_pulse *pulse = &engine->pulse;

    for (int i = 0; i < 2; i++) {
        const int to = listener(engine, i);
        int done = 1;

        if (pulse->sends[i] != MPI_REQUEST_NULL)
            MPI_Test(&pulse->sends[i], &done, MPI_STATUS_IGNORE);
        if (!done || to == engine->world_rank)
            continue;
        pulse->words[i] = atomic_load(&pulse->word);
        MPI_Isend(&pulse->words[i], sizeof pulse->words[i], MPI_BYTE, to, PULSE_TAG, engine->world,
                  &pulse->sends[i]);
    }
}

static void hear(struct mpi_engine *engine, double now)
{
    MPI_Status from;
    uint64_t word;
    int found = 0;

    while (MPI_Iprobe(MPI_ANY_SOURCE, PULSE_TAG, engine->world, &found, &from) == MPI_SUCCESS &&
           found) {
        if (MPI_Recv(&word, sizeof word, MPI_BYTE, from.MPI_SOURCE, PULSE_TAG, engine->world,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        atomic_store(&engine->pulse.heard[from.MPI_SOURCE].word, word);
        atomic_store(&engine->pulse.heard[from.MPI_SOURCE].at_us, (uint64_t)(now * 1e6));
    }
}

void mics_mpi_pulse_beat(struct mpi_engine *engine)
{
    struct mpi_pulse *pulse = &engine->pulse;
    const double now = mics_now_s();

    if (now < pulse->next_s)
        return;
    pulse->next_s = now + period_s;
    if (atomic_load(&pulse->told))
        send_word(engine);
    if (pulse->heard)
        hear(engine, now);
}

void mics_mpi_tell(struct mics_comm *comm, uint64_t word)
{
    struct mpi_pulse *pulse = &((struct mpi_comm *)comm)->engine->pulse;

    atomic_store(&pulse->word, word);
    atomic_store(&pulse->told, true);
}

double mics_mpi_heard(struct mics_comm *comm, int rank, uint64_t *word)
{
    const struct mpi_comm *own = (struct mpi_comm *)comm;
    const struct mpi_pulse *pulse = &own->engine->pulse;
    const int launch_rank = own->ranks[rank];

    if (!pulse->heard)
        return -1;
    if (launch_rank == own->engine->world_rank) {
        *word = atomic_load(&pulse->word);
        return 0;
    }
    const uint64_t at_us = atomic_load(&pulse->heard[launch_rank].at_us);

    if (at_us == 0)
        return -1;
    *word = atomic_load(&pulse->heard[launch_rank].word);
    return mics_now_s() - (double)at_us * 1e-6;
}

#endif
