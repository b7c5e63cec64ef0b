/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - a plan in memory: everything that a schedule depends on, and what is predicted of it.
 *
 * The document mics.plan contains the topology and the model that it was made from. It holds
 * shapes, not lists of ranks.
 */
#ifndef MICS_PLAN_PLAN_H
#define MICS_PLAN_PLAN_H

#include "model/model.h"
#include "optimizer.h"
#include "plan/group.h"
#include "plan/op_class.h"
#include "topology/topology.h"

#define MICS_PLAN_KIND "mics.plan"
/* 2: `recompute` is a level by name, and the memory of a GPU outside the arena is counted. In 1
 * `recompute` is a boolean: true is full, false is selective. */
#define MICS_PLAN_VERSION 2

#define MICS_COALESCE_MAX    8
#define MICS_OUTER_STEPS_MAX (1 << 20)
#define MICS_OUTER_LR_MAX    10
#define MICS_INTERVAL_MAX    64
#define MICS_SYNC_WARMUP_MAX (1 << 30)

/* Elements of a piece of the optimizer's shard that is in host memory, if nothing else is planned,
 * and how many pieces are on the device at a time: one arrives, one is updated, one leaves. */
#define MICS_OFFLOAD_PIECE     (1u << 22)
#define MICS_OFFLOAD_PIECE_MIN 64 /* and its multiples */
#define MICS_OFFLOAD_PIECE_MAX (1u << 28)
#define MICS_OFFLOAD_SLOTS     3

/* Whose memory and exchanges a plan has: those of mics, or of another trainer (trainer_memory.c,
 * trainer_exchanges.c). */
enum mics_trainer {
    MICS_TRAINER_MICS,
    MICS_TRAINER_FSDP2, /* a loop of one's own with PyTorch's FSDP2 */
    MICS_TRAINER_TORCHTITAN,
    MICS_TRAINER_TRANSFORMERS,
    MICS_TRAINER_ACCELERATE,
    MICS_TRAINER_MEGATRON,
    MICS_TRAINER_DEEPSPEED,
    MICS_TRAINERS
};

/* Everything that a schedule and its memory depend on, apart from the model.
 *
 * Where `dtype` is bf16 or fp16 the optimizer keeps an fp32 master of what it updates beside its
 * states. Gradients have `grad_dtype` in the slots through which they are reduced and when they are
 * communicated; they are accumulated over micro-steps in fp32 shards. Where nothing is reduced
 * (p_grad 1) the backward accumulates into the fp32 shard directly. */
struct mics_plan_choice {
    /* By kind of unit. Nodes and ranks per node are the same in all. */
    struct mics_shape shapes[MICS_UNIT_KIND_COUNT];
    char strategy[16];        /* "ddp", "zero1", "zero2", "zero3", "mics", "custom" */
    bool hierarchical_gather; /* takes effect where the parameter group has a hierarchy */
    /* ZeRO++'s hpZ (Wang et al. 2023): after an update a rank has only its optimizer shard of the
     * parameters. The first gather of a unit in a step is over the optimizer group, and what it
     * brings of the rank's parameter shard is copied into that; later gathers of the step are in
     * the parameter group. Else updated parameters are published there (MICS_OP_PUBLISH). */
    bool secondary_shards;
    bool hierarchical_reduce; /* takes effect where the gradient group has a hierarchy */
    uint32_t segments;        /* of large units; 1 or more */
    uint32_t prefetch;        /* units gathered ahead; prefetch + 1 parameter slots */
    uint32_t grad_slots;      /* 1 or more */
    uint32_t coalesce;        /* units exchanged together, 1 to MICS_COALESCE_MAX */
    uint32_t micro_batch, micro_steps, seq;
    enum mics_recompute recompute;
    enum mics_optimizer optimizer;
    enum mics_dtype dtype;      /* of parameters and activations: MICS_F32, MICS_BF16, MICS_F16 */
    enum mics_dtype grad_dtype; /* of gradients in slots and in communication: likewise */
    bool clip;                  /* the norm is a barrier before the updates */
    /* The second hop, and the scatter before it, in blocks (MICS_INT8, MICS_INT4): gradients on the
     * way up, their sums on the way down. Both MICS_F32: as grad_dtype says. */
    enum mics_dtype sync_dtype, sync_down_dtype;
    /* So many of the last units are exchanged as grad_dtype says, although the others are in
     * blocks: their exchanges are over before the backward pass ends. */
    uint32_t sync_exact_units;
    bool sync_gathers; /* each replica gathers the blocks of all and adds them, with no way down */
    bool sync_stochastic; /* blocks of gradients and sums are rounded stochastically */
    /* Parameters in the network stage of a hierarchical gather: MICS_INT8; MICS_F32: of `dtype`. */
    enum mics_dtype gather_dtype;
    /* Steps from one meeting of the replicas to the next; 0: their gradients are summed in each
     * step. Between meetings each optimizer group trains on its own gradients. After a step that
     * is a multiple of this the replicas take an outer step (struct mics_args_outer_update). */
    uint32_t outer_steps;
    double outer_lr, outer_momentum;
    /* The exchange of an outer step runs beside the computation of the step after it. Its result
     * takes the place of the parameters just before these are updated in that step: the update is
     * with the gradient of the parameters before the meeting. outer_steps is at least 2. */
    bool outer_overlap;
    /* With an interval or outer steps: in so many steps, from the first of a run, the gradients of
     * all units are summed over the replicas and all units are updated, as without. Outer steps
     * begin at the parameters after that. */
    uint32_t sync_warmup;
    /* Steps from one second hop of a unit to the next, up to MICS_INTERVAL_MAX; 0 and 1: it is in
     * every step. Units take turns (mics_choice_turns()). What follows the accumulation of its
     * gradients happens to a unit only in its turn; until then its shard adds up the gradients. */
    uint32_t sync_interval;
    /* Experts that are cut over several ranks stay there, and tokens travel to them (struct
     * mics_dispatch); else their units are gathered and reduced as all others. */
    bool dispatches;
    /* Then predictions are for a busiest rank with so many times the mean rows of its group, the
     * rows of each rank being spread alike; 0: 1, even loads. Training does not depend on it. */
    double expert_load;
    enum mics_trainer trainer;
    /* Before the last micro-step it adds up whole gradients, and reduces none. */
    bool whole_grads;
    /* Masters and optimizer states are in host memory; mics updates each segment of a unit on the
     * device, in pieces of so many elements (others: host_update.h). 0: they are on the device. */
    uint32_t offload_piece;
};

struct mics_region {
    const char *name; /* "parameter shards", ... */
    uint64_t bytes, offset;
};

enum mics_region_kind {
    MICS_REGION_PARAM, /* parameter shards */
    MICS_REGION_GRAD,  /* gradient shards, fp32 */
    /* The optimizer's states, and the master of parameters that are not fp32; where these are in
     * host memory, the pieces of them that are being updated. */
    MICS_REGION_OPTIM,
    MICS_REGION_PARAM_SLOT, /* gathered parameters */
    MICS_REGION_GRAD_SLOT,  /* gradients to reduce, and staging buffers of exchanges */
    MICS_REGION_SAVED,      /* activations */
    MICS_REGION_SCRATCH,
    MICS_REGION_BATCH, /* tokens, targets, scalars: of two steps */
    MICS_REGION_COUNT
};

/* Memory of one rank. The arena is its regions one after another, each aligned to 4096 bytes. */
struct mics_memory {
    struct mics_region regions[MICS_REGION_COUNT];
    uint64_t arena_bytes;
    uint64_t workspace_bytes; /* outside the arena: of libraries; on a host also staging */
    uint64_t process_bytes;   /* host memory: the program, its libraries, MPI */
    uint64_t pinned_bytes;    /* host memory from which a GPU copies batches; 0 on a host */
    uint64_t offload_bytes;   /* host memory (of a GPU: pinned): masters, states; host_update.h */
    uint64_t context_bytes, communicator_bytes; /* outside the arena, on a GPU; 0 on a host */
    uint64_t snapshot_bytes; /* host memory: a checkpoint is written from it during training */
};

/* For an alternative that was not simulated only step_s is set, to a lower bound. */
struct mics_prediction {
    double step_s, tokens_per_s;
    /* Times in one step: with computation, with communication, and with communication but without
     * computation. */
    double compute_s, comm_s, exposed_s;
    uint64_t net_bytes;  /* that a step sends through one node's network cards, one way */
    uint64_t sent_bytes; /* that one rank sends in a step */
};

/* What the seconds of an operation rest on: the rates of kernels, or those of links. */
enum mics_cost_class {
    MICS_COST_COMPUTE,
    MICS_COST_NODE, /* collectives inside nodes */
    MICS_COST_NET,  /* collectives between nodes */
    MICS_COST_CLASS_COUNT
};

const char *mics_cost_class_name(enum mics_cost_class cost_class); /* "compute", "node", "net" */

/* Where an error comes from: published runs, what was measured here, or neither. */
enum mics_error_source {
    MICS_ERROR_NONE, /* the step has nothing of the class */
    MICS_ERROR_PUBLISHED,
    MICS_ERROR_MEASURED,
    MICS_ERROR_ASSUMED,
    MICS_ERROR_SOURCE_COUNT
};

const char *mics_error_source_name(enum mics_error_source source); /* "published" */

/* How many times the predicted seconds of a class are measured, nine times in ten. */
struct mics_cost_error {
    double low, high; /* 0 < low <= 1 <= high */
    enum mics_error_source source;
};

/* In which nine of ten measured steps are expected: see search/range.h. low_s 0: unknown. */
struct mics_step_range {
    double low_s, high_s;
    struct mics_cost_error errors[MICS_COST_CLASS_COUNT];
};

/* One strategy that the search considered, chosen or not. */
struct mics_alternative {
    struct mics_plan_choice choice;
    uint64_t total_bytes;
    struct mics_prediction predicted;
    bool fits;
    char why[160]; /* why it lost: "needs 3.1 GiB more", "12 % slower"; empty for the chosen one */
};

/* What the plan is to train, and what that costs. */
struct mics_training {
    uint64_t tokens;        /* 0: unknown; then the rest is 0 */
    double node_hour_price; /* of one node for one hour; 0: unknown */
    char currency[12];      /* of the price: "USD"; may be empty */
};

struct mics_training_cost {
    double seconds, rank_hours, node_hours; /* at the predicted tokens/s */
    double price;                           /* 0: unknown */
};

/* The same plan with gathered and with resident experts; times of one step. */
struct mics_expert_ways {
    double gathered_step_s, resident_step_s;
    /* With exchanges of experts' parameters and gradients, and with those of tokens. */
    double gathered_s, resident_s;
    double load; /* mics_plan_choice.expert_load of both times of resident experts */
    /* The step with resident experts at a load of 1, and at the largest that a router can make. */
    double even_step_s, worst_step_s, worst_load;
    double crossing_load; /* up to this load resident experts are not slower; 0: at none */
};

struct mics_plan {
    struct mics_topology *topology;
    struct mics_model *model;
    struct mics_plan_choice choice;
    uint64_t memory_limit; /* bytes per rank */
    uint64_t global_batch; /* sequences per step: n * micro_batch * micro_steps */
    struct mics_memory memory;
    struct mics_prediction predicted;
    struct mics_step_range range;    /* of predicted.step_s */
    struct mics_class_times classes; /* of the predicted step */
    struct mics_training training;
    /* With an interval that the search chose: the part by which the second hop prolongs a step.
     * Not in the document. */
    double second_hop_share;
    double exact_step_s;             /* the fastest with an exact second hop; 0: not compared */
    struct mics_expert_ways experts; /* all 0: not compared */
    /* Where the optimizer's states are in host memory: the step with them on the device, whatever
     * that would take of its memory. 0: unknown. */
    double on_device_step_s;
    bool offload_auto;      /* whether they are there was decided by what fits */
    uint64_t memory_every;  /* steps between states kept in the memory of nodes; 0: none */
    uint32_t memory_copies; /* nodes that have each shard of them; 0: the default, 2 */
    uint32_t alternative_count;
    struct mics_alternative *alternatives;
    json_t *doc; /* the document that it came from, or NULL */
};

/* Frees the plan and all that it points to. NULL is fine. */
void mics_plan_free(struct mics_plan *plan);

/* The document is checked completely; memory is computed again and must be what the document says.
 * *out keeps a reference to `doc`. MICS_ERR_FORMAT: the path of the wrong value, and why. */
enum mics_status mics_plan_from_doc(json_t *doc, struct mics_plan **out, struct mics_err *err);
/* The same of a plan that mics itself trains by: MICS_ERR_ARG for one of another trainer. */
enum mics_status mics_plan_own_from_doc(json_t *doc, struct mics_plan **out, struct mics_err *err);
/* The same of a file, or of standard input ("-"), whose name begins errors. */
enum mics_status mics_plan_read_file(const char *path, struct mics_plan **out,
                                     struct mics_err *err);
/* *out belongs to the caller. The topology's history becomes the plan's. MICS_ERR_NOMEM. */
enum mics_status mics_plan_to_doc(const struct mics_plan *plan, json_t **out, struct mics_err *err);

/* All 0 if there are no tokens. */
struct mics_training_cost mics_plan_training_cost(const struct mics_plan *plan);

/* A rate of FLOP/s that model FLOPs utilisation is relative to. */
struct mics_peak_flops {
    double flops;     /* per rank */
    bool is_vendor;   /* false: the vendor's peak is unknown; the sustained rate */
    const char *type; /* "bf16" */
};
struct mics_peak_flops mics_plan_peak_flops(const struct mics_plan *plan);

/* Model FLOPs utilisation (Chowdhery et al. 2022) at this rate, with 6N + 6LCT FLOPs per token
 * (mics_model_flops_per_token()), of the peak of all ranks. */
double mics_plan_mfu(const struct mics_plan *plan, double tokens_per_s);

enum { MICS_MICRO_STEPS_MAX = 1 << 20 };

/* Is each shape valid, and are all on the same ranks? MICS_ERR_ARG with the reason. */
enum mics_status mics_choice_check_shapes(const struct mics_plan_choice *choice,
                                          struct mics_err *err);

/* Ranges that memory, schedule and engine rely on: shape, batch, sequence, slots, segments.
 * MICS_ERR_ARG with the reason. */
enum mics_status mics_choice_check(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, struct mics_err *err);

/* Initialiser of `shapes`: the same shape for units of all kinds. */
#define MICS_SAME_SHAPE(...)                                                                       \
    {                                                                                              \
        __VA_ARGS__, __VA_ARGS__                                                                   \
    }

static inline void mics_choice_set_shape(struct mics_plan_choice *choice, struct mics_shape shape)
{
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        choice->shapes[kind] = shape;
}

/* How `unit` is cut. */
static inline const struct mics_shape *mics_choice_shape_of(const struct mics_plan_choice *choice,
                                                            const struct mics_unit *unit)
{
    return &choice->shapes[unit->kind];
}

/* The ranks, which are the same for units of all kinds. */
static inline uint32_t mics_choice_nodes(const struct mics_plan_choice *choice)
{
    return choice->shapes[0].nodes;
}

static inline uint32_t mics_choice_per_node(const struct mics_plan_choice *choice)
{
    return choice->shapes[0].per_node;
}

static inline uint32_t mics_choice_world_size(const struct mics_plan_choice *choice)
{
    return mics_shape_world_size(&choice->shapes[0]);
}

/* Ranks that hold the same optimizer shard, one in each replica of the training state. */
static inline uint32_t mics_choice_replicas(const struct mics_plan_choice *choice)
{
    return mics_choice_world_size(choice) / choice->shapes[0].p_optim;
}

/* fp32 vectors of an optimizer shard besides the parameters: the optimizer's states, and with outer
 * steps the anchor and the outer momentum. */
static inline uint32_t mics_choice_states(const struct mics_plan_choice *choice)
{
    return mics_optimizer_states(choice->optimizer) + (choice->outer_steps > 0 ? 2 : 0);
}

/* fp32 values of an element that are in host memory: the states, and the master if there is one. */
static inline uint32_t mics_choice_offload_values(const struct mics_plan_choice *choice)
{
    return mics_optimizer_states(choice->optimizer) + (choice->dtype != MICS_F32);
}

/* The kind whose groups (plan/group.h) units of `kind` use: kinds of one shape share theirs. */
enum mics_unit_kind mics_choice_groups(const struct mics_plan_choice *choice,
                                       enum mics_unit_kind kind);
/* Does a unit of the model use the groups of `kind`? */
bool mics_choice_uses_groups(const struct mics_model *model, const struct mics_plan_choice *choice,
                             enum mics_unit_kind kind);

/* Are gradients exchanged after they are accumulated: over replicas or optimizer groups? */
bool mics_choice_has_second_hop(const struct mics_plan_choice *choice);

static inline uint32_t mics_choice_interval(const struct mics_plan_choice *choice)
{
    return choice->sync_interval > 1 ? choice->sync_interval : 1;
}

/* fp16: must each step also find out whether the gradients that units carry have overflowed? */
static inline bool mics_choice_checks_carried(const struct mics_plan_choice *choice)
{
    return choice->dtype == MICS_F16 && mics_choice_interval(choice) > 1;
}

/* Is the step, from 1, one of those in which all units are synchronised and updated? */
static inline bool mics_choice_warms_up(const struct mics_plan_choice *choice, uint64_t step)
{
    return step <= choice->sync_warmup;
}

/* The ranks that have the experts of a layer, to which tokens travel; 0: units of `kind` are
 * gathered, or whole. */
static inline uint32_t mics_choice_expert_ranks(const struct mics_plan_choice *choice,
                                                enum mics_unit_kind kind)
{
    const uint32_t ranks = choice->shapes[kind].p_param;

    return choice->dispatches && kind == MICS_UNIT_EXPERT && ranks > 1 ? ranks : 0;
}

static inline double mics_choice_expert_load(const struct mics_plan_choice *choice)
{
    return choice->expert_load > 0 ? choice->expert_load : 1;
}

/* Are gradients of units of `kind` reduced in each micro-step, and not only added up where they are
 * computed? */
static inline bool mics_choice_reduces(const struct mics_plan_choice *choice,
                                       enum mics_unit_kind kind)
{
    return choice->shapes[kind].p_grad > 1 && mics_choice_expert_ranks(choice, kind) == 0;
}

/* The type of the gradients that the backward of a stage writes that uses a unit of `kind`. */
static inline enum mics_dtype mics_choice_written_grads(const struct mics_plan_choice *choice,
                                                        enum mics_unit_kind kind)
{
    return mics_choice_reduces(choice, kind) ? choice->grad_dtype : MICS_F32;
}

/* Is the second hop sent in blocks? */
static inline bool mics_choice_compresses_sync(const struct mics_plan_choice *choice)
{
    return mics_dtype_is_blocks(choice->sync_dtype);
}

/* The same choice without blocks. */
static inline struct mics_plan_choice mics_choice_exact(const struct mics_plan_choice *choice)
{
    struct mics_plan_choice exact = *choice;

    exact.sync_dtype = exact.sync_down_dtype = exact.gather_dtype = MICS_F32;
    exact.sync_gathers = exact.sync_stochastic = false;
    exact.sync_exact_units = 0;
    return exact;
}

const char *mics_dtype_name(enum mics_dtype dtype); /* "f32", "f64", "bf16", "int8", "f16" */

/* In fp16: the power of two by which the loss scale is divided for gradients of the sum of a
 * micro-batch's losses. It is at least the tokens of a micro-batch; where gradients are summed over
 * ranks in fp16, those of a step, or of all steps of an interval, so that they are divided before
 * they are summed. */
double mics_choice_loss_divisor(const struct mics_plan_choice *choice);

#endif
