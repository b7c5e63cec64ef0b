/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c - one arena of exactly the plan's size, and where everything is in it.
 *
 * Each region is used up piece by piece. To use more than the plan gave it is an error, so the
 * plan's sizes cannot be too small; mics_engine_high_water() shows whether they are too large.
 */
#include "base/num.h"
#include "base/units.h"
#include "engine/engine_internal.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>

struct cursor {
    struct mics_engine *engine;
    void *base; /* the region's offset is from here */
    const struct mics_region *region;
    uint64_t used;
    enum mics_status status;
    struct mics_err *err;
};

static struct cursor open_region(struct mics_engine *engine, enum mics_region_kind kind,
                                 struct mics_err *err)
{
    return (struct cursor){.engine = engine,
                           .base = engine->arena,
                           .region = &engine->memory.regions[kind],
                           .err = err};
}

static void *take(struct cursor *cursor, uint64_t bytes)
{
    const struct mics_region *region = cursor->region;
    void *memory = (uint8_t *)cursor->base + region->offset + cursor->used;

    if (bytes > region->bytes - cursor->used) {
        if (cursor->status == MICS_OK)
            cursor->status = mics_err_set(cursor->err, MICS_ERR_NOMEM,
                                          "the plan's region '%s' of %llu bytes is too small",
                                          region->name, (unsigned long long)region->bytes);
        return NULL;
    }
    cursor->used += bytes;
    if (cursor->base == cursor->engine->arena)
        cursor->engine->used_bytes += bytes;
    return memory;
}

static float *take_floats(struct cursor *cursor, uint64_t count)
{
    return take(cursor, count * sizeof(float));
}

/* Host memory of masters and optimizer states; in the arena there are only pieces of them. *out:
 * where they go, of the size that the plan has for them. */
static enum mics_status map_offload(struct mics_engine *engine, struct mics_region *region,
                                    struct cursor *out, struct mics_err *err)
{
    struct mics_device *device = engine->device;
    struct cursor slots = open_region(engine, MICS_REGION_OPTIM, err);
    char size[32];
    enum mics_status status =
        device->ops->host_alloc(device, engine->memory.offload_bytes, &engine->offload, err);

    if (status != MICS_OK) {
        mics_format_bytes(engine->memory.offload_bytes, size, sizeof size);
        mics_err_prefix(err, "%s of host memory for the optimizer's states", size);
        return status;
    }
    engine->piece_slot_count = mics_offload_slot_count(engine->model, &engine->choice);
    for (int i = 0; i < MICS_OFFLOAD_SLOTS; i++)
        engine->piece_slots[i] =
            take(&slots, mics_offload_slot_bytes(engine->model, &engine->choice));
    *region = (struct mics_region){.name = "optimizer states in host memory",
                                   .bytes = engine->memory.offload_bytes};
    *out = (struct cursor){.engine = engine, .base = engine->offload, .region = region, .err = err};
    return slots.status;
}

static enum mics_status map_shards(struct mics_engine *engine, struct mics_err *err)
{
    struct cursor param = open_region(engine, MICS_REGION_PARAM, err);
    struct cursor grad = open_region(engine, MICS_REGION_GRAD, err);
    struct cursor optim = open_region(engine, MICS_REGION_OPTIM, err);
    struct mics_region in_host;

    if (engine->choice.offload_piece > 0) {
        const enum mics_status status = map_offload(engine, &in_host, &optim, err);

        if (status != MICS_OK)
            return status;
    }

    for (uint32_t i = 0; i < engine->model->unit_count; i++) {
        struct unit_memory *unit = &engine->units[i];

        unit->layout = &engine->train.schedule->layouts[i];
        unit->param = take(&param, mics_layout_param_shard(unit->layout) *
                                       mics_dtype_bytes(engine->choice.dtype));
        unit->grad = take_floats(&grad, mics_layout_grad_shard(unit->layout));
        if (engine->choice.dtype != MICS_F32)
            unit->master = take_floats(&optim, mics_layout_optim_shard(unit->layout));
        for (uint32_t s = 0; s < mics_optimizer_states(engine->choice.optimizer); s++)
            unit->state[s] = take_floats(&optim, mics_layout_optim_shard(unit->layout));
        if (engine->choice.outer_steps == 0)
            continue;
        unit->anchor = take_floats(&optim, mics_layout_optim_shard(unit->layout));
        unit->outer_momentum = take_floats(&optim, mics_layout_optim_shard(unit->layout));
        if (engine->choice.outer_overlap)
            unit->outer_delta = take_floats(&optim, mics_layout_optim_shard(unit->layout));
    }
    return param.status ? param.status : grad.status ? grad.status : optim.status;
}

static enum mics_status map_slots(struct mics_engine *engine, struct mics_err *err)
{
    const struct mics_schedule *schedule = engine->train.schedule;
    const size_t param = mics_dtype_bytes(engine->choice.dtype);
    const size_t grad = mics_dtype_bytes(engine->choice.grad_dtype);
    struct cursor params = open_region(engine, MICS_REGION_PARAM_SLOT, err);
    struct cursor grads = open_region(engine, MICS_REGION_GRAD_SLOT, err);

    for (uint32_t i = 0; i < schedule->param_slot_total; i++)
        engine->param_slots[i] = take(&params, schedule->param_slot_count[i] * param);
    for (uint32_t i = 0; i < schedule->grad_slot_total; i++)
        engine->grad_slots[i] = take(&grads, schedule->grad_slot_count[i] * grad);
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++)
        engine->staging[b - MICS_BUFFER_FIRST_STAGING] =
            take(&grads, mics_staging_bytes(engine->model, &engine->choice, (enum mics_buffer)b));
    return params.status ? params.status : grads.status;
}

/* The memory of one boundary tensor in each stage that hands it on, from where the stages up to the
 * next of these receive it. */
static void map_boundary(struct mics_engine *engine, uint32_t boundary,
                         const struct mics_boundary_bytes *bytes, struct cursor *from)
{
    const uint32_t bit = 1u << boundary;
    void *current = NULL;

    for (uint32_t i = 0; i < engine->model->stage_count; i++) {
        const struct mics_stage *stage = &engine->model->stages[i];

        engine->stages[i].in[boundary] = stage->receives & bit ? current : NULL;
        if (!(stage->hands_on & bit))
            continue;
        if (!current || !bytes->forward_only)
            current = take(from, bytes->value);
        engine->stages[i].out[boundary] = current;
    }
}

static enum mics_status map_activations(struct mics_engine *engine, struct mics_err *err)
{
    const struct mics_batch batch = mics_choice_batch(&engine->choice, MICS_UNIT_DENSE, true);
    const struct mics_model *model = engine->model;
    struct cursor saved = open_region(engine, MICS_REGION_SAVED, err);
    struct cursor scratch = open_region(engine, MICS_REGION_SCRATCH, err);
    uint64_t scratch_bytes = 0;

    for (uint32_t i = 0; i < model->stage_count; i++) {
        const struct mics_batch own = mics_choice_batch(
            &engine->choice, mics_unit_kind_of(model, model->stages[i].unit), true);
        struct mics_stage_bytes bytes;

        model->ops->stage_bytes(model, &own, i, &bytes);
        engine->stages[i].saved = take(&saved, bytes.saved);
        scratch_bytes = mics_max_u64(scratch_bytes, bytes.scratch);
    }
    for (uint32_t b = 0; b < model->boundary_count; b++) {
        struct mics_boundary_bytes bytes;

        model->ops->boundary_bytes(model, &batch, b, &bytes);
        engine->boundary_grads[b] = take(&scratch, bytes.grad);
        map_boundary(engine, b, &bytes, bytes.forward_only ? &scratch : &saved);
    }
    engine->scratch = take(&scratch, scratch_bytes);
    return saved.status ? saved.status : scratch.status;
}

static enum mics_status map_batch(struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t bytes =
        engine->choice.micro_steps * mics_engine_micro_tokens(engine) * sizeof(int32_t);
    struct cursor cursor = open_region(engine, MICS_REGION_BATCH, err);

    for (int parity = 0; parity < 2; parity++) {
        engine->tokens[parity] = take(&cursor, mics_round_up(bytes, MICS_BUFFER_ALIGN));
        engine->targets[parity] = take(&cursor, mics_round_up(bytes, MICS_BUFFER_ALIGN));
        engine->scalars[parity] = take(
            &cursor, mics_round_up(mics_scalars_bytes(engine->model, true), MICS_BUFFER_ALIGN));
    }
    if (engine->choice.dtype == MICS_F16)
        engine->loss_scale = take(&cursor, mics_loss_scale_bytes(&engine->choice));
    return cursor.status;
}

static enum mics_status allocate_host(struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t bytes =
        engine->choice.micro_steps * mics_engine_micro_tokens(engine) * sizeof(int32_t);
    const uint64_t scalars = mics_scalars_bytes(engine->model, true);
    struct mics_device *device = engine->device;
    enum mics_status status = MICS_OK;
    void *memory;

    for (int parity = 0; status == MICS_OK && parity < 2; parity++) {
        status = device->ops->host_alloc(device, bytes, &memory, err);
        if (status != MICS_OK)
            break;
        engine->host_tokens[parity] = memory;
        status = device->ops->host_alloc(device, bytes, &memory, err);
        if (status == MICS_OK)
            engine->host_targets[parity] = memory;
    }
    if (status == MICS_OK)
        status = device->ops->host_alloc(device, (2 + RESULT_COUNT) * scalars, &memory, err);
    if (status != MICS_OK)
        return status;
    memset(memory, 0, 2 * scalars);
    for (int i = 0; i < 2 + RESULT_COUNT; i++)
        *(i < 2 ? &engine->host_scalars[i] : &engine->results[i - 2]) =
            (struct mics_args_scalars *)((char *)memory + i * scalars);
    if (!engine->loss_scale)
        return MICS_OK;
    status = device->ops->host_alloc(device, 3 * sizeof *engine->loss_scale, &memory, err);
    for (int i = 0; status == MICS_OK && i < 3; i++)
        engine->host_loss_scale[i] = (struct mics_loss_scale *)memory + i;
    return status;
}

/* What decides how many rounds of tokens travel to experts. */
static enum mics_status allocate_counts(struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t bytes = mics_choice_counts_bytes(engine->model, &engine->choice);
    struct mics_device *device = engine->device;
    void *memory;

    if (bytes == 0 || device->on_host)
        return MICS_OK;
    engine->rounds = calloc(engine->model->stage_count, sizeof *engine->rounds);
    if (!engine->rounds)
        return mics_err_nomem(err);
    enum mics_status status = device->ops->event_open(device, &engine->counted, err);
    if (status == MICS_OK)
        status = device->ops->host_alloc(device, bytes, &memory, err);
    if (status == MICS_OK)
        engine->host_counts = memory;
    return status;
}

/* If memory is short, the message has what the plan needs and what communicators have taken. */
static enum mics_status allocate_arena(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_device *device = engine->device;
    const enum mics_status status =
        device->ops->alloc(device, engine->memory.arena_bytes, &engine->arena, err);
    char size[32], taken[32];

    if (status != MICS_ERR_NOMEM)
        return status;
    mics_format_bytes(engine->memory.arena_bytes, size, sizeof size);
    mics_format_bytes(engine->comm_bytes, taken, sizeof taken);
    if (engine->comm_bytes)
        mics_err_prefix(err, "the plan's arena of %s, with %s in communicators", size, taken);
    else
        mics_err_prefix(err, "the plan's arena of %s", size);
    return status;
}

static enum mics_status allocate_tables(struct mics_engine *engine, struct mics_err *err)
{
    const struct mics_schedule *schedule = engine->train.schedule;

    engine->units = calloc(engine->model->unit_count, sizeof *engine->units);
    engine->stages = calloc(engine->model->stage_count, sizeof *engine->stages);
    engine->param_slots = calloc(schedule->param_slot_total + 1, sizeof *engine->param_slots);
    engine->grad_slots = calloc(schedule->grad_slot_total + 1, sizeof *engine->grad_slots);
    if (!engine->units || !engine->stages || !engine->param_slots || !engine->grad_slots)
        return mics_err_nomem(err);
    return MICS_OK;
}

enum mics_status mics_engine_map_memory(struct mics_engine *engine, struct mics_err *err)
{
    enum mics_status status = allocate_tables(engine, err);

    if (status == MICS_OK)
        status = allocate_arena(engine, err);
    if (status == MICS_OK)
        status = map_shards(engine, err);
    if (status == MICS_OK)
        status = map_slots(engine, err);
    if (status == MICS_OK)
        status = map_activations(engine, err);
    if (status == MICS_OK)
        status = map_batch(engine, err);
    if (status == MICS_OK)
        status = allocate_host(engine, err);
    if (status == MICS_OK)
        status = allocate_counts(engine, err);
    return status;
}

void mics_engine_unmap_memory(struct mics_engine *engine)
{
    struct mics_device *device = engine->device;

    if (engine->arena)
        device->ops->release(device, engine->arena);
    for (int parity = 0; parity < 2; parity++) {
        device->ops->host_release(device, engine->host_tokens[parity]);
        device->ops->host_release(device, engine->host_targets[parity]);
    }
    device->ops->host_release(device, engine->offload);
    device->ops->host_release(device, engine->host_scalars[0]);
    device->ops->host_release(device, engine->host_loss_scale[0]);
    device->ops->host_release(device, engine->host_counts);
    device->ops->event_close(engine->counted);
    free(engine->rounds);
    free(engine->units);
    free(engine->stages);
    free(engine->param_slots);
    free(engine->grad_slots);
}
