/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_device.cu - cuDNN opened for a device, and what it says to shapes. */
#include "cuda/cudnn_device.cuh"

#include "cuda/attention_choice.cuh"

#include <stdio.h>
#include <stdlib.h>

cudaError_t mics_cudnn_error(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return cudaErrorMemoryAllocation;
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS:
        return cudaSuccess;
    case CUDNN_STATUS_BAD_PARAM:
        return cudaErrorInvalidValue;
    case CUDNN_STATUS_NOT_SUPPORTED:
        return cudaErrorNotSupported;
    case CUDNN_STATUS_EXECUTION_FAILED:
        return cudaErrorLaunchFailure;
    default:
        return cudaErrorUnknown;
    }
}

struct mics_cudnn *mics_cudnn_new(void)
{
    struct mics_cudnn *cudnn = (struct mics_cudnn *)calloc(1, sizeof(*cudnn));

    if (!cudnn)
        return NULL;
    pthread_mutex_init(&cudnn->lock, NULL);
    cudnn->shapes.key_bytes = sizeof(struct mics_cudnn_shape);
    return cudnn;
}

void mics_cudnn_free(struct mics_cudnn *cudnn)
{
    struct mics_cudnn_known *known;

    if (!cudnn)
        return;
    while ((known = (struct mics_cudnn_known *)mics_shapes_take(&cudnn->shapes)) != NULL) {
        mics_cudnn_slices_fini(&known->slices);
        free(known);
    }
    if (cudnn->handle)
        cudnn->library.destroy(cudnn->handle);
    pthread_mutex_destroy(&cudnn->lock);
    free(cudnn);
}

/* Who insists on cuDNN is to learn why it is not taken; others, where they ask for that much. */
static int level_of(const struct mics_cuda_at *at, int otherwise)
{
    const int insisted = at->choices->insisted;

    return insisted >= 0 && insisted == mics_attention_variant_find("cudnn") ? 0 : otherwise;
}

static bool open_once(const struct mics_cuda_at *at, struct mics_cudnn *cudnn)
{
    char why[MICS_CUDNN_WHY_BYTES] = "";
    cudnnStatus_t status;

    if (cudnn->sought)
        return cudnn->found;
    cudnn->sought = true;
    if (mics_cudnn_library_open(&cudnn->library, why)) {
        status = cudnn->library.create(&cudnn->handle);
        cudnn->found = status == CUDNN_STATUS_SUCCESS;
        if (!cudnn->found)
            mics_cudnn_explain(&cudnn->library, status, why);
    }
    if (!cudnn->found)
        mics_choices_tell(at->choices, level_of(at, 1), "attention without cuDNN: %s", why);
    return cudnn->found;
}

/* What is refused without asking. NULL: nothing. */
static const char *refuse(const struct mics_cudnn *cudnn, const struct mics_cudnn_shape *shape)
{
    if (!shape->grad)
        return NULL;
    if (shape->T < 2)
        return "a gradient of single tokens";
    if (shape->T % 128 != 0 && cudnn->library.version <= 91500)
        return "up to 9.15.0, a gradient of sequences that are no multiple of 128";
    return NULL;
}

/* Make plans, or say why there are none. */
static bool plan(struct mics_cudnn *cudnn, struct mics_cudnn_known *known,
                 char why[MICS_CUDNN_WHY_BYTES])
{
    const struct mics_cudnn_place place = {cudnn->handle, NULL};
    const char *reason = refuse(cudnn, &known->key);
    cudnnStatus_t status;

    if (reason) {
        snprintf(why, MICS_CUDNN_WHY_BYTES, "%s", reason);
        return false;
    }
    status = mics_cudnn_slices_make(&known->slices, &cudnn->library, &place, &known->key,
                                    MICS_CUDA_WORKSPACE_BYTES);
    if (status == CUDNN_STATUS_SUCCESS)
        return true;
    mics_cudnn_slices_fini(&known->slices);
    if (status == CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT)
        snprintf(why, MICS_CUDNN_WHY_BYTES, "no slice of it fits a workspace of %u MiB",
                 MICS_CUDA_WORKSPACE_BYTES >> 20);
    else
        mics_cudnn_explain(&cudnn->library, status, why);
    return false;
}

static void learn(const struct mics_cuda_at *at, struct mics_cudnn *cudnn,
                  struct mics_cudnn_known *known)
{
    const struct mics_cudnn_shape *s = &known->key;
    char why[MICS_CUDNN_WHY_BYTES] = "";

    known->taken = plan(cudnn, known, why);
    if (!known->taken)
        mics_choices_tell(at->choices, level_of(at, 2),
                          "attention%s, B %d T %d H %d of %d D %d, %s: not by cuDNN: %s",
                          s->grad ? "'s gradient" : "", (int)s->B, (int)s->T, (int)s->H,
                          (int)s->H_kv, (int)s->D, s->causal ? "causal" : "full", why);
}

const struct mics_cudnn_known *mics_cudnn_find(const struct mics_cuda_at *at,
                                               const struct mics_cudnn_shape *shape)
{
    struct mics_cudnn *cudnn = at->choices->cudnn;
    struct mics_cudnn_known *known;

    if (!open_once(at, cudnn))
        return NULL;
    known = (struct mics_cudnn_known *)mics_shapes_find(&cudnn->shapes, shape);
    if (known)
        return known;
    known = (struct mics_cudnn_known *)calloc(1, sizeof(*known));
    if (!known)
        return NULL;
    known->key = *shape;
    known->shape.key = &known->key;
    learn(at, cudnn, known);
    mics_shapes_add(&cudnn->shapes, &known->shape);
    return known;
}
