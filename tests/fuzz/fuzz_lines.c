/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_lines.c - libFuzzer target for JSON lines as a data set.
 *
 * Whatever is accepted must be documents end to end, of bytes and ends.
 *
 * sources: lib/base lib/doc lib/data/encoded.c lib/data/json_line.c lib/data/tokenizer.c
 * sources: lib/data/tokenizer lib/ckpt/format/gguf.c lib/data/chat/template.c
 */
#include "data/encoded.h"
#include "data/tokens.h"

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
    char path[] = "lines.jsonl";
    struct mics_document document = {.path = path, .bytes = data, .size = size};
    const struct mics_corpus corpus = {.documents = &document, .count = 1, .bytes = size};
    const struct mics_encoded_options options = {.val_fraction = 0.3, .mask_prompt = true};
    struct mics_encoded encoded;
    struct mics_err err = {""};
    uint64_t next = 0;

    if (mics_encoded_lines(&corpus, &options, &encoded, &err) == MICS_OK) {
        for (uint64_t i = 0; i < encoded.part_count; i++) {
            must(encoded.parts[i].first == next && encoded.parts[i].count > 0);
            next += encoded.parts[i].count;
            must(encoded.ids[next - 1] == MICS_TOKEN_END);
        }
        must(next == encoded.count);
        for (uint64_t i = 0; i < encoded.count; i++)
            must((encoded.ids[i] & ~MICS_TOKEN_PROMPT) < MICS_TOKEN_VOCAB_SIZE);
    } else {
        must(err.text[0] != '\0');
    }
    mics_encoded_free(&encoded);
    return 0;
}
