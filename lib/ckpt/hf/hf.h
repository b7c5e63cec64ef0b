/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf.h - models as Hugging Face keeps them: a folder of safetensors files with config.json.
 */
#ifndef MICS_CKPT_HF_HF_H
#define MICS_CKPT_HF_HF_H

#include "base/diagnostics.h"
#include "ckpt/convert/target.h"
#include "ckpt/format/safetensors.h"
#include "ckpt/store.h"
#include "model/model.h"

#define MICS_HF_FILE_NAME "model.safetensors"

struct mics_hf_file {
    char name[256]; /* inside the folder; of a loose file its path */
    struct mics_safetensors header;
};

/* One tensor; its name, dtype and shape belong to the file's header. */
struct mics_hf_tensor {
    const struct mics_safetensor *is;
    uint32_t file;
};

struct mics_hf {
    char folder[MICS_PATH_MAX]; /* empty: loose files */
    struct mics_hf_file *files;
    uint32_t file_count;
    struct mics_hf_tensor *tensors; /* by file, then by place */
    size_t tensor_count;
    struct mics_store store; /* its files are open; its table is for who knows the spaces */
};

/* Open a folder (by its index, or its one file), or loose files, and check all headers, and that index and
 * files tell the same. Everything that is wrong is told. Closed by the caller in any case. */
enum mics_status mics_hf_open(const char *const *paths, size_t count,
                              struct mics_diagnostics *problems, struct mics_hf *out,
                              struct mics_err *err);
void mics_hf_close(struct mics_hf *hf); /* of zeros is fine */

/* Is there a model as above in this folder? */
bool mics_hf_is_folder(const char *path);

/* Fill the store's table with the tensors of a model, by their names in Hugging Face's files: with or without
 * the family's prefix; buffers and a tied head are passed over. All that are missing, unknown, of another
 * shape or of no floating-point type are told. A tied head that is not the embedding's equal is one of these. */
enum mics_status mics_hf_match(struct mics_hf *hf, const struct mics_model *model,
                               struct mics_diagnostics *problems, struct mics_err *err);

/* The same with each tensor a space of its own, in the order of the files. */
enum mics_status mics_hf_spread(struct mics_hf *hf, struct mics_err *err);

/* Files to be. */
struct mics_hf_target {
    struct mics_target target;
    struct mics_section *sections;
    struct mics_safetensor_spec *specs; /* [section]; names are borrowed, or `names` */
    char **headers;                     /* [file] */
    char (*names)[80];
    size_t count;
    uint64_t data_bytes;
};

/* Of a model's parameters as `number`, with the names that the library's own files have. */
enum mics_status mics_hf_target_of_model(const struct mics_model *model,
                                         enum mics_storage_dtype dtype, uint64_t max_file_bytes,
                                         struct mics_hf_target *out, struct mics_err *err);
/* Of an opened and spread model: what is floating-point as `number`, the rest as it is. */
enum mics_status mics_hf_target_of_hf(const struct mics_hf *hf, enum mics_storage_dtype dtype,
                                      uint64_t max_file_bytes, struct mics_hf_target *out,
                                      struct mics_err *err);
void mics_hf_target_free(struct mics_hf_target *target); /* of zeros is fine */

/* The index, if there are several files, and config.json: the model's source, or one made of its sizes, with
 * the type of the numbers. `config` is a document, or NULL for none. */
enum mics_status mics_hf_target_finish(const struct mics_hf_target *target, const json_t *config,
                                       enum mics_storage_dtype dtype,
                                       struct mics_output_folder *folder, struct mics_err *err);

/* A new reference; NULL: out of memory. */
json_t *mics_hf_config_of_model(const struct mics_model *model);

/* Copy the files of a tokenizer that are in `base` into the folder. *count: how many there were. */
enum mics_status mics_hf_copy_tokenizer(const char *base, struct mics_output_folder *folder,
                                        unsigned *count, struct mics_err *err);

#endif
