/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/prometheus.h"

#include "base/file.h"
#include "base/version.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX    "mics_train_"
#define RESTARTS  "restarts_total"
#define MAX_BYTES ((size_t)1 << 20)

enum { LABEL_MAX = 2 * MICS_PATH_MAX };

static const struct {
    const char *name, *help;
    size_t offset;
} rows[] = {
#define VALUE(member) offsetof(struct mics_prometheus_values, member)
    {"step", "Training steps done.", VALUE(step)},
    {"last_step", "Training steps of the whole run.", VALUE(last_step)},
    {"epoch", "Passes over the training data.", VALUE(epoch)},
    {"loss", "Training loss of the last step, in nats per token.", VALUE(loss)},
    {"validation_loss", "Loss of the last validation, in nats per token.", VALUE(validation_loss)},
    {"grad_norm", "Gradient norm of the last step, before clipping.", VALUE(grad_norm)},
    {"learning_rate", "Learning rate of the last step.", VALUE(learning_rate)},
    {"tokens_total", "Tokens trained on.", VALUE(tokens)},
    {"step_seconds", "Duration of the last step.", VALUE(step_seconds)},
    {"exposed_communication_seconds", "Communication that computation did not hide, last step.",
     VALUE(exposed_seconds)},
    {"remaining_seconds", "Estimated time to the last step.", VALUE(remaining_seconds)},
    {"model_flops_utilization_ratio", "Model FLOP/s of the last step as part of the peak.",
     VALUE(utilization)},
    {"step_timestamp_seconds", "When the last step ended.", VALUE(step_timestamp)},
    {"checkpoint_step", "Step of the last checkpoint.", VALUE(checkpoint_step)},
    {"checkpoint_last_success_timestamp_seconds", "When the last checkpoint was complete.",
     VALUE(checkpoint_timestamp)},
    {RESTARTS, "Starts of the run after its first.", VALUE(restarts)},
    {"finished", "1 after the last step, else 0.", VALUE(finished)},
#undef VALUE
};

/* A value of a label: backslash, quote and newline are escaped. */
static const char *escape(const char *text, char out[LABEL_MAX])
{
    size_t used = 0;

    for (; *text && used + 3 < LABEL_MAX; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            out[used++] = '\\';
        out[used++] = *text;
        if (*text == '\n')
            out[used - 1] = 'n';
    }
    out[used] = '\0';
    return out;
}

static bool is_counter(const char *name)
{
    const char *end = strrchr(name, '_');

    return end && strcmp(end, "_total") == 0;
}

static void write_values(FILE *out, const struct mics_prometheus_labels *labels,
                         const struct mics_prometheus_values *values)
{
    char run[LABEL_MAX], model[LABEL_MAX], job[LABEL_MAX];

    escape(labels->run, run);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double value = *(const double *)((const char *)values + rows[i].offset);

        if (isnan(value))
            continue;
        fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", rows[i].name, rows[i].help,
                rows[i].name, is_counter(rows[i].name) ? "counter" : "gauge");
        if (isinf(value))
            fprintf(out, PREFIX "%s{run=\"%s\"} %sInf\n", rows[i].name, run, value < 0 ? "-" : "+");
        else
            fprintf(out, PREFIX "%s{run=\"%s\"} %.15g\n", rows[i].name, run, value);
    }
    fprintf(out,
            "# HELP " PREFIX "info What runs.\n# TYPE " PREFIX "info gauge\n" PREFIX
            "info{run=\"%s\",model=\"%s\",job_id=\"%s\",version=\"%s\"} 1\n",
            run, escape(labels->model, model), escape(labels->job_id, job), MICS_VERSION);
}

enum mics_status mics_prometheus_write(const char *path,
                                       const struct mics_prometheus_labels *labels,
                                       const struct mics_prometheus_values *values,
                                       struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status = mics_file_create(path, &writer, err);

    if (status != MICS_OK)
        return status;
    write_values(mics_file_stream(writer), labels, values);
    return mics_file_publish(writer, err);
}

double mics_prometheus_read_restarts(const char *path, const struct mics_prometheus_labels *labels)
{
    char *data = NULL, run[LABEL_MAX], key[LABEL_MAX + 64];
    size_t size;
    double restarts = -1;

    if (mics_file_read(path, MAX_BYTES, &data, &size, NULL) != MICS_OK)
        return -1;
    snprintf(key, sizeof key, "\n" PREFIX RESTARTS "{run=\"%s\"} ", escape(labels->run, run));
    const char *found = strstr(data, key);
    if (found)
        restarts = strtod(found + strlen(key), NULL);
    free(data);
    return restarts >= 0 && restarts < 1e15 ? restarts : -1;
}
