/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format/safetensors.h"

#include "base/num.h"
#include "ckpt/format/storage_dtype.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 4096

/* New references go into the object even when one of them is NULL: then the result is -1. */
static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value);
}

static json_t *describe(const struct mics_safetensor_spec *spec, uint64_t begin, uint64_t end)
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

static json_t *build(const struct mics_safetensor_spec *specs, size_t count)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;

    for (size_t i = 0; header && i < count; i++) {
        uint64_t bytes = 0;
        bool counted = mics_file_dtype_bytes(mics_file_dtype_find(specs[i].dtype), specs[i].shape,
                                             specs[i].rank, &bytes);

        assert(counted && specs[i].rank <= MICS_SAFETENSORS_MAX_RANK);
        if (!counted || set(header, specs[i].name, describe(&specs[i], at, at + bytes)) != 0) {
            json_decref(header);
            return NULL;
        }
        at += bytes;
    }
    return header;
}

static enum mics_status pad(const char *text, char **data, size_t *size, struct mics_err *err)
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
    json_t *header = build(specs, count);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    enum mics_status status = text ? pad(text, data, size, err) : mics_err_nomem(err);

    free(text);
    json_decref(header);
    return status;
}
