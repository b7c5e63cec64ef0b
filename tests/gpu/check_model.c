/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_model.c - the same training on the host and on the plug-in's device: gradients of the whole
 * model, at each level of recomputation, and the losses of ten steps.
 *
 * usage: check_model [PLAN...]     plans for one rank; without, small models that the emulator can
 * do
 *
 * The plug-in is what MICS_PLUGIN_PATH names, else the emulated one of this build. One step of SGD
 * from a momentum of zero leaves the gradient of the mean loss in the momentum. Differences are
 * relative, |a - b| / |b|, of each unit. Prints TAP.
 */
#include "comm/job_device.h"
#include "doc/doc.h"
#include "engine/engine.h"
#include "model/family.h"
#include "plan/plan.h"
#include "plugin_path.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps of which the losses are compared. With a sanitizer, which makes a step ten times as slow,
 * the code of two steps, the second of which has moments of the first, is the code of ten. */
enum { LADDER = TAP_ASAN ? 2 : 10 };

/* The last is the GPU with the same algorithms in every run: MICS_CUDA_MEASURE=0. */
enum { HOST, GPU, UNMEASURED, DEVICES };

/* What rounding allows: sums are in another order on the two sides, and results in 16 bits are
 * rounded alike only where the sums before them agree. */
struct limits {
    double gradient, loss;
};

static const struct limits f32_limits = {2e-5, 1e-5}, bf16_limits = {3e-2, 3e-3},
                           f16_limits = {4e-3, 4e-4};

static struct mics_world *world;
static int tests, bad;

static void report(bool good, const char *plan, const char *what, double worst, double limit)
{
    printf("%s %d - %s: %s (%.2e, %.0e allowed)\n", good ? "ok" : "not ok", ++tests, plan, what,
           worst, limit);
    bad += !good;
    fflush(stdout);
}

static void must(enum mics_status status, const struct mics_err *err)
{
    if (status == MICS_OK)
        return;
    printf("Bail out! %s\n", err->text);
    exit(1);
}

/* Tokens that repeat with small changes, so that there is something to learn; all but a few have a
 * target, or of an encoder a few. */
static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct mics_plan *plan = context;
    const uint32_t vocab = plan->model->config.vocab_size, T = plan->choice.seq;

    for (uint32_t b = 0; b < plan->choice.micro_batch; b++)
        for (uint32_t t = 0; t < T; t++) {
            const uint32_t at = b * T + t, seed = 17 * b + 5 * micro_step;
            const bool counts = plan->model->config.mask_rate > 0 ? t % 7 == 3 : t % 11 != 10;

            tokens[at] = (int32_t)((t * t + seed + t % 7) % vocab);
            targets[at] = counts ? (int32_t)(((t + 1) * (t + 1) + seed) % vocab) : -1;
        }
}

static struct mics_engine *open_engine(const struct mics_plan *plan,
                                       const struct mics_plan_choice *choice,
                                       struct mics_device *device)
{
    const struct mics_engine_options options = {
        .model = plan->model,
        .choice = choice,
        .world = world,
        .device = device,
        .loss_scale = {.initial = 65536, .step = 2, .min = 1, .max = 65536, .hysteresis = 1},
        .optimizer = {.beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .momentum = 0.9f,
                      .weight_decay = choice->optimizer == MICS_OPT_ADAMW ? 0.1f : 0.0f,
                      .clip = choice->clip ? 1.0f : 0.0f}};
    struct mics_engine *engine = NULL;
    struct mics_err err;

    must(mics_engine_new(&options, &engine, &err), &err);
    must(mics_engine_prepare(engine, &err), &err);
    must(mics_engine_init(engine, 1, &err), &err);
    return engine;
}

static double step(struct mics_engine *engine, const struct mics_plan *plan, uint32_t number)
{
    const struct mics_step_input input = {
        .step = number, .lr = 3e-4f, .fill = fill, .fill_context = (void *)plan};
    struct mics_step_result result;
    struct mics_err err;

    must(mics_engine_submit(engine, &input, &err), &err);
    must(mics_engine_collect(engine, &result, &err), &err);
    return result.loss;
}

static float *gradient_of(struct mics_engine *engine, uint32_t unit)
{
    const uint64_t count = mics_engine_shard_count(engine, unit);
    float *values = malloc(count * sizeof *values);
    struct mics_err err;

    if (!values)
        abort();
    must(mics_engine_export(engine, unit, MICS_STATE_M, 0, count, values, &err), &err);
    return values;
}

/* NaN where one is. */
static double difference(const float *got, const float *want, uint64_t count)
{
    double apart = 0, length = 0;

    for (uint64_t i = 0; i < count; i++) {
        apart += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        length += (double)want[i] * want[i];
    }
    return sqrt(apart / length);
}

/* Take a step on the device at a level of recomputation. The engine is the caller's. */
static struct mics_engine *step_at(const struct mics_plan *plan, enum mics_recompute level,
                                   struct mics_device *device, double *loss)
{
    struct mics_plan_choice choice = plan->choice;

    choice.recompute = level;
    choice.optimizer = MICS_OPT_SGD;
    choice.clip = choice.dtype == MICS_F16; /* which needs the norm */
    struct mics_engine *engine = open_engine(plan, &choice, device);
    *loss = step(engine, plan, 1);
    return engine;
}

/* The largest difference of a unit's gradients. */
static double gradients_differ(const struct mics_plan *plan, struct mics_engine *a,
                               struct mics_engine *b)
{
    double worst = 0;

    for (uint32_t unit = 0; unit < plan->model->unit_count; unit++) {
        float *got = gradient_of(a, unit), *want = gradient_of(b, unit);
        const double apart = difference(got, want, mics_engine_shard_count(b, unit));

        worst = apart <= worst ? worst : apart; /* a NaN becomes the worst, and stays */
        free(want);
        free(got);
    }
    return worst;
}

static void check_gradients(const struct mics_plan *plan, const char *name,
                            struct mics_device *const devices[DEVICES], const struct limits *limits)
{
    struct mics_engine *engines[2];
    double loss;
    char what[128];

    for (int i = 0; i < 2; i++)
        engines[i] = step_at(plan, plan->choice.recompute, devices[i], &loss);
    const double worst = gradients_differ(plan, engines[1], engines[0]);
    for (int i = 0; i < 2; i++)
        mics_engine_free(engines[i]);
    snprintf(what, sizeof what, "gradients of %u units are the host's", plan->model->unit_count);
    report(worst <= limits->gradient, name, what, worst, limits->gradient);
}

/* Loss and gradients at each level are those without recomputation, within the limits. */
static void check_levels(const struct mics_plan *plan, const char *name, struct mics_device *device,
                         const struct limits *limits)
{
    double loss, again;
    struct mics_engine *kept = step_at(plan, MICS_RECOMPUTE_NONE, device, &loss);

    for (int i = MICS_RECOMPUTE_SELECTIVE; i < MICS_RECOMPUTE_LEVELS; i++) {
        const enum mics_recompute level = (enum mics_recompute)i;
        struct mics_engine *engine = step_at(plan, level, device, &again);
        const double worst = gradients_differ(plan, engine, kept);
        char what[128];

        snprintf(what, sizeof what, "recomputation %s on %s changes no gradient and no loss",
                 mics_recompute_name(level), device->name);
        report(worst <= limits->gradient && fabs(again - loss) <= limits->loss * loss, name, what,
               worst, limits->gradient);
        mics_engine_free(engine);
    }
    mics_engine_free(kept);
}

/* Bit for bit on the host and in the emulator. Within rounding where cuBLASLt fuses GELU (in 16
 * bits), and on a GPU, where each form of a product may sum in another order. */
static void check_all_levels(const struct mics_plan *plan, const char *name,
                             struct mics_device *const devices[DEVICES],
                             const struct limits *limits)
{
    static const struct limits same_bits = {0, 0};
    const bool fused = plan->choice.dtype != MICS_F32 && plan->model->family->mlp == MICS_MLP_GELU;
    const bool exact = strstr(devices[UNMEASURED]->description, "emulated") && !fused;

    check_levels(plan, name, devices[HOST], &same_bits);
    check_levels(plan, name, devices[UNMEASURED], exact ? &same_bits : limits);
}

static void check_ladder(const struct mics_plan *plan, const char *name,
                         struct mics_device *const devices[DEVICES], const struct limits *limits)
{
    struct mics_engine *engines[2];
    double worst = 0, first = 0, last = 0;

    for (int i = 0; i < 2; i++)
        engines[i] = open_engine(plan, &plan->choice, devices[i]);
    for (uint32_t number = 1; number <= LADDER; number++) {
        const double want = step(engines[0], plan, number), got = step(engines[1], plan, number);

        printf("# %s: step %u: %.6f, on the host %.6f\n", name, number, got, want);
        const double apart = fabs(got - want) / want;
        worst = apart <= worst ? worst : apart;
        first = number == 1 ? want : first;
        last = want;
    }
    for (int i = 0; i < 2; i++)
        mics_engine_free(engines[i]);
    report(worst <= limits->loss, name, "losses are the host's", worst, limits->loss);
    report(last < first, name, "and fall: the last to the first", last / first, 1.0);
}

static void check_plan(const struct mics_plan *plan, const char *name,
                       struct mics_device *const devices[DEVICES])
{
    const struct limits *limits = plan->choice.dtype == MICS_F32   ? &f32_limits
                                  : plan->choice.dtype == MICS_F16 ? &f16_limits
                                                                   : &bf16_limits;

    check_gradients(plan, name, devices, limits);
    if (plan->choice.recompute == MICS_RECOMPUTE_NONE)
        check_all_levels(plan, name, devices, limits);
    check_ladder(plan, name, devices, limits);
}

static void check_file(const char *path, struct mics_device *const devices[DEVICES])
{
    const char *slash = strrchr(path, '/');
    struct mics_plan *plan = NULL;
    json_t *doc = NULL;
    struct mics_err err;

    must(mics_doc_read_file(path, &doc, &err), &err);
    must(mics_plan_from_doc(doc, &plan, &err), &err);
    check_plan(plan, slash ? slash + 1 : path, devices);
    mics_plan_free(plan);
    json_decref(doc);
}

/* A model by its name, with one layer and heads of 64, which are multiplied on tensor cores in
 * 16 bits. There all tokens have all experts: near a tie they would change them. */
static struct mics_model *open_small(const char *name, enum mics_dtype dtype)
{
    struct mics_model *whole = NULL, *small = NULL;
    struct mics_err err;

    must(mics_model_open(name, &whole, &err), &err);
    struct mics_model_config config = whole->config;
    config.n_layer = 1;
    config.n_head = 2;
    config.n_kv_head = config.n_kv_head == 4 ? 2 : 1; /* of 4 heads */
    config.head_dim = 64;
    if (mics_dtype_is_half(dtype))
        config.n_expert_used = config.n_expert;
    must(mics_model_new(&config, &small, &err), &err);
    mics_model_free(whole);
    return small;
}

static void check_small(const char *model, enum mics_recompute recompute, enum mics_dtype dtype,
                        struct mics_device *const devices[DEVICES])
{
    struct mics_plan plan = {
        .model = open_small(model, dtype),
        .choice = {.shapes = MICS_SAME_SHAPE(
                       {.nodes = 1, .per_node = 1, .p_param = 1, .p_grad = 1, .p_optim = 1}),
                   .strategy = "ddp",
                   .segments = 1,
                   .coalesce = 1,
                   .prefetch = 1,
                   .grad_slots = 2,
                   .micro_batch = 2,
                   .micro_steps = 2,
                   .seq = 17,
                   .recompute = recompute,
                   .optimizer = MICS_OPT_ADAMW,
                   .dtype = dtype,
                   .grad_dtype = dtype,
                   .clip = true}};
    char name[64];

    snprintf(name, sizeof name, "%s %s, recomputation %s", model, mics_dtype_name(dtype),
             mics_recompute_name(recompute));
    check_plan(&plan, name, devices);
    mics_model_free(plan.model);
}

static void check_all_small(struct mics_device *const devices[DEVICES])
{
    static const enum mics_dtype dtypes[] = {MICS_F32, MICS_BF16, MICS_F16};
    static const char *const dense[] = {"gpt2-nano", "llama-nano", "qwen2-nano", /* biases */
                                        "qwen3-nano", /* norms of heads */
                                        "bert-nano"}; /* an encoder */

    for (int i = 0; i < 3; i++)
        for (int model = 0; model < 5; model++)
            if (!tap_leaves_out(3)) /* then each model in one type */
                check_small(dense[model], MICS_RECOMPUTE_NONE, dtypes[i], devices);
    check_small("moe-nano", MICS_RECOMPUTE_SELECTIVE, MICS_F32, devices);
    check_small("qwen2-moe-nano", MICS_RECOMPUTE_NONE, MICS_F32, devices);
    check_small("qwen2-moe-nano", MICS_RECOMPUTE_SELECTIVE, MICS_BF16, devices);
    check_small("gpt2-nano", MICS_RECOMPUTE_SELECTIVE, MICS_BF16, devices);
    if (!TAP_ASAN)
        check_small("gpt2-nano", MICS_RECOMPUTE_FULL, MICS_BF16, devices);
    check_small("gpt2-nano", MICS_RECOMPUTE_FULL, MICS_F16, devices);
}

int main(int argc, char **argv)
{
    struct mics_job_device chosen[DEVICES];
    struct mics_device *devices[DEVICES];
    struct mics_err err;

    use_plugin();
    must(mics_world_open(&world, &err), &err);
    must(mics_job_device_open(world, MICS_DEVICE_HOST, mics_threads_per_rank(1), &chosen[HOST],
                              &err),
         &err);
    must(mics_job_device_open(world, MICS_DEVICE_CUDA, 1, &chosen[GPU], &err), &err);
    setenv("MICS_CUDA_MEASURE", "0", 1);
    must(mics_job_device_open(world, MICS_DEVICE_CUDA, 1, &chosen[UNMEASURED], &err), &err);
    unsetenv("MICS_CUDA_MEASURE");
    for (int i = 0; i < DEVICES; i++)
        devices[i] = chosen[i].device;
    printf("# %s: %s\n", devices[GPU]->name, devices[GPU]->description);
    for (int i = 1; i < argc; i++)
        check_file(argv[i], devices);
    if (argc == 1)
        check_all_small(devices);
    printf("1..%d\n", tests);
    for (int i = DEVICES; i > 0; i--)
        mics_job_device_close(&chosen[i - 1]);
    mics_world_close(world);
    return bad != 0;
}
