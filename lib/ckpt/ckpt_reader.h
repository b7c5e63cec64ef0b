/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_reader.h - reads sharded checkpoints: the reader behind resume, --init, conversions and
 * verify.
 *
 * Opening a reader reads the manifest only. After that there are two ways to read numbers:
 *
 * mics_ckpt_reader_read() and mics_ckpt_reader_read_file() open the files they need, for one
 * thread. mics_ckpt_reader_open_files() opens and checks all files; any number of threads may then
 * call mics_store_read() on reader->store.
 *
 * Memory does not grow with the model. Errors about a file begin with its path. MICS_ERR_FORMAT: a
 * file is missing, has another size than the manifest says or other tensors than its table, or was
 * truncated.
 */
#ifndef MICS_CKPT_CKPT_READER_H
#define MICS_CKPT_CKPT_READER_H

#include "base/diagnostics.h"
#include "base/progress.h"
#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "ckpt/store.h"
#include "comm/comm.h"

#include <stdatomic.h>

/* Must not be moved: the store points into it. Callers only read. */
struct mics_ckpt_reader {
    char folder[MICS_PATH_MAX];
    json_t *doc; /* the manifest as a document */
    struct mics_manifest manifest;
    struct mics_ckpt_table table;
    struct mics_store store;
    uint32_t open_count, max_open; /* files */
};

/* Open the checkpoint in `folder`. `doc` is its manifest if the caller has read it already (the
 * reader keeps a reference), or NULL. MICS_ERR_FORMAT: the manifest is malformed or newer. The
 * caller closes the reader also after an error. */
enum mics_status mics_ckpt_reader_open(const char *folder, json_t *doc,
                                       struct mics_ckpt_reader *reader, struct mics_err *err);
void mics_ckpt_reader_close(struct mics_ckpt_reader *reader); /* all zeros is fine */

/* Open all files and check their sizes and headers. */
enum mics_status mics_ckpt_reader_open_files(struct mics_ckpt_reader *reader, struct mics_err *err);

/* Elements [first, first + count) of the flat vector of a unit, by its index in the table. Elements
 * beyond the end of the unit are padding: 0. Sums are not checked. */
enum mics_status mics_ckpt_reader_read(struct mics_ckpt_reader *reader, uint32_t unit,
                                       uint32_t state, uint64_t first, uint64_t count, float *dst,
                                       struct mics_err *err);

/* Receives elements [first, first + count) of the shard of a unit that a file is a part of. */
typedef enum mics_status mics_ckpt_put(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                       uint64_t count, const float *src, struct mics_err *err);

/* Read a file once from end to end, pass all its elements to `put`, and then compare its XXH64.
 * Elements are passed before the sum is known. The caller provides buffer[capacity]. */
enum mics_status mics_ckpt_reader_read_file(struct mics_ckpt_reader *reader, uint32_t file,
                                            float *buffer, uint64_t capacity, mics_ckpt_put *put,
                                            void *context, struct mics_err *err);

/* Comparison of the files' sums with the manifest, shared by the ranks. */
struct mics_ckpt_verification {
    const struct mics_ckpt_reader *reader;
    uint32_t first, stride;    /* this rank reads files first, first + stride, ... */
    uint32_t host_ranks;       /* processes that share the cores of this machine, with this one */
    const atomic_bool *cancel; /* when true, stop early; or NULL */
    struct mics_progress *progress; /* counts bytes read; or NULL */
    unsigned char *damaged;         /* [file] 1 if the sum differs; by mics_ckpt_verify_files() */
};

/* Read this rank's files, one per core at a time, with 1 MiB of memory each. Any thread. A sum
 * that differs is not an error here. Files that the reader has not opened are opened and closed
 * again. */
enum mics_status mics_ckpt_verify_files(struct mics_ckpt_verification *verification,
                                        struct mics_err *err);

/* Fail if a file is known to be damaged. Each is reported to `diagnostics`; without (NULL), the
 * error names the first. */
enum mics_status mics_ckpt_verify_status(const struct mics_ckpt_verification *verification,
                                         struct mics_diagnostics *diagnostics,
                                         struct mics_err *err);

/* Verify files first, first + stride, ...: an error if one of them is damaged. */
enum mics_status mics_ckpt_verify_own(const struct mics_ckpt_reader *reader, uint32_t first,
                                      uint32_t stride, uint32_t host_ranks,
                                      struct mics_diagnostics *diagnostics, struct mics_err *err);

/* Exchange the results of all ranks; then as mics_ckpt_verify_status(). `status` is what
 * mics_ckpt_verify_files() returned on this rank. Collective; the same result on all ranks. */
enum mics_status mics_ckpt_verify_share(struct mics_ckpt_verification *verification,
                                        struct mics_comm *comm, enum mics_status status,
                                        struct mics_diagnostics *diagnostics, struct mics_err *err);

/* Bytes of this rank's files. */
uint64_t mics_ckpt_verify_bytes(const struct mics_ckpt_verification *verification);
void mics_ckpt_verify_free(struct mics_ckpt_verification *verification); /* all zeros is fine */

#endif
