/* SPDX-License-Identifier: Apache-2.0 */
/* cases_experts.c - mixtures of experts. */
#include "record.h"

#include "../unit/experts.h"

#include <stdlib.h>
#include <string.h>

/* What the host's router makes of a case. */
struct mixture {
    const struct expert_case *is;
    uint32_t N; /* assignments */
    float *logits, *weights;
    int32_t *experts, *targets;
    uint32_t *offsets, *order, *position;
};

static void *need(size_t count)
{
    void *out = calloc(count + 1, sizeof(uint32_t));

    if (!out)
        gpu_die("out of memory");
    return out;
}

static struct mixture mixture_of(struct suite *suite, const struct expert_case *c)
{
    const uint32_t N = c->rows * c->k;
    struct mixture m = {.is = c,
                        .N = N,
                        .logits = need((size_t)c->rows * c->E),
                        .weights = need(N),
                        .experts = need(N),
                        .targets = need(c->rows + 2),
                        .offsets = need(c->E + 1),
                        .order = need(N),
                        .position = need(N)};

    for (uint32_t i = 0; i < c->rows * c->E; i++)
        m.logits[i] = (float)(i * 2654435761u % 65536) / 32768 - 1;
    for (uint32_t i = 0; i < c->rows + 2; i++)
        m.targets[i] = i % 2 ? MICS_TARGET_NONE : (int32_t)i;
    expert_case_logits(c, m.logits);
    mics_host_route(suite->pool, &(struct mics_args_route){m.experts, m.weights, m.logits, c->rows,
                                                           c->E, c->k, c->renormalise});
    mics_host_sort_experts(suite->pool,
                           &(struct mics_args_sort_experts){m.offsets, m.order, m.position,
                                                            m.experts, c->rows, c->E, c->k, 0});
    return m;
}

static void free_mixture(struct mixture *m)
{
    void *all[] = {m->logits,  m->weights, m->experts, m->targets,
                   m->offsets, m->order,   m->position};

    for (size_t i = 0; i < LENGTH(all); i++)
        free(all[i]);
}

/* The logits as a tensor. */
static struct tensor send_logits(struct suite *suite, const struct mixture *m)
{
    struct tensor logits =
        case_output(suite, "logits", MICS_F32, (size_t)m->is->rows * m->is->E, 0);

    for (size_t i = 0; i < logits.count; i++)
        logits.values[i] = m->logits[i];
    case_send(suite, &logits);
    return logits;
}

static struct tensor send_weights(struct suite *suite, const struct mixture *m)
{
    struct tensor weights = case_output(suite, "weights", MICS_F32, m->N, 0);

    for (size_t i = 0; i < weights.count; i++)
        weights.values[i] = m->weights[i];
    case_send(suite, &weights);
    return weights;
}

static void *send_words(struct suite *suite, const char *name, const void *from, size_t count)
{
    return case_bytes(suite, name, from, count * sizeof(uint32_t), 0);
}

static void route_case(struct suite *suite, const struct mixture *m)
{
    const struct expert_case *c = m->is;
    struct tensor logits, weights;
    void *experts;

    case_begin(suite, 0, "route_%s", c->name);
    logits = send_logits(suite, m);
    weights = case_output(suite, "weights", MICS_F32, m->N, 0);
    experts = send_words(suite, "experts", NULL, m->N);
    case_ran(suite, mics_cuda_route(&suite->at, &(struct mics_args_route){
                                                    experts, weights.device, logits.device, c->rows,
                                                    c->E, c->k, c->renormalise}));
    for (size_t i = 0; i < weights.count; i++)
        weights.values[i] = m->weights[i];
    case_expect(suite, &weights, 2e-6);
    case_expect_bytes(suite, experts, m->experts, m->N * sizeof *m->experts);
    case_end(suite);
}

static void sort_case(struct suite *suite, const struct mixture *m)
{
    const struct expert_case *c = m->is;
    void *experts, *offsets, *order, *position;

    case_begin(suite, 0, "sort_experts_%s", c->name);
    experts = send_words(suite, "experts", m->experts, m->N);
    offsets = send_words(suite, "offsets", NULL, c->E + 1);
    order = send_words(suite, "order", NULL, m->N);
    position = send_words(suite, "position", NULL, m->N);
    case_ran(suite, mics_cuda_sort_experts(&suite->at, &(struct mics_args_sort_experts){
                                                           offsets, order, position, experts,
                                                           c->rows, c->E, c->k, 0}));
    case_expect_bytes(suite, offsets, m->offsets, (c->E + 1) * sizeof *m->offsets);
    case_expect_bytes(suite, order, m->order, m->N * sizeof *m->order);
    case_expect_bytes(suite, position, m->position, m->N * sizeof *m->position);
    case_end(suite);
}

/* Experts that drop some rows, all of an expert's but one, or none; and tokens without them. */
static void capacity_case(struct suite *suite, const struct mixture *m, uint32_t capacity)
{
    const struct expert_case *c = m->is;
    void *experts, *offsets, *order, *position;
    struct mixture want = {.offsets = need(c->E + 1), .order = need(m->N), .position = need(m->N)};
    struct tensor sorted, out;

    case_begin(suite, 0, "sort_experts_capacity_%u_%s", capacity, c->name);
    experts = send_words(suite, "experts", m->experts, m->N);
    offsets = send_words(suite, "offsets", NULL, c->E + 1);
    order = send_words(suite, "order", NULL, m->N);
    position = send_words(suite, "position", NULL, m->N);
    sorted = case_random(suite, "sorted", MICS_F32, (size_t)m->N * c->C, 1, 6, 0);
    out = case_output(suite, "out", MICS_F32, (size_t)c->rows * c->C, 0);
    case_ran(suite, mics_cuda_sort_experts(&suite->at, &(struct mics_args_sort_experts){
                                                           offsets, order, position, experts,
                                                           c->rows, c->E, c->k, capacity}));
    case_ran(suite,
             mics_cuda_combine_rows(&suite->at, &(struct mics_args_combine_rows){
                                                    out.device, sorted.device, NULL, position,
                                                    c->rows, c->k, c->C, MICS_F32}));
    mics_host_sort_experts(
        suite->pool, &(struct mics_args_sort_experts){want.offsets, want.order, want.position,
                                                      m->experts, c->rows, c->E, c->k, capacity});
    mics_host_combine_rows(suite->pool, &(struct mics_args_combine_rows){
                                            out.values, sorted.values, NULL, want.position, c->rows,
                                            c->k, c->C, MICS_F32});
    case_expect_bytes(suite, offsets, want.offsets, (c->E + 1) * sizeof *want.offsets);
    case_expect_bytes(suite, order, want.order, m->N * sizeof *want.order);
    case_expect_bytes(suite, position, want.position, m->N * sizeof *want.position);
    case_expect(suite, &out, 0);
    case_end(suite);
    free_mixture(&want);
}

static void route_grad_case(struct suite *suite, const struct mixture *m, enum mics_dtype dtype)
{
    const struct expert_case *c = m->is;
    struct mics_args_route_grad args = {.rows = c->rows,
                                        .E = c->E,
                                        .k = c->k,
                                        .group_rows = expert_case_group(c),
                                        .z_coefficient = 0.25f,
                                        .renormalise = c->renormalise,
                                        .dtype = dtype};
    struct tensor grad, logits, weights, slope, balance;
    double scale = 4;

    case_begin(suite, 0, "route_grad_%s_%s", dtype_name(dtype), c->name);
    logits = send_logits(suite, m);
    weights = send_weights(suite, m);
    grad = case_output(suite, "grad_logits", dtype, logits.count, 0);
    slope = case_random(suite, "grad_weights", MICS_F32, m->N, 1, 3, 0);
    balance = case_random(suite, "balance", MICS_F32, (size_t)3 * c->E, 1, 4, 0);
    args.grad_logits = grad.device;
    args.logits = logits.device;
    args.experts = send_words(suite, "experts", m->experts, m->N);
    args.weights = weights.device;
    args.grad_weights = slope.device;
    args.balance = balance.device;
    args.targets = send_words(suite, "targets", m->targets, c->rows);
    if (dtype == MICS_F16)
        args.grad_scale = case_bytes(suite, "grad_scale", &scale, sizeof scale, 0);
    case_ran(suite, mics_cuda_route_grad(&suite->at, &args));
    args.grad_logits = grad.values;
    args.logits = logits.values;
    args.experts = m->experts;
    args.weights = weights.values;
    args.grad_weights = slope.values;
    args.balance = balance.values;
    args.targets = m->targets;
    args.grad_scale = dtype == MICS_F16 ? &scale : NULL;
    args.dtype = MICS_F32;
    mics_host_route_grad(suite->pool, &args);
    case_expect(suite, &grad, 4e-6);
    case_end(suite);
}

static void losses_case(struct suite *suite, const struct mixture *m)
{
    const struct expert_case *c = m->is;
    const uint32_t group = expert_case_group(c), groups = (c->rows - 1) / group + 1;
    double first = 2, want = 2, total = 1, want_total = 1, own = 3, want_own = 3;
    struct tensor logits, load, balance;
    void *experts, *targets, *loss, *total_at, *own_at;

    case_begin(suite, 0, "router_losses_%s", c->name);
    logits = send_logits(suite, m);
    experts = send_words(suite, "experts", m->experts, m->N);
    targets = send_words(suite, "targets", m->targets, groups * group);
    load = case_random(suite, "load", MICS_F32, (size_t)groups * 2 * c->E, 1, 5, 0);
    balance = case_output(suite, "balance", MICS_F32, (size_t)groups * c->E, 0);
    loss = case_bytes(suite, "loss", &first, sizeof first, 0);
    total_at = case_bytes(suite, "total", &total, sizeof total, 0);
    own_at = case_bytes(suite, "own", &own, sizeof own, 0);
    case_ran(suite, mics_cuda_router_load(&suite->at, &(struct mics_args_router_load){
                                                          load.device, loss, logits.device,
                                                          load.device, experts, targets, c->rows,
                                                          c->E, c->k, group, 0.5f, own_at}));
    case_ran(suite,
             mics_cuda_balance_loss(&suite->at, &(struct mics_args_balance_loss){
                                                    balance.device, total_at, load.device, targets,
                                                    groups, group, c->E, 0.25, group, own_at}));
    mics_host_router_load(
        suite->pool,
        &(struct mics_args_router_load){load.values, &want, logits.values, load.values, m->experts,
                                        m->targets, c->rows, c->E, c->k, group, 0.5f, &want_own});
    mics_host_balance_loss(suite->pool, &(struct mics_args_balance_loss){
                                            balance.values, &want_total, load.values, m->targets,
                                            groups, group, c->E, 0.25, group, &want_own});
    case_expect(suite, &load, 4e-6);
    case_expect(suite, &balance, 4e-6);
    case_expect_double(suite, loss, want, 1e-5);
    case_expect_double(suite, total_at, want_total, 1e-5);
    case_expect_double(suite, own_at, want_own, 1e-5);
    case_end(suite);
}

static void stats_case(struct suite *suite, const struct mixture *m)
{
    const struct expert_case *c = m->is;
    double first[1 + MICS_EXPERTS_MAX] = {2, 3, 4}, want[1 + MICS_EXPERTS_MAX] = {2, 3, 4};
    struct tensor logits;
    void *offsets, *stats;

    case_begin(suite, 0, "router_stats_%s", c->name);
    logits = send_logits(suite, m);
    offsets = send_words(suite, "offsets", m->offsets, c->E + 1);
    stats = case_bytes(suite, "stats", first, (1 + c->E) * sizeof *first, 0);
    case_ran(suite,
             mics_cuda_router_stats(&suite->at, &(struct mics_args_router_stats){
                                                    stats, logits.device, offsets, c->rows, c->E}));
    mics_host_router_stats(suite->pool, &(struct mics_args_router_stats){
                                            want, logits.values, m->offsets, c->rows, c->E});
    case_expect_doubles(suite, stats, want, 1 + c->E, 1e-5);
    case_end(suite);
}

/* Gathered, combined with what they came from, activated; and the activation's gradient. */
static void rows_case(struct suite *suite, const struct mixture *m, enum mics_dtype dtype)
{
    const struct expert_case *c = m->is;
    const uint32_t rows = c->rows, k = c->k, C = c->C, F = c->F, N = m->N;
    struct tensor in, sorted, gates, out, grad, slope, weights;
    void *order, *position;

    case_begin(suite, 0, "expert_rows_%s_%s", dtype_name(dtype), c->name);
    weights = send_weights(suite, m);
    order = send_words(suite, "order", m->order, N);
    position = send_words(suite, "position", m->position, N);
    in = case_random(suite, "in", dtype, (size_t)rows * C, 1, 6, 0);
    sorted = case_output(suite, "sorted", dtype, (size_t)N * C, 0);
    gates = case_random(suite, "gates", dtype, (size_t)N * 2 * F, 3, 7, 0);
    out = case_output(suite, "out", dtype, (size_t)N * F, 0);
    grad = case_random(suite, "grad_out", dtype, (size_t)N * F, 1, 8, 0);
    slope = case_output(suite, "grad_weights", MICS_F32, N, 0);
    case_ran(suite, mics_cuda_gather_rows(
                        &suite->at, &(struct mics_args_gather_rows){sorted.device, in.device, order,
                                                                    rows, k, C, dtype}));
    case_ran(suite, mics_cuda_combine_rows(&suite->at, &(struct mics_args_combine_rows){
                                                           in.device, sorted.device, in.device,
                                                           position, rows, k, C, dtype}));
    case_ran(suite,
             mics_cuda_expert_swiglu(&suite->at, &(struct mics_args_expert_swiglu){
                                                     out.device, gates.device, weights.device,
                                                     order, N, F, dtype, false}));
    case_ran(suite, mics_cuda_expert_swiglu_grad(
                        &suite->at, &(struct mics_args_expert_swiglu_grad){
                                        gates.device, slope.device, gates.device, grad.device,
                                        weights.device, order, N, F, dtype, false}));
    mics_host_gather_rows(
        suite->pool,
        &(struct mics_args_gather_rows){sorted.values, in.values, m->order, rows, k, C, MICS_F32});
    mics_host_combine_rows(suite->pool,
                           &(struct mics_args_combine_rows){in.values, sorted.values, in.values,
                                                            m->position, rows, k, C, MICS_F32});
    mics_host_expert_swiglu(suite->pool,
                            &(struct mics_args_expert_swiglu){out.values, gates.values, m->weights,
                                                              m->order, N, F, MICS_F32, false});
    mics_host_expert_swiglu_grad(
        suite->pool, &(struct mics_args_expert_swiglu_grad){gates.values, slope.values,
                                                            gates.values, grad.values, m->weights,
                                                            m->order, N, F, MICS_F32, false});
    case_expect(suite, &sorted, 0);
    case_expect(suite, &in, 0);
    case_expect(suite, &out, activation_tolerance(dtype));
    case_expect(suite, &gates, activation_tolerance(dtype));
    case_expect(suite, &slope, mics_dtype_is_half(dtype) ? 1e-4 : 1e-5);
    case_end(suite);
}

/* The activation of an expert that all tokens share: rows in order, times the logistic function of
 * a number of each. */
static void shared_case(struct suite *suite, const struct mixture *m, enum mics_dtype dtype)
{
    const uint32_t rows = m->is->rows, F = m->is->F;
    struct tensor gates, out, grad, slope, logits;

    case_begin(suite, 0, "shared_expert_%s_%s", dtype_name(dtype), m->is->name);
    logits = case_random(suite, "logits", MICS_F32, rows, 4, 5, 0);
    gates = case_random(suite, "gates", dtype, (size_t)rows * 2 * F, 3, 7, 0);
    out = case_output(suite, "out", dtype, (size_t)rows * F, 0);
    grad = case_random(suite, "grad_out", dtype, (size_t)rows * F, 1, 8, 0);
    slope = case_output(suite, "grad_logits", MICS_F32, rows, 0);
    case_ran(suite, mics_cuda_expert_swiglu(&suite->at, &(struct mics_args_expert_swiglu){
                                                            out.device, gates.device, logits.device,
                                                            NULL, rows, F, dtype, true}));
    case_ran(suite, mics_cuda_expert_swiglu_grad(
                        &suite->at, &(struct mics_args_expert_swiglu_grad){
                                        gates.device, slope.device, gates.device, grad.device,
                                        logits.device, NULL, rows, F, dtype, true}));
    mics_host_expert_swiglu(
        suite->pool, &(struct mics_args_expert_swiglu){out.values, gates.values, logits.values,
                                                       NULL, rows, F, MICS_F32, true});
    mics_host_expert_swiglu_grad(suite->pool,
                                 &(struct mics_args_expert_swiglu_grad){
                                     gates.values, slope.values, gates.values, grad.values,
                                     logits.values, NULL, rows, F, MICS_F32, true});
    case_expect(suite, &out, activation_tolerance(dtype));
    case_expect(suite, &gates, activation_tolerance(dtype));
    case_expect(suite, &slope, mics_dtype_is_half(dtype) ? 1e-4 : 1e-5);
    case_end(suite);
}

/* Each assignment gets its row, but for one in the middle, which goes nowhere. */
static void scatter_case(struct suite *suite, const struct mixture *m, enum mics_dtype dtype)
{
    const uint32_t C = m->is->C, N = m->N;
    const uint32_t kept = m->order[N / 2];
    struct tensor in, out;
    void *order;

    m->order[N / 2] = MICS_NO_ROW;
    case_begin(suite, 0, "scatter_rows_%s_%s", dtype_name(dtype), m->is->name);
    order = send_words(suite, "order", m->order, N);
    in = case_random(suite, "in", dtype, (size_t)N * C, 1, 6, 0);
    out = case_random(suite, "out", dtype, (size_t)N * C, 1, 7, 0);
    case_ran(suite,
             mics_cuda_scatter_rows(&suite->at, &(struct mics_args_scatter_rows){
                                                    out.device, in.device, order, N, C, dtype}));
    mics_host_scatter_rows(suite->pool, &(struct mics_args_scatter_rows){out.values, in.values,
                                                                         m->order, N, C, MICS_F32});
    m->order[N / 2] = kept;
    case_expect(suite, &out, 0);
    case_end(suite);
}

/* A round between two ranks with the same tokens, as the second one has it. */
static void round_case(struct suite *suite, const struct mixture *m, uint32_t round)
{
    enum { RANKS = 2, SLOTS = 21, Q = RANKS * SLOTS };
    const uint32_t count = m->is->E + 1, experts = m->is->E / RANKS;
    uint32_t *offsets = need((size_t)RANKS * count), *want = need(3 * Q + experts + 2);
    struct mics_args_dispatch_round args = {
        .ranks = RANKS, .rank = 1, .E = m->is->E, .slots = SLOTS, .round = round};
    const struct mics_args_dispatch_round host = {want,
                                                  want + Q,
                                                  want + 3 * Q,
                                                  want + 2 * Q,
                                                  want + 3 * Q + experts + 1,
                                                  offsets,
                                                  m->order,
                                                  RANKS,
                                                  1,
                                                  m->is->E,
                                                  SLOTS,
                                                  round};

    memcpy(offsets, m->offsets, count * sizeof *offsets);
    memcpy(offsets + count, m->offsets, count * sizeof *offsets);
    case_begin(suite, 0, "dispatch_round_%u_%s", round, m->is->name);
    args.offsets = send_words(suite, "offsets", offsets, (size_t)RANKS * count);
    args.order = send_words(suite, "order", m->order, m->N);
    args.row = send_words(suite, "row", NULL, Q);
    args.assignment = send_words(suite, "assignment", NULL, Q);
    args.received_offsets = send_words(suite, "received_offsets", NULL, experts + 1);
    args.received = send_words(suite, "received", NULL, Q);
    args.active = send_words(suite, "active", NULL, 1);
    case_ran(suite, mics_cuda_dispatch_round(&suite->at, &args));
    mics_host_dispatch_round(suite->pool, &host);
    case_expect_bytes(suite, args.row, host.row, Q * sizeof *want);
    case_expect_bytes(suite, args.assignment, host.assignment, Q * sizeof *want);
    case_expect_bytes(suite, args.received_offsets, host.received_offsets,
                      (experts + 1) * sizeof *want);
    case_expect_bytes(suite, args.received, host.received, Q * sizeof *want);
    case_expect_bytes(suite, args.active, host.active, sizeof *want);
    case_end(suite);
    free(offsets);
    free(want);
}

static void product_case(struct suite *suite, const struct mixture *m, enum mics_dtype dtype,
                         bool trans_b)
{
    const struct expert_case *c = m->is;
    const uint64_t stride = expert_stride((uint64_t)c->F * c->C);
    struct mics_args_grouped_matmul args = {.stride = stride,
                                            .rows = m->N,
                                            .E = c->E,
                                            .n = c->F,
                                            .k = c->C,
                                            .trans_b = trans_b,
                                            .dtype = dtype};
    struct tensor a, b, out;

    case_begin(suite, 0, "grouped_%s_%s_%s", trans_b ? "nt" : "nn", dtype_name(dtype), c->name);
    a = case_random(suite, "a", dtype, (size_t)m->N * c->C, 1, 1, 0);
    b = case_random(suite, "b", dtype, c->E * stride, 1, 2, 0);
    out = case_output(suite, "out", dtype, (size_t)m->N * c->F, 0);
    args.out = out.device;
    args.a = a.device;
    args.b = b.device;
    args.offsets = send_words(suite, "offsets", m->offsets, c->E + 1);
    case_ran(suite, mics_cuda_grouped_matmul(&suite->at, &args));
    args.out = out.values;
    args.a = a.values;
    args.b = b.values;
    args.offsets = m->offsets;
    args.dtype = MICS_F32;
    mics_host_grouped_matmul(suite->pool, &args);
    case_expect(suite, &out, 2e-5);
    case_end(suite);
}

static void product_grad_case(struct suite *suite, const struct mixture *m, enum mics_dtype dtype,
                              enum mics_dtype grad_dtype, bool add)
{
    const struct expert_case *c = m->is;
    const uint64_t stride = expert_stride((uint64_t)c->F * c->C);
    struct mics_args_grouped_matmul_grad args = {.stride = stride,
                                                 .rows = m->N,
                                                 .E = c->E,
                                                 .m = c->C,
                                                 .n = c->F,
                                                 .add = add,
                                                 .dtype = dtype,
                                                 .grad_dtype = grad_dtype};
    struct tensor a, b, out;

    case_begin(suite, 0, "grouped_grad_%s_%s_%s", dtype_name(dtype), dtype_name(grad_dtype),
               c->name);
    a = case_random(suite, "a", dtype, (size_t)m->N * c->C, 1, 1, 0);
    b = case_random(suite, "b", dtype, (size_t)m->N * c->F, 1, 2, 0);
    out = case_random(suite, "out", grad_dtype, c->E * stride, 1, 3, 0);
    args.out = out.device;
    args.a = a.device;
    args.b = b.device;
    args.offsets = send_words(suite, "offsets", m->offsets, c->E + 1);
    case_ran(suite, mics_cuda_grouped_matmul_grad(&suite->at, &args));
    args.out = out.values;
    args.a = a.values;
    args.b = b.values;
    args.offsets = m->offsets;
    args.dtype = args.grad_dtype = MICS_F32;
    mics_host_grouped_matmul_grad(suite->pool, &args);
    case_expect(suite, &out, 2e-5);
    case_end(suite);
}

/* By name: the router's, those with vectors and without, and products on tensor cores (of several
 * tiles and parts) and without. */
void record_expert_cases(struct suite *suite)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        const struct expert_case *c = &expert_cases[i];
        struct mixture m = mixture_of(suite, c);
        const bool odd = c->C % 8 != 0, tiles = c->rows == 150;

        if (c->logits != LOGITS_ANY || c->renormalise)
            route_case(suite, &m);
        if (c->logits == LOGITS_TIED || c->logits == LOGITS_FEW) {
            sort_case(suite, &m);
            capacity_case(suite, &m, 9);
            losses_case(suite, &m);
            stats_case(suite, &m);
            for (size_t d = odd; d < LENGTH(dtypes); d += odd ? 1 : LENGTH(dtypes))
                route_grad_case(suite, &m, dtypes[d]);
        }
        for (size_t d = 0; d < LENGTH(dtypes) && (odd || c->k == c->E); d++)
            rows_case(suite, &m, dtypes[d]);
        for (size_t d = 0; d < LENGTH(dtypes) && (odd || c->k == c->E); d++)
            shared_case(suite, &m, dtypes[d]);
        for (size_t d = 0; d < LENGTH(dtypes) && (odd || tiles); d++)
            scatter_case(suite, &m, dtypes[d]);
        for (uint32_t round = 0; round < 2 && c->logits >= LOGITS_TIED && c->logits <= LOGITS_FEW;
             round++)
            round_case(suite, &m, round);
        for (size_t d = 0; d < LENGTH(dtypes) && (odd || tiles); d++)
            for (int form = 0; form < grad_types(dtypes[d]) && tensor_cores_take(suite, dtypes[d]);
                 form++) {
                if (form < 2)
                    product_case(suite, &m, dtypes[d], form);
                product_grad_case(suite, &m, dtypes[d], grad_type(dtypes[d], form), odd ^ form);
            }
        free_mixture(&m);
    }
}
