/* SPDX-License-Identifier: Apache-2.0 */
/* mutate.h - schedules with a mistake made on purpose. */
#ifndef MICS_TESTS_PARITY_MUTATE_H
#define MICS_TESTS_PARITY_MUTATE_H

#include "plan/schedule/schedule.h"

/* A copy of `schedule` in which the operations that `drop` names are gone, and so is dependency
 * `drop_dep` (an index into deps, MICS_NONE: none). Free with mutant_free(); the rest stays the
 * original's. */
struct mics_schedule mutant_new(const struct mics_schedule *schedule,
                                bool (*drop)(const struct mics_op *op), uint32_t drop_dep);
void mutant_free(struct mics_schedule *mutant);

/* The dependency of the first operation of `kind` after micro-step 0 on one of kind `on`;
 * `crossing` asks for one on the step before. Returns its index in deps, and the operation depended
 * on. */
uint32_t mutant_find_dep(const struct mics_schedule *schedule, enum mics_op_kind kind,
                         enum mics_op_kind on, bool crossing, uint32_t *dep_op);

#endif
