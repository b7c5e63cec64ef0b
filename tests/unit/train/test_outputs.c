/* SPDX-License-Identifier: Apache-2.0 */
/* test_outputs.c - the bytes of event files and of Prometheus' file, and outputs that fail. */
#include "tap.h"
#include "train/report/outputs.h"

#include "base/file.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/test_outputs.XXXXXX";
static struct mics_err err;

/* The last file of the folder, by name, whose name begins so. */
static char *last_file(const char *where, const char *prefix)
{
    static char path[1024];
    char name[256] = "";
    DIR *dir = opendir(where);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && strcmp(entry->d_name, name) > 0)
            snprintf(name, sizeof name, "%s", entry->d_name);
    if (dir)
        closedir(dir);
    snprintf(path, sizeof path, "%s/%s", where, name);
    return path;
}

static uint64_t low_first(const unsigned char *bytes, size_t size)
{
    uint64_t value = 0;

    for (size_t i = size; i > 0; i--)
        value = value << 8 | bytes[i - 1];
    return value;
}

/* CRC-32C bit by bit, and as TFRecord files mask it. */
static uint32_t crc32c(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < 8 * size; i++) {
        const uint32_t bit = (crc ^ (uint32_t)bytes[i / 8] >> i % 8) & 1;

        crc = crc >> 1 ^ (bit ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* One record, which moves *at behind it; *size: of its data. NULL after the last. */
static const unsigned char *next_record(const char *data, size_t total, size_t *at, size_t *size)
{
    const unsigned char *bytes = (const unsigned char *)data + *at;

    if (*at + 16 > total)
        return NULL;
    *size = (size_t)low_first(bytes, 8);
    CHECK(*at + 16 + *size <= total);
    CHECK_INT(low_first(bytes + 8, 4), mask(crc32c(bytes, 8)));
    CHECK_INT(low_first(bytes + 12 + *size, 4), mask(crc32c(bytes + 12, *size)));
    *at += 16 + *size;
    return bytes + 12;
}

/* The event after its wall time: 9 bytes of which the first is the key. */
static void check_event(const unsigned char *event, size_t size, const char *expected,
                        size_t expected_size)
{
    CHECK(event && size == 9 + expected_size);
    if (!event || size != 9 + expected_size)
        return;
    CHECK_INT(event[0], 0x09);
    CHECK(memcmp(event + 9, expected, expected_size) == 0);
}

static void events_have_the_bytes_that_readers_expect(void)
{
    static const char version[] = "\x10\x00\x1a\x0d"
                                  "brain.Event:2";
    static const char start[] = "\x10\xad\x02\x3a\x02\x08\x01";
    static const char summary[] = "\x10\xad\x02\x2a\x1d\x0a\x0d\x0a\x06"
                                  "a/loss\x15\x00\x00\xc0\x3f\x0a\x0c\x0a\x05"
                                  "b/two\x15\x00\x00\x00\x40";
    const struct mics_tensorboard_scalar scalars[] = {{"a/loss", 1.5}, {"b/two", 2}};
    struct mics_tensorboard *tensorboard = NULL;
    char where[64], *data = NULL;
    size_t total = 0, at = 0, size = 0;
    const unsigned char *event;

    CHECK_INT(crc32c("123456789", 9), 0xe3069283u);
    snprintf(where, sizeof where, "%s/new/tb", folder);
    CHECK_INT(mics_tensorboard_open(where, 301, &tensorboard, &err), MICS_OK);
    CHECK_INT(mics_tensorboard_write(tensorboard, 301, scalars, 2, &err), MICS_OK);
    CHECK_INT(mics_tensorboard_close(tensorboard, &err), MICS_OK);
    CHECK_INT(
        mics_file_read(last_file(where, "events.out.tfevents."), 1 << 20, &data, &total, &err),
        MICS_OK);
    event = next_record(data, total, &at, &size);
    check_event(event, size, version, sizeof version - 1);
    event = next_record(data, total, &at, &size);
    check_event(event, size, start, sizeof start - 1);
    event = next_record(data, total, &at, &size);
    check_event(event, size, summary, sizeof summary - 1);
    CHECK(next_record(data, total, &at, &size) == NULL);
    free(data);
}

static void a_later_file_of_a_folder_has_a_later_name(void)
{
    struct mics_tensorboard *tensorboard = NULL;
    char where[64], first[1024];

    snprintf(where, sizeof where, "%s/names", folder);
    CHECK_INT(mics_tensorboard_open(where, 1, &tensorboard, &err), MICS_OK);
    CHECK_INT(mics_tensorboard_close(tensorboard, &err), MICS_OK);
    for (int i = 0; i < 3; i++) {
        snprintf(first, sizeof first, "%s", last_file(where, "events.out.tfevents."));
        CHECK_INT(mics_tensorboard_open(where, 1, &tensorboard, &err), MICS_OK);
        CHECK_INT(mics_tensorboard_close(tensorboard, &err), MICS_OK);
        CHECK(strcmp(last_file(where, "events.out.tfevents."), first) > 0);
    }
}

static void prometheus_text_has_known_values_and_escaped_labels(void)
{
    const struct mics_prometheus_labels labels = {
        .run = "/a\"b\\c\nd", .model = "gpt2", .job_id = "7"};
    const char *const expected[] = {
        ("# HELP mics_train_step Training steps done.\n# TYPE mics_train_step gauge\n"
         "mics_train_step{run=\"/a\\\"b\\\\c\\nd\"} 12\n"),
        "# TYPE mics_train_tokens_total counter\n",
        "mics_train_loss{run=\"/a\\\"b\\\\c\\nd\"} +Inf\n",
        ",model=\"gpt2\",job_id=\"7\",version=\"",
    };
    struct mics_prometheus_values values;
    char path[64], *data = NULL;
    size_t size = 0;

    for (size_t i = 0; i < sizeof values / sizeof(double); i++)
        ((double *)&values)[i] = NAN;
    values.step = 12;
    values.tokens = 1e12;
    values.loss = INFINITY;
    values.restarts = 3;
    snprintf(path, sizeof path, "%s/m.prom", folder);
    CHECK_INT(mics_prometheus_read_restarts(path, &labels), -1);
    CHECK_INT(mics_prometheus_write(path, &labels, &values, &err), MICS_OK);
    CHECK_INT(mics_prometheus_read_restarts(path, &labels), 3);
    CHECK_INT(mics_file_read(path, 1 << 20, &data, &size, &err), MICS_OK);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK(strstr(data, expected[i]) != NULL);
    CHECK(strstr(data, "grad_norm") == NULL);
    CHECK(strstr(data, "nan") == NULL);
    free(data);
}

static int warnings;

static void count_warning(const char *text)
{
    CHECK(strstr(text, "training goes on") != NULL);
    warnings++;
}

static void an_output_that_fails_is_reported_once_and_tried_again(void)
{
    struct mics_outputs outputs;
    const struct mics_step_record record = {.step = 1, .loss = 2, .seconds = 0.1};
    char metrics[64], tensorboard[64], *data = NULL;
    size_t size = 0;

    snprintf(metrics, sizeof metrics, "%s/later/m.jsonl", folder);
    snprintf(tensorboard, sizeof tensorboard, "%s/later/tb", folder);
    const struct mics_outputs_options options = {
        .paths = {[MICS_OUTPUT_METRICS] = metrics, [MICS_OUTPUT_TENSORBOARD] = tensorboard},
        .append = true,
        .first_step = 1,
        .warn = count_warning,
    };

    warnings = 0;
    CHECK_INT(mics_outputs_open(&outputs, &options, json_pack("{s:s}", "event", "run"), &err),
              MICS_OK);
    CHECK_INT(warnings, 1);
    mics_outputs_step(&outputs, &record, NAN);
    CHECK_INT(warnings, 1);
    CHECK(outputs.retry_s[MICS_OUTPUT_METRICS] > 0);
    CHECK(access(metrics, F_OK) != 0);
    outputs.retry_s[MICS_OUTPUT_METRICS] = 1e-9; /* the wait is over */
    mics_outputs_step(&outputs, &record, NAN);
    mics_outputs_close(&outputs);
    CHECK_INT(mics_file_read(metrics, 1 << 20, &data, &size, &err), MICS_OK);
    CHECK(data && strstr(data, "{\"event\":\"run\"}\n{\"event\":\"step\",\"step\":1,") == data);
    free(data);
}

/* Restarts in the file of Prometheus after a start. */
static double restarts_after(bool append, uint64_t restarts)
{
    const struct mics_prometheus_labels labels = {.run = "/run", .model = "m", .job_id = ""};
    struct mics_outputs outputs;
    char path[64];

    snprintf(path, sizeof path, "%s/restarts.prom", folder);
    const struct mics_outputs_options options = {.paths = {[MICS_OUTPUT_PROMETHEUS] = path},
                                                 .append = append,
                                                 .restarts = restarts,
                                                 .labels = labels};

    CHECK_INT(mics_outputs_open(&outputs, &options, NULL, &err), MICS_OK);
    mics_outputs_close(&outputs);
    return mics_prometheus_read_restarts(path, &labels);
}

static void restarts_are_counted_from_the_file_and_from_what_is_known(void)
{
    CHECK_INT(restarts_after(false, 0), 0);
    CHECK_INT(restarts_after(true, 0), 1);
    CHECK_INT(restarts_after(true, 1), 2); /* of another mics-run */
    CHECK_INT(restarts_after(true, 7), 7);
    CHECK_INT(restarts_after(false, 0), 0);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    TAP_RUN(events_have_the_bytes_that_readers_expect);
    TAP_RUN(a_later_file_of_a_folder_has_a_later_name);
    TAP_RUN(prometheus_text_has_known_values_and_escaped_labels);
    TAP_RUN(restarts_are_counted_from_the_file_and_from_what_is_known);
    TAP_RUN(an_output_that_fails_is_reported_once_and_tried_again);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
