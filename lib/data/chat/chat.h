/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - conversations as text and tokens, as a model's chat template makes them.
 *
 * The text and its ids are those of transformers' apply_chat_template(messages, tools), without a
 * generation prompt. Templates are programs in Jinja, of which nothing is executed:
 * shape.h tells which of the known ones a model has (formats.c), and all others are refused. As in
 * transformers the whole text is encoded at once, so that text that looks like a special token is
 * that token, also in what users wrote, and no token is put around the text.
 *
 * A conversation is a JSON object with "messages", each with a "role" and a "content" or, of the
 * assistant, "tool_calls", and perhaps with "tools", in the form of OpenAI's interface; or with
 * "instruction", perhaps "input", and "output"; or with "prompt" and "response", "completion" or
 * "answer", with perhaps a "system".
 */
#ifndef MICS_DATA_CHAT_CHAT_H
#define MICS_DATA_CHAT_CHAT_H

#include "data/chat/buffer.h"
#include "data/tokenizer.h"

#include <jansson.h>

/* Immutable once open: any number of threads may use it. */
struct mics_chat;

/* The format of the chat template in a tokenizer's files; with `name`, one of the format of that
 * name: the template's own, if it has it, else the plainest. MICS_ERR_ARG: there is no such format,
 * or SOURCE_DATE_EPOCH is no time. MICS_ERR_FORMAT: there is no template, or none that is known, or
 * no eos_token where the format has one. The tokenizer outlives *out. */
enum mics_status mics_chat_open(const struct mics_tokenizer *tokenizer,
                                const struct mics_tokenizer_files *files, const char *name,
                                struct mics_chat **out, struct mics_err *err);
void mics_chat_free(struct mics_chat *chat); /* NULL is fine */

/* "chatml" */
const char *mics_chat_name(const struct mics_chat *chat);
/* A marker of a format that is not the template's own, such as <|im_end|>, that the tokenizer
 * encodes in pieces; NULL: none. */
const char *mics_chat_split_marker(const struct mics_chat *chat);
/* The names of all formats, separated by ", ", in buf. Returns buf. */
const char *mics_chat_names(char *buf, size_t size);

/* The text of a conversation, and which parts of it a model has to learn: what the assistant said,
 * and the token that ends its turn. All zeros is empty. */
struct mics_chat_text {
    struct mics_chat_buffer text;
    struct mics_chat_part {
        size_t begin, end;
    } * answers; /* [answer_count] in order, in bytes of the text */
    size_t answer_count, answer_capacity;
};

void mics_chat_text_free(struct mics_chat_text *text);

/* Replace *out by the text of a conversation. MICS_ERR_FORMAT: it is not one, or not one that the
 * template takes; without file and line. */
enum mics_status mics_chat_render(const struct mics_chat *chat, const json_t *object,
                                  struct mics_chat_text *out, struct mics_err *err);

/* Append the ids of a text to *ids (as uint32_t); those of tokens that have no byte of an answer
 * have MICS_TOKEN_PROMPT (tokens.h). */
enum mics_status mics_chat_encode(struct mics_encoder *encoder,
                                  const struct mics_tokenizer *tokenizer,
                                  const struct mics_chat_text *text, struct mics_chat_buffer *ids,
                                  struct mics_err *err);

#endif
