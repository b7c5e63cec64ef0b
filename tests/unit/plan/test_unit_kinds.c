/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_unit_kinds.c - dense and expert units that are cut over groups of other sizes.
 */
#include "plan/gpu_memory.h"
#include "plan/memory.h"
#include "plan/schedule/schedule.h"
#include "plan_fake.h"
#include "tap.h"

#include <string.h>

/* Four blocks between ends; units 2 and 4 are experts. */
static struct fake_model fake;

static void mark_experts(void)
{
    fake_model_init(&fake, 4, 10000, 7001, true);
    fake.units[2].kind = fake.units[4].kind = MICS_UNIT_EXPERT;
    fake.units[2].count = fake.units[4].count = 40000;
}

static struct mics_plan_choice choice_of(struct mics_shape dense, struct mics_shape experts)
{
    struct mics_plan_choice choice = fake_choice(1, 1, 1, 1, 1);

    choice.shapes[MICS_UNIT_DENSE] = dense;
    choice.shapes[MICS_UNIT_EXPERT] = experts;
    return choice;
}

static struct mics_schedule *make(const struct mics_plan_choice *choice)
{
    struct mics_schedule *schedule = NULL;
    struct mics_err err = {""};

    CHECK_INT(mics_schedule_new(&fake.model, choice, true, &schedule, &err), MICS_OK);
    if (!schedule)
        printf("# %s\n", err.text);
    return schedule;
}

static const struct mics_shape whole = {2, 4, 8, 8, 8}, pairs = {2, 4, 2, 2, 2},
                               nodes = {2, 4, 4, 4, 4}, copies = {2, 4, 1, 1, 1};

static void a_unit_is_cut_by_the_shape_of_its_kind(void)
{
    const struct mics_plan_choice choice = choice_of(whole, pairs);

    mark_experts();
    for (uint32_t u = 0; u < fake.model.unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(&fake.model, &choice, u);
        const uint32_t p = fake.units[u].kind == MICS_UNIT_EXPERT ? 2 : 8;

        CHECK_INT(layout.padded % (p * MICS_TENSOR_ALIGN), 0);
        CHECK_INT(layout.param_piece, layout.padded / p);
        CHECK_INT(layout.optim_piece, layout.padded / p);
    }
}

static void kinds_of_the_same_shape_share_their_groups(void)
{
    const struct mics_plan_choice same = choice_of(nodes, nodes), other = choice_of(nodes, pairs);

    mark_experts();
    CHECK_INT(mics_choice_groups(&same, MICS_UNIT_EXPERT), MICS_UNIT_DENSE);
    CHECK_INT(mics_choice_groups(&other, MICS_UNIT_EXPERT), MICS_UNIT_EXPERT);
    CHECK_INT(mics_choice_groups(&other, MICS_UNIT_DENSE), MICS_UNIT_DENSE);
    CHECK(!mics_choice_uses_groups(&fake.model, &same, MICS_UNIT_EXPERT));
    CHECK(mics_choice_uses_groups(&fake.model, &other, MICS_UNIT_EXPERT));
}

static void shapes_of_other_ranks_are_refused(void)
{
    const struct mics_plan_choice choice =
        choice_of((struct mics_shape){2, 4, 8, 8, 8}, (struct mics_shape){4, 2, 8, 8, 8});
    const struct mics_plan_choice uneven = choice_of(whole, (struct mics_shape){2, 4, 3, 3, 3});
    struct mics_err err = {""};

    mark_experts();
    CHECK_INT(mics_choice_check(&fake.model, &choice, &err), MICS_ERR_ARG);
    CHECK_STR(err.text,
              "units of two kinds on 2 x 4 and 4 x 2 ranks: they must be on the same ones");
    CHECK_INT(mics_choice_check(&fake.model, &uneven, &err), MICS_ERR_ARG);
}

/* Equal shapes: a model with experts has the schedule of one without, operation for operation. */
static void equal_shapes_make_no_difference(void)
{
    struct mics_plan_choice choice = choice_of(nodes, nodes);

    choice.coalesce = 2;
    choice.micro_steps = 2;
    mark_experts();
    struct mics_schedule *marked = make(&choice);
    fake.units[2].kind = fake.units[4].kind = MICS_UNIT_DENSE;
    struct mics_schedule *plain = make(&choice);
    if (marked && plain) {
        CHECK_INT(marked->op_count, plain->op_count);
        for (uint32_t i = 0; i < marked->op_count && i < plain->op_count; i++) {
            const struct mics_op *a = &marked->ops[i], *b = &plain->ops[i];

            CHECK(a->kind == b->kind && a->comm == b->comm && a->groups == b->groups);
            CHECK(a->unit == b->unit && a->coalesce_next == b->coalesce_next);
            CHECK(a->bytes == b->bytes && a->dep_count == b->dep_count);
        }
    }
    mics_schedule_free(marked);
    mics_schedule_free(plain);
}

static void operations_name_the_groups_of_their_unit(void)
{
    struct mics_plan_choice choice = choice_of(whole, pairs);
    uint32_t gathers[MICS_UNIT_KIND_COUNT] = {0}, syncs[MICS_UNIT_KIND_COUNT] = {0};

    choice.coalesce = 4;
    mark_experts();
    struct mics_schedule *schedule = make(&choice);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->unit == MICS_NONE)
            CHECK_INT(op->groups, MICS_UNIT_DENSE);
        else if (mics_op_is_comm(op->kind))
            CHECK_INT(op->groups, fake.units[op->unit].kind);
        gathers[op->groups] += op->kind == MICS_OP_GATHER;
        syncs[op->groups] += op->kind == MICS_OP_SYNC;
        /* A group of 8 spans both nodes, in two hops; one of 2 is inside a node, in one. */
        if (op->kind == MICS_OP_GATHER)
            CHECK((op->comm == MICS_COMM_GATHER) == (op->groups == MICS_UNIT_EXPERT));
        if (op->coalesce_next)
            CHECK_INT(schedule->ops[i + 1].groups, op->groups);
    }
    CHECK(gathers[MICS_UNIT_DENSE] > 0 && gathers[MICS_UNIT_EXPERT] > 0);
    CHECK_INT(syncs[MICS_UNIT_DENSE], 0); /* the only group */
    CHECK_INT(syncs[MICS_UNIT_EXPERT], 2);
    mics_schedule_free(schedule);
}

static void units_that_are_not_cut_have_no_slots(void)
{
    const struct mics_plan_choice choice = choice_of(nodes, copies),
                                  swapped = choice_of(copies, nodes);
    struct mics_slot_set slots;

    mark_experts();
    CHECK_INT(mics_slots_init_params(&fake.model, &choice, &slots, NULL), MICS_OK);
    CHECK_INT(slots.rotating, 2);
    CHECK_INT(slots.total, 3); /* and that of the resident unit */
    CHECK_INT(slots.of_unit[0], 2);
    CHECK_INT(slots.of_unit[1], MICS_SLOT_ROTATING);
    CHECK_INT(slots.of_unit[2], MICS_SLOT_NONE);
    CHECK_INT(slots.count[0], mics_choice_layout(&fake.model, &choice, 1).padded);
    mics_slots_fini(&slots);
    CHECK_INT(mics_slots_init_params(&fake.model, &swapped, &slots, NULL), MICS_OK);
    CHECK_INT(slots.total, 2);
    CHECK_INT(slots.of_unit[0], MICS_SLOT_NONE);
    CHECK_INT(slots.count[0], mics_choice_layout(&fake.model, &swapped, 2).padded);
    mics_slots_fini(&slots);

    struct mics_schedule *schedule = make(&choice);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->unit == MICS_NONE || fake.units[op->unit].kind == MICS_UNIT_DENSE)
            continue;
        CHECK(op->kind != MICS_OP_GATHER && op->kind != MICS_OP_REDUCE &&
              op->kind != MICS_OP_ACCUMULATE);
        CHECK_INT(op->param_slot, MICS_NONE);
        CHECK_INT(op->grad_slot, MICS_NONE);
    }
    mics_schedule_free(schedule);
}

static void memory_is_the_sum_over_units_of_both_kinds(void)
{
    const struct mics_plan_choice choice = choice_of(whole, pairs);
    struct mics_memory memory;
    uint64_t shards = 0;

    mark_experts();
    for (uint32_t u = 0; u < fake.model.unit_count; u++)
        shards += mics_choice_layout(&fake.model, &choice, u).padded /
                  (fake.units[u].kind == MICS_UNIT_EXPERT ? 2 : 8);
    CHECK_INT(mics_memory_compute(&fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK(memory.regions[MICS_REGION_PARAM].bytes - 4 * shards < 4096);
    CHECK(memory.regions[MICS_REGION_GRAD].bytes - 4 * shards < 4096);
    CHECK(memory.regions[MICS_REGION_OPTIM].bytes - 8 * shards < 4096);
}

static void communicators_of_both_kinds_are_counted(void)
{
    const struct mics_plan_choice one = choice_of(whole, whole), two = choice_of(whole, pairs);
    struct mics_topology *topology = NULL;

    mark_experts();
    CHECK_INT(mics_topology_parse("p5:2", &topology, NULL), MICS_OK);
    if (!topology)
        return;
    const uint64_t shared = mics_nccl_communicators_bytes(topology, &fake.model, &one);
    const uint64_t both = mics_nccl_communicators_bytes(topology, &fake.model, &two);
    CHECK(both > shared);
    fake.units[2].kind = fake.units[4].kind = MICS_UNIT_DENSE;
    CHECK(mics_nccl_communicators_bytes(topology, &fake.model, &two) == shared);
    mics_topology_free(topology);
}

static void counts_are_by_kind(void)
{
    const struct mics_plan_choice choice = choice_of(whole, pairs);
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];

    mark_experts();
    struct mics_schedule *schedule = make(&choice);
    if (!schedule)
        return;
    mics_schedule_counts(schedule, &choice, 0, calls, sent);
    const uint64_t padded = mics_choice_layout(&fake.model, &choice, 2).padded;
    CHECK(calls[MICS_UNIT_DENSE][MICS_COMM_GATHER] == 0); /* two hops */
    CHECK(calls[MICS_UNIT_DENSE][MICS_COMM_GATHER_NET] > 0);
    CHECK(calls[MICS_UNIT_EXPERT][MICS_COMM_GATHER] > 0);
    CHECK_INT(sent[MICS_UNIT_EXPERT][MICS_COMM_GATHER],
              calls[MICS_UNIT_EXPERT][MICS_COMM_GATHER] * padded * 4 / 2);
    CHECK_INT(calls[MICS_UNIT_EXPERT][MICS_COMM_WORLD], 0);
    mics_schedule_free(schedule);
}

/* What a resident layer has instead of gathers and reductions, in two rounds. */
static void check_resident_op(const struct mics_op *op, const struct mics_model *model)
{
    CHECK(op->kind != MICS_OP_GATHER && op->kind != MICS_OP_REDUCE &&
          op->kind != MICS_OP_ACCUMULATE);
    CHECK_INT(op->param_slot, MICS_NONE);
    CHECK_INT(op->grad_slot, MICS_NONE);
    CHECK(op->round < 2);
    if (op->kind == MICS_OP_DISPATCH)
        CHECK(op->stream == MICS_STREAM_DISPATCH && op->comm == MICS_COMM_DISPATCH);
    if (op->kind == MICS_OP_COMBINE)
        CHECK(op->stream == MICS_STREAM_COMBINE && op->comm == MICS_COMM_COMBINE);
    /* Two ranks send 80 rows to each. */
    if (op->kind == MICS_OP_DISPATCH && op->phase == MICS_PHASE_SEND && op->array == 0)
        CHECK_INT(op->bytes, 2 * 80 * model->config.n_embd * 4);
    if (op->kind == MICS_OP_FORWARD || op->kind == MICS_OP_BACKWARD)
        CHECK_INT(op->needs_params, op->phase == MICS_PHASE_EXPERTS);
}

/* 64 tokens of 2 assignments on 2 ranks: 64 rows for each rank, and 16 more; at most 128. */
static void resident_experts_have_rounds_instead_of_gathers(void)
{
    struct mics_plan_choice choice = choice_of(pairs, pairs);
    struct mics_model *model = NULL;
    struct mics_schedule *schedule = NULL;
    uint32_t dispatches = 0, combines = 0, layers = 0;

    choice.micro_batch = 2;
    choice.seq = 32;
    choice.micro_steps = 1;
    choice.dispatches = true;
    CHECK_INT(mics_model_open("moe-nano", &model, NULL), MICS_OK);
    const struct mics_batch batch = mics_choice_batch(&choice, MICS_UNIT_EXPERT, true);
    CHECK_INT(mics_model_dispatch(model, &batch).slots, 80);
    CHECK_INT(mics_model_dispatch(model, &batch).rounds, 2);
    CHECK_INT(mics_schedule_new(model, &choice, true, &schedule, NULL), MICS_OK);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        dispatches += op->kind == MICS_OP_DISPATCH;
        combines += op->kind == MICS_OP_COMBINE;
        if (op->unit != MICS_NONE && model->units[op->unit].kind == MICS_UNIT_EXPERT)
            check_resident_op(op, model);
    }
    for (uint32_t i = 0; i < model->stage_count; i++)
        layers += model->stages[i].part == 1;
    /* The counts; rows and weights forward, with gradients backward. Results; gradients of both. */
    CHECK_INT(dispatches, layers * (1 + 2 * 2 + 2 * 3));
    CHECK_INT(combines, layers * (2 * 1 + 2 * 2));
    mics_schedule_free(schedule);
    mics_model_free(model);
}

static void resident_experts_that_shards_cut_are_refused(void)
{
    static const struct {
        struct mics_shape experts;
        const char *why;
    } cases[] = {
        {{2, 8, 16, 16, 16}, "8 experts cannot be divided among 16 ranks"},
        {{2, 8, 2, 4, 4}, "gradients are cut over 4 ranks, but their parameters over 2"},
    };
    struct mics_model *model = NULL;
    struct mics_err err = {""};

    CHECK_INT(mics_model_open("moe-nano", &model, NULL), MICS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_plan_choice choice = choice_of(cases[i].experts, cases[i].experts);

        choice.dispatches = true;
        choice.seq = 32;
        CHECK_INT(mics_choice_check(model, &choice, &err), MICS_ERR_ARG);
        CHECK(strstr(err.text, cases[i].why) != NULL);
    }
    mics_model_free(model);
}

int main(void)
{
    TAP_RUN(a_unit_is_cut_by_the_shape_of_its_kind);
    TAP_RUN(kinds_of_the_same_shape_share_their_groups);
    TAP_RUN(shapes_of_other_ranks_are_refused);
    TAP_RUN(equal_shapes_make_no_difference);
    TAP_RUN(operations_name_the_groups_of_their_unit);
    TAP_RUN(units_that_are_not_cut_have_no_slots);
    TAP_RUN(memory_is_the_sum_over_units_of_both_kinds);
    TAP_RUN(communicators_of_both_kinds_are_counted);
    TAP_RUN(counts_are_by_kind);
    TAP_RUN(resident_experts_have_rounds_instead_of_gathers);
    TAP_RUN(resident_experts_that_shards_cut_are_refused);
    return tap_done();
}
