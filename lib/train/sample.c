/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sample.h"

#include "data/tokens.h"
#include "sample/sampler.h"

#include <stdlib.h>
#include <string.h>

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

/* What the decoder keeps, since it may still change. */
static enum mics_status append_rest(struct output *out, struct mics_err *err)
{
    const char *text = "";
    size_t size = 0;
    const enum mics_status status =
        out->decoder ? mics_decode_end(out->decoder, &text, &size, err) : MICS_OK;

    if (status == MICS_OK)
        append(out, text, size);
    return status;
}

static enum mics_status append_token(struct output *out, uint32_t token, struct mics_err *err)
{
    const char *text = "\n", byte = (char)token;
    size_t size = 1;
    enum mics_status status = MICS_OK;

    if (token == out->end)
        status = append_rest(out, err);
    else if (!out->decoder)
        text = &byte;
    else
        status = mics_decode(out->decoder, &token, 1, &text, &size, err);
    if (status == MICS_OK)
        append(out, text, size);
    return status;
}

/* The next token after tokens[*length], which is appended to them. */
static enum mics_status next_token(struct mics_engine *engine,
                                   const struct mics_sample_options *options,
                                   struct mics_sampler *sampler, uint32_t index, int32_t *tokens,
                                   uint32_t *length, float *logits, struct mics_err *err)
{
    enum mics_status status = mics_engine_logits(engine, tokens, *length, logits, err);

    if (status != MICS_OK)
        return status;
    if (*length == options->seq) { /* the context is full: drop its older half */
        *length -= (options->seq + 1) / 2;
        memmove(tokens, tokens + options->seq - *length, *length * sizeof *tokens);
    }
    tokens[(*length)++] = (int32_t)mics_sampler_draw(sampler, logits, 0, index);
    return MICS_OK;
}

enum mics_status mics_sample_generate(struct mics_engine *engine,
                                      const struct mics_sample_options *options, char *text,
                                      struct mics_err *err)
{
    const struct mics_sampler_options draws = {
        .temperature = options->temperature, .top_p = 1, .seed = options->seed};
    int32_t *tokens = malloc(options->seq * sizeof *tokens);
    float *logits = malloc(options->vocab_size * sizeof *logits);
    struct mics_sampler *sampler = NULL;
    struct output out;
    enum mics_status status = open_output(options, text, &out, err);
    uint32_t length = 1;

    if (status == MICS_OK)
        status = mics_sampler_new(&draws, out.size, &sampler, err);
    if (status == MICS_OK && !(tokens && logits))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        tokens[0] = (int32_t)out.first;
    for (uint32_t i = 0; status == MICS_OK && i < options->count && out.length < out.room; i++) {
        status = next_token(engine, options, sampler, i, tokens, &length, logits, err);
        if (status == MICS_OK)
            status = append_token(&out, (uint32_t)tokens[length - 1], err);
    }
    if (status == MICS_OK)
        status = append_rest(&out, err);
    text[status == MICS_OK ? out.length : 0] = '\0';
    mics_decoder_free(out.decoder);
    mics_sampler_free(sampler);
    free(tokens);
    free(logits);
    return status;
}
