/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_comm.c - communicators whose ranks are threads of one process, for tests.
 *
 * Collectives copy directly from the memory of the other ranks: every rank publishes its call, all
 * synchronise, each does its own part reading the others' memory, and all synchronise again before
 * any of them continues. Sums are taken in rank order. The bytes counted are those that a ring, or
 * for short data a tree, would have sent.
 */
#include "comm/backend.h"

#include "base/num.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096 }; /* bytes summed at a time, to stay in the L1 cache */

/* Shared by all communicators that descend from one mics_comm_new_threads(). */
struct threads_world {
    pthread_mutex_t lock;         /* guards groups and refs; taken before a group's lock */
    struct threads_group *groups; /* all of them: an abort wakes the waiting ranks of each */
    int refs;                     /* number of groups */
    atomic_bool aborted;
    int code; /* of the abort */
};

/* Shared by the ranks of one communicator. */
struct threads_group {
    struct threads_world *world;
    struct threads_group *next; /* of the world */
    int size;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    int refs;            /* communicators that use the group */
    int arrived;         /* ranks waiting in the current synchronisation */
    int reading;         /* ranks that may be reading other ranks' memory */
    uint64_t generation; /* completed synchronisations */

    const struct comm_call **calls; /* [size]; each rank writes its own between synchronisations */
};

struct threads_comm {
    struct comm_base base;
    struct threads_group *group;
};

/* Synchronisation ---------------------------------------------------------------------------- */

/* Wait until all ranks are here. `reading_before`: this rank read other ranks' memory since the
 * last synchronisation; `reading_after`: all ranks may do so until the next one. MICS_ERR_COMM
 * after an abort; by then no other rank reads this rank's memory. */
static enum mics_status synchronise(struct threads_group *group, bool reading_before,
                                    bool reading_after, struct mics_err *err)
{
    struct threads_world *world = group->world;

    pthread_mutex_lock(&group->lock);
    if (reading_before && --group->reading == 0 && atomic_load(&world->aborted))
        pthread_cond_broadcast(&group->changed);

    const uint64_t generation = group->generation;
    if (!atomic_load(&world->aborted) && ++group->arrived == group->size) {
        group->arrived = 0;
        group->generation++;
        group->reading = reading_after ? group->size : 0;
        pthread_mutex_unlock(&group->lock);
        pthread_cond_broadcast(&group->changed); /* none of them waits for the lock */
        return MICS_OK;
    }
    while (group->generation == generation && !atomic_load(&world->aborted))
        pthread_cond_wait(&group->changed, &group->lock);

    const bool complete = group->generation != generation;
    while (!complete && group->reading > 0)
        pthread_cond_wait(&group->changed, &group->lock);
    pthread_mutex_unlock(&group->lock);
    if (complete)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_COMM, "the job was aborted with exit code %d", world->code);
}

static struct threads_group *group_new(struct threads_world *world, int size)
{
    struct threads_group *group = calloc(1, sizeof *group);

    if (!group)
        return NULL;
    group->calls = calloc((size_t)size, sizeof(*group->calls));
    if (!group->calls) {
        free(group);
        return NULL;
    }
    group->world = world;
    group->size = group->refs = size;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->changed, NULL);
    pthread_mutex_lock(&world->lock);
    group->next = world->groups;
    world->groups = group;
    world->refs++;
    pthread_mutex_unlock(&world->lock);
    return group;
}

static void world_free(struct threads_world *world)
{
    pthread_mutex_destroy(&world->lock);
    free(world);
}

/* The group must be unused. Frees the world with its last group. */
static void group_free(struct threads_group *group)
{
    struct threads_world *world = group->world;
    struct threads_group **link;

    pthread_mutex_lock(&world->lock);
    for (link = &world->groups; *link != group; link = &(*link)->next)
        ;
    *link = group->next;
    const bool last = --world->refs == 0;
    pthread_mutex_unlock(&world->lock);

    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group->calls);
    free(group);
    if (last)
        world_free(world);
}

static void group_release(struct threads_group *group)
{
    pthread_mutex_lock(&group->lock);
    const bool last = --group->refs == 0;
    pthread_mutex_unlock(&group->lock);
    if (last)
        group_free(group);
}

/* Collectives -------------------------------------------------------------------------------- */

static const struct threads_comm *threads_of(const struct comm_base *base)
{
    return (const struct threads_comm *)base;
}

static bool is_same_call(const struct comm_call *a, const struct comm_call *b)
{
    if (a->kind == COMM_EXCHANGE && b->kind == COMM_EXCHANGE)
        return true;
    return a->kind == b->kind && a->bytes == b->bytes && a->dtype == b->dtype &&
           a->root == b->root && a->in_rank_order == b->in_rank_order;
}

/* Every rank compares the same calls, so either all ranks fail or none. */
static enum mics_status check_calls(const struct threads_group *group, struct mics_err *err)
{
    const struct comm_call *first = group->calls[0];

    for (int i = 1; i < group->size; i++) {
        const struct comm_call *other = group->calls[i];

        if (!is_same_call(first, other))
            return mics_err_set(
                err, MICS_ERR_COMM, "rank 0 called %s of %llu bytes, but rank %d %s of %llu",
                mics_comm_call_name(first->kind), (unsigned long long)first->bytes, i,
                mics_comm_call_name(other->kind), (unsigned long long)other->bytes);
    }
    return MICS_OK;
}

static void all_gather(const struct comm_base *base, const struct comm_call *call)
{
    const struct threads_group *group = threads_of(base)->group;

    for (int rank = 0; rank < group->size; rank++) {
        const void *from = group->calls[rank]->send;
        char *to = (char *)call->recv + (uint64_t)comm_block_of(base, call, rank) * call->bytes;

        if (to != from && call->bytes > 0)
            memcpy(to, from, call->bytes);
    }
}

/* Each rank's part for this one. */
static void all_to_all(const struct comm_base *base, const struct comm_call *call)
{
    const struct threads_group *group = threads_of(base)->group;
    const uint64_t own = (uint64_t)base->comm.block * call->bytes;

    for (int rank = 0; rank < group->size && call->bytes > 0; rank++)
        memcpy((char *)call->recv + (uint64_t)comm_block_of(base, call, rank) * call->bytes,
               (const char *)group->calls[rank]->send + own, call->bytes);
}

static const char *summand(const struct comm_call *call, uint64_t offset)
{
    return (const char *)(call->kind == COMM_ALL_REDUCE ? call->recv : call->send) + offset;
}

/* out[count] = sum over ranks of their data at `offset` bytes. `out` may be one of the summands. */
static void sum_ranks(const struct threads_group *group, char *out, uint64_t offset, uint64_t count,
                      enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);
    _Alignas(64) char sum[CHUNK];

    for (uint64_t begin = 0; begin < bytes; begin += CHUNK) {
        const uint64_t part = mics_min_u64(CHUNK, bytes - begin);

        memcpy(sum, summand(group->calls[0], offset + begin), part);
        for (int rank = 1; rank < group->size; rank++)
            mics_comm_accumulate(sum, summand(group->calls[rank], offset + begin),
                                 part / mics_dtype_bytes(dtype), dtype);
        memcpy(out + begin, sum, part);
    }
}

/* A ring leaves partial sums in the other blocks. Fill them with NaN, so that a caller that uses
 * them fails in tests. */
static void destroy_send(const struct comm_base *base, const struct comm_call *call)
{
    for (int block = 0; block < base->comm.size; block++) {
        char *data = (char *)call->send + (uint64_t)block * call->bytes;

        if (data != call->recv && call->bytes > 0)
            memset(data, 0xff, call->bytes);
    }
}

/* *reading becomes false when the synchronisation between the two halves fails. */
static enum mics_status all_reduce(const struct comm_base *base, const struct comm_call *call,
                                   bool *reading, struct mics_err *err)
{
    struct threads_group *group = threads_of(base)->group;
    const uint64_t each = mics_dtype_bytes(call->dtype);
    const struct comm_piece own = mics_comm_piece(call->count, group->size, base->comm.rank);

    sum_ranks(group, (char *)call->recv + own.begin * each, own.begin * each, own.count,
              call->dtype);
    enum mics_status status = synchronise(group, true, true, err);
    *reading = status == MICS_OK;
    for (int rank = 0; rank < group->size && status == MICS_OK; rank++) {
        const struct comm_piece piece = mics_comm_piece(call->count, group->size, rank);

        if (rank != base->comm.rank && piece.count > 0)
            memcpy((char *)call->recv + piece.begin * each,
                   (const char *)group->calls[rank]->recv + piece.begin * each, piece.count * each);
    }
    return status;
}

static enum mics_status exchange(const struct comm_base *base, const struct comm_call *call,
                                 struct mics_err *err)
{
    const struct comm_call *other;

    if (call->from < 0)
        return MICS_OK;
    other = threads_of(base)->group->calls[call->from];
    if (other->root != base->comm.rank || other->bytes != call->count)
        return mics_err_set(err, MICS_ERR_COMM,
                            "rank %d sends %llu bytes to rank %d, not %llu to rank %d", call->from,
                            (unsigned long long)other->bytes, other->root,
                            (unsigned long long)call->count, base->comm.rank);
    if (call->count > 0)
        memcpy(call->recv, other->send, call->count);
    return MICS_OK;
}

static enum mics_status run_own_part(const struct comm_base *base, const struct comm_call *call,
                                     bool *reading, struct mics_err *err)
{
    const struct threads_group *group = threads_of(base)->group;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        all_gather(base, call);
        break;
    case COMM_REDUCE_SCATTER:
        sum_ranks(group, call->recv, (uint64_t)base->comm.block * call->bytes, call->count,
                  call->dtype);
        break;
    case COMM_ALL_REDUCE:
        return all_reduce(base, call, reading, err);
    case COMM_ALL_TO_ALL:
        all_to_all(base, call);
        break;
    case COMM_BROADCAST:
        if (base->comm.rank != call->root && call->bytes > 0)
            memcpy(call->recv, group->calls[call->root]->recv, call->bytes);
        break;
    case COMM_EXCHANGE:
        return exchange(base, call, err);
    case COMM_BARRIER:
        break;
    }
    return MICS_OK;
}

static enum mics_status run_call(struct comm_base *base, const struct comm_call *call,
                                 struct comm_sent *sent, struct mics_err *err)
{
    struct threads_group *group = threads_of(base)->group;

    group->calls[base->comm.rank] = call;
    enum mics_status status = synchronise(group, false, true, err);
    if (status != MICS_OK)
        return status;

    bool reading = true;
    enum mics_status part = check_calls(group, err);
    if (part == MICS_OK)
        part = run_own_part(base, call, &reading, err);
    if (reading)
        status = synchronise(group, true, false, part == MICS_OK ? err : NULL);
    if (part == MICS_OK && status == MICS_OK) {
        sent->bytes += mics_comm_call_sent(base, call);
        if (call->kind == COMM_REDUCE_SCATTER)
            destroy_send(base, call);
    }
    return part != MICS_OK ? part : status;
}

static enum mics_status threads_execute(struct comm_base *base, const struct comm_call *calls,
                                        int count, struct comm_sent *sent, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int i = 0; i < count && status == MICS_OK; i++)
        status = run_call(base, &calls[i], sent, err);
    return status;
}

/* Communicators ------------------------------------------------------------------------------ */

static void threads_free(struct mics_comm *base)
{
    struct threads_comm *comm = (struct threads_comm *)base;

    group_release(comm->group);
    free(comm->base.blocks);
    free(comm);
}

static void threads_abort(struct mics_comm *base, int code)
{
    struct threads_world *world = ((struct threads_comm *)base)->group->world;

    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted)) {
        world->code = code;
        atomic_store(&world->aborted, true);
        for (struct threads_group *group = world->groups; group; group = group->next) {
            pthread_mutex_lock(&group->lock);
            pthread_cond_broadcast(&group->changed);
            pthread_mutex_unlock(&group->lock);
        }
    }
    pthread_mutex_unlock(&world->lock);
}

static enum mics_status threads_split(struct mics_comm *comm, int color, int key, int block,
                                      struct mics_comm **out, struct mics_err *err);

static const struct comm_backend threads_backend = {.name = "threads",
                                                    .split = threads_split,
                                                    .free = threads_free,
                                                    .abort = threads_abort,
                                                    .submit = mics_comm_host_submit,
                                                    .execute = threads_execute};

/* One rank of `group`. Takes ownership of `blocks` and of one reference to the group, also on
 * failure. */
static enum mics_status comm_new(struct threads_group *group, int rank, int *blocks,
                                 struct mics_comm **out, struct mics_err *err)
{
    struct threads_comm *comm = calloc(1, sizeof *comm);

    if (!comm || !blocks) {
        free(comm);
        free(blocks);
        group_release(group);
        return mics_err_nomem(err);
    }
    mics_comm_base_init(&comm->base, &threads_backend);
    comm->group = group;
    comm->base.blocks = blocks;
    comm->base.comm.rank = rank;
    comm->base.comm.size = group->size;
    comm->base.comm.block = blocks[rank];
    *out = &comm->base.comm;
    return MICS_OK;
}

/* The first member creates the group; all ranks exchange the pointers. Collective over `comm`, also
 * for ranks whose own part of the split has failed. */
static enum mics_status share_group(struct mics_comm *comm, const struct comm_split *split,
                                    struct threads_group **out, struct mics_err *err)
{
    struct threads_group *created = NULL;
    struct threads_group **all = calloc((size_t)comm->size, sizeof(*all));

    if (split->size > 0 && split->rank == 0)
        created = group_new(((struct threads_comm *)comm)->group->world, split->size);
    enum mics_status status = all ? MICS_OK : mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_comm_all_gather_now(comm, &created, all, sizeof created, err);
    if (status == MICS_OK && split->size > 0) {
        *out = all[split->parents[0]];
        if (!*out)
            status = mics_err_nomem(err);
    } else if (created) {
        group_free(created);
    }
    free(all);
    return status;
}

static enum mics_status threads_split(struct mics_comm *comm, int color, int key, int block,
                                      struct mics_comm **out, struct mics_err *err)
{
    struct comm_split split;
    struct threads_group *group = NULL;
    const enum mics_status own = mics_comm_split_init(comm, color, key, block, 0, &split, err);
    const enum mics_status shared = share_group(comm, &split, &group, own == MICS_OK ? err : NULL);
    enum mics_status status = own != MICS_OK ? own : shared;

    if (status == MICS_OK && color < 0) {
        *out = NULL;
    } else if (status == MICS_OK) {
        int *blocks = split.blocks;

        split.blocks = NULL;
        status = comm_new(group, split.rank, blocks, out, err);
    }
    mics_comm_split_fini(&split);
    return status;
}

static int *identity_blocks(int size)
{
    int *blocks = calloc((size_t)size, sizeof *blocks);

    for (int i = 0; blocks && i < size; i++)
        blocks[i] = i;
    return blocks;
}

/* out[size]; on failure the communicators created so far are freed. */
static enum mics_status comms_new(struct threads_group *group, struct mics_comm **out,
                                  struct mics_err *err)
{
    const int size = group->size;

    for (int rank = 0; rank < size; rank++) {
        const enum mics_status status =
            comm_new(group, rank, identity_blocks(size), &out[rank], err);

        if (status == MICS_OK)
            continue;
        for (int i = rank + 1; i < size; i++)
            group_release(group);
        for (int i = 0; i < rank; i++)
            threads_free(out[i]);
        return status;
    }
    return MICS_OK;
}

enum mics_status mics_comm_new_threads(int size, struct mics_comm **out, struct mics_err *err)
{
    if (size < 1)
        return mics_err_set(err, MICS_ERR_ARG, "threads: %d ranks", size);

    struct threads_world *world = calloc(1, sizeof *world);
    if (!world)
        return mics_err_nomem(err);
    pthread_mutex_init(&world->lock, NULL);
    struct threads_group *group = group_new(world, size);
    if (!group) {
        world_free(world);
        return mics_err_nomem(err);
    }
    return comms_new(group, out, err);
}
