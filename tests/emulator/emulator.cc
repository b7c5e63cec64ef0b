/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulator.cc - blocks, threads, barriers: see emulator.h.
 *
 * A thread that waits switches to the next fiber that can continue, or to one that starts the next
 * thread. When none can, the launch's own stack continues: all threads have ended, or some wait for
 * ever.
 */
#include "emulator.h"

#include "fiber.h"
#include "order.h"
#include "queue.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace
{

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / EMU_WARP, PLAIN_SHARED_BYTES = 48 << 10 };
enum { MOST_SHARED_BYTES = 227 << 10 };

enum state { NEW, READY, AT_BLOCK, AT_WARP, ENDED };

struct thread {
    enum state state;
    struct emu_fiber *fiber;
    unsigned mask; /* of the lanes that it waits for */
    emu_meet_fn meet;
    void *lane;
};

/* What a host thread has: the fibers, and the block that runs. */
struct machine {
    struct emu_fiber *main = nullptr;
    std::vector<struct emu_fiber *> idle, all;
    const struct emu_job *job = nullptr;
    struct thread threads[MAX_THREADS];
    unsigned count, started, ended, at_block, predicates, predicate_sum;
    unsigned order[MAX_THREADS]; /* in which threads start */
    unsigned ready[MAX_THREADS]; /* threads that can continue */
    unsigned ready_count;
    unsigned warp_waiting[MAX_WARPS], warp_ended[MAX_WARPS]; /* a bit for each lane */
    std::map<const void *, void *> arrays; /* in shared memory, by what declares them */
    std::vector<std::pair<const void *, void *>> declared; /* those of this block */
    void *shared = nullptr;                                /* the dynamic part */
    uint64_t seed = 0, draws = 0, blocks = 0;
    bool failed = false;

    ~machine();
};

} // namespace

__thread struct emu_now emu_now;

static __thread struct machine *running;

static std::mutex shared_limits_lock;
static std::map<const void *, int> shared_limits;

static void free_fibers(struct machine *m)
{
    for (struct emu_fiber *fiber : m->all)
        emu_fiber_free(fiber);
    m->all.clear();
    m->idle.clear();
}

machine::~machine()
{
    free_fibers(this);
    emu_fiber_free(main);
    for (const std::pair<const void *const, void *> &array : arrays)
        free(array.second);
}

/* A random number below n. Splitmix (Steele et al. 2014). */
static unsigned draw(struct machine *m, unsigned n)
{
    uint64_t z = m->seed + ++m->draws * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ (z >> 31)) % n);
}

/* Seed of the next launch: each has another. */
static thread_local uint64_t order_seed, ordered;

void emu_set_order(uint64_t seed)
{
    order_seed = seed;
    ordered = 0;
}

void emu_order(uint64_t seed)
{
    emu_set_order(seed);
}

static void become(const struct machine *m, unsigned i)
{
    dim3 block = m->job->block;

    emu_now.linear = i;
    emu_now.thread_index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
}

static void make_ready(struct machine *m, unsigned i)
{
    m->threads[i].state = READY;
    m->ready[m->ready_count++] = i;
}

/* The next fiber that can continue; nullptr when none can. By default that of the thread that
 * became ready last, so that a warp runs as far ahead of the others as barriers allow, which
 * exposes a missing barrier. In a random order it is any fiber. */
static struct emu_fiber *ready_fiber(struct machine *m)
{
    if (m->ready_count > 0) {
        unsigned *last = &m->ready[m->ready_count - 1];
        unsigned i;

        std::swap(*last, m->ready[m->seed == 0 ? m->ready_count - 1 : draw(m, m->ready_count)]);
        i = *last;
        m->ready_count--;
        become(m, i);
        return m->threads[i].fiber;
    }
    if (m->started < m->count && !m->idle.empty()) {
        struct emu_fiber *fiber = m->idle.back();

        m->idle.pop_back();
        return fiber;
    }
    return nullptr;
}

/* The main fiber when no other can continue. */
static struct emu_fiber *next_fiber(struct machine *m)
{
    struct emu_fiber *fiber = ready_fiber(m);

    return fiber ? fiber : m->main;
}

static void run_thread(struct machine *m, unsigned i, struct emu_fiber *fiber)
{
    m->threads[i].state = READY;
    m->threads[i].fiber = fiber;
    become(m, i);
    m->job->call(m->job->arguments.get());
    m->threads[i].state = ENDED;
    m->warp_ended[i / EMU_WARP] |= 1u << (i % EMU_WARP);
    m->ended++;
}

/* A fiber's main loop: it runs threads that have not started, one after another, and is idle when
 * there are none. */
static void live(struct emu_fiber *fiber)
{
    struct machine *m = running;

    for (;;) {
        struct emu_fiber *next;

        while (m->started < m->count)
            run_thread(m, m->order[m->started++], fiber);
        next = next_fiber(m);
        m->idle.push_back(fiber);
        emu_fiber_switch(fiber, next);
    }
}

/* The running thread waits: let others run until it is ready. */
static void wait(struct machine *m)
{
    struct thread *self = &m->threads[emu_now.linear];
    struct emu_fiber *next;

    if (m->started < m->count && m->idle.empty()) {
        struct emu_fiber *fiber = emu_fiber_new(live);

        if (!fiber)
            emu_fail("no memory for another thread");
        m->all.push_back(fiber);
        m->idle.push_back(fiber);
    }
    next = next_fiber(m);
    if (next != self->fiber)
        emu_fiber_switch(self->fiber, next);
}

void emu_fail(const char *format, ...)
{
    struct machine *m = running;
    uint3 b = emu_now.block_index, t = emu_now.thread_index;
    va_list args;

    fprintf(stderr, "emulator: %s: block %u,%u,%u thread %u,%u,%u: ", m->job->name, b.x, b.y, b.z,
            t.x, t.y, t.z);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    m->failed = true;
    emu_fiber_switch(m->threads[emu_now.linear].fiber, m->main);
    abort();
}

int emu_block_barrier(int predicate)
{
    struct machine *m = running;
    unsigned self = emu_now.linear;

    m->predicates += predicate != 0;
    if (m->ended > 0)
        emu_fail("waits for its block, of which %u threads have ended", m->ended);
    if (++m->at_block < m->count) {
        m->threads[self].state = AT_BLOCK;
        wait(m);
        return (int)m->predicate_sum;
    }
    m->predicate_sum = m->predicates;
    m->predicates = m->at_block = 0;
    for (unsigned i = 0; i < m->count; i++)
        if (m->order[i] != self)
            make_ready(m, m->order[i]);
    if (m->seed != 0) { /* the last to arrive need not be the first to continue */
        make_ready(m, self);
        wait(m);
    }
    return (int)m->predicate_sum;
}

/* Lanes that a warp has: the last of a block may be shorter. */
static unsigned lanes_there(const struct machine *m, unsigned first)
{
    return m->count - first >= EMU_WARP ? ~0u : (1u << (m->count - first)) - 1;
}

unsigned emu_warp_alive(void)
{
    unsigned warp = emu_now.linear / EMU_WARP;

    return lanes_there(running, warp * EMU_WARP) & ~running->warp_ended[warp];
}

/* All lanes of the mask have arrived: check that they execute the same operation, and exchange
 * their values. */
static void meet_lanes(struct machine *m, unsigned first, unsigned mask, emu_meet_fn meet)
{
    void *lanes[EMU_WARP] = {};

    for (unsigned i = 0; i < EMU_WARP; i++) {
        if (!(mask >> i & 1))
            continue;
        if (m->threads[first + i].mask != mask || m->threads[first + i].meet != meet)
            emu_fail("meets lane %u, which is at another operation or has another mask", i);
        lanes[i] = m->threads[first + i].lane;
    }
    meet(lanes, mask);
}

void emu_warp_meet(unsigned mask, emu_meet_fn meet, void *lane)
{
    struct machine *m = running;
    unsigned self = emu_now.linear, warp = self / EMU_WARP, first = warp * EMU_WARP;
    struct thread *thread = &m->threads[self];

    mask &= lanes_there(m, first);
    if (!(mask >> (self - first) & 1))
        emu_fail("is not in the mask %08x of its own operation", mask);
    if (mask & m->warp_ended[warp])
        emu_fail("waits for lanes of its warp that have ended");
    *thread = {AT_WARP, thread->fiber, mask, meet, lane};
    m->warp_waiting[warp] |= 1u << (self - first);
    if (mask & ~m->warp_waiting[warp]) {
        wait(m);
        return;
    }
    meet_lanes(m, first, mask, meet);
    m->warp_waiting[warp] &= ~mask;
    for (unsigned i = first; i < first + EMU_WARP; i++)
        if ((mask >> (i - first) & 1) && i != self)
            make_ready(m, i);
    thread->state = READY;
    if (m->seed != 0) {
        make_ready(m, self);
        wait(m);
    }
}

void *emu_shared(const void *key, size_t bytes)
{
    struct machine *m = running;

    for (const std::pair<const void *, void *> &known : m->declared)
        if (known.first == key)
            return known.second;
    void *&array = m->arrays[key];
    if (!array && posix_memalign(&array, 16, bytes) != 0)
        emu_fail("no memory for a shared array");
    m->declared.emplace_back(key, array);
    memset(array, 0xff, bytes);
    return array;
}

uint64_t emu_block_number(void)
{
    return running->blocks;
}

void *emu_dynamic_shared(void)
{
    return running->shared;
}

static void set_up_block(struct machine *m, uint3 index)
{
    dim3 block = m->job->block, grid = m->job->grid;

    m->blocks++;
    emu_now.block_index = index;
    emu_now.block_dim = {block.x, block.y, block.z};
    emu_now.grid_dim = {grid.x, grid.y, grid.z};
    m->count = block.x * block.y * block.z;
    m->started = m->ended = m->at_block = m->predicates = m->ready_count = 0;
    memset(m->warp_waiting, 0, sizeof(m->warp_waiting));
    memset(m->warp_ended, 0, sizeof(m->warp_ended));
    m->declared.clear();
    memset(m->shared, 0xff, m->job->shared_bytes);
    for (unsigned i = 0; i < m->count; i++) {
        m->threads[i] = {NEW, nullptr, 0, nullptr, nullptr};
        m->order[i] = i;
    }
    for (unsigned i = m->count; m->seed != 0 && i > 1; i--)
        std::swap(m->order[i - 1], m->order[draw(m, i)]);
}

/* No thread can continue, and not all have ended: report what each waits for. */
static void tell_deadlock(const struct machine *m)
{
    unsigned in[ENDED + 1] = {};
    uint3 b = emu_now.block_index;

    for (unsigned i = 0; i < m->count; i++)
        in[m->threads[i].state]++;
    fprintf(
        stderr,
        "emulator: %s: block %u,%u,%u: %u threads wait for the block for ever, %u for their warp, "
        "%u have ended\n",
        m->job->name, b.x, b.y, b.z, in[AT_BLOCK], in[AT_WARP], in[ENDED]);
}

static bool run_block(struct machine *m, uint3 index)
{
    struct emu_fiber *fiber;

    set_up_block(m, index);
    if (m->idle.empty()) {
        fiber = emu_fiber_new(live);
        if (!fiber) {
            m->failed = true;
            return false;
        }
        m->all.push_back(fiber);
        m->idle.push_back(fiber);
    }
    fiber = m->idle.back();
    m->idle.pop_back();
    emu_fiber_switch(m->main, fiber);
    if (!m->failed && m->ended < m->count) {
        tell_deadlock(m);
        m->failed = true;
    }
    return !m->failed;
}

static bool run_grid(struct machine *m)
{
    dim3 grid = m->job->grid;

    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++)
                if (!run_block(m, {x, y, z}))
                    return false;
    return true;
}

/* The limits of compute capability 9.0. */
static cudaError_t check_limits(const struct emu_job *job)
{
    dim3 grid = job->grid, block = job->block;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    size_t limit = PLAIN_SHARED_BYTES;

    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535 || threads == 0 || threads > MAX_THREADS || block.z > 64)
        return cudaErrorInvalidConfiguration;
    if (job->shared_bytes > limit) {
        std::lock_guard<std::mutex> guard(shared_limits_lock);
        auto found = shared_limits.find(job->kernel);

        if (found != shared_limits.end())
            limit = (size_t)found->second;
    }
    return job->shared_bytes > limit ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t emu_func_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    std::lock_guard<std::mutex> guard(shared_limits_lock);

    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || value > MOST_SHARED_BYTES)
        return cudaErrorInvalidValue;
    shared_limits[kernel] = value;
    return cudaSuccess;
}

/* Fibers with threads that will never end are discarded. */
static void clean_up(struct machine *m)
{
    free(m->shared);
    m->shared = nullptr;
    m->job = nullptr;
    if (m->failed)
        free_fibers(m);
    m->failed = false;
}

/* Run a launch that is next in its stream. */
static emu_step run(const struct emu_job &job)
{
    static thread_local std::unique_ptr<struct machine> own;

    if (!own)
        own.reset(running = new (std::nothrow) machine());
    struct machine *m = running;
    if (m && !m->main)
        m->main = emu_fiber_main();
    if (!m || !m->main ||
        posix_memalign(&m->shared, 1024, job.shared_bytes ? job.shared_bytes : 1) != 0)
        return emu_step::FAILED;
    m->job = &job;
    m->seed = job.seed;
    m->draws = 0;
    const bool well = run_grid(m);
    clean_up(m);
    return well ? emu_step::DONE : emu_step::FAILED;
}

static cudaError_t enqueue(struct emu_job job, cudaStream_t stream)
{
    const cudaError_t error = check_limits(&job);
    emu_work work;

    if (error != cudaSuccess)
        return emu_note(error);
    if (emu_device_of(stream) != emu_current_device())
        return emu_note(cudaErrorInvalidResourceHandle);
    if (order_seed != 0)
        job.seed = order_seed + (ordered++ << 32);
    work.run = [job = std::move(job)] { return run(job); };
    emu_enqueue(stream, std::move(work));
    return emu_note(cudaSuccess);
}

/* As MICS_LAUNCH on a GPU: the thread's last error, also that of an earlier call which was not
 * queried. */
cudaError_t emu_launch(struct emu_job job, cudaStream_t stream)
{
    (void)enqueue(std::move(job), stream);
    return cudaGetLastError();
}
