/* SPDX-License-Identifier: Apache-2.0 */
/* test_bench_gate.c - a stream stands at a gate, and goes on when it is opened. */
#include "base/clock.h"
#include "bench/bench.h"
#include "tap.h"

static void a_stream_waits_until_the_gate_is_opened(void)
{
    struct mics_device *device = NULL;
    struct mics_stream *stream = NULL;
    struct mics_event *behind = NULL;
    struct mics_bench_gate gate;

    CHECK_INT(mics_device_new_host(1, &device, NULL), MICS_OK);
    CHECK_INT(device->ops->stream_open(device, "gated", 0, &stream, NULL), MICS_OK);
    CHECK_INT(device->ops->event_open(device, &behind, NULL), MICS_OK);
    mics_bench_gate_close(&gate, stream);
    device->ops->event_record(behind, stream);
    mics_sleep_s(0.05);
    CHECK(!device->ops->event_reached(behind));
    mics_bench_gate_open(&gate);
    CHECK_INT(device->ops->event_sync(behind, NULL), MICS_OK);
    CHECK(device->ops->event_reached(behind));
    device->ops->event_close(behind);
    device->ops->stream_close(stream);
    mics_bench_gate_fini(&gate);
    device->ops->free(device);
}

int main(void)
{
    TAP_RUN(a_stream_waits_until_the_gate_is_opened);
    return tap_done();
}
