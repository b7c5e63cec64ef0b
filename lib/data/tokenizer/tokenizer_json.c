/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c - tokenizer.json of Hugging Face's library tokenizers, version 1.0, with a model
 * of kind BPE. */
#include "data/tokenizer/tokenizer_json.h"

#include "base/utf8.h"
#include "data/tokenizer/companions.h"
#include "doc/foreign.h"

#include <stdlib.h>
#include <string.h>

/* A pair of merges weighs 10, so there may be 1.6 million. */
#define MAX_VALUES (16u << 20)
#define MAX_MERGES (4u << 20)
#define MAX_ADDED  (1u << 20)

struct reader {
    struct mics_tokenizer *tokenizer;
    struct mics_cursor root, model;
    const json_t *vocab; /* token to id, as in the file */
    bool byte_level;
    uint32_t highest; /* id of an added token; MICS_NO_TOKEN: none yet */
    struct mics_err *err;
};

static enum mics_status nomem(const struct reader *reader)
{
    return mics_err_nomem(reader->err);
}

/* The id of a token of the model by its text in the file; MICS_NO_TOKEN: none. */
static uint32_t find_id(const struct reader *reader, const char *text, size_t length)
{
    const json_t *id = json_object_getn(reader->vocab, text, length);

    return id ? (uint32_t)json_integer_value(id) : MICS_NO_TOKEN;
}

const char *const mics_byte_level_members[] = {"type", "add_prefix_space", "trim_offsets",
                                               "use_regex", NULL};

enum mics_status mics_json_check_members(const struct mics_cursor *cursor, const char *const *known,
                                         struct mics_err *err)
{
    json_t *object = (json_t *)cursor->value; /* jansson iterates without const */
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] && !json_is_null(value))
            return mics_cursor_fail(cursor, key, err, "not supported");
    }
    return MICS_OK;
}

/* ---- the model ---- */

/* Is it <0xNN>, which stands for an unknown character's byte? *byte is NN. */
static bool is_byte_token(const char *text, size_t length, unsigned *byte)
{
    char number[3];

    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
        strspn(text + 3, "0123456789ABCDEF") != 2)
        return false;
    memcpy(number, text + 3, 2);
    number[2] = '\0';
    *byte = (unsigned)strtoul(number, NULL, 16);
    return true;
}

static enum mics_status add_token(const struct reader *reader, const char *text, size_t length,
                                  uint32_t id)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    uint32_t flags = MICS_TOKEN_MODEL;
    unsigned char *bytes = NULL;
    enum mics_status status;
    size_t size = 0;
    unsigned byte;

    if (reader->byte_level) {
        bytes = malloc(length + 1);
        if (!bytes)
            return nomem(reader);
        /* Text is bytes when it comes to the model, so others are never found. */
        if (!mics_byte_level_decode(text, length, bytes, &size))
            flags = 0;
    }
    status = bytes && flags != 0
                 ? mics_vocab_add(&tokenizer->vocab, id, bytes, size, flags, reader->err)
                 : mics_vocab_add(&tokenizer->vocab, id, text, length, flags, reader->err);
    if (bytes && flags != 0 && size == 1)
        tokenizer->bpe.byte_ids[bytes[0]] = id;
    if (!reader->byte_level && tokenizer->bpe.byte_fallback && is_byte_token(text, length, &byte))
        tokenizer->bpe.byte_ids[byte] = id;
    free(bytes);
    return status;
}

static enum mics_status read_vocab(struct reader *reader)
{
    struct mics_cursor vocab;
    enum mics_status status = mics_cursor_object(&reader->model, "vocab", &vocab, reader->err);
    const char *text;
    size_t length;
    json_t *value;

    if (status != MICS_OK)
        return status;
    reader->vocab = vocab.value;
    if (json_object_size(vocab.value) == 0)
        return mics_cursor_fail(&vocab, NULL, reader->err, "no tokens");
    json_object_keylen_foreach((json_t *)vocab.value, text, length, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= MICS_TOKENIZER_MAX_IDS)
            return mics_cursor_fail(&vocab, text, reader->err, "expected an id below %u",
                                    MICS_TOKENIZER_MAX_IDS);
        if (length == 0) /* can be neither made nor decoded */
            continue;
        status = add_token(reader, text, length, (uint32_t)json_integer_value(value));
        if (status != MICS_OK) {
            mics_err_prefix(reader->err, "model.vocab");
            return status;
        }
    }
    return MICS_OK;
}

/* The two tokens of a merge, which is ["a", "b"], or "a b" with exactly one space. */
struct merge {
    const char *left, *right;
    size_t left_length, right_length;
};

static enum mics_status merge_texts(const struct reader *reader, const struct mics_cursor *merge,
                                    struct merge *out)
{
    const json_t *value = merge->value, *left = value, *right = NULL;

    *out = (struct merge){.left = NULL};
    if (json_is_array(value) && json_array_size(value) == 2) {
        left = json_array_get(value, 0);
        right = json_array_get(value, 1);
        out->left = json_string_value(left);
        out->left_length = json_string_length(left);
        out->right = json_string_value(right);
        out->right_length = json_string_length(right);
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value), *end = text + json_string_length(value);
        const char *space = memchr(text, ' ', (size_t)(end - text));

        out->left = text;
        out->left_length = space ? (size_t)(space - text) : 0;
        out->right = space ? space + 1 : end;
        out->right_length = (size_t)(end - out->right);
        if (memchr(out->right, ' ', out->right_length))
            out->right_length = 0;
    }
    if (!out->left || !out->right || out->left_length == 0 || out->right_length == 0)
        return mics_cursor_fail(merge, NULL, reader->err, "expected two tokens");
    return MICS_OK;
}

static enum mics_status fail_unknown(const struct reader *reader, const struct mics_cursor *merge,
                                     const char *token, size_t length)
{
    return mics_cursor_fail(merge, NULL, reader->err, "token '%.*s' is not in the vocabulary",
                            (int)length, token);
}

static enum mics_status read_merge(const struct reader *reader, const struct mics_cursor *merge)
{
    struct merge texts;
    enum mics_status status = merge_texts(reader, merge, &texts);

    if (status != MICS_OK)
        return status;

    const uint32_t left_id = find_id(reader, texts.left, texts.left_length);
    const uint32_t right_id = find_id(reader, texts.right, texts.right_length);

    if (left_id == MICS_NO_TOKEN)
        return fail_unknown(reader, merge, texts.left, texts.left_length);
    if (right_id == MICS_NO_TOKEN)
        return fail_unknown(reader, merge, texts.right, texts.right_length);

    const size_t length = texts.left_length + texts.right_length;
    char *both = malloc(length);

    if (!both)
        return nomem(reader);
    memcpy(both, texts.left, texts.left_length);
    memcpy(both + texts.left_length, texts.right, texts.right_length);

    const uint32_t id = find_id(reader, both, length);

    status = id == MICS_NO_TOKEN ? fail_unknown(reader, merge, both, length)
                                 : mics_bpe_add_merge(&reader->tokenizer->bpe, left_id, right_id,
                                                      (uint32_t)merge->index, id, reader->err);
    free(both);
    return status;
}

static enum mics_status read_merges(const struct reader *reader)
{
    struct mics_cursor merges;
    enum mics_status status =
        mics_cursor_array(&reader->model, "merges", 0, MAX_MERGES, &merges, reader->err);

    if (status == MICS_OK)
        status = mics_bpe_reserve(&reader->tokenizer->bpe, mics_cursor_count(&merges), reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&merges); i++) {
        const struct mics_cursor merge = mics_cursor_item_any(&merges, i);
        const char *text = json_string_value(merge.value);

        if (!text || strncmp(text, "#version", 8) != 0)
            status = read_merge(reader, &merge);
    }
    return status;
}

static enum mics_status read_flag(const struct mics_cursor *cursor, const char *key, bool *out,
                                  struct mics_err *err)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_bool(cursor, key, out, err) : MICS_OK;
}

/* A member that changes ids unless it is null, "" or 0. */
static enum mics_status refuse_member(const struct mics_cursor *cursor, const char *key,
                                      struct mics_err *err)
{
    const json_t *value = json_object_get(cursor->value, key);
    const char *text = json_string_value(value);

    if (!value || json_is_null(value) || (text && text[0] == '\0') ||
        (json_is_number(value) && json_number_value(value) == 0))
        return MICS_OK;
    return mics_cursor_fail(cursor, key, err, "not supported");
}

static enum mics_status read_model_flags(struct reader *reader)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    struct mics_bpe *bpe = &reader->tokenizer->bpe;
    enum mics_status status =
        mics_cursor_object(&reader->root, "model", &reader->model, reader->err);
    const char *type = "BPE";

    if (status == MICS_OK && mics_cursor_has(&reader->model, "type"))
        status = mics_cursor_string(&reader->model, "type", &type, reader->err);
    if (status == MICS_OK && strcmp(type, "BPE") != 0)
        return mics_cursor_fail(&reader->model, "type", reader->err,
                                "model '%s' is not supported, only BPE", type);
    if (status == MICS_OK)
        status = mics_json_check_members(&reader->model, known, reader->err);
    for (size_t i = 0; status == MICS_OK && i < sizeof refused / sizeof refused[0]; i++)
        status = refuse_member(&reader->model, refused[i], reader->err);
    if (status == MICS_OK)
        status = read_flag(&reader->model, "fuse_unk", &bpe->fuse_unknown, reader->err);
    if (status == MICS_OK)
        status = read_flag(&reader->model, "byte_fallback", &bpe->byte_fallback, reader->err);
    if (status == MICS_OK)
        status = read_flag(&reader->model, "ignore_merges", &bpe->whole_first, reader->err);
    bpe->characters = !reader->byte_level;
    return status;
}

static enum mics_status read_unknown(const struct reader *reader)
{
    const char *text = "";
    enum mics_status status = MICS_OK;

    if (mics_cursor_has(&reader->model, "unk_token"))
        status = mics_cursor_string(&reader->model, "unk_token", &text, reader->err);
    if (status != MICS_OK || text[0] == '\0')
        return status;
    reader->tokenizer->bpe.unknown = find_id(reader, text, strlen(text));
    if (reader->tokenizer->bpe.unknown == MICS_NO_TOKEN)
        return mics_cursor_fail(&reader->model, "unk_token", reader->err,
                                "token '%s' is not in the vocabulary", text);
    return MICS_OK;
}

/* ---- added tokens ---- */

/* The tokenizers library takes the id that the vocabulary has, or counts on, whatever the file
 * says; an id that is another one would be a row that the model was not trained with. */
static enum mics_status check_added_id(struct reader *reader, const struct mics_cursor *cursor,
                                       const char *text, uint32_t id)
{
    const uint32_t known = find_id(reader, text, strlen(text)),
                   size = (uint32_t)json_object_size(reader->vocab);
    const uint32_t last = reader->highest;
    const uint32_t next = last != MICS_NO_TOKEN && last >= size ? last + 1 : size;

    if (known != MICS_NO_TOKEN && known != id)
        return mics_cursor_fail(cursor, "id", reader->err, "is %lu, but the vocabulary has %lu",
                                (unsigned long)id, (unsigned long)known);
    if (known == MICS_NO_TOKEN && next != id)
        return mics_cursor_fail(cursor, "id", reader->err,
                                "is %lu, but the next that is not in the vocabulary is %lu",
                                (unsigned long)id, (unsigned long)next);
    if (last == MICS_NO_TOKEN || id > last)
        reader->highest = id;
    return MICS_OK;
}

static enum mics_status read_added_token(struct reader *reader, const struct mics_cursor *cursor)
{
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    struct mics_added_token added = {.normalized = true};
    const char *text = NULL;
    struct mics_err *err = reader->err;
    enum mics_status status = mics_json_check_members(cursor, known, err);

    if (status == MICS_OK)
        status = mics_cursor_string(cursor, "content", &text, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(cursor, "id", 0, MICS_TOKENIZER_MAX_IDS - 1, &added.id, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "special", &added.special, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "normalized", &added.normalized, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "single_word", &added.single_word, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "lstrip", &added.strip_left, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "rstrip", &added.strip_right, err);
    if (status != MICS_OK || text[0] == '\0')
        return status;
    status = check_added_id(reader, cursor, text, added.id);
    if (status != MICS_OK)
        return status;

    added.text = (char *)text; /* which is copied */
    added.length = (uint32_t)strlen(text);
    return mics_tokenizer_add_token(reader->tokenizer, &added, err);
}

static enum mics_status read_added(struct reader *reader)
{
    struct mics_cursor tokens, token;
    enum mics_status status = MICS_OK;

    if (!mics_cursor_has(&reader->root, "added_tokens"))
        return MICS_OK;
    status = mics_cursor_array(&reader->root, "added_tokens", 0, MAX_ADDED, &tokens, reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&tokens); i++) {
        status = mics_cursor_item(&tokens, i, &token, reader->err);
        if (status == MICS_OK)
            status = read_added_token(reader, &token);
    }
    return status;
}

/* ---- add_prefix_space of tokenizer_config.json ---- */

/* The part of a type in a member of tokenizer.json, itself or in a sequence; NULL: none. */
static json_t *find_part(json_t *part, const char *sequence, const char *type)
{
    const char *name = json_string_value(json_object_get(part, "type"));
    json_t *item;
    size_t i;

    if (name && strcmp(name, type) == 0)
        return part;
    json_array_foreach(json_object_get(part, sequence), i, item)
    {
        name = json_string_value(json_object_get(item, "type"));
        if (name && strcmp(name, type) == 0)
            return item;
    }
    return NULL;
}

/* Is U+2581 put before a text? */
static bool prepends_metaspace(const json_t *root)
{
    const json_t *part =
        find_part(json_object_get(root, "pre_tokenizer"), "pretokenizers", "Metaspace");
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));

    if (find_part(json_object_get(root, "normalizer"), "normalizers", "Prepend"))
        return true;
    return part && (scheme ? strcmp(scheme, "never") != 0
                           : json_is_true(json_object_get(part, "add_prefix_space")));
}

/* Let add_prefix_space of tokenizer_config.json count where the class of the tokenizer does. The
 * other classes of transformers differ in what they do with it, by version. */
static enum mics_status apply_prefix_space(struct reader *reader, json_t *root)
{
    static const char *const byte_classes[] = {"GPT2Tokenizer",   "RobertaTokenizer",
                                               "Qwen2Tokenizer",  "GPTNeoXTokenizer",
                                               "CohereTokenizer", "CodeGenTokenizer"};
    json_t *part = find_part(json_object_get(root, "pre_tokenizer"), "pretokenizers", "ByteLevel");
    bool prefix =
        part ? json_is_true(json_object_get(part, "add_prefix_space")) : prepends_metaspace(root);
    const bool was = prefix;
    char class[64];
    enum mics_status status =
        mics_companions_class(reader->tokenizer->companions, class, sizeof class, reader->err);

    if (status == MICS_OK)
        status = mics_companions_flag(reader->tokenizer->companions, "add_prefix_space", &prefix,
                                      reader->err);
    if (status != MICS_OK || prefix == was)
        return status;
    for (size_t i = 0; part && i < sizeof byte_classes / sizeof byte_classes[0]; i++)
        if (strcmp(class, byte_classes[i]) == 0) {
            mics_tokenizer_note(reader->tokenizer, "add_prefix_space", 16);
            return json_object_set_new(part, "add_prefix_space", json_boolean(prefix)) == 0
                       ? MICS_OK
                       : nomem(reader);
        }
    if (!part && strcmp(class, "LlamaTokenizer") != 0) /* no version of it reads this */
        return MICS_OK;
    return mics_err_set(reader->err, MICS_ERR_FORMAT,
                        "add_prefix_space is %s in tokenizer_config.json, but not here: which of "
                        "them counts depends on the version of transformers; let them agree",
                        prefix ? "true" : "false");
}

/* ---- the file ---- */

static enum mics_status check_root(const struct reader *reader)
{
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = NULL;
    enum mics_status status = mics_cursor_string(&reader->root, "version", &version, reader->err);

    if (status == MICS_OK && strcmp(version, "1.0") != 0)
        return mics_cursor_fail(&reader->root, "version", reader->err,
                                "'%s' is not supported, only '1.0'", version);
    if (status == MICS_OK)
        status = mics_json_check_members(&reader->root, known, reader->err);
    return status;
}

static enum mics_status read_parts(struct reader *reader, json_t *root)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    enum mics_status status = check_root(reader);

    if (status == MICS_OK)
        status = apply_prefix_space(reader, root);
    if (status == MICS_OK)
        status = mics_normalizer_read(&reader->root, &tokenizer->normalizer, reader->err);
    if (status == MICS_OK)
        status = mics_pretokenizer_read(&reader->root, tokenizer, &reader->byte_level, reader->err);
    if (status == MICS_OK)
        status = mics_decoder_read(&reader->root, reader->byte_level, tokenizer, reader->err);
    if (status == MICS_OK)
        status = read_model_flags(reader);
    if (status == MICS_OK)
        status = read_vocab(reader);
    if (status == MICS_OK)
        status = read_merges(reader);
    if (status == MICS_OK)
        status = read_unknown(reader);
    if (status == MICS_OK)
        status = read_added(reader);
    if (status == MICS_OK)
        status = mics_post_processor_read(&reader->root, tokenizer, reader->err);
    if (status == MICS_OK && !reader->byte_level)
        status = mics_pretokenizer_cut_words(tokenizer, reader->err);
    if (tokenizer->normalizer.apply && !tokenizer->normalizer.local) {
        tokenizer->cut.classes = NULL;
        tokenizer->cut.spaces = tokenizer->cut.spaces && tokenizer->cut.words;
    }
    return status;
}

enum mics_status mics_tokenizer_read_json(struct mics_tokenizer *tokenizer,
                                          const struct mics_tokenizer_file *file,
                                          struct mics_err *err)
{
    struct reader reader = {.tokenizer = tokenizer, .highest = MICS_NO_TOKEN, .err = err};
    json_t *root = NULL;
    enum mics_status status =
        mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, &root, err);

    if (status == MICS_OK) {
        reader.root = mics_cursor_root(root);
        status = read_parts(&reader, root);
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    json_decref(root);
    return status;
}
