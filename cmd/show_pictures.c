/* SPDX-License-Identifier: Apache-2.0 */
#include "show_pictures.h"

#include "measure/measure_doc.h"
#include "measure/plot.h"
#include "plan/plan.h"
#include "plan/plan_dot.h"
#include "plan/plot.h"
#include "topology/plot.h"
#include "topology/topology_dot.h"
#include "train/report/metrics.h"
#include "train/report/metrics_plot.h"

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

static enum mics_status plot_plans(struct mics_gnuplot *gnuplot, const struct show_input *inputs,
                                   size_t count, struct mics_err *err)
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
        status = mics_plans_plot(gnuplot, docs, count, &wrong, err);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(err, "%s", inputs[wrong].name);
    }
    free(docs);
    return status;
}

static enum mics_status plot_one(struct mics_gnuplot *gnuplot, const struct show_input *input,
                                 struct mics_err *err)
{
    enum mics_status status;

    if (is_kind(input, MICS_PLAN_KIND))
        status = mics_plan_plot(gnuplot, input->doc, err);
    else if (is_kind(input, MICS_TOPOLOGY_KIND))
        status = mics_topology_plot(gnuplot, input->doc, err);
    else if (is_kind(input, MICS_BENCH_KIND))
        status = mics_bench_plot(gnuplot, input->doc, err);
    else if (mics_metrics_recognize(input->data, input->size))
        status = mics_metrics_plot(gnuplot, input->data, input->size, err);
    else
        return refuse_kind(input, "--gnuplot", "plans, topologies, measurements and metrics", err);
    if (status != MICS_OK && status != MICS_ERR_NOMEM)
        mics_err_prefix(err, "%s", input->name);
    return status;
}

enum mics_status show_gnuplot(FILE *out, const struct show_input *inputs, size_t count,
                              const char *terminal, const char *only, struct mics_err *err)
{
    struct mics_gnuplot *gnuplot = mics_gnuplot_new();
    enum mics_status status;

    status = count == 1 ? plot_one(gnuplot, inputs, err) : plot_plans(gnuplot, inputs, count, err);
    if (status == MICS_OK) {
        status = mics_gnuplot_write(gnuplot, out, terminal, only, err);
        if (status == MICS_ERR_ARG)
            mics_err_prefix(err, "--plot");
    }
    mics_gnuplot_free(gnuplot);
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
    if (!is_kind(input, MICS_PLAN_KIND))
        return refuse_kind(input, "--dot", "topologies and plans", err);
    if (expect)
        return mics_err_set(err, MICS_ERR_ARG, "--expect goes with a topology");
    status = mics_plan_dot(out, input->doc, err);
    if (status == MICS_ERR_FORMAT)
        mics_err_prefix(err, "%s", input->name);
    return status;
}
