/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.c - normalizers of tokenizer.json: Unicode's normal forms (utf8proc), lower case,
 * accents, white space, prefixes, replacements. */
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

/* Marks that StripAccents leaves, since the library's table does not have them. */
static const struct {
    uint32_t first, last;
} later_marks[] = {
#include "data/tokenizer/later_marks.inc"
};

enum step_kind {
    STEP_FORM,
    STEP_PREPEND,   /* `content` before the text */
    STEP_REPLACE,   /* `content` in place of each `pattern`, or of each match of `regex` */
    STEP_LOWERCASE, /* character by character */
    STEP_ACCENTS,   /* combining marks go */
    STEP_NMT,       /* control characters go, what looks like a space becomes one */
    STEP_STRIP,     /* white space at the ends goes */
    STEP_BERT,      /* what `bert` says */
    STEP_CHARSMAP,  /* what SentencePiece's trie says */
    STEP_BYTE_LEVEL /* bytes become the characters of byte-level BPE */
};

struct bert_options {
    bool clean, ideographs, accents, lowercase;
};

struct step {
    enum step_kind kind;
    const struct form *form;
    struct bert_options bert;
    struct mics_charsmap *charsmap;
    char *pattern, *content;
    size_t pattern_size, content_size;
    struct mics_regex *regex;
    bool strip_left, strip_right;
};

struct state {
    struct step steps[MAX_STEPS];
    size_t count;
};

/* Memory of one call. */
struct codes {
    int32_t *codes; /* of a part that is being normalized */
    size_t capacity;
    struct mics_text parts[2]; /* of BERT */
    struct mics_regex_memory *regex;
};

static void free_state(void *opaque)
{
    struct state *state = opaque;

    for (size_t i = 0; i < state->count; i++) {
        free(state->steps[i].pattern);
        free(state->steps[i].content);
        mics_regex_free(state->steps[i].regex);
        mics_charsmap_free(state->steps[i].charsmap);
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

/* As replace(), by a regular expression. */
static enum mics_status replace_matches(const struct step *step, struct codes *codes,
                                        const unsigned char *text, size_t size,
                                        struct mics_text *out, struct mics_err *err)
{
    struct mics_matches matches = mics_matches_begin(step->regex, &codes->regex, text, size);
    size_t done = 0;

    for (;;) {
        const enum mics_status status = mics_matches_next(&matches, err);

        if (status != MICS_OK)
            return status;
        if (!matches.found)
            break;
        if (mics_text_append(out, text + done, matches.begin - done) != MICS_OK ||
            mics_text_append(out, step->content, step->content_size) != MICS_OK)
            return mics_err_nomem(err);
        done = matches.end;
    }
    return mics_text_append(out, text + done, size - done) == MICS_OK ? MICS_OK
                                                                      : mics_err_nomem(err);
}

/* Is it a combining mark, to the library? */
static bool is_mark(uint32_t character)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);

    if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME)
        return character == 0x1cf2 || character == 0x1cf3;
    for (size_t i = 0; i < sizeof later_marks / sizeof later_marks[0]; i++)
        if (character >= later_marks[i].first && character <= later_marks[i].last)
            return false;
    return true;
}

/* Lower case of Unicode 17, of which the older tables of utf8proc lack some pairs. */
static uint32_t lower(uint32_t character)
{
    static const struct {
        uint32_t first, last;
        int32_t offset;
    } later[] = {{0x1c89, 0x1c89, 1},    {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                 {0xa7cc, 0xa7cc, 1},    {0xa7ce, 0xa7ce, 1},
                 {0xa7d2, 0xa7d2, 1},    {0xa7d4, 0xa7d4, 1},
                 {0xa7da, 0xa7da, 1},    {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                 {0x10d50, 0x10d65, 32}, {0x16ea0, 0x16eb8, 27}};

    for (size_t i = 0; character >= later[0].first && i < sizeof later / sizeof later[0]; i++)
        if (character >= later[i].first && character <= later[i].last)
            return (uint32_t)((int32_t)character + later[i].offset);
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)character);
}

/* What NMT of SentencePiece makes of a character; 0: nothing. */
static uint32_t nmt(uint32_t character)
{
    if ((character >= 0x01 && character <= 0x08) || character == 0x0b ||
        (character >= 0x0e && character <= 0x1f) || character == 0x7f || character == 0x8f ||
        character == 0x9f)
        return 0;
    if (character == 0x09 || character == 0x0a || character == 0x0c || character == 0x0d ||
        character == 0x1680 || (character >= 0x200b && character <= 0x200f) ||
        character == 0x2028 || character == 0x2029 || character == 0x2581 || character == 0xfeff ||
        character == 0xfffd)
        return ' ';
    return character;
}

/* Steps that look at one character at a time. */
static enum mics_status map_characters(enum step_kind kind, const unsigned char *text, size_t size,
                                       struct mics_text *out)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0, length; i < size && status == MICS_OK; i += length) {
        uint32_t character, mapped;
        unsigned char bytes[8];

        length = mics_utf8_next(text + i, &character);
        mapped = kind == STEP_LOWERCASE ? lower(character)
                 : kind == STEP_NMT     ? nmt(character)
                                        : character;
        if (kind == STEP_LOWERCASE && character == 0x130) { /* the only one that becomes two */
            status = mics_text_append(out, "i\xcc\x87", 3);
        } else if (mapped == character) {
            if (kind != STEP_ACCENTS || character < 0x80 || !is_mark(character))
                status = mics_text_append(out, text + i, length);
        } else if (mapped != 0) {
            status = mics_text_append(
                out, bytes, (size_t)utf8proc_encode_char((utf8proc_int32_t)mapped, bytes));
        }
    }
    return status;
}

/* Without control characters, with a space for white space, and spaces around ideographs. */
static enum mics_status clean_bert(const struct bert_options *options, const unsigned char *text,
                                   size_t size, struct mics_text *out)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0, length; i < size && status == MICS_OK; i += length) {
        uint32_t character;

        length = mics_utf8_next(text + i, &character);
        if (options->clean &&
            (character == 0xfffd || mics_bert_class(character) == MICS_BERT_CONTROL))
            continue;
        if (options->clean && mics_is_space(character)) {
            status = mics_text_append(out, " ", 1);
        } else if (options->ideographs && mics_bert_is_ideograph(character)) {
            const unsigned char spaced[] = {' ', text[i], text[i + 1], text[i + 2], ' ', ' '};

            status = mics_text_append(out, spaced, 4);
            if (status == MICS_OK)
                status = mics_text_append(out, length == 4 ? text + i + 3 : spaced + 4, 1);
            if (status == MICS_OK && length == 4)
                status = mics_text_append(out, spaced + 4, 1);
        } else {
            status = mics_text_append(out, text + i, length);
        }
    }
    return status;
}

/* Text without ASCII, in whose order the steps are those of BertNormalizer. */
static enum mics_status apply_bert_part(const struct bert_options *options, struct codes *codes,
                                        const unsigned char *text, size_t size,
                                        struct mics_text *out)
{
    struct mics_text *cleaned = &codes->parts[0], *decomposed = &codes->parts[1];
    enum mics_status status = MICS_OK;

    cleaned->size = 0;
    if (clean_bert(options, text, size, cleaned) != MICS_OK)
        return MICS_ERR_NOMEM;
    if (options->accents) {
        decomposed->size = 0;
        if (normal_form(&forms[1], codes, cleaned->bytes, cleaned->size, decomposed) != MICS_OK)
            return MICS_ERR_NOMEM;
        cleaned->size = 0;
        for (size_t i = 0, length; i < decomposed->size && status == MICS_OK; i += length) {
            uint32_t character;

            length = mics_utf8_next(decomposed->bytes + i, &character);
            if (mics_bert_class(character) != MICS_BERT_MARK)
                status = mics_text_append(cleaned, decomposed->bytes + i, length);
        }
    }
    if (status != MICS_OK || cleaned->size == 0)
        return status;
    return options->lowercase ? map_characters(STEP_LOWERCASE, cleaned->bytes, cleaned->size, out)
                              : mics_text_append(out, cleaned->bytes, cleaned->size);
}

/* Characters of ASCII change one by one, and nothing combines with what is before them. */
static enum mics_status apply_bert(const struct bert_options *options, struct codes *codes,
                                   const unsigned char *text, size_t size, struct mics_text *out)
{
    unsigned char ascii[128]; /* 0x80: it goes */

    for (unsigned c = 0; c < 128; c++) {
        ascii[c] = (unsigned char)(options->lowercase && c >= 'A' && c <= 'Z' ? c | 0x20 : c);
        if (options->clean && (c == '\t' || c == '\n' || c == '\r'))
            ascii[c] = ' ';
        else if (options->clean && mics_bert_class(c) == MICS_BERT_CONTROL)
            ascii[c] = 0x80;
    }
    for (size_t i = 0, end; i < size; i = end) {
        for (end = i; end < size && text[end] < 0x80;)
            end++;
        if (mics_text_reserve(out, out->size + (end - i)) != MICS_OK)
            return MICS_ERR_NOMEM;
        for (; i < end; i++) {
            out->bytes[out->size] = ascii[text[i]];
            out->size += ascii[text[i]] < 0x80;
        }
        while (end < size && text[end] >= 0x80)
            end++;
        if (end > i && apply_bert_part(options, codes, text + i, end - i, out) != MICS_OK)
            return MICS_ERR_NOMEM;
    }
    return MICS_OK;
}

static enum mics_status strip(const struct step *step, const unsigned char *text, size_t size,
                              struct mics_text *out)
{
    size_t begin = 0;
    uint32_t character;

    while (step->strip_left && begin < size) {
        const unsigned length = mics_utf8_next(text + begin, &character);

        if (!mics_is_space(character))
            break;
        begin += length;
    }
    while (step->strip_right && size > begin) {
        size_t last = size - 1;

        while (last > begin && (text[last] & 0xc0) == 0x80)
            last--;
        (void)mics_utf8_next(text + last, &character);
        if (!mics_is_space(character))
            break;
        size = last;
    }
    return mics_text_append(out, text + begin, size - begin);
}

static enum mics_status apply_step(const struct step *step, struct codes *codes,
                                   const unsigned char *text, size_t size,
                                   enum mics_text_place place, struct mics_text *out,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (size == 0)
        return MICS_OK;
    switch (step->kind) {
    case STEP_FORM:
        status = normal_form(step->form, codes, text, size, out);
        break;
    case STEP_PREPEND:
        if (place != MICS_TEXT_CONTINUES)
            status = mics_text_append(out, step->content, step->content_size);
        if (status == MICS_OK)
            status = mics_text_append(out, text, size);
        break;
    case STEP_REPLACE:
        if (step->regex)
            return replace_matches(step, codes, text, size, out, err);
        status = replace(step, text, size, out);
        break;
    case STEP_LOWERCASE:
    case STEP_ACCENTS:
    case STEP_NMT:
        status = map_characters(step->kind, text, size, out);
        break;
    case STEP_STRIP:
        status = strip(step, text, size, out);
        break;
    case STEP_BERT:
        status = apply_bert(&step->bert, codes, text, size, out);
        break;
    case STEP_CHARSMAP:
        status = mics_charsmap_apply(step->charsmap, text, size, out);
        break;
    case STEP_BYTE_LEVEL:
        status = mics_byte_level_encode(text, size, out);
        break;
    }
    return status == MICS_OK ? MICS_OK : mics_err_nomem(err);
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
        status = apply_step(&state->steps[i], &codes, text, size, place, next, err);
        text = next->bytes;
        size = next->size;
    }
    free(between[0].bytes);
    free(between[1].bytes);
    free(codes.codes);
    free(codes.parts[0].bytes);
    free(codes.parts[1].bytes);
    mics_regex_memory_free(codes.regex);
    return status;
}

/* ---- reading ---- */

void mics_json_read_pattern(const struct mics_cursor *cursor, const char **text,
                            struct mics_regex **regex)
{
    struct mics_err cause = {.text = ""};
    const struct mics_cursor pattern = mics_cursor_get_object(cursor, "pattern");
    const bool is_regex = mics_cursor_has(&pattern, "Regex");
    const char *kind = is_regex ? "Regex" : "String";

    *regex = NULL;
    *text = mics_cursor_get_string(&pattern, kind);
    if ((*text)[0] == '\0')
        mics_cursor_reject(&pattern, kind, "must not be empty");
    if (!is_regex || !mics_cursor_ok(cursor))
        return;
    const enum mics_status status = mics_regex_new(*text, strlen(*text), regex, &cause);
    if (status == MICS_ERR_NOMEM)
        mics_cursor_nomem(cursor);
    else if (status != MICS_OK)
        mics_cursor_reject(&pattern, kind, "%s", cause.text);
}

char *mics_json_copy_text(const struct mics_cursor *cursor, const char *text, size_t *size)
{
    char *copy = strdup(text);

    *size = strlen(text);
    if (!copy)
        mics_cursor_nomem(cursor);
    return copy;
}

static void read_replace(const struct mics_cursor *cursor, struct step *step)
{
    const char *text;

    mics_json_read_pattern(cursor, &text, &step->regex);
    const char *content = mics_cursor_get_string(cursor, "content");
    /* After these the library repeats parts of the text where it cuts it. */
    if (step->regex && mics_regex_may_be_empty(step->regex))
        mics_cursor_reject(cursor, "pattern",
                           "'%s' can match the empty text, which is not supported", text);
    step->pattern = mics_json_copy_text(cursor, text, &step->pattern_size);
    step->content = mics_json_copy_text(cursor, content, &step->content_size);
}

static void read_prepend(const struct mics_cursor *cursor, struct step *step)
{
    step->content =
        mics_json_copy_text(cursor, mics_cursor_get_string(cursor, "prepend"), &step->content_size);
}

static void read_strip(const struct mics_cursor *cursor, struct step *step)
{
    step->strip_left = mics_cursor_get_bool(cursor, "strip_left");
    step->strip_right = mics_cursor_get_bool(cursor, "strip_right");
}

static void read_bert(const struct mics_cursor *cursor, struct step *step)
{
    step->bert.clean = mics_cursor_get_bool(cursor, "clean_text");
    step->bert.ideographs = mics_cursor_get_bool(cursor, "handle_chinese_chars");
    step->bert.lowercase = mics_cursor_get_bool(cursor, "lowercase");
    step->bert.accents = mics_cursor_opt_bool(cursor, "strip_accents", step->bert.lowercase);
}

/* "precompiled_charsmap": in base64. */
static void read_charsmap(const struct mics_cursor *cursor, struct step *step)
{
    static const char key[] = "precompiled_charsmap";
    const char *text = mics_cursor_get_string(cursor, key);
    const size_t length = strlen(text);
    unsigned char *bytes = malloc(3 * length / 4 + 4);
    struct mics_err cause = {.text = ""};
    enum mics_status status = bytes ? MICS_OK : MICS_ERR_NOMEM;
    size_t size = 0;

    if (status == MICS_OK && mics_cursor_ok(cursor)) {
        if (mics_base64_decode(text, length, bytes, &size))
            status = mics_charsmap_new(bytes, size, &step->charsmap, &cause);
        else
            mics_cursor_reject(cursor, key, "is not base64");
    }
    free(bytes);
    if (status == MICS_ERR_NOMEM)
        mics_cursor_nomem(cursor);
    else if (status != MICS_OK)
        mics_cursor_reject(cursor, NULL, "%s", cause.text);
}

static const struct reader {
    const char *type;
    enum step_kind kind;
    void (*read)(const struct mics_cursor *cursor, struct step *step);
    const char *members[6];
} readers[] = {
    {"Prepend", STEP_PREPEND, read_prepend, {"type", "prepend"}},
    {"Replace", STEP_REPLACE, read_replace, {"type", "pattern", "content"}},
    {"Strip", STEP_STRIP, read_strip, {"type", "strip_left", "strip_right"}},
    {"Lowercase", STEP_LOWERCASE, NULL, {"type"}},
    {"StripAccents", STEP_ACCENTS, NULL, {"type"}},
    {"Nmt", STEP_NMT, NULL, {"type"}},
    {"BertNormalizer",
     STEP_BERT,
     read_bert,
     {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}},
    {"Precompiled", STEP_CHARSMAP, read_charsmap, {"type", "precompiled_charsmap"}},
    {"ByteLevel", STEP_BYTE_LEVEL, NULL, {"type"}},
    {"NFC", STEP_FORM, NULL, {"type"}},
    {"NFD", STEP_FORM, NULL, {"type"}},
    {"NFKC", STEP_FORM, NULL, {"type"}},
    {"NFKD", STEP_FORM, NULL, {"type"}},
};

/* A step that is no Sequence. */
static void read_step(const struct mics_cursor *cursor, const char *type, struct state *state)
{
    const struct reader *reader = NULL;

    if (state->count == MAX_STEPS)
        mics_cursor_reject(cursor, NULL, "more than %d normalizers", MAX_STEPS);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (strcmp(type, readers[i].type) == 0)
            reader = &readers[i];
    if (!reader)
        mics_cursor_reject(cursor, "type", "normalizer '%s' is not supported", type);
    if (state->count > 0 && state->steps[state->count - 1].kind == STEP_BYTE_LEVEL)
        mics_cursor_reject(cursor, "type", "'%s' after ByteLevel is not supported", type);
    if (!mics_cursor_ok(cursor))
        return;
    mics_json_check_members(cursor, reader->members);

    struct step *step = &state->steps[state->count++];

    step->kind = reader->kind;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(type, forms[i].name) == 0)
            step->form = &forms[i];
    if (reader->read)
        reader->read(cursor, step);
}

static void read_steps(const struct mics_cursor *cursor, struct state *state)
{
    static const char *const known[] = {"type", "normalizers", NULL};
    const char *type = mics_cursor_get_string(cursor, "type");

    if (strcmp(type, "Sequence") != 0) {
        read_step(cursor, type, state);
        return;
    }
    mics_json_check_members(cursor, known);
    const struct mics_cursor steps = mics_cursor_get_array(cursor, "normalizers", 0, MAX_STEPS);
    for (size_t i = 0; i < mics_cursor_count(&steps); i++) {
        const struct mics_cursor step = mics_cursor_get_item(&steps, i);

        read_step(&step, mics_cursor_get_string(&step, "type"), state);
    }
}

/* Does it put U+2581 before a text, or for a space? */
static bool is_metaspace(const struct step *step)
{
    return (step->kind == STEP_PREPEND && strcmp(step->content, MICS_METASPACE) == 0) ||
           (step->kind == STEP_REPLACE && !step->regex && strcmp(step->pattern, " ") == 0 &&
            strcmp(step->content, MICS_METASPACE) == 0);
}

/* Does it leave ASCII's printable characters, Han and Hangul, or what becomes of them, where they
 * are, whatever is around them? */
static bool is_local(const struct step *step)
{
    return step->kind == STEP_FORM || step->kind == STEP_LOWERCASE || step->kind == STEP_ACCENTS ||
           step->kind == STEP_BERT;
}

/* Does it replace runs of spaces by one, or by U+2581, or remove those at the end? */
static bool joins_spaces(const struct step *step)
{
    if (step->kind != STEP_REPLACE || !step->regex)
        return false;
    if (strcmp(step->pattern, " +\\z") == 0)
        return step->content_size == 0;
    return strcmp(step->pattern, " {2,}") == 0 &&
           (strcmp(step->content, " ") == 0 || strcmp(step->content, MICS_METASPACE) == 0);
}

/* Between a printable character of ASCII and a space, do both sides become what they would become
 * alone, the left not empty, and the right beginning with a space, or U+2581? */
static bool is_local_at_spaces(const struct step *step)
{
    switch (step->kind) {
    case STEP_PREPEND:
    case STEP_NMT:
        return true;
    case STEP_STRIP:
        return !step->strip_left;
    case STEP_REPLACE:
        if (step->regex)
            return joins_spaces(step);
        return is_metaspace(step) ||
               (step->content_size > 0 && !strchr(step->pattern, ' ') &&
                !strchr(step->content, ' ') && !strstr(step->pattern, MICS_METASPACE) &&
                !strstr(step->content, MICS_METASPACE));
    case STEP_CHARSMAP:
        return !mics_charsmap_changes_ascii(step->charsmap);
    default:
        return is_local(step);
    }
}

void mics_normalizer_read(const struct mics_cursor *root, struct mics_normalizer *out)
{
    if (!mics_cursor_has(root, "normalizer"))
        return;
    const struct mics_cursor cursor = mics_cursor_get_object(root, "normalizer");
    struct state *state = calloc(1, sizeof *state);

    if (!state) {
        mics_cursor_nomem(root);
        return;
    }
    read_steps(&cursor, state);
    if (!mics_cursor_ok(root) || state->count == 0) {
        free_state(state);
        return;
    }
    *out = (struct mics_normalizer){.state = state,
                                    .free_state = free_state,
                                    .apply = apply,
                                    .local = true,
                                    .local_at_spaces = true,
                                    .composes = true,
                                    .metaspace = true};
    for (size_t i = 0; i < state->count; i++) {
        const struct step *step = &state->steps[i];

        out->local = out->local && is_local(step);
        out->local_at_spaces = out->local_at_spaces && is_local_at_spaces(step);
        out->composes = out->composes && step->kind == STEP_FORM && step->form == &forms[0];
        out->metaspace = out->metaspace && is_metaspace(step);
        out->spaces = out->spaces ||
                      ((is_metaspace(step) || joins_spaces(step)) && step->kind == STEP_REPLACE &&
                       strcmp(step->content, MICS_METASPACE) == 0);
        out->byte_level = step->kind == STEP_BYTE_LEVEL;
    }
}
