/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bound.c - the closed-form bound by which the search prunes: never above the simulated step,
 * for any plan option, and close to it.
 */
#include "model/model.h"
#include "plan/schedule/timeline.h"
#include "plan/search/search_internal.h"
#include "plan_fake.h"
#include "tap.h"

#include <stdlib.h>

/* Computation takes no time. */
#define SLOW_LINKS "node:1 gpu:4 flops:1000T membw:100TB/s link:1GB/s,1us"

static const struct mics_model_config blocks = {
    .family = "gpt2",
    .name = "blocks",
    .n_layer = 6,
    .n_embd = 64,
    .n_head = 2,
    .n_positions = 64,
    .vocab_size = 300,
    .n_inner = 256,
    .layer_norm_epsilon = 1e-5,
};

/* Embedding and head are units ten times as large as a block. */
static const struct mics_model_config wide_ends = {
    .family = "llama",
    .name = "ends",
    .n_layer = 6,
    .n_embd = 64,
    .n_head = 2,
    .n_positions = 64,
    .vocab_size = 6000,
    .n_inner = 128,
    .layer_norm_epsilon = 1e-5,
    .rope_theta = 1e4,
    .untied = true,
};

static struct mics_err err;

/* A model on a cluster, with the costs of its operations. */
struct priced {
    struct mics_topology *topology;
    struct mics_model *model;
    struct mics_op_costs *costs;
};

static struct priced open_priced(const char *cluster, const struct mics_model_config *config)
{
    struct priced priced = {NULL, NULL, NULL};

    CHECK_INT(mics_topology_parse(cluster, &priced.topology, &err), MICS_OK);
    CHECK_INT(mics_model_new(config, &priced.model, &err), MICS_OK);
    CHECK_INT(mics_op_costs_new(priced.topology, priced.model, &priced.costs, &err), MICS_OK);
    return priced;
}

static void close_priced(struct priced *priced)
{
    mics_op_costs_free(priced->costs);
    mics_model_free(priced->model);
    mics_topology_free(priced->topology);
}

static double simulated(const struct priced *priced, const struct mics_plan_choice *choice)
{
    struct mics_schedule *schedule = NULL;
    struct mics_timeline timeline = {0};
    double step_s = 0;

    CHECK_INT(mics_schedule_new(priced->model, choice, true, &schedule, &err), MICS_OK);
    if (!schedule)
        return 0;
    CHECK_INT(mics_timeline_init(schedule, &timeline, &err), MICS_OK);
    CHECK_INT(mics_simulate(schedule, choice, priced->costs, &timeline, &step_s, &err), MICS_OK);
    mics_timeline_fini(&timeline);
    mics_schedule_free(schedule);
    return step_s;
}

/* The bound relative to the simulated step, which it must not exceed. */
static double check_bound(const struct priced *priced, const struct mics_plan_choice *choice)
{
    const double step = simulated(priced, choice);
    double bound = 0;

    CHECK_INT(mics_step_bound(priced->costs, priced->model, choice, &bound, &err), MICS_OK);
    CHECK(bound > 0 && bound <= step * (1 + 1e-6));
    if (bound > step * (1 + 1e-6))
        printf(
            "# %s (%u, %u, %u) of %u x %u, prefetch %u, %u grad slots, coalesced %u, %u segments, "
            "hierarchical %d %d, micro-batch %u, %u micro-steps, recompute %d, clip %d, blocks %d "
            "%d %d: bound %g of %g s\n",
            priced->model->config.name, choice->shapes[MICS_UNIT_DENSE].p_param,
            choice->shapes[MICS_UNIT_DENSE].p_grad, choice->shapes[MICS_UNIT_DENSE].p_optim,
            mics_choice_nodes(choice), mics_choice_per_node(choice), choice->prefetch,
            choice->grad_slots, choice->coalesce - 1, choice->segments, choice->hierarchical_gather,
            choice->hierarchical_reduce, choice->micro_batch, choice->micro_steps,
            choice->recompute, choice->clip, choice->sync_dtype, choice->sync_gathers,
            choice->gather_dtype, bound, step);
    return bound / step;
}

static void check_slow_links(const struct mics_model_config *config)
{
    struct priced priced = open_priced(SLOW_LINKS, config);
    double closest = 0;

    for (uint32_t steps = 1; steps <= 8; steps *= 2)
        for (uint32_t prefetch = 0; prefetch < 10; prefetch++) {
            const struct mics_plan_choice choice = {
                .shapes = MICS_SAME_SHAPE({1, 4, 4, 4, 4}),
                .strategy = "zero3",
                .segments = 1,
                .coalesce = 1,
                .prefetch = prefetch,
                .grad_slots = 2,
                .micro_batch = 1,
                .micro_steps = steps,
                .seq = 8,
                .optimizer = MICS_OPT_ADAMW,
            };
            const double ratio = check_bound(&priced, &choice);

            closest = ratio > closest ? ratio : closest;
        }
    CHECK(closest > 0.9);
    close_priced(&priced);
}

static void the_bound_is_no_longer_than_a_simulated_step(void)
{
    check_slow_links(&blocks);
}

static void the_bound_holds_with_ends_larger_than_the_blocks(void)
{
    check_slow_links(&wide_ends);
}

/* Gradients in bf16 are not coalesced between nodes: the second exchange of the first unit of a set
 * does not wait until the others are accumulated. */
static void the_bound_holds_where_accumulation_and_exchange_overlap(void)
{
    const struct mics_plan_choice choice = {
        .shapes =
            MICS_SAME_SHAPE({.nodes = 8, .per_node = 2, .p_param = 1, .p_grad = 2, .p_optim = 16}),
        .strategy = "custom",
        .segments = 1,
        .prefetch = 9,
        .grad_slots = 4,
        .coalesce = 2,
        .hierarchical_gather = true,
        .hierarchical_reduce = true,
        .micro_batch = 4,
        .micro_steps = 6,
        .seq = 32,
        .optimizer = MICS_OPT_ADAMW,
        .dtype = MICS_BF16,
        .grad_dtype = MICS_BF16,
        .clip = true,
    };
    struct priced priced = open_priced(
        "node:8 gpu:2 flops:100G membw:50GB/s link:50GB/s,1us net:10gbit,100us", &wide_ends);

    CHECK(check_bound(&priced, &choice) > 0.99);
    close_priced(&priced);
}

static uint32_t random_state = 1;

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

static void draw_choice(const struct mics_topology *topology, struct mics_plan_choice *choice)
{
    const uint32_t n = topology->nodes * topology->per_node;

    *choice = (struct mics_plan_choice){
        .strategy = "custom",
        .segments = 1u << draw(3),
        .prefetch = draw(10),
        .coalesce = 1u << draw(4),
        .hierarchical_gather = draw(2),
        .hierarchical_reduce = draw(2),
        .micro_batch = 1 + draw(4),
        .micro_steps = 1 + draw(8),
        .seq = 16 << draw(3),
        .recompute = (enum mics_recompute)draw(MICS_RECOMPUTE_LEVELS),
        .optimizer = MICS_OPT_ADAMW,
        .dtype = draw(2) ? MICS_BF16 : MICS_F32,
        .clip = draw(2),
    };
    choice->grad_dtype = choice->dtype;
    choice->grad_slots = draw(3) ? 2 * choice->coalesce : 1 + draw(4);
    do
        mics_choice_set_shape(choice, (struct mics_shape){topology->nodes, topology->per_node,
                                                          1 + draw(n), 1 + draw(n), 1 + draw(n)});
    while (mics_shape_check(&choice->shapes[MICS_UNIT_DENSE], NULL) != MICS_OK);
}

/* A third of the options send the second hop in blocks, a third of them also gathers. */
static void draw_formats(struct mics_plan_choice *choice)
{
    if (draw(3))
        return;
    choice->sync_dtype = draw(2) ? MICS_INT8 : MICS_INT4;
    choice->sync_down_dtype = draw(2) ? MICS_INT8 : MICS_INT4;
    choice->sync_gathers = draw(2);
    choice->gather_dtype = draw(3) ? MICS_F32 : MICS_INT8;
}

/* Clusters on which computation, links inside nodes, the network, or latency decide. */
static void the_bound_holds_for_settings_of_all_kinds(void)
{
    static const char *const clusters[] = {
        "node:4 gpu:4 flops:1T membw:1TB/s link:10GB/s,3us net:10gbit,30us",
        "node:2 gpu:8 flops:10T membw:1TB/s link:2GB/s,5us net:100gbit,10us",
        "node:8 gpu:2 flops:100G membw:50GB/s link:50GB/s,1us net:10gbit,100us",
        "node:6 gpu:1 flops:500G membw:100GB/s net:5gbit,300us",
        "node:1 gpu:8 flops:1T membw:100GB/s link:20GB/s,4us",
        "node:3 gpu:4 flops:3T membw:1TB/s link:300GB/s,3us net:400gbit,20us",
        "p4d.24xlarge:2", /* NCCL takes a large part of computation */
        "a2-highgpu-8g:3",
    };
    const struct mics_model_config *const configs[] = {&blocks, &wide_ends};
    double sum = 0, least = 1, secondary_sum = 0;
    uint32_t count = 0, secondary = 0;

    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (size_t m = 0; m < 2; m++) {

            struct priced priced = open_priced(clusters[c], configs[m]);

            for (int i = 0; i < 400; i++) {
                struct mics_plan_choice choice;
                double ratio;

                draw_choice(priced.topology, &choice);
                draw_formats(&choice);
                ratio = check_bound(&priced, &choice);
                sum += ratio;
                least = ratio < least ? ratio : least;
                count++;
                choice.secondary_shards = true;
                if (i % 2)
                    choice.trainer = MICS_TRAINER_DEEPSPEED;
                if (mics_choice_check(priced.model, &choice, NULL) != MICS_OK)
                    continue;
                secondary_sum += check_bound(&priced, &choice);
                secondary++;
            }
            close_priced(&priced);
        }
    printf("# %u plan options: bound / step %.3f on average, at least %.3f\n", count, sum / count,
           least);
    CHECK(sum / count > 0.85);
    printf("# %u with secondary shards: %.3f on average\n", secondary, secondary_sum / secondary);
    CHECK(secondary > 100 && secondary_sum / secondary > 0.5);
}

/* A step of many micro-steps is extrapolated: neither below its bound nor far from a simulation of
 * all of them. */
static void the_bound_holds_for_extrapolated_steps(void)
{
    struct priced priced = open_priced(
        "node:2 gpu:4 flops:1T membw:1TB/s link:10GB/s,3us net:10gbit,30us", &wide_ends);

    for (int i = 0; i < 60; i++) {
        struct mics_plan_choice choice;
        struct mics_prediction predicted;
        double bound = 0;

        draw_choice(priced.topology, &choice);
        choice.micro_steps = 16 + draw(16);
        CHECK(check_bound(&priced, &choice) > 0.3);
        CHECK_INT(mics_step_bound(priced.costs, priced.model, &choice, &bound, &err), MICS_OK);
        CHECK_INT(mics_plan_predict(priced.costs, priced.model, &choice, &predicted, &err),
                  MICS_OK);
        CHECK(predicted.step_s >= bound);
        CHECK_NEAR(predicted.step_s / simulated(&priced, &choice), 1, 0.02);
    }
    close_priced(&priced);
}

/* Trainers that gather for each pass, or keep what is used again soon, and that reduce gradients
 * whole. */
static void the_bound_holds_for_other_trainers(void)
{
    static const enum mics_trainer trainers[] = {MICS_TRAINER_FSDP2, MICS_TRAINER_TORCHTITAN,
                                                 MICS_TRAINER_TRANSFORMERS, MICS_TRAINER_DEEPSPEED};
    struct priced priced =
        open_priced("node:4 gpu:2 flops:1T membw:1TB/s link:10GB/s,3us net:10gbit,30us", &blocks);
    struct priced wide =
        open_priced("node:2 gpu:4 flops:1T membw:1TB/s link:2GB/s,5us net:1gbit,30us", &wide_ends);
    double sum = 0;

    for (int i = 0; i < 400; i++) {
        const struct priced *on = i % 2 ? &priced : &wide;
        struct mics_plan_choice choice;

        draw_choice(on->topology, &choice);
        choice.prefetch = choice.coalesce = choice.segments = 1;
        choice.hierarchical_gather = choice.hierarchical_reduce = false;
        choice.trainer = trainers[draw(4)];
        choice.whole_grads = choice.shapes[MICS_UNIT_DENSE].p_grad > 1 && draw(2);
        sum += check_bound(on, &choice);
    }
    printf("# bound / step %.3f on average\n", sum / 400);
    CHECK(sum / 400 > 0.8);
    close_priced(&priced);
    close_priced(&wide);
}

/* Units take turns: the mean of steps that differ. */
static void the_bound_holds_for_the_mean_of_an_interval(void)
{
    static const char *const clusters[] = {
        "node:4 gpu:2 flops:1T membw:1TB/s link:10GB/s,3us net:1gbit,30us",
        "node:6 gpu:1 flops:500G membw:100GB/s net:5gbit,300us",
        "p4d.24xlarge:2",
    };
    double sum = 0;

    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
        struct priced priced = open_priced(clusters[c], c == 0 ? &wide_ends : &blocks);

        for (int i = 0; i < 200; i++) {
            struct mics_plan_choice choice;

            draw_choice(priced.topology, &choice);
            choice.sync_interval = 2 + draw(4);
            sum += check_bound(&priced, &choice);
        }
        close_priced(&priced);
    }
    printf("# bound / step %.3f on average\n", sum / 600);
    CHECK(sum / 600 > 0.7);
}

/* Replicas that meet rarely, with exchanges beside the next step or not. */
static void the_bound_holds_for_outer_steps(void)
{
    struct priced priced =
        open_priced("node:4 gpu:2 flops:1T membw:1TB/s link:10GB/s,3us net:1gbit,30us", &blocks);

    for (int i = 0; i < 300; i++) {
        struct mics_plan_choice choice;

        draw_choice(priced.topology, &choice);
        if (mics_choice_replicas(&choice) == 1)
            continue;
        choice.outer_steps = 2 + draw(4);
        choice.outer_lr = 1;
        choice.outer_overlap = draw(2);
        choice.sync_warmup = draw(2);
        check_bound(&priced, &choice);
    }
    close_priced(&priced);
}

/* Loads and stores of pieces, over links of their own or over those of exchanges inside nodes. */
static void the_bound_holds_with_states_in_host_memory(void)
{
    static const char *const clusters[] = {
        "node:4 gpu:2 flops:1T membw:1TB/s link:10GB/s,3us net:1gbit,30us",
        "node:1 gpu:8 flops:100T membw:1TB/s link:300GB/s,3us net:100gbit,30us"};

    for (int cluster = 0; cluster < 2; cluster++) {
        struct priced priced = open_priced(clusters[cluster], &blocks);

        for (int i = 0; i < 200; i++) {
            struct mics_plan_choice choice;

            draw_choice(priced.topology, &choice);
            choice.offload_piece = 64u << draw(16);
            if (draw(4) == 0 && mics_choice_has_second_hop(&choice))
                choice.sync_interval = 2 + draw(4);
            check_bound(&priced, &choice);
        }
        close_priced(&priced);
    }
}

/* DeepSpeed's stages. */
static void the_bound_holds_with_updates_on_the_host(void)
{
    static const char *const clusters[] = {
        "node:4 gpu:2 flops:1T membw:1TB/s link:10GB/s,3us net:1gbit,30us",
        "node:1 gpu:1 flops:1T membw:1TB/s",
        "node:1 gpu:8 flops:100T membw:1TB/s link:300GB/s,3us net:100gbit,30us hostbw:2TB/s"};

    for (int cluster = 0; cluster < 3; cluster++) {
        struct priced priced = open_priced(clusters[cluster], &blocks);
        const uint32_t nodes = priced.topology->nodes, per_node = priced.topology->per_node;
        const uint32_t n = nodes * per_node;

        for (int i = 0; i < 100; i++) {
            const uint32_t stage = draw(3);
            struct mics_plan_choice choice;

            draw_choice(priced.topology, &choice);
            mics_choice_set_shape(&choice, (struct mics_shape){nodes, per_node, stage > 1 ? n : 1,
                                                               stage > 0 ? n : 1, n});
            choice.trainer = MICS_TRAINER_DEEPSPEED;
            choice.offload_piece = MICS_OFFLOAD_PIECE;
            check_bound(&priced, &choice);
        }
        close_priced(&priced);
    }
}

/* Ranks that share cores wait for the last of them. */
static void the_bound_holds_with_stragglers(void)
{
    struct priced priced =
        open_priced("node:4 gpu:2 flops:100G membw:20GB/s link:5GB/s,10us net:1gbit,50us", &blocks);

    priced.topology->straggler_count = 2;
    priced.topology->stragglers[0] = (struct mics_straggler_point){1e-4, 5e-5};
    priced.topology->stragglers[1] = (struct mics_straggler_point){1e-1, 5e-2};
    for (int i = 0; i < 400; i++) {
        struct mics_plan_choice choice;

        draw_choice(priced.topology, &choice);
        check_bound(&priced, &choice);
    }
    close_priced(&priced);
}

/* The last stage of each block has no parameters, or no stage between the first and the head. */
static void the_bound_holds_around_stages_without_parameters(void)
{
    for (int all = 0; all < 2; all++) {
        struct priced priced = {NULL, NULL, NULL};
        struct fake_model fake;

        fake_model_init(&fake, 4, 10000, 7001, false);
        fake_model_split_blocks(&fake);
        for (uint32_t i = 1; i + 1 < fake.model.stage_count && all; i++)
            fake.stages[i].unit = MICS_NO_UNIT;
        if (all) {
            fake.stages[fake.model.stage_count - 1].unit = 1;
            fake.model.unit_count = 2;
        }
        priced.model = &fake.model;
        CHECK_INT(
            mics_topology_parse("node:2 gpu:4 flops:1T membw:1TB/s link:10GB/s,3us net:10gbit,30us",
                                &priced.topology, &err),
            MICS_OK);
        CHECK_INT(mics_op_costs_new(priced.topology, priced.model, &priced.costs, &err), MICS_OK);
        for (int i = 0; i < 100; i++) {
            struct mics_plan_choice choice;

            draw_choice(priced.topology, &choice);
            check_bound(&priced, &choice);
        }
        mics_op_costs_free(priced.costs);
        mics_topology_free(priced.topology);
    }
}

int main(void)
{
    TAP_RUN(the_bound_is_no_longer_than_a_simulated_step);
    TAP_RUN(the_bound_holds_with_ends_larger_than_the_blocks);
    TAP_RUN(the_bound_holds_where_accumulation_and_exchange_overlap);
    TAP_RUN(the_bound_holds_for_settings_of_all_kinds);
    TAP_RUN(the_bound_holds_for_extrapolated_steps);
    TAP_RUN(the_bound_holds_for_other_trainers);
    TAP_RUN(the_bound_holds_for_the_mean_of_an_interval);
    TAP_RUN(the_bound_holds_for_outer_steps);
    TAP_RUN(the_bound_holds_with_states_in_host_memory);
    TAP_RUN(the_bound_holds_with_updates_on_the_host);
    TAP_RUN(the_bound_holds_with_stragglers);
    TAP_RUN(the_bound_holds_around_stages_without_parameters);
    return tap_done();
}
