/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"

#include "cases.h"
#include "unit/tap.h"

#include <stdlib.h>

void walk_check_counts(const struct parity_case *c, const struct parity_result *result)
{
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return;
    for (uint32_t rank = 0; rank < result->n; rank++) {
        mics_schedule_counts(schedule, &c->choice, rank, calls, sent);
        for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
            for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
                const struct mics_comm_counts *counts = &result->counts[rank][groups][kind];

                CHECK_INT(counts->calls, c->steps * calls[groups][kind]);
                if ((kind == MICS_COMM_DISPATCH || kind == MICS_COMM_COMBINE) && !c->op_durations)
                    /* What even loads send is the least that any loads do. */
                    CHECK(counts->sent_bytes >= c->steps * sent[groups][kind]);
                else
                    CHECK_INT(counts->sent_bytes, c->steps * sent[groups][kind]);
            }
    }
    mics_schedule_free(schedule);
}

/* The reference depends on the number of samples in a step only. */
static const struct parity_result *reference_of(struct walk *walk, const struct parity_case *c)
{
    const struct parity_case reference = parity_reference(c);
    const uint32_t samples = reference.choice.micro_steps * reference.choice.micro_batch;
    struct mics_err err;

    if (walk->reference && walk->reference_samples == samples)
        return walk->reference;
    parity_result_free(walk->reference);
    walk->reference = NULL;
    walk->reference_samples = samples;
    if (parity_run(&reference, &walk->reference, &err) != MICS_OK)
        printf("# the reference: %s\n", err.text);
    return walk->reference;
}

void walk_check_case(struct walk *walk, const struct parity_case *c)
{
    const int bad_before = tap_bad;
    struct parity_result *result = NULL;
    struct mics_err err = {""};
    const struct parity_result *reference = reference_of(walk, c);
    char name[160];

    walk->runs++;
    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    if (result && reference) {
        CHECK(parity_distance(c, reference, result) <= walk->tolerance);
        CHECK(result->replicas_agree);
        CHECK_NEAR(result->loss, reference->loss, walk->rounding * fabs(reference->loss));
        CHECK_NEAR(result->grad_norm, reference->grad_norm,
                   10 * walk->rounding * reference->grad_norm);
        CHECK_NEAR(result->eval_loss, reference->eval_loss,
                   walk->rounding * fabs(reference->eval_loss));
        CHECK_NEAR(result->eval_hits, reference->eval_hits, 1e-12);
        CHECK_INT(result->high_water <= result->arena_bytes, 1);
        walk_check_counts(c, result);
    }
    if (tap_bad != bad_before)
        printf("# in %s: %s, distance %g\n", cases_name(&c->choice, name, sizeof name), err.text,
               result && reference ? parity_distance(c, reference, result) : -1);
    parity_result_free(result);
}

/* With sanitizers, with which it takes minutes, only some of the cuts are run, others in each walk:
 * the threads and their memory are alike in all. */
static bool is_left_out(const struct mics_shape *shape)
{
    return mics_shape_world_size(shape) > 1 && tap_leaves_out(TAP_TSAN ? 17 : 7);
}

static void visit(const struct mics_shape *shape, void *context)
{
    struct walk *walk = context;

    struct parity_case c = {
        .model = walk->model,
        .choice = walk->base,
        .steps = 3,
        .lr = walk->lr,
        .clip = walk->clip,
        .random_delay_us = walk->random_delay_us,
        .slow_op = MICS_NONE,
        .documents = walk->documents,
    };

    mics_choice_set_shape(&c.choice, *shape);
    if (c.choice.dispatches && mics_choice_check(c.model, &c.choice, NULL) != MICS_OK)
        return;
    if (is_left_out(shape))
        return;
    walk_check_case(walk, &c);
    if (mics_shape_has_hierarchy(shape, shape->p_param) ||
        mics_shape_has_hierarchy(shape, shape->p_grad)) {
        c.choice.hierarchical_gather = mics_shape_has_hierarchy(shape, shape->p_param);
        c.choice.hierarchical_reduce = mics_shape_has_hierarchy(shape, shape->p_grad);
        walk_check_case(walk, &c);
    }
}

void walk_all(struct walk *walk, uint32_t n)
{
    cases_each_shape(n, visit, walk);
    parity_result_free(walk->reference);
    walk->reference = NULL;
}

struct walk walk_of(const struct mics_model *model, uint32_t micro_steps, uint32_t prefetch,
                    uint32_t segments)
{
    struct walk walk = {.model = model, .lr = 0.5f, .rounding = 1e-5};

    walk.base = cases_choice(&(struct mics_shape){1, 1, 1, 1, 1});
    walk.base.micro_steps = micro_steps;
    walk.base.prefetch = prefetch;
    walk.base.segments = segments;
    return walk;
}

struct walk walk_with_tolerance(const struct mics_model *model, uint32_t micro_steps,
                                uint32_t prefetch, uint32_t segments)
{
    struct walk walk = walk_of(model, micro_steps, prefetch, segments);

    walk.lr = 0.1f;
    walk.tolerance = GPT2_TOLERANCE;
    return walk;
}

static void visit_pairs(const struct mics_shape *shape, void *context)
{
    struct kinds_walk *kinds = context;

    for (int i = 0; i < kinds->count; i++) {
        struct parity_case c = {.model = kinds->walk.model,
                                .choice = kinds->walk.base,
                                .steps = 3,
                                .lr = kinds->walk.lr,
                                .clip = kinds->walk.clip,
                                .random_delay_us = kinds->walk.random_delay_us,
                                .slow_op = MICS_NONE};
        const bool swaps = kinds->pairs % 2;

        if (kinds->dense[i].nodes != shape->nodes || kinds->pairs++ % 3 != 0 || tap_leaves_out(7))
            continue;
        c.choice.shapes[MICS_UNIT_DENSE] = swaps ? *shape : kinds->dense[i];
        c.choice.shapes[MICS_UNIT_EXPERT] = swaps ? kinds->dense[i] : *shape;
        walk_check_case(&kinds->walk, &c);
    }
    kinds->dense[kinds->count++] = *shape;
}

void walk_pairs(struct kinds_walk *kinds, uint32_t n)
{
    cases_each_shape(n, visit_pairs, kinds);
    parity_result_free(kinds->walk.reference);
    kinds->walk.reference = NULL;
    printf("# %d runs\n", kinds->walk.runs);
    CHECK(kinds->walk.runs > 0);
}
