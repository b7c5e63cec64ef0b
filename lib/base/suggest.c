/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c - Levenshtein distance between short names, ignoring case. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Two for each edit; a name in another one is between one edit and two. */
enum { MAX_LENGTH = 64, CONTAINED = 3, TOO_FAR = 1000 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    const unsigned ab = a < b ? a : b;

    return ab < c ? ab : c;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edits (insert, delete, replace, swap neighbours) from a to b; row[j] is the distance to the first
 * j characters of b. */
static unsigned edits(const char *a, const char *b)
{
    const size_t length = strlen(b);
    unsigned row[MAX_LENGTH + 1], above[MAX_LENGTH + 1] = {0}; /* the row before the last */

    if (length > MAX_LENGTH || strlen(a) > MAX_LENGTH)
        return TOO_FAR;
    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i]; i++) {
        unsigned diagonal = row[0], corner = 0; /* above[j - 1], before it is overwritten */

        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < length; j++) {
            const unsigned differs = !same(a[i], b[j]);
            unsigned best = min3(row[j] + 1, row[j + 1] + 1, diagonal + differs);

            if (i > 0 && j > 0 && same(a[i], b[j - 1]) && same(a[i - 1], b[j]))
                best = min3(best, best, corner + 1);
            corner = above[j];
            above[j] = diagonal;
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[length];
}

/* Letters and digits only: "Llama-2-7b" and "llama2-7b" are one name. */
static const char *squeeze(const char *text, char out[MAX_LENGTH + 1])
{
    size_t used = 0;

    for (; *text && used < MAX_LENGTH; text++)
        if (isalnum((unsigned char)*text))
            out[used++] = *text;
    out[used] = '\0';
    return out;
}

/* See CONTAINED. */
static unsigned distance_of(const char *wanted, const char *name)
{
    const unsigned found = edits(wanted, name);

    if (strcasecmp(wanted, name) == 0)
        return 0;
    const bool near = found * 3 <= strlen(name),
               has = strlen(wanted) >= 2 && (strcasestr(name, wanted) || strcasestr(wanted, name));

    if (near && !(has && found > 1))
        return 2 * found;
    return has ? CONTAINED : TOO_FAR;
}

static unsigned distance(const char *wanted, const char *name)
{
    char squeezed[2][MAX_LENGTH + 1];
    const unsigned plain = distance_of(wanted, name);
    const unsigned letters = distance_of(squeeze(wanted, squeezed[0]), squeeze(name, squeezed[1]));

    return letters < plain ? letters : plain;
}

void mics_suggest_init(struct mics_suggestions *suggestions, const char *wanted)
{
    *suggestions = (struct mics_suggestions){.wanted = wanted};
}

void mics_suggest_offer(struct mics_suggestions *suggestions, const char *name)
{
    const unsigned edit_distance = distance(suggestions->wanted, name);
    size_t at = suggestions->count;

    if (edit_distance == TOO_FAR)
        return;
    while (at > 0 && suggestions->distances[at - 1] > edit_distance)
        at--;
    if (at == MICS_SUGGEST_MAX)
        return;
    if (suggestions->count < MICS_SUGGEST_MAX)
        suggestions->count++;
    for (size_t i = suggestions->count - 1; i > at; i--) {
        suggestions->names[i] = suggestions->names[i - 1];
        suggestions->distances[i] = suggestions->distances[i - 1];
    }
    suggestions->names[at] = name;
    suggestions->distances[at] = edit_distance;
}

char *mics_suggest_list(const struct mics_suggestions *suggestions, char *buf, size_t size)
{
    const bool is_same = suggestions->count > 0 && suggestions->distances[0] == 0;
    const size_t count = is_same ? 1 : suggestions->count;
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        used +=
            (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", suggestions->names[i]);
    return buf;
}
