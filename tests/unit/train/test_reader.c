/* SPDX-License-Identifier: Apache-2.0 */
/* test_reader.c - sequences read ahead, and sums of what was read. */
#include "tap.h"

#include "train/batch_reader.h"

#include <stdlib.h>
#include <unistd.h>

enum { SEQ = 16, TEXT = 50000, RANKS = 2, MICRO_BATCH = 3, MICRO_STEPS = 2 };
enum { STEP = RANKS * MICRO_BATCH * MICRO_STEPS };

static char path[] = "/tmp/mics-reader-XXXXXX";

/* Text that does not repeat; byte `changed` is another one. */
static void write_text(size_t changed)
{
    FILE *out = fopen(path, "w");
    uint32_t state = 1;

    for (size_t i = 0; i < TEXT; i++) {
        state = state * 1664525 + 1013904223;
        putc((int)(' ' + (state >> 24) % 90) ^ (i == changed), out);
    }
    fclose(out);
}

static void open_text(struct mics_data *data)
{
    const char *patterns[] = {path};
    const struct mics_data_options options = {
        .patterns = patterns, .pattern_count = 1, .seq = SEQ, .vocab_size = 257, .seed = 5};

    CHECK_INT(mics_data_open(&options, data, NULL), MICS_OK);
}

static void open_reader(struct mics_reader *reader, const struct mics_data *data, uint32_t rank)
{
    const struct mics_reader_options options = {.data = data,
                                                .rank = rank,
                                                .world_size = RANKS,
                                                .micro_batch = MICRO_BATCH,
                                                .micro_steps = MICRO_STEPS};

    CHECK_INT(mics_reader_open(reader, &options, NULL), MICS_OK);
}

/* The sums over all ranks after so many steps, read ahead or not. */
static struct mics_read_sums sums_after(const struct mics_data *data, uint64_t steps, bool ahead)
{
    struct mics_read_sums sums = mics_read_sums_from(0);

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct mics_reader reader;

        open_reader(&reader, data, rank);
        for (uint64_t step = 0; step < steps; step++) {
            CHECK_INT(mics_reader_take(&reader, step * STEP, NULL), MICS_OK);
            if (ahead)
                mics_reader_ahead(&reader);
        }
        sums.each = reader.sums.each;
        for (size_t i = 0; i < MICS_READ_RANGES; i++)
            sums.sums[i] += reader.sums.sums[i];
        mics_reader_close(&reader);
    }
    return sums;
}

static void a_step_has_the_samples_of_its_rank(void)
{
    int32_t tokens[MICRO_BATCH * SEQ], targets[MICRO_BATCH * SEQ], want[SEQ], next[SEQ];
    struct mics_reader reader;
    struct mics_data data;

    open_text(&data);
    open_reader(&reader, &data, 1);
    for (uint64_t step = 0; step < 3; step++) {
        CHECK_INT(mics_reader_take(&reader, step * STEP, NULL), MICS_OK);
        for (uint32_t micro_step = 0; micro_step < MICRO_STEPS; micro_step++) {
            mics_reader_copy(&reader, micro_step, tokens, targets);
            for (uint32_t row = 0; row < MICRO_BATCH; row++) {
                const uint64_t sample =
                    step * STEP + mics_data_batch_slot(micro_step, RANKS, 1, MICRO_BATCH, row);

                CHECK_INT(mics_data_read_train(&data, sample, want, next, NULL), MICS_OK);
                CHECK(memcmp(want, tokens + row * SEQ, sizeof want) == 0);
                CHECK(memcmp(next, targets + row * SEQ, sizeof next) == 0);
            }
        }
        mics_reader_ahead(&reader);
    }
    CHECK_INT(mics_reader_take(&reader, 7 * STEP, NULL), MICS_OK); /* another than was read ahead */
    mics_reader_copy(&reader, 0, tokens, targets);
    CHECK_INT(mics_data_read_train(&data, 7 * STEP + MICRO_BATCH, want, next, NULL), MICS_OK);
    CHECK(memcmp(want, tokens, sizeof want) == 0);
    mics_reader_close(&reader);
    mics_data_close(&data);
}

static void sums_are_those_of_the_samples_however_they_were_read(void)
{
    struct mics_comm *comm;
    struct mics_data data;

    CHECK_INT(mics_comm_new_self(&comm, NULL), MICS_OK);
    open_text(&data);
    for (uint64_t steps = 0; steps < 40; steps += 13) {
        const struct mics_read_sums ahead = sums_after(&data, steps, true),
                                    now = sums_after(&data, steps, false);

        CHECK(memcmp(&ahead, &now, sizeof now) == 0);
        CHECK(now.each * MICS_READ_RANGES >= steps * STEP);
        CHECK_INT(mics_read_sums_check(comm, &data, &now, steps * STEP, NULL), MICS_OK);
    }
    mics_data_close(&data);
    mics_comm_free(comm);
}

static void one_byte_that_was_read_and_changed_is_found(void)
{
    struct mics_read_sums sums;
    struct mics_err err = {""};
    struct mics_comm *comm;
    struct mics_data data;
    const uint64_t steps = TEXT / SEQ / STEP - 1; /* nearly an epoch */

    CHECK_INT(mics_comm_new_self(&comm, NULL), MICS_OK);
    open_text(&data);
    sums = sums_after(&data, steps, true);
    mics_data_close(&data);
    for (size_t changed = 100; changed < TEXT; changed += 9973) {
        write_text(changed);
        open_text(&data);
        CHECK_INT(mics_read_sums_check(comm, &data, &sums, steps * STEP, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, "the data differ from what was read in samples ") != NULL);
        mics_data_close(&data);
    }
    write_text(TEXT);
    mics_comm_free(comm);
}

static void sums_that_do_not_fit_the_samples_are_refused(void)
{
    struct mics_read_sums sums = {.first = 10, .each = 1};
    struct mics_err err = {""};
    struct mics_comm *comm;
    struct mics_data data;

    CHECK_INT(mics_comm_new_self(&comm, NULL), MICS_OK);
    open_text(&data);
    CHECK_INT(mics_read_sums_check(comm, &data, &sums, 9, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "do not end at 9") != NULL);
    CHECK_INT(mics_read_sums_check(comm, &data, &sums, 11 + MICS_READ_RANGES, &err),
              MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "do not end at 75") != NULL);
    CHECK_INT(mics_read_sums_check(comm, &data, &sums, 10, &err), MICS_OK); /* nothing was read */
    mics_data_close(&data);
    mics_comm_free(comm);
}

static void sums_survive_a_document(void)
{
    static const char *const damaged[] = {
        "{\"first\": 0, \"each\": 3, \"xxh64\": []}",
        "{\"first\": 0, \"each\": 2, \"xxh64\": [\"12\"]}",
        "{\"first\": 0, \"each\": 2, \"xxh64\": [17]}",
        "{\"first\": -1, \"each\": 2, \"xxh64\": []}",
        "{\"first\": 0, \"each\": 2, \"xxh64\": [\"000000000000000x\"]}",
        "{\"each\": 2, \"xxh64\": []}",
    };
    struct mics_read_sums sums = {.first = 9, .each = 4}, got;

    sums.sums[0] = UINT64_MAX;
    sums.sums[MICS_READ_RANGES - 1] = 1;
    for (int i = 0; i < 2; i++) {
        json_t *doc = mics_read_sums_to_json(&sums);

        CHECK_INT(mics_read_sums_from_json(doc, &got, NULL), MICS_OK);
        CHECK(memcmp(&got, &sums, sizeof got) == 0);
        json_decref(doc);
        sums.sums[MICS_READ_RANGES - 1] = 0;
    }
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        json_t *doc = json_loads(damaged[i], 0, NULL);

        CHECK_INT(mics_read_sums_from_json(doc, &got, NULL), MICS_ERR_FORMAT);
        json_decref(doc);
    }
}

int main(void)
{
    close(mkstemp(path));
    write_text(TEXT);
    TAP_RUN(a_step_has_the_samples_of_its_rank);
    TAP_RUN(sums_are_those_of_the_samples_however_they_were_read);
    TAP_RUN(one_byte_that_was_read_and_changed_is_found);
    TAP_RUN(sums_that_do_not_fit_the_samples_are_refused);
    TAP_RUN(sums_survive_a_document);
    unlink(path);
    return tap_done();
}
