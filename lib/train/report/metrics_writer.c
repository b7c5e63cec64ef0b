/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/metrics_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mics_metrics {
    FILE *out;
    char *path;
    bool regular;
    off_t end; /* of the last whole line of a regular file */
};

/* Cut off a last line without its newline: a killed run did not finish it. */
static bool trim(const char *path)
{
    FILE *file = fopen(path, "r+e");
    struct stat info;
    off_t end = 0;
    int c;

    if (!file)
        return errno == ENOENT;
    bool done = fstat(fileno(file), &info) == 0;
    if (done && S_ISREG(info.st_mode) && info.st_size > 0) {
        end = info.st_size;
        done = fseeko(file, -1, SEEK_END) == 0;
        while (done && (c = getc(file)) != '\n' && c != EOF && --end > 0)
            done = fseeko(file, end - 1, SEEK_SET) == 0;
        done = done && !ferror(file) && (end == info.st_size || ftruncate(fileno(file), end) == 0);
    }
    return fclose(file) == 0 && done;
}

enum mics_status mics_metrics_open(const char *path, bool append, struct mics_metrics **out,
                                   struct mics_err *err)
{
    struct mics_metrics *metrics;

    *out = NULL;
    if (!path)
        return MICS_OK;
    metrics = calloc(1, sizeof *metrics);
    if (!metrics || !(metrics->path = strdup(path))) {
        free(metrics);
        return mics_err_nomem(err);
    }
    if (!append || trim(path))
        metrics->out = fopen(path, append ? "ae" : "we");
    if (!metrics->out) {
        mics_err_set_errno(err, "%s", path);
        free(metrics->path);
        free(metrics);
        return MICS_ERR_IO;
    }
    struct stat info;
    metrics->regular = fstat(fileno(metrics->out), &info) == 0 && S_ISREG(info.st_mode);
    metrics->end = metrics->regular ? info.st_size : 0;
    *out = metrics;
    return MICS_OK;
}

enum mics_status mics_metrics_close(struct mics_metrics *metrics, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!metrics)
        return MICS_OK;
    if (fclose(metrics->out) != 0)
        status = mics_err_set_errno(err, "%s", metrics->path);
    free(metrics->path);
    free(metrics);
    return status;
}

static enum mics_status end_line(struct mics_metrics *metrics, struct mics_err *err)
{
    errno = 0;
    putc('\n', metrics->out);
    if (fflush(metrics->out) == 0 && !ferror(metrics->out)) {
        metrics->end = metrics->regular ? ftello(metrics->out) : 0;
        return MICS_OK;
    }

    const enum mics_status status = mics_err_set_errno(err, "%s", metrics->path);
    if (metrics->regular) { /* no part of the line stays */
        __fpurge(metrics->out);
        (void)!ftruncate(fileno(metrics->out), metrics->end);
    }
    return status;
}

static void put_number(FILE *out, const char *key, double value)
{
    if (isfinite(value))
        fprintf(out, ",\"%s\":%.9g", key, value);
    else
        fprintf(out, ",\"%s\":null", key);
}

static void put_router(FILE *out, const struct mics_step_record *record)
{
    const struct mics_router_summary *router = record->router;

    put_number(out, "aux_loss", router->aux_loss);
    put_number(out, "z_loss", router->z_loss);
    put_number(out, "router_entropy", router->entropy);
    put_number(out, "expert_load", router->load);
    if (router->rank_load > 0)
        put_number(out, "rank_load", router->rank_load);
    if (record->model->config.expert_capacity > 0)
        put_number(out, "dropped_share", router->dropped);
    fprintf(out, ",\"idle_experts\":%" PRIu32 ",\"layer_loads\":[", router->idle_experts);
    for (uint32_t i = 0; i < router->layers; i++)
        fprintf(out, "%s%.4g", i > 0 ? "," : "",
                mics_model_layer_load(record->model, record->stats, i));
    putc(']', out);
}

enum mics_status mics_metrics_step(struct mics_metrics *metrics,
                                   const struct mics_step_record *record, struct mics_err *err)
{
    FILE *out = metrics ? metrics->out : NULL;

    if (!out)
        return MICS_OK;
    fprintf(out, "{\"event\":\"step\",\"step\":%llu", (unsigned long long)record->step);
    put_number(out, "loss", record->loss);
    put_number(out, "lr", record->lr);
    put_number(out, "grad_norm", record->grad_norm);
    put_number(out, "step_ms", 1e3 * record->seconds);
    put_number(out, "tokens_per_s", record->tokens_per_s);
    put_number(out, "compute_ms", 1e3 * record->compute_s);
    put_number(out, "comm_ms", 1e3 * record->comm_s);
    put_number(out, "exposed_ms", 1e3 * record->exposed_s);
    put_number(out, "hidden_ms", 1e3 * (record->comm_s - record->exposed_s));
    put_number(out, "comm_cpu_own_ms", 1e3 * record->cpu.own_s);
    put_number(out, "comm_cpu_mpi_ms", 1e3 * record->cpu.mpi_s);
    put_number(out, "comm_cpu_kernel_ms", 1e3 * record->cpu.kernel_s);
    if (record->exact_sync_bytes > 0)
        fprintf(out, ",\"sync_bytes\":%" PRIu64 ",\"exact_sync_bytes\":%" PRIu64,
                record->sync_bytes, record->exact_sync_bytes);
    if (record->router)
        put_router(out, record);
    if (record->loss_scale > 0)
        fprintf(out, ",\"loss_scale\":%.17g", record->loss_scale);
    putc('}', out);
    return end_line(metrics, err);
}

enum mics_status mics_metrics_event(struct mics_metrics *metrics, json_t *event,
                                    struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!event)
        return mics_err_nomem(err);
    if (metrics) {
        if (json_dumpf(event, metrics->out, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0)
            status = mics_err_set_errno(err, "%s", metrics->path);
        else
            status = end_line(metrics, err);
    }
    json_decref(event);
    return status;
}
