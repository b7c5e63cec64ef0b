/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches.h - the switches between nodes, from Slurm's topology.conf or topology.yaml, and an
 * order of nodes in which groups of neighbours stay under few of them.
 */
#ifndef MICS_TOPOLOGY_SWITCHES_H
#define MICS_TOPOLOGY_SWITCHES_H

#include "topology/host_list.h"

/* A forest of switches: leaf switches have nodes, the others have switches. Immutable. */
struct mics_switches;

/* Read a file of Slurm: topology.conf(5) or topology.yaml(5), of which `name` is the topology
 * (NULL: the cluster's default). It must be a tree ("SwitchName=s0 Nodes=n[0-15]" and
 * "SwitchName=s2 Switches=s[0-1]"; LinkSpeed, which Slurm ignores as well, is ignored) or blocks
 * ("BlockName=b0 Nodes=n[0-15]", "BlockSizes=16,32"). A block is a leaf switch, and groups of
 * neighbouring blocks of the sizes are the switches above.
 * MICS_ERR_FORMAT: the line and what is wrong, such as a switch that is not defined, a node under
 * two leaf switches, or a cycle. MICS_ERR_UNSUPPORTED: YAML in a build without libyaml. *out
 * belongs to the caller. */
enum mics_status mics_switches_parse(const char *text, size_t size, const char *name,
                                     struct mics_switches **out, struct mics_err *err);

enum { MICS_SWITCHES_PATH = 4096 };

/* Which file was read, and which one beside it was ignored; empty: none. */
struct mics_switches_source {
    char path[MICS_SWITCHES_PATH], ignored[MICS_SWITCHES_PATH];
};

/* In a folder, and for a file topology.conf, topology.yaml beside it is read instead, as by
 * Slurm. */
enum mics_status mics_switches_read(const char *file_or_folder, const char *name,
                                    struct mics_switches **out, struct mics_switches_source *source,
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
