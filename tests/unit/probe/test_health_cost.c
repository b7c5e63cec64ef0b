/* SPDX-License-Identifier: Apache-2.0 */
/* test_health_cost.c - what faults of a cluster cost a plan. Documents made by hand. */
#include "plan/search/range.h"
#include "plan/search/search.h"
#include "probe/health.h"
#include "probe/health_cost.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* Four nodes of one rank, whose products and cards reach 100; n2 is slower. */
static const char cluster[] =
    "{\"kind\": \"mics.health\", \"v\": 1, \"verdict\": \"bad\","
    " \"hosts\": [\"n0\", \"n1\", \"n2\", \"n3\"], \"nodes\": ["
    "  {\"facts\": {}, \"rates\": [{\"flops_per_s\": 100.0, \"memory_bytes_per_s\": 100.0}]},"
    "  {\"facts\": {}, \"rates\": [{\"flops_per_s\": 100.0, \"memory_bytes_per_s\": 100.0}]},"
    "  {\"facts\": {}, \"rates\": [{\"flops_per_s\": 50.0, \"memory_bytes_per_s\": 25.0}]},"
    "  {\"facts\": {}, \"rates\": [{\"flops_per_s\": 100.0, \"memory_bytes_per_s\": 100.0}]}],"
    " \"links\": {\"reference_bytes_per_s\": 100.0, \"send\": [100.0, 100.0, 25.0, 100.0],"
    "  \"receive\": [100.0, 100.0, 50.0, 100.0], \"groups\": [0, 0, 1, 1],"
    "  \"pairs\": [[0, 1, 20.0], [0, 2, 40.0], [1, 3, 50.0], [2, 3, 100.0]]},"
    " \"findings\": []}";

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
static json_t *priced(const struct mics_plan *plan, const char *what, int node, const char *where)
{
    json_t *doc = json_loads(cluster, 0, NULL);
    json_t *finding = json_pack("{s:s, s:s}", "what", what, "level", "fault");

    if (node >= 0)
        json_object_set_new(finding, "node", json_integer(node));
    if (where)
        json_object_set_new(finding, "where", json_string(where));
    json_array_append_new(json_object_get(doc, "findings"), finding);
    CHECK_INT(mics_health_add_costs(doc, plan, NULL), MICS_OK);
    CHECK_INT(mics_health_validate(doc, NULL), MICS_OK);
    return doc;
}

static const json_t *finding_of(const json_t *doc)
{
    return json_array_get(json_object_get(doc, "findings"), 0);
}

static void a_slow_part_costs_what_a_plan_with_it_takes_longer(void)
{
    static const struct {
        const char *what;
        int node;
        const char *where;
        double times[MICS_COST_CLASS_COUNT];
        bool at_most;
    } cases[] = {
        {"products", 2, "local rank 0", {2, 1, 1}, false},
        {"slow_send", 2, NULL, {1, 1, 4}, false},
        {"slow_receive", 2, NULL, {1, 1, 2}, false},
        {"slow_card", 2, NULL, {1, 1, 4}, false},
        {"slow_pair", -1, "from n0 to n1", {1, 1, 5}, true},
        {"slow_link", -1, "from n0 to n2", {1, 1, 2.5}, false},
        {"slow_groups", -1, "between the groups of n0 and n2", {1, 1, 2}, true},
    };
    struct mics_plan *plan = make_plan();
    const double good_s = plan->predicted.step_s;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *doc = priced(plan, cases[i].what, cases[i].node, cases[i].where);
        const json_t *finding = finding_of(doc), *total = json_object_get(doc, "plan");
        double step_s = 0;

        CHECK_INT(mics_plan_predict_scaled(plan, cases[i].times, &step_s, NULL), MICS_OK);
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
    json_t *doc = priced(plan, "memory_rate", 2, "local rank 0");
    const double share = json_number_value(json_object_get(finding_of(doc), "adds_share"));
    double all_s = 0;

    CHECK_INT(mics_plan_predict_scaled(plan, (double[]){4, 1, 1}, &all_s, NULL), MICS_OK);
    CHECK(share > 0 && share < all_s / plan->predicted.step_s - 1);
    json_decref(doc);
    mics_plan_free(plan);
}

static void what_is_no_rate_has_no_price(void)
{
    struct mics_plan *plan = make_plan();
    json_t *doc = priced(plan, "gpu_ecc_errors", 2, "GPU 3");

    CHECK(!json_object_get(finding_of(doc), "adds_share"));
    json_decref(doc);
    /* A rank and a pair that the document does not have. */
    doc = priced(plan, "products", 2, "local rank 7");
    CHECK_NEAR(json_number_value(json_object_get(finding_of(doc), "adds_share")), 0, 1e-9);
    json_decref(doc);
    doc = priced(plan, "slow_pair", -1, "from n3 to n0");
    CHECK_NEAR(json_number_value(json_object_get(finding_of(doc), "adds_share")), 0, 1e-9);
    json_decref(doc);
    mics_plan_free(plan);
}

static void the_page_has_the_price_of_each_fault(void)
{
    struct mics_plan *plan = make_plan();
    json_t *doc = priced(plan, "slow_pair", -1, "from n0 to n1");
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK_INT(mics_health_print(out, doc, 0, NULL), MICS_OK);
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
    TAP_RUN(what_is_no_rate_has_no_price);
    TAP_RUN(the_page_has_the_price_of_each_fault);
    return tap_done();
}
