/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/schedule.h"

#include "plan/schedule/build.h"

#include <stdlib.h>

const char *mics_op_kind_name(enum mics_op_kind kind)
{
    static const char *const names[MICS_OP_KIND_COUNT] = {
        "count", "gather", "forward", "backward", "reduce",  "accumulate", "scatter",
        "sync",  "norm",   "total",   "update",   "publish", "read"};

    return names[kind];
}

const char *mics_stream_kind_name(enum mics_stream_kind kind)
{
    static const char *const names[MICS_STREAM_COUNT] = {"compute", "gather_net", "gather_node",
                                                         "reduce_node", "reduce_net"};

    return names[kind];
}

bool mics_op_is_comm(enum mics_op_kind kind)
{
    switch (kind) {
    case MICS_OP_COUNT:
    case MICS_OP_GATHER:
    case MICS_OP_REDUCE:
    case MICS_OP_SCATTER:
    case MICS_OP_SYNC:
    case MICS_OP_TOTAL:
    case MICS_OP_PUBLISH:
        return true;
    default:
        return false;
    }
}

void mics_schedule_free(struct mics_schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->ops);
    free(schedule->deps);
    free(schedule->layouts);
    free(schedule->param_slot_count);
    free(schedule->param_slot_offset);
    free(schedule->grad_slot_count);
    free(schedule->grad_slot_offset);
    free(schedule);
}

/* The number of targets of the whole step: known first, needed by the updates. */
static void count_targets(struct mics_build *build)
{
    struct mics_op op = {.kind = MICS_OP_COUNT,
                         .stream = MICS_STREAM_REDUCE_NET,
                         .comm = MICS_COMM_WORLD,
                         .collective = MICS_ALL_REDUCE,
                         .unit = MICS_NONE,
                         .stage = MICS_NONE,
                         .param_slot = MICS_NONE,
                         .grad_slot = MICS_NONE,
                         .count = 1,
                         .bytes = sizeof(double),
                         .dtype = MICS_F64};

    mics_build_append(build, &op);
}

static void order_units(struct mics_build *build)
{
    uint32_t units = 0;

    for (uint32_t i = 0; i < build->model->stage_count; i++) {
        uint32_t unit = build->model->stages[i].unit;

        if (build->grads_left[unit]++ == 0)
            build->unit_order[units++] = unit;
    }
    for (uint32_t u = 0; u < units; u++)
        build->grads_left[u] = 0;
}

static enum mics_status prepare(struct mics_build *build, struct mics_err *err)
{
    const struct mics_model *model = build->model;
    uint32_t units = model->unit_count;
    enum mics_status status;

    build->out = calloc(1, sizeof *build->out);
    build->grad_slot_of_unit = malloc(units * sizeof *build->grad_slot_of_unit);
    build->grads_left = calloc(units, sizeof *build->grads_left);
    build->unit_order = calloc(units, sizeof *build->unit_order);
    if (build->out)
        build->out->layouts = calloc(units, sizeof *build->out->layouts);
    if (!build->grad_slot_of_unit || !build->grads_left || !build->unit_order || !build->out ||
        !build->out->layouts)
        return mics_err_nomem(err);
    order_units(build);
    build->out->unit_count = units;
    build->out->train = build->course.train;
    for (uint32_t u = 0; u < units; u++) {
        build->out->layouts[u] = mics_choice_layout(model, build->choice, u);
        build->grad_slot_of_unit[u] = MICS_NONE;
    }
    status = mics_slots_init_params(model, build->choice, &build->params, err);
    if (status == MICS_OK)
        status = mics_slots_init_grads(model, build->choice, &build->grads, err);
    if (status == MICS_OK)
        status = mics_residency_new(model, &build->course, &build->params, &build->residency, err);
    return status;
}

/* The slots' arrays move from the build to the schedule. */
static void hand_over_slots(struct mics_build *build)
{
    struct mics_schedule *out = build->out;

    out->param_slots = build->params.rotating;
    out->param_slot_total = build->params.total;
    out->param_slot_count = build->params.count;
    out->param_slot_offset = build->params.offset;
    out->grad_slots = build->grads.rotating;
    out->grad_slot_total = build->grads.total;
    out->grad_slot_count = build->grads.count;
    out->grad_slot_offset = build->grads.offset;
    build->params = build->grads = (struct mics_slot_set){0};
}

static enum mics_status assemble(struct mics_build *build, struct mics_err *err)
{
    count_targets(build);
    mics_build_passes(build);
    mics_build_finish(build);
    if (build->failed)
        return mics_err_nomem(err);
    hand_over_slots(build);
    return mics_build_deps(build->out, build->choice, err);
}

enum mics_status mics_schedule_new(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, bool train,
                                   struct mics_schedule **out, struct mics_err *err)
{
    struct mics_build build = {.model = model, .choice = choice};
    enum mics_status status = mics_choice_check(model, choice, err);

    if (status != MICS_OK)
        return status;
    build.wiring = mics_wiring_of(choice);
    build.course = (struct mics_course){model->stage_count, train ? choice->micro_steps : 1, train};
    status = prepare(&build, err);
    if (status == MICS_OK)
        status = assemble(&build, err);
    if (status == MICS_OK)
        *out = build.out;
    else
        mics_schedule_free(build.out);
    mics_slots_fini(&build.params);
    mics_slots_fini(&build.grads);
    mics_residency_fini(&build.residency);
    free(build.grad_slot_of_unit);
    free(build.grads_left);
    free(build.unit_order);
    return status;
}
