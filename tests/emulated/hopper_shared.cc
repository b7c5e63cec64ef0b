/* SPDX-License-Identifier: Apache-2.0 */
/* hopper_shared.cc - dynamic shared memory as products and bulk copies see it; barriers of parts of a block. */
#include "hopper_emulated_parts.h"

#include <cstring>
#include <vector>

static thread_local std::vector<unsigned char> view;
static thread_local uint64_t view_block;

/* Where dynamic shared memory begins on a GPU: not at 0, but aligned. */
static const uint32_t first_number = 1024;

uint32_t emu_shared_number(uintptr_t at)
{
    uintptr_t first = reinterpret_cast<uintptr_t>(emu_dynamic_shared());

    if (at < first || at >= first + emu_dynamic_shared_bytes())
        emu_fail("a product or a bulk copy meets memory that is not dynamic shared memory");
    return (uint32_t)(at - first) + first_number;
}

size_t emu_shared_offset(uint32_t number, size_t bytes)
{
    size_t offset = (size_t)number - first_number;

    if (number < first_number || offset + bytes > emu_dynamic_shared_bytes())
        emu_fail("a product or a bulk copy leaves the shared memory of its block");
    return offset;
}

unsigned char *emu_async_view(void)
{
    if (view_block != emu_block_number()) {
        view.assign(emu_dynamic_shared_bytes(), 0xff);
        view_block = emu_block_number();
    }
    return view.data();
}

void emu_async_fence(void)
{
    memcpy(emu_async_view(), emu_dynamic_shared(), emu_dynamic_shared_bytes());
}

struct named_barrier {
    unsigned threads, come, turns;
};

struct turn {
    const struct named_barrier *barrier;
    unsigned turns;
};

static thread_local struct named_barrier named[16];
static thread_local uint64_t named_block;

static bool same_turn(const void *context)
{
    const struct turn *turn = static_cast<const struct turn *>(context);

    return turn->barrier->turns == turn->turns;
}

void emu_named_barrier(unsigned id, unsigned threads, bool wait)
{
    struct named_barrier *barrier;
    struct turn turn;

    if (named_block != emu_block_number())
        memset(named, 0, sizeof(named));
    named_block = emu_block_number();
    if (id == 0 || id > 15 || threads % EMU_WARP != 0 || threads == 0)
        emu_fail("there is no barrier %u of %u threads", id, threads);
    barrier = &named[id];
    if (barrier->come == 0)
        barrier->threads = threads;
    if (barrier->threads != threads)
        emu_fail("barrier %u is one of %u and of %u threads", id, barrier->threads, threads);
    turn = {barrier, barrier->turns};
    if (++barrier->come == threads) {
        barrier->come = 0;
        barrier->turns++;
    } else if (wait) {
        emu_wait_while(same_turn, &turn);
    }
}

static void meet_nothing(void *const *, unsigned)
{
}

void emu_registers(unsigned)
{
    emu_warp_meet(~0u, meet_nothing, nullptr);
}
