/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - what makes ids of a piece, whatever its kind. */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* The score of an unknown character of Unigram is that much below the lowest. */
#define UNKNOWN_PENALTY 10.0

void mics_model_init(struct mics_model *model)
{
    *model = (struct mics_model){.unknown = MICS_NO_TOKEN};
    memset(model->byte_ids, 0xff, sizeof model->byte_ids);
}

void mics_model_find_bytes(struct mics_model *model, const struct mics_vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        const unsigned char text = (unsigned char)byte;

        model->byte_ids[byte] = mics_vocab_find(vocab, &text, 1);
    }
}

void mics_model_fini(struct mics_model *model)
{
    free(model->bpe.merges);
    free(model->wordpiece.prefix);
    mics_trie_fini(&model->wordpiece.first);
    mics_trie_fini(&model->wordpiece.next);
    free(model->unigram.scores);
    mics_trie_fini(&model->unigram.trie);
    mics_model_init(model);
}

/* Make a trie of the texts that begin with `prefix`, without it; special tokens are not in it. */
static enum mics_status make_trie(const struct mics_vocab *vocab, const char *prefix,
                                  struct mics_trie *out)
{
    struct mics_trie_text *texts = malloc((vocab->size + (size_t)1) * sizeof *texts);
    const size_t length = strlen(prefix);
    size_t count = 0;
    enum mics_status status;

    if (!texts)
        return MICS_ERR_NOMEM;
    for (uint32_t id = 0; id < vocab->size; id++) {
        const struct mics_token *token = &vocab->tokens[id];
        const unsigned char *bytes = vocab->text.bytes + token->offset;

        if ((token->flags & MICS_TOKEN_MODEL) != 0 && (token->flags & MICS_TOKEN_SPECIAL) == 0 &&
            token->length > length && memcmp(bytes, prefix, length) == 0)
            texts[count++] = (struct mics_trie_text){
                .bytes = bytes + length, .length = token->length - (uint32_t)length, .id = id};
    }
    status = mics_trie_init(out, texts, count);
    free(texts);
    return status;
}

enum mics_status mics_model_finish(struct mics_model *model, const struct mics_vocab *vocab,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (model->kind == MICS_MODEL_WORDPIECE) {
        status = make_trie(vocab, "", &model->wordpiece.first);
        if (status == MICS_OK)
            status = make_trie(vocab, model->wordpiece.prefix, &model->wordpiece.next);
    } else if (model->kind == MICS_MODEL_UNIGRAM) {
        status = make_trie(vocab, "", &model->unigram.trie);
        for (uint32_t id = 0; id < model->unigram.count; id++)
            if (id == 0 || model->unigram.scores[id] < model->unigram.unknown_score)
                model->unigram.unknown_score = model->unigram.scores[id];
        model->unigram.unknown_score -= UNKNOWN_PENALTY;
    }
    return status == MICS_OK ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_ids_reserve(struct mics_ids *ids, size_t count)
{
    size_t capacity = ids->capacity == 0 ? 1024 : ids->capacity;
    uint32_t *grown;

    if (count <= ids->capacity - ids->count)
        return MICS_OK;
    while (count > capacity - ids->count)
        capacity *= 2;
    grown = realloc(ids->ids, capacity * sizeof *grown);
    if (grown == NULL)
        return MICS_ERR_NOMEM;
    ids->ids = grown;
    ids->capacity = capacity;
    return MICS_OK;
}

void mics_model_memory_fini(struct mics_model_memory *memory)
{
    free(memory->symbols.bytes);
    free(memory->heap.bytes);
    *memory = (struct mics_model_memory){0};
}

uint32_t mics_model_fall_back(const struct mics_model *model, const unsigned char *character,
                              uint32_t length, uint32_t *ids)
{
    for (uint32_t i = 0; i < length; i++) {
        ids[i] = model->byte_ids[character[i]];
        if (ids[i] == MICS_NO_TOKEN)
            return 0;
    }
    return length;
}

enum mics_status mics_model_encode(const struct mics_model *model, const struct mics_vocab *vocab,
                                   const unsigned char *piece, uint32_t length,
                                   struct mics_model_memory *memory, struct mics_ids *ids)
{
    switch (model->kind) {
    case MICS_MODEL_WORDPIECE:
        mics_wordpiece_encode(model, piece, length, ids);
        return MICS_OK;
    case MICS_MODEL_UNIGRAM:
        return mics_unigram_encode(model, vocab, piece, length, memory, ids);
    case MICS_MODEL_BPE:
        break;
    }
    return mics_bpe_encode(model, vocab, piece, length, memory, ids);
}
