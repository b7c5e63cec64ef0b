/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cc - chooses the kernel for attention and its gradient.
 *
 * The choice depends on the GPU's compute capability, on types, sizes and alignment, and on
 * MICS_CUDA_ATTENTION, never on measured times or results. So ranks with equal GPUs choose the same
 * kernel, and each run gives the same bits.
 */
#include "cuda/attention.h"

#include <string.h>

namespace
{

#if !MICS_HOPPER
#define mics_cuda_attention_hopper      nullptr
#define mics_cuda_attention_grad_hopper nullptr
#endif

/* The kernels, in the order of enum mics_attention_kernel. */
const struct kernel {
    const char *name;
    int capability;    /* 90: compute capability 9.0 and no other; 0: any */
    bool tensor_cores; /* 16-bit heads of 8, 16, ... 128 only, in tensors aligned to 16 bytes */
    bool fp16;
    bool documents; /* takes targets, and windows */
    cudaError_t (*forward)(const struct mics_cuda_at *at, const struct mics_args_attention *args);
    cudaError_t (*grad)(const struct mics_cuda_at *at, const struct mics_args_attention_grad *args);
} kernels[] = {
    {"mma", 0, true, true, true, mics_cuda_attention_mma, mics_cuda_attention_grad_mma},
    {"plain", 0, false, true, true, mics_cuda_attention_plain, mics_cuda_attention_grad_plain},
    {"hopper", 90, true, false, false, mics_cuda_attention_hopper, mics_cuda_attention_grad_hopper},
};

/* Which kernel a GPU gets: the row of the highest compute capability up to its own. docs/gpu.md
 * shows, with a date, that `hopper` is correct and faster on such a chip. */
const struct {
    int capability;
    enum mics_attention_kernel forward, grad;
} defaults[] = {
    {80, MICS_ATTENTION_MMA, MICS_ATTENTION_MMA},
#if MICS_HOPPER
    {90, MICS_ATTENTION_HOPPER, MICS_ATTENTION_HOPPER},
#endif
    {100, MICS_ATTENTION_MMA, MICS_ATTENTION_MMA},
};

enum mics_status check_name(const struct kernel *kernel, const char *name, int capability,
                            struct mics_err *err)
{
    if (!kernel)
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_CUDA_ATTENTION=%s: no such kernel; there are mma, plain and "
                            "hopper",
                            name);
    if (kernel->capability != 0 && kernel->capability != capability)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "MICS_CUDA_ATTENTION=%s: for compute capability %d.%d only, this GPU "
                            "has %d.%d",
                            name, kernel->capability / 10, kernel->capability % 10, capability / 10,
                            capability % 10);
    if (!kernel->forward)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "MICS_CUDA_ATTENTION=%s: not in this build; it needs HOPPER=1", name);
    return MICS_OK;
}

/* What determines whether a kernel supports an operation. */
struct heads {
    enum mics_dtype dtype;
    uint32_t D;
    bool aligned; /* all tensors of `dtype`, to 16 bytes */
    bool documents, window;
};

struct heads heads_of(const struct mics_args_attention *args)
{
    return {args->dtype, args->D, (((uintptr_t)args->qkv | (uintptr_t)args->out) & 15) == 0,
            args->targets != nullptr, mics_attention_window(args->window, args->T) > 0};
}

struct heads heads_of(const struct mics_args_attention_grad *args)
{
    return {args->dtype, args->D,
            (((uintptr_t)args->grad_qkv | (uintptr_t)args->grad_out | (uintptr_t)args->out |
              (uintptr_t)args->qkv) &
             15) == 0,
            args->targets != nullptr, mics_attention_window(args->window, args->T) > 0};
}

bool takes(const struct kernel *kernel, const struct heads &heads)
{
    if ((heads.documents || heads.window) && !kernel->documents)
        return false;
    if (!kernel->tensor_cores)
        return mics_attention_plain_fits(heads.D);
    return (heads.dtype == MICS_BF16 || (heads.dtype == MICS_F16 && kernel->fp16)) &&
           heads.D % 8 == 0 && heads.D <= 128 && heads.aligned;
}

/* The kernel that was chosen, or, unless by name, the first of the table that supports the
 * operation; NULL: none does. */
const struct kernel *kernel_for(enum mics_attention_kernel chosen, bool named,
                                const struct heads &heads)
{
    if (takes(&kernels[chosen], heads))
        return &kernels[chosen];
    for (const struct kernel &kernel : kernels)
        if (!named && kernel.capability == 0 && takes(&kernel, heads))
            return &kernel;
    return nullptr;
}

enum mics_status check(enum mics_attention_kernel chosen, bool named, const struct heads &heads,
                       struct mics_err *err)
{
    if (!named && !kernel_for(chosen, false, heads))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "attention with heads of %u needs more shared memory than a block of "
                            "this GPU has",
                            heads.D);
    if (!named || takes(&kernels[chosen], heads))
        return MICS_OK;
    if ((heads.documents || heads.window) && !kernels[chosen].documents)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "MICS_CUDA_ATTENTION=%s: does not take %s",
                            kernels[chosen].name,
                            heads.documents ? "documents" : "a window shorter than the sequence");
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "MICS_CUDA_ATTENTION=%s: takes bf16%s heads of 8, 16, ... 128 in tensors "
                        "aligned to 16 bytes; these are %s heads of %u%s",
                        kernels[chosen].name, kernels[chosen].fp16 ? " and fp16" : "",
                        heads.dtype == MICS_BF16  ? "bf16"
                        : heads.dtype == MICS_F16 ? "fp16"
                                                  : "fp32",
                        heads.D, heads.aligned ? "" : ", not aligned");
}

} // namespace

enum mics_status mics_cuda_attention_choose(const char *name, int capability,
                                            struct mics_attention_choice *out, struct mics_err *err)
{
    const struct kernel *found = nullptr;
    enum mics_status status;

    *out = {defaults[0].forward, defaults[0].grad, false};
    for (const auto &row : defaults)
        if (row.capability <= capability)
            *out = {row.forward, row.grad, false};
    if (!name || !*name)
        return MICS_OK;
    for (const struct kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            found = &kernel;
    status = check_name(found, name, capability, err);
    if (status == MICS_OK) {
        out->forward = out->grad = (enum mics_attention_kernel)(found - kernels);
        out->named = true;
    }
    return status;
}

enum mics_status mics_cuda_attention_check(const struct mics_cuda_at *at,
                                           const struct mics_args_attention *args,
                                           struct mics_err *err)
{
    return check(at->attention.forward, at->attention.named, heads_of(args), err);
}

enum mics_status mics_cuda_attention_grad_check(const struct mics_cuda_at *at,
                                                const struct mics_args_attention_grad *args,
                                                struct mics_err *err)
{
    return check(at->attention.grad, at->attention.named, heads_of(args), err);
}

cudaError_t mics_cuda_attention(const struct mics_cuda_at *at,
                                const struct mics_args_attention *args)
{
    const struct kernel *kernel =
        kernel_for(at->attention.forward, at->attention.named, heads_of(args));

    if (!kernel)
        return cudaErrorNotSupported;
    if (args->B == 0 || args->T == 0 || args->H == 0)
        return cudaSuccess;
    if (args->window && !args->causal)
        return cudaErrorInvalidValue;
    return kernel->forward(at, args);
}

cudaError_t mics_cuda_attention_grad(const struct mics_cuda_at *at,
                                     const struct mics_args_attention_grad *args)
{
    const struct kernel *kernel =
        kernel_for(at->attention.grad, at->attention.named, heads_of(args));

    if (!kernel)
        return cudaErrorNotSupported;
    if (args->B == 0 || args->T == 0 || args->H == 0)
        return cudaSuccess;
    if (args->window && !args->causal)
        return cudaErrorInvalidValue;
    return kernel->grad(at, args);
}
