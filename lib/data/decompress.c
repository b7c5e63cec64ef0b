/* SPDX-License-Identifier: Apache-2.0 */
#include "data/decompress.h"

#include "base/num.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define OUT_BYTES ((size_t)256 << 10)
/* zlib counts its input in 32 bits. */
#define IN_BYTES ((uint64_t)1 << 30)
/* inflateInit2(): the largest window, and a header of gzip. */
#define GZIP_WINDOW (15 + 16)
/* Windows of `zstd --long=31`. Memory is taken only as far as text fills the window. */
#define ZSTD_WINDOW (sizeof(size_t) > 4 ? 31 : 30)

/* What both streams need. */
struct stream {
    const unsigned char *bytes;
    uint64_t size;
    mics_decompress_sink *sink;
    void *context;
    unsigned char *out; /* [OUT_BYTES] */
};

static enum mics_status refuse_end(const char *what, uint64_t size, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "truncated: its %" PRIu64 " bytes end inside of a %s",
                        size, what);
}

static enum mics_status refuse_damage(const char *what, uint64_t at, const char *why,
                                      struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "damaged: %s at byte %" PRIu64 ": %s", what, at,
                        why ? why : "invalid data");
}

static bool all_zeros(const unsigned char *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Decompress one member, from byte *at on, which moves behind it. */
static enum mics_status inflate_member(const struct stream *stream, z_stream *zlib, uint64_t *at,
                                       struct mics_err *err)
{
    for (;;) {
        const uInt some = (uInt)mics_min_u64(stream->size - *at, IN_BYTES);

        zlib->next_in = (unsigned char *)stream->bytes + *at;
        zlib->avail_in = some;
        zlib->next_out = stream->out;
        zlib->avail_out = OUT_BYTES;
        const int code = inflate(zlib, Z_NO_FLUSH);
        const size_t got = OUT_BYTES - zlib->avail_out;

        *at += some - zlib->avail_in;
        if (code == Z_MEM_ERROR)
            return mics_err_nomem(err);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return refuse_damage("gzip data", *at, zlib->msg, err);
        const enum mics_status status =
            got ? stream->sink(stream->context, stream->out, got, err) : MICS_OK;

        if (status != MICS_OK || code == Z_STREAM_END)
            return status;
        if (got == 0 && *at == stream->size)
            return refuse_end("gzip member", stream->size, err);
    }
}

static enum mics_status inflate_all(const struct stream *stream, struct mics_err *err)
{
    z_stream zlib = {.zalloc = Z_NULL};
    enum mics_status status = MICS_OK;
    uint64_t at = 0;

    if (inflateInit2(&zlib, GZIP_WINDOW) != Z_OK)
        return mics_err_nomem(err);
    while (status == MICS_OK && at < stream->size) {
        if (at > 0 && stream->bytes[at] == 0 && all_zeros(stream->bytes + at, stream->size - at))
            break;
        status = inflate_member(stream, &zlib, &at, err);
        inflateReset(&zlib);
    }
    inflateEnd(&zlib);
    return status;
}

static enum mics_status zstd_all(const struct stream *stream, ZSTD_DStream *zstd,
                                 struct mics_err *err)
{
    ZSTD_inBuffer in = {stream->bytes, stream->size, 0};
    size_t left = 0; /* 0: at the end of a frame */
    bool full = false;

    while (in.pos < in.size || full) {
        ZSTD_outBuffer out = {stream->out, OUT_BYTES, 0};

        left = ZSTD_decompressStream(zstd, &out, &in);
        if (ZSTD_isError(left) && ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return mics_err_nomem(err);
        if (ZSTD_isError(left))
            return refuse_damage("zstd data", in.pos, ZSTD_getErrorName(left), err);
        const enum mics_status status =
            out.pos ? stream->sink(stream->context, stream->out, out.pos, err) : MICS_OK;

        if (status != MICS_OK)
            return status;
        full = out.pos == out.size && left != 0;
    }
    return left ? refuse_end("zstd frame", stream->size, err) : MICS_OK;
}

enum mics_status mics_decompress(enum mics_compression compression, const unsigned char *bytes,
                                 uint64_t size, mics_decompress_sink *sink, void *context,
                                 struct mics_err *err)
{
    const struct stream stream = {
        .bytes = bytes, .size = size, .sink = sink, .context = context, .out = malloc(OUT_BYTES)};
    ZSTD_DStream *zstd = compression == MICS_COMPRESSION_ZSTD ? ZSTD_createDStream() : NULL;
    enum mics_status status;

    if (!stream.out || (compression == MICS_COMPRESSION_ZSTD && !zstd))
        status = mics_err_nomem(err);
    else if (zstd) {
        ZSTD_DCtx_setParameter(zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW);
        status = zstd_all(&stream, zstd, err);
    } else {
        status = inflate_all(&stream, err);
    }
    ZSTD_freeDStream(zstd);
    free(stream.out);
    return status;
}
