/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - the memory of one rank, computed from what units, slots and stages declare. */
#ifndef MICS_PLAN_MEMORY_H
#define MICS_PLAN_MEMORY_H

#include "plan/layout.h"

/* Every region begins at a multiple of this and is rounded up to it. */
#define MICS_REGION_ALIGN 4096
/* Alignment of activations, batches and scalars inside their regions. */
#define MICS_BUFFER_ALIGN 256
/*
 * Host memory of a rank outside arena and snapshot, measured with Open MPI 4.1.4 and OpenBLAS
 * 0.3.21 of Debian 12 (2026-11-22, /proc/PID/smaps of gpt2-nano; bench/plan/memory repeats it). For
 * the device memory of a GPU see gpu_memory.h.
 *
 * A process that has joined a job: pages of libraries, Open MPI's state. mics-probe measures it.
 */
#define MICS_PROCESS_BYTES ((uint64_t)16 << 20)
/* Code and data of program and libraries that training touches in addition; the plan, its schedule,
 * threads' stacks, a manifest. */
#define MICS_TRAINING_PROCESS_BYTES ((uint64_t)2304 << 10)
/* Open MPI's fragments and requests, and its memory shared with the ranks of the node. */
#define MICS_MPI_BYTES ((uint64_t)512 << 10)
/* Panels that OpenBLAS packs for a product, of each compute thread; or working memory of oneDNN. */
#define MICS_BLAS_THREAD_BYTES ((uint64_t)900 << 10)
/* oneDNN's code and data that products in bf16 touch, and the code that it generates for the shapes
 * of a job. */
#define MICS_ONEDNN_BYTES ((uint64_t)24 << 20)

/* Bytes of every region of the arena and of the snapshot. A pure function.
 * MICS_ERR_ARG: mics_choice_check() fails. */
enum mics_status mics_memory_compute(const struct mics_model *model,
                                     const struct mics_plan_choice *choice, struct mics_memory *out,
                                     struct mics_err *err);

/* Bytes of the rows that all ranks have for each expert, which a GPU copies to the host: it decides
 * how many rounds of tokens a layer has. 0: no tokens travel, or always in one round. */
uint64_t mics_choice_counts_bytes(const struct mics_model *model,
                                  const struct mics_plan_choice *choice);

/* The same with what the devices of a topology need outside the arena. */
enum mics_status mics_memory_compute_on(const struct mics_topology *topology,
                                        const struct mics_model *model,
                                        const struct mics_plan_choice *choice,
                                        struct mics_memory *out, struct mics_err *err);

/* Bytes that count against the memory of one rank: the arena and the workspace; on GPUs the context
 * and the communicators; where ranks compute in host memory, the snapshot and the process, so that
 * it is the peak of the process's resident memory. */
uint64_t mics_memory_total(const struct mics_memory *memory, const struct mics_topology *topology);

/* Host memory of one rank. With GPUs: the process, the snapshot and pinned buffers, without what
 * CUDA itself takes; else mics_memory_total(). */
uint64_t mics_memory_host(const struct mics_memory *memory, const struct mics_topology *topology);

/* The host memory that a node with GPUs lacks, if the topology knows it (machine.memory_bytes), for
 * its ranks and `more` bytes. */
uint64_t mics_memory_lacks_host(const struct mics_memory *memory,
                                const struct mics_topology *topology, uint64_t more);
/* MICS_ERR_INFEASIBLE: it lacks some for its ranks, and what would need less. */
enum mics_status mics_memory_check_host(const struct mics_memory *memory,
                                        const struct mics_topology *topology, struct mics_err *err);

/* Bytes of a rank's optimizer shard of the units that use the groups of `kind`, parameters and
 * states, as a checkpoint stores them. */
uint64_t mics_choice_shard_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, enum mics_unit_kind kind);

/* Files per shard of a checkpoint: one for each replica, but none smaller than 1 MiB, since more
 * files then cost more than they gain. */
uint32_t mics_choice_checkpoint_parts(const struct mics_model *model,
                                      const struct mics_plan_choice *choice);

/* Bytes of a rank's shards of all units of a kind: parameters, gradients and optimizer state. */
uint64_t mics_choice_state_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, enum mics_unit_kind kind);

/* Where the optimizer's states are in host memory: elements of each vector of the largest piece on
 * the device, and the bytes of all its vectors. */
uint64_t mics_offload_slot_count(const struct mics_model *model,
                                 const struct mics_plan_choice *choice);
uint64_t mics_offload_slot_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice);

/* The scalars of a step (struct mics_args_scalars), and in training the model's stats behind them.
 */
uint64_t mics_scalars_bytes(const struct mics_model *model, bool train);
/* Bytes of fp16's loss scale in the arena; 0 with other types. */
uint64_t mics_loss_scale_bytes(const struct mics_plan_choice *choice);

/* The batch of a stage that uses a unit of `kind`, in training (`train`) or evaluation. */
struct mics_batch mics_choice_batch(const struct mics_plan_choice *choice, enum mics_unit_kind kind,
                                    bool train);

#endif
