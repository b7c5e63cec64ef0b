/* SPDX-License-Identifier: Apache-2.0 */
/* near.c - Levenshtein's distance over short names, without regard to case. */
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

/* Edits (insert, delete, replace) from a to b; row[j] is the distance to the first j letters of b. */
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

void mics_near_init(struct mics_near *near, const char *wanted)
{
    *near = (struct mics_near){.wanted = wanted};
}

void mics_near_offer(struct mics_near *near, const char *name)
{
    const unsigned far = distance(near->wanted, name);
    size_t place = near->count;

    if (far == TOO_FAR)
        return;
    while (place > 0 && near->distances[place - 1] > far)
        place--;
    if (place == MICS_NEAR_MAX)
        return;
    if (near->count < MICS_NEAR_MAX)
        near->count++;
    for (size_t i = near->count - 1; i > place; i--) {
        near->names[i] = near->names[i - 1];
        near->distances[i] = near->distances[i - 1];
    }
    near->names[place] = name;
    near->distances[place] = far;
}

char *mics_near_list(const struct mics_near *near, char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < near->count && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", near->names[i]);
    return buf;
}
