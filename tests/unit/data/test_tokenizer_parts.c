/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers, pre-tokenizers and decoders of tokenizer.json, with ids and texts of the tokenizers
 * library 0.23.3 (tests/reference/make_tokenizers.py makes larger ones to compare with it), and
 * tekken.json, with ids of mistral-common 1.13.1. */
#include "data/tokenizer.h"
#include "tap.h"

#include <stdlib.h>

#define BYTE_LEVEL                                                                                 \
    "{'type': 'ByteLevel', 'add_prefix_space': true, 'trim_offsets': true, "                       \
    "'use_regex': true}"

#define METASPACE "{'type': 'Metaspace', 'replacement': '▁'}"

/* ' stands for ". */
static const struct row {
    bool bytes; /* of byte-level BPE; else of characters, with the bytes C2 and C3 */
    const char *normalizer, *pretokenizer, *decoder;
    const char *text, *ids, *decoded;
} rows[] = {
    {false, "null", "{'type': 'Metaspace', 'replacement': '▁'}",
     "{'type': 'Metaspace', 'replacement': '▁'}", "ab  ab c", "15 32 15 15 32 15 5", "ab  ab c"},
    {false, "null", "{'type': 'Metaspace', 'replacement': '▁'}",
     "{'type': 'Metaspace', 'replacement': '▁'}", " ab", "15 32", "ab"},
    {false, "null", "{'type': 'Metaspace', 'replacement': '▁'}",
     "{'type': 'Metaspace', 'replacement': '▁'}", "▁a", "33", "a"},
    {false, "null", "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'first'}",
     "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'first'}", "ab<t>ab",
     "15 32 40 32", "ab<t>ab"},
    {false, "null", "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'first'}",
     "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'first'}", "a b", "33 15 4",
     "a b"},
    {false, "null",
     "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'never', 'split': "
     "false}",
     "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'never'}", "ab ab", "32 15 32",
     "ab ab"},
    {false, "null",
     "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'never', 'split': "
     "false}",
     "{'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': "
     "'never'}",
     " ab", "15 32", " ab"},
    {false, "null", "{'type': 'Metaspace', 'replacement': '▁', 'add_prefix_space': true}",
     "{'type': 'Metaspace', 'replacement': '▁', 'add_prefix_space': true, "
     "'prepend_scheme': "
     "'never'}",
     "ab ab", "15 32 15 32", " ab ab"},
    {false, "null", "{'type': 'Metaspace', 'replacement': '_'}",
     "{'type': 'Metaspace', 'replacement': '_'}", "a a_b", "39 39 14 4", "a a b"},
    {false, "null",
     "{'type': 'Sequence', 'pretokenizers': [{'type': 'WhitespaceSplit'}, {'type': "
     "'Metaspace', "
     "'replacement': '▁', 'prepend_scheme': 'first'}]}",
     "{'type': 'Sequence', 'decoders': [{'type': 'Fuse'}, {'type': 'Metaspace', "
     "'replacement': "
     "'▁'}]}",
     "a ab", "33 32", "aab"},
    {false, "null",
     "{'type': 'Sequence', 'pretokenizers': [{'type': 'WhitespaceSplit'}, {'type': "
     "'Metaspace', "
     "'replacement': '▁', 'prepend_scheme': 'first'}]}",
     "{'type': 'Sequence', 'decoders': [{'type': 'Fuse'}, {'type': 'Metaspace', "
     "'replacement': "
     "'▁'}]}",
     "  ab a", "32 3", "aba"},
    {false, "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}", "null",
     "{'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'String': "
     "'▁'}, 'content': "
     "' '}, {'type': 'Strip', 'content': ' ', 'start': 0, 'stop': 1}, {'type': "
     "'Fuse'}, {'type': "
     "'Strip', 'content': 'a', 'start': 1, 'stop': 1}]}",
     "  ab a", "37 32 33", " ab "},
    {false, "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}", "null",
     "{'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'String': "
     "'▁'}, 'content': "
     "' '}, {'type': 'Strip', 'content': ' ', 'start': 0, 'stop': 1}, {'type': "
     "'Fuse'}, {'type': "
     "'Strip', 'content': 'a', 'start': 1, 'stop': 1}]}",
     "ab  ", "32 37", "b "},
    {false, "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}", "null",
     "{'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'Regex': "
     "'▁+|^c'}, "
     "'content': ' '}, {'type': 'Fuse'}, {'type': 'Replace', 'pattern': {'Regex': ' "
     "b'}, "
     "'content': '-'}, {'type': 'Strip', 'content': ' ', 'start': 2, 'stop': 1}]}",
     "c  b a ", "5 37 4 33 15", "- a"},
    {false, "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}", "null",
     "{'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'Regex': "
     "'▁+|^c'}, "
     "'content': ' '}, {'type': 'Fuse'}, {'type': 'Replace', 'pattern': {'Regex': ' "
     "b'}, "
     "'content': '-'}, {'type': 'Strip', 'content': ' ', 'start': 2, 'stop': 1}]}",
     "  b", "37 4", "-"},
    {false, "null", "null",
     "{'type': 'Sequence', 'decoders': [{'type': 'ByteFallback'}, {'type': 'Strip', "
     "'content': "
     "'é', 'start': 1, 'stop': 0}]}",
     "éa", "13 3", "a"},
    {false, "{'type': 'Strip', 'strip_left': true, 'strip_right': true}",
     "{'type': 'Metaspace', 'replacement': '▁'}", "{'type': 'Metaspace', 'replacement': '▁'}",
     "  a b\xe3\x80\x80"
     "\n",
     "33 15 4", "a b"},
    {false, "{'type': 'Strip', 'strip_left': true, 'strip_right': true}", METASPACE, METASPACE,
     "\n", "", ""},
    {false, "{'type': 'Strip', 'strip_left': true, 'strip_right': false}", "null", "null", " a \n",
     "3 16 28", "a   \n"},
    {false, "{'type': 'Strip', 'strip_left': false, 'strip_right': true}", "null", "null",
     "  a<t> b ", "16 36 40 16 4", "   a <t>   b"},
    {false, "{'type': 'Lowercase'}", "null", "null", "ABK", "32 11", "ab k"},
    {false, "{'type': 'Lowercase'}", "null", "null", "İK", "9 30 11",
     "i \xcc\x87"
     " k"},
    {false, "{'type': 'Lowercase'}", "null", "null", "É", "13", "é"},
    {false,
     "{'type': 'Sequence', 'normalizers': [{'type': 'NFD'}, {'type': 'StripAccents'}, "
     "{'type': "
     "'Lowercase'}]}",
     "null", "null",
     "Éé\xdf\xbd"
     "A",
     "0 0 24 3",
     "<unk> <unk> \xdf\xbd"
     " a"},
    {false, "{'type': 'Nmt'}", "null", "null",
     "a\xe2\x80\x8b"
     "b\x01\xef\xbb\xbf\x7f"
     "c▁",
     "3 16 4 16 5 16", "a   b   c  "},
    {false, "{'type': 'Replace', 'pattern': {'Regex': '\\\\s+'}, 'content': ' '}", "null", "null",
     "a \n\tb", "3 16 4", "a   b"},
    {false, "{'type': 'Replace', 'pattern': {'Regex': '\\\\s+'}, 'content': ' '}", "null", "null",
     "a\xe1\xa0\x8e"
     "b",
     "3 0 4", "a <unk> b"},
    {false, "{'type': 'Replace', 'pattern': {'Regex': '\\\\b\\\\w|\\\\W$'}, 'content': 'W'}",
     "null", "null", "ab ².", "8 4 16 8 8", "W b   W W"},
    {false, "{'type': 'Replace', 'pattern': {'Regex': '\\\\b\\\\w|\\\\W$'}, 'content': 'W'}",
     "null", "null",
     "a\xcc\x81"
     "b é!",
     "8 31 4 16 8 8",
     "W \xcc\x81"
     " b   W W"},
    {false, "{'type': 'Replace', 'pattern': {'Regex': '(\\\\d)\\\\d'}, 'content': '$1'}", "null",
     "null", "123", "0 20 22", "<unk> 1 3"},
    {false,
     "{'type': 'Replace', 'pattern': {'Regex': '\\\\p{Han}|[[:punct:]]'}, 'content': "
     "'c'}",
     "null", "null", "中a、!\xe3\x80\x85", "5 3 5 5 5", "c a c c c"},
    {false, "{'type': 'Replace', 'pattern': {'Regex': '^[a[bc]]'}, 'content': 'x'}", "null", "null",
     "ab\nbc\n", "6 4 28 6 5 28", "x b \n x c \n"},
    {false,
     "{'type': 'Replace', 'pattern': {'Regex': '\\\\u4e2d|\\\\p{Lowercase_Letter}'}, "
     "'content': "
     "'_'}",
     "null", "null", "中aA", "14 14 7", "_ _ A"},
    {false, "null", "{'type': 'Whitespace'}", "null", "ab a.!b", "32 3 17 19 4", "ab a . ! b"},
    {false, "null", "{'type': 'Whitespace'}", "null", "a²_b 中国", "3 23 14 4 26 27",
     "a ² _ b 中 国"},
    {false, "null", "{'type': 'WhitespaceSplit'}", "{'type': 'Fuse'}",
     "ab a.b\xe2\x80\xa8"
     "c",
     "32 3 17 4 5", "aba.bc"},
    {false, "null", "{'type': 'BertPreTokenizer'}", "null", "ab, c!", "32 18 5 19", "ab , c !"},
    {false, "null", "{'type': 'CharDelimiterSplit', 'delimiter': '.'}", "null", "ab.b..c", "32 4 5",
     "ab b c"},
    {false, "null", "{'type': 'FixedLength', 'length': 2}", "{'type': 'Fuse'}", "abcé中",
     "32 5 13 26", "abcé中"},
    {false, "null",
     "{'type': 'Split', 'pattern': {'Regex': '[^(\\\\s|[.,!])]+'}, 'behavior': "
     "'MergedWithPrevious', 'invert': false}",
     "{'type': 'Fuse'}", "ab .c!ab", "32 16 17 5 19 32", "ab .c!ab"},
    {true, "{'type': 'ByteLevel'}",
     "{'type': 'Split', 'pattern': {'String': 'Ġ'}, 'behavior': 'MergedWithNext', "
     "'invert': false}",
     BYTE_LEVEL, "ab ab é", "256 220 256 220 261", "ab ab é"},
    {true, "{'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'ByteLevel'}]}", "null",
     "{'type': 'Sequence', 'decoders': [" BYTE_LEVEL ", {'type': 'Fuse'}]}",
     "e\xcc\x81"
     " ab",
     "261 220 256", "é ab"},
    {true, "null",
     "{'type': 'Sequence', 'pretokenizers': [{'type': 'Punctuation', 'behavior': "
     "'Contiguous'}, "
     "{'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true, "
     "'use_regex': true}, "
     "{'type': 'Digits', 'individual_digits': false}, {'type': 'Split', 'pattern': "
     "{'Regex': "
     "'[0-9][0-9][0-9]'}, 'behavior': 'Isolated', 'invert': false}]}",
     BYTE_LEVEL, "ab1234²..", "256 259 19 126 110 13 13", "ab1234².."},
    {true, "null",
     "{'type': 'Sequence', 'pretokenizers': [{'type': 'Punctuation', 'behavior': "
     "'Contiguous'}, "
     "{'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true, "
     "'use_regex': true}, "
     "{'type': 'Digits', 'individual_digits': false}, {'type': 'Split', 'pattern': "
     "{'Regex': "
     "'[0-9][0-9][0-9]'}, 'behavior': 'Isolated', 'invert': false}]}",
     BYTE_LEVEL, "12 123a", "258 220 259 64", "12 123a"},
    {true, "null",
     "{'type': 'Sequence', 'pretokenizers': [{'type': 'Digits', 'individual_digits': "
     "true}, " BYTE_LEVEL "]}",
     BYTE_LEVEL, "a12b", "257 220 16 220 17 220 65", " a 1 2 b"},
};

static const char *const characters = "'vocab': {'<unk>': 0, '<0xC2>': 1, '<0xC3>': 2, "
                                      "'a': 3, 'b': 4, 'c': 5, 'x': 6, 'A': 7, 'W': "
                                      "8,"
                                      "'i': 9, 'K': 10, 'k': 11, 'É': 12, 'é': 13, "
                                      "'_': 14, '▁': 15, ' ': 16, '.': 17, ',': 18,"
                                      "'!': 19, '1': 20, '2': 21, '3': 22, '²': 23, "
                                      "'\xdf\xbd': 24, 'ß': 25, '中': 26, '国': 27,"
                                      "'\\n': 28, '-': 29, '\xcc\x87': 30, '\xcc\x81': "
                                      "31, 'ab': 32, '▁a': 33, '▁ab': 34, '12': 35,"
                                      "' a': 36, '▁▁': 37, 'bc': 38, '_a': 39},"
                                      "'merges': [['a','b'], ['▁','a'], ['▁a','b'], "
                                      "['1','2'], [' ','a'], ['▁','▁'], ['b','c'],"
                                      "['_','a']]";

/* The vocabulary of byte-level BPE: the alphabet in the order of its characters, and merges. */
static void append_bytes(char *json)
{
    char *end = json + strlen(json);
    unsigned id = 0;

    end += sprintf(end, "'vocab': {");
    for (unsigned c = 0x21; c < 0x144; c++) {
        if ((c > 0x7e && c < 0xa1) || c == 0xad)
            continue;
        end += c == '"' || c == '\\' ? sprintf(end, "'\\%c': %u, ", (int)c, id++)
                                     : sprintf(end, "'\\u%04x': %u, ", c, id++);
    }
    sprintf(end, "'ab': 256, 'Ġa': 257, '12': 258, '123': 259, 'ĠĠ': 260, 'Ã©': 261,"
                 "'bc': 262},"
                 "'merges': [['a','b'], ['Ġ','a'], ['1','2'], ['12','3'], ['Ġ','Ġ'],"
                 "['Ã','©'],"
                 "['b','c']]");
}

static struct mics_tokenizer *open_row(const struct row *row)
{
    char *json = calloc(1, 1 << 14);
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};

    sprintf(json,
            "{'version': '1.0', 'added_tokens': [{'id': %d, 'content': '<t>', 'special': "
            "false,"
            "'normalized': false}], 'normalizer': %s, 'pre_tokenizer': %s, 'decoder': %s,"
            "'model': {'type': 'BPE', 'unk_token': %s, 'byte_fallback': %s, ",
            row->bytes ? 263 : 40, row->normalizer, row->pretokenizer, row->decoder,
            row->bytes ? "null" : "'<unk>'", row->bytes ? "false" : "true");
    if (row->bytes)
        append_bytes(json);
    else
        strcat(json, characters);
    strcat(json, "}}");
    for (char *c = json; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';

    const struct mics_tokenizer_file file = {
        .name = "tokenizer.json", .bytes = (unsigned char *)json, .size = strlen(json)};

    CHECK_INT(mics_tokenizer_open_files(&file, 1, &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    free(json);
    return tokenizer;
}

static struct mics_encoder *open_encoder(const struct mics_tokenizer *tokenizer)
{
    struct mics_encoder *encoder = NULL;
    struct mics_err err = {.text = ""};

    CHECK_INT(mics_encoder_new(tokenizer, &encoder, &err), MICS_OK);
    return encoder;
}

/* Ids of a text that is encoded in one, or in two parts, as text. */
static void ids_text(struct mics_encoder *encoder, const char *text, size_t cut, char *out)
{
    struct mics_err err = {.text = ""};
    char *end = out;

    *end = '\0';
    for (int part = cut > 0 ? 0 : 1; part < 2; part++) {
        const char *from = part ? text + cut : text;
        const size_t size = part ? strlen(from) : cut;
        const int flags = part && cut > 0 ? MICS_TOKENIZER_CONTINUES : 0;
        const uint32_t *ids = NULL;
        size_t count = 0;

        CHECK_INT(mics_encode(encoder, from, size, flags, &ids, &count, NULL, &err), MICS_OK);
        for (size_t i = 0; i < count; i++)
            end += sprintf(end, end == out ? "%u" : " %u", ids[i]);
    }
}

/* What ids, written as text, decode to, when they come one by one. */
static void decode(const struct mics_tokenizer *tokenizer, const char *ids, char *out)
{
    struct mics_decoder *decoder = NULL;
    struct mics_err err = {.text = ""};
    const char *text = NULL;
    size_t size = 0, length = 0;
    char *next = NULL;

    CHECK_INT(mics_decoder_new(tokenizer, false, &decoder, &err), MICS_OK);
    for (; *ids != '\0'; ids = next) {
        const uint32_t id = (uint32_t)strtoul(ids, &next, 10);

        CHECK_INT(mics_decode(decoder, &id, 1, &text, &size, &err), MICS_OK);
        memcpy(out + length, text, size);
        length += size;
    }
    CHECK_INT(mics_decode_end(decoder, &text, &size, &err), MICS_OK);
    memcpy(out + length, text, size);
    out[length + size] = '\0';
    mics_decoder_free(decoder);
}

static void parts_are_those_of_the_library(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mics_tokenizer *tokenizer = open_row(&rows[i]);
        char out[256];

        if (!tokenizer)
            continue;
        struct mics_encoder *encoder = open_encoder(tokenizer);

        ids_text(encoder, rows[i].text, 0, out);
        mics_encoder_free(encoder);
        CHECK_STR(out, rows[i].ids);
        decode(tokenizer, rows[i].ids, out);
        CHECK_STR(out, rows[i].decoded);
        mics_tokenizer_free(tokenizer);
    }
}

/* Wherever a text may be cut, its parts have the ids of the whole. */
static void cuts_are_exact(void)
{
    static const char text[] = "ab12 a,b  ab\n ab. 12ab Ab \xcc\x81 b\xc3\xa9 ab ab1 2 a";
    size_t cuts = 0;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mics_tokenizer *tokenizer = open_row(&rows[i]);
        char whole[512], parts[512];

        if (!tokenizer)
            continue;
        struct mics_encoder *encoder = open_encoder(tokenizer);

        ids_text(encoder, text, 0, whole);
        for (size_t size = 1; size < sizeof text; size++) {
            const size_t cut = mics_tokenizer_cut(tokenizer, text, size);

            cuts += cut > 0;
            ids_text(encoder, text, cut, parts);
            CHECK_STR(parts, whole);
        }
        mics_encoder_free(encoder);
        mics_tokenizer_free(tokenizer);
    }
    CHECK(cuts > 300);
}

/* Bytes that follow each other are a text, or as many U+FFFD. */
static void bytes_that_are_no_text_are_replaced_together(void)
{
    static const struct row row = {
        .normalizer = "null", .pretokenizer = "null", .decoder = "{'type': 'ByteFallback'}"};
    struct mics_tokenizer *tokenizer = open_row(&row);
    char out[64];

    if (!tokenizer)
        return;
    decode(tokenizer, "2 1 3", out);
    CHECK_STR(out, "\xef\xbf\xbd\xef\xbf\xbd"
                   "a");
    decode(tokenizer, "3 1", out);
    CHECK_STR(out, "a\xef\xbf\xbd");
    mics_tokenizer_free(tokenizer);
}

int main(void)
{
    TAP_RUN(parts_are_those_of_the_library);
    TAP_RUN(cuts_are_exact);
    TAP_RUN(bytes_that_are_no_text_are_replaced_together);
    return tap_done();
}
