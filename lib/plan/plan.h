/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - a plan in memory: all that decides a schedule, and what was predicted of it.
 *
 * The document mics.plan holds the topology and the model that it was made from. It holds shapes, no
 * lists of ranks.
 */
#ifndef MICS_PLAN_PLAN_H
#define MICS_PLAN_PLAN_H

#include "model/model.h"
#include "optimizer.h"
#include "plan/group.h"
#include "plan/layout.h"
#include "topology/topology.h"

#define MICS_PLAN_KIND "mics.plan"
/* 2: `recompute` is a level by name, and what a GPU holds beside the plan is counted. In 1 recompute
 * was a boolean, true for full and false for selective. */
#define MICS_PLAN_VERSION 2
#define MICS_JOINED_MAX   7

/* Everything that a schedule and the memory are functions of (with the model). */
struct mics_plan_choice {
    struct mics_shape shape;
    char strategy[16];        /* "ddp", "zero1", "zero2", "zero3", "mics", "custom" */
    bool hierarchical_gather; /* where the parameter group has a hierarchy */
    bool hierarchical_reduce;
    uint32_t segments;   /* of large units; >= 1 */
    uint32_t prefetch;   /* units gathered ahead; 0 or more: prefetch + 1 parameter slots */
    uint32_t grad_slots; /* >= 1 */
    uint32_t joined; /* units whose exchanges travel together with one before them; 0: each alone */
    uint32_t micro_batch, micro_steps, seq;
    enum mics_recompute recompute;
    enum mics_optimizer optimizer;
    enum mics_dtype dtype;      /* of parameters and activations: MICS_F32 or MICS_BF16 (types.h) */
    enum mics_dtype grad_dtype; /* of gradients in their slots and on their way, likewise */
    bool clip;                  /* the norm is a barrier before the updates */
};

struct mics_region {
    const char *name; /* "parameter shards", ... */
    uint64_t bytes, offset;
};

enum mics_region_kind {
    MICS_REGION_PARAM,      /* parameter shards */
    MICS_REGION_GRAD,       /* gradient shards, fp32 */
    MICS_REGION_OPTIM,      /* the master where parameters are not fp32; the optimizer's states */
    MICS_REGION_PARAM_SLOT, /* gathered parameters */
    MICS_REGION_GRAD_SLOT, /* gradients on their way to the reduction, and through the second hop */
    MICS_REGION_SAVED,     /* activations */
    MICS_REGION_SCRATCH,
    MICS_REGION_BATCH, /* tokens, targets, scalars: two steps of them */
    MICS_REGION_COUNT
};

/* The arena: regions one after another, each aligned to 4096 bytes. */
struct mics_memory {
    struct mics_region regions[MICS_REGION_COUNT];
    uint64_t arena_bytes;
    uint64_t workspace_bytes; /* outside the arena: of libraries; on a host also staging */
    uint64_t context_bytes, communicator_bytes; /* likewise, of a GPU; 0 on a host (gpu_memory.h) */
    uint64_t
        snapshot_bytes; /* in host memory: what a checkpoint is written from while training goes on */
};

struct mics_prediction {
    double step_s, tokens_per_s;
    double compute_s, comm_s,
        exposed_s;       /* of one step: busy compute, busy communication, the part of
                                            communication during which nothing is computed */
    uint64_t net_bytes;  /* that cross one node's card in one direction in a step */
    uint64_t sent_bytes; /* that one rank sends in a step */
};

/* One candidate, chosen or not. */
struct mics_alternative {
    struct mics_plan_choice choice;
    uint64_t total_bytes;
    struct mics_prediction predicted;
    bool fits;
    char why[160]; /* why it lost: "needs 3.1 GiB more", "12 % slower"; empty for the chosen one */
};

struct mics_plan {
    struct mics_topology *topology;
    struct mics_model *model;
    struct mics_plan_choice choice;
    uint64_t memory_limit; /* bytes per rank */
    uint64_t global_batch; /* sequences per step: n * micro_batch * micro_steps */
    struct mics_memory memory;
    struct mics_prediction predicted;
    uint32_t alternative_count;
    struct mics_alternative *alternatives;
    json_t *doc; /* where it came from, or NULL */
};

/* Owns what it points to. NULL is fine. */
void mics_plan_free(struct mics_plan *plan);

/* Check everything (memory is computed again and must be what the document says). */
enum mics_status mics_plan_from_doc(json_t *doc, struct mics_plan **out, struct mics_err *err);
enum mics_status mics_plan_to_doc(const struct mics_plan *plan, json_t **out, struct mics_err *err);

/* Bytes of every region: a pure function. */
enum mics_status mics_memory_compute(const struct mics_model *model,
                                     const struct mics_plan_choice *choice, struct mics_memory *out,
                                     struct mics_err *err);

/* The slots and their sizes, shared by memory, schedule and engine: see slots.h. The search: search.h. */

#endif
