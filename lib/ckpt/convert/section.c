/* SPDX-License-Identifier: Apache-2.0 */
/* section.c - the bytes of sections: numbers of a store, in another order or in blocks. */
#include "ckpt/convert/target.h"

#include "base/num.h"
#include "ckpt/format/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Most numbers of one run that is read for a transposed matrix. */
enum { RUN_NUMBERS = 1024 };

uint64_t mics_section_bytes(const struct mics_section *section)
{
    if (section->q8_0)
        return section->count / MICS_Q8_0_NUMBERS * MICS_Q8_0_BYTES;
    return section->count * mics_storage_dtype_bytes(section->dtype);
}

uint64_t mics_sections_place(struct mics_section *sections, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        sections[i].offset = bytes;
        bytes += mics_section_bytes(&sections[i]);
    }
    return bytes;
}

/* What is being read: numbers of a section, whose first one is number `start` of its vector. */
struct reading {
    const struct mics_store *store;
    const struct mics_section *section;
    uint64_t start;
    float *scratch; /* [2 * MICS_STORE_CHUNK] */
    struct mics_err *err;
};

static enum mics_status read_run(const struct reading *reading, uint64_t at, size_t count,
                                 void *dst)
{
    const struct mics_section *section = reading->section;

    return mics_store_read(reading->store, section->vector, reading->start + at, count,
                           section->dtype, dst, reading->scratch, reading->err);
}

/* The row of the matrix that is row `row` where the rows of the two halves of a head take turns. */
static uint64_t row_of_pairs(const struct mics_section *section, uint64_t row)
{
    const uint64_t head = row / section->head_rows, i = row % section->head_rows;

    return head * section->head_rows + i % 2 * (section->head_rows / 2) + i / 2;
}

static enum mics_status read_pairs(const struct reading *reading, uint64_t first, size_t count,
                                   char *dst)
{
    const uint64_t columns = reading->section->columns;
    const size_t width = mics_storage_dtype_bytes(reading->section->dtype);
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && count > 0) {
        const uint64_t column = first % columns;
        const size_t some = (size_t)mics_min_u64(count, columns - column);

        status = read_run(
            reading, row_of_pairs(reading->section, first / columns) * columns + column, some, dst);
        first += some;
        count -= some;
        dst += some * width;
    }
    return status;
}

/* A column as written is a row in the store: of each, the run that belongs to the rows which
 * [first, first + count) touches. */
static enum mics_status read_transposed(const struct reading *reading, uint64_t first, size_t count,
                                        char *dst)
{
    const uint64_t columns = reading->section->columns, rows = reading->section->count / columns;
    const size_t width = mics_storage_dtype_bytes(reading->section->dtype);
    const uint64_t end = first + count;
    enum mics_status status = MICS_OK;
    float run[RUN_NUMBERS];

    for (uint64_t row = first / columns, next; row * columns < end; row = next) {
        next = mics_min_u64(row + RUN_NUMBERS, mics_ceil_div(end, columns));
        for (uint64_t column = 0; status == MICS_OK && column < columns; column++) {
            status = read_run(reading, column * rows + row, (size_t)(next - row), run);
            for (uint64_t i = row; status == MICS_OK && i < next; i++) {
                const uint64_t at = i * columns + column;

                if (at >= first && at < end)
                    memcpy(dst + (at - first) * width, (char *)run + (i - row) * width, width);
            }
        }
        if (status != MICS_OK)
            return status;
    }
    return status;
}

/* dst = numbers [first, first + count) of the section, in its order. */
static enum mics_status read_numbers(const struct reading *reading, uint64_t first, size_t count,
                                     void *dst)
{
    switch (reading->section->order) {
    case MICS_SECTION_ROPE_PAIRS:
        return read_pairs(reading, first, count, dst);
    case MICS_SECTION_TRANSPOSED:
        return read_transposed(reading, first, count, dst);
    case MICS_SECTION_PLAIN:
        break;
    }
    return read_run(reading, first, count, dst);
}

/* Blocks of Q8_0 in place of the numbers: the largest becomes 127 or -127 times the scale. */
static enum mics_status quantize(float *numbers, size_t blocks, struct mics_err *err)
{
    unsigned char *out = (unsigned char *)numbers;

    for (size_t i = 0; i < blocks; i++, out += MICS_Q8_0_BYTES) {
        float block[MICS_Q8_0_NUMBERS], largest = 0;

        memcpy(block, numbers + i * MICS_Q8_0_NUMBERS, sizeof block);
        for (size_t j = 0; j < MICS_Q8_0_NUMBERS; j++)
            largest = fmaxf(largest, fabsf(block[j]));
        const float scale = largest / 127, inverse = isfinite(1 / scale) ? 1 / scale : 0;
        const uint16_t half = mics_f16_round(scale);

        if (half >= MICS_F16_INFINITE)
            return mics_err_set(err, MICS_ERR_FORMAT, "%g is out of range of Q8_0",
                                (double)largest);
        out[0] = (unsigned char)half;
        out[1] = (unsigned char)(half >> 8);
        for (size_t j = 0; j < MICS_Q8_0_NUMBERS; j++)
            out[2 + j] = (unsigned char)(signed char)roundf(block[j] * inverse);
    }
    return MICS_OK;
}

/* Sections that are not whole numbers in their order: a chunk is made, then copied. */
static enum mics_status fill_from_chunks(const struct reading *reading, uint64_t at, char *dst,
                                         size_t size)
{
    const bool q8_0 = reading->section->q8_0;
    const size_t numbers = q8_0 ? MICS_Q8_0_NUMBERS : 1;
    const size_t bytes = q8_0 ? MICS_Q8_0_BYTES : mics_storage_dtype_bytes(reading->section->dtype);
    float *const chunk = reading->scratch + 2 * MICS_STORE_CHUNK;

    while (size > 0) {
        const size_t skip = at % bytes;
        const size_t units = (size_t)mics_min_u64(mics_ceil_div(skip + (uint64_t)size, bytes),
                                                  MICS_STORE_CHUNK / numbers);
        const size_t some = (size_t)mics_min_u64(size, units * bytes - skip);
        enum mics_status status =
            read_numbers(reading, at / bytes * numbers, units * numbers, chunk);

        if (status == MICS_OK && q8_0)
            status = quantize(chunk, units, reading->err);
        if (status != MICS_OK)
            return status;
        memcpy(dst, (char *)chunk + skip, some);
        at += some;
        dst += some;
        size -= some;
    }
    return MICS_OK;
}

/* Whole numbers that are aligned in dst are read into it directly. After a tensor of single bytes
 * numbers may be unaligned. */
static enum mics_status fill_plain(const struct reading *reading, uint64_t at, char *dst,
                                   size_t size)
{
    const size_t width = mics_storage_dtype_bytes(reading->section->dtype);
    char *const unaligned = (char *)(reading->scratch + 2 * MICS_STORE_CHUNK);

    while (size > 0) {
        const size_t skip = at % width;
        const bool direct = skip == 0 && size >= width && (uintptr_t)dst % width == 0;
        const size_t some =
            (size_t)mics_min_u64(direct ? size / width * width : size, MICS_STORE_CHUNK);
        const enum mics_status status = read_run(
            reading, at / width, (skip + some + width - 1) / width, direct ? dst : unaligned);

        if (status != MICS_OK)
            return status;
        if (!direct)
            memcpy(dst, unaligned + skip, some);
        at += some;
        dst += some;
        size -= some;
    }
    return MICS_OK;
}

enum mics_status mics_section_fill(const struct mics_store *store,
                                   const struct mics_section *section, uint32_t index, uint64_t at,
                                   char *dst, size_t size, float *scratch, struct mics_err *err)
{
    const struct reading reading = {.store = store,
                                    .section = section,
                                    .start = section->start + index * section->count,
                                    .scratch = scratch,
                                    .err = err};

    if (section->bytes) {
        memcpy(dst, section->bytes + at, size);
        return MICS_OK;
    }
    return section->order != MICS_SECTION_PLAIN || section->q8_0
               ? fill_from_chunks(&reading, at, dst, size)
               : fill_plain(&reading, at, dst, size);
}
