/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_attention_cudnn.cc - attention by cuDNN, against plain loops in double: skipped where the library is not.
 *
 * Tolerances: the norm of the error over that of the result, 6e-3, as of our own kernels; for grouped queries 1e-2,
 * because cuDNN rounds each head's gradient to bf16 before it adds them. On the emulator, which has a cuDNN where a
 * variable of the environment says so (tests/emulated/cudnn_graph.h), also slices, refusals and what is missing.
 */
#include "attention_case.h"

#if MICS_HAVE_CUDNN
#include "cuda/attention_cudnn.cuh"
#include <cudnn_graph.h>
#endif

#include "tap.h"

#include <cmath>
#include <cstdlib>
#include <string>

#if MICS_HAVE_CUDNN

static int cudnn(void)
{
    return mics_attention_variant_find("cudnn");
}

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

static double error_of(const std::vector<double> &got, const std::vector<double> &want)
{
    double difference = 0, norm = 0;

    if (got.size() != want.size())
        return INFINITY;
    for (size_t i = 0; i < want.size(); i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return std::sqrt(difference / norm);
}

/* cudaErrorNotSupported: it takes neither direction. */
static cudaError_t check(const struct mics_cuda_at *at, const struct attention_shape &shape)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1);
    const cudaError_t error = attention_case_run(&c, at, cudnn());
    const int bad = tap_bad;

    if (error == cudaErrorNotSupported)
        return error;
    CHECK_INT(error, cudaSuccess);
    CHECK_NEAR(error_of(c.got_out, c.out), 0, 6e-3);
    CHECK_NEAR(error_of(c.got_lse, c.lse), 0, 1e-5);
    CHECK_NEAR(error_of(c.got_grad, c.grad), 0, shape.H == shape.H_kv ? 6e-3 : 1e-2);
    if (tap_bad > bad)
        printf("# B %u T %u H %u of %u D %u %s\n", shape.B, shape.T, shape.H, shape.H_kv, shape.D,
               shape.causal ? "causal" : "full");
    return error;
}

static void attention_by_cudnn_agrees_with_double(void)
{
    static const struct attention_shape shapes[] = {
        {2, 128, 2, 2, 64, true},  {1, 256, 4, 2, 64, false}, {2, 130, 3, 3, 64, true},
        {1, 128, 4, 1, 128, true}, {2, 70, 2, 2, 128, false}, {1, 33, 2, 1, 40, true},
        {3, 65, 2, 2, 96, true},
    };
    struct mics_cuda_at at = attention_case_device();

    for (const struct attention_shape &shape : shapes)
        if (check(&at, shape) == cudaErrorNotSupported) {
            printf("# %s", told(&at).c_str());
            attention_case_device_close(&at);
            TAP_SKIP("cuDNN is not there, or does not take it");
        }
    attention_case_device_close(&at);
}

#ifdef MICS_EMULATED

static const struct attention_shape small = {3, 12, 4, 2, 64, true};

static void set_version(const char *version)
{
    if (version)
        setenv("MICS_EMULATED_CUDNN", version, 1);
    else
        unsetenv("MICS_EMULATED_CUDNN");
}

/* Of each key head of each sequence, which brings its size. */
static void want_workspace(const char *bytes)
{
    setenv("MICS_EMULATED_CUDNN_WORKSPACE", bytes, 1);
}

static bool has(const std::string &text, const char *part)
{
    if (text.find(part) != std::string::npos)
        return true;
    printf("# not in: %s\n", text.c_str());
    return false;
}

static bool is(const std::string &text, const char *want)
{
    if (text != want)
        printf("# not what was expected: %s\n", text.c_str());
    return text == want;
}

/* Run, as chosen or by cuDNN alone, on a new device; what was told. */
static std::string run(const struct attention_shape &shape, int variant, cudaError_t want)
{
    struct attention_case c = attention_case_make(shape, MICS_BF16, 1);
    struct mics_cuda_at at = attention_case_device();
    std::string text;

    CHECK_INT(attention_case_run(&c, &at, variant), want);
    text = told(&at);
    attention_case_device_close(&at);
    return text;
}

/* Slices of so many sequences and key heads are right, and there are as many plans of both directions. */
static void check_slices(const char *bytes, int plans)
{
    struct mics_cuda_at at = attention_case_device();
    const int before = emu_cudnn_plans();

    want_workspace(bytes);
    CHECK_INT(check(&at, small), cudaSuccess);
    CHECK_INT(emu_cudnn_plans() - before, plans);
    CHECK_INT(check(&at, small), cudaSuccess);
    CHECK_INT(emu_cudnn_plans() - before, plans); /* they were kept */
    attention_case_device_close(&at);
    want_workspace("0");
    CHECK_INT(emu_cudnn_alive(), 0);
}

static void what_does_not_fit_the_workspace_is_done_in_slices(void)
{
    set_version("91900");
    check_slices("0", 2);
    check_slices("8000000", 4);  /* two sequences, and one */
    check_slices("11000000", 2); /* a key head of all */
    check_slices("16000000", 2); /* one each time */
    check_slices("30000000", 2); /* a key head of a sequence */
}

static void what_does_not_fit_in_any_slice_is_not_taken(void)
{
    set_version("91900");
    want_workspace("40000000");
    CHECK(
        has(run(small, cudnn(), cudaErrorNotSupported),
            "2 attention's gradient, B 3 T 12 H 4 of 2 D 64, causal: not by cuDNN: no slice of it "
            "fits a workspace of 32 MiB"));
    want_workspace("0");
}

static void what_cudnn_refuses_is_not_taken(void)
{
    set_version("91900");
    CHECK(has(run({1, 1, 1, 1, 64, true}, cudnn(), cudaSuccess),
              "not by cuDNN: a gradient of single tokens"));
    CHECK_INT(mics_attention_variant_find("nobody"), -1);
}

static void older_versions_take_less(void)
{
    set_version("91500");
    CHECK(has(run({1, 130, 1, 1, 64, true}, cudnn(), cudaSuccess),
              "up to 9.15.0, a gradient of sequences that are no multiple of 128"));
    CHECK(is(run({1, 128, 1, 1, 64, true}, cudnn(), cudaSuccess), ""));
    set_version("91001");
    CHECK(is(run(small, cudnn(), cudaErrorNotSupported),
             "1 attention without cuDNN: cuDNN 9.10.1 is too old: 9.10.2 is the first to be "
             "used\n"));
}

static void a_missing_library_is_told_once(void)
{
    set_version(NULL);
    CHECK(is(run(small, cudnn(), cudaErrorNotSupported),
             "1 attention without cuDNN: there is no libcudnn.so.9 that can be opened\n"));
    setenv("MICS_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CHECK(is(run(small, cudnn(), cudaErrorNotSupported),
             "1 attention without cuDNN: there is no /nowhere/libcudnn.so.9 that can be opened\n"));
    unsetenv("MICS_CUDNN");
}

static void it_can_be_named_or_left_out(void)
{
    set_version("91900");
    setenv("MICS_CUDNN", "emulated", 1);
    CHECK(is(run(small, cudnn(), cudaSuccess), ""));
    setenv("MICS_CUDNN", "0", 1);
    CHECK(is(run(small, cudnn(), cudaErrorNotSupported),
             "1 attention without cuDNN: MICS_CUDNN=0 leaves cuDNN out\n"));
    unsetenv("MICS_CUDNN");
}

/* cuDNN is tried beside the others, and is right. */
static void it_is_a_choice(void)
{
    int before = emu_cudnn_plans();
    std::string text;

    set_version("91900");
    text = run(small, -1, cudaSuccess);
    CHECK_INT(emu_cudnn_plans() - before, 2);
    CHECK(has(text, "2 attention, B 3 T 12 H 4 of 2 D 64, causal, bf16: variant "));
    CHECK(text.find("wrong") == std::string::npos);
    setenv("MICS_CUDA_MEASURE", "0", 1);
    before = emu_cudnn_plans();
    CHECK(is(run(small, -1, cudaSuccess), ""));
    CHECK_INT(emu_cudnn_plans(), before); /* the same bits in every run: not by cuDNN */
    unsetenv("MICS_CUDA_MEASURE");
}

static void who_insists_learns_why_not(void)
{
    setenv("MICS_CUDA_ATTENTION", "cudnn", 1);
    set_version("91900");
    CHECK(is(run(small, -1, cudaSuccess), ""));
    set_version(NULL);
    CHECK(has(run(small, -1, cudaErrorNotSupported),
              "0 attention without cuDNN: there is no libcudnn.so.9"));
    unsetenv("MICS_CUDA_ATTENTION");
}

#endif

int main(void)
{
#ifdef MICS_EMULATED
    set_version("91900");
#endif
    TAP_RUN(attention_by_cudnn_agrees_with_double);
#ifdef MICS_EMULATED
    TAP_RUN(what_does_not_fit_the_workspace_is_done_in_slices);
    TAP_RUN(what_does_not_fit_in_any_slice_is_not_taken);
    TAP_RUN(what_cudnn_refuses_is_not_taken);
    TAP_RUN(older_versions_take_less);
    TAP_RUN(a_missing_library_is_told_once);
    TAP_RUN(it_can_be_named_or_left_out);
    TAP_RUN(it_is_a_choice);
    TAP_RUN(who_insists_learns_why_not);
#endif
    return tap_done();
}

#else

static void attention_by_cudnn_agrees_with_double(void)
{
    TAP_SKIP("this was built without cuDNN");
}

int main(void)
{
    TAP_RUN(attention_by_cudnn_agrees_with_double);
    return tap_done();
}

#endif
