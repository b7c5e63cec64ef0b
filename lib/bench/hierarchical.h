/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hierarchical.h - all-gather and reduce-scatter in two stages, between nodes and inside them.
 *
 * A group of q nodes x k ranks. The rank on node i with local rank j holds block j * q + i, so the stage
 * between nodes (q ranks of equal local rank) makes runs of neighbouring blocks, and the stage inside a node (k ranks)
 * puts whole runs in order: both in place, without a reordering copy. Over the network go (q - 1) blocks
 * of each rank, where a flat ring would send q k - 1 over each node's card.
 *
 * The gathered buffer is cut into segments, each laid out so, and while one segment is in its second stage the
 * next is in its first: with `count` elements of a rank and s segments, segment t is at t * q * k * count / s,
 * and a rank's shard is its piece, of count / s elements, of each segment, one after another.
 *
 * The first stage runs on a stream of its own, the second on the caller's: for the caller each operation is
 * like that of one communicator, begun after and finished before what stands around it on that stream.
 */
#ifndef MICS_BENCH_HIERARCHICAL_H
#define MICS_BENCH_HIERARCHICAL_H

#include "comm/comm.h"

struct mics_hier;

enum { MICS_HIER_MAX_SEGMENTS = 64 };

/* `net`: the q ranks of equal local rank, `node`: the k ranks of this node, both with their places as blocks,
 * and both the caller's, who frees them after the hierarchy. Either may be of one rank. 1 <= segments <=
 * MICS_HIER_MAX_SEGMENTS, the same on all ranks. Not collective.
 * MICS_ERR_ARG: another number of segments. */
enum mics_status mics_hier_open(struct mics_device *device, struct mics_comm *net,
                                struct mics_comm *node, uint32_t segments, struct mics_hier **out,
                                struct mics_err *err);
void mics_hier_close(struct mics_hier *hier); /* finishes its stream; NULL is fine */

/* Of this rank: j * q + i. */
uint32_t mics_hier_block(const struct mics_hier *hier);

/* recv[q * k * count]: all shards, laid out as above. send[count]: this rank's, or NULL when its pieces are
 * already in their places in recv. count is a multiple of the segments. */
void mics_hier_all_gather(struct mics_hier *hier, struct mics_stream *stream, const void *send,
                          void *recv, uint64_t count, enum mics_dtype dtype);

/* recv[count] = this rank's shard of the sum of all send[q * k * count]; NULL leaves its pieces in their places in
 * send. What else is in send is destroyed. Sums inside the node first. */
void mics_hier_reduce_scatter(struct mics_hier *hier, struct mics_stream *stream, void *send,
                              void *recv, uint64_t count, enum mics_dtype dtype);

#endif
