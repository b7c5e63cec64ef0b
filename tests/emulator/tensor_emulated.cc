/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_emulated.cc - matrix instructions of a warp and asynchronous copies: see
 * tensor_emulated.h. */
#include "tensor_emulated.h"

#include <cstring>
#include <vector>

uint64_t emu_bank_conflicts;

namespace
{

struct load {
    const unsigned char *row;
    bool trans;
    uint32_t r[4];
};

struct product {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
    float (*widen)(unsigned short bits);
};

/* One copy of a thread, or the end of a group. */
struct copy {
    void *to;
    const void *from;
    unsigned bytes;
    bool valid, ends_group;
};

} // namespace

/* The eight rows of a matrix must lie in different groups of four banks. */
static bool conflicts(void *const *lanes, unsigned matrix)
{
    unsigned groups = 0;

    for (unsigned i = 0; i < 8; i++) {
        const struct load *load = static_cast<const struct load *>(lanes[matrix * 8 + i]);

        groups |= 1u << (reinterpret_cast<uintptr_t>(load->row) / 16 % 8);
    }
    return groups != 0xff;
}

static uint16_t element(void *const *lanes, unsigned matrix, unsigned row, unsigned column)
{
    const struct load *load = static_cast<const struct load *>(lanes[matrix * 8 + row]);
    uint16_t value;

    memcpy(&value, load->row + 2 * column, sizeof(value));
    return value;
}

static void meet_load(void *const *lanes, unsigned)
{
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        emu_bank_conflicts += conflicts(lanes, matrix);
        for (unsigned i = 0; i < EMU_WARP; i++) {
            struct load *load = static_cast<struct load *>(lanes[i]);
            unsigned g = i / 4, t = i % 4 * 2;
            uint32_t low = element(lanes, matrix, load->trans ? t : g, load->trans ? g : t);
            uint32_t high =
                element(lanes, matrix, load->trans ? t + 1 : g, load->trans ? g : t + 1);

            load->r[matrix] = low | high << 16;
        }
    }
}

void emu_ldmatrix(uint32_t r[4], const void *at, bool trans)
{
    struct load load = {static_cast<const unsigned char *>(at), trans, {}};

    if (reinterpret_cast<uintptr_t>(at) % 16 != 0)
        emu_fail("ldmatrix: %p is not aligned to 16 bytes", at);
    emu_warp_meet(~0u, meet_load, &load);
    memcpy(r, load.r, sizeof(load.r));
}

static float half(const struct product *lane, uint32_t pair, unsigned which)
{
    return lane->widen((unsigned short)(which ? pair >> 16 : pair));
}

/* Sums in fp32, one product after another: a GPU's order and inner precision are its own. */
static void meet_mma(void *const *lanes, unsigned)
{
    float a[16][16], b[16][8], c[16][8];

    for (unsigned i = 0; i < EMU_WARP; i++) {
        const struct product *lane = static_cast<const struct product *>(lanes[i]);
        unsigned g = i / 4, t = i % 4 * 2;

        for (unsigned j = 0; j < 8; j++)
            a[g + j / 2 % 2 * 8][t + j / 4 * 8 + j % 2] = half(lane, lane->a[j / 2], j % 2);
        for (unsigned j = 0; j < 4; j++) {
            b[t + j / 2 * 8 + j % 2][g] = half(lane, lane->b[j / 2], j % 2);
            c[g + j / 2 * 8][t + j % 2] = lane->c[j];
        }
    }
    for (unsigned m = 0; m < 16; m++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned n = 0; n < 8; n++)
                c[m][n] += a[m][k] * b[k][n];
    for (unsigned i = 0; i < EMU_WARP; i++)
        for (unsigned j = 0; j < 4; j++)
            static_cast<struct product *>(lanes[i])->c[j] = c[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
}

void emu_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
             float (*widen)(unsigned short bits))
{
    struct product lane = {c, a, {b0, b1}, widen};

    emu_warp_meet(~0u, meet_mma, &lane);
}

static thread_local std::vector<std::vector<struct copy>> copies; /* by thread of the block */
static thread_local uint64_t copies_block;

/* A new block begins with nothing under way. */
static std::vector<struct copy> &my_copies(void)
{
    if (copies_block != emu_block_number()) {
        copies.resize(1024);
        for (std::vector<struct copy> &one : copies)
            one.clear();
        copies_block = emu_block_number();
    }
    return copies[emu_now.linear];
}

void emu_copy_begin(void *to, const void *from, unsigned bytes, bool valid)
{
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes != 0)
        emu_fail("an asynchronous copy from %p to %p is not aligned to %u bytes", from, to, bytes);
    memset(to, 0xff, bytes);
    my_copies().push_back({to, from, bytes, valid, false});
}

void emu_copy_commit(void)
{
    my_copies().push_back({nullptr, nullptr, 0, false, true});
}

void emu_copy_wait(unsigned pending)
{
    std::vector<struct copy> &mine = my_copies();
    size_t groups = 0, done = 0;

    for (const struct copy &one : mine)
        groups += one.ends_group;
    for (; groups > pending; done++) {
        const struct copy &one = mine[done];

        if (one.ends_group)
            groups--;
        else if (one.valid)
            memcpy(one.to, one.from, one.bytes);
        else
            memset(one.to, 0, one.bytes);
    }
    mine.erase(mine.begin(), mine.begin() + (ptrdiff_t)done);
}
