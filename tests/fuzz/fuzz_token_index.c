/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_token_index.c - libFuzzer target for the reader of Megatron's .idx.
 *
 * What is accepted has documents in increasing order that cover all tokens.
 *
 * sources: lib/base lib/data/token_index.c
 */
#include "data/token_index.h"

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
    struct mics_token_index index;

    if (mics_token_index_parse(data, size, &index, &err) != MICS_OK) {
        must(index.documents == NULL && err.text[0] != '\0');
        return 0;
    }
    must(index.width == 1 || index.width == 2 || index.width == 4 || index.width == 8);
    must(index.document_count >= 1 && index.documents[0] == 0);
    for (uint64_t i = 0; i < index.document_count; i++)
        must(index.documents[i] < index.documents[i + 1]);
    must(index.documents[index.document_count] == index.count);
    free(index.documents);
    return 0;
}
