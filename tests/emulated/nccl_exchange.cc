/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_exchange.cc - a collective of the emulated NCCL as its stream runs it: again and again, a little further each
 * time, until it is over.
 */
#include "nccl_calls.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

static std::atomic<int> begun_ever; /* collectives of this process */

/* The collectives of a GPU. */
static struct {
    std::atomic<int> under_way; /* have begun and are not over; of those without an order */
    emu_op_ref newest;          /* in the order of their calls */
} launches[EMU_DEVICES];
static std::mutex launches_lock; /* guards `newest`, and each communicator's `last` */

/* Versions before 2.26 do not know it. */
static bool launch_order_is_implicit()
{
    const char *text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    int version = 0;

    (void)ncclGetVersion(&version);
    return version >= 22600 && text && std::strcmp(text, "1") == 0;
}

namespace
{

/* One collective. For each chunk all ranks put something into their slots, meet, take something out, and meet; with the
 * first they say what they are about to do. */
class exchange
{
  public:
    exchange(emu_nccl *comm, const room_call &call, emu_give give, emu_take take,
             std::atomic<int> *under_way)
        : comm_(comm), call_(call), give_(std::move(give)), take_(std::move(take)),
          each_(emu_type_bytes((ncclDataType_t)call.type)), under_way_(under_way)
    {
        comm_->busy++;
    }
    ~exchange()
    {
        leave();
        comm_->busy--;
    }
    exchange(const exchange &) = delete;
    exchange &operator=(const exchange &) = delete;

    emu_step run();

  private:
    enum { NEW, BROKEN_OFF, GIVEN, TAKEN } at_ = NEW;
    emu_nccl *comm_;
    const room_call call_;
    const emu_give give_;
    const emu_take take_;
    const size_t each_;
    std::atomic<int> *const under_way_; /* NULL: they run side by side */
    bool here_ = false;
    size_t done_ = 0; /* elements */
    std::chrono::steady_clock::time_point slow_until_ = {};
    emu_meeting meeting_;

    void leave();
    emu_step begin();
    emu_step give();
    emu_step take();
    bool all_do_the_same() const;
    size_t chunk() const;
};

} // namespace

void exchange::leave()
{
    if (here_ && under_way_)
        --*under_way_;
    here_ = false;
}

size_t exchange::chunk() const
{
    return std::min(ROOM_SLOT / each_, (size_t)call_.count - done_);
}

/* With a drawn order some take their time, so that what should wait for them overtakes them. */
static bool is_slow()
{
    static std::atomic<uint64_t> draws;
    const auto seed = (uint64_t)emu_setting("MICS_EMULATED_ORDER", 0);

    return seed > 0 && (seed + ++draws) * 0x9e3779b97f4a7c15u >> 62 == 0;
}

emu_step exchange::begin()
{
    const char *fault = std::getenv("MICS_EMULATED_NCCL_FAULT");

    if (under_way_ && *under_way_ > 0)
        return emu_step::STUCK; /* no room on the GPU */
    if (under_way_)
        ++*under_way_;
    here_ = true;
    if (!emu_nccl_is_well(comm_) || (fault && ++begun_ever == std::atoi(fault))) {
        if (emu_nccl_is_well(comm_))
            emu_nccl_error(comm_, ncclSystemError, "emulated: the network is down");
        at_ = BROKEN_OFF;
        return emu_step::MOVED;
    }
    if (is_slow())
        slow_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
    comm_->room->seats[comm_->rank].call = call_;
    return give();
}

bool exchange::all_do_the_same() const
{
    for (int r = 0; r < comm_->size; r++)
        if (!(comm_->room->seats[r].call == call_)) {
            emu_nccl_error(comm_, ncclInvalidUsage, "emulated: ranks begin different collectives");
            fprintf(stderr,
                    "emulated NCCL: rank %d and rank %d of %d begin different collectives\n",
                    comm_->rank, r, comm_->size);
            return false;
        }
    return true;
}

emu_step exchange::give()
{
    give_(done_ * each_, chunk() * each_);
    meeting_.come(comm_);
    at_ = GIVEN;
    return emu_step::MOVED;
}

emu_step exchange::take()
{
    if (done_ == 0 && !all_do_the_same())
        return emu_step::FAILED;
    take_(done_ * each_, chunk());
    meeting_.come(comm_);
    at_ = TAKEN;
    return emu_step::MOVED;
}

emu_step exchange::run()
{
    if (comm_->aborted)
        return emu_step::DONE;
    if (at_ == NEW)
        return begin();
    if (at_ == BROKEN_OFF) /* it hangs until it is aborted */
        return emu_step::STUCK;
    if (std::chrono::steady_clock::now() < slow_until_)
        return emu_step::STUCK;
    const emu_step met = meeting_.ask(comm_);
    if (met != emu_step::DONE || comm_->aborted)
        return met;
    if (at_ == GIVEN)
        return take();
    done_ += chunk();
    if (done_ < call_.count)
        return give();
    leave();
    return emu_step::DONE;
}

/* Behind the communicator's others, and where the order of launches is kept, behind all others. */
ncclResult_t emu_nccl_enqueue(emu_nccl *comm, cudaStream_t stream, const room_call &call,
                              emu_give give, emu_take take)
{
    const std::lock_guard<std::mutex> guard(launches_lock);
    auto &mine = launches[emu_device_of(stream)];
    const bool ordered = launch_order_is_implicit();
    emu_work work;

    if (call.count == 0)
        return ncclSuccess;
    auto all = std::make_shared<exchange>(comm, call, std::move(give), std::move(take),
                                          ordered ? nullptr : &mine.under_way);
    work.run = [all] { return all->run(); };
    work.after = {comm->last};
    if (ordered)
        work.behind = mine.newest;
    comm->last = mine.newest = emu_enqueue(stream, std::move(work));
    return comm->last ? ncclSuccess : ncclUnhandledCudaError;
}
