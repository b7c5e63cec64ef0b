/* SPDX-License-Identifier: Apache-2.0 */
/* attention_choice.cu - the variant of a shape: found, or chosen and kept. */
#include "cuda/attention_choice.cuh"

#include <stdio.h>
#include <stdlib.h>

/* What is kept of a shape. */
struct attention_choice {
    struct mics_shape shape;
    struct mics_attention_key key;
    int variant;
};

/* The bits of every tensor's address. */
static uintptr_t addresses(const struct mics_attention_task *task)
{
    const struct mics_op_attention *f = task->forward;
    const struct mics_op_attention_grad *g = task->grad;

    return f ? (uintptr_t)f->out | (uintptr_t)f->lse | (uintptr_t)f->qkv
             : (uintptr_t)g->grad_qkv | (uintptr_t)g->delta | (uintptr_t)g->grad_out |
                   (uintptr_t)g->out | (uintptr_t)g->qkv | (uintptr_t)g->lse;
}

static struct mics_attention_key key_of(const struct mics_attention_task *task)
{
    const struct mics_op_attention *f = task->forward;
    const struct mics_op_attention_grad *g = task->grad;
    struct mics_attention_key key;

    memset(&key, 0, sizeof(key));
    key.B = f ? f->B : g->B;
    key.T = f ? f->T : g->T;
    key.H = f ? f->H : g->H;
    key.H_kv = f ? f->H_kv : g->H_kv;
    key.D = f ? f->D : g->D;
    key.grad = g != NULL;
    key.causal = f ? f->causal : g->causal;
    key.bf16 = (f ? f->dtype : g->dtype) == MICS_BF16;
    key.aligned = mics_alignment(addresses(task));
    return key;
}

void mics_attention_describe(const struct mics_attention_task *task,
                             char text[MICS_ATTENTION_SHAPE_BYTES])
{
    const struct mics_attention_key key = key_of(task);

    snprintf(text, MICS_ATTENTION_SHAPE_BYTES, "attention%s, B %u T %u H %u of %u D %u, %s, %s",
             key.grad ? "'s gradient" : "", key.B, key.T, key.H, key.H_kv, key.D,
             key.causal ? "causal" : "full", key.bf16 ? "bf16" : "fp32");
}

/* The variants that take a task and were not found wrong, the reference first. */
static int list_variants(const struct mics_attention_task *task,
                         int variants[MICS_ATTENTION_VARIANTS_MAX])
{
    const struct mics_cuda_choices *choices = task->at->choices;
    const unsigned banned = choices ? choices->banned[task->grad != NULL] : 0;
    int count = 0;

    for (int i = 0; mics_attention_variant_at(i) && count < MICS_ATTENTION_VARIANTS_MAX; i++)
        if (!(banned >> i & 1) && mics_attention_variant_takes(task, i))
            variants[count++] = i;
    return count;
}

/* Leave in the list the reference and the variant that is insisted on. */
static cudaError_t insist(const struct mics_attention_task *task, int insisted, int *variants,
                          int *count)
{
    char shape[MICS_ATTENTION_SHAPE_BYTES];

    for (int i = 0; i < *count; i++)
        if (variants[i] == insisted) {
            variants[1] = variants[i];
            *count = i == 0 ? 1 : 2;
            return cudaSuccess;
        }
    mics_attention_describe(task, shape);
    mics_choices_tell(task->at->choices, 0, "MICS_CUDA_ATTENTION=%s does not take %s",
                      mics_attention_variant_at(insisted)->name, shape);
    return cudaErrorNotSupported;
}

/* Decide; *final: for good. */
static cudaError_t decide(const struct mics_attention_task *task, int *variant, bool *final)
{
    const struct mics_cuda_choices *choices = task->at->choices;
    const int insisted = mics_attention_insisted(task);
    int variants[MICS_ATTENTION_VARIANTS_MAX], count = list_variants(task, variants);
    cudaError_t error = count ? cudaSuccess : cudaErrorNotSupported;

    if (error == cudaSuccess && insisted >= 0)
        error = insist(task, insisted, variants, &count);
    if (error != cudaSuccess)
        return error;
    *variant = variants[0];
    *final = true;
    if (count > 1 && choices && (choices->measure || insisted >= 0))
        *final = mics_attention_try(task, variants, count, variant);
    if (insisted < 0 || *variant == insisted)
        return cudaSuccess;
    if (*final)
        return cudaErrorNotSupported;
    *variant = insisted;
    return cudaSuccess;
}

/* Under the lock: the variant that was chosen, or is now. One that was found wrong since gives way. */
static cudaError_t find(const struct mics_attention_task *task, int *variant)
{
    struct mics_cuda_choices *choices = task->at->choices;
    const struct mics_attention_key key = key_of(task);
    struct attention_choice *choice =
        (struct attention_choice *)mics_shapes_find(&choices->attention, &key);
    bool final = false;
    cudaError_t error;

    if (choice && !(choices->banned[key.grad] >> choice->variant & 1)) {
        *variant = choice->variant;
        return cudaSuccess;
    }
    error = decide(task, variant, &final);
    if (error != cudaSuccess || !final)
        return error;
    if (!choice) {
        choice = (struct attention_choice *)calloc(1, sizeof(*choice));
        if (!choice)
            return cudaErrorMemoryAllocation;
        choice->key = key;
        choice->shape.key = &choice->key;
        mics_shapes_add(&choices->attention, &choice->shape);
    }
    choice->variant = *variant;
    return cudaSuccess;
}

cudaError_t mics_attention_run(const struct mics_attention_task *task)
{
    struct mics_cuda_choices *choices = task->at->choices;
    bool final = false;
    int variant = 0;
    cudaError_t error;

    if (choices) {
        pthread_mutex_lock(&choices->lock);
        error = find(task, &variant);
        pthread_mutex_unlock(&choices->lock);
    } else {
        error = decide(task, &variant, &final);
    }
    return error == cudaSuccess ? mics_attention_variant_run(task, variant) : error;
}
