/* SPDX-License-Identifier: Apache-2.0 */
/* One rank alone: everything that happens to a single rank is in comm_base.c. */
#include "comm/backend.h"
#include "base/num.h"

#include <stdlib.h>
#include <unistd.h>

static enum mics_status self_split(struct mics_comm *comm, int color, int key, int block,
                                   struct mics_comm **out, struct mics_err *err)
{
    (void)comm, (void)key;
    if (color < 0) {
        *out = NULL;
        return MICS_OK;
    }
    if (block != 0)
        return mics_err_set(err, MICS_ERR_ARG, "split: block %d of 1 ranks", block);
    return mics_comm_new_self(out, err);
}

static void self_free(struct mics_comm *comm)
{
    free(comm);
}

/* Without the handlers of exit(): other threads are still at work. */
static void self_abort(struct mics_comm *comm, int code)
{
    (void)comm;
    _exit(code);
}

static const struct mics_comm_ops self_ops = {
    .split = self_split, .free = self_free, .abort = self_abort, COMM_BASE_OPS};

enum mics_status mics_comm_new_self(struct mics_comm **out, struct mics_err *err)
{
    struct comm_base *base = calloc(1, sizeof *base);

    if (!base)
        return mics_err_nomem(err);
    base->comm.ops = &self_ops;
    base->comm.backend = "self";
    base->comm.size = 1;
    *out = &base->comm;
    return MICS_OK;
}

struct wish {
    int color, key, block, rank;
    uint64_t tag;
};

static int compare(const void *left, const void *right)
{
    const struct wish *a = left, *b = right;

    if (a->color != b->color)
        return a->color < b->color ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

/* Take the run of equal colors that begins at `first`. */
static void take_members(const struct wish *first, struct comm_split *out, int rank)
{
    for (int i = 0; i < out->size; i++) {
        out->parents[i] = first[i].rank;
        out->blocks[i] = first[i].block;
        if (first[i].rank == rank)
            out->rank = i;
    }
}

static enum mics_status check_blocks(const struct comm_split *split, struct mics_err *err)
{
    bool *taken = calloc((unsigned)split->size, sizeof *taken);
    enum mics_status status = MICS_OK;

    if (!taken)
        return mics_err_nomem(err);
    for (int i = 0; i < split->size && status == MICS_OK; i++) {
        int block = split->blocks[i];

        if (block < 0 || block >= split->size)
            status =
                mics_err_set(err, MICS_ERR_ARG, "split: block %d of %d ranks", block, split->size);
        else if (taken[block])
            status = mics_err_set(err, MICS_ERR_ARG, "split: block %d is held twice", block);
        else
            taken[block] = true;
    }
    free(taken);
    return status;
}

static enum mics_status choose(struct wish *wishes, int count, const struct wish *own,
                               struct comm_split *out, struct mics_err *err)
{
    int first = 0;

    for (int i = 0; i < count; i++)
        out->greatest_tag = mics_max_u64(out->greatest_tag, wishes[i].tag);
    if (own->color < 0)
        return MICS_OK;

    qsort(wishes, (size_t)count, sizeof *wishes, compare);
    while (wishes[first].color != own->color)
        first++;
    while (first + out->size < count && wishes[first + out->size].color == own->color)
        out->size++;
    out->parents = calloc((size_t)out->size, sizeof *out->parents);
    out->blocks = calloc((size_t)out->size, sizeof *out->blocks);
    if (!out->parents || !out->blocks)
        return mics_err_nomem(err);
    take_members(&wishes[first], out, own->rank);
    return check_blocks(out, err);
}

enum mics_status mics_comm_split_init(struct mics_comm *comm, int color, int key, int block,
                                      uint64_t tag, struct comm_split *out, struct mics_err *err)
{
    const struct wish own = {color, key, block, comm->rank, tag};
    struct wish *wishes = calloc((size_t)comm->size, sizeof *wishes);

    *out = (struct comm_split){0};
    if (!wishes)
        return mics_err_nomem(err);
    enum mics_status status = comm->ops->all_gather_now(comm, &own, wishes, sizeof own, err);
    if (status == MICS_OK)
        status = choose(wishes, comm->size, &own, out, err);
    if (status != MICS_OK)
        mics_comm_split_fini(out);
    free(wishes);
    return status;
}

void mics_comm_split_fini(struct comm_split *split)
{
    free(split->parents);
    free(split->blocks);
    *split = (struct comm_split){0};
}
