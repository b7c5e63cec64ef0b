/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches.h - the switches between nodes, from Slurm's topology.conf, and an order of nodes in
 * which groups of neighbours stay under few of them.
 */
#ifndef MICS_TOPOLOGY_SWITCHES_H
#define MICS_TOPOLOGY_SWITCHES_H

#include "topology/host_list.h"

/* A forest of switches: leaf switches have nodes, the others have switches. Immutable. */
struct mics_switches;

/* Read topology.conf (topology.conf(5), plug-in topology/tree): lines "SwitchName=s0 Nodes=n[0-15]"
 * and "SwitchName=s2 Switches=s[0-1]". LinkSpeed, which Slurm ignores as well, is ignored.
 * MICS_ERR_FORMAT: the line and what is wrong, such as a switch that is not defined, a node under
 * two leaf switches, or a cycle. *out belongs to the caller. */
enum mics_status mics_switches_parse(const char *text, size_t size, struct mics_switches **out,
                                     struct mics_err *err);
enum mics_status mics_switches_read(const char *path, struct mics_switches **out,
                                    struct mics_err *err);
void mics_switches_free(struct mics_switches *switches); /* NULL is fine */

/* What an order of nodes achieves. */
struct mics_switch_use {
    uint32_t groups;   /* of `group_nodes` neighbours */
    uint32_t one_leaf; /* groups whose nodes are under one leaf switch */
    uint32_t most;     /* leaf switches of the group with the most */
    uint32_t unknown;  /* hosts that are under no switch */
};

/* Order `hosts` so that each group of `group_nodes` neighbours, which divides their number, is
 * under one leaf switch where possible, and otherwise under the lowest switch that has enough nodes
 * left. order[hosts->count]: indices of hosts. Hosts that are under no switch come last.
 * MICS_ERR_NOMEM. */
enum mics_status mics_switches_order(const struct mics_switches *switches,
                                     const struct mics_host_list *hosts, uint32_t group_nodes,
                                     uint32_t *order, struct mics_switch_use *use,
                                     struct mics_err *err);

#endif
