/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's operations on long arrays against the host's: casts, sums, GELU, norms. */
#include "check.h"

#define SHIFTS 2 /* aligned, and one element away */

static void casts_and_sums_have_the_bits_of_the_host(void)
{
    for (size_t s = 0; s < SIZES; s++)
        for (unsigned shift = 0; shift < SHIFTS; shift++)
            for (size_t d = 0; d < LENGTH(dtypes); d++) {
                const uint32_t count = sizes[s];
                struct array from = array_random(dtypes[d], count, 9, 1, shift);
                struct array to = array_output(dtypes[!d], count, shift);
                struct array same = array_output(dtypes[d], count, shift);
                struct array sum = array_random(MICS_F32, count, 9, 2, shift);
                const struct mics_args_cast cast = {to.device, from.device, count, dtypes[!d],
                                                    dtypes[d]};
                const struct mics_args_cast copy = {same.device, from.device, count, dtypes[d],
                                                    dtypes[d]};
                const struct mics_args_accumulate add = {sum.device, from.device, count, dtypes[d]};

                RUN(cast, &cast, &to);
                RUN(cast, &copy, &same);
                RUN(accumulate, &add, &sum);
                CHECK(memcmp(same.got, from.begin, array_bytes(&from)) == 0);
                CHECK_NEAR(array_error(&to, from.values), 0, d == 0 ? 0.00391 : 0);
                mics_host_accumulate(
                    pool, &(struct mics_args_accumulate){sum.values, from.values, count, MICS_F32});
                CHECK(memcmp(sum.got, sum.values, array_bytes(&sum)) == 0);
                ARRAYS_FREE(&from, &to, &same, &sum);
            }
}

static void casts_round_ties_to_even_and_keep_nan(void)
{
    static const uint32_t bits[] = {0x3f808000u, 0x3f818000u, 0x3f817fffu, 0x3f808001u,
                                    0x7f800000u, 0xff800000u, 0x00000001u, 0x80008000u,
                                    0x7f7fffffu, 0x80000000u};
    float numbers[LENGTH(bits) + 1];
    struct array from, to;
    uint16_t want[LENGTH(numbers)];

    memcpy(numbers, bits, sizeof(bits));
    numbers[LENGTH(bits)] = NAN;
    from = array_of(MICS_F32, numbers, LENGTH(numbers), 0);
    to = array_output(MICS_BF16, LENGTH(numbers), 0);
    RUN(cast,
        (&(struct mics_args_cast){to.device, from.device, LENGTH(numbers), MICS_BF16, MICS_F32}),
        &to);
    mics_numbers_from_f32(MICS_STORAGE_BF16, numbers, want, LENGTH(numbers));
    CHECK(memcmp(to.got, want, sizeof(bits) / 2) == 0);
    CHECK((((uint16_t *)to.got)[LENGTH(bits)] & 0x7fff) > 0x7f80);
    ARRAYS_FREE(&from, &to);
}

static void a_cast_between_other_types_is_refused(void)
{
    struct mics_args_cast cast = {NULL, NULL, 1, MICS_F64, MICS_F32};

    CHECK_INT(mics_cuda_cast(&at, &cast), cudaErrorInvalidValue);
}

static void gelu_and_its_gradient_agree(void)
{
    for (size_t s = 0; s < SIZES; s++)
        for (unsigned shift = 0; shift < SHIFTS; shift++)
            for (size_t d = 0; d < LENGTH(dtypes); d++) {
                const uint32_t count = sizes[s];
                struct array in = array_random(dtypes[d], count, 8, 5, shift);
                struct array grad = array_random(dtypes[d], count, 1, 6, shift);
                struct array out = array_output(dtypes[d], count, shift);
                struct mics_args_gelu gelu = {out.device, in.device, count, dtypes[d]};
                struct mics_args_gelu_grad slope = {grad.device, in.device, grad.device, count,
                                                    dtypes[d]};

                RUN(gelu, &gelu, &out);
                RUN(gelu_grad, &slope, &grad);
                mics_host_gelu(pool,
                               &(struct mics_args_gelu){out.values, in.values, count, MICS_F32});
                mics_host_gelu_grad(pool,
                                    &(struct mics_args_gelu_grad){grad.values, in.values,
                                                                  grad.values, count, MICS_F32});
                CHECK_ARRAY(&out, out.values, 2e-6);
                CHECK_ARRAY(&grad, grad.values, 4e-6);
                ARRAYS_FREE(&in, &grad, &out);
            }
}

static void gelu_of_a_large_number_is_the_number_or_zero_on_the_gpu(void)
{
    const float numbers[] = {1e18f, -1e18f, 3e38f, -300.0f, NAN}, ones[] = {1, 1, 1, 1, 1};
    const float want[] = {1e18f, 0, 3e38f, 0, NAN}, slopes[] = {1, 0, 1, 0, NAN};

    for (size_t d = 0; d < LENGTH(dtypes); d++) {
        struct array in = array_of(dtypes[d], numbers, 5, 0),
                     grad = array_of(dtypes[d], ones, 5, 0);
        struct array out = array_output(dtypes[d], 5, 0);

        RUN(gelu, (&(struct mics_args_gelu){out.device, in.device, 5, dtypes[d]}), &out);
        RUN(gelu_grad,
            (&(struct mics_args_gelu_grad){grad.device, in.device, grad.device, 5, dtypes[d]}),
            &grad);
        CHECK_ARRAY(&out, want, 0);
        CHECK_ARRAY(&grad, slopes, 0);
        ARRAYS_FREE(&in, &grad, &out);
    }
}

/* A double on the device. */
static double device_double(double *device, double value, bool fetch)
{
    must(cudaMemcpy(fetch ? (void *)&value : device, fetch ? device : (void *)&value, sizeof(value),
                    fetch ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice),
         "copy");
    return value;
}

static void squares_are_summed_in_double_onto_what_is_there(void)
{
    const uint32_t counts[] = {0, 1, 31, 32, 33, 4097, 3000001};
    double *sum;

    must(cudaMalloc((void **)&sum, sizeof(*sum)), "cudaMalloc");
    for (size_t s = 0; s < LENGTH(counts); s++)
        for (unsigned shift = 0; shift < SHIFTS; shift++) {
            struct array in = array_random(MICS_F32, counts[s], 100, 7, shift);
            const struct mics_args_squared_norm args = {sum, in.device, counts[s]};
            double got[2], want = 0.5;

            for (int run = 0; run < 2; run++) {
                emu_order((uint64_t)run);
                device_double(sum, 0.5, false);
                CHECK_INT(mics_cuda_squared_norm(&at, &args), cudaSuccess);
                got[run] = device_double(sum, 0, true);
            }
            emu_order(0);
            mics_host_squared_norm(pool,
                                   &(struct mics_args_squared_norm){&want, in.values, counts[s]});
            CHECK(got[0] == got[1]);
            CHECK_NEAR(got[0] / want, 1, 1e-13);
            array_free(&in);
        }
    must(cudaFree(sum), "cudaFree");
}

int main(void)
{
    open_gpu();
    TAP_RUN(casts_and_sums_have_the_bits_of_the_host);
    TAP_RUN(casts_round_ties_to_even_and_keep_nan);
    TAP_RUN(a_cast_between_other_types_is_refused);
    TAP_RUN(gelu_and_its_gradient_agree);
    TAP_RUN(gelu_of_a_large_number_is_the_number_or_zero_on_the_gpu);
    TAP_RUN(squares_are_summed_in_double_onto_what_is_there);
    return close_gpu();
}
