/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/op_durations.h"

#include "topology/cost.h"

#include <stdlib.h>

static bool is_alike(const struct mics_op *a, const struct mics_op *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->unit == b->unit &&
           a->stage == b->stage && a->micro_step == b->micro_step && a->segment == b->segment;
}

static enum mics_status compare(const struct mics_schedule *run, const struct mics_schedule *pace,
                                struct mics_err *err)
{
    const char *hint = "both need the same layers, groups, micro-steps, prefetch and segments";

    if (run->op_count != pace->op_count)
        return mics_err_set(err, MICS_ERR_ARG,
                            "a step of it has %u operations, and this plan's has %u: %s",
                            pace->op_count, run->op_count, hint);
    for (uint32_t i = 0; i < run->op_count; i++)
        if (!is_alike(&run->ops[i], &pace->ops[i]))
            return mics_err_set(err, MICS_ERR_ARG, "operation %u is %s there and %s here: %s", i,
                                mics_op_kind_name(pace->ops[i].kind),
                                mics_op_kind_name(run->ops[i].kind), hint);
    return MICS_OK;
}

static enum mics_status price(const struct mics_schedule *schedule,
                              const struct mics_topology *topology, double **out,
                              struct mics_err *err)
{
    double *seconds = calloc(schedule->op_count, sizeof *seconds);

    if (!seconds)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (!mics_op_is_comm(schedule->ops[i].kind))
            seconds[i] =
                mics_cost_compute(topology, schedule->ops[i].flops, schedule->ops[i].memory_bytes);
    *out = seconds;
    return MICS_OK;
}

enum mics_status mics_pace_make(const struct mics_plan *run, const struct mics_plan *pace,
                                double **out, struct mics_err *err)
{
    struct mics_schedule *mine = NULL, *theirs = NULL;
    enum mics_status status = mics_schedule_new(run->model, &run->choice, true, &mine, err);

    if (status == MICS_OK)
        status = mics_schedule_new(pace->model, &pace->choice, true, &theirs, err);
    if (status == MICS_OK)
        status = compare(mine, theirs, err);
    if (status == MICS_OK)
        status = price(theirs, pace->topology, out, err);
    mics_schedule_free(mine);
    mics_schedule_free(theirs);
    return status;
}
