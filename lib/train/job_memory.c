/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_memory.c - the life of a job's state in memory.
 *
 * Only rank 0 reads and writes the record, in the folder of the run; the others get it from there.
 * Each start takes a new stamp. The record names it before the first state of this start is kept,
 * together with the generation that the start continues, which stays until then.
 */
#include "train/job_memory.h"

#include "ckpt/tokenizer_files.h"
#include "comm/agree.h"
#include "plan/memory_ckpt_cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_lead(const struct mics_job *job)
{
    return job->world->local_rank == 0;
}

static struct mics_memory_node node_of(const struct mics_job *job)
{
    return (struct mics_memory_node){.folder = job->memory.folder,
                                     .node = job->world->node,
                                     .node_count = job->world->node_count,
                                     .local_rank = job->world->local_rank,
                                     .local_size = job->world->local_size};
}

/* Nodes that are declared share a machine, so their folders have numbers. */
static enum mics_status name_node_folder(struct mics_job *job, struct mics_err *err)
{
    return mics_memory_ckpt_folder(MICS_MEMORY_CKPT_ROOT, job->memory.record.id,
                                   job->world->declared ? (int)job->world->node : -1,
                                   job->memory.folder, err);
}

/* Rank 0's record, on all ranks. A damaged one counts as none. */
static enum mics_status read_record(struct mics_job *job, struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    struct {
        struct mics_memory_ckpt_record record;
        bool found;
    } shared = {.found = false};
    struct mics_err why = {""};
    enum mics_status status;

    if (job->world->rank == 0 &&
        mics_memory_ckpt_record_read(job->out, &shared.record, &shared.found, &why) != MICS_OK)
        snprintf(memory->note[0], sizeof memory->note[0], "%.400s", why.text);
    else if (job->world->rank == 0 && !shared.found && shared.record.id != 0)
        snprintf(memory->note[0], sizeof memory->note[0],
                 "%.400s: not continued from memory, where the state is of another folder",
                 job->out);
    status = mics_comm_broadcast_now(job->control, &shared, sizeof shared, 0, err);
    memory->record = shared.record;
    memory->has_record = status == MICS_OK && shared.found;
    return status == MICS_OK && memory->has_record ? name_node_folder(job, err) : status;
}

/* The step of the newest checkpoint by its name, without opening it; path: the checkpoint. */
static bool newest_on_disk(const struct mics_job *job, char *path, uint64_t *step)
{
    char target[MICS_PATH_MAX];
    unsigned long long number = 0;
    bool found = false;
    ssize_t length;

    if (mics_checkpoint_find(job->out, true, path, &found, NULL) != MICS_OK || !found)
        return false;
    length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    const char *name = length > 0 ? target : path;
    const char *slash = strrchr(name, '/');

    found = sscanf(slash ? slash + 1 : name, "step-%llu", &number) == 1;
    *step = number;
    return found;
}

/* What is wrong with the state in memory, for the note; empty: nothing. */
static void describe_problem(const struct mics_memory_state *state, char *buf, size_t size)
{
    char damaged[64] = "";

    if (state->damaged)
        snprintf(damaged, sizeof damaged, "%s%u file%s damaged", state->why[0] ? "; " : "",
                 state->damaged, state->damaged == 1 ? " is" : "s are");
    snprintf(buf, size, "%s%s", state->why, damaged);
}

/* Take the state that was found unless that on disk is newer. The same on all ranks. */
static enum mics_status prefer_newest(struct mics_job *job, struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    struct mics_memory_state *state = &memory->state;
    char path[MICS_PATH_MAX] = "", problem[sizeof state->why + 64];
    uint64_t step = 0;
    int take = state->doc != NULL;

    if (job->world->rank == 0 && newest_on_disk(job, path, &step)) {
        snprintf(memory->disk, sizeof memory->disk, "%s", path);
        take = take && state->step >= step;
        if (state->doc && !take)
            snprintf(state->why, sizeof state->why, "that of step %llu is older",
                     (unsigned long long)state->step);
    }
    describe_problem(state, problem, sizeof problem);
    if (job->world->rank == 0 && !take)
        snprintf(memory->note[0], sizeof memory->note[0],
                 "not continued from memory (%s), but from %s", problem,
                 memory->disk[0] ? memory->disk : "the beginning");
    else if (job->world->rank == 0 && problem[0])
        snprintf(memory->note[0], sizeof memory->note[0],
                 "state in memory: %s; continuing from step %llu in memory", problem,
                 (unsigned long long)state->step);
    enum mics_status status = mics_comm_broadcast_now(job->control, &take, sizeof take, 0, err);
    if (status == MICS_OK)
        status = mics_comm_broadcast_now(job->control, memory->disk, sizeof memory->disk, 0, err);
    if (status == MICS_OK && !take)
        mics_memory_state_fini(state);
    return status;
}

enum mics_status mics_job_find_memory(struct mics_job *job, struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    const struct mics_memory_node node = node_of(job);
    enum mics_status status = read_record(job, err);

    if (status != MICS_OK || !memory->has_record)
        return status;
    status = mics_memory_find(job->control, &node, &memory->record, &memory->state, err);
    if (status == MICS_OK)
        status = prefer_newest(job, err);
    if (status != MICS_OK || !memory->state.doc)
        return status;
    job->checkpoint_doc = json_incref(memory->state.doc);
    return mics_path_format(job->checkpoint, err, "%s/" MICS_MEMORY_CKPT_RECORD, job->out);
}

enum mics_status mics_job_resume_memory(struct mics_job *job, struct mics_run *run,
                                        struct mics_err *err)
{
    const struct mics_memory_node node = node_of(job);
    const struct mics_run_memory from = {.node = &node, .state = &job->memory.state};

    run->memory.now = true;
    return mics_run_resume(run, job->memory.disk, job->checkpoint_doc, &from,
                           job->options->other_data, err);
}

/* How often and how many copies: as the command line says, else as the plan. */
static void choose_settings(struct mics_job *job)
{
    const struct mics_job_options *options = job->options;
    struct mics_job_memory *memory = &job->memory;

    memory->every =
        options->memory_every < 0 ? job->plan->memory_every : (uint64_t)options->memory_every;
    memory->copies =
        options->memory_copies < 0 ? job->plan->memory_copies : (uint32_t)options->memory_copies;
    if (memory->copies == 0)
        memory->copies = 2;
}

/* A new stamp, and the generation that this start continues. Rank 0 chooses, all have it. */
static enum mics_status take_stamp(struct mics_job *job, struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    struct mics_memory_ckpt_record *record = &memory->record;

    if (job->world->rank == 0) {
        if (!memory->has_record)
            record->id = mics_memory_ckpt_random();
        record->from_stamp = memory->state.doc ? memory->state.stamp : 0;
        record->from_step = memory->state.doc ? memory->state.step : 0;
        record->step = record->from_step;
        record->stamp = mics_memory_ckpt_random();
    }
    return mics_comm_broadcast_now(job->control, record, sizeof *record, 0, err);
}

/* Remove this node's folder and, on rank 0, the record. */
static void remove_all(struct mics_job *job)
{
    job->memory.retained = false;
    if (is_lead(job) && job->memory.folder[0])
        mics_memory_ckpt_folder_remove(job->memory.folder);
    if (job->world->rank == 0)
        mics_memory_ckpt_record_remove(job->out);
    job->memory.has_record = false;
}

/* Open this node's folder, and remove from it all but the generation that the start continues. */
static enum mics_status open_folder(struct mics_job *job, struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    enum mics_status status = name_node_folder(job, err);

    if (status == MICS_OK)
        status = mics_memory_ckpt_folder_open(memory->folder, job->world->local_rank, &memory->lock,
                                              err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK && is_lead(job))
        status = mics_memory_ckpt_prune(memory->folder, memory->record.from_stamp,
                                        memory->record.from_step, true, err);
    return mics_agree(job->control, status, err);
}

static enum mics_status open_memory_saver(struct mics_job *job, struct mics_run *run,
                                          struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    const struct mics_checkpoint checkpoint = {.comm = job->control,
                                               .host_ranks = mics_world_host_ranks(job->world),
                                               .form = &run->form,
                                               .source = mics_run_source(run)};
    const struct mics_memory_saver_options options = {
        .folder = memory->folder,
        .lead = is_lead(job),
        .copies = memory->copies,
        .stamp = memory->record.stamp,
        .generation = memory->state.doc ? 1 - memory->state.generation : 0};

    return mics_memory_saver_new(&checkpoint, &options, &memory->memory_saver, err);
}

/* The job continues from a state in memory, and none is kept from now on: until it has saved a
 * checkpoint, the state that it continued from is the only one. Remove all but that, which both the
 * record of the start before and that of this start name. */
static void retain_state(struct mics_job *job)
{
    struct mics_job_memory *memory = &job->memory;

    memory->retained = true;
    if (is_lead(job) && memory->folder[0])
        mics_memory_ckpt_prune(memory->folder, memory->state.stamp, memory->state.step, true, NULL);
}

/* The record, and the files of the tokenizer, which a start that continues from memory reads. */
static enum mics_status write_record(struct mics_job *job, struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    enum mics_status status = MICS_OK;

    if (job->world->rank == 0) {
        status = mics_memory_ckpt_record_write(job->out, &job->memory.record, err);
        if (status == MICS_OK)
            status = mics_path_format(folder, err, "%s/" MICS_MEMORY_CKPT_RECORD, job->out);
        if (status == MICS_OK)
            status = mics_tokenizer_files_write(&job->tokenizer.files, folder, err);
    }
    return mics_agree(job->control, status, err);
}

/* A new run in the folder of one that can be continued from memory: say what is lost, unless that
 * was asked for. */
static void note_removal(struct mics_job *job)
{
    const struct mics_memory_ckpt_record *record = &job->memory.record;

    if (job->world->rank == 0 && record->step > 0 && !job->checkpoint_doc &&
        !job->options->overwrite && !job->memory.note[0][0])
        snprintf(job->memory.note[0], sizeof job->memory.note[0],
                 "%.400s: a new run: removed the state of step %" PRIu64
                 " in memory, which --resume=auto continues",
                 job->out, record->step);
}

enum mics_status mics_job_open_memory(struct mics_job *job, struct mics_run *run,
                                      struct mics_err *err)
{
    struct mics_job_memory *memory = &job->memory;
    struct mics_err why = {""};
    enum mics_status status = MICS_OK;

    if (job->options->eval || job->options->paced)
        return MICS_OK;
    choose_settings(job);
    if (!memory->state.doc) /* a new run, or one that continues from disk */
        status = read_record(job, err);
    if (status == MICS_OK && memory->has_record && !memory->state.doc)
        note_removal(job);
    if (status == MICS_OK && memory->has_record && memory->every == 0 && memory->state.doc)
        retain_state(job);
    else if (status == MICS_OK && memory->has_record && memory->every == 0)
        remove_all(job);
    if (status != MICS_OK || memory->every == 0)
        return status;
    status = take_stamp(job, err);
    if (status != MICS_OK)
        return status;
    status = open_folder(job, &why);
    if (status == MICS_OK)
        status = open_memory_saver(job, run, &why);
    if (status == MICS_OK)
        status = write_record(job, &why);
    if (status == MICS_OK) {
        run->memory.saver = memory->memory_saver;
        run->memory.every = memory->every;
        run->memory.begun_step = run->step;
        run->memory.steps = MICS_KEEP_STEPS_MIN;
        run->totals.step_s = job->plan->predicted.step_s;
        run->memory.record = &memory->record;
        return MICS_OK;
    }
    mics_memory_saver_free(memory->memory_saver);
    memory->memory_saver = NULL;
    snprintf(memory->note[1], sizeof memory->note[1], "no state is kept in memory: %.400s",
             why.text);
    if (!memory->state.doc) {
        remove_all(job);
        return MICS_OK;
    }
    const size_t used = strlen(memory->note[1]);

    snprintf(memory->note[1] + used, sizeof memory->note[1] - used,
             "; that of step %" PRIu64 " stays until the run ends with a checkpoint",
             memory->state.step);
    retain_state(job);
    return MICS_OK;
}

void mics_job_remove_memory(struct mics_job *job)
{
    if (!job->memory.memory_saver && !job->memory.retained)
        return;
    mics_memory_saver_free(job->memory.memory_saver);
    job->memory.memory_saver = NULL;
    if (mics_comm_barrier_now(job->control, NULL) == MICS_OK)
        remove_all(job);
}

void mics_job_close_memory(struct mics_job *job)
{
    mics_memory_saver_free(job->memory.memory_saver);
    job->memory.memory_saver = NULL;
    mics_memory_state_fini(&job->memory.state);
    if (job->memory.lock >= 0)
        close(job->memory.lock);
}
