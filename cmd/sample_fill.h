/* SPDX-License-Identifier: Apache-2.0 */
/* sample_fill.h - the likeliest tokens of masks: mics-sample --fill. */
#ifndef MICS_CMD_SAMPLE_FILL_H
#define MICS_CMD_SAMPLE_FILL_H

#include "data/tokenizer.h"
#include "host/pool.h"
#include "sample/weights.h"

#include <stdio.h>

struct sample_fill {
    const struct mics_weights *weights;
    const struct mics_tokenizer *tokenizer;
    struct mics_pool *pool;
    uint32_t mask;  /* the token */
    uint32_t count; /* candidates of each mask */
    uint32_t vocab; /* tokens that may be candidates */
    bool json;
};

/* Print the candidates of each mask among ids[count] of prompt `number`, from 1 on, whose text is
 * text[size]: a line for each with the mask's number, the probability, the id and the token, or
 * with `json` one line for all. MICS_ERR_FORMAT: there is no mask, or the prompt is not for the
 * model. */
enum mics_status sample_fill_print(const struct sample_fill *fill, uint64_t number,
                                   const char *text, size_t size, const uint32_t *ids, size_t count,
                                   FILE *out, struct mics_err *err);

#endif
