/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

#include "base/philox.h"

#include <assert.h>
#include <string.h>

#define FEISTEL_ROUNDS 6

/* Philox streams, distinct from those of the tensors (small integers). */
#define STREAM_PERMUTE ((uint64_t)0x6f72646572 << 24)
#define STREAM_OFFSET  ((uint64_t)0x7374617274 << 24)

static enum mics_status split_documents(struct mics_data *data, double val_fraction,
                                        struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < data->corpus.count; i++) {
        const struct mics_document *document = &data->corpus.documents[i];
        uint64_t val = (uint64_t)((double)document->size * val_fraction);
        uint64_t train = document->size - val;

        if (document->size == 0)
            continue;
        status = mics_tokens_append(&data->train, document->bytes, train, err);
        if (status == MICS_OK)
            status = mics_tokens_append(&data->val, document->bytes + train, val, err);
    }
    return status;
}

static enum mics_status count_windows(struct mics_data *data, struct mics_err *err)
{
    if (data->train.count < (uint64_t)data->seq + 1)
        return mics_err_set(
            err, MICS_ERR_FORMAT, "%llu tokens to train on are too few: one sequence needs %llu",
            (unsigned long long)data->train.count, (unsigned long long)data->seq + 1);
    data->train_windows = data->train.count / data->seq;
    data->val_windows = data->val.count ? (data->val.count - 1) / data->seq : 0;
    return MICS_OK;
}

enum mics_status mics_data_open(const struct mics_data_options *options, struct mics_data *data,
                                struct mics_err *err)
{
    enum mics_status status;

    *data = (struct mics_data){.seq = options->seq, .seed = options->seed};
    if (options->vocab_size < MICS_TOKEN_VOCAB_SIZE)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "token %d (end of document) is outside the model's vocabulary of %u",
                            MICS_TOKEN_END, options->vocab_size);
    status = mics_corpus_open(options->patterns, options->pattern_count, &data->corpus, err);
    if (status == MICS_OK)
        status = split_documents(data, options->val_fraction, err);
    if (status == MICS_OK)
        status = count_windows(data, err);
    if (status != MICS_OK)
        mics_data_close(data);
    return status;
}

void mics_data_close(struct mics_data *data)
{
    mics_tokens_free(&data->train);
    mics_tokens_free(&data->val);
    mics_corpus_close(&data->corpus);
}

/* Bits of each half of the smallest even power of two >= count. */
static unsigned half_bits(uint64_t count)
{
    unsigned bits = 1;

    while (bits < 31 && (uint64_t)1 << (2 * bits) < count)
        bits++;
    return bits;
}

static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned bits, uint64_t value)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t left = value >> bits, right = value & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t word = mics_philox_u64(seed, STREAM_PERMUTE + round, epoch << 32 ^ right);
        uint64_t next = left ^ (word & mask);

        left = right;
        right = next;
    }
    return left << bits | right;
}

uint64_t mics_data_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index)
{
    const unsigned bits = half_bits(count);

    assert(index < count && count <= (uint64_t)1 << 62);
    do
        index = feistel(seed, epoch, bits, index);
    while (index >= count);
    return index;
}

/* `seq` tokens from `position` on, and their targets, of which only the last is not a token too. */
static void read_window(const struct mics_tokens *from, uint64_t position, uint32_t seq,
                        int32_t *tokens, int32_t *targets)
{
    mics_tokens_read(from, position, seq, tokens);
    memcpy(targets, tokens + 1, (seq - 1) * sizeof *targets);
    mics_tokens_read(from, position + seq, 1, targets + seq - 1);
}

void mics_data_read_train(const struct mics_data *data, uint64_t sample, int32_t *tokens,
                          int32_t *targets)
{
    const uint64_t epoch = sample / data->train_windows, index = sample % data->train_windows;
    const uint64_t window = mics_data_permute(data->seed, epoch, data->train_windows, index);
    const uint64_t offset = mics_philox_u64(data->seed, STREAM_OFFSET, epoch) % data->train.count;

    read_window(&data->train, offset + window * data->seq, data->seq, tokens, targets);
}

void mics_data_read_val(const struct mics_data *data, uint64_t window, int32_t *tokens,
                        int32_t *targets)
{
    read_window(&data->val, window * data->seq, data->seq, tokens, targets);
}

uint64_t mics_data_batch_slot(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                              uint32_t micro_batch, uint32_t row)
{
    return ((uint64_t)micro_step * world_size + rank) * micro_batch + row;
}
