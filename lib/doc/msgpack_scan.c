/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msgpack_scan.c - look through a msgpack document before anything is built from it.
 *
 * One pass, no allocation, recursion no deeper than MICS_DOC_MAX_DEPTH. What passes is one complete
 * value whose containers fit in the bytes that are there, and which JSON can say.
 */
#include "doc/doc.h"
#include "doc/format.h"

#include <math.h>
#include <string.h>

enum kind { NIL, BOOLEAN, UNSIGNED, SIGNED, FLOAT32, FLOAT64, STRING, ARRAY, MAP, OTHER };

static const char *const kind_names[] = {
    "nil",      "a boolean", "an integer", "an integer", "a number",
    "a number", "a string",  "an array",   "a map",      "binary or extension data",
};

/* First bytes 0xc0 to 0xdf: the kind, and the bytes of the number that follows. */
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
    size_t size, at;
    uint64_t weight; /* of the values seen so far */
    unsigned depth;
    struct mics_err *err;
};

/* What a value's first bytes say: a kind, where they are, and a length, count, or number's bits. */
struct head {
    enum kind kind;
    size_t offset;
    uint64_t bits;
};

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

    if (scan->at == scan->size)
        return mics_err_set(scan->err, MICS_ERR_FORMAT,
                            "truncated: the data ends at offset %zu, where a value is expected",
                            scan->size);
    head->offset = scan->at;
    split_first_byte(scan->data[scan->at++], head, &extra);
    if (scan->size - scan->at < extra)
        return fail_truncated(scan, head);
    for (; extra > 0; extra--)
        head->bits = head->bits << 8 | scan->data[scan->at++];
    return MICS_OK;
}

static enum mics_status scan_string(struct scan *scan, const struct head *head)
{
    const char *text = (const char *)scan->data + scan->at;
    const size_t length = (size_t)head->bits;
    size_t bad;

    if (head->bits > scan->size - scan->at)
        return fail_truncated(scan, head);
    if (!mics_utf8_check(text, length, &bad))
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: text that is not UTF-8",
                            scan->at + bad);
    if (length > 0 && memchr(text, 0, length))
        return mics_err_set(scan->err, MICS_ERR_FORMAT, "offset %zu: text with a NUL byte",
                            head->offset);
    scan->at += length;
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

/* Each item takes at least one byte, and each pair two. */
static enum mics_status scan_container(struct scan *scan, const struct head *head)
{
    const uint64_t least = head->kind == MAP ? 2 : 1;
    enum mics_status status = MICS_OK;

    if (head->bits > (scan->size - scan->at) / least)
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

enum mics_status mics_msgpack_scan(const void *data, size_t size, struct mics_err *err)
{
    struct scan scan = {.data = data, .size = size, .err = err};
    const enum mics_status status = scan_value(&scan);

    if (status == MICS_OK && scan.at < size)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "offset %zu: %zu bytes after the end of the document", scan.at,
                            size - scan.at);
    return status;
}
