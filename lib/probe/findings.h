/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings.h - measure ranks and links, and name those that are slow every time.
 *
 * A measurement that accuses somebody is made again, twice, each time for twice as long: on a loaded machine others
 * come and go.
 */
#ifndef MICS_PROBE_FINDINGS_H
#define MICS_PROBE_FINDINGS_H

#include "probe/outliers.h"

/* Products and copies on all ranks at once, for about `seconds` each. Slow ranks are added to the outliers; *flops and
 * *memory_rate are the medians over ranks. Collective. */
enum mics_status mics_find_slow_ranks(const struct mics_bench *bench, double seconds,
                                      struct mics_outliers *outliers, double *flops,
                                      double *memory_rate, struct mics_err *err);

/* Pairs of neighbours, as mics_links_measure(): the world must have such links. *link is the class's. */
enum mics_status mics_find_slow_links(const struct mics_bench *bench, enum mics_link_class class,
                                      double seconds, struct mics_outliers *outliers,
                                      struct mics_link *link, struct mics_err *err);

/* Ranks and all links that there are, in about `seconds` altogether (more while somebody is suspected). */
enum mics_status mics_find_slow(const struct mics_bench *bench, double seconds,
                                struct mics_outliers *outliers, struct mics_err *err);

#endif
