/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_outer.c - replicas that train on their own and meet every few steps.
 *
 * The reference is DiLoCo in one process: one engine of one rank for each replica, which trains on
 * that replica's samples; when they meet, the outer step is computed here, in double.
 */
#include "cases.h"
#include "unit/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 5e-6

enum { WORKERS_MAX = 4 };

/* Deliberate bugs of the reference, which the comparison must notice. */
enum mutant {
    NO_MUTANT,
    MOMENTUM_TWICE,
    ANCHOR_NOT_UPDATED,
    UNIT_LEFT_OUT,
    STEP_LOST,     /* of overlapping meetings only: the step after a meeting is lost, */
    NOT_DELAYED,   /* or has the gradient of the parameters after it, */
    MEETING_LATER, /* or what is exchanged is taken after it */
    MUTANT_COUNT
};

struct worker {
    const struct parity_case *c; /* of the sharded run */
    struct parity_case own;      /* one rank */
    struct mics_world *world;
    struct mics_device *device;
    struct mics_engine *engine;
    uint32_t replica, step;
    uint32_t overflows; /* the step in which its gradients overflow; 0: none */
};

/* The micro-steps of one rank are those of the replica's ranks, one rank after another. */
static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct worker *worker = context;
    const struct mics_plan_choice *choice = &worker->c->choice;
    const uint32_t n = mics_choice_world_size(choice), p = choice->shapes[0].p_optim;
    const uint64_t rank = worker->replica * p + micro_step % p;

    for (uint32_t b = 0; b < choice->micro_batch; b++)
        parity_sample(worker->c, worker->step,
                      (micro_step / p * n + rank) * choice->micro_batch + b,
                      tokens + b * choice->seq, targets + b * choice->seq);
}

static bool open_worker(struct worker *worker, const struct parity_case *c, uint32_t replica)
{
    struct mics_comm *comm = NULL;
    struct mics_err err = {""};

    *worker = (struct worker){.c = c, .own = parity_reference(c), .replica = replica};
    worker->own.choice.micro_steps = c->choice.micro_steps * c->choice.shapes[0].p_optim;
    worker->own.choice = mics_choice_warmup(&worker->own.choice);
    bool done = mics_comm_new_threads(1, &comm, &err) == MICS_OK &&
                mics_world_open_over(comm, 1, &worker->world, &err) == MICS_OK &&
                mics_device_new_host(1, &worker->device, &err) == MICS_OK;
    const struct mics_engine_options options = {
        .model = c->model,
        .choice = &worker->own.choice,
        .world = worker->world,
        .device = worker->device,
        .optimizer = parity_optimizer(c),
        .loss_scale = {
            .initial = 4096, .step = 2, .min = 1, .max = 65536, .window = 1000, .hysteresis = 2}};

    done = done && mics_engine_new(&options, &worker->engine, &err) == MICS_OK &&
           mics_engine_init(worker->engine, PARITY_INIT_SEED, &err) == MICS_OK;
    CHECK_STR(err.text, "");
    return done;
}

static void close_worker(struct worker *worker)
{
    mics_engine_free(worker->engine);
    if (worker->device)
        worker->device->ops->free(worker->device);
    mics_world_close(worker->world);
}

static void take_step(struct worker *worker, uint32_t step)
{
    struct mics_step_result result;
    const struct mics_step_input input = {step, worker->c->lr, fill, worker};

    if (step == worker->overflows)
        return;
    worker->step = step;
    if (worker->own.choice.dtype != MICS_F32) /* of the masters, which meetings have changed */
        CHECK_INT(mics_engine_publish(worker->engine, NULL), MICS_OK);
    CHECK_INT(mics_engine_submit(worker->engine, &input, NULL), MICS_OK);
    CHECK_INT(mics_engine_collect(worker->engine, &result, NULL), MICS_OK);
}

/* What the outer optimizer keeps of one unit. */
struct outer_unit {
    double *anchor, *momentum;
};

static void move(struct worker *worker, uint32_t unit, float *values, bool in)
{
    const uint64_t count = worker->c->model->units[unit].count;

    CHECK_INT(
        in ? mics_engine_import(worker->engine, unit, MICS_STATE_PARAM, 0, count, values, NULL)
           : mics_engine_export(worker->engine, unit, MICS_STATE_PARAM, 0, count, values, NULL),
        MICS_OK);
}

/* A meeting of all workers about one unit; `apply`: they take the parameters of the outer step. */
static void meet(struct worker *workers, uint32_t count, uint32_t unit, struct outer_unit *outer,
                 bool apply, enum mutant mutant)
{
    const struct mics_plan_choice *choice = &workers[0].c->choice;
    const uint64_t size = workers[0].c->model->units[unit].count;
    float *values = malloc(size * sizeof *values);
    double *mean = calloc(size, sizeof *mean);

    for (uint32_t w = 0; w < count; w++) {
        move(&workers[w], unit, values, false);
        for (uint64_t i = 0; i < size; i++)
            mean[i] += values[i] / count;
    }
    for (uint64_t i = 0; i < size; i++) {
        const double d = outer->anchor[i] - mean[i], mu = choice->outer_momentum;

        outer->momentum[i] = mu * outer->momentum[i] + d;
        if (mutant == MOMENTUM_TWICE)
            outer->momentum[i] = mu * outer->momentum[i] + d;
        const double next = outer->anchor[i] - choice->outer_lr * (d + mu * outer->momentum[i]);

        values[i] = (float)next;
        if (mutant != ANCHOR_NOT_UPDATED)
            outer->anchor[i] = values[i];
    }
    for (uint32_t w = 0; apply && w < count; w++)
        move(&workers[w], unit, values, true);
    free(values);
    free(mean);
}

/* A step of one worker after a meeting that overlaps with it: what it adds to the parameters, with
 * their gradient before the meeting, is added to those after it. */
static void take_merging_step(struct worker *worker, uint32_t step, const struct outer_unit *outer,
                              enum mutant mutant)
{
    const struct mics_model *model = worker->c->model;
    float **before = calloc(model->unit_count, sizeof *before);

    for (uint32_t u = 0; u < model->unit_count; u++) {
        before[u] = malloc(model->units[u].count * sizeof *before[u]);
        move(worker, u, before[u], false);
    }
    take_step(worker, step);
    for (uint32_t u = 0; u < model->unit_count; u++) {
        float *values = malloc(model->units[u].count * sizeof *values);

        move(worker, u, values, false);
        for (uint64_t i = 0; i < model->units[u].count; i++)
            values[i] = (float)(outer[u].anchor[i] +
                                (mutant == STEP_LOST ? 0 : (double)values[i] - before[u][i]));
        if (mutant != UNIT_LEFT_OUT || u != 1)
            move(worker, u, values, true);
        free(values);
        free(before[u]);
    }
    free(before);
}

/* The steps of the workers, with their meetings. */
static void train_workers(struct worker *workers, uint32_t count, struct outer_unit *outer,
                          enum mutant mutant)
{
    const struct parity_case *c = workers[0].c;
    const uint32_t units = c->model->unit_count;
    const bool overlap = c->choice.outer_overlap && mutant != NOT_DELAYED;
    bool merges = false;

    for (uint32_t step = 1; step <= c->steps; step++) {
        const uint32_t late = mutant == MEETING_LATER;
        const bool meets = step > late && (step - late) % c->choice.outer_steps == 0;

        for (uint32_t w = 0; w < count; w++)
            if (merges)
                take_merging_step(&workers[w], step, outer, mutant);
            else
                take_step(&workers[w], step);
        for (uint32_t u = 0; meets && u < units; u++)
            if (mutant != UNIT_LEFT_OUT || u != 1)
                meet(workers, count, u, &outer[u], !overlap || mutant == MEETING_LATER, mutant);
        merges = meets && overlap && mutant != MEETING_LATER;
    }
}

/* The largest difference between the parameters of the workers and those of the run. */
static double distance_with_overflow(const struct parity_case *c,
                                     const struct parity_result *result, enum mutant mutant,
                                     uint32_t overflows)
{
    const uint32_t count = mics_choice_replicas(&c->choice), units = c->model->unit_count;
    struct worker workers[WORKERS_MAX] = {{0}};
    struct outer_unit *outer = calloc(units, sizeof *outer);
    double largest = 0;
    bool open = true;

    for (uint32_t w = 0; w < count; w++)
        open = open_worker(&workers[w], c, w) && open;
    workers[0].overflows = overflows;
    for (uint32_t u = 0; open && u < units; u++) {
        const uint64_t size = c->model->units[u].count;
        float *values = malloc(size * sizeof *values);

        outer[u].anchor = malloc(size * sizeof *outer[u].anchor);
        outer[u].momentum = calloc(size, sizeof *outer[u].momentum);
        move(&workers[0], u, values, false);
        for (uint64_t i = 0; i < size; i++)
            outer[u].anchor[i] = values[i];
        free(values);
    }
    if (open)
        train_workers(workers, count, outer, mutant);
    for (uint32_t u = 0; open && u < units; u++) {
        const uint64_t size = c->model->units[u].count;
        float *values = malloc(size * sizeof *values);

        move(&workers[0], u, values, false);
        for (uint64_t i = 0; i < size; i++)
            largest = fmax(largest, fabs((double)values[i] - result->params[u][i]));
        free(values);
        free(outer[u].anchor);
        free(outer[u].momentum);
    }
    for (uint32_t w = 0; w < count; w++)
        close_worker(&workers[w]);
    free(outer);
    return open ? largest : INFINITY;
}

static double reference_distance(const struct parity_case *c, const struct parity_result *result,
                                 enum mutant mutant)
{
    return distance_with_overflow(c, result, mutant, 0);
}

static struct parity_case make_case(const struct mics_model *model, struct mics_shape shape,
                                    uint32_t outer_steps, uint32_t steps)
{
    struct parity_case c = {
        .model = model, .steps = steps, .lr = 0.1f, .slow_op = MICS_NONE, .all_counted = true};

    c.choice = cases_choice(&shape);
    c.choice.micro_steps = 2;
    c.choice.segments = 2;
    c.choice.outer_steps = outer_steps;
    c.choice.outer_lr = 0.7;
    c.choice.outer_momentum = 0.9;
    return c;
}

static struct parity_result *run(const struct parity_case *c)
{
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return result;
}

static const struct mics_shape shapes[] = {
    {2, 2, 2, 2, 2}, {4, 1, 1, 1, 1}, {2, 2, 1, 1, 2}, {2, 2, 1, 2, 2}, {1, 2, 1, 1, 1}};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* A meeting in every step, at rate 1 and without momentum, takes the mean of the replicas'
 * parameters: with SGD that is the step with the mean gradient, but for rounding, as differences of
 * parameters are summed instead of gradients. */
static void meetings_in_every_step_are_the_step_with_the_mean_gradient(void)
{
    struct mics_model *model = cases_gpt2();

    for (int i = 0; i < SHAPES; i++) {
        struct parity_case c = make_case(model, shapes[i], 1, 3), plain;

        if (tap_leaves_out(3))
            continue;
        c.choice.outer_lr = 1;
        c.choice.outer_momentum = 0;
        plain = c;
        plain.choice.outer_steps = 0;
        struct parity_result *outer = run(&c), *exact = run(&plain);

        if (outer && exact) {
            CHECK(parity_distance(&c, outer, exact) <= 2e-6);
            CHECK(outer->replicas_agree);
            CHECK_NEAR(outer->loss, exact->loss, 1e-5 * exact->loss);
            CHECK_NEAR(outer->eval_loss, exact->eval_loss, 1e-5 * exact->eval_loss);
        }
        parity_result_free(outer);
        parity_result_free(exact);
    }
    mics_model_free(model);
}

static void check_diloco(struct parity_case c)
{
    struct parity_result *result = run(&c);

    if (!result)
        return;
    CHECK(result->replicas_agree);
    CHECK(reference_distance(&c, result, NO_MUTANT) <= TOLERANCE);
    for (enum mutant mutant = MOMENTUM_TWICE; !TAP_SANITIZED && mutant <= UNIT_LEFT_OUT; mutant++)
        CHECK(reference_distance(&c, result, mutant) > 10 * TOLERANCE);
    CHECK(result->high_water <= result->arena_bytes);
    parity_result_free(result);
}

static void replicas_train_as_workers_of_diloco_in_one_process(void)
{
    struct mics_model *model = cases_gpt2();

    for (int i = 0; i < SHAPES; i++) {
        struct parity_case c = make_case(model, shapes[i], 2, 4);

        if (tap_leaves_out(3))
            continue;
        check_diloco(c);
        c.clip = 0.5f; /* of each replica's own norm */
        c.choice.clip = true;
        c.all_counted = false; /* each has its own number of targets */
        check_diloco(c);
    }
    mics_model_free(model);
}

/* In fp16 a replica whose gradients overflow skips its step alone, also one in which it merges a
 * meeting. */
static void a_replica_skips_a_step_of_its_own(void)
{
    const double rounding = 1.25e-4; /* as in test_loss_scale.c */
    struct mics_model *model = cases_gpt2();

    for (int i = 0; i < 4; i++) {
        struct parity_case c = make_case(model, shapes[i], 2, 4);
        const uint32_t overflows = 2 + (uint32_t)i % 2;

        if (tap_leaves_out(3))
            continue;
        c.choice.dtype = MICS_F16;
        c.choice.grad_dtype = i == 0 ? MICS_F32 : MICS_F16;
        c.choice.outer_overlap = i % 2;
        c.choice.clip = true;
        c.clip = 0.5f;
        struct parity_injection injection = parity_injection_in(&c, overflows);
        c.watch = parity_inject;
        c.watch_context = &injection;
        struct parity_result *result = run(&c);

        if (!result)
            continue;
        CHECK(isfinite(result->loss) && isfinite(result->grad_norm));
        CHECK(distance_with_overflow(&c, result, NO_MUTANT, overflows) <= rounding);
        CHECK(distance_with_overflow(&c, result, NO_MUTANT, 0) > 10 * rounding);
        parity_result_free(result);
    }
    mics_model_free(model);
}

/* The step after each meeting is the delay of one step: its gradient is of the parameters before
 * the meeting, and is applied to those after it. */
static void overlapping_meetings_have_a_delay_of_one_step(void)
{
    struct mics_model *model = cases_gpt2();

    for (int i = 0; i < SHAPES; i++)
        for (int clip = 0; clip < 2; clip++) {
            struct parity_case c = make_case(model, shapes[i], 2, 5);

            if (tap_leaves_out(3))
                continue;
            c.choice.outer_overlap = true;
            c.choice.clip = clip;
            c.clip = clip ? 0.5f : 0;
            c.all_counted = !clip;
            c.random_delay_us = 200;
            struct parity_result *result = run(&c);

            if (!result)
                continue;
            /* Replica 0's parameters, which the last step has moved away from the others'. */
            CHECK(!result->replicas_agree);
            CHECK(reference_distance(&c, result, NO_MUTANT) <= TOLERANCE);
            for (enum mutant mutant = MOMENTUM_TWICE; !TAP_SANITIZED && mutant < MUTANT_COUNT;
                 mutant++)
                if (mutant != ANCHOR_NOT_UPDATED) /* the anchor is what is merged */
                    CHECK(reference_distance(&c, result, mutant) > 10 * TOLERANCE);
            CHECK(result->high_water <= result->arena_bytes);
            parity_result_free(result);
        }
    mics_model_free(model);
}

/* A checkpoint right after a meeting completes it: the outer step is that of a meeting which does
 * not overlap. */
static void a_checkpoint_completes_the_meeting_before_it(void)
{
    struct mics_model *model = cases_gpt2();

    for (int i = 0; i < SHAPES; i++)
        for (int blocks = 0; blocks < 2; blocks++) {
            struct parity_case c = make_case(model, shapes[i], 3, 3), plain;

            if (tap_leaves_out(3))
                continue;
            if (blocks)
                c.choice.sync_dtype = c.choice.sync_down_dtype = MICS_INT8;
            plain = c;
            c.choice.outer_overlap = true;
            c.carried_every = 3;
            struct parity_result *overlapping = run(&c), *other = run(&plain);

            CHECK(overlapping && other && overlapping->replicas_agree &&
                  parity_distance(&c, overlapping, other) == 0);
            parity_result_free(overlapping);
            parity_result_free(other);
        }
    mics_model_free(model);
}

/* As without outer steps, but for the order in which a few scalars are added; then outer steps
 * begin at the parameters. */
static void the_first_steps_sum_gradients(void)
{
    struct mics_model *model = cases_gpt2();

    for (int i = 0; i < SHAPES; i++)
        for (int clip = 0; clip < 2; clip++) {
            struct parity_case c = make_case(model, shapes[i], 2, 3), plain;

            if (tap_leaves_out(3))
                continue;
            c.choice.clip = clip;
            c.clip = clip ? 0.5f : 0;
            plain = c;
            plain.choice = mics_choice_warmup(&c.choice);
            c.choice.sync_warmup = 3;
            c.choice.outer_overlap = i % 2;
            c.random_delay_us = 100;
            struct parity_result *first = run(&c), *exact = run(&plain);

            if (first && exact) {
                CHECK(first->replicas_agree);
                CHECK(parity_distance(&c, first, exact) <= 1e-6);
                CHECK_NEAR(first->loss, exact->loss, 1e-6 * exact->loss);
                CHECK_NEAR(first->grad_norm, exact->grad_norm, 1e-5 * exact->grad_norm);
            }
            parity_result_free(first);
            parity_result_free(exact);
            c.steps = 4; /* the first meeting: of one step, from the parameters after the third */
            c.choice.outer_overlap = false;
            c.choice.outer_lr = 1;
            c.choice.outer_momentum = 0;
            plain.steps = 4;
            first = run(&c);
            exact = run(&plain);
            CHECK(first && exact && first->replicas_agree);
            if (first && exact && !clip)
                CHECK(parity_distance(&c, first, exact) <= 2e-6);
            parity_result_free(first);
            parity_result_free(exact);
        }
    mics_model_free(model);
}

static void between_meetings_replicas_differ(void)
{
    struct mics_model *model = cases_gpt2();
    const struct parity_case c = make_case(model, shapes[0], 2, 3);
    struct parity_result *result = run(&c);

    CHECK(result && !result->replicas_agree);
    parity_result_free(result);
    mics_model_free(model);
}

/* The meeting of one unit is dropped from the schedule of all ranks. */
static void a_unit_that_does_not_meet_is_noticed(void)
{
    struct mics_model *model = cases_gpt2();
    struct parity_case c = make_case(model, shapes[0], 2, 4);
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(model, &c.choice, true, &schedule, NULL), MICS_OK);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++)
        if (schedule->ops[i].unit == 1 && schedule->ops[i].turn == 0)
            schedule->ops[i].turn = c.choice.outer_steps; /* never */
    c.schedule = schedule;
    struct parity_result *result = run(&c);

    CHECK(result && !result->replicas_agree);
    parity_result_free(result);
    mics_schedule_free(schedule);
    mics_model_free(model);
}

static void random_delays_change_no_bit_of_outer_steps(void)
{
    struct mics_model *model = cases_gpt2();
    struct parity_case c = make_case(model, shapes[0], 2, 6);
    struct parity_result *plain = run(&c), *delayed;

    c.random_delay_us = 300;
    delayed = run(&c);
    CHECK(plain && delayed && parity_distance(&c, plain, delayed) == 0);
    parity_result_free(plain);
    parity_result_free(delayed);
    mics_model_free(model);
}

/* A type and gradients of 16 bits have a master, which meets; its copy follows. */
static void replicas_agree_in_bf16_after_each_meeting(void)
{
    struct mics_model *model = cases_gpt2();
    struct parity_case c = make_case(model, shapes[0], 2, 4);

    c.choice.dtype = c.choice.grad_dtype = MICS_BF16;
    struct parity_result *result = run(&c);

    CHECK(result && result->replicas_agree);
    parity_result_free(result);
    mics_model_free(model);
}

/* In a whole number of intervals. */
static void calls_and_bytes_are_those_of_the_schedule(void)
{
    struct mics_model *model = cases_gpt2();
    const struct parity_case c = make_case(model, shapes[0], 3, 6);
    struct parity_result *result = run(&c);
    struct mics_schedule *schedule = NULL;
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];

    CHECK_INT(mics_schedule_new(model, &c.choice, true, &schedule, NULL), MICS_OK);
    for (uint32_t rank = 0; schedule && result && rank < result->n; rank++) {
        mics_schedule_counts(schedule, &c.choice, rank, calls, sent);
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
            CHECK_INT(result->counts[rank][MICS_UNIT_DENSE][kind].calls,
                      2 * calls[MICS_UNIT_DENSE][kind]);
            CHECK_INT(result->counts[rank][MICS_UNIT_DENSE][kind].sent_bytes,
                      2 * sent[MICS_UNIT_DENSE][kind]);
        }
        CHECK(sent[MICS_UNIT_DENSE][MICS_COMM_REPLICA] > 0);
    }
    mics_schedule_free(schedule);
    parity_result_free(result);
    mics_model_free(model);
}

int main(void)
{
    TAP_RUN(meetings_in_every_step_are_the_step_with_the_mean_gradient);
    TAP_RUN(replicas_train_as_workers_of_diloco_in_one_process);
    TAP_RUN(a_replica_skips_a_step_of_its_own);
    TAP_RUN(overlapping_meetings_have_a_delay_of_one_step);
    TAP_RUN(a_checkpoint_completes_the_meeting_before_it);
    TAP_RUN(the_first_steps_sum_gradients);
    TAP_RUN(between_meetings_replicas_differ);
    TAP_RUN(a_unit_that_does_not_meet_is_noticed);
    TAP_RUN(random_delays_change_no_bit_of_outer_steps);
    TAP_RUN(replicas_agree_in_bf16_after_each_meeting);
    TAP_RUN(calls_and_bytes_are_those_of_the_schedule);
    return tap_done();
}
