/* SPDX-License-Identifier: Apache-2.0 */
/* usable_nodes.c - one search per set of nodes. */
#include "plan/usable_nodes.h"

#include "plan/memory.h"
#include "plan/search/search_internal.h"
#include "topology/hostfile.h"
#include "topology/node_sets.h"

#include <stdlib.h>
#include <string.h>

/* Frees a plan, except its model, which other plans share. */
static void free_without_model(struct mics_plan *plan)
{
    if (plan)
        plan->model = NULL;
    mics_plan_free(plan);
}

static bool is_better(const struct mics_plan *plan, const struct mics_plan *best)
{
    const double rate = plan->predicted.tokens_per_s;
    const double tie = 1 + MICS_STEP_TIE;

    if (!best)
        return true;
    if (plan->topology->nodes <= best->topology->nodes)
        return rate > best->predicted.tokens_per_s * tie;
    return rate * tie >= best->predicted.tokens_per_s;
}

/* *chosen: the index of the set. Sets without a plan are skipped; if none has one, the error is the
 * first set's. */
static enum mics_status search_sets(struct mics_node_set *sets, uint32_t count,
                                    struct mics_model *model,
                                    const struct mics_search_options *options,
                                    struct mics_plan **out, uint32_t *chosen, struct mics_err *err)
{
    struct mics_plan *best = NULL;
    enum mics_status first = MICS_OK;

    for (uint32_t i = 0; i < count; i++) {
        struct mics_plan *plan = NULL;
        struct mics_err own;
        const enum mics_status status =
            mics_plan_search(sets[i].topology, model, options, &plan, &own);

        if (status == MICS_OK) {
            sets[i].topology = NULL; /* the plan's */
        } else if (status != MICS_ERR_ARG && status != MICS_ERR_INFEASIBLE) {
            free_without_model(best);
            *err = own;
            return status;
        }
        if (status != MICS_OK && first == MICS_OK) {
            first = status;
            *err = own;
        }
        if (plan && is_better(plan, best)) {
            struct mics_plan *worse = best;

            best = plan;
            plan = worse;
            *chosen = i;
        }
        free_without_model(plan);
    }
    *out = best;
    return best ? MICS_OK : first;
}

/* "left_out" in the plan's topology. */
static enum mics_status keep_left_out(struct mics_plan *plan, json_t *left_out,
                                      struct mics_err *err)
{
    struct mics_topology *topology = plan->topology;
    enum mics_status status = MICS_OK;

    if (json_array_size(left_out) == 0)
        return MICS_OK;
    if (!topology->doc)
        status = mics_topology_to_doc(topology, &topology->doc, err);
    if (status == MICS_OK && json_object_set(topology->doc, "left_out", left_out) != 0)
        status = mics_err_nomem(err);
    return status;
}

static enum mics_status search_usable(struct mics_topology *topology, struct mics_model *model,
                                      const struct mics_search_options *options, bool all_nodes,
                                      struct mics_plan **out, struct mics_err *err)
{
    struct mics_node_set *sets = NULL;
    struct mics_plan *plan = NULL;
    uint32_t count, chosen = 0;
    char text[200];
    enum mics_status status = mics_node_sets_new(topology, all_nodes, &sets, &count, err);

    if (status != MICS_OK)
        return status;
    status = search_sets(sets, count, model, options, &plan, &chosen, err);
    if (status == MICS_OK)
        status = keep_left_out(plan, sets[chosen].left_out, err);
    else if (count > 0 && json_array_size(sets[0].left_out) > 0) {
        snprintf(text, sizeof text, "%zu of the nodes left out (--all-nodes leaves out none)",
                 json_array_size(sets[0].left_out));
        mics_err_prefix(err, "%s", text);
    }
    mics_node_sets_free(sets, count);
    if (status == MICS_OK)
        *out = plan;
    else
        free_without_model(plan);
    return status;
}

/* Nodes that a partition group spans, of experts if their groups are larger. */
static uint32_t group_nodes(const struct mics_plan_choice *choice)
{
    uint32_t ranks = mics_choice_per_node(choice);

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        if (choice->shapes[kind].p_param > ranks)
            ranks = choice->shapes[kind].p_param;
    return ranks / mics_choice_per_node(choice);
}

/* "switch_use" in the plan's topology. */
static enum mics_status keep_switch_use(struct mics_plan *plan, const struct mics_switch_use *use,
                                        const struct mics_switches_source *source,
                                        struct mics_err *err)
{
    json_t *found = json_pack("{s:I, s:I, s:I, s:I}", "groups", (json_int_t)use->groups, "one_leaf",
                              (json_int_t)use->one_leaf, "most_leaves", (json_int_t)use->most,
                              "unknown_hosts", (json_int_t)use->unknown);

    if (found && source->ignored[0])
        json_object_set_new(found, "ignored_file", json_string(source->ignored));
    if (json_object_set_new(plan->topology->doc, "switch_use", found) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

static enum mics_status order_hosts(struct mics_plan *plan,
                                    const struct mics_cluster_options *cluster,
                                    struct mics_err *err)
{
    struct mics_host_list names = {0}, machines = {0};
    struct mics_switches *switches = NULL;
    struct mics_switches_source source;
    struct mics_switch_use use;
    uint32_t *order = calloc(plan->topology->nodes, sizeof *order);
    enum mics_status status = order
                                  ? mics_switches_read(cluster->switches, cluster->switch_topology,
                                                       &switches, &source, err)
                                  : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_topology_hosts(plan->topology, false, &names, err);
    if (status == MICS_OK)
        status = mics_topology_hosts(plan->topology, true, &machines, err);
    if (status == MICS_OK && names.count == 0)
        status =
            mics_err_set(err, MICS_ERR_ARG,
                         "%s: the topology names no hosts; give them with --hosts", source.path);
    if (status == MICS_OK)
        status =
            mics_switches_order(switches, &machines, group_nodes(&plan->choice), order, &use, err);
    if (status == MICS_OK && use.unknown == names.count)
        status = mics_err_set(err, MICS_ERR_ARG, "%s: '%s' and the other hosts are under no switch",
                              source.path, names.names[0]);
    if (status == MICS_OK)
        status = mics_topology_set_hosts(plan->topology, &names, order, err);
    if (status == MICS_OK)
        status = keep_switch_use(plan, &use, &source, err);
    mics_switches_free(switches);
    mics_host_list_fini(&names);
    mics_host_list_fini(&machines);
    free(order);
    return status;
}

static enum mics_status replace_hosts(struct mics_topology *topology, const char *hosts,
                                      struct mics_err *err)
{
    struct mics_host_list list = {0};
    enum mics_status status = mics_hostfile_read_names(hosts, &list, err);

    if (status == MICS_OK)
        status = mics_topology_set_hosts(topology, &list, NULL, err);
    mics_host_list_fini(&list);
    return status;
}

enum mics_status mics_plan_search_usable(struct mics_topology *topology, struct mics_model *model,
                                         const struct mics_search_options *options,
                                         const struct mics_cluster_options *cluster,
                                         struct mics_plan **out, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    enum mics_status status = MICS_OK;

    if (cluster->hosts)
        status = replace_hosts(topology, cluster->hosts, err);
    if (status == MICS_OK)
        status = search_usable(topology, model, options, cluster->all_nodes, &plan, err);
    if (status == MICS_OK && cluster->switches)
        status = order_hosts(plan, cluster, err);
    if (status == MICS_OK)
        status = mics_memory_check_host(&plan->memory, plan->topology, err);
    if (status != MICS_OK) {
        free_without_model(plan);
        return status;
    }
    mics_topology_free(topology);
    *out = plan;
    return MICS_OK;
}

const char *mics_plan_left_out(const struct mics_plan *plan, size_t index, char *text, size_t size)
{
    const json_t *entry = json_array_get(json_object_get(plan->topology->doc, "left_out"), index);
    const char *host = json_string_value(json_object_get(entry, "host"));
    const char *why = json_string_value(json_object_get(entry, "why"));

    if (!entry)
        return NULL;
    if (host)
        snprintf(text, size, "%s: %s", host, why ? why : "left out");
    else
        snprintf(text, size, "node %lld: %s",
                 (long long)json_integer_value(json_object_get(entry, "node")),
                 why ? why : "left out");
    return text;
}
