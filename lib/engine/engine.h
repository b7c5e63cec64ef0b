/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - the executor "run": a schedule on a real device with real communicators.
 *
 * One engine is one rank. It allocates one arena of exactly the plan's size, makes the
 * communicators that its schedule uses, and replays the schedule every step. Nothing is allocated
 * inside a step, and the host does not wait inside one: results come one step late.
 *
 *     mics_engine_new() -> mics_engine_prepare(), mics_engine_warm_up()
 *     -> mics_engine_init() or mics_engine_import() + mics_engine_publish()
 *     -> { mics_engine_submit() ; mics_engine_collect() of the step before } -> mics_engine_free()
 */
#ifndef MICS_ENGINE_ENGINE_H
#define MICS_ENGINE_ENGINE_H

#include "comm/world.h"
#include "plan/plan.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

struct mics_engine;

struct mics_engine_options {
    const struct mics_model *model; /* outlives the engine, as all below */
    const struct mics_plan_choice *choice;
    struct mics_world *world; /* of the plan's shape */
    struct mics_comm *comm; /* the world's ranks, for memory of the device; NULL: the world's own */
    struct mics_device *device;
    const struct mics_schedule *schedule; /* NULL: made from the choice. Tests pass mutated ones. */
    struct mics_optimizer_settings optimizer; /* its clip must agree with choice->clip */
    /* Seconds for each operation of the training schedule (pace.h): then nothing is computed, operations
     * only take that long, and communication stays real. The loss is 0. NULL: compute. */
    const double *pace;
    /* For tests: called in the stream before each operation; may sleep. NULL: none. */
    void (*before_op)(void *context, uint32_t op);
    void *context;
};

/* Give micro-step `micro_step`'s tokens and targets [B, T] of this rank: valid tokens, targets valid
 * or -1. Called once per micro-step from mics_engine_submit() and mics_engine_eval(). */
typedef void mics_engine_fill(void *context, uint32_t micro_step, int32_t *tokens,
                              int32_t *targets);

struct mics_step_input {
    uint32_t step; /* from 1 */
    float lr;
    mics_engine_fill *fill;
    void *fill_context;
};

struct mics_step_result {
    uint32_t step;
    double loss;      /* mean over the step's targets, all ranks */
    double targets;   /* counted, all ranks */
    double grad_norm; /* of the mean gradient */
    double
        seconds; /* from the end of the step before to the end of this one (first step: from its beginning) */
    struct mics_overlap overlap; /* as measured on this rank */
    double begin_s;              /* when the timeline begins, on the clock of mics_now_s() */
};

/* What an update changes of a unit, in fp32: this rank's optimizer shard, segment by segment, of the
 * parameters and of as many states as the optimizer has (kernels/optimizer.h). */
enum mics_state { MICS_STATE_PARAM, MICS_STATE_M, MICS_STATE_V };

enum mics_status mics_engine_new(const struct mics_engine_options *options,
                                 struct mics_engine **out, struct mics_err *err);
void mics_engine_free(struct mics_engine *engine); /* NULL is fine */

/* On a device with memory of its own, let the communicators do once what they will do in steps: they connect, take what memory they need
 * (mics_engine_comm_bytes()) and are quick afterwards. Collective; what is in the arena is lost, so before it is filled. A
 * failure may be this rank's alone. */
enum mics_status mics_engine_warm_up(struct mics_engine *engine, struct mics_err *err);

/* Choose how the device does the matrix products of the schedules, alike on all ranks with the same
 * GPU and libraries. Without it the library's first proposals are used. Collective, over the
 * world's own communicator; what is in the arena is lost, so before it is filled. All ranks fail
 * together. Does nothing where a device has no choice. */
enum mics_status mics_engine_prepare(struct mics_engine *engine, struct mics_err *err);

/* Parameters from the seed (each rank its own shard only); optimizer state 0. */
enum mics_status mics_engine_init(struct mics_engine *engine, uint64_t seed, struct mics_err *err);

/* Enqueue one step and return. At most two steps may be uncollected: the call fails on a third. */
enum mics_status mics_engine_submit(struct mics_engine *engine, const struct mics_step_input *input,
                                    struct mics_err *err);
/* Wait for the oldest uncollected step. Failures of the device and of communication surface here. */
enum mics_status mics_engine_collect(struct mics_engine *engine, struct mics_step_result *out,
                                     struct mics_err *err);
uint32_t mics_engine_uncollected(const struct mics_engine *engine);

/* Forward one micro-batch per rank; mean loss over all ranks' targets. Collective; needs all steps
 * collected. */
enum mics_status mics_engine_eval(struct mics_engine *engine, mics_engine_fill *fill, void *context,
                                  double *loss_sum, double *targets, struct mics_err *err);

/* Logits [V] for the token after tokens[0 .. length), on every rank; the tokens must be the same on
 * all. 1 <= length <= the plan's seq. Collective. */
enum mics_status mics_engine_logits(struct mics_engine *engine, const int32_t *tokens,
                                    uint32_t length, float *logits, struct mics_err *err);

/* Elements of this rank's optimizer shard of a unit, and where they are in the unit's flat vector:
 * segment t's piece begins at mics_layout_piece_offset(). */
uint64_t mics_engine_shard_count(const struct mics_engine *engine, uint32_t unit);
/* Copy elements [first, first + count) of the shard out of, or into, the arena. Steps must be collected. */
enum mics_status mics_engine_export(struct mics_engine *engine, uint32_t unit,
                                    enum mics_state state, uint64_t first, uint64_t count,
                                    float *dst, struct mics_err *err);
enum mics_status mics_engine_import(struct mics_engine *engine, uint32_t unit,
                                    enum mics_state state, uint64_t first, uint64_t count,
                                    const float *src, struct mics_err *err);
/* After an import of parameters: round them to the plan's type, and give every rank of the optimizer group its
 * part. Collective. */
enum mics_status mics_engine_publish(struct mics_engine *engine, struct mics_err *err);

const struct mics_schedule *mics_engine_schedule(const struct mics_engine *engine);
/* Of the last collected step; arrays belong to the engine and live until the next collect. */
const struct mics_timeline *mics_engine_timeline(const struct mics_engine *engine);
/* Sum over steps so far, by communicator kind. */
void mics_engine_counts(const struct mics_engine *engine,
                        struct mics_comm_counts counts[MICS_COMM_KIND_COUNT]);
/* Of what this rank sent so far, the bytes that went to other nodes. */
uint64_t mics_engine_net_bytes(const struct mics_engine *engine);
/* What an engine is at. */
struct mics_engine_doing {
    uint64_t progress;        /* another number whenever something has been finished */
    uint32_t step;            /* the oldest step that is not collected; 0: none */
    bool evaluating;          /* ... and a batch outside of steps is under way */
    uint32_t op;              /* its oldest operation that is not finished; MICS_NONE: none */
    const struct mics_op *is; /* the same */
};
/* Any thread, at any time, on any device that can tell (else there is no operation). */
void mics_engine_watch(const struct mics_engine *engine, struct mics_engine_doing *out);
/* Operation `op` of a step, or of an evaluation; NULL: there is none of this number. */
const struct mics_op *mics_engine_op(const struct mics_engine *engine, bool evaluating,
                                     uint32_t op);

/* Has one of the communicators failed where no stream tells? mics_comm_ops.check() of each. Any thread. */
enum mics_status mics_engine_check(const struct mics_engine *engine, struct mics_err *err);

/* Bytes of the arena, and the part of it that was ever handed out. */
uint64_t mics_engine_arena_bytes(const struct mics_engine *engine);
uint64_t mics_engine_high_water(const struct mics_engine *engine);
/* Bytes of the device's memory, beside the arena, that this rank's communicators took until the first step, as measured: 0 on the
 * host. */
uint64_t mics_engine_comm_bytes(const struct mics_engine *engine);

#endif
