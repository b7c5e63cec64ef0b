/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launches.c - the planner prices exactly what the engine launches.
 *
 * The launches of one training step are those of a run of two steps that a run of one does not
 * have. Copies and calls are left out: the engine also copies batches, and communicators on hosts
 * call and copy.
 */
#include "cases.h"
#include "plan/schedule/launches.h"
#include "unit/tap.h"
#include "work.h"

struct tally {
    double flops[MICS_KERNEL_COUNT], bytes[MICS_KERNEL_COUNT];
    int32_t launches[MICS_KERNEL_COUNT];
};

static void count(void *context, enum mics_kernel kernel, const void *args)
{
    struct tally *tally = context;
    struct mics_kernel_work work;

    mics_kernel_work_of(kernel, args, &work);
    tally->flops[kernel] += work.flops;
    tally->bytes[kernel] += work.read + work.written;
    tally->launches[kernel]++;
}

static void count_launch(void *context, struct mics_stream *stream, enum mics_kernel kernel,
                         const void *args)
{
    (void)stream;
    count(context, kernel, args);
}

static void run(struct parity_case c, uint32_t steps, struct tally *out)
{
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.steps = steps;
    c.watch = count_launch;
    c.watch_context = out;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    parity_result_free(result);
}

static void record(const struct parity_case *c, struct tally *out)
{
    struct mics_schedule *schedule = NULL;
    struct mics_recorder recorder;

    CHECK_INT(mics_schedule_new(c->model, &c->choice, true, &schedule, NULL), MICS_OK);
    mics_recorder_init(&recorder, count, out);
    for (uint32_t i = 0; schedule && i < schedule->op_count; i++)
        mics_op_launches(c->model, &c->choice, &schedule->ops[i], true, &recorder);
    mics_schedule_free(schedule);
}

static void compare(const struct mics_model *model, const struct mics_plan_choice *choice)
{
    static const char *const names[] = {
#define NAME(KEY, name, gpu) #name,
        MICS_OPERATIONS(NAME)
#undef NAME
    };
    const struct parity_case c = {.model = model,
                                  .choice = *choice,
                                  .lr = 0.01f,
                                  .clip = choice->clip ? 1 : 0,
                                  .slow_op = MICS_NONE};
    struct tally one = {0}, two = {0}, planned = {0};
    char text[256];

    run(c, 1, &one);
    run(c, 2, &two);
    record(&c, &planned);
    for (int k = 0; k < MICS_KERNEL_COUNT; k++) {
        if (k == MICS_K_COPY || k == MICS_K_CALL)
            continue;
        const double flops = two.flops[k] - one.flops[k], bytes = two.bytes[k] - one.bytes[k];
        const int32_t launches = two.launches[k] - one.launches[k];

        CHECK_INT(planned.launches[k], launches);
        CHECK_NEAR(planned.flops[k], flops, 1e-9 * flops);
        CHECK_NEAR(planned.bytes[k], bytes, 1e-9 * bytes);
        if (planned.launches[k] != launches || planned.bytes[k] != bytes)
            printf("# %s: %d launches planned, %d seen: %s\n", names[k], planned.launches[k],
                   launches, cases_name(choice, text, sizeof text));
    }
}

static void check(const struct mics_shape *shape, enum mics_recompute recompute,
                  enum mics_dtype dtype, bool clip)
{
    struct mics_plan_choice choice = cases_choice(shape);
    struct mics_model *models[] = {cases_gpt2(), cases_llama(true), cases_experts(true),
                                   cases_experts(false), cases_encoder()};

    choice.micro_steps = 2;
    choice.recompute = recompute;
    choice.dtype = choice.grad_dtype = dtype;
    choice.clip = clip;
    choice.segments = clip ? 2 : 1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (dtype != MICS_F16 || models[i]->stat_count == 0)
            compare(models[i], &choice);
        mics_model_free(models[i]);
    }
}

static void one_rank_launches_what_is_priced(void)
{
    check(&(struct mics_shape){1, 1, 1, 1, 1}, MICS_RECOMPUTE_NONE, MICS_F32, true);
    check(&(struct mics_shape){1, 1, 1, 1, 1}, MICS_RECOMPUTE_SELECTIVE, MICS_BF16, false);
    check(&(struct mics_shape){1, 1, 1, 1, 1}, MICS_RECOMPUTE_NONE, MICS_F16, true);
}

static void sharded_ranks_launch_what_is_priced(void)
{
    check(&(struct mics_shape){1, 2, 2, 2, 2}, MICS_RECOMPUTE_FULL, MICS_BF16, true);
    check(&(struct mics_shape){1, 2, 1, 1, 2}, MICS_RECOMPUTE_NONE, MICS_BF16, true);
    check(&(struct mics_shape){2, 2, 2, 2, 2}, MICS_RECOMPUTE_SELECTIVE, MICS_BF16, false);
    check(&(struct mics_shape){2, 2, 1, 2, 4}, MICS_RECOMPUTE_NONE, MICS_F32, true);
    check(&(struct mics_shape){2, 2, 1, 2, 4}, MICS_RECOMPUTE_NONE, MICS_F16, true);
}

/* Updates piece by piece; a shard of 1 to 3 pieces each, by unit. */
static void pieces_of_states_in_host_memory_are_launched_as_priced(void)
{
    struct mics_model *model = cases_llama(true);

    for (int i = 0; i < 2; i++) {
        struct mics_plan_choice choice = cases_choice(&(struct mics_shape){1, 2, 2, 2, 2});

        choice.segments = 1 + (uint32_t)i;
        choice.offload_piece = 512;
        choice.optimizer = MICS_OPT_ADAMW;
        choice.dtype = choice.grad_dtype = i ? MICS_BF16 : MICS_F32;
        compare(model, &choice);
    }
    mics_model_free(model);
}

static void conversions_to_blocks_are_launched_as_priced(void)
{
    static const struct mics_shape shapes[] = {{2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}, {2, 2, 4, 4, 4}};
    struct mics_model *model = cases_llama(true);

    for (int i = 0; i < 6; i++) {
        struct mics_plan_choice choice = cases_choice(&shapes[i / 2]);

        choice.micro_steps = 2;
        choice.segments = 1 + (uint32_t)i % 2;
        choice.sync_dtype = MICS_INT4;
        choice.sync_down_dtype = MICS_INT8;
        choice.sync_gathers = i % 2;
        choice.gather_dtype = MICS_INT8;
        choice.hierarchical_gather = true;
        compare(model, &choice);
    }
    mics_model_free(model);
}

int main(void)
{
    TAP_RUN(one_rank_launches_what_is_priced);
    TAP_RUN(sharded_ranks_launch_what_is_priced);
    TAP_RUN(pieces_of_states_in_host_memory_are_launched_as_priced);
    TAP_RUN(conversions_to_blocks_are_launched_as_priced);
    return tap_done();
}
