/* SPDX-License-Identifier: Apache-2.0 */
/* bench_input.h - what a benchmark takes from a plan or a topology. */
#ifndef MICS_BENCH_INPUT_H
#define MICS_BENCH_INPUT_H

#include "bench/case.h"
#include "comm/world.h"

#include <jansson.h>

struct mics_bench_input {
    uint32_t nodes, per_node; /* 0: there was no document */
    uint32_t partition;       /* ranks of a parameter group; 0: the document has none */
};

/* From a path ("-": standard input) of a document that is for as many nodes and ranks as the world has, else it is
 * MICS_ERR_FORMAT. With `topology_only` a plan is refused, and *topology is the document, the caller's. */
enum mics_status mics_bench_input_read(const char *file, const struct mics_world *world,
                                       bool topology_only, struct mics_bench_input *out,
                                       json_t **topology, struct mics_err *err);

/* Put the input's partition into a request that names none, and all groups that make sense into one that names none.
 * MICS_ERR_ARG: the partition does not fit the world, or there is none for a group that needs it. */
enum mics_status mics_bench_input_complete(const struct mics_world *world,
                                           const struct mics_bench_input *input,
                                           struct mics_bench_request *request,
                                           struct mics_err *err);

#endif
