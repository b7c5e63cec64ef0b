/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory is an unnamed file of the node's first rank, which the others open by its number in /proc: nothing is
 * left of it when they end, however they end.
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
    atomic_uint_fast64_t word;
    atomic_bool excused;
};

struct card {
    int64_t pid, file; /* file: of the first rank; then, of each: was the table opened? */
};

struct mics_board {
    int rank, size;
    struct slot *slots; /* [size], shared */
    struct card *cards; /* [size] */
};

static int make_file(size_t bytes)
{
    const int file = memfd_create("mics-board", MFD_CLOEXEC);

    if (file >= 0 && ftruncate(file, (off_t)bytes) != 0) {
        close(file);
        return -1;
    }
    return file;
}

static struct slot *map_file(int64_t pid, int64_t file, size_t bytes)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)file);
    const int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0)
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    close(opened);
    return memory == MAP_FAILED ? NULL : memory;
}

/* All ranks exchange their numbers, map the first one's file, and exchange whether they could. */
static enum mics_status share(struct mics_board *board, struct mics_comm *node, bool *all,
                              struct mics_err *err)
{
    const size_t bytes = (size_t)board->size * sizeof *board->slots;
    const int file = board->rank == 0 ? make_file(bytes) : -1;
    struct card own = {.pid = getpid(), .file = file};
    enum mics_status status = node->ops->all_gather_now(node, &own, board->cards, sizeof own, err);

    if (status == MICS_OK && board->cards[0].file >= 0)
        board->slots = map_file(board->cards[0].pid, board->cards[0].file, bytes);
    own.file = board->slots != NULL;
    if (status == MICS_OK)
        status = node->ops->all_gather_now(node, &own, board->cards, sizeof own, err);
    if (file >= 0)
        close(file);
    *all = true;
    for (int i = 0; i < board->size; i++)
        *all = *all && board->cards[i].file == 1;
    return status;
}

enum mics_status mics_board_open(struct mics_comm *node, struct mics_board **out,
                                 struct mics_err *err)
{
    struct mics_board *board;
    enum mics_status status;
    bool all = false;

    *out = NULL;
    if (node->size == 1)
        return MICS_OK;
    board = calloc(1, sizeof *board);
    if (!board)
        return mics_err_nomem(err);
    board->rank = node->rank;
    board->size = node->size;
    board->cards = calloc((size_t)node->size, sizeof *board->cards);
    status = board->cards ? share(board, node, &all, err) : mics_err_nomem(err);
    if (status == MICS_OK && all)
        *out = board;
    else
        mics_board_close(board);
    return status;
}

void mics_board_close(struct mics_board *board)
{
    if (!board)
        return;
    if (board->slots)
        munmap(board->slots, (size_t)board->size * sizeof *board->slots);
    free(board->cards);
    free(board);
}

void mics_board_write(struct mics_board *board, uint64_t word)
{
    atomic_store(&board->slots[board->rank].word, word);
}

uint64_t mics_board_read(const struct mics_board *board, int rank)
{
    return atomic_load(&board->slots[rank].word);
}

void mics_board_excuse(struct mics_board *board)
{
    atomic_store(&board->slots[board->rank].excused, true);
}

int mics_board_missing(const struct mics_board *board, int *speaker)
{
    int missing = -1;

    *speaker = -1;
    for (int i = board->size - 1; i >= 0; i--) {
        if (kill((pid_t)board->cards[i].pid, 0) == 0 || errno != ESRCH)
            *speaker = i;
        else if (!atomic_load(&board->slots[i].excused))
            missing = i;
    }
    return missing;
}
