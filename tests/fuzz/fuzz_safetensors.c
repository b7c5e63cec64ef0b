/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c - libFuzzer target for the reader of safetensors headers.
 *
 * The input is the beginning of a file; its first byte is the number of data bytes that follow the
 * rest. What is accepted must tile exactly those bytes, and every tensor must be found by its name.
 *
 * sources: lib/base lib/ckpt/format/safetensors.c
 */
#include "ckpt/format/safetensors.h"

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
    struct mics_safetensors file = {0};
    struct mics_err err = {.text = ""};

    if (size < 1)
        return 0;
    const uint64_t bytes = size - 1 + data[0];

    if (mics_safetensors_parse(data + 1, size - 1, bytes, &file, &err) != MICS_OK) {
        must(file.tensors == NULL && file.names == NULL && err.text[0] != '\0');
        return 0;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < file.count; i++) {
        must(file.tensors[i].begin == at && file.tensors[i].end >= at);
        must(mics_safetensors_find(&file, file.tensors[i].name) == &file.tensors[i]);
        at = file.tensors[i].end;
    }
    must(file.data_offset + at == bytes);
    mics_safetensors_free(&file);
    return 0;
}
