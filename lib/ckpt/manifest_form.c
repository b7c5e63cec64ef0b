/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/manifest_form.h"

static const char *const state_names[MICS_CKPT_STATES] = {"param", "m", "v"};

const char *mics_ckpt_state_name(uint32_t state)
{
    return state_names[state];
}

json_t *mics_form_shape(const struct mics_shape *shape)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "nodes", (json_int_t)shape->nodes, "per_node",
                     (json_int_t)shape->per_node, "p_param", (json_int_t)shape->p_param, "p_grad",
                     (json_int_t)shape->p_grad, "p_optim", (json_int_t)shape->p_optim);
}

json_t *mics_form_states(uint32_t states)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < states; i++) {
        if (json_array_append_new(list, json_string(state_names[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *describe_tensor(const struct mics_tensor *tensor)
{
    json_t *shape = tensor->rank == 1 ? json_pack("[I]", (json_int_t)tensor->shape[0])
                                      : json_pack("[I,I]", (json_int_t)tensor->shape[0],
                                                  (json_int_t)tensor->shape[1]);

    return shape ? json_pack("{s:s,s:o,s:I}", "name", tensor->name, "shape", shape, "offset",
                             (json_int_t)tensor->offset)
                 : NULL;
}

json_t *mics_form_unit(const struct mics_unit *unit, const struct mics_layout *layout)
{
    json_t *tensors = json_array();

    for (uint32_t i = 0; tensors && i < unit->tensor_count; i++) {
        if (json_array_append_new(tensors, describe_tensor(&unit->tensors[i])) != 0) {
            json_decref(tensors);
            return NULL;
        }
    }
    return tensors ? json_pack("{s:s,s:I,s:I,s:I,s:o}", "name", unit->name, "count",
                               (json_int_t)layout->count, "padded", (json_int_t)layout->padded,
                               "segments", (json_int_t)layout->segments, "tensors", tensors)
                   : NULL;
}

json_t *mics_form_units(const struct mics_ckpt_form *form)
{
    json_t *units = json_array();

    for (uint32_t i = 0; units && i < form->model->unit_count; i++) {
        json_t *unit = mics_form_unit(&form->model->units[i], &form->layouts[i]);

        if (json_array_append_new(units, unit) != 0) {
            json_decref(units);
            return NULL;
        }
    }
    return units;
}
