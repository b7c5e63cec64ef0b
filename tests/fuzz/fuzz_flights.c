/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_flights.c - libFuzzer target for the documents of ranks that a fault has ended.
 *
 * One that is accepted can be judged and printed, alone and gathered.
 *
 * sources: lib/base lib/doc lib/report/flights.c lib/report/flights_print.c
 */
#include "doc/doc.h"
#include "report/flights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *doc = NULL, *gathered = NULL;
    FILE *out;

    if (mics_doc_decode(data, size, &doc, NULL) != MICS_OK)
        return 0;
    out = fopen("/dev/null", "w");
    if (!out)
        abort();
    (void)mics_flights_print(out, doc, 0, NULL);
    if (mics_flights_gather(&doc, 1, &gathered, NULL) == MICS_OK &&
        (mics_flight_print(out, doc, 1, NULL) != MICS_OK ||
         mics_flights_print(out, gathered, 0, NULL) != MICS_OK))
        abort(); /* the bug that is looked for */
    fclose(out);
    json_decref(gathered);
    json_decref(doc);
    return 0;
}
