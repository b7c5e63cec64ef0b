/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/ckpt_table.h"
#include "ckpt/manifest.h"
#include "doc/cursor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A group of tensors that differ in the same way. */
struct difference {
    char text[192];
    uint32_t count;
    char name[64]; /* of the first tensor */
};

struct differences {
    struct difference *items;
    uint32_t count, tensors;
    bool failed; /* out of memory */
};

/* "h.11.ln_1.weight" -> "h.*.ln_1.weight" */
static void replace_numbers(const char *name, char *buf, size_t size)
{
    size_t used = 0;
    bool fresh = true; /* at the beginning of a component */

    while (*name && used + 1 < size) {
        const size_t digits = fresh ? strspn(name, "0123456789") : 0;

        fresh = *name == '.';
        if (digits > 0 && (name[digits] == '.' || !name[digits])) {
            buf[used++] = '*';
            name += digits;
        } else {
            buf[used++] = *name++;
        }
    }
    buf[used] = '\0';
}

static void add(struct differences *all, const char *name, const char *what)
{
    char general[64], text[sizeof all->items->text];
    struct difference *grown;

    replace_numbers(name, general, sizeof general);
    snprintf(text, sizeof text, "%s %s", general, what);
    all->tensors++;
    for (uint32_t i = 0; i < all->count; i++) {
        if (strcmp(all->items[i].text, text) == 0) {
            all->items[i].count++;
            return;
        }
    }
    grown = realloc(all->items, (all->count + 1) * sizeof *grown);
    if (!grown) {
        all->failed = true;
        return;
    }
    all->items = grown;
    grown[all->count] = (struct difference){.count = 1};
    snprintf(grown[all->count].text, sizeof grown->text, "%s", text);
    snprintf(grown[all->count++].name, sizeof grown->name, "%s", name);
}

static void print_shape(char *buf, size_t size, uint32_t rank, const uint64_t *shape)
{
    if (rank == 1)
        snprintf(buf, size, "[%llu]", (unsigned long long)shape[0]);
    else
        snprintf(buf, size, "[%llu, %llu]", (unsigned long long)shape[0],
                 (unsigned long long)shape[1]);
}

/* Tensor `index` of unit `in`, if that is its name, else any: models have thousands, and nearly
 * always they are in their places. */
static const struct mics_ckpt_tensor *find_tensor(const struct mics_ckpt_table *table, uint32_t in,
                                                  uint32_t index, const char *name,
                                                  const char **unit)
{
    if (in < table->unit_count && index < table->units[in].tensor_count &&
        strcmp(table->units[in].tensors[index].name, name) == 0) {
        *unit = table->units[in].name;
        return &table->units[in].tensors[index];
    }
    for (uint32_t u = 0; u < table->unit_count; u++) {
        for (uint32_t i = 0; i < table->units[u].tensor_count; i++) {
            if (strcmp(table->units[u].tensors[i].name, name) == 0) {
                *unit = table->units[u].name;
                return &table->units[u].tensors[i];
            }
        }
    }
    return NULL;
}

static void compare(struct differences *all, const struct mics_ckpt_table *table,
                    const struct mics_model *model, uint32_t u, uint32_t i)
{
    const struct mics_unit *const unit = &model->units[u];
    const struct mics_tensor *const now = &unit->tensors[i];
    const char *home = NULL; /* unit that has the tensor in the checkpoint */
    const struct mics_ckpt_tensor *then = find_tensor(table, u, i, now->name, &home);
    char a[48], b[48], what[112];

    if (!then) {
        add(all, now->name, "is missing");
        return;
    }
    print_shape(a, sizeof a, then->rank, then->shape);
    print_shape(b, sizeof b, now->rank, now->shape);
    if (strcmp(a, b) != 0) {
        snprintf(what, sizeof what, "is %s, not %s", a, b);
        add(all, now->name, what);
    } else if (strcmp(home, unit->name) != 0 || then->offset != now->offset) {
        add(all, now->name, "is at another offset");
    }
}

/* As find_tensor(). */
static bool model_has(const struct mics_model *model, uint32_t in, uint32_t index, const char *name)
{
    if (in < model->unit_count && index < model->units[in].tensor_count &&
        strcmp(model->units[in].tensors[index].name, name) == 0)
        return true;
    for (uint32_t u = 0; u < model->unit_count; u++)
        for (uint32_t i = 0; i < model->units[u].tensor_count; i++)
            if (strcmp(model->units[u].tensors[i].name, name) == 0)
                return true;
    return false;
}

static enum mics_status report(const struct differences *all, struct mics_err *err)
{
    char text[sizeof err->text - 128];
    size_t used = 0;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct difference *item = &all->items[i];
        const char *rest = strchr(item->text, ' ');
        char one[224];
        int length;

        if (item->count == 1)
            length = snprintf(one, sizeof one, "%s%s%s", i ? "; " : "", item->name, rest);
        else
            length = snprintf(one, sizeof one, "%s%s (%u)", i ? "; " : "", item->text, item->count);
        if (used + (size_t)length + 32 > sizeof text) {
            snprintf(text + used, sizeof text - used, "; and %u more kinds", all->count - i);
            break;
        }
        memcpy(text + used, one, (size_t)length + 1);
        used += (size_t)length;
    }
    return mics_err_set(err, MICS_ERR_FORMAT, "%u tensor%s not the model's: %s", all->tensors,
                        all->tensors == 1 ? " is" : "s are", text);
}

enum mics_status mics_ckpt_match_tensors(const struct mics_ckpt_table *table,
                                         const struct mics_model *model, struct mics_err *err)
{
    struct differences all = {0};
    enum mics_status status = MICS_OK;

    for (uint32_t u = 0; u < model->unit_count; u++)
        for (uint32_t i = 0; i < model->units[u].tensor_count; i++)
            compare(&all, table, model, u, i);
    for (uint32_t u = 0; u < table->unit_count; u++)
        for (uint32_t i = 0; i < table->units[u].tensor_count; i++)
            if (!model_has(model, u, i, table->units[u].tensors[i].name))
                add(&all, table->units[u].tensors[i].name, "is not in the model");
    if (all.failed)
        status = mics_err_nomem(err);
    else if (all.count > 0)
        status = report(&all, err);
    free(all.items);
    return status;
}

/* The members of the configuration that change what the model computes. */
static const struct {
    const char *name;
    size_t offset;
} config_fields[] = {
    {"n_layer", offsetof(struct mics_model_config, n_layer)},
    {"n_embd", offsetof(struct mics_model_config, n_embd)},
    {"n_head", offsetof(struct mics_model_config, n_head)},
    {"n_positions", offsetof(struct mics_model_config, n_positions)},
    {"vocab_size", offsetof(struct mics_model_config, vocab_size)},
    {"n_inner", offsetof(struct mics_model_config, n_inner)},
    {"n_kv_head", offsetof(struct mics_model_config, n_kv_head)},
    {"head_dim", offsetof(struct mics_model_config, head_dim)},
    {"sliding_window", offsetof(struct mics_model_config, sliding_window)},
    {"type_vocab_size", offsetof(struct mics_model_config, type_vocab_size)},
    {"n_expert", offsetof(struct mics_model_config, n_expert)},
    {"n_expert_used", offsetof(struct mics_model_config, n_expert_used)},
    {"expert_inner", offsetof(struct mics_model_config, expert_inner)},
    {"shared_inner", offsetof(struct mics_model_config, shared_inner)},
    {"rope_scaling.original_max_position_embeddings",
     offsetof(struct mics_model_config, rope_scaling.original_positions)},
};

static const struct {
    const char *name;
    size_t offset;
} config_doubles[] = {
    {"layer_norm_epsilon", offsetof(struct mics_model_config, layer_norm_epsilon)},
    {"rope_theta", offsetof(struct mics_model_config, rope_theta)},
    {"rope_scaling.factor", offsetof(struct mics_model_config, rope_scaling.factor)},
    {"rope_scaling.low_freq_factor",
     offsetof(struct mics_model_config, rope_scaling.low_freq_factor)},
    {"rope_scaling.high_freq_factor",
     offsetof(struct mics_model_config, rope_scaling.high_freq_factor)},
    {"rope_scaling.beta_fast", offsetof(struct mics_model_config, rope_scaling.beta_fast)},
    {"rope_scaling.beta_slow", offsetof(struct mics_model_config, rope_scaling.beta_slow)},
    {"rope_scaling.attention_factor",
     offsetof(struct mics_model_config, rope_scaling.attention_factor)},
    {"expert_capacity (mics-plan --capacity)", offsetof(struct mics_model_config, expert_capacity)},
};

static uint32_t config_field(const struct mics_model_config *config, size_t i)
{
    uint32_t value;

    memcpy(&value, (const char *)config + config_fields[i].offset, sizeof value);
    return value;
}

static double config_double(const struct mics_model_config *config, size_t i)
{
    double value;

    memcpy(&value, (const char *)config + config_doubles[i].offset, sizeof value);
    return value;
}

/* All of them are positive; 0 stands for what a model does not have. */
static void format_double(double value, char text[32])
{
    if (value > 0)
        snprintf(text, 32, "%.10g", value);
    else
        snprintf(text, 32, "none");
}

static enum mics_status compare_configs(const struct mics_model_config *then,
                                        const struct mics_model_config *now, struct mics_err *err)
{
    char then_text[32], now_text[32];

    if (strcmp(then->family, now->family) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model is of family %s, the plan's of %s",
                            then->family, now->family);
    for (size_t i = 0; i < sizeof config_fields / sizeof *config_fields; i++) {
        uint32_t a = config_field(then, i), b = config_field(now, i);

        if (a != b)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "the checkpoint's model has %s %u, the plan's %u",
                                config_fields[i].name, a, b);
    }
    for (size_t i = 0; i < sizeof config_doubles / sizeof *config_doubles; i++) {
        double a = config_double(then, i), b = config_double(now, i);

        if (a < b || a > b) {
            format_double(a, then_text);
            format_double(b, now_text);
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "the checkpoint's model has %s %s, the plan's %s",
                                config_doubles[i].name, then_text, now_text);
        }
    }
    if (then->rope_scaling.kind != now->rope_scaling.kind ||
        then->rope_scaling.truncate != now->rope_scaling.truncate)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has another rope_scaling than the plan's");
    if (memcmp(then->full_attention, now->full_attention, sizeof now->full_attention) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has its sliding_window in other layers than "
                            "the plan's");
    if (then->norm_topk_prob != now->norm_topk_prob)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has another norm_topk_prob than the plan's");
    if (memcmp(then->dense_layers, now->dense_layers, sizeof now->dense_layers) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has its experts in other layers than the "
                            "plan's");
    if (then->untied != now->untied)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has a %s head, the plan's has not",
                            then->untied ? "untied" : "tied");
    return MICS_OK;
}

static enum mics_status match_model(const json_t *doc, const struct mics_model *now,
                                    struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor at = mics_cursor_get_object(&root, "model");
    struct mics_model *then = NULL;
    enum mics_status status;

    if (reading.status != MICS_OK)
        return reading.status;
    status = mics_model_from_json(at.value, &then, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "model");
    else
        status = compare_configs(&then->config, &now->config, err);
    mics_model_free(then);
    return status;
}

const struct mics_optimizer_row *mics_manifest_optimizer(const json_t *doc)
{
    const json_t *choice = json_object_get(json_object_get(doc, "plan"), "choice");
    const char *name = json_string_value(json_object_get(choice, "optimizer"));
    enum mics_optimizer optimizer;

    return name && mics_optimizer_parse(name, &optimizer) ? mics_optimizer_get(optimizer) : NULL;
}

static enum mics_status match_optimizer(const json_t *doc, uint32_t then,
                                        const struct mics_ckpt_layout *form, struct mics_err *err)
{
    const struct mics_optimizer_row *was = mics_manifest_optimizer(doc);
    const struct mics_optimizer_row *is = mics_optimizer_get(form->choice->optimizer);

    if (mics_ckpt_inner_states(then) != mics_ckpt_inner_states(form->states))
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "the checkpoint has %u states of each parameter (it is of %s), the plan's optimizer %u",
            then,
            then == 1 ? "weights only"
            : was     ? was->title
                      : "another optimizer",
            form->states);
    if (then > 1 && was && was != is)
        return mics_err_set(err, MICS_ERR_FORMAT, "the checkpoint is of %s, the plan of %s",
                            was->title, is->title);
    return MICS_OK;
}

/* The difference of the configurations, followed by the tensors that differ because of it. */
static enum mics_status match_all(const json_t *doc, const struct mics_ckpt_table *table,
                                  const struct mics_model *model, struct mics_err *err)
{
    struct mics_err tensors = {""}, config = {""};
    const enum mics_status differ = mics_ckpt_match_tensors(table, model, &tensors);
    const enum mics_status status = match_model(doc, model, &config);

    if (status == MICS_OK && differ == MICS_OK)
        return MICS_OK;
    if (err)
        *err = status != MICS_OK ? config : tensors;
    if (err && status != MICS_OK && differ != MICS_OK) {
        *err = tensors;
        mics_err_prefix(err, "%s", config.text);
    }
    return status != MICS_OK ? status : differ;
}

enum mics_status mics_manifest_match(const json_t *doc, const struct mics_ckpt_table *table,
                                     const struct mics_ckpt_layout *form, struct mics_err *err)
{
    enum mics_status status = match_all(doc, table, form->model, err);

    return status == MICS_OK ? match_optimizer(doc, table->states, form, err) : status;
}

enum mics_status mics_ckpt_map_units(const struct mics_ckpt_table *table,
                                     const struct mics_model *model, uint32_t **units,
                                     struct mics_err *err)
{
    *units = calloc(model->unit_count, sizeof **units);
    if (!*units)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->unit_count; i++) {
        const int64_t unit = mics_ckpt_table_find(table, model->units[i].name);

        if (unit < 0 || table->units[unit].layout.count != model->units[i].count)
            return mics_err_set(err, MICS_ERR_FORMAT, "unit '%s' is missing or of another size",
                                model->units[i].name);
        (*units)[i] = (uint32_t)unit;
    }
    return MICS_OK;
}
