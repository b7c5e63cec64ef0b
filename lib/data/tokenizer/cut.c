/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - where a text can be cut so that its parts have the ids of the whole.
 *
 * Known regular expressions end a match where letters or numbers end, whatever is around it. Where
 * a whole text is one piece, symbols merge only if a token has them side by side: it can be cut
 * where no token does, before U+2581 and after a newline.
 */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_ACROSS   64
#define SPACE_LENGTH (sizeof MICS_METASPACE - 1)

/* A token with U+2581 after something else, at `offset`. */
struct across {
    const unsigned char *text;
    size_t length, offset;
};

struct mics_word_cuts {
    unsigned char *texts; /* of `across` */
    struct across across[MAX_ACROSS];
    size_t across_count;
    bool before[256]; /* a token has U+2581 after this byte */
    bool lines;       /* nothing but a newline merges with a newline before it */
};

void mics_word_cuts_free(struct mics_word_cuts *cuts)
{
    if (cuts)
        free(cuts->texts);
    free(cuts);
}

static bool is_metaspace(const unsigned char *text, size_t size)
{
    return size >= SPACE_LENGTH && memcmp(text, MICS_METASPACE, SPACE_LENGTH) == 0;
}

/* Record where the token has U+2581 after something else. false: there are too many of these. */
static bool find_across(struct mics_word_cuts *cuts, const unsigned char *text, size_t length)
{
    for (size_t at = 1; at + SPACE_LENGTH <= length; at++) {
        if (!is_metaspace(text + at, length - at) ||
            (at >= SPACE_LENGTH && is_metaspace(text + at - SPACE_LENGTH, SPACE_LENGTH)))
            continue;
        if (cuts->across_count == MAX_ACROSS)
            return false;
        cuts->before[text[at - 1]] = true;
        cuts->across[cuts->across_count++] =
            (struct across){.text = text, .length = length, .offset = at};
    }
    return true;
}

/* Copy the texts, which the vocabulary may move. */
static enum mics_status own_across(struct mics_word_cuts *cuts)
{
    struct mics_text texts = {.size = 0};

    for (size_t i = 0; i < cuts->across_count; i++)
        if (mics_text_append(&texts, cuts->across[i].text, cuts->across[i].length) != MICS_OK) {
            free(texts.bytes);
            return MICS_ERR_NOMEM;
        }
    cuts->texts = texts.bytes;
    for (size_t i = 0, offset = 0; i < cuts->across_count; i++) {
        cuts->across[i].text = texts.bytes + offset;
        offset += cuts->across[i].length;
    }
    return MICS_OK;
}

/* Does the token join a newline, or its byte <0x0A>, with something else behind it? */
static bool joins_lines(const unsigned char *text, size_t length)
{
    for (size_t i = 0; i + 1 < length; i++)
        if (text[i] == '\n' && text[i + 1] != '\n')
            return true;
    return length > 6 && memmem(text, length, "<0x0A>", 6) != NULL;
}

enum mics_status mics_word_cuts_new(const struct mics_tokenizer *tokenizer,
                                    struct mics_word_cuts **out, struct mics_err *err)
{
    const struct mics_vocab *vocab = &tokenizer->vocab;
    const struct mics_model *model = &tokenizer->model;
    bool few = true;

    *out = NULL;
    if (model->kind != MICS_MODEL_BPE || !model->characters || model->bpe.whole_first ||
        mics_vocab_find(vocab, MICS_METASPACE, SPACE_LENGTH) == MICS_NO_TOKEN)
        return MICS_OK;

    struct mics_word_cuts *cuts = calloc(1, sizeof *cuts);

    if (!cuts)
        return mics_err_nomem(err);
    /* An unknown newline might be one with an unknown character behind it. */
    cuts->lines = mics_vocab_find(vocab, "\n", 1) != MICS_NO_TOKEN ||
                  (model->byte_fallback && model->byte_ids['\n'] != MICS_NO_TOKEN);
    for (uint32_t id = 0; id < vocab->size && few; id++) {
        const unsigned char *text = vocab->text.bytes + vocab->tokens[id].offset;
        const size_t length = vocab->tokens[id].length;

        if ((vocab->tokens[id].flags & (MICS_TOKEN_MODEL | MICS_TOKEN_BYTE)) == 0)
            continue;
        few = find_across(cuts, text, length);
        cuts->lines = cuts->lines && !joins_lines(text, length);
    }
    if (few && own_across(cuts) != MICS_OK) {
        mics_word_cuts_free(cuts);
        return mics_err_nomem(err);
    }
    if (few)
        *out = cuts;
    else
        mics_word_cuts_free(cuts);
    return MICS_OK;
}

/* Does a token that reaches across occur with its U+2581 at text[at]? */
static bool reaches_across(const struct mics_word_cuts *cuts, const unsigned char *text,
                           size_t size, size_t at)
{
    for (size_t i = 0; i < cuts->across_count; i++) {
        const struct across *across = &cuts->across[i];

        if (across->offset <= at && across->length - across->offset <= size - at &&
            memcmp(text + at - across->offset, across->text, across->length) == 0)
            return true;
    }
    return false;
}

enum mics_status mics_word_cuts_apply(const struct mics_word_cuts *cuts,
                                      const struct mics_piece *piece, struct mics_pieces *pieces)
{
    const unsigned char *text = pieces->text + piece->offset;
    size_t begin = 0;

    for (size_t at = 0; at < piece->length;) {
        const unsigned char *mark =
            memmem(text + at, piece->length - at, MICS_METASPACE, SPACE_LENGTH);

        if (!mark)
            break;
        at = (size_t)(mark - text);
        if (at > begin &&
            !(at >= SPACE_LENGTH && is_metaspace(mark - SPACE_LENGTH, SPACE_LENGTH)) &&
            !reaches_across(cuts, text, piece->length, at)) {
            if (mics_pieces_add(pieces, piece->offset + begin, at - begin) != MICS_OK)
                return MICS_ERR_NOMEM;
            begin = at;
        }
        at += SPACE_LENGTH;
    }
    return mics_pieces_add(pieces, piece->offset + begin, piece->length - begin);
}

/* ---- the text of the user ---- */

static bool is_ascii_word(uint32_t character)
{
    return character > 0x20 && character < 0x7f;
}

/* Do normal forms leave `before`, and nothing of `after` combines with it? */
static bool forms_apart(uint32_t before, uint32_t after)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)after);

    if (!is_ascii_word(before) && !(before >= 0x4e00 && before <= 0x9fff) &&
        !(before >= 0xac00 && before <= 0xd7a3))
        return false;
    return after < 0x80 || category == UTF8PROC_CATEGORY_ZS ||
           (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

/* Between these characters, by the rules of struct mics_cut, if no added token is near? */
static bool can_cut(const struct mics_tokenizer *tokenizer, uint32_t before, uint32_t after)
{
    const struct mics_cut *cut = &tokenizer->cut;
    const struct mics_added *added = &tokenizer->added;
    /* Only the normalized text of such tokens is known, and it is not at hand. */
    const bool hidden = tokenizer->normalizer.apply && added->lead[1] >= 0;

    if (cut->words && before == '\n')
        return cut->words->lines && !mics_is_space(after) && !(hidden && added->lines);
    if (cut->words)
        return cut->spaces && after == ' ' && is_ascii_word(before) &&
               !cut->words->before[before] && !hidden;
    if (hidden && (after != ' ' || added->spaces))
        return false;
    if (cut->classes)
        return mics_split_always(cut->classes, before, after) &&
               (!tokenizer->normalizer.apply || forms_apart(before, after));
    return cut->spaces && after == ' ' && is_ascii_word(before);
}

size_t mics_tokenizer_cut(const struct mics_tokenizer *tokenizer, const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    const struct mics_cut *cut = &tokenizer->cut;
    size_t after = size; /* where the character behind `at` begins */

    if (tokenizer->is_bytes)
        return size;
    if (!cut->words && !cut->classes && !cut->spaces)
        return 0;
    for (size_t at = size; at-- > 0;) {
        uint32_t character, next;

        if ((bytes[at] & 0xc0) == 0x80)
            continue;
        if (after < size && mics_utf8_length(text + at, after - at) == after - at &&
            mics_utf8_length(text + after, size - after) > 0) {
            (void)mics_utf8_next(bytes + at, &character);
            (void)mics_utf8_next(bytes + after, &next);
            if (can_cut(tokenizer, character, next) &&
                !mics_added_near(&tokenizer->added, bytes, size, after))
                return after;
        }
        after = at;
    }
    return 0;
}
