/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's operations on long arrays against the host's: casts, sums, GELU, norms. */
#include "check.h"
#include "operation_flat.h"

/* Run both for every case and type. */
static void check_flat(void first(struct suite *, const struct flat_case *, enum mics_dtype),
                       void second(struct suite *, const struct flat_case *, enum mics_dtype))
{
    for (size_t i = 0; i < LENGTH(flat_cases); i++)
        for (size_t d = 0; d < LENGTH(dtypes) && flat_cases[i].suites & GPU; d++) {
            first(&gpu, &flat_cases[i], dtypes[d]);
            second(&gpu, &flat_cases[i], dtypes[d]);
        }
}

/* To fp32 or from there, and to its own. */
static void check_casts(struct suite *suite, const struct flat_case *c, enum mics_dtype dtype)
{
    for (size_t d = 0; d < LENGTH(dtypes); d++)
        if (dtype == MICS_F32 || dtypes[d] == MICS_F32 || dtypes[d] == dtype)
            cast_case(suite, c, dtype, dtypes[d]);
}

static void casts_and_sums_have_the_bits_of_the_host(void)
{
    check_flat(check_casts, accumulate_case);
}

static void check_rounding(enum mics_dtype dtype)
{
    static const uint32_t bits[] = {
        0x3f808000u, 0x3f818000u, 0x3f817fffu, 0x3f808001u, 0x7f800000u, 0xff800000u, 0x00000001u,
        0x80008000u, 0x7f7fffffu, 0x80000000u, 0x3f801000u, 0x3f803000u, 0x3f801001u, 0x477fefffu,
        0x477ff000u, 0x33000000u, 0x33000001u, 0xb87fe000u, 0xb8000fffu, 0xb8001000u};
    float numbers[LENGTH(bits) + 1];
    struct tensor from, to;
    uint16_t want[LENGTH(numbers)];

    memcpy(numbers, bits, sizeof(bits));
    numbers[LENGTH(bits)] = NAN;
    case_begin(&gpu, 0, "cast");
    from = case_note(&gpu, array_of(MICS_F32, numbers, LENGTH(numbers), 0));
    to = case_output(&gpu, "dst", dtype, LENGTH(numbers), 0);
    CASE_DEVICE(
        &gpu, mics_cuda_cast(&gpu.at, &(struct mics_args_cast){to.device, from.device,
                                                               LENGTH(numbers), dtype, MICS_F32}));
    mics_numbers_from_f32(storage_of(dtype), numbers, want, LENGTH(numbers));
    CHECK(memcmp(to.got, want, sizeof(bits) / 2) == 0);
    CHECK((((uint16_t *)to.got)[LENGTH(bits)] & 0x7fff) > (dtype == MICS_F16 ? 0x7c00 : 0x7f80));
    case_scratch(&gpu, to.device);
    case_end(&gpu);
}

/* In fp16 also to the largest number, and to subnormal ones. */
static void casts_round_ties_to_even_and_keep_nan(void)
{
    check_rounding(MICS_BF16);
    check_rounding(MICS_F16);
}

static void a_cast_between_other_types_is_refused(void)
{
    struct mics_args_cast cast = {NULL, NULL, 1, MICS_F64, MICS_F32};

    CHECK_INT(mics_cuda_cast(&gpu.at, &cast), cudaErrorInvalidValue);
    cast.dst_dtype = MICS_F16;
    cast.src_dtype = MICS_BF16;
    CHECK_INT(mics_cuda_cast(&gpu.at, &cast), cudaErrorInvalidValue);
}

static void gelu_and_its_gradient_agree(void)
{
    check_flat(gelu_case, gelu_grad_case);
}

static void gelu_of_a_large_number_is_the_number_or_zero_on_the_gpu(void)
{
    const float numbers[] = {1e18f, -1e18f, 3e38f, -300.0f, NAN}, ones[] = {1, 1, 1, 1, 1};
    float want[] = {1e18f, 0, 3e38f, 0, NAN};
    const float slopes[] = {1, 0, 1, 0, NAN};

    for (size_t i = 0; i < 2 * LENGTH(dtypes); i++) {
        const enum mics_dtype dtype = dtypes[i / 2];
        const bool exact = i % 2;
        struct tensor in, grad, out;

        case_begin(&gpu, 0, "large");
        in = case_note(&gpu, array_of(dtype, numbers, 5, 0));
        grad = case_note(&gpu, array_of(dtype, ones, 5, 0));
        out = case_output(&gpu, "out", dtype, 5, 0);
        OPERATION(&gpu, gelu, AT(out), AT(in), 5, TYPE(dtype), exact);
        OPERATION(&gpu, gelu_grad, AT(grad), AT(in), AT(grad), 5, TYPE(dtype), exact);
        if (dtype == MICS_F16)
            want[0] = want[2] = INFINITY, want[1] = NAN; /* of an infinity */
        memcpy(out.values, want, sizeof want);
        memcpy(grad.values, slopes, sizeof slopes);
        case_expect(&gpu, &out, 0);
        case_expect(&gpu, &grad, 0);
        case_end(&gpu);
    }
}

static void squares_are_summed_in_double_onto_what_is_there(void)
{
    for (size_t i = 0; i < LENGTH(flat_cases); i++)
        if (flat_cases[i].suites & GPU)
            squared_norm_case(&gpu, &flat_cases[i]);
    for (size_t i = 0; i < LENGTH(square_cases); i++) {
        squared_norm_case(&gpu, &square_cases[i]);
        check_only_case(&gpu, &square_cases[i]);
    }
}

static void outer_updates_and_their_differences_agree(void)
{
    for (size_t i = 0; i < LENGTH(flat_cases); i++) {
        if (!(flat_cases[i].suites & GPU))
            continue;
        difference_case(&gpu, &flat_cases[i]);
        outer_update_case(&gpu, &flat_cases[i]);
    }
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
    TAP_RUN(outer_updates_and_their_differences_agree);
    return close_gpu();
}
