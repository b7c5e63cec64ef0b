/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synthetic.h - a cluster described in words: "node:4 gpu:8 flops:312T link:300GB/s,3us".
 *
 *     word            meaning                                             without it
 *     node:N          nodes, 1 to 65536                                   1
 *     gpu:N           ranks on each node, 1 to 1024                       1
 *     flops:F         FLOP/s that one rank sustains: 312T, 50G            250T
 *     dtype:TYPE      the type of those: f32, bf16 or f16                 bf16
 *     mem:BYTES       memory of one rank: 40G, 80GB                       80G
 *     membw:RATE      its bandwidth: 1.5TB/s                              1.8TB/s
 *     link:RATE[,T]   inside a node, one rank one way; latency T          240GB/s,2us
 *     net:RATE[,T]    of a whole node, one way; latency T                 100gbit,25us
 *     cores:N         host cores of one rank                              unknown
 *
 * The values are taken as they are: they should be what is reached, not what a vendor promises.
 */
#ifndef MICS_TOPOLOGY_SYNTHETIC_H
#define MICS_TOPOLOGY_SYNTHETIC_H

#include "topology/topology.h"

/* Is the text written in this grammar: does its first word begin with one of the keys and a colon? */
bool mics_synthetic_is(const char *text);

/* MICS_ERR_ARG quotes the word that is wrong. *out is the caller's, to mics_topology_free(). */
enum mics_status mics_synthetic_parse(const char *text, struct mics_topology **out,
                                      struct mics_err *err);

#endif
