/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_costs.c - computation as the sum of its launches; communication by the cost model.
 *
 * A launch has its measured time where the topology has kernel rates for it, else that of
 * compute.h. The costs of stages are kept by batch, since a search asks for the same ones thousands
 * of times. Stages that are alike are priced once.
 */
#include "plan/schedule/op_costs.h"

#include "base/num.h"
#include "device/launch.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/schedule/launches.h"
#include "topology/compute.h"
#include "topology/contention.h"
#include "topology/nccl_cost.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 64, COLLECTIVES = 1 << 15 };

/* Seconds of each stage of one batch. */
struct batch_costs {
    struct mics_batch batch[MICS_UNIT_KIND_COUNT]; /* by the kind of unit that a stage uses */
    double *forward, *backward; /* [stage_count]; the head's forward includes its backward */
    /* [stage_count] The backward, of the head the forward, that is the first for its unit. */
    double *first;
    double micro_step; /* all stages, without such */
};

/* A collective that was asked for. */
struct known_collective {
    struct mics_span span; /* nodes 0: none */
    enum mics_collective collective;
    uint64_t bytes;
    struct mics_collective_price cost;
};

struct mics_op_costs {
    const struct mics_topology *topology;
    const struct mics_model *model;
    struct mics_compute compute;
    double times[MICS_COST_CLASS_COUNT];        /* those of the topology, of each class */
    double host_copy_rate[2];                   /* bytes/s from the host, to the host */
    struct batch_costs batches[BATCHES];        /* of these the first `count` are valid */
    uint32_t count, newest;                     /* newest: which was used last */
    uint32_t next;                              /* replaced next, when all are valid */
    double *seconds;                            /* backs the arrays of all batches */
    uint32_t *last_stage;                       /* [unit_count] the last that uses the unit */
    struct known_collective known[COLLECTIVES]; /* by hash */
};

enum mics_status mics_op_costs_new(const struct mics_topology *topology,
                                   const struct mics_model *model, struct mics_op_costs **out,
                                   struct mics_err *err)
{
    struct mics_op_costs *costs = calloc(1, sizeof *costs);
    const size_t stages = model->stage_count;

    if (costs) {
        costs->seconds = calloc(3 * BATCHES * stages, sizeof *costs->seconds);
        costs->last_stage = calloc(model->unit_count, sizeof *costs->last_stage);
    }
    if (!costs || !costs->seconds || !costs->last_stage) {
        mics_op_costs_free(costs);
        return mics_err_nomem(err);
    }
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].unit != MICS_NO_UNIT)
            costs->last_stage[model->stages[i].unit] = i;
    costs->topology = topology;
    costs->model = model;
    for (int c = 0; c < MICS_COST_CLASS_COUNT; c++)
        costs->times[c] = 1;
    mics_compute_init(&costs->compute, topology);
    for (int to_host = 0; to_host < 2; to_host++)
        costs->host_copy_rate[to_host] = mics_topology_host_copy_rate(topology, to_host);
    for (size_t i = 0; i < BATCHES; i++) {
        costs->batches[i].forward = costs->seconds + 3 * i * stages;
        costs->batches[i].backward = costs->seconds + (3 * i + 1) * stages;
        costs->batches[i].first = costs->seconds + (3 * i + 2) * stages;
    }
    *out = costs;
    return MICS_OK;
}

void mics_op_costs_free(struct mics_op_costs *costs)
{
    if (!costs)
        return;
    free(costs->seconds);
    free(costs->last_stage);
    free(costs);
}

const struct mics_topology *mics_op_costs_topology(const struct mics_op_costs *costs)
{
    return costs->topology;
}

void mics_op_costs_scale(struct mics_op_costs *costs, const double times[MICS_COST_CLASS_COUNT])
{
    assert(costs->count == 0);
    memcpy(costs->times, times, sizeof costs->times);
}

/* Launches that follow each other on one stream. */
struct launch_sum {
    const struct mics_compute *compute;
    double times;
    struct mics_launch_cost cost;
};

static struct launch_sum launches_on(const struct mics_op_costs *costs)
{
    return (struct launch_sum){.compute = &costs->compute,
                               .times = costs->times[MICS_COST_COMPUTE]};
}

static void add_launch(void *context, enum mics_kernel kernel, const void *args)
{
    struct launch_sum *sum = context;
    const struct mics_topology *topology = sum->compute->topology;
    const double measured_s = mics_kernel_launch_seconds(topology->kernel_rates,
                                                         topology->kernel_rate_count, kernel, args);
    struct mics_kernel_work work;

    if (measured_s >= 0) {
        sum->cost.device_s += measured_s;
        return;
    }
    mics_kernel_work_of(kernel, args, &work);
    const struct mics_launch_cost cost = mics_compute_launch(sum->compute, &work);
    sum->cost.device_s += cost.device_s;
    sum->cost.host_s += cost.host_s;
}

static double seconds_of(const struct launch_sum *sum)
{
    return sum->times * mics_compute_seconds(sum->compute, &sum->cost);
}

static double stage_seconds(const struct mics_op_costs *costs, const struct mics_batch *batch,
                            uint32_t stage, bool backward, bool first)
{
    struct launch_sum sum = launches_on(costs);
    struct mics_recorder recorder;

    mics_recorder_init(&recorder, add_launch, &sum);
    mics_stage_launches(costs->model, batch, stage, backward, first, &recorder);
    return seconds_of(&sum);
}

static void price_batch(const struct mics_op_costs *costs, struct batch_costs *out)
{
    const struct mics_model *model = costs->model;

    out->micro_step = 0;
    for (uint32_t i = 0; i < model->stage_count; i++) {
        const uint32_t alike = mics_stage_alike_before(model, i);

        if (alike < i) {
            out->forward[i] = out->forward[alike];
            out->backward[i] = out->backward[alike];
            out->first[i] = out->first[alike];
        } else {
            const struct mics_batch *batch =
                &out->batch[mics_unit_kind_of(model, model->stages[i].unit)];

            const bool backward = i + 1 < model->stage_count;

            out->forward[i] = stage_seconds(costs, batch, i, false, false);
            out->backward[i] =
                batch->train && backward ? stage_seconds(costs, batch, i, true, false) : 0;
            out->first[i] = batch->train ? stage_seconds(costs, batch, i, backward, true) : 0;
        }
        out->micro_step += out->forward[i] + out->backward[i];
    }
}

/* a and b: [MICS_UNIT_KIND_COUNT]. */
static bool is_same_batch(const struct mics_batch *a, const struct mics_batch *b)
{
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++, a++, b++)
        if (a->B != b->B || a->T != b->T || a->recompute != b->recompute || a->train != b->train ||
            a->dtype != b->dtype || a->grad_dtype != b->grad_dtype ||
            a->expert_ranks != b->expert_ranks || a->expert_load != b->expert_load)
            return false;
    return true;
}

static const struct batch_costs *costs_of_batch(struct mics_op_costs *costs,
                                                const struct mics_plan_choice *choice)
{
    struct mics_batch batch[MICS_UNIT_KIND_COUNT];

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        batch[kind] = mics_choice_batch(choice, (enum mics_unit_kind)kind, true);
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        batch[kind].expert_load = (float)mics_choice_expert_load(choice);
    if (costs->count > 0 && is_same_batch(costs->batches[costs->newest].batch, batch))
        return &costs->batches[costs->newest];
    for (uint32_t i = 0; i < costs->count; i++)
        if (is_same_batch(costs->batches[i].batch, batch)) {
            costs->newest = i;
            return &costs->batches[i];
        }
    costs->newest = costs->next;
    costs->next = (costs->next + 1) % BATCHES;
    costs->count += costs->count < BATCHES;
    memcpy(costs->batches[costs->newest].batch, batch, sizeof batch);
    price_batch(costs, &costs->batches[costs->newest]);
    return &costs->batches[costs->newest];
}

static double zero_seconds(const struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                           uint32_t unit)
{
    const struct mics_layout layout = mics_choice_layout(costs->model, choice, unit);
    struct launch_sum sum = launches_on(costs);
    struct mics_recorder recorder;

    mics_recorder_init(&recorder, add_launch, &sum);
    mics_zero_launches(choice, &costs->model->units[unit], &layout, &recorder);
    return seconds_of(&sum);
}

/* Of a stage with gradients: when the pass is not the unit's first. */
static double later_seconds(const struct mics_op_costs *costs, const struct batch_costs *batch,
                            uint32_t stage)
{
    return stage + 1 == costs->model->stage_count ? batch->forward[stage] : batch->backward[stage];
}

/* A stage and the zeroing before it are added up, so that steps are sums of parts. */
static double run_seconds(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                          const struct mics_op *op)
{
    const struct batch_costs *batch = costs_of_batch(costs, choice);

    if (op->first)
        return batch->first[op->stage] + zero_seconds(costs, choice, op->unit);
    return op->kind == MICS_OP_BACKWARD ? batch->backward[op->stage] : batch->forward[op->stage];
}

/* One copy for each of its vectors; where the host updates, for each tensor of the unit. */
struct mics_copy_price mics_op_costs_copy(const struct mics_op_costs *costs,
                                          const struct mics_plan_choice *choice,
                                          const struct mics_op *op)
{
    const double rate = costs->host_copy_rate[op->kind == MICS_OP_STORE];
    const double times = costs->times[MICS_COST_COMPUTE];
    const uint32_t copies = mics_choice_updates_on_host(choice)
                                ? costs->model->units[op->unit].tensor_count
                                : mics_choice_offload_values(choice);

    return (struct mics_copy_price){.latency_s = times * copies * MICS_HOST_COPY_LATENCY_S,
                                    .transfer_s = times * (double)op->bytes / rate,
                                    .shares_links =
                                        mics_topology_host_copies_share_links(costs->topology)};
}

double mics_op_costs_offload(const struct mics_op_costs *costs,
                             const struct mics_plan_choice *choice, uint32_t unit)
{
    const struct mics_layout layout = mics_choice_layout(costs->model, choice, unit);
    const bool stores = costs->host_copy_rate[1] < costs->host_copy_rate[0];
    struct mics_op op = {.kind = stores ? MICS_OP_STORE : MICS_OP_LOAD};
    double seconds = 0;

    if (mics_choice_updates_on_host(choice))
        return 0; /* its copies share their streams with others */
    for (uint64_t at = 0; at < layout.optim_piece; at += op.count) {
        op.count = mics_min_u64(choice->offload_piece, layout.optim_piece - at);
        op.bytes = op.count * sizeof(float) * mics_choice_offload_values(choice);

        const struct mics_copy_price price = mics_op_costs_copy(costs, choice, &op);
        seconds += layout.segments * (price.latency_s + price.transfer_s);
    }
    return seconds;
}

static double host_update_seconds(const struct mics_op_costs *costs,
                                  const struct mics_plan_choice *choice, uint32_t unit)
{
    const struct mics_layout layout = mics_choice_layout(costs->model, choice, unit);
    const double bytes = (double)mics_layout_optim_shard(&layout) * mics_host_update_bytes(choice);

    return costs->times[MICS_COST_COMPUTE] * bytes / mics_host_update_rate(costs->topology);
}

double mics_op_costs_compute(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                             const struct mics_op *op)
{
    struct launch_sum sum = launches_on(costs);
    struct mics_recorder recorder;

    if (op->kind == MICS_OP_LOAD || op->kind == MICS_OP_STORE) {
        const struct mics_copy_price price = mics_op_costs_copy(costs, choice, op);

        return price.latency_s + price.transfer_s;
    }
    if (op->kind == MICS_OP_UPDATE && mics_choice_updates_on_host(choice))
        return host_update_seconds(costs, choice, op->unit);
    if ((op->kind == MICS_OP_FORWARD || op->kind == MICS_OP_BACKWARD) &&
        op->phase == MICS_PHASE_ALL)
        return run_seconds(costs, choice, op);
    mics_recorder_init(&recorder, add_launch, &sum);
    mics_op_launches(costs->model, choice, op, true, &recorder);
    return seconds_of(&sum);
}

double mics_op_costs_read_back(const struct mics_op_costs *costs,
                               const struct mics_plan_choice *choice, const struct mics_op *op)
{
    struct launch_sum sum = launches_on(costs);
    struct mics_recorder recorder;

    if (op->phase != MICS_PHASE_COUNT || !mics_nccl_is_used(costs->topology))
        return 0;
    const uint64_t bytes = mics_choice_counts_bytes(costs->model, choice);
    mics_recorder_init(&recorder, add_launch, &sum);
    if (bytes > 0)
        mics_launch_copy(&recorder.stream, &(struct mics_args_copy){.bytes = bytes});
    return seconds_of(&sum);
}

/* What the first backward passes of units take more than others: they do not read gradients, but
 * some are zeroed before. Gradients in slots begin in each micro-step, those in shards once. */
static double first_seconds(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                            bool in_slots)
{
    const struct batch_costs *batch = costs_of_batch(costs, choice);
    double seconds = 0;

    for (uint32_t u = 0; u < costs->model->unit_count; u++) {
        const uint32_t stage = costs->last_stage[u];

        if (mics_choice_reduces(choice, costs->model->units[u].kind) == in_slots)
            seconds += zero_seconds(costs, choice, u) + batch->first[stage] -
                       later_seconds(costs, batch, stage);
    }
    return seconds;
}

double mics_op_costs_micro_step(struct mics_op_costs *costs, const struct mics_plan_choice *choice)
{
    return costs_of_batch(costs, choice)->micro_step + first_seconds(costs, choice, true);
}

double mics_op_costs_updates(struct mics_op_costs *costs, const struct mics_plan_choice *choice)
{
    double seconds = first_seconds(costs, choice, false);

    for (uint32_t u = 0; u < costs->model->unit_count; u++) {
        seconds += mics_op_costs_compute(costs, choice,
                                         &(struct mics_op){.kind = MICS_OP_NORM, .unit = u});
        if (choice->offload_piece == 0 || mics_choice_updates_on_host(choice))
            seconds += mics_op_costs_compute(costs, choice,
                                             &(struct mics_op){.kind = MICS_OP_UPDATE, .unit = u});
    }
    return seconds;
}

static double slowdown_of(const struct mics_op_costs *costs, enum mics_collective collective,
                          struct mics_span span, uint64_t bytes)
{
    if (span.nodes == 1 && span.per_node == 1)
        return 0;
    if (mics_nccl_is_used(costs->topology))
        return mics_nccl_slowdown(costs->topology, costs->compute.rates.sms, collective, span,
                                  bytes);
    return mics_contention_of(costs->topology, collective, span, bytes).slowdown;
}

static struct mics_collective_price price_collective(const struct mics_op_costs *costs,
                                                     enum mics_collective collective,
                                                     struct mics_span span, uint64_t bytes)
{
    const struct mics_topology *topology = costs->topology;
    const struct mics_collective_time time =
        mics_cost_collective_time(topology, collective, span, bytes);
    const double times = costs->times[span.nodes > 1 ? MICS_COST_NET : MICS_COST_NODE];
    const double alone_s = time.latency_s + time.transfer_s;
    const double delay_s = mics_contention_of(topology, collective, span, bytes).delay_s;

    return (struct mics_collective_price){
        .latency_s = times * time.latency_s,
        .transfer_s = times * time.transfer_s,
        .slowdown = slowdown_of(costs, collective, span, bytes),
        .stretch = alone_s > 0 ? 1 + delay_s / alone_s : 1,
        .between_nodes = span.nodes > 1,
    };
}

struct mics_collective_price mics_op_costs_collective(struct mics_op_costs *costs,
                                                      const struct mics_shape *shape,
                                                      enum mics_collective collective,
                                                      enum mics_comm_kind comm, uint64_t bytes)
{
    struct mics_group_position at;

    mics_shape_position(shape, comm, 0, &at);

    const struct mics_span span = {at.nodes, at.per_node, at.sharing};
    const uint64_t hash =
        (bytes * 8 + collective + span.nodes * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 +
        (span.per_node + span.sharing * 1024) * 0x94d049bb133111eb;
    struct known_collective *known = &costs->known[(hash ^ hash >> 32) % COLLECTIVES];

    if (known->bytes != bytes || known->collective != collective ||
        known->span.nodes != span.nodes || known->span.per_node != span.per_node ||
        known->span.sharing != span.sharing)
        *known = (struct known_collective){span, collective, bytes,
                                           price_collective(costs, collective, span, bytes)};
    return known->cost;
}

/* The exchanges after a phase of a stage are one collective, of the kind of the last. */
static double phase_exchange_seconds(struct mics_op_costs *costs,
                                     const struct mics_plan_choice *choice,
                                     const struct mics_op *op)
{
    const enum mics_comm_kind comm =
        op->phase == MICS_PHASE_EXPERTS ? MICS_COMM_COMBINE : MICS_COMM_DISPATCH;
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_EXPERT];
    struct mics_pass_exchange exchanges[MICS_PASS_EXCHANGES_MAX];
    const uint32_t count = mics_phase_exchanges(costs->model, choice, true, op, exchanges);
    struct mics_group_position at;
    uint64_t bytes = 0;

    if (count == 0)
        return 0;
    mics_shape_position(shape, comm, 0, &at);
    for (uint32_t i = 0; i < count; i++)
        bytes += exchanges[i].bytes * at.size;
    const struct mics_collective_price price = mics_op_costs_collective(
        costs, shape, exchanges[count - 1].gathers ? MICS_ALL_GATHER : MICS_ALL_TO_ALL, comm,
        bytes);
    return price.latency_s + price.transfer_s + mics_op_costs_read_back(costs, choice, op);
}

/* Forward and backward, in the rounds that the expected load needs. */
static double stage_dispatch_seconds(struct mics_op_costs *costs,
                                     const struct mics_plan_choice *choice, uint32_t stage)
{
    struct mics_batch batch = mics_choice_batch(choice, MICS_UNIT_EXPERT, true);
    struct mics_op op = {.unit = costs->model->stages[stage].unit, .stage = stage};
    double seconds;

    batch.expert_load = (float)mics_choice_expert_load(choice);
    const struct mics_dispatch dispatch = mics_model_dispatch(costs->model, &batch);
    const uint64_t needed = mics_ceil_div(dispatch.rows, dispatch.slots);
    const uint32_t rounds = (uint32_t)mics_min_u64(needed, dispatch.rounds);

    op.phase = MICS_PHASE_COUNT;
    seconds = phase_exchange_seconds(costs, choice, &op);
    for (int backward = 0; backward < 2; backward++)
        for (op.round = 0; op.round < rounds; op.round++) {
            op.backward = backward;
            op.phase = MICS_PHASE_SEND;
            seconds += phase_exchange_seconds(costs, choice, &op);
            op.phase = MICS_PHASE_EXPERTS;
            seconds += phase_exchange_seconds(costs, choice, &op);
        }
    return seconds;
}

double mics_op_costs_dispatch(struct mics_op_costs *costs, const struct mics_plan_choice *choice)
{
    const struct mics_model *model = costs->model;
    uint32_t known = MICS_NONE;
    double seconds = 0, each = 0;

    if (mics_choice_expert_ranks(choice, MICS_UNIT_EXPERT) == 0)
        return 0;
    for (uint32_t i = 0; i < model->stage_count; i++) {
        if (mics_unit_kind_of(model, model->stages[i].unit) != MICS_UNIT_EXPERT)
            continue;
        const uint32_t alike = mics_stage_alike_before(model, i);

        if (known == MICS_NONE || alike != known)
            each = stage_dispatch_seconds(costs, choice, i);
        known = i;
        seconds += each;
    }
    return seconds;
}

double mics_op_costs_hop(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                         const struct mics_hop *hop, uint32_t unit)
{
    const struct mics_layout layout = mics_choice_layout(costs->model, choice, unit);

    if (mics_op_is_comm(hop->kind)) {
        const uint64_t bytes = mics_wire_bytes(hop->from.dtype, mics_hop_count(hop, &layout));
        const struct mics_collective_price price = mics_op_costs_collective(
            costs, &choice->shapes[hop->groups], hop->collective, hop->comm, bytes);

        return price.latency_s + price.transfer_s;
    }
    return mics_op_costs_compute(costs, choice,
                                 &(struct mics_op){.kind = hop->kind,
                                                   .unit = unit,
                                                   .from = hop->from,
                                                   .to = hop->to,
                                                   .parts = hop->parts});
}

double mics_op_costs_straggler_delay(const struct mics_op_costs *costs, double computing_s)
{
    return mics_straggler_delay(costs->topology, computing_s);
}
