/* SPDX-License-Identifier: Apache-2.0 */
/* comm_checks.h - checks of one rank that every backend of communicators must pass. */
#ifndef MICS_TESTS_COMM_CHECKS_H
#define MICS_TESTS_COMM_CHECKS_H

#include "comm_checker.h"

static inline void check_all_gather(struct checker *c, struct mics_comm *comm, uint64_t count,
                                    enum mics_dtype dtype, bool in_place)
{
    const uint64_t each = mics_dtype_bytes(dtype);
    char *recv = grab(c, (uint64_t)comm->size * count + 1, each), *send = grab(c, count + 1, each);
    int rank_of_block[64] = {0};

    learn_blocks(c, comm, rank_of_block);
    char *from = in_place ? recv + (uint64_t)comm->block * count * each : send;
    fill(from, count, dtype, comm->rank, comm->block);
    put(recv, (uint64_t)comm->size * count, dtype, 5);
    delay(c, c->stream);
    mics_comm_all_gather(comm, c->stream, from, recv, count, dtype);
    settle(c, "all_gather");
    for (int block = 0; block < comm->size; block++) {
        const uint64_t wrong = first_wrong(recv + (uint64_t)block * count * each, count, dtype,
                                           value, rank_of_block[block], block);

        EXPECT(wrong == count, "all_gather of %llu in %d ranks: block %d, element %llu",
               (unsigned long long)count, comm->size, block, (unsigned long long)wrong);
    }
    EXPECT(load(recv, (uint64_t)comm->size * count, dtype) == 5, "all_gather wrote too far");
    drop(c, recv);
    drop(c, send);
}

static inline void check_reduce_scatter(struct checker *c, struct mics_comm *comm, uint64_t count,
                                        enum mics_dtype dtype, bool in_place)
{
    const uint64_t each = mics_dtype_bytes(dtype);
    char *send = grab(c, (uint64_t)comm->size * count + 1, each), *recv = grab(c, count + 1, each);
    char *to = in_place ? send + (uint64_t)comm->block * count * each : recv;

    for (int block = 0; block < comm->size; block++)
        fill(send + (uint64_t)block * count * each, count, dtype, comm->rank, block);
    put(send, (uint64_t)comm->size * count, dtype, -5);
    put(recv, count, dtype, -5);
    delay(c, c->stream);
    mics_comm_reduce_scatter(comm, c->stream, send, to, count, dtype);
    settle(c, "reduce_scatter");
    const uint64_t wrong = first_wrong(to, count, dtype, sum_of_values, comm->size, comm->block);
    EXPECT(wrong == count, "reduce_scatter of %llu in %d ranks: element %llu is %g",
           (unsigned long long)count, comm->size, (unsigned long long)wrong,
           load(to, wrong, dtype));
    EXPECT(load(send, (uint64_t)comm->size * count, dtype) == -5, "reduce_scatter wrote too far");
    EXPECT(load(recv, count, dtype) == -5, "reduce_scatter wrote too far");
    drop(c, recv);
    drop(c, send);
}

static inline void check_all_reduce(struct checker *c, struct mics_comm *comm, uint64_t count,
                                    enum mics_dtype dtype)
{
    char *data = grab(c, count + 1, mics_dtype_bytes(dtype));

    fill(data, count, dtype, comm->rank, 3);
    put(data, count, dtype, -5);
    delay(c, c->stream);
    mics_comm_all_reduce(comm, c->stream, data, count, dtype);
    settle(c, "all_reduce");
    const uint64_t wrong = first_wrong(data, count, dtype, sum_of_values, comm->size, 3);
    EXPECT(wrong == count, "all_reduce of %llu in %d ranks: element %llu is %g",
           (unsigned long long)count, comm->size, (unsigned long long)wrong,
           load(data, wrong, dtype));
    EXPECT(load(data, count, dtype) == -5, "all_reduce wrote too far");
    drop(c, data);
}

/* The blocks that the ranks have for each other all differ. */
static inline void check_all_to_all(struct checker *c, struct mics_comm *comm, uint64_t count,
                                    enum mics_dtype dtype)
{
    const uint64_t each = mics_dtype_bytes(dtype), total = (uint64_t)comm->size * count;
    char *send = grab(c, total + 1, each), *recv = grab(c, total + 1, each);
    int rank_of_block[64] = {0};

    learn_blocks(c, comm, rank_of_block);
    for (int block = 0; block < comm->size; block++)
        fill(send + (uint64_t)block * count * each, count, dtype, comm->rank, block);
    put(recv, total, dtype, 5);
    delay(c, c->stream);
    mics_comm_all_to_all(comm, c->stream, send, recv, count, dtype);
    settle(c, "all_to_all");
    for (int block = 0; block < comm->size; block++) {
        const uint64_t wrong = first_wrong(recv + (uint64_t)block * count * each, count, dtype,
                                           value, rank_of_block[block], comm->block);
        const uint64_t changed = first_wrong(send + (uint64_t)block * count * each, count, dtype,
                                             value, comm->rank, block);

        EXPECT(wrong == count, "all_to_all of %llu in %d ranks: block %d, element %llu is %g",
               (unsigned long long)count, comm->size, block, (unsigned long long)wrong,
               load(recv, (uint64_t)block * count + wrong, dtype));
        EXPECT(changed == count, "all_to_all of %llu in %d ranks changed what it sent",
               (unsigned long long)count, comm->size);
    }
    EXPECT(load(recv, total, dtype) == 5, "all_to_all wrote too far");
    drop(c, send);
    drop(c, recv);
}

/* Two in a group, which are sent or not as `active` is when the stream gets there, and not before.
 */
static inline void check_all_to_all_if(struct checker *c, struct mics_comm *comm, uint64_t count)
{
    const uint64_t total = (uint64_t)comm->size * count, others = total - count;
    float *send = grab(c, total, sizeof *send), *recv = grab(c, 2 * total, sizeof *recv);
    uint32_t *flags = grab(c, 3, sizeof *flags);
    int rank_of_block[64] = {0};

    learn_blocks(c, comm, rank_of_block);
    for (int block = 0; block < comm->size; block++)
        fill((char *)(send + (uint64_t)block * count), count, MICS_F32, comm->rank, block);
    flags[2] = 1;
    for (uint32_t active = 0; active < 2; active++) {
        const struct mics_comm_counts before = comm->counts;

        memset(recv, 0, 2 * total * sizeof *recv);
        flags[0] = !active;
        delay(c, c->stream);
        mics_launch_copy(c->stream, &(struct mics_args_copy){
                                        .dst = &flags[0],
                                        .src = active ? &flags[2] : &flags[1],
                                        .bytes = sizeof *flags,
                                    });
        mics_comm_group_begin(comm);
        for (int part = 0; part < 2; part++)
            mics_comm_all_to_all_if(comm, c->stream, send, recv + (uint64_t)part * total, count,
                                    MICS_F32, flags);
        mics_comm_group_end(comm);
        settle(c, "all_to_all_if");
        EXPECT(comm->counts.sent_bytes - before.sent_bytes == 2 * active * others * sizeof *send,
               "all_to_all_if %u among %d ranks: %llu bytes sent", active, comm->size,
               (unsigned long long)(comm->counts.sent_bytes - before.sent_bytes));
        for (uint64_t i = 0; active && i < 2 * total; i++) {
            const int block = (int)(i % total / count);

            EXPECT(recv[i] == (float)value(MICS_F32, rank_of_block[block], comm->block, i % count),
                   "all_to_all_if among %d ranks: element %llu is %g", comm->size,
                   (unsigned long long)i, (double)recv[i]);
        }
    }
    drop(c, send);
    drop(c, recv);
    drop(c, flags);
}

static inline void check_broadcast(struct checker *c, struct mics_comm *comm, uint64_t bytes)
{
    unsigned char *data = grab(c, bytes + 1, 1);

    for (int root = 0; root < comm->size; root++) {
        for (uint64_t i = 0; i < bytes; i++)
            data[i] = comm->rank == root ? (unsigned char)(i * 5 + (unsigned)root) : 99;
        data[bytes] = 200;
        delay(c, c->stream);
        if (root % 2) {
            mics_comm_broadcast(comm, c->stream, data, bytes, root);
            settle(c, "broadcast");
        } else {
            EXPECT(mics_comm_broadcast_now(comm, data, bytes, root, NULL) == MICS_OK,
                   "broadcast_now failed");
        }
        for (uint64_t i = 0; i < bytes; i++)
            EXPECT(data[i] == (unsigned char)(i * 5 + (unsigned)root),
                   "broadcast of %llu from %d in %d ranks: byte %llu", (unsigned long long)bytes,
                   root, comm->size, (unsigned long long)i);
        EXPECT(data[bytes] == 200, "broadcast wrote too far");
    }
    drop(c, data);
}

/* Each rank sends to the one `distance` ahead, except the last; each message has a length of its
 * own. */
static inline void check_exchange(struct checker *c, struct mics_comm *comm, uint64_t bytes,
                                  int distance)
{
    const int size = comm->size, to = (comm->rank + distance) % size;
    const int from = (comm->rank + size - distance) % size;
    unsigned char *send = grab(c, bytes + 1, 1), *recv = grab(c, bytes + 2, 1);
    const uint64_t sent = bytes - bytes / 3 * (uint64_t)(comm->rank % 2);
    const uint64_t expected = from == size - 1 ? 0 : bytes - bytes / 3 * (uint64_t)(from % 2);

    for (uint64_t i = 0; i < sent; i++)
        send[i] = (unsigned char)(i * 7 + (unsigned)comm->rank);
    recv[expected] = 200;
    EXPECT(mics_comm_sendrecv_now(comm, send, sent, comm->rank == size - 1 ? -1 : to, recv,
                                  expected, from == size - 1 ? -1 : from, distance % 2 * 0.01,
                                  NULL) == MICS_OK,
           "sendrecv_now failed");
    for (uint64_t i = 0; i < expected; i++)
        EXPECT(recv[i] == (unsigned char)(i * 7 + (unsigned)from),
               "exchange of %llu over %d in %d ranks: byte %llu", (unsigned long long)bytes,
               distance, size, (unsigned long long)i);
    EXPECT(recv[expected] == 200, "exchange wrote too far");
    drop(c, send);
    drop(c, recv);
}

/* What a ring must have sent, against what the backend counted. */
static inline void check_counts(struct checker *c, struct mics_comm *comm,
                                struct mics_comm_counts before, uint64_t sent, const char *what)
{
    const struct mics_comm_counts now = comm->counts;

    EXPECT(now.calls - before.calls == (comm->size > 1), "%s of %d ranks: %llu calls", what,
           comm->size, (unsigned long long)(now.calls - before.calls));
    EXPECT(now.sent_bytes - before.sent_bytes == sent, "%s of %d ranks: sent %llu bytes, not %llu",
           what, comm->size, (unsigned long long)(now.sent_bytes - before.sent_bytes),
           (unsigned long long)sent);
}

static inline void check_one(struct checker *c, struct mics_comm *comm, uint64_t count,
                             enum mics_dtype dtype)
{
    const uint64_t others = (uint64_t)(comm->size - 1) * count * mics_dtype_bytes(dtype);
    struct mics_comm_counts before = comm->counts;

    check_all_gather(c, comm, count, dtype, false);
    check_counts(c, comm, before, others, "all_gather");
    check_all_gather(c, comm, count, dtype, true);
    before = comm->counts;
    check_reduce_scatter(c, comm, count, dtype, false);
    check_counts(c, comm, before, others, "reduce_scatter");
    check_reduce_scatter(c, comm, count, dtype, true);
    before = comm->counts;
    check_all_reduce(c, comm, count, dtype);
    check_counts(c, comm, before, mics_comm_all_reduce_sent(comm->size, comm->rank, count, dtype),
                 "all_reduce");
    before = comm->counts;
    check_all_to_all(c, comm, count, dtype);
    check_counts(c, comm, before, others, "all_to_all");
}

/* Bytes are moved, not summed. */
static inline void check_bytes(struct checker *c, struct mics_comm *comm, uint64_t count)
{
    struct mics_comm_counts before = comm->counts;

    check_all_to_all(c, comm, count, MICS_U8);
    check_counts(c, comm, before, (uint64_t)(comm->size - 1) * count, "all_to_all of bytes");
    before = comm->counts;
    check_all_gather(c, comm, count, MICS_U8, true);
    check_counts(c, comm, before, (uint64_t)(comm->size - 1) * count, "all_gather of bytes");
    check_all_gather(c, comm, count, MICS_U8, false);
}

/* Collectives of a group, on arrays end to end: elements of each one's piece, from short to several
 * segments. */
enum { PARTS = 4 };

static inline uint64_t part_count(const struct checker *c, int part)
{
    const uint64_t counts[PARTS] = {5, 1, c->max_count / (uint64_t)c->world->size, 1000};

    return counts[part];
}

/* Collectives of a kind on all parts, separate or in a group. Each part has `size` pieces, end to
 * end. `from`: as long, for an all_to_all. */
static inline void run_parts(struct checker *c, struct mics_comm *comm, int kind, bool grouped,
                             const float *from, float *data)
{
    if (grouped)
        mics_comm_group_begin(comm);
    for (int part = 0; part < PARTS; part++) {
        const uint64_t count = part_count(c, part), total = count * (uint64_t)comm->size;
        float *piece = data + count * (uint64_t)comm->block;

        if (kind == 0)
            mics_comm_all_gather(comm, c->stream, piece, data, count, MICS_F32);
        else if (kind == 1)
            mics_comm_reduce_scatter(comm, c->stream, data, piece, count, MICS_F32);
        else if (kind == 2)
            mics_comm_all_reduce(comm, c->stream, data, total, MICS_F32);
        else
            mics_comm_all_to_all(comm, c->stream, from, data, count, MICS_F32);
        delay(c, c->stream);
        data += total;
        from += total;
    }
    if (grouped)
        mics_comm_group_end(comm);
    settle(c, "collectives in a group");
}

/* A group gives the same bits and counts as separate collectives. After a reduce-scatter only this
 * rank's pieces are defined. */
static inline void check_group(struct checker *c, struct mics_comm *comm)
{
    uint64_t total = 0;

    for (int part = 0; part < PARTS; part++)
        total += part_count(c, part) * (uint64_t)comm->size;
    float *separate = grab(c, total, sizeof *separate), *grouped = grab(c, total, sizeof *grouped);
    float *from = grab(c, total, sizeof *from);
    for (int kind = 0; kind < 4; kind++) {
        const struct mics_comm_counts first = comm->counts;

        for (uint64_t i = 0; i < total; i++)
            separate[i] = grouped[i] = from[i] =
                (float)((i * 2654435761u + (uint64_t)comm->rank * 97) % 1000) / 7;
        run_parts(c, comm, kind, false, from, separate);
        const struct mics_comm_counts second = comm->counts;
        run_parts(c, comm, kind, true, from, grouped);
        EXPECT(comm->counts.calls - second.calls == second.calls - first.calls &&
                   comm->counts.sent_bytes - second.sent_bytes ==
                       second.sent_bytes - first.sent_bytes,
               "grouped collectives of kind %d among %d ranks are counted differently", kind,
               comm->size);
        uint64_t at = 0;
        for (int part = 0; part < PARTS; part++) {
            const uint64_t count = part_count(c, part), size = (uint64_t)comm->size;
            const uint64_t begin = kind == 1 ? count * (uint64_t)comm->block : 0;
            const uint64_t compared = kind == 1 ? count : count * size;

            EXPECT(memcmp(separate + at + begin, grouped + at + begin,
                          compared * sizeof *separate) == 0,
                   "part %d of a group of kind %d among %d ranks differs", part, kind, comm->size);
            at += count * size;
        }
    }
    drop(c, separate);
    drop(c, grouped);
    drop(c, from);
}

static inline void check_collectives_of(struct checker *c, struct mics_comm *comm)
{
    static const uint64_t counts[] = {1, 63, 64, 1000};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_one(c, comm, counts[i], MICS_F32);
        check_one(c, comm, counts[i], MICS_F64);
        check_one(c, comm, counts[i], MICS_BF16);
    }
    check_one(c, comm, c->max_count, MICS_BF16);
    check_one(c, comm, c->max_count, MICS_F32);
    check_bytes(c, comm, 0);
    check_bytes(c, comm, 1);
    check_bytes(c, comm, 3001);
    check_bytes(c, comm, c->max_count);
    check_group(c, comm);
    if (c->device->on_host && comm->size > 1)
        check_all_to_all_if(c, comm, 1001);
    check_broadcast(c, comm, 1);
    check_broadcast(c, comm, c->max_count);
    EXPECT(mics_comm_barrier_now(comm, NULL) == MICS_OK, "barrier_now failed");
    mics_comm_barrier(comm, c->stream);
    settle(c, "barrier");
}

/* Exchanges of host memory over every distance, from nothing to several segments. */
static inline void check_exchanges(struct checker *c)
{
    struct mics_comm *node = NULL;

    for (int distance = 1; distance < c->world->size; distance++) {
        check_exchange(c, c->world, 0, distance);
        check_exchange(c, c->world, 1000, distance);
        check_exchange(c, c->world, 5 * c->max_count + 3, distance);
    }
    EXPECT(mics_comm_split(c->world, c->world->rank / 2, 0, c->world->rank % 2, &node, NULL) ==
               MICS_OK,
           "split into pairs");
    if (node->size > 1)
        check_exchange(c, node, 5 * c->max_count + 3, 1);
    mics_comm_free(node);
}

/* Every number of ranks, with an order and blocks other than the world's. */
static inline void check_sub_communicators(struct checker *c)
{
    struct mics_comm *world = c->world;

    for (int m = 1; m <= world->size; m++) {
        const bool in = world->rank < m;
        const int size = in ? m : world->size - m, rank = in ? world->rank : world->rank - m;
        const int block = (size - rank + 1) % size;
        struct mics_comm *comm = NULL;

        EXPECT(mics_comm_split(world, in, -world->rank, block, &comm, NULL) == MICS_OK, "split");
        EXPECT(comm->size == size && comm->rank == size - 1 - rank && comm->block == block,
               "split into %d: rank %d of %d, block %d", m, comm->rank, comm->size, comm->block);
        check_collectives_of(c, comm);
        mics_comm_free(comm);
    }
}

/* Number `index` of the orders of 0 ... size - 1: the block of each rank. */
static inline void order_blocks(int index, int size, int *blocks)
{
    for (int rank = 0; rank < size; rank++)
        blocks[rank] = rank;
    for (int rank = 0; rank < size - 1; index /= size - rank, rank++) {
        const int other = rank + index % (size - rank), block = blocks[rank];

        blocks[rank] = blocks[other];
        blocks[other] = block;
    }
}

/* An all_to_all with every order of blocks of up to 4 ranks, and 24 of those of more. */
static inline void check_block_orders(struct checker *c)
{
    struct mics_comm *world = c->world;
    int orders = 1, blocks[64];

    for (int i = 2; i <= world->size && i <= 4; i++)
        orders *= i;
    for (int index = 0; index < orders; index++) {
        struct mics_comm *comm = NULL;

        order_blocks(index, world->size, blocks);
        EXPECT(mics_comm_split(world, 0, world->rank, blocks[world->rank], &comm, NULL) == MICS_OK,
               "split");
        check_all_to_all(c, comm, 77, MICS_BF16);
        check_all_to_all(c, comm, 9001, MICS_U8);
        mics_comm_free(comm);
    }
}

static inline void check_split_rules(struct checker *c)
{
    struct mics_comm *world = c->world, *comm = world;
    struct mics_err err = {""};

    EXPECT(mics_comm_split(world, world->rank ? 4 : -1, 0, world->rank - 1, &comm, &err) == MICS_OK,
           "split without rank 0: %s", err.text);
    EXPECT((comm == NULL) == (world->rank == 0), "a negative color is in no communicator");
    if (comm)
        mics_comm_free(comm);
    if (world->size > 1) {
        comm = NULL;
        EXPECT(mics_comm_split(world, 0, 0, 1, &comm, &err) == MICS_ERR_ARG, "block held twice");
        EXPECT(!comm && !strcmp(err.text, "split: two ranks have block 1"), "%s", err.text);
    }
    EXPECT(mics_comm_split(world, 1, 0, world->size, &comm, &err) == MICS_ERR_ARG, "block range");
}

/* Numbers whose sums round: the same bits on all ranks, and the same bits again. */
static inline void check_bits(struct checker *c)
{
    enum { COUNT = 5003 };
    struct mics_comm *world = c->world;
    float *data = grab(c, COUNT, sizeof *data), *again = grab(c, COUNT, sizeof *data);
    float *all = grab(c, (size_t)world->size * COUNT, sizeof *all);

    for (int tries = 0; tries < 2; tries++) {
        float *now = tries ? again : data;

        for (int i = 0; i < COUNT; i++)
            now[i] = 1.0f / (float)(1 + i * 7 + world->rank * 13);
        delay(c, c->stream);
        mics_comm_all_reduce(world, c->stream, now, COUNT, MICS_F32);
        mics_comm_all_reduce(world, c->stream, now, 5, MICS_F32); /* by the tree */
    }
    settle(c, "all_reduce");
    EXPECT(memcmp(data, again, COUNT * sizeof *data) == 0,
           "all_reduce: other bits the second time");
    mics_comm_all_gather_now(world, data, all, COUNT * sizeof *data, NULL);
    for (int rank = 0; rank < world->size; rank++)
        EXPECT(memcmp(data, all + (size_t)rank * COUNT, COUNT * sizeof *data) == 0,
               "all_reduce: rank %d has other bits", rank);
    drop(c, data);
    drop(c, again);
    drop(c, all);
}

/* The same in bf16, and not farther off than one rounding, 2^-8, for each rank. */
static inline void check_bf16_bits(struct checker *c)
{
    enum { COUNT = 5003 };
    struct mics_comm *world = c->world;
    uint16_t *data = grab(c, COUNT, sizeof *data);
    uint16_t *all = grab(c, (size_t)world->size * COUNT, sizeof *all);

    for (int count = COUNT; count > 0; count = count == COUNT ? 50 : 0) {
        for (int i = 0; i < count; i++)
            put(data, (uint64_t)i, MICS_BF16, 1.0 / (1 + i % 99 + world->rank));
        delay(c, c->stream);
        mics_comm_all_reduce(world, c->stream, data, (uint64_t)count, MICS_BF16);
        settle(c, "all_reduce");
        for (int i = 0; i < count; i++) {
            const double got = load(data, (uint64_t)i, MICS_BF16);
            double want = 0;

            for (int rank = 0; rank < world->size; rank++)
                want += 1.0 / (1 + i % 99 + rank);
            EXPECT(got > want * (1 - world->size / 256.0) && got < want * (1 + world->size / 256.0),
                   "all_reduce in bf16: element %d is %g, not %g", i, got, want);
        }
        mics_comm_all_gather_now(world, data, all, COUNT * sizeof *data, NULL);
        for (int rank = 0; rank < world->size; rank++)
            EXPECT(memcmp(data, all + (size_t)rank * COUNT, COUNT * sizeof *data) == 0,
                   "all_reduce in bf16: rank %d has other bits", rank);
    }
    drop(c, data);
    drop(c, all);
}

/* Two communicators on two streams, started in different orders on different ranks. A GPU may ask
 * for one order on all ranks: NCCL does, and the emulator's streams do. */
static inline void check_two_at_once(struct checker *c)
{
    const bool any_order = c->device->on_host;
    enum { COUNT = 3001, ROUNDS = 20 };
    struct mics_comm *world = c->world, *a, *b;
    double *sums = grab(c, COUNT, sizeof *sums);
    float *gathered = grab(c, (size_t)world->size * COUNT, sizeof *gathered);
    float *own = gathered + (size_t)world->rank * COUNT;

    mics_comm_split(world, 0, 0, world->rank, &a, NULL);
    mics_comm_split(world, 0, 0, world->rank, &b, NULL);
    for (int i = 0; i < COUNT; i++) {
        sums[i] = 1;
        own[i] = (float)value(MICS_F32, world->rank, 0, (uint64_t)i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        delay(c, world->rank % 2 ? c->stream : c->other);
        if (any_order && world->rank % 2) {
            mics_comm_all_reduce(a, c->stream, sums, COUNT, MICS_F64);
            mics_comm_all_gather(b, c->other, own, gathered, COUNT, MICS_F32);
        } else {
            mics_comm_all_gather(b, c->other, own, gathered, COUNT, MICS_F32);
            mics_comm_all_reduce(a, c->stream, sums, COUNT, MICS_F64);
        }
    }
    settle(c, "two at once");
    double want = 1;
    for (int round = 0; round < ROUNDS; round++)
        want *= world->size;
    EXPECT(sums[0] == want && sums[COUNT - 1] == want, "two at once: %g, not %g", sums[0], want);
    for (int rank = 0; rank < world->size; rank++)
        EXPECT(gathered[(rank + 1) * COUNT - 1] == (float)value(MICS_F32, rank, 0, COUNT - 1),
               "gathered");
    mics_comm_free(a);
    mics_comm_free(b);
    drop(c, sums);
    drop(c, gathered);
}

static inline void check_everything(struct checker *c)
{
    check_collectives_of(c, c->world);
    check_sub_communicators(c);
    check_block_orders(c);
    check_split_rules(c);
    check_bf16_bits(c);
    check_bits(c);
    check_exchanges(c);
    check_two_at_once(c);
}

#endif
