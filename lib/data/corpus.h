/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corpus.h - the text files of a training run, found by patterns and mapped into memory.
 *
 * Documents are sorted by path (by bytes, whatever the locale), so every rank and every run has
 * them in the same order. A file that several patterns match, or that has two names, counts once.
 */
#ifndef MICS_DATA_CORPUS_H
#define MICS_DATA_CORPUS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Below the usual limit of mappings of a process (vm.max_map_count). */
#define MICS_CORPUS_MAX_FILES 60000

struct mics_document {
    char *path;
    const unsigned char *bytes; /* mapped, read only; NULL for an empty file */
    uint64_t size;
    uint64_t device, inode;
};

/* Immutable once open. */
struct mics_corpus {
    struct mics_document *documents;
    size_t count, capacity;
    uint64_t bytes;       /* of all documents */
    uint64_t fingerprint; /* see mics_corpus_open() */
};

/* Open the files that match `patterns`: shell patterns as of glob(3), several in one string
 * separated by blanks, a blank in a name written "\ ". A pattern with wildcards skips the folders
 * that it matches. MICS_ERR_FORMAT, with the pattern or path quoted: a pattern without wildcards
 * names a folder or a file that is not regular, a pattern matches no file, or there is no text at
 * all.
 *
 * The fingerprint is XXH64 over the sizes of the documents and their bytes; of documents over 1 MiB
 * the first and the last 512 KiB count. It does not depend on names. */
enum mics_status mics_corpus_open(const char *const *patterns, size_t pattern_count,
                                  struct mics_corpus *corpus, struct mics_err *err);
void mics_corpus_close(struct mics_corpus *corpus); /* all zeros is fine */

/* Handle SIGBUS, which reading a mapped file that was truncated raises: print one line with the
 * path on standard error and exit with status 1. A SIGBUS from elsewhere ends the process as usual.
 * For one corpus of the process; it and `program`, which begins the line, must not go away. */
enum mics_status mics_corpus_handle_sigbus(const struct mics_corpus *corpus, const char *program,
                                           struct mics_err *err);

#endif
