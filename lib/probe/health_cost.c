/* SPDX-License-Identifier: Apache-2.0 */
/* health_cost.c - from what was measured of a fault to how much slower a plan becomes. */
#include "probe/health_cost.h"

#include "plan/search/range.h"
#include "probe/findings_internal.h"
#include "probe/health.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How many times slower than usual: the costs of each class, and access to memory. */
struct slowdown {
    double times[MICS_COST_CLASS_COUNT];
    double memory;
    bool at_most;
};

static const struct slowdown no_slowdown = {{1, 1, 1}, 1, false};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* The upper median of a rate of all ranks. NAN: there is none. */
static double usual_rate(const json_t *doc, const char *key)
{
    const json_t *nodes = json_object_get(doc, "nodes");
    size_t count = 0, used = 0;

    for (size_t i = 0; i < json_array_size(nodes); i++)
        count += json_array_size(json_object_get(json_array_get(nodes, i), "rates"));
    double *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; values && i < json_array_size(nodes); i++) {
        const json_t *rates = json_object_get(json_array_get(nodes, i), "rates");

        for (size_t k = 0; k < json_array_size(rates); k++)
            values[used++] = mics_number_of(json_array_get(rates, k), key);
    }
    const double usual = values ? mics_upper_median(values, used) : NAN;
    free(values);
    return usual;
}

/* Usual over measured; 1 where one of them is not known, or nothing is slower. */
static double times_of(double usual, double rate)
{
    return usual > 0 && rate > 0 && isfinite(usual) ? fmax(1, usual / rate) : 1;
}

static double rank_times(const json_t *doc, const json_t *finding, const char *key)
{
    const json_int_t node = json_integer_value(json_object_get(finding, "node"));
    const json_t *rates =
        json_object_get(json_array_get(json_object_get(doc, "nodes"), (size_t)node), "rates");
    unsigned rank = 0;

    if (sscanf(text_of(finding, "where"), "local rank %u", &rank) != 1)
        return 1;
    return times_of(usual_rate(doc, key), mics_number_of(json_array_get(rates, rank), key));
}

static double node_rate(const json_t *links, const char *key, const json_t *finding)
{
    const json_int_t node = json_integer_value(json_object_get(finding, "node"));

    return json_number_value(json_array_get(json_object_get(links, key), (size_t)node));
}

/* The slowest of the pairs that a finding is about: of the one that it names, or of those between
 * two groups, the fastest, which is what the finding says. 0: none. */
static double pair_rate(const json_t *doc, const json_t *finding, bool between_groups)
{
    const json_t *links = json_object_get(doc, "links"), *hosts = json_object_get(doc, "hosts"),
                 *pairs = json_object_get(links, "pairs"),
                 *groups = json_object_get(links, "groups");
    double rate = 0;

    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);
        const size_t from = (size_t)json_integer_value(json_array_get(pair, 0)),
                     to = (size_t)json_integer_value(json_array_get(pair, 1));
        const char *names[] = {json_string_value(json_array_get(hosts, from)),
                               json_string_value(json_array_get(hosts, to))};
        char where[160];

        if (between_groups) {
            if (json_integer_value(json_array_get(groups, from)) !=
                json_integer_value(json_array_get(groups, to)))
                rate = fmax(rate, json_number_value(json_array_get(pair, 2)));
            continue;
        }
        snprintf(where, sizeof where, "from %s to %s", names[0] ? names[0] : "",
                 names[1] ? names[1] : "");
        if (strcmp(where, text_of(finding, "where")) == 0)
            rate = json_number_value(json_array_get(pair, 2));
    }
    return rate;
}

/* Does anything of the plan take longer? */
static bool concerns(const struct mics_plan *plan, const struct slowdown *slow)
{
    return slow->times[MICS_COST_NET] <= 1 || plan->topology->nodes > 1;
}

/* false: the finding has no price. */
static bool slowdown_of(const json_t *doc, const json_t *finding, struct slowdown *out)
{
    const char *what = text_of(finding, "what");
    const json_t *links = json_object_get(doc, "links");
    const double usual = mics_number_of(links, "reference_bytes_per_s");
    double *net = &out->times[MICS_COST_NET];

    *out = no_slowdown;
    if (strcmp(what, "products") == 0)
        out->times[MICS_COST_COMPUTE] = rank_times(doc, finding, "flops_per_s");
    else if (strcmp(what, "memory_rate") == 0)
        out->memory = rank_times(doc, finding, "memory_bytes_per_s");
    else if (strcmp(what, "slow_send") == 0)
        *net = times_of(usual, node_rate(links, "send", finding));
    else if (strcmp(what, "slow_receive") == 0)
        *net = times_of(usual, node_rate(links, "receive", finding));
    else if (strcmp(what, "slow_card") == 0)
        *net = times_of(
            usual, fmin(node_rate(links, "send", finding), node_rate(links, "receive", finding)));
    else if (strcmp(what, "slow_pair") == 0 || strcmp(what, "slow_link") == 0)
        *net = times_of(usual, pair_rate(doc, finding, false));
    else if (strcmp(what, "slow_groups") == 0)
        *net = times_of(usual, pair_rate(doc, finding, true));
    else
        return false;
    out->at_most = strcmp(what, "slow_pair") == 0 || strcmp(what, "slow_groups") == 0;
    return true;
}

/* Is the kernel limited by memory rather than by products? */
static bool is_memory_bound(enum mics_kernel kernel)
{
    return kernel != MICS_K_MATMUL && kernel != MICS_K_ATTENTION && kernel != MICS_K_ATTENTION_GRAD;
}

/* The step of the plan on a cluster that is so much slower. */
static enum mics_status price(const struct mics_plan *plan, const struct slowdown *slow,
                              double *step_s, struct mics_err *err)
{
    const uint32_t count = plan->topology->kernel_rate_count;
    struct mics_topology topology = *plan->topology;
    struct mics_plan slower = *plan;
    struct mics_kernel_rates *rates = calloc((size_t)count + 1, sizeof *rates);

    if (!rates)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < count; i++) {
        rates[i] = plan->topology->kernel_rates[i];
        for (uint32_t k = 0; k < rates[i].count && is_memory_bound(rates[i].kernel); k++)
            rates[i].points[k].seconds *= slow->memory;
        if (is_memory_bound(rates[i].kernel))
            mics_kernel_rates_fit(&rates[i]);
    }
    topology.memory_bandwidth /= slow->memory;
    topology.kernel_rates = count > 0 ? rates : NULL;
    slower.topology = &topology;
    const enum mics_status status = mics_plan_predict_scaled(&slower, slow->times, step_s, err);
    free(rates);
    return status;
}

/* The slower of both in everything. */
static void take_slower(struct slowdown *all, const struct slowdown *each)
{
    for (int c = 0; c < MICS_COST_CLASS_COUNT; c++)
        all->times[c] = fmax(all->times[c], each->times[c]);
    all->memory = fmax(all->memory, each->memory);
}

enum mics_status mics_health_add_costs(json_t *doc, const struct mics_plan *plan,
                                       struct mics_err *err)
{
    const json_t *list = json_object_get(doc, "findings");
    struct slowdown all = no_slowdown, each;
    double good_s, step_s;
    enum mics_status status = price(plan, &no_slowdown, &good_s, err);
    bool failed = false;

    for (size_t i = 0; i < json_array_size(list) && status == MICS_OK; i++) {
        json_t *finding = json_array_get(list, i);

        if (!slowdown_of(doc, finding, &each) || !concerns(plan, &each))
            continue;
        take_slower(&all, &each);
        status = price(plan, &each, &step_s, err);
        if (status == MICS_OK)
            failed |=
                json_object_set_new(finding, "adds_share", json_real(step_s / good_s - 1)) != 0 ||
                (each.at_most && json_object_set_new(finding, "at_most", json_true()) != 0);
    }
    if (status == MICS_OK)
        status = price(plan, &all, &step_s, err);
    if (status == MICS_OK)
        failed |= json_object_set_new(
                      doc, "plan",
                      json_pack("{s:f, s:f}", "step_s", good_s, "step_with_faults_s", step_s)) != 0;
    return status == MICS_OK && failed ? mics_err_nomem(err) : status;
}
