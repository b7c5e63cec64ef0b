/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - generates text from the model, one token at a time. */
#ifndef MICS_TRAIN_SAMPLE_H
#define MICS_TRAIN_SAMPLE_H

#include "data/tokenizer.h"
#include "engine/engine.h"

struct mics_sample_options {
    const struct mics_tokenizer *tokenizer; /* NULL: bytes */
    uint32_t count;                         /* bytes, and tokens, at most */
    double temperature;                     /* 0: always the most likely token */
    uint64_t seed;
    uint32_t seq, vocab_size; /* of the plan and the model */
};

/* Write up to `count` bytes and a NUL to text[count + 1]; an end of document becomes a newline, a
 * zero byte '?'. The same text on all ranks. Collective; all steps must be collected. */
enum mics_status mics_sample_generate(struct mics_engine *engine,
                                      const struct mics_sample_options *options, char *text,
                                      struct mics_err *err);

#endif
