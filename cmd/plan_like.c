/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_options.h"

#include "doc/doc.h"
#include "plan/plan.h"
#include "topology/node_sets.h"

/* Formats of exchanges, unless the command line has them. */
static void take_formats(const struct mics_plan *plan, struct plan_request *request)
{
    const struct mics_plan_choice *choice = &plan->choice;
    struct mics_search_options *search = &request->search;

    if (!request->has_sync_dtype) {
        search->sync_auto = plan->exact_step_s > 0;
        search->sync_dtype = choice->sync_dtype;
        search->sync_down_dtype = choice->sync_down_dtype;
    }
    if (!request->has_rounding)
        search->sync_stochastic = choice->sync_stochastic;
    if (!request->has_gather_dtype)
        search->gather_dtype = choice->gather_dtype;
    if (!request->has_experts && choice->dispatches)
        search->experts = MICS_EXPERTS_RESIDENT;
    if (search->experts != MICS_EXPERTS_GATHERED && search->expert_load <= 0)
        search->expert_load = plan->experts.load;
}

/* Where optimizer states are, unless the command line says it. Outer steps need them on devices,
 * which is what `auto` may find, too. */
static void take_offload(const struct mics_plan *plan, struct plan_request *request)
{
    struct mics_search_options *search = &request->search;

    if (request->has_offload)
        return;
    if (plan->offload_auto && search->outer_steps == 0)
        search->offload = MICS_OFFLOAD_AUTO;
    else if (plan->choice.offload_piece > 0)
        search->offload = MICS_OFFLOAD_OPTIMIZER;
}

static void take_options(const struct mics_plan *plan, struct plan_request *request)
{
    const struct mics_plan_choice *choice = &plan->choice;
    struct mics_search_options *search = &request->search;

    search->global_batch = plan->global_batch;
    search->seq = choice->seq;
    search->optimizer = choice->optimizer;
    search->dtype = choice->dtype;
    search->grad_dtype = choice->grad_dtype;
    search->clip = choice->clip;
    search->memory_limit = plan->memory_limit;
    take_formats(plan, request);
    take_offload(plan, request);
    if (search->sync_interval == 0)
        search->sync_interval = choice->sync_interval;
    if (search->outer_steps == 0)
        search->outer_steps = choice->outer_steps;
    if (choice->outer_steps > 0 && search->outer_lr < 0)
        search->outer_lr = choice->outer_lr;
    if (choice->outer_steps > 0 && search->outer_momentum < 0)
        search->outer_momentum = choice->outer_momentum;
    search->outer_overlap = search->outer_overlap || choice->outer_overlap;
    if (search->sync_warmup == MICS_AUTO &&
        ((choice->outer_steps > 0 && search->outer_steps > 0) ||
         (mics_choice_interval(choice) > 1 && search->sync_interval > 1)))
        search->sync_warmup = choice->sync_warmup;
    if (search->memory_every == 0)
        search->memory_every = plan->memory_every;
    if (search->memory_copies == 0)
        search->memory_copies = plan->memory_copies;
}

enum mics_status plan_open_like(struct plan_request *request, struct mics_topology **topology,
                                struct mics_model **model, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    json_t *doc = NULL;
    enum mics_status status = mics_doc_read_file(request->like, &doc, err);

    if (status != MICS_OK)
        return status;
    status = mics_plan_own_from_doc(doc, &plan, err);
    json_decref(doc);
    if (status == MICS_OK)
        status = mics_topology_resize(
            plan->topology, request->like_nodes ? request->like_nodes : plan->topology->nodes,
            topology, err);
    if (status == MICS_OK) {
        take_options(plan, request);
        *model = plan->model;
        plan->model = NULL; /* the caller's */
        status = plan_check_exchanges(request, err);
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", request->like);
    mics_plan_free(plan);
    return status;
}
