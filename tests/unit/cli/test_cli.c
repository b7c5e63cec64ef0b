/* SPDX-License-Identifier: Apache-2.0 */
/* test_cli.c - each command line runs in a child process with its output in files. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/units.h"
#include "base/version.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

enum { ID_LEVEL = 257, ID_LEVY };

struct request {
    struct cli_common common;
    uint32_t size;
};

static const struct cli_option options[] = {
    {'p', "plan", "FILE", "read the plan from FILE", CLI_TO_HANDLER},
    {0, "size", "N", "a whole number", CLI_TO_U32(struct request, size, 1, 9)},
    {ID_LEVEL, "level", "auto|none", "how far", CLI_TO_HANDLER},
    {ID_LEVY, "levy", NULL, "a flag", CLI_TO_HANDLER},
};

static const struct cli_program program = {
    .name = "mics-try",
    .synopsis = "[options] [FILE]",
    .summary = "Try the command line.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_OUTPUT | CLI_FORMAT | CLI_HISTORY,
};

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    (void)context;
    (void)err;
    printf("[%d %s]", option->id, value ? value : "-");
    return MICS_OK;
}

/* The main of a test program, which prints what it parsed. */
static int try_main(int argc, char **argv)
{
    struct request request = {.size = 0};
    int first = 0;

    cli_init(&program);
    int code = cli_parse(argc, argv, &request.common, handle, &request, &first);
    if (code < 0) {
        const struct cli_common common = request.common;

        printf("%d%s%s%s %s", common.verbosity, common.json ? " json" : "",
               common.tsv ? " tsv" : "", common.no_history ? " no-history" : "",
               common.output ? common.output : "stdout");
        for (; first < argc; first++)
            printf(" <%s>", argv[first]);
        cli_note(1, "a note");
        cli_warn("a warning\nof two lines");
        code = CLI_DONE;
    }
    return cli_finish(code);
}

static char out[4096], errors[4096]; /* standard output and error of the last run */
static char folder[256];

static void load(const char *name, char *text, size_t size)
{
    char path[300];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "r");
    size_t got = in ? fread(text, 1, size - 1, in) : 0;
    text[got] = '\0';
    if (in)
        fclose(in);
}

static void redirect(int fd, const char *name)
{
    char path[300];

    snprintf(path, sizeof path, *name == '/' ? "%.0s%s" : "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, fd) < 0)
        _exit(99);
}

/* Run "mics-try LINE" with standard output to `to` ("out", "/dev/full", NULL: closed). */
static int run_to(const char *line, const char *to)
{
    char copy[256];
    char *argv[32] = {"mics-try"};
    int argc = 1, status = 0;

    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < 31; word = strtok(NULL, " "))
        argv[argc++] = word;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        redirect(2, "err");
        if (to)
            redirect(1, to);
        else
            close(1);
        exit(try_main(argc, argv));
    }
    waitpid(child, &status, 0);
    load("out", out, sizeof out);
    load("err", errors, sizeof errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int run(const char *line)
{
    return run_to(line, "out");
}

static void options_and_operands_may_be_mixed(void)
{
    CHECK_INT(run("a -p x b --level=none --levy c -- -d"), 0);
    CHECK_STR(out, "[112 x][257 none][258 -]0 stdout <a> <b> <c> <-d>");
}

static void shared_options_are_parsed(void)
{
    CHECK_INT(run("-vv --json --no-history -o file"), 0);
    CHECK_STR(out, "2 json no-history file");
    CHECK(strstr(errors, "mics-try: a note\n"));
    CHECK_INT(run("--tsv -q -"), 0);
    CHECK_STR(out, "-1 tsv stdout <->");
    CHECK_STR(errors, "");
}

static void a_message_stays_one_line(void)
{
    CHECK_INT(run(""), 0);
    CHECK_STR(errors, "mics-try: a warning?of two lines\n");
}

static void check_mistake(const char *line, const char *message)
{
    char want[300];

    snprintf(want, sizeof want, "mics-try: %s\nTry 'mics-try --help'.\n", message);
    CHECK_INT(run(line), CLI_USAGE);
    CHECK_STR(errors, want);
    CHECK_STR(out, "");
}

static void a_usage_error_is_one_line_and_a_hint(void)
{
    check_mistake("--nonsense", "unknown option '--nonsense'");
    check_mistake("a --nonsense=3 b", "unknown option '--nonsense'");
    check_mistake("-x", "unknown option '-x'");
    check_mistake("-vxq", "unknown option '-x'");
    check_mistake("--paln", "unknown option '--paln'; did you mean --plan?");
    check_mistake("--plan", "--plan: needs a value, FILE");
    check_mistake("-v -p", "--plan: needs a value, FILE");
    check_mistake("--levy=3", "--levy: takes no value");
    check_mistake("--lev", "ambiguous option '--lev'");
    check_mistake("--size=10", "--size: '10': must be from 1 to 9");
    check_mistake("--json --tsv", "--json and --tsv exclude each other");
}

static void help_names_every_option_on_standard_output(void)
{
    CHECK_INT(run("--help"), 0);
    CHECK(strstr(out, "Usage: mics-try [options] [FILE]\nTry the command line.\n"));
    CHECK(strstr(out, "  -p, --plan=FILE"));
    CHECK(strstr(out, "      --level=auto|none  how far\n"));
    CHECK(strstr(out, "  -o, --output=FILE"));
    CHECK(strstr(out, "      --no-history"));
    CHECK(!strstr(out, "complete"));
    CHECK_STR(errors, "");
}

static void the_version_is_one_line(void)
{
    CHECK_INT(run("-V"), 0);
    CHECK_STR(out, "mics-try (mics) " MICS_VERSION "\n");
}

static void completion_gives_words_and_metavariables(void)
{
    CHECK_INT(run("--complete"), 0);
    CHECK(strstr(out, "--plan\tFILE\tread the plan from FILE\n-p\tFILE\t"));
    CHECK(strstr(out, "--level\tauto|none\thow far\n"));
    CHECK(strstr(out, "--levy\t\ta flag\n"));
}

static void only_rank_0_prints(void)
{
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_INT(run("--nonsense"), CLI_USAGE);
    CHECK_STR(errors, "");
    CHECK_INT(run("--help"), 0);
    CHECK_STR(out, "");
    CHECK_INT(run("-v"), 0);
    CHECK(strstr(errors, "mics-try: [rank 1] a note\n"));
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void output_that_cannot_be_written_is_an_error(void)
{
    CHECK_INT(run_to("-q", "/dev/full"), CLI_FAILED);
    CHECK_STR(errors, "mics-try: standard output: No space left on device\n");
    CHECK_INT(run_to("-q", NULL), CLI_FAILED);
    CHECK_STR(errors, "mics-try: standard output: Bad file descriptor\n");
}

static void a_signal_removes_temporary_files(void)
{
    char path[300], scratch[340];
    int status = 0;

    snprintf(path, sizeof path, "%s/doc", folder);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        struct mics_file_writer *writer = NULL;
        cli_init(&program);
        if (mics_file_create(path, &writer, NULL) == MICS_OK)
            raise(SIGINT);
        _exit(0);
    }
    waitpid(child, &status, 0);
    snprintf(scratch, sizeof scratch, "%s.tmp.%ld", path, (long)child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    CHECK(access(scratch, F_OK) != 0);
}

static void every_status_has_its_exit_code(void)
{
    const struct mics_err err = {"x"};

    fflush(stdout);
    const int keep = dup(2);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    cli_init(&program);
    CHECK_INT(cli_report(MICS_OK, &err), 0);
    CHECK_INT(cli_report(MICS_ERR_NOMEM, &err), 1);
    CHECK_INT(cli_report(MICS_ERR_IO, &err), 1);
    CHECK_INT(cli_report(MICS_ERR_FORMAT, &err), 3);
    CHECK_INT(cli_report(MICS_ERR_ARG, &err), 2);
    CHECK_INT(cli_report(MICS_ERR_COMM, &err), 1);
    CHECK_INT(cli_report(MICS_ERR_INFEASIBLE, &err), 4);
    dup2(keep, 2);
    close(keep);
    close(null);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/mics-test-cli.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(options_and_operands_may_be_mixed);
    TAP_RUN(shared_options_are_parsed);
    TAP_RUN(a_message_stays_one_line);
    TAP_RUN(a_usage_error_is_one_line_and_a_hint);
    TAP_RUN(help_names_every_option_on_standard_output);
    TAP_RUN(the_version_is_one_line);
    TAP_RUN(completion_gives_words_and_metavariables);
    TAP_RUN(only_rank_0_prints);
    TAP_RUN(output_that_cannot_be_written_is_an_error);
    TAP_RUN(a_signal_removes_temporary_files);
    TAP_RUN(every_status_has_its_exit_code);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
