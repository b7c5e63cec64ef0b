/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eval.c - forward only: the loss of a batch, and the logits that come after a text.
 */
#include "engine/internal.h"
#include "host/numbers.h"
#include "plan/memory.h"

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
    struct mics_op_scalars *scalars = &engine->results[RESULT_EVAL];
    enum mics_status status = check_idle(engine, err);

    if (status != MICS_OK)
        return status;
    mics_engine_fill_batch(engine, 0, 1, fill, context);
    mics_replay_send_batch(engine, &engine->eval, 0, mics_engine_micro_tokens(engine));
    struct issue issue = {
        .batch = mics_choice_batch(&engine->choice, false),
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
 * at least [V, C] of 2 bytes each; C is 2 or more. */
static void *logits_room(struct mics_engine *engine)
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

/* To the end of the caller's room, and widened from there to its beginning: each number takes the place of
 * those before it, which are done. */
static enum mics_status fetch_logits(struct mics_engine *engine, const void *from, float *logits,
                                     struct mics_err *err)
{
    struct mics_stream *stream = engine->streams[MICS_STREAM_COMPUTE];
    const uint32_t V = engine->model->config.vocab_size;
    const uint64_t bytes = V * mics_dtype_bytes(engine->choice.dtype);
    void *to = (uint8_t *)logits + (V * sizeof *logits - bytes);
    enum mics_status status;

    mics_launch_copy(stream, &(struct mics_op_copy){.dst = to, .src = from, .bytes = bytes});
    status = engine->device->ops->stream_sync(stream, err);
    for (uint32_t v = 0; to != logits && v < V; v++) {
        uint16_t narrow;

        memcpy(&narrow, (uint8_t *)to + v * sizeof narrow, sizeof narrow);
        mics_numbers_to_f32(MICS_STORAGE_BF16, &narrow, &logits[v], 1);
    }
    return status;
}

enum mics_status mics_engine_logits(struct mics_engine *engine, const int32_t *tokens,
                                    uint32_t length, float *logits, struct mics_err *err)
{
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
        .batch = mics_choice_batch(&engine->choice, false),
        .logits_row = length - 1,
        .logits = logits_room(engine),
        .read = &engine->results[RESULT_EVAL],
    };
    issue.batch.B = 1;
    issue.batch.T = length;
    mics_replay_run(engine, &engine->eval, &issue);
    status = fetch_logits(engine, issue.logits, logits, err);
    return status == MICS_OK ? mics_replay_wait(engine, &engine->eval, 0, err) : status;
}
