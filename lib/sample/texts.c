/* SPDX-License-Identifier: Apache-2.0 */
#include "sample/texts.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that has begun and has not been passed on to its end. */
struct text {
    struct text *next; /* the prompt's successor */
    uint64_t number;
    uint32_t sequence;
    bool ended;
    enum mics_text_end end;
    uint32_t *ids; /* [max_tokens] */
    size_t count;
    char *bytes;
    size_t size, capacity;
    size_t ready;  /* bytes that no stop string can take back */
    size_t passed; /* bytes that `more` has had */
    uint64_t characters;
    struct mics_decoder *decoder;
};

struct texts {
    const struct mics_texts_options *options;
    struct mics_texts_times *times;
    struct text *first, *last; /* in the order of the prompts */
    struct text **running;     /* [sequences] by sequence; NULL: free */
    uint64_t begun;
    bool no_more;
    float *logits; /* [sequences, logits_size] */
};

const char *mics_text_end_name(enum mics_text_end end)
{
    static const char *const names[] = {"end", "stop", "length", "limit"};

    return names[end];
}

static void free_text(struct text *text)
{
    mics_decoder_free(text->decoder);
    free(text->ids);
    free(text->bytes);
    free(text);
}

static enum mics_status add_bytes(struct text *text, const char *bytes, size_t size,
                                  struct mics_err *err)
{
    if (text->size + size > text->capacity) {
        const size_t capacity = 2 * (text->size + size) + 256;
        char *grown = realloc(text->bytes, capacity);

        if (!grown)
            return mics_err_nomem(err);
        text->bytes = grown;
        text->capacity = capacity;
    }
    if (size > 0)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return MICS_OK;
}

/* How many of the last bytes could be the beginning of `stop`. */
static size_t held_back(const struct text *text, const char *stop)
{
    const size_t length = strlen(stop), left = text->size - text->ready;

    for (size_t held = length - 1 < left ? length - 1 : left; held > 0; held--)
        if (memcmp(text->bytes + text->size - held, stop, held) == 0)
            return held;
    return 0;
}

/* Look for stop strings in what is new. At the first the text ends. */
static void find_stops(const struct texts *texts, struct text *text)
{
    const struct mics_texts_options *options = texts->options;
    const char *first = NULL;
    size_t held = 0;

    for (size_t i = 0; i < options->stop_count; i++) {
        const char *stop = options->stops[i];
        const char *found =
            text->size == text->ready
                ? NULL
                : memmem(text->bytes + text->ready, text->size - text->ready, stop, strlen(stop));
        const size_t maybe = held_back(text, stop);

        if (found && (!first || found < first))
            first = found;
        held = maybe > held ? maybe : held;
    }
    if (first) {
        text->size = (size_t)(first - text->bytes);
        text->ended = true;
        text->end = MICS_TEXT_STOP;
        held = 0;
    }
    text->ready = text->size - held;
}

static void end_by(struct text *text, enum mics_text_end end)
{
    if (!text->ended)
        text->end = end;
    text->ended = true;
}

static bool is_full(const struct mics_texts_options *options, const struct text *text)
{
    return options->max_characters > 0 && text->characters == options->max_characters;
}

/* Append the characters of a text that it may have. */
static enum mics_status add_text(const struct texts *texts, struct text *text, const char *bytes,
                                 size_t size, struct mics_err *err)
{
    size_t used = 0;

    for (; used < size; used++) {
        const bool begins = ((unsigned char)bytes[used] & 0xc0) != 0x80;

        if (begins && is_full(texts->options, text))
            break;
        text->characters += begins;
    }
    if (used < size)
        end_by(text, MICS_TEXT_LENGTH);
    return add_bytes(text, bytes, used, err);
}

/* Append what the decoder still has. */
static enum mics_status add_rest(const struct texts *texts, struct text *text, struct mics_err *err)
{
    const char *bytes;
    size_t size;
    enum mics_status status = MICS_OK;

    if (!text->decoder)
        return MICS_OK;
    status = mics_decode_end(text->decoder, &bytes, &size, err);
    return status == MICS_OK ? add_text(texts, text, bytes, size, err) : status;
}

/* Append what an id stands for. */
static enum mics_status decode(const struct texts *texts, struct text *text, uint32_t id,
                               struct mics_err *err)
{
    const char *bytes;
    char number[16];
    size_t size;
    enum mics_status status = MICS_OK;

    if (text->decoder) {
        status = mics_decode(text->decoder, &id, 1, &bytes, &size, err);
    } else {
        size = (size_t)snprintf(number, sizeof number, "%s%u", text->count > 1 ? " " : "", id);
        bytes = number;
    }
    if (status == MICS_OK)
        status = add_text(texts, text, bytes, size, err);
    if (status == MICS_OK)
        find_stops(texts, text);
    return status;
}

static enum mics_status add_newline(const struct texts *texts, struct text *text,
                                    struct mics_err *err)
{
    enum mics_status status = add_rest(texts, text, err);

    if (status == MICS_OK)
        status = add_text(texts, text, "\n", 1, err);
    if (status == MICS_OK)
        find_stops(texts, text);
    return status;
}

/* Append what the decoder still has, and let the next prompt have the sequence. */
static enum mics_status end_text(struct texts *texts, struct text *text, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (text->end != MICS_TEXT_STOP) {
        status = add_rest(texts, text, err);
        if (status == MICS_OK)
            find_stops(texts, text);
    }
    text->ready = text->size;
    mics_generator_clear(texts->options->generator, text->sequence);
    texts->running[text->sequence] = NULL;
    return status;
}

static bool is_end(const struct mics_texts_options *options, uint32_t id)
{
    for (size_t i = 0; i < options->end_count; i++)
        if (options->ends[i] == id)
            return true;
    return false;
}

/* Draw the next token from logits. */
static enum mics_status draw(struct texts *texts, struct text *text, const float *logits,
                             struct mics_err *err)
{
    const struct mics_texts_options *options = texts->options;
    const uint32_t id = mics_sampler_draw(options->sampler, logits, text->number, text->count);
    const bool ends = is_end(options, id);
    enum mics_status status = MICS_OK;

    if (ends && !options->context_tokens) {
        end_by(text, MICS_TEXT_END_OF_DOCUMENT);
    } else {
        text->ids[text->count++] = id;
        status = ends ? add_newline(texts, text, err) : decode(texts, text, id, err);
        if (text->count == options->max_tokens || is_full(options, text))
            end_by(text, MICS_TEXT_LENGTH);
        else if (!options->context_tokens &&
                 mics_generator_length(options->generator, text->sequence) ==
                     mics_generator_limit(options->generator))
            end_by(text, MICS_TEXT_LIMIT);
    }
    return status == MICS_OK && text->ended ? end_text(texts, text, err) : status;
}

/* The decoder has seen the prompt, so that the text joins it as it does in the middle of a text. */
static enum mics_status open_decoder(const struct mics_texts_options *options, struct text *text,
                                     const uint32_t *ids, size_t count, struct mics_err *err)
{
    const char *bytes;
    size_t size;
    enum mics_status status =
        mics_decoder_new(options->tokenizer, !options->keep_special, &text->decoder, err);

    return status == MICS_OK ? mics_decode(text->decoder, ids, count, &bytes, &size, err) : status;
}

static enum mics_status append_prompt(struct texts *texts, struct text *text, const uint32_t *ids,
                                      size_t count, struct mics_err *err)
{
    const struct mics_texts_options *options = texts->options;
    const struct mics_generator_input input = {
        .sequence = text->sequence,
        .tokens = (const int32_t *)ids,
        .count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX,
    };
    const double started = mics_now_s();
    enum mics_status status =
        mics_generator_append(options->generator, &input, 1, texts->logits, err);

    texts->times->prompt_s += mics_now_s() - started;
    texts->times->prompt_tokens += count;
    if (status == MICS_ERR_ARG)
        status = MICS_ERR_FORMAT;
    if (status != MICS_OK)
        mics_err_prefix(err, "prompt %llu", (unsigned long long)text->number + 1);
    return status;
}

/* Begin a text in a free sequence. */
static enum mics_status begin(struct texts *texts, uint32_t sequence, const uint32_t *ids,
                              size_t count, struct mics_err *err)
{
    const struct mics_texts_options *options = texts->options;
    struct text *text = calloc(1, sizeof *text);
    enum mics_status status = MICS_OK;

    if (!text)
        return mics_err_nomem(err);
    *text = (struct text){.number = texts->begun++, .sequence = sequence};
    if (texts->last)
        texts->last->next = text;
    else
        texts->first = text;
    texts->last = text;
    texts->running[sequence] = text;
    text->ids = malloc(options->max_tokens * sizeof *text->ids);
    if (!text->ids)
        return mics_err_nomem(err);
    if (options->tokenizer)
        status = open_decoder(options, text, ids, count, err);
    if (status == MICS_OK)
        status = append_prompt(texts, text, ids, count, err);
    return status == MICS_OK ? draw(texts, text, texts->logits, err) : status;
}

/* Pass on what can be: of the first text what is ready, and of texts that have ended the rest. */
static enum mics_status pass_on(struct texts *texts, struct mics_err *err)
{
    const struct mics_texts_options *options = texts->options;
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && texts->first) {
        struct text *text = texts->first;

        if (options->more && text->ready > text->passed)
            status = options->more(options->context, text->number, text->bytes + text->passed,
                                   text->ready - text->passed, err);
        text->passed = text->ready;
        if (status != MICS_OK || !text->ended)
            break;
        status = options->done(options->context,
                               &(struct mics_text_result){.number = text->number,
                                                          .ids = text->ids,
                                                          .count = text->count,
                                                          .text = text->bytes,
                                                          .size = text->size,
                                                          .end = text->end},
                               err);
        texts->first = text->next;
        if (!texts->first)
            texts->last = NULL;
        free_text(text);
    }
    return status;
}

/* Give prompts to all free sequences. */
static enum mics_status fill(struct texts *texts, struct mics_err *err)
{
    const struct mics_texts_options *options = texts->options;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < options->sequences; i++)
        while (status == MICS_OK && !texts->running[i] && !texts->no_more) {
            const uint32_t *ids = NULL;
            size_t count = 0;

            status = options->next(options->context, &ids, &count, err);
            texts->no_more = count == 0;
            if (status == MICS_OK && count > 0)
                status = begin(texts, i, ids, count, err);
            if (status == MICS_OK)
                status = pass_on(texts, err);
        }
    return status;
}

/* How many of a text's last tokens to append: the one that was drawn, or, if the context is full,
 * all that stay in it. */
static uint32_t tokens_to_append(const struct mics_texts_options *options, const struct text *text)
{
    if (!options->context_tokens ||
        mics_generator_length(options->generator, text->sequence) < options->context_tokens)
        return 1;
    mics_generator_clear(options->generator, text->sequence);
    return options->context_tokens / 2 + 1;
}

/* One token more for all that run. *any: there are some. */
static enum mics_status step(struct texts *texts, bool *any, struct mics_err *err)
{
    const struct mics_texts_options *options = texts->options;
    struct mics_generator_input inputs[MICS_GENERATE_ROWS];
    struct text *of[MICS_GENERATE_ROWS];
    uint32_t count = 0;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < options->sequences; i++) {
        struct text *text = texts->running[i];

        if (!text)
            continue;
        const uint32_t tokens = tokens_to_append(options, text);

        inputs[count] = (struct mics_generator_input){
            .sequence = i,
            .tokens = (const int32_t *)&text->ids[text->count - tokens],
            .count = tokens,
        };
        of[count++] = text;
    }
    *any = count > 0;
    if (count == 0)
        return MICS_OK;
    const double started = mics_now_s();

    status = mics_generator_append(options->generator, inputs, count, texts->logits, err);
    texts->times->s += mics_now_s() - started;
    texts->times->tokens += count;
    for (uint32_t i = 0; status == MICS_OK && i < count; i++)
        status = draw(texts, of[i], texts->logits + (size_t)i * options->logits_size, err);
    return status;
}

enum mics_status mics_texts_run(const struct mics_texts_options *options,
                                struct mics_texts_times *times, struct mics_err *err)
{
    struct texts texts = {.options = options, .times = times};
    enum mics_status status;
    bool any = true;

    *times = (struct mics_texts_times){0};
    texts.running = calloc(options->sequences, sizeof *texts.running);
    texts.logits = malloc((size_t)options->sequences * options->logits_size * sizeof *texts.logits);
    status = texts.running && texts.logits ? MICS_OK : mics_err_nomem(err);
    while (status == MICS_OK && any) {
        status = fill(&texts, err);
        if (status == MICS_OK)
            status = step(&texts, &any, err);
        if (status == MICS_OK)
            status = pass_on(&texts, err);
    }
    for (struct text *text = texts.first, *next; text; text = next) {
        next = text->next;
        free_text(text);
    }
    free(texts.running);
    free(texts.logits);
    return status;
}
