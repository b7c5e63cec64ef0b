/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msgpack.c - msgpack to a value and back, by msgpack-c.
 *
 * The bytes are scanned before msgpack-c reads them: in one pass, without allocating, and with a
 * recursion of at most MICS_DOC_MAX_DEPTH. They pass if they are exactly one value that JSON can
 * represent.
 */
#include "base/utf8.h"
#include "doc/doc.h"
#include "doc/encoding.h"

#include <math.h>
#include <msgpack.h>
#include <string.h>

enum kind { NIL, BOOLEAN, UNSIGNED, SIGNED, FLOAT32, FLOAT64, STRING, ARRAY, MAP, OTHER };

static const char *const kind_names[] = {
    "nil",      "a boolean", "an integer", "an integer", "a number",
    "a number", "a string",  "an array",   "a map",      "binary or extension data",
};

/* First bytes 0xc0 to 0xdf: the kind, and how many bytes of a number follow. */
static const struct form {
    uint8_t kind, extra;
} forms[32] = {
    {NIL, 0},      {OTHER, 0},    {BOOLEAN, 0},  {BOOLEAN, 0},  {OTHER, 0},   {OTHER, 0},
    {OTHER, 0},    {OTHER, 0},    {OTHER, 0},    {OTHER, 0},    {FLOAT32, 4}, {FLOAT64, 8},
    {UNSIGNED, 1}, {UNSIGNED, 2}, {UNSIGNED, 4}, {UNSIGNED, 8}, {SIGNED, 1},  {SIGNED, 2},
    {SIGNED, 4},   {SIGNED, 8},   {OTHER, 0},    {OTHER, 0},    {OTHER, 0},   {OTHER, 0},
    {OTHER, 0},    {STRING, 1},   {STRING, 2},   {STRING, 4},   {ARRAY, 2},   {ARRAY, 4},
    {MAP, 2},      {MAP, 4},
};

struct scan {
    const uint8_t *data;
    size_t size, offset;
    uint64_t weight; /* of the values seen so far */
    unsigned depth;
    struct mics_err *err;
};

/* The first bytes of a value: where they are, its kind, and its length, its count, or its bits. */
struct head {
    enum kind kind;
    size_t offset;
    uint64_t bits;
};

static size_t bytes_left(const struct scan *scan)
{
    return scan->size - scan->offset;
}

static enum mics_status fail_truncated(const struct scan *scan, const struct head *head)
{
    return mics_err_set(
        scan->err, MICS_ERR_FORMAT,
        "truncated: the data ends at offset %zu, inside %s that begins at offset %zu", scan->size,
        kind_names[head->kind], head->offset);
}

static void split_first_byte(uint8_t byte, struct head *head, unsigned *extra)
{
    *extra = 0;
    head->bits = 0;
    if (byte < 0x80 || byte >= 0xe0) {
        head->kind = SIGNED;
    } else if (byte < 0x90) {
        head->kind = MAP;
        head->bits = byte & 0x0f;
    } else if (byte < 0xa0) {
        head->kind = ARRAY;
        head->bits = byte & 0x0f;
    } else if (byte < 0xc0) {
        head->kind = STRING;
        head->bits = byte & 0x1f;
    } else {
        head->kind = (enum kind)forms[byte - 0xc0].kind;
        *extra = forms[byte - 0xc0].extra;
    }
}

static enum mics_status read_head(struct scan *scan, struct head *head)
{
    unsigned extra;

    if (scan->offset == scan->size)
        return mics_err_set(scan->err, MICS_ERR_FORMAT,
                            "truncated: the data ends at offset %zu, where a value is expected",
                            scan->size);
    head->offset = scan->offset;
    split_first_byte(scan->data[scan->offset++], head, &extra);
    if (bytes_left(scan) < extra)
        return fail_truncated(scan, head);
    for (; extra > 0; extra--)
        head->bits = head->bits << 8 | scan->data[scan->offset++];
    return MICS_OK;
}

static enum mics_status scan_string(struct scan *scan, const struct head *head)
{
    const char *text = (const char *)scan->data + scan->offset;
    const size_t length = (size_t)head->bits;
    size_t bad;

    if (head->bits > bytes_left(scan))
        return fail_truncated(scan, head);
    if (!mics_utf8_check(text, length, &bad))
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: text that is not UTF-8",
                            scan->offset + bad);
    if (length > 0 && memchr(text, 0, length))
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: text with a NUL byte",
                            head->offset);
    scan->offset += length;
    return MICS_OK;
}

static enum mics_status scan_number(struct scan *scan, const struct head *head)
{
    double value = 0;

    if (head->kind == UNSIGNED && head->bits > INT64_MAX)
        return mics_err_set(scan->err, MICS_ERR_FORMAT,
                            "offset %zu: an integer above 9223372036854775807", head->offset);
    if (head->kind == FLOAT32) {
        const uint32_t bits = (uint32_t)head->bits;
        float single;

        memcpy(&single, &bits, sizeof single);
        value = single;
    } else if (head->kind == FLOAT64) {
        memcpy(&value, &head->bits, sizeof value);
    }
    if (!isfinite(value))
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: a number that is not finite",
                            head->offset);
    return MICS_OK;
}

static enum mics_status scan_value(struct scan *scan);

static enum mics_status scan_key(struct scan *scan)
{
    struct head head;
    enum mics_status status = read_head(scan, &head);

    if (status != MICS_OK)
        return status;
    if (head.kind != STRING)
        return mics_err_set(scan->err, MICS_ERR_FORMAT,
                            "offset %zu: the key of a map must be a string, found %s", head.offset,
                            kind_names[head.kind]);
    return scan_string(scan, &head);
}

/* An item takes at least one byte, a pair of a map two. */
static enum mics_status scan_container(struct scan *scan, const struct head *head)
{
    const uint64_t least = head->kind == MAP ? 2 : 1;
    enum mics_status status = MICS_OK;

    if (head->bits > bytes_left(scan) / least)
        return mics_err_set(scan->err, MICS_ERR_FORMAT,
                            "truncated: the data ends at offset %zu, too soon for %s of %llu items "
                            "that begins at offset %zu",
                            scan->size, kind_names[head->kind], (unsigned long long)head->bits,
                            head->offset);
    if (scan->depth == MICS_DOC_MAX_DEPTH)
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: nested deeper than %d",
                            head->offset, MICS_DOC_MAX_DEPTH);
    scan->depth++;
    for (uint64_t i = 0; i < head->bits && status == MICS_OK; i++) {
        if (head->kind == MAP)
            status = scan_key(scan);
        if (status == MICS_OK)
            status = scan_value(scan);
    }
    scan->depth--;
    return status;
}

static enum mics_status scan_value(struct scan *scan)
{
    struct head head;
    const enum mics_status status = read_head(scan, &head);

    if (status != MICS_OK)
        return status;
    scan->weight += head.kind == MAP || head.kind == ARRAY ? MICS_DOC_CONTAINER_WEIGHT : 1;
    if (scan->weight > MICS_DOC_MAX_VALUES)
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: more than %u values",
                            head.offset, MICS_DOC_MAX_VALUES);
    switch (head.kind) {
    case MAP:
    case ARRAY:
        return scan_container(scan, &head);
    case STRING:
        return scan_string(scan, &head);
    case OTHER:
        return mics_err_set(scan->err, MICS_ERR_FORMAT,
                            "offset %zu: byte 0x%02x: binary, extension and reserved types are not "
                            "used in documents",
                            head.offset, scan->data[head.offset]);
    default:
        return scan_number(scan, &head);
    }
}

static enum mics_status scan_document(const void *data, size_t size, struct mics_err *err)
{
    struct scan scan = {.data = data, .size = size, .err = err};
    const enum mics_status status = scan_value(&scan);

    if (status == MICS_OK && scan.offset < size)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "offset %zu: %zu bytes after the end of the document", scan.offset,
                            size - scan.offset);
    return status;
}

static enum mics_status convert(const msgpack_object *in, json_t **out, struct mics_err *err);

static enum mics_status convert_array(const msgpack_object_array *in, json_t **out,
                                      struct mics_err *err)
{
    json_t *array = json_array();
    enum mics_status status = array ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; i < in->size && status == MICS_OK; i++) {
        json_t *item = NULL;

        status = convert(&in->ptr[i], &item, err);
        if (status == MICS_OK && json_array_append_new(array, item) != 0)
            status = mics_err_nomem(err);
    }
    if (status != MICS_OK) {
        json_decref(array);
        return status;
    }
    *out = array;
    return MICS_OK;
}

/* msgpack-c may leave the address of an empty string NULL, which jansson refuses. */
static msgpack_object_str string_of(const msgpack_object *in)
{
    const msgpack_object_str string = in->via.str;

    return string.size > 0 ? string : (msgpack_object_str){.ptr = "", .size = 0};
}

static enum mics_status convert_pair(const msgpack_object_kv *pair, json_t *map,
                                     struct mics_err *err)
{
    const msgpack_object_str key = string_of(&pair->key);
    json_t *value = NULL;
    enum mics_status status;

    if (json_object_getn(map, key.ptr, key.size))
        return mics_err_set(err, MICS_ERR_FORMAT, "duplicate key '%.*s'",
                            key.size > 64 ? 64 : (int)key.size, key.ptr);
    status = convert(&pair->val, &value, err);
    if (status != MICS_OK)
        return status;
    if (json_object_setn_new_nocheck(map, key.ptr, key.size, value) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

static enum mics_status convert_map(const msgpack_object_map *in, json_t **out,
                                    struct mics_err *err)
{
    json_t *map = json_object();
    enum mics_status status = map ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; i < in->size && status == MICS_OK; i++)
        status = convert_pair(&in->ptr[i], map, err);
    if (status != MICS_OK) {
        json_decref(map);
        return status;
    }
    *out = map;
    return MICS_OK;
}

/* NULL: out of memory, or a type that the scan refuses. */
static json_t *convert_scalar(const msgpack_object *in)
{
    msgpack_object_str string;

    switch (in->type) {
    case MSGPACK_OBJECT_NIL:
        return json_null();
    case MSGPACK_OBJECT_BOOLEAN:
        return json_boolean(in->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return json_integer((json_int_t)in->via.u64);
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        return json_integer(in->via.i64);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return json_real(in->via.f64);
    case MSGPACK_OBJECT_STR:
        string = string_of(in);
        return json_stringn_nocheck(string.ptr, string.size);
    default:
        return NULL;
    }
}

static enum mics_status convert(const msgpack_object *in, json_t **out, struct mics_err *err)
{
    if (in->type == MSGPACK_OBJECT_ARRAY)
        return convert_array(&in->via.array, out, err);
    if (in->type == MSGPACK_OBJECT_MAP)
        return convert_map(&in->via.map, out, err);
    *out = convert_scalar(in);
    return *out ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_msgpack_read(const void *data, size_t size, json_t **out,
                                   struct mics_err *err)
{
    enum mics_status status = scan_document(data, size, err);
    msgpack_unpacked unpacked;
    msgpack_unpack_return result;
    json_t *value = NULL;

    if (status != MICS_OK)
        return status;
    msgpack_unpacked_init(&unpacked);
    result = msgpack_unpack_next(&unpacked, data, size, NULL);
    if (result == MSGPACK_UNPACK_NOMEM_ERROR)
        status = mics_err_nomem(err);
    else if (result != MSGPACK_UNPACK_SUCCESS)
        status = mics_err_set(err, MICS_ERR_FORMAT, "msgpack-c cannot read it");
    else if (unpacked.data.type != MSGPACK_OBJECT_MAP)
        status = mics_err_set(err, MICS_ERR_FORMAT, "offset 0: expected a map");
    else
        status = convert(&unpacked.data, &value, err);
    msgpack_unpacked_destroy(&unpacked);
    if (status == MICS_OK)
        *out = value;
    return status;
}

/* The packer fails only if its buffer cannot grow. */
static int pack(msgpack_packer *packer, const json_t *value);

static int pack_string(msgpack_packer *packer, const char *text, size_t length)
{
    if (msgpack_pack_str(packer, length) != 0)
        return -1;
    return msgpack_pack_str_body(packer, text, length);
}

static int pack_array(msgpack_packer *packer, const json_t *value)
{
    const size_t count = json_array_size(value);

    if (msgpack_pack_array(packer, count) != 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (pack(packer, json_array_get(value, i)) != 0)
            return -1;
    return 0;
}

static int pack_map(msgpack_packer *packer, const json_t *value)
{
    void *iter = json_object_iter((json_t *)(uintptr_t)value);

    if (msgpack_pack_map(packer, json_object_size(value)) != 0)
        return -1;
    for (; iter; iter = json_object_iter_next((json_t *)(uintptr_t)value, iter)) {
        if (pack_string(packer, json_object_iter_key(iter), json_object_iter_key_len(iter)) != 0)
            return -1;
        if (pack(packer, json_object_iter_value(iter)) != 0)
            return -1;
    }
    return 0;
}

static int pack(msgpack_packer *packer, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return pack_map(packer, value);
    case JSON_ARRAY:
        return pack_array(packer, value);
    case JSON_STRING:
        return pack_string(packer, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        return msgpack_pack_int64(packer, json_integer_value(value));
    case JSON_REAL:
        return msgpack_pack_double(packer, json_real_value(value));
    case JSON_TRUE:
        return msgpack_pack_true(packer);
    case JSON_FALSE:
        return msgpack_pack_false(packer);
    case JSON_NULL:
        return msgpack_pack_nil(packer);
    }
    return -1;
}

enum mics_status mics_msgpack_write(const json_t *value, char **data, size_t *size,
                                    struct mics_err *err)
{
    msgpack_sbuffer buffer;
    msgpack_packer packer;

    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    if (pack(&packer, value) != 0) {
        msgpack_sbuffer_destroy(&buffer);
        return mics_err_nomem(err);
    }
    *size = buffer.size;
    *data = msgpack_sbuffer_release(&buffer);
    return MICS_OK;
}
