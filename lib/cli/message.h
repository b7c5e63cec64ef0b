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
    bool launched; /* by mpirun or srun */
};

extern struct cli_state cli_state;

/* May this rank speak for the job? */
bool cli_speaks(void);

/* Does a person read what is written to fd? A launcher gives its ranks a terminal of its own and passes on
 * what comes there, to a pipe as well: under one it is taken for a file. */
bool cli_is_terminal(int fd);

#endif
