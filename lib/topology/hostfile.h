/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfile.h - host files of mpirun: hosts with their slots, read as Open MPI 4 reads them
 * (orte/util/hostfile), and written.
 *
 * A line is a host and its attributes, "user@node1 slots=4 max_slots=8 # comment". Beyond that, the
 * host may be an expression of Slurm (host_list.h), have its slots behind a colon ("node1:4", as
 * for mpirun --host and Hydra), or be an IPv6 address in brackets; a byte-order mark and CR LF are
 * accepted. Names for which mpirun sees one host (node1 and node1.example.org, localhost and this
 * machine's name) are one host here, too.
 */
#ifndef MICS_TOPOLOGY_HOSTFILE_H
#define MICS_TOPOLOGY_HOSTFILE_H

#include "base/err.h"

#include "topology/host_list.h"
#include "topology/topology.h"

#include <jansson.h>
#include <stdio.h>

struct mics_hostfile_host {
    char name[MICS_HOST_NAME]; /* an address has no brackets */
    char user[MICS_HOST_NAME]; /* "": not given */
    uint32_t slots;            /* 0: not given; mpirun then takes the cores of the host */
    uint32_t port;             /* of ssh; 0: not given */
};

struct mics_hostfile {
    uint32_t count;
    struct mics_hostfile_host *hosts; /* in the order in which they are named first */
};

void mics_hostfile_fini(struct mics_hostfile *file);

/* Parse the text of a host file. *file must be zero; on failure it is empty. MICS_ERR_FORMAT: what
 * mpirun refuses, no hosts, or more than MICS_MAX_NODES; the error names the line. */
enum mics_status mics_hostfile_parse(const char *text, size_t size, struct mics_hostfile *file,
                                     struct mics_err *err);

/* The hosts of a file, or of a list such as "node[1-8],login:4" if there is no file of this name
 * and it has no '/'. Errors begin with the path or the list. MICS_ERR_IO, MICS_ERR_FORMAT. */
enum mics_status mics_hostfile_read(const char *file_or_list, struct mics_hostfile *file,
                                    struct mics_err *err);

/* The same, only the names. *list must be zero. */
enum mics_status mics_hostfile_read_names(const char *file_or_list, struct mics_host_list *list,
                                          struct mics_err *err);

/* Print a host file that mpirun understands: "[USER@]HOST [slots=N] [port=N]" for each host. */
void mics_hostfile_print(FILE *out, const struct mics_hostfile *file);

/* Write "HOST slots=RANKS" for each node of the document's "hosts" that is not in its "bad_nodes",
 * and " port=N" behind it if its map in "nodes" has a port. A host on which several nodes are
 * declared has a line for each. MICS_ERR_INFEASIBLE: all nodes are bad; MICS_ERR_ARG: the document
 * has no hosts; the file is not touched. */
enum mics_status mics_hostfile_write(const char *path, const json_t *doc, struct mics_err *err);

/* Write the host of each rank on a line of its own, as srun(1) reads SLURM_HOSTFILE with
 * --distribution=arbitrary. MICS_ERR_ARG: the topology has no hosts. */
enum mics_status mics_hostfile_write_tasks(const char *path, const struct mics_topology *topology,
                                           struct mics_err *err);

#endif
