/* SPDX-License-Identifier: Apache-2.0 */
/* test_train.c - tokenizers that are made from text. */
#include "tap.h"

#include "data/tokenizer/train.h"

#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

/* A corpus of documents in memory. */
static struct mics_corpus corpus_of(struct mics_document *documents, const char *const *texts,
                                    size_t count)
{
    struct mics_corpus corpus = {.documents = documents, .count = count};

    for (size_t i = 0; i < count; i++) {
        documents[i] = (struct mics_document){.bytes = (const unsigned char *)texts[i],
                                              .size = strlen(texts[i])};
        corpus.bytes += documents[i].size;
    }
    return corpus;
}

static enum mics_status train(const char *text, uint32_t vocab_size, uint64_t min_count,
                              struct mics_trained_tokenizer *out, struct mics_err *err)
{
    const struct mics_tokenizer_train_options options = {.vocab_size = vocab_size,
                                                         .min_count = min_count};
    struct mics_document document;
    const struct mics_corpus corpus = corpus_of(&document, &text, 1);

    return mics_tokenizer_train(&corpus, &options, out, err);
}

static json_t *read_json(const struct mics_tokenizer_file *file)
{
    json_t *doc = json_loadb((const char *)file->bytes, file->size, 0, NULL);

    CHECK(doc != NULL);
    return doc;
}

/* The merges as "a b|c d|...". */
static void spell_merges(const struct mics_trained_tokenizer *trained, char *text, size_t size)
{
    json_t *doc = read_json(&trained->files[0]), *merge;
    size_t i, used = 0;

    text[0] = '\0';
    json_array_foreach(json_object_get(json_object_get(doc, "model"), "merges"), i, merge)
    {
        const int length = snprintf(text + used, size - used, "%s%s %s", i ? "|" : "",
                                    json_string_value(json_array_get(merge, 0)),
                                    json_string_value(json_array_get(merge, 1)));
        used += (size_t)length;
        if (used >= size)
            break;
    }
    json_decref(doc);
}

static void repeat(char *text, const char *word, int times)
{
    while (times-- > 0)
        strcat(text, word);
}

static void merges_the_most_frequent_pair_and_of_equal_ones_that_of_smaller_ids(void)
{
    struct mics_trained_tokenizer trained;
    char text[1024] = "", merges[512];

    repeat(text, " hug", 10);
    repeat(text, " pug", 5);
    repeat(text, " pun", 12);
    repeat(text, " bun", 4);
    repeat(text, " hugs", 5);
    CHECK_INT(train(text, 257 + 10, 2, &trained, NULL), MICS_OK);
    spell_merges(&trained, merges, sizeof merges);
    CHECK_STR(merges, "u g|\xc4\xa0 p|u n|h ug|\xc4\xa0 hug|\xc4\xa0p un|\xc4\xa0p ug|"
                      "\xc4\xa0hug s|b un|\xc4\xa0 bun");
    CHECK_INT(trained.vocab_size, 267);
    CHECK_INT(trained.bytes, 10 * 4 + 5 * 4 + 12 * 4 + 4 * 4 + 5 * 5);
    CHECK_INT(trained.tokens, 36);
    CHECK_INT(trained.pieces, 5);
    mics_trained_tokenizer_free(&trained);
}

static void stops_where_no_pair_is_frequent_enough(void)
{
    struct mics_trained_tokenizer trained;
    char merges[64];

    CHECK_INT(train(" ab ab abc", 1000, 3, &trained, NULL), MICS_OK);
    spell_merges(&trained, merges, sizeof merges);
    CHECK_STR(merges, "a b|\xc4\xa0 ab");
    CHECK_INT(trained.vocab_size, 259);
    mics_trained_tokenizer_free(&trained);
}

static void takes_run_of_equal_bytes_from_the_left(void)
{
    struct mics_trained_tokenizer trained;
    char merges[64];

    CHECK_INT(train("aaaaaaa", 259, 1, &trained, NULL), MICS_OK);
    spell_merges(&trained, merges, sizeof merges);
    CHECK_STR(merges, "a a|aa aa");
    CHECK_INT(trained.tokens, 3);
    mics_trained_tokenizer_free(&trained);
}

static void vocabulary_has_all_bytes_and_ends_with_the_end_of_text(void)
{
    struct mics_trained_tokenizer trained;
    json_t *doc, *vocab, *added;
    bool seen[257] = {false};
    const char *name;
    json_t *id;

    CHECK_INT(train("x", MICS_TRAIN_MIN_VOCAB, 1, &trained, NULL), MICS_OK);
    CHECK_STR(trained.files[0].name, "tokenizer.json");
    CHECK_STR(trained.files[1].name, "tokenizer_config.json");
    doc = read_json(&trained.files[0]);
    vocab = json_object_get(json_object_get(doc, "model"), "vocab");
    CHECK_INT(json_object_size(vocab), 257);
    json_object_foreach(vocab, name, id) seen[json_integer_value(id)] = true;
    for (int i = 0; i < 257; i++)
        CHECK(seen[i]);
    CHECK_INT(json_integer_value(json_object_get(vocab, "!")), 0); /* as in GPT-2's vocabulary */
    CHECK_INT(json_integer_value(json_object_get(vocab, "\xc4\xa0")), 220);
    CHECK_INT(json_integer_value(json_object_get(vocab, "<|endoftext|>")), 256);
    added = json_array_get(json_object_get(doc, "added_tokens"), 0);
    CHECK_INT(json_integer_value(json_object_get(added, "id")), 256);
    CHECK(json_is_true(json_object_get(added, "special")));
    json_decref(doc);
    json_decref(read_json(&trained.files[1]));
    mics_trained_tokenizer_free(&trained);
}

static void refuses_vocabulary_without_room_for_bytes(void)
{
    struct mics_trained_tokenizer trained;
    struct mics_err err;

    CHECK_INT(train("x", 256, 1, &trained, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "a vocabulary has 257 to 1000000 tokens, not 256");
    CHECK_INT(train("x", 1000001, 1, &trained, &err), MICS_ERR_ARG);
}

/* A trainer that counts everything again in each step, for words of at most 31 letters. */
#define WORDS 24

struct word {
    char tokens[32][32];
    int count;
};

static bool is_pair(const struct word *word, int i, const char *left, const char *right)
{
    return strcmp(word->tokens[i], left) == 0 && strcmp(word->tokens[i + 1], right) == 0;
}

static void merge_words(struct word *words, const char *left, const char *right)
{
    for (int w = 0; w < WORDS; w++)
        for (int i = 0; i + 1 < words[w].count; i++) {
            if (!is_pair(&words[w], i, left, right))
                continue;
            memcpy(words[w].tokens[i] + strlen(left), right, strlen(right) + 1);
            words[w].count--;
            memmove(words[w].tokens[i + 1], words[w].tokens[i + 2],
                    (size_t)(words[w].count - i - 1) * sizeof *words[w].tokens);
        }
}

static long count_pair(const struct word *words, const char *left, const char *right)
{
    long count = 0;

    for (int w = 0; w < WORDS; w++)
        for (int i = 0; i + 1 < words[w].count; i++)
            count += is_pair(&words[w], i, left, right);
    return count;
}

static int id_of(char names[][32], int count, const char *name)
{
    int id = 0;

    while (id < count && strcmp(names[id], name) != 0)
        id++;
    return id;
}

/* Is the pair at i of a word better than the best one so far? */
static bool is_better(const struct word *words, char names[][32], int name_count, const char *left,
                      const char *right, const char *best_left, const char *best_right)
{
    const long count = count_pair(words, left, right);
    const long best = best_left ? count_pair(words, best_left, best_right) : 0;
    const int a = id_of(names, name_count, left), b = id_of(names, name_count, right);
    int best_a, best_b;

    if (count != best)
        return count > best;
    best_a = id_of(names, name_count, best_left);
    best_b = id_of(names, name_count, best_right);
    return a != best_a ? a < best_a : b < best_b;
}

/* The merges of `steps` steps, as spell_merges() has them, for words of letters and one blank. */
static void train_slowly(struct word *words, int steps, char *merges)
{
    char names[256][32] = {"a", "b", "c", " "}, left[32], right[32];
    int name_count = 4;

    merges[0] = '\0';
    for (int step = 0; step < steps; step++) {
        const char *best_left = NULL, *best_right = NULL;

        for (int w = 0; w < WORDS; w++)
            for (int i = 0; i + 1 < words[w].count; i++)
                if (is_better(words, names, name_count, words[w].tokens[i], words[w].tokens[i + 1],
                              best_left, best_right)) {
                    best_left = words[w].tokens[i];
                    best_right = words[w].tokens[i + 1];
                }
        if (!best_left)
            return;
        strcpy(left, best_left);
        strcpy(right, best_right);
        sprintf(merges + strlen(merges), "%s%s%s %s%s", step ? "|" : "",
                left[0] == ' ' ? "\xc4\xa0" : "", left + (left[0] == ' '), right, "");
        snprintf(names[name_count], sizeof *names, "%.15s%.15s", left, right);
        if (id_of(names, name_count, names[name_count]) < name_count)
            step--; /* the same bytes as another token's: a merge more, for the same token */
        else
            name_count++;
        merge_words(words, left, right);
    }
}

/* Words of up to `letters` kinds of letters. */
static void random_words(unsigned seed, int letters, struct word *words, char *text)
{
    srand(seed);
    text[0] = '\0';
    for (int w = 0; w < WORDS; w++) {
        const int length = 2 + rand() % 12;
        char letter[2] = "";

        words[w].count = length;
        for (int i = 0; i < length; i++) {
            letter[0] = i == 0 ? ' ' : (char)('a' + rand() % letters);
            strcpy(words[w].tokens[i], letter);
            strcat(text, letter);
        }
    }
}

static void agrees_with_trainer_that_counts_everything_again(void)
{
    static struct word words[WORDS];
    static char text[WORDS * 16], fast[8192], slow[8192];

    for (unsigned seed = 0; seed < 60; seed++) {
        struct mics_trained_tokenizer trained;
        const int steps = 10 + (int)seed;

        random_words(seed, 1 + (int)seed % 3, words, text);
        train_slowly(words, steps, slow);
        CHECK_INT(train(text, 257 + (uint32_t)steps, 1, &trained, NULL), MICS_OK);
        spell_merges(&trained, fast, sizeof fast);
        CHECK_STR(fast, slow);
        mics_trained_tokenizer_free(&trained);
    }
}

/* Megabytes of words, blanks and lines. */
static char *make_text(size_t size)
{
    char *text = malloc(size + 1);
    uint32_t state = 1;

    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = "etaoin shrdlu\n 'sEA12.,"[(state >> 16) % 23];
    }
    text[size] = '\0';
    return text;
}

static void result_does_not_depend_on_threads_or_documents(void)
{
    const struct mics_tokenizer_train_options options = {.vocab_size = 600, .min_count = 2};
    char *text = make_text(3 << 20), *line;
    struct mics_trained_tokenizer many, one;
    struct mics_document documents[2];
    struct mics_corpus corpus;
    const char *parts[2] = {text, ""};
    cpu_set_t all, first;

    corpus = corpus_of(documents, parts, 2);
    CHECK_INT(mics_tokenizer_train(&corpus, &options, &many, NULL), MICS_OK);
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&first);
    for (int cpu = 0; CPU_COUNT(&first) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &first);
    sched_setaffinity(0, sizeof first, &first);
    /* Cut where a line begins: the pieces are the same. */
    line = strstr(text + (1 << 20), "e\ne");
    parts[1] = line + 1;
    corpus = corpus_of(documents, parts, 2);
    documents[0].size = (uint64_t)(line + 1 - text);
    corpus.bytes = documents[0].size + documents[1].size;
    CHECK_INT(mics_tokenizer_train(&corpus, &options, &one, NULL), MICS_OK);
    sched_setaffinity(0, sizeof all, &all);
    CHECK_INT(many.vocab_size, 600);
    CHECK_INT(many.tokens, one.tokens);
    CHECK_INT(many.pieces, one.pieces);
    CHECK_INT(many.files[0].size, one.files[0].size);
    CHECK(memcmp(many.files[0].bytes, one.files[0].bytes, one.files[0].size) == 0);
    mics_trained_tokenizer_free(&many);
    mics_trained_tokenizer_free(&one);
    free(text);
}

int main(void)
{
    TAP_RUN(merges_the_most_frequent_pair_and_of_equal_ones_that_of_smaller_ids);
    TAP_RUN(stops_where_no_pair_is_frequent_enough);
    TAP_RUN(takes_run_of_equal_bytes_from_the_left);
    TAP_RUN(vocabulary_has_all_bytes_and_ends_with_the_end_of_text);
    TAP_RUN(refuses_vocabulary_without_room_for_bytes);
    TAP_RUN(agrees_with_trainer_that_counts_everything_again);
    TAP_RUN(result_does_not_depend_on_threads_or_documents);
    return tap_done();
}
