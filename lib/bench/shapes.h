/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes.h - the groups that a plan may form, and so a probe should measure.
 *
 * On N nodes of k ranks: parts of a node (1 x d), whole nodes (q x k), one rank of each of several
 * nodes (q x 1: the network stage of a hierarchy, and the second hop), and parts of all nodes
 * (N x d: the second hop of groups smaller than a node); d divides k, q divides N.
 */
#ifndef MICS_BENCH_SHAPES_H
#define MICS_BENCH_SHAPES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_group_shape {
    uint32_t nodes, per_node;
};

/* All of them, once each, of more than one rank. Smallest first. *out is the caller's, to free(). */
enum mics_status mics_shapes_list(uint32_t nodes, uint32_t per_node, struct mics_group_shape **out,
                                  uint32_t *count, struct mics_err *err);

#endif
