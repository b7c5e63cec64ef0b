/* SPDX-License-Identifier: Apache-2.0 */
/* The Llama family on the host device, tied and untied: loss, gradients, memory. */
#include "model_gradients.h"
#include "tap.h"

#include <math.h>

/* Error of gradients in fp32, relative to the largest, with the wild parameters that run_shake()
 * makes. */
#define TOLERANCE 1e-4

/* Sizes that divide nothing evenly; the heads together are wider than the model, and share keys. */
static const struct mics_model_config tiny = {
    .family = "llama",
    .name = "tiny",
    .n_layer = 2,
    .n_embd = 10,
    .n_head = 4,
    .n_positions = 9,
    .vocab_size = 13,
    .n_inner = 19,
    .layer_norm_epsilon = 1e-5,
    .n_kv_head = 2,
    .head_dim = 6,
    .rope_theta = 100,
};

static struct mics_model *model_of(const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    struct mics_err err = {""};

    if (mics_model_new(config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

static void open_config(struct model_run *run, const struct mics_model_config *config, uint32_t B,
                        enum mics_recompute recompute)
{
    run_open(run, model_of(config),
             (struct mics_batch){.B = B, .T = 7, .recompute = recompute, .train = true}, 3);
    run_shake(run);
    run_fill(run, 11);
}

static void open_tiny(struct model_run *run, bool untied, uint32_t B, enum mics_recompute recompute)
{
    struct mics_model_config config = tiny;

    config.untied = untied;
    open_config(run, &config, B, recompute);
}

static void check_config(const struct mics_model_config *config)
{
    struct model_run run;

    open_config(&run, config, 2, MICS_RECOMPUTE_NONE);
    check_loss_and_gradients(&run, llama_double_loss, TOLERANCE);
    run_close(&run);
}

static void loss_and_gradients_are_those_of_finite_differences_in_llama(void)
{
    struct mics_model_config config = tiny;

    config.untied = true;
    check_config(&config);
}

static void loss_and_gradients_with_a_tied_head_are_those_of_finite_differences(void)
{
    check_config(&tiny);
}

/* One of the three frequencies stays, one lies in between, one becomes an eighth. */
static void loss_and_gradients_with_scaled_positions_are_those_of_finite_differences(void)
{
    struct mics_model_config config = tiny;

    config.rope_scaling = (struct mics_rope_scaling){.kind = MICS_ROPE_LLAMA3,
                                                     .original_positions = 64,
                                                     .factor = 8,
                                                     .low_freq_factor = 1,
                                                     .high_freq_factor = 4};
    check_config(&config);
}

static void recomputing_changes_no_bit_in_llama(void)
{
    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct model_run keep, again;

        open_tiny(&keep, true, 3, MICS_RECOMPUTE_NONE);
        open_tiny(&again, true, 3, (enum mics_recompute)level);
        CHECK(run_step(&keep) == run_step(&again));
        CHECK(same_gradients(&keep, &again));
        CHECK(again.saved[1].bytes < keep.saved[1].bytes);
        run_close(&keep);
        run_close(&again);
    }
}

static void running_again_gives_the_same_bits_in_llama(void)
{
    struct model_run one, two;

    open_tiny(&one, false, 3, MICS_RECOMPUTE_NONE);
    open_tiny(&two, false, 3, MICS_RECOMPUTE_NONE);
    CHECK(run_step(&one) == run_step(&two));
    run_zero_grads(&two);
    run_step(&two); /* over the stale results of the first */
    CHECK(same_gradients(&one, &two));
    run_close(&one);
    run_close(&two);
}

static void micro_batches_add_up_to_the_whole_batch_in_llama(void)
{
    struct model_run whole, part;

    open_tiny(&whole, true, 6, MICS_RECOMPUTE_NONE);
    open_tiny(&part, true, 2, MICS_RECOMPUTE_FULL);
    const double loss = run_step(&whole);
    CHECK_NEAR(run_in_parts(&whole, &part), loss, 1e-6 * loss);
    CHECK(grads_differ(&whole, &part) < TOLERANCE);
    run_close(&whole);
    run_close(&part);
}

static void a_later_token_changes_no_earlier_loss_in_llama(void)
{
    struct model_run run;

    open_tiny(&run, true, 1, MICS_RECOMPUTE_NONE);
    for (uint32_t i = 3; i < run.batch.T; i++)
        run_targets(&run)[i] = -1;
    const double before = run_step(&run);
    for (uint32_t i = 3; i < run.batch.T; i++)
        run_tokens(&run)[i] = (run_tokens(&run)[i] + 5) % (int32_t)tiny.vocab_size;
    CHECK(run_step(&run) == before);
    run_close(&run);
}

static void an_earlier_tokens_position_changes_the_loss(void)
{
    struct model_run run;

    open_tiny(&run, true, 1, MICS_RECOMPUTE_NONE);
    for (uint32_t i = 0; i + 1 < run.batch.T; i++)
        run_targets(&run)[i] = -1;
    run_targets(&run)[6] = 2;
    run_tokens(&run)[1] = 3;
    run_tokens(&run)[2] = 8;
    const double before = run_step(&run);
    run_tokens(&run)[1] = 8;
    run_tokens(&run)[2] = 3;
    CHECK(fabs(run_step(&run) - before) > 1e-4 * before);
    run_close(&run);
}

static void evaluation_has_the_loss_of_training_and_changes_no_gradient_in_llama(void)
{
    struct model_run run;

    open_tiny(&run, true, 2, MICS_RECOMPUTE_NONE);
    const double trained = run_step(&run);
    run_zero_grads(&run);
    run.batch.train = false;
    CHECK(run_step(&run) == trained);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        CHECK(largest(run_grads(&run, u), run.model->units[u].count) == 0);
    run_close(&run);
}

/* 600 rows of 9,000 logits are made in pieces of 256 rows; one sequence of 150 in two. */
static void a_head_in_pieces_gives_the_gradients_of_one_in_one_piece_in_llama(void)
{
    struct mics_model_config config = tiny;
    struct model_run whole, part;

    config.vocab_size = 9000;
    config.n_positions = 150;
    config.untied = true;
    run_open(&whole, model_of(&config), (struct mics_batch){.B = 4, .T = 150, .train = true}, 3);
    run_open(&part, model_of(&config), (struct mics_batch){.B = 1, .T = 150, .train = true}, 3);
    run_fill(&whole, 5);
    const double loss = run_step(&whole);
    CHECK_NEAR(run_in_parts(&whole, &part), loss, 1e-6 * loss);
    CHECK(grads_differ(&whole, &part) < TOLERANCE);
    CHECK(whole.scratch.bytes < 600 * 9000 * sizeof(float));
    run_close(&whole);
    run_close(&part);
}

static void the_first_loss_of_nano_is_that_of_uniform_guessing_in_llama(void)
{
    struct mics_model *model = NULL;
    struct model_run run;

    CHECK_INT(mics_model_open("llama-nano", &model, NULL), MICS_OK);
    run_open(&run, model, (struct mics_batch){.B = 2, .T = 256, .train = true}, 1);
    run_fill(&run, 1);
    CHECK_NEAR(run_step(&run) / (512 - 102), log(257), 0.1);
    run_close(&run);
}

/* The vocabulary's matrix is followed by rows of zeros, which the head's products take with it. */
static void padding_produces_no_gradient_in_llama(void)
{
    struct model_run run;

    open_tiny(&run, false, 2, MICS_RECOMPUTE_NONE);
    run_step(&run);
    CHECK(run.model->units[0].count > run.model->units[0].param_count);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        CHECK_INT(run_stray_grads(&run, u), 0);
    run_close(&run);
}

static void the_first_pass_writes_the_gradients_of_matrices_in_llama(void)
{
    struct mics_model_config even = tiny; /* no gaps between the matrices */
    struct model_run first, zeroed;

    even.n_embd = even.n_inner = 64;
    even.head_dim = 16;
    even.untied = true;
    open_config(&first, &even, 2, MICS_RECOMPUTE_NONE);
    open_config(&zeroed, &even, 2, MICS_RECOMPUTE_NONE);
    check_first_pass(&first, &zeroed);
}

int main(void)
{
    TAP_RUN(loss_and_gradients_are_those_of_finite_differences_in_llama);
    TAP_RUN(loss_and_gradients_with_a_tied_head_are_those_of_finite_differences);
    TAP_RUN(loss_and_gradients_with_scaled_positions_are_those_of_finite_differences);
    TAP_RUN(recomputing_changes_no_bit_in_llama);
    TAP_RUN(running_again_gives_the_same_bits_in_llama);
    TAP_RUN(micro_batches_add_up_to_the_whole_batch_in_llama);
    TAP_RUN(a_later_token_changes_no_earlier_loss_in_llama);
    TAP_RUN(an_earlier_tokens_position_changes_the_loss);
    TAP_RUN(evaluation_has_the_loss_of_training_and_changes_no_gradient_in_llama);
    TAP_RUN(a_head_in_pieces_gives_the_gradients_of_one_in_one_piece_in_llama);
    TAP_RUN(the_first_loss_of_nano_is_that_of_uniform_guessing_in_llama);
    TAP_RUN(the_first_pass_writes_the_gradients_of_matrices_in_llama);
    TAP_RUN(padding_produces_no_gradient_in_llama);
    return tap_done();
}
