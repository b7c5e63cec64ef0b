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

#include <jansson.h>

#define MICS_HF_FILE_NAME       "model.safetensors"
#define MICS_HF_INDEX_NAME      "model.safetensors.index.json"
#define MICS_HF_INDEX_MAX_BYTES ((size_t)64 << 20)

/* Said of a file of PyTorch. */
#define MICS_HF_PICKLE_ADVICE                                                                      \
    "a pickle: only 'mics-shard split FILE' reads it; to convert it to safetensors, load its "     \
    "folder with transformers' from_pretrained() and save it with save_pretrained()"

struct mics_hf_file {
    char name[256]; /* inside the folder; of a loose file its path */
    struct mics_safetensors header;
};

/* One tensor; its name, dtype and shape belong to the file's header. */
struct mics_hf_tensor {
    const struct mics_safetensor *header;
    uint32_t file;
    uint32_t state; /* 0: a parameter, else a state of the optimizer for it */
    /* Where its numbers are, if not in one run of `file`: extents of this tensor, in order and
     * without gaps. Owned. */
    struct mics_extent *pieces;
    uint32_t piece_count; /* 0: one run */
};

struct mics_hf {
    char folder[MICS_PATH_MAX]; /* empty: loose files */
    struct mics_hf_file *files;
    uint32_t file_count;
    struct mics_hf_tensor *tensors; /* by file, then by place; no name twice */
    size_t tensor_count;
    uint32_t states;    /* of each parameter, 1 or more; 0 as 1 */
    uint64_t step;      /* of the training that the states are of; 0: not known */
    json_t *weight_map; /* of the index that was read; NULL: none */
    struct mics_store
        store; /* its files are open; mics_hf_match() or mics_hf_list_tensors() fills its table */
};

/* Open a folder (by its one file, else by its index), or loose files, and check all headers. A
 * tensor may be in several files if all are equal; one is kept. Everything that is wrong is
 * reported to `diagnostics`. The caller closes *out in any case. */
enum mics_status mics_hf_open(const char *const *paths, size_t count,
                              struct mics_diagnostics *diagnostics, struct mics_hf *out,
                              struct mics_err *err);
void mics_hf_close(struct mics_hf *hf); /* all zeros is fine */

/* Is there a model as above in this folder? */
bool mics_hf_is_folder(const char *path);
/* In a folder without: MICS_ERR_FORMAT, which names a file of a model in another format and says
 * what to do about it. MICS_OK if there is none. */
enum mics_status mics_hf_no_model(const char *folder, struct mics_err *err);

/* Report the names in the index that no file has, unless the model may lack them: those of buffers
 * and of a head, which may be tied. */
void mics_hf_check_index(const struct mics_hf *hf, struct mics_diagnostics *diagnostics);

/* Have two tensors the same shape and the same numbers, in fp32 whatever their types? */
enum mics_status mics_hf_compare(const struct mics_hf *hf, const struct mics_hf_tensor *one,
                                 const struct mics_hf_tensor *two, bool *same,
                                 struct mics_err *err);

/*
 * The index says in which file each tensor is: {"metadata": {"total_size": BYTES}, "weight_map":
 * {TENSOR: FILE, ...}}. Its file names come from outside: none may lead out of the folder.
 */

/* Is it a relative path without "..", backslashes and control characters? */
bool mics_hf_name_is_safe(const char *name);
/* Check an index; *map is its weight_map, whose values are safe names, and the caller's.
 * MICS_ERR_FORMAT. */
enum mics_status mics_hf_index_parse(const char *data, size_t size, json_t **map,
                                     struct mics_err *err);

/* Fill the store's table with the tensors of a model, by their names in Hugging Face's files, with
 * or without the family's prefix and those of wrappers. Buffers are skipped. Either name of a tied
 * pair will do. Tensors that are missing, unknown, of another shape or no floating-point type are
 * reported, and so is a tied head that differs from the embedding. */
enum mics_status mics_hf_match(struct mics_hf *hf, const struct mics_model *model,
                               struct mics_diagnostics *diagnostics, struct mics_err *err);

/* Fill the store's table with every tensor as a vector of its own, in the order of the files. */
enum mics_status mics_hf_list_tensors(struct mics_hf *hf, struct mics_err *err);

/* Files to write. */
struct mics_hf_target {
    struct mics_target target;
    struct mics_section *sections;
    struct mics_safetensor_spec *specs; /* [section]; names are borrowed, or `names` */
    char **headers;                     /* [file] */
    char (*names)[80];
    size_t count;
    uint64_t data_bytes;
};

/* A model's parameters as `dtype`, with the names that the library's own files have. */
enum mics_status mics_hf_target_of_model(const struct mics_model *model,
                                         enum mics_storage_dtype dtype, uint64_t max_file_bytes,
                                         struct mics_hf_target *out, struct mics_err *err);
/* The listed tensors of an opened model: floating-point ones as `dtype`, the rest as they are. */
enum mics_status mics_hf_target_of_hf(const struct mics_hf *hf, enum mics_storage_dtype dtype,
                                      uint64_t max_file_bytes, struct mics_hf_target *out,
                                      struct mics_err *err);
void mics_hf_target_free(struct mics_hf_target *target); /* all zeros is fine */

/* Set in a config.json the tokens that begin and end a text, where `tokenizer` (tokenizer_files.h;
 * or NULL) knows them: otherwise generation would not stop. A configuration that came with the
 * model, model->source, keeps further ends, and a beginning of its own. MICS_ERR_FORMAT: a token is
 * not in the vocabulary. */
enum mics_status mics_hf_add_special_tokens(json_t *config, const struct mics_model *model,
                                            const json_t *tokenizer, struct mics_err *err);

/* Write the index, if there are several files, and config.json: the document `config`, unless it is
 * NULL, with the type of the numbers. */
enum mics_status mics_hf_target_write_metadata(const struct mics_hf_target *target,
                                               const json_t *config, enum mics_storage_dtype dtype,
                                               struct mics_output_folder *folder,
                                               struct mics_err *err);

#endif
