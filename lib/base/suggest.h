/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - the names that somebody may have meant. */
#ifndef MICS_BASE_SUGGEST_H
#define MICS_BASE_SUGGEST_H

#include <stddef.h>

enum { MICS_NEAR_MAX = 3 };

struct mics_near {
    const char *wanted;
    const char *names[MICS_NEAR_MAX]; /* best first */
    unsigned distances[MICS_NEAR_MAX];
    size_t count;
};

/* `wanted` and every offered name must live as long as the structure. */
void mics_near_init(struct mics_near *near, const char *wanted);

/* Keep `name` if it is among the nearest: few edits away (at most a third of its length), or one of
 * the two begins with or contains the other. */
void mics_near_offer(struct mics_near *near, const char *name);

/* "a, b, c" in buf, cut where it does not fit; returns buf. */
char *mics_near_list(const struct mics_near *near, char *buf, size_t size);

#endif
