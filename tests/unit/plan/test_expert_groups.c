/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_expert_groups.c - plans whose experts are cut over other groups than dense units, against
 * brute force over groups, levels of recomputation, micro-batches and depths.
 */
#include "plan/memory.h"
#include "plan/plan_print.h"
#include "plan/search/search_internal.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct mics_err err;

static const struct mics_model_config olmoe = {
    .family = "olmoe",
    .name = "experts",
    .n_layer = 4,
    .n_embd = 512,
    .n_head = 8,
    .n_kv_head = 8,
    .head_dim = 64,
    .n_positions = 1024,
    .vocab_size = 8000,
    .n_inner = 512,
    .layer_norm_epsilon = 1e-5,
    .rope_theta = 1e4,
    .untied = true,
    .n_expert = 16,
    .n_expert_used = 2,
    .expert_inner = 512,
};

#define CLUSTER "node:2 gpu:2 flops:100T membw:1TB/s link:50GB/s,5us net:25gbit,50us mem:"

static const struct mics_search_options usual = {.global_batch = 16,
                                                 .seq = 512,
                                                 .recompute = MICS_AUTO,
                                                 .prefetch = MICS_AUTO,
                                                 .expert_group = MICS_AUTO,
                                                 .dtype = MICS_BF16,
                                                 .grad_dtype = MICS_BF16,
                                                 .clip = true};

static struct mics_plan *search(const char *topology_text, const struct mics_model_config *config,
                                const struct mics_search_options *options, int *status)
{
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;

    err.text[0] = '\0';
    CHECK_INT(mics_topology_parse(topology_text, &topology, &err), MICS_OK);
    CHECK_INT(mics_model_new(config, &model, &err), MICS_OK);
    *status = mics_plan_search(topology, model, options, &plan, &err);
    if (*status != MICS_OK) {
        mics_topology_free(topology);
        mics_model_free(model);
    }
    return plan;
}

static void experts_are_cut_over_as_many_ranks_as_are_asked_for(void)
{
    struct mics_search_options options = usual;
    int status;

    options.strategy = "mics:1";
    for (uint32_t group = 1; group <= 4; group *= 2) {
        char text[MICS_PLAN_REASONS_BYTES];

        options.expert_group = group;
        struct mics_plan *plan = search(CLUSTER "8G", &olmoe, &options, &status);
        CHECK_INT(status, MICS_OK);
        if (!plan)
            continue;
        const struct mics_shape *shapes = plan->choice.shapes;
        CHECK_INT(shapes[MICS_UNIT_DENSE].p_param, 1);
        CHECK_INT(shapes[MICS_UNIT_EXPERT].p_param, group);
        CHECK_INT(shapes[MICS_UNIT_EXPERT].p_optim, group);
        CHECK(mics_memory_total(&plan->memory, plan->topology) <= plan->memory_limit);
        /* 16 bytes for each parameter of an expert: with a master, gradients, two states. */
        const double bytes =
            (double)mics_choice_state_bytes(plan->model, &plan->choice, MICS_UNIT_EXPERT);
        CHECK_NEAR(bytes * group / (4 * 16 * 3.0 * 512 * 512), 18, 0.1);
        CHECK(strstr(mics_plan_reasons(plan, text), "An expert has ") != NULL);
        CHECK(group == 1 || strstr(text, "all else over 1") != NULL);
        mics_plan_free(plan);
    }
}

static void groups_of_experts_that_cannot_be_are_refused(void)
{
    static const struct {
        uint32_t group;
        enum mics_dtype sync_dtype;
        const char *words;
    } cases[] = {
        {3, MICS_F32, "--expert-group: "},
        {8, MICS_F32, "--expert-group: "},
        {2, MICS_INT8, "exact exchanges"},
    };
    int status;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_search_options options = usual;

        options.expert_group = cases[i].group;
        options.sync_dtype = options.sync_down_dtype = cases[i].sync_dtype;
        CHECK(search(CLUSTER "8G", &olmoe, &options, &status) == NULL);
        CHECK_INT(status, MICS_ERR_ARG);
        CHECK(strstr(err.text, cases[i].words) != NULL);
    }
}

/* A message names groups of experts with which a plan is found, and no smaller ones. */
static void where_nothing_fits_the_groups_of_experts_that_do_are_named(void)
{
    static const struct {
        uint32_t layers;
        const char *memory, *strategy, *needs, *remedy;
        uint32_t group, named;
    } cases[] = {
        {4, "1.7G", "zero3", "zero3 (4, 4, 4) and --expert-group=1 with", "same", 1, 0},
        {4, "1.7G", "auto", "and --expert-group=1 with", "auto", 1, MICS_AUTO},
        {4, "2.2G", "mics:1", "mics (1, 1, 1) with", "4", MICS_AUTO, 4},
        {12, "3.5G", "mics:1", "mics (1, 1, 1) with", "2", 0, 2},
        {4, "1.7G", "mics:1", "mics (1, 1, 1) and --expert-group=4 with", NULL, MICS_AUTO, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_search_options options = usual;
        struct mics_model_config config = olmoe;
        char cluster[160], remedy[80];
        int status;

        config.n_layer = cases[i].layers;
        snprintf(cluster, sizeof cluster, CLUSTER "%s", cases[i].memory);
        options.strategy = cases[i].strategy;
        options.expert_group = cases[i].group;
        CHECK(search(cluster, &config, &options, &status) == NULL);
        CHECK_INT(status, MICS_ERR_INFEASIBLE);
        const char *miss = strstr(err.text, cases[i].needs);
        const char *fits = strstr(err.text, "it fits with ");
        CHECK(miss && strstr(miss, " more; "));
        if (!cases[i].remedy) {
            CHECK(!fits || !strstr(fits, "--expert-group"));
            continue;
        }
        snprintf(remedy, sizeof remedy, "it fits with --expert-group=%s", cases[i].remedy);
        CHECK(fits && strncmp(fits, remedy, strlen(remedy)) == 0);
        for (int tried = 0; tried < 2; tried++) { /* the group that is named, a smaller one */
            if (tried && (cases[i].named == 0 || cases[i].named == MICS_AUTO))
                break;
            options.expert_group = tried ? cases[i].named / 2 : cases[i].named;
            mics_plan_free(search(cluster, &config, &options, &status));
            CHECK_INT(status, tried ? MICS_ERR_INFEASIBLE : MICS_OK);
        }
    }
}

/* The fastest of all combinations of groups with few ways to exchange units. */
static double brute_force(const struct mics_plan *plan)
{
    static const uint32_t sizes[] = {1, 2, 4};
    const uint32_t share = plan->choice.micro_batch * plan->choice.micro_steps;
    struct mics_op_costs *costs = NULL;
    double best_s = INFINITY;
    uint32_t batches = 1;

    while (1u << batches <= share)
        batches++;
    CHECK_INT(mics_op_costs_new(plan->topology, plan->model, &costs, &err), MICS_OK);
    for (uint32_t i = 0; i < 9 * 3 * 3 * 2 * batches; i++) {
        struct mics_plan_choice choice = plan->choice;
        const uint32_t p = sizes[i % 3], e = sizes[i / 3 % 3];
        struct mics_memory memory;
        struct mics_prediction predicted;

        for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
            struct mics_shape *shape = &choice.shapes[kind];

            shape->p_param = shape->p_grad = shape->p_optim = kind ? e : p;
        }
        choice.recompute = (enum mics_recompute)(i / 9 % 3);
        choice.prefetch = sizes[i / 27 % 3];
        choice.hierarchical_gather = choice.hierarchical_reduce = i / 81 % 2;
        choice.micro_batch = 1u << i / 162;
        choice.micro_steps = share / choice.micro_batch;
        choice.segments = choice.coalesce = 1;
        choice.grad_slots = 2;
        if (mics_memory_compute_on(plan->topology, plan->model, &choice, &memory, &err) !=
                MICS_OK ||
            mics_memory_total(&memory, plan->topology) > plan->memory_limit)
            continue;
        CHECK_INT(mics_plan_predict_above(costs, plan->model, &choice, 0, &predicted, &err),
                  MICS_OK);
        best_s = fmin(best_s, predicted.step_s);
        double bound_s;
        CHECK_INT(mics_step_bound(costs, plan->model, &choice, &bound_s, &err), MICS_OK);
        CHECK(bound_s <= predicted.step_s * (1 + 1e-9));
    }
    mics_op_costs_free(costs);
    return best_s;
}

static void the_plan_is_as_fast_as_any_combination_of_groups(void)
{
    static const struct {
        const char *cluster;
        uint32_t global_batch, n_expert, expert_inner, vocab_size;
    } cases[] = {
        {CLUSTER "8G", 16, 16, 512, 8000},
        {CLUSTER "1.9G", 16, 16, 512, 8000},
        {CLUSTER "1.6G", 16, 16, 512, 8000},
        {CLUSTER "2.6G", 128, 4, 256, 32000}, /* groups of their own are the fastest */
    };
    int status, own = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_search_options any = usual, same = usual;
        struct mics_model_config config = olmoe;

        any.global_batch = same.global_batch = cases[i].global_batch;
        same.expert_group = 0;
        config.n_expert = cases[i].n_expert;
        config.expert_inner = config.n_inner = cases[i].expert_inner;
        config.vocab_size = cases[i].vocab_size;
        struct mics_plan *plan = search(cases[i].cluster, &config, &any, &status);
        CHECK_INT(status, MICS_OK);
        struct mics_plan *other = search(cases[i].cluster, &config, &same, &status);
        CHECK_INT(status, MICS_OK);
        if (plan && other) {
            CHECK_INT(mics_choice_groups(&other->choice, MICS_UNIT_EXPERT), MICS_UNIT_DENSE);
            CHECK(plan->predicted.step_s <= other->predicted.step_s);
            CHECK(plan->predicted.step_s <= 1.01 * brute_force(plan));
            own += mics_choice_groups(&plan->choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT;
        }
        mics_plan_free(plan);
        mics_plan_free(other);
    }
    CHECK(own > 0);
}

/* What all combinations with resident experts take: dense units over p ranks, experts over e, and
 * their optimizer's states over o. */
static double brute_resident(const struct mics_plan *plan)
{
    static const uint32_t sizes[] = {1, 2, 4};
    const uint32_t share = plan->choice.micro_batch * plan->choice.micro_steps;
    struct mics_op_costs *costs = NULL;
    double best_s = INFINITY;
    uint32_t batches = 1;

    while (1u << batches <= share)
        batches++;
    CHECK_INT(mics_op_costs_new(plan->topology, plan->model, &costs, &err), MICS_OK);
    for (uint32_t i = 0; i < 27 * 3 * 3 * 2 * batches; i++) {
        struct mics_plan_choice choice = plan->choice;
        struct mics_shape *experts = &choice.shapes[MICS_UNIT_EXPERT];
        struct mics_memory memory;
        struct mics_prediction predicted;
        double bound_s;

        struct mics_shape dense = choice.shapes[MICS_UNIT_DENSE];
        dense.p_param = dense.p_grad = dense.p_optim = sizes[i % 3];
        mics_choice_set_shape(&choice, dense);
        experts->p_param = experts->p_grad = sizes[i / 3 % 3];
        experts->p_optim = sizes[i / 9 % 3];
        choice.recompute = (enum mics_recompute)(i / 27 % 3);
        choice.prefetch = sizes[i / 81 % 3];
        choice.hierarchical_gather = choice.hierarchical_reduce = i / 243 % 2;
        choice.micro_batch = 1u << i / 486;
        choice.micro_steps = share / choice.micro_batch;
        choice.segments = choice.coalesce = 1;
        choice.grad_slots = 2;
        choice.dispatches = true;
        choice.expert_load = plan->experts.load;
        if (experts->p_param == 1 || mics_shape_check(experts, NULL) != MICS_OK ||
            mics_choice_check(plan->model, &choice, NULL) != MICS_OK ||
            mics_memory_compute_on(plan->topology, plan->model, &choice, &memory, &err) !=
                MICS_OK ||
            mics_memory_total(&memory, plan->topology) > plan->memory_limit)
            continue;
        CHECK_INT(mics_plan_predict_above(costs, plan->model, &choice, 0, &predicted, &err),
                  MICS_OK);
        best_s = fmin(best_s, predicted.step_s);
        CHECK_INT(mics_step_bound(costs, plan->model, &choice, &bound_s, &err), MICS_OK);
        CHECK(bound_s > 0 && bound_s <= predicted.step_s * (1 + 1e-9));
    }
    mics_op_costs_free(costs);
    return best_s;
}

static bool same_groups(const struct mics_plan *a, const struct mics_plan *b)
{
    return memcmp(a->choice.shapes, b->choice.shapes, sizeof a->choice.shapes) == 0;
}

static void the_plan_with_resident_experts_is_as_fast_as_in_any_groups(void)
{
    static const struct {
        const char *cluster;
        uint32_t global_batch;
        double load;
    } cases[] = {
        {CLUSTER "2.2G", 16, 1.25}, /* other groups are the fastest, but gathered experts faster */
        {"node:4 gpu:1 flops:100T membw:1TB/s net:25gbit,50us mem:3.6G", 16, 1.25},
    };
    int status, others = 0, faster = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_search_options gathered = usual;

        gathered.global_batch = cases[i].global_batch;
        struct mics_search_options resident = gathered, any;
        resident.expert_load = cases[i].load;
        resident.experts = MICS_EXPERTS_RESIDENT;
        any = resident;
        any.experts = MICS_EXPERTS_AUTO;
        struct mics_plan *plans[3] = {search(cases[i].cluster, &olmoe, &gathered, &status)};
        CHECK_INT(status, MICS_OK);
        plans[1] = search(cases[i].cluster, &olmoe, &resident, &status);
        CHECK_INT(status, MICS_OK);
        plans[2] = search(cases[i].cluster, &olmoe, &any, &status);
        CHECK_INT(status, MICS_OK);
        if (plans[0] && plans[1] && plans[2]) {
            const double both[2] = {plans[0]->predicted.step_s, plans[1]->predicted.step_s};

            printf("# %s: gathered %.3f ms, resident %.3f ms, %s groups\n", cases[i].cluster,
                   1e3 * both[0], 1e3 * both[1],
                   same_groups(plans[0], plans[1]) ? "the same" : "other");
            CHECK(plans[1]->choice.dispatches && !plans[0]->choice.dispatches);
            CHECK_INT(mics_choice_check(plans[1]->model, &plans[1]->choice, &err), MICS_OK);
            CHECK(mics_memory_total(&plans[1]->memory, plans[1]->topology) <=
                  plans[1]->memory_limit);
            CHECK_NEAR(plans[1]->experts.gathered_step_s / both[0], 1, 1e-9);
            CHECK_NEAR(plans[1]->experts.resident_step_s / both[1], 1, 1e-9);
            CHECK(both[1] <= 1.01 * brute_resident(plans[1]));
            CHECK(plans[2]->predicted.step_s <= 1.01 * fmin(both[0], both[1]));
            CHECK(plans[2]->experts.resident_step_s > 0);
            others += !same_groups(plans[0], plans[1]);
            faster += plans[2]->choice.dispatches;
        }
        for (int p = 0; p < 3; p++)
            mics_plan_free(plans[p]);
    }
    CHECK(others > 0);
    CHECK(faster > 0);
}

/* Gathered layers do not fit beside the states; resident experts do, and the message says so. */
static void where_gathered_experts_do_not_fit_resident_ones_may(void)
{
    static const char cluster[] = "node:4 gpu:2 flops:100T membw:1TB/s link:50GB/s,5us "
                                  "net:25gbit,50us mem:6.5G";
    struct mics_search_options options = usual;
    struct mics_model_config config = olmoe;
    int status;

    config.n_layer = 2;
    config.n_expert = 256;
    config.n_inner = config.expert_inner = 2048;
    options.global_batch = 8;
    options.seq = 128;
    CHECK(search(cluster, &config, &options, &status) == NULL);
    CHECK_INT(status, MICS_ERR_INFEASIBLE);
    CHECK(strstr(err.text, "--experts=resident") != NULL);
    for (int i = 0; i < 2; i++) {
        options.experts = i ? MICS_EXPERTS_AUTO : MICS_EXPERTS_RESIDENT;
        struct mics_plan *plan = search(cluster, &config, &options, &status);
        CHECK_INT(status, MICS_OK);
        CHECK(plan && plan->choice.dispatches &&
              mics_memory_total(&plan->memory, plan->topology) <= plan->memory_limit);
        mics_plan_free(plan);
    }
}

int main(void)
{
    TAP_RUN(where_gathered_experts_do_not_fit_resident_ones_may);
    TAP_RUN(the_plan_with_resident_experts_is_as_fast_as_in_any_groups);
    TAP_RUN(experts_are_cut_over_as_many_ranks_as_are_asked_for);
    TAP_RUN(groups_of_experts_that_cannot_be_are_refused);
    TAP_RUN(where_nothing_fits_the_groups_of_experts_that_do_are_named);
    TAP_RUN(the_plan_is_as_fast_as_any_combination_of_groups);
    return tap_done();
}
