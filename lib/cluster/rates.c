/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.c - how fast a rank multiplies matrices and moves memory.
 *
 * All ranks work at the same time, because they will. The first run of each warms caches and threads
 * and is not counted.
 */
#include "base/clock.h"
#include "base/num.h"
#include "cluster/bench.h"
#include "cluster/stats.h"
#include "machine/launch.h"

enum { MAX_RUNS = 64, MIN_RUNS = 3, MATRIX = 512 };

struct times {
    double median, best; /* seconds */
};

typedef void launcher(const struct mics_bench *bench);

static void launch_product(const struct mics_bench *bench)
{
    const uint64_t piece = bench->buffer_bytes / 3 / 4096 * 4096 / sizeof(float);
    float *matrices = bench->buffer;
    const struct mics_op_matmul args = {
        .a = matrices,
        .b = matrices + piece,
        .out = matrices + 2 * piece,
        .m = MATRIX,
        .n = MATRIX,
        .k = MATRIX,
        .lda = MATRIX,
        .ldb = MATRIX,
        .ldout = MATRIX,
    };

    mics_launch_matmul(bench->stream, &args);
}

static void launch_copy(const struct mics_bench *bench)
{
    const uint64_t half = bench->buffer_bytes / 2;
    char *memory = bench->buffer;

    mics_launch_copy(bench->stream, &(struct mics_op_copy){memory + half, memory, half});
}

/* Run until `seconds` are over, MIN_RUNS at least. */
static enum mics_status time_runs(const struct mics_bench *bench, launcher *launch, double seconds,
                                  struct times *out, struct mics_err *err)
{
    const struct mics_device_ops *ops = bench->device->ops;
    double runs[MAX_RUNS];
    const double begin = mics_now_s();
    size_t count = 0;

    for (int i = -1; i < MAX_RUNS; i++) {
        const double start = mics_now_s();
        enum mics_status status;

        if (count >= MIN_RUNS && start - begin > seconds)
            break;
        launch(bench);
        status = ops->stream_sync(bench->stream, err);
        if (status != MICS_OK)
            return status;
        if (i >= 0)
            runs[count++] = mics_now_s() - start;
    }
    out->median = mics_median(runs, count);
    out->best = runs[0]; /* mics_median() has sorted them */
    return MICS_OK;
}

enum mics_status mics_bench_rates(const struct mics_bench *bench, double seconds,
                                  struct mics_rates *out, struct mics_err *err)
{
    struct mics_comm *comm = bench->world->comm;
    const double flops = 2.0 * MATRIX * MATRIX * MATRIX;
    const double bytes = (double)(bench->buffer_bytes / 2) * 2; /* read, and written */
    struct times product, copy;
    enum mics_status status = comm->ops->barrier_now(comm, err);

    if (status == MICS_OK)
        status = time_runs(bench, launch_product, seconds, &product, err);
    if (status == MICS_OK)
        status = comm->ops->barrier_now(comm, err);
    if (status == MICS_OK)
        status = time_runs(bench, launch_copy, seconds, &copy, err);
    if (status != MICS_OK)
        return status;
    const struct mics_rates own = {
        .flops = flops / product.median,
        .best_flops = flops / product.best,
        .memory_rate = bytes / copy.median,
        .best_memory_rate = bytes / copy.best,
    };
    return comm->ops->all_gather_now(comm, &own, out, sizeof own, err);
}
