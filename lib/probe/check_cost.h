/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_cost.h - what the faults of a cluster cost a training that is planned.
 *
 * All ranks wait for the slowest. So a slow rank makes all computation as slow, a slow card or pair
 * all collectives between nodes, slow links of a node those inside nodes; a slow memory what is
 * limited by memory. The plan is priced again with these costs. Findings that are no rates, as
 * errors of memory, have no price.
 */
#ifndef MICS_PROBE_CHECK_COST_H
#define MICS_PROBE_CHECK_COST_H

#include "plan/plan.h"

/* Add to each finding of `doc`, a document mics.check, that tells what is how many times slower
 * (findings.h) "adds_share", the part of the predicted step that it adds. The document gets "plan",
 * {step_s, step_with_faults_s}. */
enum mics_status mics_check_add_costs(json_t *doc, const struct mics_plan *plan,
                                      struct mics_err *err);

#endif
