/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/run_text.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/units.h"
#include "base/utf8.h"
#include "doc/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void print_groups(FILE *out, const struct mics_plan_choice *choice, unsigned threads)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];

    fprintf(out, "ranks     %u node%s of %u rank%s, %u thread%s each\n", shape->nodes,
            shape->nodes == 1 ? "" : "s", shape->per_node, shape->per_node == 1 ? "" : "s", threads,
            threads == 1 ? "" : "s");
    fprintf(out, "strategy  %s: parameters in groups of %u, gradients %u, optimizer %u",
            choice->strategy, shape->p_param, shape->p_grad, shape->p_optim);
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT) {
        const struct mics_shape *experts = &choice->shapes[MICS_UNIT_EXPERT];

        fprintf(out, "; of experts %u, %u and %u", experts->p_param, experts->p_grad,
                experts->p_optim);
    }
    if (mics_shape_has_hierarchy(shape, shape->p_param))
        fprintf(out, "; %s gathers", choice->hierarchical_gather ? "hierarchical" : "flat");
    if (mics_shape_has_hierarchy(shape, shape->p_grad))
        fprintf(out, "; %s reductions", choice->hierarchical_reduce ? "hierarchical" : "flat");
    putc('\n', out);
}

/* What is not trained on, and how to change that. */
static void print_validation(FILE *out, const struct mics_run *run)
{
    const struct mics_data *data = run->options.data;
    const struct mics_train_settings *settings = run->options.settings;
    const double all = (double)(data->train_tokens + data->val_tokens);
    char tokens[32];

    if (data->val)
        fprintf(out, "  %s tokens of --val-data are validated",
                mics_format_count((double)data->val_tokens, tokens, sizeof tokens));
    if (data->val && settings->val_fraction > 0)
        fprintf(out, "; %.2g %% of --data are left out: --val-fraction=0 trains on all",
                100 * settings->val_fraction);
    if (!data->val && data->val_tokens > 0)
        fprintf(out,
                "  %.2g %% of the tokens are kept for validation%s; --val-fraction=0 trains on all",
                100 * (double)data->val_tokens / all,
                settings->val_every ? "" : ",\n  which --val-every=0 turns off");
    if (data->val || data->val_tokens > 0)
        putc('\n', out);
}

static void print_model_and_data(FILE *out, const struct mics_run *run)
{
    const struct mics_plan_choice *choice = &run->options.plan->choice;
    const struct mics_model *model = run->options.plan->model;
    const struct mics_data *data = run->options.data;
    static const char *const recompute_text[MICS_RECOMPUTE_LEVELS] = {
        [MICS_RECOMPUTE_NONE] = "",
        [MICS_RECOMPUTE_SELECTIVE] = ", recomputing norms, activations",
        [MICS_RECOMPUTE_FULL] = ", recomputing blocks",
    };
    const uint32_t ranks = mics_choice_nodes(choice) * mics_choice_per_node(choice);
    char buf[2][32];

    fprintf(out, "model     %s, %s parameters, %s\n", model->config.name,
            mics_format_count((double)model->param_count, buf[0], sizeof buf[0]),
            mics_optimizer_get(choice->optimizer)->title);
    fprintf(out, "data      %zu document%s, %s\n", (size_t)data->documents,
            data->documents == 1 ? "" : "s", mics_format_bytes(data->bytes, buf[0], sizeof buf[0]));
    fprintf(out, "tokens    %s to train on, %" PRIu64 " sequence%s to validate with\n",
            mics_format_count((double)data->train_tokens, buf[1], sizeof buf[1]), data->val_windows,
            data->val_windows == 1 ? "" : "s");
    print_validation(out, run);
    fprintf(out, "step      %" PRIu64 " sequence%s of %u: %u rank%s x %u x %u micro-step%s%s\n",
            run->global_batch, run->global_batch == 1 ? "" : "s", choice->seq, ranks,
            ranks == 1 ? "" : "s", choice->micro_batch, choice->micro_steps,
            choice->micro_steps == 1 ? "" : "s", recompute_text[choice->recompute]);
}

static void put_row(struct mics_table *table, const char *name, uint64_t bytes)
{
    char buf[32];

    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%" PRIu64, bytes);
    mics_table_cell(table, "%s", mics_format_bytes(bytes, buf, sizeof buf));
}

static enum mics_status print_memory(FILE *out, const struct mics_run *run, struct mics_err *err)
{
    const struct mics_memory *memory = &run->options.plan->memory;
    const uint64_t comm_bytes = mics_engine_comm_bytes(run->options.engine);
    struct mics_table *table = mics_table_new("<memory of a rank|>bytes|>size");
    enum mics_status status;

    if (!table)
        return mics_err_nomem(err);
    for (int i = 0; i < MICS_REGION_COUNT; i++)
        put_row(table, memory->regions[i].name, memory->regions[i].bytes);
    put_row(table, "arena", memory->arena_bytes);
    if (memory->offload_bytes)
        put_row(table, "optimizer states in host memory", memory->offload_bytes);
    put_row(table, "snapshot for checkpoints", mics_saver_bytes(run->disk.saver));
    if (comm_bytes)
        put_row(table, "communicators (measured)", comm_bytes);
    status = mics_table_print(table, out, 0, err);
    mics_table_free(table);
    return status;
}

/* "device    cuda: NVIDIA H200 (GPU 0), communication by nccl (2.28.9)" */
static void print_device(FILE *out, const struct mics_device *device, const struct mics_comm *comm)
{
    fprintf(out, "device    %s: %s", device->name, device->description);
    if (comm->size > 1)
        fprintf(out, ", communication by %s", comm->backend);
    if (comm->size > 1 && comm->detail)
        fprintf(out, " (%s)", comm->detail);
    putc('\n', out);
}

enum mics_status mics_run_text_begin(FILE *out, const struct mics_run *run,
                                     const struct mics_device *device, const struct mics_comm *comm,
                                     unsigned threads, struct mics_err *err)
{
    enum mics_status status;

    print_model_and_data(out, run);
    print_groups(out, &run->options.plan->choice, threads);
    if (run->step) {
        const char *from = run->start.from_memory ? "the memory of the nodes" : run->disk.last;

        fputs("resumed   ", out);
        mics_utf8_put(out, from, strlen(from));
        fprintf(out, ", after step %" PRIu64 "\n", run->step);
    }
    if (run->options.paced)
        fprintf(out, "device    paced: nothing is computed or saved, and the loss is 0\n");
    else if (device->description)
        print_device(out, device, comm);
    putc('\n', out);
    status = print_memory(out, run, err);
    putc('\n', out);
    fflush(out);
    return status;
}

/* "12:05", "3:04:05", "2d 03h", "-" for NAN; at most 8 characters. Returns buf[32]. */
static char *format_remaining(double seconds, char buf[32])
{
    enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };

    if (!(seconds >= 0)) {
        snprintf(buf, 32, "-");
        return buf;
    }
    const unsigned long s = (unsigned long)fmin(seconds, 999.0 * DAY);

    if (s < HOUR)
        snprintf(buf, 32, "%lu:%02lu", s / MINUTE, s % MINUTE);
    else if (s < DAY)
        snprintf(buf, 32, "%lu:%02lu:%02lu", s / HOUR, s % HOUR / MINUTE, s % MINUTE);
    else
        snprintf(buf, 32, "%lud %02luh", s / DAY, s % DAY / HOUR);
    return buf;
}

/* Is a loss of balance part of the loss? */
static bool has_balance_loss(const struct mics_step_record *record)
{
    const struct mics_balance *balance = &record->model->config.balance;

    return balance->kind != MICS_BALANCE_NONE || balance->z_coefficient > 0;
}

void mics_run_text_step_header(FILE *out, const struct mics_step_record *record)
{
    fprintf(out, "%8s %7s %9s %9s %9s %9s %9s %8s", "step", "epoch", "loss", "lr", "grad norm",
            "ms", "tokens/s", "left");
    if (record->router)
        fprintf(out, " %7s %7s", "load", "entropy");
    if (record->router && record->model->config.expert_capacity > 0)
        fprintf(out, " %7s", "dropped");
    if (record->router && has_balance_loss(record))
        fprintf(out, " %9s %9s", "aux loss", "z-loss");
    putc('\n', out);
}

void mics_run_text_step(FILE *out, const struct mics_step_record *record, double epoch,
                        double remaining_s)
{
    char remaining[32];

    fprintf(out, "%8" PRIu64 " %7.3f %9.4f %9.2e %9.4f %9.1f %9.0f %8s", record->step, epoch,
            record->loss, record->lr, record->grad_norm, 1e3 * record->seconds,
            record->tokens_per_s, format_remaining(remaining_s, remaining));
    if (record->router)
        fprintf(out, " %7.2f %7.3f", record->router->load, record->router->entropy);
    if (record->router && record->model->config.expert_capacity > 0)
        fprintf(out, " %5.1f %%", 100 * record->router->dropped);
    if (record->router && has_balance_loss(record))
        fprintf(out, " %9.5f %9.5f", record->router->aux_loss, record->router->z_loss);
    putc('\n', out);
    fflush(out);
}

/* Are there steps without the second hop of all units? */
static bool is_rarer(const struct mics_plan_choice *choice)
{
    return mics_choice_interval(choice) > 1 || choice->outer_steps > 0;
}

static void print_traffic(FILE *out, const struct mics_run *run)
{
    const double per_step_and_node =
        (double)run->totals.net_bytes / (double)run->totals.steps / run->options.world->node_count;
    char buf[2][32];

    if (run->totals.net_bytes > 0)
        fprintf(out, "sent between nodes: %s in total, %s per step and node\n",
                mics_format_bytes(run->totals.net_bytes, buf[0], sizeof buf[0]),
                mics_format_bytes((uint64_t)per_step_and_node, buf[1], sizeof buf[1]));
    if (run->totals.sync_bytes > 0)
        fprintf(out, "sent in second hops: %s in total; exact ones%s would send %s\n",
                mics_format_bytes(run->totals.sync_bytes, buf[0], sizeof buf[0]),
                is_rarer(&run->options.plan->choice) ? " in every step" : "",
                mics_format_bytes(run->totals.exact_sync_bytes, buf[1], sizeof buf[1]));
}

static void print_cpu(FILE *out, const struct mics_comm_cpu *sum, double steps)
{
    fprintf(out,
            "CPU time of communication per step: %.1f ms (own code %.1f, MPI %.1f, kernel %.1f)\n",
            1e3 * (sum->own_s + sum->mpi_s + sum->kernel_s) / steps, 1e3 * sum->own_s / steps,
            1e3 * sum->mpi_s / steps, 1e3 * sum->kernel_s / steps);
}

void mics_run_text_end(FILE *out, const struct mics_run *run, bool verbose)
{
    const struct mics_step_record *sum = &run->totals.sum;
    const double steps = (double)run->totals.steps;
    const uint64_t recent = mics_min_u64(run->totals.steps, MICS_RUN_RECENT_STEPS);

    putc('\n', out);
    if (run->totals.steps == 0) {
        fprintf(out, "no steps left to train\n");
    } else {
        fprintf(out, "%" PRIu64 " steps in %.1f s; mean loss of the last %" PRIu64 ": %.4f\n",
                run->totals.steps, sum->seconds, recent, mics_run_recent_loss(run));
        fprintf(out,
                "communication per step: %.1f ms exposed, %.1f ms hidden; computation: %.1f ms\n",
                1e3 * sum->exposed_s / steps, 1e3 * (sum->comm_s - sum->exposed_s) / steps,
                1e3 * sum->compute_s / steps);
        if (verbose && run->options.world->size > 1)
            print_cpu(out, &sum->cpu, steps);
        print_traffic(out, run);
    }
    if (run->totals.nonfinite > 0)
        fprintf(out, "skipped, because they were not finite: %" PRIu64 " steps\n",
                run->totals.nonfinite);
    if (!run->options.paced) {
        const char *path = run->disk.last[0] ? run->disk.last : "none";

        fputs("checkpoint: ", out);
        mics_utf8_put(out, path, strlen(path));
        fputc('\n', out);
    }
    fflush(out);
}
