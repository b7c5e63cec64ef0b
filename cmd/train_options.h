/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.h - the command line of mics-train. */
#ifndef MICS_CMD_TRAIN_OPTIONS_H
#define MICS_CMD_TRAIN_OPTIONS_H

#include "cli/cli.h"
#include "train/report/run_reporter.h"

#define TRAIN_MAX_PATTERNS 256

struct train_request {
    struct cli_common common;
    struct mics_job_options job;
    struct mics_train_settings scratch; /* to check values while parsing */
    const char *patterns[TRAIN_MAX_PATTERNS], *val_patterns[TRAIN_MAX_PATTERNS];
    struct mics_run_reporter_paths paths;
    uint64_t log_every, sample; /* log_every 0: by time */
    double temperature, timeout;
    const char *notice_command; /* NULL: none */
    const char *settings;       /* path of more options; NULL: none */
    json_t *settings_text;      /* their values */
};

extern const struct cli_program train_program;

/* Parse into `request`, which has the defaults. Returns -1 to continue, else the exit code. */
int train_parse(int argc, char **argv, struct train_request *request);

#endif
