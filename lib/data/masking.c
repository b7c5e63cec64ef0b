/* SPDX-License-Identifier: Apache-2.0 */
#include "data/masking.h"

#include "base/philox.h"
#include "base/units.h"
#include "model/model.h"
#include "ops.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Streams of random numbers, distinct from those of data.c: one for each position, and one behind
 * them for the number of tokens. */
#define STREAM_MASK    ((uint64_t)0x6d61736b << 32)
#define STREAM_VAL     ((uint64_t)0x6d61736c << 32)
#define POSITIONS_MAX  (1u << 24)
#define MASKED_PERCENT 80
#define RANDOM_PERCENT 10

uint32_t mics_tokenizer_mask(const struct mics_tokenizer *tokenizer)
{
    static const char *const names[] = {"[MASK]", "<mask>"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint32_t id = mics_tokenizer_id(tokenizer, names[i]);

        if (id != MICS_NO_TOKEN && mics_tokenizer_is_special(tokenizer, id))
            return id;
    }
    return MICS_NO_TOKEN;
}

static enum mics_status find_mask(const struct mics_masking_options *options, uint32_t *out,
                                  struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = options->tokenizer;

    *out = MICS_NO_TOKEN;
    if (options->mask_token && tokenizer)
        *out = mics_tokenizer_id(tokenizer, options->mask_token);
    if (options->mask_token && *out == MICS_NO_TOKEN) {
        const enum mics_status status = mics_parse_token_id(options->mask_token, out, err);

        if (status != MICS_OK)
            return status;
    }
    if (!options->mask_token && tokenizer)
        *out = mics_tokenizer_mask(tokenizer);
    if (*out == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the model predicts masked tokens, but %s: --mask-token=TEXT|ID says "
                            "which one masks",
                            tokenizer ? "the tokenizer has neither [MASK] nor <mask>"
                                      : "the data name no tokenizer");
    if (*out < options->vocab_size)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "the mask token %u is outside the model's vocabulary of %u", *out,
                        options->vocab_size);
}

/* Tokens that text has: of a tokenizer those that are not special. */
static bool is_ordinary(const struct mics_masking *masking, const struct mics_tokenizer *tokenizer,
                        uint32_t id)
{
    if (id == masking->mask)
        return false;
    if (!tokenizer)
        return true;
    return id < mics_tokenizer_text_size(tokenizer) && id != mics_tokenizer_end(tokenizer) &&
           !mics_tokenizer_is_special(tokenizer, id);
}

/* What each token of the vocabulary is. On failure the caller closes `masking`. */
static enum mics_status list_tokens(const struct mics_masking_options *options,
                                    struct mics_masking *masking, struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = options->tokenizer;

    masking->is_ordinary = calloc(options->vocab_size, sizeof *masking->is_ordinary);
    masking->ordinary = calloc(options->vocab_size, sizeof *masking->ordinary);
    if (options->whole_words)
        masking->begins_word = calloc(options->vocab_size, sizeof *masking->begins_word);
    if (!masking->is_ordinary || !masking->ordinary ||
        (options->whole_words && !masking->begins_word))
        return mics_err_nomem(err);
    for (uint32_t id = 0; id < options->vocab_size; id++)
        if (is_ordinary(masking, tokenizer, id)) {
            masking->is_ordinary[id] = 1;
            masking->ordinary[masking->ordinary_count++] = (int32_t)id;
        }
    for (uint32_t id = 0; options->whole_words && id < options->vocab_size; id++)
        masking->begins_word[id] = mics_tokenizer_begins_word(tokenizer, id);
    if (masking->ordinary_count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "all tokens of the vocabulary are special");
    return MICS_OK;
}

enum mics_status mics_masking_open(const struct mics_masking_options *options,
                                   struct mics_masking *out, struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = options->tokenizer;
    struct mics_masking masking = {.rate = options->rate,
                                   .seed = options->seed,
                                   .seq = options->seq,
                                   .begin = MICS_NO_TOKEN,
                                   .end = MICS_NO_TOKEN,
                                   .vocab_size = options->vocab_size};
    enum mics_status status = find_mask(options, &masking.mask, err);

    assert(options->rate > 0 && options->rate < 1);
    if (status != MICS_OK)
        return status;
    if (options->seq > POSITIONS_MAX)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "sequences of more than %u tokens",
                            POSITIONS_MAX);
    if (tokenizer && options->seq > 2) {
        masking.begin = mics_tokenizer_begin(tokenizer);
        masking.end =
            masking.begin == MICS_NO_TOKEN ? MICS_NO_TOKEN : mics_tokenizer_end(tokenizer);
    }
    if (options->whole_words && !tokenizer)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "--mask-whole-words needs a tokenizer, which says where words begin, "
                            "but the data name none");
    status = list_tokens(options, &masking, err);
    if (status != MICS_OK) {
        mics_masking_close(&masking);
        return status;
    }
    *out = masking;
    return MICS_OK;
}

void mics_masking_close(struct mics_masking *masking)
{
    free(masking->is_ordinary);
    free(masking->ordinary);
    free(masking->begins_word);
    *masking = (struct mics_masking){0};
}

uint64_t mics_masking_fingerprint(const struct mics_masking *masking, uint64_t seed)
{
    const uint32_t tokens[] = {masking->mask, masking->begin, masking->end,
                               masking->ordinary_count};

    const uint64_t sum =
        XXH64(&masking->rate, sizeof masking->rate, XXH64(tokens, sizeof tokens, seed));

    return masking->begins_word ? XXH64("whole words", 11, sum) : sum;
}

/* How many of `count` ordinary tokens are chosen. */
static uint32_t choose_count(double rate, uint32_t count, uint64_t random)
{
    const double expected = rate * count, most = ceil(expected); /* rounding may give one more */
    const double chosen = floor(expected + (double)(random >> 11) * 0x1p-53);

    return (uint32_t)fmin(chosen, most);
}

/* What a chosen token becomes: random[1] decides, random[2] and [3] which one. */
static int32_t replace(const struct mics_masking *masking, int32_t token, const uint32_t random[4])
{
    const uint32_t percent = (uint32_t)(((uint64_t)random[1] * 100) >> 32);

    if (percent < MASKED_PERCENT)
        return (int32_t)masking->mask;
    if (percent >= MASKED_PERCENT + RANDOM_PERCENT)
        return token;
    return masking->ordinary[((uint64_t)random[2] * masking->ordinary_count) >> 32];
}

/* What is chosen together: a token, or the tokens of a word. */
struct piece {
    uint64_t key; /* a random number, then the position of the first token */
    uint32_t length;
};

/* By random number, which is in the upper half, then by position. */
static int compare(const void *a, const void *b)
{
    const uint64_t x = ((const struct piece *)a)->key, y = ((const struct piece *)b)->key;

    return (x > y) - (x < y);
}

/* The pieces of a sequence, in its order; returns how many there are. *ordinary is the number of
 * their tokens. */
static uint32_t list_pieces(const struct mics_masking *masking, bool whole_words, uint64_t seed,
                            uint64_t stream, uint64_t sample, uint32_t length,
                            const int32_t *tokens, const int32_t *targets, struct piece *pieces,
                            uint32_t *ordinary)
{
    uint32_t count = 0, random[4];

    *ordinary = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (!masking->is_ordinary[tokens[i]] || targets[i] == MICS_TARGET_LAST)
            continue;
        ++*ordinary;
        if (whole_words && i > 0 && masking->is_ordinary[tokens[i - 1]] &&
            targets[i - 1] != MICS_TARGET_LAST && !masking->begins_word[tokens[i]]) {
            pieces[count - 1].length++;
            continue;
        }
        mics_philox(seed, stream + i, sample, random);
        pieces[count++] = (struct piece){(uint64_t)random[0] << 32 | i, 1};
    }
    return count;
}

enum mics_status mics_masking_apply_documents(const struct mics_masking *masking, bool val,
                                              uint64_t sample, uint32_t length, int32_t *tokens,
                                              int32_t *targets, struct mics_err *err)
{
    const uint64_t stream = val ? STREAM_VAL : STREAM_MASK, seed = val ? 0 : masking->seed;
    const double rate = val ? MICS_MASK_RATE : masking->rate;
    struct piece *pieces = malloc(masking->seq * sizeof *pieces);
    uint32_t ordinary, random[4];

    if (!pieces)
        return mics_err_nomem(err);
    assert(length <= masking->seq);
    const uint32_t count = list_pieces(masking, !val && masking->begins_word, seed, stream, sample,
                                       length, tokens, targets, pieces, &ordinary);
    uint32_t left =
        choose_count(rate, ordinary, mics_philox_u64(seed, stream + POSITIONS_MAX, sample));
    qsort(pieces, count, sizeof *pieces, compare);
    for (uint32_t k = 0; k < count && left > 0; k++) {
        const uint32_t first = (uint32_t)pieces[k].key;

        if (pieces[k].length > left)
            continue;
        left -= pieces[k].length;
        for (uint32_t i = first; i < first + pieces[k].length; i++) {
            mics_philox(seed, stream + i, sample, random);
            targets[i] = tokens[i];
            tokens[i] = replace(masking, tokens[i], random);
        }
    }
    free(pieces);
    return MICS_OK;
}

enum mics_status mics_masking_apply(const struct mics_masking *masking, bool val, uint64_t sample,
                                    int32_t *tokens, int32_t *targets, struct mics_err *err)
{
    if (masking->begin != MICS_NO_TOKEN)
        tokens[0] = (int32_t)masking->begin;
    if (masking->end != MICS_NO_TOKEN)
        tokens[masking->seq - 1] = (int32_t)masking->end;
    for (uint32_t i = 0; i < masking->seq; i++)
        targets[i] = MICS_TARGET_NONE;
    return mics_masking_apply_documents(masking, val, sample, masking->seq, tokens, targets, err);
}
