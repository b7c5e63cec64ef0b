/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msgpack_write.c - a value as msgpack, by msgpack-c's packer.
 *
 * The only failure of the packer's functions is that of its buffer: memory.
 */
#include "doc/doc.h"
#include "doc/format.h"

#include <msgpack.h>

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
