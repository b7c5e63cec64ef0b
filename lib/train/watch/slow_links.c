/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/slow_links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Share of a step that a link must cost to be slow. */
static const double slow_cost = 0.05;
/* A slow link does not explain collectives that took less than this share of the time that their
 * bytes take on it. */
static const double explained_share = 0.5;
/* A pair, of which there is only one rate, or groups of nodes are slow below this share of what is
 * usual; of a slow node there are many rates. */
static const double slow_pair_share = 0.5;

struct mics_slow_links {
    uint32_t nodes;
    unsigned char *node_is_slow;   /* [nodes] bits MICS_SLOW_SEND and MICS_SLOW_RECEIVE */
    bool *pair_is_slow, *was_slow; /* [nodes][nodes] now, and by the judgement before */
    bool groups_are_slow;
    struct mics_slow_link *found; /* [nodes * nodes] */
    size_t count;
};

enum mics_status mics_slow_links_open(uint32_t nodes, struct mics_slow_links **out,
                                      struct mics_err *err)
{
    const size_t cells = (size_t)nodes * nodes;
    struct mics_slow_links *links = calloc(1, sizeof *links);

    *out = links;
    if (!links)
        return mics_err_nomem(err);
    links->nodes = nodes;
    links->node_is_slow = calloc(nodes, sizeof *links->node_is_slow);
    links->pair_is_slow = calloc(cells, sizeof *links->pair_is_slow);
    links->was_slow = calloc(cells, sizeof *links->was_slow);
    links->found = calloc(cells, sizeof *links->found);
    if (links->node_is_slow && links->pair_is_slow && links->was_slow && links->found)
        return MICS_OK;
    mics_slow_links_close(links);
    *out = NULL;
    return mics_err_nomem(err);
}

void mics_slow_links_close(struct mics_slow_links *links)
{
    if (!links)
        return;
    free(links->node_is_slow);
    free(links->pair_is_slow);
    free(links->was_slow);
    free(links->found);
    free(links);
}

struct mics_slow_waits mics_slow_waits_of(const struct mics_slow_window *windows, uint32_t size)
{
    struct mics_slow_waits waits = {0};

    for (int i = 0; i < MICS_SLOW_WINDOW; i++) {
        double most = 0, least = INFINITY;

        for (uint32_t rank = 0; rank < size; rank++) {
            most = fmax(most, windows[rank].steps[i].comm_s);
            least = fmin(least, windows[rank].steps[i].exposed_s);
        }
        waits.step_s += windows[0].steps[i].step_s / MICS_SLOW_WINDOW;
        waits.comm_s += most / MICS_SLOW_WINDOW;
        waits.exposed_s += least / MICS_SLOW_WINDOW;
    }
    return waits;
}

bool mics_slow_waits_are_long(const struct mics_slow_waits *waits)
{
    return waits->exposed_s > slow_cost * waits->step_s;
}

/* The most that it costs to send this many bytes at a slow rate, as a share of a step. */
static double cost_of(const struct mics_slow_waits *waits, double bytes, double rate,
                      double reference)
{
    return fmin(bytes / rate - bytes / reference, waits->exposed_s) / waits->step_s;
}

/* Name the link unless it was slow before, or costs too little. */
static bool add_found(struct mics_slow_links *links, struct mics_slow_link link, bool was_slow)
{
    if (!(link.cost > slow_cost))
        return false;
    if (!was_slow)
        links->found[links->count++] = link;
    return true;
}

static unsigned char judge_node(struct mics_slow_links *links,
                                const struct mics_pair_verdict *verdict, uint32_t node,
                                double reference, const struct mics_slow_waits *waits,
                                const double *sent_bytes)
{
    const unsigned slow = verdict->slow[node];
    const double send = verdict->send[node], receive = verdict->receive[node];
    const double rate = slow == MICS_SLOW_SEND      ? send
                        : slow == MICS_SLOW_RECEIVE ? receive
                                                    : fmin(send, receive);

    if (slow == 0 || explained_share * sent_bytes[node] / rate > waits->comm_s)
        return 0;
    const struct mics_slow_link link = {
        .direction = slow == MICS_SLOW_SEND      ? MICS_SLOW_SENDING
                     : slow == MICS_SLOW_RECEIVE ? MICS_SLOW_RECEIVING
                                                 : MICS_SLOW_BOTH,
        .node = node,
        .rate = rate,
        .others_rate = reference,
        .cost = cost_of(waits, sent_bytes[node], rate, reference),
    };
    return add_found(links, link, (slow & ~(unsigned)links->node_is_slow[node]) == 0)
               ? (unsigned char)slow
               : 0;
}

/* Which bytes use a pair depends on the algorithm of the collective; at most all that its sender
 * sends, and of two nodes all. */
static bool judge_pair(struct mics_slow_links *links, const struct mics_slow_pair *pair,
                       double reference, const struct mics_slow_waits *waits,
                       const double *sent_bytes)
{
    const double bytes = sent_bytes[pair->from];
    const struct mics_slow_link link = {
        .direction = MICS_SLOW_PAIR,
        .node = pair->from,
        .other = pair->to,
        .rate = pair->rate,
        .others_rate = reference,
        .cost = cost_of(waits, bytes, pair->rate, reference),
    };

    if (pair->rate > slow_pair_share * reference)
        return false;
    if (links->nodes == 2 && explained_share * bytes / pair->rate > waits->comm_s)
        return false;
    return add_found(links, link, links->was_slow[pair->from * links->nodes + pair->to]);
}

static bool judge_groups(struct mics_slow_links *links, const struct mics_pair_verdict *verdict,
                         double reference, const struct mics_slow_waits *waits,
                         const double *sent_bytes)
{
    struct mics_slow_link link = {.direction = MICS_SLOW_GROUPS, .others_rate = reference};

    while (verdict->group[link.other] == verdict->group[0])
        link.other++;
    for (uint32_t i = 0; i < verdict->pair_count; i++)
        link.rate = fmax(link.rate, verdict->pairs[i].rate);
    link.cost = cost_of(waits, sent_bytes[0], link.rate, reference);
    return link.rate < slow_pair_share * reference &&
           add_found(links, link, links->groups_are_slow);
}

size_t mics_slow_links_judge(struct mics_slow_links *links, const struct mics_pair_verdict *verdict,
                             double reference, const struct mics_slow_waits *waits,
                             const double *sent_bytes, const struct mics_slow_link **out)
{
    const size_t cells = (size_t)links->nodes * links->nodes;

    *out = links->found;
    links->count = 0;
    for (uint32_t node = 0; node < links->nodes; node++) {
        links->node_is_slow[node] = judge_node(links, verdict, node, reference, waits, sent_bytes);
    }
    memcpy(links->was_slow, links->pair_is_slow, cells * sizeof *links->was_slow);
    memset(links->pair_is_slow, false, cells * sizeof *links->pair_is_slow);
    for (uint32_t i = 0; i < verdict->pair_count && !verdict->group; i++) {
        const struct mics_slow_pair *pair = &verdict->pairs[i];

        if (judge_pair(links, pair, reference, waits, sent_bytes))
            links->pair_is_slow[pair->from * links->nodes + pair->to] = true;
    }
    links->groups_are_slow =
        verdict->group && judge_groups(links, verdict, reference, waits, sent_bytes);
    return links->count;
}
