/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sample.h"

#include "base/philox.h"
#include "data/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_SAMPLE ((uint64_t)0x73616d706c65 << 16)

uint32_t mics_sample_pick(const float *logits, uint32_t count, double temperature, double uniform)
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

enum mics_status mics_sample(struct mics_engine *engine, const struct mics_sample_options *options,
                             char *text, struct mics_err *err)
{
    int32_t *tokens = malloc(options->seq * sizeof *tokens);
    float *logits = malloc(options->vocab_size * sizeof *logits);
    enum mics_status status = tokens && logits ? MICS_OK : mics_err_nomem(err);
    uint32_t length = 1;

    if (status == MICS_OK)
        tokens[0] = MICS_TOKEN_END;
    for (uint32_t i = 0; status == MICS_OK && i < options->count; i++) {
        double uniform = mics_philox_uniform(options->seed, STREAM_SAMPLE, i);

        status = mics_engine_logits(engine, tokens, length, logits, err);
        if (status != MICS_OK)
            break;
        int32_t token =
            (int32_t)mics_sample_pick(logits, MICS_TOKEN_KINDS, options->temperature, uniform);
        text[i] = token == MICS_TOKEN_END ? '\n' : token == 0 ? '?' : (char)token;
        if (length == options->seq) { /* forget the older half */
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

/* Bytes of the UTF-8 character that begins here, or 0. */
static size_t utf8_length(const unsigned char *s)
{
    size_t length = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : 0;

    if (length == 0 && *s >= 0xf0 && *s < 0xf5)
        length = 4;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

void mics_sample_make_printable(char *text)
{
    unsigned char *s = (unsigned char *)text;

    while (*s) {
        size_t length = utf8_length(s);
        bool control = length == 1 && ((*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7f);
        bool high = length == 2 && s[0] == 0xc2 && s[1] < 0xa0; /* C1 controls */

        if (length == 0 || control || high)
            *s = '?';
        s += length && !high ? length : 1;
    }
}
