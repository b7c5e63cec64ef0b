/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness_table.h - a table in memory that the ranks of a node share: the state of each rank, and
 * whether its process is alive.
 */
#ifndef MICS_TRAIN_WATCH_LIVENESS_TABLE_H
#define MICS_TRAIN_WATCH_LIVENESS_TABLE_H

#include "comm/comm.h"

#include <stdbool.h>

struct mics_liveness_table;

/* Collective over `node`, the communicator of the ranks of a node. *out becomes NULL on all of them
 * if there is only one rank or their processes cannot share memory. */
enum mics_status mics_liveness_table_open(struct mics_comm *node, struct mics_liveness_table **out,
                                          struct mics_err *err);
void mics_liveness_table_close(struct mics_liveness_table *table); /* NULL is fine */

/* The state is any 64-bit value; 0 before the first write. */
void mics_liveness_table_write(struct mics_liveness_table *table, uint64_t state);
uint64_t mics_liveness_table_read(const struct mics_liveness_table *table, int rank);
/* From now on this rank's process may exit without being reported as dead. */
void mics_liveness_table_expect_exit(struct mics_liveness_table *table);
/* The lowest rank whose process has exited unexpectedly, or -1; *first_alive: the lowest rank that
 * is alive. */
int mics_liveness_table_find_dead(const struct mics_liveness_table *table, int *first_alive);

#endif
