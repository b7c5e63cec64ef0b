/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/metrics_plot.h"

#include "train/report/metrics_log.h"

#include <inttypes.h>
#include <math.h>

enum { MAX_POINTS = 2000 };

/* Steps that become one point. */
static size_t steps_per_point(const struct mics_metrics_log *log)
{
    return (log->step_count + MAX_POINTS - 1) / MAX_POINTS;
}

/* The block $train: the middle step of each interval, and the mean of a field over the steps that
 * have it. Returns the number of points. */
static size_t put_steps(FILE *out, const struct mics_metrics_log *log,
                        enum mics_metrics_field field, double scale)
{
    const size_t stride = steps_per_point(log);
    size_t points = 0;

    fputs("$train << END\n", out);
    for (size_t i = 0; i < log->step_count; i += stride) {
        const size_t end = i + stride < log->step_count ? i + stride : log->step_count;
        double sum = 0;
        size_t count = 0;

        for (size_t k = i; k < end; k++) {
            if (!isnan(log->steps[k].values[field])) {
                sum += log->steps[k].values[field];
                count++;
            }
        }
        if (count > 0) {
            fprintf(out, "%" PRIu64 " %.7g\n", log->steps[i + (end - i) / 2].step,
                    sum / (double)count / scale);
            points++;
        }
    }
    fputs("END\n", out);
    return points;
}

static size_t put_validations(FILE *out, const struct mics_metrics_log *log)
{
    size_t points = 0;

    fputs("$val << END\n", out);
    for (size_t i = 0; i < log->val_count; i++) {
        if (isnan(log->vals[i].loss))
            continue;
        fprintf(out, "%" PRIu64 " %.7g\n", log->vals[i].step, log->vals[i].loss);
        points++;
    }
    fputs("END\n", out);
    return points;
}

static void put_title(FILE *out, const struct mics_metrics_log *log, const char *what)
{
    const char *model = json_string_value(json_object_get(log->run, "model"));
    const char *strategy = json_string_value(json_object_get(log->run, "strategy"));
    const json_int_t ranks = json_integer_value(json_object_get(log->run, "world_size"));

    fputs("set title ", out);
    if (model && strategy && ranks > 0)
        mics_gnuplot_textf(out, "%s: %.40s, %.16s, %lld rank%s", what, model, strategy,
                           (long long)ranks, ranks == 1 ? "" : "s");
    else
        mics_gnuplot_textf(out, "%s%s%.40s", what, model ? ": " : "", model ? model : "");
    fputs("\nset xlabel 'step'\n", out);
}

/* "mean of 12 steps", unless each step is a point. */
static void put_train_title(FILE *out, const struct mics_metrics_log *log, const char *what)
{
    const size_t stride = steps_per_point(log);

    if (stride > 1)
        mics_gnuplot_textf(out, "%s, mean of %zu steps", what, stride);
    else
        mics_gnuplot_text(out, what);
}

static void plot_loss(FILE *out, const struct mics_metrics_log *log)
{
    const size_t steps = put_steps(out, log, MICS_METRICS_LOSS, 1),
                 vals = put_validations(out, log);

    put_title(out, log, "Loss");
    fputs("set ylabel 'cross-entropy, nats per token'\nset key inside top right vertical\nplot ",
          out);
    if (steps > 0) {
        fputs("$train using 1:2 with lines lt 1 lw 1.5 title ", out);
        put_train_title(out, log, "training");
    }
    if (vals > 0)
        fprintf(out, "%s$val using 1:2 with linespoints lt 2 title 'validation'",
                steps > 0 ? ", " : "");
    fputc('\n', out);
}

static void plot_throughput(FILE *out, const struct mics_metrics_log *log)
{
    double largest = 0;
    const char *prefix;

    for (size_t i = 0; i < log->step_count; i++)
        if (log->steps[i].values[MICS_METRICS_TOKENS_PER_S] > largest)
            largest = log->steps[i].values[MICS_METRICS_TOKENS_PER_S];
    put_steps(out, log, MICS_METRICS_TOKENS_PER_S, mics_gnuplot_scale(largest, &prefix));
    put_title(out, log, "Measured throughput");
    fprintf(out, "set ylabel '%stokens/s'\nset yrange [0:*]\n", prefix);
    fputs(
        "set key inside bottom right vertical\nplot $train using 1:2 with lines lt 3 lw 1.5 title ",
        out);
    put_train_title(out, log, "all ranks");
    fputc('\n', out);
}

/* Does any step, or any validation, have the number? */
static bool has_field(const struct mics_metrics_log *log, enum mics_metrics_field field)
{
    for (size_t i = 0; i < log->step_count; i++)
        if (!isnan(log->steps[i].values[field]))
            return true;
    for (size_t i = 0; field == MICS_METRICS_LOSS && i < log->val_count; i++)
        if (!isnan(log->vals[i].loss))
            return true;
    return false;
}

enum mics_status mics_metrics_plot(struct mics_gnuplot *gnuplot, const char *data, size_t size,
                                   struct mics_err *err)
{
    struct mics_metrics_log log;
    FILE *out;
    enum mics_status status = mics_metrics_log_read(data, size, &log, err);

    if (status != MICS_OK)
        return status;
    if (!has_field(&log, MICS_METRICS_LOSS))
        status = mics_err_set(err, MICS_ERR_INFEASIBLE, "no step has a loss");
    out = status == MICS_OK ? mics_gnuplot_begin(gnuplot, "loss", 0) : NULL;
    if (out)
        plot_loss(out, &log);
    if (status == MICS_OK && has_field(&log, MICS_METRICS_TOKENS_PER_S)) {
        out = mics_gnuplot_begin(gnuplot, "throughput", 0);
        if (out)
            plot_throughput(out, &log);
    }
    mics_metrics_log_fini(&log);
    return status;
}
