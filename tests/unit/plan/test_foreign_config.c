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
    "    \"stage3_prefetch_bucket_size\": 5e7, \"offload_param\": {\"device\": \"cpu\"},\n"
    "    \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}},\n"
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
    CHECK_NEAR(setting("lr"), 1e-3, 0); /* that of the schedule */
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
    CHECK_STR(member("zero_optimization.offload_optimizer.device", "verdict"), "taken");
    CHECK(config.offloads);
    check_rows(22);
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
                 {"\"stage\": 3, \"zero_hpz_partition_size\": 8", "hpz:8"},
                 {"\"stage\": 3, \"zero_hpz_partition_size\": 32", "zero3"},
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

/* "amp" says nothing unless it is on. */
static void types_without_a_section_are_f32(void)
{
    static const struct {
        const char *keys;
        uint32_t dtype;
    } cases[] = {{"", MICS_F32},
                 {", \"amp\": null", MICS_F32},
                 {", \"amp\": {\"enabled\": false}", MICS_F32},
                 {", \"amp\": {\"enabled\": true}", MICS_AUTO},
                 {", \"fp16\": {\"enabled\": true}", MICS_F16},
                 {", \"bf16\": {\"enabled\": true}", MICS_BF16}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];

        snprintf(text, sizeof text, "{\"train_batch_size\": 32%s}", cases[i].keys);
        CHECK_INT(parse(text), MICS_OK);
        CHECK_INT(config.dtype, cases[i].dtype);
        mics_foreign_config_fini(&config);
    }
    CHECK_INT(parse("{\"train_batch_size\": 32, \"fp16\": {\"enabled\": true, "
                    "\"loss_scale\": 0}}"),
              MICS_OK);
    CHECK(strstr(member("fp16.enabled", "why"), "mics-plan --dtype=fp16"));
    CHECK(strstr(member("fp16.loss_scale", "why"), "mics-train --loss-scale=0"));
    mics_foreign_config_fini(&config);
}

/* As deepspeed/runtime/lr_schedules.py does: the default of WarmupDecayLR is a rate. */
static void rates_of_schedules_replace_those_of_optimizers(void)
{
    static const struct {
        const char *type, *keys;
        double lr;
        const char *verdict;
    } cases[] = {{"WarmupLR", "", 2e-4, "taken"},
                 {"WarmupLR", ", \"warmup_max_lr\": 3e-4", 3e-4, "ignored"},
                 {"WarmupLR", ", \"warmup_max_lr\": null", 2e-4, "taken"},
                 {"WarmupDecayLR", "", 1e-3, "ignored"},
                 {"WarmupDecayLR", ", \"warmup_max_lr\": 3e-4", 3e-4, "ignored"},
                 {"WarmupDecayLR", ", \"warmup_max_lr\": null", 2e-4, "taken"},
                 {"WarmupDecayLR", ", \"warmup_max_lr\": \"auto\"", 2e-4, "taken"},
                 {"WarmupCosineLR", "", 2e-4, "taken"}};
    char text[400];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text,
                 "{\"train_batch_size\": 32, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
                 "{\"lr\": 2e-4}}, \"scheduler\": {\"type\": \"%s\", \"params\": "
                 "{\"warmup_num_steps\": 9%s}}}",
                 cases[i].type, cases[i].keys);
        CHECK_INT(parse(text), MICS_OK);
        CHECK_NEAR(setting("lr"), cases[i].lr, 0);
        CHECK_STR(member("optimizer.params.lr", "verdict"), cases[i].verdict);
        mics_foreign_config_fini(&config);
    }
    CHECK_INT(parse("{\"train_batch_size\": 32, \"scheduler\": {\"type\": \"WarmupDecayLR\", "
                    "\"params\": {\"warmup_min_lr\": 1e-5}}}"),
              MICS_OK);
    CHECK_NEAR(setting("lr"), 1e-3, 0);
    CHECK_NEAR(setting("min-lr"), 1e-5, 0);
    CHECK_STR(member("scheduler.params.warmup_max_lr", "why"),
              "mics-train --lr=0.001, the default of DeepSpeed");
    CHECK_STR(member("scheduler.params.warmup_min_lr", "verdict"), "taken differently");
    mics_foreign_config_fini(&config);
}

/* Their batches are those of fewer ranks, which is no contradiction. */
static void model_parallel_jobs_are_refused(void)
{
    static const char *const files[] = {
        "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, "
        "\"tensor_parallel\": {\"autotp_size\": 4}}",
        "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, "
        "\"sequence_parallel_size\": 4}",
        "--parallelism.tensor_parallel_degree 8 --parallelism.data_parallel_shard_degree 4",
        "--parallelism.pipeline_parallel_degree 8 --parallelism.data_parallel_shard_degree 4",
        "--parallelism.context_parallel_degree 8 --parallelism.data_parallel_shard_degree 4 "
        "--training.local_batch_size 1 --training.global_batch_size 4",
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_INT(parse(files[i]), MICS_OK);
        CHECK_INT(config.refused, 1);
        mics_foreign_config_fini(&config);
    }
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

/* What has no "enabled" of its own is on where it is there. */
static void parts_without_a_switch_are_on(void)
{
    static const char *const on[] = {
        "\"sparse_attention\": {\"mode\": \"fixed\"}",
        "\"pipeline\": {\"stages\": 4}",
        ("\"compression_training\": {\"weight_quantization\": {\"shared_parameters\": "
         "{\"enabled\": true}}}"),
        "\"tensor_parallel\": {\"tp\": {\"tp_size\": 4}}",
    };
    char text[256];

    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        snprintf(text, sizeof text, "{\"train_batch_size\": 32, %s}", on[i]);
        CHECK_INT(parse(text), MICS_OK);
        CHECK_INT(config.refused, 1);
        mics_foreign_config_fini(&config);
    }
    CHECK_INT(parse("{\"train_batch_size\": 32, \"sparse_attention\": {}, "
                    "\"compression_training\": {\"pruning\": {\"enabled\": false}}}"),
              MICS_OK);
    CHECK_INT(config.refused, 0);
    mics_foreign_config_fini(&config);
    CHECK_FAILS("{\"train_batch_size\": 32, \"zero_optimization\": {\"stage\": 3, "
                "\"offload_optimizer\": {\"device\": \"disk\"}}}",
                "zero_optimization.offload_optimizer.device: expected one of none|cpu|nvme, found "
                "'disk'");
}

static void forms_of_json_are_recognised(void)
{
    static const char *const files[] = {"\xef\xbb\xbf{\"train_batch_size\": 32}",
                                        "// ours\n{\"train_batch_size\": 32}",
                                        "# ours\n/* { */ {\"train_batch_size\": 32}"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_INT(parse(files[i]), MICS_OK);
        CHECK_STR(config.trainer, "DeepSpeed");
        CHECK_INT(config.global_batch, 32);
        mics_foreign_config_fini(&config);
    }
    CHECK_INT(parse("{\"distributed_type\": \"FSDP\", \"mixed_precision\": \"bf16\"}"), MICS_OK);
    CHECK_STR(config.trainer, "accelerate");
    CHECK_STR(config.strategy, "zero3");
    mics_foreign_config_fini(&config);
}

static void wrong_files_are_refused(void)
{
    char deep[4096] = "";

    CHECK_FAILS("{\"gradient_acumulation_steps\": 1}",
                "unknown key 'gradient_acumulation_steps' of DeepSpeed; did you mean "
                "gradient_accumulation_steps?");
    CHECK_FAILS("{\"stage\": 1}",
                "unknown key 'stage' of DeepSpeed; did you mean zero_optimization.stage?");
    CHECK_FAILS("{\"zero_optimization\": {\"mics_shards_size\": 1}}",
                "unknown key 'zero_optimization.mics_shards_size' of DeepSpeed; did you mean "
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
    CHECK_FAILS("{\"zero_optimization.stage\": 3, \"zero_optimization\": {\"stage\": 1}}",
                "unknown key 'zero_optimization.stage': names have no points");
    snprintf(deep, sizeof deep, "{\"%079d\u00e4\u00f6\": 1}", 0);
    CHECK_FAILS(deep, "unknown key of 83 bytes");
    deep[0] = '\0';
    for (int i = 0; i < 40; i++)
        strcat(deep, "{\"wandb\":");
    CHECK_INT(parse(deep), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "nested deeper than 32"));
}

static const char torchtitan[] =
    "# eight nodes' worth\n"
    "NGPU=8 torchrun --nnodes=4 --nproc_per_node 8 --rdzv-backend c10d \\\n"
    "    -m torchtitan.train --module llama3 --config llama3_8b \\\n"
    "    --parallelism.data-parallel-replicate-degree 4 --training.seq_len=2048 \\\n"
    "    --training.local_batch_size 2 --training.global_batch_size 128 # and\n"
    "    --training.mixed_precision_param bfloat16 --training.max_norm 0.5\n"
    "    --training.steps '1000' --compile.enable --compile.components model \"loss\"\n"
    "    --metrics.no-enable_tensorboard --optimizer.lr 3e-4 --optimizer.weight_decay 0.1\n"
    "    --lr_scheduler.warmup_steps 50 --lr_scheduler.decay_ratio 0.2\n"
    "    --lr_scheduler.decay_type sqrt --lr_scheduler.min_lr_factor 0.1\n"
    "    --activation_checkpoint.mode selective --debug.seed 7\n";

static void torchtitan_becomes_a_job(void)
{
    CHECK_INT(parse(torchtitan), MICS_OK);
    CHECK_STR(config.trainer, "torchtitan");
    CHECK_INT(config.global_batch, 128);
    CHECK_INT(config.micro_batch, 2);
    CHECK_INT(config.seq, 2048);
    CHECK_STR(config.strategy, "mics:8");
    CHECK_INT(config.dtype, MICS_BF16);
    CHECK_INT(config.grad_dtype, MICS_F32);
    CHECK_INT(config.recompute, MICS_RECOMPUTE_SELECTIVE);
    CHECK_INT(setting("steps"), 1000);
    CHECK_INT(setting("lr-decay"), 200);
    CHECK_INT(setting("warmup"), 50);
    CHECK_INT(setting("seed"), 7);
    CHECK_NEAR(setting("min-lr"), 3e-5, 1e-18);
    CHECK_NEAR(setting("clip"), 0.5, 0);
    CHECK_STR(json_string_value(json_object_get(config.settings, "lr-schedule")), "wsd");
    CHECK_STR(member("compile.components", "value"), "[\"model\",\"loss\"]");
    CHECK_STR(member("compile.enable", "value"), "true");
    CHECK_STR(member("metrics.enable_tensorboard", "value"), "false");
    CHECK_STR(member("torchrun.nnodes", "verdict"), "taken");
    CHECK_STR(member("torchrun.rdzv_backend", "verdict"), "ignored");
    check_rows(20);
    mics_foreign_config_fini(&config);
}

static void torchtitan_clips_nothing_at_infinity(void)
{
    static const char clip[] = "torchrun -m torchtitan.train --training.max_norm ";
    static const char *const refused[] = {"0", "-1", "infinite", "1e-"};
    char text[sizeof clip + 16];

    CHECK_INT(parse("torchrun -m torchtitan.train --training.max_norm=inf"), MICS_OK);
    CHECK_INT(config.clips, 0);
    CHECK_STR(member("training.max_norm", "value"), "inf");
    CHECK_STR(member("training.max_norm", "why"), "mics-plan --no-clip");
    mics_foreign_config_fini(&config);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(text, sizeof text, "%s%s", clip, refused[i]);
        CHECK_FAILS(text,
                    "training.max_norm: expected a number above 0, or inf, which clips nothing");
    }
}

/* What mics-train would refuse stays out of its settings. */
static void intervals_of_torchtitan_are_settings(void)
{
    CHECK_INT(parse("--metrics.log_freq 5 --checkpoint.enable --checkpoint.interval 20 "
                    "--checkpoint.keep_latest_k 0"),
              MICS_OK);
    CHECK_INT(setting("log-every"), 5);
    CHECK_INT(setting("save-every"), 20);
    CHECK(json_object_get(config.settings, "keep"));
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("--metrics.log_freq 0 --checkpoint.enable --checkpoint.interval 5000000000 "
                    "--checkpoint.keep_latest_k 5000000000"),
              MICS_OK);
    CHECK_INT(json_object_size(config.settings), 0);
    CHECK_STR(member("metrics.log_freq", "verdict"), "ignored");
    check_rows(4);
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("--metrics.log_freq 5000000000"), MICS_OK);
    CHECK(!json_object_get(config.settings, "log-every"));
    mics_foreign_config_fini(&config);
}

/* A program is one after its launcher, after -m, or before all flags; else it is a value. */
static void programs_are_behind_launchers(void)
{
    CHECK_INT(parse("--training.seq_len 512 --dataloader.script make.sh --training.steps 5"),
              MICS_OK);
    CHECK_INT(config.seq, 512);
    CHECK_STR(member("dataloader.script", "value"), "make.sh");
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("./run.sh --training.seq_len 512 --dataloader.script make.sh"), MICS_OK);
    CHECK_INT(config.seq, 512);
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("--nnodes 4 -m torchtitan.train --training.seq_len 512"), MICS_OK);
    CHECK_STR(member("torchrun.nnodes", "verdict"), "taken");
    mics_foreign_config_fini(&config);
    CHECK_FAILS("--training.seq_len=512 make.sh --training.steps 5",
                "line 1: 'make.sh': expected a flag");
}

static void meshes_of_torchtitan_are_strategies(void)
{
    static const struct {
        const char *flags, *strategy;
    } cases[] = {
        {"", "zero3"},
        {"--parallelism.data_parallel_replicate_degree 32", "ddp"},
        {"--parallelism.data_parallel_replicate_degree 2", "mics:16"},
        {"--parallelism.data_parallel_shard_degree -1", "zero3"},
        {"--parallelism.data_parallel_shard_degree 4 "
         "--parallelism.data_parallel_replicate_degree=8",
         "mics:4"},
        {"--parallelism.fsdp_reshard_after_forward never", "zero2"},
        {"--parallelism.fsdp_reshard_after_forward never "
         "--parallelism.data_parallel_replicate_degree 4",
         "1,8,8"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];

        snprintf(text, sizeof text, "--training.local_batch_size 2 %s", cases[i].flags);
        CHECK_INT(parse(text), MICS_OK);
        CHECK_STR(config.strategy, cases[i].strategy);
        CHECK_INT(config.global_batch, 64);
        check_rows(2);
        mics_foreign_config_fini(&config);
    }
}

static void wrong_flags_are_refused(void)
{
    CHECK_FAILS("--training.local_batchsize 2",
                "unknown key 'training.local_batchsize' of torchtitan; did you mean "
                "training.local_batch_size?");
    CHECK_FAILS("--parallelism.data_parallel_shard_degree 4",
                "parallelism.data_parallel_replicate_degree 1 x "
                "parallelism.data_parallel_shard_degree 4 is not the number of ranks, 32");
    CHECK_FAILS("torchrun --nnodes 2 train.py --training.steps 1",
                "torchrun.nnodes is 2, but the topology has 4 nodes");
    CHECK_FAILS("--training.local_batch_size 3 --training.global_batch_size 100",
                "training.global_batch_size 100 is no multiple of training.local_batch_size 3 x "
                "32 ranks");
    CHECK_FAILS("--training.steps ${STEPS}",
                "training.steps: expected a whole number, 0 or more, found '${STEPS}'");
    CHECK_FAILS("--training.dtype 'float32", "line 1: a quote without its end");
    CHECK_FAILS("--training 1 --training.steps 2", "--training has a value and fields");
    CHECK_INT(parse("--training.steps 1 \\"), MICS_ERR_FORMAT);
    CHECK_FAILS("x.py\n--training.steps=2 3", "line 2: '3': expected a flag");
    CHECK_FAILS("--training.mixed_precision_param float16",
                "training.mixed_precision_param: expected bfloat16 or float32, found 'float16'");
    CHECK_FAILS("--parallelism.fsdp_reshard_after_forward sometimes",
                "parallelism.fsdp_reshard_after_forward: expected one of default|always|never, "
                "found 'sometimes'");
    CHECK_FAILS("--activation_checkpoint.mode some",
                "activation_checkpoint.mode: expected one of none|full|selective|memory_budget, "
                "found 'some'");
    CHECK_FAILS("--training.batch_size 2 --training.local_batch_size 4",
                "training.batch_size and training.local_batch_size exclude each other");
    CHECK_FAILS("torchrun train.py --compile.enable 2>&1 | tee log",
                "line 1: '>' of a shell: expected flags alone");
    CHECK_FAILS("--training.seq_len 128; x --training.seq_len 512",
                "line 1: ';' of a shell: expected flags alone");
    CHECK_FAILS("# of ours\n[training]\nseq_len = 128\n",
                "TOML is not read; give torchtitan's flags: --section.key=value");
    CHECK_INT(parse("torchrun pretrain_gpt.py --tensor-model-parallel-size 8"), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "arguments of Megatron-LM are not read"));
    CHECK_INT(parse("--parallelism.tensor_parallel_degree 8 --model.converters float8"), MICS_OK);
    CHECK_INT(config.refused, 2);
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("--experimental.context_parallel_degree 2 --quantize.linear.float8.x y"),
              MICS_OK);
    CHECK_INT(config.refused, 2);
    mics_foreign_config_fini(&config);
}

#if MICS_HAVE_YAML
static const char accelerate[] = "compute_environment: LOCAL_MACHINE\n"
                                 "debug: false\n"
                                 "distributed_type: FSDP\n"
                                 "downcast_bf16: 'no'\n"
                                 "fsdp_config:\n"
                                 "  fsdp_version: 2\n"
                                 "  fsdp_reshard_after_forward: true\n"
                                 "  fsdp_offload_params: true # a comment\n"
                                 "  fsdp_activation_checkpointing: yes\n"
                                 "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
                                 "machine_rank: 0\n"
                                 "mixed_precision: bf16\n"
                                 "num_machines: 4\n"
                                 "num_processes: 32\n"
                                 "parallelism_config:\n"
                                 "  parallelism_config_dp_replicate_size: 2\n"
                                 "  parallelism_config_dp_shard_size: 16\n"
                                 "tpu_env: []\n";

static void accelerate_becomes_a_job(void)
{
    CHECK_INT(parse(accelerate), MICS_OK);
    CHECK_STR(config.trainer, "accelerate");
    CHECK_INT(config.global_batch, 0);
    CHECK_STR(config.strategy, "mics:16");
    CHECK_INT(config.dtype, MICS_BF16);
    CHECK_INT(config.grad_dtype, MICS_BF16);
    CHECK_INT(config.recompute, MICS_RECOMPUTE_FULL);
    CHECK_STR(member("fsdp_config.fsdp_offload_params", "verdict"), "taken differently");
    CHECK_STR(member("downcast_bf16", "value"), "no");
    check_rows(18);
    mics_foreign_config_fini(&config);
}

static void kinds_of_accelerate_are_strategies(void)
{
    static const struct {
        const char *lines, *strategy;
    } cases[] = {
        {"distributed_type: MULTI_GPU", "ddp"},
        {"distributed_type: FSDP", "zero3"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}", "zero3"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 2}", "zero2"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: NO_SHARD}", "ddp"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}", "mics:8"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 5}", "1,8,8"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: no}",
         "zero2"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 1}", "zero1"},
        {"distributed_type: DEEPSPEED", "zero2"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(parse(cases[i].lines), MICS_OK);
        CHECK_STR(config.strategy, cases[i].strategy);
        CHECK_INT(config.dtype, MICS_F32);
        check_rows(3);
        mics_foreign_config_fini(&config);
    }
}

/* A section changes nothing that the type does not start. */
static void unread_sections_of_accelerate_are_ignored(void)
{
    CHECK_INT(parse("distributed_type: MULTI_GPU\nparallelism_config: {}\n"
                    "fsdp_config: {fsdp_activation_checkpointing: true}\n"
                    "deepspeed_config: {gradient_clipping: 0.5, deepspeed_config_file: a}"),
              MICS_OK);
    CHECK_STR(config.strategy, "ddp");
    CHECK_INT(config.recompute, MICS_AUTO);
    CHECK_INT(config.clips, MICS_AUTO);
    CHECK_INT(config.refused, 0);
    CHECK_INT(json_object_size(config.settings), 0);
    CHECK_STR(member("fsdp_config.fsdp_activation_checkpointing", "why"), "only FSDP reads it");
    CHECK_STR(member("deepspeed_config.gradient_clipping", "why"), "only DeepSpeed reads it");
    mics_foreign_config_fini(&config);
    CHECK_INT(parse("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD, "
                    "fsdp_reshard_after_forward: NO_SHARD}"),
              MICS_OK);
    CHECK_STR(config.strategy, "zero3");
    CHECK_STR(member("fsdp_config.fsdp_reshard_after_forward", "verdict"), "ignored");
    mics_foreign_config_fini(&config);
}

static void wrong_yaml_is_refused(void)
{
    CHECK_FAILS("num_processes: 16", "num_processes is 16, but the topology has 32 ranks");
    CHECK_FAILS("parallelism_config: {parallelism_config_dp_shard_size: 8}",
                "parallelism_config.parallelism_config_dp_replicate_size 1 x "
                "parallelism_config.parallelism_config_dp_shard_size 8 is not the number of "
                "ranks, 32");
    CHECK_FAILS("debug: false", "distributed_type: not there; accelerate has no default for it");
    CHECK_FAILS(
        "distributed_type: on\n",
        "distributed_type: expected one of NO|no|FSDP|DEEPSPEED|MULTI_GPU|MULTI_CPU|MULTI_NPU|"
        "MULTI_XPU|MULTI_MLU|MULTI_SDAA|MULTI_MUSA|MULTI_HPU|MULTI_NEURON|MEGATRON_LM|XLA|"
        "TPU, found 'true'");
    CHECK_FAILS("mixed_precision: yes",
                "mixed_precision: expected one of no|fp16|bf16|fp8, found 'true'");
    CHECK_FAILS(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: gpu}",
        "deepspeed_config.offload_optimizer_device: expected one of none|no|cpu|nvme, found "
        "'gpu'");
    CHECK_FAILS("distributed_type: FSDP\nfsdp_config: {fsdp_version: 3}",
                "fsdp_config.fsdp_version: expected 1 or 2, found 3");
    CHECK_FAILS("distributed_type: FSDP\n"
                "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: FULL_SHARD}",
                "fsdp_config.fsdp_reshard_after_forward: expected true or false, for FSDP 2");
    CHECK_FAILS("num_processes: 040",
                "num_processes: expected a whole number, 0 or more, found '040'");
    CHECK_FAILS("fsdp_config: {<<: {fsdp_version: 2}}",
                "line 1: '<<': maps are not merged; write out the keys");
    CHECK_FAILS("debug: !!python/name:os.system x",
                "line 1: tags are not read: 'tag:yaml.org,2002:python/name:os.system'");
    CHECK_FAILS("mixed_precison: bf16", "unknown key 'mixed_precison' of accelerate; did you mean "
                                        "mixed_precision?");
    CHECK_FAILS("debug: maybe", "debug: expected true or false, found 'maybe'");
    CHECK_FAILS("a: 1\na: 2", "line 2: 'a' is there twice");
    CHECK_FAILS("fsdp_config: {fsdp_version: [", "line 2: did not find expected node content");
    CHECK_FAILS("debug: false\n---\nmixed_precision: bf16", "line 3: a second document");
    CHECK_FAILS("debug: false\n---\n[", "line 4: did not find expected node content");
    CHECK_INT(parse("---\ndistributed_type: NO\n...\n# the end\n"), MICS_OK);
    mics_foreign_config_fini(&config);
    CHECK_FAILS("just words",
                "neither DeepSpeed's JSON, nor accelerate's YAML, nor torchtitan's flags");
    CHECK_FAILS("a: &a [*a]", "line 1: nested deeper than 16");
    CHECK_FAILS("a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
                "c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]",
                "line 1: more than 4096 values");
    CHECK_INT(parse("distributed_type: MEGATRON_LM\n"
                    "deepspeed_config: {deepspeed_config_file: ds.json}"),
              MICS_OK);
    CHECK_INT(config.refused, 2);
    mics_foreign_config_fini(&config);
}
#endif

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
    check_damaged(torchtitan);
#if MICS_HAVE_YAML
    check_damaged(accelerate);
#endif
}

int main(void)
{
    TAP_RUN(deepspeed_becomes_a_job);
    TAP_RUN(stages_of_zero_are_strategies);
    TAP_RUN(auto_leaves_everything_open);
    TAP_RUN(refused_keys_are_collected);
    TAP_RUN(types_without_a_section_are_f32);
    TAP_RUN(rates_of_schedules_replace_those_of_optimizers);
    TAP_RUN(model_parallel_jobs_are_refused);
    TAP_RUN(contradictions_have_their_numbers);
    TAP_RUN(parts_without_a_switch_are_on);
    TAP_RUN(forms_of_json_are_recognised);
    TAP_RUN(wrong_files_are_refused);
    TAP_RUN(torchtitan_becomes_a_job);
    TAP_RUN(torchtitan_clips_nothing_at_infinity);
    TAP_RUN(intervals_of_torchtitan_are_settings);
    TAP_RUN(programs_are_behind_launchers);
    TAP_RUN(meshes_of_torchtitan_are_strategies);
    TAP_RUN(wrong_flags_are_refused);
#if MICS_HAVE_YAML
    TAP_RUN(accelerate_becomes_a_job);
    TAP_RUN(kinds_of_accelerate_are_strategies);
    TAP_RUN(unread_sections_of_accelerate_are_ignored);
    TAP_RUN(wrong_yaml_is_refused);
#endif
    TAP_RUN(damaged_files_are_no_danger);
    return tap_done();
}
