/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/input.h"

#include "bench/place.h"
#include "doc/doc.h"
#include "plan/plan.h"

#include <string.h>

static enum mics_status read_plan(json_t *doc, struct mics_bench_input *out, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    const enum mics_status status = mics_plan_from_doc(doc, &plan, err);

    if (status == MICS_OK)
        *out = (struct mics_bench_input){plan->choice.shape.nodes, plan->choice.shape.per_node,
                                         plan->choice.shape.p_param};
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
    if (!topology_only && strcmp(kind, MICS_PLAN_KIND) == 0)
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
    if (status == MICS_OK && topology_only)
        *topology = json_incref(doc);
    json_decref(doc);
    return status;
}

enum mics_status mics_bench_input_complete(const struct mics_world *world,
                                           const struct mics_bench_input *input,
                                           struct mics_bench_request *request, struct mics_err *err)
{
    const unsigned of_partition = 1u << MICS_BENCH_PARTITION | 1u << MICS_BENCH_REPLICATION;
    enum mics_status status = MICS_OK;

    if (request->partition == 0)
        request->partition = input->partition;
    if (request->partition > 0)
        status = mics_bench_check_partition(world, request->partition, err);
    else if (request->groups & of_partition)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--group: no partition without a plan or --partition");
    if (status != MICS_OK) {
        mics_err_prefix(err, "partition");
        return status;
    }
    if (request->groups == 0)
        request->groups = 1u << MICS_BENCH_WORLD | 1u << MICS_BENCH_NODE |
                          (request->partition > 0 ? of_partition : 0);
    return MICS_OK;
}
