/* SPDX-License-Identifier: Apache-2.0 */
/* What the files beside a tokenizer's main file say of ids. Ids are those of transformers 5.24,
 * AutoTokenizer.from_pretrained(folder).encode(text). */
#include "data/tokenizer.h"
#include "tap.h"

#include <stdlib.h>

#define NO MICS_NO_TOKEN

#define VOCAB                                                                                      \
    "{'<|endoftext|>': 0, 't': 1, 'h': 2, 'e': 3, 'Ġ': 4, 'f': 5, 'o': 6, 'x': 7, '<': 8,"        \
    "'/': 9, 's': 10, '>': 11, '|': 12, 'th': 13, 'the': 14, 'Ġf': 15, 'Ġfo': 16, 'Ġfox': 17,"  \
    "'</s>': 18, '1': 19, 'Ġt': 20, 'Ġth': 21, 'Ġthe': 22, '2': 23}"

/* `</s>` is an ordinary token in them. */
static const char *const main_json =
    "{'version': '1.0', 'added_tokens': [{'id': 0, 'content': '<|endoftext|>', 'special': true,"
    "'normalized': false}], 'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false},"
    "'decoder': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': " VOCAB ", 'merges': ["
    "'t h', 'th e', 'Ġ f', 'Ġf o', 'Ġfo x', 'Ġ t', 'Ġt h', 'Ġth e']}}";
static const char *const vocab_json = VOCAB;
static const char *const merges = "t h\nth e\nĠ f\nĠf o\nĠfo x\nĠ t\nĠt h\nĠth e\n";

#define TOKEN(content, rest) "{'content': '" content "', " rest "}"
#define PLAIN                "'special': true, 'normalized': false"
#define FAST                 "'tokenizer_class': 'PreTrainedTokenizerFast'"
#define GPT2                 "'tokenizer_class': 'GPT2Tokenizer'"
#define EOT                  "'0': " TOKEN("<|endoftext|>", PLAIN)

/* Files beside the main one; ' stands for ". */
struct beside {
    const char *config, *map, *added, *model, *generation;
};

/* Open tokenizer.json, or vocab.json and merges.txt, with other files beside. */
static enum mics_status open_with(bool vocab, const char *main_text, const struct beside *beside,
                                  struct mics_tokenizer **out, struct mics_err *err)
{
    const struct {
        const char *name, *text;
    } all[] = {{vocab ? "vocab.json" : "tokenizer.json", main_text},
               {"merges.txt", vocab ? merges : NULL},
               {"tokenizer_config.json", beside->config},
               {"special_tokens_map.json", beside->map},
               {"added_tokens.json", beside->added},
               {"config.json", beside->model},
               {"generation_config.json", beside->generation}};
    struct mics_tokenizer_file files[7];
    enum mics_status status;
    size_t count = 0;

    for (size_t i = 0; i < 7; i++) {
        if (!all[i].text)
            continue;
        files[count] = (struct mics_tokenizer_file){.size = strlen(all[i].text)};
        strcpy(files[count].name, all[i].name);
        files[count].bytes = (unsigned char *)strdup(all[i].text);
        for (size_t j = 0; j < files[count].size && strcmp(all[i].name, "merges.txt") != 0; j++)
            if (files[count].bytes[j] == '\'')
                files[count].bytes[j] = '"';
        count++;
    }
    status = mics_tokenizer_open_files(files, count, out, err);
    while (count-- > 0)
        free(files[count].bytes);
    return status;
}

static struct mics_tokenizer *must_open(bool vocab, const struct beside *beside)
{
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};

    open_with(vocab, vocab ? vocab_json : main_json, beside, &tokenizer, &err);
    CHECK_STR(err.text, "");
    return tokenizer;
}

static const struct {
    bool vocab;
    struct beside beside;
    const char *text;
    uint32_t count, ids[12], end, size;
} id_cases[] = {
    {false, {.config = "{" FAST ", 'eos_token': '</s>'}"}, "the fox</s>", 3, {14, 17, 18}, 18, 24},
    {false, {.config = "{" FAST ", 'eos_token': 'the'}"}, "the fox", 2, {14, 17}, 14, 24},
    {false,
     {.map = "{'eos_token': {'content': '</s>', 'lstrip': false, 'normalized': false}}"},
     "the </s>",
     3,
     {14, 4, 18},
     18,
     24},
    {false,
     {.config = "{" FAST ", 'eos_token': '</s>'}", "{'eos_token': '<|endoftext|>'}"},
     "the",
     1,
     {14},
     0,
     24},
    {false,
     {.config = "{" FAST ", 'eos_token': '</s>', 'added_tokens_decoder': {" EOT "}}",
      "{'eos_token': '<|endoftext|>'}"},
     "the",
     1,
     {14},
     18,
     24},
    {false,
     {.config = "{" FAST ", 'eos_token': '<|a|>', 'added_tokens_decoder': {'24': " TOKEN(
          "<|a|>", PLAIN) ", '25': " TOKEN("<b>", "'special': false, 'normalized': true") "}}"},
     "the<|a|>fox<b>",
     6,
     {14, 24, 5, 6, 7, 25},
     24,
     26},
    {false,
     {.config = "{" FAST ", 'eos_token': '<|endoftext|>', 'added_tokens_decoder': {'0': " TOKEN(
          "<|endoftext|>", PLAIN ", 'lstrip': true, 'rstrip': true") "}}"},
     "the <|endoftext|> fox",
     5,
     {14, 0, 5, 6, 7},
     0,
     24},
    {false,
     {.config = "{" FAST ", 'eos_token': '<|endoftext|>', 'additional_special_tokens': ['<|a|>'],"
                "'pad_token': '<pad>'}"},
     "the<|a|><pad>",
     3,
     {14, 25, 24},
     0,
     26},
    {false,
     {.config = "{'tokenizer_class': 'TokenizersBackend', 'eos_token': '<|endoftext|>',"
                "'extra_special_tokens': {'image_token': '<|a|>'}, 'pad_token': '<pad>'}"},
     "the<|a|><pad>",
     3,
     {14, 25, 24},
     0,
     26},
    {false,
     {.config = "{" FAST ", 'eos_token': '<|endoftext|>'}", .added = "{'<|a|>': 24}"},
     "the<|a|>fox",
     5,
     {14, 24, 5, 6, 7},
     0,
     25},
    {false, {.config = "{" GPT2 ", 'add_prefix_space': true}"}, "the fox", 3, {4, 14, 17}, 0, 24},
    {true,
     {.config = "{" GPT2 ", 'eos_token': '<|a|>'}", .added = "{'<|a|>': 24}"},
     "the<|a|>fox",
     5,
     {14, 24, 5, 6, 7},
     24,
     25},
    {true,
     {.config =
          "{" GPT2 ", 'eos_token': '<|a|>', 'added_tokens_decoder': {" EOT
          ", '24': " TOKEN("<|a|>", PLAIN ", 'lstrip': true, 'rstrip': true") ", '25': " TOKEN(
              "<b>", "'special': false, 'normalized': true, 'single_word': true") "}}"},
     "the <|a|> fox<b>the <b>",
     10,
     {14, 24, 5, 6, 7, 8, 11, 14, 4, 25},
     24,
     26},
    {true,
     {.config = "{" GPT2 "}", .added = "{' fox': 24, '｜x▁': 25}"},
     "the fox｜x▁",
     3,
     {14, 24, 25},
     0,
     26},
    {true, {.config = "{" GPT2 ", 'add_bos_token': true}"}, "the fox", 3, {0, 14, 17}, 0, 24},
    {true,
     {.config = "{" GPT2 ", 'add_bos_token': true, 'bos_token': '</s>'}"},
     "the fox",
     3,
     {18, 14, 17},
     0,
     24},
    {true, {.config = "{" GPT2 ", 'add_prefix_space': true}"}, "the fox", 3, {4, 14, 17}, 0, 24},
    {true,
     {.config = "{'tokenizer_class': 'Qwen2Tokenizer'}"},
     "the fox 12",
     5,
     {14, 17, 4, 19, 23},
     0,
     24},
    {true,
     {.config =
          "{'tokenizer_class': 'RobertaTokenizer', 'bos_token': '<|endoftext|>', 'eos_token': "
          "'</s>', 'cls_token': '<|endoftext|>', 'sep_token': '</s>'}"},
     "the fox",
     4,
     {0, 14, 17, 18},
     18,
     24},
    {true,
     {.config = "{'tokenizer_class': 'GPT2TokenizerFast'}",
      "{'eos_token': '</s>', 'additional_special_tokens': ['fox']}"},
     "the fox",
     3,
     {14, 4, 24},
     18,
     25},
};

static void ids_and_ends_are_those_of_transformers(void)
{
    for (size_t i = 0; i < sizeof id_cases / sizeof id_cases[0]; i++) {
        struct mics_tokenizer *tokenizer = must_open(id_cases[i].vocab, &id_cases[i].beside);
        struct mics_encoder *encoder = NULL;
        struct mics_err err = {.text = ""};
        const uint32_t *ids = NULL;
        size_t count = 0;

        if (!tokenizer)
            continue;
        CHECK_INT(mics_encoder_new(tokenizer, &encoder, &err), MICS_OK);
        CHECK_INT(mics_encode(encoder, id_cases[i].text, strlen(id_cases[i].text),
                              MICS_TOKENIZER_SPECIAL | MICS_TOKENIZER_TEMPLATE, &ids, &count, NULL,
                              &err),
                  MICS_OK);
        CHECK_INT(count, id_cases[i].count);
        for (size_t j = 0; j < count && j < id_cases[i].count; j++)
            CHECK_INT(ids[j], id_cases[i].ids[j]);
        CHECK_INT(mics_tokenizer_end(tokenizer), id_cases[i].end);
        CHECK_INT(mics_tokenizer_size(tokenizer), id_cases[i].size);
        mics_encoder_free(encoder);
        mics_tokenizer_free(tokenizer);
    }
}

/* Which token ends a document, or why it is not known. */
static void the_end_is_what_files_say(void)
{
    static const struct {
        struct beside beside;
        uint32_t end;
        const char *problem;
    } cases[] = {
        {{.config = NULL}, 0, ""}, /* <|endoftext|> is special */
        {{.model = "{'eos_token_id': 0}"}, 0, ""},
        {{.config = "{'eos_token': '</s>'}", .model = "{'eos_token_id': 0}"}, 18, ""},
        {{.config = "{'eos_token': null}", .model = "{'eos_token_id': 0}"}, 0, ""},
        {{.config = "{'eos_token': ''}", .model = "{'eos_token_id': [0, 18]}"}, 0, ""},
        {{.added = "{'<|a|>': 24}", .model = "{'eos_token_id': [24, 0]}"}, 24, ""},
        {{.added = "{'<|a|>': 24}",
          .model = "{'eos_token_id': 0}",
          .generation = "{'eos_token_id': 24}"},
         0,
         ""},
        {{.added = "{'<|a|>': 24}",
          .model = "{'eos_token_id': null}",
          .generation = "{'eos_token_id': [24, 0]}"},
         24,
         ""},
        {{.added = "{'<|a|>': 24}", .model = "{'text_config': {'eos_token_id': 24}}"}, 24, ""},
        {{.config = "{'tokenizer_class': 'GPT2Tokenizer', 'unk_token': '</s>'}"}, 0, ""},
        {{.config = "{'tokenizer_class': 'LlamaTokenizerFast', 'unk_token': '</s>'}"}, 18, ""},
        {{.config = "{'eos_token': null}"},
         NO,
         "no file of the tokenizer says which token ends a document"},
        {{.config = "{'unk_token': '</s>'}"},
         NO,
         "does not say which token ends a document, '<|endoftext|>' "},
        {{.config = "{'eos_token': '<|x|>'}"},
         NO,
         "tokenizer_config.json: eos_token '<|x|>' is not in the vocabulary of tokenizer.json"},
        {{.map = "{'eos_token': '<|x|>'}"},
         NO,
         "special_tokens_map.json: eos_token '<|x|>' is not in the vocabulary of tokenizer.json"},
        {{.model = "{'eos_token_id': 24}"},
         NO,
         "config.json: eos_token_id 24 is not in the vocabulary of tokenizer.json"},
        {{.model = "{'eos_token_id': 2}"},
         NO,
         "config.json: eos_token_id 2 is an ordinary token of tokenizer.json"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mics_tokenizer *tokenizer = must_open(false, &cases[i].beside);
        struct mics_err err = {.text = ""};

        if (!tokenizer)
            continue;
        CHECK_INT(mics_tokenizer_end(tokenizer), cases[i].end);
        CHECK_INT(mics_tokenizer_need_end(tokenizer, &err),
                  cases[i].problem[0] ? MICS_ERR_FORMAT : MICS_OK);
        if (!strstr(err.text, cases[i].problem) ||
            (cases[i].problem[0] && !strstr(err.text, "--end-token=TEXT|ID")))
            CHECK_STR(err.text, cases[i].problem);
        mics_tokenizer_free(tokenizer);
    }
}

static const struct {
    bool vocab;
    struct beside beside;
    const char *error;
} refusals[] = {
    {true,
     {.added = "{'<|a|>': 5}"},
     "added_tokens.json: added token: id 5 is '<|a|>', but in vocab.json it is 'f'"},
    {false,
     {.added = "{'the': 24}"},
     "added_tokens.json: added token: 'the' has id 24, but tokenizer.json gives it 14"},
    {true,
     {.config = "{'added_tokens_decoder': {'24': {'content': '<|a|>'}}}", .added = "{'<|a|>': 25}"},
     "'<|a|>' has id 25, but tokenizer_config.json gives it 24"},
    {true,
     {.config = "{'added_tokens_decoder': {'24': {'content': '<|a|>'}}}", .added = "{'<|b|>': 24}"},
     "id 24 is '<|b|>', but in tokenizer_config.json it is '<|a|>'"},
    {false,
     {.config = "{'added_tokens_decoder': {'30': {'content': '<|a|>'}}}"},
     "the id of '<|a|>' is 30, but the next that tokenizer.json leaves free is 24"},
    {true,
     {.config = "{'added_tokens_decoder': {'-1': {'content': '<|a|>'}}}"},
     "added_tokens_decoder: '-1' is not an id"},
    {true,
     {.config = "{'added_tokens_decoder': {'24': 'a'}, 'eos_token': 5}"},
     "eos_token: expected"},
    {true,
     {.config = "{'added_tokens_decoder': {'24': {'content': 5}}}"},
     "expected a token's text"},
    {true,
     {.config = "{'added_tokens_decoder': {'24': {'content': 'a', 'lstrip': 1}}}"},
     "lstrip: expected true or false"},
    {true, {.added = "{'a': '24'}"}, "added_tokens.json: 'a': expected an id"},
    {true,
     {.config = "{'tokenizer_class': 'BertTokenizer'}"},
     "class \"BertTokenizer\" is supported"},
    {true, {.model = "{'model_type': 'qwen3'}"}, "\"tokenizer_class\": \"Qwen2Tokenizer\""},
    {true,
     {.config = "{" GPT2 ", 'add_bos_token': true, 'bos_token': '<|b|>', 'add_prefix_space': 1}"},
     "add_prefix_space: expected true or false"},
    {false, {.config = "{" FAST ", 'add_prefix_space': true}"}, "let them agree"},
    {false, {.config = "{"}, "tokenizer_config.json: "},
    {false, {.map = "[]"}, "special_tokens_map.json: "},
    {false, {.model = "{'eos_token_id': 'x'}"}, "config.json: eos_token_id: expected an id"},
};

static void contradictions_are_refused(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct mics_tokenizer *tokenizer = NULL;
        struct mics_err err = {.text = ""};

        CHECK_INT(open_with(refusals[i].vocab, refusals[i].vocab ? vocab_json : main_json,
                            &refusals[i].beside, &tokenizer, &err),
                  MICS_ERR_FORMAT);
        if (!strstr(err.text, refusals[i].error))
            CHECK_STR(err.text, refusals[i].error);
        mics_tokenizer_free(tokenizer);
    }
}

/* It covers what other files change, and is that of the main file where they change nothing. */
static void fingerprints_tell_what_counts(void)
{
    static const struct beside cases[] = {
        {.config = NULL},
        {.config = "{" FAST ", 'eos_token': '</s>'}"},
        {.map = "{'pad_token': '</s>'}", .model = "{'eos_token_id': 0}"},
        {.added = "{'<|a|>': 24}"},
        {.added = "{'<|b|>': 24}"},
        {.config = "{" GPT2 ", 'add_prefix_space': true}"},
    };
    static const struct beside same = {
        .config = "{" FAST ", 'eos_token': '<|endoftext|>', 'added_tokens_decoder': {" EOT "}}",
        "{'eos_token': '<|endoftext|>'}",
        NULL,
        "{'eos_token_id': 0}",
        "{}"};
    uint64_t sums[sizeof cases / sizeof cases[0]];
    struct mics_tokenizer *tokenizer;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tokenizer = must_open(false, &cases[i]);
        sums[i] = mics_tokenizer_fingerprint(tokenizer);
        for (size_t j = 0; j < i; j++)
            CHECK(sums[j] != sums[i]);
        mics_tokenizer_free(tokenizer);
    }
    tokenizer = must_open(false, &same);
    CHECK(mics_tokenizer_fingerprint(tokenizer) == sums[0]);
    mics_tokenizer_free(tokenizer);
}

static void another_end_can_be_set(void)
{
    static const struct {
        const char *token;
        uint32_t end; /* MICS_NO_TOKEN: refused */
    } cases[] = {{"</s>", 18},  {"the", 14}, {" fox", NO},
                 {"Ġfox", 17},  {"23", 23},  {"24", NO},
                 {"<|a|>", NO}, {"", NO},    {"99999999999999999999", NO}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mics_tokenizer *tokenizer = must_open(false, &(struct beside){.config = NULL});
        const uint64_t sum = mics_tokenizer_fingerprint(tokenizer);
        struct mics_err err = {.text = ""};
        const bool valid = cases[i].end != NO;

        CHECK_INT(mics_tokenizer_set_end(tokenizer, cases[i].token, &err),
                  valid ? MICS_OK : MICS_ERR_ARG);
        CHECK_INT(mics_tokenizer_end(tokenizer), valid ? cases[i].end : 0);
        CHECK((mics_tokenizer_fingerprint(tokenizer) != sum) == valid);
        mics_tokenizer_free(tokenizer);
    }
}

/* A document that was written before keeps its end. */
static void what_is_listed_is_restored(void)
{
    struct mics_tokenizer *tokenizer =
        must_open(false, &(struct beside){.config = "{'eos_token': '</s>'}"});
    uint32_t id = 0;
    struct mics_err err = {.text = ""};

    mics_tokenizer_restore(tokenizer, 0, NULL);
    CHECK_INT(mics_tokenizer_end(tokenizer), 0);
    mics_tokenizer_restore(tokenizer, NO, "00000000000000ff");
    CHECK_INT(mics_tokenizer_end(tokenizer), NO);
    CHECK_INT(mics_tokenizer_fingerprint(tokenizer), 255);
    mics_tokenizer_free(tokenizer);

    CHECK_INT(mics_parse_token_id("50256", &id, &err), MICS_OK);
    CHECK_INT(id, 50256);
    CHECK_INT(mics_parse_token_id("</s>", &id, &err), MICS_ERR_ARG);
}

int main(void)
{
    TAP_RUN(ids_and_ends_are_those_of_transformers);
    TAP_RUN(the_end_is_what_files_say);
    TAP_RUN(contradictions_are_refused);
    TAP_RUN(fingerprints_tell_what_counts);
    TAP_RUN(another_end_can_be_set);
    TAP_RUN(what_is_listed_is_restored);
    return tap_done();
}
