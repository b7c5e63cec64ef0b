/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - names, sizes, and what a plan or a topology adds to a request. */
#include "measure/request.h"
#include "base/num.h"
#include "doc/doc.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

static const char *const op_names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                       "sync"};
static const char *const algo_names[] = {"flat", "hierarchical", "mpi", "2-hop", "1-hop"};
static const char *const group_names[] = {"world", "node", "partition", "replication", "network"};

const char *mics_bench_op_name(enum mics_bench_op op)
{
    return op_names[op];
}

const char *mics_bench_algo_name(enum mics_bench_algo algo)
{
    return algo_names[algo];
}

const char *mics_bench_group_name(enum mics_bench_group group)
{
    return group_names[group];
}

const char *mics_bench_op_at(int index)
{
    return index < MICS_BENCH_OP_COUNT ? op_names[index] : NULL;
}

const char *mics_bench_algo_at(int index)
{
    return index < MICS_BENCH_ALGO_COUNT ? algo_names[index] : NULL;
}

const char *mics_bench_group_at(int index)
{
    return index < MICS_BENCH_GROUP_COUNT ? group_names[index] : NULL;
}

static void list_names(mics_bench_namer *name_at, char *text, size_t size)
{
    size_t used = 0;

    for (int i = 0; name_at(i) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", name_at(i));
}

enum mics_status mics_bench_parse_set(const char *text, mics_bench_namer *name_at, unsigned *set,
                                      struct mics_err *err)
{
    unsigned found = 0;
    char names[128] = "";

    for (const char *word = text;; word++) {
        const size_t length = strcspn(word, ",");
        int i = 0;

        while (name_at(i) &&
               (strlen(name_at(i)) != length || strncmp(name_at(i), word, length) != 0))
            i++;
        if (!name_at(i)) {
            list_names(name_at, names, sizeof names);
            return mics_err_set(err, MICS_ERR_ARG, "'%.*s': expected some of %s",
                                (int)mics_min_u64(length, 64), word, names);
        }
        found |= 1u << i;
        word += length;
        if (!*word)
            break;
    }
    *set = found;
    return MICS_OK;
}

uint64_t mics_bench_next_size(const struct mics_bench_request *request, uint64_t bytes)
{
    const double grown = (double)bytes * request->factor;
    uint64_t next;

    if (bytes >= request->max_bytes)
        return 0;
    if (request->factor > 1)
        next = grown < 1e18 ? mics_max_u64((uint64_t)grown, bytes + 1) : UINT64_MAX;
    else if (request->step_bytes == 0 || !mics_add_u64(bytes, request->step_bytes, &next))
        return 0;
    return next <= request->max_bytes ? next : 0;
}

uint64_t mics_bench_size_count(const struct mics_bench_request *request)
{
    uint64_t count = 0;

    for (uint64_t bytes = request->min_bytes; bytes > 0 && count < UINT32_MAX;
         bytes = mics_bench_next_size(request, bytes))
        count++;
    return count;
}

uint64_t mics_bench_count(uint64_t bytes, uint32_t ranks, uint32_t segments)
{
    const uint64_t grain = 4 * (uint64_t)segments; /* elements */

    return mics_max_u64(bytes / sizeof(float) / ranks / grain, 1) * grain;
}

static enum mics_status read_plan(json_t *doc, struct mics_bench_input *out, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    const enum mics_status status = mics_plan_from_doc(doc, &plan, err);

    if (status == MICS_OK)
        *out = (struct mics_bench_input){mics_choice_nodes(&plan->choice),
                                         mics_choice_per_node(&plan->choice),
                                         plan->choice.shapes[MICS_UNIT_DENSE].p_param};
    mics_plan_free(plan);
    return status;
}

static enum mics_status read_topology(json_t *doc, struct mics_bench_input *out,
                                      struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    const enum mics_status status = mics_topology_from_doc(doc, &topology, err);

    if (status == MICS_OK)
        *out = (struct mics_bench_input){topology->nodes, topology->per_node, 0};
    mics_topology_free(topology);
    return status;
}

enum mics_status mics_bench_input_read(const char *file, const struct mics_world *world,
                                       bool topology_only, struct mics_bench_input *out,
                                       json_t **topology, struct mics_err *err)
{
    struct mics_bench_input input;
    json_t *doc = NULL;
    enum mics_status status = mics_doc_read_file(file, &doc, err);

    if (status != MICS_OK)
        return status;
    const char *kind = json_string_value(json_object_get(doc, "kind"));
    const bool is_plan = !topology_only && strcmp(kind, MICS_PLAN_KIND) == 0;

    if (is_plan)
        status = read_plan(doc, &input, err);
    else
        status = read_topology(doc, &input, err);
    if (status == MICS_OK &&
        (input.nodes != world->node_count || input.per_node != world->local_size))
        status = mics_err_set(err, MICS_ERR_FORMAT, "is for %u x %u ranks, but these are %u x %u",
                              input.nodes, input.per_node, world->node_count, world->local_size);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", strcmp(file, "-") == 0 ? "standard input" : file);
    if (status == MICS_OK)
        *out = input;
    if (status == MICS_OK)
        *topology = json_incref(is_plan ? json_object_get(doc, "topology") : doc);
    json_decref(doc);
    return status;
}

static enum mics_status check_partition(const struct mics_world *world, uint32_t p,
                                        struct mics_err *err)
{
    const struct mics_shape shape = {world->node_count, world->local_size, p, p, p};
    const enum mics_status status = mics_shape_check(&shape, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "--partition");
    return status;
}

enum mics_status mics_bench_request_complete(const struct mics_world *world,
                                             const struct mics_bench_input *input,
                                             struct mics_bench_request *request,
                                             struct mics_err *err)
{
    const unsigned of_partition = 1u << MICS_BENCH_PARTITION | 1u << MICS_BENCH_REPLICATION;
    enum mics_status status = MICS_OK;

    if (request->partition == 0)
        request->partition = input->partition;
    if (request->partition > 0)
        status = check_partition(world, request->partition, err);
    else if (request->groups & of_partition)
        status =
            mics_err_set(err, MICS_ERR_ARG, "--group: no partition without a plan or --partition");
    if (status == MICS_OK && request->groups == 0)
        request->groups = 1u << MICS_BENCH_WORLD | 1u << MICS_BENCH_NODE |
                          (request->partition > 0 ? of_partition : 0);
    return status;
}
