/* SPDX-License-Identifier: Apache-2.0 */
#include "train/job_pace.h"

#include "comm/agree.h"
#include "doc/doc.h"
#include "plan/schedule/timeline.h"

/* Rank 0 reads the plan whose pace is kept, for all. */
static enum mics_status read_pace_plan(struct mics_job *job, struct mics_plan **out,
                                       struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = MICS_OK;

    if (job->world->rank == 0)
        status = mics_doc_read_file(job->options->pace, &doc, err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK)
        status = mics_broadcast_doc(job->control, &doc, err);
    if (status == MICS_OK)
        status = mics_plan_from_doc(doc, out, err);
    if (status != MICS_OK && job->world->rank == 0 && doc)
        mics_err_prefix(err, "%s", job->options->pace);
    json_decref(doc);
    return status;
}

enum mics_status mics_job_open_pace(struct mics_job *job, struct mics_err *err)
{
    struct mics_plan *other = NULL;
    enum mics_status status = MICS_OK;

    if (!job->options->paced)
        return MICS_OK;
    if (job->options->pace)
        status = read_pace_plan(job, &other, err);
    if (status == MICS_OK) {
        status = mics_op_durations_new(job->plan, other ? other : job->plan, &job->pace, err);
        if (status != MICS_OK && other)
            mics_err_prefix(err, "%s", job->options->pace);
    }
    mics_plan_free(other);
    return mics_agree(job->control, status, err);
}
