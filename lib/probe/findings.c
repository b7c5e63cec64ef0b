/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - the kinds of findings, and the comparison of nodes that are not about GPUs. */
#include "probe/findings.h"
#include "probe/findings_internal.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mics_finding_kind kinds[] = {
    {"unreachable", true, "see whether it runs and has network and mics; leave it out until then"},
    {"fewer_slots", true, "give it as many slots=N as the first host has, or leave it out"},
    {"mics_version", true, "install the same mics on all nodes"},
    {"mpi_version", true, "install the same MPI on all nodes, and set PATH and LD_LIBRARY_PATH"},
    {"kernel", false, "the same kernel on all nodes makes their rates comparable"},
    {"driver", true, "install the same NVIDIA driver on all nodes, and restart them"},
    {"clock", true, "set its clock: chronyc tracking, or timedatectl"},
    {"cores", true, "look for processors that are offline, and for limits of a container or job"},
    {"memory", true, "look for a failed module, and for limits of a container or job"},
    {"memory_in_use", true, "look for what a job before has left: ps, /dev/shm, huge pages"},
    {"shm", true, "remove what ended jobs have left in /dev/shm (mics-run --clean)"},
    {"shm_small", false,
     "containers need a larger /dev/shm: docker run --shm-size=8g or --ipc=host"},
    {"memlock", true, "set 'ulimit -l unlimited' (limits.conf, LimitMEMLOCK): RDMA pins memory"},
    {"disk", true, "free space where the program runs"},
    {"governor", false, "set one frequency governor: cpupower frequency-set -g performance"},
    {"throttled", true, "its processors were slowed by heat meanwhile: look at its fans"},
    {"interface_missing", true, "look for the card and its driver: ip link, lspci"},
    {"interface_down", true, "look at the cable and the switch's port"},
    {"interface_rate", true, "look at the cable, and at what card and switch have negotiated"},
    {"mtu", true, "set the same MTU on all nodes: packets between them are cut or lost"},
    {"rdma_missing", true, "look for the card and its driver: ibv_devinfo, lspci"},
    {"rdma_state", true, "look at the cable, the switch's port and the subnet manager: ibstat"},
    {"rdma_rate", true, "look at the cable: some of its lanes may have failed"},
    {"rdma_errors", false, "errors on the link: watch its counters, and clean or change the cable"},
    {"gpu_count", true, "a GPU is missing: lspci and dmesg of that node; it may need a restart"},
    {"gpu_driver", true, "restart the node: NVML does not work there"},
    {"gpu_model", true, "use GPUs of one model in a job"},
    {"gpu_memory", true, "a GPU with less memory limits all others"},
    {"gpu_in_use", true, "end what still runs on it: nvidia-smi"},
    {"gpu_ecc_off", true, "switch ECC on (nvidia-smi -e 1) and restart, as on the others"},
    {"gpu_ecc_errors", true, "reset the GPU; if errors come back, have it replaced"},
    {"gpu_remap_pending", true, "reset the GPU (nvidia-smi -r), so that the row is replaced"},
    {"gpu_remap_failed", true, "have the GPU replaced: it has no spare rows left"},
    {"gpu_throttled", true, "look at cooling and power supplies of that node"},
    {"gpu_hot", true, "look at cooling of that node"},
    {"gpu_power_limit", true, "set the power limit back: nvidia-smi -pl"},
    {"gpu_pcie_width", true, "reseat the GPU or its riser: lanes of PCIe are missing"},
    {"gpu_pcie_generation", true, "look at the slot's setting in the firmware, and at the riser"},
    {"gpu_nvlinks", true, "links of NVLink are down: nvidia-smi nvlink -s; fabric manager"},
    {"gpu_nvlink_errors", false, "links recover from errors: watch them, nvidia-smi nvlink -e"},
    {"gpu_peer_access", true,
     "nvidia-smi topo -p2p r; PCIe's ACS and the IOMMU in the firmware, and options of the driver"},
    {"gpu_persistence", false, "switch persistence on, so that starts are fast: nvidia-smi -pm 1"},
    {"gpu_mig", true, "switch MIG off (nvidia-smi -mig 0): NCCL cannot connect parts of GPUs"},
    {"gpu_xid", true, "the driver has reported a failure of the GPU: reset it, or leave it out"},
    {"less", true, "something was taken away since the baseline, or has failed"},
    {"slower", true, "it was faster at the baseline: look at what has changed since"},
    {"changed", false, "updates since the baseline may explain other rates"},
    {"rdma_unused", false, "MPI seems to use TCP: look at UCX or the BTL that it chooses"},
    {"products", true, "compare clocks, power and temperature with those of the others"},
    {"memory_rate", true, "look at memory modules and NUMA settings, and for other programs"},
    {"host_copies", true, "look at its slot, lanes and generation of PCIe, and NUMA settings"},
    {"node_links", true,
     "look at NVLink and PCIe of that node, and at NCCL's log: NCCL_DEBUG=INFO"},
    {"below_expected", true, "what all nodes share: look at drivers, switches and NCCL's settings"},
    {"collectives_low", false, "far below what pairs of nodes reach: look at switches under load"},
    {"uneven_ranks", false, "start as many ranks on each node: no collectives were measured"},
    {"slow_send", true, "look at its card, cable and switch port: what it sends is slow"},
    {"slow_receive", true, "look at its card, cable and switch port: what it receives is slow"},
    {"slow_card", true, "look at its card, cable and switch port: slow in both directions"},
    {"packet_loss", true, "look at its card, cable and switch port, and their counters of drops"},
    {"slow_pair", true, "look at the switches between them: with others both are fast"},
    {"links_vary", false, "the network or the nodes are busy: check again when nothing else runs"},
    {"slow_groups", true, "look at the uplink between their switches: inside them all are fast"},
    {"slow_link", true, "which of the two is slow cannot be told: add a third node"},
};

const struct mics_finding_kind *mics_finding_kind(const char *what)
{
    for (size_t i = 0; what && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].what, what) == 0)
            return &kinds[i];
    return NULL;
}

static bool set_text(json_t *object, const char *key, const char *text)
{
    return !text || json_object_set_new(object, key, json_string(text)) == 0;
}

void mics_findings_add(struct mics_findings *findings, const char *what, int node,
                       const char *where, const char *found, const char *expected)
{
    const struct mics_finding_kind *kind = mics_finding_kind(what);
    json_t *finding =
        json_pack("{s:s, s:s}", "what", what, "level", kind->fault ? "fault" : "notice");
    bool ok = finding != NULL;

    if (ok && node >= 0) {
        const json_t *host = json_object_get(json_array_get(findings->nodes, (size_t)node), "host");

        ok = json_object_set_new(finding, "node", json_integer(node)) == 0 &&
             set_text(finding, "host", json_string_value(host));
    }
    ok = ok && set_text(finding, "where", where) && set_text(finding, "found", found) &&
         set_text(finding, "expected", expected);
    if (!ok || json_array_append(findings->list, finding) != 0)
        findings->failed = true;
    json_decref(finding);
}

void mics_findings_add_slow(struct mics_findings *findings, const char *what, int node,
                            const char *where, const char *found, const char *expected,
                            struct mics_slowdown slowdown)
{
    mics_findings_add(findings, what, node, where, found, expected);
    json_t *finding = json_array_get(findings->list, json_array_size(findings->list) - 1);
    if (!(slowdown.times > 1) || !isfinite(slowdown.times))
        return;
    if (json_object_set_new(finding, "slows", json_string(slowdown.slows)) != 0 ||
        json_object_set_new(finding, "times", json_real(slowdown.times)) != 0 ||
        (slowdown.at_most && json_object_set_new(finding, "at_most", json_true()) != 0))
        findings->failed = true;
}

json_t *mics_findings_bad_nodes(const json_t *list, size_t node_count)
{
    json_t *out = json_array();

    for (size_t node = 0; node < node_count; node++) {
        bool bad = false;

        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *finding = json_array_get(list, i), *of = json_object_get(finding, "node");
            const char *level = json_string_value(json_object_get(finding, "level"));

            bad |= json_is_integer(of) && (size_t)json_integer_value(of) == node && level &&
                   strcmp(level, "fault") == 0;
        }
        if (bad && json_array_append_new(out, json_integer((json_int_t)node)) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

const char *mics_majority(const char *const *texts, size_t count)
{
    size_t present = 0;

    for (size_t i = 0; i < count; i++)
        present += texts[i] != NULL;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;

        for (size_t j = 0; texts[i] && j < count; j++)
            same += texts[j] && strcmp(texts[i], texts[j]) == 0;
        if (2 * same > present)
            return texts[i];
    }
    return NULL;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double mics_upper_median(const double *values, size_t count)
{
    double *sorted = malloc((count ? count : 1) * sizeof *sorted);
    size_t known = 0;
    double median = NAN;

    if (!sorted)
        return NAN;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i]))
            sorted[known++] = values[i];
    qsort(sorted, known, sizeof *sorted, by_value);
    if (known > 0)
        median = sorted[known / 2];
    free(sorted);
    return median;
}

const char *mics_figure(char text[64], double value, enum mics_figure_unit unit)
{
    if (unit == MICS_FIGURE_BYTES)
        return mics_format_bytes((uint64_t)value, text, 64);
    if (unit == MICS_FIGURE_BITS_PER_S)
        return mics_format_rate(value / 8, text, 64);
    if (unit == MICS_FIGURE_BYTES_PER_S)
        return mics_format_rate(value, text, 64);
    if (unit == MICS_FIGURE_FLOPS) {
        char count[32];

        snprintf(text, 64, "%sFLOP/s", mics_format_count(value, count, sizeof count));
        return text;
    }
    snprintf(text, 64, "%.12g", value);
    return text;
}

/* The facts of node i. */
static const json_t *facts_of(const struct mics_findings *findings, size_t i)
{
    return json_object_get(json_array_get(findings->nodes, i), "facts");
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

double mics_number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Compare one text of each node; NULL: it has none. */
static void compare_texts(struct mics_findings *findings, const char *what, const char *where,
                          const char *const *texts, size_t count)
{
    const char *majority = mics_majority(texts, count), *first = NULL, *other = NULL;
    char both[160];

    for (size_t i = 0; i < count; i++) {
        if (majority && texts[i] && strcmp(texts[i], majority) != 0)
            mics_findings_add(findings, what, (int)i, where, texts[i], majority);
        if (texts[i] && !first)
            first = texts[i];
        if (texts[i] && strcmp(texts[i], first) != 0)
            other = texts[i];
    }
    if (majority || !other)
        return;
    snprintf(both, sizeof both, "%.70s and %.70s", first, other);
    mics_findings_add(findings, what, -1, where, both, "the same on all nodes");
}

/* Compare one number of each node: it is too low by more than `tolerance` of the upper median. */
static void compare_numbers(struct mics_findings *findings, const char *what, const char *where,
                            const double *values, size_t count, double tolerance,
                            enum mics_figure_unit unit)
{
    const double expected = mics_upper_median(values, count);
    char found[64], normal[64];

    for (size_t i = 0; i < count; i++)
        if (values[i] < expected * (1 - tolerance))
            mics_findings_add(findings, what, (int)i, where, mics_figure(found, values[i], unit),
                              mics_figure(normal, expected, unit));
}

static void judge_texts(struct mics_findings *findings, const char **texts, size_t count)
{
    static const struct {
        const char *what, *outer, *key;
    } rows[] = {{"mics_version", "versions", "mics"},
                {"mpi_version", "versions", "mpi"},
                {"kernel", "versions", "kernel"},
                {"driver", "versions", "nvidia"},
                {"governor", NULL, "governor"}};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t i = 0; i < count; i++) {
            const json_t *facts = facts_of(findings, i);

            texts[i] =
                text_of(rows[r].outer ? json_object_get(facts, rows[r].outer) : facts, rows[r].key);
        }
        compare_texts(findings, rows[r].what, NULL, texts, count);
    }
}

static void judge_numbers(struct mics_findings *findings, double *values, size_t count)
{
    static const struct {
        const char *what, *key;
        double tolerance; /* kernels keep a little more memory on one node than on another */
        enum mics_figure_unit unit;
    } rows[] = {{"cores", "cores", 0, MICS_FIGURE_PLAIN},
                {"memory", "memory_bytes", 1.0 / 16, MICS_FIGURE_BYTES},
                {"memory_in_use", "memory_free_bytes", 0.5, MICS_FIGURE_BYTES},
                {"shm", "shm_free_bytes", 0.5, MICS_FIGURE_BYTES}};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t i = 0; i < count; i++)
            values[i] = mics_number_of(facts_of(findings, i), rows[r].key);
        compare_numbers(findings, rows[r].what, NULL, values, count, rows[r].tolerance,
                        rows[r].unit);
    }
}

/* Clocks further apart confuse logs, certificates and tools such as make. */
static const double max_clock_offset_s = 1;
static const double min_disk_bytes = 1 << 30, container_shm_bytes = 64 << 20;

/* What is wrong by itself, or compared with a limit that is no number. */
static void judge_limits(struct mics_findings *findings, size_t count)
{
    size_t unlimited = 0;
    char found[64], normal[64];

    for (size_t i = 0; i < count; i++)
        unlimited += isnan(mics_number_of(facts_of(findings, i), "memlock_bytes"));
    for (size_t i = 0; i < count; i++) {
        const json_t *facts = facts_of(findings, i), *node = json_array_get(findings->nodes, i);
        const double offset = mics_number_of(node, "time_offset_s"),
                     lock = mics_number_of(facts, "memlock_bytes"),
                     disk = mics_number_of(facts, "disk_free_bytes"),
                     shm = mics_number_of(facts, "shm_bytes"),
                     throttled = mics_number_of(node, "throttled");

        if (fabs(offset) > max_clock_offset_s) {
            snprintf(found, sizeof found, "%+.1f s", offset);
            mics_findings_add(findings, "clock", count > 2 ? (int)i : -1, NULL, found,
                              "as the others, within 1 s");
        }
        if (!isnan(lock) &&
            (2 * unlimited > count || json_array_size(json_object_get(facts, "rdma")) > 0))
            mics_findings_add(findings, "memlock", (int)i, NULL,
                              mics_figure(found, lock, MICS_FIGURE_BYTES), "unlimited");
        if (disk < min_disk_bytes)
            mics_findings_add(findings, "disk", (int)i, NULL,
                              mics_figure(found, disk, MICS_FIGURE_BYTES),
                              mics_figure(normal, min_disk_bytes, MICS_FIGURE_BYTES));
        if (shm <= container_shm_bytes)
            mics_findings_add(findings, "shm_small", (int)i, NULL,
                              mics_figure(found, shm, MICS_FIGURE_BYTES), NULL);
        if (throttled > 0)
            mics_findings_add(findings, "throttled", (int)i, NULL,
                              mics_figure(found, throttled, MICS_FIGURE_PLAIN), "0");
    }
}

/* The card of this name, and port if it has one, in a list of cards; NULL: there is none. */
static const json_t *find_card(const json_t *list, const json_t *like)
{
    const char *port = text_of(like, "port");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *card = json_array_get(list, i);
        const char *own = text_of(card, "port");

        if (strcmp(text_of(card, "name"), text_of(like, "name")) == 0 &&
            strcmp(own ? own : "", port ? port : "") == 0)
            return card;
    }
    return NULL;
}

/* What is compared of a kind of cards. */
struct card_rules {
    const char *key; /* of the facts */
    const char *missing, *state, *rate, *mtu, *errors;
    const char *rate_key;
    double bits; /* of a unit of the rate */
};

static bool is_up(const json_t *card)
{
    const char *state = text_of(card, "state"); /* of a port of RDMA */

    return state ? strcmp(state, "ACTIVE") == 0 : json_is_true(json_object_get(card, "up"));
}

/* A card that is missing or down, although it is there and up on more than half of the nodes, or on
 * one of two. */
static void judge_presence(struct mics_findings *findings, const struct card_rules *rules,
                           const json_t **cards, const char *where, size_t count)
{
    size_t present = 0, up = 0;

    for (size_t i = 0; i < count; i++) {
        present += cards[i] != NULL;
        up += cards[i] && is_up(cards[i]);
    }
    for (size_t i = 0; i < count; i++) {
        const char *state = text_of(cards[i], "state");

        if (!cards[i] && 2 * present > count)
            mics_findings_add(findings, rules->missing, (int)i, where, "missing", "present");
        if (cards[i] && !is_up(cards[i]) && 2 * up >= present)
            mics_findings_add(findings, rules->state, (int)i, where, state ? state : "down",
                              state ? "ACTIVE" : "up");
    }
}

/* Most nodes decide which MTU is right. */
static void judge_mtu(struct mics_findings *findings, const char *what, const json_t **cards,
                      const char *where, double *values, size_t count)
{
    size_t known = 0, same = 0;
    char found[64], expected[64];

    for (size_t i = 0; i < count; i++)
        values[i] = mics_number_of(cards[i], "mtu");
    const double usual = mics_upper_median(values, count);
    for (size_t i = 0; i < count; i++) {
        known += !isnan(values[i]);
        same += values[i] == usual;
    }
    mics_figure(expected, usual, MICS_FIGURE_PLAIN);
    for (size_t i = 0; i < count; i++) {
        if (isnan(values[i]) || values[i] == usual)
            continue;
        mics_figure(found, values[i], MICS_FIGURE_PLAIN);
        mics_findings_add(findings, what, 2 * same > known ? (int)i : -1, where, found, expected);
    }
}

/* Some errors of a link are normal, such as those when its cable is plugged in. */
static const double normal_errors = 100, errors_times = 10;

static void judge_errors(struct mics_findings *findings, const char *what, const json_t **cards,
                         const char *where, double *values, size_t count)
{
    char found[64], expected[64];

    for (size_t i = 0; i < count; i++)
        values[i] = mics_number_of(cards[i], "errors");
    const double usual = mics_upper_median(values, count);
    for (size_t i = 0; i < count; i++)
        if (values[i] > normal_errors && (count < 3 || values[i] > errors_times * usual))
            mics_findings_add(findings, what, (int)i, where,
                              mics_figure(found, values[i], MICS_FIGURE_PLAIN),
                              mics_figure(expected, count < 3 ? 0 : usual, MICS_FIGURE_PLAIN));
}

/* Cards of one name on all nodes. `cards`: those of the nodes, NULL where there is none. */
static void judge_card(struct mics_findings *findings, const struct card_rules *rules,
                       const json_t **cards, double *values, size_t count)
{
    const json_t *any = NULL;
    char where[128];

    for (size_t i = 0; i < count; i++) {
        any = cards[i] ? cards[i] : any;
        values[i] = mics_number_of(cards[i], rules->rate_key) * rules->bits;
    }
    snprintf(where, sizeof where, "%.60s%s%.10s", text_of(any, "name"),
             text_of(any, "port") ? " port " : "",
             text_of(any, "port") ? text_of(any, "port") : "");
    judge_presence(findings, rules, cards, where, count);
    compare_numbers(findings, rules->rate, where, values, count, 0.01, MICS_FIGURE_BITS_PER_S);
    if (rules->mtu)
        judge_mtu(findings, rules->mtu, cards, where, values, count);
    if (rules->errors)
        judge_errors(findings, rules->errors, cards, where, values, count);
}

/* Each name once: where it is first found. */
static void judge_cards(struct mics_findings *findings, const struct card_rules *rules,
                        double *values, size_t count)
{
    const json_t **cards = calloc(count, sizeof *cards);

    if (!cards)
        findings->failed = true;
    for (size_t node = 0; cards && node < count; node++) {
        const json_t *own = json_object_get(facts_of(findings, node), rules->key);

        for (size_t c = 0; c < json_array_size(own); c++) {
            bool before = false;

            for (size_t i = 0; i < count; i++) {
                cards[i] = find_card(json_object_get(facts_of(findings, i), rules->key),
                                     json_array_get(own, c));
                before |= i < node && cards[i];
            }
            if (!before)
                judge_card(findings, rules, cards, values, count);
        }
    }
    free(cards);
}

enum mics_status mics_findings_of_facts(const json_t *nodes, json_t *list, struct mics_err *err)
{
    static const struct card_rules interfaces = {
        .key = "interfaces",
        .missing = "interface_missing",
        .state = "interface_down",
        .rate = "interface_rate",
        .mtu = "mtu",
        .rate_key = "bits_per_s",
        .bits = 1,
    };
    static const struct card_rules rdma = {
        .key = "rdma",
        .missing = "rdma_missing",
        .state = "rdma_state",
        .rate = "rdma_rate",
        .errors = "rdma_errors",
        .rate_key = "gbit_per_s",
        .bits = 1e9,
    };
    const size_t count = json_array_size(nodes);
    struct mics_findings findings = {.nodes = nodes, .list = list};
    const char **texts = calloc(count ? count : 1, sizeof *texts);
    double *values = calloc(count ? count : 1, sizeof *values);

    findings.failed = !texts || !values;
    if (!findings.failed) {
        judge_texts(&findings, texts, count);
        judge_numbers(&findings, values, count);
        judge_limits(&findings, count);
        judge_cards(&findings, &interfaces, values, count);
        judge_cards(&findings, &rdma, values, count);
        mics_findings_of_gpus(&findings);
    }
    free(texts);
    free(values);
    return findings.failed ? mics_err_nomem(err) : MICS_OK;
}
