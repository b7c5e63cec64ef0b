/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/op_costs.h"

#include "plan/memory.h"

#include <stdlib.h>

struct mics_op_costs {
    const struct mics_topology *topology;
    const struct mics_model *model;
};

enum mics_status mics_op_costs_new(const struct mics_topology *topology,
                                   const struct mics_model *model, struct mics_op_costs **out,
                                   struct mics_err *err)
{
    struct mics_op_costs *costs = calloc(1, sizeof *costs);

    if (!costs)
        return mics_err_nomem(err);
    costs->topology = topology;
    costs->model = model;
    *out = costs;
    return MICS_OK;
}

void mics_op_costs_free(struct mics_op_costs *costs)
{
    free(costs);
}

const struct mics_topology *mics_op_costs_topology(const struct mics_op_costs *costs)
{
    return costs->topology;
}

double mics_op_costs_compute(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                             const struct mics_op *op)
{
    (void)choice;
    return mics_cost_compute(costs->topology, op->flops, op->memory_bytes);
}

double mics_op_costs_micro_step(struct mics_op_costs *costs, const struct mics_plan_choice *choice)
{
    const struct mics_model *model = costs->model;
    const struct mics_batch batch = mics_choice_batch(choice, true);
    double seconds = 0;

    for (uint32_t i = 0; i < model->stage_count; i++) {
        struct mics_stage_cost work;

        model->ops->stage_cost(model, &batch, i, &work);
        seconds += mics_cost_compute(costs->topology, work.forward_flops + work.backward_flops,
                                     work.forward_bytes + work.backward_bytes);
    }
    return seconds;
}

double mics_op_costs_updates(struct mics_op_costs *costs, const struct mics_plan_choice *choice)
{
    const uint32_t states = mics_optimizer_states(choice->optimizer);
    const double copy = choice->dtype == MICS_F32 ? 0 : sizeof(uint16_t);
    double seconds = 0;

    for (uint32_t u = 0; u < costs->model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(costs->model, choice, u);
        const double count = (double)mics_layout_optim_shard(&layout);

        seconds += mics_cost_compute(costs->topology, 0,
                                     count * (sizeof(float) * (4 + 2 * states) + copy));
    }
    return seconds;
}

/* The group of rank 0's communicator of this kind. */
static struct mics_span span_of(const struct mics_plan_choice *choice, enum mics_comm_kind comm)
{
    struct mics_group_position position;

    mics_shape_position(&choice->shape, comm, 0, &position);
    return (struct mics_span){position.nodes, position.per_node, position.sharing};
}

struct mics_collective_time mics_op_costs_collective_time(struct mics_op_costs *costs,
                                                          const struct mics_plan_choice *choice,
                                                          enum mics_collective collective,
                                                          enum mics_comm_kind comm, uint64_t bytes)
{
    return mics_cost_collective_time(costs->topology, collective, span_of(choice, comm), bytes);
}

double mics_op_costs_collective(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                                enum mics_collective collective, enum mics_comm_kind comm,
                                uint64_t bytes)
{
    return mics_cost_collective(costs->topology, collective, span_of(choice, comm), bytes);
}

double mics_op_costs_slowdown(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                              enum mics_collective collective, enum mics_comm_kind comm,
                              uint64_t bytes)
{
    (void)costs, (void)choice, (void)collective, (void)comm, (void)bytes;
    return 0;
}
