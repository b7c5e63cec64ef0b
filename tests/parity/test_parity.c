/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_parity.c - every sharding strategy trains as one process does.
 *
 * With the integer model all sums are exact, so the parameters must be equal bit for bit. With a
 * small GPT-2 or Llama under SGD with momentum they must agree within fp32 rounding (Adam would
 * hide a wrong scale).
 */
#include "cases.h"
#include "one_core.h"
#include "unit/tap.h"
#include "walk.h"

#include <stdlib.h>
#include <string.h>

static struct mics_model *integer_model, *staged, *fused, *gpt2, *llama, *tied, *encoder;
static struct mics_model *experts, *padded_experts;

static struct walk counting_walk(uint32_t micro_steps, uint32_t prefetch, uint32_t segments)
{
    return walk_of(integer_model, micro_steps, prefetch, segments);
}

static struct walk gpt2_walk(uint32_t micro_steps, uint32_t prefetch, uint32_t segments)
{
    return walk_with_tolerance(gpt2, micro_steps, prefetch, segments);
}

static void integer_gradients_are_bit_equal_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = counting_walk(s, n == 4 ? 1 : 0, s == 3 ? 2 : 1);

            walk_all(&walk, n);
            CHECK(TAP_SANITIZED || walk.runs >= (int)n);
        }
}

static void integer_gradients_are_bit_equal_for_every_cut_of_8_ranks(void)
{
    struct walk once = counting_walk(1, 2, 3), thrice = counting_walk(3, 1, 1);

    thrice.base.grad_slots = 1;
    walk_all(&once, 8);
    walk_all(&thrice, 8);
    printf("# %d cuts\n", once.runs + thrice.runs);
}

/* Blocks of three stages, two units and three boundary tensors. */
static void blocks_of_several_stages_are_bit_equal_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = counting_walk(s, s == 1 ? 0 : 2, s == 3 ? 2 : 1);

            walk.model = staged;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_NONE;
            walk.base.coalesce = s == 3 ? 2 : 1;
            walk.random_delay_us = n == 4 ? 300 : 0;
            walk_all(&walk, n);
        }
    struct walk walk = counting_walk(2, 1, 1);
    walk.model = staged;
    walk.base.dtype = walk.base.grad_dtype = MICS_BF16;
    walk_all(&walk, 4);
}

/* Are the parameters of the models' tensors equal, bit for bit? They are in different units. */
static bool have_equal_tensors(const struct parity_result *split, const struct parity_result *whole)
{
    uint32_t unit = 0, tensor = 0;

    for (uint32_t u = 0; u < staged->unit_count; u++)
        for (uint32_t i = 0; i < staged->units[u].tensor_count; i++) {
            const struct mics_tensor *a = &staged->units[u].tensors[i];
            const struct mics_tensor *b = &fused->units[unit].tensors[tensor];

            if (a->id != b->id || a->count != b->count ||
                memcmp(split->params[u] + a->offset, whole->params[unit] + b->offset,
                       a->count * sizeof(float)) != 0)
                return false;
            if (++tensor == fused->units[unit].tensor_count) {
                tensor = 0;
                unit++;
            }
        }
    return unit == fused->unit_count;
}

static void stages_of_a_block_compute_what_one_stage_computes(void)
{
    const struct mics_shape shapes[] = {
        {1, 1, 1, 1, 1}, {2, 2, 2, 2, 2}, {2, 2, 4, 4, 4}, {1, 2, 1, 1, 2}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
            struct parity_case c = {.model = staged,
                                    .choice = cases_choice(&shapes[i]),
                                    .steps = 3,
                                    .lr = 0.5f,
                                    .slow_op = MICS_NONE};
            struct parity_result *split = NULL, *whole = NULL;
            struct mics_err err = {""};

            if (tap_leaves_out(2))
                continue;
            c.choice.micro_steps = 2;
            c.choice.recompute = (enum mics_recompute)level;
            CHECK_INT(parity_run(&c, &split, &err), MICS_OK);
            c.model = fused;
            CHECK_INT(parity_run(&c, &whole, &err), MICS_OK);
            CHECK_STR(err.text, "");
            if (split && whole) {
                CHECK(have_equal_tensors(split, whole));
                CHECK(split->loss == whole->loss && split->eval_loss == whole->eval_loss);
                CHECK(split->grad_norm == whole->grad_norm);
            }
            parity_result_free(split);
            parity_result_free(whole);
        }
}

static void gpt2_agrees_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = gpt2_walk(s, s == 1 ? 0 : 2, s);

            walk.base.recompute = s == 3 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
            walk_all(&walk, n);
        }
}

static void gpt2_agrees_for_every_cut_of_8_ranks(void)
{
    struct walk walk = gpt2_walk(3, 1, 2);

    walk_all(&walk, 8);
}

/* Embedding and head are units of their own, gathered and reduced like the blocks. */
static void llama_agrees_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = gpt2_walk(s, s == 1 ? 0 : 2, s);

            walk.model = llama;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
            walk_all(&walk, n);
        }
}

/* Each rank and micro-step has its own number of masked tokens. */
static void an_encoder_agrees_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = gpt2_walk(s, s == 1 ? 0 : 2, s);

            walk.model = encoder;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
            walk_all(&walk, n);
        }
}

/* The loss of a case. */
static double loss_of(const struct parity_case *c)
{
    struct parity_result *result = NULL;
    struct mics_err err;

    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    const double loss = result->loss;
    parity_result_free(result);
    return loss;
}

static void an_encoder_of_documents_agrees_for_every_cut_of_2_and_4_ranks(void)
{
    for (uint32_t n = 2; n <= 4; n *= 2) {
        struct walk walk = gpt2_walk(2, 1, 1);

        walk.model = encoder;
        walk.documents = true;
        walk.base.recompute = MICS_RECOMPUTE_FULL;
        walk_all(&walk, n);
    }
}

static void attention_of_documents_is_another_than_that_of_sequences(void)
{
    struct parity_case c = {.model = encoder,
                            .choice = cases_choice(&(struct mics_shape){1, 1, 1, 1, 1}),
                            .steps = 1,
                            .lr = 0.1f,
                            .slow_op = MICS_NONE,
                            .documents = true};
    const double apart = loss_of(&c);

    CHECK(apart > 0 && loss_of(&c) == apart);
    c.ignores_documents = true;
    CHECK(loss_of(&c) != apart);
}

/* Parameters and loss after a step whose gradient is the mean of those of its micro-batches, each
 * of which has the mean over its own targets: with SGD that is the mean of what each leads to. */
static struct parity_result *mean_of_means(const struct parity_case *c)
{
    const struct parity_case step = parity_reference(c);
    const uint32_t parts = step.choice.micro_steps;
    struct parity_case part = step;
    struct parity_result *mean = NULL, *one = NULL;
    struct mics_err err = {""};

    part.choice.micro_steps = 1;
    for (uint32_t i = 0; i < parts; i++) {
        part.first_sample = (uint64_t)i * step.choice.micro_batch;
        CHECK_INT(parity_run(&part, &one, &err), MICS_OK);
        if (err.text[0])
            break;
        mean = mean ? mean : one;
        if (mean == one)
            continue;
        for (uint32_t unit = 0; unit < mean->unit_count; unit++)
            for (uint64_t j = 0; j < c->model->units[unit].count; j++)
                mean->params[unit][j] +=
                    (one->params[unit][j] - mean->params[unit][j]) / (float)(i + 1);
        mean->loss += (one->loss - mean->loss) / (i + 1);
        parity_result_free(one);
    }
    return mean;
}

/* Their numbers differ, so the mean of the means of ranks and micro-steps is something else. */
static void the_loss_is_the_mean_over_the_masked_tokens_of_the_whole_step(void)
{
    struct parity_case c = {.model = encoder,
                            .choice = cases_choice(&(struct mics_shape){2, 2, 2, 2, 2}),
                            .steps = 1,
                            .lr = 0.1f,
                            .slow_op = MICS_NONE};

    c.choice.micro_steps = 3;
    const struct parity_case whole_case = parity_reference(&c);
    struct parity_result *cut = NULL, *whole = NULL, *means = mean_of_means(&c);
    struct mics_err err;
    CHECK_INT(parity_run(&c, &cut, &err), MICS_OK);
    CHECK_INT(parity_run(&whole_case, &whole, &err), MICS_OK);
    if (cut && whole && means) {
        CHECK(parity_distance(&c, whole, cut) <= GPT2_TOLERANCE);
        CHECK_NEAR(cut->loss, whole->loss, 1e-6);
        CHECK(parity_distance(&c, means, cut) > 50 * GPT2_TOLERANCE);
        CHECK(fabs(means->loss - cut->loss) > 1e-4);
        printf("# mean of means: distance %g, loss %g instead of %g\n",
               parity_distance(&c, means, cut), means->loss, cut->loss);
    }
    parity_result_free(cut);
    parity_result_free(whole);
    parity_result_free(means);
}

static void llama_with_a_tied_head_agrees_for_every_cut_of_4_ranks(void)
{
    struct walk walk = gpt2_walk(3, 1, 2);

    walk.model = tied;
    walk_all(&walk, 4);
}

/* Also with fewer slots than units that are needed together. */
static void coalesced_units_change_no_bit(void)
{
    for (uint32_t coalesce = 2; coalesce <= 4; coalesce += 2)
        for (uint32_t slots = 1; slots <= 4; slots += 3) {
            struct walk walk = counting_walk(3, slots - 1, 2);

            walk.base.coalesce = coalesce;
            walk.base.grad_slots = slots;
            walk_all(&walk, 4);
        }
    struct walk walk = gpt2_walk(2, 3, 1);
    walk.base.coalesce = 2;
    walk.random_delay_us = 300;
    walk_all(&walk, 4);
}

static void gpt2_agrees_with_clipping(void)
{
    struct walk walk = gpt2_walk(3, 1, 2);

    walk.base.clip = true;
    walk.clip = 0.05f; /* well below the norm, so that it has an effect */
    walk_all(&walk, 4);
}

/* All pairs of dtypes except fp32 with fp32. */
static const struct {
    enum mics_dtype dtype, grad_dtype;
} types[] = {{MICS_BF16, MICS_BF16}, {MICS_BF16, MICS_F32}, {MICS_F32, MICS_BF16}};

/* Integers up to 256 are exact in bf16, too: 24 samples of at most 6. */
static void integer_gradients_are_bit_equal_in_bf16(void)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (uint32_t s = 1; s <= 3; s += 2) {
            struct walk walk = counting_walk(s, s == 1 ? 0 : 1, s);

            walk.base.dtype = types[i].dtype;
            walk.base.grad_dtype = types[i].grad_dtype;
            walk_all(&walk, 4);
        }
}

/* A sign is not continuous: where sums are rounded in another order it may differ, and so only
 * exact sums are compared. */
static void lion_gives_equal_bits_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = counting_walk(s, n == 4 ? 1 : 0, s);

            walk.base.optimizer = MICS_OPT_LION;
            walk_all(&walk, n);
            walk.base.clip = true;
            walk.clip = 0.05f;
            walk_all(&walk, n);
        }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct walk walk = counting_walk(3, 1, 2);

        walk.base.optimizer = MICS_OPT_LION;
        walk.base.dtype = types[i].dtype;
        walk.base.grad_dtype = types[i].grad_dtype;
        walk_all(&walk, 4);
    }
}

static void walk_types(const struct mics_model *model, uint32_t micro_steps,
                       enum mics_recompute recompute)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct walk walk = gpt2_walk(micro_steps, 1, 2);

        walk.model = model;
        walk.tolerance = BF16_TOLERANCE;
        walk.rounding = BF16_ROUNDING;
        walk.base.recompute = recompute;
        walk.base.dtype = types[i].dtype;
        walk.base.grad_dtype = types[i].grad_dtype;
        walk_all(&walk, 4);
    }
}

static void gpt2_and_llama_agree_in_bf16_for_every_cut_of_4_ranks(void)
{
    walk_types(gpt2, 3, MICS_RECOMPUTE_SELECTIVE);
    walk_types(llama, 1, MICS_RECOMPUTE_FULL);
}

/* fp16 has three bits more than bf16. The loss is divided by more tokens the more ranks there are,
 * by a power of two, which changes what is too small for fp16 only. */
static void gpt2_and_llama_agree_in_fp16_for_every_cut_of_4_ranks(void)
{
    for (int i = 0; i < 2; i++) {
        struct walk walk = gpt2_walk(i ? 1 : 3, 1, 2);

        walk.model = i ? llama : gpt2;
        walk.tolerance = BF16_TOLERANCE / 4;
        walk.rounding = BF16_ROUNDING / 4;
        walk.base.recompute = i ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
        walk.base.dtype = MICS_F16;
        walk.base.grad_dtype = i ? MICS_F32 : MICS_F16;
        walk.base.clip = true;
        walk.clip = 0.05f;
        walk_all(&walk, 4);
    }
}

/* Three steps on four ranks, in groups of two, without hierarchy; NULL on failure. */
static struct parity_result *run_level(const struct mics_model *model, enum mics_dtype dtype,
                                       enum mics_dtype grad_dtype, enum mics_recompute level)
{
    struct parity_case c = {.model = model,
                            .choice = cases_choice(&(struct mics_shape){2, 2, 2, 2, 2}),
                            .steps = 3,
                            .lr = 0.1f,
                            .slow_op = MICS_NONE};
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.choice.micro_steps = 2;
    c.choice.dtype = dtype;
    c.choice.grad_dtype = grad_dtype;
    c.choice.recompute = level;
    if (parity_run(&c, &result, &err) != MICS_OK)
        printf("# %s: %s\n", mics_recompute_name(level), err.text);
    return result;
}

static void check_levels(const struct mics_model *model, enum mics_dtype dtype,
                         enum mics_dtype grad_dtype)
{
    if (tap_leaves_out(3))
        return;
    const struct parity_case c = {.model = model};
    struct parity_result *none = run_level(model, dtype, grad_dtype, MICS_RECOMPUTE_NONE);

    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct parity_result *again =
            run_level(model, dtype, grad_dtype, (enum mics_recompute)level);

        CHECK(none && again);
        if (none && again) {
            CHECK(parity_distance(&c, none, again) == 0);
            CHECK(none->loss == again->loss && none->grad_norm == again->grad_norm);
            CHECK(none->eval_loss == again->eval_loss);
            CHECK(again->arena_bytes < none->arena_bytes);
        }
        parity_result_free(again);
    }
    parity_result_free(none);
}

static void no_level_of_recomputation_changes_a_bit(void)
{
    const struct mics_model *const models[] = {gpt2, llama, tied, encoder, experts, padded_experts};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_levels(models[i], MICS_F32, MICS_F32);
        for (size_t j = 0; j < sizeof types / sizeof types[0]; j++)
            check_levels(models[i], types[j].dtype, types[j].grad_dtype);
    }
}

static void random_delays_change_no_bit(void)
{
    struct walk walk = counting_walk(3, 1, 2);

    walk.random_delay_us = 300;
    walk_all(&walk, 4);
    walk.base.dtype = walk.base.grad_dtype = MICS_BF16;
    walk_all(&walk, 4);
}

int main(void)
{
    use_one_core();
    integer_model = cases_integer_model();
    staged = cases_staged_model(false);
    fused = cases_staged_model(true);
    gpt2 = cases_gpt2();
    encoder = cases_encoder();
    llama = cases_llama(true);
    tied = cases_llama(false);
    experts = cases_experts(false);
    padded_experts = cases_experts(true);
    TAP_RUN(integer_gradients_are_bit_equal_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(integer_gradients_are_bit_equal_for_every_cut_of_8_ranks);
    TAP_RUN(blocks_of_several_stages_are_bit_equal_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(stages_of_a_block_compute_what_one_stage_computes);
    TAP_RUN(gpt2_agrees_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(gpt2_agrees_for_every_cut_of_8_ranks);
    TAP_RUN(llama_agrees_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(an_encoder_agrees_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(an_encoder_of_documents_agrees_for_every_cut_of_2_and_4_ranks);
    TAP_RUN(attention_of_documents_is_another_than_that_of_sequences);
    TAP_RUN(the_loss_is_the_mean_over_the_masked_tokens_of_the_whole_step);
    TAP_RUN(llama_with_a_tied_head_agrees_for_every_cut_of_4_ranks);
    TAP_RUN(coalesced_units_change_no_bit);
    TAP_RUN(gpt2_agrees_with_clipping);
    TAP_RUN(integer_gradients_are_bit_equal_in_bf16);
    TAP_RUN(lion_gives_equal_bits_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(gpt2_and_llama_agree_in_bf16_for_every_cut_of_4_ranks);
    TAP_RUN(gpt2_and_llama_agree_in_fp16_for_every_cut_of_4_ranks);
    TAP_RUN(no_level_of_recomputation_changes_a_bit);
    TAP_RUN(random_delays_change_no_bit);
    mics_model_free(integer_model);
    mics_model_free(staged);
    mics_model_free(fused);
    mics_model_free(gpt2);
    mics_model_free(encoder);
    mics_model_free(llama);
    mics_model_free(tied);
    mics_model_free(experts);
    mics_model_free(padded_experts);
    return tap_done();
}
