/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integer_model.c - its units, its memory, and its arithmetic: hashes and whole numbers. A state is
 * a number of 16 bits, of 8 in bf16, so that its type holds it exactly. Indices are of places
 * inside a sample: the sample's position in its micro-batch must not matter.
 */
#include "integer_model.h"

#include "device/launch.h"
#include "host/vector.h"
#include "model/activation_layout.h"
#include "model/unit_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum mics_status build_ends(struct mics_model *model, struct mics_err *err)
{
    const struct mics_tensor_spec specs[] = {
        {"wte.weight", 13, 5, MICS_INIT_NORMAL, 2, .decay = true},
        {"ln_f.weight", 3, 0, MICS_INIT_NORMAL, 2, .decay = false},
        {"ln_f.bias", 1, 0, MICS_INIT_NORMAL, 2, .decay = false},
    };

    return mics_build_unit(model, 0, "ends", true, specs, 3, err);
}

/* Blocks differ in size: the first tensor has F, F / 2 or F / 3 elements, the second 65 and
 * more. */
static enum mics_status build_block(struct mics_model *model, uint32_t layer, struct mics_err *err)
{
    const struct mics_tensor_spec specs[] = {
        {"a.weight", 1 + (model->config.n_inner - 1) / (1 + layer % 3), 0, MICS_INIT_NORMAL, 2,
         .decay = true},
        {"b.weight", 65 + layer, 0, MICS_INIT_NORMAL, 2, .decay = true},
        {"c.bias", 3, 0, MICS_INIT_NORMAL, 2, .decay = false},
        {"d.bias", 1, 0, MICS_INIT_NORMAL, 2, .decay = false},
    };
    char name[32];

    snprintf(name, sizeof name, "h.%u", layer);
    return mics_build_unit(model, 1 + layer, name, false, specs, 4, err);
}

static enum mics_status build(struct mics_model *model, struct mics_err *err)
{
    enum mics_status status = mics_build_stages(model, err);

    if (status == MICS_OK) {
        model->stages[0].backward_needs_params = true; /* gradients depend on all parameters */
        status = build_ends(model, err);
    }
    for (uint32_t i = 0; status == MICS_OK && i < model->config.n_layer; i++)
        status = build_block(model, i, err);
    return status;
}

/* A stage's activations: states are whole numbers of 16 bits, of 8 in bf16. `middle` is saved, or
 * computed again in scratch. The head and the embedding have no middle. */
struct integer_areas {
    const void *in; /* [B, T, C] */
    void *middle;   /* [B, T, C] */
};

static struct integer_areas integer_areas_of(const struct mics_model *model,
                                             const struct mics_batch *batch, uint32_t stage,
                                             void *saved, void *scratch,
                                             struct mics_stage_bytes *bytes)
{
    const uint64_t count = (uint64_t)batch->B * batch->T * model->config.n_embd;
    const enum mics_stage_kind kind = model->stages[stage].kind;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct integer_areas acts = {0};

    if (kind != MICS_STAGE_EMBED)
        acts.in = mics_activation_take_typed(&keep, count, batch->dtype);
    if (kind == MICS_STAGE_BLOCK)
        acts.middle = mics_activation_take_typed(
            batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep, count,
            batch->dtype); /* there are no norms or activation functions */
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return acts;
}

static void stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                        uint32_t stage, struct mics_stage_bytes *out)
{
    integer_areas_of(model, batch, stage, NULL, NULL, out);
}

/* A good enough hash of two words: multiply, and fold the high bits down (both constants are odd
 * and have about half their bits set). */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b * 0xd6e8feb86659fd93u)) + 0xa0761d6478bd642fu;

    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xa0761d6478bd642fu;
    return x ^ (x >> 32);
}

/* The bits of a value; -0 counts as 0. */
static uint64_t bits_of(float value)
{
    const float positive = value + 0.0f;
    uint32_t bits;

    memcpy(&bits, &positive, sizeof bits);
    return bits;
}

/* Element `i` of an array of activations or parameters. */
static float get(const struct mics_pass *pass, const void *from, uint64_t i)
{
    return mics_load_as(from, i, pass->batch.dtype);
}

static uint64_t bits_at(const struct mics_pass *pass, const void *from, uint64_t i)
{
    return bits_of(get(pass, from, i));
}

/* A state, made of a hash. */
static void put_state(const struct mics_pass *pass, void *to, uint64_t i, uint64_t hash)
{
    const uint64_t most = pass->batch.dtype == MICS_BF16 ? 0xff : 0xffff;

    mics_store_as(to, i, (float)(hash & most), pass->batch.dtype);
}

/* A hash of all parameters of the stage's unit; padding is left out. */
static uint64_t digest_params(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_unit *unit = &pass->model->units[pass->model->stages[stage].unit];
    uint64_t digest = stage;

    for (uint32_t i = 0; i < unit->tensor_count; i++)
        for (uint64_t j = 0; j < unit->tensors[i].count; j++)
            digest = mix(digest, bits_at(pass, pass->params, unit->tensors[i].offset + j));
    return digest;
}

/* Digest of `count` states from element `first` on. */
static uint64_t digest_states(const struct mics_pass *pass, uint64_t digest, const void *states,
                              uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        digest = mix(digest, bits_at(pass, states, i));
    return digest;
}

static uint64_t digest_tokens(uint64_t digest, const int32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        digest = mix(digest, (uint32_t)tokens[i]);
    return digest;
}

/* Add one sample's gradient: for each element a whole number from -3 to 3. */
static void add_gradient(const struct mics_pass *pass, uint32_t stage, uint64_t sample)
{
    const struct mics_unit *unit = &pass->model->units[pass->model->stages[stage].unit];

    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *tensor = &unit->tensors[i];
        const uint64_t key = mix(sample, tensor->id);

        for (uint64_t j = 0; j < tensor->count; j++) {
            const uint64_t at = tensor->offset + j;
            const uint64_t hash = mix(mix(key, j), bits_at(pass, pass->params, at));
            const float sum = mics_load_as(pass->grads, at, pass->batch.grad_dtype);

            mics_store_as(pass->grads, at, sum + (float)((int)(hash % 7) - 3),
                          pass->batch.grad_dtype);
        }
    }
}

static void embed_forward(const struct mics_pass *pass, uint32_t stage)
{
    const uint32_t T = pass->batch.T, C = pass->model->config.n_embd;
    const uint64_t params = digest_params(pass, stage);

    for (uint64_t row = 0; row < (uint64_t)pass->batch.B * T; row++)
        for (uint32_t c = 0; c < C; c++)
            put_state(pass, pass->out, row * C + c,
                      mix(params, mix((uint32_t)pass->tokens[row], (row % T) * C + c)));
}

static void embed_backward(const struct mics_pass *pass, uint32_t stage)
{
    const uint32_t T = pass->batch.T;
    const uint64_t per_sample = (uint64_t)T * pass->model->config.n_embd;

    for (uint32_t b = 0; b < pass->batch.B; b++) {
        const uint64_t tokens = digest_tokens(stage, pass->tokens + (uint64_t)b * T, T);

        add_gradient(pass, stage,
                     digest_states(pass, tokens, pass->residual_grad, b * per_sample, per_sample));
    }
}

static void make_middle(const struct mics_pass *pass, uint32_t stage,
                        const struct integer_areas *acts)
{
    const uint64_t count = (uint64_t)pass->batch.B * pass->batch.T * pass->model->config.n_embd;
    const uint64_t params = digest_params(pass, stage);

    for (uint64_t i = 0; i < count; i++)
        put_state(pass, acts->middle, i, mix(params, bits_at(pass, acts->in, i)));
}

static void block_forward(const struct mics_pass *pass, uint32_t stage,
                          const struct integer_areas *acts)
{
    const uint64_t per_sample = (uint64_t)pass->batch.T * pass->model->config.n_embd;

    make_middle(pass, stage, acts);
    for (uint64_t i = 0; i < pass->batch.B * per_sample; i++)
        put_state(pass, pass->out, i, mix(bits_at(pass, acts->middle, i), i % per_sample));
}

static void block_backward(const struct mics_pass *pass, uint32_t stage,
                           const struct integer_areas *acts)
{
    const uint64_t per_sample = (uint64_t)pass->batch.T * pass->model->config.n_embd;

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL)
        make_middle(pass, stage, acts);
    for (uint32_t b = 0; b < pass->batch.B; b++) {
        const uint64_t first = b * per_sample;
        uint64_t sample = digest_states(pass, stage, acts->in, first, per_sample);

        sample = digest_states(pass, sample, acts->middle, first, per_sample);
        sample = digest_states(pass, sample, pass->residual_grad, first, per_sample);
        add_gradient(pass, stage, sample);
        for (uint64_t i = first; i < first + per_sample; i++)
            put_state(pass, pass->residual_grad, i,
                      mix(bits_at(pass, pass->residual_grad, i), bits_at(pass, acts->middle, i)));
    }
}

/* A row's loss: 0 to 15. */
static double row_loss(const struct mics_pass *pass, uint64_t params, const void *in, uint64_t row)
{
    const uint32_t C = pass->model->config.n_embd;
    const uint64_t hash = digest_states(pass, params, in, row * C, C);

    return pass->targets[row] < 0 ? 0 : (double)(mix(hash, (uint32_t)pass->targets[row]) & 15);
}

static void head(const struct mics_pass *pass, uint32_t stage, const void *in)
{
    const uint32_t T = pass->batch.T;
    const uint64_t per_sample = (uint64_t)T * pass->model->config.n_embd;
    const uint64_t params = digest_params(pass, stage);

    for (uint64_t row = 0; row < (uint64_t)pass->batch.B * T; row++)
        *pass->loss_sum += row_loss(pass, params, in, row);
    if (!pass->batch.train)
        return;
    for (uint32_t b = 0; b < pass->batch.B; b++) {
        const uint64_t states = digest_states(pass, params, in, b * per_sample, per_sample);
        const uint64_t sample = digest_tokens(states, pass->targets + (uint64_t)b * T, T);

        add_gradient(pass, stage, sample);
        for (uint64_t i = 0; i < per_sample; i++)
            put_state(pass, pass->residual_grad, b * per_sample + i, mix(sample, i));
    }
}

static void run_forward(const struct mics_pass *pass, uint32_t stage)
{
    const enum mics_stage_kind kind = pass->model->stages[stage].kind;
    const struct integer_areas acts =
        integer_areas_of(pass->model, &pass->batch, stage, pass->saved, pass->scratch, NULL);

    if (kind == MICS_STAGE_EMBED)
        embed_forward(pass, stage);
    else if (kind == MICS_STAGE_BLOCK)
        block_forward(pass, stage, &acts);
    else
        head(pass, stage, acts.in);
}

static void run_backward(const struct mics_pass *pass, uint32_t stage)
{
    const struct integer_areas acts =
        integer_areas_of(pass->model, &pass->batch, stage, pass->saved, pass->scratch, NULL);

    if (pass->model->stages[stage].kind == MICS_STAGE_EMBED)
        embed_backward(pass, stage);
    else
        block_backward(pass, stage, &acts);
}

static void run_logits(const struct mics_pass *pass, uint32_t row, void *logits)
{
    const uint32_t C = pass->model->config.n_embd, head_stage = pass->model->stage_count - 1;
    const uint64_t state =
        digest_states(pass, digest_params(pass, head_stage), pass->saved, (uint64_t)row * C, C);

    for (uint32_t v = 0; v < pass->model->config.vocab_size; v++)
        mics_store_as(logits, v, (float)(mix(state, v) & 7), pass->batch.dtype);
}

/* One call, as stored in the operation's payload. */
struct job {
    struct mics_pass pass;
    void *logits;
    uint32_t stage, row;
    void (*run)(const struct job *job);
};

static void run_job(void *context)
{
    const struct job *job = context;

    job->run(job);
}

static void enqueue(const struct job *job)
{
    struct mics_args_call call = {.fn = run_job};

    _Static_assert(sizeof *job <= sizeof call.payload, "a job must fit into a call's payload");
    memcpy(call.payload, job, sizeof *job);
    mics_launch_call(job->pass.stream, &call);
}

static void forward_job(const struct job *job)
{
    run_forward(&job->pass, job->stage);
}

static void backward_job(const struct job *job)
{
    run_backward(&job->pass, job->stage);
}

static void logits_job(const struct job *job)
{
    run_logits(&job->pass, job->row, job->logits);
}

static void forward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(&(struct job){.pass = *pass, .stage = stage, .run = forward_job});
}

static void backward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(&(struct job){.pass = *pass, .stage = stage, .run = backward_job});
}

static void logits_of_row(const struct mics_pass *pass, uint32_t row, void *logits)
{
    enqueue(&(struct job){.pass = *pass, .row = row, .logits = logits, .run = logits_job});
}

static const struct mics_model_ops ops = {
    .build = build,
    .stage_bytes = stage_bytes,
    .forward = forward,
    .backward = backward,
    .logits = logits_of_row,
};

struct mics_model *integer_model_new_of(const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    struct mics_err err;

    if (mics_model_new_custom(&ops, NULL, config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

struct mics_model *integer_model_new(void)
{
    return integer_model_new_of(&(struct mics_model_config){.family = "integer",
                                                            .name = "integer",
                                                            .n_layer = 3,
                                                            .n_embd = 5,
                                                            .n_head = 1,
                                                            .n_positions = 64,
                                                            .vocab_size = 257,
                                                            .n_inner = 1000,
                                                            .layer_norm_epsilon = 1e-5});
}
