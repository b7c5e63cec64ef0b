/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.c - regular expressions by PCRE2, and what a splitter does with matches.
 *
 * Patterns are written for Oniguruma, in whose syntax ^ and $ match at every line. \s becomes
 * \p{White_Space}, because PCRE2's has U+180E, too. What means another thing to PCRE2 is refused
 * (\h; {1,3}+, which repeats; && in a class), and \C, which would cut characters.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "data/tokenizer/internal.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

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
    static const char *const outside[] = {"\\h", "\\H", "\\K",  "\\Q", "\\G",
                                          "(*",  "(?m", "(?i)", "}+"};
    static const char *const inside[] = {"\\h", "\\H", "\\Q", "&&"};
    const char *const *names = in_class ? inside : outside;
    const size_t count =
        in_class ? sizeof inside / sizeof inside[0] : sizeof outside / sizeof outside[0];

    for (size_t i = 0; i < count; i++)
        if (length >= strlen(names[i]) && strncmp(pattern, names[i], strlen(names[i])) == 0)
            return names[i];
    if (in_class && pattern[0] == '[' && (length < 2 || pattern[1] != ':'))
        return "a class in a class";
    return NULL;
}

/* Write the pattern for PCRE2, up to 16 times as long, into `out`. */
static enum mics_status translate(const char *pattern, size_t length, struct mics_text *out,
                                  struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    bool in_class = false;

    for (size_t i = 0, taken; i < length && status == MICS_OK; i += taken) {
        const char *part = pattern + i;
        const bool escape = part[0] == '\\' && i + 1 < length;
        const char *what = differing(part, length - i, in_class);

        taken = escape ? 2 : 1;
        if (what && !(i == 0 && strcmp(what, "(?i)") == 0)) /* at the beginning it means the same */
            return refuse(what, err);
        if (escape && (part[1] == 's' || part[1] == 'S')) {
            status =
                mics_text_append(out, part[1] == 's' ? "\\p{White_Space}" : "\\P{White_Space}", 15);
            continue;
        }
        if (escape && strchr("pPx", part[1]) && length - i > 2 && part[2] == '{') {
            while (taken < length - i && part[taken - 1] != '}')
                taken++;
        } else if (in_class && part[0] == '[') { /* [:name:] */
            while (taken < length - i && part[taken - 1] != ']')
                taken++;
        } else if (!in_class && part[0] == '[') { /* with a ] that is its first member */
            in_class = true;
            if (taken < length - i && part[taken] == '^')
                taken++;
            if (taken < length - i && part[taken] == ']')
                taken++;
        } else if (part[0] == ']') {
            in_class = false;
        }
        status = mics_text_append(out, part, taken);
    }
    return status == MICS_OK ? MICS_OK : mics_err_nomem(err);
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

enum mics_status mics_regex_match(const struct mics_regex *regex, struct mics_regex_memory **memory,
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
    const unsigned char *text = split->pieces->text + base;
    size_t from = 0, done = 0, begin = 0, end = 0;
    bool found = true;

    while (from <= length) {
        const enum mics_status status = mics_regex_match(regex, &split->pieces->regex, text, length,
                                                         from, &found, &begin, &end, err);

        if (status != MICS_OK)
            return status;
        if (!found)
            break;
        if (add_part(split, base + done, base + begin, invert) != MICS_OK ||
            add_part(split, base + begin, base + end, !invert) != MICS_OK)
            return mics_err_nomem(err);
        done = end;
        from = end;
        if (begin == end) { /* an empty match: go on behind the next character */
            do
                from++;
            while (from < length && (text[from] & 0xc0) == 0x80);
        }
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
