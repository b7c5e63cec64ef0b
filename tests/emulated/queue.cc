/* SPDX-License-Identifier: Apache-2.0 */
/* queue.cc - streams, and what is enqueued on them: see queue.h. */
#include "queue_state.h"

#include <algorithm>

static std::mutex state;
static std::condition_variable changed;
static emu_device devices[EMU_DEVICES];

std::mutex &emu_state(void)
{
    return state;
}

std::condition_variable &emu_changed(void)
{
    return changed;
}

emu_device &emu_device_at(int device)
{
    return devices[device];
}

static double now_ms(void)
{
    return std::chrono::duration<double, std::milli>(emu_clock::now().time_since_epoch()).count();
}

static emu_stream *new_stream(int device, bool blocking)
{
    emu_device &d = devices[device];
    auto *stream = new emu_stream{device, d.lanes++, blocking, false, {}};

    d.streams.push_back(stream);
    return stream;
}

/* The legacy default stream of a device stands first among its streams. */
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
    emu_have_worker(d);
    emu_run_some(guard, d);
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

bool emu_can_run(const emu_op &op)
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

void emu_finish(const emu_op_ref &op, emu_stream *stream)
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

void emu_drop_all(emu_device &d)
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

    emu_drop_all(d);
    d.broken = false;
}
