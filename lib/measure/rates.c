/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.c - how fast a rank multiplies matrices and moves memory.
 *
 * All ranks work at the same time, as in training. The first run of each kind warms caches and
 * threads and is not counted. Matrices are bf16 where all ranks multiply that in hardware, else
 * fp16 where all multiply that, else fp32. On a host they have one size, small enough for any
 * machine. On a GPU they take 10 ms or fill the buffer, and short products are repeated so that
 * launch overhead does not count.
 */
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/num.h"
#include "comm/agree.h"
#include "device/launch.h"
#include "measure/bench.h"
#include "measure/statistics.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 4096, MIN_RUNS = 3, HOST_MATRIX = 512, GPU_MATRIX = 256, MAX_REPEATS = 100 };

static const double max_product_s = 10e-3, min_run_s = 3e-3;

struct times {
    double usual, best; /* seconds of one product, or copy */
};

/* One kind of operation, `repeats` of them in a row. */
struct workload {
    void (*launch)(const struct mics_bench *bench, const struct workload *work);
    uint32_t matrix; /* rows and columns */
    enum mics_dtype dtype;
    uint32_t repeats;
};

static uint64_t piece_bytes(const struct mics_bench *bench)
{
    return bench->buffer_bytes / 3 / 4096 * 4096;
}

static void launch_product(const struct mics_bench *bench, const struct workload *work)
{
    const uint64_t piece = piece_bytes(bench);
    const uint32_t n = work->matrix;
    char *matrices = bench->buffer;
    const struct mics_args_matmul args = {
        .a = matrices,
        .b = matrices + piece,
        .out = matrices + 2 * piece,
        .m = n,
        .n = n,
        .k = n,
        .lda = n,
        .ldb = n,
        .ldout = n,
        .dtype = work->dtype,
        .out_dtype = work->dtype,
    };

    mics_launch_matmul(bench->compute, &args);
}

static void launch_copy(const struct mics_bench *bench, const struct workload *work)
{
    const uint64_t half = bench->buffer_bytes / 2;
    char *memory = bench->buffer;

    (void)work;
    mics_launch_copy(bench->compute, &(struct mics_args_copy){memory + half, memory, half});
}

static void launch_from_host(const struct mics_bench *bench, const struct workload *work)
{
    (void)work;
    mics_launch_copy(bench->compute,
                     &(struct mics_args_copy){bench->buffer, bench->mirror, bench->buffer_bytes});
}

static void launch_to_host(const struct mics_bench *bench, const struct workload *work)
{
    (void)work;
    mics_launch_copy(bench->compute,
                     &(struct mics_args_copy){bench->mirror, bench->buffer, bench->buffer_bytes});
}

/* One run; *seconds of each operation. */
static enum mics_status time_run(const struct mics_bench *bench, const struct workload *work,
                                 double *seconds, struct mics_err *err)
{
    const double start = mics_now_s();
    enum mics_status status;

    for (uint32_t i = 0; i < work->repeats; i++)
        work->launch(bench, work);
    status = bench->device->ops->stream_sync(bench->compute, err);
    *seconds = (mics_now_s() - start) / work->repeats;
    return status;
}

/* Do the ranks of this machine take turns on its processors? */
static bool takes_turns(const struct mics_bench *bench)
{
    return bench->device->on_host && mics_world_host_ranks(bench->world) > mics_processors();
}

/* Run for `seconds`, MIN_RUNS times at least. The usual time is the median, but where ranks take
 * turns, which few runs contain, the mean. */
static enum mics_status time_runs(const struct mics_bench *bench, const struct workload *work,
                                  double seconds, struct times *out, struct mics_err *err)
{
    double runs[MAX_RUNS], warmup, sum = 0;
    size_t count = 0;
    enum mics_status status = time_run(bench, work, &warmup, err);
    const double begin = mics_now_s();

    while (status == MICS_OK && count < MAX_RUNS &&
           (count < MIN_RUNS || mics_now_s() - begin <= seconds))
        status = time_run(bench, work, &runs[count++], err);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        sum += runs[i];
    out->usual = mics_median(runs, count);
    if (takes_turns(bench))
        out->usual = sum / (double)count;
    out->best = runs[0]; /* mics_median() has sorted them */
    return MICS_OK;
}

/* Enough that a run takes min_run_s, which hides the launch overhead. */
static enum mics_status choose_repeats(const struct mics_bench *bench, struct workload *work,
                                       double *seconds, struct mics_err *err)
{
    enum mics_status status;

    work->repeats = 1;
    status = time_run(bench, work, seconds, err);
    if (status == MICS_OK)
        status = time_run(bench, work, seconds, err);
    if (status == MICS_OK && *seconds < min_run_s)
        work->repeats = (uint32_t)(min_run_s / *seconds) + 1;
    if (work->repeats > MAX_REPEATS)
        work->repeats = MAX_REPEATS;
    return status;
}

static enum mics_status choose_product(const struct mics_bench *bench, struct workload *work,
                                       struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    double seconds = 0;

    *work = (struct workload){launch_product, HOST_MATRIX, bench->product_dtype, 1};
    if (bench->device->on_host)
        return MICS_OK;
    work->matrix = GPU_MATRIX;
    for (;;) {
        const uint64_t next = 2 * (uint64_t)work->matrix;

        status = choose_repeats(bench, work, &seconds, err);
        if (status != MICS_OK || seconds > max_product_s / 8 ||
            next * next * mics_dtype_bytes(work->dtype) > piece_bytes(bench))
            return status;
        work->matrix = (uint32_t)next;
    }
}

static enum mics_status choose_copy(const struct mics_bench *bench, struct workload *work,
                                    struct mics_err *err)
{
    double seconds;

    *work = (struct workload){.launch = launch_copy, .repeats = 1};
    return bench->device->on_host ? MICS_OK : choose_repeats(bench, work, &seconds, err);
}

enum mics_status mics_bench_rates(const struct mics_bench *bench, double seconds,
                                  struct mics_rates *out, struct mics_err *err)
{
    struct mics_comm *comm = bench->world->comm;
    const double bytes = (double)(bench->buffer_bytes / 2) * 2; /* read, and written */
    struct workload product, copy;
    struct times product_s, copy_s;
    enum mics_status status = choose_product(bench, &product, err);

    if (status == MICS_OK)
        status = choose_copy(bench, &copy, err);
    if (status == MICS_OK)
        status = mics_comm_barrier_now(comm, err);
    if (status == MICS_OK)
        status = time_runs(bench, &product, seconds, &product_s, err);
    if (status == MICS_OK)
        status = mics_comm_barrier_now(comm, err);
    if (status == MICS_OK)
        status = time_runs(bench, &copy, seconds, &copy_s, err);
    if (status != MICS_OK)
        return status;
    const double flops = 2.0 * product.matrix * product.matrix * product.matrix;
    const struct mics_rates own = {
        .flops = flops / product_s.usual,
        .best_flops = flops / product_s.best,
        .memory_rate = bytes / copy_s.usual,
        .best_memory_rate = bytes / copy_s.best,
    };
    return mics_comm_all_gather_now(comm, &own, out, sizeof own, err);
}

/* out[world size] */
static enum mics_status time_host_copy(const struct mics_bench *bench, const struct workload *work,
                                       double *out, struct mics_err *err)
{
    struct mics_comm *comm = bench->world->comm;
    struct times times;
    enum mics_status status = mics_comm_barrier_now(comm, err);

    if (status == MICS_OK)
        status = time_runs(bench, work, 0, &times, err);
    if (status != MICS_OK)
        return status;
    const double own = (double)bench->buffer_bytes / times.usual;
    return mics_comm_all_gather_now(comm, &own, out, sizeof own, err);
}

enum mics_status mics_bench_host_copy_rates(const struct mics_bench *bench, double *from_host,
                                            double *to_host, struct mics_err *err)
{
    const struct workload from = {.launch = launch_from_host, .repeats = 1};
    const struct workload to = {.launch = launch_to_host, .repeats = 1};
    enum mics_status status;

    memset(from_host, 0, bench->world->size * sizeof *from_host);
    memset(to_host, 0, bench->world->size * sizeof *to_host);
    if (bench->device->on_host)
        return MICS_OK;
    status = time_host_copy(bench, &from, from_host, err);
    return status == MICS_OK ? time_host_copy(bench, &to, to_host, err) : status;
}

enum mics_status mics_bench_host_copies(const struct mics_bench *bench, double *from_host,
                                        double *to_host, struct mics_err *err)
{
    const uint32_t size = bench->world->size;
    double *rates = calloc(2 * (size_t)size, sizeof *rates);
    enum mics_status status =
        rates ? mics_bench_host_copy_rates(bench, rates, rates + size, err) : mics_err_nomem(err);

    *from_host = *to_host = 0;
    for (uint32_t i = 0; i < size && status == MICS_OK; i++) {
        *from_host = i == 0 || rates[i] < *from_host ? rates[i] : *from_host;
        *to_host = i == 0 || rates[size + i] < *to_host ? rates[size + i] : *to_host;
    }
    free(rates);
    return status;
}
