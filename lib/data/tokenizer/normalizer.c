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

/* What the tables of the tokenizers library, of Unicode 10, do not have: characters that change, or
 * are reordered or composed, in later versions. There they stay, and nothing combines with them. */
static const struct {
    uint32_t first, last;
} inert[] = {
    {0x007fd, 0x007fd}, {0x00898, 0x0089f}, {0x008ca, 0x008d3}, {0x009fe, 0x009fe},
    {0x00c3c, 0x00c3c}, {0x00d3b, 0x00d3c}, {0x00eba, 0x00eba}, {0x01715, 0x01715},
    {0x01abf, 0x01ace}, {0x01df6, 0x01dfa}, {0x032ff, 0x032ff}, {0x0a7f2, 0x0a7f4},
    {0x0a82c, 0x0a82c}, {0x0ab69, 0x0ab69}, {0x10781, 0x107ba}, {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
    {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x11930, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
    {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9},
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

/* Bytes of the character at text[0] if it is inert, else 0. */
static size_t inert_length(const unsigned char *text)
{
    uint32_t character;
    const unsigned length = mics_utf8_next(text, &character);

    if (length < 2 || character < inert[0].first || (character >= 0xb000 && character < 0x10000))
        return 0;
    for (size_t i = 0; i < sizeof inert / sizeof inert[0] && character >= inert[i].first; i++)
        if (character <= inert[i].last)
            return length;
    return 0;
}

/* Where a text can be cut that begins at `i` with a character that may change. Han ideographs
 * (U+5000 to U+8FFF) neither change nor combine with what is before them. */
static size_t segment_end(const struct form *form, const unsigned char *text, size_t size, size_t i)
{
    const size_t begin = i;

    while (i < size && text[i] >= form->stable) {
        const size_t length = mics_utf8_length((const char *)text + i, size - i);

        if ((i - begin > SEGMENT_BYTES && text[i] >= 0xe5 && text[i] <= 0xe8) ||
            inert_length(text + i) > 0)
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

        const size_t as_is = inert_length(text + changing);

        if (as_is > 0) {
            status = mics_text_append(out, text + i, changing + as_is - i);
            i = changing + as_is;
            continue;
        }

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
                                   const unsigned char *text, size_t size,
                                   enum mics_text_place place, struct mics_text *out)
{
    if (size == 0)
        return MICS_OK;
    if (step->form)
        return normal_form(step->form, codes, text, size, out);
    if (step->pattern)
        return replace(step, text, size, out);
    if (place != MICS_TEXT_CONTINUES &&
        mics_text_append(out, step->content, step->content_size) != MICS_OK)
        return MICS_ERR_NOMEM;
    return mics_text_append(out, text, size);
}

static enum mics_status apply(const void *opaque, const unsigned char *text, size_t size,
                              enum mics_text_place place, struct mics_text *out,
                              struct mics_err *err)
{
    const struct state *state = opaque;
    struct mics_text between[2] = {{.size = 0}, {.size = 0}};
    struct codes codes = {.capacity = 0};
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < state->count && status == MICS_OK; i++) {
        struct mics_text *next = i + 1 == state->count ? out : &between[i % 2];

        if (next != out)
            next->size = 0;
        status = apply_step(&state->steps[i], &codes, text, size, place, next);
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
    static const char *const form[] = {"type", NULL}, *const prepend[] = {"type", "prepend", NULL},
                             *const replace[] = {"type", "pattern", "content", NULL};
    const char *type = NULL;
    enum mics_status status = mics_cursor_string(cursor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (state->count == MAX_STEPS)
        return mics_cursor_fail(cursor, NULL, err, "more than %d normalizers", MAX_STEPS);

    struct step *step = &state->steps[state->count++];

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(type, forms[i].name) == 0) {
            step->form = &forms[i];
            return mics_json_check_members(cursor, form, err);
        }
    if (strcmp(type, "Prepend") == 0) {
        status = mics_json_check_members(cursor, prepend, err);
        return status == MICS_OK ? read_prepend(cursor, step, err) : status;
    }
    if (strcmp(type, "Replace") == 0) {
        status = mics_json_check_members(cursor, replace, err);
        return status == MICS_OK ? read_replace(cursor, step, err) : status;
    }
    return mics_cursor_fail(cursor, "type", err, "normalizer '%s' is not supported", type);
}

static enum mics_status read_steps(const struct mics_cursor *cursor, struct state *state,
                                   struct mics_err *err)
{
    static const char *const known[] = {"type", "normalizers", NULL};
    struct mics_cursor steps, step;
    const char *type = NULL;
    enum mics_status status = mics_cursor_string(cursor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (strcmp(type, "Sequence") != 0)
        return read_step(cursor, state, err);
    status = mics_json_check_members(cursor, known, err);
    if (status == MICS_OK)
        status = mics_cursor_array(cursor, "normalizers", 0, MAX_STEPS, &steps, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&steps); i++) {
        status = mics_cursor_item(&steps, i, &step, err);
        if (status == MICS_OK)
            status = read_step(&step, state, err);
    }
    return status;
}

/* Does it put U+2581 before a text, or for a space? */
static bool is_metaspace(const struct step *step)
{
    return step->form == NULL && strcmp(step->content, MICS_METASPACE) == 0 &&
           (step->pattern == NULL || strcmp(step->pattern, " ") == 0);
}

enum mics_status mics_normalizer_read(const struct mics_cursor *root, struct mics_normalizer *out,
                                      struct mics_err *err)
{
    struct mics_cursor cursor;

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
    *out = (struct mics_normalizer){
        .state = state, .free_state = free_state, .apply = apply, .forms = true, .metaspace = true};
    for (size_t i = 0; i < state->count; i++) {
        out->forms = out->forms && state->steps[i].form != NULL;
        out->metaspace = out->metaspace && is_metaspace(&state->steps[i]);
        out->spaces = out->spaces || (is_metaspace(&state->steps[i]) && state->steps[i].pattern);
    }
    return MICS_OK;
}
