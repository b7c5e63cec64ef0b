/* SPDX-License-Identifier: Apache-2.0 */
/* memory_ckpt_cost.h - what it costs to keep the training state in the memory of nodes
 * (plan/copies.h). */
#ifndef MICS_PLAN_MEMORY_CKPT_COST_H
#define MICS_PLAN_MEMORY_CKPT_COST_H

#include "plan/copies.h"
#include "plan/plan.h"

enum {
    MICS_MEMORY_COPIES = 2,
    MICS_MEMORY_COPIES_MAX = 64,
    MICS_KEEP_STEPS_MIN = 2 /* until all ranks have learnt that a state is complete */
};

/* Memory of a node for its next manifest: more than two manifests of any model need. */
#define MICS_MEMORY_CKPT_RESERVE_BYTES ((uint64_t)1 << 20)

struct mics_memory_ckpt_cost {
    uint64_t shard_bytes;   /* the optimizer shards of a rank: parameters and states in fp32 */
    uint64_t node_bytes;    /* shared memory of a node: two generations of what its ranks keep, and
                           * the reserve */
    uint64_t net_bytes;     /* that a node sends each time, at most */
    double copy_s;          /* for these on the node's network cards, if nothing else uses them */
    double step_s;          /* by which the mean step is longer, because the copy takes some of the
                           * network from the exchanges */
    uint32_t nodes_to_lose; /* at once, any of them */
};

/* Steps that copies may take, if the loss of a node is to cost at most `every` of them: two
 * states then take turns, each complete after half of them. */
static inline double mics_memory_ckpt_copy_steps(uint64_t every)
{
    return every > 2 ? (double)(every - 2) / 2 : 0.5;
}

/* What in-memory checkpoints of a choice cost, apart from time, if `wanted` nodes have each shard;
 * 0: MICS_MEMORY_COPIES. */
struct mics_memory_ckpt_cost mics_choice_memory_ckpt_cost(const struct mics_model *model,
                                                          const struct mics_plan_choice *choice,
                                                          uint32_t wanted);
/* What they cost in a plan with memory_every > 0. */
struct mics_memory_ckpt_cost mics_plan_memory_ckpt_cost(const struct mics_plan *plan);

/* Do `node_bytes` of them fit into the memory of a node, beside what its ranks need, as far as it
 * is known: from the topology, or, of hosts, from the limit of a rank?
 * MICS_ERR_INFEASIBLE: they do not. */
enum mics_status mics_memory_ckpt_check(uint64_t node_bytes, const struct mics_memory *memory,
                                        const struct mics_topology *topology, uint64_t limit,
                                        struct mics_err *err);
/* The same of a plan. */
enum mics_status mics_plan_check_memory_ckpt(const struct mics_plan *plan, struct mics_err *err);

#endif
