/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.c - regular expressions by PCRE2, and what a splitter does with matches.
 *
 * Patterns are written in Oniguruma's Ruby syntax, where ^ and $ match at every line. What PCRE2
 * takes in another sense is translated: \s (PCRE2's has U+180E, too), \w and \b (marks are of
 * words), names of scripts (PCRE2's \p{Han} has the characters that other scripts share with it),
 * [:alpha:] and its like, long names of categories, \u4e00, and classes in classes. What cannot be
 * is refused (\h; {1,3}+, which repeats; && in a class), and \C, which would cut characters.
 *
 * Letters of versions of Unicode that are later than PCRE2's are none to these expressions.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "data/tokenizer/tokenizer_internal.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATTERN_MAX (64u << 10)
#define MATCH_LIMIT 5000000 /* steps of one match; 0.1 s */
#define HEAP_LIMIT  65536   /* KiB */
#define STACK_MAX   (8u << 20)

struct mics_regex {
    pcre2_code *code;
    bool fast; /* compiled to machine code */
};

struct mics_regex_memory {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static enum mics_status refuse(const char *what, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "regular expression: %s is not supported", what);
}

/* What begins at pattern[0] and means another thing to PCRE2 than to Oniguruma, or is not known to
 * it; NULL: nothing. */
static const char *differing(const char *pattern, size_t length, bool in_class)
{
    static const char *const outside[] = {"\\h", "\\H", "\\K", "\\Q",  "\\G",
                                          "\\X", "(*",  "(?m", "(?i)", "}+"};
    static const char *const inside[] = {"\\h", "\\H", "\\Q", "\\W", "&&", "[^", "[]"};
    const char *const *names = in_class ? inside : outside;
    const size_t count =
        in_class ? sizeof inside / sizeof inside[0] : sizeof outside / sizeof outside[0];

    for (size_t i = 0; i < count; i++)
        if (length >= strlen(names[i]) && strncmp(pattern, names[i], strlen(names[i])) == 0)
            return names[i];
    return NULL;
}

/* A pattern that is being translated. */
struct translation {
    const char *at, *end;
    struct mics_text *out;
    unsigned depth; /* classes that are open */
    struct mics_err *err;
};

static enum mics_status emit(struct translation *t, const char *text, size_t taken)
{
    t->at += taken;
    return mics_text_append(t->out, text, strlen(text)) == MICS_OK ? MICS_OK
                                                                   : mics_err_nomem(t->err);
}

/* The next `taken` bytes as they are. */
static enum mics_status keep(struct translation *t, size_t taken)
{
    const char *text = t->at;

    t->at += taken;
    return mics_text_append(t->out, text, taken) == MICS_OK ? MICS_OK : mics_err_nomem(t->err);
}

/* A character of a word, \w of Oniguruma, as members of a class. Outside of a class it has these
 * numbers of Latin-1, too. */
#define WORD     "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN1   "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define IS_WORD  "[" WORD LATIN1 "]"
#define NOT_WORD "[^" WORD LATIN1 "]"

/* \x and what it becomes outside of a class, and in one; NULL: it stays. */
static const struct escape {
    char letter;
    const char *outside, *inside;
} escapes[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'w', IS_WORD, WORD},
    {'W', NOT_WORD, NULL},
    {'b', "(?:(?<=" IS_WORD ")(?!" IS_WORD ")|(?<!" IS_WORD ")(?=" IS_WORD "))", NULL},
    {'B', "(?:(?<=" IS_WORD ")(?=" IS_WORD ")|(?<!" IS_WORD ")(?!" IS_WORD "))", NULL},
};

/* Names of [:name:], as members of a class. */
static const struct name {
    const char *name, *text;
} posix[] =
    {
        {"alpha", "\\p{Alphabetic}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}"},
        {"blank", "\\p{Zs}\\t"},      {"cntrl", "\\p{Cc}"},
        {"digit", "\\p{Nd}"},         {"lower", "\\p{Lowercase}"},
        {"punct", "\\p{P}\\p{S}"},    {"space", "\\p{White_Space}"},
        {"upper", "\\p{Uppercase}"},  {"word", WORD},
        {"xdigit", "0-9a-fA-F"},
},
  categories[] = {
      {"Letter", "L"},
      {"Mark", "M"},
      {"Number", "N"},
      {"Punctuation", "P"},
      {"Symbol", "S"},
      {"Separator", "Z"},
      {"Uppercase_Letter", "Lu"},
      {"Lowercase_Letter", "Ll"},
      {"Titlecase_Letter", "Lt"},
      {"Modifier_Letter", "Lm"},
      {"Other_Letter", "Lo"},
      {"Decimal_Number", "Nd"},
      {"Letter_Number", "Nl"},
      {"Other_Number", "No"},
};

static const char *find_name(const struct name *names, size_t count, const char *name,
                             size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i].name) == length && strncasecmp(names[i].name, name, length) == 0)
            return names[i].text;
    return NULL;
}

/* Does PCRE2 know the script \p{sc:NAME}? */
static bool is_script(const char *name, size_t length)
{
    char pattern[64];
    pcre2_code *code;
    PCRE2_SIZE offset;
    int reason;

    if (length + sizeof "\\p{sc:}" > sizeof pattern)
        return false;
    snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)length, name);
    code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &reason, &offset,
                         NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* \p{name}, \P{name}, \p{^name}. */
static enum mics_status translate_property(struct translation *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    const bool caret = t->at + 3 < t->end && t->at[3] == '^';
    const char *name = t->at + 3 + caret;
    char text[80];

    if (close == NULL || close < name || close - name > 40)
        return refuse("a property without a name", t->err);

    const size_t length = (size_t)(close - name);
    const char *category =
        find_name(categories, sizeof categories / sizeof categories[0], name, length);
    const bool script = !category && length > 2 && is_script(name, length);

    snprintf(text, sizeof text, "\\%c{%s%.*s}", (t->at[1] == 'P') != caret ? 'P' : 'p',
             script ? "sc:" : "", category ? (int)strlen(category) : (int)length,
             category ? category : name);
    return emit(t, text, (size_t)(close + 1 - t->at));
}

/* What begins with a backslash. */
static enum mics_status translate_escape(struct translation *t)
{
    const size_t left = (size_t)(t->end - t->at);
    char text[16];

    if (left < 2)
        return keep(t, 1);

    const char letter = t->at[1];

    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
        if (letter == escapes[i].letter) {
            const char *translated = t->depth > 0 ? escapes[i].inside : escapes[i].outside;

            return translated ? emit(t, translated, 2) : keep(t, 2);
        }
    if ((letter == 'p' || letter == 'P') && left > 2 && t->at[2] == '{')
        return translate_property(t);
    if (letter == 'u' && left >= 6) { /* four digits, which PCRE2 checks */
        snprintf(text, sizeof text, "\\x{%.4s}", t->at + 2);
        return emit(t, text, 6);
    }
    if (letter == 'x' && left > 2 && t->at[2] == '{') {
        const char *close = memchr(t->at, '}', left);

        return keep(t, close ? (size_t)(close + 1 - t->at) : left);
    }
    return keep(t, 2);
}

/* [ in a class: [:name:], or the members of another class, which join those of the first. */
static enum mics_status translate_inner_class(struct translation *t)
{
    const size_t left = (size_t)(t->end - t->at);
    const char *close = left > 2 && t->at[1] == ':' ? memmem(t->at + 2, left - 2, ":]", 2) : NULL;

    if (close) {
        const char *members = find_name(posix, sizeof posix / sizeof posix[0], t->at + 2,
                                        (size_t)(close - t->at - 2));

        return members ? emit(t, members, (size_t)(close + 2 - t->at))
                       : refuse("this name of a class", t->err);
    }
    if (t->at[-1] == '-' || t->depth == 8)
        return refuse("a class in a class", t->err);
    t->depth++;
    return emit(t, "", 1);
}

static enum mics_status translate_class(struct translation *t)
{
    const char c = t->at[0];

    if (c == '[')
        return translate_inner_class(t);
    if (c != ']')
        return keep(t, 1);
    if (--t->depth == 0)
        return keep(t, 1);
    if (t->at + 1 < t->end && t->at[1] == '-')
        return refuse("a class in a class", t->err);
    return emit(t, "", 1);
}

/* Write the pattern for PCRE2 into `out`. */
static enum mics_status translate(const char *pattern, size_t length, struct mics_text *out,
                                  struct mics_err *err)
{
    struct translation t = {.at = pattern, .end = pattern + length, .out = out, .err = err};
    enum mics_status status = MICS_OK;

    while (t.at < t.end && status == MICS_OK) {
        const char *what = differing(t.at, (size_t)(t.end - t.at), t.depth > 0);

        if (what && !(t.at == pattern && strcmp(what, "(?i)") == 0)) /* there it means the same */
            return refuse(what[0] == '[' ? "a negated or empty class in a class" : what, err);
        if (t.at[0] == '\\') {
            status = translate_escape(&t);
        } else if (t.depth > 0) {
            status = translate_class(&t);
        } else if (t.at[0] == '[') {
            size_t taken = 1; /* with a ] that is its first member */

            t.depth = 1;
            if (t.at + taken < t.end && t.at[taken] == '^')
                taken++;
            if (t.at + taken < t.end && t.at[taken] == ']')
                taken++;
            status = keep(&t, taken);
        } else {
            status = keep(&t, 1);
        }
    }
    return status;
}

static enum mics_status compile(const struct mics_text *pattern, pcre2_code **out,
                                struct mics_err *err)
{
    PCRE2_UCHAR reason[120];
    PCRE2_SIZE offset;
    int code;

    *out = pcre2_compile(pattern->bytes, pattern->size,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                         &offset, NULL);
    if (*out != NULL)
        return MICS_OK;
    pcre2_get_error_message(code, reason, sizeof reason);
    return mics_err_set(err, MICS_ERR_FORMAT, "regular expression: offset %zu: %s", (size_t)offset,
                        (const char *)reason);
}

enum mics_status mics_regex_new(const char *pattern, size_t length, struct mics_regex **out,
                                struct mics_err *err)
{
    struct mics_text translated = {0};
    pcre2_code *code = NULL;
    enum mics_status status;

    *out = NULL;
    if (length > PATTERN_MAX)
        return mics_err_set(err, MICS_ERR_FORMAT, "regular expression: longer than %u bytes",
                            PATTERN_MAX);
    status = translate(pattern, length, &translated, err);
    if (status == MICS_OK)
        status = compile(&translated, &code, err);
    free(translated.bytes);
    if (status != MICS_OK)
        return status;
    *out = malloc(sizeof **out);
    if (*out == NULL) {
        pcre2_code_free(code);
        return mics_err_nomem(err);
    }
    **out =
        (struct mics_regex){.code = code, .fast = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0};
    return MICS_OK;
}

bool mics_regex_may_be_empty(const struct mics_regex *regex)
{
    uint32_t empty = 1;

    (void)pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty);
    return empty != 0;
}

void mics_regex_free(struct mics_regex *regex)
{
    if (regex != NULL)
        pcre2_code_free(regex->code);
    free(regex);
}

void mics_regex_memory_free(struct mics_regex_memory *memory)
{
    if (memory == NULL)
        return;
    pcre2_match_data_free(memory->match);
    pcre2_match_context_free(memory->context);
    pcre2_jit_stack_free(memory->stack);
    free(memory);
}

/* Only the whole match is of interest, so one memory serves all expressions. */
static struct mics_regex_memory *new_memory(void)
{
    struct mics_regex_memory *memory = calloc(1, sizeof *memory);

    if (memory == NULL)
        return NULL;
    memory->match = pcre2_match_data_create(1, NULL);
    memory->context = pcre2_match_context_create(NULL);
    memory->stack = pcre2_jit_stack_create(32 << 10, STACK_MAX, NULL);
    if (memory->match == NULL || memory->context == NULL || memory->stack == NULL) {
        mics_regex_memory_free(memory);
        return NULL;
    }
    pcre2_set_match_limit(memory->context, MATCH_LIMIT);
    pcre2_set_heap_limit(memory->context, HEAP_LIMIT);
    pcre2_jit_stack_assign(memory->context, NULL, memory->stack);
    return memory;
}

/* The first match that begins at or after `from`. */
static enum mics_status match(const struct mics_regex *regex, struct mics_regex_memory **memory,
                              const unsigned char *text, size_t size, size_t from, bool *found,
                              size_t *begin, size_t *end, struct mics_err *err)
{
    PCRE2_UCHAR reason[120];
    int code;

    if (*memory == NULL)
        *memory = new_memory();
    if (*memory == NULL)
        return mics_err_nomem(err);
    code = regex->fast ? pcre2_jit_match(regex->code, text, size, from, PCRE2_NO_UTF_CHECK,
                                         (*memory)->match, (*memory)->context)
                       : pcre2_match(regex->code, text, size, from, PCRE2_NO_UTF_CHECK,
                                     (*memory)->match, (*memory)->context);
    *found = code >= 0;
    if (code >= 0) {
        const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer((*memory)->match);

        *begin = offsets[0];
        *end = offsets[1] < offsets[0] ? offsets[0] : offsets[1];
    } else if (code != PCRE2_ERROR_NOMATCH) {
        pcre2_get_error_message(code, reason, sizeof reason);
        return mics_err_set(err, MICS_ERR_FORMAT, "the tokenizer's regular expression: %s",
                            (const char *)reason);
    }
    return MICS_OK;
}

struct mics_matches mics_matches_begin(const struct mics_regex *regex,
                                       struct mics_regex_memory **memory, const unsigned char *text,
                                       size_t size)
{
    return (struct mics_matches){
        .regex = regex, .memory = memory, .text = text, .size = size, .end = SIZE_MAX};
}

enum mics_status mics_matches_next(struct mics_matches *matches, struct mics_err *err)
{
    const size_t last = matches->end;

    matches->found = false;
    while (matches->from <= matches->size) {
        const enum mics_status status =
            match(matches->regex, matches->memory, matches->text, matches->size, matches->from,
                  &matches->found, &matches->begin, &matches->end, err);

        if (status != MICS_OK || !matches->found)
            return status;
        if (matches->begin < matches->end || matches->end != last) {
            matches->from = matches->end;
            return MICS_OK;
        }
        do
            matches->from++;
        while (matches->from < matches->size && (matches->text[matches->from] & 0xc0) == 0x80);
        matches->found = false;
    }
    return MICS_OK;
}

enum mics_status mics_pieces_add(struct mics_pieces *pieces, size_t offset, size_t length)
{
    if (pieces->count == pieces->capacity) {
        const size_t capacity = pieces->capacity == 0 ? 256 : 2 * pieces->capacity;
        struct mics_piece *grown = realloc(pieces->pieces, capacity * sizeof *grown);

        if (grown == NULL)
            return MICS_ERR_NOMEM;
        pieces->pieces = grown;
        pieces->capacity = capacity;
    }
    pieces->pieces[pieces->count++] = (struct mics_piece){.offset = offset, .length = length};
    return MICS_OK;
}

void mics_pieces_fini(struct mics_pieces *pieces)
{
    free(pieces->own.bytes);
    free(pieces->spare.bytes);
    free(pieces->pieces);
    mics_regex_memory_free(pieces->regex);
    *pieces = (struct mics_pieces){0};
}

/* What a split has come to. */
struct split {
    enum mics_split_behavior behavior;
    struct mics_pieces *pieces;
    size_t first;      /* pieces before it are those of others */
    bool last_matched; /* the last piece came of, or ended with, a match */
};

/* Take in the next part of the text, which is a match or lies between two. */
static enum mics_status add_part(struct split *split, size_t begin, size_t end, bool matched)
{
    struct mics_pieces *pieces = split->pieces;
    const bool any = pieces->count > split->first;
    bool join = false;

    if (begin == end)
        return MICS_OK;
    switch (split->behavior) {
    case MICS_SPLIT_ISOLATED:
        break;
    case MICS_SPLIT_REMOVED:
        if (matched)
            return MICS_OK;
        break;
    case MICS_SPLIT_MERGED_WITH_PREVIOUS:
        join = any && matched && !split->last_matched;
        break;
    case MICS_SPLIT_MERGED_WITH_NEXT:
        join = any && !matched && split->last_matched;
        break;
    case MICS_SPLIT_CONTIGUOUS:
        join = any && matched == split->last_matched;
        break;
    }
    split->last_matched = matched;
    if (join) {
        pieces->pieces[pieces->count - 1].length = end - pieces->pieces[pieces->count - 1].offset;
        return MICS_OK;
    }
    return mics_pieces_add(pieces, begin, end - begin);
}

/* Parts by a regular expression; offsets begin at `base` in pieces->text. */
static enum mics_status split_matches(const struct mics_regex *regex, bool invert,
                                      struct split *split, size_t base, size_t length,
                                      struct mics_err *err)
{
    struct mics_matches matches =
        mics_matches_begin(regex, &split->pieces->regex, split->pieces->text + base, length);
    size_t done = 0;

    for (;;) {
        const enum mics_status status = mics_matches_next(&matches, err);

        if (status != MICS_OK)
            return status;
        if (!matches.found)
            break;
        if (add_part(split, base + done, base + matches.begin, invert) != MICS_OK ||
            add_part(split, base + matches.begin, base + matches.end, !invert) != MICS_OK)
            return mics_err_nomem(err);
        done = matches.end;
    }
    return add_part(split, base + done, base + length, invert) == MICS_OK ? MICS_OK
                                                                          : mics_err_nomem(err);
}

enum mics_status mics_split(const struct mics_splitter *splitter, enum mics_split_behavior behavior,
                            bool invert, size_t offset, size_t length, struct mics_pieces *pieces,
                            struct mics_err *err)
{
    struct split split = {.behavior = behavior, .pieces = pieces, .first = pieces->count};
    uint32_t lengths[64];

    if (splitter->kind == MICS_SPLIT_REGEX)
        return split_matches(splitter->regex, invert, &split, offset, length, err);
    if (length > UINT32_MAX)
        return mics_err_set(err, MICS_ERR_FORMAT, "a text of more than 4 GiB");
    while (length > 0) {
        const uint32_t count =
            mics_split_next(splitter, pieces->text + offset, (uint32_t)length, lengths, 64);

        for (uint32_t i = 0; i < count; i++) {
            if (add_part(&split, offset, offset + lengths[i], !invert) != MICS_OK)
                return mics_err_nomem(err);
            offset += lengths[i];
            length -= lengths[i];
        }
    }
    return MICS_OK;
}
