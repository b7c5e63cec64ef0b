/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_flights.c - libFuzzer target for the documents of ranks that a fault has ended.
 *
 * One that is accepted can be judged and printed, alone and gathered. A document with "ranks" is
 * taken for many, which are gathered.
 *
 * sources: lib/base lib/doc lib/report/flights.c lib/report/flights_print.c
 */
#include "doc/doc.h"
#include "report/flights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_DOCS = 16 };

static void gather(FILE *out, json_t *const *docs, size_t count)
{
    json_t *gathered = NULL;

    if (mics_flights_gather(docs, count, &gathered, NULL) != MICS_OK)
        return;
    for (size_t i = 0; i < count; i++)
        if (mics_flight_print(out, docs[i], 1, NULL) != MICS_OK)
            abort(); /* the bug that is looked for */
    if (mics_flights_print(out, gathered, 0, NULL) != MICS_OK)
        abort();
    json_decref(gathered);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *doc = NULL, *docs[MAX_DOCS];
    size_t count = 0;
    FILE *out;

    if (mics_doc_decode(data, size, &doc, NULL) != MICS_OK)
        return 0;
    out = fopen("/dev/null", "w");
    if (!out)
        abort();
    (void)mics_flights_print(out, doc, 0, NULL);
    gather(out, &doc, 1);
    const json_t *ranks = json_object_get(doc, "ranks");
    while (count < MAX_DOCS && count < json_array_size(ranks)) {
        docs[count] = json_array_get(ranks, count);
        count++;
    }
    gather(out, docs, count);
    fclose(out);
    json_decref(doc);
    return 0;
}
