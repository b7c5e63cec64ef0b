/* SPDX-License-Identifier: Apache-2.0 */
/* links.c - a series for each phase, and one fit over the samples of all phases. */
#include "measure/links.h"
#include "measure/series.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_PHASES = 3 };

/* An edge colouring: adjacent edges have different phases. Two suffice, or three if `count` is
 * odd. */
uint32_t mics_ring_edges(uint32_t count)
{
    return count == 2 ? 1 : count;
}

uint32_t mics_ring_phases(uint32_t count)
{
    if (count == 2)
        return 1;
    return count % 2 ? 3 : 2;
}

uint32_t mics_ring_phase(uint32_t count, uint32_t edge)
{
    return count % 2 && edge == count - 1 ? 2 : edge % 2;
}

/* The ring that this rank is on. */
struct ring {
    uint32_t count, member; /* members, and this rank's number */
    uint32_t rings, index;  /* rings side by side, and the index of this rank's */
};

static struct ring ring_of(const struct mics_world *world, enum mics_link_class class)
{
    if (class == MICS_LINK_NODE)
        return (struct ring){world->local_size, world->local_rank, world->node_count, world->node};
    return (struct ring){world->node_count, world->node, world->local_size, world->local_rank};
}

static uint32_t world_rank(const struct mics_world *world, enum mics_link_class class,
                           uint32_t ring, uint32_t member)
{
    return class == MICS_LINK_NODE ? ring * world->local_size + member
                                   : member * world->local_size + ring;
}

/* The edge of this phase at this rank; UINT32_MAX if there is none. */
static uint32_t edge_of(const struct ring *ring, uint32_t phase)
{
    for (uint32_t e = 0; e < mics_ring_edges(ring->count); e++)
        if (mics_ring_phase(ring->count, e) == phase &&
            (e == ring->member || (e + 1) % ring->count == ring->member))
            return e;
    return UINT32_MAX;
}

static enum mics_status run_phase(const struct mics_bench *bench, const struct ring *ring,
                                  uint32_t phase, double budget_s, struct mics_series *out,
                                  struct mics_err *err)
{
    struct mics_comm *world = bench->comm, *comm = NULL;
    const uint32_t edge = edge_of(ring, phase);
    const bool in_pair = edge != UINT32_MAX;
    const int color = in_pair ? (int)(ring->index * ring->count + edge) : -1;
    struct mics_bench_comms pair = {0};
    enum mics_status status;

    status =
        mics_comm_split(world, color, world->rank, in_pair && ring->member != edge, &comm, err);
    if (comm)
        mics_bench_comms_init(bench, comm, 1, 2, &pair);
    if (status == MICS_OK)
        status =
            mics_series_run(bench, comm ? &pair : NULL, MICS_ALL_GATHER, 2, budget_s, out, err);
    mics_bench_comms_close(&pair);
    return status;
}

/* Half of a pair's bytes go in each direction, over a network card those of all pairs of the
 * node. */
static enum mics_status fit(const struct mics_series *series, uint32_t phases, double pairs_on_link,
                            struct mics_link *out, struct mics_err *err)
{
    struct mics_sample samples[MAX_PHASES * MICS_SERIES_MAX];
    uint32_t batches = 0;
    size_t count = 0;
    enum mics_status status;

    for (uint32_t p = 0; p < phases; p++) {
        const size_t first = count;

        for (size_t i = 0; i < series[p].count; i++) {
            samples[count] = series[p].samples[i];
            samples[count++].bytes *= pairs_on_link / 2;
        }
        count = first + mics_fit_drop_bursts(samples + first, series[p].count);
        batches += series[p].batches;
    }
    status = mics_fit_link(samples, count, out, err);
    if (status == MICS_OK)
        out->samples = batches;
    return status;
}

static void fill_pair(const struct mics_series *series, size_t large, struct mics_pair *pair)
{
    pair->small_s = fmax(series->best[0][pair->a], series->best[0][pair->b]);
    pair->large_s = fmax(series->best[large][pair->a], series->best[large][pair->b]);
}

static enum mics_status list_pairs(const struct mics_bench *bench, enum mics_link_class class,
                                   const struct mics_series *series, struct mics_links *out,
                                   struct mics_err *err)
{
    const struct mics_world *world = bench->world;
    const struct ring ring = ring_of(world, class);
    const uint32_t edges = mics_ring_edges(ring.count);
    size_t large = MICS_SERIES_MAX;

    out->pairs = calloc((size_t)ring.rings * edges, sizeof *out->pairs);
    if (!out->pairs)
        return mics_err_nomem(err);
    for (uint32_t p = 0; p < mics_ring_phases(ring.count); p++)
        large = series[p].count - 1 < large ? series[p].count - 1 : large;
    out->large_bytes = series[0].samples[large].bytes / 2;
    for (uint32_t which = 0; which < ring.rings; which++) {
        for (uint32_t e = 0; e < edges; e++) {
            struct mics_pair *pair = &out->pairs[out->pair_count++];

            pair->a = world_rank(world, class, which, e);
            pair->b = world_rank(world, class, which, (e + 1) % ring.count);
            fill_pair(&series[mics_ring_phase(ring.count, e)], large, pair);
        }
    }
    return MICS_OK;
}

enum mics_status mics_links_measure(const struct mics_bench *bench, enum mics_link_class class,
                                    double budget_s, struct mics_links *out, struct mics_err *err)
{
    const struct ring ring = ring_of(bench->world, class);
    const uint32_t phases = mics_ring_phases(ring.count);
    const double pairs_on_link = class == MICS_LINK_NET ? bench->world->local_size : 1;
    struct mics_series series[MAX_PHASES] = {{0}};
    enum mics_status status = MICS_OK;

    *out = (struct mics_links){0};
    for (uint32_t p = 0; p < phases && status == MICS_OK; p++)
        status = run_phase(bench, &ring, p, budget_s / phases, &series[p], err);
    if (status == MICS_OK)
        status = fit(series, phases, pairs_on_link, &out->link, err);
    if (status == MICS_OK)
        status = list_pairs(bench, class, series, out, err);
    for (uint32_t p = 0; p < phases; p++)
        mics_series_fini(&series[p]);
    return status;
}

void mics_links_fini(struct mics_links *links)
{
    free(links->pairs);
    *links = (struct mics_links){0};
}
