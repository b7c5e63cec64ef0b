/* SPDX-License-Identifier: Apache-2.0 */
/*
 * precompiled.c - the normalizer that SentencePiece writes into its models: a double-array trie of
 * characters and sequences of them, and the texts that replace these.
 *
 * As in the tokenizers library, a grapheme cluster of less than 6 bytes is replaced as a whole if
 * any text of the trie begins it, of several the shortest; else each of its characters is.
 */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define CLUSTER_BYTES 6 /* the first size that is not looked up as a whole */

struct mics_charsmap {
    uint32_t *units;
    size_t count;
    char *texts; /* with a NUL after each, and one at the end */
    size_t size;
    bool changes_ascii;
};

/* ---- the double array ---- */

static bool has_leaf(uint32_t unit)
{
    return (unit >> 8 & 1) != 0;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The node behind `base` for a byte; SIZE_MAX: there is none. */
static size_t step(const struct mics_charsmap *map, size_t base, unsigned char byte)
{
    const size_t at = base ^ byte;

    return byte != 0 && at < map->count && (map->units[at] & (1u << 31 | 0xff)) == byte ? at
                                                                                        : SIZE_MAX;
}

/* What replaces the shortest text of the trie that begins text[size]; NULL: none does. */
static const char *find(const struct mics_charsmap *map, const unsigned char *text, size_t size)
{
    size_t base = offset_of(map->units[0]);

    for (size_t i = 0; i < size; i++) {
        const size_t at = step(map, base, text[i]);

        if (at == SIZE_MAX)
            return NULL;
        base = at ^ offset_of(map->units[at]);
        if (has_leaf(map->units[at]))
            return map->texts + (map->units[base] & ~(1u << 31));
    }
    return NULL;
}

/* Does every node that can be reached lead to nodes and texts that there are? */
static bool check_nodes(const struct mics_charsmap *map)
{
    unsigned char *seen = calloc(map->count, 1);
    size_t *open = malloc(map->count * sizeof *open), count = 0;
    bool valid = seen && open;

    if (valid)
        open[count++] = 0;
    while (valid && count > 0) {
        const size_t at = open[--count];
        const uint32_t unit = map->units[at];
        const size_t base = at ^ offset_of(unit);

        if (has_leaf(unit)) {
            const size_t text = base < map->count ? map->units[base] & ~(1u << 31) : SIZE_MAX;

            valid = text < map->size && (map->texts[text] & 0xc0) != 0x80;
        }
        for (unsigned byte = 1; byte < 256; byte++) {
            const size_t next = step(map, base, (unsigned char)byte);

            if (next != SIZE_MAX && !seen[next]) {
                seen[next] = 1;
                open[count++] = next;
            }
        }
    }
    free(seen);
    free(open);
    return valid;
}

void mics_charsmap_free(struct mics_charsmap *map)
{
    if (map)
        free(map->units);
    if (map)
        free(map->texts);
    free(map);
}

static enum mics_status damaged(struct mics_err *err, const char *what)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "precompiled_charsmap: %s", what);
}

static enum mics_status fill(struct mics_charsmap *map, const unsigned char *bytes, size_t size,
                             struct mics_err *err)
{
    map->units = malloc(map->count * sizeof *map->units);
    map->texts = calloc(map->size + 1, 1);
    if (!map->units || !map->texts)
        return mics_err_nomem(err);
    for (size_t i = 0; i < map->count; i++) {
        const unsigned char *unit = bytes + 4 + 4 * i;

        map->units[i] = (uint32_t)unit[0] | (uint32_t)unit[1] << 8 | (uint32_t)unit[2] << 16 |
                        (uint32_t)unit[3] << 24;
    }
    memcpy(map->texts, bytes + size - map->size, map->size);
    if (!mics_utf8_check(map->texts, map->size, NULL))
        return damaged(err, "the texts are not UTF-8");
    if (!check_nodes(map))
        return damaged(err, "a node leads nowhere");
    for (unsigned char c = ' '; c < 0x7f; c++)
        map->changes_ascii = map->changes_ascii || find(map, &c, 1);
    return MICS_OK;
}

enum mics_status mics_charsmap_new(const void *bytes, size_t size, struct mics_charsmap **out,
                                   struct mics_err *err)
{
    const unsigned char *head = bytes;
    uint32_t trie = 0;
    enum mics_status status;

    *out = NULL;
    if (size >= 4)
        trie = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
               (uint32_t)head[3] << 24;
    if (size < 8 || trie < 4 || trie % 4 != 0 || trie > size - 4)
        return damaged(err, "the size of its trie is wrong");
    *out = calloc(1, sizeof **out);
    if (!*out)
        return mics_err_nomem(err);
    (*out)->count = trie / 4;
    (*out)->size = size - 4 - trie;
    status = fill(*out, bytes, size, err);
    if (status == MICS_OK)
        return MICS_OK;
    mics_charsmap_free(*out);
    *out = NULL;
    return status;
}

bool mics_charsmap_changes_ascii(const struct mics_charsmap *map)
{
    return map->changes_ascii;
}

/* ---- grapheme clusters (Unicode Standard Annex 29) ---- */

/* As in graphemes.inc; 'c' and 'l' CR and LF, 'v' and 't' syllables of Hangul that end with a vowel
 * or a consonant, ' ' others. */
static char class_of(uint32_t character)
{
    static const struct mics_char_range ranges[] = {
#include "data/tokenizer/graphemes.inc"
    };

    if (character < 0x80) {
        if (character >= 0x20 && character != 0x7f)
            return ' ';
        return character == '\r' ? 'c' : character == '\n' ? 'l' : 'C';
    }
    if (character >= 0xac00 && character <= 0xd7a3)
        return (character - 0xac00) % 28 == 0 ? 'v' : 't';
    return mics_char_range_class(ranges, sizeof ranges / sizeof *ranges, character);
}

/* InCB=Linker: conjoins consonants. */
static bool is_linker(uint32_t character)
{
    static const uint32_t linkers[] = {0x94d,   0x9cd,   0xacd,   0xb4d,   0xc4d,   0xd4d,  0x1039,
                                       0x17d2,  0x1a60,  0x1b44,  0x1bab,  0xa9c0,  0xaaf6, 0x10a3f,
                                       0x11133, 0x113d0, 0x1193e, 0x11a47, 0x11a99, 0x11f42};

    for (size_t i = 0; i < sizeof linkers / sizeof linkers[0]; i++)
        if (character == linkers[i])
            return true;
    return false;
}

/* What a cluster has come to. */
struct cluster {
    char last;        /* class of its last character */
    bool pictograph;  /* a pictograph, and extending characters behind it */
    bool joined;      /* and then a joiner */
    bool consonant;   /* a consonant, and extending characters behind it */
    bool linked;      /* with a linker among them */
    unsigned regions; /* regional indicators at its end */
};

/* Does a character of a class go on with the cluster? */
static bool goes_on(const struct cluster *cluster, char class)
{
    const char last = cluster->last;

    if (last == 'c')
        return class == 'l';
    if (strchr("Cl", last) || strchr("Ccl", class))
        return false;
    if ((last == 'L' && strchr("LVvt", class)) || (strchr("vV", last) && strchr("VT", class)) ||
        (strchr("tT", last) && class == 'T'))
        return true;
    if (strchr("EZS", class) || last == 'P')
        return true;
    if (class == 'K')
        return cluster->consonant && cluster->linked;
    if (class == 'X')
        return cluster->joined;
    return class == 'R' && last == 'R' && cluster->regions % 2 == 1;
}

static void add_to_cluster(struct cluster *cluster, char class, uint32_t character)
{
    const bool extends = class == 'E' || class == 'Z';

    cluster->joined = class == 'Z' && cluster->pictograph;
    cluster->pictograph = class == 'X' || (class == 'E' && cluster->pictograph);
    if (class == 'K')
        cluster->consonant = true;
    else
        cluster->consonant = cluster->consonant && extends && character != 0x200c;
    cluster->linked =
        class != 'K' && cluster->consonant && (cluster->linked || is_linker(character));
    cluster->regions = class == 'R' ? cluster->regions + 1 : 0;
    cluster->last = class;
}

/* Bytes of the cluster that text[size] begins with. */
static size_t cluster_length(const unsigned char *text, size_t size)
{
    struct cluster cluster = {.last = ' '};
    uint32_t character;
    size_t at = mics_utf8_next(text, &character);

    add_to_cluster(&cluster, class_of(character), character);
    while (at < size) {
        const unsigned length = mics_utf8_next(text + at, &character);
        const char class = class_of(character);

        if (!goes_on(&cluster, class))
            break;
        add_to_cluster(&cluster, class, character);
        at += length;
    }
    return at;
}

/* ---- normalizing ---- */

static enum mics_status apply_cluster(const struct mics_charsmap *map, const unsigned char *text,
                                      size_t size, struct mics_text *out)
{
    const char *whole = size < CLUSTER_BYTES ? find(map, text, size) : NULL;
    enum mics_status status = MICS_OK;
    uint32_t character;

    if (whole)
        return mics_text_append(out, whole, strlen(whole));
    for (size_t i = 0, length; i < size && status == MICS_OK; i += length) {
        length = mics_utf8_next(text + i, &character);

        const char *found = find(map, text + i, length);

        status = found ? mics_text_append(out, found, strlen(found))
                       : mics_text_append(out, text + i, length);
    }
    return status;
}

enum mics_status mics_charsmap_apply(const struct mics_charsmap *map, const unsigned char *text,
                                     size_t size, struct mics_text *out)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0, end; i < size && status == MICS_OK; i = end) {
        /* Printable ASCII is a cluster unless something else is behind it. */
        end = i;
        while (!map->changes_ascii && end < size && text[end] >= ' ' && text[end] < 0x7f &&
               (end + 1 == size || text[end + 1] < 0x80))
            end++;
        if (end > i) {
            status = mics_text_append(out, text + i, end - i);
        } else {
            end += cluster_length(text + i, size - i);
            status = apply_cluster(map, text + i, end - i, out);
        }
    }
    return status;
}
