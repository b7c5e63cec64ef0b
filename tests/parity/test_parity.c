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

#include <stdlib.h>
#include <string.h>

/* GPT-2: 3 steps at lr 0.1 on parameters of size 0.02 to 1. Different orders of summation differ
 * by a few units in the last place of a gradient; a wrong scale or a lost micro-step is 1e-3 or
 * more. */
#define GPT2_TOLERANCE 2e-6

/* The same with bf16 parameters or gradients: a gradient has one rounding error of 2^-8 for each
 * rank that it passed, and a parameter may be rounded to the neighbouring value. Observed: 1.6e-4
 * for parameters, 5e-5 for loss and norm. */
#define BF16_TOLERANCE 5e-4
#define BF16_ROUNDING  1e-4

static struct mics_model *integer_model, *staged, *fused, *gpt2, *llama, *tied, *encoder;
static struct mics_model *experts, *padded_experts;

struct walk {
    const struct mics_model *model;
    struct mics_plan_choice base; /* everything except the shape */
    double tolerance, rounding;   /* absolute, of parameters; relative, of loss and norm */
    float lr, clip;
    uint32_t random_delay_us;
    bool documents; /* as in struct parity_case */
    int runs;
    struct parity_result *reference;
    uint32_t reference_samples;
};

static void check_counts(const struct parity_case *c, const struct parity_result *result)
{
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return;
    for (uint32_t rank = 0; rank < result->n; rank++) {
        mics_schedule_counts(schedule, &c->choice, rank, calls, sent);
        for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
            for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
                const struct mics_comm_counts *counts = &result->counts[rank][groups][kind];

                CHECK_INT(counts->calls, c->steps * calls[groups][kind]);
                if ((kind == MICS_COMM_DISPATCH || kind == MICS_COMM_COMBINE) && !c->op_durations)
                    /* What even loads send is the least that any loads do. */
                    CHECK(counts->sent_bytes >= c->steps * sent[groups][kind]);
                else
                    CHECK_INT(counts->sent_bytes, c->steps * sent[groups][kind]);
            }
    }
    mics_schedule_free(schedule);
}

/* The reference depends on the number of samples in a step only. */
static const struct parity_result *reference_of(struct walk *walk, const struct parity_case *c)
{
    const struct parity_case reference = parity_reference(c);
    const uint32_t samples = reference.choice.micro_steps * reference.choice.micro_batch;
    struct mics_err err;

    if (walk->reference && walk->reference_samples == samples)
        return walk->reference;
    parity_result_free(walk->reference);
    walk->reference = NULL;
    walk->reference_samples = samples;
    if (parity_run(&reference, &walk->reference, &err) != MICS_OK)
        printf("# the reference: %s\n", err.text);
    return walk->reference;
}

static void check_case(struct walk *walk, const struct parity_case *c)
{
    const int bad_before = tap_bad;
    struct parity_result *result = NULL;
    struct mics_err err = {""};
    const struct parity_result *reference = reference_of(walk, c);
    char name[160];

    walk->runs++;
    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    if (result && reference) {
        CHECK(parity_distance(c, reference, result) <= walk->tolerance);
        CHECK(result->replicas_agree);
        CHECK_NEAR(result->loss, reference->loss, walk->rounding * fabs(reference->loss));
        CHECK_NEAR(result->grad_norm, reference->grad_norm,
                   10 * walk->rounding * reference->grad_norm);
        CHECK_NEAR(result->eval_loss, reference->eval_loss,
                   walk->rounding * fabs(reference->eval_loss));
        CHECK_NEAR(result->eval_hits, reference->eval_hits, 1e-12);
        CHECK_INT(result->high_water <= result->arena_bytes, 1);
        check_counts(c, result);
    }
    if (tap_bad != bad_before)
        printf("# in %s: %s, distance %g\n", cases_name(&c->choice, name, sizeof name), err.text,
               result && reference ? parity_distance(c, reference, result) : -1);
    parity_result_free(result);
}

/* With sanitizers, with which it takes minutes, only some of the cuts are run, others in each walk:
 * the threads and their memory are alike in all. */
static bool is_left_out(const struct mics_shape *shape)
{
    return mics_shape_world_size(shape) > 1 && tap_leaves_out(TAP_TSAN ? 17 : 7);
}

static void visit(const struct mics_shape *shape, void *context)
{
    struct walk *walk = context;

    struct parity_case c = {
        .model = walk->model,
        .choice = walk->base,
        .steps = 3,
        .lr = walk->lr,
        .clip = walk->clip,
        .random_delay_us = walk->random_delay_us,
        .slow_op = MICS_NONE,
        .documents = walk->documents,
    };

    mics_choice_set_shape(&c.choice, *shape);
    if (c.choice.dispatches && mics_choice_check(c.model, &c.choice, NULL) != MICS_OK)
        return;
    if (is_left_out(shape))
        return;
    check_case(walk, &c);
    if (mics_shape_has_hierarchy(shape, shape->p_param) ||
        mics_shape_has_hierarchy(shape, shape->p_grad)) {
        c.choice.hierarchical_gather = mics_shape_has_hierarchy(shape, shape->p_param);
        c.choice.hierarchical_reduce = mics_shape_has_hierarchy(shape, shape->p_grad);
        check_case(walk, &c);
    }
}

static void walk_all(struct walk *walk, uint32_t n)
{
    cases_each_shape(n, visit, walk);
    parity_result_free(walk->reference);
    walk->reference = NULL;
}

static struct walk counting_walk(uint32_t micro_steps, uint32_t prefetch, uint32_t segments)
{
    struct walk walk = {.model = integer_model, .lr = 0.5f, .rounding = 1e-5};

    walk.base = cases_choice(&(struct mics_shape){1, 1, 1, 1, 1});
    walk.base.micro_steps = micro_steps;
    walk.base.prefetch = prefetch;
    walk.base.segments = segments;
    return walk;
}

static struct walk gpt2_walk(uint32_t micro_steps, uint32_t prefetch, uint32_t segments)
{
    struct walk walk = counting_walk(micro_steps, prefetch, segments);

    walk.model = gpt2;
    walk.lr = 0.1f;
    walk.tolerance = GPT2_TOLERANCE;
    return walk;
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

/* Pairs of shapes of the same ranks, for dense and for expert units. */
struct kinds_walk {
    struct walk walk;
    struct mics_shape dense[64]; /* visited so far */
    int count, pairs;
};

static void visit_pairs(const struct mics_shape *shape, void *context)
{
    struct kinds_walk *kinds = context;

    for (int i = 0; i < kinds->count; i++) {
        struct parity_case c = {.model = kinds->walk.model,
                                .choice = kinds->walk.base,
                                .steps = 3,
                                .lr = kinds->walk.lr,
                                .clip = kinds->walk.clip,
                                .random_delay_us = kinds->walk.random_delay_us,
                                .slow_op = MICS_NONE};
        const bool swaps = kinds->pairs % 2;

        if (kinds->dense[i].nodes != shape->nodes || kinds->pairs++ % 3 != 0 || tap_leaves_out(7))
            continue;
        c.choice.shapes[MICS_UNIT_DENSE] = swaps ? *shape : kinds->dense[i];
        c.choice.shapes[MICS_UNIT_EXPERT] = swaps ? kinds->dense[i] : *shape;
        check_case(&kinds->walk, &c);
    }
    kinds->dense[kinds->count++] = *shape;
}

static void walk_pairs(struct kinds_walk *kinds, uint32_t n)
{
    cases_each_shape(n, visit_pairs, kinds);
    parity_result_free(kinds->walk.reference);
    kinds->walk.reference = NULL;
    printf("# %d runs\n", kinds->walk.runs);
    CHECK(kinds->walk.runs > 0);
}

/* Every second unit of the blocks is one of experts. */
static void mark_experts(struct mics_model *model, enum mics_unit_kind kind)
{
    for (uint32_t u = 2; u + 1 < model->unit_count; u += 2)
        model->units[u].kind = kind;
}

static void dense_and_expert_units_may_be_cut_over_groups_of_other_sizes(void)
{
    mark_experts(staged, MICS_UNIT_EXPERT);
    for (int i = 0; i < 4; i++) {
        struct kinds_walk kinds = {.walk = counting_walk(1 + (uint32_t)i % 2, (uint32_t)i, 1)};

        kinds.walk.model = staged;
        kinds.walk.base.hierarchical_gather = kinds.walk.base.hierarchical_reduce = i > 0;
        kinds.walk.base.coalesce = i == 1 ? 2 : 1;
        kinds.walk.base.segments = i == 2 ? 2 : 1;
        kinds.walk.base.clip = i == 2;
        kinds.walk.clip = i == 2 ? 0.05f : 0;
        if (i == 3)
            kinds.walk.base.dtype = kinds.walk.base.grad_dtype = MICS_BF16;
        kinds.walk.random_delay_us = i == 1 ? 300 : 0;
        walk_pairs(&kinds, 4);
    }
    mark_experts(staged, MICS_UNIT_DENSE);

    mark_experts(llama, MICS_UNIT_EXPERT);
    struct kinds_walk kinds = {.walk = gpt2_walk(2, 1, 1)};
    kinds.walk.model = llama;
    walk_pairs(&kinds, 4);
    mark_experts(llama, MICS_UNIT_DENSE);
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

/* Experts without a token in a micro-step have gradients of zero. */
static void experts_agree_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = gpt2_walk(s, s == 1 ? 0 : 2, s);

            walk.model = s == 1 ? padded_experts : experts;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
            walk.base.clip = s == 3;
            walk.clip = s == 3 ? 0.5f : 0;
            walk_all(&walk, n);
        }
}

/* In fp16 the losses of balance are scaled with the rest. */
static void experts_agree_in_fp16_for_every_cut_of_4_ranks(void)
{
    struct walk walk = gpt2_walk(2, 2, 1);

    walk.model = experts;
    walk.tolerance = BF16_TOLERANCE / 4;
    walk.rounding = BF16_ROUNDING / 4;
    walk.base.dtype = walk.base.grad_dtype = MICS_F16;
    walk.base.clip = true;
    walk.clip = 0.5f;
    walk_all(&walk, 4);
    walk.base.dispatches = true;
    walk.base.grad_dtype = MICS_F32;
    walk_all(&walk, 2);
}

/* The groups of experts may be smaller or larger than those of the rest of a layer. */
static void experts_agree_in_groups_of_other_sizes(void)
{
    struct kinds_walk kinds = {.walk = gpt2_walk(2, 1, 1)};

    kinds.walk.model = experts;
    kinds.walk.base.clip = true;
    kinds.walk.clip = 0.5f;
    walk_pairs(&kinds, 4);
}

/* Tokens travel to their experts, in rounds: a router that has seen nothing loads them unevenly. */
static void resident_experts_agree_for_every_cut_of_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 2; n <= 4; n *= 2) {
            struct walk walk = gpt2_walk(s, s == 1 ? 0 : 2, s);

            walk.model = s == 1 ? padded_experts : experts;
            walk.base.dispatches = true;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_NONE;
            walk.base.clip = s == 3;
            walk.clip = s == 3 ? 0.5f : 0;
            walk.base.coalesce = s == 3 ? 2 : 1;
            walk.random_delay_us = n == 2 ? 300 : 0;
            walk_all(&walk, n);
            CHECK(TAP_SANITIZED || walk.runs > (int)n);
        }
}

static void resident_experts_agree_whatever_the_load(void)
{
    for (uint32_t used = 1; used <= 4; used++) {
        struct mics_model_config config = experts->config;
        struct walk walk = gpt2_walk(2, 1, 1);
        struct mics_model *model = NULL;

        config.n_expert_used = used;
        CHECK_INT(mics_model_new(&config, &model, NULL), MICS_OK);
        if (!model)
            return;
        if (used % 2 == 1)
            cases_zero_routers(model);
        walk.model = model;
        walk.base.dispatches = true;
        walk.base.recompute = MICS_RECOMPUTE_SELECTIVE;
        walk_all(&walk, 4);
        CHECK(TAP_SANITIZED || walk.runs > 4);
        mics_model_free(model);
    }
}

/* Nothing is computed, also no loads. */
static void a_paced_step_with_resident_experts_sends_what_even_loads_need(void)
{
    struct parity_case c = {
        .model = experts,
        .choice = gpt2_walk(2, 1, 1).base,
        .steps = 2,
        .lr = 0.1f,
        .slow_op = MICS_NONE,
    };
    struct mics_schedule *schedule = NULL;
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    mics_choice_set_shape(&c.choice, (struct mics_shape){2, 2, 4, 4, 4});
    c.choice.dispatches = true;
    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return;
    double *durations = calloc(schedule->op_count, sizeof *durations);
    c.op_durations = durations;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (result)
        check_counts(&c, result);
    parity_result_free(result);
    free(durations);
    mics_schedule_free(schedule);
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
    TAP_RUN(dense_and_expert_units_may_be_cut_over_groups_of_other_sizes);
    TAP_RUN(gpt2_agrees_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(gpt2_agrees_for_every_cut_of_8_ranks);
    TAP_RUN(llama_agrees_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(an_encoder_agrees_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(an_encoder_of_documents_agrees_for_every_cut_of_2_and_4_ranks);
    TAP_RUN(attention_of_documents_is_another_than_that_of_sequences);
    TAP_RUN(the_loss_is_the_mean_over_the_masked_tokens_of_the_whole_step);
    TAP_RUN(experts_agree_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(experts_agree_in_fp16_for_every_cut_of_4_ranks);
    TAP_RUN(experts_agree_in_groups_of_other_sizes);
    TAP_RUN(resident_experts_agree_for_every_cut_of_2_and_4_ranks);
    TAP_RUN(resident_experts_agree_whatever_the_load);
    TAP_RUN(a_paced_step_with_resident_experts_sends_what_even_loads_need);
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
