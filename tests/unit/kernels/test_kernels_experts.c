/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts against plain loops in double: the router, its losses and its gradient, the
 * sort, rows in the order of experts and back, products, the activation. */
#include "experts.h"
#include "host/onednn.h"
#include "host/pool.h"
#include "host/products.h"
#include "host/vector.h"
#include "kernels.h"

#define BF16_HALF 0.00390625

/* A case with what the router makes of it, by one thread. */
struct mixture {
    struct expert_case is;
    uint32_t N; /* assignments */
    float *logits, *weights;
    int32_t *experts;
    uint32_t *offsets, *order, *position;
};

static void *array_of_u32(size_t count)
{
    void *out = malloc((count + 1) * sizeof(uint32_t));

    if (!out)
        abort();
    return out;
}

static struct mixture mixture_of(const struct expert_case *c)
{
    const uint32_t N = c->rows * c->k;
    struct mixture m = {.is = *c,
                        .N = N,
                        .logits = random_floats((size_t)c->rows * c->E, 11),
                        .weights = random_floats(N, 1),
                        .experts = array_of_u32(N),
                        .offsets = array_of_u32(c->E + 1),
                        .order = array_of_u32(N),
                        .position = array_of_u32(N)};

    expert_case_logits(c, m.logits);
    mics_host_route(pools[0], &(struct mics_args_route){m.experts, m.weights, m.logits, c->rows,
                                                        c->E, c->k, c->renormalise});
    mics_host_sort_experts(pools[0],
                           &(struct mics_args_sort_experts){m.offsets, m.order, m.position,
                                                            m.experts, c->rows, c->E, c->k, 0});
    return m;
}

static void free_mixture(struct mixture *m)
{
    void *all[] = {m->logits, m->weights, m->experts, m->offsets, m->order, m->position};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* The slot of row r that has expert e; k: none. */
static uint32_t slot_of(const struct mixture *m, uint32_t r, uint32_t e)
{
    uint32_t j = 0;

    while (j < m->is.k && m->experts[r * m->is.k + j] != (int32_t)e)
        j++;
    return j;
}

/* exp(logit) over the sum of those that count: all, or with `chosen` those in the row's slots. */
static double softmax_at(const struct mixture *m, const double *logits, uint32_t r, uint32_t e,
                         bool chosen)
{
    double sum = 0;

    for (uint32_t i = 0; i < m->is.E; i++)
        if (!chosen || slot_of(m, r, i) < m->is.k)
            sum += exp(logits[i] - logits[e]);
    return 1 / sum;
}

static void widen_row(const struct mixture *m, uint32_t r, double *logits)
{
    for (uint32_t e = 0; e < m->is.E; e++)
        logits[e] = (double)m->logits[r * m->is.E + e];
}

/* How many experts come before e in a row: larger, or equal and of a lower index; NaN last. */
static uint32_t rank_of(const float *logits, uint32_t E, uint32_t e)
{
    uint32_t before = 0;

    for (uint32_t i = 0; i < E; i++) {
        const bool equal = logits[i] == logits[e] || (isnan(logits[i]) && isnan(logits[e]));

        before +=
            logits[i] > logits[e] || (!isnan(logits[i]) && isnan(logits[e])) || (equal && i < e);
    }
    return before;
}

static void the_largest_logits_are_chosen_and_of_equal_ones_the_first(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);
        const uint32_t E = m.is.E;
        double logits[64];
        bool right = true;
        double worst = 0;

        for (uint32_t r = 0; r < m.is.rows; r++) {
            widen_row(&m, r, logits);
            for (uint32_t j = 0; j < m.is.k; j++) {
                const uint32_t e = (uint32_t)m.experts[r * m.is.k + j];
                const double want = softmax_at(&m, logits, r, e, m.is.renormalise);
                const double got = (double)m.weights[r * m.is.k + j];

                right &= e < E && rank_of(m.logits + r * E, E, e) == j;
                right &= isnan(want) == isnan(got);
                worst = isnan(want) ? worst : fmax(worst, fabs(got - want));
            }
        }
        CHECK(right);
        CHECK_NEAR(worst, 0, 1e-6);
        free_mixture(&m);
    }
}

static void assignments_are_sorted_by_expert_and_stay_in_order(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);
        uint32_t row = 0;
        bool right = true;

        for (uint32_t e = 0; e < m.is.E; e++) {
            right &= m.offsets[e] == row;
            for (uint32_t a = 0; a < m.N; a++)
                if (m.experts[a] == (int32_t)e) {
                    right &= row < m.N && m.order[row] == a && m.position[a] == row;
                    row++;
                }
        }
        CHECK(right && m.offsets[m.is.E] == row && row == m.N);
        free_mixture(&m);
    }
}

/* Enough assignments for several threads. */
static void many_assignments_are_sorted_alike_by_any_number_of_threads(void)
{
    enum { ROWS = 9000, E = 37, K = 3, N = ROWS * K };
    int32_t *experts = array_of_u32(N);
    uint32_t offsets[2][E + 1], *order[2], *position[2], row = 0;

    for (uint32_t a = 0; a < N; a++)
        experts[a] = (int32_t)(a * 2654435761u % 1009 % E);
    for (unsigned i = 0; i < 2; i++) {
        order[i] = array_of_u32(N);
        position[i] = array_of_u32(N);
        mics_host_sort_experts(pools[2 * i],
                               &(struct mics_args_sort_experts){offsets[i], order[i], position[i],
                                                                experts, ROWS, E, K, 0});
    }
    bool sorted = true;
    for (; row + 1 < N; row++) {
        const uint32_t a = order[1][row], b = order[1][row + 1];

        sorted &= experts[a] < experts[b] || (experts[a] == experts[b] && a < b);
    }
    CHECK(sorted);
    CHECK_SAME_BITS(offsets[1], offsets[0], E + 1);
    CHECK_SAME_BITS(order[1], order[0], N);
    CHECK_SAME_BITS(position[1], position[0], N);
    for (unsigned i = 0; i < 2; i++) {
        free(order[i]);
        free(position[i]);
    }
    free(experts);
}

/* The first `capacity` assignments of each expert have rows, one after another, and the others have
 * none; tokens are summed without them. */
static void experts_with_a_capacity_drop_what_comes_last(void)
{
    enum { ROWS = 9000, E = 37, K = 3, N = ROWS * K, CAPACITY = 700, C = 3 };
    int32_t *experts = array_of_u32(N);
    uint32_t offsets[E + 1], *order = array_of_u32(N), *position = array_of_u32(N), row = 0;
    uint32_t taken[E] = {0}, dropped = 0, wrong = 0;
    float *in = malloc(sizeof *in * N * C), *out = malloc(sizeof *out * ROWS * C);

    /* About 730 of each, but 900 of the first. */
    for (uint32_t a = 0; a < N; a++)
        experts[a] = a % 30 == 0 ? 0 : (int32_t)(a * 2654435761u % 1009 % E);
    mics_host_sort_experts(pools[1], &(struct mics_args_sort_experts){
                                         offsets, order, position, experts, ROWS, E, K, CAPACITY});
    for (uint32_t a = 0; a < N; a++) {
        const int32_t e = experts[a];
        const bool takes = taken[e] < CAPACITY;

        wrong += takes ? position[a] != offsets[e] + taken[e] || order[position[a]] != a
                       : position[a] != MICS_NO_ROW;
        taken[e] += takes;
        dropped += !takes;
    }
    for (uint32_t e = 0; e < E; e++, row += taken[e - 1])
        wrong += offsets[e] != row || offsets[e + 1] - offsets[e] != taken[e];
    for (; row < N; row++)
        wrong += order[row] != MICS_NO_ROW;
    CHECK_INT(wrong, 0);
    CHECK(dropped > 100 && offsets[E] == N - dropped);
    for (uint32_t i = 0; i < N * C; i++)
        in[i] = i / C < offsets[E] ? (float)(i % 64) : NAN;
    mics_host_combine_rows(pools[1], &(struct mics_args_combine_rows){.out = out,
                                                                      .in = in,
                                                                      .position = position,
                                                                      .rows = ROWS,
                                                                      .k = K,
                                                                      .C = C,
                                                                      .dtype = MICS_F32});
    for (uint32_t i = 0; i < ROWS * C; i++) {
        float want = 0;

        for (uint32_t j = 0; j < K; j++)
            if (position[i / C * K + j] != MICS_NO_ROW)
                want += in[position[i / C * K + j] * C + i % C];
        wrong += !(want >= out[i] && want <= out[i]);
    }
    CHECK_INT(wrong, 0);
    free(experts);
    free(order);
    free(position);
    free(in);
    free(out);
}

/* What route_grad differentiates, as a function of a row's logits; the choice is fixed. */
struct slopes {
    float *grad_weights, *balance;
    int32_t *targets;
    uint32_t group;
    double z;
};

static double row_loss(const struct mixture *m, const struct slopes *s, uint32_t r,
                       const double *logits)
{
    const uint32_t E = m->is.E, k = m->is.k;
    double loss = 0, sum = 0;

    for (uint32_t e = 0; e < E; e++) {
        const uint32_t j = slot_of(m, r, e);

        sum += exp(logits[e]);
        if (j < k)
            loss +=
                (double)s->grad_weights[r * k + j] * softmax_at(m, logits, r, e, m->is.renormalise);
        if (s->balance)
            loss += (double)s->balance[r / s->group * E + e] * softmax_at(m, logits, r, e, false);
    }
    return loss + (s->z > 0 && s->targets[r] >= 0 ? s->z * log(sum) * log(sum) : 0);
}

/* Every second row has no target. */
static int32_t *make_targets(uint32_t rows)
{
    int32_t *targets = array_of_u32(rows);

    for (uint32_t r = 0; r < rows; r++)
        targets[r] = r % 2 ? MICS_TARGET_NONE : (int32_t)r;
    return targets;
}

static struct mics_args_route_grad route_grad_args(const struct mixture *m, const struct slopes *s,
                                                   void *out, enum mics_dtype dtype)
{
    return (struct mics_args_route_grad){.grad_logits = out,
                                         .logits = m->logits,
                                         .experts = m->experts,
                                         .weights = m->weights,
                                         .grad_weights = s->grad_weights,
                                         .balance = s->balance,
                                         .targets = s->targets,
                                         .rows = m->is.rows,
                                         .E = m->is.E,
                                         .k = m->is.k,
                                         .group_rows = s->group,
                                         .z_coefficient = (float)s->z,
                                         .renormalise = m->is.renormalise,
                                         .dtype = dtype};
}

static void check_route_grad(const struct mixture *m, const struct slopes *s)
{
    const double step = 1e-5;
    const size_t count = (size_t)m->is.rows * m->is.E;
    float *grad = random_floats(count, 1);
    uint16_t *narrow = array_of_u32(count);
    double logits[64], worst = 0, worst_narrow = 0;
    struct mics_args_route_grad args = route_grad_args(m, s, grad, MICS_F32);

    /* Powers of two change no bit. */
    const double scale = 64;
    float *scaled = random_floats(count, 1), *slopes = copy_floats(s->grad_weights, m->N);
    for (uint32_t i = 0; i < m->N; i++)
        slopes[i] *= (float)scale;
    args.grad_logits = scaled;
    args.grad_weights = slopes;
    args.grad_scale = &scale;
    mics_host_route_grad(pools[0], &args);
    for (size_t i = 0; i < count; i++)
        scaled[i] /= (float)scale;
    args = route_grad_args(m, s, grad, MICS_F32);
    mics_host_route_grad(pools[2], &args);
    CHECK_SAME_BITS(scaled, grad, count);
    free(scaled);
    free(slopes);
    args = route_grad_args(m, s, narrow, MICS_BF16);
    mics_host_route_grad(pools[1], &args);
    for (uint32_t r = 0; r < m->is.rows; r++) {
        widen_row(m, r, logits);
        for (uint32_t e = 0; e < m->is.E; e++) {
            const double at = logits[e], got = (double)grad[r * m->is.E + e];
            const double wide = (double)mics_bf16_widen(narrow[r * m->is.E + e]);

            logits[e] = at + step;
            const double above = row_loss(m, s, r, logits);
            logits[e] = at - step;
            const double want = (above - row_loss(m, s, r, logits)) / (2 * step);
            logits[e] = at;
            worst = fmax(worst, fabs(got - want) / fmax(1, fabs(want)));
            worst_narrow = fmax(worst_narrow, fabs(wide - got) / fmax(1, fabs(got)));
        }
    }
    CHECK_NEAR(worst, 0, 3e-6);
    CHECK_NEAR(worst_narrow, 0, BF16_HALF);
    free(grad);
    free(narrow);
}

static void the_routers_gradient_agrees_with_finite_differences(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);
        struct slopes s = {.grad_weights = random_floats(m.N, 3),
                           .targets = make_targets(m.is.rows),
                           .group = expert_case_group(&m.is)};
        float *balance = random_floats((size_t)3 * m.is.E, 4);

        for (unsigned losses = 0; m.is.logits != LOGITS_NAN && losses < 4; losses++) {
            s.balance = losses & 1 ? balance : NULL;
            s.z = losses & 2 ? 0.125 : 0;
            check_route_grad(&m, &s);
        }
        free(s.grad_weights);
        free(s.targets);
        free(balance);
        free_mixture(&m);
    }
}

static void check_load(const struct mixture *m, uint32_t group)
{
    const uint32_t E = m->is.E, groups = (m->is.rows + group - 1) / group;
    const size_t count = (size_t)groups * 2 * E;
    float *load = random_floats(count, 5), *first = copy_floats(load, count);
    double *want = zero_doubles(count), logits[64], loss = 2, want_loss = 2, own = 1;
    int32_t *targets = make_targets(m->is.rows);
    struct mics_args_router_load args = {load,       &loss, m->logits, load,  m->experts, targets,
                                         m->is.rows, E,     m->is.k,   group, 0.5f,       &own};

    for (size_t i = 0; i < count; i++)
        want[i] = (double)load[i];
    for (uint32_t r = 0; r < m->is.rows; r++) {
        double *const to = want + r / group * 2 * E, sum = 0;

        widen_row(m, r, logits);
        for (uint32_t e = 0; e < E; e++) {
            to[e] += slot_of(m, r, e) < m->is.k;
            to[E + e] += softmax_at(m, logits, r, e, false);
            sum += exp(logits[e]);
        }
        want_loss += targets[r] >= 0 ? 0.5 * log(sum) * log(sum) : 0;
    }
    mics_host_router_load(pools[2], &args);
    CHECK_CLOSE(load, want, count, 3e-6);
    CHECK_NEAR(loss, want_loss, 1e-5 * want_loss);
    CHECK_NEAR(own - 1, loss - 2, 1e-12 * want_loss);
    args.own_sum = NULL;
    args.add = first;
    args.load = copy_floats(first, count);
    mics_host_router_load(pools[0], &args);
    CHECK_SAME_BITS(args.load, load, count);
    args.add = NULL; /* then what is there does not matter, and there is no loss to add to */
    args.load[0] = NAN;
    args.loss_sum = NULL;
    args.z_coefficient = 0;
    mics_host_router_load(pools[0], &args);
    CHECK_NEAR(args.load[0], want[0] - (double)first[0], 1e-5);
    free(args.load);
    free(load);
    free(first);
    free(want);
    free(targets);
}

static void entropies_and_rows_of_experts_are_added_up(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);
        const uint32_t E = m.is.E;
        double want[1 + 64], stats[2][1 + 64], logits[64];

        for (uint32_t e = 0; e <= E; e++)
            want[e] = stats[0][e] = stats[1][e] = e + 1;
        for (uint32_t r = 0; r < m.is.rows; r++) {
            widen_row(&m, r, logits);
            for (uint32_t e = 0; e < E; e++) {
                const double p = softmax_at(&m, logits, r, e, false);

                want[0] -= p > 0 ? p * log(p) : 0;
                want[1 + e] += slot_of(&m, r, e) < m.is.k;
            }
        }
        for (int pool = 0; pool < 2; pool++)
            mics_host_router_stats(
                pools[2 * pool],
                &(struct mics_args_router_stats){stats[pool], m.logits, m.offsets, m.is.rows, E});
        CHECK(memcmp(stats[0], stats[1], (1 + E) * sizeof stats[0][0]) == 0);
        if (m.is.logits == LOGITS_NAN)
            CHECK(isnan(stats[0][0]));
        else
            CHECK_NEAR(stats[0][0], want[0], 1e-5 * want[0]);
        for (uint32_t e = 1; e <= E; e++)
            CHECK_NEAR(stats[0][e], want[e], 0);
        free_mixture(&m);
    }
}

static void loads_are_counted_by_group_and_added_to_others(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);

        if (m.is.logits != LOGITS_NAN) {
            check_load(&m, m.is.rows);
            check_load(&m, expert_case_group(&m.is));
        }
        free_mixture(&m);
    }
}

/* The loss at balance is k for each target; and its formula, with its gradient. */
static void a_balanced_router_has_the_smallest_loss_of_balance(void)
{
    enum { GROUPS = 2, ROWS = 12, E = 4, K = 2 };
    float load[GROUPS][2 * E], balance[GROUPS][E];
    int32_t *targets = make_targets(GROUPS * ROWS);
    double loss = 1, own = 5;

    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t e = 0; e < E; e++) {
            load[g][e] = g == 0 ? ROWS * K / E : e < K ? ROWS : 0;
            load[g][E + e] = g == 0 ? (float)ROWS / E : load[g][e] / K;
        }
    struct mics_args_balance_loss args = {.balance = balance[0],
                                          .loss_sum = &loss,
                                          .load = load[0],
                                          .targets = targets,
                                          .groups = 1,
                                          .group_rows = ROWS,
                                          .E = E,
                                          .coefficient = 0.25,
                                          .divisor = ROWS,
                                          .own_sum = &own};
    mics_host_balance_loss(pools[0], &args);
    CHECK_NEAR(own - 5, loss - 1, 1e-12);
    args.own_sum = NULL;
    CHECK_NEAR(loss, 1 + 0.25 * (ROWS / 2) * K, 1e-12);
    CHECK_NEAR(balance[0][1], 0.25 * (ROWS / 2) * E * (ROWS * K / E) / (ROWS * ROWS), 1e-7);
    args.groups = GROUPS; /* the second has two experts for all: E for each target */
    loss = 0;
    mics_host_balance_loss(pools[2], &args);
    CHECK_NEAR(loss, 0.25 * (ROWS / 2) * (K + E), 1e-12);
    CHECK_NEAR(balance[1][K], 0, 0);
    free(targets);
}

/* Arrays of either type from random numbers, and the same widened. */
static void *narrowed(float *wide, size_t count, enum mics_dtype dtype)
{
    void *out = array_of_u32(count);

    for (size_t i = 0; i < count; i++) {
        mics_store_as(out, i, wide[i], dtype);
        wide[i] = mics_load_as(out, i, dtype);
    }
    return out;
}

/* The largest error beyond rounding to the type. */
static double array_error(const void *got, const double *want, size_t count, enum mics_dtype dtype)
{
    double worst = 0;

    for (size_t i = 0; i < count; i++) {
        const double x = (double)mics_load_as(got, i, dtype), scale = fmax(1, fabs(want[i]));
        const double error = isnan(x) && isnan(want[i]) ? 0 : fabs(x - want[i]) / scale;

        worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
    }
    return fmax(0, worst - (dtype == MICS_BF16 ? BF16_HALF : 0));
}

static void check_moves(const struct mixture *m, enum mics_dtype dtype)
{
    const uint32_t C = m->is.C, k = m->is.k, rows = m->is.rows;
    const size_t in_count = (size_t)rows * C, count = (size_t)m->N * C;
    float *wide = random_floats(in_count, 6), *wide_sorted = random_floats(count, 7);
    void *in = narrowed(wide, in_count, dtype), *sorted = narrowed(wide_sorted, count, dtype);
    void *out = array_of_u32(count), *sum = array_of_u32(in_count);
    double *want = zero_doubles(count), *want_sum = zero_doubles(in_count);

    for (size_t i = 0; i < count; i++) {
        want[i] = (double)wide[m->order[i / C] / k * C + i % C];
        want_sum[m->order[i / C] / k * C + i % C] += (double)wide_sorted[i];
    }
    mics_host_gather_rows(pools[2],
                          &(struct mics_args_gather_rows){out, in, m->order, rows, k, C, dtype});
    CHECK_NEAR(array_error(out, want, count, dtype), 0, 0);
    struct mics_args_combine_rows args = {sum, sorted, NULL, m->position, rows, k, C, dtype};
    mics_host_combine_rows(pools[2], &args);
    CHECK_NEAR(array_error(sum, want_sum, in_count, dtype), 0, 2e-6);
    for (size_t i = 0; i < in_count; i++)
        want_sum[i] += (double)wide[i];
    args.add = args.out = in;
    mics_host_combine_rows(pools[1], &args);
    CHECK_NEAR(array_error(in, want_sum, in_count, dtype), 0, 2e-6);
    void *all[] = {wide, wide_sorted, in, sorted, out, sum, want, want_sum};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Of sorted rows times a router's weights, or, where all tokens share one expert, of rows in order
 * times the logistic function of numbers. */
static void check_swiglu(const struct mixture *m, enum mics_dtype dtype, bool shared)
{
    const uint32_t *const order = shared ? NULL : m->order;
    const uint32_t F = m->is.F, N = m->N;
    const size_t count = (size_t)N * F;
    float *wide = random_floats(2 * count, 8), *wide_grad = random_floats(count, 9);
    void *in = narrowed(wide, 2 * count, dtype), *grad = narrowed(wide_grad, count, dtype);
    void *out = array_of_u32(count);
    float *grad_weights = random_floats(N, 1);
    double *want = zero_doubles(count), *want_in = zero_doubles(2 * count);
    double *want_weights = zero_doubles(N);
    float *logits = random_floats(N, 10);
    const float *const weights = shared ? logits : m->weights;

    for (size_t i = 0; i < count; i++) {
        const size_t slot = shared ? i / F : m->order[i / F];
        const double w = shared ? 1 / (1 + exp(-(double)logits[slot])) : 1;
        const size_t gate_at = i / F * 2 * F + i % F;
        const double gate = (double)wide[gate_at], up = (double)wide[gate_at + F];
        const double s = 1 / (1 + exp(-gate)), g = (double)wide_grad[i];
        const double weight = shared ? w : (double)m->weights[slot];

        want[i] = weight * gate * s * up;
        want_in[gate_at] = weight * g * up * s * (1 + gate * (1 - s));
        want_in[gate_at + F] = weight * g * gate * s;
        want_weights[slot] += g * gate * s * up * (shared ? w * (1 - w) : 1);
    }
    mics_host_expert_swiglu(
        pools[2], &(struct mics_args_expert_swiglu){out, in, weights, order, N, F, dtype, shared});
    CHECK_NEAR(array_error(out, want, count, dtype), 0, 2e-6);
    mics_host_expert_swiglu_grad(
        pools[2], &(struct mics_args_expert_swiglu_grad){in, grad_weights, in, grad, weights, order,
                                                         N, F, dtype, shared});
    CHECK_NEAR(array_error(in, want_in, 2 * count, dtype), 0, 2e-6);
    CHECK_CLOSE(grad_weights, want_weights, N, 1e-5);
    void *all[] = {wide,         wide_grad, in,      grad,         out,
                   grad_weights, want,      want_in, want_weights, logits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void rows_are_gathered_activated_and_combined_as_by_plain_loops(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);

        check_moves(&m, MICS_F32);
        check_moves(&m, MICS_BF16);
        for (int shared = 0; shared < 2; shared++) {
            check_swiglu(&m, MICS_F32, shared);
            check_swiglu(&m, MICS_BF16, shared);
        }
        free_mixture(&m);
    }
}

/* Rounds -------------------------------------------------------------------------------------- */

enum { ROUND_RANKS = 4, ROUND_EXPERTS = 8, ROUND_ROWS = 30, ROUND_K = 2, ROUND_SLOTS = 10 };
enum { ROUND_N = ROUND_ROWS * ROUND_K, ROUND_Q = ROUND_RANKS * ROUND_SLOTS };

/* What a rank has, and what a round makes of it. */
struct round_rank {
    int32_t experts[ROUND_N];
    uint32_t order[ROUND_N], position[ROUND_N], times_sent[ROUND_N];
    uint32_t row[ROUND_Q], assignment[ROUND_Q], received[ROUND_Q];
    uint32_t received_offsets[ROUND_EXPERTS / ROUND_RANKS + 1], active;
};

/* The experts of each rank's tokens: on rank 0 all are the first two, on rank 1 the last two, so
 * that the rounds have more rows than a buffer. */
static void route_ranks(struct round_rank *ranks, uint32_t *offsets)
{
    for (uint32_t s = 0; s < ROUND_RANKS; s++) {
        const int32_t spread = s < 2 ? 2 : ROUND_EXPERTS;

        for (uint32_t i = 0; i < ROUND_N; i++)
            ranks[s].experts[i] =
                (s == 1 ? ROUND_EXPERTS - 2 : 0) + (int32_t)(i * 7 + i / 5 * s) % spread;
        mics_host_sort_experts(pools[0], &(struct mics_args_sort_experts){
                                             offsets + s * (ROUND_EXPERTS + 1), ranks[s].order,
                                             ranks[s].position, ranks[s].experts, ROUND_ROWS,
                                             ROUND_EXPERTS, ROUND_K, 0});
    }
}

static uint32_t count_sent(struct round_rank *rank)
{
    uint32_t sent = 0;

    for (uint32_t slot = 0; slot < ROUND_Q; slot++) {
        const uint32_t at = rank->assignment[slot];

        CHECK_INT(at == MICS_NO_ROW, rank->row[slot] == MICS_NO_ROW);
        if (at == MICS_NO_ROW)
            continue;
        CHECK_INT(rank->order[rank->row[slot]], at);
        CHECK_INT(rank->experts[at] / (ROUND_EXPERTS / ROUND_RANKS), slot / ROUND_SLOTS);
        rank->times_sent[at]++;
        sent++;
    }
    return sent;
}

/* Rank d lists the slots that the others have filled for it, expert by expert. */
static void check_received(const struct round_rank *ranks, uint32_t d)
{
    const uint32_t experts = ROUND_EXPERTS / ROUND_RANKS;
    const struct round_rank *rank = &ranks[d];
    uint32_t filled = 0;

    for (uint32_t e = 0; e < experts; e++)
        for (uint32_t i = rank->received_offsets[e]; i < rank->received_offsets[e + 1]; i++) {
            const uint32_t slot = rank->received[i], s = slot / ROUND_SLOTS;
            const uint32_t at = ranks[s].assignment[d * ROUND_SLOTS + slot % ROUND_SLOTS];

            CHECK(at != MICS_NO_ROW && ranks[s].experts[at] == (int32_t)(d * experts + e));
            CHECK(i == rank->received_offsets[e] || slot > rank->received[i - 1]);
        }
    for (uint32_t s = 0; s < ROUND_RANKS; s++)
        for (uint32_t i = 0; i < ROUND_SLOTS; i++)
            filled += ranks[s].assignment[d * ROUND_SLOTS + i] != MICS_NO_ROW;
    CHECK_INT(rank->received_offsets[experts], filled);
    for (uint32_t i = filled; i < ROUND_Q; i++)
        CHECK(rank->received[i] == MICS_NO_ROW);
}

static void each_row_travels_to_its_expert_in_one_of_the_rounds(void)
{
    static struct round_rank ranks[ROUND_RANKS];
    uint32_t offsets[ROUND_RANKS * (ROUND_EXPERTS + 1)];
    const uint32_t rounds = ROUND_N / ROUND_SLOTS + 1;

    route_ranks(ranks, offsets);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t sent = 0;

        for (uint32_t s = 0; s < ROUND_RANKS; s++) {
            struct round_rank *r = &ranks[s];

            mics_host_dispatch_round(pools[0],
                                     &(struct mics_args_dispatch_round){
                                         r->row, r->assignment, r->received_offsets, r->received,
                                         &r->active, offsets, r->order, ROUND_RANKS, s,
                                         ROUND_EXPERTS, ROUND_SLOTS, round});
            sent += count_sent(r);
        }
        for (uint32_t d = 0; d < ROUND_RANKS; d++) {
            check_received(ranks, d);
            CHECK_INT(ranks[d].active, sent > 0);
        }
        CHECK_INT(sent > 0, round + 1 < rounds);
    }
    for (uint32_t s = 0; s < ROUND_RANKS; s++)
        for (uint32_t i = 0; i < ROUND_N; i++)
            CHECK_INT(ranks[s].times_sent[i], 1);
}

/* Rows without a place stay as they are. */
static void rows_are_scattered_to_where_they_were_gathered_from(void)
{
    const uint32_t order[] = {2, MICS_NO_ROW, 0, 3};
    const float in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    float gathered[12] = {0}, back[12] = {0};

    mics_host_gather_rows(pools[2],
                          &(struct mics_args_gather_rows){gathered, in, order, 4, 1, 3, MICS_F32});
    CHECK(gathered[0] == 7 && gathered[3] == 0 && gathered[6] == 1 && gathered[11] == 12);
    mics_host_scatter_rows(pools[2],
                           &(struct mics_args_scatter_rows){back, gathered, order, 4, 3, MICS_F32});
    for (int i = 0; i < 12; i++)
        CHECK(back[i] == (i / 3 == 1 ? 0 : in[i]));
}

/* Products -------------------------------------------------------------------------------------*/

static uint32_t expert_of_row(const struct mixture *m, uint32_t i)
{
    return (uint32_t)m->experts[m->order[i]];
}

/* method < 0: that of mics_host_grouped_matmul(). */
static void multiply(struct mics_pool *pool, const struct mics_args_grouped_matmul *args,
                     int method)
{
    if (method < 0)
        mics_host_grouped_matmul(pool, args);
    else
        mics_host_grouped_matmul_with_method(pool, args, (enum mics_product_method)method);
}

static void multiply_grad(struct mics_pool *pool, const struct mics_args_grouped_matmul_grad *args,
                          int method)
{
    if (method < 0)
        mics_host_grouped_matmul_grad(pool, args);
    else
        mics_host_grouped_matmul_grad_with_method(pool, args, (enum mics_product_method)method);
}

static void check_product(const struct mixture *m, enum mics_dtype dtype, bool trans_b, int method)
{
    const uint32_t N = m->N, n = m->is.F, k = m->is.C, E = m->is.E;
    const uint64_t stride = expert_stride((uint64_t)n * k);
    const size_t count = (size_t)N * n;
    float *wide_a = random_floats((size_t)N * k, 6), *wide_b = random_floats(E * stride, 7);
    void *a = narrowed(wide_a, (size_t)N * k, dtype), *b = narrowed(wide_b, E * stride, dtype);
    void *outs[2] = {array_of_u32(count), array_of_u32(count)};
    double *want = zero_doubles(count);
    struct mics_args_grouped_matmul args = {.a = a,
                                            .b = b,
                                            .offsets = m->offsets,
                                            .stride = stride,
                                            .rows = N,
                                            .E = E,
                                            .n = n,
                                            .k = k,
                                            .trans_b = trans_b,
                                            .dtype = dtype};

    for (size_t i = 0; i < count; i++) {
        const float *of_b = wide_b + expert_of_row(m, (uint32_t)(i / n)) * stride;

        for (uint32_t x = 0; x < k; x++)
            want[i] += (double)wide_a[i / n * k + x] *
                       (double)of_b[trans_b ? i % n * k + x : x * n + i % n];
    }
    for (unsigned i = 0; i < 2; i++) {
        args.out = memset(outs[i], 0xff, count * sizeof(float));
        multiply(pools[2 * i], &args, method);
    }
    CHECK_NEAR(array_error(outs[0], want, count, dtype), 0, 3e-5);
    CHECK_SAME_BITS((char *)outs[1], (char *)outs[0], count * mics_dtype_bytes(dtype));
    void *all[] = {wide_a, wide_b, a, b, outs[0], outs[1], want};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void check_product_grad(const struct mixture *m, enum mics_dtype dtype,
                               enum mics_dtype grad_dtype, bool add, int method)
{
    const uint32_t N = m->N, rows = m->is.C, n = m->is.F, E = m->is.E;
    const uint64_t stride = expert_stride((uint64_t)rows * n);
    const size_t count = (size_t)E * stride, bytes = count * mics_dtype_bytes(grad_dtype);
    float *wide_a = random_floats((size_t)N * rows, 6), *wide_b = random_floats((size_t)N * n, 7);
    float *wide_out = random_floats(count, 8);
    void *a = narrowed(wide_a, (size_t)N * rows, dtype),
         *b = narrowed(wide_b, (size_t)N * n, dtype);
    void *first = narrowed(wide_out, count, grad_dtype), *outs[2];
    double *want = zero_doubles(count);
    struct mics_args_grouped_matmul_grad args = {.a = a,
                                                 .b = b,
                                                 .offsets = m->offsets,
                                                 .stride = stride,
                                                 .rows = N,
                                                 .E = E,
                                                 .m = rows,
                                                 .n = n,
                                                 .add = add,
                                                 .dtype = dtype,
                                                 .grad_dtype = grad_dtype};

    for (size_t i = 0; i < count; i++) /* what is between matrices stays */
        want[i] = add || i % stride >= (uint64_t)rows * n ? (double)wide_out[i] : 0;
    for (uint32_t i = 0; i < N; i++)
        for (size_t x = 0; x < (size_t)rows * n; x++)
            want[expert_of_row(m, i) * stride + x] +=
                (double)wide_a[i * rows + x / n] * (double)wide_b[i * n + x % n];
    for (unsigned i = 0; i < 2; i++) {
        args.out = outs[i] = memcpy(array_of_u32(count), first, bytes);
        multiply_grad(pools[2 * i], &args, method);
    }
    CHECK_NEAR(array_error(outs[0], want, count, grad_dtype), 0, 3e-5);
    CHECK_SAME_BITS((char *)outs[1], (char *)outs[0], bytes);
    void *all[] = {wide_a, wide_b, wide_out, a, b, first, outs[0], outs[1], want};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* All forms and types by one method, or those in fp32. */
static void check_products(int method, bool in_bf16)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);

        for (unsigned t = 0; t < 8; t++) {
            const enum mics_dtype dtype = t & 1 ? MICS_BF16 : MICS_F32;
            const enum mics_dtype grad_dtype = t & 2 ? MICS_BF16 : MICS_F32;

            if (!in_bf16 && (t & 3))
                continue;
            if (!(t & 2))
                check_product(&m, dtype, t & 4, method);
            check_product_grad(&m, dtype, grad_dtype, t & 4, method);
        }
        free_mixture(&m);
    }
}

static void experts_products_agree_with_plain_loops(void)
{
    check_products(-1, true);
}

static void experts_products_by_our_own_and_by_openblas_agree_with_plain_loops(void)
{
    check_products(MICS_PRODUCT_OWN, true);
    check_products(MICS_PRODUCT_OPENBLAS, false);
}

/* In parts whose number of rows is a power of two. */
static void experts_products_by_onednn_agree_with_plain_loops(void)
{
    if (!mics_onednn_is_built())
        TAP_SKIP("built without oneDNN");
    check_products(MICS_PRODUCT_ONEDNN, false);
}

/* Experts of very different sizes: their pieces have the bits of one thread, and of a product. */
static void a_product_of_an_expert_has_the_bits_of_an_ordinary_one(void)
{
    enum { E = 5, N = 900, WIDE = 200, K = 450, STRIDE = 90048 };
    static const uint32_t offsets[E + 1] = {0, 3, 3, 700, 701, N};
    float *a = random_floats(N * K, 1), *b = random_floats((size_t)E * STRIDE, 2);
    float *out = random_floats(N * WIDE, 3), *want = random_floats(N * WIDE, 4);
    struct mics_args_grouped_matmul args = {.out = out,
                                            .a = a,
                                            .b = b,
                                            .offsets = offsets,
                                            .stride = STRIDE,
                                            .rows = N,
                                            .E = E,
                                            .n = WIDE,
                                            .k = K,
                                            .trans_b = true,
                                            .dtype = MICS_F32};

    mics_host_grouped_matmul_with_method(pools[2], &args, MICS_PRODUCT_OWN);
    for (uint32_t e = 0; e < E; e++)
        mics_host_matmul_with_method(pools[1],
                                     &(struct mics_args_matmul){.out = want + offsets[e] * WIDE,
                                                                .a = a + offsets[e] * K,
                                                                .b = b + (size_t)e * STRIDE,
                                                                .m = offsets[e + 1] - offsets[e],
                                                                .n = WIDE,
                                                                .k = K,
                                                                .lda = K,
                                                                .ldb = K,
                                                                .ldout = WIDE,
                                                                .trans_b = true},
                                     MICS_PRODUCT_OWN);
    CHECK_SAME_BITS(out, want, N * WIDE);
    free(a);
    free(b);
    free(out);
    free(want);
}

int main(void)
{
    open_pools();
    TAP_RUN(the_largest_logits_are_chosen_and_of_equal_ones_the_first);
    TAP_RUN(assignments_are_sorted_by_expert_and_stay_in_order);
    TAP_RUN(many_assignments_are_sorted_alike_by_any_number_of_threads);
    TAP_RUN(experts_with_a_capacity_drop_what_comes_last);
    TAP_RUN(the_routers_gradient_agrees_with_finite_differences);
    TAP_RUN(entropies_and_rows_of_experts_are_added_up);
    TAP_RUN(loads_are_counted_by_group_and_added_to_others);
    TAP_RUN(a_balanced_router_has_the_smallest_loss_of_balance);
    TAP_RUN(rows_are_gathered_activated_and_combined_as_by_plain_loops);
    TAP_RUN(each_row_travels_to_its_expert_in_one_of_the_rounds);
    TAP_RUN(rows_are_scattered_to_where_they_were_gathered_from);
    TAP_RUN(experts_products_agree_with_plain_loops);
    TAP_RUN(experts_products_by_our_own_and_by_openblas_agree_with_plain_loops);
    TAP_RUN(experts_products_by_onednn_agree_with_plain_loops);
    TAP_RUN(a_product_of_an_expert_has_the_bits_of_an_ordinary_one);
    return close_pools();
}
