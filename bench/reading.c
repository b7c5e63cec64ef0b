/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reading.c - how long reading a step's tokens takes, with the loader that mics-train has.
 *
 * usage: reading FILE BATCH SEQ STEPS STEP_MS
 *
 * As mics-train does, each step takes its samples, copies them, and begins to read those of the
 * next step, which has STEP_MS for it. Prints the median microseconds of the longer of two times:
 * what the training thread spends on it, and the processor time of all threads; first with the file
 * in the page cache, then with its pages dropped from memory before each step, as if the file were
 * larger than memory.
 */
#include "base/clock.h"
#include "train/batch_reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SEED  1
#define MODES 2

enum mode { CACHED, DROPPED };

struct bench {
    struct mics_data data;
    struct mics_reader reader;
    int32_t *tokens; /* [2 * batch * seq] */
    uint32_t batch;
    uint64_t steps, step_ns;
    int fd;
};

/* Pages that are mapped stay in the cache, so they are unmapped first. */
static void drop(const struct bench *bench)
{
    const struct mics_token_file *file = bench->data.sources[0].files;

    madvise(file->mapping, file->mapped_bytes, MADV_DONTNEED);
    posix_fadvise(bench->fd, 0, 0, POSIX_FADV_DONTNEED);
}

static double processor_s(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static enum mics_status read_step(struct bench *bench, enum mode mode, uint64_t step,
                                  double *seconds, struct mics_err *err)
{
    const struct timespec compute = {.tv_sec = (time_t)(bench->step_ns / 1000000000),
                                     .tv_nsec = (long)(bench->step_ns % 1000000000)};
    int32_t *targets = bench->tokens + (size_t)bench->batch * bench->data.seq;
    double begin, used, waited;
    enum mics_status status;

    if (mode == DROPPED)
        drop(bench);
    begin = mics_now_s();
    used = processor_s();
    status = mics_reader_take(&bench->reader, step * bench->batch, err);
    if (status != MICS_OK)
        return status;
    mics_reader_copy(&bench->reader, 0, bench->tokens, targets);
    mics_reader_ahead(&bench->reader);
    waited = mics_now_s() - begin;
    nanosleep(&compute, NULL);
    used = processor_s() - used;
    *seconds = used > waited ? used : waited;
    return MICS_OK;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static enum mics_status run(struct bench *bench, struct mics_err *err)
{
    double *seconds = malloc(bench->steps * sizeof *seconds);
    enum mics_status status = seconds ? MICS_OK : mics_err_nomem(err);

    for (int mode = 0; status == MICS_OK && mode < MODES; mode++) {
        /* Other samples in each mode; the first step of a mode, which was not read ahead, is not
         * counted. */
        const uint64_t first = (uint64_t)mode * (bench->steps + 1);
        double warm;

        if (mode == CACHED)
            mics_token_file_checksum(bench->data.sources[0].files);
        status = read_step(bench, mode, first, &warm, err);
        for (uint64_t i = 0; status == MICS_OK && i < bench->steps; i++)
            status = read_step(bench, mode, first + 1 + i, &seconds[i], err);
        if (status == MICS_OK) {
            qsort(seconds, bench->steps, sizeof *seconds, by_size);
            printf("%s%.1f", mode ? " " : "", 1e6 * seconds[bench->steps / 2]);
        }
    }
    putchar('\n');
    free(seconds);
    return status;
}

int main(int argc, char **argv)
{
    struct bench bench = {.fd = -1};
    struct mics_err err = {.text = ""};

    if (argc != 6 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1 || atoi(argv[4]) < 1) {
        fprintf(stderr, "usage: reading FILE BATCH SEQ STEPS STEP_MS\n");
        return 2;
    }
    const char *pattern = argv[1];
    const struct mics_data_options options = {.patterns = &pattern,
                                              .pattern_count = 1,
                                              .seq = (uint32_t)atoi(argv[3]),
                                              .vocab_size = INT32_MAX,
                                              .seed = SEED};

    bench.batch = (uint32_t)atoi(argv[2]);
    bench.steps = (uint64_t)atoi(argv[4]);
    bench.step_ns = (uint64_t)(1e6 * atof(argv[5]));
    enum mics_status status = mics_data_open(&options, &bench.data, &err);

    if (status == MICS_OK && bench.data.sources[0].content != MICS_CONTENT_TOKENS)
        status = mics_err_set(&err, MICS_ERR_FORMAT, "'%s' is no file of tokens", argv[1]);
    if (status == MICS_OK) {
        bench.fd = open(bench.data.sources[0].files->path, O_RDONLY | O_CLOEXEC);
        bench.tokens = malloc(2 * (size_t)bench.batch * bench.data.seq * sizeof *bench.tokens);
        const struct mics_reader_options reading = {
            .data = &bench.data, .world_size = 1, .micro_batch = bench.batch, .micro_steps = 1};

        status = bench.fd < 0    ? mics_err_set_errno(&err, "'%s'", argv[1])
                 : !bench.tokens ? mics_err_nomem(&err)
                                 : mics_reader_open(&bench.reader, &reading, &err);
        if (status == MICS_OK)
            status = run(&bench, &err);
    }
    if (status != MICS_OK)
        fprintf(stderr, "reading: %s\n", err.text);
    mics_reader_close(&bench.reader);
    if (bench.fd >= 0)
        close(bench.fd);
    free(bench.tokens);
    mics_data_close(&bench.data);
    return status == MICS_OK ? 0 : 1;
}
