/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_file.c - files of tokens: what is written is read, and damaged ones are refused. */
#include "tap.h"

#include "data/token_file.h"
#include "data/token_index.h"

#include <fcntl.h>
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

/* An index of `type` for two ids, and the ids. */
static void put_typed(unsigned char type, const void *ids, size_t size)
{
    unsigned char index[34 + 12 + 16] = "MMIDIDX";
    const uint64_t one = 1, two = 2;
    const int32_t length = 2;

    index[9] = 1;
    index[17] = type;
    memcpy(index + 18, &one, 8);
    memcpy(index + 26, &two, 8);
    memcpy(index + 34, &length, 4);
    memcpy(index + 34 + 12 + 8, &one, 8);
    put("typed.bin", ids, size);
    put("typed.idx", index, sizeof index);
}

static void negative_ids_are_refused_in_signed_types_only(void)
{
    const int16_t narrow[] = {7, -2};
    const int32_t wide[] = {7, -2};
    const int64_t widest[] = {7, (int64_t)1 << 40};
    const struct {
        unsigned char type;
        const void *ids;
        size_t size;
        const char *reason;
    } cases[] = {{3, narrow, sizeof narrow, "token 1 is -2, outside of the vocabulary of 65536"},
                 {4, wide, sizeof wide, "token 1 is -2, outside"},
                 {5, widest, sizeof widest, "token 1 is 1099511627776, outside"}};
    struct mics_token_file file;
    struct mics_err err = {""};
    int32_t ids[2];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_typed(cases[i].type, cases[i].ids, cases[i].size);
        CHECK_INT(mics_token_file_open(path_of("typed"), 0, &file, &err), MICS_OK);
        CHECK_INT(mics_token_file_read(&file, 0, 2, 65536, ids, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, cases[i].reason) != NULL);
        CHECK_INT(mics_token_file_read(&file, 0, 1, 65536, ids, &err), MICS_OK);
        CHECK_INT(ids[0], 7);
        mics_token_file_close(&file);
    }
    put_typed(8, narrow, sizeof narrow);
    CHECK_INT(mics_token_file_open(path_of("typed"), 0, &file, &err), MICS_OK);
    CHECK_INT(mics_token_file_read(&file, 0, 2, 65536, ids, &err), MICS_OK);
    CHECK_INT(ids[1], 65534);
    mics_token_file_close(&file);
}

/* A file of zeros that takes no space, with `last` as the last 32 bits. */
static bool put_sparse(const char *name, uint64_t size, uint32_t last)
{
    const int fd = open(path_of(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    const bool done = ftruncate(fd, (off_t)size) == 0 &&
                      pwrite(fd, &last, sizeof last, (off_t)(size - sizeof last)) == sizeof last;

    close(fd);
    return done;
}

static void check_last(const char *name, uint32_t width, uint64_t count, int32_t last)
{
    struct mics_token_file file;
    struct mics_err err = {""};
    int32_t ids[2] = {1, 0};

    CHECK_INT(mics_token_file_open(path_of(name), width, &file, &err), MICS_OK);
    CHECK(file.count == count);
    CHECK_INT(mics_token_file_read(&file, count - 2, 2, 200000, ids, &err), MICS_OK);
    CHECK_INT(ids[0], 0);
    CHECK_INT(ids[1], last);
    CHECK_INT(mics_token_file_read(&file, count - 2, 2, 100, ids, &err), MICS_ERR_FORMAT);
    char number[32];

    snprintf(number, sizeof number, "token %llu is", (unsigned long long)count - 1);
    CHECK(strstr(err.text, number) != NULL);
    mics_token_file_close(&file);
    unlink(path_of(name));
}

static void positions_have_64_bits(void)
{
    const int32_t header[] = {20240801, 7, INT32_MAX};
    const int32_t lengths[] = {INT32_MAX, INT32_MAX, 5};
    const uint64_t tokens = ((uint64_t)1 << 32) + 3;
    FILE *stream;

    if (!put_sparse("large.bin", 2 * tokens, 5u << 16 | 0)) {
        TAP_SKIP("no files of 17 GB here");
    }
    stream = fopen(path_of("large.bin"), "r+");
    fseeko(stream, -2, SEEK_END);
    fwrite("\x39\x30", 2, 1, stream); /* 12345 */
    fclose(stream);
    check_last("large.bin", 2, tokens, 12345);
    CHECK(put_sparse("large.bin", 1024 + 4 * (uint64_t)INT32_MAX, 123456));
    stream = fopen(path_of("large.bin"), "r+");
    fwrite(header, sizeof header, 1, stream);
    fclose(stream);
    check_last("large.bin", 0, INT32_MAX, 123456);
    CHECK(put_sparse("large.bin", 4 * tokens, 123456));
    stream = fopen(path_of("large.idx"), "w");
    mics_token_index_write(stream, 4, lengths, 3);
    fclose(stream);
    check_last("large.bin", 0, tokens, 123456);
    unlink(path_of("large.idx"));
}

static void nanogpts_meta_tells_the_vocabulary_and_the_width(void)
{
    static const char narrow[] = "\x80\4}\x94\x8c\nvocab_size\x94K\x05s.";
    static const char wide[] = "\x80\4}\x94\x8c\nvocab_size\x94J\1\0\1\0s.";
    static const char call[] = "\x80\2cnumpy\nuint16\n.";
    const uint16_t ids[] = {4, 5, 1, 0};
    struct mics_token_file file;
    struct mics_err err = {""};
    int32_t found[2];

    put("train.bin", ids, sizeof ids);
    put("meta.pkl", narrow, sizeof narrow - 1);
    CHECK_INT(mics_token_file_open(path_of("train.bin"), 0, &file, &err), MICS_OK);
    CHECK_INT(file.count, 4);
    CHECK_INT(file.vocab_size, 5);
    CHECK_INT(mics_token_file_read(&file, 0, 2, 100, found, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "token 1 is 5, outside of the vocabulary of 5") != NULL);
    mics_token_file_close(&file);
    put("meta.pkl", wide, sizeof wide - 1);
    CHECK_INT(mics_token_file_open(path_of("train"), 0, &file, &err), MICS_OK);
    CHECK_INT(file.count, 2);
    CHECK_INT(file.vocab_size, 65537);
    mics_token_file_close(&file);
    put("meta.pkl", call, sizeof call - 1);
    CHECK_INT(mics_token_file_open(path_of("train.bin"), 0, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "meta.pkl' (") && strstr(err.text, "opcode GLOBAL"));
    CHECK_INT(mics_token_file_open(path_of("train.bin"), 2, &file, &err), MICS_OK);
    CHECK_INT(file.vocab_size, 0);
    mics_token_file_close(&file);
    put("meta.pkl", "\x80\2}.", 4);
    CHECK_INT(mics_token_file_open(path_of("train.bin"), 0, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "no dict with a number vocab_size") != NULL);
    unlink(path_of("meta.pkl"));
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
    TAP_RUN(negative_ids_are_refused_in_signed_types_only);
    TAP_RUN(positions_have_64_bits);
    TAP_RUN(nanogpts_meta_tells_the_vocabulary_and_the_width);
    TAP_RUN(a_writer_that_fails_leaves_nothing);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
    return tap_done();
}
