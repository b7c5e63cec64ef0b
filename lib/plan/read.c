/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - a plan from a document, checked against itself.
 *
 * What can be computed is computed again: the batch from its parts, and every region of memory. A document that
 * says something else was made by other code or by hand, and would not run as it says.
 */
#include "doc/cursor.h"
#include "doc/doc.h"
#include "plan/doc.h"
#include "plan/memory.h"
#include "plan/slots.h"
#include "plan/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum mics_status read_optimizer(const struct mics_at *at, enum mics_optimizer *out,
                                       struct mics_err *err)
{
    const char *text;
    enum mics_status status = mics_at_string(at, "optimizer", &text, err);

    if (status == MICS_OK && !mics_optimizer_parse(text, out))
        return mics_at_fail(at, "optimizer", err, "'%s': expected one of " MICS_OPTIMIZER_NAMES,
                            text);
    return status;
}

/* Plans from before there was a choice do not say it, and are of fp32. */
static enum mics_status read_dtype(const struct mics_at *at, const char *key, enum mics_dtype *out,
                                   struct mics_err *err)
{
    const char *text;
    enum mics_status status;

    *out = MICS_F32;
    if (!mics_at_has(at, key))
        return MICS_OK;
    status = mics_at_string(at, key, &text, err);
    if (status == MICS_OK && !mics_dtype_parse(text, out))
        return mics_at_fail(at, key, err, "'%s': expected f32 or bf16", text);
    return status;
}

static enum mics_status read_recompute(const struct mics_at *at, json_int_t version,
                                       enum mics_recompute *out, struct mics_err *err)
{
    const char *text;
    bool full = false;
    enum mics_status status;

    if (version == 1) {
        status = mics_at_bool(at, "recompute", &full, err);
        *out = full ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
        return status;
    }
    status = mics_at_string(at, "recompute", &text, err);
    if (status == MICS_OK && !mics_recompute_parse(text, out))
        return mics_at_fail(at, "recompute", err, "'%s': expected none, selective or full", text);
    return status;
}

static enum mics_status read_choice(const struct mics_at *parent, const struct mics_plan *plan,
                                    struct mics_plan_choice *out, struct mics_err *err)
{
    const json_int_t version = json_integer_value(json_object_get(plan->doc, "v"));
    struct mics_at at;
    struct mics_err why;
    enum mics_status status = mics_at_object(parent, "choice", &at, err);

    if (status == MICS_OK)
        status = mics_at_text(&at, "strategy", out->strategy, sizeof out->strategy, err);
    if (status == MICS_OK)
        status = read_optimizer(&at, &out->optimizer, err);
    if (status == MICS_OK)
        status = read_dtype(&at, "dtype", &out->dtype, err);
    if (status == MICS_OK)
        status = read_dtype(&at, "grad_dtype", &out->grad_dtype, err);
    if (status == MICS_OK)
        status = read_recompute(&at, version, &out->recompute, err);
    for (size_t i = 0; i < mics_choice_number_count && status == MICS_OK; i++) {
        const struct mics_choice_number *number = &mics_choice_numbers[i];

        if (number->offset == offsetof(struct mics_plan_choice, joined) &&
            !mics_at_has(&at, number->key))
            continue; /* of a plan from before it: 0 */
        status = mics_at_u32(&at, number->key, number->min, number->max,
                             (uint32_t *)((char *)out + number->offset), err);
    }
    for (size_t i = 0; i < mics_choice_flag_count && status == MICS_OK; i++)
        status = mics_at_bool(&at, mics_choice_flags[i].key,
                              (bool *)((char *)out + mics_choice_flags[i].offset), err);
    if (status != MICS_OK)
        return status;
    out->shape.nodes = plan->topology->nodes;
    out->shape.per_node = plan->topology->per_node;
    if (mics_choice_check(plan->model, out, &why) != MICS_OK)
        return mics_at_fail(&at, NULL, err, "%s", why.text);
    return MICS_OK;
}

static enum mics_status read_prediction(const struct mics_at *parent, struct mics_prediction *out,
                                        struct mics_err *err)
{
    struct mics_at at;
    enum mics_status status = mics_at_object(parent, "predicted", &at, err);

    if (status == MICS_OK)
        status = mics_at_u64(&at, "net_bytes", 0, INT64_MAX, &out->net_bytes, err);
    if (status == MICS_OK)
        status = mics_at_u64(&at, "sent_bytes", 0, INT64_MAX, &out->sent_bytes, err);
    for (size_t i = 0; i < mics_prediction_real_count && status == MICS_OK; i++)
        status = mics_at_double(&at, mics_prediction_reals[i].key, 0, 1e18,
                                (double *)((char *)out + mics_prediction_reals[i].offset), err);
    return status;
}

static enum mics_status expect_bytes(const struct mics_at *at, const char *key, uint64_t computed,
                                     struct mics_err *err)
{
    uint64_t found;
    enum mics_status status = mics_at_u64(at, key, 0, INT64_MAX, &found, err);

    if (status == MICS_OK && found != computed)
        return mics_at_fail(at, key, err, "says %" PRIu64 ", but this choice takes %" PRIu64, found,
                            computed);
    return status;
}

/* Version 1 does not have what a GPU's context and communicators take; the computed values stand. */
static enum mics_status check_gpu_memory(const struct mics_at *at, const struct mics_memory *memory,
                                         json_int_t version, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (version == 1)
        return status;
    status = expect_bytes(at, "context_bytes", memory->context_bytes, err);
    if (status == MICS_OK)
        status = expect_bytes(at, "communicator_bytes", memory->communicator_bytes, err);
    return status;
}

static enum mics_status check_memory(const struct mics_at *root, const struct mics_memory *memory,
                                     struct mics_err *err)
{
    const json_int_t version = json_integer_value(json_object_get(root->value, "v"));
    struct mics_at at, regions;
    enum mics_status status = mics_at_object(root, "memory", &at, err);

    if (status == MICS_OK)
        status = mics_at_array(&at, "regions", MICS_REGION_COUNT, MICS_REGION_COUNT, &regions, err);
    for (uint32_t i = 0; i < MICS_REGION_COUNT && status == MICS_OK; i++) {
        struct mics_at region;

        status = mics_at_item(&regions, i, &region, err);
        if (status == MICS_OK)
            status = expect_bytes(&region, "bytes", memory->regions[i].bytes, err);
        if (status == MICS_OK)
            status = expect_bytes(&region, "offset", memory->regions[i].offset, err);
    }
    if (status == MICS_OK)
        status = expect_bytes(&at, "arena_bytes", memory->arena_bytes, err);
    if (status == MICS_OK)
        status = expect_bytes(&at, "workspace_bytes", memory->workspace_bytes, err);
    if (status == MICS_OK)
        status = check_gpu_memory(&at, memory, version, err);
    if (status == MICS_OK)
        status = expect_bytes(&at, "snapshot_bytes", memory->snapshot_bytes, err);
    return status;
}

static enum mics_status read_alternative(const struct mics_at *at, const struct mics_plan *plan,
                                         struct mics_alternative *out, struct mics_err *err)
{
    enum mics_status status = read_choice(at, plan, &out->choice, err);

    if (status == MICS_OK)
        status = mics_at_u64(at, "total_bytes", 0, INT64_MAX, &out->total_bytes, err);
    if (status == MICS_OK)
        status = mics_at_bool(at, "fits", &out->fits, err);
    if (status == MICS_OK)
        status = mics_at_text(at, "why", out->why, sizeof out->why, err);
    if (status == MICS_OK && out->fits)
        status = read_prediction(at, &out->predicted, err);
    return status;
}

static enum mics_status read_alternatives(const struct mics_at *root, struct mics_plan *plan,
                                          struct mics_err *err)
{
    struct mics_at array;
    enum mics_status status =
        mics_at_array(root, "alternatives", 0, MICS_PLAN_MAX_ALTERNATIVES, &array, err);
    size_t count;

    if (status != MICS_OK)
        return status;
    count = mics_at_count(&array);
    plan->alternatives = calloc(count + 1, sizeof *plan->alternatives);
    if (!plan->alternatives)
        return mics_err_nomem(err);
    plan->alternative_count = (uint32_t)count;
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        struct mics_at at;

        status = mics_at_item(&array, i, &at, err);
        if (status == MICS_OK)
            status = read_alternative(&at, plan, &plan->alternatives[i], err);
    }
    return status;
}

/* Topology and model are read as their own kinds; their errors get the key before them. */
static enum mics_status read_parts(const struct mics_at *root, struct mics_plan *plan,
                                   struct mics_err *err)
{
    struct mics_at topology, model;
    enum mics_status status = mics_at_object(root, "topology", &topology, err);

    if (status == MICS_OK)
        status = mics_at_object(root, "model", &model, err);
    if (status != MICS_OK)
        return status;
    status = mics_topology_from_doc((json_t *)(uintptr_t)topology.value, &plan->topology, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "topology");
        return status;
    }
    status = mics_model_from_json(model.value, &plan->model, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "model");
    return status;
}

static enum mics_status read_batch(const struct mics_at *root, struct mics_plan *plan,
                                   struct mics_err *err)
{
    const struct mics_plan_choice *choice = &plan->choice;
    uint64_t batch = (uint64_t)choice->shape.nodes * choice->shape.per_node * choice->micro_batch;
    enum mics_status status =
        mics_at_u64(root, "global_batch", 1, INT64_MAX, &plan->global_batch, err);

    if (status != MICS_OK || plan->global_batch == batch * choice->micro_steps)
        return status;
    return mics_at_fail(root, "global_batch", err,
                        "says %" PRIu64
                        ", but %u x %u ranks with %u micro-steps of %u make %" PRIu64,
                        plan->global_batch, choice->shape.nodes, choice->shape.per_node,
                        choice->micro_steps, choice->micro_batch, batch * choice->micro_steps);
}

static enum mics_status read_plan(const struct mics_at *root, struct mics_plan *plan,
                                  struct mics_err *err)
{
    enum mics_status status = read_parts(root, plan, err);

    if (status == MICS_OK)
        status = read_choice(root, plan, &plan->choice, err);
    if (status == MICS_OK)
        status = read_batch(root, plan, err);
    if (status == MICS_OK)
        status = mics_at_u64(root, "memory_limit_bytes", 0, INT64_MAX, &plan->memory_limit, err);
    if (status == MICS_OK)
        status = mics_memory_on(plan->topology, plan->model, &plan->choice, &plan->memory, err);
    if (status == MICS_OK)
        status = check_memory(root, &plan->memory, err);
    if (status == MICS_OK)
        status = read_prediction(root, &plan->predicted, err);
    if (status == MICS_OK)
        status = read_alternatives(root, plan, err);
    return status;
}

enum mics_status mics_plan_from_doc(json_t *doc, struct mics_plan **out, struct mics_err *err)
{
    enum mics_status status = mics_doc_expect(doc, MICS_PLAN_KIND, MICS_PLAN_VERSION, err);
    struct mics_at root = mics_at_root(doc);
    struct mics_plan *plan;

    if (status != MICS_OK)
        return status;
    plan = calloc(1, sizeof *plan);
    if (!plan)
        return mics_err_nomem(err);
    plan->doc = json_incref(doc);
    status = read_plan(&root, plan, err);
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    *out = plan;
    return MICS_OK;
}
