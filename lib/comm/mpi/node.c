/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - collectives among the ranks of one node, by copies from process to process.
 *
 * The ranks share a small file of memory. For a collective each rank posts there where its data
 * are, copies what it needs straight from the memory of the others (process_vm_readv(2)), and says
 * when it has finished, because only then may they change their data. Each byte is copied once.
 * Short data are posted themselves: two copies, but no system call and nothing to wait for at the
 * end. MPI takes no part, and a rank that waits sleeps in the kernel
 * (futex(2)).
 *
 * Sums are taken in the order of the ring, the tree and the halving of backend.h, and the bytes
 * counted are theirs: neither bits nor counts tell which way a collective went.
 *
 * A rank that has died is waited for, as in every other collective: whoever watches the job names
 * it and ends the job.
 *
 * A communicator uses this if all its ranks can read each other's memory: they are of one user, and
 * no security module forbids it. MICS_NODE_COPY=0 in the environment switches it off.
 */
#include "comm/mpi/mpi.h"

#include "base/num.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SHORT_BYTES = 16 * 1024, /* that a rank posts itself */
    ALIGNMENT = 64,
    CHUNK = 128 * 1024, /* bytes summed at a time, to stay in the L2 cache */
    SPINS = 2000,       /* some 10 us, if no other thread needs the core */
    RANKS_MAX = COMM_MPI_STAGING / MICS_COMM_TREE_REDUCE_BYTES,
};

static_assert(2 * CHUNK <= COMM_MPI_STAGING, "two chunks fit into the staging memory");
static_assert((int)MICS_COMM_TREE_REDUCE_BYTES <= (int)SHORT_BYTES, "the tree needs posted data");

/* The number of the last collective that has come so far, on which ranks may sleep. */
struct node_word {
    _Alignas(ALIGNMENT) _Atomic uint32_t number;
    _Atomic uint32_t sleepers;
};

/* What a rank posts of a collective: its batch of calls, and its data if they are short. */
struct node_post {
    int count;
    struct comm_call calls[MICS_COMM_GROUP_MAX]; /* addresses are of the rank's own process */
    _Alignas(ALIGNMENT) char data[SHORT_BYTES];
};

/* Every rank writes its own and reads those of the others. A post is overwritten two collectives
 * later: a rank enters the collective between them only when it has finished with the first, and
 * no rank finishes one that another has not entered. */
struct node_rank {
    struct node_word posted, summed, finished;
    pid_t pid;
    uint64_t secret; /* also in the rank's own memory, at `address`: a check of copying */
    uint64_t address;
    struct node_post posts[2];
};

struct mpi_node {
    struct node_rank *ranks; /* [size], shared */
    size_t bytes;
    uint64_t secret;
    uint32_t number; /* of the current collective */
    int spins;
};

/* Waiting ------------------------------------------------------------------------------------ */

static bool has_come(const struct node_word *word, uint32_t number)
{
    return (int32_t)(atomic_load(&word->number) - number) >= 0;
}

static void wait_for(const struct mpi_node *node, struct node_word *word, uint32_t number)
{
    for (int i = 0; i < node->spins; i++)
        if (has_come(word, number))
            return;
    atomic_fetch_add(&word->sleepers, 1);
    for (;;) {
        const uint32_t seen = atomic_load(&word->number);

        if ((int32_t)(seen - number) >= 0)
            break;
        syscall(SYS_futex, &word->number, FUTEX_WAIT, seen, NULL, NULL, 0);
    }
    atomic_fetch_sub(&word->sleepers, 1);
}

static void announce(struct node_word *word, uint32_t number)
{
    atomic_store(&word->number, number);
    if (atomic_load(&word->sleepers) > 0)
        syscall(SYS_futex, &word->number, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Data of other ranks ------------------------------------------------------------------------ */

static struct node_post *post_of(const struct mpi_comm *comm, int rank)
{
    return &comm->node->ranks[rank].posts[comm->node->number % 2];
}

/* Bytes of a call that other ranks may read. */
static uint64_t readable_bytes(const struct mpi_comm *comm, const struct comm_call *call)
{
    const bool blocks = call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_TO_ALL;

    return blocks ? call->bytes * (uint64_t)comm->base.comm.size : call->bytes;
}

static char *readable(const struct comm_call *call)
{
    return call->kind == COMM_ALL_REDUCE || call->kind == COMM_BROADCAST ? call->recv : call->send;
}

/* Where the data of call `index` are in a post, or what a batch of `index` calls takes there. */
static uint64_t offset_in_post(const struct mpi_comm *comm, const struct comm_call *calls,
                               int index)
{
    uint64_t offset = 0;

    for (int i = 0; i < index; i++)
        offset += mics_round_up(readable_bytes(comm, &calls[i]), ALIGNMENT);
    return offset;
}

static bool is_short(const struct mpi_comm *comm, const struct comm_call *calls, int count)
{
    return offset_in_post(comm, calls, count) <= SHORT_BYTES;
}

static void post(struct mpi_comm *comm, const struct comm_call *calls, int count)
{
    struct node_post *own = post_of(comm, comm->base.comm.rank);

    own->count = count;
    memcpy(own->calls, calls, (size_t)count * sizeof *calls);
    for (int i = 0; i < count && is_short(comm, calls, count); i++) {
        const uint64_t bytes = readable_bytes(comm, &calls[i]);

        if (bytes > 0 && (calls[i].kind != COMM_BROADCAST || calls[i].root == comm->base.comm.rank))
            memcpy(own->data + offset_in_post(comm, calls, i), readable(&calls[i]), bytes);
    }
    announce(&comm->node->ranks[comm->base.comm.rank].posted, comm->node->number);
}

static bool is_same_call(const struct comm_call *a, const struct comm_call *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->dtype == b->dtype &&
           a->root == b->root && a->in_rank_order == b->in_rank_order;
}

/* Wait until `rank` has posted the collective. MICS_ERR_COMM: it posted another one. */
static enum mics_status meet(const struct mpi_comm *comm, int rank, struct mics_err *err)
{
    const struct node_post *own = post_of(comm, comm->base.comm.rank), *other;

    wait_for(comm->node, &comm->node->ranks[rank].posted, comm->node->number);
    other = post_of(comm, rank);
    for (int i = 0; i < own->count; i++)
        if (other->count != own->count || !is_same_call(&own->calls[i], &other->calls[i]))
            return mics_err_set(err, MICS_ERR_COMM, "rank %d called %s of %llu bytes", rank,
                                mics_comm_call_name(other->calls[0].kind),
                                (unsigned long long)other->calls[0].bytes);
    return MICS_OK;
}

/* Copy from another process; `from` is an address of it. */
static int copy_memory(pid_t pid, uint64_t from, void *to, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        const struct iovec local = {(char *)to + done, bytes - done};
        const struct iovec remote = {(void *)(uintptr_t)(from + done), bytes - done};
        const ssize_t copied = process_vm_readv(pid, &local, 1, &remote, 1, 0);

        if (copied <= 0)
            return copied == 0 ? EFAULT : errno;
        done += (uint64_t)copied;
    }
    return 0;
}

/* Bytes [offset, offset + bytes) of what `rank` has to read in call `index`. */
static enum mics_status read_rank(const struct mpi_comm *comm, int rank, int index, uint64_t offset,
                                  void *to, uint64_t bytes, struct mics_err *err)
{
    const struct node_post *from = post_of(comm, rank);
    const struct comm_call *call = &from->calls[index];

    if (bytes == 0)
        return MICS_OK;
    if (is_short(comm, from->calls, from->count)) {
        memcpy(to, from->data + offset_in_post(comm, from->calls, index) + offset, bytes);
        return MICS_OK;
    }

    const int code = copy_memory(comm->node->ranks[rank].pid,
                                 (uint64_t)(uintptr_t)readable(call) + offset, to, bytes);
    if (code == 0)
        return MICS_OK;
    if (code == ESRCH) /* it has died */
        wait_for(comm->node, &comm->node->ranks[rank].posted, comm->node->number + 1);
    return mics_err_set(err, MICS_ERR_COMM, "cannot read the memory of rank %d: %s", rank,
                        strerror(code));
}

/* Collectives -------------------------------------------------------------------------------- */

/* The data of every other rank, or of an all_to_all its block for this rank. */
static enum mics_status gather(struct mpi_comm *comm, const struct comm_call *call, int index,
                               struct mics_err *err)
{
    const int size = comm->base.comm.size;
    const uint64_t offset =
        call->kind == COMM_ALL_TO_ALL ? (uint64_t)comm->base.comm.block * call->bytes : 0;
    enum mics_status status = MICS_OK;

    for (int i = 1; i < size && status == MICS_OK; i++) {
        const int rank = (comm->base.comm.rank + i) % size;
        char *to =
            (char *)call->recv + (uint64_t)comm_block_of(&comm->base, call, rank) * call->bytes;

        status = meet(comm, rank, err);
        if (status == MICS_OK)
            status = read_rank(comm, rank, index, offset, to, call->bytes, err);
    }
    return status;
}

/* out[bytes] = sum over ranks of their data at `offset`, in the order of the ring: the rank after
 * `owner` first, `owner` last. `own`: this rank's summand; may be `out`. */
static enum mics_status sum_ranks(struct mpi_comm *comm, const struct comm_call *call, int index,
                                  int owner, uint64_t offset, const char *own, char *out,
                                  uint64_t bytes, struct mics_err *err)
{
    const int size = comm->base.comm.size, self = comm->base.comm.rank;
    const uint64_t each = mics_dtype_bytes(call->dtype);
    char *sum = comm->staging, *other = comm->staging + CHUNK;
    enum mics_status status = MICS_OK;

    for (uint64_t begin = 0; begin < bytes && status == MICS_OK; begin += CHUNK) {
        const uint64_t part = mics_min_u64(CHUNK, bytes - begin), count = part / each;

        for (int i = 1; i <= size && status == MICS_OK; i++) {
            const int rank = (owner + i) % size;
            const char *summand = rank == self ? own + begin : other;

            if (i == 1 && rank == self)
                memcpy(sum, summand, part);
            else if (rank != self)
                status =
                    read_rank(comm, rank, index, offset + begin, i == 1 ? sum : other, part, err);
            if (i > 1 && i < size)
                mics_comm_accumulate(sum, summand, count, call->dtype);
            else if (i == size && summand == out + begin)
                mics_comm_accumulate(out + begin, sum, count, call->dtype);
            else if (i == size)
                mics_comm_sum(out + begin, sum, summand, count, call->dtype);
        }
    }
    return status;
}

/* out[bytes] = sum over ranks of their data at `offset`, in the order of halving. `own`: this
 * rank's summand; may be `out`. */
static enum mics_status sum_pairs(struct mpi_comm *comm, const struct comm_call *call, int index,
                                  uint64_t offset, const char *own, char *out, uint64_t bytes,
                                  struct mics_err *err)
{
    const int size = comm->base.comm.size, self = comm->base.comm.rank;
    const uint64_t room = COMM_MPI_STAGING / (uint64_t)size / ALIGNMENT * ALIGNMENT;
    enum mics_status status = MICS_OK;

    for (uint64_t begin = 0; begin < bytes && status == MICS_OK; begin += room) {
        const uint64_t part = mics_min_u64(room, bytes - begin);

        memcpy(comm->staging + (uint64_t)self * room, own + begin, part);
        for (int rank = 0; rank < size && status == MICS_OK; rank++)
            if (rank != self)
                status = read_rank(comm, rank, index, offset + begin,
                                   comm->staging + (uint64_t)rank * room, part, err);
        for (int distance = 1; distance < size; distance *= 2)
            for (int rank = 0; rank < size; rank += 2 * distance)
                mics_comm_accumulate(comm->staging + (uint64_t)rank * room,
                                     comm->staging + (uint64_t)(rank + distance) * room,
                                     part / mics_dtype_bytes(call->dtype), call->dtype);
        if (status == MICS_OK)
            memcpy(out + begin, comm->staging, part);
    }
    return status;
}

static enum mics_status meet_all(const struct mpi_comm *comm, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int i = 1; i < comm->base.comm.size && status == MICS_OK; i++)
        status = meet(comm, (comm->base.comm.rank + i) % comm->base.comm.size, err);
    return status;
}

static enum mics_status scatter(struct mpi_comm *comm, const struct comm_call *call, int index,
                                struct mics_err *err)
{
    const uint64_t offset = (uint64_t)comm->base.comm.block * call->bytes;
    const enum mics_status status = meet_all(comm, err);

    if (status != MICS_OK)
        return status;

    char *own = (char *)call->send + offset;
    if (mics_comm_is_short(comm->base.comm.size, call))
        return sum_pairs(comm, call, index, offset, own, call->recv, call->bytes, err);
    return sum_ranks(comm, call, index, comm->base.comm.rank, offset, own, call->recv, call->bytes,
                     err);
}

/* Each child's sum is complete when its parent adds it, since children have higher numbers. */
static void sum_by_tree(struct mpi_comm *comm, const struct comm_call *call)
{
    const int size = comm->base.comm.size;
    char *sums = comm->staging;

    for (int rank = 0; rank < size; rank++)
        memcpy(sums + (uint64_t)rank * call->bytes, post_of(comm, rank)->data, call->bytes);
    for (int rank = size - 1; rank >= 0; rank--) {
        const struct comm_children children = mics_comm_children(rank, size, MICS_COMM_TREE_ARITY);

        for (int i = 0; i < children.count; i++)
            mics_comm_accumulate(sums + (uint64_t)rank * call->bytes,
                                 sums + (uint64_t)(children.first + i) * call->bytes, call->count,
                                 call->dtype);
    }
    memcpy(call->recv, sums, call->bytes);
}

/* Sum the piece `owner` of an all-reduce. */
static enum mics_status sum_piece(struct mpi_comm *comm, const struct comm_call *call, int index,
                                  int owner, struct mics_err *err)
{
    const struct comm_piece piece = mics_comm_piece(call->count, comm->base.comm.size, owner);
    const uint64_t each = mics_dtype_bytes(call->dtype);
    char *own = (char *)call->recv + piece.begin * each;

    if (mics_comm_is_short(comm->base.comm.size, call))
        return sum_pairs(comm, call, index, piece.begin * each, own, own, piece.count * each, err);
    return sum_ranks(comm, call, index, owner, piece.begin * each, own, own, piece.count * each,
                     err);
}

/* The whole of it if the data are short, else the rank's own piece. */
static enum mics_status reduce(struct mpi_comm *comm, const struct comm_call *call, int index,
                               bool whole, struct mics_err *err)
{
    enum mics_status status = meet_all(comm, err);

    if (status != MICS_OK || call->bytes == 0)
        return status;
    if (whole && mics_comm_is_short(comm->base.comm.size, call))
        return sum_pairs(comm, call, index, 0, call->recv, call->recv, call->bytes, err);
    if (!mics_comm_is_short(comm->base.comm.size, call) &&
        call->bytes <= MICS_COMM_TREE_REDUCE_BYTES) { /* the only call of its batch, and posted */
        sum_by_tree(comm, call);
        return MICS_OK;
    }
    for (int owner = 0; owner < comm->base.comm.size && status == MICS_OK; owner++)
        if (whole || owner == comm->base.comm.rank)
            status = sum_piece(comm, call, index, owner, err);
    return status;
}

/* The pieces that the other ranks have summed. */
static enum mics_status gather_sums(struct mpi_comm *comm, const struct comm_call *call, int index,
                                    struct mics_err *err)
{
    const int size = comm->base.comm.size;
    const uint64_t each = mics_dtype_bytes(call->dtype);
    enum mics_status status = MICS_OK;

    for (int i = 1; i < size && status == MICS_OK; i++) {
        const int rank = (comm->base.comm.rank + i) % size;
        const struct comm_piece piece = mics_comm_piece(call->count, size, rank);
        const uint64_t begin = piece.begin * each;

        wait_for(comm->node, &comm->node->ranks[rank].summed, comm->node->number);
        status = read_rank(comm, rank, index, begin, (char *)call->recv + begin, piece.count * each,
                           err);
    }
    return status;
}

static enum mics_status run_call(struct mpi_comm *comm, const struct comm_call *call, int index,
                                 bool whole, struct mics_err *err)
{
    switch (call->kind) {
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL:
        return gather(comm, call, index, err);
    case COMM_REDUCE_SCATTER:
        return scatter(comm, call, index, err);
    case COMM_ALL_REDUCE:
        return reduce(comm, call, index, whole, err);
    default:
        break;
    }

    const enum mics_status status = meet_all(comm, err);
    if (status != MICS_OK || call->kind == COMM_BARRIER || comm->base.comm.rank == call->root)
        return status;
    return read_rank(comm, call->root, index, 0, call->recv, call->bytes, err);
}

enum mics_status mics_mpi_node_execute(struct mpi_comm *comm, const struct comm_call *calls,
                                       int count, struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_node *node = comm->node;
    struct node_rank *own = &node->ranks[comm->base.comm.rank];
    const bool whole = is_short(comm, calls, count);
    enum mics_status status = MICS_OK;

    node->number++;
    post(comm, calls, count);
    for (int i = 0; i < count && status == MICS_OK; i++)
        status = run_call(comm, &calls[i], i, whole, err);
    announce(&own->summed, node->number); /* after a failure too: nobody may wait for this rank */
    for (int i = 0; i < count && status == MICS_OK; i++)
        if (calls[i].kind == COMM_ALL_REDUCE && !whole)
            status = gather_sums(comm, &calls[i], i, err);
    announce(&own->finished, node->number);
    for (int rank = 0; rank < comm->base.comm.size && !whole && status == MICS_OK; rank++)
        wait_for(node, &node->ranks[rank].finished, node->number);
    comm->broken |= status != MICS_OK;
    for (int i = 0; i < count; i++)
        sent->bytes += mics_comm_call_sent(&comm->base, &calls[i]);
    return status;
}

/* Opening ------------------------------------------------------------------------------------ */

/* Whether all ranks say yes. */
static enum mics_status agree(struct mpi_comm *comm, bool yes, bool *all_do, struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    bool *answers = calloc((size_t)base->size, sizeof *answers);

    if (!answers)
        return mics_err_nomem(err);
    const enum mics_status status = mics_comm_all_gather_now(base, &yes, answers, sizeof yes, err);

    *all_do = true;
    for (int i = 0; i < base->size; i++)
        *all_do = *all_do && answers[i];
    free(answers);
    return status;
}

static bool is_wanted(const struct mpi_comm *comm)
{
    bool on = true;

    mics_read_switch("MICS_NODE_COPY", &on, NULL); /* mics_world_open() refuses other values */
    return comm->base.comm.size <= RANKS_MAX && on;
}

/* Descriptor of a new file of `bytes` in memory, or of the one that rank 0 made. -1: failed. */
static int open_file(const char *name, bool create, size_t bytes)
{
    const int file = shm_open(name, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);

    if (file < 0 || !create || posix_fallocate(file, 0, (off_t)bytes) == 0)
        return file;
    close(file);
    shm_unlink(name);
    return -1;
}

void *mics_mpi_map_shared(const char *name, bool create, size_t bytes)
{
    const int file = open_file(name, create, bytes);

    if (file < 0)
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED)
        return memory;
    if (create)
        shm_unlink(name);
    return NULL;
}

/* Rank 0 makes the file and the others open it; then it has no name any more. */
static enum mics_status share_file(struct mpi_comm *comm, struct mpi_node *node, bool *shared,
                                   struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    char name[64] = "";
    unsigned random = 0;
    bool have = false;

    if (base->rank == 0 && getrandom(&random, sizeof random, 0) == sizeof random) {
        snprintf(name, sizeof name, "/mics-%ld-%d-%08x", (long)getpid(), comm->tag, random);
        node->ranks = mics_mpi_map_shared(name, true, node->bytes);
        have = node->ranks != NULL;
        if (!have)
            name[0] = '\0';
    }
    enum mics_status status = mics_comm_broadcast_now(base, name, sizeof name, 0, err);
    if (status == MICS_OK && base->rank != 0 && name[0]) {
        node->ranks = mics_mpi_map_shared(name, false, node->bytes);
        have = node->ranks != NULL;
    }
    if (status == MICS_OK)
        status = agree(comm, have, shared, err);
    if (base->rank == 0 && have)
        shm_unlink(name);
    return status;
}

/* Whether this rank can copy from the memory of all others. */
static bool can_copy(const struct mpi_comm *comm, const struct mpi_node *node)
{
    for (int rank = 0; rank < comm->base.comm.size; rank++) {
        const struct node_rank *other = &node->ranks[rank];
        uint64_t found = 0;

        if (copy_memory(other->pid, other->address, &found, sizeof found) != 0 ||
            found != other->secret)
            return false;
    }
    return true;
}

/* What the other ranks need to know of this one; then they try to copy. */
static enum mics_status try_copies(struct mpi_comm *comm, struct mpi_node *node, bool *usable,
                                   struct mics_err *err)
{
    struct mics_comm *base = &comm->base.comm;
    struct node_rank *own = &node->ranks[base->rank];
    bool has_secret = getrandom(&node->secret, sizeof node->secret, 0) == sizeof node->secret;

    own->pid = getpid();
    own->secret = node->secret;
    own->address = (uint64_t)(uintptr_t)&node->secret;
    enum mics_status status = agree(comm, has_secret, usable, err);
    if (status == MICS_OK && *usable)
        status = agree(comm, can_copy(comm, node), usable, err);
    return status;
}

void mics_mpi_node_close(struct mpi_comm *comm)
{
    if (comm->node && comm->node->ranks)
        munmap(comm->node->ranks, comm->node->bytes);
    free(comm->node);
    comm->node = NULL;
}

/* Spinning pays only if the ranks that it waits for have cores of their own. */
static int spins(int ranks)
{
    cpu_set_t cores;

    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > ranks ? SPINS : 0;
}

enum mics_status mics_mpi_node_open(struct mpi_comm *comm, struct mics_err *err)
{
    const int size = comm->base.comm.size;
    struct mpi_node *node = calloc(1, sizeof *node);
    bool usable = false;
    enum mics_status status = agree(comm, node && is_wanted(comm), &usable, err);

    if (status == MICS_OK && usable) {
        node->bytes = mics_round_up((uint64_t)size * sizeof *node->ranks, 4096);
        node->spins = spins(size);
        status = share_file(comm, node, &usable, err);
    }
    if (status == MICS_OK && usable)
        status = try_copies(comm, node, &usable, err);
    comm->node = node;
    if (status != MICS_OK || !usable)
        mics_mpi_node_close(comm);
    return status;
}
