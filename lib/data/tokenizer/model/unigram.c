/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unigram.c - ids of a piece by the best sum of scores (Kudo, "Subword Regularization", 2018), with
 * the order of additions and comparisons, and so the ties, of the tokenizers library.
 */
#include "data/tokenizer/tokenizer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mics_status mics_unigram_set_score(struct mics_unigram *unigram, uint32_t id, double score,
                                        struct mics_err *err)
{
    if (!isfinite(score))
        return mics_err_set(err, MICS_ERR_FORMAT, "token %lu: the score is not a number",
                            (unsigned long)id);
    if (id >= unigram->capacity) {
        uint32_t capacity = unigram->capacity ? unigram->capacity : 4096;

        while (id >= capacity)
            capacity *= 2;
        double *grown = realloc(unigram->scores, capacity * sizeof *grown);
        if (!grown)
            return mics_err_nomem(err);
        memset(grown + unigram->capacity, 0, (capacity - unigram->capacity) * sizeof *grown);
        unigram->scores = grown;
        unigram->capacity = capacity;
    }
    unigram->scores[id] = score;
    if (id >= unigram->count)
        unigram->count = id + 1;
    return MICS_OK;
}

/* The best way to the end of a token, or of an unknown character. */
struct best {
    double score;
    uint32_t begin; /* where it begins; UINT32_MAX: none ends here */
    uint32_t id;    /* MICS_NO_TOKEN: an unknown character where no token is for that */
};

static inline void take_better(struct best *best, double score, uint32_t begin, uint32_t id)
{
    if (best->begin == UINT32_MAX || score > best->score)
        *best = (struct best){.score = score, .begin = begin, .id = id};
}

/* best[length + 1] of all places in a piece. */
static void find_best(const struct mics_model *model, const unsigned char *piece, uint32_t length,
                      struct best *best)
{
    const struct mics_unigram *unigram = &model->unigram;
    const struct mics_trie *trie = &unigram->trie;
    uint32_t character;

    for (uint32_t at = 0; at <= length; at++)
        best[at] = (struct best){.begin = UINT32_MAX};
    for (uint32_t at = 0, size; at < length; at += size) {
        const double score = best[at].score;
        bool single = false; /* a token is this character */
        uint32_t node = 0;

        size = mics_utf8_next(piece + at, &character);
        for (uint32_t end = at; end < length;) {
            node = mics_trie_next(trie, node, piece[end++]);
            if (node == 0)
                break;

            const uint32_t id = trie->nodes[node].id;

            if (id == MICS_NO_TOKEN)
                continue;
            take_better(&best[end], unigram->scores[id] + score, at, id);
            single = single || end - at == size;
        }
        if (!single)
            take_better(&best[at + size], unigram->unknown_score + score, at, model->unknown);
    }
}

/* Append, in reverse, the ids of text[size], which is a run of unknown characters. */
static void append_unknown(const struct mics_model *model, const struct mics_vocab *vocab,
                           const unsigned char *text, uint32_t size, uint32_t *ids, uint32_t *count)
{
    const uint32_t whole = mics_vocab_find(vocab, text, size);
    const bool special =
        whole != MICS_NO_TOKEN && (vocab->tokens[whole].flags & MICS_TOKEN_SPECIAL) != 0;
    uint32_t bytes;

    if (whole != MICS_NO_TOKEN && !special) {
        ids[(*count)++] = whole;
        return;
    }
    bytes = model->byte_fallback ? mics_model_fall_back(model, text, size, ids + *count) : 0;
    if (bytes == 0 && model->unknown != MICS_NO_TOKEN)
        ids[(*count)++] = model->unknown;
    for (uint32_t i = 0; i < bytes / 2; i++) {
        const uint32_t other = ids[*count + i];

        ids[*count + i] = ids[*count + bytes - 1 - i];
        ids[*count + bytes - 1 - i] = other;
    }
    *count += bytes;
}

enum mics_status mics_unigram_encode(const struct mics_model *model, const struct mics_vocab *vocab,
                                     const unsigned char *piece, uint32_t length,
                                     struct mics_model_memory *memory, struct mics_ids *ids)
{
    uint32_t *out = ids->ids + ids->count, count = 0, unknown_end = 0;
    struct best *best;

    if (mics_text_reserve(&memory->symbols, (length + (size_t)1) * sizeof *best) != MICS_OK)
        return MICS_ERR_NOMEM;
    best = (void *)memory->symbols.bytes;
    find_best(model, piece, length, best);
    for (uint32_t end = length; end > 0; end = best[end].begin) {
        const uint32_t begin = best[end].begin;
        const bool unknown = best[end].id == model->unknown;

        if (unknown && unknown_end == 0)
            unknown_end = end;
        if (unknown && begin > 0)
            continue;
        if (unknown_end > 0)
            append_unknown(model, vocab, piece + (unknown ? begin : end),
                           unknown_end - (unknown ? begin : end), out, &count);
        unknown_end = 0;
        if (!unknown)
            out[count++] = best[end].id;
    }
    for (uint32_t i = 0; i < count / 2; i++) {
        const uint32_t other = out[i];

        out[i] = out[count - 1 - i];
        out[count - 1 - i] = other;
    }
    ids->count += count;
    return MICS_OK;
}
