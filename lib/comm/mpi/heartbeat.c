/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heartbeat.c - status words of ranks.
 *
 * Once a second each rank sends its word to two receivers: the first and the last rank of the
 * launch, which are on different nodes if there are several. The driver sends them, so
 * they continue while collectives hang, and they end when a process is stopped or its node is
 * disconnected. The sends are synchronous: one that does not complete shows the sender that its
 * receiver is gone.
 */
#include "comm/mpi/mpi.h"

#include "base/clock.h"

#include <stdlib.h>

enum { HEARTBEAT_TAG = 0 }; /* communicators have tags from 1 on */

static const double period_s = 1, poll_s = 0.25;

static int receiver(const struct mpi_thread *thread, int which)
{
    return which == 0 ? 0 : thread->world_size - 1;
}

enum mics_status mics_mpi_heartbeat_init(struct mpi_thread *thread)
{
    struct mpi_heartbeat *heartbeat = &thread->heartbeat;

    heartbeat->sends[0] = heartbeat->sends[1] = MPI_REQUEST_NULL;
    if (thread->world_rank != receiver(thread, 0) && thread->world_rank != receiver(thread, 1))
        return MICS_OK;
    heartbeat->received = calloc((size_t)thread->world_size, sizeof *heartbeat->received);
    return heartbeat->received ? MICS_OK : mics_err_nomem(&thread->start_err);
}

/* Messages that were not received yet are left to MPI. */
void mics_mpi_heartbeat_fini(struct mpi_thread *thread)
{
    for (int i = 0; i < 2; i++)
        if (thread->heartbeat.sends[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&thread->heartbeat.sends[i]);
}

static void send_words(struct mpi_thread *thread, double now)
{
    struct mpi_heartbeat *heartbeat = &thread->heartbeat;

    for (int i = 0; i < 2; i++) {
        const int to = receiver(thread, i);
        int done = 1;

        if (heartbeat->sends[i] != MPI_REQUEST_NULL)
            MPI_Test(&heartbeat->sends[i], &done, MPI_STATUS_IGNORE);
        if (done)
            atomic_store(&heartbeat->pending_since_us[i], 0);
        if (!done || to == thread->world_rank || now < heartbeat->next_s[i])
            continue;
        heartbeat->next_s[i] = now + period_s;
        heartbeat->words[i] = atomic_load(&heartbeat->word);
        atomic_store(&heartbeat->pending_since_us[i], (uint64_t)(now * 1e6));
        MPI_Issend(&heartbeat->words[i], sizeof heartbeat->words[i], MPI_BYTE, to, HEARTBEAT_TAG,
                   thread->world, &heartbeat->sends[i]);
    }
}

static void receive_words(struct mpi_thread *thread, double now)
{
    MPI_Status from;
    uint64_t word;
    int found = 0;

    while (MPI_Iprobe(MPI_ANY_SOURCE, HEARTBEAT_TAG, thread->world, &found, &from) == MPI_SUCCESS &&
           found) {
        if (MPI_Recv(&word, sizeof word, MPI_BYTE, from.MPI_SOURCE, HEARTBEAT_TAG, thread->world,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        atomic_store(&thread->heartbeat.received[from.MPI_SOURCE].word, word);
        atomic_store(&thread->heartbeat.received[from.MPI_SOURCE].at_us, (uint64_t)(now * 1e6));
    }
}

void mics_mpi_heartbeat_progress(struct mpi_thread *thread)
{
    struct mpi_heartbeat *heartbeat = &thread->heartbeat;
    const double now = mics_now_s();

    if (now < heartbeat->next_poll_s)
        return;
    heartbeat->next_poll_s = now + poll_s;
    if (atomic_load(&heartbeat->is_set))
        send_words(thread, now);
    if (heartbeat->received)
        receive_words(thread, now);
}

static void heartbeat_set(struct mics_comm *comm, uint64_t word)
{
    struct mpi_heartbeat *heartbeat = &((struct mpi_comm *)comm)->thread->heartbeat;

    atomic_store(&heartbeat->word, word);
    atomic_store(&heartbeat->is_set, true);
}

static double heartbeat_age_s(struct mics_comm *comm, int rank, uint64_t *word)
{
    const struct mpi_comm *own = (struct mpi_comm *)comm;
    const struct mpi_heartbeat *heartbeat = &own->thread->heartbeat;
    const int world_rank = own->ranks[rank];

    if (!heartbeat->received)
        return -1;
    if (world_rank == own->thread->world_rank) {
        *word = atomic_load(&heartbeat->word);
        return 0;
    }
    const uint64_t at_us = atomic_load(&heartbeat->received[world_rank].at_us);

    if (at_us == 0)
        return -1;
    *word = atomic_load(&heartbeat->received[world_rank].word);
    return mics_now_s() - (double)at_us * 1e-6;
}

static double heartbeat_unreceived_s(struct mics_comm *comm, bool last)
{
    const struct mpi_heartbeat *heartbeat = &((struct mpi_comm *)comm)->thread->heartbeat;
    const uint64_t since_us = atomic_load(&heartbeat->pending_since_us[last]);

    return since_us == 0 ? 0 : mics_now_s() - (double)since_us * 1e-6;
}

const struct mics_comm_heartbeat_ops mics_mpi_heartbeat_ops = {
    .set = heartbeat_set, .age_s = heartbeat_age_s, .unreceived_s = heartbeat_unreceived_s};
