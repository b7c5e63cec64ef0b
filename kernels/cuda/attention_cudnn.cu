/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cudnn.cu - attention and its gradient by cuDNN's plans, slice after slice. */
#include "cuda/attention_cudnn.cuh"

#include "cuda/attention_choice.cuh"
#include "cuda/cudnn_device.cuh"

#include <math.h>
#include <string.h>

/* Tensors of ops.h; those of the other direction are NULL. */
struct tensors {
    const void *qkv, *out, *grad_out;
    void *grad_qkv;
    const float *lse;
    float *delta;
};

/* Where a slice begins. */
struct corner {
    int64_t sequence, key_head;
};

/* One operation. */
struct task {
    const struct mics_cuda_at *at;
    struct tensors tensors;
    struct mics_cudnn_shape shape;
};

static struct mics_cudnn_shape shape_of(int64_t B, int64_t T, int64_t H, int64_t H_kv, int64_t D,
                                        bool grad, bool causal)
{
    struct mics_cudnn_shape shape;

    memset(&shape, 0, sizeof(shape));
    shape.B = B;
    shape.T = T;
    shape.H = shape.all_H = H;
    shape.H_kv = H_kv;
    shape.D = D;
    shape.qkv_elements = (H + 2 * H_kv) * D;
    shape.grad = grad;
    shape.causal = causal;
    return shape;
}

static struct task forward_task(const struct mics_cuda_at *at, const struct mics_op_attention *args)
{
    struct task task = {};

    task.at = at;
    task.tensors.qkv = args->qkv;
    task.tensors.out = args->out;
    task.tensors.lse = args->lse;
    task.shape = shape_of(args->B, args->T, args->H, args->H_kv, args->D, false, args->causal);
    return task;
}

static struct task grad_task(const struct mics_cuda_at *at,
                             const struct mics_op_attention_grad *args)
{
    struct task task = {};

    task.at = at;
    task.tensors = {args->qkv, args->out, args->grad_out, args->grad_qkv, args->lse, args->delta};
    task.shape = shape_of(args->B, args->T, args->H, args->H_kv, args->D, true, args->causal);
    return task;
}

/* Whether it may be chosen at all: else it is not even opened. */
static bool may_be_chosen(const struct mics_cuda_choices *choices)
{
    return choices->insisted < 0 ? choices->measure
                                 : choices->insisted == mics_attention_variant_find("cudnn");
}

/* Of types, sizes and addresses that cuDNN may take. */
static bool is_for_cudnn(const struct task *task, enum mics_dtype dtype)
{
    const struct tensors *t = &task->tensors;
    const uintptr_t addresses = (uintptr_t)t->qkv | (uintptr_t)t->out | (uintptr_t)t->grad_out |
                                (uintptr_t)t->grad_qkv | (uintptr_t)t->lse | (uintptr_t)t->delta;

    return task->at->choices && dtype == MICS_BF16 && task->shape.D % 8 == 0 &&
           task->shape.D <= 128 && task->shape.B > 0 && task->shape.T > 0 && addresses % 16 == 0;
}

static bool takes(const struct task *task)
{
    struct mics_cudnn *cudnn = task->at->choices->cudnn;
    const struct mics_cudnn_known *known;
    bool taken;

    pthread_mutex_lock(&cudnn->lock);
    known = mics_cudnn_find(task->at, &task->shape);
    taken = known && known->taken;
    pthread_mutex_unlock(&cudnn->lock);
    return taken;
}

static void add(struct mics_cudnn_operands *operands, int64_t uid, const void *pointer)
{
    operands->uids[operands->count] = uid;
    operands->pointers[operands->count++] = const_cast<void *>(pointer);
}

/* The numbers that graphs take from the host. */
struct numbers {
    float scale, hidden, one;
};

/* Offsets in elements of a slice's first element. */
struct offsets {
    int64_t q, k, v; /* in qkv */
    int64_t out, lse;
};

static struct offsets offsets_of(const struct mics_cudnn_shape *s, struct corner at)
{
    const int64_t head = at.key_head * (s->H / s->H_kv), row = at.sequence * s->T;
    const int64_t qkv = row * s->qkv_elements;

    return {qkv + head * s->D, qkv + (s->H + at.key_head) * s->D,
            qkv + (s->H + s->H_kv + at.key_head) * s->D, (row * s->H + head) * s->D,
            (at.sequence * s->H + head) * s->T};
}

/* bf16 numbers from `offset` on. */
static const void *halves_at(const void *base, int64_t offset)
{
    return static_cast<const uint16_t *>(base) + offset;
}

static void add_shared(struct mics_cudnn_operands *operands, const struct task *task,
                       const struct offsets *o, const struct numbers *numbers)
{
    add(operands, MICS_CUDNN_Q, halves_at(task->tensors.qkv, o->q));
    add(operands, MICS_CUDNN_K, halves_at(task->tensors.qkv, o->k));
    add(operands, MICS_CUDNN_V, halves_at(task->tensors.qkv, o->v));
    add(operands, MICS_CUDNN_OUT, halves_at(task->tensors.out, o->out));
    add(operands, MICS_CUDNN_LSE, task->tensors.lse + o->lse);
    add(operands, MICS_CUDNN_SCALE, &numbers->scale);
    if (task->shape.causal)
        add(operands, MICS_CUDNN_HIDDEN, &numbers->hidden);
}

static void add_grads(struct mics_cudnn_operands *operands, const struct task *task,
                      const struct offsets *o, const struct numbers *numbers)
{
    add(operands, MICS_CUDNN_GRAD_OUT, halves_at(task->tensors.grad_out, o->out));
    add(operands, MICS_CUDNN_GRAD_Q, halves_at(task->tensors.grad_qkv, o->q));
    add(operands, MICS_CUDNN_GRAD_K, halves_at(task->tensors.grad_qkv, o->k));
    add(operands, MICS_CUDNN_GRAD_V, halves_at(task->tensors.grad_qkv, o->v));
    add(operands, MICS_CUDNN_ONE, &numbers->one);
    add(operands, MICS_CUDNN_DELTA, task->tensors.delta + o->lse);
    add(operands, MICS_CUDNN_GRAD_Q_SUM, task->at->workspace);
}

static cudnnStatus_t run_slice(const struct task *task, const struct mics_cudnn_slice *slice,
                               struct corner at)
{
    const struct numbers numbers = {1 / sqrtf((float)task->shape.D), -INFINITY, 1};
    const struct offsets o = offsets_of(&task->shape, at);
    struct mics_cudnn_operands operands = {};

    add_shared(&operands, task, &o, &numbers);
    if (task->shape.grad)
        add_grads(&operands, task, &o, &numbers);
    return mics_cudnn_plan_run(&slice->plan, task->at->choices->cudnn->handle, &operands,
                               static_cast<char *>(task->at->workspace) + slice->sums_bytes);
}

/* Every slice, one after the other: they share the workspace. */
static cudnnStatus_t run_slices(const struct task *task, const struct mics_cudnn_slices *slices)
{
    const struct mics_cudnn_shape *all = &task->shape, *most = &slices->most.shape;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    for (int64_t b = 0; b < all->B; b += most->B)
        for (int64_t h = 0; h < all->H_kv && status == CUDNN_STATUS_SUCCESS; h += most->H_kv) {
            const bool whole = b + most->B <= all->B && h + most->H_kv <= all->H_kv;

            status = run_slice(task, whole ? &slices->most : &slices->last, {b, h});
        }
    return status;
}

static cudaError_t run(const struct task *task)
{
    struct mics_cudnn *cudnn = task->at->choices->cudnn;
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    const struct mics_cudnn_known *known;

    pthread_mutex_lock(&cudnn->lock);
    known = mics_cudnn_find(task->at, &task->shape);
    if (known && known->taken) {
        status = cudnn->library.set_stream(cudnn->handle, task->at->stream);
        if (status == CUDNN_STATUS_SUCCESS)
            status = run_slices(task, &known->slices);
    }
    pthread_mutex_unlock(&cudnn->lock);
    return mics_cudnn_error(status);
}

bool mics_cuda_attention_cudnn_takes(const struct mics_cuda_at *at,
                                     const struct mics_op_attention *args)
{
    const struct task task = forward_task(at, args);

    return is_for_cudnn(&task, args->dtype) && may_be_chosen(at->choices) && takes(&task);
}

bool mics_cuda_attention_grad_cudnn_takes(const struct mics_cuda_at *at,
                                          const struct mics_op_attention_grad *args)
{
    const struct task task = grad_task(at, args);

    return is_for_cudnn(&task, args->dtype) && may_be_chosen(at->choices) && takes(&task);
}

cudaError_t mics_cuda_attention_cudnn(const struct mics_cuda_at *at,
                                      const struct mics_op_attention *args)
{
    const struct task task = forward_task(at, args);

    return is_for_cudnn(&task, args->dtype) ? run(&task) : cudaErrorNotSupported;
}

cudaError_t mics_cuda_attention_grad_cudnn(const struct mics_cuda_at *at,
                                           const struct mics_op_attention_grad *args)
{
    const struct task task = grad_task(at, args);

    return is_for_cudnn(&task, args->dtype) ? run(&task) : cudaErrorNotSupported;
}
