/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute.c - the model of kernels on a GPU, and its constants.
 *
 * Constants that differ between GPUs are in the catalogue (share/mics/instances.json), with their
 * sources; those of this file hold for all GPUs.
 */
#include "topology/compute.h"

#include "topology/catalogue.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A launch that does not wait for the host takes 1.8 us on the GPU (a kernel of 24.0 us in a
 * replayed graph: 25.8), a launch by the host 4.3 us (28.3): dogacel.github.io, B200. */
static const double gap_s = 1.8e-6, host_launch_s = 4.3e-6;

/* Rows that are not multiples of 16 bytes: 273 of 398 TFLOP/s, H100, bf16, 10922 instead of 10944
 * columns (stas00/ml-engineering, swiglu-maf-bench). */
static const double misaligned = 0.69;

/* Tiles of cuBLAS, and their efficiency relative to the largest: smaller ones read operands more
 * often. The square products of an H100, an A100 and a V100 from 1024 to 10240 are reproduced
 * within 10 % (sources: the catalogue). */
static const struct tile {
    uint32_t m, n;
    double efficiency;
} tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.88}, {64, 128, 0.66}};

enum { SPLITS_MAX = 8, LENGTHS = 6, QUERY_ROWS = 128, KEY_ROWS = 64 };

/* FlashAttention-2, bf16, TFLOP/s at lengths of 512, 1k, 2k, 4k, 8k and 16k, heads of 64 and 128
 * channels: forward and backward together (figures of Dao-AILab/flash-attention, 2.0), and forward
 * alone (figures of FlashAttention-3 for the H100; for the A100 1.1 times both together, as in its
 * repository). FLOPs of causal attention are counted half. */
struct attention_rates {
    const char *gpu;
    double both[2][2][LENGTHS], forward[2][LENGTHS]; /* [causal][head], of causal [head] */
};
static const struct attention_rates attention_rates[] = {
    {"A100",
     {{{132, 153, 162, 171, 175, 176}, {151, 173, 187, 196, 201, 203}},
      {{88, 119, 140, 156, 165, 171}, {99, 133, 155, 173, 182, 189}}},
     {{97, 131, 154, 172, 182, 188}, {109, 146, 171, 190, 200, 208}}},
    {"H100",
     {{{215, 254, 274, 288, 294, 296}, {248, 294, 320, 326, 335, 338}},
      {{141, 192, 232, 257, 273, 284}, {163, 221, 265, 294, 308, 328}}},
     {{180, 229, 262, 284, 295, 299}, {191, 260, 298, 319, 333, 335}}},
};

static const struct attention_rates *find_attention(const char *gpu)
{
    for (size_t i = 0; i < sizeof attention_rates / sizeof *attention_rates; i++)
        if (strcmp(attention_rates[i].gpu, gpu) == 0)
            return &attention_rates[i];
    return NULL;
}

bool mics_gpu_attention_is_known(const char *gpu)
{
    return find_attention(gpu) != NULL;
}

/* Between two lengths in proportion to the logarithm; beyond the last constant. Below the first a
 * block of rows has fewer keys, and the time of one is that at 512. */
static double at_length(const double rates[LENGTHS], uint32_t T)
{
    const double place = log2(fmax(1, T)) - 9;
    const int i = (int)fmin(fmax(place, 0), LENGTHS - 2);

    if (place < 0)
        return rates[0] * T / 512;
    return rates[i] + fmin(place - i, 1) * (rates[i + 1] - rates[i]);
}

/* A head of fewer than 64 channels takes as long as one of 64. */
static double at_head(const double rates[2][LENGTHS], uint32_t T, uint32_t D)
{
    const double narrow = at_length(rates[0], T), wide = at_length(rates[1], T);

    if (D < 64)
        return narrow * D / 64;
    return D > 128 ? wide : narrow + (D - 64) / 64.0 * (wide - narrow);
}

/* TFLOP/s of the GPU of the figures. With a window rows are as long as those of a causal sequence
 * of twice the window are on average, and a block of queries computes whole blocks at both ends. */
static double attention_rate(const struct attention_rates *of, const struct mics_kernel_work *work)
{
    const uint32_t seen = work->window < 256 ? 512 : 2 * work->window; /* the first length: 512 */
    const uint32_t T = work->window && seen < work->T ? seen : work->T;
    const double counted = work->window ? mics_attention_pairs(work->T, work->window) /
                                              mics_attention_pairs(work->T, work->window + KEY_ROWS)
                                        : 1;
    const double both = at_head(of->both[work->causal], T, work->D) * counted;
    const double causal = at_head(of->both[1], T, work->D);
    const double forward = at_head(of->forward, T, work->D) * both / causal;

    /* 2 of 7 products are the forward's. */
    return work->gradient ? 5 / (7 / both - 2 / forward) : forward;
}

/* FLOP/s of products of this type. */
static double product_rate(const struct mics_gpu_rates *rates, enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? rates->bf16 : dtype == MICS_F16 ? rates->f16 : rates->f32;
}

static double ceil_div(double a, double b)
{
    return ceil(a / b);
}

/* The fastest of all tiles and splits of the sum over k. A wave computes 2 Tm Tn k FLOPs on each
 * multiprocessor and then writes its tiles, which half overlaps with the next wave. Partial sums of
 * a split are written and read in fp32. */
static double product_seconds(const struct mics_compute *compute,
                              const struct mics_kernel_work *work)
{
    const double sms = compute->rates.sms, bandwidth = compute->bandwidth;
    const double rate =
        product_rate(&compute->rates, work->dtype) * (work->aligned ? 1 : misaligned);
    double best = INFINITY;

    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (uint32_t split = 1; split <= SPLITS_MAX; split *= 2) {
            const double area = (double)tiles[i].m * tiles[i].n;
            const double blocks =
                ceil_div(work->m, tiles[i].m) * ceil_div(work->n, tiles[i].n) * split;
            const double sums = split > 1 ? 2.0 * sizeof(float) * split * work->m * work->n : 0;
            const double wave_s =
                2 * area * ceil_div(work->k, split) * sms / (rate * tiles[i].efficiency) +
                0.5 * area * (split > 1 ? sizeof(float) : work->out_bytes) * sms / bandwidth;

            best = fmin(best, ceil_div(blocks, sms) * wave_s + sums / bandwidth);
        }
    return fmax(best, (work->read + work->written) / bandwidth) + compute->rates.product_overhead_s;
}

/* A block takes 128 rows of a head. FlashAttention is of 16-bit types; other types have the same
 * part of the rate of products. */
static double attention_seconds(const struct mics_compute *compute,
                                const struct mics_kernel_work *work)
{
    const struct mics_gpu_rates *rates = &compute->rates;
    const double blocks = work->heads * ceil_div(work->T, QUERY_ROWS);
    const double waves = blocks / rates->sms;
    const double rate = 1e12 * attention_rate(find_attention(rates->attention), work) *
                        rates->attention_factor * product_rate(rates, work->dtype) / rates->f16;

    return fmax(work->flops / rate * ceil(waves) / waves,
                (work->read + work->written) / compute->bandwidth) +
           work->kernels * gap_s;
}

static double gpu_seconds(const struct mics_compute *compute, const struct mics_kernel_work *work)
{
    switch (work->work_class) {
    case MICS_WORK_PRODUCT:
        return product_seconds(compute, work);
    case MICS_WORK_ATTENTION:
        return attention_seconds(compute, work);
    case MICS_WORK_MEMORY:
        return compute->traffic * (work->read + work->written) / compute->bandwidth +
               work->kernels * gap_s;
    case MICS_WORK_COPY:
        return (work->read + work->written) / compute->bandwidth + work->kernels * gap_s;
    case MICS_WORK_CALL:
        break;
    }
    return 0;
}

/* Hosts compute products of fp16 in fp32, at half of the rate that they have in bf16 where they
 * multiply that: AVX512_BF16's; nothing else is known of them here. */
static double host_seconds(const struct mics_compute *compute, const struct mics_kernel_work *work)
{
    const bool of_bf16 = strcmp(compute->topology->flops_dtype, "bf16") == 0;
    const double flops = compute->topology->flops * (of_bf16 && work->dtype == MICS_F16 ? 0.5 : 1);

    return fmax(work->flops / flops, (work->read + work->written) / compute->bandwidth);
}

struct mics_launch_cost mics_compute_launch(const struct mics_compute *compute,
                                            const struct mics_kernel_work *work)
{
    if (!compute->gpu)
        return (struct mics_launch_cost){.device_s = host_seconds(compute, work)};
    return (struct mics_launch_cost){.device_s = gpu_seconds(compute, work),
                                     .host_s = work->kernels * host_launch_s};
}

double mics_compute_seconds(const struct mics_compute *compute,
                            const struct mics_launch_cost *launches)
{
    return fmax(launches->device_s, launches->host_s) / compute->efficiency;
}

/* A GPU of which nothing else is known has at most so many multiprocessors. */
enum { SMS_MAX = 148 };

/* The rates of a topology that does not have them, in proportion to its FLOP/s: what the catalogue
 * has for a GPU of this name, else a GPU of so many of an A100's multiprocessors, with fp32 at 1/16
 * of bf16. */
static struct mics_gpu_rates derive_rates(const struct mics_topology *topology)
{
    const bool f32 = strcmp(topology->flops_dtype, "f32") == 0;
    struct mics_gpu_rates rates = {0};
    const bool known = mics_catalogue_gpu_rates(topology->device, &rates);

    if (!known)
        (void)mics_catalogue_gpu_rates("A100", &rates);
    if (!known && f32)
        rates.f32 = rates.tf32 = rates.bf16; /* no faster type is known */
    const double scale =
        topology->flops / (f32                                         ? rates.f32
                           : strcmp(topology->flops_dtype, "f16") == 0 ? rates.f16
                                                                       : rates.bf16);
    if (!known)
        rates.sms = (uint32_t)fmin(fmax(1, round(scale * rates.sms)), SMS_MAX);
    rates.f32 *= scale;
    rates.tf32 *= scale;
    rates.bf16 *= scale;
    rates.f16 *= scale;
    rates.attention_factor *= scale;
    return rates;
}

/* Eager PyTorch moves 2.2 times the bytes of fused kernels between products: the fit of
 * llm-foundry's rows on A100s, of 2023. For newer GPUs the catalogue has what it reaches of a
 * trainer with fused kernels, in which that is included. */
static const double eager_traffic = 2.2;

void mics_compute_init(struct mics_compute *out, const struct mics_topology *topology)
{
    *out = (struct mics_compute){
        .topology = topology,
        .gpu = !mics_topology_is_host(topology),
        .bandwidth = topology->memory_bandwidth,
        .efficiency = 1,
        .traffic = 1,
    };
    if (!out->gpu)
        return;
    out->rates = topology->rates.sms > 0 ? topology->rates : derive_rates(topology);
    if (topology->tf32 && out->rates.tf32 > 0)
        out->rates.f32 = out->rates.tf32;
    if (topology->profile != MICS_PROFILE_PYTORCH)
        return;
    if (out->rates.pytorch_efficiency > 0)
        out->efficiency = out->rates.pytorch_efficiency;
    else
        out->traffic = eager_traffic;
}

const char *mics_compute_describe_profile(const struct mics_compute *compute, char *text,
                                          size_t size)
{
    text[0] = '\0';
    if (compute->efficiency < 1)
        snprintf(text, size, "eager PyTorch at %.2f of fused kernels", compute->efficiency);
    else if (compute->traffic > 1)
        snprintf(text, size, "eager PyTorch with %.1f times the bytes of fused kernels",
                 compute->traffic);
    return text;
}
