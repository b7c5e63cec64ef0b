/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

#include "base/num.h"
#include "base/philox.h"
#include "base/units.h"
#include "ops.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FEISTEL_ROUNDS 6

/* Philox streams, distinct from those of the tensors (small integers). */
#define STREAM_PERMUTE ((uint64_t)0x6f72646572 << 24)
#define STREAM_OFFSET  ((uint64_t)0x7374617274 << 24)

/* The golden ratio in 32 bits, odd; and the part that all weights share. */
#define GOLDEN 0x9e3779b9u
#define WHOLE  ((uint64_t)1 << 32)

/*
 * Opening.
 */

/* WEIGHT:PATTERN. false: no weight. */
static bool split_weight(const char *word, double *weight, const char **pattern)
{
    const size_t digits = strspn(word, "0123456789.eE+-");
    char text[32];

    if (digits == 0 || word[digits] != ':' || digits >= sizeof text)
        return false;
    memcpy(text, word, digits);
    text[digits] = '\0';
    *pattern = word + digits + 1;
    return mics_parse_double(text, 0, 1e9, weight, NULL) == MICS_OK;
}

/* Cut PATTERN:u16 or PATTERN:u32 behind the pattern. Bytes of an id; 0: no type. */
static uint32_t split_type(char *word)
{
    char *type = strrchr(word, ':');

    if (!type || type == word || (strcmp(type, ":u16") != 0 && strcmp(type, ":u32") != 0))
        return 0;
    *type = '\0';
    return type[2] == '1' ? 2 : 4;
}

/* The document of a file of tokens stands for that file. */
static enum mics_status add_files(struct mics_corpus *corpus, const char *pattern,
                                  struct mics_err *err)
{
    const size_t length = strlen(pattern);
    const bool is_document = length > 3 && strcmp(pattern + length - 3, ".mp") == 0;
    char bin[MICS_PATH_MAX];
    enum mics_status status = MICS_OK;

    if (is_document)
        status = mics_path_format(bin, err, "%.*s.bin", (int)length - 3, pattern);
    return status == MICS_OK ? mics_corpus_add(corpus, is_document ? bin : pattern, ".bin", err)
                             : status;
}

/* Add a word's files to the source that it belongs to: a new one, if it has a weight. */
static enum mics_status add_word(struct mics_data *data, struct mics_corpus *corpora, char *word,
                                 struct mics_err *err)
{
    const uint32_t id_bytes = split_type(word);
    const char *pattern = word;
    double weight = 0;
    const bool weighted = split_weight(word, &weight, &pattern);
    const bool first = data->source_count == 0;

    if (weighted && weight <= 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s': a weight must be greater than 0", word);
    if (!first && weighted != (data->weights[0] > 0))
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s' has %s weight, but others have %s", word,
                            weighted ? "a" : "no", weighted ? "none" : "one");
    if (data->source_count == MICS_DATA_MAX_SOURCES)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %d data sets", MICS_DATA_MAX_SOURCES);
    if (first || weighted) {
        corpora[data->source_count] = (struct mics_corpus){0};
        data->weights[data->source_count++] = weight;
    }
    struct mics_corpus *corpus = &corpora[data->source_count - 1];
    const size_t before = corpus->count;
    const enum mics_status status = add_files(corpus, pattern, err);

    for (size_t i = before; i < corpus->count; i++)
        corpus->documents[i].id_bytes = id_bytes;
    return status;
}

static enum mics_status add_words(struct mics_data *data, struct mics_corpus *corpora,
                                  const char *text, struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    const char *begin, *all = text;
    size_t length;

    while (status == MICS_OK && (begin = mics_corpus_next_word(&text, &length))) {
        char *word = strndup(begin, length);

        status = word ? add_word(data, corpora, word, err) : mics_err_nomem(err);
        free(word);
    }
    if (status != MICS_OK)
        mics_corpus_explain_words(all, err);
    return status;
}

/* From weights to their parts of [0, WHOLE). */
static enum mics_status divide(struct mics_data *data, struct mics_err *err)
{
    double sum = 0, below = 0;

    for (size_t i = 0; i < data->source_count; i++) {
        data->weights[i] = data->source_count == 1 ? 1 : data->weights[i];
        sum += data->weights[i];
    }
    for (size_t i = 0; i < data->source_count; i++) {
        data->weights[i] /= sum;
        below += data->weights[i];
        data->limits[i] =
            i + 1 == data->source_count ? WHOLE : (uint64_t)llround(below * (double)WHOLE);
        if (data->limits[i] <= (i ? data->limits[i - 1] : 0))
            return mics_err_set(err, MICS_ERR_FORMAT, "data set %zu has a weight of only %g of all",
                                i + 1, data->weights[i]);
    }
    return MICS_OK;
}

static void add_up(struct mics_data *data)
{
    data->fingerprint = data->sources[0].fingerprint;
    for (size_t i = 0; i < data->source_count; i++) {
        const struct mics_source *source = &data->sources[i];
        const uint64_t words[] = {source->fingerprint, data->limits[i]};

        data->train_windows += source->train.windows;
        data->val_windows += source->val.windows;
        data->train_tokens += source->train.tokens.count;
        data->val_tokens += source->val.tokens.count;
        data->documents += source->document_count;
        data->bytes += source->corpus.bytes;
        data->special += source->encoded.special;
        data->bad_lines += source->encoded.bad_lines.count;
        if (data->source_count > 1)
            data->fingerprint = XXH64(words, sizeof words, data->fingerprint);
    }
    if (data->val) { /* what is kept of the sources is then left out */
        data->val_windows = data->val->val_windows;
        data->val_tokens = data->val->val_tokens;
        data->special += data->val->special;
    }
    if (data->pack != MICS_PACK_CONCAT || data->mask_prompt) {
        const uint32_t way[] = {data->pack, data->mask_prompt};

        data->fingerprint = XXH64(way, sizeof way, data->fingerprint);
    }
}

static enum mics_status open_sources(const struct mics_data_options *options,
                                     struct mics_data *data, struct mics_corpus *corpora,
                                     struct mics_err *err)
{
    const struct mics_source_options source = {.tokenizer = options->tokenizer,
                                               .end_token = options->end_token,
                                               .val_fraction = options->val_fraction,
                                               .val_only = options->val_only,
                                               .seq = options->seq,
                                               .vocab_size = options->vocab_size,
                                               .pack = options->pack,
                                               .mask_prompt = options->mask_prompt,
                                               .bad_lines = options->bad_lines,
                                               .binary = options->binary};
    enum mics_status status = MICS_OK;

    if (data->source_count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no pattern is given");
    data->sources = calloc(data->source_count, sizeof *data->sources);
    if (!data->sources)
        return mics_err_nomem(err);
    status = divide(data, err);
    for (size_t i = 0; status == MICS_OK && i < data->source_count; i++) {
        status = mics_corpus_sort(&corpora[i], err);
        if (status == MICS_OK)
            status = mics_source_open(&corpora[i], &source, &data->sources[i], err);
    }
    return status;
}

/* Open the data for validation only. */
static enum mics_status open_val(const struct mics_data_options *options, struct mics_data *data,
                                 struct mics_err *err)
{
    struct mics_data_options only = *options;
    struct mics_data *val = calloc(1, sizeof *val);

    if (!val)
        return mics_err_nomem(err);
    only.patterns = options->val_patterns;
    only.pattern_count = options->val_pattern_count;
    only.val_pattern_count = 0;
    only.val_only = true;
    const enum mics_status status = mics_data_open(&only, val, err);

    if (status == MICS_OK) {
        data->val = val;
        return MICS_OK;
    }
    free(val);
    mics_err_prefix(err, "for validation");
    return status;
}

enum mics_status mics_data_open(const struct mics_data_options *options, struct mics_data *data,
                                struct mics_err *err)
{
    struct mics_corpus corpora[MICS_DATA_MAX_SOURCES] = {{0}};
    enum mics_status status = MICS_OK;

    *data = (struct mics_data){.seq = options->seq,
                               .vocab_size = options->vocab_size,
                               .seed = options->seed,
                               .pack = options->pack,
                               .mask_prompt = options->mask_prompt};
    for (size_t i = 0; status == MICS_OK && i < options->pattern_count; i++)
        status = add_words(data, corpora, options->patterns[i], err);
    if (status == MICS_OK)
        status = open_sources(options, data, corpora, err);
    for (size_t i = 0; i < MICS_DATA_MAX_SOURCES; i++)
        mics_corpus_close(&corpora[i]);
    if (status == MICS_OK && options->val_pattern_count > 0)
        status = open_val(options, data, err);
    if (status == MICS_OK)
        add_up(data);
    else
        mics_data_close(data);
    return status;
}

void mics_data_close(struct mics_data *data)
{
    for (size_t i = 0; data->sources && i < data->source_count; i++)
        mics_source_close(&data->sources[i]);
    free(data->sources);
    if (data->val)
        mics_data_close(data->val);
    free(data->val);
    *data = (struct mics_data){0};
}

const char *mics_data_find_path(const void *context, const void *address)
{
    const struct mics_data *data = context;
    const char *path = NULL;

    for (size_t i = 0; !path && i < data->source_count; i++)
        path = mics_source_find_path(&data->sources[i], address);
    return path || !data->val ? path : mics_data_find_path(data->val, address);
}

/* Every window for validation is whole: attention would reach the padding of a shorter one. */
static enum mics_status check_val(const struct mics_data *data, struct mics_err *err)
{
    for (size_t i = 0; i < data->source_count; i++) {
        const struct mics_part *val = &data->sources[i].val;

        if (val->windows > 0 && val->tokens.count <= data->seq)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "%llu tokens for validation are less than a sequence of %u",
                                (unsigned long long)val->tokens.count, data->seq);
    }
    return data->val ? check_val(data->val, err) : MICS_OK;
}

/* The path of a file of tokens with prompts, or NULL. */
static const char *find_prompts(const struct mics_data *data)
{
    for (size_t i = 0; i < data->source_count; i++)
        for (size_t j = 0; data->sources[i].files && j < data->sources[i].corpus.count; j++)
            if (data->sources[i].files[j].prompts.mapping)
                return data->sources[i].files[j].path;
    return data->val ? find_prompts(data->val) : NULL;
}

/* Make room for the tokens around documents. */
static enum mics_status repack(struct mics_data *data, const struct mics_masking *masking,
                               struct mics_err *err)
{
    const uint32_t begin = masking->begin != MICS_NO_TOKEN, end = masking->end != MICS_NO_TOKEN;
    enum mics_status status = MICS_OK;

    if (data->val)
        status = repack(data->val, masking, err);
    data->train_windows = data->val_windows = 0;
    for (size_t i = 0; status == MICS_OK && i < data->source_count; i++) {
        status = mics_source_repack(&data->sources[i], data->seq, begin, end, err);
        data->train_windows += data->sources[i].train.windows;
        data->val_windows += data->sources[i].val.windows;
    }
    if (data->val)
        data->val_windows = data->val->val_windows;
    return status;
}

enum mics_status mics_data_set_masking(struct mics_data *data, const struct mics_masking *masking,
                                       struct mics_err *err)
{
    assert(masking->seq == data->seq);
    if (data->mask_prompt)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--mask-prompt goes with models that predict the next token");
    if (find_prompts(data))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' has prompts, which go with models that predict the next token",
                            find_prompts(data));
    data->masking = masking;
    data->fingerprint = mics_masking_fingerprint(masking, data->fingerprint);
    return data->pack == MICS_PACK_DOCUMENT ? repack(data, masking, err) : check_val(data, err);
}

/*
 * Order.
 */

/* Bits of each half of the smallest even power of two >= count. */
static unsigned half_bits(uint64_t count)
{
    unsigned bits = 1;

    while (bits < 31 && (uint64_t)1 << (2 * bits) < count)
        bits++;
    return bits;
}

static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned bits, uint64_t value)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t left = value >> bits, right = value & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t word = mics_philox_u64(seed, STREAM_PERMUTE + round, epoch << 32 ^ right);
        uint64_t next = left ^ (word & mask);

        left = right;
        right = next;
    }
    return left << bits | right;
}

uint64_t mics_data_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index)
{
    const unsigned bits = half_bits(count);

    assert(index < count && count <= (uint64_t)1 << 62);
    do
        index = feistel(seed, epoch, bits, index);
    while (index >= count);
    return index;
}

/* The sum of floor((a i + b) / m) over 0 <= i < n, modulo 2^64; n, a, b <= 2^32, 1 <= m <= 2^32. */
static uint64_t floor_sum(uint64_t n, uint64_t m, uint64_t a, uint64_t b)
{
    uint64_t sum = 0;

    while (n > 0) {
        sum += (n % 2 ? (n - 1) / 2 * n : n / 2 * (n - 1)) * (a / m) + n * (b / m);
        a %= m;
        b %= m;
        const uint64_t last = a * n + b, next = m;

        n = last / m; /* the same sum, counted by rows instead of columns */
        b = last % m;
        m = a;
        a = next;
    }
    return sum;
}

/* How many of the first `samples` samples are below `limit` of [0, WHOLE): GOLDEN is odd, so WHOLE
 * samples in a row take each value once. */
static uint64_t count_below(uint64_t samples, uint64_t limit)
{
    const uint64_t rest = samples % WHOLE;

    return samples / WHOLE * limit + floor_sum(rest, WHOLE, GOLDEN, 0) + rest -
           floor_sum(rest, WHOLE, GOLDEN, WHOLE - limit);
}

uint64_t mics_data_source_samples(const struct mics_data *data, size_t source, uint64_t samples)
{
    return count_below(samples, data->limits[source]) -
           (source ? count_below(samples, data->limits[source - 1]) : 0);
}

/* The source of a sample; *sample becomes its number among the samples of that source. */
static size_t find_source(const struct mics_data *data, uint64_t *sample)
{
    const uint64_t at = (uint32_t)(*sample * GOLDEN);
    size_t source = 0;

    if (data->source_count == 1)
        return 0;
    while (at >= data->limits[source])
        source++;
    *sample = mics_data_source_samples(data, source, *sample);
    return source;
}

/*
 * Reading.
 */

/* From tokens[seq] and the one that follows the last of them. */
static void make_targets(uint32_t seq, uint32_t next, int32_t *tokens, int32_t *targets)
{
    for (uint32_t i = 0; i < seq; i++) {
        const uint32_t token = i + 1 < seq ? (uint32_t)tokens[i + 1] : next;

        targets[i] = token & MICS_TOKEN_PROMPT ? MICS_TARGET_NONE : (int32_t)token;
        tokens[i] = (int32_t)((uint32_t)tokens[i] & ~MICS_TOKEN_PROMPT);
    }
}

/* `length` <= seq tokens from `position` on, the token after the last as its target, and
 * padding. */
static enum mics_status read_window(const struct mics_data *data, const struct mics_tokens *from,
                                    uint64_t position, uint32_t length, int32_t *tokens,
                                    int32_t *targets, struct mics_err *err)
{
    uint32_t next = 0;
    enum mics_status status =
        mics_tokens_read(from, position, length, data->vocab_size, (uint32_t *)tokens, err);

    if (status != MICS_OK)
        return status;
    status = mics_tokens_read(from, position + length, 1, data->vocab_size, &next, err);
    if (status != MICS_OK)
        return status;
    make_targets(length, next, tokens, targets);
    for (uint32_t i = length; i < data->seq; i++) {
        tokens[i] = 0;
        targets[i] = MICS_TARGET_NONE;
    }
    return MICS_OK;
}

/* A row of whole documents and padding, or a piece of one document. */
static enum mics_status read_row(const struct mics_data *data, const struct mics_part *part,
                                 uint64_t row, int32_t *tokens, int32_t *targets,
                                 struct mics_err *err)
{
    const uint64_t begin = part->rows[row], end = part->rows[row + 1];
    enum mics_status status =
        read_window(data, &part->tokens, begin, (uint32_t)(end - begin), tokens, targets, err);

    if (status != MICS_OK)
        return status;
    for (uint64_t at = begin; at < end;) {
        at = mics_tokens_document_end(&part->tokens, at);
        if (at <= end)
            targets[at - begin - 1] = MICS_TARGET_LAST;
    }
    return MICS_OK;
}

/* tokens[n] and on = a document, or a piece of one, between the tokens around it; returns the next
 * n. `from` has its `count` tokens, and may be in tokens[], as far behind n as is put in before. */
static uint32_t frame_document(const struct mics_masking *masking, const int32_t *from,
                               uint32_t count, bool whole, int32_t *tokens, uint32_t n)
{
    if (masking->begin != MICS_NO_TOKEN)
        tokens[n++] = (int32_t)masking->begin;
    for (uint32_t i = 0; i < count; i++)
        tokens[n++] = (int32_t)((uint32_t)from[i] & ~MICS_TOKEN_PROMPT);
    if (masking->end != MICS_NO_TOKEN)
        tokens[whole ? n - 1 : n++] = (int32_t)masking->end;
    return n;
}

/* A row of documents that are masked. */
static enum mics_status read_masked_row(const struct mics_data *data, const struct mics_part *part,
                                        uint64_t row, bool val, uint64_t sample, int32_t *tokens,
                                        int32_t *targets, struct mics_err *err)
{
    const uint64_t begin = part->rows[row], end = part->rows[row + 1];
    const uint32_t count = (uint32_t)(end - begin);
    int32_t *from = tokens + (data->seq - count);
    const enum mics_status status =
        mics_tokens_read(&part->tokens, begin, count, data->vocab_size, (uint32_t *)from, err);
    uint32_t length = 0;

    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < data->seq; i++)
        targets[i] = MICS_TARGET_NONE;
    for (uint64_t at = begin, next; at < end; at = next) {
        const uint64_t after = mics_tokens_document_end(&part->tokens, at);

        next = mics_min_u64(after, end);
        length = frame_document(data->masking, from, (uint32_t)(next - at), next == after, tokens,
                                length);
        from += next - at;
        targets[length - 1] = MICS_TARGET_LAST;
    }
    for (uint32_t i = length; i < data->seq; i++)
        tokens[i] = 0;
    return mics_masking_apply_documents(data->masking, val, sample, length, tokens, targets, err);
}

/* The part that a sample is of, and its row there or, without rows, where its window begins. */
static const struct mics_part *find_sample(const struct mics_data *data, uint64_t sample,
                                           uint64_t *at)
{
    const size_t source = find_source(data, &sample);
    const struct mics_part *part = &data->sources[source].train;
    const uint64_t seed = data->seed + source * 0x9e3779b97f4a7c15u;
    const uint64_t epoch = sample / part->windows, index = sample % part->windows;
    const uint64_t window = mics_data_permute(seed, epoch, part->windows, index);

    *at = window;
    if (!part->rows)
        *at = mics_philox_u64(seed, STREAM_OFFSET, epoch) % part->tokens.count + window * data->seq;
    return part;
}

enum mics_status mics_data_read_train(const struct mics_data *data, uint64_t sample,
                                      int32_t *tokens, int32_t *targets, struct mics_err *err)
{
    uint64_t at;
    const struct mics_part *part = find_sample(data, sample, &at);

    if (part->rows && data->masking)
        return read_masked_row(data, part, at, false, sample, tokens, targets, err);
    const enum mics_status status =
        part->rows ? read_row(data, part, at, tokens, targets, err)
                   : read_window(data, &part->tokens, at, data->seq, tokens, targets, err);

    return status == MICS_OK && data->masking
               ? mics_masking_apply(data->masking, false, sample, tokens, targets, err)
               : status;
}

void mics_data_prefetch(const struct mics_data *data, uint64_t sample)
{
    uint64_t at;
    const struct mics_part *part = find_sample(data, sample, &at);

    mics_tokens_prefetch(&part->tokens, part->rows ? part->rows[at] : at, data->seq + 1);
}

enum mics_status mics_data_read_val(const struct mics_data *data, uint64_t window, int32_t *tokens,
                                    int32_t *targets, struct mics_err *err)
{
    const struct mics_source *source = data->val ? data->val->sources : data->sources;
    const uint64_t number = window;

    for (; window >= source->val.windows; source++)
        window -= source->val.windows;
    if (source->val.rows)
        return data->masking
                   ? read_masked_row(data, &source->val, window, true, number, tokens, targets, err)
                   : read_row(data, &source->val, window, tokens, targets, err);
    const uint64_t begin = window * data->seq, last = source->val.tokens.count - 1;
    const uint32_t length = (uint32_t)mics_min_u64(data->seq, last - begin);

    if (!data->masking)
        return read_window(data, &source->val.tokens, begin, length, tokens, targets, err);
    const enum mics_status status =
        read_window(data, &source->val.tokens, mics_min_u64(begin, last - data->seq), data->seq,
                    tokens, targets, err);
    return status == MICS_OK ? mics_masking_apply(data->masking, true, number, tokens, targets, err)
                             : status;
}

uint64_t mics_data_batch_slot(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                              uint32_t micro_batch, uint32_t row)
{
    return ((uint64_t)micro_step * world_size + rank) * micro_batch + row;
}
