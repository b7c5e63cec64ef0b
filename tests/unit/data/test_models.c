/* SPDX-License-Identifier: Apache-2.0 */
/* Models of kind WordPiece and Unigram, with ids and texts of the tokenizers library 0.23.3, which
 * tests/reference/make_tokenizers.py --kind=small has written. */
#include "data/tokenizer.h"
#include "doc/foreign.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>

#define FOLDER "tests/reference/tokenizers"

static const char *const names[] = {
    "bert/vocab.txt",
    "bert-uncased/tokenizer.json",
    "bert-cased/tokenizer.json",
    "bert-accents/tokenizer.json",
    "wordpiece-space/tokenizer.json",
    "xlm-roberta/tokenizer.json",
    "albert/tokenizer.json",
    "mbart/tokenizer.json",
    "unigram-whole/tokenizer.json",
    "sentencepiece/tokenizer.model",
};

enum { NAMES = sizeof names / sizeof names[0] };

/* The rows of [text, ids, decoded text] beside a tokenizer. */
static json_t *read_rows(const char *name)
{
    struct mics_err err = {.text = ""};
    char path[256];
    json_t *root = NULL;

    snprintf(path, sizeof path, FOLDER "/%.*s/expected.json", (int)(strchr(name, '/') - name),
             name);
    CHECK_INT(mics_foreign_read_file(path, 1 << 20, 1 << 20, &root, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return root;
}

static struct mics_tokenizer *open_named(const char *name)
{
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};
    char path[256];

    snprintf(path, sizeof path, FOLDER "/%s", name);
    CHECK_INT(mics_tokenizer_open(path, &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return tokenizer;
}

static bool same_ids(const json_t *want, const uint32_t *ids, size_t count)
{
    bool same = json_array_size(want) == count;

    for (size_t i = 0; same && i < count; i++)
        same = json_integer_value(json_array_get(want, i)) == ids[i];
    return same;
}

/* Decode one id after the other. */
static void check_decoded(const struct mics_tokenizer *tokenizer, const json_t *row)
{
    struct mics_decoder *decoder = NULL;
    struct mics_err err = {.text = ""};
    const json_t *ids = json_array_get(row, 1);
    char text[4096] = "";

    CHECK_INT(mics_decoder_new(tokenizer, false, &decoder, &err), MICS_OK);
    for (size_t i = 0; i <= json_array_size(ids); i++) {
        const uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i));
        const char *part = "";
        size_t size = 0;

        if (i < json_array_size(ids))
            CHECK_INT(mics_decode(decoder, &id, 1, &part, &size, &err), MICS_OK);
        else
            CHECK_INT(mics_decode_end(decoder, &part, &size, &err), MICS_OK);
        strncat(text, part, size);
    }
    CHECK_STR(text, json_string_value(json_array_get(row, 2)));
    mics_decoder_free(decoder);
}

static void ids_and_texts_are_those_of_the_library(void)
{
    for (size_t i = 0; i < NAMES; i++) {
        struct mics_tokenizer *tokenizer = open_named(names[i]);
        struct mics_encoder *encoder = NULL;
        struct mics_err err = {.text = ""};
        json_t *root = read_rows(names[i]), *row;
        size_t number, wrong = 0;

        if (!tokenizer || !root || mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK)
            abort();
        CHECK(json_array_size(json_object_get(root, "rows")) > 100);
        json_array_foreach(json_object_get(root, "rows"), number, row)
        {
            const json_t *text = json_array_get(row, 0);
            const uint32_t *ids = NULL;
            size_t count = 0;

            CHECK_INT(mics_encode(encoder, json_string_value(text), json_string_length(text), 0,
                                  &ids, &count, NULL, &err),
                      MICS_OK);
            if (!same_ids(json_array_get(row, 1), ids, count) && wrong++ == 0)
                printf("# %s: ids of '%s' differ\n", names[i], json_string_value(text));
            check_decoded(tokenizer, row);
        }
        CHECK_INT(wrong, 0);
        json_decref(root);
        mics_encoder_free(encoder);
        mics_tokenizer_free(tokenizer);
    }
}

/* All rows in one text: both sides of a cut have the ids of the whole. */
static void check_cuts(const struct mics_tokenizer *tokenizer, const char *text, size_t size,
                       size_t *cuts)
{
    struct mics_encoder *encoder = NULL;
    struct mics_err err = {.text = ""};
    const uint32_t *ids = NULL;
    uint32_t *whole = malloc(size * sizeof *whole);
    size_t count = 0, part = 0, rest = 0;

    if (!whole || mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK)
        abort();
    CHECK_INT(mics_encode(encoder, text, size, 0, &ids, &count, NULL, &err), MICS_OK);
    memcpy(whole, ids, count * sizeof *ids);
    for (size_t limit = 7; limit < size; limit += 41) {
        const size_t cut = mics_tokenizer_cut(tokenizer, text, limit);

        if (cut == 0)
            continue;
        *cuts += 1;
        CHECK_INT(mics_encode(encoder, text, cut, 0, &ids, &part, NULL, &err), MICS_OK);
        CHECK(part <= count && memcmp(whole, ids, part * sizeof *ids) == 0);
        CHECK_INT(mics_encode(encoder, text + cut, size - cut, MICS_TOKENIZER_CONTINUES, &ids,
                              &rest, NULL, &err),
                  MICS_OK);
        CHECK_INT(part + rest, count);
        CHECK(part + rest == count && memcmp(whole + part, ids, rest * sizeof *ids) == 0);
    }
    mics_encoder_free(encoder);
    free(whole);
}

static void long_texts_are_cut_where_ids_stay(void)
{
    for (size_t i = 0; i < NAMES; i++) {
        struct mics_tokenizer *tokenizer = open_named(names[i]);
        json_t *root = read_rows(names[i]), *row;
        char *text = calloc(1, 1 << 16);
        size_t number, cuts = 0;

        if (!tokenizer || !root || !text)
            abort();
        json_array_foreach(json_object_get(root, "rows"), number, row)
        {
            if (strlen(text) + json_string_length(json_array_get(row, 0)) < 6000)
                strcat(text, json_string_value(json_array_get(row, 0)));
        }
        check_cuts(tokenizer, text, strlen(text), &cuts);
        /* One piece is the whole text. */
        CHECK((cuts > 10) == (strcmp(names[i], "unigram-whole/tokenizer.json") != 0));
        free(text);
        json_decref(root);
        mics_tokenizer_free(tokenizer);
    }
}

/* ---- vocab.txt ---- */

static struct mics_tokenizer *open_texts(const char *const *files, size_t count,
                                         struct mics_err *err)
{
    struct mics_tokenizer_file list[4];
    struct mics_tokenizer *tokenizer = NULL;

    for (size_t i = 0; i < count; i++) {
        list[i] = (struct mics_tokenizer_file){.bytes = (unsigned char *)files[2 * i + 1],
                                               .size = strlen(files[2 * i + 1])};
        snprintf(list[i].name, sizeof list[i].name, "%s", files[2 * i]);
    }
    (void)mics_tokenizer_open_files(list, count, &tokenizer, err);
    return tokenizer;
}

/* Encode with what is put around a text, and write ids in decimal. */
static const char *encode(const struct mics_tokenizer *tokenizer, const char *text, int flags)
{
    static char out[256];
    struct mics_encoder *encoder = NULL;
    struct mics_err err = {.text = ""};
    const uint32_t *ids = NULL;
    size_t count = 0, length = 0;

    out[0] = '\0';
    if (mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK ||
        mics_encode(encoder, text, strlen(text), flags, &ids, &count, NULL, &err) != MICS_OK)
        return "failed";
    for (size_t i = 0; i < count && length < sizeof out; i++)
        length += (size_t)snprintf(out + length, sizeof out - length, i ? " %lu" : "%lu",
                                   (unsigned long)ids[i]);
    mics_encoder_free(encoder);
    return out;
}

#define VOCAB "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nA\n\xc3\xa9\ne\n"

static void a_vocabulary_of_lines_is_that_of_bert(void)
{
    const char *const plain[] = {"vocab.txt", VOCAB};
    struct mics_err err = {.text = ""};
    struct mics_tokenizer *tokenizer = open_texts(plain, 1, &err);

    CHECK_STR(err.text, "");
    if (!tokenizer)
        return;
    CHECK_INT(mics_tokenizer_size(tokenizer), 10);
    CHECK_INT(mics_tokenizer_end(tokenizer), 3);
    CHECK_INT(mics_tokenizer_begin(tokenizer), 2);
    CHECK(mics_tokenizer_is_special(tokenizer, 0));
    CHECK_STR(encode(tokenizer, "AB \xc3\x89 c [MASK]", 0), "5 6 9 1 1 1 1");
    CHECK_STR(encode(tokenizer, "AB[MASK]a", MICS_TOKENIZER_SPECIAL | MICS_TOKENIZER_TEMPLATE),
              "2 5 6 4 5 3");
    mics_tokenizer_free(tokenizer);
}

static void a_configuration_beside_a_vocabulary_counts(void)
{
    const char *const files[] = {
        "vocab.txt", VOCAB, "tokenizer_config.json",
        ("{\"do_lower_case\": false, \"tokenizer_class\": \"BertTokenizerFast\","
         " \"mask_token\": \"e\", \"strip_accents\": null}")};
    struct mics_err err = {.text = ""};
    struct mics_tokenizer *cased = open_texts(files, 2, &err);
    struct mics_tokenizer *plain = open_texts(files, 1, &err);

    CHECK_STR(err.text, "");
    if (!cased || !plain)
        return;
    CHECK_STR(encode(cased, "Ab \xc3\xa9", 0), "7 6 8");
    CHECK(mics_tokenizer_fingerprint(cased) != mics_tokenizer_fingerprint(plain));
    mics_tokenizer_free(cased);
    mics_tokenizer_free(plain);
}

/* As in the tokenizers library, where the later line takes the text. */
static void equal_and_empty_lines_are_ids_without_a_token(void)
{
    const char *const files[] = {"vocab.txt", "[UNK]\r\na\n\na \nb\n \n"};
    struct mics_err err = {.text = ""};
    struct mics_tokenizer *tokenizer = open_texts(files, 1, &err);

    CHECK_STR(err.text, "");
    if (!tokenizer)
        return;
    CHECK_STR(encode(tokenizer, "a b c", 0), "3 4 0");
    CHECK_INT(mics_tokenizer_size(tokenizer), 5);
    mics_tokenizer_free(tokenizer);
}

/* ---- refusals ---- */

#define UNIGRAM(id, vocab, normalizer)                                                             \
    "{\"version\": \"1.0\", \"normalizer\": " normalizer ", \"model\": {\"type\": \"Unigram\","    \
    " \"unk_id\": " id ", \"vocab\": [" vocab "]}}"
#define CHARSMAP(text)                                                                             \
    UNIGRAM("0", "[\"a\", 0]", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": " text "}")

static const struct {
    const char *name, *text, *message;
} refusals[] = {
    {"vocab.txt", "a\nb\n",
     "vocab.txt: the token for unknown words, unk_token or [UNK], is not in it"},
    {"vocab.txt", "", "vocab.txt: there is no token in it"},
    {"vocab.txt", "[UNK]\n\xff\n", "vocab.txt: not UTF-8 at byte 6"},
    {"tokenizer.json", UNIGRAM("2", "[\"a\", 0], [\"b\", -1]", "null"),
     "tokenizer.json: model.unk_id: expected 0 to 1, found 2"},
    {"tokenizer.json", UNIGRAM("null", "[\"a\", 0]", "null"),
     "tokenizer.json: model.unk_id: without it a character that is no token has no id"},
    {"tokenizer.json", UNIGRAM("0", "[\"a\", NaN]", "null"),
     "tokenizer.json: model.vocab[0]: expected a token and its score, a number"},
    {"tokenizer.json", UNIGRAM("0", "[\"a\"]", "null"),
     "tokenizer.json: model.vocab[0]: expected a token and its score, a number"},
    {"tokenizer.json", UNIGRAM("0", "", "null"),
     "tokenizer.json: model.vocab: expected 1 to 16777216 items, found 0"},
    {"tokenizer.json", CHARSMAP("\"AA=A\""),
     "tokenizer.json: normalizer.precompiled_charsmap: is not base64"},
    {"tokenizer.json", CHARSMAP("\"/wAAAAAA\""),
     "tokenizer.json: normalizer: precompiled_charsmap: the size of its trie is wrong"},
    {"tokenizer.json", CHARSMAP("\"BAAAAAAAAAD/\""),
     "tokenizer.json: normalizer: precompiled_charsmap: the texts are not UTF-8"},
    {"tokenizer.json", CHARSMAP("\"BAAAAAABAABh\""),
     "tokenizer.json: normalizer: precompiled_charsmap: a node leads nowhere"},
    {"tokenizer.json",
     "{\"version\": \"1.0\", \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"x\","
     " \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100,"
     " \"vocab\": {\"a\": 0}}}",
     "tokenizer.json: model.unk_token: token 'x' is not in the vocabulary"},
};

static void what_is_damaged_is_refused(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const char *const files[] = {refusals[i].name, refusals[i].text};
        struct mics_err err = {.text = ""};
        struct mics_tokenizer *tokenizer = open_texts(files, 1, &err);

        CHECK(tokenizer == NULL);
        CHECK_STR(err.text, refusals[i].message);
        mics_tokenizer_free(tokenizer);
    }
}

static void classes_unlike_bert_are_refused(void)
{
    const char *const files[] = {"vocab.txt", VOCAB, "tokenizer_config.json",
                                 "{\"tokenizer_class\": \"EsmTokenizer\"}"};
    struct mics_err err = {.text = ""};

    CHECK(open_texts(files, 2, &err) == NULL);
    CHECK_STR(err.text, "tokenizer_config.json: a tokenizer of class \"EsmTokenizer\" is supported "
                        "by its tokenizer.json only");
}

int main(void)
{
    TAP_RUN(ids_and_texts_are_those_of_the_library);
    TAP_RUN(long_texts_are_cut_where_ids_stay);
    TAP_RUN(a_vocabulary_of_lines_is_that_of_bert);
    TAP_RUN(a_configuration_beside_a_vocabulary_counts);
    TAP_RUN(equal_and_empty_lines_are_ids_without_a_token);
    TAP_RUN(what_is_damaged_is_refused);
    TAP_RUN(classes_unlike_bert_are_refused);
    return tap_done();
}
