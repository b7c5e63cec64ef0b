/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corpus.h - the files of a data set, found by patterns; those of text are mapped into memory.
 *
 * Documents are sorted by path (by bytes, whatever the locale), so every rank and every run has
 * them in the same order. A file that several patterns match, or that has two names, counts once.
 */
#ifndef MICS_DATA_CORPUS_H
#define MICS_DATA_CORPUS_H

#include "data/document.h"

/* Below the usual limit of mappings of a process (vm.max_map_count). */
#define MICS_CORPUS_MAX_FILES 60000

/* Immutable once open. */
struct mics_corpus {
    struct mics_document *documents;
    size_t count, capacity;
    bool binary;          /* files are taken as they are, see document.h */
    uint64_t stored;      /* bytes of all files */
    uint64_t bytes;       /* of all documents */
    uint64_t fingerprint; /* see mics_corpus_map() */
};

/* The next of several words in one string that blanks separate, a blank in a word written "\ ":
 * *text moves behind it, and *length is its length. NULL: there is none. */
const char *mics_corpus_next_word(const char **text, size_t *length);
/* After a failure of mics_corpus_add() for a word of `text`: if no file matches and there are
 * several words, say how a blank is written. */
void mics_corpus_explain_words(const char *text, struct mics_err *err);

/* Find the files that match a pattern as of glob(3), and add them. With wildcards it skips folders.
 * `suffix`, unless NULL, is appended where nothing matches a pattern without wildcards.
 * MICS_ERR_FORMAT, with the pattern or path quoted: a pattern without wildcards names a folder or a
 * file that is not regular, or it matches no file. */
enum mics_status mics_corpus_add(struct mics_corpus *corpus, const char *pattern,
                                 const char *suffix, struct mics_err *err);
/* Sort the files that were added, keeping one name of each. MICS_ERR_FORMAT: none, or too many. */
enum mics_status mics_corpus_sort(struct mics_corpus *corpus, struct mics_err *err);

/* Recognise the files by mics_document_recognize(). */
enum mics_status mics_corpus_recognize(struct mics_corpus *corpus, bool binary,
                                       struct mics_err *err);

/* Open a document, the next in order, and count it and its fingerprint. */
enum mics_status mics_corpus_open_next(struct mics_corpus *corpus, size_t index,
                                       struct mics_err *err);
/* MICS_ERR_FORMAT: there was no text at all. */
enum mics_status mics_corpus_check_text(const struct mics_corpus *corpus, struct mics_err *err);
/* Both for all documents. The fingerprint is that of the text of all documents, one after another.
 * It depends neither on names nor on compression. */
enum mics_status mics_corpus_map(struct mics_corpus *corpus, struct mics_err *err);

/* XXH64 over `size` and the bytes; of more than 1 MiB the first and the last 512 KiB count. */
uint64_t mics_corpus_fingerprint(uint64_t seed, const void *bytes, uint64_t size);

/* Find, sort and recognise files, to be mapped: the words of `patterns` are patterns, unless all of
 * one is the path of a file. */
enum mics_status mics_corpus_find(const char *const *patterns, size_t pattern_count, bool binary,
                                  struct mics_corpus *corpus, struct mics_err *err);
void mics_corpus_close(struct mics_corpus *corpus); /* all zeros is fine */

/* MICS_ERR_ARG: the output at `path` would replace a file of the corpus. */
enum mics_status mics_corpus_check_output(const struct mics_corpus *corpus, const char *path,
                                          struct mics_err *err);

/* The path of the file that `address` is mapped from, or NULL. Async-signal-safe. */
typedef const char *mics_find_mapping(const void *context, const void *address);
/* Such a function for the text of a corpus. */
const char *mics_corpus_find_path(const void *corpus, const void *address);

/* Handle SIGBUS, which reading a mapped file that was truncated raises: print one line with the
 * path on standard error and exit with status 1. A SIGBUS from elsewhere ends the process as usual.
 * `context` and `program`, which begins the line, must not go away. */
enum mics_status mics_handle_sigbus(mics_find_mapping *find, const void *context,
                                    const char *program, struct mics_err *err);

#endif
