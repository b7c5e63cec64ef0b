/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/tensorboard.h"

#include "base/clock.h"
#include "base/dir.h"
#include "base/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FLUSH_INTERVAL_S 1
#define NAME_PREFIX      "events.out.tfevents."

/* CRC-32C (Castagnoli), reflected. */
#define CRC32C_POLYNOMIAL 0x82f63b78u
#define CRC_MASK_DELTA    0xa282ead8u

/* Keys of protocol buffers: field number << 3 | wire type. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,    /* double */
    EVENT_STEP = 2 << 3,             /* varint */
    EVENT_FILE_VERSION = 3 << 3 | 2, /* string */
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION_LOG = 7 << 3 | 2,
    SESSION_LOG_STATUS = 1 << 3,
    SESSION_LOG_START = 1,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5, /* fp32 */
};

enum {
    MAX_VALUE_BYTES = sizeof((struct mics_tensorboard_scalar *)0)->tag + 16,
    MAX_SUMMARY_BYTES = MICS_TENSORBOARD_MAX_SCALARS * MAX_VALUE_BYTES,
    MAX_EVENT_BYTES = MAX_SUMMARY_BYTES + 64,
};

struct mics_tensorboard {
    FILE *out;
    char path[MICS_PATH_MAX];
    double flushed_s;
    uint32_t crc_table[256];
};

/* A message being encoded. */
struct message {
    unsigned char bytes[MAX_EVENT_BYTES];
    size_t size;
};

static void put_bytes(struct message *message, const void *bytes, size_t size)
{
    assert(message->size + size <= sizeof message->bytes);
    memcpy(message->bytes + message->size, bytes, size);
    message->size += size;
}

static void put_varint(struct message *message, uint64_t value)
{
    unsigned char byte;

    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        put_bytes(message, &byte, 1);
    }
    byte = (unsigned char)value;
    put_bytes(message, &byte, 1);
}

/* The low bytes of a number, the lowest first. */
static void put_fixed(struct message *message, uint64_t value, size_t size)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    put_bytes(message, bytes, size);
}

static void put_block(struct message *message, uint64_t key, const void *bytes, size_t size)
{
    put_varint(message, key);
    put_varint(message, size);
    put_bytes(message, bytes, size);
}

static void begin_event(struct message *event, uint64_t step)
{
    struct timespec now;
    uint64_t bits;

    clock_gettime(CLOCK_REALTIME, &now);
    const double wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;

    memcpy(&bits, &wall_time, sizeof bits);
    event->size = 0;
    put_varint(event, EVENT_WALL_TIME);
    put_fixed(event, bits, 8);
    put_varint(event, EVENT_STEP);
    put_varint(event, step);
}

static void fill_crc_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC32C_POLYNOMIAL : crc >> 1;
        table[i] = crc;
    }
}

static uint32_t masked_crc(const struct mics_tensorboard *tensorboard, const unsigned char *bytes,
                           size_t size)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size; i++)
        crc = tensorboard->crc_table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + CRC_MASK_DELTA;
}

static enum mics_status flush(struct mics_tensorboard *tensorboard, struct mics_err *err)
{
    tensorboard->flushed_s = mics_now_s();
    if (fflush(tensorboard->out) != 0 || ferror(tensorboard->out))
        return mics_err_set_errno(err, "%s", tensorboard->path);
    return MICS_OK;
}

static void write_record(struct mics_tensorboard *tensorboard, const struct message *event)
{
    struct message frame = {.size = 0};

    put_fixed(&frame, event->size, 8);
    put_fixed(&frame, masked_crc(tensorboard, frame.bytes, 8), 4);
    fwrite(frame.bytes, 1, frame.size, tensorboard->out);
    fwrite(event->bytes, 1, event->size, tensorboard->out);
    frame.size = 0;
    put_fixed(&frame, masked_crc(tensorboard, event->bytes, event->size), 4);
    fwrite(frame.bytes, 1, frame.size, tensorboard->out);
}

static void write_header(struct mics_tensorboard *tensorboard, uint64_t first_step)
{
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {SESSION_LOG_STATUS, SESSION_LOG_START};
    struct message event;

    begin_event(&event, 0);
    put_block(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    write_record(tensorboard, &event);
    begin_event(&event, first_step);
    put_block(&event, EVENT_SESSION_LOG, start, sizeof start);
    write_record(tensorboard, &event);
}

/* Readers take the files of a folder in the order of their names: the time in the new one must be
 * later than that in any other. */
static enum mics_status new_file_time(const char *folder, long long *latest, struct mics_err *err)
{
    struct mics_dir dir;
    const char *name;
    const enum mics_status status = mics_dir_open(folder, &dir, err);

    *latest = (long long)time(NULL);
    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
        if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0) {
            const long long other = strtoll(name + strlen(NAME_PREFIX), NULL, 10);

            if (other >= *latest && other < 9999999999)
                *latest = other + 1;
        }
    return mics_dir_close(&dir, status, err);
}

enum mics_status mics_tensorboard_open(const char *folder, uint64_t first_step,
                                       struct mics_tensorboard **out, struct mics_err *err)
{
    struct mics_tensorboard *tensorboard = calloc(1, sizeof *tensorboard);
    char host[256] = "";
    long long now = 0;
    enum mics_status status;

    if (!tensorboard)
        return mics_err_nomem(err);
    gethostname(host, sizeof host - 1);
    status = mics_file_make_folders(folder, err);
    if (status == MICS_OK)
        status = new_file_time(folder, &now, err);
    if (status == MICS_OK)
        status = mics_path_format(tensorboard->path, err, "%s/" NAME_PREFIX "%010lld.%s.%ld",
                                  folder, now, host[0] ? host : "localhost", (long)getpid());
    if (status == MICS_OK && !(tensorboard->out = fopen(tensorboard->path, "wxe")))
        status = mics_err_set_errno(err, "%s", tensorboard->path);
    if (status == MICS_OK) {
        fill_crc_table(tensorboard->crc_table);
        write_header(tensorboard, first_step);
        status = flush(tensorboard, err);
    }
    if (status != MICS_OK) {
        if (tensorboard->out)
            fclose(tensorboard->out);
        free(tensorboard);
        return status;
    }
    *out = tensorboard;
    return MICS_OK;
}

enum mics_status mics_tensorboard_write(struct mics_tensorboard *tensorboard, uint64_t step,
                                        const struct mics_tensorboard_scalar *scalars, size_t count,
                                        struct mics_err *err)
{
    struct message event, summary = {.size = 0}, value;

    assert(count <= MICS_TENSORBOARD_MAX_SCALARS);
    for (size_t i = 0; i < count; i++) {
        const float number = (float)scalars[i].value;
        uint32_t bits;

        memcpy(&bits, &number, sizeof bits);
        value.size = 0;
        put_block(&value, VALUE_TAG, scalars[i].tag, strlen(scalars[i].tag));
        put_varint(&value, VALUE_SIMPLE);
        put_fixed(&value, bits, 4);
        put_block(&summary, SUMMARY_VALUE, value.bytes, value.size);
    }
    begin_event(&event, step);
    put_block(&event, EVENT_SUMMARY, summary.bytes, summary.size);
    write_record(tensorboard, &event);
    if (ferror(tensorboard->out) || mics_now_s() - tensorboard->flushed_s >= FLUSH_INTERVAL_S)
        return flush(tensorboard, err);
    return MICS_OK;
}

enum mics_status mics_tensorboard_close(struct mics_tensorboard *tensorboard, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!tensorboard)
        return MICS_OK;
    if (fclose(tensorboard->out) != 0)
        status = mics_err_set_errno(err, "%s", tensorboard->path);
    free(tensorboard);
    return status;
}
