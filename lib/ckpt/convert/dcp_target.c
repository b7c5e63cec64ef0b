/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_target.c - the items of the file, and the classes of torch.distributed.checkpoint in
 * .metadata.
 */
#include "ckpt/convert/dcp_target.h"

#include "base/num.h"
#include "ckpt/format/torch_frame.h"
#include "doc/pickle_writer.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "__0_0.distcp"
#define METADATA  "torch.distributed.checkpoint.metadata "

/* What an item is of its tensor: a state by its number in a checkpoint, or the step. */
enum kind { WEIGHT, EXP_AVG, EXP_AVG_SQ, STEP, KINDS };

static const char *const kind_names[] = {
    [EXP_AVG] = "exp_avg", [EXP_AVG_SQ] = "exp_avg_sq", [STEP] = "step"};

struct mics_dcp_item {
    const struct mics_tensor *tensor;
    enum kind kind;
    enum mics_storage_dtype dtype;
    uint64_t offset, bytes; /* in the file */
};

struct mics_dcp_frame {
    enum mics_storage_dtype dtype;
    uint32_t rank;
    uint64_t shape[2];
    struct mics_torch_frame frame;
};

void mics_dcp_target_free(struct mics_dcp_target *target)
{
    for (size_t i = 0; i < target->frame_count; i++)
        mics_torch_frame_free(&target->frames[i].frame);
    free(target->frames);
    free(target->items);
    free(target->sections);
    free(target->metadata);
    *target = (struct mics_dcp_target){0};
}

static uint32_t rank_of(const struct mics_dcp_item *item)
{
    return item->kind == STEP ? 0 : item->tensor->rank;
}

/* ---- the file ---- */

/* The frame of an item; NULL: out of memory. Many tensors share one: a model has few shapes. */
static const struct mics_torch_frame *
find_frame(struct mics_dcp_target *out, const struct mics_dcp_item *item, struct mics_err *err)
{
    struct mics_dcp_frame wanted = {.dtype = item->dtype, .rank = rank_of(item)};
    struct mics_dcp_frame *frames;

    memcpy(wanted.shape, item->tensor->shape, wanted.rank * sizeof *wanted.shape);
    for (size_t i = 0; i < out->frame_count; i++) {
        const struct mics_dcp_frame *frame = &out->frames[i];

        if (frame->dtype == wanted.dtype && frame->rank == wanted.rank &&
            memcmp(frame->shape, wanted.shape, sizeof wanted.shape) == 0)
            return &frame->frame;
    }
    frames = realloc(out->frames, (out->frame_count + 1) * sizeof *frames);
    if (!frames) {
        mics_err_nomem(err);
        return NULL;
    }
    out->frames = frames;
    frames[out->frame_count] = wanted;
    struct mics_torch_frame *frame = &frames[out->frame_count++].frame;

    return mics_torch_frame_make(wanted.dtype, wanted.shape, wanted.rank, frame, err) == MICS_OK
               ? frame
               : NULL;
}

static void add_section(struct mics_dcp_target *out, struct mics_section section)
{
    section.offset = out->file.bytes;
    out->sections[out->file.section_count++] = section;
    out->file.bytes += mics_section_bytes(&section);
}

static void add_bytes(struct mics_dcp_target *out, const void *bytes, size_t size)
{
    add_section(out, (struct mics_section){
                         .dtype = MICS_STORAGE_RAW, .count = size, .bytes = (const char *)bytes});
}

/* Items begin at multiples of the alignment, so that their numbers do. */
static enum mics_status add_item(struct mics_dcp_target *out, uint32_t unit,
                                 struct mics_dcp_item item, struct mics_err *err)
{
    const struct mics_torch_frame *frame = find_frame(out, &item, err);

    if (!frame)
        return MICS_ERR_NOMEM;
    out->file.bytes = mics_round_up(out->file.bytes, MICS_TORCH_ALIGN);
    item.offset = out->file.bytes;
    add_bytes(out, frame->head, frame->head_bytes);
    if (item.kind == STEP)
        add_bytes(out, &out->step, sizeof out->step);
    else
        add_section(out, (struct mics_section){.vector = mics_vector_of(unit, item.kind),
                                               .dtype = item.dtype,
                                               .start = item.tensor->offset,
                                               .count = item.tensor->count});
    add_bytes(out, frame->tail, frame->tail_bytes);
    item.bytes = out->file.bytes - item.offset;
    out->items[out->item_count++] = item;
    return MICS_OK;
}

/* ---- .metadata ---- */

struct writing {
    struct mics_pickle_writer *pickle;
    const struct mics_dcp_target *target;
    const struct mics_family *family;
    uint32_t *keys; /* [item] references */
    uint32_t name;  /* reference to that of the last tensor */
    bool has_properties[MICS_STORAGE_RAW];
    uint32_t properties[MICS_STORAGE_RAW]; /* references */
};

/* The name of an item's tensor. Its parameter comes first. */
static void put_name(struct writing *writing, const struct mics_dcp_item *item)
{
    char name[128];

    if (item->kind != WEIGHT) {
        mics_pickle_recall(writing->pickle, writing->name);
        return;
    }
    mics_family_file_name(writing->family, item->tensor->name, name, sizeof name);
    mics_pickle_put_text(writing->pickle, name);
    writing->name = mics_pickle_remember(writing->pickle);
}

static void put_new_key(const struct writing *writing, size_t index)
{
    const struct mics_dcp_item *item = &writing->target->items[index];
    char name[128], key[192];

    mics_family_file_name(writing->family, item->tensor->name, name, sizeof name);
    if (item->kind == WEIGHT)
        snprintf(key, sizeof key, "model.%s", name);
    else
        snprintf(key, sizeof key, "optimizer.state.%s.%s", name, kind_names[item->kind]);
    mics_pickle_put_text(writing->pickle, key);
    writing->keys[index] = mics_pickle_remember(writing->pickle);
}

/* torch.Size of a tensor; `zeros`: the place of its first number. */
static void put_size(const struct writing *writing, const struct mics_dcp_item *item, bool zeros)
{
    mics_pickle_put_class(writing->pickle, "torch Size");
    mics_pickle_begin_tuple(writing->pickle);
    mics_pickle_begin_tuple(writing->pickle);
    for (uint32_t i = 0; i < rank_of(item); i++)
        mics_pickle_put_integer(writing->pickle, zeros ? 0 : item->tensor->shape[i]);
    mics_pickle_end_tuple(writing->pickle);
    mics_pickle_end_tuple(writing->pickle);
    mics_pickle_call(writing->pickle);
}

/* A member, given by a call with one argument. */
static void put_call(const struct writing *writing, const char *class, const char *text)
{
    mics_pickle_put_class(writing->pickle, class);
    mics_pickle_begin_tuple(writing->pickle);
    if (text)
        mics_pickle_put_text(writing->pickle, text);
    else
        mics_pickle_put_integer(writing->pickle, 0);
    mics_pickle_end_tuple(writing->pickle);
    mics_pickle_call(writing->pickle);
}

/* (dtype, layout, requires_grad, memory format, pin_memory): the state that old versions of PyTorch
 * read, too. */
static void put_properties(struct writing *writing, enum mics_storage_dtype dtype)
{
    static const char *const dtypes[] = {[MICS_STORAGE_F32] = "torch float32",
                                         [MICS_STORAGE_F16] = "torch float16",
                                         [MICS_STORAGE_BF16] = "torch bfloat16"};

    if (writing->has_properties[dtype]) {
        mics_pickle_recall(writing->pickle, writing->properties[dtype]);
        return;
    }
    writing->has_properties[dtype] = true;
    mics_pickle_put_object(writing->pickle, METADATA "TensorProperties");
    mics_pickle_begin_tuple(writing->pickle);
    mics_pickle_put_class(writing->pickle, dtypes[dtype]);
    put_call(writing, "torch.serialization _get_layout", "torch.strided");
    mics_pickle_put_false(writing->pickle);
    put_call(writing, METADATA "_MEM_FORMAT_ENCODING", NULL); /* 0: contiguous */
    mics_pickle_put_false(writing->pickle);
    mics_pickle_end_tuple(writing->pickle);
    mics_pickle_fill(writing->pickle);
    writing->properties[dtype] = mics_pickle_remember(writing->pickle);
}

/* Key to TensorStorageMetadata, with one chunk each. */
static void put_tensors(struct writing *writing)
{
    struct mics_pickle_writer *pickle = writing->pickle;

    mics_pickle_put_key(pickle, "state_dict_metadata");
    mics_pickle_begin_dict(pickle);
    for (size_t i = 0; i < writing->target->item_count; i++) {
        const struct mics_dcp_item *item = &writing->target->items[i];

        put_new_key(writing, i);
        mics_pickle_begin_object(pickle, METADATA "TensorStorageMetadata");
        mics_pickle_put_key(pickle, "properties");
        put_properties(writing, item->dtype);
        mics_pickle_put_key(pickle, "size");
        put_size(writing, item, false);
        mics_pickle_put_key(pickle, "chunks");
        mics_pickle_begin_list(pickle);
        mics_pickle_begin_object(pickle, METADATA "ChunkStorageMetadata");
        mics_pickle_put_key(pickle, "offsets");
        put_size(writing, item, true);
        mics_pickle_put_key(pickle, "sizes");
        put_size(writing, item, false);
        mics_pickle_end_object(pickle);
        mics_pickle_end_list(pickle);
        mics_pickle_end_object(pickle);
    }
    mics_pickle_end_dict(pickle);
}

/* Key to its path in nested dicts. */
static void put_paths(struct writing *writing)
{
    struct mics_pickle_writer *pickle = writing->pickle;

    mics_pickle_put_key(pickle, "planner_data");
    mics_pickle_begin_dict(pickle);
    for (size_t i = 0; i < writing->target->item_count; i++) {
        const struct mics_dcp_item *item = &writing->target->items[i];

        mics_pickle_recall(pickle, writing->keys[i]);
        mics_pickle_begin_tuple(pickle);
        mics_pickle_put_key(pickle, item->kind == WEIGHT ? "model" : "optimizer");
        if (item->kind != WEIGHT)
            mics_pickle_put_key(pickle, "state");
        put_name(writing, item);
        if (item->kind != WEIGHT)
            mics_pickle_put_key(pickle, kind_names[item->kind]);
        mics_pickle_end_tuple(pickle);
    }
    mics_pickle_end_dict(pickle);
}

/* MetadataIndex, key and first number of a chunk, to _StorageInfo. */
static void put_places(const struct writing *writing)
{
    struct mics_pickle_writer *pickle = writing->pickle;

    mics_pickle_put_key(pickle, "storage_data");
    mics_pickle_begin_dict(pickle);
    for (size_t i = 0; i < writing->target->item_count; i++) {
        const struct mics_dcp_item *item = &writing->target->items[i];

        mics_pickle_begin_object(pickle, METADATA "MetadataIndex");
        mics_pickle_put_key(pickle, "fqn");
        mics_pickle_recall(pickle, writing->keys[i]);
        mics_pickle_put_key(pickle, "index");
        mics_pickle_put_integer(pickle, 0);
        mics_pickle_put_key(pickle, "offset");
        put_size(writing, item, true);
        mics_pickle_end_object(pickle);
        mics_pickle_begin_object(pickle, "torch.distributed.checkpoint.filesystem _StorageInfo");
        mics_pickle_put_key(pickle, "relative_path");
        mics_pickle_put_key(pickle, FILE_NAME);
        mics_pickle_put_key(pickle, "offset");
        mics_pickle_put_integer(pickle, item->offset);
        mics_pickle_put_key(pickle, "length");
        mics_pickle_put_integer(pickle, item->bytes);
        mics_pickle_end_object(pickle);
    }
    mics_pickle_end_dict(pickle);
}

static void put_metadata(struct writing *writing)
{
    mics_pickle_begin_object(writing->pickle, METADATA "Metadata");
    put_tensors(writing);
    put_paths(writing);
    put_places(writing);
    mics_pickle_put_key(writing->pickle, "storage_meta");
    mics_pickle_put_none(writing->pickle);
    mics_pickle_put_key(writing->pickle, "version");
    mics_pickle_put_text(writing->pickle, "1.0.0");
    mics_pickle_end_object(writing->pickle);
}

static enum mics_status make_metadata(struct mics_dcp_target *out, const struct mics_family *family,
                                      struct mics_err *err)
{
    struct writing writing = {.pickle = mics_pickle_writer_new(),
                              .target = out,
                              .family = family,
                              .keys = calloc(out->item_count + 1, sizeof *writing.keys)};
    enum mics_status status = writing.pickle && writing.keys ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK) {
        put_metadata(&writing);
        status =
            mics_pickle_writer_finish(writing.pickle, &out->metadata, &out->metadata_bytes, err);
    }
    mics_pickle_writer_free(writing.pickle);
    free(writing.keys);
    return status;
}

enum mics_status mics_dcp_target_of_model(const struct mics_model *model,
                                          enum mics_storage_dtype dtype, bool moments,
                                          uint64_t step, struct mics_dcp_target *out,
                                          struct mics_err *err)
{
    const int kinds = moments ? KINDS : 1;
    enum mics_status status;
    size_t most = 1;

    *out = (struct mics_dcp_target){.file = {.name = FILE_NAME}, .step = (float)step};
    for (uint32_t i = 0; i < model->unit_count; i++)
        most += (size_t)model->units[i].tensor_count * KINDS;
    out->items = calloc(most, sizeof *out->items);
    out->sections = calloc(3 * most, sizeof *out->sections);
    status = out->items && out->sections ? MICS_OK : mics_err_nomem(err);
    for (uint32_t i = 0; status == MICS_OK && i < model->unit_count; i++)
        for (uint32_t j = 0; j < model->units[i].tensor_count; j++)
            for (int kind = WEIGHT; status == MICS_OK && kind < kinds; kind++)
                status = add_item(
                    out, i,
                    (struct mics_dcp_item){.tensor = &model->units[i].tensors[j],
                                           .kind = (enum kind)kind,
                                           .dtype = kind == WEIGHT ? dtype : MICS_STORAGE_F32},
                    err);
    out->file.sections = out->sections;
    out->target = (struct mics_target){.files = &out->file, .file_count = 1};
    return status == MICS_OK ? make_metadata(out, model->family, err) : status;
}
