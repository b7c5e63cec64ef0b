/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_options.h"

#include "base/units.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/search/range.h"
#include "plan/trainer_exchanges.h"
#include "plan/trainer_memory.h"

#include <stdlib.h>
#include <string.h>

enum mics_status plan_search_copies(const struct plan_request *request,
                                    const struct mics_topology *topology,
                                    const struct mics_model *model,
                                    const struct mics_search_options *options,
                                    struct mics_plan **out, struct mics_err *err)
{
    struct mics_model_config config = model->config;
    struct mics_topology *cluster = NULL;
    struct mics_model *copy = NULL;
    json_t *doc = NULL;
    enum mics_status status = mics_topology_to_doc(topology, &doc, err);

    if (request->target)
        config.mask_rate = 0; /* of other trainers the head computes all tokens */
    if (status == MICS_OK)
        status = mics_topology_from_doc(doc, &cluster, err);
    json_decref(doc);
    if (status == MICS_OK)
        status = mics_model_new(&config, &copy, err);
    if (status == MICS_OK) {
        cluster->profile = topology->profile;
        cluster->tf32 = topology->tf32;
        status = mics_plan_search_usable(cluster, copy, options, &request->cluster, out, err);
    }
    if (status == MICS_OK)
        return MICS_OK;
    mics_topology_free(cluster);
    mics_model_free(copy);
    return status;
}

/* Keep the faster of two plans, of which either may be NULL, and free the other one. */
static struct mics_plan *faster(struct mics_plan *a, struct mics_plan *b)
{
    const bool keeps_a = !b || (a && a->predicted.step_s <= b->predicted.step_s);

    mics_plan_free(keeps_a ? b : a);
    return keeps_a ? a : b;
}

/* The best plan of one way. Where whole gradients are added up, one micro-step needs no memory for
 * them, which a search among all batches does not expect: it is searched for itself. */
static enum mics_status
search_way(const struct plan_request *request, const struct mics_topology *topology,
           const struct mics_model *model, const struct mics_target_way *way,
           struct mics_search_options options, struct mics_plan **out, struct mics_err *err)
{
    struct mics_plan *one = NULL, *any = NULL;
    enum mics_status status = MICS_ERR_INFEASIBLE;

    options.allows = way->allows;
    options.allows_secondary = way->secondary_shards;
    if (way->secondary_shards && (!options.strategy || strcmp(options.strategy, "auto") == 0))
        options.strategy = "hpz";
    options.whole_grads = way->accumulation == MICS_ACCUMULATES_WHOLE;
    if (options.whole_grads && options.micro_batch == 0) {
        options.micro_steps = 1;
        status = plan_search_copies(request, topology, model, &options, &one, err);
        options.micro_steps = 0;
    }
    if (status == MICS_OK || status == MICS_ERR_INFEASIBLE) {
        const enum mics_status general =
            plan_search_copies(request, topology, model, &options, &any, err);

        status = one && general == MICS_ERR_INFEASIBLE ? MICS_OK : general;
    }
    *out = faster(one, any);
    if (status == MICS_OK)
        return MICS_OK;
    mics_plan_free(*out);
    *out = NULL;
    return status;
}

/* By what plans of several ways are compared: secondary shards have to gain more than a tie. */
static double rated_seconds(const struct mics_plan *plan, const struct mics_target_way *way)
{
    return plan->predicted.step_s * (way->secondary_shards ? 1 + MICS_STEP_TIE : 1);
}

/* The best plan of all ways. Without any, the reason of the last one that could cut the model so,
 * else of the last one. */
static enum mics_status
search_target(const struct plan_request *request, const struct mics_topology *topology,
              const struct mics_model *model, const struct mics_search_options *options,
              const struct mics_target_way **way, struct mics_plan **out, struct mics_err *err)
{
    const struct mics_target *target = request->target;
    enum mics_status status = MICS_OK;
    struct mics_err infeasible;

    *out = NULL;
    for (uint32_t i = 0; i < target->way_count; i++) {
        const bool kept = status == MICS_ERR_INFEASIBLE;
        struct mics_plan *plan = NULL;

        status = search_way(request, topology, model, &target->ways[i], *options, &plan, err);
        if (status != MICS_OK && status != MICS_ERR_INFEASIBLE && status != MICS_ERR_ARG)
            break;
        if (status == MICS_ERR_INFEASIBLE) {
            infeasible = *err;
        } else if (status == MICS_ERR_ARG && kept) {
            status = MICS_ERR_INFEASIBLE;
            *err = infeasible;
        }
        if (!plan)
            continue;
        if (*out && rated_seconds(*out, *way) <= rated_seconds(plan, &target->ways[i])) {
            mics_plan_free(plan);
            continue;
        }
        mics_plan_free(*out);
        *out = plan;
        *way = &target->ways[i];
    }
    return *out ? MICS_OK : status;
}

/* Say what a search of this way would gain, which has one restriction less. That nothing fits
 * there, either, is no error: then there is nothing to say. */
static void report_gain(const struct plan_request *request, const struct mics_plan *plan,
                        const struct mics_target_way *way,
                        const struct mics_search_options *options, const char *what)
{
    struct mics_plan *better = NULL;
    struct mics_err err;

    if (search_way(request, plan->topology, plan->model, way, *options, &better, &err) != MICS_OK)
        return;
    const double gain = plan->predicted.step_s / better->predicted.step_s - 1;
    const struct mics_shape *shape = &better->choice.shapes[MICS_UNIT_DENSE];
    if (gain > MICS_STEP_TIE)
        cli_note(0, "%s %s: +%.1f %% step against groups of %u, %u, %u", request->target->name,
                 what, 100 * gain, shape->p_param, shape->p_grad, shape->p_optim);
    mics_plan_free(better);
}

/* Say what the trainer sends more than FSDP2 would with the same groups, and what that costs. */
static void report_surplus(const struct plan_request *request, const struct mics_plan *plan)
{
    const struct mics_trainer_exchanges *exchanges = mics_trainer_exchanges(plan->choice.trainer);
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE];
    const double as_planned[MICS_COST_CLASS_COUNT] = {1, 1, 1};
    const char *what = NULL;
    struct mics_plan without = *plan;
    struct mics_err err;
    double step_s;

    /* Priced with the exchanges of another trainer, which updates on the device. */
    if (mics_choice_world_size(&plan->choice) == 1 || mics_choice_updates_on_host(&plan->choice))
        return;
    if (mics_trainer_exchange_times(exchanges, plan->model, plan->model->stages[0].unit) > 1)
        what = "shards a model before it ties the head to the embedding, gathers and reduces both";
    else if (exchanges->all_reduces && shape->p_param == 1 && shape->p_optim > 1)
        what = "all-reduces gradients in stages 1 and 2, and each rank takes its part";
    without.choice.trainer = MICS_TRAINER_FSDP2;
    if (what && mics_plan_predict_scaled(&without, as_planned, &step_s, &err) == MICS_OK)
        cli_note(0, "%s %s: +%.1f %% step", request->target->name, what,
                 100 * (plan->predicted.step_s / step_s - 1));
}

static void report(const struct plan_request *request, const struct mics_plan *plan,
                   const struct mics_target_way *way, struct mics_search_options options)
{
    const struct mics_target *target = request->target;
    const bool gathers = plan->choice.shapes[MICS_UNIT_DENSE].p_param > 1;
    const uint64_t total = mics_memory_total(&plan->memory, plan->topology);
    const struct mics_target_way any = {.accumulation = way->accumulation};
    const struct mics_target_way all = {.accumulation = MICS_ACCUMULATES_SHARDS};
    const struct mics_target_way shards = {way->allows, MICS_ACCUMULATES_SHARDS,
                                           way->secondary_shards};
    char texts[4][32], step[32];

    cli_note(0, "%s: %s per step, %s tokens/s, %s of %s per rank", target->name,
             mics_format_time(plan->predicted.step_s, step, sizeof step),
             mics_format_count(plan->predicted.tokens_per_s, texts[3], sizeof texts[3]),
             mics_format_bytes(total, texts[0], sizeof texts[0]),
             mics_format_bytes(plan->memory_limit, texts[1], sizeof texts[1]));
    if (plan->choice.whole_grads && plan->choice.micro_steps > 1)
        cli_note(0, "%s adds up whole gradients over micro-steps: %s more per rank", target->name,
                 mics_format_bytes(mics_trainer_whole_grads(plan->model, &plan->choice), texts[2],
                                   sizeof texts[2]));
    if (plan->choice.optimizer != MICS_OPT_ADAMW && !target->writes_optimizer)
        cli_note(0, "%s: the training program must make the optimizer that is planned: %s",
                 target->name, mics_optimizer_name(plan->choice.optimizer));
    if (target->f16_differs && plan->choice.dtype == MICS_F16)
        cli_note(0, "%s: %s", target->name, target->f16_differs);
    if (target->offloads && plan->choice.offload_piece > 0)
        cli_note(0, "%s: %s", target->name, target->offloads);
    if (target->defers && mics_choice_has_second_hop(&plan->choice) && plan->choice.micro_steps > 1)
        cli_note(0, "%s", target->defers);
    report_surplus(request, plan);
    if (target->launcher)
        cli_note(0,
                 "start it with: %s --num_nodes=%u --num_gpus=%u train.py --deepspeed_config FILE",
                 target->launcher, mics_choice_nodes(&plan->choice),
                 mics_choice_per_node(&plan->choice));
    if (way->accumulation == MICS_ACCUMULATES_WHOLE)
        report_gain(request, plan, &shards, &options,
                    "does not reduce gradients before the last micro-step");
    options.hierarchical = MICS_HIERARCHY_AUTO;
    /* No trainer all-reduces in hops; report_surplus() says what its all-reduces cost. */
    if (gathers || !mics_trainer_exchanges(plan->choice.trainer)->all_reduces)
        report_gain(request, plan, way, &options,
                    gathers ? "gathers flat across nodes" : "reduces flat across nodes");
    options.hierarchical = MICS_HIERARCHY_OFF;
    report_gain(request, plan, &any, &options,
                "cannot cut parameters, gradients and optimizer otherwise");
    options.hierarchical = MICS_HIERARCHY_AUTO;
    options.trainer = MICS_TRAINER_MICS;
    report_gain(request, plan, &all, &options, "with all its restrictions");
}

/* The 16-bit type that the devices multiply, if the trainer has it. Without clipping there is no
 * plan in fp16. */
static enum mics_dtype default_dtype(const struct mics_target *target,
                                     const struct mics_search_options *options,
                                     const struct mics_topology *topology)
{
    if (strcmp(topology->flops_dtype, "bf16") == 0)
        return MICS_BF16;
    return strcmp(topology->flops_dtype, "f16") == 0 && !target->no_f16 && options->clip ? MICS_F16
                                                                                         : MICS_F32;
}

enum mics_status plan_for_target(const struct plan_request *request,
                                 const struct mics_topology *topology,
                                 const struct mics_model *model, struct mics_plan **out,
                                 struct mics_err *err)
{
    struct mics_search_options options = request->search;
    const struct mics_target_way *way = NULL;
    const struct mics_target *target = request->target;
    enum mics_status status;

    if (options.dtype == MICS_F16 && target->no_f16)
        return mics_err_set(err, MICS_ERR_ARG, "--dtype=fp16: %s", target->no_f16);
    if (target->no_optimizer[options.optimizer])
        return mics_err_set(err, MICS_ERR_ARG, "--optimizer=%s: %s",
                            mics_optimizer_name(options.optimizer),
                            target->no_optimizer[options.optimizer]);
    options.hierarchical = MICS_HIERARCHY_OFF;
    options.segments = options.coalesce = 1;
    options.prefetch = 1;
    options.expert_group = 0;
    options.experts = MICS_EXPERTS_GATHERED;
    options.recomputes = request->target->recomputes;
    if (options.dtype == MICS_AUTO)
        options.dtype = default_dtype(target, &options, topology);
    options.trainer = target->trainer;
    if (options.dtype == MICS_BF16)
        options.grad_dtype = target->grad_dtype;
    if (options.dtype == MICS_F16)
        options.grad_dtype = target->grad_dtype == MICS_BF16 ? MICS_F16 : target->grad_dtype;
    status = search_target(request, topology, model, &options, &way, out, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "--for=%s", request->target->name);
        return status;
    }
    report(request, *out, way, options);
    return MICS_OK;
}
