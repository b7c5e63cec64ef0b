/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_search_brute.c - the search against brute force: every plan option that fits, simulated, on
 * clusters and models small enough for that. Also: plan options are discarded for their memory only
 * if they do not fit.
 */
#include "plan/search/search_internal.h"
#include "tap.h"

#include <stdlib.h>

static struct mics_err err;

static const struct mics_model_config gpt = {
    .family = "gpt2",
    .name = "gpt",
    .n_layer = 8,
    .n_embd = 1024,
    .n_head = 16,
    .n_positions = 1024,
    .vocab_size = 20000,
    .n_inner = 4096,
    .layer_norm_epsilon = 1e-5,
};

static const struct mics_model_config llama = {
    .family = "llama",
    .name = "llama",
    .n_layer = 6,
    .n_embd = 1024,
    .n_head = 8,
    .n_positions = 1024,
    .vocab_size = 32000,
    .n_inner = 2816,
    .layer_norm_epsilon = 1e-5,
    .rope_theta = 1e4,
    .untied = true,
};

struct brute_case {
    const char *cluster;
    const struct mics_model_config *model;
    struct mics_search_options options;
};

#define AUTO .recompute = MICS_AUTO, .prefetch = MICS_AUTO, .clip = true

/* Odd batches, all dimensions, clusters on which different resources decide. */
static const struct brute_case cases[] = {
    {"node:2 gpu:2 flops:100T mem:4.4G membw:1TB/s link:100GB/s,3us net:100gbit,30us",
     &gpt,
     {AUTO, .seq = 512, .global_batch = 4 * 6, .segments = 1}},
    {"node:2 gpu:2 flops:100T mem:2.9G membw:1TB/s link:20GB/s,5us net:25gbit,50us",
     &llama,
     {AUTO, .seq = 1024, .global_batch = 4 * 9, .coalesce = 1}},
    {"node:1 gpu:6 flops:50T mem:2.9G membw:500GB/s link:10GB/s,10us",
     &gpt,
     {AUTO, .seq = 1024, .global_batch = 6 * 15}},
    {"node:4 gpu:1 flops:30T mem:4.4G membw:500GB/s net:10gbit,100us",
     &llama,
     {AUTO, .seq = 512, .global_batch = 4 * 7, .grad_dtype = MICS_BF16, .dtype = MICS_BF16}},
    {"node:3 gpu:2 flops:200T mem:2.9G membw:2TB/s link:200GB/s,3us net:25gbit,20us",
     &gpt,
     {AUTO, .seq = 256, .global_batch = 6 * 5, .coalesce = 2}},
    {"node:2 gpu:4 flops:100T mem:3.4G membw:1TB/s link:100GB/s,2us net:50gbit,200us",
     &gpt,
     {AUTO, .seq = 512, .global_batch = 8 * 3, .hierarchical = MICS_HIERARCHY_ON}},
    {"node:4 gpu:2 flops:50T mem:3.4G membw:1TB/s link:50GB/s,3us net:100gbit,10us",
     &llama,
     {.seq = 256, .recompute = MICS_AUTO, .prefetch = 2, .global_batch = 8 * 21, .coalesce = 1}},
    {"node:2 gpu:2 flops:20T mem:3.4G membw:200GB/s link:5GB/s,20us net:5gbit,300us",
     &gpt,
     {.seq = 1024,
      .recompute = MICS_AUTO,
      .prefetch = MICS_AUTO,
      .global_batch = 4 * 10,
      .segments = 2}},
    {"node:3 gpu:2 flops:200T mem:2.9G membw:2TB/s link:200GB/s,3us net:5gbit,20us",
     &gpt,
     {AUTO, .seq = 256, .global_batch = 6 * 4, .coalesce = 2, .sync_dtype = MICS_INT8,
      .sync_down_dtype = MICS_INT8, .gather_dtype = MICS_INT8}},
};
enum { CASES = sizeof cases / sizeof *cases };

struct brute {
    struct mics_search *search;
    double best_s;
    uint64_t count;
    struct mics_plan_choice choice;
};

static enum mics_status visit(void *context, const struct mics_plan_choice *choice,
                              struct mics_err *why)
{
    struct brute *brute = context;
    struct mics_prediction predicted;
    const enum mics_status status =
        mics_plan_predict(brute->search->costs, brute->search->model, choice, &predicted, why);

    brute->count++;
    if (status == MICS_OK && predicted.step_s < brute->best_s) {
        brute->best_s = predicted.step_s;
        brute->choice = *choice;
    }
    return status;
}

static void check_case(const struct brute_case *at)
{
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;
    struct mics_search search;
    struct brute brute = {.search = &search, .best_s = INFINITY};

    CHECK_INT(mics_topology_parse(at->cluster, &topology, &err), MICS_OK);
    CHECK_INT(mics_model_new(at->model, &model, &err), MICS_OK);
    CHECK_INT(mics_search_init(&search, topology, model, &at->options, &err), MICS_OK);
    CHECK_INT(mics_search_visit(&search, visit, &brute, &err), MICS_OK);
    mics_search_fini(&search);
    CHECK_INT(mics_plan_search(topology, model, &at->options, &plan, &err), MICS_OK);
    if (!plan) {
        printf("# %s: %s\n", at->cluster, err.text);
        return;
    }
    printf(
        "# %llu plan options: (%u, %u, %u), %u x %u, %.3f ms; best of all (%u, %u, %u), %u x %u, "
        "%.3f ms, ratio %.4f\n",
        (unsigned long long)brute.count, plan->choice.shapes[MICS_UNIT_DENSE].p_param,
        plan->choice.shapes[MICS_UNIT_DENSE].p_grad, plan->choice.shapes[MICS_UNIT_DENSE].p_optim,
        plan->choice.micro_steps, plan->choice.micro_batch, 1e3 * plan->predicted.step_s,
        brute.choice.shapes[MICS_UNIT_DENSE].p_param, brute.choice.shapes[MICS_UNIT_DENSE].p_grad,
        brute.choice.shapes[MICS_UNIT_DENSE].p_optim, brute.choice.micro_steps,
        brute.choice.micro_batch, 1e3 * brute.best_s, plan->predicted.step_s / brute.best_s);
    CHECK(brute.count > 100);
    CHECK(plan->predicted.step_s <= 1.01 * brute.best_s);
    /* The search walks no other space. */
    CHECK(plan->predicted.step_s >= 0.9999 * brute.best_s);
    mics_plan_free(plan);
}

static void the_plan_is_within_1_percent_of_the_best_of_all_plan_options(void)
{
    for (int i = 0; i < CASES; i++)
        check_case(&cases[i]);
}

/* All points, also those that are discarded without computing their bytes. */
static void check_memory(struct mics_search *search, uint64_t limits[3])
{
    struct mics_search_point point = {.prefetch = 0};

    for (point.alternative = 0; point.alternative < search->count; point.alternative++)
        for (point.option = 0; point.option < search->alternatives[point.alternative].option_count;
             point.option += 7)
            for (point.level = 0; point.level < search->space.level_count; point.level++)
                for (point.micro_batch = 0; point.micro_batch < search->space.micro_batch_count;
                     point.micro_batch++) {
                    struct mics_plan_choice choice;
                    uint64_t bytes = 0, before = 0;

                    for (point.prefetch = 0; point.prefetch < search->space.prefetch_count;
                         point.prefetch++) {
                        uint32_t least = 0, most = 0;
                        bool found;

                        choice = mics_search_choice(search, &point);
                        CHECK_INT(mics_search_bytes(search, &choice, &bytes, &err), MICS_OK);
                        CHECK(bytes >= before);
                        CHECK(bytes >= search->alternatives[point.alternative].least.total_bytes);
                        before = bytes;
                        for (int i = 0; i < 3; i++) {
                            search->options.memory_limit = limits[i];
                            found = mics_search_prefetch_range(search, &point, &least, &most);
                            if (bytes <= limits[i] && found && point.prefetch >= least &&
                                choice.shapes[MICS_UNIT_DENSE].p_param > 1)
                                CHECK(point.prefetch <= most);
                            if (bytes <= limits[i] && choice.coalesce == 1)
                                CHECK(found);
                        }
                    }
                }
}

static void plan_options_are_discarded_only_if_they_do_not_fit(void)
{
    for (int i = 0; i < CASES; i += 2) {
        struct mics_topology *topology = NULL;
        struct mics_model *model = NULL;
        struct mics_search search;
        struct mics_search_options options = cases[i].options;
        uint64_t limits[3] = {(uint64_t)1500 << 20, (uint64_t)2500 << 20, (uint64_t)4000 << 20};

        options.prefetch = MICS_AUTO;
        CHECK_INT(mics_topology_parse(cases[i].cluster, &topology, &err), MICS_OK);
        CHECK_INT(mics_model_new(cases[i].model, &model, &err), MICS_OK);
        CHECK_INT(mics_search_init(&search, topology, model, &options, &err), MICS_OK);
        check_memory(&search, limits);
        mics_search_fini(&search);
        mics_topology_free(topology);
        mics_model_free(model);
    }
}

int main(void)
{
    TAP_RUN(the_plan_is_within_1_percent_of_the_best_of_all_plan_options);
    TAP_RUN(plan_options_are_discarded_only_if_they_do_not_fit);
    return tap_done();
}
