/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what the programs have in common: options, messages, exit codes, terminals.
 *
 * Each program has one table of options, from which parsing, --help and shell completion come. The
 * shared options (-h -V -v -q -o --json --tsv --no-history) are one table in the library; a program
 * selects those that it takes.
 */
#ifndef MICS_CLI_CLI_H
#define MICS_CLI_CLI_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mics_comm;

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,    /* I/O, memory, device, communication */
    CLI_USAGE = 2,     /* the command line */
    CLI_MALFORMED = 3, /* malformed input */
    CLI_NO_ANSWER = 4, /* a valid question without an answer */
    CLI_STOPPED = 75,  /* stopped early, with a checkpoint to resume from */
};

/* What the value of an option becomes. */
enum cli_type {
    CLI_HANDLED,        /* what the handler makes of it */
    CLI_TRUE,           /* bool, for a flag */
    CLI_TEXT,           /* const char * */
    CLI_U32,            /* min to max */
    CLI_U64,            /* uint64_t or int64_t, min to max */
    CLI_DOUBLE,         /* least to most */
    CLI_POSITIVE_BYTES, /* uint64_t: 64M */
    CLI_POSITIVE_COUNT, /* uint64_t: 300G */
    CLI_RATE,           /* double, bytes per second: 100gbit */
};

/* One option. A row ends with one of the macros below, or is left to the handler. */
struct cli_option {
    int id;           /* the short letter; or for the handler, a number from 256 on; 0: neither */
    const char *name; /* long name, without dashes */
    const char
        *arg; /* metavariable: "FILE", "N", or words to complete: "auto|flat|staged"; "[NAME]": may
                be left out, only with a long option; NULL: a flag */
    const char *help; /* one line */
    enum cli_type type;
    size_t offset; /* of the destination in the context of cli_parse() */
    uint64_t min, max;
    double least, most;
};

/* The destination is `member` of `context`, a type, and must itself be of the type `is`. */
#define CLI_MEMBER(context, member, is)                                                            \
    _Generic(((context *)0)->member, is : offsetof(context, member))
#define CLI_TO_HANDLER               .type = CLI_HANDLED
#define CLI_TO_TRUE(context, member) .type = CLI_TRUE, .offset = CLI_MEMBER(context, member, bool)
#define CLI_TO_TEXT(context, member)                                                               \
    .type = CLI_TEXT, .offset = CLI_MEMBER(context, member, const char *)
#define CLI_TO_U32(context, member, from, to)                                                      \
    .type = CLI_U32, .offset = CLI_MEMBER(context, member, uint32_t), .min = (from), .max = (to)
#define CLI_TO_U64(context, member, from, to)                                                      \
    .type = CLI_U64, .offset = CLI_MEMBER(context, member, uint64_t), .min = (from), .max = (to)
#define CLI_TO_I64(context, member, from, to)                                                      \
    .type = CLI_U64, .offset = CLI_MEMBER(context, member, int64_t), .min = (from), .max = (to)
#define CLI_TO_DOUBLE(context, member, from, to)                                                   \
    .type = CLI_DOUBLE, .offset = CLI_MEMBER(context, member, double), .least = (from), .most = (to)
#define CLI_TO_POSITIVE_BYTES(context, member)                                                     \
    .type = CLI_POSITIVE_BYTES, .offset = CLI_MEMBER(context, member, uint64_t)
#define CLI_TO_POSITIVE_COUNT(context, member)                                                     \
    .type = CLI_POSITIVE_COUNT, .offset = CLI_MEMBER(context, member, uint64_t)
#define CLI_TO_RATE(context, member) .type = CLI_RATE, .offset = CLI_MEMBER(context, member, double)

/* A command: the first operand of a program that has several. */
struct cli_command {
    const char *name, *help; /* one line */
};

/* Groups of shared options, or-ed together. Every program takes -h and -V. */
enum cli_shared {
    CLI_VERBOSE = 1, /* -v, -q */
    CLI_OUTPUT = 2,  /* -o FILE */
    CLI_FORMAT = 4,  /* --json, --tsv */
    CLI_HISTORY = 8, /* --no-history */
};

struct cli_program {
    const char *name;     /* "mics-plan" */
    const char *synopsis; /* "[options] [TOPOLOGY]" */
    const char *summary;  /* one line: its purpose */
    const struct cli_option *options;
    size_t option_count;
    unsigned shared;                    /* enum cli_shared */
    const struct cli_command *commands; /* NULL: none */
    size_t command_count;
};

/* The values of the shared options. */
struct cli_common {
    int verbosity;      /* -1 quiet, 0, 1 or more with -v */
    const char *output; /* path, or NULL for standard output */
    bool json, tsv, no_history;
    uint64_t given; /* a bit for each option of the program's own table that was given */
};

/* Called for each option of the program's own table that has no destination, in order. `value` is
 * NULL for a flag. An error is prefixed with the option's name. */
typedef enum mics_status cli_handler(void *context, const struct cli_option *option,
                                     const char *value, struct mics_err *err);

/* The first call of main. Reads this process's rank from the launcher's environment (cli_set_rank()
 * may correct it), and installs handlers that remove temporary files before SIGINT, SIGTERM, SIGHUP
 * or SIGPIPE end the process. Ignores SIGXFSZ. Sets the locale of LC_CTYPE only. */
void cli_init(const struct cli_program *program);

/* Parse. Returns -1 to continue, with *operands the index of the first operand in argv, which
 * getopt may have permuted; else the exit code, after --help, --version, or a usage error (one line
 * and "Try 'mics-plan --help'." on stderr). The hidden option --complete prints a line
 * "name<TAB>metavariable<TAB>help" for each long and each short option, for shell completion.
 * handler NULL: all options have destinations. */
int cli_parse(int argc, char **argv, struct cli_common *common, cli_handler *handler, void *context,
              int *operands);

/* Was this option of the program's own table given? */
bool cli_given(const struct cli_common *common, const char *name);

/* Then take options from a file: a JSON object of names and values, texts, numbers, and true for
 * flags. Options that were given are skipped, so that the command line wins; those that name files
 * stay on the command line. *keep holds the texts of the values, and belongs to the caller. Returns
 * -1 to continue, else the exit code of an error, which begins with the path. */
int cli_parse_settings(const char *path, struct cli_common *common, cli_handler *handler,
                       void *context, json_t **keep);

/* "mics-plan: <text>" on stderr. In a job of several ranks only rank 0 prints it; with -v the
 * others do too, with "[rank R] " before the text. */
void cli_error(const char *fmt, ...) MICS_PRINTF(1, 2);
/* The same unless -q. */
void cli_warn(const char *fmt, ...) MICS_PRINTF(1, 2);
/* The same only at `level` (1: -v, 2: -vv) or above. */
void cli_note(int level, const char *fmt, ...) MICS_PRINTF(2, 3);
/* 0 <= rank < world_size. */
void cli_set_rank(int rank, int world_size);
int cli_rank(void);
/* From now on this rank prints messages as rank 0 does. */
void cli_enable_reporting(void);

/* Print the error unless `status` is MICS_OK. Returns the exit code: CLI_USAGE for MICS_ERR_ARG,
 * CLI_MALFORMED for MICS_ERR_FORMAT, CLI_NO_ANSWER for MICS_ERR_INFEASIBLE, else CLI_FAILED. */
int cli_report(enum mics_status status, const struct mics_err *err);
/* The same in a job, which a failure of one rank ends, unless the status is MICS_ERR_INFEASIBLE,
 * which all ranks have alike. Rank 0 reports at once what all may have met, which ends the others;
 * another rank waits for that before it reports and ends the job itself. */
int cli_fail_job(struct mics_comm *comm, enum mics_status status, const struct mics_err *err);
/* The same before the job has begun, where ranks mostly fail alike. The launcher ends all ranks
 * when one exits with an error, so the others wait for that. Then they report, too, what one may
 * have met alone: a lack of memory or threads. */
int cli_fail_start(enum mics_status status, const struct mics_err *err);
/* Print each of "outliers", the slow ranks and links of a document, as an error. */
void cli_report_outliers(const json_t *outliers);
/* Print a usage error that was found after parsing, with the "Try" line. Returns CLI_USAGE. */
int cli_usage(const char *fmt, ...) MICS_PRINTF(1, 2);

/* Is `fd` a terminal that a person reads? Under a launcher never: it gives its ranks a
 * pseudo-terminal even if it writes to a pipe. */
bool cli_is_terminal(int fd);

/* The usage error of a command that the program does not have, with a similar one. Returns
 * CLI_USAGE. */
int cli_unknown_command(const char *name);

/* May escape sequences be written to `fd`: is it a terminal, NO_COLOR not set and TERM not
 * "dumb"? */
bool cli_supports_escapes(int fd);

/* A line of progress on standard error, overwritten each time. All zeros but `begin_s`, when the
 * work began (mics_now_s()). */
struct cli_progress {
    double begin_s;
    bool shown;
};

/* Is progress to be shown: standard error is a terminal, and -q was not given? */
bool cli_progress_wanted(void);
/* A mics_progress_callback, after the first half second; `progress` is a struct cli_progress. */
void cli_progress_show(void *progress, uint64_t done, uint64_t total);
/* Remove the line, before something else is printed. */
void cli_progress_clear(void *progress);

/* Write a document to -o FILE or standard output, in the requested form: JSON with --json, its
 * table by `print` (NULL: JSON) on a terminal or with --tsv, else msgpack. Adds to the history
 * unless --no-history was given. */
typedef enum mics_status cli_printer(FILE *out, const json_t *doc, int tsv, struct mics_err *err);
enum mics_status cli_write_document(const struct cli_common *common, json_t *doc, int argc,
                                    char **argv, cli_printer *print, struct mics_err *err);

/* On rank 0, before long work: can its result be written to `path`? NULL and "-" are fine. */
enum mics_status cli_check_output(const char *path, struct mics_err *err);

/* A file that a program reads or writes. */
struct cli_file {
    enum { CLI_READS, CLI_WRITES } use;
    const char *option; /* that names it: "hostfile"; NULL: an operand */
    const char *path;   /* NULL: none; "-": a standard stream; what is read may also be no file */
};

/* Is no file written twice, or read and written, by whatever names? -1: so it is; else the exit
 * code of a usage mistake, which has been printed. */
int cli_check_files(const struct cli_file *files, size_t count);

/* The last call of main: closes standard output. A failure there, such as ENOSPC, turns CLI_DONE
 * into CLI_FAILED. On rank 0, writes the code to the file that MICS_EXIT_FILE names, if it is set;
 * so does cli_report() of an error, with its text, on the rank that prints it. */
int cli_finish(int code);

#endif
