/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range_whole.c - a file from end to end, read and summed at once.
 *
 * Its tensors are taken in the order in which they lie there, whoever wrote them.
 */
#include "ckpt/range_files.h"

#include "base/num.h"

#include <stdlib.h>
#include <xxhash.h>

/* One tensor of the file. */
struct place {
    uint64_t offset;
    uint32_t unit, state;
};

struct pass {
    struct mics_ckpt_reader *reader;
    uint32_t file;
    char path[MICS_PATH_MAX];
    struct place *places; /* [unit_count * states] */
    XXH64_state_t *sum;
    float *buffer;
    uint64_t room; /* of it, floats */
};

static int by_offset(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void find_places(struct pass *pass)
{
    const uint32_t states = pass->reader->table.states;
    const uint32_t count = pass->reader->table.unit_count * states;

    for (uint32_t i = 0; i < count; i++)
        pass->places[i] = (struct place){.offset = pass->reader->files[pass->file].offsets[i],
                                         .unit = i / states,
                                         .state = i % states};
    qsort(pass->places, count, sizeof *pass->places, by_offset);
}

static enum mics_status read_bytes(struct pass *pass, uint64_t offset, uint64_t bytes,
                                   struct mics_err *err)
{
    const enum mics_status status = mics_range_read(pass->path, pass->reader->files[pass->file].fd,
                                                    pass->buffer, bytes, offset, err);

    if (status == MICS_OK)
        XXH64_update(pass->sum, pass->buffer, bytes);
    return status;
}

static enum mics_status pass_header(struct pass *pass, struct mics_err *err)
{
    const uint64_t end = pass->places[0].offset, most = pass->room * sizeof(float);
    enum mics_status status = MICS_OK;

    for (uint64_t at = 0; status == MICS_OK && at < end; at += most)
        status = read_bytes(pass, at, mics_min_u64(most, end - at), err);
    return status;
}

static enum mics_status pass_tensor(struct pass *pass, const struct place *place,
                                    mics_ckpt_taker *take, void *context, struct mics_err *err)
{
    const struct mics_ckpt_table *table = &pass->reader->table;
    const uint64_t count = mics_range_count(pass->reader, place->unit, pass->file);
    const uint64_t shard = mics_layout_optim_shard(&table->units[place->unit].layout);
    const uint64_t first = mics_ckpt_part_begin(shard, table->parts, pass->file % table->parts);
    enum mics_status status = MICS_OK;

    for (uint64_t at = 0; status == MICS_OK && at < count; at += pass->room) {
        const uint64_t some = mics_min_u64(pass->room, count - at);

        status = read_bytes(pass, place->offset + at * sizeof(float), some * sizeof(float), err);
        if (status == MICS_OK)
            status = take(context, place->unit, place->state, first + at, some, pass->buffer, err);
    }
    return status;
}

static enum mics_status pass_all(struct pass *pass, mics_ckpt_taker *take, void *context,
                                 struct mics_err *err)
{
    const uint32_t count = pass->reader->table.unit_count * pass->reader->table.states;
    enum mics_status status = pass_header(pass, err);

    for (uint32_t i = 0; status == MICS_OK && i < count; i++)
        status = pass_tensor(pass, &pass->places[i], take, context, err);
    if (status == MICS_OK &&
        XXH64_digest(pass->sum) != pass->reader->manifest.files[pass->file].xxh64)
        status = mics_err_set(err, MICS_ERR_FORMAT, "%s: is damaged: its sum is not the manifest's",
                              pass->path);
    return status;
}

enum mics_status mics_ckpt_reader_pass(struct mics_ckpt_reader *reader, uint32_t file,
                                       float *buffer, uint64_t room, mics_ckpt_taker *take,
                                       void *context, struct mics_err *err)
{
    const size_t count = (size_t)reader->table.unit_count * reader->table.states;
    struct pass pass = {.reader = reader,
                        .file = file,
                        .buffer = buffer,
                        .room = room,
                        .places = malloc(count * sizeof *pass.places),
                        .sum = XXH64_createState()};
    enum mics_status status = pass.places && pass.sum ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_range_path(reader, file, pass.path, err);
    if (status == MICS_OK)
        status = mics_range_need(reader, file, pass.path, err);
    if (status == MICS_OK) {
        XXH64_reset(pass.sum, 0);
        find_places(&pass);
        status = pass_all(&pass, take, context, err);
    }
    XXH64_freeState(pass.sum);
    free(pass.places);
    return status;
}
