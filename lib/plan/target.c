/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/target.h"

#include <inttypes.h>
#include <string.h>

static const struct mics_shape *shape_of(const struct mics_plan *plan)
{
    return &plan->choice.shapes[MICS_UNIT_DENSE];
}

static uint32_t world_size(const struct mics_plan *plan)
{
    return mics_shape_world_size(shape_of(plan));
}

static bool is_one_size(const struct mics_shape *shape)
{
    return shape->p_param == shape->p_optim;
}

/* FSDP2 in groups, or DDP: more than one replica. */
static bool is_replicated(const struct mics_shape *shape)
{
    return is_one_size(shape) && shape->p_optim < mics_shape_world_size(shape);
}

static bool is_hybrid(const struct mics_shape *shape)
{
    return is_replicated(shape) && shape->p_optim > 1;
}

static bool is_flat(const struct mics_shape *shape)
{
    return is_one_size(shape) && shape->p_optim == mics_shape_world_size(shape);
}

/* accelerate has no mesh for replicas alone: DDP is another class there. */
static bool is_sharded(const struct mics_shape *shape)
{
    return is_flat(shape) || is_hybrid(shape);
}

/* DDP, ZeRO 1 to 3. */
static bool is_stage(const struct mics_shape *shape)
{
    const uint32_t n = mics_shape_world_size(shape);

    return (shape->p_param == 1 || shape->p_param == n) &&
           (shape->p_grad == 1 || shape->p_grad == n) &&
           (shape->p_optim == 1 || shape->p_optim == n) &&
           (shape->p_grad == 1 || shape->p_optim == n);
}

/* Stage 3 with zero_hpz_partition_size. */
static bool has_second_partition(const struct mics_shape *shape)
{
    const uint32_t n = mics_shape_world_size(shape);

    return shape->p_param > 1 && shape->p_param < n && shape->p_grad == n;
}

/* Parameters and gradients are whole in each rank; the optimizer is cut over all or some. */
static bool is_distributed_optimizer(const struct mics_shape *shape)
{
    return shape->p_param == 1 && shape->p_grad == 1;
}

static void write_torchrun(FILE *out, const struct mics_plan *plan)
{
    fprintf(out,
            "torchrun --nnodes=%u --nproc-per-node=%u --rdzv-backend=c10d "
            "--rdzv-endpoint=HEAD_NODE:29500",
            shape_of(plan)->nodes, shape_of(plan)->per_node);
}

/* It joins what it finds over the mesh of the parameters: FSDP 1 needed ShardedGradScaler. */
static const char fsdp2_scaler[] =
    "# scaler.scale(loss).backward(), scaler.unscale_(optimizer) before clipping,\n"
    "# scaler.step(optimizer), scaler.update()\n"
    "scaler = torch.amp.GradScaler(\"cuda\")\n";

/* Calls for a loop of one's own. A mesh of two dimensions has replicas, whose all-reduce waits for
 * the last micro-step. */
static void write_fsdp2(FILE *out, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const uint32_t shards = shape_of(plan)->p_param, replicas = world_size(plan) / shards;
    const char *device = strcmp(plan->topology->device, "host") == 0 ? "cpu" : "cuda";

    fputs("# ", out);
    write_torchrun(out, plan);
    fprintf(out,
            " train.py\n"
            "import torch\n"
            "from torch.distributed.device_mesh import init_device_mesh\n"
            "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n"
            "\n"
            "SEQ, MICRO_BATCH, MICRO_STEPS = %u, %u, %u\n"
            "%s"
            "# parameters in fp32; each layer %s\n"
            "\n\n"
            "def shard(model, layers, embedding, head):\n"
            "    \"\"\"`head`: a list of the final norm and the output; of a tied model also the\n"
            "    embedding, and `embedding` is None.\"\"\"\n",
            choice->seq, choice->micro_batch, choice->micro_steps,
            choice->dtype == MICS_F16 ? fsdp2_scaler : "",
            choice->recompute == MICS_RECOMPUTE_FULL
                ? "in torch.utils.checkpoint.checkpoint(use_reentrant=False)"
                : "without checkpointing");
    if (replicas > 1)
        fprintf(out,
                "    mesh = init_device_mesh(\"%s\", (%u, %u), "
                "mesh_dim_names=(\"replicate\", \"shard\"))\n",
                device, replicas, shards);
    else
        fprintf(out, "    mesh = init_device_mesh(\"%s\", (%u,))\n", device, shards);
    if (choice->dtype == MICS_F32)
        fputs("    policy = MixedPrecisionPolicy()\n", out);
    else
        fprintf(out,
                "    policy = MixedPrecisionPolicy(param_dtype=torch.%s, "
                "reduce_dtype=torch.float32)\n",
                choice->dtype == MICS_F16 ? "float16" : "bfloat16");
    fputs("    for layer in layers:\n"
          "        fully_shard(layer, mesh=mesh, mp_policy=policy)\n"
          "    if embedding is not None:\n"
          "        fully_shard(embedding, mesh=mesh, mp_policy=policy)\n"
          "    fully_shard(head, mesh=mesh, mp_policy=policy, reshard_after_forward=False)\n"
          "    fully_shard(model, mesh=mesh, mp_policy=policy)\n"
          "\n\n"
          "def before_micro_step(model, micro_step):\n"
          "    \"\"\"The all-reduce over the replicas waits for the last micro-step.\"\"\"\n"
          "    model.set_requires_all_reduce(micro_step == MICRO_STEPS - 1)\n",
          out);
}

/* The plug-in of activation checkpointing is a choice of the configuration that --config names. */
static void write_torchtitan(FILE *out, const struct mics_plan *plan)
{
    static const char *const checkpointing[MICS_RECOMPUTE_LEVELS] = {
        [MICS_RECOMPUTE_NONE] = "no activation checkpointing",
        [MICS_RECOMPUTE_SELECTIVE] = "SelectiveAC",
        [MICS_RECOMPUTE_FULL] = "FullAC"};
    const struct mics_plan_choice *choice = &plan->choice;

    fprintf(out, "# activation_checkpoint of the configuration: %s\n",
            checkpointing[choice->recompute]);
    write_torchrun(out, plan);
    fprintf(out,
            " -m torchtitan.train --module MODULE --config CONFIG \\\n"
            "    --parallelism.data_parallel_replicate_degree %u \\\n"
            "    --parallelism.data_parallel_shard_degree %u \\\n"
            "    --parallelism.fsdp_reshard_after_forward always \\\n"
            "    --training.local_batch_size %u \\\n"
            "    --training.global_batch_size %" PRIu64 " \\\n"
            "    --training.seq_len %u \\\n"
            "    --training.mixed_precision_param %s \\\n"
            "    --training.mixed_precision_reduce float32 \\\n"
            "    --training.max_norm %s\n",
            world_size(plan) / shape_of(plan)->p_param, shape_of(plan)->p_param,
            choice->micro_batch, plan->global_batch, choice->seq,
            choice->dtype == MICS_BF16 ? "bfloat16" : "float32", choice->clip ? "1.0" : "inf");
}

static void write_transformers(FILE *out, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const bool bf16 = choice->dtype == MICS_BF16;

    fputs("# ", out);
    write_torchrun(out, plan);
    fprintf(out,
            " train.py\n"
            "from transformers import TrainingArguments\n"
            "from transformers.distributed import DistributedConfig\n"
            "\n"
            "# for from_pretrained(..., distributed_config=distributed_config)\n"
            "distributed_config = DistributedConfig(\n"
            "    fsdp_size=%u, dp_replicate_size=%u, fsdp_mixed_precision=%s\n"
            ")\n"
            "training_arguments = TrainingArguments(\n"
            "    output_dir=\"out\",\n"
            "    per_device_train_batch_size=%u,\n"
            "    gradient_accumulation_steps=%u,\n"
            "    max_grad_norm=%s,\n"
            "    gradient_checkpointing=%s,\n"
            "%s)\n",
            shape_of(plan)->p_param, world_size(plan) / shape_of(plan)->p_param,
            bf16 ? "True" : "False", choice->micro_batch, choice->micro_steps,
            choice->clip ? "1.0" : "0.0",
            choice->recompute == MICS_RECOMPUTE_FULL ? "True" : "False",
            choice->dtype == MICS_F16 ? "    fp16=True,\n" : "");
}

static void write_accelerate(FILE *out, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;

    fprintf(out,
            "# on each node: ACCELERATE_GRADIENT_ACCUMULATION_STEPS=%u accelerate launch "
            "--config_file THIS_FILE --machine_rank RANK --main_process_ip HEAD_NODE train.py\n"
            "# per_device_train_batch_size=%u; seq_len=%u\n"
            "compute_environment: LOCAL_MACHINE\n"
            "distributed_type: FSDP\n"
            "mixed_precision: '%s'\n"
            "num_machines: %u\n"
            "num_processes: %u\n"
            "main_process_port: 29500\n"
            "rdzv_backend: static\n"
            "fsdp_config:\n"
            "  fsdp_version: 2\n"
            "  fsdp_reshard_after_forward: true\n"
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
            "  fsdp_activation_checkpointing: %s\n"
            "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
            "parallelism_config:\n"
            "  parallelism_config_dp_replicate_size: %u\n"
            "  parallelism_config_dp_shard_size: %u\n",
            choice->micro_steps, choice->micro_batch, choice->seq,
            choice->dtype == MICS_BF16  ? "bf16"
            : choice->dtype == MICS_F16 ? "fp16"
                                        : "no",
            shape_of(plan)->nodes, world_size(plan),
            choice->recompute == MICS_RECOMPUTE_FULL ? "true" : "false",
            world_size(plan) / shape_of(plan)->p_param, shape_of(plan)->p_param);
}

static void write_megatron(FILE *out, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const uint32_t optimizer = shape_of(plan)->p_optim;

    write_torchrun(out, plan);
    fprintf(out,
            " pretrain_gpt.py \\\n"
            "    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \\\n"
            "    --micro-batch-size %u --global-batch-size %" PRIu64 " --seq-length %u \\\n"
            "    --overlap-grad-reduce --clip-grad %s",
            choice->micro_batch, plan->global_batch, choice->seq, choice->clip ? "1.0" : "0.0");
    if (optimizer > 1)
        fputs(" \\\n    --use-distributed-optimizer --overlap-param-gather", out);
    if (optimizer > 1 && optimizer < world_size(plan))
        fprintf(out, " --num-distributed-optimizer-instances %u", world_size(plan) / optimizer);
    if (choice->optimizer == MICS_OPT_SGD)
        fputs(" \\\n    --optimizer sgd", out);
    if (choice->dtype == MICS_BF16)
        fputs(" \\\n    --bf16", out);
    if (choice->dtype == MICS_F16)
        fputs(" \\\n    --fp16 --accumulate-allreduce-grads-in-fp32 --initial-loss-scale 65536 "
              "--min-loss-scale 1 \\\n    --loss-scale-window 1000 --hysteresis 2",
              out);
    if (choice->recompute == MICS_RECOMPUTE_FULL)
        fputs(" \\\n    --recompute-granularity full --recompute-method uniform "
              "--recompute-num-layers 1",
              out);
    fputs("\n", out);
}

static const char deepspeed_fp16[] =
    "\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 16,\n"
    "           \"loss_scale_window\": 1000, \"hysteresis\": 2, \"min_loss_scale\": 1}";

static const char deepspeed_offload[] =
    ",\n                        \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}";

static void write_deepspeed(FILE *out, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const struct mics_shape *shape = shape_of(plan);
    const bool offloads = choice->offload_piece > 0;
    /* One rank has nothing to cut, but offloads in stages 1 to 3 only. */
    const int stage = offloads && shape->p_optim == 1
                          ? 2
                          : (shape->p_param > 1) + (shape->p_grad > 1) + (shape->p_optim > 1);
    char second_partition[64] = "";

    if (choice->secondary_shards)
        snprintf(second_partition, sizeof second_partition, ", \"zero_hpz_partition_size\": %u",
                 shape->p_param);

    fprintf(out,
            "{\n"
            "  \"train_batch_size\": %" PRIu64 ",\n"
            "  \"train_micro_batch_size_per_gpu\": %u,\n"
            "  \"gradient_accumulation_steps\": %u,\n"
            "  \"gradient_clipping\": %s,\n"
            "  %s,\n"
            "  \"communication_data_type\": \"%s\",\n"
            "  \"zero_optimization\": {\"stage\": %d, \"overlap_comm\": true%s%s}\n"
            "}\n",
            plan->global_batch, choice->micro_batch, choice->micro_steps,
            choice->clip ? "1.0" : "0.0",
            choice->dtype == MICS_F16    ? deepspeed_fp16
            : choice->dtype == MICS_BF16 ? "\"bf16\": {\"enabled\": true}"
                                         : "\"bf16\": {\"enabled\": false}",
            choice->grad_dtype == MICS_F16    ? "fp16"
            : choice->grad_dtype == MICS_BF16 ? "bf16"
                                              : "fp32",
            stage, second_partition, offloads ? deepspeed_offload : "");
}

/* CPUOffloadPolicy, fsdp_offload_params, --training.enable_cpu_offload. */
static const char offload_whole[] =
    "FSDP moves parameters and gradients to the host with the states, and copies parameters back "
    "in each pass";
static const char offload_megatron[] =
    "--optimizer-cpu-offload updates on the host's processors, whose rate is not known";
static const char offload_deepspeed[] =
    "the optimizer is deepspeed.ops.adam.DeepSpeedCPUAdam, or DeepSpeedCPULion, which DeepSpeed "
    "makes of \"optimizer\" in its configuration, AdamW or Lion";

static const char torchtitan_optimizers[] = "torchtitan has Adam, AdamW and Muon";

static const struct mics_target targets[] = {
    {.name = "fsdp2",
     .trainer = MICS_TRAINER_FSDP2,
     .ways = {{is_one_size, MICS_ACCUMULATES_SHARDS, false}},
     .way_count = 1,
     .recomputes = {true, false, true},
     .grad_dtype = MICS_F32,
     .no_offload = offload_whole,
     .write = write_fsdp2},
    {.name = "torchtitan",
     .trainer = MICS_TRAINER_TORCHTITAN,
     .defers = "torchtitan 0.3.0 reduces over the replicas in each micro-step; its main branch "
               "once per step, as planned",
     .ways = {{is_one_size, MICS_ACCUMULATES_SHARDS, false}},
     .way_count = 1,
     .recomputes = {true, true, true},
     .grad_dtype = MICS_F32,
     .no_f16 = "torchtitan has no loss scale: bf16 or f32",
     .no_optimizer =
         {[MICS_OPT_SGD] = torchtitan_optimizers, [MICS_OPT_LION] = torchtitan_optimizers},
     .no_offload = offload_whole,
     .write = write_torchtitan},
    {.name = "transformers",
     .trainer = MICS_TRAINER_TRANSFORMERS,
     .ways = {{is_replicated, MICS_ACCUMULATES_SHARDS, false},
              {is_flat, MICS_ACCUMULATES_WHOLE, false}},
     .way_count = 2,
     .recomputes = {true, false, true},
     .grad_dtype = MICS_F32,
     .f16_differs = "its fp16 is autocast: parameters are gathered in fp32, twice the bytes that "
                    "are planned",
     .no_offload = offload_whole,
     .write = write_transformers},
    {.name = "accelerate",
     .trainer = MICS_TRAINER_ACCELERATE,
     .ways = {{is_sharded, MICS_ACCUMULATES_WHOLE, false}},
     .way_count = 1,
     .recomputes = {true, false, true},
     .grad_dtype = MICS_BF16,
     .no_offload = offload_whole,
     .write = write_accelerate},
    {.name = "megatron",
     .trainer = MICS_TRAINER_MEGATRON,
     .ways = {{is_distributed_optimizer, MICS_ACCUMULATES_SHARDS, false}},
     .way_count = 1,
     .recomputes = {true, false, true},
     .grad_dtype = MICS_F32,
     .no_offload = offload_megatron,
     .no_optimizer = {[MICS_OPT_LION] = "Megatron-LM has Adam, SGD and Muon"},
     .writes_optimizer = true,
     .write = write_megatron},
    {.name = "deepspeed",
     .trainer = MICS_TRAINER_DEEPSPEED,
     .launcher = "deepspeed",
     .ways = {{has_second_partition, MICS_ACCUMULATES_SHARDS, true},
              {is_stage, MICS_ACCUMULATES_SHARDS, false}},
     .way_count = 2,
     .recomputes = {true, false, true},
     .grad_dtype = MICS_BF16,
     .offloads = offload_deepspeed,
     .write = write_deepspeed},
};

const struct mics_target *mics_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}
