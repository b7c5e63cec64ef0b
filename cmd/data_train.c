/* SPDX-License-Identifier: Apache-2.0 */
#include "data_train.h"

#include "base/file_set.h"
#include "cli/cli.h"
#include "data/tokenizer/train.h"

#include <inttypes.h>

static enum mics_status write_file(const char *path, const struct mics_tokenizer_file *file,
                                   struct mics_err *err)
{
    struct mics_file_writer *writer;
    const enum mics_status status = mics_file_create(path, &writer, err);

    if (status != MICS_OK)
        return status;
    fwrite(file->bytes, 1, file->size, mics_file_stream(writer));
    return mics_file_commit(writer, err);
}

static enum mics_status check_outputs(const char *folder, const struct mics_corpus *corpus,
                                      struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    char path[MICS_PATH_MAX];

    for (int i = 0; i < MICS_TRAINED_FILES && status == MICS_OK; i++) {
        status = mics_path_format(path, err, "%s/%s", folder, mics_trained_names[i]);
        if (status == MICS_OK)
            status = mics_corpus_check_output(corpus, path, err);
    }
    return status;
}

/* tokenizer.json is the last, so that it is there only if all are. */
static enum mics_status
write_files(const char *folder, const struct mics_trained_tokenizer *trained, struct mics_err *err)
{
    struct mics_file_set *set = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_file_make_folders(folder, err);

    if (status != MICS_OK)
        goto out;
    status = mics_path_format(path, err, "%s/" MICS_TRAINED_SET, folder);
    if (status != MICS_OK)
        goto out;
    status = mics_file_set_begin(path, &set, err);
    if (status != MICS_OK)
        goto out;
    for (int i = MICS_TRAINED_FILES - 1; i >= 0 && status == MICS_OK; i--) {
        status = mics_file_set_add(set, trained->files[i].name, path, err);
        if (status == MICS_OK)
            status = write_file(path, &trained->files[i], err);
    }
    if (status != MICS_OK)
        goto out;
    status = mics_file_set_commit(set, err);
out:
    mics_file_set_free(set);
    return status;
}

static void report(const struct data_train_request *request, uint64_t asked,
                   const struct mics_trained_tokenizer *trained)
{
    cli_note(0, "%s: %" PRIu32 " tokens, each of %.2f bytes of this text on average",
             request->folder, trained->vocab_size,
             (double)trained->bytes / (double)trained->tokens);
    cli_note(1, "%" PRIu64 " bytes, %" PRIu64 " different pieces", trained->bytes, trained->pieces);
    if (trained->vocab_size < asked)
        cli_warn("the text is too small for %" PRIu64 " tokens", asked);
}

/* A tokenizer of JSON lines would learn their quotes and names. */
static enum mics_status refuse_lines(const struct mics_corpus *corpus, struct mics_err *err)
{
    for (size_t i = 0; i < corpus->count && !corpus->binary; i++)
        if (corpus->documents[i].format.content == MICS_CONTENT_LINES)
            return mics_err_set(
                err, MICS_ERR_FORMAT,
                "'%s' has JSON lines, of which train would learn quotes and names, "
                "too: jq -r .text makes text of them; --binary takes them as they are",
                corpus->documents[i].path);
    return MICS_OK;
}

enum mics_status data_train(const struct data_train_request *request, struct mics_err *err)
{
    const uint64_t asked = request->vocab_size ? request->vocab_size : DATA_TRAIN_VOCAB_SIZE;
    const struct mics_tokenizer_train_options options = {
        .vocab_size = (uint32_t)asked,
        .min_count = request->min_count ? request->min_count : DATA_TRAIN_MIN_COUNT,
        .progress = request->progress,
        .progress_context = request->progress_context,
    };
    struct mics_trained_tokenizer trained = {.bytes = 0};
    struct mics_corpus corpus = {.count = 0};
    enum mics_status status =
        mics_corpus_find(request->patterns, request->pattern_count, request->binary, &corpus, err);

    if (status == MICS_OK)
        status = refuse_lines(&corpus, err);
    if (status == MICS_OK)
        status = check_outputs(request->folder, &corpus, err);
    if (status == MICS_OK)
        status = mics_corpus_map(&corpus, err);

    if (status == MICS_OK)
        status = mics_tokenizer_train(&corpus, &options, &trained, err);
    if (request->clear_progress)
        request->clear_progress(request->progress_context);
    if (status == MICS_OK)
        status = write_files(request->folder, &trained, err);
    if (status == MICS_OK)
        report(request, asked, &trained);
    mics_trained_tokenizer_free(&trained);
    mics_corpus_close(&corpus);
    return status;
}
