/* SPDX-License-Identifier: Apache-2.0 */
#include "host/pool.h"
#include "missing.h"
#include "model/model.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct mics_err err;

static struct mics_model *open_model(const char *text)
{
    struct mics_model *model = NULL;

    if (mics_model_open(text, &model, &err) != MICS_OK)
        printf("# %s\n", err.text);
    CHECK(model != NULL);
    return model;
}

static void the_released_models_have_the_published_numbers_of_parameters(void)
{
    static const struct {
        const char *name;
        uint64_t count;
    } published[] = {
        {"gpt2", 124439808},
        {"gpt2-medium", 354823168},
        {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},
    };

    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct mics_model *model = open_model(published[i].name);

        CHECK_INT(model->param_count, published[i].count);
        mics_model_free(model);
    }
}

static void nano_has_about_a_million_parameters(void)
{
    struct mics_model *model = open_model("gpt2-nano");

    CHECK(model->param_count > 700000 && model->param_count < 1300000);
    CHECK_INT(model->config.vocab_size, 257);
    CHECK(model->config.n_positions >= 256);
    mics_model_free(model);
}

/* `spare` rows follow the first tensor. */
static void check_unit(const struct mics_unit *unit, uint64_t spare)
{
    uint64_t end = 0, params = 0, decays = 0;
    bool decaying = true;

    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *tensor = &unit->tensors[i];

        CHECK_INT(tensor->offset % MICS_TENSOR_ALIGN, 0);
        CHECK(tensor->offset >= end && tensor->offset < end + MICS_TENSOR_ALIGN);
        CHECK(decaying || !tensor->decay);
        CHECK_INT(tensor->decay, tensor->rank == 2);
        decaying = tensor->decay;
        end = tensor->offset + tensor->count + (i == 0 ? spare * tensor->shape[1] : 0);
        params += tensor->count;
        if (tensor->decay)
            decays = end;
    }
    CHECK_INT(unit->count, end);
    CHECK_INT(unit->param_count, params);
    CHECK_INT(unit->decay_count, decays);
}

static void tensors_are_aligned_in_order_and_those_that_decay_come_first(void)
{
    struct mics_model_config config = {
        "gpt2", "odd", 3, 30, 3, 11, 17, 77, .layer_norm_epsilon = 1e-5};
    struct mics_model *model = NULL;
    uint32_t id = 0;

    CHECK_INT(mics_model_new(&config, &model, &err), MICS_OK);
    CHECK_INT(model->unit_count, 4);
    CHECK_INT(model->stage_count, 5);
    for (uint32_t i = 0; i < model->unit_count; i++) {
        check_unit(&model->units[i], i == 0 ? 7 : 0); /* 17 tokens, 24 logits */
        CHECK_INT(model->units[i].resident, i == 0);
        for (uint32_t j = 0; j < model->units[i].tensor_count; j++)
            CHECK_INT(model->units[i].tensors[j].id, id++);
    }
    mics_model_free(model);
}

static void stages_run_from_the_embedding_through_the_blocks_to_the_head(void)
{
    struct mics_model *model = open_model("gpt2-nano");
    const uint32_t last = model->stage_count - 1;

    CHECK_INT(model->stages[0].kind, MICS_STAGE_EMBED);
    CHECK_INT(model->stages[0].unit, 0);
    for (uint32_t i = 1; i < last; i++) {
        CHECK_INT(model->stages[i].kind, MICS_STAGE_BLOCK);
        CHECK_INT(model->stages[i].unit, i);
        CHECK_INT(model->stages[i].layer, i - 1);
    }
    CHECK_INT(model->stages[last].kind, MICS_STAGE_HEAD);
    CHECK_INT(model->stages[last].unit, 0);
    mics_model_free(model);
}

static void tensors_carry_the_names_of_the_checkpoints(void)
{
    struct mics_model *model = open_model("gpt2");

    CHECK_STR(model->units[0].tensors[0].name, "wte.weight");
    CHECK_STR(model->units[12].name, "h.11");
    CHECK_STR(model->units[12].tensors[0].name, "h.11.attn.c_attn.weight");
    CHECK_INT(model->units[12].tensors[0].shape[0], 768);
    CHECK_INT(model->units[12].tensors[0].shape[1], 2304);
    mics_model_free(model);
}

static void any_cut_of_a_unit_is_initialised_alike(void)
{
    struct mics_model *model = open_model("gpt2-nano");
    const struct mics_unit *unit = &model->units[1];
    const uint64_t padded = unit->count + 100;
    float *whole = malloc(padded * sizeof *whole), *cut = malloc(padded * sizeof *cut);
    struct mics_pool *pool = mics_pool_new(3);

    for (uint32_t u = 0; u < 2; u++) {
        const uint64_t count = model->units[u].count + 100;

        mics_model_init_range(model, u, 0, count, 7, whole);
        for (uint64_t at = 0, step = 1; at < count; at += step, step = step * 3 % 10007 + 1) {
            step = step < count - at ? step : count - at;
            mics_model_init_range(model, u, at, step, 7, cut + at);
        }
        CHECK(memcmp(whole, cut, count * sizeof *whole) == 0);
        memset(cut, 0xff, count * sizeof *cut);
        mics_model_init_range_parallel(pool, model, u, 0, count, 7, cut);
        CHECK(memcmp(whole, cut, count * sizeof *whole) == 0);
        for (uint64_t i = model->units[u].count; i < count; i++)
            CHECK(whole[i] == 0);
    }
    mics_pool_free(pool);
    free(whole);
    free(cut);
    mics_model_free(model);
}

static double spread(const float *values, uint64_t count)
{
    double sum = 0;

    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i] * values[i];
    return sqrt(sum / (double)count);
}

static void weights_start_normal_and_residual_projections_narrower(void)
{
    struct mics_model *model = open_model("gpt2-nano");
    const struct mics_unit *unit = &model->units[2];
    const double branch = 0.02 / sqrt(2.0 * model->config.n_layer);
    float *values = malloc(unit->count * sizeof *values);

    mics_model_init_range(model, 2, 0, unit->count, 1, values);
    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *tensor = &unit->tensors[i];
        const double got = spread(values + tensor->offset, tensor->count);

        if (tensor->rank == 2)
            CHECK_NEAR(got, strstr(tensor->name, "c_proj") ? branch : 0.02, 0.02 * 0.02);
        else
            CHECK_NEAR(got, strstr(tensor->name, "ln_") && strstr(tensor->name, "weight") ? 1 : 0,
                       0);
    }
    free(values);
    mics_model_free(model);
}

static void seeds_and_tensors_draw_different_numbers(void)
{
    struct mics_model *model = open_model("gpt2-nano");
    float a[64], b[64], c[64];

    mics_model_init_range(model, 1, 0, 64, 1, a);
    mics_model_init_range(model, 1, 0, 64, 2, b);
    mics_model_init_range(model, 2, 0, 64, 1, c);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK(memcmp(a, c, sizeof a) != 0);
    mics_model_free(model);
}

static void a_plan_gives_the_same_model_back(void)
{
    struct mics_model *model = open_model("gpt2-medium"), *again = NULL;
    json_t *value = mics_model_to_json(model);

    CHECK_INT(mics_model_from_json(value, &again, &err), MICS_OK);
    CHECK(memcmp(&model->config, &again->config, sizeof model->config) == 0);
    CHECK_INT(again->param_count, model->param_count);
    mics_model_free(again);
    mics_model_free(model);
    json_decref(value);
}

static void a_plan_with_another_number_of_parameters_is_refused(void)
{
    struct mics_model *model = open_model("gpt2-nano"), *again = NULL;
    json_t *value = mics_model_to_json(model);

    json_object_set_new(value, "parameters", json_integer(5));
    CHECK_INT(mics_model_from_json(value, &again, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "parameters: 5, but the sizes make"));
    json_object_set_new(value, "family", json_string("t5"));
    CHECK_INT(mics_model_from_json(value, &again, &err), MICS_ERR_UNSUPPORTED);
    CHECK(again == NULL);
    mics_model_free(model);
    json_decref(value);
}

/* Write `text` as DIR/config.json and open DIR. */
static enum mics_status open_text(const char *text, struct mics_model **out)
{
    char folder[] = "/tmp/mics-model-XXXXXX", path[64];

    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    enum mics_status status = mics_model_open(folder, out, &err);
    unlink(path);
    rmdir(folder);
    return status;
}

#define SIZES                                                                                      \
    "\"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"n_positions\": 32, \"vocab_size\": 100"

static void a_hugging_face_configuration_is_read(void)
{
    struct mics_model *model = NULL, *again = NULL;
    json_t *value;

    CHECK_INT(open_text("{\"model_type\": \"gpt2\", " SIZES ", \"n_inner\": null, "
                        "\"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-6, "
                        "\"resid_pdrop\": 0.1, \"tie_word_embeddings\": true, \"mine\": [1]}",
                        &model),
              MICS_OK);
    CHECK_INT(model->config.n_inner, 96);
    CHECK_NEAR(model->config.layer_norm_epsilon, 1e-6, 0);
    CHECK(strncmp(model->config.name, "mics-model-", 11) == 0);

    value = mics_model_to_json(model);
    CHECK_INT(mics_model_from_json(value, &again, &err), MICS_OK);
    CHECK(json_array_size(json_object_get(again->source, "mine")) == 1);
    json_decref(value);
    mics_model_free(model);
    mics_model_free(again);
}

static void a_bad_configuration_names_the_key_and_the_reason(void)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{", "config.json: line 1"},
        {"[1]", "config.json: line 1, column 1, offset 0: expected an object"},
        {"{" SIZES "}", "model_type"},
        {"{\"model_type\": \"t5\", " SIZES "}",
         "model_type: 't5' is not supported, only 'gpt2', 'llama', 'mistral', 'qwen2', 'qwen3'"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2}", "n_embd"},
        {"{\"model_type\": \"gpt2\", " SIZES ", \"n_inner\": \"x\"}", "n_inner"},
        {"{\"model_type\": \"gpt2\", " SIZES ", \"activation_function\": \"relu\"}",
         "activation_function: 'relu' is not supported, only 'gelu_new'"},
        {"{\"model_type\": \"gpt2\", " SIZES ", \"tie_word_embeddings\": false}",
         "tie_word_embeddings: false is not supported"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 25, \"n_head\": 3, "
         "\"n_positions\": 32, \"vocab_size\": 100}",
         "n_head: 3 does not divide n_embd, 25"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 25, \"n_head\": 5, "
         "\"n_positions\": 0, \"vocab_size\": 100}",
         "n_positions"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 1024, \"n_head\": 2, "
         "\"n_positions\": 32, \"vocab_size\": 100}",
         "n_head: 2 heads of 512 channels are wider than 256"},
        {"{\"model_type\": \"gpt2\", " SIZES ", \"layer_norm_epsilon\": 0}",
         "layer_norm_epsilon: 0 is not between 0 and 1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mics_model *model = NULL;

        CHECK(open_text(cases[i].text, &model) != MICS_OK);
        CHECK(model == NULL);
        CHECK(strncmp(err.text, "/tmp/mics-model-", 16) == 0);
        if (!strstr(err.text, cases[i].message))
            CHECK_STR(err.text, cases[i].message);
    }
}

static void an_unknown_name_lists_similar_ones_or_all(void)
{
    struct mics_model *model = NULL;

    CHECK_INT(mics_model_open("gpt3", &model, &err), MICS_ERR_ARG);
    CHECK(strstr(err.text, "'gpt3'") && strstr(err.text, "did you mean gpt2"));
    CHECK_INT(mics_model_open("something", &model, &err), MICS_ERR_ARG);
    CHECK(strstr(err.text, "all: mics-plan --list-models"));
    CHECK_INT(mics_model_open(missing_path("config.json"), &model, &err), MICS_ERR_IO);
    CHECK(model == NULL);
}

static void a_vocabulary_has_room_for_whole_pieces_of_16_or_of_128_bytes(void)
{
    static const uint64_t rows[][2] = {{1, 8},       {257, 264},     {512, 512},
                                       {4095, 4096}, {32000, 32000}, {50257, 50304}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mics_model_config config = {
            "gpt2", "", 1, 64, 1, 8, (uint32_t)rows[i][0], 64, .layer_norm_epsilon = 1e-5};
        struct mics_model *model = NULL;

        CHECK_INT(mics_model_new(&config, &model, &err), MICS_OK);
        CHECK_INT(model->units[0].tensors[0].count, 64 * rows[i][0]);
        CHECK_INT(model->units[0].tensors[1].offset, 64 * rows[i][1]);
        mics_model_free(model);
    }
}

static void flops_are_six_for_each_parameter_and_attention(void)
{
    struct mics_model *model = open_model("gpt2");

    CHECK_NEAR(mics_model_flops_per_token(model, 1024), 6.0 * 124439808 + 6.0 * 12 * 768 * 1024, 1);
    mics_model_free(model);
}

static void each_level_saves_less_and_bytes_are_multiples_of_256(void)
{
    struct mics_model *model = open_model("gpt2");
    const uint64_t number = 4 * 3 * 100, C = 768, F = 3072; /* fp32, rows; of a row */
    struct mics_boundary_bytes residual;

    model->ops->boundary_bytes(model, &(struct mics_batch){.B = 3, .T = 100}, 0, &residual);
    CHECK_INT(model->boundary_count, 1);
    CHECK_INT(residual.value, number * C);
    CHECK_INT(residual.grad, number * C);

    for (uint32_t i = 0; i < model->stage_count; i++) {
        struct mics_stage_bytes bytes[MICS_RECOMPUTE_LEVELS],
            *none = &bytes[MICS_RECOMPUTE_NONE], *selective = &bytes[MICS_RECOMPUTE_SELECTIVE],
            *full = &bytes[MICS_RECOMPUTE_FULL];

        for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
            const struct mics_batch batch = {
                .B = 3, .T = 100, .train = true, .recompute = (enum mics_recompute)level};

            model->ops->stage_bytes(model, &batch, i, &bytes[level]);
            CHECK_INT((bytes[level].saved | bytes[level].scratch) % 256, 0);
        }
        CHECK_INT(full->saved, 0);
        CHECK_INT(selective->saved + selective->scratch, full->saved + full->scratch);
        if (model->stages[i].kind != MICS_STAGE_BLOCK)
            continue;
        /* Both norms and the activation function, which needs no scratch then. */
        CHECK_INT(none->saved - selective->saved, number * (2 * C + F));
        CHECK_INT(selective->scratch - none->scratch, number * (F - C));
        CHECK_NEAR((double)selective->saved / (double)(number * C), 9, 0.05);
    }
    mics_model_free(model);
}

int main(void)
{
    TAP_RUN(the_released_models_have_the_published_numbers_of_parameters);
    TAP_RUN(nano_has_about_a_million_parameters);
    TAP_RUN(tensors_are_aligned_in_order_and_those_that_decay_come_first);
    TAP_RUN(stages_run_from_the_embedding_through_the_blocks_to_the_head);
    TAP_RUN(tensors_carry_the_names_of_the_checkpoints);
    TAP_RUN(any_cut_of_a_unit_is_initialised_alike);
    TAP_RUN(weights_start_normal_and_residual_projections_narrower);
    TAP_RUN(seeds_and_tensors_draw_different_numbers);
    TAP_RUN(a_plan_gives_the_same_model_back);
    TAP_RUN(a_plan_with_another_number_of_parameters_is_refused);
    TAP_RUN(a_hugging_face_configuration_is_read);
    TAP_RUN(a_bad_configuration_names_the_key_and_the_reason);
    TAP_RUN(an_unknown_name_lists_similar_ones_or_all);
    TAP_RUN(a_vocabulary_has_room_for_whole_pieces_of_16_or_of_128_bytes);
    TAP_RUN(flops_are_six_for_each_parameter_and_attention);
    TAP_RUN(each_level_saves_less_and_bytes_are_multiples_of_256);
    return tap_done();
}
