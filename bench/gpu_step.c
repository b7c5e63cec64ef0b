/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_step.c - speed and memory of training steps on one GPU.
 *
 * usage: gpu_step PLAN STEPS     PLAN is for one rank; MICS_PLUGIN_PATH selects the plug-in
 *
 * Uses random tokens and initial parameters, without data files or checkpoints. Prints lines
 * "NAME NUMBER":
 *     tokens_per_s, step_ms     of the mean step after the first three
 *     mfu                       6N + 6LCT against 989 TFLOP/s
 *     loss                      of the last step
 *     plan_bytes, taken_bytes   the plan's arena and workspaces; by how much the GPU's free memory
 *                               has shrunk since it was opened,
 *     code_bytes                and of that since they were allocated: kernels as they are loaded
 *     first_s                   from main() to the end of the first step, which is the sum of
 *     open_s, memory_s, prepare_s, init_s, steps_s
 *                               the plan, the GPU with its libraries; the arena; algorithms of
 *                               matrix products; initial parameters; the step
 *     first_step_s              the part of steps_s beyond a usual step: loading kernels
 *     enqueue_ms                the host's time to enqueue a step, even if the GPU's queue is full
 *     ahead_ms                  how long before a step ends on the GPU it is all enqueued
 *     ahead_steps               the same in steps: near 0 the GPU waits for the host
 */
#include "base/clock.h"
#include "comm/job_device.h"
#include "doc/doc.h"
#include "engine/engine.h"
#include "plan/plan.h"

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
    const uint32_t most = mics_model_targets_max(plan->model, plan->choice.seq);

    (void)micro_step;
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(plan->model->config.vocab_size);
    for (uint64_t i = 0; i < count; i++)
        targets[i] = i % plan->choice.seq < most ? tokens[(i + 1) % count] : -1;
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

/* End time of each phase, on the clock of mics_now_s(). */
struct start {
    double begun, opened, allocated, prepared, initialised, stepped;
};

/* The GPU's free bytes. */
struct memory {
    uint64_t opened, allocated, ended;
};

/* Seconds of each step: on the GPU, in mics_engine_submit(), and from its return to the step's
 * end. */
struct times {
    uint32_t steps;
    double *step, *enqueue, *ahead;
    double loss; /* of the last */
};

static struct times new_times(uint32_t steps)
{
    struct times times = {.steps = steps, .step = calloc(3 * (size_t)steps, sizeof(double))};

    if (!times.step)
        abort();
    times.enqueue = times.step + steps;
    times.ahead = times.enqueue + steps;
    return times;
}

static void submit(struct mics_engine *engine, struct mics_plan *plan, uint32_t i,
                   struct times *times)
{
    const struct mics_step_input input = {
        .step = i + 1, .lr = 1e-4f, .fill = fill, .fill_context = plan};
    const double began = mics_now_s();
    struct mics_err err;

    must(mics_engine_submit(engine, &input, &err), &err);
    times->ahead[i] = -mics_now_s();
    times->enqueue[i] = -times->ahead[i] - began;
}

/* One step is always in flight, as in training; returns when the first was over. */
static double run(struct mics_engine *engine, struct mics_plan *plan, struct times *times)
{
    double end = mics_now_s(), first_end = 0;
    struct mics_step_result result = {0};
    struct mics_err err;

    for (uint32_t i = 0; i < times->steps + 1; i++) {
        if (i < times->steps)
            submit(engine, plan, i, times);
        if (i == 0)
            continue;
        must(mics_engine_collect(engine, &result, &err), &err);
        times->step[i - 1] = result.seconds; /* since the end of the one before */
        end += result.seconds;
        times->ahead[i - 1] += end;
        if (i == 1)
            first_end = end;
    }
    times->loss = result.loss;
    return first_end;
}

/* Mean time of the steps after the warm-up. */
static double mean_step(const struct times *times)
{
    double sum = 0;

    for (uint32_t i = WARM; i < times->steps; i++)
        sum += times->step[i];
    return sum / (times->steps - WARM);
}

/* Median time of the steps after the warm-up, which are sorted. */
static double median(const struct times *times, double *of)
{
    qsort(of + WARM, times->steps - WARM, sizeof *of, by_size);
    return of[WARM + (times->steps - WARM) / 2];
}

static void put(const char *name, double value)
{
    printf("%s %.8g\n", name, value);
}

static void put_bytes(const char *name, int64_t bytes)
{
    printf("%s %lld\n", name, (long long)bytes);
}

static void print_start(const struct start *start, double step)
{
    put("first_s", start->stepped - start->begun);
    put("open_s", start->opened - start->begun);
    put("memory_s", start->allocated - start->opened);
    put("prepare_s", start->prepared - start->allocated);
    put("init_s", start->initialised - start->prepared);
    put("steps_s", start->stepped - start->initialised);
    put("first_step_s", start->stepped - start->initialised - step);
}

static void print(const struct mics_plan *plan, const struct start *start,
                  const struct times *times, const struct memory *left)
{
    const double step = mean_step(times), ahead = median(times, times->ahead);
    const double tokens = (double)plan->global_batch * plan->choice.seq;
    const double flops = mics_model_flops_per_token(plan->model, plan->choice.seq) * tokens / step;

    put("tokens_per_s", tokens / step);
    put("step_ms", 1e3 * step);
    put("mfu", flops / 989e12);
    put("loss", times->loss);
    put_bytes("plan_bytes", (int64_t)(plan->memory.arena_bytes + plan->memory.workspace_bytes));
    put_bytes("taken_bytes", (int64_t)(left->opened - left->ended));
    put_bytes("code_bytes", (int64_t)(left->allocated - left->ended));
    print_start(start, step);
    put("enqueue_ms", 1e3 * median(times, times->enqueue));
    put("ahead_ms", 1e3 * ahead);
    put("ahead_steps", ahead / step);
}

static uint64_t memory_left(struct mics_device *gpu)
{
    struct mics_err err;
    uint64_t bytes = 0;

    must(gpu->ops->memory_left(gpu, &bytes, &err), &err);
    return bytes;
}

static struct mics_plan *read_plan(const char *name)
{
    struct mics_plan *plan = NULL;
    struct mics_err err;
    json_t *doc = NULL;

    must(mics_doc_read_file(name, &doc, &err), &err);
    must(mics_plan_from_doc(doc, &plan, &err), &err);
    json_decref(doc);
    return plan;
}

static struct mics_engine *new_engine(const struct mics_plan *plan, struct mics_world *world,
                                      struct mics_device *gpu)
{
    const struct mics_engine_options options = {
        .model = plan->model,
        .choice = &plan->choice,
        .world = world,
        .device = gpu,
        .optimizer = {.beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .clip = plan->choice.clip ? 1.0f : 0.0f}};
    struct mics_engine *engine = NULL;
    struct mics_err err;

    must(mics_engine_new(&options, &engine, &err), &err);
    return engine;
}

int main(int argc, char **argv)
{
    struct start start = {.begun = mics_now_s()};
    const long steps = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    struct mics_world *world;
    struct mics_job_device gpu;
    struct mics_err err;

    if (steps <= WARM || steps > 10000) {
        fprintf(stderr, "usage: gpu_step PLAN STEPS (more than %d steps)\n", WARM);
        return 2;
    }
    struct mics_plan *plan = read_plan(argv[1]);
    must(mics_world_open(&world, &err), &err);
    must(mics_job_device_open(world, MICS_DEVICE_CUDA, 1, &gpu, &err), &err);
    struct memory left = {.opened = memory_left(gpu.device)};
    start.opened = mics_now_s();
    struct mics_engine *engine = new_engine(plan, world, gpu.device);
    left.allocated = memory_left(gpu.device);
    start.allocated = mics_now_s();
    must(mics_engine_prepare(engine, &err), &err);
    start.prepared = mics_now_s();
    must(mics_engine_init(engine, 1, &err), &err);
    start.initialised = mics_now_s();
    struct times times = new_times((uint32_t)steps);
    start.stepped = run(engine, plan, &times);
    left.ended = memory_left(gpu.device);
    print(plan, &start, &times, &left);
    free(times.step);
    mics_engine_free(engine);
    mics_job_device_close(&gpu);
    mics_world_close(world);
    mics_plan_free(plan);
    return 0;
}
