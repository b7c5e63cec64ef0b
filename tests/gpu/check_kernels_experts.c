/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's operations of mixtures of experts against the host's. */
#include "check.h"
#include "experts.h"

/* Arrays of whole numbers are `struct tensor` of MICS_F32, whose bytes are compared: `host` has
 * what the host's operation makes of them. */
struct mixture {
    struct expert_case is;
    uint32_t N; /* assignments */
    struct tensor logits, weights, experts, offsets, order, position;
    int32_t *host_experts;
    uint32_t *host_offsets, *host_order, *host_position;
};

static bool same_words(const struct tensor *a, const void *want)
{
    return memcmp(a->got, want, array_bytes(a)) == 0;
}

/* An input of whole numbers. */
static struct tensor words(const void *from, size_t count)
{
    struct tensor a = array_output(MICS_F32, count, 0);

    memcpy(a.begin, from, array_bytes(&a));
    array_send(&a);
    return a;
}

/* A double, which a loss is added to. */
static struct tensor sum_from(double first)
{
    return words(&first, 2);
}

static double sum_in(const struct tensor *a)
{
    double sum;

    memcpy(&sum, a->got, sizeof sum);
    return sum;
}

/* Every second row has no target. */
static int32_t *make_targets(uint32_t rows)
{
    int32_t *targets = need(rows * sizeof *targets);

    for (uint32_t r = 0; r < rows; r++)
        targets[r] = r % 2 ? MICS_TARGET_NONE : (int32_t)r;
    return targets;
}

static struct tensor make_logits(const struct expert_case *c)
{
    struct tensor any = array_random(MICS_F32, (size_t)c->rows * c->E, 1, 11, 0);

    expert_case_logits(c, any.values);
    struct tensor logits = array_of(MICS_F32, any.values, any.count, 0);
    array_free(&any);
    return logits;
}

/* The choice and the sort, which are checked here. */
static struct mixture mixture_new(const struct expert_case *c)
{
    const uint32_t N = c->rows * c->k;
    struct mixture m = {.is = *c,
                        .N = N,
                        .logits = make_logits(c),
                        .weights = array_output(MICS_F32, N, 0),
                        .experts = array_output(MICS_F32, N, 0),
                        .offsets = array_output(MICS_F32, c->E + 1, 0),
                        .order = array_output(MICS_F32, N, 0),
                        .position = array_output(MICS_F32, N, 0),
                        .host_experts = need(N * sizeof(int32_t)),
                        .host_offsets = need((c->E + 1) * sizeof(uint32_t)),
                        .host_order = need(N * sizeof(uint32_t)),
                        .host_position = need(N * sizeof(uint32_t))};
    struct mics_args_route route = {
        m.experts.device, m.weights.device, m.logits.device, c->rows, c->E, c->k, c->renormalise};
    struct mics_args_sort_experts sort = {.offsets = m.offsets.device,
                                          .order = m.order.device,
                                          .position = m.position.device,
                                          .experts = m.experts.device,
                                          .rows = c->rows,
                                          .E = c->E,
                                          .k = c->k};

    RUN(route, &route, &m.experts, &m.weights);
    RUN(sort_experts, &sort, &m.offsets, &m.order, &m.position);
    mics_host_route(gpu.pool,
                    &(struct mics_args_route){m.host_experts, m.weights.values, m.logits.values,
                                              c->rows, c->E, c->k, c->renormalise});
    mics_host_sort_experts(
        gpu.pool, &(struct mics_args_sort_experts){m.host_offsets, m.host_order, m.host_position,
                                                   m.host_experts, c->rows, c->E, c->k, 0});
    CHECK(same_words(&m.experts, m.host_experts));
    CHECK_ARRAY(&m.weights, m.weights.values, 2e-6);
    CHECK(same_words(&m.offsets, m.host_offsets));
    CHECK(same_words(&m.order, m.host_order));
    CHECK(same_words(&m.position, m.host_position));
    return m;
}

static void mixture_free(struct mixture *m)
{
    ARRAYS_FREE(&m->logits, &m->weights, &m->experts, &m->offsets, &m->order, &m->position);
    free(m->host_experts);
    free(m->host_offsets);
    free(m->host_order);
    free(m->host_position);
}

static void check_route_grad(const struct mixture *m, enum mics_dtype dtype, bool losses)
{
    const uint32_t E = m->is.E, group = expert_case_group(&m->is);
    struct tensor grad = array_output(dtype, (size_t)m->is.rows * E, 0);
    struct tensor slope = array_random(MICS_F32, m->N, 1, 3, 0);
    struct tensor balance = array_random(MICS_F32, (size_t)3 * E, 1, 4, 0);
    int32_t *targets = make_targets(m->is.rows);
    double scale = 4;
    struct tensor counted = words(targets, m->is.rows), sent_scale = words(&scale, 2);
    struct mics_args_route_grad args = {.grad_logits = grad.device,
                                        .logits = m->logits.device,
                                        .experts = m->experts.device,
                                        .weights = m->weights.device,
                                        .grad_weights = slope.device,
                                        .balance = losses ? balance.device : NULL,
                                        .targets = losses ? counted.device : NULL,
                                        .rows = m->is.rows,
                                        .E = E,
                                        .k = m->is.k,
                                        .group_rows = group,
                                        .z_coefficient = losses ? 0.25f : 0,
                                        .renormalise = m->is.renormalise,
                                        .dtype = dtype,
                                        .grad_scale = losses ? sent_scale.device : NULL};

    RUN(route_grad, &args, &grad);
    args.grad_logits = grad.values;
    args.logits = m->logits.values;
    args.experts = m->host_experts;
    args.weights = m->weights.values;
    args.grad_weights = slope.values;
    args.balance = losses ? balance.values : NULL;
    args.targets = losses ? targets : NULL;
    args.grad_scale = losses ? &scale : NULL;
    args.dtype = MICS_F32;
    mics_host_route_grad(gpu.pool, &args);
    CHECK_ARRAY(&grad, grad.values, 4e-6);
    ARRAYS_FREE(&grad, &slope, &balance, &counted, &sent_scale);
    free(targets);
}

static void check_losses(const struct mixture *m, uint32_t group)
{
    const uint32_t E = m->is.E, groups = (m->is.rows + group - 1) / group;
    struct tensor load = array_random(MICS_F32, (size_t)groups * 2 * E, 1, 5, 0);
    struct tensor balance = array_output(MICS_F32, (size_t)groups * E, 0);
    struct tensor loss = sum_from(2), total = sum_from(1), own = sum_from(3);
    int32_t *targets = make_targets(groups * group);
    struct tensor counted = words(targets, groups * group);
    double want = 2, want_total = 1, want_own = 3;
    struct mics_args_router_load args = {load.device,
                                         loss.device,
                                         m->logits.device,
                                         load.device,
                                         m->experts.device,
                                         counted.device,
                                         m->is.rows,
                                         E,
                                         m->is.k,
                                         group,
                                         0.5f,
                                         own.device};
    struct mics_args_balance_loss of = {balance.device, total.device, load.device, counted.device,
                                        groups,         group,        E,           0.25,
                                        group,          own.device};

    RUN(router_load, &args, &load, &loss, &own);
    mics_host_router_load(
        gpu.pool, &(struct mics_args_router_load){load.values, &want, m->logits.values, load.values,
                                                  m->host_experts, targets, m->is.rows, E, m->is.k,
                                                  group, 0.5f, &want_own});
    CHECK_ARRAY(&load, load.values, 4e-6);
    CHECK_NEAR(sum_in(&loss), want, 1e-5 * fabs(want));
    CHECK_NEAR(sum_in(&own), want_own, 1e-5 * fabs(want_own));
    array_send(&own);
    want_own = 3;
    RUN(balance_loss, &of, &balance, &total, &own);
    mics_host_balance_loss(gpu.pool, &(struct mics_args_balance_loss){
                                         balance.values, &want_total, load.values, targets, groups,
                                         group, E, 0.25, group, &want_own});
    CHECK_ARRAY(&balance, balance.values, 4e-6);
    CHECK_NEAR(sum_in(&total), want_total, 1e-5 * fabs(want_total));
    CHECK_NEAR(sum_in(&own), want_own, 1e-5 * fabs(want_own));
    ARRAYS_FREE(&load, &balance, &loss, &total, &own, &counted);
    free(targets);
}

static void check_stats(const struct mixture *m)
{
    const uint32_t E = m->is.E;
    const size_t bytes = (1 + (size_t)E) * sizeof(double);
    double *first = need(bytes), *want = need(bytes), *got = need(bytes);
    struct mics_args_router_stats args = {
        .logits = m->logits.device, .offsets = m->offsets.device, .rows = m->is.rows, .E = E};
    struct tensor stats;

    for (uint32_t i = 0; i <= E; i++)
        first[i] = want[i] = i;
    stats = words(first, 2 * (1 + (size_t)E));
    args.stats = stats.device;
    RUN(router_stats, &args, &stats);
    args.stats = want;
    args.logits = m->logits.values;
    args.offsets = m->host_offsets;
    mics_host_router_stats(gpu.pool, &args);
    memcpy(got, stats.got, bytes);
    CHECK_NEAR(got[0], want[0], 1e-5 * want[0]);
    for (uint32_t i = 1; i <= E; i++)
        CHECK_NEAR(got[i], want[i], 0);
    array_free(&stats);
    free(first);
    free(want);
    free(got);
}

static void routers_agree(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_new(&expert_cases[i]);

        check_route_grad(&m, dtypes[i % 3], false);
        check_route_grad(&m, dtypes[(i + 1) % 3], true);
        if (m.is.logits != LOGITS_NAN) {
            check_losses(&m, m.is.rows);
            check_losses(&m, expert_case_group(&m.is));
            check_stats(&m);
        }
        mixture_free(&m);
    }
}

/* More than one block of every part, and more experts than one digit of the sort. */
static void many_experts_and_rows_are_routed_as_on_the_host(void)
{
    const struct expert_case wide = {"wide", 300, 600, 5, 8, 8, LOGITS_TIED, false};
    struct mixture m = mixture_new(&wide);

    check_losses(&m, m.is.rows);
    check_stats(&m);
    mixture_free(&m);
}

static void check_moves(const struct mixture *m, enum mics_dtype dtype, unsigned shift)
{
    const uint32_t C = m->is.C, F = m->is.F, k = m->is.k, rows = m->is.rows, N = m->N;
    struct tensor in = array_random(dtype, (size_t)rows * C, 1, 6, shift);
    struct tensor sorted = array_output(dtype, (size_t)N * C, shift);
    struct tensor gates = array_random(dtype, (size_t)N * 2 * F, 3, 7, shift);
    struct tensor out = array_output(dtype, (size_t)N * F, shift);
    struct tensor grad = array_random(dtype, (size_t)N * F, 1, 8, shift);
    struct tensor slope = array_output(MICS_F32, N, 0);
    const struct mics_args_gather_rows gather = {
        sorted.device, in.device, m->order.device, rows, k, C, dtype};
    const struct mics_args_combine_rows combine = {
        in.device, sorted.device, in.device, m->position.device, rows, k, C, dtype};
    const struct mics_args_expert_swiglu swiglu = {
        out.device, gates.device, m->weights.device, m->order.device, N, F, dtype, false};
    const struct mics_args_expert_swiglu_grad swiglu_grad = {gates.device,
                                                             slope.device,
                                                             gates.device,
                                                             grad.device,
                                                             m->weights.device,
                                                             m->order.device,
                                                             N,
                                                             F,
                                                             dtype,
                                                             false};

    RUN(gather_rows, &gather, &sorted);
    mics_host_gather_rows(gpu.pool,
                          &(struct mics_args_gather_rows){sorted.values, in.values, m->host_order,
                                                          rows, k, C, MICS_F32});
    CHECK_NEAR(array_error(&sorted, sorted.values), 0, 0);
    RUN(combine_rows, &combine, &in);
    mics_host_combine_rows(gpu.pool, &(struct mics_args_combine_rows){in.values, sorted.values,
                                                                      in.values, m->host_position,
                                                                      rows, k, C, MICS_F32});
    CHECK_ARRAY(&in, in.values, 0);
    RUN(expert_swiglu, &swiglu, &out);
    mics_host_expert_swiglu(
        gpu.pool, &(struct mics_args_expert_swiglu){out.values, gates.values, m->weights.values,
                                                    m->host_order, N, F, MICS_F32, false});
    CHECK_ARRAY(&out, out.values, activation_tolerance(dtype));
    RUN(expert_swiglu_grad, &swiglu_grad, &gates, &slope);
    mics_host_expert_swiglu_grad(
        gpu.pool, &(struct mics_args_expert_swiglu_grad){gates.values, slope.values, gates.values,
                                                         grad.values, m->weights.values,
                                                         m->host_order, N, F, MICS_F32, false});
    CHECK_ARRAY(&gates, gates.values, activation_tolerance(dtype));
    CHECK_ARRAY(&slope, slope.values, mics_dtype_is_half(dtype) ? 1e-4 : 1e-5);
    ARRAYS_FREE(&in, &sorted, &gates, &out, &grad, &slope);
}

/* Experts that take `capacity` rows at most, and tokens without the rows that were dropped. */
static void check_capacity(const struct mixture *m, uint32_t capacity)
{
    const uint32_t N = m->N, C = m->is.C, rows = m->is.rows, k = m->is.k, E = m->is.E;
    struct tensor offsets = array_output(MICS_F32, E + 1, 0);
    struct tensor order = array_output(MICS_F32, N, 0);
    struct tensor position = array_output(MICS_F32, N, 0);
    struct tensor sorted = array_random(MICS_F32, (size_t)N * C, 1, 6, 0);
    struct tensor out = array_output(MICS_F32, (size_t)rows * C, 0);
    uint32_t *want_offsets = need((E + 1) * sizeof *want_offsets);
    uint32_t *want_order = need(N * sizeof *want_order);
    uint32_t *want_position = need(N * sizeof *want_position);
    const struct mics_args_sort_experts sort = {
        offsets.device, order.device, position.device, m->experts.device, rows, E, k, capacity};
    const struct mics_args_combine_rows combine = {
        out.device, sorted.device, NULL, position.device, rows, k, C, MICS_F32};

    RUN(sort_experts, &sort, &offsets, &order, &position);
    mics_host_sort_experts(gpu.pool,
                           &(struct mics_args_sort_experts){want_offsets, want_order, want_position,
                                                            m->host_experts, rows, E, k, capacity});
    CHECK(same_words(&offsets, want_offsets));
    CHECK(same_words(&order, want_order));
    CHECK(same_words(&position, want_position));
    RUN(combine_rows, &combine, &out);
    mics_host_combine_rows(gpu.pool,
                           &(struct mics_args_combine_rows){out.values, sorted.values, NULL,
                                                            want_position, rows, k, C, MICS_F32});
    CHECK_ARRAY(&out, out.values, 0);
    ARRAYS_FREE(&offsets, &order, &position, &sorted, &out);
    free(want_offsets);
    free(want_order);
    free(want_position);
}

/* A capacity of one row, of some, and of more than there are. */
static void experts_drop_the_rows_that_the_host_drops(void)
{
    const struct expert_case wide = {"wide", 300, 600, 5, 8, 8, LOGITS_TIED, false};
    const uint32_t capacities[] = {1, 9, 4096};

    for (size_t i = 0; i <= EXPERT_CASES; i++) {
        struct mixture m = mixture_new(i < EXPERT_CASES ? &expert_cases[i] : &wide);

        for (size_t c = 0; c < LENGTH(capacities); c++)
            check_capacity(&m, capacities[c]);
        mixture_free(&m);
    }
}

/* An expert that all tokens share: rows in order, times the logistic function of a number. */
static void check_shared(const struct mixture *m, enum mics_dtype dtype, unsigned shift)
{
    const uint32_t rows = m->is.rows, F = m->is.F;
    struct tensor logits = array_random(MICS_F32, rows, 4, 5, 0);
    struct tensor gates = array_random(dtype, (size_t)rows * 2 * F, 3, 7, shift);
    struct tensor out = array_output(dtype, (size_t)rows * F, shift);
    struct tensor grad = array_random(dtype, (size_t)rows * F, 1, 8, shift);
    struct tensor slope = array_output(MICS_F32, rows, 0);
    const struct mics_args_expert_swiglu swiglu = {
        out.device, gates.device, logits.device, NULL, rows, F, dtype, true};
    const struct mics_args_expert_swiglu_grad swiglu_grad = {
        gates.device, slope.device, gates.device, grad.device, logits.device, NULL, rows, F,
        dtype,        true};

    RUN(expert_swiglu, &swiglu, &out);
    mics_host_expert_swiglu(gpu.pool, &(struct mics_args_expert_swiglu){out.values, gates.values,
                                                                        logits.values, NULL, rows,
                                                                        F, MICS_F32, true});
    CHECK_ARRAY(&out, out.values, activation_tolerance(dtype));
    RUN(expert_swiglu_grad, &swiglu_grad, &gates, &slope);
    mics_host_expert_swiglu_grad(
        gpu.pool, &(struct mics_args_expert_swiglu_grad){gates.values, slope.values, gates.values,
                                                         grad.values, logits.values, NULL, rows, F,
                                                         MICS_F32, true});
    CHECK_ARRAY(&gates, gates.values, activation_tolerance(dtype));
    CHECK_ARRAY(&slope, slope.values, mics_dtype_is_half(dtype) ? 1e-4 : 1e-5);
    ARRAYS_FREE(&logits, &gates, &out, &grad, &slope);
}

/* Rows back from the order of experts: each assignment gets its token's row. */
static void check_scatter(const struct mixture *m, enum mics_dtype dtype)
{
    const uint32_t C = m->is.C, N = m->N;
    struct tensor in = array_random(dtype, (size_t)N * C, 1, 6, 0);
    struct tensor out = array_output(dtype, (size_t)N * C, 0);
    const struct mics_args_scatter_rows args = {out.device, in.device, m->order.device,
                                                N,          C,         dtype};

    RUN(scatter_rows, &args, &out);
    mics_host_scatter_rows(gpu.pool, &(struct mics_args_scatter_rows){
                                         out.values, in.values, m->host_order, N, C, MICS_F32});
    CHECK_NEAR(array_error(&out, out.values), 0, 0);
    ARRAYS_FREE(&in, &out);
}

/* A round between two ranks with the same tokens, as rank `rank` has it. */
static void check_round(const struct mixture *m, const struct tensor *offsets,
                        const uint32_t *host_offsets, uint32_t rank, uint32_t round)
{
    enum { RANKS = 2, SLOTS = 21 };
    const uint32_t experts = m->is.E / RANKS;
    struct tensor row = array_output(MICS_F32, RANKS * SLOTS, 0);
    struct tensor assignment = array_output(MICS_F32, RANKS * SLOTS, 0);
    struct tensor begins = array_output(MICS_F32, experts + 1, 0);
    struct tensor received = array_output(MICS_F32, RANKS * SLOTS, 0);
    struct tensor active = array_output(MICS_F32, 1, 0);
    const struct mics_args_dispatch_round args = {
        row.device,    assignment.device, begins.device,   received.device,
        active.device, offsets->device,   m->order.device, RANKS,
        rank,          m->is.E,           SLOTS,           round};
    uint32_t want_row[RANKS * SLOTS], want_assignment[RANKS * SLOTS], want[RANKS * SLOTS];
    uint32_t want_begins[MICS_EXPERTS_MAX + 1], want_active;

    RUN(dispatch_round, &args, &row, &assignment, &begins, &received, &active);
    mics_host_dispatch_round(
        gpu.pool, &(struct mics_args_dispatch_round){want_row, want_assignment, want_begins, want,
                                                     &want_active, host_offsets, m->host_order,
                                                     RANKS, rank, m->is.E, SLOTS, round});
    CHECK(same_words(&row, want_row));
    CHECK(same_words(&assignment, want_assignment));
    CHECK(same_words(&begins, want_begins));
    CHECK(same_words(&received, want));
    CHECK(same_words(&active, &want_active));
    ARRAYS_FREE(&row, &assignment, &begins, &received, &active);
}

static void rows_travel_in_the_rounds_of_the_host(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_new(&expert_cases[i]);
        const size_t count = m.is.E + 1;
        uint32_t *both = need(2 * count * sizeof *both);

        memcpy(both, m.host_offsets, count * sizeof *both);
        memcpy(both + count, m.host_offsets, count * sizeof *both);
        struct tensor offsets = words(both, 2 * count);

        check_scatter(&m, MICS_F32);
        check_scatter(&m, MICS_BF16);
        check_scatter(&m, MICS_F16);
        for (uint32_t round = 0; m.is.E % 2 == 0 && round < 4; round++) {
            check_round(&m, &offsets, both, 0, round);
            check_round(&m, &offsets, both, 1, round);
        }
        ARRAYS_FREE(&offsets);
        free(both);
        mixture_free(&m);
    }
}

static void rows_are_moved_and_activated_as_on_the_host(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_new(&expert_cases[i]);

        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            if (tap_leaves_out(2))
                continue;
            check_moves(&m, dtypes[d], i % 3 == 2);
            check_shared(&m, dtypes[d], i % 3 == 2);
        }
        mixture_free(&m);
    }
}

static void check_product(const struct mixture *m, enum mics_dtype dtype, bool trans_b,
                          unsigned shift)
{
    const uint32_t N = m->N, n = m->is.F, k = m->is.C, E = m->is.E;
    const uint64_t stride = expert_stride((uint64_t)n * k);
    struct tensor a = array_random(dtype, (size_t)N * k, 1, 1, shift);
    struct tensor b = array_random(dtype, (size_t)E * stride, 1, 2, shift);
    struct tensor out = array_output(dtype, (size_t)N * n, shift);
    const struct mics_args_grouped_matmul args = {
        out.device, a.device, b.device, m->offsets.device, stride, N, E, n, k, trans_b, dtype};

    RUN(grouped_matmul, &args, &out);
    mics_host_grouped_matmul(gpu.pool, &(struct mics_args_grouped_matmul){
                                           out.values, a.values, b.values, m->host_offsets, stride,
                                           N, E, n, k, trans_b, MICS_F32});
    CHECK_ARRAY(&out, out.values, 2e-5);
    ARRAYS_FREE(&a, &b, &out);
}

/* What is between the matrices stays, and an expert without rows gets zeros, or with `add` keeps
 * what it has. */
static void check_product_grad(const struct mixture *m, enum mics_dtype dtype,
                               enum mics_dtype grad_dtype, bool add, unsigned shift)
{
    const uint32_t N = m->N, rows = m->is.C, n = m->is.F, E = m->is.E;
    const uint64_t stride = expert_stride((uint64_t)rows * n);
    struct tensor a = array_random(dtype, (size_t)N * rows, 1, 1, shift);
    struct tensor b = array_random(dtype, (size_t)N * n, 1, 2, shift);
    struct tensor out = array_random(grad_dtype, (size_t)E * stride, 1, 3, shift);
    const struct mics_args_grouped_matmul_grad args = {
        out.device, a.device, b.device, m->offsets.device, stride, N, E, rows,
        n,          add,      dtype,    grad_dtype};

    RUN(grouped_matmul_grad, &args, &out);
    mics_host_grouped_matmul_grad(gpu.pool, &(struct mics_args_grouped_matmul_grad){
                                                out.values, a.values, b.values, m->host_offsets,
                                                stride, N, E, rows, n, add, MICS_F32, MICS_F32});
    CHECK_ARRAY(&out, out.values, 5e-5); /* of up to a thousand terms; tensor cores truncate sums */
    ARRAYS_FREE(&a, &b, &out);
}

static void products_of_experts_agree(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_new(&expert_cases[i]);

        for (unsigned form = 0; form < 2 * LENGTH(dtypes); form++) {
            const enum mics_dtype dtype = dtypes[form / 2];
            const enum mics_dtype grad_dtype = grad_type(dtype, (form + i) % 2);

            if (tap_leaves_out(5))
                continue;
            check_product(&m, dtype, form % 2, i == 2);
            check_product_grad(&m, dtype, grad_dtype, form % 2, i == 3);
        }
        mixture_free(&m);
    }
}

/* Several panels of tiles, and sums of several parts. */
static void products_of_large_experts_agree(void)
{
    const struct expert_case large = {"large", 1200, 3, 2, 200, 264, LOGITS_ONE, false};
    struct mixture m = mixture_new(&large);

    check_product(&m, MICS_BF16, true, 0);
    check_product(&m, MICS_BF16, false, 0);
    check_product_grad(&m, MICS_BF16, MICS_F32, true, 0);
    mixture_free(&m);
}

/* Nothing is routed: experts have no rows, and their gradients are zeros. */
static void no_rows_are_no_work_but_zero_gradients(void)
{
    const struct expert_case none = {"none", 0, 4, 2, 16, 24, LOGITS_ANY, false};
    struct mixture m = mixture_new(&none);

    check_product(&m, MICS_BF16, true, 0);
    check_product_grad(&m, MICS_BF16, MICS_F32, false, 0);
    check_product_grad(&m, MICS_F32, MICS_F32, false, 0);
    check_moves(&m, MICS_F32, 0);
    mixture_free(&m);
}

int main(void)
{
    open_gpu();
    TAP_RUN(routers_agree);
    TAP_RUN(many_experts_and_rows_are_routed_as_on_the_host);
    TAP_RUN(rows_are_moved_and_activated_as_on_the_host);
    TAP_RUN(experts_drop_the_rows_that_the_host_drops);
    TAP_RUN(rows_travel_in_the_rounds_of_the_host);
    TAP_RUN(products_of_experts_agree);
    TAP_RUN(products_of_large_experts_agree);
    TAP_RUN(no_rows_are_no_work_but_zero_gradients);
    return close_gpu();
}
