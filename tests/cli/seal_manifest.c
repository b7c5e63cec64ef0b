/* SPDX-License-Identifier: Apache-2.0 */
/* seal_manifest.c - correct the checksum of a manifest that a test has changed: a filter. */
#include "ckpt/manifest.h"
#include "doc/doc.h"

#include <stdio.h>

int main(void)
{
    struct mics_err err = {""};
    json_t *doc = NULL;
    enum mics_status status = mics_doc_read_file("-", &doc, &err);

    if (status == MICS_OK)
        status = mics_manifest_seal(doc, &err);
    if (status == MICS_OK)
        status = mics_doc_write(stdout, doc, MICS_DOC_JSON, &err);
    if (status != MICS_OK)
        fprintf(stderr, "seal_manifest: %s\n", err.text);
    json_decref(doc);
    return status == MICS_OK ? 0 : 1;
}
