/* SPDX-License-Identifier: Apache-2.0 */
/* Ids and texts are those of the tokenizers library 0.23.3 (tests/reference/check_tokenizers.py
 * compares with it on real tokenizers). */
#include "data/tokenizer.h"
#include "tap.h"

#include <stdlib.h>

/* A tokenizer in the style of SentencePiece; ' stands for ". */
static const char *const sp =
    "{'version': '1.0', 'truncation': null, 'added_tokens': ["
    "{'id': 0, 'content': '<unk>', 'special': true, 'normalized': false},"
    "{'id': 1, 'content': '<s>', 'special': true, 'normalized': false},"
    "{'id': 17, 'content': '[X]', 'special': false, 'normalized': true, 'rstrip': true}],"
    "'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '▁'},"
    "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}]}, 'pre_tokenizer': null,"
    "'post_processor': {'type': 'TemplateProcessing', 'single': ["
    "{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}],"
    "'special_tokens': {'<s>': {'id': '<s>', 'ids': [1], 'tokens': ['<s>']}}},"
    "'decoder': {'type': 'Sequence', 'decoders': ["
    "{'type': 'Replace', 'pattern': {'String': '▁'}, 'content': ' '}, {'type': 'ByteFallback'},"
    "{'type': 'Fuse'}, {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}]},"
    "'model': {'type': 'BPE', 'unk_token': '<unk>', 'fuse_unk': true, 'byte_fallback': true,"
    "'vocab': {'<unk>': 0, '<s>': 1, '<0xC3>': 2, '<0xA9>': 3, '▁': 4, 'a': 5, 'b': 6, 'ab': 7,"
    "'▁ab': 8, '▁a': 9, '▁▁': 10, '>': 11, '>▁': 12, '<': 13, 's': 14, '[': 15, 'X': 16},"
    "'merges': [['a', 'b'], ['▁', 'ab'], ['▁', '▁'], ['▁', 'a'], ['>', '▁']]}}";

/* The text with its first `find` replaced, and ' by "; belongs to the caller. */
static char *edit(const char *text, const char *find, const char *replacement)
{
    const char *found = strstr(text, find);
    char *out = malloc(strlen(text) + strlen(replacement) + 1);

    if (!found || !out)
        abort();
    sprintf(out, "%.*s%s%s", (int)(found - text), text, replacement, found + strlen(find));
    for (char *c = out; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    return out;
}

static enum mics_status open_json(char *json, struct mics_tokenizer **out, struct mics_err *err)
{
    const struct mics_tokenizer_file file = {
        .name = "tokenizer.json", .bytes = (unsigned char *)json, .size = strlen(json)};
    const enum mics_status status = mics_tokenizer_open_files(&file, 1, out, err);

    free(json);
    return status;
}

static void ids_are_those_of_the_library(void)
{
    static const struct {
        const char *text;
        uint32_t ids[8], count;
        const char *decoded;
    } cases[] = {
        {"ab ab", {8, 8}, 2, "ab ab"},
        {"a  ab", {9, 4, 8}, 3, "a  ab"},
        {"é", {4, 2, 3}, 3, "é"},
        {"b> ab", {4, 6, 11, 8}, 4, "b> ab"},
        {"b> b", {4, 6, 12, 6}, 4, "b> b"},
        {"a [X] b", {9, 17, 4, 6}, 4, "a [X] b"},
        {"中中b", {4, 0, 6}, 3, "<unk>b"},
        {"<s>a", {4, 13, 14, 11, 5}, 5, "<s>a"},
        {"", {0}, 0, ""},
    };
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_encoder *encoder = NULL;
    struct mics_err err = {.text = ""};

    CHECK_INT(open_json(edit(sp, "'", "'"), &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (!tokenizer || mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK)
        return;
    CHECK_INT(mics_tokenizer_size(tokenizer), 18);
    CHECK_INT(mics_tokenizer_begin(tokenizer), 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mics_decoder *decoder = NULL;
        const uint32_t *ids = NULL;
        const char *text = NULL;
        char decoded[64];
        uint64_t special = 0;
        size_t count = 0, size = 0, length = 0;

        CHECK_INT(mics_encode(encoder, cases[i].text, strlen(cases[i].text), 0, &ids, &count,
                              &special, &err),
                  MICS_OK);
        CHECK_INT(count, cases[i].count);
        for (size_t k = 0; k < count && k < cases[i].count; k++)
            CHECK_INT(ids[k], cases[i].ids[k]);
        CHECK_INT(special, strstr(cases[i].text, "<s>") != NULL);
        CHECK_INT(mics_decoder_new(tokenizer, false, &decoder, &err), MICS_OK);
        CHECK_INT(mics_decode(decoder, ids, count, &text, &size, &err), MICS_OK);
        memcpy(decoded, text, size);
        CHECK_INT(mics_decode_end(decoder, &text, &length, &err), MICS_OK);
        memcpy(decoded + size, text, length);
        decoded[size + length] = '\0';
        CHECK_STR(decoded, cases[i].decoded);
        mics_decoder_free(decoder);
    }
    mics_encoder_free(encoder);
    mics_tokenizer_free(tokenizer);
}

static const struct refusal {
    const char *find, *replacement, *message;
} refusals[] = {
    {"'1.0'", "'2.0'", "version: '2.0' is not supported, only '1.0'"},
    {"'truncation'", "'shuffle': 1, 'truncation'", "shuffle: not supported"},
    {"'Prepend'", "'Unprepend'",
     "normalizer.normalizers[0].type: normalizer 'Unprepend' is not supported"},
    {"'pre_tokenizer': null", "'pre_tokenizer': {'type': 'UnicodeScripts'}",
     "pre_tokenizer.type: pre-tokenizer 'UnicodeScripts' is not supported"},
    {"'pre_tokenizer': null",
     "'pre_tokenizer': {'type': 'Metaspace', 'replacement': '▁', 'add_prefix_space': false,"
     "'prepend_scheme': 'first'}",
     "pre_tokenizer.add_prefix_space: is false, but prepend_scheme is 'first'"},
    {"'pre_tokenizer': null", "'pre_tokenizer': {'type': 'Metaspace', 'replacement': '__'}",
     "pre_tokenizer.replacement: expected one character, found '__'"},
    {"'String': ' '", "'Regex': '('",
     "normalizer.normalizers[1].pattern.Regex: regular expression: offset 1: missing closing "
     "parenthesis"},
    {"'String': ' '", "'Regex': 'x*'",
     "normalizer.normalizers[1].pattern: 'x*' can match the empty text, which is not "
     "supported"},
    {"'String': ' '", "'String': ''",
     "normalizer.normalizers[1].pattern.String: must not be empty"},
    {"'start': 1", "'start': -1", "decoder.decoders[3].start: expected 0 to 4294967295, found -1"},
    {"'BPE'", "'WordLevel'",
     "model.type: model 'WordLevel' is not supported, only BPE, WordPiece and Unigram"},
    {"'Fuse'", "'CTC'", "decoder.decoders[2].type: decoder 'CTC' is not supported"},
    {"'Fuse'", "'BPEDecoder'", "decoder.decoders[2].type: decoder 'BPEDecoder' is not supported"},
    {"'TemplateProcessing'", "'Pairs'",
     "post_processor.type: post-processor 'Pairs' is not supported"},
    {"'ids': [1]", "'ids': [99]",
     "post_processor.special_tokens.<s>.ids[0]: id 99 is not in the vocabulary"},
    {"'fuse_unk'", "'dropout': 0.1, 'fuse_unk'", "model.dropout: not supported"},
    {"['a', 'b']", "['a', 'q']", "model.merges[0]: token 'q' is not in the vocabulary"},
    {"['a', 'b']", "['a', 's']", "model.merges[0]: token 'as' is not in the vocabulary"},
    {"['a', 'b']", "'a b c'", "model.merges[0]: expected two tokens"},
    {"'a': 5", "'a': -5", "model.vocab.a: expected an id below 16777216"},
    {"'unk_token': '<unk>'", "'unk_token': '<u>'",
     "model.unk_token: token '<u>' is not in the vocabulary"},
    {"'rstrip'", "'strip'", "added_tokens[2].strip: not supported"},
    {"'id': 17", "'id': 18",
     "added_tokens[2].id: is 18, but the next that is not in the vocabulary is 17"},
    {"'Prepend',", "'Prepend', 'all': true,", "normalizer.normalizers[0].all: not supported"},
    {"'pre_tokenizer': null",
     "'pre_tokenizer': {'type': 'Metaspace', 'replacement': '▁', 'last': true}",
     "pre_tokenizer.last: not supported"},
    {"'pre_tokenizer': null",
     "'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '[a&&b]'},"
     "'behavior': 'Isolated', 'invert': false}",
     "regular expression: && is not supported"},
    {"'pre_tokenizer': null",
     "'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '\\\\p{N}{1,3}+'},"
     "'behavior': 'Isolated', 'invert': false}",
     "regular expression: }+ is not supported"},
    {"'ByteFallback'", "'ByteFallback', 'x': 1", "decoder.decoders[1].x: not supported"},
    {"'TemplateProcessing',", "'TemplateProcessing', 'x': 1,", "post_processor.x: not supported"},
    {"'id': 1, 'content'", "'id': 2, 'content'",
     "added_tokens[1].id: is 2, but the vocabulary has 1"},
};

static void what_is_not_supported_is_named(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct mics_tokenizer *tokenizer = NULL;
        struct mics_err err = {.text = ""};
        char want[256];

        snprintf(want, sizeof want, "tokenizer.json: %s", refusals[i].message);
        CHECK(open_json(edit(sp, refusals[i].find, refusals[i].replacement), &tokenizer, &err) !=
              MICS_OK);
        CHECK_STR(err.text, want);
        CHECK(tokenizer == NULL);
    }
}

/* Files that were saved with truncation or padding, and members of which Python makes something. */
static void what_cannot_change_ids_is_ignored(void)
{
    static const char *const replacements[] = {
        "'truncation': {'direction': 'Right', 'max_length': 2, 'strategy': 'LongestFirst'}",
        "'truncation': null, 'padding': {'strategy': {'Fixed': 9}, 'pad_id': 0}",
        "'truncation': NaN, 'padding': [1e999, 17293822569102704640]",
        "'version': '1.0', 'truncation': '\\ud83d'",
    };

    for (size_t i = 0; i < sizeof replacements / sizeof replacements[0]; i++) {
        struct mics_tokenizer *tokenizer = NULL;
        struct mics_err err = {.text = ""};

        CHECK_INT(open_json(edit(sp, "'truncation': null", replacements[i]), &tokenizer, &err),
                  MICS_OK);
        CHECK_STR(err.text, "");
        mics_tokenizer_free(tokenizer);
    }
}

/* A tokenizer of bytes with a list of pre-tokenizers and NFC. */
static void pieces_and_normal_forms_are_those_of_the_library(void)
{
    static const char *const json =
        "{'version': '1.0', 'normalizer': {'type': 'NFC'}, 'pre_tokenizer': {'type': 'Sequence',"
        "'pretokenizers': [{'type': 'Digits', 'individual_digits': true}, {'type': 'Split',"
        "'pattern': {'String': '.'}, 'behavior': 'Removed', 'invert': false}, {'type': 'ByteLevel',"
        "'add_prefix_space': true, 'trim_offsets': true}]}, 'decoder': {'type': 'ByteLevel'},"
        "'model': {'vocab': {'1': 0, 'Ġ': 1, 'a': 2, 'Ġa': 3, 'Ã': 4, '©': 5, "
        "'Ã©': 6, '11': 7},"
        "'merges': ['#version: 0.2', 'Ġ a', 'Ã ©', '1 1']}}";
    /* e and U+0301 are one character, each digit is a piece, and a full stop goes. */
    static const char *const text = "11.a.e\xcc\x81 a";
    static const uint32_t want[] = {1, 0, 1, 0, 3, 1, 6, 3};
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_encoder *encoder = NULL;
    struct mics_err err = {.text = ""};
    const uint32_t *ids = NULL;
    size_t count = 0;

    CHECK_INT(open_json(edit(json, "'", "'"), &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (!tokenizer || mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK)
        return;
    CHECK_INT(mics_encode(encoder, text, strlen(text), 0, &ids, &count, NULL, &err), MICS_OK);
    CHECK_INT(count, 8);
    for (size_t i = 0; i < count && i < 8; i++)
        CHECK_INT(ids[i], want[i]);
    mics_encoder_free(encoder);
    mics_tokenizer_free(tokenizer);
}

/* Ids of a text that is encoded in one, or in two parts, as text. */
static void ids_text(struct mics_tokenizer *tokenizer, const char *text, size_t cut, char *out)
{
    struct mics_encoder *encoder = NULL;
    struct mics_err err = {.text = ""};
    const uint32_t *ids = NULL;
    size_t count = 0;

    out[0] = '\0';
    if (mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK)
        abort();
    for (int part = 0; part < 2; part++) {
        const char *from = part ? text + cut : text;

        CHECK_INT(mics_encode(encoder, from, part ? strlen(from) : cut,
                              part ? MICS_TOKENIZER_CONTINUES : 0, &ids, &count, NULL, &err),
                  MICS_OK);
        for (size_t i = 0; i < count; i++)
            sprintf(out + strlen(out), "%u ", ids[i]);
    }
    mics_encoder_free(encoder);
}

/* \w beside it: a letter, a mark, a joiner, a circled letter; not ². */
static void a_single_word_is_no_part_of_another(void)
{
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"[X]", "17 "},
        {"a[X]", "9 15 16 0 "},
        {"> [X]b", "4 12 15 16 0 6 "},
        {"[X]\xcc\x81", "4 15 16 0 "},
        {"\xe2\x80\x8d[X]", "4 0 15 16 0 "},
        {">[X]>", "4 11 17 4 11 "},
        {"\xc2\xb2[X]", "4 0 17 "},
    };
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};
    char out[256];

    CHECK_INT(
        open_json(edit(sp, "'normalized': true, 'rstrip'", "'normalized': false, 'single_word'"),
                  &tokenizer, &err),
        MICS_OK);
    CHECK_STR(err.text, "");
    for (size_t i = 0; tokenizer && i < sizeof cases / sizeof cases[0]; i++) {
        ids_text(tokenizer, cases[i].text, strlen(cases[i].text), out);
        CHECK_STR(out, cases[i].ids);
    }
    mics_tokenizer_free(tokenizer);
}

/* There it may be unknown together with what is before it, or merge with it. */
static void a_text_is_not_cut_at_a_space_that_stays_one(void)
{
    static const char *const with =
        "'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '▁'},"
        "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}]}";
    static const char *const without[] = {
        "'normalizer': null",
        "'normalizer': {'type': 'Prepend', 'prepend': '▁'}",
    };
    static const char text[] = "ab a1  ab q a";

    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        struct mics_tokenizer *tokenizer = NULL;
        struct mics_err err = {.text = ""};

        CHECK_INT(open_json(edit(sp, with, without[i]), &tokenizer, &err), MICS_OK);
        CHECK_STR(err.text, "");
        if (tokenizer)
            CHECK_INT(mics_tokenizer_cut(tokenizer, text, strlen(text)), 0);
        mics_tokenizer_free(tokenizer);
    }
}

static void a_text_without_spaces_is_cut_at_lines(void)
{
    static const char text[] = "中中\n中ab\nab ab> ab\n\n ab[X] \nb";
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};
    char whole[256], parts[256];
    size_t cuts = 0;

    CHECK_INT(open_json(edit(sp, "'<0xC3>'", "'\\n'"), &tokenizer, &err), MICS_OK);
    if (!tokenizer)
        return;
    ids_text(tokenizer, text, strlen(text), whole);
    for (size_t size = 1; size <= strlen(text); size++) {
        const size_t cut = mics_tokenizer_cut(tokenizer, text, size);

        cuts += cut > 0;
        ids_text(tokenizer, text, cut > 0 ? cut : strlen(text), parts);
        CHECK_STR(parts, whole);
    }
    CHECK(cuts > 10);
    CHECK_INT(mics_tokenizer_cut(tokenizer, text, 10), 7);
    mics_tokenizer_free(tokenizer);
}

/* The library has Unicode 10: U+A7F2 and U+07FD are none of its characters. */
static void later_characters_are_not_normalized(void)
{
    static const char *const json =
        "{'version': '1.0', 'normalizer': {'type': 'NFKC'}, 'decoder': {'type': 'ByteFallback'},"
        "'model': {'unk_token': '?', 'vocab': {'?': 0, 'C': 1, 'K': 2, '\xea\x9f\xb2': 3,"
        "'\xdf\xbd': 4, '\xcc\x93': 5, 'a': 6, 'á': 7}, 'merges': []}}";
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};
    char out[256];
    /* KELVIN SIGN is K; a mark of a lower class would go before one of a higher class. */
    static const char text[] = "\xe2\x84\xaa\xea\x9f\xb2\xcc\x93\xdf\xbd"
                               "a\xcc\x81";

    CHECK_INT(open_json(edit(json, "'", "'"), &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (!tokenizer)
        return;
    ids_text(tokenizer, text, strlen(text), out);
    CHECK_STR(out, "2 3 5 4 7 ");
    mics_tokenizer_free(tokenizer);
}

int main(void)
{
    TAP_RUN(ids_are_those_of_the_library);
    TAP_RUN(what_is_not_supported_is_named);
    TAP_RUN(what_cannot_change_ids_is_ignored);
    TAP_RUN(pieces_and_normal_forms_are_those_of_the_library);
    TAP_RUN(a_single_word_is_no_part_of_another);
    TAP_RUN(a_text_is_not_cut_at_a_space_that_stays_one);
    TAP_RUN(a_text_without_spaces_is_cut_at_lines);
    TAP_RUN(later_characters_are_not_normalized);
    return tap_done();
}
