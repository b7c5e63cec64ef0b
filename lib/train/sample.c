/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sample.h"

#include "base/cgroup.h"
#include "base/num.h"
#include "base/units.h"
#include "base/utf8.h"
#include "host/pool.h"
#include "sample/texts.h"
#include "sample/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 opens. */
struct sample {
    struct mics_tokenizer *bytes; /* where the job has no tokenizer */
    struct mics_pool *pool;
    struct mics_generator *generator;
    struct mics_sampler *sampler;
    uint32_t prompt; /* one token */
    bool begun;
    char *text;
};

/* Bytes that processes may still take; UINT64_MAX: unknown. */
static uint64_t memory_left(void)
{
    unsigned long long kib = UINT64_MAX >> 10;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");

    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
        continue;
    if (file)
        fclose(file);
    return mics_min_u64(kib << 10, mics_cgroup_memory_left_here());
}

/* Does rank 0 have the memory? The same answer on all ranks. */
static enum mics_status check_memory(const struct mics_job *job, char note[256], bool *out,
                                     struct mics_err *err)
{
    const uint64_t bytes = job->plan->model->param_count * sizeof(float), left = memory_left();
    int fits = bytes <= left / 2;
    char need[32], have[32];

    if (!fits && job->world->rank == 0)
        snprintf(note, 256,
                 "no sample: the parameters take %s in fp32, more than half of the %s of memory "
                 "that are left; use mics-sample",
                 mics_format_bytes(bytes, need, sizeof need),
                 mics_format_bytes(left, have, sizeof have));
    enum mics_status status = mics_comm_broadcast_now(job->control, &fits, sizeof fits, 0, err);
    *out = fits;
    return status;
}

static enum mics_status collect_params(const struct mics_job *job, float **params,
                                       struct mics_err *err)
{
    for (uint32_t i = 0; i < job->plan->model->unit_count; i++) {
        enum mics_status status =
            mics_engine_collect_unit(job->engine, i, params ? params[i] : NULL, err);

        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

/* What a document begins with, once. */
static enum mics_status next(void *context, const uint32_t **ids, size_t *count,
                             struct mics_err *err)
{
    struct sample *sample = context;

    (void)err;
    *ids = &sample->prompt;
    *count = !sample->begun;
    sample->begun = true;
    return MICS_OK;
}

static enum mics_status done(void *context, const struct mics_text_result *result,
                             struct mics_err *err)
{
    struct sample *sample = context;

    sample->text = malloc(result->size + 1);
    if (!sample->text)
        return mics_err_nomem(err);
    if (result->size > 0)
        memcpy(sample->text, result->text, result->size);
    mics_utf8_make_printable(sample->text, result->size);
    sample->text[result->size] = '\0';
    return MICS_OK;
}

static enum mics_status run_sample(struct sample *sample, const struct mics_job *job,
                                   float *const *params, uint32_t characters, double temperature,
                                   struct mics_err *err)
{
    const struct mics_model *model = job->plan->model;
    const struct mics_tokenizer *tokenizer = job->tokenizer.tokenizer;
    const struct mics_sampler_options draws = {
        .temperature = temperature, .top_p = 1, .seed = job->settings.seed};
    enum mics_status status = MICS_OK;
    struct mics_texts_times times;

    if (!tokenizer) {
        status = mics_tokenizer_open_bytes(&sample->bytes, err);
        tokenizer = sample->bytes;
    }
    if (status != MICS_OK)
        return status;
    const uint32_t begin = mics_tokenizer_begin(tokenizer), end = mics_tokenizer_end(tokenizer);
    const uint64_t drawn = mics_min_u64(mics_tokenizer_size(tokenizer), model->config.vocab_size);

    sample->prompt = begin != MICS_NO_TOKEN ? begin : end != MICS_NO_TOKEN ? end : 0;
    status = mics_sampler_new(&draws, (uint32_t)drawn, &sample->sampler, err);
    if (status != MICS_OK)
        return status;
    sample->pool = mics_pool_new(job->threads);
    if (!sample->pool)
        return mics_err_nomem(err);
    status = mics_generator_new(
        &(struct mics_generator_options){
            .model = model, .params = params, .sequences = 1, .pool = sample->pool},
        &sample->generator, err);
    if (status != MICS_OK)
        return status;
    return mics_texts_run(&(struct mics_texts_options){.generator = sample->generator,
                                                       .sequences = 1,
                                                       .logits_size = model->config.vocab_size,
                                                       .sampler = sample->sampler,
                                                       .tokenizer = tokenizer,
                                                       .ends = &end,
                                                       .end_count = end != MICS_NO_TOKEN,
                                                       .max_tokens = characters,
                                                       .max_characters = characters,
                                                       .context_tokens = job->plan->choice.seq,
                                                       .next = next,
                                                       .done = done,
                                                       .context = sample},
                          &times, err);
}

enum mics_status mics_sample_generate(const struct mics_job *job, uint32_t characters,
                                      double temperature, char **text, char note[256],
                                      struct mics_err *err)
{
    struct sample sample = {.text = NULL};
    float **params = NULL;
    bool fits = false;
    enum mics_status status;

    *text = NULL;
    note[0] = '\0';
    if (job->masking.ordinary_count > 0) { /* of a model that continues no text */
        snprintf(note, 256,
                 "no sample: the model predicts masked tokens; mics-sample --fill shows "
                 "what it has learned");
        return MICS_OK;
    }
    status = check_memory(job, note, &fits, err);
    if (status != MICS_OK || !fits)
        return status;
    if (job->world->rank == 0)
        status = mics_params_new(job->plan->model, &params, err);
    if (status == MICS_OK)
        status = collect_params(job, params, err);
    if (status == MICS_OK && params)
        status = run_sample(&sample, job, params, characters, temperature, err);
    *text = sample.text;
    mics_generator_free(sample.generator);
    mics_sampler_free(sample.sampler);
    mics_pool_free(sample.pool);
    mics_tokenizer_free(sample.bytes);
    mics_params_free(job->plan->model, params);
    return status;
}
