/* SPDX-License-Identifier: Apache-2.0 */
/* findings_gpu.c - GPUs compared with all others of the cluster, and what is wrong by itself. */
#include "probe/findings_internal.h"

#include "topology/gpu_info.h"
#include "topology/nvml_api.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All GPUs of the cluster, in the order of nodes. */
struct gpus {
    size_t count;
    struct gpu {
        const json_t *doc;
        int node;
        char where[64];
    } * list;
};

static const json_t *gpus_of(const struct mics_findings *findings, size_t node)
{
    const json_t *facts = json_object_get(json_array_get(findings->nodes, node), "facts");

    return json_object_get(facts, "gpus");
}

/* A node on which NVML fails, or that has fewer GPUs than the others. */
static void judge_nodes(struct mics_findings *findings)
{
    const size_t count = json_array_size(findings->nodes);
    double *numbers = calloc(count ? count : 1, sizeof *numbers);
    char found[64], expected[64];

    if (!numbers) {
        findings->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++)
        numbers[i] = (double)json_array_size(gpus_of(findings, i));
    const double usual = mics_upper_median(numbers, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *facts = json_object_get(json_array_get(findings->nodes, i), "facts");
        const char *error = json_string_value(json_object_get(facts, "gpus_error"));

        if (error)
            mics_findings_add(findings, "gpu_driver", (int)i, NULL, error, NULL);
        else if (numbers[i] < usual)
            mics_findings_add(findings, "gpu_count", (int)i, NULL,
                              mics_figure(found, numbers[i], MICS_FIGURE_PLAIN),
                              mics_figure(expected, usual, MICS_FIGURE_PLAIN));
    }
    free(numbers);
}

/* What is compared with the other GPUs: lower than the upper median by more than `tolerance`. */
static void judge_numbers(struct mics_findings *findings, const struct gpus *gpus, double *values)
{
    static const struct {
        const char *what, *outer, *key;
        double tolerance;
        enum mics_figure_unit unit;
        const char *unit_name;
    } rows[] = {
        {"gpu_memory", NULL, "memory_bytes", 1.0 / 32, MICS_FIGURE_BYTES, ""},
        {"gpu_pcie_generation", "pcie", "generation", 0, MICS_FIGURE_PLAIN, ""},
        {"gpu_pcie_width", "pcie", "width", 0, MICS_FIGURE_PLAIN, " lanes"},
        {"gpu_nvlinks", NULL, "nvlinks", 0, MICS_FIGURE_PLAIN, " links"},
        {"gpu_ecc_off", NULL, "ecc", 0, MICS_FIGURE_PLAIN, ""},
        {"gpu_persistence", NULL, "persistence", 0, MICS_FIGURE_PLAIN, ""},
    };
    char found[64], expected[64], is[80], should[80];

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t i = 0; i < gpus->count; i++) {
            const json_t *doc = gpus->list[i].doc;

            values[i] = mics_number_of(rows[r].outer ? json_object_get(doc, rows[r].outer) : doc,
                                       rows[r].key);
        }
        const double usual = mics_upper_median(values, gpus->count);
        for (size_t i = 0; i < gpus->count; i++) {
            if (!(values[i] < usual * (1 - rows[r].tolerance)))
                continue;
            snprintf(is, sizeof is, "%s%s", mics_figure(found, values[i], rows[r].unit),
                     rows[r].unit_name);
            snprintf(should, sizeof should, "%s%s", mics_figure(expected, usual, rows[r].unit),
                     rows[r].unit_name);
            mics_findings_add(findings, rows[r].what, gpus->list[i].node, gpus->list[i].where, is,
                              should);
        }
    }
}

static void judge_models(struct mics_findings *findings, const struct gpus *gpus,
                         const char **texts)
{
    for (size_t i = 0; i < gpus->count; i++)
        texts[i] = json_string_value(json_object_get(gpus->list[i].doc, "name"));
    const char *usual = mics_majority(texts, gpus->count);
    for (size_t i = 0; usual && i < gpus->count; i++)
        if (texts[i] && strcmp(texts[i], usual) != 0)
            mics_findings_add(findings, "gpu_model", gpus->list[i].node, gpus->list[i].where,
                              texts[i], usual);
}

/* How a GPU of a node reaches another one: 2 by NVLink, 1 by PCIe, 0 not; NAN: unknown. */
static double peer_level(const json_t *gpus, size_t from, size_t to)
{
    const json_t *peers = json_object_get(json_array_get(gpus, from), "peers");
    const char *name = json_string_value(json_array_get(peers, to));

    if (!name)
        return NAN;
    return strcmp(name, mics_gpu_peer_name(MICS_GPU_PEER_NVLINK)) == 0 ? 2
           : strcmp(name, mics_gpu_peer_name(MICS_GPU_PEER_PCIE)) == 0 ? 1
                                                                       : 0;
}

/* Do all GPUs of two nodes have the same text, such as their model? */
static bool have_same(const json_t *gpus, const json_t *others, const char *key)
{
    bool same = json_array_size(gpus) == json_array_size(others);

    for (size_t i = 0; i < json_array_size(gpus) && same; i++) {
        const char *own = json_string_value(json_object_get(json_array_get(gpus, i), key)),
                   *name = json_string_value(json_object_get(json_array_get(others, i), key));

        same = own && name && strcmp(own, name) == 0;
    }
    return same;
}

/* NAN stays. */
static double at_most_pcie(double level)
{
    return level > 1 ? 1 : level;
}

static bool is_apart(const json_t *gpus, size_t from, size_t to)
{
    const json_t *peers = json_object_get(json_array_get(gpus, from), "peers");
    const char *why = json_string_value(json_array_get(peers, to));

    return why && strcmp(why, mics_gpu_peer_name(MICS_GPU_PEER_NO_TOPOLOGY)) == 0;
}

/* The best first, unknown ones last. */
static int by_level(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return isnan(a) || isnan(b) ? isnan(a) - isnan(b) : (a < b) - (a > b);
}

/* Of each pair of a node its worse direction, the best pair first. `apart_differ`: those whose
 * sockets are not connected for it are unknown. */
static void sort_levels(const json_t *gpus, bool apart_differ, double *out)
{
    const size_t all = json_array_size(gpus);
    size_t count = 0;

    for (size_t i = 0; i < all; i++)
        for (size_t k = i + 1; k < all; k++)
            out[count++] = apart_differ && (is_apart(gpus, i, k) || is_apart(gpus, k, i))
                               ? NAN
                               : fmin(peer_level(gpus, i, k), peer_level(gpus, k, i));
    qsort(out, count, sizeof *out, by_level);
}

/* Levels of pairs of GPUs. */
struct levels {
    size_t nodes, most;           /* most: pairs of a node */
    double *sorted;               /* [nodes][most] */
    double *own, *usual, *column; /* [most], [most], [nodes + most] */
    bool *alike;                  /* [nodes] */
};

static size_t find_alike(const struct mics_findings *findings, const json_t *gpus,
                         const struct levels *levels, bool same_places)
{
    size_t count = 0;

    for (size_t node = 0; node < levels->nodes; node++) {
        const json_t *others = gpus_of(findings, node);

        levels->alike[node] =
            have_same(gpus, others, "name") && (!same_places || have_same(gpus, others, "pci_id"));
        count += levels->alike[node];
    }
    return count;
}

/* Set what a node has, and what is usual, both sorted: bridges and sockets differ between nodes
 * that are equally good, so no pair has a level of its own. It is that of nodes with the same
 * models at the same places; where there are none, such as where each node gave the job other GPUs,
 * that of the same models, or of the node's own pairs, but then only access by PCIe is expected,
 * and none between sockets. Returns whether it is at the same places. */
static bool compare_levels(const struct mics_findings *findings, const json_t *gpus, size_t pairs,
                           const struct levels *levels)
{
    const bool exact = find_alike(findings, gpus, levels, true) > 1;
    const bool alone = !exact && find_alike(findings, gpus, levels, false) < 2;

    sort_levels(gpus, !exact, levels->own);
    for (size_t pair = 0; pair < pairs; pair++) {
        size_t count = 0;

        for (size_t node = 0; node < levels->nodes && !alone; node++)
            if (levels->alike[node])
                levels->column[count++] = levels->sorted[node * levels->most + pair];
        for (size_t i = 0; i < pairs && alone; i++)
            levels->column[count++] = at_most_pcie(levels->own[i]);
        const double usual = mics_upper_median(levels->column, count);
        levels->usual[pair] = exact ? usual : at_most_pcie(usual);
    }
    return exact;
}

/* One finding of a node: the first pair of those that are worse than usual, and how many more there
 * are. */
static void judge_peers_of(struct mics_findings *findings, size_t node, const struct levels *levels)
{
    const json_t *gpus = gpus_of(findings, node);
    const size_t all = json_array_size(gpus), pairs = all > 0 ? all * (all - 1) / 2 : 0;
    size_t worse = 0, first = 0, second = 0, least = SIZE_MAX;
    double found = 0, expected = 0;
    char where[96];

    const bool exact = compare_levels(findings, gpus, pairs, levels);
    for (size_t pair = 0; pair < pairs; pair++) {
        if (!(levels->own[pair] < levels->usual[pair]))
            continue;
        if (worse++ == 0) {
            found = levels->own[pair];
            expected = levels->usual[pair];
        }
    }
    if (worse == 0)
        return;
    /* Of the pairs of this level, the one that fewest of the others have at it. */
    for (size_t i = 0; i < all * all; i++) {
        const size_t from = i / all, to = i % all;
        size_t same = 0;

        if (from == to || peer_level(gpus, from, to) != found ||
            (!exact && is_apart(gpus, from, to)))
            continue;
        for (size_t other = 0; other < levels->nodes; other++)
            same += levels->alike[other] && peer_level(gpus_of(findings, other), from, to) <= found;
        if (same >= least)
            continue;
        least = same;
        first = from;
        second = to;
    }
    snprintf(where, sizeof where, "GPU %zu to GPU %zu", first, second);
    if (worse > 1)
        snprintf(where + strlen(where), sizeof where - strlen(where), ", and %zu other pair%s",
                 worse - 1, worse > 2 ? "s" : "");
    const json_t *peers = json_object_get(json_array_get(gpus, first), "peers");
    mics_findings_add(findings, "gpu_peer_access", (int)node, where,
                      json_string_value(json_array_get(peers, second)),
                      mics_gpu_peer_name(expected > 1 ? MICS_GPU_PEER_NVLINK : MICS_GPU_PEER_PCIE));
}

/* GPUs that do not reach each other's memory as on other nodes, such as those of a node whose
 * firmware separates PCIe's devices. Cards of which none can are all alike. */
static void judge_peers(struct mics_findings *findings)
{
    const size_t nodes = json_array_size(findings->nodes);
    size_t most = 1;

    for (size_t node = 0; node < nodes; node++) {
        const size_t own = json_array_size(gpus_of(findings, node));

        most = own * own > most ? own * own : most;
    }
    double *values = calloc(nodes * most + 3 * most + nodes, sizeof *values);
    bool *alike = calloc(nodes + 1, sizeof *alike);
    if (values && alike) {
        double *own = values + nodes * most;
        const struct levels levels = {nodes, most, values, own, own + most, own + 2 * most, alike};

        for (size_t node = 0; node < nodes; node++)
            sort_levels(gpus_of(findings, node), false, values + node * most);
        for (size_t node = 0; node < nodes; node++)
            judge_peers_of(findings, node, &levels);
    } else {
        findings->failed = true;
    }
    free(values);
    free(alike);
}

static const char *name_reasons(char text[64], unsigned reasons)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{NVML_HW_THERMAL, "heat"},
                 {NVML_SW_THERMAL, "heat (driver)"},
                 {NVML_POWER_BRAKE, "power brake"},
                 {NVML_HW_SLOWDOWN, "hardware"}};

    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (reasons & names[i].bit)
            snprintf(text + strlen(text), 64 - strlen(text), "%s%s", text[0] ? ", " : "",
                     names[i].name);
    return text;
}

/* Memory that the driver itself takes, and a little more. */
static const double own_bytes = 2.0 * (1 << 30);
/* Below the temperature at which the GPU slows down, by less than this. */
static const double hot_celsius = 3;

/* What is wrong by itself. */
static void judge_gpu(struct mics_findings *findings, const struct gpu *gpu)
{
    const json_t *doc = gpu->doc, *pcie = json_object_get(doc, "pcie");
    const double processes = mics_number_of(doc, "processes"),
                 used = mics_number_of(doc, "used_bytes"), celsius = mics_number_of(doc, "celsius"),
                 limit = mics_number_of(doc, "limit_celsius"),
                 power = mics_number_of(doc, "power_limit_mw"),
                 normal_power = mics_number_of(doc, "default_power_limit_mw"),
                 throttle = mics_number_of(doc, "throttle");
    const unsigned reasons = isnan(throttle)
                                 ? 0
                                 : (unsigned)throttle & (NVML_HW_SLOWDOWN | NVML_SW_THERMAL |
                                                         NVML_HW_THERMAL | NVML_POWER_BRAKE);
    static const struct {
        const char *key, *what, *found;
    } counts[] = {{"ecc_errors", "gpu_ecc_errors", "uncorrected errors"},
                  {"remap_pending", "gpu_remap_pending", "rows wait"},
                  {"remap_failed", "gpu_remap_failed", "rows could not be replaced"},
                  {"link_recoveries", "gpu_nvlink_errors", "recoveries"},
                  {"mig", "gpu_mig", "on"}};
    char found[64], expected[64];

    if (processes > 0 || used > own_bytes) {
        char bytes[64];

        snprintf(found, sizeof found, "%.0f processes, %.32s", processes > 0 ? processes : 0,
                 mics_figure(bytes, used, MICS_FIGURE_BYTES));
        mics_findings_add(findings, "gpu_in_use", gpu->node, gpu->where, found, "none");
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const double value = mics_number_of(doc, counts[i].key);

        if (!(value > 0))
            continue;
        snprintf(found, sizeof found, "%.0f %s", value, counts[i].found);
        mics_findings_add(findings, counts[i].what, gpu->node, gpu->where,
                          strcmp(counts[i].key, "mig") == 0 ? "on" : found, "0");
    }
    if (reasons)
        mics_findings_add(findings, "gpu_throttled", gpu->node, gpu->where,
                          name_reasons(found, reasons), "full clocks");
    if (celsius > limit - hot_celsius) {
        snprintf(found, sizeof found, "%.0f C", celsius);
        snprintf(expected, sizeof expected, "it slows down at %.0f C", limit);
        mics_findings_add(findings, "gpu_hot", gpu->node, gpu->where, found, expected);
    }
    if (power < 0.99 * normal_power) {
        snprintf(found, sizeof found, "%.0f W", power / 1000);
        snprintf(expected, sizeof expected, "%.0f W", normal_power / 1000);
        mics_findings_add(findings, "gpu_power_limit", gpu->node, gpu->where, found, expected);
    }
    if (mics_number_of(pcie, "width_now") > 0 &&
        mics_number_of(pcie, "width_now") < mics_number_of(pcie, "width")) {
        snprintf(found, sizeof found, "%.0f lanes now", mics_number_of(pcie, "width_now"));
        snprintf(expected, sizeof expected, "%.0f lanes", mics_number_of(pcie, "width"));
        mics_findings_add(findings, "gpu_pcie_width", gpu->node, gpu->where, found, expected);
    }
}

/* Failures of the GPU itself; others, such as 13, 31 and 43, are mostly errors of programs. */
static const char *name_xid(int xid)
{
    static const struct {
        int xid;
        const char *name;
    } names[] = {
        {48, "uncorrected memory error"},
        {62, "internal controller halted"},
        {63, "row of memory retired"},
        {64, "row of memory could not be retired"},
        {74, "NVLink error"},
        {79, "fell off the bus"},
        {92, "many memory errors"},
        {94, "contained memory error"},
        {95, "uncontained memory error"},
        {119, "GSP does not answer"},
        {120, "GSP error"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].xid == xid)
            return names[i].name;
    return NULL;
}

static void judge_xids(struct mics_findings *findings)
{
    for (size_t node = 0; node < json_array_size(findings->nodes); node++) {
        const json_t *facts = json_object_get(json_array_get(findings->nodes, node), "facts");
        const json_t *xids = json_object_get(facts, "xids");
        char found[64], where[64];

        for (size_t i = 0; i < json_array_size(xids); i++) {
            const json_t *entry = json_array_get(xids, i);
            const int xid = (int)json_integer_value(json_object_get(entry, "xid"));

            if (!name_xid(xid))
                continue;
            snprintf(found, sizeof found, "%d: %s", xid, name_xid(xid));
            snprintf(where, sizeof where, "%.40s",
                     json_string_value(json_object_get(entry, "pci_id")));
            mics_findings_add(findings, "gpu_xid", (int)node, where, found, "none");
        }
    }
}

static bool list_gpus(const struct mics_findings *findings, struct gpus *out)
{
    size_t count = 0;

    for (size_t node = 0; node < json_array_size(findings->nodes); node++)
        count += json_array_size(gpus_of(findings, node));
    *out = (struct gpus){.list = calloc(count ? count : 1, sizeof *out->list)};
    if (!out->list)
        return false;
    for (size_t node = 0; node < json_array_size(findings->nodes); node++) {
        const json_t *own = gpus_of(findings, node);

        for (size_t i = 0; i < json_array_size(own); i++) {
            struct gpu *gpu = &out->list[out->count++];
            const char *id;

            gpu->doc = json_array_get(own, i);
            gpu->node = (int)node;
            id = json_string_value(json_object_get(gpu->doc, "pci_id"));
            snprintf(gpu->where, sizeof gpu->where, "GPU %zu %.40s", i, id ? id : "");
        }
    }
    return true;
}

void mics_findings_of_gpus(struct mics_findings *findings)
{
    struct gpus gpus = {0};
    double *values = NULL;
    const char **texts = NULL;

    judge_nodes(findings);
    if (list_gpus(findings, &gpus)) {
        values = calloc(gpus.count ? gpus.count : 1, sizeof *values);
        texts = calloc(gpus.count ? gpus.count : 1, sizeof *texts);
    }
    if (values && texts) {
        judge_models(findings, &gpus, texts);
        judge_numbers(findings, &gpus, values);
        for (size_t i = 0; i < gpus.count; i++)
            judge_gpu(findings, &gpus.list[i]);
    } else {
        findings->failed = true;
    }
    judge_peers(findings);
    judge_xids(findings);
    free(values);
    free(texts);
    free(gpus.list);
}
