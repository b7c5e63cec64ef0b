/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include "base/num.h"
#include "plan/layout.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>

void mics_plan_free(struct mics_plan *plan)
{
    if (!plan)
        return;
    mics_topology_free(plan->topology);
    mics_model_free(plan->model);
    json_decref(plan->doc);
    free(plan->alternatives);
    free(plan);
}

const char *mics_dtype_name(enum mics_dtype dtype)
{
    static const char *const names[] = {
        [MICS_F32] = "f32", [MICS_F64] = "f64", [MICS_BF16] = "bf16"};

    return names[dtype];
}

bool mics_dtype_parse(const char *text, enum mics_dtype *out)
{
    static const enum mics_dtype known[] = {MICS_F32, MICS_BF16};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, mics_dtype_name(known[i])) == 0) {
            *out = known[i];
            return true;
        }
    }
    return false;
}

uint32_t mics_choice_optim_values(const struct mics_plan_choice *choice)
{
    return mics_optimizer_states(choice->optimizer) + (choice->dtype != MICS_F32);
}

struct mics_hop_room mics_choice_hop_room(const struct mics_model *model,
                                          const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shape;
    struct mics_hop_room room = {0};

    for (uint32_t u = 0; choice->grad_dtype != MICS_F32 && u < model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(model, choice, u);

        if (shape->p_optim > shape->p_grad)
            room.scatter = mics_max_u64(room.scatter, layout.grad_piece);
        if (shape->nodes * shape->per_node > shape->p_optim)
            room.sync = mics_max_u64(room.sync, layout.optim_piece);
    }
    return room;
}

const char *mics_optimizer_name(enum mics_optimizer optimizer)
{
    return optimizer == MICS_OPT_ADAMW ? "adamw" : "sgd";
}
