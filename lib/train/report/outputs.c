/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/outputs.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

#define RETRY_S            30
#define PUBLISH_INTERVAL_S 1

static const char *const names[] = {[MICS_OUTPUT_METRICS] = "metrics",
                                    [MICS_OUTPUT_TENSORBOARD] = "TensorBoard",
                                    [MICS_OUTPUT_PROMETHEUS] = "Prometheus"};

static bool is_open(const struct mics_outputs *outputs, enum mics_output which)
{
    return outputs->options.paths[which] && outputs->retry_s[which] <= 0;
}

/* The output has failed: close it, and say so the first time. */
static void suspend(struct mics_outputs *outputs, enum mics_output which,
                    const struct mics_err *err)
{
    struct mics_err text = *err;

    outputs->retry_s[which] = mics_now_s() + RETRY_S;
    if (which == MICS_OUTPUT_METRICS) {
        mics_metrics_close(outputs->metrics, NULL);
        outputs->metrics = NULL;
    } else if (which == MICS_OUTPUT_TENSORBOARD) {
        mics_tensorboard_close(outputs->tensorboard, NULL);
        outputs->tensorboard = NULL;
    }
    if (outputs->warned[which] || !outputs->options.warn)
        return;
    outputs->warned[which] = true;
    mics_err_prefix(&text, "%s", names[which]);
    const size_t length = strlen(text.text);

    snprintf(text.text + length, sizeof text.text - length,
             "; training goes on, and it is tried again every %d s", RETRY_S);
    outputs->options.warn(text.text);
}

static enum mics_status write_prometheus(struct mics_outputs *outputs, struct mics_err *err)
{
    outputs->published_s = mics_now_s();
    return mics_prometheus_write(outputs->options.paths[MICS_OUTPUT_PROMETHEUS],
                                 &outputs->options.labels, &outputs->values, err);
}

static void publish(struct mics_outputs *outputs)
{
    struct mics_err err;

    if (write_prometheus(outputs, &err) != MICS_OK)
        suspend(outputs, MICS_OUTPUT_PROMETHEUS, &err);
}

/* The metrics begin with a line that describes the run. */
static enum mics_status open_metrics(struct mics_outputs *outputs, struct mics_err *err)
{
    const bool append = outputs->options.append || !outputs->run;
    enum mics_status status = mics_metrics_open(outputs->options.paths[MICS_OUTPUT_METRICS], append,
                                                &outputs->metrics, err);

    if (status != MICS_OK || !outputs->run)
        return status;
    status = mics_metrics_event(outputs->metrics, json_incref(outputs->run), err);
    if (status != MICS_OK)
        return status;
    json_decref(outputs->run);
    outputs->run = NULL;
    return MICS_OK;
}

static enum mics_status open_output(struct mics_outputs *outputs, enum mics_output which,
                                    struct mics_err *err)
{
    outputs->retry_s[which] = 0;
    switch (which) {
    case MICS_OUTPUT_METRICS:
        return open_metrics(outputs, err);
    case MICS_OUTPUT_TENSORBOARD:
        return mics_tensorboard_open(outputs->options.paths[which], outputs->options.first_step,
                                     &outputs->tensorboard, err);
    default:
        return write_prometheus(outputs, err);
    }
}

/* Open again what failed a while ago. */
static void retry(struct mics_outputs *outputs)
{
    struct mics_err err;

    for (int which = 0; which < MICS_OUTPUT_COUNT; which++)
        if (outputs->retry_s[which] > 0 && mics_now_s() >= outputs->retry_s[which] &&
            open_output(outputs, (enum mics_output)which, &err) != MICS_OK)
            suspend(outputs, (enum mics_output)which, &err);
}

static void count_restarts(struct mics_outputs *outputs)
{
    const struct mics_outputs_options *options = &outputs->options;
    const char *path = options->paths[MICS_OUTPUT_PROMETHEUS];

    outputs->values.restarts = (double)options->restarts;
    if (path && options->append)
        outputs->values.restarts = fmax(outputs->values.restarts,
                                        mics_prometheus_read_restarts(path, &options->labels) + 1);
}

enum mics_status mics_outputs_open(struct mics_outputs *outputs,
                                   const struct mics_outputs_options *options, json_t *run,
                                   struct mics_err *err)
{
    double *values = (double *)&outputs->values;

    *outputs = (struct mics_outputs){.options = *options, .run = run};
    for (size_t i = 0; i < sizeof outputs->values / sizeof *values; i++)
        values[i] = NAN;
    outputs->values.finished = 0;
    count_restarts(outputs);
    for (int which = 0; which < MICS_OUTPUT_COUNT; which++) {
        struct mics_err failure;
        const enum mics_status status =
            options->paths[which] ? open_output(outputs, (enum mics_output)which, &failure)
                                  : MICS_OK;

        if (status == MICS_OK)
            continue;
        if (options->append) {
            suspend(outputs, (enum mics_output)which, &failure);
            continue;
        }
        mics_metrics_close(outputs->metrics, NULL);
        mics_tensorboard_close(outputs->tensorboard, NULL);
        json_decref(outputs->run);
        memset(outputs, 0, sizeof *outputs);
        return mics_err_set(err, status, "%s: %s", names[which], failure.text);
    }
    return MICS_OK;
}

static void write_scalars(struct mics_outputs *outputs, uint64_t step,
                          const struct mics_tensorboard_scalar *scalars, size_t count)
{
    struct mics_err err;

    if (is_open(outputs, MICS_OUTPUT_TENSORBOARD) &&
        mics_tensorboard_write(outputs->tensorboard, step, scalars, count, &err) != MICS_OK)
        suspend(outputs, MICS_OUTPUT_TENSORBOARD, &err);
}

static void write_step_scalars(struct mics_outputs *outputs, const struct mics_step_record *record,
                               double utilization)
{
    struct mics_tensorboard_scalar scalars[MICS_TENSORBOARD_MAX_SCALARS] = {
        {"train/loss", record->loss},
        {"train/grad_norm", record->grad_norm},
        {"train/learning_rate", record->lr},
        {"perf/step_seconds", record->seconds},
        {"perf/tokens_per_second", record->tokens_per_s},
        {"perf/exposed_communication_seconds", record->exposed_s},
        {"perf/model_flops_utilization", utilization},
    };
    size_t count = 7;

    if (record->exact_sync_bytes > 0)
        scalars[count++] =
            (struct mics_tensorboard_scalar){"perf/second_hop_bytes", (double)record->sync_bytes};
    if (record->loss_scale > 0)
        scalars[count++] = (struct mics_tensorboard_scalar){"train/loss_scale", record->loss_scale};
    if (record->router) {
        const struct mics_router_summary *router = record->router;
        const struct mics_tensorboard_scalar values[] = {
            {"experts/load", router->load},         {"experts/mean_load", router->mean_load},
            {"experts/idle", router->idle_experts}, {"experts/router_entropy", router->entropy},
            {"train/aux_loss", router->aux_loss},   {"train/z_loss", router->z_loss},
        };

        memcpy(&scalars[count], values, sizeof values);
        count += sizeof values / sizeof *values;
        if (record->model->config.expert_capacity > 0)
            scalars[count++] =
                (struct mics_tensorboard_scalar){"experts/dropped_share", router->dropped};
    }
    for (int c = 0; record->classes && c < MICS_CLASS_COUNT; c++)
        if (record->classes->busy_s[c] > 0) {
            snprintf(scalars[count].tag, sizeof scalars[count].tag, "seconds/%s",
                     mics_op_class_name((enum mics_op_class)c));
            scalars[count++].value = record->classes->busy_s[c];
        }
    write_scalars(outputs, record->step, scalars, count);
}

void mics_outputs_step(struct mics_outputs *outputs, const struct mics_step_record *record,
                       double utilization)
{
    struct mics_prometheus_values *values = &outputs->values;
    struct mics_err err;

    retry(outputs);
    if (is_open(outputs, MICS_OUTPUT_METRICS) &&
        mics_metrics_step(outputs->metrics, record, &err) != MICS_OK)
        suspend(outputs, MICS_OUTPUT_METRICS, &err);
    write_step_scalars(outputs, record, utilization);
    values->step = (double)record->step;
    values->loss = record->loss;
    values->grad_norm = record->grad_norm;
    values->learning_rate = record->lr;
    values->step_seconds = record->seconds;
    values->exposed_seconds = record->exposed_s;
    values->utilization = utilization;
    if (is_open(outputs, MICS_OUTPUT_PROMETHEUS) &&
        mics_now_s() - outputs->published_s >= PUBLISH_INTERVAL_S)
        publish(outputs);
}

void mics_outputs_val(struct mics_outputs *outputs, uint64_t step, double loss)
{
    const struct mics_tensorboard_scalar scalar = {"val/loss", loss};

    outputs->values.validation_loss = loss;
    write_scalars(outputs, step, &scalar, 1);
}

void mics_outputs_event(struct mics_outputs *outputs, json_t *event)
{
    struct mics_err err;

    if (!is_open(outputs, MICS_OUTPUT_METRICS))
        json_decref(event);
    else if (mics_metrics_event(outputs->metrics, event, &err) != MICS_OK)
        suspend(outputs, MICS_OUTPUT_METRICS, &err);
}

void mics_outputs_close(struct mics_outputs *outputs)
{
    struct mics_err err;

    if (is_open(outputs, MICS_OUTPUT_METRICS)) {
        struct mics_metrics *metrics = outputs->metrics;

        outputs->metrics = NULL;
        if (mics_metrics_close(metrics, &err) != MICS_OK)
            suspend(outputs, MICS_OUTPUT_METRICS, &err);
    }
    if (is_open(outputs, MICS_OUTPUT_TENSORBOARD)) {
        struct mics_tensorboard *tensorboard = outputs->tensorboard;

        outputs->tensorboard = NULL;
        if (mics_tensorboard_close(tensorboard, &err) != MICS_OK)
            suspend(outputs, MICS_OUTPUT_TENSORBOARD, &err);
    }
    if (is_open(outputs, MICS_OUTPUT_PROMETHEUS))
        publish(outputs);
    json_decref(outputs->run);
    memset(outputs, 0, sizeof *outputs);
}
