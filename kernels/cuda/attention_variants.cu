/* SPDX-License-Identifier: Apache-2.0 */
/* attention_variants.cu - the table of attention's variants. */
#include "cuda/attention.cuh"
#include "cuda/attention_choice.cuh"

#ifdef MICS_EMULATED
#include "attention_emulated.h"
#endif

/* Both references take either direction alike. */
static bool takes_fast(const struct mics_cuda_at *, const struct mics_op_attention *args)
{
    return mics_attention_is_fast(args->dtype, args->D);
}

static bool takes_fast_grad(const struct mics_cuda_at *, const struct mics_op_attention_grad *args)
{
    return mics_attention_is_fast(args->dtype, args->D);
}

static bool takes_rest(const struct mics_cuda_at *, const struct mics_op_attention *args)
{
    return !mics_attention_is_fast(args->dtype, args->D) && args->D <= MICS_HEAD_MAX;
}

static bool takes_rest_grad(const struct mics_cuda_at *, const struct mics_op_attention_grad *args)
{
    return !mics_attention_is_fast(args->dtype, args->D) && args->D <= MICS_HEAD_MAX;
}

#if MICS_HOPPER
/* Compute capability 9.0 and no other; bulk copies and maps of tensors need aligned rows. */
static bool is_for_hopper(const struct mics_cuda_at *at, enum mics_dtype dtype, uint32_t D,
                          uintptr_t addresses)
{
    return at->choices && at->choices->capability == 90 && mics_alignment(addresses) >= 16 &&
           mics_attention_is_fast(dtype, D);
}

static bool takes_hopper(const struct mics_cuda_at *at, const struct mics_op_attention *args)
{
    return is_for_hopper(at, args->dtype, args->D, (uintptr_t)args->qkv | (uintptr_t)args->out);
}

static bool takes_hopper_grad(const struct mics_cuda_at *at,
                              const struct mics_op_attention_grad *args)
{
    return is_for_hopper(at, args->dtype, args->D,
                         (uintptr_t)args->grad_qkv | (uintptr_t)args->grad_out |
                             (uintptr_t)args->out | (uintptr_t)args->qkv);
}
#endif

static const struct mics_attention_variant variants[] = {
    {"mma", takes_fast, mics_cuda_attention_mma, takes_fast_grad, mics_cuda_attention_grad_mma},
    {"plain", takes_rest, mics_cuda_attention_plain, takes_rest_grad,
     mics_cuda_attention_grad_plain},
#if MICS_HOPPER
    {"hopper", takes_hopper, mics_cuda_attention_hopper, takes_hopper_grad,
     mics_cuda_attention_grad_hopper},
#endif
#ifdef MICS_EMULATED
    {"emulated", emu_attention_takes, emu_attention, emu_attention_takes_grad, emu_attention_grad},
#endif
};

static const int variant_count = (int)(sizeof(variants) / sizeof(variants[0]));

const struct mics_attention_variant *mics_attention_variant_at(int variant)
{
    return variant < variant_count ? &variants[variant] : NULL;
}

int mics_attention_variant_find(const char *name)
{
    for (int i = 0; i < variant_count; i++)
        if (strcmp(variants[i].name, name) == 0)
            return i;
    return -1;
}

int mics_attention_insisted(const struct mics_attention_task *task)
{
    const int variant = task->at->choices ? task->at->choices->insisted : -1;
    const bool has = variant >= 0 && (task->grad ? variants[variant].takes_grad != NULL
                                                 : variants[variant].takes != NULL);

    return has ? variant : -1;
}

bool mics_attention_variant_takes(const struct mics_attention_task *task, int variant)
{
    const struct mics_attention_variant *of = &variants[variant];

    return task->grad ? of->takes_grad && of->takes_grad(task->at, task->grad)
                      : of->takes && of->takes(task->at, task->forward);
}

cudaError_t mics_attention_variant_run(const struct mics_attention_task *task, int variant)
{
    return task->grad ? variants[variant].run_grad(task->at, task->grad)
                      : variants[variant].run(task->at, task->forward);
}
