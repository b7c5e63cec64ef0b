/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/search_queue.h"

#include <math.h>
#include <stdlib.h>

void mics_search_queue_fini(struct mics_search_queue *queue)
{
    free(queue->nodes);
}

static int compare_simplicity(const struct mics_search_node *a, const struct mics_search_node *b)
{
    const int64_t keys[][2] = {
        {!a->is_plan_option, !b->is_plan_option},
        {a->alternative, b->alternative},
        {a->level, b->level},
        {-(int64_t)a->micro_batch, -(int64_t)b->micro_batch},
        {a->option, b->option},
        {a->prefetch == 0 ? UINT32_MAX : a->prefetch, b->prefetch == 0 ? UINT32_MAX : b->prefetch},
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static float rounded(double bound)
{
    return (float)floor(log(bound) * 1000);
}

static bool precedes(const struct mics_search_node *a, const struct mics_search_node *b)
{
    const float x = rounded(a->bound), y = rounded(b->bound);

    return x != y ? x < y : compare_simplicity(a, b) < 0;
}

enum mics_status mics_search_push(struct mics_search_queue *queue,
                                  const struct mics_search_node *node, struct mics_err *err)
{
    size_t i = queue->count++;

    if (i == queue->capacity) {
        const size_t capacity = queue->capacity ? 2 * queue->capacity : 4096;
        struct mics_search_node *nodes = realloc(queue->nodes, capacity * sizeof *nodes);

        if (!nodes)
            return mics_err_nomem(err);
        queue->nodes = nodes;
        queue->capacity = capacity;
    }
    for (; i > 0 && precedes(node, &queue->nodes[(i - 1) / 2]); i = (i - 1) / 2)
        queue->nodes[i] = queue->nodes[(i - 1) / 2];
    queue->nodes[i] = *node;
    return MICS_OK;
}

struct mics_search_node mics_search_pop(struct mics_search_queue *queue)
{
    const struct mics_search_node first = queue->nodes[0], last = queue->nodes[--queue->count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= queue->count)
            break;
        if (child + 1 < queue->count && precedes(&queue->nodes[child + 1], &queue->nodes[child]))
            child++;
        if (!precedes(&queue->nodes[child], &last))
            break;
        queue->nodes[i] = queue->nodes[child];
        i = child;
    }
    if (queue->count > 0)
        queue->nodes[i] = last;
    return first;
}
