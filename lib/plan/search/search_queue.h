/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search_queue.h - the queue of the search, in the order of lower bounds.
 *
 * Bounds that differ by less than a thousandth are equal: then plan options come before cells, and
 * simple ones before others.
 */
#ifndef MICS_PLAN_SEARCH_SEARCH_QUEUE_H
#define MICS_PLAN_SEARCH_SEARCH_QUEUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A cell, or a plan option of one. */
struct mics_search_node {
    float bound; /* seconds */
    uint32_t alternative;
    uint32_t prefetch;
    uint16_t micro_batch;
    uint8_t option, level;
    bool is_plan_option;
};

/* Empty if all is 0. */
struct mics_search_queue {
    struct mics_search_node *nodes; /* a binary heap */
    size_t count, capacity;
};

enum mics_status mics_search_push(struct mics_search_queue *queue,
                                  const struct mics_search_node *node, struct mics_err *err);

/* Take the first node of a queue that has one. */
struct mics_search_node mics_search_pop(struct mics_search_queue *queue);

void mics_search_queue_fini(struct mics_search_queue *queue);

#endif
