/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - one walk over a program's own and the shared options; not for programs. */
#ifndef MICS_CLI_OPTIONS_H
#define MICS_CLI_OPTIONS_H

#include "cli/cli.h"

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
