/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_config.c - libFuzzer target for config.json of any family.
 *
 * Tensors of a model that is accepted must lie inside their units without overlap, aligned or
 * contiguous, and no number may have wrapped around. The model must be restored from what a plan
 * stores of it.
 *
 * sources: lib/base lib/doc lib/model lib/device/device.c lib/device/host/immediate.c kernels/host
 */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_tensor(const struct mics_tensor *tensor, uint64_t unit_count)
{
    uint64_t count = 1;

    must(tensor->name[0] != '\0' && tensor->rank >= 1 && tensor->rank <= 2);
    for (uint32_t i = 0; i < tensor->rank; i++)
        must(!__builtin_mul_overflow(count, tensor->shape[i], &count));
    must(count > 0 && count == tensor->count);
    must(tensor->offset <= unit_count && count <= unit_count - tensor->offset);
}

static void check_model(const struct mics_model *model)
{
    uint64_t total = 0;

    must(model->unit_count > 0 && model->stage_count > 0);
    for (uint32_t u = 0; u < model->unit_count; u++) {
        const struct mics_unit *unit = &model->units[u];
        uint64_t end = 0;

        must(unit->tensor_count > 0 && unit->decay_count <= unit->count);
        for (uint32_t i = 0; i < unit->tensor_count; i++) {
            const struct mics_tensor *tensor = &unit->tensors[i];

            check_tensor(tensor, unit->count);
            must(tensor->offset >= end);
            must(tensor->offset == end ||
                 tensor->offset % MICS_TENSOR_ALIGN == 0); /* or contiguous */
            end = tensor->offset + tensor->count;
            must(!__builtin_add_overflow(total, tensor->count, &total));
        }
    }
    must(total == model->param_count);
    for (uint32_t i = 0; i < model->stage_count; i++)
        must(model->stages[i].unit < model->unit_count);
}

static void check_round_trip(const struct mics_model *model)
{
    json_t *stored = mics_model_to_json(model);
    struct mics_err err = {.text = ""};
    struct mics_model *again = NULL;

    must(stored && mics_model_from_json(stored, &again, &err) == MICS_OK);
    must(again->param_count == model->param_count && again->unit_count == model->unit_count);
    mics_model_free(again);
    json_decref(stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("config.json", 0);
    struct mics_err err = {.text = ""};
    struct mics_model *model = NULL;
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    if (mics_model_open(path, &model, &err) == MICS_OK) {
        check_model(model);
        check_round_trip(model);
    } else {
        must(model == NULL && err.text[0] != '\0');
    }
    mics_model_free(model);
    close(fd);
    return 0;
}
