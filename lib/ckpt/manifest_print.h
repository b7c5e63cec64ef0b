/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_print.h - a checkpoint's manifest as tables. */
#ifndef MICS_CKPT_MANIFEST_PRINT_H
#define MICS_CKPT_MANIFEST_PRINT_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* What was trained and how far, the settings and data of the run, and the files. The files themselves are
 * not looked at. MICS_ERR_FORMAT for a document that is no manifest. */
enum mics_status mics_manifest_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
