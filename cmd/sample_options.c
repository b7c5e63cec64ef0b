/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_options.h"

#include "base/units.h"
#include "model/generate.h"

#define MAX_TOKENS 10000000

enum {
    ID_PROMPT = 256,
    ID_MAX_TOKENS,
    ID_TEMPERATURE,
    ID_TOP_K,
    ID_TOP_P,
    ID_SEED,
    ID_STOP,
    ID_END_TOKEN,
    ID_IGNORE_END,
    ID_BATCH,
    ID_TOKENIZER,
    ID_SPECIAL,
    ID_IDS,
    ID_ECHO,
    ID_JSON,
};

static const struct cli_option options[] = {
    {ID_PROMPT, "prompt", "TEXT", "text to continue (default: each line of standard input)"},
    {ID_MAX_TOKENS, "max-tokens", "N", "tokens to generate at most (default: 256)"},
    {ID_TEMPERATURE, "temperature", "X", "0: always the most likely token (default: 0.8)"},
    {ID_TOP_K, "top-k", "N", "draw from the N most likely tokens; 0: all (default: 0)"},
    {ID_TOP_P, "top-p", "X", "draw from the most likely tokens of this probability (default: 1)"},
    {ID_SEED, "seed", "N", "seed of the draws (default: 1)"},
    {ID_STOP, "stop", "TEXT", "end the text before this text; may be given several times"},
    {ID_END_TOKEN, "end-token", "TEXT|ID", "end texts at this token (default: as the files say)"},
    {ID_IGNORE_END, "ignore-end", NULL, "do not end at a token that ends texts"},
    {ID_BATCH, "batch", "N", "prompts to work on at a time, up to 16 (default: 1)"},
    {ID_TOKENIZER, "tokenizer", "PATH|bytes", "tokenizer's file or folder (default: the model's)"},
    {ID_SPECIAL, "special", NULL, "take special tokens in prompts as such, and print them"},
    {ID_IDS, "ids", NULL, "prompts and texts are token ids, with blanks between"},
    {ID_ECHO, "echo", NULL, "print the prompt before the text"},
    {ID_JSON, "json", NULL, "print a JSON object with prompt, text, ids and end on each line"},
};

const struct cli_program sample_program = {
    .name = "mics-sample",
    .synopsis = "[options] MODEL",
    .summary = "Continue prompts with a model: a checkpoint or a Hugging Face folder.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_VERBOSE,
};

static enum mics_status take_text(const char **list, size_t *count, size_t most, const char *value,
                                  struct mics_err *err)
{
    if (*count == most)
        return mics_err_set(err, MICS_ERR_ARG, "more than %zu times", most);
    list[(*count)++] = value;
    return MICS_OK;
}

static enum mics_status take_count(const char *value, uint64_t min, uint64_t max, uint32_t *out,
                                   struct mics_err *err)
{
    uint64_t count = 0;
    enum mics_status status = mics_parse_u64(value, min, max, &count, err);

    if (status == MICS_OK)
        *out = (uint32_t)count;
    return status;
}

static enum mics_status handle(void *context, int id, const char *value, struct mics_err *err)
{
    struct sample_request *request = context;

    switch (id) {
    case ID_PROMPT:
        return take_text(request->prompts, &request->prompt_count, SAMPLE_MAX_PROMPTS, value, err);
    case ID_STOP:
        if (!*value)
            return mics_err_set(err, MICS_ERR_ARG, "the text is empty");
        return take_text(request->stops, &request->stop_count, SAMPLE_MAX_STOPS, value, err);
    case ID_MAX_TOKENS:
        return mics_parse_u64(value, 1, MAX_TOKENS, &request->max_tokens, err);
    case ID_TEMPERATURE:
        return mics_parse_double(value, 0, 100, &request->sampler.temperature, err);
    case ID_TOP_K:
        return take_count(value, 0, UINT32_MAX, &request->sampler.top_k, err);
    case ID_TOP_P:
        return mics_parse_double(value, 1e-9, 1, &request->sampler.top_p, err);
    case ID_SEED:
        return mics_parse_u64(value, 0, UINT64_MAX, &request->sampler.seed, err);
    case ID_BATCH:
        return take_count(value, 1, MICS_GENERATE_ROWS, &request->batch, err);
    case ID_TOKENIZER:
        request->tokenizer = value;
        return MICS_OK;
    case ID_END_TOKEN:
        request->end_token = value;
        return MICS_OK;
    case ID_IGNORE_END:
        request->ignore_end = true;
        return MICS_OK;
    case ID_SPECIAL:
        request->special = true;
        return MICS_OK;
    case ID_IDS:
        request->ids = true;
        return MICS_OK;
    case ID_ECHO:
        request->echo = true;
        return MICS_OK;
    case ID_JSON:
        request->json = true;
        return MICS_OK;
    }
    return MICS_OK;
}

int sample_parse(int argc, char **argv, struct sample_request *request)
{
    int operands = 0;
    int code = cli_parse(argc, argv, &request->common, handle, request, &operands);

    if (code >= 0)
        return code;
    if (operands == argc)
        return cli_usage("a model is missing: a checkpoint or a Hugging Face folder");
    if (operands + 1 < argc)
        return cli_usage("'%s': one model is expected", argv[operands + 1]);
    if (request->ids && (request->tokenizer || request->special))
        return cli_usage("--ids goes without %s", request->tokenizer ? "--tokenizer" : "--special");
    if (request->ignore_end && request->end_token)
        return cli_usage("--end-token goes without --ignore-end");
    if (request->echo && request->json)
        return cli_usage("--json has the prompt already: it goes without --echo");
    request->model = argv[operands];
    return -1;
}
