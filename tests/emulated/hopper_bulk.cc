/* SPDX-License-Identifier: Apache-2.0 */
/* hopper_bulk.cc - barriers in shared memory, tensor maps, and copies by them. */
#include "cuda.h"
#include "hopper_emulated_parts.h"
#include "tensor_map_emulated.h"

#include <cstring>

namespace
{

/* The eight bytes of a barrier; new shared memory (all ones) is none. */
struct mbarrier {
    uint64_t phase : 1, count : 20, pending : 20;
    int64_t
        bytes : 21; /* announced and not arrived; below 0 when they arrive before they are announced */
    uint64_t mark : 2; /* 1 */
};

static_assert(sizeof(struct mbarrier) == 8, "as on a GPU");

struct phase {
    uintptr_t at;
    unsigned parity;
};

} // namespace

static thread_local bool unpublished; /* a barrier is new, and bulk copies do not know it */

static struct mbarrier load(uintptr_t at)
{
    struct mbarrier barrier;

    if (at % 8 != 0)
        emu_fail("a barrier is not aligned to 8 bytes");
    memcpy(&barrier, reinterpret_cast<const void *>(at), sizeof(barrier));
    if (barrier.mark != 1)
        emu_fail("a barrier in shared memory was not initialised");
    return barrier;
}

/* With what has come the phase may be over. */
static void store(uintptr_t at, struct mbarrier barrier)
{
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.pending = barrier.count;
    }
    memcpy(reinterpret_cast<void *>(at), &barrier, sizeof(barrier));
}

void emu_mbarrier_init(uintptr_t at, unsigned count)
{
    struct mbarrier barrier = {};

    if (count == 0 || count >= 1u << 20 || at % 8 != 0)
        emu_fail("a barrier at %p for %u arrivals", reinterpret_cast<void *>(at), count);
    barrier.count = barrier.pending = count & 0xfffff;
    barrier.mark = 1;
    unpublished = true;
    store(at, barrier);
}

void emu_mbarrier_publish(void)
{
    unpublished = false;
}

void emu_mbarrier_arrive(uintptr_t at, unsigned expected_bytes)
{
    struct mbarrier barrier = load(at);

    if (barrier.pending == 0)
        emu_fail("a barrier for %u arrivals gets another one", (unsigned)barrier.count);
    barrier.bytes += (int)expected_bytes;
    barrier.pending--;
    store(at, barrier);
}

static bool in_phase(const void *context)
{
    const struct phase *phase = static_cast<const struct phase *>(context);

    return load(phase->at).phase == phase->parity;
}

void emu_mbarrier_wait(uintptr_t at, unsigned parity)
{
    struct phase phase = {at, parity};

    if (parity > 1)
        emu_fail("a parity of %u", parity);
    emu_wait_while(in_phase, &phase);
}

/* One element of a box, by its place in it. */
static uint16_t element(const struct emu_tensor_map &map, const unsigned (&from)[4],
                        const unsigned (&in_box)[4])
{
    const unsigned char *at = static_cast<const unsigned char *>(map.at);
    uint16_t value;

    for (unsigned i = 0; i < 4; i++) {
        uint64_t index = (uint64_t)from[i] + in_box[i];

        if (index >= map.size[i])
            return 0;
        at += index * (i == 0 ? sizeof(value) : map.stride[i - 1]);
    }
    memcpy(&value, at, sizeof(value));
    return value;
}

/* Write a box, whose columns are 128 bytes, or NaN (`map` is NULL); both views of shared memory get it. */
static void put(uint32_t to, const struct emu_tensor_map &shape, const struct emu_tensor_map *map,
                const unsigned (&from)[4])
{
    unsigned char *view = emu_async_view();
    unsigned char *plain = static_cast<unsigned char *>(emu_dynamic_shared());

    for (unsigned row = 0; row < shape.box[1] * shape.box[2] * shape.box[3]; row++)
        for (unsigned column = 0; column < shape.box[0]; column++) {
            uint32_t number = emu_swizzle(to + row * 128 + column * 2);
            size_t offset = emu_shared_offset(number, 2);
            const unsigned in_box[4] = {column, row % shape.box[1],
                                        row / shape.box[1] % shape.box[2],
                                        row / shape.box[1] / shape.box[2]};
            uint16_t value = map ? element(*map, from, in_box) : 0xffff;

            memcpy(view + offset, &value, sizeof(value));
            memcpy(plain + offset, &value, sizeof(value));
        }
}

void emu_bulk_load(uintptr_t to, const struct CUtensorMap_st *map, uintptr_t barrier,
                   const unsigned (&from)[4])
{
    struct emu_tensor_map box = emu_tensor_map_read(map);
    uint32_t number = emu_shared_number(to);
    unsigned bytes = 2 * box.box[0] * box.box[1] * box.box[2] * box.box[3];
    std::array<unsigned, 4> at = {from[0], from[1], from[2], from[3]};

    if (!box.at)
        emu_fail("a bulk copy without a tensor map");
    if (number % 1024 != 0)
        emu_fail("a bulk copy to a place that is not aligned to 1024 bytes");
    if (unpublished)
        emu_fail("a bulk copy to a barrier that was not published");
    (void)load(barrier);
    put(number, box, nullptr, from);
    emu_later([=]() {
        struct mbarrier arrived = load(barrier);
        const unsigned place[4] = {at[0], at[1], at[2], at[3]};

        put(number, box, &box, place);
        arrived.bytes -= (int)bytes;
        store(barrier, arrived);
    });
}
