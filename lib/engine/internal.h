/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the engine's parts, for the files engine_*.c only.
 *
 * What a step needs twice, because two steps may be in flight, is an array of two, used by the
 * step's parity.
 */
#ifndef MICS_ENGINE_INTERNAL_H
#define MICS_ENGINE_INTERNAL_H

#include "device/launch.h"
#include "engine/engine.h"
#include "plan/types.h"

#include <stdatomic.h>

/* Where one unit lives on this rank. Device memory, in the arena. */
struct unit_memory {
    const struct mics_layout *layout;        /* of the training schedule */
    void *param;                             /* shard, of choice.dtype */
    float *grad;                             /* shard */
    float *state[MICS_OPTIMIZER_STATES_MAX]; /* shards; NULL: the optimizer has fewer */
    float
        *master; /* optimizer shard, segment by segment; NULL: the parameters are fp32 themselves */
};

/* One schedule being replayed, with the events of its operations. */
struct replay {
    const struct mics_schedule *schedule;
    struct mics_event **begin[2], **end[2];        /* [op_count] for each parity */
    struct mics_event *idle[2][MICS_STREAM_COUNT]; /* the end of a step on each stream */
    struct mics_event *input[2]; /* the step's batch and scalars are on the device */
};

/* A step between submit and collect. */
struct flight {
    atomic_uint step; /* the watchdog looks */
};

/* Of the results that READ copies to the host: one for each parity of steps, one for a batch outside of steps. */
enum { RESULT_EVAL = 2, RESULT_COUNT };

/* What the test hook is called with, in a stream. */
struct hook {
    struct mics_engine *engine;
    uint32_t op;
};

struct mics_engine {
    struct mics_engine_options options;
    const struct mics_model *model;
    struct mics_plan_choice choice;
    struct mics_device *device;
    struct mics_stream *streams[MICS_STREAM_COUNT];
    struct mics_stream
        *input; /* batches go to the device on it, ahead of the step that needs them */
    struct mics_schedule *owned_train, *owned_eval;
    struct replay train, eval;

    struct mics_comm *comms[MICS_COMM_KIND_COUNT];
    struct mics_member members[MICS_COMM_KIND_COUNT];
    struct mics_index index;

    void *arena;
    struct mics_memory memory;
    uint64_t handed_out;
    uint64_t comm_bytes;              /* of the device's memory that communicators took */
    struct unit_memory *units;        /* [unit_count] */
    void **param_slots, **grad_slots; /* [slot totals], of choice.dtype and choice.grad_dtype */
    void *scatter_room, *sync_room;   /* of choice.grad_dtype, where that is not fp32 (types.h) */
    uint8_t **saved;                  /* [stage_count] */
    void *flow, *scratch;
    int32_t *tokens[2], *targets[2]; /* [micro_steps, B, T] */
    struct mics_op_scalars *scalars[2];

    /* The same on the host, and what comes back; the device's copies need no host to wait for them. */
    int32_t *host_tokens[2], *host_targets[2];
    struct mics_op_scalars *host_scalars; /* [2] */
    struct mics_op_scalars *results;      /* [RESULT_COUNT] */

    struct flight flights[2];
    atomic_uint submitted, collected; /* steps since the engine was made; the watchdog looks */
    atomic_bool evaluating;           /* a batch outside of steps is under way */
    double last_end_s;                /* of the step collected last, on mics_now_s()'s clock */
    struct mics_timeline timeline;
    struct hook *hooks; /* [op_count of train], with the test hook only */
};

/* engine_memory.c: the arena and what points into it. */
enum mics_status mics_engine_map_memory(struct mics_engine *engine, struct mics_err *err);
void mics_engine_unmap_memory(struct mics_engine *engine);

/* engine_warm.c. Bytes of the device's memory that are free; 0: the host's, or unknown. */
uint64_t mics_engine_memory_left(const struct mics_engine *engine);

/* engine.c: ask `fill` for the batch and count its targets, into the host buffers of this parity. */
void mics_engine_fill_batch(struct mics_engine *engine, uint32_t parity, uint32_t micro_steps,
                            mics_engine_fill *fill, void *context);

/* engine_issue.c: enqueue one operation's work (its waits and events are the caller's). */
struct issue {
    const struct mics_op *op;
    const struct mics_schedule *schedule;
    struct mics_stream *stream;
    struct mics_batch batch;
    uint32_t parity, step;
    float lr;
    uint32_t logits_row;          /* MICS_NONE: the head computes the loss */
    void *logits;                 /* of choice.dtype */
    struct mics_op_scalars *read; /* where READ puts the scalars */
};
void mics_engine_issue(struct mics_engine *engine, const struct issue *issue);

/* engine_replay.c: all operations of a schedule, once. `issue` has what is the same for all. */
enum mics_status mics_replay_open(struct mics_engine *engine, const struct mics_schedule *schedule,
                                  struct replay *replay, struct mics_err *err);
void mics_replay_close(struct mics_engine *engine, struct replay *replay);
void mics_replay_run(struct mics_engine *engine, struct replay *replay, struct issue *issue);
enum mics_status mics_replay_wait(struct mics_engine *engine, struct replay *replay,
                                  uint32_t parity, struct mics_err *err);
/* Start copying the batch of host_tokens, host_targets, host_scalars of this parity. */
void mics_replay_send_batch(struct mics_engine *engine, struct replay *replay, uint32_t parity,
                            uint64_t tokens);

/* Element `i` of an array. */
static inline void *mics_engine_at(const void *base, uint64_t i, enum mics_dtype dtype)
{
    return (uint8_t *)(uintptr_t)base + i * mics_dtype_bytes(dtype);
}

/* Elements of one micro-batch, B * T, as planned. */
static inline uint64_t mics_engine_micro_tokens(const struct mics_engine *engine)
{
    return (uint64_t)engine->choice.micro_batch * engine->choice.seq;
}

/* Offset of this rank's optimizer piece inside its piece of the same segment of another cut. */
static inline uint64_t mics_engine_optim_in_param(const struct mics_engine *engine,
                                                  const struct mics_layout *layout)
{
    return engine->index.optim * layout->optim_piece - engine->index.param * layout->param_piece;
}

static inline uint64_t mics_engine_optim_in_grad(const struct mics_engine *engine,
                                                 const struct mics_layout *layout)
{
    return engine->index.optim * layout->optim_piece - engine->index.grad * layout->grad_piece;
}

#endif
