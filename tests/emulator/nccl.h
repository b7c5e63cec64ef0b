/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - the part of NCCL that mics uses, among processes of one machine, over shared memory. For
 * tests.
 *
 * The names and values are NCCL's. A communicator with "blocking = 0" joins in the background, and
 * its collectives begin there, as in NCCL: the call returns "in progress", and using the
 * communicator again before its state was seen to be "success" is refused. Then the collective is
 * enqueued, and blocks its stream until all ranks have reached it; the collectives of one
 * communicator run one after another, on any streams. Collectives of different communicators
 * may not fit on a GPU at the same time, so here one runs at a time; with
 * NCCL_LAUNCH_ORDER_IMPLICIT=1 they run side by side, and begin in the order of their calls. Ranks
 * that wait for each other for 20 seconds are reported on stderr, and the GPU fails. If the process
 * of a rank ends, the communicators of the others fail with ncclRemoteError, and their collectives
 * wait until they are aborted, as they would hang on a GPU.
 *
 * Use that NCCL's manual forbids ends the process with a line on stderr, or is an error: ranks that
 * begin different collectives; two threads inside one communicator, also to abort it; buffers that
 * overlap and are not in place; buffers that are registered on some ranks only; memory freed while
 * it is registered; groups of several communicators (which NCCL allows, and we do not use).
 *
 * In the environment of one rank, MICS_EMULATED_NCCL_FAULT: "join": it fails to join; "absent": it
 * never joins; a number N: its Nth collective fails as on a network error, asynchronously: it
 * hangs, and the communicator reports an error (a reduce-scatter counts as one for each rank).
 * MICS_EMULATED_NCCL_VERSION: another one (21800). MICS_EMULATED_NCCL_LOG: a file, to which each
 * communicator that is destroyed adds a line about what it did.
 */
#ifndef MICS_TESTS_EMULATOR_NCCL_H
#define MICS_TESTS_EMULATOR_NCCL_H

#include "cuda_runtime.h"

#include <limits.h>

#define NCCL_MAJOR        2
#define NCCL_MINOR        28
#define NCCL_PATCH        9
#define NCCL_VERSION_CODE 22809

#define NCCL_UNIQUE_ID_BYTES  128
#define NCCL_CONFIG_UNDEF_INT INT_MIN

typedef struct emu_nccl *ncclComm_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum {
    ncclUint8 = 1,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

typedef enum { ncclSum = 0 } ncclRedOp_t;

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT                 \
    }

#ifdef __cplusplus
extern "C" {
#endif

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);

/* What is called between the two begins when the outermost ends. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* Device memory in pieces of 2 MiB. */
ncclResult_t ncclMemAlloc(void **out, size_t bytes);
ncclResult_t ncclMemFree(void *memory);
ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle);

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
/* Only in a group in which every rank sends as much to each rank, itself too, and receives it. */
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
