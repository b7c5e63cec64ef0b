/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_print.c - executor "print": a schedule as a table for people and scripts. */
#include "plan/schedule/schedule.h"

#include "base/units.h"

#include <errno.h>

/* "3 17-" : waits for operation 3 of this step and operation 17 of the step before. */
static void print_deps(const struct mics_schedule *schedule, uint32_t index, FILE *out)
{
    const struct mics_op *op = &schedule->ops[index];

    for (uint32_t i = 0; i < op->dep_count; i++) {
        uint32_t dep = schedule->deps[op->dep_begin + i];

        fprintf(out, "%s%u%s", i ? " " : "", dep, dep >= index ? "-" : "");
    }
    fputc('\n', out);
}

static void print_slot(char letter, uint32_t slot, FILE *out)
{
    if (slot == MICS_NONE)
        fputs("  - ", out);
    else
        fprintf(out, " %c%-2u", letter, slot);
}

static void print_op(const struct mics_schedule *schedule, const struct mics_model *model,
                     uint32_t index, FILE *out)
{
    const struct mics_op *op = &schedule->ops[index];
    const char *unit = op->unit == MICS_NONE ? "-" : model->units[op->unit].name;
    const char *comm = mics_op_is_comm(op->kind) ? mics_comm_kind_name(op->comm) : "-";
    char amount[32];

    if (mics_op_is_comm(op->kind))
        mics_format_bytes(op->bytes, amount, sizeof amount);
    else
        mics_format_count(op->flops, amount, sizeof amount);
    fprintf(out, "%5u  %-11s %-11s %-11s %-8s %4u %3u", index, mics_op_kind_name(op->kind),
            mics_stream_kind_name(op->stream), comm, unit, op->micro_step, op->segment);
    print_slot('p', op->param_slot, out);
    print_slot('g', op->grad_slot, out);
    fprintf(out, " %10s%s  ", amount, op->joins ? "+" : mics_op_is_comm(op->kind) ? " " : "*");
    print_deps(schedule, index, out);
}

enum mics_status mics_schedule_print(const struct mics_schedule *schedule,
                                     const struct mics_model *model, FILE *out,
                                     struct mics_err *err)
{
    fprintf(out, "%5s  %-11s %-11s %-11s %-8s %4s %3s %-8s %10s   %s\n", "op", "does", "stream",
            "comm", "unit", "step", "seg", " slots", "size/flop*",
            "waits for (-: step before); +: together with the next");
    for (uint32_t i = 0; i < schedule->op_count; i++)
        print_op(schedule, model, i, out);
    if (ferror(out))
        return mics_err_set_errno(err, "writing the schedule");
    return MICS_OK;
}
