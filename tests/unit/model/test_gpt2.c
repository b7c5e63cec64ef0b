/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT-2 family on the host device: loss, gradients, memory. */
#include "model_gradients.h"
#include "tap.h"

#include "host/pool.h"
#include "model/generate.h"
#include "model/transformer/transformer.h"

#include <math.h>

/* Error of gradients in fp32, relative to the largest. With the wild parameters that run_shake()
 * makes, rounding alone comes to 1e-5. */
#define TOLERANCE 1e-4

/* Sizes that divide nothing evenly. */
static const struct mics_model_config tiny = {
    .family = "gpt2",
    .name = "tiny",
    .n_layer = 2,
    .n_embd = 12,
    .n_head = 3,
    .n_positions = 9,
    .vocab_size = 13,
    .n_inner = 19,
    .layer_norm_epsilon = 1e-5,
};

static struct mics_model *model_of(const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    struct mics_err err;

    if (mics_model_new(config, &model, &err) != MICS_OK)
        abort();
    return model;
}

static void open_tiny(struct model_run *run, uint32_t B, enum mics_recompute recompute)
{
    run_open(run, model_of(&tiny),
             (struct mics_batch){.B = B, .T = 7, .recompute = recompute, .train = true}, 3);
    run_shake(run);
    run_fill(run, 11);
}

/* The tiny model with another place of the norms, or with full attention. */
static void open_variant(struct model_run *run, enum mics_norm_place place, bool bidirectional,
                         enum mics_recompute recompute)
{
    static struct mics_family family;
    struct mics_model *gpt2 = model_of(&tiny), *model = NULL;

    family = *gpt2->family;
    family.norm_place = place;
    family.bidirectional = bidirectional;
    CHECK_INT(mics_model_new_custom(&mics_transformer_ops, &family, &gpt2->config, &model, NULL),
              MICS_OK);
    mics_model_free(gpt2);
    run_open(run, model, (struct mics_batch){.B = 2, .T = 7, .recompute = recompute, .train = true},
             3);
    run_shake(run);
    run_fill(run, 11);
}

static void check_variant(enum mics_norm_place place, bool bidirectional)
{
    struct model_run keep, again;

    open_variant(&keep, place, bidirectional, MICS_RECOMPUTE_NONE);
    check_loss_and_gradients(&keep, gpt2_double_loss, TOLERANCE);
    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++) {
        open_variant(&again, place, bidirectional, (enum mics_recompute)level);
        run_step(&again);
        CHECK(same_gradients(&keep, &again));
        CHECK(again.saved[1].bytes < keep.saved[1].bytes);
        run_close(&again);
    }
    run_close(&keep);
}

/* One token at a time after the first three. Generating transposes the parameters. */
static void check_generation(enum mics_norm_place place)
{
    struct mics_generator *generator = NULL;
    struct mics_pool *pool = mics_pool_new(2);
    float want[13], got[13], *params[3];
    struct model_run run;

    open_variant(&run, place, false, MICS_RECOMPUTE_NONE);
    run.batch.train = false;
    run_step(&run);
    struct mics_pass pass = run_pass(&run, 3);
    for (uint32_t u = 0; u < 3; u++)
        params[u] = run_params(&run, u);
    mics_head_logits(&pass, 0, run.batch.T - 1, 1, want);
    run_sync(&run);
    CHECK_INT(mics_generator_new(
                  &(struct mics_generator_options){
                      .model = run.model, .params = params, .sequences = 1, .pool = pool},
                  &generator, NULL),
              MICS_OK);
    for (uint32_t t = 0; t < run.batch.T; t += t ? 1 : 3) {
        const struct mics_generator_input input = {.tokens = run_tokens(&run) + t,
                                                   .count = t ? 1 : 3};

        CHECK_INT(mics_generator_append(generator, &input, 1, got, NULL), MICS_OK);
    }
    for (uint32_t v = 0; v < 13; v++)
        CHECK_NEAR(got[v], want[v], 1e-4);
    mics_generator_free(generator);
    mics_pool_free(pool);
    run_close(&run);
}

static void generation_gives_the_logits_of_the_training_pass(void)
{
    check_generation(MICS_NORM_BEFORE);
    check_generation(MICS_NORM_AFTER);
}

static void gradients_with_norms_after_sublayers_are_those_of_finite_differences(void)
{
    check_variant(MICS_NORM_AFTER, false);
}

static void gradients_with_full_attention_are_those_of_finite_differences(void)
{
    check_variant(MICS_NORM_BEFORE, true);
    check_variant(MICS_NORM_AFTER, true);
}

static void loss_and_gradients_are_those_of_finite_differences(void)
{
    struct model_run run;

    open_tiny(&run, 2, MICS_RECOMPUTE_NONE);
    check_loss_and_gradients(&run, gpt2_double_loss, TOLERANCE);
    run_close(&run);
}

static void recomputing_changes_no_bit(void)
{
    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct model_run keep, again;

        open_tiny(&keep, 3, MICS_RECOMPUTE_NONE);
        open_tiny(&again, 3, (enum mics_recompute)level);
        CHECK(run_step(&keep) == run_step(&again));
        CHECK(same_gradients(&keep, &again));
        CHECK(again.saved[1].bytes < keep.saved[1].bytes);
        run_close(&keep);
        run_close(&again);
    }
}

static void running_again_gives_the_same_bits(void)
{
    struct model_run one, two;

    open_tiny(&one, 3, MICS_RECOMPUTE_NONE);
    open_tiny(&two, 3, MICS_RECOMPUTE_NONE);
    CHECK(run_step(&one) == run_step(&two));
    run_zero_grads(&two);
    run_step(&two); /* over the stale results of the first */
    CHECK(same_gradients(&one, &two));
    run_close(&one);
    run_close(&two);
}

static void micro_batches_add_up_to_the_whole_batch(void)
{
    struct model_run whole, part;

    open_tiny(&whole, 6, MICS_RECOMPUTE_NONE);
    open_tiny(&part, 2, MICS_RECOMPUTE_FULL);
    const double loss = run_step(&whole);
    CHECK_NEAR(run_in_parts(&whole, &part), loss, 1e-6 * loss);
    CHECK(grads_differ(&whole, &part) < TOLERANCE);
    run_close(&whole);
    run_close(&part);
}

static void masked_targets_give_no_loss_and_no_gradient(void)
{
    struct model_run run;

    open_tiny(&run, 2, MICS_RECOMPUTE_NONE);
    for (uint32_t i = 0; i < run.batch.B * run.batch.T; i++)
        run_targets(&run)[i] = -1;
    CHECK(run_step(&run) == 0);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        CHECK(largest(run_grads(&run, u), run.model->units[u].count) == 0);
    run_close(&run);
}

static void a_later_token_changes_no_earlier_loss(void)
{
    struct model_run run;

    open_tiny(&run, 1, MICS_RECOMPUTE_NONE);
    for (uint32_t i = 3; i < run.batch.T; i++)
        run_targets(&run)[i] = -1;
    const double before = run_step(&run);
    for (uint32_t i = 3; i < run.batch.T; i++)
        run_tokens(&run)[i] = (run_tokens(&run)[i] + 5) % (int32_t)tiny.vocab_size;
    CHECK(run_step(&run) == before);
    run_close(&run);
}

static void evaluation_has_the_loss_of_training_and_changes_no_gradient(void)
{
    struct model_run run;

    open_tiny(&run, 2, MICS_RECOMPUTE_NONE);
    const double trained = run_step(&run);
    run_zero_grads(&run);
    run.batch.train = false;
    CHECK(run_step(&run) == trained);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        CHECK(largest(run_grads(&run, u), run.model->units[u].count) == 0);
    run_close(&run);
}

/* 600 rows of 9,000 logits are made in pieces of 256 rows; one sequence of 150 in two. */
static void a_head_in_pieces_gives_the_gradients_of_one_in_one_piece(void)
{
    struct mics_model_config config = tiny;
    struct model_run whole, part;

    config.vocab_size = 9000;
    config.n_positions = 150;
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

static void the_first_loss_of_nano_is_that_of_uniform_guessing(void)
{
    struct mics_model *model = NULL;
    struct model_run run;

    CHECK_INT(mics_model_open("gpt2-nano", &model, NULL), MICS_OK);
    run_open(&run, model, (struct mics_batch){.B = 2, .T = 256, .train = true}, 1);
    run_fill(&run, 1);
    CHECK_NEAR(run_step(&run) / (512 - 102), log(257), 0.1);
    run_close(&run);
}

static void the_first_pass_writes_the_gradients_of_matrices(void)
{
    struct model_run runs[2];

    for (int i = 0; i < 2; i++) {
        struct mics_model *model = NULL;

        CHECK_INT(mics_model_open("gpt2-nano", &model, NULL), MICS_OK);
        run_open(&runs[i], model, (struct mics_batch){.B = 1, .T = 32, .train = true}, 1);
        run_fill(&runs[i], 1);
    }
    check_first_pass(&runs[0], &runs[1]);
}

/* The vocabulary's matrix is followed by rows of zeros, which the head's products take with it. */
static void padding_produces_no_gradient(void)
{
    struct model_run run;

    open_tiny(&run, 2, MICS_RECOMPUTE_NONE);
    run_step(&run);
    CHECK(run.model->units[0].count > run.model->units[0].param_count);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        CHECK_INT(run_stray_grads(&run, u), 0);
    run_close(&run);
}

int main(void)
{
    TAP_RUN(loss_and_gradients_are_those_of_finite_differences);
    TAP_RUN(gradients_with_norms_after_sublayers_are_those_of_finite_differences);
    TAP_RUN(gradients_with_full_attention_are_those_of_finite_differences);
    TAP_RUN(generation_gives_the_logits_of_the_training_pass);
    TAP_RUN(recomputing_changes_no_bit);
    TAP_RUN(running_again_gives_the_same_bits);
    TAP_RUN(micro_batches_add_up_to_the_whole_batch);
    TAP_RUN(masked_targets_give_no_loss_and_no_gradient);
    TAP_RUN(a_later_token_changes_no_earlier_loss);
    TAP_RUN(evaluation_has_the_loss_of_training_and_changes_no_gradient);
    TAP_RUN(a_head_in_pieces_gives_the_gradients_of_one_in_one_piece);
    TAP_RUN(the_first_loss_of_nano_is_that_of_uniform_guessing);
    TAP_RUN(the_first_pass_writes_the_gradients_of_matrices);
    TAP_RUN(padding_produces_no_gradient);
    return tap_done();
}
