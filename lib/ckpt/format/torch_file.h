/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.h - files of torch.save (since 1.6): a ZIP archive with a pickle, data.pkl, and the
 * numbers of each tensor, stored as they are. Nothing of a pickle is executed (doc/pickle.h).
 */
#ifndef MICS_CKPT_FORMAT_TORCH_FILE_H
#define MICS_CKPT_FORMAT_TORCH_FILE_H

#include "doc/pickle.h"

enum { MICS_TORCH_MAX_RANK = 8 };

/* An archive: a file, or a part of one. */
struct mics_torch_file {
    struct mics_pickle *pickle;
    struct mics_torch_entry *entries; /* of tensors' numbers, sorted by key */
    size_t entry_count;
};

/* A tensor whose numbers lie one after another. */
struct mics_torch_tensor {
    const char *dtype; /* of safetensors: "F32"; static */
    uint32_t rank;
    uint64_t shape[MICS_TORCH_MAX_RANK], count;
    uint64_t offset; /* of the first number, in bytes, in the whole file */
};

/* Classes that occur in files of PyTorch, DeepSpeed and their users, for mics_pickle_open(). */
extern const char *const mics_torch_classes[];

/* Read the archive in bytes [offset, offset + size) of an open file. The caller closes *out, also
 * after an error. MICS_ERR_FORMAT, without the file's name: it is damaged, compressed or of another
 * format, which is named. */
enum mics_status mics_torch_file_open(int fd, uint64_t offset, uint64_t size,
                                      struct mics_torch_file *out, struct mics_err *err);
void mics_torch_file_close(struct mics_torch_file *file); /* all zeros is fine */

/* Is this value of the pickle a tensor, or a parameter? */
bool mics_torch_is_tensor(const struct mics_torch_file *file, uint32_t node);
/* Describe one. MICS_ERR_FORMAT: its numbers are not in the archive, or do not lie in order. */
enum mics_status mics_torch_tensor(const struct mics_torch_file *file, uint32_t node,
                                   struct mics_torch_tensor *out, struct mics_err *err);

/* The sizes of a torch.Size, a tuple or a list; MICS_ERR_FORMAT: it is none. */
enum mics_status mics_torch_shape(const struct mics_pickle *pickle, uint32_t node, uint64_t *shape,
                                  uint32_t *rank, struct mics_err *err);

/* How many numbers a tensor of these sizes has; false: more than 2^48. */
bool mics_torch_count(const uint64_t *shape, uint32_t rank, uint64_t *count);

/* "F32" of "torch.FloatStorage" or "torch.float32"; NULL: another type. */
const char *mics_torch_dtype(const char *name);

#endif
