/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader parses the header as JSON and checks each tensor by itself. Then it sorts the tensors
 * by offset and checks that they tile the data: the first begins at 0, each begins where the one
 * before it ends, and the last ends with the file.
 */
#include "ckpt/format/safetensors.h"

#include "base/file.h"
#include "base/num.h"

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define METADATA   "__metadata__"
#define DATA_ALIGN 4096

#define MAX_TENSOR_TEXT (64u << 10)

/* The element types of the format. */
struct storage_dtype {
    const char *name;
    unsigned bits;
};

static const struct storage_dtype dtypes[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16}, {"F64", 64},    {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},   {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8}, {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

static const struct storage_dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* *bytes = size of a tensor. False if the size overflows or is not a whole number of bytes. */
static bool tensor_bytes(const struct storage_dtype *dtype, const uint64_t *shape, uint32_t rank,
                         uint64_t *bytes)
{
    uint64_t bits = dtype->bits;

    for (uint32_t i = 0; i < rank; i++)
        if (!mics_mul_u64(bits, shape[i], &bits))
            return false;
    *bytes = bits / 8;
    return bits % 8 == 0;
}

static enum mics_status tensor_error(struct mics_err *err, const char *name, const char *what)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%.64s': %s", name, what);
}

static bool as_u64(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static enum mics_status read_shape(const json_t *value, struct mics_safetensor *tensor,
                                   struct mics_err *err)
{
    size_t rank = json_array_size(value);

    if (!json_is_array(value) || rank > MICS_SAFETENSORS_MAX_RANK)
        return tensor_error(err, tensor->name, "shape is not a list of up to 8 sizes");
    tensor->rank = (uint32_t)rank;
    for (size_t i = 0; i < rank; i++)
        if (!as_u64(json_array_get(value, i), &tensor->shape[i]))
            return tensor_error(err, tensor->name, "shape holds something that is not a size");
    return MICS_OK;
}

static enum mics_status read_offsets(const json_t *value, struct mics_safetensor *tensor,
                                     struct mics_err *err)
{
    if (json_array_size(value) != 2 || !as_u64(json_array_get(value, 0), &tensor->begin) ||
        !as_u64(json_array_get(value, 1), &tensor->end))
        return tensor_error(err, tensor->name, "data_offsets is not a pair of offsets");
    if (tensor->begin > tensor->end)
        return tensor_error(err, tensor->name, "data_offsets: the end is before the beginning");
    return MICS_OK;
}

static enum mics_status read_tensor(const char *name, const json_t *value,
                                    struct mics_safetensor *tensor, struct mics_err *err)
{
    const char *dtype_name = json_string_value(json_object_get(value, "dtype"));
    const struct storage_dtype *dtype = dtype_name ? find_dtype(dtype_name) : NULL;
    enum mics_status status;
    uint64_t bytes;

    *tensor = (struct mics_safetensor){.name = name};
    if (!json_is_object(value))
        return tensor_error(err, name, "is not an object");
    if (!dtype)
        return tensor_error(err, name, dtype_name ? "unknown dtype" : "no dtype");
    tensor->dtype = dtype->name;
    status = read_shape(json_object_get(value, "shape"), tensor, err);
    if (status != MICS_OK)
        return status;
    status = read_offsets(json_object_get(value, "data_offsets"), tensor, err);
    if (status != MICS_OK)
        return status;
    if (!tensor_bytes(dtype, tensor->shape, tensor->rank, &bytes))
        return tensor_error(err, name, "shape has more bytes than can be counted");
    if (bytes != tensor->end - tensor->begin)
        return tensor_error(err, name, "shape and data_offsets disagree about its size");
    return MICS_OK;
}

/*
 * The header can have 100 MB, which as values of jansson would take forty times as much. So it is
 * read member by member: a member's text is found first, and only that is parsed.
 */

/* A walk through the members of an object. */
struct walk {
    const char *text, *at, *end; /* `text`: of the whole header, for offsets */
    bool begun;
    json_t *key;
    const char *value; /* its text */
    size_t length;
};

static void skip_blanks(struct walk *walk)
{
    while (walk->at < walk->end && memchr(" \t\r\n", *walk->at, 4))
        walk->at++;
}

static enum mics_status walk_error(const struct walk *walk, const char *at, const char *what,
                                   struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "header: %s at byte %zu", what,
                        8 + (size_t)(at - walk->text));
}

/* After the string that begins at `at`. */
static const char *string_end(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at < end ? at + 1 : end;
}

/* After the value that begins at `at`; only brackets and strings are looked at. */
static const char *value_end(const char *at, const char *end)
{
    size_t depth = 0;

    while (at < end) {
        if (*at == '"') {
            at = string_end(at, end);
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        else if (depth == 0 && (*at == ',' || *at == '}' || *at == ']'))
            break;
        else if ((*at == '}' || *at == ']') && --depth == 0)
            return at + 1;
        at++;
    }
    return at;
}

static enum mics_status parse_value(const struct walk *walk, const char *text, size_t length,
                                    json_t **out, struct mics_err *err)
{
    json_error_t problem;

    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    if (*out)
        return MICS_OK;
    if (json_error_code(&problem) == json_error_out_of_memory)
        return mics_err_nomem(err);
    return walk_error(walk, text + problem.position, problem.text, err);
}

/* Go to the next member of the object that walk->at is in. *found: there is one. The key is freed
 * by the next call, or by the caller. */
static enum mics_status next_member(struct walk *walk, bool *found, struct mics_err *err)
{
    *found = false;
    json_decref(walk->key);
    walk->key = NULL;
    skip_blanks(walk);
    if (walk->at < walk->end && *walk->at == '}' && walk->at++)
        return MICS_OK;
    if (walk->begun && (walk->at == walk->end || *walk->at++ != ','))
        return walk_error(walk, walk->at, "expected ',' or '}'", err);
    walk->begun = true;
    skip_blanks(walk);
    if (walk->at == walk->end || *walk->at != '"')
        return walk_error(walk, walk->at, "expected a name in quotes", err);
    const char *const key = walk->at;

    walk->at = string_end(key, walk->end);
    const enum mics_status status =
        parse_value(walk, key, (size_t)(walk->at - key), &walk->key, err);

    if (status != MICS_OK)
        return status;
    skip_blanks(walk);
    if (walk->at == walk->end || *walk->at++ != ':')
        return walk_error(walk, walk->at, "expected ':'", err);
    skip_blanks(walk);
    walk->value = walk->at;
    walk->at = value_end(walk->at, walk->end);
    walk->length = (size_t)(walk->at - walk->value);
    *found = true;
    return MICS_OK;
}

/* Metadata are strings by name, of which nothing is kept. */
static enum mics_status check_metadata(const struct walk *header, struct mics_err *err)
{
    struct walk walk = {
        .text = header->text, .at = header->value + 1, .end = header->value + header->length};
    enum mics_status status = MICS_OK;
    bool found = true;

    if (header->length < 2 || header->value[0] != '{')
        return mics_err_set(err, MICS_ERR_FORMAT, METADATA " is not an object");
    while ((status = next_member(&walk, &found, err)) == MICS_OK && found) {
        json_t *value = NULL;

        if (walk.length == 0 || *walk.value != '"') {
            status = mics_err_set(err, MICS_ERR_FORMAT, METADATA ".%.64s is not a string",
                                  json_string_value(walk.key));
            break;
        }
        status = parse_value(&walk, walk.value, walk.length, &value, err);
        json_decref(value);
        if (status != MICS_OK)
            break;
    }
    json_decref(walk.key);
    return status;
}

/* Append a tensor, and its name to the others. */
static enum mics_status add_tensor(struct mics_safetensors *file, const struct walk *walk,
                                   size_t *capacity, size_t *names_used, struct mics_err *err)
{
    const size_t length = json_string_length(walk->key);
    char *const name = file->names + *names_used;
    json_t *value = NULL;

    memcpy(name, json_string_value(walk->key), length + 1);
    *names_used += length + 1;
    if (walk->length > MAX_TENSOR_TEXT)
        return tensor_error(err, name, "is described by more than 64 KiB");
    if (file->count == *capacity) {
        const size_t wanted = *capacity * 2 + 16;
        struct mics_safetensor *grown = realloc(file->tensors, wanted * sizeof *grown);

        if (!grown)
            return mics_err_nomem(err);
        file->tensors = grown;
        *capacity = wanted;
    }
    enum mics_status status = parse_value(walk, walk->value, walk->length, &value, err);

    if (status == MICS_OK)
        status = read_tensor(name, value, &file->tensors[file->count++], err);
    json_decref(value);
    return status;
}

static enum mics_status read_members(struct mics_safetensors *file, struct walk *walk,
                                     struct mics_err *err)
{
    size_t capacity = 0, names_used = 0;
    bool found = true, has_metadata = false;
    enum mics_status status;

    while ((status = next_member(walk, &found, err)) == MICS_OK && found) {
        if (strcmp(json_string_value(walk->key), METADATA) != 0) {
            status = add_tensor(file, walk, &capacity, &names_used, err);
        } else {
            status = has_metadata ? walk_error(walk, walk->value, "a second " METADATA, err)
                                  : check_metadata(walk, err);
            has_metadata = true;
        }
        if (status != MICS_OK)
            return status;
    }
    return status;
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const struct mics_safetensor *x = tensors, *y = tensors;

    return strcmp(x[*(const uint32_t *)a].name, y[*(const uint32_t *)b].name);
}

/* Sort the names, none of which may occur twice. */
static enum mics_status index_names(struct mics_safetensors *file, struct mics_err *err)
{
    file->by_name = malloc((file->count + 1) * sizeof *file->by_name);
    if (!file->by_name)
        return mics_err_nomem(err);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = (uint32_t)i;
    if (file->count > 0)
        qsort_r(file->by_name, file->count, sizeof *file->by_name, by_name, file->tensors);
    for (size_t i = 1; i < file->count; i++) {
        const char *name = file->tensors[file->by_name[i]].name;

        if (strcmp(name, file->tensors[file->by_name[i - 1]].name) == 0)
            return tensor_error(err, name, "a duplicate name");
    }
    return MICS_OK;
}

/* `text` begins with '{'. */
static enum mics_status read_tensors(struct mics_safetensors *file, const char *text, size_t length,
                                     struct mics_err *err)
{
    struct walk walk = {.text = text, .at = text + 1, .end = text + length};

    /* A name takes no more than its text, and its NUL no more than its quotes. */
    file->names = malloc(length);
    if (!file->names)
        return mics_err_nomem(err);
    const enum mics_status status = read_members(file, &walk, err);

    json_decref(walk.key);
    if (status != MICS_OK)
        return status;
    skip_blanks(&walk);
    if (walk.at < walk.end)
        return walk_error(&walk, walk.at, "text after the end", err);
    return MICS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct mics_safetensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static enum mics_status check_tiling(struct mics_safetensors *file, uint64_t data_bytes,
                                     struct mics_err *err)
{
    uint64_t at = 0;

    if (file->count > 0)
        qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    for (size_t i = 0; i < file->count; i++) {
        const struct mics_safetensor *tensor = &file->tensors[i];

        if (tensor->begin != at)
            return tensor_error(err, tensor->name,
                                tensor->begin < at ? "overlaps the one before it"
                                                   : "a gap before it");
        at = tensor->end;
    }
    if (at != data_bytes)
        return mics_err_set(err, MICS_ERR_FORMAT, "the tensors have %llu bytes, the file %llu",
                            (unsigned long long)at, (unsigned long long)data_bytes);
    return MICS_OK;
}

static enum mics_status header_length(const unsigned char *bytes, size_t size, uint64_t file_bytes,
                                      uint64_t *length, struct mics_err *err)
{
    uint64_t value = 0;

    if (size < 8)
        return mics_err_set(err, MICS_ERR_FORMAT, "%zu bytes are too few for a safetensors file",
                            size);
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    if (value > MICS_SAFETENSORS_MAX_HEADER)
        return mics_err_set(err, MICS_ERR_FORMAT, "a header of %llu bytes: not a safetensors file",
                            (unsigned long long)value);
    if (value > size - 8 || value > file_bytes - 8)
        return mics_err_set(err, MICS_ERR_FORMAT, "the file ends inside its header of %llu bytes",
                            (unsigned long long)value);
    if (value < 2 || bytes[8] != '{')
        return mics_err_set(err, MICS_ERR_FORMAT, "the header does not begin with '{'");
    *length = value;
    return MICS_OK;
}

enum mics_status mics_safetensors_parse(const void *data, size_t size, uint64_t file_bytes,
                                        struct mics_safetensors *out, struct mics_err *err)
{
    struct mics_safetensors file = {0};
    uint64_t length = 0;
    enum mics_status status = header_length(data, size, file_bytes, &length, err);

    if (status != MICS_OK)
        return status;
    file.data_offset = 8 + length;
    status = read_tensors(&file, (const char *)data + 8, length, err);
    if (status == MICS_OK)
        status = check_tiling(&file, file_bytes - file.data_offset, err);
    if (status == MICS_OK)
        status = index_names(&file, err);
    if (status != MICS_OK) {
        mics_safetensors_free(&file);
        return status;
    }
    *out = file;
    return MICS_OK;
}

void mics_safetensors_free(struct mics_safetensors *file)
{
    free(file->tensors);
    free(file->by_name);
    free(file->names);
    *file = (struct mics_safetensors){0};
}

const struct mics_safetensor *mics_safetensors_find(const struct mics_safetensors *file,
                                                    const char *name)
{
    size_t begin = 0, end = file->count;

    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        const struct mics_safetensor *tensor = &file->tensors[file->by_name[middle]];
        const int order = strcmp(name, tensor->name);

        if (order == 0)
            return tensor;
        if (order < 0)
            end = middle;
        else
            begin = middle + 1;
    }
    return NULL;
}

enum mics_status mics_safetensors_load(int fd, uint64_t file_bytes, struct mics_safetensors *out,
                                       struct mics_err *err)
{
    unsigned char length[8] = {0}, *data = NULL;
    size_t size = (size_t)mics_min_u64(sizeof length, file_bytes);
    uint64_t value = 0;
    enum mics_status status = mics_file_read_at(fd, length, size, 0, err);

    if (status != MICS_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | length[i];
    if (value <= MICS_SAFETENSORS_MAX_HEADER) /* else mics_safetensors_parse() fails */
        size = (size_t)mics_min_u64(sizeof length + value, file_bytes);
    data = malloc(size + 1);
    if (!data)
        return mics_err_nomem(err);
    status = mics_file_read_at(fd, data, size, 0, err);
    if (status == MICS_OK)
        status = mics_safetensors_parse(data, size, file_bytes, out, err);
    free(data);
    return status;
}

/* Takes over the reference. -1 if `value` is NULL or out of memory. */
static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value);
}

static json_t *tensor_to_json(const struct mics_safetensor_spec *spec, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array(), *tensor = json_object();
    int failed = !shape || !tensor;

    for (uint32_t i = 0; !failed && i < spec->rank; i++)
        failed = json_array_append_new(shape, json_integer((json_int_t)spec->shape[i]));
    if (!failed)
        failed =
            set(tensor, "dtype", json_string(spec->dtype)) ||
            set(tensor, "shape", json_incref(shape)) ||
            set(tensor, "data_offsets", json_pack("[I,I]", (json_int_t)begin, (json_int_t)end));
    json_decref(shape);
    if (failed) {
        json_decref(tensor);
        return NULL;
    }
    return tensor;
}

static json_t *header_to_json(const struct mics_safetensor_spec *specs, size_t count)
{
    json_t *header = json_pack("{s:{s:s}}", METADATA, "format", "pt");
    uint64_t at = 0;

    for (size_t i = 0; header && i < count; i++) {
        uint64_t bytes = 0;
        bool counted =
            tensor_bytes(find_dtype(specs[i].dtype), specs[i].shape, specs[i].rank, &bytes);

        assert(counted && specs[i].rank <= MICS_SAFETENSORS_MAX_RANK);
        if (!counted ||
            set(header, specs[i].name, tensor_to_json(&specs[i], at, at + bytes)) != 0) {
            json_decref(header);
            return NULL;
        }
        at += bytes;
    }
    return header;
}

/* Length, header text and padding. */
static enum mics_status encode_header(const char *text, char **data, size_t *size,
                                      struct mics_err *err)
{
    size_t length = strlen(text), total = mics_round_up(8 + length, DATA_ALIGN);
    unsigned char *bytes = malloc(total);

    if (!bytes)
        return mics_err_nomem(err);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)(total - 8) >> (8 * i));
    memcpy(bytes + 8, text, length);
    memset(bytes + 8 + length, ' ', total - 8 - length);
    *data = (char *)bytes;
    *size = total;
    return MICS_OK;
}

enum mics_status mics_safetensors_header(const struct mics_safetensor_spec *specs, size_t count,
                                         char **data, size_t *size, struct mics_err *err)
{
    json_t *header = header_to_json(specs, count);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    enum mics_status status = text ? encode_header(text, data, size, err) : mics_err_nomem(err);

    free(text);
    json_decref(header);
    return status;
}
