/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rope_scaling.h"

#include "model/config.h"

#include <string.h>

#define MAX_FACTOR 1e6

static const char *const kinds[] = {
    [MICS_ROPE_PLAIN] = "default", [MICS_ROPE_LINEAR] = "linear", [MICS_ROPE_LLAMA3] = "llama3"};

json_t *mics_rope_scaling_to_json(const struct mics_rope_scaling *scaling)
{
    const char *const kind = kinds[scaling->kind];

    if (scaling->kind == MICS_ROPE_PLAIN)
        return json_pack("{s:s}", "rope_type", kind);
    if (scaling->kind == MICS_ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", kind, "factor", scaling->factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", kind, "factor", scaling->factor,
                     "low_freq_factor", scaling->low_freq_factor, "high_freq_factor",
                     scaling->high_freq_factor, "original_max_position_embeddings",
                     (json_int_t)scaling->original_positions);
}

static enum mics_status read_kind(const struct mics_cursor *map, enum mics_rope_kind *out,
                                  struct mics_err *err)
{
    const char *const key = mics_cursor_has(map, "rope_type") ? "rope_type" : "type";
    enum mics_status status;
    const char *text;

    *out = MICS_ROPE_PLAIN;
    if (!mics_cursor_has(map, key))
        return MICS_OK;
    status = mics_cursor_string(map, key, &text, err);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(text, kinds[i]) == 0) {
            *out = (enum mics_rope_kind)i;
            return MICS_OK;
        }
    return mics_cursor_fail(map, key, err,
                            "'%s' is not supported, only 'default', 'linear' and 'llama3'", text);
}

static enum mics_status read_llama3(const struct mics_cursor *map, struct mics_rope_scaling *out,
                                    struct mics_err *err)
{
    enum mics_status status =
        mics_cursor_double(map, "low_freq_factor", 1e-6, MAX_FACTOR, &out->low_freq_factor, err);

    if (status == MICS_OK)
        status = mics_cursor_double(map, "high_freq_factor", 1e-6, MAX_FACTOR,
                                    &out->high_freq_factor, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(map, "original_max_position_embeddings", 1, MICS_MAX_POSITIONS,
                                 &out->original_positions, err);
    if (status == MICS_OK && out->high_freq_factor <= out->low_freq_factor)
        status =
            mics_cursor_fail(map, "high_freq_factor", err, "%g is not above low_freq_factor, %g",
                             out->high_freq_factor, out->low_freq_factor);
    return status;
}

enum mics_status mics_rope_scaling_read(const struct mics_cursor *map,
                                        struct mics_rope_scaling *out, struct mics_err *err)
{
    enum mics_status status;

    *out = (struct mics_rope_scaling){.kind = MICS_ROPE_PLAIN};
    status = read_kind(map, &out->kind, err);
    if (status == MICS_OK && out->kind != MICS_ROPE_PLAIN)
        status = mics_cursor_double(map, "factor", 1, MAX_FACTOR, &out->factor, err);
    if (status == MICS_OK && out->kind == MICS_ROPE_LLAMA3)
        status = read_llama3(map, out, err);
    return status;
}

static bool same(double a, double b)
{
    return a <= b && a >= b;
}

bool mics_rope_scaling_equal(const struct mics_rope_scaling *a, const struct mics_rope_scaling *b)
{
    return a->kind == b->kind && a->original_positions == b->original_positions &&
           same(a->factor, b->factor) && same(a->low_freq_factor, b->low_freq_factor) &&
           same(a->high_freq_factor, b->high_freq_factor);
}
