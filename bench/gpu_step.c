/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_step.c - the speed of training steps on one GPU, and the memory that they take.
 *
 * usage: gpu_step PLAN STEPS     a plan for one rank; the plug-in as MICS_PLUGIN_PATH says
 *
 * Random tokens, parameters as training begins with them, no data and no checkpoints. Prints one line:
 *     tokens_per_s ms_per_step first_s plan_bytes taken_bytes mfu loss
 * The median of the steps after the first three; first_s is from the start of the process to the end of the first
 * step; taken_bytes is what is missing of the GPU's free memory at the end; mfu counts 6N + 6LCT against the
 * peak of the plan's topology.
 */
#include "base/clock.h"
#include "doc/doc.h"
#include "machine/choose.h"
#include "plan/plan.h"
#include "train/engine.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM = 3 };

static uint64_t state = 88172645463325252u;

/* Marsaglia's xorshift64: any tokens will do. */
static uint32_t random_below(uint32_t bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * bound >> 32);
}

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct mics_plan *plan = context;
    const uint64_t count = (uint64_t)plan->choice.micro_batch * plan->choice.seq;

    (void)micro_step;
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(plan->model->config.vocab_size);
    for (uint64_t i = 0; i < count; i++)
        targets[i] = tokens[(i + 1) % count];
}

static void must(enum mics_status status, const struct mics_err *err)
{
    if (status == MICS_OK)
        return;
    fprintf(stderr, "gpu_step: %s\n", err->text);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Seconds of the median step after the warm ones, one step always in flight as in training. */
static double measure(struct mics_engine *engine, struct mics_plan *plan, uint32_t steps,
                      double begun, double *first_s, double *loss)
{
    double *seconds = calloc(steps, sizeof *seconds);
    struct mics_step_result result = {0};
    struct mics_err err;

    if (!seconds)
        abort();
    for (uint32_t i = 0; i < steps + 1; i++) {
        const struct mics_step_input input = {
            .step = i + 1, .lr = 1e-4f, .fill = fill, .fill_context = plan};

        if (i < steps)
            must(mics_engine_submit(engine, &input, &err), &err);
        if (i == 0)
            continue;
        must(mics_engine_collect(engine, &result, &err), &err);
        seconds[i - 1] = result.seconds;
        if (i == 1)
            *first_s = result.begin_s + result.seconds - begun;
    }
    *loss = result.loss;
    qsort(seconds + WARM, steps - WARM, sizeof *seconds, by_size);
    const double median = seconds[WARM + (steps - WARM) / 2];
    free(seconds);
    return median;
}

static void print(const struct mics_plan *plan, double seconds, double first_s, uint64_t taken,
                  double loss)
{
    const double tokens = (double)plan->global_batch * plan->choice.seq;
    const double flops =
        mics_model_flops_per_token(plan->model, plan->choice.seq) * tokens / seconds;

    printf("%.0f %.3f %.2f %llu %llu %.4f %.4f\n", tokens / seconds, 1e3 * seconds, first_s,
           (unsigned long long)(plan->memory.arena_bytes + plan->memory.workspace_bytes),
           (unsigned long long)taken, flops / 989e12, loss);
}

int main(int argc, char **argv)
{
    const double begun = mics_now_s();
    struct mics_world *world;
    struct mics_plan *plan = NULL;
    struct mics_chosen gpu;
    struct mics_engine *engine = NULL;
    struct mics_err err;
    json_t *doc = NULL;
    double first_s = 0, loss = 0;
    uint64_t before = 0, after = 0;

    const long steps = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (steps <= WARM || steps > 10000) {
        fprintf(stderr, "usage: gpu_step PLAN STEPS (more than %d steps)\n", WARM);
        return 2;
    }
    must(mics_doc_read_file(argv[1], &doc, &err), &err);
    must(mics_plan_from_doc(doc, &plan, &err), &err);
    must(mics_world_open(&world, &err), &err);
    must(mics_device_choose(world, MICS_DEVICE_CUDA, 1, &gpu, &err), &err);
    must(gpu.device->ops->memory_left(gpu.device, &before, &err), &err);
    const struct mics_engine_options options = {
        .model = plan->model,
        .choice = &plan->choice,
        .world = world,
        .device = gpu.device,
        .optimizer = {.beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .clip = plan->choice.clip ? 1.0f : 0.0f}};
    must(mics_engine_new(&options, &engine, &err), &err);
    must(mics_engine_init(engine, 1, &err), &err);
    const double seconds = measure(engine, plan, (uint32_t)steps, begun, &first_s, &loss);
    must(gpu.device->ops->memory_left(gpu.device, &after, &err), &err);
    print(plan, seconds, first_s, before - after, loss);
    mics_engine_free(engine);
    mics_chosen_close(&gpu);
    mics_world_close(world);
    mics_plan_free(plan);
    json_decref(doc);
    return 0;
}
