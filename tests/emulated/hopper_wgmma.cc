/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hopper_wgmma.cc - asynchronous products: begun by warps, done when they wait.
 *
 * Sums in fp32, one product after another: a GPU's order and inner precision are its own.
 */
#include "hopper_emulated_parts.h"

#include "cuda_runtime.h"

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace
{

enum { WARPS = 1024 / EMU_WARP };

/* Accumulators of a warp while products add to them: the registers hold NaN, `sum` what is known. */
struct accumulators {
    float *at[EMU_WARP];
    unsigned N, products;
    std::vector<float> sum; /* [16][N] */
};

struct product {
    struct emu_wgmma what;
    const uint32_t *a[EMU_WARP];
    std::shared_ptr<struct accumulators> to;
};

/* What all four warps of a group must begin alike. */
struct begun {
    uint64_t a_matrix, b_matrix;
    unsigned N, how;

    bool operator==(const struct begun &) const = default;
};

struct warp {
    std::deque<std::vector<struct product>> groups; /* committed */
    std::vector<struct product> open;
    unsigned begun, done;
    bool fenced;
};

struct waiting {
    const struct warp *group; /* its four warps */
    unsigned begun;
};

} // namespace

static thread_local struct warp warps[WARPS];
static thread_local std::vector<struct begun> begun_by[WARPS / 4];
static thread_local uint64_t warps_block;

static unsigned my_warp_index(void)
{
    return emu_now.linear / EMU_WARP;
}

/* A new block begins with nothing under way. */
static struct warp *my_warp(void)
{
    if (warps_block != emu_block_number()) {
        for (struct warp &one : warps)
            one = {};
        for (std::vector<struct begun> &one : begun_by)
            one.clear();
        warps_block = emu_block_number();
    }
    return &warps[my_warp_index()];
}

/* Row and column of element i of a lane's accumulators. */
static unsigned row_of(unsigned lane, unsigned i)
{
    return lane / 4 + i / 2 % 2 * 8;
}

static unsigned column_of(unsigned lane, unsigned i)
{
    return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

static const uint32_t in_flight = 0xffffffff; /* a NaN */

static bool is_untouched(const struct accumulators *of)
{
    for (unsigned lane = 0; lane < EMU_WARP; lane++)
        for (unsigned i = 0; i < of->N / 2; i++)
            if (memcmp(&of->at[lane][i], &in_flight, sizeof(in_flight)) != 0)
                return false;
    return true;
}

/* The accumulators of a product that begins: those of one under way, or the registers as they are. */
static std::shared_ptr<struct accumulators> take(struct warp *warp, void *const *lanes, unsigned N)
{
    std::shared_ptr<struct accumulators> to;
    float *first = static_cast<const struct emu_wgmma *>(lanes[0])->d;

    for (const std::vector<struct product> &group : warp->groups)
        for (const struct product &one : group)
            to = one.to->at[0] == first ? one.to : to;
    for (const struct product &one : warp->open)
        to = one.to->at[0] == first ? one.to : to;
    if (to) {
        if (to->N != N || !is_untouched(to.get()))
            emu_fail("accumulators were touched while a product adds to them");
        return to;
    }
    to = std::make_shared<struct accumulators>();
    to->N = N;
    to->sum.resize(16 * N);
    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        to->at[lane] = static_cast<const struct emu_wgmma *>(lanes[lane])->d;
        for (unsigned i = 0; i < N / 2; i++) {
            to->sum[row_of(lane, i) * N + column_of(lane, i)] = to->at[lane][i];
            memcpy(&to->at[lane][i], &in_flight, sizeof(in_flight));
        }
    }
    return to;
}

/* The other warps of the group have begun, or will have to begin, the same. */
static void agree(const struct warp *warp, const struct emu_wgmma *what)
{
    std::vector<struct begun> &all = begun_by[my_warp_index() / 4];
    const struct begun mine = {what->a_matrix, what->b_matrix, what->N,
                               (what->a ? 1u : 0) + (what->a_transposed ? 2u : 0) +
                                   (what->b_transposed ? 4u : 0) + (what->add ? 8u : 0)};

    if (warp->begun == all.size())
        all.push_back(mine);
    else if (!(all[warp->begun] == mine))
        emu_fail("warps of a group begin different products");
}

static void meet_product(void *const *lanes, unsigned)
{
    struct warp *warp = my_warp();
    struct product product;

    product.what = *static_cast<const struct emu_wgmma *>(lanes[0]);
    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        const struct emu_wgmma *one = static_cast<const struct emu_wgmma *>(lanes[lane]);

        if (one->a_matrix != product.what.a_matrix || one->b_matrix != product.what.b_matrix ||
            one->add != product.what.add || one->N != product.what.N)
            emu_fail("lanes of a warp begin different products");
        product.a[lane] = one->a;
    }
    if (!warp->fenced)
        emu_fail("a product without a fence since the kernel began or products ended");
    agree(warp, &product.what);
    product.to = take(warp, lanes, product.what.N);
    product.to->products++;
    warp->open.push_back(product);
    warp->begun++;
}

void emu_wgmma_begin(const struct emu_wgmma *product)
{
    struct emu_wgmma mine = *product;

    if (emu_now.block_dim.x % 128 != 0)
        emu_fail("a product in a block that is not made of whole warpgroups");
    emu_warp_meet(~0u, meet_product, &mine);
}

static void meet_fence(void *const *, unsigned)
{
    my_warp()->fenced = true;
}

void emu_wgmma_fence(void)
{
    emu_warp_meet(~0u, meet_fence, nullptr);
}

static void meet_commit(void *const *, unsigned)
{
    struct warp *warp = my_warp();

    warp->groups.push_back(std::move(warp->open));
    warp->open.clear();
}

void emu_wgmma_commit(void)
{
    emu_warp_meet(~0u, meet_commit, nullptr);
}

typedef float float8 __attribute__((vector_size(32)));

/* Eight numbers of a matrix with 128-byte swizzle, from element (i, k) on, i being the row of a, the column of b:
 * further i if it is transposed, further k if not. */
static float8 chunk(uint64_t matrix, bool transposed, unsigned i, unsigned k)
{
    uint32_t start = (uint32_t)(matrix & 0x3fff) << 4;
    uint32_t leading = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
    uint32_t stride = (uint32_t)(matrix >> 32 & 0x3fff) << 4;
    uint32_t number = start;
    uint16_t values[8];
    float8 result;

    if (transposed)
        number += i / 64 * leading + i % 64 * 2 + k / 8 * stride + k % 8 * 128;
    else
        number += i / 8 * stride + i % 8 * 128 + k * 2;
    memcpy(values, emu_async_view() + emu_shared_offset(emu_swizzle(number), sizeof(values)),
           sizeof(values));
    for (unsigned n = 0; n < 8; n++)
        result[n] = __uint_as_float((uint32_t)values[n] << 16);
    return result;
}

/* Only what mics uses is done: the 128-byte swizzle, its pattern at multiples of 1024 bytes. */
static void check(uint64_t matrix, bool transposed)
{
    uint32_t start = (uint32_t)(matrix & 0x3fff) << 4;
    uint32_t leading = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
    uint32_t stride = (uint32_t)(matrix >> 32 & 0x3fff) << 4;

    if (matrix >> 62 != 1 || (matrix >> 49 & 7) != 0)
        emu_fail("a matrix without 128-byte swizzle, or with a base offset");
    if ((start & 0x380) != 0 || stride % 1024 != 0 || (transposed && leading % 1024 != 0))
        emu_fail("a matrix whose pattern does not begin at a multiple of 1024 bytes");
    if ((start & 0x7f) != 0 && (transposed || (start & 0x1f) != 0))
        emu_fail("a matrix that crosses the 128 bytes of its rows");
}

static float half(uint32_t pair, unsigned which)
{
    return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}

/* Elements (first + i, k) of a matrix in shared memory, for i < count. */
static void load_matrix(std::vector<float> &to, uint64_t matrix, bool transposed, unsigned first,
                        unsigned count)
{
    check(matrix, transposed);
    to.resize(16 * count); /* [16][count] */
    for (unsigned k = 0; k < 16; k += transposed ? 1 : 8)
        for (unsigned i = 0; i < count; i += transposed ? 8 : 1) {
            float8 eight = chunk(matrix, transposed, first + i, k);

            for (unsigned n = 0; n < 8; n++)
                to[transposed ? k * count + i + n : (k + n) * count + i] = eight[n];
        }
}

/* The warp's 16 rows of the left factor, [16 of k][16]. */
static void load_left(std::vector<float> &to, const struct product &product)
{
    if (!product.what.a) {
        load_matrix(to, product.what.a_matrix, product.what.a_transposed, my_warp_index() % 4 * 16,
                    16);
        return;
    }
    to.resize(16 * 16);
    for (unsigned lane = 0; lane < EMU_WARP; lane++)
        for (unsigned j = 0; j < 8; j++)
            to[(lane % 4 * 2 + j / 4 * 8 + j % 2) * 16 + lane / 4 + j / 2 % 2 * 8] =
                half(product.a[lane][j / 2], j % 2);
}

static void multiply(const struct product &product)
{
    static thread_local std::vector<float> a, b;
    unsigned N = product.what.N;
    std::vector<float> &sum = product.to->sum;

    load_left(a, product);
    load_matrix(b, product.what.b_matrix, product.what.b_transposed, 0, N);
    if (!product.what.add)
        sum.assign(sum.size(), 0);
    for (unsigned m = 0; m < 16; m++)
        for (unsigned n = 0; n < N; n += 8) {
            float8 all, one;

            memcpy(&all, &sum[m * N + n], sizeof(all));
            for (unsigned k = 0; k < 16; k++) {
                memcpy(&one, &b[k * N + n], sizeof(one));
                all += a[k * 16 + m] * one;
            }
            memcpy(&sum[m * N + n], &all, sizeof(all));
        }
}

/* The last product on these accumulators is done: into the registers. */
static void deliver(const struct accumulators *from)
{
    if (!is_untouched(from))
        emu_fail("accumulators were touched while a product adds to them");
    for (unsigned lane = 0; lane < EMU_WARP; lane++)
        for (unsigned i = 0; i < from->N / 2; i++)
            from->at[lane][i] = from->sum[row_of(lane, i) * from->N + column_of(lane, i)];
}

static void meet_wait(void *const *lanes, unsigned)
{
    struct warp *warp = my_warp();
    unsigned pending = *static_cast<const unsigned *>(lanes[0]);

    if (!warp->open.empty())
        emu_fail("waits for products of which some were not committed");
    for (; warp->groups.size() > pending; warp->groups.pop_front())
        for (const struct product &one : warp->groups.front()) {
            multiply(one);
            warp->done++;
            warp->fenced = false;
            if (--one.to->products == 0)
                deliver(one.to.get());
        }
}

/* Whether some warp of the group has not begun so many. */
static bool others_lag(const void *context)
{
    const struct waiting *waiting = static_cast<const struct waiting *>(context);

    for (unsigned i = 0; i < 4; i++)
        if (waiting->group[i].begun < waiting->begun)
            return true;
    return false;
}

void emu_wgmma_wait(unsigned pending)
{
    struct warp *warp = my_warp();
    struct waiting waiting = {&warps[my_warp_index() / 4 * 4], warp->done};

    for (size_t i = 0; i + pending < warp->groups.size(); i++)
        waiting.begun += (unsigned)warp->groups[i].size();
    emu_wait_while(others_lag, &waiting);
    emu_warp_meet(~0u, meet_wait, &pending);
}
