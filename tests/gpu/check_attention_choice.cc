/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_attention_choice.cc - that the fastest variant of attention is found, and only one that is right.
 *
 * On a GPU: what is chosen is right, and said. On the emulator there is a variant that is faster or slower than the
 * kernels, or wrong, as a variable of the environment asks (tests/emulated/attention_emulated.h).
 */
#include "attention_case.h"

#include "tap.h"

#include <cmath>
#include <cstdlib>
#include <string>

static const struct attention_shape shape = {1, 96, 2, 2, 64, true};

/* Everything that was told, line by line, with its level. */
static std::string told(struct mics_cuda_at *at)
{
    char text[MICS_CUDA_NOTE_BYTES];
    std::string all;
    int level;

    while (mics_cuda_choices_next_note(at->choices, &level, text))
        all += std::to_string(level) + " " + text + "\n";
    return all;
}

static bool has(const std::string &text, const char *part)
{
    if (text.find(part) != std::string::npos)
        return true;
    printf("# not in: %s\n", text.c_str());
    return false;
}

static bool is_nothing(const std::string &text)
{
    if (!text.empty())
        printf("# %s\n", text.c_str());
    return text.empty();
}

/* The norm of the difference over the norm. */
static double error_of(const std::vector<double> &got, const std::vector<double> &want)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < want.size() && got.size() == want.size(); i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return std::sqrt(difference / norm);
}

static void check_right(const struct attention_case &c)
{
    CHECK_NEAR(error_of(c.got_out, c.out), 0, 6e-3);
    CHECK_NEAR(error_of(c.got_lse, c.lse), 0, 1e-5);
    CHECK_NEAR(error_of(c.got_grad, c.grad), 0, 6e-3);
}

static void what_is_chosen_is_right_and_said(void)
{
    struct attention_case c = attention_case_make({1, 130, 2, 1, 128, true}, MICS_BF16, 1);
    struct mics_cuda_at at = attention_case_device();
    std::string text;

    CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
    check_right(c);
    text = told(&at);
    CHECK(text.compare(0, 2, "0 ") != 0 && text.find("\n0 ") == std::string::npos);
    for (size_t line = 0; line < text.size(); line = text.find('\n', line) + 1)
        printf("# %s\n", text.substr(line, text.find('\n', line) - line).c_str());
    CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
    CHECK(is_nothing(told(&at)));
    attention_case_device_close(&at);
}

#ifdef MICS_EMULATED

/* Run a case on a new device; what was told. */
static std::string run(struct attention_case *c, cudaError_t want)
{
    struct mics_cuda_at at = attention_case_device();
    std::string text;

    CHECK_INT(attention_case_run(c, &at, -1), want);
    text = told(&at);
    attention_case_device_close(&at);
    return text;
}

static void set(const char *mode)
{
    setenv("MICS_EMULATED_ATTENTION", mode, 1);
}

static void the_faster_variant_is_taken(void)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1);
    std::string text;

    set("right");
    text = run(&c, cudaSuccess);
    check_right(c);
    CHECK(has(text, "2 attention, B 1 T 96 H 2 of 2 D 64, causal, bf16: variant 'emulated', "));
    CHECK(has(text, "2 attention's gradient, B 1 T 96 H 2 of 2 D 64, causal, bf16: variant "
                    "'emulated', "));
}

/* The shape is so small that the kernels take far less than the nap. */
static void the_slower_variant_is_not(void)
{
    struct attention_case c = attention_case_make({1, 20, 1, 1, 64, true}, MICS_BF16, 1);
    std::string text;

    set("slow");
    text = run(&c, cudaSuccess);
    check_right(c);
    CHECK(has(text, "2 attention, B 1 T 20 H 1 of 1 D 64, causal, bf16: variant 'mma', "));
    CHECK(text.find("variant 'emulated'") == std::string::npos);
}

/* Nothing of a wrong variant's gets into the results, and it is never tried again. */
static void a_wrong_variant_is_left_out_with_a_warning(void)
{
    for (const char *mode : {"wrong", "silent"}) {
        struct attention_case c = attention_case_make(shape, MICS_BF16, 1);
        struct attention_case other = attention_case_make({1, 33, 1, 1, 64, false}, MICS_BF16, 1);
        struct mics_cuda_at at = attention_case_device();
        std::string text;

        set(mode);
        CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
        check_right(c);
        text = told(&at);
        CHECK(has(text, "0 attention, B 1 T 96 H 2 of 2 D 64, causal, bf16: variant 'emulated' is "
                        "wrong and left out: out differs from that of 'mma' by "));
        CHECK(has(text, "0 attention's gradient, B 1 T 96"));
        set("right");
        CHECK_INT(attention_case_run(&other, &at, -1), cudaSuccess);
        check_right(other);
        CHECK(is_nothing(told(&at)));
        attention_case_device_close(&at);
    }
}

/* A choice of another shape gives way when its variant turns out to be wrong. */
static void a_shape_loses_a_variant_that_was_found_wrong(void)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1);
    struct attention_case other = attention_case_make({1, 33, 1, 1, 64, false}, MICS_BF16, 1);
    struct mics_cuda_at at = attention_case_device();

    set("right");
    CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
    CHECK(has(told(&at), "variant 'emulated', "));
    set("wrong");
    CHECK_INT(attention_case_run(&other, &at, -1), cudaSuccess);
    CHECK(has(told(&at), "left out"));
    CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
    check_right(c);
    attention_case_device_close(&at);
}

static void a_variant_that_does_not_run_is_left_out(void)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1);

    set("failing");
    CHECK(has(run(&c, cudaSuccess), "1 attention, B 1 T 96 H 2 of 2 D 64, causal, bf16: variant "
                                    "'emulated' does not run: not supported"));
    check_right(c);
}

static void without_measuring_the_reference_is_taken(void)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1), d = c;

    set("right");
    setenv("MICS_CUDA_MEASURE", "0", 1);
    CHECK(is_nothing(run(&c, cudaSuccess)));
    setenv("MICS_CUDA_ATTENTION", "mma", 1);
    CHECK(is_nothing(run(&d, cudaSuccess)));
    unsetenv("MICS_CUDA_ATTENTION");
    unsetenv("MICS_CUDA_MEASURE");
    CHECK(c.got_out == d.got_out && c.got_grad == d.got_grad && !c.got_out.empty());
}

static void one_can_insist_on_a_variant(void)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1), d = c;
    struct attention_case fp32 = attention_case_make(shape, MICS_F32, 1);

    set("slow");
    setenv("MICS_CUDA_ATTENTION", "emulated", 1);
    CHECK(is_nothing(run(&c, cudaSuccess)));
    check_right(c);
    CHECK(has(run(&fp32, cudaErrorNotSupported),
              "0 MICS_CUDA_ATTENTION=emulated does not take attention, B 1 T 96 H 2 of 2 D 64, "
              "causal, fp32"));
    set("wrong");
    CHECK(has(run(&c, cudaErrorNotSupported), "is wrong and left out"));
    setenv("MICS_CUDA_ATTENTION", "mma", 1);
    CHECK(is_nothing(run(&d, cudaSuccess)));
    CHECK(d.got_out != c.got_out);
    unsetenv("MICS_CUDA_ATTENTION");
}

static void an_unknown_variant_is_refused(void)
{
    struct mics_cuda_choices *choices;

    setenv("MICS_CUDA_ATTENTION", "none", 1);
    CHECK_INT(mics_cuda_choices_open(&choices), cudaErrorInvalidValue);
    unsetenv("MICS_CUDA_ATTENTION");
}

/* Where all is 0, right and wrong look the same: the shape is looked at again. */
static void results_of_zero_prove_nothing(void)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1), zero = c;
    struct mics_cuda_at at = attention_case_device();

    set("wrong");
    zero.qkv.assign(zero.qkv.size(), 0);
    CHECK_INT(attention_case_run(&zero, &at, -1), cudaSuccess);
    CHECK(is_nothing(told(&at)));
    CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
    check_right(c);
    CHECK(has(told(&at), "left out"));
    attention_case_device_close(&at);
}

/* Run a case of `B` sequences, each with half a mebibyte of outputs and three times that of gradients, with `spare`
 * bytes left; what was told. */
static std::string run_with_memory(unsigned B, size_t spare)
{
    const struct attention_shape s = {B, 64, 64, 64, 64, true};
    struct attention_case c = attention_case_make(s, MICS_BF16, 1);
    struct mics_cuda_at at = attention_case_device();
    const size_t row = (size_t)s.B * s.T * s.H, own = row * s.D * 2 * 8 + row * 4 * 2;
    std::string text;

    setenv("MICS_EMULATED_MEMORY",
           std::to_string(MICS_CUDA_WORKSPACE_BYTES + own + 4096 + spare).c_str(), 1);
    CHECK_INT(attention_case_run(&c, &at, -1), cudaSuccess);
    unsetenv("MICS_EMULATED_MEMORY");
    check_right(c);
    text = told(&at);
    attention_case_device_close(&at);
    return text;
}

static void with_little_memory_some_sequences_are_compared(void)
{
    std::string text;

    set("wrong"); /* in the first sequence, for which there is memory forward */
    text = run_with_memory(2, 3 << 18);
    CHECK(has(text, "0 attention, B 2 T 64"));
    CHECK(has(text, "1 attention's gradient, B 2 T 64 H 64 of 64 D 64, causal, bf16: no memory"));
}

static void without_memory_the_reference_is_taken(void)
{
    set("right");
    CHECK(has(run_with_memory(1, 0), "no memory to compare variants: 'mma' is taken"));
}

#endif

int main(void)
{
    TAP_RUN(what_is_chosen_is_right_and_said);
#ifdef MICS_EMULATED
    setenv("MICS_EMULATED_ARCH", "80", 1); /* no variants but the reference and the emulator's */
    TAP_RUN(the_faster_variant_is_taken);
    TAP_RUN(the_slower_variant_is_not);
    TAP_RUN(a_wrong_variant_is_left_out_with_a_warning);
    TAP_RUN(a_shape_loses_a_variant_that_was_found_wrong);
    TAP_RUN(a_variant_that_does_not_run_is_left_out);
    TAP_RUN(without_measuring_the_reference_is_taken);
    TAP_RUN(one_can_insist_on_a_variant);
    TAP_RUN(an_unknown_variant_is_refused);
    TAP_RUN(results_of_zero_prove_nothing);
    TAP_RUN(with_little_memory_some_sequences_are_compared);
    TAP_RUN(without_memory_the_reference_is_taken);
#endif
    return tap_done();
}
