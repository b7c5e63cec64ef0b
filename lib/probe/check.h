/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - is this cluster good, and which of its nodes is not? Facts and rates of all nodes,
 * compared, and the document mics.check.
 */
#ifndef MICS_PROBE_CHECK_H
#define MICS_PROBE_CHECK_H

#include "comm/job_device.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_CHECK_KIND    "mics.check"
#define MICS_CHECK_VERSION 1

/* $MICS_LEFT_OUT, which mics-run sets: the hosts on which no rank was started, as lines "HOST:
 * WHY". */
#define MICS_LEFT_OUT "MICS_LEFT_OUT"

/* $MICS_HOSTS, which mics-run sets: how hosts call themselves, and how the user does, as lines
 * "NAME HOST" or "NAME HOST PORT" in the order of nodes. A host without a line has NAME, and
 * no port. Documents have the user's names. */
#define MICS_HOSTS "MICS_HOSTS"

enum mics_check_extent {
    MICS_CHECK_FACTS, /* measure nothing */
    MICS_CHECK_QUICK,
    MICS_CHECK_WHOLE,
};

/* Check the nodes of the world, with the devices of their ranks. Collective. *out becomes the
 * document, which the caller owns: the same on all ranks. */
enum mics_status mics_check_run(struct mics_world *world, enum mics_check_extent extent,
                                enum mics_device_kind device, json_t **out, struct mics_err *err);

/* Read such a document, for the functions below; the caller's. MICS_ERR_IO, MICS_ERR_FORMAT. */
enum mics_status mics_check_read(const char *path, json_t **out, struct mics_err *err);

/* Is this a document on which the functions below can rely? MICS_ERR_FORMAT: it is not. */
enum mics_status mics_check_validate(const json_t *doc, struct mics_err *err);

/* Add findings for what is worse than in an earlier document, on hosts of the same name. Rates are
 * compared where the same kind of device was measured, with as many ranks of the node.
 * MICS_ERR_FORMAT: `before` has none of the hosts. */
enum mics_status mics_check_compare(json_t *doc, const json_t *before, struct mics_err *err);

/* Set "bad_nodes" and "verdict" by the findings. */
enum mics_status mics_check_settle(json_t *doc, struct mics_err *err);

/* The median over all ranks of one of their "rates"; NAN: there is none. */
double mics_check_usual_rate(const json_t *doc, const char *key);

/* Print what was measured, what is expected, by what, and whether a finding says that it is low.
 * For mics_check_print(). */
enum mics_status mics_check_print_rates(FILE *out, const json_t *doc, struct mics_err *err);

/* Has the document no fault? */
bool mics_check_is_good(const json_t *doc);

/* Print the hosts with a fault, and those that do not answer, separated by commas, and a newline.
 * Several nodes that are declared on one host are that host. */
void mics_check_print_excluded(FILE *out, const json_t *doc);

/* The cluster, what is wrong, and what to do; with `tsv` only what is wrong. MICS_ERR_FORMAT: the
 * document is not of this kind. */
enum mics_status mics_check_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* What has changed from one check to another of the same hosts: findings that are new or gone, and
 * what has become worse, better or other. MICS_ERR_FORMAT: `now` has none of the hosts. */
enum mics_status mics_check_print_changes(FILE *out, const json_t *before, const json_t *now,
                                          int tsv, struct mics_err *err);

/* For scripts: the verdict and the usual rate between nodes, the hosts with their verdicts, and the
 * pairs that were measured: "sender", "receiver" (indices) and "bytes_per_s". */
enum mics_status mics_check_print_pairs(FILE *out, const json_t *doc, int tsv,
                                        struct mics_err *err);

/* The nodes, coloured by their findings, and the pairs that were measured, slow ones with their
 * rate, as a graph for Graphviz. */
enum mics_status mics_check_dot(FILE *out, const json_t *doc, struct mics_err *err);

#endif
