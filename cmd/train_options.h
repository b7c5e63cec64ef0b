/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.h - what the command line of mics-train asks for. */
#ifndef MICS_CMD_TRAIN_OPTIONS_H
#define MICS_CMD_TRAIN_OPTIONS_H

#include "cli/cli.h"
#include "train/job.h"

#define TRAIN_MAX_PATTERNS 256

struct train_request {
    struct cli_common common;
    struct mics_job_options job;
    struct mics_settings scratch; /* values are checked here first */
    const char *patterns[TRAIN_MAX_PATTERNS];
    const char *metrics;
    uint64_t log_every, sample; /* log_every 0: by the terminal */
    double temperature, timeout;
};

extern const struct cli_program train_program;

/* Into `request`, which holds the defaults. -1 to go on, else the exit code. */
int train_parse(int argc, char **argv, struct train_request *request);

#endif
