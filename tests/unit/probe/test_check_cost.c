/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_cost.c - what faults of a cluster cost a plan. Documents made by hand. */
#include "plan/search/range.h"
#include "plan/search/search.h"
#include "probe/check.h"
#include "probe/check_cost.h"
#include "probe/findings.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char cluster[] = "{\"kind\": \"mics.check\", \"v\": 1, \"verdict\": \"bad\","
                              " \"hosts\": [\"n0\", \"n1\"], \"nodes\": [{\"host\": \"n0\","
                              " \"ranks\": 1, \"facts\": {}}, {\"host\": \"n1\", \"ranks\": 1,"
                              " \"facts\": {}}], \"findings\": []}";

static struct mics_plan *make_plan(void)
{
    const struct mics_search_options options = {.strategy = "zero3",
                                                .global_batch = 16,
                                                .seq = 256,
                                                .recompute = MICS_AUTO,
                                                .prefetch = MICS_AUTO,
                                                .dtype = MICS_F32,
                                                .grad_dtype = MICS_AUTO,
                                                .clip = true};
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;

    CHECK_INT(mics_topology_parse("node:4 gpu:1 flops:1T mem:4G membw:10GB/s net:1gbit,50us",
                                  &topology, NULL),
              MICS_OK);
    CHECK_INT(mics_model_open("gpt2-mini", &model, NULL), MICS_OK);
    CHECK_INT(mics_plan_search(topology, model, &options, &plan, NULL), MICS_OK);
    return plan;
}

/* A document with one finding, priced. */
static json_t *priced(const struct mics_plan *plan, const char *slows, double times, bool at_most)
{
    json_t *doc = json_loads(cluster, 0, NULL);
    struct mics_findings findings = {.list = json_object_get(doc, "findings")};

    mics_findings_add_slow(&findings, "slower", -1, NULL, NULL, NULL,
                           (struct mics_slowdown){slows, times, at_most});
    CHECK(!findings.failed);
    CHECK_INT(mics_check_add_costs(doc, plan, NULL), MICS_OK);
    CHECK_INT(mics_check_validate(doc, NULL), MICS_OK);
    return doc;
}

static const json_t *finding_of(const json_t *doc)
{
    return json_array_get(json_object_get(doc, "findings"), 0);
}

static void a_slow_part_costs_what_a_plan_with_it_takes_longer(void)
{
    static const struct {
        const char *slows;
        double scaled[MICS_COST_CLASS_COUNT], times;
        bool at_most;
    } cases[] = {
        {"compute", {2, 1, 1}, 2, false},
        {"net", {1, 1, 4}, 4, false},
        {"net", {1, 1, 2.5}, 2.5, true},
    };
    struct mics_plan *plan = make_plan();
    const double good_s = plan->predicted.step_s;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *doc = priced(plan, cases[i].slows, cases[i].times, cases[i].at_most);
        const json_t *finding = finding_of(doc), *total = json_object_get(doc, "plan");
        double step_s = 0;

        CHECK_INT(mics_plan_predict_scaled(plan, cases[i].scaled, &step_s, NULL), MICS_OK);
        CHECK(step_s > 1.05 * good_s);
        CHECK_NEAR(json_number_value(json_object_get(finding, "adds_share")), step_s / good_s - 1,
                   1e-6);
        CHECK(json_is_true(json_object_get(finding, "at_most")) == cases[i].at_most);
        CHECK_NEAR(json_number_value(json_object_get(total, "step_s")), good_s, 1e-6 * good_s);
        CHECK_NEAR(json_number_value(json_object_get(total, "step_with_faults_s")), step_s,
                   1e-6 * step_s);
        json_decref(doc);
    }
    mics_plan_free(plan);
}

static void slow_memory_costs_less_than_slow_computation(void)
{
    struct mics_plan *plan = make_plan();
    json_t *doc = priced(plan, "memory", 4, false);
    const double share = json_number_value(json_object_get(finding_of(doc), "adds_share"));
    double all_s = 0;

    CHECK_INT(mics_plan_predict_scaled(plan, (double[]){4, 1, 1}, &all_s, NULL), MICS_OK);
    CHECK(share > 0 && share < all_s / plan->predicted.step_s - 1);
    json_decref(doc);
    mics_plan_free(plan);
}

static void what_a_plan_does_not_use_has_no_price(void)
{
    static const struct {
        const char *slows;
        double times;
    } cases[] = {{"copies", 3}, {"node", 2}, {"net", 1}, {"net", NAN}};
    struct mics_plan *plan = make_plan(); /* of one rank on each node */

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *doc = priced(plan, cases[i].slows, cases[i].times, false);

        CHECK(!json_object_get(finding_of(doc), "adds_share"));
        CHECK(json_number_value(json_object_get(json_object_get(doc, "plan"), "step_s")) > 0);
        json_decref(doc);
    }
    mics_plan_free(plan);
}

static void the_page_has_the_price_of_each_fault(void)
{
    struct mics_plan *plan = make_plan();
    json_t *doc = priced(plan, "net", 5, true);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK_INT(mics_check_print(out, doc, 0, NULL), MICS_OK);
    fclose(out);
    CHECK(strstr(text, " up to +") != NULL);
    CHECK(strstr(text, "planned step: ") != NULL);
    CHECK(strstr(text, "; with these faults ") != NULL);
    free(text);
    json_decref(doc);
    mics_plan_free(plan);
}

int main(void)
{
    TAP_RUN(a_slow_part_costs_what_a_plan_with_it_takes_longer);
    TAP_RUN(slow_memory_costs_less_than_slow_computation);
    TAP_RUN(what_a_plan_does_not_use_has_no_price);
    TAP_RUN(the_page_has_the_price_of_each_fault);
    return tap_done();
}
