/* SPDX-License-Identifier: Apache-2.0 */
/* measure_doc.c - rows to and from the document, by one table of members; and regressions between
 * two. */
#include "measure/measure_doc.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "measure/statistics.h"

#include <math.h>
#include <string.h>

enum { MAX_ROWS = 100000 };

/* Members by name, and their offsets in struct mics_bench_row. */
struct member {
    const char *key;
    size_t offset;
};

static const struct member numbers[] = {
    {"nodes", offsetof(struct mics_bench_row, nodes)},
    {"per_node", offsetof(struct mics_bench_row, per_node)},
    {"groups", offsetof(struct mics_bench_row, groups)},
    {"segments", offsetof(struct mics_bench_row, segments)},
    {"iters", offsetof(struct mics_bench_row, iters)},
};

static const struct member times[] = {
    {"time_s", offsetof(struct mics_bench_row, time_s)},
    {"min_s", offsetof(struct mics_bench_row, min_s)},
    {"median_s", offsetof(struct mics_bench_row, median_s)},
    {"p99_s", offsetof(struct mics_bench_row, p99_s)},
    {"spread_s", offsetof(struct mics_bench_row, spread_s)},
    {"slowest_s", offsetof(struct mics_bench_row, slowest_s)},
};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static void put(json_t *object, const char *key, json_t *value, bool *failed)
{
    *failed |= json_object_set_new(object, key, value) != 0;
}

static json_t *row_to_doc(const struct mics_bench_row *row)
{
    json_t *object = json_object();
    bool failed = !object;

    put(object, "op", json_string(mics_bench_op_name(row->op)), &failed);
    put(object, "algo", json_string(mics_bench_algo_name(row->algo)), &failed);
    put(object, "group", json_string(mics_bench_group_name(row->group)), &failed);
    put(object, "in_place", json_boolean(row->in_place), &failed);
    put(object, "bytes", json_integer((json_int_t)row->bytes), &failed);
    put(object, "count", json_integer((json_int_t)row->count), &failed);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        put(object, numbers[i].key,
            json_integer(*(const uint32_t *)((const char *)row + numbers[i].offset)), &failed);
    for (size_t i = 0; i < COUNT_OF(times); i++)
        put(object, times[i].key, json_real(*(const double *)((const char *)row + times[i].offset)),
            &failed);
    put(object, "slowest_rank", json_integer(row->slowest_rank), &failed);
    put(object, "algbw_bytes_per_s", json_real(mics_bench_algbw(row)), &failed);
    put(object, "busbw_bytes_per_s", json_real(mics_bench_busbw(row)), &failed);
    put(object, "wrong", row->checked ? json_integer((json_int_t)row->wrong) : json_null(),
        &failed);
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static void put_world(json_t *doc, const struct mics_world *world, bool *failed)
{
    json_t *hosts = json_array();

    for (uint32_t i = 0; i < world->node_count; i++)
        *failed |= json_array_append_new(hosts, json_string(world->host_of_node[i])) != 0;
    put(doc, "nodes", json_integer(world->node_count), failed);
    put(doc, "per_node", json_integer(world->local_size), failed);
    put(doc, "hosts", hosts, failed);
    put(doc, "declared_nodes", json_boolean(world->declared), failed);
}

enum mics_status mics_bench_to_doc(const struct mics_world *world,
                                   const struct mics_bench_request *request,
                                   const struct mics_bench_result *result, json_t **out,
                                   struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_BENCH_KIND, MICS_BENCH_VERSION), *rows = json_array();
    bool failed = !doc;

    put_world(doc, world, &failed);
    put(doc, "device", json_string(result->device), &failed);
    put(doc, "transport", json_string(result->transport), &failed);
    put(doc, "iters", json_integer(request->iters), &failed);
    put(doc, "warmup", json_integer(request->warmup), &failed);
    put(doc, "micro_steps", json_integer(request->micro_steps), &failed);
    if (request->partition > 0)
        put(doc, "partition", json_integer(request->partition), &failed);
    for (size_t i = 0; i < result->count; i++)
        failed |= json_array_append_new(rows, row_to_doc(&result->rows[i])) != 0;
    put(doc, "rows", rows, &failed);
    if (failed) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}

/* The index of a name in its list. */
static int read_name(const struct mics_cursor *at, const char *key, mics_bench_namer *name_at)
{
    const char *name = mics_cursor_get_string(at, key);

    for (int i = 0; name_at(i); i++)
        if (strcmp(name_at(i), name) == 0)
            return i;
    mics_cursor_reject(at, key, "'%.32s' is unknown", name);
    return 0;
}

static void read_row(const struct mics_cursor *at, struct mics_bench_row *row)
{
    row->op = (enum mics_bench_op)read_name(at, "op", mics_bench_op_at);
    row->algo = (enum mics_bench_algo)read_name(at, "algo", mics_bench_algo_at);
    row->group = (enum mics_bench_group)read_name(at, "group", mics_bench_group_at);
    row->in_place = mics_cursor_get_bool(at, "in_place");
    row->bytes = mics_cursor_get_u64(at, "bytes", 1, (uint64_t)1 << 60);
    row->count = mics_cursor_get_u64(at, "count", 1, (uint64_t)1 << 60);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        *(uint32_t *)((char *)row + numbers[i].offset) =
            mics_cursor_get_u32(at, numbers[i].key, 1, UINT32_MAX);
    for (size_t i = 0; i < COUNT_OF(times); i++)
        *(double *)((char *)row + times[i].offset) =
            mics_cursor_get_double(at, times[i].key, 0, 1e9);
    row->slowest_rank = mics_cursor_get_u32(at, "slowest_rank", 0, UINT32_MAX);
    row->checked = mics_cursor_has(at, "wrong");
    row->wrong = mics_cursor_opt_u64(at, "wrong", 0, INT64_MAX, 0);
}

enum mics_status mics_bench_from_doc(const json_t *doc, struct mics_bench_result *out,
                                     struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);

    *out = (struct mics_bench_result){0};
    reading.status = mics_doc_expect(doc, MICS_BENCH_KIND, MICS_BENCH_VERSION, err);
    const struct mics_cursor rows = mics_cursor_get_array(&root, "rows", 0, MAX_ROWS);
    for (size_t i = 0; i < mics_cursor_count(&rows) && mics_cursor_ok(&root); i++) {
        struct mics_bench_row *row = mics_bench_result_add(out);
        const struct mics_cursor item = mics_cursor_get_item(&rows, i);

        if (row)
            read_row(&item, row);
        else
            reading.status = mics_err_nomem(err);
    }
    if (reading.status != MICS_OK)
        mics_bench_result_fini(out);
    return reading.status;
}

static const double growth = 1.1;

static bool same_case(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->algo == b->algo && a->group == b->group && a->bytes == b->bytes &&
           a->in_place == b->in_place && a->nodes == b->nodes && a->per_node == b->per_node &&
           a->groups == b->groups;
}

static const struct mics_bench_row *find(const struct mics_bench_result *old,
                                         const struct mics_bench_row *row)
{
    for (size_t i = 0; i < old->count; i++)
        if (same_case(&old->rows[i], row))
            return &old->rows[i];
    return NULL;
}

static bool is_slower(const struct mics_bench_row *now, const struct mics_bench_row *before)
{
    const double grown = now->median_s - before->median_s;

    if (now->median_s <= growth * before->median_s || now->min_s <= before->median_s)
        return false;
    return now->min_s > before->p99_s ||
           grown > MICS_SLOW_MADS * fmax(now->spread_s, before->spread_s);
}

static bool add_regression(json_t *list, const struct mics_bench_row *now,
                           const struct mics_bench_row *before)
{
    const double ratio = before->median_s > 0 ? now->median_s / before->median_s : 1e9;
    json_t *entry = json_pack("{s:s, s:s, s:s, s:I, s:b, s:f, s:f, s:f}", "op",
                              mics_bench_op_name(now->op), "algo", mics_bench_algo_name(now->algo),
                              "group", mics_bench_group_name(now->group), "bytes",
                              (json_int_t)now->bytes, "in_place", (int)now->in_place, "before_s",
                              before->median_s, "now_s", now->median_s, "times_slower", ratio);

    return json_array_append_new(list, entry) == 0;
}

static enum mics_status list_regressions(const struct mics_bench_result *now,
                                         const struct mics_bench_result *old, json_t *list,
                                         struct mics_err *err)
{
    size_t common = 0;

    for (size_t i = 0; i < now->count; i++) {
        const struct mics_bench_row *before = find(old, &now->rows[i]);

        common += before != NULL;
        if (before && is_slower(&now->rows[i], before) &&
            !add_regression(list, &now->rows[i], before))
            return mics_err_nomem(err);
    }
    if (common == 0)
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "has no case in common with this run");
    return MICS_OK;
}

enum mics_status mics_bench_compare(json_t *doc, const json_t *old, size_t *count,
                                    struct mics_err *err)
{
    struct mics_bench_result before = {0}, now = {0};
    json_t *list = json_array();
    enum mics_status status = mics_bench_from_doc(old, &before, err);

    if (status != MICS_OK)
        goto out;
    status = mics_bench_from_doc(doc, &now, err);
    if (status != MICS_OK)
        goto out;
    status = list ? list_regressions(&now, &before, list, err) : mics_err_nomem(err);
    if (status == MICS_OK && json_object_set(doc, "regressions", list) != 0)
        status = mics_err_nomem(err);
    *count = json_array_size(list);
out:
    json_decref(list);
    mics_bench_result_fini(&before);
    mics_bench_result_fini(&now);
    return status;
}
