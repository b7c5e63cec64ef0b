/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_options.h"

#include "base/units.h"
#include "model/config.h"
#include "plan/host_update.h"
#include "plan/memory_ckpt_cost.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

enum {
    ID_MEMORY = 256,
    ID_HEADROOM,
    ID_EXPERT_GROUP,
    ID_RECOMPUTE,
    ID_OPTIMIZER,
    ID_HIERARCHICAL,
    ID_DTYPE,
    ID_GRAD_DTYPE,
    ID_SYNC_DTYPE,
    ID_SYNC_ROUNDING,
    ID_GATHER_DTYPE,
    ID_SYNC_INTERVAL,
    ID_EXPERTS,
    ID_BALANCE_LOSS,
    ID_NO_CLIP,
    ID_OFFLOAD,
    ID_LAUNCH,
    ID_FOR,
    ID_PROFILE,
    ID_PRICE,
};

static const struct cli_option options[] = {
    {0, "model", "MODEL", "name (gpt2-nano, gpt2, ...), config.json, or its folder; required",
     CLI_TO_TEXT(struct plan_request, model)},
    {0, "list-models", NULL, "list the models by name",
     CLI_TO_TRUE(struct plan_request, list_models)},
    {0, "vocab", "N", "tokens of a model by name (default: those of the released model)",
     CLI_TO_U32(struct plan_request, vocab_size, 1, MICS_MAX_VOCAB)},
    {ID_BALANCE_LOSS, "balance-loss", "OVER:C",
     "add C times the auxiliary loss of routers: sequence:C, micro-batch:C, or none (default: as "
     "config.json says)",
     CLI_TO_HANDLER},
    {0, "router-z-loss", "C", "add C times the z-loss of routers (default: 0)",
     CLI_TO_DOUBLE(struct plan_request, balance.z_coefficient, 0, 1000)},
    {0, "mask-rate", "X",
     "largest share of tokens that an encoder is trained to predict (default: 0.15)",
     CLI_TO_DOUBLE(struct plan_request, mask_rate, 1e-4, 0.9999)},
    {0, "topology", "TEXT", "plan for this cluster: p4d.24xlarge:16 or 'node:4 gpu:8 ...'",
     CLI_TO_TEXT(struct plan_request, topology)},
    {0, "catalogue", "FILE", "with --topology, add the instances and GPUs in FILE",
     CLI_TO_TEXT(struct plan_request, catalogue)},
    {0, "global-batch", "N", "sequences per step, over all ranks (default: one per rank)",
     CLI_TO_U64(struct plan_request, search.global_batch, 1, (uint64_t)1 << 40)},
    {0, "micro-batch", "N", "sequences per rank and micro-step (default: the fastest divisor)",
     CLI_TO_U32(struct plan_request, search.micro_batch, 1, INT32_MAX)},
    {0, "seq", "N", "tokens per sequence (default: all positions of the model)",
     CLI_TO_U32(struct plan_request, search.seq, 1, INT32_MAX)},
    {ID_MEMORY, "memory", "SIZE",
     "memory per rank (default: that of the topology, on GPUs less --headroom)", CLI_TO_HANDLER},
    {ID_HEADROOM, "headroom", "PERCENT", "leave PERCENT of a GPU's memory free (default: 3)",
     CLI_TO_HANDLER},
    {0, "strategy", "auto|ddp|zero1|zero2|zero3|mics|hpz",
     "how state is sharded; mics:P: in groups of P ranks; hpz:P: parameters also within steps; "
     "P,G,O: groups of parameters, gradients, optimizer state (default: auto)",
     CLI_TO_TEXT(struct plan_request, search.strategy)},
    {ID_EXPERT_GROUP, "expert-group", "auto|same|P",
     "ranks over which experts are sharded; same: as all else (default: auto, with a --strategy: "
     "same)",
     CLI_TO_HANDLER},
    {ID_RECOMPUTE, "recompute", "auto|none|selective|full",
     "what the backward pass recomputes (default: auto)", CLI_TO_HANDLER},
    {ID_OPTIMIZER, "optimizer", MICS_OPTIMIZER_NAMES, "optimizer (default: adamw)", CLI_TO_HANDLER},
    {ID_OFFLOAD, "offload", "none|optimizer|auto",
     "keep the optimizer's states and masters in host memory; auto: if nothing fits without "
     "(default: none)",
     CLI_TO_HANDLER},
    {0, "prefetch", "N", "units gathered ahead (default: the fastest number that fits)",
     CLI_TO_U32(struct plan_request, search.prefetch, 0, 65535)},
    {0, "segments", "N",
     "segments in which large units are exchanged (default: the fastest of 1, 2, 4)",
     CLI_TO_U32(struct plan_request, search.segments, 1, 64)},
    {0, "coalesce", "N", "units exchanged together, 1 to 8 (default: the fastest of 1, 2, 4, 8)",
     CLI_TO_U32(struct plan_request, search.coalesce, 1, MICS_COALESCE_MAX)},
    {ID_HIERARCHICAL, "hierarchical", "auto|on|off",
     "exchanges of groups that span nodes in two hops (default: auto)", CLI_TO_HANDLER},
    {ID_DTYPE, "dtype", "f32|bf16|fp16",
     "parameters and activations (default: bf16 if the FLOP/s are bf16)", CLI_TO_HANDLER},
    {ID_GRAD_DTYPE, "grad-dtype", "bf16|fp16|f32",
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
    {ID_EXPERTS, "experts", "gathered|resident|auto",
     "gather the experts that other ranks have, or send tokens to them; auto: what is faster "
     "(default: gathered)",
     CLI_TO_HANDLER},
    {0, "capacity", "F",
     "experts take at most F times the rows of even loads of a micro-batch, and drop the rest "
     "(default: they take all)",
     CLI_TO_DOUBLE(struct plan_request, capacity, MICS_CAPACITY_MIN, MICS_EXPERTS_MAX)},
    {0, "expert-load", "LOAD",
     "with --experts, rows of the busiest rank over the mean, 1 if even (default: 1.25 with a loss "
     "of balance, else 2)",
     CLI_TO_DOUBLE(struct plan_request, search.expert_load, 1, MICS_EXPERTS_MAX)},
    {ID_SYNC_INTERVAL, "sync-interval", "N|auto",
     "units take turns, each sends its second hop in every N-th step, 1 to 64; auto: the fewest "
     "steps that hide it (default: 1)",
     CLI_TO_HANDLER},
    {ID_NO_CLIP, "no-clip", NULL,
     "do not clip gradients, so that updates need not wait for the norm", CLI_TO_HANDLER},
    {0, "outer-steps", "H",
     "train replicas on their own, and let them meet after every H-th step (default: never)",
     CLI_TO_U32(struct plan_request, search.outer_steps, 1, MICS_OUTER_STEPS_MAX)},
    {0, "outer-lr", "RATE", "with --outer-steps, rate of the outer step (default: 0.7)",
     CLI_TO_DOUBLE(struct plan_request, search.outer_lr, 1e-6, MICS_OUTER_LR_MAX)},
    {0, "outer-momentum", "M", "with --outer-steps, its Nesterov momentum (default: 0.9)",
     CLI_TO_DOUBLE(struct plan_request, search.outer_momentum, 0, 0.9999)},
    {0, "outer-overlap", NULL,
     "with --outer-steps, exchange during the step after a meeting, at whose end the outer step is "
     "applied",
     CLI_TO_TRUE(struct plan_request, search.outer_overlap)},
    {0, "sync-warmup", "N",
     "with --sync-interval or --outer-steps, sum all gradients over the replicas in the first N "
     "steps (default: 100)",
     CLI_TO_U32(struct plan_request, search.sync_warmup, 0, MICS_SYNC_WARMUP_MAX)},
    {0, "like", "PLAN", "instead of --model and a topology: what this plan trains, and where",
     CLI_TO_TEXT(struct plan_request, like)},
    {0, "nodes", "N", "with --like, nodes of that cluster (default: as many)",
     CLI_TO_U32(struct plan_request, like_nodes, 1, MICS_MAX_NODES)},
    {0, "from", "FILE",
     "plan the job that this configuration of DeepSpeed, accelerate or torchtitan describes, and "
     "compare it with the best plan",
     CLI_TO_TEXT(struct plan_request, from)},
    {0, "settings", "FILE", "with --from, write the options of mics-train that it says",
     CLI_TO_TEXT(struct plan_request, settings)},
    {ID_LAUNCH, "launch", "mpirun|srun", "print the command that runs the plan", CLI_TO_HANDLER},
    {ID_FOR, "for", MICS_TARGET_NAMES,
     "plan for this trainer, and print its settings, with the command that starts it",
     CLI_TO_HANDLER},
    {0, "schedule", NULL, "print the operations of one step of the plan",
     CLI_TO_TRUE(struct plan_request, schedule)},
    {0, "trace", "FILE", "write the predicted timeline of a step, for Perfetto",
     CLI_TO_TEXT(struct plan_request, trace)},
    {0, "hosts", "FILE|LIST", "hosts of the nodes, as 'n[01-16,20]' or a line for each",
     CLI_TO_TEXT(struct plan_request, cluster.hosts)},
    {0, "switches", "FILE",
     "order the hosts by the switches of Slurm's topology.yaml or topology.conf",
     CLI_TO_TEXT(struct plan_request, cluster.switches)},
    {0, "switch-topology", "NAME",
     "with --switches, which one of topology.yaml (default: the cluster's)",
     CLI_TO_TEXT(struct plan_request, cluster.switch_topology)},
    {0, "all-nodes", NULL, "leave out no node, however slow",
     CLI_TO_TRUE(struct plan_request, cluster.all_nodes)},
    {0, "hostfile", "FILE", "write the hosts of the ranks, in order, for mpirun or srun",
     CLI_TO_TEXT(struct plan_request, hostfile)},
    {ID_PROFILE, "profile", "mics|pytorch",
     "predict this trainer's kernels, or eager PyTorch's (default: mics)", CLI_TO_HANDLER},
    {0, "tokens", "N", "tokens to train on (300G): print days and GPU-hours",
     CLI_TO_POSITIVE_COUNT(struct plan_request, training.tokens)},
    {ID_PRICE, "price", "PRICE", "with --tokens, of a node-hour (21.96, 21.96USD): print the price",
     CLI_TO_HANDLER},
    {0, "memory-every", "N",
     "keep states in the memory of the nodes, so that losing one costs at most N steps "
     "(default: 0, never)",
     CLI_TO_U64(struct plan_request, search.memory_every, 0, UINT32_MAX)},
    {0, "memory-copies", "N", "with --memory-every, nodes that have each part of it (default: 2)",
     CLI_TO_U64(struct plan_request, search.memory_copies, 1, MICS_MEMORY_COPIES_MAX)},
    {0, "check", "PATH",
     "compare the plan with a measured run, its folder or metrics; the operand is the plan",
     CLI_TO_TEXT(struct plan_request, check)},
};

const struct cli_program plan_program = {
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

/* UP or UP,DOWN. */
static enum mics_status parse_sync_dtype(const char *value, struct mics_search_options *out,
                                         struct mics_err *err)
{
    static const struct {
        const char *word;
        enum mics_dtype up, down;
    } formats[] = {{"exact", MICS_F32, MICS_F32},
                   {"int8", MICS_INT8, MICS_INT8},
                   {"int4", MICS_INT4, MICS_INT8},
                   {"int4,int4", MICS_INT4, MICS_INT4}};

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

static enum mics_status parse_balance(const char *value, struct mics_balance *out,
                                      struct mics_err *err)
{
    static const char sequence[] = "sequence:", micro_batch[] = "micro-batch:";
    const bool by_sequence = strncmp(value, sequence, strlen(sequence)) == 0;
    const char *const number = strchr(value, ':');
    char *end = NULL;

    out->kind = MICS_BALANCE_NONE;
    out->coefficient = 0;
    if (strcmp(value, "none") == 0)
        return MICS_OK;
    if (by_sequence || strncmp(value, micro_batch, strlen(micro_batch)) == 0)
        out->coefficient = strtod(number + 1, &end);
    if (!end || end == number + 1 || *end || !(out->coefficient > 0 && out->coefficient <= 1000))
        return mics_err_set(err, MICS_ERR_ARG,
                            "'%s': expected none, or sequence:C or micro-batch:C with a "
                            "coefficient above 0",
                            value);
    out->kind = by_sequence ? MICS_BALANCE_SEQUENCE : MICS_BALANCE_MICRO_BATCH;
    return MICS_OK;
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

/* "3" or "3%". */
static enum mics_status parse_headroom(const char *value, double *part, struct mics_err *err)
{
    char number[32];
    const size_t length = strlen(value);
    double percent = 0;

    snprintf(number, sizeof number, "%.*s",
             (int)(length > 0 && value[length - 1] == '%' ? length - 1 : length), value);
    const enum mics_status status = mics_parse_double(number, 0, 90, &percent, err);
    *part = percent / 100;
    return status;
}

static enum mics_status parse_expert_group(const char *value, uint32_t *out, struct mics_err *err)
{
    uint64_t ranks = 0;

    if (strcmp(value, "auto") == 0 || strcmp(value, "same") == 0) {
        *out = value[0] == 'a' ? MICS_AUTO : 0;
        return MICS_OK;
    }
    const enum mics_status status = mics_parse_u64(value, 1, UINT32_MAX - 1, &ranks, err);
    *out = (uint32_t)ranks;
    return status;
}

/* *out: the index of `value` in words, which end with NULL. */
static enum mics_status parse_word(const char *value, const char *const *words, uint32_t *out,
                                   struct mics_err *err)
{
    char list[64] = "";

    for (uint32_t i = 0; words[i]; i++) {
        const size_t used = strlen(list);
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";

        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return MICS_OK;
        }
        snprintf(list + used, sizeof list - used, "%s%s", between, words[i]);
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected %s", value, list);
}

/* Options that take one of a few words. */
static const struct {
    int id;
    const char *words[5];
} word_options[] = {
    {ID_RECOMPUTE, {"auto", "none", "selective", "full"}},
    {ID_HIERARCHICAL, {"auto", "on", "off"}},
    {ID_DTYPE, {"f32", "bf16", "fp16"}},
    {ID_GRAD_DTYPE, {"f32", "bf16", "fp16"}},
    {ID_SYNC_ROUNDING, {"nearest", "stochastic"}},
    {ID_GATHER_DTYPE, {"exact", "int8"}},
    {ID_EXPERTS, {"gathered", "resident", "auto"}},
    {ID_OFFLOAD, {"none", "optimizer", "auto"}},
    {ID_LAUNCH, {"mpirun", "srun"}},
    {ID_PROFILE, {"mics", "pytorch"}},
};

/* One of word_options. */
static enum mics_status take_word(struct plan_request *request, int id, const char *value,
                                  struct mics_err *err)
{
    static const enum mics_dtype dtypes[] = {MICS_F32, MICS_BF16, MICS_F16};
    struct mics_search_options *search = &request->search;
    uint32_t row = 0, index = 0;

    while (row < sizeof word_options / sizeof *word_options && word_options[row].id != id)
        row++;
    assert(row < sizeof word_options / sizeof *word_options);
    const enum mics_status status = parse_word(value, word_options[row].words, &index, err);
    if (status != MICS_OK)
        return status;
    switch (id) {
    case ID_RECOMPUTE:
        search->recompute = index == 0 ? MICS_AUTO : index - 1; /* enum mics_recompute */
        break;
    case ID_HIERARCHICAL:
        search->hierarchical = (enum mics_hierarchy)index;
        break;
    case ID_DTYPE:
        search->dtype = dtypes[index];
        break;
    case ID_GRAD_DTYPE:
        search->grad_dtype = dtypes[index];
        break;
    case ID_SYNC_ROUNDING:
        request->has_rounding = true;
        search->sync_stochastic = index == 1;
        break;
    case ID_GATHER_DTYPE:
        request->has_gather_dtype = true;
        search->gather_dtype = index == 1 ? MICS_INT8 : MICS_F32;
        break;
    case ID_EXPERTS:
        request->has_experts = true;
        search->experts = (enum mics_expert_way)index;
        break;
    case ID_OFFLOAD:
        request->has_offload = true;
        search->offload = (enum mics_offload)index;
        break;
    case ID_LAUNCH:
        request->launch = value;
        break;
    default: /* ID_PROFILE */
        request->profile = index;
    }
    return MICS_OK;
}

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct plan_request *request = context;
    struct mics_search_options *search = &request->search;

    switch (option->id) {
    case ID_MEMORY:
        return parse_memory(value, &search->memory_limit, err);
    case ID_HEADROOM:
        return parse_headroom(value, &search->headroom, err);
    case ID_EXPERT_GROUP:
        return parse_expert_group(value, &search->expert_group, err);
    case ID_OPTIMIZER:
        request->has_optimizer = true;
        return mics_optimizer_parse(value, &search->optimizer)
                   ? MICS_OK
                   : mics_err_set(err, MICS_ERR_ARG, "'%s': expected one of " MICS_OPTIMIZER_NAMES,
                                  value);
    case ID_SYNC_DTYPE:
        request->has_sync_dtype = true;
        return parse_sync_dtype(value, search, err);
    case ID_SYNC_INTERVAL:
        return parse_interval(value, &search->sync_interval, err);
    case ID_BALANCE_LOSS:
        return parse_balance(value, &request->balance, err);
    case ID_NO_CLIP:
        search->clip = false;
        return MICS_OK;
    case ID_FOR:
        request->target = mics_target_find(value);
        return request->target ? MICS_OK
                               : mics_err_set(err, MICS_ERR_ARG,
                                              "'%s': expected one of " MICS_TARGET_NAMES, value);
    case ID_PRICE:
        return parse_price(value, &request->training, err);
    default:
        return take_word(request, option->id, value, err);
    }
}

/* Is an option given that changes what is trained, or how much memory there is? */
static bool sets_training(const struct plan_request *request)
{
    const struct mics_search_options *search = &request->search;

    return request->has_optimizer || search->global_batch > 0 || search->seq > 0 ||
           search->memory_limit > 0 || search->dtype != MICS_AUTO ||
           search->grad_dtype != MICS_AUTO || !search->clip ||
           request->balance.kind != MICS_BALANCE_KINDS || request->balance.z_coefficient >= 0 ||
           request->mask_rate > 0 || request->capacity > 0;
}

/* -1: continue; else the exit code. */
static int check_usage_of_check(struct plan_request *request, int argc, char **argv, int operands)
{
    const struct cli_common *common = &request->common;

    if (argc - operands > 1)
        return cli_usage("unexpected argument '%s': --check takes one plan", argv[argc - 1]);
    if (request->model || request->topology || request->launch || request->schedule ||
        request->trace || request->hostfile || request->cluster.hosts ||
        request->cluster.switches || request->training.tokens > 0 || common->output ||
        sets_training(request) || request->has_experts || request->has_offload ||
        request->search.expert_load > 0)
        return cli_usage("--check only goes with a plan, --json and --tsv");
    request->file = operands < argc ? argv[operands] : NULL;
    return -1;
}

enum mics_status plan_check_exchanges(const struct plan_request *request, struct mics_err *err)
{
    const struct mics_search_options *search = &request->search;

    if (request->has_rounding && search->sync_stochastic && !search->sync_auto &&
        !mics_dtype_is_blocks(search->sync_dtype))
        return mics_err_set(err, MICS_ERR_ARG, "--sync-rounding=stochastic goes with --sync-dtype");
    if (search->expert_load > 0 && search->experts == MICS_EXPERTS_GATHERED)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--expert-load goes with --experts=resident and --experts=auto");
    if (search->outer_steps > 0 && search->sync_interval > 1)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--outer-steps and --sync-interval exclude each other");
    if (search->outer_steps > 0 && search->offload != MICS_OFFLOAD_NONE)
        return mics_err_set(err, MICS_ERR_ARG, "--outer-steps and --offload exclude each other");
    if (search->outer_steps == 0 && (search->outer_lr >= 0 || search->outer_momentum >= 0))
        return mics_err_set(err, MICS_ERR_ARG,
                            "--outer-lr and --outer-momentum go with --outer-steps");
    if (search->outer_steps < 2 && search->outer_overlap)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--outer-overlap goes with --outer-steps of 2 or more");
    if (search->outer_steps == 0 && search->sync_interval <= 1 && search->sync_warmup != MICS_AUTO)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--sync-warmup goes with --sync-interval or --outer-steps");
    return MICS_OK;
}

/* An option that is given although the trainer of --for has nothing like it, or NULL. */
static const char *foreign_option(const struct plan_request *request)
{
    const struct mics_search_options *search = &request->search;

    if (search->hierarchical != MICS_HIERARCHY_AUTO)
        return "--hierarchical";
    if (search->expert_group != MICS_AUTO)
        return "--expert-group";
    if (search->experts != MICS_EXPERTS_GATHERED)
        return "--experts";
    if (request->has_sync_dtype || request->has_rounding)
        return "--sync-dtype";
    if (request->has_gather_dtype)
        return "--gather-dtype";
    if (search->sync_interval > 0)
        return "--sync-interval";
    if (search->outer_steps > 0)
        return "--outer-steps";
    if (search->memory_every > 0)
        return "--memory-every";
    return search->segments > 0              ? "--segments"
           : search->coalesce > 0            ? "--coalesce"
           : search->prefetch != MICS_AUTO   ? "--prefetch"
           : search->grad_dtype != MICS_AUTO ? "--grad-dtype"
           : request->balance.kind != MICS_BALANCE_KINDS || request->balance.z_coefficient >= 0
               ? "--balance-loss"
           : request->mask_rate > 0 ? "--mask-rate"
           : request->capacity > 0  ? "--capacity"
                                    : NULL;
}

/* -1: continue; else the exit code. */
static int check_usage_of_target(const struct plan_request *request)
{
    const struct mics_target *target = request->target;
    const char *option = foreign_option(request);

    if (option)
        return cli_usage("--for=%s does not go with %s", target->name, option);
    if (request->search.offload != MICS_OFFLOAD_NONE && target->no_offload)
        return cli_usage("--for=%s does not go with --offload: %s", target->name,
                         target->no_offload);
    if (request->search.offload != MICS_OFFLOAD_NONE &&
        !mics_host_updates(request->search.optimizer))
        return cli_usage("--for=%s --offload updates on the host's processors, for adamw and lion",
                         target->name);
    if (request->search.recompute != MICS_AUTO && !target->recomputes[request->search.recompute])
        return cli_usage("--for=%s: it has no such level of recomputation; none and full are there",
                         target->name);
    if (request->like || request->check || request->launch || request->schedule || request->trace)
        return cli_usage("--for goes without --like, --check, --launch, --schedule and --trace");
    return -1;
}

/* -1: continue; else the exit code. */
static int check_usage_of_from(const struct plan_request *request, int argc, int operands)
{
    if (request->settings && !request->from)
        return cli_usage("--settings goes with --from");
    if (!request->from)
        return -1;
    if (request->settings && strcmp(request->settings, "-") == 0)
        return cli_usage("--settings writes a file, not '-'");
    if (request->target || request->like || request->check)
        return cli_usage("--from goes without --for, --like and --check");
    if (strcmp(request->from, "-") == 0 && !request->topology && operands == argc)
        return cli_usage("--from is '-', and so is the topology");
    return -1;
}

/* -1: continue; else the exit code. */
static int check_files(const struct plan_request *request)
{
    const struct cli_file files[] = {
        {CLI_WRITES, "settings", request->settings},
        {CLI_WRITES, "output", request->common.output},
        {CLI_WRITES, "trace", request->trace},
        {CLI_WRITES, "hostfile", request->hostfile},
        {CLI_READS, NULL, request->topology || request->like ? NULL : request->file},
        {CLI_READS, "model", request->model},
        {CLI_READS, "catalogue", request->catalogue},
        {CLI_READS, "like", request->like},
        {CLI_READS, "from", request->from},
        {CLI_READS, "hosts", request->cluster.hosts},
        {CLI_READS, "switches", request->cluster.switches},
    };

    return cli_check_files(files, sizeof files / sizeof *files);
}

int plan_check_usage(struct plan_request *request, int argc, char **argv, int operands)
{
    const char *output = request->common.output;
    struct mics_err err;
    int code = request->target ? check_usage_of_target(request) : -1;

    if (code < 0)
        code = check_usage_of_from(request, argc, operands);
    if (code >= 0)
        return code;
    if (operands < argc)
        request->file = argv[operands];
    code = check_files(request);
    if (code >= 0)
        return code;
    if (request->training.node_hour_price > 0 && request->training.tokens == 0)
        return cli_usage("--price goes with --tokens");
    if (request->search.headroom >= 0 && (request->search.memory_limit > 0 || request->like))
        return cli_usage("--headroom is of the topology's memory, and excludes %s",
                         request->like ? "--like" : "--memory");
    if (request->search.headroom < 0)
        request->search.headroom = 0.03;
    if (request->search.memory_copies && !request->search.memory_every && !request->like)
        return cli_usage("--memory-copies goes with --memory-every");
    if (!request->like && plan_check_exchanges(request, &err) != MICS_OK)
        return cli_usage("%s", err.text);
    if (request->check)
        return check_usage_of_check(request, argc, argv, operands);
    if (request->cluster.switch_topology && !request->cluster.switches)
        return cli_usage("--switch-topology goes with --switches");
    if (request->like_nodes && !request->like)
        return cli_usage("--nodes goes with --like");
    if (request->like &&
        (request->model || request->topology || request->vocab_size || operands < argc))
        return cli_usage("--like has the model and the topology of its plan");
    if (request->like && sets_training(request))
        return cli_usage("--like has the global batch, the sequence length, the optimizer, types, "
                         "clipping, losses and the memory limit of its plan");
    if (!request->model && !request->like)
        return cli_usage("--model is missing; --list-models lists names");
    if (request->catalogue && !request->topology)
        return cli_usage("--catalogue goes with --topology");
    if (argc - operands > (request->topology ? 0 : 1))
        return cli_usage("unexpected argument '%s': the topology is %s already", argv[argc - 1],
                         request->topology ? "in --topology" : argv[operands]);
    if ((request->launch || request->schedule || request->target) && output &&
        strcmp(output, "-") == 0)
        return cli_usage("--output is '-', where --launch, --schedule and --for write");
    if (!request->topology && !request->like && strcmp(request->file, "-") == 0 &&
        isatty(STDIN_FILENO))
        return cli_usage("no topology: --topology=TEXT, a file, or one on standard input");
    return -1;
}

int plan_parse(int argc, char **argv, struct plan_request *request, int *operands)
{
    *request = (struct plan_request){.search = {.recompute = MICS_AUTO,
                                                .prefetch = MICS_AUTO,
                                                .expert_group = MICS_AUTO,
                                                .dtype = MICS_AUTO,
                                                .grad_dtype = MICS_AUTO,
                                                .clip = true,
                                                .headroom = -1,
                                                .outer_lr = -1,
                                                .outer_momentum = -1,
                                                .sync_warmup = MICS_AUTO},
                                     .balance = {.kind = MICS_BALANCE_KINDS, .z_coefficient = -1},
                                     .file = "-",
                                     .profile = MICS_AUTO};
    return cli_parse(argc, argv, &request->common, handle, request, operands);
}
