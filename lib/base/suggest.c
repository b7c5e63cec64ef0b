/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c - Levenshtein distance of short names; case does not count. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LENGTH = 64, TOO_FAR = 1000 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    const unsigned ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/* Edits (insert, delete, replace) from a to b; row[j] is the distance to the first j letters of
 * b. */
static unsigned edits(const char *a, const char *b)
{
    const size_t length = strlen(b);
    unsigned row[MAX_LENGTH + 1];

    if (length > MAX_LENGTH || strlen(a) > MAX_LENGTH)
        return TOO_FAR;
    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < length; j++) {
            const unsigned differs = tolower((unsigned char)a[i]) != tolower((unsigned char)b[j]);
            const unsigned best = min3(row[j] + 1, row[j + 1] + 1, diagonal + differs);

            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[length];
}

static unsigned distance(const char *wanted, const char *name)
{
    const unsigned found = edits(wanted, name);

    if (strlen(wanted) >= 2 && (strcasestr(name, wanted) || strcasestr(wanted, name)))
        return 1;
    return found * 3 <= strlen(name) ? found : TOO_FAR;
}

void mics_suggest_init(struct mics_suggestions *suggestions, const char *wanted)
{
    *suggestions = (struct mics_suggestions){.wanted = wanted};
}

void mics_suggest_offer(struct mics_suggestions *suggestions, const char *name)
{
    const unsigned far = distance(suggestions->wanted, name);
    size_t place = suggestions->count;

    if (far == TOO_FAR)
        return;
    while (place > 0 && suggestions->distances[place - 1] > far)
        place--;
    if (place == MICS_SUGGESTIONS_MAX)
        return;
    if (suggestions->count < MICS_SUGGESTIONS_MAX)
        suggestions->count++;
    for (size_t i = suggestions->count - 1; i > place; i--) {
        suggestions->names[i] = suggestions->names[i - 1];
        suggestions->distances[i] = suggestions->distances[i - 1];
    }
    suggestions->names[place] = name;
    suggestions->distances[place] = far;
}

char *mics_suggest_format(const struct mics_suggestions *suggestions, char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < suggestions->count && used < size; i++)
        used +=
            (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", suggestions->names[i]);
    return buf;
}
