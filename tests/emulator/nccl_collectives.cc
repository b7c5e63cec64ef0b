/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_collectives.cc - the collectives of the emulated NCCL: a chunk at a time through the ranks'
 * slots.
 *
 * A stream polls a collective until it has ended; each poll advances it as far as possible. Sums go
 * over the ranks in their order, in the type itself: bf16 and fp16 round at each addition, as
 * NCCL's rings do.
 */
#include "cuda/half.cuh"
#include "memory.h"
#include "nccl_internal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

/* --- a collective as its stream runs it */

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

/* One collective. For each chunk all ranks write to their slots, pass a barrier, read from the
 * slots and pass another; with the first chunk they publish the arguments of the call. */
class exchange
{
  public:
    exchange(emu_nccl *comm, const collective_call &call, emu_give give, emu_take take,
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
    enum { NEW, HANGING, GIVEN, TAKEN } at_ = NEW;
    emu_nccl *comm_;
    const collective_call call_;
    const emu_give give_;
    const emu_take take_;
    const size_t each_;
    std::atomic<int> *const under_way_; /* NULL: they run side by side */
    bool here_ = false;
    size_t done_ = 0; /* elements */
    std::chrono::steady_clock::time_point slow_until_ = {};
    emu_barrier barrier_;

    void leave();
    emu_step begin();
    emu_step give();
    emu_step take();
    void check_all_do_the_same() const;
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
    return std::min(SHARED_STATE_SLOT / each_, (size_t)call_.count - done_);
}

/* In a random order some are delayed, so that operations that lack a wait for them overtake
 * them. */
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
        return emu_step::STUCK; /* no space on the GPU */
    if (under_way_)
        ++*under_way_;
    here_ = true;
    if (!emu_nccl_is_well(comm_) || (fault && ++begun_ever == std::atoi(fault))) {
        if (emu_nccl_is_well(comm_))
            emu_nccl_error(comm_, ncclSystemError, "emulated: the network is down");
        at_ = HANGING;
        return emu_step::MOVED;
    }
    if (is_slow())
        slow_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
    comm_->shared_state->members[comm_->rank].call = call_;
    return give();
}

/* Else the process ends: ranks that waited for each other would end only at a time limit. */
void exchange::check_all_do_the_same() const
{
    for (int r = 0; r < comm_->size; r++)
        if (!(comm_->shared_state->members[r].call == call_)) {
            char text[96];

            std::snprintf(text, sizeof text,
                          "rank %d and rank %d of %d begin different collectives", comm_->rank, r,
                          comm_->size);
            emu_nccl_die(text);
        }
}

emu_step exchange::give()
{
    give_(done_ * each_, chunk() * each_);
    barrier_.arrive(comm_);
    at_ = GIVEN;
    return emu_step::MOVED;
}

emu_step exchange::take()
{
    if (done_ == 0)
        check_all_do_the_same();
    take_(done_ * each_, chunk());
    barrier_.arrive(comm_);
    at_ = TAKEN;
    return emu_step::MOVED;
}

emu_step exchange::run()
{
    if (comm_->aborted)
        return emu_step::DONE;
    if (at_ == NEW)
        return begin();
    if (at_ == HANGING) /* it hangs until it is aborted */
        return emu_step::STUCK;
    if (std::chrono::steady_clock::now() < slow_until_)
        return emu_step::STUCK;
    const emu_step step = barrier_.poll(comm_);
    if (step != emu_step::DONE || comm_->aborted)
        return step;
    if (at_ == GIVEN)
        return take();
    done_ += chunk();
    if (done_ < call_.count)
        return give();
    leave();
    return emu_step::DONE;
}

/* Behind the communicator's others, and where the order of launches is kept, behind all others. */
ncclResult_t emu_nccl_enqueue(emu_nccl *comm, cudaStream_t stream, const collective_call &call,
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

/* --- the calls */

enum { CALL_GATHER = 1, CALL_SCATTER, CALL_REDUCE, CALL_BROADCAST, CALL_ALL_TO_ALL };

/* Elements need not be aligned. */
template <typename T> static void add_as(char *into, const char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        T a, b;

        std::memcpy(&a, into + i * sizeof a, sizeof a);
        std::memcpy(&b, from + i * sizeof b, sizeof b);
        if constexpr (sizeof(T) == 2)
            a.bits = mics_half_type<T>::narrow(mics_half_type<T>::widen(a.bits) +
                                               mics_half_type<T>::widen(b.bits));
        else
            a += b;
        std::memcpy(into + i * sizeof a, &a, sizeof a);
    }
}

static void add(char *into, const char *from, size_t count, ncclDataType_t type)
{
    if (type == ncclFloat64)
        add_as<double>(into, from, count);
    else if (type == ncclFloat32)
        add_as<float>(into, from, count);
    else if (type == ncclFloat16)
        add_as<mics_f16>(into, from, count);
    else
        add_as<mics_bf16>(into, from, count);
}

/* The sum of all ranks' slots. */
static void sum_slots(emu_nccl *comm, char *out, size_t count, ncclDataType_t type)
{
    std::memcpy(out, shared_state_slot(comm->shared_state, 0), count * emu_type_bytes(type));
    for (int r = 1; r < comm->size; r++)
        add(out, shared_state_slot(comm->shared_state, r), count, type);
}

/* The arguments of one rank. */
struct given {
    emu_nccl *comm;
    ncclDataType_t type;
    size_t count; /* elements of a block, or of all data where there are no blocks */
    const char *send;
    char *recv;
    cudaStream_t stream;
    int root;
    bool registered;

    size_t bytes() const
    {
        return count * emu_type_bytes(type);
    }
};

/* Two buffers are apart, or the shorter is exactly the rank's block of the longer. */
static bool overlap_badly(const char *piece, size_t piece_bytes, const char *whole,
                          size_t whole_bytes, size_t place)
{
    const bool apart = piece + piece_bytes <= whole || whole + whole_bytes <= piece;

    return !apart && piece != whole + place;
}

static bool is_known(const void *memory, size_t bytes)
{
    const emu_memory kind = emu_memory_of(memory, bytes);

    return kind == emu_memory::DEVICE || kind == emu_memory::PINNED;
}

static ncclResult_t issue(const given &call, size_t send_blocks, size_t recv_blocks,
                          ncclResult_t (*run)(const given &call))
{
    emu_nccl *comm = call.comm;
    const emu_inside guard(comm);
    const size_t bytes = call.bytes(), place = (size_t)comm->rank * bytes;
    given copy = call;

    if (bytes > 0 &&
        (!is_known(call.send, send_blocks * bytes) || !is_known(call.recv, recv_blocks * bytes)))
        return emu_nccl_error(comm, ncclInvalidArgument,
                              "emulated: buffers that are not the device's");
    if (send_blocks < recv_blocks
            ? overlap_badly(call.send, bytes, call.recv, recv_blocks * bytes, place)
            : overlap_badly(call.recv, recv_blocks * bytes, call.send, send_blocks * bytes,
                            send_blocks > recv_blocks ? place : 0))
        return emu_nccl_error(comm, ncclInvalidArgument,
                              "emulated: buffers overlap and are not in place");
    copy.registered = emu_nccl_is_registered(comm, call.send, send_blocks * bytes) &&
                      emu_nccl_is_registered(comm, call.recv, recv_blocks * bytes);
    comm->registered += copy.registered;
    return emu_nccl_issue(comm, [copy, run] { return run(copy); });
}

static collective_call call_of(const given &call, uint32_t kind, int root)
{
    return {kind, (uint32_t)call.type, call.count, root, call.registered};
}

static ncclResult_t gather(const given &call)
{
    emu_nccl *comm = call.comm;
    const size_t all = call.bytes(), each = emu_type_bytes(call.type);

    return emu_nccl_enqueue(
        comm, call.stream, call_of(call, CALL_GATHER, 0),
        [=](size_t at, size_t bytes) {
            std::memcpy(shared_state_slot(comm->shared_state, comm->rank), call.send + at, bytes);
        },
        [=](size_t at, size_t n) {
            for (int r = 0; r < comm->size; r++)
                std::memcpy(call.recv + (size_t)r * all + at,
                            shared_state_slot(comm->shared_state, r), n * each);
        });
}

/* One block after another; only its own rank takes the sum. */
static ncclResult_t scatter(const given &call)
{
    emu_nccl *comm = call.comm;
    ncclResult_t result = ncclSuccess;

    for (int block = 0; block < comm->size && result == ncclSuccess; block++) {
        const char *from = call.send + (size_t)block * call.bytes();

        result = emu_nccl_enqueue(
            comm, call.stream, call_of(call, CALL_SCATTER, block),
            [=](size_t at, size_t bytes) {
                std::memcpy(shared_state_slot(comm->shared_state, comm->rank), from + at, bytes);
            },
            [=](size_t at, size_t n) {
                if (block == comm->rank)
                    sum_slots(comm, call.recv + at, n, call.type);
            });
    }
    return result;
}

static ncclResult_t reduce(const given &call)
{
    emu_nccl *comm = call.comm;

    return emu_nccl_enqueue(
        comm, call.stream, call_of(call, CALL_REDUCE, 0),
        [=](size_t at, size_t bytes) {
            std::memcpy(shared_state_slot(comm->shared_state, comm->rank), call.send + at, bytes);
        },
        [=](size_t at, size_t n) { sum_slots(comm, call.recv + at, n, call.type); });
}

static ncclResult_t broadcast(const given &call)
{
    emu_nccl *comm = call.comm;

    return emu_nccl_enqueue(
        comm, call.stream, call_of(call, CALL_BROADCAST, call.root),
        [=](size_t at, size_t bytes) {
            if (comm->rank == call.root)
                std::memcpy(shared_state_slot(comm->shared_state, call.root), call.send + at,
                            bytes);
        },
        [=](size_t at, size_t n) {
            std::memmove(call.recv + at, shared_state_slot(comm->shared_state, call.root),
                         n * emu_type_bytes(call.type));
        });
}

/* All messages of an all-to-all are here: what all ranks send to one, then to the next. */
static ncclResult_t all_to_all(emu_nccl *comm)
{
    const auto sends = std::exchange(comm->sends, {}), receives = std::exchange(comm->receives, {});
    ncclResult_t result = ncclSuccess;

    for (int to = 0; to < comm->size && result == ncclSuccess; to++) {
        const emu_message &from = sends.at(to);
        const size_t each = emu_type_bytes(from.type);
        const collective_call call = {CALL_ALL_TO_ALL, (uint32_t)from.type, from.count, to,
                                      from.registered};

        result = emu_nccl_enqueue(
            comm, from.stream, call,
            [=](size_t at, size_t bytes) {
                std::memcpy(shared_state_slot(comm->shared_state, comm->rank), from.data + at,
                            bytes);
            },
            [=](size_t at, size_t n) {
                for (int r = 0; to == comm->rank && r < comm->size; r++)
                    std::memcpy(receives.at(r).data + at, shared_state_slot(comm->shared_state, r),
                                n * each);
            });
    }
    return result;
}

/* A second message to the same peer has to wait for those of the first all-to-all. */
static ncclResult_t add_message(emu_nccl *comm, bool is_send, int peer, const emu_message &message)
{
    auto &messages = is_send ? comm->sends : comm->receives;

    if (messages.count(peer) > 0 ||
        (!comm->sends.empty() && (comm->sends.begin()->second.count != message.count ||
                                  comm->sends.begin()->second.type != message.type)))
        return emu_nccl_error(comm, ncclInvalidUsage, "emulated: messages differ in length");
    messages[peer] = message;
    if (comm->sends.size() < (size_t)comm->size || comm->receives.size() < (size_t)comm->size)
        return ncclSuccess;
    return all_to_all(comm);
}

static ncclResult_t issue_message(emu_nccl *comm, bool is_send, int peer, emu_message message)
{
    const emu_inside guard(comm);
    const size_t bytes = message.count * emu_type_bytes(message.type);

    if (peer < 0 || peer >= comm->size || (bytes > 0 && !is_known(message.data, bytes)))
        return emu_nccl_error(comm, ncclInvalidArgument,
                              "emulated: a message with a rank or a buffer that does not exist");
    message.registered = emu_nccl_is_registered(comm, message.data, bytes);
    return emu_nccl_issue(comm, [=] { return add_message(comm, is_send, peer, message); });
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return issue_message(
        comm, true, peer,
        {static_cast<char *>(const_cast<void *>(send)), count, type, stream, false});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return issue_message(comm, false, peer,
                         {static_cast<char *>(recv), count, type, stream, false});
}

static given given_of(const void *send, void *recv, size_t count, ncclDataType_t type,
                      ncclComm_t comm, cudaStream_t stream)
{
    return {comm,   type, count, static_cast<const char *>(send), static_cast<char *>(recv),
            stream, 0,    false};
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return issue(given_of(send, recv, count, type, comm, stream), 1, (size_t)comm->size, gather);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream)
{
    return issue(given_of(send, recv, count, type, comm, stream), (size_t)comm->size, 1, scatter);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream)
{
    return issue(given_of(send, recv, count, type, comm, stream), 1, 1, reduce);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    given call = given_of(send, recv, count, type, comm, stream);

    if (root < 0 || root >= comm->size)
        return ncclInvalidArgument;
    call.root = root;
    return issue(call, 1, 1, broadcast);
}
