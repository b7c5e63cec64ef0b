/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texts.h - continues prompts, several at a time, and passes the text on as it is made.
 *
 * Each prompt becomes a text of its own, which does not depend on the others. When a text ends, the
 * next prompt takes its place. Texts are passed on in the order of the prompts: what a later text
 * has made waits until the earlier ones have ended.
 */
#ifndef MICS_SAMPLE_TEXTS_H
#define MICS_SAMPLE_TEXTS_H

#include "data/tokenizer.h"
#include "model/generate.h"
#include "sample/sampler.h"

/* Why a text ended: a token that ends documents, a stop string, the number of tokens asked for, or
 * the longest sequence that the model takes. */
enum mics_text_end { MICS_TEXT_END_OF_DOCUMENT, MICS_TEXT_STOP, MICS_TEXT_LENGTH, MICS_TEXT_LIMIT };

/* "end", "stop", "length", "limit" */
const char *mics_text_end_name(enum mics_text_end end);

/* A text that is complete. Borrowed. */
struct mics_text_result {
    uint64_t number;     /* of the prompt, from 0 on */
    const uint32_t *ids; /* without the one that ended it */
    size_t count;
    const char *text; /* all of it */
    size_t size;
    enum mics_text_end end;
};

/* Everything outlives the call. */
struct mics_texts_options {
    struct mics_generator *generator;
    uint32_t sequences;   /* of the generator, up to MICS_GENERATE_ROWS */
    uint32_t logits_size; /* the model's vocabulary */
    struct mics_sampler *sampler;
    /* NULL: the text is the ids, as numbers with blanks between. */
    const struct mics_tokenizer *tokenizer;
    bool keep_special;    /* print special tokens, too */
    const uint32_t *ends; /* ids that end a text */
    size_t end_count;
    const char *const *stops; /* strings, not empty, at which it ends; they are not part of it */
    size_t stop_count;
    uint32_t max_tokens;     /* of each text */
    uint64_t max_characters; /* likewise; 0: any number */
    /* Not 0: only these two end a text. A token that ends texts becomes a newline, and of as many
     * tokens, once the sequence has them, the older half is forgotten. */
    uint32_t context_tokens;

    /* The next prompt: at least one id, valid until the next call. *count 0: there is none. */
    enum mics_status (*next)(void *context, const uint32_t **ids, size_t *count,
                             struct mics_err *err);
    /* More of text `number`: whole characters. NULL: not wanted. */
    enum mics_status (*more)(void *context, uint64_t number, const char *text, size_t size,
                             struct mics_err *err);
    enum mics_status (*done)(void *context, const struct mics_text_result *result,
                             struct mics_err *err);
    void *context;
};

struct mics_texts_times {
    uint64_t prompt_tokens, tokens; /* tokens: of all texts, without the first of each */
    double prompt_s, s;             /* which is made with the prompt */
};

/* MICS_ERR_FORMAT: a prompt is longer than the model's limit, or has an id outside of its
 * vocabulary; with the number of the prompt, from 1 on. */
enum mics_status mics_texts_run(const struct mics_texts_options *options,
                                struct mics_texts_times *times, struct mics_err *err);

#endif
