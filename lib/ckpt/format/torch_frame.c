/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frame.c - the records of an archive: the small entries stand before the numbers, so that
 * their offsets are short; only the list of entries behind them may lie far away.
 */
#include "ckpt/format/torch_frame.h"

#include "doc/pickle_writer.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = 2048, /* of head and tail; about 500 each */
    VERSION = 45,     /* of ZIP: the first with ZIP64 */
    DATE = 0x21,      /* 1980-01-01 */
    LOCAL_BYTES = 30, /* of an entry's header, without name and extra field */
    EXTRA64_BYTES = 20,
    EXTRA_BYTES = 4, /* head of an extra field */
    END64_BYTES = 56,
};

/* What is stored elsewhere, in a field of ZIP64. */
#define LARGE_16 UINT16_MAX
#define LARGE_32 UINT32_MAX

struct block {
    unsigned char bytes[MAX_BYTES];
    size_t size;
};

struct entry {
    const char *name;
    uint64_t bytes, local; /* where its header is */
    bool large;
};

static void put(struct block *block, const void *bytes, size_t size)
{
    assert(size <= MAX_BYTES - block->size);
    memcpy(block->bytes + block->size, bytes, size);
    block->size += size;
}

static void put_number(struct block *block, uint64_t value, size_t size)
{
    unsigned char bytes[8] = {0};

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    put(block, bytes, size);
}

/* What headers in front of entries and in the list have in common. */
static void put_entry(struct block *block, const struct entry *entry, size_t extra)
{
    const uint64_t bytes = entry->large ? LARGE_32 : entry->bytes;

    put_number(block, VERSION, 2);
    put_number(block, 0, 2); /* flags */
    put_number(block, 0, 2); /* stored */
    put_number(block, 0, 2); /* time */
    put_number(block, DATE, 2);
    put_number(block, 0, 4); /* CRC-32 */
    put_number(block, bytes, 4);
    put_number(block, bytes, 4);
    put_number(block, strlen(entry->name), 2);
    put_number(block, extra, 2);
}

static void put_sizes(struct block *block, const struct entry *entry)
{
    if (!entry->large)
        return;
    put_number(block, 1, 2); /* ZIP64 */
    put_number(block, 16, 2);
    put_number(block, entry->bytes, 8);
    put_number(block, entry->bytes, 8);
}

/* A header after which `align` divides the size of the block. */
static void put_local(struct block *block, struct entry *entry, size_t align)
{
    static const unsigned char zeros[MICS_TORCH_ALIGN];
    const size_t fixed = (entry->large ? EXTRA64_BYTES : 0) + EXTRA_BYTES;
    const size_t end = block->size + LOCAL_BYTES + strlen(entry->name) + fixed;
    const size_t padding = (align - end % align) % align;

    entry->local = block->size;
    put(block, "PK\3\4", 4);
    put_entry(block, entry, fixed + padding);
    put(block, entry->name, strlen(entry->name));
    put_sizes(block, entry);
    put(block, "FB", 2); /* the field with which torch.save pads */
    put_number(block, padding, 2);
    put(block, zeros, padding);
}

static void put_list(struct block *block, const struct entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put(block, "PK\1\2", 4);
        put_number(block, VERSION, 2);
        put_entry(block, &entries[i], entries[i].large ? EXTRA64_BYTES : 0);
        put_number(block, 0, 2); /* comment */
        put_number(block, 0, 2); /* disk */
        put_number(block, 0, 2); /* attributes */
        put_number(block, 0, 4);
        put_number(block, entries[i].local, 4);
        put(block, entries[i].name, strlen(entries[i].name));
        put_sizes(block, &entries[i]);
    }
}

/* The list of entries, which begins at `at` in the archive, and the records after it. */
static void put_tail(struct block *block, const struct entry *entries, size_t count, uint64_t at)
{
    put_list(block, entries, count);
    const size_t list_bytes = block->size;

    put(block, "PK\6\6", 4);
    put_number(block, END64_BYTES - 12, 8);
    put_number(block, VERSION, 2);
    put_number(block, VERSION, 2);
    put_number(block, 0, 4); /* disks */
    put_number(block, 0, 4);
    put_number(block, count, 8);
    put_number(block, count, 8);
    put_number(block, list_bytes, 8);
    put_number(block, at, 8);
    put(block, "PK\6\7", 4);
    put_number(block, 0, 4);
    put_number(block, at + list_bytes, 8);
    put_number(block, 1, 4);
    put(block, "PK\5\6", 4);
    put_number(block, 0, 4);
    put_number(block, LARGE_16, 2);
    put_number(block, LARGE_16, 2);
    put_number(block, LARGE_32, 4);
    put_number(block, LARGE_32, 4);
    put_number(block, 0, 2);
}

static void put_sizes_tuple(struct mics_pickle_writer *writer, const uint64_t *sizes, uint32_t rank)
{
    mics_pickle_begin_tuple(writer);
    for (uint32_t i = 0; i < rank; i++)
        mics_pickle_put_integer(writer, sizes[i]);
    mics_pickle_end_tuple(writer);
}

/* _rebuild_tensor_v2(storage, first, sizes, strides, requires_grad, hooks) */
static enum mics_status make_pickle(enum mics_storage_dtype dtype, const uint64_t *shape,
                                    uint32_t rank, char **bytes, size_t *size, struct mics_err *err)
{
    static const char *const storages[] = {[MICS_STORAGE_F32] = "torch FloatStorage",
                                           [MICS_STORAGE_F16] = "torch HalfStorage",
                                           [MICS_STORAGE_BF16] = "torch BFloat16Storage"};
    const uint64_t strides[2] = {rank == 2 ? shape[1] : 1, 1};
    const uint64_t count = (rank > 0 ? shape[0] : 1) * (rank > 1 ? shape[1] : 1);
    struct mics_pickle_writer *writer = mics_pickle_writer_new();

    if (!writer)
        return mics_err_nomem(err);
    mics_pickle_put_class(writer, "torch._utils _rebuild_tensor_v2");
    mics_pickle_begin_tuple(writer);
    mics_pickle_begin_tuple(writer);
    mics_pickle_put_text(writer, "storage");
    mics_pickle_put_class(writer, storages[dtype]);
    mics_pickle_put_text(writer, "0"); /* the entry data/0 */
    mics_pickle_put_text(writer, "cpu");
    mics_pickle_put_integer(writer, count);
    mics_pickle_end_tuple(writer);
    mics_pickle_persistent(writer);
    mics_pickle_put_integer(writer, 0);
    put_sizes_tuple(writer, shape, rank);
    put_sizes_tuple(writer, strides, rank);
    mics_pickle_put_false(writer);
    mics_pickle_put_class(writer, "collections OrderedDict");
    mics_pickle_begin_tuple(writer);
    mics_pickle_end_tuple(writer);
    mics_pickle_call(writer);
    mics_pickle_end_tuple(writer);
    mics_pickle_call(writer);
    const enum mics_status status = mics_pickle_writer_finish(writer, bytes, size, err);

    mics_pickle_writer_free(writer);
    return status;
}

static enum mics_status copy(const struct block *block, char **out, size_t *size,
                             struct mics_err *err)
{
    *out = malloc(block->size);
    if (!*out)
        return mics_err_nomem(err);
    memcpy(*out, block->bytes, block->size);
    *size = block->size;
    return MICS_OK;
}

enum mics_status mics_torch_frame_make(enum mics_storage_dtype dtype, const uint64_t *shape,
                                       uint32_t rank, struct mics_torch_frame *out,
                                       struct mics_err *err)
{
    const uint64_t count = (rank > 0 ? shape[0] : 1) * (rank > 1 ? shape[1] : 1);
    struct entry entries[] = {{.name = "archive/data.pkl"},
                              {.name = "archive/byteorder", .bytes = 6},
                              {.name = "archive/version", .bytes = 2},
                              {.name = "archive/data/0", .large = true}};
    struct block head = {.size = 0}, tail = {.size = 0};
    char *pickle = NULL;
    size_t size = 0;

    *out = (struct mics_torch_frame){0};
    enum mics_status status = make_pickle(dtype, shape, rank, &pickle, &size, err);
    if (status != MICS_OK)
        return status;
    entries[0].bytes = size;
    entries[3].bytes = count * mics_storage_dtype_bytes(dtype);
    put_local(&head, &entries[0], 1);
    put(&head, pickle, size);
    free(pickle);
    put_local(&head, &entries[1], 1);
    put(&head, "little", 6);
    put_local(&head, &entries[2], 1);
    put(&head, "3\n", 2);
    put_local(&head, &entries[3], MICS_TORCH_ALIGN);
    put_tail(&tail, entries, sizeof entries / sizeof *entries, head.size + entries[3].bytes);
    status = copy(&head, &out->head, &out->head_bytes, err);
    return status == MICS_OK ? copy(&tail, &out->tail, &out->tail_bytes, err) : status;
}

void mics_torch_frame_free(struct mics_torch_frame *frame)
{
    free(frame->head);
    free(frame->tail);
    *frame = (struct mics_torch_frame){0};
}
