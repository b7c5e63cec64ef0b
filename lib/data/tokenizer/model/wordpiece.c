/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wordpiece.c - ids of a word by the longest tokens from left to right, as in BERT; and vocab.txt,
 * a token a line.
 *
 * How text is cut into words is not in that file: tokenizer_config.json may say it, else it is as
 * in BERT without case.
 */
#include "base/utf8.h"
#include "data/tokenizer/companions.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX         "##"
#define MAX_CHARACTERS 100

/* Are there more than `most` characters? */
static bool is_longer(const unsigned char *piece, uint32_t length, uint32_t most)
{
    uint32_t count = 0;

    if (length <= most)
        return false;
    for (uint32_t i = 0; i < length; i++)
        count += (piece[i] & 0xc0) != 0x80;
    return count > most;
}

void mics_wordpiece_encode(const struct mics_model *model, const unsigned char *piece,
                           uint32_t length, struct mics_ids *ids)
{
    const struct mics_wordpiece *wordpiece = &model->wordpiece;
    const bool longer = is_longer(piece, length, wordpiece->max_characters);
    uint32_t *out = ids->ids + ids->count, count = 0, at = 0;

    while (at < length && !longer) {
        const struct mics_trie *trie = at == 0 ? &wordpiece->first : &wordpiece->next;
        uint32_t node = 0, found = MICS_NO_TOKEN, end = at;

        for (uint32_t i = at; i < length && (node = mics_trie_next(trie, node, piece[i])) != 0; i++)
            if (trie->nodes[node].id != MICS_NO_TOKEN) {
                found = trie->nodes[node].id;
                end = i + 1;
            }
        if (found == MICS_NO_TOKEN)
            break;
        out[count++] = found;
        at = end;
    }
    if (at < length) {
        out[0] = model->unknown;
        count = 1;
    }
    ids->count += count;
}

/* ---- vocab.txt ---- */

/* Special tokens of BERT, where no file names others. */
static const struct {
    const char *key, *usual;
} specials[] = {{"unk_token", "[UNK]"},
                {"sep_token", "[SEP]"},
                {"pad_token", "[PAD]"},
                {"cls_token", "[CLS]"},
                {"mask_token", "[MASK]"}};

enum { UNKNOWN, SEPARATOR, CLASS = 3 };

/* The length of a line without white space at its end. */
static size_t trimmed(const unsigned char *line, size_t length)
{
    while (length > 0) {
        size_t last = length - 1;
        uint32_t character;

        while (last > 0 && (line[last] & 0xc0) == 0x80)
            last--;
        (void)mics_utf8_next(line + last, &character);
        if (!mics_is_space(character))
            break;
        length = last;
    }
    return length;
}

/* The last of equal lines counts, and an empty one is an id without a token, as in the tokenizers
 * library: the lines are read from the end. */
static enum mics_status read_lines(struct mics_tokenizer *tokenizer,
                                   const struct mics_tokenizer_file *file, struct mics_err *err)
{
    const unsigned char *text = file->bytes;
    size_t end = file->size, lines = 0, wrong = 0;

    if (!mics_utf8_check((const char *)text, end, &wrong))
        return mics_err_set(err, MICS_ERR_FORMAT, "not UTF-8 at byte %zu", wrong);
    end -= end > 0 && text[end - 1] == '\n';
    for (size_t i = 0; i < end; i++)
        lines += text[i] == '\n';
    lines += file->size > 0;
    if (lines > MICS_TOKENIZER_MAX_IDS)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %u lines", MICS_TOKENIZER_MAX_IDS);
    for (size_t id = lines; id-- > 0;) {
        const unsigned char *before = end > 0 ? memrchr(text, '\n', end) : NULL;
        const size_t begin = before ? (size_t)(before - text) + 1 : 0;
        const size_t length = trimmed(text + begin, end - begin);
        enum mics_status status = MICS_OK;

        if (length > 0 && mics_vocab_find(&tokenizer->vocab, text + begin, length) == MICS_NO_TOKEN)
            status = mics_vocab_add(&tokenizer->vocab, (uint32_t)id, text + begin, length,
                                    MICS_TOKEN_MODEL, err);
        if (status != MICS_OK)
            return status;
        end = begin > 0 ? begin - 1 : 0;
    }
    return tokenizer->vocab.size > 0
               ? MICS_OK
               : mics_err_set(err, MICS_ERR_FORMAT, "there is no token in it");
}

/* Let the tokens that BERT has, and no file names otherwise, be special. ids[] are those of what
 * the tokens are named, or MICS_NO_TOKEN. */
static enum mics_status add_specials(struct mics_tokenizer *tokenizer, uint32_t *ids,
                                     struct mics_err *err)
{
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        struct mics_named_token named;
        enum mics_status status =
            mics_companions_named(tokenizer->companions, specials[i].key, &named, err);
        const char *text = named.text ? named.text : specials[i].usual;
        struct mics_added_token token = {.text = (char *)text, /* which is copied */
                                         .length = (uint32_t)strlen(text),
                                         .special = true};

        if (status != MICS_OK)
            return status;
        ids[i] = token.id = mics_vocab_find(&tokenizer->vocab, text, token.length);
        if (token.id == MICS_NO_TOKEN || named.said)
            continue;
        status = mics_tokenizer_add_token(tokenizer, &token, err);
        if (status != MICS_OK)
            return status;
    }
    if (ids[UNKNOWN] == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the token for unknown words, unk_token or [UNK], is not in it");
    return MICS_OK;
}

/* The class of the tokenizer, if a file says it, must be one that is like BERT's. */
static enum mics_status check_class(const struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static const char *const classes[] = {"BertTokenizer", "DistilBertTokenizer",
                                          "ElectraTokenizer", "MobileBertTokenizer"};
    char name[64];
    enum mics_status status = mics_companions_class(tokenizer->companions, name, sizeof name, err);

    if (status != MICS_OK || name[0] == '\0')
        return status;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strcmp(name, classes[i]) == 0)
            return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "tokenizer_config.json: a tokenizer of class \"%s\" is supported by its "
                        "tokenizer.json only",
                        name);
}

/* Normalizer, pre-tokenizer and decoder, as tokenizer_config.json wants them. */
static enum mics_status set_parts(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    bool lowercase = true, ideographs = true, byte_level = false;
    enum mics_status status =
        mics_companions_flag(tokenizer->companions, "do_lower_case", &lowercase, err);
    bool accents = lowercase;
    json_t *root;
    struct mics_reading reading = {.err = err};

    if (status == MICS_OK)
        status =
            mics_companions_flag(tokenizer->companions, "tokenize_chinese_chars", &ideographs, err);
    if (status == MICS_OK)
        status = mics_companions_flag(tokenizer->companions, "strip_accents", &accents, err);
    if (status != MICS_OK)
        return status;
    root =
        json_pack("{s{ss sb sb sb sb} s{ss} s{ss ss sb}}", "normalizer", "type", "BertNormalizer",
                  "clean_text", 1, "handle_chinese_chars", ideographs, "strip_accents", accents,
                  "lowercase", lowercase, "pre_tokenizer", "type", "BertPreTokenizer", "decoder",
                  "type", "WordPiece", "prefix", PREFIX, "cleanup", 1);
    if (!root)
        return mics_err_nomem(err);
    if (!lowercase || !ideographs || !accents)
        mics_tokenizer_note(tokenizer, (bool[]){lowercase, ideographs, accents}, 3 * sizeof(bool));

    const struct mics_cursor cursor = mics_cursor_begin(root, &reading);

    mics_normalizer_read(&cursor, &tokenizer->normalizer);
    mics_pretokenizer_read(&cursor, tokenizer, &byte_level);
    mics_decoder_read(&cursor, byte_level, tokenizer);
    json_decref(root);
    return reading.status;
}

static enum mics_status fill(struct mics_tokenizer *tokenizer,
                             const struct mics_tokenizer_file *file, struct mics_err *err)
{
    struct mics_model *model = &tokenizer->model;
    uint32_t ids[sizeof specials / sizeof specials[0]];
    enum mics_status status;

    model->kind = MICS_MODEL_WORDPIECE;
    model->characters = true;
    model->wordpiece.max_characters = MAX_CHARACTERS;
    model->wordpiece.prefix = strdup(PREFIX);
    if (!model->wordpiece.prefix)
        return mics_err_nomem(err);
    status = set_parts(tokenizer, err);
    if (status == MICS_OK)
        status = read_lines(tokenizer, file, err);
    if (status == MICS_OK)
        status = add_specials(tokenizer, ids, err);
    if (status != MICS_OK)
        return status;
    model->unknown = ids[UNKNOWN];
    tokenizer->around = (struct mics_around){.is_set = true,
                                             .keys = {"cls_token", "sep_token"},
                                             .ids = {ids[CLASS], ids[SEPARATOR]},
                                             .wanted = {true, true},
                                             .fixed = true};
    return MICS_OK;
}

enum mics_status mics_tokenizer_read_vocab_text(struct mics_tokenizer *tokenizer,
                                                const struct mics_tokenizer_file *file,
                                                struct mics_err *err)
{
    enum mics_status status = check_class(tokenizer, err);

    if (status != MICS_OK)
        return status;
    status = fill(tokenizer, file, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    return status;
}
