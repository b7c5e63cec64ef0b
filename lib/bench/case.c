/* SPDX-License-Identifier: Apache-2.0 */
/* bench_case.c - names, sizes and bandwidths. */
#include "bench/case.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

static const char *const op_names[] = {"all_gather", "reduce_scatter", "all_reduce", "sync"};
static const char *const algo_names[] = {"flat", "hierarchical", "mpi", "2-hop", "1-hop"};
static const char *const group_names[] = {"world", "node", "partition", "replication", "network"};

const char *mics_bench_op_name(enum mics_bench_op op)
{
    return op_names[op];
}

const char *mics_bench_algo_name(enum mics_bench_algo algo)
{
    return algo_names[algo];
}

const char *mics_bench_group_name(enum mics_bench_group group)
{
    return group_names[group];
}

const char *mics_bench_op_at(int index)
{
    return index < MICS_BENCH_OP_COUNT ? op_names[index] : NULL;
}

const char *mics_bench_algo_at(int index)
{
    return index < MICS_BENCH_ALGO_COUNT ? algo_names[index] : NULL;
}

const char *mics_bench_group_at(int index)
{
    return index < MICS_BENCH_GROUP_COUNT ? group_names[index] : NULL;
}

static void list_names(mics_bench_namer *name_at, char *text, size_t size)
{
    size_t used = 0;

    for (int i = 0; name_at(i) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", name_at(i));
}

enum mics_status mics_bench_parse_set(const char *text, mics_bench_namer *name_at, unsigned *set,
                                      struct mics_err *err)
{
    unsigned found = 0;
    char names[128] = "";

    for (const char *word = text;; word++) {
        const size_t length = strcspn(word, ",");
        int i = 0;

        while (name_at(i) &&
               (strlen(name_at(i)) != length || strncmp(name_at(i), word, length) != 0))
            i++;
        if (!name_at(i)) {
            list_names(name_at, names, sizeof names);
            return mics_err_set(err, MICS_ERR_ARG, "'%.*s': expected some of %s",
                                (int)mics_min_u64(length, 64), word, names);
        }
        found |= 1u << i;
        word += length;
        if (!*word)
            break;
    }
    *set = found;
    return MICS_OK;
}

uint64_t mics_bench_next_size(const struct mics_bench_request *request, uint64_t bytes)
{
    const double grown = (double)bytes * request->factor;
    uint64_t next;

    if (bytes >= request->max_bytes)
        return 0;
    if (request->factor > 1)
        next = grown < 1e18 ? mics_max_u64((uint64_t)grown, bytes + 1) : UINT64_MAX;
    else if (request->step_bytes == 0 || !mics_add_u64(bytes, request->step_bytes, &next))
        return 0;
    return next <= request->max_bytes ? next : 0;
}

uint64_t mics_bench_size_count(const struct mics_bench_request *request)
{
    uint64_t count = 0;

    for (uint64_t bytes = request->min_bytes; bytes > 0 && count < UINT32_MAX;
         bytes = mics_bench_next_size(request, bytes))
        count++;
    return count;
}

uint64_t mics_bench_count(uint64_t bytes, uint32_t ranks, uint32_t segments)
{
    const uint64_t grain = 4 * (uint64_t)segments; /* elements */

    return mics_max_u64(bytes / sizeof(float) / ranks / grain, 1) * grain;
}

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
