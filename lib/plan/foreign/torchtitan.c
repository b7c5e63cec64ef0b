/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchtitan.c - flags of torchtitan 0.3, and those of 0.2 that moved into its configurations.
 *
 * What the configuration of --config says is not in the file: only flags are known. Defaults are
 * assumed for the mesh alone, which configurations leave to the command line.
 */
#include "plan/foreign/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char configuration[] = "its settings are not in this file: mics-train --lr, ...";
static const char no_python[] = "there is no Python";
static const char tracing[] = "mics-train --trace, --metrics, --tensorboard";
static const char own_data[] = "mics-train --data, --tokenizer";
static const char own_checkpoints[] = "mics-train --out, --resume, --init, --keep";
static const char data_parallel[] = "ranks are data-parallel only";
static const char selection[] = "what is recomputed at a level is that of mics";
static const char starting[] = "mics-plan --launch, mics-run start the job";
static const char layout[] = "how pieces are laid out and exchanged is planned";

static const struct mics_key table[] = {
    {"module", KEY_TEXT, MICS_IGNORED, "mics-plan --model", NULL},
    {"config", KEY_TEXT, MICS_IGNORED, configuration, NULL},
    {"job.config_file", KEY_TEXT, MICS_IGNORED, configuration, NULL},
    {"job.*", KEY_ANY, MICS_IGNORED, own_checkpoints, NULL},
    {"dump_folder", KEY_TEXT, MICS_IGNORED, own_checkpoints, NULL},
    {"hf_assets_path", KEY_TEXT, MICS_IGNORED, own_data, NULL},
    {"model.converters", KEY_ANY | KEY_OFF, MICS_REFUSED, "parameters are not quantised", NULL},
    {"model.*", KEY_ANY, MICS_IGNORED, "mics-plan --model", NULL},
    {"model_spec", KEY_ANY, MICS_IGNORED, "mics-plan --model", NULL},
    {"torchrun.nnodes", KEY_COUNT | KEY_TEXT, MICS_TAKEN, starting, NULL},
    {"torchrun.nproc_per_node", KEY_COUNT | KEY_TEXT, MICS_TAKEN, starting, NULL},
    {"torchrun.*", KEY_ANY, MICS_IGNORED, starting, NULL},

    {"training.local_batch_size", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"training.batch_size", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"training.global_batch_size", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"training.seq_len", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"training.max_norm", KEY_NUMBER | KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"training.steps", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"training.enable_cpu_offload", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "nothing is offloaded: the plan fits the memory of the ranks", NULL},
    {"training.dtype", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"training.mixed_precision_param", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"training.mixed_precision_reduce", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"training.disable_cuda_graphs", KEY_BOOL, MICS_IGNORED, "steps are replayed as recorded",
     NULL},
    {"training.gc_freq", KEY_COUNT, MICS_IGNORED, no_python, NULL},
    {"training.gc_debug", KEY_BOOL, MICS_IGNORED, no_python, NULL},
    {"training.compile", KEY_BOOL, MICS_IGNORED, no_python, NULL},
    {"training.seed", KEY_COUNT, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {"training.deterministic", KEY_BOOL, MICS_IGNORED, "runs repeat bit for bit", NULL},
    {"training.dataset", KEY_TEXT, MICS_IGNORED, own_data, NULL},
    {"training.dataset_path", KEY_TEXT, MICS_IGNORED, own_data, NULL},

    {"parallelism.data_parallel_replicate_degree", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"parallelism.data_parallel_shard_degree", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"parallelism.fsdp_reshard_after_forward", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"parallelism.enable_fsdp_symm_mem", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {"parallelism.enable_compiled_autograd", KEY_BOOL, MICS_IGNORED, no_python, NULL},
    {"parallelism.spmd_backend", KEY_TEXT, MICS_IGNORED, layout, NULL},
    {"parallelism.tensor_parallel_degree", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel, NULL},
    {"parallelism.enable_sequence_parallel", KEY_BOOL, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.disable_loss_parallel", KEY_BOOL, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.enable_async_tensor_parallel", KEY_BOOL, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.pipeline_parallel_degree", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel,
     NULL},
    {"parallelism.module_fqns_per_model_part", KEY_ANY, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.pipeline_parallel_first_stage_less_layers", KEY_COUNT, MICS_IGNORED,
     data_parallel, NULL},
    {"parallelism.pipeline_parallel_last_stage_less_layers", KEY_COUNT, MICS_IGNORED, data_parallel,
     NULL},
    {"parallelism.pipeline_parallel_layers_per_stage", KEY_COUNT, MICS_IGNORED, data_parallel,
     NULL},
    {"parallelism.pipeline_parallel_schedule", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.pipeline_parallel_schedule_csv", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.pipeline_parallel_microbatch_size", KEY_COUNT, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.pipeline_parallel_split_points", KEY_ANY, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.context_parallel_degree", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel, NULL},
    {"parallelism.context_parallel_load_balancer", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.context_parallel_rotate_method", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.context_parallel_ptrr_mask_key", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {"parallelism.expert_parallel_degree", KEY_COUNT | KEY_ONE, MICS_TAKEN_DIFFERENTLY,
     "experts are gathered; mics-plan --experts=resident sends tokens", NULL},
    {"parallelism.expert_tensor_parallel_degree", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel,
     NULL},

    {"optimizer.name", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"optimizer.lr", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"optimizer.beta1", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"optimizer.beta2", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"optimizer.eps", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"optimizer.weight_decay", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"optimizer.implementation", KEY_TEXT, MICS_IGNORED, "implementation of the same update", NULL},
    {"optimizer.early_step_in_backward", KEY_BOOL | KEY_OFF, MICS_IGNORED, layout, NULL},
    {"optimizer.param_groups", KEY_ANY, MICS_IGNORED,
     "all parameters have one optimizer: mics-plan --optimizer, mics-train --lr, ...", NULL},
    {"optimizer.optimizer_factory_kwargs_by_name", KEY_ANY, MICS_IGNORED,
     "mics-plan --optimizer, mics-train --lr, ...", NULL},

    {"lr_scheduler.warmup_steps", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"lr_scheduler.total_steps", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"lr_scheduler.decay_ratio", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"lr_scheduler.decay_type", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"lr_scheduler.min_lr_factor", KEY_NUMBER, MICS_TAKEN, NULL, NULL},
    {"lr_scheduler.lr_min", KEY_NUMBER, MICS_TAKEN, NULL, NULL},

    {"activation_checkpoint.mode", KEY_TEXT, MICS_TAKEN, NULL, NULL},
    {"activation_checkpoint.selective_ac_option", KEY_TEXT | KEY_COUNT, MICS_IGNORED, selection,
     NULL},
    {"activation_checkpoint.*", KEY_ANY, MICS_IGNORED, selection, NULL},

    {"debug.seed", KEY_COUNT, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {"debug.deterministic", KEY_BOOL, MICS_IGNORED, "runs repeat bit for bit", NULL},
    {"debug.*", KEY_ANY, MICS_IGNORED, "for debugging", NULL},
    {"metrics.log_freq", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"metrics.*", KEY_ANY, MICS_IGNORED, tracing, NULL},
    {"checkpoint.enable", KEY_BOOL, MICS_IGNORED, own_checkpoints, NULL},
    {"checkpoint.enable_checkpoint", KEY_BOOL, MICS_IGNORED, own_checkpoints, NULL},
    {"checkpoint.interval", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"checkpoint.keep_latest_k", KEY_COUNT, MICS_TAKEN, NULL, NULL},
    {"checkpoint.*", KEY_ANY, MICS_IGNORED, own_checkpoints, NULL},
    {"profiler.*", KEY_ANY, MICS_IGNORED, tracing, NULL},
    {"profiling.*", KEY_ANY, MICS_IGNORED, tracing, NULL},
    {"comm.*", KEY_ANY, MICS_IGNORED, "mics-train --timeout", NULL},
    {"compile.*", KEY_ANY, MICS_IGNORED, no_python, NULL},
    {"dataloader.*", KEY_ANY, MICS_IGNORED, own_data, NULL},
    {"tokenizer.*", KEY_ANY, MICS_IGNORED, own_data, NULL},
    {"validator.*", KEY_ANY, MICS_IGNORED, "mics-train --val-every, --val-data", NULL},
    {"validation.*", KEY_ANY, MICS_IGNORED, "mics-train --val-every, --val-data", NULL},
    {"loss.*", KEY_ANY, MICS_IGNORED, "the loss is cross entropy", NULL},
    {"memory_estimation.*", KEY_ANY, MICS_IGNORED, "mics-show has the memory by region", NULL},
    {"experimental.context_parallel_degree", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel,
     NULL},
    {"experimental.pipeline_parallel_degree", KEY_COUNT | KEY_ONE, MICS_REFUSED, data_parallel,
     NULL},
    {"experimental.*", KEY_ANY, MICS_IGNORED, no_python, NULL},
    {"override.*", KEY_ANY, MICS_IGNORED, no_python, NULL},
    {"quantize.*", KEY_ANY | KEY_OFF | KEY_NESTED, MICS_REFUSED, "parameters are not quantised",
     NULL},
    {"float8.*", KEY_ANY | KEY_OFF, MICS_IGNORED, "see model.converters", NULL},
    {"mx.*", KEY_ANY | KEY_OFF, MICS_IGNORED, "see model.converters", NULL},
    {"fault_tolerance.enable", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "mics-run continues without nodes that fail; mics-plan --outer-steps is DiLoCo", NULL},
    {"fault_tolerance.*", KEY_ANY, MICS_IGNORED, "see fault_tolerance.enable", NULL},
};

/* A number; -1: not there, or -1 itself. */
static uint64_t get_positive(struct mics_keys *keys, const char *path)
{
    const double value = mics_keys_number(keys, path, -1);

    if (value == -1)
        return 0;
    if (!(value >= 1 && value <= INT32_MAX && value == floor(value)))
        mics_keys_fail(keys, "%s: expected a number from 1, or -1, found %.12g", path, value);
    return value >= 1 && value <= INT32_MAX ? (uint64_t)value : 0;
}

/* Do ranks share a sample, which is refused? Then batches and meshes are those of fewer ranks. */
static bool has_model_ranks(const struct mics_keys *keys)
{
    static const char *const degrees[] = {
        "parallelism.tensor_parallel_degree", "parallelism.pipeline_parallel_degree",
        "parallelism.context_parallel_degree", "experimental.pipeline_parallel_degree",
        "experimental.context_parallel_degree"};

    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (mics_keys_count(keys, degrees[i], 1) > 1)
            return true;
    return false;
}

static void take_batch(struct mics_keys *keys)
{
    const bool old = mics_keys_at(keys, "training.batch_size") != NULL;
    const char *names[] = {"training.global_batch_size",
                           old ? "training.batch_size" : "training.local_batch_size",
                           "accumulation"};
    const uint64_t global = get_positive(keys, names[0]), micro = mics_keys_size(keys, names[1]);
    static const struct {
        const char *path, *option;
    } absent[] = {{"training.local_batch_size", "mics-plan --micro-batch, --global-batch"},
                  {"training.seq_len", "mics-plan --seq"}};
    struct mics_foreign_config *config = keys->config;

    if (old && mics_keys_at(keys, "training.local_batch_size"))
        mics_keys_fail(keys,
                       "training.batch_size and training.local_batch_size exclude each other");
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (!mics_keys_at(keys, absent[i].path) && (i > 0 || !old))
            mics_keys_say_absent(keys, absent[i].path, MICS_IGNORED,
                                 "that of the configuration is not known: %s", absent[i].option);
    mics_keys_set_batch(keys, names, global, micro, global == 0 && micro > 0 ? 1 : 0);
    config->seq = mics_keys_size(keys, "training.seq_len");
    mics_keys_say(keys, names[0], MICS_TAKEN, "mics-plan --global-batch=%llu",
                  (unsigned long long)config->global_batch);
    if (config->global_batch == 0)
        mics_keys_say(keys, names[0], MICS_IGNORED,
                      "the local batch is not known: mics-plan --global-batch");
    mics_keys_say(keys, names[1], MICS_TAKEN, "mics-plan --micro-batch=%u", config->micro_batch);
    mics_keys_say(keys, "training.seq_len", MICS_TAKEN, "mics-plan --seq=%u", config->seq);
}

/* Replicas times shards are all ranks; -1 is what is left. */
static void take_mesh(struct mics_keys *keys)
{
    static const char replicate[] = "parallelism.data_parallel_replicate_degree",
                      shard[] = "parallelism.data_parallel_shard_degree",
                      reshard[] = "parallelism.fsdp_reshard_after_forward";
    const uint64_t n = mics_keys_ranks(keys);
    const uint64_t r = mics_keys_at(keys, replicate) ? mics_keys_size(keys, replicate) : 1;
    const uint64_t given = get_positive(keys, shard);
    const uint64_t p = given ? given : r > 0 && n % r == 0 ? n / r : 0;
    struct mics_foreign_config *config = keys->config;

    if (p == 0)
        mics_keys_fail(keys, "%s %llu is no divisor of the number of ranks, %llu", replicate,
                       (unsigned long long)r, (unsigned long long)n);
    if (p * r != n)
        mics_keys_fail(keys, "%s %llu x %s %llu is not the number of ranks, %llu", replicate,
                       (unsigned long long)r, shard, (unsigned long long)p, (unsigned long long)n);
    if (keys->status != MICS_OK)
        return;
    mics_keys_expect_word(keys, reshard, "default|always|never");
    mics_keys_set_groups(keys, p);
    mics_keys_say(keys, replicate, MICS_TAKEN, "%llu groups: mics-plan --strategy=%s",
                  (unsigned long long)r, config->strategy);
    mics_keys_say(keys, reshard, MICS_TAKEN, "as always");
    if (p > 1 && strcmp(mics_keys_text(keys, reshard, ""), "never") == 0) {
        if (p == n)
            snprintf(config->strategy, sizeof config->strategy, "zero2");
        else
            snprintf(config->strategy, sizeof config->strategy, "1,%llu,%llu",
                     (unsigned long long)p, (unsigned long long)p);
        mics_keys_say(keys, reshard, MICS_TAKEN_DIFFERENTLY,
                      "parameters are whole all the time: mics-plan --strategy=%s",
                      config->strategy);
    }
    mics_keys_say(keys, shard, MICS_TAKEN, "mics-plan --strategy=%s", config->strategy);
    if (!mics_keys_at(keys, shard))
        mics_keys_say_absent(keys, shard, MICS_TAKEN,
                             "mics-plan --strategy=%s: the default is all that is left",
                             config->strategy);
}

static bool is_word(const struct mics_keys *keys, const char *path, const char *word)
{
    return strcmp(mics_keys_text(keys, path, ""), word) == 0;
}

static void take_precision(struct mics_keys *keys)
{
    static const char param[] = "training.mixed_precision_param",
                      reduce[] = "training.mixed_precision_reduce", whole[] = "training.dtype";
    const char *const paths[] = {param, reduce, whole};
    const bool f32 = is_word(keys, param, "float32") && !is_word(keys, whole, "bfloat16");

    for (size_t i = 0; i < 3; i++)
        if (mics_keys_at(keys, paths[i]) && !is_word(keys, paths[i], "float32") &&
            !is_word(keys, paths[i], "bfloat16"))
            mics_keys_fail(keys, "%s: expected bfloat16 or float32, found '%.40s'", paths[i],
                           mics_keys_text(keys, paths[i], "another type"));
    keys->config->dtype = f32 ? MICS_F32 : MICS_BF16;
    keys->config->grad_dtype = f32 || !is_word(keys, reduce, "bfloat16") ? MICS_F32 : MICS_BF16;
    mics_keys_say(keys, param, MICS_TAKEN, "mics-plan --dtype=%s", f32 ? "f32" : "bf16");
    mics_keys_say(keys, reduce, MICS_TAKEN, "mics-plan --grad-dtype=%s",
                  keys->config->grad_dtype == MICS_F32 ? "f32" : "bf16");
    if (is_word(keys, whole, "bfloat16"))
        mics_keys_say(keys, whole, MICS_TAKEN_DIFFERENTLY,
                      "mics-plan --dtype=bf16: masters and states of the optimizer are fp32");
    else
        mics_keys_say(keys, whole, MICS_TAKEN, "masters are fp32");
    if (!mics_keys_at(keys, param))
        mics_keys_say_absent(keys, param, MICS_TAKEN,
                             "mics-plan --dtype=bf16, the default of torchtitan");
}

static void take_recomputation(struct mics_keys *keys)
{
    static const char path[] = "activation_checkpoint.mode";
    const char *mode = mics_keys_text(keys, path, NULL);
    enum mics_recompute level = MICS_RECOMPUTE_NONE;

    mics_keys_expect_word(keys, path, "none|full|selective|memory_budget");
    if (!mode && !mics_keys_has(keys, path))
        mics_keys_say_absent(keys, path, MICS_IGNORED,
                             "that of the configuration is not known: mics-plan --recompute");
    if (!mode)
        return;
    if (mics_recompute_parse(mode, &level)) {
        keys->config->recompute = level;
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --recompute=%s", mode);
    } else {
        mics_keys_say(keys, path, MICS_TAKEN_DIFFERENTLY,
                      "the fastest level that fits: mics-plan --recompute");
    }
}

static void take_if_there(struct mics_keys *keys, const char *path, const char *option)
{
    if (mics_keys_at(keys, path))
        mics_keys_take(keys, path, option, 0);
}

/* A count that mics-train has from `least` on. */
static void take_interval(struct mics_keys *keys, const char *path, const char *option,
                          uint64_t least, const char *otherwise)
{
    const uint64_t count = mics_keys_count(keys, path, least);

    if (count >= least && count <= UINT32_MAX)
        take_if_there(keys, path, option);
    else
        mics_keys_say(keys, path, MICS_IGNORED, "%s", otherwise);
}

static void take_optimizer(struct mics_keys *keys)
{
    static const char name[] = "optimizer.name", decay_key[] = "optimizer.weight_decay";
    const double decay = mics_keys_number(keys, decay_key, 0);
    const bool adam = is_word(keys, name, "Adam");

    take_if_there(keys, "optimizer.lr", "lr");
    take_if_there(keys, "optimizer.beta1", "beta1");
    take_if_there(keys, "optimizer.beta2", "beta2");
    take_if_there(keys, "optimizer.eps", "eps");
    take_if_there(keys, decay_key, "weight-decay");
    if (decay > 0)
        mics_keys_say(keys, decay_key, MICS_TAKEN_DIFFERENTLY,
                      "mics-train --weight-decay=%.12g, of matrices only", decay);
    if (adam && decay > 0)
        mics_keys_say(keys, name, MICS_REFUSED, "decay is not a part of the gradient: AdamW");
    else if (adam || is_word(keys, name, "AdamW"))
        mics_keys_say(keys, name, MICS_TAKEN, "mics-plan --optimizer=adamw");
    else
        mics_keys_say(keys, name, MICS_REFUSED, "optimizers are " MICS_OPTIMIZER_NAMES);
    if (adam || is_word(keys, name, "AdamW"))
        keys->config->optimizer = MICS_OPT_ADAMW;
}

/* The part of the steps in which the rate decays, or all after the warm-up. */
static void take_decay(struct mics_keys *keys, uint64_t steps)
{
    static const char ratio_key[] = "lr_scheduler.decay_ratio",
                      type_key[] = "lr_scheduler.decay_type";
    const char *type = mics_keys_text(keys, type_key, "linear");
    const double ratio = mics_keys_number(keys, ratio_key, 1);
    const bool whole = !mics_keys_at(keys, ratio_key);
    const bool root = strcmp(type, "sqrt") == 0;

    if (strcmp(type, "linear") != 0 && strcmp(type, "cosine") != 0 && !root)
        mics_keys_fail(keys, "%s: expected linear, sqrt or cosine, found '%.40s'", type_key, type);
    if (!(ratio >= 0 && ratio <= 1))
        mics_keys_fail(keys, "%s: expected a number from 0 to 1, found %.12g", ratio_key, ratio);
    if (ratio == 0) {
        mics_keys_set(keys, "lr-schedule", json_string("constant"));
        mics_keys_say(keys, ratio_key, MICS_TAKEN, "mics-train --lr-schedule=constant");
        mics_keys_say(keys, type_key, MICS_IGNORED, "the rate does not decay");
        return;
    }
    if (whole && !root) {
        mics_keys_set(keys, "lr-schedule", json_string(type));
        mics_keys_say(keys, type_key, MICS_TAKEN, "mics-train --lr-schedule=%s", type);
        return;
    }
    mics_keys_set(keys, "lr-schedule", json_string("wsd"));
    mics_keys_say(keys, type_key, root ? MICS_TAKEN : MICS_TAKEN_DIFFERENTLY,
                  "mics-train --lr-schedule=wsd%s", root ? "" : ", as 1 minus a square root");
    if (steps > 0) {
        const double decay = fmax(1, whole ? (double)steps : round(ratio * (double)steps));

        mics_keys_set(keys, "lr-decay", json_integer((json_int_t)decay));
        mics_keys_say(keys, ratio_key, MICS_TAKEN, "mics-train --lr-decay=%.0f", decay);
    } else {
        mics_keys_say(keys, ratio_key, MICS_IGNORED,
                      "the steps are not known: mics-train --steps, --lr-decay");
    }
}

static void take_schedule(struct mics_keys *keys)
{
    static const char *const floors[] = {"lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"};
    static const char total[] = "lr_scheduler.total_steps", steps_key[] = "training.steps";
    const double lr = mics_keys_number(keys, "optimizer.lr", -1);
    const uint64_t steps = mics_keys_count(keys, steps_key, 0);

    take_if_there(keys, steps_key, "steps");
    mics_keys_say(keys, total, MICS_TAKEN_DIFFERENTLY,
                  "the rate reaches its end with the last step: mics-train --steps");
    if (!mics_keys_at(keys, "lr_scheduler"))
        return;
    take_if_there(keys, "lr_scheduler.warmup_steps", "warmup");
    take_decay(keys, steps);
    for (size_t i = 0; i < 2; i++) {
        const double factor = mics_keys_number(keys, floors[i], -1);

        if (factor >= 0 && lr > 0) {
            mics_keys_set(keys, "min-lr", json_real(factor * lr));
            mics_keys_say(keys, floors[i], MICS_TAKEN, "mics-train --min-lr=%.12g", factor * lr);
        } else if (factor == 0) {
            mics_keys_set(keys, "min-lr", json_integer(0));
            mics_keys_say(keys, floors[i], MICS_TAKEN, "mics-train --min-lr=0");
        } else {
            mics_keys_say(keys, floors[i], MICS_IGNORED,
                          "the rate is not known: mics-train --lr, --min-lr");
        }
    }
}

/* They are off by default. */
static void take_checkpoints(struct mics_keys *keys)
{
    static const char interval[] = "checkpoint.interval", keep[] = "checkpoint.keep_latest_k";

    if (mics_keys_bool(keys, "checkpoint.enable", false) ||
        mics_keys_bool(keys, "checkpoint.enable_checkpoint", false)) {
        take_interval(keys, interval, "save-every", 1, "only the last step is saved");
        take_interval(keys, keep, "keep", 0, "all are kept");
        return;
    }
    mics_keys_say(keys, interval, MICS_IGNORED, "no checkpoint.enable");
    mics_keys_say(keys, keep, MICS_IGNORED, "no checkpoint.enable");
}

/* "inf" clips nothing; 0, which means that elsewhere, makes torchtitan's gradients 0. */
static void take_clipping(struct mics_keys *keys)
{
    static const char path[] = "training.max_norm";
    const char *text = json_string_value(mics_keys_at(keys, path));
    const double norm = mics_keys_number(keys, path, 0);

    if (!mics_keys_at(keys, path))
        return;
    if (text ? strcasecmp(text, "inf") != 0 : norm <= 0)
        mics_keys_fail(keys, "%s: expected a number above 0, or inf, which clips nothing", path);
    mics_keys_take_clip(keys, path, text ? 0 : norm);
}

static void take_rest(struct mics_keys *keys)
{
    static const char *const seeds[] = {"training.seed", "debug.seed"};

    take_clipping(keys);
    for (size_t i = 0; i < 2; i++)
        if (mics_keys_at(keys, seeds[i])) {
            mics_keys_take(keys, seeds[i], "seed", 0);
            mics_keys_say(keys, seeds[i], MICS_TAKEN_DIFFERENTLY,
                          "mics-train --seed, of other random numbers");
        }
    take_interval(keys, "metrics.log_freq", "log-every", 1, "mics-train prints lines by time");
    take_checkpoints(keys);
    mics_keys_expect(keys, "torchrun.nnodes", keys->nodes, "nodes");
    mics_keys_expect(keys, "torchrun.nproc_per_node", keys->per_node, "ranks per node");
}

void mics_torchtitan_interpret(struct mics_keys *keys)
{
    keys->table = table;
    keys->count = sizeof table / sizeof *table;
    mics_keys_walk(keys);
    if (!has_model_ranks(keys)) {
        take_batch(keys);
        take_mesh(keys);
    }
    take_precision(keys);
    take_recomputation(keys);
    take_optimizer(keys);
    take_schedule(keys);
    take_rest(keys);
}
