/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expect.h - is a measured bandwidth what the cluster should reach?
 *
 * Each case is compared with the cost model (cost.h): the collectives that the topology has
 * measured, else NCCL's model, else the formulas of its links.
 */
#ifndef MICS_MEASURE_EXPECT_H
#define MICS_MEASURE_EXPECT_H

#include "base/err.h"
#include "topology/topology.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* NCCL's model was at most 29.2 % off 77 published measurements (bench/nccl_curves.c). */
#define MICS_EXPECT_TOLERANCE 0.3

/* Compare the rows of a document mics.bench with `topology`, and add to it
 *
 *     "expected" {tolerance, rows [{op, algo, group, nodes, per_node, in_place, bytes, measured
 *                 (bytes/s on the bus), ? expected, ? source ("measured", "nccl", "links"),
 *                 verdict ("normal", "low", "not comparable"), ? low_by (0 to 1), ? why}]}
 *
 * A case is low if its bus bandwidth is more than `tolerance` (0 to 1) below the expected one.
 * *low: how many are. *compared: how many are low or normal. MICS_ERR_FORMAT: not such a
 * document. */
enum mics_status mics_bench_expect(json_t *doc, const struct mics_topology *topology,
                                   double tolerance, size_t *low, size_t *compared,
                                   struct mics_err *err);

/* Is `device`, "host" or a GPU's name by its driver, one of the topology's? "unknown" is any. */
bool mics_bench_is_same_device(const struct mics_topology *topology, const char *device);

/* Print "expected" of a document as a table; nothing if it has none. */
enum mics_status mics_bench_expect_print(FILE *out, const json_t *doc, struct mics_err *err);

#endif
