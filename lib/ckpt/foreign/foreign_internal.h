/* SPDX-License-Identifier: Apache-2.0 */
/* foreign_internal.h - the list of tensors that the readers of each format fill. */
#ifndef MICS_CKPT_FOREIGN_FOREIGN_INTERNAL_H
#define MICS_CKPT_FOREIGN_FOREIGN_INTERNAL_H

#include "ckpt/foreign/foreign.h"
#include "ckpt/format/torch_file.h"

/* States by the names that AdamW has in PyTorch and DeepSpeed. */
enum { STATE_PARAM, STATE_EXP_AVG, STATE_EXP_AVG_SQ, STATE_STEP };

/* Bytes of a tensor's name, with the null. */
enum { FOREIGN_NAME_MAX = 512 };

/* What is being opened. */
struct tensor_list {
    struct mics_hf *hf;
    struct mics_safetensor *headers; /* [hf->tensor_count]; names are owned until they are moved */
    size_t room;
    size_t runs;       /* of all boxes */
    size_t name_bytes; /* of all tensors */
    bool has_states[STATE_STEP + 1];
    struct mics_err *err;
};

/* Add a file of the folder, or one by its path; *index is its place in hf->files. */
enum mics_status foreign_add_file(struct tensor_list *list, const char *path, const char *name,
                                  uint32_t *index);

/* Add a tensor; *index is its place. Its numbers are added then. */
enum mics_status foreign_add_tensor(struct tensor_list *list, const char *name, const char *dtype,
                                    const uint64_t *shape, uint32_t rank, uint32_t state,
                                    size_t *index);
/* Add numbers [start, start + count) of a tensor, which lie in a file at `offset`. */
enum mics_status foreign_add_piece(struct tensor_list *list, size_t tensor, uint32_t file,
                                   uint64_t start, uint64_t count, uint64_t offset);

/* A chunk of a tensor. */
struct foreign_box {
    uint64_t offsets[MICS_TORCH_MAX_RANK], sizes[MICS_TORCH_MAX_RANK];
};
/* Add the numbers of a box, which lie one after another in a file from `offset` on. */
enum mics_status foreign_add_box(struct tensor_list *list, size_t tensor,
                                 const struct foreign_box *box, uint32_t file, uint64_t offset);

/* Set the step of training, which all parameters share. */
enum mics_status foreign_set_step(struct tensor_list *list, const char *where, uint64_t step);

/* "exp_avg": its state; -1: another word. */
int foreign_state_of(const char *word);

/* The readers. */
enum mics_status foreign_open_torch_save(struct tensor_list *list, const char *const *paths,
                                         size_t count);
enum mics_status foreign_open_dcp(struct tensor_list *list, const char *folder);
enum mics_status foreign_open_dcp_safetensors(struct tensor_list *list, const char *const *paths,
                                              size_t count);
enum mics_status foreign_open_deepspeed(struct tensor_list *list, const char *folder);

/* The folder of a DeepSpeed checkpoint in `path`: itself, or the one that its file "latest" names.
 * false: there is none. */
bool foreign_find_deepspeed(const char *path, char folder[MICS_PATH_MAX]);

#endif
