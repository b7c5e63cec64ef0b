/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_list.h - names of hosts in Slurm's expressions.
 *
 * An expression is a list of names separated by commas; a name may contain ranges in brackets,
 * which may be padded with zeros: "node[01-16,20],login,rack[0-1]gpu[0-7]" (scontrol(1), "hostlist
 * expressions").
 */
#ifndef MICS_TOPOLOGY_HOST_LIST_H
#define MICS_TOPOLOGY_HOST_LIST_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { MICS_HOST_NAME = 64 }; /* bytes of a name with its zero */

struct mics_host_list {
    uint32_t count, capacity;
    char (*names)[MICS_HOST_NAME]; /* [capacity] */
};

void mics_host_list_fini(struct mics_host_list *list);

/* Append the hosts of an expression, in its order. At most MICS_MAX_NODES hosts altogether.
 * MICS_ERR_FORMAT: what is wrong; the list then has some of the hosts. */
enum mics_status mics_host_list_append(struct mics_host_list *list, const char *text, size_t length,
                                       struct mics_err *err);

/* The index of the first name that occurs more than once; -1: there is none, -2: out of memory. */
int64_t mics_host_list_duplicate(const struct mics_host_list *list);

#endif
