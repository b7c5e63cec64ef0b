/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_like.h"

#include "doc/doc.h"
#include "plan/plan.h"
#include "topology/node_sets.h"

static void take_options(const struct mics_plan *plan, struct mics_search_options *options)
{
    const struct mics_plan_choice *choice = &plan->choice;

    options->global_batch = plan->global_batch;
    options->seq = choice->seq;
    options->optimizer = choice->optimizer;
    options->dtype = choice->dtype;
    options->grad_dtype = choice->grad_dtype;
    options->clip = choice->clip;
    options->sync_auto = plan->exact_step_s > 0;
    options->sync_dtype = choice->sync_dtype;
    options->sync_down_dtype = choice->sync_down_dtype;
    options->sync_stochastic = choice->sync_stochastic;
    options->gather_dtype = choice->gather_dtype;
    if (options->sync_interval == 0)
        options->sync_interval = choice->sync_interval;
    options->memory_limit = plan->memory_limit;
    if (options->outer_steps == 0)
        options->outer_steps = choice->outer_steps;
    if (choice->outer_steps > 0) {
        options->outer_lr = choice->outer_lr;
        options->outer_momentum = choice->outer_momentum;
    }
}

enum mics_status plan_open_like(const char *path, uint32_t nodes,
                                struct mics_search_options *options, uint64_t *memory_every,
                                uint64_t *memory_copies, struct mics_topology **topology,
                                struct mics_model **model, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    json_t *doc = NULL;
    enum mics_status status = mics_doc_read_file(path, &doc, err);

    if (status != MICS_OK)
        return status;
    status = mics_plan_from_doc(doc, &plan, err);
    json_decref(doc);
    if (status == MICS_OK)
        status = mics_topology_resize(plan->topology, nodes ? nodes : plan->topology->nodes,
                                      topology, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", path);
    } else {
        take_options(plan, options);
        *memory_every = *memory_every ? *memory_every : plan->memory_every;
        *memory_copies = *memory_copies ? *memory_copies : plan->memory_copies;
        *model = plan->model;
        plan->model = NULL; /* the caller's */
    }
    mics_plan_free(plan);
    return status;
}
