/* SPDX-License-Identifier: Apache-2.0 */
/* check_compare.c - what has become worse since an earlier check, host by host. */
#include "probe/check.h"
#include "probe/check_collectives.h"
#include "probe/findings_internal.h"

#include "base/units.h"
#include "doc/doc.h"
#include "doc/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rates of the same machine vary from check to check, by no more than this and than those of
 * machines like it. */
static const double slower_share = 0.8;
/* Kernels keep a little more memory at one start than at another. */
static const double less_share = 15.0 / 16;

/* One figure of a node, now and before; NAN: it was not found. */
static void compare(struct mics_findings *findings, int node, const char *where, double now,
                    double before, double share, enum mics_figure_unit unit)
{
    char found[64], expected[64];

    if (now < share * before)
        mics_findings_add(findings, "less", node, where, mics_figure(found, now, unit),
                          mics_figure(expected, before, unit));
}

/* The same of a rate, and what it slows. Nothing is slower that is not below `usual`, which nodes
 * like it had before. */
static void compare_rate(struct mics_findings *findings, int node, const char *where, double now,
                         double before, double usual, double share, const char *slows)
{
    const enum mics_figure_unit unit =
        strcmp(slows, "compute") == 0 ? MICS_FIGURE_FLOPS : MICS_FIGURE_BYTES_PER_S;
    char found[64], expected[64];

    if (now < share * before && !(now >= usual))
        mics_findings_add_slow(findings, "slower", node, where, mics_figure(found, now, unit),
                               mics_figure(expected, before, unit),
                               (struct mics_slowdown){slows, before / now, false});
}

static void compare_versions(struct mics_findings *findings, int node, const json_t *now,
                             const json_t *before)
{
    const char *name;
    const json_t *value;

    json_object_foreach((json_t *)now, name, value)
    {
        const char *text = json_string_value(value),
                   *old = json_string_value(json_object_get(before, name));

        if (text && old && strcmp(text, old) != 0)
            mics_findings_add(findings, "changed", node, name, text, old);
    }
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* The card of this name, and of this port ("": it has none). */
static const json_t *find_card(const json_t *list, const char *name, const char *port)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *card = json_array_get(list, i);

        if (strcmp(text_of(card, "name"), name) == 0 && strcmp(text_of(card, "port"), port) == 0)
            return card;
    }
    return NULL;
}

/* Interfaces, or ports of RDMA devices: `bytes` a second are one of the rate. */
static void compare_cards(struct mics_findings *findings, int node, const json_t *now,
                          const json_t *before, const char *rate, double bytes)
{
    char where[128];

    for (size_t i = 0; i < json_array_size(before); i++) {
        const json_t *old = json_array_get(before, i);
        const char *name = text_of(old, "name"), *port = text_of(old, "port");
        const json_t *card = find_card(now, name, port);

        snprintf(where, sizeof where, "%.60s%s%.10s", name, *port ? " port " : "", port);
        if (!card)
            mics_findings_add(findings, "less", node, where, "missing", "present");
        else
            compare(findings, node, where, mics_number_of(card, rate) * bytes,
                    mics_number_of(old, rate) * bytes, 0.99, MICS_FIGURE_BYTES_PER_S);
    }
}

static void compare_facts(struct mics_findings *findings, int node, const json_t *now,
                          const json_t *before)
{
    compare_versions(findings, node, json_object_get(now, "versions"),
                     json_object_get(before, "versions"));
    compare(findings, node, "cores", mics_number_of(now, "cores"), mics_number_of(before, "cores"),
            1, MICS_FIGURE_PLAIN);
    compare(findings, node, "memory", mics_number_of(now, "memory_bytes"),
            mics_number_of(before, "memory_bytes"), less_share, MICS_FIGURE_BYTES);
    compare(findings, node, "GPUs", (double)json_array_size(json_object_get(now, "gpus")),
            (double)json_array_size(json_object_get(before, "gpus")), 1, MICS_FIGURE_PLAIN);
    compare_cards(findings, node, json_object_get(now, "interfaces"),
                  json_object_get(before, "interfaces"), "bits_per_s", 1.0 / 8);
    compare_cards(findings, node, json_object_get(now, "rdma"), json_object_get(before, "rdma"),
                  "gbit_per_s", 1e9 / 8);
}

static bool has_fault(const json_t *doc, const char *host)
{
    const json_t *list = json_object_get(doc, "findings");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(text_of(json_array_get(list, i), "host"), host) == 0 &&
            strcmp(text_of(json_array_get(list, i), "level"), "fault") == 0)
            return true;
    return false;
}

/* As many processors, and the same GPUs? */
static bool are_alike(const json_t *a, const json_t *b)
{
    const json_t *own = json_object_get(a, "facts"), *theirs = json_object_get(b, "facts");
    const json_t *gpus = json_object_get(own, "gpus"), *others = json_object_get(theirs, "gpus");

    if (!json_equal(json_object_get(own, "cores"), json_object_get(theirs, "cores")) ||
        json_array_size(gpus) != json_array_size(others))
        return false;
    for (size_t i = 0; i < json_array_size(gpus); i++)
        if (strcmp(text_of(json_array_get(gpus, i), "name"),
                   text_of(json_array_get(others, i), "name")) != 0)
            return false;
    return true;
}

/* The least of what good nodes that are like node j had, itself included, by what `rate_of` says of
 * node i; INFINITY: there is none. */
static double least_of_alike(const json_t *doc, size_t j, const void *which,
                             double (*rate_of)(const json_t *doc, size_t i, const void *which))
{
    const json_t *nodes = json_object_get(doc, "nodes"), *node = json_array_get(nodes, j);
    double least = INFINITY;

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *other = json_array_get(nodes, i);

        if (are_alike(node, other) && !has_fault(doc, text_of(other, "host")))
            least = fmin(least, rate_of(doc, i, which));
    }
    return least;
}

/* The least rate of a node's ranks; NAN: it has none. */
static double least_of_ranks(const json_t *doc, size_t i, const void *which)
{
    const json_t *rates =
        json_object_get(json_array_get(json_object_get(doc, "nodes"), i), "rates");
    double least = NAN;

    for (size_t rank = 0; rank < json_array_size(rates); rank++)
        least = fmin(least, mics_number_of(json_array_get(rates, rank), which));
    return least;
}

static void compare_rates(struct mics_findings *findings, int node, const json_t *now,
                          const json_t *before, const json_t *earlier, size_t j)
{
    static const struct {
        const char *key, *name, *slows;
    } kinds[] = {{"flops_per_s", "products", "compute"},
                 {"memory_bytes_per_s", "memory", "memory"},
                 {"from_host_bytes_per_s", "copies from the host", "copies"},
                 {"to_host_bytes_per_s", "copies to the host", "copies"}};
    char where[64];

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const double usual = least_of_alike(earlier, j, kinds[k].key, least_of_ranks);

        for (size_t i = 0; i < json_array_size(now) && i < json_array_size(before); i++) {
            snprintf(where, sizeof where, "%s of local rank %zu", kinds[k].name, i);
            compare_rate(findings, node, where,
                         mics_number_of(json_array_get(now, i), kinds[k].key),
                         mics_number_of(json_array_get(before, i), kinds[k].key), usual,
                         slower_share, kinds[k].slows);
        }
    }
}

/* Collectives on hosts share their processors with other programs. */
static const double host_collectives_share = 0.65;

static bool same_collective(const json_t *a, const json_t *b)
{
    return strcmp(text_of(a, "op"), text_of(b, "op")) == 0 &&
           strcmp(text_of(a, "group"), text_of(b, "group")) == 0;
}

/* The row of the same collective and size. */
static const json_t *find_size(const json_t *rows, const json_t *like)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        if (same_collective(row, like) &&
            mics_number_of(row, "bytes") == mics_number_of(like, "bytes"))
            return row;
    }
    return NULL;
}

/* Is this the largest size of its collective that both have? */
static bool is_largest_common(const json_t *now, const json_t *before, const json_t *row)
{
    for (size_t i = 0; i < json_array_size(now); i++) {
        const json_t *other = json_array_get(now, i);

        if (same_collective(other, row) && find_size(before, other) &&
            mics_number_of(other, "bytes") > mics_number_of(row, "bytes"))
            return false;
    }
    return find_size(before, row) != NULL;
}

/* Collectives in a node, or with node -1 over all ranks, now and before. */
static void compare_collectives(struct mics_findings *findings, int node, const json_t *now,
                                const json_t *before, bool on_host)
{
    const char *rate = node < 0 ? "busbw_bytes_per_s" : "bytes_per_s";
    char where[96];

    for (size_t i = 0; i < json_array_size(now); i++) {
        const json_t *own = json_array_get(now, i);

        if ((node < 0 && strcmp(text_of(own, "group"), "world") != 0) ||
            !is_largest_common(now, before, own))
            continue;
        compare_rate(findings, node, mics_check_name_row(own, where), mics_number_of(own, rate),
                     mics_number_of(find_size(before, own), rate), NAN,
                     on_host ? host_collectives_share : slower_share, node < 0 ? "net" : "node");
    }
}

/* The rate of a node in list `which` of "links"; NAN: it has none. */
static double link_rate(const json_t *doc, size_t node, const void *which)
{
    const char *key = which;
    const json_t *list = json_object_get(json_object_get(doc, "links"), key);
    const json_t *value = json_array_get(list, node);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Node i of `doc`, with what it was: node j of `before`. */
static void compare_node(struct mics_findings *findings, const json_t *doc, size_t i,
                         const json_t *before, size_t j, bool same_device)
{
    const json_t *now = json_array_get(json_object_get(doc, "nodes"), i),
                 *old = json_array_get(json_object_get(before, "nodes"), j);
    static const char *const links[][2] = {{"send", "what it sends"},
                                           {"receive", "what it receives"}};
    const double ranks = mics_number_of(now, "ranks"), old_ranks = mics_number_of(old, "ranks");
    char found[64], expected[64];
    const int node = (int)i;

    compare_facts(findings, node, json_object_get(now, "facts"), json_object_get(old, "facts"));
    if (ranks != old_ranks) {
        mics_findings_add(findings, "changed", node, "ranks",
                          mics_figure(found, ranks, MICS_FIGURE_PLAIN),
                          mics_figure(expected, old_ranks, MICS_FIGURE_PLAIN));
        return;
    }
    if (same_device) {
        compare_rates(findings, node, json_object_get(now, "rates"), json_object_get(old, "rates"),
                      before, j);
        compare_collectives(findings, node, json_object_get(now, "collectives"),
                            json_object_get(old, "collectives"),
                            strcmp(text_of(doc, "device"), "host") == 0);
    }
    for (size_t k = 0; k < 2; k++)
        compare_rate(findings, node, links[k][1], link_rate(doc, i, links[k][0]),
                     link_rate(before, j, links[k][0]),
                     least_of_alike(before, j, links[k][0], link_rate), slower_share, "net");
}

static const json_t *rows_of(const json_t *doc)
{
    return json_object_get(json_object_get(doc, "collectives"), "rows");
}

/* Did collectives run over as many nodes and ranks? */
static bool same_shape(const json_t *doc, const json_t *other)
{
    const json_t *own = json_object_get(doc, "collectives"),
                 *theirs = json_object_get(other, "collectives");

    return mics_number_of(own, "nodes") == mics_number_of(theirs, "nodes") &&
           mics_number_of(own, "per_node") == mics_number_of(theirs, "per_node");
}

enum mics_status mics_check_compare(json_t *doc, const json_t *before, struct mics_err *err)
{
    const json_t *nodes = json_object_get(doc, "nodes"), *old = json_object_get(before, "nodes");
    const char *device = text_of(doc, "device"), *old_device = text_of(before, "device");
    const bool same_device = strcmp(device, old_device) == 0;
    json_t *list = json_object_get(doc, "findings");
    struct mics_findings findings = {.nodes = nodes, .list = list};
    bool any = false;

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *host = text_of(json_array_get(nodes, i), "host");

        for (size_t j = 0; j < json_array_size(old); j++) {
            if (strcmp(text_of(json_array_get(old, j), "host"), host) != 0)
                continue;
            compare_node(&findings, doc, i, before, j, same_device);
            any = true;
        }
    }
    if (!any)
        return mics_err_set(err, MICS_ERR_FORMAT, "it has none of these hosts");
    if (!same_device && *device && *old_device)
        mics_findings_add(&findings, "changed", -1, "device", device, old_device);
    if (same_device && same_shape(doc, before))
        compare_collectives(&findings, -1, rows_of(doc), rows_of(before),
                            strcmp(device, "host") == 0);
    return findings.failed ? mics_err_nomem(err) : mics_check_settle(doc, err);
}

/* The findings of mics_check_compare() alone; the caller's. NULL after an error. */
static json_t *differences(const json_t *now, const json_t *before, enum mics_status *status,
                           struct mics_err *err)
{
    json_t *copy = json_deep_copy(now), *list = json_array();

    if (!copy || json_object_set(copy, "findings", list) != 0)
        *status = mics_err_nomem(err);
    else
        *status = mics_check_compare(copy, before, err);
    json_decref(copy);
    if (*status == MICS_OK)
        return list;
    json_decref(list);
    return NULL;
}

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

static void put_change(struct mics_table *table, const char *change, const json_t *finding,
                       const char *before, const char *now)
{
    const char *host = text_of(finding, "host");

    mics_table_cell(table, "%s", change);
    mics_table_cell(table, "%s", *host ? host : "cluster");
    mics_table_cell(table, "%s", or_dash(text_of(finding, "what")));
    mics_table_cell(table, "%s", or_dash(text_of(finding, "where")));
    mics_table_cell(table, "%s", or_dash(before));
    mics_table_cell(table, "%s", or_dash(now));
}

/* Has the list this one? A node's lost packets are one, in whichever directions they are seen. */
static bool has_finding(const json_t *list, const json_t *finding)
{
    const bool anywhere =
        strcmp(text_of(finding, "what"), "packet_loss") == 0 && *text_of(finding, "host");
    static const char *const keys[] = {"what", "host", "where"};

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *other = json_array_get(list, i);
        bool same = true;

        for (size_t k = 0; k < sizeof keys / sizeof *keys - anywhere; k++)
            same &= strcmp(text_of(other, keys[k]), text_of(finding, keys[k])) == 0;
        if (same)
            return true;
    }
    return false;
}

static const json_t *find_node(const json_t *doc, const char *host)
{
    const json_t *nodes = json_object_get(doc, "nodes");

    for (size_t i = 0; i < json_array_size(nodes); i++)
        if (strcmp(text_of(json_array_get(nodes, i), "host"), host) == 0)
            return json_array_get(nodes, i);
    return NULL;
}

/* Does the check have all hosts of another one? */
static bool has_hosts_of(const json_t *doc, const json_t *other)
{
    const json_t *nodes = json_object_get(other, "nodes");

    for (size_t i = 0; i < json_array_size(nodes); i++)
        if (!find_node(doc, text_of(json_array_get(nodes, i), "host")))
            return false;
    return true;
}

static bool is_of_links(const char *what)
{
    return strncmp(what, "slow_", strlen("slow_")) == 0 || strcmp(what, "links_vary") == 0 ||
           strcmp(what, "rdma_unused") == 0 || strcmp(what, "packet_loss") == 0;
}

/* Is it what a check has found against a baseline of its own? */
static bool is_of_baseline(const char *what)
{
    return strcmp(what, "slower") == 0 || strcmp(what, "less") == 0 || strcmp(what, "changed") == 0;
}

/* Do the ranks of a node have this rate? */
static bool has_rate(const json_t *node, const char *key)
{
    const json_t *rates = json_object_get(node, "rates");

    for (size_t i = 0; i < json_array_size(rates); i++)
        if (json_object_get(json_array_get(rates, i), key))
            return true;
    return false;
}

/* Has the check looked at what a finding of another one is about: at its node, or at all of them,
 * and at rates if it is one? */
static bool has_looked(const json_t *doc, const json_t *finding, const json_t *of)
{
    const char *what = text_of(finding, "what"), *host = text_of(finding, "host");
    const json_t *node = find_node(doc, host);

    if (*host ? !node : !has_hosts_of(doc, of))
        return false;
    if (is_of_links(what))
        return json_object_get(doc, "links") != NULL;
    if (strcmp(what, "node_links") == 0)
        return json_array_size(json_object_get(node, "collectives")) > 0;
    if (strcmp(what, "collectives_low") == 0)
        return json_object_get(doc, "collectives") != NULL;
    if (strcmp(what, "below_expected") == 0)
        return json_object_get(doc, "expected") != NULL;
    if (node && strcmp(what, "host_copies") == 0)
        return has_rate(node, "from_host_bytes_per_s");
    if (node && (strcmp(what, "products") == 0 || strcmp(what, "memory_rate") == 0))
        return json_array_size(json_object_get(node, "rates")) > 0;
    return true;
}

/* The findings of `doc` that `other` does not have, although it has looked. What changed since a
 * third check is not among them. */
static void put_only_in(struct mics_table *table, const char *change, const json_t *doc,
                        const json_t *other, bool is_now)
{
    const json_t *list = json_object_get(doc, "findings");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);
        const char *found = text_of(finding, "found");

        if (!is_of_baseline(text_of(finding, "what")) &&
            !has_finding(json_object_get(other, "findings"), finding) &&
            has_looked(other, finding, doc))
            put_change(table, change, finding, is_now ? "" : found, is_now ? found : "");
    }
}

/* The hosts of `doc` that `other` does not have. */
static void put_hosts_only_in(struct mics_table *table, const json_t *doc, const json_t *other,
                              bool is_now)
{
    const json_t *nodes = json_object_get(doc, "nodes");

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);

        if (!find_node(other, text_of(node, "host")))
            put_change(table, is_now ? "added" : "unchecked", node, "", "");
    }
}

/* What is worse in the first than in the second, which is the earlier one, or with `better` the
 * later one; other versions only once. */
static void put_differences(struct mics_table *table, const json_t *list, bool better)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);
        const bool other = strcmp(text_of(finding, "what"), "changed") == 0;
        const char *found = text_of(finding, "found"), *expected = text_of(finding, "expected");

        if (better && !other)
            put_change(table, "better", finding, found, expected);
        else if (!better)
            put_change(table, other ? "other" : "worse", finding, expected, found);
    }
}

enum mics_status mics_check_print_changes(FILE *out, const json_t *before, const json_t *now,
                                          int tsv, struct mics_err *err)
{
    enum mics_status status = mics_check_validate(before, err);
    json_t *worse = NULL, *better = NULL;

    if (status == MICS_OK)
        status = mics_check_validate(now, err);
    if (status == MICS_OK)
        worse = differences(now, before, &status, err);
    if (status == MICS_OK)
        better = differences(before, now, &status, err);
    if (status == MICS_OK) {
        struct mics_table *table = mics_table_new("<change|<host|<what|<where|<before|<now");

        put_hosts_only_in(table, now, before, true);
        put_hosts_only_in(table, before, now, false);
        put_only_in(table, "new", now, before, true);
        put_only_in(table, "gone", before, now, false);
        put_differences(table, worse, false);
        put_differences(table, better, true);
        status = mics_table_finish(table, out, tsv, err);
    }
    if (status == MICS_OK && !tsv)
        fprintf(out, "\n%s before, %s now\n", text_of(before, "verdict"), text_of(now, "verdict"));
    json_decref(worse);
    json_decref(better);
    return status;
}

enum mics_status mics_check_read(const char *path, json_t **out, struct mics_err *err)
{
    enum mics_status status = mics_doc_read_file(path, out, err);

    if (status != MICS_OK)
        return status;
    status = mics_check_validate(*out, err);
    if (status == MICS_OK)
        return status;
    mics_err_prefix(err, "%s", path);
    json_decref(*out);
    *out = NULL;
    return status;
}
