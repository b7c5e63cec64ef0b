/* SPDX-License-Identifier: Apache-2.0 */
/* plan_dot.h - the groups of a plan as a graph. */
#ifndef MICS_PLAN_PLAN_DOT_H
#define MICS_PLAN_PLAN_DOT_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* Write a graph in DOT: partition groups and nodes are clusters of ranks, and edges connect the
 * ranks that hold the same shard of the parameters. With more than MICS_DOT_RANKS ranks, the
 * first groups are drawn whole, without their ranks. MICS_ERR_FORMAT as of mics_plan_from_doc(). */
enum { MICS_DOT_RANKS = 48 };
enum mics_status mics_plan_dot(FILE *out, const json_t *doc, struct mics_err *err);

#endif
