/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/slots.h"

#include "base/num.h"

#include <stdlib.h>

enum mics_status mics_choice_check(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, struct mics_err *err)
{
    enum mics_status status = mics_shape_check(&choice->shape, err);
    uint64_t tokens = (uint64_t)choice->micro_batch * choice->seq;

    if (status != MICS_OK)
        return status;
    status = mics_model_check_seq(model, choice->seq, err);
    if (status != MICS_OK)
        return status;
    if (choice->micro_batch == 0 || tokens > INT32_MAX)
        return mics_err_set(err, MICS_ERR_ARG,
                            "micro-batch of %u sequences of %u: a micro-batch holds 1 to 2^31-1 "
                            "tokens",
                            choice->micro_batch, choice->seq);
    if (choice->micro_steps == 0 || choice->micro_steps > 1u << 20)
        return mics_err_set(err, MICS_ERR_ARG, "%u micro-steps: expected 1 to 1048576",
                            choice->micro_steps);
    if (choice->segments == 0 || choice->segments > 64)
        return mics_err_set(err, MICS_ERR_ARG, "%u segments: expected 1 to 64", choice->segments);
    if (choice->joined > MICS_JOINED_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "%u units joined: expected 0 to %d", choice->joined,
                            MICS_JOINED_MAX);
    if (choice->grad_slots == 0 || choice->grad_slots > 65536 || choice->prefetch > 65535)
        return mics_err_set(err, MICS_ERR_ARG, "prefetch %u, %u gradient slots: out of range",
                            choice->prefetch, choice->grad_slots);
    return MICS_OK;
}

struct mics_layout mics_choice_layout(const struct mics_model *model,
                                      const struct mics_plan_choice *choice, uint32_t unit)
{
    uint64_t count = model->units[unit].count;
    uint64_t grain = (uint64_t)choice->segments * choice->shape.p_optim * MICS_TENSOR_ALIGN;

    return mics_layout_make(&choice->shape, count, count >= grain ? choice->segments : 1);
}

static uint32_t count_residents(const struct mics_model *model)
{
    uint32_t residents = 0;

    for (uint32_t u = 0; u < model->unit_count; u++)
        residents += model->units[u].resident;
    return residents;
}

/* A unit that turns up twice in a pass must be resident: a rotating slot may be needed in between. */
static enum mics_status check_uses(const struct mics_model *model, struct mics_err *err)
{
    uint32_t *uses = calloc(model->unit_count, sizeof *uses);
    enum mics_status status = uses ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; i < model->stage_count && uses; i++)
        uses[model->stages[i].unit]++;
    for (uint32_t u = 0; u < model->unit_count && status == MICS_OK; u++)
        if (uses[u] != 1 && (uses[u] == 0 || !model->units[u].resident))
            status =
                mics_err_set(err, MICS_ERR_ARG, "unit '%s': used by %u stages but not resident",
                             model->units[u].name, uses[u]);
    free(uses);
    return status;
}

static void place(const struct mics_model *model, const struct mics_plan_choice *choice,
                  struct mics_slot_set *out)
{
    uint32_t next = out->rotating;

    for (uint32_t u = 0; u < model->unit_count; u++) {
        uint64_t padded = mics_choice_layout(model, choice, u).padded;

        if (model->units[u].resident)
            out->count[next++] = padded;
        else if (padded > out->count[0])
            out->count[0] = padded;
    }
    for (uint32_t i = 0; i < out->total; i++) {
        if (i < out->rotating)
            out->count[i] = out->count[0];
        out->offset[i] = out->elements;
        out->elements += out->count[i];
    }
}

enum mics_status mics_slots_init(const struct mics_model *model,
                                 const struct mics_plan_choice *choice, uint32_t group,
                                 uint32_t rotating, struct mics_slot_set *out, struct mics_err *err)
{
    uint32_t residents = count_residents(model);
    enum mics_status status = check_uses(model, err);

    *out = (struct mics_slot_set){0};
    if (group == 1 || status != MICS_OK)
        return status;
    out->rotating = (uint32_t)mics_min_u64(rotating, model->unit_count - residents);
    out->total = out->rotating + residents;
    out->count = calloc(out->total + 1, sizeof *out->count);
    out->offset = calloc(out->total + 1, sizeof *out->offset);
    if (!out->count || !out->offset)
        return mics_err_nomem(err);
    place(model, choice, out);
    return MICS_OK;
}

void mics_slots_fini(struct mics_slot_set *slots)
{
    free(slots->count);
    free(slots->offset);
    *slots = (struct mics_slot_set){0};
}

enum mics_status mics_slots_init_params(const struct mics_model *model,
                                        const struct mics_plan_choice *choice,
                                        struct mics_slot_set *out, struct mics_err *err)
{
    return mics_slots_init(model, choice, choice->shape.p_param, choice->prefetch + 1, out, err);
}

enum mics_status mics_slots_init_grads(const struct mics_model *model,
                                       const struct mics_plan_choice *choice,
                                       struct mics_slot_set *out, struct mics_err *err)
{
    return mics_slots_init(model, choice, choice->shape.p_grad, choice->grad_slots, out, err);
}

uint32_t mics_slots_of_resident(const struct mics_model *model, const struct mics_slot_set *slots,
                                uint32_t unit)
{
    uint32_t slot = slots->rotating;

    for (uint32_t u = 0; u < unit; u++)
        slot += model->units[u].resident;
    return slot;
}
