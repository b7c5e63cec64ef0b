/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_doc.c - the document mics.plan: read, checked against itself, and written.
 *
 *     kind v model topology global_batch memory_limit_bytes
 *     choice { strategy p_param p_grad p_optim hierarchical_gather hierarchical_reduce segments
 *              joined prefetch grad_slots micro_batch micro_steps seq recompute optimizer dtype
 *              grad_dtype clip ? experts { p_param p_grad p_optim }
 *              ? sync_dtype sync_down_dtype ? sync_gathers ? sync_stochastic ? sync_exact_units
 *              ? gather_dtype ? sync_interval ? outer_steps outer_lr outer_momentum
 *              ? outer_overlap ? sync_warmup ? resident_experts ? offload_piece }
 *     ? experts { gathered_step_s resident_step_s gathered_s resident_s }
 *     memory { arena_bytes workspace_bytes context_bytes communicator_bytes snapshot_bytes
 *              process_bytes pinned_bytes ? offload_bytes host_bytes_per_node
 *              regions [ { name bytes offset } ] }
 *     predicted { step_s tokens_per_s compute_s comm_s exposed_s net_bytes sent_bytes }
 *     ? exact_step_s ? on_device_step_s ? offload ("auto")
 *     ? range { step_low_s step_high_s tokens_per_s_low tokens_per_s_high
 *               errors { ? compute ? node ? net { low high source } } }
 *     operations (see op_class.h)
 *     ? kept { every copies  node_bytes net_bytes copy_s step_s nodes_to_lose }
 *     ? training { tokens ? node_hour_price ? currency  seconds rank_hours node_hours ? price }
 *     alternatives [ { choice total_bytes fits why predicted } ]
 *     history
 *
 * What can be computed is computed again when a document is read: the batch from its parts, and
 * every region of memory. A document with other values was made by other code or by hand, and would
 * not run as it says.
 */
#include "plan/plan.h"

#include "doc/cursor.h"
#include "doc/doc.h"
#include "plan/memory.h"
#include "plan/memory_ckpt_cost.h"
#include "plan/trainer_memory.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALTERNATIVES = 4096 };

/* The integers of a choice. */
struct choice_number {
    const char *key;
    size_t offset; /* of a uint32_t in struct mics_plan_choice */
    uint32_t min, max;
    uint32_t less; /* the document has the number minus this */
};

/* The booleans of a choice, and the reals (double) of a prediction. */
struct named_field {
    const char *key;
    size_t offset;
};

#define COUNT(array)  (sizeof(array) / sizeof(array)[0])
#define CHOICE(field) offsetof(struct mics_plan_choice, field)

static const struct choice_number choice_numbers[] = {
    {"p_param", CHOICE(shapes[MICS_UNIT_DENSE].p_param), 1, UINT32_MAX, 0},
    {"p_grad", CHOICE(shapes[MICS_UNIT_DENSE].p_grad), 1, UINT32_MAX, 0},
    {"p_optim", CHOICE(shapes[MICS_UNIT_DENSE].p_optim), 1, UINT32_MAX, 0},
    {"segments", CHOICE(segments), 1, 64, 0},
    {"joined", CHOICE(coalesce), 0, MICS_COALESCE_MAX - 1, 1},
    {"prefetch", CHOICE(prefetch), 0, 65535, 0},
    {"grad_slots", CHOICE(grad_slots), 1, 65536, 0},
    {"micro_batch", CHOICE(micro_batch), 1, INT32_MAX, 0},
    {"micro_steps", CHOICE(micro_steps), 1, 1u << 20, 0},
    {"seq", CHOICE(seq), 1, INT32_MAX, 0},
};
enum { CHOICE_NUMBERS = COUNT(choice_numbers) };

static const struct named_field choice_flags[] = {
    {"hierarchical_gather", CHOICE(hierarchical_gather)},
    {"hierarchical_reduce", CHOICE(hierarchical_reduce)},
    {"clip", CHOICE(clip)},
};
enum { CHOICE_FLAGS = COUNT(choice_flags) };

static const struct named_field prediction_reals[] = {
    {"step_s", offsetof(struct mics_prediction, step_s)},
    {"tokens_per_s", offsetof(struct mics_prediction, tokens_per_s)},
    {"compute_s", offsetof(struct mics_prediction, compute_s)},
    {"comm_s", offsetof(struct mics_prediction, comm_s)},
    {"exposed_s", offsetof(struct mics_prediction, exposed_s)},
};
enum { PREDICTION_REALS = COUNT(prediction_reals) };

static enum mics_optimizer read_optimizer(const struct mics_cursor *at)
{
    const char *text = mics_cursor_get_string(at, "optimizer");
    enum mics_optimizer optimizer = MICS_OPT_ADAMW;

    if (!mics_optimizer_parse(text, &optimizer))
        mics_cursor_reject(at, "optimizer", "'%s': expected one of " MICS_OPTIMIZER_NAMES, text);
    return optimizer;
}

static enum mics_dtype read_dtype(const struct mics_cursor *at, const char *key)
{
    const char *text = mics_cursor_get_string(at, key);

    if (strcmp(text, mics_dtype_name(MICS_F32)) == 0)
        return MICS_F32;
    if (strcmp(text, mics_dtype_name(MICS_F16)) == 0)
        return MICS_F16;
    if (strcmp(text, mics_dtype_name(MICS_BF16)) != 0)
        mics_cursor_reject(at, key, "'%s': expected f32, bf16 or f16", text);
    return MICS_BF16;
}

/* Without the member: MICS_F32. */
static enum mics_dtype read_blocks(const struct mics_cursor *at, const char *key)
{
    if (!mics_cursor_has(at, key))
        return MICS_F32;
    const char *text = mics_cursor_get_string(at, key);
    if (strcmp(text, mics_dtype_name(MICS_INT8)) == 0)
        return MICS_INT8;
    if (strcmp(text, mics_dtype_name(MICS_INT4)) != 0)
        mics_cursor_reject(at, key, "'%s': expected int8 or int4", text);
    return MICS_INT4;
}

static bool read_flag(const struct mics_cursor *at, const char *key)
{
    return mics_cursor_has(at, key) && mics_cursor_get_bool(at, key);
}

static void read_formats(const struct mics_cursor *at, struct mics_plan_choice *out)
{
    out->sync_dtype = read_blocks(at, "sync_dtype");
    out->sync_down_dtype = read_blocks(at, "sync_down_dtype");
    out->sync_gathers = read_flag(at, "sync_gathers");
    out->sync_stochastic = read_flag(at, "sync_stochastic");
    if (mics_cursor_has(at, "sync_exact_units"))
        out->sync_exact_units = mics_cursor_get_u32(at, "sync_exact_units", 1, UINT32_MAX);
    out->gather_dtype = read_blocks(at, "gather_dtype");
}

static enum mics_recompute read_recompute(const struct mics_cursor *at)
{
    const char *text = mics_cursor_get_string(at, "recompute");
    enum mics_recompute recompute = MICS_RECOMPUTE_NONE;

    if (!mics_recompute_parse(text, &recompute))
        mics_cursor_reject(at, "recompute", "'%s': expected none, selective or full", text);
    return recompute;
}

static void read_outer(const struct mics_cursor *at, struct mics_plan_choice *out)
{
    if (!mics_cursor_has(at, "outer_steps"))
        return;
    out->outer_steps = mics_cursor_get_u32(at, "outer_steps", 1, MICS_OUTER_STEPS_MAX);
    out->outer_lr = mics_cursor_get_double(at, "outer_lr", 0, MICS_OUTER_LR_MAX);
    out->outer_momentum = mics_cursor_get_double(at, "outer_momentum", 0, 1);
    out->outer_overlap = mics_cursor_opt_bool(at, "outer_overlap", false);
}

/* Without the member: mics. */
static enum mics_trainer read_trainer(const struct mics_cursor *at)
{
    enum mics_trainer trainer = MICS_TRAINER_MICS;

    if (!mics_cursor_has(at, "trainer"))
        return trainer;
    const char *text = mics_cursor_get_string(at, "trainer");
    if (!mics_trainer_parse(text, &trainer))
        mics_cursor_reject(at, "trainer", "'%s': no such trainer", text);
    return trainer;
}

static void read_choice(const struct mics_cursor *parent, const struct mics_plan *plan,
                        struct mics_plan_choice *out)
{
    const struct mics_cursor at = mics_cursor_get_object(parent, "choice");
    struct mics_shape shape;
    struct mics_err why;

    mics_cursor_get_text(&at, "strategy", out->strategy, sizeof out->strategy);
    out->optimizer = read_optimizer(&at);
    out->dtype = read_dtype(&at, "dtype");
    out->grad_dtype = read_dtype(&at, "grad_dtype");
    read_formats(&at, out);
    out->recompute = read_recompute(&at);
    for (size_t i = 0; i < CHOICE_NUMBERS; i++) {
        const struct choice_number *number = &choice_numbers[i];

        *(uint32_t *)((char *)out + number->offset) =
            mics_cursor_get_u32(&at, number->key, number->min, number->max) + number->less;
    }
    for (size_t i = 0; i < CHOICE_FLAGS; i++)
        *(bool *)((char *)out + choice_flags[i].offset) =
            mics_cursor_get_bool(&at, choice_flags[i].key);
    out->sync_interval = mics_cursor_opt_u32(&at, "sync_interval", 2, MICS_INTERVAL_MAX, 1);
    out->sync_warmup = mics_cursor_opt_u32(&at, "sync_warmup", 1, MICS_SYNC_WARMUP_MAX, 0);
    read_outer(&at, out);
    out->secondary_shards = mics_cursor_opt_bool(&at, "secondary_shards", false);
    out->dispatches = mics_cursor_opt_bool(&at, "resident_experts", false);
    out->expert_load = mics_cursor_opt_double(&at, "expert_load", 1, MICS_EXPERTS_MAX, 0);
    out->offload_piece = mics_cursor_opt_u32(&at, "offload_piece", MICS_OFFLOAD_PIECE_MIN,
                                             MICS_OFFLOAD_PIECE_MAX, 0);
    out->trainer = read_trainer(&at);
    out->whole_grads = mics_cursor_opt_bool(&at, "whole_gradients", false);
    if (out->whole_grads && !out->trainer)
        mics_cursor_reject(&at, "whole_gradients", "only goes with trainer");
    shape = out->shapes[MICS_UNIT_DENSE];
    shape.nodes = plan->topology->nodes;
    shape.per_node = plan->topology->per_node;
    mics_choice_set_shape(out, shape);
    if (mics_cursor_has(&at, "experts")) {
        const struct mics_cursor experts = mics_cursor_get_object(&at, "experts");

        shape.p_param = mics_cursor_get_u32(&experts, "p_param", 1, UINT32_MAX);
        shape.p_grad = mics_cursor_get_u32(&experts, "p_grad", 1, UINT32_MAX);
        shape.p_optim = mics_cursor_get_u32(&experts, "p_optim", 1, UINT32_MAX);
        out->shapes[MICS_UNIT_EXPERT] = shape;
    }
    if (mics_cursor_ok(&at) && mics_choice_check(plan->model, out, &why) != MICS_OK)
        mics_cursor_reject(&at, NULL, "%s", why.text);
}

static void read_prediction(const struct mics_cursor *parent, struct mics_prediction *out)
{
    const struct mics_cursor at = mics_cursor_get_object(parent, "predicted");

    out->net_bytes = mics_cursor_get_u64(&at, "net_bytes", 0, INT64_MAX);
    out->sent_bytes = mics_cursor_get_u64(&at, "sent_bytes", 0, INT64_MAX);
    for (size_t i = 0; i < PREDICTION_REALS; i++)
        *(double *)((char *)out + prediction_reals[i].offset) =
            mics_cursor_get_double(&at, prediction_reals[i].key, 0, 1e18);
}

/* Rates are written for readers of the document, and computed from the step here. */
static void read_range(const struct mics_cursor *root, struct mics_step_range *out)
{
    if (!mics_cursor_has(root, "range"))
        return;

    const struct mics_cursor at = mics_cursor_get_object(root, "range");
    const struct mics_cursor errors = mics_cursor_get_object(&at, "errors");

    out->low_s = mics_cursor_get_double(&at, "step_low_s", 1e-12, 1e18);
    out->high_s = mics_cursor_get_double(&at, "step_high_s", out->low_s, 1e18);
    for (int c = 0; c < MICS_COST_CLASS_COUNT; c++) {
        const char *name = mics_cost_class_name((enum mics_cost_class)c);
        struct mics_cost_error *error = &out->errors[c];

        *error = (struct mics_cost_error){1, 1, MICS_ERROR_NONE};
        if (!mics_cursor_has(&errors, name))
            continue;
        const struct mics_cursor each = mics_cursor_get_object(&errors, name);
        const char *source = mics_cursor_get_string(&each, "source");

        error->low = mics_cursor_get_double(&each, "low", 1e-6, 1);
        error->high = mics_cursor_get_double(&each, "high", 1, 1e6);
        while (error->source < MICS_ERROR_SOURCE_COUNT &&
               strcmp(source, mics_error_source_name(error->source)) != 0)
            error->source++;
        if (error->source == MICS_ERROR_SOURCE_COUNT) {
            error->source = MICS_ERROR_NONE;
            mics_cursor_reject(&each, "source", "'%s': expected published, measured or assumed",
                               source);
        }
    }
}

static void expect_bytes(const struct mics_cursor *at, const char *key, uint64_t computed)
{
    const uint64_t found = mics_cursor_get_u64(at, key, 0, INT64_MAX);

    if (found != computed)
        mics_cursor_reject(at, key, "says %" PRIu64 ", but this choice takes %" PRIu64, found,
                           computed);
}

static void check_memory(const struct mics_cursor *root, const struct mics_memory *memory)
{
    const struct mics_cursor at = mics_cursor_get_object(root, "memory");
    const struct mics_cursor regions =
        mics_cursor_get_array(&at, "regions", MICS_REGION_COUNT, MICS_REGION_COUNT);

    for (uint32_t i = 0; i < MICS_REGION_COUNT; i++) {
        const struct mics_cursor region = mics_cursor_get_item(&regions, i);

        expect_bytes(&region, "bytes", memory->regions[i].bytes);
        expect_bytes(&region, "offset", memory->regions[i].offset);
    }
    expect_bytes(&at, "arena_bytes", memory->arena_bytes);
    expect_bytes(&at, "process_bytes", memory->process_bytes);
    expect_bytes(&at, "pinned_bytes", memory->pinned_bytes);
    if (memory->offload_bytes > 0)
        expect_bytes(&at, "offload_bytes", memory->offload_bytes);
    expect_bytes(&at, "workspace_bytes", memory->workspace_bytes);
    expect_bytes(&at, "context_bytes", memory->context_bytes);
    expect_bytes(&at, "communicator_bytes", memory->communicator_bytes);
    expect_bytes(&at, "snapshot_bytes", memory->snapshot_bytes);
}

static void read_alternatives(const struct mics_cursor *root, struct mics_plan *plan)
{
    const struct mics_cursor array =
        mics_cursor_get_array(root, "alternatives", 0, MAX_ALTERNATIVES);

    plan->alternatives = mics_cursor_calloc(&array, sizeof *plan->alternatives);
    plan->alternative_count = plan->alternatives ? (uint32_t)mics_cursor_count(&array) : 0;
    for (size_t i = 0; i < plan->alternative_count && mics_cursor_ok(root); i++) {
        const struct mics_cursor at = mics_cursor_get_item(&array, i);
        struct mics_alternative *out = &plan->alternatives[i];

        read_choice(&at, plan, &out->choice);
        out->total_bytes = mics_cursor_get_u64(&at, "total_bytes", 0, INT64_MAX);
        out->fits = mics_cursor_get_bool(&at, "fits");
        mics_cursor_get_text(&at, "why", out->why, sizeof out->why);
        if (out->fits)
            read_prediction(&at, &out->predicted);
    }
}

/* Topology and model are read as their own kinds; the path in their errors begins with the key. */
static void read_parts(const struct mics_cursor *root, struct mics_plan *plan)
{
    const struct mics_cursor topology = mics_cursor_get_object(root, "topology");
    const struct mics_cursor model = mics_cursor_get_object(root, "model");
    struct mics_reading *reading = root->reading;

    if (!mics_cursor_ok(root))
        return;
    reading->status =
        mics_topology_from_doc((json_t *)(uintptr_t)topology.value, &plan->topology, reading->err);
    if (reading->status != MICS_OK) {
        mics_err_prefix(reading->err, "topology");
        return;
    }
    reading->status = mics_model_from_json(model.value, &plan->model, reading->err);
    if (reading->status == MICS_OK)
        return;
    mics_err_prefix(reading->err, "model");
    if (reading->status != MICS_ERR_NOMEM) /* a family that is not known, too */
        reading->status = MICS_ERR_FORMAT;
}

static void read_batch(const struct mics_cursor *root, struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const uint64_t batch =
        (uint64_t)mics_choice_world_size(choice) * choice->micro_batch * choice->micro_steps;

    plan->global_batch = mics_cursor_get_u64(root, "global_batch", 1, INT64_MAX);
    if (plan->global_batch != batch)
        mics_cursor_reject(
            root, "global_batch",
            "says %" PRIu64 ", but %u x %u ranks with %u micro-steps of %u make %" PRIu64,
            plan->global_batch, mics_choice_nodes(choice), mics_choice_per_node(choice),
            choice->micro_steps, choice->micro_batch, batch);
}

/* Its costs are computed from the plan, not read. */
static void read_kept(const struct mics_cursor *root, struct mics_plan *plan)
{
    if (!mics_cursor_has(root, "kept"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(root, "kept");
    plan->memory_every = mics_cursor_get_u64(&at, "every", 1, UINT32_MAX);
    plan->memory_copies = mics_cursor_get_u32(&at, "copies", 1, MICS_MEMORY_COPIES_MAX);
}

static void read_offload(const struct mics_cursor *root, struct mics_plan *plan)
{
    const char *how = mics_cursor_opt_string(root, "offload", "");

    plan->offload_auto = strcmp(how, "auto") == 0;
    if (how[0] && !plan->offload_auto)
        mics_cursor_reject(root, "offload", "'%.16s': expected auto", how);
}

static void read_expert_ways(const struct mics_cursor *root, struct mics_expert_ways *out)
{
    if (!mics_cursor_has(root, "experts"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(root, "experts");
    out->gathered_step_s = mics_cursor_get_double(&at, "gathered_step_s", 0, 1e18);
    out->resident_step_s = mics_cursor_get_double(&at, "resident_step_s", 0, 1e18);
    out->gathered_s = mics_cursor_get_double(&at, "gathered_s", 0, 1e18);
    out->resident_s = mics_cursor_get_double(&at, "resident_s", 0, 1e18);
    if (!mics_cursor_has(&at, "load")) /* of the first plans */
        return;
    out->load = mics_cursor_get_double(&at, "load", 1, MICS_EXPERTS_MAX);
    out->even_step_s = mics_cursor_get_double(&at, "even_step_s", 0, 1e18);
    out->worst_step_s = mics_cursor_get_double(&at, "worst_step_s", 0, 1e18);
    out->worst_load = mics_cursor_get_double(&at, "worst_load", 1, MICS_EXPERTS_MAX);
    out->crossing_load = mics_cursor_get_double(&at, "crossing_load", 0, MICS_EXPERTS_MAX);
}

/* Its results (seconds, hours, price) are computed from the plan, not read. */
static void read_training(const struct mics_cursor *root, struct mics_training *out)
{
    if (!mics_cursor_has(root, "training"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(root, "training");
    out->tokens = mics_cursor_get_u64(&at, "tokens", 1, INT64_MAX);
    out->node_hour_price = mics_cursor_opt_double(&at, "node_hour_price", 0, 1e12, 0);
    if (mics_cursor_has(&at, "node_hour_price"))
        mics_cursor_get_text(&at, "currency", out->currency, sizeof out->currency);
}

enum mics_status mics_plan_from_doc(json_t *doc, struct mics_plan **out, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    enum mics_status status = mics_doc_expect(doc, MICS_PLAN_KIND, MICS_PLAN_VERSION, err);
    struct mics_plan *plan;
    struct mics_err why;

    if (status != MICS_OK)
        return status;
    plan = calloc(1, sizeof *plan);
    if (!plan)
        return mics_err_nomem(err);
    plan->doc = json_incref(doc);
    read_parts(&root, plan);
    if (reading.status != MICS_OK)
        goto out;
    read_choice(&root, plan, &plan->choice);
    read_batch(&root, plan);
    plan->memory_limit = mics_cursor_get_u64(&root, "memory_limit_bytes", 0, INT64_MAX);
    if (reading.status != MICS_OK)
        goto out;
    reading.status =
        mics_memory_compute_on(plan->topology, plan->model, &plan->choice, &plan->memory, &why);
    if (reading.status == MICS_ERR_NOMEM)
        mics_err_nomem(err);
    if (reading.status == MICS_ERR_ARG) {
        reading.status = MICS_OK;
        mics_cursor_reject(&root, "choice", "%s", why.text);
    }
    if (reading.status != MICS_OK)
        goto out;
    check_memory(&root, &plan->memory);
    read_prediction(&root, &plan->predicted);
    read_range(&root, &plan->range);
    plan->exact_step_s = mics_cursor_opt_double(&root, "exact_step_s", 0, 1e18, 0);
    plan->on_device_step_s = mics_cursor_opt_double(&root, "on_device_step_s", 0, 1e18, 0);
    read_offload(&root, plan);
    read_expert_ways(&root, &plan->experts);
    mics_class_times_read(&root, "operations", &plan->classes);
    read_kept(&root, plan);
    read_training(&root, &plan->training);
    read_alternatives(&root, plan);
out:
    if (reading.status != MICS_OK) {
        mics_plan_free(plan);
        return reading.status;
    }
    *out = plan;
    return MICS_OK;
}

enum mics_status mics_plan_read_file(const char *path, struct mics_plan **out, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_doc_read_file(path, &doc, err);

    if (status != MICS_OK)
        return status;
    status = mics_plan_from_doc(doc, out, err);
    json_decref(doc);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    return status;
}

enum mics_status mics_plan_own_from_doc(json_t *doc, struct mics_plan **out, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    const enum mics_status status = mics_plan_from_doc(doc, &plan, err);

    if (status != MICS_OK)
        return status;
    if (plan->choice.trainer == MICS_TRAINER_MICS) {
        *out = plan;
        return MICS_OK;
    }
    mics_err_set(err, MICS_ERR_ARG,
                 "the plan is for %s, with the memory that it takes; one for mics is made without "
                 "--for",
                 mics_trainer_name(plan->choice.trainer));
    mics_plan_free(plan);
    return MICS_ERR_ARG;
}

/* Takes ownership of `value`; false: out of memory. */
static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static bool put_count(json_t *object, const char *key, uint64_t value)
{
    return put(object, key, json_integer((json_int_t)value));
}

/* Only what differs from the default. */
static bool put_formats(json_t *object, const struct mics_plan_choice *choice)
{
    const struct {
        const char *key;
        enum mics_dtype dtype;
    } formats[] = {{"sync_dtype", choice->sync_dtype},
                   {"sync_down_dtype", choice->sync_down_dtype},
                   {"gather_dtype", choice->gather_dtype}};
    bool done = true;

    for (size_t i = 0; i < COUNT(formats) && done; i++)
        done = !mics_dtype_is_blocks(formats[i].dtype) ||
               put(object, formats[i].key, json_string(mics_dtype_name(formats[i].dtype)));
    return done && (!choice->sync_gathers || put(object, "sync_gathers", json_true())) &&
           (!choice->sync_stochastic || put(object, "sync_stochastic", json_true())) &&
           (!choice->sync_exact_units ||
            put_count(object, "sync_exact_units", choice->sync_exact_units));
}

static json_t *write_choice(const struct mics_plan_choice *choice)
{
    json_t *object = json_object();
    bool done = put(object, "strategy", json_string(choice->strategy)) &&
                put(object, "recompute", json_string(mics_recompute_name(choice->recompute))) &&
                put(object, "optimizer", json_string(mics_optimizer_name(choice->optimizer))) &&
                put(object, "dtype", json_string(mics_dtype_name(choice->dtype))) &&
                put(object, "grad_dtype", json_string(mics_dtype_name(choice->grad_dtype)));

    for (size_t i = 0; i < CHOICE_NUMBERS && done; i++)
        done = put_count(object, choice_numbers[i].key,
                         *(const uint32_t *)((const char *)choice + choice_numbers[i].offset) -
                             choice_numbers[i].less);
    for (size_t i = 0; i < CHOICE_FLAGS && done; i++)
        done = put(object, choice_flags[i].key,
                   json_boolean(*(const bool *)((const char *)choice + choice_flags[i].offset)));
    done = done && put_formats(object, choice);
    if (mics_choice_interval(choice) > 1)
        done = done && put_count(object, "sync_interval", choice->sync_interval);
    if (choice->outer_steps > 0)
        done = done && put_count(object, "outer_steps", choice->outer_steps) &&
               put(object, "outer_lr", json_real(choice->outer_lr)) &&
               put(object, "outer_momentum", json_real(choice->outer_momentum));
    if (choice->outer_overlap)
        done = done && put(object, "outer_overlap", json_true());
    if (choice->sync_warmup > 0)
        done = done && put_count(object, "sync_warmup", choice->sync_warmup);
    if (choice->secondary_shards)
        done = done && put(object, "secondary_shards", json_true());
    if (choice->dispatches)
        done = done && put(object, "resident_experts", json_true()) &&
               put(object, "expert_load", json_real(mics_choice_expert_load(choice)));
    if (choice->offload_piece > 0)
        done = done && put_count(object, "offload_piece", choice->offload_piece);
    if (choice->trainer != MICS_TRAINER_MICS)
        done = done && put(object, "trainer", json_string(mics_trainer_name(choice->trainer)));
    if (choice->whole_grads)
        done = done && put(object, "whole_gradients", json_true());
    if (done && mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT) {
        const struct mics_shape *shape = &choice->shapes[MICS_UNIT_EXPERT];
        json_t *experts = json_object();

        done = put_count(experts, "p_param", shape->p_param) &&
               put_count(experts, "p_grad", shape->p_grad) &&
               put_count(experts, "p_optim", shape->p_optim) && put(object, "experts", experts);
    }
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_prediction(const struct mics_prediction *predicted)
{
    json_t *object = json_object();
    bool done = put_count(object, "net_bytes", predicted->net_bytes) &&
                put_count(object, "sent_bytes", predicted->sent_bytes);

    for (size_t i = 0; i < PREDICTION_REALS && done; i++)
        done =
            put(object, prediction_reals[i].key,
                json_real(*(const double *)((const char *)predicted + prediction_reals[i].offset)));
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_range(const struct mics_plan *plan)
{
    const struct mics_step_range *range = &plan->range;
    const double tokens = plan->predicted.tokens_per_s * plan->predicted.step_s;
    json_t *errors = json_object();
    bool done = errors != NULL;

    for (int c = 0; c < MICS_COST_CLASS_COUNT && done; c++) {
        const struct mics_cost_error *error = &range->errors[c];

        if (error->source != MICS_ERROR_NONE)
            done = put(errors, mics_cost_class_name((enum mics_cost_class)c),
                       json_pack("{s:f, s:f, s:s}", "low", error->low, "high", error->high,
                                 "source", mics_error_source_name(error->source)));
    }
    if (done)
        return json_pack("{s:f, s:f, s:f, s:f, s:o}", "step_low_s", range->low_s, "step_high_s",
                         range->high_s, "tokens_per_s_low", tokens / range->high_s,
                         "tokens_per_s_high", tokens / range->low_s, "errors", errors);
    json_decref(errors);
    return NULL;
}

static json_t *write_memory(const struct mics_plan *plan)
{
    const struct mics_memory *memory = &plan->memory;
    json_t *object = json_object(), *regions = json_array();
    bool done = put_count(object, "arena_bytes", memory->arena_bytes) &&
                put_count(object, "workspace_bytes", memory->workspace_bytes) &&
                put_count(object, "context_bytes", memory->context_bytes) &&
                put_count(object, "communicator_bytes", memory->communicator_bytes) &&
                put_count(object, "snapshot_bytes", memory->snapshot_bytes) &&
                put_count(object, "process_bytes", memory->process_bytes) &&
                put_count(object, "pinned_bytes", memory->pinned_bytes) &&
                put_count(object, "host_bytes_per_node",
                          mics_memory_host(memory, plan->topology) * plan->topology->per_node) &&
                put(object, "regions", regions);

    if (memory->offload_bytes > 0)
        done = done && put_count(object, "offload_bytes", memory->offload_bytes);
    for (int i = 0; i < MICS_REGION_COUNT && done; i++) {
        const struct mics_region *region = &memory->regions[i];

        done = json_array_append_new(regions, json_pack("{s:s, s:I, s:I}", "name", region->name,
                                                        "bytes", (json_int_t)region->bytes,
                                                        "offset", (json_int_t)region->offset)) == 0;
    }
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_alternative(const struct mics_alternative *alternative)
{
    json_t *object = json_object();
    bool done = put(object, "choice", write_choice(&alternative->choice)) &&
                put_count(object, "total_bytes", alternative->total_bytes) &&
                put(object, "fits", json_boolean(alternative->fits)) &&
                put(object, "why", json_string(alternative->why)) &&
                put(object, "predicted",
                    alternative->fits ? write_prediction(&alternative->predicted) : json_null());

    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_alternatives(const struct mics_plan *plan)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < plan->alternative_count; i++) {
        if (json_array_append_new(array, write_alternative(&plan->alternatives[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *write_training(const struct mics_plan *plan)
{
    const struct mics_training *training = &plan->training;
    const struct mics_training_cost cost = mics_plan_training_cost(plan);
    json_t *object =
        json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)training->tokens, "seconds",
                  cost.seconds, "rank_hours", cost.rank_hours, "node_hours", cost.node_hours);

    if (!object || training->node_hour_price <= 0)
        return object;
    if (put(object, "node_hour_price", json_real(training->node_hour_price)) &&
        put(object, "currency", json_string(training->currency)) &&
        put(object, "price", json_real(cost.price)))
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_kept(const struct mics_plan *plan)
{
    const struct mics_memory_ckpt_cost cost = mics_plan_memory_ckpt_cost(plan);

    return json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:f, s:I}", "every", (json_int_t)plan->memory_every, "copies",
        (json_int_t)(plan->memory_copies ? plan->memory_copies : MICS_MEMORY_COPIES), "node_bytes",
        (json_int_t)cost.node_bytes, "net_bytes", (json_int_t)cost.net_bytes, "copy_s", cost.copy_s,
        "step_s", cost.step_s, "nodes_to_lose", (json_int_t)cost.nodes_to_lose);
}

/* The history of the topology becomes that of the plan. */
static bool put_topology(json_t *doc, json_t *topology)
{
    json_t *history = json_incref(json_object_get(topology, "history"));
    bool done = true;

    json_object_del(topology, "history");
    if (history && !json_object_get(doc, "history"))
        done = json_object_set(doc, "history", history) == 0;
    json_decref(history);
    return put(doc, "topology", topology) && done;
}

static json_t *write_expert_ways(const struct mics_expert_ways *ways)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "gathered_step_s",
                     ways->gathered_step_s, "resident_step_s", ways->resident_step_s, "gathered_s",
                     ways->gathered_s, "resident_s", ways->resident_s, "load", ways->load,
                     "even_step_s", ways->even_step_s, "worst_step_s", ways->worst_step_s,
                     "worst_load", ways->worst_load, "crossing_load", ways->crossing_load);
}

enum mics_status mics_plan_to_doc(const struct mics_plan *plan, json_t **out, struct mics_err *err)
{
    json_t *topology = NULL, *doc;
    enum mics_status status = mics_topology_to_doc(plan->topology, &topology, err);
    bool done;

    if (status != MICS_OK)
        return status;
    doc = plan->doc ? json_deep_copy(plan->doc) : mics_doc_new(MICS_PLAN_KIND, MICS_PLAN_VERSION);
    done = put(doc, "model", mics_model_to_json(plan->model));
    done = put_topology(doc, topology) && done;
    done = done && put_count(doc, "global_batch", plan->global_batch) &&
           put_count(doc, "memory_limit_bytes", plan->memory_limit) &&
           put(doc, "choice", write_choice(&plan->choice)) &&
           put(doc, "memory", write_memory(plan)) &&
           put(doc, "predicted", write_prediction(&plan->predicted)) &&
           (plan->range.low_s <= 0 || put(doc, "range", write_range(plan))) &&
           (plan->exact_step_s <= 0 || put(doc, "exact_step_s", json_real(plan->exact_step_s))) &&
           (plan->on_device_step_s <= 0 ||
            put(doc, "on_device_step_s", json_real(plan->on_device_step_s))) &&
           (!plan->offload_auto || put(doc, "offload", json_string("auto"))) &&
           (plan->experts.gathered_step_s <= 0 ||
            put(doc, "experts", write_expert_ways(&plan->experts))) &&
           put(doc, "operations", mics_class_times_to_json(&plan->classes)) &&
           (plan->memory_every == 0 || put(doc, "kept", write_kept(plan))) &&
           (plan->training.tokens == 0 || put(doc, "training", write_training(plan))) &&
           put(doc, "alternatives", write_alternatives(plan));
    if (!done) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}
