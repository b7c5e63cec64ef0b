/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_rates.h - measured seconds of a device's operations, and from them those of any size.
 *
 * The work of an operation is the product of up to three sizes: m n k multiplications of a matrix
 * product, heads T^2 D of attention, elements or bytes of a pass over memory. Each series of points
 * has one operation, form and type. Its times per unit of work are fitted by
 *
 *     seconds / work = a + b / m + c / n + d / k,    a, b, c, d >= 0:
 *
 * the rate of large operations, and for each size what is done once however large that size is
 * (for a product: b n k + c m k + d m n packs or adds its operands). Squared deviations relative to
 * the measured times are minimal; with two sizes of a pass over memory the fit is the line through
 * both. Where the points are a grid, the fit is multiplied by what was measured over it,
 * interpolated in the logarithms of the sizes: so a measured size has its measured time. Beyond the
 * grid the same formula holds with the ratio of the nearest points, and is above 0.
 */
#ifndef MICS_TOPOLOGY_KERNEL_RATES_H
#define MICS_TOPOLOGY_KERNEL_RATES_H

#include "base/err.h"
#include "ops.h"

#include <jansson.h>

struct mics_cursor;

/* From which type to which, PLAIN being F32 or BF16; RANDOM: with stochastic rounding. m is the
 * elements, n the parts. */
enum mics_sum_blocks_form {
    MICS_BLOCKS_PLAIN,
    MICS_BLOCKS_INT8_PLAIN,
    MICS_BLOCKS_INT4_PLAIN,
    MICS_BLOCKS_PLAIN_INT8,
    MICS_BLOCKS_INT8_INT8,
    MICS_BLOCKS_INT4_INT8,
    MICS_BLOCKS_PLAIN_INT4,
    MICS_BLOCKS_INT8_INT4,
    MICS_BLOCKS_INT4_INT4,
    MICS_BLOCKS_PLAIN_INT8_RANDOM,
    MICS_BLOCKS_INT8_INT8_RANDOM,
    MICS_BLOCKS_INT4_INT8_RANDOM,
    MICS_BLOCKS_PLAIN_INT4_RANDOM,
    MICS_BLOCKS_INT8_INT4_RANDOM,
    MICS_BLOCKS_INT4_INT4_RANDOM,
    MICS_SUM_BLOCKS_FORMS
};

/* What determines the time of a launch on a host. */
struct mics_kernel_shape {
    enum mics_kernel kernel;
    /* A product: (trans_a ? 2 : 0) + (trans_b ? 1 : 0); for an update the optimizer, for a sum of
     * blocks one of enum mics_sum_blocks_form; else 0. */
    uint32_t form;
    enum mics_dtype dtype; /* MICS_BF16 if any operand has it */
    double m, n, k;        /* 1 where the operation has fewer sizes */
};

const char *mics_kernel_name(enum mics_kernel kernel); /* "matmul" */
/* "nn", "nt", "tn", "adamw"; NULL: the operation has no form of this number. The only form of most
 * operations is "". */
const char *mics_kernel_form_name(enum mics_kernel kernel, uint32_t form);

/* The types and the rounding of a form, with PLAIN as `plain`. */
void mics_sum_blocks_set_form(uint32_t form, enum mics_dtype plain,
                              struct mics_args_sum_blocks *args);

enum { MICS_KERNEL_POINTS = 32, MICS_KERNEL_TERMS = 4 };

struct mics_kernel_point {
    double m, n, k, seconds;
};

/* The points of one operation, form and type, and their fit. */
struct mics_kernel_rates {
    enum mics_kernel kernel;
    uint32_t form;
    enum mics_dtype dtype;
    uint32_t count; /* 1 or more */
    struct mics_kernel_point points[MICS_KERNEL_POINTS];
    double terms[MICS_KERNEL_TERMS]; /* a, b, c, d */
};

/* Set `terms`. Sizes are 1 or more, times above 0. */
void mics_kernel_rates_fit(struct mics_kernel_rates *rates);

/* Seconds of a launch by `list`, whatever it computes: a GELU that is part of a product is priced
 * as one of its own. Negative: the list has no series for it. */
double mics_kernel_launch_seconds(const struct mics_kernel_rates *list, uint32_t count,
                                  enum mics_kernel kernel, const void *args);

/* The value of a document's device.kernel_rates: [{kernel, ? form, dtype, points [[m, n, k,
 * seconds], ...]}]. *out is the caller's, to free(), also after an error. */
void mics_kernel_rates_read(const struct mics_cursor *device, struct mics_kernel_rates **out,
                            uint32_t *count);
/* *out belongs to the caller. */
enum mics_status mics_kernel_rates_to_doc(const struct mics_kernel_rates *list, uint32_t count,
                                          json_t **out, struct mics_err *err);

#endif
