/* SPDX-License-Identifier: Apache-2.0 */
/* run_batch.c - which sequences a rank works on. */
#include "data/order.h"
#include "train/run_internal.h"

#include <string.h>

struct mics_run_batch mics_run_batch(const struct mics_run *run)
{
    const struct mics_plan_choice *choice = &run->options.plan->choice;

    return (struct mics_run_batch){.data = run->options.data,
                                   .rank = run->options.world->rank,
                                   .world_size = run->options.world->size,
                                   .micro_batch = choice->micro_batch,
                                   .seq = choice->seq};
}

void mics_run_fill_train(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct mics_run_batch *batch = context;

    for (uint32_t row = 0; row < batch->micro_batch; row++) {
        uint64_t place =
            mics_order_place(micro_step, batch->world_size, batch->rank, batch->micro_batch, row);
        size_t at = (size_t)row * batch->seq;

        mics_data_train(batch->data, batch->first + place, tokens + at, targets + at);
    }
}

/* Place i of `total` is window floor(i * windows / total); places past the end are masked. */
void mics_run_fill_val(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct mics_run_batch *batch = context;

    for (uint32_t row = 0; row < batch->micro_batch; row++) {
        uint64_t place = batch->first + mics_order_place(micro_step, batch->world_size, batch->rank,
                                                         batch->micro_batch, row);
        size_t at = (size_t)row * batch->seq;

        if (place < batch->total) {
            uint64_t window = place * batch->data->val_windows / batch->total;

            mics_data_val(batch->data, window, tokens + at, targets + at);
        } else {
            memset(tokens + at, 0, batch->seq * sizeof *tokens);
            memset(targets + at, 0xff, batch->seq * sizeof *targets); /* -1 each */
        }
    }
}
