/* SPDX-License-Identifier: Apache-2.0 */
/* check_cost.c - from how slow a part of the cluster is to how much slower a plan becomes. */
#include "probe/check_cost.h"

#include "plan/search/range.h"
#include "probe/check.h"
#include "probe/findings_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How many times slower than usual: the costs of each class, and access to memory. */
struct slowdown {
    double times[MICS_COST_CLASS_COUNT];
    double memory;
};

static const struct slowdown no_slowdown = {{1, 1, 1}, 1};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Does anything of the plan take longer? */
static bool concerns(const struct mics_plan *plan, const struct slowdown *slow)
{
    return (slow->times[MICS_COST_NET] <= 1 || plan->topology->nodes > 1) &&
           (slow->times[MICS_COST_NODE] <= 1 || plan->topology->per_node > 1);
}

/* false: the finding has no price. */
static bool slowdown_of(const json_t *finding, struct slowdown *out)
{
    const char *slows = text_of(finding, "slows");
    const double times = mics_number_of(finding, "times");

    *out = no_slowdown;
    if (!(times > 1))
        return false;
    if (strcmp(slows, "memory") == 0)
        out->memory = times;
    for (int c = 0; c < MICS_COST_CLASS_COUNT; c++)
        if (strcmp(slows, mics_cost_class_name((enum mics_cost_class)c)) == 0)
            out->times[c] = times;
    return out->memory > 1 || out->times[MICS_COST_COMPUTE] > 1 || out->times[MICS_COST_NODE] > 1 ||
           out->times[MICS_COST_NET] > 1;
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

enum mics_status mics_check_add_costs(json_t *doc, const struct mics_plan *plan,
                                      struct mics_err *err)
{
    const json_t *list = json_object_get(doc, "findings");
    struct slowdown all = no_slowdown, each;
    double good_s, step_s;
    enum mics_status status = price(plan, &no_slowdown, &good_s, err);
    bool failed = false;

    for (size_t i = 0; i < json_array_size(list) && status == MICS_OK; i++) {
        json_t *finding = json_array_get(list, i);

        if (!slowdown_of(finding, &each) || !concerns(plan, &each))
            continue;
        take_slower(&all, &each);
        status = price(plan, &each, &step_s, err);
        if (status == MICS_OK)
            failed |=
                json_object_set_new(finding, "adds_share", json_real(step_s / good_s - 1)) != 0;
    }
    if (status == MICS_OK)
        status = price(plan, &all, &step_s, err);
    if (status == MICS_OK)
        failed |= json_object_set_new(
                      doc, "plan",
                      json_pack("{s:f, s:f}", "step_s", good_s, "step_with_faults_s", step_s)) != 0;
    return status == MICS_OK && failed ? mics_err_nomem(err) : status;
}
