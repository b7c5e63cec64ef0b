/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_update.h - an optimizer that is updated on the host's processors, as DeepSpeed's
 * offload_optimizer does.
 *
 * Masters and states stay in host memory. A rank copies the gradients of its shard there, from the
 * stream that reduces them; after the last micro-step the host updates the whole shard, and copies
 * of the parameters go back. Nothing else of the rank runs meanwhile.
 *
 * Sources: runtime/zero/stage_1_and_2.py, copy_grads_in_partition() and step(), runtime/zero/
 * stage3.py, partition_grads() and step(), and csrc/adam/cpu_adam_impl.cpp of DeepSpeed 0.19.
 */
#ifndef MICS_PLAN_HOST_UPDATE_H
#define MICS_PLAN_HOST_UPDATE_H

#include "plan/plan.h"

bool mics_choice_updates_on_host(const struct mics_plan_choice *choice);

/* Has the host an update for it that is more than PyTorch's own? */
bool mics_host_updates(enum mics_optimizer optimizer);

/* Bytes of an element's gradient that go to the host in a micro-step, or come back from it, for the
 * sum of earlier micro-steps. */
uint32_t mics_host_grads_stored(const struct mics_plan_choice *choice, uint32_t micro_step);
uint32_t mics_host_grads_loaded(const struct mics_plan_choice *choice, uint32_t micro_step);

/* Host memory of an element of the shard: master, states, gradient, and copies of gradient and
 * parameter in their own type. */
uint32_t mics_host_state_bytes(const struct mics_plan_choice *choice);

/* Bytes of an element that the host's processors read and write for an update: gradients are
 * scaled, masters and states updated, and parameters converted. */
uint32_t mics_host_update_bytes(const struct mics_plan_choice *choice);

/* Bytes/s that the update reads and writes on a node: assumed, where a topology does not say it.
 * It lies between those of two published steps; docs/other-trainers.md has them. */
#define MICS_HOST_UPDATE_RATE 50e9
/* The share of one rank, as machine.memory_bandwidth_bytes_per_s of the topology says for a node.
 * Where ranks compute on the host, it is that of their memory. */
double mics_host_update_rate(const struct mics_topology *topology);
/* "assumed", "as described" or "host memory". */
const char *mics_host_update_source(const struct mics_topology *topology);

#endif
