/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - memory that NCCL reads and writes without a detour through buffers of its own.
 *
 * MICS_NCCL_REGISTER=1 asks for it. The memory comes from ncclMemAlloc() and is registered with
 * every communicator, so that copies inside a node go from one GPU's memory straight into
 * another's, and NVLink SHARP can add on the way. All ranks must do it alike, so they decide
 * together. By default nothing is registered: NCCL copies through its own buffers, which is the
 * path that most programs take.
 *
 * The functions may be missing: NCCL has them since 2.19.
 */
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

extern __attribute__((weak)) ncclResult_t ncclMemAlloc(void **out, size_t bytes);
extern __attribute__((weak)) ncclResult_t ncclMemFree(void *memory);
extern __attribute__((weak)) ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer,
                                                           size_t bytes, void **handle);
extern __attribute__((weak)) ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);

static const size_t piece_bytes = 2 << 20; /* in which NCCL takes memory */

/* Of a device. */
struct nccl_memory {
    void *memory;
    size_t bytes;
    struct nccl_memory *next;
};

/* Of a communicator. */
struct nccl_handle {
    const struct nccl_memory *memory;
    void *handle;
    struct nccl_handle *next;
};

static bool is_off(const char *variable)
{
    const char *text = getenv(variable);

    return text && strcmp(text, "0") == 0;
}

bool mics_nccl_can_register(int version)
{
    return version >= NCCL_WITH_MEMORY && ncclMemAlloc && ncclMemFree && ncclCommRegister &&
           ncclCommDeregister && !is_off("NCCL_CUMEM_ENABLE") && !is_off("NCCL_LOCAL_REGISTER");
}

enum nccl_wish mics_nccl_wish(void)
{
    const char *text = getenv("MICS_NCCL_REGISTER");

    if (!text || !*text)
        return NCCL_WISH_NONE;
    if (strcmp(text, "0") == 0)
        return NCCL_WISH_OFF;
    return strcmp(text, "1") == 0 ? NCCL_WISH_ON : NCCL_WISH_WRONG;
}

/* One memory with one communicator. */
static enum mics_status add_handle(struct nccl_comm *comm, const struct nccl_memory *memory,
                                   struct mics_err *err)
{
    struct nccl_handle *handle = calloc(1, sizeof *handle);
    ncclResult_t result = ncclSuccess;

    if (!handle)
        return mics_err_nomem(err);
    pthread_mutex_lock(&comm->family->lock);
    if (comm->nccl)
        result = ncclCommRegister(comm->nccl, memory->memory, memory->bytes, &handle->handle);
    pthread_mutex_unlock(&comm->family->lock);
    if (result != ncclSuccess) {
        free(handle);
        mics_nccl_failure(comm, result, err);
        mics_err_prefix(err, "registering %zu bytes", memory->bytes);
        return MICS_ERR_COMM;
    }
    handle->memory = memory;
    handle->next = comm->handles;
    comm->handles = handle;
    return MICS_OK;
}

/* An aborted communicator has forgotten its registrations with everything else. */
static void remove_handle(struct nccl_comm *comm, struct nccl_handle **link)
{
    struct nccl_handle *handle = *link;

    pthread_mutex_lock(&comm->family->lock);
    if (comm->nccl)
        (void)ncclCommDeregister(comm->nccl, handle->handle);
    pthread_mutex_unlock(&comm->family->lock);
    *link = handle->next;
    free(handle);
}

static void forget(struct nccl_comm *comm, const struct nccl_memory *memory)
{
    struct nccl_handle **link = &comm->handles;

    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    if (*link)
        remove_handle(comm, link);
}

void mics_nccl_register(struct nccl_comm *comm)
{
    struct cuda_device *device = (struct cuda_device *)comm->family->device;
    enum mics_status status = MICS_OK;
    struct mics_err err;

    if (device->exchange != comm->family)
        return;
    for (struct nccl_memory *memory = device->shared; memory && status == MICS_OK;
         memory = memory->next)
        status = add_handle(comm, memory, &err);
    if (status != MICS_OK)
        device->base.ops->fail(&device->base, status, err.text);
}

void mics_nccl_deregister(struct nccl_comm *comm)
{
    while (comm->handles)
        remove_handle(comm, &comm->handles);
}

/* With all members that are in NCCL; the others will do it when they join. */
static enum mics_status register_memory(struct nccl_family *family,
                                        const struct nccl_memory *memory, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (struct nccl_comm *comm = family->members; comm && status == MICS_OK; comm = comm->next)
        if (atomic_load(&comm->joined))
            status = add_handle(comm, memory, err);
    return status;
}

static enum mics_status allocate(struct cuda_device *device, struct nccl_memory *memory,
                                 struct mics_err *err)
{
    size_t left = 0, total = 0;
    struct mics_err why;
    const ncclResult_t result = ncclMemAlloc(&memory->memory, memory->bytes);

    if (result == ncclSuccess)
        return MICS_OK;
    (void)cudaGetLastError();
    mics_nccl_failure(NULL, result, &why);
    if (cudaMemGetInfo(&left, &total) == cudaSuccess && left < memory->bytes + piece_bytes)
        return mics_cuda_no_memory(device, memory->bytes, err);
    return mics_err_set(err, MICS_ERR_DEVICE, "%s: memory that NCCL can register: %s",
                        device->description, why.text);
}

enum mics_status mics_nccl_memory_alloc(struct cuda_device *device, size_t bytes, void **out,
                                        struct mics_err *err)
{
    struct nccl_memory *memory = calloc(1, sizeof *memory);

    if (!memory)
        return mics_err_nomem(err);
    memory->bytes = bytes;
    enum mics_status status = allocate(device, memory, err);
    if (status != MICS_OK) {
        free(memory);
        return status;
    }
    memory->next = device->shared;
    device->shared = memory;
    status = register_memory(device->exchange, memory, err);
    if (status == MICS_OK)
        *out = memory->memory;
    else
        mics_nccl_memory_release(device, memory->memory);
    return status;
}

bool mics_nccl_memory_release(struct cuda_device *device, void *address)
{
    struct nccl_memory **link = &device->shared, *memory;

    while (*link && (*link)->memory != address)
        link = &(*link)->next;
    memory = *link;
    if (!memory)
        return false;
    for (struct nccl_comm *comm = device->exchange ? device->exchange->members : NULL; comm;
         comm = comm->next)
        forget(comm, memory);
    *link = memory->next;
    (void)ncclMemFree(address);
    free(memory);
    return true;
}
