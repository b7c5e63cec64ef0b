/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_secondary.c - with secondary shards (ZeRO++'s hpZ) no bit is another than with published
 * parameters, and what ranks send is what the schedule says.
 */
#include "cases.h"
#include "harness.h"
#include "mutate.h"
#include "plan/schedule/schedule.h"
#include "tap.h"

static struct mics_model *integer_model, *gpt2;

static struct parity_result *run(const struct parity_case *c)
{
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    return result;
}

static struct mics_schedule *schedule_of(const struct parity_case *c)
{
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    return schedule;
}

static struct parity_case make_case(const struct mics_model *model, const struct mics_shape *shape)
{
    struct parity_case c = {.model = model,
                            .choice = cases_choice(shape),
                            .steps = 3,
                            .lr = 0.1f,
                            .random_delay_us = 200,
                            .slow_op = MICS_NONE};

    c.choice.micro_steps = 2;
    return c;
}

static void check_counts(const struct parity_case *c, const struct parity_result *result)
{
    struct mics_schedule *schedule = schedule_of(c);
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];

    for (uint32_t rank = 0; rank < result->n; rank++) {
        mics_schedule_counts(schedule, &c->choice, rank, calls, sent);
        CHECK(calls[0][MICS_COMM_OPTIM] > 0);
        CHECK_INT(calls[0][MICS_COMM_PUBLISH], 0);
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
            CHECK_INT(result->counts[rank][0][kind].calls, c->steps * calls[0][kind]);
            CHECK_INT(result->counts[rank][0][kind].sent_bytes, c->steps * sent[0][kind]);
        }
    }
    mics_schedule_free(schedule);
}

struct walk {
    const struct mics_model *model;
    int runs;
};

static void visit(const struct mics_shape *shape, void *context)
{
    struct walk *walk = context;
    struct parity_case c = make_case(walk->model, shape);

    c.choice.secondary_shards = true;
    if (mics_choice_check(c.model, &c.choice, NULL) != MICS_OK)
        return;
    c.choice.segments = walk->runs % 2 + 1;
    c.choice.coalesce = walk->runs % 3 + 1;
    c.choice.prefetch = walk->runs % 4;
    c.choice.dtype = c.choice.grad_dtype = walk->runs % 2 ? MICS_BF16 : MICS_F32;
    c.choice.hierarchical_gather = walk->runs % 2;
    walk->runs++;
    struct parity_result *with = run(&c);
    c.choice.secondary_shards = false;
    struct parity_result *without = run(&c);
    if (with && without) {
        CHECK(parity_distance(&c, with, without) == 0);
        CHECK(with->replicas_agree);
        CHECK(with->loss == without->loss);
        CHECK(with->eval_loss == without->eval_loss);
        c.choice.secondary_shards = true;
        check_counts(&c, with);
    }
    parity_result_free(with);
    parity_result_free(without);
}

static void walk_all(const struct mics_model *model, uint32_t n, int least)
{
    struct walk walk = {.model = model};

    cases_each_shape(n, visit, &walk);
    printf("# %d cuts\n", walk.runs);
    CHECK(walk.runs >= least);
}

static void every_cut_has_the_bits_of_published_parameters(void)
{
    walk_all(integer_model, 4, 6);
    walk_all(gpt2, 4, 6);
    if (!TAP_SANITIZED)
        walk_all(gpt2, 8, 20);
}

/* gpt2's four units are gathered once over all ranks in a step; gradients as ever. */
static void bytes_are_those_counted_by_hand(void)
{
    struct parity_case c = make_case(gpt2, &(struct mics_shape){2, 2, 2, 4, 4});
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t elements = 0;

    c.choice.secondary_shards = true;
    c.choice.dtype = c.choice.grad_dtype = MICS_BF16;
    struct mics_schedule *schedule = schedule_of(&c);
    for (uint32_t u = 0; u < schedule->unit_count; u++)
        elements += schedule->layouts[u].padded;
    mics_schedule_counts(schedule, &c.choice, 1, calls, sent);
    CHECK_INT(calls[0][MICS_COMM_OPTIM], c.model->unit_count);
    CHECK_INT(sent[0][MICS_COMM_OPTIM], 2 * elements * 3 / 4);
    CHECK_INT(sent[0][MICS_COMM_REDUCE], c.choice.micro_steps * 2 * elements * 3 / 4);
    CHECK_INT(calls[0][MICS_COMM_PUBLISH], 0);
    mics_schedule_free(schedule);
}

/* The first use of each unit is gathered over the optimizer group, all others in the parameter
 * group. */
static void only_the_first_gather_of_a_unit_leaves_its_group(void)
{
    struct parity_case c = make_case(gpt2, &(struct mics_shape){2, 2, 2, 4, 4});
    uint32_t first[MICS_COMM_KIND_COUNT] = {0};

    c.choice.secondary_shards = true;
    c.choice.micro_steps = 3;
    struct mics_schedule *schedule = schedule_of(&c);
    bool seen[16] = {false};

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->kind != MICS_OP_GATHER)
            continue;
        CHECK_INT(op->comm, seen[op->unit] ? MICS_COMM_GATHER : MICS_COMM_OPTIM);
        CHECK_INT(op->stream, seen[op->unit] ? MICS_STREAM_GATHER_NODE : MICS_STREAM_GATHER_NET);
        seen[op->unit] = true;
        first[op->comm]++;
    }
    CHECK_INT(first[MICS_COMM_OPTIM], c.model->unit_count);
    CHECK(first[MICS_COMM_GATHER] > c.model->unit_count);
    mics_schedule_free(schedule);
}

static bool is_copy(const struct mics_op *op)
{
    return op->kind == MICS_OP_CONVERT;
}

static void a_shard_that_is_not_copied_is_detected(void)
{
    struct parity_case c = make_case(integer_model, &(struct mics_shape){2, 2, 2, 4, 4});

    c.choice.secondary_shards = true;
    struct mics_schedule *schedule = schedule_of(&c);
    struct mics_schedule mutant = mutant_new(schedule, is_copy, MICS_NONE);
    struct parity_result *whole = run(&c);

    CHECK_INT(schedule->op_count - mutant.op_count, c.model->unit_count);
    c.schedule = &mutant;
    struct parity_result *broken = run(&c);
    if (whole && broken)
        CHECK(parity_distance(&c, whole, broken) > 0);
    parity_result_free(whole);
    parity_result_free(broken);
    mutant_free(&mutant);
    mics_schedule_free(schedule);
}

static void refused(struct mics_plan_choice choice, const char *why)
{
    struct mics_err err = {""};

    CHECK_INT(mics_choice_check(gpt2, &choice, &err), MICS_ERR_ARG);
    CHECK(strstr(err.text, why) != NULL);
}

static void choices_that_cannot_have_them_are_refused(void)
{
    struct mics_plan_choice choice = cases_choice(&(struct mics_shape){2, 2, 4, 4, 4});

    choice.secondary_shards = true;
    refused(choice, "fewer than the 4 of the optimizer, found 4");
    mics_choice_set_shape(&choice, (struct mics_shape){2, 2, 1, 4, 4});
    refused(choice, "fewer than the 4 of the optimizer, found 1");
    mics_choice_set_shape(&choice, (struct mics_shape){4, 2, 2, 4, 4});
    CHECK_INT(mics_choice_check(gpt2, &choice, NULL), MICS_OK);
    choice.outer_steps = 2;
    choice.outer_lr = 1;
    refused(choice, "not with outer steps");
    choice.outer_steps = 0;
    choice.shapes[MICS_UNIT_EXPERT].p_param = 4;
    refused(choice, "experts are cut as all other parameters");
}

int main(void)
{
    integer_model = cases_integer_model();
    gpt2 = cases_gpt2();
    TAP_RUN(every_cut_has_the_bits_of_published_parameters);
    TAP_RUN(bytes_are_those_counted_by_hand);
    TAP_RUN(only_the_first_gather_of_a_unit_leaves_its_group);
    TAP_RUN(a_shard_that_is_not_copied_is_detected);
    TAP_RUN(choices_that_cannot_have_them_are_refused);
    mics_model_free(integer_model);
    mics_model_free(gpt2);
    return tap_done();
}
