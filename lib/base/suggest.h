/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.h - the known names that are closest to an unknown one: "did you mean ...?". */
#ifndef MICS_BASE_SUGGEST_H
#define MICS_BASE_SUGGEST_H

#include <stddef.h>

enum { MICS_SUGGESTIONS_MAX = 3 };

struct mics_suggestions {
    const char *wanted;
    const char *names[MICS_SUGGESTIONS_MAX]; /* best first */
    unsigned distances[MICS_SUGGESTIONS_MAX];
    size_t count;
};

/* The strings are borrowed: `wanted` and every offered name must outlive the structure. */
void mics_suggest_init(struct mics_suggestions *suggestions, const char *wanted);

/* Keep `name` if it is one of the closest: the edit distance is at most a third of its length, or
 * one of the two names contains the other. */
void mics_suggest_offer(struct mics_suggestions *suggestions, const char *name);

/* Format the names into buf as "a, b, c", truncated to `size`. Returns buf. */
char *mics_suggest_format(const struct mics_suggestions *suggestions, char *buf, size_t size);

#endif
