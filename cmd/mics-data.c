/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mics-data - text to tokens on disk: encodes text, shows files of tokens, trains tokenizers.
 *
 * encode writes PREFIX.bin, PREFIX.idx of Megatron's format, PREFIX.prompts if prompts are masked,
 * PREFIX.tokenizer with the tokenizer's files, and PREFIX.mp, the document mics.dataset, which it
 * also writes to standard output. They replace earlier ones together, when all are complete.
 */
#include "base/clock.h"
#include "base/file_set.h"
#include "base/num.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "data/dataset.h"
#include "data_train.h"
#include "doc/doc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE_TOKENS     64
#define MAX_SAMPLE_TOKENS 1000000

enum { ID_FORMAT = 256, ID_DTYPE, ID_BAD_LINES, ID_CHAT };

struct request {
    struct cli_common common;
    struct cli_progress progress;
    const char *tokenizer, *field, *end_token;
    const char *chat; /* name of a format; NULL: by the tokenizer's template, if is_chat */
    enum mics_token_format format;
    bool special, check, binary, is_chat, mask_prompt;
    uint64_t bad_lines; /* to skip at most */
    uint32_t width;     /* 0: not given */
    uint64_t at, sample, vocab, min_count;
    char **paths;
    int path_count, argc;
    char **argv;
};

static const struct cli_option options[] = {
    {'o', "output", "PATH", "encode: prefix of the files to write; train: folder of the tokenizer",
     CLI_TO_TEXT(struct request, common.output)},
    {'t', "tokenizer", "PATH", "tokenizer: a file, a model's folder, a checkpoint, or 'bytes'",
     CLI_TO_TEXT(struct request, tokenizer)},
    {ID_FORMAT, "format", "megatron|llmc", "encode: format of the tokens (default: megatron)",
     CLI_TO_HANDLER},
    {0, "field", "NAME", "encode: member of JSON lines that has the text (default: text)",
     CLI_TO_TEXT(struct request, field)},
    {0, "special", NULL, "encode: special tokens in the text are control tokens",
     CLI_TO_TRUE(struct request, special)},
    {ID_CHAT, "chat", "[NAME]",
     "encode: JSON lines are conversations, by the chat template (or as NAME does)",
     CLI_TO_HANDLER},
    {0, "mask-prompt", NULL, "encode: of conversations, learn what the assistant says only",
     CLI_TO_TRUE(struct request, mask_prompt)},
    {ID_BAD_LINES, "bad-lines", "skip:N",
     "encode: skip N damaged JSON lines at most (default: none)", CLI_TO_HANDLER},
    {0, "binary", NULL, "encode, train: take files as they are, whatever bytes they have",
     CLI_TO_TRUE(struct request, binary)},
    {0, "end-token", "TEXT|ID",
     "encode: token that ends a document (default: as the tokenizer's files say)",
     CLI_TO_TEXT(struct request, end_token)},
    {ID_DTYPE, "dtype", "u16|u32",
     "show: ids of a file without header (default: by meta.pkl, else u16)", CLI_TO_HANDLER},
    {0, "at", "N", "show: position of the sample (default: 0)",
     CLI_TO_U64(struct request, at, 0, INT64_MAX)},
    {0, "sample", "N", "show: tokens of the sample, 0 for none (default: 64)",
     CLI_TO_U64(struct request, sample, 0, MAX_SAMPLE_TOKENS)},
    {0, "check", NULL, "show: read all tokens, compare the checksum, find ids out of range",
     CLI_TO_TRUE(struct request, check)},
    {0, "vocab", "N", "train: tokens of the vocabulary (default: 32768)",
     CLI_TO_POSITIVE_COUNT(struct request, vocab)},
    {0, "min-count", "N", "train: how often a pair occurs to be merged (default: 2)",
     CLI_TO_POSITIVE_COUNT(struct request, min_count)},
};

static const struct cli_command commands[] = {
    {"encode", "encode text files and JSON lines to a file of tokens"},
    {"show", "print what a file of tokens has, and a sample"},
    {"train", "make a tokenizer from text: byte-level BPE"},
};

static const struct cli_program program = {
    .name = "mics-data",
    .synopsis = "COMMAND [options] PATH...",
    .summary = "Encode text to tokens on disk, show them, and train tokenizers.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .shared = CLI_FORMAT | CLI_VERBOSE | CLI_HISTORY,
    .commands = commands,
    .command_count = sizeof commands / sizeof *commands,
};

/* One of two words. */
static enum mics_status parse_word(const char *value, const char *first, const char *second,
                                   bool *is_second, struct mics_err *err)
{
    *is_second = strcmp(value, second) == 0;
    if (*is_second || strcmp(value, first) == 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected %s or %s", value, first, second);
}

static enum mics_status handle(void *context, const struct cli_option *option, const char *value,
                               struct mics_err *err)
{
    struct request *request = context;
    bool second = false;
    enum mics_status status;

    if (option->id == ID_CHAT) {
        request->is_chat = true;
        request->chat = value;
        return MICS_OK;
    }
    if (option->id == ID_BAD_LINES)
        return mics_bad_lines_parse(value, &request->bad_lines, err);
    if (option->id == ID_FORMAT) {
        status = parse_word(value, "megatron", "llmc", &second, err);
        request->format = second ? MICS_TOKENS_LLMC : MICS_TOKENS_MEGATRON;
        return status;
    }
    status = parse_word(value, "u16", "u32", &second, err);
    request->width = second ? 4 : 2;
    return status;
}

/* ---- encode ---- */

static enum mics_status write_doc(const char *path, const json_t *doc, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status = mics_file_create(path, &writer, err);

    if (status != MICS_OK)
        return status;
    status = mics_doc_write(mics_file_stream(writer), doc, MICS_DOC_MSGPACK, err);
    if (status == MICS_OK)
        return mics_file_commit(writer, err);
    mics_file_discard(writer);
    return status;
}

/* Damaged lines that were skipped; with -v the first few, else the first. */
static void report_bad_lines(const struct mics_bad_lines *bad)
{
    if (bad->count == 0)
        return;
    cli_warn("skipped %" PRIu64 " damaged line%s: %s", bad->count, bad->count == 1 ? "" : "s",
             bad->shown[0]);
    for (uint64_t i = 1; i < bad->count && i < MICS_BAD_LINES_SHOWN; i++)
        cli_note(1, "skipped %s", bad->shown[i]);
}

static void report_special(const struct request *request, const struct mics_encode_report *report)
{
    if (report->special > 0)
        cli_note(0,
                 "%" PRIu64 " special token%s in the text %s ordinary text; --special makes them "
                 "control tokens",
                 report->special, report->special == 1 ? "" : "s",
                 report->special == 1 ? "is" : "are");
    const double seconds = mics_now_s() - request->progress.begin_s;
    char size[32], rate[32];

    cli_note(1, "%s of text in %.1f s, %s/s", mics_format_bytes(report->bytes, size, sizeof size),
             seconds,
             mics_format_bytes((uint64_t)((double)report->bytes / seconds), rate, sizeof rate));
}

/* Ids that the tokens can have are below it. */
static uint32_t vocab_size(const struct request *request, const struct mics_tokenizer *tokenizer)
{
    return request->special || request->is_chat ? mics_tokenizer_size(tokenizer)
                                                : mics_tokenizer_text_size(tokenizer);
}

/* The tokens are on disk: write the rest. *doc is the caller's, also after an error. */
static enum mics_status describe(const struct request *request, const char *prefix,
                                 const struct mics_disk_tokenizer *tokenizer,
                                 const struct mics_corpus *corpus, const struct mics_chat *chat,
                                 const struct mics_encode_report *report, uint64_t checksum,
                                 json_t **doc, struct mics_err *err)
{
    struct mics_token_file file = {.path = NULL};
    json_t *listed = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s.mp", prefix);

    if (status != MICS_OK)
        goto out;
    status = mics_dataset_write_tokenizer(tokenizer, prefix, &listed, err);
    if (status != MICS_OK)
        goto out;
    status = mics_token_file_open(prefix, 0, &file, err);
    if (status != MICS_OK)
        goto out;
    status = mics_dataset_to_doc(&file, doc, err);
    if (status != MICS_OK)
        goto out;
    status = mics_dataset_add_source(*doc, checksum, corpus, report, chat,
                                     vocab_size(request, tokenizer->tokenizer), listed, err);
    if (status != MICS_OK)
        goto out;
    status = mics_dataset_add_files(*doc, prefix, err);
    if (status != MICS_OK)
        goto out;
    if (!request->common.no_history)
        status = mics_doc_add_history(*doc, program.name, request->argc, request->argv, err);
    if (status != MICS_OK)
        goto out;
    status = write_doc(path, *doc, err);
out:
    mics_token_file_close(&file);
    return status;
}

/* Encode to PREFIX.bin. */
static enum mics_status write_tokens(struct request *request, const char *prefix,
                                     const struct mics_tokenizer *tokenizer,
                                     struct mics_corpus *corpus, const struct mics_chat *chat,
                                     struct mics_encode_report *report, uint64_t *checksum,
                                     struct mics_err *err)
{
    const struct mics_encode_options encoding = {
        .tokenizer = tokenizer,
        .field = request->field,
        .chat = chat,
        .mask_prompt = request->mask_prompt,
        .special = request->special,
        .bad_lines = request->bad_lines,
        .progress = cli_progress_wanted() ? cli_progress_show : NULL,
        .progress_context = &request->progress};
    struct mics_token_writer *writer = NULL;
    enum mics_status status = mics_token_writer_open(prefix, request->format,
                                                     vocab_size(request, tokenizer), &writer, err);

    request->progress.begin_s = mics_now_s();
    if (status == MICS_OK && request->mask_prompt)
        status = mics_token_writer_keep_prompts(writer, err);
    if (status == MICS_OK)
        status = mics_encode_corpus(corpus, &encoding, writer, report, err);
    cli_progress_clear(&request->progress);
    if (status == MICS_OK)
        status = mics_token_writer_finish(writer, checksum, err);
    mics_token_writer_free(writer);
    return status;
}

static enum mics_status make_parent(const char *prefix, struct mics_err *err)
{
    char parent[MICS_PATH_MAX];

    mics_path_parent(prefix, parent);
    return mics_file_make_folders(parent, err);
}

/* PREFIX.prompts may be a text that somebody wrote, which must not be replaced, nor removed. */
static enum mics_status check_prompts(const char *prefix, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    bool exists = false, is = false;
    enum mics_status status = mics_path_format(path, err, "%s" MICS_PROMPTS_SUFFIX, prefix);

    if (status == MICS_OK)
        status = mics_file_exists(path, &exists, err);
    if (status == MICS_OK && exists)
        status = mics_prompts_recognize(path, &is, err);
    if (status == MICS_OK && exists && !is)
        status = mics_err_set(err, MICS_ERR_IO,
                              "'%s' is not a file that mics-data wrote: move it, or choose another "
                              "prefix",
                              path);
    return status;
}

/* What is at PREFIX must be replaceable. */
static enum mics_status check_outputs(const struct request *request, const char *prefix,
                                      const struct mics_corpus *corpus, struct mics_err *err)
{
    static const char *const suffixes[] = {".bin", ".idx", MICS_PROMPTS_SUFFIX, ".mp"};
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_token_writer_check(prefix, request->format, err);

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && status == MICS_OK; i++) {
        status = mics_path_format(path, err, "%s%s", prefix, suffixes[i]);
        if (status == MICS_OK)
            status = mics_file_check_output(path, err);
        if (status == MICS_OK)
            status = mics_corpus_check_output(corpus, path, err);
    }
    return status == MICS_OK ? check_prompts(prefix, err) : status;
}

/* Begin to replace PREFIX.*; `inside` is the prefix under which its members are written. */
static enum mics_status begin_set(const struct request *request, const char *prefix,
                                  const struct mics_corpus *corpus, struct mics_file_set **set,
                                  char inside[MICS_PATH_MAX], struct mics_err *err)
{
    static const char *const suffixes[] = {".bin", ".idx", MICS_PROMPTS_SUFFIX, ".tokenizer",
                                           ".mp"};
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    char member[MICS_PATH_MAX], path[MICS_PATH_MAX];
    enum mics_status status = check_outputs(request, prefix, corpus, err);

    if (status != MICS_OK)
        return status;
    status = mics_file_set_begin(prefix, set, err);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && status == MICS_OK; i++) {
        status = mics_path_format(member, err, "%s%s", name, suffixes[i]);
        if (status == MICS_OK)
            status = mics_file_set_add(*set, member, path, err);
    }
    if (status != MICS_OK)
        return status;
    return mics_path_format(inside, err, "%s/%s", mics_file_set_folder(*set), name);
}

/* Write PREFIX.*, and print its document. */
static enum mics_status write_set(struct request *request, const char *prefix,
                                  const struct mics_disk_tokenizer *tokenizer,
                                  struct mics_corpus *corpus, const struct mics_chat *chat,
                                  struct mics_err *err)
{
    struct cli_common common = request->common;
    struct mics_encode_report report = {.bytes = 0};
    struct mics_file_set *set = NULL;
    char inside[MICS_PATH_MAX];
    json_t *doc = NULL;
    uint64_t checksum = 0;
    enum mics_status status = begin_set(request, prefix, corpus, &set, inside, err);

    if (status == MICS_OK)
        status = write_tokens(request, inside, tokenizer->tokenizer, corpus, chat, &report,
                              &checksum, err);
    if (status == MICS_OK) {
        report_bad_lines(&report.bad_lines);
        report_special(request, &report);
        status = describe(request, inside, tokenizer, corpus, chat, &report, checksum, &doc, err);
    }
    if (status == MICS_OK)
        status = mics_file_set_commit(set, err);
    mics_file_set_free(set);
    common.output = NULL;
    common.no_history = true; /* it has it already */
    if (status == MICS_OK)
        status = cli_write_document(&common, doc, 0, NULL, mics_dataset_print, err);
    json_decref(doc);
    return status;
}

static enum mics_status open_chat(const struct request *request,
                                  const struct mics_disk_tokenizer *tokenizer,
                                  struct mics_chat **out, struct mics_err *err)
{
    const enum mics_status status =
        mics_chat_open(tokenizer->tokenizer, &tokenizer->files, request->chat, out, err);
    const char *split = status == MICS_OK ? mics_chat_split_marker(*out) : NULL;

    if (split)
        cli_warn("--chat=%s: '%s' is no token of the tokenizer: it becomes several", request->chat,
                 split);
    return status;
}

static enum mics_status encode(struct request *request, struct mics_err *err)
{
    struct mics_disk_tokenizer tokenizer = {.tokenizer = NULL};
    struct mics_corpus corpus = {.count = 0};
    struct mics_chat *chat = NULL;
    char prefix[MICS_PATH_MAX];
    enum mics_status status = mics_token_prefix(request->common.output, prefix, err);

    if (status != MICS_OK)
        goto out;
    status = mics_disk_tokenizer_open(request->tokenizer, &tokenizer, err);
    if (status != MICS_OK)
        goto out;
    if (request->end_token)
        status = mics_tokenizer_set_end(tokenizer.tokenizer, request->end_token, err);
    if (status != MICS_OK)
        goto out;
    if (request->is_chat) /* nothing is put around a conversation */
        status = open_chat(request, &tokenizer, &chat, err);
    else
        status = mics_tokenizer_need_end(tokenizer.tokenizer, err);
    if (status != MICS_OK)
        goto out;
    status = mics_corpus_find((const char *const *)request->paths, (size_t)request->path_count,
                              request->binary, &corpus, err);
    if (status != MICS_OK)
        goto out;
    status = mics_handle_sigbus(mics_corpus_find_path, &corpus, program.name, err);
    if (status != MICS_OK)
        goto out;
    status = make_parent(prefix, err);
    if (status != MICS_OK)
        goto out;
    status = write_set(request, prefix, &tokenizer, &corpus, chat, err);
out:
    mics_corpus_close(&corpus);
    mics_chat_free(chat);
    mics_disk_tokenizer_close(&tokenizer);
    return status;
}

/* ---- show ---- */

/* Text for people: what a terminal would obey, but newlines and tabs, becomes '?'. */
static void print_text(const char *text, size_t size)
{
    for (size_t i = 0, used; i < size; i += used) {
        const size_t printable = mics_utf8_printable(text + i, size - i);

        used = printable ? printable : 1;
        if (printable)
            fwrite(text + i, 1, used, stdout);
        else
            putchar(text[i] == '\n' || text[i] == '\t' ? text[i] : '?');
    }
}

static enum mics_status decode_sample(const struct mics_tokenizer *tokenizer, const int32_t *ids,
                                      uint32_t count, struct mics_err *err)
{
    struct mics_decoder *decoder = NULL;
    const char *text = NULL;
    size_t size = 0;
    enum mics_status status = mics_decoder_new(tokenizer, false, &decoder, err);

    if (status != MICS_OK)
        goto out;
    status = mics_decode(decoder, (const uint32_t *)ids, count, &text, &size, err);
    if (status != MICS_OK)
        goto out;
    print_text(text, size);
    status = mics_decode_end(decoder, &text, &size, err);
    if (status != MICS_OK)
        goto out;
    print_text(text, size);
    putchar('\n');
out:
    mics_decoder_free(decoder);
    return status;
}

/* A sample with prompts: each run of tokens on lines of its own. */
static enum mics_status decode_runs(const struct mics_tokenizer *tokenizer,
                                    const struct mics_token_file *file, uint64_t at,
                                    const int32_t *ids, uint32_t count, struct mics_err *err)
{
    uint32_t *marks = calloc(count, sizeof *marks);
    enum mics_status status = marks ? MICS_OK : mics_err_nomem(err);

    if (marks)
        mics_prompts_mark(&file->prompts, at, count, marks);
    for (uint32_t i = 0, end; i < count && status == MICS_OK; i = end) {
        for (end = i; end < count && marks[end] == marks[i];)
            end++;
        printf("%s: ", marks[i] ? "prompt" : "answer");
        status = decode_sample(tokenizer, ids + i, end - i, err);
    }
    free(marks);
    return status;
}

static enum mics_status print_sample(const struct request *request,
                                     const struct mics_token_file *file,
                                     const struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    const uint32_t vocab = tokenizer ? mics_tokenizer_size(tokenizer) : UINT32_MAX;

    if (request->sample == 0)
        return MICS_OK;
    if (request->at >= file->count)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s': there is no token %" PRIu64 " among %" PRIu64, file->path,
                            request->at, file->count);
    const uint32_t count = (uint32_t)mics_min_u64(request->sample, file->count - request->at);
    int32_t *ids = malloc(count * sizeof *ids);
    enum mics_status status =
        ids ? mics_token_file_read(file, request->at, count, vocab, ids, err) : mics_err_nomem(err);

    if (status == MICS_OK) {
        putchar('\n');
        if (tokenizer && file->prompts.mapping)
            status = decode_runs(tokenizer, file, request->at, ids, count, err);
        else if (tokenizer)
            status = decode_sample(tokenizer, ids, count, err);
        for (uint32_t i = 0; !tokenizer && i < count; i++)
            printf("%" PRId32 "%c", ids[i], i + 1 < count ? ' ' : '\n');
    }
    free(ids);
    return status;
}

/* *out is closed by the caller, also after an error. */
static enum mics_status open_tokenizer(const struct request *request, const json_t *doc,
                                       const char *folder, struct mics_disk_tokenizer *out,
                                       struct mics_err *err)
{
    const json_t *listed = json_object_get(doc, "tokenizer");

    if (!request->tokenizer)
        return mics_disk_tokenizer_open_listed(listed, folder, NULL, out, err);
    enum mics_status status = mics_disk_tokenizer_open(request->tokenizer, out, err);

    if (status != MICS_OK)
        return status;
    if (!mics_tokenizer_is_listed(out->tokenizer, listed))
        cli_warn("%s: not the tokenizer that the tokens were made with", request->tokenizer);
    return status;
}

/* The document beside the file, or one of what the file itself tells. */
static enum mics_status read_doc(const char *path, const struct mics_token_file *file,
                                 char folder[MICS_PATH_MAX], json_t **doc, struct mics_err *err)
{
    enum mics_status status = mics_dataset_read(path, folder, doc, err);

    if (status != MICS_OK)
        return status;
    if (!*doc)
        return mics_dataset_to_doc(file, doc, err);
    status = mics_dataset_match(*doc, file, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "the document of '%s'", path);
    return status;
}

static enum mics_status print_all(const struct request *request, const struct mics_token_file *file,
                                  const struct mics_tokenizer *tokenizer, const json_t *doc,
                                  struct mics_err *err)
{
    if (request->common.json)
        return mics_doc_write(stdout, doc, MICS_DOC_JSON, err);
    enum mics_status status = mics_dataset_print(stdout, doc, request->common.tsv, err);

    if (status != MICS_OK)
        return status;
    if (!request->common.tsv)
        return print_sample(request, file, tokenizer, err);
    return MICS_OK;
}

static enum mics_status show(struct request *request, struct mics_err *err)
{
    struct mics_disk_tokenizer tokenizer = {.tokenizer = NULL};
    struct mics_token_file file = {.path = NULL};
    const char *path = request->paths[0];
    char folder[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_token_file_open(path, request->width, &file, err);

    if (status == MICS_OK)
        status = read_doc(path, &file, folder, &doc, err);
    if (status == MICS_OK)
        status = open_tokenizer(request, doc, folder, &tokenizer, err);
    if (status == MICS_OK && request->width && file.format != MICS_TOKENS_RAW)
        cli_warn("%s: --dtype has no effect: the file says what its ids are", path);
    if (status == MICS_OK && request->check) {
        const uint32_t vocab =
            tokenizer.tokenizer ? mics_tokenizer_size(tokenizer.tokenizer) : INT32_MAX;

        status = mics_dataset_check(doc, &file, vocab, err);
    }
    if (status == MICS_OK)
        status = print_all(request, &file, tokenizer.tokenizer, doc, err);
    if (status == MICS_OK && request->check)
        cli_note(0, "%s: undamaged%s", file.path,
                 json_object_get(doc, "xxh64") ? "" : ", as far as ids tell: there is no checksum");
    json_decref(doc);
    mics_disk_tokenizer_close(&tokenizer);
    mics_token_file_close(&file);
    return status;
}

/* ---- train ---- */

static enum mics_status train(struct request *request, struct mics_err *err)
{
    const struct data_train_request training = {
        .patterns = (const char *const *)request->paths,
        .pattern_count = (size_t)request->path_count,
        .folder = request->common.output,
        .vocab_size = request->vocab,
        .min_count = request->min_count,
        .binary = request->binary,
        .progress = cli_progress_wanted() ? cli_progress_show : NULL,
        .clear_progress = cli_progress_clear,
        .progress_context = &request->progress,
    };

    request->progress.begin_s = mics_now_s();
    return data_train(&training, err);
}

/* ---- commands ---- */

static const struct command_spec {
    const char *command;
    enum mics_status (*run)(struct request *request, struct mics_err *err);
    bool makes, encodes;
    bool one_path;
    const char *takes[11]; /* options; NULL after the last */
} command_specs[] = {
    {"encode",
     encode,
     true,
     true,
     false,
     {"output", "tokenizer", "format", "field", "special", "end-token", "binary", "bad-lines",
      "chat", "mask-prompt"}},
    {"show", show, false, false, true, {"tokenizer", "dtype", "at", "sample", "check"}},
    {"train", train, true, false, false, {"output", "vocab", "min-count", "binary"}},
};

static const struct command_spec *find_command(const char *command)
{
    for (size_t i = 0; i < sizeof command_specs / sizeof *command_specs; i++)
        if (strcmp(command_specs[i].command, command) == 0)
            return &command_specs[i];
    return NULL;
}

static bool takes(const struct command_spec *spec, const char *option)
{
    for (const char *const *name = spec->takes; *name; name++)
        if (strcmp(*name, option) == 0)
            return true;
    return false;
}

/* -1: go on; else the exit code. */
static int check_options(const struct request *request, const struct command_spec *spec)
{
    static const char *const without_chat[] = {"field", "special", "end-token", "binary"};
    const char *output = request->common.output;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if ((request->common.given >> i & 1) && !takes(spec, options[i].name))
            return cli_usage("%s: does not take --%s", spec->command, options[i].name);
    if (request->mask_prompt && !request->is_chat)
        return cli_usage("--mask-prompt goes with --chat: other text has no prompts");
    for (size_t i = 0; i < sizeof without_chat / sizeof *without_chat; i++)
        if (request->is_chat && cli_given(&request->common, without_chat[i]))
            return cli_usage("--chat does not go with --%s", without_chat[i]);
    if (request->is_chat && request->format != MICS_TOKENS_MEGATRON)
        return cli_usage("--chat needs --format=megatron: llm.c's has no documents, and no token "
                         "ends a conversation");
    if (spec->makes && !output)
        return cli_usage("%s: -o PATH is missing", spec->command);
    if (spec->encodes && !request->tokenizer)
        return cli_usage("%s: -t PATH is missing, or -t bytes for a token per byte", spec->command);
    if (output &&
        (strcmp(output, "-") == 0 || (spec->encodes && output[strlen(output) - 1] == '/')))
        return cli_usage("--output: '%s' is not a path to write", output);
    if (request->path_count == 0)
        return cli_usage("%s: a path is missing", spec->command);
    if (spec->one_path && request->path_count > 1)
        return cli_usage("%s: '%s': too many paths", spec->command, request->paths[1]);
    return -1;
}

static int run(struct request *request, char **operands, int count)
{
    const struct command_spec *spec = count ? find_command(operands[0]) : NULL;
    struct mics_err err = {""};

    if (count == 0)
        return cli_usage("no command: expected encode, show or train");
    if (!spec)
        return cli_unknown_command(operands[0]);
    request->paths = operands + 1;
    request->path_count = count - 1;
    const int code = check_options(request, spec);

    return code >= 0 ? code : cli_report(spec->run(request, &err), &err);
}

int main(int argc, char **argv)
{
    struct request request = {.field = "text",
                              .format = MICS_TOKENS_MEGATRON,
                              .sample = SAMPLE_TOKENS,
                              .argc = argc,
                              .argv = argv};
    int operands, code;

    cli_init(&program);
    code = cli_parse(argc, argv, &request.common, handle, &request, &operands);
    if (code < 0)
        code = run(&request, argv + operands, argc - operands);
    return cli_finish(code);
}
