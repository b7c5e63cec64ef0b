/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - set up what measurements need, wait for them, and hold a stream. */
#include "measure/bench.h"
#include "base/clock.h"
#include "base/num.h"
#include "comm/agree.h"
#include "comm/staged.h"
#include "device/launch.h"
#include "topology/gpu_info.h"
#include "topology/node_info.h"
#include "topology/topology.h"

#include <sched.h>
#include <stdlib.h>

static const double check_interval_s = 1e-3; /* of the communicators */

enum { MAX_BUFFER = 64 << 20, MAX_GPU_BUFFER = 256 << 20, MIN_BUFFER = 8 << 20 };

/* The GPUs of this machine before this process opens a context, which takes memory of its GPU.
 * Empty if NVML is missing or fails. */
struct idle_gpus {
    struct mics_nvml_gpu *list;
    uint32_t count;
};

static struct idle_gpus list_idle_gpus(enum mics_device_kind kind)
{
    struct idle_gpus gpus = {0};

    if (kind != MICS_DEVICE_HOST && mics_nvml_list(&gpus.list, &gpus.count, NULL) != MICS_OK)
        gpus = (struct idle_gpus){0};
    return gpus;
}

/* As NVML has listed it, else as CUDA reports it, without the memory of this process's context. */
static enum mics_status free_memory(const struct mics_bench *bench, const struct idle_gpus *gpus,
                                    uint64_t *out, struct mics_err *err)
{
    struct mics_device *device = bench->device;

    for (uint32_t i = 0; i < gpus->count; i++)
        if (gpus->list[i].free_bytes > 0 && mics_nvml_gpu_is(&gpus->list[i], device->uuid)) {
            *out = gpus->list[i].free_bytes;
            return MICS_OK;
        }
    return device->ops->memory_left(device, out, err);
}

/* What one rank knows of its device. */
struct device_facts {
    uint64_t memory_bytes;
    bool has_bf16, has_f16, onednn;
};

/* The least memory of all ranks, and bf16, or else fp16, only where all ranks have it. */
static enum mics_status agree_on_device(struct mics_bench *bench, const struct idle_gpus *gpus,
                                        struct mics_err *err)
{
    const struct mics_world *world = bench->world;
    const bool on_host = bench->device->on_host;
    uint64_t own = mics_node_memory_bytes() / mics_world_host_ranks(world), least = UINT64_MAX;
    enum mics_status status = on_host ? MICS_OK : free_memory(bench, gpus, &own, err);

    if (status != MICS_OK)
        return status;
    const struct device_facts facts = {.memory_bytes = own,
                                       .has_bf16 = bench->device->has_bf16,
                                       .has_f16 = bench->device->has_f16,
                                       .onednn = bench->device->onednn};
    bool bf16 = true, f16 = true;
    struct device_facts *all = mics_all_gather(world->comm, &facts, sizeof facts, &status, err);

    for (uint32_t i = 0; i < world->size && status == MICS_OK; i++) {
        least = mics_min_u64(least, all[i].memory_bytes);
        bf16 &= all[i].has_bf16;
        f16 &= all[i].has_f16;
        bench->onednn |= all[i].onednn;
    }
    free(all);
    if (status != MICS_OK)
        return status;
    bench->product_dtype = bf16 ? MICS_BF16 : f16 ? MICS_F16 : MICS_F32;
    bench->free_bytes = on_host ? 0 : least;
    bench->own_memory_bytes = on_host ? own : mics_gpu_memory_limit(own);
    bench->memory_bytes = on_host ? least : mics_gpu_memory_limit(least);
    if (bench->memory_bytes >= 16 * (uint64_t)MIN_BUFFER)
        return MICS_OK;
    if (on_host)
        return mics_err_set(err, MICS_ERR_DEVICE, "the memory that a rank may use is unknown");
    return mics_err_set(err, MICS_ERR_DEVICE,
                        "a GPU has %llu MiB of free memory, of which %llu are kept in reserve: too "
                        "little to measure",
                        (unsigned long long)(least >> 20),
                        (unsigned long long)(MICS_GPU_RESERVE_BYTES >> 20));
}

static enum mics_status allocate(struct mics_bench *bench, uint64_t bytes, struct mics_err *err)
{
    const struct mics_device_ops *ops = bench->device->ops;
    const uint64_t most = bench->device->on_host ? MAX_BUFFER : MAX_GPU_BUFFER;
    const uint64_t usual = mics_min_u64(most, bench->memory_bytes / 16);
    enum mics_status status;

    bench->buffer_bytes = mics_max_u64(mics_round_up(bytes, 4096), usual / 4096 * 4096);
    if (bench->buffer_bytes > bench->memory_bytes / 2)
        return mics_err_set(err, MICS_ERR_INFEASIBLE,
                            "%llu bytes of buffers are more than half of the %llu of a rank",
                            (unsigned long long)bench->buffer_bytes,
                            (unsigned long long)bench->memory_bytes);
    status = ops->alloc(bench->device, bench->buffer_bytes, &bench->buffer, err);
    bench->mirror = bench->buffer;
    if (status == MICS_OK && !bench->device->on_host)
        status = ops->host_alloc(bench->device, bench->buffer_bytes, &bench->mirror, err);
    if (status != MICS_OK)
        return status;
    mics_launch_zero(bench->stream, &(struct mics_args_zero){bench->buffer, bench->buffer_bytes});
    return ops->stream_sync(bench->stream, err);
}

enum mics_status mics_bench_wait(const struct mics_bench *bench, struct mics_err *err)
{
    const struct mics_device_ops *ops = bench->device->ops;
    struct mics_comm *comm = bench->comm;
    enum mics_status status = MICS_OK;
    double checked_s = mics_now_s();

    if (!comm->health || !ops->event_reached)
        return ops->stream_sync(bench->stream, err);
    ops->event_record(bench->idle, bench->stream);
    while (status == MICS_OK && !ops->event_reached(bench->idle)) {
        sched_yield();
        if (mics_now_s() - checked_s < check_interval_s)
            continue;
        status = comm->health->check(comm, err);
        checked_s = mics_now_s();
    }
    if (status == MICS_OK)
        return ops->stream_sync(bench->stream, err);
    comm->health->cancel(comm);
    return status;
}

enum mics_status mics_bench_init(struct mics_bench *bench, struct mics_world *world,
                                 enum mics_device_kind kind, uint64_t buffer_bytes,
                                 struct mics_err *err)
{
    enum mics_status status;

    *bench = (struct mics_bench){
        .world = world,
        .begun_s = mics_now_s(),
        .threads = mics_threads_per_rank(mics_world_host_ranks(world)),
    };
    if (bench->threads == 0)
        return mics_err_set(err, MICS_ERR_ARG, "MICS_THREADS: expected a number of threads");
    const struct idle_gpus gpus = list_idle_gpus(kind);
    status = mics_job_device_open(world, kind, bench->threads, &bench->chosen, err);
    bench->device = bench->chosen.device;
    if (status == MICS_OK)
        status = agree_on_device(bench, &gpus, err);
    free(gpus.list);
    if (status == MICS_OK)
        status = mics_comm_new_for_device(world->comm, bench->device, &bench->comm, err);
    if (status == MICS_OK)
        status = bench->device->ops->stream_open(bench->device, "probe", 1, &bench->stream, err);
    if (status == MICS_OK)
        status = bench->device->ops->stream_open(bench->device, "compute", 0, &bench->compute, err);
    if (status == MICS_OK)
        status = bench->device->ops->event_open(bench->device, &bench->idle, err);
    if (status == MICS_OK)
        status = allocate(bench, buffer_bytes, err);
    if (status != MICS_OK)
        mics_bench_fini(bench);
    return status;
}

void mics_bench_fini(struct mics_bench *bench)
{
    struct mics_device *device = bench->device;

    if (!device)
        return;
    device->ops->stream_close(bench->stream);
    device->ops->stream_close(bench->compute);
    device->ops->event_close(bench->idle);
    if (bench->mirror && bench->mirror != bench->buffer)
        device->ops->host_release(device, bench->mirror);
    if (bench->buffer)
        device->ops->release(device, bench->buffer);
    if (bench->comm)
        mics_comm_free(bench->comm);
    mics_job_device_close(&bench->chosen);
    *bench = (struct mics_bench){0};
}

const char *mics_bench_device_name(const struct mics_bench *bench)
{
    return bench->device->model[0] ? bench->device->model : bench->device->name;
}

double mics_bench_elapsed_s(const struct mics_bench *bench)
{
    return mics_now_s() - bench->begun_s;
}

/* Runs in the stream. */
static void wait_for_release(void *context)
{
    struct mics_stream_hold *hold = context;

    pthread_mutex_lock(&hold->lock);
    while (!hold->released)
        pthread_cond_wait(&hold->changed, &hold->lock);
    pthread_mutex_unlock(&hold->lock);
}

void mics_stream_hold_init(struct mics_stream_hold *hold, struct mics_stream *stream)
{
    pthread_mutex_init(&hold->lock, NULL);
    pthread_cond_init(&hold->changed, NULL);
    hold->released = false;
    mics_launch_call(stream, &(struct mics_args_call){.fn = wait_for_release, .context = hold});
}

void mics_stream_hold_release(struct mics_stream_hold *hold)
{
    pthread_mutex_lock(&hold->lock);
    hold->released = true;
    pthread_cond_signal(&hold->changed);
    pthread_mutex_unlock(&hold->lock);
}

void mics_stream_hold_fini(struct mics_stream_hold *hold)
{
    pthread_cond_destroy(&hold->changed);
    pthread_mutex_destroy(&hold->lock);
}
