/* SPDX-License-Identifier: Apache-2.0 */
/* test_compute.c - seconds of kernels, against published measurements and by hand. */
#include "tap.h"
#include "topology/compute.h"

#include <string.h>

static struct mics_compute open_compute(const char *text, enum mics_profile profile)
{
    struct mics_topology *topology = NULL;
    struct mics_compute compute;

    CHECK_INT(mics_topology_parse(text, &topology, NULL), MICS_OK);
    topology->profile = profile;
    mics_compute_init(&compute, topology);
    compute.topology = NULL; /* of a GPU not needed any more */
    mics_topology_free(topology);
    return compute;
}

static double seconds(const struct mics_compute *compute, enum mics_kernel kernel, const void *args)
{
    struct mics_kernel_work work;

    mics_kernel_work_of(kernel, args, &work);
    const struct mics_launch_cost cost = mics_compute_launch(compute, &work);
    return mics_compute_seconds(compute, &cost);
}

static double product(const struct mics_compute *compute, uint32_t m, uint32_t n, uint32_t k,
                      enum mics_dtype dtype)
{
    const struct mics_args_matmul op = {
        .m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldout = n, .dtype = dtype, .out_dtype = dtype};

    return seconds(compute, MICS_K_MATMUL, &op);
}

static double tflops(const struct mics_compute *compute, uint32_t n)
{
    return 2e-12 * n * n * n / product(compute, n, n, n, MICS_BF16);
}

/* A100: NVIDIA, "CUDA 11 features revealed". */
static void square_products_of_an_a100_take_as_long_as_measured(void)
{
    static const struct {
        uint32_t n;
        double tflops;
    } measured[] = {{2048, 195}, {3072, 235}, {4096, 260}, {5120, 260}, {6144, 277}, {8192, 291}};
    const struct mics_compute a100 = open_compute("p4de", MICS_PROFILE_MICS);

    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        CHECK_NEAR(tflops(&a100, measured[i].n), measured[i].tflops, 0.15 * measured[i].tflops);
}

/* H100: the average of the shapes of Llama 70B at tensor parallelism 8, 720 (SemiAnalysis,
 * 2024). */
static void large_products_of_an_h100_sustain_what_the_power_limit_leaves(void)
{
    static const uint32_t nk[][2] = {{8192, 1280}, {1024, 8192}, {8192, 7168}, {3584, 8192}};
    const struct mics_compute h100 = open_compute("p5", MICS_PROFILE_MICS);
    double sum = tflops(&h100, 8192);

    for (size_t i = 0; i < 4; i++)
        sum += 2e-12 * 16384 * nk[i][0] * nk[i][1] /
               product(&h100, 16384, nk[i][0], nk[i][1], MICS_BF16);
    CHECK_NEAR(sum / 5, 720, 0.05 * 720);
}

static void small_products_are_slow_and_never_beat_the_memory(void)
{
    const struct mics_compute h100 = open_compute("p5", MICS_PROFILE_MICS);
    const double thin = product(&h100, 16384, 8192, 8, MICS_BF16);

    CHECK(tflops(&h100, 1024) < 0.5 * tflops(&h100, 8192));
    CHECK(tflops(&h100, 128) < 0.01 * tflops(&h100, 8192));
    CHECK(thin > 2.0 * (16384.0 * 8192 + 8 * (16384 + 8192)) / 2.95e12);
}

/* One tile more than a wave takes nearly a wave longer. */
static void the_last_wave_counts_whole(void)
{
    const struct mics_compute a100 = open_compute("p4de", MICS_PROFILE_MICS);
    const double full = product(&a100, 256 * 108, 4096, 8192, MICS_BF16);
    const double more = product(&a100, 256 * 109, 4096, 8192, MICS_BF16);

    CHECK(more > full && more < 1.1 * full);
    CHECK(product(&a100, 256 * 27, 512, 8192, MICS_BF16) >
          0.9 * product(&a100, 256 * 27, 256, 8192, MICS_BF16));
}

static void each_type_has_its_rate(void)
{
    const struct mics_compute a100 = open_compute("p4de", MICS_PROFILE_MICS);
    const struct mics_compute v100 = open_compute("p3dn", MICS_PROFILE_MICS);
    const double flops = 2.0 * 8192 * 8192 * 8192;

    CHECK(flops / product(&a100, 8192, 8192, 8192, MICS_F32) < 19.5e12);
    CHECK(flops / product(&a100, 8192, 8192, 8192, MICS_F32) > 15e12);
    CHECK(flops / product(&v100, 8192, 8192, 8192, MICS_F32) < 15.7e12);
    CHECK(flops / product(&v100, 8192, 8192, 8192, MICS_BF16) < 10.1e12); /* emulated */
}

/* FlashAttention-2's figures: 16k tokens, 2048 channels, forward and backward together. */
static void attention_takes_as_long_as_flashattention_2(void)
{
    static const struct {
        const char *machine;
        uint32_t T, D;
        double tflops;
    } measured[] = {{"p4de", 1024, 64, 119}, {"p4de", 4096, 128, 173}, {"p4de", 16384, 128, 189},
                    {"p5", 1024, 64, 192},   {"p5", 2048, 128, 265},   {"p5", 8192, 128, 308}};

    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const struct mics_compute compute = open_compute(measured[i].machine, MICS_PROFILE_MICS);
        const uint32_t T = measured[i].T, D = measured[i].D, B = 16384 / T, H = 2048 / D;
        const struct mics_args_attention forward = {
            .B = B, .T = T, .H = H, .H_kv = H, .D = D, .causal = true, .dtype = MICS_BF16};
        const struct mics_args_attention_grad grad = {
            .B = B, .T = T, .H = H, .H_kv = H, .D = D, .causal = true, .dtype = MICS_BF16};
        const double total = seconds(&compute, MICS_K_ATTENTION, &forward) +
                             seconds(&compute, MICS_K_ATTENTION_GRAD, &grad);
        const double flops = 3.5 * 4 * B * T * (double)T * 2048 / 2;

        CHECK_NEAR(1e-12 * flops / total, measured[i].tflops, 0.05 * measured[i].tflops);
    }
}

/* Less time for a shorter window, more than in proportion, and never more than without one. */
static void a_window_saves_time(void)
{
    const struct mics_compute compute = open_compute("p5", MICS_PROFILE_MICS);
    struct mics_args_attention op = {
        .B = 1, .T = 16384, .H = 32, .H_kv = 8, .D = 128, .causal = true, .dtype = MICS_BF16};
    const double all = seconds(&compute, MICS_K_ATTENTION, &op);
    double before = all;

    for (op.window = 16384; op.window >= 64; op.window /= 2) {
        const double now = seconds(&compute, MICS_K_ATTENTION, &op);

        CHECK(op.window == 16384 ? now <= all && now >= all : now < before);
        CHECK(now > all * mics_attention_pairs(op.T, op.window) / mics_attention_pairs(op.T, op.T) *
                        0.999);
        before = now;
    }
}

/* The host launches 4.3 us for each kernel, however small it is. */
static void tiny_kernels_wait_for_the_host(void)
{
    const struct mics_compute h100 = open_compute("p5", MICS_PROFILE_MICS);
    const struct mics_args_gelu tiny = {.count = 8, .dtype = MICS_BF16};
    const struct mics_args_gelu large = {.count = 1u << 30, .dtype = MICS_BF16};

    CHECK_NEAR(seconds(&h100, MICS_K_GELU, &tiny), 4.3e-6, 1e-9);
    CHECK_NEAR(seconds(&h100, MICS_K_GELU, &large), 4.0 * (1u << 30) / 2.948e12, 10e-6);
}

static void the_profile_of_pytorch_is_slower(void)
{
    const struct mics_compute h100 = open_compute("p5", MICS_PROFILE_MICS);
    const struct mics_compute eager = open_compute("p5", MICS_PROFILE_PYTORCH);
    const struct mics_compute a100 = open_compute("p4d", MICS_PROFILE_MICS);
    const struct mics_compute old = open_compute("p4d", MICS_PROFILE_PYTORCH);
    const struct mics_args_gelu pass = {.count = 1u << 30, .dtype = MICS_BF16};

    CHECK_NEAR(product(&eager, 8192, 8192, 8192, MICS_BF16),
               product(&h100, 8192, 8192, 8192, MICS_BF16) / 0.72, 1e-9);
    CHECK_NEAR(product(&old, 8192, 8192, 8192, MICS_BF16),
               product(&a100, 8192, 8192, 8192, MICS_BF16), 1e-12);
    CHECK_NEAR(seconds(&old, MICS_K_GELU, &pass), 2.2 * seconds(&a100, MICS_K_GELU, &pass), 1e-5);
}

/* An old document of a GPU by name has the catalogue's multiprocessors, an unknown GPU as many
 * as its FLOP/s need; in both the measured FLOP/s count. */
static void rates_that_are_missing_are_derived(void)
{
    struct mics_topology topology = {.device = "NVIDIA H100 80GB HBM3",
                                     .flops = 700e12,
                                     .flops_dtype = "bf16",
                                     .memory_bandwidth = 2.9e12};
    struct mics_compute compute;

    mics_compute_init(&compute, &topology);
    CHECK_INT(compute.rates.sms, 132);
    CHECK_NEAR(compute.rates.bf16, 700e12, 1e6);
    CHECK_NEAR(compute.rates.f32, 67e12 * 700 / 989, 1e9);
    strcpy(topology.device, "somebody's GPU");
    mics_compute_init(&compute, &topology);
    CHECK_INT(compute.rates.sms, 148);
    CHECK_NEAR(compute.rates.bf16, 700e12, 1e6);
    topology.flops = 25.2e12;
    mics_compute_init(&compute, &topology);
    CHECK_INT(compute.rates.sms, 10);
    topology.flops = 700e12;
    strcpy(topology.flops_dtype, "f32");
    mics_compute_init(&compute, &topology);
    CHECK_NEAR(compute.rates.f32, 700e12, 1e6);
    CHECK_NEAR(compute.rates.bf16, 700e12, 1e6);
}

static void a_host_has_a_roofline(void)
{
    const struct mics_topology host = {
        .device = "host", .flops = 1e11, .flops_dtype = "f32", .memory_bandwidth = 1e10};
    const struct mics_args_gelu pass = {.count = 1000000, .dtype = MICS_F32};
    struct mics_compute compute;

    mics_compute_init(&compute, &host);
    CHECK_NEAR(product(&compute, 1000, 1000, 1000, MICS_F32), 2e9 / 1e11, 1e-12);
    CHECK_NEAR(seconds(&compute, MICS_K_GELU, &pass), 8e6 / 1e10, 1e-12);
}

/* A host that multiplies bf16 computes fp16 in fp32. */
static void products_of_fp16_do_not_take_the_time_of_bf16_on_a_host(void)
{
    const struct mics_topology host = {
        .device = "host", .flops = 4e11, .flops_dtype = "bf16", .memory_bandwidth = 1e10};
    struct mics_compute compute;

    mics_compute_init(&compute, &host);
    CHECK_NEAR(product(&compute, 1000, 1000, 1000, MICS_BF16), 2e9 / 4e11, 1e-12);
    CHECK_NEAR(product(&compute, 1000, 1000, 1000, MICS_F16), 2e9 / 2e11, 1e-12);
}

int main(void)
{
    TAP_RUN(square_products_of_an_a100_take_as_long_as_measured);
    TAP_RUN(large_products_of_an_h100_sustain_what_the_power_limit_leaves);
    TAP_RUN(small_products_are_slow_and_never_beat_the_memory);
    TAP_RUN(the_last_wave_counts_whole);
    TAP_RUN(each_type_has_its_rate);
    TAP_RUN(attention_takes_as_long_as_flashattention_2);
    TAP_RUN(a_window_saves_time);
    TAP_RUN(tiny_kernels_wait_for_the_host);
    TAP_RUN(the_profile_of_pytorch_is_slower);
    TAP_RUN(rates_that_are_missing_are_derived);
    TAP_RUN(a_host_has_a_roofline);
    TAP_RUN(products_of_fp16_do_not_take_the_time_of_bf16_on_a_host);
    return tap_done();
}
