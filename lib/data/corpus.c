/* SPDX-License-Identifier: Apache-2.0 */
#include "data/corpus.h"

#include "data/corpus_find.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FINGERPRINT_WHOLE ((uint64_t)1 << 20)

static enum mics_status map_fd(struct mics_document *document, int fd, struct mics_err *err)
{
    struct stat info;
    void *bytes;

    if (fstat(fd, &info) != 0)
        return mics_err_set_errno(err, "'%s'", document->path);
    document->size = (uint64_t)info.st_size;
    if (document->size == 0)
        return MICS_OK;
    bytes = mmap(NULL, document->size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return mics_err_set_errno(err, "'%s': cannot map", document->path);
    document->bytes = bytes;
    return MICS_OK;
}

static enum mics_status map(struct mics_document *document, struct mics_err *err)
{
    int fd = open(document->path, O_RDONLY | O_CLOEXEC);
    enum mics_status status;

    if (fd < 0)
        return mics_err_set_errno(err, "'%s'", document->path);
    status = map_fd(document, fd, err);
    close(fd);
    return status;
}

static uint64_t fingerprint_document(uint64_t seed, const struct mics_document *document)
{
    const unsigned char *bytes = document->bytes;
    uint64_t size = document->size, half = FINGERPRINT_WHOLE / 2;
    uint64_t hash = XXH64(&size, sizeof size, seed);

    if (size <= FINGERPRINT_WHOLE)
        return size ? XXH64(bytes, size, hash) : hash;
    hash = XXH64(bytes, half, hash);
    return XXH64(bytes + size - half, half, hash);
}

enum mics_status mics_corpus_open(const char *const *patterns, size_t pattern_count,
                                  struct mics_corpus *corpus, struct mics_err *err)
{
    enum mics_status status;

    *corpus = (struct mics_corpus){0};
    status = mics_corpus_find(patterns, pattern_count, corpus, err);
    for (size_t i = 0; status == MICS_OK && i < corpus->count; i++) {
        status = map(&corpus->documents[i], err);
        corpus->bytes += corpus->documents[i].size;
        if (status == MICS_OK)
            corpus->fingerprint = fingerprint_document(corpus->fingerprint, &corpus->documents[i]);
    }
    if (status == MICS_OK && corpus->bytes == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s'%s: no text, only empty files",
                              corpus->documents[0].path, corpus->count > 1 ? " and others" : "");
    if (status != MICS_OK)
        mics_corpus_close(corpus);
    return status;
}

void mics_corpus_close(struct mics_corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++) {
        struct mics_document *document = &corpus->documents[i];

        if (document->bytes)
            munmap((void *)document->bytes, document->size);
        free(document->path);
    }
    free(corpus->documents);
    *corpus = (struct mics_corpus){0};
}

const char *mics_corpus_at(const struct mics_corpus *corpus, const void *address)
{
    const unsigned char *at = address;

    for (size_t i = 0; i < corpus->count; i++) {
        const struct mics_document *document = &corpus->documents[i];

        if (document->bytes && at >= document->bytes &&
            (uint64_t)(at - document->bytes) < document->size)
            return document->path;
    }
    return NULL;
}
