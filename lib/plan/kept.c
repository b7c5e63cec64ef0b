/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/kept.h"

#include "base/num.h"
#include "base/units.h"
#include "comm/comm.h"
#include "plan/memory.h"

#include <math.h>

enum { HEADER_BYTES = 4096 }; /* of a shard in memory */

/* Seconds by which a copy delays the steps beside it. While a step uses the network, each rank
 * still sends a little of its copy, which takes that much longer; the rest of the time all of the
 * network is the copy's. */
static double copy_delay(const struct mics_plan *plan, double copy_s)
{
    const double bandwidth = plan->topology->net_link.bandwidth_bytes;
    const double busy_s = (double)plan->predicted.net_bytes / bandwidth;
    const double busy = plan->predicted.step_s > 0 ? fmin(busy_s / plan->predicted.step_s, 1) : 0;
    const double share =
        fmin(plan->topology->per_node * MICS_EXCHANGE_YIELDING_BYTES_PER_S / bandwidth, 1);

    return copy_s * busy * share / (1 - busy * (1 - share));
}

struct mics_kept_cost mics_plan_kept_cost(const struct mics_plan *plan)
{
    const uint32_t wanted = plan->memory_copies ? plan->memory_copies : MICS_MEMORY_COPIES;
    const struct mics_copies copies = mics_copies_make(&plan->choice.shape, wanted);
    const double bandwidth = plan->topology->net_link.bandwidth_bytes;
    struct mics_kept_cost cost = {.shard_bytes =
                                      mics_choice_shard_bytes(plan->model, &plan->choice),
                                  .nodes_to_lose = mics_copies_nodes_to_lose(&copies)};

    cost.node_bytes = 2 * mics_copies_per_node(&copies) * (cost.shard_bytes + HEADER_BYTES) +
                      MICS_KEPT_RESERVE_BYTES;
    cost.net_bytes = mics_copies_sent_per_node(&copies) * cost.shard_bytes;
    if (cost.net_bytes == 0 || !(bandwidth > 0))
        return cost;
    cost.copy_s = (double)cost.net_bytes / bandwidth;
    cost.step_s = copy_delay(plan, cost.copy_s) / (double)plan->memory_every;
    return cost;
}

/* Memory of a node, or 0: unknown. */
static uint64_t node_memory(const struct mics_plan *plan)
{
    const json_t *machine = json_object_get(plan->topology->doc, "machine");
    const json_int_t has = json_integer_value(json_object_get(machine, "memory_bytes"));

    if (has > 0)
        return (uint64_t)has;
    return mics_topology_is_host(plan->topology) ? plan->memory_limit * plan->topology->per_node
                                                 : 0;
}

enum mics_status mics_plan_check_kept(const struct mics_plan *plan, struct mics_err *err)
{
    const uint64_t has = node_memory(plan);
    const uint64_t ranks =
        mics_memory_host(&plan->memory, plan->topology) * plan->topology->per_node;
    const uint64_t kept = plan->memory_every ? mics_plan_kept_cost(plan).node_bytes : 0;
    char own[32], other[32], available[32];

    if (kept == 0 || has == 0 || ranks + kept <= has)
        return MICS_OK;
    mics_format_bytes(kept, own, sizeof own);
    mics_format_bytes(ranks, other, sizeof other);
    mics_format_bytes(has, available, sizeof available);
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "--memory-every: state in memory needs %s on each node beside the %s of "
                        "its ranks, but a node has %s",
                        own, other, available);
}
