/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_checker.h - state of one rank that checks communicators: its memory, its delays, and numbers
 * with known sums.
 *
 * Each rank runs the same checks on its own device; ranks may be threads, so nothing is printed
 * here: the first error is kept in `why`.
 */
#ifndef MICS_TESTS_COMM_CHECKER_H
#define MICS_TESTS_COMM_CHECKER_H

#include "base/clock.h"
#include "comm/comm.h"
#include "device/launch.h"
#include "host/numbers.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct checker {
    struct mics_comm *world;
    struct mics_device *device;
    struct mics_stream *stream, *other;
    uint64_t max_count; /* of the largest collectives tried */
    unsigned random;    /* state, for delays; different on each rank */
    bool delays;
    struct mics_err why;
};

static inline void MICS_PRINTF(2, 3) complain(struct checker *c, const char *fmt, ...)
{
    struct mics_err text;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text.text, sizeof text.text, fmt, args);
    va_end(args);
    mics_err_prefix(&text, "rank %d", c->world->rank);
    c->why = text;
}

/* Takes a checker `c` from where it stands; keeps the first error. */
#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond) && !c->why.text[0])                                                            \
            complain(c, __VA_ARGS__);                                                              \
    } while (0)

/* On a device that becomes the checker's. */
static inline void checker_init_on(struct checker *c, struct mics_comm *world,
                                   struct mics_device *device)
{
    *c = (struct checker){
        .world = world, .device = device, .random = (unsigned)world->rank * 77 + 1};
    c->device->ops->stream_open(c->device, "one", 0, &c->stream, NULL);
    c->device->ops->stream_open(c->device, "other", 0, &c->other, NULL);
}

static inline void checker_init(struct checker *c, struct mics_comm *world, unsigned threads)
{
    struct mics_device *device = NULL;

    if (mics_device_new_host(threads, &device, NULL) != MICS_OK)
        abort();
    checker_init_on(c, world, device);
}

/* Zeroed memory that both the device and the host can use. */
static inline void *grab(struct checker *c, uint64_t count, size_t each)
{
    void *memory = NULL;

    if (c->device->ops->host_alloc(c->device, count * each, &memory, NULL) != MICS_OK)
        abort();
    return memory;
}

static inline void drop(struct checker *c, void *memory)
{
    c->device->ops->host_release(c->device, memory);
}

static inline void checker_fini(struct checker *c)
{
    c->device->ops->stream_close(c->stream);
    c->device->ops->stream_close(c->other);
    c->device->ops->free(c->device);
}

static inline void checker_nap(void *context)
{
    mics_sleep_s(*(double *)context * 1e-6);
}

/* Up to 2 ms, in the stream. */
static inline void delay(struct checker *c, struct mics_stream *stream)
{
    struct mics_args_call op = {.fn = checker_nap};

    if (!c->delays)
        return;
    c->random = c->random * 1103515245u + 12345u;
    double us = (double)(c->random >> 16 & 2047);
    memcpy(op.payload, &us, sizeof us);
    mics_launch_call(stream, &op);
}

static inline void settle(struct checker *c, const char *what)
{
    struct mics_err err;

    EXPECT(c->device->ops->stream_sync(c->stream, &err) == MICS_OK, "%s: %s", what, err.text);
    EXPECT(c->device->ops->stream_sync(c->other, &err) == MICS_OK, "%s: %s", what, err.text);
}

/* Whole numbers, so that sums are exact: element i of block b as rank r has it. Every
 * REPEATS-th is the same. */
enum { REPEATS = 13 };

typedef double number_of(enum mics_dtype dtype, int rank, int block, uint64_t i);

static inline double value(enum mics_dtype dtype, int rank, int block, uint64_t i)
{
    const int whole = rank * 31 + block * 7 + (int)(i % REPEATS);

    if (dtype == MICS_U8)
        return whole % 251;
    return dtype == MICS_BF16 ? whole % 8 : whole; /* sums up to 256 are exact there */
}

static inline double sum_of_values(enum mics_dtype dtype, int size, int block, uint64_t i)
{
    double sum = 0;

    for (int rank = 0; rank < size; rank++)
        sum += value(dtype, rank, block, i);
    return sum;
}

static inline double load(const void *data, uint64_t i, enum mics_dtype dtype)
{
    float value;

    if (dtype == MICS_F64)
        return ((const double *)data)[i];
    if (dtype == MICS_U8)
        return ((const unsigned char *)data)[i];
    mics_numbers_to_f32(dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32,
                        (const char *)data + i * mics_dtype_bytes(dtype), &value, 1);
    return value;
}

static inline void put(void *data, uint64_t i, enum mics_dtype dtype, double x)
{
    if (dtype == MICS_F64)
        ((double *)data)[i] = x;
    else if (dtype == MICS_U8)
        ((unsigned char *)data)[i] = (unsigned char)(int)x;
    else
        mics_numbers_from_f32(dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32,
                              &(float){(float)x}, (char *)data + i * mics_dtype_bytes(dtype), 1);
}

/* `count` elements as value() gives them. */
static inline void fill(void *data, uint64_t count, enum mics_dtype dtype, int rank, int block)
{
    const uint64_t each = mics_dtype_bytes(dtype);

    for (uint64_t i = 0; i < count && i < REPEATS; i++)
        put(data, i, dtype, value(dtype, rank, block, i));
    for (uint64_t i = REPEATS; i < count; i *= 2)
        memcpy((char *)data + i * each, data, (i < count - i ? i : count - i) * each);
}

/* The first of `count` elements that differs from `expected`; `count` if none does. */
static inline uint64_t first_wrong(const void *data, uint64_t count, enum mics_dtype dtype,
                                   number_of *expected, int rank, int block)
{
    const uint64_t each = mics_dtype_bytes(dtype);
    uint64_t doubtful = count, i = 0;

    if (count > REPEATS &&
        memcmp(data, (const char *)data + REPEATS * each, (count - REPEATS) * each) == 0)
        doubtful = REPEATS;
    while (i < doubtful && load(data, i, dtype) == expected(dtype, rank, block, i))
        i++;
    return i < doubtful ? i : count;
}

/* Which rank holds each block; filled from what the ranks report. */
static inline void learn_blocks(struct checker *c, struct mics_comm *comm, int *rank_of_block)
{
    int blocks[64] = {0};

    EXPECT(mics_comm_all_gather_now(comm, &comm->block, blocks, sizeof(int), NULL) == MICS_OK,
           "all_gather_now failed");
    for (int rank = 0; rank < comm->size; rank++)
        rank_of_block[blocks[rank]] = rank;
}

#endif
