/* SPDX-License-Identifier: Apache-2.0 */
/* hostfile.h - the hosts of a probe that are not slow, as mpirun reads them. */
#ifndef MICS_PROBE_HOSTFILE_H
#define MICS_PROBE_HOSTFILE_H

#include "base/err.h"

#include "topology/topology.h"

#include <jansson.h>

/* Write "HOST slots=RANKS" for each node of the document's "hosts" that is not in its "bad_nodes".
 * A host on which several nodes are declared has a line for each. MICS_ERR_INFEASIBLE: all nodes
 * are bad; MICS_ERR_ARG: the document has no hosts; the file is not touched. */
enum mics_status mics_hostfile_write(const char *path, const json_t *doc, struct mics_err *err);

/* Write the host of each rank on a line of its own, as srun(1) reads SLURM_HOSTFILE with
 * --distribution=arbitrary. MICS_ERR_ARG: the topology has no hosts. */
enum mics_status mics_hostfile_write_tasks(const char *path, const struct mics_topology *topology,
                                           struct mics_err *err);

#endif
