/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_internal.h - the arena that pickle.c fills and pickle_values.c reads. */
#ifndef MICS_DOC_PICKLE_INTERNAL_H
#define MICS_DOC_PICKLE_INTERNAL_H

#include "doc/pickle.h"

struct node {
    uint8_t kind;
    bool is_true;
    uint16_t depth; /* of plain containers: 1 and that of the deepest item */
    uint32_t count; /* cells of a container; bytes of a text */
    union {
        int64_t integer;
        double real;
        struct {
            uint32_t first, last; /* cells; 0: none */
        } cells;
        uint64_t text; /* in the pool */
        struct {
            uint32_t object; /* index in objects */
        } object;
    } is;
};

struct cell {
    uint32_t node, next;
};

/* What an object is made of: nodes, 0 where there is none. */
struct object {
    uint32_t class, args, state;
    uint32_t items; /* a dict or list of what was put into it */
};

/* An array that grows. */
#define ARRAY(type)                                                                                \
    struct {                                                                                       \
        type *list;                                                                                \
        size_t count, room;                                                                        \
    }

struct mics_pickle {
    ARRAY(struct node) nodes; /* the first is no value */
    ARRAY(struct cell) cells; /* the first is none */
    ARRAY(struct object) objects;
    ARRAY(char) pool;
    uint32_t root;
};

/* The tree of plain values below a node. NULL: the error is set. */
json_t *mics_pickle_to_json(const struct mics_pickle *pickle, uint32_t node, struct mics_err *err);

#endif
