/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's sums and conversions of arrays in blocks have the bits of the host's. */
#include "check.h"
#include "operation_blocks.h"

/* Addresses and strides are not always multiples of 16 bytes; those of bf16, not even of 4. */
static void sums_of_blocks_have_the_bits_of_the_host(void)
{
    for (size_t from = 0; from < LENGTH(wire_dtypes); from++)
        for (size_t to = 0; to < LENGTH(wire_dtypes); to++)
            for (size_t c = 0; c < LENGTH(block_cases); c++) {
                const uint32_t count = block_cases[c].count, parts = 1 + (c + to) % 3 * 2;

                sum_blocks_case(&gpu, wire_dtypes[from], wire_dtypes[to], count, parts, false,
                                c % 2, 0);
                sum_blocks_case(&gpu, wire_dtypes[from], wire_dtypes[to], count, 1, true, false, 4);
            }
}

static void a_sum_of_other_types_is_refused(void)
{
    const enum mics_dtype others[] = {MICS_F64, MICS_U8};

    for (size_t i = 0; i < LENGTH(others); i++) {
        const struct mics_args_sum_blocks from = {.count = 1, .parts = 1, .src_dtype = others[i]};
        const struct mics_args_sum_blocks to = {.count = 1, .parts = 1, .dst_dtype = others[i]};

        CHECK_INT(mics_cuda_sum_blocks(&gpu.at, &from), cudaErrorInvalidValue);
        CHECK_INT(mics_cuda_sum_blocks(&gpu.at, &to), cudaErrorInvalidValue);
    }
}

int main(void)
{
    open_gpu();
    TAP_RUN(sums_of_blocks_have_the_bits_of_the_host);
    TAP_RUN(a_sum_of_other_types_is_refused);
    return close_gpu();
}
