/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - a cache of the ids of pieces: words repeat, so that few of them are merged.
 *
 * Pieces of up to 15 bytes are their own key: two integers, of which the last byte is the length.
 * Longer ones, up to LONG_MAX bytes, are found by a hash and compared; beyond that nothing is kept.
 * A set has two entries; a new one replaces the older of them.
 */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SHORT_MAX      15
#define SHORT_IDS      3 /* in the entry; the others in `more` */
#define SHORT_SET_BITS 16
#define LONG_MAX       54
#define LONG_IDS       16
#define LONG_SET_BITS  14
#define BATCH          32

struct short_entry {
    uint64_t key[2];
    uint32_t ids[SHORT_IDS];
    uint32_t count; /* of ids; 0: empty */
};

struct long_entry {
    uint64_t hash;
    unsigned char length, count; /* count 0: empty */
    unsigned char bytes[LONG_MAX];
    uint32_t ids[LONG_IDS];
};

struct mics_piece_cache {
    const struct mics_model *model;
    const struct mics_vocab *vocab;
    struct short_entry (*shorts)[2];
    uint32_t (*more)[2][SHORT_MAX - SHORT_IDS]; /* ids of shorts from SHORT_IDS on */
    struct long_entry (*longs)[2];
    unsigned turn; /* which entry of a set is replaced next */
    struct mics_model_memory memory;
};

/* Keys of a batch, made first so that their sets are on the way when they are looked at. */
struct batch_key {
    uint64_t key[2];
    uint32_t set;
};

struct mics_piece_cache *mics_piece_cache_new(const struct mics_model *model,
                                              const struct mics_vocab *vocab)
{
    struct mics_piece_cache *cache = calloc(1, sizeof *cache);

    if (cache == NULL)
        return NULL;
    cache->model = model;
    cache->vocab = vocab;
    cache->shorts = aligned_alloc(64, sizeof *cache->shorts << SHORT_SET_BITS);
    cache->more = malloc(sizeof *cache->more << SHORT_SET_BITS);
    cache->longs = calloc((size_t)1 << LONG_SET_BITS, sizeof *cache->longs);
    if (cache->shorts == NULL || cache->more == NULL || cache->longs == NULL) {
        mics_piece_cache_free(cache);
        return NULL;
    }
    memset(cache->shorts, 0, sizeof *cache->shorts << SHORT_SET_BITS);
    return cache;
}

void mics_piece_cache_free(struct mics_piece_cache *cache)
{
    if (cache == NULL)
        return;
    free(cache->shorts);
    free(cache->more);
    free(cache->longs);
    mics_model_memory_fini(&cache->memory);
    free(cache);
}

/* The key of a piece of at most SHORT_MAX bytes, of which `readable` >= length can be read. */
static inline void make_key(const unsigned char *piece, uint32_t length, size_t readable,
                            struct batch_key *out)
{
    uint64_t low = 0, high = 0, hash;

    if (readable >= 16) {
        memcpy(&low, piece, 8);
        memcpy(&high, piece + 8, 8);
        low &= length >= 8 ? UINT64_MAX : ((uint64_t)1 << 8 * length) - 1;
        high &= length <= 8 ? 0 : ((uint64_t)1 << 8 * (length - 8)) - 1;
    } else {
        memcpy(&low, piece, length < 8 ? length : 8);
        if (length > 8)
            memcpy(&high, piece + 8, length - 8);
    }
    high |= (uint64_t)length << 56;
    hash = (low ^ high * 0xff51afd7ed558ccdu) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9u;
    out->key[0] = low;
    out->key[1] = high;
    out->set = (uint32_t)(hash >> (64 - SHORT_SET_BITS));
}

/* Merge a short piece, and keep it. */
static enum mics_status add_short(struct mics_piece_cache *cache, const unsigned char *piece,
                                  uint32_t length, const struct batch_key *key,
                                  struct mics_ids *ids)
{
    const size_t first = ids->count;
    const unsigned turn = cache->turn++ & 1;
    const enum mics_status status =
        mics_model_encode(cache->model, cache->vocab, piece, length, &cache->memory, ids);
    const uint32_t count = (uint32_t)(ids->count - first);
    struct short_entry *set = cache->shorts[key->set];
    const unsigned way = set[0].count == 0 ? 0 : set[1].count == 0 ? 1 : turn;

    if (status != MICS_OK || count == 0)
        return status;
    set[way].key[0] = key->key[0];
    set[way].key[1] = key->key[1];
    set[way].count = count;
    memcpy(set[way].ids, ids->ids + first,
           (count < SHORT_IDS ? count : SHORT_IDS) * sizeof *ids->ids);
    if (count > SHORT_IDS)
        memcpy(cache->more[key->set][way], ids->ids + first + SHORT_IDS,
               (count - SHORT_IDS) * sizeof *ids->ids);
    return MICS_OK;
}

static inline enum mics_status encode_short(struct mics_piece_cache *cache,
                                            const unsigned char *piece, uint32_t length,
                                            const struct batch_key *key, struct mics_ids *ids)
{
    const struct short_entry *set = cache->shorts[key->set];

    for (unsigned way = 0; way < 2; way++) {
        const struct short_entry *entry = &set[way];

        if (entry->key[0] != key->key[0] || entry->key[1] != key->key[1])
            continue;
        memcpy(ids->ids + ids->count, entry->ids, sizeof entry->ids);
        if (entry->count > SHORT_IDS)
            memcpy(ids->ids + ids->count + SHORT_IDS, cache->more[key->set][way],
                   (entry->count - SHORT_IDS) * sizeof *ids->ids);
        ids->count += entry->count;
        return MICS_OK;
    }
    return add_short(cache, piece, length, key, ids);
}

static enum mics_status encode_long(struct mics_piece_cache *cache, const unsigned char *piece,
                                    uint32_t length, struct mics_ids *ids)
{
    const uint64_t hash = XXH3_64bits(piece, length);
    struct long_entry *set = cache->longs[hash >> (64 - LONG_SET_BITS)], *entry;
    const size_t first = ids->count;
    enum mics_status status;

    for (unsigned way = 0; way < 2; way++) {
        entry = &set[way];
        if (entry->count > 0 && entry->hash == hash && entry->length == length &&
            memcmp(entry->bytes, piece, length) == 0) {
            memcpy(ids->ids + ids->count, entry->ids, entry->count * sizeof *ids->ids);
            ids->count += entry->count;
            return MICS_OK;
        }
    }
    status = mics_model_encode(cache->model, cache->vocab, piece, length, &cache->memory, ids);
    if (status != MICS_OK || ids->count == first || ids->count - first > LONG_IDS)
        return status;
    entry = &set[set[0].count == 0 ? 0 : set[1].count == 0 ? 1 : cache->turn++ & 1];
    entry->hash = hash;
    entry->length = (unsigned char)length;
    entry->count = (unsigned char)(ids->count - first);
    memcpy(entry->bytes, piece, length);
    memcpy(entry->ids, ids->ids + first, entry->count * sizeof *ids->ids);
    return MICS_OK;
}

enum mics_status mics_piece_cache_encode(struct mics_piece_cache *cache, const unsigned char *text,
                                         size_t size, const uint32_t *lengths, uint32_t count,
                                         struct mics_ids *ids)
{
    struct batch_key keys[BATCH];
    enum mics_status status = MICS_OK;
    size_t offset = 0;

    for (uint32_t first = 0; first < count && status == MICS_OK; first += BATCH) {
        const uint32_t end = count - first < BATCH ? count : first + BATCH;
        size_t at = offset;

        for (uint32_t i = first; i < end; at += lengths[i++])
            if (lengths[i] <= SHORT_MAX) {
                make_key(text + at, lengths[i], size - at, &keys[i - first]);
                __builtin_prefetch(cache->shorts[keys[i - first].set]);
            }
        for (uint32_t i = first; i < end && status == MICS_OK; offset += lengths[i++]) {
            const unsigned char *piece = text + offset;

            if (lengths[i] <= SHORT_MAX)
                status = encode_short(cache, piece, lengths[i], &keys[i - first], ids);
            else if (lengths[i] <= LONG_MAX)
                status = encode_long(cache, piece, lengths[i], ids);
            else
                status = mics_model_encode(cache->model, cache->vocab, piece, lengths[i],
                                           &cache->memory, ids);
        }
    }
    return status;
}
