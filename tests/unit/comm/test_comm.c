/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/backend.h"
#include "comm/staged.h"
#include "comm_checks.h"
#include "one_core.h"
#include "tap.h"

#include <pthread.h>

enum { MAX_RANKS = 8 };

struct rank {
    struct checker checker;
    struct mics_comm *world;
    void (*check)(struct checker *checker);
    bool delays, staged;
    uint64_t max_count;
    pthread_t thread;
};

/* With a sanitizer data are shorter and ranks fewer: the threads do the same. */
enum { USUAL_COUNT = TAP_TSAN ? 5003 : 20011, USUAL_RANKS = TAP_SANITIZED ? 5 : MAX_RANKS };

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct checker *c = &rank->checker;

    checker_init(c, rank->world, 1);
    if (rank->staged)
        EXPECT(mics_comm_new_staged(rank->world, c->device, &c->world, &c->why) == MICS_OK, "no");
    c->max_count = rank->max_count;
    c->delays = rank->delays;
    rank->check(c);
    mics_comm_free(c->world);
    checker_fini(c);
    return NULL;
}

static void run_like(int size, const struct rank *like)
{
    struct rank ranks[MAX_RANKS];
    struct mics_comm *worlds[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads(size, worlds, NULL), MICS_OK);
    for (int i = 0; i < size; i++) {
        ranks[i] = *like;
        ranks[i].world = worlds[i];
        pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK_STR(ranks[i].checker.why.text, "");
    }
}

static void run_ranks(int size, bool delays, void (*check)(struct checker *checker))
{
    run_like(size, &(struct rank){.check = check, .delays = delays, .max_count = USUAL_COUNT});
}

static void check_collectives(struct checker *c)
{
    check_collectives_of(c, c->world);
}

static void a_single_rank_runs_every_collective_and_counts_no_bytes(void)
{
    struct mics_comm *world = NULL;
    struct checker c;

    CHECK_INT(mics_comm_new_self(&world, NULL), MICS_OK);
    checker_init(&c, world, 1);
    c.max_count = 1000;
    check_everything(&c);
    CHECK_STR(c.why.text, "");
    CHECK_INT(world->counts.calls + world->counts.sent_bytes, 0);
    CHECK_STR(world->backend, "self");
    checker_fini(&c);
    mics_comm_free(world);
}

static void every_collective_is_right_on_1_to_8_threads(void)
{
    for (int size = 1; size <= USUAL_RANKS; size++)
        run_ranks(size, false, size % 3 == 2 ? check_everything : check_collectives);
}

static void delays_change_nothing(void)
{
    run_ranks(4, true, check_two_at_once);
    run_ranks(3, true, check_collectives);
}

static void check_staged_backend(struct checker *c)
{
    EXPECT(!strcmp(c->world->backend, "staged"), "%s", c->world->backend);
    check_everything(c);
}

static void staging_memory_changes_no_result(void)
{
    for (int size = 1; size <= 4; size += TAP_SANITIZED ? 2 : 1)
        run_like(size,
                 &(struct rank){.check = check_staged_backend, .staged = true, .max_count = 1001});
    run_like(4, &(struct rank){.check = check_two_at_once, .staged = true, .delays = true});
}

/* More than MICS_COMM_STAGED_BYTES. Chunks of full size would leave a rest of the first that uses
 * the tree. */
static void check_rounds(struct checker *c)
{
    static const uint64_t counts[] = {1048576 + 700, 1048576 * 2 + 2000};

    for (size_t i = 0; i < (TAP_SANITIZED ? 1 : sizeof counts / sizeof counts[0]); i++)
        check_one(c, c->world, counts[i], MICS_F32);
    check_broadcast(c, c->world, 5000000);
}

static void data_larger_than_staging_memory_take_rounds_with_the_same_counts(void)
{
    for (int size = 2; size <= (TAP_SANITIZED ? 2 : 3); size++)
        run_like(size, &(struct rank){.check = check_rounds, .staged = true});
}

static void MICS_COMM_selects_staging_memory_and_nothing_else(void)
{
    struct mics_comm *control = NULL, *comm = NULL;
    struct mics_device *device = NULL;
    struct mics_err err = {""};

    CHECK_INT(mics_comm_new_self(&control, NULL), MICS_OK);
    CHECK_INT(mics_device_new_host(1, &device, NULL), MICS_OK);
    CHECK_INT(mics_comm_new_for_device(control, device, &comm, &err), MICS_OK);
    CHECK_STR(comm->backend, "self");
    mics_comm_free(comm);
    setenv("MICS_COMM", "staged", 1);
    CHECK_INT(mics_comm_new_for_device(control, device, &comm, &err), MICS_OK);
    CHECK_STR(comm->backend, "staged");
    mics_comm_free(comm);
    setenv("MICS_COMM", "stage", 1);
    CHECK_INT(mics_comm_new_for_device(control, device, &comm, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "MICS_COMM: expected \"staged\", found \"stage\"");
    unsetenv("MICS_COMM");
    device->ops->free(device);
    mics_comm_free(control);
}

static void check_abort(struct checker *c)
{
    struct mics_comm *world = c->world, *half = NULL;
    struct mics_err err = {""};
    float data[8] = {0};

    mics_comm_split(world, world->rank % 2, 0, world->rank / 2, &half, NULL);
    if (world->rank == 2) {
        mics_comm_abort(world, 7);
    } else {
        mics_comm_all_reduce(half, c->stream, data, 8, MICS_F32);
        mics_comm_all_reduce(half, c->stream, data, 8, MICS_F32);
        mics_comm_all_reduce(world, c->stream, data, 8, MICS_F32);
        EXPECT(c->device->ops->stream_sync(c->stream, &err) == MICS_ERR_COMM, "no failure");
        EXPECT(strstr(err.text, "ranks: the job was aborted with exit code 7"), "%s", err.text);
    }
    EXPECT(mics_comm_barrier_now(world, &err) == MICS_ERR_COMM, "a barrier after the abort");
    EXPECT(!strcmp(err.text, "barrier among 4 ranks: the job was aborted with exit code 7"), "%s",
           err.text);
    mics_comm_free(half);
}

static void abort_frees_every_blocked_rank(void)
{
    for (int i = 0; i < 20; i++)
        run_ranks(4, false, check_abort);
}

static void check_mismatch(struct checker *c)
{
    struct mics_err err = {""};
    float data[8] = {0};

    mics_comm_all_reduce(c->world, c->stream, data, c->world->rank == 1 ? 7 : 8, MICS_F32);
    EXPECT(c->device->ops->stream_sync(c->stream, &err) == MICS_ERR_COMM, "no failure");
    EXPECT(!strcmp(err.text, "all_reduce among 3 ranks: rank 0 called all_reduce of 32 bytes, but "
                             "rank 1 all_reduce of 28"),
           "%s", err.text);
}

static void check_mismatched_blocks(struct checker *c)
{
    struct mics_err err = {""};
    unsigned char send[16] = {0}, recv[16];

    mics_comm_all_to_all(c->world, c->stream, send, recv, c->world->rank == 2 ? 3 : 4, MICS_U8);
    EXPECT(c->device->ops->stream_sync(c->stream, &err) == MICS_ERR_COMM, "no failure");
    EXPECT(!strcmp(err.text, "all_to_all among 3 ranks: rank 0 called all_to_all of 4 bytes, but "
                             "rank 2 all_to_all of 3"),
           "%s", err.text);
}

static void ranks_that_call_different_collectives_fail(void)
{
    run_ranks(3, false, check_mismatch);
    run_ranks(3, false, check_mismatched_blocks);
}

static void check_destroyed(struct checker *c)
{
    float data[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int other = 1 - c->world->rank;

    mics_comm_reduce_scatter(c->world, c->stream, data, data + c->world->rank * 4, 4, MICS_F32);
    settle(c, "reduce_scatter");
    EXPECT(isnan(data[other * 4]) && isnan(data[other * 4 + 3]), "the rest was left as it was");
    EXPECT(data[c->world->rank * 4] == 2, "the sum was lost");
}

static void reduce_scatter_leaves_other_blocks_undefined(void)
{
    run_ranks(2, false, check_destroyed);
}

/* With a power of two of ranks: up to 512 bytes by a tree, up to 2 KiB whole in log2(m) rounds. */
static void a_short_all_reduce_sends_its_pieces_in_every_round(void)
{
    for (int rank = 0; rank < 8; rank++) {
        CHECK_INT(mics_comm_all_reduce_sent(8, rank, 128, MICS_F32), rank > 0 ? 512 : 7 * 512);
        CHECK_INT(mics_comm_all_reduce_sent(8, rank, 129, MICS_F32), 3 * 129 * 4);
        CHECK_INT(mics_comm_all_reduce_sent(8, rank, 257, MICS_F32), 3 * 257 * 4);
        CHECK_INT(mics_comm_all_reduce_sent(8, rank, 512, MICS_F32), 3 * 2048);
        CHECK_INT(mics_comm_all_reduce_sent(8, rank, 1024, MICS_F32), 4 * 2048);
        CHECK_INT(mics_comm_all_reduce_sent(8, rank, 8192, MICS_F32), 2 * 7 * 4096);
    }
    /* Even ranks keep 512 of 1023 elements, in the first of three rounds, and odd ranks 511. */
    CHECK_INT(mics_comm_all_reduce_sent(8, 0, 1023, MICS_F32), 4 * (511 + 512 + 512 + 512));
    CHECK_INT(mics_comm_all_reduce_sent(8, 1, 1023, MICS_F32), 4 * (512 + 511 + 511 + 511));
}

static bool is_halved(int size, uint64_t bytes)
{
    return bytes >= MICS_COMM_HALVING_FROM_BYTES && bytes <= mics_comm_short_bytes(size);
}

static void an_all_reduce_sends_twice_the_data_of_all_but_one_rank_in_all(void)
{
    static const uint64_t counts[] = {0, 1, 2, 63, 64, 1024, 1025, 4096, 100003};

    for (int size = 1; size <= 40; size++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            uint64_t total = 0;

            if (is_halved(size, counts[i] * 4))
                continue;
            for (int rank = 0; rank < size; rank++)
                total += mics_comm_all_reduce_sent(size, rank, counts[i], MICS_F32);
            CHECK_INT(total, 2 * (uint64_t)(size - 1) * counts[i] * 4);
        }
    CHECK_INT(mics_comm_all_reduce_sent(4, 2, 4096, MICS_F32), 2 * 3 * 4096);
}

static void every_rank_of_a_tree_has_one_parent(void)
{
    for (int arity = 1; arity <= 8; arity += 7)
        for (int size = 1; size <= 100; size++) {
            int parents[100] = {0}, wrong = 0;

            for (int place = 0; place < size; place++) {
                struct comm_children children = mics_comm_children(place, size, arity);

                for (int i = 0; i < children.count; i++)
                    parents[children.first + i]++;
            }
            for (int place = 0; place < size; place++)
                wrong += parents[place] != (place > 0);
            CHECK_INT(wrong, 0);
        }
}

int main(void)
{
    use_one_core();
    TAP_RUN(every_rank_of_a_tree_has_one_parent);
    TAP_RUN(a_short_all_reduce_sends_its_pieces_in_every_round);
    TAP_RUN(an_all_reduce_sends_twice_the_data_of_all_but_one_rank_in_all);
    TAP_RUN(a_single_rank_runs_every_collective_and_counts_no_bytes);
    TAP_RUN(every_collective_is_right_on_1_to_8_threads);
    TAP_RUN(delays_change_nothing);
    TAP_RUN(staging_memory_changes_no_result);
    TAP_RUN(data_larger_than_staging_memory_take_rounds_with_the_same_counts);
    TAP_RUN(MICS_COMM_selects_staging_memory_and_nothing_else);
    TAP_RUN(abort_frees_every_blocked_rank);
    TAP_RUN(ranks_that_call_different_collectives_fail);
    TAP_RUN(reduce_scatter_leaves_other_blocks_undefined);
    return tap_done();
}
