/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/manifest.h"

#include "ckpt/manifest_form.h"
#include "doc/at.h"

#include <stddef.h>
#include <string.h>

static enum mics_status read_shape(const struct mics_at *root, struct mics_shape *shape,
                                   struct mics_err *err)
{
    struct mics_at at;
    const struct {
        const char *key;
        uint32_t *value;
    } fields[] = {
        {"nodes", &shape->nodes},   {"per_node", &shape->per_node}, {"p_param", &shape->p_param},
        {"p_grad", &shape->p_grad}, {"p_optim", &shape->p_optim},
    };
    enum mics_status status = mics_at_object(root, "shape", &at, err);

    for (size_t i = 0; status == MICS_OK && i < sizeof fields / sizeof *fields; i++)
        status = mics_at_u32(&at, fields[i].key, 1, UINT32_MAX, fields[i].value, err);
    return status;
}

static enum mics_status match_shape(const struct mics_at *root, const struct mics_shape *now,
                                    struct mics_err *err)
{
    struct mics_shape then = {0};
    enum mics_status status = read_shape(root, &then, err);

    if (status != MICS_OK)
        return status;
    if (then.nodes == now->nodes && then.per_node == now->per_node &&
        then.p_param == now->p_param && then.p_grad == now->p_grad && then.p_optim == now->p_optim)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "the checkpoint is of %u ranks (%u nodes of %u) in groups of %u, %u, %u, "
                        "the plan of %u ranks (%u nodes of %u) in groups of %u, %u, %u",
                        then.nodes * then.per_node, then.nodes, then.per_node, then.p_param,
                        then.p_grad, then.p_optim, now->nodes * now->per_node, now->nodes,
                        now->per_node, now->p_param, now->p_grad, now->p_optim);
}

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
};

static uint32_t config_field(const struct mics_model_config *config, size_t i)
{
    uint32_t value;

    memcpy(&value, (const char *)config + config_fields[i].offset, sizeof value);
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
    if (then->layer_norm_epsilon < now->layer_norm_epsilon ||
        then->layer_norm_epsilon > now->layer_norm_epsilon)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the checkpoint's model has layer_norm_epsilon %g, the plan's %g",
                            then->layer_norm_epsilon, now->layer_norm_epsilon);
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

static enum mics_status match_states(const struct mics_at *root, uint32_t states,
                                     struct mics_err *err)
{
    struct mics_at at;
    enum mics_status status = mics_at_array(root, "states", 1, MICS_CKPT_STATES, &at, err);
    json_t *now = mics_form_states(states);

    if (!now)
        return mics_err_nomem(err);
    if (status == MICS_OK && !json_equal(at.value, now))
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "the checkpoint has %zu states of each parameter, the plan's "
                              "optimizer %u",
                              mics_at_count(&at), states);
    json_decref(now);
    return status;
}

static enum mics_status match_units(const struct mics_at *root, const struct mics_ckpt_form *form,
                                    struct mics_err *err)
{
    const uint32_t count = form->model->unit_count;
    struct mics_at at;
    enum mics_status status = mics_at_array(root, "units", count, count, &at, err);

    for (uint32_t i = 0; status == MICS_OK && i < count; i++) {
        json_t *unit = mics_form_unit(&form->model->units[i], &form->layouts[i]);

        if (!unit)
            return mics_err_nomem(err);
        if (!json_equal(unit, json_array_get(at.value, i)))
            status = mics_err_set(err, MICS_ERR_FORMAT,
                                  "unit '%s' is laid out in another way than by this plan",
                                  form->model->units[i].name);
        json_decref(unit);
    }
    return status;
}

enum mics_status mics_manifest_match(const json_t *doc, const struct mics_ckpt_form *form,
                                     struct mics_err *err)
{
    struct mics_at root = mics_at_root(doc);
    enum mics_status status = match_model(&root, form->model, err);

    if (status == MICS_OK)
        status = match_shape(&root, &form->choice->shape, err);
    if (status == MICS_OK)
        status = match_states(&root, form->states, err);
    if (status == MICS_OK)
        status = match_units(&root, form, err);
    if (status == MICS_OK && mics_at_has(&root, "files") &&
        json_array_size(json_object_get(doc, "files")) != form->choice->shape.p_optim)
        status = mics_err_set(err, MICS_ERR_FORMAT, "files: %zu, but the optimizer's group has %u",
                              json_array_size(json_object_get(doc, "files")),
                              form->choice->shape.p_optim);
    return status;
}
