/* SPDX-License-Identifier: Apache-2.0 */
/* test_stream_hold.c - a stream waits for its release. */
#include "base/clock.h"
#include "measure/bench.h"
#include "tap.h"

static void a_held_stream_waits_for_its_release(void)
{
    struct mics_device *device = NULL;
    struct mics_stream *stream = NULL;
    struct mics_event *behind = NULL;
    struct mics_stream_hold hold;

    CHECK_INT(mics_device_new_host(1, &device, NULL), MICS_OK);
    CHECK_INT(device->ops->stream_open(device, "held", 0, &stream, NULL), MICS_OK);
    CHECK_INT(device->ops->event_open(device, &behind, NULL), MICS_OK);
    mics_stream_hold_init(&hold, stream);
    device->ops->event_record(behind, stream);
    mics_sleep_s(0.05);
    CHECK(!device->ops->event_reached(behind));
    mics_stream_hold_release(&hold);
    CHECK_INT(device->ops->event_sync(behind, NULL), MICS_OK);
    CHECK(device->ops->event_reached(behind));
    device->ops->event_close(behind);
    device->ops->stream_close(stream);
    mics_stream_hold_fini(&hold);
    device->ops->free(device);
}

int main(void)
{
    TAP_RUN(a_held_stream_waits_for_its_release);
    return tap_done();
}
