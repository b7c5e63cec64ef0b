/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_masked_head.c - the head of an encoder computes the tokens that are masked, and not all.
 *
 * The same parameters, tokens and targets with and without a mask_rate: loss, hits and gradients
 * agree but for the order of sums.
 */
#include "model_run.h"
#include "tap.h"

/* Relative to the largest gradient of a tensor. */
#define TOLERANCE      2e-6
#define TOLERANCE_BF16 2e-2

enum { T = 20 };

static struct mics_model *encoder_of(const char *family, double mask_rate)
{
    const struct mics_model_config config = {.family = "bert",
                                             .name = "tiny",
                                             .n_layer = 2,
                                             .n_embd = 24,
                                             .n_head = 3,
                                             .n_positions = 24,
                                             .vocab_size = 61,
                                             .n_inner = 44,
                                             .layer_norm_epsilon = 1e-5,
                                             .type_vocab_size = 2,
                                             .mask_rate = mask_rate};
    struct mics_model_config named = config;
    struct mics_model *model = NULL;
    struct mics_err err;

    snprintf(named.family, sizeof named.family, "%s", family);
    if (mics_model_new(&named, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

/* Every third sequence has no targets, the others at most ceil(rate T). */
static void fill(struct model_run *run, uint32_t most)
{
    run_fill(run, 3);
    for (uint32_t b = 0; b < run->batch.B; b++)
        for (uint32_t t = 0; t < T; t++) {
            const bool masked = b % 3 != 2 && t % 3 == b % 2 && t / 3 + b % 2 < most;

            run_targets(run)[b * T + t] = masked ? (int32_t)((b * 7 + t * 5) % 61) : -1 - (t == 9);
        }
}

struct result {
    struct model_run run;
    double loss, hits;
};

static void run_once(struct result *out, struct mics_model *model, struct mics_batch batch,
                     uint32_t most)
{
    out->hits = 0;
    run_open(&out->run, model, batch, 3);
    if (batch.dtype == MICS_F32)
        run_shake(&out->run);
    fill(&out->run, most);
    out->loss = run_step(&out->run);
    const uint32_t head = model->stage_count - 1;
    struct mics_pass pass = run_pass(&out->run, head);
    double loss = 0;

    pass.batch.train = false; /* logits of the same input, without gradients */
    pass.loss_sum = &loss;
    pass.hits = &out->hits;
    model->ops->forward(&pass, head);
    run_sync(&out->run);
    CHECK(batch.dtype != MICS_F32 || loss == out->loss || isnan(loss));
}

static double gradients_differ(const struct model_run *a, const struct model_run *b)
{
    double worst = 0;

    for (uint32_t u = 0; u < a->model->unit_count; u++)
        for (uint32_t t = 0; t < a->model->units[u].tensor_count; t++) {
            const struct mics_tensor *tensor = &a->model->units[u].tensors[t];
            const float *got = (const float *)(void *)a->grads[u].data + tensor->offset;
            const float *want = (const float *)(void *)b->grads[u].data + tensor->offset;
            double apart = 0, scale = 1e-3; /* that of keys' biases is 0 but for rounding */

            for (uint64_t i = 0; i < tensor->count; i++) {
                apart = fmax(apart, fabs((double)got[i] - want[i]));
                scale = fmax(scale, fabs((double)want[i]));
            }
            worst = fmax(worst, apart / scale);
        }
    return worst;
}

static void check(const char *family, struct mics_batch batch, double rate, double tolerance)
{
    struct result some, all;
    const uint32_t most = (uint32_t)ceil(rate * T);

    run_once(&all, encoder_of(family, 0), batch, most);
    run_once(&some, encoder_of(family, rate), batch, most);
    CHECK_INT(mics_model_targets_max(some.run.model, T), most);
    CHECK(some.loss > 0 && fabs(some.loss / all.loss - 1) < tolerance);
    CHECK_NEAR(some.hits, all.hits, 0);
    if (batch.train)
        CHECK(gradients_differ(&some.run, &all.run) < tolerance);
    run_close(&some.run);
    run_close(&all.run);
}

static void loss_and_gradients_are_those_of_a_head_on_all_tokens(void)
{
    static const double rates[] = {0.15, 0.3, 0.97};

    for (uint32_t B = 1; B <= 7; B += 3)
        for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
            for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++)
                check(i % 2 ? "bert" : "roberta",
                      (struct mics_batch){
                          .B = B, .T = T, .recompute = (enum mics_recompute)level, .train = true},
                      rates[i], TOLERANCE);
}

static void loss_and_gradients_in_bf16_are_those_of_a_head_on_all_tokens(void)
{
    check("bert", (struct mics_batch){.B = 4, .T = T, .train = true, .dtype = MICS_BF16}, 0.3,
          TOLERANCE_BF16);
    check("roberta", (struct mics_batch){.B = 4, .T = T, .dtype = MICS_BF16}, 0.3, TOLERANCE_BF16);
}

static void more_targets_than_the_mask_rate_has_give_a_loss_that_is_not_a_number(void)
{
    struct result result;

    run_once(&result, encoder_of("bert", 0.2), (struct mics_batch){.B = 1, .T = T, .train = true},
             4);
    CHECK(result.loss > 0);
    run_close(&result.run);
    run_once(&result, encoder_of("bert", 0.2), (struct mics_batch){.B = 1, .T = T, .train = true},
             5);
    CHECK(isnan(result.loss));
    run_close(&result.run);
}

/* Of rates below that of validation the latter counts. */
static void a_sequence_has_so_many_targets(void)
{
    static const struct {
        double rate;
        uint32_t T, most;
    } cases[] = {{0, 512, 512}, {0.15, 512, 77}, {0.05, 512, 77}, {0.5, 7, 4},
                 {0.15, 20, 3}, {0.9999, 3, 3},  {1, 20, 20},     {0.15, 1, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_model *model = encoder_of("bert", cases[i].rate);

        CHECK_INT(mics_model_targets_max(model, cases[i].T), cases[i].most);
        mics_model_free(model);
    }
}

/* FLOPs of the matrices of the head, and memory for a chunk of logits. */
static void the_head_of_a_mask_rate_needs_less(void)
{
    struct mics_model *all = NULL, *some = NULL;
    const struct mics_batch batch = {.B = 8, .T = 512, .train = true};
    struct mics_stage_bytes bytes[2];
    struct mics_err err;

    CHECK_INT(mics_model_open("bert-base", &some, &err), MICS_OK);
    CHECK_INT(mics_model_open("bert-base", &all, &err), MICS_OK);
    CHECK_INT(mics_model_set_mask_rate(&all, 0, &err), MICS_OK);
    CHECK_NEAR(mics_model_flops_per_token(all, 512) - mics_model_flops_per_token(some, 512),
               6.0 * (768.0 * 30522 + 768.0 * 768) * (512 - 77) / 512, 1);
    some->ops->stage_bytes(some, &batch, some->stage_count - 1, &bytes[0]);
    all->ops->stage_bytes(all, &batch, all->stage_count - 1, &bytes[1]);
    CHECK(bytes[0].scratch <= bytes[1].scratch + 3 * 256 * 768 * 4);
    CHECK_INT(bytes[0].saved, bytes[1].saved);
    mics_model_free(all);
    mics_model_free(some);
}

int main(void)
{
    TAP_RUN(loss_and_gradients_are_those_of_a_head_on_all_tokens);
    TAP_RUN(loss_and_gradients_in_bf16_are_those_of_a_head_on_all_tokens);
    TAP_RUN(more_targets_than_the_mask_rate_has_give_a_loss_that_is_not_a_number);
    TAP_RUN(a_sequence_has_so_many_targets);
    TAP_RUN(the_head_of_a_mask_rate_needs_less);
    return tap_done();
}
