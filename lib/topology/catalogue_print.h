/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_print.h - the catalogue as a table. */
#ifndef MICS_TOPOLOGY_CATALOGUE_PRINT_H
#define MICS_TOPOLOGY_CATALOGUE_PRINT_H

#include "base/err.h"

#include <stdio.h>

/* One line for each instance, with the vendors' figures: of one GPU, and of a whole machine's network. */
enum mics_status mics_catalogue_print(FILE *out, int tsv, struct mics_err *err);

#endif
