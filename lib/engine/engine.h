/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - the executor "run": a schedule on a real device with real communicators.
 *
 * One engine is one rank. It allocates one arena of exactly the plan's size, opens the
 * communicators that its schedules use, and replays the training schedule in every step. Nothing is
 * allocated inside a step, and the host does not wait inside one: results come one step late.
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

/* How fp16's loss scale moves (struct mics_args_loss_scale). It multiplies the mean loss of a
 * micro-batch, or of a step: see mics_choice_loss_divisor(). All but `window` and `hysteresis` are
 * powers of two. */
struct mics_loss_scale_settings {
    double initial, step, min, max;
    uint32_t window, hysteresis; /* window 0: it stays as it is */
};

/* The state of it between steps. */
struct mics_loss_scale_state {
    double scale;
    uint32_t clean, patience;
    uint64_t overflows;
};

struct mics_engine_options {
    const struct mics_model *model; /* outlives the engine, as all below */
    const struct mics_plan_choice *choice;
    struct mics_world *world; /* of the plan's shape */
    struct mics_comm *comm;   /* the world's ranks, for device memory; NULL: world->comm */
    struct mics_device *device;
    const struct mics_schedule
        *schedule; /* NULL: built from the choice. Tests pass mutated ones. */
    struct mics_optimizer_settings optimizer;   /* its clip must agree with choice->clip */
    struct mics_loss_scale_settings loss_scale; /* fp16 */
    uint64_t seed;  /* of stochastic rounding, if the choice asks for it */
    bool documents; /* attention stays within documents, which targets end (kernels/ops.h) */
    /* [operations of the training schedule] seconds. If it is set, each operation only takes its
     * time instead of computing, communication stays real, and the loss is 0. NULL: compute. */
    const double *op_durations;
    /* Called in the stream before each collective, and at the beginning of each other operation
     * that is not idle, with its index; may sleep. For tests. NULL: none. */
    void (*before_op)(void *context, uint32_t op);
    void *context;
};

/* Fill this rank's tokens and targets [B, T] of a micro-step: tokens below the vocabulary's size,
 * targets likewise or negative (not counted; MICS_TARGET_LAST also ends a document). Called once
 * per micro-step from mics_engine_submit() and mics_engine_eval(). */
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
    double loss;    /* mean over the step's targets, all ranks; 0 without any */
    double targets; /* counted, all ranks */
    /* Norm of the mean gradient; with an interval, of the units that were updated; with outer steps
     * the root mean square of the replicas' norms. */
    double grad_norm;
    double seconds; /* since the end of the step before; of the first step since its beginning */
    struct mics_overlap overlap; /* as measured on this rank */
    double begin_s;              /* when the timeline begins, on the clock of mics_now_s() */
    /* [stat_count of the model] Sums over all ranks (enum mics_stat), valid until the next submit;
     * NULL: the model has none. */
    const double *stats;
    uint32_t turn; /* mics_schedule_turn(), or MICS_TURN_NEVER if no meeting was there to merge */
    /* fp16: the loss scale of the step and of the next one; 0 with other types. After an overflow
     * nothing was updated, and with an interval units have lost the gradients that they carried;
     * at_minimum: and the scale should have fallen below the least. With outer steps the scale is
     * this replica's, which alone skips its step; `overflow` and at_minimum are of any replica, and
     * with at_minimum the scale is the least. */
    double loss_scale, next_loss_scale;
    bool overflow, at_minimum;
    uint32_t skipped; /* with outer steps: replicas in which there was an overflow, of all */
};

/* What an update changes of a unit, in fp32: this rank's optimizer shard, segment by segment, of
 * the parameters and of as many states as the optimizer has (kernels/optimizer.h). */
enum mics_state { MICS_STATE_PARAM, MICS_STATE_M, MICS_STATE_V };
/* With outer steps two more follow the optimizer's last: the anchor and the outer momentum. */

/* Open streams and communicators and allocate the arena. Collective over the communicator that the
 * options name; only the allocation may fail on this rank alone. */
enum mics_status mics_engine_new(const struct mics_engine_options *options,
                                 struct mics_engine **out, struct mics_err *err);
void mics_engine_free(struct mics_engine *engine); /* NULL is fine */

/* On a device with memory of its own, run each kind of collective of the schedules once, so that
 * communicators connect and allocate device memory (mics_engine_comm_bytes()) before the first
 * step. Overwrites the arena: call it before init or import. Collective; may fail on this rank
 * alone. */
enum mics_status mics_engine_warm_up(struct mics_engine *engine, struct mics_err *err);

/* Choose the algorithms for the matrix products of the schedules, the same on all ranks with the
 * same GPU and libraries. Without this call the library's first proposals are used. Overwrites the
 * arena: call it before init or import. On hosts, for jobs in bf16: makes oneDNN's primitives, and
 * MICS_ERR_UNSUPPORTED where ranks would multiply differently. Collective over world->comm; all
 * ranks fail together. */
enum mics_status mics_engine_prepare(struct mics_engine *engine, struct mics_err *err);

/* Initialise this rank's shards: parameters from the seed, optimizer state 0. Collective over
 * world->node_comm, whose ranks share the work if all have all parameters. */
enum mics_status mics_engine_init(struct mics_engine *engine, uint64_t seed, struct mics_err *err);
/* Gradients and optimizer state 0; the parameters must be imported and published. */
enum mics_status mics_engine_zero_state(struct mics_engine *engine, struct mics_err *err);

/* fp16's loss scale, which init and zero_state set to the initial one. Gradients that units carry
 * become those of the new one. All steps must be collected.
 * MICS_ERR_ARG: they are not. */
enum mics_status mics_engine_get_loss_scale(struct mics_engine *engine,
                                            struct mics_loss_scale_state *out,
                                            struct mics_err *err);
enum mics_status mics_engine_set_loss_scale(struct mics_engine *engine,
                                            const struct mics_loss_scale_state *state,
                                            struct mics_err *err);

/* Enqueue one step and return. MICS_ERR_ARG: two steps are uncollected already. */
enum mics_status mics_engine_submit(struct mics_engine *engine, const struct mics_step_input *input,
                                    struct mics_err *err);
/* Wait for the oldest uncollected step. Reports failures of the device and of communication. */
enum mics_status mics_engine_collect(struct mics_engine *engine, struct mics_step_result *out,
                                     struct mics_err *err);
uint32_t mics_engine_uncollected(const struct mics_engine *engine);

/* Exchange and apply now the gradients that units have accumulated since their last update, so that
 * none is left behind: the units that have waited longest first, and those that have waited for
 * equally many steps together, each as in a step, with the learning rate of the last step.
 * out->grad_norm: the largest of their mean gradients, not finite if one is not; 0 if there is
 * nothing to do, as without an interval. In fp16 the loss scale is also set; an overflow ends the
 * update, and the remaining gradients are lost. Nothing else of *out is set. All steps must be
 * collected. Collective. */
enum mics_status mics_engine_update_carried(struct mics_engine *engine,
                                            struct mics_step_result *out, struct mics_err *err);

/* Sums over all ranks' targets; hits of encoders only. */
struct mics_eval_sums {
    double loss, targets, hits;
};

/* Forward one micro-batch per rank and add up. Collective; all steps must be collected. */
enum mics_status mics_engine_eval(struct mics_engine *engine, mics_engine_fill *fill, void *context,
                                  struct mics_eval_sums *sums, struct mics_err *err);

/* Elements of this rank's optimizer shard of a unit. In the unit's flat vector, its piece of
 * segment t begins at mics_layout_piece_offset(). */
uint64_t mics_engine_shard_count(const struct mics_engine *engine, uint32_t unit);
/* Copy elements [first, first + count) of the shard out of, or into, the arena. All steps must be
 * collected. MICS_ERR_ARG: they are not, or the optimizer does not have this state. */
enum mics_status mics_engine_export(struct mics_engine *engine, uint32_t unit,
                                    enum mics_state state, uint64_t first, uint64_t count,
                                    float *dst, struct mics_err *err);
enum mics_status mics_engine_import(struct mics_engine *engine, uint32_t unit,
                                    enum mics_state state, uint64_t first, uint64_t count,
                                    const float *src, struct mics_err *err);
/* Copy all parameters of a unit, in fp32, to rank 0 of world->comm: out[count of the unit], not
 * used on the others. Takes as much memory as a shard of the unit. Collective; all steps must be
 * collected; may fail on this rank alone. */
enum mics_status mics_engine_collect_unit(struct mics_engine *engine, uint32_t unit, float *out,
                                          struct mics_err *err);
/* After parameters were imported: round them to the plan's type, and gather the parameter shards in
 * the optimizer groups. Collective. */
enum mics_status mics_engine_publish(struct mics_engine *engine, struct mics_err *err);

/* With outer steps: begin them at the present parameters, without momentum. */
enum mics_status mics_engine_start_outer(struct mics_engine *engine, struct mics_err *err);
/* With outer steps: replace parameters and optimizer states, which replicas train on their own, by
 * their means over the replicas, and fp16's loss scale by the least, so that all hold the same;
 * anchor and outer momentum are the same
 * anyway. A meeting that the next step would complete is completed instead. In the first steps,
 * in which replicas are the same, outer steps begin here. Nothing to do if there was no step since.
 * All steps must be collected. Collective. */
enum mics_status mics_engine_average(struct mics_engine *engine, struct mics_err *err);
/* With outer steps, between two meetings: put the mean of the replicas' parameters in their place
 * (*shown), until mics_engine_hide_average() puts each replica's own back, bit for bit. Collective;
 * all steps must be collected. Uses the memory of the gradients. */
enum mics_status mics_engine_show_average(struct mics_engine *engine, bool *shown,
                                          struct mics_err *err);
enum mics_status mics_engine_hide_average(struct mics_engine *engine, struct mics_err *err);

const struct mics_schedule *mics_engine_schedule(const struct mics_engine *engine);
/* Times of the last collected step; arrays belong to the engine until the next collect. */
const struct mics_timeline *mics_engine_timeline(const struct mics_engine *engine);
/* Totals of all steps so far, as mics_schedule_counts() has them for one. */
void mics_engine_counts(const struct mics_engine *engine,
                        struct mics_comm_counts counts[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT]);
/* Bytes that this rank has sent to other nodes so far. */
uint64_t mics_engine_net_bytes(const struct mics_engine *engine);
/* What an engine is executing. */
struct mics_engine_activity {
    uint64_t progress; /* changes whenever an operation has ended */
    uint32_t step;     /* the oldest step that is not collected; 0: none */
    bool evaluating;   /* an evaluation is running, outside of steps */
    uint32_t op;       /* the oldest operation that has not ended; MICS_NONE: none */
};
/* Any thread, at any time. No operation is named on devices whose events cannot be polled. */
void mics_engine_watch(const struct mics_engine *engine, struct mics_engine_activity *out);

/* What replays a schedule: a step, an evaluation, or updates outside of steps. */
enum mics_replay_kind { MICS_REPLAY_STEP, MICS_REPLAY_EVAL, MICS_REPLAY_UPDATE };

/* An operation has ended, has begun, or is due: all that it waits for has ended. */
enum mics_op_state { MICS_OP_ENDED, MICS_OP_RUNNING, MICS_OP_DUE };

/* The same operation has the same `number` and `index` on all ranks. */
struct mics_engine_op_times {
    enum mics_replay_kind kind;
    uint64_t number; /* of the replay, from 1 */
    uint32_t step;   /* of it, or the last one before it */
    uint32_t index;  /* in the schedule */
    enum mics_op_state state;
    const struct mics_op *op;             /* the schedule's */
    const struct mics_schedule *schedule; /* the engine's */
    /* On the clock of mics_now_s(): when it began or became due, and when it ended. */
    double begin_s, end_s;
};
/* The operations that began last or are due, at most `capacity`, sorted by state and then by begin.
 * After a failure of the device, an operation that was skipped has not begun, and one that was
 * running has not ended. Events of two steps and of one evaluation are available. Any thread, at
 * any time. *count is 0 on devices whose events cannot be polled, and on those that have failed at
 * an unknown time. MICS_ERR_NOMEM. */
enum mics_status mics_engine_last_ops(const struct mics_engine *engine,
                                      struct mics_engine_op_times *out, size_t capacity,
                                      size_t *count, struct mics_err *err);
/* Operation `op` of a step, or of an evaluation; NULL: out of range. */
const struct mics_op *mics_engine_op(const struct mics_engine *engine, bool evaluating,
                                     uint32_t op);

/* Failures of communicators that no stream reports: mics_comm.health->check() of each. Any
 * thread. */
enum mics_status mics_engine_check(const struct mics_engine *engine, struct mics_err *err);
/* Has the device failed? Its streams then skip what they have to do. Any thread. */
bool mics_engine_has_failed(const struct mics_engine *engine);

/* Bytes of the arena, and how many of them are in use. */
uint64_t mics_engine_arena_bytes(const struct mics_engine *engine);
uint64_t mics_engine_high_water(const struct mics_engine *engine);
/* Bytes of device memory outside the arena that this rank's communicators had allocated before the
 * first step, as measured. 0 on the host. */
uint64_t mics_engine_comm_bytes(const struct mics_engine *engine);

#endif
