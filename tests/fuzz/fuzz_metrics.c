/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_metrics.c - libFuzzer target for the reader of metrics.
 *
 * Whatever lines are accepted must sum up to a document that can be written, read back and printed.
 *
 * sources: lib/base lib/doc lib/report/metrics_log.c
 * sources: lib/report/metrics_summary.c lib/report/metrics_print.c
 */
#include "doc/doc.h"
#include "report/metrics.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void print(const json_t *doc)
{
    FILE *out = fopen("/dev/null", "w");

    must(out && mics_metrics_print(out, doc, 0, NULL) == MICS_OK);
    must(mics_metrics_print(out, doc, 1, NULL) == MICS_OK);
    fclose(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *doc = NULL, *back = NULL;
    char *bytes = NULL;
    size_t count = 0;
    enum mics_status status;

    mics_metrics_recognize((const char *)data, size);
    if (mics_metrics_summarize((const char *)data, size, MICS_METRICS_CURVE, &doc, NULL) != MICS_OK)
        return 0;
    print(doc);
    /* An event as deep as a line may be is one deeper in the document: too deep to be written. */
    status = mics_doc_encode(doc, MICS_DOC_MSGPACK, &bytes, &count, NULL);
    must(status == MICS_OK || status == MICS_ERR_ARG);
    if (status == MICS_OK) {
        must(mics_doc_decode(bytes, count, &back, NULL) == MICS_OK);
        must(json_equal(doc, back));
    }
    free(bytes);
    json_decref(doc);
    json_decref(back);
    return 0;
}
