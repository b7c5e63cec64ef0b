/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpe.c - merges of pairs, and the ids of a piece: of all pairs of neighbours the one of the lowest
 * rank, of equal ones the leftmost, becomes one symbol, until no pair is a merge.
 */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#define NO_RANK UINT32_MAX

/* Up to this many symbols the lowest rank is searched for, above there is a heap. */
#define SCAN_MAX 48

/* The slot of a pair, or the empty one where it belongs. */
static inline struct mics_merge *find_slot(const struct mics_bpe *bpe, uint32_t left,
                                           uint32_t right)
{
    const uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    uint32_t slot = (uint32_t)(hash >> 32 ^ hash >> 50) & (bpe->merge_slots - 1);

    for (;; slot = (slot + 1) & (bpe->merge_slots - 1)) {
        struct mics_merge *merge = &bpe->merges[slot];

        if (merge->left == MICS_NO_TOKEN || (merge->left == left && merge->right == right))
            return merge;
    }
}

/* Have at least `slots` slots, a power of 2. */
static enum mics_status resize(struct mics_bpe *bpe, uint32_t slots)
{
    struct mics_bpe grown = {.merge_slots = slots};

    grown.merges = malloc(slots * sizeof *grown.merges);
    if (grown.merges == NULL)
        return MICS_ERR_NOMEM;
    memset(grown.merges, 0xff, slots * sizeof *grown.merges);
    for (uint32_t i = 0; i < bpe->merge_slots; i++)
        if (bpe->merges[i].left != MICS_NO_TOKEN)
            *find_slot(&grown, bpe->merges[i].left, bpe->merges[i].right) = bpe->merges[i];
    free(bpe->merges);
    bpe->merges = grown.merges;
    bpe->merge_slots = slots;
    return MICS_OK;
}

enum mics_status mics_bpe_reserve(struct mics_bpe *bpe, size_t count, struct mics_err *err)
{
    uint32_t slots = bpe->merge_slots == 0 ? 1024 : bpe->merge_slots;

    if (count > (1u << 28))
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %u merges", 1u << 28);
    while (count >= (size_t)slots / 3 * 2)
        slots *= 2;
    if (slots > bpe->merge_slots && resize(bpe, slots) != MICS_OK)
        return mics_err_nomem(err);
    return MICS_OK;
}

enum mics_status mics_bpe_add_merge(struct mics_bpe *bpe, uint32_t left, uint32_t right,
                                    uint32_t rank, uint32_t id, struct mics_err *err)
{
    const enum mics_status status = mics_bpe_reserve(bpe, bpe->merge_count + 1, err);
    struct mics_merge *merge;

    if (status != MICS_OK)
        return status;
    merge = find_slot(bpe, left, right);
    bpe->merge_count += merge->left == MICS_NO_TOKEN;
    *merge = (struct mics_merge){.left = left, .right = right, .rank = rank, .id = id};
    return MICS_OK;
}

const struct mics_merge *mics_bpe_find_merge(const struct mics_bpe *bpe, uint32_t left,
                                             uint32_t right)
{
    const struct mics_merge *merge;

    if (bpe->merge_slots == 0)
        return NULL;
    merge = find_slot(bpe, left, right);
    return merge->left == MICS_NO_TOKEN ? NULL : merge;
}

/* The symbols ids[] of a piece, at most `length`. Returns how many. */
static uint32_t first_symbols(const struct mics_model *model, const struct mics_vocab *vocab,
                              const unsigned char *piece, uint32_t length, uint32_t *ids)
{
    uint32_t count = 0, character;
    bool unknown = false; /* the last symbol is */

    for (uint32_t at = 0; at < length;) {
        const unsigned size = model->characters ? mics_utf8_next(piece + at, &character) : 1;
        const uint32_t id = model->characters ? mics_vocab_find(vocab, piece + at, size)
                                              : model->byte_ids[piece[at]];

        if (id != MICS_NO_TOKEN) {
            ids[count++] = id;
            unknown = false;
        } else {
            const uint32_t bytes = model->byte_fallback
                                       ? mics_model_fall_back(model, piece + at, size, ids + count)
                                       : 0;

            if (bytes == 0 && model->unknown != MICS_NO_TOKEN && !(unknown && model->fuse_unknown))
                ids[count++] = model->unknown;
            unknown = bytes == 0 && (unknown || model->unknown != MICS_NO_TOKEN);
            count += bytes;
        }
        at += size;
    }
    return count;
}

static inline uint32_t rank_of(const struct mics_bpe *bpe, uint32_t left, uint32_t right)
{
    const struct mics_merge *merge = find_slot(bpe, left, right);

    return merge->left == MICS_NO_TOKEN ? NO_RANK : merge->rank;
}

/* Merge in place, by searching. Returns how many symbols are left. */
static uint32_t merge_few(const struct mics_bpe *bpe, uint32_t *ids, uint32_t count)
{
    uint32_t ranks[SCAN_MAX]; /* of the pair that begins there */

    for (uint32_t i = 0; i + 1 < count; i++)
        ranks[i] = rank_of(bpe, ids[i], ids[i + 1]);
    while (count > 1) {
        uint32_t best = 0;

        for (uint32_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == NO_RANK)
            break;
        ids[best] = find_slot(bpe, ids[best], ids[best + 1])->id;
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof *ids);
        if (best + 1 < count) {
            memmove(ranks + best, ranks + best + 1, (count - best - 1) * sizeof *ranks);
            ranks[best] = rank_of(bpe, ids[best], ids[best + 1]);
        }
        if (best > 0)
            ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
    }
    return count;
}

/* A symbol of a list; `id` is MICS_NO_TOKEN when its left neighbour took it in. */
struct symbol {
    uint32_t id, left, right;
};

/* A merge that may still be possible: it is if the symbols at `at` and right of it are these. */
struct candidate {
    uint32_t rank, at, left, right;
};

struct heap {
    struct candidate *items;
    uint32_t count;
};

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct heap *heap, struct candidate item)
{
    uint32_t i = heap->count++;

    for (; i > 0 && before(&item, &heap->items[(i - 1) / 2]); i = (i - 1) / 2)
        heap->items[i] = heap->items[(i - 1) / 2];
    heap->items[i] = item;
}

static struct candidate heap_pop(struct heap *heap)
{
    const struct candidate top = heap->items[0], last = heap->items[--heap->count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!before(&heap->items[child], &last))
            break;
        heap->items[i] = heap->items[child];
        i = child;
    }
    heap->items[i] = last;
    return top;
}

/* Push the pair of symbol `at` and its right neighbour, if it is a merge. */
static void push_pair(const struct mics_bpe *bpe, const struct symbol *symbols, uint32_t at,
                      struct heap *heap)
{
    const uint32_t right = symbols[at].right;

    if (right != MICS_NO_TOKEN) {
        const uint32_t rank = rank_of(bpe, symbols[at].id, symbols[right].id);

        if (rank != NO_RANK)
            heap_push(heap, (struct candidate){.rank = rank,
                                               .at = at,
                                               .left = symbols[at].id,
                                               .right = symbols[right].id});
    }
}

/* Merge a list of symbols. The heap has room for 3 candidates per symbol: one at first, and two
 * after each merge. */
static void merge_list(const struct mics_bpe *bpe, struct symbol *symbols, uint32_t count,
                       struct heap *heap)
{
    for (uint32_t i = 0; i + 1 < count; i++)
        push_pair(bpe, symbols, i, heap);
    while (heap->count > 0) {
        const struct candidate top = heap_pop(heap);
        struct symbol *left = &symbols[top.at], *right;

        if (left->id != top.left || left->right == MICS_NO_TOKEN ||
            symbols[left->right].id != top.right)
            continue;
        right = &symbols[left->right];
        left->id = find_slot(bpe, top.left, top.right)->id;
        left->right = right->right;
        right->id = MICS_NO_TOKEN;
        if (left->right != MICS_NO_TOKEN)
            symbols[left->right].left = top.at;
        push_pair(bpe, symbols, top.at, heap);
        if (left->left != MICS_NO_TOKEN)
            push_pair(bpe, symbols, left->left, heap);
    }
}

/* Merge in place, by a heap. Returns how many symbols are left; 0: out of memory. */
static uint32_t merge_many(const struct mics_bpe *bpe, struct mics_model_memory *memory,
                           uint32_t *ids, uint32_t count)
{
    struct symbol *symbols;
    struct heap heap = {0};
    uint32_t left = 0;

    if (mics_text_reserve(&memory->symbols, count * sizeof *symbols) != MICS_OK ||
        mics_text_reserve(&memory->heap, 3 * (size_t)count * sizeof *heap.items) != MICS_OK)
        return 0;
    symbols = (void *)memory->symbols.bytes;
    heap.items = (void *)memory->heap.bytes;
    for (uint32_t i = 0; i < count; i++)
        symbols[i] = (struct symbol){.id = ids[i],
                                     .left = i == 0 ? MICS_NO_TOKEN : i - 1,
                                     .right = i + 1 == count ? MICS_NO_TOKEN : i + 1};
    merge_list(bpe, symbols, count, &heap);
    for (uint32_t i = 0; i != MICS_NO_TOKEN; i = symbols[i].right)
        ids[left++] = symbols[i].id;
    return left;
}

enum mics_status mics_bpe_encode(const struct mics_model *model, const struct mics_vocab *vocab,
                                 const unsigned char *piece, uint32_t length,
                                 struct mics_model_memory *memory, struct mics_ids *ids)
{
    const struct mics_bpe *bpe = &model->bpe;
    uint32_t *symbols = ids->ids + ids->count;
    uint32_t count;

    if (bpe->whole_first) {
        symbols[0] = mics_vocab_find(vocab, piece, length);
        if (symbols[0] != MICS_NO_TOKEN) {
            ids->count++;
            return MICS_OK;
        }
    }
    count = first_symbols(model, vocab, piece, length, symbols);
    if (count > 1 && bpe->merge_slots > 0) {
        count = count <= SCAN_MAX ? merge_few(bpe, symbols, count)
                                  : merge_many(bpe, memory, symbols, count);
        if (count == 0)
            return MICS_ERR_NOMEM;
    }
    ids->count += count;
    return MICS_OK;
}
