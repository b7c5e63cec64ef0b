/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_attention.cc - attention and its gradient on the GPU against plain loops of the host in
 * double; long sequences against the kernel `plain`. The kernels are those that are used by
 * default, or the one that MICS_CUDA_ATTENTION names.
 *
 * Inputs are rounded to the type under test before the reference sees them, so that only the
 * kernels' own rounding is measured. Tolerances: the norm of the error over the norm of the result,
 * per tensor, and the largest error of an element over the root mean square of all. fp32 sums in
 * another order than double: 1e-5 and 1e-4. bf16 rounds results to 2^-9 and probabilities and their
 * gradients to 2^-9 before they are multiplied: 6e-3 and 0.1; fp16 to 2^-12: an eighth of that.
 * Large scores make probabilities of nearly 0 and 1, whose gradients are small differences: three
 * times that.
 */
#include "cuda/kernels.h"

#ifdef MICS_EMULATED
#include "tensor_emulated.h"
#endif

#include "kernel_cases.h"
#include "tap.h"

#include <cmath>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector>

struct attention_shape {
    unsigned B, T, H, H_kv, D;
    bool causal;
};

/* Tensors of ops.h: qkv [B, T, (H + 2 H_kv) D], out [B, T, H D], lse [B, H, T]. */
struct attention_case {
    struct attention_shape shape;
    enum mics_dtype dtype;
    std::vector<double> qkv, grad_out;  /* inputs */
    std::vector<double> out, lse, grad; /* expected; grad is that of qkv */
    std::vector<double> got_out, got_lse, got_grad;
    std::vector<int32_t> targets; /* [B, T]; empty: no documents */
    unsigned window;              /* 0: none */
};

/* What limits attention besides causality. */
struct limits {
    unsigned longest; /* of documents; 0: none */
    unsigned window;  /* 0: none */
};

/* With AddressSanitizer kernels see fewer long sequences, and no case again as the default. */
static const bool brief = TAP_ASAN;

/* Those of the shared cases with heads that the tensor cores take in bf16, or the others. */
static std::vector<struct attention_shape> shapes_of(bool tensor_cores)
{
    std::vector<struct attention_shape> out;

    for (const struct attention_dims &c : attention_cases)
        if ((c.suites & GPU) && (c.D % 8 == 0 && c.D <= 128) == tensor_cores)
            out.push_back({c.B, c.T, c.H, c.H_kv, c.D, c.causal});
    return out;
}

/* A number from `least` to `most`; numerical recipes' generator. */
static unsigned draw(uint32_t *state, unsigned least, unsigned most)
{
    *state = *state * 1664525u + 1013904223u;
    return least + (*state >> 8) % (most - least + 1);
}

/* --- the reference */

/* From a counter to (-1, 1): splitmix (Steele et al. 2014); the sum of four makes it bell-shaped.
 */
static double draw_number(uint64_t *state)
{
    double sum = 0;

    for (int i = 0; i < 4; i++) {
        uint64_t z = *state += 0x9e3779b97f4a7c15u;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        sum += (double)((z ^ (z >> 31)) >> 11) * 0x1p-53 - 0.5;
    }
    return sum * std::sqrt(3.0);
}

/* What a value is in a type. */
static float rounded(float value, enum mics_dtype dtype)
{
    return dtype == MICS_BF16  ? __bfloat162float(__float2bfloat16(value))
           : dtype == MICS_F16 ? __half2float(__float2half_rn(value))
                               : value;
}

static void fill(std::vector<double> *to, size_t count, enum mics_dtype dtype, double size,
                 uint64_t seed)
{
    to->resize(count);
    for (double &one : *to) {
        float value = (float)(draw_number(&seed) * size);

        one = rounded(value, dtype);
    }
}

/* Row t of sequence b: where head h of the queries, and its keys and values, begin. */
struct place {
    size_t query, key, value;
};

static struct place place_of(const struct attention_shape &s, unsigned b, unsigned t, unsigned h)
{
    size_t row = ((size_t)b * s.T + t) * (s.H + 2 * s.H_kv) * s.D;
    unsigned kv = h / (s.H / s.H_kv);

    return {row + h * s.D, row + (s.H + kv) * s.D, row + (s.H + s.H_kv + kv) * s.D};
}

static double dot(const double *a, const double *b, unsigned D)
{
    double sum = 0;

    for (unsigned d = 0; d < D; d++)
        sum += a[d] * b[d];
    return sum;
}

/* The first key that query i sees. */
static unsigned first_key(const struct attention_case &c, unsigned b, unsigned i)
{
    const unsigned query = i;

    while (i > 0 && (c.targets.empty() || c.targets[b * c.shape.T + i - 1] != MICS_TARGET_LAST) &&
           (c.window == 0 || query - i + 1 < c.window))
        i--;
    return c.targets.empty() && c.window == 0 ? 0 : i;
}

/* The key behind the last one that query i sees. */
static unsigned keys_end(const struct attention_case &c, unsigned b, unsigned i)
{
    unsigned end = i + 1;

    while (!c.shape.causal && end < c.shape.T &&
           (c.targets.empty() || c.targets[b * c.shape.T + end - 1] != MICS_TARGET_LAST))
        end++;
    return end;
}

/* Probabilities of query i; the log of the sum of exponentials of its scores. */
static double softmax(const struct attention_case &c, unsigned b, unsigned h, unsigned i,
                      std::vector<double> *p)
{
    const struct attention_shape &s = c.shape;
    double max = -INFINITY, sum = 0;

    const unsigned first = first_key(c, b, i);

    p->assign(keys_end(c, b, i), 0);
    for (unsigned j = first; j < p->size(); j++) {
        (*p)[j] = dot(&c.qkv[place_of(s, b, i, h).query], &c.qkv[place_of(s, b, j, h).key], s.D) /
                  std::sqrt((double)s.D);
        max = std::fmax(max, (*p)[j]);
    }
    for (unsigned j = first; j < p->size(); j++)
        sum += (*p)[j] = std::exp((*p)[j] - max);
    for (double &one : *p)
        one /= sum;
    return max + std::log(sum);
}

static void reference_row(struct attention_case *c, unsigned b, unsigned h, unsigned i,
                          std::vector<double> *p)
{
    const struct attention_shape &s = c->shape;
    size_t at = (((size_t)b * s.T + i) * s.H + h) * s.D, query = place_of(s, b, i, h).query;
    const double *dout = &c->grad_out[at];
    double *out = &c->out[at], scale = 1 / std::sqrt((double)s.D), delta;

    c->lse[((size_t)b * s.H + h) * s.T + i] = softmax(*c, b, h, i, p);
    for (unsigned j = 0; j < p->size(); j++)
        for (unsigned d = 0; d < s.D; d++)
            out[d] += (*p)[j] * c->qkv[place_of(s, b, j, h).value + d];
    delta = dot(dout, out, s.D);
    for (unsigned j = 0; j < p->size(); j++) {
        struct place of = place_of(s, b, j, h);
        double ds = (*p)[j] * (dot(dout, &c->qkv[of.value], s.D) - delta) * scale;

        for (unsigned d = 0; d < s.D; d++) {
            c->grad[of.value + d] += (*p)[j] * dout[d];
            c->grad[of.key + d] += ds * c->qkv[query + d];
            c->grad[query + d] += ds * c->qkv[of.key + d];
        }
    }
}

/* Random inputs of about unit size times `size`; all that is expected is 0. */
static struct attention_case make_inputs(const struct attention_shape &s, enum mics_dtype dtype,
                                         double size)
{
    const size_t rows = (size_t)s.B * s.T;
    struct attention_case c = {};

    c.shape = s;
    c.dtype = dtype;
    fill(&c.qkv, rows * (s.H + 2 * s.H_kv) * s.D, dtype, size, 1);
    fill(&c.grad_out, rows * s.H * s.D, dtype, 1, 2);
    c.out.resize(c.grad_out.size());
    c.lse.resize(rows * s.H);
    c.grad.resize(c.qkv.size());
    return c;
}

/* The same, and the results. */
static struct attention_case make_case(const struct attention_shape &s, enum mics_dtype dtype,
                                       double size, const struct limits &limits = {0, 0})
{
    struct attention_case c = make_inputs(s, dtype, size);
    std::vector<double> p;
    uint32_t state = limits.longest;

    c.window = limits.window;
    for (unsigned i = 0, left = 1; limits.longest && i < s.B * s.T; i++) {
        c.targets.push_back(--left ? 1 : MICS_TARGET_LAST);
        left = left ? left : draw(&state, 1, limits.longest);
    }

    for (unsigned b = 0; b < s.B; b++)
        for (unsigned h = 0; h < s.H; h++)
            for (unsigned i = 0; i < s.T; i++)
                reference_row(&c, b, h, i, &p);
    return c;
}

/* --- the device */

static struct mics_cuda_at at;
static int capability; /* 90: compute capability 9.0 */

static void open_device(void)
{
    int major = 0, minor = 0;

    at.multiprocessors = 1;
    if (cudaMalloc(&at.workspace, MICS_CUDA_WORKSPACE_BYTES) != cudaSuccess) {
        printf("Bail out! %s\n", cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    capability = major * 10 + minor;
}

/* Select a kernel, "" for the table's choice; false: not available on this GPU or in this build. */
static bool choose(const char *kernel)
{
    struct mics_err err;
    const enum mics_status status =
        mics_cuda_attention_choose(kernel, capability, &at.attention, &err);

    CHECK(status == MICS_OK || status == MICS_ERR_UNSUPPORTED);
    return status == MICS_OK;
}

/* Keep the first error. */
static void note(cudaError_t *error, cudaError_t one)
{
    if (*error == cudaSuccess)
        *error = one;
}

/* Device memory of `count` numbers, full of NaN, or of `from` where there is one; `shift` numbers
 * away from an aligned address. */
struct array {
    char *memory, *at;
};

static struct array on_device(size_t count, enum mics_dtype dtype, const std::vector<double> *from,
                              unsigned shift, cudaError_t *error)
{
    const size_t bytes = count * mics_dtype_bytes(dtype), away = shift * mics_dtype_bytes(dtype);
    std::vector<uint16_t> halves;
    std::vector<float> floats;
    struct array a = {};

    note(error, cudaMalloc((void **)&a.memory, bytes + away));
    if (*error != cudaSuccess)
        return a;
    a.at = a.memory + away;
    note(error, cudaMemset(a.at, 0xff, bytes));
    for (size_t i = 0; from && i < count; i++) {
        halves.push_back(dtype == MICS_F16
                             ? __half_as_ushort(__float2half_rn((float)(*from)[i]))
                             : __bfloat16_as_ushort(__float2bfloat16((float)(*from)[i])));
        floats.push_back((float)(*from)[i]);
    }
    if (from)
        note(error,
             cudaMemcpy(a.at, dtype != MICS_F32 ? (const void *)halves.data() : floats.data(),
                        bytes, cudaMemcpyHostToDevice));
    return a;
}

static void from_device(std::vector<double> *to, size_t count, enum mics_dtype dtype,
                        const void *memory, cudaError_t *error)
{
    std::vector<uint16_t> halves(count);
    std::vector<float> floats(count);

    to->resize(count);
    note(error, cudaMemcpy(dtype != MICS_F32 ? (void *)halves.data() : floats.data(), memory,
                           count * mics_dtype_bytes(dtype), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        (*to)[i] = dtype == MICS_BF16  ? __bfloat162float(__ushort_as_bfloat16(halves[i]))
                   : dtype == MICS_F16 ? __half2float(__ushort_as_half(halves[i]))
                                       : floats[i];
}

/* Run both directions; every result is NaN before. Returns the first error. */
static cudaError_t run_case(struct attention_case *c, unsigned shift = 0)
{
    const struct attention_shape &s = c->shape;
    cudaError_t error = cudaSuccess;
    const struct array qkv = on_device(c->qkv.size(), c->dtype, &c->qkv, shift, &error);
    const struct array grad_out =
        on_device(c->grad_out.size(), c->dtype, &c->grad_out, shift, &error);
    const struct array out = on_device(c->out.size(), c->dtype, nullptr, shift, &error);
    const struct array grad = on_device(c->grad.size(), c->dtype, nullptr, shift, &error);
    const struct array lse = on_device(c->lse.size(), MICS_F32, nullptr, 0, &error);
    const struct array delta = on_device(c->lse.size(), MICS_F32, nullptr, 0, &error);
    int32_t *targets = nullptr;

    if (!c->targets.empty()) {
        const size_t bytes = c->targets.size() * sizeof(int32_t);

        note(&error, cudaMalloc((void **)&targets, bytes));
        note(&error, cudaMemcpy(targets, c->targets.data(), bytes, cudaMemcpyHostToDevice));
    }
    const struct mics_args_attention forward = {
        out.at, (float *)lse.at, qkv.at,   s.B,     s.T,      s.H, s.H_kv,
        s.D,    s.causal,        c->dtype, targets, c->window};
    const struct mics_args_attention_grad backward = {grad.at,     (float *)delta.at,
                                                      grad_out.at, out.at,
                                                      qkv.at,      (float *)lse.at,
                                                      s.B,         s.T,
                                                      s.H,         s.H_kv,
                                                      s.D,         s.causal,
                                                      c->dtype,    targets,
                                                      c->window};

    if (error == cudaSuccess) {
        error = mics_cuda_attention(&at, &forward);
        note(&error, mics_cuda_attention_grad(&at, &backward));
        note(&error, cudaDeviceSynchronize());
    }
    if (error == cudaSuccess) {
        from_device(&c->got_out, c->out.size(), c->dtype, out.at, &error);
        from_device(&c->got_grad, c->grad.size(), c->dtype, grad.at, &error);
        from_device(&c->got_lse, c->lse.size(), MICS_F32, lse.at, &error);
    }
    for (const struct array *one : {&qkv, &grad_out, &out, &grad, &lse, &delta})
        cudaFree(one->memory);
    cudaFree(targets);
    return error;
}

/* --- comparisons */

static double rms(const std::vector<double> &of)
{
    double sum = 0;

    for (double one : of)
        sum += one * one;
    return std::sqrt(sum / (double)of.size());
}

/* Whether `got` agrees with `want`; a NaN is not. Results that are all nearly 0 are compared with
 * 1. */
static bool agrees(const char *what, const struct attention_case &c, double slack,
                   const std::vector<double> &got, const std::vector<double> &want)
{
    const double unit_of = c.dtype == MICS_F16 ? 0.125 : 1;
    double norm_limit = (c.dtype != MICS_F32 ? 6e-3 * unit_of : 1e-5) * slack;
    double most_limit = (c.dtype != MICS_F32 ? 0.1 * unit_of : 1e-4) * slack;
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
               s.H_kv, s.D, s.causal ? "causal" : "full",
               c.dtype == MICS_BF16  ? "bf16"
               : c.dtype == MICS_F16 ? "fp16"
                                     : "fp32",
               what, sum, most);
    return good;
}

/* Run by a kernel, or by the table's choice, and compare; false: it does not take the case. */
static bool check_kernel(struct attention_case *c, const char *kernel, double slack)
{
    const int bad = tap_bad;
    cudaError_t error;

    if (!choose(kernel))
        return false;
    error = run_case(c);
    if (error == cudaErrorNotSupported)
        return false;
    CHECK_INT(error, cudaSuccess);
    if (error == cudaSuccess && !c->got_out.empty()) {
        CHECK(agrees("out", *c, slack, c->got_out, c->out));
        CHECK(agrees("lse", *c, slack, c->got_lse, c->lse));
        CHECK(agrees("grad_qkv", *c, slack, c->got_grad, c->grad));
    }
    if (tap_bad > bad)
        printf("# by kernel '%s'\n", kernel);
    return true;
}

static const char *named;                 /* by MICS_CUDA_ATTENTION; NULL: none */
static std::vector<const char *> kernels; /* to be checked */

static bool is_plain(const char *kernel)
{
    return strcmp(kernel, "plain") == 0;
}

static void choose_kernels(void)
{
    struct mics_err err;

    named = getenv("MICS_CUDA_ATTENTION");
    if (!named || !*named) {
        named = nullptr;
        kernels = {"mma", "plain"};
        return;
    }
    kernels = {named};
    if (mics_cuda_attention_choose(named, capability, &at.attention, &err) == MICS_OK)
        return;
    printf("Bail out! %s\n", err.text);
    exit(1);
}

/* Takes documents, windows and fp16. */
static bool is_general(const char *kernel)
{
    return strcmp(kernel, "hopper") != 0;
}

static void check(const struct attention_shape &shape, enum mics_dtype dtype, double size,
                  const struct limits &limits = {0, 0})
{
    struct attention_case c = make_case(shape, dtype, size, limits);
    const bool limited = limits.longest > 0 || (limits.window > 0 && limits.window < shape.T);
    const double slack = size > 1 ? 3 : 1;
    const bool tensor_cores = dtype != MICS_F32 && shape.D % 8 == 0 && shape.D <= 128;

    for (const char *kernel : kernels)
        CHECK(check_kernel(&c, kernel, slack) ==
              ((tensor_cores || is_plain(kernel)) &&
               (is_general(kernel) || (!limited && dtype == MICS_BF16))));
    if (!named && !brief)
        CHECK(check_kernel(&c, "", slack));
}

static void bf16_attention_agrees_with_double(void)
{
    for (const struct attention_shape &shape : shapes_of(true))
        if (!tap_leaves_out(2))
            check(shape, MICS_BF16, 1);
}

static void fp16_attention_agrees_with_double(void)
{
    for (const struct attention_shape &shape : shapes_of(true))
        if ((!brief || shape.T < 100) && !tap_leaves_out(2))
            check(shape, MICS_F16, 1);
    check({1, 130, 1, 1, 64, true}, MICS_F16, 4);
    check({2, 130, 2, 1, 64, true}, MICS_F16, 2, {40, 0});
    check({1, 257, 2, 2, 128, true}, MICS_F16, 1, {0, 64});
    if (!named || is_plain(named))
        check({2, 100, 2, 1, 17, true}, MICS_F16, 1);
}

static void bf16_attention_of_large_scores_agrees_with_double(void)
{
    check({1, 130, 1, 1, 64, true}, MICS_BF16, 4);
    check({1, 65, 1, 1, 128, false}, MICS_BF16, 4);
}

static void bf16_attention_of_random_shapes_agrees_with_double(void)
{
    uint32_t state = 1;

    for (int i = 0; i < (brief ? 2 : 10); i++) {
        unsigned kv = draw(&state, 1, 2);
        struct attention_shape shape = {draw(&state, 1, 2),      draw(&state, 1, 140),
                                        kv * draw(&state, 1, 3), kv,
                                        8 * draw(&state, 1, 16), draw(&state, 0, 1) == 1};

        check(shape, MICS_BF16, 1);
    }
}

static void no_token_sees_another_document_on_the_gpu(void)
{
    for (unsigned longest : {1, 5, 40, 130}) {
        if (brief && longest % 2 == 0)
            continue;
        check({2, 130, 2, 1, 64, true}, MICS_BF16, 2, {longest, 0});
        check({1, 300, 1, 1, 64, true}, MICS_BF16, 1, {longest, 0});
        check({1, 257, 2, 2, 128, true}, MICS_BF16, 1, {longest, 0});
        if (!named || is_plain(named))
            check({2, 100, 2, 1, 17, true}, MICS_F32, 1, {longest, 0});
    }
}

/* Of an encoder: each sees all of its own. */
static void no_token_of_an_encoder_sees_another_document_on_the_gpu(void)
{
    for (unsigned longest : {1, 5, 40, 130}) {
        if (brief && longest % 2 == 0)
            continue;
        check({2, 130, 2, 2, 64, false}, MICS_BF16, 2, {longest, 0});
        check({1, 300, 1, 1, 64, false}, MICS_BF16, 1, {longest, 0});
        check({1, 257, 2, 1, 128, false}, MICS_BF16, 1, {longest, 0});
        if (!named || is_plain(named))
            check({2, 100, 2, 2, 17, false}, MICS_F32, 1, {longest, 0});
    }
}

static void no_token_sees_more_than_its_window_on_the_gpu(void)
{
    for (unsigned window : {1, 30, 64, 129}) {
        if (brief && window % 2 == 0)
            continue;
        check({2, 130, 2, 1, 64, true}, MICS_BF16, 2, {0, window});
        check({1, 300, 1, 1, 64, true}, MICS_BF16, 1, {0, window});
        check({1, 257, 2, 2, 128, true}, MICS_BF16, 1, {0, window});
        check({1, 257, 2, 1, 64, true}, MICS_BF16, 1, {100, window});
        if (named && !is_plain(named))
            continue;
        check({2, 100, 2, 1, 17, true}, MICS_F32, 1, {0, window});
        check({1, 100, 2, 1, 17, true}, MICS_F32, 1, {40, window});
    }
}

/* Bit for bit. */
static void a_window_of_the_whole_sequence_changes_nothing_on_the_gpu(void)
{
    for (const char *kernel : kernels) {
        struct attention_case c = make_case({1, 130, 2, 1, 64, true}, MICS_BF16, 1), d = c;

        d.window = 130;
        CHECK(choose(kernel));
        CHECK_INT(run_case(&c), cudaSuccess);
        CHECK_INT(run_case(&d), cudaSuccess);
        CHECK(!c.got_grad.empty() && c.got_out == d.got_out && c.got_grad == d.got_grad);
    }
}

static void fp32_attention_agrees_with_double(void)
{
    if (named && !is_plain(named))
        TAP_SKIP("not for this kernel");
    for (const struct attention_shape &shape : shapes_of(true))
        if (shape.T <= 130 && !tap_leaves_out(2))
            check(shape, MICS_F32, 1);
}

static void odd_heads_agree_with_double(void)
{
    if (named && !is_plain(named))
        TAP_SKIP("not for this kernel");
    for (const struct attention_shape &shape : shapes_of(false)) {
        check(shape, MICS_F32, 1);
        check(shape, MICS_BF16, 1);
    }
}

static void use_order(uint64_t seed)
{
#ifdef MICS_EMULATED
    emu_set_order(seed);
#else
    (void)seed;
#endif
}

static void twice_the_same_gives_the_same_bits(void)
{
    for (const char *kernel : kernels) {
        struct attention_case c = make_case({1, 150, 4, 2, 64, true}, MICS_BF16, 1), d = c;

        CHECK(choose(kernel));
        use_order(1);
        CHECK_INT(run_case(&c), cudaSuccess);
        use_order(2);
        CHECK_INT(run_case(&d), cudaSuccess);
        use_order(0);
        CHECK(c.got_out == d.got_out && c.got_lse == d.got_lse && c.got_grad == d.got_grad);
        CHECK(!c.got_grad.empty());
    }
}

/* Tiles that bulk copies bring lie in rings, whose slots are reused. The first
 * keys' gradients are far above the mean here, and so is their rounding: twice the tolerance. */
static void long_sequences_agree_with_double(void)
{
    if (named && is_plain(named))
        TAP_SKIP("not for this kernel");
    static const struct attention_shape long_shapes[] = {
        {1, 520, 1, 1, 64, true}, {1, 390, 2, 1, 128, true}, {1, 400, 1, 1, 128, false}};

    for (const struct attention_shape &shape : long_shapes) {
        struct attention_case c = make_case(shape, MICS_BF16, 1);

        for (const char *kernel : kernels)
            if (!is_plain(kernel))
                CHECK(check_kernel(&c, kernel, 2));
        if (brief)
            break;
    }
}

/* Sequences as long as in training, too long for loops in double: every kernel on tensor cores is
 * compared with `plain`. */
static void longer_sequences_agree_with_plain(void)
{
    if (named && is_plain(named))
        TAP_SKIP("not for this kernel");
#ifdef MICS_EMULATED
    TAP_SKIP("too much for the emulator");
#else
    static const struct attention_shape longer_shapes[] = {{2, 1024, 12, 12, 64, true},
                                                           {1, 2048, 8, 2, 128, true},
                                                           {1, 2000, 4, 4, 64, false},
                                                           {1, 4096, 2, 1, 80, true}};

    for (const struct attention_shape &shape : longer_shapes) {
        struct attention_case c = make_inputs(shape, MICS_BF16, 1);

        CHECK(choose("plain"));
        CHECK_INT(run_case(&c), cudaSuccess);
        c.out = c.got_out;
        c.lse = c.got_lse;
        c.grad = c.got_grad;
        for (const char *kernel : kernels)
            if (!is_plain(kernel))
                CHECK(check_kernel(&c, kernel, 3));
    }
#endif
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

static bool same(const struct attention_case &a, const struct attention_case &b)
{
    return !a.got_out.empty() && a.got_out == b.got_out && a.got_lse == b.got_lse &&
           a.got_grad == b.got_grad;
}

/* Run a case by the table's choice, and by the kernel that this must be. */
static void check_default(enum mics_dtype dtype, unsigned shift, const char *kernel)
{
    struct attention_case c = make_case({1, 65, 2, 1, 64, true}, dtype, 1), d = c;

    CHECK(choose(""));
    CHECK_INT(run_case(&c, shift), cudaSuccess);
    CHECK(choose(kernel));
    CHECK_INT(run_case(&d, shift), cudaSuccess);
    CHECK(same(c, d));
}

static void by_default_tensor_cores_have_aligned_bf16_heads_and_plain_the_rest(void)
{
    const bool hopper = capability == 90 && choose("hopper");

    check_default(MICS_BF16, 0, hopper ? "hopper" : "mma");
    check_default(MICS_BF16, 1, "plain");
    check_default(MICS_F16, 0, "mma");
    check_default(MICS_F32, 0, "plain");
}

static void a_named_kernel_is_not_replaced(void)
{
    const struct mics_args_attention fp32 = {nullptr, nullptr, nullptr, 1,        1,       1,
                                             1,       64,      true,    MICS_F32, nullptr, 0};
    struct attention_case c = make_case({1, 5, 1, 1, 64, true}, MICS_F32, 1);
    struct mics_err err = {};

    CHECK(choose("mma"));
    CHECK_INT(run_case(&c), cudaErrorNotSupported);
    CHECK_INT(mics_cuda_attention_check(&at, &fp32, &err), MICS_ERR_UNSUPPORTED);
    CHECK_STR(err.text, "MICS_CUDA_ATTENTION=mma: takes bf16 and fp16 heads of 8, 16, ... 128 in "
                        "tensors aligned to 16 bytes; these are fp32 heads of 64");
    CHECK(choose(""));
    CHECK_INT(mics_cuda_attention_check(&at, &fp32, &err), MICS_OK);
}

static void names_that_cannot_be_had_are_refused(void)
{
    struct mics_attention_choice choice;
    struct mics_err err = {};

    CHECK_INT(mics_cuda_attention_choose("fastest", 90, &choice, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "MICS_CUDA_ATTENTION=fastest: no such kernel; there are mma, plain and "
                        "hopper");
    CHECK_INT(mics_cuda_attention_choose("hopper", 100, &choice, &err), MICS_ERR_UNSUPPORTED);
    CHECK_STR(err.text, "MICS_CUDA_ATTENTION=hopper: for compute capability 9.0 only, this GPU has "
                        "10.0");
#ifdef MICS_EMULATED
    CHECK_INT(mics_cuda_attention_choose("hopper", 90, &choice, &err), MICS_ERR_UNSUPPORTED);
    CHECK_STR(err.text, "MICS_CUDA_ATTENTION=hopper: not in this build; it needs HOPPER=1");
#endif
}

int main(void)
{
    open_device();
    choose_kernels();
    TAP_RUN(bf16_attention_agrees_with_double);
    TAP_RUN(fp16_attention_agrees_with_double);
    TAP_RUN(bf16_attention_of_large_scores_agrees_with_double);
    TAP_RUN(bf16_attention_of_random_shapes_agrees_with_double);
    TAP_RUN(no_token_sees_another_document_on_the_gpu);
    TAP_RUN(no_token_of_an_encoder_sees_another_document_on_the_gpu);
    TAP_RUN(no_token_sees_more_than_its_window_on_the_gpu);
    TAP_RUN(a_window_of_the_whole_sequence_changes_nothing_on_the_gpu);
    TAP_RUN(fp32_attention_agrees_with_double);
    TAP_RUN(odd_heads_agree_with_double);
    TAP_RUN(long_sequences_agree_with_double);
    TAP_RUN(longer_sequences_agree_with_plain);
    TAP_RUN(twice_the_same_gives_the_same_bits);
    TAP_RUN(rows_of_matrices_lie_in_different_banks);
    TAP_RUN(no_tokens_are_no_work);
    TAP_RUN(by_default_tensor_cores_have_aligned_bf16_heads_and_plain_the_rest);
    TAP_RUN(a_named_kernel_is_not_replaced);
    TAP_RUN(names_that_cannot_be_had_are_refused);
    cudaFree(at.workspace);
    return tap_done();
}
