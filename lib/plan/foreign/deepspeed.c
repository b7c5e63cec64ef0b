/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed.c - ds_config.json of DeepSpeed, also of versions with MiCS (up to 0.19.6).
 *
 * "auto" is what transformers' Trainer fills in from its arguments: nothing is known of it here.
 * Keys that are absent have DeepSpeed's defaults.
 */
#include "plan/foreign/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ZERO "zero_optimization."

static const char layout[] = "how pieces are laid out and exchanged is planned";
static const char memory[] = "what is kept gathered is planned: mics-plan --memory, --prefetch";
static const char no_offload[] = "part of offloading";
static const char fp16_scale[] = "only fp16 has a loss scale";
static const char tracing[] = "mics-train --trace and --metrics have it";
static const char loggers[] = "mics-train --metrics has all; --tensorboard, --prometheus";
static const char own_checkpoints[] = "mics-train writes its own checkpoints";
static const char recomputation[] =
    "the model decides if it recomputes; here: mics-plan --recompute";
static const char other_optimizer[] = "this optimizer does not use it";
static const char other_schedule[] = "this schedule does not use it";
static const char data_parallel[] = "ranks are data-parallel only";
static const char scaled_once[] = "sums are divided once, by the targets of the step";
static const char implementation[] = "implementation of the same update";
static const char *const tensor_keys[] = {"tensor_parallel.autotp_size", "tensor_parallel.tp_size",
                                          "tensor_parallel.tp.tp_size",
                                          "tensor_parallel.tensor_parallel.tp_size"};
static const char peak_key[] = "scheduler.params.warmup_max_lr";

static const struct mics_key table[] = {
    {"train_batch_size", KEY_COUNT, MICS_TAKEN, NULL, "mics-plan --global-batch"},
    {"train_micro_batch_size_per_gpu", KEY_COUNT, MICS_TAKEN, NULL, "mics-plan --micro-batch"},
    {"gradient_accumulation_steps", KEY_COUNT, MICS_TAKEN, NULL, "mics-plan --global-batch"},
    {"managed_gradient_accumulation", KEY_BOOL, MICS_IGNORED, scaled_once, NULL},
    {"gradient_clipping", KEY_NUMBER, MICS_TAKEN, NULL, "mics-train --clip"},
    {"prescale_gradients", KEY_BOOL | KEY_OFF, MICS_IGNORED, scaled_once, NULL},
    {"gradient_predivide_factor", KEY_NUMBER, MICS_IGNORED, scaled_once, NULL},
    {"gradient_allreduce_op", KEY_TEXT, MICS_IGNORED, scaled_once, NULL},
    {"sparse_gradients", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY, "gradients are dense", NULL},
    {"communication_data_type", KEY_TEXT, MICS_TAKEN, NULL, "mics-plan --grad-dtype"},
    {"seq_parallel_communication_data_type", KEY_TEXT, MICS_IGNORED, data_parallel, NULL},
    {"sequence_parallel_size", KEY_COUNT | KEY_OFF | KEY_ONE, MICS_REFUSED, data_parallel, NULL},
    {"use_data_before_expert_parallelism", KEY_BOOL, MICS_IGNORED, data_parallel, NULL},
    {"disable_allgather", KEY_BOOL | KEY_OFF, MICS_IGNORED, layout, NULL},
    {"seed", KEY_COUNT, MICS_TAKEN_DIFFERENTLY, NULL, "mics-train --seed"},
    {"dataloader_drop_last", KEY_BOOL, MICS_IGNORED, "steps have whole batches of one text", NULL},
    {"disable_python_gc", KEY_BOOL, MICS_IGNORED, "there is no Python", NULL},
    {"steps_per_print", KEY_COUNT, MICS_TAKEN, NULL, "mics-train --log-every"},
    {"wall_clock_breakdown", KEY_BOOL, MICS_IGNORED, tracing, NULL},
    {"memory_breakdown", KEY_BOOL, MICS_IGNORED, "mics-show has the memory by region", NULL},
    {"dump_state", KEY_BOOL, MICS_IGNORED, tracing, NULL},
    {"log_level", KEY_TEXT, MICS_IGNORED, "mics-train -v, -q", NULL},
    {"vocabulary_size", KEY_COUNT, MICS_IGNORED, "of the model: mics-plan --model, --vocab", NULL},

    {"bf16.enabled", KEY_BOOL, MICS_TAKEN, NULL, "mics-plan --dtype"},
    {"bf16.immediate_grad_update", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {"bf16.check_grad_overflow", KEY_BOOL, MICS_TAKEN_DIFFERENTLY,
     "a step that is not finite ends the run; or mics-train --on-nonfinite=skip", NULL},
    {"bf16.bf16_master_weights_and_grads", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "masters and accumulated gradients are fp32", NULL},
    {"bf16.bf16_optimizer_states", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "states of the optimizer are fp32", NULL},
    {"bfloat16.enabled", KEY_BOOL, MICS_TAKEN, NULL, "mics-plan --dtype"},
    {"fp16.enabled", KEY_BOOL, MICS_TAKEN, NULL, "mics-plan --dtype"},
    {"fp16.auto_cast", KEY_BOOL, MICS_IGNORED, "inputs are token ids", NULL},
    {"fp16.loss_scale", KEY_NUMBER, MICS_IGNORED, fp16_scale, "mics-train --loss-scale"},
    {"fp16.initial_scale_power", KEY_NUMBER, MICS_IGNORED, fp16_scale,
     "mics-train --initial-loss-scale"},
    {"fp16.loss_scale_window", KEY_COUNT, MICS_IGNORED, fp16_scale,
     "mics-train --loss-scale-window"},
    {"fp16.hysteresis", KEY_COUNT, MICS_IGNORED, fp16_scale, "mics-train --hysteresis"},
    {"fp16.consecutive_hysteresis", KEY_BOOL, MICS_IGNORED, fp16_scale, NULL},
    {"fp16.min_loss_scale", KEY_NUMBER, MICS_IGNORED, fp16_scale, "mics-train --min-loss-scale"},
    {"fp16.fp16_master_weights_and_grads", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "masters and accumulated gradients are fp32", NULL},
    {"amp", KEY_ANY | KEY_OFF, MICS_TAKEN_DIFFERENTLY, "see fp16: mics-plan --dtype", NULL},
    {"torch_autocast.enabled", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "all operations of a layer have one type: mics-plan --dtype", NULL},
    {"torch_autocast.dtype", KEY_TEXT, MICS_IGNORED, "see torch_autocast.enabled", NULL},
    {"torch_autocast.lower_precision_safe_modules", KEY_LIST, MICS_IGNORED,
     "see torch_autocast.enabled", NULL},
    {"data_types.grad_accum_dtype", KEY_TEXT, MICS_TAKEN_DIFFERENTLY,
     "gradients are accumulated in fp32", NULL},
    {"data_types.param_dtype", KEY_TEXT, MICS_IGNORED, "see bf16 and fp16", NULL},
    {"data_types.buffer_dtype", KEY_TEXT, MICS_IGNORED, "there are no buffers", NULL},
    {"data_types.keep_in_fp32_modules", KEY_TEXT | KEY_LIST, MICS_IGNORED, "what needs fp32 has it",
     NULL},

    {ZERO "stage", KEY_COUNT, MICS_TAKEN, NULL, "mics-plan --strategy"},
    {ZERO "mics_shard_size", KEY_NUMBER, MICS_TAKEN, NULL, "mics-plan --strategy=mics:P"},
    {ZERO "mics_hierarchical_params_gather", KEY_BOOL, MICS_TAKEN, NULL,
     "mics-plan --hierarchical"},
    {ZERO "zero_hpz_partition_size", KEY_COUNT, MICS_TAKEN, NULL, "mics-plan --strategy=hpz:P"},
    {ZERO "zero_quantized_weights", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "exchanged exactly; mics-plan --gather-dtype=int8 sends blocks between nodes", NULL},
    {ZERO "zero_quantized_nontrainable_weights", KEY_BOOL | KEY_OFF, MICS_IGNORED,
     "all parameters are trained", NULL},
    {ZERO "zero_quantized_gradients", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "exchanged exactly; mics-plan --sync-dtype=int8 or int4 in the second hop", NULL},
    {ZERO "zeropp_loco_param", KEY_ANY | KEY_OFF | KEY_NESTED, MICS_TAKEN_DIFFERENTLY,
     "gradients are exchanged exactly", NULL},
    {ZERO "overlap_comm", KEY_BOOL, MICS_IGNORED, "communication always overlaps", NULL},
    {ZERO "contiguous_gradients", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "reduce_scatter", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "reduce_bucket_size", KEY_NUMBER, MICS_IGNORED, layout, NULL},
    {ZERO "use_multi_rank_bucket_allreduce", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "allgather_partitions", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "allgather_bucket_size", KEY_NUMBER, MICS_IGNORED, layout, NULL},
    {ZERO "round_robin_gradients", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "sub_group_size", KEY_NUMBER, MICS_IGNORED, layout, NULL},
    {ZERO "stage3_use_all_reduce_for_fetch_params", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "use_all_reduce_for_fetch_params", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "allgather_sequential", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "stage3_allgather_sequential", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "parameter_alignment", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "compute_grad_norm", KEY_BOOL, MICS_IGNORED, "see gradient_clipping", NULL},
    {ZERO "stage3_prefetch_bucket_size", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "prefetch_bucket_size", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "stage3_param_persistence_threshold", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "param_persistence_threshold", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "stage3_model_persistence_threshold", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "model_persistence_threshold", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "stage3_max_live_parameters", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "max_live_parameters", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "stage3_max_reuse_distance", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "max_reuse_distance", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "stage3_module_granularity_threshold", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "module_granularity_threshold", KEY_NUMBER, MICS_IGNORED, memory, NULL},
    {ZERO "memory_efficient_linear", KEY_BOOL, MICS_IGNORED, memory, NULL},
    {ZERO "leaf_module", KEY_ANY, MICS_IGNORED, memory, NULL},
    {ZERO "offload_param.device", KEY_TEXT | KEY_OFF, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {ZERO "offload_param.nvme_path", KEY_TEXT, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_param.buffer_count", KEY_NUMBER, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_param.buffer_size", KEY_NUMBER, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_param.max_in_cpu", KEY_NUMBER, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_param.pin_memory", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.device", KEY_TEXT | KEY_OFF, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {ZERO "offload_optimizer.nvme_path", KEY_TEXT, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.buffer_count", KEY_NUMBER, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.pin_memory", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.pipeline", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.pipeline_read", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.pipeline_write", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.fast_init", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.ratio", KEY_NUMBER, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.super_offload", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "offload_optimizer.cpuadam_cores_perc", KEY_NUMBER, MICS_IGNORED, no_offload, NULL},
    {ZERO "cpu_offload", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {ZERO "cpu_offload_param", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {ZERO "cpu_offload_params", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY, NULL, NULL},
    {ZERO "cpu_offload_use_pin_memory", KEY_BOOL, MICS_IGNORED, no_offload, NULL},
    {ZERO "zenflow", KEY_ANY, MICS_REFUSED, "every update has the gradients of its step", NULL},
    {ZERO "load_from_fp32_weights", KEY_BOOL, MICS_IGNORED, own_checkpoints, NULL},
    {ZERO "elastic_checkpoint", KEY_BOOL, MICS_IGNORED, "any plan continues from any checkpoint",
     NULL},
    {ZERO "pipeline_loading_checkpoint", KEY_BOOL, MICS_IGNORED, own_checkpoints, NULL},
    {ZERO "stage3_gather_16bit_weights_on_model_save", KEY_BOOL, MICS_IGNORED,
     "mics-shard merge writes whole models", NULL},
    {ZERO "gather_16bit_weights_on_model_save", KEY_BOOL, MICS_IGNORED,
     "mics-shard merge writes whole models", NULL},
    {ZERO "stage3_gather_fp16_weights_on_model_save", KEY_BOOL, MICS_IGNORED,
     "mics-shard merge writes whole models", NULL},
    {ZERO "ignore_unused_parameters", KEY_BOOL, MICS_IGNORED, "all parameters are used", NULL},
    {ZERO "legacy_stage1", KEY_BOOL, MICS_IGNORED, layout, NULL},
    {ZERO "override_module_apply", KEY_BOOL, MICS_IGNORED, "there is no Python", NULL},
    {ZERO "log_trace_cache_warnings", KEY_BOOL, MICS_IGNORED, tracing, NULL},
    {ZERO "enable_sanity_checks", KEY_BOOL, MICS_IGNORED, tracing, NULL},
    {ZERO "save_muon_momentum_buffer_in_memory", KEY_BOOL, MICS_IGNORED, other_optimizer, NULL},
    {"zero_allow_untested_optimizer", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"zero_force_ds_cpu_optimizer", KEY_BOOL, MICS_IGNORED, implementation, NULL},

    {"optimizer.type", KEY_TEXT, MICS_TAKEN, NULL, "mics-plan --optimizer"},
    {"optimizer.legacy_fusion", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.lr", KEY_NUMBER, MICS_TAKEN, other_optimizer, "mics-train --lr"},
    {"optimizer.params.betas", KEY_LIST, MICS_TAKEN, other_optimizer,
     "mics-train --beta1, --beta2"},
    {"optimizer.params.eps", KEY_NUMBER, MICS_IGNORED, other_optimizer, "mics-train --eps"},
    {"optimizer.params.weight_decay", KEY_NUMBER, MICS_IGNORED, other_optimizer,
     "mics-train --weight-decay"},
    {"optimizer.params.momentum", KEY_NUMBER, MICS_IGNORED, other_optimizer,
     "mics-train --momentum"},
    {"optimizer.params.bias_correction", KEY_BOOL, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.adam_w_mode", KEY_BOOL, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.torch_adam", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.amsgrad", KEY_BOOL | KEY_OFF, MICS_REFUSED,
     "AdamW is without the maximum of second moments", NULL},
    {"optimizer.params.maximize", KEY_BOOL | KEY_OFF, MICS_REFUSED, "losses are minimised", NULL},
    {"optimizer.params.nesterov", KEY_BOOL | KEY_OFF, MICS_REFUSED,
     "SGD is without Nesterov's momentum", NULL},
    {"optimizer.params.dampening", KEY_NUMBER | KEY_OFF, MICS_REFUSED, "SGD is without dampening",
     NULL},
    {"optimizer.params.fused", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.foreach", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.capturable", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.differentiable", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.use_triton", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.set_grad_none", KEY_BOOL, MICS_IGNORED, implementation, NULL},
    {"optimizer.params.max_grad_norm", KEY_NUMBER, MICS_IGNORED, "see gradient_clipping", NULL},
    {"optimizer.params.freeze_step", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.cuda_aware", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.comm_backend_name", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.max_coeff", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.min_coeff", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.coeff_beta", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.factor_max", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.factor_min", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.factor_threshold", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.var_freeze_step", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.var_update_scaler", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.local_step_scaler", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.local_step_clipper", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.muon_lr", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.adam_lr", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},
    {"optimizer.params.ns_method", KEY_ANY, MICS_IGNORED, other_optimizer, NULL},

    {"scheduler.type", KEY_TEXT, MICS_TAKEN, NULL, "mics-train --lr-schedule"},
    {"scheduler.params.warmup_min_lr", KEY_NUMBER, MICS_IGNORED, other_schedule,
     "mics-train --min-lr"},
    {"scheduler.params.warmup_max_lr", KEY_NUMBER, MICS_IGNORED, other_schedule, "mics-train --lr"},
    {"scheduler.params.warmup_num_steps", KEY_COUNT, MICS_IGNORED, other_schedule,
     "mics-train --warmup"},
    {"scheduler.params.warmup_type", KEY_TEXT, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.total_num_steps", KEY_COUNT, MICS_IGNORED, other_schedule,
     "mics-train --steps"},
    {"scheduler.params.warmup_min_ratio", KEY_NUMBER, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cos_min_ratio", KEY_NUMBER, MICS_IGNORED, other_schedule,
     "mics-train --min-lr"},
    {"scheduler.params.last_batch_iteration", KEY_NUMBER, MICS_IGNORED,
     "mics-train --resume knows the step", NULL},
    {"scheduler.params.lr_range_test_min_lr", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.lr_range_test_step_size", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.lr_range_test_step_rate", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.lr_range_test_staircase", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_min_lr", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_max_lr", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.decay_lr_rate", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_first_step_size", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_second_step_size", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_first_stair_count", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_second_stair_count", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.decay_step_size", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_momentum", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_min_mom", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.cycle_max_mom", KEY_ANY, MICS_IGNORED, other_schedule, NULL},
    {"scheduler.params.decay_mom_rate", KEY_ANY, MICS_IGNORED, other_schedule, NULL},

    {"activation_checkpointing.partition_activations", KEY_BOOL, MICS_IGNORED, recomputation, NULL},
    {"activation_checkpointing.cpu_checkpointing", KEY_BOOL | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "activations stay in the memory of their rank", NULL},
    {"activation_checkpointing.contiguous_memory_optimization", KEY_BOOL, MICS_IGNORED,
     recomputation, NULL},
    {"activation_checkpointing.synchronize_checkpoint_boundary", KEY_BOOL, MICS_IGNORED,
     recomputation, NULL},
    {"activation_checkpointing.profile", KEY_BOOL, MICS_IGNORED, tracing, NULL},
    {"activation_checkpointing.number_checkpoints", KEY_COUNT, MICS_IGNORED, recomputation, NULL},

    {"tensorboard", KEY_ANY | KEY_OFF, MICS_IGNORED, "mics-train --tensorboard=FOLDER", NULL},
    {"csv_monitor", KEY_ANY, MICS_IGNORED, loggers, NULL},
    {"wandb", KEY_ANY, MICS_IGNORED, loggers, NULL},
    {"comet", KEY_ANY, MICS_IGNORED, loggers, NULL},
    {"flops_profiler", KEY_ANY, MICS_IGNORED, tracing, NULL},
    {"comms_logger", KEY_ANY, MICS_IGNORED, tracing, NULL},
    {"timers", KEY_ANY, MICS_IGNORED, tracing, NULL},
    {"checkpoint", KEY_ANY, MICS_IGNORED, own_checkpoints, NULL},
    {"datastates_ckpt", KEY_ANY, MICS_IGNORED, own_checkpoints, NULL},
    {"nebula", KEY_ANY | KEY_OFF, MICS_IGNORED, own_checkpoints, NULL},
    {"aio", KEY_ANY, MICS_IGNORED, no_offload, NULL},
    {"autotuning", KEY_ANY, MICS_IGNORED, "mics-plan does it", NULL},
    {"compile", KEY_ANY, MICS_IGNORED, "there is no Python", NULL},
    {"hybrid_engine", KEY_ANY | KEY_OFF, MICS_IGNORED, "mics-sample generates text", NULL},
    {"graph_harvesting", KEY_BOOL, MICS_IGNORED, "steps are replayed from one array", NULL},
    {"elasticity", KEY_ANY | KEY_OFF, MICS_IGNORED, "mics-run continues on other nodes", NULL},
    {"pipeline", KEY_ANY | KEY_OFF | KEY_NESTED, MICS_REFUSED, data_parallel, NULL},
    {"tensor_parallel", KEY_ANY, MICS_IGNORED, data_parallel, NULL},
    {"expert_parallel", KEY_ANY | KEY_OFF, MICS_TAKEN_DIFFERENTLY,
     "experts are gathered; mics-plan --experts=resident sends tokens", NULL},
    {"data_efficiency", KEY_ANY | KEY_OFF, MICS_REFUSED, "samples come in one order", NULL},
    {"curriculum_learning", KEY_ANY | KEY_OFF, MICS_REFUSED, "sequences have one length", NULL},
    {"progressive_layer_drop", KEY_ANY | KEY_OFF, MICS_REFUSED, "no layer is left out", NULL},
    {"compression_training", KEY_ANY | KEY_OFF | KEY_NESTED, MICS_REFUSED,
     "parameters are not compressed", NULL},
    {"quantize_training", KEY_ANY | KEY_OFF, MICS_REFUSED, "parameters are not quantised", NULL},
    {"weight_quantization", KEY_ANY | KEY_OFF, MICS_REFUSED, "parameters are not quantised", NULL},
    {"eigenvalue", KEY_ANY | KEY_OFF, MICS_REFUSED, "parameters are not quantised", NULL},
    {"sparse_attention", KEY_ANY | KEY_OFF | KEY_NESTED, MICS_REFUSED,
     "attention is that of the model", NULL},
};

/* As transformers does, "auto" leaves to the program what is not here; what is absent is 1. */
static void take_batch(struct mics_keys *keys)
{
    static const char *const names[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps"};
    struct mics_foreign_config *config = keys->config;
    uint64_t values[3];
    bool is_known = false, is_auto = false;

    for (int i = 0; i < 3; i++) {
        values[i] = i == 0 ? mics_keys_count(keys, names[i], 0) : mics_keys_size(keys, names[i]);
        if (i == 0 && mics_keys_at(keys, names[0]) && values[0] == 0)
            mics_keys_fail(keys, "%s: expected a number from 1, found 0", names[0]);
        is_known |= values[i] > 0;
        is_auto |= mics_keys_is_auto(keys, names[i]);
    }
    if (!is_known && !is_auto)
        mics_keys_fail(keys, "none of %s, %s and %s is there", names[0], names[1], names[2]);
    if (values[2] == 0 && (values[0] == 0 || values[1] == 0) && !is_auto)
        values[2] = 1;
    mics_keys_set_batch(keys, names, values[0], values[1], values[2]);
    if (config->global_batch > 0)
        mics_keys_say(keys, names[0], MICS_TAKEN, "mics-plan --global-batch=%llu",
                      (unsigned long long)config->global_batch);
    if (config->micro_batch > 0)
        mics_keys_say(keys, names[1], MICS_TAKEN, "mics-plan --micro-batch=%u",
                      config->micro_batch);
    if (config->global_batch == 0 && config->micro_batch > 0) {
        config->global_batch = (uint64_t)config->micro_batch * mics_keys_ranks(keys);
        mics_keys_say(keys, names[1], MICS_TAKEN_DIFFERENTLY,
                      "mics-plan --micro-batch=%u, in one micro-step unless --global-batch says "
                      "more",
                      config->micro_batch);
    }
    if (config->global_batch > 0 && config->micro_batch > 0)
        mics_keys_say(keys, names[2], MICS_TAKEN, "%llu sequences per step",
                      (unsigned long long)config->global_batch);
    else
        mics_keys_say(keys, names[2], MICS_IGNORED,
                      "the batch is not known: mics-plan --global-batch");
}

static bool is_bf16(const char *word)
{
    return strcmp(word, "bf16") == 0 || strcmp(word, "bfloat16") == 0 ||
           strcmp(word, "torch.bfloat16") == 0;
}

static bool is_f32(const char *word)
{
    return strcmp(word, "fp32") == 0 || strcmp(word, "float32") == 0 ||
           strcmp(word, "float") == 0 || strcmp(word, "torch.float32") == 0;
}

/* A loss scale as an option: a power of two, which changes no other bit. */
static void take_scale(struct mics_keys *keys, const char *path, const char *option, double scale)
{
    const double power = scale > 0 ? exp2(floor(log2(scale))) : 0;

    if (!mics_keys_at(keys, path))
        return;
    if (!isfinite(power)) {
        mics_keys_fail(keys, "%s: the scale is too large", path);
        return;
    }
    mics_keys_set(keys, option, json_real(power));
    mics_keys_say(keys, path, power == scale ? MICS_TAKEN : MICS_TAKEN_DIFFERENTLY,
                  "mics-train --%s=%.12g%s", option, power,
                  power == scale ? "" : ": a power of two");
}

/* The defaults are those of mics-train. */
static void take_loss_scale(struct mics_keys *keys)
{
    static const char *const dynamic[] = {"fp16.initial_scale_power", "fp16.loss_scale_window",
                                          "fp16.hysteresis", "fp16.min_loss_scale",
                                          "fp16.consecutive_hysteresis"};
    static const char fixed[] = "fp16.loss_scale";
    const double scale = mics_keys_number(keys, fixed, 0);
    const double initial = exp2(mics_keys_number(keys, dynamic[0], 16));
    const double least = mics_keys_number(keys, dynamic[3], 1);

    if (scale < 0)
        mics_keys_fail(keys, "%s: expected a number, 0 or more, found %g", fixed, scale);
    take_scale(keys, fixed, "loss-scale", scale);
    for (size_t i = 0; scale > 0 && i < sizeof dynamic / sizeof *dynamic; i++)
        mics_keys_say(keys, dynamic[i], MICS_IGNORED, "the loss scale is static");
    if (scale > 0)
        return;
    if (least > initial)
        mics_keys_fail(keys, "%s: %.12g is more than the first scale, %.12g (%s)", dynamic[3],
                       least, initial, dynamic[0]);
    take_scale(keys, dynamic[0], "initial-loss-scale", initial);
    take_scale(keys, dynamic[3], "min-loss-scale", least);
    if (mics_keys_at(keys, dynamic[1]))
        mics_keys_take(keys, dynamic[1], "loss-scale-window", 1000);
    if (mics_keys_at(keys, dynamic[2]))
        mics_keys_take(keys, dynamic[2], "hysteresis", 2);
    if (mics_keys_bool(keys, dynamic[4], false))
        mics_keys_say(keys, dynamic[4], MICS_TAKEN_DIFFERENTLY,
                      "--hysteresis is full again after --loss-scale-window steps");
    else
        mics_keys_say(keys, dynamic[4], MICS_TAKEN, "as always");
}

static bool is_f16(const char *word)
{
    return strcmp(word, "fp16") == 0 || strcmp(word, "float16") == 0 || strcmp(word, "half") == 0 ||
           strcmp(word, "torch.float16") == 0;
}

static void take_precision(struct mics_keys *keys)
{
    static const char communication[] = "communication_data_type";
    const bool bf16 = mics_keys_bool(keys, "bf16.enabled", false) ||
                      mics_keys_bool(keys, "bfloat16.enabled", false);
    const bool fp16 = mics_keys_bool(keys, "fp16.enabled", false);
    const bool autocast = mics_keys_bool(keys, "torch_autocast.enabled", false);
    const bool open = mics_keys_is_auto(keys, "bf16.enabled") ||
                      mics_keys_is_auto(keys, "bfloat16.enabled") ||
                      mics_keys_is_auto(keys, "fp16.enabled") ||
                      mics_keys_bool(keys, "amp.enabled", false) || autocast;
    const char *type = mics_keys_text(keys, communication, NULL);
    struct mics_foreign_config *config = keys->config;

    if (bf16 && fp16)
        mics_keys_fail(keys, "bf16.enabled and fp16.enabled exclude each other");
    config->dtype = bf16 ? MICS_BF16 : fp16 ? MICS_F16 : open ? MICS_AUTO : MICS_F32;
    mics_keys_say(keys, "bf16.enabled", MICS_TAKEN, bf16 ? "mics-plan --dtype=bf16" : "off");
    mics_keys_say(keys, "bfloat16.enabled", MICS_TAKEN, bf16 ? "mics-plan --dtype=bf16" : "off");
    mics_keys_say(keys, "fp16.enabled", MICS_TAKEN, fp16 ? "mics-plan --dtype=fp16" : "off");
    if (fp16 || (!bf16 && mics_keys_is_auto(keys, "fp16.enabled")))
        take_loss_scale(keys);
    if (config->dtype == MICS_F32)
        mics_keys_say_absent(keys, "bf16", MICS_TAKEN,
                             "mics-plan --dtype=f32, the default of DeepSpeed");
    if (!type)
        return;
    if (is_f32(type) || (fp16 ? is_f16(type) : is_bf16(type))) {
        config->grad_dtype = is_f32(type) || config->dtype == MICS_F32 ? MICS_F32
                             : fp16                                    ? MICS_F16
                                                                       : MICS_BF16;
        mics_keys_say(keys, communication, MICS_TAKEN, "mics-plan --grad-dtype=%s",
                      config->grad_dtype == MICS_F32 ? "f32"
                      : fp16                         ? "fp16"
                                                     : "bf16");
    } else {
        mics_keys_say(keys, communication, MICS_TAKEN_DIFFERENTLY,
                      "gradients are in the type of the parameters, or in f32");
    }
}

/* Stage 3 in groups, by MiCS or with a second partition of parameters. */
static void take_groups(struct mics_keys *keys)
{
    static const char mics_size[] = ZERO "mics_shard_size",
                      hpz_size[] = ZERO "zero_hpz_partition_size",
                      two_hops[] = ZERO "mics_hierarchical_params_gather";
    struct mics_foreign_config *config = keys->config;
    const uint32_t n = mics_keys_ranks(keys);
    const double p = mics_keys_number(keys, mics_size, -1);
    const uint64_t k = mics_keys_count(keys, hpz_size, 1);
    const bool hierarchical = mics_keys_bool(keys, two_hops, false);

    if (p > 0 && (p > n || p != floor(p)))
        mics_keys_fail(keys, "%s: %.12g is no group of %u ranks", mics_size, p, n);
    if (k < 1 || k > n)
        mics_keys_fail(keys, "%s: %llu is no group of %u ranks", hpz_size, (unsigned long long)k,
                       n);
    if (p > 0 && k > 1)
        mics_keys_fail(keys, "%s and %s exclude each other", mics_size, hpz_size);
    mics_keys_say(keys, mics_size, MICS_IGNORED, "off");
    mics_keys_say(keys, hpz_size, MICS_IGNORED, "off");
    mics_keys_say(keys, two_hops, MICS_IGNORED, hierarchical ? "groups do not span nodes" : "off");
    if (p > 0) {
        mics_keys_set_groups(keys, (uint64_t)p);
        mics_keys_say(keys, mics_size, MICS_TAKEN, "mics-plan --strategy=%s", config->strategy);
    } else if (k > 1) {
        if (k < n)
            snprintf(config->strategy, sizeof config->strategy, "hpz:%llu", (unsigned long long)k);
        mics_keys_say(keys, hpz_size, MICS_TAKEN, "mics-plan --strategy=%s", config->strategy);
    }
    if (p > keys->per_node && hierarchical) {
        config->hierarchical = true;
        mics_keys_say(keys, two_hops, MICS_TAKEN, "mics-plan --hierarchical=on");
    }
}

static void take_stage(struct mics_keys *keys)
{
    static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};
    static const char *const needing_stage_3[] = {ZERO "mics_shard_size",
                                                  ZERO "mics_hierarchical_params_gather",
                                                  ZERO "zero_hpz_partition_size"};
    static const char stage_key[] = ZERO "stage";
    const uint64_t stage = mics_keys_count(keys, stage_key, 0);
    struct mics_foreign_config *config = keys->config;

    if (mics_keys_is_auto(keys, stage_key))
        return;
    if (stage > 3) {
        mics_keys_fail(keys, "%s: expected 0, 1, 2 or 3, found %llu", stage_key,
                       (unsigned long long)stage);
        return;
    }
    snprintf(config->strategy, sizeof config->strategy, "%s", strategies[stage]);
    if (stage == 3)
        take_groups(keys);
    else
        for (size_t i = 0; i < sizeof needing_stage_3 / sizeof *needing_stage_3; i++)
            mics_keys_say(keys, needing_stage_3[i], MICS_IGNORED, "only stage 3 uses it");
    mics_keys_say(keys, stage_key, MICS_TAKEN, "mics-plan --strategy=%s", config->strategy);
    if (!mics_keys_at(keys, stage_key))
        mics_keys_say_absent(keys, stage_key, MICS_TAKEN,
                             "mics-plan --strategy=ddp, the default of DeepSpeed");
}

static bool has_tensor_ranks(const struct mics_keys *keys)
{
    for (size_t i = 0; i < sizeof tensor_keys / sizeof *tensor_keys; i++)
        if (mics_keys_count(keys, tensor_keys[i], 1) > 1)
            return true;
    return false;
}

/* Do ranks share a sample, which is refused? Then batches are those of fewer ranks. */
static bool has_model_ranks(const struct mics_keys *keys)
{
    return has_tensor_ranks(keys) || mics_keys_count(keys, "sequence_parallel_size", 1) > 1;
}

static void take_tensor_parallel(struct mics_keys *keys)
{
    if (has_tensor_ranks(keys))
        mics_keys_say(keys, "tensor_parallel", MICS_REFUSED, "%s", data_parallel);
}

static void take_offload(struct mics_keys *keys)
{
    static const char *const of_params[] = {ZERO "offload_param.device", ZERO "cpu_offload_param",
                                            ZERO "cpu_offload_params"};

    mics_keys_expect_word(keys, ZERO "offload_param.device", "none|cpu|nvme");
    mics_keys_expect_word(keys, ZERO "offload_optimizer.device", "none|cpu|nvme");
    for (size_t i = 0; i < sizeof of_params / sizeof *of_params; i++)
        mics_keys_leave_params(keys, of_params[i]);
    mics_keys_take_offload(keys, ZERO "offload_optimizer.device");
    mics_keys_take_offload(keys, ZERO "cpu_offload");
}

/* The default was 0 up to 0.16, and is 1 since. */
static void take_clipping(struct mics_keys *keys)
{
    static const char path[] = "gradient_clipping";
    const double norm = mics_keys_number(keys, path, -1);

    if (mics_keys_is_auto(keys, path))
        return;
    if (!mics_keys_at(keys, path)) {
        mics_keys_say_absent(keys, path, MICS_TAKEN,
                             "mics-train --clip=1, the default since 0.17; before: --no-clip");
        mics_keys_set(keys, "clip", json_integer(1));
        keys->config->clips = 1;
        return;
    }
    if (norm < 0)
        mics_keys_fail(keys, "%s: expected a number, 0 or more, found %g", path, norm);
    mics_keys_take_clip(keys, path, norm);
}

static void take_betas(struct mics_keys *keys, double beta1, double beta2)
{
    static const char path[] = "optimizer.params.betas";
    const json_t *betas = mics_keys_at(keys, path);

    if (mics_keys_is_auto(keys, path))
        return;
    if (betas) {
        const json_t *first = json_array_get(betas, 0), *second = json_array_get(betas, 1);

        if (json_array_size(betas) != 2 || !json_is_number(first) || !json_is_number(second))
            mics_keys_fail(keys, "%s: expected two numbers", path);
        beta1 = json_number_value(first);
        beta2 = json_number_value(second);
        mics_keys_say(keys, path, MICS_TAKEN, "mics-train --beta1=%.12g --beta2=%.12g", beta1,
                      beta2);
    } else {
        mics_keys_say_absent(keys, path, MICS_TAKEN,
                             "mics-train --beta1=%g --beta2=%g, the default of DeepSpeed", beta1,
                             beta2);
    }
    mics_keys_set(keys, "beta1", json_real(beta1));
    mics_keys_set(keys, "beta2", json_real(beta2));
}

/* All parameters decay there, unless the program makes groups of them. */
static void take_decay(struct mics_keys *keys, double absent, const char *how)
{
    static const char path[] = "optimizer.params.weight_decay";
    const double decay = mics_keys_take(keys, path, "weight-decay", absent);

    if (decay > 0)
        mics_keys_say(keys, path, MICS_TAKEN_DIFFERENTLY, "mics-train --weight-decay=%.12g, %s",
                      decay, how);
}

static void take_adam(struct mics_keys *keys, bool named_w)
{
    static const char mode[] = "optimizer.params.adam_w_mode",
                      correction[] = "optimizer.params.bias_correction";
    const bool torch = mics_keys_bool(keys, "optimizer.params.torch_adam", false);
    const bool decoupled = named_w || mics_keys_bool(keys, mode, true);
    const double absent = torch && decoupled ? 0.01 : 0;

    keys->config->optimizer = MICS_OPT_ADAMW;
    mics_keys_say(keys, "optimizer.type", MICS_TAKEN, "mics-plan --optimizer=adamw");
    take_betas(keys, 0.9, 0.999);
    mics_keys_take(keys, "optimizer.params.eps", "eps", 1e-8);
    take_decay(keys, absent, "of matrices only");
    if (decoupled || !(mics_keys_number(keys, "optimizer.params.weight_decay", 0) > 0))
        mics_keys_say(keys, mode, MICS_TAKEN, decoupled ? "AdamW" : "without decay it is the same");
    else
        mics_keys_say(keys, mode, MICS_REFUSED, "decay is not a part of the gradient");
    if (mics_keys_bool(keys, correction, true))
        mics_keys_say(keys, correction, MICS_TAKEN, "as always");
    else
        mics_keys_say(keys, correction, MICS_REFUSED, "moments are always corrected");
}

/* WarmupLR and WarmupDecayLR may have a rate of their own, which replaces the optimizer's. The
 * default of WarmupDecayLR is such a rate, but null is none in both. */
static bool schedule_has_peak(const struct mics_keys *keys)
{
    const char *type = mics_keys_text(keys, "scheduler.type", "");
    const bool decays = strcmp(type, "WarmupDecayLR") == 0;

    return (decays || strcmp(type, "WarmupLR") == 0) &&
           (mics_keys_at(keys, peak_key) || (decays && !mics_keys_has(keys, peak_key)));
}

static void take_rate(struct mics_keys *keys)
{
    static const char path[] = "optimizer.params.lr";

    if (schedule_has_peak(keys))
        mics_keys_say(keys, path, MICS_IGNORED, "the schedule has warmup_max_lr");
    else
        mics_keys_take(keys, path, "lr", 1e-3);
}

static void take_optimizer(struct mics_keys *keys)
{
    static const char type_key[] = "optimizer.type";
    const char *type = mics_keys_text(keys, type_key, "");

    if (!mics_keys_at(keys, "optimizer")) {
        mics_keys_say_absent(keys, "optimizer", MICS_IGNORED,
                             "the program makes it: mics-plan --optimizer, mics-train --lr");
        return;
    }
    if (mics_keys_is_auto(keys, type_key))
        return;
    if (strcasecmp(type, "Adam") == 0 || strcasecmp(type, "AdamW") == 0 ||
        strcasecmp(type, "FusedAdam") == 0) {
        take_adam(keys, strcasecmp(type, "AdamW") == 0);
        take_rate(keys);
    } else if (strcasecmp(type, "Lion") == 0 || strcasecmp(type, "FusedLion") == 0) {
        keys->config->optimizer = MICS_OPT_LION;
        mics_keys_say(keys, type_key, MICS_TAKEN, "mics-plan --optimizer=lion");
        take_betas(keys, 0.9, 0.99);
        take_decay(keys, 0, "of matrices only");
        take_rate(keys);
    } else if (strcasecmp(type, "SGD") == 0) {
        keys->config->optimizer = MICS_OPT_SGD;
        mics_keys_say(keys, type_key, MICS_TAKEN, "mics-plan --optimizer=sgd");
        mics_keys_take(keys, "optimizer.params.momentum", "momentum", 0);
        take_decay(keys, 0, "of matrices only, outside of the momentum");
        take_rate(keys);
    } else if (*type) {
        mics_keys_say(keys, type_key, MICS_REFUSED, "optimizers are " MICS_OPTIMIZER_NAMES);
    } else {
        mics_keys_fail(keys, "optimizer: no type");
    }
}

static void take_steps(struct mics_keys *keys, const char *path, const char *option, double absent)
{
    const double steps = mics_keys_number(keys, path, absent);

    if (steps >= 0)
        mics_keys_take(keys, path, option, absent);
}

/* Their learning rate of update k is that of k - 2, for the first two that of 0. */
static void take_warmup(struct mics_keys *keys, bool decays)
{
    static const char steps[] = "scheduler.params.warmup_num_steps",
                      type_key[] = "scheduler.params.warmup_type",
                      floor_key[] = "scheduler.params.warmup_min_lr";
    const char *type = mics_keys_text(keys, type_key, "log");
    const double lowest = mics_keys_number(keys, floor_key, 0);

    take_steps(keys, steps, "warmup", 1000);
    mics_keys_say(keys, steps, MICS_TAKEN_DIFFERENTLY,
                  "mics-train --warmup=%llu, two updates earlier",
                  (unsigned long long)mics_keys_count(keys, steps, 0));
    if (strcmp(type, "linear") == 0)
        mics_keys_say(keys, type_key, MICS_TAKEN, "as always");
    else if (mics_keys_at(keys, type_key))
        mics_keys_say(keys, type_key, MICS_TAKEN_DIFFERENTLY,
                      "the rate rises linearly, not as the logarithm");
    else
        mics_keys_say_absent(keys, type_key, MICS_TAKEN_DIFFERENTLY,
                             "the rate rises linearly; DeepSpeed's default is the logarithm");
    if (decays)
        mics_keys_take(keys, floor_key, "min-lr", 0);
    if (lowest > 0)
        mics_keys_say(keys, floor_key, MICS_TAKEN_DIFFERENTLY,
                      decays ? "mics-train --min-lr=%.12g, but the rate rises from 0"
                             : "the rate rises from 0, not from %.12g",
                      lowest);
    else if (!decays)
        mics_keys_say(keys, floor_key, MICS_TAKEN, "the rate rises from 0");
}

static void take_scheduler(struct mics_keys *keys)
{
    static const char type_key[] = "scheduler.type", total[] = "scheduler.params.total_num_steps",
                      ratio[] = "scheduler.params.cos_min_ratio",
                      start[] = "scheduler.params.warmup_min_ratio";
    const char *type = mics_keys_text(keys, type_key, "");
    const char *kind = strcmp(type, "WarmupLR") == 0         ? "constant"
                       : strcmp(type, "WarmupDecayLR") == 0  ? "linear"
                       : strcmp(type, "WarmupCosineLR") == 0 ? "cosine"
                                                             : NULL;

    if (!mics_keys_at(keys, "scheduler"))
        mics_keys_say_absent(keys, "scheduler", MICS_IGNORED,
                             "the program makes it: mics-train --lr-schedule, --warmup, --steps");
    if (!kind) {
        mics_keys_say(keys, type_key, MICS_REFUSED,
                      "schedules are constant, linear, cosine and wsd");
        return;
    }
    mics_keys_say(keys, type_key, MICS_TAKEN, "mics-train --lr-schedule=%s", kind);
    mics_keys_set(keys, "lr-schedule", json_string(kind));
    take_warmup(keys, strcmp(kind, "linear") == 0);
    if (strcmp(kind, "constant") != 0)
        take_steps(keys, total, "steps", -1);
    if (schedule_has_peak(keys))
        mics_keys_take(keys, peak_key, "lr", 1e-3);
    if (strcmp(kind, "cosine") == 0) {
        const double peak = mics_keys_number(keys, "optimizer.params.lr", -1);
        const double share = mics_keys_number(keys, ratio, 1e-4);

        if (peak > 0) {
            mics_keys_set(keys, "min-lr", json_real(share * peak));
            mics_keys_say(keys, ratio, MICS_TAKEN, "mics-train --min-lr=%.12g", share * peak);
        } else {
            mics_keys_say(keys, ratio, MICS_IGNORED,
                          "the rate is not known: mics-train --lr, --min-lr");
        }
        mics_keys_say(keys, start, MICS_TAKEN_DIFFERENTLY, "the rate rises from 0");
    }
}

static void take_logging(struct mics_keys *keys)
{
    const uint64_t every = mics_keys_count(keys, "steps_per_print", 0);

    if (every > 0 && every <= UINT32_MAX)
        mics_keys_take(keys, "steps_per_print", "log-every", 0);
    else
        mics_keys_say(keys, "steps_per_print", MICS_IGNORED, "mics-train prints lines by time");
    if (mics_keys_at(keys, "seed")) {
        mics_keys_take(keys, "seed", "seed", 0);
        mics_keys_say(keys, "seed", MICS_TAKEN_DIFFERENTLY,
                      "mics-train --seed, of other random numbers");
    }
}

void mics_deepspeed_interpret(struct mics_keys *keys)
{
    keys->table = table;
    keys->count = sizeof table / sizeof *table;
    mics_keys_walk(keys);
    if (!has_model_ranks(keys))
        take_batch(keys);
    take_precision(keys);
    take_stage(keys);
    take_tensor_parallel(keys);
    take_offload(keys);
    take_clipping(keys);
    take_optimizer(keys);
    take_scheduler(keys);
    take_logging(keys);
}
