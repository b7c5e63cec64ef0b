/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/unequal_nodes.h"

#include "comm/agree.h"
#include "measure/statistics.h"

#include <stdlib.h>
#include <string.h>

/* Memory counts as equal within this share: the kernel and the driver keep a little more on one
 * node than on another. */
static const double memory_tolerance = 1.0 / 16;

/* figures[size] of the ranks become figures[node_count] of the nodes. */
static enum mics_status reduce_to_nodes(const struct mics_world *world,
                                        struct mics_rank_figures *figures, struct mics_err *err)
{
    const uint32_t k = world->local_size;
    double *scratch = malloc(k * sizeof *scratch);

    if (!scratch)
        return mics_err_nomem(err);
    for (uint32_t node = 0; node < world->node_count; node++) {
        struct mics_rank_figures of_node = figures[node * k];

        for (uint32_t i = 0; i < k; i++) {
            const uint64_t bytes = figures[node * k + i].memory_bytes;

            of_node.memory_bytes = bytes < of_node.memory_bytes ? bytes : of_node.memory_bytes;
            scratch[i] = figures[node * k + i].flops;
        }
        of_node.flops = mics_median(scratch, k);
        for (uint32_t i = 0; i < k; i++)
            scratch[i] = figures[node * k + i].memory_bandwidth;
        of_node.memory_bandwidth = mics_median(scratch, k);
        figures[node] = of_node;
    }
    free(scratch);
    return MICS_OK;
}

static bool is_alike(const struct mics_rank_figures *a, const struct mics_rank_figures *b)
{
    const double more = (double)(a->memory_bytes > b->memory_bytes ? a : b)->memory_bytes;
    const double less = (double)(a->memory_bytes > b->memory_bytes ? b : a)->memory_bytes;

    return strcmp(a->device, b->device) == 0 && more - less <= memory_tolerance * more;
}

/* The class of the nodes that are like `first`, which are marked; NULL: out of memory. */
static json_t *class_of(const struct mics_rank_figures *nodes, uint32_t count, uint32_t first,
                        bool *done, double *scratch)
{
    json_t *indices = json_array();
    uint64_t least = nodes[first].memory_bytes;
    uint32_t members = 0;
    double flops;

    for (uint32_t i = first; i < count; i++) {
        if (done[i] || !is_alike(&nodes[first], &nodes[i]))
            continue;
        done[i] = true;
        least = nodes[i].memory_bytes < least ? nodes[i].memory_bytes : least;
        if (json_array_append_new(indices, json_integer(i)) != 0) {
            json_decref(indices);
            return NULL;
        }
        scratch[members] = nodes[i].flops;
        scratch[count + members++] = nodes[i].memory_bandwidth;
    }
    flops = mics_median(scratch, members);
    return json_pack("{s:o, s:s, s:I, s:f, s:f}", "nodes", indices, "device", nodes[first].device,
                     "memory_bytes", (json_int_t)least, "flops_per_s", flops,
                     "memory_bandwidth_bytes_per_s", mics_median(scratch + count, members));
}

static enum mics_status add_classes(json_t *doc, const struct mics_rank_figures *nodes,
                                    uint32_t count, struct mics_err *err)
{
    json_t *classes = json_array();
    bool *done = calloc(count, sizeof *done);
    double *scratch = calloc(2 * (size_t)count, sizeof *scratch);
    bool failed = !classes || !done || !scratch;

    for (uint32_t i = 0; i < count && !failed; i++)
        if (!done[i])
            failed = json_array_append_new(classes, class_of(nodes, count, i, done, scratch)) != 0;
    if (!failed && json_array_size(classes) > 1)
        failed = json_object_set(doc, "node_classes", classes) != 0;
    json_decref(classes);
    free(done);
    free(scratch);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_node_classes_add(json_t *doc, const struct mics_world *world,
                                       const struct mics_rank_figures *own, struct mics_err *err)
{
    enum mics_status status;
    struct mics_rank_figures *all = mics_all_gather(world->comm, own, sizeof *own, &status, err);

    if (status == MICS_OK)
        status = reduce_to_nodes(world, all, err);
    if (status == MICS_OK)
        status = add_classes(doc, all, world->node_count, err);
    free(all);
    return status;
}

static int by_ranks(const void *left, const void *right)
{
    const struct mics_world_part *a = left, *b = right;

    if (a->ranks != b->ranks)
        return a->ranks > b->ranks ? -1 : 1;
    return a->per_node > b->per_node ? -1 : a->per_node < b->per_node;
}

enum mics_status mics_world_parts(const struct mics_world *world, struct mics_world_part **out,
                                  uint32_t *count, struct mics_err *err)
{
    struct mics_world_part *parts = calloc(world->node_count, sizeof *parts);
    uint32_t rank = 0;

    if (!parts)
        return mics_err_nomem(err);
    *count = 0;
    for (uint32_t node = 0; node < world->node_count; node++) {
        const uint32_t ranks = world->ranks_of_node[node];
        uint32_t p = 0;

        while (p < *count && parts[p].per_node != ranks)
            p++;
        if (p == *count)
            parts[(*count)++] = (struct mics_world_part){.per_node = ranks, .first_rank = rank};
        parts[p].ranks += ranks;
        parts[p].nodes++;
        rank += ranks;
    }
    qsort(parts, *count, sizeof *parts, by_ranks);
    *out = parts;
    return MICS_OK;
}

enum mics_status mics_world_open_part(struct mics_world *world, struct mics_world **out,
                                      struct mics_err *err)
{
    const uint32_t per_node = world->ranks_of_node[world->node];
    uint32_t block = world->local_rank;
    struct mics_comm *comm = NULL;
    enum mics_status status;

    for (uint32_t node = 0; node < world->node; node++)
        block += world->ranks_of_node[node] == per_node ? per_node : 0;
    status = mics_comm_split(world->comm, (int)per_node, (int)world->rank, (int)block, &comm, err);
    return status == MICS_OK ? mics_world_open_over(comm, 0, out, err) : status;
}

enum mics_status mics_share_document(struct mics_comm *comm, uint32_t root, json_t **doc,
                                     struct mics_err *err)
{
    const bool is_root = (uint32_t)comm->rank == root;
    char *text = is_root ? json_dumps(*doc, JSON_REAL_PRECISION(17)) : NULL;
    uint64_t size = text ? strlen(text) : 0;
    enum mics_status status = mics_comm_broadcast_now(comm, &size, sizeof size, (int)root, err);

    if (status == MICS_OK && size == 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK && !is_root && !(text = malloc(size)))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_comm_broadcast_now(comm, text, size, (int)root, err);
    if (status == MICS_OK && !is_root) {
        json_decref(*doc);
        *doc = json_loadb(text, size, 0, NULL);
        status = *doc ? MICS_OK : mics_err_nomem(err);
    }
    free(text);
    return status;
}
