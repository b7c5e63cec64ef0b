/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_formats.c - libFuzzer target for the recognition of files and for compressed streams.
 *
 * The first byte chooses a name, the rest is the file. What is recognised as compressed is
 * decompressed, and its text judged as any other.
 *
 * sources: lib/base lib/data/format.c lib/data/decompress.c
 */
#include "data/decompress.h"
#include "data/format.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_MAX ((size_t)1 << 20)

struct sunk {
    unsigned char bytes[TEXT_MAX];
    size_t size;
};

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static enum mics_status sink(void *context, const unsigned char *bytes, size_t size,
                             struct mics_err *err)
{
    struct sunk *sunk = context;

    must(size > 0);
    if (size > TEXT_MAX - sunk->size)
        return mics_err_set(err, MICS_ERR_IO, "full");
    memcpy(sunk->bytes + sunk->size, bytes, size);
    sunk->size += size;
    return MICS_OK;
}

static void judge(const char *path, const unsigned char *bytes, size_t size)
{
    const size_t head = mics_min_u64(size, MICS_FORMAT_HEAD);
    struct mics_text_counts whole = {.bytes = 0}, pieces = {.bytes = 0};
    struct mics_err err = {""};

    mics_text_count(bytes, size, 0, &whole);
    must(whole.bytes == size && whole.invalid <= size);
    mics_text_count(bytes, size / 2, 0, &pieces);
    mics_text_count(bytes + size / 2, size - size / 2, size / 2, &pieces);
    must(pieces.has_nul == whole.has_nul && pieces.nul_at == whole.nul_at);
    must(pieces.invalid <= whole.invalid);
    if (mics_text_judge(path, &whole, bytes, head, &err) != MICS_OK)
        must(err.text[0] != '\0');
    err.text[0] = '\0';
    if (mics_format_check_lines(path, bytes, size, &err) != MICS_OK)
        must(err.text[0] != '\0');
    mics_format_refuse(path, bytes, head, true, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a",     "a.txt",     "a.jsonl.gz", "a.json",
                                        "a.npy", "a.txt.zst", "a.bin",      "a.parquet"};
    static struct sunk sunk;
    struct mics_format format;
    struct mics_err err = {""};

    if (size == 0)
        return 0;
    const char *path = names[data[0] % (sizeof names / sizeof *names)];
    const unsigned char *bytes = data + 1;

    size--;
    if (mics_format_recognize(path, bytes, mics_min_u64(size, MICS_FORMAT_HEAD), &format, &err) !=
        MICS_OK) {
        must(err.text[0] != '\0');
        return 0;
    }
    judge(path, bytes, size);
    if (format.compression == MICS_COMPRESSION_NONE)
        return 0;
    sunk.size = 0;
    if (mics_decompress(format.compression, bytes, size, sink, &sunk, &err) != MICS_OK)
        must(err.text[0] != '\0');
    judge(path, sunk.bytes, sunk.size);
    return 0;
}
