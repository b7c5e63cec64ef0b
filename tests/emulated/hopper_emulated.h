/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hopper_emulated.h - the instructions of kernels/cuda/hopper.cuh and bulk.cuh on the host, each as late as it may be.
 *
 * A product reads its factors and gives its result when its warp waits for it; until then the accumulators hold NaN, and
 * touching them fails the launch. Warps are independent but for this: a wait ends only when all four of the group
 * have begun the product, and they must begin the same ones. The 128-byte swizzle is applied to the bits of
 * addresses, as the hardware does.
 *
 * Dynamic shared memory exists twice: as ordinary instructions see it, and as products and bulk copies see it, who see
 * ordinary stores only after a mics_async_fence. A bulk copy arrives when nothing else can go on (emu_later).
 */
#ifndef MICS_TESTS_EMULATED_HOPPER_EMULATED_H
#define MICS_TESTS_EMULATED_HOPPER_EMULATED_H

#include "emulator.h"

#include <stdint.h>

struct CUtensorMap_st;

/* A product as a thread begins it. */
struct emu_wgmma {
    float *d;          /* N / 2 of the thread's own */
    const uint32_t *a; /* 4 registers; NULL: a_matrix */
    unsigned N;
    uint64_t a_matrix, b_matrix;
    bool a_transposed, b_transposed, add;
};

void emu_wgmma_begin(const struct emu_wgmma *product);
void emu_wgmma_fence(void);
void emu_wgmma_commit(void);
void emu_wgmma_wait(unsigned pending);
void emu_registers(unsigned count);

/* Where `at` lies in dynamic shared memory, as a GPU's 32-bit address. */
uint32_t emu_shared_number(uintptr_t at);
/* What products and bulk copies see of dynamic shared memory, all of it. */
unsigned char *emu_async_view(void);
void emu_async_fence(void);
/* An address with the 128-byte swizzle. */
static inline uint32_t emu_swizzle(uint32_t number)
{
    return number ^ ((number >> 7 & 7) << 4);
}

void emu_named_barrier(unsigned id, unsigned threads, bool wait);

void emu_mbarrier_init(uintptr_t at, unsigned count);
void emu_mbarrier_publish(void);
void emu_mbarrier_arrive(uintptr_t at, unsigned expected_bytes);
void emu_mbarrier_wait(uintptr_t at, unsigned parity);
void emu_bulk_load(uintptr_t to, const struct CUtensorMap_st *map, uintptr_t barrier,
                   const unsigned (&from)[4]);

static inline uint32_t mics_shared_number(uintptr_t at)
{
    return emu_shared_number(at);
}

template <enum mics_major a_major, enum mics_major b_major, int blocks>
static inline void mics_wgmma(float (&d)[blocks][4], uint64_t a, uint64_t b, bool add)
{
    struct emu_wgmma product = {
        d[0], nullptr, blocks * 8, a, b, a_major == MICS_MN_MAJOR, b_major == MICS_MN_MAJOR, add,
    };

    emu_wgmma_begin(&product);
}

template <enum mics_major b_major, int blocks>
static inline void mics_wgmma(float (&d)[blocks][4], const uint32_t (&a)[4], uint64_t b, bool add)
{
    struct emu_wgmma product = {
        d[0], a, blocks * 8, 0, b, false, b_major == MICS_MN_MAJOR, add,
    };

    emu_wgmma_begin(&product);
}

static inline void mics_wgmma_fence(void)
{
    emu_wgmma_fence();
}

static inline void mics_wgmma_commit(void)
{
    emu_wgmma_commit();
}

template <int pending> static inline void mics_wgmma_wait(void)
{
    emu_wgmma_wait(pending);
}

template <typename Registers> static inline void mics_wgmma_settle(Registers &)
{
}

static inline void mics_wgmma_hold(float, uintptr_t)
{
}

static inline void mics_async_fence(void)
{
    emu_async_fence();
}

static inline void mics_barrier_sync(unsigned id, unsigned threads)
{
    emu_named_barrier(id, threads, true);
}

static inline void mics_barrier_arrive(unsigned id, unsigned threads)
{
    emu_named_barrier(id, threads, false);
}

template <int count> static inline void mics_registers_fewer(void)
{
    static_assert(count % 8 == 0 && count >= 24 && count <= 240, "a count that there is");
    emu_registers(count);
}

template <int count> static inline void mics_registers_more(void)
{
    static_assert(count % 8 == 0 && count >= 24 && count <= 240, "a count that there is");
    emu_registers(count);
}

static inline void mics_mbarrier_init(uintptr_t at, unsigned count)
{
    emu_mbarrier_init(at, count);
}

static inline void mics_mbarrier_publish(void)
{
    emu_mbarrier_publish();
}

static inline void mics_mbarrier_arrive(uintptr_t at)
{
    emu_mbarrier_arrive(at, 0);
}

static inline void mics_mbarrier_expect(uintptr_t at, unsigned bytes)
{
    emu_mbarrier_arrive(at, bytes);
}

static inline void mics_mbarrier_wait(uintptr_t at, unsigned parity)
{
    emu_mbarrier_wait(at, parity);
}

static inline void mics_bulk_load(uintptr_t to, const struct CUtensorMap_st *map, uintptr_t barrier,
                                  unsigned column, unsigned head, unsigned row, unsigned b)
{
    emu_bulk_load(to, map, barrier, {column, head, row, b});
}

#endif
