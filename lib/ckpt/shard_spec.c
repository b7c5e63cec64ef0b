/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/shard_spec.h"

#include "ckpt/table.h"

#include <stdio.h>
#include <stdlib.h>

enum mics_status mics_shard_spec_new(const struct mics_ckpt_form *form, uint32_t part,
                                     struct mics_shard_spec *spec, struct mics_err *err)
{
    const uint32_t count = form->model->unit_count * form->states;

    *spec = (struct mics_shard_spec){.count = count};
    spec->tensors = calloc(count, sizeof *spec->tensors);
    spec->names = calloc(count, sizeof *spec->names);
    if (!spec->tensors || !spec->names) {
        mics_shard_spec_free(spec);
        return mics_err_nomem(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = i / form->states;
        uint64_t shard = mics_layout_optim_shard(&form->layouts[unit]);

        snprintf(spec->names[i], sizeof spec->names[i], "%s.%s", form->model->units[unit].name,
                 mics_ckpt_state_name(i % form->states));
        spec->tensors[i] = (struct mics_safetensor_spec){
            .name = spec->names[i],
            .dtype = "F32",
            .rank = 1,
            .shape = {mics_ckpt_part_begin(shard, form->parts, part + 1) -
                      mics_ckpt_part_begin(shard, form->parts, part)}};
    }
    return MICS_OK;
}

void mics_shard_spec_free(struct mics_shard_spec *spec)
{
    free(spec->tensors);
    free(spec->names);
    *spec = (struct mics_shard_spec){0};
}
