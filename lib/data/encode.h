/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.h - text files to a file of tokens, on all cores, in memory that does not depend on their
 * size.
 *
 * A file is a document; of JSON lines each line is one, or with a chat template a conversation. A
 * document is the token that
 * begins a text, if the tokenizer has one, its tokens, and the token that ends it, likewise, as in
 * encoded.h. Files are in the order of the corpus, and the result does not depend on the number of
 * threads.
 */
#ifndef MICS_DATA_ENCODE_H
#define MICS_DATA_ENCODE_H

#include "base/progress.h"
#include "data/chat/chat.h"
#include "data/corpus.h"
#include "data/json_line.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

/* Bytes between two places where a tokenizer allows to cut a text, and of a JSON line, at most. */
#define MICS_ENCODE_MAX_PIECE ((uint64_t)64 << 20)

struct mics_encode_options {
    const struct mics_tokenizer *tokenizer;
    const char *field;                /* of JSON lines, with the text */
    const struct mics_chat *chat;     /* JSON lines are conversations, and nothing else; or NULL */
    bool mask_prompt;                 /* of conversations; the writer keeps prompts */
    bool special;                     /* special tokens in the text become their ids */
    uint64_t bad_lines;               /* damaged JSON lines that are skipped, at most */
    mics_progress_callback *progress; /* bytes of text; NULL is fine */
    void *progress_context;
};

struct mics_encode_report {
    uint64_t bytes, documents, tokens;
    uint64_t prompts; /* tokens of prompts, with mask_prompt */
    uint64_t special; /* special tokens in the text that were taken as ordinary text */
    struct mics_bad_lines bad_lines;
};

/* Encode all text of a corpus that mics_corpus_find() found, with one thread per core, and append
 * it to `writer`. Files are opened one after another, and closed. Documents without text are left
 * out. MICS_ERR_FORMAT, with file and line: more lines than `bad_lines` are no objects with a
 * string `field`, or no conversations that the chat template takes; a file of text with a chat
 * template; more than MICS_ENCODE_MAX_PIECE bytes in which the text cannot be cut; a NUL in text,
 * unless corpus->binary; or what mics_document_open(), mics_encode() or the writer refuses. */
enum mics_status mics_encode_corpus(struct mics_corpus *corpus,
                                    const struct mics_encode_options *options,
                                    struct mics_token_writer *writer,
                                    struct mics_encode_report *report, struct mics_err *err);

#endif
