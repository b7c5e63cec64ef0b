/* SPDX-License-Identifier: Apache-2.0 */
#include "doc/doc.h"
#include "plan/memory.h"
#include "plan/plan_print.h"
#include "plan/search/search.h"
#include "tap.h"

#include <stdlib.h>

static struct mics_err err;

static const struct mics_search_options usual = {
    .global_batch = 64, .seq = 256, .recompute = MICS_AUTO, .prefetch = MICS_AUTO, .clip = true};

/* NULL: there is no plan; then *status and err have the reason. */
static struct mics_plan *search(const char *topology_text, const char *model_name,
                                const struct mics_search_options *options, int *status)
{
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;

    err.text[0] = '\0';
    CHECK_INT(mics_topology_parse(topology_text, &topology, &err), MICS_OK);
    CHECK_INT(mics_model_open(model_name, &model, &err), MICS_OK);
    *status = mics_plan_search(topology, model, options, &plan, &err);
    if (*status != MICS_OK) {
        mics_topology_free(topology);
        mics_model_free(model);
    }
    return plan;
}

#define SLOW_NET "node:4 gpu:4 flops:100T mem:16G membw:1TB/s link:100GB/s,3us net:10gbit,30us"

static void the_plan_fits_and_its_parts_agree(void)
{
    int status;
    struct mics_plan *plan = search(SLOW_NET, "gpt2", &usual, &status);

    CHECK_INT(status, MICS_OK);
    if (!plan)
        return;
    CHECK(mics_memory_total(&plan->memory, plan->topology) <= plan->memory_limit);
    CHECK_INT(plan->global_batch, 64);
    CHECK_INT(16 * plan->choice.micro_batch * plan->choice.micro_steps, 64);
    CHECK_NEAR(plan->predicted.tokens_per_s * plan->predicted.step_s, 64 * 256, 1e-6);
    CHECK(plan->predicted.exposed_s <= plan->predicted.comm_s);
    CHECK(plan->predicted.step_s >= 0.999 * plan->predicted.compute_s);
    mics_plan_free(plan);
}

static void exactly_one_alternative_is_chosen_and_every_other_has_a_reason(void)
{
    int status;
    struct mics_plan *plan = search(SLOW_NET, "gpt2-large", &usual, &status);
    uint32_t chosen = 0;

    if (!plan)
        return;
    for (uint32_t i = 0; i < plan->alternative_count; i++) {
        const struct mics_alternative *a = &plan->alternatives[i];

        chosen += a->why[0] == '\0';
        if (!a->why[0])
            CHECK(memcmp(&a->choice, &plan->choice, sizeof a->choice) == 0 && a->fits);
        if (!a->fits)
            CHECK(strncmp(a->why, "needs ", 6) == 0 && a->total_bytes > plan->memory_limit);
        if (a->fits)
            CHECK(a->predicted.step_s * 1.01 >= plan->predicted.step_s);
    }
    CHECK_INT(chosen, 1);
    mics_plan_free(plan);
}

static void memory_forces_larger_groups(void)
{
    struct mics_search_options options = usual;
    uint32_t last = 1;
    int status;

    options.strategy = "mics";
    options.micro_batch = 1;
    options.seq = 64;
    for (int gib = 16; gib >= 1; gib /= 2) {
        struct mics_plan *plan;

        options.memory_limit = (uint64_t)gib << 30;
        plan = search(SLOW_NET, "gpt2-large", &options, &status);
        if (!plan)
            break;
        CHECK(plan->choice.shapes[MICS_UNIT_DENSE].p_param >= last);
        last = plan->choice.shapes[MICS_UNIT_DENSE].p_param;
        mics_plan_free(plan);
    }
    CHECK(last >= 8);
}

static void on_a_slow_network_the_group_stays_inside_a_node(void)
{
    struct mics_search_options options = usual;
    int status;
    struct mics_plan *plan;

    options.strategy = "mics";
    options.memory_limit = (uint64_t)6 << 30; /* no copy fits one GPU */
    options.global_batch = 1024;              /* 64 or more micro-steps */
    options.micro_batch = 1;
    plan = search("node:8 gpu:4 flops:100T mem:16G membw:1TB/s link:100GB/s,3us net:1gbit,30us",
                  "gpt2-large", &options, &status);
    CHECK_INT(status, MICS_OK);
    if (!plan)
        return;
    CHECK(plan->choice.shapes[MICS_UNIT_DENSE].p_param > 1);
    CHECK(plan->choice.shapes[MICS_UNIT_DENSE].p_param <= 4);
    mics_plan_free(plan);
}

static void strategies_by_name_give_their_cuts(void)
{
    static const struct {
        const char *name, *called;
        uint32_t p_param, p_grad, p_optim;
    } expected[] = {
        {"ddp", "ddp", 1, 1, 1},        {"zero1", "zero1", 1, 1, 16}, {"zero2", "zero2", 1, 16, 16},
        {"zero3", "zero3", 16, 16, 16}, {"mics:8", "mics", 8, 8, 8},
    };

    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct mics_search_options options = usual;
        struct mics_plan *plan;
        int status;

        options.strategy = expected[i].name;
        plan = search(SLOW_NET, "gpt2-nano", &options, &status);
        if (!plan)
            CHECK_STR(err.text, "");
        if (!plan)
            continue;
        CHECK_STR(plan->choice.strategy, expected[i].called);
        CHECK_INT(plan->choice.shapes[MICS_UNIT_DENSE].p_param, expected[i].p_param);
        CHECK_INT(plan->choice.shapes[MICS_UNIT_DENSE].p_grad, expected[i].p_grad);
        CHECK_INT(plan->choice.shapes[MICS_UNIT_DENSE].p_optim, expected[i].p_optim);
        mics_plan_free(plan);
    }
}

static void given_options_are_kept(void)
{
    struct mics_search_options options = usual;
    struct mics_plan *plan;
    int status;

    options.strategy = "mics:4";
    options.micro_batch = 2;
    options.prefetch = 3;
    options.recompute = MICS_RECOMPUTE_FULL;
    options.optimizer = MICS_OPT_SGD;
    options.clip = false;
    plan = search(SLOW_NET, "gpt2-nano", &options, &status);
    if (!plan)
        return;
    CHECK(plan->choice.micro_batch > 1);
    CHECK_INT(plan->choice.micro_steps, 2);
    CHECK_INT(plan->choice.prefetch, 3);
    CHECK_INT(plan->choice.recompute, MICS_RECOMPUTE_FULL);
    CHECK(!plan->choice.clip);
    CHECK_INT(plan->choice.optimizer, MICS_OPT_SGD);
    mics_plan_free(plan);
}

/* On a network of 10 ms and 10 Gbit/s the gathers of a small model are mostly latency; with 1 us
 * they are not. */
static void units_are_coalesced_where_latency_dominates(void)
{
    static const char *const far = "node:4 gpu:1 flops:1000T mem:80G membw:10TB/s net:10gbit,10ms";
    static const char *const low_latency =
        "node:4 gpu:1 flops:1000T mem:80G membw:10TB/s net:10gbit,1us";
    struct mics_search_options options = usual;
    struct mics_plan *plan;
    int status;

    options.strategy = "zero3";
    options.prefetch = 7;
    plan = search(far, "gpt2", &options, &status);
    if (!plan)
        return;
    CHECK_INT(plan->choice.coalesce, 4);
    CHECK_INT(plan->choice.grad_slots, 8);
    mics_plan_free(plan);
    plan = search(low_latency, "gpt2", &options, &status);
    if (!plan)
        return;
    CHECK_INT(plan->choice.coalesce, 1);
    CHECK_INT(plan->choice.grad_slots, 2);
    mics_plan_free(plan);
    options.prefetch = 2; /* too few slots for two sets of four */
    plan = search(far, "gpt2", &options, &status);
    if (!plan)
        return;
    CHECK_INT(plan->choice.coalesce, 1);
    mics_plan_free(plan);
}

/* The limit falls to just below what each level needs. */
static void the_lowest_level_of_recomputation_that_fits_is_chosen(void)
{
    struct mics_search_options options = usual;
    int status;

    options.strategy = "mics:4";
    options.micro_batch = 4;
    options.prefetch = 0;
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct mics_plan *plan = search(SLOW_NET, "gpt2-mini", &options, &status);

        CHECK(plan != NULL);
        if (!plan)
            return;
        CHECK_INT(plan->choice.recompute, level);
        options.memory_limit = mics_memory_total(&plan->memory, plan->topology) - 1;
        mics_plan_free(plan);
        options.recompute = (uint32_t)level;
        CHECK(!search(SLOW_NET, "gpt2-mini", &options, &status));
        CHECK_INT(status, MICS_ERR_INFEASIBLE);
        options.recompute = MICS_AUTO;
    }
    CHECK(!search(SLOW_NET, "gpt2-mini", &options, &status));
    CHECK_INT(status, MICS_ERR_INFEASIBLE);
}

/* Without recomputation only small micro-batches fit, whose gathers take longer than what full
 * recomputation computes again with the largest. */
static void recomputation_is_tried_even_where_plans_fit_without(void)
{
    struct mics_search_options options = usual;
    struct mics_plan *plan;
    double step_s;
    int status;

    options.global_batch = 1024;
    options.seq = 512;
    options.dtype = options.grad_dtype = MICS_BF16;
    plan = search("p4d.24xlarge:2", "gpt2-20b", &options, &status);
    if (!plan)
        CHECK_STR(err.text, "");
    if (!plan)
        return;
    CHECK_INT(plan->choice.recompute, MICS_RECOMPUTE_FULL);
    CHECK(plan->choice.micro_batch > 2);
    step_s = plan->predicted.step_s;
    mics_plan_free(plan);
    options.recompute = MICS_RECOMPUTE_NONE;
    plan = search("p4d.24xlarge:2", "gpt2-20b", &options, &status);
    CHECK(plan && plan->predicted.step_s > 1.2 * step_s);
    mics_plan_free(plan);
}

/* Each level computes more; the additional memory traffic takes time as well. */
static void recomputation_is_predicted_to_cost_time(void)
{
    struct mics_search_options options = usual;
    double last = 0;
    int status;

    options.strategy = "ddp";
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct mics_plan *plan;

        options.recompute = (uint32_t)level;
        plan =
            search("node:1 gpu:1 flops:1000T mem:80G membw:1TB/s", "gpt2-mini", &options, &status);
        CHECK(plan && plan->predicted.compute_s > last);
        last = plan ? plan->predicted.compute_s : 0;
        mics_plan_free(plan);
    }
}

static void refuse(struct mics_search_options options, int want, const char *why)
{
    int status;
    struct mics_plan *plan = search("node:2 gpu:6", "gpt2-nano", &options, &status);

    CHECK_INT(status, want);
    if (!strstr(err.text, why))
        CHECK_STR(err.text, why);
    mics_plan_free(plan);
}

static void invalid_options_are_refused_with_the_closest_valid_ones(void)
{
    struct mics_search_options options = {
        .global_batch = 24, .recompute = MICS_AUTO, .prefetch = MICS_AUTO};

    options.global_batch = 30;
    refuse(options, MICS_ERR_ARG, "not a multiple of the ranks, 12; 24 and 36 are");
    options.global_batch = 36;
    options.micro_batch = 2;
    refuse(options, MICS_ERR_ARG, "ranks times micro-batch, 24; 24 and 48 are");
    options.global_batch = 5;
    refuse(options, MICS_ERR_ARG, "the least is 24");
    options.global_batch = 24;
    options.seq = 257;
    refuse(options, MICS_ERR_ARG, "sequence of 257: the model has 256 positions");
    options.seq = 0;
    options.strategy = "mics:4";
    refuse(options, MICS_ERR_ARG, "strategy: parameter group 4: straddles nodes of 6");
    options.strategy = "mics:x";
    refuse(options, MICS_ERR_ARG, "strategy: 'x'");
    options.strategy = "fsdp";
    refuse(options, MICS_ERR_ARG, "'fsdp': no such strategy");
    options.strategy = NULL;
    options.memory_limit = 1;
    refuse(options, MICS_ERR_INFEASIBLE, "no plan fits 1 B per rank: ");
}

static void a_thousand_nodes_are_planned_quickly(void)
{
    struct mics_search_options options = {
        .global_batch = 65536, .recompute = MICS_AUTO, .prefetch = MICS_AUTO};
    struct mics_plan *plan;
    int status;

    plan = search("p4d.24xlarge:1024", "gpt2-xl", &options, &status);
    CHECK_INT(status, MICS_OK);
    CHECK(plan && plan->alternative_count > 20);
    mics_plan_free(plan);
}

static void long_steps_are_predicted_from_short_ones(void)
{
    struct mics_prediction a, b;
    struct mics_search_options options = usual;
    struct mics_plan *plan;
    struct mics_op_costs *costs = NULL;
    int status;

    options.strategy = "mics:8";
    options.micro_batch = 1;
    plan = search(SLOW_NET, "gpt2-mini", &options, &status);
    if (!plan)
        return;
    CHECK_INT(mics_op_costs_new(plan->topology, plan->model, &costs, &err), MICS_OK);
    plan->choice.micro_steps = 6;
    CHECK_INT(mics_plan_predict(costs, plan->model, &plan->choice, &a, &err), MICS_OK);
    plan->choice.micro_steps = 60;
    CHECK_INT(mics_plan_predict(costs, plan->model, &plan->choice, &b, &err), MICS_OK);
    mics_op_costs_free(costs);
    CHECK(b.step_s > 5 * a.step_s && b.step_s < 10.5 * a.step_s);
    CHECK(b.sent_bytes > 5 * a.sent_bytes && b.sent_bytes < 10 * a.sent_bytes);
    mics_plan_free(plan);
}

static json_t *plan_doc(void)
{
    struct mics_plan *plan;
    json_t *doc = NULL;
    int status;

    plan = search(SLOW_NET, "gpt2-mini", &usual, &status);
    if (plan)
        CHECK_INT(mics_plan_to_doc(plan, &doc, &err), MICS_OK);
    mics_plan_free(plan);
    return doc;
}

static void a_plan_survives_its_document(void)
{
    json_t *doc = plan_doc(), *again = NULL;
    struct mics_plan *plan = NULL;

    json_object_set_new(doc, "note", json_string("kept"));
    CHECK_INT(mics_plan_from_doc(doc, &plan, &err), MICS_OK);
    CHECK_INT(mics_plan_to_doc(plan, &again, &err), MICS_OK);
    CHECK(json_equal(doc, again));
    mics_plan_free(plan);
    json_decref(doc);
    json_decref(again);
}

/* What mics-show prints of a plan, as a new string. */
static char *printed(const json_t *doc, int tsv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK_INT(mics_plan_print(out, doc, tsv, &err), MICS_OK);
    fclose(out);
    return text;
}

static void the_shape_of_experts_is_in_the_document_where_it_differs(void)
{
    json_t *doc = plan_doc(), *again = NULL;
    json_t *choice = json_object_get(doc, "choice");
    struct mics_plan *plan = NULL;

    CHECK(json_object_get(choice, "experts") == NULL);
    json_object_set_new(choice, "experts",
                        json_pack("{s:i,s:i,s:i}", "p_param", 1, "p_grad", 2, "p_optim", 4));
    CHECK_INT(mics_plan_from_doc(doc, &plan, &err), MICS_OK);
    CHECK_INT(plan->choice.shapes[MICS_UNIT_EXPERT].p_param, 1);
    CHECK_INT(plan->choice.shapes[MICS_UNIT_EXPERT].p_grad, 2);
    CHECK_INT(plan->choice.shapes[MICS_UNIT_EXPERT].p_optim, 4);
    CHECK_INT(plan->choice.shapes[MICS_UNIT_EXPERT].nodes, mics_choice_nodes(&plan->choice));
    CHECK_INT(mics_plan_to_doc(plan, &again, &err), MICS_OK);
    CHECK(json_equal(doc, again));
    char *table = printed(doc, 0), *rows = printed(doc, 1);
    CHECK(strstr(table, "parameters 1, gradients 2, optimizer 4") != NULL);
    CHECK(strstr(rows, "experts.p_optim\t4\n") != NULL);
    free(table);
    free(rows);
    mics_plan_free(plan);
    json_decref(doc);
    json_decref(again);
}

/* Set doc.path = value (of the path's last object) and expect an error that contains `why`. */
static void expect_refusal(const char *object, const char *key, json_t *value, const char *why)
{
    json_t *doc = plan_doc(), *at = doc;
    struct mics_plan *plan = NULL;

    if (object)
        at = json_object_get(doc, object);
    json_object_set_new(at, key, value);
    err.text[0] = '\0';
    CHECK_INT(mics_plan_from_doc(doc, &plan, &err), MICS_ERR_FORMAT);
    if (!strstr(err.text, why))
        CHECK_STR(err.text, why);
    mics_plan_free(plan);
    json_decref(doc);
}

static void an_inconsistent_plan_is_refused(void)
{
    expect_refusal("memory", "arena_bytes", json_integer(4096), "memory.arena_bytes: says 4096");
    expect_refusal(NULL, "global_batch", json_integer(63), "global_batch: says 63");
    expect_refusal("choice", "p_param", json_integer(3), "choice: parameter group 3");
    expect_refusal("choice", "micro_batch", json_integer(0), "choice.micro_batch");
    expect_refusal("choice", "optimizer", json_string("adam"),
                   "'adam': expected one of adamw|sgd|lion");
    expect_refusal("choice", "recompute", json_string("some"),
                   "choice.recompute: 'some': expected none, selective or full");
    expect_refusal("choice", "recompute", json_true(), "choice.recompute: expected a string");
    expect_refusal(NULL, "v", json_integer(1),
                   "'mics.plan' of version 1: this mics reads version 2");
    expect_refusal("choice", "strategy", json_string("a strategy of many words"),
                   "choice.strategy: more than 15 bytes");
    expect_refusal("model", "n_embd", json_integer(-1), "model");
    expect_refusal("topology", "nodes", json_integer(8), "says 64, but 8 x 4 ranks");
    expect_refusal(NULL, "alternatives", json_string("none"), "alternatives");
    expect_refusal(NULL, "v", json_integer(99), "newer");
    expect_refusal(NULL, "kind", json_string("mics.bench"), "mics.bench");
}

int main(void)
{
    TAP_RUN(the_plan_fits_and_its_parts_agree);
    TAP_RUN(exactly_one_alternative_is_chosen_and_every_other_has_a_reason);
    TAP_RUN(memory_forces_larger_groups);
    TAP_RUN(on_a_slow_network_the_group_stays_inside_a_node);
    TAP_RUN(strategies_by_name_give_their_cuts);
    TAP_RUN(given_options_are_kept);
    TAP_RUN(units_are_coalesced_where_latency_dominates);
    TAP_RUN(the_lowest_level_of_recomputation_that_fits_is_chosen);
    TAP_RUN(recomputation_is_tried_even_where_plans_fit_without);
    TAP_RUN(recomputation_is_predicted_to_cost_time);
    TAP_RUN(invalid_options_are_refused_with_the_closest_valid_ones);
    TAP_RUN(a_thousand_nodes_are_planned_quickly);
    TAP_RUN(long_steps_are_predicted_from_short_ones);
    TAP_RUN(a_plan_survives_its_document);
    TAP_RUN(the_shape_of_experts_is_in_the_document_where_it_differs);
    TAP_RUN(an_inconsistent_plan_is_refused);
    return tap_done();
}
