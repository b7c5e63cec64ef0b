/* SPDX-License-Identifier: Apache-2.0 */
#include "train/job_folder.h"

#include "comm/agree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum mics_status mics_job_name_folder(struct mics_job *job, struct mics_err *err)
{
    enum mics_status status = mics_path_format(job->out, err, "%s", job->options->out);
    size_t length = strlen(job->out);

    while (length > 1 && job->out[length - 1] == '/')
        job->out[--length] = '\0';
    return status;
}

enum mics_status mics_job_check_shape(const struct mics_job *job, struct mics_err *err)
{
    const struct mics_shape *shape = &job->plan->choice.shape;
    const struct mics_world *world = job->world;
    const uint32_t ranks = shape->nodes * shape->per_node;
    char here[64];

    if (mics_world_is_even(world) && world->node_count == shape->nodes &&
        world->local_size == shape->per_node)
        return MICS_OK;
    if (mics_world_is_even(world))
        snprintf(here, sizeof here, "%u of %u", world->node_count, world->local_size);
    else
        snprintf(here, sizeof here, "%u of unequal sizes", world->node_count);
    return mics_err_set(
        err, MICS_ERR_FORMAT,
        "the plan is for %u rank%s (nodes: %u of %u), this job has %u (nodes: %s)%s", ranks,
        ranks == 1 ? "" : "s", shape->nodes, shape->per_node, world->size, here,
        job->options->plan || !job->checkpoint_doc
            ? ""
            : ": -p with a plan for them goes on from this checkpoint");
}

static enum mics_status open_folder(struct mics_job *job, const char *probe, struct mics_err *err)
{
    const bool fresh = !job->checkpoint_doc && !job->options->overwrite;
    enum mics_status status = mics_run_folder_open(job->out, &job->lock, err);
    int fd;

    if (status != MICS_OK)
        return status;
    if (fresh && mics_run_folder_has_checkpoints(job->out))
        return mics_err_set(err, MICS_ERR_IO,
                            "%s holds checkpoints already: go on with --resume, choose another "
                            "--out, or --overwrite them",
                            job->out);
    fd = open(probe, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return mics_err_set_errno(err, "%s", probe);
    close(fd);
    return MICS_OK;
}

enum mics_status mics_job_open_folder(struct mics_job *job, struct mics_err *err)
{
    const bool lead = job->world->rank == 0;
    char probe[MICS_PATH_MAX];
    enum mics_status status =
        mics_path_format(probe, err, "%s/shared.tmp.%ld", job->out, (long)getpid());

    if (lead && status == MICS_OK)
        status = open_folder(job, probe, err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK)
        status = job->control->ops->broadcast_now(job->control, probe, sizeof probe, 0, err);
    if (status == MICS_OK && access(probe, F_OK) != 0)
        status = mics_err_set(err, MICS_ERR_IO, "%s: not a folder that all nodes share", job->out);
    status = mics_agree(job->control, status, err);
    if (lead)
        unlink(probe);
    return status;
}
