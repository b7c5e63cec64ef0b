/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_curves.c - NCCL's collectives as predicted and as published, as two tables in Markdown.
 *
 * usage: nccl_curves        (exits with 1 if a target is missed)
 *
 * The first table is judged. No constant of the model comes from its points. The second table has
 * the points by which constants were chosen that NCCL's own model lacks: other runs, which are
 * printed but not judged.
 *
 * Bus bandwidths are those of nccl-tests: S / t times 2(m-1)/m for an all-reduce of S bytes by m
 * ranks, (m-1)/m for the others. The deviation of a row is that of its time. The catalogue's
 * figures of the machines are used. Where a source says which algorithm ran, or measures more than
 * the collective, the prediction is of that:
 *   - all_reduce_bench.py of stas00/ml-engineering times one call after a barrier, from PyTorch.
 *     Its author measured that this adds some 20 us to a call on a node of 8 H200
 *     (network/benchmarks/README.md, 50.9 us instead of 27.7 for 1 MiB; a user of 4 H100 saw 15 to
 *     20 us: dudeperf3ct.github.io, Distributed communication for GPUs). Across nodes it also times
 *     how long the ranks wait for the last one: its times on 4 nodes of 8 B200 are 196, 173, 142
 *     and 258 us longer at 2, 4, 8 and 32 MiB, which are not judged, than those of its successor,
 *     which queues ten calls. The median is taken.
 *   - One process of nccl-tests that drives 8 GPUs (-g 8) takes 34.7 us for 8 bytes on 8 A100, some
 *     20 us more than processes of one GPU.
 */
#include "topology/nccl_cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define KB 1024.0
#define MB (1024 * KB)
#define GB (1024 * MB)

enum { MAX_POINTS = 8, MAX_ROWS = 256 };

/* Microseconds that a method of measuring adds to a call; see above. */
enum { ONE_CALL_US = 20, ONE_CALL_4_NODES_US = 185, ONE_PROCESS_US = 20 };

/* Published bus bandwidths in GB/s of one collective on one cluster, or microseconds. */
struct curve {
    const char *cluster; /* of the catalogue */
    enum mics_collective collective;
    bool microseconds;
    struct {
        double bytes, value;
    } points[MAX_POINTS];
    const char *source;
    const char *contradiction; /* another source, or why sources disagree; or NULL */
    const char *algorithm;     /* that the source names; NULL: it does not */
    double overhead_us;        /* in the published times */
    uint32_t per_node;         /* ranks; 0: all GPUs */
};

static const struct curve curves[] = {
    {"dgx-a100:1",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 18}, {16 * MB, 106}, {64 * MB, 172}, {256 * MB, 194}, {1 * GB, 229}, {16 * GB, 235}},
     .source = "stas00, nccl-tests, one process",
     .overhead_us = ONE_PROCESS_US},
    {"dgx-h200:1",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 40}, {16 * MB, 220}, {64 * MB, 347}, {256 * MB, 436}, {1 * GB, 464}, {16 * GB, 482}},
     .source = "stas00, one call at a time",
     .overhead_us = ONE_CALL_US},
    {"p6-b200:1",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 36}, {16 * MB, 255}, {64 * MB, 401}, {256 * MB, 646}, {1 * GB, 723}, {16 * GB, 846}},
     .source = "stas00, one call at a time",
     .overhead_us = ONE_CALL_US},
    {"p5:1",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 64}, {16 * MB, 237}, {64 * MB, 360}, {256 * MB, 419}, {1 * GB, 442}, {16 * GB, 483}},
     .source = "awsome-distributed-training"},
    {"p5:1", MICS_ALL_REDUCE, true, {{8, 13}}, .source = "awsome-distributed-training"},
    {"p4de:2",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 6.4}, {16 * MB, 26}, {64 * MB, 48}, {256 * MB, 70}, {1 * GB, 77}, {2 * GB, 78}},
     .source = "awsome-distributed-training"},
    {"p4de:2", MICS_ALL_REDUCE, true, {{8, 164}}, .source = "awsome-distributed-training"},
    {"p5:2",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 16}, {16 * MB, 106}, {64 * MB, 209}, {256 * MB, 343}, {1 * GB, 437}, {16 * GB, 487}},
     .source = "awsome-distributed-training"},
    {"p5:2", MICS_ALL_REDUCE, true, {{8, 69}}, .source = "awsome-distributed-training"},
    {"p6-b200:4",
     MICS_ALL_REDUCE,
     false,
     {{1 * MB, 5.4}, {16 * MB, 64}, {64 * MB, 157}, {256 * MB, 229}, {1 * GB, 362}, {16 * GB, 382}},
     .source = "stas00, one call at a time",
     .overhead_us = ONE_CALL_4_NODES_US},
    {"p5en:4",
     MICS_ALL_REDUCE,
     false,
     {{4 * GB, 365}},
     .source = "stas00: a ring, its NVLS tree is 15 % slower",
     .algorithm = "ring"},
    {"dgx-h200:1", MICS_ALL_GATHER, false, {{16 * GB, 361}}, .source = "stas00"},
    {"dgx-h200:1", MICS_REDUCE_SCATTER, false, {{16 * GB, 363}}, .source = "stas00"},
    {"p4d:1", MICS_ALL_REDUCE, false, {{1 * GB, 231}}, .source = "nccl issue 527"},
    {"p4d:2",
     MICS_ALL_REDUCE,
     false,
     {{1 * GB, 57}},
     .source = "nccl issue 527",
     .contradiction = "p4de, with the same network, reaches 77 by a tree; NCCL 2.9 ran here"},
    {"p4d:3",
     MICS_ALL_REDUCE,
     false,
     {{1 * GB, 32}},
     .source = "nccl issue 527",
     .contradiction = "NCCL 2.9; two thirds of the cards' rate, IDEFICS reached 340 of 400 Gbit/s"},
    {"p4d:4",
     MICS_ALL_REDUCE,
     false,
     {{1 * GB, 30}},
     .source = "nccl issue 527",
     .contradiction = "NCCL 2.9; two thirds of the cards' rate, IDEFICS reached 340 of 400 Gbit/s"},
    {"p3dn:2",
     MICS_ALL_REDUCE,
     false,
     {{1 * GB, 10}},
     .source = "size not stated; run without trees (nccl issue 235)",
     .algorithm = "ring"},
    {"dgx-h100:4",
     MICS_ALL_REDUCE,
     false,
     {{64 * MB, 217}, {256 * MB, 280}, {1 * GB, 338}},
     .source = "arXiv 2411.13055"},
    {"dgx-h100:8",
     MICS_ALL_REDUCE,
     false,
     {{64 * MB, 189}, {256 * MB, 280}, {1 * GB, 328}},
     .source = "arXiv 2411.13055"},
    {"dgx-h100:16",
     MICS_ALL_REDUCE,
     false,
     {{64 * MB, 163}, {256 * MB, 265}, {1 * GB, 320}},
     .source = "arXiv 2411.13055"},
    {"dgx-h100:32",
     MICS_ALL_REDUCE,
     false,
     {{64 * MB, 152}, {256 * MB, 255}, {1 * GB, 312}},
     .source = "arXiv 2411.13055"},
    {"dgx-h100:64",
     MICS_ALL_REDUCE,
     false,
     {{64 * MB, 138}, {256 * MB, 245}, {1 * GB, 303}},
     .source = "arXiv 2411.13055"},
    {"dgx-h100:512",
     MICS_ALL_REDUCE,
     false,
     {{64 * MB, 112}, {256 * MB, 220}, {1 * GB, 285}},
     .source = "arXiv 2411.13055"},
    {"dgx-h100:32",
     MICS_ALL_GATHER,
     false,
     {{2e9, 200}},
     .source = "nccl issue 1218, one iteration"},
    {"ND96asr_v4:1", MICS_ALL_GATHER, true, {{1 * KB, 12.5}}, .source = "8xA100, 8x200 Gbit"},
    {"ND96asr_v4:2", MICS_ALL_GATHER, true, {{1 * KB, 33.7}}, .source = "8xA100, 8x200 Gbit"},
    {"ND96asr_v4:1",
     MICS_ALL_GATHER,
     false,
     {{1e9, 253.6}},
     .source = "8xA100, 8x200 Gbit",
     .contradiction =
         "more than the 240 that NCCL counts for an A100's links, and than the 235 of p4de"},
    {"ND96asr_v4:2",
     MICS_ALL_GATHER,
     false,
     {{1e9, 177.1}, {4e9, 186.0}},
     .source = "8xA100, 8x200 Gbit"},
};

static const struct curve calibration[] = {
    {"dgx-a100:1",
     MICS_ALL_REDUCE,
     true,
     {{8, 34.7},
      {512 * KB, 60.3},
      {1 * MB, 74.8},
      {4 * MB, 112},
      {16 * MB, 226},
      {64 * MB, 584.5},
      {256 * MB, 2112},
      {1 * GB, 8160}},
     .source = "microsoft/superbenchmark, test_cuda_nccl_bw_performance.py, one process",
     .overhead_us = ONE_PROCESS_US},
    {"dgx-a100:1",
     MICS_REDUCE_SCATTER,
     true,
     {{1 * MB, 72.4},
      {4 * MB, 108.9},
      {16 * MB, 152.4},
      {64 * MB, 356.1},
      {256 * MB, 1108.7},
      {1 * GB, 4203},
      {8 * GB, 32464}},
     .source = "microsoft/superbenchmark, test_cuda_nccl_bw_performance.py, one process",
     .overhead_us = ONE_PROCESS_US},
    {"dgx-a100:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 27.7},
      {1 * MB, 81.7},
      {4 * MB, 123.5},
      {16 * MB, 274},
      {64 * MB, 854.6},
      {256 * MB, 2700},
      {1 * GB, 10472},
      {2 * GB, 20749}},
     .source = "dstackai/dstack, examples/clusters/crusoe"},
    {"dgx-a100:4",
     MICS_ALL_REDUCE,
     true,
     {{1 * MB, 135.3},
      {4 * MB, 228.7},
      {16 * MB, 381},
      {64 * MB, 1079.5},
      {256 * MB, 3083.1},
      {1 * GB, 11643},
      {4 * GB, 43557}},
     .source = "NVIDIA/deepops, docs/slurm-cluster/slurm-perf-cluster.md"},
    {"ND96asr_v4:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 37.8},
      {1 * MB, 96.6},
      {4 * MB, 147},
      {16 * MB, 332.4},
      {64 * MB, 947.8},
      {256 * MB, 2975.4},
      {1 * GB, 11080},
      {8 * GB, 85820}},
     .source = "Azure, Running GPU Enabled HPC Applications on Azure Machine Learning"},
    {"p4de:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 174.2},
      {1 * MB, 307.4},
      {4 * MB, 522.7},
      {16 * MB, 1200.2},
      {64 * MB, 2724.5},
      {256 * MB, 7390.4},
      {1 * GB, 25940}},
     .source = "AWS HPC workshop, Download, compile and run the NCCL tests, NCCL 2.17"},
    {"p5:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 64.9},
      {1 * MB, 119.7},
      {4 * MB, 163.7},
      {16 * MB, 278.6},
      {64 * MB, 587.2},
      {256 * MB, 1497.8},
      {1 * GB, 4553.6},
      {2 * GB, 9062.5}},
     .source = "aws-ia/terraform-aws-eks-blueprints, patterns/nvidia-gpu-efa"},
    {"p6-b200:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 50.6}},
     .source = "dstackai/dstack pull request 3961"},
    {"p6-b200:4",
     MICS_ALL_REDUCE,
     true,
     {{1 * MB, 162.8},
      {4 * MB, 256.8},
      {16 * MB, 452.7},
      {64 * MB, 657.5},
      {256 * MB, 1836.3},
      {1 * GB, 5684.2},
      {16 * GB, 88360}},
     .source = "stas00, network/benchmarks/README.md, ten calls queued"},
    {"dgx-h100:1",
     MICS_ALL_REDUCE,
     true,
     {{1 * MB, 28.1},
      {4 * MB, 45.1},
      {16 * MB, 104.4},
      {64 * MB, 326.6},
      {256 * MB, 1184.9},
      {1 * GB, 4525.6}},
     .source = "dudeperf3ct.github.io, Distributed communication for GPUs: 4 GPUs",
     .per_node = 4},
    {"dgx-h100:1",
     MICS_ALL_REDUCE,
     true,
     {{128 * MB, 613.3}, {256 * MB, 1139.2}, {512 * MB, 2175.8}, {1 * GB, 4038.8}, {4 * GB, 15870}},
     .source = "nccl-tests issue 290, one process",
     .overhead_us = ONE_PROCESS_US},
    {"dgx-h100:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 24.7},
      {1 * MB, 71.9},
      {4 * MB, 94.4},
      {16 * MB, 185.4},
      {64 * MB, 466.1},
      {256 * MB, 1282.8},
      {1 * GB, 4484.9},
      {16 * GB, 68652}},
     .source = "nccl-tests issue 309, NCCL 2.26"},
    {"dgx-h100:4",
     MICS_ALL_REDUCE,
     true,
     {{8, 34.8},
      {1 * MB, 82.2},
      {4 * MB, 151.1},
      {16 * MB, 259.6},
      {64 * MB, 579.1},
      {256 * MB, 1768},
      {1 * GB, 5808.8},
      {16 * GB, 90986}},
     .source = "nccl-tests issue 309, NCCL 2.26"},
    {"dgx-h100:8",
     MICS_ALL_REDUCE,
     true,
     {{1 * MB, 117},
      {4 * MB, 203.8},
      {16 * MB, 378.1},
      {64 * MB, 718.1},
      {256 * MB, 1955.1},
      {1 * GB, 7370.5},
      {8 * GB, 52733}},
     .source = "nccl-tests issue 309, another cluster"},
    {"dgx-b200:1",
     MICS_ALL_REDUCE,
     true,
     {{8, 20.3},
      {1 * MB, 30.1},
      {4 * MB, 56.2},
      {16 * MB, 107},
      {64 * MB, 277.2},
      {256 * MB, 712.6},
      {1 * GB, 2601.8},
      {16 * GB, 35668}},
     .source = "report of a B200 cluster, nccl_tests_dgxc.log"},
    {"dgx-b200:1",
     MICS_ALL_GATHER,
     true,
     {{1 * KB, 16.4},
      {1 * MB, 19.7},
      {16 * MB, 49},
      {64 * MB, 139.1},
      {256 * MB, 394},
      {1 * GB, 1486.1},
      {16 * GB, 22357}},
     .source = "report of a B200 cluster, nccl_tests_dgxc.log"},
    {"dgx-b200:2",
     MICS_ALL_REDUCE,
     true,
     {{8, 36.5},
      {1 * MB, 115.6},
      {4 * MB, 118.3},
      {16 * MB, 186.9},
      {64 * MB, 350.4},
      {256 * MB, 934.7},
      {1 * GB, 2972.3},
      {2 * GB, 5784.8}},
     .source = "dstackai/dstack, examples/clusters/lambda, NCCL 2.26"},
    {"a4-highgpu-8g:2",
     MICS_ALL_REDUCE,
     true,
     {{8 * MB, 156.9},
      {16 * MB, 196.3},
      {64 * MB, 369.4},
      {256 * MB, 940.3},
      {1 * GB, 3229.9},
      {8 * GB, 23563}},
     .source = "dstackai/dstack, examples/clusters/a4"},
};

/* The rows of one table. */
struct table {
    double deviations[MAX_ROWS];
    size_t count, within_30;
    double worst, worst_bytes;
    const char *worst_cluster;
    double worst_undisputed; /* of rows that no other source contradicts */
};

static const char *size_text(double bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int i = 0;

    for (; bytes >= 1024 && i < 3; i++)
        bytes /= 1024;
    snprintf(text, 16, "%.4g %s", bytes, units[i]);
    return text;
}

static void add_row(struct table *table, const struct curve *curve, double bytes, double deviation)
{
    table->deviations[table->count++] = deviation;
    table->within_30 += deviation <= .3;
    if (!curve->contradiction)
        table->worst_undisputed = fmax(table->worst_undisputed, deviation);
    if (deviation > table->worst) {
        table->worst = deviation;
        table->worst_cluster = curve->cluster;
        table->worst_bytes = bytes;
    }
}

static void print_point(struct table *table, const struct curve *curve,
                        const struct mics_topology *topology, double bytes, double published)
{
    const struct mics_span span = {topology->nodes,
                                   curve->per_node ? curve->per_node : topology->per_node, 1};
    const struct mics_nccl_cost cost =
        mics_nccl_cost_of(topology, curve->collective, span, (uint64_t)bytes, curve->algorithm);
    const double m = (double)span.nodes * span.per_node;
    const double factor = (curve->collective == MICS_ALL_REDUCE ? 2 : 1) * (m - 1) / m;
    const double seconds = cost.time.latency_s + cost.time.transfer_s + curve->overhead_us * 1e-6;
    const double predicted = curve->microseconds ? seconds * 1e6 : factor * bytes / seconds / 1e9;
    const double ratio = curve->microseconds ? predicted / published : published / predicted;
    char size[16];

    printf("| %s | %s | %s | %.4g | %.4g %s | %+.0f %% | %s | %s%s%s |\n", curve->cluster,
           mics_collective_name(curve->collective), size_text(bytes, size), predicted, published,
           curve->microseconds ? "us" : "GB/s", 100 * (ratio - 1), cost.algorithm, curve->source,
           curve->contradiction ? "; " : "", curve->contradiction ? curve->contradiction : "");
    add_row(table, curve, bytes, fabs(ratio - 1));
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int print_table(struct table *table, const struct curve *rows, size_t count)
{
    puts("| cluster | collective | size | predicted | published | time | algorithm | source |");
    puts("|---|---|---:|---:|---:|---:|---|---|");
    for (size_t i = 0; i < count; i++) {
        struct mics_topology *topology = NULL;
        struct mics_err err;

        if (mics_topology_parse(rows[i].cluster, &topology, &err) != MICS_OK) {
            fprintf(stderr, "nccl_curves: %s\n", err.text);
            return -1;
        }
        for (int p = 0; p < MAX_POINTS && rows[i].points[p].bytes > 0; p++)
            print_point(table, &rows[i], topology, rows[i].points[p].bytes,
                        rows[i].points[p].value);
        mics_topology_free(topology);
    }
    qsort(table->deviations, table->count, sizeof *table->deviations, by_size);
    return 0;
}

int main(void)
{
    static struct table judged, chosen_by;
    char size[16];

    if (print_table(&judged, curves, sizeof curves / sizeof *curves) != 0)
        return 1;
    const double median = judged.deviations[judged.count / 2];

    printf("\n%zu points: median %.1f %% (reach 15), worst %.1f %% (reach 30): %s, %s; %zu within "
           "30 %%. Without the rows that another source contradicts the worst is %.1f %%.\n\n",
           judged.count, 100 * median, 100 * judged.worst, judged.worst_cluster,
           size_text(judged.worst_bytes, size), judged.within_30, 100 * judged.worst_undisputed);
    puts("Calibration, not judged: other published runs, from which the constants come that NCCL's "
         "own model lacks.\n");
    if (print_table(&chosen_by, calibration, sizeof calibration / sizeof *calibration) != 0)
        return 1;
    printf("\n%zu points of the calibration: median %.1f %%, worst %.1f %%: %s, %s; %zu within "
           "30 %%.\n",
           chosen_by.count, 100 * chosen_by.deviations[chosen_by.count / 2], 100 * chosen_by.worst,
           chosen_by.worst_cluster, size_text(chosen_by.worst_bytes, size), chosen_by.within_30);
    puts(
        "\nFrom them come: a ring's step inside a node (8 us with Simple, and with LL128 on A100), "
        "LL on A100 (41 GB/s), what B200 need to begin (8 us, NVLink SHARP 28), the time of a "
        "synchronisation of NVLink SHARP (that of 9 KiB, on B200 29) and of a hop between nodes "
        "with EFA (20 us, from P5en on 10). From other sources: a ring loses 6.3 % of its "
        "bandwidth when more than 4 nodes double (nccl issue 1229), and EFA before P5 reaches 340 "
        "of 400 Gbit/s (IDEFICS).");
    return median > .15 || judged.worst > .3;
}
