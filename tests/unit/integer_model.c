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

    return mics_build_unit(model, 0, "ends", "", true, specs, 3, err);
}

/* A block of several stages has two units, of the tensors a, b and c, d; else one. */
static enum mics_status build_staged_block(struct mics_model *model, uint32_t layer, bool fused,
                                           struct mics_err *err)
{
    const uint32_t F = model->config.n_inner;
    const struct mics_tensor_spec specs[] = {
        {"a.weight", 1 + (F - 1) / (1 + layer % 3), 0, MICS_INIT_NORMAL, 2, .decay = false},
        {"b.bias", 3, 0, MICS_INIT_NORMAL, 2, .decay = false},
        {"c.weight", 65 + F / 2, 0, MICS_INIT_NORMAL, 2, .decay = false},
        {"d.bias", 1, 0, MICS_INIT_NORMAL, 2, .decay = false},
    };
    char name[32], second[40];

    snprintf(name, sizeof name, "h.%u", layer);
    if (fused)
        return mics_build_unit(model, 1 + layer, name, name, false, specs, 4, err);
    snprintf(second, sizeof second, "%s.second", name);
    enum mics_status status =
        mics_build_unit(model, 1 + 2 * layer, name, name, false, specs, 2, err);
    return status == MICS_OK
               ? mics_build_unit(model, 2 + 2 * layer, second, name, false, specs + 2, 2, err)
               : status;
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
    return mics_build_unit(model, 1 + layer, name, name, false, specs, 4, err);
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

static enum mics_status build_fused(struct mics_model *model, struct mics_err *err)
{
    enum mics_status status = mics_build_stages(model, err);

    if (status == MICS_OK) {
        model->stages[0].backward_needs_params = true;
        status = build_ends(model, err);
    }
    for (uint32_t i = 0; status == MICS_OK && i < model->config.n_layer; i++)
        status = build_staged_block(model, i, true, err);
    return status;
}

/* Boundary tensors of blocks of several stages. */
enum { STREAM, WIDE, DIGEST, BOUNDARIES };
enum { PARTS = 3, DIGEST_STATES = 3 };

static uint64_t wide_of(const struct mics_model *model)
{
    return 2 * model->config.n_embd + 1;
}

static enum mics_status build_staged(struct mics_model *model, struct mics_err *err)
{
    static const struct mics_stage parts[PARTS] = {
        {.receives = 1 << STREAM, .hands_on = 1 << STREAM | 1 << WIDE},
        {.receives = 1 << WIDE, .hands_on = 1 << DIGEST},
        {.receives = 1 << STREAM | 1 << DIGEST, .hands_on = 1 << STREAM},
    };
    const uint32_t layers = model->config.n_layer;

    model->unit_count = 1 + 2 * layers;
    model->stage_count = 2 + PARTS * layers;
    model->boundary_count = BOUNDARIES;
    model->units = calloc(model->unit_count, sizeof *model->units);
    model->stages = calloc(model->stage_count, sizeof *model->stages);
    if (!model->units || !model->stages)
        return mics_err_nomem(err);
    model->stages[0] = (struct mics_stage){
        .kind = MICS_STAGE_EMBED, .hands_on = 1 << STREAM, .backward_needs_params = true};
    for (uint32_t i = 0; i < PARTS * layers; i++) {
        struct mics_stage *stage = &model->stages[1 + i];

        *stage = parts[i % PARTS];
        stage->kind = MICS_STAGE_BLOCK;
        stage->layer = i / PARTS;
        stage->part = i % PARTS;
        stage->unit = stage->part < 2 ? 1 + 2 * stage->layer + stage->part : MICS_NO_UNIT;
        stage->backward_needs_params = true;
    }
    model->stages[model->stage_count - 1] = (struct mics_stage){
        .kind = MICS_STAGE_HEAD, .receives = 1 << STREAM, .backward_needs_params = true};

    enum mics_status status = build_ends(model, err);
    for (uint32_t i = 0; status == MICS_OK && i < layers; i++)
        status = build_staged_block(model, i, false, err);
    return status;
}

/* A stage's activations: states are whole numbers of 16 bits, of 8 in bf16. `middle` is saved, or
 * computed again in scratch. The head and the embedding have no middle. */
struct integer_areas {
    void *middle; /* [B, T, C] */
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

    if (kind == MICS_STAGE_BLOCK)
        acts.middle = mics_activation_take_typed(
            batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep, count,
            batch->dtype); /* there are no norms or activation functions */
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return acts;
}

static void boundary_bytes(const struct mics_model *model, const struct mics_batch *batch,
                           uint32_t boundary, struct mics_boundary_bytes *out)
{
    const uint64_t rows = (uint64_t)batch->B * batch->T;
    const uint64_t counts[BOUNDARIES] = {
        [STREAM] = rows * model->config.n_embd,
        [WIDE] = rows * wide_of(model),
        [DIGEST] = batch->B * DIGEST_STATES,
    };
    struct mics_activation_cursor tensor = {.base = NULL};

    mics_activation_take_typed(&tensor, counts[boundary], batch->dtype);
    *out = (struct mics_boundary_bytes){
        .value = tensor.used, .grad = tensor.used, .forward_only = boundary == DIGEST};
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

/* What tells the units' hashes apart. */
static uint64_t key_of(const struct mics_model *model, uint32_t stage)
{
    return model->stages[stage].kind == MICS_STAGE_HEAD ? 1 + model->config.n_layer : stage;
}

/* A hash of tensors first .. first + count - 1 of the stage's unit; padding is left out. */
static uint64_t digest_tensors(const struct mics_pass *pass, uint32_t stage, uint32_t first,
                               uint32_t count, uint64_t digest)
{
    const struct mics_unit *unit = &pass->model->units[pass->model->stages[stage].unit];

    for (uint32_t i = first; i < first + count; i++)
        for (uint64_t j = 0; j < unit->tensors[i].count; j++)
            digest = mix(digest, bits_at(pass, pass->params, unit->tensors[i].offset + j));
    return digest;
}

static uint64_t digest_params(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_unit *unit = &pass->model->units[pass->model->stages[stage].unit];

    return digest_tensors(pass, stage, 0, unit->tensor_count, key_of(pass->model, stage));
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

/* Add one sample's gradient of tensors first .. first + count - 1: for each element a whole number
 * from -3 to 3. */
static void add_gradients(const struct mics_pass *pass, uint32_t stage, uint32_t first,
                          uint32_t count, uint64_t sample)
{
    const struct mics_unit *unit = &pass->model->units[pass->model->stages[stage].unit];

    for (uint32_t i = first; i < first + count; i++) {
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

static void add_gradient(const struct mics_pass *pass, uint32_t stage, uint64_t sample)
{
    const struct mics_unit *unit = &pass->model->units[pass->model->stages[stage].unit];

    add_gradients(pass, stage, 0, unit->tensor_count, sample);
}

static void embed_forward(const struct mics_pass *pass, uint32_t stage)
{
    const uint32_t T = pass->batch.T, C = pass->model->config.n_embd;
    const uint64_t params = digest_params(pass, stage);

    for (uint64_t row = 0; row < (uint64_t)pass->batch.B * T; row++)
        for (uint32_t c = 0; c < C; c++)
            put_state(pass, pass->out[0], row * C + c,
                      mix(params, mix((uint32_t)pass->tokens[row], (row % T) * C + c)));
}

static void embed_backward(const struct mics_pass *pass, uint32_t stage)
{
    const uint32_t T = pass->batch.T;
    const uint64_t per_sample = (uint64_t)T * pass->model->config.n_embd;

    for (uint32_t b = 0; b < pass->batch.B; b++) {
        const uint64_t tokens = digest_tokens(stage, pass->tokens + (uint64_t)b * T, T);

        add_gradient(pass, stage,
                     digest_states(pass, tokens, pass->grad[0], b * per_sample, per_sample));
    }
}

static void make_middle(const struct mics_pass *pass, uint32_t stage,
                        const struct integer_areas *acts)
{
    const uint64_t count = (uint64_t)pass->batch.B * pass->batch.T * pass->model->config.n_embd;
    const uint64_t params = digest_params(pass, stage);

    for (uint64_t i = 0; i < count; i++)
        put_state(pass, acts->middle, i, mix(params, bits_at(pass, pass->in[0], i)));
}

static void block_forward(const struct mics_pass *pass, uint32_t stage,
                          const struct integer_areas *acts)
{
    const uint64_t per_sample = (uint64_t)pass->batch.T * pass->model->config.n_embd;

    make_middle(pass, stage, acts);
    for (uint64_t i = 0; i < pass->batch.B * per_sample; i++)
        put_state(pass, pass->out[0], i, mix(bits_at(pass, acts->middle, i), i % per_sample));
}

static void block_backward(const struct mics_pass *pass, uint32_t stage,
                           const struct integer_areas *acts)
{
    const uint64_t per_sample = (uint64_t)pass->batch.T * pass->model->config.n_embd;

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL)
        make_middle(pass, stage, acts);
    for (uint32_t b = 0; b < pass->batch.B; b++) {
        const uint64_t first = b * per_sample;
        uint64_t sample = digest_states(pass, stage, pass->in[0], first, per_sample);

        sample = digest_states(pass, sample, acts->middle, first, per_sample);
        sample = digest_states(pass, sample, pass->grad[0], first, per_sample);
        add_gradient(pass, stage, sample);
        for (uint64_t i = first; i < first + per_sample; i++)
            put_state(pass, pass->grad[0], i,
                      mix(bits_at(pass, pass->grad[0], i), bits_at(pass, acts->middle, i)));
    }
}

/* A row's loss: 0 to 15. */
static double row_loss(const struct mics_pass *pass, uint64_t params, const void *in, uint64_t row)
{
    const uint32_t C = pass->model->config.n_embd;
    const uint64_t hash = digest_states(pass, params, in, row * C, C);

    return pass->targets[row] < 0 ? 0 : (double)(mix(hash, (uint32_t)pass->targets[row]) & 15);
}

static void head(const struct mics_pass *pass, uint32_t stage)
{
    const void *in = pass->in[0];
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
            put_state(pass, pass->grad[0], b * per_sample + i, mix(sample, i));
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
        head(pass, stage);
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

/*
 * Blocks of three stages: the first has parameters and hands on the stream and a wider copy; the
 * second has others and makes a few states of each sample from the copy; the third puts both
 * together. Fused, one stage does the same with tensors of its own.
 */
struct regions {
    const struct mics_pass *pass;
    uint32_t stage;
    uint32_t second; /* first tensor of the second part in the stage's unit */
    const void *in;
    void *middle;                  /* [B, T, C] of the first part */
    void *between, *wide, *digest; /* STREAM between the parts, WIDE, DIGEST */
    void *out, *grad_stream, *grad_wide, *grad_digest;
};

static bool is_fused(const struct mics_model *model)
{
    return model->boundary_count == 1;
}

/* Places that the stage keeps itself, or (bytes) their sizes. */
static struct regions place_regions(const struct mics_model *model, const struct mics_batch *batch,
                                    uint32_t stage, void *saved, void *scratch,
                                    struct mics_stage_bytes *bytes)
{
    const uint64_t rows = (uint64_t)batch->B * batch->T, stream = rows * model->config.n_embd;
    const uint64_t wide = rows * wide_of(model), digest = batch->B * DIGEST_STATES;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct mics_activation_cursor *kept = batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep;
    struct regions regions = {.stage = stage, .second = is_fused(model) ? 2 : 0};

    if (model->stages[stage].part == 0)
        regions.middle = mics_activation_take_typed(kept, stream, batch->dtype);
    if (is_fused(model)) {
        regions.between = mics_activation_take_typed(kept, stream, batch->dtype);
        regions.wide = mics_activation_take_typed(kept, wide, batch->dtype);
        regions.digest = mics_activation_take_typed(&work, digest, batch->dtype);
        regions.grad_wide = mics_activation_take_typed(&work, wide, batch->dtype);
        regions.grad_digest = mics_activation_take_typed(&work, digest, batch->dtype);
    }
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return regions;
}

static void staged_bytes(const struct mics_model *model, const struct mics_batch *batch,
                         uint32_t stage, struct mics_stage_bytes *out)
{
    if (model->stages[stage].kind == MICS_STAGE_BLOCK)
        place_regions(model, batch, stage, NULL, NULL, out);
    else
        *out = (struct mics_stage_bytes){0};
}

static struct regions regions_of(const struct mics_pass *pass, uint32_t stage)
{
    const uint32_t part = pass->model->stages[stage].part;
    struct regions regions =
        place_regions(pass->model, &pass->batch, stage, pass->saved, pass->scratch, NULL);

    regions.pass = pass;
    regions.in = pass->in[STREAM];
    regions.out = pass->out[STREAM];
    regions.grad_stream = pass->grad[STREAM];
    if (is_fused(pass->model))
        return regions;
    regions.between = part == 0 ? pass->out[STREAM] : pass->in[STREAM];
    regions.wide = part == 0 ? pass->out[WIDE] : pass->in[WIDE];
    regions.digest = part == 1 ? pass->out[DIGEST] : pass->in[DIGEST];
    regions.grad_wide = pass->grad[WIDE];
    regions.grad_digest = pass->grad[DIGEST];
    return regions;
}

/* States of one sample. */
static uint64_t stream_length(const struct mics_pass *pass)
{
    return (uint64_t)pass->batch.T * pass->model->config.n_embd;
}

static uint64_t wide_length(const struct mics_pass *pass)
{
    return pass->batch.T * wide_of(pass->model);
}

static uint64_t part_key(const struct regions *p, uint32_t part)
{
    return 1000 + p->pass->model->stages[p->stage].layer * PARTS + part;
}

static void first_forward(const struct regions *p)
{
    const struct mics_pass *pass = p->pass;
    const uint64_t C = pass->model->config.n_embd, W = wide_of(pass->model);
    const uint64_t per_sample = stream_length(pass);
    const uint64_t params = digest_tensors(pass, p->stage, 0, 2, part_key(p, 0));

    for (uint64_t i = 0; i < pass->batch.B * per_sample; i++)
        put_state(pass, p->middle, i, mix(params, bits_at(pass, p->in, i)));
    if (!p->between)
        return;
    for (uint64_t i = 0; i < pass->batch.B * per_sample; i++)
        put_state(pass, p->between, i, mix(bits_at(pass, p->middle, i), i % per_sample));
    for (uint64_t row = 0; row < (uint64_t)pass->batch.B * pass->batch.T; row++)
        for (uint64_t w = 0; w < W; w++)
            put_state(pass, p->wide, row * W + w,
                      mix(bits_at(pass, p->middle, row * C + w % C), w));
}

static void second_forward(const struct regions *p)
{
    const struct mics_pass *pass = p->pass;
    const uint64_t length = wide_length(pass);
    const uint64_t params = digest_tensors(pass, p->stage, p->second, 2, part_key(p, 1));

    for (uint64_t b = 0; b < pass->batch.B; b++) {
        const uint64_t sample = digest_states(pass, params, p->wide, b * length, length);

        for (uint64_t k = 0; k < DIGEST_STATES; k++)
            put_state(pass, p->digest, b * DIGEST_STATES + k, mix(sample, k));
    }
}

static void third_forward(const struct regions *p)
{
    const struct mics_pass *pass = p->pass;
    const uint64_t length = stream_length(pass);

    for (uint64_t i = 0; i < pass->batch.B * length; i++)
        put_state(pass, p->out, i,
                  mix(bits_at(pass, p->between, i),
                      bits_at(pass, p->digest, i / length * DIGEST_STATES + i % DIGEST_STATES)));
}

static void third_backward(const struct regions *p)
{
    const struct mics_pass *pass = p->pass;
    const uint64_t length = stream_length(pass);

    for (uint64_t b = 0; b < pass->batch.B; b++) {
        const uint64_t sample =
            digest_states(pass, part_key(p, 2), p->grad_stream, b * length, length);

        for (uint64_t k = 0; k < DIGEST_STATES; k++)
            put_state(pass, p->grad_digest, b * DIGEST_STATES + k, mix(sample, k));
        for (uint64_t i = b * length; i < (b + 1) * length; i++)
            put_state(pass, p->grad_stream, i,
                      mix(bits_at(pass, p->grad_stream, i), bits_at(pass, p->between, i)));
    }
}

static void second_backward(const struct regions *p)
{
    const struct mics_pass *pass = p->pass;
    const uint64_t length = wide_length(pass);

    for (uint64_t b = 0; b < pass->batch.B; b++) {
        const uint64_t from =
            digest_states(pass, part_key(p, 1), p->grad_digest, b * DIGEST_STATES, DIGEST_STATES);

        add_gradients(pass, p->stage, p->second, 2,
                      digest_states(pass, from, p->wide, b * length, length));
        for (uint64_t i = b * length; i < (b + 1) * length; i++)
            put_state(pass, p->grad_wide, i, mix(from, bits_at(pass, p->wide, i)));
    }
}

static void first_backward(const struct regions *p)
{
    const struct mics_pass *pass = p->pass;
    const uint64_t C = pass->model->config.n_embd, W = wide_of(pass->model);
    const uint64_t length = stream_length(pass), wide = wide_length(pass);

    for (uint64_t b = 0; b < pass->batch.B; b++) {
        uint64_t sample = digest_states(pass, part_key(p, 0), p->in, b * length, length);

        sample = digest_states(pass, sample, p->middle, b * length, length);
        sample = digest_states(pass, sample, p->grad_stream, b * length, length);
        sample = digest_states(pass, sample, p->grad_wide, b * wide, wide);
        add_gradients(pass, p->stage, 0, 2, sample);
        for (uint64_t i = b * length; i < (b + 1) * length; i++)
            put_state(pass, p->grad_stream, i,
                      mix(mix(bits_at(pass, p->grad_stream, i), bits_at(pass, p->middle, i)),
                          bits_at(pass, p->grad_wide, i / C * W + i % C)));
    }
}

static void run_staged_forward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_stage *of = &pass->model->stages[stage];
    const bool all = is_fused(pass->model);

    if (of->kind != MICS_STAGE_BLOCK) {
        run_forward(pass, stage);
        return;
    }
    const struct regions regions = regions_of(pass, stage);

    if (all || of->part == 0)
        first_forward(&regions);
    if (all || of->part == 1)
        second_forward(&regions);
    if (all || of->part == 2)
        third_forward(&regions);
}

/* With full recomputation the first part runs again; a stage of its own does not repeat what it
 * handed on. */
static void run_staged_backward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_stage *of = &pass->model->stages[stage];
    const bool all = is_fused(pass->model);

    if (of->kind != MICS_STAGE_BLOCK) {
        run_backward(pass, stage);
        return;
    }
    const struct regions regions = regions_of(pass, stage);

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL && of->part == 0) {
        struct regions again = regions;

        again.between = all ? regions.between : NULL;
        first_forward(&again);
    }
    if (all || of->part == 2)
        third_backward(&regions);
    if (all || of->part == 1)
        second_backward(&regions);
    if (all || of->part == 0)
        first_backward(&regions);
}

/* Which function of a stage is called. It is stored in a pass in the place of `hits`, which this
 * model does not count: a call's payload has room for a pass only. */
struct job {
    uint32_t stage;
    bool staged, backward;
};

static void run_job(void *context)
{
    const struct mics_pass *pass = context;
    struct job job;

    memcpy(&job, &pass->hits, sizeof job);
    if (job.staged && job.backward)
        run_staged_backward(pass, job.stage);
    else if (job.staged)
        run_staged_forward(pass, job.stage);
    else if (job.backward)
        run_backward(pass, job.stage);
    else
        run_forward(pass, job.stage);
}

static void enqueue(const struct mics_pass *pass, struct job job)
{
    struct mics_args_call call = {.fn = run_job};
    struct mics_pass copy = *pass;

    _Static_assert(sizeof copy <= sizeof call.payload && sizeof job <= sizeof copy.hits,
                   "a job must fit into a call's payload");
    memcpy(&copy.hits, &job, sizeof job);
    memcpy(call.payload, &copy, sizeof copy);
    mics_launch_call(pass->stream, &call);
}

static void staged_forward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(pass, (struct job){.stage = stage, .staged = true});
}

static void staged_backward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(pass, (struct job){.stage = stage, .staged = true, .backward = true});
}

static void forward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(pass, (struct job){.stage = stage});
}

static void backward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(pass, (struct job){.stage = stage, .backward = true});
}

static const struct mics_model_ops ops = {
    .build = build,
    .stage_bytes = stage_bytes,
    .boundary_bytes = boundary_bytes,
    .forward = forward,
    .backward = backward,
};

static const struct mics_model_ops staged_ops = {
    .build = build_staged,
    .stage_bytes = staged_bytes,
    .boundary_bytes = boundary_bytes,
    .forward = staged_forward,
    .backward = staged_backward,
};

static const struct mics_model_ops fused_ops = {
    .build = build_fused,
    .stage_bytes = staged_bytes,
    .boundary_bytes = boundary_bytes,
    .forward = staged_forward,
    .backward = staged_backward,
};

static struct mics_model *new_of(const struct mics_model_ops *operations,
                                 const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    struct mics_err err;

    if (mics_model_new_custom(operations, NULL, config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

struct mics_model *integer_model_new_staged(const struct mics_model_config *config, bool fused)
{
    return new_of(fused ? &fused_ops : &staged_ops, config);
}

struct mics_model *integer_model_new_of(const struct mics_model_config *config)
{
    return new_of(&ops, config);
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
