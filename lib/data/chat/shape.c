/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat/shape.h"

#include "data/chat/buffer.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A template being read. */
struct reader {
    const char *text; /* with "\n" for each newline, and without the last one */
    size_t size, at;
    struct mics_chat_buffer tokens;  /* what the digest is of */
    struct mics_chat_buffer literal; /* the present text, without escapes */
    struct mics_shape *out;
    bool line_begins; /* what was read last ended a line */
    struct mics_err *err;
};

static bool is_prose(const struct mics_chat_buffer *literal)
{
    size_t blanks = 0;

    for (size_t i = 0; i < literal->size; i++)
        blanks += literal->bytes[i] == ' ';
    return literal->size >= MICS_SHAPE_PROSE_BYTES && blanks >= MICS_SHAPE_PROSE_SPACES;
}

static enum mics_status add_prose(struct reader *reader)
{
    struct mics_shape *out = reader->out;
    struct mics_prose *grown = realloc(out->prose, (out->prose_count + 1) * sizeof *grown);

    if (!grown)
        return mics_err_nomem(reader->err);
    out->prose = grown;
    char *copy = malloc(reader->literal.size + 1);

    if (!copy)
        return mics_err_nomem(reader->err);
    memcpy(copy, reader->literal.bytes, reader->literal.size);
    out->prose[out->prose_count++] =
        (struct mics_prose){.bytes = copy, .size = reader->literal.size};
    return MICS_OK;
}

static enum mics_status put(struct reader *reader, const void *bytes, size_t size)
{
    return mics_chat_buffer_append(&reader->tokens, bytes, size, reader->err);
}

/* The present literal as a token. */
static enum mics_status put_literal(struct reader *reader)
{
    const uint64_t size = reader->literal.size;
    enum mics_status status;

    if (is_prose(&reader->literal)) {
        status = add_prose(reader);
        return status == MICS_OK ? put(reader, "~", 1) : status;
    }
    status = put(reader, "\"", 1);
    if (status == MICS_OK)
        status = put(reader, &size, sizeof size);
    return status == MICS_OK ? put(reader, reader->literal.bytes, reader->literal.size) : status;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Text outside of tags, of which what Jinja trims is left out. */
static enum mics_status put_data(struct reader *reader, size_t begin, size_t end, bool trims_left,
                                 bool trims_right, bool block_follows)
{
    const char *text = reader->text;

    while (trims_left && begin < end && is_space(text[begin]))
        begin++;
    while (trims_right && end > begin && is_space(text[end - 1]))
        end--;
    if (block_follows && !trims_right) { /* a tag of a block with nothing before it in its line */
        size_t line = end;

        while (line > begin && (text[line - 1] == ' ' || text[line - 1] == '\t'))
            line--;
        if ((line > begin && text[line - 1] == '\n') || (line == begin && reader->line_begins))
            end = line;
    }
    if (begin == end)
        return MICS_OK;
    reader->literal.size = 0;
    enum mics_status status =
        mics_chat_buffer_append(&reader->literal, text + begin, end - begin, reader->err);

    if (status == MICS_OK)
        status = put(reader, "D", 1);
    return status == MICS_OK ? put_literal(reader) : status;
}

/* What an escape of a text stands for, as in Python: *c, the character behind the backslash, or the
 * backslash itself where Python leaves both. MICS_ERR_FORMAT: it is one that is not known here. */
static enum mics_status read_escape(struct reader *reader, char *c)
{
    static const char known[] = "n\nt\tr\r\\\\'\'\"\"";
    static const char other[] = "\nabfv01234567xNuU"; /* Jinja decodes these, too */
    const char at = reader->text[reader->at];

    for (const char *pair = known; *pair; pair += 2)
        if (*pair == at) {
            *c = pair[1];
            reader->at++;
            return MICS_OK;
        }
    if (!strchr(other, at) && (unsigned char)at < 0x80)
        return MICS_OK;
    if ((unsigned char)at < 0x80 && at > ' ')
        return mics_err_set(reader->err, MICS_ERR_FORMAT,
                            "a text in a tag has the escape '\\%c', which is not supported", at);
    return mics_err_set(reader->err, MICS_ERR_FORMAT,
                        "a text in a tag has a backslash before a character that is not supported "
                        "there");
}

/* Read a quoted text into reader->literal. */
static enum mics_status read_literal(struct reader *reader)
{
    const char *text = reader->text, quote = text[reader->at++];
    enum mics_status status = MICS_OK;

    reader->literal.size = 0;
    while (status == MICS_OK && reader->at < reader->size && text[reader->at] != quote) {
        char c = text[reader->at++];

        if (c == '\\' && reader->at < reader->size)
            status = read_escape(reader, &c);
        if (status == MICS_OK)
            status = mics_chat_buffer_append(&reader->literal, &c, 1, reader->err);
    }
    if (status == MICS_OK && reader->at == reader->size)
        status = mics_err_set(reader->err, MICS_ERR_FORMAT, "a text in a tag has no end");
    reader->at++;
    return status;
}

static bool is_name(const struct mics_chat_buffer *literal)
{
    for (size_t i = 0; i < literal->size; i++)
        if (!isalnum((unsigned char)literal->bytes[i]) && literal->bytes[i] != '_')
            return false;
    return literal->size > 0 && !isdigit((unsigned char)literal->bytes[0]);
}

/* A text in a tag; name['key'] is put as name.key. */
static enum mics_status put_text(struct reader *reader, bool subscript)
{
    enum mics_status status = read_literal(reader);
    size_t next = reader->at;

    if (status != MICS_OK)
        return status;
    while (next < reader->size && is_space(reader->text[next]))
        next++;
    if (!subscript || next == reader->size || reader->text[next] != ']' ||
        !is_name(&reader->literal))
        return put_literal(reader);
    reader->at = next + 1;
    reader->tokens.size--; /* the bracket */
    status = put(reader, ". ", 2);
    return status == MICS_OK ? put(reader, reader->literal.bytes, reader->literal.size) : status;
}

/* The tokens of a tag up to its end, which is `close` with perhaps a mark before it. */
static enum mics_status put_tag(struct reader *reader, char close, bool *trims)
{
    const char *text = reader->text;
    char before[2] = {0, 0}; /* the kinds of the last two tokens: 'n' of a name, or the sign */
    enum mics_status status = MICS_OK;

    while (status == MICS_OK) {
        while (reader->at < reader->size && is_space(text[reader->at]))
            reader->at++;
        const size_t left = reader->size - reader->at;
        const char *at = text + reader->at;

        if (left < 2)
            return mics_err_set(reader->err, MICS_ERR_FORMAT, "a tag has no end");
        const bool marked = left > 2 && (at[0] == '-' || at[0] == '+') && at[1] == close;

        if (at[marked] == close && at[marked + 1] == '}') {
            *trims = marked && at[0] == '-';
            reader->at += 2 + marked;
            return MICS_OK;
        }
        size_t length = 0;

        while (length < left && (isalnum((unsigned char)at[length]) || at[length] == '_'))
            length++;
        const char kind = length ? 'n' : at[0];

        if (length > 0) {
            status = put(reader, " ", 1);
            if (status == MICS_OK)
                status = put(reader, at, length);
            reader->at += length;
        } else if (at[0] == '\'' || at[0] == '"') {
            status = put_text(reader, before[1] == '[' && (before[0] == 'n' || before[0] == ']' ||
                                                           before[0] == ')'));
        } else {
            status = put(reader, at, 1);
            reader->at++;
        }
        before[0] = before[1];
        before[1] = kind == '\'' || kind == '"' ? 'n' : kind;
    }
    return status;
}

/* Find the tag that begins at or after reader->at. */
static size_t find_tag(const struct reader *reader)
{
    const char *text = reader->text;

    for (size_t i = reader->at; i + 1 < reader->size; i++)
        if (text[i] == '{' && (text[i + 1] == '{' || text[i + 1] == '%' || text[i + 1] == '#'))
            return i;
    return reader->size;
}

static enum mics_status skip_comment(struct reader *reader, bool *trims)
{
    const char *begin = reader->text + reader->at;
    const char *end = memmem(begin, reader->size - reader->at, "#}", 2);

    if (!end)
        return mics_err_set(reader->err, MICS_ERR_FORMAT, "a comment has no end");
    *trims = end > begin && end[-1] == '-';
    reader->at = (size_t)(end - reader->text) + 2;
    return MICS_OK;
}

static enum mics_status read_all(struct reader *reader)
{
    bool trims = false;
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && reader->at < reader->size) {
        const size_t begin = reader->at, tag = find_tag(reader);
        const char kind = tag < reader->size ? reader->text[tag + 1] : '\0';
        const char mark = tag + 2 < reader->size ? reader->text[tag + 2] : '\0';

        status = put_data(reader, begin, tag, trims, kind && mark == '-',
                          (kind == '%' || kind == '#') && mark != '+');
        reader->at = tag;
        if (status != MICS_OK || !kind)
            return status;
        reader->at += mark == '-' || mark == '+' ? 3 : 2;
        trims = false;
        if (kind == '#') {
            status = skip_comment(reader, &trims);
        } else {
            status = put(reader, kind == '%' ? "B" : "V", 1);
            if (status == MICS_OK)
                status = put_tag(reader, kind == '%' ? '%' : '}', &trims);
        }
        reader->line_begins = false;
        if (status == MICS_OK && kind != '{' && !trims && reader->at < reader->size &&
            reader->text[reader->at] == '\n') {
            reader->at++;
            reader->line_begins = true;
        }
    }
    return status;
}

/* Copy a text with "\n" for each newline; the last one is left out. */
static enum mics_status copy_lines(const char *text, size_t size, struct mics_chat_buffer *out,
                                   struct mics_err *err)
{
    enum mics_status status = mics_chat_buffer_append(out, "", 0, err);

    for (size_t i = 0; status == MICS_OK && i < size; i++) {
        const char c = text[i] == '\r' ? '\n' : text[i];

        if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n')
            i++;
        status = mics_chat_buffer_append(out, &c, 1, err);
    }
    if (out->size > 0 && out->bytes[out->size - 1] == '\n')
        out->size--;
    return status;
}

enum mics_status mics_shape_read(const char *text, size_t size, struct mics_shape *out,
                                 struct mics_err *err)
{
    struct mics_chat_buffer lines = {0};
    struct reader reader = {.out = out, .line_begins = true, .err = err};

    *out = (struct mics_shape){0};
    enum mics_status status = copy_lines(text, size, &lines, err);

    reader.text = lines.bytes;
    reader.size = lines.size;
    if (status == MICS_OK)
        status = read_all(&reader);
    if (status == MICS_OK)
        out->digest = XXH64(reader.tokens.bytes, reader.tokens.size, 0);
    else
        mics_shape_free(out);
    free(lines.bytes);
    free(reader.tokens.bytes);
    free(reader.literal.bytes);
    return status;
}

void mics_shape_free(struct mics_shape *shape)
{
    for (size_t i = 0; i < shape->prose_count; i++)
        free(shape->prose[i].bytes);
    free(shape->prose);
    *shape = (struct mics_shape){0};
}
