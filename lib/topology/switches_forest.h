/* SPDX-License-Identifier: Apache-2.0 */
/* switches_forest.h - how readers of files build a forest of switches. For switches*.c. */
#ifndef MICS_TOPOLOGY_SWITCHES_FOREST_H
#define MICS_TOPOLOGY_SWITCHES_FOREST_H

#include "topology/switches.h"

#include <stdbool.h>

/* Not terminated; text NULL: absent. */
struct mics_switch_text {
    const char *text;
    size_t length;
};

/* A switch, which has either nodes or child switches, or a block, which has nodes or nothing. */
struct mics_switch_entry {
    bool is_block;
    struct mics_switch_text name, nodes, children; /* nodes and children: expressions */
    int line;                                      /* of its file, for messages */
};

enum { MICS_BLOCK_SIZES_MAX = 16 };

struct mics_switches *mics_switches_new(void); /* NULL: out of memory */

/* MICS_ERR_FORMAT: what is wrong, without the line. */
enum mics_status mics_switches_add(struct mics_switches *switches,
                                   const struct mics_switch_entry *entry, struct mics_err *err);

/* Link what was added. block_sizes[size_count] (at most MICS_BLOCK_SIZES_MAX): nodes of blocks and
 * of groups of neighbouring blocks, for blocks only. */
enum mics_status mics_switches_finish(struct mics_switches *switches, const uint32_t *block_sizes,
                                      uint32_t size_count, struct mics_err *err);

/* Read topology.yaml: the topology `name`, or the cluster's default if it is NULL. In a build
 * without libyaml MICS_ERR_UNSUPPORTED. */
enum mics_status mics_switches_parse_yaml(const char *text, size_t size, const char *name,
                                          struct mics_switches **out, struct mics_err *err);

#endif
