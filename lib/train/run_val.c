/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/num.h"
#include "train/run_internal.h"

enum mics_status mics_run_validate(struct mics_run *run, enum mics_status *told,
                                   struct mics_err *err)
{
    const struct mics_run_options *options = &run->options;
    const struct mics_run_observer *observer = &options->observer;
    struct mics_run_batch batch = mics_run_batch(run);
    const uint64_t at_once = (uint64_t)batch.world_size * batch.micro_batch;
    double begin = mics_now_s(), loss = 0, targets = 0;

    batch.total = mics_min_u64(options->settings->val_batches * run->global_batch,
                               options->data->val_windows);
    for (; batch.first < batch.total; batch.first += at_once) {
        double part = 0, count = 0;
        enum mics_status status =
            mics_engine_eval(options->engine, mics_run_fill_val, &batch, &part, &count, err);

        if (status != MICS_OK)
            return mics_run_alone(run, status);
        loss += part;
        targets += count;
    }
    if (batch.total > 0 && options->world->rank == 0 && observer->val)
        *told = observer->val(observer->context, run->step, loss / targets, targets,
                              mics_now_s() - begin, err);
    return MICS_OK;
}
