/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_open.c - the first communicator of a job, and all that are split from it. */
#include "comm/nccl/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What each rank tells the others about its GPU. */
struct card {
    char uuid[16];
    char host_id[64];    /* $NCCL_HOSTID: other ones are other machines for NCCL */
    int version;         /* of NCCL */
    bool can_register;   /* memory */
    enum nccl_wish wish; /* to do so */
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

/* Only when some rank asks for it and none refuses it. */
static enum mics_status choose_memory(const struct card *cards, int size, bool *registers,
                                      struct mics_err *err)
{
    bool on = false, off = false;

    for (int i = 0; i < size; i++) {
        if (cards[i].wish == NCCL_WISH_WRONG)
            return mics_err_set(err, MICS_ERR_ARG, "MICS_NCCL_REGISTER: expected 0 or 1");
        on |= cards[i].wish == NCCL_WISH_ON;
        off |= cards[i].wish == NCCL_WISH_OFF;
    }
    if (on && off)
        return mics_err_set(err, MICS_ERR_ARG, "MICS_NCCL_REGISTER: 1 on some ranks only");
    *registers = on;
    for (int i = 0; *registers && i < size; i++)
        if (!cards[i].can_register)
            return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                                "MICS_NCCL_REGISTER=1: NCCL cannot on rank %d: it is version "
                                "%d.%d.%d (2.19 can), or NCCL_CUMEM_ENABLE or NCCL_LOCAL_REGISTER "
                                "is 0 there",
                                i, cards[i].version / 10000, cards[i].version / 100 % 100,
                                cards[i].version % 100);
    return MICS_OK;
}

static struct card make_card(const struct nccl_family *family)
{
    const char *host_id = getenv("NCCL_HOSTID");
    struct card card = {.version = family->version,
                        .can_register = mics_nccl_can_register(family->version),
                        .wish = mics_nccl_wish()};

    memcpy(card.uuid, family->device->uuid, sizeof card.uuid);
    snprintf(card.host_id, sizeof card.host_id, "%s", host_id ? host_id : "");
    return card;
}

static enum mics_status compare_cards(struct nccl_family *family, struct mics_comm *control,
                                      bool *registers, struct mics_err *err)
{
    const struct card own = make_card(family);
    struct card *cards = calloc((size_t)control->size, sizeof *cards);

    if (!cards)
        return mics_err_nomem(err);
    enum mics_status status = control->ops->all_gather_now(control, &own, cards, sizeof own, err);

    if (status == MICS_OK)
        status = check_cards(family->device, cards, control->size, err);
    if (status == MICS_OK)
        status = choose_memory(cards, control->size, registers, err);
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
    comm->comm.detail = family->detail;
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

/* What all ranks do alike. */
static enum mics_status agree(struct nccl_family *family, struct mics_comm *control,
                              struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)family->device;
    const int version = family->version;
    bool registers = false;
    const enum mics_status status = compare_cards(family, control, &registers, err);

    if (status != MICS_OK)
        return status;
    if (registers && !device->exchange)
        device->exchange = family;
    snprintf(family->detail, sizeof family->detail, "%d.%d.%d%s", version / 10000,
             version / 100 % 100, version % 100, registers ? ", registered memory" : "");
    return MICS_OK;
}

enum mics_status mics_nccl_open(struct mics_device *device, struct mics_comm *control,
                                struct mics_comm **out, struct mics_err *err)
{
    struct mics_comm *own = NULL;
    struct nccl_family *family = NULL;
    enum mics_status status;

    mics_cuda_use((struct cuda_device *)device);
    status = mics_nccl_family_new(device, &family, err);
    if (status != MICS_OK)
        return status;
    status = agree(family, control, err);
    if (status == MICS_OK)
        status = control->ops->split(control, 0, control->rank, control->rank, &own, err);
    if (status == MICS_OK)
        return mics_nccl_comm_new(family, own, true, out, err);
    mics_nccl_family_free(family);
    return status;
}

/*
 * coalesce.c - ranks come together for NCCL, and part.
 *
 * NCCL itself waits for ever for a rank that fails before it has joined. So nobody waits inside NCCL: it joins in
 * the background, and every half second all ranks tell each other how they are.
 */


enum { NAP_US = 500, ROUND_NAPS = 1000, LEAVE_NAPS = 10000 };

static const struct timespec nap = {.tv_nsec = NAP_US * 1000};

/* What rank 0 says at the beginning. */
struct invitation {
    ncclUniqueId id;
    int failed;
};

/* How a rank is. */
enum standing { STANDING_WAITS, STANDING_IN, STANDING_FAILED };

/* Until NCCL is done, or for so many naps. */
static ncclResult_t wait_a_round(const struct nccl_comm *comm, ncclResult_t result, int naps)
{
    for (int i = 0; i < naps && result == ncclInProgress; i++) {
        result = mics_nccl_read_state(comm);
        if (result == ncclInProgress)
            nanosleep(&nap, NULL);
    }
    return result;
}

static enum standing standing_of(ncclResult_t result)
{
    if (result == ncclInProgress)
        return STANDING_WAITS;
    return result == ncclSuccess ? STANDING_IN : STANDING_FAILED;
}

/* The worst standing of all ranks, and the first rank that has it. */
static enum mics_status compare(struct nccl_comm *comm, enum standing own, enum standing *all,
                                enum standing *worst, int *who, struct mics_err *err)
{
    static const int badness[] = {[STANDING_IN] = 0, [STANDING_WAITS] = 1, [STANDING_FAILED] = 2};
    struct mics_comm *control = comm->control;
    const enum mics_status status =
        control->ops->all_gather_now(control, &own, all, sizeof own, err);

    *worst = STANDING_IN;
    *who = 0;
    for (int i = 0; i < control->size && status == MICS_OK; i++) {
        if (badness[all[i]] > badness[*worst]) {
            *worst = all[i];
            *who = i;
        }
    }
    return status;
}

/* All ranks leave this together, and with the same verdict. */
static enum mics_status wait_for_all(struct nccl_comm *comm, ncclResult_t result,
                                     struct mics_err *err)
{
    enum standing *all = calloc((size_t)comm->comm.size, sizeof *all);
    enum standing worst = STANDING_WAITS;
    enum mics_status status = all ? MICS_OK : mics_err_nomem(err);
    int who = 0;

    while (status == MICS_OK && worst == STANDING_WAITS) {
        result = wait_a_round(comm, result, ROUND_NAPS);
        status = compare(comm, standing_of(result), all, &worst, &who, err);
    }
    free(all);
    if (status != MICS_OK || worst == STANDING_IN)
        return status;
    if (standing_of(result) == STANDING_FAILED)
        return mics_nccl_failure(comm, result, err);
    return mics_err_set(err, MICS_ERR_COMM, "NCCL: rank %d of %d could not join", who,
                        comm->comm.size);
}

static enum mics_status invite(struct nccl_comm *comm, struct invitation *invitation,
                               struct mics_err *err)
{
    struct mics_comm *control = comm->control;
    ncclResult_t result = ncclSuccess;

    if (control->rank == 0)
        result = ncclGetUniqueId(&invitation->id);
    invitation->failed = result != ncclSuccess;
    if (result != ncclSuccess)
        mics_nccl_failure(NULL, result, err);
    const enum mics_status status =
        control->ops->broadcast_now(control, invitation, sizeof *invitation, 0, err);

    if (status != MICS_OK || !invitation->failed)
        return status;
    if (control->rank != 0)
        mics_err_set(err, MICS_ERR_COMM, "NCCL: rank 0 could not invite");
    return MICS_ERR_COMM;
}

/* NULL: whoever ends the job has it. */
static ncclComm_t take_away(struct nccl_comm *comm)
{
    pthread_mutex_lock(&comm->family->lock);
    const ncclComm_t nccl = comm->nccl;

    comm->nccl = NULL;
    pthread_mutex_unlock(&comm->family->lock);
    return nccl;
}

/* Begin; whether the rank is in, NCCL's state tells later. `nccl` must stay where it is until then. */
static ncclResult_t begin(struct nccl_comm *comm, const struct invitation *invitation,
                          ncclComm_t *nccl)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    pthread_mutex_lock(&comm->family->lock);
    const ncclResult_t result =
        ncclCommInitRankConfig(nccl, comm->comm.size, invitation->id, comm->comm.block, &config);
    comm->nccl = *nccl;
    pthread_mutex_unlock(&comm->family->lock);
    return result == ncclSuccess ? ncclInProgress : result;
}

enum mics_status mics_nccl_join(struct nccl_comm *comm, struct mics_err *err)
{
    struct invitation invitation;
    ncclComm_t nccl = NULL;
    enum mics_status status = invite(comm, &invitation, err);

    if (status != MICS_OK)
        return status;
    mics_cuda_use((struct cuda_device *)comm->family->device);
    status = wait_for_all(comm, begin(comm, &invitation, &nccl), err);
    atomic_store(&comm->joined, status == MICS_OK);
    if (status == MICS_OK) {
        mics_nccl_register(comm);
        return MICS_OK;
    }
    nccl = take_away(comm);
    if (nccl)
        (void)ncclCommAbort(nccl);
    return status;
}

static ncclResult_t finalize(struct nccl_comm *comm)
{
    struct mics_device *device = comm->family->device;
    ncclResult_t result = ncclRemoteError;

    if (device->ops->failure(device, NULL) != MICS_OK)
        return result;
    pthread_mutex_lock(&comm->family->lock);
    if (comm->nccl)
        result = ncclCommFinalize(comm->nccl);
    pthread_mutex_unlock(&comm->family->lock);
    return result;
}

void mics_nccl_leave(struct nccl_comm *comm)
{
    mics_nccl_deregister(comm);
    if (!comm->nccl)
        return;
    const ncclResult_t result = wait_a_round(comm, finalize(comm), LEAVE_NAPS);
    const ncclComm_t nccl = take_away(comm);

    if (nccl)
        (void)(result == ncclSuccess ? ncclCommDestroy(nccl) : ncclCommAbort(nccl));
}
