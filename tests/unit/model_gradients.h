/* SPDX-License-Identifier: Apache-2.0 */
/* model_gradients.h - a run's loss and gradients against the double model's, by finite differences,
 * and runs compared. */
#ifndef MICS_TESTS_MODEL_GRADIENTS_H
#define MICS_TESTS_MODEL_GRADIENTS_H

#include "model_double.h"
#include "model_run.h"

/* A double model with the parameters of a run. Free with double_free(). */
static inline struct model_double double_new(struct model_run *run)
{
    struct model_double g = {.model = run->model, .T = run->batch.T};

    g.params = malloc(run->model->unit_count * sizeof *g.params);
    for (uint32_t u = 0; u < run->model->unit_count; u++) {
        const uint64_t count = run->model->units[u].count;

        g.params[u] = malloc(count * sizeof **g.params);
        for (uint64_t i = 0; i < count; i++)
            g.params[u][i] = run_params(run, u)[i];
    }
    return g;
}

static inline void double_free(struct model_double *g)
{
    for (uint32_t u = 0; u < g->model->unit_count; u++)
        free(g->params[u]);
    free(g->params);
}

static inline double double_batch_loss(const struct model_double *g, struct model_run *run,
                                       double_loss *loss_of)
{
    double loss = 0;

    for (uint32_t b = 0; b < run->batch.B; b++)
        loss += loss_of(g, run_tokens(run) + b * g->T, run_targets(run) + b * g->T);
    return loss;
}

/* By central differences: error of order h^2 and 1e-16 / h. */
static inline double double_difference(const struct model_double *g, struct model_run *run,
                                       double_loss *loss_of, double *param)
{
    const double h = 1e-5, kept = *param;

    *param = kept + h;
    const double above = double_batch_loss(g, run, loss_of);
    *param = kept - h;
    const double below = double_batch_loss(g, run, loss_of);
    *param = kept;
    return (above - below) / (2 * h);
}

static inline double largest(const float *values, uint64_t count)
{
    double most = 0;

    for (uint64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)values[i]));
    return most;
}

/* The worst gradient of a tensor, relative to its largest. */
static inline double tensor_error(const struct model_double *g, struct model_run *run,
                                  double_loss *loss_of, uint32_t unit,
                                  const struct mics_tensor *tensor)
{
    const float *grads = run_grads(run, unit) + tensor->offset;
    const double scale = largest(grads, tensor->count);
    double worst = 0;

    CHECK(scale > 1e-3);
    for (uint64_t i = 0; i < tensor->count; i++) {
        const double want =
            double_difference(g, run, loss_of, &g->params[unit][tensor->offset + i]);

        worst = fmax(worst, fabs(grads[i] - want) / (1 + scale));
    }
    return worst;
}

/* Run a step and compare its loss and every gradient; gradients within `tolerance` of a tensor's
 * largest. */
static inline void check_loss_and_gradients(struct model_run *run, double_loss *loss_of,
                                            double tolerance)
{
    struct model_double g = double_new(run);
    const double loss = run_step(run);
    double worst = 0;

    CHECK_NEAR(loss, double_batch_loss(&g, run, loss_of), 1e-5 * loss);
    for (uint32_t u = 0; u < run->model->unit_count; u++)
        for (uint32_t i = 0; i < run->model->units[u].tensor_count; i++)
            worst =
                fmax(worst, tensor_error(&g, run, loss_of, u, &run->model->units[u].tensors[i]));
    printf("# largest difference relative to a tensor's largest gradient: %.2g\n", worst);
    CHECK(worst < tolerance);
    double_free(&g);
}

/* To the bit? */
static inline bool same_gradients(const struct model_run *a, const struct model_run *b)
{
    bool same = true;

    for (uint32_t u = 0; u < a->model->unit_count; u++)
        same = same && memcmp(a->grads[u].data, b->grads[u].data, a->grads[u].bytes) == 0;
    return same;
}

/* The first pass into gradients has the bits of one that adds to zeros, whatever was in what it
 * writes. Takes two equal runs that have made no step; both are closed. */
static inline void check_first_pass(struct model_run *run, struct model_run *zeroed)
{
    uint64_t written = 0;

    run->first = true;
    for (uint32_t u = 0; u < run->model->unit_count; u++) {
        const uint64_t count = run->model->units[u].written_count;

        CHECK(count <= run->model->units[u].decay_count);
        memset(run_grads(run, u), 0xff, count * sizeof(float));
        written += count;
    }
    CHECK(written > run->model->param_count / 2);
    CHECK(run_step(run) == run_step(zeroed));
    CHECK(same_gradients(run, zeroed));
    run_close(run);
    run_close(zeroed);
}

/* Largest difference between two runs' gradients, relative to the largest of each unit. */
static inline double grads_differ(struct model_run *a, struct model_run *b)
{
    double worst = 0;

    for (uint32_t u = 0; u < a->model->unit_count; u++) {
        const uint64_t count = a->model->units[u].count;
        const double scale = largest(run_grads(a, u), count);

        for (uint64_t i = 0; i < count; i++)
            worst =
                fmax(worst, fabs((double)run_grads(a, u)[i] - run_grads(b, u)[i]) / (1 + scale));
    }
    return worst;
}

/* Run `part`, which takes fewer sequences at a time, over all sequences of `whole`. */
static inline double run_in_parts(struct model_run *whole, struct model_run *part)
{
    const uint32_t rows = part->batch.B * part->batch.T;
    double loss = 0;

    for (uint32_t at = 0; at < whole->batch.B * whole->batch.T; at += rows) {
        memcpy(run_tokens(part), run_tokens(whole) + at, rows * sizeof(int32_t));
        memcpy(run_targets(part), run_targets(whole) + at, rows * sizeof(int32_t));
        loss += run_step(part);
    }
    return loss;
}

#endif
