/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.h - which nodes, or links between nodes, are slow? Pairs measured at the same time, in few
 * rounds, and a verdict.
 *
 * In a round each node has one partner; both directions are measured one after the other. There
 * are about 2 log2(n) rounds, and no pair twice. What a node can send is the best that it has sent
 * to any partner, likewise for what it receives: a good node has a good partner, and disturbances
 * only make rates lower. So a node is slow only if it is slow with all its partners, and a pair is
 * slow only if both of its nodes are fast with others.
 */
#ifndef MICS_PROBE_PAIRS_H
#define MICS_PROBE_PAIRS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rounds for this many nodes, 2 or more. */
uint32_t mics_pair_rounds(uint32_t nodes);
/* The partner of a node in a round; UINT32_MAX: it has none. */
uint32_t mics_pair_partner(uint32_t nodes, uint32_t round, uint32_t node);

enum { MICS_SLOW_SEND = 1, MICS_SLOW_RECEIVE = 2 }; /* bits; both: a slow card */

struct mics_slow_pair {
    uint32_t from, to;
    double rate;
};

struct mics_pair_verdict {
    uint32_t nodes;
    double *send, *receive; /* [nodes] the best of each node; 0: not measured */
    unsigned char *slow;    /* [nodes] bits */
    struct mics_slow_pair *pairs;
    uint32_t pair_count;
    /* [nodes] If most slow pairs are between two groups, all of whose links are slow: the group of
     * each node, 0 or 1. Else NULL. */
    unsigned char *group;
    bool undecidable; /* two nodes, one of whose directions is slow: in `pairs` */
};

/* Judge rates[from * nodes + to], the best that was measured; 0: not measured.
 * mics_pair_verdict_fini() frees *out, also after an error. */
enum mics_status mics_pairs_judge(const double *rates, uint32_t nodes,
                                  struct mics_pair_verdict *out, struct mics_err *err);
void mics_pair_verdict_fini(struct mics_pair_verdict *verdict);

/* Is something slow? */
bool mics_pair_verdict_is_bad(const struct mics_pair_verdict *verdict);

/* Is what one node sends to another slow, by itself or like all that one of them sends or receives?
 */
bool mics_pair_is_slow(const struct mics_pair_verdict *verdict, uint32_t from, uint32_t to);

/* Does the finding about groups include the pair? */
bool mics_pair_is_between_groups(const struct mics_pair_verdict *verdict, uint32_t a, uint32_t b);

/* Are there so many slow pairs between two groups, all below half of this rate, that disturbances
 * cannot be the reason? */
bool mics_pairs_are_clearly_cut(const struct mics_pair_verdict *verdict, double reference);

/* Choose the pairs to measure again, chosen[nodes][nodes]: those that seem slow, or one of whose
 * nodes does, and in each round with such a pair the fastest other one as the reference; of slow
 * pairs also the fastest of each of its nodes, which tells whether that node is busy. Where all
 * pairs of a node, or between two groups, are slow, and take long, they take turns: a confirmation
 * measures those of a quarter of the rounds or more, between groups with all other pairs of these
 * rounds. `confirmation` counts from 0. Without suspects nothing is chosen. */
void mics_pairs_choose_suspects(const struct mics_pair_verdict *verdict, const double *best,
                                uint32_t confirmation, bool *chosen);

/* Were the pairs that do not seem slow as fast as before? If not, the network or the nodes were
 * disturbed, and what seems slow was not measured well: it is not confirmed. Nor is it where all
 * pairs of three nodes or more seem slow. */
bool mics_pairs_are_calm(const struct mics_pair_verdict *verdict, const double *best,
                         const double *rates);

/* Was all that seems slow below half of most that does not, in what was measured at the same time?
 * That also tells slow nodes where all rates are lower than before, on machines that are busy. */
bool mics_pairs_stand_out(const struct mics_pair_verdict *verdict, const double *rates);

/* What is usual by these rates: the upper quartile of what nodes can send and
 * receive, because with three nodes a slow one and one disturbance make half of these slow. 0:
 * nothing was measured, or out of memory. */
double mics_pairs_reference(const double *rates, uint32_t nodes);

#endif
