/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"

#include <math.h>
#include <stdlib.h>

void mics_plan_free(struct mics_plan *plan)
{
    if (!plan)
        return;
    mics_topology_free(plan->topology);
    mics_model_free(plan->model);
    json_decref(plan->doc);
    free(plan->alternatives);
    free(plan);
}

bool mics_choice_uses_groups(const struct mics_model *model, const struct mics_plan_choice *choice,
                             enum mics_unit_kind kind)
{
    for (uint32_t u = 0; u < model->unit_count; u++)
        if (mics_choice_groups(choice, model->units[u].kind) == kind)
            return true;
    return false;
}

enum mics_status mics_choice_check_shapes(const struct mics_plan_choice *choice,
                                          struct mics_err *err)
{
    const uint32_t nodes = mics_choice_nodes(choice), per_node = mics_choice_per_node(choice);

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct mics_shape *shape = &choice->shapes[kind];
        const enum mics_status status = mics_shape_check(shape, err);

        if (status != MICS_OK)
            return status;
        if (shape->nodes != nodes || shape->per_node != per_node)
            return mics_err_set(err, MICS_ERR_ARG,
                                "units of two kinds on %u x %u and %u x %u ranks: they must be on "
                                "the same ones",
                                nodes, per_node, shape->nodes, shape->per_node);
    }
    return MICS_OK;
}

/* What one exchange says of the formats must agree. */
static enum mics_status check_formats(const struct mics_model *model,
                                      const struct mics_plan_choice *choice, struct mics_err *err)
{
    const bool up = mics_dtype_is_blocks(choice->sync_dtype);
    const bool down = mics_dtype_is_blocks(choice->sync_down_dtype);

    if (up != down || (!up && (choice->sync_gathers || choice->sync_stochastic)))
        return mics_err_set(err, MICS_ERR_ARG,
                            "the second hop is in blocks one way only, or none of it is");
    if (choice->sync_exact_units && (!up || choice->sync_exact_units >= model->unit_count))
        return mics_err_set(err, MICS_ERR_ARG,
                            "%u units with an exact second hop: expected fewer than %u, beside "
                            "others in blocks",
                            choice->sync_exact_units, model->unit_count);
    if (choice->gather_dtype != MICS_F32 && choice->gather_dtype != MICS_INT8)
        return mics_err_set(err, MICS_ERR_ARG, "parameters are sent in int8, not in %s",
                            mics_dtype_name(choice->gather_dtype));
    return MICS_OK;
}

/* Tokens travel to whole experts, whose gradients are where their parameters are. */
static enum mics_status check_dispatch(const struct mics_model *model,
                                       const struct mics_plan_choice *choice, struct mics_err *err)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_EXPERT];
    const uint32_t ranks = mics_choice_expert_ranks(choice, MICS_UNIT_EXPERT);
    const uint32_t experts = model->config.n_expert;

    if (ranks == 0)
        return MICS_OK;
    if (experts == 0)
        return mics_err_set(err, MICS_ERR_ARG, "resident experts: the model '%s' has no experts",
                            model->config.name);
    if (experts % ranks != 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "resident experts: %u experts cannot be divided among %u ranks",
                            experts, ranks);
    if (shape->p_grad != shape->p_param)
        return mics_err_set(err, MICS_ERR_ARG,
                            "resident experts: their gradients are cut over %u ranks, but their "
                            "parameters over %u",
                            shape->p_grad, shape->p_param);
    for (uint32_t u = 0; u < model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(model, choice, u);

        if (model->units[u].kind == MICS_UNIT_EXPERT && layout.padded != layout.count)
            return mics_err_set(err, MICS_ERR_ARG,
                                "resident experts: unit '%s' of %llu elements is padded to %llu "
                                "for %u optimizer shards, so that shards are no whole experts",
                                model->units[u].name, (unsigned long long)layout.count,
                                (unsigned long long)layout.padded, shape->p_optim);
    }
    return MICS_OK;
}

/* What has no gather in a step never gets the parameters of other ranks. */
static enum mics_status check_secondary(const struct mics_plan_choice *choice, struct mics_err *err)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];

    if (!choice->secondary_shards)
        return MICS_OK;
    if (shape->p_param == 1 || shape->p_param == shape->p_optim)
        return mics_err_set(err, MICS_ERR_ARG,
                            "secondary shards: expected parameters cut over more than one rank and "
                            "fewer than the %u of the optimizer, found %u",
                            shape->p_optim, shape->p_param);
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT || choice->dispatches)
        return mics_err_set(err, MICS_ERR_ARG,
                            "secondary shards: experts are cut as all other parameters, and "
                            "gathered");
    if (choice->outer_steps > 0)
        return mics_err_set(err, MICS_ERR_ARG, "secondary shards: not with outer steps");
    return MICS_OK;
}

/* Outer steps need replicas that are complete in themselves. */
static enum mics_status check_outer(const struct mics_plan_choice *choice, struct mics_err *err)
{
    if (choice->outer_steps < 2 && choice->outer_overlap)
        return mics_err_set(err, MICS_ERR_ARG,
                            "meetings overlap with the step after them: expected at least 2 outer "
                            "steps, found %u",
                            choice->outer_steps);
    if (choice->outer_steps == 0)
        return MICS_OK;
    if (choice->outer_steps > MICS_OUTER_STEPS_MAX || !(choice->outer_lr > 0) ||
        choice->outer_lr > MICS_OUTER_LR_MAX || !(choice->outer_momentum >= 0) ||
        choice->outer_momentum >= 1)
        return mics_err_set(
            err, MICS_ERR_ARG,
            "outer steps %u, rate %g, momentum %g: expected 1 to %d, a rate above 0 "
            "and up to %d, a momentum of at least 0 and below 1",
            choice->outer_steps, choice->outer_lr, choice->outer_momentum, MICS_OUTER_STEPS_MAX,
            MICS_OUTER_LR_MAX);
    if (mics_choice_interval(choice) > 1)
        return mics_err_set(err, MICS_ERR_ARG,
                            "outer steps leave no second hop for which units could take turns");
    for (int kind = 1; kind < MICS_UNIT_KIND_COUNT; kind++)
        if (choice->shapes[kind].p_optim != choice->shapes[0].p_optim)
            return mics_err_set(err, MICS_ERR_ARG,
                                "outer steps need replicas of one size, but the state of dense "
                                "units is cut over %u ranks and that of experts over %u",
                                choice->shapes[0].p_optim, choice->shapes[kind].p_optim);
    if (mics_choice_replicas(choice) == 1)
        return mics_err_set(err, MICS_ERR_ARG,
                            "outer steps need more than one replica of the training state, but "
                            "%s cuts it over all %u ranks",
                            choice->strategy, mics_choice_world_size(choice));
    return MICS_OK;
}

/* Outer steps read masters where they are, on the device. */
static enum mics_status check_offload(const struct mics_plan_choice *choice, struct mics_err *err)
{
    const uint32_t piece = choice->offload_piece;

    if (piece == 0)
        return MICS_OK;
    if (piece % MICS_OFFLOAD_PIECE_MIN != 0 || piece > MICS_OFFLOAD_PIECE_MAX)
        return mics_err_set(err, MICS_ERR_ARG,
                            "optimizer states in host memory in pieces of %u elements: expected a "
                            "multiple of %d up to %u",
                            piece, MICS_OFFLOAD_PIECE_MIN, MICS_OFFLOAD_PIECE_MAX);
    if (choice->outer_steps > 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "outer steps need the optimizer's states on the device");
    return MICS_OK;
}

/* Before the updates of a step it must be known whether a gradient has overflowed. */
static enum mics_status check_f16(const struct mics_plan_choice *choice, struct mics_err *err)
{
    const bool f16 = choice->dtype == MICS_F16;

    if ((choice->grad_dtype == MICS_F16 && !f16) || (f16 && choice->grad_dtype == MICS_BF16))
        return mics_err_set(err, MICS_ERR_ARG, "gradients in %s with parameters in %s",
                            mics_dtype_name(choice->grad_dtype), mics_dtype_name(choice->dtype));
    if (f16 && !choice->clip)
        return mics_err_set(err, MICS_ERR_ARG,
                            "fp16 needs the norm of the gradients, which shows overflows: plan "
                            "with clipping");
    return MICS_OK;
}

enum mics_status mics_choice_check(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, struct mics_err *err)
{
    const uint64_t tokens = (uint64_t)choice->micro_batch * choice->seq;
    enum mics_status status = mics_choice_check_shapes(choice, err);

    if (status != MICS_OK)
        return status;
    status = mics_model_check_seq(model, choice->seq, err);
    if (status != MICS_OK)
        return status;
    if (choice->micro_batch == 0 || tokens > INT32_MAX)
        return mics_err_set(err, MICS_ERR_ARG,
                            "micro-batch of %u sequences of %u: expected 1 to 2^31-1 tokens",
                            choice->micro_batch, choice->seq);
    if (choice->micro_steps == 0 || choice->micro_steps > MICS_MICRO_STEPS_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "%u micro-steps: expected 1 to %d",
                            choice->micro_steps, MICS_MICRO_STEPS_MAX);
    if (choice->segments == 0 || choice->segments > 64)
        return mics_err_set(err, MICS_ERR_ARG, "%u segments: expected 1 to 64", choice->segments);
    if (choice->coalesce == 0 || choice->coalesce > MICS_COALESCE_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "%u coalesced units: expected 1 to %d",
                            choice->coalesce, MICS_COALESCE_MAX);
    if (choice->sync_interval > MICS_INTERVAL_MAX)
        return mics_err_set(err, MICS_ERR_ARG,
                            "a second hop in every %u steps: expected an interval of 1 to %d",
                            choice->sync_interval, MICS_INTERVAL_MAX);
    if (choice->grad_slots == 0 || choice->grad_slots > 65536 || choice->prefetch > 65535)
        return mics_err_set(err, MICS_ERR_ARG, "prefetch %u, %u gradient slots: out of range",
                            choice->prefetch, choice->grad_slots);
    if (choice->sync_warmup > MICS_SYNC_WARMUP_MAX ||
        (choice->sync_warmup > 0 && choice->outer_steps == 0 && mics_choice_interval(choice) == 1))
        return mics_err_set(err, MICS_ERR_ARG,
                            "%u steps with all second hops: expected up to %d, and an interval or "
                            "outer steps",
                            choice->sync_warmup, MICS_SYNC_WARMUP_MAX);
    status = check_offload(choice, err);
    if (status == MICS_OK)
        status = check_f16(choice, err);
    if (status == MICS_OK)
        status = check_formats(model, choice, err);
    if (status == MICS_OK)
        status = check_dispatch(model, choice, err);
    if (status == MICS_OK)
        status = check_secondary(choice, err);
    return status == MICS_OK ? check_outer(choice, err) : status;
}

bool mics_choice_has_second_hop(const struct mics_plan_choice *choice)
{
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        if (choice->shapes[kind].p_grad < mics_choice_world_size(choice))
            return true;
    return false;
}

struct mics_training_cost mics_plan_training_cost(const struct mics_plan *plan)
{
    const struct mics_training *training = &plan->training;
    struct mics_training_cost cost = {0};

    if (training->tokens == 0 || plan->predicted.tokens_per_s <= 0)
        return cost;
    cost.seconds = (double)training->tokens / plan->predicted.tokens_per_s;
    cost.rank_hours = cost.seconds / 3600 * mics_choice_world_size(&plan->choice);
    cost.node_hours = cost.seconds / 3600 * mics_choice_nodes(&plan->choice);
    cost.price = cost.node_hours * training->node_hour_price;
    return cost;
}

struct mics_peak_flops mics_plan_peak_flops(const struct mics_plan *plan)
{
    const struct mics_topology *topology = plan->topology;
    const json_t *device = json_object_get(topology->doc, "device");
    const double vendor = json_number_value(json_object_get(device, "peak_flops_per_s"));

    return (struct mics_peak_flops){.flops = vendor > 0 ? vendor : topology->flops,
                                    .is_vendor = vendor > 0,
                                    .type = topology->flops_dtype};
}

double mics_plan_mfu(const struct mics_plan *plan, double tokens_per_s)
{
    const double peak = mics_plan_peak_flops(plan).flops * mics_choice_world_size(&plan->choice);

    return peak > 0
               ? mics_model_flops_per_token(plan->model, plan->choice.seq) * tokens_per_s / peak
               : 0;
}

const char *mics_dtype_name(enum mics_dtype dtype)
{
    static const char *const names[] = {
        [MICS_F32] = "f32",   [MICS_F64] = "f64",   [MICS_BF16] = "bf16", [MICS_U8] = "u8",
        [MICS_INT8] = "int8", [MICS_INT4] = "int4", [MICS_F16] = "f16"};

    return names[dtype];
}

double mics_choice_loss_divisor(const struct mics_plan_choice *choice)
{
    double tokens = (double)choice->micro_batch * choice->seq;

    if (choice->grad_dtype == MICS_F16)
        tokens *= (double)choice->micro_steps * mics_choice_world_size(choice) *
                  mics_choice_interval(choice);
    return exp2(ceil(log2(tokens)));
}

const char *mics_cost_class_name(enum mics_cost_class cost_class)
{
    static const char *const names[MICS_COST_CLASS_COUNT] = {
        [MICS_COST_COMPUTE] = "compute", [MICS_COST_NODE] = "node", [MICS_COST_NET] = "net"};

    return names[cost_class];
}

const char *mics_error_source_name(enum mics_error_source source)
{
    static const char *const names[MICS_ERROR_SOURCE_COUNT] = {
        [MICS_ERROR_NONE] = "none",
        [MICS_ERROR_PUBLISHED] = "published",
        [MICS_ERROR_MEASURED] = "measured",
        [MICS_ERROR_ASSUMED] = "assumed",
    };

    return names[source];
}
