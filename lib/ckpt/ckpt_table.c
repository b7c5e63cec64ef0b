/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/ckpt_table.h"

#include "base/num.h"
#include "doc/cursor.h"

#include <stdlib.h>
#include <string.h>

/* Within these limits no product of sizes overflows. */
#define MAX_RANKS    (1u << 20)
#define MAX_SEGMENTS (1u << 12)
#define MAX_ELEMENTS ((uint64_t)1 << 42)
#define MAX_UNITS    (1u << 20)
#define MAX_TENSORS  (1u << 16)

static const char *const state_names[MICS_CKPT_STATES] = {"param", "m", "v"};

const char *mics_ckpt_state_name(uint32_t state)
{
    return state_names[state];
}

uint64_t mics_ckpt_part_begin(uint64_t count, uint32_t parts, uint32_t part)
{
    return count / parts * part + count % parts * part / parts;
}

/* The part that contains element `at` of a shard. The estimate in floating point is at most one
 * off. */
static uint32_t part_at(uint64_t count, uint32_t parts, uint64_t at)
{
    uint32_t part =
        (uint32_t)mics_min_u64((uint64_t)((double)at / (double)count * parts), parts - 1);

    while (part > 0 && mics_ckpt_part_begin(count, parts, part) > at)
        part--;
    while (mics_ckpt_part_begin(count, parts, part + 1) <= at)
        part++;
    return part;
}

struct mics_ckpt_place mics_ckpt_locate(const struct mics_layout *layout, uint32_t parts,
                                        uint64_t element)
{
    const uint64_t segment = element / layout->segment_count,
                   rest = element % layout->segment_count;
    const uint64_t shard = rest / layout->optim_piece, in_piece = rest % layout->optim_piece;
    const uint64_t at = segment * layout->optim_piece + in_piece;
    const uint64_t count = mics_layout_optim_shard(layout);
    const uint32_t part = part_at(count, parts, at);
    const uint64_t end = mics_ckpt_part_begin(count, parts, part + 1);

    return (struct mics_ckpt_place){.file = (uint32_t)shard * parts + part,
                                    .offset = at - mics_ckpt_part_begin(count, parts, part),
                                    .run = mics_min_u64(layout->optim_piece - in_piece, end - at)};
}

static enum mics_status read_shape(const struct mics_cursor *root, struct mics_shape *shape,
                                   struct mics_err *err)
{
    struct mics_cursor at;
    const struct {
        const char *key;
        uint32_t *value;
    } fields[] = {
        {"nodes", &shape->nodes},   {"per_node", &shape->per_node}, {"p_param", &shape->p_param},
        {"p_grad", &shape->p_grad}, {"p_optim", &shape->p_optim},
    };
    enum mics_status status = mics_cursor_object(root, "shape", &at, err);

    for (size_t i = 0; status == MICS_OK && i < sizeof fields / sizeof *fields; i++)
        status = mics_cursor_u32(&at, fields[i].key, 1, MAX_RANKS, fields[i].value, err);
    if (status == MICS_OK && mics_shape_check(shape, err) != MICS_OK) {
        mics_err_prefix(err, "shape");
        status = MICS_ERR_FORMAT;
    }
    return status;
}

static enum mics_status read_states(const struct mics_cursor *root, uint32_t *states,
                                    struct mics_err *err)
{
    struct mics_cursor at;
    enum mics_status status = mics_cursor_array(root, "states", 1, MICS_CKPT_STATES, &at, err);

    if (status != MICS_OK)
        return status;
    *states = (uint32_t)mics_cursor_count(&at);
    for (uint32_t i = 0; i < *states; i++) {
        const char *name = json_string_value(json_array_get(at.value, i));

        if (!name || strcmp(name, mics_ckpt_state_name(i)) != 0)
            return mics_cursor_fail(root, "states", err, "item %u is not \"%s\"", i,
                                    mics_ckpt_state_name(i));
    }
    return MICS_OK;
}

/* Read the member `name`; MICS_ERR_FORMAT if it is empty or does not fit. */
static enum mics_status read_name(const struct mics_cursor *at, char *buf, size_t size,
                                  struct mics_err *err)
{
    const char *name = NULL;
    enum mics_status status = mics_cursor_string(at, "name", &name, err);

    if (status != MICS_OK)
        return status;
    if (!*name || strlen(name) >= size)
        return mics_cursor_fail(at, "name", err, "expected 1 to %zu bytes", size - 1);
    memcpy(buf, name, strlen(name) + 1);
    return MICS_OK;
}

static enum mics_status read_tensor(const struct mics_cursor *at, uint64_t unit_count,
                                    struct mics_ckpt_tensor *tensor, struct mics_err *err)
{
    struct mics_cursor shape;
    uint64_t count = 1;
    enum mics_status status = read_name(at, tensor->name, sizeof tensor->name, err);

    if (status == MICS_OK)
        status = mics_cursor_u64(at, "offset", 0, unit_count, &tensor->offset, err);
    if (status == MICS_OK)
        status = mics_cursor_array(at, "shape", 1, 2, &shape, err);
    if (status != MICS_OK)
        return status;
    tensor->rank = (uint32_t)mics_cursor_count(&shape);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_int_t size = json_integer_value(json_array_get(shape.value, i));

        if (size < 1 || (uint64_t)size > unit_count)
            return mics_cursor_fail(at, "shape", err, "item %u is not from 1 to the unit's count",
                                    i);
        tensor->shape[i] = (uint64_t)size;
        if (count > unit_count / tensor->shape[i])
            return mics_cursor_fail(at, "shape", err, "more elements than the unit has");
        count *= tensor->shape[i];
    }
    return count <= unit_count - tensor->offset
               ? MICS_OK
               : mics_cursor_fail(at, "offset", err, "the tensor ends outside its unit");
}

static enum mics_status read_tensors(const struct mics_cursor *at, struct mics_ckpt_unit *unit,
                                     struct mics_err *err)
{
    struct mics_cursor tensors, tensor;
    enum mics_status status = mics_cursor_array(at, "tensors", 1, MAX_TENSORS, &tensors, err);

    if (status != MICS_OK)
        return status;
    unit->tensors = calloc(mics_cursor_count(&tensors), sizeof *unit->tensors);
    if (!unit->tensors)
        return mics_err_nomem(err);
    unit->tensor_count = (uint32_t)mics_cursor_count(&tensors);
    for (uint32_t i = 0; status == MICS_OK && i < unit->tensor_count; i++) {
        status = mics_cursor_item(&tensors, i, &tensor, err);
        if (status == MICS_OK)
            status = read_tensor(&tensor, unit->layout.count, &unit->tensors[i], err);
    }
    return status;
}

static enum mics_status read_unit(const struct mics_cursor *at, const struct mics_shape *shape,
                                  struct mics_ckpt_unit *unit, struct mics_err *err)
{
    uint64_t count = 0, padded = 0;
    uint32_t segments = 0;
    enum mics_status status = read_name(at, unit->name, sizeof unit->name, err);

    if (status == MICS_OK)
        status = mics_cursor_u64(at, "count", 1, MAX_ELEMENTS, &count, err);
    if (status == MICS_OK)
        status = mics_cursor_u64(at, "padded", 1, INT64_MAX, &padded, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "segments", 1, MAX_SEGMENTS, &segments, err);
    if (status != MICS_OK)
        return status;
    unit->layout = mics_layout_make(shape, count, segments);
    if (unit->layout.padded != padded)
        return mics_cursor_fail(at, "padded", err, "expected %llu",
                                (unsigned long long)unit->layout.padded);
    return read_tensors(at, unit, err);
}

static enum mics_status read_units(const struct mics_cursor *root, struct mics_ckpt_table *table,
                                   struct mics_err *err)
{
    struct mics_cursor units, unit;
    enum mics_status status = mics_cursor_array(root, "units", 1, MAX_UNITS, &units, err);

    if (status != MICS_OK)
        return status;
    table->units = calloc(mics_cursor_count(&units), sizeof *table->units);
    if (!table->units)
        return mics_err_nomem(err);
    table->unit_count = (uint32_t)mics_cursor_count(&units);
    for (uint32_t i = 0; status == MICS_OK && i < table->unit_count; i++) {
        status = mics_cursor_item(&units, i, &unit, err);
        if (status == MICS_OK)
            status = read_unit(&unit, &table->shape, &table->units[i], err);
    }
    return status;
}

enum mics_status mics_ckpt_table_read(const json_t *doc, struct mics_ckpt_table *out,
                                      struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_ckpt_table table = {0};
    enum mics_status status = read_shape(&root, &table.shape, err);

    if (status == MICS_OK)
        status = read_states(&root, &table.states, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(&root, "parts", 1, MAX_RANKS, &table.parts, err);
    if (status == MICS_OK)
        status = read_units(&root, &table, err);
    if (status != MICS_OK) {
        mics_ckpt_table_free(&table);
        return status;
    }
    *out = table;
    return MICS_OK;
}

void mics_ckpt_table_free(struct mics_ckpt_table *table)
{
    for (uint32_t i = 0; i < table->unit_count; i++)
        free(table->units[i].tensors);
    free(table->units);
    *table = (struct mics_ckpt_table){0};
}

int64_t mics_ckpt_table_find(const struct mics_ckpt_table *table, const char *unit)
{
    for (uint32_t i = 0; i < table->unit_count; i++)
        if (strcmp(table->units[i].name, unit) == 0)
            return i;
    return -1;
}
