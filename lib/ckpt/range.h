/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.h - any range of any unit out of a checkpoint, whatever (n, p, strategy) wrote it.
 *
 *     mics_ckpt_reader_open(folder, NULL, &reader, err);
 *     mics_ckpt_reader_read(reader, unit, MICS_CKPT_PARAM, first, count, floats, err);
 *
 * Only the bytes asked for are read, straight to their place: memory does not grow with the model. A reader
 * is for one thread at a time; several may be open on the same folder.
 */
#ifndef MICS_CKPT_RANGE_H
#define MICS_CKPT_RANGE_H

#include "ckpt/manifest.h"
#include "ckpt/table.h"

enum { MICS_CKPT_PARAM, MICS_CKPT_M, MICS_CKPT_V };

struct mics_ckpt_reader;

/* `doc` is the manifest if it has been read already (it is not kept); NULL: read folder/manifest.mp. Files
 * are opened when they are first needed. MICS_ERR_FORMAT: the manifest is malformed, or newer. */
enum mics_status mics_ckpt_reader_open(const char *folder, const json_t *doc,
                                       struct mics_ckpt_reader **out, struct mics_err *err);
void mics_ckpt_reader_close(struct mics_ckpt_reader *reader); /* NULL is fine */

/* Both live as long as the reader. */
const struct mics_ckpt_table *mics_ckpt_reader_table(const struct mics_ckpt_reader *reader);
const struct mics_manifest *mics_ckpt_reader_manifest(const struct mics_ckpt_reader *reader);

/* Elements [first, first + count) of the flat vector of unit number `unit` of the table, as floats. Any
 * range is legal: what lies beyond the unit's elements is padding, 0. MICS_ERR_FORMAT, beginning with
 * the file's path, when a file is missing, of another size, or has other tensors than the manifest says. Sums
 * are not checked here. */
enum mics_status mics_ckpt_reader_read(struct mics_ckpt_reader *reader, uint32_t unit,
                                       uint32_t state, uint64_t first, uint64_t count, float *dst,
                                       struct mics_err *err);

/* Takes elements [first, first + count) of a unit and state, as places in the shard that the file is a part of. */
typedef enum mics_status mics_ckpt_taker(void *context, uint32_t unit, uint32_t state,
                                         uint64_t first, uint64_t count, const float *src,
                                         struct mics_err *err);

/* Read one file once, from end to end, give all that is in it to `take`, and compare its XXH64 at last. The buffer is the
 * caller's, of `room` floats. Failures are those of read and check. */
enum mics_status mics_ckpt_reader_pass(struct mics_ckpt_reader *reader, uint32_t file,
                                       float *buffer, uint64_t room, mics_ckpt_taker *take,
                                       void *context, struct mics_err *err);

/* Check size and XXH64 of one file (below manifest->file_count), in pieces. MICS_ERR_FORMAT begins with its
 * path. */
enum mics_status mics_ckpt_reader_check(struct mics_ckpt_reader *reader, uint32_t file,
                                        struct mics_err *err);

#endif
