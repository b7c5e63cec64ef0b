/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/companions.h"

#include "doc/cursor.h"
#include "doc/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_VALUES (8u << 20)
#define MAX_NAMES  16384

#define CONFIG  "tokenizer_config.json"
#define MAP     "special_tokens_map.json"
#define ADDED   "added_tokens.json"
#define DECODER "added_tokens_decoder"

/* Keys of special tokens, in the order in which transformers adds those that no vocabulary has. */
static const char *const named_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

#define NAMED_COUNT (sizeof named_keys / sizeof named_keys[0])

/* ---- the files ---- */

enum mics_status mics_companion_read(const struct mics_tokenizer *tokenizer, const char *name,
                                     json_t **out, struct mics_err *err)
{
    const struct mics_tokenizer_file *file = mics_tokenizer_file(tokenizer, name);
    enum mics_status status;

    *out = NULL;
    if (!file)
        return MICS_OK;
    status = mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, out, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name);
    return status;
}

enum mics_status mics_companions_read(const struct mics_tokenizer *tokenizer,
                                      struct mics_companions *out, struct mics_err *err)
{
    enum mics_status status = mics_companion_read(tokenizer, CONFIG, &out->config, err);

    if (status != MICS_OK)
        goto out;
    status = mics_companion_read(tokenizer, MAP, &out->map, err);
    if (status != MICS_OK)
        goto out;
    status = mics_companion_read(tokenizer, ADDED, &out->added, err);
out:
    out->map_counts = out->added_counts = !json_object_get(out->config, DECODER);
    return status;
}

void mics_companions_free(struct mics_companions *companions)
{
    json_decref(companions->config);
    json_decref(companions->map);
    json_decref(companions->added);
    *companions = (struct mics_companions){.config = NULL};
}

static enum mics_status fail(struct mics_err *err, const char *file, const char *key,
                             const char *expected)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: %s: expected %s", file, key, expected);
}

enum mics_status mics_companions_class(const struct mics_companions *companions, char *buf,
                                       size_t size, struct mics_err *err)
{
    const json_t *value = json_object_get(companions->config, "tokenizer_class");
    const char *name = json_string_value(value);
    size_t length = name ? strlen(name) : 0;

    buf[0] = '\0';
    if (!value || json_is_null(value))
        return MICS_OK;
    if (!name)
        return fail(err, CONFIG, "tokenizer_class", "a name");
    if (length > 4 && strcmp(name + length - 4, "Fast") == 0 &&
        strcmp(name, "PreTrainedTokenizerFast") != 0)
        length -= 4;
    snprintf(buf, size, "%.*s", (int)(length < size ? length : size - 1), name);
    return MICS_OK;
}

enum mics_status mics_companions_flag(const struct mics_companions *companions, const char *key,
                                      bool *out, struct mics_err *err)
{
    const json_t *value = json_object_get(companions->config, key);

    if (!value || json_is_null(value))
        return MICS_OK;
    if (!json_is_boolean(value))
        return fail(err, CONFIG, key, "true or false");
    *out = json_is_true(value);
    return MICS_OK;
}

bool mics_companions_list_tokens(const struct mics_companions *companions)
{
    return json_object_size(companions->added_counts
                                ? companions->added
                                : json_object_get(companions->config, DECODER)) > 0;
}

/* ---- tokens by name ---- */

/* The text of a token that is a text, or an object with "content"; NULL: it is neither, or has a
 * NUL. */
static const char *text_of(const json_t *value)
{
    const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
    const char *text = json_string_value(content);

    return text && strlen(text) == json_string_length(content) ? text : NULL;
}

static bool take_named(const json_t *doc, const char *file, const char *key,
                       struct mics_named_token *out)
{
    json_t *value = json_object_get(doc, key);

    if (!value)
        return false;
    *out = (struct mics_named_token){
        .text = text_of(value), .file = file, .said = true, .value = value};
    if (out->text && out->text[0] == '\0') /* as if it were null */
        out->text = NULL;
    return true;
}

enum mics_status mics_companions_named(const struct mics_companions *companions, const char *key,
                                       struct mics_named_token *out, struct mics_err *err)
{
    const bool first = companions->map_counts;

    *out = (struct mics_named_token){.said = false};
    if (!(first && take_named(companions->map, MAP, key, out)) &&
        !take_named(companions->config, CONFIG, key, out))
        take_named(companions->map, MAP, key, out);
    if (out->value && !text_of(out->value) && !json_is_null(out->value))
        return fail(err, out->file, key, "a token's text, or an object with \"content\"");
    return MICS_OK;
}

enum mics_status mics_tokenizer_named(const struct mics_tokenizer *tokenizer, const char *key,
                                      char **out, struct mics_err *err)
{
    struct mics_companions companions = {0};
    struct mics_named_token named = {.text = NULL};
    enum mics_status status = MICS_OK;

    *out = NULL;
    if (!tokenizer->is_bytes)
        status = mics_companions_read(tokenizer, &companions, err);
    if (status == MICS_OK && !tokenizer->is_bytes)
        status = mics_companions_named(&companions, key, &named, err);
    if (status == MICS_OK && named.text && !(*out = strdup(named.text)))
        status = mics_err_nomem(err);
    mics_companions_free(&companions);
    return status;
}

/* The id of a named token, or of `by_default` if files say nothing (NULL: nothing by default).
 * MICS_NO_TOKEN: there is none. MICS_ERR_FORMAT: a file names a token that is no token. */
static enum mics_status find_named_id(const struct mics_tokenizer *tokenizer, const char *key,
                                      const char *by_default, uint32_t *out, struct mics_err *err)
{
    struct mics_named_token named;
    enum mics_status status = mics_companions_named(tokenizer->companions, key, &named, err);

    *out = MICS_NO_TOKEN;
    if (status != MICS_OK)
        return status;
    if (!named.text) {
        if (by_default && !named.said)
            *out = mics_tokenizer_id(tokenizer, by_default);
        return MICS_OK;
    }
    *out = mics_tokenizer_id(tokenizer, named.text);
    if (*out != MICS_NO_TOKEN)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: %s '%.80s' is not in the vocabulary of %s",
                        named.file, key, named.text, tokenizer->main_file->name);
}

/* ---- added tokens ---- */

/* A token that a file lists with its id, or names without. */
struct listed {
    struct mics_added_token token; /* id MICS_NO_TOKEN: the one that it has, or the next */
    const char *file, *key;
};

struct apply {
    struct mics_tokenizer *tokenizer;
    const struct mics_companions *companions;
    const char *main_name;
    json_t *others; /* ids of tokens that mics_vocab_find() does not find, by their text */
    json_t *files;  /* names of the files that the ids of added tokens are from, by id */
    json_t *names;  /* what the files name: [value, file, key] by the token's text, in order */
    struct mics_err *err;
};

/* The text of a token as the vocabulary has it, in bytes[length + 1] if it is another. */
static const char *vocab_text(const struct mics_tokenizer *tokenizer, const char *text,
                              size_t length, unsigned char *bytes, size_t *size)
{
    if (!tokenizer->model.characters && mics_byte_level_decode(text, length, bytes, size))
        return (const char *)bytes;
    *size = length;
    return text;
}

/* The id of a token by the text that files have for it; MICS_NO_TOKEN: none. */
static enum mics_status find_id(const struct apply *apply, const struct mics_added_token *token,
                                uint32_t *out)
{
    unsigned char *bytes = malloc(token->length + 1);
    const json_t *other;
    const char *text;
    size_t size;

    if (!bytes)
        return mics_err_nomem(apply->err);
    text = vocab_text(apply->tokenizer, token->text, token->length, bytes, &size);
    *out = MICS_NO_TOKEN;
    /* What is not in the alphabet of byte-level models is no token of the model, even if its bytes
     * are: "  " is not "ĠĠ". */
    if (apply->tokenizer->model.characters || text != token->text)
        *out = mics_vocab_find(&apply->tokenizer->vocab, text, size);
    other = json_object_getn(apply->others, text, size);
    if (*out == MICS_NO_TOKEN && other)
        *out = (uint32_t)json_integer_value(other);
    free(bytes);
    return MICS_OK;
}

static const char *file_of(const struct apply *apply, uint32_t id)
{
    char key[16];
    const char *file;

    snprintf(key, sizeof key, "%lu", (unsigned long)id);
    file = json_string_value(json_object_get(apply->files, key));
    return file ? file : apply->main_name;
}

/* Does what a file lists fit to what is there? */
static enum mics_status check_listed(const struct apply *apply, const struct listed *listed,
                                     uint32_t known)
{
    const struct mics_vocab *vocab = &apply->tokenizer->vocab;
    const uint32_t id = listed->token.id;
    const char *text = listed->token.text;

    if (known == id)
        return MICS_OK;
    if (known != MICS_NO_TOKEN)
        return mics_err_set(apply->err, MICS_ERR_FORMAT,
                            "%s: %s: '%.80s' has id %lu, but %s gives it %lu", listed->file,
                            listed->key, text, (unsigned long)id, file_of(apply, known),
                            (unsigned long)known);
    if (id < vocab->size && (vocab->tokens[id].flags & MICS_TOKEN_PRESENT) != 0)
        return mics_err_set(apply->err, MICS_ERR_FORMAT,
                            "%s: %s: id %lu is '%.80s', but in %s it is '%.*s'", listed->file,
                            listed->key, (unsigned long)id, text, file_of(apply, id),
                            (int)(vocab->tokens[id].length < 80 ? vocab->tokens[id].length : 80),
                            (const char *)vocab->text.bytes + vocab->tokens[id].offset);
    if (id != vocab->size && !apply->tokenizer->sparse_ids)
        return mics_err_set(apply->err, MICS_ERR_FORMAT,
                            "%s: %s: the id of '%.80s' is %lu, but the next that %s leaves free is "
                            "%lu",
                            listed->file, listed->key, text, (unsigned long)id, apply->main_name,
                            (unsigned long)vocab->size);
    return MICS_OK;
}

static enum mics_status remember(struct apply *apply, uint32_t id, const char *file)
{
    const struct mics_vocab *vocab = &apply->tokenizer->vocab;
    const struct mics_token *token = &vocab->tokens[id];
    char key[16];

    snprintf(key, sizeof key, "%lu", (unsigned long)id);
    if (json_object_set_new_nocheck(apply->files, key, json_string(file)) != 0 ||
        ((token->flags & MICS_TOKEN_MODEL) == 0 &&
         json_object_setn_new_nocheck(apply->others,
                                      (const char *)vocab->text.bytes + token->offset,
                                      token->length, json_integer(id)) != 0))
        return mics_err_nomem(apply->err);
    return MICS_OK;
}

/* Add a token, or give one that is there other properties. */
static enum mics_status put(struct apply *apply, struct listed *listed)
{
    struct mics_tokenizer *tokenizer = apply->tokenizer;
    const bool has_id = listed->token.id != MICS_NO_TOKEN;
    uint32_t known;
    enum mics_status status = find_id(apply, &listed->token, &known);

    if (status != MICS_OK)
        return status;
    if (has_id)
        status = check_listed(apply, listed, known);
    if (status != MICS_OK)
        return status;
    if (!has_id) {
        listed->token.id = known != MICS_NO_TOKEN ? known : tokenizer->vocab.size;
        tokenizer->named_count += known == MICS_NO_TOKEN;
    }
    status = mics_tokenizer_add_token(tokenizer, &listed->token, apply->err);
    if (status != MICS_OK) {
        mics_err_prefix(apply->err, "%s: %s", listed->file, listed->key);
        return status;
    }
    return remember(apply, listed->token.id, listed->file);
}

/* Properties of an added token, of an object that has them, or of a text. */
static enum mics_status read_token(const json_t *value, bool special, struct listed *out,
                                   struct mics_err *err)
{
    const struct {
        const char *key;
        bool *out;
    } flags[] = {{"special", &out->token.special},
                 {"single_word", &out->token.single_word},
                 {"lstrip", &out->token.strip_left},
                 {"rstrip", &out->token.strip_right},
                 {"normalized", &out->token.normalized}};
    const char *text = text_of(value);

    if (!text || text[0] == '\0')
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: %s: expected a token's text, or an object with \"content\"",
                            out->file, out->key);
    out->token = (struct mics_added_token){.text = (char *)text, /* which is copied */
                                           .length = (uint32_t)strlen(text),
                                           .id = MICS_NO_TOKEN,
                                           .special = special};
    for (size_t i = 0; json_is_object(value) && i < sizeof flags / sizeof flags[0]; i++) {
        const json_t *flag = json_object_get(value, flags[i].key);

        if (i == 4) /* the default of the library */
            out->token.normalized = !out->token.special;
        if (flag && !json_is_null(flag) && !json_is_boolean(flag))
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: %s: '%.80s': %s: expected true or false",
                                out->file, out->key, text, flags[i].key);
        if (json_is_boolean(flag) && !(i == 0 && special))
            *flags[i].out = json_is_true(flag);
    }
    return MICS_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;

    return x->token.id < y->token.id ? -1 : x->token.id > y->token.id;
}

/* Put tokens, in the order of their ids. */
static enum mics_status put_sorted(struct apply *apply, struct listed *tokens, size_t count)
{
    enum mics_status status = MICS_OK;

    if (count > 0)
        qsort(tokens, count, sizeof *tokens, compare_ids);
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        status = put(apply, &tokens[i]);
    return status;
}

/* An id that is the key of a member. */
static bool parse_id(const char *text, uint32_t *out)
{
    char *end = NULL;
    unsigned long id;

    if (text[0] < '0' || text[0] > '9')
        return false;
    id = strtoul(text, &end, 10);
    *out = (uint32_t)id;
    return *end == '\0' && id < MICS_TOKENIZER_MAX_IDS;
}

/* tokenizer_config.json: {"50257": {"content": "<|im_end|>", "special": true, ...}, ...} */
static enum mics_status put_decoder(struct apply *apply)
{
    json_t *decoder = json_object_get(apply->companions->config, DECODER), *value;
    struct listed *tokens;
    enum mics_status status = MICS_OK;
    const char *key;
    size_t count = 0;

    if (!decoder || json_is_null(decoder))
        return MICS_OK;
    if (!json_is_object(decoder))
        return fail(apply->err, CONFIG, DECODER, "an object of ids and tokens");
    tokens = malloc((json_object_size(decoder) + 1) * sizeof *tokens);
    if (!tokens)
        return mics_err_nomem(apply->err);
    json_object_foreach(decoder, key, value)
    {
        struct listed *listed = &tokens[count++];
        uint32_t id = 0;

        *listed = (struct listed){.file = CONFIG, .key = DECODER};
        if (!parse_id(key, &id))
            status = mics_err_set(apply->err, MICS_ERR_FORMAT, "%s: %s: '%.40s' is not an id",
                                  CONFIG, DECODER, key);
        else
            status = read_token(value, false, listed, apply->err);
        listed->token.id = id;
        if (status != MICS_OK)
            break;
    }
    if (status == MICS_OK)
        status = put_sorted(apply, tokens, count);
    free(tokens);
    return status;
}

/* added_tokens.json: {"<|im_end|>": 50257, ...}; those that files name are special. Where the file
 * does not count it must still agree. */
static enum mics_status put_added(struct apply *apply)
{
    json_t *added = apply->companions->added, *value;
    struct listed *tokens = malloc((json_object_size(added) + 1) * sizeof *tokens);
    enum mics_status status = MICS_OK;
    const char *key;
    size_t count = 0, length;

    if (!tokens)
        return mics_err_nomem(apply->err);
    json_object_keylen_foreach(added, key, length, value)
    {
        struct listed *listed = &tokens[count];
        const bool special = json_object_get(apply->names, key) != NULL;
        const json_int_t id = json_integer_value(value);
        uint32_t known;

        *listed = (struct listed){.file = ADDED, .key = "added token"};
        if (!json_is_integer(value) || id < 0 || id >= MICS_TOKENIZER_MAX_IDS || length == 0 ||
            strlen(key) != length) {
            status =
                mics_err_set(apply->err, MICS_ERR_FORMAT, "%s: '%.80s': expected an id below %u",
                             ADDED, key, MICS_TOKENIZER_MAX_IDS);
            break;
        }
        listed->token = (struct mics_added_token){.text = (char *)key, /* which is copied */
                                                  .length = (uint32_t)length,
                                                  .id = (uint32_t)id,
                                                  .special = special,
                                                  .normalized = !special};
        if (apply->companions->added_counts) {
            count++;
            continue;
        }
        status = find_id(apply, &listed->token, &known);
        if (status == MICS_OK && (known != MICS_NO_TOKEN || id < apply->tokenizer->vocab.size))
            status = check_listed(apply, listed, known);
        if (status != MICS_OK)
            break;
    }
    if (status == MICS_OK)
        status = put_sorted(apply, tokens, count);
    free(tokens);
    return status;
}

/* ---- named tokens ---- */

/* Remember that a file names a token. */
static enum mics_status add_name(struct apply *apply, json_t *value, const char *file,
                                 const char *key)
{
    struct listed listed = {.file = file, .key = key};
    enum mics_status status = read_token(value, true, &listed, apply->err);

    if (status != MICS_OK || json_object_get(apply->names, listed.token.text))
        return status;
    if (json_object_size(apply->names) == MAX_NAMES)
        return mics_err_set(apply->err, MICS_ERR_FORMAT, "%s: more than %d special tokens", file,
                            MAX_NAMES);
    return json_object_set_new_nocheck(apply->names, listed.token.text,
                                       json_pack("[Oss]", value, file, key)) == 0
               ? MICS_OK
               : mics_err_nomem(apply->err);
}

/* The tokens of a list, or of an object of names and tokens. */
static enum mics_status add_list(struct apply *apply, json_t *list, const char *file,
                                 const char *key)
{
    enum mics_status status = MICS_OK;
    const char *name;
    json_t *value;
    size_t i;

    if (!list || json_is_null(list))
        return MICS_OK;
    if (!json_is_array(list) && !json_is_object(list))
        return fail(apply->err, file, key, "a list of tokens");
    json_array_foreach(list, i, value)
    {
        status = add_name(apply, value, file, key);
        if (status != MICS_OK)
            return status;
    }
    json_object_foreach(list, name, value)
    {
        status = add_name(apply, value, file, key);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

/* Other keys that end in "_token" and have a token, as multimodal models have them. */
static enum mics_status add_other_names(struct apply *apply, json_t *doc, const char *file)
{
    const char *key;
    json_t *value;

    json_object_foreach(doc, key, value)
    {
        const size_t length = strlen(key);
        bool known = length < 6 || strcmp(key + length - 6, "_token") != 0;

        for (size_t i = 0; i < NAMED_COUNT && !known; i++)
            known = strcmp(key, named_keys[i]) == 0;
        if (!known && text_of(value) && text_of(value)[0] != '\0') {
            const enum mics_status status = add_name(apply, value, file, key);

            if (status != MICS_OK)
                return status;
        }
    }
    return MICS_OK;
}

/* Collect what the files name, in the order in which transformers adds what no vocabulary has. */
static enum mics_status find_names(struct apply *apply)
{
    static const char *const lists[] = {"extra_special_tokens", "additional_special_tokens"};
    const struct mics_companions *companions = apply->companions;
    json_t *map = companions->map_counts ? companions->map : NULL;
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < NAMED_COUNT && status == MICS_OK; i++) {
        struct mics_named_token named;

        status = mics_companions_named(companions, named_keys[i], &named, apply->err);
        if (status == MICS_OK && named.text)
            status = add_name(apply, named.value, named.file, named_keys[i]);
    }
    for (size_t i = 0; i < 2 && status == MICS_OK; i++) {
        status = add_list(apply, json_object_get(companions->config, lists[i]), CONFIG, lists[i]);
        if (status == MICS_OK)
            status = add_list(apply, json_object_get(map, lists[i]), MAP, lists[i]);
    }
    if (status == MICS_OK)
        status = add_other_names(apply, companions->config, CONFIG);
    return status == MICS_OK ? add_other_names(apply, map, MAP) : status;
}

/* The added token of an id; NULL: there is none. */
static struct mics_added_token *find_added(struct mics_added *added, uint32_t id)
{
    for (uint32_t i = added->count; i-- > 0;)
        if (added->tokens[i].id == id)
            return &added->tokens[i];
    return NULL;
}

/* Tokens that files name become special; those that no vocabulary has get the next ids, but not the
 * end of documents: the model has never seen it. */
static enum mics_status put_names(struct apply *apply)
{
    struct mics_tokenizer *tokenizer = apply->tokenizer;
    struct mics_named_token end;
    const char *text;
    json_t *value;
    enum mics_status status =
        mics_companions_named(apply->companions, "eos_token", &end, apply->err);

    if (status != MICS_OK)
        return status;
    json_object_foreach(apply->names, text, value)
    {
        struct listed listed = {.file = json_string_value(json_array_get(value, 1)),
                                .key = json_string_value(json_array_get(value, 2))};
        struct mics_added_token *added = NULL;
        uint32_t known = MICS_NO_TOKEN;

        status = read_token(json_array_get(value, 0), true, &listed, apply->err);
        if (status == MICS_OK)
            status = find_id(apply, &listed.token, &known);
        if (status == MICS_OK && known != MICS_NO_TOKEN)
            added = find_added(&tokenizer->added, known);
        if (added) {
            added->special = true;
            tokenizer->vocab.tokens[known].flags |= MICS_TOKEN_SPECIAL;
        } else if (status == MICS_OK &&
                   (known != MICS_NO_TOKEN || !end.text || strcmp(text, end.text) != 0)) {
            status = put(apply, &listed);
        }
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

/* ---- what is around a text ---- */

enum mics_status mics_companions_set_around(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static const char *const flags[] = {"add_bos_token", "add_eos_token"};
    const struct mics_around *around = &tokenizer->around;

    for (int i = 0; around->is_set && i < 2; i++) {
        uint32_t *count = i == 0 ? &tokenizer->before_count : &tokenizer->after_count;
        uint32_t *ids = i == 0 ? tokenizer->before : tokenizer->after, id = MICS_NO_TOKEN;
        const uint32_t usual = around->wanted[i] ? around->ids[i] : MICS_NO_TOKEN;
        struct mics_named_token named = {.said = false};
        bool wanted = around->wanted[i];
        enum mics_status status =
            around->fixed ? MICS_OK
                          : mics_companions_flag(tokenizer->companions, flags[i], &wanted, err);

        if (status == MICS_OK)
            status = mics_companions_named(tokenizer->companions, around->keys[i], &named, err);
        if (status == MICS_OK && wanted && named.text)
            status = find_named_id(tokenizer, around->keys[i], NULL, &id, err);
        else if (status == MICS_OK && wanted && !named.said)
            id = around->ids[i];
        if (status != MICS_OK)
            return status;
        if (id != MICS_NO_TOKEN)
            ids[(*count)++] = id;
        if (id != usual)
            mics_tokenizer_note(tokenizer, (uint32_t[]){(uint32_t)i, id}, 2 * sizeof id);
    }
    return MICS_OK;
}

/* ---- all of it ---- */

/* A sum over the added tokens, which changes when one of them does. */
static uint64_t added_sum(struct mics_tokenizer *tokenizer)
{
    uint64_t sum = 0;

    mics_added_finish(&tokenizer->added);
    for (uint32_t i = 0; i < tokenizer->added.count; i++) {
        const struct mics_added_token *token = &tokenizer->added.tokens[i];
        const uint32_t rest[] = {token->id,          token->special,    token->normalized,
                                 token->single_word, token->strip_left, token->strip_right};

        sum = XXH64(token->text, token->length, sum);
        sum = XXH64(rest, sizeof rest, sum);
    }
    return sum;
}

/* Tokens that mics_vocab_find() does not find. */
static enum mics_status find_others(struct apply *apply)
{
    const struct mics_vocab *vocab = &apply->tokenizer->vocab;

    for (uint32_t id = 0; id < vocab->size; id++) {
        const struct mics_token *token = &vocab->tokens[id];

        if ((token->flags & MICS_TOKEN_PRESENT) != 0 && (token->flags & MICS_TOKEN_MODEL) == 0 &&
            json_object_setn_new_nocheck(apply->others,
                                         (const char *)vocab->text.bytes + token->offset,
                                         token->length, json_integer(id)) != 0)
            return mics_err_nomem(apply->err);
    }
    return MICS_OK;
}

static enum mics_status put_all(struct apply *apply)
{
    enum mics_status status = find_others(apply);

    if (status != MICS_OK)
        return status;
    status = find_names(apply);
    if (status != MICS_OK)
        return status;
    status = put_decoder(apply);
    if (status != MICS_OK)
        return status;
    if (apply->companions->added)
        status = put_added(apply);
    if (status != MICS_OK)
        return status;
    return put_names(apply);
}

enum mics_status mics_companions_apply(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    struct apply apply = {.tokenizer = tokenizer,
                          .companions = tokenizer->companions,
                          .main_name = tokenizer->main_file->name,
                          .others = json_object(),
                          .files = json_object(),
                          .names = json_object(),
                          .err = err};
    const uint64_t before = added_sum(tokenizer);
    enum mics_status status =
        apply.others && apply.files && apply.names ? put_all(&apply) : mics_err_nomem(err);
    const uint64_t after = added_sum(tokenizer);

    if (before != after)
        mics_tokenizer_note(tokenizer, &after, sizeof after);
    json_decref(apply.others);
    json_decref(apply.files);
    json_decref(apply.names);
    return status;
}
