/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h - the cases of mixtures of experts, shared by the tests of the host's and of the GPU's
 * operations.
 */
#ifndef MICS_TESTS_EXPERTS_H
#define MICS_TESTS_EXPERTS_H

#include "ops.h"

#include <math.h>

/* What the logits of a router are. */
enum expert_logits {
    LOGITS_ANY,
    LOGITS_TIED, /* whole numbers: few different ones */
    LOGITS_ONE,  /* every token's first choice is the last expert but one */
    LOGITS_FEW,  /* the first choices are among the odd experts below 8 */
    LOGITS_NAN,  /* some rows have a NaN, one has nothing else */
};

/* C of tokens, F inside experts; both below a vector, odd, and of whole tiles. */
struct expert_case {
    const char *name;
    uint32_t rows, E, k, C, F;
    enum expert_logits logits;
    bool renormalise;
};

static const struct expert_case expert_cases[] = {
    {"one", 1, 1, 1, 8, 8, LOGITS_ANY, false},
    {"ties", 37, 8, 3, 40, 24, LOGITS_TIED, false},
    {"k1", 65, 4, 1, 64, 32, LOGITS_ANY, false},
    {"every", 33, 4, 4, 72, 40, LOGITS_ANY, true},
    {"skewed", 70, 8, 1, 64, 64, LOGITS_ONE, false},
    {"without_rows", 50, 16, 2, 33, 17, LOGITS_FEW, true},
    {"nan", 40, 8, 2, 64, 32, LOGITS_NAN, false},
    {"many", 130, 64, 8, 136, 96, LOGITS_ANY, true},
    {"uneven", 150, 3, 2, 96, 136, LOGITS_ANY, false},
};

#define EXPERT_CASES (sizeof(expert_cases) / sizeof(expert_cases[0]))

/* logits[rows, E]; they are made of uniform random numbers in [-1, 1). */
static inline void expert_case_logits(const struct expert_case *c, float *logits)
{
    for (uint32_t r = 0; r < c->rows; r++)
        for (uint32_t e = 0; e < c->E; e++) {
            float *const x = &logits[r * c->E + e];

            *x *= 3;
            if (c->logits == LOGITS_TIED)
                *x = truncf(*x);
            if (c->logits == LOGITS_ONE && e + 2 == c->E)
                *x += 8;
            if (c->logits == LOGITS_FEW && e < 8 && e % 2 == 1)
                *x += 8;
            if (c->logits == LOGITS_NAN && (r == 7 || (r % 5 == 2 && e % 3 == 1)))
                *x = NAN;
        }
}

/* Rows of a group whose loss of balance is separate: the last group is smaller. */
static inline uint32_t expert_case_group(const struct expert_case *c)
{
    return c->rows / 3 + 1;
}

/* Elements from one expert's matrix to the next: whole lines, and more than the matrix has. */
static inline uint64_t expert_stride(uint64_t elements)
{
    return (elements / 64 + 2) * 64;
}

#endif
