/* SPDX-License-Identifier: Apache-2.0 */
/* test_print.c - what a plan says of itself: reasons, alternatives, costs. Plans made by hand. */
#include "plan/plan_print.h"
#include "plan/search/search.h"
#include "tap.h"

#include <stdlib.h>

#include "plan_fake.h"

#define GIB ((uint64_t)1 << 30)

static struct mics_err err;
static struct fake_model fake;
static struct mics_topology topology;
static struct mics_alternative alternatives[64];
static struct mics_plan plan;
static char text[MICS_PLAN_REASONS_BYTES];

/* A plan of 8 nodes x 8 with these shards, of which nothing else is known. */
static void begin(const char *strategy, uint32_t p_param, uint32_t p_grad, uint32_t p_optim)
{
    fake_model_init(&fake, 2, 1 << 20, 1 << 20, false);
    topology = (struct mics_topology){.nodes = 8,
                                      .per_node = 8,
                                      .device = "GPU",
                                      .flops = 1e12,
                                      .flops_dtype = "bf16",
                                      .memory_bandwidth = 1e12};
    plan = (struct mics_plan){.topology = &topology,
                              .model = &fake.model,
                              .choice = fake_choice(8, 8, p_param, p_grad, p_optim),
                              .memory_limit = 10 * GIB,
                              .global_batch = 128,
                              .memory = {.arena_bytes = 4 * GIB},
                              .predicted = {.step_s = 2,
                                            .tokens_per_s = 1000,
                                            .compute_s = 1.5,
                                            .comm_s = 1,
                                            .exposed_s = 0.25},
                              .alternatives = alternatives};
    snprintf(plan.choice.strategy, sizeof plan.choice.strategy, "%s", strategy);
    alternatives[0] = (struct mics_alternative){
        .choice = plan.choice, .total_bytes = 4 * GIB, .fits = true, .predicted = plan.predicted};
    plan.alternative_count = 1;
}

static struct mics_alternative *add(const char *strategy, uint32_t p_param, uint32_t p_grad,
                                    uint32_t p_optim, uint64_t bytes, double step_s)
{
    struct mics_alternative *each = &alternatives[plan.alternative_count++];

    *each = (struct mics_alternative){
        .choice = fake_choice(8, 8, p_param, p_grad, p_optim),
        .total_bytes = bytes,
        .fits = bytes <= plan.memory_limit,
        .why = "it lost for a reason of many words",
        .predicted = {.step_s = step_s, .tokens_per_s = step_s > 0 ? 128 * 128 / step_s : 0}};
    snprintf(each->choice.strategy, sizeof each->choice.strategy, "%s", strategy);
    return each;
}

static bool says(const char *words)
{
    mics_plan_reasons(&plan, text);
    if (strstr(text, words))
        return true;
    printf("# \"%s\" has no \"%s\"\n", text, words);
    return false;
}

static void the_fewest_ranks_that_hold_a_copy_are_a_reason(void)
{
    begin("mics", 16, 16, 16);
    add("mics", 8, 8, 8, 13 * GIB + GIB / 8, 0);
    add("mics", 4, 4, 4, 20 * GIB, 0);
    CHECK(says("16 ranks are the fewest that hold one copy of the state: 8 ranks would need 3.12 "
               "GiB more each."));
    plan.alternative_count = 1;
    add("zero2", 1, 64, 64, 11 * GIB, 0);
    CHECK(says("16 ranks are the fewest that hold one copy of the state: one rank would need 1 GiB "
               "more."));
    begin("custom", 16, 16, 64);
    add("custom", 8, 8, 64, 12 * GIB, 0);
    CHECK(says("the fewest that hold one copy of the parameters: 8 ranks would need 2 GiB more"));
}

static void a_smaller_group_that_is_slower_is_a_reason(void)
{
    struct mics_alternative *other;

    begin("mics", 16, 16, 16);
    other = add("mics", 8, 8, 8, 9 * GIB, 2.5);
    add("mics", 4, 4, 4, 20 * GIB, 0);
    CHECK(says("One copy of the state also fits on 8 ranks instead of 16, but a step would take "
               "25 % longer."));
    other->predicted.step_s = 2.1;
    CHECK(says("would take 5.0 % longer."));
    other->predicted.step_s = 5;
    CHECK(says("would take 2.5 times as long."));
    other->predicted.step_s = 2.001;
    CHECK(says("would take as long."));
    other->predicted.step_s = 1.96;
    CHECK(says("would take 2 % less, which is within the error of prediction."));
    other->predicted = (struct mics_prediction){.step_s = 3}; /* a bound */
    CHECK(says("would take at least 50 % longer."));
    begin("mics", 16, 16, 16); /* no smaller group holds the whole state */
    add("custom", 8, 8, 64, 9 * GIB, 2.001);
    CHECK(says("One copy of the parameters also fits on 8 ranks instead of 16, with the optimizer "
               "state on 64, but a step would take as long and use larger groups."));
    add("mics", 8, 8, 8, 12 * GIB, 0);
    CHECK(says("16 ranks are the fewest that hold one copy of the state: 8 ranks would need 2 GiB "
               "more each."));
    begin("custom", 16, 16, 64);
    add("mics", 8, 8, 8, 12 * GIB, 0);
    add("custom", 8, 8, 64, 9 * GIB, 2.5);
    CHECK(says("also fits on 8 ranks instead of 16, with the optimizer state on 64, but a step "
               "would take 25 % longer."));
}

static void whole_parameters_have_reasons_of_their_own(void)
{
    begin("zero1", 1, 1, 64);
    add("ddp", 1, 1, 1, 12 * GIB, 0);
    add("mics", 8, 8, 8, 9 * GIB, 3);
    CHECK(says("Every rank holds all parameters, and optimizer state is sharded over 64: with "
               "fewer shards, 2 GiB would be missing."));
    begin("zero2", 1, 64, 64);
    add("ddp", 1, 1, 1, 9 * GIB, 4);
    CHECK(says("gradients and optimizer state are sharded over 64: with fewer shards a step would "
               "take 2 times as long."));
    begin("ddp", 1, 1, 1);
    add("mics", 8, 8, 8, 2 * GIB, 4);
    CHECK(says("The whole state fits on every rank: 4 GiB of 10 GiB."));
}

static void a_strategy_without_smaller_ones_says_so(void)
{
    begin("mics", 16, 16, 16);
    CHECK(says("No strategy with fewer shards was allowed; this one takes 4 GiB of 10 GiB."));
    add("zero3", 64, 64, 64, 2 * GIB, 3);
    CHECK(says("No strategy with fewer shards was allowed"));
}

static void the_costliest_exchange_is_named_with_what_is_hidden(void)
{
    begin("mics", 16, 16, 16);
    CHECK(says(" Exchanges take 1 s of a step of 2 s; 750 ms of it overlap with computation."));
    plan.classes.busy_s[MICS_CLASS_GATHER_NET] = 0.31;
    plan.classes.exposed_s[MICS_CLASS_GATHER_NET] = 0.03;
    plan.classes.busy_s[MICS_CLASS_REDUCE_NODE] = 0.5;
    CHECK(says(" Gathers over the network take 310 ms of a step of 2 s; 280 ms of it overlap "
               "with computation."));
    plan.classes.exposed_s[MICS_CLASS_GATHER_NET] = 0.31;
    CHECK(says("none of it overlaps with computation."));
    plan.classes.exposed_s[MICS_CLASS_GATHER_NET] = 0.01; /* below 1 % of the step */
    CHECK(says(" Reductions inside nodes take 500 ms of a step of 2 s; all of it overlaps with "));
}

static void one_rank_communicates_nothing(void)
{
    begin("ddp", 1, 1, 1);
    mics_choice_set_shape(&plan.choice, (struct mics_shape){1, 1, 1, 1, 1});
    CHECK(says(" A step of 2 s is computation only."));
}

/* The table, in a buffer that the next call overwrites. */
static const char *print(unsigned width)
{
    static char table[1 << 16];
    FILE *out = fmemopen(table, sizeof table, "w");

    memset(table, 0, sizeof table);
    CHECK_INT(mics_plan_print_alternatives(out, &plan, width, &err), MICS_OK);
    fclose(out);
    return table;
}

static size_t widest(const char *lines)
{
    size_t most = 0;

    for (; *lines; lines += strcspn(lines, "\n") + 1)
        if (strcspn(lines, "\n") > most)
            most = strcspn(lines, "\n");
    return most;
}

static void the_table_fits_the_width_and_names_its_peak(void)
{
    begin("mics", 16, 16, 16);
    plan.alternatives[0].predicted.net_bytes = 29 * GIB + GIB / 3;
    add("custom", 32, 32, 64, 9 * GIB + GIB / 3, 2.35);
    add("ddp", 1, 1, 1, 113 * GIB, 0);
    add("zero3", 64, 64, 64, 3 * GIB, 17)->predicted.tokens_per_s = 0;
    CHECK(widest(print(80)) <= 80);
    CHECK(strstr(print(80), "mics:16 *") != NULL);
    CHECK(strstr(print(80), "MFU: 6N + 6LCT FLOPs per token, of 1 TFLOP/s per rank") != NULL);
    CHECK(strstr(print(80), "sustained in bf16 (the topology has no vendor's peak)") != NULL);
    CHECK(strstr(print(80), "32/32/n ") != NULL && strstr(print(80), "n: all 64 ranks") != NULL);
    CHECK(strstr(print(80), ">=17 s") != NULL &&
          strstr(print(80), ">=, <=: not simulated") != NULL);
    CHECK(strstr(print(100), " >= 17 s") != NULL && strstr(print(100), " - ") == NULL);
    CHECK(strstr(print(80), "103 GiB\n") != NULL);
    CHECK(widest(print(100)) <= 100);
    CHECK(strstr(print(100), "  +18 %\n") != NULL &&
          strstr(print(100), "  >= 8.5 times\n") != NULL);
    CHECK(strstr(print(80), "count as equal") == NULL);
    add("mics", 32, 32, 32, 9 * GIB, 1.9999);
    CHECK(strstr(print(100), "  equal\n") != NULL && widest(print(80)) <= 80);
    CHECK(strstr(print(80), "steps within 0.5 % count as equal; ") != NULL);
    CHECK(widest(print(200)) <= 200 &&
          strstr(print(200), "  it lost for a reason of many words\n") != NULL);
    topology.doc = json_pack("{s:{s:f}}", "device", "peak_flops_per_s", 2e12);
    CHECK(strstr(print(80), "of 2 TFLOP/s per rank,\n     the vendor's peak in bf16") != NULL);
    json_decref(topology.doc);
    topology.doc = NULL;
}

static void of_many_alternatives_some_are_shown_and_all_are_counted(void)
{
    uint32_t lines = 0;

    begin("mics", 16, 16, 16);
    for (uint32_t i = 0; i < 30; i++)
        add("mics", 2, 2, 2, 5 * GIB, 3 + i);
    for (uint32_t i = 0; i < 20; i++)
        add("mics", 2, 2, 2, (11 + i) * GIB, 0);
    add("zero3", 64, 64, 64, 3 * GIB, 99); /* slowest, but the only one of its strategy */
    CHECK(strstr(print(100), "\nzero3 ") != NULL);
    CHECK(strstr(print(100), "and 20 more that fit; --tsv prints all") != NULL);
    CHECK(strstr(print(100), "and 15 more that do not fit; --tsv prints all") != NULL);
    for (const char *c = print(0); *c; c++)
        lines += *c == '\n';
    CHECK_INT(lines, 1 + plan.alternative_count);
}

static void training_costs_follow_from_the_predicted_rate(void)
{
    struct mics_training_cost cost;

    begin("mics", 16, 16, 16);
    CHECK_NEAR(mics_plan_training_cost(&plan).seconds, 0, 0);
    plan.training = (struct mics_training){.tokens = 3600000, .node_hour_price = 20};
    cost = mics_plan_training_cost(&plan);
    CHECK_NEAR(cost.seconds, 3600, 1e-9);
    CHECK_NEAR(cost.rank_hours, 64, 1e-9);
    CHECK_NEAR(cost.node_hours, 8, 1e-9);
    CHECK_NEAR(cost.price, 160, 1e-9);
}

int main(void)
{
    TAP_RUN(the_fewest_ranks_that_hold_a_copy_are_a_reason);
    TAP_RUN(a_smaller_group_that_is_slower_is_a_reason);
    TAP_RUN(whole_parameters_have_reasons_of_their_own);
    TAP_RUN(a_strategy_without_smaller_ones_says_so);
    TAP_RUN(the_costliest_exchange_is_named_with_what_is_hidden);
    TAP_RUN(one_rank_communicates_nothing);
    TAP_RUN(the_table_fits_the_width_and_names_its_peak);
    TAP_RUN(of_many_alternatives_some_are_shown_and_all_are_counted);
    TAP_RUN(training_costs_follow_from_the_predicted_rate);
    return tap_done();
}
