/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_arena.c - a step uses exactly the memory that was planned, allocates none, and has no page
 * faults.
 *
 * This program interposes malloc() and its relatives and counts the calls that are made during
 * steps, on any thread and by any library, except for what oneDNN allocates and frees in a call:
 * lists of its arguments, and the panels of some implementations. A primitive that is made in a
 * step would show in the page faults. These are those of the process.
 */
#include "cases.h"
#include "one_core.h"
#include "plan/memory.h"
#include "unit/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_INTERPOSER 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAVE_INTERPOSER 0
#endif
#endif
#ifndef HAVE_INTERPOSER
#define HAVE_INTERPOSER 1
#endif

static int counting_on;
static long allocations;

#if HAVE_INTERPOSER
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

enum { ONEDNN_CALL_BYTES = 32 << 10 };

/* C++'s operator new is in libstdc++, of which oneDNN is the only user here. */
static bool is_from_onednn(const void *caller)
{
    Dl_info info;

    return dladdr(caller, &info) != 0 && info.dli_fname &&
           (strstr(info.dli_fname, "/libdnnl.") || strstr(info.dli_fname, "/libstdc++."));
}

static void note(size_t size, const void *caller)
{
    if (__atomic_load_n(&counting_on, __ATOMIC_ACQUIRE) &&
        !(size <= ONEDNN_CALL_BYTES && is_from_onednn(caller)))
        __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t size)
{
    note(size, __builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    note(count * size, __builtin_return_address(0));
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    note(size, __builtin_return_address(0));
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    note(size, __builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    note(size, __builtin_return_address(0));
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
#endif

enum { WARM = 4, STEPS = 8 };

struct job {
    uint32_t warm, steps; /* first ones, and counted ones after them */
    struct mics_model *model;
    struct mics_plan_choice choice;
    bool documents; /* with padding and masked prompts */
    struct mics_comm *comms[4];
    pthread_barrier_t barrier;
    uint64_t arena_bytes, high_water;
    long faults[2]; /* minor ones of all ranks: in the first steps, in those after them */
};

struct member {
    struct job *job;
    int rank;
    enum mics_status status;
    struct mics_err err;
};

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct member *member = context;
    const struct mics_plan_choice *choice = &member->job->choice;

    for (uint32_t i = 0; i < choice->micro_batch * choice->seq; i++) {
        tokens[i] = targets[i] = (int32_t)((i * 7 + micro_step + (uint32_t)member->rank) % 257);
        if (member->job->documents && (i % 11 < 4 || i % choice->seq > 60))
            targets[i] = i % 11 == 3 ? MICS_TARGET_LAST : MICS_TARGET_NONE;
    }
}

static enum mics_status run_steps(struct member *member, struct mics_engine *engine, uint32_t first,
                                  uint32_t last)
{
    struct mics_step_result result;
    enum mics_status status = MICS_OK;

    for (uint32_t step = first; status == MICS_OK && step <= last; step++) {
        const struct mics_step_input input = {step, 1e-3f, fill, member};

        status = mics_engine_submit(engine, &input, &member->err);
        if (status == MICS_OK && mics_engine_uncollected(engine) == 2)
            status = mics_engine_collect(engine, &result, &member->err);
    }
    while (status == MICS_OK && mics_engine_uncollected(engine) > 0)
        status = mics_engine_collect(engine, &result, &member->err);
    return status;
}

static long faults_so_far(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* Run steps, unless `status` is of a failure, while no rank does anything else. */
static enum mics_status run_counted(struct member *member, enum mics_status status,
                                    struct mics_engine *engine, uint32_t first, uint32_t last,
                                    long *faults)
{
    pthread_barrier_wait(&member->job->barrier);
    const long before = faults_so_far();
    pthread_barrier_wait(&member->job->barrier);
    if (status == MICS_OK)
        status = run_steps(member, engine, first, last);
    pthread_barrier_wait(&member->job->barrier);
    if (member->rank == 0)
        *faults = faults_so_far() - before;
    return status;
}

static enum mics_status run_engine(struct member *member, struct mics_world *world,
                                   struct mics_device *device)
{
    struct job *job = member->job;
    struct mics_engine *engine = NULL;
    const struct mics_engine_options options = {
        .model = job->model,
        .choice = &job->choice,
        .world = world,
        .device = device,
        .documents = job->documents,
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1},
    };
    enum mics_status status = mics_engine_new(&options, &engine, &member->err);

    if (status == MICS_OK)
        status = mics_engine_init(engine, 1, &member->err);
    status = run_counted(member, status, engine, 1, job->warm, &job->faults[0]);
    __atomic_store_n(&counting_on, 1, __ATOMIC_RELEASE);
    status =
        run_counted(member, status, engine, job->warm + 1, job->warm + job->steps, &job->faults[1]);
    __atomic_store_n(&counting_on, 0, __ATOMIC_RELEASE);
    pthread_barrier_wait(&job->barrier);
    if (status == MICS_OK && member->rank == 0) {
        job->arena_bytes = mics_engine_arena_bytes(engine);
        job->high_water = mics_engine_high_water(engine);
    }
    mics_engine_free(engine);
    return status;
}

static void *run_member(void *context)
{
    struct member *member = context;
    struct mics_world *world = NULL;
    struct mics_device *device = NULL;

    member->status =
        mics_world_open_over(member->job->comms[member->rank],
                             mics_choice_per_node(&member->job->choice), &world, &member->err);
    if (member->status == MICS_OK)
        member->status = mics_device_new_host(1, &device, &member->err);
    if (member->status == MICS_OK)
        member->status = run_engine(member, world, device);
    if (device)
        device->ops->free(device);
    mics_world_close(world);
    return NULL;
}

static void run_job(struct job *job)
{
    struct member members[4];
    pthread_t threads[4];
    struct mics_err err;

    if (!job->model)
        CHECK_INT(mics_model_open("gpt2-nano", &job->model, &err), MICS_OK);
    CHECK_INT(mics_comm_new_threads(4, job->comms, &err), MICS_OK);
    pthread_barrier_init(&job->barrier, NULL, 4);
    for (int i = 0; i < 4; i++) {
        members[i] = (struct member){.job = job, .rank = i};
        pthread_create(&threads[i], NULL, run_member, &members[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(members[i].status, MICS_OK);
        if (members[i].status != MICS_OK)
            printf("# rank %d: %s\n", i, members[i].err.text);
    }
    pthread_barrier_destroy(&job->barrier);
}

static struct job make_job(struct mics_shape shape, enum mics_dtype dtype)
{
    struct job job = {.warm = WARM, .steps = STEPS, .choice = cases_choice(&shape)};

    job.choice.optimizer = MICS_OPT_ADAMW;
    job.choice.clip = true;
    job.choice.seq = 64;
    job.choice.micro_steps = 2;
    job.choice.dtype = job.choice.grad_dtype = dtype;
    return job;
}

static void check_job(struct job job)
{
    struct mics_memory memory;

    job.warm = job.steps = 1; /* all of the arena is in use then */
    allocations = 0;
    run_job(&job);
    CHECK_INT(mics_memory_compute(job.model, &job.choice, &memory, NULL), MICS_OK);
    CHECK_INT(job.arena_bytes, memory.arena_bytes);
    CHECK(job.high_water <= job.arena_bytes);
    /* Nothing but what rounds regions up is left. */
    CHECK(job.arena_bytes - job.high_water < MICS_REGION_COUNT * MICS_REGION_ALIGN);
    printf("# arena %llu, handed out %llu, allocations in steps %ld\n",
           (unsigned long long)job.arena_bytes, (unsigned long long)job.high_water, allocations);
    mics_model_free(job.model);
}

static void check_memory(struct mics_shape shape, enum mics_dtype dtype)
{
    check_job(make_job(shape, dtype));
}

static void the_arena_has_the_planned_size_and_is_used_for_mics(void)
{
    check_memory((struct mics_shape){2, 2, 2, 2, 2}, MICS_F32);
}

static void the_arena_has_the_planned_size_and_is_used_for_zero1(void)
{
    check_memory((struct mics_shape){2, 2, 1, 1, 4}, MICS_F32);
}

static void the_arena_has_the_planned_size_and_is_used_for_zero3(void)
{
    check_memory((struct mics_shape){2, 2, 4, 4, 4}, MICS_F32);
}

static void the_arena_has_the_planned_size_and_is_used_in_bf16(void)
{
    check_memory((struct mics_shape){2, 2, 2, 2, 2}, MICS_BF16);
    check_memory((struct mics_shape){2, 2, 1, 2, 4}, MICS_BF16);
    check_memory((struct mics_shape){2, 2, 1, 2, 4}, MICS_F16);
}

static void the_arena_has_the_planned_size_with_blocks(void)
{
    static const struct mics_shape shapes[] = {{2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}, {2, 2, 4, 4, 4}};

    for (int i = 0; i < 6; i++) {
        struct job job = make_job(shapes[i / 2], i % 2 ? MICS_BF16 : MICS_F32);

        job.choice.sync_dtype = i % 2 ? MICS_INT4 : MICS_INT8;
        job.choice.sync_down_dtype = MICS_INT8;
        job.choice.sync_gathers = i == 1;
        job.choice.gather_dtype = MICS_INT8;
        job.choice.hierarchical_gather = true;
        job.choice.segments = 1 + (uint32_t)i % 2;
        check_job(job);
    }
}

static void the_arena_is_the_same_when_attention_stays_within_documents(void)
{
    struct job job = make_job((struct mics_shape){2, 2, 2, 2, 2}, MICS_F32);

    job.documents = true;
    check_job(job);
}

/* Layers with experts, also with one that all tokens share, with a loss over a micro-batch, whose
 * load passes from router to router, and with groups of other sizes for experts. */
static void the_arena_has_the_planned_size_for_layers_with_experts(void)
{
    static const enum mics_balance_kind kinds[] = {MICS_BALANCE_NONE, MICS_BALANCE_MICRO_BATCH,
                                                   MICS_BALANCE_SEQUENCE};

    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        const struct mics_balance balance = {kinds[level], level ? 0.01 : 0, 0.001};
        struct job job = make_job((struct mics_shape){2, 2, 2, 2, 4}, MICS_F32);

        CHECK_INT(mics_model_open("moe-nano", &job.model, NULL), MICS_OK);
        CHECK_INT(mics_model_set_balance(&job.model, &balance, NULL), MICS_OK);
        job.choice.recompute = (enum mics_recompute)level;
        if (level == 1)
            job.choice.shapes[MICS_UNIT_EXPERT] = (struct mics_shape){2, 2, 4, 4, 4};
        check_job(job);
        job = make_job((struct mics_shape){2, 2, 2, 2, 4}, level == 1 ? MICS_BF16 : MICS_F32);
        CHECK_INT(mics_model_open("qwen2-moe-nano", &job.model, NULL), MICS_OK);
        CHECK_INT(mics_model_set_balance(&job.model, &balance, NULL), MICS_OK);
        job.choice.recompute = (enum mics_recompute)level;
        check_job(job);
    }
}

/* Also where a rank has several experts, and where shards of gradients are cut further. */
static void the_arena_has_the_planned_size_for_resident_experts(void)
{
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct job job = make_job((struct mics_shape){2, 2, 2, 2, level == 1 ? 4 : 2},
                                  level == 2 ? MICS_BF16 : MICS_F32);

        CHECK_INT(mics_model_open("moe-nano", &job.model, NULL), MICS_OK);
        job.choice.recompute = (enum mics_recompute)level;
        job.choice.dispatches = true;
        if (level == 0)
            job.choice.shapes[MICS_UNIT_EXPERT] = (struct mics_shape){2, 2, 4, 4, 4};
        check_job(job);
    }
}

/* Three stages and two units in each block, and a boundary tensor that no backward pass reads. */
static void the_arena_has_the_planned_size_for_blocks_of_several_stages(void)
{
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct job job = make_job((struct mics_shape){2, 2, 2, 2, 4}, MICS_F32);

        job.model = cases_staged_model(false);
        job.choice.seq = 8;
        job.choice.micro_batch = 32;
        job.choice.recompute = (enum mics_recompute)level;
        check_job(job);
    }
}

static void the_interposer_counts(void)
{
    if (!HAVE_INTERPOSER)
        TAP_SKIP("a sanitizer owns malloc");
    allocations = 0;
    __atomic_store_n(&counting_on, 1, __ATOMIC_SEQ_CST);
    void *volatile memory = malloc(10);
    __atomic_store_n(&counting_on, 0, __ATOMIC_SEQ_CST);
    free(memory);
    CHECK_INT(allocations, 1);
}

static void nothing_is_allocated_inside_a_step(void)
{
    if (!HAVE_INTERPOSER)
        TAP_SKIP("a sanitizer owns malloc");
    for (int i = 0; i < 4; i++) {
        struct job job = make_job((struct mics_shape){2, 2, 2, 2, 4}, i % 2 ? MICS_BF16 : MICS_F32);

        allocations = 0;
        job.documents = i > 1;
        run_job(&job);
        CHECK_INT(allocations, 0);
        mics_model_free(job.model);
    }
}

/* The first steps fault on the stacks of the streams' threads, which hold blocks of attention. In
 * bf16 the arena is too small for huge pages: had nothing touched it, they would fault on each page
 * of it. A system that moves or reclaims pages adds faults, but not in each of three runs. */
static void a_step_does_not_fault_on_its_memory(void)
{
    if (!HAVE_INTERPOSER)
        TAP_SKIP("a sanitizer has memory of its own");
    for (int i = 0; i < 2; i++) {
        struct job job = make_job((struct mics_shape){2, 2, 2, 2, 4}, i ? MICS_F32 : MICS_BF16);

        job.choice.seq = 16;
        for (int run = 0; run == 0 || (run < 3 && job.faults[1] > 4 * STEPS); run++) {
            run_job(&job);
            mics_model_free(job.model);
            printf("# arena %llu, page faults: %ld in the first %d steps, %ld in the next %d\n",
                   (unsigned long long)job.arena_bytes, job.faults[0], WARM, job.faults[1], STEPS);
        }
        CHECK(job.faults[1] <= 4 * STEPS);
        CHECK(job.faults[0] < (long)(4 * job.arena_bytes / 4096 / 4));
    }
}

int main(void)
{
    use_one_core();
    TAP_RUN(a_step_does_not_fault_on_its_memory); /* first: malloc() has no pages of old arenas */
    TAP_RUN(the_arena_has_the_planned_size_and_is_used_for_mics);
    TAP_RUN(the_arena_has_the_planned_size_and_is_used_for_zero1);
    TAP_RUN(the_arena_has_the_planned_size_and_is_used_for_zero3);
    TAP_RUN(the_arena_has_the_planned_size_and_is_used_in_bf16);
    TAP_RUN(the_arena_has_the_planned_size_with_blocks);
    TAP_RUN(the_arena_is_the_same_when_attention_stays_within_documents);
    TAP_RUN(the_arena_has_the_planned_size_for_blocks_of_several_stages);
    TAP_RUN(the_arena_has_the_planned_size_for_layers_with_experts);
    TAP_RUN(the_arena_has_the_planned_size_for_resident_experts);
    TAP_RUN(the_interposer_counts);
    TAP_RUN(nothing_is_allocated_inside_a_step);
    return tap_done();
}
