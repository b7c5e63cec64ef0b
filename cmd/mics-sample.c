/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-sample - continues prompts with a model, or fills masks in them, on this host.
 *
 * This file opens model and tokenizer, reads prompts and prints texts; lib/sample generates them.
 */
#include "sample_fill.h"
#include "sample_options.h"

#include "base/utf8.h"
#include "data/disk_tokenizer.h"
#include "data/masking.h"
#include "device/device.h"
#include "doc/foreign.h"
#include "host/pool.h"
#include "model/family.h"
#include "sample/texts.h"
#include "sample/weights.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ENDS         64
#define MAX_CONFIG_BYTES (1u << 20)

/* Everything that is open. */
struct session {
    const struct sample_request *request;
    struct mics_weights weights;
    struct mics_pool *pool;
    struct mics_disk_tokenizer disk;
    struct mics_tokenizer *tokenizer; /* of `disk`; NULL with --ids */
    struct mics_encoder *encoder;
    struct mics_generator *generator;
    struct mics_sampler *sampler;
    uint32_t ends[MAX_ENDS];
    size_t end_count;
    size_t prompts; /* taken so far */
    char **texts;   /* of the prompts, if they are printed */
    char *line;     /* of standard input */
    size_t line_size;
    uint32_t *ids; /* of --ids */
    bool terminal;
};

/* The one that was asked for, else the model's own, else, of a checkpoint without one, bytes: it
 * was trained so. */
static enum mics_status open_tokenizer(struct session *session, struct mics_err *err)
{
    const char *path = session->request->tokenizer, *folder = session->weights.folder;
    struct mics_disk_tokenizer *disk = &session->disk;
    enum mics_status status = path ? mics_disk_tokenizer_open(path, disk, err)
                                   : mics_disk_tokenizer_open_model(folder, disk, err);

    if (status == MICS_OK && !disk->tokenizer && session->weights.disk.is_hf)
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "%s: has no tokenizer: name one with --tokenizer, or give and get token "
            "ids with --ids",
            folder);
    if (status == MICS_OK && !disk->tokenizer)
        status = mics_tokenizer_open_bytes(&disk->tokenizer, err);
    session->tokenizer = disk->tokenizer;
    return status;
}

static void add_end(struct session *session, uint32_t id)
{
    if (session->end_count < MAX_ENDS)
        session->ends[session->end_count++] = id;
}

/* eos_token_id of a configuration: an id, a list of ids, or null. */
static enum mics_status add_ends(struct session *session, const json_t *config, const char *name,
                                 struct mics_err *err)
{
    json_t *eos = json_object_get(config, "eos_token_id");
    const size_t count = json_is_array(eos) ? json_array_size(eos) : 1;

    if (!eos || json_is_null(eos))
        return MICS_OK;
    if (count > MAX_ENDS)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: eos_token_id: more than %d ids", name,
                            MAX_ENDS);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;

        if (!json_is_integer(id) || json_integer_value(id) > UINT32_MAX)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "%s: eos_token_id: expected an id, or a list of ids", name);
        if (json_integer_value(id) >= 0)
            add_end(session, (uint32_t)json_integer_value(id));
    }
    return MICS_OK;
}

/* The ends that the model's files say, as transformers takes them: those of generation_config.json
 * alone where there is one, else those of config.json. */
static enum mics_status add_model_ends(struct session *session, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    bool exists = false;
    json_t *config = NULL;
    enum mics_status status =
        mics_path_format(path, err, "%s/generation_config.json", session->weights.folder);

    if (status != MICS_OK)
        return status;
    status = mics_file_exists(path, &exists, err);
    if (status != MICS_OK)
        return status;
    if (!exists)
        return add_ends(session, session->weights.model->source, "config.json", err);
    status = mics_foreign_read_file(path, MAX_CONFIG_BYTES, MAX_CONFIG_BYTES, &config, err);
    if (status == MICS_OK)
        status = add_ends(session, config, path, err);
    json_decref(config);
    return status;
}

/* The token that --end-token names. */
static enum mics_status add_named_end(struct session *session, struct mics_err *err)
{
    const char *token = session->request->end_token;
    uint32_t id = MICS_NO_TOKEN;
    enum mics_status status = session->tokenizer
                                  ? mics_tokenizer_set_end(session->tokenizer, token, err)
                                  : mics_parse_token_id(token, &id, err);

    if (status != MICS_OK)
        return status;
    add_end(session, session->tokenizer ? mics_tokenizer_end(session->tokenizer) : id);
    return status;
}

/* The tokens that end a text: --end-token, what the model's files say, what ended the documents
 * that a checkpoint was trained on; else the tokenizer's end of documents. */
static enum mics_status find_ends(struct session *session, struct mics_err *err)
{
    const bool is_checkpoint = !session->weights.disk.is_hf && !session->request->tokenizer;
    enum mics_status status = MICS_OK;

    if (session->request->ignore_end)
        return MICS_OK;
    if (session->request->end_token)
        status = add_named_end(session, err);
    if (status == MICS_OK)
        status = add_model_ends(session, err);
    if (status != MICS_OK || !session->tokenizer || (session->end_count > 0 && !is_checkpoint))
        return status;
    if (session->end_count == 0)
        status = mics_tokenizer_need_end(session->tokenizer, err);
    if (mics_tokenizer_end(session->tokenizer) != MICS_NO_TOKEN)
        add_end(session, mics_tokenizer_end(session->tokenizer));
    return status;
}

/* Tokens that may be drawn: rows of the vocabulary that only pad it stand for no text. */
static uint32_t drawn_vocab(const struct session *session)
{
    const uint32_t vocab = session->weights.model->config.vocab_size;
    const uint32_t size = session->tokenizer ? mics_tokenizer_size(session->tokenizer) : vocab;

    return size < vocab ? size : vocab;
}

/* Does the model do what is asked for? */
static enum mics_status check_model(const struct session *session, struct mics_err *err)
{
    const bool fills = session->weights.model->family->bidirectional;

    if (fills && session->request->fill == 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "%s: the model predicts masked tokens and continues no text: --fill=5 "
                            "prints the likeliest tokens of each mask",
                            session->request->model);
    if (!fills && session->request->fill > 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "%s: the model continues text and fills no masks: leave out --fill",
                            session->request->model);
    return MICS_OK;
}

static enum mics_status open_session(struct session *session, struct mics_err *err)
{
    const struct sample_request *request = session->request;
    const unsigned threads = mics_threads_per_rank(1);
    enum mics_status status = mics_weights_load(request->model, &session->weights, err);

    if (session->weights.note[0])
        cli_warn("%s", session->weights.note);
    if (status == MICS_OK)
        status = check_model(session, err);
    if (status == MICS_OK && threads == 0)
        status = mics_err_set(err, MICS_ERR_ARG, "MICS_THREADS: expected a number from 1 to %d",
                              MICS_THREADS_MAX);
    if (status == MICS_OK && !request->ids)
        status = open_tokenizer(session, err);
    if (status == MICS_OK && session->tokenizer)
        status = mics_encoder_new(session->tokenizer, &session->encoder, err);
    if (status == MICS_OK && request->fill == 0)
        status = find_ends(session, err);
    if (status != MICS_OK)
        return status;
    session->pool = mics_pool_new(threads);
    if (!session->pool)
        return mics_err_nomem(err);
    if (request->fill > 0)
        return MICS_OK;
    status = mics_sampler_new(&request->sampler, drawn_vocab(session), &session->sampler, err);
    if (status != MICS_OK)
        return status;
    return mics_generator_new(&(struct mics_generator_options){.model = session->weights.model,
                                                               .params = session->weights.params,
                                                               .sequences = request->batch,
                                                               .pool = session->pool},
                              &session->generator, err);
}

static void close_session(struct session *session)
{
    mics_generator_free(session->generator);
    mics_sampler_free(session->sampler);
    mics_pool_free(session->pool);
    mics_encoder_free(session->encoder);
    mics_disk_tokenizer_close(&session->disk);
    mics_weights_free(&session->weights);
    for (size_t i = 0; session->texts && i < session->prompts; i++)
        free(session->texts[i]);
    free(session->texts);
    free(session->line);
    free(session->ids);
}

/*
 * Prompts.
 */

/* The next prompt, or NULL: of the command line, else a line of standard input. */
static enum mics_status next_prompt(struct session *session, const char **text, size_t *size,
                                    struct mics_err *err)
{
    const struct sample_request *request = session->request;
    ssize_t length;

    *text = NULL;
    if (request->prompt_count > 0) {
        if (session->prompts < request->prompt_count)
            *text = request->prompts[session->prompts];
        *size = *text ? strlen(*text) : 0;
        return MICS_OK;
    }
    errno = 0;
    length = getline(&session->line, &session->line_size, stdin);
    if (length < 0)
        return ferror(stdin) || errno == ENOMEM ? mics_err_set_errno(err, "standard input")
                                                : MICS_OK;
    if (length > 0 && session->line[length - 1] == '\n')
        length--;
    *text = session->line;
    *size = (size_t)length;
    return MICS_OK;
}

/* Numbers with blanks between. */
static enum mics_status parse_ids(struct session *session, const char *text, size_t size,
                                  const uint32_t **ids, size_t *count, struct mics_err *err)
{
    uint32_t *grown = realloc(session->ids, (size / 2 + 1) * sizeof *grown);

    if (!grown)
        return mics_err_nomem(err);
    session->ids = grown;
    *count = 0;
    for (size_t i = 0; i < size;) {
        uint64_t id = 0;

        if (text[i] == ' ' || text[i] == '\t' || text[i] == '\r') {
            i++;
            continue;
        }
        if (text[i] < '0' || text[i] > '9')
            return mics_err_set(err, MICS_ERR_FORMAT, "prompt %zu: '%.*s' is not a token id",
                                session->prompts + 1, (int)strcspn(text + i, " \t\r\n"), text + i);
        for (; i < size && text[i] >= '0' && text[i] <= '9'; i++)
            id = id < UINT32_MAX ? 10 * id + (uint64_t)(text[i] - '0') : id;
        session->ids[(*count)++] = id < INT32_MAX ? (uint32_t)id : INT32_MAX;
    }
    *ids = session->ids;
    return MICS_OK;
}

/* Text becomes ids; where it has none, it begins as a document does. */
static enum mics_status encode(struct session *session, const char *text, size_t size,
                               const uint32_t **ids, size_t *count, struct mics_err *err)
{
    const int special = session->request->special ? MICS_TOKENIZER_SPECIAL : 0;
    enum mics_status status = mics_encode(session->encoder, text, size,
                                          MICS_TOKENIZER_TEMPLATE | special, ids, count, NULL, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "prompt %zu", session->prompts + 1);
    if (status != MICS_OK || *count > 0)
        return status;
    session->ids = session->ids ? session->ids : malloc(sizeof *session->ids);
    if (!session->ids)
        return mics_err_nomem(err);
    session->ids[0] = mics_tokenizer_end(session->tokenizer);
    *ids = session->ids;
    *count = session->ids[0] != MICS_NO_TOKEN;
    return MICS_OK;
}

/* Keep the text of a prompt that will be printed. */
static enum mics_status keep_prompt(struct session *session, const char *text, size_t size,
                                    struct mics_err *err)
{
    char **grown = realloc(session->texts, (session->prompts + 1) * sizeof *grown);

    if (!grown)
        return mics_err_nomem(err);
    session->texts = grown;
    session->texts[session->prompts] = strndup(text, size);
    return session->texts[session->prompts] ? MICS_OK : mics_err_nomem(err);
}

static enum mics_status next(void *context, const uint32_t **ids, size_t *count,
                             struct mics_err *err)
{
    struct session *session = context;
    const struct sample_request *request = session->request;
    const char *text;
    size_t size = 0;
    enum mics_status status = next_prompt(session, &text, &size, err);

    *count = 0;
    if (status != MICS_OK || !text)
        return status;
    if (request->ids)
        status = parse_ids(session, text, size, ids, count, err);
    else
        status = encode(session, text, size, ids, count, err);
    if (status == MICS_OK && *count == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "prompt %zu: is empty", session->prompts + 1);
    if (status == MICS_OK && (request->echo || request->json))
        status = keep_prompt(session, text, size, err);
    session->prompts += status == MICS_OK;
    return status;
}

/*
 * Texts.
 */

/* On a terminal without what could control it. */
static enum mics_status print(const struct session *session, const char *text, size_t size,
                              struct mics_err *err)
{
    char *copy = NULL;
    bool written;

    if (session->terminal) {
        copy = malloc(size + 1);
        if (!copy)
            return mics_err_nomem(err);
        memcpy(copy, text, size);
        mics_utf8_make_printable(copy, size);
    }
    written = fwrite(copy ? copy : text, 1, size, stdout) == size && fflush(stdout) == 0;
    free(copy);
    return written ? MICS_OK : mics_err_set_errno(err, "standard output");
}

static enum mics_status more(void *context, uint64_t number, const char *text, size_t size,
                             struct mics_err *err)
{
    struct session *session = context;
    char **prompt = session->request->echo ? &session->texts[number] : NULL;
    enum mics_status status = MICS_OK;

    if (session->request->json)
        return MICS_OK;
    if (prompt && *prompt) {
        status = print(session, *prompt, strlen(*prompt), err);
        if (status == MICS_OK && session->request->ids)
            status = print(session, " ", 1, err);
        free(*prompt);
        *prompt = NULL;
    }
    return status == MICS_OK ? print(session, text, size, err) : status;
}

static enum mics_status print_json(const struct session *session,
                                   const struct mics_text_result *result, struct mics_err *err)
{
    json_t *ids = json_array(), *line;
    int failed = 0;

    for (size_t i = 0; i < result->count; i++)
        failed |= json_array_append_new(ids, json_integer(result->ids[i]));
    line = json_pack("{s:s,s:s%,s:o,s:s}", "prompt", session->texts[result->number], "text",
                     result->text ? result->text : "", result->size, "ids", ids, "end",
                     mics_text_end_name(result->end));
    if (!line || failed) {
        json_decref(line);
        return mics_err_set(err, MICS_ERR_FORMAT, "prompt %llu: is not UTF-8",
                            (unsigned long long)result->number + 1);
    }
    failed = json_dumpf(line, stdout, JSON_COMPACT) != 0;
    json_decref(line);
    return failed ? mics_err_set_errno(err, "standard output") : print(session, "\n", 1, err);
}

static enum mics_status done(void *context, const struct mics_text_result *result,
                             struct mics_err *err)
{
    struct session *session = context;

    cli_note(1, "prompt %llu: %zu tokens (%s)", (unsigned long long)result->number + 1,
             result->count, mics_text_end_name(result->end));
    if (session->request->json)
        return print_json(session, result, err);
    if (result->size == 0) { /* there was no more: perhaps the prompt itself is still to come */
        enum mics_status status = more(session, result->number, "", 0, err);

        if (status != MICS_OK)
            return status;
    }
    return print(session, "\n", 1, err);
}

/* Every prompt with its masks. */
static enum mics_status fill_prompts(struct session *session, struct mics_err *err)
{
    const struct sample_request *request = session->request;
    struct sample_fill fill = {.weights = &session->weights,
                               .tokenizer = session->tokenizer,
                               .pool = session->pool,
                               .mask = mics_tokenizer_mask(session->tokenizer),
                               .vocab = drawn_vocab(session),
                               .json = request->json};
    enum mics_status status = MICS_OK;
    const char *text = NULL;
    size_t size = 0;

    fill.count = request->fill < fill.vocab ? request->fill : fill.vocab;
    if (fill.mask == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: the tokenizer has neither [MASK] nor <mask>",
                            request->model);
    for (;;) {
        const uint32_t *ids;
        size_t count;

        status = next_prompt(session, &text, &size, err);
        if (status != MICS_OK || !text)
            return status;
        status =
            mics_encode(session->encoder, text, size,
                        MICS_TOKENIZER_TEMPLATE | MICS_TOKENIZER_SPECIAL, &ids, &count, NULL, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "prompt %zu", session->prompts + 1);
        else
            status =
                sample_fill_print(&fill, session->prompts + 1, text, size, ids, count, stdout, err);
        if (status != MICS_OK)
            return status;
        session->prompts++;
    }
}

static int run(const struct sample_request *request)
{
    struct session session = {.request = request, .terminal = isatty(STDOUT_FILENO)};
    struct mics_texts_times times = {0};
    struct mics_err err = {""};
    enum mics_status status = open_session(&session, &err);

    if (status == MICS_OK && request->fill > 0)
        status = fill_prompts(&session, &err);
    else if (status == MICS_OK)
        status = mics_texts_run(
            &(struct mics_texts_options){.generator = session.generator,
                                         .sequences = request->batch,
                                         .logits_size = session.weights.model->config.vocab_size,
                                         .sampler = session.sampler,
                                         .tokenizer = session.tokenizer,
                                         .keep_special = request->special,
                                         .ends = session.ends,
                                         .end_count = session.end_count,
                                         .stops = request->stops,
                                         .stop_count = request->stop_count,
                                         .max_tokens = (uint32_t)request->max_tokens,
                                         .next = next,
                                         .more = more,
                                         .done = done,
                                         .context = &session},
            &times, &err);
    if (status == MICS_OK && times.tokens > 0)
        cli_note(1, "prompts: %llu tokens in %.3g s; then %llu tokens in %.3g s, %.4g tokens/s",
                 (unsigned long long)times.prompt_tokens, times.prompt_s,
                 (unsigned long long)times.tokens, times.s, (double)times.tokens / times.s);
    close_session(&session);
    return cli_report(status, &err);
}

int main(int argc, char **argv)
{
    struct sample_request request = {
        .sampler = {.temperature = 0.8, .top_p = 1, .seed = 1},
        .max_tokens = 256,
        .batch = 1,
    };
    int code;

    cli_init(&sample_program);
    code = sample_parse(argc, argv, &request);
    if (code < 0)
        code = run(&request);
    return cli_finish(code);
}
