/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/stream_hold.h"

#include "device/launch.h"

/* In the stream. */
static void wait_at(void *context)
{
    struct mics_bench_gate *gate = context;

    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->opened, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

void mics_bench_gate_close(struct mics_bench_gate *gate, struct mics_stream *stream)
{
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->opened, NULL);
    gate->open = false;
    mics_launch_call(stream, &(struct mics_op_call){.fn = wait_at, .context = gate});
}

void mics_bench_gate_open(struct mics_bench_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_signal(&gate->opened);
    pthread_mutex_unlock(&gate->lock);
}

void mics_bench_gate_fini(struct mics_bench_gate *gate)
{
    pthread_cond_destroy(&gate->opened);
    pthread_mutex_destroy(&gate->lock);
}
