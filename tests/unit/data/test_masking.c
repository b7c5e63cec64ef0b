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
    TAP_RUN(what_cannot_be_masked_is_refused_by_name);
    return tap_done();
}
