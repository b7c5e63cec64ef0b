/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_attention.cc - attention and its gradient on the GPU, by every variant, against plain loops in double.
 *
 * Tolerances: the norm of the error over the norm of the result, per tensor, and the largest error of an element
 * over the root mean square of all. fp32 sums in another order than double: 1e-5 and 1e-4. bf16 rounds results
 * to 2^-9 and probabilities and their gradients to 2^-9 before they are multiplied: 6e-3 and 0.1. Large scores
 * make probabilities of nearly 0 and 1, whose gradients are small differences: three times that.
 */
#include "attention_case.h"

#ifdef MICS_EMULATED
#include "tensor_emulated.h"
#endif

#include "tap.h"

#include <cmath>

static const struct attention_shape shapes[] = {
    {1, 1, 1, 1, 64, true},     {2, 31, 2, 2, 64, true},  {1, 33, 2, 1, 64, false},
    {1, 64, 2, 2, 64, true},    {1, 65, 3, 3, 64, true},  {1, 130, 4, 2, 64, true},
    {1, 130, 2, 2, 64, false},  {1, 1, 2, 1, 128, false}, {2, 31, 1, 1, 128, false},
    {1, 64, 2, 1, 128, true},   {1, 65, 2, 2, 128, true}, {1, 130, 2, 1, 128, true},
    {1, 130, 1, 1, 128, false}, {1, 300, 1, 1, 64, true}, {1, 257, 1, 1, 128, true},
    {1, 70, 2, 2, 8, true},     {1, 33, 2, 1, 40, true},  {1, 129, 1, 1, 80, false},
    {1, 128, 3, 1, 96, true},
};

/* A number from `least` to `most`; numerical recipes' generator. */
static unsigned draw(uint32_t *state, unsigned least, unsigned most)
{
    *state = *state * 1664525u + 1013904223u;
    return least + (*state >> 8) % (most - least + 1);
}

/* Heads that the tensor cores do not take, or not in bf16. */
static const struct attention_shape odd_shapes[] = {
    {1, 1, 1, 1, 3, true},   {1, 33, 2, 1, 17, true},   {1, 70, 2, 2, 136, true},
    {1, 31, 1, 1, 5, false}, {1, 65, 2, 1, 256, false}, {2, 64, 1, 1, 100, true},
};

static double rms(const std::vector<double> &of)
{
    double sum = 0;

    for (double one : of)
        sum += one * one;
    return std::sqrt(sum / (double)of.size());
}

static struct mics_cuda_at at;

/* Whether `got` is near `want`; a NaN is not. Results that are all next to nothing are compared with 1. */
static bool near(const char *what, const struct attention_case &c, double slack,
                 const std::vector<double> &got, const std::vector<double> &want)
{
    double norm_limit = (c.dtype == MICS_BF16 ? 6e-3 : 1e-5) * slack;
    double most_limit = (c.dtype == MICS_BF16 ? 0.1 : 1e-4) * slack;
    double unit = rms(want) > 1e-6 ? rms(want) : 1, most = 0, sum = 0;
    const struct attention_shape &s = c.shape;
    bool good;

    for (size_t i = 0; i < want.size(); i++) {
        double error = std::fabs(got[i] - want[i]) / unit;

        most = error <= most ? most : error;
        sum += error * error;
    }
    sum = std::sqrt(sum / (double)want.size());
    good = sum <= norm_limit && most <= most_limit;
    if (!good)
        printf("# B %u T %u H %u H_kv %u D %u %s %s: %s: error %.3g, largest %.3g\n", s.B, s.T, s.H,
               s.H_kv, s.D, s.causal ? "causal" : "full", c.dtype == MICS_BF16 ? "bf16" : "fp32",
               what, sum, most);
    return good;
}

/* Run by a variant, and compare; one that does not take the shape is fine. */
static bool check_variant(struct attention_case *c, int variant, double slack)
{
    cudaError_t error = attention_case_run(c, &at, variant);

    if (error == cudaErrorNotSupported)
        return false;
    CHECK_INT(error, cudaSuccess);
    if (!c->got_out.empty()) {
        CHECK(near("out", *c, slack, c->got_out, c->out));
        CHECK(near("lse", *c, slack, c->got_lse, c->lse));
        CHECK(near("grad_qkv", *c, slack, c->got_grad, c->grad));
    }
    return true;
}

static void check(const struct attention_shape &shape, enum mics_dtype dtype, double size)
{
    struct attention_case c = attention_case_make(shape, dtype, size);
    double slack = size > 1 ? 3 : 1;
    int taken = 0;

    for (int i = 0; mics_attention_variant_at(i); i++) {
        int bad = tap_bad;

        taken += check_variant(&c, i, slack);
        if (tap_bad > bad)
            printf("# by variant '%s'\n", mics_attention_variant_at(i)->name);
    }
    CHECK(taken > 0);
}

static void bf16_attention_agrees_with_double(void)
{
    for (const struct attention_shape &shape : shapes)
        check(shape, MICS_BF16, 1);
}

static void bf16_attention_of_large_scores_agrees_with_double(void)
{
    check({1, 130, 1, 1, 64, true}, MICS_BF16, 4);
    check({1, 65, 1, 1, 128, false}, MICS_BF16, 4);
}

static void bf16_attention_of_random_shapes_agrees_with_double(void)
{
    uint32_t state = 1;

    for (int i = 0; i < 10; i++) {
        unsigned kv = draw(&state, 1, 2);
        struct attention_shape shape = {draw(&state, 1, 2),      draw(&state, 1, 140),
                                        kv * draw(&state, 1, 3), kv,
                                        8 * draw(&state, 1, 16), draw(&state, 0, 1) == 1};

        check(shape, MICS_BF16, 1);
    }
}

static void fp32_attention_agrees_with_double(void)
{
    for (const struct attention_shape &shape : shapes)
        if (shape.T <= 130)
            check(shape, MICS_F32, 1);
}

static void odd_heads_agree_with_double(void)
{
    for (const struct attention_shape &shape : odd_shapes) {
        check(shape, MICS_F32, 1);
        check(shape, MICS_BF16, 1);
    }
}

static void check_twice(int variant)
{
    struct attention_case c = attention_case_make({1, 150, 4, 2, 64, true}, MICS_BF16, 1), d = c;

#ifdef MICS_EMULATED
    emu_set_order(1);
#endif
    cudaError_t error = attention_case_run(&c, &at, variant);
#ifdef MICS_EMULATED
    emu_set_order(2);
#endif
    attention_case_run(&d, &at, variant);
#ifdef MICS_EMULATED
    emu_set_order(0);
#endif
    if (error == cudaErrorNotSupported)
        return;
    CHECK_INT(error, cudaSuccess);
    CHECK(c.got_out == d.got_out);
    CHECK(c.got_lse == d.got_lse);
    CHECK(c.got_grad == d.got_grad);
    CHECK(!c.got_grad.empty());
}

static void twice_the_same_gives_the_same_bits(void)
{
    for (int i = 0; mics_attention_variant_at(i); i++)
        check_twice(i);
}

/* Tiles that come by bulk copies lie in rings, whose places are used again and again; the emulator draws when. The
 * first keys' gradients are far above the mean here, and so is their rounding: twice the tolerance. */
static void long_sequences_go_round_the_rings_of_tiles(void)
{
    static const struct attention_shape long_shapes[] = {
        {1, 520, 1, 1, 64, true}, {1, 390, 2, 1, 128, true}, {1, 400, 1, 1, 128, false}};
    int hopper = mics_attention_variant_find("hopper");
    bool taken = false;

    for (const struct attention_shape &shape : long_shapes) {
        struct attention_case c = attention_case_make(shape, MICS_BF16, 1);

        for (int seed = 0; hopper >= 0 && seed < 3; seed++) {
#ifdef MICS_EMULATED
            emu_set_order((uint64_t)seed);
#endif
            taken |= check_variant(&c, hopper, 2);
        }
#ifdef MICS_EMULATED
        emu_set_order(0);
#endif
    }
    if (!taken)
        TAP_SKIP("for GPUs of compute capability 9.0");
}

static void rows_of_matrices_lie_in_different_banks(void)
{
#ifdef MICS_EMULATED
    uint64_t before = emu_bank_conflicts;

    check({1, 130, 2, 1, 64, true}, MICS_BF16, 1);
    check({1, 130, 2, 1, 128, true}, MICS_BF16, 1);
    CHECK_INT(emu_bank_conflicts, before);
#else
    TAP_SKIP("only the emulator counts");
#endif
}

static void no_tokens_are_no_work(void)
{
    check({0, 5, 1, 1, 64, true}, MICS_BF16, 1);
    check({2, 0, 1, 1, 64, true}, MICS_F32, 1);
}

int main(void)
{
    at = attention_case_device();
    TAP_RUN(bf16_attention_agrees_with_double);
    TAP_RUN(bf16_attention_of_large_scores_agrees_with_double);
    TAP_RUN(bf16_attention_of_random_shapes_agrees_with_double);
    TAP_RUN(fp32_attention_agrees_with_double);
    TAP_RUN(odd_heads_agree_with_double);
    TAP_RUN(twice_the_same_gives_the_same_bits);
    TAP_RUN(long_sequences_go_round_the_rings_of_tiles);
    TAP_RUN(rows_of_matrices_lie_in_different_banks);
    TAP_RUN(no_tokens_are_no_work);
    attention_case_device_close(&at);
    return tap_done();
}
