/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate.c - the decoder's forward pass, for rows that each belong to a sequence and a position.
 *
 * Rows of all sequences go through the layers together, CHUNK_ROWS at a time. Keys and values of a
 * row are appended to what its sequence has, in each layer, before the row attends to it: so a
 * chunk may begin anywhere in a sequence.
 */
#include "model/generate.h"

#include "base/num.h"
#include "host/decode.h"
#include "host/kernels.h"
#include "model/transformer/transformer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ROWS 256
#define FIRST_KEPT 64 /* rows allocated at first */
#define TRANSPOSE  16 /* side of a square that stays in the first cache */

/* A tensor that a family has not is NULL. Matrices are [out, in]. */
struct linear {
    const float *weight, *bias;
    uint32_t in, out;
};

struct norm {
    const float *weight, *bias;
};

struct layer {
    struct linear qkv, out, fc, down;
    struct norm norm_1, norm_2;
    const float *q_norm, *k_norm;
};

/* What a layer keeps of a sequence: [capacity, H_kv D] each. */
struct kept {
    float *keys, *values;
    uint32_t capacity;
};

static_assert(MICS_GENERATE_ROWS == MICS_FEW_ROWS, "the rows that one pass serves");

struct mics_generator {
    struct mics_generator_options options;
    const struct mics_model *model;
    struct mics_transformer_dims is; /* of a chunk */
    struct layer *layers;
    const float *tokens, *positions; /* tables of the embedding */
    struct norm norm;
    struct linear head;
    struct kept *kept; /* [sequence, layer] */
    uint32_t *lengths; /* [sequence] */
    /* Of a chunk. */
    uint32_t rows;
    int32_t token[CHUNK_ROWS];
    uint32_t sequence[CHUNK_ROWS], position[CHUNK_ROWS];
    float *ends[CHUNK_ROWS]; /* where the logits after a row go, or NULL */
    struct mics_kv_cache_rows seen[CHUNK_ROWS];
    float *memory; /* of what follows */
    float *stream, *middle, *normed, *qkv, *attended, *attention, *hidden, *activated;
    float *rotation; /* [row, D] */
    float *stats;    /* of norms, which nothing reads again */
};

static const float *tensor_at(const struct mics_generator *generator, uint32_t unit, uint32_t index)
{
    return generator->options.params[unit] + generator->model->units[unit].tensors[index].offset;
}

static const float *block_tensor(const struct mics_generator *generator, uint32_t unit,
                                 enum mics_block_tensor tensor)
{
    return mics_transformer_has(generator->model, tensor)
               ? tensor_at(generator, unit, mics_transformer_block_index(generator->model, tensor))
               : NULL;
}

/* Of one tensor, or of the first of several end to end. */
static const float *block_tensors(const struct mics_generator *generator, uint32_t unit,
                                  enum mics_block_tensor one, enum mics_block_tensor first)
{
    const float *found = block_tensor(generator, unit, one);

    return found ? found : block_tensor(generator, unit, first);
}

static struct layer layer_of(const struct mics_generator *g, uint32_t unit)
{
    const struct mics_transformer_dims *s = &g->is;

    return (struct layer){
        .qkv = {block_tensors(g, unit, MICS_BLOCK_QKV, MICS_BLOCK_Q),
                block_tensors(g, unit, MICS_BLOCK_QKV_BIAS, MICS_BLOCK_Q_BIAS), s->C, s->W},
        .out = {block_tensor(g, unit, MICS_BLOCK_OUT), block_tensor(g, unit, MICS_BLOCK_OUT_BIAS),
                s->A, s->C},
        .fc = {block_tensors(g, unit, MICS_BLOCK_FC, MICS_BLOCK_GATE),
               block_tensors(g, unit, MICS_BLOCK_FC_BIAS, MICS_BLOCK_GATE_BIAS), s->C, s->hidden},
        .down = {block_tensor(g, unit, MICS_BLOCK_DOWN),
                 block_tensor(g, unit, MICS_BLOCK_DOWN_BIAS), s->F, s->C},
        .norm_1 = {block_tensor(g, unit, MICS_BLOCK_NORM_1),
                   block_tensor(g, unit, MICS_BLOCK_NORM_1_BIAS)},
        .norm_2 = {block_tensor(g, unit, MICS_BLOCK_NORM_2),
                   block_tensor(g, unit, MICS_BLOCK_NORM_2_BIAS)},
        .q_norm = block_tensor(g, unit, MICS_BLOCK_Q_NORM),
        .k_norm = block_tensor(g, unit, MICS_BLOCK_K_NORM),
    };
}

static const float *end_tensor(const struct mics_generator *generator, uint32_t unit,
                               enum mics_embed_head_tensor tensor)
{
    if (!generator->model->family->embed_head[tensor])
        return NULL;
    return tensor_at(generator, unit, mics_transformer_embed_head_index(generator->model, tensor));
}

static void find_tensors(struct mics_generator *g)
{
    const struct mics_model *model = g->model;
    const uint32_t head = model->stages[model->stage_count - 1].unit;
    const bool learned = model->family->positions == MICS_POSITIONS_LEARNED;

    for (uint32_t i = 0; i < model->config.n_layer; i++)
        g->layers[i] = layer_of(g, 1 + i);
    g->tokens = end_tensor(g, 0, MICS_HEAD_EMBEDDING);
    g->positions = learned ? end_tensor(g, 0, MICS_HEAD_POSITIONS) : NULL;
    g->norm = (struct norm){end_tensor(g, head, MICS_HEAD_NORM),
                            end_tensor(g, head, MICS_EMBED_HEAD_NORM_BIAS)};
    g->head = (struct linear){end_tensor(g, head, MICS_HEAD_WEIGHT), NULL, g->is.C,
                              model->config.vocab_size};
}

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
    const struct mics_model *model = generator->model;
    const struct mics_transformer_dims *s = &generator->is;
    const size_t most = (size_t)s->C * mics_max_u64(mics_max_u64(s->W, s->A), s->hidden);
    float *copy;

    if (!model->family->weights_in_out)
        return MICS_OK;
    copy = malloc(most * sizeof *copy);
    if (!copy)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->config.n_layer; i++) {
        const struct mics_unit *unit = &model->units[1 + i];

        for (uint32_t j = 0; j < unit->tensor_count; j++) {
            const struct mics_tensor *tensor = &unit->tensors[j];
            float *at = generator->options.params[1 + i] + tensor->offset;

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

/* Cut the memory of a chunk; NULL: count only. Returns floats. */
static size_t lay_out(struct mics_generator *g, float *memory)
{
    const struct mics_transformer_dims *s = &g->is;
    const bool qk_norm = mics_transformer_has(g->model, MICS_BLOCK_Q_NORM);
    const struct {
        float **area;
        size_t width;
    } acts[] = {
        {&g->stream, s->C},      {&g->middle, s->C},
        {&g->normed, s->C},      {&g->qkv, s->W},
        {&g->hidden, s->hidden}, {&g->activated, s->F},
        {&g->attention, s->A},   {&g->attended, qk_norm ? s->W : 0},
        {&g->rotation, s->D},    {&g->stats, mics_max_u64(2, (uint64_t)s->H + s->H_kv)},
    };
    size_t used = 0;

    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        *acts[i].area = memory ? memory + used : NULL;
        used += mics_round_up(acts[i].width * CHUNK_ROWS, 64);
    }
    if (!qk_norm)
        g->attended = g->qkv;
    return used;
}

enum mics_status mics_generator_new(const struct mics_generator_options *options,
                                    struct mics_generator **out, struct mics_err *err)
{
    const struct mics_batch chunk = {.B = 1, .T = CHUNK_ROWS, .dtype = MICS_F32};
    const uint32_t layers = options->model->config.n_layer;
    struct mics_generator *made = calloc(1, sizeof *made);
    enum mics_status status;

    assert(options->model->family && options->sequences > 0);
    if (!made)
        return mics_err_nomem(err);
    made->options = *options;
    made->model = options->model;
    made->is = mics_transformer_dims_of(options->model, &chunk);
    made->layers = calloc(layers, sizeof *made->layers);
    made->kept = calloc((size_t)options->sequences * layers, sizeof *made->kept);
    made->lengths = calloc(options->sequences, sizeof *made->lengths);
    made->memory = malloc(lay_out(made, NULL) * sizeof *made->memory);
    status =
        made->layers && made->kept && made->lengths && made->memory ? MICS_OK : mics_err_nomem(err);
    if (status == MICS_OK)
        status = transpose_blocks(made, err);
    if (status != MICS_OK) {
        mics_generator_free(made);
        return status;
    }
    lay_out(made, made->memory);
    find_tensors(made);
    *out = made;
    return MICS_OK;
}

void mics_generator_free(struct mics_generator *generator)
{
    if (!generator)
        return;
    for (size_t i = 0; generator->kept &&
                       i < (size_t)generator->options.sequences * generator->model->config.n_layer;
         i++) {
        free(generator->kept[i].keys);
        free(generator->kept[i].values);
    }
    free(generator->kept);
    free(generator->lengths);
    free(generator->layers);
    free(generator->memory);
    free(generator);
}

uint32_t mics_generator_limit(const struct mics_generator *generator)
{
    return generator->model->config.n_positions;
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

static void run_linear(const struct mics_generator *generator, const struct linear *linear,
                       uint32_t rows, const float *in, const float *add, float *out)
{
    const struct mics_args_matmul args = {
        .out = out,
        .a = in,
        .b = linear->weight,
        .bias = linear->bias,
        .add = add,
        .m = rows,
        .n = linear->out,
        .k = linear->in,
        .lda = linear->in,
        .ldb = linear->in,
        .ldout = linear->out,
        .trans_b = true,
    };

    if (rows <= MICS_FEW_ROWS)
        mics_host_few_rows(generator->options.pool, &args);
    else
        mics_host_matmul(generator->options.pool, &args);
}

static void run_norm(const struct mics_generator *g, const struct norm *norm, uint32_t rows,
                     const float *in, float *out)
{
    const float eps = (float)g->model->config.layer_norm_epsilon;

    if (g->model->family->norm == MICS_NORM_LAYER)
        mics_host_layernorm(g->options.pool, &(struct mics_args_layernorm){
                                                 .out = out,
                                                 .mean = g->stats,
                                                 .rstd = g->stats + CHUNK_ROWS,
                                                 .in = in,
                                                 .weight = norm->weight,
                                                 .bias = norm->bias,
                                                 .rows = rows,
                                                 .C = g->is.C,
                                                 .eps = eps,
                                             });
    else
        mics_host_rmsnorm(g->options.pool, &(struct mics_args_rmsnorm){
                                               .out = out,
                                               .rstd = g->stats,
                                               .in = in,
                                               .weight = norm->weight,
                                               .rows = rows,
                                               .C = g->is.C,
                                               .eps = eps,
                                           });
}

static struct mics_args_rope rope_of(const struct mics_generator *g)
{
    return (struct mics_args_rope){
        .data = g->attended,
        .heads = g->is.H + g->is.H_kv,
        .D = g->is.D,
        .stride = g->is.W,
        .base = (float)g->model->config.rope_theta,
        .scaling = g->model->config.rope_scaling,
    };
}

/* qkv -> attended. */
static void prepare_heads(const struct mics_generator *g, const struct layer *layer)
{
    const struct mics_args_rope rope = rope_of(g);

    if (layer->q_norm)
        mics_host_qk_norm(g->options.pool, &(struct mics_args_qk_norm){
                                               .out = g->attended,
                                               .rstd = g->stats,
                                               .in = g->qkv,
                                               .q_weight = layer->q_norm,
                                               .k_weight = layer->k_norm,
                                               .rows = g->rows,
                                               .H = g->is.H,
                                               .H_kv = g->is.H_kv,
                                               .D = g->is.D,
                                               .eps = (float)g->model->config.layer_norm_epsilon,
                                           });
    if (mics_family_is_rotary(g->model->family))
        mics_host_rope_with_table(g->options.pool, &rope, g->rows, g->rotation);
}

/* Append keys and values of all rows to their sequences, and attend. */
static void attend(struct mics_generator *g, uint32_t layer)
{
    const size_t width = (size_t)g->is.H_kv * g->is.D, bytes = width * sizeof(float);
    const uint32_t window = mics_model_window(g->model, layer);

    for (uint32_t row = 0; row < g->rows; row++) {
        const struct kept *kept =
            &g->kept[(size_t)g->sequence[row] * g->model->config.n_layer + layer];
        const float *key = g->attended + (size_t)row * g->is.W + g->is.A;

        memcpy(kept->keys + g->position[row] * width, key, bytes);
        memcpy(kept->values + g->position[row] * width, key + width, bytes);
        const uint32_t length = g->position[row] + 1;
        const uint32_t first = window > 0 && length > window ? length - window : 0;

        g->seen[row] = (struct mics_kv_cache_rows){kept->keys + first * width,
                                                   kept->values + first * width, length - first};
    }
    mics_host_kv_cache_attention(g->options.pool, &(struct mics_kv_cache_attention){
                                                      .out = g->attention,
                                                      .qkv = g->attended,
                                                      .kept = g->seen,
                                                      .rows = g->rows,
                                                      .H = g->is.H,
                                                      .H_kv = g->is.H_kv,
                                                      .D = g->is.D,
                                                  });
}

/* hidden -> activated. */
static void activate(const struct mics_generator *g)
{
    if (g->model->family->mlp == MICS_MLP_SWIGLU)
        mics_host_swiglu(g->options.pool,
                         &(struct mics_args_swiglu){
                             .out = g->activated, .in = g->hidden, .rows = g->rows, .F = g->is.F});
    else
        mics_host_gelu(g->options.pool,
                       &(struct mics_args_gelu){.out = g->activated,
                                                .in = g->hidden,
                                                .count = (uint64_t)g->rows * g->is.F});
}

/* A block, as block.c has it. */
static void run_layer(struct mics_generator *g, uint32_t index)
{
    const struct layer *layer = &g->layers[index];
    const bool parallel = g->model->family->parallel_residual;

    run_norm(g, &layer->norm_1, g->rows, g->stream, g->normed);
    run_linear(g, &layer->qkv, g->rows, g->normed, NULL, g->qkv);
    prepare_heads(g, layer);
    attend(g, index);
    run_linear(g, &layer->out, g->rows, g->attention, g->stream, g->middle);
    run_norm(g, &layer->norm_2, g->rows, parallel ? g->stream : g->middle, g->normed);
    run_linear(g, &layer->fc, g->rows, g->normed, NULL, g->hidden);
    activate(g);
    run_linear(g, &layer->down, g->rows, g->activated, g->middle, g->stream);
}

static void embed(const struct mics_generator *g)
{
    const size_t C = g->is.C;

    for (uint32_t row = 0; row < g->rows; row++) {
        const float *token = g->tokens + (size_t)g->token[row] * C;
        const float *position = g->positions ? g->positions + g->position[row] * C : NULL;

        for (size_t c = 0; c < C; c++)
            g->stream[row * C + c] = token[c] + (position ? position[c] : 0);
    }
}

/* The logits of rows that end an input. Those rows are few: one of each sequence. */
static void run_head(const struct mics_generator *g)
{
    for (uint32_t row = 0; row < g->rows;) {
        uint32_t rows = 0;
        float *out = g->ends[row];

        while (row + rows < g->rows && rows < MICS_FEW_ROWS && g->ends[row + rows] &&
               g->ends[row + rows] == out + (size_t)rows * g->head.out)
            rows++;
        if (rows > 0) {
            run_norm(g, &g->norm, rows, g->stream + (size_t)row * g->is.C, g->normed);
            run_linear(g, &g->head, rows, g->normed, NULL, out);
        }
        row += rows ? rows : 1;
    }
}

static void run_chunk(struct mics_generator *g)
{
    const struct mics_args_rope rope = rope_of(g);

    if (mics_family_is_rotary(g->model->family))
        mics_host_rope_table(&rope, g->position, g->rows, g->rotation);
    embed(g);
    for (uint32_t i = 0; i < g->model->config.n_layer; i++)
        run_layer(g, i);
    run_head(g);
    g->rows = 0;
}

static enum mics_status check_inputs(const struct mics_generator *g,
                                     const struct mics_generator_input *inputs, uint32_t count,
                                     struct mics_err *err)
{
    const uint32_t limit = mics_generator_limit(g), vocab = g->model->config.vocab_size;

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

static enum mics_status grow(float **rows, size_t floats, struct mics_err *err)
{
    float *grown = realloc(*rows, floats * sizeof **rows);

    if (!grown)
        return mics_err_nomem(err);
    *rows = grown;
    return MICS_OK;
}

/* Make room for `length` rows of a sequence in each layer. */
static enum mics_status reserve(struct mics_generator *g, uint32_t sequence, uint32_t length,
                                struct mics_err *err)
{
    const size_t width = (size_t)g->is.H_kv * g->is.D;
    const uint32_t layers = g->model->config.n_layer;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < layers; i++) {
        struct kept *kept = &g->kept[(size_t)sequence * layers + i];
        uint64_t capacity = mics_max_u64(kept->capacity, FIRST_KEPT);

        if (length <= kept->capacity)
            continue;
        while (capacity < length)
            capacity *= 2;
        capacity = mics_min_u64(capacity, mics_generator_limit(g));
        status = grow(&kept->keys, capacity * width, err);
        if (status == MICS_OK)
            status = grow(&kept->values, capacity * width, err);
        if (status == MICS_OK)
            kept->capacity = (uint32_t)capacity;
    }
    return status;
}

enum mics_status mics_generator_append(struct mics_generator *g,
                                       const struct mics_generator_input *inputs, uint32_t count,
                                       float *logits, struct mics_err *err)
{
    enum mics_status status = check_inputs(g, inputs, count, err);

    for (uint32_t i = 0; status == MICS_OK && i < count; i++)
        status =
            reserve(g, inputs[i].sequence, g->lengths[inputs[i].sequence] + inputs[i].count, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < inputs[i].count; j++) {
            const uint32_t row = g->rows++;

            g->token[row] = inputs[i].tokens[j];
            g->sequence[row] = inputs[i].sequence;
            g->position[row] = g->lengths[inputs[i].sequence]++;
            g->ends[row] = j + 1 == inputs[i].count ? logits + (size_t)i * g->head.out : NULL;
            if (g->rows == CHUNK_ROWS)
                run_chunk(g);
        }
    if (g->rows > 0)
        run_chunk(g);
    return MICS_OK;
}
