/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.c - pre_tokenizers of tokenizer.json: a list of steps, each of which cuts, or
 * rewrites, the pieces of the step before it. */
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 16

enum step_kind {
    STEP_SPLIT,        /* by the splitter */
    STEP_PREFIX_SPACE, /* a space before a piece that has none */
    STEP_METASPACE,    /* spaces become U+2581, which is also put before a piece */
    STEP_CUT_WORDS     /* before U+2581, where no token reaches across */
};

enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct step {
    enum step_kind kind;
    struct mics_splitter splitter;
    enum mics_split_behavior behavior;
    bool invert;
    bool single; /* matches of the splitter are single characters, whatever is around them */
    enum prepend_scheme scheme;
};

struct state {
    struct step steps[MAX_STEPS + 2];
    size_t count;
    struct mics_word_cuts *words; /* of STEP_CUT_WORDS */
};

static void free_state(void *opaque)
{
    struct state *state = opaque;

    for (size_t i = 0; i < state->count; i++)
        mics_splitter_fini(&state->steps[i].splitter);
    mics_word_cuts_free(state->words);
    free(state);
}

/* ---- cutting ---- */

static bool begins_with(const unsigned char *text, size_t size, const char *prefix, size_t length)
{
    return size >= length && memcmp(text, prefix, length) == 0;
}

/* Append to own.bytes the piece, or replace spaces in it. */
static enum mics_status rewrite(const struct step *step, const unsigned char *text, size_t size,
                                enum mics_text_place place, struct mics_text *out)
{
    const bool metaspace = step->kind == STEP_METASPACE;
    const bool prepend = step->scheme == PREPEND_ALWAYS
                             ? place != MICS_TEXT_CONTINUES
                             : step->scheme == PREPEND_FIRST && place == MICS_TEXT_BEGINS;
    const char *mark = metaspace ? MICS_METASPACE : " ";
    const size_t length = strlen(mark);
    enum mics_status status = MICS_OK;

    if (prepend && text[0] != ' ' && !begins_with(text, size, mark, length))
        status = mics_text_append(out, mark, length);
    while (metaspace && status == MICS_OK) {
        const unsigned char *space = memchr(text, ' ', size);

        if (!space)
            break;
        status = mics_text_append(out, text, (size_t)(space - text));
        if (status == MICS_OK)
            status = mics_text_append(out, mark, length);
        size -= (size_t)(space + 1 - text);
        text = space + 1;
    }
    return status == MICS_OK ? mics_text_append(out, text, size) : status;
}

static enum mics_status rewrite_pieces(const struct step *step, const struct mics_piece *old,
                                       size_t count, enum mics_text_place place,
                                       struct mics_pieces *pieces)
{
    enum mics_status status = MICS_OK;

    pieces->spare.size = 0;
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        const size_t offset = pieces->spare.size;

        status = rewrite(step, pieces->text + old[i].offset, old[i].length,
                         i == 0 ? place : MICS_TEXT_FOLLOWS, &pieces->spare);
        if (status == MICS_OK)
            status = mics_pieces_add(pieces, offset, pieces->spare.size - offset);
    }
    if (status != MICS_OK)
        return status;

    const struct mics_text text = pieces->spare;

    pieces->spare = pieces->own;
    pieces->own = text;
    pieces->text = text.bytes;
    return MICS_OK;
}

static enum mics_status apply_step(const struct state *state, const struct step *step,
                                   const struct mics_piece *old, size_t count,
                                   enum mics_text_place place, struct mics_pieces *pieces,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (step->kind == STEP_PREFIX_SPACE || step->kind == STEP_METASPACE) {
        status = rewrite_pieces(step, old, count, place, pieces);
        return status == MICS_OK ? MICS_OK : mics_err_nomem(err);
    }
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        if (step->kind == STEP_SPLIT) {
            status = mics_split(&step->splitter, step->behavior, step->invert, old[i].offset,
                                old[i].length, pieces, err);
        } else {
            status = mics_word_cuts_apply(state->words, &old[i], pieces);
            if (status != MICS_OK)
                return mics_err_nomem(err);
        }
    }
    return status;
}

static enum mics_status apply(const void *opaque, size_t size, enum mics_text_place place,
                              struct mics_pieces *pieces, struct mics_err *err)
{
    const struct state *state = opaque;
    enum mics_status status = MICS_OK;

    if (size == 0)
        return MICS_OK;
    if (mics_pieces_add(pieces, 0, size) != MICS_OK)
        return mics_err_nomem(err);
    for (size_t i = 0; i < state->count && status == MICS_OK; i++) {
        struct mics_piece *old = pieces->pieces;
        const size_t count = pieces->count;

        pieces->pieces = NULL;
        pieces->count = pieces->capacity = 0;
        status = apply_step(state, &state->steps[i], old, count, place, pieces, err);
        free(old);
    }
    return status;
}

/* ---- reading ---- */

static enum mics_status new_step(const struct mics_cursor *cursor, struct state *state,
                                 enum step_kind kind, struct step **out, struct mics_err *err)
{
    if (state->count >= MAX_STEPS)
        return mics_cursor_fail(cursor, NULL, err, "more than %d steps", MAX_STEPS);
    *out = &state->steps[state->count++];
    (*out)->kind = kind;
    return MICS_OK;
}

static enum mics_status add_split(const struct mics_cursor *cursor, struct state *state,
                                  const char *pattern, enum mics_split_behavior behavior,
                                  bool invert, struct mics_err *err)
{
    struct step *step = NULL;
    enum mics_status status = new_step(cursor, state, STEP_SPLIT, &step, err);

    if (status != MICS_OK)
        return status;
    step->behavior = behavior;
    step->invert = invert;

    struct mics_err cause = {.text = ""};

    status = mics_splitter_init(&step->splitter, pattern, strlen(pattern), &cause);
    if (status != MICS_OK)
        return status == MICS_ERR_FORMAT ? mics_cursor_fail(cursor, NULL, err, "%s", cause.text)
                                         : mics_err_set(err, status, "%s", cause.text);
    return MICS_OK;
}

static enum mics_status read_bool(const struct mics_cursor *cursor, const char *key, bool *out,
                                  struct mics_err *err)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_bool(cursor, key, out, err) : MICS_OK;
}

static enum mics_status read_byte_level(const struct mics_cursor *cursor, struct state *state,
                                        struct mics_err *err)
{
    bool prefix = false, use_regex = true;
    enum mics_status status = mics_cursor_bool(cursor, "add_prefix_space", &prefix, err);
    struct step *step = NULL;

    if (status == MICS_OK)
        status = read_bool(cursor, "use_regex", &use_regex, err);
    if (status == MICS_OK && prefix) {
        status = new_step(cursor, state, STEP_PREFIX_SPACE, &step, err);
        if (status == MICS_OK)
            step->scheme = PREPEND_ALWAYS;
    }
    if (status == MICS_OK && use_regex)
        status = add_split(cursor, state, MICS_GPT2_PATTERN, MICS_SPLIT_ISOLATED, false, err);
    return status;
}

static enum mics_status read_behavior(const struct mics_cursor *cursor,
                                      enum mics_split_behavior *out, struct mics_err *err)
{
    static const char *const names[] = {
        [MICS_SPLIT_ISOLATED] = "Isolated",
        [MICS_SPLIT_REMOVED] = "Removed",
        [MICS_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [MICS_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [MICS_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = NULL;
    const enum mics_status status = mics_cursor_string(cursor, "behavior", &name, err);

    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum mics_split_behavior)i;
            return MICS_OK;
        }
    return mics_cursor_fail(cursor, "behavior", err, "unknown behavior '%s'", name);
}

/* A regular expression that matches `text` only; belongs to the caller. NULL: out of memory. */
static char *escape(const char *text)
{
    char *pattern = malloc(2 * strlen(text) + 1), *end = pattern;

    if (!pattern)
        return NULL;
    for (; *text != '\0'; text++) {
        if (strchr("\\^$.|?*+()[]{}#&-~ ", *text))
            *end++ = '\\';
        *end++ = *text;
    }
    *end = '\0';
    return pattern;
}

static enum mics_status read_split(const struct mics_cursor *cursor, struct state *state,
                                   struct mics_err *err)
{
    enum mics_split_behavior behavior = MICS_SPLIT_ISOLATED;
    struct mics_cursor pattern;
    const char *text = NULL;
    bool invert = false;
    enum mics_status status = mics_cursor_object(cursor, "pattern", &pattern, err);

    if (status == MICS_OK)
        status = read_behavior(cursor, &behavior, err);
    if (status == MICS_OK)
        status = read_bool(cursor, "invert", &invert, err);
    if (status == MICS_OK && mics_cursor_has(&pattern, "Regex")) {
        status = mics_cursor_string(&pattern, "Regex", &text, err);
        return status == MICS_OK ? add_split(&pattern, state, text, behavior, invert, err) : status;
    }
    if (status == MICS_OK)
        status = mics_cursor_string(&pattern, "String", &text, err);
    if (status != MICS_OK)
        return status;
    if (text[0] == '\0')
        return mics_cursor_fail(&pattern, "String", err, "must not be empty");

    char *escaped = escape(text);

    if (!escaped)
        return mics_err_nomem(err);
    status = add_split(&pattern, state, escaped, behavior, invert, err);
    free(escaped);
    return status;
}

static enum mics_status read_scheme(const struct mics_cursor *cursor, enum prepend_scheme *out,
                                    struct mics_err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = "always";
    bool prefix = true;
    enum mics_status status = MICS_OK;

    if (mics_cursor_has(cursor, "prepend_scheme"))
        status = mics_cursor_string(cursor, "prepend_scheme", &name, err);
    else if (mics_cursor_has(cursor, "add_prefix_space")) /* older files */
        status = mics_cursor_bool(cursor, "add_prefix_space", &prefix, err);
    if (status != MICS_OK)
        return status;
    if (!prefix)
        name = "never";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum prepend_scheme)i;
            return MICS_OK;
        }
    return mics_cursor_fail(cursor, "prepend_scheme", err, "unknown scheme '%s'", name);
}

static enum mics_status read_metaspace(const struct mics_cursor *cursor, struct state *state,
                                       struct mics_err *err)
{
    const char *replacement = NULL;
    struct step *step = NULL;
    bool split = true;
    enum mics_status status = mics_cursor_string(cursor, "replacement", &replacement, err);

    if (status == MICS_OK && strcmp(replacement, MICS_METASPACE) != 0)
        return mics_cursor_fail(cursor, "replacement", err, "'%s' is not supported, only '%s'",
                                replacement, MICS_METASPACE);
    if (status == MICS_OK)
        status = read_bool(cursor, "split", &split, err);
    if (status == MICS_OK)
        status = new_step(cursor, state, STEP_METASPACE, &step, err);
    if (status == MICS_OK)
        status = read_scheme(cursor, &step->scheme, err);
    if (status == MICS_OK && split)
        status = add_split(cursor, state, MICS_METASPACE, MICS_SPLIT_MERGED_WITH_NEXT, false, err);
    return status;
}

/* A pattern of single characters. */
static enum mics_status add_class(const struct mics_cursor *cursor, struct state *state,
                                  const char *pattern, enum mics_split_behavior behavior,
                                  struct mics_err *err)
{
    const enum mics_status status = add_split(cursor, state, pattern, behavior, false, err);

    if (status == MICS_OK)
        state->steps[state->count - 1].single = true;
    return status;
}

static enum mics_status read_digits(const struct mics_cursor *cursor, struct state *state,
                                    struct mics_err *err)
{
    bool individual = false;
    const enum mics_status status = read_bool(cursor, "individual_digits", &individual, err);

    return status != MICS_OK
               ? status
               : add_class(cursor, state, "\\p{N}",
                           individual ? MICS_SPLIT_ISOLATED : MICS_SPLIT_CONTIGUOUS, err);
}

static enum mics_status read_punctuation(const struct mics_cursor *cursor, struct state *state,
                                         struct mics_err *err)
{
    enum mics_split_behavior behavior = MICS_SPLIT_ISOLATED;
    const enum mics_status status =
        mics_cursor_has(cursor, "behavior") ? read_behavior(cursor, &behavior, err) : MICS_OK;

    return status != MICS_OK ? status
                             : add_class(cursor, state, "[!-/:-@\\[-`{-~\\p{P}]", behavior, err);
}

static const struct reader {
    const char *type;
    enum mics_status (*read)(const struct mics_cursor *cursor, struct state *state,
                             struct mics_err *err);
    const char *members[7];
} readers[] = {
    {"ByteLevel", read_byte_level, {"type", "add_prefix_space", "trim_offsets", "use_regex"}},
    {"Split", read_split, {"type", "pattern", "behavior", "invert"}},
    {"Metaspace",
     read_metaspace,
     {"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"}},
    {"Punctuation", read_punctuation, {"type", "behavior"}},
    {"Digits", read_digits, {"type", "individual_digits"}},
};

static enum mics_status read_step(const struct mics_cursor *cursor, struct state *state,
                                  bool *byte_level, struct mics_err *err)
{
    const char *type = NULL;
    const enum mics_status status = mics_cursor_string(cursor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (*byte_level)
        return mics_cursor_fail(cursor, "type", err, "'%s' after ByteLevel is not supported", type);
    *byte_level = strcmp(type, "ByteLevel") == 0;
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (strcmp(type, readers[i].type) == 0) {
            const enum mics_status known = mics_json_check_members(cursor, readers[i].members, err);

            return known == MICS_OK ? readers[i].read(cursor, state, err) : known;
        }
    return mics_cursor_fail(cursor, "type", err, "pre-tokenizer '%s' is not supported", type);
}

static enum mics_status read_steps(const struct mics_cursor *cursor, struct state *state,
                                   bool *byte_level, struct mics_err *err)
{
    static const char *const known[] = {"type", "pretokenizers", NULL};
    struct mics_cursor steps, step;
    const char *type = NULL;
    enum mics_status status = mics_cursor_string(cursor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (strcmp(type, "Sequence") != 0)
        return read_step(cursor, state, byte_level, err);
    status = mics_json_check_members(cursor, known, err);
    if (status == MICS_OK)
        status = mics_cursor_array(cursor, "pretokenizers", 0, MAX_STEPS, &steps, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&steps); i++) {
        status = mics_cursor_item(&steps, i, &step, err);
        if (status == MICS_OK)
            status = read_step(&step, state, byte_level, err);
    }
    return status;
}

/* The classes of characters that decide where a text may be cut; NULL: the steps do more than the
 * known regular expressions. */
static const unsigned char *cut_classes(const struct state *state)
{
    const unsigned char *classes = NULL;

    for (size_t i = 0; i < state->count; i++) {
        const struct step *step = &state->steps[i];
        const bool merges = step->behavior == MICS_SPLIT_MERGED_WITH_PREVIOUS ||
                            step->behavior == MICS_SPLIT_MERGED_WITH_NEXT;

        if (step->kind == STEP_SPLIT && step->splitter.classes && !step->invert &&
            step->behavior == MICS_SPLIT_ISOLATED)
            classes = step->splitter.classes;
        else if (step->kind != STEP_PREFIX_SPACE &&
                 (step->kind != STEP_SPLIT || !step->single || merges))
            return NULL;
    }
    return classes;
}

enum mics_status mics_pretokenizer_read(const struct mics_cursor *root,
                                        struct mics_tokenizer *tokenizer, bool *byte_level,
                                        struct mics_err *err)
{
    struct mics_cursor cursor;

    *byte_level = false;
    if (!mics_cursor_has(root, "pre_tokenizer"))
        return MICS_OK;

    enum mics_status status = mics_cursor_object(root, "pre_tokenizer", &cursor, err);

    if (status != MICS_OK)
        return status;

    struct state *state = calloc(1, sizeof *state);

    if (!state)
        return mics_err_nomem(err);
    status = read_steps(&cursor, state, byte_level, err);

    const struct step *only = &state->steps[0];

    tokenizer->cut.classes = status == MICS_OK ? cut_classes(state) : NULL;
    if (status != MICS_OK || state->count == 0) {
        free_state(state);
    } else if (state->count == 1 && only->kind == STEP_SPLIT && !only->invert &&
               only->behavior == MICS_SPLIT_ISOLATED) {
        tokenizer->splitter = only->splitter; /* which is faster */
        free(state);
    } else {
        tokenizer->pretokenizer =
            (struct mics_pretokenizer){.state = state, .free_state = free_state, .apply = apply};
    }
    return status;
}

/* ---- long texts ---- */

enum mics_status mics_pretokenizer_cut_words(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    struct mics_pretokenizer *pretokenizer = &tokenizer->pretokenizer;
    struct state *state = pretokenizer->state;
    struct mics_word_cuts *words = NULL;
    bool metaspace = !tokenizer->normalizer.apply || tokenizer->normalizer.metaspace;
    bool spaces = tokenizer->normalizer.spaces;
    const enum mics_status status = tokenizer->splitter.kind == MICS_SPLIT_WHOLE
                                        ? mics_word_cuts_new(tokenizer, &words, err)
                                        : MICS_OK;

    if (status != MICS_OK || !words)
        return status;
    if (!state)
        state = calloc(1, sizeof *state);
    if (!state) {
        mics_word_cuts_free(words);
        return mics_err_nomem(err);
    }
    for (size_t i = 0; i < state->count; i++) {
        metaspace = metaspace && state->steps[i].kind == STEP_METASPACE;
        spaces = spaces || state->steps[i].kind == STEP_METASPACE;
    }
    state->words = words;
    state->steps[state->count++].kind = STEP_CUT_WORDS;
    *pretokenizer =
        (struct mics_pretokenizer){.state = state, .free_state = free_state, .apply = apply};
    tokenizer->cut.words = metaspace ? words : NULL;
    tokenizer->cut.spaces = metaspace && spaces;
    return MICS_OK;
}
