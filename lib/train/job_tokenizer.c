/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_tokenizer.c - which tokenizer a job has, and whether it is that of what the job continues.
 *
 * Text has the tokenizer of the command line, or that of the checkpoint to resume or of the model
 * to evaluate, or bytes; files of tokens have what their data set says, which may be nothing. A
 * checkpoint is resumed only with the tokenizer that it was trained with, and a model begins or is
 * evaluated only with one whose ids are the same text, unless bytes are insisted on. Where the data
 * do not say, it is that of the checkpoint or of the model.
 */
#include "train/job_tokenizer.h"

#include "comm/agree.h"

#include <string.h>

enum mics_status mics_job_open_tokenizer(struct mics_job *job, struct mics_err *err)
{
    const struct mics_job_options *options = job->options;
    enum mics_status status = MICS_OK;

    if (options->tokenizer)
        status = mics_disk_tokenizer_open(options->tokenizer, &job->tokenizer, err);
    else if (job->checkpoint_doc)
        status = mics_disk_tokenizer_open_checkpoint(job->checkpoint_doc, job->checkpoint,
                                                     &job->tokenizer, err);
    else if (options->eval)
        status = mics_disk_tokenizer_open_model(options->init, &job->tokenizer, err);
    if (status == MICS_OK && options->end_token && job->tokenizer.tokenizer)
        status = mics_tokenizer_set_end(job->tokenizer.tokenizer, options->end_token, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "tokenizer");
    return mics_agree(job->control, status, err);
}

static bool has_text(const struct mics_data *data)
{
    for (size_t i = 0; i < data->source_count; i++)
        if (data->sources[i].content != MICS_CONTENT_TOKENS)
            return true;
    return data->val && has_text(data->val);
}

/* Two tokenizers in a message: "a.json, 400 ids" and "bytes". */
struct titles {
    char theirs[128], ours[128];
};

static struct titles make_titles(const struct mics_disk_tokenizer *theirs,
                                 const struct mics_disk_tokenizer *ours)
{
    struct titles titles = {.theirs = ""};

    mics_tokenizer_title(theirs->tokenizer, titles.theirs, sizeof titles.theirs);
    mics_tokenizer_title(ours->tokenizer, titles.ours, sizeof titles.ours);
    return titles;
}

/* Without one of its own the job gets the other tokenizer; of the same tokenizer it gets the files
 * that other programs read. */
static enum mics_status adopt(struct mics_job *job, struct mics_disk_tokenizer *theirs,
                              struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!job->tokenizer.tokenizer) {
        job->tokenizer = *theirs;
        *theirs = (struct mics_disk_tokenizer){0};
        return MICS_OK;
    }
    for (size_t i = 0; status == MICS_OK && i < theirs->files.count; i++)
        status = mics_tokenizer_files_add(&job->tokenizer.files, theirs->files.items[i].name,
                                          theirs->files.items[i].bytes, theirs->files.items[i].size,
                                          err);
    return status;
}

static bool is_same(const struct mics_disk_tokenizer *a, const struct mics_disk_tokenizer *b)
{
    return mics_tokenizer_fingerprint(a->tokenizer) == mics_tokenizer_fingerprint(b->tokenizer);
}

/* What has the job's tokenizer, for messages about a data set that has another. */
static const char *owner_of(const struct mics_job *job)
{
    if (job->options->tokenizer)
        return "--tokenizer";
    if (job->checkpoint_doc)
        return job->checkpoint;
    return job->options->eval ? job->options->init : "the rest of the data";
}

/* Let a data set's tokenizer be the job's; or its ids must be those of the job's. */
static enum mics_status match_dataset(struct mics_job *job, const char *path, const json_t *listed,
                                      const char *folder, struct mics_err *err)
{
    struct mics_disk_tokenizer theirs = {0};
    enum mics_status status;
    bool same = true;

    if (job->tokenizer.tokenizer && mics_tokenizer_is_listed(job->tokenizer.tokenizer, listed))
        return MICS_OK; /* one of many files */
    status = mics_disk_tokenizer_open_listed(listed, folder, NULL, &theirs, err);
    if (status == MICS_OK && !job->tokenizer.tokenizer)
        status = adopt(job, &theirs, err);
    else if (status == MICS_OK && theirs.tokenizer)
        status = mics_tokenizers_agree(job->tokenizer.tokenizer, theirs.tokenizer, &same, err);
    if (status == MICS_OK && !same) {
        const struct titles titles = make_titles(&theirs, &job->tokenizer);

        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "%s: encoded with another tokenizer (%s) than %s (%s)", path,
                              titles.theirs, owner_of(job), titles.ours);
    }
    mics_disk_tokenizer_close(&theirs);
    return status;
}

/* The data sets among the data, where they say what tokenizer they have. */
static enum mics_status match_datasets(struct mics_job *job, const struct mics_data *data,
                                       struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    char folder[MICS_PATH_MAX];

    for (size_t i = 0; i < data->source_count; i++) {
        const struct mics_source *source = &data->sources[i];

        if (source->content != MICS_CONTENT_TOKENS)
            continue;
        for (size_t j = 0; status == MICS_OK && j < source->corpus.count; j++) {
            const char *path = source->corpus.documents[j].path;
            json_t *listed = NULL;

            status = mics_dataset_read_tokenizer(path, folder, &listed, err);
            if (status == MICS_OK && listed)
                status = match_dataset(job, path, listed, folder, err);
            json_decref(listed);
        }
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "data");
    return status == MICS_OK && data->val ? match_datasets(job, data->val, err) : status;
}

/* The checkpoint to resume. Those of before tokenizers do not say with which they were made. */
static enum mics_status match_checkpoint(struct mics_job *job, struct mics_err *err)
{
    const json_t *listed = json_object_get(job->checkpoint_doc, "tokenizer");
    struct mics_disk_tokenizer theirs = {0};
    enum mics_status status =
        mics_disk_tokenizer_open_checkpoint(job->checkpoint_doc, job->checkpoint, &theirs, err);

    if (status == MICS_OK && theirs.tokenizer && job->tokenizer.tokenizer &&
        !mics_tokenizer_is_listed(job->tokenizer.tokenizer, listed)) {
        const struct titles titles = make_titles(&theirs, &job->tokenizer);

        status =
            mics_err_set(err, MICS_ERR_FORMAT,
                         "%s: trained with another tokenizer (%s; now %s): --tokenizer=%s has "
                         "that one",
                         job->checkpoint, titles.theirs, titles.ours,
                         mics_tokenizer_is_bytes(theirs.tokenizer) ? "bytes" : job->checkpoint);
    }
    if (status == MICS_OK && theirs.tokenizer)
        status = adopt(job, &theirs, err);
    mics_disk_tokenizer_close(&theirs);
    return status;
}

static enum mics_status match_ids(const struct mics_job *job,
                                  const struct mics_disk_tokenizer *theirs, struct mics_err *err)
{
    const char *path = job->options->init;
    const struct titles titles = make_titles(theirs, &job->tokenizer);
    bool same = false;
    enum mics_status status =
        mics_tokenizers_agree(job->tokenizer.tokenizer, theirs->tokenizer, &same, err);

    if (status != MICS_OK || same)
        return status;
    if (mics_tokenizer_is_bytes(job->tokenizer.tokenizer))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "--init=%s: the model has a tokenizer (%s), and the data would be "
                            "bytes: --tokenizer=%s takes the model's, --tokenizer=bytes insists",
                            path, titles.theirs, path);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "--init=%s: the model has another tokenizer (%s) than the data (%s)", path,
                        titles.theirs, titles.ours);
}

/* The model to begin with. */
static enum mics_status match_model(struct mics_job *job, struct mics_err *err)
{
    const char *insisted = job->options->tokenizer;
    struct mics_disk_tokenizer theirs = {0};
    enum mics_status status;

    if (insisted && strcmp(insisted, "bytes") == 0)
        return MICS_OK;
    status = mics_disk_tokenizer_open_model(job->options->init, &theirs, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "--init");
    if (status == MICS_OK && theirs.tokenizer) {
        if (!job->tokenizer.tokenizer || is_same(&job->tokenizer, &theirs))
            status = adopt(job, &theirs, err);
        else
            status = match_ids(job, &theirs, err);
    }
    mics_disk_tokenizer_close(&theirs);
    return status;
}

/* --end-token also counts for a tokenizer that data or model have brought. */
static enum mics_status insist_on_end(struct mics_job *job, struct mics_err *err)
{
    const char *token = job->options->end_token;
    uint32_t id;

    return job->tokenizer.tokenizer ? mics_tokenizer_set_end(job->tokenizer.tokenizer, token, err)
                                    : mics_parse_token_id(token, &id, err);
}

static enum mics_status match_all(struct mics_job *job, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!job->tokenizer.tokenizer && has_text(&job->data))
        status = mics_disk_tokenizer_open("bytes", &job->tokenizer, err);
    if (status == MICS_OK)
        status = match_datasets(job, &job->data, err);
    if (status == MICS_OK && job->checkpoint_doc)
        status = match_checkpoint(job, err);
    else if (status == MICS_OK && job->options->init)
        status = match_model(job, err);
    if (status == MICS_OK && job->options->end_token)
        status = insist_on_end(job, err);
    return status == MICS_OK
               ? mics_disk_tokenizer_to_json(&job->tokenizer, &job->tokenizer_doc, err)
               : status;
}

enum mics_status mics_job_match_tokenizer(struct mics_job *job, struct mics_err *err)
{
    return mics_agree(job->control, match_all(job, err), err);
}
