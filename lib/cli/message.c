/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - messages on standard error, and exit codes. */
#include "base/utf8.h"
#include "cli/cli_internal.h"

#include <string.h>

struct cli_state cli_state = {.world_size = 1};

bool cli_reports(void)
{
    return cli_state.rank == 0 || cli_state.reports;
}

void cli_enable_reporting(void)
{
    cli_state.reports = true;
}

void cli_set_rank(int rank, int world_size)
{
    cli_state.rank = rank;
    cli_state.world_size = world_size;
}

int cli_rank(void)
{
    return cli_state.rank;
}

/* Print one line by a single write, so that the lines of several ranks do not mix. What must not
 * reach a terminal, and the command line may contain, becomes '?'. */
MICS_PRINTF(1, 0)
static void print_message(const char *fmt, va_list args)
{
    char line[1024];
    int used = snprintf(line, sizeof line, "%s: ", cli_state.program->name);

    if (!cli_reports())
        used += snprintf(line + used, sizeof line - (size_t)used, "[rank %d] ", cli_state.rank);
    vsnprintf(line + used, sizeof line - (size_t)used - 1, fmt, args);
    mics_utf8_make_line(line);
    strcat(line, "\n");
    fflush(stdout);
    fputs(line, stderr);
}

void cli_error(const char *fmt, ...)
{
    va_list args;

    if (!cli_reports() && cli_state.verbosity < 1)
        return;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
}

void cli_warn(const char *fmt, ...)
{
    va_list args;

    if (cli_state.verbosity < 0 || (!cli_reports() && cli_state.verbosity < 1))
        return;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
}

void cli_note(int level, const char *fmt, ...)
{
    va_list args;

    if (cli_state.verbosity < level)
        return;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
}

int cli_usage(const char *fmt, ...)
{
    va_list args;

    if (cli_reports()) {
        va_start(args, fmt);
        print_message(fmt, args);
        va_end(args);
        fprintf(stderr, "Try '%s --help'.\n", cli_state.program->name);
    }
    return CLI_USAGE;
}

static int exit_code(enum mics_status status)
{
    switch (status) {
    case MICS_OK:
        return CLI_DONE;
    case MICS_ERR_FORMAT:
        return CLI_MALFORMED;
    case MICS_ERR_ARG:
        return CLI_USAGE;
    case MICS_ERR_INFEASIBLE:
        return CLI_NO_ANSWER;
    case MICS_ERR_NOMEM:
    case MICS_ERR_IO:
    case MICS_ERR_UNSUPPORTED:
    case MICS_ERR_DEVICE:
    case MICS_ERR_COMM:
    case MICS_ERR_PEER:
        break;
    }
    return CLI_FAILED;
}

int cli_report(enum mics_status status, const struct mics_err *err)
{
    const int code = exit_code(status);

    if (status != MICS_OK) {
        cli_error("%s", err->text);
        if (cli_reports())
            cli_record_exit(code, err->text);
    }
    return code;
}
