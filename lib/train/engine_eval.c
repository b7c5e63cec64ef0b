/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_eval.c - forward only: the loss of a batch, and the logits that come after a text.
 */
#include "train/engine_internal.h"

#include <string.h>

static enum mics_status check_idle(const struct mics_engine *engine, struct mics_err *err)
{
    if (mics_engine_uncollected(engine) > 0)
        return mics_err_set(err, MICS_ERR_ARG, "a step still waits to be collected");
    return MICS_OK;
}

enum mics_status mics_engine_eval(struct mics_engine *engine, mics_engine_fill *fill, void *context,
                                  double *loss_sum, double *targets, struct mics_err *err)
{
    const struct mics_plan_choice *choice = &engine->choice;
    struct mics_op_scalars *scalars = &engine->results[RESULT_EVAL];
    enum mics_status status = check_idle(engine, err);

    if (status != MICS_OK)
        return status;
    mics_engine_fill_batch(engine, 0, 1, fill, context);
    mics_replay_send_batch(engine, &engine->eval, 0, mics_engine_micro_tokens(engine));
    struct issue issue = {
        .batch = {choice->micro_batch, choice->seq, choice->recompute, false},
        .logits_row = MICS_NONE,
        .read = scalars,
    };
    mics_replay_run(engine, &engine->eval, &issue);
    status = mics_replay_wait(engine, &engine->eval, 0, err);
    if (status != MICS_OK)
        return status;
    *loss_sum = scalars->loss_sum;
    *targets = scalars->targets;
    return MICS_OK;
}

/* Room for [V] on the device: the head unit's gradient, which nobody needs between steps and which is
 * at least [V, C]. */
static float *logits_room(struct mics_engine *engine)
{
    const struct mics_schedule *schedule = engine->train.schedule;
    const uint32_t head = engine->model->stage_count - 1;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->kind == MICS_OP_FORWARD && op->stage == head)
            return op->grad_slot == MICS_NONE ? engine->units[op->unit].grad
                                              : engine->grad_slots[op->grad_slot];
    }
    return NULL;
}

enum mics_status mics_engine_logits(struct mics_engine *engine, const int32_t *tokens,
                                    uint32_t length, float *logits, struct mics_err *err)
{
    struct mics_stream *stream = engine->streams[MICS_STREAM_COMPUTE];
    enum mics_status status = check_idle(engine, err);

    if (status != MICS_OK)
        return status;
    if (length < 1 || length > engine->choice.seq)
        return mics_err_set(err, MICS_ERR_ARG, "a text of %u tokens: the plan's sequence is %u",
                            length, engine->choice.seq);
    memcpy(engine->host_tokens[0], tokens, length * sizeof *tokens);
    memset(engine->host_targets[0], 0xff, length * sizeof *tokens);
    engine->host_scalars[0] = (struct mics_op_scalars){0};
    mics_replay_send_batch(engine, &engine->eval, 0, length);
    struct issue issue = {
        .batch = {1, length, engine->choice.recompute, false},
        .logits_row = length - 1,
        .logits = logits_room(engine),
        .read = &engine->results[RESULT_EVAL],
    };
    mics_replay_run(engine, &engine->eval, &issue);
    mics_launch_copy(
        stream, &(struct mics_op_copy){.dst = logits,
                                       .src = issue.logits,
                                       .bytes = engine->model->config.vocab_size * sizeof *logits});
    status = engine->device->ops->stream_sync(stream, err);
    return status == MICS_OK ? mics_replay_wait(engine, &engine->eval, 0, err) : status;
}
