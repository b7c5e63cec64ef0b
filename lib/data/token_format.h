/* SPDX-License-Identifier: Apache-2.0 */
/* token_format.h - what reader and writer of token files have to agree on. For lib/data only. */
#ifndef MICS_DATA_TOKEN_FORMAT_H
#define MICS_DATA_TOKEN_FORMAT_H

#include <stdint.h>

/* llm.c's files begin with 256 words of 32 bits: magic, version, number of tokens, zeros. */
#define MICS_LLMC_HEADER     1024
#define MICS_LLMC_EVAL_MAGIC 20240522 /* questions with several answers */

struct mics_llmc_form {
    int32_t magic, version;
    uint32_t width; /* bytes of an id */
};

extern const struct mics_llmc_form mics_llmc_forms[2]; /* of GPT-2, of Llama 3 */

#endif
