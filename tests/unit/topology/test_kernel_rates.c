/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_rates.c - times of operations from measured points, collectives beside computation,
 * and both in documents. */
#include "doc/doc.h"
#include "tap.h"
#include "topology/contention.h"

#include <stdlib.h>

static struct mics_err err;

/* Products whose packing costs: seconds = work * (a + b / m + c / n + d / k). */
static double product_s(double m, double n, double k)
{
    return m * n * k * (2e-11 + 3e-9 / m + 1e-9 / n + 2e-9 / k);
}

static struct mics_kernel_rates product_rates(void)
{
    struct mics_kernel_rates rates = {.kernel = MICS_K_MATMUL, .count = 8};

    for (int i = 0; i < 8; i++) {
        struct mics_kernel_point *point = &rates.points[i];

        *point =
            (struct mics_kernel_point){i & 1 ? 768 : 96, i & 2 ? 768 : 96, i & 4 ? 768 : 96, 0};
        point->seconds = product_s(point->m, point->n, point->k);
    }
    mics_kernel_rates_fit(&rates);
    return rates;
}

static void products_of_other_shapes_follow_from_two_sizes_of_each_dimension(void)
{
    const struct mics_kernel_rates rates = product_rates();
    struct mics_args_matmul product = {.m = 1024, .n = 384, .k = 1536};

    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_MATMUL, &product) /
                   product_s(1024, 384, 1536),
               1, 1e-9);
    product = (struct mics_args_matmul){.m = 8, .n = 300, .k = 20};
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_MATMUL, &product) /
                   product_s(8, 300, 20),
               1, 1e-9);
}

static double seconds_of_product(const struct mics_kernel_rates *rates, uint32_t m, uint32_t n,
                                 uint32_t k)
{
    return mics_kernel_launch_seconds(rates, 1, MICS_K_MATMUL,
                                      &(struct mics_args_matmul){.m = m, .n = n, .k = k});
}

/* Whatever the formula says: those of 256 columns take half as long again. */
static void measured_sizes_have_their_measured_times(void)
{
    static const double sizes[] = {64, 256, 1024};
    struct mics_kernel_rates rates = {.kernel = MICS_K_MATMUL, .count = 27};

    for (uint32_t i = 0; i < rates.count; i++) {
        const double m = sizes[i % 3], n = sizes[i / 3 % 3], k = sizes[i / 9];

        rates.points[i] =
            (struct mics_kernel_point){m, n, k, product_s(m, n, k) * (n == 256 ? 1.5 : 1)};
    }
    mics_kernel_rates_fit(&rates);
    for (uint32_t i = 0; i < rates.count; i++) {
        const struct mics_kernel_point *p = &rates.points[i];

        CHECK_NEAR(seconds_of_product(&rates, (uint32_t)p->m, (uint32_t)p->n, (uint32_t)p->k) /
                       p->seconds,
                   1, 1e-9);
    }
    const double between = seconds_of_product(&rates, 64, 128, 256) / product_s(64, 128, 256);
    CHECK(between > 1.1 && between < 1.4);
    const double beyond = seconds_of_product(&rates, 4096, 256, 4096) / product_s(4096, 256, 4096);
    CHECK(beyond > 1.3 && beyond < 1.7);
    rates.points[13].m = 300; /* no grid: the fit alone */
    CHECK(seconds_of_product(&rates, 256, 256, 256) > 0);
}

static void forms_and_types_that_were_not_measured_have_no_time(void)
{
    const struct mics_kernel_rates rates = product_rates();
    struct mics_args_matmul product = {.m = 8, .n = 8, .k = 8, .trans_a = true};

    CHECK(mics_kernel_launch_seconds(&rates, 1, MICS_K_MATMUL, &product) < 0);
    product = (struct mics_args_matmul){.m = 8, .n = 8, .k = 8, .dtype = MICS_BF16};
    CHECK(mics_kernel_launch_seconds(&rates, 1, MICS_K_MATMUL, &product) < 0);
    CHECK(mics_kernel_launch_seconds(&rates, 1, MICS_K_CALL, &(struct mics_args_call){0}) < 0);
    CHECK(mics_kernel_launch_seconds(NULL, 0, MICS_K_MATMUL, &product) < 0);
}

static void an_epilogue_costs_as_much_as_a_gelu(void)
{
    struct mics_kernel_rates rates[2] = {
        product_rates(),
        {.kernel = MICS_K_GELU, .count = 2, .points = {{1000, 1, 1, 2e-6}, {100000, 1, 1, 1e-4}}}};
    const struct mics_args_matmul product = {.m = 100, .n = 100, .k = 50, .pre_gelu = &rates};

    mics_kernel_rates_fit(&rates[1]);
    const double gelu_s =
        mics_kernel_launch_seconds(rates, 2, MICS_K_GELU, &(struct mics_args_gelu){.count = 10000});
    CHECK_NEAR(gelu_s, 2e-6 + 9000 * (1e-4 - 2e-6) / 99000, 1e-12);
    CHECK_NEAR(mics_kernel_launch_seconds(rates, 2, MICS_K_MATMUL, &product),
               product_s(100, 100, 50) + gelu_s, 1e-12);
}

static void experts_products_cost_as_much_as_ordinary_ones_of_their_rows(void)
{
    const struct mics_kernel_rates rates = product_rates();
    struct mics_args_grouped_matmul product = {.rows = 400, .E = 4, .n = 100, .k = 50};
    const struct mics_args_grouped_matmul_grad grad = {.rows = 400, .E = 4, .m = 100, .n = 50};

    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_GROUPED_MATMUL, &product),
               4 * product_s(100, 100, 50), 1e-12);
    product.rows = 3; /* at most three experts have rows */
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_GROUPED_MATMUL, &product),
               3 * product_s(1, 100, 50), 1e-12);
    CHECK(mics_kernel_launch_seconds(&rates, 1, MICS_K_GROUPED_MATMUL_GRAD, &grad) < 0);
}

/* Without bounds the constant, or a slope, would be negative. */
static void a_fit_is_never_negative(void)
{
    struct mics_kernel_rates rates = {
        .kernel = MICS_K_GELU, .count = 2, .points = {{1000, 1, 1, 1e-6}, {100000, 1, 1, 5e-4}}};

    mics_kernel_rates_fit(&rates);
    for (double count = 1; count < 1e12; count *= 7) {
        const struct mics_args_gelu gelu = {.count = (uint64_t)count};

        CHECK(mics_kernel_launch_seconds(&rates, 1, MICS_K_GELU, &gelu) > 0);
    }
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_GELU, &(struct mics_args_gelu){0}), 0,
               0);
}

static void attention_grows_with_the_square_of_the_length(void)
{
    struct mics_kernel_rates rates = {
        .kernel = MICS_K_ATTENTION, .count = 1, .points = {{4, 512, 64, 1e-3}}};
    struct mics_args_attention attention = {.B = 2, .H = 2, .T = 1024, .D = 64, .causal = true};

    mics_kernel_rates_fit(&rates);
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_ATTENTION, &attention), 4e-3, 1e-12);
    attention.causal = false;
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_ATTENTION, &attention), 8e-3, 1e-12);
    attention.causal = true;
    attention.window = 1000; /* whole blocks of 64 keys */
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_ATTENTION, &attention), 4e-3, 1e-12);
    attention.window = 512 - 64;
    CHECK_NEAR(mics_kernel_launch_seconds(&rates, 1, MICS_K_ATTENTION, &attention), 3e-3, 1e-12);
}

static json_t *topology_with(const char *rates, const char *collectives)
{
    json_t *doc = NULL, *value;
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_parse("node:2 gpu:2 mem:4G", &topology, &err), MICS_OK);
    CHECK_INT(mics_topology_to_doc(topology, &doc, &err), MICS_OK);
    mics_topology_free(topology);
    if (rates) {
        CHECK((value = json_loads(rates, 0, NULL)) != NULL);
        json_object_set_new(json_object_get(doc, "device"), "kernel_rates", value);
    }
    if (collectives) {
        CHECK((value = json_loads(collectives, 0, NULL)) != NULL);
        json_object_set_new(doc, "collectives", value);
    }
    return doc;
}

static void rates_are_read_and_written(void)
{
    json_t *doc = topology_with("[{\"kernel\": \"matmul\", \"form\": \"tn\", \"dtype\": \"f32\","
                                "  \"points\": [[96, 96, 96, 1e-3]]},"
                                " {\"kernel\": \"gelu\", \"dtype\": \"bf16\","
                                "  \"points\": [[10, 1, 1, 1e-6], [1000, 1, 1, 1e-5]]}]",
                                NULL),
           *rates = NULL;
    struct mics_topology *topology = NULL;
    const struct mics_args_matmul product = {.m = 192, .n = 96, .k = 96, .trans_a = true};

    json_object_set_new(json_object_get(doc, "device"), "drift", json_real(0.25));
    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    CHECK_INT(topology->kernel_rate_count, 2);
    CHECK_NEAR(topology->drift, 0.25, 1e-12);
    CHECK_NEAR(mics_kernel_launch_seconds(topology->kernel_rates, 2, MICS_K_MATMUL, &product), 2e-3,
               1e-12);
    CHECK_INT(mics_kernel_rates_to_doc(topology->kernel_rates, 2, &rates, &err), MICS_OK);
    CHECK(json_equal(
              json_array_get(rates, 1),
              json_array_get(json_object_get(json_object_get(doc, "device"), "kernel_rates"), 1)) ||
          json_array_size(rates) == 2);
    json_decref(rates);
    mics_topology_free(topology);
    json_decref(doc);
}

/* 1 ns for an element of each array and 2 for one that is written, by types and rounding. */
static void sums_of_blocks_have_a_rate_for_their_types(void)
{
    json_t *doc = topology_with(
        "[{\"kernel\": \"sum_blocks\", \"form\": \"int8-int8\", \"dtype\": \"f32\","
        "  \"points\": [[1000, 1, 1, 3e-6], [1000, 4, 1, 6e-6]]},"
        " {\"kernel\": \"sum_blocks\", \"form\": \"plain-int4-random\", \"dtype\": \"bf16\","
        "  \"points\": [[1000, 1, 1, 7e-6]]}]",
        NULL);
    struct mics_topology *topology = NULL;
    struct mics_args_sum_blocks sum = {
        .count = 2000, .parts = 8, .src_dtype = MICS_INT8, .dst_dtype = MICS_INT8};

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    const struct mics_kernel_rates *rates = topology->kernel_rates;

    CHECK_NEAR(mics_kernel_launch_seconds(rates, 2, MICS_K_SUM_BLOCKS, &sum), 20e-6, 1e-9);
    sum.stochastic = true;
    CHECK(mics_kernel_launch_seconds(rates, 2, MICS_K_SUM_BLOCKS, &sum) < 0);
    sum.parts = 1;
    sum.src_dtype = MICS_BF16;
    sum.dst_dtype = MICS_INT4;
    CHECK_NEAR(mics_kernel_launch_seconds(rates, 2, MICS_K_SUM_BLOCKS, &sum), 14e-6, 1e-9);
    mics_topology_free(topology);
    json_decref(doc);
}

static void check_refused(const char *rates, const char *collectives, const char *message)
{
    json_t *doc = topology_with(rates, collectives);
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, message);
    json_decref(doc);
}

#define SERIES(kernel, rest) "[{\"kernel\": \"" kernel "\", \"dtype\": \"f32\"" rest "}]"
#define BESIDE(points)                                                                             \
    "[{\"collective\": \"all_gather\", \"nodes\": 2, \"per_node\": 2, \"latency_s\": 1e-3, "       \
    "\"bandwidth_bytes_per_s\": 1e7, \"beside_compute\": " points "}]"

static void wrong_points_are_refused_with_their_path(void)
{
    check_refused(SERIES("call", ", \"points\": [[1, 1, 1, 1]]"), NULL,
                  "device.kernel_rates[0].kernel: 'call': no such operation; measure anew");
    check_refused(SERIES("matmul", ", \"points\": [[1, 1, 1, 1]]"), NULL,
                  "device.kernel_rates[0].form: '': no such form of 'matmul'");
    check_refused(SERIES("gelu", ", \"points\": []"), NULL,
                  "device.kernel_rates[0].points: expected 1 to 32 items, found 0");
    check_refused(SERIES("gelu", ", \"points\": [[1, 1, 1]]"), NULL,
                  "device.kernel_rates[0].points[0]: expected [m, n, k, seconds]");
    check_refused(SERIES("gelu", ", \"points\": [[1, 0, 1, 1]]"), NULL,
                  "device.kernel_rates[0].points[0][1]: expected a size from 1 to 1e15");
    check_refused(SERIES("gelu", ", \"points\": [[1, 1, 1, -1]]"), NULL,
                  "device.kernel_rates[0].points[0][3]: expected seconds from 1e-12 to 3600");
    check_refused("[{\"kernel\": \"gelu\", \"dtype\": \"f32\", \"points\": [[1, 1, 1, 1]]},"
                  " {\"kernel\": \"gelu\", \"dtype\": \"f32\", \"points\": [[2, 1, 1, 1]]}]",
                  NULL, "device.kernel_rates[1]: same operation, form and type as in item 0");
    check_refused(
        NULL, BESIDE("[[1024, 1, 1]]"),
        "collectives[0].beside_compute[0]: expected [bytes, seconds, seconds, part lost]");
    check_refused(NULL, BESIDE("[[1024, 1, 1, 1.5]]"),
                  "collectives[0].beside_compute[0][3]: expected a number from 0 to 1");
    check_refused(NULL, BESIDE("[[1024, 1, 1, 0], [1024, 1, 1, 0]]"),
                  "collectives[0].beside_compute[1]: sizes must increase from point to point");
}

static void the_delay_beside_computation_is_a_line_through_two_sizes(void)
{
    json_t *doc =
        topology_with(NULL, BESIDE("[[1000, 1e-3, 3e-3, 0.2], [100000, 1e-2, 3e-2, 0.4]]"));
    struct mics_topology *topology = NULL;
    const struct mics_span all = {2, 2, 1}, net = {2, 1, 2};

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_GATHER, all, 1000).delay_s, 2e-3, 1e-12);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_GATHER, all, 50500).delay_s, 11e-3, 1e-12);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_GATHER, all, 199000).delay_s, 38e-3, 1e-12);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_GATHER, all, 10000).slowdown, 0.3, 1e-12);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_GATHER, all, 1).slowdown, 0.2, 1e-12);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_GATHER, net, 1000).delay_s, 0, 0);
    CHECK_NEAR(mics_contention_of(topology, MICS_ALL_REDUCE, all, 1000).slowdown, 0, 0);
    mics_topology_free(topology);
    json_decref(doc);
}

static json_t *topology_with_stragglers(const char *points)
{
    json_t *doc = topology_with(NULL, NULL);

    json_object_set_new(doc, "stragglers", json_loads(points, 0, NULL));
    return doc;
}

static void check_stragglers_refused(const char *points, const char *message)
{
    json_t *doc = topology_with_stragglers(points);
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, message);
    json_decref(doc);
}

static void stragglers_are_interpolated_between_points(void)
{
    json_t *doc = topology_with_stragglers("[[0.1, 0.02], [0.3, 0.04]]");
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    CHECK_NEAR(mics_straggler_delay(topology, -1), 0, 0);
    CHECK_NEAR(mics_straggler_delay(topology, 0.05), 0.01, 1e-12);
    CHECK_NEAR(mics_straggler_delay(topology, 0.1), 0.02, 1e-12);
    CHECK_NEAR(mics_straggler_delay(topology, 0.2), 0.03, 1e-12);
    CHECK_NEAR(mics_straggler_delay(topology, 9), 0.04, 1e-12);
    mics_topology_free(topology);
    json_decref(doc);
    check_stragglers_refused("[[0.1]]", "stragglers[0]: expected [seconds, seconds]");
    check_stragglers_refused("[[0, 1]]", "stragglers[0][0]: expected a number from 1e-09 to 3600");
    check_stragglers_refused("[[1, -1]]", "stragglers[0][1]: expected a number from 0 to 3600");
    check_stragglers_refused("[[1, 0], [1, 0]]",
                             "stragglers[1]: times must increase from point to point");
}

int main(void)
{
    TAP_RUN(products_of_other_shapes_follow_from_two_sizes_of_each_dimension);
    TAP_RUN(measured_sizes_have_their_measured_times);
    TAP_RUN(forms_and_types_that_were_not_measured_have_no_time);
    TAP_RUN(an_epilogue_costs_as_much_as_a_gelu);
    TAP_RUN(experts_products_cost_as_much_as_ordinary_ones_of_their_rows);
    TAP_RUN(a_fit_is_never_negative);
    TAP_RUN(attention_grows_with_the_square_of_the_length);
    TAP_RUN(rates_are_read_and_written);
    TAP_RUN(sums_of_blocks_have_a_rate_for_their_types);
    TAP_RUN(wrong_points_are_refused_with_their_path);
    TAP_RUN(stragglers_are_interpolated_between_points);
    TAP_RUN(the_delay_beside_computation_is_a_line_through_two_sizes);
    return tap_done();
}
