/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.h - similar names to suggest in place of an unknown one. */
#ifndef MICS_BASE_SUGGEST_H
#define MICS_BASE_SUGGEST_H

#include <stddef.h>

enum { MICS_SUGGEST_MAX = 3 };

struct mics_suggestions {
    const char *wanted;
    const char *names[MICS_SUGGEST_MAX]; /* best first */
    unsigned distances[MICS_SUGGEST_MAX];
    size_t count;
};

/* `wanted` and every offered name must live as long as the structure. */
void mics_suggest_init(struct mics_suggestions *suggestions, const char *wanted);

/* Keep `name` if it is one of the most similar: a few edits away (at most a third of its length),
 * or one of the two contains the other. Case and punctuation do not matter. */
void mics_suggest_offer(struct mics_suggestions *suggestions, const char *name);

/* Write "a, b, c" to buf, truncated to its size; only "a" if that differs by punctuation at most.
 * Returns buf. */
char *mics_suggest_list(const struct mics_suggestions *suggestions, char *buf, size_t size);

#endif
