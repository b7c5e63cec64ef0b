/* SPDX-License-Identifier: Apache-2.0 */
/* queue_state.h - between queue.cc (what is enqueued) and queue_run.cc (who runs it). All of it is locked by
 * emu_state(). */
#ifndef MICS_TESTS_EMULATED_QUEUE_STATE_H
#define MICS_TESTS_EMULATED_QUEUE_STATE_H

#include "policy.h"
#include "queue.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

typedef std::chrono::steady_clock emu_clock;
typedef std::unique_lock<std::mutex> emu_guard;

struct emu_op {
    emu_work work;
    emu_op_ref before; /* the one in front of it in its stream, until that is over */
    uint64_t number;   /* in which they are enqueued, all streams of a device */
    int device;
    bool wanted, begun, called, over;
    double over_ms; /* when, on a clock of the emulator */
    emu_clock::time_point
        stuck; /* since when it waits for something outside; 0: it has not waited */
};

struct emu_stream {
    int device;
    unsigned lane;
    bool blocking; /* ordered with the legacy default stream */
    bool closed;   /* goes when it is empty */
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
    bool busy;        /* somebody runs an operation */
    bool asleep;      /* the device's thread has nothing to do */
    unsigned waiting; /* threads of the host that wait, and run what can run */
    emu_clock::time_point last_call;
    std::deque<emu_op_ref> calls; /* of functions of the host, for the device's thread */
    std::thread worker;
    std::atomic<bool> broken;

    ~emu_device();
};

std::mutex &emu_state(void);
std::condition_variable &emu_changed(void); /* of emu_state() */
emu_device &emu_device_at(int device);

/* queue.cc: its place in the stream is left; everything of a device is. */
void emu_finish(const emu_op_ref &op, emu_stream *stream);
void emu_drop_all(emu_device &device);
bool emu_can_run(const emu_op &op);

/* queue_run.cc: run as much as the order wants when something has been enqueued. */
void emu_run_some(emu_guard &guard, emu_device &device);
/* Start the device's own thread, if there is none. */
void emu_have_worker(emu_device &device);

#endif
