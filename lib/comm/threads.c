/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/backend.h"
#include "base/num.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * threads.h - the meeting place of ranks that are threads of one process.
 */
/* Shared by all communicators that come from one mics_comm_new_threads(). */
struct threads_world {
    pthread_mutex_t lock;         /* guards groups and refs; taken before a group's */
    struct threads_group *groups; /* all that live, so that an abort can wake everybody */
    int refs;                     /* groups */
    atomic_bool aborted;
    int code; /* of the abort */
};

/* Shared by the ranks of one communicator. */
struct threads_group {
    struct threads_world *world;
    struct threads_group *next; /* of the world */
    int size;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t met;
    int refs;            /* communicators that use the group */
    int arrived;         /* at the meeting that is on */
    int busy;            /* ranks that use each other's memory */
    uint64_t generation; /* of meetings */

    const struct comm_call **calls; /* [size]; each rank writes its own between meetings */
};

struct threads_comm {
    struct comm_base base;
    struct threads_group *group;
};

/* Wait until all ranks are here; then all may use each other's memory until they meet again.
 * `was_busy`: this rank did so since the last meeting. MICS_ERR_COMM after an abort; by then nobody is
 * using this rank's memory. */
enum mics_status mics_threads_meet(struct threads_group *group, bool was_busy, bool will_be_busy,
                                   struct mics_err *err);

/* comm_threads_execute.c */
enum mics_status mics_threads_execute(struct comm_base *base, const struct comm_call *call,
                                      struct comm_sent *sent, struct mics_err *err);

static enum mics_status aborted(const struct threads_world *world, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_COMM, "the job was aborted with exit code %d", world->code);
}

/* The rank is done with the others' memory; the locks are held. */
static void leave_memory(struct threads_group *group)
{
    if (--group->busy == 0 && atomic_load(&group->world->aborted))
        pthread_cond_broadcast(&group->met);
}

enum mics_status mics_threads_meet(struct threads_group *group, bool was_busy, bool will_be_busy,
                                   struct mics_err *err)
{
    struct threads_world *world = group->world;

    pthread_mutex_lock(&group->lock);
    if (was_busy)
        leave_memory(group);

    const uint64_t generation = group->generation;
    if (!atomic_load(&world->aborted) && ++group->arrived == group->size) {
        group->arrived = 0;
        group->generation++;
        group->busy = will_be_busy ? group->size : 0;
        pthread_cond_broadcast(&group->met);
    }
    while (group->generation == generation && !atomic_load(&world->aborted))
        pthread_cond_wait(&group->met, &group->lock);

    const bool met = group->generation != generation;
    while (!met && group->busy > 0)
        pthread_cond_wait(&group->met, &group->lock);
    pthread_mutex_unlock(&group->lock);
    return met ? MICS_OK : aborted(world, err);
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
    pthread_cond_init(&group->met, NULL);
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

/* No communicator uses the group any more. */
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

    pthread_cond_destroy(&group->met);
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
            pthread_cond_broadcast(&group->met);
            pthread_mutex_unlock(&group->lock);
        }
    }
    pthread_mutex_unlock(&world->lock);
}

static enum mics_status threads_split(struct mics_comm *comm, int color, int key, int block,
                                      struct mics_comm **out, struct mics_err *err);

static const struct mics_comm_ops threads_ops = {
    .split = threads_split, .free = threads_free, .abort = threads_abort, COMM_BASE_OPS};

/* One rank of `group`. Takes the blocks, also on failure, when one reference of the group is given back. */
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
    comm->group = group;
    comm->base.execute = mics_threads_execute;
    comm->base.blocks = blocks;
    comm->base.comm.ops = &threads_ops;
    comm->base.comm.backend = "threads";
    comm->base.comm.rank = rank;
    comm->base.comm.size = group->size;
    comm->base.comm.block = blocks[rank];
    *out = &comm->base.comm;
    return MICS_OK;
}

/* The first member makes the group, and everybody hears of it. All ranks of the old communicator take
 * part, even if their own part of the split has failed. */
static enum mics_status share_group(struct mics_comm *comm, const struct comm_split *split,
                                    struct threads_group **out, struct mics_err *err)
{
    struct threads_group *made = NULL;
    struct threads_group **all = calloc((size_t)comm->size, sizeof(*all));

    if (split->size > 0 && split->rank == 0)
        made = group_new(((struct threads_comm *)comm)->group->world, split->size);
    enum mics_status status = all ? MICS_OK : mics_err_nomem(err);
    if (status == MICS_OK)
        status = comm->ops->all_gather_now(comm, &made, all, sizeof made, err);
    if (status == MICS_OK && split->size > 0) {
        *out = all[split->parents[0]];
        if (!*out)
            status = mics_err_nomem(err);
    } else if (made) {
        group_free(made);
    }
    free(all);
    return status;
}

static enum mics_status threads_split(struct mics_comm *comm, int color, int key, int block,
                                      struct mics_comm **out, struct mics_err *err)
{
    struct comm_split split;
    struct threads_group *group = NULL;
    enum mics_status own = mics_comm_split_init(comm, color, key, block, 0, &split, err);
    enum mics_status shared = share_group(comm, &split, &group, own == MICS_OK ? err : NULL);
    enum mics_status status = own != MICS_OK ? own : shared;

    if (status == MICS_OK && color < 0)
        *out = NULL;
    else if (status == MICS_OK) {
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

/* `out` is filled from the front; on failure what was made goes again. */
static enum mics_status fill_world(struct threads_group *group, struct mics_comm **out,
                                   struct mics_err *err)
{
    const int size = group->size;

    for (int rank = 0; rank < size; rank++) {
        enum mics_status status = comm_new(group, rank, identity_blocks(size), &out[rank], err);

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
    return fill_world(group, out, err);
}

/*
 * Collectives by direct copies. Each rank shows its call, all meet, each does its own part reading the
 * others' memory, and all meet again before anyone goes on. Sums go over the ranks in their order. The bytes
 * counted are those that a ring (or, for what is short, a tree) would have sent.
 */



enum { CHUNK = 4096 }; /* bytes summed at a time, in the first-level cache */

static const struct threads_comm *threads_of(const struct comm_base *base)
{
    return (const struct threads_comm *)base;
}

static bool same_call(const struct comm_call *a, const struct comm_call *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->dtype == b->dtype &&
           a->root == b->root && a->in_rank_order == b->in_rank_order;
}

/* Every rank comes to the same verdict, so all of them leave. */
static enum mics_status check_calls(const struct threads_group *group, struct mics_err *err)
{
    const struct comm_call *first = group->calls[0];

    for (int i = 1; i < group->size; i++) {
        const struct comm_call *other = group->calls[i];

        if (!same_call(first, other))
            return mics_err_set(
                err, MICS_ERR_COMM, "rank 0 called %s of %llu bytes, but rank %d %s of %llu",
                mics_comm_call_name(first->kind), (unsigned long long)first->bytes, i,
                mics_comm_call_name(other->kind), (unsigned long long)other->bytes);
    }
    return MICS_OK;
}

static void gather(const struct comm_base *base, const struct comm_call *call)
{
    const struct threads_group *group = threads_of(base)->group;

    for (int rank = 0; rank < group->size; rank++) {
        const void *from = group->calls[rank]->send;
        char *to = (char *)call->recv + (uint64_t)comm_block_of(base, call, rank) * call->bytes;

        if (to != from && call->bytes > 0)
            memcpy(to, from, call->bytes);
    }
}

static const char *summand(const struct comm_call *call, uint64_t offset)
{
    return (const char *)(call->kind == COMM_ALL_REDUCE ? call->recv : call->send) + offset;
}

/* out[count] = sum over ranks of what they have at `offset` (bytes). `out` may be one of these. */
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

/* A ring leaves partial sums where the other blocks were: who relies on them shall notice. */
static void destroy_send(const struct comm_base *base, const struct comm_call *call)
{
    for (int block = 0; block < base->comm.size; block++) {
        char *at = (char *)call->send + (uint64_t)block * call->bytes;

        if (at != call->recv && call->bytes > 0)
            memset(at, 0xff, call->bytes); /* NaN */
    }
}

/* *busy becomes false when the meeting in the middle fails. */
static enum mics_status all_reduce(const struct comm_base *base, const struct comm_call *call,
                                   bool *busy, struct mics_err *err)
{
    struct threads_group *group = threads_of(base)->group;
    const uint64_t each = mics_dtype_bytes(call->dtype);
    const struct comm_piece own = mics_comm_piece(call->count, group->size, base->comm.rank);

    sum_ranks(group, (char *)call->recv + own.begin * each, own.begin * each, own.count,
              call->dtype);
    enum mics_status status = mics_threads_meet(group, true, true, err);
    *busy = status == MICS_OK;
    for (int rank = 0; rank < group->size && status == MICS_OK; rank++) {
        const struct comm_piece piece = mics_comm_piece(call->count, group->size, rank);

        if (rank != base->comm.rank && piece.count > 0)
            memcpy((char *)call->recv + piece.begin * each,
                   (const char *)group->calls[rank]->recv + piece.begin * each, piece.count * each);
    }
    return status;
}

static enum mics_status do_part(const struct comm_base *base, const struct comm_call *call,
                                bool *busy, struct mics_err *err)
{
    const struct threads_group *group = threads_of(base)->group;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        gather(base, call);
        break;
    case COMM_REDUCE_SCATTER:
        sum_ranks(group, call->recv, (uint64_t)base->comm.block * call->bytes, call->count,
                  call->dtype);
        break;
    case COMM_ALL_REDUCE:
        return all_reduce(base, call, busy, err);
    case COMM_BROADCAST:
        if (base->comm.rank != call->root && call->bytes > 0)
            memcpy(call->recv, group->calls[call->root]->recv, call->bytes);
        break;
    case COMM_BARRIER:
        break;
    }
    return MICS_OK;
}

static uint64_t sent_by(const struct comm_base *base, const struct comm_call *call)
{
    const int size = base->comm.size, rank = base->comm.rank;

    switch (call->kind) {
    case COMM_ALL_GATHER:
    case COMM_REDUCE_SCATTER:
        return (uint64_t)(size - 1) * call->bytes;
    case COMM_ALL_REDUCE:
        return mics_comm_all_reduce_sent(size, rank, call->count, call->dtype);
    case COMM_BROADCAST:
        return mics_comm_broadcast_sent(size, comm_mod(rank - call->root, size), call->bytes);
    case COMM_BARRIER:
        break;
    }
    return 0;
}

enum mics_status mics_threads_execute(struct comm_base *base, const struct comm_call *call,
                                      struct comm_sent *sent, struct mics_err *err)
{
    struct threads_group *group = threads_of(base)->group;

    group->calls[base->comm.rank] = call;
    enum mics_status status = mics_threads_meet(group, false, true, err);
    if (status != MICS_OK)
        return status;

    bool busy = true;
    enum mics_status part = check_calls(group, err);
    if (part == MICS_OK)
        part = do_part(base, call, &busy, err);
    if (busy)
        status = mics_threads_meet(group, true, false, part == MICS_OK ? err : NULL);
    if (part == MICS_OK && status == MICS_OK) {
        sent->bytes = sent_by(base, call);
        if (call->kind == COMM_REDUCE_SCATTER)
            destroy_send(base, call);
    }
    return part != MICS_OK ? part : status;
}
