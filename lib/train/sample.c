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

enum mics_status mics_sample_generate(struct mics_engine *engine,
                                      const struct mics_sample_options *options, char *text,
                                      struct mics_err *err)
{
    int32_t *tokens = malloc(options->seq * sizeof *tokens);
    float *logits = malloc(options->vocab_size * sizeof *logits);
    enum mics_status status = tokens && logits ? MICS_OK : mics_err_nomem(err);
    uint32_t length = 1;

    if (status == MICS_OK)
        tokens[0] = MICS_TOKEN_END;
    for (uint32_t i = 0; status == MICS_OK && i < options->count; i++) {
        const double uniform = mics_philox_uniform(options->seed, STREAM_SAMPLE, i);

        status = mics_engine_logits(engine, tokens, length, logits, err);
        if (status != MICS_OK)
            break;
        const int32_t token =
            (int32_t)draw_token(logits, MICS_TOKEN_VOCAB_SIZE, options->temperature, uniform);

        text[i] = token == MICS_TOKEN_END ? '\n' : token == 0 ? '?' : (char)token;
        if (length == options->seq) { /* the context is full: drop its older half */
            length -= (options->seq + 1) / 2;
            memmove(tokens, tokens + options->seq - length, length * sizeof *tokens);
        }
        tokens[length++] = token;
    }
    text[status == MICS_OK ? options->count : 0] = '\0';
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
