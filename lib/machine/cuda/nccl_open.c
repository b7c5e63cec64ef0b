/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_open.c - the first communicator of a job, and all that are split from it. */
#include "machine/cuda/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each rank tells the others about its GPU. */
struct card {
    char uuid[16];
    char host_id
        [64]; /* $NCCL_HOSTID: ranks with different ones are on different machines for NCCL */
};

/* NCCL refuses them with many words, and other versions of it hang. */
static bool share(const struct card *a, const struct card *b)
{
    if (memcmp(a->uuid, b->uuid, sizeof a->uuid) != 0)
        return false;
    return !a->host_id[0] || !b->host_id[0] || strcmp(a->host_id, b->host_id) == 0;
}

/* All ranks read the same cards, so all come to the same verdict. */
static enum mics_status check_cards(const struct mics_device *device, const struct card *cards,
                                    int size, struct mics_err *err)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < i; j++)
            if (share(&cards[i], &cards[j]))
                return mics_err_set(err, MICS_ERR_DEVICE,
                                    "ranks %d and %d are on the same GPU, of which NCCL needs one "
                                    "for each rank (this rank has %s); MICS_COMM=staged does "
                                    "without NCCL",
                                    j, i, device->description ? device->description : "one");
    return MICS_OK;
}

static enum mics_status compare_cards(const struct mics_device *device, struct mics_comm *control,
                                      struct mics_err *err)
{
    const char *host_id = getenv("NCCL_HOSTID");
    struct card own = {.host_id = ""}, *cards = calloc((size_t)control->size, sizeof *cards);

    if (!cards)
        return mics_err_nomem(err);
    memcpy(own.uuid, device->uuid, sizeof own.uuid);
    snprintf(own.host_id, sizeof own.host_id, "%s", host_id ? host_id : "");
    enum mics_status status = control->ops->all_gather_now(control, &own, cards, sizeof own, err);

    if (status == MICS_OK)
        status = check_cards(device, cards, control->size, err);
    free(cards);
    return status;
}

static enum mics_status fill(struct nccl_comm *comm, bool late, struct mics_err *err)
{
    struct mics_device *device = comm->family->device;
    struct mics_comm *control = comm->control;
    void *token;

    if (control->size == 1)
        return MICS_OK;
    comm->blocks = calloc((size_t)control->size, sizeof *comm->blocks);
    enum mics_status status = comm->blocks ? MICS_OK : mics_err_nomem(err);
    if (status == MICS_OK)
        status = device->ops->alloc(device, sizeof *comm->token, &token, err);
    if (status != MICS_OK)
        return status;
    comm->token = token;
    status = control->ops->all_gather_now(control, &control->block, comm->blocks,
                                          sizeof *comm->blocks, err);
    return status == MICS_OK && !late ? mics_nccl_join(comm, err) : status;
}

enum mics_status mics_nccl_comm_new(struct nccl_family *family, struct mics_comm *control,
                                    bool late, struct mics_comm **out, struct mics_err *err)
{
    struct nccl_comm *comm = calloc(1, sizeof *comm);

    if (!comm) {
        control->ops->free(control);
        return mics_err_nomem(err);
    }
    comm->comm = *control;
    comm->comm.ops = &mics_nccl_ops;
    comm->comm.backend = "nccl";
    comm->comm.counts = (struct mics_comm_counts){0};
    comm->control = control;
    comm->family = family;
    mics_nccl_family_add(family, comm);
    const enum mics_status status = fill(comm, late, err);

    if (status == MICS_OK)
        *out = &comm->comm;
    else
        mics_nccl_ops.free(&comm->comm);
    return status;
}

enum mics_status mics_nccl_open(struct mics_device *device, struct mics_comm *control,
                                struct mics_comm **out, struct mics_err *err)
{
    struct mics_comm *own = NULL;
    struct nccl_family *family = NULL;
    enum mics_status status = compare_cards(device, control, err);

    if (status != MICS_OK)
        return status;
    mics_cuda_use((struct cuda_device *)device);
    status = control->ops->split(control, 0, control->rank, control->rank, &own, err);
    if (status != MICS_OK)
        return status;
    status = mics_nccl_family_new(device, &family, err);
    if (status != MICS_OK) {
        own->ops->free(own);
        return status;
    }
    return mics_nccl_comm_new(family, own, true, out, err);
}
