/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h - trains one model on the same samples under different strategies; ranks are threads.
 *
 * Sample g of a step's global batch is a pure function of (step, g). Rank r of n takes the samples
 * (micro_step * n + r) * B + b, so that every cut of the same global batch sees the same samples.
 * Some targets are masked, so ranks have different numbers of targets.
 */
#ifndef MICS_TESTS_PARITY_HARNESS_H
#define MICS_TESTS_PARITY_HARNESS_H

#include "device/plugin.h"
#include "engine/engine.h"

struct parity_case {
    const struct mics_model *model;
    struct mics_plan_choice choice;
    const struct mics_schedule *schedule; /* NULL: built from the choice */
    uint32_t steps;
    uint64_t first_sample; /* of each step's global batch */
    /* Steps after which carried gradients are used up, and replicas averaged; 0: never. */
    uint32_t carried_every;
    float lr, clip;
    uint32_t random_delay_us; /* before each operation, up to this; 0: none */
    uint32_t slow_op;         /* this operation is delayed by slow_us on every rank; MICS_NONE */
    uint32_t slow_us;
    const struct mics_plugin *plugin; /* each rank has its own GPU; NULL: the host */
    /* Called with each launch of rank 0, on its thread; NULL: not needed. */
    void (*watch)(void *context, struct mics_stream *stream, enum mics_kernel kernel,
                  const void *args);
    void *watch_context;
    /* A deliberate bug: the host memory of a batch is overwritten when the next one is filled. */
    bool reuses_batch;
    bool all_counted;           /* no target is masked */
    bool documents;             /* of three tokens in each sequence, and padding */
    bool ignores_documents;     /* a deliberate bug: attention crosses them */
    const double *op_durations; /* as in struct mics_engine_options; NULL: compute */
};

/* An overflow on rank 0, where this is the context of a case's `watch`, parity_inject(): before one
 * of the losses, counted from 0, a logit of a counted target becomes infinite; or, with
 * `in_experts`, before one of the gradients of experts a gradient of their rows. In fp16. */
struct parity_injection {
    uint32_t at;
    bool in_experts;
    uint32_t seen; /* so far */
    struct mics_args_cross_entropy loss;
    uint16_t *of_experts;
};
/* In the first loss of a step of rank 0. */
struct parity_injection parity_injection_in(const struct parity_case *c, uint32_t step);
void parity_inject(void *injection, struct mics_stream *stream, enum mics_kernel kernel,
                   const void *args);

enum { PARITY_INIT_SEED = 5 };
struct mics_optimizer_settings parity_optimizer(const struct parity_case *c);

/* Sample `g` of the global batch of a step. */
void parity_sample(const struct parity_case *c, uint32_t step, uint64_t g, int32_t *tokens,
                   int32_t *targets);

/* The parameters after a run, and what the ranks reported. */
struct parity_result {
    uint32_t n, unit_count;
    float **params; /* [unit_count][elements of the unit], put together from the optimizer shards */
    float ***shards;                              /* [n][unit_count] optimizer shards */
    double loss, grad_norm, eval_loss, eval_hits; /* of the last step; means of an evaluation */
    /* [n], of the training steps */
    struct mics_comm_counts (*counts)[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t arena_bytes, high_water;
    bool replicas_agree; /* bit for bit, on all ranks with the same shard */
};

/* Run the case. Returns the status, and *err the text, of the first rank that failed. */
enum mics_status parity_run(const struct parity_case *c, struct parity_result **out,
                            struct mics_err *err);
void parity_result_free(struct parity_result *result);

/* Largest |a - b| over all parameters; 0 only if all bits are equal; infinity if any is NaN. */
double parity_distance(const struct parity_case *c, const struct parity_result *a,
                       const struct parity_result *b);

/* The same global batch on one rank, unsharded. */
struct parity_case parity_reference(const struct parity_case *c);

#endif
