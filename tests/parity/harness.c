/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "base/clock.h"
#include "base/philox.h"
#include "comm/staged.h"
#include "device/launch.h"
#include "host/numbers.h"
#include "ops.h"
#include "plan/layout.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DATA_SEED  20260217
#define DELAY_SEED 99

struct rank {
    pthread_t thread;
    const struct parity_case *c;
    struct mics_comm *comm;
    struct parity_result *result;
    uint32_t id, n, step;
    uint64_t delays;
    int32_t *before; /* the last tokens that were filled in */
    enum mics_status status;
    struct mics_err err;
};

void parity_sample(const struct parity_case *c, uint32_t step, uint64_t g, int32_t *tokens,
                   int32_t *targets)
{
    const uint32_t T = c->choice.seq, V = c->model->config.vocab_size;
    const bool encodes = c->model->config.mask_rate > 0; /* its targets are few */
    uint32_t left = mics_model_targets_max(c->model, T);

    for (uint32_t t = 0; t < T; t++) {
        const uint64_t draw = mics_philox_u64(DATA_SEED, step, g * T + t);
        const bool none = encodes ? left == 0 || (draw >> 32) % 3 > 0 : (draw >> 32) % 5 == 0;

        tokens[t] = (int32_t)(draw % V);
        targets[t] = !c->all_counted && none ? -1 : (int32_t)((draw >> 40) % V);
        if (c->documents && (t % 3 == 2 || t >= T - T % 3)) /* the end of one, or padding */
            targets[t] = t % 3 == 2 ? MICS_TARGET_LAST : MICS_TARGET_NONE;
        left -= targets[t] >= 0 && left > 0;
    }
}

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    struct rank *rank = context;
    const struct mics_plan_choice *choice = &rank->c->choice;

    if (rank->c->reuses_batch && rank->before)
        memset(rank->before, 0, choice->micro_batch * choice->seq * sizeof *tokens);
    rank->before = tokens;
    for (uint32_t b = 0; b < choice->micro_batch; b++) {
        const uint64_t g = rank->c->first_sample +
                           ((uint64_t)micro_step * rank->n + rank->id) * choice->micro_batch + b;

        parity_sample(rank->c, rank->step, g, tokens + b * choice->seq, targets + b * choice->seq);
    }
}

/* An evaluation takes one micro-batch a rank, so its samples differ between cuts of one global
 * batch: give all ranks the same one. */
static void fill_same(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct rank *rank = context;
    const struct mics_plan_choice *choice = &rank->c->choice;

    (void)micro_step;
    for (uint32_t b = 0; b < choice->micro_batch; b++)
        parity_sample(rank->c, 0, b, tokens + b * choice->seq, targets + b * choice->seq);
}

static void make_infinite(void *context)
{
    const struct parity_injection *injection = context;
    const struct mics_args_cross_entropy *loss = &injection->loss;
    uint32_t row = 0;

    while (!injection->in_experts && loss->targets[row] < 0)
        row++;
    *(injection->in_experts ? injection->of_experts
                            : (uint16_t *)loss->logits + row * (loss->ld ? loss->ld : loss->V)) =
        mics_f16_round(INFINITY);
}

void parity_inject(void *context, struct mics_stream *stream, enum mics_kernel kernel,
                   const void *args)
{
    const struct mics_args_cross_entropy *loss = args;
    const struct mics_args_grouped_matmul_grad *experts = args;
    struct parity_injection *injection = context;

    if (injection->in_experts ? kernel != MICS_K_GROUPED_MATMUL_GRAD
                              : kernel != MICS_K_CROSS_ENTROPY || !loss->grad)
        return;
    if (injection->seen++ != injection->at)
        return;
    if (injection->in_experts)
        injection->of_experts = (uint16_t *)(uintptr_t)experts->b;
    else
        injection->loss = *loss;
    mics_launch_call(stream, &(struct mics_args_call){.fn = make_infinite, .context = injection});
}

/* Called by the threads of the streams, so the counter of draws is atomic. */
static void delay(void *context, uint32_t op)
{
    struct rank *rank = context;
    const struct parity_case *c = rank->c;

    if (c->random_delay_us) {
        const uint64_t draw = __atomic_fetch_add(&rank->delays, 1, __ATOMIC_RELAXED);

        mics_sleep_s(1e-6 * c->random_delay_us * mics_philox_uniform(DELAY_SEED, rank->id, draw));
    }
    if (op == c->slow_op)
        mics_sleep_s(1e-6 * c->slow_us);
}

static enum mics_status keep_shards(struct rank *rank, struct mics_engine *engine)
{
    for (uint32_t unit = 0; unit < rank->c->model->unit_count; unit++) {
        float *shard = calloc(mics_engine_shard_count(engine, unit), sizeof *shard);
        enum mics_status status =
            mics_engine_export(engine, unit, MICS_STATE_PARAM, 0,
                               mics_engine_shard_count(engine, unit), shard, &rank->err);

        rank->result->shards[rank->id][unit] = shard;
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

/* Where the case says so, as before a checkpoint. */
static enum mics_status use_carried(struct rank *rank, struct mics_engine *engine,
                                    struct mics_step_result *step)
{
    enum mics_status status = MICS_OK;
    struct mics_step_result carried;

    if (rank->c->carried_every == 0 || rank->step % rank->c->carried_every != 0)
        return MICS_OK;
    while (status == MICS_OK && mics_engine_uncollected(engine) > 0)
        status = mics_engine_collect(engine, step, &rank->err);
    if (status == MICS_OK)
        status = mics_engine_update_carried(engine, &carried, &rank->err);
    return status == MICS_OK ? mics_engine_average(engine, &rank->err) : status;
}

static enum mics_status train(struct rank *rank, struct mics_engine *engine)
{
    struct mics_step_result step = {0};
    enum mics_status status = mics_engine_init(engine, PARITY_INIT_SEED, &rank->err);

    for (rank->step = 1; status == MICS_OK && rank->step <= rank->c->steps; rank->step++) {
        const struct mics_step_input input = {rank->step, rank->c->lr, fill, rank};

        status = mics_engine_submit(engine, &input, &rank->err);
        if (status == MICS_OK && mics_engine_uncollected(engine) == 2)
            status = mics_engine_collect(engine, &step, &rank->err);
        if (status == MICS_OK)
            status = use_carried(rank, engine, &step);
    }
    while (status == MICS_OK && mics_engine_uncollected(engine) > 0)
        status = mics_engine_collect(engine, &step, &rank->err);
    if (status == MICS_OK && rank->id == 0) {
        rank->result->loss = step.loss;
        rank->result->grad_norm = step.grad_norm;
        rank->result->arena_bytes = mics_engine_arena_bytes(engine);
        rank->result->high_water = mics_engine_high_water(engine);
    }
    mics_engine_counts(engine, rank->result->counts[rank->id]);
    return status;
}

static enum mics_status evaluate(struct rank *rank, struct mics_engine *engine)
{
    struct mics_eval_sums sums = {0};
    enum mics_status status = mics_engine_eval(engine, fill_same, rank, &sums, &rank->err);

    if (rank->id == 0) {
        rank->result->eval_loss = sums.loss / sums.targets;
        rank->result->eval_hits = sums.hits / sums.targets;
    }
    return status;
}

struct mics_optimizer_settings parity_optimizer(const struct parity_case *c)
{
    return (struct mics_optimizer_settings){
        .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.5f, .clip = c->clip};
}

/* *out: NULL if the world's communicator is used. */
static enum mics_status open_comm(struct rank *rank, struct mics_world *world,
                                  struct mics_device *device, struct mics_comm **out)
{
    return rank->c->plugin ? mics_comm_new_for_device(world->comm, device, out, &rank->err)
                           : MICS_OK;
}

static enum mics_status run_engine(struct rank *rank, struct mics_world *world,
                                   struct mics_device *device)
{
    const struct parity_case *c = rank->c;
    struct mics_engine *engine = NULL;
    struct mics_comm *comm = NULL;
    enum mics_status status = open_comm(rank, world, device, &comm);
    const struct mics_engine_options options = {
        .model = c->model,
        .choice = &c->choice,
        .world = world,
        .comm = comm,
        .device = device,
        .schedule = c->schedule,
        .optimizer = parity_optimizer(c),
        .documents = c->documents && !c->ignores_documents,
        .op_durations = c->op_durations,
        .loss_scale =
            {.initial = 4096, .step = 2, .min = 1, .max = 65536, .window = 1000, .hysteresis = 2},
        .before_op = c->random_delay_us || c->slow_op != MICS_NONE ? delay : NULL,
        .context = rank,
    };

    if (status == MICS_OK)
        status = mics_engine_new(&options, &engine, &rank->err);
    if (status == MICS_OK)
        status = train(rank, engine);
    if (status == MICS_OK)
        status = keep_shards(rank, engine);
    if (status == MICS_OK)
        status = evaluate(rank, engine);
    if (status != MICS_OK)
        mics_comm_abort(world->comm, 1);
    mics_engine_free(engine);
    if (comm)
        mics_comm_free(comm);
    return status;
}

static enum mics_status open_device(struct rank *rank, struct mics_device **out)
{
    const struct mics_plugin *plugin = rank->c->plugin;

    return plugin ? plugin->device_open(rank->id, out, &rank->err)
                  : mics_device_new_host(1, out, &rank->err);
}

/* Rank 0's device with another launch(). */
static struct {
    struct mics_device_ops ops;
    const struct mics_device_ops *original;
    const struct parity_case *c;
} watched;

static void watch_launch(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                         size_t size)
{
    watched.c->watch(watched.c->watch_context, stream, kernel, args);
    watched.original->launch(stream, kernel, args, size);
}

static void watch_device(const struct parity_case *c, struct mics_device *device)
{
    watched.original = device->ops;
    watched.c = c;
    watched.ops = *device->ops;
    watched.ops.launch = watch_launch;
    device->ops = &watched.ops;
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    struct mics_world *world = NULL;
    struct mics_device *device = NULL;

    rank->status = mics_world_open_over(rank->comm, mics_choice_per_node(&rank->c->choice), &world,
                                        &rank->err);
    if (rank->status == MICS_OK)
        rank->status = open_device(rank, &device);
    if (rank->status == MICS_OK && rank->id == 0 && rank->c->watch)
        watch_device(rank->c, device);
    if (rank->status == MICS_OK)
        rank->status = run_engine(rank, world, device);
    if (device)
        device->ops->free(device);
    mics_world_close(world);
    return NULL;
}

static struct parity_result *new_result(const struct parity_case *c, uint32_t n)
{
    struct parity_result *result = calloc(1, sizeof *result);

    result->n = n;
    result->replicas_agree = true;
    result->unit_count = c->model->unit_count;
    result->params = calloc(result->unit_count, sizeof *result->params);
    result->counts = calloc(n, sizeof *result->counts);
    result->shards = calloc(n, sizeof *result->shards);
    for (uint32_t i = 0; i < n; i++)
        result->shards[i] = calloc(result->unit_count, sizeof **result->shards);
    for (uint32_t i = 0; i < result->unit_count; i++)
        result->params[i] = calloc(c->model->units[i].count, sizeof(float));
    return result;
}

/* Copy a rank's optimizer shard into the parameters, or compare it with that of a replica. */
static bool place_shard(float *whole, const float *shard, const struct mics_layout *layout,
                        uint32_t index, bool first)
{
    bool same = true;

    for (uint32_t t = 0; t < layout->segments; t++) {
        const uint64_t at = mics_layout_piece_offset(layout, t, layout->optim_piece, index);

        for (uint64_t i = 0; i < layout->optim_piece && at + i < layout->count; i++) {
            const float *value = &shard[t * layout->optim_piece + i];

            if (first)
                whole[at + i] = *value;
            else if (memcmp(&whole[at + i], value, sizeof *value) != 0)
                same = false;
        }
    }
    return same;
}

static void assemble(const struct parity_case *c, struct parity_result *result)
{
    for (uint32_t unit = 0; unit < result->unit_count; unit++) {
        const struct mics_shape *shape = mics_choice_shape_of(&c->choice, &c->model->units[unit]);
        const struct mics_layout layout = mics_choice_layout(c->model, &c->choice, unit);

        for (uint32_t rank = 0; rank < result->n; rank++)
            if (!place_shard(result->params[unit], result->shards[rank][unit], &layout,
                             mics_shape_index(shape, rank).optim, rank < shape->p_optim))
                result->replicas_agree = false;
    }
}

static enum mics_status run_ranks(struct rank *ranks, uint32_t n, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < n; i++)
        pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
    for (uint32_t i = 0; i < n && status == MICS_OK; i++)
        if (ranks[i].status != MICS_OK) {
            status = ranks[i].status;
            *err = ranks[i].err;
            mics_err_prefix(err, "rank %u", i);
        }
    return status;
}

enum mics_status parity_run(const struct parity_case *c, struct parity_result **out,
                            struct mics_err *err)
{
    const uint32_t n = mics_choice_nodes(&c->choice) * mics_choice_per_node(&c->choice);
    struct mics_comm **comms = calloc(n, sizeof(struct mics_comm *));
    struct rank *ranks = calloc(n, sizeof *ranks);
    struct parity_result *result = new_result(c, n);
    enum mics_status status = mics_comm_new_threads((int)n, comms, err);

    for (uint32_t i = 0; i < n; i++)
        ranks[i] = (struct rank){.c = c, .comm = comms[i], .result = result, .id = i, .n = n};
    if (status == MICS_OK)
        status = run_ranks(ranks, n, err);
    free(ranks);
    free(comms);
    if (status != MICS_OK) {
        parity_result_free(result);
        return status;
    }
    assemble(c, result);
    *out = result;
    return MICS_OK;
}

void parity_result_free(struct parity_result *result)
{
    if (!result)
        return;
    for (uint32_t i = 0; i < result->n; i++) {
        for (uint32_t unit = 0; unit < result->unit_count; unit++)
            free(result->shards[i][unit]);
        free(result->shards[i]);
    }
    for (uint32_t i = 0; i < result->unit_count; i++)
        free(result->params[i]);
    free(result->shards);
    free(result->params);
    free(result->counts);
    free(result);
}

static double difference(float a, float b)
{
    if (memcmp(&a, &b, sizeof a) == 0)
        return isfinite(a) ? 0 : INFINITY;
    if (!isfinite(a) || !isfinite(b))
        return INFINITY;
    return fmax(fabs((double)a - b), DBL_MIN);
}

double parity_distance(const struct parity_case *c, const struct parity_result *a,
                       const struct parity_result *b)
{
    double largest = 0;

    for (uint32_t unit = 0; unit < a->unit_count; unit++)
        for (uint64_t i = 0; i < c->model->units[unit].count; i++)
            largest = fmax(largest, difference(a->params[unit][i], b->params[unit][i]));
    return largest;
}

struct parity_case parity_reference(const struct parity_case *c)
{
    struct parity_case reference = *c;

    mics_choice_set_shape(&reference.choice, (struct mics_shape){1, 1, 1, 1, 1});
    reference.choice.micro_steps *= mics_choice_world_size(&c->choice);
    reference.choice.hierarchical_gather = reference.choice.hierarchical_reduce = false;
    reference.choice.segments = 1;
    reference.choice.recompute = MICS_RECOMPUTE_NONE;
    reference.schedule = NULL;
    reference.random_delay_us = 0;
    reference.slow_op = MICS_NONE;
    reference.plugin = NULL;
    reference.reuses_batch = false;
    return reference;
}

struct parity_injection parity_injection_in(const struct parity_case *c, uint32_t step)
{
    struct parity_injection count = {.at = UINT32_MAX};
    struct parity_case first = *c;
    struct parity_result *result = NULL;

    first.steps = 1;
    first.watch = parity_inject;
    first.watch_context = &count;
    if (parity_run(&first, &result, NULL) == MICS_OK)
        parity_result_free(result);
    return (struct parity_injection){.at = (step - 1) * count.seen};
}
