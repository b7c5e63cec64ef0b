/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_offload.c - optimizer states and masters in host memory (mics_plan_choice.offload_piece)
 * give the bits of states on the device: on hosts, and on emulated GPUs in all orders in which
 * their streams may run.
 */
#include "cases.h"
#include "device/plugin.h"
#include "mutate.h"
#include "one_core.h"
#include "unit/plugin_path.h"
#include "unit/tap.h"

static const char *const orders[] = {"late", "others", "early", "1", "2", "3"};
enum { ORDERS = sizeof orders / sizeof *orders };

/* A multiple of 64 elements, so that the small models have many pieces, the last ones shorter. */
enum { PIECE = 192 };

static struct mics_model *integer_model, *gpt2, *experts;
static const struct mics_plugin *plugin;

static const struct mics_shape shapes[] = {
    {1, 1, 1, 1, 1},                                   /* one rank */
    {1, 4, 4, 4, 4}, {2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}, /* updates are published */
    {2, 2, 1, 1, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct parity_case make_case(const struct mics_shape *shape, enum mics_optimizer optimizer)
{
    struct parity_case c = {.model = gpt2,
                            .choice = cases_choice(shape),
                            .steps = 4,
                            .lr = optimizer == MICS_OPT_SGD ? 0.1f : 1e-3f,
                            .clip = 0.5f,
                            .slow_op = MICS_NONE};

    c.choice.optimizer = optimizer;
    c.choice.micro_steps = 2;
    c.choice.clip = true;
    return c;
}

/* Run a case; with an overflow in one step, if there is an injection. */
static struct parity_result *run(struct parity_case c, const struct parity_injection *overflow)
{
    struct parity_injection injection;
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    if (overflow) {
        injection = *overflow;
        c.watch = parity_inject;
        c.watch_context = &injection;
    }
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return result;
}

/* Is what a case trains the same, bit for bit, with and without states in host memory? */
static bool is_equal_with(struct parity_case c, const struct parity_injection *overflow)
{
    struct parity_result *device = run(c, overflow), *host;
    bool equal = false;

    c.choice.offload_piece = PIECE;
    host = run(c, overflow);
    if (device && host) {
        equal = parity_distance(&c, device, host) == 0 && host->loss == device->loss &&
                host->grad_norm == device->grad_norm && host->eval_loss == device->eval_loss &&
                host->replicas_agree;
        CHECK(host->high_water + MICS_REGION_COUNT * 4096 > host->arena_bytes);
    }
    parity_result_free(device);
    parity_result_free(host);
    return equal;
}

static bool is_equal_to_device(struct parity_case c)
{
    return is_equal_with(c, NULL);
}

static void hosts_train_the_same_with_every_optimizer_and_cut(void)
{
    for (int optimizer = 0; optimizer < MICS_OPT_COUNT; optimizer++)
        for (int i = 0; i < SHAPES; i++) {
            struct parity_case c = make_case(&shapes[i], (enum mics_optimizer)optimizer);

            c.choice.segments = i == 1 ? 2 : 1;
            c.choice.clip = i != 3;
            c.clip = i != 3 ? c.clip : 0;
            c.choice.recompute = i == 2 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_NONE;
            c.random_delay_us = i == 1 ? 200 : 0;
            CHECK(is_equal_to_device(c));
        }
}

static void masters_of_parameters_in_16_bits_are_in_host_memory_too(void)
{
    for (int i = 0; i < SHAPES; i++) {
        struct parity_case c = make_case(&shapes[i], MICS_OPT_ADAMW);

        c.choice.dtype = c.choice.grad_dtype = i == 2 ? MICS_F16 : MICS_BF16;
        CHECK(is_equal_to_device(c));
    }
}

static void secondary_shards_are_made_of_updated_pieces(void)
{
    struct parity_case c = make_case(&(struct mics_shape){2, 2, 2, 4, 4}, MICS_OPT_ADAMW);

    c.choice.secondary_shards = true;
    c.choice.dtype = c.choice.grad_dtype = MICS_BF16;
    CHECK(is_equal_to_device(c));
}

/* What units carry is updated outside of steps, too. */
static void units_may_take_turns(void)
{
    struct parity_case c = make_case(&shapes[2], MICS_OPT_ADAMW);

    c.choice.sync_interval = 3;
    c.steps = 7;
    c.carried_every = 5;
    CHECK(is_equal_to_device(c));
}

static void second_hops_may_be_in_blocks(void)
{
    for (int i = 0; i < 3; i++) {
        struct parity_case c = make_case(&shapes[i == 2 ? 4 : 2], MICS_OPT_ADAMW);

        c.choice.dtype = c.choice.grad_dtype = MICS_BF16;
        c.choice.sync_dtype = i == 1 ? MICS_INT4 : MICS_INT8;
        c.choice.sync_down_dtype = MICS_INT8;
        c.choice.sync_gathers = i == 2;
        c.choice.sync_stochastic = i == 1;
        c.choice.sync_interval = i == 1 ? 2 : 0;
        CHECK(is_equal_to_device(c));
    }
}

/* Shards of experts and of other units have different sizes, and share the slots of pieces. */
static void experts_have_groups_of_their_own(void)
{
    for (int i = 0; i < 4; i++) {
        struct parity_case c = make_case(&shapes[i % 2 ? 2 : 4], MICS_OPT_ADAMW);

        c.model = experts;
        c.choice.shapes[MICS_UNIT_EXPERT] = (struct mics_shape){2, 2, 4, 4, 4};
        c.choice.dispatches = i / 2;
        c.choice.dtype = c.choice.grad_dtype = i == 3 ? MICS_F16 : MICS_BF16;
        CHECK(is_equal_to_device(c));
    }
}

/* In fp16 the step of an overflow loads and stores what it does not change. */
static void steps_that_overflow_are_skipped(void)
{
    for (uint32_t interval = 1; interval <= 2; interval++) {
        struct parity_case c = make_case(&shapes[interval + 1], MICS_OPT_ADAMW);
        struct parity_injection overflow;

        c.choice.dtype = c.choice.grad_dtype = MICS_F16;
        c.choice.sync_interval = interval;
        c.carried_every = 4;
        overflow = parity_injection_in(&c, 3);
        CHECK(is_equal_with(c, &overflow));

        c.choice.offload_piece = PIECE;
        struct parity_result *with = run(c, &overflow), *without = run(c, NULL);
        CHECK(parity_distance(&c, with, without) > 0);
        parity_result_free(with);
        parity_result_free(without);
    }
}

static void outer_steps_are_refused(void)
{
    struct parity_case c = make_case(&shapes[2], MICS_OPT_ADAMW);
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.choice.offload_piece = PIECE;
    c.choice.outer_steps = 2;
    c.choice.outer_lr = 0.7;
    CHECK_INT(parity_run(&c, &result, &err), MICS_ERR_ARG);
    CHECK(strstr(err.text, "outer steps need the optimizer's states on the device"));
}

static void emulated_gpus_train_the_same_in_every_order(void)
{
    if (!plugin)
        TAP_SKIP("there are no emulated GPUs");
    for (int i = 0; i < ORDERS; i++) {
        struct parity_case c = make_case(&shapes[i % 4], MICS_OPT_ADAMW);

        setenv("MICS_EMULATED_ORDER", orders[i], 1);
        c.plugin = plugin;
        c.model = integer_model;
        c.steps = 3;
        if (i % 2)
            c.choice.dtype = c.choice.grad_dtype = MICS_BF16;
        CHECK(is_equal_to_device(c));
    }
}

/* Without one of the waits of load, update or store, some order trains something else. */
static int orders_that_notice(enum mics_op_kind kind)
{
    struct parity_case c = make_case(&shapes[0], MICS_OPT_ADAMW);
    struct parity_result *expected = NULL;
    struct mics_schedule *schedule = NULL;
    struct mics_err err = {""};
    int noticed = 0;

    c.plugin = plugin;
    c.model = integer_model;
    c.steps = 3;
    c.choice.offload_piece = PIECE;
    setenv("MICS_EMULATED_ORDER", "early", 1);
    CHECK_INT(parity_run(&c, &expected, &err), MICS_OK);
    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, &err), MICS_OK);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++)
        if (schedule->ops[i].kind == kind)
            schedule->ops[i].dep_count = 0;
    c.schedule = schedule;
    for (int i = 0; i < ORDERS && expected && schedule; i++) {
        struct parity_result *result = NULL;

        setenv("MICS_EMULATED_ORDER", orders[i], 1);
        CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
        noticed += result && parity_distance(&c, expected, result) != 0;
        parity_result_free(result);
    }
    parity_result_free(expected);
    mics_schedule_free(schedule);
    return noticed;
}

static void dropped_waits_are_noticed(void)
{
    static const enum mics_op_kind kinds[] = {MICS_OP_LOAD, MICS_OP_UPDATE, MICS_OP_STORE};

    if (!plugin)
        TAP_SKIP("there are no emulated GPUs");
    for (int i = 0; i < 3; i++)
        CHECK(orders_that_notice(kinds[i]) > 0);
}

int main(void)
{
    use_one_core();
    struct mics_plugin_file *file = NULL;
    char emulated[4096];
    struct mics_err err;

    integer_model = cases_integer_model();
    gpt2 = cases_gpt2();
    experts = cases_experts(false);
    in_build("emulated", emulated);
    setenv("MICS_PLUGIN_PATH", emulated, 1);
    setenv("MICS_EMULATED_PATIENCE_MS", "500", 1); /* enough on a slow machine */
    /* Not under ThreadSanitizer: the races of dropped waits are intended. */
    if (!TAP_TSAN && mics_plugin_open(&file, &err) == MICS_OK)
        plugin = mics_plugin_table(file);
    else if (!TAP_TSAN)
        printf("# not on emulated GPUs: %s\n", err.text);
    TAP_RUN(hosts_train_the_same_with_every_optimizer_and_cut);
    TAP_RUN(masters_of_parameters_in_16_bits_are_in_host_memory_too);
    TAP_RUN(secondary_shards_are_made_of_updated_pieces);
    TAP_RUN(units_may_take_turns);
    TAP_RUN(second_hops_may_be_in_blocks);
    TAP_RUN(experts_have_groups_of_their_own);
    TAP_RUN(steps_that_overflow_are_skipped);
    TAP_RUN(outer_steps_are_refused);
    TAP_RUN(emulated_gpus_train_the_same_in_every_order);
    TAP_RUN(dropped_waits_are_noticed);
    mics_model_free(integer_model);
    mics_model_free(gpt2);
    mics_model_free(experts);
    mics_plugin_close(file);
    return tap_done();
}
