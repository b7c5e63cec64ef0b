/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/foreign/keys.h"

#include "base/suggest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PATH = 160, NAME = 80, VALUE = 40, WHY = 240 };

#define MAX_BATCH 0x1p40 /* that of mics-plan --global-batch */

const char *mics_verdict_name(enum mics_verdict verdict)
{
    static const char *const names[MICS_VERDICTS] = {"taken", "taken differently", "ignored",
                                                     "refused"};

    return names[verdict];
}

void mics_keys_fail(struct mics_keys *keys, const char *fmt, ...)
{
    char text[512];
    va_list args;

    if (keys->status != MICS_OK)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    keys->status = mics_err_set(keys->err, MICS_ERR_FORMAT, "%s", text);
}

static void fail_nomem(struct mics_keys *keys)
{
    if (keys->status == MICS_OK)
        keys->status = mics_err_nomem(keys->err);
}

/* The row of a path, or "section.*". */
static const struct mics_key *find_key(const struct mics_keys *keys, const char *path)
{
    const struct mics_key *section = NULL;

    for (size_t i = 0; i < keys->count; i++) {
        const char *row = keys->table[i].path;
        const size_t length = strlen(row);

        if (strcmp(row, path) == 0)
            return &keys->table[i];
        if (row[length - 1] == '*' && strncmp(row, path, length - 1) == 0)
            section = &keys->table[i];
    }
    return section;
}

/* Are there keys below a path? */
static bool has_keys_below(const struct mics_keys *keys, const char *path)
{
    const size_t length = strlen(path);

    for (size_t i = 0; i < keys->count; i++)
        if (strncmp(keys->table[i].path, path, length) == 0 && keys->table[i].path[length] == '.')
            return true;
    return false;
}

/* As it is printed: short, without quotes, and without ".0". */
static void format_value(const json_t *value, char out[VALUE + 4])
{
    const bool quoted = json_is_string(value);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII |
                                       JSON_REAL_PRECISION(12));
    const char *begin = text ? text + quoted : "?";
    const size_t length = strlen(begin) - (text && quoted);

    if (json_is_number(value))
        snprintf(out, VALUE + 4, "%.12g", json_number_value(value));
    else
        snprintf(out, VALUE + 4, "%.*s%s", (int)(length > VALUE ? VALUE : length), begin,
                 length > VALUE ? "..." : "");
    free(text);
}

static void add_row(struct mics_keys *keys, const char *path, const char *value,
                    enum mics_verdict verdict, const char *why)
{
    if (json_array_size(keys->config->keys) >= KEYS_MAX)
        mics_keys_fail(keys, "more than %d keys", KEYS_MAX);
    if (keys->status == MICS_OK &&
        json_array_append_new(keys->config->keys,
                              json_pack("{s:s, s:s, s:s, s:s}", "key", path, "value", value,
                                        "verdict", mics_verdict_name(verdict), "why", why)) != 0)
        fail_nomem(keys);
}

/* Has a map, or what is in it, this key? With `on`: with the value true. */
static bool has_enabled(const json_t *value, bool on)
{
    const json_t *enabled = json_object_get(value, "enabled");
    const char *name;
    json_t *inner;

    if (on ? json_is_true(enabled) : enabled != NULL)
        return true;
    json_object_foreach((json_t *)(uintptr_t)value, name, inner)
    {
        if (has_enabled(inner, on))
            return true;
    }
    return false;
}

static bool is_off(const json_t *value, unsigned types)
{
    static const char *const words[] = {"", "none", "no", "false"};
    const char *text = json_string_value(value);

    for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    if (json_is_object(value) && (types & KEY_NESTED))
        return json_object_size(value) == 0 ||
               (has_enabled(value, false) && !has_enabled(value, true));
    if (json_is_object(value))
        return !json_is_true(json_object_get(value, "enabled"));
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static unsigned type_of(const json_t *value)
{
    const double number = json_number_value(value);

    switch (json_typeof(value)) {
    case JSON_TRUE:
    case JSON_FALSE:
        return KEY_BOOL;
    case JSON_INTEGER:
    case JSON_REAL:
        return number >= 0 && number < 0x1p63 && number == floor(number) ? KEY_COUNT | KEY_NUMBER
                                                                         : KEY_NUMBER;
    case JSON_STRING:
        return KEY_TEXT;
    case JSON_ARRAY:
        return KEY_LIST;
    default:
        return KEY_MAP;
    }
}

static const char *type_name(unsigned types)
{
    return types & KEY_BOOL     ? "true or false"
           : types & KEY_NUMBER ? "a number"
           : types & KEY_COUNT  ? "a whole number, 0 or more"
           : types & KEY_TEXT   ? "a text"
           : types & KEY_LIST   ? "a list"
                                : "a map";
}

static void add_key(struct mics_keys *keys, const struct mics_key *key, const char *path,
                    const json_t *value)
{
    const char *word = json_string_value(value);
    char text[VALUE + 4], why[WHY];

    format_value(value, text);
    if (json_is_null(value)) {
        add_row(keys, path, text, MICS_IGNORED, "not set");
    } else if (word && strcmp(word, "auto") == 0) {
        snprintf(why, sizeof why, "the program sets it%s%s", key->option ? "; here: " : "",
                 key->option ? key->option : "");
        add_row(keys, path, text, MICS_IGNORED, why);
    } else if (!(type_of(value) & key->types)) {
        mics_keys_fail(keys, "%s: expected %s, found '%s'", path, type_name(key->types), text);
    } else if (((key->types & KEY_OFF) && is_off(value, key->types)) ||
               ((key->types & KEY_ONE) && json_is_number(value) && json_number_value(value) == 1)) {
        add_row(keys, path, text, MICS_IGNORED, "off");
    } else {
        add_row(keys, path, text, key->verdict, key->why ? key->why : "");
    }
}

static size_t depth_of(const char *path)
{
    size_t depth = 1;

    for (; *path; path++)
        depth += *path == '.';
    return depth;
}

/* With the nearest name: of the same map, else a path that ends so. */
static void fail_unknown(struct mics_keys *keys, const char *path)
{
    char(*names)[PATH] = calloc(keys->count, sizeof *names);
    struct mics_suggestions similar;

    if (!names) {
        fail_nomem(keys);
        return;
    }
    mics_suggest_init(&similar, path);
    for (size_t i = 0; i < keys->count; i++) {
        size_t depth = depth_of(path), length = 0;

        for (const char *at = keys->table[i].path; *at && (*at != '.' || --depth > 0); at++)
            length++;
        snprintf(names[i], sizeof names[i], "%.*s", (int)length, keys->table[i].path);
        mics_suggest_offer(&similar, names[i]);
    }
    for (size_t i = 0; i < keys->count && similar.count == 0; i++)
        mics_suggest_offer(&similar, keys->table[i].path);
    if (similar.count > 0)
        mics_keys_fail(keys, "unknown key '%s' of %s; did you mean %s?", path,
                       keys->config->trainer, similar.names[0]);
    else
        mics_keys_fail(keys, "unknown key '%s' of %s", path, keys->config->trainer);
    free(names);
}

/* As deep as the paths of the table. */
static void walk_map(struct mics_keys *keys, const json_t *map, const char *prefix)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        char path[PATH];
        const struct mics_key *key;

        if (strlen(name) > NAME)
            mics_keys_fail(keys, "unknown key of %zu bytes", strlen(name));
        else if (strchr(name, '.'))
            mics_keys_fail(keys, "unknown key '%s': names have no points", name);
        if (keys->status != MICS_OK)
            return;
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", name);
        key = find_key(keys, path);
        if (key)
            add_key(keys, key, path, value);
        else if (!has_keys_below(keys, path))
            fail_unknown(keys, path);
        else if (json_is_object(value))
            walk_map(keys, value, path);
        else if (json_is_null(value))
            add_row(keys, path, "null", MICS_IGNORED, "not set");
        else
            mics_keys_fail(keys, "%s: expected a map", path);
    }
}

void mics_keys_walk(struct mics_keys *keys)
{
    walk_map(keys, keys->root, "");
}

/* The value at a path, whatever it is. */
static const json_t *find_value(const struct mics_keys *keys, const char *path)
{
    const json_t *value = keys->root;

    while (value && *path) {
        const size_t length = strcspn(path, ".");

        value = json_object_getn(value, path, length);
        path += length + (path[length] == '.');
    }
    return value;
}

bool mics_keys_has(const struct mics_keys *keys, const char *path)
{
    return find_value(keys, path) != NULL;
}

bool mics_keys_is_auto(const struct mics_keys *keys, const char *path)
{
    const char *text = json_string_value(find_value(keys, path));

    return text && strcmp(text, "auto") == 0;
}

const json_t *mics_keys_at(const struct mics_keys *keys, const char *path)
{
    const json_t *value = find_value(keys, path);

    return keys->status != MICS_OK || json_is_null(value) || mics_keys_is_auto(keys, path) ? NULL
                                                                                           : value;
}

double mics_keys_number(const struct mics_keys *keys, const char *path, double absent)
{
    const json_t *value = mics_keys_at(keys, path);

    return json_is_number(value) ? json_number_value(value) : absent;
}

uint64_t mics_keys_count(const struct mics_keys *keys, const char *path, uint64_t absent)
{
    const json_t *value = mics_keys_at(keys, path);

    if (!value || !(type_of(value) & KEY_COUNT))
        return absent;
    return json_is_integer(value) ? (uint64_t)json_integer_value(value)
                                  : (uint64_t)json_real_value(value);
}

bool mics_keys_bool(const struct mics_keys *keys, const char *path, bool absent)
{
    const json_t *value = mics_keys_at(keys, path);

    return json_is_boolean(value) ? json_is_true(value) : absent;
}

const char *mics_keys_text(const struct mics_keys *keys, const char *path, const char *absent)
{
    const json_t *value = mics_keys_at(keys, path);

    return json_is_string(value) ? json_string_value(value) : absent;
}

void mics_keys_expect_word(struct mics_keys *keys, const char *path, const char *words)
{
    const json_t *value = mics_keys_at(keys, path);
    const char *word = json_is_false(value) ? "no" : json_string_value(value);
    char text[VALUE + 4];

    if (!value)
        return;
    for (const char *at = words; word && *at;) {
        const size_t length = strcspn(at, "|");

        if (strlen(word) == length && strncmp(at, word, length) == 0)
            return;
        at += length + (at[length] == '|');
    }
    format_value(value, text);
    mics_keys_fail(keys, "%s: expected one of %s, found '%s'", path, words, text);
}

uint32_t mics_keys_size(struct mics_keys *keys, const char *path)
{
    const uint64_t count = mics_keys_count(keys, path, 1);

    if (count < 1 || count > INT32_MAX)
        mics_keys_fail(keys, "%s: expected a number from 1 to %d, found %llu", path, INT32_MAX,
                       (unsigned long long)count);
    return mics_keys_at(keys, path) ? (uint32_t)count : 0;
}

static void add_refusal(struct mics_keys *keys, const char *path, const char *value,
                        const char *why)
{
    struct mics_foreign_config *config = keys->config;
    const size_t length = strlen(config->refusals);

    config->refused++;
    snprintf(config->refusals + length, sizeof config->refusals - length, "%s%s %s: %s",
             length ? "; " : "", path, value, why);
}

static json_t *find_row(const struct mics_keys *keys, const char *path)
{
    size_t i;
    json_t *row;

    json_array_foreach(keys->config->keys, i,
                       row) if (strcmp(json_string_value(json_object_get(row, "key")), path) ==
                                0) return row;
    return NULL;
}

void mics_keys_say(struct mics_keys *keys, const char *path, enum mics_verdict verdict,
                   const char *fmt, ...)
{
    json_t *row = mics_keys_at(keys, path) ? find_row(keys, path) : NULL;
    char why[WHY];
    va_list args;

    if (!row)
        return;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (json_object_set_new(row, "verdict", json_string(mics_verdict_name(verdict))) != 0 ||
        json_object_set_new(row, "why", json_string(why)) != 0)
        fail_nomem(keys);
}

void mics_keys_say_section(struct mics_keys *keys, const char *section, enum mics_verdict verdict,
                           const char *why)
{
    const size_t length = strlen(section);
    size_t i;
    json_t *row;

    json_array_foreach(keys->config->keys, i, row)
    {
        const char *path = json_string_value(json_object_get(row, "key"));

        if (strncmp(path, section, length) == 0 && path[length] == '.')
            mics_keys_say(keys, path, verdict, "%s", why);
    }
}

void mics_keys_say_absent(struct mics_keys *keys, const char *path, enum mics_verdict verdict,
                          const char *fmt, ...)
{
    char why[WHY];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    add_row(keys, path, "(not there)", verdict, why);
}

/* Keys that nothing has been said of: those that another one, often a refused one, makes void. */
static void say_of_the_rest(struct mics_keys *keys)
{
    size_t i;
    json_t *row;

    json_array_foreach(keys->config->keys, i, row)
    {
        if (json_string_length(json_object_get(row, "why")) > 0)
            continue;
        if (json_object_set_new(row, "verdict", json_string(mics_verdict_name(MICS_IGNORED))) !=
                0 ||
            json_object_set_new(row, "why", json_string("void beside another setting")) != 0)
            fail_nomem(keys);
    }
}

void mics_keys_list_refusals(struct mics_keys *keys)
{
    size_t i;
    json_t *row;

    say_of_the_rest(keys);
    json_array_foreach(keys->config->keys, i,
                       row) if (strcmp(json_string_value(json_object_get(row, "verdict")),
                                       mics_verdict_name(MICS_REFUSED)) == 0)
        add_refusal(keys, json_string_value(json_object_get(row, "key")),
                    json_string_value(json_object_get(row, "value")),
                    json_string_value(json_object_get(row, "why")));
}

void mics_keys_set(struct mics_keys *keys, const char *option, json_t *value)
{
    if (keys->status != MICS_OK)
        json_decref(value);
    else if (json_object_set_new(keys->config->settings, option, value) != 0)
        fail_nomem(keys);
}

/* Whole numbers are written as such. */
static json_t *make_number(double value)
{
    return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value)
                                                         : json_real(value);
}

double mics_keys_take(struct mics_keys *keys, const char *path, const char *option, double absent)
{
    const double value = mics_keys_number(keys, path, absent);

    if (mics_keys_is_auto(keys, path))
        return -1;
    if (mics_keys_at(keys, path))
        mics_keys_say(keys, path, MICS_TAKEN, "mics-train --%s=%.12g", option, value);
    else if (!find_row(keys, path))
        mics_keys_say_absent(keys, path, MICS_TAKEN, "mics-train --%s=%.12g, the default of %s",
                             option, value, keys->config->trainer);
    mics_keys_set(keys, option, make_number(value));
    return value;
}

void mics_keys_take_clip(struct mics_keys *keys, const char *path, double norm)
{
    keys->config->clips = norm > 0;
    if (norm > 0)
        mics_keys_take(keys, path, "clip", 0);
    else
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --no-clip");
}

void mics_keys_set_batch(struct mics_keys *keys, const char *const names[3], uint64_t global,
                         uint64_t micro, uint64_t steps)
{
    const uint64_t ranks = mics_keys_ranks(keys);
    const double product =
        (double)(micro ? micro : 1) * (double)(steps ? steps : 1) * (double)ranks;
    const uint64_t known =
        product <= MAX_BATCH ? (micro ? micro : 1) * (steps ? steps : 1) * ranks : 0;

    if (known == 0 || global > (uint64_t)MAX_BATCH)
        mics_keys_fail(keys, "%s: more than %.0f sequences per step", names[0], MAX_BATCH);
    else if (global > 0 && micro > 0 && steps > 0 && global != known) {
        mics_keys_fail(keys, "%s %llu is not %s %llu x %s %llu x %llu ranks = %llu", names[0],
                       (unsigned long long)global, names[1], (unsigned long long)micro, names[2],
                       (unsigned long long)steps, (unsigned long long)ranks,
                       (unsigned long long)known);
    } else if (global > 0 && global % known != 0) {
        const uint64_t part = micro ? micro : steps ? steps : 1;

        if (part > 1)
            mics_keys_fail(keys, "%s %llu is no multiple of %s %llu x %llu ranks", names[0],
                           (unsigned long long)global, micro ? names[1] : names[2],
                           (unsigned long long)part, (unsigned long long)ranks);
        else
            mics_keys_fail(keys, "%s %llu is no multiple of the %llu ranks", names[0],
                           (unsigned long long)global, (unsigned long long)ranks);
    }
    if (keys->status != MICS_OK)
        return;
    if (global == 0 && micro > 0 && steps > 0)
        global = known;
    if (global > 0 && micro == 0 && steps > 0)
        micro = global / known;
    keys->config->global_batch = global;
    keys->config->micro_batch = (uint32_t)micro;
}

void mics_keys_take_offload(struct mics_keys *keys, const char *path)
{
    const json_t *value = mics_keys_at(keys, path);

    if (!value || is_off(value, 0))
        return;
    keys->config->offloads = true;
    if (strcmp(mics_keys_text(keys, path, ""), "nvme") == 0)
        mics_keys_say(keys, path, MICS_TAKEN_DIFFERENTLY,
                      "mics-plan --offload=optimizer, in host memory");
    else
        mics_keys_say(keys, path, MICS_TAKEN, "mics-plan --offload=optimizer");
}

void mics_keys_leave_params(struct mics_keys *keys, const char *path)
{
    const json_t *value = mics_keys_at(keys, path);

    if (value && !is_off(value, 0))
        mics_keys_say(keys, path, MICS_TAKEN_DIFFERENTLY,
                      "parameters stay on the GPUs; mics-plan --offload=optimizer");
}

void mics_keys_set_groups(struct mics_keys *keys, uint64_t p)
{
    struct mics_foreign_config *config = keys->config;

    if (p == 1)
        snprintf(config->strategy, sizeof config->strategy, "ddp");
    else if (p == mics_keys_ranks(keys))
        snprintf(config->strategy, sizeof config->strategy, "zero3");
    else
        snprintf(config->strategy, sizeof config->strategy, "mics:%llu", (unsigned long long)p);
}

void mics_keys_expect(struct mics_keys *keys, const char *path, uint64_t present, const char *what)
{
    const uint64_t count = mics_keys_count(keys, path, present);

    if (count != present)
        mics_keys_fail(keys, "%s is %llu, but the topology has %llu %s", path,
                       (unsigned long long)count, (unsigned long long)present, what);
    mics_keys_say(keys, path, MICS_TAKEN, "as the topology");
}
