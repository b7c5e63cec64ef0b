/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msgpack_read.c - from msgpack bytes that were scanned to a value, by way of msgpack-c.
 */
#include "doc/doc.h"
#include "doc/format.h"

#include <msgpack.h>

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

static enum mics_status convert_pair(const msgpack_object_kv *pair, json_t *map,
                                     struct mics_err *err)
{
    const msgpack_object_str key = pair->key.via.str;
    json_t *value = NULL;
    enum mics_status status;

    if (json_object_getn(map, key.ptr, key.size))
        return mics_err_set(err, MICS_ERR_FORMAT, "the key '%.*s' is there twice",
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

/* NULL: out of memory, or a type that the scan does not let through. */
static json_t *convert_scalar(const msgpack_object *in)
{
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
        return json_stringn_nocheck(in->via.str.ptr, in->via.str.size);
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
    enum mics_status status = mics_msgpack_scan(data, size, err);
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
        status = mics_err_set(err, MICS_ERR_FORMAT, "msgpack that its library does not read");
    else if (unpacked.data.type != MSGPACK_OBJECT_MAP)
        status = mics_err_set(err, MICS_ERR_FORMAT, "offset 0: expected a map");
    else
        status = convert(&unpacked.data, &value, err);
    msgpack_unpacked_destroy(&unpacked);
    if (status == MICS_OK)
        *out = value;
    return status;
}
