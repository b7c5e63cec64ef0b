/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-probe.c - a topology: measured on the ranks that it runs on, or made from a description.
 *
 * With a description no machine is asked, and under a launcher rank 0 alone does the little there
 * is to do.
 */
#include "base/file.h"
#include "base/units.h"
#include "cli/cli.h"
#include "probe/probe.h"
#include "topology/catalogue.h"
#include "topology/hostfile.h"
#include "topology/nccl_topo.h"
#include "topology/topology_print.h"

#include <string.h>

enum { OPT_LIST = 256, OPT_DEVICE };

struct options {
    struct cli_common common;
    const char *topology, *nccl_topo, *gpu, *catalogue, *hosts;
    uint64_t nodes;   /* 0: not given */
    double card_rate; /* 0: not given */
    bool list, check;
    const char *list_name; /* NULL: all */
    double seconds;
    enum mics_device_kind device;
    const char *hostfile;
    int argc;
    char **argv;
};

static const struct cli_option option_table[] = {
    {0, "topology", "TEXT", "describe a cluster instead of measuring: p4d:16, 'node:4 gpu:8'",
     CLI_TO_TEXT(struct options, topology)},
    {0, "nccl-topo", "FILE",
     "describe machines like the one in FILE, of NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE",
     CLI_TO_TEXT(struct options, nccl_topo)},
    {0, "nodes", "N", "with --nccl-topo, number of these machines (default: 1)",
     CLI_TO_U64(struct options, nodes, 1, MICS_MAX_NODES)},
    {0, "gpu", "NAME", "with --nccl-topo, model of their GPUs (default: by PCI device)",
     CLI_TO_TEXT(struct options, gpu)},
    {0, "card", "RATE",
     "with --nccl-topo, rate of network cards that FILE states no rate of, as 200gbit",
     CLI_TO_RATE(struct options, card_rate)},
    {OPT_LIST, "list", "[NAME]",
     "list the catalogue, or all figures of an instance or GPU, with sources", CLI_TO_HANDLER},
    {0, "catalogue", "FILE", "add the instances and GPUs in FILE to the catalogue",
     CLI_TO_TEXT(struct options, catalogue)},
    {0, "hosts", "FILE|LIST", "print the hosts of a host file with their slots, as mpirun reads it",
     CLI_TO_TEXT(struct options, hosts)},
    {0, "seconds", "S", "measure for about S seconds, 0.1 to 3600 (default: 3)",
     CLI_TO_DOUBLE(struct options, seconds, 0.1, 3600)},
    {0, "check", NULL, "look for slow ranks and links only, and write no topology",
     CLI_TO_TRUE(struct options, check)},
    {OPT_DEVICE, "device", "auto|host|cuda",
     "device to measure (default: auto, GPUs if all ranks have one)", CLI_TO_HANDLER},
    {0, "hostfile", "FILE", "write the hosts without outliers to FILE, for mpirun",
     CLI_TO_TEXT(struct options, hostfile)},
};

static const struct cli_program program = {
    .name = "mics-probe",
    .synopsis = "[options]",
    .summary = "Measure or describe a cluster, and write its topology.",
    .options = option_table,
    .option_count = sizeof option_table / sizeof *option_table,
    .shared = CLI_VERBOSE | CLI_OUTPUT | CLI_FORMAT | CLI_HISTORY,
};

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct options *opt = context;

    if (option->id == OPT_DEVICE)
        return mics_device_kind_parse(value, &opt->device, err);
    opt->list = true;
    opt->list_name = value;
    return MICS_OK;
}

static int parse(int argc, char **argv, struct options *opt)
{
    int operand, code = cli_parse(argc, argv, &opt->common, handle, opt, &operand);

    if (code >= 0)
        return code;
    if (operand < argc)
        return cli_usage("unexpected argument '%s'; a description goes with --topology",
                         argv[operand]);
    if (opt->hosts &&
        (opt->topology || opt->nccl_topo || opt->list || opt->check || opt->catalogue ||
         opt->nodes || opt->gpu || opt->hostfile || opt->common.json || opt->common.tsv))
        return cli_usage("--hosts goes with -o only");
    if (opt->list && (opt->topology || opt->nccl_topo || opt->hostfile || opt->common.json))
        return cli_usage("--list goes with --tsv and -o only");
    if (opt->topology && opt->nccl_topo)
        return cli_usage("--topology and --nccl-topo exclude each other");
    if ((opt->topology || opt->nccl_topo) && opt->hostfile)
        return cli_usage("--hostfile: a description has no hosts");
    if (opt->check && (opt->topology || opt->nccl_topo || opt->list || opt->common.output ||
                       opt->common.json || opt->common.tsv))
        return cli_usage("--check goes with --seconds, --device and --hostfile only");
    if (opt->catalogue && !opt->list && !opt->topology && !opt->nccl_topo)
        return cli_usage("--catalogue goes with --list, --topology and --nccl-topo");
    if (!opt->nccl_topo && (opt->nodes || opt->gpu || opt->card_rate > 0))
        return cli_usage("--%s goes with --nccl-topo", opt->nodes ? "nodes"
                                                       : opt->gpu ? "gpu"
                                                                  : "card");
    opt->argc = argc;
    opt->argv = argv;
    return cli_check_files((const struct cli_file[]){{CLI_WRITES, "output", opt->common.output},
                                                     {CLI_WRITES, "hostfile", opt->hostfile},
                                                     {CLI_READS, "hosts", opt->hosts},
                                                     {CLI_READS, "nccl-topo", opt->nccl_topo},
                                                     {CLI_READS, "catalogue", opt->catalogue}},
                           5);
}

static enum mics_status print_list(FILE *out, const struct options *opt,
                                   const struct mics_catalogue *catalogue, struct mics_err *err)
{
    if (opt->list_name)
        return mics_catalogue_print_instance(out, catalogue, opt->list_name, opt->common.tsv, err);
    return mics_catalogue_print(out, catalogue, opt->common.tsv, err);
}

static enum mics_status list_instances(const struct options *opt,
                                       const struct mics_catalogue *catalogue, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (!opt->common.output || strcmp(opt->common.output, "-") == 0)
        return print_list(stdout, opt, catalogue, err);
    status = mics_file_create(opt->common.output, &writer, err);
    if (status != MICS_OK)
        return status;
    status = print_list(mics_file_stream(writer), opt, catalogue, err);
    if (status == MICS_OK)
        return mics_file_commit(writer, err);
    mics_file_discard(writer);
    return status;
}

static enum mics_status describe_nccl(const struct options *opt,
                                      const struct mics_catalogue *catalogue,
                                      struct mics_topology **out, struct mics_err *err)
{
    const char *path = strcmp(opt->nccl_topo, "-") == 0 ? "standard input" : opt->nccl_topo;
    const struct mics_nccl_request request = {.catalogue = catalogue,
                                              .gpu = opt->gpu,
                                              .nodes = opt->nodes ? (uint32_t)opt->nodes : 1,
                                              .card_rate = opt->card_rate};
    struct mics_nccl_findings found;
    const enum mics_status status =
        mics_topology_from_nccl(opt->nccl_topo, &request, out, &found, err);

    if (status != MICS_OK)
        return status;
    if (found.link[0])
        cli_warn("%s: %s", path, found.link);
    if (found.missing[0])
        cli_warn("%s: the file does not have %s", path, found.missing);
    return MICS_OK;
}

static enum mics_status write_hosts(const struct options *opt, const struct mics_hostfile *file,
                                    struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (!opt->common.output || strcmp(opt->common.output, "-") == 0) {
        mics_hostfile_print(stdout, file);
        return MICS_OK;
    }
    status = mics_file_create(opt->common.output, &writer, err);
    if (status != MICS_OK)
        return status;
    mics_hostfile_print(mics_file_stream(writer), file);
    return mics_file_commit(writer, err);
}

static int show_hosts(const struct options *opt)
{
    struct mics_hostfile file = {0};
    struct mics_err err;
    enum mics_status status = mics_hostfile_read(opt->hosts, &file, &err);

    if (status == MICS_OK)
        status = write_hosts(opt, &file, &err);
    mics_hostfile_fini(&file);
    return cli_report(status, &err);
}

/* What --topology or --nccl-topo describes. */
static enum mics_status describe(const struct options *opt, const struct mics_catalogue *catalogue,
                                 struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    json_t *doc = NULL;
    enum mics_status status;

    if (opt->topology)
        status = mics_topology_parse_in(catalogue, opt->topology, &topology, err);
    else
        status = describe_nccl(opt, catalogue, &topology, err);
    if (status != MICS_OK)
        return status;
    status = mics_topology_to_doc(topology, &doc, err);
    if (status == MICS_OK)
        status =
            cli_write_document(&opt->common, doc, opt->argc, opt->argv, mics_topology_print, err);
    json_decref(doc);
    mics_topology_free(topology);
    return status;
}

/* No machine is measured. An unknown name is a mistake on the command line. */
static int consult_catalogue(const struct options *opt)
{
    struct mics_catalogue *catalogue = NULL;
    struct mics_err err;
    enum mics_status status = mics_catalogue_open_user(opt->catalogue, &catalogue, &err);

    if (status == MICS_OK)
        status = opt->list ? list_instances(opt, catalogue, &err) : describe(opt, catalogue, &err);
    mics_catalogue_close(catalogue);
    if (status == MICS_ERR_ARG && !opt->nccl_topo)
        return cli_usage("--%s: %s", opt->list ? "list" : "topology", err.text);
    return cli_report(status, &err);
}

/* Only rank 0 writes. All ranks have the same outliers and exit with the same status. */
static int write_result(const struct options *opt, json_t *doc)
{
    const json_t *outliers = json_object_get(doc, "outliers");
    enum mics_status status = MICS_OK;
    struct mics_err err;

    if (cli_rank() == 0 && !opt->check)
        status =
            cli_write_document(&opt->common, doc, opt->argc, opt->argv, mics_topology_print, &err);
    if (status != MICS_OK)
        return cli_report(status, &err);
    cli_report_outliers(outliers);
    if (cli_rank() == 0 && opt->hostfile)
        status = mics_hostfile_write(opt->hostfile, doc, &err);
    if (status != MICS_OK)
        return cli_report(status, &err);
    return json_array_size(outliers) > 0 ? CLI_NO_ANSWER : CLI_DONE;
}

static int measure(const struct options *opt)
{
    struct mics_world *world = NULL;
    struct mics_err err;
    json_t *doc = NULL;
    enum mics_status status = cli_check_output(opt->hostfile, &err);
    int code;

    if (status == MICS_OK)
        status = cli_check_output(opt->common.output, &err);
    if (status == MICS_OK)
        status = mics_world_open(&world, &err);
    if (status != MICS_OK)
        return cli_fail_start(status, &err);
    cli_set_rank((int)world->rank, (int)world->size);
    status = (opt->check ? mics_probe_check : mics_probe_run)(world, opt->device, opt->seconds,
                                                              &doc, &err);
    if (status == MICS_OK)
        code = write_result(opt, doc);
    else
        code = cli_fail_job(world->comm, status, &err);
    json_decref(doc);
    mics_world_close(world);
    return code;
}

static int run(const struct options *opt)
{
    if (opt->hosts)
        return cli_rank() == 0 ? show_hosts(opt) : CLI_DONE;
    if (!opt->list && !opt->topology && !opt->nccl_topo)
        return measure(opt);
    return cli_rank() == 0 ? consult_catalogue(opt) : CLI_DONE;
}

int main(int argc, char **argv)
{
    struct options opt = {.seconds = 3};
    int code;

    cli_init(&program);
    code = parse(argc, argv, &opt);
    if (code < 0)
        code = run(&opt);
    return cli_finish(code);
}
