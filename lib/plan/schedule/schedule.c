/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - what describes a schedule: names, counted bytes, and the printed table. */
#include "plan/schedule/schedule.h"

#include "base/units.h"
#include "comm/comm.h"

#include <stdlib.h>

const char *mics_op_subject(const struct mics_op *op, const struct mics_model *model, char *text,
                            size_t size)
{
    if (op->unit != MICS_NONE)
        return model->units[op->unit].name;
    if (op->stage == MICS_NONE)
        return "";
    snprintf(text, size, "block %u part %u", model->stages[op->stage].layer,
             model->stages[op->stage].part);
    return text;
}

void mics_schedule_free(struct mics_schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->ops);
    free(schedule->deps);
    free(schedule->layouts);
    free(schedule->turns);
    free(schedule->param_slot_count);
    free(schedule->param_slot_offset);
    free(schedule->grad_slot_count);
    free(schedule->grad_slot_offset);
    free(schedule);
}

/* All-gather, reduce-scatter and all-to-all have equal pieces: a rank sends all but one. In
 * the two communicators that all-reduce (world, replica), the rank's index is its block. */
static uint64_t sent_by(const struct mics_op *op, const struct mics_group_position *position)
{
    if (op->collective == MICS_ALL_REDUCE)
        return mics_comm_all_reduce_sent((int)position->size, (int)position->block, op->count,
                                         op->from.dtype);
    return op->bytes / position->size * (position->size - 1);
}

void mics_schedule_counts(const struct mics_schedule *schedule,
                          const struct mics_plan_choice *choice, uint32_t rank,
                          uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT],
                          uint64_t sent_bytes[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT])
{
    struct mics_group_position positions[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];

    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        for (int comm = 0; comm < MICS_COMM_KIND_COUNT; comm++) {
            mics_shape_position(&choice->shapes[groups], (enum mics_comm_kind)comm, rank,
                                &positions[groups][comm]);
            calls[groups][comm] = sent_bytes[groups][comm] = 0;
        }
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];
        const struct mics_group_position *position = &positions[op->groups][op->comm];

        if (!mics_op_is_comm(op->kind) || position->size == 1)
            continue;
        const uint32_t times = mics_op_times(op, schedule);

        calls[op->groups][op->comm] += times;
        if (!op->surplus)
            sent_bytes[op->groups][op->comm] += times * sent_by(op, position);
    }
}

uint64_t mics_schedule_sync_bytes(const struct mics_schedule *schedule,
                                  const struct mics_plan_choice *choice, uint32_t rank,
                                  uint32_t turn)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];
        struct mics_group_position position;

        if (!mics_op_is_comm(op->kind) || mics_op_is_idle(op, turn) ||
            (op->comm != MICS_COMM_SCATTER && op->comm != MICS_COMM_REPLICA))
            continue;
        mics_shape_position(&choice->shapes[op->groups], op->comm, rank, &position);
        if (position.size > 1)
            bytes += sent_by(op, &position);
    }
    return bytes;
}

enum mics_status mics_schedule_exact_sync_bytes(const struct mics_model *model,
                                                const struct mics_plan_choice *choice,
                                                uint32_t rank, uint64_t *out, struct mics_err *err)
{
    const struct mics_plan_choice in_blocks = mics_choice_warmup(choice);
    const struct mics_plan_choice exact = mics_choice_exact(&in_blocks);
    struct mics_schedule *schedule = NULL;
    const enum mics_status status = mics_schedule_new(model, &exact, true, &schedule, err);

    if (status != MICS_OK)
        return status;
    *out = mics_schedule_sync_bytes(schedule, &exact, rank, 0);
    mics_schedule_free(schedule);
    return MICS_OK;
}

/* "3 17-": waits for operation 3 of this step and operation 17 of the previous step. */
static void print_deps(const struct mics_schedule *schedule, uint32_t index, FILE *out)
{
    const struct mics_op *op = &schedule->ops[index];

    for (uint32_t i = 0; i < op->dep_count; i++) {
        const uint32_t dep = schedule->deps[op->dep_begin + i];

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

/* In which steps the operation does something, unless it does in all. */
static void print_turn(const struct mics_schedule *schedule, const struct mics_op *op, FILE *out)
{
    if (op->turn == MICS_TURN_WARMUP)
        fputs("warmup  ", out);
    else if (schedule->interval > 1 && op->turn != MICS_NONE)
        fprintf(out, "turn %u  ", op->turn);
}

static void print_op(const struct mics_schedule *schedule, const struct mics_model *model,
                     uint32_t index, FILE *out)
{
    const struct mics_op *op = &schedule->ops[index];
    const bool is_hop = mics_op_is_comm(op->kind) || op->kind == MICS_OP_CONVERT;
    const uint32_t part = op->phase == MICS_PHASE_ALL ? op->segment : op->round;
    char amount[32], text[32];
    const char *subject = mics_op_subject(op, model, text, sizeof text);

    if (is_hop)
        mics_format_bytes(op->bytes, amount, sizeof amount);
    else
        mics_format_count(op->flops, amount, sizeof amount);
    fprintf(out, "%5u  %-16s %-11s %-11s %-8s %4u %3u", index, mics_op_kind_name(op->kind),
            mics_stream_kind_name(op->stream), is_hop ? mics_comm_kind_name(op->comm) : "-",
            *subject ? subject : "-", op->micro_step, part);
    print_slot('p', op->param_slot, out);
    print_slot('g', op->grad_slot, out);
    fprintf(out, " %10s%s  ", amount, op->coalesce_next ? "+" : is_hop ? " " : "*");
    print_turn(schedule, op, out);
    print_deps(schedule, index, out);
}

enum mics_status mics_schedule_print(const struct mics_schedule *schedule,
                                     const struct mics_model *model, FILE *out,
                                     struct mics_err *err)
{
    fprintf(out, "%5s  %-16s %-11s %-11s %-8s %4s %3s %-8s %10s   %s\n", "op", "does", "stream",
            "comm", "unit", "step", "seg", " slots", "size/flop*",
            "waits for (-: step before); +: together with the next");
    for (uint32_t i = 0; i < schedule->op_count; i++)
        print_op(schedule, model, i, out);
    if (ferror(out))
        return mics_err_set_errno(err, "writing the schedule");
    return MICS_OK;
}
