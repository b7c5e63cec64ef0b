/* SPDX-License-Identifier: Apache-2.0 */
/* attention_case.cc - a problem on the device: memory, both directions, results. */
#include "attention_case.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>

/* The first error stays. */
static void note(cudaError_t *error, cudaError_t one)
{
    if (*error == cudaSuccess)
        *error = one;
}

/* Device memory of `count` numbers, full of NaN, or of `from` where there is one. */
static void *on_device(size_t count, enum mics_dtype dtype, const std::vector<double> *from,
                       cudaError_t *error)
{
    size_t bytes = count * mics_dtype_bytes(dtype);
    void *memory = nullptr;
    std::vector<uint16_t> halves;
    std::vector<float> floats;

    note(error, cudaMalloc(&memory, bytes));
    if (*error != cudaSuccess)
        return memory;
    note(error, cudaMemset(memory, 0xff, bytes));
    for (size_t i = 0; from && i < count; i++) {
        halves.push_back(__bfloat16_as_ushort(__float2bfloat16((float)(*from)[i])));
        floats.push_back((float)(*from)[i]);
    }
    if (from)
        note(error,
             cudaMemcpy(memory, dtype == MICS_BF16 ? (const void *)halves.data() : floats.data(),
                        bytes, cudaMemcpyHostToDevice));
    return memory;
}

static void from_device(std::vector<double> *to, size_t count, enum mics_dtype dtype,
                        const void *memory, cudaError_t *error)
{
    std::vector<uint16_t> halves(count);
    std::vector<float> floats(count);

    to->resize(count);
    note(error, cudaMemcpy(dtype == MICS_BF16 ? (void *)halves.data() : floats.data(), memory,
                           count * mics_dtype_bytes(dtype), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        (*to)[i] =
            dtype == MICS_BF16 ? __bfloat162float(__ushort_as_bfloat16(halves[i])) : floats[i];
}

/* Device memory of a case. */
struct memory {
    void *qkv, *grad_out, *out, *grad, *lse, *delta;
};

/* One direction: by choice, or by a variant where it takes it, else by the first that does. */
static void run_task(const struct mics_attention_task &task, int variant, bool *taken,
                     cudaError_t *error)
{
    struct mics_cuda_at first = *task.at;
    struct mics_attention_task otherwise = task;

    first.choices = nullptr;
    otherwise.at = &first;
    if (variant >= 0 && mics_attention_variant_takes(&task, variant)) {
        *taken = true;
        note(error, mics_attention_variant_run(&task, variant));
    } else {
        note(error, mics_attention_run(variant < 0 ? &task : &otherwise));
    }
}

/* Whether the variant took anything. */
static bool run(const struct attention_case &c, const struct memory &m,
                const struct mics_cuda_at *at, int variant, cudaError_t *error)
{
    const struct attention_shape &s = c.shape;
    struct mics_op_attention forward = {};
    struct mics_op_attention_grad backward = {};
    bool taken = variant < 0;

    forward.out = m.out;
    forward.lse = static_cast<float *>(m.lse);
    forward.qkv = m.qkv;
    backward.grad_qkv = m.grad;
    backward.delta = static_cast<float *>(m.delta);
    backward.grad_out = m.grad_out;
    backward.out = m.out;
    backward.qkv = m.qkv;
    backward.lse = forward.lse;
    backward.B = forward.B = s.B;
    backward.T = forward.T = s.T;
    backward.H = forward.H = s.H;
    backward.H_kv = forward.H_kv = s.H_kv;
    backward.D = forward.D = s.D;
    backward.causal = forward.causal = s.causal;
    backward.dtype = forward.dtype = c.dtype;
    if (s.B > 0 && s.T > 0) {
        run_task({at, &forward, nullptr}, variant, &taken, error);
        run_task({at, nullptr, &backward}, variant, &taken, error);
    } else {
        note(error, mics_cuda_attention(at, &forward));
        note(error, mics_cuda_attention_grad(at, &backward));
        taken = true;
    }
    note(error, cudaDeviceSynchronize());
    return taken;
}

struct mics_cuda_at attention_case_device(void)
{
    struct mics_cuda_at at = {};

    at.multiprocessors = 1;
    if (cudaMalloc(&at.workspace, MICS_CUDA_WORKSPACE_BYTES) == cudaSuccess &&
        mics_cuda_choices_open(&at.choices) == cudaSuccess)
        return at;
    printf("Bail out! %s\n", cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

void attention_case_device_close(struct mics_cuda_at *at)
{
    mics_cuda_choices_close(at->choices);
    cudaFree(at->workspace);
}

cudaError_t attention_case_run(struct attention_case *c, const struct mics_cuda_at *at, int variant)
{
    cudaError_t error = cudaSuccess;
    struct memory m;

    m.qkv = on_device(c->qkv.size(), c->dtype, &c->qkv, &error);
    m.grad_out = on_device(c->grad_out.size(), c->dtype, &c->grad_out, &error);
    m.out = on_device(c->out.size(), c->dtype, nullptr, &error);
    m.grad = on_device(c->grad.size(), c->dtype, nullptr, &error);
    m.lse = on_device(c->lse.size(), MICS_F32, nullptr, &error);
    m.delta = on_device(c->lse.size(), MICS_F32, nullptr, &error);
    if (error == cudaSuccess && !run(*c, m, at, variant, &error))
        note(&error, cudaErrorNotSupported);
    if (error == cudaSuccess) {
        from_device(&c->got_out, c->out.size(), c->dtype, m.out, &error);
        from_device(&c->got_grad, c->grad.size(), c->dtype, m.grad, &error);
        from_device(&c->got_lse, c->lse.size(), MICS_F32, m.lse, &error);
    }
    for (void *one : {m.qkv, m.grad_out, m.out, m.grad, m.lse, m.delta})
        cudaFree(one);
    return error;
}
