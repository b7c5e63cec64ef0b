/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - other trainers that a plan can be made for: what they can express, and how they write
 * it.
 *
 * fsdp2 is a loop of one's own with torch.distributed.fsdp.fully_shard of PyTorch 2.15.
 *
 * Sources: torchtitan/config/configs.py of torchtitan 0.3; transformers 5.24, DistributedConfig and
 * Trainer._defer_fsdp_gradient_reduction(); accelerate 1.15, ParallelismConfig and
 * Accelerator.no_sync(); the arguments of Megatron-LM; deepspeed/runtime/config.py of DeepSpeed
 * 0.19.
 */
#ifndef MICS_PLAN_TARGET_H
#define MICS_PLAN_TARGET_H

#include "plan/plan.h"

#include <stdio.h>

/* What a trainer does with gradients before the last micro-step. */
enum mics_target_accumulation {
    MICS_ACCUMULATES_SHARDS, /* reduces them in the partition group, as mics does */
    MICS_ACCUMULATES_WHOLE   /* adds them up in each rank, without communication */
};

/* Shapes of one kind, and how gradients of micro-steps are added up with them. */
struct mics_target_way {
    bool (*allows)(const struct mics_shape *shape); /* NULL: all */
    enum mics_target_accumulation accumulation;
    bool secondary_shards; /* strategies "hpz" */
};

enum { MICS_TARGET_WAYS = 2 };

struct mics_target {
    const char *name; /* "torchtitan" */
    enum mics_trainer trainer;
    const char *launcher; /* a program that starts it, where `write` cannot say so; or NULL */
    const char *defers;   /* what has to be known about the second hop in micro-steps, or NULL */
    struct mics_target_way ways[MICS_TARGET_WAYS];
    uint32_t way_count;
    bool recomputes[MICS_RECOMPUTE_LEVELS];
    /* In communication, where parameters are bf16; F16 for BF16 in fp16. */
    enum mics_dtype grad_dtype;
    const char *no_optimizer[MICS_OPT_COUNT]; /* why it does not have this one, or NULL */
    bool writes_optimizer;   /* `write` says which one it is; else the training program makes it */
    const char *no_offload;  /* why it does not offload the optimizer's states, or NULL */
    const char *offloads;    /* what has to be known about it where it does, or NULL */
    const char *no_f16;      /* why it does not train in fp16, or NULL */
    const char *f16_differs; /* what has to be known about it in fp16, or NULL */
    /* Its own syntax, and the command that starts it. */
    void (*write)(FILE *out, const struct mics_plan *plan);
};

/* NULL: there is none. */
const struct mics_target *mics_target_find(const char *name);

#define MICS_TARGET_NAMES "fsdp2|torchtitan|transformers|accelerate|megatron|deepspeed"

#endif
