/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_target.c - names, keys and tensors of llama.cpp's architectures.
 *
 * llama.cpp does not say which features an architecture ignores: whatever is not known to be
 * computed is refused here.
 */
#include "ckpt/convert/gguf_target.h"

#include "base/num.h"
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of general.file_type. */
enum { FILE_F32 = 0, FILE_F16 = 1, FILE_Q8_0 = 7, FILE_BF16 = 32, QUANTIZATION_VERSION = 2 };

/* The architecture of a family. */
static const struct architecture {
    const char *family, *name;
    bool pairs;        /* rotary positions turn neighbours, not halves */
    bool biases;       /* attention and MLP may have any */
    bool normalised;   /* the weights of a token's experts add up to 1 */
    bool expert_inner; /* the key of an expert's size is not that of an MLP */
} architectures[] = {
    {"gpt2", "gpt2", .biases = true},
    {"llama", "llama", .pairs = true, .biases = true},
    {"mistral", "llama", .pairs = true},
    {"mixtral", "llama", .pairs = true, .normalised = true},
    {"qwen2", "qwen2", .biases = true},
    {"qwen3", "qwen3", .pairs = false},
    {"olmoe", "olmoe", .pairs = false},
    {"qwen3_moe", "qwen3moe", .normalised = true, .expert_inner = true},
};

static const char *const block_names[MICS_BLOCK_TENSORS] = {
    [MICS_BLOCK_QKV] = "attn_qkv.weight",       [MICS_BLOCK_Q] = "attn_q.weight",
    [MICS_BLOCK_K] = "attn_k.weight",           [MICS_BLOCK_V] = "attn_v.weight",
    [MICS_BLOCK_OUT] = "attn_output.weight",    [MICS_BLOCK_FC] = "ffn_up.weight",
    [MICS_BLOCK_GATE] = "ffn_gate.weight",      [MICS_BLOCK_UP] = "ffn_up.weight",
    [MICS_BLOCK_DOWN] = "ffn_down.weight",      [MICS_BLOCK_ROUTER] = "ffn_gate_inp.weight",
    [MICS_BLOCK_NORM_1] = "attn_norm.weight",   [MICS_BLOCK_NORM_1_BIAS] = "attn_norm.bias",
    [MICS_BLOCK_QKV_BIAS] = "attn_qkv.bias",    [MICS_BLOCK_Q_BIAS] = "attn_q.bias",
    [MICS_BLOCK_K_BIAS] = "attn_k.bias",        [MICS_BLOCK_V_BIAS] = "attn_v.bias",
    [MICS_BLOCK_Q_NORM] = "attn_q_norm.weight", [MICS_BLOCK_K_NORM] = "attn_k_norm.weight",
    [MICS_BLOCK_OUT_BIAS] = "attn_output.bias", [MICS_BLOCK_NORM_2] = "ffn_norm.weight",
    [MICS_BLOCK_NORM_2_BIAS] = "ffn_norm.bias", [MICS_BLOCK_FC_BIAS] = "ffn_up.bias",
    [MICS_BLOCK_GATE_BIAS] = "ffn_gate.bias",   [MICS_BLOCK_UP_BIAS] = "ffn_up.bias",
    [MICS_BLOCK_DOWN_BIAS] = "ffn_down.bias",
};
static const char *const expert_names[MICS_EXPERT_TENSORS] = {
    [MICS_EXPERT_GATE] = "ffn_gate_exps.weight",
    [MICS_EXPERT_UP] = "ffn_up_exps.weight",
    [MICS_EXPERT_DOWN] = "ffn_down_exps.weight",
};
static const char *const head_names[MICS_HEAD_TENSORS] = {
    [MICS_HEAD_EMBEDDING] = "token_embd.weight", [MICS_HEAD_POSITIONS] = "position_embd.weight",
    [MICS_HEAD_WEIGHT] = "output.weight",        [MICS_HEAD_NORM] = "output_norm.weight",
    [MICS_HEAD_NORM_BIAS] = "output_norm.bias",
};

struct builder {
    const struct mics_model *model;
    const struct architecture *architecture;
    struct mics_gguf *gguf;
    struct mics_gguf_target *out;
    enum mics_storage_dtype dtype;
    bool q8_0;
};

void mics_gguf_target_free(struct mics_gguf_target *target)
{
    free(target->sections);
    free(target->header);
    free(target->rope_factors);
    *target = (struct mics_gguf_target){0};
}

static const struct architecture *find_architecture(const struct mics_model *model)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i].family, model->config.family) == 0)
            return &architectures[i];
    return NULL;
}

/* ---- what llama.cpp does not compute ---- */

static enum mics_status check_rope(const struct mics_model *model,
                                   const struct architecture *architecture, struct mics_err *err)
{
    const struct mics_rope_scaling *scaling = &model->config.rope_scaling;
    const double customary = 0.1 * log(scaling->factor) + 1;

    if (scaling->kind == MICS_ROPE_DYNAMIC)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "rope_scaling 'dynamic' is not in llama.cpp, and not in GGUF");
    if (scaling->kind == MICS_ROPE_LLAMA3 && !architecture->pairs)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "rope_scaling 'llama3' is not in llama.cpp's architecture '%s'",
                            architecture->name);
    if (scaling->kind == MICS_ROPE_YARN &&
        (scaling->beta_fast != 32 || scaling->beta_slow != 1 || !scaling->truncate ||
         fabs(scaling->attention_factor - customary) > 1e-6))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "rope_scaling 'yarn' with other numbers than beta_fast 32, beta_slow "
                            "1 and the customary attention_factor cannot be said in GGUF");
    return MICS_OK;
}

static bool has_dense_layers(const struct mics_model *model)
{
    for (uint32_t i = 0; i < model->config.n_layer; i++)
        if (!mics_model_is_sparse(model, i))
            return true;
    return false;
}

static enum mics_status check_model(const struct mics_model *model,
                                    const struct architecture *architecture, struct mics_err *err)
{
    const struct mics_model_config *config = &model->config;

    if (!architecture && model->family && model->family->bidirectional)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "family '%s': llama.cpp has no head that predicts masked tokens",
                            config->family);
    if (!architecture || !model->family)
        return mics_err_set(err, MICS_ERR_FORMAT, "family '%s' cannot be written as GGUF",
                            config->family);
    if ((config->attention_bias || config->mlp_bias) && !architecture->biases)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "attention_bias is not in llama.cpp's architecture '%s'",
                            architecture->name);
    if (model->family->qk_norm_whole && (config->n_kv_head != config->n_head ||
                                         config->n_head * config->head_dim != config->n_embd))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "fewer heads of keys than of queries are not in llama.cpp's "
                            "architecture '%s'",
                            architecture->name);
    if (config->n_expert > 0 && config->norm_topk_prob != architecture->normalised)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "llama.cpp's architecture '%s' has norm_topk_prob %s, the model %s",
                            architecture->name, architecture->normalised ? "true" : "false",
                            config->norm_topk_prob ? "true" : "false");
    if (config->n_expert > 0 && has_dense_layers(model))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "layers without experts are not in llama.cpp's architecture '%s'",
                            architecture->name);
    return check_rope(model, architecture, err);
}

/* ---- keys ---- */

static const char *key_of(const struct builder *builder, const char *name, char key[96])
{
    snprintf(key, 96, "%s.%s", builder->architecture->name, name);
    return key;
}

static void add_size(const struct builder *builder, const char *name, uint64_t value)
{
    char key[96];

    mics_gguf_add_u32(builder->gguf, key_of(builder, name, key), (uint32_t)value);
}

static void add_real(const struct builder *builder, const char *name, double value)
{
    char key[96];

    mics_gguf_add_f32(builder->gguf, key_of(builder, name, key), (float)value);
}

static void add_text(const struct builder *builder, const char *key, const char *text)
{
    mics_gguf_add_string(builder->gguf, key, text, strlen(text));
}

static void add_general(const struct builder *builder)
{
    static const uint32_t types[] = {[MICS_STORAGE_F32] = FILE_F32,
                                     [MICS_STORAGE_F16] = FILE_F16,
                                     [MICS_STORAGE_BF16] = FILE_BF16};

    add_text(builder, "general.architecture", builder->architecture->name);
    add_text(builder, "general.name", builder->model->config.name);
    mics_gguf_add_u32(builder->gguf, "general.file_type",
                      builder->q8_0 ? FILE_Q8_0 : types[builder->dtype]);
    if (builder->q8_0)
        mics_gguf_add_u32(builder->gguf, "general.quantization_version", QUANTIZATION_VERSION);
}

/* llama.cpp knows no window in these architectures: within it the two compute the same. */
static uint32_t context_length(const struct mics_model_config *config)
{
    bool windowed = false;

    for (uint32_t i = 0; config->sliding_window > 0 && i < config->n_layer; i++)
        windowed = windowed || !(config->full_attention[i / 64] >> i % 64 & 1);
    return windowed && config->sliding_window < config->n_positions ? config->sliding_window
                                                                    : config->n_positions;
}

static void add_rope(const struct builder *builder)
{
    const struct mics_model_config *config = &builder->model->config;
    const struct mics_rope_scaling *scaling = &config->rope_scaling;
    char key[96];

    add_size(builder, "attention.head_count_kv", config->n_kv_head);
    add_size(builder, "attention.key_length", config->head_dim);
    add_size(builder, "attention.value_length", config->head_dim);
    add_size(builder, "rope.dimension_count", config->head_dim);
    add_real(builder, "rope.freq_base", config->rope_theta);
    if (scaling->kind != MICS_ROPE_LINEAR && scaling->kind != MICS_ROPE_YARN)
        return;
    add_text(builder, key_of(builder, "rope.scaling.type", key),
             scaling->kind == MICS_ROPE_LINEAR ? "linear" : "yarn");
    add_real(builder, "rope.scaling.factor", scaling->factor);
    if (scaling->kind == MICS_ROPE_YARN)
        add_size(builder, "rope.scaling.original_context_length", scaling->original_positions);
}

static void add_keys(const struct builder *builder)
{
    const struct mics_model_config *config = &builder->model->config;
    const struct architecture *architecture = builder->architecture;
    const bool experts = config->n_expert > 0;

    add_general(builder);
    add_size(builder, "vocab_size", config->vocab_size);
    add_size(builder, "context_length", context_length(config));
    add_size(builder, "embedding_length", config->n_embd);
    add_size(builder, "block_count", config->n_layer);
    add_size(builder, "feed_forward_length",
             experts && !architecture->expert_inner ? config->expert_inner : config->n_inner);
    add_size(builder, "attention.head_count", config->n_head);
    add_real(builder,
             builder->model->family->norm == MICS_NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                                           : "attention.layer_norm_epsilon",
             config->layer_norm_epsilon);
    if (mics_family_is_rotary(builder->model->family))
        add_rope(builder);
    if (!experts)
        return;
    add_size(builder, "expert_count", config->n_expert);
    add_size(builder, "expert_used_count", config->n_expert_used);
    if (architecture->expert_inner)
        add_size(builder, "expert_feed_forward_length", config->expert_inner);
}

/* ---- tensors ---- */

/* What a tensor of the model is in the file. */
struct place {
    char name[80];
    int block, expert, head; /* enum mics_block_tensor, ...; -1: not one of these */
};

static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* The name of a block's tensor behind "layers.7."; NULL: it is in no block. */
static const char *name_in_block(const struct mics_family *family, const char *name,
                                 unsigned *layer)
{
    const size_t length = strlen(family->layer);
    char *end;

    if (strncmp(name, family->layer, length) != 0 || name[length] != '.')
        return NULL;
    *layer = (unsigned)strtoul(name + length + 1, &end, 10);
    return *end == '.' ? end + 1 : NULL;
}

/* The matrix of an expert by its name in the block, "mlp.experts.3.up_proj.weight". */
static int find_expert(const struct mics_hf_experts *experts, const char *name)
{
    const size_t length = experts ? strlen(experts->block) : 0;
    char *end;

    if (!experts || strncmp(name, experts->block, length) != 0 || name[length] != '.')
        return -1;
    (void)strtoul(name + length + 1, &end, 10);
    return *end == '.' ? find_name(experts->names, MICS_EXPERT_TENSORS, end + 1) : -1;
}

static enum mics_status find_place(const struct mics_model *model, const char *name,
                                   struct place *out, struct mics_err *err)
{
    const struct mics_family *family = model->family;
    unsigned layer = 0;
    const char *rest = name_in_block(family, name, &layer), *found = NULL;

    *out = (struct place){.block = -1, .expert = -1, .head = -1};
    if (rest) {
        out->block = find_name(family->block, MICS_BLOCK_TENSORS, rest);
        out->expert = out->block < 0 ? find_expert(family->experts, rest) : -1;
        found = out->block >= 0    ? block_names[out->block]
                : out->expert >= 0 ? expert_names[out->expert]
                                   : NULL;
    } else {
        out->head = find_name(family->embed_head, MICS_HEAD_TENSORS, name);
        found = out->head >= 0 ? head_names[out->head] : NULL;
    }
    if (!found)
        return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%s' has no name in GGUF", name);
    if (rest)
        snprintf(out->name, sizeof out->name, "blk.%u.%s", layer, found);
    else
        snprintf(out->name, sizeof out->name, "%s", found);
    return MICS_OK;
}

/* The type of a matrix whose rows have `columns` numbers. */
static enum mics_gguf_type set_type(const struct builder *builder, uint64_t columns,
                                    struct mics_section *section)
{
    const bool fits = columns % MICS_Q8_0_NUMBERS == 0;

    section->q8_0 = builder->q8_0 && fits;
    section->dtype = !builder->q8_0 ? builder->dtype : fits ? MICS_STORAGE_F32 : MICS_STORAGE_F16;
    return section->q8_0                        ? MICS_GGUF_Q8_0
           : section->dtype == MICS_STORAGE_F32 ? MICS_GGUF_F32
           : section->dtype == MICS_STORAGE_F16 ? MICS_GGUF_F16
                                                : MICS_GGUF_BF16;
}

static void set_order(const struct builder *builder, const struct place *place,
                      struct mics_section *section, const uint64_t *shape, uint32_t rank)
{
    const int block = place->block;

    if (rank == 2 && builder->model->family->weights_in_out && block >= 0)
        section->order = MICS_SECTION_TRANSPOSED;
    else if (builder->architecture->pairs &&
             (block == MICS_BLOCK_Q || block == MICS_BLOCK_K || block == MICS_BLOCK_Q_BIAS ||
              block == MICS_BLOCK_K_BIAS))
        section->order = MICS_SECTION_ROPE_PAIRS;
    section->columns = rank == 2 ? shape[1] : 1;
    section->head_rows = builder->model->config.head_dim;
}

static enum mics_status add_tensor(const struct builder *builder, uint32_t unit,
                                   const struct mics_tensor *tensor, struct mics_err *err)
{
    const bool swap = tensor->rank == 2 && builder->model->family->weights_in_out;
    uint64_t shape[2] = {tensor->shape[0], tensor->shape[1]};
    struct mics_section section = {.vector = mics_vector_of(unit, 0),
                                   .dtype = MICS_STORAGE_F32,
                                   .start = tensor->offset,
                                   .count = tensor->count};
    enum mics_gguf_type type = MICS_GGUF_F32;
    struct place place;
    const enum mics_status status = find_place(builder->model, tensor->name, &place, err);

    if (status != MICS_OK)
        return status;
    if (swap && place.block >= 0) {
        shape[0] = tensor->shape[1];
        shape[1] = tensor->shape[0];
    }
    if (tensor->rank == 2 && place.block != MICS_BLOCK_ROUTER && place.head != MICS_HEAD_POSITIONS)
        type = set_type(builder, shape[1], &section);
    set_order(builder, &place, &section, shape, tensor->rank);
    section.offset = mics_gguf_add_tensor(builder->gguf, place.name, type, shape, tensor->rank,
                                          mics_section_bytes(&section));
    builder->out->sections[builder->out->file.section_count++] = section;
    return MICS_OK;
}

/* The matrices of one kind of all experts of a unit are one tensor [E, rows, columns]. */
static enum mics_status add_experts(const struct builder *builder, uint32_t unit, int kind,
                                    struct mics_err *err)
{
    const struct mics_unit *from = &builder->model->units[unit];
    const uint32_t experts = builder->model->config.n_expert;
    struct mics_target_file *file = &builder->out->file;
    uint64_t offset = 0;
    uint32_t found = 0;

    for (uint32_t i = 0; i < from->tensor_count; i++) {
        const struct mics_tensor *tensor = &from->tensors[i];
        const uint64_t shape[3] = {experts, tensor->shape[0], tensor->shape[1]};
        struct mics_section section = {
            .vector = mics_vector_of(unit, 0), .start = tensor->offset, .count = tensor->count};
        struct place place;
        const enum mics_status status = find_place(builder->model, tensor->name, &place, err);

        if (status != MICS_OK)
            return status;
        if (place.expert != kind)
            continue;
        const enum mics_gguf_type type = set_type(builder, tensor->shape[1], &section);
        const uint64_t bytes = mics_section_bytes(&section);

        if (found++ == 0)
            offset =
                mics_gguf_add_tensor(builder->gguf, place.name, type, shape, 3, experts * bytes);
        section.offset = offset;
        offset += bytes;
        builder->out->sections[file->section_count++] = section;
    }
    return found == experts ? MICS_OK
                            : mics_err_set(err, MICS_ERR_FORMAT, "unit '%s' has %u experts of %u",
                                           from->name, found, experts);
}

static enum mics_status add_unit(const struct builder *builder, uint32_t unit, struct mics_err *err)
{
    const struct mics_unit *from = &builder->model->units[unit];
    enum mics_status status = MICS_OK;

    if (from->kind == MICS_UNIT_EXPERT) {
        for (int kind = 0; status == MICS_OK && kind < MICS_EXPERT_TENSORS; kind++)
            status = add_experts(builder, unit, kind, err);
        return status;
    }
    for (uint32_t i = 0; status == MICS_OK && i < from->tensor_count; i++)
        status = add_tensor(builder, unit, &from->tensors[i], err);
    return status;
}

/* What the frequencies of Llama 3.1's rotary positions are divided by (kernels/ops.h). */
static float rope_factor(const struct mics_model_config *config, uint32_t pair)
{
    const struct mics_rope_scaling *scaling = &config->rope_scaling;
    const double pi = 3.14159265358979323846;
    const double frequency = pow(config->rope_theta, -2.0 * pair / config->head_dim);
    const double turns = scaling->original_positions * frequency / (2 * pi);

    if (turns < scaling->low_freq_factor)
        return (float)scaling->factor;
    if (turns > scaling->high_freq_factor)
        return 1;
    const double smooth =
        (turns - scaling->low_freq_factor) / (scaling->high_freq_factor - scaling->low_freq_factor);
    return (float)(1 / ((1 - smooth) / scaling->factor + smooth));
}

static enum mics_status add_rope_factors(const struct builder *builder, struct mics_err *err)
{
    const struct mics_model_config *config = &builder->model->config;
    const uint64_t pairs = config->head_dim / 2;

    if (!mics_family_is_rotary(builder->model->family) ||
        config->rope_scaling.kind != MICS_ROPE_LLAMA3)
        return MICS_OK;
    builder->out->rope_factors = malloc(pairs * sizeof(float));
    if (!builder->out->rope_factors)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < pairs; i++)
        builder->out->rope_factors[i] = rope_factor(config, i);
    builder->out->sections[builder->out->file.section_count++] = (struct mics_section){
        .dtype = MICS_STORAGE_RAW,
        .count = pairs * sizeof(float),
        .bytes = (const char *)builder->out->rope_factors,
        .offset = mics_gguf_add_tensor(builder->gguf, "rope_freqs.weight", MICS_GGUF_F32, &pairs, 1,
                                       pairs * sizeof(float))};
    return MICS_OK;
}

static enum mics_status add_tensors(const struct builder *builder, struct mics_err *err)
{
    struct mics_gguf_target *out = builder->out;
    enum mics_status status;
    size_t count = 1;

    for (uint32_t i = 0; i < builder->model->unit_count; i++)
        count += builder->model->units[i].tensor_count;
    out->sections = calloc(count, sizeof *out->sections);
    status = out->sections ? add_rope_factors(builder, err) : mics_err_nomem(err);
    for (uint32_t i = 0; status == MICS_OK && i < builder->model->unit_count; i++)
        status = add_unit(builder, i, err);
    return status;
}

enum mics_status mics_gguf_target_of_model(const struct mics_model *model,
                                           enum mics_storage_dtype dtype, bool q8_0,
                                           mics_gguf_add_tokenizer *add_tokenizer, void *context,
                                           struct mics_gguf_target *out, struct mics_err *err)
{
    struct builder builder = {.model = model,
                              .architecture = find_architecture(model),
                              .out = out,
                              .dtype = dtype,
                              .q8_0 = q8_0};
    enum mics_status status = check_model(model, builder.architecture, err);

    *out = (struct mics_gguf_target){.file = {.name = MICS_SINGLE_FILE}};
    if (status != MICS_OK)
        return status;
    builder.gguf = mics_gguf_new();
    if (!builder.gguf)
        return mics_err_nomem(err);
    add_keys(&builder);
    status = add_tokenizer(context, model->config.vocab_size, builder.gguf, err);
    if (status == MICS_OK)
        status = add_tensors(&builder, err);
    if (status == MICS_OK)
        status = mics_gguf_finish(builder.gguf, &out->header, &out->file.header_bytes, err);
    out->target = (struct mics_target){.files = &out->file, .file_count = 1};
    out->file.header = out->header;
    out->file.sections = out->sections;
    out->file.bytes = out->file.header_bytes + mics_gguf_data_bytes(builder.gguf);
    mics_gguf_free(builder.gguf);
    return status;
}
