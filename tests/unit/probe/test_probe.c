/* SPDX-License-Identifier: Apache-2.0 */
/* test_probe.c - the whole probe over ranks that are threads: 2 nodes of 2, 3 of 1, a single
 * rank. */
#include "doc/doc.h"
#include "probe/probe.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_RANKS = 4 };

struct rank {
    struct mics_comm *comm;
    uint32_t nodes, per_node;
    json_t *doc;
    enum mics_status status;
    struct mics_err err;
};

static char hosts[MAX_RANKS][64] = {"a", "b", "c", "d"};
static uint32_t ranks_of_node[MAX_RANKS];

static void *probe(void *context)
{
    struct rank *rank = context;
    struct mics_world world = {
        .comm = rank->comm,
        .rank = (uint32_t)rank->comm->rank,
        .size = rank->nodes * rank->per_node,
        .node = (uint32_t)rank->comm->rank / rank->per_node,
        .node_count = rank->nodes,
        .local_rank = (uint32_t)rank->comm->rank % rank->per_node,
        .local_size = rank->per_node,
        .ranks_of_node = ranks_of_node,
        .host_of_node = hosts,
        .declared = true,
    };

    rank->status = mics_probe_run(&world, MICS_DEVICE_HOST, .3, &rank->doc, &rank->err);
    return NULL;
}

/* Rank 0's document; the others' are compared with it and freed. */
static json_t *probe_threads(uint32_t nodes, uint32_t per_node)
{
    const uint32_t size = nodes * per_node;
    struct mics_comm *comms[MAX_RANKS];
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)size, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < nodes; i++)
        ranks_of_node[i] = per_node;
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = (struct rank){.comm = comms[i], .nodes = nodes, .per_node = per_node};
        pthread_create(&threads[i], NULL, probe, &ranks[i]);
    }
    for (uint32_t i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_STR(ranks[i].err.text, "");
        mics_comm_free(comms[i]);
    }
    json_object_del(ranks[0].doc, "machine"); /* which only rank 0 describes */
    for (uint32_t i = 1; i < size; i++) {
        CHECK(json_equal(ranks[i].doc, ranks[0].doc));
        json_decref(ranks[i].doc);
    }
    return ranks[0].doc;
}

static void check_link(const struct mics_link *link)
{
    CHECK(link->bandwidth_bytes > 1e6);
    CHECK(link->latency_s < 1);
    CHECK(link->samples >= 9);
    CHECK(isfinite(link->spread));
}

/* Whether its time does not follow from that of others, and is more than a small part of a step. */
static bool is_measured(int kernel)
{
    return kernel == MICS_K_GATHER_ROWS || kernel == MICS_K_COMBINE_ROWS ||
           kernel >= MICS_K_EXPERT_SWIGLU ||
           (kernel < MICS_K_ROUTE && kernel != MICS_K_CALL && kernel != MICS_K_SELECT_ROWS &&
            kernel != MICS_K_LOSS_SCALE);
}

/* Every operation but a call, those of routers and the products of experts, in fp32, and products
 * whose times grow with the size. */
static void check_rates(const struct mics_topology *topology)
{
    bool measured[MICS_KERNEL_COUNT] = {false};

    for (uint32_t i = 0; i < topology->kernel_rate_count; i++) {
        const struct mics_kernel_rates *rates = &topology->kernel_rates[i];
        const struct mics_kernel_point *last = &rates->points[rates->count - 1];

        measured[rates->kernel] |= rates->dtype == MICS_F32;
        CHECK(rates->count >= 2 && last->seconds > 0);
        CHECK(rates->kernel != MICS_K_MATMUL || last->seconds > rates->points[0].seconds);
    }
    for (int kernel = 0; kernel < MICS_KERNEL_COUNT; kernel++)
        CHECK(measured[kernel] == is_measured(kernel));
    CHECK(topology->drift > 0); /* two measurements are never the same */
}

/* The type of the products that a probe of this machine's hosts times. */
static const char *product_dtype(void)
{
    struct mics_device *device = NULL;

    CHECK_INT(mics_device_new_host(1, &device, NULL), MICS_OK);
    const bool has_bf16 = device && device->has_bf16;
    if (device)
        device->ops->free(device);
    return has_bf16 ? "bf16" : "f32";
}

static void two_nodes_of_two_have_all_links_and_shapes(void)
{
    if (TAP_ASAN)
        TAP_SKIP("a sanitizer makes measurements slow");
    json_t *doc = probe_threads(2, 2);
    struct mics_topology *topology = NULL;
    struct mics_err err = {{0}};

    CHECK_INT(mics_topology_from_doc(doc, &topology, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (!topology)
        return;
    CHECK_STR(topology->name, "a");
    CHECK_STR(topology->source, "measured");
    CHECK_STR(topology->device, "host");
    CHECK_STR(topology->flops_dtype, product_dtype());
    CHECK_INT(topology->nodes * 10 + topology->per_node, 22);
    CHECK(topology->flops > 1e7 && topology->memory_bandwidth > 1e7);
    CHECK(topology->memory_bytes > 1 << 20);
    CHECK(topology->cores >= 1);
    check_rates(topology);
    check_link(&topology->node_link);
    check_link(&topology->net_link);
    CHECK_INT(topology->cost_count, 12); /* 1x2, 2x1, 2x2 */
    for (uint32_t i = 0; i < topology->cost_count; i++)
        check_link(&topology->costs[i].cost);
    mics_topology_free(topology);
    json_decref(doc);
}

static void each_collective_keeps_its_points(void)
{
    if (TAP_ASAN)
        TAP_SKIP("a sanitizer makes measurements slow");
    json_t *doc = probe_threads(3, 1);
    const json_t *collectives = json_object_get(doc, "collectives"), *entry;
    size_t i;

    CHECK_INT(json_array_size(collectives), 4);
    json_array_foreach(collectives, i, entry)
    {
        const json_t *points = json_object_get(entry, "points");
        double last = 0;

        CHECK(json_array_size(points) >= 3);
        for (size_t p = 0; p < json_array_size(points); p++) {
            const json_t *point = json_array_get(points, p);

            CHECK(json_number_value(json_array_get(point, 0)) > last);
            CHECK(json_number_value(json_array_get(point, 1)) > 0);
            last = json_number_value(json_array_get(point, 0));
        }
    }
    CHECK(!json_object_get(json_object_get(doc, "links"), "node"));
    CHECK(json_object_get(json_object_get(doc, "links"), "net"));
    json_decref(doc);
}

static void a_single_rank_has_no_links(void)
{
    if (TAP_ASAN)
        TAP_SKIP("a sanitizer makes measurements slow");
    json_t *doc = probe_threads(1, 1);
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_doc(doc, &topology, NULL), MICS_OK);
    CHECK(topology && topology->cost_count == 0 && topology->node_link.bandwidth_bytes == 0);
    mics_topology_free(topology);
    json_decref(doc);
}

static void *probe_world(void *context)
{
    struct rank *rank = context;
    struct mics_world *world = NULL;

    rank->comm->node = rank->comm->rank < 2 ? 0 : 2;
    rank->status = mics_world_open_over(rank->comm, 0, &world, &rank->err);
    if (rank->status == MICS_OK)
        rank->status = mics_probe_run(world, MICS_DEVICE_HOST, .3, &rank->doc, &rank->err);
    mics_world_close(world);
    return NULL;
}

/* Two ranks on one node, one on another. */
static void nodes_with_other_numbers_of_ranks_are_another_part(void)
{
    struct mics_comm *comms[3];
    struct rank ranks[3] = {{0}};
    pthread_t threads[3];
    struct mics_topology *topology = NULL;
    const json_t *part;

    CHECK_INT(mics_comm_new_threads(3, comms, NULL), MICS_OK);
    for (int i = 0; i < 3; i++) {
        ranks[i].comm = comms[i];
        pthread_create(&threads[i], NULL, probe_world, &ranks[i]);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_STR(ranks[i].err.text, "");
        CHECK(i == 0 || json_equal(ranks[i].doc, ranks[0].doc));
    }
    CHECK_INT(mics_topology_from_doc(ranks[0].doc, &topology, &ranks[0].err), MICS_OK);
    CHECK_STR(ranks[0].err.text, "");
    CHECK(topology && topology->nodes == 1 && topology->per_node == 2);
    part = json_array_get(json_object_get(ranks[0].doc, "other_parts"), 0);
    CHECK_INT(json_integer_value(json_object_get(part, "per_node")), 1);
    CHECK_INT(json_array_size(json_object_get(part, "hosts")), 1);
    mics_topology_free(topology);
    for (int i = 0; i < 3; i++)
        json_decref(ranks[i].doc);
}

/* A rank of the second of two nodes has less memory. */
static void *classify(void *context)
{
    struct rank *rank = context;
    struct mics_rank_figures own = {.memory_bytes = 1 << 20, .flops = 2e9, .memory_bandwidth = 3e9};
    struct mics_world world = {
        .comm = rank->comm,
        .size = 4,
        .node_count = 2,
        .local_size = 2,
        .ranks_of_node = ranks_of_node,
        .host_of_node = hosts,
    };

    if (rank->comm->rank == 3)
        own.memory_bytes = rank->nodes; /* the test's */
    strcpy(own.device, "gpu");
    rank->doc = json_object();
    rank->status = mics_node_classes_add(rank->doc, &world, &own, &rank->err);
    return NULL;
}

static void nodes_with_less_memory_are_another_class(void)
{
    static const struct {
        uint32_t bytes, classes;
    } cases[] = {{1 << 20, 0}, {1000000, 0}, {900000, 2}};

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mics_comm *comms[4];
        struct rank ranks[4] = {{0}};
        pthread_t threads[4];
        const json_t *classes;

        CHECK_INT(mics_comm_new_threads(4, comms, NULL), MICS_OK);
        for (int i = 0; i < 4; i++) {
            ranks[i] = (struct rank){.comm = comms[i], .nodes = cases[c].bytes};
            pthread_create(&threads[i], NULL, classify, &ranks[i]);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            CHECK_INT(ranks[i].status, MICS_OK);
            mics_comm_free(comms[i]);
        }
        classes = json_object_get(ranks[0].doc, "node_classes");
        CHECK_INT(json_array_size(classes), cases[c].classes);
        if (cases[c].classes > 0)
            CHECK_INT(
                json_integer_value(json_object_get(json_array_get(classes, 1), "memory_bytes")),
                cases[c].bytes);
        for (int i = 0; i < 4; i++)
            json_decref(ranks[i].doc);
    }
}

int main(void)
{
    TAP_RUN(nodes_with_other_numbers_of_ranks_are_another_part);
    TAP_RUN(nodes_with_less_memory_are_another_class);
    TAP_RUN(two_nodes_of_two_have_all_links_and_shapes);
    TAP_RUN(each_collective_keeps_its_points);
    TAP_RUN(a_single_rank_has_no_links);
    return tap_done();
}
