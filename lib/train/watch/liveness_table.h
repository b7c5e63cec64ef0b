/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness_table.h - a table in memory that the ranks of a node share: what each is at, and whether its process lives.
 */
#ifndef MICS_TRAIN_WATCH_LIVENESS_TABLE_H
#define MICS_TRAIN_WATCH_LIVENESS_TABLE_H

#include "comm/comm.h"

#include <stdbool.h>

struct mics_board;

/* Collective over `node`, the communicator of the ranks of a node. *out becomes NULL, on all of them, where their
 * processes cannot share memory or there is one rank only. */
enum mics_status mics_board_open(struct mics_comm *node, struct mics_board **out,
                                 struct mics_err *err);
void mics_board_close(struct mics_board *board); /* NULL is fine */

void mics_board_write(struct mics_board *board, uint64_t word);
uint64_t mics_board_read(const struct mics_board *board, int rank);
/* This rank's process may end without being missed. */
void mics_board_excuse(struct mics_board *board);
/* The lowest rank whose process is gone and was not excused, or -1; *speaker: the lowest that lives. */
int mics_board_missing(const struct mics_board *board, int *speaker);

#endif
