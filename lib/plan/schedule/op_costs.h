/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_costs.h - how long each operation of a step takes on a topology, when it runs alone.
 *
 * The simulator, the bounds of the search and the paced device take their times from here.
 */
#ifndef MICS_PLAN_SCHEDULE_OP_COSTS_H
#define MICS_PLAN_SCHEDULE_OP_COSTS_H

#include "plan/schedule/schedule.h"
#include "topology/cost.h"

/* Keeps the costs of stages that were asked for, so one thread at a time may use it. Does not own
 * topology and model, which must outlive it. */
struct mics_op_costs;

/* *out belongs to the caller, who calls mics_op_costs_free(). MICS_ERR_NOMEM: out of memory. */
enum mics_status mics_op_costs_new(const struct mics_topology *topology,
                                   const struct mics_model *model, struct mics_op_costs **out,
                                   struct mics_err *err);
void mics_op_costs_free(struct mics_op_costs *costs); /* NULL is fine */

/* From now on the seconds of each class are times[class] those of the topology, as if its devices
 * or links were slower. Before anything was asked. */
void mics_op_costs_scale(struct mics_op_costs *costs, const double times[MICS_COST_CLASS_COUNT]);

/* Seconds of an operation of a schedule of this choice that is no collective. */
double mics_op_costs_compute(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                             const struct mics_op *op);

/* Seconds that the compute stream needs for each micro-step: forward and backward passes of all
 * stages. Those that begin gradients in slots write them, after zeroing what they add to. */
double mics_op_costs_micro_step(struct mics_op_costs *costs, const struct mics_plan_choice *choice);

/* Seconds for which the compute stream waits in each micro-step while tokens travel to resident
 * experts and back, if nothing else uses the links: nothing overlaps with that. 0 where experts are
 * gathered, or whole. */
double mics_op_costs_dispatch(struct mics_op_costs *costs, const struct mics_plan_choice *choice);

/* Seconds that the compute stream needs besides, once in a step: norms and updates of all units, of
 * states in host memory only the norms, and what the first micro-step takes more, or less, to begin
 * the gradients in shards. With s times the micro-step this is the sum of mics_op_costs_compute()
 * over the stream. */
double mics_op_costs_updates(struct mics_op_costs *costs, const struct mics_plan_choice *choice);

/* A copy between host memory and a device, from its launch to its first byte: assumed. */
#define MICS_HOST_COPY_LATENCY_S 10e-6

/* A load or a store of a piece that is in host memory, whatever is copied the other way meanwhile.
 * Where these copies use the links of collectives, both share them. */
struct mics_copy_price {
    double latency_s, transfer_s;
    bool shares_links;
};
struct mics_copy_price mics_op_costs_copy(const struct mics_op_costs *costs,
                                          const struct mics_plan_choice *choice,
                                          const struct mics_op *op);

/* Where the optimizer's states are in host memory: seconds that the slower of the streams which
 * load and store them needs for a unit, at least. */
double mics_op_costs_offload(const struct mics_op_costs *costs,
                             const struct mics_plan_choice *choice, uint32_t unit);

/* Computation keeps this part of its speed whatever runs beside it: what several collectives take
 * of a device was measured for one at a time, and their sum could be all of it. */
#define MICS_LEAST_COMPUTE_SPEED 0.2

/* A collective that has its links for itself. Other collectives over the same links lengthen only
 * transfer_s. */
struct mics_collective_price {
    double latency_s, transfer_s;
    double slowdown; /* part of the computation's speed that is lost meanwhile: 0 to 1 */
    double stretch;  /* times that it takes longer while computation runs: 1 or more */
    bool between_nodes;
};

/* One collective of `bytes` (the whole array, gathered size) on the communicator of rank 0 of this
 * kind, in the groups of this shape. */
struct mics_collective_price mics_op_costs_collective(struct mics_op_costs *costs,
                                                      const struct mics_shape *shape,
                                                      enum mics_collective collective,
                                                      enum mics_comm_kind comm, uint64_t bytes);

/* Seconds that a GPU needs to copy to the host what this collective has gathered: the rows for each
 * expert, which decide how many rounds follow. 0: for all other collectives, and on hosts. */
double mics_op_costs_read_back(const struct mics_op_costs *costs,
                               const struct mics_plan_choice *choice, const struct mics_op *op);

/* Seconds of one segment of a hop of this unit, a collective or a conversion. */
double mics_op_costs_hop(struct mics_op_costs *costs, const struct mics_plan_choice *choice,
                         const struct mics_hop *hop, uint32_t unit);

/* Seconds that the last rank is behind the mean when ranks have computed for so long without
 * waiting for each other. */
double mics_op_costs_straggler_delay(const struct mics_op_costs *costs, double computing_s);

const struct mics_topology *mics_op_costs_topology(const struct mics_op_costs *costs);

#endif
