/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.c - the archive's list of entries, and tensors by their storages. */
#include "ckpt/format/torch_file.h"

#include "base/file.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entries whose name has no "/data/" are of no interest. */
struct mics_torch_entry {
    char key[24];
    uint64_t offset, bytes; /* in the whole file */
};

enum {
    END_BYTES = 22,     /* of the last record of an archive, without a comment */
    LOCATOR_BYTES = 20, /* of the record before it in a large archive */
    END64_BYTES = 56,
    ENTRY_BYTES = 46, /* of an entry in the list, without its name */
    LOCAL_BYTES = 30,
    MAX_ENTRIES = 4 << 20
};

#define MAX_LIST_BYTES ((uint64_t)256 << 20)

const char *const mics_torch_classes[] = {"collections.OrderedDict",
                                          "collections.defaultdict",
                                          "argparse.Namespace",
                                          "pathlib.*",
                                          "torch.Size",
                                          "torch.Tensor",
                                          "torch.device",
                                          "torch.FloatStorage",
                                          "torch.BFloat16Storage",
                                          "torch.HalfStorage",
                                          "torch.DoubleStorage",
                                          "torch.LongStorage",
                                          "torch.IntStorage",
                                          "torch.ShortStorage",
                                          "torch.CharStorage",
                                          "torch.ByteStorage",
                                          "torch.BoolStorage",
                                          "torch.float16",
                                          "torch.float32",
                                          "torch.float64",
                                          "torch.bfloat16",
                                          "torch.uint8",
                                          "torch.int8",
                                          "torch.int16",
                                          "torch.int32",
                                          "torch.int64",
                                          "torch.bool",
                                          "torch.storage.UntypedStorage",
                                          "torch.storage.TypedStorage",
                                          "torch._utils._rebuild_tensor",
                                          "torch._utils._rebuild_tensor_v2",
                                          "torch._utils._rebuild_parameter",
                                          "torch._tensor._rebuild_from_type_v2",
                                          "torch.nn.parameter.Parameter",
                                          "torch.serialization._get_layout",
                                          "torch.distributed.checkpoint.metadata.*",
                                          "torch.distributed.checkpoint.filesystem.*",
                                          "deepspeed.runtime.zero.config.ZeroStageEnum",
                                          "deepspeed.runtime.fp16.loss_scaler.*",
                                          "deepspeed.utils.tensor_fragment.fragment_address",
                                          "builtins.set",
                                          "__builtin__.set",
                                          NULL};

static const struct {
    const char *word, *dtype;
    unsigned bytes;
} dtypes[] = {
    {"Float", "F32", 4},   {"BFloat16", "BF16", 2}, {"Half", "F16", 2},    {"Double", "F64", 8},
    {"Long", "I64", 8},    {"Int", "I32", 4},       {"Short", "I16", 2},   {"Char", "I8", 1},
    {"Byte", "U8", 1},     {"Bool", "BOOL", 1},     {"float32", "F32", 4}, {"bfloat16", "BF16", 2},
    {"float16", "F16", 2}, {"float64", "F64", 8},   {"int64", "I64", 8},   {"int32", "I32", 4},
    {"int16", "I16", 2},   {"int8", "I8", 1},       {"uint8", "U8", 1},    {"bool", "BOOL", 1},
};

/* The row of a type by "torch.FloatStorage" or "torch.float32"; -1: none. */
static int find_dtype(const char *name)
{
    const char *word = strrchr(name, '.');
    const size_t length = word ? strlen(word + 1) : 0;
    const bool storage = length > 7 && strcmp(word + 1 + length - 7, "Storage") == 0;

    for (size_t i = 0; word && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strlen(dtypes[i].word) == (storage ? length - 7 : length) &&
            strncmp(dtypes[i].word, word + 1, strlen(dtypes[i].word)) == 0)
            return (int)i;
    return -1;
}

const char *mics_torch_dtype(const char *name)
{
    const int row = name ? find_dtype(name) : -1;

    return row >= 0 ? dtypes[row].dtype : NULL;
}

static uint64_t number(const unsigned char *at, size_t width)
{
    uint64_t value = 0;

    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* An archive being read. */
struct archive {
    int fd;
    uint64_t begin, size;
    unsigned char *list; /* of the entries */
    uint64_t count, list_at, list_bytes;
    uint64_t pickle_at, pickle_bytes;
    struct mics_err *err;
};

static enum mics_status damaged(const struct archive *archive, const char *what)
{
    return mics_err_set(archive->err, MICS_ERR_FORMAT, "damaged archive of torch.save: %s", what);
}

/* Bytes at a place of the archive, all within it. */
static enum mics_status read_at(const struct archive *archive, uint64_t at, void *dst,
                                uint64_t bytes)
{
    if (at > archive->size || bytes > archive->size - at)
        return damaged(archive, "it ends before what it lists");
    return mics_file_read_at(archive->fd, dst, bytes, archive->begin + at, archive->err);
}

static enum mics_status check_magic(const struct archive *archive)
{
    unsigned char magic[sizeof MICS_LFS_POINTER] = {0};
    const uint64_t bytes = mics_min_u64(archive->size, sizeof magic - 1);
    const enum mics_status status = read_at(archive, 0, magic, bytes);

    if (status != MICS_OK || memcmp(magic, "PK\3\4", 4) == 0)
        return status;
    if (magic[0] == 0x80)
        return mics_err_set(archive->err, MICS_ERR_FORMAT,
                            "a file of torch.save before PyTorch 1.6, or a bare pickle: load it "
                            "and save it with a new version");
    if (memcmp(magic, MICS_LFS_POINTER, sizeof magic) == 0) /* with its NUL */
        return mics_err_set(archive->err, MICS_ERR_FORMAT,
                            "a pointer of Git LFS: " MICS_LFS_ADVICE);
    return mics_err_set(archive->err, MICS_ERR_FORMAT, "not a file of torch.save");
}

/* Where the list of the entries is. torch.save writes no comment after the last record. */
static enum mics_status find_list(struct archive *archive)
{
    unsigned char end[END_BYTES], locator[LOCATOR_BYTES], end64[END64_BYTES];
    enum mics_status status;

    if (archive->size < END_BYTES)
        return damaged(archive, "it is too short");
    status = read_at(archive, archive->size - END_BYTES, end, END_BYTES);
    if (status != MICS_OK)
        return status;
    if (memcmp(end, "PK\5\6", 4) != 0)
        return damaged(archive, "its end is missing");
    archive->count = number(end + 10, 2);
    archive->list_bytes = number(end + 12, 4);
    archive->list_at = number(end + 16, 4);
    if (archive->count != 0xffff && archive->list_at != 0xffffffff)
        return MICS_OK;
    if (archive->size < END_BYTES + LOCATOR_BYTES)
        return damaged(archive, "it is too short");
    status = read_at(archive, archive->size - END_BYTES - LOCATOR_BYTES, locator, LOCATOR_BYTES);
    if (status == MICS_OK && memcmp(locator, "PK\6\7", 4) != 0)
        status = damaged(archive, "its end is missing");
    if (status == MICS_OK)
        status = read_at(archive, number(locator + 8, 8), end64, END64_BYTES);
    if (status == MICS_OK && memcmp(end64, "PK\6\6", 4) != 0)
        status = damaged(archive, "its end is missing");
    if (status != MICS_OK)
        return status;
    archive->count = number(end64 + 32, 8);
    archive->list_bytes = number(end64 + 40, 8);
    archive->list_at = number(end64 + 48, 8);
    return MICS_OK;
}

/* Sizes and offset of an entry of the list; large ones are in its extra field. */
struct entry {
    uint64_t packed, bytes, local;
};

static void read_extra(const unsigned char *extra, size_t size, struct entry *entry)
{
    uint64_t *const large[] = {&entry->bytes, &entry->packed, &entry->local};

    for (size_t at = 0; at + 4 <= size;) {
        const size_t id = number(extra + at, 2), length = number(extra + at + 2, 2);
        size_t from = at + 4;

        at = from + length;
        if (id != 1 || at > size)
            continue;
        for (size_t i = 0; i < 3; i++)
            if (*large[i] == 0xffffffff && from + 8 <= at) {
                *large[i] = number(extra + from, 8);
                from += 8;
            }
    }
}

/* The local header has an extra field of its own length. */
static enum mics_status locate_data(const struct archive *archive, const struct entry *entry,
                                    uint64_t *at)
{
    unsigned char local[LOCAL_BYTES];
    const enum mics_status status = read_at(archive, entry->local, local, LOCAL_BYTES);

    if (status != MICS_OK)
        return status;
    if (memcmp(local, "PK\3\4", 4) != 0)
        return damaged(archive, "an entry is missing");
    *at = entry->local + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (*at > archive->size || entry->bytes > archive->size - *at)
        return damaged(archive, "an entry ends after the archive");
    return MICS_OK;
}

static enum mics_status check_byte_order(const struct archive *archive, uint64_t at, uint64_t bytes)
{
    char order[8] = "";
    const enum mics_status status =
        read_at(archive, at, order, mics_min_u64(bytes, sizeof order - 1));

    if (status != MICS_OK || strcmp(order, "little") == 0)
        return status;
    return mics_err_set(archive->err, MICS_ERR_FORMAT, "numbers that are not little-endian");
}

static enum mics_status add_entry(struct archive *archive, const char *name,
                                  const struct entry *entry, struct mics_torch_file *out)
{
    const char *inside = strchr(name, '/');
    uint64_t at = 0;
    const enum mics_status status = locate_data(archive, entry, &at);

    if (status != MICS_OK || !inside)
        return status;
    if (strcmp(inside, "/byteorder") == 0)
        return check_byte_order(archive, at, entry->bytes);
    if (strcmp(inside, "/data.pkl") == 0) {
        archive->pickle_at = at;
        archive->pickle_bytes = entry->bytes;
    } else if (strncmp(inside, "/data/", 6) == 0 && strlen(inside + 6) < sizeof out->entries->key) {
        struct mics_torch_entry *to = &out->entries[out->entry_count++];

        snprintf(to->key, sizeof to->key, "%s", inside + 6);
        to->offset = archive->begin + at;
        to->bytes = entry->bytes;
    }
    return MICS_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct mics_torch_entry *)a)->key,
                  ((const struct mics_torch_entry *)b)->key);
}

static enum mics_status read_list(struct archive *archive, struct mics_torch_file *out)
{
    enum mics_status status = MICS_OK;
    char name[256];

    for (uint64_t i = 0, at = 0; i < archive->count && status == MICS_OK; i++) {
        const unsigned char *from = archive->list + at;

        if (archive->list_bytes - at < ENTRY_BYTES || memcmp(from, "PK\1\2", 4) != 0)
            return damaged(archive, "its list of entries is cut");
        const size_t name_length = number(from + 28, 2), extra = number(from + 30, 2);
        const uint64_t length = ENTRY_BYTES + name_length + extra + number(from + 32, 2);
        struct entry entry = {number(from + 20, 4), number(from + 24, 4), number(from + 42, 4)};

        if (length > archive->list_bytes - at)
            return damaged(archive, "its list of entries is cut");
        read_extra(from + ENTRY_BYTES + name_length, extra, &entry);
        if (number(from + 10, 2) != 0 || entry.packed != entry.bytes)
            return damaged(archive, "an entry is compressed");
        snprintf(name, sizeof name, "%.*s", (int)mics_min_u64(name_length, sizeof name - 1),
                 (const char *)from + ENTRY_BYTES);
        status = add_entry(archive, name, &entry, out);
        at += length;
    }
    if (status == MICS_OK && out->entry_count > 0)
        qsort(out->entries, out->entry_count, sizeof *out->entries, by_key);
    return status;
}

static enum mics_status open_list(struct archive *archive, struct mics_torch_file *out)
{
    enum mics_status status = check_magic(archive);

    if (status == MICS_OK)
        status = find_list(archive);
    if (status != MICS_OK)
        return status;
    if (archive->count > MAX_ENTRIES || archive->list_bytes > MAX_LIST_BYTES ||
        archive->list_bytes > archive->size || archive->count * ENTRY_BYTES > archive->list_bytes)
        return damaged(archive, "its list of entries cannot be so long");
    archive->list = malloc(archive->list_bytes + 1);
    out->entries = calloc(archive->count + 1, sizeof *out->entries);
    if (!archive->list || !out->entries)
        return mics_err_nomem(archive->err);
    status = read_at(archive, archive->list_at, archive->list, archive->list_bytes);
    return status == MICS_OK ? read_list(archive, out) : status;
}

enum mics_status mics_torch_file_open(int fd, uint64_t offset, uint64_t size,
                                      struct mics_torch_file *out, struct mics_err *err)
{
    struct archive archive = {.fd = fd, .begin = offset, .size = size, .err = err};
    unsigned char *pickle = NULL;
    enum mics_status status;

    *out = (struct mics_torch_file){0};
    status = open_list(&archive, out);
    free(archive.list);
    if (status == MICS_OK && archive.pickle_bytes == 0)
        status = damaged(&archive, "it has no data.pkl");
    if (status == MICS_OK && archive.pickle_bytes > MICS_PICKLE_MAX_BYTES)
        status = damaged(&archive, "its data.pkl is too large");
    if (status != MICS_OK)
        return status;
    pickle = malloc(archive.pickle_bytes);
    status = pickle ? read_at(&archive, archive.pickle_at, pickle, archive.pickle_bytes)
                    : mics_err_nomem(err);
    if (status == MICS_OK) {
        status =
            mics_pickle_open(pickle, archive.pickle_bytes, mics_torch_classes, &out->pickle, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "data.pkl");
    }
    free(pickle);
    return status;
}

void mics_torch_file_close(struct mics_torch_file *file)
{
    mics_pickle_close(file->pickle);
    free(file->entries);
    *file = (struct mics_torch_file){0};
}

/* The call that makes a tensor, without those that make a parameter or a subclass of it; 0: it is
 * no tensor. */
static uint32_t tensor_call(const struct mics_pickle *pickle, uint32_t node)
{
    for (int depth = 0; depth < 4; depth++) {
        const char *class = mics_pickle_class(pickle, node);
        const uint32_t args = mics_pickle_args(pickle, node);

        if (!class)
            return 0;
        if (strcmp(class, "torch._utils._rebuild_tensor_v2") == 0 ||
            strcmp(class, "torch._utils._rebuild_tensor") == 0)
            return args;
        if (strcmp(class, "torch._tensor._rebuild_from_type_v2") == 0) {
            const char *of = mics_pickle_text(pickle, mics_pickle_item(pickle, args, 0));
            const uint32_t inner = mics_pickle_item(pickle, args, 2);

            if (of && strcmp(of, "torch._utils._rebuild_tensor_v2") == 0)
                return inner;
            node = of && strcmp(of, "torch._utils._rebuild_parameter") == 0
                       ? mics_pickle_item(pickle, inner, 0)
                       : 0;
        } else if (strcmp(class, "torch._utils._rebuild_parameter") == 0) {
            node = mics_pickle_item(pickle, args, 0);
        } else {
            return 0;
        }
    }
    return 0;
}

bool mics_torch_is_tensor(const struct mics_torch_file *file, uint32_t node)
{
    return tensor_call(file->pickle, node) != 0;
}

enum mics_status mics_torch_shape(const struct mics_pickle *pickle, uint32_t node, uint64_t *shape,
                                  uint32_t *rank, struct mics_err *err)
{
    const char *class = mics_pickle_class(pickle, node);
    uint32_t key, value;

    *rank = 0;
    if (class && strcmp(class, "torch.Size") == 0)
        node = mics_pickle_item(pickle, mics_pickle_args(pickle, node), 0);
    if (mics_pickle_kind(pickle, node) != MICS_PICKLE_TUPLE &&
        mics_pickle_kind(pickle, node) != MICS_PICKLE_LIST)
        return mics_err_set(err, MICS_ERR_FORMAT, "sizes that are no list of numbers");
    struct mics_pickle_iterator items = mics_pickle_begin(pickle, node);
    while (mics_pickle_next(&items, &key, &value)) {
        int64_t size;

        if (!mics_pickle_integer(pickle, value, &size) || size < 0 || size > (int64_t)1 << 48)
            return mics_err_set(err, MICS_ERR_FORMAT, "sizes that are no list of numbers");
        if (*rank == MICS_TORCH_MAX_RANK)
            return mics_err_set(err, MICS_ERR_FORMAT, "more than %d dimensions",
                                MICS_TORCH_MAX_RANK);
        shape[(*rank)++] = (uint64_t)size;
    }
    return MICS_OK;
}

/* Do the numbers lie one after another? A dimension of one may have any stride. */
static bool is_in_order(const struct mics_torch_tensor *tensor, const uint64_t *strides)
{
    uint64_t expected = 1;

    if (tensor->count == 0)
        return true;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        if (tensor->shape[i] != 1 && strides[i] != expected)
            return false;
        expected *= tensor->shape[i];
    }
    return true;
}

bool mics_torch_count(const uint64_t *shape, uint32_t rank, uint64_t *count)
{
    *count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] > 0 && *count > ((uint64_t)1 << 48) / shape[i])
            return false;
        *count *= shape[i];
    }
    return true;
}

/* ("storage", class, key, device, count) */
static enum mics_status find_storage(const struct mics_torch_file *file, uint32_t id,
                                     const struct mics_torch_entry **entry, int *dtype,
                                     struct mics_err *err)
{
    const struct mics_pickle *pickle = file->pickle;
    const uint32_t tuple = mics_pickle_kind(pickle, id) == MICS_PICKLE_PERSISTENT
                               ? mics_pickle_item(pickle, id, 0)
                               : 0;
    const char *word = mics_pickle_text(pickle, mics_pickle_item(pickle, tuple, 0));
    const char *class = mics_pickle_text(pickle, mics_pickle_item(pickle, tuple, 1));
    const char *key = mics_pickle_text(pickle, mics_pickle_item(pickle, tuple, 2));
    struct mics_torch_entry wanted;

    if (!word || strcmp(word, "storage") != 0 || !class || !key)
        return mics_err_set(err, MICS_ERR_FORMAT, "a tensor without a storage");
    *dtype = find_dtype(class);
    if (*dtype < 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "numbers of %.64s, which is not known", class);
    snprintf(wanted.key, sizeof wanted.key, "%.23s", key);
    *entry = file->entry_count
                 ? bsearch(&wanted, file->entries, file->entry_count, sizeof wanted, by_key)
                 : NULL;
    return *entry ? MICS_OK
                  : mics_err_set(err, MICS_ERR_FORMAT, "the numbers 'data/%.23s' are missing", key);
}

enum mics_status mics_torch_tensor(const struct mics_torch_file *file, uint32_t node,
                                   struct mics_torch_tensor *out, struct mics_err *err)
{
    const struct mics_pickle *pickle = file->pickle;
    const uint32_t args = tensor_call(pickle, node);
    const struct mics_torch_entry *entry;
    uint64_t strides[MICS_TORCH_MAX_RANK];
    uint32_t rank;
    int64_t first;
    int dtype = 0;
    enum mics_status status;

    *out = (struct mics_torch_tensor){0};
    if (!args)
        return mics_err_set(err, MICS_ERR_FORMAT, "not a tensor");
    status = find_storage(file, mics_pickle_item(pickle, args, 0), &entry, &dtype, err);
    if (status == MICS_OK)
        status = mics_torch_shape(pickle, mics_pickle_item(pickle, args, 2), out->shape, &out->rank,
                                  err);
    if (status == MICS_OK)
        status = mics_torch_shape(pickle, mics_pickle_item(pickle, args, 3), strides, &rank, err);
    if (status == MICS_OK && !mics_torch_count(out->shape, out->rank, &out->count))
        status = mics_err_set(err, MICS_ERR_FORMAT, "a tensor that is too large");
    if (status != MICS_OK)
        return status;
    if (!mics_pickle_integer(pickle, mics_pickle_item(pickle, args, 1), &first) || first < 0 ||
        rank != out->rank)
        return mics_err_set(err, MICS_ERR_FORMAT, "a tensor without a place in its storage");
    if (!is_in_order(out, strides))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "numbers that do not lie in order: save tensor.contiguous()");
    const uint64_t most = entry->bytes / dtypes[dtype].bytes;
    if ((uint64_t)first > most || out->count > most - (uint64_t)first)
        return mics_err_set(err, MICS_ERR_FORMAT, "a tensor that ends after its numbers");
    out->dtype = dtypes[dtype].dtype;
    out->offset = entry->offset + (uint64_t)first * dtypes[dtype].bytes;
    return MICS_OK;
}
