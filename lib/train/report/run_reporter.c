/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/run_reporter.h"

#include "base/units.h"
#include "train/report/events.h"
#include "train/report/report.h"

#include <inttypes.h>

static enum mics_status flushed(const struct mics_desk *desk, struct mics_err *err)
{
    if (desk->out && (fflush(desk->out) != 0 || ferror(desk->out)))
        return mics_err_set_errno(err, "standard output");
    return MICS_OK;
}

static enum mics_status on_step(void *context, const struct mics_step_record *record,
                                struct mics_err *err)
{
    struct mics_desk *desk = context;
    const bool edge = record->step == desk->run->base_step + 1 ||
                      record->step == desk->run->options.settings->steps;
    enum mics_status status = mics_metrics_step(desk->metrics, record, err);

    if (status != MICS_OK || !desk->out || (!edge && record->step % desk->log_every != 0))
        return status;
    mics_report_step(desk->out, record, !desk->named);
    desk->named = true;
    return flushed(desk, err);
}

static enum mics_status on_val(void *context, uint64_t step, double loss, double tokens,
                               double seconds, struct mics_err *err)
{
    struct mics_desk *desk = context;
    enum mics_status status =
        mics_metrics_event(desk->metrics, mics_event_val(step, loss, tokens, seconds), err);

    if (status != MICS_OK || !desk->out)
        return status;
    fprintf(desk->out, "%8" PRIu64 " validation loss %.4f\n", step, loss);
    return flushed(desk, err);
}

static enum mics_status on_saved(void *context, uint64_t step, const struct mics_saved *saved,
                                 double seconds, struct mics_err *err)
{
    struct mics_desk *desk = context;
    enum mics_status status =
        mics_metrics_event(desk->metrics, mics_event_checkpoint(step, saved, seconds), err);
    char size[32];

    if (status != MICS_OK || !desk->out)
        return status;
    fprintf(desk->out, "%8" PRIu64 " saved %s, %s\n", step, saved->path,
            mics_format_bytes(saved->bytes, size, sizeof size));
    return flushed(desk, err);
}

struct mics_run_observer mics_desk_observer(struct mics_desk *desk)
{
    return (struct mics_run_observer){
        .step = on_step, .val = on_val, .saved = on_saved, .context = desk};
}

enum mics_status mics_desk_open(struct mics_desk *desk, const struct mics_job *job,
                                const char *metrics, struct mics_err *err)
{
    enum mics_status status =
        mics_metrics_open(metrics, job->checkpoint_doc != NULL, &desk->metrics, err);

    if (status == MICS_OK)
        status = mics_metrics_event(desk->metrics, mics_event_run(job, desk->run), err);
    if (status == MICS_OK && desk->out)
        status = mics_report_begin(desk->out, desk->run, job->device, job->comm, job->threads, err);
    return status == MICS_OK ? flushed(desk, err) : status;
}

enum mics_status mics_desk_end(struct mics_desk *desk, enum mics_run_end end, struct mics_err *err)
{
    const char *reason = end == MICS_RUN_DONE ? "done" : "stopped";
    enum mics_status status =
        mics_metrics_event(desk->metrics, mics_event_end(desk->run, reason), err);

    if (status == MICS_OK && desk->out)
        mics_report_end(desk->out, desk->run);
    return status == MICS_OK ? flushed(desk, err) : status;
}

enum mics_status mics_desk_close(struct mics_desk *desk, struct mics_err *err)
{
    struct mics_metrics *metrics = desk->metrics;

    desk->metrics = NULL;
    return mics_metrics_close(metrics, err);
}
