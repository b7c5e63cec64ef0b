/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format.h"

#include "base/file.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What to do with a file that is refused. */
#define TO_LINES "convert it to JSON lines"
#define UNPACK   "decompress it first"
#define EXTRACT  "extract the files in it first"
#define NO_TEXT  "it has no text to train on"
#define NUMPY    "write its ids without a header: numpy.load(FILE).tofile('ids.bin')"
#define TO_UTF8  "convert it to UTF-8, for example with iconv"

#define MAGIC(text) text, sizeof text - 1

/* Files that begin with `magic` at byte `offset`. `weak`: text may begin so, too; it only explains
 * why a file is no text. */
static const struct magic {
    const char *bytes;
    size_t size, offset;
    const char *what, *advice;
    bool weak;
} magics[] = {
    {MAGIC("PAR1"), 0, "a Parquet file", TO_LINES, false},
    {MAGIC("PARE"), 0, "an encrypted Parquet file", TO_LINES, false},
    {MAGIC("ARROW1"), 0, "an Arrow file", TO_LINES, false},
    {MAGIC("FEA1"), 0, "a Feather file", TO_LINES, false},
    {MAGIC("ORC"), 0, "an ORC file", TO_LINES, true},
    {MAGIC("Obj\1"), 0, "an Avro file", TO_LINES, false},
    {MAGIC("\x93NUMPY"), 0, "a NumPy array", NUMPY, false},
    {MAGIC("\x89HDF\r\n\x1a\n"), 0, "an HDF5 file", TO_LINES, false},
    {MAGIC("SQLite format 3\0"), 0, "an SQLite database", TO_LINES, false},
    {MAGIC("1AY&SY"), 4, "a bzip2 file", UNPACK, false},
    {MAGIC("\xfd"
           "7zXZ\0"),
     0, "an xz file", UNPACK, false},
    {MAGIC("\x04\x22\x4d\x18"), 0, "an lz4 file", UNPACK, false},
    {MAGIC("\x02\x21\x4c\x18"), 0, "an lz4 file", UNPACK, false},
    {MAGIC("LZIP"), 0, "an lzip file", UNPACK, true},
    {MAGIC("\xff\x06\0\0sNaPpY"), 0, "a Snappy file", UNPACK, false},
    {MAGIC("\x89LZO\0\r\n\x1a\n"), 0, "an lzop file", UNPACK, false},
    {MAGIC("\x1f\x9d"), 0, "a file of compress", UNPACK, true},
    {MAGIC("\x5d\0\0"), 0, "an lzma file", UNPACK, true},
    {MAGIC("7z\xbc\xaf\x27\x1c"), 0, "a 7z archive", EXTRACT, false},
    {MAGIC("Rar!\x1a\x07"), 0, "a RAR archive", EXTRACT, false},
    {MAGIC("ustar"), 257, "a tar archive", EXTRACT, false},
    {MAGIC("!<arch>\n"), 0, "an ar archive", EXTRACT, false},
    {MAGIC("PK\5\6"), 0, "an empty zip archive", EXTRACT, false},
    {MAGIC("PK\7\10"), 0, "a zip archive", EXTRACT, false},
    {MAGIC("GGUF"), 0, "a GGUF model", NO_TEXT, false},
    {MAGIC("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9"), 0, "a PyTorch checkpoint", NO_TEXT, false},
    {MAGIC("\x80\x02"), 0, "a Python pickle", TO_LINES, true},
    {MAGIC("\x80\x03"), 0, "a Python pickle", TO_LINES, true},
    {MAGIC("\x80\x04\x95"), 0, "a Python pickle", TO_LINES, false},
    {MAGIC("\x80\x05\x95"), 0, "a Python pickle", TO_LINES, false},
    {MAGIC("MMIDIDX\0\0"), 0, "an index of Megatron", "its .bin has the tokens", false},
    {MAGIC("TNTIDX\0\0"), 0, "an index of fairseq", "encode the text itself", false},
    {MAGIC("%PDF-"), 0, "a PDF file", "extract its text first", false},
    {MAGIC("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), 0, "a file of an old Office program",
     "extract its text first", false},
    {MAGIC("{\\rtf"), 0, "an RTF file", "extract its text first", false},
    {MAGIC(MICS_LFS_POINTER), 0, "a pointer of Git LFS", MICS_LFS_ADVICE, false},
    {MAGIC("\x7f"
           "ELF"),
     0, "an ELF program", NO_TEXT, false},
    {MAGIC("\xcf\xfa\xed\xfe"), 0, "a Mach-O program", NO_TEXT, false},
    {MAGIC("\xca\xfe\xba\xbe"), 0, "a Java class or a Mach-O program", NO_TEXT, false},
    {MAGIC("\0asm"), 0, "a WebAssembly program", NO_TEXT, false},
    {MAGIC("MZ"), 0, "a Windows program", NO_TEXT, true},
    {MAGIC("\x89PNG\r\n\x1a\n"), 0, "a PNG picture", NO_TEXT, false},
    {MAGIC("\xff\xd8\xff"), 0, "a JPEG picture", NO_TEXT, false},
    {MAGIC("GIF87a"), 0, "a GIF picture", NO_TEXT, false},
    {MAGIC("GIF89a"), 0, "a GIF picture", NO_TEXT, false},
    {MAGIC("II*\0"), 0, "a TIFF picture", NO_TEXT, false},
    {MAGIC("MM\0*"), 0, "a TIFF picture", NO_TEXT, false},
    {MAGIC("BM"), 0, "a BMP picture", NO_TEXT, true},
    {MAGIC("WEBP"), 8, "a WebP picture", NO_TEXT, true},
    {MAGIC("WAVE"), 8, "a WAV file", NO_TEXT, true},
    {MAGIC("OggS\0"), 0, "an Ogg file", NO_TEXT, false},
    {MAGIC("fLaC"), 0, "a FLAC file", NO_TEXT, true},
    {MAGIC("ID3"), 0, "an MP3 file", NO_TEXT, true},
    {MAGIC("ftyp"), 4, "an MP4 file", NO_TEXT, true},
    {MAGIC("\x1a\x45\xdf\xa3"), 0, "a Matroska file", NO_TEXT, false},
    {MAGIC("\0\0\xfe\xff"), 0, "UTF-32 text", TO_UTF8, false},
    {MAGIC("\xff\xfe\0\0"), 0, "UTF-32 text", TO_UTF8, false},
    {MAGIC("\xff\xfe"), 0, "UTF-16 text", TO_UTF8, false},
    {MAGIC("\xfe\xff"), 0, "UTF-16 text", TO_UTF8, false},
};

/* Names of files that have no text, whatever they begin with. */
static const struct named {
    const char *suffixes; /* separated by blanks */
    const char *what, *advice;
} named[] = {
    {".parquet .parq", "Parquet", TO_LINES},
    {".arrow .feather", "Arrow", TO_LINES},
    {".orc .avro .tfrecord .tfrecords .mds", "records of other programs", TO_LINES},
    {".npz", "NumPy arrays", NUMPY},
    {".h5 .hdf5", "HDF5", TO_LINES},
    {".sqlite .sqlite3", "SQLite", TO_LINES},
    {".pkl .pickle", "a Python pickle", TO_LINES},
    {".pt .pth .ckpt .safetensors .gguf", "a model", NO_TEXT},
    {".bz2 .xz .lz4 .lzma .lz .br .sz", "compressed in a way that is not read here", UNPACK},
    {".zip .7z .rar .tar .tgz .tbz2 .txz .tzst", "an archive", EXTRACT},
    {".pdf .doc .docx .xls .xlsx .ppt .pptx .odt .epub", "a document of an office program",
     "extract its text first"},
};

/* Kinds of zip archives, by the name of the first file in them. */
static const struct zipped {
    const char *ending, *what, *advice;
} zipped[] = {
    {"/data.pkl", "a PyTorch checkpoint", NO_TEXT},
    {".npy", "NumPy arrays (.npz)", NUMPY},
    {"[Content_Types].xml", "a document of an office program", "extract its text first"},
    {"_rels/.rels", "a document of an office program", "extract its text first"},
    {"docProps/app.xml", "a document of an office program", "extract its text first"},
    {"mimetype", "a document of an office program", "extract its text first"},
    {"", "a zip archive", EXTRACT},
};

static const struct content_suffix {
    const char *suffix;
    enum mics_content content;
} content_suffixes[] = {
    {".jsonl", MICS_CONTENT_LINES},  {".ndjson", MICS_CONTENT_LINES},
    {".json", MICS_CONTENT_LINES},   {".jsonlines", MICS_CONTENT_LINES},
    {".ldjson", MICS_CONTENT_LINES}, {".bin", MICS_CONTENT_TOKENS},
    {".idx", MICS_CONTENT_TOKENS},   {".npy", MICS_CONTENT_TOKENS},
};

static const struct compressed_suffix {
    const char *suffix;
    enum mics_compression compression;
} compressed_suffixes[] = {
    {".gz", MICS_COMPRESSION_GZIP},
    {".gzip", MICS_COMPRESSION_GZIP},
    {".zst", MICS_COMPRESSION_ZSTD},
    {".zstd", MICS_COMPRESSION_ZSTD},
};

const char *mics_content_name(enum mics_content content)
{
    static const char *const names[] = {"text", "JSON lines", "tokens"};

    return names[content];
}

static const char *compression_name(enum mics_compression compression)
{
    static const char *const names[] = {"not compressed", "gzip", "zstd"};

    return names[compression];
}

/* Does a name of `length` characters end so, behind at least one other character? */
static bool ends_with(const char *name, size_t length, const char *suffix, size_t suffix_length)
{
    return length > suffix_length &&
           strncasecmp(name + length - suffix_length, suffix, suffix_length) == 0;
}

static enum mics_status refuse(const char *path, const char *what, const char *advice,
                               struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is %s: %s", path, what, advice);
}

/* The row for files that begin so, or NULL. */
static const struct magic *find_magic(const unsigned char *head, size_t size, bool weak)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const struct magic *row = &magics[i];

        if (row->weak == weak && size >= row->offset + row->size &&
            memcmp(head + row->offset, row->bytes, row->size) == 0)
            return row;
    }
    return NULL;
}

static uint64_t get_le(const unsigned char *bytes, unsigned count)
{
    uint64_t value = 0;

    for (unsigned i = count; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

/* How the first bytes say that a file is compressed. */
static enum mics_compression find_compression(const unsigned char *head, size_t size)
{
    if (size >= 4 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 && (head[3] & 0xe0) == 0)
        return MICS_COMPRESSION_GZIP;
    if (size >= 4 && (memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0 ||
                      ((head[0] & 0xf0) == 0x50 && memcmp(head + 1, "\x2a\x4d\x18", 3) == 0)))
        return MICS_COMPRESSION_ZSTD;
    return MICS_COMPRESSION_NONE;
}

/* A local file header of zip: 30 bytes, of which bytes 26 and 27 are the length of the name behind
 * them. */
static enum mics_status refuse_zip(const char *path, const unsigned char *head, size_t size,
                                   struct mics_err *err)
{
    const size_t length = size > 30 ? mics_min_u64(get_le(head + 26, 2), size - 30) : 0;
    size_t row = 0, ending;

    while ((ending = strlen(zipped[row].ending)) > length ||
           memcmp(head + 30 + length - ending, zipped[row].ending, ending) != 0)
        row++;
    return refuse(path, zipped[row].what, zipped[row].advice, err);
}

/* A header of JSON, whose length comes before it in 64 bits. */
static bool is_safetensors(const unsigned char *head, size_t size)
{
    return size > 10 && get_le(head, 8) >= 2 && get_le(head, 8) < (uint64_t)1 << 32 &&
           memcmp(head + 8, "{\"", 2) == 0;
}

/* A map of msgpack whose first key is "kind". */
static bool is_mics_document(const unsigned char *head, size_t size)
{
    return size > 6 && (head[0] & 0xf0) == 0x80 && memcmp(head + 1, "\xa4kind", 5) == 0;
}

/* Messages of Arrow's streams begin with a mark and a length. */
static bool is_arrow_stream(const unsigned char *head, size_t size)
{
    return size > 16 && memcmp(head, "\xff\xff\xff\xff", 4) == 0 && get_le(head + 4, 4) > 0 &&
           get_le(head + 4, 4) < 1 << 28 && head[7] == 0;
}

enum mics_status mics_format_refuse(const char *path, const unsigned char *head, size_t size,
                                    bool ids, struct mics_err *err)
{
    const enum mics_compression compression = find_compression(head, size);
    const struct magic *row = find_magic(head, size, false);

    if (compression == MICS_COMPRESSION_GZIP)
        return refuse(path, "a gzip file", UNPACK, err);
    if (compression == MICS_COMPRESSION_ZSTD)
        return refuse(path, "a zstd file", UNPACK, err);
    if (row && !(ids && (row->size < 4 || strcmp(row->advice, TO_UTF8) == 0)))
        return refuse(path, row->what, row->advice, err);
    if (size >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return refuse_zip(path, head, size, err);
    if (is_safetensors(head, size))
        return refuse(path, "a safetensors file", NO_TEXT, err);
    if (is_mics_document(head, size))
        return refuse(path, "a document of mics", NO_TEXT, err);
    if (is_arrow_stream(head, size))
        return refuse(path, "an Arrow stream", TO_LINES, err);
    return MICS_OK;
}

/* Cut the suffix of a compressed file. */
static enum mics_compression cut_compression(const char *name, size_t *length)
{
    for (size_t i = 0; i < sizeof compressed_suffixes / sizeof *compressed_suffixes; i++) {
        const struct compressed_suffix *row = &compressed_suffixes[i];
        const size_t suffix_length = strlen(row->suffix);

        if (ends_with(name, *length, row->suffix, suffix_length)) {
            *length -= suffix_length;
            return row->compression;
        }
    }
    return MICS_COMPRESSION_NONE;
}

static enum mics_content content_of(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof content_suffixes / sizeof *content_suffixes; i++) {
        const struct content_suffix *row = &content_suffixes[i];

        if (ends_with(name, length, row->suffix, strlen(row->suffix)))
            return row->content;
    }
    return MICS_CONTENT_TEXT;
}

static enum mics_status refuse_name(const char *path, const char *name, size_t length,
                                    struct mics_err *err)
{
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const char *suffix = named[i].suffixes;

        for (size_t size; *suffix; suffix += size + (suffix[size] == ' ')) {
            size = strcspn(suffix, " ");
            if (ends_with(name, length, suffix, size))
                return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is %s, by its name: %s", path,
                                    named[i].what, named[i].advice);
        }
    }
    return MICS_OK;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

struct mics_format mics_format_by_name(const char *path)
{
    const char *name = name_of(path);

    return (struct mics_format){.content = content_of(name, strlen(name))};
}

enum mics_status mics_format_recognize(const char *path, const unsigned char *head, size_t size,
                                       struct mics_format *out, struct mics_err *err)
{
    const char *name = name_of(path);
    size_t length = strlen(name);
    const enum mics_compression said = cut_compression(name, &length);

    *out = (struct mics_format){.content = content_of(name, length)};
    if (out->content == MICS_CONTENT_TOKENS && said == MICS_COMPRESSION_NONE)
        return ends_with(name, length, ".npy", 4) ? mics_format_refuse(path, head, size, true, err)
                                                  : MICS_OK;
    out->compression = find_compression(head, size);
    if (out->compression == MICS_COMPRESSION_NONE) {
        const enum mics_status status = mics_format_refuse(path, head, size, false, err);

        if (status != MICS_OK)
            return status;
        if (said != MICS_COMPRESSION_NONE)
            return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is not %s, as its name says: %s", path,
                                compression_name(said),
                                size == 0 ? "it is empty" : "it begins with other bytes");
    }
    if (out->content == MICS_CONTENT_TOKENS)
        return refuse(path, "compressed tokens", "they are read where they are: " UNPACK, err);
    return refuse_name(path, name, length, err);
}

/* Zeros at each of four positions tell UTF-16 and UTF-32 of mostly Latin text. */
static const char *guess_wide(const unsigned char *head, size_t size)
{
    size_t zeros[4] = {0};
    const size_t quads = size / 4;

    for (size_t i = 0; i < 4 * quads; i++)
        zeros[i % 4] += head[i] == 0;
    const bool first = 10 * zeros[0] > 4 * quads, second = 10 * zeros[1] > 4 * quads;
    const bool third = 10 * zeros[2] > 4 * quads, fourth = 10 * zeros[3] > 4 * quads;

    if (quads == 0)
        return NULL;
    if (third && fourth && 10 * zeros[0] < quads)
        return "UTF-32 text (UTF-32LE)";
    if (first && second && 10 * zeros[3] < quads)
        return "UTF-32 text (UTF-32BE)";
    if (second && fourth && 10 * (zeros[0] + zeros[2]) < quads)
        return "UTF-16 text (UTF-16LE)";
    if (first && third && 10 * (zeros[1] + zeros[3]) < quads)
        return "UTF-16 text (UTF-16BE)";
    return NULL;
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool begins_object(const unsigned char *bytes, size_t size)
{
    size_t at = 0;

    while (at < size && is_blank(bytes[at]))
        at++;
    return at < size && bytes[at] == '{';
}

/* Are quotes and brackets open at the end of a line, after a character behind which JSON goes on in
 * the next one? A line that was cut off seldom ends so. */
static bool goes_on(const unsigned char *line, size_t size)
{
    size_t depth = 0;
    bool quoted = false;

    while (size > 0 && is_blank(line[size - 1]))
        size--;
    for (size_t i = 0; i < size; i++) {
        if (quoted && line[i] == '\\')
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        else if (!quoted && (line[i] == '{' || line[i] == '['))
            depth++;
        else if (!quoted && (line[i] == '}' || line[i] == ']') && depth > 0)
            depth--;
    }
    return depth > 0 && !quoted && strchr("{[,:", line[size - 1]);
}

enum mics_status mics_format_check_lines(const char *path, const unsigned char *bytes, size_t size,
                                         struct mics_err *err)
{
    const struct magic *row = find_magic(bytes, size, false);
    const char *wide = guess_wide(bytes, mics_min_u64(size, MICS_FORMAT_HEAD));
    size_t at = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    if (row)
        return refuse(path, row->what, row->advice, err);
    if (wide)
        return refuse(path, wide, TO_UTF8, err);
    while (at < size && is_blank(bytes[at]))
        at++;
    if (at == size)
        return MICS_OK;
    if (bytes[at] == '[' && begins_object(bytes + at + 1, size - at - 1))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' is a JSON array, not JSON lines: jq -c '.[]' makes lines of it",
                            path);
    const unsigned char *stop = memchr(bytes + at, '\n', size - at);

    if (bytes[at] != '{' || !stop || !goes_on(bytes + at, (size_t)(stop - bytes) - at))
        return MICS_OK;
    if (begins_object(stop, size - (size_t)(stop - bytes)))
        return MICS_OK; /* the first line was cut off */
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' has a JSON object over several lines, not JSON lines: jq -c . puts "
                        "each on a line",
                        path);
}

/* Bytes of the character at `bytes`; 0: none. A character that the end cuts has all that is
 * left. */
static size_t character(const unsigned char *bytes, size_t size)
{
    const unsigned lead = bytes[0];
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;

    if (length <= 1 || lead > 0xf4)
        return lead > 0xf4 ? 0 : length;
    if (size > 1 && (bytes[1] < low || bytes[1] > high))
        return 0;
    for (size_t i = 2; i < length && i < size; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    return mics_min_u64(length, size);
}

void mics_text_count(const unsigned char *bytes, size_t size, uint64_t offset,
                     struct mics_text_counts *counts)
{
    const unsigned char *nul = counts->has_nul ? NULL : memchr(bytes, 0, size);
    size_t at = 0;

    if (nul) {
        counts->has_nul = true;
        counts->nul_at = offset + (uint64_t)(nul - bytes);
    }
    counts->bytes += size;
    while (offset > 0 && at < 3 && at < size && (bytes[at] & 0xc0) == 0x80)
        at++;
    while (at < size) {
        uint64_t word;

        if (size - at >= sizeof word) {
            memcpy(&word, bytes + at, sizeof word);
            if ((word & 0x8080808080808080) == 0) {
                at += sizeof word;
                continue;
            }
        }
        const size_t length = character(bytes + at, size - at);

        counts->invalid += length == 0;
        at += length ? length : 1;
    }
}

enum mics_status mics_text_judge(const char *path, const struct mics_text_counts *counts,
                                 const unsigned char *head, size_t head_size, struct mics_err *err)
{
    char why[64];

    if (!counts->has_nul && counts->invalid * 100 <= counts->bytes)
        return MICS_OK;
    const struct magic *row = find_magic(head, head_size, true);
    const char *wide = counts->has_nul && !row ? guess_wide(head, head_size) : NULL;

    if (wide)
        return refuse(path, wide, TO_UTF8, err);
    if (counts->has_nul)
        snprintf(why, sizeof why, "byte %llu is NUL", (unsigned long long)counts->nul_at);
    else
        snprintf(why, sizeof why, "%.0f %% of its bytes are not UTF-8",
                 100 * (double)counts->invalid / (double)counts->bytes);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' is not text%s%s: %s; --binary takes the bytes as they are", path,
                        row ? ", perhaps " : "", row ? row->what : "", why);
}
