/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_costs.c - the work and the seconds of a step's operations. */
#include "plan/memory.h"
#include "plan/schedule/launches.h"
#include "plan/schedule/op_costs.h"
#include "tap.h"

#include "plan_fake.h"

static struct mics_model *open_model(const char *name)
{
    struct mics_model *model = NULL;

    CHECK_INT(mics_model_open(name, &model, NULL), MICS_OK);
    return model;
}

static struct mics_plan_choice choice_of(uint32_t p, uint32_t micro_batch, uint32_t seq)
{
    struct mics_plan_choice choice = fake_choice(1, 8, p, p, 8);

    choice.micro_batch = micro_batch;
    choice.seq = seq;
    choice.micro_steps = 2;
    choice.dtype = choice.grad_dtype = MICS_BF16;
    return choice;
}

static struct mics_schedule *schedule_of(const struct mics_model *model,
                                         const struct mics_plan_choice *choice)
{
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(model, choice, true, &schedule, NULL), MICS_OK);
    return schedule;
}

/* Per token, of forward and backward; the products of attention that are computed again, and what
 * is no product but counts as a parameter, are known. */
static void flops_of_the_stages_are_those_of_the_model(void)
{
    static const struct {
        const char *model;
        uint32_t seq;
        double again, small, tolerance;
    } cases[] = {
        {"gpt2", 1024, 12.0 * 768 * 1024, 6.0 * (1024 * 768 + 12 * 13 * 768), 0.001},
        {"tinyllama-1.1b", 1024, 22.0 * 2048 * 1024, 6.0 * 45 * 2048, 1e-9},
        /* A window of half the sequence: 3/4 of the pairs of all. */
        {"mistral-7b-v0.1", 8192, 32.0 * 4096 * 6144, 6.0 * 65 * 4096, 1e-9},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_model *model = open_model(cases[i].model);
        const struct mics_plan_choice choice = choice_of(8, 4, cases[i].seq);
        struct mics_schedule *schedule = schedule_of(model, &choice);
        double flops = 0;

        for (uint32_t k = 0; k < schedule->op_count; k++)
            if (schedule->ops[k].stage != MICS_NONE && schedule->ops[k].micro_step == 0)
                flops += schedule->ops[k].flops / (4 * cases[i].seq);
        CHECK_NEAR((flops - cases[i].again) /
                       (mics_model_flops_per_token(model, cases[i].seq) - cases[i].small),
                   1, cases[i].tolerance);
        mics_schedule_free(schedule);
        mics_model_free(model);
    }
}

/* The bounds of the search rely on it. */
static void a_step_is_the_sum_of_its_operations(void)
{
    static const char *const topologies[] = {"p4d", "p5", "node:1 gpu:8"};

    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
        for (uint32_t p = 1; p <= 8; p *= 8) {
            struct mics_model *model = open_model("gpt2");
            const struct mics_plan_choice choice = choice_of(p, 4, 512);
            struct mics_schedule *schedule = schedule_of(model, &choice);
            struct mics_topology *topology = NULL;
            struct mics_op_costs *costs = NULL;
            double sum = 0;

            CHECK_INT(mics_topology_parse(topologies[i], &topology, NULL), MICS_OK);
            CHECK_INT(mics_op_costs_new(topology, model, &costs, NULL), MICS_OK);
            for (uint32_t k = 0; k < schedule->op_count; k++)
                if (schedule->ops[k].stream == MICS_STREAM_COMPUTE)
                    sum += mics_op_costs_compute(costs, &choice, &schedule->ops[k]);
            CHECK_NEAR(choice.micro_steps * mics_op_costs_micro_step(costs, &choice) +
                           mics_op_costs_updates(costs, &choice),
                       sum, 1e-9 * sum);
            mics_op_costs_free(costs);
            mics_topology_free(topology);
            mics_schedule_free(schedule);
            mics_model_free(model);
        }
}

/* Also where tokens travel to experts, whose gradients are written in the first round of a step; up
 * to phases that are shorter than their launches. Reading gradients once more takes 2.6e-3. */
static void a_step_with_resident_experts_is_the_sum_of_its_operations(void)
{
    struct mics_plan_choice choice = choice_of(8, 8, 1024);
    struct mics_model *model = open_model("olmoe-1b-7b");
    struct mics_topology *topology = NULL;
    struct mics_op_costs *costs = NULL;
    uint32_t first = 0, layers = 0;
    double sum = 0;

    choice.dispatches = true;
    struct mics_schedule *schedule = schedule_of(model, &choice);
    CHECK_INT(mics_topology_parse("p4d", &topology, NULL), MICS_OK);
    CHECK_INT(mics_op_costs_new(topology, model, &costs, NULL), MICS_OK);
    for (uint32_t k = 0; k < schedule->op_count; k++) {
        const struct mics_op *op = &schedule->ops[k];

        if (op->stream != MICS_STREAM_COMPUTE)
            continue;
        sum += mics_op_costs_compute(costs, &choice, op);
        if (op->phase != MICS_PHASE_ALL && op->first) {
            CHECK(op->phase == MICS_PHASE_EXPERTS && op->round == 0 && op->micro_step == 0);
            first++;
        }
    }
    for (uint32_t i = 0; i < model->stage_count; i++)
        layers += model->stages[i].part == 1;
    CHECK_INT(first, layers);
    CHECK_NEAR(choice.micro_steps * mics_op_costs_micro_step(costs, &choice) +
                   mics_op_costs_updates(costs, &choice),
               sum, 2e-4 * sum);
    mics_op_costs_free(costs);
    mics_topology_free(topology);
    mics_schedule_free(schedule);
    mics_model_free(model);
}

/* A rank with twice the mean rows: the first round is full, a second has the rest, and further ones
 * have nothing. */
static void the_busiest_rank_decides_what_rounds_take(void)
{
    struct mics_plan_choice choice = choice_of(8, 8, 1024);
    struct mics_model *model = open_model("olmoe-1b-7b");
    struct mics_topology *topology = NULL;
    struct mics_op_costs *costs = NULL;
    double even_s = 0, rounds_s[3] = {0};

    choice.dispatches = true;
    struct mics_batch batch = mics_choice_batch(&choice, MICS_UNIT_EXPERT, true);
    batch.expert_load = 2;
    const struct mics_dispatch dispatch = mics_model_dispatch(model, &batch);
    CHECK_INT(dispatch.rows, 2u * batch.B * batch.T);
    CHECK_INT(dispatch.slots, 5 * dispatch.rows / 8);
    CHECK_INT(mics_topology_parse("p4d", &topology, NULL), MICS_OK);
    CHECK_INT(mics_op_costs_new(topology, model, &costs, NULL), MICS_OK);
    for (int load = 1; load <= 2; load++) {
        choice.expert_load = load;
        struct mics_schedule *schedule = schedule_of(model, &choice);

        for (uint32_t k = 0; k < schedule->op_count; k++) {
            const struct mics_op *op = &schedule->ops[k];

            if (op->phase < MICS_PHASE_SEND || op->phase > MICS_PHASE_RECEIVE)
                continue;
            CHECK_INT(op->surplus, op->round >= (uint32_t)load);
            if (op->kind == MICS_OP_FORWARD && op->phase == MICS_PHASE_EXPERTS) {
                const double seconds = mics_op_costs_compute(costs, &choice, op);

                if (load == 1 && op->round == 0)
                    even_s = seconds;
                else if (load == 2)
                    rounds_s[op->round < 2 ? op->round : 2] = seconds;
            }
        }
        mics_schedule_free(schedule);
    }
    CHECK_NEAR(rounds_s[0] / even_s, 1.25, 0.1);
    CHECK_NEAR((rounds_s[0] + rounds_s[1]) / even_s, 2, 0.15);
    CHECK_NEAR(rounds_s[2], 0, 0);
    mics_op_costs_free(costs);
    mics_topology_free(topology);
    mics_model_free(model);
}

/* The first backward pass of a unit writes the gradients of matrices that later ones add to. */
static void the_first_backward_pass_does_not_read_gradients(void)
{
    static const char *const names[] = {"gpt2", "olmoe-1b-7b"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mics_model *model = open_model(names[i]);
        const struct mics_plan_choice choice = choice_of(1, 4, 512);
        struct mics_schedule *schedule = schedule_of(model, &choice);

        for (uint32_t k = 0; k < schedule->op_count; k++) {
            const struct mics_op *op = &schedule->ops[k];
            const struct mics_unit *unit;
            uint32_t later = k + 1;

            if (op->kind != MICS_OP_BACKWARD || !op->first)
                continue;
            unit = &model->units[op->unit];
            while (schedule->ops[later].kind != op->kind || schedule->ops[later].stage != op->stage)
                later++;
            /* All but what is written first is zeroed; embeddings alone are only added to. */
            CHECK(!schedule->ops[later].first);
            CHECK(op->stage == 0 || unit->written_count > unit->count / 2);
            CHECK_NEAR(schedule->ops[later].memory_bytes - op->memory_bytes,
                       4.0 * (double)unit->written_count -
                           4.0 * (double)(schedule->layouts[op->unit].padded - unit->written_count),
                       1);
        }
        mics_schedule_free(schedule);
        mics_model_free(model);
    }
}

/* More batches than are kept, each asked for twice. */
static void costs_do_not_depend_on_what_was_asked_before(void)
{
    struct mics_model *model = open_model("llama-nano");
    struct mics_topology *topology = NULL;
    struct mics_op_costs *costs = NULL;
    double first[100];

    CHECK_INT(mics_topology_parse("p5", &topology, NULL), MICS_OK);
    CHECK_INT(mics_op_costs_new(topology, model, &costs, NULL), MICS_OK);
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < 100; i++) {
            struct mics_plan_choice choice = choice_of(8, 1 + i / 3, 128);

            choice.recompute = (enum mics_recompute)(i % 3);
            const double seconds = mics_op_costs_micro_step(costs, &choice);
            if (pass == 0)
                first[i] = seconds;
            CHECK_NEAR(seconds, first[i], 0);
            CHECK(i % 3 == 0 || seconds > first[i - i % 3]);
        }
    mics_op_costs_free(costs);
    mics_topology_free(topology);
    mics_model_free(model);
}

/* Each stage costs what the same part of any other block costs. */
static void parts_of_blocks_are_priced_by_their_kind(void)
{
    const struct mics_plan_choice choice = choice_of(8, 4, 512);
    struct mics_topology *topology = NULL;
    struct mics_op_costs *costs = NULL;
    struct fake_model fake;
    double seconds[2][2] = {{0}}, sum = 0;

    fake_model_init(&fake, 4, 10000, 7001, true);
    fake_model_split_blocks(&fake);
    struct mics_schedule *schedule = schedule_of(&fake.model, &choice);
    CHECK_INT(mics_stage_alike_before(&fake.model, 1), 1);
    CHECK_INT(mics_stage_alike_before(&fake.model, 2), 2);
    CHECK_INT(mics_stage_alike_before(&fake.model, 7), 5);
    CHECK_INT(mics_stage_alike_before(&fake.model, 8), 6);
    CHECK_INT(mics_topology_parse("p4d", &topology, NULL), MICS_OK);
    CHECK_INT(mics_op_costs_new(topology, &fake.model, &costs, NULL), MICS_OK);
    for (uint32_t k = 0; k < schedule->op_count; k++) {
        const struct mics_op *op = &schedule->ops[k];

        if (op->stream != MICS_STREAM_COMPUTE)
            continue;
        const double cost_s = mics_op_costs_compute(costs, &choice, op);
        sum += cost_s;
        if (op->stage == MICS_NONE || fake.stages[op->stage].kind != MICS_STAGE_BLOCK || op->first)
            continue;
        double *const before = &seconds[op->kind == MICS_OP_BACKWARD][fake.stages[op->stage].part];
        CHECK(*before == 0 || *before == cost_s);
        *before = cost_s;
    }
    CHECK(seconds[0][0] > seconds[0][1] && seconds[1][1] > seconds[0][1]);
    CHECK_NEAR(choice.micro_steps * mics_op_costs_micro_step(costs, &choice) +
                   mics_op_costs_updates(costs, &choice),
               sum, 1e-9 * sum);
    mics_op_costs_free(costs);
    mics_topology_free(topology);
    mics_schedule_free(schedule);
}

int main(void)
{
    TAP_RUN(flops_of_the_stages_are_those_of_the_model);
    TAP_RUN(a_step_is_the_sum_of_its_operations);
    TAP_RUN(a_step_with_resident_experts_is_the_sum_of_its_operations);
    TAP_RUN(the_busiest_rank_decides_what_rounds_take);
    TAP_RUN(the_first_backward_pass_does_not_read_gradients);
    TAP_RUN(costs_do_not_depend_on_what_was_asked_before);
    TAP_RUN(parts_of_blocks_are_priced_by_their_kind);
    return tap_done();
}
