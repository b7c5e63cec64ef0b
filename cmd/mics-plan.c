/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-plan - choose how to cut a model over a cluster, and predict memory and step time.
 *
 * A filter: topology in, plan out.
 */
#include "plan_options.h"

#include "base/file.h"
#include "base/units.h"
#include "doc/doc.h"
#include "measure/import.h"
#include "measure/measure_doc.h"
#include "model/config.h"
#include "plan/foreign/foreign_config.h"
#include "plan/memory_ckpt_cost.h"
#include "plan/plan_print.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/trace.h"
#include "plan/search/range.h"
#include "report/plan_check.h"
#include "topology/catalogue.h"
#include "topology/hostfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The losses that the command line asks for. */
static enum mics_status set_losses(const struct plan_request *request, struct mics_model **model,
                                   struct mics_err *err)
{
    const bool given = request->balance.kind != MICS_BALANCE_KINDS;
    struct mics_balance balance = (*model)->config.balance;

    if (!given && request->balance.z_coefficient < 0)
        return MICS_OK;
    if (given) {
        balance.kind = request->balance.kind;
        balance.coefficient = request->balance.coefficient;
    }
    if (request->balance.z_coefficient >= 0)
        balance.z_coefficient = request->balance.z_coefficient;
    const enum mics_status status = mics_model_set_balance(model, &balance, err);
    if (status != MICS_OK)
        mics_err_prefix(err, given ? "--balance-loss" : "--router-z-loss");
    return status;
}

static enum mics_status set_mask_rate(const struct plan_request *request, struct mics_model **model,
                                      struct mics_err *err)
{
    if (request->mask_rate == 0)
        return MICS_OK;
    const enum mics_status status = mics_model_set_mask_rate(model, request->mask_rate, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "--mask-rate");
    return status;
}

static enum mics_status set_capacity(const struct plan_request *request, struct mics_model **model,
                                     struct mics_err *err)
{
    if (request->capacity == 0)
        return MICS_OK;
    const enum mics_status status = mics_model_set_expert_capacity(model, request->capacity, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "--capacity");
    return status;
}

static enum mics_status open_model(const struct plan_request *request, struct mics_model **out,
                                   struct mics_err *err)
{
    const struct mics_model_config *preset = mics_preset_find(request->model);
    struct mics_model_config config;

    if (request->vocab_size == 0)
        return mics_model_open(request->model, out, err);
    if (!preset)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--vocab goes with a model by name (--list-models), not '%s'",
                            request->model);
    config = *preset;
    config.vocab_size = request->vocab_size;
    return mics_model_new(&config, out, err);
}

static enum mics_status describe_topology(const struct plan_request *request,
                                          struct mics_topology **out, struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    enum mics_status status = mics_catalogue_open_user(request->catalogue, &catalogue, err);

    if (status == MICS_OK) {
        status = mics_topology_parse_in(catalogue, request->topology, out, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "--topology");
    }
    mics_catalogue_close(catalogue);
    return status;
}

static enum mics_status open_topology(const struct plan_request *request,
                                      struct mics_topology **out, struct mics_err *err)
{
    json_t *doc = NULL, *topology;
    enum mics_status status;

    if (request->topology)
        return describe_topology(request, out, err);
    status = mics_doc_read_file(request->file, &doc, err);
    if (status != MICS_OK)
        return status;
    topology = doc;
    if (strcmp(json_string_value(json_object_get(doc, "kind")), MICS_BENCH_KIND) == 0)
        topology = mics_bench_topology(doc);
    status = topology ? mics_topology_from_doc(topology, out, err)
                      : mics_err_set(err, MICS_ERR_FORMAT,
                                     "measurements without a topology; mics-bench --import "
                                     "--topology=... adds it");
    json_decref(doc);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s",
                        strcmp(request->file, "-") == 0 ? "standard input" : request->file);
    return status;
}

/* Quoted where a shell needs it. */
static void print_word(const char *word)
{
    const char *const plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";

    if (*word && strspn(word, plain) == strlen(word)) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    putchar('\'');
}

/* Ranks are assigned in node order, as the plan numbers them. */
static void print_launch(const struct plan_request *request, const struct mics_plan *plan)
{
    const uint32_t n = mics_choice_world_size(&plan->choice);
    const uint32_t nodes = mics_choice_nodes(&plan->choice),
                   per_node = mics_choice_per_node(&plan->choice);

    if (strcmp(request->launch, "mpirun") == 0) {
        printf("mpirun -n %u --map-by ppr:%u:node", n, per_node);
        if (request->hostfile) {
            fputs(" --hostfile ", stdout);
            print_word(request->hostfile);
        }
    } else {
        if (request->hostfile) {
            fputs("SLURM_HOSTFILE=", stdout);
            print_word(request->hostfile);
            putchar(' ');
        }
        printf("srun --nodes=%u --ntasks=%u --ntasks-per-node=%u --distribution=%s --mpi=pmix",
               nodes, n, per_node, request->hostfile ? "arbitrary" : "block");
    }
    fputs(" mics-train -p ", stdout);
    print_word(request->common.output ? request->common.output : "plan.mp");
    if (request->settings) {
        fputs(" --settings=", stdout);
        print_word(request->settings);
    }
    fputs(" --data=FILES\n", stdout);
}

static enum mics_status print_schedule(const struct mics_plan *plan, struct mics_err *err)
{
    struct mics_schedule *schedule = NULL;
    enum mics_status status = mics_schedule_new(plan->model, &plan->choice, true, &schedule, err);

    if (status == MICS_OK)
        status = mics_schedule_print(schedule, plan->model, stdout, err);
    mics_schedule_free(schedule);
    return status;
}

static enum mics_status write_trace(const struct mics_plan *plan, const char *path,
                                    struct mics_err *err)
{
    struct mics_file_writer *file = NULL;
    enum mics_status status = mics_file_create(path, &file, err);

    if (status == MICS_OK)
        status = mics_trace_plan(plan, mics_file_stream(file), err);
    if (status == MICS_OK)
        return mics_file_commit(file, err);
    mics_file_discard(file);
    return status;
}

static enum mics_status write_plan(const struct plan_request *request, const struct mics_plan *plan,
                                   int argc, char **argv, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_plan_to_doc(plan, &doc, err);

    if (status == MICS_OK && request->configured &&
        json_object_set(doc, MICS_FOREIGN_CONFIG_KEY, request->configured) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = cli_write_document(&request->common, doc, argc, argv, mics_plan_print, err);
    json_decref(doc);
    return status;
}

static bool uses_srun(const struct plan_request *request)
{
    return request->launch && strcmp(request->launch, "srun") == 0;
}

static enum mics_status write_hostfile(const struct plan_request *request,
                                       const struct mics_plan *plan, struct mics_err *err)
{
    return uses_srun(request) ? mics_hostfile_write_tasks(request->hostfile, plan->topology, err)
                              : mics_hostfile_write(request->hostfile, plan->topology->doc, err);
}

/* --launch, --schedule and --for use standard output; then the plan is written only to a file. */
static enum mics_status write_results(const struct plan_request *request,
                                      const struct mics_plan *plan, int argc, char **argv,
                                      struct mics_err *err)
{
    const bool uses_stdout = request->launch || request->schedule || request->target;
    enum mics_status status = MICS_OK;

    if (!uses_stdout || request->common.output)
        status = write_plan(request, plan, argc, argv, err);
    if (status == MICS_OK && request->hostfile)
        status = write_hostfile(request, plan, err);
    if (status == MICS_OK && request->launch)
        print_launch(request, plan);
    if (status == MICS_OK && request->schedule)
        status = print_schedule(plan, err);
    if (status == MICS_OK && request->target)
        request->target->write(stdout, plan);
    if (status == MICS_OK && request->trace)
        status = write_trace(plan, request->trace, err);
    return status;
}

/* A preset takes precedence over a file or folder of the same name, which may have been meant. */
static void warn_if_path_exists(const char *model)
{
    struct stat info;

    if (mics_model_is_name(model) && stat(model, &info) == 0)
        cli_warn("model '%s': taking the preset; write ./%s for the %s", model, model,
                 S_ISDIR(info.st_mode) ? "folder" : "file");
}

/* Nodes without a rank, and groups that switches separate. */
static void report_nodes(const struct mics_plan *plan)
{
    enum { SHOWN = 16 };
    const json_t *use = json_object_get(plan->topology->doc, "switch_use");
    const json_int_t groups = json_integer_value(json_object_get(use, "groups"));
    const json_int_t whole = json_integer_value(json_object_get(use, "one_leaf"));
    const char *ignored = json_string_value(json_object_get(use, "ignored_file"));
    const size_t count = json_array_size(json_object_get(plan->topology->doc, "left_out"));
    char text[300];

    for (size_t i = 0; i < SHOWN && mics_plan_left_out(plan, i, text, sizeof text); i++)
        cli_warn("left out: %s", text);
    if (count > SHOWN)
        cli_warn("left out: %zu more nodes", count - SHOWN);
    if (ignored)
        cli_warn("%s: ignored for topology.yaml beside it, as by Slurm", ignored);
    if (groups > whole)
        cli_warn("partition groups under more than one leaf switch: %lld of %lld, under up to %lld",
                 (long long)(groups - whole), (long long)groups,
                 (long long)json_integer_value(json_object_get(use, "most_leaves")));
}

/* The cluster with one of its nodes, which are alike. NULL: it cannot be made. */
static struct mics_topology *take_one_node(const struct mics_topology *cluster)
{
    static const char *const of_nodes[] = {"hosts", "bad_nodes", "node_classes", "outliers",
                                           "stragglers"};
    struct mics_topology *one = NULL;
    json_t *doc = NULL;
    struct mics_err err;

    if (mics_topology_to_doc(cluster, &doc, &err) != MICS_OK)
        return NULL;
    json_t *costs = json_object_get(doc, "collectives");
    for (size_t i = json_array_size(costs); i-- > 0;)
        if (json_integer_value(json_object_get(json_array_get(costs, i), "nodes")) > 1)
            json_array_remove(costs, i);
    for (size_t i = 0; i < sizeof of_nodes / sizeof *of_nodes; i++)
        json_object_del(doc, of_nodes[i]);
    if (json_object_set_new(doc, "nodes", json_integer(1)) == 0 &&
        mics_topology_from_doc(doc, &one, &err) == MICS_OK) {
        one->profile = cluster->profile;
        one->tf32 = cluster->tf32;
    }
    json_decref(doc);
    return one;
}

/* Say so where one node alone would be about as fast: a network can cost what the nodes add. */
static void report_one_node(const struct plan_request *request, const struct mics_plan *plan)
{
    enum { NODES = 64 }; /* more are not compared with one */
    struct mics_search_options options = request->search;
    struct mics_plan *alone = NULL;
    struct mics_model *model = NULL;
    struct mics_err err;

    if (plan->topology->nodes < 2 || plan->topology->nodes > NODES)
        return;
    options.global_batch = plan->global_batch;
    options.dtype = plan->choice.dtype;
    options.grad_dtype = plan->choice.grad_dtype;
    options.strategy = NULL;
    struct mics_topology *one = take_one_node(plan->topology);
    if (one && mics_model_new(&plan->model->config, &model, &err) == MICS_OK &&
        mics_plan_search(one, model, &options, &alone, &err) == MICS_OK) {
        const double times = alone->predicted.step_s / plan->predicted.step_s;

        if (times < 1.02)
            cli_warn("one node alone would not be slower: %.2g times the step of %u nodes, whose "
                     "network costs what they add, or more",
                     times, plan->topology->nodes);
        mics_plan_free(alone);
        return;
    }
    mics_model_free(model);
    mics_topology_free(one);
}

/* What the prediction depends on beside the topology. */
static enum mics_status set_profile(const struct plan_request *request,
                                    struct mics_topology *topology, struct mics_err *err)
{
    bool tf32 = false;
    const bool host = mics_topology_is_host(topology);

    if (request->profile == MICS_PROFILE_PYTORCH && host)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--profile: pytorch is known for GPUs only; the ranks of this topology "
                            "compute on hosts");
    if (request->profile != MICS_AUTO)
        topology->profile = (enum mics_profile)request->profile;
    else if (request->target && !host)
        topology->profile = MICS_PROFILE_PYTORCH;
    const enum mics_status status = mics_read_switch("MICS_TF32", &tf32, err);
    if (tf32 && !host)
        topology->tf32 = true;
    return status;
}

/* A plan for memory that the ranks do not have cannot run on them. */
static void warn_if_memory_is_missing(const struct plan_request *request,
                                      const struct mics_plan *plan)
{
    const uint64_t wanted = request->search.memory_limit, present = plan->topology->memory_bytes;
    char texts[2][32];

    if (wanted > present)
        cli_warn("--memory: %s is more than the %s of a rank in the topology",
                 mics_format_bytes(wanted, texts[0], sizeof texts[0]),
                 mics_format_bytes(present, texts[1], sizeof texts[1]));
}

/* The kernels of mics-train need compute capability 7.5. */
static void warn_if_gpu_is_too_old(const struct plan_request *request, const struct mics_plan *plan)
{
    const struct mics_topology *topology = plan->topology;

    if (!request->target && topology->profile != MICS_PROFILE_PYTORCH &&
        strstr(topology->device, "V100"))
        cli_warn("%s has compute capability 7.0, on which mics-train does not run (7.5 is the "
                 "least): for another trainer, plan with --for",
                 topology->device);
}

/* Some plans cannot be in fp16, the only 16-bit type that some GPUs multiply. */
static void warn_if_type_is_missing(const struct mics_plan *plan)
{
    const struct mics_topology *topology = plan->topology;

    if (strcmp(topology->flops_dtype, "f16") == 0 && plan->choice.dtype != MICS_F16)
        cli_warn("%s multiplies 16-bit matrices in fp16, which this plan is not in: planned in %s",
                 topology->device, mics_dtype_name(plan->choice.dtype));
}

/* Blocks that were asked for where nothing is sent in them, or not over a network. */
static void warn_if_not_compressed(const struct plan_request *request, const struct mics_plan *plan)
{
    const struct mics_search_options *asked = &request->search;
    const struct mics_plan_choice *choice = &plan->choice;
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    struct mics_group_position scatter, replica;

    mics_shape_position(shape, MICS_COMM_SCATTER, 0, &scatter);
    mics_shape_position(shape, MICS_COMM_REPLICA, 0, &replica);
    if (mics_dtype_is_blocks(asked->sync_dtype) && !mics_choice_compresses_sync(choice))
        cli_warn("--sync-dtype=%s: has no effect: all ranks are one partition group, so there is "
                 "no second hop",
                 mics_dtype_name(asked->sync_dtype));
    else if (mics_choice_compresses_sync(choice) && scatter.nodes == 1 && replica.nodes == 1)
        cli_warn("--sync-dtype=%s: nothing of the second hop crosses a network: its groups are "
                 "inside a node",
                 mics_dtype_name(asked->sync_dtype));
    if (mics_dtype_is_blocks(asked->gather_dtype) && !mics_dtype_is_blocks(choice->gather_dtype))
        cli_warn("--gather-dtype=%s: has no effect: no gather goes between nodes first and then "
                 "inside nodes",
                 mics_dtype_name(asked->gather_dtype));
}

/* An interval that was asked for, where it does not do what it is for. */
static void report_interval(const struct plan_request *request, const struct mics_plan *plan)
{
    const uint32_t asked = request->search.sync_interval;

    if (asked <= 1)
        return;
    if (!mics_choice_has_second_hop(&plan->choice))
        cli_warn("--sync-interval: this plan has no second hop");
    else if (asked == MICS_AUTO && plan->second_hop_share > MICS_INTERVAL_HIDDEN)
        cli_warn("--sync-interval=auto: %u is the most, and the second hop makes a step %.1f %% "
                 "longer",
                 mics_choice_interval(&plan->choice), 100 * plan->second_hop_share);
}

/* --check: a plan, or none, is the operand. */
static enum mics_status check_run(const struct plan_request *request, struct mics_err *err)
{
    struct mics_plan_check check;
    json_t *doc = NULL;
    enum mics_status status = mics_plan_check_run(request->check, request->file, &check, err);

    if (status != MICS_OK)
        return status;
    if (request->common.json) {
        status = mics_plan_check_to_doc(&check, &doc, err);
        if (status == MICS_OK)
            status = mics_doc_write(stdout, doc, MICS_DOC_JSON, err);
        json_decref(doc);
    } else {
        status = mics_plan_check_print(stdout, &check, request->common.tsv, err);
    }
    mics_plan_check_fini(&check);
    return status;
}

/* Before the search: can its results be written? */
static enum mics_status check_outputs(const struct plan_request *request, struct mics_err *err)
{
    const char *const paths[] = {request->common.output, request->trace, request->hostfile,
                                 request->settings};
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < sizeof paths / sizeof *paths; i++)
        status = cli_check_output(paths[i], err);
    return status;
}

/* Measured: docs/compression.md. */
enum { DEFAULT_SYNC_WARMUP = 100 };

/* The first steps, and the rates of outer steps: as given, or the defaults. */
static void set_outer(struct mics_search_options *search)
{
    if (search->sync_warmup == MICS_AUTO)
        search->sync_warmup = DEFAULT_SYNC_WARMUP;
    if (search->outer_lr < 0)
        search->outer_lr = search->outer_steps > 0 ? 0.7 : 0;
    if (search->outer_momentum < 0)
        search->outer_momentum = search->outer_steps > 0 ? 0.9 : 0;
}

/* The model and the cluster to plan for. */
static enum mics_status open_inputs(struct plan_request *request, struct mics_topology **topology,
                                    struct mics_model **model, struct mics_err *err)
{
    enum mics_status status;

    if (request->like)
        return plan_open_like(request, topology, model, err);
    status = open_model(request, model, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "--model");
        return status;
    }
    warn_if_path_exists(request->model);
    status = set_losses(request, model, err);
    if (status == MICS_OK)
        status = set_mask_rate(request, model, err);
    if (status == MICS_OK)
        status = set_capacity(request, model, err);
    if (status != MICS_OK)
        return status;
    return open_topology(request, topology, err);
}

static enum mics_status run(struct plan_request *request, int argc, char **argv,
                            struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;
    enum mics_status status = open_inputs(request, &topology, &model, err);

    if (status != MICS_OK)
        goto out;
    status = check_outputs(request, err);
    if (status != MICS_OK)
        goto out;
    set_outer(&request->search);
    status = set_profile(request, topology, err);
    if (status != MICS_OK)
        goto out;
    if (request->target)
        status = plan_for_target(request, topology, model, &plan, err);
    else if (request->from)
        status = plan_from_config(request, topology, model, &plan, err);
    else
        status = mics_plan_search_usable(topology, model, &request->search, &request->cluster,
                                         &plan, err);
    if (status != MICS_OK)
        goto out;
    if (!request->target && !request->from) { /* owned by the plan */
        topology = NULL;
        model = NULL;
    }
    warn_if_type_is_missing(plan);
    warn_if_gpu_is_too_old(request, plan);
    report_interval(request, plan);
    warn_if_memory_is_missing(request, plan);
    warn_if_not_compressed(request, plan);
    report_nodes(plan);
    if (!request->like && !request->target && !request->from)
        report_one_node(request, plan);
    plan->training = request->training;
    status = mics_plan_check_memory_ckpt(plan, err);
    if (status == MICS_OK)
        status = mics_plan_predict_range(plan, err);
    if (status != MICS_OK)
        goto out;
    status = write_results(request, plan, argc, argv, err);
out:
    json_decref(request->configured);
    mics_plan_free(plan);
    mics_topology_free(topology);
    mics_model_free(model);
    return status;
}

static int list_models(const struct cli_common *common, int argc, char **argv, int operands)
{
    struct mics_err err;

    if (operands < argc)
        return cli_usage("unexpected argument '%s': --list-models stands alone", argv[operands]);
    if (common->json || common->output)
        return cli_usage("--list-models goes with --tsv only");
    return cli_report(mics_presets_print(stdout, common->tsv, &err), &err);
}

int main(int argc, char **argv)
{
    struct plan_request request;
    struct mics_err err;
    int operands, code;

    cli_init(&plan_program);
    code = plan_parse(argc, argv, &request, &operands);
    if (code < 0 && request.list_models)
        code = list_models(&request.common, argc, argv, operands);
    if (code < 0)
        code = plan_check_usage(&request, argc, argv, operands);
    if (code < 0 && cli_rank() > 0)
        code = CLI_DONE; /* under a launcher one rank plans */
    if (code < 0)
        code = cli_report(
            request.check ? check_run(&request, &err) : run(&request, argc, argv, &err), &err);
    return cli_finish(code);
}
