/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-plan - choose how to cut a model over a cluster, and predict memory and step time.
 *
 * A filter: topology in, plan out.
 */
#include "plan_like.h"

#include "base/file.h"
#include "base/units.h"
#include "cli/cli.h"
#include "doc/doc.h"
#include "measure/import.h"
#include "measure/measure_doc.h"
#include "model/config.h"
#include "plan/memory_ckpt_cost.h"
#include "plan/plan_print.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/trace.h"
#include "plan/search/search.h"
#include "plan/usable_nodes.h"
#include "report/check.h"
#include "topology/catalogue.h"
#include "topology/hostfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ID_MEMORY = 256,
    ID_RECOMPUTE,
    ID_OPTIMIZER,
    ID_HIERARCHICAL,
    ID_DTYPE,
    ID_GRAD_DTYPE,
    ID_SYNC_DTYPE,
    ID_SYNC_ROUNDING,
    ID_GATHER_DTYPE,
    ID_SYNC_INTERVAL,
    ID_NO_CLIP,
    ID_LAUNCH,
    ID_PROFILE,
    ID_PRICE,
};

struct request {
    struct cli_common common;
    struct mics_search_options search;
    struct mics_cluster_options cluster;
    const char *model, *topology, *catalogue, *launch, *file, *trace, *hostfile, *check, *like;
    struct mics_training training;
    uint64_t memory_every, memory_copies;
    double outer_lr, outer_momentum; /* < 0: the default */
    uint32_t vocab_size;             /* 0: the model's */
    uint32_t like_nodes;             /* 0: those of `like` */
    bool schedule, list_models;
    uint32_t profile; /* enum mics_profile; MICS_AUTO: the topology's */
};

static const struct cli_option options[] = {
    {0, "model", "MODEL", "name (gpt2-nano, gpt2, ...), config.json, or its folder; required",
     CLI_TO_TEXT(struct request, model)},
    {0, "list-models", NULL, "list the models by name", CLI_TO_TRUE(struct request, list_models)},
    {0, "vocab", "N", "tokens of a model by name (default: those of the released model)",
     CLI_TO_U32(struct request, vocab_size, 1, MICS_MAX_VOCAB)},
    {0, "topology", "TEXT", "plan for this cluster: p4d.24xlarge:16 or 'node:4 gpu:8 ...'",
     CLI_TO_TEXT(struct request, topology)},
    {0, "catalogue", "FILE", "with --topology, add the instances and GPUs in FILE",
     CLI_TO_TEXT(struct request, catalogue)},
    {0, "global-batch", "N", "sequences per step, over all ranks (default: one per rank)",
     CLI_TO_U64(struct request, search.global_batch, 1, (uint64_t)1 << 40)},
    {0, "micro-batch", "N", "sequences per rank and micro-step (default: the fastest divisor)",
     CLI_TO_U32(struct request, search.micro_batch, 1, INT32_MAX)},
    {0, "seq", "N", "tokens per sequence (default: all positions of the model)",
     CLI_TO_U32(struct request, search.seq, 1, INT32_MAX)},
    {ID_MEMORY, "memory", "SIZE", "memory per rank (default: that of the topology)",
     CLI_TO_HANDLER},
    {0, "strategy", "auto|ddp|zero1|zero2|zero3|mics",
     "how state is sharded; mics:P: in groups of P ranks; P,G,O: groups of parameters, gradients, "
     "optimizer state (default: auto)",
     CLI_TO_TEXT(struct request, search.strategy)},
    {ID_RECOMPUTE, "recompute", "auto|none|selective|full",
     "what the backward pass recomputes (default: auto)", CLI_TO_HANDLER},
    {ID_OPTIMIZER, "optimizer", MICS_OPTIMIZER_NAMES, "optimizer (default: adamw)", CLI_TO_HANDLER},
    {0, "prefetch", "N", "units gathered ahead (default: the fastest number that fits)",
     CLI_TO_U32(struct request, search.prefetch, 0, 65535)},
    {0, "segments", "N",
     "segments in which large units are exchanged (default: the fastest of 1, 2, 4)",
     CLI_TO_U32(struct request, search.segments, 1, 64)},
    {0, "coalesce", "N", "units exchanged together, 1 to 8 (default: the fastest of 1, 2, 4, 8)",
     CLI_TO_U32(struct request, search.coalesce, 1, MICS_COALESCE_MAX)},
    {ID_HIERARCHICAL, "hierarchical", "auto|on|off",
     "exchanges of groups that span nodes in two hops (default: auto)", CLI_TO_HANDLER},
    {ID_DTYPE, "dtype", "f32|bf16",
     "parameters and activations (default: bf16 if the FLOP/s are bf16)", CLI_TO_HANDLER},
    {ID_GRAD_DTYPE, "grad-dtype", "bf16|f32",
     "gradients in communication (default: that of --dtype)", CLI_TO_HANDLER},
    {ID_SYNC_DTYPE, "sync-dtype", "exact|int8|int4|int4,int4|auto",
     "gradients between replicas, and their sums (int4: sums in int8) "
     "(default: exact, as --grad-dtype says)",
     CLI_TO_HANDLER},
    {ID_SYNC_ROUNDING, "sync-rounding", "nearest|stochastic",
     "with --sync-dtype, how gradients are rounded (default: nearest)", CLI_TO_HANDLER},
    {ID_GATHER_DTYPE, "gather-dtype", "exact|int8",
     "parameters between nodes, in gathers in two hops (default: exact, as --dtype says)",
     CLI_TO_HANDLER},
    {ID_SYNC_INTERVAL, "sync-interval", "N|auto",
     "units take turns, each sends its second hop in every N-th step, 1 to 64; auto: the fewest "
     "steps that hide it (default: 1)",
     CLI_TO_HANDLER},
    {ID_NO_CLIP, "no-clip", NULL,
     "do not clip gradients, so that updates need not wait for the norm", CLI_TO_HANDLER},
    {0, "outer-steps", "H",
     "train replicas on their own, and let them meet after every H-th step (default: never)",
     CLI_TO_U32(struct request, search.outer_steps, 1, MICS_OUTER_STEPS_MAX)},
    {0, "outer-lr", "RATE", "with --outer-steps, rate of the outer step (default: 0.7)",
     CLI_TO_DOUBLE(struct request, outer_lr, 1e-6, MICS_OUTER_LR_MAX)},
    {0, "outer-momentum", "M", "with --outer-steps, its Nesterov momentum (default: 0.9)",
     CLI_TO_DOUBLE(struct request, outer_momentum, 0, 0.9999)},
    {0, "like", "PLAN", "instead of --model and a topology: what this plan trains, and where",
     CLI_TO_TEXT(struct request, like)},
    {0, "nodes", "N", "with --like, nodes of that cluster (default: as many)",
     CLI_TO_U32(struct request, like_nodes, 1, MICS_MAX_NODES)},
    {ID_LAUNCH, "launch", "mpirun|srun", "print the command that runs the plan", CLI_TO_HANDLER},
    {0, "schedule", NULL, "print the operations of one step of the plan",
     CLI_TO_TRUE(struct request, schedule)},
    {0, "trace", "FILE", "write the predicted timeline of a step, for Perfetto",
     CLI_TO_TEXT(struct request, trace)},
    {0, "hosts", "FILE|LIST", "hosts of the nodes, as 'n[01-16,20]' or a line for each",
     CLI_TO_TEXT(struct request, cluster.hosts)},
    {0, "switches", "FILE",
     "order the hosts by the switches of Slurm's topology.yaml or topology.conf",
     CLI_TO_TEXT(struct request, cluster.switches)},
    {0, "switch-topology", "NAME",
     "with --switches, which one of topology.yaml (default: the cluster's)",
     CLI_TO_TEXT(struct request, cluster.switch_topology)},
    {0, "all-nodes", NULL, "leave out no node, however slow",
     CLI_TO_TRUE(struct request, cluster.all_nodes)},
    {0, "hostfile", "FILE", "write the hosts of the ranks, in order, for mpirun or srun",
     CLI_TO_TEXT(struct request, hostfile)},
    {ID_PROFILE, "profile", "mics|pytorch",
     "predict this trainer's kernels, or eager PyTorch's (default: mics)", CLI_TO_HANDLER},
    {0, "tokens", "N", "tokens to train on (300G): print days and GPU-hours",
     CLI_TO_POSITIVE_COUNT(struct request, training.tokens)},
    {ID_PRICE, "price", "PRICE", "with --tokens, of a node-hour (21.96, 21.96USD): print the price",
     CLI_TO_HANDLER},
    {0, "memory-every", "N",
     "keep states in the memory of the nodes, so that losing one costs at most N steps "
     "(default: 0, never)",
     CLI_TO_U64(struct request, memory_every, 0, UINT32_MAX)},
    {0, "memory-copies", "N", "with --memory-every, nodes that have each part of it (default: 2)",
     CLI_TO_U64(struct request, memory_copies, 1, MICS_MEMORY_COPIES_MAX)},
    {0, "check", "PATH",
     "compare the plan with a measured run, its folder or metrics; the operand is the plan",
     CLI_TO_TEXT(struct request, check)},
};

static const struct cli_program program = {
    .name = "mics-plan",
    .synopsis = "--model=MODEL [options] [TOPOLOGY]",
    .summary =
        "Choose partition groups for a model on a cluster, and predict memory and step time.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_OUTPUT | CLI_FORMAT | CLI_VERBOSE | CLI_HISTORY,
};

/* "21.96", "21.96USD", "USD 21.96", "$21.96": a positive number with a currency before or after. */
static enum mics_status parse_price(const char *value, struct mics_training *out,
                                    struct mics_err *err)
{
    const size_t before = strcspn(value, "0123456789");
    const size_t digits = strspn(value + before, "0123456789.");
    const char *const after = value + before + digits;
    const char *currency = before > 0 ? value : after;
    size_t length = before > 0 ? before : strlen(after);
    char number[64];
    json_t *text;

    for (; length > 0 && *currency == ' '; length--)
        currency++;
    for (; length > 0 && currency[length - 1] == ' '; length--)
        ;
    text = json_stringn(currency, length); /* NULL: not UTF-8 */
    if (!text || digits == 0 || digits >= sizeof number || (before > 0 && *after) ||
        length >= sizeof out->currency || strpbrk(after, "0123456789.-") ||
        memchr(value, '-', before) || memchr(value, '.', before)) {
        json_decref(text);
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected a price such as 21.96 or 21.96USD",
                            value);
    }
    json_decref(text);
    memcpy(number, value + before, digits);
    number[digits] = '\0';
    if (mics_parse_double(number, 1e-6, 1e12, &out->node_hour_price, NULL) != MICS_OK)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected a price from 1e-6 to 1e12", value);
    memcpy(out->currency, currency, length);
    out->currency[length] = '\0';
    return MICS_OK;
}

/* *out: the index of `value` in words. */
static enum mics_status parse_word(const char *value, const char *const words[2], uint32_t *out,
                                   struct mics_err *err)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected %s or %s", value, words[0], words[1]);
}

/* UP or UP,DOWN. */
static enum mics_status parse_sync_dtype(const char *value, struct mics_search_options *out,
                                         struct mics_err *err)
{
    static const struct {
        const char *word;
        enum mics_dtype up, down;
    } formats[] = {{"exact", MICS_F32, MICS_F32},       {"int8", MICS_INT8, MICS_INT8},
                   {"int8,int8", MICS_INT8, MICS_INT8}, {"int4", MICS_INT4, MICS_INT8},
                   {"int4,int8", MICS_INT4, MICS_INT8}, {"int4,int4", MICS_INT4, MICS_INT4}};

    out->sync_auto = strcmp(value, "auto") == 0;
    if (out->sync_auto)
        return MICS_OK;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(value, formats[i].word) == 0) {
            out->sync_dtype = formats[i].up;
            out->sync_down_dtype = formats[i].down;
            return MICS_OK;
        }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected exact, int8, int4, int4,int4 or auto",
                        value);
}

static enum mics_status parse_recompute(const char *value, uint32_t *out, struct mics_err *err)
{
    enum mics_recompute level = MICS_RECOMPUTE_NONE;

    if (strcmp(value, "auto") != 0 && !mics_recompute_parse(value, &level))
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected auto, none, selective or full",
                            value);
    *out = strcmp(value, "auto") == 0 ? MICS_AUTO : (uint32_t)level;
    return MICS_OK;
}

static enum mics_status parse_hierarchical(const char *value, enum mics_hierarchy *out,
                                           struct mics_err *err)
{
    static const char *const words[] = {
        [MICS_HIERARCHY_AUTO] = "auto", [MICS_HIERARCHY_ON] = "on", [MICS_HIERARCHY_OFF] = "off"};

    for (int i = MICS_HIERARCHY_AUTO; i <= MICS_HIERARCHY_OFF; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = (enum mics_hierarchy)i;
            return MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected auto, on or off", value);
}

static enum mics_status parse_interval(const char *value, uint32_t *out, struct mics_err *err)
{
    uint64_t steps = 0;

    if (strcmp(value, "auto") == 0) {
        *out = MICS_AUTO;
        return MICS_OK;
    }
    if (mics_parse_u64(value, 1, MICS_INTERVAL_MAX, &steps, NULL) != MICS_OK)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected auto, or steps from 1 to %d", value,
                            MICS_INTERVAL_MAX);
    *out = (uint32_t)steps;
    return MICS_OK;
}

/* A number alone is of bytes, which hardly anybody means here. */
static enum mics_status parse_memory(const char *value, uint64_t *bytes, struct mics_err *err)
{
    if (strlen(value) < 6 && value[strspn(value, "0123456789")] == '\0' && *value > '0')
        return mics_err_set(err, MICS_ERR_ARG, "'%s' means %s byte%s; did you mean %sG?", value,
                            value, strcmp(value, "1") == 0 ? "" : "s", value);
    return mics_parse_positive_bytes(value, bytes, err);
}

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    static const char *const launchers[] = {"mpirun", "srun"};
    static const char *const dtypes[] = {"f32", "bf16"};
    static const char *const profiles[] = {"mics", "pytorch"};
    static const char *const roundings[] = {"nearest", "stochastic"};
    static const char *const gathers[] = {"exact", "int8"};
    struct request *request = context;
    struct mics_search_options *search = &request->search;
    uint32_t index = 0;
    enum mics_status status;

    switch (option->id) {
    case ID_MEMORY:
        return parse_memory(value, &search->memory_limit, err);
    case ID_RECOMPUTE:
        return parse_recompute(value, &search->recompute, err);
    case ID_OPTIMIZER:
        return mics_optimizer_parse(value, &search->optimizer)
                   ? MICS_OK
                   : mics_err_set(err, MICS_ERR_ARG, "'%s': expected one of " MICS_OPTIMIZER_NAMES,
                                  value);
    case ID_HIERARCHICAL:
        return parse_hierarchical(value, &search->hierarchical, err);
    case ID_DTYPE:
    case ID_GRAD_DTYPE:
        status = parse_word(value, dtypes, &index, err);
        *(option->id == ID_DTYPE ? &search->dtype : &search->grad_dtype) =
            index ? MICS_BF16 : MICS_F32;
        return status;
    case ID_SYNC_DTYPE:
        return parse_sync_dtype(value, search, err);
    case ID_SYNC_ROUNDING:
        status = parse_word(value, roundings, &index, err);
        search->sync_stochastic = index == 1;
        return status;
    case ID_GATHER_DTYPE:
        status = parse_word(value, gathers, &index, err);
        search->gather_dtype = index ? MICS_INT8 : MICS_F32;
        return status;
    case ID_SYNC_INTERVAL:
        return parse_interval(value, &search->sync_interval, err);
    case ID_NO_CLIP:
        search->clip = false;
        return MICS_OK;
    case ID_LAUNCH:
        request->launch = value;
        return parse_word(value, launchers, &index, err);
    case ID_PROFILE:
        return parse_word(value, profiles, &request->profile, err);
    default: /* ID_PRICE */
        return parse_price(value, &request->training, err);
    }
}

static enum mics_status open_model(const struct request *request, struct mics_model **out,
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

static enum mics_status describe_topology(const struct request *request, struct mics_topology **out,
                                          struct mics_err *err)
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

static enum mics_status open_topology(const struct request *request, struct mics_topology **out,
                                      struct mics_err *err)
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
static void print_launch(const struct request *request, const struct mics_plan *plan)
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

static enum mics_status write_plan(const struct request *request, const struct mics_plan *plan,
                                   int argc, char **argv, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_plan_to_doc(plan, &doc, err);

    if (status == MICS_OK)
        status = cli_write_document(&request->common, doc, argc, argv, mics_plan_print, err);
    json_decref(doc);
    return status;
}

static bool uses_srun(const struct request *request)
{
    return request->launch && strcmp(request->launch, "srun") == 0;
}

static enum mics_status write_hostfile(const struct request *request, const struct mics_plan *plan,
                                       struct mics_err *err)
{
    return uses_srun(request) ? mics_hostfile_write_tasks(request->hostfile, plan->topology, err)
                              : mics_hostfile_write(request->hostfile, plan->topology->doc, err);
}

/* --launch and --schedule use standard output; then the plan is written only to a file. */
static enum mics_status write_results(const struct request *request, const struct mics_plan *plan,
                                      int argc, char **argv, struct mics_err *err)
{
    const bool uses_stdout = request->launch || request->schedule;
    enum mics_status status = MICS_OK;

    if (!uses_stdout || request->common.output)
        status = write_plan(request, plan, argc, argv, err);
    if (status == MICS_OK && request->hostfile)
        status = write_hostfile(request, plan, err);
    if (status == MICS_OK && request->launch)
        print_launch(request, plan);
    if (status == MICS_OK && request->schedule)
        status = print_schedule(plan, err);
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

/* What the prediction depends on beside the topology. */
static enum mics_status set_profile(const struct request *request, struct mics_topology *topology,
                                    struct mics_err *err)
{
    const char *tf32 = getenv("MICS_TF32");
    const bool host = mics_topology_is_host(topology);

    if (request->profile == MICS_PROFILE_PYTORCH && host)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--profile: pytorch is known for GPUs only; the ranks of this topology "
                            "compute on hosts");
    if (request->profile != MICS_AUTO)
        topology->profile = (enum mics_profile)request->profile;
    if (tf32 && strcmp(tf32, "1") == 0 && !host)
        topology->tf32 = true;
    return MICS_OK;
}

/* A plan for memory that the ranks do not have cannot run on them. */
static void warn_if_memory_is_missing(const struct request *request, const struct mics_plan *plan)
{
    const uint64_t wanted = request->search.memory_limit, present = plan->topology->memory_bytes;
    char texts[2][32];

    if (wanted > present)
        cli_warn("--memory: %s is more than the %s of a rank in the topology",
                 mics_format_bytes(wanted, texts[0], sizeof texts[0]),
                 mics_format_bytes(present, texts[1], sizeof texts[1]));
}

/* The types of this trainer are fp32 and bf16. */
static void warn_if_type_is_missing(const struct mics_plan *plan)
{
    const struct mics_topology *topology = plan->topology;

    if (strcmp(topology->flops_dtype, "f16") == 0)
        cli_warn("%s multiplies 16-bit matrices in fp16, which mics-train does not have: planned "
                 "in %s",
                 topology->device, mics_dtype_name(plan->choice.dtype));
}

/* Blocks that were asked for where nothing is sent in them, or not over a network. */
static void warn_if_not_compressed(const struct request *request, const struct mics_plan *plan)
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
static void report_interval(const struct request *request, const struct mics_plan *plan)
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
static enum mics_status check_run(const struct request *request, struct mics_err *err)
{
    struct mics_check check;
    json_t *doc = NULL;
    enum mics_status status = mics_check_run(request->check, request->file, &check, err);

    if (status != MICS_OK)
        return status;
    if (request->common.json) {
        status = mics_check_to_doc(&check, &doc, err);
        if (status == MICS_OK)
            status = mics_doc_write(stdout, doc, MICS_DOC_JSON, err);
        json_decref(doc);
    } else {
        status = mics_check_print(stdout, &check, request->common.tsv, err);
    }
    mics_check_fini(&check);
    return status;
}

/* Before the search: can its results be written? */
static enum mics_status check_outputs(const struct request *request, struct mics_err *err)
{
    const char *const paths[] = {request->common.output, request->trace, request->hostfile};
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < sizeof paths / sizeof *paths; i++)
        status = cli_check_output(paths[i], err);
    return status;
}

/* The rates of outer steps: those of the command line, of --like, or the defaults. */
static void set_outer(struct request *request)
{
    struct mics_search_options *search = &request->search;

    if (search->outer_steps == 0)
        return;
    if (search->outer_lr <= 0) {
        search->outer_lr = 0.7;
        search->outer_momentum = 0.9;
    }
    if (request->outer_lr >= 0)
        search->outer_lr = request->outer_lr;
    if (request->outer_momentum >= 0)
        search->outer_momentum = request->outer_momentum;
}

/* The model and the cluster to plan for. */
static enum mics_status open_inputs(struct request *request, struct mics_topology **topology,
                                    struct mics_model **model, struct mics_err *err)
{
    enum mics_status status;

    if (request->like)
        return plan_open_like(request->like, request->like_nodes, &request->search,
                              &request->memory_every, &request->memory_copies, topology, model,
                              err);
    status = open_model(request, model, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "--model");
        return status;
    }
    warn_if_path_exists(request->model);
    return open_topology(request, topology, err);
}

static enum mics_status run(struct request *request, int argc, char **argv, struct mics_err *err)
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
    set_outer(request);
    status = set_profile(request, topology, err);
    if (status != MICS_OK)
        goto out;
    status =
        mics_plan_search_usable(topology, model, &request->search, &request->cluster, &plan, err);
    if (status != MICS_OK)
        goto out;
    topology = NULL; /* owned by the plan */
    model = NULL;
    warn_if_type_is_missing(plan);
    report_interval(request, plan);
    warn_if_memory_is_missing(request, plan);
    warn_if_not_compressed(request, plan);
    report_nodes(plan);
    plan->training = request->training;
    plan->memory_every = request->memory_every;
    plan->memory_copies = (uint32_t)request->memory_copies;
    status = mics_plan_check_memory_ckpt(plan, err);
    if (status != MICS_OK)
        goto out;
    status = write_results(request, plan, argc, argv, err);
out:
    mics_plan_free(plan);
    mics_topology_free(topology);
    mics_model_free(model);
    return status;
}

/* -1: continue; else the exit code. */
static int check_usage_of_check(struct request *request, int argc, char **argv, int operands)
{
    const struct cli_common *common = &request->common;

    if (argc - operands > 1)
        return cli_usage("unexpected argument '%s': --check takes one plan", argv[argc - 1]);
    if (request->model || request->topology || request->launch || request->schedule ||
        request->trace || request->hostfile || request->cluster.hosts ||
        request->cluster.switches || request->training.tokens > 0 || common->output)
        return cli_usage("--check only goes with a plan, --json and --tsv");
    request->file = operands < argc ? argv[operands] : NULL;
    return -1;
}

/* -1: continue; else the exit code. */
static int check_usage(struct request *request, int argc, char **argv, int operands)
{
    const char *output = request->common.output;

    if (request->training.node_hour_price > 0 && request->training.tokens == 0)
        return cli_usage("--price goes with --tokens");
    if (request->memory_copies && !request->memory_every && !request->like)
        return cli_usage("--memory-copies goes with --memory-every");
    if (request->search.sync_stochastic && !mics_dtype_is_blocks(request->search.sync_dtype) &&
        !request->search.sync_auto && !request->like)
        return cli_usage("--sync-rounding=stochastic goes with --sync-dtype");
    if (request->search.outer_steps && request->search.sync_interval > 1)
        return cli_usage("--outer-steps and --sync-interval exclude each other");
    if ((request->outer_lr >= 0 || request->outer_momentum >= 0) && !request->search.outer_steps &&
        !request->like)
        return cli_usage("--outer-lr and --outer-momentum go with --outer-steps");
    if (request->check)
        return check_usage_of_check(request, argc, argv, operands);
    if (request->cluster.switch_topology && !request->cluster.switches)
        return cli_usage("--switch-topology goes with --switches");
    if (request->like_nodes && !request->like)
        return cli_usage("--nodes goes with --like");
    if (request->like &&
        (request->model || request->topology || request->vocab_size || operands < argc))
        return cli_usage("--like has the model and the topology of its plan");
    if (!request->model && !request->like)
        return cli_usage("--model is missing; --list-models lists names");
    if (request->catalogue && !request->topology)
        return cli_usage("--catalogue goes with --topology");
    if (argc - operands > (request->topology ? 0 : 1))
        return cli_usage("unexpected argument '%s': the topology is %s already", argv[argc - 1],
                         request->topology ? "in --topology" : argv[operands]);
    if ((request->launch || request->schedule) && output && strcmp(output, "-") == 0)
        return cli_usage("--output is '-', where --launch and --schedule write");
    if (operands < argc)
        request->file = argv[operands];
    if (!request->topology && strcmp(request->file, "-") == 0 && isatty(STDIN_FILENO))
        return cli_usage("no topology: --topology=TEXT, a file, or one on standard input");
    return -1;
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
    struct request request = {.search = {.recompute = MICS_AUTO,
                                         .prefetch = MICS_AUTO,
                                         .dtype = MICS_AUTO,
                                         .grad_dtype = MICS_AUTO,
                                         .clip = true},
                              .outer_lr = -1,
                              .outer_momentum = -1,
                              .file = "-",
                              .profile = MICS_AUTO};
    struct mics_err err;
    int operands, code;

    cli_init(&program);
    code = cli_parse(argc, argv, &request.common, handle, &request, &operands);
    if (code < 0 && request.list_models)
        code = list_models(&request.common, argc, argv, operands);
    if (code < 0)
        code = check_usage(&request, argc, argv, operands);
    if (code < 0 && cli_rank() > 0)
        code = CLI_DONE; /* under a launcher one rank plans */
    if (code < 0)
        code = cli_report(
            request.check ? check_run(&request, &err) : run(&request, argc, argv, &err), &err);
    return cli_finish(code);
}
