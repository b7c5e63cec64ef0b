/* SPDX-License-Identifier: Apache-2.0 */
/* test_algorithm_times.c - measured algorithms: reading, interpolation, and the choice of a
 * plan. */
#include "doc/doc.h"
#include "plan/search/search.h"
#include "tap.h"
#include "topology/cost.h"

#include <stdlib.h>

static struct mics_err err;

static struct mics_algorithm_timing example(void)
{
    return (struct mics_algorithm_timing){
        .collective = MICS_ALL_GATHER,
        .nodes = 2,
        .per_node = 4,
        .segments = 1,
        .count = 3,
        .points = {{1000, 1e-3, 2e-3}, {100000, 4e-3, 3e-3}, {1000000, 1e-2, 2e-2}},
    };
}

static void measured_sizes_have_the_measured_times(void)
{
    const struct mics_algorithm_timing timing = example();

    CHECK_NEAR(mics_algorithm_timing_flat(&timing, 1000), 1e-3, 1e-12);
    CHECK_NEAR(mics_algorithm_timing_hierarchical(&timing, 100000), 3e-3, 1e-12);
    CHECK_NEAR(mics_algorithm_timing_hierarchical(&timing, 1000000), 2e-2, 1e-12);
}

static void other_sizes_are_interpolated_and_extrapolated(void)
{
    const struct mics_algorithm_timing timing = example();

    CHECK_NEAR(mics_algorithm_timing_flat(&timing, 10000), 2e-3,
               1e-9); /* the middle in the logarithms */
    CHECK_NEAR(mics_algorithm_timing_flat(&timing, 1), 1e-3, 1e-12);
    CHECK_NEAR(mics_algorithm_timing_flat(&timing, 3000000), 3e-2, 1e-12);
}

static void the_window_is_where_a_hierarchy_is_faster(void)
{
    struct mics_algorithm_timing timing = example();

    CHECK_NEAR(mics_algorithm_timing_window(&timing).from, 100000, 0);
    CHECK_NEAR(mics_algorithm_timing_window(&timing).to, 100000, 0);
    timing.points[2].hierarchical_s = 9e-3;
    CHECK_NEAR(mics_algorithm_timing_window(&timing).to, 1000000, 0);
    timing.points[1].hierarchical_s = timing.points[2].hierarchical_s = 1;
    CHECK_NEAR(mics_algorithm_timing_window(&timing).from, 0, 0);
}

/* A topology's document with "exchanges"; text NULL: those of the example. */
static json_t *with_exchanges(const char *topology_text, const char *exchanges)
{
    const struct mics_algorithm_timing timing = example();
    struct mics_topology *topology = NULL;
    json_t *doc = NULL, *list = NULL;

    CHECK_INT(mics_topology_parse(topology_text, &topology, &err), MICS_OK);
    CHECK_INT(mics_topology_to_doc(topology, &doc, &err), MICS_OK);
    mics_topology_free(topology);
    if (exchanges)
        list = json_loads(exchanges, JSON_ALLOW_NUL, NULL);
    else
        CHECK_INT(mics_algorithm_timings_to_doc(&timing, 1, &list, &err), MICS_OK);
    CHECK(list != NULL);
    json_object_set_new(doc, "exchanges", list);
    return doc;
}

#define CLUSTER "node:2 gpu:4 flops:1T mem:16G membw:100GB/s link:20GB/s,3us net:8gbit,30us"

static void a_document_is_read_as_it_was_written(void)
{
    json_t *doc = with_exchanges(CLUSTER, NULL), *again = NULL;
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    CHECK_INT(topology->algorithm_timing_count, 1);
    const struct mics_algorithm_timing *timing =
        mics_algorithm_timing_find(topology, MICS_ALL_GATHER, 2, 4, 1);
    CHECK(timing != NULL);
    if (timing) {
        CHECK_INT(timing->count, 3);
        CHECK_NEAR(timing->points[1].hierarchical_s, 3e-3, 0);
    }
    CHECK(mics_algorithm_timing_find(topology, MICS_ALL_GATHER, 2, 4, 2) == NULL);
    CHECK(mics_algorithm_timing_find(topology, MICS_REDUCE_SCATTER, 2, 4, 1) == NULL);
    CHECK_INT(mics_topology_to_doc(topology, &again, &err), MICS_OK);
    CHECK(json_equal(json_object_get(again, "exchanges"), json_object_get(doc, "exchanges")));
    mics_topology_free(topology);
    json_decref(doc);
    json_decref(again);
}

static void errors_name_the_path(void)
{
#define RACE(points)                                                                               \
    "[{\"collective\":\"all_gather\",\"nodes\":2,\"per_node\":4,\"segments\":1,\"points\":" points \
    "}]"
    static const struct {
        const char *exchanges, *text;
    } cases[] = {
        {"{}", "exchanges: expected an array, found a map"},
        {"[{\"collective\":\"all_reduce\"}]",
         "exchanges[0].collective: 'all_reduce': expected all_gather or reduce_scatter"},
        {RACE("[[1, 2]]"), "exchanges[0].points[0]: expected [bytes, seconds, seconds]"},
        {RACE("[[1, 2, 0]]"), "exchanges[0].points[0][2]: expected a number above 0"},
        {RACE("[[1, 2, 3], [1, 2, 3]]"),
         "exchanges[0].points[1]: sizes must increase from point to point"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *doc = with_exchanges(CLUSTER, cases[i].exchanges);
        struct mics_topology *topology = NULL;

        CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_ERR_FORMAT);
        CHECK_STR(err.text, cases[i].text);
        json_decref(doc);
    }
#undef RACE
}

/* Timings of both collectives with 1, 2 and 4 segments: for 1 MB flat takes a second, hierarchical
 * hierarchical_s[]. */
static json_t *make_timings(const double hierarchical_s[3])
{
    static const uint32_t segments[] = {1, 2, 4};
    struct mics_algorithm_timing timings[6];
    json_t *list = NULL;

    for (int i = 0; i < 6; i++)
        timings[i] = (struct mics_algorithm_timing){
            .collective = i < 3 ? MICS_ALL_GATHER : MICS_REDUCE_SCATTER,
            .nodes = 2,
            .per_node = 4,
            .segments = segments[i % 3],
            .count = 2,
            .points = {{1, 1e-6, 1e-6 * hierarchical_s[i % 3]}, {1e6, 1, hierarchical_s[i % 3]}},
        };
    CHECK_INT(mics_algorithm_timings_to_doc(timings, 6, &list, &err), MICS_OK);
    return list;
}

/* The choice for one group of all eight ranks; hierarchical_s NULL: nothing measured. */
static struct mics_plan_choice choice_with(const char *cluster, const double *hierarchical_s)
{
    const struct mics_search_options options = {.strategy = "mics:8",
                                                .global_batch = 8,
                                                .seq = 64,
                                                .recompute = MICS_AUTO,
                                                .prefetch = MICS_AUTO};
    struct mics_plan_choice choice = {0};
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_plan *plan = NULL;
    json_t *doc = with_exchanges(cluster, NULL);

    if (hierarchical_s)
        json_object_set_new(doc, "exchanges", make_timings(hierarchical_s));
    else
        json_object_del(doc, "exchanges");
    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    CHECK_INT(mics_model_open("gpt2", &model, &err), MICS_OK);
    CHECK_INT(mics_plan_search(topology, model, &options, &plan, &err), MICS_OK);
    if (plan)
        choice = plan->choice;
    mics_plan_free(plan);
    json_decref(doc);
    return choice;
}

static void a_plan_follows_what_was_measured_not_the_formula(void)
{
    static const double flat_wins[] = {2, 2, 2}, staged_wins[] = {.5, .5, .5},
                        two_win[] = {.8, .2, .5};
    struct mics_plan_choice choice = choice_with(CLUSTER, NULL);

    CHECK(choice.hierarchical_gather && choice.hierarchical_reduce); /* by the formula */
    choice = choice_with(CLUSTER, flat_wins);
    CHECK(!choice.hierarchical_gather && !choice.hierarchical_reduce);
    choice = choice_with(CLUSTER, staged_wins);
    CHECK(choice.hierarchical_gather && choice.hierarchical_reduce);
    CHECK_INT(choice.segments, 1);
    choice = choice_with(CLUSTER, two_win);
    CHECK(choice.hierarchical_gather && choice.hierarchical_reduce);
    CHECK_INT(choice.segments, 2);
}

int main(void)
{
    TAP_RUN(measured_sizes_have_the_measured_times);
    TAP_RUN(other_sizes_are_interpolated_and_extrapolated);
    TAP_RUN(the_window_is_where_a_hierarchy_is_faster);
    TAP_RUN(a_document_is_read_as_it_was_written);
    TAP_RUN(errors_name_the_path);
    TAP_RUN(a_plan_follows_what_was_measured_not_the_formula);
    return tap_done();
}
