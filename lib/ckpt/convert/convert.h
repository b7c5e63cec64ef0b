/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - operations on whole models on disk: one function for each command of mics-shard.
 *
 * Memory does not depend on the model: 5 MiB per thread, and the tables of tensors and files. After
 * an error nothing is left on disk. MICS_ERR_FORMAT: an input is malformed, or of another model;
 * each problem has been reported to request->diagnostics.
 *
 * Functions that take a request are collective over request->comm, whose ranks share the work and
 * must see the same folders. Rank 0 creates and names the folder and writes the small files. Every
 * rank returns the same status.
 */
#ifndef MICS_CKPT_CONVERT_CONVERT_H
#define MICS_CKPT_CONVERT_CONVERT_H

#include "base/diagnostics.h"
#include "base/progress.h"
#include "ckpt/ckpt_reader.h"
#include "ckpt/convert/gguf_target.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_HF_FILE_BYTES ((uint64_t)5000000000) /* the hub's limit of a file */

/* What merge writes. */
enum mics_merge_format { MICS_MERGE_HF, MICS_MERGE_GGUF, MICS_MERGE_DCP };

struct mics_convert_request {
    struct mics_comm *comm;
    uint32_t host_ranks; /* of these, how many share the cores of this machine, with this one */
    const char *out;     /* folder to write; of GGUF a file */
    bool dry_run;        /* check and count, but write nothing */
    struct mics_diagnostics *diagnostics;
    mics_progress_callback *progress; /* or NULL */
    void *progress_context;
    int argc; /* for the history */
    char **argv;
    bool no_history;

    enum mics_storage_dtype dtype; /* merge and cast: type to write */
    uint64_t file_bytes;           /* merge and cast: most bytes of a file */
    /* merge and cast: folder of tokenizer files, instead of the source's; or NULL */
    const char *base;
    enum mics_merge_format format;
    /* merge to GGUF, on every rank: the keys of the tokenizer; and matrices as Q8_0 */
    mics_gguf_add_tokenizer *add_tokenizer;
    void *tokenizer_context;
    bool q8_0;
};

struct mics_convert_report {
    uint32_t files;
    uint64_t bytes;           /* to be written */
    uint64_t free_bytes;      /* on the disk, before */
    unsigned tokenizer_files; /* written */
};

/* Hugging Face files (a folder, or single files) to the shards of a plan: parameters only. The plan
 * must be of the same model. */
enum mics_status mics_convert_split(const struct mics_convert_request *request,
                                    const char *const *paths, size_t count, json_t *plan_doc,
                                    struct mics_convert_report *report, struct mics_err *err);

/* The parameters of a checkpoint to Hugging Face files, or to another format: to that of
 * torch.distributed.checkpoint with the states of AdamW. States that are not written are named in
 * request->diagnostics->note. */
enum mics_status mics_convert_merge(const struct mics_convert_request *request, const char *path,
                                    struct mics_convert_report *report, struct mics_err *err);

/* A checkpoint with all its states to another plan of the same model. */
enum mics_status mics_convert_reshard(const struct mics_convert_request *request, const char *path,
                                      json_t *plan_doc, struct mics_convert_report *report,
                                      struct mics_err *err);

/* Hugging Face files to another type: every tensor of F32, F16 or BF16. */
enum mics_status mics_convert_cast(const struct mics_convert_request *request,
                                   const char *const *paths, size_t count,
                                   struct mics_convert_report *report, struct mics_err *err);

/* Check that a model is complete and undamaged: sizes, headers, the sums of a checkpoint and of its
 * tokenizer's files, and that the numbers of Hugging Face files are finite. Every bad file is
 * reported. Uses only these members of the request: comm, host_ranks, diagnostics and progress. */
enum mics_status mics_convert_verify(const struct mics_convert_request *request, const char *path,
                                     struct mics_convert_report *report, struct mics_err *err);

/* Compare the sums of a checkpoint's files with its manifest. Uses the same members of the
 * request. */
enum mics_status mics_convert_verify_sums(const struct mics_convert_request *request,
                                          const struct mics_ckpt_reader *source,
                                          struct mics_err *err);

/* *out = a new document mics.tensors. */
enum mics_status mics_convert_list(const char *path, struct mics_diagnostics *diagnostics,
                                   json_t **out, struct mics_err *err);

/* *out = a new document mics.diff of two models on disk. *same: no number differs. */
enum mics_status mics_convert_diff(const char *a, const char *b,
                                   struct mics_diagnostics *diagnostics, json_t **out, bool *same,
                                   struct mics_err *err);

/* Print the two documents as tables. */
#define MICS_TENSORS_KIND "mics.tensors"
#define MICS_DIFF_KIND    "mics.diff"
enum mics_status mics_tensors_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);
enum mics_status mics_diff_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
