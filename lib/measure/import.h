/* SPDX-License-Identifier: Apache-2.0 */
/* import.h - measurements that nccl-tests made, as the document mics.bench. */
#ifndef MICS_MEASURE_IMPORT_H
#define MICS_MEASURE_IMPORT_H

#include "base/err.h"
#include "topology/topology.h"

#include <jansson.h>

/* Read logs (nccl_log.h) into one document: rows of the operations `ops`, a set of enum
 * mics_bench_op. `files`: paths, separated by commas; "-" is standard input. With a topology the
 * document also has it as "topology", whose collectives have become the measured ones where their
 * shape and collective were measured in two sizes or more. *out is the caller's.
 *
 * MICS_ERR_INFEASIBLE: a log has more nodes, or more ranks on one, than the topology. Other errors
 * as of mics_nccl_log_parse(). */
enum mics_status mics_bench_import(const char *files, const struct mics_topology *topology,
                                   unsigned ops, json_t **out, struct mics_err *err);

/* The topology of an imported document, borrowed; NULL: it has none. */
json_t *mics_bench_topology(const json_t *doc);

#endif
