/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer_exchanges.h - when a trainer gathers parameters, and what it exchanges more than once.
 *
 * Sources: torch/distributed/fsdp/_fully_shard of PyTorch 2.15 and the calls that mics-plan prints
 * for it; models/common/parallelize.py of torchtitan 0.3; transformers/distributed/fsdp.py of
 * transformers 5.24; utils/fsdp_utils.py of accelerate 1.15;
 * runtime/zero/partitioned_param_coordinator.py and stage_1_and_2.py of DeepSpeed 0.19.
 */
#ifndef MICS_PLAN_TRAINER_EXCHANGES_H
#define MICS_PLAN_TRAINER_EXCHANGES_H

#include "plan/plan.h"

struct mics_trainer_exchanges {
    /* false: as mics does, a gathered unit stays in its slot, also for later micro-steps, until
     * another one needs the slot, and only computations that read its parameters gather it.
     * true: each computation of a unit gathers it, and releases it afterwards but for what the
     * next two members say; all is released at the end of a micro-step. */
    bool releases;
    bool keeps_resident; /* resident units stay */
    /* Units stay that are used again before the computations in between have used so many elements
     * of parameters. All of them may be gathered at once. */
    uint64_t reuse_distance;
    bool releases_head; /* between the forward and the backward pass of the last stage */
    bool repeats_tied;  /* all exchanges of a unit that is embedding and head are made twice */
    /* Gradients of parameters that are whole in each rank are all-reduced, and each rank takes its
     * part: twice the bytes of a reduce-scatter. */
    bool all_reduces;
};

const struct mics_trainer_exchanges *mics_trainer_exchanges(enum mics_trainer trainer);

/* How often each exchange of a unit is made: 1 or 2. */
uint32_t mics_trainer_exchange_times(const struct mics_trainer_exchanges *exchanges,
                                     const struct mics_model *model, uint32_t unit);

/* Rotating slots for parameters that a choice can use, whatever the model. */
uint32_t mics_choice_param_slots(const struct mics_plan_choice *choice);

#endif
