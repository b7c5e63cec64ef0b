/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_orders.c - training on emulated GPUs, in orders of their streams that CUDA allows
 * (tests/emulator/order.h).
 *
 * No order changes a bit of what is trained; and each mistake that a real GPU might forgive by
 * chance, a wait that is missing or pinned memory that is used again too early, is noticed in one
 * of them.
 */
#include "cases.h"
#include "device/plugin.h"
#include "mutate.h"
#include "unit/plugin_path.h"
#include "unit/tap.h"

static const char *const orders[] = {"late", "others", "early", "1", "2", "3"};
enum { ORDERS = sizeof orders / sizeof *orders };

static struct mics_model *integer;
static const struct mics_plugin *plugin;

/* Three micro-steps of three steps, on nodes of two ranks. */
static struct parity_case make_case(const struct mics_shape *shape)
{
    struct parity_case c = {.model = integer,
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

/* How far the parameters are from those of one rank on the host; infinity when it fails. */
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

/* In how many orders is the result another one? */
static int times_noticed(const struct parity_case *c)
{
    int noticed = 0;

    for (int i = 0; i < ORDERS; i++) {
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

        CHECK_INT(times_noticed(&c), 0);
    }
}

static void nor_where_the_host_carries_collectives(void)
{
    const struct parity_case c = make_case(&mics);

    setenv("MICS_COMM", "staged", 1);
    CHECK_INT(times_noticed(&c), 0);
    unsetenv("MICS_COMM");
}

static void dropped_wait_is_noticed(enum mics_op_kind kind, enum mics_op_kind on, bool crossing,
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
        CHECK(times_noticed(&c) > 0);
        mutant_free(&mutant);
    }
    mics_schedule_free(schedule);
}

static void a_dropped_wait_of_the_schedule_is_noticed(void)
{
    dropped_wait_is_noticed(MICS_OP_FORWARD, MICS_OP_GATHER, false, false);
    dropped_wait_is_noticed(MICS_OP_GATHER, MICS_OP_UPDATE, true, false);
    dropped_wait_is_noticed(MICS_OP_REDUCE, MICS_OP_BACKWARD, false, false);
}

/* NCCL keeps the order of its launches, which nearly makes up for it; the host's way does not. */
static void a_dropped_wait_for_the_second_hop_is_noticed(void)
{
    setenv("MICS_COMM", "staged", 1);
    dropped_wait_is_noticed(MICS_OP_NORM, MICS_OP_SYNC, false, true);
    unsetenv("MICS_COMM");
}

/* The first wait of a step is that of its computations for the batch. */
static void a_forgotten_wait_for_the_batch_is_noticed(void)
{
    const struct parity_case c = make_case(&one);

    setenv("MICS_EMULATED_FORGET", "1", 1);
    CHECK(times_noticed(&c) > 0);
    unsetenv("MICS_EMULATED_FORGET");
}

static void a_batch_that_is_used_again_too_early_is_noticed(void)
{
    struct parity_case c = make_case(&one);

    c.choice.micro_steps = 1;
    c.reuses_batch = true;
    CHECK(times_noticed(&c) > 0);
    CHECK(distance_in(&c, "early") == 0); /* as on a GPU that is fast enough */
}

int main(void)
{
    struct mics_plugin_file *file = NULL;
    char emulated[4096];
    struct mics_err err;

    in_build("emulated", emulated);
    setenv("MICS_PLUGIN_PATH", emulated, 1);
    setenv("MICS_EMULATED_PATIENCE_MS", "500", 1); /* however slow this machine is */
    if (mics_plugin_open(&file, &err) != MICS_OK) {
        printf("1..0 # SKIP %s\n", err.text);
        return 0;
    }
    plugin = mics_plugin_table(file);
    integer = cases_integer();
    TAP_RUN(no_order_changes_what_is_trained);
    TAP_RUN(nor_where_the_host_carries_collectives);
    TAP_RUN(a_dropped_wait_of_the_schedule_is_noticed);
    TAP_RUN(a_dropped_wait_for_the_second_hop_is_noticed);
    TAP_RUN(a_forgotten_wait_for_the_batch_is_noticed);
    TAP_RUN(a_batch_that_is_used_again_too_early_is_noticed);
    mics_model_free(integer);
    mics_plugin_close(file);
    return tap_done();
}
