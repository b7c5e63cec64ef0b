/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usable_nodes.h - plan for the nodes of a cluster that are worth using, in the order of its
 * switches.
 *
 * In the plan's topology, "hosts" are the hosts of the plan's nodes in the order of its ranks, and
 * what follows may be absent:
 *
 *     left_out [{node, ? host, why}]: nodes of the cluster without a rank of the plan
 *     switch_use {groups, one_leaf, most_leaves, unknown_hosts, ? ignored_file}: see
 *                mics_switches_order() and struct mics_switches_source
 */
#ifndef MICS_PLAN_USABLE_NODES_H
#define MICS_PLAN_USABLE_NODES_H

#include "plan/search/search.h"
#include "topology/host_list.h"
#include "topology/switches.h"

struct mics_cluster_options {
    const char *hosts;    /* see mics_hostfile_read(): replaces those of the topology; or NULL */
    const char *switches; /* file or folder of Slurm's, see mics_switches_read(); or NULL */
    const char *switch_topology; /* its topology; NULL: the default */
    bool all_nodes;              /* leave none out */
};

/* Search a plan for each set of alike nodes and choose the one with most tokens per second; of
 * those within MICS_STEP_TIE, the one with the most nodes. Then order its hosts by switches.
 * Ownership and errors as of mics_plan_search(); in addition MICS_ERR_ARG: switches are given, but
 * no hosts are known. MICS_ERR_INFEASIBLE: no set has a plan, or snapshots of checkpoints exceed
 * the host memory of a node with GPUs. */
enum mics_status mics_plan_search_usable(struct mics_topology *topology, struct mics_model *model,
                                         const struct mics_search_options *options,
                                         const struct mics_cluster_options *cluster,
                                         struct mics_plan **out, struct mics_err *err);

/* The reason why node `index` of "left_out" is not used, as "node-7: ...", or NULL: there are not
 * as many. Written into text[size]. */
const char *mics_plan_left_out(const struct mics_plan *plan, size_t index, char *text, size_t size);

#endif
