/* SPDX-License-Identifier: Apache-2.0 */
/* tekken.json; ids and texts are those of mistral-common 1.13.1. */
#include "data/tokenizer.h"
#include "tap.h"

#include <stdlib.h>

static const char *const pattern =
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}"
    "\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}"
    "\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";

#define NAMED                                                                                      \
    "[{'rank': 0, 'token_str': '<unk>', 'is_control': true}, {'rank': 2, 'token_str': '</s>'},"    \
    "{'rank': 1, 'token_str': '<s>'}, {'rank': 3, 'token_str': '[INST]'}]"

static void append_base64(char *out, unsigned byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    sprintf(out, "%c%c==", digits[byte >> 2], digits[(byte & 3) << 4]);
}

/* The file: all bytes and 6 tokens more. Its texts are the caller's to free. */
static char *make(const char *special, unsigned special_count, unsigned size, const char *version)
{
    static const char *const more[] = {"YWI=", "IGE=", "IGFi", "MTI=", "w6k=", "YWJj"};
    char *json = calloc(1, 1 << 16), *end = json;

    end += sprintf(end, "{'config': {'pattern': '%s', 'num_vocab_tokens': 262, ", pattern);
    end += sprintf(end, "'default_vocab_size': %u, 'default_num_special_tokens': %u, ", size,
                   special_count);
    end += sprintf(end, "'version': '%s'}, 'special_tokens': %s, 'vocab': [", version, special);
    for (unsigned rank = 0; rank < 262; rank++) {
        char base64[8];

        append_base64(base64, rank & 255);
        end += sprintf(end, "%s{'rank': %u, 'token_bytes': '%s', 'token_str': '\\u0000'}",
                       rank > 0 ? ", " : "", rank, rank < 256 ? base64 : more[rank - 256]);
    }
    sprintf(end, "]}");
    return json;
}

static struct mics_tokenizer *open_text(char *json, struct mics_err *err)
{
    struct mics_tokenizer *tokenizer = NULL;

    for (char *c = json; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';

    const struct mics_tokenizer_file file = {
        .name = "tekken_1.json", .bytes = (unsigned char *)json, .size = strlen(json)};

    *err = (struct mics_err){.text = ""};
    (void)mics_tokenizer_open_files(&file, 1, &tokenizer, err);
    free(json);
    return tokenizer;
}

static void check_text(const struct mics_tokenizer *tokenizer, const char *text, const char *want)
{
    struct mics_encoder *encoder = NULL;
    struct mics_decoder *decoder = NULL;
    struct mics_err err;
    const uint32_t *ids = NULL;
    const char *decoded = NULL;
    size_t count = 0, size = 0;
    char out[256] = "", *end = out;

    CHECK_INT(mics_encoder_new(tokenizer, &encoder, &err), MICS_OK);
    CHECK_INT(
        mics_encode(encoder, text, strlen(text), MICS_TOKENIZER_TEMPLATE, &ids, &count, NULL, &err),
        MICS_OK);
    for (size_t i = 0; i < count; i++)
        end += sprintf(end, "%u ", ids[i]);
    CHECK_STR(out, want);
    CHECK_INT(mics_decoder_new(tokenizer, true, &decoder, &err), MICS_OK);
    CHECK_INT(mics_decode(decoder, ids, count, &decoded, &size, &err), MICS_OK);
    CHECK(size == strlen(text) && memcmp(decoded, text, size) == 0);
    mics_decoder_free(decoder);
    mics_encoder_free(encoder);
}

/* The last tokens are beyond default_vocab_size, and the special tokens are those of old files. */
static void special_tokens_may_have_no_names(void)
{
    struct mics_err err;
    struct mics_tokenizer *tokenizer = open_text(make("null", 24, 24 + 261, "v3"), &err);

    CHECK_STR(err.text, "");
    if (!tokenizer)
        return;
    CHECK_INT(mics_tokenizer_size(tokenizer), 285);
    CHECK_INT(mics_tokenizer_begin(tokenizer), 1);
    CHECK_INT(mics_tokenizer_end(tokenizer), 2);
    CHECK_INT(mics_tokenizer_id(tokenizer, "[TOOL_CONTENT]"), 19);
    CHECK_INT(mics_tokenizer_id(tokenizer, "<SPECIAL_23>"), 23);
    check_text(tokenizer, "ab abc 12é", "1 280 282 123 56 73 74 284 ");
    check_text(tokenizer, "</s>[INST]", "1 84 71 139 86 115 97 102 107 108 117 ");
    check_text(tokenizer, "ab<s> \n\nabc", "1 280 84 139 86 56 34 34 280 123 ");
    CHECK_INT(mics_tokenizer_cut(tokenizer, "ab a ab ", 8), 7);
    mics_tokenizer_free(tokenizer);
}

static void special_tokens_have_their_ranks(void)
{
    struct mics_err err;
    struct mics_tokenizer *tokenizer = open_text(make(NAMED, 6, 6 + 262, "v13"), &err);

    CHECK_STR(err.text, "");
    if (!tokenizer)
        return;
    CHECK_INT(mics_tokenizer_size(tokenizer), 268);
    CHECK_INT(mics_tokenizer_begin(tokenizer), 1);
    CHECK_INT(mics_tokenizer_end(tokenizer), 2);
    CHECK_INT(mics_tokenizer_id(tokenizer, "<SPECIAL_5>"), 5);
    CHECK(mics_tokenizer_is_special(tokenizer, 3));
    CHECK(!mics_tokenizer_is_special(tokenizer, 6));
    check_text(tokenizer, "ab abc 12é", "1 262 264 105 38 55 56 266 ");
    check_text(tokenizer, "ab<s> \n\nabc", "1 262 66 121 68 38 16 16 267 ");
    mics_tokenizer_free(tokenizer);
}

static void what_is_wrong_is_named(void)
{
    static const struct {
        const char *special;
        unsigned count, size;
        const char *version, *find, *replacement, *message;
    } cases[] = {
        {"null", 24, 285, "v11", "", "",
         "special_tokens: missing; files later than version 7 have them"},
        {"null", 24, 285, "x3", "", "", "config.version: version 'x3' is not supported"},
        {"null", 19, 285, "v3", "", "",
         "config.default_num_special_tokens: expected 20 to 65536, found 19"},
        {"null", 24, 287, "v3", "", "",
         "config.default_vocab_size: expected 280 to 286, found 287"},
        {NAMED, 6, 268, "v3", "'rank': 3,", "'rank': 1,",
         "special_tokens[3].rank: 1 is there twice"},
        {NAMED, 6, 268, "v3", "[INST]", "<s>", "special_tokens: '<s>' is there twice"},
        {NAMED, 6, 268, "v3", "'rank': 258", "'rank': 259",
         "vocab[258].rank: expected 258, found 259"},
        {NAMED, 6, 268, "v3", "YWI=", "YW*=", "vocab[256].token_bytes: token 256 is not base64"},
        {NAMED, 6, 268, "v3", "'AA=='", "'AQ=='",
         "vocab[0].token_bytes: expected the byte 0 in base64"},
        {NAMED, 6, 268, "v3", "'token_bytes'", "'bytes'", "vocab[0].token_bytes: missing"},
        {NAMED, 6, 268, "v3", "+(?!", "+(?",
         "config.pattern: regular expression: offset 242: "
         "unrecognized character after (? or (?-"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *json = make(cases[i].special, cases[i].count, cases[i].size, cases[i].version);
        const size_t length = strlen(cases[i].find), other = strlen(cases[i].replacement);
        char *found = strstr(json, cases[i].find), want[256];
        struct mics_err err;

        CHECK(found != NULL);
        memmove(found + other, found + length, strlen(found + length) + 1);
        memcpy(found, cases[i].replacement, other);
        snprintf(want, sizeof want, "tekken_1.json: %s", cases[i].message);
        CHECK(open_text(json, &err) == NULL);
        CHECK_STR(err.text, want);
    }
}

int main(void)
{
    TAP_RUN(special_tokens_may_have_no_names);
    TAP_RUN(special_tokens_have_their_ranks);
    TAP_RUN(what_is_wrong_is_named);
    return tap_done();
}
