/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_gpu.cu - measure the attention kernels on a GPU with several tile shapes.
 *
 * usage: attention_gpu [T [B [H [H_kv]]]]      (2048 8 16 16)
 *
 * Prints one line per kernel and tile shape: kernel, head size, 16-row blocks per warp, warps, rows
 * per step, where a block keeps its own rows, blocks per multiprocessor, TFLOP/s (causal attention
 * counts half), and the relative error: the norm of the difference from the result of the first
 * shape, over the norm of that result. The library uses the first shape. Exits 1 if an error
 * exceeds 0.01 or a kernel did not run. The rate of the gradient in the usual count (10 T T D) is 5
 * / (4 / keys + 3 / queries).
 */
#include "attention_gpu.h"
#include "cuda/attention_grad_mma.cuh"
#include "cuda/attention_mma.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace
{

struct problem {
    unsigned T, B, H, H_kv, D;
    struct mics_args_attention forward;
    struct mics_args_attention_grad backward;
    size_t grads;                /* elements of grad_qkv and of qkv */
    std::vector<uint16_t> first; /* result of the first shape */
    bool failed;
};

static const int repeats = 9;

static void *must_allocate(size_t bytes)
{
    void *memory;

    if (cudaMalloc(&memory, bytes) == cudaSuccess)
        return memory;
    fprintf(stderr, "attention_gpu: no device memory for %zu bytes\n", bytes);
    exit(1);
}

/* Device memory of `count` bf16 between -1 and 1. */
static void *numbers(size_t count, uint32_t seed)
{
    std::vector<uint16_t> values(count);
    void *memory = must_allocate(count * 2);

    for (uint16_t &one : values) {
        seed = seed * 1664525u + 1013904223u;
        one = __bfloat16_as_ushort(__float2bfloat16((float)(int32_t)seed * 0x1p-31f));
    }
    cudaMemcpy(memory, values.data(), count * 2, cudaMemcpyHostToDevice);
    return memory;
}

/* The median time of a launch, in seconds; the first is not counted. */
template <typename F> static double time_of(F launch, cudaError_t *error)
{
    std::vector<float> times;
    cudaEvent_t from, to;

    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int i = 0; i <= repeats && *error == cudaSuccess; i++) {
        float ms = 0;

        cudaEventRecord(from, nullptr);
        *error = launch();
        cudaEventRecord(to, nullptr);
        if (*error == cudaSuccess)
            *error = cudaEventSynchronize(to);
        cudaEventElapsedTime(&ms, from, to);
        if (i > 0)
            times.push_back(ms);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    std::sort(times.begin(), times.end());
    return times.empty() ? 0 : (double)times[times.size() / 2] * 1e-3;
}

/* Relative distance of the result at `memory` from the first result. Without a first result, it
 * becomes the first. */
static double distance(struct problem *p, const void *memory, size_t count)
{
    std::vector<uint16_t> got(count);
    double difference = 0, norm = 0;

    cudaMemcpy(got.data(), memory, count * 2, cudaMemcpyDeviceToHost);
    if (p->first.empty())
        p->first = got;
    for (size_t i = 0; i < count; i++) {
        double want = __bfloat162float(__ushort_as_bfloat16(p->first[i]));
        double error = __bfloat162float(__ushort_as_bfloat16(got[i])) - want;

        difference += error * error;
        norm += want * want;
    }
    return sqrt(difference / norm);
}

/* One line. `products` of 2 T T D flops a head. */
template <typename F>
static void measure(struct problem *p, const char *shape, int products, void *result, size_t count,
                    F launch)
{
    cudaError_t error = cudaMemset(result, 0, count * 2);
    double seconds = time_of(launch, &error), off = distance(p, result, count);
    double flops = 1.0 * products * p->T * p->T * p->D * p->B * p->H;

    (void)cudaGetLastError(); /* else the next launch would report it */
    if (error != cudaSuccess)
        printf("%s %s\n", shape, cudaGetErrorString(error));
    else
        printf("%s %8.1f %10.2g\n", shape, flops / seconds * 1e-12, off);
    p->failed |= error != cudaSuccess || !(off <= 0.01);
}

static const char *name_shape(char *to, size_t bytes, const char *what, int D, int m, int warps,
                              int step, bool held, int residents)
{
    snprintf(to, bytes, "%-8s %3d  %d x %d %3d %-9s %d", what, D, m, warps, step,
             held ? "registers" : "shared", residents);
    return to;
}

template <int D, int m, int warps, int keys, bool held, int residents>
static void forward_shape(struct problem *p)
{
    typedef forward_policy<mics_bf16, D, m, warps, keys, held, residents> policy;
    struct forward f = forward_of(&p->forward);
    char shape[64];

    name_shape(shape, sizeof(shape), "forward", D, m, warps, keys, held, residents);
    measure(p, shape, 2, p->forward.out, (size_t)p->B * p->T * p->H * D,
            [&]() { return attend_launch<policy>(&f, p->B * p->H, nullptr); });
}

template <int D, bool keys, int m, int warps, int slice, bool held, int residents>
static void grad_shape(struct problem *p)
{
    typedef grad_policy<mics_bf16, D, keys, m, warps, 64, slice, held, residents> policy;
    struct backward f = backward_of(&p->backward);
    unsigned heads = p->B * (keys ? p->H_kv : p->H);
    char shape[64];

    name_shape(shape, sizeof(shape), keys ? "keys" : "queries", D, m, warps, slice, held,
               residents);
    measure(p, shape, keys ? 4 : 3, p->backward.grad_qkv, p->grads,
            [&]() { return grad_launch<policy>(&f, heads, nullptr); });
}

#if MICS_HOPPER
static bool is_hopper(void)
{
    int device = 0, major = 0, minor = 0;

    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major == 9 && minor == 0;
}
#endif

/* The kernels of this capability alone, beside the first of the others. */
static void hopper_shapes(struct problem *p)
{
#if MICS_HOPPER
    const struct attention_gpu_hopper *one;

    for (unsigned i = 0; is_hopper() && (one = attention_gpu_hopper_at(i)) != nullptr; i++) {
        char shape[64];

        if (one->D != p->D)
            continue;
        snprintf(shape, sizeof(shape), "%-8s %-27s", "hopper", one->text);
        measure(p, shape, 2, p->forward.out, (size_t)p->B * p->T * p->H * p->D,
                [&]() { return one->run(&p->forward); });
    }
#else
    (void)p;
#endif
}

static void shapes_64(struct problem *p)
{
    forward_shape<64, 2, 4, 64, true, 2>(p);
    forward_shape<64, 2, 4, 64, false, 2>(p);
    forward_shape<64, 2, 4, 128, false, 2>(p);
    forward_shape<64, 2, 4, 32, true, 3>(p);
    forward_shape<64, 1, 8, 64, true, 2>(p);
    forward_shape<64, 1, 4, 64, true, 4>(p);
    hopper_shapes(p);
    p->first.clear();
    grad_shape<64, true, 2, 4, 32, false, 2>(p);
    grad_shape<64, true, 2, 4, 16, false, 2>(p);
    grad_shape<64, true, 1, 8, 64, true, 1>(p);
    grad_shape<64, true, 1, 4, 32, true, 3>(p);
    p->first.clear();
    grad_shape<64, false, 2, 4, 32, true, 2>(p);
    grad_shape<64, false, 2, 4, 32, false, 2>(p);
    grad_shape<64, false, 1, 8, 64, true, 1>(p);
    grad_shape<64, false, 1, 4, 32, true, 4>(p);
    p->first.clear();
}

static void shapes_128(struct problem *p)
{
    forward_shape<128, 2, 4, 64, false, 2>(p);
    forward_shape<128, 2, 4, 32, false, 2>(p);
    forward_shape<128, 1, 8, 64, true, 1>(p);
    forward_shape<128, 1, 4, 64, true, 2>(p);
    hopper_shapes(p);
    p->first.clear();
    grad_shape<128, true, 1, 8, 32, true, 1>(p);
    grad_shape<128, true, 1, 8, 16, true, 1>(p);
    grad_shape<128, true, 1, 8, 32, false, 1>(p);
    grad_shape<128, true, 1, 4, 32, true, 2>(p);
    p->first.clear();
    grad_shape<128, false, 1, 8, 32, true, 1>(p);
    grad_shape<128, false, 1, 4, 32, true, 2>(p);
    grad_shape<128, false, 1, 8, 64, true, 1>(p);
    grad_shape<128, false, 2, 4, 32, false, 1>(p);
    p->first.clear();
}

static struct problem make(const unsigned (&size)[4], unsigned D)
{
    struct problem p = {size[0], size[1], size[2], size[3], D, {}, {}, 0, {}, false};
    size_t tokens = (size_t)p.B * p.T;

    p.grads = tokens * (p.H + 2 * p.H_kv) * D;
    p.forward.qkv = p.backward.qkv = numbers(p.grads, 1);
    p.forward.out = must_allocate(tokens * p.H * D * 2);
    p.backward.out = p.forward.out;
    p.backward.lse = p.forward.lse = static_cast<float *>(must_allocate(tokens * p.H * 4));
    p.backward.delta = static_cast<float *>(must_allocate(tokens * p.H * 4));
    p.backward.grad_out = numbers(tokens * p.H * D, 2);
    p.backward.grad_qkv = must_allocate(p.grads * 2);
    cudaMemset(p.backward.delta, 0, tokens * p.H * 4);
    p.backward.causal = p.forward.causal = true;
    p.backward.B = p.forward.B = p.B;
    p.backward.T = p.forward.T = p.T;
    p.backward.H = p.forward.H = p.H;
    p.backward.H_kv = p.forward.H_kv = p.H_kv;
    p.backward.D = p.forward.D = D;
    return p;
}

static void release(const struct problem &p)
{
    const void *all[] = {p.forward.qkv,    p.forward.out,       p.forward.lse,
                         p.backward.delta, p.backward.grad_out, p.backward.grad_qkv};

    for (const void *one : all)
        cudaFree(const_cast<void *>(one));
}

} // namespace

int main(int argc, char **argv)
{
    unsigned size[4] = {2048, 8, 16, 16};
    bool failed = false;

    for (int i = 1; i < argc && i <= 4; i++)
        size[i - 1] = (unsigned)strtoul(argv[i], nullptr, 10);
    if (size[0] == 0 || size[1] == 0 || size[3] == 0 || size[2] == 0 || size[2] % size[3] != 0) {
        fprintf(stderr, "attention_gpu: T, B, H and H_kv are positive, and H_kv divides H\n");
        return 2;
    }
    printf("causal, T %u, B %u, H %u, H_kv %u, bf16\n", size[0], size[1], size[2], size[3]);
    printf("kernel  head 16rows step own      blocks  TFLOP/s difference\n");
    for (unsigned D : {64u, 128u}) {
        struct problem p = make(size, D);

        (D == 64 ? shapes_64 : shapes_128)(&p);
        release(p);
        failed |= p.failed;
    }
    return failed;
}
