/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - runs of a model with every cut of some ranks, each compared with one process. */
#ifndef MICS_TESTS_PARITY_WALK_H
#define MICS_TESTS_PARITY_WALK_H

#include "harness.h"

/* GPT-2: 3 steps at lr 0.1 on parameters of size 0.02 to 1. Different orders of summation differ
 * by a few units in the last place of a gradient; a wrong scale or a lost micro-step is 1e-3 or
 * more. */
#define GPT2_TOLERANCE 2e-6

/* The same with bf16 parameters or gradients: a gradient has one rounding error of 2^-8 for each
 * rank that it passed, and a parameter may be rounded to the neighbouring value. Observed: 1.6e-4
 * for parameters, 5e-5 for loss and norm. */
#define BF16_TOLERANCE 5e-4
#define BF16_ROUNDING  1e-4

struct walk {
    const struct mics_model *model;
    struct mics_plan_choice base; /* everything except the shape */
    double tolerance, rounding;   /* absolute, of parameters; relative, of loss and norm */
    float lr, clip;
    uint32_t random_delay_us;
    bool documents; /* as in struct parity_case */
    int runs;
    struct parity_result *reference;
    uint32_t reference_samples;
};

/* A walk of exact sums. */
struct walk walk_of(const struct mics_model *model, uint32_t micro_steps, uint32_t prefetch,
                    uint32_t segments);

/* The same with GPT2_TOLERANCE. */
struct walk walk_with_tolerance(const struct mics_model *model, uint32_t micro_steps,
                                uint32_t prefetch, uint32_t segments);

/* Run all cuts of n ranks; with sanitizers, with which it takes minutes, some of them. */
void walk_all(struct walk *walk, uint32_t n);

/* Run one case and compare it with the reference of the walk. */
void walk_check_case(struct walk *walk, const struct parity_case *c);

/* Is what was sent what the schedule counts? */
void walk_check_counts(const struct parity_case *c, const struct parity_result *result);

/* Pairs of shapes of the same ranks, for dense and for expert units. */
struct kinds_walk {
    struct walk walk;
    struct mics_shape dense[64]; /* visited so far */
    int count, pairs;
};

/* Run a part of the pairs of n ranks. */
void walk_pairs(struct kinds_walk *kinds, uint32_t n);

#endif
