/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - what the files of lib/cli know of the program that runs; not for programs. */
#ifndef MICS_CLI_MESSAGE_H
#define MICS_CLI_MESSAGE_H

#include "cli/cli.h"

/* The program's name and verbosity: the only globals of a program. */
struct cli_state {
    const struct cli_program *program;
    int verbosity;
    int rank, world_size;
};

extern struct cli_state cli_state;

/* May this rank speak for the job? */
bool cli_speaks(void);

#endif
