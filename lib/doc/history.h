/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - prints which programs a document went through. */
#ifndef MICS_DOC_HISTORY_H
#define MICS_DOC_HISTORY_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* One line for each entry of the document's "history": program, version, and the command, quoted
 * for a shell. MICS_ERR_FORMAT, with the path, if an entry is not as mics_doc_add_history() writes
 * it. */
enum mics_status mics_history_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
