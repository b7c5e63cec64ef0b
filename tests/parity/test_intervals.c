/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_intervals.c - units that take turns with the second hop (mics_plan_choice.sync_interval).
 *
 * With the integer model sums are exact: every cut must give the bits of one process that gives
 * units the same turns, and what the updates have taken must be the gradients of all steps.
 */
#include "cases.h"
#include "device/launch.h"
#include "mutate.h"
#include "one_core.h"
#include "unit/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct mics_model *integer_model, *gpt2;

static struct parity_case make_case(uint32_t interval, struct mics_shape shape)
{
    struct parity_case c = {.model = integer_model, .steps = 7, .lr = 0.5f, .slow_op = MICS_NONE};

    c.choice = cases_choice(&shape);
    c.choice.micro_steps = 2;
    c.choice.prefetch = 1;
    c.choice.sync_interval = interval;
    return c;
}

static double distance_of(const struct parity_case *c)
{
    const struct parity_case reference_case = parity_reference(c);
    struct parity_result *result = NULL, *reference = NULL;
    struct mics_err err = {""};
    double distance = -1;

    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    CHECK_INT(parity_run(&reference_case, &reference, &err), MICS_OK);
    if (result && reference) {
        distance = parity_distance(c, reference, result);
        if (distance == 0 && !result->replicas_agree)
            distance = INFINITY;
    } else {
        printf("# %s\n", err.text);
    }
    parity_result_free(result);
    parity_result_free(reference);
    return distance;
}

/* Replicas; scattered gradients, of a shard and of a whole unit; published parameters. */
static const struct mics_shape shapes[] = {
    {2, 1, 1, 1, 1}, {2, 2, 2, 2, 2}, {2, 2, 1, 1, 4},
    {2, 2, 2, 2, 4}, {2, 2, 1, 2, 2}, {1, 4, 1, 4, 4},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void every_cut_gives_the_bits_of_one_process(void)
{
    for (uint32_t interval = 2; interval <= 4; interval++)
        for (size_t i = 0; i < SHAPES; i++) {
            struct parity_case c = make_case(interval, shapes[i]);

            c.choice.coalesce = interval == 2 ? 2 : 1;
            c.choice.segments = interval == 3 ? 2 : 1;
            c.carried_every = 4 + (uint32_t)i % 2;
            c.random_delay_us = 200;
            CHECK(distance_of(&c) == 0);
        }
}

/* The last step of the run leaves nothing behind. */
static void replicas_agree_after_their_last_turns(void)
{
    struct parity_case c = make_case(64, shapes[1]);

    c.carried_every = c.steps;
    CHECK(distance_of(&c) == 0);
    c.choice.grad_dtype = MICS_BF16;
    CHECK(distance_of(&c) == 0);
}

static void replicas_agree_with_a_second_hop_in_blocks(void)
{
    struct parity_case c = make_case(3, shapes[1]);
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.model = gpt2;
    c.lr = 0.1f;
    c.carried_every = c.steps;
    c.choice.sync_dtype = c.choice.sync_down_dtype = MICS_INT8;
    c.random_delay_us = 200;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    if (result)
        CHECK(result->replicas_agree && isfinite(result->loss));
    parity_result_free(result);
}

static void gpt2_agrees_with_one_process(void)
{
    struct parity_case c = make_case(3, shapes[1]);

    c.model = gpt2;
    c.lr = 0.1f;
    c.clip = 1;
    c.choice.clip = true;
    c.carried_every = 5;
    CHECK(distance_of(&c) <= 2e-6);
    c.choice.optimizer = MICS_OPT_ADAMW;
    c.lr = 1e-3f;
    CHECK(distance_of(&c) <= 2e-4);
}

static void an_interval_of_1_is_none(void)
{
    struct parity_case with = make_case(1, shapes[1]), without = make_case(0, shapes[1]);
    struct parity_result *a = NULL, *b = NULL;
    struct mics_err err = {""};

    with.carried_every = 2;
    CHECK_INT(parity_run(&with, &a, &err), MICS_OK);
    CHECK_INT(parity_run(&without, &b, &err), MICS_OK);
    if (a && b)
        CHECK(parity_distance(&with, a, b) == 0);
    parity_result_free(a);
    parity_result_free(b);
}

/* In the first steps it is the turn of all units. */
static void the_first_steps_are_those_without_an_interval(void)
{
    struct parity_case with = make_case(3, shapes[1]), without = make_case(1, shapes[1]);
    struct parity_result *a = NULL, *b = NULL;
    struct mics_err err = {""};

    with.choice.sync_warmup = with.steps;
    CHECK_INT(parity_run(&with, &a, &err), MICS_OK);
    CHECK_INT(parity_run(&without, &b, &err), MICS_OK);
    if (a && b) {
        CHECK(parity_distance(&with, a, b) == 0 && a->replicas_agree);
        CHECK(a->loss == b->loss && a->grad_norm == b->grad_norm);
    }
    parity_result_free(a);
    parity_result_free(b);
    with.choice.sync_warmup = 3; /* then turns, as in one process */
    with.carried_every = with.steps;
    CHECK(distance_of(&with) == 0);
}

/* What the updates of one slice of rank 0 have taken. */
struct taken {
    const float *param;
    uint64_t count;
    double *sum; /* [count] */
    uint32_t updates;
};

enum { SLICES = 64 };

struct ledger {
    struct taken slices[SLICES];
    uint32_t count;
};

struct entry {
    struct taken *taken;
    const float *grad;
};

/* In the stream, before the update. */
static void add_gradients(void *context)
{
    struct entry *entry = context;

    for (uint64_t i = 0; i < entry->taken->count; i++)
        entry->taken->sum[i] += entry->grad[i];
    entry->taken->updates++;
    free(entry);
}

static void record_update(void *context, struct mics_stream *stream, enum mics_kernel kernel,
                          const void *args)
{
    const struct mics_args_update *update = args;
    struct ledger *ledger = context;
    uint32_t i = 0;

    if (kernel != MICS_K_UPDATE)
        return;
    while (i < ledger->count && ledger->slices[i].param != update->param)
        i++;
    if (i == ledger->count && ledger->count++ < SLICES)
        ledger->slices[i] = (struct taken){.param = update->param,
                                           .count = update->count,
                                           .sum = calloc(update->count, sizeof(double))};
    struct entry *entry = malloc(sizeof *entry);

    *entry = (struct entry){&ledger->slices[i], update->grad};
    mics_launch_call(stream, &(struct mics_args_call){.fn = add_gradients, .context = entry});
}

static int by_address(const void *a, const void *b)
{
    const struct taken *x = a, *y = b;

    return x->param < y->param ? -1 : x->param > y->param;
}

/* A rate of 0 leaves the parameters alone, on which gradients depend. */
static void run_ledger(uint32_t interval, uint32_t steps, uint32_t carried_every,
                       struct ledger *ledger)
{
    struct parity_case c = make_case(interval, shapes[1]);
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.steps = steps;
    c.lr = 0;
    c.carried_every = carried_every;
    c.watch = record_update;
    c.watch_context = ledger;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    parity_result_free(result);
    CHECK(ledger->count > 0 && ledger->count <= SLICES);
    qsort(ledger->slices, ledger->count, sizeof *ledger->slices, by_address);
}

static bool same_sums(const struct ledger *a, const struct ledger *b)
{
    bool same = a->count == b->count;

    for (uint32_t i = 0; same && i < a->count; i++)
        same = a->slices[i].count == b->slices[i].count &&
               memcmp(a->slices[i].sum, b->slices[i].sum, a->slices[i].count * sizeof(double)) == 0;
    return same;
}

static void free_ledger(struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count && i < SLICES; i++)
        free(ledger->slices[i].sum);
}

static void updates_take_the_gradients_of_all_of_1000_steps(void)
{
    const uint32_t steps = TAP_SANITIZED ? 100 : 1000;
    struct ledger exact = {.count = 0};

    run_ledger(1, steps, 0, &exact);
    for (uint32_t interval = 2; interval <= 4; interval++) {
        struct ledger ledger = {.count = 0};

        run_ledger(interval, steps, steps / 4, &ledger);
        CHECK(same_sums(&exact, &ledger));
        for (uint32_t i = 0; i < ledger.count; i++)
            CHECK(ledger.slices[i].updates < steps / interval + 8);
        free_ledger(&ledger);
    }
    struct ledger carries = {.count = 0};

    run_ledger(3, 10, 0, &carries);
    CHECK(!same_sums(&exact, &carries));
    free_ledger(&carries);
    free_ledger(&exact);
}

/* One step, in which it is the turn of one unit; the others' gradients are used up after it. */
static void record_carried(struct parity_case c, struct ledger *ledger)
{
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.model = gpt2;
    c.steps = c.carried_every = 1;
    c.lr = 0;
    c.watch = record_update;
    c.watch_context = ledger;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    CHECK(result && result->replicas_agree && result->high_water <= result->arena_bytes);
    parity_result_free(result);
    CHECK_INT(ledger->count, gpt2->unit_count);
    qsort(ledger->slices, ledger->count, sizeof *ledger->slices, by_address);
}

/* Units are one slice each, in their order; in blocks they are padded more. */
static void what_is_carried_is_exchanged_exactly(void)
{
    static const struct mics_shape cut[] = {{2, 2, 2, 2, 2}, {2, 2, 2, 2, 4}, {4, 1, 1, 1, 2}};
    uint32_t turns[64];

    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        for (int gathers = 0; gathers < 2; gathers++) {
            struct parity_case exact = make_case(64, cut[i]), blocks = exact;
            struct ledger a = {.count = 0}, b = {.count = 0};

            blocks.choice.sync_dtype = blocks.choice.sync_down_dtype = MICS_INT8;
            blocks.choice.sync_gathers = gathers;
            record_carried(exact, &a);
            record_carried(blocks, &b);
            mics_choice_turns(gpt2, &exact.choice, turns);
            for (uint32_t u = 0; u < a.count && a.count == b.count; u++) {
                const struct taken *x = &a.slices[u], *y = &b.slices[u];
                const uint64_t count = x->count < y->count ? x->count : y->count;

                CHECK_INT(memcmp(x->sum, y->sum, count * sizeof *x->sum) == 0, turns[u] != 1);
            }
            free_ledger(&a);
            free_ledger(&b);
        }
}

/* Units of about as many elements are in each turn, whatever the groups. */
static void turns_are_balanced(void)
{
    uint64_t elements[4] = {0}, largest = 0, most = 0, least = UINT64_MAX;
    struct parity_case c = make_case(4, shapes[1]);
    uint32_t turns[64], others[64];

    CHECK(gpt2->unit_count <= 64);
    mics_choice_turns(gpt2, &c.choice, turns);
    mics_choice_set_shape(&c.choice, shapes[3]);
    mics_choice_turns(gpt2, &c.choice, others);
    CHECK(memcmp(turns, others, gpt2->unit_count * sizeof *turns) == 0);
    for (uint32_t u = 0; u < gpt2->unit_count; u++) {
        CHECK(turns[u] < 4);
        elements[turns[u] % 4] += gpt2->units[u].count;
        largest = largest > gpt2->units[u].count ? largest : gpt2->units[u].count;
    }
    for (int i = 0; i < 4; i++) {
        most = most > elements[i] ? most : elements[i];
        least = least < elements[i] ? least : elements[i];
    }
    CHECK(most - least <= largest);
}

/* A schedule whose operations of one kind, of unit 1, have another turn. */
static double distance_with_turn(enum mics_op_kind kind, uint32_t turn)
{
    struct parity_case c = make_case(3, shapes[1]);
    struct mics_schedule *schedule = NULL;

    c.carried_every = c.steps;
    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    CHECK(schedule->turns[1] < 3);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (schedule->ops[i].kind == kind && schedule->ops[i].unit == 1)
            schedule->ops[i].turn = turn < 3 ? (schedule->turns[1] + turn) % 3 : turn;
    c.schedule = schedule;
    const double distance = distance_of(&c);
    mics_schedule_free(schedule);
    return distance;
}

static void a_unit_that_misses_its_turn_is_detected(void)
{
    CHECK(distance_with_turn(MICS_OP_UPDATE, 0) == 0); /* no mutant */
    CHECK(distance_with_turn(MICS_OP_UPDATE, MICS_INTERVAL_MAX - 1) > 0);
}

static void an_update_from_unsent_gradients_is_detected(void)
{
    CHECK(distance_with_turn(MICS_OP_SYNC, 1) > 0);
    CHECK(distance_with_turn(MICS_OP_UPDATE, 1) > 0);
}

/* The shard of unit 1 is overwritten when that of another turn is, not when its own is used up. */
static void dropping_the_carried_part_is_detected(void)
{
    struct parity_case c = make_case(3, shapes[1]);
    struct mics_schedule *schedule = NULL;

    c.carried_every = c.steps;
    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    schedule->turns[1] = (schedule->turns[1] + 1) % 3;
    c.schedule = schedule;
    CHECK(distance_of(&c) > 0);
    mics_schedule_free(schedule);
}

int main(void)
{
    use_one_core();
    integer_model = cases_integer_model();
    gpt2 = cases_gpt2();
    TAP_RUN(every_cut_gives_the_bits_of_one_process);
    TAP_RUN(replicas_agree_after_their_last_turns);
    TAP_RUN(replicas_agree_with_a_second_hop_in_blocks);
    TAP_RUN(gpt2_agrees_with_one_process);
    TAP_RUN(an_interval_of_1_is_none);
    TAP_RUN(the_first_steps_are_those_without_an_interval);
    TAP_RUN(updates_take_the_gradients_of_all_of_1000_steps);
    TAP_RUN(what_is_carried_is_exchanged_exactly);
    TAP_RUN(turns_are_balanced);
    TAP_RUN(a_unit_that_misses_its_turn_is_detected);
    TAP_RUN(an_update_from_unsent_gradients_is_detected);
    TAP_RUN(dropping_the_carried_part_is_detected);
    mics_model_free(integer_model);
    mics_model_free(gpt2);
    return tap_done();
}
