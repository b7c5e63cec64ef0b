/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_gguf.h - a tokenizer as the keys of GGUF by which llama.cpp makes the same ids. */
#ifndef MICS_DATA_TOKENIZER_GGUF_H
#define MICS_DATA_TOKENIZER_GGUF_H

#include "ckpt/format/gguf.h"
#include "data/disk_tokenizer.h"

#include <stdbool.h>

/* Add the keys of a tokenizer, which may be none, for a model of `vocab_size` ids; those that the
 * tokenizer does not have are unused. *no_default: it has several chat templates but no default,
 * and so the file has none. MICS_ERR_FORMAT: the model has fewer ids, or llama.cpp has no tokenizer
 * that makes the same ids, and why. */
enum mics_status mics_tokenizer_add_to_gguf(const struct mics_disk_tokenizer *from,
                                            uint32_t vocab_size, struct mics_gguf *gguf,
                                            bool *no_default, struct mics_err *err);

#endif
