/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "data/token_file.h"
#include "data/token_format.h"
#include "data/token_index.h"
#include "data/tokens.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define NARROW_VOCAB 65536 /* ids of so many tokens take 2 bytes */
#define CHUNK_IDS    8192
#define WRITE_BACK   ((uint64_t)8 << 20) /* bytes */

struct mics_token_writer {
    char bin[MICS_PATH_MAX], idx[MICS_PATH_MAX];
    enum mics_token_format format;
    uint32_t vocab_size, width;
    struct mics_file_writer *file;
    struct mics_prompts_writer *prompts; /* NULL: none are kept */
    XXH64_state_t *hash;
    uint64_t count, document; /* ids of all, and of the document that has not ended */
    uint64_t written_back;    /* bytes */
    int32_t *lengths;         /* of documents, for Megatron's index */
    uint64_t length_count, length_capacity;
    unsigned char chunk[CHUNK_IDS * 4];
};

/* An index beside a file of llm.c would be taken for that file's. */
enum mics_status mics_token_writer_check(const char *path, enum mics_token_format format,
                                         struct mics_err *err)
{
    char prefix[MICS_PATH_MAX], index[MICS_PATH_MAX];
    struct stat info;
    enum mics_status status = mics_token_prefix(path, prefix, err);

    if (status == MICS_OK)
        status = mics_path_format(index, err, "%s.idx", prefix);
    if (status != MICS_OK || format == MICS_TOKENS_MEGATRON || lstat(index, &info) != 0)
        return status;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' is there, and '%.600s.bin' would be read with it: choose another "
                        "name",
                        index, prefix);
}

static enum mics_status write_header(struct mics_token_writer *writer, struct mics_err *err)
{
    const struct mics_llmc_form *form = &mics_llmc_forms[writer->width == 2 ? 0 : 1];
    const int32_t header[MICS_LLMC_HEADER / 4] = {form->magic, form->version,
                                                  (int32_t)writer->count};
    FILE *stream = mics_file_stream(writer->file);

    if (fseeko(stream, 0, SEEK_SET) != 0 || fwrite(header, sizeof header, 1, stream) != 1)
        return mics_err_set_errno(err, "'%s'", writer->bin);
    return MICS_OK;
}

static enum mics_status begin(struct mics_token_writer *writer, const char *path,
                              struct mics_err *err)
{
    char prefix[MICS_PATH_MAX];

    enum mics_status status = mics_token_prefix(path, prefix, err);

    if (status != MICS_OK)
        return status;
    status = mics_path_format(writer->bin, err, "%s.bin", prefix);
    if (status != MICS_OK)
        return status;
    status = mics_path_format(writer->idx, err, "%s.idx", prefix);
    if (status != MICS_OK)
        return status;
    status = mics_token_writer_check(path, writer->format, err);
    if (status != MICS_OK)
        return status;
    status = mics_file_create(writer->bin, &writer->file, err);
    if (status != MICS_OK)
        return status;
    writer->hash = XXH64_createState();
    if (!writer->hash)
        return mics_err_nomem(err);
    XXH64_reset(writer->hash, 0);
    return writer->format == MICS_TOKENS_LLMC ? write_header(writer, err) : MICS_OK;
}

enum mics_status mics_token_writer_open(const char *path, enum mics_token_format format,
                                        uint32_t vocab_size, struct mics_token_writer **out,
                                        struct mics_err *err)
{
    struct mics_token_writer *writer;
    enum mics_status status;

    *out = NULL;
    if (format == MICS_TOKENS_RAW)
        return mics_err_set(err, MICS_ERR_ARG, "files without a header are only read");
    writer = calloc(1, sizeof *writer);
    if (!writer)
        return mics_err_nomem(err);
    writer->format = format;
    writer->vocab_size = vocab_size;
    writer->width = vocab_size <= NARROW_VOCAB ? 2 : 4;
    status = begin(writer, path, err);
    if (status == MICS_OK)
        *out = writer;
    else
        mics_token_writer_free(writer);
    return status;
}

enum mics_status mics_token_writer_keep_prompts(struct mics_token_writer *writer,
                                                struct mics_err *err)
{
    char prefix[MICS_PATH_MAX], path[MICS_PATH_MAX];
    enum mics_status status = mics_token_prefix(writer->bin, prefix, err);

    if (status == MICS_OK)
        status = mics_path_format(path, err, "%s" MICS_PROMPTS_SUFFIX, prefix);
    return status == MICS_OK ? mics_prompts_create(path, &writer->prompts, err) : status;
}

/* Let the disk write while text is encoded, so that little is left to the fsync at the end. Only an
 * advice: a failure changes nothing. */
static void write_back(struct mics_token_writer *writer)
{
    const uint64_t bytes = writer->count * writer->width;

    if (bytes - writer->written_back < WRITE_BACK)
        return;
    sync_file_range(fileno(mics_file_stream(writer->file)), (off_t)writer->written_back,
                    (off_t)(bytes - writer->written_back), SYNC_FILE_RANGE_WRITE);
    writer->written_back = bytes;
}

static enum mics_status append_chunk(struct mics_token_writer *writer, const uint32_t *ids,
                                     size_t count, struct mics_err *err)
{
    const size_t bytes = count * writer->width;
    const uint32_t bits = writer->prompts ? ~MICS_TOKEN_PROMPT : UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        const uint32_t id = ids[i] & bits;
        const uint16_t narrow = (uint16_t)id;

        if (id >= writer->vocab_size)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "token %" PRIu64 " is %" PRIu32
                                ", outside of the vocabulary of %" PRIu32,
                                writer->count + i, id, writer->vocab_size);
        if (writer->width == 2)
            memcpy(writer->chunk + 2 * i, &narrow, 2);
        else
            memcpy(writer->chunk + 4 * i, &id, 4);
    }
    XXH64_update(writer->hash, writer->chunk, bytes);
    if (fwrite(writer->chunk, 1, bytes, mics_file_stream(writer->file)) != bytes)
        return mics_err_set_errno(err, "'%s'", writer->bin);
    if (writer->prompts) {
        const enum mics_status status = mics_prompts_append(writer->prompts, ids, count, err);

        if (status != MICS_OK)
            return status;
    }
    writer->count += count;
    writer->document += count;
    write_back(writer);
    return MICS_OK;
}

static enum mics_status end_document(struct mics_token_writer *writer, struct mics_err *err)
{
    if (writer->document == 0 || writer->format != MICS_TOKENS_MEGATRON)
        return MICS_OK;
    if (writer->length_count == writer->length_capacity) {
        const uint64_t capacity = writer->length_capacity ? 2 * writer->length_capacity : 1024;
        int32_t *lengths = realloc(writer->lengths, capacity * sizeof *lengths);

        if (!lengths)
            return mics_err_nomem(err);
        writer->lengths = lengths;
        writer->length_capacity = capacity;
    }
    writer->lengths[writer->length_count++] = (int32_t)writer->document;
    writer->document = 0;
    return MICS_OK;
}

enum mics_status mics_token_writer_append(struct mics_token_writer *writer, const uint32_t *ids,
                                          size_t count, bool end, struct mics_err *err)
{
    const bool megatron = writer->format == MICS_TOKENS_MEGATRON;
    const uint64_t before = megatron ? writer->document : writer->count;
    enum mics_status status = MICS_OK;

    if (count > INT32_MAX || before + count > INT32_MAX)
        return mics_err_set(
            err, MICS_ERR_FORMAT, "%s cannot have more than %" PRId32 " tokens",
            megatron ? "a document of Megatron's format" : "a file of llm.c's format", INT32_MAX);
    for (size_t done = 0; status == MICS_OK && done < count; done += CHUNK_IDS)
        status = append_chunk(writer, ids + done,
                              count - done < CHUNK_IDS ? count - done : CHUNK_IDS, err);
    return status == MICS_OK && end ? end_document(writer, err) : status;
}

static enum mics_status write_index(struct mics_token_writer *writer, struct mics_err *err)
{
    struct mics_file_writer *file;
    enum mics_status status = mics_file_create(writer->idx, &file, err);

    if (status != MICS_OK)
        return status;
    mics_token_index_write(mics_file_stream(file), writer->width, writer->lengths,
                           writer->length_count);
    return mics_file_commit(file, err);
}

enum mics_status mics_token_writer_finish(struct mics_token_writer *writer, uint64_t *checksum,
                                          struct mics_err *err)
{
    struct mics_file_writer *file = writer->file;
    enum mics_status status = end_document(writer, err);

    if (status != MICS_OK)
        return status;
    if (writer->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "there is no text, and so there are no tokens");
    if (writer->format == MICS_TOKENS_LLMC)
        status = write_header(writer, err);
    if (status != MICS_OK)
        return status;
    *checksum = XXH64_digest(writer->hash);
    if (writer->prompts) {
        struct mics_prompts_writer *prompts = writer->prompts;

        writer->prompts = NULL;
        status = mics_prompts_commit(prompts, err);
        if (status != MICS_OK)
            return status;
    }
    writer->file = NULL;
    status = mics_file_commit(file, err);
    if (status != MICS_OK || writer->format != MICS_TOKENS_MEGATRON)
        return status;
    status = write_index(writer, err);
    if (status != MICS_OK)
        unlink(writer->bin); /* without its index it would be read as another format */
    return status;
}

void mics_token_writer_free(struct mics_token_writer *writer)
{
    if (!writer)
        return;
    mics_file_discard(writer->file);
    mics_prompts_discard(writer->prompts);
    XXH64_freeState(writer->hash);
    free(writer->lengths);
    free(writer);
}
