/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - which programs a document went through, as a table. */
#ifndef MICS_DOC_HISTORY_H
#define MICS_DOC_HISTORY_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* A line for each entry of the document's "history": version and the command, quoted as a shell wants it.
 * MICS_ERR_FORMAT, with the path, when an entry is not as mics_doc_add_history() writes it. */
enum mics_status mics_history_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
