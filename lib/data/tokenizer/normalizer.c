/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.c - normalizers of tokenizer.json: Unicode's normal forms (utf8proc), prefixes,
 * replacements. */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_STEPS 16

/* Text without ASCII is normalized in parts of about this size. */
#define SEGMENT_BYTES 4096

/* Unicode's normal forms. Characters whose UTF-8 begins with a byte below `stable` do not change,
 * nor combine with what is before them: ASCII, and for NFC what is below U+0300. */
static const struct form {
    const char *name;
    int options;
    unsigned char stable;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE, 0xcc},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 0x80},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0x80},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0x80},
};

/* A normal form; or `content` in place of each `pattern`; or, without one, before the text. */
struct step {
    const struct form *form;
    char *pattern, *content;
    size_t pattern_size, content_size;
};

struct state {
    struct step steps[MAX_STEPS];
    size_t count;
};

/* Code points of a part that is being normalized. */
struct codes {
    int32_t *codes;
    size_t capacity;
};

static void free_state(void *opaque)
{
    struct state *state = opaque;

    for (size_t i = 0; i < state->count; i++) {
        free(state->steps[i].pattern);
        free(state->steps[i].content);
    }
    free(state);
}

/* Append the normal form of a text that may be normalized without its neighbours. */
static enum mics_status append_form(const struct form *form, struct codes *codes,
                                    const unsigned char *text, size_t size, struct mics_text *out)
{
    utf8proc_ssize_t count;

    for (;;) {
        count =
            utf8proc_decompose(text, (utf8proc_ssize_t)size, codes->codes,
                               (utf8proc_ssize_t)codes->capacity, (utf8proc_option_t)form->options);
        if (count < (utf8proc_ssize_t)codes->capacity) /* one more for a NUL */
            break;

        const size_t capacity = ((size_t)count + 64) * 2;
        int32_t *grown = realloc(codes->codes, capacity * sizeof *grown);

        if (!grown)
            return MICS_ERR_NOMEM;
        codes->codes = grown;
        codes->capacity = capacity;
    }
    if (count >= 0)
        count = utf8proc_reencode(codes->codes, count, (utf8proc_option_t)form->options);
    if (count < 0) /* valid text fails for want of memory only */
        return MICS_ERR_NOMEM;
    return mics_text_append(out, codes->codes, (size_t)count);
}

/* Where a text can be cut that begins at `i` with a character that may change. Han ideographs
 * (U+5000 to U+8FFF) neither change nor combine with what is before them. */
static size_t segment_end(const struct form *form, const unsigned char *text, size_t size, size_t i)
{
    const size_t begin = i;

    while (i < size && text[i] >= form->stable) {
        const size_t length = mics_utf8_length((const char *)text + i, size - i);

        if (i - begin > SEGMENT_BYTES && text[i] >= 0xe5 && text[i] <= 0xe8)
            break;
        i += length > 0 ? length : 1;
    }
    return i;
}

static enum mics_status normal_form(const struct form *form, struct codes *codes,
                                    const unsigned char *text, size_t size, struct mics_text *out)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < size && status == MICS_OK;) {
        size_t changing = i;

        while (changing < size && text[changing] < form->stable)
            changing++;
        if (changing == size)
            return mics_text_append(out, text + i, size - i);

        /* The character before may combine with this one. */
        size_t begin = changing;

        while (begin > i && (text[--begin] & 0xc0) == 0x80)
            ;

        const size_t end = segment_end(form, text, size, changing);

        status = mics_text_append(out, text + i, begin - i);
        if (status == MICS_OK)
            status = append_form(form, codes, text + begin, end - begin, out);
        i = end;
    }
    return status;
}

static enum mics_status replace(const struct step *step, const unsigned char *text, size_t size,
                                struct mics_text *out)
{
    const unsigned char *end = text + size;

    for (;;) {
        const unsigned char *found =
            memmem(text, (size_t)(end - text), step->pattern, step->pattern_size);

        if (!found)
            return mics_text_append(out, text, (size_t)(end - text));
        if (mics_text_append(out, text, (size_t)(found - text)) != MICS_OK ||
            mics_text_append(out, step->content, step->content_size) != MICS_OK)
            return MICS_ERR_NOMEM;
        text = found + step->pattern_size;
    }
}

static enum mics_status apply_step(const struct step *step, struct codes *codes,
                                   const unsigned char *text, size_t size, struct mics_text *out)
{
    if (size == 0)
        return MICS_OK;
    if (step->form)
        return normal_form(step->form, codes, text, size, out);
    if (step->pattern)
        return replace(step, text, size, out);
    if (mics_text_append(out, step->content, step->content_size) != MICS_OK)
        return MICS_ERR_NOMEM;
    return mics_text_append(out, text, size);
}

static enum mics_status apply(const void *opaque, const unsigned char *text, size_t size,
                              struct mics_text *out, struct mics_err *err)
{
    const struct state *state = opaque;
    struct mics_text between[2] = {{.size = 0}, {.size = 0}};
    struct codes codes = {.capacity = 0};
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < state->count && status == MICS_OK; i++) {
        struct mics_text *next = i + 1 == state->count ? out : &between[i % 2];

        if (next != out)
            next->size = 0;
        status = apply_step(&state->steps[i], &codes, text, size, next);
        text = next->bytes;
        size = next->size;
    }
    free(between[0].bytes);
    free(between[1].bytes);
    free(codes.codes);
    return status == MICS_OK ? MICS_OK : mics_err_nomem(err);
}

static enum mics_status read_replace(const struct mics_cursor *cursor, struct step *step,
                                     struct mics_err *err)
{
    struct mics_cursor pattern;
    const char *text = NULL, *content = NULL;
    enum mics_status status = mics_cursor_object(cursor, "pattern", &pattern, err);

    if (status == MICS_OK && !mics_cursor_has(&pattern, "String"))
        return mics_cursor_fail(&pattern, NULL, err,
                                "only a pattern of kind String is supported here");
    if (status == MICS_OK)
        status = mics_cursor_string(&pattern, "String", &text, err);
    if (status == MICS_OK)
        status = mics_cursor_string(cursor, "content", &content, err);
    if (status != MICS_OK)
        return status;
    if (text[0] == '\0')
        return mics_cursor_fail(&pattern, "String", err, "must not be empty");
    step->pattern = strdup(text);
    step->content = strdup(content);
    step->pattern_size = strlen(text);
    step->content_size = strlen(content);
    return step->pattern && step->content ? MICS_OK : mics_err_nomem(err);
}

static enum mics_status read_prepend(const struct mics_cursor *cursor, struct step *step,
                                     struct mics_err *err)
{
    const char *content = NULL;
    const enum mics_status status = mics_cursor_string(cursor, "prepend", &content, err);

    if (status != MICS_OK)
        return status;
    step->content = strdup(content);
    step->content_size = strlen(content);
    return step->content ? MICS_OK : mics_err_nomem(err);
}

/* A step that is no Sequence. */
static enum mics_status read_step(const struct mics_cursor *cursor, struct state *state,
                                  struct mics_err *err)
{
    const char *type = NULL;
    const enum mics_status status = mics_cursor_string(cursor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (state->count == MAX_STEPS)
        return mics_cursor_fail(cursor, NULL, err, "more than %d normalizers", MAX_STEPS);

    struct step *step = &state->steps[state->count++];

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(type, forms[i].name) == 0) {
            step->form = &forms[i];
            return MICS_OK;
        }
    if (strcmp(type, "Prepend") == 0)
        return read_prepend(cursor, step, err);
    if (strcmp(type, "Replace") == 0)
        return read_replace(cursor, step, err);
    return mics_cursor_fail(cursor, "type", err, "normalizer '%s' is not supported", type);
}

static enum mics_status read_steps(const struct mics_cursor *cursor, struct state *state,
                                   struct mics_err *err)
{
    struct mics_cursor steps, step;
    const char *type = NULL;
    enum mics_status status = mics_cursor_string(cursor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (strcmp(type, "Sequence") != 0)
        return read_step(cursor, state, err);
    status = mics_cursor_array(cursor, "normalizers", 0, MAX_STEPS, &steps, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&steps); i++) {
        status = mics_cursor_item(&steps, i, &step, err);
        if (status == MICS_OK)
            status = read_step(&step, state, err);
    }
    return status;
}

enum mics_status mics_normalizer_read(const struct mics_cursor *root, struct mics_normalizer *out,
                                      bool *forms_only, struct mics_err *err)
{
    struct mics_cursor cursor;

    *forms_only = true;
    if (!mics_cursor_has(root, "normalizer"))
        return MICS_OK;

    enum mics_status status = mics_cursor_object(root, "normalizer", &cursor, err);

    if (status != MICS_OK)
        return status;

    struct state *state = calloc(1, sizeof *state);

    if (!state)
        return mics_err_nomem(err);
    status = read_steps(&cursor, state, err);
    if (status != MICS_OK || state->count == 0) {
        free_state(state);
        return status;
    }
    for (size_t i = 0; i < state->count; i++)
        *forms_only = *forms_only && state->steps[i].form != NULL;
    *out = (struct mics_normalizer){.state = state, .free_state = free_state, .apply = apply};
    return MICS_OK;
}
