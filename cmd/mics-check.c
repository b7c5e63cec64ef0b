/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-check - is this cluster good, and which nodes are not?
 *
 * With hosts, or in a job of Slurm, it starts itself on all nodes by mics-run; started by a
 * launcher, it is one rank of the check. Standard output gets the page for people, -o FILE the
 * document.
 */
#include "base/file.h"
#include "cli/cli.h"
#include "comm/world.h"
#include "doc/doc.h"
#include "probe/check.h"
#include "probe/check_collectives.h"
#include "probe/check_cost.h"
#include "topology/catalogue.h"
#include "topology/hostfile.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPT_DEVICE = 256 };
/* Rank 0, which reports, gives up before the others: the first that does ends the job. */
enum { OTHERS_DELAY_S = 10 };

struct options {
    struct cli_common common;
    const char *hosts, *hostfile, *baseline, *plan, *expect;
    bool exclude, facts, quick;
    enum mics_device_kind device;
    uint32_t timeout_s;
    int argc;
    char **argv;
};

static const struct cli_option option_table[] = {
    {0, "hosts", "FILE|LIST", "hosts to check, as the operand: a host file, or gpu[01-16]",
     CLI_TO_TEXT(struct options, hosts)},
    {0, "quick", NULL, "measure for a fifth of the time", CLI_TO_TRUE(struct options, quick)},
    {0, "facts", NULL, "compare what the nodes say about themselves, and measure nothing",
     CLI_TO_TRUE(struct options, facts)},
    {OPT_DEVICE, "device", "auto|host|cuda",
     "device to measure (default: auto, GPUs if all ranks have one)", CLI_TO_HANDLER},
    {0, "timeout", "S", "give up after S seconds, also to start (default: 600)",
     CLI_TO_U32(struct options, timeout_s, 1, 86400)},
    {0, "baseline", "FILE", "compare with an earlier check of the same hosts, too",
     CLI_TO_TEXT(struct options, baseline)},
    {0, "expect", "TOPOLOGY", "compare rates with what p4d:4, or a topology's file, should reach",
     CLI_TO_TEXT(struct options, expect)},
    {'p', "plan", "FILE", "say what each fault costs the training of this plan",
     CLI_TO_TEXT(struct options, plan)},
    {0, "exclude", NULL, "print only the hosts to leave out, as srun --exclude takes them",
     CLI_TO_TRUE(struct options, exclude)},
    {0, "hostfile", "FILE", "write the good hosts to FILE, for mpirun",
     CLI_TO_TEXT(struct options, hostfile)},
};

static const struct cli_program program = {
    .name = "mics-check",
    .synopsis = "[options] [HOSTS]",
    .summary = "Check the nodes of a cluster, and name those to leave out.",
    .options = option_table,
    .option_count = sizeof option_table / sizeof *option_table,
    .shared = CLI_VERBOSE | CLI_OUTPUT | CLI_FORMAT | CLI_HISTORY,
};

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct options *opt = context;

    (void)option; /* --device */
    return mics_device_kind_parse(value, &opt->device, err);
}

static int parse(int argc, char **argv, struct options *opt)
{
    int operand, code = cli_parse(argc, argv, &opt->common, handle, opt, &operand);

    if (code >= 0)
        return code;
    if (operand + 1 < argc)
        return cli_usage("unexpected argument '%s'; several hosts are one list: a,b",
                         argv[operand + 1]);
    if (operand < argc && opt->hosts)
        return cli_usage("--hosts and '%s' exclude each other", argv[operand]);
    if (operand < argc)
        opt->hosts = argv[operand];
    if (opt->hosts && !*opt->hosts)
        return cli_usage("the name of the host file is empty");
    if (opt->exclude && (opt->common.json || opt->common.tsv))
        return cli_usage("--exclude prints a list, and goes with neither --json nor --tsv");
    if (opt->exclude && opt->common.output && strcmp(opt->common.output, "-") == 0)
        return cli_usage("--exclude prints a list, and does not go with a document on standard "
                         "output");
    if (opt->facts && opt->quick)
        return cli_usage("--facts and --quick exclude each other");
    if (opt->facts && opt->plan)
        return cli_usage("--facts measures nothing, and --plan needs what was measured");
    if (opt->facts && opt->expect)
        return cli_usage("--facts measures nothing, and --expect needs what was measured");
    opt->argc = argc;
    opt->argv = argv;
    return cli_check_files((const struct cli_file[]){{CLI_WRITES, "output", opt->common.output},
                                                     {CLI_WRITES, "hostfile", opt->hostfile},
                                                     {CLI_READS, NULL, opt->hosts},
                                                     {CLI_READS, "baseline", opt->baseline},
                                                     {CLI_READS, "expect", opt->expect},
                                                     {CLI_READS, "plan", opt->plan}},
                           6);
}

/* mics-run beside this program, else in PATH; `self` becomes this program's own path. */
static enum mics_status find_programs(char self[MICS_PATH_MAX], char launcher[MICS_PATH_MAX],
                                      struct mics_err *err)
{
    const ssize_t length = readlink("/proc/self/exe", self, MICS_PATH_MAX - 1);
    char folder[MICS_PATH_MAX];
    enum mics_status status;

    if (length <= 0 || length >= MICS_PATH_MAX - 1)
        return mics_err_set(err, MICS_ERR_IO, "/proc/self/exe cannot be read");
    self[length] = '\0';
    mics_path_parent(self, folder);
    status = mics_path_format(launcher, err, "%s/mics-run", folder);
    if (status == MICS_OK && access(launcher, X_OK) != 0)
        strcpy(launcher, "mics-run");
    return status;
}

/* Become mics-run, which starts this program with the same arguments on all hosts that answer. */
static int launch(const struct options *opt)
{
    char self[MICS_PATH_MAX], launcher[MICS_PATH_MAX], limit[32], *hosts = NULL, **words;
    struct mics_err err;
    const enum mics_status status = find_programs(self, launcher, &err);
    int count = 0;

    if (status != MICS_OK)
        return cli_report(status, &err);
    words = calloc((size_t)opt->argc + 8, sizeof *words);
    if (opt->hosts && (hosts = malloc(strlen(opt->hosts) + 16)))
        sprintf(hosts, "--hostfile=%s", opt->hosts);
    if (!words || (opt->hosts && !hosts))
        return cli_report(mics_err_nomem(&err), &err);
    snprintf(limit, sizeof limit, "--limit=%u", opt->timeout_s);
    words[count++] = launcher;
    words[count++] = "--quiet";
    words[count++] = limit;
    if (hosts) {
        words[count++] = "--available";
        words[count++] = hosts;
    }
    words[count++] = "--";
    words[count++] = self;
    for (int i = 1; i < opt->argc; i++)
        words[count++] = opt->argv[i];
    execvp(launcher, words);
    mics_err_set(&err, MICS_ERR_IO, "%s cannot be started: %s", launcher, strerror(errno));
    free(hosts);
    free(words);
    return cli_report(MICS_ERR_IO, &err);
}

static const char *text_of(const json_t *finding, const char *key)
{
    return json_string_value(json_object_get(finding, key));
}

/* Each finding as a message, where standard output has the list of hosts. */
static void report(const json_t *doc)
{
    const json_t *list = json_object_get(doc, "findings");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);
        const char *host = text_of(finding, "host"), *where = text_of(finding, "where");

        cli_warn("%s: %s%s%s: %s", host ? host : "cluster", text_of(finding, "what"),
                 where ? " of " : "", where ? where : "", text_of(finding, "found"));
    }
}

/* On rank 0. The page is also printed if the document goes to a file. */
static enum mics_status print(const struct options *opt, json_t *doc, struct mics_err *err)
{
    const struct cli_common *common = &opt->common;
    const bool to_file = common->output && strcmp(common->output, "-") != 0;
    enum mics_status status = MICS_OK;

    if (common->output || common->json)
        status = cli_write_document(common, doc, opt->argc, opt->argv, mics_check_print, err);
    if (status != MICS_OK)
        return status;
    if (opt->exclude) {
        report(doc);
        mics_check_print_excluded(stdout, doc);
    } else if (to_file ? common->verbosity >= 0 : !common->output && !common->json) {
        status = mics_check_print(stdout, doc, !to_file && common->tsv, err);
    }
    if (status == MICS_OK && opt->hostfile)
        status = mics_hostfile_write(opt->hostfile, doc, err);
    return status;
}

/* MPI waits for ever for a node that it cannot connect to. Calls only what a signal handler may. */
static void give_up(int signal)
{
    static const char text[] =
        "mics-check: no result within --timeout; a node does not communicate\n";

    (void)signal;
    if (cli_rank() == 0 && write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(CLI_FAILED);
    _exit(CLI_FAILED);
}

/* What rank 0 compares with. */
struct references {
    json_t *baseline;
    struct mics_plan *plan;
    struct mics_topology *expected;
};

static enum mics_status read_references(const struct options *opt, struct references *out,
                                        struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (cli_rank() != 0)
        return MICS_OK;
    if (opt->baseline)
        status = mics_check_read(opt->baseline, &out->baseline, err);
    if (status == MICS_OK && opt->plan)
        status = mics_plan_read_file(opt->plan, &out->plan, err);
    if (status == MICS_OK && opt->expect) {
        status = mics_topology_open(opt->expect, &out->expected, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "--expect");
    }
    return status;
}

static void free_references(struct references *references)
{
    json_decref(references->baseline);
    mics_plan_free(references->plan);
    mics_topology_free(references->expected);
}

/* Findings by comparison, and prices. */
static enum mics_status compare(const struct options *opt, const struct references *with,
                                json_t *doc, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (with->expected) {
        status = mics_check_expect(doc, with->expected, opt->expect, err);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(err, "--expect");
    }
    if (status == MICS_OK && with->baseline) {
        status = mics_check_compare(doc, with->baseline, err);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(err, "--baseline");
    }
    if (status == MICS_OK && with->plan)
        status = mics_check_add_costs(doc, with->plan, err);
    return status;
}

static int check(const struct options *opt)
{
    const enum mics_check_extent extent = opt->facts   ? MICS_CHECK_FACTS
                                          : opt->quick ? MICS_CHECK_QUICK
                                                       : MICS_CHECK_WHOLE;
    struct references references = {0};
    struct mics_world *world = NULL;
    struct mics_err err;
    json_t *doc = NULL;
    enum mics_status status = cli_check_output(opt->hostfile, &err);
    int code = CLI_DONE;

    if (status == MICS_OK)
        status = cli_check_output(opt->common.output, &err);
    if (status == MICS_OK)
        status = read_references(opt, &references, &err);
    signal(SIGALRM, give_up);
    alarm(opt->timeout_s + (cli_rank() == 0 ? 0 : OTHERS_DELAY_S));
    if (status == MICS_OK)
        status = mics_world_open(&world, &err);
    if (status != MICS_OK) {
        free_references(&references);
        return cli_fail_start(status, &err);
    }
    cli_set_rank((int)world->rank, (int)world->size);
    status = mics_check_run(world, extent, opt->device, &doc, &err);
    if (status == MICS_OK)
        status = compare(opt, &references, doc, &err);
    if (status != MICS_OK)
        code = cli_fail_job(world->comm, status, &err);
    alarm(0);
    if (status == MICS_OK && cli_rank() == 0)
        code = cli_report(print(opt, doc, &err), &err);
    if (code == CLI_DONE && !mics_check_is_good(doc))
        code = CLI_NO_ANSWER;
    json_decref(doc);
    free_references(&references);
    mics_world_close(world);
    return code;
}

static int start(const struct options *opt)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    struct mics_err err;

    if (mics_comm_is_launched() || !(opt->hosts || getenv("SLURM_JOB_ID")))
        return check(opt);
    if (!tasks || atoi(tasks) < 2)
        return launch(opt);
    /* Each task would start the whole check. */
    mics_err_set(&err, MICS_ERR_ARG,
                 "the %d tasks of this step of Slurm do not know each other: "
                 "use 'srun --mpi=pmix', or no srun",
                 atoi(tasks));
    return cli_report(MICS_ERR_ARG, &err);
}

int main(int argc, char **argv)
{
    struct options opt = {.timeout_s = 600};
    int code;

    cli_init(&program);
    code = parse(argc, argv, &opt);
    if (code < 0)
        code = start(&opt);
    return cli_finish(code);
}
