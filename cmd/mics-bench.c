/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-bench - collectives as nccl-tests shows them: flat, hierarchical, and MPI's own.
 *
 * All ranks measure; rank 0 reads the plan or topology, writes the result, and decides the exit
 * code of all. The options are in bench_options.c.
 */
#include "bench_options.h"

#include "comm/agree.h"
#include "doc/doc.h"
#include "measure/calibrate.h"
#include "measure/expect.h"
#include "measure/measure_doc.h"
#include "probe/slow_nodes.h"
#include "topology/topology_print.h"

#include <string.h>

/* One run. Rank 0 alone has the documents. */
struct job {
    const struct bench_request *request;
    struct mics_world *world;
    json_t *baseline;
    json_t *topology;               /* of the operand; with --calibrate to be calibrated */
    struct mics_topology *expected; /* what --expect compares with */
    json_t *outliers;               /* borrowed; the same on all ranks */
};

static const char *name_of(const char *file)
{
    return strcmp(file, "-") == 0 ? "standard input" : file;
}

/* Rank 0 reads the documents; the input is broadcast. */
static enum mics_status share_inputs(struct job *job, struct mics_bench_input *input,
                                     struct mics_err *err)
{
    struct mics_comm *world = job->world->comm;
    enum mics_status status = MICS_OK;

    if (world->rank == 0 && job->request->file)
        status = mics_bench_input_read(job->request->file, job->world, job->request->calibrate,
                                       input, &job->topology, err);
    if (status == MICS_OK && world->rank == 0 && job->request->expect)
        status = bench_open_topology(job->request, job->topology, &job->expected, err);
    if (status == MICS_OK && world->rank == 0 && job->request->baseline)
        status = mics_doc_read_file(job->request->baseline, &job->baseline, err);
    if (status == MICS_OK && job->baseline) {
        status = mics_doc_expect(job->baseline, MICS_BENCH_KIND, MICS_BENCH_VERSION, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", name_of(job->request->baseline));
    }
    status = mics_agree(world, status, err);
    if (status != MICS_OK)
        return status;
    return mics_comm_broadcast_now(world, input, sizeof *input, 0, err);
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

static void report_regressions(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);

        cli_error("%s %s %s of %lld bytes%s is %.1f times slower than before", text_of(entry, "op"),
                  text_of(entry, "group"), text_of(entry, "algo"),
                  (long long)json_integer_value(json_object_get(entry, "bytes")),
                  json_is_true(json_object_get(entry, "in_place")) ? " in place" : "",
                  json_real_value(json_object_get(entry, "times_slower")));
    }
}

/* The document of a run, compared with the earlier one. */
static enum mics_status make_doc(const struct job *job, const struct mics_bench_request *bench,
                                 const struct mics_bench_result *result, json_t **doc,
                                 size_t *slower, size_t *low, struct mics_err *err)
{
    enum mics_status status = mics_bench_to_doc(job->world, bench, result, doc, err);

    if (status == MICS_OK && json_object_set(*doc, "outliers", job->outliers) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK && job->expected)
        status = bench_expect(job->request, job->expected, *doc, low, err);
    if (status != MICS_OK || !job->baseline)
        return status;
    status = mics_bench_compare(*doc, job->baseline, slower, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name_of(job->request->baseline));
    return status;
}

/* On rank 0: write the result, print messages, and choose the exit code. */
static int report(const struct job *job, const struct mics_bench_request *bench,
                  const struct mics_bench_result *result)
{
    const struct bench_request *request = job->request;
    struct mics_err err;
    json_t *doc = NULL;
    size_t slower = 0, low = 0;
    enum mics_status status = MICS_OK;

    if (!request->calibrate)
        status = make_doc(job, bench, result, &doc, &slower, &low, &err);
    if (status == MICS_OK && request->calibrate)
        status = cli_write_document(&request->common, job->topology, request->argc, request->argv,
                                    mics_topology_print, &err);
    else if (status == MICS_OK)
        status = bench_write(request, doc, &err);
    if (status == MICS_OK) {
        cli_report_outliers(job->outliers);
        report_regressions(json_object_get(doc, "regressions"));
    }
    json_decref(doc);
    if (status != MICS_OK)
        return cli_report(status, &err);
    if (total_wrong(result) > 0)
        return CLI_FAILED;
    return slower > 0 || low > 0 || json_array_size(job->outliers) > 0 ? CLI_NO_ANSWER : CLI_DONE;
}

static enum mics_status measure(struct job *job, struct mics_bench_request *request,
                                struct mics_slow_nodes *slow, struct mics_bench_result *result,
                                struct mics_err *err)
{
    struct mics_bench bench;
    uint64_t bytes = 0;
    enum mics_status status = mics_bench_buffer_bytes(request, job->world, &bytes, err);

    if (status != MICS_OK)
        return status;
    status = mics_bench_init(&bench, job->world, job->request->device, bytes, err);
    if (status != MICS_OK)
        return status;
    if (bench.chosen.why_host.text[0])
        cli_note(1, "device: host: %s", bench.chosen.why_host.text);
    if (job->request->outliers_s > 0)
        status = mics_slow_nodes_measure(slow, &bench, job->request->outliers_s, err);
    if (status == MICS_OK && job->request->calibrate)
        status = mics_calibrate(&bench, request, job->request->seconds, job->topology, err);
    else if (status == MICS_OK)
        status = mics_bench_run(&bench, request, job->world->rank == 0 ? note_row : NULL, NULL,
                                result, err);
    mics_bench_fini(&bench);
    return status;
}

/* All ranks exit with rank 0's code. */
static int finish(struct job *job, const struct mics_bench_request *bench,
                  const struct mics_bench_result *result)
{
    struct mics_comm *world = job->world->comm;
    struct mics_err err;
    int code = world->rank == 0 ? report(job, bench, result) : CLI_DONE;
    const enum mics_status status = mics_comm_broadcast_now(world, &code, sizeof code, 0, &err);

    return status == MICS_OK ? code : cli_report(status, &err);
}

static enum mics_status check_world(const struct mics_world *world, struct mics_err *err)
{
    if (world->size == 1)
        return mics_err_set(err, MICS_ERR_ARG,
                            "one rank has nothing to measure; start several with mpirun");
    if (!mics_world_is_even(world))
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "the nodes have different numbers of ranks");
    return MICS_OK;
}

static int run_in(struct job *job)
{
    struct mics_bench_request bench = job->request->bench;
    struct mics_bench_result result = {0};
    struct mics_slow_nodes slow = {0};
    struct mics_bench_input input = {0};
    struct mics_err err;
    int code;
    enum mics_status status = check_world(job->world, &err);

    if (status == MICS_OK)
        status = share_inputs(job, &input, &err);
    if (status == MICS_OK)
        status = mics_bench_request_complete(job->world, &input, &bench, &err);
    if (status != MICS_OK) /* the same on all ranks */
        return cli_report(status, &err);
    status = mics_slow_nodes_init(&slow, job->world, &err);
    job->outliers = slow.list;
    if (status == MICS_OK)
        status = measure(job, &bench, &slow, &result, &err);
    code = status == MICS_OK ? finish(job, &bench, &result)
                             : cli_fail_job(job->world->comm, status, &err);
    mics_bench_result_fini(&result);
    mics_slow_nodes_fini(&slow);
    return code;
}

static int run(const struct bench_request *request)
{
    struct job job = {.request = request};
    struct mics_err err;
    enum mics_status status = cli_check_output(request->common.output, &err);
    int code;

    if (status == MICS_OK)
        status = mics_world_open(&job.world, &err);

    if (status != MICS_OK)
        return cli_fail_start(status, &err);
    cli_set_rank((int)job.world->rank, (int)job.world->size);
    code = run_in(&job);
    json_decref(job.baseline);
    json_decref(job.topology);
    mics_topology_free(job.expected);
    mics_world_close(job.world);
    return code;
}

int main(int argc, char **argv)
{
    struct bench_request request = {
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
        .outliers_s = -1, /* the default depends on --calibrate */
        .seconds = 3,
        .tolerance_percent = -1,
    };
    int code;

    cli_init(&bench_program);
    code = bench_parse(argc, argv, &request);
    if (code < 0)
        code = request.import ? bench_import(&request) : run(&request);
    return cli_finish(code);
}
