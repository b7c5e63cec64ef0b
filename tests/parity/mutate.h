/* SPDX-License-Identifier: Apache-2.0 */
/* mutate.h - schedules with deliberate bugs. */
#ifndef MICS_TESTS_PARITY_MUTATE_H
#define MICS_TESTS_PARITY_MUTATE_H

#include "plan/schedule/schedule.h"

/* A copy of `schedule` without the operations for which `drop` returns true, and without the
 * dependency `drop_dep`, an index into deps (MICS_NONE: all are kept). Free with mutant_free(). It
 * borrows the other members of `schedule`. */
struct mics_schedule mutant_new(const struct mics_schedule *schedule,
                                bool (*drop)(const struct mics_op *op), uint32_t drop_dep);
void mutant_free(struct mics_schedule *mutant);

/* Find the dependency of the first operation of `kind` after micro-step 0 on one of kind `on`; with
 * `crossing`, one on the previous step. Returns its index in deps; *dep_op: the operation that it
 * waits for. */
uint32_t mutant_find_dep(const struct mics_schedule *schedule, enum mics_op_kind kind,
                         enum mics_op_kind on, bool crossing, uint32_t *dep_op);

#endif
