/* SPDX-License-Identifier: Apache-2.0 */
#include "model/unit_build.h"

#include "base/num.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mics_status mics_build_alloc(struct mics_model *model, uint32_t units, uint32_t stages,
                                  struct mics_err *err)
{
    model->units = calloc(units, sizeof *model->units);
    model->stages = calloc(stages, sizeof *model->stages);
    if (!model->units || !model->stages)
        return mics_err_nomem(err);
    model->unit_count = units;
    model->stage_count = stages;
    model->boundary_count = 1;
    return MICS_OK;
}

enum mics_status mics_build_stages(struct mics_model *model, struct mics_err *err)
{
    const uint32_t layers = model->config.n_layer;
    const enum mics_status status =
        mics_build_alloc(model, layers + (model->config.untied ? 2 : 1), layers + 2, err);

    if (status != MICS_OK)
        return status;

    model->stages[0] = (struct mics_stage){.kind = MICS_STAGE_EMBED, .hands_on = 1};
    for (uint32_t i = 0; i < layers; i++)
        model->stages[1 + i] = (struct mics_stage){.kind = MICS_STAGE_BLOCK,
                                                   .unit = 1 + i,
                                                   .layer = i,
                                                   .receives = 1,
                                                   .hands_on = 1,
                                                   .backward_needs_params = true};
    model->stages[1 + layers] = (struct mics_stage){.kind = MICS_STAGE_HEAD,
                                                    .unit = model->config.untied ? 1 + layers : 0,
                                                    .receives = 1,
                                                    .backward_needs_params = true};
    return MICS_OK;
}

static uint32_t next_id(const struct mics_model *model, uint32_t unit)
{
    uint32_t id = 0;

    for (uint32_t i = 0; i < unit; i++)
        id += model->units[i].tensor_count;
    return id;
}

static void describe_tensor(struct mics_tensor *tensor, const char *prefix,
                            const struct mics_tensor_spec *spec)
{
    snprintf(tensor->name, sizeof tensor->name, "%s%s%s", prefix, *prefix ? "." : "", spec->name);
    tensor->rank = spec->columns ? 2 : 1;
    tensor->shape[0] = spec->rows;
    tensor->shape[1] = spec->columns;
    tensor->count = spec->rows * (spec->columns ? spec->columns : 1);
    tensor->init = spec->init;
    tensor->std = spec->std;
    tensor->decay = spec->decay;
}

static void place_tensor(struct mics_unit *unit, struct mics_tensor *tensor,
                         const struct mics_tensor_spec *spec)
{
    tensor->offset = spec->contiguous ? unit->count : mics_round_up(unit->count, MICS_TENSOR_ALIGN);
    unit->count =
        tensor->offset + tensor->count + spec->padding_rows * (spec->columns ? spec->columns : 1);
    unit->param_count += tensor->count;
    if (tensor->decay) {
        assert(tensor->offset == 0 || unit->decay_count > 0);
        unit->decay_count = unit->count;
    }
}

enum mics_status mics_build_unit(struct mics_model *model, uint32_t index, const char *name,
                                 const char *prefix, bool resident,
                                 const struct mics_tensor_spec *specs, uint32_t count,
                                 struct mics_err *err)
{
    struct mics_unit *unit = &model->units[index];
    const uint32_t first_id = next_id(model, index);

    unit->tensors = calloc(count, sizeof *unit->tensors);
    if (!unit->tensors)
        return mics_err_nomem(err);
    snprintf(unit->name, sizeof unit->name, "%s", name);
    unit->resident = resident;
    unit->tensor_count = count;

    for (uint32_t i = 0; i < count; i++) {
        struct mics_tensor *tensor = &unit->tensors[i];

        assert(i == 0 || specs[i - 1].decay || !specs[i].decay);
        describe_tensor(tensor, prefix, &specs[i]);
        tensor->id = first_id + i;
        place_tensor(unit, tensor, &specs[i]);
    }
    model->param_count += unit->param_count;
    return MICS_OK;
}
