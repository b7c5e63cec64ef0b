/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "host/decode.h"
#include "host/kernels.h"
#include "model/transformer/transformer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64 /* tokens for which memory is allocated at first */

/* Keys and values of a sequence in a layer: [capacity, H_kv D] each. */
struct kv {
    float *keys, *values;
    uint32_t capacity;
};

struct mics_kv_cache {
    struct mics_kv_cache_options options;
    struct kv *kvs;                    /* [sequence, layer] */
    struct mics_kv_cache_rows *cached; /* [rows_max] what each row attends to */
    const uint32_t *sequences, *positions;
    uint32_t rows;
};

static struct kv *kv_of(const struct mics_kv_cache *cache, uint32_t sequence, uint32_t layer)
{
    return &cache->kvs[(size_t)sequence * cache->options.layers + layer];
}

enum mics_status mics_kv_cache_new(const struct mics_kv_cache_options *options, uint32_t rows_max,
                                   struct mics_kv_cache **out, struct mics_err *err)
{
    const size_t kvs = (size_t)options->sequences * options->layers;
    struct mics_kv_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return mics_err_nomem(err);
    cache->options = *options;
    cache->kvs = calloc(kvs, sizeof *cache->kvs);
    cache->cached = calloc(rows_max, sizeof *cache->cached);
    if (!cache->kvs || !cache->cached) {
        mics_kv_cache_free(cache);
        return mics_err_nomem(err);
    }
    *out = cache;
    return MICS_OK;
}

void mics_kv_cache_free(struct mics_kv_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t sequence = 0; cache->kvs && sequence < cache->options.sequences; sequence++)
        for (uint32_t layer = 0; layer < cache->options.layers; layer++) {
            free(kv_of(cache, sequence, layer)->keys);
            free(kv_of(cache, sequence, layer)->values);
        }
    free(cache->kvs);
    free(cache->cached);
    free(cache);
}

static enum mics_status grow(float **values, size_t count, struct mics_err *err)
{
    float *grown = realloc(*values, count * sizeof **values);

    if (!grown)
        return mics_err_nomem(err);
    *values = grown;
    return MICS_OK;
}

enum mics_status mics_kv_cache_reserve(struct mics_kv_cache *cache, uint32_t sequence,
                                       uint32_t length, struct mics_err *err)
{
    const size_t width = (size_t)cache->options.H_kv * cache->options.D;

    for (uint32_t layer = 0; layer < cache->options.layers; layer++) {
        struct kv *kv = kv_of(cache, sequence, layer);
        uint64_t capacity = mics_max_u64(kv->capacity, FIRST_CAPACITY);

        if (length <= kv->capacity)
            continue;
        while (capacity < length)
            capacity *= 2;
        capacity = mics_min_u64(capacity, cache->options.limit);
        enum mics_status status = grow(&kv->keys, capacity * width, err);
        if (status == MICS_OK)
            status = grow(&kv->values, capacity * width, err);
        if (status != MICS_OK)
            return status;
        kv->capacity = (uint32_t)capacity;
    }
    return MICS_OK;
}

void mics_kv_cache_set_rows(struct mics_kv_cache *cache, const uint32_t *sequences,
                            const uint32_t *positions, uint32_t rows)
{
    cache->sequences = sequences;
    cache->positions = positions;
    cache->rows = rows;
}

void mics_kv_cache_rotate(const struct mics_kv_cache *cache, const struct mics_args_rope *args)
{
    mics_host_rope_at(cache->options.pool, args, cache->positions);
}

void mics_kv_cache_attend(struct mics_kv_cache *cache, uint32_t layer, uint32_t window,
                          const float *qkv, float *out)
{
    const struct mics_kv_cache_options *o = &cache->options;
    const size_t width = (size_t)o->H_kv * o->D, queries = (size_t)o->H * o->D;

    for (uint32_t row = 0; row < cache->rows; row++) {
        const struct kv *kv = kv_of(cache, cache->sequences[row], layer);
        const float *key = qkv + row * (queries + 2 * width) + queries;
        const uint32_t length = cache->positions[row] + 1;
        const uint32_t first = window > 0 && length > window ? length - window : 0;

        memcpy(kv->keys + (length - 1) * width, key, width * sizeof *key);
        memcpy(kv->values + (length - 1) * width, key + width, width * sizeof *key);
        cache->cached[row] = (struct mics_kv_cache_rows){
            kv->keys + first * width, kv->values + first * width, length - first};
    }
    mics_host_kv_cache_attention(o->pool, &(struct mics_kv_cache_attention){
                                              .out = out,
                                              .qkv = qkv,
                                              .cached = cache->cached,
                                              .rows = cache->rows,
                                              .H = o->H,
                                              .H_kv = o->H_kv,
                                              .D = o->D,
                                          });
}
