/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_search - the search's plan against brute force: how much slower it is by the same
 * prediction, and how long it takes to plan 8,192 GPUs.
 *
 * usage: plan_search [SIMULATIONS]      (of one case by brute force, at most; default 1200)
 *
 * Brute force uses no bound. It simulates the grid of all strategies of the ZeRO family, (p, p, p)
 * and (p, p, n), each with every micro-batch, level of recomputation, prefetch of 0, 1, 2, 5 and
 * the most that fits, 1 or 4 coalesced units, and all exchanges flat or hierarchical; and as many
 * plan options again that are drawn from the whole space. Where the grid has more plan options than
 * SIMULATIONS, so many of them are drawn. Ends with 1 if a plan is more than 1 % slower than the
 * best plan option, or planning takes longer than 3 s of processor time.
 */
#include "plan/search/search_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench_case {
    const char *topology, *model;
    uint64_t global_batch;
    uint32_t seq;
    bool no_clip;
};

static const struct bench_case cases[] = {
    {"a3-highgpu-8g:4", "llama3-70b", 1024, 1024, false},
    {"a2-ultragpu-8g:8", "llama3-70b", 1024, 1024, false},
    {"p3dn.24xlarge:8", "llama2-7b", 512, 1024, false},
    {"a2-highgpu-8g:4", "llama3-8b", 480, 1024, false},
    {"p4d.24xlarge:1", "gpt2", 480, 1024, false},
    {"p4d.24xlarge:2", "gpt2-medium", 336, 1024, false},
    {"p4d.24xlarge:4", "gpt2-large", 288, 1024, true},
    {"p4d.24xlarge:8", "gpt2-xl", 1984, 1024, false},
    {"p4d.24xlarge:2", "gpt2-20b", 240, 512, false},
    {"p4d.24xlarge:16", "gpt2-20b", 1152, 512, false},
    {"p4d.24xlarge:2", "llama2-7b", 176, 2048, false},
    {"p4d.24xlarge:4", "llama2-7b", 544, 1024, true},
    {"p4de.24xlarge:2", "llama3-8b", 144, 4096, false},
    {"p4de.24xlarge:4", "qwen2.5-7b", 160, 2048, false},
    {"p5.48xlarge:1", "llama3-8b", 120, 4096, false},
    {"p5.48xlarge:2", "llama3-8b", 272, 2048, false},
    {"p5.48xlarge:8", "llama3-70b", 448, 4096, false},
    {"p5.48xlarge:4", "mistral-7b", 480, 4096, true},
    {"p5.48xlarge:2", "mistral-nemo-12b", 208, 2048, false},
    {"p5en.48xlarge:4", "qwen3-32b", 352, 4096, false},
    {"p6-b200.48xlarge:2", "qwen3-32b", 304, 4096, false},
    {"p3dn.24xlarge:2", "gpt2-xl", 144, 1024, false},
    {"p3dn.24xlarge:4", "gpt2-large", 416, 1024, false},
    {"p3dn.24xlarge:8", "tinyllama-1.1b", 704, 1024, false},
    {"a2-highgpu-8g:2", "tinyllama-1.1b", 208, 2048, false},
    {"a2-highgpu-8g:8", "gpt2-20b", 576, 512, false},
    {"a2-ultragpu-8g:2", "llama2-7b", 112, 2048, true},
    {"a2-ultragpu-8g:4", "qwen3-8b", 288, 2048, false},
    {"a3-highgpu-8g:2", "llama3-8b", 336, 2048, false},
    {"a3-megagpu-8g:4", "llama3.2-3b", 480, 2048, false},
    {"a3-highgpu-8g:8", "qwen2.5-72b", 960, 1024, false},
    {"a3-ultragpu-8g:2", "qwen3-8b", 240, 4096, false},
    {"node:8 gpu:1 flops:50T mem:24G membw:600GB/s net:10gbit,50us", "gpt2-large", 120, 1024,
     false},
    {"node:6 gpu:2 flops:70T mem:24G membw:900GB/s link:20GB/s,8us net:25gbit,40us", "gpt2-xl", 180,
     1024, false},
    {"node:1 gpu:4 flops:70T mem:24G membw:900GB/s link:12GB/s,10us", "llama3.2-3b", 60, 2048,
     false},
    {"node:12 gpu:4 flops:120T mem:48G membw:1TB/s link:25GB/s,8us net:100gbit,30us", "llama2-7b",
     720, 1024, false},
    {"node:5 gpu:8 flops:271T mem:40G membw:1.3TB/s link:240GB/s,3us net:400gbit,30us", "llama3-8b",
     600, 1024, false},
    {"node:3 gpu:6 flops:120T mem:32G membw:900GB/s link:50GB/s,5us net:50gbit,50us",
     "qwen2.5-1.5b", 378, 1024, true},
    {"node:16 gpu:4 flops:271T mem:64G membw:1.3TB/s link:200GB/s,3us net:200gbit,10us", "gpt2-20b",
     960, 512, false},
    {"node:4 gpu:4 flops:1T mem:16G membw:40GB/s link:5GB/s,20us net:1gbit,100us", "gpt2-medium",
     48, 256, false},
};
enum { CASES = sizeof cases / sizeof *cases };

struct brute {
    struct mics_search search;
    uint64_t limit; /* simulations of the grid, and of plan options that are drawn */
    uint64_t grid;  /* plan options of the grid that may fit */
    uint64_t simulated;
    double best_s;
    uint64_t random;
};

static uint64_t draw(struct brute *brute, uint64_t n)
{
    brute->random = brute->random * 6364136223846793005u + 1442695040888963407u;
    return (brute->random >> 33) % n;
}

static void fail(const struct bench_case *at, const struct mics_err *err)
{
    fprintf(stderr, "plan_search: %s on %s: %s\n", at->model, at->topology, err->text);
    exit(1);
}

static enum mics_status simulate(struct brute *brute, const struct mics_search_point *point,
                                 struct mics_err *err)
{
    const struct mics_plan_choice choice = mics_search_choice(&brute->search, point);
    struct mics_prediction predicted;
    uint64_t bytes = 0;
    enum mics_status status = mics_search_bytes(&brute->search, &choice, &bytes, err);

    if (status != MICS_OK || bytes > brute->search.options.memory_limit)
        return status;
    status = mics_plan_predict(brute->search.costs, brute->search.model, &choice, &predicted, err);
    brute->simulated++;
    if (status == MICS_OK)
        brute->best_s = fmin(brute->best_s, predicted.step_s);
    return status;
}

/* Is the option one of the grid's? */
static bool is_in_grid(const struct mics_search *search,
                       const struct mics_search_alternative *alternative,
                       const struct mics_exchange_option *option)
{
    const struct mics_shape *shape = &alternative->strategy.shape;
    const bool named = strcmp(alternative->strategy.name, "custom") != 0;
    const bool over_all =
        shape->p_param == shape->p_grad && shape->p_optim == mics_shape_world_size(shape);
    const bool two_hops = mics_shape_has_hierarchy(shape, shape->p_param) &&
                          mics_shape_has_hierarchy(shape, shape->p_grad);

    (void)search;
    return (named || over_all) && option->segments == 1 &&
           (option->coalesce == 1 || option->coalesce == 4) &&
           (!two_hops || option->hierarchical_gather == option->hierarchical_reduce);
}

/* Count the grid's points, or (count false) simulate them, or as many as the limit. */
static enum mics_status walk_depths(struct brute *brute, struct mics_search_point point, bool count,
                                    struct mics_err *err)
{
    static const uint32_t wanted[] = {0, 1, 2, 5, UINT32_MAX};
    uint32_t least, most, last = UINT32_MAX;
    enum mics_status status = MICS_OK;

    if (!mics_search_prefetch_range(&brute->search, &point, &least, &most))
        return MICS_OK;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && status == MICS_OK; i++) {
        point.prefetch = wanted[i] < least ? least : wanted[i] > most ? most : wanted[i];
        if (point.prefetch == last)
            continue;
        last = point.prefetch;
        if (count)
            brute->grid++;
        else if (brute->grid <= brute->limit || draw(brute, brute->grid) < brute->limit)
            status = simulate(brute, &point, err);
    }
    return status;
}

static enum mics_status walk_grid(struct brute *brute, bool count, struct mics_err *err)
{
    const struct mics_search *search = &brute->search;
    struct mics_search_point point = {.prefetch = 0};
    enum mics_status status = MICS_OK;

    for (point.alternative = 0; point.alternative < search->count; point.alternative++)
        for (point.option = 0; point.option < search->alternatives[point.alternative].option_count;
             point.option++) {
            const struct mics_search_alternative *alternative =
                &search->alternatives[point.alternative];

            if (!is_in_grid(search, alternative, &alternative->options[point.option]))
                continue;
            for (point.level = 0; point.level < search->space.level_count; point.level++)
                for (point.micro_batch = 0;
                     point.micro_batch < search->space.micro_batch_count && status == MICS_OK;
                     point.micro_batch++)
                    status = walk_depths(brute, point, count, err);
        }
    return status;
}

/* Plan options of the whole space; those that do not fit are drawn again, up to a limit. */
static enum mics_status draw_plan_options(struct brute *brute, struct mics_err *err)
{
    const struct mics_search *search = &brute->search;
    const uint64_t before = brute->simulated;
    enum mics_status status = MICS_OK;

    for (uint64_t i = 0;
         i < 200 * brute->limit && status == MICS_OK && brute->simulated < before + brute->limit;
         i++) {
        struct mics_search_point point = {.alternative = (uint32_t)draw(brute, search->count)};
        uint32_t least, most;

        point.option = (uint32_t)draw(brute, search->alternatives[point.alternative].option_count);
        point.level = (uint32_t)draw(brute, search->space.level_count);
        point.micro_batch = (uint32_t)draw(brute, search->space.micro_batch_count);
        if (!mics_search_prefetch_range(search, &point, &least, &most))
            continue;
        point.prefetch = least + (uint32_t)draw(brute, most - least + 1);
        status = simulate(brute, &point, err);
    }
    return status;
}

static double processor_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct mics_search_options options_of(const struct bench_case *at)
{
    return (struct mics_search_options){.global_batch = at->global_batch,
                                        .seq = at->seq,
                                        .recompute = MICS_AUTO,
                                        .prefetch = MICS_AUTO,
                                        .dtype = MICS_AUTO,
                                        .grad_dtype = MICS_AUTO,
                                        .clip = !at->no_clip};
}

/* The plan of a case, which the caller frees; *seconds of processor time. */
static struct mics_plan *plan_case(const struct bench_case *at, double *seconds)
{
    const struct mics_search_options options = options_of(at);
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;
    struct mics_err err;

    if (mics_topology_parse(at->topology, &topology, &err) != MICS_OK ||
        mics_model_open(at->model, &model, &err) != MICS_OK)
        fail(at, &err);
    *seconds = processor_seconds();
    if (mics_plan_search(topology, model, &options, &plan, &err) != MICS_OK)
        fail(at, &err);
    *seconds = processor_seconds() - *seconds;
    return plan;
}

static double run_case(const struct bench_case *at, uint64_t limit)
{
    const struct mics_search_options options = options_of(at);
    struct brute brute = {.limit = limit, .best_s = INFINITY, .random = 1};
    double seconds, ratio;
    struct mics_plan *plan = plan_case(at, &seconds);
    const struct mics_plan_choice *choice = &plan->choice;
    struct mics_err err;

    if (mics_search_init(&brute.search, plan->topology, plan->model, &options, &err) != MICS_OK ||
        walk_grid(&brute, true, &err) != MICS_OK || walk_grid(&brute, false, &err) != MICS_OK ||
        draw_plan_options(&brute, &err) != MICS_OK)
        fail(at, &err);
    ratio = plan->predicted.step_s / brute.best_s;
    printf("| %s | %s | %" PRIu64 " | %u | (%u, %u, %u) %u x %u %s | %.4g | %.4g | %" PRIu64
           " of %" PRIu64 " | %.2f | **%.4f** |\n",
           at->topology, at->model, at->global_batch, at->seq,
           choice->shapes[MICS_UNIT_DENSE].p_param, choice->shapes[MICS_UNIT_DENSE].p_grad,
           choice->shapes[MICS_UNIT_DENSE].p_optim, choice->micro_steps, choice->micro_batch,
           mics_recompute_name(choice->recompute), plan->predicted.step_s, brute.best_s,
           brute.simulated, brute.grid + limit, seconds, ratio);
    fflush(stdout);
    mics_search_fini(&brute.search);
    mics_plan_free(plan);
    return ratio;
}

/* GPT with 80 layers of 10,240 channels on 1,024 nodes. */
static double plan_8192(void)
{
    static const struct mics_model_config gpt_100b = {
        .family = "gpt2",
        .name = "gpt-100b",
        .n_layer = 80,
        .n_embd = 10240,
        .n_head = 80,
        .n_positions = 2048,
        .vocab_size = 50257,
        .n_inner = 40960,
        .layer_norm_epsilon = 1e-5,
    };
    static const struct bench_case rows[] = {
        {"p4d.24xlarge:1024", "GPT 100 B", 8192, 2048, false},
        {"p4d.24xlarge:1024", "GPT 100 B", 983040, 2048, false},
        {"p5.48xlarge:1024", "GPT 100 B", 32768, 2048, false},
        {"a2-ultragpu-8g:1024", "GPT 100 B", 737280, 2048, true},
    };
    double worst = 0;

    puts("\n| 8,192 GPUs | model | batch | plan | step, s | processor time, s |\n"
         "|---|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mics_search_options options = options_of(&rows[i]);
        struct mics_topology *topology = NULL;
        struct mics_model *model = NULL;
        struct mics_plan *plan = NULL;
        struct mics_err err;
        double seconds;

        if (mics_topology_parse(rows[i].topology, &topology, &err) != MICS_OK ||
            mics_model_new(&gpt_100b, &model, &err) != MICS_OK)
            fail(&rows[i], &err);
        seconds = processor_seconds();
        if (mics_plan_search(topology, model, &options, &plan, &err) != MICS_OK)
            fail(&rows[i], &err);
        seconds = processor_seconds() - seconds;
        worst = fmax(worst, seconds);
        printf("| %s | %s | %" PRIu64 " | (%u, %u, %u) %u x %u %s | %.4g | %.2f |\n",
               rows[i].topology, rows[i].model, rows[i].global_batch,
               plan->choice.shapes[MICS_UNIT_DENSE].p_param,
               plan->choice.shapes[MICS_UNIT_DENSE].p_grad,
               plan->choice.shapes[MICS_UNIT_DENSE].p_optim, plan->choice.micro_steps,
               plan->choice.micro_batch, mics_recompute_name(plan->choice.recompute),
               plan->predicted.step_s, seconds);
        mics_plan_free(plan);
    }
    return worst;
}

int main(int argc, char **argv)
{
    const uint64_t limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 1200;
    double worst = 0, slowest;
    bool kept;

    if (limit == 0 || argc > 2) {
        fputs("usage: plan_search [SIMULATIONS]\n", stderr);
        return 2;
    }
    printf(
        "Brute force simulates, without any bound, the grid of ddp, zero1, zero2, zero3, (p, p, p) "
        "and (p, p, n), each with\nevery micro-batch, level of recomputation, prefetch of 0, 1, 2, "
        "5 and the most that fits, 1 or 4 coalesced units,\nflat or hierarchical exchanges (at "
        "most %" PRIu64 " plan options of it), and %" PRIu64
        " plan options drawn from the whole space.\n\n",
        limit, limit);
    puts("| cluster | model | batch | seq | plan | step, s | best by brute force, s | simulated | "
         "planning, s | ratio |\n|---|---|---|---|---|---|---|---|---|---|");
    for (int i = 0; i < CASES; i++)
        worst = fmax(worst, run_case(&cases[i], limit));
    slowest = plan_8192();
    kept = worst <= 1.01 && slowest <= 3;
    printf("\n%d cases: worst ratio %.4f (at most 1.01: %s); 8,192 GPUs: %.2f s of processor time "
           "(at most 3: %s)\n",
           CASES, worst, worst <= 1.01 ? "kept" : "MISSED", slowest,
           slowest <= 3 ? "kept" : "MISSED");
    return kept ? 0 : 1;
}
