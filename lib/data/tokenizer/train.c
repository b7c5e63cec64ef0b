/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols of all pieces are in one array with a cell per byte: the first and the last byte of a
 * token have its id, what is between has GAP, and a GAP follows each piece. So the neighbours of a
 * token are found by their sizes. A pair keeps the positions where it occurred; those where it no
 * longer does are passed over when it is merged. Each step takes time in proportion to the
 * occurrences of the pair (Larsson and Moffat, "Offline Dictionary-Based Compression", 1999).
 */
#include "base/num.h"
#include "data/tokenizer/train_internal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define GAP  UINT32_MAX
#define NONE UINT32_MAX
/* The priority of a pair that has a rank already: the encoder merges it before any new one. */
#define AT_ONCE UINT64_MAX

struct pair {
    uint32_t left, right;
    uint64_t count; /* occurrences in the text */
    uint32_t *positions;
    uint32_t position_count, position_capacity;
    bool merged, touched;
};

/* A pair in the heap, with the count that it had. */
struct candidate {
    uint64_t count;
    uint32_t pair;
};

struct trainer {
    struct mics_vocabulary vocabulary;
    uint32_t *ids; /* hash table of the tokens by their bytes; NONE: empty */
    size_t id_capacity;
    const struct mics_piece_counts *pieces;
    uint32_t *symbols, *piece_of; /* per position */
    struct pair *pairs;
    uint32_t pair_count, pair_capacity;
    uint32_t *slots; /* hash table of the pairs by (left, right); NONE: empty */
    size_t slot_capacity;
    struct candidate *heap;
    size_t heap_count, heap_capacity;
    uint32_t *touched; /* pairs that became more frequent in this step */
    size_t touched_count, touched_capacity;
    uint64_t merged; /* occurrences that were merged, in the text */
    bool full;       /* out of memory */
};

/* Room for one more element, doubling. */
static bool reserve(void **array, size_t count, size_t *capacity, size_t element)
{
    const size_t wanted = *capacity ? 2 * *capacity : 16;
    void *grown;

    if (count < *capacity)
        return true;
    grown = realloc(*array, wanted * element);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static bool comes_before(const struct trainer *trainer, const struct candidate *a,
                         const struct candidate *b)
{
    const struct pair *left = &trainer->pairs[a->pair], *right = &trainer->pairs[b->pair];

    if (a->count != b->count)
        return a->count > b->count;
    return left->left != right->left ? left->left < right->left : left->right < right->right;
}

static void push(struct trainer *trainer, uint32_t pair, uint64_t count)
{
    const struct candidate added = {count, pair};
    size_t at = trainer->heap_count;

    if (!reserve((void **)&trainer->heap, at, &trainer->heap_capacity, sizeof added)) {
        trainer->full = true;
        return;
    }
    for (; at > 0 && comes_before(trainer, &added, &trainer->heap[(at - 1) / 2]); at = (at - 1) / 2)
        trainer->heap[at] = trainer->heap[(at - 1) / 2];
    trainer->heap[at] = added;
    trainer->heap_count++;
}

static struct candidate pop(struct trainer *trainer)
{
    struct candidate *heap = trainer->heap;
    const struct candidate top = heap[0], last = heap[--trainer->heap_count];
    size_t at = 0;

    for (size_t child = 1; child < trainer->heap_count; child = 2 * at + 1) {
        if (child + 1 < trainer->heap_count &&
            comes_before(trainer, &heap[child + 1], &heap[child]))
            child++;
        if (!comes_before(trainer, &heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static size_t pair_slot(const struct trainer *trainer, uint32_t left, uint32_t right)
{
    const uint64_t key[1] = {(uint64_t)left << 32 | right};
    size_t at = XXH64(key, sizeof key, 0) & (trainer->slot_capacity - 1);

    while (trainer->slots[at] != NONE && (trainer->pairs[trainer->slots[at]].left != left ||
                                          trainer->pairs[trainer->slots[at]].right != right))
        at = (at + 1) & (trainer->slot_capacity - 1);
    return at;
}

static uint32_t *new_slots(size_t capacity)
{
    uint32_t *slots = malloc(capacity * sizeof *slots);

    if (slots)
        memset(slots, 0xff, capacity * sizeof *slots);
    return slots;
}

static bool grow_slots(struct trainer *trainer)
{
    const size_t capacity = trainer->slot_capacity ? 2 * trainer->slot_capacity : 4096;
    uint32_t *slots = new_slots(capacity);

    if (!slots)
        return false;
    free(trainer->slots);
    trainer->slots = slots;
    trainer->slot_capacity = capacity;
    for (uint32_t i = 0; i < trainer->pair_count; i++)
        slots[pair_slot(trainer, trainer->pairs[i].left, trainer->pairs[i].right)] = i;
    return true;
}

/* The pair, which is new if it is not known; NULL: out of memory. */
static struct pair *find_pair(struct trainer *trainer, uint32_t left, uint32_t right)
{
    size_t capacity = trainer->pair_capacity, slot;

    if (trainer->pair_count >= trainer->slot_capacity / 2 && !grow_slots(trainer))
        return NULL;
    slot = pair_slot(trainer, left, right);
    if (trainer->slots[slot] == NONE) {
        if (trainer->pair_count == NONE - 1 ||
            !reserve((void **)&trainer->pairs, trainer->pair_count, &capacity,
                     sizeof *trainer->pairs))
            return NULL;
        trainer->pair_capacity = (uint32_t)mics_min_u64(capacity, NONE);
        trainer->pairs[trainer->pair_count] = (struct pair){.left = left, .right = right};
        trainer->slots[slot] = trainer->pair_count++;
    }
    return &trainer->pairs[trainer->slots[slot]];
}

/* Count a pair that begins at `position`, `weight` times in the text. */
static void add_pair(struct trainer *trainer, uint32_t left, uint32_t right, uint32_t position,
                     uint64_t weight)
{
    struct pair *pair = find_pair(trainer, left, right);
    size_t capacity = pair ? pair->position_capacity : 0;

    if (!pair ||
        !reserve((void **)&pair->positions, pair->position_count, &capacity,
                 sizeof *pair->positions) ||
        (!pair->touched && !reserve((void **)&trainer->touched, trainer->touched_count,
                                    &trainer->touched_capacity, sizeof *trainer->touched))) {
        trainer->full = true;
        return;
    }
    pair->position_capacity = (uint32_t)capacity;
    pair->positions[pair->position_count++] = position;
    pair->count += weight;
    if (!pair->touched)
        trainer->touched[trainer->touched_count++] = (uint32_t)(pair - trainer->pairs);
    pair->touched = true;
}

static void remove_pair(struct trainer *trainer, uint32_t left, uint32_t right, uint64_t weight)
{
    const uint32_t known = trainer->slots[pair_slot(trainer, left, right)];

    /* A pair that is unknown was not counted for want of memory. */
    if (known != NONE)
        trainer->pairs[known].count -= weight;
}

/* Queue the pairs that became more frequent. */
static void queue_touched(struct trainer *trainer)
{
    for (size_t i = 0; i < trainer->touched_count; i++) {
        struct pair *pair = &trainer->pairs[trainer->touched[i]];

        pair->touched = false;
        if (pair->count > 0)
            push(trainer, trainer->touched[i], pair->merged ? AT_ONCE : pair->count);
    }
    trainer->touched_count = 0;
}

static size_t id_slot(const struct trainer *trainer, const unsigned char *bytes, uint32_t size)
{
    const struct mics_vocabulary *vocabulary = &trainer->vocabulary;
    size_t at = XXH64(bytes, size, 0) & (trainer->id_capacity - 1);

    while (trainer->ids[at] != NONE) {
        const struct mics_trained_token *token = &vocabulary->tokens[trainer->ids[at]];

        if (token->size == size && memcmp(token->bytes, bytes, size) == 0)
            break;
        at = (at + 1) & (trainer->id_capacity - 1);
    }
    return at;
}

/* The id of the two tokens joined, which is new unless another pair gave the same bytes; NONE: out
 * of memory. */
static uint32_t join_tokens(struct trainer *trainer, uint32_t left, uint32_t right)
{
    struct mics_vocabulary *vocabulary = &trainer->vocabulary;
    const struct mics_trained_token a = vocabulary->tokens[left], b = vocabulary->tokens[right];
    unsigned char *bytes = malloc((size_t)a.size + b.size);
    size_t slot;

    if (!bytes)
        return NONE;
    memcpy(bytes, a.bytes, a.size);
    memcpy(bytes + a.size, b.bytes, b.size);
    slot = id_slot(trainer, bytes, a.size + b.size);
    if (trainer->ids[slot] != NONE) {
        free(bytes);
        return trainer->ids[slot];
    }
    vocabulary->tokens[vocabulary->token_count] =
        (struct mics_trained_token){bytes, a.size + b.size};
    trainer->ids[slot] = vocabulary->token_count;
    return vocabulary->token_count++;
}

static uint32_t token_size(const struct trainer *trainer, uint32_t id)
{
    return trainer->vocabulary.tokens[id].size;
}

/* Make `joined` of (left, right) at `position`, if they are still there. */
static void merge_at(struct trainer *trainer, uint32_t left, uint32_t right, uint32_t joined,
                     uint32_t position)
{
    uint32_t *symbols = trainer->symbols;
    const uint32_t middle = position + token_size(trainer, left);
    const uint32_t end = middle + token_size(trainer, right);
    const uint32_t before = symbols[position - 1];
    uint64_t weight;

    if (symbols[position] != left || symbols[middle] != right)
        return;
    weight = trainer->pieces->list[trainer->piece_of[position]].count;
    if (before != GAP) {
        remove_pair(trainer, before, left, weight);
        add_pair(trainer, before, joined, position - token_size(trainer, before), weight);
    }
    if (symbols[end] != GAP) {
        remove_pair(trainer, right, symbols[end], weight);
        add_pair(trainer, joined, symbols[end], position, weight);
    }
    symbols[middle - 1] = symbols[middle] = GAP;
    symbols[position] = symbols[end - 1] = joined;
    trainer->merged += weight;
}

static void add_merge(struct trainer *trainer, uint32_t left, uint32_t right)
{
    struct mics_vocabulary *vocabulary = &trainer->vocabulary;

    if (reserve((void **)&vocabulary->merges, vocabulary->merge_count, &vocabulary->merge_capacity,
                sizeof *vocabulary->merges))
        vocabulary->merges[vocabulary->merge_count++] = (struct mics_trained_merge){left, right};
    else
        trainer->full = true;
}

static int compare_positions(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

static void merge_pair(struct trainer *trainer, uint32_t index)
{
    struct pair *pair = &trainer->pairs[index];
    const uint32_t left = pair->left, right = pair->right, count = pair->position_count;
    uint32_t *positions = pair->positions;
    const uint32_t joined = join_tokens(trainer, left, right);

    if (joined == NONE) {
        trainer->full = true;
        return;
    }
    if (!pair->merged)
        add_merge(trainer, left, right);
    pair->merged = true;
    pair->positions = NULL;
    pair->position_count = pair->position_capacity = 0;
    /* In a run of equal tokens the first two are merged. */
    qsort(positions, count, sizeof *positions, compare_positions);
    for (uint32_t i = 0; i < count; i++)
        merge_at(trainer, left, right, joined, positions[i]);
    free(positions);
    trainer->pairs[index].count = 0;
    queue_touched(trainer);
}

/* Merge the most frequent pairs, until the vocabulary has `token_count` tokens or no pair occurs
 * `min_count` times. */
static void merge_pairs(struct trainer *trainer, uint32_t token_count, uint64_t min_count)
{
    while (!trainer->full && trainer->heap_count > 0) {
        const struct candidate top = pop(trainer);
        const struct pair *pair = &trainer->pairs[top.pair];

        if (top.count != AT_ONCE &&
            (trainer->vocabulary.token_count == token_count || top.count < min_count))
            return;
        if (pair->count == 0)
            continue;
        if (pair->merged || pair->count == top.count)
            merge_pair(trainer, top.pair);
        else
            push(trainer, top.pair, pair->count);
    }
}

/* The vocabulary of bytes, in the order of their characters. `byte_ids` are their ids. */
static bool add_bytes(struct trainer *trainer, uint32_t byte_ids[256])
{
    struct mics_vocabulary *vocabulary = &trainer->vocabulary;

    for (unsigned byte = 0; byte < 256; byte++) {
        byte_ids[byte] = 0;
        for (unsigned other = 0; other < 256; other++)
            byte_ids[byte] += mics_byte_character((unsigned char)other) <
                              mics_byte_character((unsigned char)byte);
    }
    vocabulary->token_count = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned char *bytes = malloc(1);

        if (!bytes)
            return false;
        *bytes = (unsigned char)byte;
        vocabulary->tokens[byte_ids[byte]] = (struct mics_trained_token){bytes, 1};
        trainer->ids[id_slot(trainer, bytes, 1)] = byte_ids[byte];
    }
    return true;
}

/* Lay out the pieces as symbols, and count their pairs. */
static void add_pieces(struct trainer *trainer, const uint32_t byte_ids[256])
{
    const struct mics_piece_counts *pieces = trainer->pieces;
    uint32_t at = 0;

    trainer->symbols[at++] = GAP;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct mics_piece_count *piece = &pieces->list[i];

        for (uint64_t j = 0; j < piece->size; j++) {
            trainer->piece_of[at] = (uint32_t)i;
            trainer->symbols[at++] = byte_ids[piece->bytes[j]];
            if (j > 0 && !trainer->full)
                add_pair(trainer, trainer->symbols[at - 2], trainer->symbols[at - 1], at - 2,
                         piece->count);
        }
        trainer->symbols[at++] = GAP;
    }
    queue_touched(trainer);
}

/* Allocate what is as long as the text of the pieces, or the vocabulary. */
static enum mics_status allocate(struct trainer *trainer, uint32_t vocab_size, struct mics_err *err)
{
    uint64_t positions = 1;

    for (size_t i = 0; i < trainer->pieces->count; i++)
        positions += trainer->pieces->list[i].size + 1;
    if (positions >= GAP)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the pieces that differ have 4 GiB or more: train on less text");
    for (trainer->id_capacity = 1024; trainer->id_capacity < 2 * (size_t)vocab_size;)
        trainer->id_capacity *= 2;
    trainer->ids = new_slots(trainer->id_capacity);
    trainer->vocabulary.tokens = calloc(vocab_size, sizeof *trainer->vocabulary.tokens);
    trainer->symbols = malloc(positions * sizeof *trainer->symbols);
    trainer->piece_of = malloc(positions * sizeof *trainer->piece_of);
    if (!trainer->ids || !trainer->vocabulary.tokens || !trainer->symbols || !trainer->piece_of ||
        !grow_slots(trainer))
        return mics_err_nomem(err);
    return MICS_OK;
}

static void release(struct trainer *trainer)
{
    for (uint32_t i = 0; trainer->vocabulary.tokens && i < trainer->vocabulary.token_count; i++)
        free(trainer->vocabulary.tokens[i].bytes);
    for (uint32_t i = 0; i < trainer->pair_count; i++)
        free(trainer->pairs[i].positions);
    free(trainer->vocabulary.tokens);
    free(trainer->vocabulary.merges);
    free(trainer->ids);
    free(trainer->symbols);
    free(trainer->piece_of);
    free(trainer->pairs);
    free(trainer->slots);
    free(trainer->heap);
    free(trainer->touched);
}

static enum mics_status train(struct trainer *trainer,
                              const struct mics_tokenizer_train_options *options,
                              struct mics_err *err)
{
    enum mics_status status = allocate(trainer, options->vocab_size, err);
    uint32_t byte_ids[256];

    if (status != MICS_OK)
        return status;
    if (!add_bytes(trainer, byte_ids))
        return mics_err_nomem(err);
    add_pieces(trainer, byte_ids);
    merge_pairs(trainer, options->vocab_size - 1, options->min_count);
    return trainer->full ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_tokenizer_train(const struct mics_corpus *corpus,
                                      const struct mics_tokenizer_train_options *options,
                                      struct mics_trained_tokenizer *out, struct mics_err *err)
{
    struct mics_piece_counts pieces = {.count = 0};
    struct trainer trainer = {.pieces = &pieces};
    enum mics_status status;

    *out = (struct mics_trained_tokenizer){.bytes = corpus->bytes};
    if (options->vocab_size < MICS_TRAIN_MIN_VOCAB || options->vocab_size > MICS_TRAIN_MAX_VOCAB)
        return mics_err_set(err, MICS_ERR_ARG, "a vocabulary has %u to %u tokens, not %u",
                            MICS_TRAIN_MIN_VOCAB, MICS_TRAIN_MAX_VOCAB, options->vocab_size);
    status = mics_piece_counts_new(corpus, options, &pieces, err);
    if (status != MICS_OK)
        goto out;
    status = train(&trainer, options, err);
    if (status != MICS_OK)
        goto out;
    status = mics_trained_files(&trainer.vocabulary, out->files, err);
out:
    out->vocab_size = trainer.vocabulary.token_count + 1;
    out->tokens = corpus->bytes - trainer.merged;
    out->pieces = pieces.count;
    release(&trainer);
    mics_piece_counts_fini(&pieces);
    if (status != MICS_OK)
        mics_trained_tokenizer_free(out);
    return status;
}

void mics_trained_tokenizer_free(struct mics_trained_tokenizer *trained)
{
    for (int i = 0; i < MICS_TRAINED_FILES; i++)
        free(trained->files[i].bytes);
    *trained = (struct mics_trained_tokenizer){.bytes = 0};
}
