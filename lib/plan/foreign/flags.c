/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flags.c - flags of a command line in a file, as a shell reads them: words, quotes, comments, and
 * lines that a backslash continues. Variables are not replaced.
 */
#include "plan/foreign/keys.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 120 };

/* Words of a text, one after another. */
struct words {
    const char *at, *end;
    unsigned line;
    char *word;    /* as long as the text */
    bool started;  /* the program was there: what follows are its flags */
    bool flagged;  /* a flag was there */
    bool launched; /* a word was there before all flags */
    bool module;   /* the last word was -m */
    struct mics_err *err;
    enum mics_status status;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_blanks(struct words *words)
{
    while (words->at < words->end) {
        const bool continued = *words->at == '\\' && words->at + 1 < words->end &&
                               (words->at[1] == '\n' || words->at[1] == '\r');

        if (*words->at == '#')
            while (words->at < words->end && *words->at != '\n')
                words->at++;
        else if (is_blank(*words->at) || continued)
            words->line += *words->at++ == '\n';
        else
            return;
    }
}

/* The next word, without its quotes; false: there is none, or an error. */
static bool next_word(struct words *words)
{
    char quote = '\0';
    size_t length = 0;
    unsigned line;

    skip_blanks(words);
    line = words->line;
    if (words->at == words->end || words->status != MICS_OK)
        return false;
    for (; words->at < words->end && (quote || !is_blank(*words->at)); words->at++) {
        const char c = *words->at;

        words->line += c == '\n';
        if (c == quote || (!quote && (c == '"' || c == '\''))) {
            quote = quote ? '\0' : c;
        } else if (c == '\\' && quote != '\'') {
            if (words->at + 1 < words->end && (words->at[1] == '\n' || words->at[1] == '\r'))
                break; /* the next line goes on */
            if (words->at + 1 < words->end)
                words->at++;
            words->word[length++] = *words->at;
        } else if (!quote && strchr("|;&<>", c) && (words->flagged || words->word[0] == '-')) {
            words->status = mics_err_set(words->err, MICS_ERR_FORMAT,
                                         "line %u: '%c' of a shell: expected flags alone", line, c);
            return false;
        } else {
            words->word[length++] = c;
        }
    }
    words->word[length] = '\0';
    if (quote)
        words->status =
            mics_err_set(words->err, MICS_ERR_FORMAT, "line %u: a quote without its end", line);
    else if (!mics_utf8_check(words->word, length, NULL))
        words->status =
            mics_err_set(words->err, MICS_ERR_FORMAT, "line %u: text that is not UTF-8", line);
    return words->status == MICS_OK;
}

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1] == '-' && isalpha((unsigned char)word[2]);
}

/* Is the word the program that a launcher starts? After flags alone it is a value of the last. */
static bool is_program(const struct words *words)
{
    static const char *const ends[] = {".py", ".sh", "torchtitan.train"};
    const char *word = words->word;
    const size_t length = strlen(word);

    if (words->started || (words->flagged && !words->launched && !words->module))
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (length >= strlen(ends[i]) && strcmp(word + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Is the word, which is no flag, neither a launcher's nor a value? */
static bool is_left_over(const struct words *words)
{
    return words->flagged && !words->launched && !words->module && strcmp(words->word, "-m") != 0;
}

static json_t *make_value(const char *word)
{
    const size_t number = strspn(word, "0123456789+-.eE");
    char *end;

    if (strcmp(word, "True") == 0 || strcmp(word, "true") == 0)
        return json_true();
    if (strcmp(word, "False") == 0 || strcmp(word, "false") == 0)
        return json_false();
    if (strcmp(word, "None") == 0)
        return json_null();
    if (number > 0 && word[number] == '\0') {
        const double value = strtod(word, &end);

        if (*end == '\0' && value > -1e300 && value < 1e300)
            return strspn(word, "0123456789-") == number && number < 16
                       ? json_integer((json_int_t)value)
                       : json_real(value);
    }
    return json_string(word);
}

/* A second word for a flag makes a list. */
static enum mics_status add_value(json_t *section, const char *field, const char *word, bool first,
                                  struct mics_err *err)
{
    json_t *value = word ? make_value(word) : json_true(), *old, *list;

    if (first)
        return json_object_set_new(section, field, value) == 0 ? MICS_OK : mics_err_nomem(err);
    old = json_object_get(section, field);
    list = json_is_array(old) ? json_incref(old) : json_pack("[O]", old);
    if (json_array_append_new(list, value) != 0 || json_object_set_new(section, field, list) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

/* The map of all sections of a name but the last, and *field, the last. */
static enum mics_status find_section(json_t *root, char *name, json_t **section, char **field,
                                     struct mics_err *err)
{
    *section = root;
    for (char *point; (point = strchr(name, '.')) != NULL; name = point + 1) {
        json_t *next;

        *point = '\0';
        next = json_object_get(*section, name);
        if (next && !json_is_object(next))
            return mics_err_set(err, MICS_ERR_FORMAT, "--%s has a value and fields", name);
        if (!next) {
            next = json_object();
            if (json_object_set_new(*section, name, next) != 0)
                return mics_err_nomem(err);
        }
        *section = next;
    }
    *field = name;
    return MICS_OK;
}

/* One flag with its values: "--a.b VALUE", "--a.b=VALUE", "--a.b", "--a.no-b". words->word is the
 * flag, and afterwards the word after it; *more: is there one? */
static enum mics_status read_flag(struct words *words, json_t *root, bool *more)
{
    static const char off[] = "=false";
    const char *value = strchr(words->word, '=');
    char text[MAX_NAME], *field = text;
    const size_t length = value ? (size_t)(value - words->word) : strlen(words->word);
    enum mics_status status;
    json_t *section = root;
    bool first = true;

    if (length - 2 >= sizeof text)
        return mics_err_set(words->err, MICS_ERR_FORMAT, "line %u: a flag of %zu characters",
                            words->line, length);
    memcpy(text, words->word + 2, length - 2);
    text[length - 2] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '-')
            *c = '_';
    status = find_section(root, text, &section, &field, words->err);
    if (status != MICS_OK)
        return status;
    if (strncmp(field, "no_", 3) == 0) {
        field += 3;
        value = off;
    }
    if (json_is_object(json_object_get(section, field)))
        return mics_err_set(words->err, MICS_ERR_FORMAT, "--%s has a value and fields", field);
    status = add_value(section, field, value ? value + 1 : NULL, true, words->err);
    while ((*more = status == MICS_OK && next_word(words)) && !is_flag(words->word) &&
           strcmp(words->word, "-m") != 0 && !is_program(words) && !value) {
        status = add_value(section, field, words->word, first, words->err);
        first = false;
    }
    return status != MICS_OK ? status : words->status;
}

/* What is before the program belongs to its launcher. */
static enum mics_status read_flags(struct words *words, json_t **root)
{
    json_t *flags = json_object();
    enum mics_status status = flags ? MICS_OK : mics_err_nomem(words->err);
    bool more = status == MICS_OK && next_word(words);

    *root = flags;
    while (more && status == MICS_OK) {
        if (is_flag(words->word)) {
            words->flagged = true;
            words->module = false;
            status = read_flag(words, *root, &more);
        } else if (is_program(words)) {
            words->started = true;
            *root = json_object();
            if (!*root ||
                (json_object_size(flags) > 0 && json_object_set(*root, "torchrun", flags) != 0))
                status = mics_err_nomem(words->err);
            json_decref(flags);
            flags = NULL;
            more = next_word(words);
        } else if (words->started || is_left_over(words)) {
            status = mics_err_set(words->err, MICS_ERR_FORMAT, "line %u: '%.60s': expected a flag",
                                  words->line, words->word);
        } else {
            words->launched |= !words->flagged;
            words->module = strcmp(words->word, "-m") == 0;
            more = next_word(words);
        }
    }
    return status != MICS_OK ? status : words->status;
}

enum mics_status mics_flags_read(const char *text, size_t size, json_t **out, struct mics_err *err)
{
    struct words words = {
        .at = text, .end = text + size, .line = 1, .word = malloc(size + 1), .err = err};
    json_t *root = NULL;
    enum mics_status status = words.word ? read_flags(&words, &root) : mics_err_nomem(err);

    free(words.word);
    if (status == MICS_OK)
        *out = root;
    else
        json_decref(root);
    return status;
}

/* Does the text have a flag, without being a map of YAML? */
bool mics_flags_recognise(const char *text, size_t size)
{
    const char *const end = text + size;

    for (const char *at = text; at < end; at++) {
        if ((at == text || is_blank(at[-1])) && *at == '#')
            while (at < end && *at != '\n')
                at++;
        else if (*at == ':' && at + 1 < end && is_blank(at[1]))
            return false;
        else if ((at == text || is_blank(at[-1])) && end - at > 2 && is_flag(at))
            return true;
    }
    return false;
}
