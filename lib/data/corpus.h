/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corpus.h - the text files of a training run, found by patterns and mapped into memory.
 *
 * Documents are sorted by path (by bytes, whatever the locale), so that every rank and every run sees
 * the same order. A file that several patterns match, or that has two names, counts once.
 */
#ifndef MICS_DATA_CORPUS_H
#define MICS_DATA_CORPUS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* More mappings than this meet the kernel's usual limit of a process (vm.max_map_count). */
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

/* Open the files that `patterns` (shell patterns as of glob(3); several in one string separated by
 * blanks, a blank in a name written "\ ") match. Folders that a pattern with wildcards matches are
 * skipped; a folder or another file that is not regular, when named, is an error, and so is a pattern
 * that matches no file, or no text at all. All these: MICS_ERR_FORMAT, with the pattern or path quoted.
 *
 * The fingerprint is XXH64 over the sizes of the documents and their bytes; of documents over 1 MiB
 * the first and last 512 KiB count. It does not depend on names. */
enum mics_status mics_corpus_open(const char *const *patterns, size_t pattern_count,
                                  struct mics_corpus *corpus, struct mics_err *err);
void mics_corpus_close(struct mics_corpus *corpus); /* of zeros is fine */

/* The path of the document that `address` is in, or NULL. Async-signal-safe: for SIGBUS, which says that
 * a mapped file was truncated. */
const char *mics_corpus_at(const struct mics_corpus *corpus, const void *address);

/*
 * guard.h - a data file that is cut short while it is mapped.
 *
 * Reading past its new end is SIGBUS. With the guard that is one line on standard error, naming the
 * file, and exit status 1; a SIGBUS from elsewhere ends the process as usual.
 */

/* Guard one corpus of the process; it and `program`, which begins the line, must stay. */
enum mics_status mics_data_guard(const char *program, const struct mics_corpus *corpus,
                                 struct mics_err *err);

#endif
