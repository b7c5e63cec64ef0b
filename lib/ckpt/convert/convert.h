/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - what is done with whole models on disk: one function for each command of mics-shard.
 *
 * Memory is bounded whatever the model: 5 MiB a thread, and the tables of tensors and files. Nothing is left
 * of what failed. MICS_ERR_FORMAT: an input is malformed, or not of this model; all that is wrong with it has
 * been told to request->diagnostics.
 *
 * What makes files is collective over request->comm, whose ranks share the work; all must see the same folders. The
 * first rank makes and names the folder and writes what is small. Every rank returns the same status.
 */
#ifndef MICS_CKPT_CONVERT_OPS_H
#define MICS_CKPT_CONVERT_OPS_H

#include "base/diagnostics.h"
#include "ckpt/convert/shards.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_HF_FILE_BYTES ((uint64_t)5000000000) /* the hub's own limit of a file */

struct mics_convert_request {
    struct mics_comm *comm;
    uint32_t
        host_ranks;  /* of these ranks, how many share the cores of this machine, with this one */
    const char *out; /* the folder to be */
    bool dry;        /* only check, and count */
    struct mics_diagnostics *diagnostics;
    mics_progress_callback *progress; /* or NULL */
    void *progress_context;
    int argc; /* for the history */
    char **argv;
    bool no_history;

    enum mics_number number;
    uint64_t file_bytes; /* the most in a file for Hugging Face */
    const char *base;    /* folder of tokenizer files, or NULL */
};

struct mics_convert_report {
    uint32_t files;
    uint64_t bytes, free_bytes; /* to be written; on the disk, before */
    unsigned tokenizer_files;
};

/* A model of Hugging Face, a folder or files, into shards by a plan: parameters only. The plan's model must be
 * the folder's. */
enum mics_status mics_convert_split(const struct mics_convert_request *request,
                                    const char *const *paths, size_t count, json_t *plan_doc,
                                    struct mics_convert_report *report, struct mics_err *err);

/* A checkpoint's parameters into a folder for Hugging Face. */
enum mics_status mics_convert_merge(const struct mics_convert_request *request, const char *path,
                                    struct mics_convert_report *report, struct mics_err *err);

/* A checkpoint with all its states to another plan of the same model. */
enum mics_status mics_convert_reshard(const struct mics_convert_request *request, const char *path,
                                      json_t *plan_doc, struct mics_convert_report *report,
                                      struct mics_err *err);

/* Hugging Face's tensors to another type: whatever is of F32, F16 or BF16. */
enum mics_status mics_convert_cast(const struct mics_convert_request *request,
                                   const char *const *paths, size_t count,
                                   struct mics_convert_report *report, struct mics_err *err);

/* Is everything whole: sizes, headers, and sums where there are some? Every bad file is told. Collective; of the request
 * `comm`, `host_ranks`, `diagnostics` and the progress count. */
enum mics_status mics_convert_verify(const struct mics_convert_request *request, const char *path,
                                     struct mics_convert_report *report, struct mics_err *err);

/* Compare the sums of a checkpoint's files. Collective: the same result on all ranks. */
enum mics_status mics_convert_check_sums(const struct mics_convert_request *request,
                                         const struct mics_shard_source *source,
                                         struct mics_err *err);

/* A new document mics.tensors. */
enum mics_status mics_convert_list(const char *path, struct mics_diagnostics *diagnostics,
                                   json_t **out, struct mics_err *err);

/* A new document mics.diff of two checkpoints, or models of Hugging Face. *same: no number differs. */
enum mics_status mics_convert_diff(const char *a, const char *b,
                                   struct mics_diagnostics *diagnostics, json_t **out, bool *same,
                                   struct mics_err *err);

/* Tables of the two documents. */
#define MICS_TENSORS_KIND "mics.tensors"
#define MICS_DIFF_KIND    "mics.diff"
enum mics_status mics_tensors_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);
enum mics_status mics_diff_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
