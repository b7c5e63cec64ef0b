/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_fill.h"

#include "base/utf8.h"
#include "model/fill.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The candidates of one mask, likeliest first; of equal ones the lower id first. */
struct candidate {
    uint32_t id;
    double probability;
};

static void choose(const float *logits, uint32_t logits_size, uint32_t vocab, uint32_t count,
                   struct candidate *out)
{
    double most = logits[0], sum = 0;
    uint32_t found = 0;

    for (uint32_t i = 1; i < logits_size; i++)
        most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < logits_size; i++)
        sum += exp((double)logits[i] - most);
    for (uint32_t i = 0; i < vocab; i++) {
        const double probability = exp((double)logits[i] - most) / sum;
        uint32_t at = found < count ? found++ : count;

        for (; at > 0 && out[at - 1].probability < probability; at--)
            if (at < count)
                out[at] = out[at - 1];
        if (at < count)
            out[at] = (struct candidate){i, probability};
    }
}

/* A token's text, which the caller frees; NULL: out of memory. */
static char *decode(const struct mics_tokenizer *tokenizer, uint32_t id)
{
    struct mics_decoder *decoder = NULL;
    const char *text[2] = {"", ""};
    size_t size[2] = {0, 0};
    char *copy = NULL, *longer = NULL;
    struct mics_err err;

    if (mics_decoder_new(tokenizer, false, &decoder, &err) == MICS_OK &&
        mics_decode(decoder, &id, 1, &text[0], &size[0], &err) == MICS_OK)
        copy = strndup(text[0], size[0]);
    if (copy && mics_decode_end(decoder, &text[1], &size[1], &err) == MICS_OK)
        longer = realloc(copy, size[0] + size[1] + 1);
    if (longer) {
        memcpy(longer + size[0], text[1], size[1]);
        longer[size[0] + size[1]] = '\0';
    } else {
        free(copy);
    }
    mics_decoder_free(decoder);
    return longer;
}

static enum mics_status print_lines(const struct sample_fill *fill, size_t mask,
                                    const struct candidate *candidates, FILE *out,
                                    struct mics_err *err)
{
    for (uint32_t i = 0; i < fill->count; i++) {
        char *text = decode(fill->tokenizer, candidates[i].id);

        if (!text)
            return mics_err_nomem(err);
        mics_utf8_make_printable(text, strlen(text));
        fprintf(out, "%zu\t%.6f\t%u\t%s\n", mask + 1, candidates[i].probability, candidates[i].id,
                text);
        free(text);
    }
    return MICS_OK;
}

static int add_json(const struct sample_fill *fill, const struct candidate *candidates,
                    json_t *masks)
{
    json_t *list = json_array();
    int failed = list == NULL;

    for (uint32_t i = 0; i < fill->count; i++) {
        char *text = decode(fill->tokenizer, candidates[i].id);

        failed |= !text || json_array_append_new(
                               list, json_pack("{s:f,s:I,s:s}", "score", candidates[i].probability,
                                               "id", (json_int_t)candidates[i].id, "token", text));
        free(text);
    }
    return failed | json_array_append_new(masks, list);
}

static enum mics_status print_masks(const struct sample_fill *fill, const char *text, size_t size,
                                    const float *logits, size_t masks, FILE *out,
                                    struct mics_err *err)
{
    const uint32_t vocab = fill->weights->model->config.vocab_size;
    struct candidate *candidates = calloc(fill->count, sizeof *candidates);
    json_t *list = json_array(), *line = NULL;
    enum mics_status status = candidates && list ? MICS_OK : mics_err_nomem(err);
    int failed = 0;

    for (size_t i = 0; status == MICS_OK && i < masks; i++) {
        choose(logits + i * vocab, vocab, fill->vocab, fill->count, candidates);
        if (fill->json)
            failed |= add_json(fill, candidates, list);
        else
            status = print_lines(fill, i, candidates, out, err);
    }
    if (status == MICS_OK && fill->json) {
        line = json_pack("{s:s%,s:O}", "prompt", text, size, "masks", list);
        failed |= !line || json_dumpf(line, out, JSON_COMPACT) != 0 || fputc('\n', out) == EOF;
        if (failed)
            status = mics_err_set(err, MICS_ERR_IO, "cannot print the prompt as JSON");
    }
    json_decref(line);
    json_decref(list);
    free(candidates);
    if (status == MICS_OK && fflush(out) != 0)
        status = mics_err_set_errno(err, "standard output");
    return status;
}

enum mics_status sample_fill_print(const struct sample_fill *fill, uint64_t number,
                                   const char *text, size_t size, const uint32_t *ids, size_t count,
                                   FILE *out, struct mics_err *err)
{
    const size_t vocab = fill->weights->model->config.vocab_size;
    uint32_t *positions = calloc(count, sizeof *positions), masks = 0;
    float *logits = NULL;
    enum mics_status status = positions ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; positions && i < count; i++)
        if (ids[i] == fill->mask)
            positions[masks++] = (uint32_t)i;
    if (status == MICS_OK && masks == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "has no mask");
    if (status == MICS_OK) {
        logits = calloc(masks * vocab, sizeof *logits);
        status = logits ? MICS_OK : mics_err_nomem(err);
    }
    if (status == MICS_OK)
        status = mics_fill_logits(&(struct mics_fill_options){.model = fill->weights->model,
                                                              .params = fill->weights->params,
                                                              .pool = fill->pool,
                                                              .tokens = (const int32_t *)ids,
                                                              .count = (uint32_t)count,
                                                              .positions = positions,
                                                              .position_count = masks},
                                  logits, err);
    if (status == MICS_OK)
        status = print_masks(fill, text, size, logits, masks, out, err);
    else
        mics_err_prefix(err, "prompt %llu", (unsigned long long)number);
    free(positions);
    free(logits);
    return status == MICS_ERR_ARG ? MICS_ERR_FORMAT : status;
}
