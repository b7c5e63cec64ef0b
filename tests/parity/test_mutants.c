/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mutants.c - the parity tests detect a broken schedule.
 *
 * A step is data, so bugs can be introduced on purpose: skip the second hop, reduce only the last
 * micro-step, drop a wait. Each mutant must train to parameters other than the reference.
 */
#include "cases.h"
#include "device/launch.h"
#include "device/recorder.h"
#include "mutate.h"
#include "one_core.h"
#include "plan/schedule/build.h"
#include "unit/tap.h"

#include <string.h>

static struct mics_model *integer_model;

static struct parity_case make_case(void)
{
    struct parity_case c = {.model = integer_model, .steps = 3, .lr = 0.5f, .slow_op = MICS_NONE};

    c.choice = cases_choice(&(struct mics_shape){2, 2, 2, 2, 2});
    c.choice.micro_steps = 3;
    c.choice.prefetch = 0;
    c.choice.grad_slots = 1;
    return c;
}

/* Distance of a mutant's run from the reference, which has the same model or another one. */
static double distance_from(const struct parity_case *c, const struct mics_model *model)
{
    struct parity_case reference_case = parity_reference(c);
    struct parity_result *result = NULL, *reference = NULL;
    struct mics_err err = {""};
    double distance = -1;

    reference_case.model = model;
    CHECK_INT(parity_run(c, &result, &err), MICS_OK);
    CHECK_INT(parity_run(&reference_case, &reference, &err), MICS_OK);
    if (result && reference)
        distance = parity_distance(c, reference, result);
    else
        printf("# %s\n", err.text);
    parity_result_free(result);
    parity_result_free(reference);
    return distance;
}

static double distance_of(const struct parity_case *c)
{
    return distance_from(c, c->model);
}

static struct mics_schedule *schedule_of(const struct parity_case *c)
{
    struct mics_schedule *schedule = NULL;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    return schedule;
}

static double distance_without(bool (*drop)(const struct mics_op *op))
{
    struct parity_case c = make_case();
    struct mics_schedule *schedule = schedule_of(&c);
    struct mics_schedule mutant = mutant_new(schedule, drop, MICS_NONE);

    CHECK(!drop || mutant.op_count < schedule->op_count);
    c.schedule = &mutant;
    const double distance = distance_of(&c);
    mutant_free(&mutant);
    mics_schedule_free(schedule);
    return distance;
}

static bool is_sync(const struct mics_op *op)
{
    return op->kind == MICS_OP_SYNC;
}

static bool is_early_accumulate(const struct mics_op *op)
{
    return op->kind == MICS_OP_ACCUMULATE && op->micro_step < 2;
}

static bool is_publish(const struct mics_op *op)
{
    return op->kind == MICS_OP_PUBLISH;
}

static void a_copy_without_a_change_is_no_mutant(void)
{
    CHECK(distance_without(NULL) == 0);
}

static void a_skipped_second_hop_is_detected(void)
{
    CHECK(distance_without(is_sync) > 0);
}

static void reducing_only_the_last_micro_step_is_detected(void)
{
    CHECK(distance_without(is_early_accumulate) > 0);
}

static void a_skipped_publish_is_detected(void)
{
    struct parity_case c = make_case();

    mics_choice_set_shape(&c.choice, (struct mics_shape){2, 2, 2, 2, 4});
    struct mics_schedule *schedule = schedule_of(&c);
    struct mics_schedule mutant = mutant_new(schedule, is_publish, MICS_NONE);

    CHECK(mutant.op_count < schedule->op_count);
    c.schedule = &mutant;
    CHECK(distance_of(&c) > 0);
    mutant_free(&mutant);
    mics_schedule_free(schedule);
}

/* Without the wait of an operation of `kind` on one of kind `on`, the latter is slow. */
static void dropped_wait_of(struct parity_case c, const struct mics_schedule *schedule,
                            enum mics_op_kind kind, enum mics_op_kind on, bool crossing)
{
    uint32_t slow = MICS_NONE;
    const uint32_t dep = mutant_find_dep(schedule, kind, on, crossing, &slow);

    CHECK(dep != MICS_NONE);
    if (dep == MICS_NONE)
        return;
    struct mics_schedule mutant = mutant_new(schedule, NULL, dep);

    c.schedule = schedule;
    c.slow_op = slow;
    c.slow_us = 20000;
    CHECK(distance_of(&c) == 0); /* slow but correct */
    c.schedule = &mutant;
    CHECK(distance_of(&c) > 0);
    mutant_free(&mutant);
}

static void dropped_wait_is_detected(enum mics_op_kind kind, enum mics_op_kind on, bool crossing)
{
    const struct parity_case c = make_case();
    struct mics_schedule *schedule = schedule_of(&c);

    dropped_wait_of(c, schedule, kind, on, crossing);
    mics_schedule_free(schedule);
}

static void computing_before_the_gather_is_detected(void)
{
    dropped_wait_is_detected(MICS_OP_FORWARD, MICS_OP_GATHER, false);
}

static void gathering_before_the_update_is_detected(void)
{
    dropped_wait_is_detected(MICS_OP_GATHER, MICS_OP_UPDATE, true);
}

static void reducing_before_the_backward_is_detected(void)
{
    dropped_wait_is_detected(MICS_OP_REDUCE, MICS_OP_BACKWARD, false);
}

static void finishing_before_the_second_hop_is_detected(void)
{
    dropped_wait_is_detected(MICS_OP_NORM, MICS_OP_SYNC, false);
}

static bool is_conversion(const struct mics_op *op)
{
    return op->kind == MICS_OP_CONVERT;
}

static struct parity_case make_converted_case(void)
{
    struct parity_case c = make_case();

    c.choice.grad_dtype = MICS_BF16;
    return c;
}

static void a_skipped_conversion_is_detected(void)
{
    struct parity_case c = make_converted_case();
    struct mics_schedule *schedule = schedule_of(&c);
    struct mics_schedule mutant = mutant_new(schedule, is_conversion, MICS_NONE);

    CHECK(distance_of(&c) == 0);
    CHECK(mutant.op_count < schedule->op_count);
    c.schedule = &mutant;
    CHECK(distance_of(&c) > 0);
    mutant_free(&mutant);
    mics_schedule_free(schedule);
}

static void converting_before_the_accumulation_is_detected(void)
{
    const struct parity_case c = make_converted_case();
    struct mics_schedule *schedule = schedule_of(&c);

    dropped_wait_of(c, schedule, MICS_OP_CONVERT, MICS_OP_ACCUMULATE, false);
    dropped_wait_of(c, schedule, MICS_OP_NORM, MICS_OP_CONVERT, false);
    mics_schedule_free(schedule);
}

/* A conversion needs no wait on the stream of its collective, so it is moved to another one, which
 * makes waits of that order. */
static void a_collective_beside_its_conversion_is_detected(void)
{
    const struct parity_case c = make_converted_case();
    struct mics_schedule *schedule = schedule_of(&c);

    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (is_conversion(&schedule->ops[i]))
            schedule->ops[i].stream = MICS_STREAM_GATHER_NET;
    schedule->dep_total = 0;
    CHECK_INT(mics_schedule_add_dependencies(schedule, &c.choice, NULL), MICS_OK);
    dropped_wait_of(c, schedule, MICS_OP_SYNC, MICS_OP_CONVERT, false);
    dropped_wait_of(c, schedule, MICS_OP_CONVERT, MICS_OP_SYNC, false);
    mics_schedule_free(schedule);
}

/* Sums are not exact here: a run that is right differs from the reference by less. */
#define RESIDENT_TOLERANCE 2e-6

/* Tokens travel to the experts of two ranks. All go to the first expert at first, so that both
 * rounds are needed. */
static struct parity_case make_resident_case(struct mics_model **model)
{
    struct parity_case c = {.steps = 3, .lr = 0.1f, .slow_op = MICS_NONE};
    struct mics_model *experts = cases_experts(false);
    struct mics_model_config config = experts->config;

    config.n_expert_used = 1;
    CHECK_INT(mics_model_new(&config, model, NULL), MICS_OK);
    mics_model_free(experts);
    cases_zero_routers(*model);
    c.model = *model;
    c.choice = cases_choice(&(struct mics_shape){2, 2, 2, 2, 2});
    c.choice.micro_steps = 2;
    c.choice.dispatches = true;
    return c;
}

static double resident_distance_without(bool (*drop)(const struct mics_op *op))
{
    struct mics_model *model = NULL;
    struct parity_case c = make_resident_case(&model);
    struct mics_schedule *schedule = schedule_of(&c);
    struct mics_schedule mutant = mutant_new(schedule, drop, MICS_NONE);

    CHECK(!drop || mutant.op_count < schedule->op_count);
    c.schedule = &mutant;
    const double distance = distance_of(&c);
    mutant_free(&mutant);
    mics_schedule_free(schedule);
    mics_model_free(model);
    return distance;
}

static bool is_second_round(const struct mics_op *op)
{
    return op->round > 0;
}

static bool is_backward_combine(const struct mics_op *op)
{
    return op->kind == MICS_OP_COMBINE && op->backward;
}

/* Only operations that leave the ranks in agreement on which rounds are empty. */
static void tokens_that_do_not_travel_are_detected(void)
{
    CHECK(resident_distance_without(NULL) <= RESIDENT_TOLERANCE);
    CHECK(!(resident_distance_without(is_second_round) <= 10 * RESIDENT_TOLERANCE));
    CHECK(!(resident_distance_without(is_backward_combine) <= 10 * RESIDENT_TOLERANCE));
}

/* In place of one of the arrays that go to experts, rows are sent once more. */
static double resident_distance_without_array(uint32_t array)
{
    struct mics_model *model = NULL;
    struct parity_case c = make_resident_case(&model);
    struct mics_schedule *schedule = schedule_of(&c);
    double distance;

    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (schedule->ops[i].kind == MICS_OP_DISPATCH && schedule->ops[i].array == array)
            schedule->ops[i].array = 0;
    c.schedule = schedule;
    distance = distance_of(&c);
    mics_schedule_free(schedule);
    mics_model_free(model);
    return distance;
}

static void weights_and_gradients_that_do_not_travel_are_detected(void)
{
    CHECK(resident_distance_without_array(0) <= RESIDENT_TOLERANCE);
    CHECK(!(resident_distance_without_array(1) <= 10 * RESIDENT_TOLERANCE));
    CHECK(!(resident_distance_without_array(2) <= 10 * RESIDENT_TOLERANCE));
}

/* Mistakes in what a model launches: its launches pass through a function that changes them. */
static const size_t sizes[] = {
#define SIZE(KEY, name, gpu) [MICS_K_##KEY] = sizeof(struct mics_args_##name),
    MICS_OPERATIONS(SIZE)
#undef SIZE
};

static const struct mics_model_ops *right_ops;
static void (*mutate)(const struct mics_pass *pass, enum mics_kernel kernel, const void *args);

static void launch(const struct mics_pass *pass, enum mics_kernel kernel, const void *args)
{
    pass->stream->device->ops->launch(pass->stream, kernel, args, sizes[kernel]);
}

static void visit(void *context, enum mics_kernel kernel, const void *args)
{
    mutate(context, kernel, args);
}

static void run_mutated(const struct mics_pass *pass, uint32_t stage,
                        void (*run)(const struct mics_pass *pass, uint32_t stage))
{
    struct mics_pass changed = *pass;
    struct mics_recorder recorder;

    mics_recorder_init(&recorder, visit, (void *)pass);
    changed.stream = &recorder.stream;
    run(&changed, stage);
}

static void mutated_forward(const struct mics_pass *pass, uint32_t stage)
{
    run_mutated(pass, stage, right_ops->forward);
}

static void mutated_backward(const struct mics_pass *pass, uint32_t stage)
{
    run_mutated(pass, stage, right_ops->backward);
}

static struct mics_model *mutated_model(const struct mics_model *model, struct mics_model_ops *ops)
{
    struct mics_model *mutated = NULL;

    right_ops = model->ops;
    *ops = *right_ops;
    ops->forward = mutated_forward;
    ops->backward = mutated_backward;
    CHECK_INT(mics_model_new_custom(ops, model->family, &model->config, &mutated, NULL), MICS_OK);
    return mutated;
}

static void halve_gradients_of_experts(const struct mics_pass *pass, enum mics_kernel kernel,
                                       const void *args)
{
    static const float zeros[4 * 1024];
    const struct mics_args_grouped_matmul_grad *product = args;

    launch(pass, kernel, args);
    if (kernel != MICS_K_GROUPED_MATMUL_GRAD)
        return;
    for (uint32_t e = 0; e < product->E; e++) {
        float *const out = (float *)product->out + e * product->stride;
        const uint64_t count = (uint64_t)product->m * product->n;

        CHECK(count <= sizeof zeros / sizeof *zeros);
        mics_launch_difference(
            pass->stream, &(struct mics_args_difference){
                              .dst = out, .a = out, .b = zeros, .count = count, .scale = 0.5f});
    }
}

static void average_the_auxiliary_loss_twice(const struct mics_pass *pass, enum mics_kernel kernel,
                                             const void *args)
{
    struct mics_args_balance_loss loss;

    if (kernel == MICS_K_BALANCE_LOSS) {
        loss = *(const struct mics_args_balance_loss *)args;
        loss.coefficient /= 2;
        args = &loss;
    }
    launch(pass, kernel, args);
}

static void take_the_weight_of_another_row(const struct mics_pass *pass, enum mics_kernel kernel,
                                           const void *args)
{
    struct mics_args_expert_swiglu swiglu;

    if (kernel == MICS_K_EXPERT_SWIGLU) {
        swiglu = *(const struct mics_args_expert_swiglu *)args;
        swiglu.weights++;
        args = &swiglu;
    }
    launch(pass, kernel, args);
}

static void leave_old_gradients_to_experts(const struct mics_pass *pass, enum mics_kernel kernel,
                                           const void *args)
{
    struct mics_args_grouped_matmul_grad product;

    if (kernel == MICS_K_GROUPED_MATMUL_GRAD) {
        product = *(const struct mics_args_grouped_matmul_grad *)args;
        product.add = true;
        args = &product;
    }
    launch(pass, kernel, args);
}

/* Gradients of weights whose assignments were dropped stay what they were. */
static void leave_gradients_of_dropped_rows(const struct mics_pass *pass, enum mics_kernel kernel,
                                            const void *args)
{
    const struct mics_args_zero *zero = args;

    if (kernel != MICS_K_ZERO || zero->dst != pass->grad[2])
        launch(pass, kernel, args);
}

/* In the first step all scores are equal. */
static void choose_the_second_of_equal_scores(const struct mics_pass *pass, enum mics_kernel kernel,
                                              const void *args)
{
    static const int32_t second[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct mics_args_route *route = args;

    launch(pass, kernel, args);
    if (kernel != MICS_K_ROUTE || pass->step > 1)
        return;
    CHECK(route->rows * route->k <= sizeof second / sizeof *second);
    mics_launch_copy(pass->stream,
                     &(struct mics_args_copy){.dst = route->experts,
                                              .src = second,
                                              .bytes = route->rows * route->k * sizeof *second});
}

static void as_it_is(const struct mics_pass *pass, enum mics_kernel kernel, const void *args)
{
    launch(pass, kernel, args);
}

static double expert_capacity;

/* With gathered or resident experts of two ranks. */
static double distance_with(void (*mutation)(const struct mics_pass *pass, enum mics_kernel kernel,
                                             const void *args),
                            bool level, bool resident)
{
    struct parity_case c = {.steps = 3, .lr = 0.5f, .slow_op = MICS_NONE};
    struct mics_model *two = cases_experts(false), *model = NULL, *mutated;
    struct mics_model_config config = two->config;
    struct mics_model_ops ops;

    config.n_expert_used = level ? 1 : 2;
    config.balance.coefficient = 1;
    config.expert_capacity = expert_capacity;
    CHECK_INT(mics_model_new(&config, &model, NULL), MICS_OK);
    mutated = mutated_model(model, &ops);
    if (level) {
        cases_zero_routers(model);
        cases_zero_routers(mutated);
    }
    mutate = mutation;
    c.model = mutated;
    c.choice = cases_choice(&(struct mics_shape){2, 2, 2, 2, 2});
    c.choice.micro_steps = 2;
    c.choice.dispatches = resident;
    const double distance = distance_from(&c, model);
    mics_model_free(mutated);
    mics_model_free(model);
    mics_model_free(two);
    return distance;
}

static void mistakes_in_what_experts_compute_are_detected(void)
{
    static void (*const mutations[])(const struct mics_pass *pass, enum mics_kernel kernel,
                                     const void *args) = {
        halve_gradients_of_experts,
        average_the_auxiliary_loss_twice,
        take_the_weight_of_another_row,
        leave_old_gradients_to_experts,
    };

    for (int resident = 0; resident < 2; resident++) {
        CHECK(distance_with(as_it_is, false, resident) <= RESIDENT_TOLERANCE);
        for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
            const double distance = distance_with(mutations[i], false, resident);

            if (distance <= 5 * RESIDENT_TOLERANCE)
                printf("# mistake %zu, %s: %g\n", i, resident ? "resident" : "gathered", distance);
            CHECK(!(distance <= 5 * RESIDENT_TOLERANCE));
        }
    }
}

/* What is dropped depends on the micro-batch alone. */
static void a_dropped_row_that_adds_to_the_routers_gradient_is_detected(void)
{
    expert_capacity = 0.75;
    for (int resident = 0; resident < 2; resident++) {
        CHECK(distance_with(as_it_is, false, resident) <= RESIDENT_TOLERANCE);
        CHECK(!(distance_with(leave_gradients_of_dropped_rows, false, resident) <=
                5 * RESIDENT_TOLERANCE));
    }
    expert_capacity = 0;
}

static void another_order_of_equal_scores_is_detected(void)
{
    for (int resident = 0; resident < 2; resident++) {
        CHECK(distance_with(as_it_is, true, resident) <= RESIDENT_TOLERANCE);
        CHECK(!(distance_with(choose_the_second_of_equal_scores, true, resident) <=
                5 * RESIDENT_TOLERANCE));
    }
}

int main(void)
{
    use_one_core();
    integer_model = cases_integer_model();
    TAP_RUN(a_copy_without_a_change_is_no_mutant);
    TAP_RUN(a_skipped_second_hop_is_detected);
    TAP_RUN(reducing_only_the_last_micro_step_is_detected);
    TAP_RUN(a_skipped_publish_is_detected);
    TAP_RUN(computing_before_the_gather_is_detected);
    TAP_RUN(gathering_before_the_update_is_detected);
    TAP_RUN(reducing_before_the_backward_is_detected);
    TAP_RUN(finishing_before_the_second_hop_is_detected);
    TAP_RUN(a_skipped_conversion_is_detected);
    TAP_RUN(converting_before_the_accumulation_is_detected);
    TAP_RUN(a_collective_beside_its_conversion_is_detected);
    TAP_RUN(tokens_that_do_not_travel_are_detected);
    TAP_RUN(weights_and_gradients_that_do_not_travel_are_detected);
    TAP_RUN(mistakes_in_what_experts_compute_are_detected);
    TAP_RUN(a_dropped_row_that_adds_to_the_routers_gradient_is_detected);
    TAP_RUN(another_order_of_equal_scores_is_detected);
    mics_model_free(integer_model);
    return tap_done();
}
