/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - the beginning and the end of a program: standard streams, rank, signals; and the
 * document that it writes.
 */
#include "base/file.h"
#include "cli/cli_internal.h"
#include "doc/doc.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program may replace these handlers (mics-train does so for SIGTERM). */
static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

/* Remove temporary files, then end by the signal as if there were no handler. */
static void die(int number)
{
    mics_temporary_remove_all();
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = die, .sa_flags = SA_RESETHAND};
    struct sigaction old;

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof fatal_signals / sizeof *fatal_signals; i++) {
        const int number = fatal_signals[i];
        const bool ignored = sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
        /* nohup and background jobs ignore signals on purpose, but not SIGPIPE. */
        if (!ignored || number == SIGPIPE)
            sigaction(number, &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* the limit of a file's size is then an error of write(): EFBIG */
}

/* Open standard streams that are closed, so that no file opened later becomes one of them. They are
 * opened in the wrong direction on purpose: using such a stream is an error. */
static void open_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(CLI_FAILED);
}

/* The rank before MPI is initialised. */
static void read_launcher_rank(void)
{
    static const char *const names[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i][0]);
        const char *size = getenv(names[i][1]);
        if (rank && size) {
            cli_set_rank(atoi(rank), atoi(size));
            cli_state.launched = true;
            return;
        }
    }
}

void cli_init(const struct cli_program *program)
{
    cli_state.program = program;
    open_standard_streams();
    setlocale(LC_CTYPE, "");
    read_launcher_rank();
    catch_signals();
}

bool cli_is_terminal(int fd)
{
    return isatty(fd) && !cli_state.launched;
}

bool cli_supports_escapes(int fd)
{
    const char *term = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");

    return cli_is_terminal(fd) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

enum mics_status cli_check_output(const char *path, struct mics_err *err)
{
    if (cli_state.rank != 0 || !path || strcmp(path, "-") == 0)
        return MICS_OK;
    return mics_file_check_output(path, err);
}

/* Outputs of one name are one file even before it exists. */
static int check_pair(const struct cli_file *output, const struct cli_file *other)
{
    const bool is_stdin = other->use == CLI_READS && other->path && strcmp(other->path, "-") == 0;
    const char *path = is_stdin ? "/dev/stdin" : other->path;

    if (!output->path || strcmp(output->path, "-") == 0 || !path || strcmp(path, "-") == 0)
        return -1;
    if (other->use == CLI_WRITES)
        return strcmp(output->path, path) == 0 || mics_file_is_same(output->path, path)
                   ? cli_usage("--%s and --%s name one file", output->option, other->option)
                   : -1;
    if (!mics_file_is_same(output->path, path))
        return -1;
    if (is_stdin || !other->option)
        return cli_usage("--%s would replace its input '%s'", output->option, output->path);
    return cli_usage("--%s would replace '%s', which --%s reads", output->option, path,
                     other->option);
}

int cli_check_files(const struct cli_file *files, size_t count)
{
    int code = -1;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count && files[i].use == CLI_WRITES && code < 0; k++)
            if (files[k].use == CLI_READS || k > i)
                code = check_pair(&files[i], &files[k]);
    return code;
}

void cli_record_exit(int code, const char *error)
{
    const char *path = getenv("MICS_EXIT_FILE");
    struct mics_file_writer *writer = NULL;

    if (!path || !*path || mics_file_create(path, &writer, NULL) != MICS_OK)
        return;
    fprintf(mics_file_stream(writer), "%d\n%s\n", code, error);
    mics_file_publish(writer, NULL); /* without fsync: the launcher may kill this process soon */
    cli_state.exit_recorded = true;
}

/* The exit code: that of a full disk, if standard output cannot be written. */
static int close_stdout(int code)
{
    errno = 0;
    bool failed = ferror(stdout) != 0;
    failed = fflush(stdout) != 0 || failed;
    const int cause = errno ? errno : EIO;
    failed = fclose(stdout) != 0 || failed;
    if (!failed || code != CLI_DONE)
        return code;
    cli_error("standard output: %s", strerror(cause));
    return CLI_FAILED;
}

int cli_finish(int code)
{
    code = close_stdout(code);
    if (cli_state.rank == 0 && !cli_state.exit_recorded)
        cli_record_exit(code, "");
    return code;
}

static enum mics_status write_to(FILE *out, bool is_terminal, const struct cli_common *common,
                                 const json_t *doc, cli_printer *print, struct mics_err *err)
{
    if (print && !common->json && (common->tsv || is_terminal))
        return print(out, doc, common->tsv, err);
    return mics_doc_write(
        out, doc, common->json || is_terminal || common->tsv ? MICS_DOC_JSON : MICS_DOC_MSGPACK,
        err);
}

static enum mics_status write_file(const struct cli_common *common, const json_t *doc,
                                   cli_printer *print, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status = mics_file_create(common->output, &writer, err);

    if (status != MICS_OK)
        return status;
    status = write_to(mics_file_stream(writer), false, common, doc, print, err);
    if (status == MICS_OK)
        return mics_file_commit(writer, err);
    mics_err_prefix(err, "%s", common->output);
    mics_file_discard(writer);
    return status;
}

enum mics_status cli_write_document(const struct cli_common *common, json_t *doc, int argc,
                                    char **argv, cli_printer *print, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!common->no_history)
        status = mics_doc_add_history(doc, cli_state.program->name, argc, argv, err);
    if (status != MICS_OK)
        return status;
    if (common->output && strcmp(common->output, "-") != 0)
        return write_file(common, doc, print, err);
    status = write_to(stdout, cli_is_terminal(STDOUT_FILENO), common, doc, print, err);
    if (status == MICS_OK && fflush(stdout) != 0)
        status = mics_err_set_errno(err, "standard output");
    return status;
}
