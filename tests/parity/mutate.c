/* SPDX-License-Identifier: Apache-2.0 */
#include "mutate.h"

#include <stdlib.h>

struct mics_schedule mutant_new(const struct mics_schedule *schedule,
                                bool (*drop)(const struct mics_op *op), uint32_t drop_dep)
{
    struct mics_schedule mutant = *schedule;
    uint32_t *place = calloc(schedule->op_count, sizeof *place);
    uint32_t kept = 0, deps = 0;

    mutant.ops = calloc(schedule->op_count, sizeof *mutant.ops);
    mutant.deps = calloc(schedule->dep_total + 1, sizeof *mutant.deps);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        place[i] = drop && drop(&schedule->ops[i]) ? MICS_NONE : kept++;
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        struct mics_op op = schedule->ops[i];
        const uint32_t begin = deps;

        if (place[i] == MICS_NONE)
            continue;
        for (uint32_t d = op.dep_begin; d < op.dep_begin + op.dep_count; d++)
            if (d != drop_dep && place[schedule->deps[d]] != MICS_NONE)
                mutant.deps[deps++] = place[schedule->deps[d]];
        op.dep_begin = begin;
        op.dep_count = deps - begin;
        mutant.ops[place[i]] = op;
    }
    mutant.op_count = kept;
    mutant.dep_total = deps;
    free(place);
    return mutant;
}

void mutant_free(struct mics_schedule *mutant)
{
    free(mutant->ops);
    free(mutant->deps);
}

uint32_t mutant_find_dep(const struct mics_schedule *schedule, enum mics_op_kind kind,
                         enum mics_op_kind on, bool crossing, uint32_t *dep_op)
{
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        for (uint32_t d = op->dep_begin; op->kind == kind && d < op->dep_begin + op->dep_count;
             d++) {
            const uint32_t dep = schedule->deps[d];

            if (schedule->ops[dep].kind == on && (dep >= i) == crossing) {
                *dep_op = dep;
                return d;
            }
        }
    }
    return MICS_NONE;
}
