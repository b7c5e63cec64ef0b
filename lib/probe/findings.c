/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - measure, judge, and measure again while somebody is suspected. */
#include "probe/findings.h"

#include <stdlib.h>

enum { ROUNDS = 3 };

static double median_rate(const struct mics_rates *rates, uint32_t count, bool memory,
                          double *scratch)
{
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = memory ? rates[i].memory_rate : rates[i].flops;
    return mics_median(scratch, count);
}

static enum mics_status judge_rates(const struct mics_rates *rates, struct mics_suspects *suspects,
                                    uint32_t *left, struct mics_err *err)
{
    for (uint32_t i = 0; i < suspects->count; i++) {
        suspects->times[0][i] = 1 / rates[i].best_flops;
        suspects->times[1][i] = 1 / rates[i].best_memory_rate;
    }
    return mics_suspects_judge(suspects, left, err);
}

/* suspects->times serves as scratch memory before it gets its values. */
enum mics_status mics_find_slow_ranks(const struct mics_bench *bench, double seconds,
                                      struct mics_outliers *outliers, double *flops,
                                      double *memory_rate, struct mics_err *err)
{
    const uint32_t count = bench->world->size;
    struct mics_rates *rates = calloc(count, sizeof *rates);
    struct mics_suspects suspects = {0};
    uint32_t left = 1;
    enum mics_status status =
        rates ? mics_suspects_init(&suspects, count, err) : mics_err_nomem(err);

    for (int round = 0; round < ROUNDS && left > 0 && status == MICS_OK; round++) {
        status = mics_bench_rates(bench, (1 << round) * seconds, rates, err);
        if (status != MICS_OK)
            break;
        *flops = median_rate(rates, count, false, suspects.times[0]);
        *memory_rate = median_rate(rates, count, true, suspects.times[1]);
        status = judge_rates(rates, &suspects, &left, err);
    }
    if (status == MICS_OK)
        status = mics_outliers_add_ranks(outliers, &suspects, err);
    mics_suspects_fini(&suspects);
    free(rates);
    return status;
}

static enum mics_status judge_links(const struct mics_links *links, struct mics_suspects *suspects,
                                    uint32_t *left, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (suspects->count == 0)
        status = mics_suspects_init(suspects, links->pair_count, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < links->pair_count; i++) {
        suspects->times[0][i] = links->pairs[i].small_s;
        suspects->times[1][i] = links->pairs[i].large_s;
    }
    return mics_suspects_judge(suspects, left, err);
}

enum mics_status mics_find_slow_links(const struct mics_bench *bench, enum mics_link_class class,
                                      double seconds, struct mics_outliers *outliers,
                                      struct mics_link *link, struct mics_err *err)
{
    struct mics_links links = {0};
    struct mics_suspects suspects = {0};
    uint32_t left = 1;
    enum mics_status status = MICS_OK;

    for (int round = 0; round < ROUNDS && left > 0 && status == MICS_OK; round++) {
        mics_links_fini(&links);
        status = mics_links_measure(bench, class, (1 << round) * seconds, &links, err);
        if (status == MICS_OK)
            status = judge_links(&links, &suspects, &left, err);
    }
    if (status == MICS_OK)
        status = mics_outliers_add_pairs(outliers, class, links.pairs, &suspects, err);
    if (status == MICS_OK)
        *link = links.link;
    mics_suspects_fini(&suspects);
    mics_links_fini(&links);
    return status;
}

enum mics_status mics_find_slow(const struct mics_bench *bench, double seconds,
                                struct mics_outliers *outliers, struct mics_err *err)
{
    const struct mics_world *world = bench->world;
    struct mics_link link;
    double flops, rate;
    enum mics_status status =
        mics_find_slow_ranks(bench, seconds / 8, outliers, &flops, &rate, err);

    if (status == MICS_OK && world->local_size > 1)
        status = mics_find_slow_links(bench, MICS_LINK_NODE, seconds / 3, outliers, &link, err);
    if (status == MICS_OK && world->node_count > 1)
        status = mics_find_slow_links(bench, MICS_LINK_NET, seconds / 3, outliers, &link, err);
    return status;
}
