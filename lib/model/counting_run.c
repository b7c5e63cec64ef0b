/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the family "counting": hashes and whole numbers. A state is a number of 16 bits, of 8 in bf16, so
 * that its type holds it exactly. Indices are of places inside a sample: where the sample lies in its
 * micro-batch must not matter.
 */
#include "model/counting.h"

#include "host/vector.h"

#include <string.h>

/* A good enough hash of two words: multiply, and fold the high bits down (both constants are odd and
 * have about half their bits set). */
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

/* Of `count` states from element `first` on. */
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
                     digest_states(pass, tokens, pass->flow, b * per_sample, per_sample));
    }
}

static void make_middle(const struct mics_pass *pass, uint32_t stage,
                        const struct mics_counting_areas *areas)
{
    const uint64_t count = (uint64_t)pass->batch.B * pass->batch.T * pass->model->config.n_embd;
    const uint64_t params = digest_params(pass, stage);

    for (uint64_t i = 0; i < count; i++)
        put_state(pass, areas->middle, i, mix(params, bits_at(pass, areas->in, i)));
}

static void block_forward(const struct mics_pass *pass, uint32_t stage,
                          const struct mics_counting_areas *areas)
{
    const uint64_t per_sample = (uint64_t)pass->batch.T * pass->model->config.n_embd;

    make_middle(pass, stage, areas);
    for (uint64_t i = 0; i < pass->batch.B * per_sample; i++)
        put_state(pass, pass->out, i, mix(bits_at(pass, areas->middle, i), i % per_sample));
}

static void block_backward(const struct mics_pass *pass, uint32_t stage,
                           const struct mics_counting_areas *areas)
{
    const uint64_t per_sample = (uint64_t)pass->batch.T * pass->model->config.n_embd;

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL)
        make_middle(pass, stage, areas);
    for (uint32_t b = 0; b < pass->batch.B; b++) {
        const uint64_t first = b * per_sample;
        uint64_t sample = digest_states(pass, stage, areas->in, first, per_sample);

        sample = digest_states(pass, sample, areas->middle, first, per_sample);
        sample = digest_states(pass, sample, pass->flow, first, per_sample);
        add_gradient(pass, stage, sample);
        for (uint64_t i = first; i < first + per_sample; i++)
            put_state(pass, pass->flow, i,
                      mix(bits_at(pass, pass->flow, i), bits_at(pass, areas->middle, i)));
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
            put_state(pass, pass->flow, b * per_sample + i, mix(sample, i));
    }
}

void mics_counting_run_forward(const struct mics_pass *pass, uint32_t stage)
{
    const enum mics_stage_kind kind = pass->model->stages[stage].kind;
    const struct mics_counting_areas areas =
        mics_counting_carve(pass->model, &pass->batch, stage, pass->saved, pass->scratch, NULL);

    if (kind == MICS_STAGE_EMBED)
        embed_forward(pass, stage);
    else if (kind == MICS_STAGE_BLOCK)
        block_forward(pass, stage, &areas);
    else
        head(pass, stage, areas.in);
}

void mics_counting_run_backward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_counting_areas areas =
        mics_counting_carve(pass->model, &pass->batch, stage, pass->saved, pass->scratch, NULL);

    if (pass->model->stages[stage].kind == MICS_STAGE_EMBED)
        embed_backward(pass, stage);
    else
        block_backward(pass, stage, &areas);
}

void mics_counting_run_logits(const struct mics_pass *pass, uint32_t row, void *logits)
{
    const uint32_t C = pass->model->config.n_embd, head_stage = pass->model->stage_count - 1;
    const uint64_t state =
        digest_states(pass, digest_params(pass, head_stage), pass->saved, (uint64_t)row * C, C);

    for (uint32_t v = 0; v < pass->model->config.vocab_size; v++)
        mics_store_as(logits, v, (float)(mix(state, v) & 7), pass->batch.dtype);
}
