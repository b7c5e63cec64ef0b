/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer_memory.c - the memory of FSDP2, Megatron-LM's distributed optimizer and DeepSpeed's ZeRO.
 *
 * FSDP2 (torch 2.15, torch/distributed/fsdp/_fully_shard): each parameter is cut by its first
 * dimension. Sharded parameters, gradients and states of the optimizer are fp32. A group of
 * parameters is gathered into one buffer and copied into the parameters; the buffer of the next
 * group is gathered meanwhile. Gradients are computed in the type of the gathered parameters and
 * copied into one buffer of the type of the reduction, which lives until the next group's. Groups
 * are each layer, the embedding, and the final norm with the head; if the head is tied all three of
 * the latter are one, which is reduced at the end. The last group keeps its parameters from the
 * forward pass on, but not in torchtitan with fsdp_reshard_after_forward always.
 *
 * Megatron-LM (core/distributed/param_and_grad_buffer.py, core/optimizer/distrib_optimizer.py):
 * parameters and fp32 gradients lie in buffers of their own, in which they are gathered and
 * reduced.
 *
 * DeepSpeed 0.19 (runtime/zero/stage_1_and_2.py, stage3.py, config.py): with the default sizes of
 * its buckets.
 *
 * Activations are those that mics counts and what the trainer's own modules keep in addition. The
 * logits are computed at once, in contrast to mics: the loss converts them to fp32, and its
 * gradient has a copy of its own.
 */
#include "plan/trainer_memory.h"

#include "base/num.h"
#include "model/family.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/trainer_exchanges.h"

#include <string.h>

static const char *const names[MICS_TRAINERS] = {
    [MICS_TRAINER_MICS] = "mics",
    [MICS_TRAINER_FSDP2] = "fsdp2",
    [MICS_TRAINER_TORCHTITAN] = "torchtitan",
    [MICS_TRAINER_TRANSFORMERS] = "transformers",
    [MICS_TRAINER_ACCELERATE] = "accelerate",
    [MICS_TRAINER_MEGATRON] = "megatron",
    [MICS_TRAINER_DEEPSPEED] = "deepspeed",
};

const char *mics_trainer_name(enum mics_trainer trainer)
{
    return names[trainer];
}

bool mics_trainer_parse(const char *name, enum mics_trainer *out)
{
    for (int i = MICS_TRAINER_MICS + 1; i < MICS_TRAINERS; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum mics_trainer)i;
            return true;
        }
    return false;
}

/* How a trainer computes. */
struct traits {
    bool eager_norms;     /* root mean square norms keep a copy of their input in fp32 */
    bool fused_swiglu;    /* keeps no product of gate and up */
    bool holds_logits;    /* the loop has a reference to the logits during the backward pass */
    bool in_place_loss;   /* one copy of the logits in fp32, which becomes its gradient */
    bool reshards_head;   /* gathers the head again for its backward pass */
    bool fused_optimizer; /* updates without temporary tensors */
};

static const struct traits traits_of[MICS_TRAINERS] = {
    [MICS_TRAINER_FSDP2] = {.eager_norms = true, .holds_logits = true},
    [MICS_TRAINER_TORCHTITAN] = {.reshards_head = true, .fused_optimizer = true},
    [MICS_TRAINER_TRANSFORMERS] = {.eager_norms = true, .fused_optimizer = true},
    [MICS_TRAINER_ACCELERATE] = {.eager_norms = true, .holds_logits = true},
    [MICS_TRAINER_MEGATRON] = {.fused_swiglu = true,
                               .in_place_loss = true,
                               .fused_optimizer = true},
    [MICS_TRAINER_DEEPSPEED] = {.eager_norms = true, .fused_optimizer = true},
};

/* Bytes of what the passes keep. */
struct activations {
    uint64_t saved;   /* of all layers and of what they hand on, until the backward pass */
    uint64_t scratch; /* during the backward pass of a layer, with what it computes again */
    uint64_t loss;    /* with logits and loss: most at once */
    uint64_t logits;  /* of these what the backward pass of the head has */
};

/* A stage of a block at a level of recomputation, with what the trainer keeps in addition. */
static struct mics_stage_bytes block_bytes(const struct mics_model *model,
                                           const struct mics_plan_choice *choice, uint32_t stage,
                                           enum mics_recompute level)
{
    const struct mics_model_config *config = &model->config;
    const struct traits *traits = &traits_of[choice->trainer];
    const bool expert = mics_unit_kind_of(model, model->stages[stage].unit) == MICS_UNIT_EXPERT;
    const uint64_t rows = (uint64_t)choice->micro_batch * choice->seq;
    const uint64_t width = mics_dtype_bytes(choice->dtype);
    struct mics_batch batch = mics_choice_batch(choice, MICS_UNIT_DENSE, true);
    struct mics_stage_bytes bytes;

    batch.recompute = level;
    model->ops->stage_bytes(model, &batch, stage, &bytes);
    if (!model->family)
        return bytes;
    const bool gated = expert || model->family->mlp == MICS_MLP_SWIGLU;
    const bool sparse = mics_model_is_sparse(model, model->stages[stage].layer);
    const uint64_t inner = expert   ? (uint64_t)config->expert_inner * config->n_expert_used
                           : sparse ? config->shared_inner
                                    : config->n_inner;
    if (gated)
        bytes.scratch += 2 * rows * inner * width; /* gradients of gate and of up */
    if (level != MICS_RECOMPUTE_NONE)
        return bytes;
    if (gated && !traits->fused_swiglu)
        bytes.saved += rows * inner * width; /* silu(gate) */
    if (traits->eager_norms && !expert && model->family->norm == MICS_NORM_RMS) {
        const uint64_t heads = (uint64_t)(config->n_head + config->n_kv_head) * config->head_dim;
        const uint64_t normed = model->family->block[MICS_BLOCK_Q_NORM] ? heads : 0;

        /* In place of the input one of fp32, and the result before it is scaled. */
        bytes.saved += rows * (2 * (uint64_t)config->n_embd + normed) * sizeof(float);
    }
    return bytes;
}

/* The stages of a layer, at the level of the choice. */
static struct mics_stage_bytes layer_bytes(const struct mics_model *model,
                                           const struct mics_plan_choice *choice, uint32_t layer)
{
    struct mics_stage_bytes sum = {0, 0};
    uint64_t again = 0;

    for (uint32_t i = 0; i < model->stage_count; i++) {
        if (model->stages[i].kind != MICS_STAGE_BLOCK || model->stages[i].layer != layer)
            continue;
        const struct mics_stage_bytes kept = block_bytes(model, choice, i, choice->recompute);
        const struct mics_stage_bytes all = block_bytes(model, choice, i, MICS_RECOMPUTE_NONE);

        /* PyTorch computes a layer again as a whole, with all that it would have kept. */
        sum.saved += kept.saved;
        sum.scratch = mics_max_u64(sum.scratch, all.scratch);
        again += all.saved - kept.saved;
    }
    sum.scratch += again;
    return sum;
}

static void count_logits(const struct mics_model *model, const struct mics_plan_choice *choice,
                         struct activations *out)
{
    const struct traits *traits = &traits_of[choice->trainer];
    const uint64_t rows = (uint64_t)choice->micro_batch * choice->seq;
    const uint64_t logits = rows * model->config.vocab_size;
    const uint64_t width = mics_dtype_bytes(choice->dtype), wide = sizeof(float);
    const bool converts = choice->dtype != MICS_F32;

    /* fp32: the logarithms of probabilities, their gradient and that of the logits. */
    out->loss = logits * (traits->in_place_loss ? wide + (converts ? width : 0) : 3 * wide);
    out->logits = logits * width;
    if (traits->holds_logits) {
        out->loss += logits * width;
        out->logits += logits * width;
    }
    /* The input of the final norm is counted with the layers. */
    const uint64_t norm = rows * model->config.n_embd * (width + (traits->eager_norms ? wide : 0));
    out->loss += norm;
    out->logits += norm;
}

static struct activations count_activations(const struct mics_model *model,
                                            const struct mics_plan_choice *choice)
{
    const struct mics_batch batch = mics_choice_batch(choice, MICS_UNIT_DENSE, true);
    struct activations out = {0};

    for (uint32_t layer = 0; layer < model->config.n_layer; layer++) {
        const struct mics_stage_bytes bytes = layer_bytes(model, choice, layer);

        out.saved += bytes.saved;
        out.scratch = mics_max_u64(out.scratch, bytes.scratch);
    }
    for (uint32_t b = 0; b < model->boundary_count; b++) {
        struct mics_boundary_bytes bytes;

        model->ops->boundary_bytes(model, &batch, b, &bytes);
        out.scratch += bytes.grad;
        for (uint32_t i = 0; i < model->stage_count; i++)
            out.saved += model->stages[i].hands_on >> b & 1 ? bytes.value : 0;
    }
    count_logits(model, choice, &out);
    return out;
}

/* Elements of a unit where each parameter is cut by its first dimension into `ranks` equal parts;
 * those of experts are one parameter for all experts of a layer. */
static uint64_t padded_elements(const struct mics_model *model, const struct mics_unit *unit,
                                uint64_t ranks)
{
    uint64_t elements = 0;

    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *tensor = &unit->tensors[i];
        const uint64_t count =
            tensor->rank == 2 ? tensor->shape[0] * tensor->shape[1] : tensor->shape[0];

        elements += unit->kind == MICS_UNIT_EXPERT
                        ? count
                        : mics_round_up(tensor->shape[0], ranks) * (count / tensor->shape[0]);
    }
    if (unit->kind == MICS_UNIT_EXPERT && model->config.n_expert > 0)
        elements = elements / model->config.n_expert * mics_round_up(model->config.n_expert, ranks);
    return elements;
}

/* Elements of FSDP2's groups of parameters. */
struct groups {
    uint64_t embedding; /* 0: in the head's */
    uint64_t head;
    uint64_t layer; /* the largest */
    uint64_t all;
    uint64_t matrix; /* the embedding's own, which the gradient of a tied head is added to */
};

static struct groups count_groups(const struct mics_model *model, uint64_t ranks)
{
    const uint32_t first = model->stages[0].unit, last = model->stages[model->stage_count - 1].unit;
    struct groups out = {0};
    uint64_t layer = 0;

    for (uint32_t u = 0; u < model->unit_count; u++)
        out.all += padded_elements(model, &model->units[u], ranks);
    out.head = padded_elements(model, &model->units[last], ranks);
    if (first != last)
        out.embedding = padded_elements(model, &model->units[first], ranks);
    out.matrix = (uint64_t)model->config.vocab_size * model->config.n_embd;
    for (uint32_t i = 1; i + 1 < model->stage_count; i++) {
        const struct mics_stage *stage = &model->stages[i];

        if (stage->part == 0)
            layer = 0;
        if (stage->unit != MICS_NO_UNIT)
            layer += padded_elements(model, &model->units[stage->unit], ranks);
        out.layer = mics_max_u64(out.layer, layer);
    }
    return out;
}

/* What is allocated at one moment of a step, besides parameter and optimizer shards. */
struct moment {
    const char *scratch_name;
    uint64_t gathered, grads, reduced, saved, scratch;
};

static uint64_t moment_bytes(const struct moment *moment)
{
    return moment->gathered + moment->grads + moment->reduced + moment->saved + moment->scratch;
}

/* The regions as they are at the moment that takes most. */
static void set_peak(const struct moment *moments, size_t count, struct mics_memory *out)
{
    const struct moment *peak = &moments[0];

    for (size_t i = 1; i < count; i++)
        if (moment_bytes(&moments[i]) > moment_bytes(peak))
            peak = &moments[i];
    out->regions[MICS_REGION_GRAD].bytes = peak->grads;
    out->regions[MICS_REGION_PARAM_SLOT].bytes = peak->gathered;
    out->regions[MICS_REGION_GRAD_SLOT].bytes = peak->reduced;
    out->regions[MICS_REGION_SAVED].bytes = peak->saved;
    out->regions[MICS_REGION_SCRATCH] =
        (struct mics_region){.name = peak->scratch_name, .bytes = peak->scratch};
}

static const char loss_name[] = "logits and loss", logits_name[] = "gradients of logits",
                  layer_name[] = "backward pass of a layer",
                  embedding_name[] = "gradients of the embedding",
                  update_name[] = "temporaries of the update";

/* The type that FSDP2 reduces gradients in; without mixed precision that of the parameters. */
static uint64_t reduce_width(const struct mics_plan_choice *choice)
{
    return mics_dtype_bytes(choice->dtype == MICS_F32 ? MICS_F32 : choice->grad_dtype);
}

uint64_t mics_trainer_whole_grads(const struct mics_model *model,
                                  const struct mics_plan_choice *choice)
{
    if (!choice->whole_grads || choice->micro_steps == 1)
        return 0;
    return count_groups(model, 1).all * reduce_width(choice);
}

/* FSDP2, with sizes in bytes. */
struct fsdp2 {
    uint64_t layer, head, embedding, matrix;     /* gathered parameters; their gradients likewise */
    uint64_t layer_sum, head_sum, embedding_sum; /* gradients in the buffer of the reduction */
    uint64_t flat;                   /* the buffer that the next layer is gathered into */
    uint64_t earlier;                /* gradients that earlier micro-steps have left */
    uint64_t grads;                  /* those at the end of the last backward pass */
    uint64_t params, states, master; /* shards of a rank; the parameters are the master themselves
                                        where they are cut as the optimizer is */
    bool tied;
};

static struct fsdp2 count_fsdp2(const struct mics_model *model,
                                const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    const uint64_t p = shape->p_param, wide = sizeof(float);
    const uint64_t width = mics_dtype_bytes(choice->dtype);
    const bool one_size = p == shape->p_optim;
    const uint64_t reduce = reduce_width(choice);
    const bool replicated = shape->p_grad < mics_shape_world_size(shape);
    struct groups groups = count_groups(model, p);
    const uint64_t shard = mics_ceil_div(groups.all, shape->p_grad);
    const uint64_t optimized = mics_ceil_div(groups.all, shape->p_optim);
    /* Whole gradients are added up in the type of the reduction. What is reduced is the memory of
     * the shards; with another type than theirs replicas keep it beside. */
    const uint64_t whole = mics_trainer_whole_grads(model, choice);
    /* Embedding and head side by side. */
    if (mics_trainer_exchange_times(mics_trainer_exchanges(choice->trainer), model,
                                    model->stages[0].unit) > 1)
        groups.head += groups.matrix;
    struct fsdp2 out = {
        .layer = groups.layer * width,
        .head = groups.head * width,
        .embedding = groups.embedding * width,
        .matrix = groups.matrix * width,
        .layer_sum = groups.layer * reduce,
        .head_sum = groups.head * reduce,
        .embedding_sum = groups.embedding * reduce,
        .flat = p > 1 ? groups.layer * width : 0,
        .grads = shard * wide + (replicated && reduce != wide ? shard * reduce : 0),
        .params = mics_ceil_div(groups.all, p) * (one_size ? wide : width),
        .states = optimized * wide * mics_choice_states(choice),
        .master = one_size ? 0 : optimized * wide,
        .tied = groups.embedding == 0,
    };

    if (choice->micro_steps > 1)
        out.earlier = whole > 0 ? whole : shard * (replicated ? reduce : wide);
    out.grads += whole;
    return out;
}

static void fsdp2_memory(const struct mics_model *model, const struct mics_plan_choice *choice,
                         struct mics_memory *out)
{
    const struct traits *traits = &traits_of[choice->trainer];
    const struct activations acts = count_activations(model, choice);
    const struct fsdp2 f = count_fsdp2(model, choice);
    const uint64_t layers = model->config.n_layer;
    /* A tied head stays to the end, its gradient, too. */
    const uint64_t left = f.tied ? f.head : 0;
    /* With torch 2.15 a tied model of 16384 x 512 had so much more after the first micro-step, one
     * of 2048 x 256 had not: counted for all, since too little fails. */
    const uint64_t pending =
        f.tied && choice->micro_steps > 1 && !choice->whole_grads ? f.head_sum : 0;
    const struct moment moments[] = {
        {loss_name, traits->reshards_head && !f.tied ? 0 : f.head, f.earlier, pending, acts.saved,
         acts.loss},
        {logits_name, f.head + f.flat, f.earlier, f.head + pending, acts.saved, acts.logits},
        {logits_name, f.flat, f.earlier, f.tied ? pending : f.head + f.head_sum, acts.saved, 0},
        {layer_name, f.layer + f.flat + left, f.earlier,
         f.layer + (f.tied ? left + pending : f.head_sum), acts.saved, acts.scratch},
        {layer_name, f.layer + mics_max_u64(f.flat, f.embedding) + left, f.grads,
         f.layer + f.layer_sum + left, acts.saved / layers, acts.scratch},
        {embedding_name, f.embedding + left, f.grads,
         f.embedding + left + (f.tied ? f.matrix : 0) + f.layer_sum, 0, 0},
        {embedding_name, 0, f.grads, f.tied ? f.head + f.head_sum : f.embedding + f.embedding_sum,
         0, 0},
        {update_name, 0, f.grads, 0, 0,
         traits->fused_optimizer ? 0 : f.states / mics_choice_states(choice)},
    };

    out->regions[MICS_REGION_PARAM].bytes = f.params;
    out->regions[MICS_REGION_OPTIM].bytes = f.states + f.master;
    set_peak(moments, sizeof moments / sizeof *moments, out);
}

static uint64_t all_elements(const struct mics_model *model)
{
    return count_groups(model, 1).all;
}

/* fp32 values of the optimizer: states, and a master of other parameters. */
static uint64_t optimizer_bytes(const struct mics_plan_choice *choice, uint64_t elements)
{
    return elements * sizeof(float) *
           (mics_choice_states(choice) + (choice->dtype != MICS_F32 ? 1 : 0));
}

static void megatron_memory(const struct mics_model *model, const struct mics_plan_choice *choice,
                            struct mics_memory *out)
{
    const struct activations acts = count_activations(model, choice);
    const uint64_t elements = all_elements(model);
    const uint64_t p = choice->shapes[MICS_UNIT_DENSE].p_optim;
    const uint64_t grads = elements * sizeof(float);
    const struct moment moments[] = {
        {loss_name, 0, grads, 0, acts.saved, acts.loss},
        {layer_name, 0, grads, 0, acts.saved, acts.scratch},
    };

    out->regions[MICS_REGION_PARAM].bytes = elements * mics_dtype_bytes(choice->dtype);
    out->regions[MICS_REGION_OPTIM].bytes = optimizer_bytes(choice, mics_ceil_div(elements, p));
    set_peak(moments, sizeof moments / sizeof *moments, out);
}

/* Defaults of DeepSpeed's zero_optimization, in elements. */
static const uint64_t reduce_bucket_size = 500000000, prefetch_bucket_size = 50000000,
                      max_live_parameters = 1000000000, sub_group_size = 1000000000;

/* Where the host updates: what the device needs for the copies of gradients. */
static uint64_t host_copy_bytes(const struct mics_model *model,
                                const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    const struct groups groups = count_groups(model, 1);

    if (shape->p_param == 1)
        return groups.matrix * mics_dtype_bytes(choice->dtype);
    return mics_ceil_div(mics_min_u64(groups.all, reduce_bucket_size), shape->p_grad) *
           (mics_dtype_bytes(choice->dtype) + sizeof(float));
}

/* Stage 3 keeps gathered parameters as long as they are not more than max_live_parameters, and
 * gathers a bucket ahead. Gradients are reduced from a bucket, stages 1 and 2 have two of them
 * where communication overlaps. The update has gradients in fp32. With zero_hpz_partition_size each
 * parameter that a forward pass releases for the first time in a step leaves a secondary shard,
 * beside the primary one, until the end of the step (_partition_param_sec(),
 * invalidate_secondary_tensor()).
 *
 * With offload_optimizer masters, states and gradients are in host memory. Stages 1 and 2 add
 * gradients up in a buffer of the largest parameter, stage 3 converts what a bucket leaves. */
static void deepspeed_memory(const struct mics_model *model, const struct mics_plan_choice *choice,
                             struct mics_memory *out)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    const struct activations acts = count_activations(model, choice);
    const uint64_t elements = all_elements(model), width = mics_dtype_bytes(choice->dtype);
    const uint64_t wide = sizeof(float), optimized = mics_ceil_div(elements, shape->p_optim);
    const bool on_host = mics_choice_updates_on_host(choice);
    const bool stage3 = shape->p_param > 1, zero = shape->p_optim > 1 || on_host;
    const uint64_t largest =
        mics_max_u64(count_groups(model, 1).layer, count_groups(model, 1).head);
    const uint64_t grads = mics_ceil_div(elements, shape->p_grad) * (zero ? width : wide + width);
    const uint64_t gathered =
        !stage3 ? 0
                : width * mics_min_u64(elements, mics_max_u64(largest, max_live_parameters) +
                                                     prefetch_bucket_size);
    const uint64_t bucket =
        zero ? (stage3 ? 1 : 2) * width * mics_min_u64(elements, reduce_bucket_size) : 0;
    const uint64_t update =
        width == wide || !zero
            ? 0
            : wide * (stage3 ? mics_min_u64(optimized, sub_group_size) : optimized);
    const uint64_t copied = on_host ? host_copy_bytes(model, choice) : 0;
    /* Stage 1 adds up whole gradients on the device. */
    const uint64_t kept = on_host && (shape->p_grad > 1 || shape->p_optim == 1) ? 0 : grads;
    const struct moment moments[] = {
        {loss_name, gathered, kept, bucket + copied, acts.saved, acts.loss},
        {layer_name, gathered, kept, bucket + copied, acts.saved, acts.scratch},
        {update_name, 0, kept, bucket + copied, 0, on_host ? 0 : update},
    };

    out->regions[MICS_REGION_PARAM].bytes = mics_ceil_div(elements, shape->p_param) * width;
    if (choice->secondary_shards)
        out->regions[MICS_REGION_PARAM].bytes += optimized * width;
    if (on_host)
        out->offload_bytes = optimized * mics_host_state_bytes(choice);
    else
        out->regions[MICS_REGION_OPTIM].bytes = optimizer_bytes(choice, optimized);
    set_peak(moments, sizeof moments / sizeof *moments, out);
}

/* Tokens and targets of a micro-batch, as 64-bit numbers. */
static uint64_t batch_bytes(const struct mics_plan_choice *choice)
{
    return 2 * (uint64_t)choice->micro_batch * choice->seq * sizeof(int64_t);
}

void mics_trainer_memory(const struct mics_model *model, const struct mics_plan_choice *choice,
                         struct mics_memory *out)
{
    if (choice->trainer == MICS_TRAINER_MEGATRON)
        megatron_memory(model, choice, out);
    else if (choice->trainer == MICS_TRAINER_DEEPSPEED)
        deepspeed_memory(model, choice, out);
    else
        fsdp2_memory(model, choice, out);
    out->regions[MICS_REGION_BATCH].bytes = batch_bytes(choice);
}
