/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_find.h - from patterns to a sorted list of files; corpus.c maps them. */
#ifndef MICS_DATA_CORPUS_FIND_H
#define MICS_DATA_CORPUS_FIND_H

#include "data/corpus.h"

/* Add the files of every pattern, each with its path, size and identity; nothing is opened. */
enum mics_status mics_corpus_find(const char *const *patterns, size_t pattern_count,
                                  struct mics_corpus *corpus, struct mics_err *err);

#endif
