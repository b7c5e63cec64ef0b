/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.c - before the first step: choose matrix product algorithms, and warm up communicators.
 *
 * Each rank issues the forward and backward passes of its schedules to a stream that only records
 * the products, one of each shape. Among ranks with equal devices (mics_device.tuning) the first
 * one chooses the algorithms for all: timings differ from run to run and from GPU to GPU,
 * and different algorithms round differently. Hosts choose nothing, but in bf16 all must have equal
 * devices, because results would depend on which rank runs where; and oneDNN's primitives are made
 * here.
 *
 * Communication libraries connect ranks, and allocate device memory, when an algorithm is used for
 * the first time. The warm-up makes this happen before the first step: it is not part of a step's
 * time, the memory is measured, and a lack of it ends the job at once. It exchanges whatever is in
 * the arena, which is filled only afterwards.
 */
#include "base/clock.h"
#include "base/num.h"
#include "base/units.h"
#include "comm/agree.h"
#include "device/device.h"
#include "engine/engine_internal.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>

/* A stream that records, with its own device. */
struct recorder {
    struct mics_stream stream; /* first */
    struct mics_device device;
    struct mics_args_matmul *products; /* [count], one of each shape */
    size_t count;
    bool failed; /* out of memory */
};

/* The alignment of an address, up to 256, or 0 for NULL: all of it that matters to a product. */
static uintptr_t alignment_of(const void *address)
{
    const uintptr_t bits = (uintptr_t)address | 256;

    return address ? bits & -bits : 0;
}

static bool same_product(const struct mics_args_matmul *x, const struct mics_args_matmul *y)
{
    return alignment_of(x->out) == alignment_of(y->out) &&
           alignment_of(x->a) == alignment_of(y->a) && alignment_of(x->b) == alignment_of(y->b) &&
           alignment_of(x->bias) == alignment_of(y->bias) &&
           alignment_of(x->add) == alignment_of(y->add) &&
           (x->add == x->out) == (y->add == y->out) &&
           alignment_of(x->pre_gelu) == alignment_of(y->pre_gelu) &&
           alignment_of(x->gelu_of) == alignment_of(y->gelu_of) && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->lda == y->lda && x->ldb == y->ldb && x->ldout == y->ldout &&
           x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->dtype == y->dtype &&
           x->out_dtype == y->out_dtype;
}

static void record(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                   size_t size)
{
    struct recorder *recorder = (struct recorder *)stream;
    const struct mics_args_matmul *product = args;

    (void)size;
    if (kernel != MICS_K_MATMUL || recorder->failed)
        return;
    for (size_t i = 0; i < recorder->count; i++)
        if (same_product(&recorder->products[i], product))
            return;
    struct mics_args_matmul *products =
        realloc(recorder->products, (recorder->count + 1) * sizeof *products);
    if (!products) {
        recorder->failed = true;
        return;
    }
    recorder->products = products;
    products[recorder->count++] = *product;
}

static void record_schedule(struct mics_engine *engine, const struct mics_schedule *schedule,
                            bool train, struct recorder *recorder)
{
    struct issue issue = {.schedule = schedule,
                          .stream = &recorder->stream,
                          .batch = mics_choice_batch(&engine->choice, MICS_UNIT_DENSE, train),
                          .step = 1};

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        issue.op = &schedule->ops[i];
        if (issue.op->kind == MICS_OP_FORWARD || issue.op->kind == MICS_OP_BACKWARD)
            mics_engine_issue(engine, &issue);
    }
}

/* What ranks exchange to find those with equal devices. */
struct tuning_info {
    char tuning[sizeof((struct mics_device *)0)->tuning];
    uint64_t count; /* of products */
};

static enum mics_status refuse_hosts(const struct mics_world *world,
                                     const struct tuning_info *infos, uint32_t rank,
                                     struct mics_err *err)
{
    uint32_t first;
    const char *here = world->host_of_node[mics_world_node_of(world, 0, &first)];
    const char *there = world->host_of_node[mics_world_node_of(world, rank, &first)];

    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "rank 0 on %s multiplies bf16 by %s, rank %u on %s by %s, which rounds "
                        "otherwise; set MICS_ONEDNN=0 for all ranks, or use equal machines",
                        here, infos[0].tuning, rank, there, infos[rank].tuning);
}

/* leaders[rank]: the first rank whose device equals that of `rank`. MICS_ERR_DEVICE: ranks have
 * recorded different numbers of products. MICS_ERR_UNSUPPORTED: hosts with different devices. */
static enum mics_status find_leaders(const struct mics_engine *engine, size_t count, int *leaders,
                                     struct mics_err *err)
{
    struct mics_comm *comm = engine->options.world->comm;
    struct tuning_info *infos = calloc((size_t)comm->size, sizeof *infos), own = {.count = count};

    if (!infos)
        return mics_err_nomem(err);
    memcpy(own.tuning, engine->device->tuning, sizeof own.tuning);
    enum mics_status status = mics_comm_all_gather_now(comm, &own, infos, sizeof own, err);
    for (int i = 0; status == MICS_OK && i < comm->size; i++) {
        leaders[i] = 0;
        while (strcmp(infos[leaders[i]].tuning, infos[i].tuning) != 0)
            leaders[i]++;
        if (infos[i].count != infos[0].count)
            status = mics_err_set(err, MICS_ERR_DEVICE,
                                  "%llu shapes of matrix products on rank 0, but %llu on rank %d",
                                  (unsigned long long)infos[0].count,
                                  (unsigned long long)infos[i].count, i);
        else if (engine->device->on_host && count > 0 && leaders[i] != 0)
            status = refuse_hosts(engine->options.world, infos, (uint32_t)i, err);
    }
    free(infos);
    return status;
}

/* Broadcast the choices of each leader. A rank keeps those of its own leader in `choices`; `other`
 * receives the rest. */
static enum mics_status share(struct mics_comm *comm, const int *leaders, uint64_t bytes,
                              void *choices, void *other, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int i = 0; status == MICS_OK && i < comm->size; i++)
        if (leaders[i] == i)
            status = mics_comm_broadcast_now(comm, leaders[comm->rank] == i ? choices : other,
                                             bytes, i, err);
    return status;
}

/* Choose algorithms for the recorded products, exchange the choices, and use them. */
static enum mics_status choose_algorithms(struct mics_engine *engine,
                                          const struct recorder *recorder, const int *leaders,
                                          struct mics_matmul_choice *choices, struct mics_err *err)
{
    struct mics_comm *comm = engine->options.world->comm;
    struct mics_stream *stream = engine->executor.streams[MICS_STREAM_COMPUTE];
    const struct mics_device_ops *device = engine->device->ops;
    const bool leads = leaders[comm->rank] == comm->rank;
    const size_t count = recorder->count;
    enum mics_status status = MICS_OK;

    if (leads)
        status = device->prepare(stream, recorder->products, count, false, choices, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = share(comm, leaders, count * sizeof *choices, choices, choices + count, err);
    if (status == MICS_OK && !leads)
        status = device->prepare(stream, recorder->products, count, true, choices, err);
    return mics_agree(comm, status, err);
}

/* In fp32 a host has nothing to prepare, so that its start takes no longer. */
static bool needs_preparation(const struct mics_engine *engine)
{
    const struct mics_device *device = engine->device;

    return device->ops->prepare && (!device->on_host || engine->choice.dtype == MICS_BF16);
}

enum mics_status mics_engine_prepare(struct mics_engine *engine, struct mics_err *err)
{
    static const struct mics_device_ops ops = {.launch = record};
    struct mics_comm *comm = engine->options.world->comm;
    struct mics_device *device = engine->device;
    struct recorder recorder = {.device.ops = &ops};
    struct mics_matmul_choice *choices = NULL;
    enum mics_status status = MICS_OK;

    if (!needs_preparation(engine))
        return MICS_OK;
    if (device->ops->open_products)
        status = device->ops->open_products(device, err);
    int *leaders = calloc((size_t)comm->size, sizeof *leaders);
    recorder.stream.device = &recorder.device;
    record_schedule(engine, engine->train.schedule, true, &recorder);
    record_schedule(engine, engine->eval.schedule, false, &recorder);
    if (!recorder.failed)
        choices = calloc(2 * recorder.count + 1, sizeof *choices);
    if (status == MICS_OK && !(leaders && choices))
        status = mics_err_nomem(err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = find_leaders(engine, recorder.count, leaders, err);
    if (status == MICS_OK && recorder.count > 0)
        status = choose_algorithms(engine, &recorder, leaders, choices, err);
    free(recorder.products);
    free(choices);
    free(leaders);
    return status;
}

static const double poll_s = 1e-3;
/* With less free memory than this, a library may have failed for lack of memory. */
static const uint64_t scarce_bytes = (uint64_t)1 << 28;

uint64_t mics_engine_memory_left(const struct mics_engine *engine)
{
    struct mics_device *device = engine->device;
    uint64_t left = 0;

    if (device->on_host || !device->ops->memory_left ||
        device->ops->memory_left(device, &left, NULL) != MICS_OK)
        return 0;
    return left;
}

static bool same_collective(const struct mics_op *a, const struct mics_op *b)
{
    return a->kind == b->kind && a->collective == b->collective && a->groups == b->groups &&
           a->comm == b->comm && a->stream == b->stream && a->count == b->count &&
           a->from.dtype == b->from.dtype;
}

/* The first such collective of the schedule on a communicator of several ranks. */
static bool is_first_of_kind(const struct mics_engine *engine, const struct mics_schedule *schedule,
                             uint32_t index)
{
    const struct mics_op *op = &schedule->ops[index];

    if (!mics_op_is_comm(op->kind) ||
        engine->executor.groups[op->groups].comms[op->comm]->size == 1)
        return false;
    for (uint32_t i = 0; i < index; i++)
        if (same_collective(&schedule->ops[i], op))
            return false;
    return true;
}

/* Each collective runs on its own stream, which may allocate memory for it, and after the previous
 * one, because all use the same buffers. `end` is recorded after the last one. */
static void enqueue_warm_up(struct mics_engine *engine, const struct mics_schedule *schedule,
                            struct mics_event *end)
{
    const struct mics_device_ops *device = engine->device->ops;
    struct issue issue = {.schedule = schedule,
                          .batch =
                              mics_choice_batch(&engine->choice, MICS_UNIT_DENSE, schedule->train)};

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (!is_first_of_kind(engine, schedule, i))
            continue;
        issue.op = op;
        issue.stream = engine->executor.streams[op->stream];
        device->event_wait(issue.stream, end);
        mics_engine_issue(engine, &issue);
        device->event_record(end, issue.stream);
    }
}

/* If another rank has failed, a collective never ends and no stream reports it. */
static enum mics_status wait_for(struct mics_engine *engine, struct mics_event *end,
                                 struct mics_err *err)
{
    struct mics_device *device = engine->device;
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && !device->ops->event_reached(end)) {
        mics_sleep_s(poll_s);
        status = mics_engine_check(engine, err);
    }
    return status == MICS_OK ? device->ops->event_sync(end, err) : status;
}

static enum mics_status run_warm_up(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_device *device = engine->device;
    struct mics_event *end = NULL;
    enum mics_status status = device->ops->event_open(device, &end, err);

    if (status != MICS_OK)
        return status;
    device->ops->event_record(end, engine->executor.streams[MICS_STREAM_COMPUTE]);
    enqueue_warm_up(engine, engine->train.schedule, end);
    enqueue_warm_up(engine, engine->eval.schedule, end);
    if (engine->drain.schedule)
        enqueue_warm_up(engine, engine->drain.schedule, end);
    status = wait_for(engine, end, err);
    device->ops->event_close(end);
    return status;
}

static void add_free_memory(const struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t left = mics_engine_memory_left(engine);
    char buf[2][32];

    if (left < scarce_bytes)
        mics_err_prefix(err, "the plan's arena of %s leaves %s to the communicators",
                        mics_format_bytes(engine->memory.arena_bytes, buf[0], sizeof buf[0]),
                        mics_format_bytes(left, buf[1], sizeof buf[1]));
}

enum mics_status mics_engine_warm_up(struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t before = mics_engine_memory_left(engine);

    if (engine->device->on_host || engine->options.world->size == 1)
        return MICS_OK;
    const enum mics_status status = run_warm_up(engine, err);
    if (status != MICS_OK) {
        add_free_memory(engine, err);
        return status;
    }
    engine->comm_bytes += before - mics_min_u64(before, mics_engine_memory_left(engine));
    for (int unit_kind = 0; unit_kind < MICS_UNIT_KIND_COUNT; unit_kind++)
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
            struct mics_comm *comm = engine->executor.groups[unit_kind].comms[kind];

            if (comm)
                comm->counts = (struct mics_comm_counts){0};
        }
    return MICS_OK;
}
