/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_print.c - a plan as tables, for people and for scripts.
 *
 * The document is read and checked as mics-train does, so that what is printed is what would run.
 * Where a person gets a line of words ("16 = 4 ranks x 2 x 2 micro-steps"), a script gets each
 * number by name.
 */
#include "plan/plan_print.h"

#include "base/num.h"
#include "base/units.h"
#include "base/utf8.h"
#include "doc/table.h"
#include "plan/foreign/foreign_config.h"
#include "plan/memory.h"
#include "plan/memory_ckpt_cost.h"
#include "topology/topology_print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 32 };

static const char *plural(uint32_t count)
{
    return count == 1 ? "" : "s";
}

static void put_number(struct mics_table *table, const char *name, uint64_t value)
{
    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%" PRIu64, value);
}

static void put_text(struct mics_table *table, const char *name, const char *value)
{
    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%s", value);
}

/* "2 of the 8 ranks of a node", "16 ranks: 2 nodes x 8" */
static void put_span(struct mics_table *table, const struct mics_shape *shape, uint32_t p)
{
    if (p == 1)
        mics_table_cell(table, "none: every rank has all parameters");
    else if (p < shape->per_node)
        mics_table_cell(table, "%u of the %u ranks of a node", p, shape->per_node);
    else
        mics_table_cell(table, "%u rank%s: %u node%s x %u", p, plural(p), p / shape->per_node,
                        plural(p / shape->per_node), shape->per_node);
}

/* The tokens that attention sees, if that is not all in all layers. */
static void put_window(struct mics_table *table, const struct mics_model *model, int tsv)
{
    const uint32_t window = model->config.sliding_window, layers = model->config.n_layer;
    uint32_t windowed = 0;

    if (window == 0)
        return;
    for (uint32_t i = 0; i < layers; i++)
        windowed += mics_model_window(model, i) > 0;
    if (tsv) {
        put_number(table, "sliding_window", window);
        put_number(table, "sliding_window_layers", windowed);
        return;
    }
    mics_table_cell(table, "sliding window");
    if (windowed == layers)
        mics_table_cell(table, "%u tokens", window);
    else
        mics_table_cell(table, "%u tokens in %u of %u layers", window, windowed, layers);
}

static void put_model(struct mics_table *table, const struct mics_model *model, int tsv)
{
    const struct mics_model_config *config = &model->config;
    char count[TEXT];

    mics_table_cell(table, "model");
    if (tsv) {
        mics_table_cell(table, "%s", config->name);
        put_number(table, "param_count", model->param_count);
        return;
    }
    mics_table_cell(table, "%s: %s parameters, %u layers of %u, %u heads, vocabulary of %u",
                    config->name,
                    mics_format_count((double)model->param_count, count, sizeof count),
                    config->n_layer, config->n_embd, config->n_head, config->vocab_size);
}

/* Nothing for a model without experts. */
static void put_experts(struct mics_table *table, const struct mics_model *model, int tsv)
{
    const struct mics_model_config *config = &model->config;
    const uint64_t active = mics_model_active_params(model);
    uint32_t sparse = 0;
    char count[TEXT];

    if (config->n_expert == 0)
        return;
    for (uint32_t i = 0; i < config->n_layer; i++)
        sparse += mics_model_is_sparse(model, i);
    if (tsv) {
        put_number(table, "active_param_count", active);
        put_number(table, "experts", config->n_expert);
        put_number(table, "experts_per_token", config->n_expert_used);
        put_number(table, "sparse_layers", sparse);
        return;
    }
    mics_table_cell(table, "experts");
    mics_table_cell(table, "%u of %u for a token%s, in %u of %u layers: %s parameters active",
                    config->n_expert_used, config->n_expert,
                    config->shared_inner > 0 ? " and one that all share" : "", sparse,
                    config->n_layer, mics_format_count((double)active, count, sizeof count));
}

/* What a rank holds of experts, and of all else. */
static void put_state(struct mics_table *table, const struct mics_plan *plan, int tsv)
{
    const uint64_t experts = mics_choice_state_bytes(plan->model, &plan->choice, MICS_UNIT_EXPERT);
    const uint64_t dense = mics_choice_state_bytes(plan->model, &plan->choice, MICS_UNIT_DENSE);
    char bytes[2][TEXT];

    if (plan->model->config.n_expert == 0)
        return;
    if (tsv) {
        put_number(table, "experts.state_bytes", experts);
        put_number(table, "dense.state_bytes", dense);
        return;
    }
    mics_table_cell(table, "state per rank");
    mics_table_cell(table, "%s of experts, %s of all else",
                    mics_format_bytes(experts, bytes[0], sizeof bytes[0]),
                    mics_format_bytes(dense, bytes[1], sizeof bytes[1]));
}

/* Nothing if experts take all rows. */
static void put_capacity(struct mics_table *table, const struct mics_plan *plan, int tsv)
{
    const struct mics_batch batch = mics_choice_batch(&plan->choice, MICS_UNIT_EXPERT, true);
    const double capacity = plan->model->config.expert_capacity;

    if (capacity <= 0)
        return;
    if (tsv) {
        mics_table_cell(table, "expert_capacity");
        mics_table_cell(table, "%.6g", capacity);
        put_number(table, "expert_rows", mics_model_expert_rows(plan->model, &batch));
        return;
    }
    mics_table_cell(table, "capacity");
    mics_table_cell(table,
                    "an expert takes up to %u rows of a rank's micro-batch, %g times those of even "
                    "loads, and drops the rest",
                    mics_model_expert_rows(plan->model, &batch), capacity);
}

/* Nothing if experts are gathered. */
static void put_dispatch(struct mics_table *table, const struct mics_plan *plan, int tsv)
{
    struct mics_batch batch = mics_choice_batch(&plan->choice, MICS_UNIT_EXPERT, true);

    if (batch.expert_ranks == 0)
        return;
    batch.expert_load = (float)mics_choice_expert_load(&plan->choice);
    const struct mics_dispatch dispatch = mics_model_dispatch(plan->model, &batch);
    const uint64_t rounds = mics_ceil_div(dispatch.rows, dispatch.slots);
    if (tsv) {
        put_number(table, "expert_ranks", batch.expert_ranks);
        put_number(table, "dispatch_slots", dispatch.slots);
        put_number(table, "dispatch_rounds", dispatch.rounds);
        put_number(table, "dispatch_rounds_expected", rounds);
        mics_table_cell(table, "expert_load");
        mics_table_cell(table, "%.4g", mics_choice_expert_load(&plan->choice));
        return;
    }
    mics_table_cell(table, "resident experts");
    mics_table_cell(table,
                    "%u on each of %u ranks; up to %u rows to each in a round, %llu round%s with "
                    "a load of %.3g, at most %u",
                    plan->model->config.n_expert / batch.expert_ranks, batch.expert_ranks,
                    dispatch.slots, (unsigned long long)rounds, rounds == 1 ? "" : "s",
                    mics_choice_expert_load(&plan->choice), dispatch.rounds);
}

static void put_groups_tsv(struct mics_table *table, const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];

    put_text(table, "strategy", choice->strategy);
    put_number(table, "p_param", shape->p_param);
    put_number(table, "p_grad", shape->p_grad);
    put_number(table, "p_optim", shape->p_optim);
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT) {
        put_number(table, "experts.p_param", choice->shapes[MICS_UNIT_EXPERT].p_param);
        put_number(table, "experts.p_grad", choice->shapes[MICS_UNIT_EXPERT].p_grad);
        put_number(table, "experts.p_optim", choice->shapes[MICS_UNIT_EXPERT].p_optim);
    }
    if (choice->secondary_shards)
        put_number(table, "secondary_shards", 1);
    put_number(table, "hierarchical_gather", choice->hierarchical_gather);
    put_number(table, "hierarchical_reduce", choice->hierarchical_reduce);
    put_number(table, "segments", choice->segments);
    put_number(table, "joined", choice->coalesce - 1);
    put_number(table, "prefetch", choice->prefetch);
    if (mics_choice_compresses_sync(choice)) {
        put_text(table, "sync_dtype", mics_dtype_name(choice->sync_dtype));
        put_text(table, "sync_down_dtype", mics_dtype_name(choice->sync_down_dtype));
        put_number(table, "sync_gathers", choice->sync_gathers);
        put_number(table, "sync_stochastic", choice->sync_stochastic);
        put_number(table, "sync_exact_units", choice->sync_exact_units);
    }
    if (mics_dtype_is_blocks(choice->gather_dtype))
        put_text(table, "gather_dtype", mics_dtype_name(choice->gather_dtype));
}

/* "in int8, added by each replica"; "in int4, sums in int8, rounded stochastically; exact for the
 * last 3 units". */
static void put_sync_formats(struct mics_table *table, const struct mics_plan_choice *choice)
{
    const char *rounding = choice->sync_stochastic ? ", rounded stochastically" : "";
    char but[48] = "";

    if (choice->sync_exact_units)
        snprintf(but, sizeof but, "; exact for the last %u unit%s", choice->sync_exact_units,
                 choice->sync_exact_units == 1 ? "" : "s");
    mics_table_cell(table, "second hop");
    if (choice->sync_gathers)
        mics_table_cell(table, "in %s, added by each replica%s%s",
                        mics_dtype_name(choice->sync_dtype), rounding, but);
    else
        mics_table_cell(table, "in %s, sums in %s%s%s", mics_dtype_name(choice->sync_dtype),
                        mics_dtype_name(choice->sync_down_dtype), rounding, but);
}

/* Rows without meaning for the shape are left out: a group of one rank gathers nothing. */
static void put_groups(struct mics_table *table, const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    const uint32_t n = mics_shape_world_size(shape), p = shape->p_param;
    char strategy[TEXT];

    put_text(table, "strategy", mics_plan_format_strategy(choice, strategy, sizeof strategy));
    mics_table_cell(table, "partition group");
    put_span(table, shape, p);
    mics_table_cell(table, "replication group");
    mics_table_cell(table, "%u cop%s of the parameters (r = %u / %u)", n / p,
                    n / p == 1 ? "y" : "ies", n, p);
    if (shape->p_grad != p || shape->p_optim != p) {
        mics_table_cell(table, "shards");
        mics_table_cell(table, "parameters %u%s, gradients %u, optimizer %u", p,
                        choice->secondary_shards ? " (secondary)" : "", shape->p_grad,
                        shape->p_optim);
    }
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT) {
        const struct mics_shape *experts = &choice->shapes[MICS_UNIT_EXPERT];

        mics_table_cell(table, "shards of experts");
        mics_table_cell(table, "parameters %u, gradients %u, optimizer %u", experts->p_param,
                        experts->p_grad, experts->p_optim);
    }
    if (p > 1) {
        mics_table_cell(table, "gather");
        mics_table_cell(table, "%s, %u unit%s ahead",
                        choice->hierarchical_gather && mics_shape_has_hierarchy(shape, p)
                            ? "between nodes, then inside them"
                            : "in one ring",
                        choice->prefetch, plural(choice->prefetch));
    }
    if (choice->secondary_shards) {
        mics_table_cell(table, "first gather");
        mics_table_cell(table, "of a unit in a step: over %u ranks", shape->p_optim);
    }
    if (choice->coalesce > 1) {
        mics_table_cell(table, "coalescing");
        mics_table_cell(table, "%u units per exchange", choice->coalesce);
    }
    if (shape->p_grad > 1) {
        mics_table_cell(table, "reduce");
        mics_table_cell(table, "%s",
                        choice->hierarchical_reduce &&
                                mics_shape_has_hierarchy(shape, shape->p_grad)
                            ? "inside nodes, then between them"
                            : "in one ring");
    }
    if (mics_choice_compresses_sync(choice))
        put_sync_formats(table, choice);
    if (mics_dtype_is_blocks(choice->gather_dtype)) {
        mics_table_cell(table, "gather between nodes");
        mics_table_cell(table, "in %s%s", mics_dtype_name(choice->gather_dtype),
                        choice->secondary_shards ? "; a unit's first in a step exact" : "");
    }
}

/* What happens to activations between forward and backward. */
static const char *describe_recompute(enum mics_recompute level)
{
    static const char *const words[MICS_RECOMPUTE_LEVELS] = {
        [MICS_RECOMPUTE_NONE] = "kept until backward",
        [MICS_RECOMPUTE_SELECTIVE] = "kept until backward, norms and GELU or SwiGLU recomputed",
        [MICS_RECOMPUTE_FULL] = "recomputed block by block",
    };

    return words[level];
}

static void put_batch_as_tsv(struct mics_table *table, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;

    put_number(table, "global_batch", plan->global_batch);
    put_number(table, "micro_batch", choice->micro_batch);
    put_number(table, "micro_steps", choice->micro_steps);
    put_number(table, "seq", choice->seq);
    put_text(table, "optimizer", mics_optimizer_name(choice->optimizer));
    put_text(table, "dtype", mics_dtype_name(choice->dtype));
    put_text(table, "grad_dtype", mics_dtype_name(choice->grad_dtype));
    put_number(table, "clip", choice->clip);
    if (choice->offload_piece > 0)
        put_number(table, "offload_piece", choice->offload_piece);
    if (mics_choice_interval(choice) > 1)
        put_number(table, "sync_interval", choice->sync_interval);
    if (choice->sync_warmup > 0)
        put_number(table, "sync_warmup", choice->sync_warmup);
    put_text(table, "recompute", mics_recompute_name(choice->recompute));
    if (choice->outer_steps > 0) {
        put_number(table, "outer_steps", choice->outer_steps);
        mics_table_cell(table, "outer_lr");
        mics_table_cell(table, "%g", choice->outer_lr);
        mics_table_cell(table, "outer_momentum");
        mics_table_cell(table, "%g", choice->outer_momentum);
    }
    if (choice->outer_overlap)
        put_number(table, "outer_overlap", 1);
}

static void put_batch(struct mics_table *table, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;

    mics_table_cell(table, "batch");
    mics_table_cell(table, "%" PRIu64 " sequences of %u = %u rank%s x %u x %u micro-step%s",
                    plan->global_batch, choice->seq, mics_choice_world_size(choice),
                    plural(mics_choice_world_size(choice)), choice->micro_batch,
                    choice->micro_steps, plural(choice->micro_steps));
    mics_table_cell(table, "optimizer");
    mics_table_cell(table, "%s%s%s", mics_optimizer_name(choice->optimizer),
                    choice->clip ? ", gradients clipped" : "",
                    choice->offload_piece > 0 ? ", its states in host memory" : "");
    if (choice->outer_steps > 0) {
        mics_table_cell(table, "outer steps");
        mics_table_cell(table, "%u replicas meet every %u step%s: rate %g, Nesterov momentum %g",
                        mics_choice_replicas(choice), choice->outer_steps,
                        plural(choice->outer_steps), choice->outer_lr, choice->outer_momentum);
        if (choice->outer_overlap)
            put_text(table, "", "exchanged during the step after, and applied at its end");
    }
    mics_table_cell(table, "types");
    mics_table_cell(table, "parameters and activations %s%s, gradients %s",
                    mics_dtype_name(choice->dtype),
                    choice->dtype == MICS_F32 ? "" : " with a master in f32",
                    mics_dtype_name(choice->grad_dtype));
    if (mics_choice_interval(choice) > 1) {
        mics_table_cell(table, "interval");
        mics_table_cell(table, "second hop of each unit in every %u steps, in turn",
                        choice->sync_interval);
    }
    if (choice->sync_warmup > 0) {
        mics_table_cell(table, "first steps");
        mics_table_cell(table, "%u step%s with the second hop of all units", choice->sync_warmup,
                        plural(choice->sync_warmup));
    }
    put_text(table, "activations", describe_recompute(choice->recompute));
}

static enum mics_status print_choice(FILE *out, const struct mics_plan *plan, int tsv,
                                     struct mics_err *err)
{
    struct mics_table *table = mics_table_new("<|<");

    mics_topology_rows(table, plan->topology, tsv);
    put_model(table, plan->model, tsv);
    put_window(table, plan->model, tsv);
    put_experts(table, plan->model, tsv);
    if (tsv)
        put_groups_tsv(table, &plan->choice);
    else
        put_groups(table, &plan->choice);
    put_state(table, plan, tsv);
    put_capacity(table, plan, tsv);
    put_dispatch(table, plan, tsv);
    if (tsv)
        put_batch_as_tsv(table, plan);
    else
        put_batch(table, plan);
    return mics_table_finish(table, out, tsv, err);
}

/* limit 0: it is not known. */
static void put_bytes(struct mics_table *table, const char *name, uint64_t bytes, uint64_t limit,
                      int tsv)
{
    mics_table_cell(table, "%s", name);
    mics_table_bytes(table, tsv, bytes);
    if (limit > 0 || tsv)
        mics_table_share(table, tsv, limit ? (double)bytes / (double)limit : 0);
    else
        mics_table_cell(table, "%s", "");
}

/* Host memory of a node. 0: unknown. */
static uint64_t node_memory(const struct mics_plan *plan)
{
    const json_t *machine = json_object_get(plan->topology->doc, "machine");

    return (uint64_t)json_integer_value(json_object_get(machine, "memory_bytes"));
}

static enum mics_status print_memory(FILE *out, const struct mics_plan *plan, int tsv,
                                     struct mics_err *err)
{
    const struct mics_memory *memory = &plan->memory;
    const uint64_t total = mics_memory_total(memory, plan->topology);
    const bool in_host = strcmp(plan->topology->device, "host") == 0;
    const uint64_t limit = plan->memory_limit;
    struct mics_table *table =
        mics_table_new(tsv ? "region|bytes|share" : "<memory per rank|>bytes|>of the limit");

    for (uint32_t i = 0; i < MICS_REGION_COUNT; i++)
        put_bytes(table, memory->regions[i].name, memory->regions[i].bytes, limit, tsv);
    put_bytes(table, tsv ? "arena" : "= arena", memory->arena_bytes, limit, tsv);
    if (memory->context_bytes > 0)
        put_bytes(table, tsv ? "context" : "+ CUDA context and modules", memory->context_bytes,
                  limit, tsv);
    put_bytes(table,
              tsv       ? "workspace"
              : in_host ? "+ workspace"
                        : "+ cuBLASLt's workspace",
              memory->workspace_bytes, limit, tsv);
    if (memory->context_bytes > 0)
        put_bytes(table, tsv ? "communicators" : "+ NCCL's communicators",
                  memory->communicator_bytes, limit, tsv);
    if (in_host)
        put_bytes(table, tsv ? "snapshot" : "+ snapshot for checkpoints", memory->snapshot_bytes,
                  limit, tsv);
    if (in_host)
        put_bytes(table, tsv ? "process" : "+ process and libraries", memory->process_bytes, limit,
                  tsv);
    if (in_host && memory->offload_bytes > 0)
        put_bytes(table, tsv ? "offload" : "+ optimizer states in host memory",
                  memory->offload_bytes, limit, tsv);
    put_bytes(table, tsv ? "total" : "= total", total, limit, tsv);
    put_bytes(table, "limit", limit, limit, tsv);
    if (!in_host && limit < plan->topology->memory_bytes)
        put_bytes(table, tsv ? "memory" : "memory of the GPU", plan->topology->memory_bytes, limit,
                  tsv);
    if (!in_host && memory->offload_bytes > 0)
        put_bytes(table, tsv ? "offload" : "optimizer states in host memory", memory->offload_bytes,
                  0, tsv);
    if (!in_host)
        put_bytes(table, tsv ? "host_node" : "host memory of a node",
                  mics_memory_host(memory, plan->topology) * plan->topology->per_node,
                  node_memory(plan), tsv);
    return mics_table_finish(table, out, tsv, err);
}

/* "12.3 days", "7.5 hours" */
static void put_duration(struct mics_table *table, double seconds)
{
    const double hours = seconds / 3600;

    if (hours < 48)
        mics_table_cell(table, "%.3g hour%s", hours, hours == 1 ? "" : "s");
    else
        mics_table_cell(table, hours < 2400 ? "%.3g days" : "%.0f days", hours / 24);
}

/* A number of 12 digits with thousands separated by commas; two decimals below 100. */
static void put_amount(struct mics_table *table, double amount, const char *unit)
{
    char digits[64], text[96];
    size_t used = 0;
    const int length = snprintf(digits, sizeof digits, amount < 100 ? "%.2f" : "%.0f", amount);

    for (int i = 0; i < length && used + 2 < sizeof text; i++) {
        if (amount >= 1000 && i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    mics_table_cell(table, "%s%s%s", text, *unit ? " " : "", unit);
}

/* What it costs to keep the state in memory. */
static void put_kept(struct mics_table *table, const struct mics_plan *plan, int tsv)
{
    const struct mics_memory_ckpt_cost cost = mics_plan_memory_ckpt_cost(plan);

    if (tsv) {
        put_number(table, "kept_every", plan->memory_every);
        put_number(table, "kept_nodes_to_lose", cost.nodes_to_lose);
    } else {
        mics_table_cell(table, "state in memory, at most %llu step%s old",
                        (unsigned long long)plan->memory_every, plan->memory_every == 1 ? "" : "s");
        mics_table_cell(table, "any %u node%s may be lost at once", cost.nodes_to_lose,
                        cost.nodes_to_lose == 1 ? "" : "s");
    }
    mics_table_cell(table, tsv ? "kept_node_bytes" : "memory of a node for it");
    mics_table_bytes(table, tsv, cost.node_bytes);
    mics_table_cell(table, tsv ? "kept_net_bytes" : "copies that a node sends each time");
    mics_table_bytes(table, tsv, cost.net_bytes);
    mics_table_cell(table, tsv ? "kept_copy_s" : "time for them");
    mics_table_time(table, tsv, cost.copy_s);
    mics_table_cell(table, tsv ? "kept_step_s" : "of it, added to a step");
    mics_table_time(table, tsv, cost.step_s);
}

/* What training on plan->training.tokens takes. */
static void put_training_cost(struct mics_table *table, const struct mics_plan *plan)
{
    const struct mics_training *training = &plan->training;
    const struct mics_training_cost cost = mics_plan_training_cost(plan);
    char tokens[TEXT];

    mics_table_cell(table, "time for %s tokens",
                    mics_format_count((double)training->tokens, tokens, sizeof tokens));
    put_duration(table, cost.seconds);
    mics_table_cell(table, strcmp(plan->topology->device, "host") == 0 ? "hours of all ranks"
                                                                       : "GPU-hours");
    put_amount(table, cost.rank_hours, "");
    if (training->node_hour_price <= 0)
        return;
    mics_table_cell(table, "price at %.12g%s%s per node-hour", training->node_hour_price,
                    *training->currency ? " " : "", training->currency);
    put_amount(table, cost.price, training->currency);
}

static void put_training_cost_tsv(struct mics_table *table, const struct mics_plan *plan)
{
    const struct mics_training *training = &plan->training;
    const struct mics_training_cost cost = mics_plan_training_cost(plan);
    const struct {
        const char *key;
        double value;
    } rows[] = {{"training_s", cost.seconds},
                {"rank_hours", cost.rank_hours},
                {"node_hours", cost.node_hours},
                {"node_hour_price", training->node_hour_price},
                {"price", cost.price}};
    const size_t count = training->node_hour_price > 0 ? 5 : 3;

    put_number(table, "tokens", training->tokens);
    for (size_t i = 0; i < count; i++) {
        mics_table_cell(table, "%s", rows[i].key);
        mics_table_cell(table, "%.12g", rows[i].value);
    }
    if (training->node_hour_price > 0)
        put_text(table, "currency", training->currency);
}

/* The step and the rate with the range of measured ones, if the plan has one. */
static void put_range(struct mics_table *table, const struct mics_plan *plan, int tsv)
{
    const struct mics_step_range *range = &plan->range;
    const double step_s = plan->predicted.step_s, rate = plan->predicted.tokens_per_s;
    const double low = rate * step_s / range->high_s, high = rate * step_s / range->low_s;
    char text[64];

    if (!tsv) {
        mics_table_cell(table, "predicted step");
        mics_table_cell(
            table, "%s",
            mics_format_time_range(step_s, range->low_s, range->high_s, text, sizeof text));
        mics_table_cell(table, "tokens per second");
        mics_table_cell(table, "%s", mics_format_count_range(rate, low, high, text, sizeof text));
        return;
    }
    const struct {
        const char *key;
        double value;
    } rows[] = {{"step_low_s", range->low_s},
                {"step_high_s", range->high_s},
                {"tokens_per_s_low", low},
                {"tokens_per_s_high", high}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mics_table_cell(table, "%s", rows[i].key);
        mics_table_cell(table, "%.12g", rows[i].value);
    }
}

static enum mics_status print_prediction(FILE *out, const struct mics_plan *plan, int tsv,
                                         struct mics_err *err)
{
    const struct mics_prediction *predicted = &plan->predicted;
    const struct {
        const char *key, *words;
        double seconds;
    } times[] = {
        {"step_s", "predicted step", predicted->step_s},
        {"compute_s", "computation", predicted->compute_s},
        {"comm_s", "communication", predicted->comm_s},
        {"exposed_s", "exposed communication", predicted->exposed_s},
    };
    const bool has_range = plan->range.low_s > 0;
    struct mics_table *table = mics_table_new("<|<");

    if (has_range)
        put_range(table, plan, tsv);
    for (size_t i = !tsv && has_range ? 1 : 0; i < sizeof times / sizeof *times; i++) {
        mics_table_cell(table, "%s", tsv ? times[i].key : times[i].words);
        mics_table_time(table, tsv, times[i].seconds);
    }
    if (tsv || !has_range) {
        mics_table_cell(table, tsv ? "tokens_per_s" : "tokens per second");
        mics_table_count(table, tsv, predicted->tokens_per_s);
    }
    mics_table_cell(table, tsv ? "mfu" : "model FLOPs utilisation");
    mics_table_share(table, tsv, mics_plan_mfu(plan, predicted->tokens_per_s));
    if (tsv) {
        mics_table_cell(table, "mfu_flops_per_s");
        mics_table_cell(table, "%.12g", mics_plan_peak_flops(plan).flops);
    }
    mics_table_cell(table, tsv ? "net_bytes" : "network bytes per node");
    mics_table_bytes(table, tsv, predicted->net_bytes);
    mics_table_cell(table, tsv ? "sent_bytes" : "sent by a rank");
    mics_table_bytes(table, tsv, predicted->sent_bytes);
    if (plan->memory_every > 0)
        put_kept(table, plan, tsv);
    if (plan->training.tokens > 0 && tsv)
        put_training_cost_tsv(table, plan);
    else if (plan->training.tokens > 0)
        put_training_cost(table, plan);
    return mics_table_finish(table, out, tsv, err);
}

/* One paragraph, broken between words. */
static void print_paragraph(FILE *out, const char *text, size_t width)
{
    size_t column = 0;

    while (*text) {
        const size_t length = strcspn(text, " ");

        if (column > 0 && column + 1 + length > width) {
            fputc('\n', out);
            column = 0;
        }
        column += (column > 0) + length;
        fputs(column > length ? " " : "", out);
        mics_utf8_put(out, text, length);
        text += length + strspn(text + length, " ");
    }
    fputc('\n', out);
}

static enum mics_status print_reasons(FILE *out, const struct mics_plan *plan, int tsv,
                                      struct mics_err *err)
{
    char text[MICS_PLAN_REASONS_BYTES];
    struct mics_table *table;

    mics_plan_reasons(plan, text);
    if (!tsv) {
        print_paragraph(out, text, mics_min_u64(mics_table_columns(out), 100));
        return MICS_OK;
    }
    table = mics_table_new("<|<");
    put_text(table, "reasons", text);
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_alternatives(FILE *out, const struct mics_plan *plan, int tsv,
                                           struct mics_err *err)
{
    return mics_plan_print_alternatives(out, plan, tsv ? 0 : mics_table_columns(out), err);
}

enum mics_status mics_plan_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    static enum mics_status (*const sections[])(FILE *, const struct mics_plan *, int,
                                                struct mics_err *) = {
        print_choice, print_memory, print_prediction, print_reasons, print_alternatives};
    struct mics_plan *plan = NULL;
    enum mics_status status = mics_plan_from_doc((json_t *)(uintptr_t)doc, &plan, err);

    for (size_t i = 0; i < sizeof sections / sizeof *sections && status == MICS_OK; i++) {
        if (i > 0)
            fputc('\n', out);
        status = sections[i](out, plan, tsv, err);
    }
    mics_plan_free(plan);
    if (status != MICS_OK || !json_object_get(doc, MICS_FOREIGN_CONFIG_KEY))
        return status;
    fputc('\n', out);
    return mics_foreign_config_print(out, doc, tsv, err);
}

static int compare_plans(const void *a, const void *b)
{
    const struct mics_plan *x = *(const struct mics_plan *const *)a;
    const struct mics_plan *y = *(const struct mics_plan *const *)b;
    int order = strcmp(x->model->config.name, y->model->config.name);

    if (order == 0)
        order = strcmp(x->topology->name, y->topology->name);
    if (order == 0)
        order = strcmp(x->choice.strategy, y->choice.strategy);
    if (order == 0)
        order =
            (x->topology->nodes > y->topology->nodes) - (x->topology->nodes < y->topology->nodes);
    return order;
}

enum mics_status mics_plans_print(FILE *out, json_t *const *docs, size_t count, size_t *wrong,
                                  struct mics_err *err)
{
    struct mics_table *table = mics_table_new("nodes|per_node|tokens_per_s|model|cluster|strategy");
    struct mics_plan **plans = calloc(count, sizeof(struct mics_plan *));
    enum mics_status status = plans ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        *wrong = i;
        status = mics_plan_from_doc(docs[i], &plans[i], err);
    }
    if (status == MICS_OK)
        qsort(plans, count, sizeof(struct mics_plan *), compare_plans);
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        mics_table_cell(table, "%u", plans[i]->topology->nodes);
        mics_table_cell(table, "%u", plans[i]->topology->per_node);
        mics_table_cell(table, "%.12g", plans[i]->predicted.tokens_per_s);
        mics_table_cell(table, "%s", plans[i]->model->config.name);
        mics_table_cell(table, "%s", plans[i]->topology->name);
        mics_table_cell(table, "%s", plans[i]->choice.strategy);
    }
    if (status == MICS_OK)
        status = mics_table_print(table, out, 1, err);
    mics_table_free(table);
    for (size_t i = 0; plans && i < count; i++)
        mics_plan_free(plans[i]);
    free(plans);
    return status;
}
