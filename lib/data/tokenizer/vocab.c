/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum mics_status mics_text_reserve(struct mics_text *text, size_t size)
{
    size_t capacity = text->capacity == 0 ? 256 : text->capacity;
    unsigned char *grown;

    if (size <= text->capacity)
        return MICS_OK;
    while (size > capacity)
        capacity *= 2;
    grown = realloc(text->bytes, capacity);
    if (grown == NULL)
        return MICS_ERR_NOMEM;
    text->bytes = grown;
    text->capacity = capacity;
    return MICS_OK;
}

enum mics_status mics_text_append(struct mics_text *text, const void *bytes, size_t size)
{
    if (mics_text_reserve(text, text->size + size) != MICS_OK)
        return MICS_ERR_NOMEM;
    if (size > 0)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return MICS_OK;
}

/* Is the text of token `id` this one? */
static bool same_text(const struct mics_vocab *vocab, uint32_t id, const void *text, size_t length)
{
    const struct mics_token *token = &vocab->tokens[id];

    return token->length == length && memcmp(vocab->text.bytes + token->offset, text, length) == 0;
}

/* The slot of a text, or the empty one where it belongs. */
static uint32_t find_slot(const struct mics_vocab *vocab, const void *text, size_t length)
{
    uint32_t slot = (uint32_t)XXH3_64bits(text, length) & (vocab->slot_count - 1);

    while (vocab->slots[slot] != MICS_NO_TOKEN &&
           !same_text(vocab, vocab->slots[slot], text, length))
        slot = (slot + 1) & (vocab->slot_count - 1);
    return slot;
}

uint32_t mics_vocab_find(const struct mics_vocab *vocab, const void *text, size_t length)
{
    return vocab->slot_count == 0 ? MICS_NO_TOKEN : vocab->slots[find_slot(vocab, text, length)];
}

/* Keep at least half of the slots empty. */
static enum mics_status grow_slots(struct mics_vocab *vocab)
{
    const uint32_t old_count = vocab->slot_count;
    uint32_t *old = vocab->slots;

    if (vocab->used < old_count / 2)
        return MICS_OK;
    vocab->slot_count = old_count == 0 ? 1024 : 2 * old_count;
    vocab->slots = malloc(vocab->slot_count * sizeof *vocab->slots);
    if (vocab->slots == NULL) {
        vocab->slots = old;
        vocab->slot_count = old_count;
        return MICS_ERR_NOMEM;
    }
    memset(vocab->slots, 0xff, vocab->slot_count * sizeof *vocab->slots);
    for (uint32_t i = 0; i < old_count; i++)
        if (old[i] != MICS_NO_TOKEN) {
            const struct mics_token *token = &vocab->tokens[old[i]];

            vocab->slots[find_slot(vocab, vocab->text.bytes + token->offset, token->length)] =
                old[i];
        }
    free(old);
    return MICS_OK;
}

/* Make `id` an id of the vocabulary; ids in between are holes. */
static enum mics_status grow_tokens(struct mics_vocab *vocab, uint32_t id)
{
    if (id >= vocab->capacity) {
        uint32_t capacity = vocab->capacity == 0 ? 1024 : vocab->capacity;
        struct mics_token *grown;

        while (id >= capacity)
            capacity *= 2;
        grown = realloc(vocab->tokens, capacity * sizeof *grown);
        if (grown == NULL)
            return MICS_ERR_NOMEM;
        memset(grown + vocab->capacity, 0, (capacity - vocab->capacity) * sizeof *grown);
        vocab->tokens = grown;
        vocab->capacity = capacity;
    }
    if (id >= vocab->size)
        vocab->size = id + 1;
    return MICS_OK;
}

enum mics_status mics_vocab_add(struct mics_vocab *vocab, uint32_t id, const void *text,
                                size_t length, uint32_t flags, struct mics_err *err)
{
    const bool model = (flags & MICS_TOKEN_MODEL) != 0;
    struct mics_token *token;
    uint32_t kept = 0, slot = 0;

    if (id >= MICS_TOKENIZER_MAX_IDS)
        return mics_err_set(err, MICS_ERR_FORMAT, "token %lu: ids must be below %u",
                            (unsigned long)id, MICS_TOKENIZER_MAX_IDS);
    if (length == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "token %lu: the text is empty",
                            (unsigned long)id);
    if (vocab->text.size + length > UINT32_MAX)
        return mics_err_set(err, MICS_ERR_FORMAT, "token %lu: the texts exceed 4 GiB",
                            (unsigned long)id);
    if (grow_tokens(vocab, id) != MICS_OK || (model && grow_slots(vocab) != MICS_OK))
        return mics_err_nomem(err);
    token = &vocab->tokens[id];
    if ((token->flags & MICS_TOKEN_PRESENT) != 0 && (flags & MICS_TOKEN_ADDED) == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "token %lu: two tokens have this id",
                            (unsigned long)id);
    if (model) {
        slot = find_slot(vocab, text, length);
        if (vocab->slots[slot] != MICS_NO_TOKEN)
            return mics_err_set(err, MICS_ERR_FORMAT, "tokens %lu and %lu have the same text",
                                (unsigned long)vocab->slots[slot], (unsigned long)id);
    }
    /* A token of the model keeps the text under which it is found, if it is the same. */
    if ((token->flags & MICS_TOKEN_MODEL) != 0) {
        if (!same_text(vocab, id, text, length))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "added token %lu: the vocabulary has another text for this id",
                                (unsigned long)id);
        kept = MICS_TOKEN_MODEL;
    } else {
        const size_t offset = vocab->text.size;

        if (mics_text_append(&vocab->text, text, length) != MICS_OK)
            return mics_err_nomem(err);
        token->offset = (uint32_t)offset;
        token->length = (uint32_t)length;
    }
    token->flags = flags | kept | MICS_TOKEN_PRESENT;
    if (model) {
        vocab->slots[slot] = id;
        vocab->used++;
    }
    return MICS_OK;
}

void mics_vocab_fini(struct mics_vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->slots);
    free(vocab->text.bytes);
    *vocab = (struct mics_vocab){0};
}

/* GPT-2's alphabet: printable bytes of Latin-1 are themselves, the other 68 follow from U+0100 on
 * in ascending order. */
static unsigned to_alphabet(unsigned byte)
{
    if (byte <= 0x20)
        return 0x100 + byte;
    if (byte >= 0x7f && byte <= 0xa0)
        return 0x121 + byte - 0x7f;
    return byte == 0xad ? 0x143 : byte;
}

/* -1: it is not in the alphabet. */
static int from_alphabet(unsigned character)
{
    if (character >= 0x100 && character <= 0x120)
        return (int)(character - 0x100);
    if (character >= 0x121 && character <= 0x142)
        return (int)(character - 0x121 + 0x7f);
    if (character == 0x143)
        return 0xad;
    return character < 0x100 && to_alphabet(character) == character ? (int)character : -1;
}

bool mics_byte_level_decode(const char *text, size_t length, unsigned char *bytes, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < length;) {
        unsigned character = (unsigned char)text[i++];

        if (character >= 0x80) {
            if ((character & 0xe0) != 0xc0 || i == length)
                return false;
            character = (character & 0x1f) << 6 | ((unsigned char)text[i++] & 0x3f);
        }

        const int byte = from_alphabet(character);

        if (byte < 0)
            return false;
        bytes[(*size)++] = (unsigned char)byte;
    }
    return true;
}

enum mics_status mics_byte_level_encode(const unsigned char *bytes, size_t size,
                                        struct mics_text *out)
{
    if (mics_text_reserve(out, out->size + 2 * size) != MICS_OK)
        return MICS_ERR_NOMEM;
    for (size_t i = 0; i < size; i++) {
        const unsigned character = to_alphabet(bytes[i]);

        if (character >= 0x80) {
            out->bytes[out->size++] = (unsigned char)(0xc0 | character >> 6);
            out->bytes[out->size++] = (unsigned char)(0x80 | (character & 0x3f));
        } else {
            out->bytes[out->size++] = (unsigned char)character;
        }
    }
    return MICS_OK;
}
