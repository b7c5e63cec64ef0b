/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format/gguf.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, VALUE_U32 = 4, VALUE_BOOL = 7, VALUE_ARRAY = 9 };

struct buffer {
    char *bytes;
    size_t size, capacity;
};

struct mics_gguf {
    struct buffer keys, tensors;
    uint64_t key_count, tensor_count, data_bytes;
    bool failed; /* out of memory */
};

struct mics_gguf *mics_gguf_new(void)
{
    return calloc(1, sizeof(struct mics_gguf));
}

void mics_gguf_free(struct mics_gguf *gguf)
{
    if (!gguf)
        return;
    free(gguf->keys.bytes);
    free(gguf->tensors.bytes);
    free(gguf);
}

static void put(struct mics_gguf *gguf, struct buffer *to, const void *bytes, size_t size)
{
    if (to->capacity - to->size < size) {
        const size_t capacity = 2 * to->capacity + size + 4096;
        char *longer = gguf->failed ? NULL : realloc(to->bytes, capacity);

        gguf->failed = !longer;
        if (gguf->failed)
            return;
        to->bytes = longer;
        to->capacity = capacity;
    }
    if (size > 0)
        memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

/* The lowest `size` bytes of a number, lowest first. */
static void put_number(struct mics_gguf *gguf, struct buffer *to, uint64_t value, size_t size)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    put(gguf, to, bytes, size);
}

static void put_text(struct mics_gguf *gguf, struct buffer *to, const void *text, size_t size)
{
    put_number(gguf, to, size, 8);
    put(gguf, to, text, size);
}

static void put_key(struct mics_gguf *gguf, const char *key, uint32_t type)
{
    put_text(gguf, &gguf->keys, key, strlen(key));
    put_number(gguf, &gguf->keys, type, 4);
    gguf->key_count++;
}

void mics_gguf_add_u32(struct mics_gguf *gguf, const char *key, uint32_t value)
{
    put_key(gguf, key, VALUE_U32);
    put_number(gguf, &gguf->keys, value, 4);
}

void mics_gguf_add_f32(struct mics_gguf *gguf, const char *key, float value)
{
    put_key(gguf, key, MICS_GGUF_FLOAT32);
    mics_gguf_put_f32(gguf, value);
}

void mics_gguf_add_bool(struct mics_gguf *gguf, const char *key, bool value)
{
    put_key(gguf, key, VALUE_BOOL);
    put_number(gguf, &gguf->keys, value, 1);
}

void mics_gguf_add_string(struct mics_gguf *gguf, const char *key, const void *text, size_t size)
{
    put_key(gguf, key, MICS_GGUF_STRING);
    mics_gguf_put_string(gguf, text, size);
}

void mics_gguf_add_array(struct mics_gguf *gguf, const char *key, enum mics_gguf_value type,
                         uint64_t count)
{
    put_key(gguf, key, VALUE_ARRAY);
    put_number(gguf, &gguf->keys, type, 4);
    put_number(gguf, &gguf->keys, count, 8);
}

void mics_gguf_put_i32(struct mics_gguf *gguf, int32_t value)
{
    put_number(gguf, &gguf->keys, (uint32_t)value, 4);
}

void mics_gguf_put_f32(struct mics_gguf *gguf, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_number(gguf, &gguf->keys, bits, 4);
}

void mics_gguf_put_string(struct mics_gguf *gguf, const void *text, size_t size)
{
    put_text(gguf, &gguf->keys, text, size);
}

uint64_t mics_gguf_add_tensor(struct mics_gguf *gguf, const char *name, enum mics_gguf_type type,
                              const uint64_t *shape, uint32_t rank, uint64_t bytes)
{
    struct buffer *to = &gguf->tensors;
    const uint64_t at = gguf->data_bytes;

    put_text(gguf, to, name, strlen(name));
    put_number(gguf, to, rank, 4);
    for (uint32_t i = rank; i-- > 0;)
        put_number(gguf, to, shape[i], 8);
    put_number(gguf, to, type, 4);
    put_number(gguf, to, at, 8);
    gguf->tensor_count++;
    gguf->data_bytes += mics_round_up(bytes, MICS_GGUF_ALIGN);
    return at;
}

uint64_t mics_gguf_data_bytes(const struct mics_gguf *gguf)
{
    return gguf->data_bytes;
}

enum mics_status mics_gguf_finish(const struct mics_gguf *gguf, char **data, size_t *size,
                                  struct mics_err *err)
{
    static const char zeros[MICS_GGUF_ALIGN];
    struct mics_gguf all = {.failed = gguf->failed};
    struct buffer *out = &all.keys;

    put(&all, out, "GGUF", 4);
    put_number(&all, out, VERSION, 4);
    put_number(&all, out, gguf->tensor_count, 8);
    put_number(&all, out, gguf->key_count, 8);
    put(&all, out, gguf->keys.bytes, gguf->keys.size);
    put(&all, out, gguf->tensors.bytes, gguf->tensors.size);
    put(&all, out, zeros, mics_round_up(out->size, MICS_GGUF_ALIGN) - out->size);
    if (all.failed) {
        free(out->bytes);
        return mics_err_nomem(err);
    }
    *data = out->bytes;
    *size = out->size;
    return MICS_OK;
}
