/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "model/build.h"
#include "model/config.h"

#include <stdlib.h>
#include <string.h>

static const char *const recompute_names[MICS_RECOMPUTE_LEVELS] = {
    [MICS_RECOMPUTE_NONE] = "none",
    [MICS_RECOMPUTE_SELECTIVE] = "selective",
    [MICS_RECOMPUTE_FULL] = "full",
};

const char *mics_recompute_name(enum mics_recompute level)
{
    return recompute_names[level];
}

bool mics_recompute_parse(const char *name, enum mics_recompute *out)
{
    for (int i = 0; i < MICS_RECOMPUTE_LEVELS; i++) {
        if (strcmp(name, recompute_names[i]) == 0) {
            *out = (enum mics_recompute)i;
            return true;
        }
    }
    return false;
}

enum mics_status mics_model_new(const struct mics_model_config *config, struct mics_model **out,
                                struct mics_err *err)
{
    struct mics_model_config resolved = *config;

    mics_config_resolve(&resolved);
    enum mics_status status = mics_config_check(&resolved, err);
    if (status != MICS_OK)
        return status;

    struct mics_model *model = calloc(1, sizeof *model);
    if (!model)
        return mics_err_nomem(err);
    model->config = resolved;
    model->family = mics_family_find(config->family);

    status = model->family->build(model, err);
    if (status != MICS_OK) {
        mics_model_free(model);
        return status;
    }
    *out = model;
    return MICS_OK;
}

void mics_model_free(struct mics_model *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; i < model->unit_count; i++)
        free(model->units[i].tensors);
    free(model->units);
    free(model->stages);
    json_decref(model->source);
    free(model);
}

/* Narayanan et al. 2021 count 6 N per token for the matrices; attention's two products of [T, C] by
 * [C, T] take 4 C T forward and twice that backward, halved because half of each row is masked. */
double mics_model_flops_per_token(const struct mics_model *model, uint32_t T)
{
    const struct mics_model_config *c = &model->config;
    const double looked_up = c->untied ? (double)c->vocab_size * c->n_embd : 0;
    const double width = (double)c->n_head * c->head_dim;

    return 6.0 * ((double)model->param_count - looked_up) + 6.0 * c->n_layer * width * T;
}
