/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trainer_exchanges.h"

/* FSDP2 reshards each group of parameters after its forward pass, and gathers it again before its
 * backward pass, that of an embedding, too; but the last group, final norm and head and with them a
 * tied embedding, stays from the one to the other. torchtitan with fsdp_reshard_after_forward
 * always reshards the last group as well. transformers shards a model before it ties the head to
 * the embedding: then two groups hold the same shards, and both are gathered and reduced.
 *
 * DeepSpeed's stage 3 keeps what is used again within stage3_max_reuse_distance, 1e9 by default.
 * That parameters of up to 1e5 elements are never released, and that it gathers module by module,
 * is left out. Its stages 1 and 2 all-reduce gradients (use_multi_rank_bucket_allreduce, which is
 * true by default). Megatron-LM gathers only what it has updated. */
static const struct mics_trainer_exchanges exchanges_of[MICS_TRAINERS] = {
    [MICS_TRAINER_FSDP2] = {.releases = true, .keeps_resident = true},
    [MICS_TRAINER_TORCHTITAN] = {.releases = true, .keeps_resident = true, .releases_head = true},
    [MICS_TRAINER_TRANSFORMERS] = {.releases = true, .keeps_resident = true, .repeats_tied = true},
    [MICS_TRAINER_ACCELERATE] = {.releases = true, .keeps_resident = true},
    [MICS_TRAINER_DEEPSPEED] = {.releases = true,
                                .reuse_distance = 1000000000,
                                .all_reduces = true},
};

const struct mics_trainer_exchanges *mics_trainer_exchanges(enum mics_trainer trainer)
{
    return &exchanges_of[trainer];
}

uint32_t mics_trainer_exchange_times(const struct mics_trainer_exchanges *exchanges,
                                     const struct mics_model *model, uint32_t unit)
{
    const bool tied = model->stages[0].unit == unit &&
                      model->stages[model->stage_count - 1].unit == unit && model->stage_count > 1;

    return exchanges->repeats_tied && tied ? 2 : 1;
}

uint32_t mics_choice_param_slots(const struct mics_plan_choice *choice)
{
    return mics_trainer_exchanges(choice->trainer)->reuse_distance > 0 ? UINT32_MAX
                                                                       : choice->prefetch + 1;
}
