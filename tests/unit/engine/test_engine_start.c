/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the first step on, training neither allocates nor frees GPU memory and never synchronises a
 * whole device: everything is allocated, and every algorithm chosen, before. The emulated GPU logs
 * such calls to a file.
 */
#include "comm/job_device.h"
#include "comm/staged.h"
#include "engine/engine.h"
#include "plugin_path.h"
#include "tap.h"

#include <pthread.h>
#include <sys/stat.h>

enum { MAX_RANKS = 4, STEPS = TAP_ASAN ? 2 : 3 };

/* State shared by all ranks of a run. */
struct job {
    const char *model;
    struct mics_plan_choice choice;
    bool prepare;
    pthread_barrier_t barrier; /* of all ranks */
};

struct rank {
    struct job *job;
    struct mics_comm *comm;
    pthread_t thread;
    struct mics_model *model;
    struct mics_err err;
};

static char calls_file[64];
static long begin, end; /* of the steps, in the file of calls */

static long file_size(void)
{
    struct stat about;

    return stat(calls_file, &about) == 0 ? (long)about.st_size : 0;
}

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct mics_plan_choice *choice = context;

    for (uint32_t i = 0; i < choice->micro_batch * choice->seq; i++) {
        tokens[i] = (int32_t)((i * i + micro_step) % 97);
        targets[i] = (int32_t)((i * i + micro_step + 1) % 97);
    }
}

/* A barrier of all ranks, at which one rank checks the log. */
static void mark(struct job *job, long *out)
{
    if (pthread_barrier_wait(&job->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        *out = file_size();
    pthread_barrier_wait(&job->barrier);
}

static enum mics_status run_steps(struct rank *rank, struct mics_engine *engine)
{
    enum mics_status status = MICS_OK;

    for (uint32_t step = 1; status == MICS_OK && step <= STEPS; step++) {
        const struct mics_step_input input = {
            .step = step, .lr = 1e-3f, .fill = fill, .fill_context = &rank->job->choice};
        struct mics_step_result result;
        struct mics_eval_sums sums = {0};

        status = mics_engine_submit(engine, &input, &rank->err);
        if (status == MICS_OK)
            status = mics_engine_collect(engine, &result, &rank->err);
        if (status == MICS_OK && step == 2)
            status = mics_engine_eval(engine, fill, &rank->job->choice, &sums, &rank->err);
    }
    return status;
}

static enum mics_status train(struct rank *rank, struct mics_world *world,
                              struct mics_device *device, struct mics_comm *comm)
{
    const struct mics_engine_options options = {
        .model = rank->model,
        .choice = &rank->job->choice,
        .world = world,
        .comm = comm,
        .device = device,
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1}};
    struct mics_engine *engine = NULL;
    enum mics_status status = mics_engine_new(&options, &engine, &rank->err);

    if (status == MICS_OK && rank->job->prepare)
        status = mics_engine_prepare(engine, &rank->err);
    if (status == MICS_OK && rank->job->prepare)
        status = mics_engine_warm_up(engine, &rank->err);
    if (status == MICS_OK)
        status = mics_engine_init(engine, 1, &rank->err);
    mark(rank->job, &begin);
    if (status == MICS_OK)
        status = run_steps(rank, engine);
    mark(rank->job, &end);
    mics_engine_free(engine);
    return status;
}

/* A model by its name, but of one layer: an emulated GPU is slow. */
static enum mics_status open_small(const char *name, struct mics_model **out, struct mics_err *err)
{
    struct mics_model *whole = NULL;
    enum mics_status status = mics_model_open(name, &whole, err);

    if (status != MICS_OK)
        return status;
    struct mics_model_config config = whole->config;
    config.n_layer = 1;
    mics_model_free(whole);
    return mics_model_new(&config, out, err);
}

static void *rank_main(void *context)
{
    struct rank *rank = context;
    const uint32_t per_node = mics_choice_per_node(&rank->job->choice);
    struct mics_world *world = NULL;
    struct mics_comm *comm = NULL;
    struct mics_job_device gpu = {0};
    enum mics_status status = open_small(rank->job->model, &rank->model, &rank->err);

    if (status == MICS_OK)
        status = mics_world_open_over(rank->comm, per_node, &world, &rank->err);
    if (status == MICS_OK)
        status = mics_job_device_open(world, MICS_DEVICE_CUDA, 1, &gpu, &rank->err);
    if (status == MICS_OK)
        status = mics_comm_new_for_device(world->comm, gpu.device, &comm, &rank->err);
    if (status != MICS_OK || train(rank, world, gpu.device, comm) != MICS_OK) {
        printf("Bail out! %s\n", rank->err.text);
        exit(1);
    }
    mics_comm_free(comm);
    mics_job_device_close(&gpu);
    mics_world_close(world);
    mics_model_free(rank->model);
    return NULL;
}

/* The calls between the beginning of the first step and the end of the last, as lines; "" for none.
 */
static const char *calls_of(const char *model, struct mics_shape shape, enum mics_dtype dtype,
                            bool prepare)
{
    static char text[65536];
    const uint32_t ranks = shape.nodes * shape.per_node;
    struct job job = {.model = model,
                      .choice = {.shapes = MICS_SAME_SHAPE(shape),
                                 .strategy = "custom",
                                 .segments = 1,
                                 .coalesce = 1,
                                 .prefetch = 1,
                                 .grad_slots = 2,
                                 .micro_batch = 1,
                                 .micro_steps = 1,
                                 .seq = 16,
                                 .hierarchical_gather = shape.nodes > 1,
                                 .hierarchical_reduce = shape.nodes > 1,
                                 .optimizer = MICS_OPT_ADAMW,
                                 .dtype = dtype,
                                 .grad_dtype = dtype,
                                 .clip = true},
                      .prepare = prepare};
    struct mics_comm *comms[MAX_RANKS];
    struct rank list[MAX_RANKS] = {0};

    pthread_barrier_init(&job.barrier, NULL, ranks);
    CHECK_INT(mics_comm_new_threads((int)ranks, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < ranks; i++) {
        list[i] = (struct rank){.job = &job, .comm = comms[i]};
        pthread_create(&list[i].thread, NULL, rank_main, &list[i]);
    }
    for (uint32_t i = 0; i < ranks; i++)
        pthread_join(list[i].thread, NULL);
    pthread_barrier_destroy(&job.barrier);

    FILE *in = fopen(calls_file, "rb");
    size_t length = 0;
    if (in && fseek(in, begin, SEEK_SET) == 0)
        length = fread(
            text, 1, (size_t)(end - begin) < sizeof text ? (size_t)(end - begin) : sizeof text - 1,
            in);
    if (in)
        fclose(in);
    text[length] = '\0';
    CHECK(begin > 0); /* calls are written */
    return text;
}

static const struct mics_shape one = {1, 1, 1, 1, 1}, two = {1, 2, 2, 2, 2}, four = {2, 2, 4, 4, 4};

static void a_single_rank_allocates_nothing_in_steps(void)
{
    CHECK_STR(calls_of("gpt2-nano", one, MICS_F32, true), "");
    CHECK_STR(calls_of("llama-nano", one, MICS_BF16, true), "");
    CHECK_STR(calls_of("qwen3-nano", one, MICS_BF16, true), "");
}

static void ranks_over_NCCL_allocate_nothing_in_steps(void)
{
    CHECK_STR(calls_of("gpt2-nano", two, MICS_BF16, true), "");
    if (!TAP_ASAN) /* whose ranks of two nodes are those of test_orders.c */
        CHECK_STR(calls_of("gpt2-nano", four, MICS_F32, true), "");
}

static void ranks_that_exchange_through_the_host_allocate_nothing_in_steps(void)
{
    setenv("MICS_COMM", "staged", 1);
    CHECK_STR(calls_of("gpt2-nano", two, MICS_BF16, true), "");
    CHECK(strstr(calls_of("gpt2-nano", two, MICS_F32, false), "cudaHostAlloc\n")); /* is noticed */
    unsetenv("MICS_COMM");
}

int main(void)
{
    char cache[] = "/tmp/mics-cache-XXXXXX";

    snprintf(calls_file, sizeof calls_file, "/tmp/mics-calls-%ld", (long)getpid());
    if (!mkdtemp(cache))
        return 1;
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("MICS_EMULATED_CALLS", calls_file, 1);
    use_plugin();
    TAP_RUN(a_single_rank_allocates_nothing_in_steps);
    TAP_RUN(ranks_over_NCCL_allocate_nothing_in_steps);
    TAP_RUN(ranks_that_exchange_through_the_host_allocate_nothing_in_steps);
    return tap_done();
}
