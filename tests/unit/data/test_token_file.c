/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_file.c - files of tokens: what is written is read, and damaged ones are refused. */
#include "tap.h"

#include "data/token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t size)
{
    FILE *out = fopen(path_of(name), "w");

    fwrite(bytes, 1, size, out);
    fclose(out);
}

/* Two documents: 3 ids in two parts, and 20000 ids. */
static void write_file(const char *name, enum mics_token_format format, uint32_t vocab_size,
                       uint64_t *checksum)
{
    struct mics_token_writer *writer;
    struct mics_err err = {""};
    static uint32_t ids[20000];

    for (uint32_t i = 0; i < 20000; i++)
        ids[i] = vocab_size - 1 - i;
    CHECK_INT(mics_token_writer_open(path_of(name), format, vocab_size, &writer, &err), MICS_OK);
    CHECK_INT(mics_token_writer_append(writer, ids, 1, false, &err), MICS_OK);
    CHECK_INT(mics_token_writer_append(writer, ids + 1, 2, true, &err), MICS_OK);
    CHECK_INT(mics_token_writer_append(writer, ids, 0, true, &err), MICS_OK);
    CHECK_INT(mics_token_writer_append(writer, ids, 20000, true, &err), MICS_OK);
    CHECK_INT(mics_token_writer_finish(writer, checksum, &err), MICS_OK);
    mics_token_writer_free(writer);
}

static void check_file(const char *name, enum mics_token_format format, uint32_t vocab_size,
                       uint32_t width, uint64_t checksum)
{
    struct mics_token_file file;
    struct mics_err err = {""};
    int32_t ids[5];

    CHECK_INT(mics_token_file_open(path_of(name), 0, &file, &err), MICS_OK);
    CHECK_INT(file.format, format);
    CHECK_INT(file.width, width);
    CHECK_INT(file.count, 20003);
    CHECK(mics_token_file_checksum(&file) == checksum);
    CHECK_INT(mics_token_file_read(&file, 1, 5, vocab_size, ids, &err), MICS_OK);
    CHECK_INT(ids[0], vocab_size - 2);
    CHECK_INT(ids[2], vocab_size - 1);
    CHECK_INT(mics_token_file_read(&file, 1, 5, vocab_size - 1, ids, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "token 3 is ") != NULL);
    if (format == MICS_TOKENS_MEGATRON) {
        CHECK_INT(file.document_count, 2);
        CHECK_INT(file.documents[1], 3);
        CHECK_INT(file.documents[2], 20003);
    } else {
        CHECK(file.documents == NULL);
    }
    mics_token_file_close(&file);
}

static void what_is_written_is_read_in_every_format_and_width(void)
{
    uint64_t checksum = 0;

    write_file("a", MICS_TOKENS_MEGATRON, 65536, &checksum);
    check_file("a", MICS_TOKENS_MEGATRON, 65536, 2, checksum);
    check_file("a.bin", MICS_TOKENS_MEGATRON, 65536, 2, checksum);
    check_file("a.idx", MICS_TOKENS_MEGATRON, 65536, 2, checksum);
    write_file("b", MICS_TOKENS_MEGATRON, 65537, &checksum);
    check_file("b", MICS_TOKENS_MEGATRON, 65537, 4, checksum);
    write_file("c.bin", MICS_TOKENS_LLMC, 50257, &checksum);
    check_file("c", MICS_TOKENS_LLMC, 50257, 2, checksum);
    write_file("d.bin", MICS_TOKENS_LLMC, 128256, &checksum);
    check_file("d.bin", MICS_TOKENS_LLMC, 128256, 4, checksum);
}

static void ids_without_a_header_have_the_width_that_is_given(void)
{
    const uint32_t wide[3] = {70000, 1, 2};
    struct mics_token_file file;
    struct mics_err err = {""};
    int32_t ids[3];

    put("raw.bin", wide, sizeof wide);
    CHECK_INT(mics_token_file_open(path_of("raw.bin"), 4, &file, &err), MICS_OK);
    CHECK_INT(file.format, MICS_TOKENS_RAW);
    CHECK_INT(file.count, 3);
    CHECK_INT(mics_token_file_read(&file, 0, 3, 70001, ids, &err), MICS_OK);
    CHECK_INT(ids[0], 70000);
    mics_token_file_close(&file);
    put("raw.bin", wide, 5);
    CHECK_INT(mics_token_file_open(path_of("raw.bin"), 0, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "not a whole number of ids") != NULL);
    put("raw.bin", wide, 0);
    CHECK_INT(mics_token_file_open(path_of("raw.bin"), 0, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "no tokens") != NULL);
    CHECK_INT(mics_token_file_open(path_of("none"), 0, &file, &err), MICS_ERR_IO);
}

/* Open bytes as a file of llm.c, or as an index of four ids; *err tells why it is refused. */
static void refuse(const char *name, const void *bytes, size_t size, const char *reason)
{
    struct mics_token_file file;
    struct mics_err err = {""};

    put("bad.bin", "01234567", 8);
    put(name, bytes, size);
    CHECK_INT(mics_token_file_open(path_of(name), 0, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, reason) != NULL);
    CHECK(strstr(err.text, name) != NULL);
    unlink(path_of(name));
}

static void headers_and_indices_that_contradict_the_file_are_refused(void)
{
    int32_t header[258] = {20240520, 1, 5};
    unsigned char index[34 + 12 + 16] = "MMIDIDX";
    const int32_t length = 4;
    const uint64_t one = 1, two = 2;

    refuse("llmc.bin", header, sizeof header, "says 5 tokens of 2 bytes, but 8 bytes follow");
    header[1] = 7;
    refuse("llmc.bin", header, sizeof header, "version 7");
    header[0] = 20240522;
    refuse("llmc.bin", header, sizeof header, "questions");
    index[9] = 1;
    index[17] = 8;
    memcpy(index + 18, &one, 8);
    memcpy(index + 26, &two, 8);
    memcpy(index + 34, &length, 4);
    memcpy(index + 34 + 12 + 8, &one, 8);
    put("good.bin", "01234567", 8);
    put("good.idx", index, sizeof index);
    struct mics_token_file file;
    CHECK_INT(mics_token_file_open(path_of("good"), 0, &file, NULL), MICS_OK);
    mics_token_file_close(&file);
    refuse("bad.idx", index, sizeof index - 1, "bytes do not hold");
    index[17] = 7;
    refuse("bad.idx", index, sizeof index, "float32");
    index[17] = 4;
    refuse("bad.idx", index, sizeof index, "describes 16 bytes, but ");
    index[17] = 8;
    index[38] = 2;
    refuse("bad.idx", index, sizeof index, "begins at byte 2, but");
    index[38] = 0;
    index[34 + 12 + 8] = 9;
    refuse("bad.idx", index, sizeof index, "do not cover");
    index[0] = 'X';
    refuse("bad.idx", index, sizeof index, "not an index");
}

static void a_writer_that_fails_leaves_nothing(void)
{
    struct mics_token_writer *writer;
    struct mics_err err = {""};
    const uint32_t id = 10;
    uint64_t checksum;

    CHECK_INT(mics_token_writer_open(path_of("e"), MICS_TOKENS_MEGATRON, 10, &writer, &err),
              MICS_OK);
    CHECK_INT(mics_token_writer_append(writer, &id, 1, true, &err), MICS_ERR_FORMAT);
    CHECK_INT(mics_token_writer_finish(writer, &checksum, &err), MICS_ERR_FORMAT);
    mics_token_writer_free(writer);
    CHECK(access(path_of("e.bin"), F_OK) != 0 && access(path_of("e.idx"), F_OK) != 0);
    CHECK_INT(mics_token_writer_open(path_of("a"), MICS_TOKENS_LLMC, 10, &writer, &err),
              MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "choose another name") != NULL);
}

int main(void)
{
    char command[128];

    strcpy(folder, "/tmp/mics-tokens-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(what_is_written_is_read_in_every_format_and_width);
    TAP_RUN(ids_without_a_header_have_the_width_that_is_given);
    TAP_RUN(headers_and_indices_that_contradict_the_file_are_refused);
    TAP_RUN(a_writer_that_fails_leaves_nothing);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
    return tap_done();
}
