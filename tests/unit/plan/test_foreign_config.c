/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of other trainers as jobs. */
#include "plan/foreign/foreign_config.h"

#include "tap.h"

#include <stdlib.h>

enum { NODES = 4, PER_NODE = 8 }; /* 32 ranks */

static struct mics_foreign_config config;
static struct mics_err err;

static enum mics_status parse(const char *text)
{
    err.text[0] = '\0';
    return mics_foreign_config_parse(text, strlen(text), NODES, PER_NODE, &config, &err);
}

/* Is the error as said? */
#define CHECK_FAILS(file, message)                                                                 \
    do {                                                                                           \
        CHECK_INT(parse(file), MICS_ERR_FORMAT);                                                   \
        CHECK_STR(err.text, message);                                                              \
    } while (0)

static const char *member(const char *key, const char *name)
{
    size_t i;
    json_t *row;

    json_array_foreach(config.keys, i,
                       row) if (strcmp(json_string_value(json_object_get(row, "key")), key) ==
                                0) return json_string_value(json_object_get(row, name));
    return "(no such key)";
}

static double setting(const char *name)
{
    return json_number_value(json_object_get(config.settings, name));
}

/* Each key has one row, with a reason. */
static void check_rows(size_t least)
{
    size_t i;
    json_t *row;

    CHECK(json_array_size(config.keys) >= least);
    json_array_foreach(config.keys, i, row)
    {
        const char *key = json_string_value(json_object_get(row, "key"));

        if (json_string_value(json_object_get(row, "why"))[0] == '\0')
            printf("# %s has no reason\n", key);
        CHECK(json_string_value(json_object_get(row, "why"))[0] != '\0');
    }
}

static const char deepspeed[] =
    "{ # hjson\n"
    "  \"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 2,\n"
    "  \"gradient_accumulation_steps\": 4, /* and a comment, */\n"
    "  \"gradient_clipping\": 0.5, \"steps_per_print\": 100,\n"
    "  \"bf16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\",\n"
    "  \"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 16,\n"
    "    \"mics_hierarchical_params_gather\": true, \"overlap_comm\": true,\n"
    "    \"stage3_prefetch_bucket_size\": 5e7, \"offload_param\": {\"device\": \"cpu\"}},\n"
    "  \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 2e-4, \"weight_decay\": 0.01}},\n"
    "  \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 900,\n"
    "    \"warmup_num_steps\": 90, \"warmup_type\": \"linear\"}},\n"
    "  \"wandb\": {\"enabled\": true, \"project\": \"x\"}, // the last,\n"
    "}\n";

static void deepspeed_becomes_a_job(void)
{
    CHECK_INT(parse(deepspeed), MICS_OK);
    CHECK_STR(config.trainer, "DeepSpeed");
    CHECK_INT(config.global_batch, 256);
    CHECK_INT(config.micro_batch, 2);
    CHECK_STR(config.strategy, "mics:16");
    CHECK(config.hierarchical);
    CHECK_INT(config.dtype, MICS_BF16);
    CHECK_INT(config.grad_dtype, MICS_F32);
    CHECK_INT(config.optimizer, MICS_OPT_ADAMW);
    CHECK_INT(config.clips, 1);
    CHECK_INT(config.refused, 0);
    CHECK_NEAR(setting("lr"), 2e-4, 0);
    CHECK_NEAR(setting("beta2"), 0.999, 0);
    CHECK_NEAR(setting("weight-decay"), 0.01, 0);
    CHECK_NEAR(setting("clip"), 0.5, 0);
    CHECK_INT(setting("steps"), 900);
    CHECK_INT(setting("warmup"), 90);
    CHECK_INT(setting("min-lr"), 0);
    CHECK_INT(setting("log-every"), 100);
    CHECK_STR(json_string_value(json_object_get(config.settings, "lr-schedule")), "linear");
    CHECK_STR(member("zero_optimization.offload_param.device", "verdict"), "taken differently");
    CHECK_STR(member("zero_optimization.overlap_comm", "verdict"), "ignored");
    CHECK_STR(member("wandb", "value"), "{\"enabled\":true,\"project\":\"x\"}");
    check_rows(20);
    mics_foreign_config_fini(&config);
}

static void stages_of_zero_are_strategies(void)
{
    static const struct {
        const char *zero, *strategy;
    } cases[] = {{"\"stage\": 0", "ddp"},
                 {"\"stage\": 1", "zero1"},
                 {"\"stage\": 2, \"mics_shard_size\": 4", "zero2"},
                 {"\"stage\": 3, \"mics_shard_size\": -1", "zero3"},
                 {"\"stage\": 3, \"mics_shard_size\": 4", "mics:4"},
                 {"\"stage\": 3, \"mics_shard_size\": 32", "zero3"},
                 {"\"stage\": 3, \"zero_hpz_partition_size\": 8", "8,32,32"},
                 {"\"overlap_comm\": null", "ddp"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];

        snprintf(text, sizeof text, "{\"train_batch_size\": 32, \"zero_optimization\": {%s}}",
                 cases[i].zero);
        CHECK_INT(parse(text), MICS_OK);
        CHECK_STR(config.strategy, cases[i].strategy);
        CHECK_INT(config.dtype, MICS_F32);
        CHECK_INT(config.micro_batch, 1);
        check_rows(2);
        mics_foreign_config_fini(&config);
    }
}

static void auto_leaves_everything_open(void)
{
    CHECK_INT(
        parse("{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
              "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\", "
              "\"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": \"auto\", "
              "\"reduce_bucket_size\": \"auto\"}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
              "{\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\", \"weight_decay\": "
              "\"auto\"}}, \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
              "{\"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": "
              "\"auto\", \"total_num_steps\": \"auto\"}}}"),
        MICS_OK);
    CHECK_INT(config.global_batch, 0);
    CHECK_INT(config.micro_batch, 0);
    CHECK_INT(config.dtype, MICS_AUTO);
    CHECK_INT(config.clips, MICS_AUTO);
    CHECK_STR(config.strategy, "");
    CHECK_INT(json_object_size(config.settings), 1);
    CHECK_STR(json_string_value(json_object_get(config.settings, "lr-schedule")), "linear");
    CHECK_STR(member("optimizer.params.lr", "why"), "the program sets it; here: mics-train --lr");
    check_rows(16);
    mics_foreign_config_fini(&config);
    /* one micro-step, unless the command line knows the batch */
    CHECK_INT(parse("{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 4}"),
              MICS_OK);
    CHECK_INT(config.micro_batch, 4);
    CHECK_INT(config.global_batch, 128);
    mics_foreign_config_fini(&config);
}

static void refused_keys_are_collected(void)
{
    CHECK_INT(parse("{\"train_batch_size\": 32, \"optimizer\": {\"type\": \"Lamb\"}, "
                    "\"zero_optimization\": {\"zenflow\": {\"topk_ratio\": 0.1}}, "
                    "\"tensor_parallel\": {\"autotp_size\": 4}, \"progressive_layer_drop\": "
                    "{\"enabled\": false}}"),
              MICS_OK);
    CHECK_INT(config.refused, 3);
    CHECK(strstr(config.refusals, "optimizer.type Lamb: optimizers are adamw|sgd|lion"));
    CHECK(strstr(config.refusals, "zero_optimization.zenflow "));
    CHECK(strstr(config.refusals, "tensor_parallel "));
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("{\"train_batch_size\": 32, \"optimizer\": {\"type\": \"Adam\", \"params\": "
                    "{\"adam_w_mode\": false, \"weight_decay\": 0.1}}}"),
              MICS_OK);
    CHECK_INT(config.refused, 1);
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("{\"train_batch_size\": 32, \"optimizer\": {\"type\": \"Adam\", \"params\": "
                    "{\"adam_w_mode\": false}}}"),
              MICS_OK);
    CHECK_INT(config.refused, 0);
    mics_foreign_config_fini(&config);
}

static void contradictions_have_their_numbers(void)
{
    CHECK_FAILS("{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4, "
                "\"gradient_accumulation_steps\": 8}",
                "train_batch_size 256 is not train_micro_batch_size_per_gpu 4 x "
                "gradient_accumulation_steps 8 x 32 ranks = 1024");
    CHECK_FAILS("{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": 4}",
                "train_batch_size 100 is no multiple of train_micro_batch_size_per_gpu 4 x 32 "
                "ranks");
    CHECK_FAILS("{\"train_batch_size\": 33}", "train_batch_size 33 is no multiple of the 32 ranks");
    CHECK_FAILS("{\"bf16\": {\"enabled\": true}}",
                "none of train_batch_size, train_micro_batch_size_per_gpu and "
                "gradient_accumulation_steps is there");
    CHECK_FAILS("{\"train_batch_size\": 32, \"bf16\": {\"enabled\": true}, \"fp16\": "
                "{\"enabled\": true}}",
                "bf16.enabled and fp16.enabled exclude each other");
    CHECK_FAILS("{\"train_batch_size\": 32, \"zero_optimization\": {\"stage\": 4}}",
                "zero_optimization.stage: expected 0, 1, 2 or 3, found 4");
    CHECK_FAILS("{\"train_batch_size\": 32, \"zero_optimization\": {\"stage\": 3, "
                "\"mics_shard_size\": 64}}",
                "zero_optimization.mics_shard_size: 64 is no group of 32 ranks");
    CHECK_FAILS("{\"train_micro_batch_size_per_gpu\": 2147483647, "
                "\"gradient_accumulation_steps\": 2147483647}",
                "train_batch_size: more than 1099511627776 sequences per step");
}

static void wrong_files_are_refused(void)
{
    char deep[4096] = "";

    CHECK_FAILS("{\"gradient_acumulation_steps\": 1}",
                "unknown key 'gradient_acumulation_steps'; did you mean "
                "gradient_accumulation_steps?");
    CHECK_FAILS("{\"stage\": 1}", "unknown key 'stage'; did you mean zero_optimization.stage?");
    CHECK_FAILS("{\"zero_optimization\": {\"mics_shards_size\": 1}}",
                "unknown key 'zero_optimization.mics_shards_size'; did you mean "
                "zero_optimization.mics_shard_size?");
    CHECK_FAILS("{\"zero_optimization\": true}", "zero_optimization: expected a map");
    CHECK_FAILS("{\"zero_optimization\": {\"stage\": \"three\"}}",
                "zero_optimization.stage: expected a whole number, 0 or more, found 'three'");
    CHECK_FAILS("{\"zero_optimization\": {\"stage\": 2.5}}",
                "zero_optimization.stage: expected a whole number, 0 or more, found '2.5'");
    CHECK_FAILS("{\"train_batch_size\": 32, \"optimizer\": {\"type\": \"Adam\", \"params\": "
                "{\"betas\": [0.9]}}}",
                "optimizer.params.betas: expected two numbers");
    CHECK_FAILS("{}", "no settings");
    CHECK_FAILS("{\"a\": 1, \"a\": 2}", "line 1, column 12, offset 12: a duplicate key");
    for (int i = 0; i < 40; i++)
        strcat(deep, "{\"wandb\":");
    CHECK_INT(parse(deep), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "nested deeper than 32"));
}

/* Cut anywhere, and with wrong bytes, a file is read or refused in words. */
static void check_damaged(const char *text)
{
    const size_t size = strlen(text);
    char *copy = malloc(size + 1);
    unsigned seed = 1;

    for (size_t length = 0; length < size; length++) {
        memcpy(copy, text, length);
        const enum mics_status status =
            mics_foreign_config_parse(copy, length, NODES, PER_NODE, &config, &err);

        CHECK(status == MICS_OK || (status == MICS_ERR_FORMAT && err.text[0]));
        if (status == MICS_OK)
            mics_foreign_config_fini(&config);
    }
    for (int i = 0; i < 2000; i++) {
        memcpy(copy, text, size);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = seed * 1103515245 + 12345;
            copy[(seed >> 8) % size] = "{}[],:\"-#0e.\n \\\t\xff"[(seed >> 4) % 17];
        }
        if (mics_foreign_config_parse(copy, size, NODES, PER_NODE, &config, &err) == MICS_OK)
            mics_foreign_config_fini(&config);
        else
            CHECK(err.text[0]);
    }
    free(copy);
}

static void damaged_files_are_no_danger(void)
{
    check_damaged(deepspeed);
}

int main(void)
{
    TAP_RUN(deepspeed_becomes_a_job);
    TAP_RUN(stages_of_zero_are_strategies);
    TAP_RUN(auto_leaves_everything_open);
    TAP_RUN(refused_keys_are_collected);
    TAP_RUN(contradictions_have_their_numbers);
    TAP_RUN(wrong_files_are_refused);
    TAP_RUN(damaged_files_are_no_danger);
    return tap_done();
}
