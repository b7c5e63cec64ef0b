/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate.c - the forward pass for rows that each belong to a sequence and a position.
 *
 * Rows of all sequences go through the blocks together, CHUNK_ROWS at a time. Keys and values of a
 * row are appended to those of its sequence, in each layer, before the row attends to them: so a
 * chunk may begin anywhere in a sequence.
 */
#include "model/generate.h"

#include "base/num.h"
#include "device/host/immediate.h"
#include "host/decode.h"
#include "model/transformer/transformer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ROWS 256
#define TRANSPOSE  16 /* side of a square that stays in the first cache */

static_assert(MICS_GENERATE_ROWS == MICS_SKINNY_ROWS, "the rows that one pass serves");

struct mics_generator {
    struct mics_generator_options options;
    struct mics_family family; /* the model's, with matrices as [out, in] */
    struct mics_model model;   /* of that family; its arrays belong to the caller's model */
    struct mics_immediate host;
    struct mics_kv_cache *kv_cache;
    uint32_t *lengths; /* [sequence] */
    /* A chunk. Rows of a sequence lie together, in order. */
    uint32_t rows;
    int32_t token[CHUNK_ROWS];
    uint32_t sequence[CHUNK_ROWS], position[CHUNK_ROWS];
    float *logits[CHUNK_ROWS];              /* where those of a row go, or NULL */
    void *boundary[MICS_BOUNDARIES_MAX][2]; /* what a stage receives and hands on, in turns */
    void *saved, *scratch;
};

/* from[rows, columns] -> to[columns, rows]. */
static void transpose(const float *from, float *to, size_t rows, size_t columns)
{
    for (size_t row = 0; row < rows; row += TRANSPOSE)
        for (size_t column = 0; column < columns; column += TRANSPOSE)
            for (size_t i = row; i < mics_min_u64(row + TRANSPOSE, rows); i++)
                for (size_t j = column; j < mics_min_u64(column + TRANSPOSE, columns); j++)
                    to[j * rows + i] = from[i * columns + j];
}

/* The matrices of blocks as [out, in]. */
static enum mics_status transpose_blocks(const struct mics_generator *generator,
                                         struct mics_err *err)
{
    const struct mics_model *model = generator->options.model;
    const struct mics_batch batch = {.B = 1, .T = 1};
    const struct mics_transformer_dims s = mics_transformer_dims_of(model, &batch);
    const size_t most = (size_t)s.C * mics_max_u64(mics_max_u64(s.W, s.A), s.hidden);
    float *copy;

    if (!model->family->weights_in_out)
        return MICS_OK;
    copy = malloc(most * sizeof *copy);
    if (!copy)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->stage_count; i++) {
        const uint32_t unit = model->stages[i].unit;

        if (model->stages[i].kind != MICS_STAGE_BLOCK || unit == MICS_NO_UNIT)
            continue;
        for (uint32_t j = 0; j < model->units[unit].tensor_count; j++) {
            const struct mics_tensor *tensor = &model->units[unit].tensors[j];
            float *at = generator->options.params[unit] + tensor->offset;

            if (tensor->rank != 2)
                continue;
            assert(tensor->count <= most);
            memcpy(copy, at, tensor->count * sizeof *copy);
            transpose(copy, at, tensor->shape[0], tensor->shape[1]);
        }
    }
    free(copy);
    return MICS_OK;
}

/* A pass over `rows` rows from `row` on, from or to boundary tensors. What blocks leave for a
 * backward pass is little, and not used. */
static struct mics_pass pass_of(const struct mics_generator *g, uint32_t unit, uint32_t row,
                                uint32_t rows, void *const *in, void *const *out)
{
    return (struct mics_pass){
        .model = &g->model,
        .stream = (struct mics_stream *)&g->host.stream,
        .batch = {.B = 1, .T = rows, .recompute = MICS_RECOMPUTE_FULL, .dtype = MICS_F32},
        .tokens = g->token + row,
        .params = unit == MICS_NO_UNIT ? NULL : g->options.params[unit],
        .in = in,
        .out = out,
        .saved = g->saved,
        .scratch = g->scratch,
    };
}

/* A pass of the head, of which half of the rows are computed at a time. */
static struct mics_pass head_pass(const struct mics_generator *g, void *const *in)
{
    const uint32_t unit = g->model.stages[g->model.stage_count - 1].unit;

    return pass_of(g, unit, 0, 2 * MICS_SKINNY_ROWS, in, NULL);
}

/* The residual stream of a row. */
static void *row_of(const struct mics_generator *g, uint32_t row)
{
    return (float *)g->boundary[MICS_RESIDUAL][0] + (size_t)row * g->model.config.n_embd;
}

static enum mics_status allocate(struct mics_generator *g, struct mics_err *err)
{
    const struct mics_model_config *c = &g->model.config;
    const struct mics_batch block = pass_of(g, 0, 0, CHUNK_ROWS, NULL, NULL).batch;
    const struct mics_batch head = head_pass(g, NULL).batch;
    struct mics_stage_bytes bytes;
    uint64_t saved = 0, scratch = 0;

    for (uint32_t i = 0; i < g->model.stage_count; i++) {
        const bool is_head = g->model.stages[i].kind == MICS_STAGE_HEAD;

        mics_transformer_stage_bytes(&g->model, is_head ? &head : &block, i, &bytes);
        saved = mics_max_u64(saved, bytes.saved);
        scratch = mics_max_u64(scratch, bytes.scratch);
    }
    g->saved = malloc(saved + 1);
    g->scratch = malloc(scratch);
    g->lengths = calloc(g->options.sequences, sizeof *g->lengths);
    if (!g->saved || !g->scratch || !g->lengths)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < g->model.boundary_count; i++) {
        struct mics_boundary_bytes boundary;

        mics_transformer_boundary_bytes(&g->model, &block, i, &boundary);
        g->boundary[i][0] = malloc(boundary.value);
        g->boundary[i][1] = malloc(boundary.value);
        if (!g->boundary[i][0] || !g->boundary[i][1])
            return mics_err_nomem(err);
    }
    return mics_kv_cache_new(&(struct mics_kv_cache_options){.pool = g->options.pool,
                                                             .sequences = g->options.sequences,
                                                             .layers = c->n_layer,
                                                             .H = c->n_head,
                                                             .H_kv = c->n_kv_head,
                                                             .D = c->head_dim,
                                                             .limit = c->n_positions},
                             CHUNK_ROWS, &g->kv_cache, err);
}

enum mics_status mics_generator_new(const struct mics_generator_options *options,
                                    struct mics_generator **out, struct mics_err *err)
{
    struct mics_generator *generator = calloc(1, sizeof *generator);
    enum mics_status status;

    assert(options->model->family && options->sequences > 0);
    assert(!options->model->family->bidirectional);
    if (!generator)
        return mics_err_nomem(err);
    generator->options = *options;
    generator->model = *options->model;
    generator->family = *options->model->family;
    generator->family.weights_in_out = false;
    generator->model.config.expert_capacity = 0; /* rows are dropped in training only */
    generator->model.family = &generator->family;
    mics_immediate_init(&generator->host, options->pool);
    status = allocate(generator, err);
    if (status == MICS_OK)
        status = transpose_blocks(generator, err);
    if (status != MICS_OK) {
        mics_generator_free(generator);
        return status;
    }
    *out = generator;
    return MICS_OK;
}

void mics_generator_free(struct mics_generator *generator)
{
    if (!generator)
        return;
    mics_kv_cache_free(generator->kv_cache);
    free(generator->lengths);
    for (int i = 0; i < MICS_BOUNDARIES_MAX; i++) {
        free(generator->boundary[i][0]);
        free(generator->boundary[i][1]);
    }
    free(generator->saved);
    free(generator->scratch);
    free(generator);
}

uint32_t mics_generator_limit(const struct mics_generator *generator)
{
    return generator->model.config.n_positions;
}

uint32_t mics_generator_length(const struct mics_generator *generator, uint32_t sequence)
{
    return generator->lengths[sequence];
}

void mics_generator_clear(struct mics_generator *generator, uint32_t sequence)
{
    generator->lengths[sequence] = 0;
}

/*
 * A chunk.
 */

/* The rows of one sequence at a time. */
static void embed(const struct mics_generator *g)
{
    for (uint32_t row = 0, rows; row < g->rows; row += rows) {
        rows = 1;
        while (row + rows < g->rows && g->sequence[row + rows] == g->sequence[row])
            rows++;
        void *const out = row_of(g, row);
        const struct mics_pass pass = pass_of(g, 0, row, rows, NULL, &out);

        mics_embed_forward(&pass, g->position[row]);
    }
}

static void run_blocks(struct mics_generator *g)
{
    for (uint32_t i = 0; i < g->model.stage_count; i++) {
        const struct mics_stage *stage = &g->model.stages[i];
        void *in[MICS_BOUNDARIES_MAX], *out[MICS_BOUNDARIES_MAX];

        if (stage->kind != MICS_STAGE_BLOCK)
            continue;
        for (int j = 0; j < MICS_BOUNDARIES_MAX; j++) {
            in[j] = stage->receives >> j & 1 ? g->boundary[j][0] : NULL;
            out[j] = stage->hands_on >> j & 1 ? g->boundary[j][1] : NULL;
        }
        const struct mics_pass pass = pass_of(g, stage->unit, 0, g->rows, in, out);
        mics_block_forward(&pass, stage, g->kv_cache);
        for (int j = 0; j < MICS_BOUNDARIES_MAX; j++)
            if (out[j]) {
                g->boundary[j][1] = g->boundary[j][0];
                g->boundary[j][0] = out[j];
            }
    }
}

/* The logits of rows that end an input. Those rows are few: one of each sequence. */
static void run_head(const struct mics_generator *g)
{
    const uint32_t vocab = g->model.config.vocab_size;
    const uint32_t unit = g->model.stages[g->model.stage_count - 1].unit;

    for (uint32_t row = 0; row < g->rows;) {
        uint32_t rows = 0;
        float *logits = g->logits[row];

        while (row + rows < g->rows && rows < MICS_SKINNY_ROWS && g->logits[row + rows] &&
               g->logits[row + rows] == logits + (size_t)rows * vocab)
            rows++;
        if (rows > 0) {
            void *const in = row_of(g, row);
            const struct mics_pass pass = head_pass(g, &in);

            mics_head_logits(&pass, unit, 0, rows, logits);
        }
        row += rows ? rows : 1;
    }
}

static void run_chunk(struct mics_generator *g)
{
    mics_kv_cache_set_rows(g->kv_cache, g->sequence, g->position, g->rows);
    embed(g);
    run_blocks(g);
    run_head(g);
    g->rows = 0;
}

static enum mics_status check_inputs(const struct mics_generator *g,
                                     const struct mics_generator_input *inputs, uint32_t count,
                                     struct mics_err *err)
{
    const uint32_t limit = mics_generator_limit(g), vocab = g->model.config.vocab_size;

    for (uint32_t i = 0; i < count; i++) {
        const struct mics_generator_input *input = &inputs[i];
        const uint64_t length = (uint64_t)g->lengths[input->sequence] + input->count;

        assert(input->count > 0);
        if (length > limit)
            return mics_err_set(err, MICS_ERR_ARG, "%llu tokens are more than the model's %u",
                                (unsigned long long)length, limit);
        for (uint32_t j = 0; j < input->count; j++)
            if (input->tokens[j] < 0 || (uint32_t)input->tokens[j] >= vocab)
                return mics_err_set(err, MICS_ERR_ARG,
                                    "token %d is outside the model's vocabulary of %u",
                                    input->tokens[j], vocab);
    }
    return MICS_OK;
}

enum mics_status mics_generator_append(struct mics_generator *g,
                                       const struct mics_generator_input *inputs, uint32_t count,
                                       float *logits, struct mics_err *err)
{
    enum mics_status status = check_inputs(g, inputs, count, err);

    for (uint32_t i = 0; status == MICS_OK && i < count; i++)
        status = mics_kv_cache_reserve(g->kv_cache, inputs[i].sequence,
                                       g->lengths[inputs[i].sequence] + inputs[i].count, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < inputs[i].count; j++) {
            const uint32_t row = g->rows++;

            g->token[row] = inputs[i].tokens[j];
            g->sequence[row] = inputs[i].sequence;
            g->position[row] = g->lengths[inputs[i].sequence]++;
            g->logits[row] =
                j + 1 == inputs[i].count ? logits + (size_t)i * g->model.config.vocab_size : NULL;
            if (g->rows == CHUNK_ROWS)
                run_chunk(g);
        }
    if (g->rows > 0)
        run_chunk(g);
    return MICS_OK;
}
