/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_internal.h - the engine's state, for the files of lib/engine only.
 *
 * Two steps may be in flight, so what each needs of its own is an array of two, indexed by the
 * parity of the step.
 */
#ifndef MICS_ENGINE_ENGINE_INTERNAL_H
#define MICS_ENGINE_ENGINE_INTERNAL_H

#include "device/launch.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "plan/memory.h"

#include <stdatomic.h>

/* Where one unit lives on this rank. Device memory, in the arena; states and master in host memory
 * if the choice says so. */
struct unit_memory {
    const struct mics_layout *layout;        /* of the training schedule */
    void *param;                             /* shard, of choice.dtype */
    float *grad;                             /* shard */
    float *state[MICS_OPTIMIZER_STATES_MAX]; /* shards; NULL: the optimizer has fewer */
    /* Shards of outer steps, or NULL: parameters at the last meeting, and momentum. */
    float *anchor, *outer_momentum;
    float *outer_delta; /* what is exchanged for an outer step during the next step; or NULL */
    float *master;      /* fp32 optimizer shard, segment by segment; NULL: param is fp32 itself */
};

/* What a stage keeps, and its boundary tensors; NULL: it does not receive, or hand on, that one. */
struct stage_memory {
    void *saved;
    void *in[MICS_BOUNDARIES_MAX], *out[MICS_BOUNDARIES_MAX];
};

/* One schedule being replayed, with the events of its operations. */
struct replay {
    const struct mics_schedule *schedule;
    struct mics_event **begin[2], **end[2];        /* [op_count] for each parity */
    struct mics_event *idle[2][MICS_STREAM_COUNT]; /* the end of a step on each stream */
    struct mics_event *input[2]; /* the step's batch and scalars are on the device */
};

/* A step between submit and collect. All but `turn` is read by the watchdog. */
struct flight {
    atomic_uint step;
    atomic_uint_fast64_t number;   /* of the replay, from 1, on all ranks alike; 0: none so far */
    atomic_uint kind;              /* enum mics_replay_kind */
    atomic_uint_fast64_t begin_ns; /* before anything of it is enqueued, by mics_now_s() */
    uint32_t turn;                 /* struct mics_step_result */
};

/* Results that READ copies to the host: one for each parity of steps, and one for evaluations. */
enum { RESULT_EVAL = 2, RESULT_COUNT };

/* The gradients that the units of one turn have accumulated since their last update. */
struct carried {
    uint32_t steps;
    double targets; /* of this rank */
};

/* Arguments of options.before_op. */
struct hook {
    struct mics_engine *engine;
    uint32_t op;
};

struct mics_engine {
    struct mics_engine_options options;
    const struct mics_model *model;
    struct mics_plan_choice choice;
    struct mics_device *device;
    struct mics_executor executor;
    struct mics_stream *input; /* copies batches to the device, ahead of their steps */
    struct mics_schedule *owned_train, *owned_eval, *owned_drain;
    struct replay train, eval;
    struct replay drain; /* of gradients that units carry; without a schedule `train` does it */

    void *arena;
    void *offload; /* host memory of masters and optimizer states; NULL: they are in the arena */
    float *piece_slots[MICS_OFFLOAD_SLOTS]; /* of these on the device, [values][slot count] */
    uint64_t piece_slot_count;              /* mics_offload_slot_count() */
    struct mics_memory memory;
    uint64_t used_bytes;              /* of the arena */
    uint64_t comm_bytes;              /* device memory that communicators have allocated */
    struct unit_memory *units;        /* [unit_count] */
    void **param_slots, **grad_slots; /* [slot totals], of choice.dtype and choice.grad_dtype */
    void *staging[MICS_BUFFER_COUNT - MICS_BUFFER_FIRST_STAGING];
    struct stage_memory *stages; /* [stage_count] */
    void *boundary_grads[MICS_BOUNDARIES_MAX], *scratch;
    int32_t *tokens[2], *targets[2];      /* [micro_steps, B, T] */
    struct mics_args_scalars *scalars[2]; /* with the model's stats behind them */

    /* Pinned host memory that batches are copied from and results to. */
    int32_t *host_tokens[2], *host_targets[2];
    struct mics_args_scalars *host_scalars[2];       /* likewise; all stats are 0 */
    struct mics_args_scalars *results[RESULT_COUNT]; /* likewise */
    struct mics_loss_scale *loss_scale;              /* on the device; NULL: not fp16 */
    /* On the host: after the last steps of each parity, and what is copied to the device. */
    struct mics_loss_scale *host_loss_scale[3];

    /* Where tokens travel to the experts of GPUs in several rounds; else NULL. The rows that all
     * ranks have for each expert of the layer that counted last, in pinned memory; an event behind
     * the copy; and [stage_count] in how many rounds of a stage there are rows. */
    uint32_t *host_counts;
    struct mics_event *counted;
    uint32_t *rounds;

    struct flight flights[2], eval_flight;
    uint64_t replays;                 /* of any kind, so far */
    atomic_uint submitted, collected; /* steps, in total; read by the watchdog */
    atomic_bool evaluating, draining;
    struct carried carried[MICS_INTERVAL_MAX]; /* by turn, of what is submitted */
    bool unsettled;     /* fp16: the last step may have changed the loss scale of what is carried */
    float last_lr;      /* of the step submitted last */
    uint32_t last_step; /* submitted */
    bool diverged;      /* replicas have states of their own, since that step */
    bool merges;        /* the next step has the outer update of the meeting in the last one */
    double last_end_s;  /* of the step collected last, on mics_now_s()'s clock */
    struct mics_timeline timeline;
    struct hook *hooks; /* [op_count of train], with the test hook only */
};

/* activity.c: a replay is about to be enqueued. */
void mics_engine_note_begin(struct mics_engine *engine, struct flight *flight,
                            enum mics_replay_kind kind, uint32_t step);

/* memory.c: the arena and what points into it. */
enum mics_status mics_engine_map_memory(struct mics_engine *engine, struct mics_err *err);
void mics_engine_unmap_memory(struct mics_engine *engine);

/* The groups of a unit. The communicators are in those that an operation names, which have the same
 * shape. */
static inline const struct mics_groups *mics_engine_groups(const struct mics_engine *engine,
                                                           uint32_t unit)
{
    return &engine->executor.groups[engine->model->units[unit].kind];
}

/* Where segment `segment` of this rank's updates is in the parameter shard. */
static inline void *mics_engine_updated_piece(const struct mics_engine *engine, uint32_t unit,
                                              uint32_t segment)
{
    const struct mics_layout *layout = engine->units[unit].layout;

    return mics_element(engine->units[unit].param,
                        segment * layout->param_piece +
                            mics_groups_optim_in_param(mics_engine_groups(engine, unit), layout),
                        engine->choice.dtype);
}

/* A vector of a unit that is in host memory: the master, if there is one, and then the states. */
static inline float *mics_engine_offloaded(const struct mics_engine *engine, uint32_t unit,
                                           uint32_t value)
{
    const struct unit_memory *memory = &engine->units[unit];

    if (memory->master && value == 0)
        return memory->master;
    return memory->state[value - (memory->master != NULL)];
}

/* The place on the device of the same vector of a piece. */
static inline float *mics_engine_piece_slot(const struct mics_engine *engine, uint32_t piece,
                                            uint32_t value)
{
    return engine->piece_slots[piece % MICS_OFFLOAD_SLOTS] + value * engine->piece_slot_count;
}

/* Where segment `segment` of what an outer step reads and writes is; `count` elements of each. */
struct outer_piece {
    float *param;   /* the master, or the parameters */
    uint16_t *copy; /* in bf16 or fp16; NULL: the parameters are fp32 */
    float *anchor, *momentum;
    float *grad;  /* in the gradient shard */
    float *delta; /* there too, or beside it */
    uint64_t count;
};

static inline struct outer_piece mics_engine_outer_piece(const struct mics_engine *engine,
                                                         uint32_t unit, uint32_t segment)
{
    const struct unit_memory *memory = &engine->units[unit];
    const struct mics_layout *layout = memory->layout;
    const uint64_t at = segment * layout->optim_piece;
    void *updated = mics_engine_updated_piece(engine, unit, segment);
    float *grad = memory->grad + segment * layout->grad_piece +
                  mics_groups_optim_in_grad(mics_engine_groups(engine, unit), layout);

    return (struct outer_piece){
        .param = memory->master ? memory->master + at : (float *)updated,
        .copy = memory->master ? (uint16_t *)updated : NULL,
        .anchor = memory->anchor + at,
        .momentum = memory->outer_momentum + at,
        .grad = grad,
        .delta = memory->outer_delta ? memory->outer_delta + at : grad,
        .count = layout->optim_piece,
    };
}

/* Outer steps begin at the parameters that the enqueued work leaves, without momentum. */
void mics_engine_enqueue_outer_start(struct mics_engine *engine);
/* Exchange now what the next step would, and update the parameters with it; they are not published
 * yet. All steps must be collected. Collective. */
enum mics_status mics_engine_complete_meeting(struct mics_engine *engine, struct mics_err *err);

/* The model's stats behind the scalars of a step; NULL: it has none. */
static inline double *mics_engine_stats(const struct mics_engine *engine,
                                        struct mics_args_scalars *scalars)
{
    return engine->model->stat_count > 0 ? (double *)(scalars + 1) : NULL;
}

/* MICS_ERR_ARG: a step is not collected yet. */
enum mics_status mics_engine_check_idle(const struct mics_engine *engine, struct mics_err *err);

/* prepare.c. Free bytes of device memory; 0 on the host, or if unknown. */
uint64_t mics_engine_memory_left(const struct mics_engine *engine);

/* issue.c: enqueue the work of one operation. Its waits and events are the caller's. */
struct issue {
    const struct mics_op *op;
    const struct mics_schedule *schedule;
    struct mics_stream *stream;
    struct mics_batch batch;
    uint32_t parity, step;
    uint64_t turns; /* a bit for each whose units are updated */
    uint32_t steps; /* of which their gradients are */
    bool warmup;    /* one of the first steps of outer steps, which sum gradients */
    bool tail;      /* nothing but these updates, and what they need */
    float lr;
    struct mics_args_scalars *read; /* destination of READ */
};
void mics_engine_issue(struct mics_engine *engine, const struct issue *issue);
/* Is this operation in a round of tokens to experts that no rank needs? On a GPU the host leaves it
 * out then; on a host it does nothing by itself. Before the second round of a layer, in a forward
 * pass, it waits until the GPU has counted the rows, which is while that computes the first. */
bool mics_engine_round_is_empty(struct mics_engine *engine, const struct issue *issue,
                                const struct mics_op *op);

static inline bool mics_engine_has_turn(const struct issue *issue, uint32_t unit)
{
    return issue->turns >> issue->schedule->turns[unit] & 1;
}

/* fp16: multiply the gradients that units carry, which then are those of another loss scale. */
void mics_engine_scale_carried(struct mics_engine *engine, double by);

/* replay.c: all operations of a schedule, once. `issue` holds what all of them share. */
enum mics_status mics_replay_open(struct mics_engine *engine, const struct mics_schedule *schedule,
                                  struct replay *replay, struct mics_err *err);
void mics_replay_close(struct mics_engine *engine, struct replay *replay);
void mics_replay_run(struct mics_engine *engine, struct replay *replay, struct issue *issue);
enum mics_status mics_replay_wait(struct mics_engine *engine, struct replay *replay,
                                  uint32_t parity, struct mics_err *err);
/* Enqueue the copy of host_tokens, host_targets and host_scalars of this parity to the device. */
void mics_replay_send_batch(struct mics_engine *engine, struct replay *replay, uint32_t parity,
                            uint64_t tokens);

/* Elements of one micro-batch, B * T, as planned. */
static inline uint64_t mics_engine_micro_tokens(const struct mics_engine *engine)
{
    return (uint64_t)engine->choice.micro_batch * engine->choice.seq;
}

#endif
