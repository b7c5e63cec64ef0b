/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - regions as sums of what the units, slots and stages declare. */
#include "plan/memory.h"

#include "base/num.h"
#include "base/units.h"
#include "comm/comm.h"
#include "plan/gpu_memory.h"
#include "plan/schedule/schedule.h"
#include "plan/trainer_memory.h"
#include "topology/nccl_cost.h"

#include <string.h>

/* fp32 values per element of an optimizer shard: the states, the master, and what is exchanged for
 * outer steps during the step after them. */
static uint32_t optimizer_values(const struct mics_plan_choice *choice)
{
    return mics_choice_states(choice) + choice->outer_overlap + (choice->dtype != MICS_F32);
}

static uint64_t shard_bytes(const struct mics_model *model, const struct mics_plan_choice *choice,
                            enum mics_region_kind region, uint32_t unit)
{
    struct mics_layout layout = mics_choice_layout(model, choice, unit);

    if (region == MICS_REGION_PARAM)
        return mics_layout_param_shard(&layout) * mics_dtype_bytes(choice->dtype);
    if (region == MICS_REGION_GRAD)
        return mics_layout_grad_shard(&layout) * sizeof(float);
    return mics_layout_optim_shard(&layout) * sizeof(float) * optimizer_values(choice);
}

/* The shards of all units, of one kind. */
static uint64_t all_shards_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice,
                                 enum mics_region_kind region)
{
    uint64_t bytes = 0;

    for (uint32_t u = 0; u < model->unit_count; u++)
        bytes += shard_bytes(model, choice, region, u);
    return bytes;
}

uint64_t mics_choice_state_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, enum mics_unit_kind kind)
{
    uint64_t bytes = 0;

    for (uint32_t u = 0; u < model->unit_count; u++)
        for (int region = MICS_REGION_PARAM;
             model->units[u].kind == kind && region <= MICS_REGION_OPTIM; region++)
            bytes += shard_bytes(model, choice, (enum mics_region_kind)region, u);
    return bytes;
}

uint64_t mics_offload_slot_count(const struct mics_model *model,
                                 const struct mics_plan_choice *choice)
{
    uint64_t count = 0;

    for (uint32_t u = 0; u < model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(model, choice, u);

        count = mics_max_u64(count, mics_min_u64(choice->offload_piece, layout.optim_piece));
    }
    return mics_round_up(count, MICS_OFFLOAD_PIECE_MIN);
}

uint64_t mics_offload_slot_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice)
{
    return mics_offload_slot_count(model, choice) * sizeof(float) *
           mics_choice_offload_values(choice);
}

/* The optimizer's states leave the device, but for the pieces that are being updated. */
static void offload(const struct mics_model *model, const struct mics_plan_choice *choice,
                    struct mics_memory *memory)
{
    struct mics_region *region = &memory->regions[MICS_REGION_OPTIM];

    if (choice->offload_piece == 0)
        return;
    memory->offload_bytes = region->bytes;
    region->bytes = MICS_OFFLOAD_SLOTS * mics_offload_slot_bytes(model, choice);
    region->name = "optimizer pieces";
}

/* Values of the largest of `parts` parts of an optimizer shard with its states, as a checkpoint
 * stores them, of the units that use the groups of `kind`. */
static uint64_t checkpoint_part(const struct mics_model *model,
                                const struct mics_plan_choice *choice, enum mics_unit_kind kind,
                                uint32_t parts)
{
    uint64_t elements = 0;

    for (uint32_t u = 0; u < model->unit_count; u++) {
        if (mics_choice_groups(choice, model->units[u].kind) != kind)
            continue;
        const struct mics_layout layout = mics_choice_layout(model, choice, u);

        elements += mics_ceil_div(mics_layout_optim_shard(&layout), parts);
    }
    return elements * (1 + mics_choice_states(choice));
}

/* Values of the parts that a rank writes, of units of all kinds. */
static uint64_t checkpoint_parts(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, uint32_t parts)
{
    uint64_t values = 0;

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        values += checkpoint_part(model, choice, (enum mics_unit_kind)kind, parts);
    return values;
}

uint64_t mics_choice_shard_bytes(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, enum mics_unit_kind kind)
{
    return checkpoint_part(model, choice, kind, 1) * sizeof(float);
}

uint32_t mics_choice_checkpoint_parts(const struct mics_model *model,
                                      const struct mics_plan_choice *choice)
{
    const uint64_t least_bytes = (uint64_t)1 << 20;
    const uint64_t most = checkpoint_parts(model, choice, 1) * sizeof(float) / least_bytes;
    uint64_t replicas = mics_choice_world_size(choice);

    for (uint32_t u = 0; u < model->unit_count; u++)
        replicas =
            mics_min_u64(replicas, mics_choice_world_size(choice) /
                                       mics_choice_shape_of(choice, &model->units[u])->p_optim);
    return (uint32_t)mics_max_u64(1, mics_min_u64(replicas, most));
}

static bool is_on_host(const struct mics_topology *topology)
{
    return strcmp(topology->device, "host") == 0;
}

uint64_t mics_memory_total(const struct mics_memory *memory, const struct mics_topology *topology)
{
    return memory->arena_bytes + memory->workspace_bytes + memory->context_bytes +
           memory->communicator_bytes +
           (is_on_host(topology)
                ? memory->snapshot_bytes + memory->process_bytes + memory->offload_bytes
                : 0);
}

uint64_t mics_memory_host(const struct mics_memory *memory, const struct mics_topology *topology)
{
    return is_on_host(topology) ? mics_memory_total(memory, topology)
                                : memory->process_bytes + memory->snapshot_bytes +
                                      memory->pinned_bytes + memory->offload_bytes;
}

/* Of a machine, if it is known; else 0. */
static uint64_t machine_memory(const struct mics_topology *topology)
{
    const json_t *machine = json_object_get(topology->doc, "machine");
    const json_int_t bytes = json_integer_value(json_object_get(machine, "memory_bytes"));

    return bytes > 0 ? (uint64_t)bytes : 0;
}

uint64_t mics_memory_lacks_host(const struct mics_memory *memory,
                                const struct mics_topology *topology, uint64_t more)
{
    const uint64_t has = machine_memory(topology),
                   needs = mics_memory_host(memory, topology) * topology->per_node + more;

    return is_on_host(topology) || has == 0 || needs <= has ? 0 : needs - has;
}

enum mics_status mics_memory_check_host(const struct mics_memory *memory,
                                        const struct mics_topology *topology, struct mics_err *err)
{
    const uint64_t rank = mics_memory_host(memory, topology);
    const uint64_t lacks = mics_memory_lacks_host(memory, topology, 0);
    char node[32], own[32], available[32], less[32];

    if (lacks == 0)
        return MICS_OK;
    mics_format_bytes(lacks, less, sizeof less);
    mics_format_bytes(rank * topology->per_node, node, sizeof node);
    mics_format_bytes(rank, own, sizeof own);
    mics_format_bytes(machine_memory(topology), available, sizeof available);
    return mics_err_set(
        err, MICS_ERR_INFEASIBLE,
        "%s need %s of host memory on each node, %s per rank,"
        " but a node has %s, %s less; with more nodes, or an optimizer with fewer states "
        "(--optimizer=lion), they are smaller",
        memory->offload_bytes > 0 ? "optimizer states and the snapshots of checkpoints"
                                  : "snapshots of checkpoints",
        node, own, available, less);
}

struct mics_batch mics_choice_batch(const struct mics_plan_choice *choice, enum mics_unit_kind kind,
                                    bool train)
{
    return (struct mics_batch){
        .B = choice->micro_batch,
        .T = choice->seq,
        .recompute = choice->recompute,
        .train = train,
        .dtype = choice->dtype,
        .grad_dtype = mics_choice_written_grads(choice, kind),
        .expert_ranks = mics_choice_expert_ranks(choice, kind),
    };
}

static struct mics_stage_bytes stage_bytes(const struct mics_model *model,
                                           const struct mics_plan_choice *choice, uint32_t stage)
{
    const enum mics_unit_kind kind = mics_unit_kind_of(model, model->stages[stage].unit);
    struct mics_batch training = mics_choice_batch(choice, kind, true);
    struct mics_batch evaluation = mics_choice_batch(choice, kind, false);
    struct mics_stage_bytes a, b;

    model->ops->stage_bytes(model, &training, stage, &a);
    model->ops->stage_bytes(model, &evaluation, stage, &b);
    a.saved = mics_round_up(mics_max_u64(a.saved, b.saved), MICS_BUFFER_ALIGN);
    a.scratch = mics_round_up(mics_max_u64(a.scratch, b.scratch), MICS_BUFFER_ALIGN);
    return a;
}

/* `saved`: what the stages of one micro-batch save and hand on. `scratch`: that of the stage that
 * needs most, with the gradients of boundary tensors and those tensors that no backward pass reads.
 */
static void activation_bytes(const struct mics_model *model, const struct mics_plan_choice *choice,
                             uint64_t *saved, uint64_t *scratch)
{
    const struct mics_batch batch = mics_choice_batch(choice, MICS_UNIT_DENSE, true);

    *saved = *scratch = 0;
    for (uint32_t i = 0; i < model->stage_count; i++) {
        struct mics_stage_bytes bytes = stage_bytes(model, choice, i);

        *saved += bytes.saved;
        *scratch = mics_max_u64(*scratch, bytes.scratch);
    }
    for (uint32_t b = 0; b < model->boundary_count; b++) {
        struct mics_boundary_bytes bytes;

        model->ops->boundary_bytes(model, &batch, b, &bytes);
        *scratch += bytes.grad + (bytes.forward_only ? bytes.value : 0);
        for (uint32_t i = 0; i < model->stage_count && !bytes.forward_only; i++)
            *saved += model->stages[i].hands_on >> b & 1 ? bytes.value : 0;
    }
}

uint64_t mics_scalars_bytes(const struct mics_model *model, bool train)
{
    return sizeof(struct mics_args_scalars) + (train ? model->stat_count * sizeof(double) : 0);
}

uint64_t mics_loss_scale_bytes(const struct mics_plan_choice *choice)
{
    if (choice->dtype != MICS_F16)
        return 0;
    return mics_round_up(sizeof(struct mics_loss_scale), MICS_BUFFER_ALIGN);
}

/* Tokens and targets of all micro-steps, and the scalars, for even and for odd steps; and fp16's
 * loss scale. */
static uint64_t batch_bytes(const struct mics_model *model, const struct mics_plan_choice *choice)
{
    uint64_t tokens = (uint64_t)choice->micro_steps * choice->micro_batch * choice->seq;

    return 2 * (2 * mics_round_up(tokens * sizeof(int32_t), MICS_BUFFER_ALIGN) +
                mics_round_up(mics_scalars_bytes(model, true), MICS_BUFFER_ALIGN)) +
           mics_loss_scale_bytes(choice);
}

static enum mics_status slot_bytes(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, struct mics_memory *out,
                                   struct mics_err *err)
{
    struct mics_slot_set params, grads = {0};
    enum mics_status status = mics_slots_init_params(model, choice, &params, err);

    if (status == MICS_OK)
        status = mics_slots_init_grads(model, choice, &grads, err);
    out->regions[MICS_REGION_PARAM_SLOT].bytes = params.elements * mics_dtype_bytes(choice->dtype);
    out->regions[MICS_REGION_GRAD_SLOT].bytes =
        grads.elements * mics_dtype_bytes(choice->grad_dtype);
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++)
        out->regions[MICS_REGION_GRAD_SLOT].bytes +=
            mics_staging_bytes(model, choice, (enum mics_buffer)b);
    mics_slots_fini(&params);
    mics_slots_fini(&grads);
    return status;
}

static void stack_regions(struct mics_memory *out)
{
    static const char *const names[MICS_REGION_COUNT] = {
        [MICS_REGION_PARAM] = "parameter shards",
        [MICS_REGION_GRAD] = "gradient shards",
        [MICS_REGION_OPTIM] = "optimizer shards",
        [MICS_REGION_PARAM_SLOT] = "gathered parameters",
        [MICS_REGION_GRAD_SLOT] = "gradients to reduce",
        [MICS_REGION_SAVED] = "activations",
        [MICS_REGION_SCRATCH] = "scratch",
        [MICS_REGION_BATCH] = "batches and scalars",
    };

    out->arena_bytes = 0;
    for (int i = 0; i < MICS_REGION_COUNT; i++) {
        struct mics_region *region = &out->regions[i];

        if (!region->name)
            region->name = names[i];
        region->offset = out->arena_bytes;
        region->bytes = mics_round_up(region->bytes, MICS_REGION_ALIGN);
        out->arena_bytes += region->bytes;
    }
}

enum mics_status mics_memory_compute(const struct mics_model *model,
                                     const struct mics_plan_choice *choice, struct mics_memory *out,
                                     struct mics_err *err)
{
    struct mics_memory memory = {0};
    enum mics_status status = mics_choice_check(model, choice, err);

    if (status == MICS_OK && choice->trainer != MICS_TRAINER_MICS) {
        mics_trainer_memory(model, choice, &memory);
        stack_regions(&memory);
        *out = memory;
        return MICS_OK;
    }
    if (status == MICS_OK)
        status = slot_bytes(model, choice, &memory, err);
    if (status != MICS_OK)
        return status;
    for (int i = MICS_REGION_PARAM; i <= MICS_REGION_OPTIM; i++)
        memory.regions[i].bytes = all_shards_bytes(model, choice, (enum mics_region_kind)i);
    offload(model, choice, &memory);
    activation_bytes(model, choice, &memory.regions[MICS_REGION_SAVED].bytes,
                     &memory.regions[MICS_REGION_SCRATCH].bytes);
    memory.regions[MICS_REGION_BATCH].bytes = batch_bytes(model, choice);
    stack_regions(&memory);
    memory.snapshot_bytes =
        checkpoint_parts(model, choice, mics_choice_checkpoint_parts(model, choice)) *
        sizeof(float);
    *out = memory;
    return MICS_OK;
}

/* The ranks of a communicator that sums receive summands in its staging memory, of which a call
 * touches as much as its block has, up to MICS_COMM_STAGING_BYTES. `largest` is the largest unit
 * that these exchanges have. */
static uint64_t route_staging_bytes(const struct mics_plan_choice *choice,
                                    const struct mics_routes *routes, uint64_t largest)
{
    uint64_t bytes = 0;

    for (int kind = 0; kind < MICS_OP_KIND_COUNT; kind++)
        for (uint32_t h = 0; h < routes->of[kind].hop_count; h++) {
            const struct mics_hop *hop = &routes->of[kind].hops[h];
            struct mics_group_position position;

            if (!mics_op_is_comm(hop->kind) || hop->collective == MICS_ALL_GATHER ||
                hop->collective == MICS_ALL_TO_ALL)
                continue;
            mics_shape_position(&choice->shapes[hop->groups], hop->comm, 0, &position);
            bytes += mics_min_u64(MICS_COMM_STAGING_BYTES,
                                  mics_wire_bytes(hop->from.dtype, largest) / position.size);
        }
    return bytes;
}

static uint64_t staging_bytes(const struct mics_model *model, const struct mics_plan_choice *choice)
{
    uint64_t bytes = 0;

    for (int i = 0; i < MICS_UNIT_KIND_COUNT; i++) {
        const struct mics_routes routes = mics_choice_routes(choice, (enum mics_unit_kind)i);
        const struct mics_routes exact = mics_choice_exact_routes(choice, (enum mics_unit_kind)i);
        uint64_t largest = 0, of_kind;

        for (uint32_t u = 0; u < model->unit_count; u++)
            if ((int)mics_choice_groups(choice, model->units[u].kind) == i)
                largest = mics_max_u64(largest, mics_choice_layout(model, choice, u).padded);
        if (largest == 0)
            continue;
        of_kind = route_staging_bytes(choice, &routes, largest);
        if (choice->sync_exact_units)
            of_kind = mics_max_u64(of_kind, route_staging_bytes(choice, &exact, largest));
        bytes += of_kind;
    }
    return bytes;
}

static bool uses_onednn(const struct mics_topology *topology, const struct mics_plan_choice *choice)
{
    return is_on_host(topology) && choice->dtype == MICS_BF16 && topology->onednn &&
           strcmp(topology->flops_dtype, "bf16") == 0;
}

static uint64_t host_workspace_bytes(const struct mics_topology *topology,
                                     const struct mics_model *model,
                                     const struct mics_plan_choice *choice)
{
    const uint64_t threads = topology->cores ? topology->cores : 1;

    return threads * MICS_BLAS_THREAD_BYTES + staging_bytes(model, choice) +
           (mics_choice_world_size(choice) > 1 ? MICS_MPI_BYTES : 0);
}

uint64_t mics_choice_counts_bytes(const struct mics_model *model,
                                  const struct mics_plan_choice *choice)
{
    const struct mics_batch batch = mics_choice_batch(choice, MICS_UNIT_EXPERT, true);

    if (batch.expert_ranks == 0 || mics_model_dispatch(model, &batch).rounds == 1)
        return 0;
    return batch.expert_ranks * (model->config.n_expert + 1) * sizeof(uint32_t);
}

enum mics_status mics_memory_compute_on(const struct mics_topology *topology,
                                        const struct mics_model *model,
                                        const struct mics_plan_choice *choice,
                                        struct mics_memory *out, struct mics_err *err)
{
    const enum mics_status status = mics_memory_compute(model, choice, out, err);

    if (status != MICS_OK)
        return status;
    out->process_bytes = (topology->process_bytes ? topology->process_bytes : MICS_PROCESS_BYTES) +
                         MICS_TRAINING_PROCESS_BYTES +
                         (uses_onednn(topology, choice) ? MICS_ONEDNN_BYTES : 0);
    if (is_on_host(topology)) {
        out->workspace_bytes = host_workspace_bytes(topology, model, choice);
        return MICS_OK;
    }
    out->pinned_bytes = batch_bytes(model, choice) + mics_choice_counts_bytes(model, choice);
    out->workspace_bytes = MICS_GPU_COMPUTE_STREAMS * MICS_GPU_WORKSPACE_BYTES;
    out->context_bytes = MICS_GPU_CONTEXT_BYTES;
    out->communicator_bytes = mics_nccl_communicators_bytes(topology, model, choice);
    return status;
}
