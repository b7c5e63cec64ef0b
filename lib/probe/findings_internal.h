/* SPDX-License-Identifier: Apache-2.0 */
/* findings_internal.h - what those that make findings share. */
#ifndef MICS_PROBE_FINDINGS_INTERNAL_H
#define MICS_PROBE_FINDINGS_INTERNAL_H

#include "probe/findings.h"

/* The text that more than half of those that are not NULL have; NULL: there is none. */
const char *mics_majority(const char *const *texts, size_t count);

/* The median of the values that are not NAN, of two the larger; NAN: there is none, or out of
 * memory. */
double mics_upper_median(const double *values, size_t count);

/* A member that is a number; NAN: there is none. */
double mics_number_of(const json_t *object, const char *key);

enum mics_figure_unit {
    MICS_FIGURE_PLAIN,
    MICS_FIGURE_BYTES,
    MICS_FIGURE_BITS_PER_S,
    MICS_FIGURE_BYTES_PER_S,
    MICS_FIGURE_FLOPS
};
const char *mics_figure(char text[64], double value, enum mics_figure_unit unit);

/* What the GPUs of all nodes show. */
void mics_findings_of_gpus(struct mics_findings *findings);

#endif
