/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.c - only as many tokens are sorted as the draw looks at: they come one by one from a
 * heap, which takes linear time to build.
 */
#include "sample/sampler.h"

#include "base/philox.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Philox streams, distinct from those of tensors and data. */
#define STREAM_SAMPLE ((uint64_t)0x73616d706c65 << 16)

struct mics_sampler {
    struct mics_sampler_options options;
    uint32_t vocab_size;
    uint32_t *heap;  /* [vocab_size] tokens, the most likely first */
    double *weights; /* [vocab_size] of those taken from it, relative to the first */
};

enum mics_status mics_sampler_new(const struct mics_sampler_options *options, uint32_t vocab_size,
                                  struct mics_sampler **out, struct mics_err *err)
{
    struct mics_sampler *sampler = calloc(1, sizeof *sampler);

    if (!sampler)
        return mics_err_nomem(err);
    sampler->options = *options;
    sampler->vocab_size = vocab_size;
    sampler->heap = malloc(vocab_size * sizeof *sampler->heap);
    sampler->weights = malloc(vocab_size * sizeof *sampler->weights);
    if (!sampler->heap || !sampler->weights) {
        mics_sampler_free(sampler);
        return mics_err_nomem(err);
    }
    *out = sampler;
    return MICS_OK;
}

void mics_sampler_free(struct mics_sampler *sampler)
{
    if (!sampler)
        return;
    free(sampler->heap);
    free(sampler->weights);
    free(sampler);
}

/* Does token a come before b? */
static bool precedes(const float *logits, uint32_t a, uint32_t b)
{
    return logits[a] > logits[b] || (a < b && logits[a] == logits[b]);
}

static void sift_down(uint32_t *heap, uint32_t count, uint32_t at, const float *logits)
{
    const uint32_t token = heap[at];

    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && precedes(logits, heap[child + 1], heap[child]))
            child++;
        if (!precedes(logits, heap[child], token))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = token;
}

/* All tokens whose logits are numbers. */
static uint32_t make_heap(struct mics_sampler *sampler, const float *logits)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < sampler->vocab_size; i++)
        if (!isnan(logits[i]))
            sampler->heap[count++] = i;
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(sampler->heap, count, i, logits);
    return count;
}

static uint32_t most_likely(const float *logits, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best] || isnan(logits[best]))
            best = i;
    return best;
}

static double weight_of(const struct mics_sampler *sampler, const float *logits, uint32_t token,
                        uint32_t best)
{
    if (isnan(logits[token]))
        return 0;
    if (logits[token] == logits[best]) /* also where both are infinite */
        return 1;
    return exp(((double)logits[token] - logits[best]) / sampler->options.temperature);
}

/* From all tokens: no order is needed. */
static uint32_t draw_from_all(const struct mics_sampler *sampler, const float *logits,
                              double uniform)
{
    const uint32_t best = most_likely(logits, sampler->vocab_size);
    double sum = 0, running = 0;

    for (uint32_t i = 0; i < sampler->vocab_size; i++)
        sum += weight_of(sampler, logits, i, best);
    for (uint32_t i = 0; i < sampler->vocab_size; i++) {
        running += weight_of(sampler, logits, i, best);
        if (running > uniform * sum)
            return i;
    }
    return best;
}

/* Move the most likely tokens, by their order, to the end of the heap's array: as many as top-k and
 * top-p keep. Sets their weights and *sum of them. `total`: the sum that top-p is a part of. */
static uint32_t take_likely(struct mics_sampler *sampler, const float *logits, uint32_t count,
                            uint32_t most, double total, double *sum)
{
    const uint32_t best = sampler->heap[0];
    uint32_t taken = 0;

    *sum = 0;
    while (taken < most && (taken == 0 || *sum < sampler->options.top_p * total)) {
        const uint32_t token = sampler->heap[0], last = count - ++taken;

        sampler->heap[0] = sampler->heap[last];
        sift_down(sampler->heap, last, 0, logits);
        sampler->heap[last] = token;
        sampler->weights[last] = weight_of(sampler, logits, token, best);
        *sum += sampler->weights[last];
    }
    return taken;
}

static uint32_t draw_from_likely(struct mics_sampler *sampler, const float *logits, double uniform)
{
    const struct mics_sampler_options *options = &sampler->options;
    const uint32_t count = make_heap(sampler, logits);
    const uint32_t most = options->top_k && options->top_k < count ? options->top_k : count;
    double total = INFINITY, sum = 0, running = 0;
    uint32_t taken;

    if (count == 0)
        return 0;
    if (most == count) { /* top-p of all */
        total = 0;
        for (uint32_t i = 0; i < count; i++)
            total += weight_of(sampler, logits, sampler->heap[i], sampler->heap[0]);
    }
    taken = take_likely(sampler, logits, count, most, total, &sum);
    if (total == INFINITY) { /* top-p of the k */
        double kept = 0;
        uint32_t k = 0;

        while (k < taken && (k == 0 || kept < options->top_p * sum))
            kept += sampler->weights[count - ++k];
        taken = k;
        sum = kept;
    }
    for (uint32_t i = 1; i <= taken; i++) {
        running += sampler->weights[count - i];
        if (running > uniform * sum)
            return sampler->heap[count - i];
    }
    return sampler->heap[count - taken];
}

uint32_t mics_sampler_draw(struct mics_sampler *sampler, const float *logits, uint64_t text,
                           uint64_t index)
{
    const struct mics_sampler_options *options = &sampler->options;
    const double uniform = mics_philox_uniform(options->seed, STREAM_SAMPLE + text, index);

    if (options->temperature <= 0)
        return most_likely(logits, sampler->vocab_size);
    if (options->top_k || options->top_p < 1)
        return draw_from_likely(sampler, logits, uniform);
    return draw_from_all(sampler, logits, uniform);
}
