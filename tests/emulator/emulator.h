/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulator.h - how a grid is run on the host.
 *
 * A launch is enqueued on its stream with a copy of its arguments. When the stream reaches it
 * (queue.h), the blocks of the grid run one after another on one thread. The threads of a block are
 * fibers: one runs until it ends, waits for its block (__syncthreads) or for its warp (shuffles,
 * votes, matrix instructions). A fiber takes the next thread when its own ends, so that a kernel
 * without barriers is run by one fiber, as plain calls. Errors of the kernel are reported on
 * standard error and fail the launch:
 *   - a thread ends, or waits elsewhere, while others wait for it;
 *   - the lanes of a warp meet at different operations;
 *   - a grid or its shared memory is larger than a GPU of compute capability 9.0 takes. Shared
 *     memory is undefined (0xff bytes: NaN) at the beginning of each block. emu_set_order() changes
 *     the order in which threads run: a result that depends on it lacks a barrier.
 */
#ifndef MICS_TESTS_EMULATOR_EMULATOR_H
#define MICS_TESTS_EMULATOR_EMULATOR_H

#include "runtime.h"

#include <memory>
#include <stdint.h>
#include <tuple>
#include <utility>

/* CUDA's small vectors, with its alignments, and dim3. */

#define EMU_VECTORS(base, name, align2, align4)                                                    \
    struct name##1                                                                                 \
    {                                                                                              \
        base x;                                                                                    \
    };                                                                                             \
    struct alignas(align2) name##2                                                                 \
    {                                                                                              \
        base x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        base x, y, z;                                                                              \
    };                                                                                             \
    struct alignas(align4) name##4                                                                 \
    {                                                                                              \
        base x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##2 make_##name##2(base x, base y)                                           \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(base x, base y, base z)                                   \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(base x, base y, base z, base w)                           \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }

EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)

#undef EMU_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __restrict__ __restrict

#define EMU_WARP 32

/* Built-in variables of the running thread. */
struct emu_now {
    uint3 thread_index, block_index;
    uint3 block_dim, grid_dim;
    unsigned linear; /* thread in its block */
};

extern __thread struct emu_now emu_now;

#define threadIdx (emu_now.thread_index)
#define blockIdx  (emu_now.block_index)
#define blockDim  (emu_now.block_dim)
#define gridDim   (emu_now.grid_dim)
#define warpSize  EMU_WARP

/* One launch. `call` runs the kernel once, for the current thread, with `arguments`. */
struct emu_job {
    const char *name;
    const void *kernel; /* identifies it for emu_func_set_attribute */
    dim3 grid, block;
    size_t shared_bytes;
    void (*call)(const void *arguments);
    std::shared_ptr<const void> arguments;
    uint64_t seed; /* of the order of threads */
};

/* Enqueue it; `seed` is filled in. Errors of the launch itself are returned at once, as by CUDA. */
cudaError_t emu_launch(struct emu_job job, cudaStream_t stream);
cudaError_t emu_func_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);

/* 0: threads run in ascending order. Otherwise in an order drawn from `seed`. For launches of the
 * calling thread from now on. */
void emu_set_order(uint64_t seed);

/* Wait for the block; the number of threads whose predicate is not 0. */
int emu_block_barrier(int predicate);

/* Wait until every lane of `mask` has arrived with the same `meet`; the last to arrive calls it
 * once, with the value of each lane (NULL where there is none). Lanes outside the mask do not take
 * part. */
typedef void (*emu_meet_fn)(void *const *lanes, unsigned mask);
void emu_warp_meet(unsigned mask, emu_meet_fn meet, void *lane);

/* Lanes of the running thread's warp that exist and have not ended. */
unsigned emu_warp_alive(void);

/* A different number for each block that the calling thread runs, from 1. */
uint64_t emu_block_number(void);

/* Report an error of the kernel on standard error and end the launch; only in a kernel. */
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The block's array in shared memory that the code with the address `key` declares; poisoned at its
 * first use in a block. */
void *emu_shared(const void *key, size_t bytes);
void *emu_dynamic_shared(void);

static inline unsigned emu_lane(void)
{
    return emu_now.linear % EMU_WARP;
}

static inline void __syncthreads(void)
{
    emu_block_barrier(0);
}

static inline int __syncthreads_count(int predicate)
{
    return emu_block_barrier(predicate);
}

static inline int __syncthreads_or(int predicate)
{
    return emu_block_barrier(predicate) != 0;
}

static inline int __syncthreads_and(int predicate)
{
    return emu_block_barrier(!predicate) == 0;
}

/* A kernel and a copy of its arguments, converted to the types of its parameters. */
template <typename... P> struct emu_arguments {
    void (*kernel)(P...);
    std::tuple<P...> values;

    static void call(const void *self)
    {
        const auto *all = static_cast<const emu_arguments *>(self);

        std::apply(all->kernel, all->values);
    }
};

template <typename... P, typename... A>
static inline cudaError_t emu_run(const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                                  cudaStream_t stream, void (*kernel)(P...), A &&...values)
{
    typedef emu_arguments<P...> arguments;
    std::shared_ptr<const void> copy(
        new arguments{kernel, std::tuple<P...>(std::forward<A>(values)...)},
        [](const void *p) { delete static_cast<const arguments *>(p); });

    return emu_launch({name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes,
                       arguments::call, std::move(copy), 0},
                      stream);
}

#define MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    emu_run(#kernel, grid, block, shared_bytes, stream, kernel, __VA_ARGS__)

#define MICS_SHARED(type, name, ...)                                                               \
    static const char name##_key = 0;                                                              \
    typedef type name##_array __VA_ARGS__;                                                         \
    name##_array &name = *static_cast<name##_array *>(emu_shared(&name##_key, sizeof(name##_array)))
#define MICS_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emu_dynamic_shared())

#endif
