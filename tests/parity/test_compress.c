/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_compress.c - training with exchanges in blocks.
 *
 * A rounding of int8 is off by at most 1/254 of the largest gradient of a block, and one of int4 by
 * 1/14, so that training stays close to exact training, and by how much is checked. What must be
 * equal bit for bit: all replicas, and runs that differ in segments, slots, coalescing or timing.
 */
#include "cases.h"
#include "device/launch.h"
#include "mutate.h"
#include "one_core.h"
#include "plan/schedule/build.h"
#include "unit/tap.h"

#include <math.h>

static struct mics_model *gpt2, *llama;

/* 3 steps at lr 0.1: the largest gradient of a block is below 0.1. Observed: 6e-4, 7e-3. */
#define INT8_TOLERANCE 3e-3
#define INT4_TOLERANCE 3e-2

static struct parity_case case_of(const struct mics_model *model, struct mics_shape shape,
                                  enum mics_dtype up, enum mics_dtype down)
{
    struct parity_case c = {.model = model,
                            .choice = cases_choice(&shape),
                            .steps = 3,
                            .lr = 0.1f,
                            .slow_op = MICS_NONE};

    c.choice.micro_steps = 2;
    c.choice.sync_dtype = up;
    c.choice.sync_down_dtype = down;
    return c;
}

static void check_counts(const struct parity_case *c, const struct parity_result *result)
{
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    for (uint32_t rank = 0; schedule && rank < result->n; rank++) {
        mics_schedule_counts(schedule, &c->choice, rank, calls, sent);
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
            const struct mics_comm_counts *counts = &result->counts[rank][MICS_UNIT_DENSE][kind];

            CHECK_INT(counts->calls, c->steps * calls[MICS_UNIT_DENSE][kind]);
            CHECK_INT(counts->sent_bytes, c->steps * sent[MICS_UNIT_DENSE][kind]);
        }
    }
    mics_schedule_free(schedule);
}

static struct parity_result *run(const struct parity_case *c)
{
    struct parity_result *result = NULL;
    struct mics_err err = {""};
    char name[200];

    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    if (!result)
        printf("# %s: %s\n", cases_name(&c->choice, name, sizeof name), err.text);
    return result;
}

/* Writes a value into a gradient of rank 0 before one of its conversions to blocks. */
struct poison {
    uint32_t seen, at; /* conversions */
    float value;
    float *target;
};

static void put_value(void *context)
{
    const struct poison *poison = context;

    *poison->target = poison->value;
}

static void poison_gradient(void *context, struct mics_stream *stream, enum mics_kernel kernel,
                            const void *args)
{
    const struct mics_args_sum_blocks *sum = args;
    struct poison *poison = context;

    if (kernel != MICS_K_SUM_BLOCKS || sum->src_dtype != MICS_F32 || poison->seen++ != poison->at)
        return;
    poison->target = (float *)(uintptr_t)sum->src + sum->count / 2;
    mics_launch_call(stream, &(struct mics_args_call){.fn = put_value, .context = poison});
}

/* One element in one unit of one replica, in the last step: the norm says so on all ranks, and no
 * parameter of any replica changes in the step. */
static void a_gradient_that_is_not_finite_in_one_replica_is_seen_by_all(void)
{
    static const struct mics_shape shapes[] = {{2, 2, 2, 2, 2}, {3, 1, 1, 1, 1}, {2, 2, 1, 2, 4}};
    static const enum mics_dtype formats[] = {MICS_INT8, MICS_INT4};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t kind = 0; kind < 4; kind++) {
            struct parity_case c = case_of(gpt2, shapes[i], formats[kind % 2], MICS_INT8);
            struct poison poison = {.at = UINT32_MAX, .value = kind < 2 ? NAN : -INFINITY};

            if (tap_leaves_out(5))
                continue;
            c.choice.clip = true;
            c.clip = 1;
            c.choice.sync_gathers = i == 1 && kind % 2 == 0;
            c.watch = poison_gradient;
            c.watch_context = &poison;
            c.steps = 2;
            struct parity_result *before = run(&c);

            CHECK(before && isfinite(before->grad_norm));
            CHECK(poison.seen > 0 && poison.seen % 2 == 0);
            poison.at = poison.seen + kind; /* one of the third step */
            poison.seen = 0;
            c.steps = 3;
            struct parity_result *after = run(&c);

            if (before && after) {
                CHECK(!isfinite(after->grad_norm) && isfinite(after->loss));
                CHECK(after->replicas_agree && parity_distance(&c, before, after) == 0);
            }
            parity_result_free(before);
            parity_result_free(after);
        }
}

/* The case against exact training on one rank. */
static void check_close(const struct parity_case *c, double tolerance)
{
    const int bad_before = tap_bad;
    struct parity_case exact = *c;
    struct parity_result *result = run(c), *reference;
    double distance = -1;
    char name[200];

    exact.choice = mics_choice_exact(&c->choice);
    exact = parity_reference(&exact);
    reference = run(&exact);
    if (result && reference) {
        distance = parity_distance(c, reference, result);
        CHECK(distance <= tolerance);
        CHECK(result->replicas_agree);
        CHECK_NEAR(result->loss, reference->loss, tolerance * reference->loss);
        CHECK_INT(result->high_water <= result->arena_bytes, 1);
        check_counts(c, result);
    }
    if (tap_bad != bad_before)
        printf("# in %s: distance %g\n", cases_name(&c->choice, name, sizeof name), distance);
    parity_result_free(result);
    parity_result_free(reference);
}

struct walk {
    const struct mics_model *model;
    enum mics_dtype up, down;
    bool gathers;
    double tolerance;
};

static void visit(const struct mics_shape *shape, void *context)
{
    const struct walk *walk = context;
    struct parity_case c = case_of(walk->model, *shape, walk->up, walk->down);

    if (mics_shape_world_size(shape) > 2 && tap_leaves_out(7))
        return;
    c.choice.sync_gathers = walk->gathers;
    check_close(&c, walk->tolerance);
}

/* Cuts with and without a second hop, and with a scatter. */
static void int8_trains_close_to_exact_for_every_cut_of_2_3_and_4_ranks(void)
{
    struct walk walk = {gpt2, MICS_INT8, MICS_INT8, false, INT8_TOLERANCE};

    for (uint32_t n = 2; n <= 4; n++)
        cases_each_shape(n, visit, &walk);
    walk.model = llama;
    walk.gathers = true;
    for (uint32_t n = 2; n <= 3; n++)
        cases_each_shape(n, visit, &walk);
}

static void int4_trains_close_to_exact_for_every_cut_of_3_ranks(void)
{
    struct walk walk = {gpt2, MICS_INT4, MICS_INT8, false, INT4_TOLERANCE};

    cases_each_shape(3, visit, &walk);
    walk.down = MICS_INT4;
    cases_each_shape(3, visit, &walk);
    walk.gathers = true;
    cases_each_shape(3, visit, &walk);
}

/* Pieces of one block, of which some replicas have none. */
static void some_units_may_have_an_exact_second_hop(void)
{
    const struct mics_shape shapes[] = {{2, 2, 2, 2, 2}, {3, 1, 1, 1, 1}, {2, 2, 1, 1, 2}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t exact = 1; exact < gpt2->unit_count; exact++) {
            struct parity_case c = case_of(gpt2, shapes[i], MICS_INT8, MICS_INT8);

            if (tap_leaves_out(5))
                continue;
            c.choice.sync_exact_units = exact;
            c.choice.coalesce = 1 + exact % 2;
            c.choice.grad_slots = 2;
            check_close(&c, INT8_TOLERANCE);
        }
}

static void eight_replicas_have_equal_bits(void)
{
    for (int gathers = 0; gathers < 2; gathers++) {
        struct parity_case c =
            case_of(gpt2, (struct mics_shape){4, 2, 1, 1, 1}, MICS_INT8, MICS_INT8);

        c.choice.sync_gathers = gathers;
        check_close(&c, INT8_TOLERANCE);
    }
}

/* The same parameters, bit for bit? */
static void check_equal(const struct parity_result *a, const struct parity_case *c)
{
    struct parity_result *b = run(c);
    char name[200];

    CHECK(a && b);
    if (a && b && parity_distance(c, a, b) != 0) {
        CHECK(false);
        printf("# in %s\n", cases_name(&c->choice, name, sizeof name));
    }
    parity_result_free(b);
}

/* Blocks are at multiples of 256 elements of a unit, whatever its segments. */
static void segments_slots_and_delays_change_no_bit_of_blocks(void)
{
    for (int gathers = 0; gathers < 2; gathers++)
        for (uint32_t p = 1; p <= 2; p++) {
            const struct mics_shape shape = {2, 2, p, p, 2};
            struct parity_case c = case_of(llama, shape, MICS_INT4, MICS_INT8);

            if (tap_leaves_out(3))
                continue;
            c.choice.sync_gathers = gathers;
            struct parity_result *first = run(&c);

            check_equal(first, &c);
            for (uint32_t segments = 2; segments <= 4; segments++) {
                c.choice.segments = segments;
                check_equal(first, &c);
            }
            c.choice.prefetch = 0;
            c.choice.grad_slots = 1;
            check_equal(first, &c);
            c.choice.coalesce = 4;
            c.choice.grad_slots = 8;
            check_equal(first, &c);
            c.random_delay_us = 300;
            check_equal(first, &c);
            parity_result_free(first);
        }
}

/* Draws are of elements of a unit, not of segments or calls. */
static void stochastic_rounding_is_the_same_in_every_run(void)
{
    struct parity_case c = case_of(gpt2, (struct mics_shape){2, 2, 1, 1, 2}, MICS_INT8, MICS_INT8);

    for (int gathers = 0; gathers < 2; gathers++) {
        c.choice.sync_gathers = gathers;
        c.choice.segments = 1;
        c.choice.sync_stochastic = false;
        struct parity_result *nearest = run(&c);
        c.choice.sync_stochastic = true;
        struct parity_result *first = run(&c);

        CHECK(nearest && first && parity_distance(&c, nearest, first) > 0);
        check_close(&c, 2 * INT8_TOLERANCE);
        check_equal(first, &c);
        c.choice.segments = 3;
        check_equal(first, &c);
        parity_result_free(nearest);
        parity_result_free(first);
    }
}

/* Parameters are exact on the ranks that update them, so the error does not grow. */
static void gathers_in_int8_train_close_to_exact(void)
{
    struct parity_case c = case_of(llama, (struct mics_shape){2, 2, 4, 4, 4}, MICS_F32, MICS_F32);

    c.choice.gather_dtype = MICS_INT8;
    c.choice.hierarchical_gather = true;
    check_close(&c, 2e-2);
    struct parity_result *first = run(&c);
    c.choice.coalesce = 2;
    c.choice.segments = 2;
    c.random_delay_us = 300;
    check_equal(first, &c);
    parity_result_free(first);
    c.choice.dtype = MICS_BF16;
    check_close(&c, 2e-2);
}

static bool is_conversion(const struct mics_op *op)
{
    return op->kind == MICS_OP_CONVERT;
}

static bool is_all_to_all(const struct mics_op *op)
{
    return op->kind == MICS_OP_SYNC && op->collective == MICS_ALL_TO_ALL;
}

static bool is_sum(const struct mics_op *op)
{
    return is_conversion(op) && op->parts > 1;
}

static struct parity_case mutant_case(void)
{
    return case_of(gpt2, (struct mics_shape){2, 2, 2, 2, 2}, MICS_INT8, MICS_INT8);
}

/* Does a schedule train to the same bits as `whole` did? */
static bool changes_no_bit(struct parity_case c, const struct mics_schedule *schedule,
                           const struct parity_result *whole)
{
    struct mics_err err = {""};
    struct parity_result *result = NULL;
    bool same = false;

    c.schedule = schedule;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    if (result && whole)
        same = parity_distance(&c, whole, result) == 0;
    parity_result_free(result);
    return same;
}

static void a_hop_that_is_left_out_is_detected(void)
{
    if (TAP_TSAN)
        TAP_SKIP("without it, streams race on purpose");
    static bool (*const drops[])(const struct mics_op *) = {NULL, is_conversion, is_all_to_all,
                                                            is_sum};
    const struct parity_case c = mutant_case();
    struct parity_result *whole = run(&c);
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    for (size_t i = 0; schedule && i < sizeof drops / sizeof *drops; i++) {
        struct mics_schedule mutant = mutant_new(schedule, drops[i], MICS_NONE);

        CHECK(changes_no_bit(c, &mutant, whole) == (drops[i] == NULL));
        mutant_free(&mutant);
    }
    mics_schedule_free(schedule);
    parity_result_free(whole);
}

/* Without the wait of an operation of `kind` on one of kind `on`, which is slow. */
static void check_dropped_wait(const struct mics_schedule *schedule, enum mics_op_kind kind,
                               enum mics_op_kind on, const struct parity_result *whole)
{
    struct parity_case c = mutant_case();
    uint32_t slow = MICS_NONE;
    const uint32_t dep = mutant_find_dep(schedule, kind, on, false, &slow);

    CHECK(dep != MICS_NONE);
    if (dep == MICS_NONE)
        return;
    struct mics_schedule mutant = mutant_new(schedule, NULL, dep);
    c.slow_op = slow;
    c.slow_us = 20000;
    CHECK(changes_no_bit(c, schedule, whole));
    CHECK(!changes_no_bit(c, &mutant, whole));
    mutant_free(&mutant);
}

/* On the stream of their collectives conversions need no waits, so they are moved to another. */
static void a_wait_that_is_lost_is_detected(void)
{
    if (TAP_TSAN)
        TAP_SKIP("without it, streams race on purpose");
    struct parity_case c = mutant_case();
    struct mics_schedule *schedule = NULL;
    struct parity_result *whole = run(&c);

    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return;
    check_dropped_wait(schedule, MICS_OP_CONVERT, MICS_OP_ACCUMULATE, whole);
    check_dropped_wait(schedule, MICS_OP_NORM, MICS_OP_CONVERT, whole);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (is_conversion(&schedule->ops[i]))
            schedule->ops[i].stream = MICS_STREAM_GATHER_NET;
    schedule->dep_total = 0;
    CHECK_INT(mics_schedule_add_dependencies(schedule, &c.choice, NULL), MICS_OK);
    check_dropped_wait(schedule, MICS_OP_SYNC, MICS_OP_CONVERT, whole);
    check_dropped_wait(schedule, MICS_OP_CONVERT, MICS_OP_SYNC, whole);
    mics_schedule_free(schedule);
    parity_result_free(whole);
}

int main(void)
{
    use_one_core();
    gpt2 = cases_gpt2();
    llama = cases_llama(true);
    TAP_RUN(int8_trains_close_to_exact_for_every_cut_of_2_3_and_4_ranks);
    TAP_RUN(int4_trains_close_to_exact_for_every_cut_of_3_ranks);
    TAP_RUN(some_units_may_have_an_exact_second_hop);
    TAP_RUN(eight_replicas_have_equal_bits);
    TAP_RUN(segments_slots_and_delays_change_no_bit_of_blocks);
    TAP_RUN(stochastic_rounding_is_the_same_in_every_run);
    TAP_RUN(gathers_in_int8_train_close_to_exact);
    TAP_RUN(a_gradient_that_is_not_finite_in_one_replica_is_seen_by_all);
    TAP_RUN(a_hop_that_is_left_out_is_detected);
    TAP_RUN(a_wait_that_is_lost_is_detected);
    mics_model_free(gpt2);
    mics_model_free(llama);
    return tap_done();
}
