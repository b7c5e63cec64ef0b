/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_tokenizer.h - the tokenizer of a model, a checkpoint or a data set on disk, with the files
 * that travel with it.
 *
 * A data set PREFIX.bin, with or without PREFIX.idx, has a document mics.dataset, PREFIX.mp, whose
 * member "tokenizer" describes it, and the folder PREFIX.tokenizer with its files, if it has any.
 */
#ifndef MICS_DATA_DISK_TOKENIZER_H
#define MICS_DATA_DISK_TOKENIZER_H

#include "base/file.h"
#include "ckpt/tokenizer_files.h"
#include "data/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

#define MICS_DATASET_KIND    "mics.dataset"
#define MICS_DATASET_VERSION 1

/* All zeros: no tokenizer is known. */
struct mics_disk_tokenizer {
    struct mics_tokenizer *tokenizer;
    struct mics_tokenizer_files files; /* none for bytes */
};

/* The caller closes *out also after an error, of all of them. */

/* Open "bytes", or the tokenizer of a file or a folder; in a folder, what other programs read
 * beside it travels, too. A run's folder stands for its latest checkpoint. */
enum mics_status mics_disk_tokenizer_open(const char *path, struct mics_disk_tokenizer *out,
                                          struct mics_err *err);
/* Open the tokenizer that the map `listed` of a document (tokenizer_files.h; or NULL) names, from
 * `folder`, with the end and the fingerprint that are listed. Where there is no fingerprint the end
 * is what the files tell, or `config`, the model's config.json, or NULL. MICS_ERR_FORMAT: a file is
 * missing or has another sum. */
enum mics_status mics_disk_tokenizer_open_listed(const json_t *listed, const char *folder,
                                                 const json_t *config,
                                                 struct mics_disk_tokenizer *out,
                                                 struct mics_err *err);
/* The same for the manifest of a checkpoint. */
enum mics_status mics_disk_tokenizer_open_checkpoint(const json_t *doc, const char *folder,
                                                     struct mics_disk_tokenizer *out,
                                                     struct mics_err *err);
/* Open the tokenizer that a model has: a Hugging Face folder, a checkpoint, or a run's folder. None
 * is no error, and neither is a path of another kind. */
enum mics_status mics_disk_tokenizer_open_model(const char *path, struct mics_disk_tokenizer *out,
                                                struct mics_err *err);
void mics_disk_tokenizer_close(struct mics_disk_tokenizer *tokenizer); /* all zeros is fine */

/* *out = the map for a document; NULL if no tokenizer is known. */
enum mics_status mics_disk_tokenizer_to_json(const struct mics_disk_tokenizer *tokenizer,
                                             json_t **out, struct mics_err *err);

/* Write the files of a data set's tokenizer for PREFIX.bin, instead of those that are there.
 * *listed = the map for its document. */
enum mics_status mics_dataset_write_tokenizer(const struct mics_disk_tokenizer *tokenizer,
                                              const char *prefix, json_t **listed,
                                              struct mics_err *err);
/* *doc = the document of a file of tokens (PREFIX.bin, PREFIX.idx, or PREFIX), a new reference, or
 * NULL: it has none; and the folder that its tokenizer's files are in. */
enum mics_status mics_dataset_read(const char *path, char folder[MICS_PATH_MAX], json_t **doc,
                                   struct mics_err *err);
/* The same for *listed = its map "tokenizer"; NULL: it has no document, or that none. */
enum mics_status mics_dataset_read_tokenizer(const char *path, char folder[MICS_PATH_MAX],
                                             json_t **listed, struct mics_err *err);

/* Is it the tokenizer of such a map, by its fingerprint? A map without one is of any tokenizer. */
bool mics_tokenizer_is_listed(const struct mics_tokenizer *tokenizer, const json_t *listed);

/* *same: every id is the same text in both, though their files may have different forms. */
enum mics_status mics_tokenizers_agree(const struct mics_tokenizer *a,
                                       const struct mics_tokenizer *b, bool *same,
                                       struct mics_err *err);

/* For messages: "bytes", or "tokenizer.json, 50257 ids". Returns buf. */
const char *mics_tokenizer_title(const struct mics_tokenizer *tokenizer, char *buf, size_t size);

#endif
