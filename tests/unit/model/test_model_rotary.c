/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, tensors and configurations of the families with rotary positions. */
#include "model/config.h"
#include "model/model.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static struct mics_err err;

static struct mics_model *open_model(const char *text)
{
    struct mics_model *model = NULL;

    if (mics_model_open(text, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

static void the_released_models_have_the_published_numbers_of_parameters_with_rotary_positions(void)
{
    static const struct {
        const char *name;
        uint64_t count;
    } published[] = {
        {"tinyllama-1.1b", 1100048384},    {"llama2-7b", 6738415616},
        {"llama3-8b", 8030261248},         {"llama3-70b", 70553706496},
        {"llama3.1-8b", 8030261248},       {"llama3.1-70b", 70553706496},
        {"llama3.2-1b", 1235814400},       {"llama3.2-3b", 3212749824},
        {"mistral-7b-v0.1", 7241732096},   {"mistral-7b", 7248023552},
        {"mistral-nemo-12b", 12247782400}, {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304},      {"qwen2.5-7b", 7615616512},
        {"qwen2.5-72b", 72706203648},      {"qwen3-0.6b", 596049920},
        {"qwen3-8b", 8190735360},          {"qwen3-32b", 32762123264},
    };

    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct mics_model *model = open_model(published[i].name);

        CHECK_INT(model->param_count, published[i].count);
        mics_model_free(model);
    }
}

static void embedding_and_head_of_an_untied_model_have_a_unit_each(void)
{
    struct mics_model *model = open_model("llama3-8b");
    const struct mics_unit *embed = &model->units[0], *head = &model->units[33];

    CHECK_INT(model->unit_count, 34);
    CHECK_INT(model->stage_count, 34);
    for (uint32_t i = 0; i < model->stage_count; i++)
        CHECK_INT(model->stages[i].unit, i);
    for (uint32_t i = 0; i < model->unit_count; i++)
        CHECK_INT(model->units[i].resident, false);
    CHECK_STR(embed->name, "embed");
    CHECK_INT(embed->tensor_count, 1);
    CHECK_STR(embed->tensors[0].name, "embed_tokens.weight");
    CHECK_STR(head->name, "head");
    CHECK_STR(head->tensors[0].name, "lm_head.weight");
    CHECK_INT(head->tensors[0].shape[0], 128256);
    CHECK_INT(head->tensors[0].shape[1], 4096);
    CHECK_STR(head->tensors[1].name, "norm.weight");
    mics_model_free(model);
}

static struct mics_model *make_tied(void)
{
    const struct mics_model_config config = {.family = "llama",
                                             .name = "tied",
                                             .n_layer = 2,
                                             .n_embd = 30,
                                             .n_head = 6,
                                             .n_positions = 8,
                                             .vocab_size = 11,
                                             .n_inner = 17,
                                             .layer_norm_epsilon = 1e-6,
                                             .n_kv_head = 3,
                                             .head_dim = 8,
                                             .rope_theta = 500};
    struct mics_model *model = NULL;

    CHECK_INT(mics_model_new(&config, &model, &err), MICS_OK);
    return model;
}

static void embedding_and_head_of_a_tied_model_share_a_resident_unit(void)
{
    struct mics_model *model = make_tied();

    CHECK_INT(model->unit_count, 3);
    CHECK_INT(model->stages[0].unit, 0);
    CHECK_INT(model->stages[3].unit, 0);
    CHECK(model->units[0].resident && !model->units[1].resident);
    CHECK_STR(model->units[0].tensors[0].name, "embed_tokens.weight");
    CHECK_STR(model->units[0].tensors[1].name, "norm.weight");
    mics_model_free(model);
}

/* Matrices that are multiplied together are contiguous, for any sizes. */
static void queries_keys_and_values_lie_end_to_end_and_so_do_gate_and_up(void)
{
    struct mics_model *model = make_tied();
    const struct mics_tensor *t = model->units[2].tensors;

    CHECK_STR(model->units[2].name, "layers.1");
    CHECK_STR(t[0].name, "layers.1.self_attn.q_proj.weight");
    CHECK_INT(t[0].shape[0], 48);
    CHECK_INT(t[1].shape[0], 24);
    CHECK_INT(t[1].shape[1], 30);
    CHECK_INT(t[1].offset, t[0].offset + 48 * 30);
    CHECK_INT(t[2].offset, t[1].offset + 24 * 30);
    CHECK_STR(t[3].name, "layers.1.self_attn.o_proj.weight");
    CHECK_INT(t[3].shape[1], 48);
    CHECK_INT(t[3].offset % MICS_TENSOR_ALIGN, 0);
    CHECK_STR(t[5].name, "layers.1.mlp.up_proj.weight");
    CHECK_INT(t[5].offset, t[4].offset + 17 * 30);
    CHECK_STR(t[8].name, "layers.1.post_attention_layernorm.weight");
    CHECK_INT(t[8].offset % MICS_TENSOR_ALIGN, 0);
    CHECK_INT(model->units[2].decay_count, t[6].offset + t[6].count);
    CHECK(t[6].decay && !t[7].decay);
    mics_model_free(model);
}

static void a_plan_gives_the_same_model_back_with_rotary_positions(void)
{
    struct mics_model *models[] = {open_model("llama3-8b"), make_tied(), open_model("qwen2.5-0.5b"),
                                   open_model("qwen3-8b"), open_model("mistral-nemo-12b")};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct mics_model *again = NULL;
        json_t *value = mics_model_to_json(models[i]);

        CHECK_INT(mics_model_from_json(value, &again, &err), MICS_OK);
        CHECK(again && memcmp(&models[i]->config, &again->config, sizeof again->config) == 0);
        mics_model_free(again);
        json_object_del(value, "n_kv_head");
        again = NULL;
        CHECK_INT(mics_model_from_json(value, &again, &err), MICS_ERR_FORMAT);
        CHECK_STR(err.text, "n_kv_head: missing");
        mics_model_free(models[i]);
        json_decref(value);
    }
}

/* The index of a tensor in a block of the model, by its name in Hugging Face's files; -1: none. */
static int place_of(const struct mics_model *model, const char *name)
{
    char whole[80];

    snprintf(whole, sizeof whole, "layers.0.%s", name);
    for (uint32_t i = 0; i < model->units[1].tensor_count; i++)
        if (strcmp(model->units[1].tensors[i].name, whole) == 0)
            return (int)i;
    return -1;
}

static void biases_lie_end_to_end_and_are_vectors_that_do_not_decay(void)
{
    struct mics_model *model = open_model("qwen2.5-0.5b");
    const struct mics_tensor *q =
        &model->units[1].tensors[place_of(model, "self_attn.q_proj.bias")];

    CHECK_INT(place_of(model, "self_attn.q_norm.weight"), -1);
    CHECK_STR(q[1].name, "layers.0.self_attn.k_proj.bias");
    CHECK_STR(q[2].name, "layers.0.self_attn.v_proj.bias");
    CHECK_INT(q[0].count, 896);
    CHECK_INT(q[1].offset, q[0].offset + q[0].count);
    CHECK_INT(q[2].offset, q[1].offset + 128);
    CHECK(!q[0].decay && !q[1].decay && q[0].init == MICS_INIT_ZERO);
    mics_model_free(model);
}

static void norms_of_heads_have_a_weight_for_each_channel_of_one(void)
{
    struct mics_model *model = open_model("qwen3-0.6b");
    const struct mics_tensor *q =
        &model->units[1].tensors[place_of(model, "self_attn.q_norm.weight")];

    CHECK_INT(place_of(model, "self_attn.q_proj.bias"), -1);
    CHECK_STR(q[1].name, "layers.0.self_attn.k_norm.weight");
    CHECK_INT(q[0].count, 128);
    CHECK_INT(q[1].count, 128);
    CHECK(!q[0].decay && q[0].init == MICS_INIT_ONE);
    CHECK_INT(model->units[1].tensors[0].shape[0], 2048); /* 16 heads of 128, of 1024 channels */
    mics_model_free(model);
}

static void flops_are_six_for_each_parameter_that_multiplies_and_attention(void)
{
    struct mics_model *model = open_model("tinyllama-1.1b"), *tied = make_tied();
    const double looked_up = 32000.0 * 2048;

    CHECK_NEAR(mics_model_flops_per_token(model, 2048),
               6 * (1100048384 - looked_up) + 6.0 * 22 * 2048 * 2048, 1);
    CHECK_NEAR(mics_model_flops_per_token(tied, 8),
               6.0 * (double)tied->param_count + 6.0 * 2 * 48 * 8, 1e-6);
    mics_model_free(model);
    mics_model_free(tied);
}

static void each_level_saves_less_and_bytes_are_multiples_of_256_with_rotary_positions(void)
{
    struct mics_model *model = open_model("llama3-8b");
    const uint64_t number = 4 * 3 * 100, C = 4096, F = 14336; /* fp32, rows; of a row */

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
    }
    mics_model_free(model);
}

/* Write `text` as DIR/config.json and open DIR. */
static enum mics_status open_text(const char *text, struct mics_model **out)
{
    char folder[] = "/tmp/mics-llama-XXXXXX", path[64];

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
    "\"num_hidden_layers\": 2, \"hidden_size\": 24, \"num_attention_heads\": 4, "                  \
    "\"intermediate_size\": 40, \"vocab_size\": 100"
#define LLAMA "{\"model_type\": \"llama\", " SIZES

static void both_generations_of_configurations_are_read(void)
{
    static const struct {
        const char *text;
        double theta, epsilon;
        uint32_t n_kv_head, head_dim, n_positions;
        bool untied;
    } cases[] = {
        {LLAMA "}", 1e4, 1e-6, 4, 6, 2048, true},
        {LLAMA ", \"rope_theta\": 5e5, \"rope_scaling\": null, \"torch_dtype\": \"bfloat16\", "
               "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", "
               "\"max_position_embeddings\": 77, \"attention_bias\": false, \"mlp_bias\": false, "
               "\"tie_word_embeddings\": false, \"pretraining_tp\": 1}",
         5e5, 1e-5, 2, 6, 77, true},
        {LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 300.0}, "
               "\"dtype\": \"float32\", \"num_key_value_heads\": 1, \"head_dim\": 10, "
               "\"tie_word_embeddings\": true}",
         300, 1e-6, 1, 10, 2048, false},
        {LLAMA ", \"rope_theta\": 300.0, \"rope_parameters\": {\"rope_theta\": 300.0, "
               "\"rope_type\": \"default\", \"partial_rotary_factor\": 1.0}, \"head_dim\": null}",
         300, 1e-6, 4, 6, 2048, true},
        {LLAMA ", \"rope_scaling\": {\"type\": \"default\"}, \"rope_theta\": 200}", 200, 1e-6, 4, 6,
         2048, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_model *model = NULL;

        CHECK_INT(open_text(cases[i].text, &model), MICS_OK);
        if (!model)
            continue;
        CHECK_NEAR(model->config.rope_theta, cases[i].theta, 0);
        CHECK_NEAR(model->config.layer_norm_epsilon, cases[i].epsilon, 0);
        CHECK_INT(model->config.n_kv_head, cases[i].n_kv_head);
        CHECK_INT(model->config.head_dim, cases[i].head_dim);
        CHECK_INT(model->config.n_positions, cases[i].n_positions);
        CHECK_INT(model->config.untied, cases[i].untied);
        CHECK_INT(model->config.n_inner, 40);
        mics_model_free(model);
    }
}

#define LLAMA3                                                                                     \
    "\"rope_type\": \"llama3\", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "             \
    "\"original_max_position_embeddings\": 8192, "

#define BARE_LLAMA3                                                                                \
    "\"rope_type\": \"llama3\", \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"factor\": 8"
#define LLAMA3_OF(positions)                                                                       \
    {                                                                                              \
        .kind = MICS_ROPE_LLAMA3, .original_positions = positions, .factor = 8,                    \
        .low_freq_factor = 1, .high_freq_factor = 4                                                \
    }
/* The attention factor is transformers' of a factor of 4. */
#define YARN_OF(positions, by)                                                                     \
    {                                                                                              \
        .kind = MICS_ROPE_YARN, .original_positions = positions, .factor = by, .beta_fast = 32,    \
        .beta_slow = 1, .attention_factor = 1.138629436111989, .truncate = true                    \
    }

static const struct {
    const char *text;
    struct mics_rope_scaling scaling;
    double theta;
} scalings[] = {
    {LLAMA ", \"rope_theta\": 5e5, \"rope_scaling\": {" LLAMA3 "\"factor\": 8}}",
     {.kind = MICS_ROPE_LLAMA3,
      .original_positions = 8192,
      .factor = 8,
      .low_freq_factor = 1,
      .high_freq_factor = 4},
     5e5},
    {LLAMA ", \"rope_parameters\": {" LLAMA3 "\"factor\": 32.0, \"rope_theta\": 5e5}}",
     {.kind = MICS_ROPE_LLAMA3,
      .original_positions = 8192,
      .factor = 32,
      .low_freq_factor = 1,
      .high_freq_factor = 4},
     5e5},
    {LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}",
     {.kind = MICS_ROPE_LINEAR, .factor = 2.5},
     1e4},
    {LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\"}}", {.kind = MICS_ROPE_PLAIN}, 1e4},
    /* Original positions beside the map come before those in it, and default to the model's. */
    {LLAMA ", \"rope_scaling\": {" BARE_LLAMA3 "}}", LLAMA3_OF(2048), 1e4},
    {LLAMA ", \"rope_scaling\": {" BARE_LLAMA3 "}, \"max_position_embeddings\": 77}", LLAMA3_OF(77),
     1e4},
    {LLAMA ", \"rope_parameters\": {" BARE_LLAMA3 ", \"rope_theta\": 5e5}, "
           "\"original_max_position_embeddings\": 256}",
     LLAMA3_OF(256), 5e5},
    {LLAMA ", \"rope_scaling\": {" BARE_LLAMA3 ", \"original_max_position_embeddings\": 99}, "
           "\"original_max_position_embeddings\": 256}",
     LLAMA3_OF(256), 1e4},
    {LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}, \"rope_theta\": 7}",
     {.kind = MICS_ROPE_DYNAMIC, .factor = 2},
     7},
    /* The old map replaces the new one; maps without members are none. */
    {LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}, "
           "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}}",
     {.kind = MICS_ROPE_LINEAR, .factor = 2},
     1e4},
    {LLAMA ", \"rope_scaling\": {}, \"rope_parameters\": {\"rope_type\": \"linear\", "
           "\"factor\": 3, \"rope_theta\": 9}}",
     {.kind = MICS_ROPE_LINEAR, .factor = 3},
     9},
    {LLAMA ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": "
           "3, \"rope_theta\": 9}, \"sliding_attention\": {\"rope_type\": \"linear\", "
           "\"factor\": 3, \"rope_theta\": 9}}}",
     {.kind = MICS_ROPE_LINEAR, .factor = 3},
     9},
    {LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}", YARN_OF(2048, 4), 1e4},
    {LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": null, "
           "\"original_max_position_embeddings\": 512, \"beta_fast\": null, \"beta_slow\": 0, "
           "\"mscale\": 0.7}}",
     YARN_OF(512, 4), 1e4},
    {LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 1.0, "
           "\"mscale_all_dim\": 0.5, \"beta_fast\": 16, \"beta_slow\": 2, \"truncate\": false, "
           "\"original_max_position_embeddings\": 250}}",
     {.kind = MICS_ROPE_YARN,
      .original_positions = 250,
      .factor = 4,
      .beta_fast = 16,
      .beta_slow = 2,
      .attention_factor = 1.0648216253695715},
     1e4},
    {LLAMA ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 0.7, "
           "\"mscale_all_dim\": 0.5, \"attention_factor\": 1.5, \"truncate\": null, "
           "\"original_max_position_embeddings\": 250}}",
     {.kind = MICS_ROPE_YARN,
      .original_positions = 250,
      .factor = 4,
      .beta_fast = 32,
      .beta_slow = 1,
      .attention_factor = 1.5},
     1e4},
};

static void scaled_positions_are_read_of_both_generations_and_stored(void)
{
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        struct mics_model *model = NULL, *again = NULL;

        CHECK_INT(open_text(scalings[i].text, &model), MICS_OK);
        if (!model)
            continue;
        CHECK(mics_rope_scaling_equal(&model->config.rope_scaling, &scalings[i].scaling));
        CHECK_NEAR(model->config.rope_theta, scalings[i].theta, 0);
        json_t *stored = mics_model_to_json(model);
        CHECK_INT(mics_model_from_json(stored, &again, &err), MICS_OK);
        CHECK(again && mics_rope_scaling_equal(&again->config.rope_scaling, &scalings[i].scaling));
        json_decref(stored);
        mics_model_free(again);
        mics_model_free(model);
    }
}

#define FOUR_LAYERS                                                                                \
    "\"num_hidden_layers\": 4, \"hidden_size\": 64, \"num_attention_heads\": 32, "                 \
    "\"intermediate_size\": 80, \"vocab_size\": 100"

static const struct {
    const char *text;
    uint32_t n_kv_head, head_dim, n_positions, sliding_window, layers; /* bits */
} defaults[] = {
    {"{\"model_type\": \"llama\", " FOUR_LAYERS "}", 32, 2, 2048, 0, 0},
    {"{\"model_type\": \"mistral\", " FOUR_LAYERS "}", 8, 2, 131072, 4096, 15},
    {"{\"model_type\": \"mistral\", " FOUR_LAYERS ", \"sliding_window\": null}", 8, 2, 131072, 0,
     0},
    {"{\"model_type\": \"mistral\", " FOUR_LAYERS ", \"sliding_window\": 77, \"head_dim\": 8}", 8,
     8, 131072, 77, 15},
    {"{\"model_type\": \"mistral\", " FOUR_LAYERS ", \"num_key_value_heads\": null}", 32, 2, 131072,
     4096, 15},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS "}", 32, 2, 32768, 0, 0},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS ", \"sliding_window\": 16}", 32, 2, 32768, 0, 0},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS
     ", \"use_sliding_window\": true, \"sliding_window\": 16}",
     32, 2, 32768, 0, 0}, /* from layer 28 on, and there are 4 */
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS
     ", \"use_sliding_window\": true, \"sliding_window\": 16, \"max_window_layers\": 3}",
     32, 2, 32768, 16, 8},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS
     ", \"use_sliding_window\": true, \"max_window_layers\": 0}",
     32, 2, 32768, 4096, 15},
    {"{\"model_type\": \"qwen3\", " FOUR_LAYERS "}", 32, 128, 32768, 0, 0},
    {"{\"model_type\": \"qwen3\", " FOUR_LAYERS
     ", \"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 0, "
     "\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
     "\"full_attention\"]}",
     32, 128, 32768, 0, 0},
    {"{\"model_type\": \"qwen3\", " FOUR_LAYERS
     ", \"use_sliding_window\": true, \"sliding_window\": 9, "
     "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", "
     "\"sliding_attention\"]}",
     32, 128, 32768, 9, 10},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS
     ", \"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0}",
     32, 2, 32768, 0, 0},
    {"{\"model_type\": \"qwen2_moe\", " FOUR_LAYERS ", \"sliding_window\": 0}", 16, 2, 32768, 0, 0},
    {"{\"model_type\": \"qwen2_moe\", " FOUR_LAYERS ", \"use_sliding_window\": true, "
     "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
     "\"full_attention\"]}",
     16, 2, 32768, 4096, 5},
};

/* Absent keys have the defaults of each family's own class, null ones those that follow from other
 * sizes. */
static void absent_keys_have_the_defaults_of_the_family(void)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        struct mics_model *model = NULL, *again = NULL;

        CHECK_INT(open_text(defaults[i].text, &model), MICS_OK);
        if (!model)
            continue;
        CHECK_INT(model->config.n_kv_head, defaults[i].n_kv_head);
        CHECK_INT(model->config.head_dim, defaults[i].head_dim);
        CHECK_INT(model->config.n_positions, defaults[i].n_positions);
        CHECK_INT(model->config.sliding_window, defaults[i].sliding_window);
        for (uint32_t layer = 0; layer < 4; layer++)
            CHECK_INT(mics_model_window(model, layer),
                      defaults[i].layers >> layer & 1 ? defaults[i].sliding_window : 0);
        CHECK(model->config.untied);
        CHECK_NEAR(model->config.layer_norm_epsilon, 1e-6, 0);
        CHECK_NEAR(model->config.rope_theta, 1e4, 0);
        json_t *stored = mics_model_to_json(model);
        CHECK_INT(mics_model_from_json(stored, &again, &err), MICS_OK);
        CHECK(again && memcmp(&again->config, &model->config, sizeof model->config) == 0);
        json_decref(stored);
        mics_model_free(again);
        mics_model_free(model);
    }
}

static void a_sequence_may_be_longer_than_the_window(void)
{
    struct mics_model *model = NULL;

    CHECK_INT(open_text("{\"model_type\": \"mistral\", " FOUR_LAYERS
                        ", \"sliding_window\": 16, \"max_position_embeddings\": 64}",
                        &model),
              MICS_OK);
    CHECK_INT(mics_model_check_seq(model, 64, &err), MICS_OK);
    CHECK_INT(mics_model_check_seq(model, 65, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "sequence of 65: the model has 64 positions");
    mics_model_free(model);
}

/* The config.json that is written for a model by name is read as the same model. */
static void configurations_of_our_own_are_read_as_the_same_model(void)
{
    static const char *const names[] = {
        "gpt2",       "llama-nano",    "llama3.1-8b",       "mistral-nemo-12b",
        "qwen2-nano", "qwen2.5-0.5b",  "qwen3-8b",          "qwen3-nano",
        "moe-nano",   "qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "qwen2-57b-a14b"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mics_model *model = open_model(names[i]);
        struct mics_model_config again;
        json_t *config = mics_model_to_hf_config(model);

        memset(&again, 0, sizeof again);
        CHECK_INT(mics_config_from_hf(config, names[i], &again, &err), MICS_OK);
        CHECK(memcmp(&again, &model->config, sizeof again) == 0);
        CHECK_STR(json_string_value(json_object_get(config, "model_type")), model->family->name);
        json_decref(config);
        mics_model_free(model);
    }
}

static const struct {
    const char *text, *message;
} refusals[] = {
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2}", "hidden_size: missing"},
    {LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}}",
     "rope_scaling.low_freq_factor: missing"},
    {LLAMA ", \"rope_scaling\": {" LLAMA3 "\"factor\": 0.5}}", "rope_scaling.factor: "},
    {LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
           "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}",
     "rope_scaling.high_freq_factor: 4 is not above low_freq_factor, 4"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2.0}}",
     "rope_scaling.type: 'longrope' is not supported, only 'default', 'linear', 'llama3', "
     "'dynamic' and 'yarn'"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\"}}", "rope_scaling.factor: missing"},
    {LLAMA ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 2}, "
           "\"sliding_attention\": {\"rope_theta\": 3}}}",
     "rope_parameters.sliding_attention: other rotary positions than those of full_attention "
     "are not supported"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}, \"rope_parameters\": "
           "{\"rope_theta\": 5e5}}",
     "rope_parameters: has rope_theta 500000, but with rope_scaling it is 10000"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "rope_scaling.factor: missing"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}, \"rope_parameters\": "
           "{\"rope_type\": \"linear\", \"factor\": 3.0}}",
     "rope_parameters: has another scaling than rope_scaling"},
    {LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1e4}}",
     "rope_parameters.factor: missing"},
    {LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": null, "
           "\"original_max_position_embeddings\": 4096}}",
     "rope_parameters.original_max_position_embeddings: 4096 is more than the model's 2048"},
    {LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, "
           "\"attention_factor\": 0}}",
     "rope_parameters.attention_factor: "},
    {LLAMA ", \"rope_theta\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}",
     "rope_theta: yarn needs more than 1"},
    {LLAMA ", \"rope_parameters\": {\"partial_rotary_factor\": 0.5}}",
     "rope_parameters.partial_rotary_factor: "},
    {LLAMA ", \"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 5e5}}",
     "rope_theta: 10000, but rope_parameters has 500000"},
    {LLAMA ", \"rope_theta\": 0}", "rope_theta: "},
    {LLAMA ", \"attention_bias\": 1}", "attention_bias: expected"},
    {LLAMA ", \"hidden_act\": \"gelu\"}", "hidden_act: 'gelu' is not supported, only 'silu'"},
    {LLAMA ", \"num_key_value_heads\": 3}",
     "n_kv_head: 3 heads of keys do not divide 4 heads of queries"},
    {LLAMA ", \"head_dim\": 7}", "head_dim: 7 is odd"},
    {LLAMA ", \"head_dim\": 512}", "heads of 512 channels are wider than 256"},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS ", \"use_sliding_window\": true, "
     "\"layer_types\": [\"sliding_attention\", \"full_attention\"]}",
     "layer_types: 2 names, but the model has 4 layers"},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS ", \"use_sliding_window\": true, "
     "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"chunked_attention\", 4]}",
     "layer_types[2]: 'chunked_attention' is not supported, only 'full_attention' and "
     "'sliding_attention'"},
    {"{\"model_type\": \"qwen3\", " FOUR_LAYERS ", \"layer_types\": [\"full_attention\", "
     "\"full_attention\", \"full_attention\", \"sliding_attention\"]}",
     "layer_types: has 'sliding_attention', but the model has no sliding_window: "
     "use_sliding_window is not true"},
    {"{\"model_type\": \"qwen2_moe\", " FOUR_LAYERS ", \"use_sliding_window\": true}",
     "layer_types: must list the layers of the window: without it versions 4 and 5 of transformers "
     "take different ones"},
    {"{\"model_type\": \"qwen2_moe\", " FOUR_LAYERS ", \"qkv_bias\": 1}", "qkv_bias: expected"},
    {"{\"model_type\": \"qwen2_moe\", " FOUR_LAYERS ", \"shared_expert_intermediate_size\": 0}",
     "shared_expert_intermediate_size: expected 1 to"},
    {"{\"model_type\": \"mistral\", " FOUR_LAYERS ", \"sliding_window\": 0}", "sliding_window: "},
    {"{\"model_type\": \"qwen2\", " FOUR_LAYERS ", \"use_sliding_window\": 1}",
     "use_sliding_window: expected"},
    {LLAMA ", \"hidden_size\": 25}", "n_head: 4 does not divide n_embd, 25"}, /* the last counts */
    {LLAMA ", \"rms_norm_eps\": 0}", "layer_norm_epsilon: 0 is not between 0 and 1"},
};

static void a_setting_that_would_change_the_arithmetic_is_refused_by_its_key(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct mics_model *model = NULL;

        CHECK(open_text(refusals[i].text, &model) != MICS_OK);
        CHECK(model == NULL);
        if (!strstr(err.text, refusals[i].message))
            CHECK_STR(err.text, refusals[i].message);
        mics_model_free(model);
    }
}

int main(void)
{
    TAP_RUN(the_released_models_have_the_published_numbers_of_parameters_with_rotary_positions);
    TAP_RUN(embedding_and_head_of_an_untied_model_have_a_unit_each);
    TAP_RUN(embedding_and_head_of_a_tied_model_share_a_resident_unit);
    TAP_RUN(queries_keys_and_values_lie_end_to_end_and_so_do_gate_and_up);
    TAP_RUN(a_plan_gives_the_same_model_back_with_rotary_positions);
    TAP_RUN(flops_are_six_for_each_parameter_that_multiplies_and_attention);
    TAP_RUN(each_level_saves_less_and_bytes_are_multiples_of_256_with_rotary_positions);
    TAP_RUN(both_generations_of_configurations_are_read);
    TAP_RUN(scaled_positions_are_read_of_both_generations_and_stored);
    TAP_RUN(biases_lie_end_to_end_and_are_vectors_that_do_not_decay);
    TAP_RUN(norms_of_heads_have_a_weight_for_each_channel_of_one);
    TAP_RUN(absent_keys_have_the_defaults_of_the_family);
    TAP_RUN(a_sequence_may_be_longer_than_the_window);
    TAP_RUN(configurations_of_our_own_are_read_as_the_same_model);
    TAP_RUN(a_setting_that_would_change_the_arithmetic_is_refused_by_its_key);
    return tap_done();
}
