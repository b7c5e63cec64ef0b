/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what all programs do alike: options, messages, exit codes, terminal manners.
 *
 * Each program has one table of options; parsing, --help and the shell completion come from it.
 * The shared options (-h -V -v -q -o --json --tsv --no-history) are one table here, and a program
 * names those that it takes.
 */
#ifndef MICS_CLI_CLI_H
#define MICS_CLI_CLI_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,    /* I/O, memory, device, communication */
    CLI_USAGE = 2,     /* the command line */
    CLI_MALFORMED = 3, /* malformed input */
    CLI_NO_ANSWER = 4, /* a valid question without an answer */
    CLI_STOPPED = 75,  /* stopped early, with a checkpoint to resume from */
};

/* One option. `id` is the short letter, or a number from 256 on for a long-only option. */
struct cli_option {
    int id;
    const char *name; /* long name, without dashes */
    const char *arg;  /* metavariable ("FILE", "N", "auto|flat|staged": fixed words are completed),
                           NULL for a flag */
    const char *help; /* one line */
};

/* A command of a program that has several: its first operand. */
struct cli_command {
    const char *name, *help; /* one line */
};

/* Which shared options a program takes, or-ed together. -h and -V always. */
enum cli_shared {
    CLI_VERBOSE = 1, /* -v, -q */
    CLI_OUTPUT = 2,  /* -o FILE */
    CLI_FORMAT = 4,  /* --json, --tsv */
    CLI_HISTORY = 8, /* --no-history */
};

struct cli_program {
    const char *name;     /* "mics-plan" */
    const char *synopsis; /* "[options] [TOPOLOGY]" */
    const char *summary;  /* one line: what it is for */
    const struct cli_option *options;
    size_t option_count;
    unsigned shared;                    /* enum cli_shared */
    const struct cli_command *commands; /* NULL: it does one thing */
    size_t command_count;
};

/* What the shared options said. */
struct cli_common {
    int verbosity;      /* -1 quiet, 0, 1 or more with -v */
    const char *output; /* path, or NULL for standard output */
    bool json, tsv, no_history;
};

/* Called for each option of the program's own table, in order. `value` is NULL for a flag. Returns
 * MICS_OK, or MICS_ERR_ARG with the text: the option's name is put before it. */
typedef enum mics_status cli_handler(void *context, int id, const char *value,
                                     struct mics_err *err);

/* The first call of main. Remembers the program for messages, takes this process's rank from the launcher's
 * environment (cli_set_rank() may correct it), and removes temporary files on SIGINT, SIGTERM, SIGHUP and
 * SIGPIPE before dying of them. Ignores nothing, changes no locale but LC_CTYPE. */
void cli_init(const struct cli_program *program);

/* Parse. Returns -1 to go on (*operands is then the index of the first operand in argv, which getopt
 * may have permuted), or the exit code: after --help, --version, or a mistake (one line and
 * "Try 'mics-plan --help'." on stderr). A hidden option --complete prints what the shell completes: a line
 * "name<TAB>metavariable<TAB>help" for each option, its short letter as a line of its own. */
int cli_parse(int argc, char **argv, struct cli_common *common, cli_handler *handler, void *context,
              int *operands);

/* "mics-plan: <text>" on stderr. Under mpirun only rank 0 says it, the others only at -v, with
 * "[rank R] " before the text. */
void cli_error(const char *fmt, ...) MICS_PRINTF(1, 2);
/* The same unless -q. */
void cli_warn(const char *fmt, ...) MICS_PRINTF(1, 2);
/* The same only at `level` (1: -v, 2: -vv) or above. */
void cli_note(int level, const char *fmt, ...) MICS_PRINTF(2, 3);
/* 0 <= rank < world_size. */
void cli_set_rank(int rank, int world_size);
int cli_rank(void);

/* The exit code of a status (MICS_ERR_ARG is a usage mistake: CLI_USAGE, MICS_ERR_UNSUPPORTED is
 * CLI_FAILED); prints the error's line unless it is MICS_OK. */
int cli_report(enum mics_status status, const struct mics_err *err);
/* A usage mistake found after parsing: prints it, with the Try line; CLI_USAGE. */
int cli_usage(const char *fmt, ...) MICS_PRINTF(1, 2);

/* May standard output (fd 1) / standard error (fd 2) carry control sequences: a terminal, no
 * NO_COLOR, TERM not dumb. */
bool cli_fancy(int fd);

/* Write a document as the user asked: -o FILE or standard output; JSON with --json; on a terminal, or
 * with --tsv, its table by `print` (NULL: JSON). Adds history unless --no-history. */
typedef enum mics_status cli_printer(FILE *out, const json_t *doc, int tsv, struct mics_err *err);
enum mics_status cli_write_document(const struct cli_common *common, json_t *doc, int argc,
                                    char **argv, cli_printer *print, struct mics_err *err);

/* The last call of main: flushes and closes standard output; ENOSPC there turns success into 1. */
int cli_finish(int code);

#endif
