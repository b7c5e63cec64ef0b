/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes.cuh - what was found out about shapes of operations: a hash table of keys that are compared as bytes.
 *
 * A key is a structure that was set to 0 by memset() before its members were, so that gaps compare, too. The
 * table owns nothing; whoever uses it holds a lock.
 */
#ifndef MICS_KERNELS_CUDA_SHAPES_CUH
#define MICS_KERNELS_CUDA_SHAPES_CUH

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MICS_SHAPE_BUCKETS 256

/* The first member of what is known of one shape. */
struct mics_shape {
    struct mics_shape *next; /* of its bucket */
    const void *key;         /* of the table's length; set by the owner */
};

/* Empty when all is 0 but the length of its keys. */
struct mics_shapes {
    size_t key_bytes;
    struct mics_shape *buckets[MICS_SHAPE_BUCKETS];
};

/* FNV-1a. */
static inline unsigned mics_shape_bucket(const struct mics_shapes *shapes, const void *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    unsigned hash = 2166136261u;

    for (size_t i = 0; i < shapes->key_bytes; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return (hash ^ hash >> 16) % MICS_SHAPE_BUCKETS;
}

/* NULL: not met yet. */
static inline struct mics_shape *mics_shapes_find(const struct mics_shapes *shapes, const void *key)
{
    struct mics_shape *shape = shapes->buckets[mics_shape_bucket(shapes, key)];

    while (shape && memcmp(shape->key, key, shapes->key_bytes) != 0)
        shape = shape->next;
    return shape;
}

/* Add one that is not there. */
static inline void mics_shapes_add(struct mics_shapes *shapes, struct mics_shape *shape)
{
    struct mics_shape **bucket = &shapes->buckets[mics_shape_bucket(shapes, shape->key)];

    shape->next = *bucket;
    *bucket = shape;
}

/* Remove any; NULL: there is none. */
static inline struct mics_shape *mics_shapes_take(struct mics_shapes *shapes)
{
    for (int i = 0; i < MICS_SHAPE_BUCKETS; i++) {
        struct mics_shape *first = shapes->buckets[i];

        if (first) {
            shapes->buckets[i] = first->next;
            return first;
        }
    }
    return NULL;
}

/* The largest power of two up to 128 that divides an address, or several or-ed together. */
static inline uint8_t mics_alignment(uintptr_t addresses)
{
    const uintptr_t bits = addresses | 128;

    return (uint8_t)(bits & -bits);
}

#endif
