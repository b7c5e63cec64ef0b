/* SPDX-License-Identifier: Apache-2.0 */
/* batch_reader.c - reading ahead, and sums of what was read. */
#include "train/batch_reader.h"

#include "base/num.h"
#include "comm/agree.h"
#include "doc/cursor.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CHECKED_TOKENS (1ull << 28) /* that a rank reads again at most when it resumes */

/* Hash of a sample; one that could not be read has that of no tokens. */
static uint64_t hash_sample(enum mics_status read, const int32_t *tokens, const int32_t *targets,
                            uint32_t seq, uint64_t sample)
{
    const size_t bytes = read == MICS_OK ? seq * sizeof(int32_t) : 0;

    return XXH64(targets, bytes, XXH64(tokens, bytes, sample));
}

/* Sums --------------------------------------------------------------------------------------- */

struct mics_read_sums mics_read_sums_from(uint64_t first)
{
    return (struct mics_read_sums){.first = first, .each = 1};
}

/* Make room for `sample`. */
static void make_room(struct mics_read_sums *sums, uint64_t sample)
{
    while ((sample - sums->first) / sums->each >= MICS_READ_RANGES) {
        for (size_t i = 0; i < MICS_READ_RANGES; i++)
            sums->sums[i] =
                i < MICS_READ_RANGES / 2 ? sums->sums[2 * i] + sums->sums[2 * i + 1] : 0;
        sums->each *= 2;
    }
}

static void add_sample(struct mics_read_sums *sums, uint64_t sample, uint64_t hash)
{
    sums->sums[(sample - sums->first) / sums->each] += hash;
}

static uint64_t ranges_of(const struct mics_read_sums *sums, uint64_t samples)
{
    return mics_ceil_div(samples - sums->first, sums->each);
}

enum mics_status mics_read_sums_add(struct mics_comm *comm, const struct mics_read_sums *own,
                                    struct mics_read_sums *out, struct mics_err *err)
{
    enum mics_status status;
    struct mics_read_sums *all = mics_all_gather(comm, own, sizeof *own, &status, err);

    *out = (struct mics_read_sums){.first = own->first, .each = own->each};
    for (int rank = 0; status == MICS_OK && rank < comm->size; rank++)
        for (size_t i = 0; i < MICS_READ_RANGES; i++)
            out->sums[i] += all[rank].sums[i];
    free(all);
    return status;
}

/* Add this rank's part of range `index` to `sums`. */
static void read_range(const struct mics_comm *comm, const struct mics_data *data, uint64_t index,
                       uint64_t samples, int32_t *memory, struct mics_read_sums *sums)
{
    const uint64_t begin = sums->first + index * sums->each;
    const uint64_t end = mics_min_u64(begin + sums->each, samples);
    int32_t *targets = memory + data->seq;

    for (uint64_t sample = begin + (uint64_t)comm->rank; sample < end;
         sample += (uint64_t)comm->size) {
        const enum mics_status read = mics_data_read_train(data, sample, memory, targets, NULL);

        add_sample(sums, sample, hash_sample(read, memory, targets, data->seq, sample));
    }
}

enum mics_status mics_read_sums_check(struct mics_comm *comm, const struct mics_data *data,
                                      const struct mics_read_sums *sums, uint64_t samples,
                                      struct mics_err *err)
{
    if (sums->first > samples || ranges_of(sums, samples) > MICS_READ_RANGES)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "training.data.read: %d ranges of %" PRIu64 " samples from %" PRIu64
                            " do not end at %" PRIu64,
                            MICS_READ_RANGES, sums->each, sums->first, samples);

    const uint64_t tokens = (samples - sums->first) * data->seq;
    const uint64_t stride = 1 + tokens / (uint64_t)comm->size / CHECKED_TOKENS;
    const uint64_t ranges = ranges_of(sums, samples);
    struct mics_read_sums now = {.first = sums->first, .each = sums->each}, found;
    int32_t *memory = malloc(2 * data->seq * sizeof *memory);
    enum mics_status status = memory ? MICS_OK : mics_err_nomem(err);

    for (uint64_t i = 0; i < ranges && status == MICS_OK; i += stride)
        read_range(comm, data, i, samples, memory, &now);
    free(memory);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = mics_read_sums_add(comm, &now, &found, err);
    for (uint64_t i = 0; i < ranges && status == MICS_OK; i += stride) {
        const uint64_t begin = sums->first + i * sums->each;

        if (found.sums[i] != sums->sums[i])
            status = mics_err_set(err, MICS_ERR_FORMAT,
                                  "the data differ from what was read in samples %" PRIu64
                                  " to %" PRIu64 ": --other-data resumes with the data that is "
                                  "there now",
                                  begin + 1, mics_min_u64(begin + sums->each, samples));
    }
    return status;
}

json_t *mics_read_sums_to_json(const struct mics_read_sums *sums)
{
    json_t *list = json_array();
    size_t count = MICS_READ_RANGES;

    while (count > 0 && sums->sums[count - 1] == 0)
        count--;
    for (size_t i = 0; list && i < count; i++) {
        char text[17];

        snprintf(text, sizeof text, "%016" PRIx64, sums->sums[i]);
        if (json_array_append_new(list, json_string(text)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list ? json_pack("{s:I,s:I,s:o}", "first", (json_int_t)sums->first, "each",
                            (json_int_t)sums->each, "xxh64", list)
                : NULL;
}

enum mics_status mics_read_sums_from_json(const json_t *doc, struct mics_read_sums *out,
                                          struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);

    memset(out->sums, 0, sizeof out->sums);
    out->first = mics_cursor_get_u64(&root, "first", 0, INT64_MAX);
    out->each = mics_cursor_get_u64(&root, "each", 1, 1ull << 62);
    if ((out->each & (out->each - 1)) != 0)
        mics_cursor_reject(&root, "each", "expected a power of two");
    const struct mics_cursor list = mics_cursor_get_array(&root, "xxh64", 0, MICS_READ_RANGES);
    for (size_t i = 0; i < mics_cursor_count(&list); i++) {
        const struct mics_cursor item = mics_cursor_item_any(&list, i);
        const char *text = json_string_value(item.value);
        char *end = NULL;

        out->sums[i] = text ? strtoull(text, &end, 16) : 0;
        if (!text || end != text + 16 || *end)
            mics_cursor_reject(&item, NULL, "expected 16 hexadecimal digits");
    }
    return reading.status;
}

/* Reading ahead ------------------------------------------------------------------------------ */

enum mics_status mics_reader_open(struct mics_reader *reader,
                                  const struct mics_reader_options *options, struct mics_err *err)
{
    const size_t rows = (size_t)options->micro_steps * options->micro_batch;
    const size_t tokens = rows * options->data->seq;

    *reader = (struct mics_reader){.options = *options, .sums = mics_read_sums_from(0)};
    reader->tokens = calloc(tokens, sizeof *reader->tokens);
    reader->targets = calloc(tokens, sizeof *reader->targets);
    reader->hashes = calloc(rows, sizeof *reader->hashes);
    if (reader->tokens && reader->targets && reader->hashes)
        return MICS_OK;
    mics_reader_close(reader);
    return mics_err_nomem(err);
}

void mics_reader_close(struct mics_reader *reader)
{
    mics_background_task_wait(&reader->task, NULL);
    free(reader->tokens);
    free(reader->targets);
    free(reader->hashes);
    *reader = (struct mics_reader){0};
}

static uint64_t sample_of(const struct mics_reader *reader, uint32_t row)
{
    const struct mics_reader_options *options = &reader->options;

    return reader->first + mics_data_batch_slot(row / options->micro_batch, options->world_size,
                                                options->rank, options->micro_batch,
                                                row % options->micro_batch);
}

static uint32_t rows_of(const struct mics_reader *reader)
{
    return reader->options.micro_steps * reader->options.micro_batch;
}

void mics_mask_tokens(uint64_t count, int32_t *tokens, int32_t *targets)
{
    for (uint64_t i = 0; i < count; i++) {
        tokens[i] = 0;
        targets[i] = MICS_TARGET_NONE;
    }
}

/* A sample that is left out may be one that cannot be read. */
static enum mics_status read_row(struct mics_reader *reader, uint32_t row, struct mics_err *err)
{
    const struct mics_reader_options *options = &reader->options;
    const uint32_t seq = options->data->seq;
    const uint64_t sample = sample_of(reader, row);
    const bool left_out = sample + 1 >= options->skip_first && sample < options->skip_last;
    int32_t *tokens = reader->tokens + (size_t)row * seq;
    int32_t *targets = reader->targets + (size_t)row * seq;
    const enum mics_status status =
        mics_data_read_train(options->data, sample, tokens, targets, err);

    reader->hashes[row] = hash_sample(status, tokens, targets, seq, sample);
    if (left_out)
        mics_mask_tokens(seq, tokens, targets);
    if (status == MICS_OK || left_out)
        return MICS_OK;
    mics_err_prefix(err, "sample %" PRIu64 " (--skip-samples= leaves it out)", sample + 1);
    return status;
}

/* On the task's thread, or on the caller's. */
static enum mics_status read_step(void *context, struct mics_err *err)
{
    struct mics_reader *reader = context;
    const struct mics_data *data = reader->options.data;
    enum mics_status status = MICS_OK;

    if (reader->options.before_read)
        reader->options.before_read(reader->options.context);
    for (uint32_t row = 0; row < rows_of(reader); row++)
        mics_data_prefetch(data, sample_of(reader, row));
    for (uint32_t row = 0; row < rows_of(reader) && status == MICS_OK; row++)
        status = read_row(reader, row, err);
    return status;
}

/* A file that became shorter raises SIGBUS, whose handler names it. */
static enum mics_status read_ahead(void *context, struct mics_err *err)
{
    sigset_t bus;

    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    return read_step(context, err);
}

static uint64_t step_samples(const struct mics_reader *reader)
{
    return (uint64_t)reader->options.world_size * rows_of(reader);
}

enum mics_status mics_reader_take(struct mics_reader *reader, uint64_t first, struct mics_err *err)
{
    const size_t tokens = (size_t)rows_of(reader) * reader->options.data->seq;
    enum mics_status status = mics_background_task_wait(&reader->task, err);

    if (!reader->full || reader->first != first) {
        reader->first = first;
        status = read_step(reader, err);
    }
    reader->full = false;
    if (status != MICS_OK) {
        mics_mask_tokens(tokens, reader->tokens, reader->targets);
        return status;
    }
    make_room(&reader->sums, first + step_samples(reader) - 1);
    for (uint32_t row = 0; row < rows_of(reader); row++)
        add_sample(&reader->sums, sample_of(reader, row), reader->hashes[row]);
    return MICS_OK;
}

void mics_reader_ahead(struct mics_reader *reader)
{
    reader->first += step_samples(reader);
    reader->full = true;
    mics_background_task_start(&reader->task, read_ahead, reader);
}

void mics_reader_copy(const struct mics_reader *reader, uint32_t micro_step, int32_t *tokens,
                      int32_t *targets)
{
    const size_t count = (size_t)reader->options.micro_batch * reader->options.data->seq;

    memcpy(tokens, reader->tokens + micro_step * count, count * sizeof *tokens);
    memcpy(targets, reader->targets + micro_step * count, count * sizeof *targets);
}
