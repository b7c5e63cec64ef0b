/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.cc - the streams of emulated GPUs, the order in which operations run, and the threads that
 * run them: see queue.h.
 *
 * A thread that waits for an operation marks it and everything it depends on as wanted, and then
 * runs steps until the operation has ended. A step tries the operations at the heads of the streams
 * in the order of the policy (order.h) until one of them progresses. An order may keep back what is
 * not wanted; but when nothing has progressed for a while, all that is enqueued by then is
 * released.
 */
#include "queue.h"

#include "order.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

/* --- the order of operations of different streams */

namespace
{

/* An operation at the head of its stream that could run. */
struct emu_choice {
    struct emu_stream *stream;
    unsigned lane;   /* of its device, which stream it is */
    uint64_t number; /* in which the host enqueued it */
    bool wanted;     /* a thread waits for it or a dependent one, or has waited long enough */
};

class emu_policy
{
  public:
    /* The policy that MICS_EMULATED_ORDER selects. */
    emu_policy();

    /* Put the next one first, and so on; leave out what this order keeps back. */
    void order(std::vector<emu_choice> *choices);
    /* How many operations run when something has been enqueued, if so many can. */
    unsigned at_once();
    /* Whether operations run while the host does other things, or only when it waits. */
    bool eager() const;

  private:
    enum { LATE, EARLY, OTHERS, DRAWN } kind_;
    uint64_t seed_ = 0, draws_ = 0, favour_ = 0;

    uint64_t draw(uint64_t n); /* a random number below n */
    void shuffle(std::vector<emu_choice> *choices);
};

} // namespace

emu_policy::emu_policy()
{
    const char *text = getenv("MICS_EMULATED_ORDER");
    char *end;

    kind_ = LATE;
    if (!text || !*text || strcmp(text, "late") == 0)
        return;
    if (strcmp(text, "early") == 0)
        kind_ = EARLY;
    else if (strcmp(text, "others") == 0)
        kind_ = OTHERS;
    else
        kind_ = DRAWN;
    seed_ = strtoull(text, &end, 10);
    if (kind_ == DRAWN && *end) {
        fprintf(stderr,
                "emulator: MICS_EMULATED_ORDER=%s: expected early, late, others or a number\n",
                text);
        abort();
    }
}

/* Splitmix (Steele et al. 2014). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t emu_policy::draw(uint64_t n)
{
    return mix(seed_ + ++draws_ * 0x9e3779b97f4a7c15u) % n;
}

/* The same stream is preferred for a while, so that it gets far ahead of others. */
void emu_policy::shuffle(std::vector<emu_choice> *choices)
{
    auto preference = [this](const emu_choice &c) {
        return mix(favour_ ^ (c.lane + 1) * 0x9e3779b97f4a7c15u);
    };

    if (draw(24) == 0)
        favour_ = draw(~0ull);
    std::sort(choices->begin(), choices->end(), [&](const emu_choice &a, const emu_choice &b) {
        return preference(a) < preference(b);
    });
    if (choices->size() > 1 && draw(6) == 0)
        std::swap(choices->front(), (*choices)[draw(choices->size())]);
}

void emu_policy::order(std::vector<emu_choice> *choices)
{
    auto newest_first = [](const emu_choice &a, const emu_choice &b) {
        return a.number > b.number;
    };

    std::sort(choices->begin(), choices->end(), newest_first);
    if (kind_ == EARLY)
        std::reverse(choices->begin(), choices->end());
    if (kind_ == OTHERS)
        std::stable_partition(choices->begin(), choices->end(),
                              [](const emu_choice &c) { return !c.wanted; });
    if (kind_ == DRAWN)
        shuffle(choices);
    if (kind_ == LATE || (kind_ == DRAWN && draw(2) == 0))
        choices->erase(std::remove_if(choices->begin(), choices->end(),
                                      [](const emu_choice &c) { return !c.wanted; }),
                       choices->end());
}

unsigned emu_policy::at_once()
{
    if (kind_ == EARLY)
        return ~0u;
    return kind_ == DRAWN && draw(8) == 0 ? (unsigned)draw(6) : 0;
}

bool emu_policy::eager() const
{
    return kind_ == EARLY;
}

/* --- streams */

typedef std::chrono::steady_clock emu_clock;
typedef std::unique_lock<std::mutex> emu_guard;

struct emu_op {
    emu_work work;
    emu_op_ref before; /* the one before it in its stream, until that has ended */
    uint64_t number;   /* in which they are enqueued, all streams of a device */
    int device;
    bool wanted, begun, called, over;
    double over_ms; /* when, on a clock of the emulator */
    emu_clock::time_point
        stuck; /* when it began to wait for something outside; 0: it has not waited */
};

struct emu_stream {
    int device;
    unsigned lane;
    bool blocking; /* ordered with the legacy default stream */
    bool closed;   /* freed when it is empty */
    std::deque<emu_op_ref> ops;
};

struct emu_device {
    std::vector<emu_stream *> streams; /* [0]: the legacy default stream */
    std::unique_ptr<emu_policy> policy;
    uint64_t numbers;  /* of operations, so far */
    uint64_t finished; /* of them */
    uint64_t released; /* those up to this one are not kept back */
    uint64_t waits;    /* for events, since the first stream was opened */
    unsigned lanes;
    bool busy;        /* a thread runs an operation */
    bool asleep;      /* the device's thread has nothing to do */
    unsigned waiting; /* threads of the host that wait, and run what can run */
    emu_clock::time_point last_call;
    std::deque<emu_op_ref> calls; /* of functions of the host, for the device's thread */
    std::thread worker;
    std::atomic<bool> broken;

    ~emu_device();
};

static std::mutex state;                /* guards everything below but the policy of an order */
static std::condition_variable changed; /* of `state` */
static emu_device devices[EMU_DEVICES];

static std::atomic<long> passed_ms;

void emu_let_pass(long ms)
{
    passed_ms += ms;
}

static double now_ms(void)
{
    return std::chrono::duration<double, std::milli>(emu_clock::now().time_since_epoch()).count() +
           (double)passed_ms.load();
}

static emu_stream *new_stream(int device, bool blocking)
{
    emu_device &d = devices[device];
    auto *stream = new emu_stream{device, d.lanes++, blocking, false, {}};

    d.streams.push_back(stream);
    return stream;
}

/* The legacy default stream of a device is the first of its streams. */
static emu_stream *legacy(int device)
{
    emu_device &d = devices[device];

    return d.streams.empty() ? new_stream(device, true) : d.streams[0];
}

static emu_stream *stream_of(cudaStream_t stream)
{
    return stream ? stream : legacy(emu_current_device());
}

cudaStream_t emu_stream_open(bool blocking)
{
    const int device = emu_current_device();
    emu_guard guard(state);

    if (legacy(device)->ops.empty() && devices[device].streams.size() == 1) {
        devices[device].waits = 0;
        devices[device].policy =
            std::make_unique<emu_policy>(); /* the order may have been changed meanwhile */
    }
    return new_stream(device, blocking);
}

uint64_t emu_count_wait(cudaStream_t stream)
{
    emu_guard guard(state);

    return ++devices[stream_of(stream)->device].waits;
}

/* Streams that are closed and empty. */
static void sweep(emu_device &d)
{
    d.streams.erase(std::remove_if(d.streams.begin(), d.streams.end(),
                                   [](emu_stream *stream) {
                                       const bool gone = stream->closed && stream->ops.empty();

                                       if (gone)
                                           delete stream;
                                       return gone;
                                   }),
                    d.streams.end());
}

void emu_stream_close(cudaStream_t stream)
{
    emu_guard guard(state);

    stream->closed = true;
    sweep(devices[stream->device]);
}

int emu_device_of(cudaStream_t stream)
{
    return stream ? stream->device : emu_current_device();
}

static emu_op_ref last_of(const emu_stream *stream)
{
    return stream->ops.empty() ? nullptr : stream->ops.back();
}

/* The legacy default stream waits for all that block, and they for it. */
static void order_with_legacy(emu_stream *stream, std::vector<emu_op_ref> *after)
{
    emu_stream *const first = legacy(stream->device);

    if (stream != first && stream->blocking)
        after->push_back(last_of(first));
    for (emu_stream *other : devices[stream->device].streams)
        if (stream == first && other != first && other->blocking)
            after->push_back(last_of(other));
}

static void drop_finished(std::vector<emu_op_ref> *ops)
{
    ops->erase(std::remove_if(ops->begin(), ops->end(),
                              [](const emu_op_ref &op) { return !op || op->over; }),
               ops->end());
}

/* Defined below: run as much as the order wants when something has been enqueued; start the
 * device's own thread, if there is none. */
static void run_some(emu_guard &guard, emu_device &d);
static void have_worker(emu_device &d);

emu_op_ref emu_enqueue(cudaStream_t where, emu_work work)
{
    emu_guard guard(state);
    emu_stream *const stream = stream_of(where);
    emu_device &d = devices[stream->device];

    if (d.broken || emu_in_call())
        return nullptr;
    order_with_legacy(stream, &work.after);
    drop_finished(&work.after);
    if (!d.policy)
        d.policy = std::make_unique<emu_policy>();
    auto op = std::make_shared<emu_op>(emu_op{std::move(work),
                                              last_of(stream),
                                              ++d.numbers,
                                              stream->device,
                                              false,
                                              false,
                                              false,
                                              false,
                                              0,
                                              {}});
    stream->ops.push_back(op);
    d.last_call = emu_clock::now();
    have_worker(d);
    run_some(guard, d);
    return op;
}

emu_op_ref emu_enqueue_plain(cudaStream_t stream, std::function<void()> run)
{
    emu_work work;

    work.run = [run = std::move(run)] {
        run();
        return emu_step::DONE;
    };
    return emu_enqueue(stream, std::move(work));
}

static bool can_run(const emu_op &op)
{
    auto over = [](const emu_op_ref &other) { return other->over; };

    return op.begun || (std::all_of(op.work.after.begin(), op.work.after.end(), over) &&
                        (!op.work.behind || op.work.behind->begun || op.work.behind->over));
}

static void end(const emu_op_ref &op)
{
    op->over = true;
    op->over_ms = now_ms();
    op->before = nullptr;
    op->work = {};
}

static void finish(const emu_op_ref &op, emu_stream *stream)
{
    stream->ops.pop_front();
    end(op);
    devices[op->device].finished++;
    if (!stream->ops.empty())
        stream->ops.front()->before = nullptr;
    else if (stream->closed)
        sweep(devices[op->device]);
    changed.notify_all();
}

static void drop_all(emu_device &d)
{
    for (emu_stream *stream : d.streams) {
        for (const emu_op_ref &op : stream->ops)
            end(op);
        stream->ops.clear();
    }
    d.finished++;
    sweep(d);
    changed.notify_all();
}

bool emu_is_over(const emu_op_ref &op)
{
    emu_guard guard(state);

    return !op || op->over;
}

double emu_over_ms(const emu_op_ref &op)
{
    emu_guard guard(state);

    return op->over_ms;
}

emu_op_ref emu_last(cudaStream_t stream)
{
    emu_guard guard(state);

    return last_of(stream_of(stream));
}

void emu_wait_for_device(void)
{
    std::vector<emu_op_ref> last;
    {
        emu_guard guard(state);

        for (const emu_stream *stream : devices[emu_current_device()].streams)
            last.push_back(last_of(stream));
    }
    for (const emu_op_ref &op : last)
        emu_wait(op);
}

bool emu_is_broken(void)
{
    return devices[emu_current_device()].broken;
}

void emu_repair(void)
{
    emu_guard guard(state);
    emu_device &d = devices[emu_current_device()];

    drop_all(d);
    d.broken = false;
}

/* --- threads that run operations */

static thread_local bool in_call;

bool emu_in_call(void)
{
    return in_call;
}

/* How long an order may keep operations back. */
static emu_clock::duration patience(void)
{
    static const long long ms = emu_setting("MICS_EMULATED_PATIENCE_MS", 20);

    return std::chrono::milliseconds(ms);
}

/* Without recursion: a stream may be thousands long. */
static void want(const emu_op_ref &op)
{
    std::vector<emu_op *> rest;
    auto add = [&rest](const emu_op_ref &other) {
        if (!other || other->over || other->wanted)
            return;
        other->wanted = true;
        rest.push_back(other.get());
    };

    add(op);
    while (!rest.empty()) {
        emu_op *next = rest.back();

        rest.pop_back();
        add(next->before);
        add(next->work.behind);
        for (const emu_op_ref &other : next->work.after)
            add(other);
    }
}

/* Is anything enqueued? */
static bool is_idle(const emu_device &d)
{
    for (const emu_stream *stream : d.streams)
        if (!stream->ops.empty())
            return false;
    return true;
}

/* Run the operation at the head of a stream, unlocked. */
static emu_step run_head(emu_guard &guard, emu_device &d, const emu_op_ref &op, emu_stream *stream)
{
    emu_step step = emu_step::DONE;

    op->begun = true;
    op->work.behind = nullptr;
    if (op->work.call) { /* the device's thread makes it */
        if (!op->called)
            d.calls.push_back(op);
        step = op->called ? emu_step::STUCK : emu_step::MOVED;
        op->called = true;
        changed.notify_all();
    } else if (op->work.run) {
        std::function<emu_step()> run = std::move(op->work.run); /* it may be dropped meanwhile */

        d.busy = true;
        guard.unlock();
        step = run();
        guard.lock();
        d.busy = false;
        if (!op->over)
            op->work.run = std::move(run);
    }
    if (op->over)
        return step;
    if (step == emu_step::FAILED) {
        d.broken = true;
        drop_all(d);
    } else if (step == emu_step::DONE) {
        finish(op, stream);
    }
    return step;
}

/* If the first operation waits for something outside the GPU, it gets a short time before others
 * run. */
static bool insists(const emu_device &d, emu_op *op)
{
    const auto now = emu_clock::now();

    if (op->stuck == emu_clock::time_point())
        op->stuck = now;
    return !d.policy->eager() && now - op->stuck < std::chrono::microseconds(op->work.insists_us);
}

/* Run one operation, of those that are released or of all. False: none of them can progress.
 */
static bool take_turn(emu_guard &guard, emu_device &d, bool released_only)
{
    std::vector<emu_choice> choices;

    for (emu_stream *stream : d.streams) {
        if (stream->ops.empty() || !can_run(*stream->ops.front()))
            continue;
        const emu_op &op = *stream->ops.front();
        const bool released = op.number <= d.released;
        if (released || !released_only)
            choices.push_back({stream, stream->lane, op.number, op.wanted || released});
    }
    d.policy->order(&choices);
    const uint64_t finished = d.finished;
    for (const emu_choice &choice : choices) {
        const emu_op_ref op = choice.stream->ops.front();

        if (run_head(guard, d, op, choice.stream) != emu_step::STUCK || d.finished != finished)
            return true; /* if another thread has finished one, the choices are not what they were
                          */
        if (insists(d, op.get()))
            return false;
    }
    return false;
}

/* Yield to other threads: briefly at first, because most waits are short. */
static void rest(emu_guard &guard, int looks)
{
    if (looks < 50) {
        guard.unlock();
        std::this_thread::yield();
        guard.lock();
    } else {
        changed.wait_for(guard, std::chrono::microseconds(looks < 1000 ? 20 : 500));
    }
}

void emu_wait(const emu_op_ref &op)
{
    emu_guard guard(state);

    if (!op || op->over || emu_in_call())
        return;
    emu_device &d = devices[op->device];
    emu_clock::time_point moved = emu_clock::now();
    int looks = 0;

    want(op);
    d.waiting++;
    while (!op->over) {
        if (!d.busy && take_turn(guard, d, false)) {
            moved = emu_clock::now();
            looks = 0;
            continue;
        }
        if (emu_clock::now() - moved > patience())
            d.released = d.numbers;
        rest(guard, looks++);
    }
    d.waiting--;
    d.last_call = emu_clock::now();
}

static void run_some(emu_guard &guard, emu_device &d)
{
    for (unsigned left = d.policy->at_once(); left > 0; left--)
        if (d.busy || !take_turn(guard, d, false))
            return;
}

/* Call a host function, if one is pending. */
static bool make_call(emu_guard &guard, emu_device &d)
{
    if (d.calls.empty())
        return false;
    const emu_op_ref op = d.calls.front();
    d.calls.pop_front();
    if (op->over) /* dropped */
        return true;
    const emu_work work = op->work;
    guard.unlock();
    in_call = true;
    work.call(work.context);
    in_call = false;
    guard.lock();
    for (emu_stream *stream : d.streams)
        if (!stream->ops.empty() && stream->ops.front() == op) {
            finish(op, stream);
            break;
        }
    return true;
}

static bool ending; /* of the program, or of the plug-in */

/* Is anything enqueued that the device's thread may run? */
static bool has_released(const emu_device &d)
{
    for (const emu_stream *stream : d.streams)
        if (!stream->ops.empty() && stream->ops.front()->number <= d.released)
            return true;
    return false;
}

/* What has waited for long enough, or in an eager order everything, is released. */
static void release(emu_device &d, emu_clock::duration quiet)
{
    if (d.policy->eager() || quiet >= patience())
        d.released = d.numbers;
}

/* A device's own thread. */
static void run_worker(emu_device *device)
{
    emu_device &d = *device;
    emu_guard guard(state);
    int looks = 0;

    while (!ending) {
        const auto quiet = emu_clock::now() - d.last_call;

        release(d, quiet);
        if (make_call(guard, d)) {
            looks = 0;
        } else if (is_idle(d)) {
            d.asleep = true;
            changed.wait(guard);
            d.asleep = false;
        } else if (!has_released(d)) {
            changed.wait_for(guard, patience() - quiet);
        } else if (!d.busy && d.waiting == 0 && take_turn(guard, d, true)) {
            looks = 0;
        } else {
            rest(guard, looks++);
        }
    }
}

static void have_worker(emu_device &d)
{
    if (!d.worker.joinable())
        d.worker = std::thread(run_worker, &d);
    else if (d.asleep)
        changed.notify_all();
}

emu_device::~emu_device()
{
    {
        emu_guard guard(state);

        ending = true;
        broken = true;
        changed.notify_all();
    }
    if (worker.joinable())
        worker.join();
    drop_all(*this);
    for (emu_stream *stream : streams)
        delete stream;
}
