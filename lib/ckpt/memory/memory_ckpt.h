/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_ckpt.h - the training state in the shared memory of a node, as files.
 *
 *     /dev/shm/mics-UID-ID/shard-00002-of-00008.0     two generations of each shard that the
 *     /dev/shm/mics-UID-ID/shard-00002-of-00008.1     node keeps
 *     /dev/shm/mics-UID-ID/manifest-STAMP-000400.mp   of each complete generation
 *     /dev/shm/mics-UID-ID/lock.0                     held by a rank of the node
 *     /dev/shm/mics-UID-ID/reserve                    memory for the next manifest
 *     OUT/.mics-memory/record, tokenizer.json, ...    the record, and files of the tokenizer
 *
 * ID is a random number that the record has: it belongs to one folder of a run, so nothing of
 * another job or folder is found. STAMP is a random number of one start of the job. The record says
 * which stamps are valid: that of the present start, and the generation that it continued. What an
 * older start has left on a node, or a start that was continued from an older state, is not valid.
 *
 * A shard is as in a checkpoint with one file for each shard, without the header of safetensors; a
 * page with its stamp, step and XXH64 precedes it, and is cleared while the shard is written. The
 * manifest is that of such a checkpoint, and as there it is written last. Only the user can read
 * the files.
 */
#ifndef MICS_CKPT_MEMORY_MEMORY_CKPT_H
#define MICS_CKPT_MEMORY_MEMORY_CKPT_H

#include "base/file.h"
#include "ckpt/manifest.h"

#define MICS_MEMORY_CKPT_ROOT     "/dev/shm"
#define MICS_MEMORY_CKPT_RECORD   ".mics-memory"
#define MICS_MEMORY_CKPT_DATA     4096u      /* bytes before the data of a shard */
#define MICS_MEMORY_CKPT_MANIFEST UINT32_MAX /* as a shard's number: a manifest */

/* The page before the data. */
struct mics_memory_ckpt_header {
    char magic[8];
    uint32_t version, shard, shards, unused;
    uint64_t stamp, step, bytes, xxh64;
    uint64_t header_xxh64; /* of the members before */
};

/* A shard of one generation, mapped. */
struct mics_memory_ckpt_shard {
    char path[MICS_PATH_MAX];
    struct mics_memory_ckpt_header *header;
    float *data;
    uint64_t bytes; /* of the data */
};

/* Which state a run folder has in memory. */
struct mics_memory_ckpt_record {
    uint64_t id, inode; /* inode: of the folder, so that a copy of it has no state */
    uint64_t stamp;
    uint64_t from_stamp, from_step; /* the generation that the start continued; 0: none */
    uint64_t step;                  /* of the newest generation; 0: none yet */
};

/* Read OUT's record. *found is false, without an error, if there is none or if it is of another
 * folder. */
enum mics_status mics_memory_ckpt_record_read(const char *out,
                                              struct mics_memory_ckpt_record *record, bool *found,
                                              struct mics_err *err);
/* Parse the text of a record; false: it is none. */
bool mics_memory_ckpt_record_parse(const char *text, struct mics_memory_ckpt_record *record);
/* Creates its folder if needed. */
enum mics_status mics_memory_ckpt_record_write(const char *out,
                                               struct mics_memory_ckpt_record *record,
                                               struct mics_err *err);
/* Remove it with its folder. */
void mics_memory_ckpt_record_remove(const char *out);

/* A new id or stamp, not 0. */
uint64_t mics_memory_ckpt_random(void);

/* buf[MICS_PATH_MAX] = the folder of state `id` on a node. `declared`: the number of a node that
 * shares its machine with others, or -1. */
enum mics_status mics_memory_ckpt_folder(const char *root, uint64_t id, int declared, char *buf,
                                         struct mics_err *err);

/* Create the folder, and hold the lock of this rank of the node until the descriptor *lock is
 * closed. MICS_ERR_IO: the folder belongs to another user, or a rank of another job has the lock
 * and does not end within some seconds. */
enum mics_status mics_memory_ckpt_folder_open(const char *folder, uint32_t local_rank, int *lock,
                                              struct mics_err *err);
/* Remove it with its files, unless it belongs to another user. */
void mics_memory_ckpt_folder_remove(const char *folder);

/* Create the file of a shard, or take over one of the right size, with all of its memory, and map
 * it. Its header stays as it is. MICS_ERR_IO: there is not enough memory. */
enum mics_status mics_memory_ckpt_shard_open(const char *folder, uint32_t shard, uint32_t shards,
                                             uint32_t generation, uint64_t bytes,
                                             struct mics_memory_ckpt_shard *out,
                                             struct mics_err *err);
void mics_memory_ckpt_shard_close(struct mics_memory_ckpt_shard *shard); /* all zeros is fine */

/* Make a shard absent, before its data change, and complete, after they have. */
void mics_memory_ckpt_shard_clear(struct mics_memory_ckpt_shard *shard);
void mics_memory_ckpt_shard_complete(struct mics_memory_ckpt_shard *shard,
                                     const struct mics_memory_ckpt_header *header);

/* The header of a shard whose data have this checksum. */
struct mics_memory_ckpt_header mics_memory_ckpt_header(uint32_t shard, uint32_t shards,
                                                       uint64_t stamp, uint64_t step,
                                                       uint64_t bytes, uint64_t xxh64);
/* Is it a whole header of this version? */
bool mics_memory_ckpt_header_valid(const struct mics_memory_ckpt_header *header);

/* Write and read the manifest of a generation. */
enum mics_status mics_memory_ckpt_manifest_path(const char *folder, uint64_t stamp, uint64_t step,
                                                char *buf, struct mics_err *err);

/* A file of a node's folder: a complete shard, or a manifest. */
struct mics_memory_ckpt_entry {
    uint64_t stamp, step, xxh64; /* all 0: the header of the shard is damaged */
    uint32_t shard, shards, generation;
    uint32_t node;    /* set by the caller */
    uint32_t damaged; /* listing sees damaged headers; of what they say the caller sets it */
};

/* List the files of a folder that belong to this user and that nobody else can write, without
 * incomplete shards. *entries belongs to the caller. A missing folder has none. */
enum mics_status mics_memory_ckpt_list(const char *folder, struct mics_memory_ckpt_entry **entries,
                                       uint32_t *count, struct mics_err *err);

/* Compare the data of a shard, or a manifest, with its checksum. MICS_ERR_FORMAT: they differ. */
enum mics_status mics_memory_ckpt_verify(const char *folder,
                                         const struct mics_memory_ckpt_entry *entry,
                                         struct mics_err *err);
enum mics_status mics_memory_ckpt_shard_path(const char *folder, uint32_t shard, uint32_t shards,
                                             uint32_t generation, char *buf, struct mics_err *err);

/* Remove the complete shards and manifests of a folder, except those of this stamp and step (0: of
 * all steps), and, if asked, the incomplete ones. */
enum mics_status mics_memory_ckpt_prune(const char *folder, uint64_t stamp, uint64_t step,
                                        bool incomplete, struct mics_err *err);

#endif
