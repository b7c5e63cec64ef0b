/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory_ckpt_cost.h"

#include "base/num.h"
#include "base/units.h"
#include "plan/memory.h"

#include <math.h>

enum { HEADER_BYTES = 4096 }; /* of a shard in memory */

/* Seconds by which copies delay the mean step. They give way to the exchanges of steps, but only
 * for so long: what does not fit into the time that the network is idle until then delays the
 * steps. The next copies begin so early that they are complete memory_every steps after these
 * began. */
static double copy_delay(const struct mics_plan *plan, double copy_s)
{
    const double busy_s =
        (double)plan->predicted.net_bytes / plan->topology->net_link.bandwidth_bytes;
    const double idle_s = fmax(plan->predicted.step_s - busy_s, 0); /* of a step */
    const double steps = fmin(copy_s / idle_s, mics_memory_ckpt_copy_steps(plan->memory_every));
    const double complete = fmax(ceil(steps) + 1, MICS_KEEP_STEPS_MIN);

    return fmax(copy_s - steps * idle_s, 0) / fmax((double)plan->memory_every - complete, complete);
}

struct mics_memory_ckpt_cost mics_choice_memory_ckpt_cost(const struct mics_model *model,
                                                          const struct mics_plan_choice *choice,
                                                          uint32_t wanted)
{
    struct mics_memory_ckpt_cost cost = {.node_bytes = MICS_MEMORY_CKPT_RESERVE_BYTES,
                                         .nodes_to_lose = UINT32_MAX};

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct mics_copies copies =
            mics_copies_make(&choice->shapes[kind], wanted ? wanted : MICS_MEMORY_COPIES);
        const uint64_t bytes = mics_choice_shard_bytes(model, choice, (enum mics_unit_kind)kind);
        const uint32_t nodes = mics_copies_nodes_to_lose(&copies);

        if (bytes == 0)
            continue;
        cost.shard_bytes += bytes;
        cost.node_bytes += 2 * mics_copies_per_node(&copies) * (bytes + HEADER_BYTES);
        cost.net_bytes += mics_copies_sent_per_node(&copies) * bytes;
        cost.nodes_to_lose = nodes < cost.nodes_to_lose ? nodes : cost.nodes_to_lose;
    }
    return cost;
}

struct mics_memory_ckpt_cost mics_plan_memory_ckpt_cost(const struct mics_plan *plan)
{
    const double bandwidth = plan->topology->net_link.bandwidth_bytes;
    struct mics_memory_ckpt_cost cost =
        mics_choice_memory_ckpt_cost(plan->model, &plan->choice, plan->memory_copies);

    if (cost.net_bytes == 0 || !(bandwidth > 0))
        return cost;
    cost.copy_s = (double)cost.net_bytes / bandwidth;
    cost.step_s = copy_delay(plan, cost.copy_s);
    return cost;
}

/* Memory of a node, or 0: unknown. */
static uint64_t node_memory(const struct mics_topology *topology, uint64_t limit)
{
    const json_t *machine = json_object_get(topology->doc, "machine");
    const json_int_t has = json_integer_value(json_object_get(machine, "memory_bytes"));

    if (has > 0)
        return (uint64_t)has;
    return mics_topology_is_host(topology) ? limit * topology->per_node : 0;
}

enum mics_status mics_memory_ckpt_check(uint64_t node_bytes, const struct mics_memory *memory,
                                        const struct mics_topology *topology, uint64_t limit,
                                        struct mics_err *err)
{
    const uint64_t has = node_memory(topology, limit);
    const uint64_t ranks = mics_memory_host(memory, topology) * topology->per_node;
    char own[32], other[32], available[32];

    if (has == 0 || ranks + node_bytes <= has)
        return MICS_OK;
    mics_format_bytes(node_bytes, own, sizeof own);
    mics_format_bytes(ranks, other, sizeof other);
    mics_format_bytes(has, available, sizeof available);
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "--memory-every: state in memory needs %s on each node beside the %s of "
                        "its ranks, but a node has %s",
                        own, other, available);
}

enum mics_status mics_plan_check_memory_ckpt(const struct mics_plan *plan, struct mics_err *err)
{
    if (plan->memory_every == 0)
        return MICS_OK;
    return mics_memory_ckpt_check(mics_plan_memory_ckpt_cost(plan).node_bytes, &plan->memory,
                                  plan->topology, plan->memory_limit, err);
}
