/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accelerate.c - the YAML of `accelerate config`: FSDP 1 and 2, meshes, DDP, and DeepSpeed without
 * a file of its own.
 *
 * Batches, the optimizer and its schedule are in the program.
 */
#include "plan/foreign/keys.h"

#include <stdio.h>
#include <string.h>

#define FSDP "fsdp_config.fsdp_"
#define MESH "parallelism_config.parallelism_config_"
#define ZERO "deepspeed_config."

static const char starting[] = "mics-plan --launch, mics-run start the job";
static const char no_python[] = "there is no Python";
static const char data_parallel[] = "ranks are data-parallel only";
static const char layout[] = "how pieces are laid out and exchanged is planned";
static const char own_checkpoints[] = "mics-train writes its own checkpoints";
static const char no_offload[] = "nothing is offloaded: the plan fits the memory of the ranks";
static const char of_offload[] = "part of offloading";

static const struct mics_key table[] = {
    {"compute_environment", KEY_TEXT, MICS_IGNORED, starting, NULL},
    {"debug", KEY_BOOL, MICS_IGNORED, no_python, NULL},
    {"distributed_type", KEY_TEXT | KEY_BOOL, MICS_TAKEN, NULL, NULL},
    {"downcast_bf16", KEY_TEXT | KEY_BOOL, MICS_IGNORED, "of TPUs", NULL},
    {"enable_cpu_affinity", KEY_BOOL, MICS_IGNORED, starting, NULL},
    {"use_cpu", KEY_BOOL, MICS_IGNORED, "the topology says what computes", NULL},
    {"gpu_ids", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"machine_rank", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"main_process_ip", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"main_process_port", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"main_training_function", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"rdzv_backend", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"same_network", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"mpirun_config.*", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"commands", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"command_file", KEY_ANY, MICS_IGNORED, starting, NULL},
    {"tpu_*", KEY_ANY | KEY_OFF, MICS_IGNORED, "of TPUs", NULL},
    {"dynamo_config.*", KEY_ANY, MICS_IGNORED, no_python, NULL},
    {"fp8_config.*", KEY_ANY, MICS_IGNORED, "see mixed_precision", NULL},
    {"mixed_precision", KEY_TEXT | KEY_BOOL, MICS_TAKEN, NULL, NULL},
    {"num_machines", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"num_processes", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"megatron_lm_config.*", KEY_ANY, MICS_IGNORED, "see distributed_type", NULL},

    {FSDP "version", KEY_COUNT, MICS_TAKEN, "shards are those of mics in both", NULL},
    {FSDP "sharding_strategy", KEY_TEXT | KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {FSDP "reshard_after_forward", KEY_TEXT | KEY_BOOL, MICS_TAKEN, NULL, NULL},
    {FSDP "ignored_modules", KEY_TEXT, MICS_REFUSED, "all parameters are sharded", NULL},
    {FSDP "offload_params", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY, no_offload, NULL},
    {FSDP "activation_checkpointing", KEY_BOOL, MICS_TAKEN, NULL, NULL},
    {FSDP "activation_checkpointing_offload", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     no_offload, NULL},
    {FSDP "auto_wrap_policy", KEY_TEXT, MICS_IGNORED, "units are layers", NULL},
    {FSDP "transformer_layer_cls_to_wrap", KEY_TEXT, MICS_IGNORED, "units are layers", NULL},
    {FSDP "min_num_params", KEY_COUNT, MICS_IGNORED, "units are layers", NULL},
    {FSDP "backward_prefetch", KEY_TEXT | KEY_BOOL, MICS_IGNORED, "planned: --prefetch", NULL},
    {FSDP "backward_prefetch_policy", KEY_TEXT | KEY_BOOL, MICS_IGNORED, "planned: --prefetch",
     NULL},
    {FSDP "forward_prefetch", KEY_BOOL, MICS_IGNORED, "planned: --prefetch", NULL},
    {FSDP "use_orig_params", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {FSDP "cpu_ram_efficient_loading", KEY_BOOL, MICS_IGNORED, "each rank reads its shards", NULL},
    {FSDP "sync_module_states", KEY_BOOL, MICS_IGNORED, "each rank reads its shards", NULL},
    {FSDP "state_dict_type", KEY_TEXT, MICS_IGNORED, own_checkpoints, NULL},

    {MESH "dp_replicate_size", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {MESH "dp_shard_size", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {MESH "tp_size", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel, NULL},
    {MESH "cp_size", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel, NULL},
    {MESH "sp_size", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel, NULL},
    {MESH "cp_backend", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {MESH "cp_comm_strategy", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {MESH "sp_backend", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {MESH "sp_seq_length", KEY_COUNT, MICS_IGNORED, data_parallel, NULL},
    {MESH "sp_seq_length_is_variable", KEY_BOOL, MICS_IGNORED, data_parallel, NULL},
    {MESH "sp_attn_implementation", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},

    {ZERO "zero_stage", KEY_COUNT, MICS_TAKEN, NULL, "mics-plan --strategy"},
    {ZERO "gradient_accumulation_steps", KEY_COUNT, MICS_IGNORED,
     "the micro-batch is the program's: mics-plan --global-batch, --micro-batch",
     "mics-plan --global-batch"},
    {ZERO "gradient_clipping", KEY_NUMBER, MICS_TAKEN, NULL, "mics-train --clip"},
    {ZERO "offload_optimizer_device", KEY_TEXT | KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     no_offload, NULL},
    {ZERO "offload_param_device", KEY_TEXT | KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY, no_offload,
     NULL},
    {ZERO "offload_optimizer_nvme_path", KEY_TEXT, MICS_IGNORED, of_offload, NULL},
    {ZERO "offload_param_nvme_path", KEY_TEXT, MICS_IGNORED, of_offload, NULL},
    {ZERO "zero3_init_flag", KEY_BOOL, MICS_IGNORED, "each rank makes its shards", NULL},
    {ZERO "zero3_save_16bit_model", KEY_BOOL, MICS_IGNORED, "mics-shard merge writes whole models",
     NULL},
    {ZERO "deepspeed_config_file", KEY_TEXT | KEY_OFF, MICS_REFUSED,
     "give that file to --from: it has the job", NULL},
    {ZERO "deepspeed_moe_layer_cls_names", KEY_TEXT, MICS_IGNORED, "units are layers", NULL},
    {ZERO "deepspeed_*", KEY_ANY, MICS_IGNORED, starting, NULL},
};

enum kind { IS_FSDP, IS_DEEPSPEED, IS_DDP, IS_OTHER };

static enum kind find_kind(struct mics_keys *keys)
{
    static const char path[] = "distributed_type";
    static const struct {
        const char *word;
        enum kind kind;
    } kinds[] = {{"FSDP", IS_FSDP},     {"DEEPSPEED", IS_DEEPSPEED},
                 {"MULTI_GPU", IS_DDP}, {"MULTI_CPU", IS_DDP},
                 {"NO", IS_DDP},        {"MULTI_NPU", IS_DDP},
                 {"no", IS_DDP},        {"MULTI_XPU", IS_DDP}};
    const char *word = mics_keys_text(keys, path, "NO"); /* false in YAML is no */

    mics_keys_expect_word(keys, path,
                          "NO|no|FSDP|DEEPSPEED|MULTI_GPU|MULTI_CPU|MULTI_NPU|MULTI_XPU|MULTI_MLU|"
                          "MULTI_SDAA|MULTI_MUSA|MULTI_HPU|MULTI_NEURON|MEGATRON_LM|XLA|TPU");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(word, kinds[i].word) == 0) {
            mics_keys_say(keys, path, MICS_TAKEN, "see below");
            return kinds[i].kind;
        }
    mics_keys_say(keys, path, MICS_REFUSED, "%s", data_parallel);
    return IS_OTHER;
}

/* What is kept whole after the forward pass: ZeRO 2 in groups of p. */
static void set_whole_parameters(struct mics_keys *keys, uint32_t p)
{
    struct mics_foreign_config *config = keys->config;

    if (p == mics_keys_ranks(keys))
        snprintf(config->strategy, sizeof config->strategy, "zero2");
    else if (p > 1)
        snprintf(config->strategy, sizeof config->strategy, "1,%u,%u", p, p);
}

/* "FULL_SHARD" or its number; of FSDP 2: is it resharded? */
static void take_fsdp_strategy(struct mics_keys *keys, const char *path, uint32_t p)
{
    static const char *const names[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                        "HYBRID_SHARD_ZERO2"};
    struct mics_foreign_config *config = keys->config;
    const char *name = mics_keys_text(keys, path, "");
    uint64_t strategy = mics_keys_count(keys, path, 0);

    for (uint64_t i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            strategy = i + 1;
    if (json_is_false(mics_keys_at(keys, path)))
        strategy = 2;
    else if (json_is_true(mics_keys_at(keys, path)))
        strategy = 1;
    if (!mics_keys_at(keys, path))
        return;
    if (strategy < 1 || strategy > 5) {
        mics_keys_fail(keys,
                       "%s: expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or "
                       "HYBRID_SHARD_ZERO2",
                       path);
        return;
    }
    if (strategy >= 4)
        p = keys->per_node;
    mics_keys_set_groups(keys, strategy == 3 ? 1 : p);
    if (strategy == 2 || strategy == 5)
        set_whole_parameters(keys, p);
    mics_keys_say(keys, path, strategy == 2 || strategy == 5 ? MICS_TAKEN_DIFFERENTLY : MICS_TAKEN,
                  "mics-plan --strategy=%s%s", config->strategy,
                  strategy == 2 || strategy == 5 ? ": parameters are whole all the time" : "");
}

/* FSDP 1 has its strategy under either name, and FSDP 2 only tells if it reshards. */
static void take_fsdp(struct mics_keys *keys, uint32_t p)
{
    static const char version_key[] = FSDP "version", reshard[] = FSDP "reshard_after_forward",
                      strategy[] = FSDP "sharding_strategy";
    const uint64_t version = mics_keys_count(keys, version_key, 1);
    const bool is_bool =
        !mics_keys_at(keys, reshard) || json_is_boolean(mics_keys_at(keys, reshard));

    if (version < 1 || version > 2)
        mics_keys_fail(keys, "%s: expected 1 or 2, found %llu", version_key,
                       (unsigned long long)version);
    if (version == 2) {
        if (!is_bool)
            mics_keys_fail(keys, "%s: expected true or false, for FSDP 2", reshard);
        mics_keys_say(keys, strategy, MICS_IGNORED, "FSDP 2 does not read it");
        take_fsdp_strategy(keys, reshard, p);
    } else if (mics_keys_at(keys, strategy)) {
        mics_keys_say(keys, reshard, MICS_IGNORED, "fsdp_sharding_strategy replaces it");
        take_fsdp_strategy(keys, strategy, p);
    } else {
        if (is_bool && mics_keys_at(keys, reshard))
            mics_keys_fail(keys, "%s: expected a strategy such as FULL_SHARD, for FSDP 1", reshard);
        take_fsdp_strategy(keys, reshard, p);
    }
}

/* Ranks of a group, by the mesh: all without one. */
static uint32_t take_mesh(struct mics_keys *keys, enum kind kind)
{
    static const char replicate[] = MESH "dp_replicate_size", shard[] = MESH "dp_shard_size";
    static const char *const others[] = {MESH "tp_size", MESH "cp_size", MESH "sp_size"};
    const uint32_t n = mics_keys_ranks(keys);
    const uint32_t r = mics_keys_size(keys, replicate), p = mics_keys_size(keys, shard);

    for (size_t i = 0; i < 3; i++)
        if (mics_keys_count(keys, others[i], 1) > 1)
            return n;
    if (json_object_size(mics_keys_at(keys, "parallelism_config")) == 0)
        return kind == IS_DDP ? 1 : n;
    if ((uint64_t)(r ? r : 1) * (p ? p : 1) != n)
        mics_keys_fail(keys, "%s %u x %s %u is not the number of ranks, %u", replicate, r ? r : 1,
                       shard, p ? p : 1, n);
    mics_keys_say(keys, replicate, MICS_TAKEN, "%u groups", r);
    mics_keys_say(keys, shard, MICS_TAKEN, "groups of %u ranks", p);
    return p ? p : 1;
}

static void take_groups(struct mics_keys *keys, enum kind kind)
{
    static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};
    static const char stage_key[] = ZERO "zero_stage";
    const uint64_t stage = mics_keys_count(keys, stage_key, 2);
    const uint32_t p = take_mesh(keys, kind);
    struct mics_foreign_config *config = keys->config;

    if (kind == IS_DEEPSPEED) {
        if (mics_keys_is_auto(keys, stage_key))
            return;
        if (stage > 3)
            mics_keys_fail(keys, "%s: expected 0, 1, 2 or 3, found %llu", stage_key,
                           (unsigned long long)stage);
        else
            snprintf(config->strategy, sizeof config->strategy, "%s", strategies[stage]);
        mics_keys_say(keys, stage_key, MICS_TAKEN, "mics-plan --strategy=%s", config->strategy);
        if (!mics_keys_at(keys, stage_key))
            mics_keys_say_absent(keys, stage_key, MICS_TAKEN,
                                 "mics-plan --strategy=zero2, the default of accelerate");
        return;
    }
    mics_keys_set_groups(keys, p);
    if (kind == IS_FSDP)
        take_fsdp(keys, p);
    if (kind == IS_DDP || (kind == IS_FSDP && !mics_keys_at(keys, "fsdp_config")))
        mics_keys_say(keys, "distributed_type", MICS_TAKEN, "mics-plan --strategy=%s",
                      config->strategy);
}

static void take_precision(struct mics_keys *keys, enum kind kind)
{
    static const char path[] = "mixed_precision";
    const char *word = mics_keys_text(keys, path, "no");
    struct mics_foreign_config *config = keys->config;

    mics_keys_expect_word(keys, path, "no|fp16|bf16|fp8");
    if (strcmp(word, "bf16") == 0) {
        config->dtype = MICS_BF16;
        config->grad_dtype = kind == IS_DDP ? MICS_F32 : MICS_BF16;
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --dtype=bf16 --grad-dtype=%s",
                      kind == IS_DDP ? "f32" : "bf16");
    } else if (strcmp(word, "no") == 0) {
        config->dtype = config->grad_dtype = MICS_F32;
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --dtype=f32");
        if (!mics_keys_at(keys, path))
            mics_keys_say_absent(keys, path, MICS_TAKEN,
                                 "mics-plan --dtype=f32, the default of accelerate");
    } else if (strcmp(word, "fp16") == 0) {
        config->dtype = MICS_F16;
        config->grad_dtype = kind == IS_DDP ? MICS_F32 : MICS_F16;
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --dtype=fp16 --grad-dtype=%s",
                      kind == IS_DDP ? "f32" : "fp16");
        if (kind == IS_DEEPSPEED) /* whose loss scale is that of mics-train */
            return;
        mics_keys_set(keys, "loss-scale-window", json_integer(2000));
        mics_keys_set(keys, "hysteresis", json_integer(1));
        mics_keys_say_absent(keys, "loss scale", MICS_TAKEN,
                             "mics-train --loss-scale-window=2000 --hysteresis=1, as GradScaler");
    } else if (strcmp(word, "fp8") == 0) {
        mics_keys_say(keys, path, MICS_TAKEN_DIFFERENTLY,
                      "planned in the type of the topology: mics-plan --dtype");
    }
}

static void take_clipping(struct mics_keys *keys)
{
    static const char path[] = ZERO "gradient_clipping";
    const double norm = mics_keys_number(keys, path, -1);

    if (!mics_keys_at(keys, path))
        return;
    if (norm < 0)
        mics_keys_fail(keys, "%s: expected a number, 0 or more, found %g", path, norm);
    mics_keys_take_clip(keys, path, norm);
}

static void take_recomputation(struct mics_keys *keys)
{
    static const char path[] = FSDP "activation_checkpointing";

    if (mics_keys_bool(keys, path, false)) {
        keys->config->recompute = MICS_RECOMPUTE_FULL;
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --recompute=full");
    } else {
        mics_keys_say(keys, path, MICS_IGNORED,
                      "the model may still recompute; here: mics-plan --recompute");
    }
}

void mics_accelerate_interpret(struct mics_keys *keys)
{
    enum kind kind;

    keys->table = table;
    keys->count = sizeof table / sizeof *table;
    mics_keys_walk(keys);
    kind = find_kind(keys);
    mics_keys_expect(keys, "num_machines", keys->nodes, "nodes");
    mics_keys_expect(keys, "num_processes", mics_keys_ranks(keys), "ranks");
    take_groups(keys, kind);
    take_precision(keys, kind);
    if (kind != IS_FSDP)
        mics_keys_say_section(keys, "fsdp_config", MICS_IGNORED, "only FSDP reads it");
    if (kind == IS_DEEPSPEED) {
        take_clipping(keys);
        mics_keys_expect_word(keys, ZERO "offload_optimizer_device", "none|no|cpu|nvme");
        mics_keys_expect_word(keys, ZERO "offload_param_device", "none|no|cpu|nvme");
        mics_keys_take_offload(keys, ZERO "offload_optimizer_device");
        mics_keys_leave_params(keys, ZERO "offload_param_device");
    } else if (kind != IS_OTHER) {
        mics_keys_say_section(keys, "deepspeed_config", MICS_IGNORED, "only DeepSpeed reads it");
    }
    if (kind == IS_FSDP)
        take_recomputation(keys);
    mics_keys_say_absent(keys, "per_device_train_batch_size", MICS_IGNORED,
                         "the program has it: mics-plan --global-batch, --micro-batch, --seq");
    mics_keys_say_absent(keys, "optimizer", MICS_IGNORED,
                         "the program makes it: mics-plan --optimizer, mics-train --lr, ...");
    if (!mics_keys_at(keys, "distributed_type"))
        mics_keys_fail(keys, "distributed_type: not there; accelerate has no default for it");
}
