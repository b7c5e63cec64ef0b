/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notice.h - runs a command that says whether the cloud is about to reclaim this machine.
 *
 * Clouds announce that they take a machine back some time before they do, each in its own way. A
 * thread runs the command by a shell every few seconds. Its exit status is the answer: 0, there is
 * a notice, and the first line that it prints is the reason; 1, there is none; anything else, or no
 * answer in time, is a problem, after which the command is asked again.
 */
#ifndef MICS_TRAIN_WATCH_NOTICE_H
#define MICS_TRAIN_WATCH_NOTICE_H

#include "base/err.h"

struct mics_notice;

struct mics_notice_options {
    const char *command; /* for sh -c */
    double every_s;      /* > 0: between two runs of the command */
    double limit_s;      /* > 0: a run is killed after this time */
    /* Both are called in the thread. A notice is the last call. A problem is reported once, and
     * again only after a run without a problem. `text` has no line end. */
    void (*on_notice)(void *context, const char *text);
    void (*on_problem)(void *context, const char *text);
    void *context;
};

/* What `options` points to outlives the notice. */
enum mics_status mics_notice_start(const struct mics_notice_options *options,
                                   struct mics_notice **out, struct mics_err *err);
/* Waits for a run of the command that is under way, at most limit_s. NULL is fine. */
void mics_notice_stop(struct mics_notice *notice);

#endif
