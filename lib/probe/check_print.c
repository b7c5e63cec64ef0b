/* SPDX-License-Identifier: Apache-2.0 */
/* check_print.c - a document mics.check as a page. */
#include "base/units.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "probe/check.h"
#include "probe/findings.h"

#include <math.h>
#include <string.h>

enum { MAX_FINDINGS = 1 << 16 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static bool is_bad(const json_t *doc, size_t node)
{
    const json_t *bad = json_object_get(doc, "bad_nodes");

    for (size_t i = 0; i < json_array_size(bad); i++)
        if ((size_t)json_integer_value(json_array_get(bad, i)) == node)
            return true;
    return false;
}

/* Was the host of this node printed before? */
static bool is_repeated(const json_t *doc, size_t node)
{
    const json_t *hosts = json_object_get(doc, "hosts");
    const char *host = json_string_value(json_array_get(hosts, node));
    const size_t length = strcspn(host, "#");

    for (size_t i = 0; i < node; i++) {
        const char *other = json_string_value(json_array_get(hosts, i));

        if (is_bad(doc, i) && strcspn(other, "#") == length && strncmp(other, host, length) == 0)
            return true;
    }
    return false;
}

void mics_check_print_excluded(FILE *out, const json_t *doc)
{
    const json_t *hosts = json_object_get(doc, "hosts"),
                 *gone = json_object_get(doc, "unreachable");
    const char *comma = "";

    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *host = json_string_value(json_array_get(hosts, i));

        if (!is_bad(doc, i) || is_repeated(doc, i))
            continue;
        fprintf(out, "%s%.*s", comma, (int)strcspn(host, "#"), host);
        comma = ",";
    }
    for (size_t i = 0; i < json_array_size(gone); i++) {
        fprintf(out, "%s%s", comma, text_of(json_array_get(gone, i), "host"));
        comma = ",";
    }
    fputc('\n', out);
}

/* What all nodes should have in common, by the first. */
static enum mics_status print_cluster(FILE *out, const json_t *doc, struct mics_err *err)
{
    struct mics_table *table = mics_table_new("<|<");
    const json_t *facts =
        json_object_get(json_array_get(json_object_get(doc, "nodes"), 0), "facts");
    const json_t *versions = json_object_get(facts, "versions"),
                 *gpus = json_object_get(facts, "gpus"), *links = json_object_get(doc, "links");
    const size_t gone = json_array_size(json_object_get(doc, "unreachable"));

    mics_table_cell(table, "nodes");
    mics_table_cell(table, "%zu", json_array_size(json_object_get(doc, "nodes")));
    if (gone > 0) {
        mics_table_cell(table, "no answer");
        mics_table_cell(table, "%zu", gone);
    }
    mics_table_cell(table, "ranks per node");
    mics_table_cell(table, "%d", (int)json_integer_value(json_object_get(doc, "per_node")));
    mics_table_cell(table, "cores");
    mics_table_cell(table, "%d", (int)json_integer_value(json_object_get(facts, "cores")));
    mics_table_cell(table, "memory");
    mics_table_bytes(table, 0,
                     (uint64_t)json_integer_value(json_object_get(facts, "memory_bytes")));
    if (json_array_size(gpus) > 0) {
        mics_table_cell(table, "GPUs per node");
        mics_table_cell(table, "%zu x %s", json_array_size(gpus),
                        text_of(json_array_get(gpus, 0), "name"));
    }
    if (links) {
        mics_table_cell(table, "between nodes");
        mics_table_rate(table, 0,
                        json_number_value(json_object_get(links, "reference_bytes_per_s")));
    }
    mics_table_cell(table, "programs");
    mics_table_cell(table, "mics %s, %s, Linux %s%s%s", text_of(versions, "mics"),
                    text_of(versions, "mpi"), text_of(versions, "kernel"),
                    *text_of(versions, "nvidia") ? ", NVIDIA " : "", text_of(versions, "nvidia"));
    return mics_table_finish(table, out, 0, err);
}

/* A finding of the cluster has no host. */
static const char *host_of(const json_t *finding)
{
    return *text_of(finding, "host") ? text_of(finding, "host") : "cluster";
}

/* "+3.4 %", "+12 %" */
static const char *format_share(double share, char text[32])
{
    snprintf(text, 32, "%+.*f %%", fabs(share) < 0.0995 ? 1 : 0, 100 * share);
    return text;
}

/* What a fault adds to the planned step: "+12 %", "up to +12 %"; "-": it has no price. */
static void put_cost(struct mics_table *table, const json_t *finding, int tsv)
{
    const json_t *share = json_object_get(finding, "adds_share");
    const bool at_most = json_is_true(json_object_get(finding, "at_most"));
    char text[32];

    if (!json_is_number(share)) {
        mics_table_cell(table, "-");
    } else if (tsv) {
        mics_table_cell(table, "%.6g", json_number_value(share));
    } else {
        mics_table_cell(table, "%s%s", at_most ? "up to " : "",
                        format_share(json_number_value(share), text));
    }
    if (tsv)
        mics_table_cell(table, at_most ? "true" : "false");
}

/* `has_plan`: with what each adds to the step of a plan. */
static enum mics_status print_findings(FILE *out, const json_t *list, bool has_plan, int tsv,
                                       struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new(!has_plan ? "<level|<host|<what|<where|<found|<expected"
                       : tsv     ? "level|host|what|where|found|expected|adds_share|at_most"
                                 : "<level|<host|<what|<where|<found|<expected|>step");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);
        static const char *const keys[] = {"what", "where", "found", "expected"};

        mics_table_cell(table, "%s", text_of(finding, "level"));
        mics_table_cell(table, "%s", host_of(finding));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            mics_table_cell(table, "%s",
                            *text_of(finding, keys[k]) ? text_of(finding, keys[k]) : "-");
        if (has_plan)
            put_cost(table, finding, tsv);
    }
    return mics_table_finish(table, out, tsv, err);
}

/* What to do, once for each kind. */
static enum mics_status print_advice(FILE *out, const json_t *list, struct mics_err *err)
{
    struct mics_table *table = mics_table_new("<|<");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *what = text_of(json_array_get(list, i), "what");
        const struct mics_finding_kind *kind = mics_finding_kind(what);
        bool before = false;

        for (size_t j = 0; j < i; j++)
            before |= strcmp(text_of(json_array_get(list, j), "what"), what) == 0;
        if (before || !kind)
            continue;
        mics_table_cell(table, "%s", what);
        mics_table_cell(table, "%s", kind->advice);
    }
    return mics_table_finish(table, out, 0, err);
}

/* "planned step: 1.92 s; with these faults 2.4 s, +25 %" */
static void print_plan(FILE *out, const json_t *plan)
{
    const double good_s = json_number_value(json_object_get(plan, "step_s")),
                 bad_s = json_number_value(json_object_get(plan, "step_with_faults_s"));
    char good[32], bad[32], share[32];

    fprintf(out, "planned step: %s", mics_format_time(good_s, good, sizeof good));
    if (bad_s > 1.0005 * good_s)
        fprintf(out, "; with these faults %s, %s", mics_format_time(bad_s, bad, sizeof bad),
                format_share(bad_s / good_s - 1, share));
    fputc('\n', out);
}

static void print_verdict(FILE *out, const json_t *doc)
{
    const size_t nodes = json_array_size(json_object_get(doc, "nodes")),
                 bad = json_array_size(json_object_get(doc, "bad_nodes")),
                 gone = json_array_size(json_object_get(doc, "unreachable"));

    if (strcmp(text_of(doc, "verdict"), "good") == 0) {
        fprintf(out, "good: %zu node%s\n", nodes, nodes == 1 ? "" : "s");
    } else if (bad + gone == 0) {
        fputs("bad: which node is to blame cannot be told\n", out);
    } else {
        fprintf(out, "bad: %zu of %zu node%s; leave out ", bad + gone, nodes + gone,
                nodes + gone == 1 ? "" : "s");
        mics_check_print_excluded(out, doc);
    }
}

/* A list of maps, if it is there: their members, if they are there. */
static void validate_list(const struct mics_cursor *at, const char *key, const char *const *numbers,
                          const char *const *texts)
{
    struct mics_cursor list;

    if (!mics_cursor_has(at, key))
        return;
    list = mics_cursor_get_array(at, key, 0, MAX_FINDINGS);
    for (size_t i = 0; i < mics_cursor_count(&list); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&list, i);

        for (size_t k = 0; numbers && numbers[k]; k++)
            mics_cursor_opt_double(&item, numbers[k], 0, 1e30, 0);
        for (size_t k = 0; texts && texts[k]; k++)
            mics_cursor_opt_string(&item, texts[k], "");
    }
}

static const char *const row_numbers[] = {"bytes", "bytes_per_s", "busbw_bytes_per_s", NULL},
                         *const row_texts[] = {"op", "group", NULL};

/* What mics_check_compare() reads of a node: of another type, nothing would be compared. */
static void validate_node(const struct mics_cursor *node)
{
    static const char *const rates[] = {"flops_per_s", "memory_bytes_per_s",
                                        "from_host_bytes_per_s", "to_host_bytes_per_s", NULL};
    static const char *const card_numbers[] = {"bits_per_s", "gbit_per_s", NULL},
                             *const card_texts[] = {"name", "port", NULL};
    const struct mics_cursor facts = mics_cursor_get_object(node, "facts");

    mics_cursor_get_string(node, "host");
    mics_cursor_get_u32(node, "ranks", 0, UINT32_MAX);
    mics_cursor_opt_double(&facts, "cores", 0, 1e9, 0);
    mics_cursor_opt_double(&facts, "memory_bytes", 0, 1e18, 0);
    if (mics_cursor_has(&facts, "versions"))
        mics_cursor_get_object(&facts, "versions");
    validate_list(&facts, "gpus", NULL, NULL);
    validate_list(&facts, "interfaces", card_numbers, card_texts);
    validate_list(&facts, "rdma", card_numbers, card_texts);
    validate_list(node, "rates", rates, NULL);
    validate_list(node, "collectives", row_numbers, row_texts);
}

static void validate_verdict(const struct mics_cursor *root)
{
    const char *verdict = mics_cursor_get_string(root, "verdict");

    if (mics_cursor_ok(root) && strcmp(verdict, "good") != 0 && strcmp(verdict, "bad") != 0)
        mics_cursor_reject(root, "verdict", "'%s': expected good or bad", verdict);
}

enum mics_status mics_check_validate(const json_t *doc, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor hosts = mics_cursor_get_array(&root, "hosts", 1, MAX_FINDINGS),
                             nodes = mics_cursor_get_array(&root, "nodes", 1, MAX_FINDINGS),
                             list = mics_cursor_get_array(&root, "findings", 0, MAX_FINDINGS);
    enum mics_status status = mics_doc_expect(doc, MICS_CHECK_KIND, MICS_CHECK_VERSION, err);

    if (status != MICS_OK)
        return status;
    validate_verdict(&root);
    mics_cursor_opt_string(&root, "device", "");
    for (size_t i = 0; i < mics_cursor_count(&hosts); i++) {
        const struct mics_cursor host = mics_cursor_item_any(&hosts, i);

        if (mics_cursor_ok(&root) && !json_is_string(host.value))
            mics_cursor_reject(&host, NULL, "expected a string");
    }
    for (size_t i = 0; i < mics_cursor_count(&nodes); i++) {
        const struct mics_cursor node = mics_cursor_get_item(&nodes, i);

        validate_node(&node);
    }
    for (size_t i = 0; i < mics_cursor_count(&list); i++) {
        const struct mics_cursor finding = mics_cursor_get_item(&list, i);

        mics_cursor_get_string(&finding, "what");
        mics_cursor_get_string(&finding, "level");
        mics_cursor_opt_double(&finding, "adds_share", -1, 1e9, 0);
    }
    if (mics_cursor_has(&root, "links")) {
        const struct mics_cursor links = mics_cursor_get_object(&root, "links");

        for (size_t i = 0; i < 2; i++)
            if (mics_cursor_has(&links, i ? "receive" : "send"))
                mics_cursor_get_array(&links, i ? "receive" : "send", 0, MAX_FINDINGS);
        if (mics_cursor_has(&links, "pairs"))
            mics_cursor_get_double(&links, "reference_bytes_per_s", 0, 1e18);
    }
    if (mics_cursor_has(&root, "collectives")) {
        const struct mics_cursor collectives = mics_cursor_get_object(&root, "collectives");

        mics_cursor_opt_double(&collectives, "nodes", 0, 1e9, 0);
        mics_cursor_opt_double(&collectives, "per_node", 0, 1e9, 0);
        validate_list(&collectives, "rows", row_numbers, row_texts);
    }
    if (mics_cursor_has(&root, "plan")) {
        const struct mics_cursor plan = mics_cursor_get_object(&root, "plan");

        mics_cursor_get_double(&plan, "step_s", 1e-12, 1e18);
        mics_cursor_get_double(&plan, "step_with_faults_s", 1e-12, 1e18);
    }
    return reading.status;
}

enum mics_status mics_check_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const json_t *list = json_object_get(doc, "findings"), *plan = json_object_get(doc, "plan");
    enum mics_status status = mics_check_validate(doc, err);

    if (status != MICS_OK)
        return status;
    if (tsv)
        return print_findings(out, list, plan != NULL, tsv, err);
    status = print_cluster(out, doc, err);
    if (status == MICS_OK && json_object_get(doc, "device")) {
        fputc('\n', out);
        status = mics_check_print_rates(out, doc, err);
    }
    if (status == MICS_OK && json_array_size(list) > 0) {
        fputc('\n', out);
        status = print_findings(out, list, plan != NULL, 0, err);
        if (status != MICS_OK)
            return status;
        fputc('\n', out);
        status = print_advice(out, list, err);
    }
    if (status != MICS_OK)
        return status;
    fputc('\n', out);
    if (plan)
        print_plan(out, plan);
    print_verdict(out, doc);
    return MICS_OK;
}

static enum mics_status print_pair_rows(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const json_t *pairs = json_object_get(json_object_get(doc, "links"), "pairs");
    struct mics_table *table = mics_table_new("sender|receiver|bytes_per_s");

    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);

        mics_table_cell(table, "%d", (int)json_integer_value(json_array_get(pair, 0)));
        mics_table_cell(table, "%d", (int)json_integer_value(json_array_get(pair, 1)));
        mics_table_cell(table, "%.12g", json_number_value(json_array_get(pair, 2)));
    }
    return mics_table_finish(table, out, tsv, err);
}

enum mics_status mics_check_print_pairs(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const json_t *hosts = json_object_get(doc, "hosts"), *links = json_object_get(doc, "links");
    enum mics_status status = mics_check_validate(doc, err);

    if (status != MICS_OK)
        return status;
    struct mics_table *table = mics_table_new("<|<");
    mics_table_cell(table, "verdict");
    mics_table_cell(table, "%s", text_of(doc, "verdict"));
    mics_table_cell(table, "nodes");
    mics_table_cell(table, "%zu", json_array_size(hosts));
    mics_table_cell(table, "reference_bytes_per_s");
    mics_table_cell(table, "%.12g",
                    json_number_value(json_object_get(links, "reference_bytes_per_s")));
    status = mics_table_finish(table, out, tsv, err);
    if (status != MICS_OK)
        return status;
    fputc('\n', out);
    table = mics_table_new("host|index|verdict");
    for (size_t i = 0; i < json_array_size(hosts); i++) {
        mics_table_cell(table, "%s", json_string_value(json_array_get(hosts, i)));
        mics_table_cell(table, "%zu", i);
        mics_table_cell(table, is_bad(doc, i) ? "bad" : "good");
    }
    status = mics_table_finish(table, out, tsv, err);
    if (status != MICS_OK)
        return status;
    fputc('\n', out);
    return print_pair_rows(out, doc, tsv, err);
}
