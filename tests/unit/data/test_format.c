/* SPDX-License-Identifier: Apache-2.0 */
/* test_format.c - what files are recognised as, and compressed streams. */
#include "tap.h"

#include "data/decompress.h"
#include "data/format.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define BYTES(text) text, sizeof text - 1

static const struct recognised {
    const char *path, *bytes;
    size_t size;
    enum mics_content content;
    enum mics_compression compression;
} recognised[] = {
    {"a.txt", BYTES("text"), MICS_CONTENT_TEXT, MICS_COMPRESSION_NONE},
    {"a", BYTES(""), MICS_CONTENT_TEXT, MICS_COMPRESSION_NONE},
    {"folder.jsonl/a", BYTES("{}"), MICS_CONTENT_TEXT, MICS_COMPRESSION_NONE},
    {"a.jsonl", BYTES("{}"), MICS_CONTENT_LINES, MICS_COMPRESSION_NONE},
    {"A.JSONL", BYTES("{}"), MICS_CONTENT_LINES, MICS_COMPRESSION_NONE},
    {"a.NdJson", BYTES("{}"), MICS_CONTENT_LINES, MICS_COMPRESSION_NONE},
    {"a.json", BYTES("{}"), MICS_CONTENT_LINES, MICS_COMPRESSION_NONE},
    {".json", BYTES("{}"), MICS_CONTENT_TEXT, MICS_COMPRESSION_NONE},
    {"a.jsonl.gz", BYTES("\x1f\x8b\x08\0"), MICS_CONTENT_LINES, MICS_COMPRESSION_GZIP},
    {"A.JSON.GZ", BYTES("\x1f\x8b\x08\x08"), MICS_CONTENT_LINES, MICS_COMPRESSION_GZIP},
    {"a.txt.zst", BYTES("\x28\xb5\x2f\xfd"), MICS_CONTENT_TEXT, MICS_COMPRESSION_ZSTD},
    {"a.ndjson.zstd", BYTES("\x5a\x2a\x4d\x18"), MICS_CONTENT_LINES, MICS_COMPRESSION_ZSTD},
    {"a.zst", BYTES("\x1f\x8b\x08\0"), MICS_CONTENT_TEXT, MICS_COMPRESSION_GZIP},
    {"a.jsonl", BYTES("\x1f\x8b\x08\0"), MICS_CONTENT_LINES, MICS_COMPRESSION_GZIP},
    {"a.bin", BYTES("\x1f\x8b\x08\0"), MICS_CONTENT_TOKENS, MICS_COMPRESSION_NONE},
    {"a.npy", BYTES("\1\0\2\0"), MICS_CONTENT_TOKENS, MICS_COMPRESSION_NONE},
    {"minutes", BYTES("MZ and BM, ORC, ID3"), MICS_CONTENT_TEXT, MICS_COMPRESSION_NONE},
};

static const struct refused {
    const char *path, *bytes;
    size_t size;
    const char *words;
} refused[] = {
    {"a.parquet", BYTES("PAR1\1"), "'a.parquet' is a Parquet file: convert it to JSON lines"},
    {"a.txt", BYTES("PAR1\1"), "Parquet"},
    {"a.parquet", BYTES("text"), "is Parquet, by its name"},
    {"A.PARQUET", BYTES(""), "is Parquet, by its name"},
    {"a.arrow", BYTES("ARROW1\0\0"), "an Arrow file"},
    {"a", BYTES("\xff\xff\xff\xff\x10\1\0\0\x10\0\0\0\0\0\0\0\0"), "an Arrow stream"},
    {"a.npy", BYTES("\x93NUMPY\1\0"), "a NumPy array"},
    {"a.npz", BYTES("PK\3\4"), "a zip archive"},
    {"a.h5", BYTES("\x89HDF\r\n\x1a\n"), "an HDF5 file"},
    {"a.db", BYTES("SQLite format 3\0"), "an SQLite database"},
    {"a.bz2", BYTES("BZh91AY&SY"), "a bzip2 file: decompress it first"},
    {"a.xz",
     BYTES("\xfd"
           "7zXZ\0"),
     "an xz file"},
    {"a.lz4", BYTES("\x04\x22\x4d\x18"), "an lz4 file"},
    {"a.7z", BYTES("7z\xbc\xaf\x27\x1c"), "a 7z archive"},
    {"a.rar", BYTES("Rar!\x1a\x07\0"), "a RAR archive"},
    {"a.pdf", BYTES("%PDF-1.7"), "a PDF file"},
    {"a",
     BYTES("\x7f"
           "ELF\2"),
     "an ELF program"},
    {"a", BYTES("\x89PNG\r\n\x1a\n"), "a PNG picture"},
    {"a", BYTES("\xff\xd8\xff\xe0"), "a JPEG picture"},
    {"a", BYTES("GGUF\3\0"), "a GGUF model"},
    {"model", BYTES("\x20\0\0\0\0\0\0\0{\"a\":"), "a safetensors file"},
    {"plan", BYTES("\x86\xa4kind\xa9mics.plan"), "a document of mics"},
    {"a.idx.txt", BYTES("MMIDIDX\0\0"), "an index of Megatron"},
    {"a.pkl", BYTES("\x80\x04\x95\1\0"), "a Python pickle"},
    {"a.pt", BYTES("x"), "a model, by its name"},
    {"a.jsonl", BYTES("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
    {"a.txt", BYTES("\xff\xfeh\0i\0"), "UTF-16 text: convert it to UTF-8"},
    {"a.txt", BYTES("\xfe\xff\0h\0i"), "UTF-16 text"},
    {"a.txt", BYTES("\xff\xfe\0\0h\0\0\0"), "UTF-32 text"},
    {"a.gz", BYTES("text"), "'a.gz' is not gzip, as its name says"},
    {"a.zst", BYTES(""), "is not zstd, as its name says: it is empty"},
    {"a.gz", BYTES("PAR1"), "a Parquet file"},
    {"a.tar.gz", BYTES("\x1f\x8b\x08\0"), "an archive, by its name"},
    {"a.tgz", BYTES("\x1f\x8b\x08\0"), "an archive, by its name"},
    {"a.bin.gz", BYTES("\x1f\x8b\x08\0"), "compressed tokens"},
};

static void files_are_recognised_by_first_bytes_and_name(void)
{
    for (size_t i = 0; i < sizeof recognised / sizeof *recognised; i++) {
        const struct recognised *row = &recognised[i];
        struct mics_format format;
        struct mics_err err = {""};

        CHECK_INT(mics_format_recognize(row->path, (const unsigned char *)row->bytes, row->size,
                                        &format, &err),
                  MICS_OK);
        if (err.text[0])
            printf("# %s: %s\n", row->path, err.text);
        CHECK_INT(format.content, row->content);
        CHECK_INT(format.compression, row->compression);
    }
}

static void others_are_refused_by_what_they_seem_to_be(void)
{
    unsigned char tar[512] = "folder/name";

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct refused *row = &refused[i];
        struct mics_format format;
        struct mics_err err = {""};

        CHECK_INT(mics_format_recognize(row->path, (const unsigned char *)row->bytes, row->size,
                                        &format, &err),
                  MICS_ERR_FORMAT);
        CHECK(strstr(err.text, row->words) != NULL);
        if (!strstr(err.text, row->words))
            printf("# %s: %s\n", row->path, err.text);
    }
    struct mics_err err = {""};

    memcpy(tar + 257, "ustar", 5);
    CHECK_INT(mics_format_refuse("a", tar, sizeof tar, false, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "'a' is a tar archive: extract the files in it first");
    /* Ids may be any bytes, but long marks are no coincidence. */
    CHECK_INT(mics_format_refuse("a", (const unsigned char *)"\xff\xfe\0\0", 4, true, &err),
              MICS_OK);
    CHECK_INT(mics_format_refuse("a", (const unsigned char *)"PK\3\4", 4, true, &err),
              MICS_ERR_FORMAT);
}

static void zip_archives_are_told_by_their_first_file(void)
{
    static const char *const names[][2] = {
        {"archive/data.pkl", "a PyTorch checkpoint"},
        {"arr_0.npy", "NumPy arrays (.npz)"},
        {"[Content_Types].xml", "office program"},
        {"a.txt", "a zip archive"},
        {"", "a zip archive"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsigned char head[80] = "PK\3\4";
        const size_t length = strlen(names[i][0]);
        struct mics_err err = {""};

        head[26] = (unsigned char)length;
        memcpy(head + 30, names[i][0], length);
        CHECK_INT(mics_format_refuse("a", head, 31 + length, false, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, names[i][1]) != NULL);
    }
}

static void lines_may_not_be_arrays_or_pretty_objects(void)
{
    static const struct {
        const char *text, *words; /* NULL: they are lines */
    } rows[] = {
        {"", NULL},
        {"\n\n{}", NULL},
        {"\xef\xbb\xbf{\"text\": \"a\"}\n", NULL},
        {"{\"text\": \"{[\"}\n{\"text\": \"b\"}\n", NULL},
        {"{\"text\": \"a\"}", NULL},
        {"{\"text\": \"cut off", NULL},
        {"{\"text\": \"cut off,\n{\"text\": \"b\"}\n", NULL},
        {"{\"text\": \"a\",\n{\"text\": \"b\"}\n", NULL},
        {"[1]\n[2]\n", NULL},
        {"[{\"text\": \"a\"}, {\"text\": \"b\"}]", "a JSON array, not JSON lines: jq -c '.[]'"},
        {" [\n  {\n    \"text\": \"a\"\n", "a JSON array"},
        {"{\n  \"text\": \"a\"\n}\n", "a JSON object over several lines, not JSON lines: jq -c ."},
        {"{\"text\": \"a\",\r\n \"b\": 1}\r\n", "over several lines"},
        {"{\"data\": [\n{\"text\": \"a\"}]}\n", NULL}, /* its first line is damaged */
        {"{\0\"\0t\0e\0x\0t\0\"\0", "UTF-16 text (UTF-16LE)"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t size = rows[i].text[0] && !rows[i].text[1] ? 14 : strlen(rows[i].text);
        struct mics_err err = {""};
        const enum mics_status status =
            mics_format_check_lines("a.json", (const unsigned char *)rows[i].text, size, &err);

        CHECK_INT(status, rows[i].words ? MICS_ERR_FORMAT : MICS_OK);
        CHECK(!rows[i].words || strstr(err.text, rows[i].words));
    }
}

static enum mics_status judge(const char *text, size_t size, struct mics_err *err)
{
    struct mics_text_counts counts = {.bytes = 0};

    err->text[0] = '\0';
    mics_text_count((const unsigned char *)text, size, 0, &counts);
    return mics_text_judge("a", &counts, (const unsigned char *)text, size, err);
}

static void text_has_no_nul_and_little_that_is_not_utf8(void)
{
    static char text[1000];
    struct mics_err err;

    memset(text, 'a', sizeof text);
    CHECK_INT(judge(text, sizeof text, &err), MICS_OK);
    memset(text, '\xe9', 10);
    CHECK_INT(judge(text, sizeof text, &err), MICS_OK); /* 1 % */
    text[10] = '\xff';
    CHECK_INT(judge(text, sizeof text, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "'a' is not text: 1 % of its bytes are not UTF-8; --binary takes the bytes "
                        "as they are");
    memset(text, 'a', sizeof text);
    text[500] = '\0';
    CHECK_INT(judge(text, sizeof text, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "'a' is not text: byte 500 is NUL; --binary takes the bytes as they are");
    CHECK_INT(judge(BYTES("h\0i\0!\0 \0"), &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "UTF-16LE") != NULL);
    CHECK_INT(judge(BYTES("\0h\0i\0!\0 "), &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "UTF-16BE") != NULL);
    CHECK_INT(judge(BYTES("h\0\0\0i\0\0\0"), &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "UTF-32LE") != NULL);
    CHECK_INT(judge(BYTES("MZ\x90\0\3\0\0\0"), &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "perhaps a Windows program") != NULL);
    CHECK_INT(judge(BYTES("\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80\xc3\xa9"), &err), MICS_OK);
    CHECK_INT(judge(BYTES("\xed\xa0\x80"), &err), MICS_ERR_FORMAT); /* a surrogate */
}

/* Cut anywhere, pieces count as much as the whole. */
static void pieces_of_text_may_cut_characters(void)
{
    static const char text[] = "a\xe6\x97\xa5\xf0\x9f\x98\x80\xc3\xa9 b and more than eight bytes";

    for (size_t cut = 0; cut <= sizeof text - 1; cut++) {
        struct mics_text_counts counts = {.bytes = 0};

        mics_text_count((const unsigned char *)text, cut, 0, &counts);
        mics_text_count((const unsigned char *)text + cut, sizeof text - 1 - cut, cut, &counts);
        CHECK_INT(counts.bytes, sizeof text - 1);
        CHECK_INT(counts.invalid, 0);
    }
}

/* ---- streams ---- */

#define TEXT_BYTES 300000

struct sunk {
    unsigned char bytes[3 * TEXT_BYTES];
    size_t size, limit;
};

static enum mics_status sink(void *context, const unsigned char *bytes, size_t size,
                             struct mics_err *err)
{
    struct sunk *sunk = context;

    if (sunk->size + size > sunk->limit)
        return mics_err_set(err, MICS_ERR_IO, "full");
    memcpy(sunk->bytes + sunk->size, bytes, size);
    sunk->size += size;
    return MICS_OK;
}

static struct sunk sunk;

static enum mics_status decompress(enum mics_compression compression, const unsigned char *bytes,
                                   size_t size, struct mics_err *err)
{
    sunk = (struct sunk){.limit = sizeof sunk.bytes};
    return mics_decompress(compression, bytes, size, sink, &sunk, err);
}

static size_t gzip(const unsigned char *text, size_t size, unsigned char *out, size_t room)
{
    z_stream zlib = {.zalloc = Z_NULL};

    deflateInit2(&zlib, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    zlib.next_in = (unsigned char *)text;
    zlib.avail_in = (uInt)size;
    zlib.next_out = out;
    zlib.avail_out = (uInt)room;
    deflate(&zlib, Z_FINISH);
    deflateEnd(&zlib);
    return room - zlib.avail_out;
}

static size_t zstd(const unsigned char *text, size_t size, unsigned char *out, size_t room)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();

    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    const size_t used = ZSTD_compress2(context, out, room, text, size);

    ZSTD_freeCCtx(context);
    return used;
}

static const struct codec {
    enum mics_compression compression;
    size_t (*compress)(const unsigned char *text, size_t size, unsigned char *out, size_t room);
} codecs[] = {{MICS_COMPRESSION_GZIP, gzip}, {MICS_COMPRESSION_ZSTD, zstd}};

static unsigned char text[TEXT_BYTES], packed[TEXT_BYTES + 10000];

static void fill_text(void)
{
    uint32_t state = 1;

    for (size_t i = 0; i < sizeof text; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = (unsigned char)(' ' + (state >> 24) % 64);
    }
}

static void streams_of_several_members_are_one_text(void)
{
    for (size_t i = 0; i < 2; i++) {
        struct mics_err err = {""};
        size_t used = 0;

        for (size_t part = 0; part < 3; part++) {
            used += codecs[i].compress(text + part * TEXT_BYTES / 3, TEXT_BYTES / 3, packed + used,
                                       sizeof packed - used);
            used += codecs[i].compress(text, 0, packed + used, sizeof packed - used);
        }
        if (i == 1) { /* a skippable frame of 5 bytes */
            memcpy(packed + used, "\x53\x2a\x4d\x18\5\0\0\0hello", 13);
            used += 13;
        } else { /* what tapes leave behind */
            memset(packed + used, 0, 100);
            used += 100;
        }
        CHECK_INT(decompress(codecs[i].compression, packed, used, &err), MICS_OK);
        CHECK_INT(sunk.size, TEXT_BYTES);
        CHECK(memcmp(sunk.bytes, text, TEXT_BYTES) == 0);
        packed[used] = 'x';
        CHECK_INT(decompress(codecs[i].compression, packed, used + 1, &err), MICS_ERR_FORMAT);
    }
}

static void truncated_and_damaged_streams_are_errors_with_position(void)
{
    enum { SIZE = 3000 };

    for (size_t i = 0; i < 2; i++) {
        const size_t used = codecs[i].compress(text, SIZE, packed, sizeof packed);
        struct mics_err err = {""};

        for (size_t cut = 1; cut < used; cut++)
            if (decompress(codecs[i].compression, packed, cut, &err) != MICS_ERR_FORMAT)
                CHECK_INT(cut, -1);
        decompress(codecs[i].compression, packed, used - 1, &err);
        CHECK(strstr(err.text, "truncated: its ") != NULL);
        /* The first bytes of a header may say what does not change the text. */
        for (size_t at = 20; at < used; at++) {
            packed[at] ^= 0x10;
            const enum mics_status status = decompress(codecs[i].compression, packed, used, &err);

            packed[at] ^= 0x10;
            if (status == MICS_OK && memcmp(sunk.bytes, text, SIZE) != 0)
                CHECK_INT(at, -1);
        }
        packed[used / 2] ^= 0x10;
        CHECK_INT(decompress(codecs[i].compression, packed, used, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, "damaged: ") && strstr(err.text, " at byte "));
    }
}

static void a_full_sink_ends_decompression(void)
{
    for (size_t i = 0; i < 2; i++) {
        const size_t used = codecs[i].compress(text, TEXT_BYTES, packed, sizeof packed);
        struct mics_err err = {""};

        sunk = (struct sunk){.limit = 1000};
        CHECK_INT(mics_decompress(codecs[i].compression, packed, used, sink, &sunk, &err),
                  MICS_ERR_IO);
        CHECK_STR(err.text, "full");
    }
}

int main(void)
{
    fill_text();
    TAP_RUN(files_are_recognised_by_first_bytes_and_name);
    TAP_RUN(others_are_refused_by_what_they_seem_to_be);
    TAP_RUN(zip_archives_are_told_by_their_first_file);
    TAP_RUN(lines_may_not_be_arrays_or_pretty_objects);
    TAP_RUN(text_has_no_nul_and_little_that_is_not_utf8);
    TAP_RUN(pieces_of_text_may_cut_characters);
    TAP_RUN(streams_of_several_members_are_one_text);
    TAP_RUN(truncated_and_damaged_streams_are_errors_with_position);
    TAP_RUN(a_full_sink_ends_decompression);
    return tap_done();
}
