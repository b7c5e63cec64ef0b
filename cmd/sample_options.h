/* SPDX-License-Identifier: Apache-2.0 */
/* sample_options.h - the command line of mics-sample. */
#ifndef MICS_CMD_SAMPLE_OPTIONS_H
#define MICS_CMD_SAMPLE_OPTIONS_H

#include "cli/cli.h"
#include "sample/sampler.h"

#define SAMPLE_MAX_PROMPTS 256
#define SAMPLE_MAX_STOPS   64

struct sample_request {
    struct cli_common common;
    const char *model, *tokenizer; /* paths; tokenizer: NULL, or "bytes" */
    const char *end_token;
    const char *prompts[SAMPLE_MAX_PROMPTS];
    size_t prompt_count; /* 0: standard input */
    const char *stops[SAMPLE_MAX_STOPS];
    size_t stop_count;
    struct mics_sampler_options sampler;
    uint64_t max_tokens;
    uint32_t batch;
    uint32_t fill; /* likeliest tokens of each mask; 0: texts are continued */
    bool ids, special, echo, ignore_end, json;
};

extern const struct cli_program sample_program;

/* Parse into `request`, which has the defaults. Returns -1 to continue, else the exit code. */
int sample_parse(int argc, char **argv, struct sample_request *request);

#endif
