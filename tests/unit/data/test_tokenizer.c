/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE, from small files in memory; other readers have tests of their own. */
#include "data/tokenizer/tokenizer_internal.h"
#include "tap.h"

#include <stdlib.h>

static const char *const merges[] = {"h e",   "l l",    "he ll",   "hell o", "Ġ w",  "o r",
                                     "Ġw or", "Ġwor l", "Ġworl d", "a a",    "aa a", "aa aa"};
#define MERGES (sizeof merges / sizeof merges[0])

/* vocab.json (the alphabet in the order of its characters, what merges make, <|endoftext|>) and
 * merges.txt, to be freed by the caller. */
static void make_files(struct mics_tokenizer_file files[2])
{
    char *vocab = calloc(1, 1 << 16), *text = calloc(1, 1 << 12), *end = vocab;
    unsigned id = 0;

    end += sprintf(end, "{");
    for (unsigned c = 0x21; c < 0x144; c++) {
        if ((c > 0x7e && c < 0xa1) || c == 0xad)
            continue;
        if (c == '"' || c == '\\')
            end += sprintf(end, "\"\\%c\": %u, ", (int)c, id++);
        else
            end += sprintf(end, "\"\\u%04x\": %u, ", c, id++);
    }
    strcpy(text, "#version: 0.2\n");
    for (size_t i = 0; i < MERGES; i++) {
        const char *blank = strchr(merges[i], ' ');

        end +=
            sprintf(end, "\"%.*s%s\": %u, ", (int)(blank - merges[i]), merges[i], blank + 1, id++);
        strcat(strcat(text, merges[i]), "\n");
    }
    sprintf(end, "\"<|endoftext|>\": %u}", id);
    files[0] = (struct mics_tokenizer_file){
        .name = "vocab.json", .bytes = (unsigned char *)vocab, .size = strlen(vocab)};
    files[1] = (struct mics_tokenizer_file){
        .name = "merges.txt", .bytes = (unsigned char *)text, .size = strlen(text)};
}

static struct mics_tokenizer *open_small(void)
{
    struct mics_tokenizer_file files[2];
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};

    make_files(files);
    CHECK_INT(mics_tokenizer_open_files(files, 2, &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    free(files[0].bytes);
    free(files[1].bytes);
    return tokenizer;
}

/* The ids of a text as their texts, with | behind each. */
static const char *pieces_of(const struct mics_tokenizer *tokenizer, const char *text, size_t size,
                             int flags, uint64_t *special)
{
    static char out[4096];
    struct mics_encoder *encoder;
    struct mics_err err;
    const uint32_t *ids;
    size_t count, at = 0;

    CHECK_INT(mics_encoder_new(tokenizer, &encoder, &err), MICS_OK);
    CHECK_INT(mics_encode(encoder, text, size, flags, &ids, &count, special, &err), MICS_OK);
    for (size_t i = 0; i < count; i++) {
        const struct mics_token *token = &tokenizer->vocab.tokens[ids[i]];

        memcpy(out + at, tokenizer->vocab.text.bytes + token->offset, token->length);
        at += token->length;
        out[at++] = '|';
    }
    out[at] = '\0';
    mics_encoder_free(encoder);
    return out;
}

static void pairs_merge_in_the_order_of_the_file(void)
{
    struct mics_tokenizer *tokenizer = open_small();
    uint64_t special = 0;

    CHECK_STR(pieces_of(tokenizer, "hello world", 11, 0, NULL), "hello| world|");
    CHECK_STR(pieces_of(tokenizer, "hell  word", 10, 0, NULL), "hell| | wor|d|");
    CHECK_STR(pieces_of(tokenizer, "aaaaa", 5, 0, NULL), "aa|aaa|");
    CHECK_STR(pieces_of(tokenizer, "", 0, 0, NULL), "");
    CHECK_STR(pieces_of(tokenizer, "a\xff\xc3he", 5, 0, NULL), "a|\xff|\xc3|he|");
    CHECK_STR(pieces_of(tokenizer, "<|endoftext|>a", 14, 0, &special),
              "<|||e|n|d|o|f|t|e|x|t|||>|a|");
    CHECK_INT(special, 1);
    CHECK_STR(pieces_of(tokenizer, "<|endoftext|>a", 14, MICS_TOKENIZER_SPECIAL, &special),
              "<|endoftext|>|a|");
    CHECK_INT(special, 0);
    CHECK_INT(mics_tokenizer_end(tokenizer), 256 + MERGES);
    CHECK_INT(mics_tokenizer_size(tokenizer), 257 + MERGES);
    CHECK(mics_tokenizer_is_special(tokenizer, 256 + MERGES));
    mics_tokenizer_free(tokenizer);
}

/* All pairs are looked at again after each merge. */
static size_t merge_simply(const struct mics_bpe *bpe, uint32_t *ids, size_t count)
{
    for (;;) {
        const struct mics_merge *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < count; i++) {
            const struct mics_merge *merge = mics_bpe_find_merge(bpe, ids[i], ids[i + 1]);

            if (merge != NULL && (best == NULL || merge->rank < best->rank)) {
                best = merge;
                at = i;
            }
        }
        if (best == NULL)
            return count;
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof *ids);
        count--;
    }
}

static void long_pieces_merge_like_short_ones(void)
{
    struct mics_tokenizer *tokenizer = open_small();
    struct mics_model_memory memory = {0};
    struct mics_ids ids = {0};
    unsigned state = 1;

    CHECK_INT(mics_ids_reserve(&ids, 1024), MICS_OK);
    for (unsigned round = 0; round < 300; round++) {
        unsigned char piece[700];
        uint32_t want[700];
        const uint32_t length = 1 + round * 2;
        size_t count;

        for (uint32_t i = 0; i < length; i++) {
            state = state * 1103515245 + 12345;
            piece[i] = (unsigned char)"aaahelo"[(state >> 16) % 7];
            want[i] = tokenizer->model.byte_ids[piece[i]];
        }
        count = merge_simply(&tokenizer->model.bpe, want, length);
        ids.count = 0;
        CHECK_INT(
            mics_model_encode(&tokenizer->model, &tokenizer->vocab, piece, length, &memory, &ids),
            MICS_OK);
        CHECK_INT(ids.count, count);
        CHECK(memcmp(ids.ids, want, count * sizeof *want) == 0);
    }
    free(ids.ids);
    mics_model_memory_fini(&memory);
    mics_tokenizer_free(tokenizer);
}

#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static void splitters_cut_like_their_patterns(void)
{
    static const char *const patterns[] = {MICS_GPT2_PATTERN, LLAMA3("{1,3}"), LLAMA3("")};
    static const char *const characters[] = {" ",
                                             " ",
                                             "  ",
                                             "\n",
                                             "\r\n",
                                             "\t",
                                             "a",
                                             "B",
                                             "1",
                                             "23",
                                             "'",
                                             "'s",
                                             "'LL",
                                             "'ve",
                                             "'\xc5\xbf",
                                             "\xc3\xa9",
                                             "\xe4\xb8\xad",
                                             "\xd9\xa3",
                                             "\xf0\x9f\x99\x82",
                                             "\xc2\xa0",
                                             "\xe3\x80\x80",
                                             "!",
                                             "-",
                                             "\xcc\x81",
                                             "\xe1\xa0\x8e",
                                             "\xc2\xbd"};
    struct mics_err err = {.text = ""};
    unsigned state = 7;

    for (size_t p = 0; p < 3; p++) {
        struct mics_splitter hand, regex;
        struct mics_pieces a = {0}, b = {0};
        char wrapped[512];

        sprintf(wrapped, "(?:%s)", patterns[p]);
        CHECK_INT(mics_splitter_init(&hand, patterns[p], strlen(patterns[p]), &err), MICS_OK);
        CHECK_INT(mics_splitter_init(&regex, wrapped, strlen(wrapped), &err), MICS_OK);
        CHECK(hand.kind != MICS_SPLIT_REGEX && regex.kind == MICS_SPLIT_REGEX);
        for (unsigned round = 0; round < 20000; round++) {
            char text[128] = "";

            for (unsigned i = 0; i < 12; i++) {
                state = state * 1103515245 + 12345;
                strcat(text, characters[(state >> 16) % (sizeof characters / sizeof *characters)]);
            }
            a.text = b.text = (const unsigned char *)text;
            a.count = b.count = 0;
            CHECK_INT(mics_split(&hand, MICS_SPLIT_ISOLATED, false, 0, strlen(text), &a, &err), 0);
            CHECK_INT(mics_split(&regex, MICS_SPLIT_ISOLATED, false, 0, strlen(text), &b, &err), 0);
            CHECK_INT(a.count, b.count);
            CHECK(memcmp(a.pieces, b.pieces, a.count * sizeof *a.pieces) == 0);
        }
        mics_pieces_fini(&a);
        mics_pieces_fini(&b);
        mics_splitter_fini(&hand);
        mics_splitter_fini(&regex);
    }
}

static void matches_are_isolated_removed_or_merged(void)
{
    static const char *const want[] = {"a|-|-|b|-|", "a|b|", "a-|-|b-|", "a|-|-b|-|", "a|--|b|-|"};
    struct mics_splitter splitter;
    struct mics_pieces pieces = {.text = (const unsigned char *)"a--b-"};
    struct mics_err err = {.text = ""};

    CHECK_INT(mics_splitter_init(&splitter, "-", 1, &err), MICS_OK);
    for (int behavior = MICS_SPLIT_ISOLATED; behavior <= MICS_SPLIT_CONTIGUOUS; behavior++) {
        char got[64] = "";

        pieces.count = 0;
        CHECK_INT(
            mics_split(&splitter, (enum mics_split_behavior)behavior, false, 0, 5, &pieces, &err),
            MICS_OK);
        for (size_t i = 0; i < pieces.count; i++) {
            strncat(got, (const char *)pieces.text + pieces.pieces[i].offset,
                    pieces.pieces[i].length);
            strcat(got, "|");
        }
        CHECK_STR(got, want[behavior]);
    }
    mics_pieces_fini(&pieces);
    mics_splitter_fini(&splitter);
}

static void an_expression_that_explodes_ends_with_a_message(void)
{
    static const char explode[] = "(?:a+)+[bc]";
    unsigned char text[40];
    struct mics_splitter splitter;
    struct mics_pieces pieces = {.text = text};
    struct mics_err err = {.text = ""};

    memset(text, 'a', sizeof text);
    CHECK_INT(mics_splitter_init(&splitter, "(a", 2, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "regular expression: offset 2: missing closing parenthesis");
    CHECK_INT(mics_splitter_init(&splitter, "[a&&b]", 6, &err), MICS_ERR_UNSUPPORTED);
    CHECK_INT(mics_splitter_init(&splitter, explode, strlen(explode), &err), MICS_OK);
    CHECK_INT(mics_split(&splitter, MICS_SPLIT_ISOLATED, false, 0, sizeof text, &pieces, &err),
              MICS_ERR_FORMAT);
    CHECK_STR(err.text, "the tokenizer's regular expression: match limit exceeded");
    mics_pieces_fini(&pieces);
    mics_splitter_fini(&splitter);
}

static void decoding_waits_for_whole_characters(void)
{
    struct mics_tokenizer *tokenizer;
    struct mics_decoder *decoder;
    struct mics_err err = {.text = ""};
    static const uint32_t ids[] = {'a', 0xf0, 0x9f, 256, 0x99, 0x82, 0xe2, 0x82, 'b', 0xff, 0xc3};
    char got[64] = "";
    const char *text;
    size_t size;

    CHECK_INT(mics_tokenizer_open_bytes(&tokenizer, &err), MICS_OK);
    CHECK_INT(mics_decoder_new(tokenizer, true, &decoder, &err), MICS_OK);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        CHECK_INT(mics_decode(decoder, &ids[i], 1, &text, &size, &err), MICS_OK);
        strncat(got, text, size);
        strcat(got, "|");
    }
    CHECK_INT(mics_decode_end(decoder, &text, &size, &err), MICS_OK);
    strncat(got, text, size);
    CHECK_STR(got, "a|||||\xf0\x9f\x99\x82|||\xef\xbf\xbd"
                   "b|\xef\xbf\xbd||\xef\xbf\xbd");
    mics_decoder_free(decoder);
    mics_tokenizer_free(tokenizer);
}

static void damaged_files_are_refused_with_a_reason(void)
{
    static const struct damage {
        const char *vocab, *merges, *want;
    } damages[] = {
        {"{", "",
         "vocab.json: line 1, column 2, offset 1: truncated: expected a key in quotes, found the "
         "end "
         "of the text"},
        {"{}", "", "vocab.json: expected an object of tokens and their ids"},
        {"{\"a\": \"x\"}", "", "vocab.json: token \"a\": expected an id"},
        {"{\"a\": -1}", "", "vocab.json: token \"a\": ids must be from 0 to 16777215"},
        {"{\"a\": 1, \"b\": 1}", "", "vocab.json: token 1: two tokens have this id"},
        {"{\"a\": 0}", "a", "merges.txt: line 1: expected two tokens and a blank between them"},
        {"{\"a\": 0}", "#version: 1\na b", "merges.txt: line 2: \"b\" is not in the vocabulary"},
        {"{\"a\": 0}", "a a", "merges.txt: line 1: what \"a a\" becomes is not in the vocabulary"},
    };

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct mics_tokenizer_file files[2] = {{.name = "vocab.json"}, {.name = "merges.txt"}};
        struct mics_tokenizer *tokenizer;
        struct mics_err err = {.text = ""};

        files[0].bytes = (unsigned char *)damages[i].vocab;
        files[0].size = strlen(damages[i].vocab);
        files[1].bytes = (unsigned char *)damages[i].merges;
        files[1].size = strlen(damages[i].merges);
        CHECK_INT(mics_tokenizer_open_files(files, 2, &tokenizer, &err), MICS_ERR_FORMAT);
        CHECK_STR(err.text, damages[i].want);
        CHECK(tokenizer == NULL);
    }
}

static void a_text_that_is_cut_has_the_same_ids(void)
{
    struct mics_tokenizer *tokenizer = open_small();
    static const char text[] = "hello world,\n\n  hello  world";
    char whole[256], parts[256];

    strcpy(whole, pieces_of(tokenizer, text, strlen(text), 0, NULL));
    for (size_t size = 1; size < strlen(text); size++) {
        const size_t cut = mics_tokenizer_cut(tokenizer, text, size);

        CHECK(cut <= size);
        strcpy(parts, pieces_of(tokenizer, text, cut, 0, NULL));
        strcat(parts, pieces_of(tokenizer, text + cut, strlen(text) - cut, MICS_TOKENIZER_CONTINUES,
                                NULL));
        CHECK_STR(parts, whole);
    }
    CHECK_INT(mics_tokenizer_cut(tokenizer, text, 8), 5);
    mics_tokenizer_free(tokenizer);
}

int main(void)
{
    TAP_RUN(pairs_merge_in_the_order_of_the_file);
    TAP_RUN(long_pieces_merge_like_short_ones);
    TAP_RUN(splitters_cut_like_their_patterns);
    TAP_RUN(matches_are_isolated_removed_or_merged);
    TAP_RUN(an_expression_that_explodes_ends_with_a_message);
    TAP_RUN(decoding_waits_for_whole_characters);
    TAP_RUN(damaged_files_are_refused_with_a_reason);
    TAP_RUN(a_text_that_is_cut_has_the_same_ids);
    return tap_done();
}
