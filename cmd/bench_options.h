/* SPDX-License-Identifier: Apache-2.0 */
/* bench_options.h - what the command line of mics-bench asks for. */
#ifndef MICS_CMD_BENCH_OPTIONS_H
#define MICS_CMD_BENCH_OPTIONS_H

#include "cli/cli.h"
#include "measure/measure_run.h"

struct bench_request {
    struct cli_common common;
    struct mics_bench_request bench;
    const char *baseline;
    const char *file; /* NULL: none */
    double outliers_s;
    bool calibrate;
    enum mics_device_kind device;
    double seconds; /* of calibrating */
    int argc;
    char **argv;
};

extern const struct cli_program bench_program;

/* Into `request`, which holds the defaults. -1 to go on, else the exit code. */
int bench_parse(int argc, char **argv, struct bench_request *request);

#endif
