/* SPDX-License-Identifier: Apache-2.0 */
/* bench_baseline.c - this run against an earlier one, case by case. */
#include "bench/doc.h"
#include "bench/stats.h"

#include <math.h>

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
    const double times = before->median_s > 0 ? now->median_s / before->median_s : 1e9;
    json_t *entry = json_pack("{s:s, s:s, s:s, s:I, s:b, s:f, s:f, s:f}", "op",
                              mics_bench_op_name(now->op), "algo", mics_bench_algo_name(now->algo),
                              "group", mics_bench_group_name(now->group), "bytes",
                              (json_int_t)now->bytes, "in_place", (int)now->in_place, "before_s",
                              before->median_s, "now_s", now->median_s, "times_slower", times);

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
    enum mics_status status = list ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_bench_from_doc(old, &before, err);
    if (status == MICS_OK)
        status = mics_bench_from_doc(doc, &now, err);
    if (status == MICS_OK)
        status = list_regressions(&now, &before, list, err);
    if (status == MICS_OK && json_object_set(doc, "regressions", list) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        *count = json_array_size(list);
    json_decref(list);
    mics_bench_result_fini(&before);
    mics_bench_result_fini(&now);
    return status;
}
