/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - pickles of plain values (Python's pickle, protocols 2 to 5), as JSON.
 *
 * Dicts, lists, strings, whole numbers of 64 bits, floats, booleans and None; keys that are numbers
 * become decimal strings. Nothing is executed: a pickle that makes any other object is refused.
 */
#ifndef MICS_DATA_PICKLE_H
#define MICS_DATA_PICKLE_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* *out is the caller's. Memory is proportional to `size`. MICS_ERR_FORMAT: one line without the
 * path; an opcode that is not supported by its name in Python's pickletools. */
enum mics_status mics_pickle_parse(const unsigned char *bytes, size_t size, json_t **out,
                                   struct mics_err *err);

#endif
