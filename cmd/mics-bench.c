/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-bench - collectives as nccl-tests shows them: flat, hierarchical, and MPI's own.
 *
 * All ranks measure; rank 0 reads the plan or topology, writes the result, and decides the exit code of all.
 */
#include "base/clock.h"
#include "base/units.h"
#include "ckpt/agree.h"
#include "cli/cli.h"
#include "cluster/bench_doc.h"
#include "cluster/calibrate.h"
#include "cluster/findings.h"
#include "cluster/races.h"
#include "cluster/topology_print.h"
#include "doc/doc.h"
#include "plan/bench_input.h"

#include <string.h>
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
    {'b', "minbytes", "SIZE", "smallest size of the whole array (1K)"},
    {'e', "maxbytes", "SIZE", "largest size (16M)"},
    {'f', "stepfactor", "X", "factor between sizes (4)"},
    {'i', "stepbytes", "SIZE", "distance between sizes, instead of a factor"},
    {'n', "iters", "N", "operations that are timed (20)"},
    {'w', "warmup", "N", "operations before them (5)"},
    {'c', "check", "0|1", "check the results (1)"},
    {ID_OP, "op", "LIST", "of all_gather,reduce_scatter,all_reduce,sync"},
    {ID_ALGO, "algo", "LIST", "of flat,hierarchical,mpi,2-hop,1-hop"},
    {ID_GROUP, "group", "LIST", "of world,node,partition,replication,network"},
    {ID_PARTITION, "partition", "P", "ranks of a partition group (default: the plan's)"},
    {ID_SEGMENTS, "segments", "N", "that hierarchical collectives are cut into (4)"},
    {ID_MICRO_STEPS, "micro-steps", "N", "of a step of sync (4)"},
    {ID_OUTLIERS, "outliers", "S",
     "look for slow ranks and links for about S seconds, 0: do not (1)"},
    {ID_BASELINE, "baseline", "FILE", "compare with an earlier run"},
    {ID_CALIBRATE, "calibrate", NULL, "measure a topology's costs, and write it with them"},
    {ID_DEVICE, "device", "auto|host|cuda",
     "whose memory is exchanged (auto: GPUs where all have one)"},
    {ID_SECONDS, "seconds", "S", "for about S seconds, and as long as the sizes take (3)"},
};

static const struct cli_program program = {
    .name = "mics-bench",
    .synopsis = "[options] [PLAN|TOPOLOGY]",
    .summary = "Measure collectives on the ranks of this job.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE | CLI_OUTPUT | CLI_FORMAT | CLI_HISTORY,
};

struct request {
    struct cli_common common;
    struct mics_bench_request bench;
    const char *baseline;
    const char *file; /* NULL: none */
    double outliers_s;
    bool calibrate;
    enum mics_device_kind device;
    double seconds; /* of calibrating */
    int argc;
    char **argv;
};

/* What rank 0 knows. */
struct desk {
    const struct request *request;
    struct mics_world *world;
    json_t *baseline;
    json_t *topology; /* to be calibrated */
    json_t *outliers; /* of all ranks; borrowed */
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
    struct request *request = context;
    struct mics_bench_request *bench = &request->bench;
    uint32_t check = 0;
    enum mics_status status = MICS_OK;

    switch (id) {
    case 'b':
        return mics_parse_some_bytes(value, &bench->min_bytes, err);
    case 'e':
        return mics_parse_some_bytes(value, &bench->max_bytes, err);
    case 'f':
        return mics_parse_double(value, 1.01, 1e6, &bench->factor, err);
    case 'i':
        bench->factor = 1;
        return mics_parse_some_bytes(value, &bench->step_bytes, err);
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
        return parse_u32(value, 1, MICS_HIER_MAX_SEGMENTS, &bench->segments, err);
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

/* -1 to go on, else the exit code. */
static int parse(int argc, char **argv, struct request *request)
{
    struct mics_bench_request *bench = &request->bench;
    int operand, code = cli_parse(argc, argv, &request->common, handle, request, &operand);

    if (code >= 0)
        return code;
    if (argc - operand > 1)
        return cli_usage("'%s': one plan or topology is enough", argv[argc - 1]);
    if (bench->min_bytes > bench->max_bytes)
        return cli_usage("--minbytes is more than --maxbytes");
    if (request->calibrate && request->baseline)
        return cli_usage("--calibrate and --baseline do not go together");
    if (request->calibrate && operand == argc && isatty(STDIN_FILENO))
        return cli_usage("no topology: an operand, or standard input");
    if (request->calibrate && mics_bench_size_count(bench) > MICS_RACE_POINTS)
        return cli_usage("--calibrate takes %d sizes at most", MICS_RACE_POINTS);
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

static const char *name_of(const char *file)
{
    return strcmp(file, "-") == 0 ? "standard input" : file;
}

/* Rank 0 reads, all know. */
static enum mics_status share_inputs(struct desk *desk, struct mics_bench_input *input,
                                     struct mics_err *err)
{
    struct mics_comm *world = desk->world->comm;
    enum mics_status status = MICS_OK;

    if (world->rank == 0 && desk->request->file)
        status = mics_bench_input_read(desk->request->file, desk->world, desk->request->calibrate,
                                       input, &desk->topology, err);
    if (status == MICS_OK && world->rank == 0 && desk->request->baseline)
        status = mics_doc_read_file(desk->request->baseline, &desk->baseline, err);
    if (status == MICS_OK && desk->baseline) {
        status = mics_doc_expect(desk->baseline, MICS_BENCH_KIND, MICS_BENCH_VERSION, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", name_of(desk->request->baseline));
    }
    status = mics_agree(world, status, err);
    if (status != MICS_OK)
        return status;
    return world->ops->broadcast_now(world, input, sizeof *input, 0, err);
}

static void note_row(void *context, const struct mics_bench_row *row)
{
    (void)context;
    cli_note(1, "%s %s %s %llu bytes %s: %.1f us", mics_bench_op_name(row->op),
             mics_bench_group_name(row->group), mics_bench_algo_name(row->algo),
             (unsigned long long)row->bytes, row->in_place ? "in place" : "out of place",
             row->time_s * 1e6);
}

static uint64_t total_wrong(const struct mics_bench_result *result)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < result->count; i++) {
        const struct mics_bench_row *row = &result->rows[i];

        wrong += row->wrong;
        if (row->wrong > 0)
            cli_error("%s %s %s of %llu bytes: %llu elements are wrong",
                      mics_bench_op_name(row->op), mics_bench_group_name(row->group),
                      mics_bench_algo_name(row->algo), (unsigned long long)row->bytes,
                      (unsigned long long)row->wrong);
    }
    return wrong;
}

static const char *text_of(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

static double times_slower(const json_t *entry)
{
    return json_real_value(json_object_get(entry, "times_slower"));
}

static void say_outliers(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);

        cli_error("%s: %s of %s is %.1f times slower than the median", text_of(entry, "host"),
                  text_of(entry, "what"), text_of(entry, "where"), times_slower(entry));
    }
}

static void say_regressions(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);

        cli_error("%s %s %s of %lld bytes%s is %.1f times slower than before", text_of(entry, "op"),
                  text_of(entry, "group"), text_of(entry, "algo"),
                  (long long)json_integer_value(json_object_get(entry, "bytes")),
                  json_is_true(json_object_get(entry, "in_place")) ? " in place" : "",
                  times_slower(entry));
    }
}

/* The table, unless a document is asked for. */
static enum mics_status write_doc(const struct request *request, json_t *doc, struct mics_err *err)
{
    const struct cli_common *common = &request->common;

    if (common->output || common->json || common->tsv)
        return cli_write_document(common, doc, request->argc, request->argv, mics_bench_print, err);
    return mics_bench_print(stdout, doc, 0, err);
}

/* The document of a run, compared with the earlier one. */
static enum mics_status make_doc(const struct desk *desk, const struct mics_bench_request *bench,
                                 const struct mics_bench_result *result, json_t **doc,
                                 size_t *slower, struct mics_err *err)
{
    enum mics_status status = mics_bench_to_doc(desk->world, bench, result, doc, err);

    if (status == MICS_OK && json_object_set(*doc, "outliers", desk->outliers) != 0)
        status = mics_err_nomem(err);
    if (status != MICS_OK || !desk->baseline)
        return status;
    status = mics_bench_compare(*doc, desk->baseline, slower, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name_of(desk->request->baseline));
    return status;
}

/* On rank 0: write, say what is to be said, and choose the exit code. */
static int report(const struct desk *desk, const struct mics_bench_request *bench,
                  const struct mics_bench_result *result)
{
    const struct request *request = desk->request;
    struct mics_err err;
    json_t *doc = NULL;
    size_t slower = 0;
    enum mics_status status = MICS_OK;

    if (!request->calibrate)
        status = make_doc(desk, bench, result, &doc, &slower, &err);
    if (status == MICS_OK && request->calibrate)
        status = cli_write_document(&request->common, desk->topology, request->argc, request->argv,
                                    mics_topology_print, &err);
    else if (status == MICS_OK)
        status = write_doc(request, doc, &err);
    if (status == MICS_OK) {
        say_outliers(desk->outliers);
        say_regressions(json_object_get(doc, "regressions"));
    }
    json_decref(doc);
    if (status != MICS_OK)
        return cli_report(status, &err);
    if (total_wrong(result) > 0)
        return CLI_FAILED;
    return slower > 0 || json_array_size(desk->outliers) > 0 ? CLI_NO_ANSWER : CLI_DONE;
}

static enum mics_status measure(struct desk *desk, struct mics_bench_request *request,
                                struct mics_outliers *outliers, struct mics_bench_result *result,
                                struct mics_err *err)
{
    struct mics_bench bench;
    uint64_t bytes = 0;
    enum mics_status status = mics_bench_buffer_bytes(request, desk->world, &bytes, err);

    if (status == MICS_OK)
        status = mics_bench_init(&bench, desk->world, desk->request->device, bytes, err);
    if (status != MICS_OK)
        return status;
    if (bench.chosen.why_host.text[0])
        cli_note(1, "device: host, for %s", bench.chosen.why_host.text);
    if (desk->request->outliers_s > 0)
        status = mics_find_slow(&bench, desk->request->outliers_s, outliers, err);
    if (status == MICS_OK && desk->request->calibrate)
        status = mics_calibrate(&bench, request, desk->request->seconds, desk->topology, err);
    else if (status == MICS_OK)
        status = mics_bench_run(&bench, request, desk->world->rank == 0 ? note_row : NULL, NULL,
                                result, err);
    mics_bench_fini(&bench);
    return status;
}

/* All ranks exit with what rank 0 found. */
static int finish(struct desk *desk, const struct mics_bench_request *bench,
                  const struct mics_bench_result *result)
{
    struct mics_comm *world = desk->world->comm;
    struct mics_err err;
    int code = world->rank == 0 ? report(desk, bench, result) : CLI_DONE;
    const enum mics_status status = world->ops->broadcast_now(world, &code, sizeof code, 0, &err);

    return status == MICS_OK ? code : cli_report(status, &err);
}

/* A rank that fails alone must end the others; rank 0 speaks first of what may have happened to all. */
static int fail(struct mics_world *world, enum mics_status status, const struct mics_err *err)
{
    const bool alike = status == MICS_ERR_INFEASIBLE;
    int code;

    if (world->rank != 0 && !alike) {
        mics_sleep_s(0.5);
        cli_set_rank(0, (int)world->size);
    }
    code = cli_report(status, err);
    if (world->size > 1 && !alike)
        world->comm->ops->abort(world->comm, code);
    return code;
}

static enum mics_status check_world(const struct mics_world *world, struct mics_err *err)
{
    if (world->size == 1)
        return mics_err_set(err, MICS_ERR_ARG,
                            "one rank alone has nobody to talk to; start it by mpirun");
    if (!mics_world_is_even(world))
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "the nodes have different numbers of ranks");
    return MICS_OK;
}

static int run_in(struct desk *desk)
{
    struct mics_bench_request bench = desk->request->bench;
    struct mics_bench_result result = {0};
    struct mics_outliers outliers = {0};
    struct mics_bench_input input = {0};
    struct mics_err err;
    int code;
    enum mics_status status = check_world(desk->world, &err);

    if (status == MICS_OK)
        status = share_inputs(desk, &input, &err);
    if (status == MICS_OK)
        status = mics_bench_input_complete(desk->world, &input, &bench, &err);
    if (status != MICS_OK) /* on all ranks alike */
        return cli_report(status, &err);
    status = mics_outliers_init(&outliers, desk->world, &err);
    desk->outliers = outliers.list;
    if (status == MICS_OK)
        status = measure(desk, &bench, &outliers, &result, &err);
    code = status == MICS_OK ? finish(desk, &bench, &result) : fail(desk->world, status, &err);
    mics_bench_result_fini(&result);
    mics_outliers_fini(&outliers);
    return code;
}

static int run(const struct request *request)
{
    struct desk desk = {.request = request};
    struct mics_err err;
    enum mics_status status = mics_world_open(&desk.world, &err);
    int code;

    if (status != MICS_OK)
        return cli_report(status, &err);
    cli_set_rank((int)desk.world->rank, (int)desk.world->size);
    code = run_in(&desk);
    json_decref(desk.baseline);
    json_decref(desk.topology);
    mics_world_close(desk.world);
    return code;
}

int main(int argc, char **argv)
{
    struct request request = {
        .bench = {.ops = (1u << MICS_BENCH_OP_COUNT) - 1,
                  .algos = (1u << MICS_BENCH_ALGO_COUNT) - 1,
                  .min_bytes = 1024,
                  .max_bytes = 16 << 20,
                  .factor = 4,
                  .iters = 20,
                  .warmup = 5,
                  .check = true,
                  .segments = 4,
                  .micro_steps = 4},
        .outliers_s = -1, /* by what is done */
        .seconds = 3,
    };
    int code;

    cli_init(&program);
    code = parse(argc, argv, &request);
    if (code < 0)
        code = run(&request);
    return cli_finish(code);
}
