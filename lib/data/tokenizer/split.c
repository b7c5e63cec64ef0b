/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c - pieces of text by the regular expressions of the known families, written by hand.
 *
 * All of them take the first alternative that matches, so a piece follows from the classes of a few
 * characters: letter \p{L}, number \p{N}, white space \s, other. The last two alternatives,
 * \s+(?!\S)|\s+, leave the last white space before a word to the word.
 */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

enum character_class { OTHER, LETTER, NUMBER, SPACE };

/* Characters from here on have no class but OTHER. */
#define CLASS_LIMIT 0x32400

static const struct range {
    uint32_t first, last;
} letters[] =
    {
#include "data/tokenizer/letters.inc"
},
  numbers[] =
      {
#include "data/tokenizer/numbers.inc"
},
  spaces[] = {
      {0x0009, 0x000d}, {0x0020, 0x0020}, {0x0085, 0x0085}, {0x00a0, 0x00a0}, {0x1680, 0x1680},
      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
};

bool mics_is_space(uint32_t character)
{
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        if (character >= spaces[i].first && character <= spaces[i].last)
            return true;
    return false;
}

static void fill(unsigned char *classes, const struct range *ranges, size_t count,
                 enum character_class class)
{
    for (size_t i = 0; i < count; i++)
        memset(classes + ranges[i].first, class, ranges[i].last - ranges[i].first + 1);
}

/* Classes of characters, [CLASS_LIMIT]. NULL: out of memory. */
static unsigned char *new_classes(void)
{
    unsigned char *classes = calloc(CLASS_LIMIT, 1);

    if (classes == NULL)
        return NULL;
    fill(classes, letters, sizeof letters / sizeof letters[0], LETTER);
    fill(classes, numbers, sizeof numbers / sizeof numbers[0], NUMBER);
    fill(classes, spaces, sizeof spaces / sizeof spaces[0], SPACE);
    return classes;
}

bool mics_split_always(const unsigned char *classes, uint32_t before, uint32_t after)
{
    const int class = before < CLASS_LIMIT ? classes[before] : OTHER;

    return (class == LETTER || class == NUMBER) &&
           class != (after < CLASS_LIMIT ? classes[after] : OTHER);
}

/* A text that is being cut: [at, end) is left. */
struct scan {
    const unsigned char *classes, *at, *end;
};

/* The class of the character at `at`, which is before the end, and its bytes. */
static inline enum character_class class_at(const struct scan *scan, const unsigned char *at,
                                            unsigned *length)
{
    uint32_t character;

    *length = mics_utf8_next(at, &character);
    return character < CLASS_LIMIT ? scan->classes[character] : OTHER;
}

/* The end of the characters of a class that begin at `at`. */
static inline const unsigned char *skip_class(const struct scan *scan, const unsigned char *at,
                                              enum character_class class)
{
    unsigned length;

    while (at < scan->end) {
        if (*at < 0x80) {
            if (scan->classes[*at] != class)
                break;
            at++;
        } else {
            if (class_at(scan, at, &length) != class)
                break;
            at += length;
        }
    }
    return at;
}

/* White space is at `at`: \s+(?!\S)|\s+ */
static const unsigned char *skip_space(const struct scan *scan, const unsigned char *at)
{
    const unsigned char *end = skip_class(scan, at, SPACE), *last = end;

    if (end == scan->end)
        return end;
    do
        last--;
    while ((*last & 0xc0) == 0x80);
    return last == at ? end : last;
}

/* An apostrophe is at `at`: 's|'t|'re|'ve|'m|'ll|'d, in both cases if `fold`, where ſ (U+017F) is
 * an s, too. NULL: no match. */
static const unsigned char *skip_contraction(const struct scan *scan, const unsigned char *at,
                                             bool fold)
{
    const size_t left = (size_t)(scan->end - at);
    unsigned first, second;

    if (left < 2)
        return NULL;
    first = fold && at[1] < 0x80 ? at[1] | 0x20u : at[1];
    if (fold && left >= 3 && at[1] == 0xc5 && at[2] == 0xbf)
        return at + 3;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    if (left < 3)
        return NULL;
    second = fold && at[2] < 0x80 ? at[2] | 0x20u : at[2];
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
        return at + 3;
    return NULL;
}

/* MICS_GPT2_PATTERN */
static const unsigned char *next_gpt2(const struct scan *scan)
{
    const unsigned char *at = scan->at, *end;
    unsigned length;
    enum character_class class;

    if (*at == '\'' && (end = skip_contraction(scan, at, false)) != NULL)
        return end;
    if (*at == ' ' && at + 1 < scan->end) {
        class = class_at(scan, at + 1, &length);
        if (class != SPACE)
            return skip_class(scan, at + 1 + length, class);
        return skip_space(scan, at);
    }
    class = class_at(scan, at, &length);
    return class == SPACE ? skip_space(scan, at) : skip_class(scan, at + length, class);
}

static const unsigned char *skip_newlines(const struct scan *scan, const unsigned char *at)
{
    while (at < scan->end && (*at == '\r' || *at == '\n'))
        at++;
    return at;
}

/* White space is at `at`: \s*[\r\n]+|\s+(?!\S)|\s+ */
static const unsigned char *skip_lines(const struct scan *scan, const unsigned char *at)
{
    const unsigned char *end = skip_class(scan, at, SPACE);

    for (const unsigned char *last = end; last > at; last--)
        if (last[-1] == '\r' || last[-1] == '\n')
            return last;
    return skip_space(scan, at);
}

/* Up to `digits` numbers, the first of them before `at`. */
static const unsigned char *skip_numbers(const struct scan *scan, const unsigned char *at,
                                         unsigned digits)
{
    unsigned length;

    for (unsigned i = 1; i < digits && at < scan->end; i++) {
        if (class_at(scan, at, &length) != NUMBER)
            break;
        at += length;
    }
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static inline const unsigned char *next_llama3(const struct scan *scan, unsigned digits)
{
    const unsigned char *at = scan->at, *end;
    unsigned length, second_length = 0;
    enum character_class class, second = SPACE;

    if (*at == '\'' && (end = skip_contraction(scan, at, true)) != NULL)
        return end;
    class = class_at(scan, at, &length);
    if (class == LETTER)
        return skip_class(scan, at + length, LETTER);
    if (class == NUMBER)
        return skip_numbers(scan, at + length, digits);
    if (at + length < scan->end)
        second = class_at(scan, at + length, &second_length);
    if (second == LETTER && *at != '\r' && *at != '\n')
        return skip_class(scan, at + length + second_length, LETTER);
    if (class == OTHER)
        return skip_newlines(scan, skip_class(scan, at + length, OTHER));
    if (*at == ' ' && second == OTHER)
        return skip_newlines(scan, skip_class(scan, at + length + second_length, OTHER));
    return skip_lines(scan, at);
}

/* Cut with one of the functions above. It is inlined, and so is the function. */
static inline uint32_t cut_pieces(struct scan *scan,
                                  const unsigned char *(*next)(const struct scan *),
                                  uint32_t *lengths, uint32_t most)
{
    uint32_t count = 0;

    while (count < most && scan->at < scan->end) {
        const unsigned char *end = next(scan);

        lengths[count++] = (uint32_t)(end - scan->at);
        scan->at = end;
    }
    return count;
}

static const unsigned char *next_three_digits(const struct scan *scan)
{
    return next_llama3(scan, 3);
}

static const unsigned char *next_one_digit(const struct scan *scan)
{
    return next_llama3(scan, 1);
}

uint32_t mics_split_next(const struct mics_splitter *splitter, const unsigned char *text,
                         uint32_t size, uint32_t *lengths, uint32_t most)
{
    struct scan scan = {.classes = splitter->classes, .at = text, .end = text + size};

    switch (splitter->kind) {
    case MICS_SPLIT_GPT2:
        return cut_pieces(&scan, next_gpt2, lengths, most);
    case MICS_SPLIT_LLAMA3:
        return cut_pieces(&scan, next_three_digits, lengths, most);
    case MICS_SPLIT_QWEN2:
        return cut_pieces(&scan, next_one_digit, lengths, most);
    case MICS_SPLIT_WHOLE:
    case MICS_SPLIT_REGEX:
        break;
    }
    lengths[0] = size;
    return 1;
}

/* What the patterns of the known families are written as. */
static const struct known_pattern {
    const char *pattern;
    enum mics_split_kind kind;
} known_patterns[] = {
    {MICS_GPT2_PATTERN, MICS_SPLIT_GPT2},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     MICS_SPLIT_GPT2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     MICS_SPLIT_LLAMA3},
    {MICS_QWEN2_PATTERN, MICS_SPLIT_QWEN2},
};

enum mics_status mics_splitter_init(struct mics_splitter *splitter, const char *pattern,
                                    size_t length, struct mics_err *err)
{
    *splitter = (struct mics_splitter){.kind = MICS_SPLIT_REGEX};
    for (size_t i = 0; i < sizeof known_patterns / sizeof known_patterns[0]; i++)
        if (strlen(known_patterns[i].pattern) == length &&
            memcmp(known_patterns[i].pattern, pattern, length) == 0)
            splitter->kind = known_patterns[i].kind;
    if (splitter->kind == MICS_SPLIT_REGEX)
        return mics_regex_new(pattern, length, &splitter->regex, err);
    splitter->classes = new_classes();
    return splitter->classes == NULL ? mics_err_nomem(err) : MICS_OK;
}

void mics_splitter_fini(struct mics_splitter *splitter)
{
    free(splitter->classes);
    mics_regex_free(splitter->regex);
    *splitter = (struct mics_splitter){.kind = MICS_SPLIT_WHOLE};
}
