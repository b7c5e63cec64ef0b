/* SPDX-License-Identifier: Apache-2.0 */
/* test_bench.c - sizes, groups, predictable data, and all cases over ranks that are threads; a
 * corrupted result is counted. */
#include "doc/doc.h"
#include "measure/measure_doc.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_RANKS = 8 };

static struct mics_err err;

static char hosts[MAX_RANKS][64] = {"a", "b", "c", "d"};
static uint32_t ranks_of_node[MAX_RANKS];

static struct mics_bench_request usual(void)
{
    return (struct mics_bench_request){
        .ops = (1u << MICS_BENCH_OP_COUNT) - 1,
        .algos = (1u << MICS_BENCH_ALGO_COUNT) - 1,
        .groups = (1u << MICS_BENCH_GROUP_COUNT) - 1,
        .partition = 2,
        .min_bytes = 4096,
        .max_bytes = TAP_SANITIZED ? 32 << 10 : 300 << 10, /* two sizes */
        .factor = TAP_SANITIZED ? 8 : 75,
        .iters = 2,
        .warmup = 1,
        .check = true,
        .segments = 4,
        .micro_steps = 3,
    };
}

struct rank {
    struct mics_comm *comm;
    uint32_t nodes, per_node;
    struct mics_bench_request request;
    struct mics_bench_result result;
    json_t *doc;
    enum mics_status status;
    struct mics_err err;
};

static struct mics_world world_of(const struct rank *rank)
{
    const uint32_t place = (uint32_t)rank->comm->rank;

    return (struct mics_world){
        .comm = rank->comm,
        .rank = place,
        .size = rank->nodes * rank->per_node,
        .node = place / rank->per_node,
        .node_count = rank->nodes,
        .local_rank = place % rank->per_node,
        .local_size = rank->per_node,
        .ranks_of_node = ranks_of_node,
        .host_of_node = hosts,
        .declared = true,
    };
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    struct mics_world world = world_of(rank);
    struct mics_bench bench;
    uint64_t bytes = 0;

    rank->status = mics_bench_buffer_bytes(&rank->request, &world, &bytes, &rank->err);
    if (rank->status == MICS_OK)
        rank->status = mics_bench_init(&bench, &world, MICS_DEVICE_HOST, bytes, &rank->err);
    if (rank->status != MICS_OK)
        return NULL;
    rank->status = mics_bench_run(&bench, &rank->request, NULL, NULL, &rank->result, &rank->err);
    if (rank->status == MICS_OK)
        rank->status =
            mics_bench_to_doc(&world, &rank->request, &rank->result, &rank->doc, &rank->err);
    mics_bench_fini(&bench);
    return NULL;
}

/* Rank 0's result and, where `doc` is not NULL, its document: the caller's. */
static struct mics_bench_result run(uint32_t nodes, uint32_t per_node,
                                    const struct mics_bench_request *request, json_t **doc)
{
    const uint32_t size = nodes * per_node;
    struct mics_comm *comms[MAX_RANKS];
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)size, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < nodes; i++)
        ranks_of_node[i] = per_node;
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = (struct rank){
            .comm = comms[i], .nodes = nodes, .per_node = per_node, .request = *request};
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (uint32_t i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_STR(ranks[i].err.text, "");
        mics_comm_free(comms[i]);
    }
    for (uint32_t i = 1; i < size; i++) {
        CHECK(json_equal(ranks[i].doc, ranks[0].doc));
        json_decref(ranks[i].doc);
        mics_bench_result_fini(&ranks[i].result);
    }
    if (doc)
        *doc = ranks[0].doc;
    else
        json_decref(ranks[0].doc);
    return ranks[0].result;
}

static uint64_t wrong_of(const struct mics_bench_result *result)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < result->count; i++) {
        wrong += result->rows[i].wrong;
        CHECK(result->rows[i].checked);
        CHECK(result->rows[i].time_s > 0 && result->rows[i].min_s <= result->rows[i].p99_s);
    }
    return wrong;
}

static size_t count_of(const struct mics_bench_result *result, enum mics_bench_op op,
                       enum mics_bench_algo algo, enum mics_bench_group group)
{
    size_t count = 0;

    for (size_t i = 0; i < result->count; i++)
        count += result->rows[i].op == op && result->rows[i].algo == algo &&
                 result->rows[i].group == group;
    return count;
}

static void every_case_on_two_nodes_of_two_is_exact(void)
{
    const struct mics_bench_request request = usual();
    struct mics_bench_result result = run(2, 2, &request, NULL);

    CHECK_INT(wrong_of(&result), 0);
    /* two sizes, out of place and in place */
    CHECK_INT(count_of(&result, MICS_BENCH_ALL_GATHER, MICS_BENCH_FLAT, MICS_BENCH_WORLD), 4);
    CHECK_INT(
        count_of(&result, MICS_BENCH_REDUCE_SCATTER, MICS_BENCH_HIERARCHICAL, MICS_BENCH_WORLD), 4);
    CHECK_INT(count_of(&result, MICS_BENCH_ALL_REDUCE, MICS_BENCH_FLAT, MICS_BENCH_NETWORK), 4);
    CHECK_INT(count_of(&result, MICS_BENCH_SYNC, MICS_BENCH_TWO_HOP, MICS_BENCH_WORLD), 2);
    CHECK_INT(count_of(&result, MICS_BENCH_ALL_GATHER, MICS_BENCH_HIERARCHICAL, MICS_BENCH_NODE),
              0);
    mics_bench_result_fini(&result);
}

static void partitions_that_span_nodes_or_divide_one_are_exact(void)
{
    struct mics_bench_request request = usual();
    struct mics_bench_result result;

    request.ops = 1u << MICS_BENCH_SYNC | 1u << MICS_BENCH_REDUCE_SCATTER;
    for (uint32_t p = 1; p <= 8; p *= 2) {
        if (tap_leaves_out(2))
            continue;
        request.partition = p;
        result = run(4, 2, &request, NULL);
        CHECK_INT(wrong_of(&result), 0);
        CHECK_INT(count_of(&result, MICS_BENCH_SYNC, MICS_BENCH_ONE_HOP, MICS_BENCH_WORLD), 2);
        mics_bench_result_fini(&result);
    }
}

static void a_document_is_read_back_as_it_was(void)
{
    const struct mics_bench_request request = usual();
    struct mics_bench_result back, result;
    json_t *doc = NULL;

    result = run(2, 1, &request, &doc);
    CHECK_INT(mics_bench_from_doc(doc, &back, &err), MICS_OK);
    CHECK_INT(back.count, result.count);
    for (size_t i = 0; i < back.count && i < result.count; i++) {
        CHECK_INT(back.rows[i].bytes, result.rows[i].bytes);
        CHECK_NEAR(back.rows[i].p99_s, result.rows[i].p99_s, 0);
        CHECK_INT(back.rows[i].group, result.rows[i].group);
    }
    mics_bench_result_fini(&back);
    mics_bench_result_fini(&result);
    json_object_set_new(json_array_get(json_object_get(doc, "rows"), 1), "algo",
                        json_string("magic"));
    CHECK_INT(mics_bench_from_doc(doc, &back, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "rows[1].algo: 'magic' is unknown");
    json_decref(doc);
}

/* A row with times around `seconds`. */
static struct mics_bench_row row_of(double seconds, double spread)
{
    return (struct mics_bench_row){.nodes = 1,
                                   .per_node = 2,
                                   .groups = 1,
                                   .segments = 1,
                                   .bytes = 64,
                                   .count = 8,
                                   .iters = 9,
                                   .time_s = seconds,
                                   .min_s = 0.99 * seconds,
                                   .median_s = seconds,
                                   .p99_s = 1.02 * seconds,
                                   .spread_s = spread,
                                   .slowest_s = seconds};
}

static size_t regressions(struct mics_bench_row before, struct mics_bench_row now)
{
    struct rank rank = {.nodes = 1, .per_node = 1};
    struct mics_comm *comm = NULL;
    struct mics_bench_result old = {.count = 1, .rows = &before},
                             fresh = {.count = 1, .rows = &now};
    json_t *old_doc = NULL, *doc = NULL;
    size_t count = 99;

    CHECK_INT(mics_comm_new_self(&comm, &err), MICS_OK);
    rank.comm = comm;
    struct mics_world world = world_of(&rank);
    CHECK_INT(mics_bench_to_doc(&world, &rank.request, &old, &old_doc, &err), MICS_OK);
    CHECK_INT(mics_bench_to_doc(&world, &rank.request, &fresh, &doc, &err), MICS_OK);
    if (mics_bench_compare(doc, old_doc, &count, &err) != MICS_OK)
        count = 77;
    else
        CHECK_INT(json_array_size(json_object_get(doc, "regressions")), count);
    json_decref(old_doc);
    json_decref(doc);
    mics_comm_free(comm);
    return count;
}

static void only_what_is_slower_beyond_the_noise_is_a_regression(void)
{
    struct mics_bench_row other = row_of(1, .01);

    CHECK_INT(regressions(row_of(1, .01), row_of(1, .01)), 0);
    CHECK_INT(regressions(row_of(1, .01), row_of(1.08, .001)), 0);
    CHECK_INT(regressions(row_of(1, .01), row_of(1.5, .01)), 1);
    CHECK_INT(regressions(row_of(1, .01), row_of(.5, .01)), 0);
    other.p99_s = 3; /* the old run was as slow at times, and both vary */
    CHECK_INT(regressions(other, row_of(1.5, .2)), 0);
    CHECK_INT(regressions(other, row_of(1.5, .05)), 1);
    other.bytes = 128;
    CHECK_INT(regressions(other, row_of(1, .01)), 77);
    CHECK_STR(err.text, "has no case in common with this run");
}

static void sums_have_a_closed_form(void)
{
    for (uint64_t e = 0; e < 500; e += 7) {
        double sum = 0;

        for (uint64_t key = 5; key < 45; key++)
            sum += mics_bench_value(key, e, 3);
        CHECK_NEAR(mics_bench_sum(5, 40, e, 3), sum, 0);
    }
}

static void wrong_elements_are_counted(void)
{
    enum { COUNT = 4096 };
    float *data = malloc(COUNT * sizeof *data);

    mics_bench_fill(data, COUNT, 3, 100, 1);
    CHECK_INT(mics_bench_count_wrong(data, COUNT, 3, 100, 1), 0);
    /* the data of another rank, of a neighbouring place, of another time */
    CHECK(mics_bench_count_wrong(data, COUNT, 4, 100, 1) > COUNT / 2);
    CHECK(mics_bench_count_wrong(data, COUNT, 3, 101, 1) > COUNT / 2);
    CHECK(mics_bench_count_wrong(data, COUNT, 3, 100, 2) > COUNT / 2);
    /* one rank's data is no sum of two */
    CHECK_INT(mics_bench_count_wrong_sums(data, COUNT, 3, 2, 100, 1), COUNT);
    CHECK_INT(mics_bench_count_wrong_sums(data, COUNT, 3, 1, 100, 1), 0);
    data[17] += 1;
    data[18] = NAN;
    CHECK_INT(mics_bench_count_wrong(data, COUNT, 3, 100, 1), 2);
    CHECK_INT(mics_bench_count_wrong_sums(data, COUNT, 3, 1, 100, 1), 2);
    free(data);
}

static void sizes_grow_by_factor_or_step_and_keep_to_the_limits(void)
{
    struct mics_bench_request request = {.min_bytes = 1024, .max_bytes = 65536, .factor = 4};

    CHECK_INT(mics_bench_size_count(&request), 4);
    request.factor = 1;
    CHECK_INT(mics_bench_size_count(&request), 1);
    request.step_bytes = 1024;
    CHECK_INT(mics_bench_size_count(&request), 64);
    CHECK_INT(mics_bench_next_size(&request, 1024), 2048);
    request.max_bytes = UINT64_MAX;
    CHECK_INT(mics_bench_next_size(&request, UINT64_MAX - 10), 0);
    CHECK_INT(mics_bench_count(1000, 3, 1), 80);
    CHECK_INT(mics_bench_count(1, 3, 4), 16);
}

static void a_list_of_names_is_a_set(void)
{
    unsigned set = 0;

    CHECK_INT(mics_bench_parse_set("sync,all_gather", mics_bench_op_at, &set, &err), MICS_OK);
    CHECK_INT(set, 1u << MICS_BENCH_SYNC | 1u << MICS_BENCH_ALL_GATHER);
    CHECK_INT(mics_bench_parse_set("flat,", mics_bench_algo_at, &set, &err), MICS_ERR_ARG);
    CHECK_INT(mics_bench_parse_set("worlds", mics_bench_group_at, &set, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'worlds': expected some of world, node, partition, replication, network");
}

static void bus_bandwidth_is_what_a_link_carries(void)
{
    struct mics_bench_row row = {.nodes = 2, .per_node = 4, .bytes = 800, .time_s = 2};

    CHECK_NEAR(mics_bench_algbw(&row), 400, 0);
    CHECK_NEAR(mics_bench_busbw(&row), 350, 1e-9);
    row.op = MICS_BENCH_ALL_REDUCE;
    CHECK_NEAR(mics_bench_busbw(&row), 700, 1e-9);
}

int main(void)
{
    TAP_RUN(sizes_grow_by_factor_or_step_and_keep_to_the_limits);
    TAP_RUN(a_list_of_names_is_a_set);
    TAP_RUN(bus_bandwidth_is_what_a_link_carries);
    TAP_RUN(sums_have_a_closed_form);
    TAP_RUN(wrong_elements_are_counted);
    TAP_RUN(every_case_on_two_nodes_of_two_is_exact);
    TAP_RUN(partitions_that_span_nodes_or_divide_one_are_exact);
    TAP_RUN(a_document_is_read_back_as_it_was);
    TAP_RUN(only_what_is_slower_beyond_the_noise_is_a_regression);
    return tap_done();
}
