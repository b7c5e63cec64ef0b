/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch_reader.h - the sequences that a rank trains on, read a step ahead, and sums of what was
 * read.
 *
 * While a step computes, a thread reads the sequences of the next one into memory, so that a step
 * never waits for a disk that is fast enough.
 *
 * The sums tell a resumed run whether the data that were trained on are still the same. Samples
 * since `first` are divided into ranges of `each`; the sum of a range is that of the XXH64 of its
 * samples (tokens and targets, seeded with the sample's number), modulo 2^64, so any rank may add
 * any sample; one that was left out because it cannot be read counts as one without tokens. When
 * there are more samples than MICS_READ_RANGES ranges hold, pairs of ranges become
 * one.
 */
#ifndef MICS_TRAIN_BATCH_READER_H
#define MICS_TRAIN_BATCH_READER_H

#include "base/threads.h"
#include "comm/comm.h"
#include "data/data.h"

#include <jansson.h>

enum { MICS_READ_RANGES = 64 };

struct mics_read_sums {
    uint64_t first, each; /* each: a power of two */
    uint64_t sums[MICS_READ_RANGES];
};

/* Which of a step's sequences are a rank's. */
struct mics_reader_options {
    const struct mics_data *data;
    uint32_t rank, world_size, micro_batch, micro_steps;
    /* Samples without targets, in the order of training, from 1; 0: none. */
    uint64_t skip_first, skip_last;
    /* Called before the sequences of a step are read, in the thread that does; may sleep. For
     * tests. NULL: none. */
    void (*before_read)(void *context);
    void *context;
};

struct mics_reader {
    struct mics_reader_options options;
    int32_t *tokens, *targets; /* [micro_steps * micro_batch, T] of the step that begins with... */
    uint64_t first;            /* ...this sample, if `full` */
    uint64_t *hashes;          /* [micro_steps * micro_batch] */
    bool full;
    struct mics_background_task task;
    struct mics_read_sums sums; /* over what this rank took, and what it began with */
};

enum mics_status mics_reader_open(struct mics_reader *reader,
                                  const struct mics_reader_options *options, struct mics_err *err);
void mics_reader_close(struct mics_reader *reader); /* all zeros is fine */

/* Have the step whose first sample is `first` in memory, and add it to the sums. After a failure
 * the step is there all the same, without targets. */
enum mics_status mics_reader_take(struct mics_reader *reader, uint64_t first, struct mics_err *err);
/* Begin to read the step after the one that was taken last. */
void mics_reader_ahead(struct mics_reader *reader);
/* tokens[micro_batch * T] and targets of a micro-step of what was taken, until the next is read. */
void mics_reader_copy(const struct mics_reader *reader, uint32_t micro_step, int32_t *tokens,
                      int32_t *targets);

/* Tokens that are not learned, for what is not read. */
void mics_mask_tokens(uint64_t count, int32_t *tokens, int32_t *targets);

/* Sums of a run that begins at sample `first`. */
struct mics_read_sums mics_read_sums_from(uint64_t first);
/* sums of all ranks together. Collective. */
enum mics_status mics_read_sums_add(struct mics_comm *comm, const struct mics_read_sums *own,
                                    struct mics_read_sums *out, struct mics_err *err);
/* Read the samples in [first, samples) again, shared by the ranks, and compare; of very many, some
 * ranges only. MICS_ERR_FORMAT: a range differs. Collective. */
enum mics_status mics_read_sums_check(struct mics_comm *comm, const struct mics_data *data,
                                      const struct mics_read_sums *sums, uint64_t samples,
                                      struct mics_err *err);

json_t *mics_read_sums_to_json(const struct mics_read_sums *sums); /* NULL: out of memory */
enum mics_status mics_read_sums_from_json(const json_t *doc, struct mics_read_sums *out,
                                          struct mics_err *err);

#endif
