/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - what the files of lib/cli know of the program that runs; not for programs. */
#ifndef MICS_CLI_CLI_INTERNAL_H
#define MICS_CLI_CLI_INTERNAL_H

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

/* options.h - one walk over a program's own and the shared options; not for programs. */

/* Ids of the shared options without a letter, and of the hidden one: out of the way of the programs'. */
enum cli_shared_id { CLI_ID_JSON = 0x10000, CLI_ID_TSV, CLI_ID_NO_HISTORY, CLI_ID_COMPLETE };

/* Option `index` of the program: its own first, then the shared ones that it takes, NULL after the last. */
const struct cli_option *cli_option_at(const struct cli_program *program, size_t index);

/* Is it one of the program's own? */
bool cli_option_is_own(const struct cli_program *program, const struct cli_option *option);

/* Does the option have a short letter? */
bool cli_option_has_letter(const struct cli_option *option);

void cli_print_help(const struct cli_program *program, FILE *out);
void cli_print_completion(const struct cli_program *program, FILE *out);

#endif
