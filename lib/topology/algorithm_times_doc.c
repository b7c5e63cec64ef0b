/* SPDX-License-Identifier: Apache-2.0 */
/* races_doc.c - races to and from the topology's document. */
#include "doc/cursor.h"
#include "topology/algorithm_times.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RACES = 1024 };

/* One number of a point, which has no name. */
static enum mics_status read_number(const struct mics_cursor *point, size_t index, double *out,
                                    struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_item_any(point, index);
    const double value = json_number_value(at.value);

    if (!json_is_number(at.value) || !(value > 0) || value > 1e18)
        return mics_cursor_fail(&at, NULL, err, "expected a number above 0");
    *out = value;
    return MICS_OK;
}

static enum mics_status read_point(const struct mics_cursor *points, size_t index,
                                   struct mics_race *race, struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_item_any(points, index);
    struct mics_race_point *point = &race->points[index];
    enum mics_status status;

    if (json_array_size(at.value) != 3)
        return mics_cursor_fail(&at, NULL, err, "expected [bytes, seconds, seconds]");
    status = read_number(&at, 0, &point->bytes, err);
    if (status == MICS_OK)
        status = read_number(&at, 1, &point->flat_s, err);
    if (status == MICS_OK)
        status = read_number(&at, 2, &point->staged_s, err);
    if (status == MICS_OK && index > 0 && point->bytes <= race->points[index - 1].bytes)
        return mics_cursor_fail(&at, NULL, err, "sizes must grow from point to point");
    return status;
}

static enum mics_status read_collective(const struct mics_cursor *at, enum mics_collective *out,
                                        struct mics_err *err)
{
    const char *name;
    const enum mics_status status = mics_cursor_string(at, "collective", &name, err);

    if (status != MICS_OK)
        return status;
    *out = MICS_ALL_GATHER;
    if (strcmp(name, "all_gather") == 0)
        return MICS_OK;
    *out = MICS_REDUCE_SCATTER;
    if (strcmp(name, "reduce_scatter") == 0)
        return MICS_OK;
    return mics_cursor_fail(at, "collective", err, "'%.32s': expected all_gather or reduce_scatter",
                            name);
}

static enum mics_status read_race(const struct mics_cursor *at,
                                  const struct mics_topology *topology, struct mics_race *race,
                                  struct mics_err *err)
{
    struct mics_cursor points;
    enum mics_status status = read_collective(at, &race->collective, err);

    if (status == MICS_OK)
        status = mics_cursor_u32(at, "nodes", 1, topology->nodes, &race->nodes, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "per_node", 1, topology->per_node, &race->per_node, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "segments", 1, 1 << 16, &race->segments, err);
    if (status == MICS_OK)
        status = mics_cursor_array(at, "points", 1, MICS_RACE_POINTS, &points, err);
    if (status != MICS_OK)
        return status;
    race->count = (uint32_t)mics_cursor_count(&points);
    for (size_t i = 0; i < race->count && status == MICS_OK; i++)
        status = read_point(&points, i, race, err);
    return status;
}

enum mics_status mics_races_read(const json_t *doc, struct mics_topology *topology,
                                 struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor array, item;
    enum mics_status status;

    if (!mics_cursor_has(&root, "exchanges"))
        return MICS_OK;
    status = mics_cursor_array(&root, "exchanges", 0, MAX_RACES, &array, err);
    if (status != MICS_OK || mics_cursor_count(&array) == 0)
        return status;
    topology->race_count = (uint32_t)mics_cursor_count(&array);
    topology->races = calloc(topology->race_count, sizeof *topology->races);
    if (!topology->races)
        return mics_err_nomem(err);
    for (size_t i = 0; i < topology->race_count && status == MICS_OK; i++) {
        status = mics_cursor_item(&array, i, &item, err);
        if (status == MICS_OK)
            status = read_race(&item, topology, &topology->races[i], err);
    }
    return status;
}

/* NULL: no memory. */
static json_t *race_to_doc(const struct mics_race *race)
{
    const struct mics_race_window window = mics_race_window(race);
    json_t *points = json_array();
    bool failed = !points;

    for (uint32_t i = 0; i < race->count; i++) {
        const struct mics_race_point *point = &race->points[i];

        failed |= json_array_append_new(points, json_pack("[I, f, f]", (json_int_t)point->bytes,
                                                          point->flat_s, point->staged_s)) != 0;
    }
    if (failed) {
        json_decref(points);
        return NULL;
    }
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:o, s:o, s:o}", "collective", mics_collective_name(race->collective),
        "nodes", (int)race->nodes, "per_node", (int)race->per_node, "segments", (int)race->segments,
        "hierarchical_from_bytes",
        window.from > 0 ? json_integer((json_int_t)window.from) : json_null(),
        "hierarchical_to_bytes", window.to > 0 ? json_integer((json_int_t)window.to) : json_null(),
        "points", points);
}

enum mics_status mics_races_to_doc(const struct mics_race *races, uint32_t count, json_t **out,
                                   struct mics_err *err)
{
    json_t *array = json_array();
    bool failed = !array;

    for (uint32_t i = 0; i < count; i++)
        failed |= json_array_append_new(array, race_to_doc(&races[i])) != 0;
    if (failed) {
        json_decref(array);
        return mics_err_nomem(err);
    }
    *out = array;
    return MICS_OK;
}
