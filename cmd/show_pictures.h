/* SPDX-License-Identifier: Apache-2.0 */
/* show_pictures.h - mics-show --gnuplot and --dot. */
#ifndef CMD_SHOW_PICTURES_H
#define CMD_SHOW_PICTURES_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* One file that was read. */
struct show_input {
    char *name;  /* for messages */
    json_t *doc; /* of metrics: the summary */
};

/* Write a script of gnuplot for one document or for several plans. The arguments are those of
 * mics_gnuplot_write(). MICS_ERR_ARG: several files that are not plans. MICS_ERR_INFEASIBLE: there
 * is no picture of this kind of document. */
enum mics_status show_gnuplot(FILE *out, const struct show_input *inputs, size_t count,
                              const char *terminal, const char *only, struct mics_err *err);

/* Write a graph of a topology or of a plan. `expect`: name of the instance whose rates are expected
 * of the links of a topology; NULL: what the topology itself says. */
enum mics_status show_dot(FILE *out, const struct show_input *input, const char *expect,
                          struct mics_err *err);

#endif
