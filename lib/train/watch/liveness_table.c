/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness_table.c - shared memory without a name.
 *
 * The memory is a memfd of the node's first rank, which the others open through /proc/PID/fd.
 * Nothing is left of it when the processes exit, however they exit.
 */
#include "train/watch/liveness_table.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct slot {
    atomic_uint_fast64_t state;
    atomic_bool exit_expected;
};

/* What the ranks exchange when they open the table. */
struct peer {
    int64_t pid;
    int64_t
        value; /* first the file descriptor of rank 0's memory, then 1 if the memory was mapped */
};

struct mics_liveness_table {
    int rank, size;
    struct slot *slots; /* [size], shared */
    struct peer *peers; /* [size] */
};

static int create_memory(size_t bytes)
{
    const int fd = memfd_create("mics-liveness", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static struct slot *map_memory(int64_t pid, int64_t fd, size_t bytes)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)fd);
    const int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0)
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    close(opened);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Exchange process ids, map the memory of rank 0, and agree on whether every rank could:
 * *shared. */
static enum mics_status share_memory(struct mics_liveness_table *table, struct mics_comm *node,
                                     bool *shared, struct mics_err *err)
{
    const size_t bytes = (size_t)table->size * sizeof *table->slots;
    const int fd = table->rank == 0 ? create_memory(bytes) : -1;
    struct peer own = {.pid = getpid(), .value = fd};
    enum mics_status status = mics_comm_all_gather_now(node, &own, table->peers, sizeof own, err);

    if (status == MICS_OK && table->peers[0].value >= 0)
        table->slots = map_memory(table->peers[0].pid, table->peers[0].value, bytes);
    own.value = table->slots != NULL;
    if (status == MICS_OK)
        status = mics_comm_all_gather_now(node, &own, table->peers, sizeof own, err);
    if (fd >= 0)
        close(fd);
    *shared = true;
    for (int i = 0; i < table->size; i++)
        *shared = *shared && table->peers[i].value == 1;
    return status;
}

enum mics_status mics_liveness_table_open(struct mics_comm *node, struct mics_liveness_table **out,
                                          struct mics_err *err)
{
    struct mics_liveness_table *table;
    enum mics_status status;
    bool shared = false;

    *out = NULL;
    if (node->size == 1)
        return MICS_OK;
    table = calloc(1, sizeof *table);
    if (!table)
        return mics_err_nomem(err);
    table->rank = node->rank;
    table->size = node->size;
    table->peers = calloc((size_t)node->size, sizeof *table->peers);
    status = table->peers ? share_memory(table, node, &shared, err) : mics_err_nomem(err);
    if (status == MICS_OK && shared)
        *out = table;
    else
        mics_liveness_table_close(table);
    return status;
}

void mics_liveness_table_close(struct mics_liveness_table *table)
{
    if (!table)
        return;
    if (table->slots)
        munmap(table->slots, (size_t)table->size * sizeof *table->slots);
    free(table->peers);
    free(table);
}

void mics_liveness_table_write(struct mics_liveness_table *table, uint64_t state)
{
    atomic_store(&table->slots[table->rank].state, state);
}

uint64_t mics_liveness_table_read(const struct mics_liveness_table *table, int rank)
{
    return atomic_load(&table->slots[rank].state);
}

void mics_liveness_table_expect_exit(struct mics_liveness_table *table)
{
    atomic_store(&table->slots[table->rank].exit_expected, true);
}

int mics_liveness_table_find_dead(const struct mics_liveness_table *table, int *first_alive)
{
    int dead = -1;

    *first_alive = -1;
    for (int i = table->size - 1; i >= 0; i--) {
        if (kill((pid_t)table->peers[i].pid, 0) == 0 || errno != ESRCH)
            *first_alive = i;
        else if (!atomic_load(&table->slots[i].exit_expected))
            dead = i;
    }
    return dead;
}
