/* SPDX-License-Identifier: Apache-2.0 */
#include "data/token_file.h"

#include "base/file_set.h"
#include "base/num.h"
#include "data/format.h"
#include "data/token_format.h"
#include "data/token_index.h"
#include "doc/pickle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define NARROW_VOCAB   65536 /* ids of so many tokens fit in 2 bytes */
#define META_MAX_BYTES ((size_t)64 << 20)

/* Ids of 64 bits that are looked at to guess the type, at most and at least; and the largest upper
 * half of an id of 32 bits, for vocabularies of 2^20 tokens. */
#define GUESS_IDS   65536
#define GUESS_LEAST 4
#define GUESS_HIGH  15

const char *mics_token_format_name(enum mics_token_format format)
{
    static const char *const names[] = {"llmc", "megatron", "raw"};

    return names[format];
}

const struct mics_llmc_form mics_llmc_forms[2] = {{20240520, 1, 2}, {20240801, 7, 4}};

enum mics_status mics_token_prefix(const char *path, char prefix[MICS_PATH_MAX],
                                   struct mics_err *err)
{
    size_t length = strlen(path);

    if (length > 4 &&
        (strcmp(path + length - 4, ".bin") == 0 || strcmp(path + length - 4, ".idx") == 0))
        length -= 4;
    else if (length > 3 && strcmp(path + length - 3, ".mp") == 0)
        length -= 3;
    return mics_path_format(prefix, err, "%.*s", (int)length, path);
}

struct mapping {
    unsigned char *bytes; /* NULL: empty */
    uint64_t size, device, inode;
};

static enum mics_status map(const char *path, struct mapping *out, struct mics_err *err)
{
    struct stat info;
    enum mics_status status = MICS_OK;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait */

    *out = (struct mapping){0};
    if (fd < 0 || fstat(fd, &info) != 0)
        status = mics_err_set_errno(err, "'%s'", path);
    else if (S_ISDIR(info.st_mode))
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s' is a folder, not a file of tokens", path);
    else if (!S_ISREG(info.st_mode))
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s' is not a regular file", path);
    else
        *out = (struct mapping){.size = (uint64_t)info.st_size,
                                .device = (uint64_t)info.st_dev,
                                .inode = (uint64_t)info.st_ino};
    if (status == MICS_OK && out->size > 0) {
        void *bytes = mmap(NULL, out->size, PROT_READ, MAP_SHARED, fd, 0);

        if (bytes == MAP_FAILED)
            status = mics_err_set_errno(err, "'%s': cannot map", path);
        else
            out->bytes = bytes;
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* The file that has the ids: `path`, or, if there is none, what it is the prefix of. *index: its
 * index, if there is one, else empty. */
static enum mics_status find_files(const char *path, char bin[MICS_PATH_MAX],
                                   char index[MICS_PATH_MAX], struct mics_err *err)
{
    char prefix[MICS_PATH_MAX];
    struct stat info;

    enum mics_status status = mics_token_prefix(path, prefix, err);

    index[0] = '\0';
    if (status == MICS_OK)
        status = mics_file_set_recover(prefix, err);
    if (status != MICS_OK)
        return status;
    const bool exact = strcmp(path, prefix) == 0 && stat(path, &info) == 0;

    status = mics_path_format(bin, err, "%s%s", prefix, exact ? "" : ".bin");
    if (status == MICS_OK && !exact)
        status = mics_path_format(index, err, "%s.idx", prefix);
    if (status == MICS_OK && index[0] && stat(index, &info) != 0) {
        if (errno != ENOENT || strcmp(path, index) == 0)
            return mics_err_set_errno(err, "'%s'", index);
        index[0] = '\0';
    }
    return status;
}

static enum mics_status open_index(struct mics_token_file *file, const char *path,
                                   struct mics_err *err)
{
    struct mics_token_index index = {.count = 0};
    struct mapping mapping;
    enum mics_status status = map(path, &mapping, err);

    if (status != MICS_OK)
        return status;
    status = mics_token_index_parse(mapping.bytes, mapping.size, &index, err);
    if (mapping.bytes)
        munmap(mapping.bytes, mapping.size);
    if (status == MICS_OK && index.count * index.width != file->mapped_bytes) {
        free(index.documents);
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "it describes %" PRIu64 " bytes, but '%s' has %" PRIu64,
                              index.count * index.width, file->path, file->mapped_bytes);
    }
    if (status != MICS_OK) {
        mics_err_prefix(err, "'%s'", path);
        return status;
    }
    file->format = MICS_TOKENS_MEGATRON;
    file->width = index.width;
    file->is_signed = index.is_signed;
    file->count = index.count;
    file->index = index.documents;
    file->documents = index.documents;
    file->document_count = index.document_count;
    return MICS_OK;
}

/* *found: the file has a header of llm.c, and is what it says. */
static enum mics_status open_llmc(struct mics_token_file *file, bool *found, struct mics_err *err)
{
    int32_t header[MICS_LLMC_HEADER / 4];
    const struct mics_llmc_form *form = NULL;

    *found = false;
    if (file->mapped_bytes < sizeof header)
        return MICS_OK;
    memcpy(header, file->bytes, sizeof header);
    if (header[0] == MICS_LLMC_EVAL_MAGIC)
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s': questions of llm.c, not text", file->path);
    for (size_t i = 0; i < 2; i++)
        if (header[0] == mics_llmc_forms[i].magic)
            form = &mics_llmc_forms[i];
    if (!form)
        return MICS_OK;
    if (header[1] != form->version)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s': version %d of llm.c's files: %d is expected after %d",
                            file->path, header[1], form->version, form->magic);
    const uint64_t room = file->mapped_bytes - sizeof header;

    if (header[2] < 0 || (uint64_t)header[2] * form->width != room)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s': the header says %d tokens of %" PRIu32 " bytes, but %" PRIu64
                            " bytes follow it",
                            file->path, header[2], form->width, room);
    *found = true;
    file->format = MICS_TOKENS_LLMC;
    file->width = form->width;
    file->count = (uint64_t)header[2];
    file->bytes += sizeof header;
    return MICS_OK;
}

static enum mics_status parse_meta(const unsigned char *bytes, size_t size, uint32_t *vocab_size,
                                   struct mics_err *err)
{
    json_t *meta = NULL;
    enum mics_status status = mics_pickle_parse(bytes, size, &meta, err);
    const json_t *value = json_object_get(meta, "vocab_size");

    if (status == MICS_OK && (!json_is_integer(value) || json_integer_value(value) < 1 ||
                              json_integer_value(value) > INT32_MAX))
        status = mics_err_set(err, MICS_ERR_FORMAT, "no dict with a number vocab_size");
    if (status == MICS_OK)
        *vocab_size = (uint32_t)json_integer_value(value);
    json_decref(meta);
    return status;
}

/* nanoGPT's description of the files of a folder. *vocab_size is not changed if there is none. */
static enum mics_status read_meta(const char *path, uint32_t *vocab_size, struct mics_err *err)
{
    char parent[MICS_PATH_MAX], meta[MICS_PATH_MAX];
    bool exists = false;
    char *bytes = NULL;
    size_t size = 0;

    mics_path_parent(path, parent);
    enum mics_status status = mics_path_format(meta, err, "%s/meta.pkl", parent);

    if (status == MICS_OK)
        status = mics_file_exists(meta, &exists, err);
    if (status != MICS_OK || !exists)
        return status;
    status = mics_file_read_regular(meta, META_MAX_BYTES, &bytes, &size, err);
    if (status != MICS_OK)
        return status;
    status = parse_meta((const unsigned char *)bytes, size, vocab_size, err);
    free(bytes);
    if (status != MICS_OK)
        mics_err_prefix(err, "'%s' (say u16 or u32 to do without it)", meta);
    return status;
}

/* The upper parts of ids of 32 or 64 bits are zero or small, which ids of 16 bits at the same
 * places are not. *wide: bytes of an id as it seems; 2: nothing is wrong. */
static void guess_width(const struct mics_token_file *file, uint32_t *wide)
{
    const uint64_t count = mics_min_u64(file->mapped_bytes / 8, GUESS_IDS);
    uint16_t largest[4] = {0};

    for (uint64_t i = 0; i < 4 * count; i++) {
        uint16_t id;

        memcpy(&id, file->bytes + 2 * i, sizeof id);
        largest[i % 4] = id > largest[i % 4] ? id : largest[i % 4];
    }
    *wide = 2;
    if (count < GUESS_LEAST || largest[1] > GUESS_HIGH || largest[3] > GUESS_HIGH)
        return;
    /* Where all are small, only zeros tell. */
    const bool certain = largest[1] == 0 && largest[3] == 0;

    if (largest[0] > (certain ? 0 : UINT8_MAX) && largest[2] == 0 && largest[3] == 0)
        *wide = 8;
    else if (largest[0] > (certain ? 0 : UINT8_MAX) && largest[2] > (certain ? 0 : UINT8_MAX))
        *wide = 4;
}

/* MICS_ERR_FORMAT: the ids seem to have another type than the one that is taken because nobody says
 * it. */
static enum mics_status check_width(const struct mics_token_file *file, struct mics_err *err)
{
    uint32_t wide;

    guess_width(file, &wide);
    if (wide == 8)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' seems to have ids of 64 bits: write them with 32, for example "
                            "with numpy's astype('uint32')",
                            file->path);
    if (wide == 4)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' seems to have ids of 32 bits, as each second one of 16 is zero: "
                            "say u32 ('%s:u32' as data, --dtype=u32 for mics-data show), or u16",
                            file->path, file->path);
    return MICS_OK;
}

/* MICS_ERR_FORMAT: the file has something else than ids, by its first bytes, or a name that does
 * not tell their type. */
static enum mics_status check_raw(const struct mics_token_file *file, uint32_t width,
                                  struct mics_err *err)
{
    const size_t length = strlen(file->path);
    const enum mics_status status = mics_format_refuse(
        file->path, file->bytes, mics_min_u64(file->mapped_bytes, MICS_FORMAT_HEAD), true, err);

    if (status != MICS_OK || width || length < 4 || strcmp(file->path + length - 4, ".npy") != 0)
        return status;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' has no header that tells the type of its ids: say u16 or u32 "
                        "('%s:u16' as data, --dtype=u16 for mics-data show)",
                        file->path, file->path);
}

static enum mics_status open_raw(struct mics_token_file *file, uint32_t width, struct mics_err *err)
{
    enum mics_status status = check_raw(file, width, err);

    if (status != MICS_OK)
        return status;
    if (!width)
        status = read_meta(file->path, &file->vocab_size, err);
    if (status != MICS_OK)
        return status;
    file->format = MICS_TOKENS_RAW;
    file->width = width ? width : file->vocab_size > NARROW_VOCAB ? 4 : 2;
    file->count = file->mapped_bytes / file->width;
    if (file->mapped_bytes % file->width != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s': %" PRIu64 " bytes are not a whole number of ids of %" PRIu32
                            " bytes",
                            file->path, file->mapped_bytes, file->width);
    return !width && file->width == 2 ? check_width(file, err) : MICS_OK;
}

/* The prompts beside PREFIX.bin, if there are any. */
static enum mics_status open_prompts(struct mics_token_file *file, struct mics_err *err)
{
    char prefix[MICS_PATH_MAX], path[MICS_PATH_MAX];
    bool is = false;
    enum mics_status status = mics_token_prefix(file->path, prefix, err);

    if (status == MICS_OK)
        status = mics_path_format(path, err, "%s" MICS_PROMPTS_SUFFIX, prefix);
    if (status == MICS_OK)
        status = mics_prompts_recognize(path, &is, err);
    return status == MICS_OK && is ? mics_prompts_open(path, file->count, &file->prompts, err)
                                   : status;
}

enum mics_status mics_token_file_open(const char *path, uint32_t width, struct mics_token_file *out,
                                      struct mics_err *err)
{
    char bin[MICS_PATH_MAX], index[MICS_PATH_MAX];
    struct mapping mapping = {0};
    bool found = false;

    *out = (struct mics_token_file){0};
    enum mics_status status = find_files(path, bin, index, err);

    if (status != MICS_OK)
        return status;
    status = map(bin, &mapping, err);
    if (status != MICS_OK)
        return status;
    *out = (struct mics_token_file){.path = strdup(bin),
                                    .bytes = mapping.bytes,
                                    .mapping = mapping.bytes,
                                    .mapped_bytes = mapping.size,
                                    .device = mapping.device,
                                    .inode = mapping.inode};
    if (!out->path)
        status = mics_err_nomem(err);
    else if (index[0])
        status = open_index(out, index, err);
    else {
        status = open_llmc(out, &found, err);
        if (status == MICS_OK && !found)
            status = open_raw(out, width, err);
    }
    if (status == MICS_OK && out->count == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s': there are no tokens", out->path);
    if (status == MICS_OK)
        status = open_prompts(out, err);
    if (status != MICS_OK)
        mics_token_file_close(out);
    return status;
}

void mics_token_file_close(struct mics_token_file *file)
{
    if (file->mapping)
        munmap(file->mapping, file->mapped_bytes);
    mics_prompts_close(&file->prompts);
    free(file->index);
    free(file->path);
    *file = (struct mics_token_file){0};
}

/* A negative id as the two's complement in 64 bits. */
static uint64_t get_id(const struct mics_token_file *file, uint64_t position)
{
    uint64_t id = 0;

    memcpy(&id, file->bytes + position * file->width, file->width);
    if (file->is_signed && file->width < 8 && id >> (8 * file->width - 1))
        id |= UINT64_MAX << (8 * file->width);
    return id;
}

static enum mics_status refuse_id(const struct mics_token_file *file, uint64_t position,
                                  uint32_t vocab_size, struct mics_err *err)
{
    const uint64_t id = get_id(file, position), sign = (uint64_t)file->is_signed << 63;

    char limit[48] = "not an id";

    if (vocab_size < INT32_MAX)
        snprintf(limit, sizeof limit, "outside of the vocabulary of %" PRIu32, vocab_size);
    return mics_err_set(err, MICS_ERR_FORMAT, "'%s': token %" PRIu64 " is %s%" PRIu64 ", %s",
                        file->path, position, id & sign ? "-" : "", id & sign ? -id : id, limit);
}

enum mics_status mics_token_file_read(const struct mics_token_file *file, uint64_t first,
                                      uint32_t length, uint32_t vocab_size, int32_t *ids,
                                      struct mics_err *err)
{
    const uint32_t vocab =
        file->vocab_size && file->vocab_size < vocab_size ? file->vocab_size : vocab_size;
    const uint64_t limit = vocab < INT32_MAX ? vocab : INT32_MAX;
    uint64_t largest = 0;

    for (uint32_t i = 0; i < length; i++) {
        uint16_t narrow;
        uint64_t id;

        if (file->width == 2 && !file->is_signed) {
            memcpy(&narrow, file->bytes + (first + i) * 2, 2);
            id = narrow;
        } else {
            id = get_id(file, first + i);
        }
        largest = id > largest ? id : largest;
        ids[i] = (int32_t)id;
    }
    if (length == 0 || largest < limit)
        return MICS_OK;
    while (get_id(file, first) < limit)
        first++;
    return refuse_id(file, first, vocab, err);
}

uint64_t mics_token_file_checksum(const struct mics_token_file *file)
{
    return XXH64(file->bytes, file->count * file->width, 0);
}
