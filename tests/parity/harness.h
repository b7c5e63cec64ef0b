/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h - train one model on the same samples under different cuts, with ranks that are threads.
 *
 * Sample g of a step's global batch is a pure function of (step, g). Rank r of n takes the samples
 * (micro_step * n + r) * B + b, so that every cut of the same global batch sees the same samples. Some
 * targets are masked, so that ranks count different numbers of targets.
 */
#ifndef MICS_TESTS_PARITY_HARNESS_H
#define MICS_TESTS_PARITY_HARNESS_H

#include "device/plugin.h"
#include "engine/engine.h"

struct parity_case {
    const struct mics_model *model;
    struct mics_plan_choice choice;
    const struct mics_schedule *schedule; /* NULL: made from the choice */
    uint32_t steps;
    float lr, clip;
    uint32_t random_delay_us; /* before each operation, up to this; 0: none */
    uint32_t slow_op;         /* this operation is delayed by slow_us on every rank; MICS_NONE */
    uint32_t slow_us;
    const struct mics_plugin *plugin; /* each rank has a GPU of its own of it; NULL: the host */
    bool
        reuses_batch; /* a mistake: a step's batch on the host is overwritten when the next is filled */
};

/* What a run leaves: all parameters and what the ranks told. */
struct parity_result {
    uint32_t n, unit_count;
    float **params; /* [unit_count][elements of the unit], put together from the optimizer shards */
    float ***shards;                   /* [n][unit_count] optimizer shards */
    double loss, grad_norm, eval_loss; /* of the last step; of an evaluation after it */
    struct mics_comm_counts (*counts)[MICS_COMM_KIND_COUNT]; /* [n], of the training steps */
    uint64_t arena_bytes, high_water;
    bool replicas_agree; /* all ranks that hold the same shard hold the same bits */
};

/* Run the case; MICS_OK, or the first failing rank's status and text. */
enum mics_status parity_run(const struct parity_case *c, struct parity_result **out,
                            struct mics_err *err);
void parity_result_free(struct parity_result *result);

/* Largest |a - b| over all parameters; 0 only if all bits are equal; infinity if a NaN is there. */
double parity_distance(const struct parity_case *c, const struct parity_result *a,
                       const struct parity_result *b);

/* The same global batch on one rank without any cut. */
struct parity_case parity_reference(const struct parity_case *c);

#endif
