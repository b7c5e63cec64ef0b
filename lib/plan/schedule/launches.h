/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launches.h - what the operations of a schedule launch on a device.
 *
 * The stages are asked themselves: their forward and backward enqueue on a stream that only
 * records. What the engine launches around them (lib/engine/issue.c, executor.c) is listed here; a
 * test compares the list with what the engine really launches.
 */
#ifndef MICS_PLAN_SCHEDULE_LAUNCHES_H
#define MICS_PLAN_SCHEDULE_LAUNCHES_H

#include "device/recorder.h"
#include "plan/schedule/schedule.h"

/* The launches of one stage: of its forward, or of its backward pass. The forward of the head
 * includes its backward if the batch trains. `first`: of struct mics_pass, without what
 * mics_zero_launches() lists. The addresses of arguments are made up, but NULL,
 * aligned and equal where those of a real step are. */
void mics_stage_launches(const struct mics_model *model, const struct mics_batch *batch,
                         uint32_t stage, bool backward, bool first, struct mics_recorder *to);
/* Those of a phase of a stage to whose experts tokens travel. */
void mics_phase_launches(const struct mics_model *model, const struct mics_batch *batch,
                         const struct mics_op *op, struct mics_recorder *to);
/* What ranks exchange after the phase, in the round and the direction of `op`, one operation each:
 * exchanges[MICS_PASS_EXCHANGES_MAX] have `from`, `to` and `active` of a pass without memory.
 * Returns how many. */
uint32_t mics_phase_exchanges(const struct mics_model *model, const struct mics_plan_choice *choice,
                              bool train, const struct mics_op *op,
                              struct mics_pass_exchange *exchanges);

/* What precedes the first backward pass of a unit: what that adds to, of its buffer of gradients,
 * is zeroed. */
void mics_zero_launches(const struct mics_plan_choice *choice, const struct mics_unit *unit,
                        const struct mics_layout *layout, struct mics_recorder *to);

/* How blocks of gradients are rounded stochastically: by draws of this seed and step. */
struct mics_rounding {
    bool stochastic;
    uint64_t seed;
    uint32_t step;
};

/* The data of an ACCUMULATE or CONVERT on one rank. */
struct mics_conversion {
    void *to;
    const void *from;
    uint64_t count; /* of the result */
    /* To blocks, where `rounding` is stochastic: which of the arrays that are added anywhere this
     * one is, and the element number of the first in its unit. */
    uint32_t replica;
    uint64_t first;
    struct mics_rounding rounding;
};

/* Launch a conversion of a unit of this layout, as an ACCUMULATE or CONVERT says; the engine does
 * it by this function, too. */
void mics_conversion_launch(struct mics_stream *stream, const struct mics_op *op,
                            const struct mics_layout *layout,
                            const struct mics_conversion *conversion);

/* All launches of an operation on rank 0, which is in the first replica. */
void mics_op_launches(const struct mics_model *model, const struct mics_plan_choice *choice,
                      const struct mics_op *op, bool train, struct mics_recorder *to);

/* Set the FLOPs and bytes of memory of every operation of computation to the sums of its launches.
 */
void mics_schedule_set_work(struct mics_schedule *schedule, const struct mics_model *model,
                            const struct mics_plan_choice *choice);

/* The nearest stage before `stage` that launches the same, whatever the batch; `stage` itself if
 * there is none. */
uint32_t mics_stage_alike_before(const struct mics_model *model, uint32_t stage);

#endif
