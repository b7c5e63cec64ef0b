/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/threads.h"

#include "comm/split.h"

#include <stdlib.h>

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
