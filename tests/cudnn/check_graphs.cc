/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_graphs.cc - the real cuDNN has engines for our graphs of attention, on GPUs that are only described.
 *
 * No GPU and no driver is needed: cuDNN plans for a device of which it is told by JSON, and finds a driver that does
 * nothing (tests/fake/libcuda.c). Kernels are not compiled, so nothing is known of results or speed; but a graph that
 * cuDNN does not know, a stride that it does not take, and the workspace that an engine wants, are seen here.
 */
#include "cuda/cudnn_attention.cuh"
#include "cuda/cudnn_plan.cuh"

#include "tap.h"

#include <cstdlib>
#include <dlfcn.h>
#include <string>

static struct mics_cudnn_library library;
static char why_not[MICS_CUDNN_WHY_BYTES];

/* A GPU as cuDNN wants it described. */
static const char pattern[] =
    "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,\"multiProcessorCount\":%d,"
    "\"maxSharedMemoryPerBlockOptin\":%d,\"totalGlobalMem\":%lld,\"l2CacheSize\":%d,"
    "\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"warpSize\":32,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"cudaDeviceId\":0,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64]}";

struct gpu {
    const char *name;
    int version, multiprocessors, shared_bytes;
    long long memory_bytes;
    int cache_bytes;
};

static const struct gpu a100 = {"NVIDIA A100", 800, 108, 166912, 85899345920, 41943040};
static const struct gpu h200 = {"NVIDIA H200", 900, 132, 232448, 150754820096, 62914560};
static const struct gpu b200 = {"NVIDIA B200", 1000, 148, 232448, 193273528320, 132644864};

/* GPT-2 124M and 1.5B; heads of 128; grouped queries, whole and a slice of them; lengths that end no block. */
static const struct mics_cudnn_shape shapes[] = {
    {8, 1024, 12, 12, 64, 12, 36 * 64, false, true},
    {6, 1024, 25, 25, 64, 25, 75 * 64, false, true},
    {8, 2048, 16, 16, 128, 16, 48 * 128, false, true},
    {2, 2048, 16, 4, 128, 16, 24 * 128, false, true},
    {1, 4096, 8, 2, 128, 32, 48 * 128, false, true},
    {4, 512, 40, 40, 64, 40, 120 * 64, false, false},
    {2, 1000, 12, 12, 64, 12, 36 * 64, false, true},
    {2, 130, 2, 1, 40, 2, 4 * 40, false, true},
};

/* Destroyed by the caller. */
static mics_cudnn_descriptor describe(const struct gpu &gpu)
{
    mics_cudnn_descriptor device = NULL;
    char text[2048];
    const int length =
        snprintf(text, sizeof(text), pattern, gpu.name, gpu.version, gpu.multiprocessors,
                 gpu.shared_bytes, gpu.memory_bytes, gpu.cache_bytes);

    CHECK_INT(library.create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device),
              CUDNN_STATUS_SUCCESS);
    CHECK_INT(library.set_attribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, length + 1, text),
              CUDNN_STATUS_SUCCESS);
    CHECK_INT(library.finalize(device), CUDNN_STATUS_SUCCESS);
    return device;
}

/* The workspace of the first engine of a graph whose operations are there; negative: there is none. */
static int64_t first_engine(struct mics_cudnn_graph *graph, const struct gpu &gpu)
{
    mics_cudnn_descriptor engines[MICS_CUDNN_ENGINES_MAX];
    const struct mics_cudnn_place place = {NULL, describe(gpu)};
    int64_t bytes = -1, one = 0;
    int count;

    if (mics_cudnn_engines(graph, &place, engines, &count) == CUDNN_STATUS_SUCCESS)
        CHECK_INT(library.get_attribute(engines[0], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &one, &bytes),
                  CUDNN_STATUS_SUCCESS);
    else
        mics_cudnn_explain(&library, graph->status, why_not);
    library.destroy_descriptor(place.device);
    return bytes;
}

/* An engine takes it, in no more workspace than slices reckon with: little, but for the gradient of grouped queries
 * as much again as the sums of the queries' gradient, and before Hopper once more. */
static void check(const struct mics_cudnn_shape &shape, const struct gpu &gpu)
{
    const int64_t sums = 4 * shape.B * shape.H * shape.T * shape.D;
    const int64_t sums_again = (shape.H != shape.H_kv) + (gpu.version < 900);
    const int64_t most = (shape.grad ? sums_again * sums : 0) + (1 << 20);
    struct mics_cudnn_graph graph;
    const int bad = tap_bad;
    int64_t bytes;

    mics_cudnn_graph_init(&graph, &library);
    mics_cudnn_attention_build(&graph, &shape);
    CHECK_INT(graph.status, CUDNN_STATUS_SUCCESS);
    bytes = first_engine(&graph, gpu);
    CHECK(bytes >= 0);
    CHECK(bytes <= most);
    if (tap_bad > bad)
        printf("# %s, %s, B %d T %d H %d of %d D %d: %lld bytes; %s\n", gpu.name,
               shape.grad ? "gradient" : "forward", (int)shape.B, (int)shape.T, (int)shape.H,
               (int)shape.H_kv, (int)shape.D, (long long)bytes, why_not);
    mics_cudnn_graph_fini(&graph);
}

static void check_all(const struct gpu &gpu, bool grad)
{
    if (library.version == 0)
        TAP_SKIP(why_not);
    for (struct mics_cudnn_shape shape : shapes) {
        shape.grad = grad;
        check(shape, gpu);
    }
}

static void an_h200_has_engines_for_attention(void)
{
    check_all(h200, false);
}

static void an_h200_has_engines_for_its_gradient(void)
{
    check_all(h200, true);
}

static void an_a100_has_engines_for_attention(void)
{
    check_all(a100, false);
}

static void an_a100_has_engines_for_its_gradient(void)
{
    check_all(a100, true);
}

static void a_b200_has_engines_for_attention(void)
{
    check_all(b200, false);
}

static void a_b200_has_engines_for_its_gradient(void)
{
    check_all(b200, true);
}

/* Two products with the maximum of rows between them: the check can fail. */
static void a_graph_that_is_no_attention_has_none(void)
{
    const struct mics_cudnn_layout a = {{1, 1, 64, 64}, {64 * 64, 64 * 64, 64, 1}};
    struct mics_cudnn_graph graph;
    mics_cudnn_descriptor s, p;

    if (library.version == 0)
        TAP_SKIP(why_not);
    mics_cudnn_graph_init(&graph, &library);
    s = mics_cudnn_virtual(&graph, CUDNN_DATA_FLOAT, &a);
    p = mics_cudnn_virtual(&graph, CUDNN_DATA_BFLOAT16, &a);
    mics_cudnn_matmul(&graph, mics_cudnn_tensor(&graph, 1, CUDNN_DATA_BFLOAT16, &a),
                      mics_cudnn_tensor(&graph, 2, CUDNN_DATA_BFLOAT16, &a), s);
    mics_cudnn_reduce(&graph, CUDNN_REDUCE_TENSOR_MAX, s, p);
    mics_cudnn_matmul(&graph, p, mics_cudnn_tensor(&graph, 3, CUDNN_DATA_BFLOAT16, &a),
                      mics_cudnn_tensor(&graph, 4, CUDNN_DATA_BFLOAT16, &a));
    CHECK_INT(graph.status, CUDNN_STATUS_SUCCESS);
    CHECK_INT(first_engine(&graph, h200), -1);
    mics_cudnn_graph_fini(&graph);
}

int main(void)
{
    /* cuDNN finds it by its own name, as it is open already. */
    if (!dlopen(MICS_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL)) {
        printf("Bail out! %s\n", dlerror());
        return 1;
    }
    if (!mics_cudnn_library_open(&library, why_not))
        library.version = 0;
    TAP_RUN(an_h200_has_engines_for_attention);
    TAP_RUN(an_h200_has_engines_for_its_gradient);
    TAP_RUN(an_a100_has_engines_for_attention);
    TAP_RUN(an_a100_has_engines_for_its_gradient);
    TAP_RUN(a_b200_has_engines_for_attention);
    TAP_RUN(a_b200_has_engines_for_its_gradient);
    TAP_RUN(a_graph_that_is_no_attention_has_none);
    return tap_done();
}
