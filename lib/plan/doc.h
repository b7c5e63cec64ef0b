/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.h - the names in the document mics.plan that its writer and its reader share. Private to lib/plan.
 *
 *     kind v model topology global_batch memory_limit_bytes
 *     choice { strategy p_param p_grad p_optim hierarchical_gather hierarchical_reduce segments joined
 *              prefetch grad_slots micro_batch micro_steps seq recompute optimizer dtype
 *              grad_dtype clip }   (recompute of v 1 is a boolean)
 *     memory { arena_bytes workspace_bytes context_bytes communicator_bytes snapshot_bytes
 *              regions [ { name bytes offset } ] }
 *     predicted { step_s tokens_per_s compute_s comm_s exposed_s net_bytes sent_bytes }
 *     alternatives [ { choice total_bytes fits why predicted } ]
 *     history
 */
#ifndef MICS_PLAN_DOC_H
#define MICS_PLAN_DOC_H

#include "plan/plan.h"

#include <stddef.h>

#define MICS_PLAN_MAX_ALTERNATIVES 4096

/* Whole numbers of a choice by name. */
struct mics_choice_number {
    const char *key;
    size_t offset; /* of a uint32_t in struct mics_plan_choice */
    uint32_t min, max;
};

/* Likewise truth values (of a bool), and times of a prediction (of a double). */
struct mics_named_field {
    const char *key;
    size_t offset;
};

extern const struct mics_choice_number mics_choice_numbers[];
extern const size_t mics_choice_number_count;
extern const struct mics_named_field mics_choice_flags[];
extern const size_t mics_choice_flag_count;
extern const struct mics_named_field mics_prediction_reals[];
extern const size_t mics_prediction_real_count;

#endif
