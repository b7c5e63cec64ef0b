/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's sums and conversions of arrays in blocks have the bits of the host's. */
#include "check.h"

static const enum mics_dtype types[] = {MICS_F32, MICS_BF16, MICS_INT8, MICS_INT4};
static const uint32_t counts[] = {0, 1, 31, 256, 257, 2048, 4097, 70000};

/* Bytes on the host and on the device, `shift` bytes away from an aligned address. */
struct bytes {
    char *host, *device, *memory;
    size_t size;
};

static struct bytes new_bytes(size_t size, size_t shift)
{
    struct bytes out = {.host = need(size), .size = size};

    must(cudaMalloc((void **)&out.memory, size + shift), "cudaMalloc");
    out.device = out.memory + shift;
    memset(out.host, 0xa5, size);
    return out;
}

static void send(const struct bytes *bytes)
{
    must(cudaMemcpy(bytes->device, bytes->host, bytes->size, cudaMemcpyHostToDevice), "copy");
}

static void free_bytes(struct bytes *bytes)
{
    must(cudaFree(bytes->memory), "cudaFree");
    free(bytes->host);
}

static void fill_numbers(float *x, uint32_t count, uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;

    for (uint32_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        x[i] = (float)((double)(state >> 11) / 4503599627370496.0 - 1.0) *
               exp2f((float)(i / 100 % 40) - 20);
    }
}

/* Arrays of a type, one behind the other. With `awkward`, one block has an infinity, one a NaN, one
 * only zeros, and one numbers whose scale is below the normal ones. */
static struct bytes new_parts(enum mics_dtype dtype, uint32_t count, uint32_t parts, bool awkward,
                              size_t shift)
{
    const uint64_t each = mics_wire_bytes(dtype, count);
    struct bytes out = new_bytes(each * parts, shift);
    float *x = need(count * sizeof *x);

    for (uint32_t part = 0; part < parts; part++) {
        fill_numbers(x, count, count + part);
        for (uint32_t i = 0; awkward && i < count; i++)
            x[i] = i == 300        ? INFINITY
                   : i == 900      ? NAN
                   : i / 256 == 5  ? 0
                   : i / 256 == 11 ? x[i] * 0x1p-126f
                                   : x[i];
        mics_host_sum_blocks(pool, &(struct mics_args_sum_blocks){.dst = out.host + part * each,
                                                                  .src = x,
                                                                  .count = count,
                                                                  .parts = 1,
                                                                  .dst_dtype = dtype});
    }
    free(x);
    send(&out);
    return out;
}

/* Equal bits, or both NaN. */
static bool same_numbers(const char *got, const char *want, uint32_t count, enum mics_dtype dtype)
{
    const size_t each = mics_dtype_bytes(dtype);

    for (uint32_t i = 0; i < count; i++) {
        float x[2];

        if (memcmp(got + i * each, want + i * each, each) == 0)
            continue;
        mics_numbers_to_f32(dtype == MICS_F32 ? MICS_STORAGE_F32 : MICS_STORAGE_BF16,
                            got + i * each, &x[0], 1);
        mics_numbers_to_f32(dtype == MICS_F32 ? MICS_STORAGE_F32 : MICS_STORAGE_BF16,
                            want + i * each, &x[1], 1);
        if (!isnan(x[0]) || !isnan(x[1]))
            return false;
    }
    return true;
}

static void check_sum(enum mics_dtype from, enum mics_dtype to, uint32_t count, uint32_t parts,
                      bool stochastic, bool awkward, size_t shift)
{
    const uint64_t out_bytes = mics_wire_bytes(to, count);
    struct bytes in = new_parts(from, count, parts, awkward, shift);
    struct bytes out = new_bytes(out_bytes, shift);
    char *got = need(out_bytes);
    struct mics_args_sum_blocks args = {.dst = out.device,
                                        .src = in.device,
                                        .count = count,
                                        .stride = mics_wire_bytes(from, count),
                                        .parts = parts,
                                        .dst_dtype = to,
                                        .src_dtype = from,
                                        .stochastic = stochastic,
                                        .replica = 5,
                                        .seed = 0x123456789abcu,
                                        .step = 1000,
                                        .first = 256};

    emu_order(parts);
    send(&out);
    CHECK_INT(mics_cuda_sum_blocks(&at, &args), cudaSuccess);
    must(cudaStreamSynchronize(at.stream), "a kernel");
    emu_order(0);
    must(cudaMemcpy(got, out.device, out_bytes, cudaMemcpyDeviceToHost), "copy");
    args.src = in.host;
    args.dst = out.host;
    mics_host_sum_blocks(pool, &args);
    CHECK(mics_dtype_is_blocks(to) ? memcmp(got, out.host, out_bytes) == 0
                                   : same_numbers(got, out.host, count, to));
    free(got);
    free_bytes(&in);
    free_bytes(&out);
}

/* Addresses and strides are not always multiples of 16 bytes; those of bf16, not even of 4. */
static void sums_of_blocks_have_the_bits_of_the_host(void)
{
    for (size_t from = 0; from < LENGTH(types); from++)
        for (size_t to = 0; to < LENGTH(types); to++)
            for (size_t c = 0; c < LENGTH(counts); c++) {
                const uint32_t parts = 1 + (uint32_t)(c + to) % 3 * 2;

                check_sum(types[from], types[to], counts[c], parts, false, c % 2, 0);
                check_sum(types[from], types[to], counts[c], 1, true, false, 4);
            }
}

static void a_sum_of_other_types_is_refused(void)
{
    const enum mics_dtype others[] = {MICS_F64, MICS_U8};

    for (size_t i = 0; i < LENGTH(others); i++) {
        const struct mics_args_sum_blocks from = {.count = 1, .parts = 1, .src_dtype = others[i]};
        const struct mics_args_sum_blocks to = {.count = 1, .parts = 1, .dst_dtype = others[i]};

        CHECK_INT(mics_cuda_sum_blocks(&at, &from), cudaErrorInvalidValue);
        CHECK_INT(mics_cuda_sum_blocks(&at, &to), cudaErrorInvalidValue);
    }
}

int main(void)
{
    open_gpu();
    TAP_RUN(sums_of_blocks_have_the_bits_of_the_host);
    TAP_RUN(a_sum_of_other_types_is_refused);
    return close_gpu();
}
