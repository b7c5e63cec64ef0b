/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weak_scaling.c - throughput per GPU of a model on more and more nodes, at a constant batch per
 * GPU, relative to the smallest cluster: MiCS, ZeRO-3 as mics plans it, with hierarchical exchanges
 * where they pay, and ZeRO-3 in flat rings, as other frameworks run it.
 *
 * usage: weak_scaling CONFIG.json        (exits with 1 if a target is missed)
 *
 * p4d.24xlarge, 16, 32 and 64 nodes; sequences of 512 tokens in 4 micro-steps, with micro-batch 8
 * as in the MiCS paper and with half of it. The targets: MiCS keeps 0.98 with both. With half,
 * where communication is not hidden by computation, ZeRO-3 in flat rings, which the paper compares
 * with, is 0.05 below it. The other differences are for information.
 */
#include "plan/search/search.h"

#include <stdio.h>
#include <string.h>

enum { SEQ = 512, MICRO_STEPS = 4, SIZES = 3, MOST_MICRO_BATCH = 8, LEAST_MICRO_BATCH = 4 };

static const uint32_t nodes[SIZES] = {16, 32, 64};

static const struct row {
    const char *name, *strategy;
    bool flat;
} rows[] = {{"mics", "mics", false}, {"zero3", "zero3", false}, {"zero3, flat", "zero3", true}};

/* The planner's choice, predicted again if the exchanges are to be flat. */
static enum mics_status predict(const struct row *row, const char *config, uint32_t node_count,
                                uint32_t micro_batch, struct mics_plan **out, struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_op_costs *costs = NULL;
    char text[64];

    snprintf(text, sizeof text, "p4d.24xlarge:%u", node_count);
    enum mics_status status = mics_topology_parse(text, &topology, err);
    if (status == MICS_OK)
        status = mics_model_open(config, &model, err);
    if (status == MICS_OK) {
        const struct mics_search_options options = {
            .strategy = row->strategy,
            .global_batch = (uint64_t)node_count * topology->per_node * micro_batch * MICRO_STEPS,
            .seq = SEQ,
            .micro_batch = micro_batch,
            .recompute = MICS_AUTO,
            .optimizer = MICS_OPT_ADAMW,
            .prefetch = MICS_AUTO,
            .dtype = MICS_AUTO,
            .grad_dtype = MICS_AUTO,
            .clip = true};

        status = mics_plan_search(topology, model, &options, out, err);
    }
    if (status != MICS_OK) {
        mics_topology_free(topology);
        mics_model_free(model);
        return status;
    }
    if (!row->flat)
        return MICS_OK;
    (*out)->choice.hierarchical_gather = (*out)->choice.hierarchical_reduce = false;
    status = mics_op_costs_new(topology, model, &costs, err);
    if (status == MICS_OK)
        status = mics_plan_predict(costs, model, &(*out)->choice, &(*out)->predicted, err);
    mics_op_costs_free(costs);
    if (status != MICS_OK)
        mics_plan_free(*out);
    return status;
}

static void print(const struct row *row, const struct mics_plan *plan, double efficiency)
{
    static const char *const levels[MICS_RECOMPUTE_LEVELS] = {"none", "selective", "full"};
    const struct mics_plan_choice *choice = &plan->choice;
    const double ranks = mics_choice_world_size(choice);

    printf("| %s | %u | %u | %u | %u | %s | %s | %.2f | %.1f | %.1f | %.3f |\n", row->name,
           mics_choice_nodes(choice), choice->shapes[MICS_UNIT_DENSE].p_param, choice->micro_steps,
           choice->micro_batch, levels[choice->recompute],
           choice->hierarchical_gather ? "hierarchical" : "flat", plan->predicted.step_s,
           plan->predicted.exposed_s, plan->predicted.tokens_per_s / ranks, efficiency);
}

/* The table of one micro-batch. */
static enum mics_status compare(const char *config, uint32_t micro_batch, bool *missed,
                                struct mics_err *err)
{
    double last[sizeof rows / sizeof *rows] = {0};

    puts("| strategy | nodes | p | s | micro-batch | recompute | gather | step, s | exposed, s | "
         "tokens/s per GPU | relative |");
    puts("|---|---:|---:|---:|---:|---|---|---:|---:|---:|---:|");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double first = 0;

        for (int i = 0; i < SIZES; i++) {
            struct mics_plan *plan = NULL;
            const enum mics_status status =
                predict(&rows[r], config, nodes[i], micro_batch, &plan, err);

            if (status != MICS_OK) {
                fprintf(stderr, "weak_scaling: %s on %u nodes: %s\n", rows[r].name, nodes[i],
                        err->text);
                return status;
            }
            const double rate =
                plan->predicted.tokens_per_s / mics_choice_world_size(&plan->choice);
            first = i == 0 ? rate : first;
            last[r] = rate / first;
            print(&rows[r], plan, last[r]);
            mics_plan_free(plan);
        }
    }
    const bool scales = last[0] >= .98, differs = last[0] - last[2] >= .05;
    const bool required = micro_batch == LEAST_MICRO_BATCH;

    printf(
        "\nMicro-batch %u, from %u to %u nodes: mics %.3f (reach 0.98: %s); below it flat zero3 by "
        "%.3f%s, zero3 with our hierarchical gathers by %.3f.\n\n",
        micro_batch, nodes[0], nodes[SIZES - 1], last[0], scales ? "reached" : "MISSED",
        last[0] - last[2],
        !required ? ""
        : differs ? " (reach 0.05: reached)"
                  : " (reach 0.05: MISSED)",
        last[0] - last[1]);
    *missed |= !scales || (required && !differs);
    return MICS_OK;
}

int main(int argc, char **argv)
{
    struct mics_err err = {""};
    bool missed = false;

    if (argc != 2) {
        fprintf(stderr, "usage: weak_scaling CONFIG.json\n");
        return 2;
    }
    for (uint32_t micro_batch = MOST_MICRO_BATCH; micro_batch >= LEAST_MICRO_BATCH;
         micro_batch /= 2)
        if (compare(argv[1], micro_batch, &missed, &err) != MICS_OK)
            return 1;
    return missed;
}
