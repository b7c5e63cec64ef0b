/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pickle.c - libFuzzer target for the reader of pickles (nanoGPT's meta.pkl).
 *
 * What is accepted can be written as JSON, so it contains no cycle.
 *
 * sources: lib/base lib/data/pickle.c
 */
#include "data/pickle.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_err err = {.text = ""};
    json_t *value = NULL;

    if (mics_pickle_parse(data, size, &value, &err) != MICS_OK) {
        must(value == NULL && err.text[0] != '\0');
        return 0;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY);

    must(text != NULL);
    free(text);
    json_decref(value);
    return 0;
}
