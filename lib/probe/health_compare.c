/* SPDX-License-Identifier: Apache-2.0 */
/* health_compare.c - what has become worse since an earlier check, host by host. */
#include "probe/findings_internal.h"
#include "probe/health.h"

#include "base/units.h"
#include "doc/doc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rates of the same machine vary from check to check. */
static const double slower_share = 0.8;
/* Kernels keep a little more memory at one start than at another. */
static const double less_share = 15.0 / 16;

enum unit { PLAIN, BYTES, RATE, FLOPS };

static const char *format(char text[64], double value, enum unit unit)
{
    char count[32];

    if (unit == RATE)
        return mics_format_rate(value, text, 64);
    if (unit != FLOPS)
        return mics_figure(text, value, unit == BYTES ? MICS_FIGURE_BYTES : MICS_FIGURE_PLAIN);
    snprintf(text, 64, "%sFLOP/s", mics_format_count(value, count, sizeof count));
    return text;
}

/* One figure of a node, now and before; NAN: it was not found. */
static void compare(struct mics_findings *findings, int node, const char *what, const char *where,
                    double now, double before, double share, enum unit unit)
{
    char found[64], expected[64];

    if (now < share * before)
        mics_findings_add(findings, what, node, where, format(found, now, unit),
                          format(expected, before, unit));
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

/* The interface of this name. */
static const json_t *find_named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *own = json_string_value(json_object_get(json_array_get(list, i), "name"));

        if (own && name && strcmp(own, name) == 0)
            return json_array_get(list, i);
    }
    return NULL;
}

static void compare_facts(struct mics_findings *findings, int node, const json_t *now,
                          const json_t *before)
{
    const json_t *old = json_object_get(before, "interfaces"),
                 *cards = json_object_get(now, "interfaces");

    compare_versions(findings, node, json_object_get(now, "versions"),
                     json_object_get(before, "versions"));
    compare(findings, node, "less", "cores", mics_number_of(now, "cores"),
            mics_number_of(before, "cores"), 1, PLAIN);
    compare(findings, node, "less", "memory", mics_number_of(now, "memory_bytes"),
            mics_number_of(before, "memory_bytes"), less_share, BYTES);
    compare(findings, node, "less", "GPUs", (double)json_array_size(json_object_get(now, "gpus")),
            (double)json_array_size(json_object_get(before, "gpus")), 1, PLAIN);
    for (size_t i = 0; i < json_array_size(old); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(old, i), "name"));
        const json_t *card = find_named(cards, name);

        if (!card)
            mics_findings_add(findings, "less", node, name, "missing", "present");
        else
            compare(findings, node, "less", name, mics_number_of(card, "bits_per_s") / 8,
                    mics_number_of(json_array_get(old, i), "bits_per_s") / 8, 0.99, RATE);
    }
}

static void compare_rates(struct mics_findings *findings, int node, const json_t *now,
                          const json_t *before)
{
    char where[64];

    for (size_t i = 0; i < json_array_size(now) && i < json_array_size(before); i++) {
        const json_t *own = json_array_get(now, i), *old = json_array_get(before, i);

        snprintf(where, sizeof where, "products of local rank %zu", i);
        compare(findings, node, "slower", where, mics_number_of(own, "flops_per_s"),
                mics_number_of(old, "flops_per_s"), slower_share, FLOPS);
        snprintf(where, sizeof where, "memory of local rank %zu", i);
        compare(findings, node, "slower", where, mics_number_of(own, "memory_bytes_per_s"),
                mics_number_of(old, "memory_bytes_per_s"), slower_share, RATE);
    }
}

/* The rate of a node in `key` of "links"; NAN: it has none. */
static double link_rate(const json_t *doc, const char *key, size_t node)
{
    const json_t *list = json_object_get(json_object_get(doc, "links"), key);
    const json_t *value = json_array_get(list, node);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

enum mics_status mics_health_compare(json_t *doc, const json_t *before, struct mics_err *err)
{
    const json_t *nodes = json_object_get(doc, "nodes"), *old = json_object_get(before, "nodes");
    json_t *list = json_object_get(doc, "findings");
    struct mics_findings findings = {.nodes = nodes, .list = list};

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        const char *host = json_string_value(json_object_get(node, "host"));

        for (size_t j = 0; j < json_array_size(old); j++) {
            const json_t *then = json_array_get(old, j);
            const char *name = json_string_value(json_object_get(then, "host"));

            if (!host || !name || strcmp(host, name) != 0)
                continue;
            compare_facts(&findings, (int)i, json_object_get(node, "facts"),
                          json_object_get(then, "facts"));
            compare_rates(&findings, (int)i, json_object_get(node, "rates"),
                          json_object_get(then, "rates"));
            compare(&findings, (int)i, "slower", "what it sends", link_rate(doc, "send", i),
                    link_rate(before, "send", j), slower_share, RATE);
            compare(&findings, (int)i, "slower", "what it receives", link_rate(doc, "receive", i),
                    link_rate(before, "receive", j), slower_share, RATE);
        }
    }
    json_t *bad = mics_findings_bad_nodes(list, json_array_size(nodes));
    if (findings.failed || json_object_set_new(doc, "bad_nodes", bad) != 0 ||
        (!mics_health_is_good(doc) && json_object_set_new(doc, "verdict", json_string("bad")) != 0))
        return mics_err_nomem(err);
    return MICS_OK;
}

enum mics_status mics_health_read(const char *path, json_t **out, struct mics_err *err)
{
    enum mics_status status = mics_doc_read_file(path, out, err);

    if (status != MICS_OK)
        return status;
    status = mics_doc_expect(*out, MICS_HEALTH_KIND, MICS_HEALTH_VERSION, err);
    if (status == MICS_OK)
        return status;
    mics_err_prefix(err, "%s", path);
    json_decref(*out);
    *out = NULL;
    return status;
}
