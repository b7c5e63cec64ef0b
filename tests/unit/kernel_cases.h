/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_cases.h - the shapes of the operations' cases, shared by the tests of the host's kernels,
 * by the checks of the GPU's, and by the recordings of their PTX.
 *
 * A suite leaves out what takes it too long: the PTX interpreter takes microseconds for an
 * instruction of a lane, so that it has a few small cases, and the emulator of the GPU has a fiber
 * for each thread.
 */
#ifndef MICS_TESTS_KERNEL_CASES_H
#define MICS_TESTS_KERNEL_CASES_H

#include "ops.h"

#include <math.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const enum mics_dtype dtypes[] = {MICS_F32, MICS_BF16, MICS_F16};

/* The suites that run a case; the host's run all. */
enum {
    HOST_ONLY = 0,
    GPU = 1, /* the emulator and a real GPU */
    PTX = 2,
    ALL = GPU | PTX,
    /* the PTX of some operations only, or by some kernels */
    PTX_NORM = 4,
    PTX_SUM = 8,
    PTX_GATED = 16,
    PTX_LOOK_UP = 4,
    PTX_ADD_UP = 8,
    PTX_F32 = 4,
    PTX_BF16 = 8,
    PTX_MMA = 4,
    PTX_PLAIN = 8,
    PTX_HOPPER = 16,
};

/* Sizes around the width of a vector and of a warp, for both dimensions. */
static const uint32_t edge_sizes[] = {1, 2, 31, 32, 33, 65, 130};

/* Long arrays: around a vector, a warp and a block's pieces; `shift` elements from an aligned
 * address. */
static const struct flat_case {
    uint32_t count;
    unsigned shift;
    int suites;
} flat_cases[] = {
    {0, 0, GPU},           {0, 1, GPU},
    {1, 0, GPU},           {1, 1, GPU},
    {15, 0, GPU},          {16, 0, GPU},
    {17, 0, GPU},          {31, 0, GPU},
    {31, 1, GPU},          {32, 0, GPU},
    {32, 1, GPU},          {33, 0, GPU},
    {33, 1, GPU},          {1031, 1, ALL},
    {4095, 0, GPU},        {4096, 0, GPU},
    {4097, 0, GPU},        {4097, 1, GPU},
    {9001, 0, ALL},        {40000, 0, HOST_ONLY},
    {70000, 0, HOST_ONLY}, {100003, 0, HOST_ONLY},
};

/* Sums of squares beyond one block, on 2 multiprocessors, whose blocks go round more than once. */
static const struct flat_case square_cases[] = {
    {70003, 0, ALL}, {9001, 1, ALL}, {3000001, 0, GPU}, {3000001, 1, GPU}};

/* Rows of every way to share them: aligned and not, within a warp, a team, a block, and wider. The
 * PTX of some operations is executed on some of them. */
static const struct row_case {
    uint32_t rows, C;
    unsigned shift;
    bool few; /* multiprocessors, so that a block takes several rows */
    int suites;
} row_cases[] = {
    {0, 32, 0, false, GPU},
    {1, 1, 0, true, GPU},
    {5, 31, 0, false, GPU},
    {33, 32, 0, true, GPU},
    {7, 33, 0, false, GPU},
    {64, 96, 1, true, GPU},
    {2, 768, 0, false, GPU},
    {2, 1600, 0, true, GPU},
    {9, 1000, 0, false, GPU},
    {2, 4097, 0, true, GPU},
    {1, 5120, 0, false, GPU},
    {40, 64, 0, true, GPU},
    {2, 12288, 0, false, GPU},
    {2, 8192, 1, true, GPU},
    {600, 8, 0, false, GPU},
    {20, 768, 0, true, GPU},
    {31, 256, 0, false, GPU},
    {1, 32768, 0, true, GPU},
    {300, 1, 0, false, GPU},
    {13, 1280, 0, true, GPU},
    {3, 8192, 0, false, GPU},
    {2, 40000, 0, true, GPU},
    {700, 129, 0, false, HOST_ONLY},
    {3, 1000, 0, false, GPU},
    {7, 136, 0, true, GPU | PTX_NORM},
    {3, 1288, 0, true, GPU | PTX_NORM},
    {5, 33, 0, true, GPU | PTX_NORM},
    {3, 300, 1, true, GPU | PTX_NORM},
    {70, 264, 0, true, GPU | PTX_SUM},
    {37, 67, 1, true, GPU | PTX_SUM},
    {3, 2056, 0, false, GPU | PTX_GATED},
    {2, 259, 1, false, GPU | PTX_GATED},
};

/* Norms of heads: teams of threads by D, and a block for a wide one; keys of another width. */
static const struct head_case {
    uint32_t rows, H, H_kv, D, D_kv;
    int suites;
} head_cases[] = {
    {0, 1, 1, 8, 8, GPU},        {1, 1, 1, 1, 1, GPU},      {33, 3, 1, 64, 64, GPU},
    {5, 4, 2, 128, 128, GPU},    {700, 2, 1, 7, 7, GPU},    {2, 2, 2, 256, 256, GPU},
    {9, 5, 5, 33, 33, GPU},      {3, 64, 8, 96, 96, GPU},   {2, 3, 3, 128, 128, GPU},
    {20, 1, 1, 2048, 2048, GPU}, {3, 1, 1, 2048, 512, GPU}, {2, 1, 1, 257, 1, GPU},
    {0, 1, 1, 300, 300, GPU},    {5, 2, 3, 6, 10, GPU},     {2, 1, 1, 8192, 8192, GPU},
    {40, 6, 2, 33, 33, GPU},     {4, 1, 1, 512, 128, GPU},  {2, 1, 1, 1030, 17, GPU},
    {5, 3, 1, 128, 128, ALL},    {9, 3, 1, 34, 34, ALL},    {3, 1, 1, 520, 130, ALL},
    {3, 1, 1, 300, 300, ALL},
};

/* Heads in pieces of 16 bytes, and odd ones; rows with more than the heads. */
static const struct rope_case {
    uint32_t B, T, heads, D, stride;
    float base;
    int scaling; /* of rope_scalings */
    bool inverse;
    int suites;
} rope_cases[] = {
    {0, 3, 1, 2, 2, 1e4f, 0, false, GPU},       {1, 1, 1, 2, 2, 1e4f, 1, false, GPU},
    {2, 33, 3, 64, 192, 1e4f, 2, false, GPU},   {1, 32, 5, 128, 1024, 1e4f, 0, false, GPU},
    {3, 7, 2, 6, 31, 1e4f, 1, false, GPU},      {1, 3, 2, 256, 512, 1e4f, 2, false, GPU},
    {2, 4097, 1, 16, 16, 1e4f, 0, false, GPU},  {1, 31, 4, 34, 140, 1e4f, 1, false, GPU},
    {1, 1, 1, 2, 2, 1e4f, 0, false, GPU},       {2, 5, 3, 2, 9, 1e4f, 0, false, GPU},
    {1, 33, 2, 6, 18, 5e5f, 0, false, GPU},     {2, 9, 1, 34, 40, 1e4f, 0, false, GPU},
    {1, 70, 4, 64, 512, 1e4f, 0, false, GPU},   {1, 3, 2, 128, 256, 5e5f, 0, false, GPU},
    {1, 300, 1, 256, 768, 1e4f, 0, false, GPU}, {2, 9, 3, 64, 256, 1e4f, 0, false, ALL},
    {1, 5, 2, 34, 70, 1e4f, 1, true, ALL},
};

#ifndef __cplusplus /* which wants every member */
static const struct mics_rope_scaling rope_scalings[] = {
    {.kind = MICS_ROPE_PLAIN},
    {.kind = MICS_ROPE_LLAMA3,
     .original_positions = 512,
     .factor = 8,
     .low_freq_factor = 1,
     .high_freq_factor = 4},
    {.kind = MICS_ROPE_LINEAR, .factor = 3},
};
#endif

/* How tokens repeat decides how their gradients are added up: within a window of sorted rows or
 * across many. */
static const struct embedding_case {
    uint32_t B, T, C, V;
    uint32_t distinct; /* tokens that occur */
    unsigned shift;
    bool positions;
    int suites;
} embedding_cases[] = {
    {0, 3, 4, 9, 9, 0, false, GPU},
    {1, 1, 1, 1, 1, 0, true, GPU},
    {2, 31, 33, 7, 7, 0, true, GPU},
    {1, 33, 32, 50257, 40, 0, false, GPU},
    {3, 100, 8, 300, 1, 0, true, GPU},
    {4, 257, 16, 2, 2, 0, true, GPU},
    {1, 4097, 4, 70000, 3, 0, false, GPU},
    {2, 32, 31, 257, 256, 1, true, GPU},
    {1, 64, 4097, 50, 5, 0, true, GPU},
    {2, 700, 2, 1000, 900, 0, false, GPU},
    {1, 96, 2052, 9, 1, 0, true, GPU},
    {3, 50, 65, 11, 11, 0, true, GPU},
    {3, 50, 130, 11, 11, 0, true, GPU},
    {2, 7, 520, 50, 9, 0, true, GPU | PTX_LOOK_UP},
    {1, 13, 33, 31, 31, 1, false, GPU | PTX_LOOK_UP},
    {3, 100, 16, 300, 3, 0, true, GPU | PTX_ADD_UP},
    {1, 70, 8, 66000, 40, 0, false, GPU | PTX_ADD_UP},
    {2, 35, 9, 7, 2, 1, true, GPU | PTX_ADD_UP},
};

/* Token i of `distinct` ones below V, far apart, in an order without pattern. */
static inline int32_t case_token(uint32_t i, uint32_t V, uint32_t distinct)
{
    return (int32_t)((uint64_t)(i * 2654435761u % 1000003 % distinct) * (V - 1) /
                     (distinct > 1 ? distinct - 1 : 1));
}

/* Vocabularies that fit shared memory and that do not, aligned rows and not, with gaps and
 * without. */
static const struct loss_case {
    uint32_t rows, V, gap;
    unsigned shift;
    bool no_grad;
    int suites;
} loss_cases[] = {
    {0, 7, 0, 0, false, GPU},
    {1, 1, 0, 0, false, GPU},
    {3, 2, 0, 1, false, GPU},
    {9, 31, 1, 0, false, GPU},
    {32, 32, 0, 0, false, GPU},
    {5, 33, 7, 0, false, GPU},
    {4, 4097, 7, 0, false, GPU},
    {3, 4096, 0, 0, false, GPU},
    {2, 50257, 7, 0, false, GPU},
    {2, 50257, 0, 0, false, GPU},
    {1, 131072, 0, 0, false, GPU},
    {7, 8, 0, 0, false, GPU},
    {520, 3, 5, 0, false, GPU},
    {2, 57000, 3, 1, false, GPU},
    {1, 57344, 0, 0, false, GPU},
    {1, 56832, 0, 0, false, GPU},
    {1, 2, 0, 0, false, GPU},
    {3, 31, 0, 0, false, GPU},
    {9, 257, 0, 0, false, GPU},
    {2, 5000, 0, 0, false, GPU},
    {3, 1024, 0, 0, false, GPU},
    {1030, 40, 0, 0, false, HOST_ONLY},
    {2100, 3, 0, 0, false, HOST_ONLY},
    {6, 5001, 0, 0, true, GPU},
    {7, 1003, 5, 1, false, GPU | PTX_F32 | PTX_BF16},
    {2, 96, 0, 0, true, GPU | PTX_F32 | PTX_BF16},
    {1, 28519, 0, 0, false, GPU | PTX_F32}, /* it and the next are too long for shared memory */
    {1, 57001, 0, 0, false, GPU | PTX_BF16},
};

/* Every fifth target is masked, some by being too large. */
static inline int32_t case_target(uint32_t i, uint32_t rows, uint32_t V)
{
    return i % 5 != 3 ? case_token(i, V, rows) : i % 2 ? MICS_TARGET_NONE : (int32_t)V;
}

/* Rows that have a target: less than a warp's, a warp's of each warp of the block, more than one of
 * each; none, all, as many as there is room for, and fewer. */
static const struct select_case {
    uint32_t rows, most;
    uint32_t every; /* such row has a target; 0: no row */
    int suites;
} select_cases[] = {
    {0, 0, 1, GPU},
    {1, 1, 1, GPU},
    {1, 1, 0, GPU},
    {33, 7, 5, GPU},
    {64, 64, 1, GPU},
    {100, 17, 6, ALL},
    {1024, 160, 7, GPU},
    {1025, 300, 9, GPU},
    {1100, 155, 8, ALL},
    {5000, 2500, 2, GPU},
    {40000, 6000, 7, HOST_ONLY},
};

static inline int32_t select_target(const struct select_case *c, uint32_t row)
{
    if (c->every > 0 && row % c->every == c->every / 2)
        return (int32_t)(row * 7 % 1000);
    return row % 3 ? MICS_TARGET_NONE : MICS_TARGET_LAST;
}

/* Slices of a vector that an optimizer updates: where decay ends, and whether there is a copy. */
static const struct update_case {
    const char *name; /* of those that are executed as PTX */
    uint32_t count, decay_count;
    unsigned shift;
    bool copy;
    double squared_norm;
    float clip;
} update_cases[] = {
    {NULL, 0, 0, 0, true, 1, 0},
    {NULL, 1, 1, 0, false, 1, 0},
    {NULL, 31, 30, 0, true, 1, 0},
    {NULL, 32, 0, 0, true, 1, 0},
    {NULL, 33, 33, 1, true, 1, 0},
    {NULL, 4097, 1030, 0, true, 1, 0},
    {NULL, 4097, 4097, 0, false, 1, 0},
    {NULL, 4096, 3, 1, false, 1, 0},
    {NULL, 5000, 2501, 0, true, 1, 0},
    {"clipped", 4099, 1030, 0, true, 1e6, 1},
    {"odd", 1033, 1033, 1, false, 1e-3, 0},
    {"kept", 515, 100, 0, true, INFINITY, 1}, /* nothing changes */
};

/* Arrays in blocks: no whole one, several, and more than those of one block of threads. */
static const struct flat_case block_cases[] = {
    {0, 0, GPU},   {1, 0, GPU},   {31, 0, GPU},   {32, 0, GPU},   {33, 0, GPU},    {255, 0, GPU},
    {256, 0, GPU}, {257, 0, GPU}, {2048, 0, GPU}, {4097, 0, GPU}, {70000, 0, GPU}, {2381, 0, ALL}};

#define PTX_BLOCKS (LENGTH(block_cases) - 1)

static const enum mics_dtype wire_dtypes[] = {MICS_F32, MICS_BF16, MICS_INT8, MICS_INT4, MICS_F16};

/* Attention: whole and partial tiles of 64 and 128 rows; narrow heads, which are filled up to 64 or
 * 128, heads that the tensor cores do not take, and odd ones; grouped queries; windows of one
 * token, inside a block, of a block, across several, and beyond the sequence. Without tensor cores
 * every product is an instruction of its own, so that the PTX of `plain` has few tokens; that of
 * `hopper` goes round its rings of tiles. */
static const struct attention_dims {
    uint32_t B, T, H, H_kv, D;
    bool causal;
    uint32_t documents; /* tokens of the longest document; 0: sequences are not divided */
    uint32_t window;    /* tokens that a token sees; 0: all */
    int suites;
} attention_cases[] = {
    {1, 1, 1, 1, 1, true, 0, 0, HOST_ONLY},
    {1, 2, 1, 1, 3, true, 0, 0, HOST_ONLY},
    {2, 31, 3, 3, 8, true, 0, 0, HOST_ONLY},
    {1, 32, 2, 2, 16, false, 0, 0, HOST_ONLY},
    {1, 33, 2, 2, 17, true, 0, 0, HOST_ONLY},
    {2, 64, 2, 2, 32, true, 0, 0, HOST_ONLY},
    {1, 65, 1, 1, 33, true, 0, 0, HOST_ONLY},
    {1, 65, 2, 2, 64, false, 0, 0, HOST_ONLY},
    {1, 129, 1, 1, 48, true, 0, 0, HOST_ONLY},
    {1, 70, 2, 2, 5, false, 0, 0, HOST_ONLY},
    {1, 20, 1, 1, 256, true, 0, 0, HOST_ONLY},
    {1, 200, 2, 2, 80, true, 0, 0, HOST_ONLY},
    {3, 1, 2, 2, 4, false, 0, 0, HOST_ONLY},
    {2, 9, 4, 2, 6, true, 0, 0, HOST_ONLY},
    {1, 70, 6, 1, 16, true, 0, 0, HOST_ONLY},
    {1, 66, 3, 1, 8, false, 0, 0, HOST_ONLY},
    {2, 130, 4, 2, 64, true, 0, 0, HOST_ONLY},
    {2, 193, 6, 2, 64, true, 0, 0, HOST_ONLY},
    {1, 257, 2, 1, 80, false, 0, 0, HOST_ONLY},
    {1, 200, 4, 1, 128, true, 0, 0, HOST_ONLY},
    {2, 128, 1, 1, 128, false, 0, 0, HOST_ONLY},
    {1, 70, 1, 1, 250, true, 0, 0, HOST_ONLY},
    {1, 1, 1, 1, 1, true, 1, 0, HOST_ONLY},
    {2, 31, 3, 3, 8, true, 7, 0, HOST_ONLY},
    {1, 64, 2, 2, 17, true, 64, 0, HOST_ONLY},
    {2, 130, 4, 2, 64, true, 9, 0, HOST_ONLY},
    {1, 200, 2, 2, 80, true, 70, 0, HOST_ONLY},
    {2, 300, 2, 1, 16, true, 300, 0, HOST_ONLY},
    {1, 330, 4, 2, 128, true, 150, 0, HOST_ONLY},
    {1, 1, 1, 1, 1, false, 1, 0, HOST_ONLY},
    {2, 31, 3, 3, 8, false, 7, 0, HOST_ONLY},
    {1, 64, 2, 2, 17, false, 64, 0, HOST_ONLY},
    {2, 130, 4, 2, 64, false, 9, 0, HOST_ONLY},
    {1, 200, 2, 2, 80, false, 70, 0, HOST_ONLY},
    {2, 300, 2, 1, 16, false, 300, 0, HOST_ONLY},
    {1, 330, 4, 2, 128, false, 150, 0, HOST_ONLY},
    {1, 5, 1, 1, 3, true, 0, 1, HOST_ONLY},
    {2, 31, 3, 3, 8, true, 0, 7, HOST_ONLY},
    {1, 128, 2, 2, 17, true, 0, 64, HOST_ONLY},
    {2, 200, 4, 2, 64, true, 0, 63, HOST_ONLY},
    {1, 330, 2, 2, 80, true, 0, 65, HOST_ONLY},
    {2, 300, 2, 1, 16, true, 0, 129, HOST_ONLY},
    {1, 193, 4, 2, 128, true, 0, 5, HOST_ONLY},
    {1, 130, 2, 2, 20, true, 0, 129, HOST_ONLY},
    {1, 130, 2, 2, 20, true, 0, 130, HOST_ONLY},
    {1, 70, 2, 2, 8, true, 0, 4000000000, HOST_ONLY},
    {2, 300, 2, 1, 16, true, 90, 40, HOST_ONLY},
    {1, 330, 4, 2, 32, true, 300, 100, HOST_ONLY},
    {1, 1, 1, 1, 64, true, 0, 0, GPU},
    {2, 31, 2, 2, 64, true, 0, 0, GPU},
    {1, 33, 2, 1, 64, false, 0, 0, GPU},
    {1, 64, 2, 2, 64, true, 0, 0, GPU},
    {1, 65, 3, 3, 64, true, 0, 0, GPU},
    {1, 130, 4, 2, 64, true, 0, 0, GPU},
    {1, 130, 2, 2, 64, false, 0, 0, GPU},
    {1, 1, 2, 1, 128, false, 0, 0, GPU},
    {2, 31, 1, 1, 128, false, 0, 0, GPU},
    {1, 64, 2, 1, 128, true, 0, 0, GPU},
    {1, 65, 2, 2, 128, true, 0, 0, GPU},
    {1, 130, 2, 1, 128, true, 0, 0, GPU},
    {1, 130, 1, 1, 128, false, 0, 0, GPU | PTX_MMA | PTX_HOPPER},
    {1, 300, 1, 1, 64, true, 0, 0, GPU},
    {1, 257, 1, 1, 128, true, 0, 0, GPU},
    {1, 70, 2, 2, 8, true, 0, 0, GPU},
    {1, 33, 2, 1, 40, true, 0, 0, GPU},
    {1, 129, 1, 1, 80, false, 0, 0, GPU},
    {1, 128, 3, 1, 96, true, 0, 0, GPU},
    {1, 1, 1, 1, 3, true, 0, 0, GPU},
    {1, 33, 2, 1, 17, true, 0, 0, GPU},
    {1, 70, 2, 2, 136, true, 0, 0, GPU},
    {1, 31, 1, 1, 5, false, 0, 0, GPU},
    {1, 65, 2, 1, 256, false, 0, 0, GPU},
    {2, 64, 1, 1, 100, true, 0, 0, GPU},
    {1, 77, 2, 1, 64, true, 0, 0, PTX_MMA | PTX_HOPPER},
    {2, 33, 2, 2, 64, false, 0, 0, PTX_MMA},
    {1, 200, 1, 1, 40, true, 0, 0, PTX_MMA},
    {1, 77, 2, 1, 128, true, 0, 0, PTX_MMA},
    {2, 33, 1, 1, 80, true, 0, 0, PTX_MMA},
    {1, 65, 2, 2, 96, false, 0, 0, PTX_MMA},
    {1, 200, 1, 1, 64, true, 70, 0, PTX_MMA},
    {1, 77, 1, 1, 128, true, 9, 0, PTX_MMA},
    {1, 200, 2, 1, 64, true, 0, 50, PTX_MMA},
    {1, 150, 1, 1, 128, true, 0, 3, PTX_MMA},
    {1, 140, 1, 1, 64, true, 90, 65, PTX_MMA},
    {1, 200, 1, 1, 64, false, 70, 0, PTX_MMA},
    {1, 77, 1, 1, 128, false, 9, 0, PTX_MMA},
    {2, 70, 2, 1, 40, false, 33, 0, PTX_MMA},
    {1, 33, 1, 1, 9, true, 0, 0, PTX_PLAIN},
    {2, 5, 2, 1, 20, false, 0, 0, PTX_PLAIN},
    {1, 4, 1, 1, 65, false, 0, 0, PTX_PLAIN},
    {1, 3, 1, 1, 129, true, 0, 0, PTX_PLAIN},
    {1, 33, 1, 1, 9, true, 10, 0, PTX_PLAIN},
    {1, 66, 1, 1, 9, false, 10, 0, PTX_PLAIN},
    {1, 34, 1, 1, 9, true, 0, 1, PTX_PLAIN},
    {1, 66, 1, 1, 3, true, 0, 20, PTX_PLAIN},
    {1, 390, 1, 1, 64, true, 0, 0, PTX_HOPPER},
    {2, 33, 1, 1, 64, false, 0, 0, PTX_HOPPER},
    {1, 200, 1, 1, 40, false, 0, 0, PTX_HOPPER},
    {1, 200, 2, 1, 128, true, 0, 0, PTX_HOPPER},
    {1, 33, 2, 1, 80, true, 0, 0, PTX_HOPPER},
    {1, 129, 1, 1, 96, false, 0, 0, PTX_HOPPER},
};

/* Products: [m, k] by [k, n]; no dimension, one, odd ones, several blocks of the host's. The
 * emulator leaves out those of more than 100,000 multiplications, as it tries each in 130 ways. */
static const struct product_case {
    uint32_t m, n, k;
    uint32_t extra; /* of leading dimensions, on the GPU */
    unsigned shift; /* of every address there, in elements */
    int suites;
} product_cases[] = {
    {1, 1, 1, 0, 0, GPU},
    {1, 33, 31, 0, 0, GPU},
    {32, 1, 33, 0, 0, GPU},
    {31, 32, 1, 0, 0, GPU},
    {33, 31, 32, 3, 1, GPU},
    {64, 40, 48, 0, 0, GPU},
    {70, 7, 65, 1, 0, GPU},
    {24, 56, 72, 8, 0, GPU},
    {3, 4097, 8, 0, 0, GPU},
    {5, 4, 0, 0, 0, GPU},
    {0, 4, 3, 0, 0, GPU},
    {3, 0, 3, 0, 0, GPU},
    {16, 128, 32, 0, 4, GPU},
    {64, 64, 64, 0, 0, HOST_ONLY},
    {130, 7, 65, 0, 0, GPU},
    {7, 300, 96, 0, 0, HOST_ONLY},
    {300, 200, 64, 0, 0, HOST_ONLY},
    {2, 500, 500, 0, 0, HOST_ONLY},
    {513, 130, 128, 0, 0, HOST_ONLY},
    {520, 330, 100, 0, 0, HOST_ONLY},
    {70, 900, 40, 0, 0, HOST_ONLY},
    {40, 24, 33, 0, 0, GPU},
    {40, 12, 33, 0, 0, GPU},
};

#endif
