/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_options.h"

#include "base/units.h"
#include "topology/topology.h"

#include <unistd.h>

enum {
    ID_OP = 256,
    ID_ALGO,
    ID_GROUP,
    ID_PARTITION,
    ID_SEGMENTS,
    ID_MICRO_STEPS,
    ID_OUTLIERS,
    ID_BASELINE,
    ID_CALIBRATE,
    ID_SECONDS,
    ID_DEVICE,
};

static const struct cli_option options[] = {
    {'b', "minbytes", "SIZE", "smallest size of the whole array (default: 1K)"},
    {'e', "maxbytes", "SIZE", "largest size (default: 16M)"},
    {'f', "stepfactor", "X", "factor between sizes (default: 4)"},
    {'i', "stepbytes", "SIZE", "difference between sizes, instead of a factor"},
    {'n', "iters", "N", "timed operations (default: 20)"},
    {'w', "warmup", "N", "operations before them that are not timed (default: 5)"},
    {'c', "check", "0|1", "check the results (default: 1)"},
    {ID_OP, "op", "LIST", "operations: all_gather,reduce_scatter,all_reduce,sync"},
    {ID_ALGO, "algo", "LIST", "algorithms: flat,hierarchical,mpi,2-hop,1-hop"},
    {ID_GROUP, "group", "LIST", "groups: world,node,partition,replication,network"},
    {ID_PARTITION, "partition", "P", "ranks of a partition group (default: the plan's)"},
    {ID_SEGMENTS, "segments", "N", "segments of hierarchical collectives (default: 4)"},
    {ID_MICRO_STEPS, "micro-steps", "N", "micro-steps of sync (default: 4)"},
    {ID_OUTLIERS, "outliers", "S",
     "search S seconds for slow ranks and links, 0: skip (default: 1)"},
    {ID_BASELINE, "baseline", "FILE", "compare with an earlier run"},
    {ID_CALIBRATE, "calibrate", NULL,
     "measure the costs of a topology, and write the topology with them"},
    {ID_DEVICE, "device", "auto|host|cuda",
     "whose memory to exchange (default: auto, GPUs if all have one)"},
    {ID_SECONDS, "seconds", "S", "with --calibrate, time for the collectives (default: 3)"},
};

const struct cli_program bench_program = {
    .name = "mics-bench",
    .synopsis = "[options] [PLAN|TOPOLOGY]",
    .summary = "Measure collectives on the ranks of this job.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_OUTPUT | CLI_FORMAT | CLI_HISTORY,
};

static enum mics_status parse_u32(const char *value, uint32_t min, uint32_t max, uint32_t *out,
                                  struct mics_err *err)
{
    uint64_t number = 0;
    const enum mics_status status = mics_parse_u64(value, min, max, &number, err);

    if (status == MICS_OK)
        *out = (uint32_t)number;
    return status;
}

static enum mics_status handle_set(struct mics_bench_request *bench, int id, const char *value,
                                   struct mics_err *err)
{
    switch (id) {
    case ID_OP:
        return mics_bench_parse_set(value, mics_bench_op_at, &bench->ops, err);
    case ID_ALGO:
        return mics_bench_parse_set(value, mics_bench_algo_at, &bench->algos, err);
    default:
        return mics_bench_parse_set(value, mics_bench_group_at, &bench->groups, err);
    }
}

static enum mics_status handle(void *context, int id, const char *value, struct mics_err *err)
{
    struct bench_request *request = context;
    struct mics_bench_request *bench = &request->bench;
    uint32_t check = 0;
    enum mics_status status = MICS_OK;

    switch (id) {
    case 'b':
        return mics_parse_positive_bytes(value, &bench->min_bytes, err);
    case 'e':
        return mics_parse_positive_bytes(value, &bench->max_bytes, err);
    case 'f':
        return mics_parse_double(value, 1.01, 1e6, &bench->factor, err);
    case 'i':
        bench->factor = 1;
        return mics_parse_positive_bytes(value, &bench->step_bytes, err);
    case 'n':
        return parse_u32(value, 1, MICS_BENCH_MAX_ITERS, &bench->iters, err);
    case 'w':
        return parse_u32(value, 0, MICS_BENCH_MAX_ITERS, &bench->warmup, err);
    case 'c':
        status = parse_u32(value, 0, 1, &check, err);
        bench->check = check;
        return status;
    case ID_PARTITION:
        return parse_u32(value, 1, UINT32_MAX, &bench->partition, err);
    case ID_SEGMENTS:
        return parse_u32(value, 1, MICS_BENCH_MAX_SEGMENTS, &bench->segments, err);
    case ID_MICRO_STEPS:
        return parse_u32(value, 1, MICS_BENCH_MAX_MICRO_STEPS, &bench->micro_steps, err);
    case ID_OUTLIERS:
        return mics_parse_double(value, 0, 3600, &request->outliers_s, err);
    case ID_BASELINE:
        request->baseline = value;
        return MICS_OK;
    case ID_CALIBRATE:
        request->calibrate = true;
        return MICS_OK;
    case ID_DEVICE:
        return mics_device_kind_parse(value, &request->device)
                   ? MICS_OK
                   : mics_err_set(err, MICS_ERR_ARG, "'%s': expected auto, host or cuda", value);
    case ID_SECONDS:
        return mics_parse_double(value, 0.1, 3600, &request->seconds, err);
    default:
        return handle_set(bench, id, value, err);
    }
}

int bench_parse(int argc, char **argv, struct bench_request *request)
{
    struct mics_bench_request *bench = &request->bench;
    int operand, code = cli_parse(argc, argv, &request->common, handle, request, &operand);

    if (code >= 0)
        return code;
    if (argc - operand > 1)
        return cli_usage("'%s': expected one plan or topology only", argv[argc - 1]);
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
    return -1;
}
