/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - how units are cut, and the sizes and offsets of slots. */
#include "plan/layout.h"

#include "base/num.h"
#include "plan/trainer_exchanges.h"

#include <stdlib.h>

/* A unit is padded to a multiple of this. */
static uint64_t padding_grain(const struct mics_shape *shape, uint32_t segments, uint32_t align)
{
    return (uint64_t)segments * shape->p_optim * align;
}

struct mics_layout mics_layout_cut(const struct mics_shape *shape, uint64_t count,
                                   uint32_t segments)
{
    const uint64_t segment_count = count / segments, optim_piece = segment_count / shape->p_optim;
    const uint32_t replicas = mics_shape_world_size(shape) / shape->p_optim;

    return (struct mics_layout){
        .count = count,
        .padded = count,
        .segments = segments,
        .segment_count = segment_count,
        .param_piece = segment_count / shape->p_param,
        .grad_piece = segment_count / shape->p_grad,
        .optim_piece = optim_piece,
        .run = segment_count / shape->per_node,
        .sync_piece = mics_round_up(mics_ceil_div(optim_piece, replicas), MICS_BLOCK),
        .replicas = replicas,
    };
}

struct mics_layout mics_layout_make(const struct mics_shape *shape, uint64_t unit_count,
                                    uint32_t segments, uint32_t align)
{
    const uint64_t grain = padding_grain(shape, segments, align);
    struct mics_layout layout = mics_layout_cut(shape, mics_round_up(unit_count, grain), segments);

    layout.count = unit_count;
    return layout;
}

uint64_t mics_layout_param_shard(const struct mics_layout *layout)
{
    return layout->param_piece * layout->segments;
}

uint64_t mics_layout_grad_shard(const struct mics_layout *layout)
{
    return layout->grad_piece * layout->segments;
}

uint64_t mics_layout_optim_shard(const struct mics_layout *layout)
{
    return layout->optim_piece * layout->segments;
}

uint64_t mics_layout_piece_offset(const struct mics_layout *layout, uint32_t segment,
                                  uint64_t piece, uint32_t index)
{
    return segment * layout->segment_count + index * piece;
}

/* Distance between the optimizer pieces of all replicas, each in whole blocks. */
static uint64_t replica_stride(const struct mics_layout *layout)
{
    return mics_round_up(layout->optim_piece, MICS_BLOCK);
}

uint64_t mics_layout_piece_count(const struct mics_layout *layout, enum mics_piece piece)
{
    const uint64_t counts[MICS_PIECE_COUNT] = {
        [MICS_PIECE_SEGMENT] = layout->segment_count,
        [MICS_PIECE_RUN] = layout->run,
        [MICS_PIECE_PARAM] = layout->param_piece,
        [MICS_PIECE_GRAD] = layout->grad_piece,
        [MICS_PIECE_OPTIM] = layout->optim_piece,
        [MICS_PIECE_SYNC] = layout->sync_piece,
        [MICS_PIECE_SYNC_ALL] = layout->sync_piece * layout->replicas,
        [MICS_PIECE_REPLICAS] = replica_stride(layout) * layout->replicas,
    };

    return counts[piece];
}

/* In the segment. */
static uint64_t begin_in_segment(const struct mics_layout *layout, struct mics_index index,
                                 enum mics_piece piece)
{
    const uint64_t innermost = index.optim * layout->optim_piece;

    return innermost - innermost % mics_layout_piece_count(layout, piece);
}

uint64_t mics_layout_piece_begin(const struct mics_layout *layout, struct mics_index index,
                                 enum mics_piece piece, enum mics_piece in)
{
    if (piece == MICS_PIECE_SYNC)
        return index.replica * layout->sync_piece;
    if (piece == MICS_PIECE_SYNC_ALL || piece == MICS_PIECE_REPLICAS)
        return 0;
    if (in == MICS_PIECE_REPLICAS)
        return index.replica * replica_stride(layout);
    return begin_in_segment(layout, index, piece) - begin_in_segment(layout, index, in);
}

uint32_t mics_choice_align(const struct mics_plan_choice *choice)
{
    return mics_dtype_is_blocks(choice->sync_dtype) || mics_dtype_is_blocks(choice->gather_dtype)
               ? MICS_BLOCK
               : MICS_TENSOR_ALIGN;
}

struct mics_layout mics_choice_layout(const struct mics_model *model,
                                      const struct mics_plan_choice *choice, uint32_t unit)
{
    const struct mics_shape *shape = mics_choice_shape_of(choice, &model->units[unit]);
    const uint64_t count = model->units[unit].count;
    const uint32_t align = mics_choice_align(choice);
    const bool is_cut = count >= padding_grain(shape, choice->segments, align) &&
                        mics_choice_expert_ranks(choice, model->units[unit].kind) == 0;

    return mics_layout_make(shape, count, is_cut ? choice->segments : 1, align);
}

uint64_t mics_choice_grad_extent(const struct mics_plan_choice *choice,
                                 const struct mics_unit *unit, const struct mics_layout *layout,
                                 uint64_t *written)
{
    const uint32_t ranks = mics_choice_expert_ranks(choice, unit->kind);
    const uint32_t parts = ranks > 0 ? ranks : 1;

    *written = unit->written_count / parts;
    return layout->padded / parts;
}

/* A unit that several stages use must be resident: its rotating slot could be needed in between. */
static enum mics_status check_uses(const struct mics_model *model, struct mics_err *err)
{
    uint32_t *uses = calloc(model->unit_count, sizeof *uses);
    enum mics_status status = uses ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; i < model->stage_count && uses; i++)
        if (model->stages[i].unit != MICS_NO_UNIT)
            uses[model->stages[i].unit]++;
    for (uint32_t u = 0; u < model->unit_count && status == MICS_OK; u++)
        if (uses[u] != 1 && (uses[u] == 0 || !model->units[u].resident))
            status =
                mics_err_set(err, MICS_ERR_ARG, "unit '%s': used by %u stages but not resident",
                             model->units[u].name, uses[u]);
    free(uses);
    return status;
}

/* Which units need slots, and how many there are. */
static void assign_slots(const struct mics_model *model, const struct mics_plan_choice *choice,
                         bool grads, uint32_t rotating, struct mics_slot_set *out)
{
    uint32_t residents = 0, others = 0;

    for (uint32_t u = 0; u < model->unit_count; u++) {
        const struct mics_shape *shape = mics_choice_shape_of(choice, &model->units[u]);
        const bool is_cut = (grads ? shape->p_grad : shape->p_param) > 1 &&
                            mics_choice_expert_ranks(choice, model->units[u].kind) == 0;

        residents += is_cut && model->units[u].resident;
        others += is_cut && !model->units[u].resident;
        out->of_unit[u] = is_cut ? MICS_SLOT_ROTATING : MICS_SLOT_NONE;
    }
    out->rotating = (uint32_t)mics_min_u64(rotating, others);
    out->total = out->rotating + residents;
    for (uint32_t u = model->unit_count; u-- > 0;)
        if (out->of_unit[u] == MICS_SLOT_ROTATING && model->units[u].resident)
            out->of_unit[u] = out->rotating + --residents;
}

static void place_slots(const struct mics_model *model, const struct mics_plan_choice *choice,
                        struct mics_slot_set *out)
{
    for (uint32_t u = 0; u < model->unit_count; u++) {
        const uint64_t padded = mics_choice_layout(model, choice, u).padded;

        if (out->of_unit[u] == MICS_SLOT_ROTATING)
            out->count[0] = mics_max_u64(out->count[0], padded);
        else if (out->of_unit[u] != MICS_SLOT_NONE)
            out->count[out->of_unit[u]] = padded;
    }
    for (uint32_t i = 0; i < out->total; i++) {
        if (i < out->rotating)
            out->count[i] = out->count[0];
        out->offset[i] = out->elements;
        out->elements += out->count[i];
    }
}

static enum mics_status init_slots(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, bool grads,
                                   uint32_t rotating, struct mics_slot_set *out,
                                   struct mics_err *err)
{
    const enum mics_status status = check_uses(model, err);

    *out = (struct mics_slot_set){0};
    if (status != MICS_OK)
        return status;
    out->of_unit = calloc(model->unit_count, sizeof *out->of_unit);
    if (!out->of_unit)
        return mics_err_nomem(err);
    assign_slots(model, choice, grads, rotating, out);
    out->count = calloc(out->total + 1, sizeof *out->count);
    out->offset = calloc(out->total + 1, sizeof *out->offset);
    if (!out->count || !out->offset)
        return mics_err_nomem(err);
    place_slots(model, choice, out);
    return MICS_OK;
}

void mics_slots_fini(struct mics_slot_set *slots)
{
    free(slots->count);
    free(slots->offset);
    free(slots->of_unit);
    *slots = (struct mics_slot_set){0};
}

/* The largest units first, each into the turn that has the fewest elements by then. */
void mics_choice_turns(const struct mics_model *model, const struct mics_plan_choice *choice,
                       uint32_t *turns)
{
    const uint32_t interval = mics_choice_interval(choice), none = UINT32_MAX;
    uint64_t elements[MICS_INTERVAL_MAX] = {0};

    for (uint32_t u = 0; u < model->unit_count; u++)
        turns[u] = interval == 1 ? 0 : none;
    for (uint32_t i = 0; i < model->unit_count && interval > 1; i++) {
        uint32_t largest = none, least = 0;

        for (uint32_t u = 0; u < model->unit_count; u++)
            if (turns[u] == none &&
                (largest == none || model->units[u].count > model->units[largest].count))
                largest = u;
        for (uint32_t turn = 1; turn < interval; turn++)
            if (elements[turn] < elements[least])
                least = turn;
        turns[largest] = least;
        elements[least] += model->units[largest].count;
    }
}

enum mics_status mics_slots_init_params(const struct mics_model *model,
                                        const struct mics_plan_choice *choice,
                                        struct mics_slot_set *out, struct mics_err *err)
{
    return init_slots(model, choice, false, mics_choice_param_slots(choice), out, err);
}

enum mics_status mics_slots_init_grads(const struct mics_model *model,
                                       const struct mics_plan_choice *choice,
                                       struct mics_slot_set *out, struct mics_err *err)
{
    return init_slots(model, choice, true, choice->grad_slots, out, err);
}
