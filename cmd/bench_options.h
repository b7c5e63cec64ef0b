/* SPDX-License-Identifier: Apache-2.0 */
/* bench_options.h - what the command line of mics-bench asks for. */
#ifndef MICS_CMD_BENCH_OPTIONS_H
#define MICS_CMD_BENCH_OPTIONS_H

#include "cli/cli.h"
#include "measure/measure_run.h"
#include "topology/topology.h"

struct bench_request {
    struct cli_common common;
    struct mics_bench_request bench;
    const char *baseline;
    const char *file;     /* NULL: none */
    const char *import;   /* logs of nccl-tests; NULL: measure */
    const char *topology; /* a description, or a file; NULL: none */
    bool expect;
    double tolerance_percent; /* below 0 before parsing: the default */
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

/* Import logs instead of measuring; the exit code. */
int bench_import(const struct bench_request *request);

/* The topology that --topology or else the document `doc`, which may be NULL, describes. *out is
 * the caller's, and NULL if there is none. */
enum mics_status bench_open_topology(const struct bench_request *request, json_t *doc,
                                     struct mics_topology **out, struct mics_err *err);

/* With --expect: judge a document, print what is low, and write *low, how many cases are. */
enum mics_status bench_expect(const struct bench_request *request,
                              const struct mics_topology *topology, json_t *doc, size_t *low,
                              struct mics_err *err);

/* Write the document, or its tables. */
enum mics_status bench_write(const struct bench_request *request, json_t *doc,
                             struct mics_err *err);

#endif
