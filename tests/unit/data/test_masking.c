/* SPDX-License-Identifier: Apache-2.0 */
/* test_masking.c - which tokens are masked, and what becomes of them. */
#include "tap.h"

#include "data/masking.h"
#include "ops.h"

#include <stdbool.h>
#include <stdlib.h>

enum { SEQ = 200, VOCAB = 260, MASK = 257, SAMPLES = 400 };

static void open_masking(struct mics_masking *masking, double rate, uint64_t seed,
                         const struct mics_tokenizer *tokenizer)
{
    struct mics_err err;

    CHECK_INT(mics_masking_open(&(struct mics_masking_options){.tokenizer = tokenizer,
                                                               .mask_token = "257",
                                                               .vocab_size = VOCAB,
                                                               .seq = SEQ,
                                                               .rate = rate,
                                                               .seed = seed},
                                masking, &err),
              MICS_OK);
}

/* Text: 10 .. 209, with the end of a document at every 50th token. */
static void make_text(int32_t *tokens)
{
    for (int i = 0; i < SEQ; i++)
        tokens[i] = i % 50 == 49 ? 256 : 10 + i;
}

static void apply(const struct mics_masking *masking, bool val, uint64_t sample, int32_t *tokens,
                  int32_t *targets)
{
    struct mics_err err;

    make_text(tokens);
    CHECK_INT(mics_masking_apply(masking, val, sample, tokens, targets, &err), MICS_OK);
}

/* What the samples of a training have in all. */
struct counts {
    double chosen, masked, same, other, special;
};

static struct counts count_samples(const struct mics_masking *masking, double least, double most)
{
    struct counts counts = {0};
    int32_t text[SEQ], tokens[SEQ], targets[SEQ];

    make_text(text);
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        double chosen = 0;

        apply(masking, false, sample, tokens, targets);
        for (int i = 0; i < SEQ; i++) {
            CHECK(targets[i] == MICS_TARGET_NONE ? tokens[i] == text[i] : targets[i] == text[i]);
            if (targets[i] == MICS_TARGET_NONE)
                continue;
            chosen++;
            counts.masked += tokens[i] == MASK;
            counts.same += tokens[i] == text[i];
            counts.other += tokens[i] != MASK && tokens[i] != text[i];
            counts.special += targets[i] == 256 || tokens[i] == 256;
        }
        CHECK(chosen >= least && chosen <= most);
        counts.chosen += chosen;
    }
    return counts;
}

/* Of 196 ordinary tokens. */
static void the_share_of_tokens_is_chosen_and_most_of_them_are_masked(void)
{
    struct mics_tokenizer *bytes = NULL;
    struct mics_masking masking;
    struct mics_err err;

    CHECK_INT(mics_tokenizer_open_bytes(&bytes, &err), MICS_OK);
    open_masking(&masking, 0.15, 3, bytes);
    const struct counts counts = count_samples(&masking, 29, 30);
    const double n = counts.chosen;

    CHECK_NEAR(n / SAMPLES, 0.15 * 196, 0.1); /* four deviations of a fraction's mean */
    CHECK_NEAR(counts.masked / n, 0.8, 4 * sqrt(0.16 / n));
    CHECK_NEAR(counts.same / n, 0.1, 4 * sqrt(0.09 / n));
    CHECK_NEAR(counts.other / n, 0.1, 4 * sqrt(0.09 / n));
    CHECK_INT(counts.special, 0);
    mics_masking_close(&masking);
    mics_tokenizer_free(bytes);
}

static void every_position_is_chosen_as_often(void)
{
    struct mics_masking masking;
    int32_t tokens[SEQ], targets[SEQ], chosen[SEQ] = {0};
    double squares = 0;

    open_masking(&masking, 0.25, 3, NULL);
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        apply(&masking, false, sample, tokens, targets);
        for (int i = 0; i < SEQ; i++)
            chosen[i] += targets[i] != MICS_TARGET_NONE;
    }
    for (int i = 0; i < SEQ; i++)
        squares += (chosen[i] - 100.0) * (chosen[i] - 100.0) / 75;
    CHECK(squares > 110 && squares < 310); /* chi squared of 199 degrees: 200 +- 20 */
    mics_masking_close(&masking);
}

static void masks_are_a_function_of_seed_and_sample_only(void)
{
    struct mics_masking masking, again, other;
    int32_t tokens[2][SEQ], targets[2][SEQ];

    open_masking(&masking, 0.15, 3, NULL);
    open_masking(&again, 0.15, 3, NULL);
    open_masking(&other, 0.15, 4, NULL);
    apply(&masking, false, 0, tokens[1], targets[1]); /* whatever was asked before */
    apply(&masking, false, 77, tokens[0], targets[0]);
    apply(&again, false, 77, tokens[1], targets[1]);
    CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
    CHECK(memcmp(targets[0], targets[1], sizeof targets[0]) == 0);
    apply(&other, false, 77, tokens[1], targets[1]);
    CHECK(memcmp(targets[0], targets[1], sizeof targets[0]) != 0);
    apply(&masking, false, 78, tokens[1], targets[1]);
    CHECK(memcmp(targets[0], targets[1], sizeof targets[0]) != 0);
    mics_masking_close(&masking);
    mics_masking_close(&again);
    mics_masking_close(&other);
}

static void masks_of_validation_are_the_same_in_all_runs(void)
{
    struct mics_masking masking, other;
    int32_t tokens[2][SEQ], targets[2][SEQ];
    int chosen = 0;

    open_masking(&masking, 0.15, 3, NULL);
    open_masking(&other, 0.4, 9, NULL);
    apply(&masking, true, 5, tokens[0], targets[0]);
    apply(&other, true, 5, tokens[1], targets[1]);
    CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
    CHECK(memcmp(targets[0], targets[1], sizeof targets[0]) == 0);
    for (int i = 0; i < SEQ; i++)
        chosen += targets[0][i] != MICS_TARGET_NONE;
    CHECK(chosen == 30 || chosen == 31);
    mics_masking_close(&masking);
    mics_masking_close(&other);
}

/* WordPiece: the ids of the lines. Words of one, two and three tokens: B, C X, D X Y. */
enum { W_CLS = 2, W_SEP, W_B, W_C, W_D, W_X, W_Y, W_MASK, W_VOCAB };

static void open_words(struct mics_masking *masking, struct mics_tokenizer **tokenizer, double rate,
                       bool whole_words)
{
    static unsigned char text[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nb\nc\nd\n##x\n##y\n[MASK]\n";
    const struct mics_tokenizer_file file = {"vocab.txt", text, sizeof text - 1};
    struct mics_err err;

    CHECK_INT(mics_tokenizer_open_files(&file, 1, tokenizer, &err), MICS_OK);
    CHECK_INT(mics_masking_open(&(struct mics_masking_options){.tokenizer = *tokenizer,
                                                               .vocab_size = W_VOCAB,
                                                               .seq = SEQ,
                                                               .rate = rate,
                                                               .seed = 3,
                                                               .whole_words = whole_words},
                                masking, &err),
              MICS_OK);
}

/* It begins in the middle of a word, and a word goes up to a separator. Returns the number of
 * ordinary tokens. */
static uint32_t make_words(int32_t *tokens)
{
    static const int32_t words[] = {W_X, W_B, W_C, W_X, W_D, W_X, W_Y, W_B, W_C, W_X, W_SEP};
    uint32_t ordinary = 0;

    tokens[0] = W_CLS;
    tokens[SEQ - 1] = W_SEP;
    for (int i = 1; i < SEQ - 1; i++) {
        tokens[i] = words[(i - 1) % 11];
        ordinary += tokens[i] != W_SEP;
    }
    return ordinary;
}

/* The number of tokens of the word that begins at text[i]. */
static int word_length(const int32_t *text, int i)
{
    int length = 1;

    while (text[i] != W_SEP && (text[i + length] == W_X || text[i + length] == W_Y))
        length++;
    return length;
}

static void check_sample(const int32_t *text, const int32_t *tokens, const int32_t *targets,
                         double *chosen, double by_length[4])
{
    for (int i = 1, length; i < SEQ - 1; i += length) {
        const bool is_chosen = targets[i] != MICS_TARGET_NONE;

        length = word_length(text, i);
        for (int j = i; j < i + length; j++) {
            CHECK((targets[j] != MICS_TARGET_NONE) == is_chosen);
            CHECK(is_chosen ? targets[j] == text[j] : tokens[j] == text[j]);
            CHECK(!is_chosen || text[j] != W_SEP);
            CHECK(tokens[j] >= W_B || text[j] == W_SEP);
        }
        *chosen += is_chosen ? length : 0;
        by_length[length] += is_chosen;
    }
}

static void whole_words_are_chosen_or_none_of_their_tokens(void)
{
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_masking masking;
    int32_t text[SEQ], tokens[SEQ], targets[SEQ];
    double all = 0, by_length[4] = {0};
    const uint32_t ordinary = make_words(text);
    struct mics_err err;

    open_words(&masking, &tokenizer, 0.15, true);
    for (uint64_t sample = 0; sample < 10 * SAMPLES; sample++) {
        double chosen = 0;

        memcpy(tokens, text, sizeof text);
        CHECK_INT(mics_masking_apply(&masking, false, sample, tokens, targets, &err), MICS_OK);
        CHECK(targets[0] == MICS_TARGET_NONE && targets[SEQ - 1] == MICS_TARGET_NONE);
        check_sample(text, tokens, targets, &chosen, by_length);
        CHECK(chosen <= ceil(0.15 * ordinary));
        all += chosen;
    }
    /* Words are passed over only where fewer tokens are left than they have. */
    CHECK_NEAR(all / (10 * SAMPLES), 0.15 * ordinary, 0.2);
    /* In the text are 54 words of one token, 36 of two and 18 of three. */
    CHECK_NEAR(by_length[2] / by_length[1], 36.0 / 54, 0.1 * 36 / 54);
    CHECK_NEAR(by_length[3] / by_length[1], 18.0 / 54, 0.2 * 18 / 54);
    mics_masking_close(&masking);
    mics_tokenizer_free(tokenizer);
}

/* A share of three tokens in 180 has no room for longer words. */
static void words_longer_than_the_share_are_passed_over(void)
{
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_masking masking;
    int32_t tokens[SEQ], targets[SEQ];
    struct mics_err err;

    open_words(&masking, &tokenizer, 0.01, true);
    for (int i = 0; i < SEQ; i++)
        tokens[i] = i % 5 ? W_X : W_B; /* words of five */
    CHECK_INT(mics_masking_apply(&masking, false, 1, tokens, targets, &err), MICS_OK);
    for (int i = 1; i < SEQ - 1; i++)
        CHECK(targets[i] == MICS_TARGET_NONE && tokens[i] == (i % 5 ? W_X : W_B));
    mics_masking_close(&masking);
    mics_tokenizer_free(tokenizer);
}

static void validation_masks_single_tokens_even_with_whole_words(void)
{
    struct mics_tokenizer *tokenizers[2] = {NULL, NULL};
    struct mics_masking masking[2];
    int32_t tokens[2][SEQ], targets[2][SEQ];
    struct mics_err err;

    for (int i = 0; i < 2; i++) {
        open_words(&masking[i], &tokenizers[i], 0.15, i);
        make_words(tokens[i]);
        CHECK_INT(mics_masking_apply(&masking[i], true, 5, tokens[i], targets[i], &err), MICS_OK);
    }
    CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
    CHECK(memcmp(targets[0], targets[1], sizeof targets[0]) == 0);
    CHECK(mics_masking_fingerprint(&masking[0], 1) != mics_masking_fingerprint(&masking[1], 1));
    for (int i = 0; i < 2; i++) {
        mics_masking_close(&masking[i]);
        mics_tokenizer_free(tokenizers[i]);
    }
}

/* Of a byte-level vocabulary the raw bytes count, of WordPiece the prefix. */
static void a_word_begins_where_the_vocabulary_says(void)
{
    static unsigned char vocabulary[] = "{\"a\":0,\"b\":1,\"\xc4\xa0\":2,\"\xc4\xa0"
                                        "a\":3,\"\xc4\x8a\":4,\"ab\":5}";
    static unsigned char merges[] = "#version: 0.2\n\xc4\xa0 a\na b\n";
    const struct mics_tokenizer_file files[] = {{"vocab.json", vocabulary, sizeof vocabulary - 1},
                                                {"merges.txt", merges, sizeof merges - 1}};
    static const bool begins[] = {false, false, true, true, true, false};
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_masking masking;
    struct mics_err err;

    CHECK_INT(mics_tokenizer_open_files(files, 2, &tokenizer, &err), MICS_OK);
    for (uint32_t id = 0; id < 6; id++)
        CHECK(mics_tokenizer_begins_word(tokenizer, id) == begins[id]);
    mics_tokenizer_free(tokenizer);
    CHECK_INT(mics_tokenizer_open_bytes(&tokenizer, &err), MICS_OK);
    CHECK(mics_tokenizer_begins_word(tokenizer, ' ') && mics_tokenizer_begins_word(tokenizer, 10));
    CHECK(!mics_tokenizer_begins_word(tokenizer, 'a') &&
          !mics_tokenizer_begins_word(tokenizer, 200));
    mics_tokenizer_free(tokenizer);
    open_words(&masking, &tokenizer, 0.15, true);
    CHECK(mics_tokenizer_begins_word(tokenizer, W_B) && mics_tokenizer_begins_word(tokenizer, W_D));
    CHECK(!mics_tokenizer_begins_word(tokenizer, W_X));
    mics_masking_close(&masking);
    mics_tokenizer_free(tokenizer);
}

static void what_cannot_be_masked_is_refused_by_name(void)
{
    struct mics_masking_options options = {.vocab_size = VOCAB, .seq = SEQ, .rate = 0.15};
    struct mics_masking masking;
    struct mics_err err;

    CHECK_INT(mics_masking_open(&options, &masking, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "--mask-token"));
    options.mask_token = "260";
    CHECK_INT(mics_masking_open(&options, &masking, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "outside the model's vocabulary of 260"));
    options.mask_token = "[MASK]";
    CHECK_INT(mics_masking_open(&options, &masking, &err), MICS_ERR_ARG);
    options.mask_token = "0";
    options.whole_words = true;
    CHECK_INT(mics_masking_open(&options, &masking, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "--mask-whole-words needs a tokenizer"));
    options.whole_words = false;
    options.vocab_size = 1;
    CHECK_INT(mics_masking_open(&options, &masking, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "special"));
}

int main(void)
{
    TAP_RUN(the_share_of_tokens_is_chosen_and_most_of_them_are_masked);
    TAP_RUN(every_position_is_chosen_as_often);
    TAP_RUN(masks_are_a_function_of_seed_and_sample_only);
    TAP_RUN(masks_of_validation_are_the_same_in_all_runs);
    TAP_RUN(whole_words_are_chosen_or_none_of_their_tokens);
    TAP_RUN(words_longer_than_the_share_are_passed_over);
    TAP_RUN(validation_masks_single_tokens_even_with_whole_words);
    TAP_RUN(a_word_begins_where_the_vocabulary_says);
    TAP_RUN(what_cannot_be_masked_is_refused_by_name);
    return tap_done();
}
