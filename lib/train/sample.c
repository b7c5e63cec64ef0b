/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sample.h"

#include "base/philox.h"
#include "base/utf8.h"
#include "data/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_SAMPLE ((uint64_t)0x73616d706c65 << 16)

/* Draw from softmax(logits / temperature) over [0, count) by `uniform` in [0, 1). */
static uint32_t draw_token(const float *logits, uint32_t count, double temperature, double uniform)
{
    uint32_t best = 0, last = 0;
    double sum = 0, running = 0;

    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    if (temperature <= 0)
        return best;
    for (uint32_t i = 0; i < count; i++)
        sum += exp(((double)logits[i] - logits[best]) / temperature);
    for (last = 0; last + 1 < count; last++) {
        running += exp(((double)logits[last] - logits[best]) / temperature);
        if (running > uniform * sum)
            break;
    }
    return last;
}

/* How ids become text. */
struct output {
    struct mics_decoder *decoder; /* NULL: ids are bytes */
    uint32_t size, first, end;    /* ids in all; what a text begins with, and what ends it */
    char *text;
    size_t length, room; /* of `text` */
};

static enum mics_status open_output(const struct mics_sample_options *options, char *text,
                                    struct output *out, struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = options->tokenizer;

    *out = (struct output){.size = MICS_TOKEN_VOCAB_SIZE,
                           .first = MICS_TOKEN_END,
                           .end = MICS_TOKEN_END,
                           .text = text,
                           .room = options->count};
    if (!tokenizer || mics_tokenizer_is_bytes(tokenizer))
        return MICS_OK;
    out->size = mics_tokenizer_size(tokenizer);
    out->end = mics_tokenizer_end(tokenizer);
    out->first = mics_tokenizer_begin(tokenizer);
    if (out->first == MICS_NO_TOKEN)
        out->first = out->end == MICS_NO_TOKEN ? 0 : out->end;
    return mics_decoder_new(tokenizer, true, &out->decoder, err);
}

static void append(struct output *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size && out->length < out->room; i++)
        out->text[out->length++] = text[i] ? text[i] : '?';
}

static enum mics_status append_token(struct output *out, uint32_t token, struct mics_err *err)
{
    const char *text = "\n", byte = (char)token;
    size_t size = 1;
    enum mics_status status = MICS_OK;

    if (token != out->end && !out->decoder)
        text = &byte;
    else if (token != out->end)
        status = mics_decode(out->decoder, &token, 1, &text, &size, err);
    if (status == MICS_OK)
        append(out, text, size);
    return status;
}

/* The next token after tokens[*length], which is appended to them. */
static enum mics_status next_token(struct mics_engine *engine,
                                   const struct mics_sample_options *options, uint32_t size,
                                   double uniform, int32_t *tokens, uint32_t *length, float *logits,
                                   struct mics_err *err)
{
    enum mics_status status = mics_engine_logits(engine, tokens, *length, logits, err);

    if (status != MICS_OK)
        return status;
    if (*length == options->seq) { /* the context is full: drop its older half */
        *length -= (options->seq + 1) / 2;
        memmove(tokens, tokens + options->seq - *length, *length * sizeof *tokens);
    }
    tokens[(*length)++] = (int32_t)draw_token(logits, size, options->temperature, uniform);
    return MICS_OK;
}

enum mics_status mics_sample_generate(struct mics_engine *engine,
                                      const struct mics_sample_options *options, char *text,
                                      struct mics_err *err)
{
    int32_t *tokens = malloc(options->seq * sizeof *tokens);
    float *logits = malloc(options->vocab_size * sizeof *logits);
    struct output out;
    enum mics_status status = open_output(options, text, &out, err);
    uint32_t length = 1;

    if (status == MICS_OK && !(tokens && logits))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        tokens[0] = (int32_t)out.first;
    for (uint32_t i = 0; status == MICS_OK && i < options->count && out.length < out.room; i++) {
        status = next_token(engine, options, out.size,
                            mics_philox_uniform(options->seed, STREAM_SAMPLE, i), tokens, &length,
                            logits, err);
        if (status == MICS_OK)
            status = append_token(&out, (uint32_t)tokens[length - 1], err);
    }
    text[status == MICS_OK ? out.length : 0] = '\0';
    mics_decoder_free(out.decoder);
    free(tokens);
    free(logits);
    return status;
}

void mics_sample_make_printable(char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const unsigned char *byte = (const unsigned char *)text;
        const size_t length = mics_utf8_length(text, left);
        const bool c0 =
            length == 1 && ((*byte < 0x20 && *byte != '\n' && *byte != '\t') || *byte == 0x7f);
        const bool c1 = length == 2 && byte[0] == 0xc2 && byte[1] < 0xa0;
        const size_t used = length && !c1 ? length : 1;

        if (length == 0 || c0 || c1)
            *text = '?';
        text += used;
        left -= used;
    }
}
