/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.h - text drawn from the model, one byte after another.
 */
#ifndef MICS_TRAIN_SAMPLE_H
#define MICS_TRAIN_SAMPLE_H

#include "engine/engine.h"

struct mics_sample_options {
    uint32_t count;     /* bytes */
    double temperature; /* 0: the likeliest every time */
    uint64_t seed;
    uint32_t seq, vocab_size; /* of the plan and the model */
};

/* Draw; an end of document becomes a newline, a NUL '?'. text[count + 1] is the caller's. The same text on all
 * ranks. Collective; all steps must be collected. */
enum mics_status mics_sample(struct mics_engine *engine, const struct mics_sample_options *options,
                             char *text, struct mics_err *err);

/* Replace what a terminal should not be sent - control characters but newline and tab, bytes that are no
 * UTF-8 - by '?'. */
void mics_sample_make_printable(char *text);

/* Draw from softmax(logits / temperature) over [0, count) by `uniform` in [0, 1). */
uint32_t mics_sample_pick(const float *logits, uint32_t count, double temperature, double uniform);

#endif
