/* SPDX-License-Identifier: Apache-2.0 */
/* data_train.h - mics-data train: make a tokenizer from text. */
#ifndef MICS_CMD_DATA_TRAIN_H
#define MICS_CMD_DATA_TRAIN_H

#include "base/err.h"
#include "base/progress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATA_TRAIN_VOCAB_SIZE 32768 /* defaults */
#define DATA_TRAIN_MIN_COUNT  2

struct data_train_request {
    const char *const *patterns; /* of text files, see mics_corpus_find() */
    size_t pattern_count;
    bool binary;                           /* files are taken as they are */
    const char *folder;                    /* receives tokenizer.json and tokenizer_config.json */
    uint64_t vocab_size, min_count;        /* 0: the default */
    mics_progress_callback *progress;      /* NULL is fine */
    void (*clear_progress)(void *context); /* before anything is printed; NULL is fine */
    void *progress_context;
};

/* Train, write the files, and note on standard error what came out. */
enum mics_status data_train(const struct data_train_request *request, struct mics_err *err);

#endif
