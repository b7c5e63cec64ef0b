/* SPDX-License-Identifier: Apache-2.0 */
#include "optimizer.h"

#include <string.h>

static const struct mics_optimizer_row rows[MICS_OPT_COUNT] = {
    [MICS_OPT_ADAMW] = {.name = "adamw",
                        .title = "AdamW",
                        .states = 2,
                        .flops = 12,
                        .defaults = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9},
                        .ignored = {"momentum"}},
    [MICS_OPT_SGD] = {.name = "sgd",
                      .title = "SGD with momentum",
                      .states = 1,
                      .flops = 5,
                      .defaults = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9},
                      .ignored = {"beta1", "beta2", "eps"}},
    [MICS_OPT_LION] = {.name = "lion",
                       .title = "Lion",
                       .states = 1,
                       .flops = 8,
                       .defaults = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .momentum = 0.9},
                       .ignored = {"eps", "momentum"}},
};

const struct mics_optimizer_row *mics_optimizer_get(enum mics_optimizer optimizer)
{
    return &rows[optimizer];
}

bool mics_optimizer_parse(const char *name, enum mics_optimizer *out)
{
    for (int i = 0; i < MICS_OPT_COUNT; i++)
        if (strcmp(name, rows[i].name) == 0) {
            *out = (enum mics_optimizer)i;
            return true;
        }
    return false;
}
