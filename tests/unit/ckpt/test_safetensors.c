/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - the header's reader against its writer and against malformed files. */
#include "tap.h"

#include "ckpt/format/safetensors.h"

#include <stdlib.h>

/* A file from a header and the number of data bytes after it. */
static enum mics_status parse(const char *header, uint64_t data_bytes,
                              struct mics_safetensors *file, struct mics_err *err)
{
    const size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length);
    enum mics_status status;

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    status = mics_safetensors_parse(bytes, 8 + length, 8 + length + data_bytes, file, err);
    free(bytes);
    return status;
}

static void refuses(const char *header, uint64_t data_bytes, const char *word)
{
    struct mics_safetensors file = {0};
    struct mics_err err = {""};

    CHECK_INT(parse(header, data_bytes, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, word) != NULL);
    if (!strstr(err.text, word))
        printf("# %s: %s\n", header, err.text);
}

static void what_is_written_is_read_back(void)
{
    const struct mics_safetensor_spec specs[] = {
        {.name = "h.0.param", .dtype = "F32", .rank = 1, .shape = {6}},
        {.name = "h.0.m", .dtype = "BF16", .rank = 2, .shape = {3, 5}},
        {.name = "none", .dtype = "F32", .rank = 2, .shape = {0, 5}},
    };
    struct mics_safetensors file = {0};
    struct mics_err err = {""};
    char *data = NULL;
    size_t size = 0;

    CHECK_INT(mics_safetensors_header(specs, 3, &data, &size, &err), MICS_OK);
    CHECK_INT(size % 4096, 0);
    CHECK_INT(mics_safetensors_parse(data, size, size + 24 + 30, &file, &err), MICS_OK);
    CHECK_INT(file.count, 3);
    CHECK_INT(file.data_offset, size);
    const struct mics_safetensor *m = mics_safetensors_find(&file, "h.0.m");
    CHECK(m && m->begin == 24 && m->end == 54 && m->rank == 2 && m->shape[1] == 5);
    CHECK(mics_safetensors_find(&file, "h.0.v") == NULL);
    mics_safetensors_free(&file);
    CHECK_INT(mics_safetensors_parse(data, size, size + 24 + 31, &file, &err), MICS_ERR_FORMAT);
    free(data);
}

static void valid_files_of_other_writers_are_accepted(void)
{
    struct mics_safetensors file = {0};
    struct mics_err err = {""};

    CHECK_INT(parse("{}", 0, &file, &err), MICS_OK);
    mics_safetensors_free(&file);
    CHECK_INT(parse("{\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]},"
                    "\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
                    "\"__metadata__\":{\"x\":\"y\"}}   ",
                    3, &file, &err),
              MICS_OK);
    CHECK_INT(file.count, 2);
    CHECK(file.count == 2 && strcmp(file.tensors[0].name, "a") == 0);
    mics_safetensors_free(&file);
}

#define T(begin, end, shape)                                                                       \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void gaps_overlaps_and_wrong_ends_are_refused(void)
{
    refuses("{\"a\":" T("4", "8", "[1]") "}", 8, "a gap");
    refuses("{\"a\":" T("0", "8", "[2]") ",\"b\":" T("4", "12", "[2]") "}", 12, "overlaps");
    refuses("{\"a\":" T("0", "4", "[1]") ",\"b\":" T("8", "12", "[1]") "}", 12, "a gap");
    refuses("{\"a\":" T("0", "8", "[2]") "}", 4, "the file 4");
    refuses("{\"a\":" T("0", "8", "[2]") "}", 12, "the file 12");
    refuses("{}", 1, "the file 1");
}

static void malformed_tensors_are_named(void)
{
    refuses("{\"wte\":3}", 0, "'wte': is not an object");
    refuses("{\"wte\":{}}", 0, "'wte': no dtype");
    refuses("{\"a\":{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype");
    refuses("{\"a\":" T("0", "8", "[1]") "}", 8, "disagree");
    refuses("{\"a\":" T("8", "0", "[1]") "}", 8, "before the beginning");
    refuses("{\"a\":" T("0", "4.0", "[1]") "}", 4, "data_offsets");
    refuses("{\"a\":" T("-4", "0", "[1]") "}", 4, "data_offsets");
    refuses("{\"a\":" T("0", "4", "[-1]") "}", 4, "not a size");
    refuses("{\"a\":" T("0", "4", "1") "}", 4, "not a list");
    refuses("{\"a\":" T("0", "4", "[1,1,1,1,1,1,1,1,1]") "}", 4, "not a list of up to 8");
    refuses("{\"a\":" T("0", "4", "[4611686018427387905,4]") "}", 4, "can be counted");
    refuses("{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,0]}}", 0, "counted");
    refuses("{\"__metadata__\":{\"x\":1}}", 0, "not a string");
    refuses("{\"__metadata__\":[]}", 0, "not an object");
}

static void malformed_headers_are_refused(void)
{
    struct mics_safetensors file;
    struct mics_err err = {""};
    unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};
    unsigned char cut[10] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'};

    refuses("[]", 0, "does not begin with '{'");
    refuses(" {}", 0, "does not begin with '{'");
    refuses("{\"a\":", 0, "header:");
    refuses("{} x", 0, "header:");
    refuses("{\"a\":" T("0", "0", "[0]") ",\"a\":" T("0", "0", "[0]") "}", 0, "duplicate");
    refuses("{\"a\":" T("0", "99999999999999999999", "[1]") "}", 0, "header:");
    CHECK_INT(mics_safetensors_parse(huge, 16, 16, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "not a safetensors file") != NULL);
    CHECK_INT(mics_safetensors_parse(cut, 10, 10, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "ends inside its header") != NULL);
    CHECK_INT(mics_safetensors_parse(cut, 7, 7, &file, &err), MICS_ERR_FORMAT);
}

static void every_truncation_is_refused(void)
{
    const struct mics_safetensor_spec spec = {.name = "a", .dtype = "F32", .rank = 1, .shape = {6}};
    struct mics_err err = {""};
    char *data = NULL;
    size_t size = 0;

    CHECK_INT(mics_safetensors_header(&spec, 1, &data, &size, &err), MICS_OK);
    for (size_t length = 0; length < size + 24; length++) {
        struct mics_safetensors file = {0};

        CHECK_INT(mics_safetensors_parse(data, length < size ? length : size, length, &file, &err),
                  MICS_ERR_FORMAT);
    }
    free(data);
}

int main(void)
{
    TAP_RUN(what_is_written_is_read_back);
    TAP_RUN(valid_files_of_other_writers_are_accepted);
    TAP_RUN(gaps_overlaps_and_wrong_ends_are_refused);
    TAP_RUN(malformed_tensors_are_named);
    TAP_RUN(malformed_headers_are_refused);
    TAP_RUN(every_truncation_is_refused);
    return tap_done();
}
