/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_options.h"

#include "model/generate.h"

#define MAX_TOKENS 10000000

enum { ID_PROMPT = 256, ID_STOP };

static const struct cli_option options[] = {
    {ID_PROMPT, "prompt", "TEXT", "text to continue (default: each line of standard input)",
     CLI_TO_HANDLER},
    {0, "max-tokens", "N", "tokens to generate at most (default: 256)",
     CLI_TO_U64(struct sample_request, max_tokens, 1, MAX_TOKENS)},
    {0, "temperature", "X", "0: always the most likely token (default: 0.8)",
     CLI_TO_DOUBLE(struct sample_request, sampler.temperature, 0, 100)},
    {0, "top-k", "N", "draw from the N most likely tokens; 0: all (default: 0)",
     CLI_TO_U32(struct sample_request, sampler.top_k, 0, UINT32_MAX)},
    {0, "top-p", "X", "draw from the most likely tokens of this probability (default: 1)",
     CLI_TO_DOUBLE(struct sample_request, sampler.top_p, 1e-9, 1)},
    {0, "seed", "N", "seed of the draws (default: 1)",
     CLI_TO_U64(struct sample_request, sampler.seed, 0, UINT64_MAX)},
    {ID_STOP, "stop", "TEXT", "end the text before this text; may be given several times",
     CLI_TO_HANDLER},
    {0, "end-token", "TEXT|ID", "end texts at this token (default: as the files say)",
     CLI_TO_TEXT(struct sample_request, end_token)},
    {0, "ignore-end", NULL, "do not end at a token that ends texts",
     CLI_TO_TRUE(struct sample_request, ignore_end)},
    {0, "fill", "N", "print the N likeliest tokens of each mask in the prompts, of an encoder",
     CLI_TO_U32(struct sample_request, fill, 1, 10000)},
    {0, "batch", "N", "prompts to work on at a time, up to 16 (default: 1)",
     CLI_TO_U32(struct sample_request, batch, 1, MICS_GENERATE_ROWS)},
    {0, "tokenizer", "PATH|bytes", "tokenizer's file or folder (default: the model's)",
     CLI_TO_TEXT(struct sample_request, tokenizer)},
    {0, "special", NULL, "take special tokens in prompts as such, and print them",
     CLI_TO_TRUE(struct sample_request, special)},
    {0, "ids", NULL, "prompts and texts are token ids, with blanks between",
     CLI_TO_TRUE(struct sample_request, ids)},
    {0, "echo", NULL, "print the prompt before the text", CLI_TO_TRUE(struct sample_request, echo)},
    {0, "json", NULL, "print a JSON object with prompt, text, ids and end on each line",
     CLI_TO_TRUE(struct sample_request, json)},
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

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct sample_request *request = context;

    if (option->id == ID_PROMPT)
        return take_text(request->prompts, &request->prompt_count, SAMPLE_MAX_PROMPTS, value, err);
    if (!*value)
        return mics_err_set(err, MICS_ERR_ARG, "the text is empty");
    return take_text(request->stops, &request->stop_count, SAMPLE_MAX_STOPS, value, err);
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
    if (request->fill > 0 && (request->ids || request->echo))
        return cli_usage("--fill goes without %s", request->ids ? "--ids" : "--echo");
    if (request->echo && request->json)
        return cli_usage("--json has the prompt already: it goes without --echo");
    request->model = argv[operands];
    return -1;
}
