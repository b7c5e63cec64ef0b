/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.c - tokenizers as llama.cpp has them.
 *
 * "gpt2" is BPE on bytes; how it cuts text is known by a name. "llama" is BPE as SentencePiece has
 * it: any two neighbours that are a token together may become it, the one with the highest score
 * first, so that scores say what merges say if these are complete and in order.
 */
#include "data/tokenizer_gguf.h"

#include "data/chat/template.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types of tokens. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

#define END_OF_BYTES "<|endoftext|>"

struct writer {
    const struct mics_tokenizer *tokenizer;
    uint32_t vocab_size;
    struct mics_gguf *gguf;
    struct mics_err *err;
};

static void add_text(const struct writer *writer, const char *key, const char *text)
{
    mics_gguf_add_string(writer->gguf, key, text, strlen(text));
}

/* The token of an id; NULL: the tokenizer does not have it. */
static const struct mics_token *token_of(const struct writer *writer, uint32_t id)
{
    const struct mics_vocab *vocab = &writer->tokenizer->vocab;

    return id < vocab->size && (vocab->tokens[id].flags & MICS_TOKEN_PRESENT) ? &vocab->tokens[id]
                                                                              : NULL;
}

/* ---- tokens ---- */

/* Append a token's text as files have it. */
static enum mics_status append_text(const struct writer *writer, uint32_t id,
                                    struct mics_text *text)
{
    const struct mics_tokenizer *tokenizer = writer->tokenizer;
    const struct mics_token *token = token_of(writer, id);
    const unsigned char byte = (unsigned char)id;
    char unused[32];

    if (tokenizer->is_bytes && id < 256)
        return mics_byte_level_encode(&byte, 1, text);
    if (tokenizer->is_bytes && id == tokenizer->end)
        return mics_text_append(text, END_OF_BYTES, strlen(END_OF_BYTES));
    if (!token) {
        const int length = snprintf(unused, sizeof unused, "[PAD%lu]", (unsigned long)id);

        return mics_text_append(text, unused, (size_t)length);
    }
    const unsigned char *bytes = tokenizer->vocab.text.bytes + token->offset;

    if (tokenizer->model.characters || (token->flags & MICS_TOKEN_ADDED))
        return mics_text_append(text, bytes, token->length);
    return mics_byte_level_encode(bytes, token->length, text);
}

static int type_of(const struct writer *writer, uint32_t id)
{
    const struct mics_tokenizer *tokenizer = writer->tokenizer;
    const struct mics_token *token = token_of(writer, id);

    if (tokenizer->is_bytes)
        return id < 256 ? NORMAL : id == tokenizer->end ? CONTROL : UNUSED;
    if (!token)
        return UNUSED;
    if (id == tokenizer->model.unknown)
        return UNKNOWN;
    if (token->flags & MICS_TOKEN_SPECIAL)
        return CONTROL;
    if (token->flags & MICS_TOKEN_BYTE)
        return BYTE;
    return token->flags & MICS_TOKEN_ADDED ? USER_DEFINED : NORMAL;
}

static enum mics_status add_tokens(const struct writer *writer)
{
    struct mics_text text = {0};
    enum mics_status status = MICS_OK;

    mics_gguf_add_array(writer->gguf, "tokenizer.ggml.tokens", MICS_GGUF_STRING,
                        writer->vocab_size);
    for (uint32_t id = 0; status == MICS_OK && id < writer->vocab_size; id++) {
        text.size = 0;
        status = append_text(writer, id, &text);
        if (status == MICS_OK)
            mics_gguf_put_string(writer->gguf, text.bytes, text.size);
    }
    free(text.bytes);
    if (status != MICS_OK)
        return mics_err_nomem(writer->err);
    mics_gguf_add_array(writer->gguf, "tokenizer.ggml.token_type", MICS_GGUF_I32,
                        writer->vocab_size);
    for (uint32_t id = 0; id < writer->vocab_size; id++)
        mics_gguf_put_i32(writer->gguf, type_of(writer, id));
    return MICS_OK;
}

/* ---- special tokens and settings ---- */

/* The text of the chat template; there may be none. */
static enum mics_status add_chat_template(const struct writer *writer,
                                          const struct mics_tokenizer_files *files,
                                          bool *no_default)
{
    struct mics_chat_template found;
    const enum mics_status status = mics_chat_template_find(files, &found, writer->err);

    if (status == MICS_OK && found.text)
        mics_gguf_add_string(writer->gguf, "tokenizer.chat_template", found.text, found.size);
    *no_default = found.unnamed;
    mics_chat_template_close(&found);
    return status;
}

static enum mics_status add_settings(const struct writer *writer)
{
    const struct mics_tokenizer *tokenizer = writer->tokenizer;
    const bool begins = tokenizer->before_count == 1, ends = tokenizer->after_count == 1;
    const uint32_t begin = mics_tokenizer_begin(tokenizer);
    const enum mics_status status = mics_tokenizer_need_end(tokenizer, writer->err);

    if (status != MICS_OK)
        return status;
    if (tokenizer->before_count > 1 || tokenizer->after_count > 1 ||
        (ends && tokenizer->after[0] != tokenizer->end))
        return mics_err_set(writer->err, MICS_ERR_FORMAT,
                            "its post-processor adds more than a beginning and an end to a text");
    mics_gguf_add_u32(writer->gguf, "tokenizer.ggml.bos_token_id",
                      begin == MICS_NO_TOKEN ? tokenizer->end : begin);
    mics_gguf_add_u32(writer->gguf, "tokenizer.ggml.eos_token_id", tokenizer->end);
    mics_gguf_add_bool(writer->gguf, "tokenizer.ggml.add_bos_token", begins);
    mics_gguf_add_bool(writer->gguf, "tokenizer.ggml.add_eos_token", ends);
    if (!tokenizer->is_bytes && tokenizer->model.unknown != MICS_NO_TOKEN)
        mics_gguf_add_u32(writer->gguf, "tokenizer.ggml.unknown_token_id",
                          tokenizer->model.unknown);
    return MICS_OK;
}

/* Does text stay as it is but for what decoding undoes? */
static enum mics_status check_probe(const struct writer *writer)
{
    static const char text[] = "x  A \xc3\x89\xef\xac\x81\xe2\x91\xa0 \n\t z ";
    struct mics_encoder *encoder = NULL;
    struct mics_decoder *decoder = NULL;
    const uint32_t *ids;
    const char *some = "", *rest = "";
    size_t count, size = 0, rest_size = 0;
    bool same = false;
    enum mics_status status = mics_encoder_new(writer->tokenizer, &encoder, writer->err);

    if (status == MICS_OK)
        status = mics_decoder_new(writer->tokenizer, false, &decoder, writer->err);
    if (status == MICS_OK)
        status = mics_encode(encoder, text, sizeof text - 1, 0, &ids, &count, NULL, writer->err);
    if (status == MICS_OK)
        status = mics_decode(decoder, ids, count, &some, &size, writer->err);
    if (status == MICS_OK) {
        same = size <= sizeof text - 1 && memcmp(some, text, size) == 0;
        status = mics_decode_end(decoder, &rest, &rest_size, writer->err);
    }
    if (status == MICS_OK &&
        !(same && size + rest_size == sizeof text - 1 && memcmp(rest, text + size, rest_size) == 0))
        status = mics_err_set(writer->err, MICS_ERR_FORMAT,
                              "its normalizer changes text, which llama.cpp does not");
    mics_encoder_free(encoder);
    mics_decoder_free(decoder);
    return status;
}

/* llama.cpp has no normalizers but for spaces of SentencePiece. What NFC changes has other ids
 * there, as the manual says; most text is in NFC. */
static enum mics_status check_normalizer(const struct writer *writer)
{
    const struct mics_tokenizer *tokenizer = writer->tokenizer;
    const struct mics_normalizer *normalizer = &tokenizer->normalizer;
    const bool allowed = tokenizer->model.characters ? normalizer->metaspace : normalizer->composes;

    if (normalizer->apply && !allowed)
        return mics_err_set(writer->err, MICS_ERR_FORMAT,
                            "its normalizer changes text, which llama.cpp does not");
    for (uint32_t i = 0; i < tokenizer->added.count; i++) {
        const struct mics_added_token *token = &tokenizer->added.tokens[i];

        if (token->single_word || token->strip_left || token->strip_right)
            return mics_err_set(writer->err, MICS_ERR_FORMAT,
                                "token %lu has \"%s\", which GGUF cannot say",
                                (unsigned long)token->id,
                                token->single_word  ? "single_word"
                                : token->strip_left ? "lstrip"
                                                    : "rstrip");
    }
    return check_probe(writer);
}

/* ---- BPE on bytes ---- */

/* The names by which llama.cpp knows how text is cut. */
static const struct {
    enum mics_split_kind kind;
    const char *name;
    bool whole_first; /* a piece that is a token is that token */
} splits[] = {
    {MICS_SPLIT_GPT2, "gpt-2", false},
    {MICS_SPLIT_LLAMA3, "llama-bpe", true},
    {MICS_SPLIT_QWEN2, "qwen2", false},
};

/* Do merges make each token of its own text? Then it does not matter whether whole pieces are
 * looked up first. */
static enum mics_status check_reachable(const struct writer *writer)
{
    const struct mics_vocab *vocab = &writer->tokenizer->vocab;
    struct mics_model model = writer->tokenizer->model; /* borrows */
    struct mics_model_memory memory = {0};
    struct mics_ids ids = {0};
    enum mics_status status = MICS_OK;

    model.bpe.whole_first = false;
    for (uint32_t id = 0; status == MICS_OK && id < vocab->size; id++) {
        const struct mics_token *token = token_of(writer, id);

        if (!token || !(token->flags & MICS_TOKEN_MODEL) || (token->flags & MICS_TOKEN_ADDED))
            continue;
        ids.count = 0;
        status = mics_ids_reserve(&ids, token->length);
        if (status == MICS_OK)
            status = mics_model_encode(&model, vocab, vocab->text.bytes + token->offset,
                                       token->length, &memory, &ids);
        if (status != MICS_OK)
            mics_err_nomem(writer->err);
        else if (ids.count != 1)
            status = mics_err_set(
                writer->err, MICS_ERR_FORMAT, "its merges do not make token %lu, and llama.cpp %s",
                (unsigned long)id,
                writer->tokenizer->model.bpe.whole_first ? "would not look it up first"
                                                         : "would look it up first");
    }
    mics_model_memory_fini(&memory);
    free(ids.ids);
    return status;
}

static enum mics_status add_split(const struct writer *writer)
{
    const struct mics_tokenizer *tokenizer = writer->tokenizer;

    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        if (splits[i].kind != tokenizer->splitter.kind || tokenizer->pretokenizer.apply)
            continue;
        add_text(writer, "tokenizer.ggml.pre", splits[i].name);
        return splits[i].whole_first == tokenizer->model.bpe.whole_first ? MICS_OK
                                                                         : check_reachable(writer);
    }
    return mics_err_set(writer->err, MICS_ERR_FORMAT,
                        "it does not cut text as GPT-2, Llama 3 or Qwen2 does, and no other way "
                        "is known by a name in GGUF here");
}

static int by_rank(const void *a, const void *b)
{
    const struct mics_merge *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* *list[*count] = all merges, sorted; the caller's. */
static enum mics_status list_merges(const struct writer *writer, struct mics_merge **list,
                                    size_t *count)
{
    const struct mics_bpe *bpe = &writer->tokenizer->model.bpe;

    *count = 0;
    *list = malloc(((size_t)bpe->merge_count + 1) * sizeof **list);
    if (!*list)
        return mics_err_nomem(writer->err);
    for (uint32_t i = 0; i < bpe->merge_slots && *count < bpe->merge_count; i++)
        if (bpe->merges[i].left != MICS_NO_TOKEN)
            (*list)[(*count)++] = bpe->merges[i];
    qsort(*list, *count, sizeof **list, by_rank);
    return MICS_OK;
}

static enum mics_status add_merges(const struct writer *writer)
{
    struct mics_merge *merges = NULL;
    struct mics_text text = {0};
    size_t count = 0;
    enum mics_status status = list_merges(writer, &merges, &count);

    if (status != MICS_OK)
        return status;
    mics_gguf_add_array(writer->gguf, "tokenizer.ggml.merges", MICS_GGUF_STRING, count);
    for (size_t i = 0; status == MICS_OK && i < count; i++) {
        text.size = 0;
        status = append_text(writer, merges[i].left, &text);
        if (status == MICS_OK)
            status = mics_text_append(&text, " ", 1);
        if (status == MICS_OK)
            status = append_text(writer, merges[i].right, &text);
        mics_gguf_put_string(writer->gguf, text.bytes, text.size);
    }
    free(text.bytes);
    free(merges);
    return status == MICS_OK ? status : mics_err_nomem(writer->err);
}

static enum mics_status add_byte_level(const struct writer *writer)
{
    enum mics_status status = MICS_OK;

    add_text(writer, "tokenizer.ggml.model", "gpt2");
    if (writer->tokenizer->is_bytes) /* without merges, cuts do not matter */
        add_text(writer, "tokenizer.ggml.pre", "gpt-2");
    else
        status = add_split(writer);
    if (status == MICS_OK && !writer->tokenizer->is_bytes)
        status = check_normalizer(writer);
    if (status == MICS_OK)
        status = add_tokens(writer);
    return status == MICS_OK ? add_merges(writer) : status;
}

/* ---- BPE of SentencePiece ---- */

static bool begins_character(unsigned char byte)
{
    return (byte & 0xc0) != 0x80;
}

/* Any two tokens that are a token together must be a merge. */
static enum mics_status check_complete(const struct writer *writer)
{
    const struct mics_vocab *vocab = &writer->tokenizer->vocab;

    for (uint32_t id = 0; id < vocab->size; id++) {
        const struct mics_token *token = token_of(writer, id);

        if (!token || !(token->flags & MICS_TOKEN_MODEL) ||
            (token->flags & (MICS_TOKEN_BYTE | MICS_TOKEN_ADDED | MICS_TOKEN_SPECIAL)))
            continue;
        const unsigned char *text = vocab->text.bytes + token->offset;

        for (uint32_t cut = 1; cut < token->length; cut++) {
            if (!begins_character(text[cut]))
                continue;
            const uint32_t left = mics_vocab_find(vocab, text, cut);
            const uint32_t right = mics_vocab_find(vocab, text + cut, token->length - cut);

            if (left != MICS_NO_TOKEN && right != MICS_NO_TOKEN &&
                !mics_bpe_find_merge(&writer->tokenizer->model.bpe, left, right))
                return mics_err_set(writer->err, MICS_ERR_FORMAT,
                                    "tokens %lu and %lu do not become token %lu, as they would "
                                    "in SentencePiece and llama.cpp",
                                    (unsigned long)left, (unsigned long)right, (unsigned long)id);
        }
    }
    return MICS_OK;
}

/* scores[vocab_size] by the order in which merges, which are sorted, make tokens. */
static enum mics_status score_merges(const struct writer *writer, const struct mics_merge *merges,
                                     size_t count, float *scores)
{
    float score = 0;

    for (size_t i = 0; i < count; i++) {
        if (merges[i].id >= writer->vocab_size)
            continue;
        if (i == 0 || (merges[i].id != merges[i - 1].id && merges[i].rank != merges[i - 1].rank))
            score--;
        float *const of = &scores[merges[i].id];

        if (*of != 0 && *of != score)
            return mics_err_set(writer->err, MICS_ERR_FORMAT,
                                "merges that make token %lu have others between them, which scores "
                                "cannot say",
                                (unsigned long)merges[i].id);
        *of = score;
    }
    return MICS_OK;
}

static enum mics_status add_scores(const struct writer *writer)
{
    struct mics_merge *merges = NULL;
    float *scores = calloc(writer->vocab_size, sizeof *scores);
    size_t count = 0;
    enum mics_status status =
        scores ? list_merges(writer, &merges, &count) : mics_err_nomem(writer->err);

    if (status == MICS_OK)
        status = score_merges(writer, merges, count, scores);
    if (status == MICS_OK) {
        mics_gguf_add_array(writer->gguf, "tokenizer.ggml.scores", MICS_GGUF_FLOAT32,
                            writer->vocab_size);
        for (uint32_t id = 0; id < writer->vocab_size; id++)
            mics_gguf_put_f32(writer->gguf, scores[id]);
    }
    free(merges);
    free(scores);
    return status;
}

static bool begins_with_mark(const struct writer *writer, uint32_t id)
{
    const struct mics_token *token = token_of(writer, id);
    const size_t length = strlen(MICS_METASPACE);

    return token && token->length >= length &&
           memcmp(writer->tokenizer->vocab.text.bytes + token->offset, MICS_METASPACE, length) == 0;
}

/* *marks: a space becomes U+2581; *prefix: a text begins with one of its own. */
static enum mics_status find_marks(const struct writer *writer, bool *marks, bool *prefix)
{
    struct mics_encoder *encoder = NULL;
    const uint32_t *ids = NULL;
    size_t count = 0;
    enum mics_status status = mics_encoder_new(writer->tokenizer, &encoder, writer->err);

    if (status == MICS_OK)
        status = mics_encode(encoder, "a b", 3, 0, &ids, &count, NULL, writer->err);
    *prefix = status == MICS_OK && count > 0 && begins_with_mark(writer, ids[0]);
    *marks = false;
    for (size_t i = 1; status == MICS_OK && i < count; i++)
        *marks = *marks || begins_with_mark(writer, ids[i]);
    mics_encoder_free(encoder);
    return status;
}

static enum mics_status add_pieces(const struct writer *writer)
{
    const struct mics_tokenizer *tokenizer = writer->tokenizer;
    bool marks = false, prefix = false;
    enum mics_status status = find_marks(writer, &marks, &prefix);

    if (status == MICS_OK &&
        (!tokenizer->model.byte_fallback || !marks || mics_pretokenizer_cuts(tokenizer)))
        status = mics_err_set(writer->err, MICS_ERR_FORMAT,
                              "it is BPE of characters, but not as SentencePiece has it for Llama: "
                              "in whole texts, with tokens of bytes for unknown characters");
    if (status == MICS_OK)
        status = check_normalizer(writer);
    if (status == MICS_OK)
        status = check_complete(writer);
    if (status != MICS_OK)
        return status;
    add_text(writer, "tokenizer.ggml.model", "llama");
    add_text(writer, "tokenizer.ggml.pre", "default");
    mics_gguf_add_bool(writer->gguf, "tokenizer.ggml.add_space_prefix", prefix);
    status = add_tokens(writer);
    return status == MICS_OK ? add_scores(writer) : status;
}

enum mics_status mics_tokenizer_add_to_gguf(const struct mics_disk_tokenizer *from,
                                            uint32_t vocab_size, struct mics_gguf *gguf,
                                            bool *no_default, struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = from->tokenizer;
    const struct writer writer = {tokenizer, vocab_size, gguf, err};
    enum mics_status status;

    *no_default = false;
    if (!tokenizer) {
        add_text(&writer, "tokenizer.ggml.model", "none");
        return MICS_OK;
    }
    if (mics_tokenizer_text_size(tokenizer) > vocab_size)
        status = mics_err_set(err, MICS_ERR_FORMAT, "it has %lu ids, the model %lu",
                              (unsigned long)mics_tokenizer_text_size(tokenizer),
                              (unsigned long)vocab_size);
    else if (!tokenizer->is_bytes && tokenizer->model.kind != MICS_MODEL_BPE)
        status =
            mics_err_set(err, MICS_ERR_FORMAT, "%s cannot be written as GGUF",
                         tokenizer->model.kind == MICS_MODEL_UNIGRAM ? "Unigram" : "WordPiece");
    else if (tokenizer->is_bytes || !tokenizer->model.characters)
        status = add_byte_level(&writer);
    else
        status = add_pieces(&writer);
    if (status == MICS_OK)
        status = add_settings(&writer);
    if (status == MICS_OK)
        status = add_chat_template(&writer, &from->files, no_default);
    if (status != MICS_OK)
        mics_err_prefix(err, "tokenizer");
    return status;
}
