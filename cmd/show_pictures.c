/* SPDX-License-Identifier: Apache-2.0 */
#include "show_pictures.h"

#include "doc/gnuplot.h"
#include "measure/measure_doc.h"
#include "plan/plan.h"
#include "plan/plan_dot.h"
#include "plan/plan_print.h"
#include "probe/check.h"
#include "report/metrics.h"
#include "topology/topology_dot.h"
#include "topology/topology_print.h"

#include <stdlib.h>
#include <string.h>

static const char *kind_of(const struct show_input *input)
{
    return json_string_value(json_object_get(input->doc, "kind"));
}

static bool is_kind(const struct show_input *input, const char *kind)
{
    return strcmp(kind_of(input), kind) == 0;
}

static enum mics_status refuse_kind(const struct show_input *input, const char *option,
                                    const char *kinds, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_INFEASIBLE, "%s: %s draws %s, not a document of kind %.60s",
                        input->name, option, kinds, kind_of(input));
}

/* The table of several plans. */
static enum mics_status print_plans(FILE *tables, const struct show_input *inputs, size_t count,
                                    struct mics_err *err)
{
    json_t **docs = calloc(count, sizeof(json_t *));
    size_t wrong = 0;
    enum mics_status status = docs ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        docs[i] = inputs[i].doc;
        if (!is_kind(&inputs[i], MICS_PLAN_KIND))
            status = mics_err_set(err, MICS_ERR_ARG,
                                  "%s: a picture of several files needs plans, not %.60s",
                                  inputs[i].name, kind_of(&inputs[i]));
    }
    if (status == MICS_OK) {
        status = mics_plans_print(tables, docs, count, &wrong, err);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(err, "%s", inputs[wrong].name);
    }
    free(docs);
    return status;
}

/* The tables of one document, and the script that draws them. */
static enum mics_status print_tables(FILE *tables, const struct show_input *input,
                                     const char **script, struct mics_err *err)
{
    static const struct {
        const char *kind, *script;
        enum mics_status (*print)(FILE *, const json_t *, int, struct mics_err *);
    } drawn[] = {{MICS_PLAN_KIND, "plan", mics_plan_print},
                 {MICS_TOPOLOGY_KIND, "topology", mics_topology_print},
                 {MICS_BENCH_KIND, "bench", mics_bench_print},
                 {MICS_METRICS_KIND, "metrics", mics_metrics_print},
                 {MICS_CHECK_KIND, "check", mics_check_print_pairs}};

    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
        if (!is_kind(input, drawn[i].kind))
            continue;
        *script = drawn[i].script;
        return drawn[i].print(tables, input->doc, 1, err);
    }
    return refuse_kind(input, "--gnuplot",
                       "plans, topologies, measurements, metrics and checks of a cluster", err);
}

enum mics_status show_gnuplot(FILE *out, const struct show_input *inputs, size_t count,
                              const char *terminal, const char *only, struct mics_err *err)
{
    const char *script = NULL;
    char *tsv = NULL;
    size_t size = 0;
    FILE *tables = open_memstream(&tsv, &size);
    enum mics_status status;

    if (!tables)
        return mics_err_nomem(err);
    status = count == 1 ? print_tables(tables, inputs, &script, err)
                        : print_plans(tables, inputs, count, err);
    if (fclose(tables) != 0 && status == MICS_OK)
        status = mics_err_nomem(err);
    if (status == MICS_OK) {
        status = mics_gnuplot_write(out, count == 1 ? script : "plans", tsv, terminal, only, err);
        if (status == MICS_ERR_ARG)
            mics_err_prefix(err, "--plot");
    }
    if (script && (status == MICS_ERR_FORMAT || status == MICS_ERR_INFEASIBLE))
        mics_err_prefix(err, "%s", inputs->name);
    free(tsv);
    return status;
}

static enum mics_status dot_topology(FILE *out, const struct show_input *input, const char *expect,
                                     struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    struct mics_instance instance;
    enum mics_status status = MICS_OK;

    if (expect) {
        status = mics_catalogue_open_user(NULL, &catalogue, err);
        if (status == MICS_OK)
            status = mics_catalogue_find(catalogue, expect, &instance, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "--expect");
    }
    if (status == MICS_OK) {
        status = mics_topology_dot(out, input->doc, expect ? &instance : NULL, err);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(err, "%s", input->name);
    }
    mics_catalogue_close(catalogue);
    return status;
}

enum mics_status show_dot(FILE *out, const struct show_input *input, const char *expect,
                          struct mics_err *err)
{
    enum mics_status status;

    if (is_kind(input, MICS_TOPOLOGY_KIND))
        return dot_topology(out, input, expect, err);
    if (!is_kind(input, MICS_PLAN_KIND) && !is_kind(input, MICS_CHECK_KIND))
        return refuse_kind(input, "--dot", "topologies, plans and checks of a cluster", err);
    if (expect)
        return mics_err_set(err, MICS_ERR_ARG, "--expect goes with a topology");
    status = is_kind(input, MICS_PLAN_KIND) ? mics_plan_dot(out, input->doc, err)
                                            : mics_check_dot(out, input->doc, err);
    if (status == MICS_ERR_FORMAT)
        mics_err_prefix(err, "%s", input->name);
    return status;
}
