/* SPDX-License-Identifier: Apache-2.0 */
/*
 * routes.h - who sends what to whom: rings and trees. For backends only.
 *
 * Ring. Step s of an all-reduce of m ranks: rank i sends piece (i - 1 - s) mod m to rank i + 1 and
 * receives piece (i - 2 - s) mod m from rank i - 1. In the steps [0, m - 1) what arrives is added, and
 * after them rank i has the sum of piece i: that is the reduce-scatter. In the steps [m - 1, 2m - 2) it is
 * stored: that is the all-gather. (Patarasuk and Yuan 2009.)
 *
 * Tree. Rank v (counted from the root) has the children a v + 1 ... a v + a, for an arity a. What is small
 * goes through a broad tree, for few hops; what is large through a chain, in segments, for bandwidth.
 */
#ifndef MICS_COMM_ROUTES_H
#define MICS_COMM_ROUTES_H

#include <stdint.h>

enum {
    COMM_TREE_ARITY = 8,
    COMM_TREE_REDUCE_BYTES = 4096,     /* an all-reduce up to this goes by tree */
    COMM_TREE_BROADCAST_BYTES = 32768, /* a broadcast beyond this goes by chain */
};

/* Elements [begin, begin + count) of `total`: piece `index` of `pieces` nearly equal ones. */
struct comm_piece {
    uint64_t begin, count;
};

struct comm_piece mics_comm_piece(uint64_t total, int pieces, int index);

/* a mod size, in [0, size) for negative a too. */
static inline int comm_mod(int a, int size)
{
    return (a % size + size) % size;
}

/* Children of rank `place` (counted from the root): `count` of them from `first` on. */
struct comm_children {
    int first, count;
};

struct comm_children mics_comm_children(int place, int size, int arity);

int mics_comm_broadcast_arity(uint64_t bytes);

/* Bytes that the rank at `place` from the root sends in a broadcast. */
uint64_t mics_comm_broadcast_sent(int size, int place, uint64_t bytes);

#endif
