/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp.c - PyTorch's distributed checkpoints: .metadata, a pickle of what is where, and files
 * __RANK_N.distcp, in which each chunk of a tensor is an archive of torch.save.
 */
#include "ckpt/foreign/foreign_internal.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a chunk is stored: of storage_data. */
struct stored {
    const char *name;
    uint64_t offsets[MICS_TORCH_MAX_RANK]; /* of its first number in the tensor */
    uint32_t rank, info;                   /* node of the _StorageInfo */
};

/* A checkpoint being opened. */
struct dcp {
    struct tensor_list *list;
    const char *folder;
    char path[MICS_PATH_MAX]; /* of .metadata */
    struct mics_pickle *metadata;
    const char *key;       /* in the metadata, of the tensor that is being added */
    struct stored *stored; /* sorted */
    size_t stored_count;
};

static enum mics_status reject(const struct dcp *dcp, const char *name, const char *what)
{
    return mics_err_set(dcp->list->err, MICS_ERR_FORMAT, "%s: '%.128s': %s", dcp->path, name, what);
}

static int by_place(const void *a, const void *b)
{
    const struct stored *x = a, *y = b;
    const int names = strcmp(x->name, y->name);

    if (names != 0 || x->rank != y->rank)
        return names != 0 ? names : x->rank < y->rank ? -1 : 1;
    for (uint32_t i = 0; i < x->rank; i++)
        if (x->offsets[i] != y->offsets[i])
            return x->offsets[i] < y->offsets[i] ? -1 : 1;
    return 0;
}

static enum mics_status read_metadata(struct dcp *dcp)
{
    char *bytes = NULL;
    size_t size = 0;
    enum mics_status status =
        mics_path_format(dcp->path, dcp->list->err, "%s/.metadata", dcp->folder);

    if (status == MICS_OK)
        status =
            mics_file_read_regular(dcp->path, MICS_PICKLE_MAX_BYTES, &bytes, &size, dcp->list->err);
    if (status != MICS_OK)
        return status;
    status = mics_pickle_open((const unsigned char *)bytes, size, mics_torch_classes,
                              &dcp->metadata, dcp->list->err);
    free(bytes);
    if (status != MICS_OK)
        mics_err_prefix(dcp->list->err, "%s", dcp->path);
    return status;
}

/* List storage_data, without what is no chunk of a tensor. */
static enum mics_status read_storage(struct dcp *dcp)
{
    const struct mics_pickle *metadata = dcp->metadata;
    const uint32_t data = mics_pickle_get(metadata, mics_pickle_root(metadata), "storage_data");
    struct mics_pickle_iterator pairs = mics_pickle_begin(metadata, data);
    uint32_t key, value;

    dcp->stored = calloc(mics_pickle_count(metadata, data) + 1, sizeof *dcp->stored);
    if (!dcp->stored)
        return mics_err_nomem(dcp->list->err);
    while (pairs.pairs && mics_pickle_next(&pairs, &key, &value)) {
        struct stored *to = &dcp->stored[dcp->stored_count];

        to->name = mics_pickle_text(metadata, mics_pickle_get(metadata, key, "fqn"));
        to->info = value;
        if (to->name && mics_torch_shape(metadata, mics_pickle_get(metadata, key, "offset"),
                                         to->offsets, &to->rank, NULL) == MICS_OK)
            dcp->stored_count++;
    }
    if (dcp->stored_count > 0)
        qsort(dcp->stored, dcp->stored_count, sizeof *dcp->stored, by_place);
    return MICS_OK;
}

/* The index in hf->files of a file of the folder, which is opened when it is first needed. */
static enum mics_status find_file(struct dcp *dcp, const char *name, const char *file,
                                  uint32_t *index)
{
    const struct mics_hf *hf = dcp->list->hf;
    char path[MICS_PATH_MAX];
    enum mics_status status;

    if (!file || strchr(file, '/') || !mics_hf_name_is_safe(file) || strlen(file) > 200)
        return reject(dcp, name, "its file's name leads out of the folder");
    for (uint32_t i = 0; i < hf->file_count; i++)
        if (strcmp(hf->files[i].name, file) == 0) {
            *index = i;
            return MICS_OK;
        }
    status = mics_path_format(path, dcp->list->err, "%s/%s", dcp->folder, file);
    return status == MICS_OK ? foreign_add_file(dcp->list, path, file, index) : status;
}

/* Read the archive of a chunk: is it what the metadata says? */
static enum mics_status open_chunk(struct dcp *dcp, size_t tensor, const struct foreign_box *box,
                                   const struct stored *stored)
{
    const struct mics_safetensor *header = &dcp->list->headers[tensor];
    const char *file = mics_pickle_text(
        dcp->metadata, mics_pickle_get(dcp->metadata, stored->info, "relative_path"));
    struct mics_torch_file archive = {0};
    struct mics_torch_tensor found;
    int64_t offset = -1, length = -1;
    uint32_t index = 0;
    enum mics_status status = find_file(dcp, header->name, file, &index);

    if (status != MICS_OK)
        return status;
    const struct mics_store_file *opened = &dcp->list->hf->store.files[index];
    mics_pickle_integer(dcp->metadata, mics_pickle_get(dcp->metadata, stored->info, "offset"),
                        &offset);
    mics_pickle_integer(dcp->metadata, mics_pickle_get(dcp->metadata, stored->info, "length"),
                        &length);
    if (offset < 0 || length < 0 || (uint64_t)offset > opened->bytes ||
        (uint64_t)length > opened->bytes - (uint64_t)offset)
        return mics_err_set(dcp->list->err, MICS_ERR_FORMAT,
                            "%s: ends before its chunk of tensor '%.128s'", opened->path,
                            header->name);
    status = mics_torch_file_open(opened->fd, (uint64_t)offset, (uint64_t)length, &archive,
                                  dcp->list->err);
    if (status == MICS_OK)
        status =
            mics_torch_tensor(&archive, mics_pickle_root(archive.pickle), &found, dcp->list->err);
    mics_torch_file_close(&archive);
    if (status == MICS_OK && strcmp(found.dtype, header->dtype) != 0)
        status = mics_err_set(dcp->list->err, MICS_ERR_FORMAT, "is of %s, but .metadata says %s",
                              found.dtype, header->dtype);
    if (status == MICS_OK && (found.rank != header->rank ||
                              memcmp(found.shape, box->sizes, found.rank * sizeof *box->sizes)))
        status =
            mics_err_set(dcp->list->err, MICS_ERR_FORMAT, "has another shape than .metadata says");
    if (status != MICS_OK) {
        mics_err_prefix(dcp->list->err, "%s: tensor '%.128s'", opened->path, header->name);
        return status;
    }
    return foreign_add_box(dcp->list, tensor, box, index, found.offset);
}

static enum mics_status add_chunk(struct dcp *dcp, size_t tensor, uint32_t chunk)
{
    const struct mics_safetensor *header = &dcp->list->headers[tensor];
    const struct mics_pickle *metadata = dcp->metadata;
    struct stored key = {.name = dcp->key};
    struct foreign_box box = {{0}, {0}};
    uint32_t rank = 0;

    if (mics_torch_shape(metadata, mics_pickle_get(metadata, chunk, "offsets"), box.offsets,
                         &key.rank, NULL) != MICS_OK ||
        mics_torch_shape(metadata, mics_pickle_get(metadata, chunk, "sizes"), box.sizes, &rank,
                         NULL) != MICS_OK ||
        rank != header->rank || key.rank != rank)
        return reject(dcp, header->name, "a chunk without offsets and sizes");
    for (uint32_t i = 0; i < rank; i++)
        if (box.offsets[i] > header->shape[i] || box.sizes[i] > header->shape[i] - box.offsets[i])
            return reject(dcp, header->name, "a chunk lies outside of the tensor");
    memcpy(key.offsets, box.offsets, sizeof key.offsets);
    const struct stored *stored =
        dcp->stored_count ? bsearch(&key, dcp->stored, dcp->stored_count, sizeof key, by_place)
                          : NULL;
    if (!stored)
        return reject(dcp, header->name, "a chunk is in no file");
    return open_chunk(dcp, tensor, &box, stored);
}

/* "optim.state.NAME.exp_avg": the tensor's name, and its state. Others are parameters, unless they
 * belong to what trainers save beside the model. */
static int split_name(const char *key, char *name, size_t size)
{
    static const char *const beside[] = {"optimizer.",   "optim.",      "param_groups.",
                                         "lr_scheduler", "dataloader.", "train_state.",
                                         "rng",          "state."};
    const char *state = strncmp(key, "state.", 6) == 0 ? key : strstr(key, ".state.");
    const char *last = strrchr(key, '.');
    const bool of_optimizer = state && (state == key || strncmp(key, "opt", 3) == 0);

    if (of_optimizer && last) {
        const char *begin = state + (state == key ? 6 : 7);
        const int found = foreign_state_of(last + 1);

        if (found > 0 && last > begin) {
            snprintf(name, size, "%.*s", (int)(last - begin), begin);
            return found;
        }
    }
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (strncmp(key, beside[i], strlen(beside[i])) == 0)
            return -1;
    snprintf(name, size, "%s", key);
    return STATE_PARAM;
}

/* The numbers of updates of a parameter, a tensor of one number. */
static enum mics_status read_step(struct dcp *dcp, size_t tensor)
{
    struct mics_hf *hf = dcp->list->hf;
    const struct mics_hf_tensor *is = &hf->tensors[tensor];
    float step = 0;
    enum mics_status status;

    if (is->piece_count != 1 || is->pieces[0].count != 1 ||
        strcmp(dcp->list->headers[tensor].dtype, "F32") != 0)
        return MICS_OK;
    status = mics_file_read_at(hf->store.files[is->pieces[0].file].fd, &step, sizeof step,
                               is->pieces[0].offset, dcp->list->err);
    if (status != MICS_OK)
        mics_err_prefix(dcp->list->err, "%s", hf->store.files[is->pieces[0].file].path);
    if (status == MICS_OK && step >= 1 && step < 1e15F)
        status = foreign_set_step(dcp->list, dcp->folder, (uint64_t)step);
    return status;
}

static const char *dtype_of(const struct mics_pickle *metadata, uint32_t tensor)
{
    const uint32_t properties = mics_pickle_get(metadata, tensor, "properties");
    const uint32_t state = mics_pickle_state(metadata, properties);
    const uint32_t dtype = mics_pickle_kind(metadata, state) == MICS_PICKLE_TUPLE
                               ? mics_pickle_item(metadata, state, 0)
                               : mics_pickle_get(metadata, properties, "dtype");

    return mics_torch_dtype(mics_pickle_text(metadata, dtype));
}

static enum mics_status add_tensor(struct dcp *dcp, const char *key, uint32_t tensor)
{
    const struct mics_pickle *metadata = dcp->metadata;
    const char *dtype = dtype_of(metadata, tensor);
    uint64_t shape[MICS_TORCH_MAX_RANK];
    char name[FOREIGN_NAME_MAX];
    const int state = strlen(key) < sizeof name ? split_name(key, name, sizeof name) : -2;
    uint32_t rank, none, chunk;
    size_t index;
    enum mics_status status;

    if (state == -2)
        return reject(dcp, key, "its name is too long");
    if (state < 0)
        return MICS_OK;
    dcp->key = key;
    if (!dtype)
        return reject(dcp, key, "a type that is not known");
    status = mics_torch_shape(metadata, mics_pickle_get(metadata, tensor, "size"), shape, &rank,
                              dcp->list->err);
    if (status != MICS_OK)
        return reject(dcp, key, "no sizes");
    status = foreign_add_tensor(dcp->list, name, dtype, shape, rank, (uint32_t)state, &index);
    struct mics_pickle_iterator chunks =
        mics_pickle_begin(metadata, mics_pickle_get(metadata, tensor, "chunks"));
    while (status == MICS_OK && mics_pickle_next(&chunks, &none, &chunk))
        status = add_chunk(dcp, index, chunk);
    return status == MICS_OK && state == STATE_STEP ? read_step(dcp, index) : status;
}

static enum mics_status add_tensors(struct dcp *dcp)
{
    const struct mics_pickle *metadata = dcp->metadata;
    const uint32_t tensors =
        mics_pickle_get(metadata, mics_pickle_root(metadata), "state_dict_metadata");
    struct mics_pickle_iterator pairs = mics_pickle_begin(metadata, tensors);
    enum mics_status status = MICS_OK;
    uint32_t key, value;

    if (!pairs.pairs)
        return reject(dcp, "state_dict_metadata", "is missing");
    while (status == MICS_OK && mics_pickle_next(&pairs, &key, &value)) {
        const char *name = mics_pickle_text(metadata, key);
        const char *class = mics_pickle_class(metadata, value);

        if (name && class && strstr(class, ".TensorStorageMetadata"))
            status = add_tensor(dcp, name, value);
    }
    return status;
}

enum mics_status foreign_open_dcp(struct tensor_list *list, const char *folder)
{
    struct dcp dcp = {.list = list, .folder = folder};
    enum mics_status status = mics_path_format(list->hf->folder, list->err, "%s", folder);

    if (status == MICS_OK)
        status = read_metadata(&dcp);
    if (status == MICS_OK)
        status = read_storage(&dcp);
    if (status == MICS_OK)
        status = add_tensors(&dcp);
    mics_pickle_close(dcp.metadata);
    free(dcp.stored);
    return status;
}
