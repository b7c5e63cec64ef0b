/* SPDX-License-Identifier: Apache-2.0 */
/* device_checks.h - checks that every device must pass; the test that includes this opens
 * `device`. */
#ifndef MICS_TESTS_DEVICE_CHECKS_H
#define MICS_TESTS_DEVICE_CHECKS_H

#include "base/clock.h"
#include "device/launch.h"
#include "tap.h"

#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

static struct mics_device *device;
static const struct mics_device_ops *ops;
static double clock_off = 0.0; /* times of events may be wrong by so many seconds */

static struct mics_stream *open_stream(const char *name)
{
    struct mics_stream *stream = NULL;

    CHECK_INT(ops->stream_open(device, name, 0, &stream, NULL), MICS_OK);
    return stream;
}

static struct mics_event *open_event(void)
{
    struct mics_event *event = NULL;

    CHECK_INT(ops->event_open(device, &event, NULL), MICS_OK);
    return event;
}

static void call(struct mics_stream *stream, void (*fn)(void *), void *context)
{
    mics_launch_call(stream, &(struct mics_args_call){.fn = fn, .context = context});
}

static void nap(void *context)
{
    mics_sleep_s(*(const double *)context);
}

static const double short_nap = 0.01, long_nap = 0.05;

static void sleep_in(struct mics_stream *stream, const double *seconds)
{
    call(stream, nap, (void *)seconds);
}

/* Plain ints on purpose: under ThreadSanitizer a missing wait shows as a race. */
static void increment(void *context)
{
    ++*(int *)context;
}

static void operations_of_a_stream_run_in_order_through_a_full_ring(void)
{
    enum { OPS = 5000 };
    struct mics_stream *stream = open_stream("order");
    int count = 0;

    sleep_in(stream, &short_nap);
    for (int i = 0; i < OPS; i++)
        call(stream, increment, &count);
    CHECK_INT(ops->stream_sync(stream, NULL), MICS_OK);
    CHECK_INT(count, OPS);
    ops->stream_close(stream);
}

struct payload {
    int *out;
    int value;
};

static void store(void *context)
{
    struct payload *payload = context;

    *payload->out = *payload->out * 10 + payload->value;
}

static void a_call_without_context_gets_its_own_payload(void)
{
    struct mics_stream *stream = open_stream("payload");
    int out = 0;

    for (int i = 1; i <= 3; i++) {
        struct mics_args_call op = {.fn = store};

        memcpy(op.payload, &(struct payload){&out, i}, sizeof(struct payload));
        mics_launch_call(stream, &op);
    }
    CHECK_INT(ops->stream_sync(stream, NULL), MICS_OK);
    CHECK_INT(out, 123);
    ops->stream_close(stream);
}

static void fill(unsigned char *data, size_t bytes, unsigned char first)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(first + i * 7);
}

static void zero_and_copy_move_bytes(void)
{
    enum { BYTES = 1 << 20 };
    struct mics_stream *stream = open_stream("bytes");
    void *memory[2], *host;

    for (int i = 0; i < 2; i++)
        CHECK_INT(ops->alloc(device, BYTES, &memory[i], NULL), MICS_OK);
    CHECK_INT(ops->host_alloc(device, 3 * BYTES, &host, NULL), MICS_OK);
    unsigned char *from = host, *to = from + BYTES, *want = to + BYTES;
    CHECK_INT(from[0] + to[BYTES - 1], 0);
    CHECK_INT((uintptr_t)memory[0] % 256 + (uintptr_t)memory[1] % 256, 0);
    fill(from, BYTES, 3);
    memcpy(want, from, BYTES);
    memset(want + 5, 0, 1000);
    mics_launch_copy(stream, &(struct mics_args_copy){memory[0], from, BYTES});
    mics_launch_copy(stream, &(struct mics_args_copy){memory[1], memory[0], BYTES});
    mics_launch_zero(stream, &(struct mics_args_zero){memory[0], BYTES});
    mics_launch_zero(stream, &(struct mics_args_zero){(char *)memory[1] + 5, 1000});
    mics_launch_zero(stream, &(struct mics_args_zero){memory[1], 0});
    mics_launch_copy(stream, &(struct mics_args_copy){memory[1], memory[1], BYTES});
    mics_launch_copy(stream, &(struct mics_args_copy){to, memory[1], BYTES});
    CHECK_INT(ops->stream_sync(stream, NULL), MICS_OK);
    CHECK_INT(memcmp(to, want, BYTES), 0);
    for (int i = 0; i < 2; i++)
        ops->release(device, memory[i]);
    ops->host_release(device, host);
    ops->host_release(device, NULL);
    ops->stream_close(stream);
}

static void a_wait_holds_another_stream_until_the_record(void)
{
    struct mics_stream *first = open_stream("first"), *second = open_stream("second");
    struct mics_event *event = open_event();
    int count = 0;

    for (int i = 0; i < 200; i++) {
        if (i % 50 == 0)
            sleep_in(first, &short_nap);
        call(first, increment, &count);
        ops->event_record(event, first);
        ops->event_wait(second, event);
        call(second, increment, &count);
        ops->event_record(event, second);
        ops->event_wait(first, event);
    }
    CHECK_INT(ops->event_sync(event, NULL), MICS_OK);
    CHECK_INT(count, 400);
    ops->event_close(event);
    ops->stream_close(first);
    ops->stream_close(second);
}

static void read_int(void *context)
{
    int *pair = context;

    pair[1] = pair[0];
}

static void a_wait_refers_to_the_latest_record_before_it(void)
{
    struct mics_stream *slow = open_stream("slow"), *fast = open_stream("fast");
    struct mics_stream *third = open_stream("third");
    struct mics_event *event = open_event();
    int pair[2] = {0, 0};

    sleep_in(slow, &long_nap);
    call(slow, increment, &pair[0]);
    ops->event_record(event, slow);
    ops->event_wait(third, event); /* the slow one's record */
    call(third, read_int, pair);
    ops->event_record(event, fast); /* reached at once, and does not affect `third` */
    CHECK_INT(ops->event_sync(event, NULL), MICS_OK);
    CHECK_INT(ops->stream_sync(third, NULL), MICS_OK);
    CHECK_INT(pair[1], 1);
    ops->event_close(event);
    ops->stream_close(slow);
    ops->stream_close(fast);
    ops->stream_close(third);
}

struct hold {
    sem_t open;
    int gave_up;
};

static void wait_hold(void *context)
{
    struct hold *hold = context;
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 2;
    hold->gave_up = sem_timedwait(&hold->open, &limit) != 0;
}

static void a_later_record_does_not_hold_an_earlier_wait(void)
{
    struct hold hold = {.gave_up = -1};

    struct mics_stream *first = open_stream("first"), *second = open_stream("second");
    struct mics_event *event = open_event();
    sem_init(&hold.open, 0, 0);
    ops->event_record(event, first);
    ops->event_wait(second, event);
    call(first, wait_hold, &hold);
    ops->event_record(event, first);
    CHECK_INT(ops->stream_sync(second, NULL), MICS_OK);
    sem_post(&hold.open); /* too late, had the second stream waited for the second record */
    CHECK_INT(ops->event_sync(event, NULL), MICS_OK);
    CHECK_INT(hold.gave_up, 0);
    ops->event_close(event);
    ops->stream_close(first);
    ops->stream_close(second);
    sem_destroy(&hold.open);
}

static void an_event_never_recorded_blocks_no_stream(void)
{
    struct mics_stream *stream = open_stream("free");
    struct mics_event *event = open_event();
    int count = 0;

    ops->event_wait(stream, event);
    call(stream, increment, &count);
    CHECK_INT(ops->event_sync(event, NULL), MICS_OK);
    CHECK_INT(ops->stream_sync(stream, NULL), MICS_OK);
    CHECK_INT(count, 1);
    ops->event_close(event);
    ops->stream_close(stream);
}

static void the_time_of_an_event_is_when_its_newest_record_was_reached(void)
{
    struct mics_stream *stream = open_stream("time");
    struct mics_event *begin = open_event(), *end = open_event();
    double before = mics_now_s();

    ops->event_record(end, stream);
    ops->event_record(begin, stream);
    sleep_in(stream, &short_nap);
    ops->event_record(end, stream);
    CHECK_INT(ops->event_sync(end, NULL), MICS_OK);
    CHECK(ops->event_time(begin) >= before - clock_off);
    CHECK(ops->event_time(end) - ops->event_time(begin) >= short_nap);
    CHECK(ops->event_time(end) <= mics_now_s() + clock_off);
    ops->event_close(begin);
    ops->event_close(end);
    ops->stream_close(stream);
}

static void events_and_streams_may_be_closed_before_they_are_reached(void)
{
    struct mics_stream *slow = open_stream("slow"), *other = open_stream("other");
    struct mics_event *event = open_event();
    int count = 0;

    sleep_in(slow, &short_nap);
    call(slow, increment, &count);
    ops->event_record(event, slow);
    ops->event_wait(other, event);
    call(other, increment, &count);
    ops->stream_close(slow);
    ops->event_close(event);
    ops->stream_close(other);
    ops->stream_close(NULL);
    ops->event_close(NULL);
    CHECK_INT(count, 2);
}

static void fail_device(void *context)
{
    ops->fail(device, MICS_ERR_COMM, context);
}

static void the_first_failure_is_sticky_and_nothing_hangs(void)
{
    struct mics_stream *bad = open_stream("bad"), *good = open_stream("good");
    struct mics_event *event = open_event();
    struct mics_err err = {""};
    int count = 0;

    CHECK_INT(ops->failure(device, &err), MICS_OK);
    call(bad, fail_device, "the line broke");
    call(bad, increment, &count);
    ops->event_record(event, bad);
    ops->event_wait(good, event);
    call(good, increment, &count);
    CHECK_INT(ops->stream_sync(good, &err), MICS_ERR_COMM);
    CHECK_STR(err.text, "the line broke");
    ops->fail(device, MICS_ERR_IO, "second");
    CHECK_INT(ops->event_sync(event, &err), MICS_ERR_COMM);
    CHECK_STR(err.text, "the line broke");
    CHECK_INT(count, 0);
    ops->event_close(event);
    ops->stream_close(bad);
    ops->stream_close(good);
}

/* The last check leaves the device in the failed state. */
static void check_device(void)
{
    TAP_RUN(operations_of_a_stream_run_in_order_through_a_full_ring);
    TAP_RUN(a_call_without_context_gets_its_own_payload);
    TAP_RUN(zero_and_copy_move_bytes);
    TAP_RUN(a_wait_holds_another_stream_until_the_record);
    TAP_RUN(a_wait_refers_to_the_latest_record_before_it);
    TAP_RUN(a_later_record_does_not_hold_an_earlier_wait);
    TAP_RUN(an_event_never_recorded_blocks_no_stream);
    TAP_RUN(the_time_of_an_event_is_when_its_newest_record_was_reached);
    TAP_RUN(events_and_streams_may_be_closed_before_they_are_reached);
    TAP_RUN(the_first_failure_is_sticky_and_nothing_hangs);
}

#endif
