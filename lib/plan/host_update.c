/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/host_update.h"

enum { WIDE = sizeof(float) };

bool mics_choice_updates_on_host(const struct mics_plan_choice *choice)
{
    return choice->offload_piece > 0 && choice->trainer == MICS_TRAINER_DEEPSPEED;
}

/* DeepSpeedCPUAdam and DeepSpeedCPULion; it refuses others unless told not to. */
bool mics_host_updates(enum mics_optimizer optimizer)
{
    return optimizer == MICS_OPT_ADAMW || optimizer == MICS_OPT_LION;
}

static uint32_t width(const struct mics_plan_choice *choice)
{
    return (uint32_t)mics_dtype_bytes(choice->dtype);
}

static bool is_stage3(const struct mics_plan_choice *choice)
{
    return choice->shapes[MICS_UNIT_DENSE].p_param > 1;
}

/* Stage 1 adds up whole gradients on the device, and reduces them in the last micro-step. */
static bool reduces_in(const struct mics_plan_choice *choice, uint32_t micro_step)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];

    return shape->p_grad > 1 || shape->p_optim == 1 || micro_step + 1 == choice->micro_steps;
}

/* Is the sum of micro-steps in host memory, in the type of the parameters? Stage 3 always has it
 * there. */
static bool accumulates(const struct mics_plan_choice *choice)
{
    return is_stage3(choice) || choice->micro_steps > 1;
}

/* The update reads gradients in fp32, which the device converts and copies at the end. */
uint32_t mics_host_grads_stored(const struct mics_plan_choice *choice, uint32_t micro_step)
{
    if (!reduces_in(choice, micro_step))
        return 0;
    return (accumulates(choice) ? width(choice) : 0) +
           (micro_step + 1 == choice->micro_steps ? WIDE : 0);
}

/* Stage 3 reads the first gradients back, too; stage 1 adds what it reduces to zeros. */
uint32_t mics_host_grads_loaded(const struct mics_plan_choice *choice, uint32_t micro_step)
{
    if (!reduces_in(choice, micro_step) || !accumulates(choice))
        return 0;
    return is_stage3(choice) || micro_step > 0 ? width(choice) : 0;
}

uint32_t mics_host_state_bytes(const struct mics_plan_choice *choice)
{
    return WIDE * (2 + mics_choice_states(choice)) + (accumulates(choice) ? width(choice) : 0) +
           (is_stage3(choice) ? 0 : width(choice));
}

uint32_t mics_host_update_bytes(const struct mics_plan_choice *choice)
{
    const uint32_t scaled = 2 * WIDE, converted = WIDE + width(choice);
    const uint32_t updated = 2 * WIDE * (1 + mics_choice_states(choice)) + WIDE;

    return scaled + updated + converted;
}

static double described_rate(const struct mics_topology *topology)
{
    const json_t *machine = json_object_get(topology->doc, "machine");

    return json_number_value(json_object_get(machine, "memory_bandwidth_bytes_per_s"));
}

double mics_host_update_rate(const struct mics_topology *topology)
{
    const double described = described_rate(topology);

    if (mics_topology_is_host(topology))
        return topology->memory_bandwidth;
    return (described > 0 ? described : MICS_HOST_UPDATE_RATE) / topology->per_node;
}

const char *mics_host_update_source(const struct mics_topology *topology)
{
    if (mics_topology_is_host(topology))
        return "host memory";
    return described_rate(topology) > 0 ? "as described" : "assumed";
}
