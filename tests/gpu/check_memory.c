/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_memory.c - the memory that a training step takes of a GPU, line by line, compared with the
 * plan.
 *
 * usage: check_memory        or under mpirun, for the communicators: one rank for each GPU, or with
 * MICS_GPU_SHARE=1 several on one, each with its own NCCL_HOSTID
 *
 * The plug-in is what MICS_PLUGIN_PATH names, else the emulated one of this build, whose GPU has no
 * context. Every line must cover what was taken; the numbers are printed. No other program may use
 * the GPU meanwhile. Rank 0 prints TAP.
 */
#include "base/num.h"
#include "comm/job_device.h"
#include "comm/staged.h"
#include "engine/engine.h"
#include "plan/gpu_memory.h"
#include "plan/memory.h"
#include "plugin_path.h"
#include "topology/gpu_info.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1.0 / (1 << 20))

/* A stream has some memory of its own, and CUDA hands out pieces of 2 MiB. */
static const uint64_t slack_bytes = 2 << 20;

static struct mics_world *world;
static int tests, bad;

static void must(enum mics_status status, const struct mics_err *err)
{
    if (status == MICS_OK)
        return;
    printf("Bail out! %s\n", err->text);
    exit(1);
}

static void report(bool good, const char *line, uint64_t taken, uint64_t planned)
{
    bad += !good;
    if (world->rank == 0)
        printf("%s %d - %s: %.1f MiB taken, %.1f planned\n", good ? "ok" : "not ok", ++tests, line,
               (double)taken * MIB, (double)planned * MIB);
    else if (!good)
        printf("# rank %u: %s: %.1f MiB taken, %.1f planned\n", world->rank, line,
               (double)taken * MIB, (double)planned * MIB);
}

static void skip(const char *line, const char *reason)
{
    if (world->rank == 0)
        printf("ok %d - %s # SKIP %s\n", ++tests, line, reason);
}

static uint64_t left_on(struct mics_device *device)
{
    struct mics_err err;
    uint64_t left = 0;

    must(device->ops->memory_left(device, &left, &err), &err);
    return left;
}

/* The GPU as NVML saw it before there was a context; NULL: it does not know it. */
static const struct mics_nvml_gpu *find_gpu(const struct mics_nvml_gpu *gpus, uint32_t count,
                                            const struct mics_device *device)
{
    for (uint32_t i = 0; i < count; i++)
        if (mics_nvml_gpu_is(&gpus[i], device->uuid) && gpus[i].free_bytes > 0)
            return &gpus[i];
    return NULL;
}

/* cuBLASLt's workspace and that for partial sums: streams of computation have one, those of
 * communication have none. */
static void check_workspaces(struct mics_device *device)
{
    struct mics_stream *streams[2] = {NULL};
    uint64_t taken[2];
    struct mics_err err;

    for (int priority = 0; priority < 2; priority++) {
        const uint64_t before = left_on(device);

        must(device->ops->stream_open(device, "check", priority, &streams[priority], &err), &err);
        taken[priority] = before - mics_min_u64(before, left_on(device));
    }
    report(taken[0] >= MICS_GPU_WORKSPACE_BYTES &&
               taken[0] <= MICS_GPU_WORKSPACE_BYTES + slack_bytes,
           "workspace of a stream of computation", taken[0], MICS_GPU_WORKSPACE_BYTES);
    report(taken[1] <= slack_bytes, "a stream of communication has none", taken[1], 0);
    for (int i = 0; i < 2; i++)
        device->ops->stream_close(streams[i]);
}

static struct mics_plan_choice choose(void)
{
    const uint32_t n = world->size;

    return (struct mics_plan_choice){
        .shapes = MICS_SAME_SHAPE({world->node_count, world->local_size, n, n, n}),
        .strategy = "zero3",
        .segments = 1,
        .coalesce = 1,
        .prefetch = 1,
        .grad_slots = 2,
        .micro_batch = 1,
        .micro_steps = 1,
        .seq = 16,
        .optimizer = MICS_OPT_ADAMW,
        .dtype = MICS_BF16,
        .grad_dtype = MICS_BF16,
    };
}

/* As a probe would describe these ranks, but for the rates of links: NVLink's nominal one, or that
 * of PCI Express. */
static struct mics_topology describe(const struct mics_nvml_gpu *gpu)
{
    struct mics_topology topology = {
        .device = "GPU", .nodes = world->node_count, .per_node = world->local_size};

    topology.node_link.bandwidth_bytes = gpu && gpu->nvlink_rate > 0 ? gpu->nvlink_rate : 20e9;
    topology.net_link.bandwidth_bytes = 12.5e9;
    return topology;
}

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    (void)context, (void)micro_step;
    for (int t = 0; t < 16; t++) {
        tokens[t] = t;
        targets[t] = t + 1;
    }
}

/* One step, so that all code is loaded and every communicator connected. */
static void run_step(struct mics_engine *engine)
{
    const struct mics_step_input input = {.step = 1, .lr = 1e-4f, .fill = fill};
    struct mics_step_result result;
    struct mics_err err;

    must(mics_engine_warm_up(engine, &err), &err);
    must(mics_engine_init(engine, 1, &err), &err);
    must(mics_engine_submit(engine, &input, &err), &err);
    must(mics_engine_collect(engine, &result, &err), &err);
    if (!isfinite(result.loss)) {
        printf("Bail out! the loss is %g\n", result.loss);
        exit(1);
    }
}

/* Ranks on one GPU see each other's allocations. */
static uint64_t ranks_on_this_gpu(void)
{
    const char *shared = getenv("MICS_GPU_SHARE");

    return shared && strcmp(shared, "1") == 0 ? world->size : 1;
}

static void check_step(struct mics_device *device, const struct mics_nvml_gpu *gpu)
{
    const struct mics_plan_choice choice = choose();
    const struct mics_topology topology = describe(gpu);
    const uint64_t ranks = ranks_on_this_gpu();
    struct mics_model *model = NULL;
    struct mics_engine *engine = NULL;
    struct mics_comm *comm = NULL;
    struct mics_memory memory;
    struct mics_err err;

    must(mics_model_open("gpt2-nano", &model, &err), &err);
    must(mics_memory_compute_on(&topology, model, &choice, &memory, &err), &err);
    must(mics_comm_new_for_device(world->comm, device, &comm, &err), &err);
    const struct mics_engine_options options = {
        .model = model,
        .choice = &choice,
        .world = world,
        .comm = comm,
        .device = device,
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}};
    must(mics_engine_new(&options, &engine, &err), &err);
    run_step(engine);

    const uint64_t comm_bytes = mics_engine_comm_bytes(engine);
    const uint64_t left = left_on(device);
    const char *const lines[] = {"NCCL's communicators", "CUDA context and modules",
                                 "all that the plan counts"};
    if (world->size == 1)
        skip(lines[0], "one rank has none; mpirun starts more");
    else if (strcmp(comm->backend, "nccl") != 0)
        skip(lines[0], "ranks do not talk by NCCL");
    else
        report(comm_bytes > 0 && comm_bytes <= ranks * memory.communicator_bytes, lines[0],
               comm_bytes, ranks * memory.communicator_bytes);
    if (!gpu || ranks > 1) {
        skip(lines[1], gpu ? "ranks share the GPU" : "NVML does not know this GPU");
        skip(lines[2], gpu ? "ranks share the GPU" : "NVML does not know this GPU");
    } else {
        const uint64_t taken = gpu->free_bytes - mics_min_u64(gpu->free_bytes, left);
        const uint64_t known = memory.arena_bytes + memory.workspace_bytes + comm_bytes;
        const uint64_t context = taken - mics_min_u64(taken, known);

        report(context <= memory.context_bytes, lines[1], context, memory.context_bytes);
        report(taken >= memory.arena_bytes && taken <= mics_memory_total(&memory, &topology),
               lines[2], taken, mics_memory_total(&memory, &topology));
    }
    mics_engine_free(engine);
    mics_comm_free(comm);
    mics_model_free(model);
}

int main(void)
{
    struct mics_nvml_gpu *gpus = NULL;
    struct mics_job_device chosen;
    struct mics_err err;
    uint32_t count = 0;

    use_plugin();
    must(mics_world_open(&world, &err), &err);
    if (mics_nvml_list(&gpus, &count, NULL) != MICS_OK)
        count = 0;
    must(mics_job_device_open(world, MICS_DEVICE_CUDA, 1, &chosen, &err), &err);
    if (world->rank == 0)
        printf("# %s: %s\n", chosen.device->name, chosen.device->description);
    if (ranks_on_this_gpu() == 1) /* else others allocate meanwhile */
        check_workspaces(chosen.device);
    check_step(chosen.device, find_gpu(gpus, count, chosen.device));
    if (world->rank == 0)
        printf("1..%d\n", tests);
    mics_job_device_close(&chosen);
    mics_world_close(world);
    free(gpus);
    return bad != 0;
}
