/* SPDX-License-Identifier: Apache-2.0 */
/* operation_update.h - the optimizers, and the norm of their gradients. */
#ifndef MICS_TESTS_GPU_OPERATION_UPDATE_H
#define MICS_TESTS_GPU_OPERATION_UPDATE_H

#include "operation.h"

#include <math.h>

/* What an optimizer works on. */
struct slice {
    struct update_case is;
    struct tensor param, first, second, grad, copy;
    struct mics_args_scalars scalars, *sent;
    struct mics_loss_scale scale, *sent_scale; /* where there is a copy */
};

static struct slice slice_new(struct suite *suite, enum mics_optimizer optimizer,
                              const struct update_case *c, struct mics_args_scalars scalars,
                              enum mics_dtype copy_dtype)
{
    struct slice s = {.is = *c, .scalars = scalars, .scale = {.factor = 8, .used = 0.5}};

    s.param = case_random(suite, "param", MICS_F32, c->count, 1, 1, c->shift);
    s.first = case_random(suite, "first", MICS_F32, c->count, 0.1f, 2, c->shift);
    s.grad = case_random(suite, "grad", MICS_F32, c->count, 9, 4, c->shift);
    if (c->copy)
        s.copy = case_output(suite, "copy", copy_dtype, c->count, c->shift);
    s.sent = case_bytes(suite, "scalars", &s.scalars, sizeof s.scalars, 0);
    if (c->copy)
        s.sent_scale = case_bytes(suite, "scale", &s.scale, sizeof s.scale, 0);
    if (mics_optimizer_states(optimizer) > 1) {
        s.second = case_random(suite, "second", MICS_F32, c->count, 0.1f, 3, c->shift);
        for (size_t i = 0; i < c->count; i++) /* a second moment is not negative */
            s.second.values[i] = fabsf(s.second.values[i]);
        case_send(suite, &s.second);
    }
    return s;
}

static struct mics_args_update update_of(enum mics_optimizer optimizer, const struct slice *s,
                                         float clip, bool device)
{
    return (struct mics_args_update){.optimizer = optimizer,
                                     .step = 7,
                                     .param = AT(s->param),
                                     .state = {AT(s->first), AT(s->second)},
                                     .copy = PLACE(s->copy.device, NULL),
                                     .grad = AT(s->grad),
                                     .scalars = PLACE(s->sent, &s->scalars),
                                     .count = s->is.count,
                                     .decay_count = s->is.decay_count,
                                     .lr = optimizer == MICS_OPT_SGD ? 1e-2f : 1e-3f,
                                     .settings = {.beta1 = 0.9f,
                                                  .beta2 = 0.95f,
                                                  .eps = 1e-8f,
                                                  .momentum = 0.9f,
                                                  .weight_decay = 0.1f,
                                                  .clip = clip},
                                     .copy_f16 = s->copy.dtype == MICS_F16,
                                     .loss_scale =
                                         s->is.copy ? PLACE(s->sent_scale, &s->scale) : NULL};
}

/* Steps of 1e-3 in size: 3e-7 of 1 is 3e-4 of a step. */
static void update_case_to(struct suite *suite, enum mics_optimizer optimizer,
                           const struct update_case *c, struct mics_args_scalars scalars,
                           float clip, enum mics_dtype copy_dtype)
{
    struct slice s;

    case_begin(suite, 0, "%s_%s%s", mics_optimizer_name(optimizer), c->name ? c->name : "",
               copy_dtype == MICS_F16 ? "_f16" : "");
    s = slice_new(suite, optimizer, c, scalars, copy_dtype);
    OPERATION_OF(suite, update, update_of(optimizer, &s, clip, device));
    case_expect(suite, &s.param, 3e-7);
    case_expect(suite, &s.first, 3e-7);
    if (s.second.device)
        case_expect(suite, &s.second, 3e-7);
    if (c->copy)
        case_expect_copy(suite, &s.copy, &s.param, 3e-7);
    case_end(suite);
}

/* With a copy, in both types. */
static void update_case(struct suite *suite, enum mics_optimizer optimizer,
                        const struct update_case *c, struct mics_args_scalars scalars, float clip)
{
    update_case_to(suite, optimizer, c, scalars, clip, MICS_BF16);
    if (c->copy)
        update_case_to(suite, optimizer, c, scalars, clip, MICS_F16);
}

/* One step of fp16's loss scale, equal to the bit. */
static inline void loss_scale_case(struct suite *suite, const char *name,
                                   struct mics_loss_scale state, struct mics_args_scalars scalars,
                                   bool drains, bool counts)
{
    struct mics_loss_scale *sent;
    struct mics_args_scalars *sent_scalars;

    case_begin(suite, 0, "loss_scale_%s", name);
    sent = case_bytes(suite, "state", &state, sizeof state, 0);
    sent_scalars = case_bytes(suite, "scalars", &scalars, sizeof scalars, 0);
    OPERATION(suite, loss_scale, PLACE(sent, &state), PLACE(sent_scalars, &scalars), 2, 0.25, 16, 3,
              2, drains, counts);
    case_expect_bytes(suite, sent, &state, sizeof state);
    case_expect_bytes(suite, sent_scalars, &scalars, sizeof scalars);
    case_end(suite);
}

/* All ways in which it moves. */
static inline void loss_scale_cases(struct suite *suite)
{
    const struct mics_args_scalars good = {.targets = 8, .squared_norm = 3},
                                   bad_norm = {.targets = 8, .squared_norm = INFINITY},
                                   bad_loss = {.targets = 8, .loss_sum = NAN};

    loss_scale_case(suite, "clean", (struct mics_loss_scale){.factor = 4, .patience = 1}, good,
                    false, false);
    loss_scale_case(suite, "rises",
                    (struct mics_loss_scale){.factor = 4, .patience = 1, .clean = 2}, good, false,
                    true);
    loss_scale_case(suite, "drains",
                    (struct mics_loss_scale){.factor = 4, .patience = 1, .clean = 2}, good, true,
                    false);
    loss_scale_case(suite, "most",
                    (struct mics_loss_scale){.factor = 16, .patience = 1, .clean = 2}, good, false,
                    false);
    loss_scale_case(suite, "waits",
                    (struct mics_loss_scale){.factor = 4, .patience = 2, .clean = 2}, bad_norm,
                    false, true);
    loss_scale_case(suite, "falls",
                    (struct mics_loss_scale){.factor = 4, .patience = 1, .overflows = 7}, bad_loss,
                    true, false);
    loss_scale_case(suite, "least", (struct mics_loss_scale){.factor = 0.25, .patience = 1},
                    bad_norm, false, true);
}

#endif
