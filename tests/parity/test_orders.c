/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_orders.c - training on emulated GPUs whose streams execute in different orders that CUDA
 * allows (tests/emulator/order.h).
 *
 * No order changes a bit of the result. Each bug that a real GPU might hide by chance, such as a
 * missing wait or pinned memory that is reused too early, is detected in at least one order.
 */
#include "cases.h"
#include "device/plugin.h"
#include "mutate.h"
#include "one_core.h"
#include "unit/plugin_path.h"
#include "unit/tap.h"

static const char *const orders[] = {"late", "others", "early", "1", "2", "3"};
/* With a sanitizer the first and a random one: the code is the same in all. */
enum { ORDERS = sizeof orders / sizeof *orders, NEXT_ORDER = TAP_SANITIZED ? 3 : 1 };

static struct mics_model *integer_model;
static const struct mics_plugin *plugin;

/* Three steps of three micro-steps. */
static struct parity_case make_case(const struct mics_shape *shape)
{
    struct parity_case c = {.model = integer_model,
                            .choice = cases_choice(shape),
                            .steps = 3,
                            .lr = 0.5f,
                            .slow_op = MICS_NONE,
                            .plugin = plugin};

    c.choice.micro_steps = 3;
    return c;
}

static const struct mics_shape zero3 = {1, 2, 2, 2, 2}, mics = {2, 2, 2, 2, 2},
                               one = {1, 1, 1, 1, 1};

/* Distance of the parameters from those of one rank on the host; infinity on failure. */
static double distance_in(const struct parity_case *c, const char *order)
{
    const struct parity_case reference_case = parity_reference(c);
    struct parity_result *result = NULL, *reference = NULL;
    struct mics_err err = {""};
    double distance = INFINITY;

    setenv("MICS_EMULATED_ORDER", order, 1);
    CHECK_INT(parity_run(&reference_case, &reference, &err), MICS_OK);
    if (parity_run(c, &result, &err) == MICS_OK && reference)
        distance = parity_distance(c, reference, result);
    else
        printf("# %s: %s\n", order, err.text);
    parity_result_free(result);
    parity_result_free(reference);
    return distance;
}

/* Second hops and gathers in blocks: on GPUs, in all orders, the bits of hosts. */
static void blocks_have_the_bits_of_hosts_in_every_order(void)
{
    static const struct mics_shape shapes[] = {{2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}, {2, 2, 4, 4, 4}};

    for (int i = 0; i < 3; i++) {
        struct parity_case c = make_case(&shapes[i]), host;
        struct parity_result *expected = NULL, *result = NULL;
        struct mics_err err = {""};

        c.choice.sync_dtype = i == 1 ? MICS_INT4 : MICS_INT8;
        c.choice.sync_down_dtype = MICS_INT8;
        c.choice.sync_stochastic = i == 1;
        c.choice.gather_dtype = MICS_INT8;
        c.choice.hierarchical_gather = true;
        host = c;
        host.plugin = NULL;
        CHECK_INT(parity_run(&host, &expected, &err), MICS_OK);
        for (int order = 0; order < ORDERS && expected; order += NEXT_ORDER) {
            setenv("MICS_EMULATED_ORDER", orders[order], 1);
            CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
            CHECK(result && parity_distance(&c, expected, result) == 0);
            CHECK(result && result->replicas_agree);
            parity_result_free(result);
            result = NULL;
        }
        CHECK_STR(err.text, "");
        parity_result_free(expected);
    }
}

/* Rounds that no rank needs. */
static bool is_second_round(const struct mics_op *op)
{
    return op->comm == MICS_COMM_DISPATCH && op->kind == MICS_OP_DISPATCH && op->round > 0;
}

/* Sends of tokens in a step: in all planned rounds, or in the first ones alone. */
static uint64_t count_sends(const struct parity_case *c, bool all)
{
    struct mics_schedule *schedule = NULL;
    uint64_t sends = 0;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++)
        sends += schedule->ops[i].kind == MICS_OP_DISPATCH &&
                 (all || !is_second_round(&schedule->ops[i]));
    mics_schedule_free(schedule);
    return sends;
}

/* Tokens travel to the experts of two GPUs, which have them evenly, or all on one: then all rounds
 * are sent, and else none is that no rank needs. */
static void check_travelling_tokens(struct mics_model *model, bool even, const char *order,
                                    double capacity)
{
    struct parity_case c = make_case(&mics);
    struct parity_result *result = NULL, *reference = NULL;
    struct mics_err err = {""};

    c.model = model;
    c.steps = 2;
    c.lr = even ? 0.1f : 0; /* then routers stay as they are */
    c.choice.micro_steps = 2;
    c.choice.dispatches = true;
    const struct parity_case reference_case = parity_reference(&c);

    setenv("MICS_EMULATED_ORDER", order, 1);
    CHECK_INT(parity_run(&reference_case, &reference, &err), MICS_OK);
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (result && reference) {
        const uint64_t calls = result->counts[0][MICS_UNIT_DENSE][MICS_COMM_DISPATCH].calls;
        const uint64_t least = c.steps * count_sends(&c, false);
        const uint64_t most = c.steps * count_sends(&c, true);

        CHECK(parity_distance(&c, reference, result) <= 2e-6);
        CHECK_NEAR(result->loss, reference->loss, 1e-6 * reference->loss);
        CHECK_NEAR(result->grad_norm, reference->grad_norm, 1e-5 * reference->grad_norm);
        CHECK_NEAR(result->eval_loss, reference->eval_loss, 1e-6 * reference->eval_loss);
        CHECK(capacity > 0 ? least == most : least < most);
        CHECK(even ? calls >= least && calls <= most && (calls < most || least == most)
                   : calls == most);
    }
    parity_result_free(result);
    parity_result_free(reference);
}

static void tokens_travel_in_the_rounds_that_are_needed(void)
{
    for (int i = 0; i < 3; i++) {
        struct mics_model *model = cases_experts(false);
        const double capacity = i == 2 ? 1 : 0;

        if (i == 1)
            cases_zero_routers(model);
        if (capacity > 0)
            CHECK_INT(mics_model_set_expert_capacity(&model, capacity, NULL), MICS_OK);
        for (int order = 0; order < (i < 2 ? ORDERS : 2); order++)
            if (!TAP_SANITIZED || order == i % 2) /* a run takes 8 s */
                check_travelling_tokens(model, i != 1, orders[order], capacity);
        setenv("MICS_COMM", "staged", 1);
        if (!TAP_SANITIZED || i == 0)
            check_travelling_tokens(model, i != 1, orders[i], capacity);
        unsetenv("MICS_COMM");
        mics_model_free(model);
    }
}

/* In how many orders does the result differ? */
static int orders_that_differ(const struct parity_case *c)
{
    int noticed = 0;

    for (int i = 0; i < ORDERS; i += NEXT_ORDER) {
        const bool wrong = distance_in(c, orders[i]) != 0;

        noticed += wrong;
        if (wrong)
            printf("# noticed: %s\n", orders[i]);
    }
    return noticed;
}

static void no_order_changes_what_is_trained(void)
{
    static const struct mics_shape *const shapes[] = {&one, &zero3, &mics};

    for (int i = 0; i < 3; i++) {
        const struct parity_case c = make_case(shapes[i]);

        CHECK_INT(orders_that_differ(&c), 0);
    }
}

/* In bf16 the second hop is converted in a staging buffer, which one unit after another uses. */
static void no_order_changes_what_is_converted(void)
{
    struct parity_case c = make_case(&mics);

    c.choice.grad_dtype = MICS_BF16;
    CHECK_INT(orders_that_differ(&c), 0);
}

static void no_order_changes_training_with_host_staging(void)
{
    const struct parity_case c = make_case(&mics);

    setenv("MICS_COMM", "staged", 1);
    CHECK_INT(orders_that_differ(&c), 0);
    unsetenv("MICS_COMM");
}

static void dropped_wait_is_detected(enum mics_op_kind kind, enum mics_op_kind on, bool crossing,
                                     bool slow)
{
    struct parity_case c = make_case(&mics);
    struct mics_schedule *schedule = NULL;
    uint32_t dep_op = MICS_NONE;

    c.choice.prefetch = 0;
    c.choice.grad_slots = 1;
    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    const uint32_t dep = mutant_find_dep(schedule, kind, on, crossing, &dep_op);
    CHECK(dep != MICS_NONE);
    if (dep != MICS_NONE) {
        struct mics_schedule mutant = mutant_new(schedule, NULL, dep);

        c.schedule = &mutant;
        c.slow_op = slow ? dep_op : MICS_NONE;
        c.slow_us = 20000;
        CHECK(orders_that_differ(&c) > 0);
        mutant_free(&mutant);
    }
    mics_schedule_free(schedule);
}

static void a_dropped_wait_of_the_schedule_is_detected(void)
{
    TAP_SKIP_MISTAKES();
    dropped_wait_is_detected(MICS_OP_FORWARD, MICS_OP_GATHER, false, false);
    dropped_wait_is_detected(MICS_OP_GATHER, MICS_OP_UPDATE, true, false);
    dropped_wait_is_detected(MICS_OP_REDUCE, MICS_OP_BACKWARD, false, false);
}

/* NCCL executes in the order of its launches, which nearly hides the bug; host staging does not. */
static void a_dropped_wait_for_the_second_hop_is_detected(void)
{
    TAP_SKIP_MISTAKES();
    setenv("MICS_COMM", "staged", 1);
    dropped_wait_is_detected(MICS_OP_NORM, MICS_OP_SYNC, false, true);
    unsetenv("MICS_COMM");
}

/* The first wait of a step is that of the compute stream for the batch. */
static void a_forgotten_wait_for_the_batch_is_detected(void)
{
    TAP_SKIP_MISTAKES();
    const struct parity_case c = make_case(&one);

    setenv("MICS_EMULATED_FORGET", "1", 1);
    CHECK(orders_that_differ(&c) > 0);
    unsetenv("MICS_EMULATED_FORGET");
}

static void a_batch_that_is_used_again_too_early_is_detected(void)
{
    TAP_SKIP_MISTAKES();
    struct parity_case c = make_case(&one);

    c.choice.micro_steps = 1;
    c.reuses_batch = true;
    CHECK(orders_that_differ(&c) > 0);
    CHECK(distance_in(&c, "early") == 0); /* hidden on a fast GPU */
}

int main(void)
{
    use_one_core();
    struct mics_plugin_file *file = NULL;
    char emulated[4096];
    struct mics_err err;

    in_build("emulated", emulated);
    setenv("MICS_PLUGIN_PATH", emulated, 1);
    setenv("MICS_EMULATED_PATIENCE_MS", "500", 1); /* enough on a slow machine */
    if (mics_plugin_open(&file, &err) != MICS_OK) {
        printf("1..0 # SKIP %s\n", err.text);
        return 0;
    }
    plugin = mics_plugin_table(file);
    integer_model = cases_integer_model();
    TAP_RUN(no_order_changes_what_is_trained);
    TAP_RUN(blocks_have_the_bits_of_hosts_in_every_order);
    TAP_RUN(no_order_changes_what_is_converted);
    TAP_RUN(tokens_travel_in_the_rounds_that_are_needed);
    TAP_RUN(no_order_changes_training_with_host_staging);
    TAP_RUN(a_dropped_wait_of_the_schedule_is_detected);
    TAP_RUN(a_dropped_wait_for_the_second_hop_is_detected);
    TAP_RUN(a_forgotten_wait_for_the_batch_is_detected);
    TAP_RUN(a_batch_that_is_used_again_too_early_is_detected);
    mics_model_free(integer_model);
    mics_plugin_close(file);
    return tap_done();
}
