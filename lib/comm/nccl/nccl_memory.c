/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_memory.c - memory that is registered with NCCL, so that NCCL needs no buffers of its own for
 * it.
 *
 * MICS_NCCL_REGISTER=1 selects it. The memory comes from ncclMemAlloc() and is registered with
 * every communicator. Copies inside a node then go directly from one GPU's memory to another's, and
 * NVLink SHARP can sum on the way. All ranks must use it or none, so they decide together. By
 * default nothing is registered: NCCL copies through its own buffers, as it does in most programs.
 *
 * The functions are weak symbols because NCCL has them only since 2.19.
 */
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

extern __attribute__((weak)) ncclResult_t ncclMemAlloc(void **out, size_t bytes);
extern __attribute__((weak)) ncclResult_t ncclMemFree(void *memory);
extern __attribute__((weak)) ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer,
                                                           size_t bytes, void **handle);
extern __attribute__((weak)) ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);

static const size_t granularity_bytes = 2 << 20; /* of ncclMemAlloc() */

/* Memory of a device. */
struct nccl_memory {
    void *memory;
    size_t bytes;
    struct nccl_memory *next;
};

/* Its registration with one communicator. */
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

enum nccl_register mics_nccl_register_setting(void)
{
    const char *text = getenv("MICS_NCCL_REGISTER");

    if (!text || !*text)
        return NCCL_REGISTER_UNSET;
    if (strcmp(text, "0") == 0)
        return NCCL_REGISTER_OFF;
    return strcmp(text, "1") == 0 ? NCCL_REGISTER_ON : NCCL_REGISTER_BAD;
}

static enum mics_status add_handle(struct nccl_comm *comm, const struct nccl_memory *memory,
                                   struct mics_err *err)
{
    struct nccl_handle *handle = calloc(1, sizeof *handle);
    ncclResult_t result = ncclSuccess;

    if (!handle)
        return mics_err_nomem(err);
    pthread_mutex_lock(&comm->context->lock);
    if (comm->nccl)
        result = ncclCommRegister(comm->nccl, memory->memory, memory->bytes, &handle->handle);
    pthread_mutex_unlock(&comm->context->lock);
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

/* An aborted communicator has no registrations any more. */
static void remove_handle(struct nccl_comm *comm, struct nccl_handle **link)
{
    struct nccl_handle *handle = *link;

    pthread_mutex_lock(&comm->context->lock);
    if (comm->nccl)
        (void)ncclCommDeregister(comm->nccl, handle->handle);
    pthread_mutex_unlock(&comm->context->lock);
    *link = handle->next;
    free(handle);
}

static void remove_memory(struct nccl_comm *comm, const struct nccl_memory *memory)
{
    struct nccl_handle **link = &comm->handles;

    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    if (*link)
        remove_handle(comm, link);
}

void mics_nccl_register(struct nccl_comm *comm)
{
    struct cuda_device *device = (struct cuda_device *)comm->context->device;
    enum mics_status status = MICS_OK;
    struct mics_err err;

    if (device->exchange != comm->context)
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

/* With all communicators that have joined; the others register it when they join. */
static enum mics_status register_with_all(struct nccl_context *context,
                                          const struct nccl_memory *memory, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (struct nccl_comm *comm = context->comms; comm && status == MICS_OK; comm = comm->next)
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
    if (cudaMemGetInfo(&left, &total) == cudaSuccess && left < memory->bytes + granularity_bytes)
        return mics_cuda_no_memory(device, memory->bytes, err);
    return mics_err_set(err, MICS_ERR_DEVICE,
                        "%s: cannot allocate memory that NCCL can register: %s",
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
    status = register_with_all(device->exchange, memory, err);
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
    for (struct nccl_comm *comm = device->exchange ? device->exchange->comms : NULL; comm;
         comm = comm->next)
        remove_memory(comm, memory);
    *link = memory->next;
    (void)ncclMemFree(address);
    free(memory);
    return true;
}
