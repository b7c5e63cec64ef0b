/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/launches.h"

#include "device/launch.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "work.h"

/* Addresses for arguments: far apart, aligned, never followed. */
enum {
    PARAMS = 1,
    GRADS,
    SAVED,
    OUT,
    SCRATCH,
    TOKENS,
    TARGETS,
    SCALARS,
    STATS,
    OTHER,
    BOUNDARY = 32
};

static void *address(int index)
{
    return (void *)((uintptr_t)index << 44);
}

static void run_stage(const struct mics_model *model, const struct mics_batch *batch,
                      uint32_t stage, bool backward, bool first, enum mics_phase phase,
                      uint32_t round, struct mics_recorder *to)
{
    const bool head = stage + 1 == model->stage_count;
    const struct mics_stage *const of = &model->stages[stage];
    const bool has_grads = of->unit != MICS_NO_UNIT && (backward || (head && batch->train));
    void *in[MICS_BOUNDARIES_MAX] = {NULL}, *out[MICS_BOUNDARIES_MAX] = {NULL};
    void *grad[MICS_BOUNDARIES_MAX];

    for (int i = 0; i < MICS_BOUNDARIES_MAX; i++) {
        in[i] = of->receives >> i & 1 ? address(BOUNDARY + 3 * i) : NULL;
        out[i] = of->hands_on >> i & 1 ? address(BOUNDARY + 3 * i + 1) : NULL;
        grad[i] = address(BOUNDARY + 3 * i + 2);
    }
    const struct mics_pass pass = {
        .model = model,
        .stream = &to->stream,
        .batch = *batch,
        .tokens = address(TOKENS),
        .targets = address(TARGETS),
        .params = mics_stage_needs_params(of, backward) ? address(PARAMS) : NULL,
        .grads = has_grads ? address(GRADS) : NULL,
        .first = first,
        .saved = address(SAVED),
        .in = in,
        .out = out,
        .grad = grad,
        .scratch = address(SCRATCH),
        .loss_sum = address(SCALARS),
        .stats = batch->train && model->stat_count > 0 ? address(STATS) : NULL,
        .phase = phase,
        .round = round,
    };

    if (backward)
        model->ops->backward(&pass, stage);
    else
        model->ops->forward(&pass, stage);
}

void mics_stage_launches(const struct mics_model *model, const struct mics_batch *batch,
                         uint32_t stage, bool backward, bool first, struct mics_recorder *to)
{
    run_stage(model, batch, stage, backward, first, MICS_PHASE_ALL, 0, to);
}

void mics_phase_launches(const struct mics_model *model, const struct mics_batch *batch,
                         const struct mics_op *op, struct mics_recorder *to)
{
    run_stage(model, batch, op->stage, op->backward, op->first, op->phase, op->round, to);
}

uint32_t mics_phase_exchanges(const struct mics_model *model, const struct mics_plan_choice *choice,
                              bool train, const struct mics_op *op,
                              struct mics_pass_exchange *exchanges)
{
    const struct mics_pass pass = {
        .model = model,
        .batch = mics_choice_batch(choice, mics_unit_kind_of(model, op->unit), train),
        .phase = op->phase,
        .round = op->round,
        .in = (void *[MICS_BOUNDARIES_MAX]){NULL},
    };

    return model->ops->exchanges(&pass, op->stage, op->backward, exchanges);
}

void mics_zero_launches(const struct mics_plan_choice *choice, const struct mics_unit *unit,
                        const struct mics_layout *layout, struct mics_recorder *to)
{
    const enum mics_dtype dtype = mics_choice_written_grads(choice, unit->kind);
    uint64_t written;
    const uint64_t extent = mics_choice_grad_extent(choice, unit, layout, &written);
    const uint64_t count = extent - written;

    mics_launch_zero(
        &to->stream,
        &(struct mics_args_zero){.dst = address(GRADS), .bytes = count * mics_dtype_bytes(dtype)});
}

static void sum_blocks_launch(struct mics_stream *stream, const struct mics_op *op,
                              const struct mics_layout *layout,
                              const struct mics_conversion *conversion)
{
    const uint32_t parts = op->parts > 0 ? op->parts : 1;
    const uint64_t part = mics_layout_piece_count(layout, op->from.piece) / parts;

    if (conversion->count > 0)
        mics_launch_sum_blocks(stream, &(struct mics_args_sum_blocks){
                                           .dst = conversion->to,
                                           .src = conversion->from,
                                           .count = conversion->count,
                                           .stride = mics_wire_bytes(op->from.dtype, part),
                                           .parts = parts,
                                           .dst_dtype = op->to.dtype,
                                           .src_dtype = op->from.dtype,
                                           .stochastic = conversion->rounding.stochastic,
                                           .seed = conversion->rounding.seed,
                                           .step = conversion->rounding.step,
                                           .replica = conversion->replica,
                                           .first = conversion->first,
                                       });
}

void mics_conversion_launch(struct mics_stream *stream, const struct mics_op *op,
                            const struct mics_layout *layout,
                            const struct mics_conversion *conversion)
{
    if (mics_dtype_is_blocks(op->from.dtype) || mics_dtype_is_blocks(op->to.dtype))
        sum_blocks_launch(stream, op, layout, conversion);
    else if (op->kind == MICS_OP_CONVERT && op->from.dtype == op->to.dtype)
        mics_launch_copy(stream, &(struct mics_args_copy){
                                     .dst = conversion->to,
                                     .src = conversion->from,
                                     .bytes = mics_wire_bytes(op->from.dtype, conversion->count)});
    else if (op->kind == MICS_OP_ACCUMULATE && !op->first)
        mics_launch_accumulate(stream, &(struct mics_args_accumulate){.sum = conversion->to,
                                                                      .in = conversion->from,
                                                                      .count = conversion->count,
                                                                      .dtype = op->from.dtype});
    else
        mics_launch_cast(stream, &(struct mics_args_cast){.dst = conversion->to,
                                                          .src = conversion->from,
                                                          .count = conversion->count,
                                                          .dst_dtype = op->to.dtype,
                                                          .src_dtype = op->from.dtype});
}

/* Accumulation handles all segments, a conversion one. */
static void convert(const struct mics_op *op, const struct mics_layout *layout,
                    struct mics_recorder *to)
{
    const uint32_t segments = op->kind == MICS_OP_ACCUMULATE ? layout->segments : 1;

    for (uint32_t segment = 0; segment < segments; segment++)
        mics_conversion_launch(
            &to->stream, op, layout,
            &(struct mics_conversion){.to = address(OUT),
                                      .from = address(GRADS),
                                      .count = mics_convert_count(layout, &op->from, &op->to, 0)});
}

/* One segment. */
static void outer(const struct mics_plan_choice *choice, enum mics_op_kind kind,
                  const struct mics_layout *layout, struct mics_recorder *to)
{
    if (kind == MICS_OP_OUTER_DELTA)
        mics_launch_difference(&to->stream,
                               &(struct mics_args_difference){.dst = address(GRADS),
                                                              .a = address(OTHER),
                                                              .b = address(PARAMS),
                                                              .count = layout->optim_piece,
                                                              .scale = 1});
    else
        mics_launch_outer_update(&to->stream,
                                 &(struct mics_args_outer_update){
                                     .param = address(PARAMS),
                                     .anchor = address(OTHER),
                                     .momentum = address(OTHER + 1),
                                     .copy = choice->dtype == MICS_F32 ? NULL : address(OUT),
                                     .delta = address(GRADS),
                                     .count = layout->optim_piece,
                                     .scale = 1});
}

static void norm(const struct mics_layout *layout, struct mics_recorder *to)
{
    for (uint32_t segment = 0; segment < layout->segments; segment++)
        mics_launch_squared_norm(&to->stream,
                                 &(struct mics_args_squared_norm){.sum = address(SCALARS),
                                                                  .in = address(GRADS),
                                                                  .count = layout->optim_piece});
}

/* Copies of a piece between host memory and the device, one of each of its vectors. Where the host
 * updates, one of all tensors of a unit. */
static void copy_piece(const struct mics_plan_choice *choice, const struct mics_op *op,
                       struct mics_recorder *to)
{
    if (mics_choice_updates_on_host(choice)) {
        mics_launch_copy(&to->stream, &(struct mics_args_copy){.dst = address(OUT),
                                                               .src = address(OTHER),
                                                               .bytes = op->bytes});
        return;
    }
    for (uint32_t i = 0; i < mics_choice_offload_values(choice); i++)
        mics_launch_copy(&to->stream, &(struct mics_args_copy){.dst = address(OUT),
                                                               .src = address(OTHER),
                                                               .bytes = op->count * sizeof(float)});
}

static void update(const struct mics_plan_choice *choice, const struct mics_op *op,
                   const struct mics_layout *layout, struct mics_recorder *to)
{
    const bool is_piece = choice->offload_piece > 0;
    struct mics_args_update args = {.optimizer = choice->optimizer,
                                    .step = 1,
                                    .param = address(PARAMS),
                                    .copy = choice->dtype == MICS_F32 ? NULL : address(OUT),
                                    .grad = address(GRADS),
                                    .scalars = address(SCALARS),
                                    .count = is_piece ? op->count : layout->optim_piece};

    for (uint32_t i = 0; i < mics_optimizer_states(choice->optimizer); i++)
        args.state[i] = address(OTHER + (int)i);
    for (uint32_t segment = 0; segment < (is_piece ? 1 : layout->segments); segment++)
        mics_launch_update(&to->stream, &args);
}

/* The scalars of a step, and the loss scale beside them. */
static void read_scalars(uint64_t bytes, bool scaled, struct mics_recorder *to)
{
    mics_launch_copy(
        &to->stream,
        &(struct mics_args_copy){.dst = address(OUT), .src = address(SCALARS), .bytes = bytes});
    if (scaled)
        mics_launch_copy(&to->stream,
                         &(struct mics_args_copy){.dst = address(OUT),
                                                  .src = address(OTHER),
                                                  .bytes = sizeof(struct mics_loss_scale)});
}

void mics_op_launches(const struct mics_model *model, const struct mics_plan_choice *choice,
                      const struct mics_op *op, bool train, struct mics_recorder *to)
{
    struct mics_batch batch = mics_choice_batch(choice, mics_unit_kind_of(model, op->unit), train);
    struct mics_layout layout = {0};

    if (op->unit != MICS_NONE)
        layout = mics_choice_layout(model, choice, op->unit);

    switch (op->kind) {
    case MICS_OP_FORWARD:
    case MICS_OP_BACKWARD:
        if (op->first)
            mics_zero_launches(choice, &model->units[op->unit], &layout, to);
        batch.expert_load = (float)mics_choice_expert_load(choice);
        if (op->phase == MICS_PHASE_ALL)
            mics_stage_launches(model, &batch, op->stage, op->kind == MICS_OP_BACKWARD, op->first,
                                to);
        else if (!op->surplus)
            mics_phase_launches(model, &batch, op, to);
        break;
    case MICS_OP_ACCUMULATE:
    case MICS_OP_CONVERT:
        convert(op, &layout, to);
        break;
    case MICS_OP_OUTER_DELTA:
    case MICS_OP_OUTER_UPDATE:
        outer(choice, op->kind, &layout, to);
        break;
    case MICS_OP_NORM:
        norm(&layout, to);
        break;
    case MICS_OP_UPDATE:
        if (!mics_choice_updates_on_host(choice))
            update(choice, op, &layout, to);
        break;
    case MICS_OP_LOAD:
    case MICS_OP_STORE:
        copy_piece(choice, op, to);
        break;
    case MICS_OP_READ:
        read_scalars(mics_scalars_bytes(model, train), train && choice->dtype == MICS_F16, to);
        break;
    case MICS_OP_LOSS_NORM_REDUCE:
        if (train && choice->dtype == MICS_F16)
            mics_launch_loss_scale(&to->stream,
                                   &(struct mics_args_loss_scale){.state = address(OTHER),
                                                                  .scalars = address(SCALARS)});
        break;
    default: /* a collective launches nothing */
        break;
    }
}

/* Elements of a stage's parameters. */
static uint64_t count_of(const struct mics_model *model, const struct mics_stage *stage)
{
    return stage->unit == MICS_NO_UNIT ? 0 : model->units[stage->unit].count;
}

static bool are_alike(const struct mics_model *model, uint32_t a, uint32_t b)
{
    const struct mics_stage *x = &model->stages[a], *y = &model->stages[b];

    if (x->kind == MICS_STAGE_BLOCK && y->kind == MICS_STAGE_BLOCK &&
        mics_model_window(model, x->layer) != mics_model_window(model, y->layer))
        return false;
    return x->kind == y->kind && x->part == y->part && x->receives == y->receives &&
           x->hands_on == y->hands_on && x->backward_needs_params == y->backward_needs_params &&
           mics_unit_kind_of(model, x->unit) == mics_unit_kind_of(model, y->unit) &&
           count_of(model, x) == count_of(model, y);
}

uint32_t mics_stage_alike_before(const struct mics_model *model, uint32_t stage)
{
    for (uint32_t i = stage; i-- > 0;)
        if (are_alike(model, i, stage))
            return i;
    return stage;
}

static void add_work(void *context, enum mics_kernel kernel, const void *args)
{
    struct mics_op *op = context;
    struct mics_kernel_work work;

    mics_kernel_work_of(kernel, args, &work);
    op->flops += work.flops;
    op->memory_bytes += work.read + work.written;
}

/* The newest operation before `op`, of a stage, that has the same work; NULL: there is none. The
 * blocks of a model are alike, and there are many. */
static const struct mics_op *find_alike(const struct mics_schedule *schedule,
                                        const struct mics_model *model, const struct mics_op *op)
{
    for (const struct mics_op *before = op; before-- > schedule->ops;)
        if (before->kind == op->kind && before->first == op->first && before->phase == op->phase &&
            before->round == op->round && are_alike(model, before->stage, op->stage))
            return before;
    return NULL;
}

void mics_schedule_set_work(struct mics_schedule *schedule, const struct mics_model *model,
                            const struct mics_plan_choice *choice)
{
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        struct mics_op *op = &schedule->ops[i];
        const bool stage = op->kind == MICS_OP_FORWARD || op->kind == MICS_OP_BACKWARD;
        struct mics_recorder recorder;

        if (mics_op_is_comm(op->kind))
            continue;
        op->flops = op->memory_bytes = 0;
        const struct mics_op *const alike = stage ? find_alike(schedule, model, op) : NULL;
        if (alike) {
            op->flops = alike->flops;
            op->memory_bytes = alike->memory_bytes;
            continue;
        }
        mics_recorder_init(&recorder, add_work, op);
        mics_op_launches(model, choice, op, schedule->train, &recorder);
    }
}
