/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/schedule.h"
#include "tap.h"

#include <stdlib.h>

#include "plan_fake.h"

static struct fake_model fake;

static struct mics_schedule *make(const struct mics_plan_choice *choice, bool train)
{
    struct mics_schedule *schedule = NULL;
    struct mics_err err = {""};

    CHECK_INT(mics_schedule_new(&fake.model, choice, train, &schedule, &err), MICS_OK);
    if (err.text[0])
        printf("# %s\n", err.text);
    return schedule;
}

static uint32_t count_ops(const struct mics_schedule *schedule, enum mics_op_kind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < schedule->op_count; i++)
        count += schedule->ops[i].kind == kind;
    return count;
}

static const struct mics_op *find(const struct mics_schedule *schedule, enum mics_op_kind kind,
                                  uint32_t unit)
{
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (schedule->ops[i].kind == kind && schedule->ops[i].unit == unit)
            return &schedule->ops[i];
    return NULL;
}

/* Gathers in a step of 6 blocks, by a flat group in one segment, for each number of slots. */
static uint32_t gathers(uint32_t prefetch, uint32_t micro_steps, bool tied)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    struct mics_schedule *schedule;
    uint32_t count;

    fake_model_init(&fake, 6, 10000, 7001, tied);
    choice.prefetch = prefetch;
    choice.micro_steps = micro_steps;
    schedule = make(&choice, true);
    count = count_ops(schedule, MICS_OP_GATHER);
    mics_schedule_free(schedule);
    return count;
}

static void units_still_in_their_slots_are_not_gathered_again(void)
{
    /* embedding and head once; 6 blocks forward; then all but those in the slots */
    CHECK_INT(gathers(0, 1, true), 1 + 6 + 5);
    CHECK_INT(gathers(1, 1, true), 1 + 6 + 4);
    CHECK_INT(gathers(1, 3, true), 1 + 6 + 5 * 4);
    CHECK_INT(gathers(3, 2, true), 1 + 6 + 3 * 2);
    CHECK_INT(gathers(5, 3, true), 1 + 6);
    CHECK_INT(gathers(99, 3, true), 1 + 6);
    CHECK_INT(gathers(99, 3, false), 8);
}

/* Gathers of the first unit and of all, in a step of 6 blocks whose embedding's backward reads no
 * parameters. */
static void check_backward_without_params(uint32_t prefetch, uint32_t micro_steps, uint32_t embeds,
                                          uint32_t all)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    struct mics_schedule *schedule;
    uint32_t gathered = 0;

    fake_model_init(&fake, 6, 10000, 7001, false);
    fake.stages[0].backward_needs_params = false;
    choice.prefetch = prefetch;
    choice.micro_steps = micro_steps;
    schedule = make(&choice, true);
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        gathered += op->kind == MICS_OP_GATHER && op->unit == 0;
        if (op->kind != MICS_OP_FORWARD && op->kind != MICS_OP_BACKWARD)
            continue;
        CHECK_INT(op->needs_params, op->kind == MICS_OP_FORWARD || op->stage > 0);
        CHECK(op->needs_params || op->param_slot == MICS_NONE);
    }
    CHECK_INT(gathered, embeds);
    CHECK_INT(count_ops(schedule, MICS_OP_GATHER), all);
    mics_schedule_free(schedule);
}

static void an_untied_embedding_is_gathered_for_its_forward_only(void)
{
    check_backward_without_params(0, 1, 1, 8 + 6);
    check_backward_without_params(1, 1, 1, 8 + 5);
    check_backward_without_params(1, 3, 3, 8 + 5 + 2 * (1 + 6 + 5));
    check_backward_without_params(6, 3, 3,
                                  8 + 2 * (1 + 1)); /* replaced by the last block or the head */
    check_backward_without_params(7, 3, 1, 8);
}

/* Gathers and reductions of another trainer, in a step of 6 blocks whose embedding's backward reads
 * no parameters, and what a rank sends for them in fp32. All units have `count` elements. */
static void check_trainer(enum mics_trainer trainer, bool tied, uint64_t count,
                          uint32_t micro_steps, bool whole_grads, uint32_t gathered,
                          uint32_t reduced)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    struct mics_schedule *schedule;

    fake_model_init(&fake, 6, count, count, tied);
    fake.stages[0].backward_needs_params = false;
    choice.trainer = trainer;
    choice.micro_steps = micro_steps;
    choice.whole_grads = whole_grads;
    schedule = make(&choice, true);
    CHECK_INT(count_ops(schedule, MICS_OP_GATHER), gathered);
    CHECK_INT(count_ops(schedule, MICS_OP_REDUCE), reduced);
    mics_schedule_counts(schedule, &choice, 0, calls, sent);
    CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_GATHER], gathered * count * 4 * 3 / 4);
    CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_REDUCE], reduced * count * 4 * 3 / 4);
    mics_schedule_free(schedule);
}

static void fsdp2_gathers_all_but_the_last_group_for_both_passes(void)
{
    check_trainer(MICS_TRAINER_FSDP2, false, 8192, 1, false, 2 + 2 * 6 + 1, 8);
    check_trainer(MICS_TRAINER_FSDP2, false, 8192, 3, false, 3 * (2 + 2 * 6 + 1), 3 * 8);
    check_trainer(MICS_TRAINER_FSDP2, true, 8192, 3, false, 3 * (2 * 6 + 1), 3 * 7);
    check_trainer(MICS_TRAINER_TRANSFORMERS, false, 8192, 2, false, 2 * (2 + 2 * 6 + 1), 2 * 8);
    check_trainer(MICS_TRAINER_ACCELERATE, true, 8192, 2, false, 2 * (2 * 6 + 1), 2 * 7);
}

static void torchtitan_gathers_the_last_group_twice_as_well(void)
{
    check_trainer(MICS_TRAINER_TORCHTITAN, false, 8192, 2, false, 2 * (2 + 2 * 6 + 2), 2 * 8);
    check_trainer(MICS_TRAINER_TORCHTITAN, true, 8192, 1, false, 2 * 6 + 2, 7);
}

static void whole_gradients_are_reduced_in_the_last_micro_step(void)
{
    check_trainer(MICS_TRAINER_ACCELERATE, false, 8192, 3, true, 3 * (2 + 2 * 6 + 1), 8);
    check_trainer(MICS_TRAINER_TRANSFORMERS, false, 8192, 1, true, 2 + 2 * 6 + 1, 8);
}

static void transformers_exchanges_a_tied_unit_twice(void)
{
    check_trainer(MICS_TRAINER_TRANSFORMERS, true, 8192, 2, false, 2 * (2 * 6 + 2), 2 * 8);
    check_trainer(MICS_TRAINER_TRANSFORMERS, true, 8192, 2, true, 2 * (2 * 6 + 2), 8);
}

/* With units of 1e8 elements the last four blocks are used again after 8e8 or less. */
static void deepspeed_keeps_what_is_used_again_soon(void)
{
    check_trainer(MICS_TRAINER_DEEPSPEED, false, 8192, 2, false, 2 * 8, 2 * 8);
    check_trainer(MICS_TRAINER_DEEPSPEED, true, 8192, 1, false, 7, 7);
    check_trainer(MICS_TRAINER_DEEPSPEED, false, 100000000, 2, false, 2 * (8 + 3), 2 * 8);
}

/* All-reduces, of twice the bytes, in stages 1 and 2 only: once per step and in each micro-step. */
static void deepspeed_reduces_to_shards_by_all_reduces(void)
{
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    const uint64_t count = 1u << 20, all = 8 * count * 4 * 2 * 3 / 4;
    struct mics_schedule *schedule;

    fake_model_init(&fake, 6, count, count, false);
    for (uint32_t p_grad = 1; p_grad <= 4; p_grad += 3) {
        struct mics_plan_choice choice = fake_choice(1, 4, 1, p_grad, 4);

        choice.trainer = MICS_TRAINER_DEEPSPEED;
        choice.micro_steps = 3;
        schedule = make(&choice, true);
        mics_schedule_counts(schedule, &choice, 0, calls, sent);
        CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_REDUCE], p_grad == 1 ? 0 : 3 * all);
        CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_SCATTER], p_grad == 1 ? all : 0);
        CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_PUBLISH], all / 2);
        mics_schedule_free(schedule);
    }
}

/* The exchanges are those of blocks of one stage. */
static void a_stage_without_parameters_exchanges_nothing(void)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    struct mics_schedule *whole, *split;
    uint32_t at = 0;

    choice.micro_steps = 2;
    fake_model_init(&fake, 4, 10000, 7001, true);
    whole = make(&choice, true);
    fake_model_split_blocks(&fake);
    split = make(&choice, true);
    CHECK_INT(count_ops(split, MICS_OP_FORWARD), 2 * (2 + 2 * 4));
    CHECK_INT(count_ops(split, MICS_OP_BACKWARD), 2 * (1 + 2 * 4));
    for (uint32_t i = 0; i < split->op_count; i++) {
        const struct mics_op *op = &split->ops[i];

        if (op->stage != MICS_NONE && fake.stages[op->stage].unit == MICS_NO_UNIT) {
            CHECK(op->unit == MICS_NONE && !op->needs_params && !op->first);
            CHECK(op->param_slot == MICS_NONE && op->grad_slot == MICS_NONE);
            continue;
        }
        CHECK_INT(op->kind, whole->ops[at].kind);
        CHECK_INT(op->unit, whole->ops[at].unit);
        CHECK_INT(op->param_slot, whole->ops[at].param_slot);
        CHECK_INT(op->grad_slot, whole->ops[at].grad_slot);
        at++;
    }
    CHECK_INT(at, whole->op_count);
    mics_schedule_free(whole);
    mics_schedule_free(split);
}

/* The unit in each slot, by replaying the gathers in the order of the array. */
static void check_contents(const struct mics_schedule *schedule)
{
    uint32_t holds[16];

    memset(holds, 0xff, sizeof holds);
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->kind == MICS_OP_GATHER)
            holds[op->param_slot] = op->unit;
        if ((op->kind == MICS_OP_FORWARD || op->kind == MICS_OP_BACKWARD) && op->needs_params)
            CHECK_INT(holds[op->param_slot], op->unit);
        if (op->kind == MICS_OP_GATHER)
            CHECK(schedule->layouts[op->unit].padded <= schedule->param_slot_count[op->param_slot]);
    }
}

static void computation_finds_its_unit_in_its_slot(void)
{
    for (uint32_t prefetch = 0; prefetch < 8; prefetch++) {
        for (uint32_t micro_steps = 1; micro_steps < 4; micro_steps++) {
            struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
            struct mics_schedule *schedule;

            choice.prefetch = prefetch;
            choice.micro_steps = micro_steps;
            fake_model_init(&fake, 5, 10000, 7001, prefetch % 2);
            fake.stages[0].backward_needs_params = prefetch % 3 == 0;
            schedule = make(&choice, true);
            check_contents(schedule);
            mics_schedule_free(schedule);
        }
    }
}

static void gathers_run_ahead_by_the_prefetch_depth(void)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    struct mics_schedule *schedule;
    uint32_t ahead = 0, deepest = 0;

    choice.prefetch = 2;
    fake_model_init(&fake, 6, 10000, 7001, true);
    schedule = make(&choice, true);
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->kind == MICS_OP_BACKWARD)
            break;
        ahead += op->kind == MICS_OP_GATHER && op->unit > 0;
        deepest = ahead > deepest ? ahead : deepest;
        ahead -= op->kind == MICS_OP_FORWARD && op->unit > 0;
    }
    CHECK_INT(deepest, 3); /* the one computed next, and two more */
    mics_schedule_free(schedule);
}

static void check_coalesced(const struct mics_op *ops, uint32_t count, uint32_t most)
{
    uint32_t together = 1;

    for (uint32_t i = 0; i < count; i++) {
        together = i > 0 && ops[i - 1].coalesce_next ? together + 1 : 1;
        CHECK(together <= most);
        if (!ops[i].coalesce_next)
            continue;
        CHECK(i + 1 < count && ops[i].kind == ops[i + 1].kind && ops[i].comm == ops[i + 1].comm);
        CHECK(ops[i].stream == ops[i + 1].stream && ops[i].from.dtype == ops[i + 1].from.dtype);
        CHECK(ops[i].segment == ops[i + 1].segment && ops[i].unit != ops[i + 1].unit);
        CHECK(mics_op_is_comm(ops[i].kind));
    }
}

static void coalesced_units_are_consecutive_and_nothing_else_changes(void)
{
    for (uint32_t hierarchical = 0; hierarchical < 2; hierarchical++) {
        struct mics_plan_choice choice = fake_choice(4, 2, 4, 4, 4);
        struct mics_schedule *separate, *coalesced;
        uint32_t pairs = 0;

        choice.prefetch = 3;
        choice.grad_slots = 4;
        choice.segments = 2;
        choice.micro_steps = 2;
        choice.hierarchical_gather = choice.hierarchical_reduce = hierarchical;
        fake_model_init(&fake, 6, 10000, 7001, true);
        separate = make(&choice, true);
        choice.coalesce = 2;
        coalesced = make(&choice, true);
        CHECK_INT(coalesced->op_count, separate->op_count);
        check_coalesced(separate->ops, separate->op_count, 1);
        check_coalesced(coalesced->ops, coalesced->op_count, 2);
        for (uint32_t i = 0; i < coalesced->op_count; i++)
            pairs += coalesced->ops[i].coalesce_next;
        CHECK(pairs > 20);
        for (int kind = 0; kind < MICS_OP_KIND_COUNT; kind++)
            CHECK_INT(count_ops(coalesced, (enum mics_op_kind)kind),
                      count_ops(separate, (enum mics_op_kind)kind));
        check_contents(coalesced);
        mics_schedule_free(separate);
        mics_schedule_free(coalesced);
    }
}

static void the_second_hop_comes_once_and_after_all_micro_steps(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_schedule *schedule;

    choice.micro_steps = 3;
    fake_model_init(&fake, 3, 10000, 7001, true);
    schedule = make(&choice, true);
    CHECK_INT(count_ops(schedule, MICS_OP_SYNC), 4);
    CHECK_INT(count_ops(schedule, MICS_OP_ACCUMULATE), 3 * 4);
    CHECK_INT(count_ops(schedule, MICS_OP_REDUCE), 3 * 4);
    CHECK_INT(count_ops(schedule, MICS_OP_SCATTER), 0);
    CHECK_INT(count_ops(schedule, MICS_OP_PUBLISH), 0);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (schedule->ops[i].kind == MICS_OP_SYNC) {
            CHECK_INT(schedule->ops[i].micro_step, 2);
            CHECK_INT(schedule->ops[i].stream, MICS_STREAM_REDUCE_NET);
        }
    mics_schedule_free(schedule);
}

static void ddp_only_sums_and_zero_scatters_and_publishes(void)
{
    struct mics_plan_choice ddp = fake_choice(2, 2, 1, 1, 1), zero1 = fake_choice(2, 2, 1, 1, 4);
    struct mics_schedule *schedule;

    fake_model_init(&fake, 3, 10000, 7001, true);
    schedule = make(&ddp, true);
    CHECK_INT(count_ops(schedule, MICS_OP_GATHER), 0);
    CHECK_INT(count_ops(schedule, MICS_OP_REDUCE), 0);
    CHECK_INT(count_ops(schedule, MICS_OP_SYNC), 4);
    CHECK_INT(find(schedule, MICS_OP_FORWARD, 1)->param_slot, MICS_NONE);
    CHECK_INT(find(schedule, MICS_OP_BACKWARD, 1)->grad_slot, MICS_NONE);
    mics_schedule_free(schedule);
    schedule = make(&zero1, true);
    CHECK_INT(count_ops(schedule, MICS_OP_SCATTER), 4);
    CHECK_INT(count_ops(schedule, MICS_OP_SYNC), 0);
    CHECK_INT(count_ops(schedule, MICS_OP_PUBLISH), 4);
    mics_schedule_free(schedule);
}

/* In bf16 the second hop is: convert, all-reduce, convert, of one unit after another. */
static void the_second_hop_is_converted_before_and_after(void)
{
    struct mics_plan_choice choice = fake_choice(4, 2, 1, 2, 4);
    struct mics_schedule *schedule;
    uint32_t collectives = 0;

    choice.grad_dtype = MICS_BF16;
    choice.segments = 2;
    choice.coalesce = 2;
    fake_model_init(&fake, 3, 10000, 7001, true);
    schedule = make(&choice, true);
    for (uint32_t i = 1; i + 1 < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i], *before = op - 1, *after = op + 1;
        const bool scatter = op->kind == MICS_OP_SCATTER;

        if (!scatter && op->kind != MICS_OP_SYNC)
            continue;
        collectives++;
        CHECK(before->kind == MICS_OP_CONVERT && after->kind == MICS_OP_CONVERT);
        CHECK(before->stream == op->stream && after->stream == op->stream);
        CHECK(before->unit == op->unit && before->segment == op->segment);
        CHECK(after->unit == op->unit && after->segment == op->segment);
        CHECK(before->comm == op->comm && after->comm == op->comm && !op->coalesce_next);
        CHECK(before->from.buffer == MICS_BUFFER_GRAD_SHARD && before->from.dtype == MICS_F32);
        CHECK(before->to.buffer == op->from.buffer && after->from.buffer == op->to.buffer);
        CHECK(after->to.buffer == MICS_BUFFER_GRAD_SHARD && after->to.dtype == MICS_F32);
        CHECK_INT(op->bytes, 2 * op->count);
        CHECK_INT(before->count, op->count);
        CHECK_INT(after->count, op->count / (scatter ? 2 : 1));
        CHECK(op->memory_bytes == 0 && before->memory_bytes > 0);
    }
    CHECK_INT(collectives, 2 * 2 * 4); /* exchanges, segments, units */
    CHECK_INT(count_ops(schedule, MICS_OP_CONVERT), 2 * collectives);
    mics_schedule_free(schedule);
}

/* Convert, all-to-all, convert and add, all-gather, convert; or with one collective. */
static void blocks_are_exchanged_between_conversions_on_one_stream(void)
{
    static const enum mics_op_kind five[] = {MICS_OP_CONVERT, MICS_OP_SYNC, MICS_OP_CONVERT,
                                             MICS_OP_SYNC, MICS_OP_CONVERT};

    for (int gathers = 0; gathers < 2; gathers++) {
        struct mics_plan_choice choice = fake_choice(4, 2, 1, 2, 2);
        struct mics_schedule *schedule;
        uint32_t first = 0, conversions = gathers ? 2 : 3;

        choice.coalesce = 2;
        choice.sync_dtype = MICS_INT4;
        choice.sync_down_dtype = MICS_INT8;
        choice.sync_gathers = gathers;
        fake_model_init(&fake, 3, 10000, 7001, true);
        schedule = make(&choice, true);
        while (schedule->ops[first].kind != MICS_OP_CONVERT)
            first++;
        const struct mics_op *ops = &schedule->ops[first];
        for (uint32_t i = 0; i < (gathers ? 3 : 5); i++) {
            CHECK_INT(ops[i].kind, five[i]);
            CHECK(ops[i].unit == ops[0].unit && ops[i].stream == ops[0].stream);
            CHECK(ops[i].comm == MICS_COMM_REPLICA && !ops[i].coalesce_next);
            CHECK(i == 0 || ops[i].from.buffer == ops[i - 1].to.buffer);
        }
        CHECK_INT(ops[1].collective, gathers ? MICS_ALL_GATHER : MICS_ALL_TO_ALL);
        CHECK_INT(ops[1].bytes, mics_wire_bytes(MICS_INT4, ops[1].count));
        CHECK_INT(ops[2].parts, 4);
        if (!gathers) {
            CHECK_INT(ops[3].collective, MICS_ALL_GATHER);
            CHECK_INT(ops[3].bytes, mics_wire_bytes(MICS_INT8, ops[3].count));
        }
        CHECK_INT(count_ops(schedule, MICS_OP_CONVERT), conversions * 4); /* units */
        mics_schedule_free(schedule);
    }
}

static void gradient_buffers_start_from_zero_exactly_once(void)
{
    static const uint32_t cuts[][2] = {{1, 0}, {4, 1}};

    for (int i = 0; i < 2; i++) {
        struct mics_plan_choice choice = fake_choice(1, 4, 1, cuts[i][0], 4);
        struct mics_schedule *schedule;
        uint32_t firsts = 0;

        choice.micro_steps = 3;
        fake_model_init(&fake, 3, 10000, 7001, true);
        schedule = make(&choice, true);
        for (uint32_t j = 0; j < schedule->op_count; j++) {
            const struct mics_op *op = &schedule->ops[j];

            if (op->first && op->kind != MICS_OP_ACCUMULATE) {
                CHECK(op->kind == MICS_OP_BACKWARD || op->stage == 4);
                CHECK(op->stage != 0);
                firsts++;
            }
        }
        CHECK_INT(firsts, cuts[i][1] ? 3 * 4 : 4); /* shards once per step, slots every time */
        mics_schedule_free(schedule);
    }
}

static void hierarchical_stages_take_two_streams_and_their_own_sizes(void)
{
    struct mics_plan_choice choice = fake_choice(4, 2, 8, 8, 8);
    struct mics_schedule *schedule;
    uint64_t whole;

    choice.segments = 2;
    fake_model_init(&fake, 3, 10000, 7001, true);
    schedule = make(&choice, true);
    whole = schedule->layouts[1].segment_count;
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];
        bool net = op->comm == MICS_COMM_GATHER_NET || op->comm == MICS_COMM_REDUCE_NET;

        if (op->unit != 1 || (op->kind != MICS_OP_GATHER && op->kind != MICS_OP_REDUCE))
            continue;
        CHECK_INT(op->count, net ? whole / 2 : whole);
        CHECK_INT(op->bytes, op->count * 4);
        CHECK_STR(mics_stream_kind_name(op->stream), mics_comm_kind_name(op->comm));
    }
    mics_schedule_free(schedule);
}

static void scalars_go_over_the_world_on_one_stream(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 4);
    struct mics_schedule *schedule;

    fake_model_init(&fake, 3, 10000, 7001, true);
    schedule = make(&choice, true);
    CHECK_INT(schedule->ops[0].kind, MICS_OP_TARGET_COUNT);
    CHECK_INT(schedule->ops[schedule->op_count - 1].kind, MICS_OP_READ);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (mics_op_is_comm(schedule->ops[i].kind) && schedule->ops[i].comm == MICS_COMM_WORLD)
            CHECK_INT(schedule->ops[i].stream, MICS_STREAM_REDUCE_NET);
    mics_schedule_free(schedule);
}

/* Each communicator must see the same order on all ranks, so it may not be on two streams. */
static void no_communicator_is_on_two_streams(void)
{
    static const uint32_t shapes[][5] = {
        {2, 2, 4, 4, 4}, {2, 2, 1, 2, 4}, {4, 2, 2, 4, 8}, {4, 2, 1, 1, 8}, {8, 1, 2, 4, 8}};

    for (int i = 0; i < 5; i++) {
        const uint32_t *s = shapes[i];
        struct mics_plan_choice choice = fake_choice(s[0], s[1], s[2], s[3], s[4]);
        struct mics_schedule *schedule;
        int stream_of[MICS_COMM_KIND_COUNT];

        memset(stream_of, 0xff, sizeof stream_of);
        fake_model_init(&fake, 3, 10000, 7001, true);
        schedule = make(&choice, true);
        for (uint32_t j = 0; j < schedule->op_count; j++) {
            const struct mics_op *op = &schedule->ops[j];

            if (!mics_op_is_comm(op->kind))
                continue;
            if (stream_of[op->comm] < 0)
                stream_of[op->comm] = (int)op->stream;
            CHECK_INT(op->stream, stream_of[op->comm]);
        }
        mics_schedule_free(schedule);
    }
}

static void an_evaluation_only_gathers_and_computes_forward(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 4, 4, 4);
    struct mics_schedule *schedule, *train;

    choice.micro_steps = 3;
    fake_model_init(&fake, 5, 10000, 7001, true);
    schedule = make(&choice, false);
    train = make(&choice, true);
    CHECK_INT(count_ops(schedule, MICS_OP_FORWARD), 7);
    CHECK_INT(count_ops(schedule, MICS_OP_BACKWARD) + count_ops(schedule, MICS_OP_REDUCE) +
                  count_ops(schedule, MICS_OP_UPDATE) + count_ops(schedule, MICS_OP_NORM),
              0);
    CHECK_INT(count_ops(schedule, MICS_OP_LOSS_NORM_REDUCE), 1);
    CHECK_INT(schedule->param_slot_total, train->param_slot_total);
    CHECK(memcmp(schedule->param_slot_offset, train->param_slot_offset,
                 train->param_slot_total * sizeof(uint64_t)) == 0);
    check_contents(schedule);
    mics_schedule_free(schedule);
    mics_schedule_free(train);
}

static void without_clipping_updates_do_not_wait_for_the_norm(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_schedule *schedule;

    choice.clip = false;
    fake_model_init(&fake, 3, 10000, 7001, true);
    schedule = make(&choice, true);
    CHECK(find(schedule, MICS_OP_UPDATE, 0) < find(schedule, MICS_OP_LOSS_NORM_REDUCE, MICS_NONE));
    mics_schedule_free(schedule);
    choice.clip = true;
    schedule = make(&choice, true);
    CHECK(find(schedule, MICS_OP_UPDATE, 3) > find(schedule, MICS_OP_LOSS_NORM_REDUCE, MICS_NONE));
    mics_schedule_free(schedule);
}

/* Each element of a rank's shard is loaded, updated and stored once. */
static void states_in_host_memory_pass_in_pieces(void)
{
    static const enum mics_op_kind kinds[] = {MICS_OP_LOAD, MICS_OP_UPDATE, MICS_OP_STORE};
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);

    fake_model_init(&fake, 3, 10000, 7001, true);
    choice.segments = 2;
    choice.dtype = MICS_BF16;
    choice.optimizer = MICS_OPT_ADAMW;
    choice.offload_piece = 1024;
    struct mics_schedule *schedule = make(&choice, true);
    for (int kind = 0; kind < 3; kind++) {
        uint64_t elements[4] = {0}, bytes = 0;
        uint32_t piece = 0;

        for (uint32_t i = 0; i < schedule->op_count; i++) {
            const struct mics_op *op = &schedule->ops[i];

            if (op->kind != kinds[kind])
                continue;
            const struct mics_layout *layout = &schedule->layouts[op->unit];
            CHECK_INT(op->piece, piece++);
            CHECK_INT(op->segment * layout->optim_piece + op->begin, elements[op->unit]);
            CHECK(op->begin + op->count <= layout->optim_piece && op->count <= 1024);
            CHECK(op->stream >= MICS_STREAM_LOAD);
            elements[op->unit] += op->count;
            bytes += op->bytes;
        }
        for (uint32_t unit = 0; unit < 4; unit++)
            CHECK_INT(elements[unit], mics_layout_optim_shard(&schedule->layouts[unit]));
        CHECK_INT(bytes, 12 * (elements[0] + elements[1] + elements[2] + elements[3]));
    }
    mics_schedule_free(schedule);
}

/* Bytes of the copies of a kind that the host has with a shard, in all micro-steps. */
static uint64_t copied_bytes(const struct mics_schedule *schedule, enum mics_op_kind kind,
                             enum mics_buffer buffer)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->kind == kind && (kind == MICS_OP_LOAD ? &op->to : &op->from)->buffer == buffer)
            bytes += op->bytes;
    }
    return bytes;
}

/* DeepSpeed: sums of gradients in bf16 go to the host and come back, in fp32 at the end. Parameters
 * come back when all units are updated. */
static void updates_on_the_host_have_gradients_and_give_parameters(void)
{
    static const struct {
        uint32_t ranks, p_param, p_grad, micro_steps, stored, loaded; /* bytes of an element */
    } cases[] = {{1, 1, 1, 1, 4, 0}, {1, 1, 1, 3, 10, 4}, {4, 1, 1, 3, 6, 2},
                 {4, 1, 4, 1, 4, 0}, {4, 1, 4, 3, 10, 4}, {4, 4, 4, 3, 10, 6}};

    fake_model_init(&fake, 3, 10000, 7001, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t n = cases[i].ranks;
        struct mics_plan_choice choice = fake_choice(1, n, cases[i].p_param, cases[i].p_grad, n);
        uint64_t elements = 0;
        uint32_t updates = 0, updated = 0, published = UINT32_MAX;

        choice.dtype = choice.grad_dtype = MICS_BF16;
        choice.optimizer = MICS_OPT_ADAMW;
        choice.trainer = MICS_TRAINER_DEEPSPEED;
        choice.offload_piece = MICS_OFFLOAD_PIECE;
        choice.micro_steps = cases[i].micro_steps;
        choice.clip = i % 2;
        struct mics_schedule *schedule = make(&choice, true);
        for (uint32_t unit = 0; unit < 4; unit++)
            elements += mics_layout_optim_shard(&schedule->layouts[unit]);
        CHECK_INT(copied_bytes(schedule, MICS_OP_STORE, MICS_BUFFER_GRAD_SHARD),
                  elements * cases[i].stored);
        CHECK_INT(copied_bytes(schedule, MICS_OP_LOAD, MICS_BUFFER_GRAD_SHARD),
                  elements * cases[i].loaded);
        CHECK_INT(copied_bytes(schedule, MICS_OP_LOAD, MICS_BUFFER_PARAM_SHARD), elements * 2);
        for (uint32_t op = 0; op < schedule->op_count; op++) {
            const struct mics_op *at = &schedule->ops[op];

            if (at->kind == MICS_OP_UPDATE) {
                CHECK_INT(at->stream, MICS_STREAM_COMPUTE);
                updated = op;
                updates++;
            }
            if (at->kind == MICS_OP_LOAD && at->to.buffer == MICS_BUFFER_PARAM_SHARD &&
                op < published)
                published = op;
        }
        CHECK_INT(updates, 4);
        CHECK(updated < published && published != UINT32_MAX);
        mics_schedule_free(schedule);
    }
}

/* MiCS on 2 nodes of 2: a gather and a reduction inside the node per micro-step, an all-reduce over
 * two ranks per step. */
static void counted_bytes_follow_the_formulas(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_schedule *schedule;
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t block = 10112 * 4, ends = 7040 * 4; /* padded to 128 elements */

    choice.micro_steps = 3;
    choice.prefetch = 99;
    fake_model_init(&fake, 2, 10000, 7001, true);
    schedule = make(&choice, true);
    mics_schedule_counts(schedule, &choice, 1, calls, sent);
    CHECK_INT(calls[MICS_UNIT_DENSE][MICS_COMM_GATHER], 3);
    CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_GATHER], (2 * block + ends) / 2);
    CHECK_INT(calls[MICS_UNIT_DENSE][MICS_COMM_REDUCE], 9);
    CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_REDUCE], 3 * (2 * block + ends) / 2);
    CHECK_INT(calls[MICS_UNIT_DENSE][MICS_COMM_REPLICA], 3);
    CHECK_INT(sent[MICS_UNIT_DENSE][MICS_COMM_REPLICA], (2 * block + ends) / 2);
    CHECK_INT(calls[MICS_UNIT_DENSE][MICS_COMM_WORLD], 2);
    CHECK_INT(calls[MICS_UNIT_DENSE][MICS_COMM_GATHER_NET] +
                  calls[MICS_UNIT_DENSE][MICS_COMM_SCATTER] +
                  calls[MICS_UNIT_DENSE][MICS_COMM_PUBLISH],
              0);
    mics_schedule_free(schedule);
}

static void the_same_arguments_give_the_same_schedule(void)
{
    struct mics_plan_choice choice = fake_choice(4, 2, 4, 8, 8);
    struct mics_schedule *a, *b;

    choice.micro_steps = 2;
    fake_model_init(&fake, 4, 10000, 7001, false);
    a = make(&choice, true);
    b = make(&choice, true);
    CHECK_INT(a->op_count, b->op_count);
    CHECK_INT(a->dep_total, b->dep_total);
    CHECK(memcmp(a->deps, b->deps, a->dep_total * sizeof *a->deps) == 0);
    for (uint32_t i = 0; i < a->op_count; i++)
        CHECK(a->ops[i].kind == b->ops[i].kind && a->ops[i].unit == b->ops[i].unit &&
              a->ops[i].param_slot == b->ops[i].param_slot &&
              a->ops[i].dep_begin == b->ops[i].dep_begin);
    mics_schedule_free(a);
    mics_schedule_free(b);
}

static void printing_gives_a_line_for_each_operation(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_schedule *schedule;
    char *text = NULL;
    size_t size = 0, lines = 0;
    FILE *out = open_memstream(&text, &size);

    fake_model_init(&fake, 2, 10000, 7001, true);
    schedule = make(&choice, true);
    CHECK_INT(mics_schedule_print(schedule, &fake.model, out, NULL), MICS_OK);
    fclose(out);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    CHECK_INT(lines, schedule->op_count + 1);
    CHECK(strstr(text, "accumulate       reduce_node") != NULL);
    free(text);
    mics_schedule_free(schedule);
}

static void a_stage_without_parameters_is_named_by_its_block(void)
{
    char text[32];

    fake_model_init(&fake, 2, 10000, 7001, true);
    fake.stages[2].part = 1;
    CHECK_STR(mics_op_subject(&(struct mics_op){.unit = MICS_NONE, .stage = 2}, &fake.model, text,
                              sizeof text),
              "block 1 part 1");
    CHECK_STR(mics_op_subject(&(struct mics_op){.unit = MICS_NONE, .stage = MICS_NONE}, &fake.model,
                              text, sizeof text),
              "");
}

int main(void)
{
    TAP_RUN(units_still_in_their_slots_are_not_gathered_again);
    TAP_RUN(an_untied_embedding_is_gathered_for_its_forward_only);
    TAP_RUN(fsdp2_gathers_all_but_the_last_group_for_both_passes);
    TAP_RUN(torchtitan_gathers_the_last_group_twice_as_well);
    TAP_RUN(whole_gradients_are_reduced_in_the_last_micro_step);
    TAP_RUN(transformers_exchanges_a_tied_unit_twice);
    TAP_RUN(deepspeed_keeps_what_is_used_again_soon);
    TAP_RUN(deepspeed_reduces_to_shards_by_all_reduces);
    TAP_RUN(a_stage_without_parameters_exchanges_nothing);
    TAP_RUN(computation_finds_its_unit_in_its_slot);
    TAP_RUN(gathers_run_ahead_by_the_prefetch_depth);
    TAP_RUN(coalesced_units_are_consecutive_and_nothing_else_changes);
    TAP_RUN(the_second_hop_comes_once_and_after_all_micro_steps);
    TAP_RUN(ddp_only_sums_and_zero_scatters_and_publishes);
    TAP_RUN(the_second_hop_is_converted_before_and_after);
    TAP_RUN(blocks_are_exchanged_between_conversions_on_one_stream);
    TAP_RUN(gradient_buffers_start_from_zero_exactly_once);
    TAP_RUN(hierarchical_stages_take_two_streams_and_their_own_sizes);
    TAP_RUN(scalars_go_over_the_world_on_one_stream);
    TAP_RUN(no_communicator_is_on_two_streams);
    TAP_RUN(an_evaluation_only_gathers_and_computes_forward);
    TAP_RUN(without_clipping_updates_do_not_wait_for_the_norm);
    TAP_RUN(states_in_host_memory_pass_in_pieces);
    TAP_RUN(updates_on_the_host_have_gradients_and_give_parameters);
    TAP_RUN(counted_bytes_follow_the_formulas);
    TAP_RUN(the_same_arguments_give_the_same_schedule);
    TAP_RUN(printing_gives_a_line_for_each_operation);
    TAP_RUN(a_stage_without_parameters_is_named_by_its_block);
    return tap_done();
}
