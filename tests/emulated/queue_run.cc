/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue_run.cc - who runs what is enqueued, and when: see queue.h.
 *
 * Who waits for an operation marks it and everything it depends on as wanted, and then takes one turn after
 * another until it is over. A turn tries the operations at the heads of the streams in the order of the policy
 * until one of them moves. An order may keep back what nobody wants; but when nothing has moved for a while,
 * all that is enqueued by then is released.
 */
#include "queue_state.h"

static thread_local bool in_call;

bool emu_in_call(void)
{
    return in_call;
}

/* So long does an order keep back what it can. */
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
    if (op->work.call) { /* the device's thread is to make it */
        if (!op->called)
            d.calls.push_back(op);
        step = op->called ? emu_step::STUCK : emu_step::MOVED;
        op->called = true;
        emu_changed().notify_all();
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
        emu_drop_all(d);
    } else if (step == emu_step::DONE) {
        emu_finish(op, stream);
    }
    return step;
}

/* An operation that should be the first, but waits for something outside, gets a little time before others do. */
static bool insists(const emu_device &d, emu_op *op)
{
    const auto now = emu_clock::now();

    if (op->stuck == emu_clock::time_point())
        op->stuck = now;
    return !d.policy->eager() && now - op->stuck < std::chrono::microseconds(op->work.insists_us);
}

/* Run one operation, of those that are released or of all. False: none can go on, or none that may. */
static bool take_turn(emu_guard &guard, emu_device &d, bool released_only)
{
    std::vector<emu_choice> choices;

    for (emu_stream *stream : d.streams) {
        if (stream->ops.empty() || !emu_can_run(*stream->ops.front()))
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
            return true; /* if another thread has finished one, the choices are not what they were */
        if (insists(d, op.get()))
            return false;
    }
    return false;
}

/* Let others do something: briefly at first, for most waits are short. */
static void rest(emu_guard &guard, int looks)
{
    if (looks < 50) {
        guard.unlock();
        std::this_thread::yield();
        guard.lock();
    } else {
        emu_changed().wait_for(guard, std::chrono::microseconds(looks < 1000 ? 20 : 500));
    }
}

void emu_wait(const emu_op_ref &op)
{
    emu_guard guard(emu_state());

    if (!op || op->over || emu_in_call())
        return;
    emu_device &d = emu_device_at(op->device);
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

void emu_run_some(emu_guard &guard, emu_device &d)
{
    for (unsigned left = d.policy->at_once(); left > 0; left--)
        if (d.busy || !take_turn(guard, d, false))
            return;
}

/* Make a call of the host's, if one is asked for. */
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
            emu_finish(op, stream);
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
static void work(emu_device *device)
{
    emu_device &d = *device;
    emu_guard guard(emu_state());
    int looks = 0;

    while (!ending) {
        const auto quiet = emu_clock::now() - d.last_call;

        release(d, quiet);
        if (make_call(guard, d)) {
            looks = 0;
        } else if (is_idle(d)) {
            d.asleep = true;
            emu_changed().wait(guard);
            d.asleep = false;
        } else if (!has_released(d)) {
            emu_changed().wait_for(guard, patience() - quiet);
        } else if (!d.busy && d.waiting == 0 && take_turn(guard, d, true)) {
            looks = 0;
        } else {
            rest(guard, looks++);
        }
    }
}

void emu_have_worker(emu_device &d)
{
    if (!d.worker.joinable())
        d.worker = std::thread(work, &d);
    else if (d.asleep)
        emu_changed().notify_all();
}

emu_device::~emu_device()
{
    {
        emu_guard guard(emu_state());

        ending = true;
        broken = true;
        emu_changed().notify_all();
    }
    if (worker.joinable())
        worker.join();
    emu_drop_all(*this);
    for (emu_stream *stream : streams)
        delete stream;
}
