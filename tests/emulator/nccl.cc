/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.cc - communicators of the emulated NCCL (see nccl.h): joining, barriers, ending, errors.
 * Collectives are in nccl_collectives.cc.
 *
 * ncclCommAbort() raises a flag that ends all waiting, and then waits for the communicator's own
 * thread and for the GPU.
 */
#include "nccl_internal.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

/* --- the shared state */

static size_t shared_state_bytes(int size)
{
    return sizeof(shared_state) + (size_t)size * SHARED_STATE_SLOT;
}

shared_state *shared_state_open(const char *name, int size)
{
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *memory = MAP_FAILED;

    if (fd < 0)
        return nullptr;
    if (ftruncate(fd, (off_t)shared_state_bytes(size)) == 0)
        memory = mmap(nullptr, shared_state_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<shared_state *>(memory);
}

void shared_state_close(shared_state *shared_state, int size)
{
    munmap(shared_state, shared_state_bytes(size));
}

void shared_state_unlink(const char *name)
{
    shm_unlink(name);
}

bool shared_state_has_dead_rank(const shared_state *shared_state, int size)
{
    for (int i = 0; i < size; i++) {
        const int32_t pid = shared_state->members[i].pid;

        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            return true;
    }
    return false;
}

/* --- communicators */

static constexpr double patience_s = 20;

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)emu_setting("MICS_EMULATED_NCCL_VERSION", NCCL_VERSION_CODE);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::random_device random;

    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "/mics-nccl-%d-%08x%08x", (int)getpid(),
                  random(), random());
    return ncclSuccess;
}

static const char *fault()
{
    const char *text = std::getenv("MICS_EMULATED_NCCL_FAULT");

    return text ? text : "";
}

void emu_nccl_die(const char *text)
{
    std::fprintf(stderr, "emulated NCCL: %s\n", text);
    std::abort();
}

emu_inside::emu_inside(emu_nccl *comm) : comm_(comm)
{
    if (comm_->callers++ > 0)
        emu_nccl_die("two threads are inside one communicator");
}

emu_inside::~emu_inside()
{
    comm_->callers--;
}

ncclResult_t emu_nccl_error(emu_nccl *comm, ncclResult_t result, const char *text)
{
    std::snprintf(comm->text, sizeof comm->text, "%s", text);
    comm->state = result;
    return result;
}

bool emu_nccl_is_well(const emu_nccl *comm)
{
    const ncclResult_t state = comm->state;

    return state == ncclSuccess || state == ncclInProgress;
}

void emu_barrier::arrive(emu_nccl *comm)
{
    shared_state *shared_state = comm->shared_state;

    generation_ = shared_state->generation;
    polls_ = 0;
    since_ = std::chrono::steady_clock::now();
    if (shared_state->arrived.fetch_add(1) + 1 == (uint32_t)comm->size) {
        shared_state->arrived = 0;
        shared_state->generation.fetch_add(1);
    }
}

emu_step emu_barrier::poll(emu_nccl *comm)
{
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - since_;

    if (comm->aborted || comm->shared_state->generation != generation_)
        return emu_step::DONE;
    /* Checking takes time, so not at each poll. */
    if (++polls_ % 64 == 0 && emu_nccl_is_well(comm) &&
        shared_state_has_dead_rank(comm->shared_state, comm->size))
        emu_nccl_error(comm, ncclRemoteError, "a peer's process is gone");
    if (comm->state == ncclRemoteError || comm->shared_state->aborted ||
        waited.count() < patience_s)
        return emu_step::
            STUCK; /* for ever after a peer has died, as on a GPU, until it is aborted */
    emu_nccl_error(comm, ncclInternalError,
                   "emulated: ranks wait for each other in different collectives");
    std::fprintf(stderr, "emulated NCCL: rank %d of %d waits in vain: others are elsewhere\n",
                 comm->rank, comm->size);
    return emu_step::FAILED;
}

/* In the background. */
static void join(emu_nccl *comm)
{
    shared_state *shared_state = comm->shared_state;

    if (std::strcmp(fault(), "join") == 0) {
        emu_nccl_error(comm, ncclSystemError, "emulated: cannot join");
        return;
    }
    while (std::strcmp(fault(), "absent") == 0 && !comm->aborted)
        usleep(1000);
    shared_state->members[comm->rank].pid = (int32_t)getpid();
    const bool last = shared_state->in.fetch_add(1) + 1 == (uint32_t)comm->size;
    if (last)
        shared_state_unlink(comm->name);
    while (shared_state->in < (uint32_t)comm->size && !comm->aborted)
        usleep(200);
    if (!comm->aborted)
        comm->state = ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (size < 1 || size > SHARED_STATE_RANKS || rank < 0 || rank >= size ||
        config->magic != 0xcafebeef || config->size != sizeof *config)
        return ncclInvalidArgument;

    auto *comm = new emu_nccl();
    comm->size = size;
    comm->rank = rank;
    std::memcpy(comm->name, id.internal, sizeof comm->name - 1);
    comm->shared_state = shared_state_open(comm->name, size);
    if (!comm->shared_state) {
        delete comm;
        return ncclSystemError;
    }
    comm->state = ncclInProgress;
    comm->blocking = config->blocking != 0;
    *out = comm;
    if (cudaMalloc(&comm->memory[0], 1 << 20) != cudaSuccess)
        return emu_nccl_error(comm, ncclUnhandledCudaError, "emulated: out of memory");
    comm->joiner = std::thread(join, comm);
    if (!comm->blocking)
        return ncclInProgress;
    comm->joiner.join();
    return comm->state;
}

/* After "success" was seen the communicator may be used; the background thread has ended then. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    if (!comm)
        return ncclInvalidArgument;
    const emu_inside guard(comm);
    *result = comm->state;
    if (*result == ncclSuccess && comm->worker.joinable())
        comm->worker.join();
    if (*result == ncclSuccess && comm->finalized && comm->busy > 0)
        *result = ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    const emu_inside guard(comm);

    if (comm->worker.joinable())
        return ncclInvalidArgument;
    comm->finalized = true;
    return comm->state == ncclSuccess && comm->busy > 0 ? ncclInProgress : comm->state.load();
}

static void write_log(const emu_nccl *comm)
{
    const char *name = std::getenv("MICS_EMULATED_NCCL_LOG");
    std::FILE *out = name ? std::fopen(name, "a") : nullptr;

    if (!out)
        return;
    std::fprintf(out, "rank %d of %d: %zu collectives, %zu groups, %zu registered\n", comm->rank,
                 comm->size, comm->collectives, comm->groups, comm->registered);
    std::fclose(out);
}

void emu_nccl_part(emu_nccl *comm)
{
    if (comm->joiner.joinable())
        comm->joiner.join();
    if (comm->worker.joinable())
        comm->worker.join();
    emu_nccl_deregister_all(comm);
    for (void *memory : comm->memory)
        cudaFree(memory);
    shared_state_close(comm->shared_state, comm->size);
    delete comm;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm->busy > 0)
        emu_nccl_die("a communicator is destroyed before its collectives are over");
    write_log(comm);
    emu_nccl_part(comm);
    return ncclSuccess;
}

/* The peers' collectives then hang and their state does not change, as with a rank that has
 * left. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    {
        const emu_inside guard(comm);

        comm->aborted = true;
        if (comm->shared_state->in < (uint32_t)comm->size)
            shared_state_unlink(comm->name);
        comm->shared_state->aborted = 1;
    }
    if (!emu_nccl_part_later(comm))
        emu_nccl_part(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};

    return texts[result];
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->text : "";
}

/* --- groups, and what begins in the background */

static thread_local int depth;
static thread_local emu_nccl *grouped; /* the communicator of all of the group */
static thread_local std::vector<std::function<ncclResult_t()>> group;
static thread_local std::vector<emu_nccl *> parting;

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

/* The state is "success" only after the last; an error is the state already. */
static ncclResult_t run(emu_nccl *comm, const std::vector<std::function<ncclResult_t()>> &works)
{
    ncclResult_t result = ncclSuccess;

    for (size_t i = 0; i < works.size() && result == ncclSuccess; i++)
        result = works[i]();
    if (result == ncclSuccess && (!comm->sends.empty() || !comm->receives.empty()))
        result = emu_nccl_error(comm, ncclInvalidUsage, "emulated: messages to some ranks only");
    ncclResult_t expected = ncclInProgress;
    comm->state.compare_exchange_strong(expected, result);
    return result;
}

static ncclResult_t launch(emu_nccl *comm, std::vector<std::function<ncclResult_t()>> works)
{
    comm->collectives += works.size();
    comm->groups += works.size() > 1;
    comm->state = ncclInProgress;
    if (comm->blocking)
        return run(comm, works);
    comm->worker = std::thread([comm, works = std::move(works)] { run(comm, works); });
    return ncclInProgress;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = ncclSuccess;

    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth > 0)
        return ncclSuccess;
    if (!group.empty())
        result = launch(std::exchange(grouped, nullptr), std::exchange(group, {}));
    for (emu_nccl *comm : std::exchange(parting, {}))
        emu_nccl_part(comm);
    return result;
}

ncclResult_t emu_nccl_issue(emu_nccl *comm, std::function<ncclResult_t()> work)
{
    if (grouped && grouped != comm)
        emu_nccl_die("a group has several communicators");
    if (comm->state != ncclSuccess || comm->worker.joinable())
        return comm->state == ncclSuccess || comm->state == ncclInProgress ? ncclInvalidArgument
                                                                           : comm->state.load();
    if (!comm->memory[1] && cudaMalloc(&comm->memory[1], 1 << 20) != cudaSuccess)
        return emu_nccl_error(comm, ncclUnhandledCudaError, "emulated: out of memory");
    ncclGroupStart();
    grouped = comm;
    group.push_back(std::move(work));
    return ncclGroupEnd();
}

bool emu_nccl_part_later(emu_nccl *comm)
{
    if (depth > 0)
        parting.push_back(comm);
    return depth > 0;
}
