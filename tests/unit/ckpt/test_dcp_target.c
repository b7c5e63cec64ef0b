/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dcp_target.c - pickles that are written, read again; archives of torch.save around numbers
 * of any size; and the file and .metadata of a checkpoint for torch.distributed.checkpoint.
 */
#include "tap.h"

#include "ckpt/convert/dcp_target.h"
#include "ckpt/format/torch_file.h"
#include "ckpt/format/torch_frame.h"
#include "doc/pickle_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct mics_pickle *reopen(struct mics_pickle_writer *writer)
{
    struct mics_pickle *pickle = NULL;
    struct mics_err err = {""};
    char *bytes = NULL;
    size_t size = 0;

    CHECK_INT(mics_pickle_writer_finish(writer, &bytes, &size, &err), MICS_OK);
    CHECK_INT(
        mics_pickle_open((const unsigned char *)bytes, size, mics_torch_classes, &pickle, &err),
        MICS_OK);
    if (err.text[0])
        printf("# %s\n", err.text);
    mics_pickle_writer_free(writer);
    free(bytes);
    return pickle;
}

static void every_value_that_is_written_is_read(void)
{
    static const uint64_t numbers[] = {
        0,        1, 255, 256, 65535, 65536, 2147483647, 2147483648, UINT32_MAX, UINT64_C(1) << 40,
        INT64_MAX};
    const size_t count = sizeof numbers / sizeof *numbers;
    struct mics_pickle_writer *writer = mics_pickle_writer_new();

    mics_pickle_begin_list(writer);
    for (size_t i = 0; i < count; i++)
        mics_pickle_put_integer(writer, numbers[i]);
    mics_pickle_put_none(writer);
    mics_pickle_put_false(writer);
    mics_pickle_put_text(writer, "\xc3\xb6 of any length");
    mics_pickle_begin_tuple(writer);
    mics_pickle_end_tuple(writer);
    mics_pickle_begin_dict(writer);
    mics_pickle_end_dict(writer);
    mics_pickle_end_list(writer);
    struct mics_pickle *pickle = reopen(writer);
    const uint32_t root = mics_pickle_root(pickle);
    int64_t value = -1;

    CHECK_INT(mics_pickle_count(pickle, root), count + 5);
    for (size_t i = 0; i < count; i++) {
        CHECK(mics_pickle_integer(pickle, mics_pickle_item(pickle, root, i), &value));
        CHECK(value == (int64_t)numbers[i]);
    }
    CHECK_INT(mics_pickle_kind(pickle, mics_pickle_item(pickle, root, count)), MICS_PICKLE_NONE);
    CHECK_INT(mics_pickle_kind(pickle, mics_pickle_item(pickle, root, count + 1)),
              MICS_PICKLE_BOOL);
    const char *text = mics_pickle_text(pickle, mics_pickle_item(pickle, root, count + 2));

    CHECK(text && strcmp(text, "\xc3\xb6 of any length") == 0);
    CHECK_INT(mics_pickle_kind(pickle, mics_pickle_item(pickle, root, count + 3)),
              MICS_PICKLE_TUPLE);
    CHECK_INT(mics_pickle_kind(pickle, mics_pickle_item(pickle, root, count + 4)),
              MICS_PICKLE_DICT);
    mics_pickle_close(pickle);
}

/* More than 256 references, short and long, keys and objects. */
static void values_are_referred_to_by_short_and_long_references(void)
{
    enum { COUNT = 600 };
    struct mics_pickle_writer *writer = mics_pickle_writer_new();
    uint32_t references[COUNT];
    char name[32];

    mics_pickle_begin_list(writer);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "value %d", i);
        mics_pickle_put_text(writer, name);
        references[i] = mics_pickle_remember(writer);
    }
    for (int i = COUNT; i-- > 0;)
        mics_pickle_recall(writer, references[i]);
    for (int i = 0; i < 2; i++) {
        mics_pickle_begin_object(writer, "torch.distributed.checkpoint.metadata MetadataIndex");
        mics_pickle_put_key(writer, "index");
        mics_pickle_put_integer(writer, (uint64_t)i);
        mics_pickle_end_object(writer);
    }
    mics_pickle_end_list(writer);
    struct mics_pickle *pickle = reopen(writer);
    const uint32_t root = mics_pickle_root(pickle);
    int64_t value = -1;

    CHECK_INT(mics_pickle_count(pickle, root), 2 * COUNT + 2);
    for (int i = 0; i < COUNT; i++)
        CHECK(mics_pickle_item(pickle, root, (size_t)i) ==
              mics_pickle_item(pickle, root, (size_t)(2 * COUNT - 1 - i)));
    for (int i = 0; i < 2; i++) {
        const uint32_t object = mics_pickle_item(pickle, root, (size_t)(2 * COUNT + i));
        const char *class = mics_pickle_class(pickle, object);

        CHECK(class && strcmp(class, "torch.distributed.checkpoint.metadata.MetadataIndex") == 0);
        CHECK(mics_pickle_integer(pickle, mics_pickle_get(pickle, object, "index"), &value));
        CHECK_INT(value, i);
    }
    mics_pickle_close(pickle);
}

/* An archive at `at` of a file, whose numbers are a hole. */
static void check_frame(int fd, uint64_t at, enum mics_storage_dtype dtype, uint32_t rank,
                        uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    const uint64_t count = (rank > 0 ? rows : 1) * (rank > 1 ? columns : 1);
    const uint64_t bytes = count * mics_storage_dtype_bytes(dtype);
    struct mics_torch_frame frame;
    struct mics_torch_file file;
    struct mics_torch_tensor tensor = {0};
    struct mics_err err = {""};

    CHECK_INT(mics_torch_frame_make(dtype, shape, rank, &frame, &err), MICS_OK);
    CHECK_INT(frame.head_bytes % MICS_TORCH_ALIGN, 0);
    CHECK(pwrite(fd, frame.head, frame.head_bytes, (off_t)at) == (ssize_t)frame.head_bytes);
    CHECK(pwrite(fd, frame.tail, frame.tail_bytes, (off_t)(at + frame.head_bytes + bytes)) ==
          (ssize_t)frame.tail_bytes);
    CHECK_INT(
        mics_torch_file_open(fd, at, frame.head_bytes + bytes + frame.tail_bytes, &file, &err),
        MICS_OK);
    CHECK_INT(mics_torch_tensor(&file, mics_pickle_root(file.pickle), &tensor, &err), MICS_OK);
    if (err.text[0])
        printf("# %s\n", err.text);
    CHECK(tensor.dtype && strcmp(tensor.dtype, mics_storage_dtype_name(dtype)) == 0);
    CHECK_INT(tensor.rank, rank);
    CHECK(memcmp(tensor.shape, shape, rank * sizeof *shape) == 0);
    CHECK_INT(tensor.count, count);
    CHECK_INT(tensor.offset, at + frame.head_bytes);
    mics_torch_file_close(&file);
    mics_torch_frame_free(&frame);
}

static void archives_of_any_type_shape_and_size_are_read(void)
{
    char path[] = "/tmp/mics-dcp-XXXXXX";
    const int fd = mkstemp(path);

    CHECK(fd >= 0);
    unlink(path);
    check_frame(fd, 0, MICS_STORAGE_F32, 0, 0, 0);
    check_frame(fd, 64, MICS_STORAGE_F16, 1, 7, 0);
    check_frame(fd, 4096, MICS_STORAGE_BF16, 2, 1000, 300);
    close(fd);
}

/* Beyond 4 GiB, also of numbers: a file with a hole. */
static void archives_of_more_than_32_bits_are_read(void)
{
    char path[] = "/tmp/mics-dcp-XXXXXX";
    const int fd = mkstemp(path);
    const off_t size = (off_t)26 << 30;

    CHECK(fd >= 0);
    unlink(path);
    if (ftruncate(fd, size) != 0 || pwrite(fd, "", 1, size - 1) != 1) {
        close(fd);
        TAP_SKIP("no files of 26 GB here");
    }
    check_frame(fd, UINT64_C(5) << 30, MICS_STORAGE_F32, 2, 70000, 70000);
    close(fd);
}

static void items_are_aligned_and_metadata_says_where_they_are(void)
{
    struct mics_model *model = NULL;
    struct mics_dcp_target target = {.frames = NULL};
    struct mics_pickle *pickle = NULL;
    struct mics_err err = {""};
    int64_t offset = -1, length = -1;
    uint32_t key, value;
    size_t tensors = 0, places = 0;

    CHECK_INT(mics_model_open("gpt2-nano", &model, &err), MICS_OK);
    CHECK_INT(mics_dcp_target_of_model(model, MICS_STORAGE_BF16, true, 7, &target, &err), MICS_OK);
    CHECK_INT(mics_pickle_open((const unsigned char *)target.metadata, target.metadata_bytes,
                               mics_torch_classes, &pickle, &err),
              MICS_OK);
    for (uint32_t i = 0; i < model->unit_count; i++)
        tensors += model->units[i].tensor_count;
    CHECK_INT(target.item_count, 4 * tensors);
    CHECK_INT(target.file.section_count, 3 * target.item_count);
    /* Few frames: as many as there are pairs of shape and type. */
    CHECK(target.frame_count < 2 * tensors);
    const uint32_t root = mics_pickle_root(pickle);
    struct mics_pickle_iterator pairs =
        mics_pickle_begin(pickle, mics_pickle_get(pickle, root, "storage_data"));

    for (; mics_pickle_next(&pairs, &key, &value); places++) {
        const struct mics_section *head = &target.sections[3 * places];

        CHECK(mics_pickle_integer(pickle, mics_pickle_get(pickle, value, "offset"), &offset));
        CHECK(mics_pickle_integer(pickle, mics_pickle_get(pickle, value, "length"), &length));
        CHECK_INT(offset, head->offset);
        CHECK_INT(offset % MICS_TORCH_ALIGN, 0);
        CHECK_INT(head[1].offset % MICS_TORCH_ALIGN, 0);
        CHECK_INT(length, head[2].offset + head[2].count - head->offset);
    }
    CHECK_INT(places, target.item_count);
    CHECK_INT(mics_pickle_count(pickle, mics_pickle_get(pickle, root, "state_dict_metadata")),
              target.item_count);
    CHECK_INT(mics_pickle_count(pickle, mics_pickle_get(pickle, root, "planner_data")),
              target.item_count);
    mics_pickle_close(pickle);
    mics_dcp_target_free(&target);
    mics_model_free(model);
}

int main(void)
{
    TAP_RUN(every_value_that_is_written_is_read);
    TAP_RUN(values_are_referred_to_by_short_and_long_references);
    TAP_RUN(archives_of_any_type_shape_and_size_are_read);
    TAP_RUN(archives_of_more_than_32_bits_are_read);
    TAP_RUN(items_are_aligned_and_metadata_says_where_they_are);
    return tap_done();
}
