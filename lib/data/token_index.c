/* SPDX-License-Identifier: Apache-2.0 */
#include "data/token_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC      "MMIDIDX\0\0"
#define MAGIC_SIZE 9
#define HEADER     (MAGIC_SIZE + 8 + 1 + 8 + 8)
#define VERSION    1

enum { TYPE_I32 = 4, TYPE_U16 = 8 };

static const struct type {
    const char *name;
    uint32_t width; /* 0: not of ids */
    bool is_signed;
} types[] = {
    {NULL, 0, false},      {"uint8", 1, false},   {"int8", 1, true},
    {"int16", 2, true},    {"int32", 4, true},    {"int64", 8, true},
    {"float64", 0, false}, {"float32", 0, false}, {"uint16", 2, false},
};

static uint64_t get_u64(const unsigned char *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof value);
    return value;
}

/* The arrays behind the header. */
struct arrays {
    const unsigned char *lengths, *offsets, *firsts;
    uint64_t sequences, firsts_count; /* documents + 1 */
};

static enum mics_status read_header(const unsigned char *bytes, size_t size,
                                    struct mics_token_index *out, struct arrays *arrays,
                                    struct mics_err *err)
{
    if (size < HEADER || memcmp(bytes, MAGIC, MAGIC_SIZE) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "not an index of Megatron's");
    if (get_u64(bytes + MAGIC_SIZE) != VERSION)
        return mics_err_set(err, MICS_ERR_FORMAT, "version %" PRIu64 ": only %d is supported",
                            get_u64(bytes + MAGIC_SIZE), VERSION);
    const unsigned code = bytes[MAGIC_SIZE + 8];

    if (code == 0 || code >= sizeof types / sizeof *types)
        return mics_err_set(err, MICS_ERR_FORMAT, "unknown type %u of tokens", code);
    if (types[code].width == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "tokens are %s", types[code].name);
    out->width = types[code].width;
    out->is_signed = types[code].is_signed;
    *arrays = (struct arrays){.sequences = get_u64(bytes + MAGIC_SIZE + 9),
                              .firsts_count = get_u64(bytes + MAGIC_SIZE + 17)};
    const uint64_t left = size - HEADER, n = arrays->sequences, d = arrays->firsts_count;

    if (n > left / 12 || d > left / 8 || (left != 12 * n + 8 * d && left != 13 * n + 8 * d))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%zu bytes do not hold %" PRIu64 " sequences and %" PRIu64 " documents",
                            size, n, d > 0 ? d - 1 : 0);
    arrays->lengths = bytes + HEADER;
    arrays->offsets = arrays->lengths + 4 * n;
    arrays->firsts = arrays->offsets + 8 * n;
    if (d == 0 || get_u64(arrays->firsts) != 0 || get_u64(arrays->firsts + 8 * (d - 1)) != n)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "its documents do not cover its %" PRIu64 " sequences", n);
    return MICS_OK;
}

/* Walk sequences and documents at once. out->documents has room for all. */
static enum mics_status walk(const struct arrays *arrays, struct mics_token_index *out,
                             struct mics_err *err)
{
    uint64_t next = 0, found = 0;

    for (uint64_t i = 0; i <= arrays->sequences; i++) {
        while (next < arrays->firsts_count && get_u64(arrays->firsts + 8 * next) == i) {
            if (found == 0 || out->documents[found - 1] != out->count)
                out->documents[found++] = out->count;
            next++;
        }
        if (i == arrays->sequences)
            break;
        int32_t length;

        memcpy(&length, arrays->lengths + 4 * i, sizeof length);
        if (length < 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "sequence %" PRIu64 " has the length %d", i,
                                length);
        if (get_u64(arrays->offsets + 8 * i) != out->count * out->width)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "sequence %" PRIu64 " begins at byte %" PRIu64
                                ", but the one before it ends at byte %" PRIu64,
                                i, get_u64(arrays->offsets + 8 * i), out->count * out->width);
        out->count += (uint64_t)length;
    }
    if (next != arrays->firsts_count)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "document %" PRIu64 " begins at sequence %" PRIu64
                            ", out of order or beyond the last",
                            next, get_u64(arrays->firsts + 8 * next));
    if (out->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "there are no tokens");
    out->document_count = found - 1;
    return MICS_OK;
}

enum mics_status mics_token_index_parse(const unsigned char *bytes, size_t size,
                                        struct mics_token_index *out, struct mics_err *err)
{
    struct arrays arrays = {0};

    *out = (struct mics_token_index){0};
    enum mics_status status = read_header(bytes, size, out, &arrays, err);

    if (status != MICS_OK)
        return status;
    out->documents = malloc(arrays.firsts_count * sizeof *out->documents);
    status = out->documents ? walk(&arrays, out, err) : mics_err_nomem(err);
    if (status != MICS_OK) {
        free(out->documents);
        *out = (struct mics_token_index){0};
    }
    return status;
}

static void put_u64(FILE *stream, uint64_t value)
{
    fwrite(&value, sizeof value, 1, stream);
}

void mics_token_index_write(FILE *stream, uint32_t width, const int32_t *lengths, uint64_t count)
{
    uint64_t offset = 0;

    fwrite(MAGIC, 1, MAGIC_SIZE, stream);
    put_u64(stream, VERSION);
    putc(width == 2 ? TYPE_U16 : TYPE_I32, stream);
    put_u64(stream, count);
    put_u64(stream, count + 1);
    fwrite(lengths, sizeof *lengths, count, stream);
    for (uint64_t i = 0; i < count; i++) {
        put_u64(stream, offset);
        offset += (uint64_t)lengths[i] * width;
    }
    for (uint64_t i = 0; i <= count; i++)
        put_u64(stream, i);
}
