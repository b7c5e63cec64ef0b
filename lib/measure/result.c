/* SPDX-License-Identifier: Apache-2.0 */
/* result.c - the rows of a benchmark, and the bandwidths of a row. */
#include "measure/measure_run.h"

#include <stdlib.h>

double mics_bench_algbw(const struct mics_bench_row *row)
{
    return row->time_s > 0 ? (double)row->bytes / row->time_s : 0;
}

double mics_bench_busbw(const struct mics_bench_row *row)
{
    const double m = (double)row->nodes * row->per_node, part = (m - 1) / m;
    const double algbw = mics_bench_algbw(row);

    switch (row->op) {
    case MICS_BENCH_SYNC:
        return algbw;
    case MICS_BENCH_ALL_REDUCE:
        return algbw * 2 * part;
    default:
        return algbw * part;
    }
}

struct mics_bench_row *mics_bench_result_add(struct mics_bench_result *result)
{
    if (result->count == result->capacity) {
        const size_t capacity = result->capacity ? 2 * result->capacity : 64;
        struct mics_bench_row *rows = realloc(result->rows, capacity * sizeof *rows);

        if (!rows)
            return NULL;
        result->rows = rows;
        result->capacity = capacity;
    }
    result->rows[result->count] = (struct mics_bench_row){0};
    return &result->rows[result->count++];
}

void mics_bench_result_fini(struct mics_bench_result *result)
{
    free(result->rows);
    *result = (struct mics_bench_result){0};
}
