/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h - a mixture of experts after its router, for tests of the host's operations. */
#ifndef MICS_TESTS_MIXTURE_H
#define MICS_TESTS_MIXTURE_H

#include "experts.h"
#include "host/pool.h"
#include "host/vector.h"
#include "kernels.h"

#define BF16_HALF 0.00390625 /* the largest relative error of rounding to bf16 */

/* A case with what the router makes of it, by one thread. */
struct mixture {
    struct expert_case is;
    uint32_t N; /* assignments */
    float *logits, *weights;
    int32_t *experts;
    uint32_t *offsets, *order, *position;
};

static inline void *array_of_u32(size_t count)
{
    void *out = malloc((count + 1) * sizeof(uint32_t));

    if (!out)
        abort();
    return out;
}

static inline struct mixture mixture_of(const struct expert_case *c)
{
    const uint32_t N = c->rows * c->k;
    struct mixture m = {.is = *c,
                        .N = N,
                        .logits = random_floats((size_t)c->rows * c->E, 11),
                        .weights = random_floats(N, 1),
                        .experts = array_of_u32(N),
                        .offsets = array_of_u32(c->E + 1),
                        .order = array_of_u32(N),
                        .position = array_of_u32(N)};

    expert_case_logits(c, m.logits);
    mics_host_route(pools[0], &(struct mics_args_route){m.experts, m.weights, m.logits, c->rows,
                                                        c->E, c->k, c->renormalise});
    mics_host_sort_experts(pools[0],
                           &(struct mics_args_sort_experts){m.offsets, m.order, m.position,
                                                            m.experts, c->rows, c->E, c->k, 0});
    return m;
}

static inline void free_mixture(struct mixture *m)
{
    void *all[] = {m->logits, m->weights, m->experts, m->offsets, m->order, m->position};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* The slot of row r that has expert e; k: none. */
static inline uint32_t slot_of(const struct mixture *m, uint32_t r, uint32_t e)
{
    uint32_t j = 0;

    while (j < m->is.k && m->experts[r * m->is.k + j] != (int32_t)e)
        j++;
    return j;
}

#endif
