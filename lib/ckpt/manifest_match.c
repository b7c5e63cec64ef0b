/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/manifest.h"

#include "ckpt/match_tensors.h"
#include "ckpt/table.h"
#include "doc/cursor.h"

#include <stddef.h>
#include <string.h>

/* Fields of the configuration that change what the model computes; its name does not. */
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
    {"rope_scaling.original_max_position_embeddings",
     offsetof(struct mics_model_config, rope_scaling.original_positions)},
};

static const struct {
    const char *name;
    size_t offset;
} config_numbers[] = {
    {"layer_norm_epsilon", offsetof(struct mics_model_config, layer_norm_epsilon)},
    {"rope_theta", offsetof(struct mics_model_config, rope_theta)},
    {"rope_scaling.factor", offsetof(struct mics_model_config, rope_scaling.factor)},
    {"rope_scaling.low_freq_factor",
     offsetof(struct mics_model_config, rope_scaling.low_freq_factor)},
    {"rope_scaling.high_freq_factor",
     offsetof(struct mics_model_config, rope_scaling.high_freq_factor)},
};

static uint32_t config_field(const struct mics_model_config *config, size_t i)
{
    uint32_t value;

    memcpy(&value, (const char *)config + config_fields[i].offset, sizeof value);
    return value;
}

static double config_number(const struct mics_model_config *config, size_t i)
{
    double value;

    memcpy(&value, (const char *)config + config_numbers[i].offset, sizeof value);
    return value;
}

static enum mics_status compare_configs(const struct mics_model_config *then,
                                        const struct mics_model_config *now, struct mics_err *err)
{
    if (strcmp(then->family, now->family) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "the checkpoint's model is a %s, the plan's a %s",
                            then->family, now->family);
    for (size_t i = 0; i < sizeof config_fields / sizeof *config_fields; i++) {
        uint32_t a = config_field(then, i), b = config_field(now, i);

        if (a != b)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "the checkpoint's model has %s %u, the plan's %u",
                                config_fields[i].name, a, b);
    }
    for (size_t i = 0; i < sizeof config_numbers / sizeof *config_numbers; i++) {
        double a = config_number(then, i), b = config_number(now, i);

        if (a < b || a > b)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "the checkpoint's model has %s %g, the plan's %g",
                                config_numbers[i].name, a, b);
    }
    if (then->untied != now->untied)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has a %s head, the plan's has not",
                            then->untied ? "untied" : "tied");
    return MICS_OK;
}

static enum mics_status match_model(const struct mics_at *root, const struct mics_model *now,
                                    struct mics_err *err)
{
    struct mics_model *then = NULL;
    struct mics_at at;
    enum mics_status status = mics_at_object(root, "model", &at, err);

    if (status != MICS_OK)
        return status;
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
                                        const struct mics_ckpt_form *form, struct mics_err *err)
{
    const struct mics_optimizer_row *was = mics_manifest_optimizer(doc);
    const struct mics_optimizer_row *is = mics_optimizer_get(form->choice->optimizer);

    if (then != form->states)
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

/* What the configurations differ in, and then the tensors that differ because of it. */
static enum mics_status match_all(const struct mics_at *root, const struct mics_ckpt_table *table,
                                  const struct mics_model *model, struct mics_err *err)
{
    struct mics_err tensors = {""}, config = {""};
    const enum mics_status differ = mics_ckpt_match_tensors(table, model, &tensors);
    const enum mics_status status = match_model(root, model, &config);

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
                                     const struct mics_ckpt_form *form, struct mics_err *err)
{
    const struct mics_at root = mics_at_root(doc);
    enum mics_status status = match_all(&root, table, form->model, err);

    return status == MICS_OK ? match_optimizer(doc, table->states, form, err) : status;
}
