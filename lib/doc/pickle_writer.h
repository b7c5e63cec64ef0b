/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_writer.h - Python's pickles of protocol 2, which every Python 3 reads.
 *
 * Values are put one after another; containers and objects have a begin and an end. Errors wait
 * until mics_pickle_writer_finish().
 */
#ifndef MICS_DOC_PICKLE_WRITER_H
#define MICS_DOC_PICKLE_WRITER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct mics_pickle_writer;

/* NULL: out of memory. */
struct mics_pickle_writer *mics_pickle_writer_new(void);
void mics_pickle_writer_free(struct mics_pickle_writer *writer); /* NULL is fine */
/* End the pickle: *bytes is the caller's. */
enum mics_status mics_pickle_writer_finish(struct mics_pickle_writer *writer, char **bytes,
                                           size_t *size, struct mics_err *err);

void mics_pickle_put_none(struct mics_pickle_writer *writer);
void mics_pickle_put_false(struct mics_pickle_writer *writer);
void mics_pickle_put_integer(struct mics_pickle_writer *writer, uint64_t value); /* < 2^63 */
void mics_pickle_put_text(struct mics_pickle_writer *writer, const char *text);  /* UTF-8 */
/* A text without spaces that occurs often, and a class or function, "torch.distributed Name" with a
 * space behind the module: written once and then referred to. At most 64 of both; borrowed until
 * the end. */
void mics_pickle_put_key(struct mics_pickle_writer *writer, const char *text);
void mics_pickle_put_class(struct mics_pickle_writer *writer, const char *name);

/* A reference to the value put last, and that value again. */
uint32_t mics_pickle_remember(struct mics_pickle_writer *writer);
void mics_pickle_recall(struct mics_pickle_writer *writer, uint32_t reference);

void mics_pickle_begin_tuple(struct mics_pickle_writer *writer);
void mics_pickle_end_tuple(struct mics_pickle_writer *writer);
void mics_pickle_begin_list(struct mics_pickle_writer *writer);
void mics_pickle_end_list(struct mics_pickle_writer *writer);
void mics_pickle_begin_dict(struct mics_pickle_writer *writer); /* key, value, key, ... */
void mics_pickle_end_dict(struct mics_pickle_writer *writer);

/* An object that is not yet filled: mics_pickle_fill() gives it the value put after it. */
void mics_pickle_put_object(struct mics_pickle_writer *writer, const char *class);
void mics_pickle_fill(struct mics_pickle_writer *writer);
/* An object of named members: as a dict. */
void mics_pickle_begin_object(struct mics_pickle_writer *writer, const char *class);
void mics_pickle_end_object(struct mics_pickle_writer *writer);
/* Call the function put before the last value, a tuple of arguments. */
void mics_pickle_call(struct mics_pickle_writer *writer);
/* What the value put last is the persistent id of. */
void mics_pickle_persistent(struct mics_pickle_writer *writer);

#endif
