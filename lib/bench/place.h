/* SPDX-License-Identifier: Apache-2.0 */
/* bench_place.h - a rank's place in the groups that are measured, and the communicators for it. */
#ifndef MICS_BENCH_PLACE_H
#define MICS_BENCH_PLACE_H

#include "bench/bench.h"
#include "bench/case.h"
#include "bench/hierarchical.h"

/* The rank is the `local`-th of its group's on the group's `node`-th node; group `which` of `groups`. */
struct mics_bench_seat {
    uint32_t nodes, per_node; /* of one group */
    uint32_t groups, which;
    uint32_t node, local;
};

struct mics_bench_place {
    struct mics_bench_seat seat;
    struct mics_comm *flat; /* blocks in node order */
    struct mics_comm *mpi;  /* MPI's own; NULL: there are none */
    struct mics_comm *net_stage, *node_stage;
    struct mics_hier *whole,
        *segmented; /* with one segment, and as many as asked for; NULL: no hierarchy */
    uint32_t segments;
};

/* The partition must divide the world into parts of nodes or groups of whole nodes: MICS_ERR_ARG, with the
 * reason. The world must be even. */
enum mics_status mics_bench_check_partition(const struct mics_world *world, uint32_t partition,
                                            struct mics_err *err);

/* `partition`: checked, or 0 for groups that do not need it. */
struct mics_bench_seat mics_bench_seat_of(const struct mics_world *world,
                                          enum mics_bench_group group, uint32_t partition);

/* Does the group have two stages, of more than one rank each? */
bool mics_bench_has_hierarchy(const struct mics_bench_seat *seat);

/* Collective over the world. After a failure nothing is left in *out. */
enum mics_status mics_bench_place_open(const struct mics_bench *bench,
                                       const struct mics_bench_seat *seat, uint32_t segments,
                                       struct mics_bench_place *out, struct mics_err *err);
void mics_bench_place_close(struct mics_bench_place *place); /* collective */

/* The communicators' block of this rank, and the seat's place in the group (node * per_node + local) of the rank
 * with hierarchical block `block`. */
uint32_t mics_bench_rank_of_block(const struct mics_bench_seat *seat, uint32_t block);

#endif
