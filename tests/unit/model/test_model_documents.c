/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that share a sequence train as in sequences of their own. */
#include "model_run.h"

enum { T = 19, DOCUMENTS = 3 };

/* The last one has padding behind it. */
static const uint32_t lengths[DOCUMENTS] = {7, 1, 9};

static struct mics_model *make_model(const char *family)
{
    struct mics_model_config config = {.name = "documents",
                                       .n_layer = 2,
                                       .n_embd = 24,
                                       .n_head = 4,
                                       .n_positions = T,
                                       .vocab_size = 31,
                                       .n_inner = 40,
                                       .layer_norm_epsilon = 1e-5,
                                       .n_kv_head = 2,
                                       .head_dim = 6,
                                       .rope_theta = 1e4};
    struct mics_model *model = NULL;
    struct mics_err err = {""};

    if (strstr(family, "bert")) {
        config.n_positions = T + 2;
        config.n_kv_head = 4;
        config.type_vocab_size = 2;
    }
    snprintf(config.family, sizeof config.family, "%s", family);
    CHECK_INT(mics_model_new(&config, &model, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return model;
}

/* Document `document` from row `row` on; its last token has no target. */
static void put_document(struct model_run *run, uint32_t document, uint32_t row)
{
    for (uint32_t t = 0; t < lengths[document]; t++) {
        run_tokens(run)[row + t] = (int32_t)((document * 11 + t * 7) % 31);
        run_targets(run)[row + t] = (int32_t)((document * 11 + (t + 1) * 7) % 31);
    }
    run_targets(run)[row + lengths[document] - 1] = MICS_TARGET_LAST;
}

static void open_run(struct model_run *run, const char *family, uint32_t B,
                     enum mics_recompute recompute)
{
    run_open(run, make_model(family),
             (struct mics_batch){
                 .B = B, .T = T, .recompute = recompute, .train = true, .documents = true},
             5);
    run_shake(run);
    for (uint32_t i = 0; i < B * T; i++) {
        run_tokens(run)[i] = 0;
        run_targets(run)[i] = MICS_TARGET_NONE;
    }
}

static void check_family(const char *family, enum mics_recompute recompute)
{
    struct model_run together, apart;
    double loss;

    open_run(&together, family, 1, recompute);
    open_run(&apart, family, DOCUMENTS, recompute);
    for (uint32_t i = 0, row = 0; i < DOCUMENTS; row += lengths[i++]) {
        put_document(&together, i, row);
        put_document(&apart, i, i * T);
    }
    loss = run_step(&apart);
    CHECK(loss > 1);
    CHECK_NEAR(run_step(&together) / loss, 1, 1e-6);
    for (uint32_t u = 0; u < together.model->unit_count; u++) {
        double error = 0, norm = 0;

        for (uint64_t i = 0; i < together.model->units[u].count; i++) {
            const double want = run_grads(&apart, u)[i];

            error += (run_grads(&together, u)[i] - want) * (run_grads(&together, u)[i] - want);
            norm += want * want;
        }
        CHECK(norm > 0 && error < 1e-9 * norm);
    }
    together.batch.documents = false; /* the test would notice */
    CHECK(fabs(run_step(&together) / loss - 1) > 1e-4);
    run_close(&together);
    run_close(&apart);
}

/* The model sees another document between two: their loss does not change by a bit. */
static void another_document_changes_no_loss_but_its_own(void)
{
    static const char *const families[] = {"gpt2", "llama", "qwen3", "bert", "roberta"};

    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        const uint32_t middle = lengths[0], last = lengths[0] + lengths[1];
        struct model_run run;
        double loss;

        open_run(&run, families[f], 1, MICS_RECOMPUTE_NONE);
        for (uint32_t i = 0, row = 0; i < DOCUMENTS; row += lengths[i++])
            put_document(&run, i, row);
        loss = run_step(&run);
        CHECK(loss > 1);
        for (uint32_t t = middle; t < last; t++) /* of one token: it has no target */
            run_tokens(&run)[t] = (run_tokens(&run)[t] + 3) % 31;
        for (uint32_t t = last + lengths[2]; t < T; t++) /* padding */
            run_tokens(&run)[t] = 5;
        CHECK(run_step(&run) == loss);
        run_tokens(&run)[0] = (run_tokens(&run)[0] + 3) % 31; /* the test would notice */
        CHECK(run_step(&run) != loss);
        run_close(&run);
    }
}

static void documents_that_share_a_sequence_train_as_if_apart(void)
{
    check_family("llama", MICS_RECOMPUTE_NONE);
    check_family("llama", MICS_RECOMPUTE_FULL);
    check_family("qwen3", MICS_RECOMPUTE_SELECTIVE);
}

int main(void)
{
    TAP_RUN(another_document_changes_no_loss_but_its_own);
    TAP_RUN(documents_that_share_a_sequence_train_as_if_apart);
    return tap_done();
}
