/* SPDX-License-Identifier: Apache-2.0 */
/* convert_part.h - a piece of one file, made by one thread. Private to the conversion. */
#ifndef MICS_CKPT_CONVERT_PART_H
#define MICS_CKPT_CONVERT_PART_H

#include "ckpt/convert/target.h"
#include "ckpt/format/piece_file.h"

#include <pthread.h>
#include <xxhash.h>

#define MICS_PIECE_BYTES ((size_t)2 << 20)

/* Bytes [begin, begin + MICS_PIECE_BYTES) of a file, as far as it goes. */
struct mics_piece {
    uint32_t file;
    uint64_t begin;
};

/* One file while it is made. */
struct mics_making {
    char *path;
    struct mics_piece_file out;
    XXH64_state_t *hash; /* or NULL */
    uint64_t hashed; /* bytes: the piece that begins there is the next. Under the copier's lock */
};

/* What all threads share. */
struct mics_copier {
    const struct mics_store *store;
    const struct mics_target *target;
    struct mics_making *files;
    const atomic_bool *cancel; /* or NULL */
    _Atomic uint64_t done;     /* bytes */
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* a piece was summed, or all is to stop */
};

/* One thread's buffers. */
struct mics_copy_buffers {
    char *out;      /* [MICS_PIECE_BYTES], aligned to MICS_PIECE_ALIGN */
    float *scratch; /* [3 * MICS_STORE_CHUNK] */
};

/* Fill, sum and write one piece. Of a summed file, whoever has a later piece waits for its turn: pieces of a file must be
 * begun in order. */
enum mics_status mics_piece_make(struct mics_copier *copier, const struct mics_piece *piece,
                                 const struct mics_copy_buffers *buffers, struct mics_err *err);

/* The files of a target, which may be none of this rank's: named on all ranks; created by one; opened by whoever has a piece (it may be open already); synced, unless the status tells that
 * they are lost, and closed: the status, or what went wrong. */
enum mics_status mics_copier_name_files(struct mics_copier *copier, const char *folder,
                                        struct mics_err *err);
enum mics_status mics_copier_create_files(struct mics_copier *copier, struct mics_err *err);
enum mics_status mics_copier_open_file(struct mics_copier *copier, uint32_t file,
                                       struct mics_err *err);
enum mics_status mics_copier_close_files(struct mics_copier *copier, enum mics_status status,
                                         struct mics_err *err);
void mics_copier_forget_files(struct mics_copier *copier);

/* Make all threads end soon. */
void mics_copier_stop(struct mics_copier *copier);
bool mics_copier_stops(const struct mics_copier *copier);

#endif
