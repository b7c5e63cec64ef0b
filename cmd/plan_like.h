/* SPDX-License-Identifier: Apache-2.0 */
/* plan_like.h - what a plan was made of, to plan the same training for more or fewer nodes. */
#ifndef MICS_CMD_PLAN_LIKE_H
#define MICS_CMD_PLAN_LIKE_H

#include "plan/search/search.h"

/* Read the plan in the file `path`. Sets the global batch, the sequence length, the optimizer, the
 * types, clipping and the memory limit in `options`, for a plan that can continue its training, and
 * how often its state is kept in memory, unless that is set (0: it is not).
 * *topology is its cluster with `nodes` nodes (0: as many), *model its model; both belong to the
 * caller. */
enum mics_status plan_open_like(const char *path, uint32_t nodes,
                                struct mics_search_options *options, uint64_t *memory_every,
                                uint64_t *memory_copies, struct mics_topology **topology,
                                struct mics_model **model, struct mics_err *err);

#endif
