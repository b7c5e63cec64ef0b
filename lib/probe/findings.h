/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings.h - what is wrong with the nodes of a cluster, by what they say about themselves.
 *
 * A node is compared with the others: texts with those of more than half of all, numbers with the
 * upper median, so that of two nodes the one with less is named. Some figures are wrong by
 * themselves, such as uncorrected memory errors. Where no value has a majority, the cluster is
 * named, and no node.
 *
 * A finding is {what, level ("fault" or "notice"), ? node (its index) and host, ? where, found,
 * ? expected}. Only faults make a cluster bad. That of a slow rate also has what of a training step
 * takes so much longer: "slows" ("compute", "memory", "node" or "net") and "times", and "at_most"
 * where collectives may not use what is slow.
 */
#ifndef MICS_PROBE_FINDINGS_H
#define MICS_PROBE_FINDINGS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* One kind of findings. */
struct mics_finding_kind {
    const char *what;
    bool fault;
    const char *advice; /* what to do */
};

/* NULL: there is no such kind. */
const struct mics_finding_kind *mics_finding_kind(const char *what);

/* Findings under way. */
struct mics_findings {
    const json_t *nodes; /* the caller's: [{host, facts (node_facts.h), ...}] */
    json_t *list;        /* the caller's, to which findings are appended */
    bool failed;         /* out of memory */
};

/* Append a finding of a kind of the table. node -1: the cluster. `where` and `expected` may be
 * NULL. */
void mics_findings_add(struct mics_findings *findings, const char *what, int node,
                       const char *where, const char *found, const char *expected);

/* What a slow rate slows, and how many times it takes as long. */
struct mics_slowdown {
    const char *slows;
    double times; /* 1 or less, or NAN: not known, and not written */
    bool at_most;
};

/* The same of a slow rate. */
void mics_findings_add_slow(struct mics_findings *findings, const char *what, int node,
                            const char *where, const char *found, const char *expected,
                            struct mics_slowdown slowdown);

/* Append what the facts of all nodes, and their "time_offset_s" if they have one, show. */
enum mics_status mics_findings_of_facts(const json_t *nodes, json_t *list, struct mics_err *err);

/* The indices of the nodes with a fault, in order: a new array. NULL: out of memory. */
json_t *mics_findings_bad_nodes(const json_t *list, size_t node_count);

#endif
