/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - Python's pickles (protocols 2 to 5), read without executing anything.
 *
 * A pickle is a program for a stack machine, which may call any function. This reader runs only the
 * opcodes that build values. A class is a name, which must be one of a list; an object is that name
 * with what it would have been made from. So a file is as safe as its reader: what a class or a
 * value means is left to the caller.
 *
 * Values are nodes of one arena. An object in several places is one node in several places, and a
 * container may contain itself: callers follow paths that they know, and do not walk.
 */
#ifndef MICS_DOC_PICKLE_H
#define MICS_DOC_PICKLE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a pickle; what it is read into takes at most about four times as much. */
#define MICS_PICKLE_MAX_BYTES ((size_t)48 << 20)

enum mics_pickle_kind {
    MICS_PICKLE_ABSENT, /* of node 0 */
    MICS_PICKLE_NONE,
    MICS_PICKLE_BOOL,
    MICS_PICKLE_INTEGER,
    MICS_PICKLE_REAL,
    MICS_PICKLE_TEXT, /* or bytes */
    MICS_PICKLE_LIST,
    MICS_PICKLE_TUPLE,
    MICS_PICKLE_SET,
    MICS_PICKLE_DICT,
    MICS_PICKLE_CLASS,
    MICS_PICKLE_OBJECT,
    MICS_PICKLE_PERSISTENT, /* of a persistent id: its only item */
};

struct mics_pickle;

/* Read a pickle. `allowed`: names of classes and functions, "collections.OrderedDict", ended by
 * NULL; one that ends with '*' stands for all that begin so. *out is the caller's. MICS_ERR_FORMAT:
 * one line without the path, which names a class that is not allowed, or an opcode as Python's
 * pickletools. */
enum mics_status mics_pickle_open(const unsigned char *bytes, size_t size,
                                  const char *const *allowed, struct mics_pickle **out,
                                  struct mics_err *err);
void mics_pickle_close(struct mics_pickle *pickle); /* NULL is fine */

/* Every function below accepts node 0, which is no value, and a node of another kind than expected:
 * it then returns 0, NULL or false. Texts belong to the pickle and end with a NUL. */
uint32_t mics_pickle_root(const struct mics_pickle *pickle);
enum mics_pickle_kind mics_pickle_kind(const struct mics_pickle *pickle, uint32_t node);
bool mics_pickle_integer(const struct mics_pickle *pickle, uint32_t node, int64_t *out);
bool mics_pickle_real(const struct mics_pickle *pickle, uint32_t node, double *out);
/* A text without a NUL inside, or the name of a class. */
const char *mics_pickle_text(const struct mics_pickle *pickle, uint32_t node);

/* The name of the class, or function, of an object, and the tuple of its arguments. */
const char *mics_pickle_class(const struct mics_pickle *pickle, uint32_t node);
uint32_t mics_pickle_args(const struct mics_pickle *pickle, uint32_t node);
/* The state that an object was given; of the pair (None, state) the state. */
uint32_t mics_pickle_state(const struct mics_pickle *pickle, uint32_t node);

/* Items of a list, tuple or set; pairs of a dict. */
size_t mics_pickle_count(const struct mics_pickle *pickle, uint32_t node);
uint32_t mics_pickle_item(const struct mics_pickle *pickle, uint32_t node, size_t index);
/* The value of a key that is a text: of a dict, of what was put into an object, or of the state
 * that an object was given. */
uint32_t mics_pickle_get(const struct mics_pickle *pickle, uint32_t node, const char *key);

/* Over items, or over pairs of a dict or of an object that is one. */
struct mics_pickle_iterator {
    const struct mics_pickle *pickle;
    uint32_t cell;
    bool pairs;
};
struct mics_pickle_iterator mics_pickle_begin(const struct mics_pickle *pickle, uint32_t node);
/* false: after the last. *key is 0 unless there are pairs. */
bool mics_pickle_next(struct mics_pickle_iterator *iterator, uint32_t *key, uint32_t *value);

/* A pickle of plain values as JSON: dicts, lists, strings, whole numbers of 64 bits, floats,
 * booleans and None; keys that are numbers become decimal strings. One that makes any other object
 * is refused. *out is the caller's. Errors as above. */
enum mics_status mics_pickle_parse(const unsigned char *bytes, size_t size, json_t **out,
                                   struct mics_err *err);

#endif
