/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abort_marker.h - a rank that cannot go on tells the others, long before they would meet it.
 *
 * They share no word while they work, but a folder: a file in it means halt. Private to the conversion.
 */
#ifndef MICS_CKPT_CONVERT_ABORT_MARKER_H
#define MICS_CKPT_CONVERT_ABORT_MARKER_H

#include "ckpt/folder.h"

#include <stdbool.h>

#define MICS_HALT_NAME "halt"

struct mics_halt {
    char path[MICS_PATH_MAX];
    bool alone, told;
};

/* One rank alone tells nobody. */
enum mics_status mics_halt_init(struct mics_halt *halt, const char *folder, int ranks,
                                struct mics_err *err);
void mics_halt_tell(struct mics_halt *halt);
bool mics_halt_heard(const struct mics_halt *halt);

#endif
