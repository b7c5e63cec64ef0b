/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoding.c - decoders of tokenizer.json, for tokens that are not bytes: steps, each of which
 * changes the texts of tokens, joins them or cuts them, as in the tokenizers library.
 *
 * A step passes on what is certain as soon as it is, so that ids may come one by one: ByteFallback
 * keeps the bytes that follow each other, Fuse the whole text unless what is behind it can do with
 * parts.
 */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 16

enum step_kind {
    STEP_REPLACE,     /* `content` in place of each `pattern`, or of each match of `regex` */
    STEP_FALLBACK,    /* <0xNN> is a byte */
    STEP_FUSE,        /* all tokens become one */
    STEP_STRIP,       /* up to `start` and `stop` times `content` at the ends of a token */
    STEP_STRIP_START, /* up to `start` times `content` at the beginning of the text */
    STEP_WORDPIECE,   /* `pattern` joins a token to the one before it; else there is a space */
    STEP_METASPACE,   /* `pattern` is a space; in the first token it goes, unless `never` */
    STEP_JOIN         /* a space between tokens: without a decoder */
};

struct step {
    enum step_kind kind;
    char *pattern, *content;
    size_t pattern_size, content_size;
    struct mics_regex *regex;
    uint32_t start, stop;
    bool never;
    bool cleanup; /* of STEP_WORDPIECE: no spaces before punctuation and in contractions */
};

struct mics_decoding {
    struct step steps[MAX_STEPS];
    size_t count;
};

/* What a step has come to. */
struct progress {
    uint64_t tokens;         /* that came */
    struct mics_text held;   /* bytes, or the text so far */
    struct mics_text output; /* the token that it passes on */
    uint32_t cut;            /* of STEP_STRIP_START: how often it has cut */
    bool done;               /* and whether it has come to something else */
};

struct mics_decoding_run {
    const struct mics_decoding *decoding;
    struct progress steps[MAX_STEPS];
    struct mics_regex_memory *regex;
    struct mics_text *out;
    struct mics_err *err;
};

void mics_decoding_free(struct mics_decoding *decoding)
{
    if (!decoding)
        return;
    for (size_t i = 0; i < decoding->count; i++) {
        free(decoding->steps[i].pattern);
        free(decoding->steps[i].content);
        mics_regex_free(decoding->steps[i].regex);
    }
    free(decoding);
}

struct mics_decoding_run *mics_decoding_run_new(const struct mics_decoding *decoding)
{
    struct mics_decoding_run *run = calloc(1, sizeof *run);

    if (run)
        run->decoding = decoding;
    return run;
}

void mics_decoding_run_free(struct mics_decoding_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < MAX_STEPS; i++) {
        free(run->steps[i].held.bytes);
        free(run->steps[i].output.bytes);
    }
    mics_regex_memory_free(run->regex);
    free(run);
}

/* ---- steps ---- */

static enum mics_status pass(struct mics_decoding_run *run, size_t index, const unsigned char *text,
                             size_t size);

static enum mics_status append(struct mics_decoding_run *run, struct mics_text *out,
                               const void *text, size_t size)
{
    return mics_text_append(out, text, size) == MICS_OK ? MICS_OK : mics_err_nomem(run->err);
}

static enum mics_status replace_matches(struct mics_decoding_run *run, const struct step *step,
                                        const unsigned char *text, size_t size,
                                        struct mics_text *out)
{
    struct mics_matches matches = mics_matches_begin(step->regex, &run->regex, text, size);
    size_t done = 0;

    for (;;) {
        enum mics_status status = mics_matches_next(&matches, run->err);

        if (status != MICS_OK)
            return status;
        if (!matches.found)
            return append(run, out, text + done, size - done);
        status = append(run, out, text + done, matches.begin - done);
        if (status == MICS_OK)
            status = append(run, out, step->content, step->content_size);
        if (status != MICS_OK)
            return status;
        done = matches.end;
    }
}

static enum mics_status replace(struct mics_decoding_run *run, const struct step *step,
                                const unsigned char *text, size_t size, bool drop,
                                struct mics_text *out)
{
    const unsigned char *end = text + size, *found;

    while (text < end &&
           (found = memmem(text, (size_t)(end - text), step->pattern, step->pattern_size))) {
        if (append(run, out, text, (size_t)(found - text)) != MICS_OK ||
            (!drop && append(run, out, step->content, step->content_size) != MICS_OK))
            return MICS_ERR_NOMEM;
        text = found + step->pattern_size;
    }
    return append(run, out, text, (size_t)(end - text));
}

/* Replace every `find` in `text`. */
static enum mics_status clean_one(struct mics_decoding_run *run, const char *find, const char *with,
                                  struct mics_text *text, struct mics_text *spare)
{
    const struct step step = {.pattern = (char *)find,
                              .pattern_size = strlen(find),
                              .content = (char *)with,
                              .content_size = strlen(with)};
    const struct mics_text was = *text;
    enum mics_status status;

    if (!text->bytes || !memmem(text->bytes, text->size, find, step.pattern_size))
        return MICS_OK;
    spare->size = 0;
    status = replace(run, &step, was.bytes, was.size, false, spare);
    *text = *spare;
    *spare = was;
    return status;
}

/* A token of WordPiece. */
static enum mics_status join_wordpiece(struct mics_decoding_run *run, const struct step *step,
                                       const unsigned char *text, size_t size, bool first,
                                       struct progress *progress)
{
    static const char *const changes[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    const bool joined = !first && size >= step->pattern_size &&
                        memcmp(text, step->pattern, step->pattern_size) == 0;
    const size_t skip = joined ? step->pattern_size : 0;
    enum mics_status status = MICS_OK;

    if (!first && !joined)
        status = append(run, &progress->output, " ", 1);
    if (status == MICS_OK)
        status = append(run, &progress->output, text + skip, size - skip);
    for (size_t i = 0; step->cleanup && status == MICS_OK && i < sizeof changes / sizeof changes[0];
         i++)
        status = clean_one(run, changes[i][0], changes[i][1], &progress->output, &progress->held);
    return status;
}

static bool is_at(const struct step *step, const unsigned char *text)
{
    return memcmp(text, step->content, step->content_size) == 0;
}

static enum mics_status strip(struct mics_decoding_run *run, size_t index,
                              const unsigned char *text, size_t size)
{
    const struct step *step = &run->decoding->steps[index];
    const size_t length = step->content_size;
    size_t begin = 0, end = size;

    for (uint32_t i = 0; i < step->start && size - begin >= length && is_at(step, text + begin);
         i++)
        begin += length;
    for (uint32_t i = 0; i < step->stop && end >= length && is_at(step, text + end - length); i++)
        end -= length;
    return pass(run, index + 1, text + begin, end > begin ? end - begin : 0);
}

static enum mics_status strip_start(struct mics_decoding_run *run, size_t index,
                                    const unsigned char *text, size_t size)
{
    const struct step *step = &run->decoding->steps[index];
    struct progress *progress = &run->steps[index];
    size_t begin = 0;

    while (!progress->done && progress->cut < step->start && begin < size) {
        progress->done = size - begin < step->content_size || !is_at(step, text + begin);
        if (!progress->done) {
            begin += step->content_size;
            progress->cut++;
        }
    }
    return pass(run, index + 1, text + begin, size - begin);
}

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Is it <0xNN>? *byte is NN. */
static bool is_byte(const unsigned char *text, size_t size, unsigned char *byte)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex_digit(text[3]) < 0 ||
        hex_digit(text[4]) < 0)
        return false;
    *byte = (unsigned char)(hex_digit(text[3]) << 4 | hex_digit(text[4]));
    return true;
}

/* The bytes that were held: a text, or as many U+FFFD if they are not UTF-8. */
static enum mics_status pass_bytes(struct mics_decoding_run *run, size_t index)
{
    struct mics_text *held = &run->steps[index].held;
    const size_t size = held->size;
    enum mics_status status = MICS_OK;

    held->size = 0;
    if (size == 0)
        return MICS_OK;
    if (mics_utf8_check((const char *)held->bytes, size, NULL))
        return pass(run, index + 1, held->bytes, size);
    for (size_t i = 0; i < size && status == MICS_OK; i++)
        status = pass(run, index + 1, (const unsigned char *)"\xef\xbf\xbd", 3);
    return status;
}

/* Give a token to a step, or to the text behind the last one. */
static enum mics_status pass(struct mics_decoding_run *run, size_t index, const unsigned char *text,
                             size_t size)
{
    if (index == run->decoding->count)
        return append(run, run->out, text, size);
    if (!text)
        text = (const unsigned char *)""; /* steps compute addresses in it */

    const struct step *step = &run->decoding->steps[index];
    struct progress *progress = &run->steps[index];
    const bool first = progress->tokens++ == 0;
    enum mics_status status = MICS_OK;
    unsigned char byte;

    progress->output.size = 0;
    switch (step->kind) {
    case STEP_REPLACE:
        status = step->regex ? replace_matches(run, step, text, size, &progress->output)
                             : replace(run, step, text, size, false, &progress->output);
        break;
    case STEP_METASPACE:
        status = replace(run, step, text, size, first && !step->never, &progress->output);
        break;
    case STEP_WORDPIECE:
        status = join_wordpiece(run, step, text, size, first, progress);
        break;
    case STEP_JOIN:
        if (!first)
            status = append(run, &progress->output, " ", 1);
        if (status == MICS_OK)
            status = append(run, &progress->output, text, size);
        break;
    case STEP_FALLBACK:
        if (is_byte(text, size, &byte))
            return append(run, &progress->held, &byte, 1);
        status = pass_bytes(run, index);
        return status == MICS_OK ? pass(run, index + 1, text, size) : status;
    case STEP_FUSE:
        return append(run, &progress->held, text, size);
    case STEP_STRIP:
        return strip(run, index, text, size);
    case STEP_STRIP_START:
        return strip_start(run, index, text, size);
    }
    return status == MICS_OK ? pass(run, index + 1, progress->output.bytes, progress->output.size)
                             : status;
}

enum mics_status mics_decoding_run_token(struct mics_decoding_run *run, const unsigned char *text,
                                         size_t size, struct mics_text *out, struct mics_err *err)
{
    run->out = out;
    run->err = err;
    return pass(run, 0, text, size);
}

enum mics_status mics_decoding_run_end(struct mics_decoding_run *run, struct mics_text *out,
                                       struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    run->out = out;
    run->err = err;
    for (size_t i = 0; i < run->decoding->count && status == MICS_OK; i++) {
        struct progress *progress = &run->steps[i];

        if (run->decoding->steps[i].kind == STEP_FALLBACK)
            status = pass_bytes(run, i);
        else if (run->decoding->steps[i].kind == STEP_FUSE && progress->tokens > 0)
            status = pass(run, i + 1, progress->held.bytes, progress->held.size);
    }
    for (size_t i = 0; i < run->decoding->count; i++) {
        struct progress *progress = &run->steps[i];

        progress->held.size = 0;
        progress->tokens = 0;
        progress->cut = 0;
        progress->done = false;
    }
    return status;
}

/* ---- reading ---- */

static void read_replace(const struct mics_cursor *cursor, struct step *step)
{
    const char *pattern;

    mics_json_read_pattern(cursor, &pattern, &step->regex);
    const char *content = mics_cursor_get_string(cursor, "content");
    step->pattern = mics_json_copy_text(cursor, pattern, &step->pattern_size);
    step->content = mics_json_copy_text(cursor, content, &step->content_size);
}

static void read_strip(const struct mics_cursor *cursor, struct step *step)
{
    const char *content = mics_json_read_character(cursor, "content");

    step->start = mics_cursor_get_u32(cursor, "start", 0, UINT32_MAX);
    step->stop = mics_cursor_get_u32(cursor, "stop", 0, UINT32_MAX);
    step->content = mics_json_copy_text(cursor, content, &step->content_size);
}

static void read_metaspace(const struct mics_cursor *cursor, struct step *step)
{
    const struct mics_metaspace metaspace = mics_json_read_metaspace(cursor);

    step->never = metaspace.scheme == MICS_PREPEND_NEVER;
    step->pattern = mics_json_copy_text(cursor, metaspace.replacement, &step->pattern_size);
    step->content = mics_json_copy_text(cursor, " ", &step->content_size);
}

static void read_wordpiece(const struct mics_cursor *cursor, struct step *step)
{
    step->pattern =
        mics_json_copy_text(cursor, mics_cursor_get_string(cursor, "prefix"), &step->pattern_size);
    step->cleanup = mics_cursor_get_bool(cursor, "cleanup");
}

static const struct reader {
    const char *type;
    enum step_kind kind;
    void (*read)(const struct mics_cursor *cursor, struct step *step);
    const char *members[7];
} readers[] = {
    {"Replace", STEP_REPLACE, read_replace, {"type", "pattern", "content"}},
    {"ByteFallback", STEP_FALLBACK, NULL, {"type"}},
    {"Fuse", STEP_FUSE, NULL, {"type"}},
    {"Strip", STEP_STRIP, read_strip, {"type", "content", "start", "stop"}},
    {"WordPiece", STEP_WORDPIECE, read_wordpiece, {"type", "prefix", "cleanup"}},
    {"Metaspace", STEP_METASPACE, read_metaspace, MICS_METASPACE_MEMBERS},
};

static void read_step(const struct mics_cursor *cursor, const char *type, bool byte_level,
                      struct mics_decoding *decoding)
{
    if (byte_level) {
        if (strcmp(type, "ByteLevel") == 0)
            mics_json_check_members(cursor, mics_byte_level_members);
        else if (strcmp(type, "Fuse") != 0) /* tokens of bytes are one text in any case */
            mics_cursor_reject(cursor, "type",
                               "decoder '%s' is not supported for tokens of bytes, only ByteLevel",
                               type);
        return;
    }
    if (decoding->count == MAX_STEPS)
        mics_cursor_reject(cursor, NULL, "more than %d decoders", MAX_STEPS);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0] && mics_cursor_ok(cursor); i++) {
        if (strcmp(type, readers[i].type) != 0)
            continue;

        struct step *step = &decoding->steps[decoding->count++];

        step->kind = readers[i].kind;
        mics_json_check_members(cursor, readers[i].members);
        if (readers[i].read)
            readers[i].read(cursor, step);
        return;
    }
    mics_cursor_reject(cursor, "type", "decoder '%s' is not supported", type);
}

static void read_steps(const struct mics_cursor *cursor, bool byte_level,
                       struct mics_decoding *decoding)
{
    static const char *const known[] = {"type", "decoders", NULL};
    const char *type = mics_cursor_get_string(cursor, "type");

    if (strcmp(type, "Sequence") != 0) {
        read_step(cursor, type, byte_level, decoding);
        return;
    }
    mics_json_check_members(cursor, known);
    const struct mics_cursor decoders =
        mics_cursor_get_array(cursor, "decoders", byte_level ? 1 : 0, MAX_STEPS);
    for (size_t i = 0; i < mics_cursor_count(&decoders); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&decoders, i);

        read_steps(&item, byte_level, decoding);
    }
}

/* Fuse at the end does nothing, and before a last Strip of the beginning only that remains. */
static void simplify(struct mics_decoding *decoding)
{
    const size_t count = decoding->count;
    struct step *steps = decoding->steps;

    if (count > 0 && steps[count - 1].kind == STEP_FUSE) {
        decoding->count--;
    } else if (count > 1 && steps[count - 2].kind == STEP_FUSE &&
               steps[count - 1].kind == STEP_STRIP && steps[count - 1].stop == 0) {
        steps[count - 1].kind = STEP_STRIP_START;
        steps[count - 2] = steps[count - 1]; /* Fuse owns nothing */
        decoding->count--;
    }
}

void mics_decoder_read(const struct mics_cursor *root, bool byte_level,
                       struct mics_tokenizer *tokenizer)
{
    struct mics_decoding *decoding = calloc(1, sizeof *decoding);

    if (!decoding) {
        mics_cursor_nomem(root);
        return;
    }
    if (byte_level || mics_cursor_has(root, "decoder")) {
        const struct mics_cursor decoder = mics_cursor_get_object(root, "decoder");

        read_steps(&decoder, byte_level, decoding);
        simplify(decoding);
    } else {
        decoding->steps[decoding->count++].kind = STEP_JOIN;
    }
    if (mics_cursor_ok(root) && !byte_level)
        tokenizer->decoding = decoding;
    else
        mics_decoding_free(decoding);
}
