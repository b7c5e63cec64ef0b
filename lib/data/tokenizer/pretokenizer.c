/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.c - pre_tokenizers of tokenizer.json: a list of steps, each of which cuts, or
 * rewrites, the pieces of the step before it. */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 16

enum step_kind {
    STEP_SPLIT,        /* by the splitter */
    STEP_PREFIX_SPACE, /* a space before a piece that has none */
    STEP_METASPACE,    /* spaces become `mark`, which is also put before a piece */
    STEP_BERT,         /* words and punctuation, as in BERT */
    STEP_CUT_WORDS,    /* before U+2581, where no token reaches across */
    STEP_TO_ALPHABET,  /* bytes become the characters of byte-level BPE, for steps behind it */
    STEP_FROM_ALPHABET /* and bytes again */
};

struct step {
    enum step_kind kind;
    struct mics_splitter splitter;
    enum mics_split_behavior behavior;
    bool invert;
    bool single;       /* matches of the splitter are single characters, whatever is around them */
    bool drops_spaces; /* a piece ends at white space, which is in none */
    bool at_marks;     /* before the mark of the Metaspace that is before it */
    enum mics_prepend_scheme scheme;
    char mark[5]; /* a character */
};

struct state {
    struct step steps[MAX_STEPS + 3];
    size_t count;
    bool alphabet;                /* the present step sees characters of byte-level BPE */
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

/* All of it is in the alphabet. */
static enum mics_status from_alphabet(const unsigned char *text, size_t size, struct mics_text *out)
{
    size_t bytes = 0;

    if (mics_text_reserve(out, out->size + size) != MICS_OK)
        return MICS_ERR_NOMEM;
    (void)mics_byte_level_decode((const char *)text, size, out->bytes + out->size, &bytes);
    out->size += bytes;
    return MICS_OK;
}

/* Append to own.bytes the piece, or replace spaces in it. */
static enum mics_status rewrite(const struct step *step, const unsigned char *text, size_t size,
                                enum mics_text_place place, struct mics_text *out)
{
    const bool metaspace = step->kind == STEP_METASPACE;
    const bool prepend = step->scheme == MICS_PREPEND_ALWAYS
                             ? place != MICS_TEXT_CONTINUES
                             : step->scheme == MICS_PREPEND_FIRST && place == MICS_TEXT_BEGINS;
    const char *mark = step->mark;
    const size_t length = strlen(mark);
    enum mics_status status = MICS_OK;

    if (step->kind == STEP_TO_ALPHABET)
        return mics_byte_level_encode(text, size, out);
    if (step->kind == STEP_FROM_ALPHABET)
        return from_alphabet(text, size, out);
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

        const bool first = i == 0 && old[0].offset == 0;

        status = rewrite(step, pieces->text + old[i].offset, old[i].length,
                         first ? place : MICS_TEXT_FOLLOWS, &pieces->spare);
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

    if (step->kind != STEP_SPLIT && step->kind != STEP_CUT_WORDS && step->kind != STEP_BERT) {
        status = rewrite_pieces(step, old, count, place, pieces);
        return status == MICS_OK ? MICS_OK : mics_err_nomem(err);
    }
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        if (step->kind == STEP_SPLIT) {
            status = mics_split(&step->splitter, step->behavior, step->invert, old[i].offset,
                                old[i].length, pieces, err);
        } else {
            status = step->kind == STEP_BERT ? mics_bert_split(&old[i], pieces)
                                             : mics_word_cuts_apply(state->words, &old[i], pieces);
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

/* NULL after an error. */
static struct step *new_step(const struct mics_cursor *cursor, struct state *state,
                             enum step_kind kind)
{
    if (state->count >= MAX_STEPS)
        mics_cursor_reject(cursor, NULL, "more than %d steps", MAX_STEPS);
    if (!mics_cursor_ok(cursor))
        return NULL;
    state->steps[state->count].kind = kind;
    return &state->steps[state->count++];
}

/* NULL after an error. */
static struct step *add_split(const struct mics_cursor *cursor, struct state *state,
                              const char *pattern, enum mics_split_behavior behavior, bool invert)
{
    struct step *step = new_step(cursor, state, STEP_SPLIT);
    struct mics_err cause = {.text = ""};
    enum mics_status status;

    if (!step)
        return NULL;
    step->behavior = behavior;
    step->invert = invert;
    status = mics_splitter_init(&step->splitter, pattern, strlen(pattern), &cause);
    if (status == MICS_OK)
        return step;
    if (status == MICS_ERR_FORMAT)
        mics_cursor_reject(cursor, NULL, "%s", cause.text);
    else
        cursor->reading->status = mics_err_set(cursor->reading->err, status, "%s", cause.text);
    return NULL;
}

static void read_byte_level(const struct mics_cursor *cursor, struct state *state)
{
    const bool prefix = mics_cursor_get_bool(cursor, "add_prefix_space");
    const bool use_regex = mics_cursor_opt_bool(cursor, "use_regex", true);
    struct step *step = prefix ? new_step(cursor, state, STEP_PREFIX_SPACE) : NULL;

    if (step) {
        step->scheme = MICS_PREPEND_ALWAYS;
        strcpy(step->mark, " ");
    }
    if (use_regex)
        add_split(cursor, state, MICS_GPT2_PATTERN, MICS_SPLIT_ISOLATED, false);
}

static enum mics_split_behavior read_behavior(const struct mics_cursor *cursor)
{
    static const char *const names[] = {
        [MICS_SPLIT_ISOLATED] = "Isolated",
        [MICS_SPLIT_REMOVED] = "Removed",
        [MICS_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [MICS_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [MICS_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = mics_cursor_get_string(cursor, "behavior");

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum mics_split_behavior)i;
    mics_cursor_reject(cursor, "behavior", "unknown behavior '%s'", name);
    return MICS_SPLIT_ISOLATED;
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

static void add_escaped(const struct mics_cursor *cursor, struct state *state, const char *text,
                        enum mics_split_behavior behavior, bool invert)
{
    char *escaped = escape(text);

    if (escaped)
        add_split(cursor, state, escaped, behavior, invert);
    else
        mics_cursor_nomem(cursor);
    free(escaped);
}

static void read_split(const struct mics_cursor *cursor, struct state *state)
{
    const struct mics_cursor pattern = mics_cursor_get_object(cursor, "pattern");
    const enum mics_split_behavior behavior = read_behavior(cursor);
    const bool invert = mics_cursor_opt_bool(cursor, "invert", false);
    const bool is_regex = mics_cursor_has(&pattern, "Regex");
    const char *kind = is_regex ? "Regex" : "String";
    const char *text = mics_cursor_get_string(&pattern, kind);

    if (text[0] == '\0')
        mics_cursor_reject(&pattern, kind, "must not be empty");
    if (is_regex)
        add_split(&pattern, state, text, behavior, invert);
    else
        add_escaped(&pattern, state, text, behavior, invert);
}

const char *mics_json_read_character(const struct mics_cursor *cursor, const char *key)
{
    const char *text = mics_cursor_get_string(cursor, key);
    const size_t length = strlen(text);

    if (length == 0 || mics_utf8_length(text, length) != length)
        mics_cursor_reject(cursor, key, "expected one character, found '%s'", text);
    return mics_cursor_ok(cursor) ? text : " ";
}

struct mics_metaspace mics_json_read_metaspace(const struct mics_cursor *cursor)
{
    static const char *const names[] = {"always", "first", "never"};
    struct mics_metaspace out = {.scheme = MICS_PREPEND_ALWAYS};

    out.replacement = mics_json_read_character(cursor, "replacement");
    out.split = mics_cursor_opt_bool(cursor, "split", true);
    const char *name = mics_cursor_opt_string(cursor, "prepend_scheme", "always");
    const bool prefix = mics_cursor_opt_bool(cursor, "add_prefix_space", true); /* older files */
    if (!prefix && mics_cursor_has(cursor, "prepend_scheme") && strcmp(name, "never") != 0)
        mics_cursor_reject(cursor, "add_prefix_space", "is false, but prepend_scheme is '%s'",
                           name);
    if (!prefix)
        name = "never";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            out.scheme = (enum mics_prepend_scheme)i;
            return out;
        }
    mics_cursor_reject(cursor, "prepend_scheme", "unknown scheme '%s'", name);
    return out;
}

static void read_metaspace(const struct mics_cursor *cursor, struct state *state)
{
    const struct mics_metaspace metaspace = mics_json_read_metaspace(cursor);
    struct step *step = new_step(cursor, state, STEP_METASPACE);

    if (!step)
        return;
    step->scheme = metaspace.scheme;
    strcpy(step->mark, metaspace.replacement); /* one character */
    if (!metaspace.split)
        return;
    add_escaped(cursor, state, metaspace.replacement, MICS_SPLIT_MERGED_WITH_NEXT, false);
    if (mics_cursor_ok(cursor))
        state->steps[state->count - 1].at_marks = true;
}

/* A pattern of single characters. NULL after an error. */
static struct step *add_class(const struct mics_cursor *cursor, struct state *state,
                              const char *pattern, enum mics_split_behavior behavior)
{
    struct step *step = add_split(cursor, state, pattern, behavior, false);

    if (step)
        step->single = true;
    return step;
}

static void read_digits(const struct mics_cursor *cursor, struct state *state)
{
    const bool individual = mics_cursor_opt_bool(cursor, "individual_digits", false);

    add_class(cursor, state, "\\p{N}", individual ? MICS_SPLIT_ISOLATED : MICS_SPLIT_CONTIGUOUS);
}

#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]"

static void read_punctuation(const struct mics_cursor *cursor, struct state *state)
{
    const enum mics_split_behavior behavior =
        mics_cursor_has(cursor, "behavior") ? read_behavior(cursor) : MICS_SPLIT_ISOLATED;

    add_class(cursor, state, PUNCTUATION, behavior);
}

static void read_white_space(const struct mics_cursor *cursor, struct state *state)
{
    struct step *step = add_class(cursor, state, "\\s", MICS_SPLIT_REMOVED);

    if (step)
        step->drops_spaces = true;
}

static void read_bert(const struct mics_cursor *cursor, struct state *state)
{
    struct step *step = new_step(cursor, state, STEP_BERT);

    if (step)
        step->single = step->drops_spaces = true;
}

/* Words, and what is neither word nor white space; \w as Rust has it. */
static void read_words(const struct mics_cursor *cursor, struct state *state)
{
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}"
    struct step *step =
        add_split(cursor, state, "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", MICS_SPLIT_REMOVED, true);

    if (step)
        step->drops_spaces = true;
}

static void read_delimiter(const struct mics_cursor *cursor, struct state *state)
{
    add_escaped(cursor, state, mics_json_read_character(cursor, "delimiter"), MICS_SPLIT_REMOVED,
                false);
}

static void read_fixed_length(const struct mics_cursor *cursor, struct state *state)
{
    const uint32_t length = mics_cursor_opt_u32(cursor, "length", 1, 65535, 5);
    char pattern[32];

    snprintf(pattern, sizeof pattern, "[\\s\\S]{1,%lu}", (unsigned long)length);
    add_split(cursor, state, pattern, MICS_SPLIT_ISOLATED, false);
}

static const struct reader {
    const char *type;
    void (*read)(const struct mics_cursor *cursor, struct state *state);
    const char *members[7];
} readers[] = {
    {"ByteLevel", read_byte_level, {"type", "add_prefix_space", "trim_offsets", "use_regex"}},
    {"Split", read_split, {"type", "pattern", "behavior", "invert"}},
    {"Metaspace", read_metaspace, MICS_METASPACE_MEMBERS},
    {"Punctuation", read_punctuation, {"type", "behavior"}},
    {"Digits", read_digits, {"type", "individual_digits"}},
    {"Whitespace", read_words, {"type"}},
    {"WhitespaceSplit", read_white_space, {"type"}},
    {"CharDelimiterSplit", read_delimiter, {"type", "delimiter"}},
    {"BertPreTokenizer", read_bert, {"type"}},
    {"FixedLength", read_fixed_length, {"type", "length"}},
};

/* Behind ByteLevel come steps that see its characters, and at last they become bytes again. */
static void begin_alphabet(const struct mics_cursor *cursor, const char *type, struct state *state)
{
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "Metaspace") == 0)
        mics_cursor_reject(cursor, "type", "'%s' after ByteLevel is not supported", type);
    if (!state->alphabet)
        new_step(cursor, state, STEP_TO_ALPHABET);
    state->alphabet = true;
}

static void read_step(const struct mics_cursor *cursor, const char *type, struct state *state,
                      bool *byte_level)
{
    if (*byte_level)
        begin_alphabet(cursor, type, state);
    *byte_level = *byte_level || strcmp(type, "ByteLevel") == 0;
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (strcmp(type, readers[i].type) == 0) {
            mics_json_check_members(cursor, readers[i].members);
            readers[i].read(cursor, state);
            return;
        }
    mics_cursor_reject(cursor, "type", "pre-tokenizer '%s' is not supported", type);
}

static void read_steps(const struct mics_cursor *cursor, struct state *state, bool *byte_level)
{
    static const char *const known[] = {"type", "pretokenizers", NULL};
    const char *type = mics_cursor_get_string(cursor, "type");

    if (strcmp(type, "Sequence") != 0) {
        read_step(cursor, type, state, byte_level);
        return;
    }
    mics_json_check_members(cursor, known);
    const struct mics_cursor steps = mics_cursor_get_array(cursor, "pretokenizers", 0, MAX_STEPS);
    for (size_t i = 0; i < mics_cursor_count(&steps); i++) {
        const struct mics_cursor step = mics_cursor_get_item(&steps, i);

        read_steps(&step, state, byte_level);
    }
}

/* The classes of characters that decide where a text may be cut; NULL: what the steps do depends
 * on more. Steps behind that of the classes see its pieces one by one. */
static const unsigned char *cut_classes(const struct state *state)
{
    const unsigned char *classes = NULL;

    for (size_t i = 0; i < state->count; i++) {
        const struct step *step = &state->steps[i];
        const bool merges = step->behavior == MICS_SPLIT_MERGED_WITH_PREVIOUS ||
                            step->behavior == MICS_SPLIT_MERGED_WITH_NEXT;

        if (step->kind == STEP_METASPACE || (step->kind == STEP_PREFIX_SPACE && i > 0))
            return NULL;
        if (classes || (step->kind != STEP_SPLIT && step->kind != STEP_BERT))
            continue;
        if (step->splitter.classes && !step->invert && step->behavior == MICS_SPLIT_ISOLATED)
            classes = step->splitter.classes;
        else if (!step->single || merges)
            return NULL;
    }
    return classes;
}

/* Does the first step end a piece at white space, which goes? */
static bool drops_spaces(const struct state *state)
{
    return state->count > 0 && state->steps[0].drops_spaces;
}

/* Does the first step put a mark for each space, and the next cut before it? */
static bool begins_at_marks(const struct state *state)
{
    return state->count > 1 && state->steps[0].kind == STEP_METASPACE &&
           state->steps[1].kind == STEP_SPLIT && state->steps[1].at_marks;
}

/* Use the steps that were read, or free them. */
static void set_steps(struct mics_tokenizer *tokenizer, struct state *state)
{
    const struct step *only = &state->steps[0];

    tokenizer->cut.classes = state->count > 0 ? cut_classes(state) : NULL;
    tokenizer->cut.marks = begins_at_marks(state);
    tokenizer->cut.spaces = drops_spaces(state) || tokenizer->cut.marks;
    if (state->count == 0) {
        free_state(state);
    } else if (state->count == 1 && only->kind == STEP_SPLIT && !only->invert &&
               only->behavior == MICS_SPLIT_ISOLATED) {
        tokenizer->splitter = only->splitter; /* which is faster */
        free(state);
    } else {
        tokenizer->pretokenizer =
            (struct mics_pretokenizer){.state = state, .free_state = free_state, .apply = apply};
    }
}

void mics_pretokenizer_read(const struct mics_cursor *root, struct mics_tokenizer *tokenizer,
                            bool *byte_level)
{
    struct state *state = calloc(1, sizeof *state);

    if (!state) {
        mics_cursor_nomem(root);
        return;
    }
    *byte_level = state->alphabet = tokenizer->normalizer.byte_level;
    if (mics_cursor_has(root, "pre_tokenizer")) {
        const struct mics_cursor cursor = mics_cursor_get_object(root, "pre_tokenizer");

        read_steps(&cursor, state, byte_level);
    }
    if (!mics_cursor_ok(root)) {
        free_state(state);
        return;
    }
    if (state->alphabet)
        state->steps[state->count++].kind = STEP_FROM_ALPHABET;
    set_steps(tokenizer, state);
}

bool mics_pretokenizer_cuts(const struct mics_tokenizer *tokenizer)
{
    const struct state *state = tokenizer->pretokenizer.state;

    for (size_t i = 0; state && i < state->count; i++)
        if (state->steps[i].kind != STEP_METASPACE && state->steps[i].kind != STEP_CUT_WORDS)
            return true;
    return tokenizer->splitter.kind != MICS_SPLIT_WHOLE;
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
        const bool marks = state->steps[i].kind == STEP_METASPACE &&
                           strcmp(state->steps[i].mark, MICS_METASPACE) == 0;

        metaspace = metaspace && marks;
        spaces = spaces || marks;
    }
    state->words = words;
    state->steps[state->count++].kind = STEP_CUT_WORDS;
    *pretokenizer =
        (struct mics_pretokenizer){.state = state, .free_state = free_state, .apply = apply};
    if (!metaspace)
        return MICS_OK;
    tokenizer->cut.words = words;
    tokenizer->cut.spaces = spaces;
    return MICS_OK;
}
