/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values. Every element is a function of (seed, tensor id, place in the tensor) alone, so
 * that a rank can make any piece of a unit, and all cuts of a model begin from the same numbers.
 */
#include "base/num.h"
#include "base/philox.h"
#include "model/model.h"

#include "host/pool.h"

static void fill_normal(const struct mics_tensor *tensor, uint64_t first, uint64_t count,
                        uint64_t seed, float *out)
{
    mics_philox_normals(seed, tensor->id, first, count, out);
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)(tensor->std * (double)out[i]);
}

static void fill_integers(const struct mics_tensor *tensor, uint64_t first, uint64_t count,
                          uint64_t seed, float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t words[4];

        mics_philox(seed, tensor->id, first + i, words);
        out[i] = (float)(int)(words[0] % 8) - 4.0f;
    }
}

static void fill_constant(uint64_t count, float value, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = value;
}

/* Elements [first, first + count) of one tensor. */
static void fill_tensor(const struct mics_tensor *tensor, uint64_t first, uint64_t count,
                        uint64_t seed, float *out)
{
    switch (tensor->init) {
    case MICS_INIT_ZERO:
        fill_constant(count, 0.0f, out);
        break;
    case MICS_INIT_ONE:
        fill_constant(count, 1.0f, out);
        break;
    case MICS_INIT_NORMAL:
        fill_normal(tensor, first, count, seed, out);
        break;
    case MICS_INIT_INTEGER:
        fill_integers(tensor, first, count, seed, out);
        break;
    }
}

void mics_model_init_range(const struct mics_model *model, uint32_t unit, uint64_t first,
                           uint64_t count, uint64_t seed, float *out)
{
    const struct mics_unit *made = &model->units[unit];
    const uint64_t end = first + count;

    fill_constant(count, 0.0f, out);
    for (uint32_t i = 0; i < made->tensor_count; i++) {
        const struct mics_tensor *tensor = &made->tensors[i];
        const uint64_t from = mics_max_u64(first, tensor->offset);
        const uint64_t to = mics_min_u64(end, tensor->offset + tensor->count);

        if (from < to)
            fill_tensor(tensor, from - tensor->offset, to - from, seed, out + (from - first));
    }
}

struct range {
    const struct mics_model *model;
    uint32_t unit;
    uint64_t first, seed;
    float *out;
};

static void init_part(void *context, uint64_t begin, uint64_t end)
{
    const struct range *range = context;

    mics_model_init_range(range->model, range->unit, range->first + begin, end - begin, range->seed,
                          range->out + begin);
}

void mics_model_init_range_by(struct mics_pool *pool, const struct mics_model *model, uint32_t unit,
                              uint64_t first, uint64_t count, uint64_t seed, float *out)
{
    struct range range = {model, unit, first, seed, out};

    mics_pool_run(pool, count, 4096, init_part, &range);
}
