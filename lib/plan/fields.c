/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fields.c - the fields of a plan's document, once for writing and reading. */
#include "plan/doc.h"

#define COUNT(array)  (sizeof(array) / sizeof(array)[0])
#define CHOICE(field) offsetof(struct mics_plan_choice, field)

const struct mics_choice_number mics_choice_numbers[] = {
    {"p_param", CHOICE(shape.p_param), 1, UINT32_MAX},
    {"p_grad", CHOICE(shape.p_grad), 1, UINT32_MAX},
    {"p_optim", CHOICE(shape.p_optim), 1, UINT32_MAX},
    {"segments", CHOICE(segments), 1, 64},
    {"joined", CHOICE(joined), 0, MICS_JOINED_MAX},
    {"prefetch", CHOICE(prefetch), 0, 65535},
    {"grad_slots", CHOICE(grad_slots), 1, 65536},
    {"micro_batch", CHOICE(micro_batch), 1, INT32_MAX},
    {"micro_steps", CHOICE(micro_steps), 1, 1u << 20},
    {"seq", CHOICE(seq), 1, INT32_MAX},
};
const size_t mics_choice_number_count = COUNT(mics_choice_numbers);

const struct mics_named_field mics_choice_flags[] = {
    {"hierarchical_gather", CHOICE(hierarchical_gather)},
    {"hierarchical_reduce", CHOICE(hierarchical_reduce)},
    {"clip", CHOICE(clip)},
};
const size_t mics_choice_flag_count = COUNT(mics_choice_flags);

const struct mics_named_field mics_prediction_reals[] = {
    {"step_s", offsetof(struct mics_prediction, step_s)},
    {"tokens_per_s", offsetof(struct mics_prediction, tokens_per_s)},
    {"compute_s", offsetof(struct mics_prediction, compute_s)},
    {"comm_s", offsetof(struct mics_prediction, comm_s)},
    {"exposed_s", offsetof(struct mics_prediction, exposed_s)},
};
const size_t mics_prediction_real_count = COUNT(mics_prediction_reals);
