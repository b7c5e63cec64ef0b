/* SPDX-License-Identifier: Apache-2.0 */
#include "data/prompts.h"

#include "base/file.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct header {
    char magic[8];
    uint64_t tokens, count, sum;
};

static const char magic[8] = {'M', 'I', 'C', 'S', 'P', 'R', 'M', '1'};

/* ---- reading ---- */

static enum mics_status check(const struct header *header, uint64_t tokens,
                              struct mics_prompts *out, struct mics_err *err)
{
    const uint64_t room = (out->mapped_bytes - sizeof *header) / sizeof *out->borders;

    if (memcmp(header->magic, magic, sizeof magic) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "not a file of prompts");
    if (header->tokens != tokens)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "it is of %" PRIu64 " tokens, but there are %" PRIu64, header->tokens,
                            tokens);
    if (header->count != room || (out->mapped_bytes - sizeof *header) % sizeof *out->borders != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%zu bytes are not those of %" PRIu64 " borders of prompts",
                            out->mapped_bytes, header->count);
    out->count = header->count;
    if (XXH64(out->borders, out->count * sizeof *out->borders, 0) != header->sum)
        return mics_err_set(err, MICS_ERR_FORMAT, "damaged: its checksum is another");
    for (uint64_t i = 0; i < out->count; i++) {
        if (out->borders[i] >= tokens + i % 2 || (i > 0 && out->borders[i] <= out->borders[i - 1]))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "border %" PRIu64 " is %" PRIu64 ", out of order", i,
                                out->borders[i]);
        out->tokens += i % 2 ? out->borders[i] - out->borders[i - 1] : 0;
    }
    if (out->count % 2)
        out->tokens += tokens - out->borders[out->count - 1];
    return MICS_OK;
}

enum mics_status mics_prompts_recognize(const char *path, bool *is, struct mics_err *err)
{
    char begin[sizeof magic];
    struct stat info;
    int fd = -1;

    *is = false;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return MICS_OK;
    const enum mics_status status = mics_file_open_regular(path, &fd, NULL, err);

    if (status != MICS_OK)
        return status;
    *is = pread(fd, begin, sizeof begin, 0) == (ssize_t)sizeof begin &&
          memcmp(begin, magic, sizeof magic) == 0;
    close(fd);
    return MICS_OK;
}

enum mics_status mics_prompts_open(const char *path, uint64_t tokens, struct mics_prompts *out,
                                   struct mics_err *err)
{
    uint64_t bytes = 0;
    int fd = -1;
    enum mics_status status = mics_file_open_regular(path, &fd, &bytes, err);

    *out = (struct mics_prompts){0};
    if (status != MICS_OK)
        return status;
    if (bytes < sizeof(struct header)) {
        status = mics_err_set(err, MICS_ERR_FORMAT, "not a file of prompts");
    } else {
        void *mapping = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

        if (mapping == MAP_FAILED) {
            status = mics_err_set_errno(err, "cannot map");
        } else {
            out->mapping = mapping;
            out->mapped_bytes = bytes;
            out->borders = (const uint64_t *)((const struct header *)mapping + 1);
            status = check(mapping, tokens, out, err);
        }
    }
    close(fd);
    if (status != MICS_OK) {
        mics_err_prefix(err, "'%s'", path);
        mics_prompts_close(out);
    }
    return status;
}

void mics_prompts_close(struct mics_prompts *prompts)
{
    if (prompts->mapping)
        munmap(prompts->mapping, prompts->mapped_bytes);
    *prompts = (struct mics_prompts){0};
}

void mics_prompts_mark(const struct mics_prompts *prompts, uint64_t first, uint32_t length,
                       uint32_t *ids)
{
    uint64_t low = 0, high = prompts->count, at = first;
    const uint64_t end = first + length;

    while (low < high) { /* how many borders are at or before `first` */
        const uint64_t middle = low + (high - low) / 2;

        if (prompts->borders[middle] <= first)
            low = middle + 1;
        else
            high = middle;
    }
    for (; at < end; low++) {
        const uint64_t border = low < prompts->count ? prompts->borders[low] : end;
        const uint64_t stop = border < end ? border : end;

        for (uint64_t i = at; low % 2 && i < stop; i++)
            ids[i - first] |= MICS_TOKEN_PROMPT;
        at = stop;
    }
}

/* ---- writing ---- */

struct mics_prompts_writer {
    struct mics_file_writer *file;
    XXH64_state_t *hash;
    struct header header;
    bool inside; /* of a run */
};

enum mics_status mics_prompts_create(const char *path, struct mics_prompts_writer **out,
                                     struct mics_err *err)
{
    struct mics_prompts_writer *writer = calloc(1, sizeof *writer);
    enum mics_status status = writer ? mics_file_create(path, &writer->file, err) : MICS_OK;

    *out = NULL;
    if (!writer)
        return mics_err_nomem(err);
    memcpy(writer->header.magic, magic, sizeof magic);
    writer->hash = XXH64_createState();
    if (status == MICS_OK && !writer->hash)
        status = mics_err_nomem(err);
    if (status == MICS_OK &&
        fwrite(&writer->header, sizeof writer->header, 1, mics_file_stream(writer->file)) != 1)
        status = mics_err_set_errno(err, "'%s'", path);
    if (status != MICS_OK) {
        mics_prompts_discard(writer);
        return status;
    }
    XXH64_reset(writer->hash, 0);
    *out = writer;
    return MICS_OK;
}

enum mics_status mics_prompts_append(struct mics_prompts_writer *writer, const uint32_t *ids,
                                     size_t count, struct mics_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t border = writer->header.tokens++;

        if (((ids[i] & MICS_TOKEN_PROMPT) != 0) == writer->inside)
            continue;
        writer->inside = !writer->inside;
        writer->header.count++;
        XXH64_update(writer->hash, &border, sizeof border);
        if (fwrite(&border, sizeof border, 1, mics_file_stream(writer->file)) != 1)
            return mics_err_set_errno(err, "cannot write the prompts");
    }
    return MICS_OK;
}

enum mics_status mics_prompts_commit(struct mics_prompts_writer *writer, struct mics_err *err)
{
    FILE *stream = mics_file_stream(writer->file);

    writer->header.sum = XXH64_digest(writer->hash);
    if (fseeko(stream, 0, SEEK_SET) != 0 ||
        fwrite(&writer->header, sizeof writer->header, 1, stream) != 1) {
        const enum mics_status status = mics_err_set_errno(err, "cannot write the prompts");

        mics_prompts_discard(writer);
        return status;
    }
    const enum mics_status status = mics_file_commit(writer->file, err);

    writer->file = NULL;
    mics_prompts_discard(writer);
    return status;
}

void mics_prompts_discard(struct mics_prompts_writer *writer)
{
    if (!writer)
        return;
    mics_file_discard(writer->file);
    XXH64_freeState(writer->hash);
    free(writer);
}
