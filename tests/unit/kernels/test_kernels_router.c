/* SPDX-License-Identifier: Apache-2.0 */
/* The router of mixtures of experts against plain loops in double: its choices, the sort by expert,
 * its losses and its gradient. */
#include "mixture.h"

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
    return close_pools();
}
