/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.h - bytes that grow. For lib/data/chat only. */
#ifndef MICS_DATA_CHAT_BUFFER_H
#define MICS_DATA_CHAT_BUFFER_H

#include "base/err.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* All zeros is empty; whoever has it calls free(bytes). */
struct mics_chat_buffer {
    char *bytes;
    size_t size, capacity;
};

static inline enum mics_status mics_chat_buffer_append(struct mics_chat_buffer *buffer,
                                                       const void *bytes, size_t size,
                                                       struct mics_err *err)
{
    if (!buffer->bytes || buffer->capacity - buffer->size < size) {
        const size_t capacity = 2 * (buffer->size + size) + 64;
        char *grown = realloc(buffer->bytes, capacity);

        if (!grown)
            return mics_err_nomem(err);
        buffer->bytes = grown;
        buffer->capacity = capacity;
    }
    if (size > 0)
        memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return MICS_OK;
}

#endif
