/* SPDX-License-Identifier: Apache-2.0 */
/* check_dot.c - the nodes of a check and the pairs that were measured, as a graph. */
#include "base/units.h"
#include "doc/dot.h"
#include "probe/check.h"

#include <string.h>

/* Findings of a node that its label names; it says how many there are beyond these. */
enum { NAMED = 4 };

static const char good_colour[] = "#d8f0dd", notice_colour[] = "#fdf3c7", bad_colour[] = "#f6c4c4";
static const char slow_pair_colour[] = "#d02020", pair_colour[] = "#bbbbbb";

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void draw_node(FILE *out, const json_t *doc, size_t node)
{
    const json_t *list = json_object_get(doc, "findings");
    const char *host = json_string_value(json_array_get(json_object_get(doc, "hosts"), node));
    const char *colour = good_colour;
    char label[1024];
    size_t used = (size_t)snprintf(label, sizeof label, "%.200s", host), count = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i), *at = json_object_get(finding, "node");

        if (!json_is_integer(at) || (size_t)json_integer_value(at) != node)
            continue;
        if (strcmp(text_of(finding, "level"), "fault") == 0)
            colour = bad_colour;
        else if (colour == good_colour)
            colour = notice_colour;
        if (count++ < NAMED)
            used += (size_t)snprintf(label + used, sizeof label - used, "\n%.60s: %.60s",
                                     text_of(finding, "what"), text_of(finding, "found"));
    }
    if (count > NAMED)
        snprintf(label + used, sizeof label - used, "\nand %zu more", count - NAMED);
    fprintf(out, "  n%zu [fillcolor=\"%s\", label=", node, colour);
    mics_dot_text(out, label);
    fputs("]\n", out);
}

/* Does a finding say that this pair is slow? */
static bool is_slow_pair(const json_t *doc, const char *from, const char *to)
{
    const json_t *list = json_object_get(doc, "findings");
    char where[160];

    snprintf(where, sizeof where, "from %s to %s", from, to);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);

        if (strncmp(text_of(finding, "what"), "slow_", strlen("slow_")) == 0 &&
            strcmp(text_of(finding, "where"), where) == 0)
            return true;
    }
    return false;
}

/* A pair in one direction. Between two groups that are slow with each other, each is slow. */
static void draw_pair(FILE *out, const json_t *doc, const json_t *pair)
{
    const json_t *hosts = json_object_get(doc, "hosts"),
                 *groups = json_object_get(json_object_get(doc, "links"), "groups");
    const size_t from = (size_t)json_integer_value(json_array_get(pair, 0)),
                 to = (size_t)json_integer_value(json_array_get(pair, 1));
    const char *names[] = {json_string_value(json_array_get(hosts, from)),
                           json_string_value(json_array_get(hosts, to))};
    char rate[32];

    if (!names[0] || !names[1])
        return;
    const bool apart = groups && json_integer_value(json_array_get(groups, from)) !=
                                     json_integer_value(json_array_get(groups, to));
    const bool slow = apart || is_slow_pair(doc, names[0], names[1]);
    const double bytes_per_s = json_number_value(json_array_get(pair, 2));

    fprintf(out, "  n%zu -- n%zu [dir=forward, color=\"%s\", penwidth=%s", from, to,
            slow ? slow_pair_colour : pair_colour, slow ? "2" : "0.7");
    if (slow)
        fprintf(out, ", label=\"%s\"", mics_format_rate(bytes_per_s, rate, sizeof rate));
    fputs("]\n", out);
}

/* The verdict, what is usual between nodes, and findings of the whole cluster. */
static void draw_title(FILE *out, const json_t *doc)
{
    const json_t *list = json_object_get(doc, "findings");
    const double usual =
        json_number_value(json_object_get(json_object_get(doc, "links"), "reference_bytes_per_s"));
    char title[1024], rate[32];
    size_t used = (size_t)snprintf(title, sizeof title, "%.20s: %zu nodes", text_of(doc, "verdict"),
                                   json_array_size(json_object_get(doc, "hosts")));

    if (usual > 0)
        used += (size_t)snprintf(title + used, sizeof title - used, ", usual between them %s",
                                 mics_format_rate(usual, rate, sizeof rate));
    for (size_t i = 0, count = 0; i < json_array_size(list) && count < NAMED; i++) {
        const json_t *finding = json_array_get(list, i);

        if (json_object_get(finding, "node"))
            continue;
        count++;
        used += (size_t)snprintf(title + used, sizeof title - used, "\n%.60s %.60s %.60s",
                                 text_of(finding, "host"), text_of(finding, "what"),
                                 text_of(finding, "where"));
    }
    mics_dot_begin(out, "LR", title);
}

enum mics_status mics_check_dot(FILE *out, const json_t *doc, struct mics_err *err)
{
    const json_t *pairs = json_object_get(json_object_get(doc, "links"), "pairs");
    const enum mics_status status = mics_check_validate(doc, err);

    if (status != MICS_OK)
        return status;
    draw_title(out, doc);
    for (size_t i = 0; i < json_array_size(json_object_get(doc, "hosts")); i++)
        draw_node(out, doc, i);
    for (size_t i = 0; i < json_array_size(pairs); i++)
        draw_pair(out, doc, json_array_get(pairs, i));
    fputs("}\n", out);
    return MICS_OK;
}
