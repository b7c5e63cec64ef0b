/* SPDX-License-Identifier: Apache-2.0 */
/* cli_internal.h - what the files of lib/cli share. */
#ifndef MICS_CLI_CLI_INTERNAL_H
#define MICS_CLI_CLI_INTERNAL_H

#include "cli/cli.h"

/* The only global variables of a program. */
struct cli_state {
    const struct cli_program *program;
    int verbosity;
    int rank, world_size;
    bool reports;       /* prints messages whatever its rank */
    bool launched;      /* by mpirun or srun */
    bool exit_recorded; /* with its error */
};

extern struct cli_state cli_state;

/* Does this rank print messages for the job? */
bool cli_reports(void);

/* Write the exit status of the job, and in a second line its error ("": none), to the file that
 * MICS_EXIT_FILE names, if it is set. Launchers may lose the status of a rank. The file only adds
 * to what is printed, so failures are not reported. */
void cli_record_exit(int code, const char *error);

#endif
