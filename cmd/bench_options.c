/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_options.h"

#include "base/units.h"
#include "measure/expect.h"
#include "topology/topology.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_OP = 256, ID_ALGO, ID_GROUP, ID_DEVICE };

static const struct cli_option options[] = {
    {'b', "minbytes", "SIZE", "smallest size of the whole array (default: 1K)",
     CLI_TO_POSITIVE_BYTES(struct bench_request, bench.min_bytes)},
    {'e', "maxbytes", "SIZE", "largest size (default: 16M)",
     CLI_TO_POSITIVE_BYTES(struct bench_request, bench.max_bytes)},
    {'f', "stepfactor", "X", "factor between sizes (default: 4)",
     CLI_TO_DOUBLE(struct bench_request, bench.factor, 1.01, 1e6)},
    {'i', "stepbytes", "SIZE", "difference between sizes, instead of a factor", CLI_TO_HANDLER},
    {'n', "iters", "N", "timed operations (default: 20)",
     CLI_TO_U32(struct bench_request, bench.iters, 1, MICS_BENCH_MAX_ITERS)},
    {'w', "warmup", "N", "operations before them that are not timed (default: 5)",
     CLI_TO_U32(struct bench_request, bench.warmup, 0, MICS_BENCH_MAX_ITERS)},
    {'c', "check", "0|1", "check the results (default: 1)", CLI_TO_HANDLER},
    {ID_OP, "op", "LIST", "operations: all_gather,reduce_scatter,all_reduce,all_to_all,sync",
     CLI_TO_HANDLER},
    {ID_ALGO, "algo", "LIST", "algorithms: flat,hierarchical,mpi,2-hop,1-hop", CLI_TO_HANDLER},
    {ID_GROUP, "group", "LIST", "groups: world,node,partition,replication,network", CLI_TO_HANDLER},
    {0, "partition", "P", "ranks of a partition group (default: the plan's)",
     CLI_TO_U32(struct bench_request, bench.partition, 1, UINT32_MAX)},
    {0, "segments", "N", "segments of hierarchical collectives (default: 4)",
     CLI_TO_U32(struct bench_request, bench.segments, 1, MICS_BENCH_MAX_SEGMENTS)},
    {0, "micro-steps", "N", "micro-steps of sync (default: 4)",
     CLI_TO_U32(struct bench_request, bench.micro_steps, 1, MICS_BENCH_MAX_MICRO_STEPS)},
    {0, "outliers", "S", "search S seconds for slow ranks and links, 0: skip (default: 1)",
     CLI_TO_DOUBLE(struct bench_request, outliers_s, 0, 3600)},
    {0, "baseline", "FILE", "compare with an earlier run",
     CLI_TO_TEXT(struct bench_request, baseline)},
    {0, "calibrate", NULL, "measure the costs of a topology, and write the topology with them",
     CLI_TO_TRUE(struct bench_request, calibrate)},
    {ID_DEVICE, "device", "auto|host|cuda",
     "whose memory to exchange (default: auto, GPUs if all have one)", CLI_TO_HANDLER},
    {0, "seconds", "S", "with --calibrate, time for the collectives (default: 3)",
     CLI_TO_DOUBLE(struct bench_request, seconds, 0.1, 3600)},
    {0, "import", "FILE[,FILE...]",
     "read the output of nccl-tests, text or JSON, instead of measuring",
     CLI_TO_TEXT(struct bench_request, import)},
    {0, "topology", "TEXT|FILE",
     "the cluster: an instance and its number, such as p5:8, or a document",
     CLI_TO_TEXT(struct bench_request, topology)},
    {0, "expect", NULL, "compare with the bandwidths that the topology should reach",
     CLI_TO_TRUE(struct bench_request, expect)},
    {0, "tolerance", "PERCENT", "with --expect, what may be missing (default: 30)",
     CLI_TO_DOUBLE(struct bench_request, tolerance_percent, 0, 100)},
};

const struct cli_program bench_program = {
    .name = "mics-bench",
    .synopsis = "[options] [PLAN|TOPOLOGY]",
    .summary = "Measure collectives on the ranks of this job.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_OUTPUT | CLI_FORMAT | CLI_HISTORY,
};

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct bench_request *request = context;
    struct mics_bench_request *bench = &request->bench;
    uint64_t check = 0;
    enum mics_status status;

    switch (option->id) {
    case 'i':
        bench->factor = 1;
        return mics_parse_positive_bytes(value, &bench->step_bytes, err);
    case 'c':
        status = mics_parse_u64(value, 0, 1, &check, err);
        bench->check = check;
        return status;
    case ID_OP:
        return mics_bench_parse_set(value, mics_bench_op_at, &bench->ops, err);
    case ID_ALGO:
        return mics_bench_parse_set(value, mics_bench_algo_at, &bench->algos, err);
    case ID_GROUP:
        return mics_bench_parse_set(value, mics_bench_group_at, &bench->groups, err);
    default: /* ID_DEVICE */
        return mics_device_kind_parse(value, &request->device, err);
    }
}

/* The first option that is given although --import measures nothing, or NULL. */
static const char *measuring_option(const struct bench_request *request)
{
    static const char *const names[] = {"minbytes", "maxbytes",  "stepfactor", "stepbytes",
                                        "iters",    "warmup",    "check",      "algo",
                                        "group",    "partition", "segments",   "micro-steps",
                                        "outliers", "device",    "seconds"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cli_given(&request->common, names[i]))
            return names[i];
    return NULL;
}

/* -1: go on; else the exit code. */
static int check_import(const struct bench_request *request, int operands)
{
    const bool has_topology = request->topology || operands > 0;

    if (request->import && (request->calibrate || request->baseline))
        return cli_usage("--import excludes --calibrate and --baseline");
    if (request->calibrate && (request->topology || request->expect))
        return cli_usage("--calibrate excludes --topology and --expect");
    if (request->topology && operands > 0)
        return cli_usage("a topology in --topology and one as an operand");
    if (request->topology && !request->import && !request->expect)
        return cli_usage("--topology goes with --import or --expect");
    if (request->expect && !has_topology)
        return cli_usage("--expect needs a topology: --topology or an operand");
    if (request->tolerance_percent >= 0 && !request->expect)
        return cli_usage("--tolerance goes with --expect");
    return -1;
}

/* -1: go on; else the exit code. */
static int check_files(const struct bench_request *request)
{
    char *logs = strdup(request->import ? request->import : ""), *rest = NULL;
    struct cli_file files[] = {
        {CLI_WRITES, "output", request->common.output},
        {CLI_READS, NULL, request->file},
        {CLI_READS, "baseline", request->baseline},
        {CLI_READS, "topology", request->topology},
        {CLI_READS, "import", NULL},
    };
    const size_t count = sizeof files / sizeof *files;
    struct mics_err err;
    int code;

    if (!logs)
        return cli_report(mics_err_nomem(&err), &err);
    files[count - 1].path = strtok_r(logs, ",", &rest);
    do
        code = cli_check_files(files, count);
    while (code < 0 && (files[count - 1].path = strtok_r(NULL, ",", &rest)));
    free(logs);
    return code;
}

int bench_parse(int argc, char **argv, struct bench_request *request)
{
    struct mics_bench_request *bench = &request->bench;
    int operand, code = cli_parse(argc, argv, &request->common, handle, request, &operand);

    if (code >= 0)
        return code;
    if (argc - operand > 1)
        return cli_usage("'%s': expected one plan or topology only", argv[argc - 1]);
    code = check_import(request, argc - operand);
    if (code >= 0)
        return code;
    if (request->import && measuring_option(request))
        return cli_usage("--import measures nothing: --%s goes without it",
                         measuring_option(request));
    if (request->tolerance_percent < 0)
        request->tolerance_percent = 100 * MICS_EXPECT_TOLERANCE;
    if (bench->min_bytes > bench->max_bytes)
        return cli_usage("--minbytes is more than --maxbytes");
    if (request->calibrate && request->baseline)
        return cli_usage("--calibrate and --baseline exclude each other");
    if (request->calibrate && operand == argc && isatty(STDIN_FILENO))
        return cli_usage("no topology: an operand, or standard input");
    if (request->calibrate && mics_bench_size_count(bench) > MICS_ALGORITHM_POINTS)
        return cli_usage("--calibrate takes %d sizes at most", MICS_ALGORITHM_POINTS);
    if (mics_bench_size_count(bench) > 1000)
        return cli_usage("more than 1000 sizes; --stepfactor or --stepbytes is too small");
    if (operand < argc)
        request->file = argv[operand];
    else if (request->calibrate)
        request->file = "-";
    if (request->outliers_s < 0)
        request->outliers_s = request->calibrate ? 0 : 1;
    request->argc = argc;
    request->argv = argv;
    return check_files(request);
}
