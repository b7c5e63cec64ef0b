/* SPDX-License-Identifier: Apache-2.0 */
/* check_rates.c - the table of all rates that a check has measured, and what judges each. */
#include "doc/table.h"
#include "measure/statistics.h"
#include "probe/check.h"
#include "probe/check_collectives.h"
#include "probe/findings_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A row: rates of ranks, of nodes, or one of all. */
struct rate {
    char name[96]; /* as in findings */
    enum mics_figure_unit unit;
    double usual, least; /* least NAN: there is one rate */
    const char *host;    /* of the least */
    const char *others;  /* that are compared; NULL: there is one only */
    const char *what;    /* how findings by comparison with the others begin */
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static bool begins_with(const char *text, const char *word)
{
    const size_t length = strlen(word);

    return strncmp(text, word, length) == 0 && (text[length] == '\0' || text[length] == ' ');
}

/* Is a finding about this rate? */
static bool is_about(const json_t *finding, const struct rate *rate)
{
    const char *what = text_of(finding, "what"), *where = text_of(finding, "where");
    char op[32];

    snprintf(op, sizeof op, "%.*s", (int)strcspn(rate->name, " "), rate->name);
    if (strcmp(what, "node_links") == 0)
        return strcmp(rate->what, what) == 0 && strstr(where, op);
    if (strcmp(what, "below_expected") == 0 || strcmp(what, "slower") == 0)
        return begins_with(where, rate->name) ||
               (strcmp(rate->name, "between nodes") == 0 && begins_with(where, "what it"));
    if (strcmp(what, "collectives_low") == 0)
        return strcmp(where, rate->name) == 0;
    if (strcmp(what, "host_copies") == 0)
        return strcmp(rate->what, what) == 0 &&
               strstr(where, strstr(rate->name, "from") ? "from" : ", to");
    return strncmp(what, rate->what, strlen(rate->what)) == 0;
}

static void put_row(struct mics_table *table, const json_t *doc, const struct rate *rate)
{
    const json_t *list = json_object_get(doc, "findings");
    const double expected = mics_number_of(json_object_get(doc, "expected"), rate->name);
    char text[64];
    bool low = false;

    for (size_t i = 0; i < json_array_size(list); i++)
        low |= is_about(json_array_get(list, i), rate);
    mics_table_cell(table, "%s", rate->name);
    mics_table_cell(table, "%s", mics_figure(text, rate->usual, rate->unit));
    mics_table_cell(table, "%s",
                    isnan(rate->least) ? "-" : mics_figure(text, rate->least, rate->unit));
    mics_table_cell(table, "%s", rate->host ? rate->host : "-");
    mics_table_cell(table, "%s", isnan(expected) ? "-" : mics_figure(text, expected, rate->unit));
    mics_table_cell(table, "%s%s%s", isnan(expected) ? "" : text_of(doc, "expected_by"),
                    !isnan(expected) && rate->others ? ", " : "",
                    rate->others      ? rate->others
                    : isnan(expected) ? "-"
                                      : "");
    mics_table_cell(table, "%s",
                    low                                ? "low"
                    : rate->others || !isnan(expected) ? "normal"
                                                       : "not judged");
}

double mics_check_usual_rate(const json_t *doc, const char *key)
{
    const json_t *nodes = json_object_get(doc, "nodes");
    size_t count = 0, used = 0;

    for (size_t i = 0; i < json_array_size(nodes); i++)
        count += json_array_size(json_object_get(json_array_get(nodes, i), "rates"));
    double *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; values && i < json_array_size(nodes); i++) {
        const json_t *rates = json_object_get(json_array_get(nodes, i), "rates");

        for (size_t k = 0; k < json_array_size(rates); k++)
            values[used++] = mics_number_of(json_array_get(rates, k), key);
    }
    const double usual = values ? mics_upper_median(values, used) : NAN;
    free(values);
    return usual;
}

static void put_ranks(struct mics_table *table, const json_t *doc)
{
    static const struct {
        const char *name, *key, *what;
        enum mics_figure_unit unit;
    } kinds[] = {
        {"products", "flops_per_s", "products", MICS_FIGURE_FLOPS},
        {"memory", "memory_bytes_per_s", "memory_rate", MICS_FIGURE_BYTES_PER_S},
        {"copies from the host", "from_host_bytes_per_s", "host_copies", MICS_FIGURE_BYTES_PER_S},
        {"copies to the host", "to_host_bytes_per_s", "host_copies", MICS_FIGURE_BYTES_PER_S},
    };
    const json_t *nodes = json_object_get(doc, "nodes");

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct rate rate = {.unit = kinds[k].unit, .what = kinds[k].what, .least = INFINITY};
        size_t count = 0;

        snprintf(rate.name, sizeof rate.name, "%s", kinds[k].name);
        rate.usual = mics_check_usual_rate(doc, kinds[k].key);
        for (size_t i = 0; i < json_array_size(nodes); i++) {
            const json_t *node = json_array_get(nodes, i), *rates = json_object_get(node, "rates");

            for (size_t r = 0; r < json_array_size(rates); r++, count++) {
                const double own = mics_number_of(json_array_get(rates, r), kinds[k].key);

                if (own < rate.least) {
                    rate.least = own;
                    rate.host = text_of(node, "host");
                }
            }
        }
        rate.others = count > 1 ? "other ranks" : NULL;
        if (!isnan(rate.usual))
            put_row(table, doc, &rate);
    }
}

/* Of what each node sends and receives, the least. */
static void put_links(struct mics_table *table, const json_t *doc)
{
    static const char *const keys[] = {"send", "receive"};
    const json_t *links = json_object_get(doc, "links"), *nodes = json_object_get(doc, "nodes");
    struct rate rate = {.name = "between nodes",
                        .unit = MICS_FIGURE_BYTES_PER_S,
                        .what = "slow_",
                        .others = "other pairs",
                        .least = INFINITY};

    rate.usual = mics_number_of(links, "reference_bytes_per_s");
    for (size_t i = 0; i < 2 * json_array_size(nodes); i++) {
        const json_t *own = json_array_get(json_object_get(links, keys[i % 2]), i / 2);

        if (!json_is_number(own) || !(json_number_value(own) < rate.least))
            continue;
        rate.least = json_number_value(own);
        rate.host = text_of(json_array_get(nodes, i / 2), "host");
    }
    if (!isnan(rate.usual) && isfinite(rate.least))
        put_row(table, doc, &rate);
}

/* A collective in nodes: the median node, and the slowest. */
static void compare_nodes(const json_t *doc, const json_t *row, struct rate *rate)
{
    const json_t *nodes = json_object_get(doc, "nodes");
    double *values = calloc(json_array_size(nodes) + 1, sizeof *values);
    size_t count = 0;

    for (size_t i = 0; values && i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i), *list = json_object_get(node, "collectives");

        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *own = json_array_get(list, k);

            if (strcmp(text_of(own, "op"), text_of(row, "op")) != 0 ||
                mics_number_of(own, "bytes") != mics_number_of(row, "bytes"))
                continue;
            values[count] = mics_number_of(own, "bytes_per_s");
            if (values[count] < rate->least) {
                rate->least = values[count];
                rate->host = text_of(node, "host");
            }
            count++;
            break;
        }
    }
    if (count > 0)
        rate->usual = mics_upper_median(values, count);
    free(values);
}

/* The largest size of each collective. */
static void put_collectives(struct mics_table *table, const json_t *doc)
{
    const json_t *bench = json_object_get(doc, "collectives");
    const json_t *rows = json_object_get(bench, "rows");
    const bool several = json_array_size(json_object_get(doc, "nodes")) > 1;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const bool in_nodes = strcmp(text_of(row, "group"), "node") == 0;
        struct rate rate = {.unit = MICS_FIGURE_BYTES_PER_S,
                            .what = in_nodes ? "node_links" : "collectives_low",
                            .others = !in_nodes ? "links"
                                      : several ? "other nodes"
                                                : NULL,
                            .least = in_nodes ? INFINITY : NAN};

        if (!mics_check_is_largest(rows, row))
            continue;
        mics_check_name_row(row, rate.name);
        rate.usual = mics_number_of(row, "busbw_bytes_per_s");
        if (in_nodes)
            compare_nodes(doc, row, &rate);
        put_row(table, doc, &rate);
    }
}

enum mics_status mics_check_print_rates(FILE *out, const json_t *doc, struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new("<rate|>usual|>least|<of|>expected|<compared with|<verdict");

    put_ranks(table, doc);
    put_links(table, doc);
    put_collectives(table, doc);
    return mics_table_finish(table, out, 0, err);
}
