/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_section.c - sections in another order, in blocks of Q8_0, and of bytes, in any ranges; and
 * zeros between them, in files that threads write.
 */
#include "tap.h"

#include "base/file.h"
#include "ckpt/convert/target.h"
#include "ckpt/format/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 1100, COLUMNS = 96, COUNT = ROWS * COLUMNS, HEAD_ROWS = 22, RANGES = 300 };

static char folder[64];
static struct mics_store store;
static float *scratch;

static float value(uint64_t i)
{
    const float sign = i % 3 ? 1.0f : -1.0f;

    return sign * (float)(i * 2654435761u % 50021) / (float)(1 + i / 4096);
}

static void make_source(void)
{
    char path[128];

    snprintf(path, sizeof path, "%s/source", folder);
    FILE *out = fopen(path, "w");
    for (uint64_t i = 0; i < COUNT; i++) {
        const float number = value(i);

        fwrite(&number, sizeof number, 1, out);
    }
    fclose(out);
    store.table = calloc(1, sizeof *store.table);
    store.table[0] = (struct mics_extent){.name = "matrix", .count = COUNT};
    store.table_count = 1;
    CHECK_INT(mics_store_add_file(&store, path, NULL), MICS_OK);
}

/* The number in the store that number `i` of a section is. */
static uint64_t origin(const struct mics_section *section, uint64_t i)
{
    const uint64_t row = i / section->columns, column = i % section->columns;

    if (section->order == MICS_SECTION_TRANSPOSED)
        return column * (section->count / section->columns) + row;
    if (section->order == MICS_SECTION_PLAIN)
        return i;
    const uint64_t half = section->head_rows / 2, head = row / section->head_rows;
    const uint64_t in_head = row % section->head_rows;

    return (head * section->head_rows + in_head % 2 * half + in_head / 2) * section->columns +
           column;
}

/* All bytes of a section, number by number. */
static unsigned char *expected(const struct mics_section *section)
{
    unsigned char *bytes = malloc(mics_section_bytes(section)), *out = bytes;

    for (uint64_t i = 0; i < section->count && !section->q8_0; i++) {
        const float number = value(origin(section, i));

        mics_numbers_from_f32(section->dtype, &number,
                              out + i * mics_storage_dtype_bytes(section->dtype), 1);
    }
    for (uint64_t i = 0; section->q8_0 && i < section->count; i += MICS_Q8_0_NUMBERS) {
        float largest = 0;

        for (uint64_t j = 0; j < MICS_Q8_0_NUMBERS; j++)
            largest = fmaxf(largest, fabsf(value(origin(section, i + j))));
        const uint16_t half = mics_f16_round(largest / 127);

        *out++ = (unsigned char)half;
        *out++ = (unsigned char)(half >> 8);
        for (uint64_t j = 0; j < MICS_Q8_0_NUMBERS; j++)
            *out++ = (unsigned char)(signed char)roundf(value(origin(section, i + j)) *
                                                        (1 / (largest / 127)));
    }
    return bytes;
}

static void check_section(const struct mics_section *section)
{
    const uint64_t bytes = mics_section_bytes(section);
    unsigned char *want = expected(section), *got = malloc(bytes);
    int wrong = 0;

    for (uint64_t i = 0; i < RANGES; i++) {
        const uint64_t at = i == 0 ? 0 : i * 2654435761u % bytes;
        const uint64_t most = i == 0 ? bytes : i % 7 ? 300 : bytes;
        const uint64_t size = most < bytes - at ? most : bytes - at;

        CHECK_INT(mics_section_fill(&store, section, 0, at, (char *)got, size, scratch, NULL),
                  MICS_OK);
        wrong += memcmp(got, want + at, size) != 0;
    }
    CHECK_INT(wrong, 0);
    free(want);
    free(got);
}

static void any_range_of_any_order_and_type_is_what_the_whole_is(void)
{
    static const enum mics_section_order orders[] = {MICS_SECTION_PLAIN, MICS_SECTION_ROPE_PAIRS,
                                                     MICS_SECTION_TRANSPOSED};
    static const enum mics_storage_dtype types[] = {MICS_STORAGE_F32, MICS_STORAGE_F16,
                                                    MICS_STORAGE_BF16};

    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 4; j++)
            check_section(&(struct mics_section){.dtype = types[j % 3],
                                                 .count = COUNT,
                                                 .order = orders[i],
                                                 .columns = i == 2 ? COLUMNS / 3 : COLUMNS,
                                                 .head_rows = HEAD_ROWS,
                                                 .q8_0 = j == 3});
    /* The vector of a bias, and a matrix with fewer rows than columns. */
    check_section(&(struct mics_section){
        .count = 88, .order = MICS_SECTION_ROPE_PAIRS, .columns = 1, .head_rows = HEAD_ROWS});
    check_section(&(struct mics_section){
        .count = COUNT, .order = MICS_SECTION_TRANSPOSED, .columns = ROWS * 3, .q8_0 = false});
}

static void scales_of_q8_0_must_be_numbers_of_fp16(void)
{
    const char *path = store.files[0].path;
    const float large[MICS_Q8_0_NUMBERS] = {1e8f}, small[MICS_Q8_0_NUMBERS] = {0, 1e-42f};
    const struct mics_section section = {.count = MICS_Q8_0_NUMBERS, .q8_0 = true};
    char got[MICS_Q8_0_BYTES], zeros[MICS_Q8_0_BYTES] = {0}, name[160];
    struct mics_store other = {.table = calloc(1, sizeof *other.table), .table_count = 1};
    struct mics_err err = {""};

    snprintf(name, sizeof name, "%s-2", path);
    FILE *out = fopen(name, "w");
    fwrite(small, sizeof small, 1, out);
    fwrite(large, sizeof large, 1, out);
    fclose(out);
    other.table[0] = (struct mics_extent){.name = "matrix", .count = 2 * MICS_Q8_0_NUMBERS};
    CHECK_INT(mics_store_add_file(&other, name, NULL), MICS_OK);
    CHECK_INT(mics_section_fill(&other, &section, 0, 0, got, sizeof got, scratch, NULL), MICS_OK);
    CHECK(memcmp(got, zeros, sizeof got) == 0);
    CHECK_INT(mics_section_fill(&other, &section, 1, 0, got, sizeof got, scratch, &err),
              MICS_ERR_FORMAT);
    CHECK_STR(err.text, "1e+08 is out of range of Q8_0");
    mics_store_close(&other);
}

static void files_have_zeros_between_sections_and_at_their_end(void)
{
    struct mics_section sections[] = {
        {.dtype = MICS_STORAGE_F32, .count = 3, .offset = 0},
        {.dtype = MICS_STORAGE_RAW, .count = 5, .bytes = "hello", .offset = 32},
        {.dtype = MICS_STORAGE_F32, .count = 600000 / 4, .start = 1, .offset = 3000000}};
    struct mics_target_file file = {.name = MICS_SINGLE_FILE,
                                    .header = "GGUF",
                                    .header_bytes = 4,
                                    .sections = sections,
                                    .section_count = 3,
                                    .bytes = 4 + 6000000};
    struct mics_target target = {.files = &file, .file_count = 1};
    struct mics_target_options options = {.host_ranks = 1};
    char *want = calloc(1, file.bytes), *got = NULL, path[128];
    size_t size = 0;

    sections[2].count = COUNT - 1;
    memcpy(want, "GGUF", 4);
    for (uint64_t i = 0; i < 3; i++)
        memcpy(want + 4 + 4 * i, &(float){value(i)}, 4);
    memcpy(want + 36, "hello", 5);
    for (uint64_t i = 0; i < COUNT - 1; i++)
        memcpy(want + 3000004 + 4 * i, &(float){value(i + 1)}, 4);
    CHECK_INT(mics_comm_new_self(&options.comm, NULL), MICS_OK);
    CHECK_INT(mics_target_write(&store, &target, folder, &options, NULL), MICS_OK);
    mics_comm_free(options.comm);
    snprintf(path, sizeof path, "%s/%s", folder, file.name);
    CHECK_INT(mics_file_read_regular(path, 1 << 24, &got, &size, NULL), MICS_OK);
    CHECK(size == file.bytes && memcmp(got, want, size) == 0);
    free(want);
    free(got);
}

static void a_header_of_gguf_has_keys_tensors_and_their_places(void)
{
    static const char want[] = "GGUF\3\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0a\4\0\0\0\7\0\0\0"
                               "\1\0\0\0\0\0\0\0b\x9\0\0\0\x8\0\0\0\1\0\0\0\0\0\0\0"
                               "\2\0\0\0\0\0\0\0hi"
                               "\1\0\0\0\0\0\0\0x\2\0\0\0\5\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
                               "\0\0\0\0\0\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0y\1\0\0\0\1\0\0\0\0\0\0\0"
                               "\1\0\0\0\x40\0\0\0\0\0\0\0";
    struct mics_gguf *gguf = mics_gguf_new();
    char *data = NULL;
    size_t size = 0;

    mics_gguf_add_u32(gguf, "a", 7);
    mics_gguf_add_array(gguf, "b", MICS_GGUF_STRING, 1);
    mics_gguf_put_string(gguf, "hi", 2);
    CHECK_INT(mics_gguf_add_tensor(gguf, "x", MICS_GGUF_F32, (uint64_t[]){3, 5}, 2, 60), 0);
    CHECK_INT(mics_gguf_add_tensor(gguf, "y", MICS_GGUF_F16, (uint64_t[]){1}, 1, 2), 64);
    CHECK_INT(mics_gguf_data_bytes(gguf), 96);
    CHECK_INT(mics_gguf_finish(gguf, &data, &size, NULL), MICS_OK);
    CHECK(size % MICS_GGUF_ALIGN == 0 && size >= sizeof want - 1 && size < sizeof want + 31);
    CHECK(memcmp(data, want, sizeof want - 1) == 0);
    free(data);
    mics_gguf_free(gguf);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/mics-test-section.XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    scratch = malloc(3 * MICS_STORE_CHUNK * sizeof *scratch);
    make_source();
    TAP_RUN(any_range_of_any_order_and_type_is_what_the_whole_is);
    TAP_RUN(scales_of_q8_0_must_be_numbers_of_fp16);
    TAP_RUN(files_have_zeros_between_sections_and_at_their_end);
    TAP_RUN(a_header_of_gguf_has_keys_tensors_and_their_places);
    mics_store_close(&store);
    free(scratch);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
