/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/ckpt_table.h"

#include "base/num.h"
#include "doc/cursor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Within these limits no product of sizes overflows. */
#define MAX_RANKS    (1u << 20)
#define MAX_SEGMENTS (1u << 12)
#define MAX_ELEMENTS ((uint64_t)1 << 42)
#define MAX_UNITS    (1u << 20)
#define MAX_TENSORS  (1u << 16)

uint32_t mics_ckpt_inner_states(uint32_t states)
{
    return states > 1 + MICS_OPTIMIZER_STATES_MAX ? states - MICS_CKPT_OUTER_STATES : states;
}

uint32_t mics_ckpt_common_states(uint32_t states, uint32_t others)
{
    const uint32_t inner = mics_ckpt_inner_states(states);
    const uint32_t other_inner = mics_ckpt_inner_states(others);

    if (states == others)
        return states;
    return inner < other_inner ? inner : other_inner;
}

const char *mics_ckpt_state_name(uint32_t states, uint32_t state)
{
    static const char *const names[] = {"param", "m", "v"};
    static const char *const outer_names[MICS_CKPT_OUTER_STATES] = {"anchor", "outer_m"};
    const uint32_t inner = mics_ckpt_inner_states(states);

    return state < inner ? names[state] : outer_names[state - inner];
}

static_assert(1 + 1 + MICS_CKPT_OUTER_STATES > 1 + MICS_OPTIMIZER_STATES_MAX,
              "the number of states says which they are");

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

struct mics_ckpt_place mics_ckpt_locate(const struct mics_ckpt_unit *unit, uint32_t parts,
                                        uint64_t element)
{
    const struct mics_layout *layout = &unit->layout;
    const uint64_t segment = element / layout->segment_count,
                   rest = element % layout->segment_count;
    const uint64_t shard = rest / layout->optim_piece, in_piece = rest % layout->optim_piece;
    const uint64_t at = segment * layout->optim_piece + in_piece;
    const uint64_t count = mics_layout_optim_shard(layout);
    const uint32_t part = part_at(count, parts, at);
    const uint64_t end = mics_ckpt_part_begin(count, parts, part + 1);

    return (struct mics_ckpt_place){.file = (unit->first_shard + (uint32_t)shard) * parts + part,
                                    .offset = at - mics_ckpt_part_begin(count, parts, part),
                                    .run = mics_min_u64(layout->optim_piece - in_piece, end - at)};
}

static uint32_t shards_of(const struct mics_layout *layout)
{
    return (uint32_t)(layout->segment_count / layout->optim_piece);
}

bool mics_ckpt_file_has(const struct mics_ckpt_table *table, const struct mics_ckpt_unit *unit,
                        uint32_t file)
{
    const uint32_t shard = file / table->parts;

    return shard >= unit->first_shard && shard - unit->first_shard < shards_of(&unit->layout);
}

static void read_sizes(const struct mics_cursor *at, struct mics_shape *shape)
{
    struct mics_err why;

    shape->p_param = mics_cursor_get_u32(at, "p_param", 1, MAX_RANKS);
    shape->p_grad = mics_cursor_get_u32(at, "p_grad", 1, MAX_RANKS);
    shape->p_optim = mics_cursor_get_u32(at, "p_optim", 1, MAX_RANKS);
    if (mics_cursor_ok(at) && mics_shape_check(shape, &why) != MICS_OK)
        mics_cursor_reject(at, NULL, "%s", why.text);
}

/* shapes[MICS_UNIT_KIND_COUNT]; without the member `experts` they are equal. */
static void read_shapes(const struct mics_cursor *root, struct mics_shape *shapes)
{
    const struct mics_cursor at = mics_cursor_get_object(root, "shape");
    struct mics_shape shape = {.nodes = mics_cursor_get_u32(&at, "nodes", 1, MAX_RANKS),
                               .per_node = mics_cursor_get_u32(&at, "per_node", 1, MAX_RANKS)};

    read_sizes(&at, &shape);
    shapes[MICS_UNIT_DENSE] = shapes[MICS_UNIT_EXPERT] = shape;
    if (mics_cursor_has(root, "experts")) {
        const struct mics_cursor experts = mics_cursor_get_object(root, "experts");

        read_sizes(&experts, &shapes[MICS_UNIT_EXPERT]);
    }
}

static uint32_t read_states(const struct mics_cursor *root)
{
    const struct mics_cursor at = mics_cursor_get_array(root, "states", 1, MICS_CKPT_STATES);
    const uint32_t states = (uint32_t)mics_cursor_count(&at);

    for (uint32_t i = 0; i < states; i++) {
        const char *name = json_string_value(json_array_get(at.value, i));

        const char *expected = mics_ckpt_state_name(states, i);

        if (!name || strcmp(name, expected) != 0)
            mics_cursor_reject(root, "states", "item %u is not \"%s\"", i, expected);
    }
    return states;
}

/* Read the member `name`, which may not be empty. */
static void read_name(const struct mics_cursor *at, char *buf, size_t size)
{
    const char *name = mics_cursor_get_string(at, "name");

    if (!*name || strlen(name) >= size)
        mics_cursor_reject(at, "name", "expected 1 to %zu bytes", size - 1);
    else
        memcpy(buf, name, strlen(name) + 1);
}

static void read_tensor(const struct mics_cursor *at, uint64_t unit_count,
                        struct mics_ckpt_tensor *tensor)
{
    uint64_t count = 1;

    read_name(at, tensor->name, sizeof tensor->name);
    tensor->offset = mics_cursor_get_u64(at, "offset", 0, unit_count);
    const struct mics_cursor shape = mics_cursor_get_array(at, "shape", 1, 2);
    tensor->rank = (uint32_t)mics_cursor_count(&shape);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_int_t size = json_integer_value(json_array_get(shape.value, i));

        if (size < 1 || (uint64_t)size > unit_count) {
            mics_cursor_reject(at, "shape", "item %u is not from 1 to the unit's count", i);
            return;
        }
        tensor->shape[i] = (uint64_t)size;
        if (count > unit_count / tensor->shape[i]) {
            mics_cursor_reject(at, "shape", "more elements than the unit has");
            return;
        }
        count *= tensor->shape[i];
    }
    if (count > unit_count - tensor->offset)
        mics_cursor_reject(at, "offset", "the tensor ends outside its unit");
}

/* Without the member `kind` a unit is cut as dense ones are. */
static enum mics_unit_kind read_kind(const struct mics_cursor *at)
{
    if (!mics_cursor_has(at, "kind"))
        return MICS_UNIT_DENSE;
    if (strcmp(mics_cursor_get_string(at, "kind"), "expert") != 0)
        mics_cursor_reject(at, "kind", "expected \"expert\"");
    return MICS_UNIT_EXPERT;
}

/* Elements of which each optimizer piece is a multiple. */
static uint32_t read_align(const struct mics_cursor *root)
{
    const uint32_t align = mics_cursor_has(root, "align")
                               ? mics_cursor_get_u32(root, "align", MICS_TENSOR_ALIGN, MICS_BLOCK)
                               : MICS_TENSOR_ALIGN;

    if (mics_cursor_ok(root) && align != MICS_TENSOR_ALIGN && align != MICS_BLOCK)
        mics_cursor_reject(root, "align", "%u: expected %d or %d", align, MICS_TENSOR_ALIGN,
                           MICS_BLOCK);
    return align;
}

static void read_unit(const struct mics_cursor *at, const struct mics_shape *shapes, uint32_t align,
                      struct mics_ckpt_unit *unit)
{
    read_name(at, unit->name, sizeof unit->name);
    unit->kind = read_kind(at);
    const uint64_t count = mics_cursor_get_u64(at, "count", 1, MAX_ELEMENTS);
    const uint64_t padded = mics_cursor_get_u64(at, "padded", 1, INT64_MAX);
    const uint32_t segments = mics_cursor_get_u32(at, "segments", 1, MAX_SEGMENTS);
    if (!mics_cursor_ok(at))
        return;
    unit->layout = mics_layout_make(&shapes[unit->kind], count, segments, align);
    if (unit->layout.padded != padded)
        mics_cursor_reject(at, "padded", "expected %llu", (unsigned long long)unit->layout.padded);

    const struct mics_cursor tensors = mics_cursor_get_array(at, "tensors", 1, MAX_TENSORS);
    unit->tensors = mics_cursor_calloc(&tensors, sizeof *unit->tensors);
    unit->tensor_count = unit->tensors ? (uint32_t)mics_cursor_count(&tensors) : 0;
    for (uint32_t i = 0; i < unit->tensor_count && mics_cursor_ok(at); i++) {
        const struct mics_cursor tensor = mics_cursor_get_item(&tensors, i);

        read_tensor(&tensor, unit->layout.count, &unit->tensors[i]);
    }
}

/* Number the shards: those of one kind after those of the other. */
static void number_shards(struct mics_ckpt_table *table)
{
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        uint32_t shards = 0;

        for (uint32_t i = 0; i < table->unit_count; i++) {
            struct mics_ckpt_unit *unit = &table->units[i];

            if (unit->kind != (enum mics_unit_kind)kind)
                continue;
            unit->first_shard = table->shard_count;
            shards = shards_of(&unit->layout);
        }
        table->shard_count += shards;
    }
}

enum mics_status mics_ckpt_table_read(const json_t *doc, struct mics_ckpt_table *out,
                                      struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    struct mics_ckpt_table table = {0};

    struct mics_shape shapes[MICS_UNIT_KIND_COUNT] = {{0}};

    read_shapes(&root, shapes);
    table.states = read_states(&root);
    table.parts = mics_cursor_get_u32(&root, "parts", 1, MAX_RANKS);
    const uint32_t align = read_align(&root);
    const struct mics_cursor units = mics_cursor_get_array(&root, "units", 1, MAX_UNITS);
    table.units = mics_cursor_calloc(&units, sizeof *table.units);
    table.unit_count = table.units ? (uint32_t)mics_cursor_count(&units) : 0;
    for (uint32_t i = 0; i < table.unit_count && mics_cursor_ok(&root); i++) {
        const struct mics_cursor unit = mics_cursor_get_item(&units, i);

        read_unit(&unit, shapes, align, &table.units[i]);
    }
    if (reading.status != MICS_OK) {
        mics_ckpt_table_free(&table);
        return reading.status;
    }
    number_shards(&table);
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
