/* SPDX-License-Identifier: Apache-2.0 */
/* test_slow_ranks.c - which ranks of windows of steps are slow, and when they are named. */
#include "tap.h"

#include "train/watch/slow_ranks.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS_MAX = 16, PER_NODE = 4 };

static const float compute_s = 0.08f, transfer_s = 0.02f;

static uint32_t random_state;

/* In [0, 1). */
static float random_share(void)
{
    random_state = random_state * 1664525 + 1013904223;
    return (float)(random_state >> 8) / (1 << 24);
}

/* What each rank computes and reads in a step; all wait for the last. */
static void set_step(struct mics_slow_window *windows, uint32_t size, int step,
                     const float computes[], const float reads[])
{
    float last = 0;

    for (uint32_t rank = 0; rank < size; rank++)
        last = fmaxf(last, computes[rank] + reads[rank]);
    for (uint32_t rank = 0; rank < size; rank++)
        windows[rank].steps[step] = (struct mics_slow_step){
            .step_s = last + transfer_s,
            .compute_s = computes[rank],
            .read_s = reads[rank],
            .comm_s = last - computes[rank] - reads[rank] + transfer_s,
        };
}

/* What a rank has more than the others: of computing or of reading, in a step or in each. */
struct slow {
    uint32_t rank;
    enum mics_slow_cause cause;
    float more_s;
};

/* A window in which each rank computes for compute_s and up to `noise_s` more. */
static void set_window(struct mics_slow_window *windows, uint32_t size, const struct slow *slow,
                       size_t count, float noise_s)
{
    for (int step = 0; step < MICS_SLOW_WINDOW; step++) {
        float computes[RANKS_MAX], reads[RANKS_MAX] = {0};

        for (uint32_t rank = 0; rank < size; rank++)
            computes[rank] = compute_s + noise_s * random_share();
        for (size_t i = 0; i < count; i++)
            (slow[i].cause == MICS_SLOW_READING ? reads : computes)[slow[i].rank] += slow[i].more_s;
        set_step(windows, size, step, computes, reads);
    }
}

static struct mics_slow_ranks *open_ranks(uint32_t size)
{
    struct mics_slow_ranks *slow = NULL;
    uint32_t node_of[RANKS_MAX];

    for (uint32_t rank = 0; rank < size; rank++)
        node_of[rank] = rank / PER_NODE;
    CHECK_INT(mics_slow_ranks_open(size, node_of, &slow, NULL), MICS_OK);
    return slow;
}

static void one_slow_rank_is_named_with_its_cause_and_cost(void)
{
    static const enum mics_slow_cause causes[] = {MICS_SLOW_COMPUTING, MICS_SLOW_READING};

    for (uint32_t size = 2; size <= RANKS_MAX; size++)
        for (int c = 0; c < 2; c++) {
            struct mics_slow_ranks *slow = open_ranks(size);
            struct mics_slow_window windows[RANKS_MAX];
            const struct mics_slow_rank *found;

            set_window(windows, size, &(struct slow){size - 1, causes[c], 0.025f}, 1, 0);
            CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 1);
            CHECK_INT(found->rank, size - 1);
            CHECK_INT(found->ranks, 1);
            CHECK_INT(found->cause, causes[c]);
            CHECK_NEAR(found->cost, 0.025 / 0.125, 1e-3);
            CHECK_NEAR(found->s - found->others_s, 0.025, 1e-5);
            mics_slow_ranks_close(slow);
        }
}

static void it_is_named_again_only_after_a_window_in_which_it_was_not_slow(void)
{
    /* Shares of the step, and whether it is named then. */
    static const struct {
        float more_s;
        size_t named;
    } windows_of[] = {{0.004f, 0}, {0.02f, 1}, {0.02f, 0}, {0.004f, 0}, {0.02f, 0},
                      {0.002f, 0}, {0.02f, 1}, {0.02f, 0}, {0, 0},      {0.006f, 1}};
    struct mics_slow_ranks *slow = open_ranks(4);
    struct mics_slow_window windows[RANKS_MAX];
    const struct mics_slow_rank *found;

    for (size_t i = 0; i < sizeof windows_of / sizeof *windows_of; i++) {
        set_window(windows, 4, &(struct slow){2, MICS_SLOW_COMPUTING, windows_of[i].more_s}, 1, 0);
        CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), windows_of[i].named);
    }
    /* Another cause is named for itself. */
    set_window(windows, 4, &(struct slow){2, MICS_SLOW_READING, 0.02f}, 1, 0);
    CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 1);
    CHECK_INT(found->cause, MICS_SLOW_READING);
    mics_slow_ranks_close(slow);
}

static void noise_that_comes_and_goes_names_a_slow_rank_once(void)
{
    random_state = 7;
    for (uint32_t size = 2; size <= 8; size *= 2) {
        struct mics_slow_ranks *slow = open_ranks(size);
        struct mics_slow_window windows[RANKS_MAX];
        const struct mics_slow_rank *found;
        size_t named = 0;

        for (int i = 0; i < 20; i++) {
            set_window(windows, size, &(struct slow){1, MICS_SLOW_COMPUTING, 0.02f}, 1,
                       i % 2 ? 0.03f : 0.002f);
            named += mics_slow_ranks_judge(slow, windows, &found);
        }
        CHECK_INT(named, 1);
        mics_slow_ranks_close(slow);
    }
}

static void ranks_of_a_node_are_named_together_and_those_of_others_apart(void)
{
    static const struct slow several[] = {
        {4, MICS_SLOW_COMPUTING, 0.02f},
        {6, MICS_SLOW_COMPUTING, 0.025f},
        {13, MICS_SLOW_COMPUTING, 0.02f},
    };
    struct mics_slow_ranks *slow = open_ranks(RANKS_MAX);
    struct mics_slow_window windows[RANKS_MAX];
    const struct mics_slow_rank *found;

    set_window(windows, RANKS_MAX, several, 3, 0);
    CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 2);
    CHECK_INT(found[0].rank, 6);
    CHECK_INT(found[0].ranks, 2);
    CHECK_INT(found[1].rank, 13);
    CHECK_INT(found[1].ranks, 1);
    mics_slow_ranks_close(slow);
}

static void where_half_of_the_ranks_are_slow_none_is_named(void)
{
    static const struct slow half[] = {{0, MICS_SLOW_COMPUTING, 0.02f},
                                       {1, MICS_SLOW_COMPUTING, 0.02f}};
    struct mics_slow_ranks *slow = open_ranks(3);
    struct mics_slow_window windows[RANKS_MAX];
    const struct mics_slow_rank *found;

    set_window(windows, 3, half, 2, 0);
    CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 0);
    mics_slow_ranks_close(slow);
}

/* Each rank computes up to half as long again, at random, or up to a quarter and one of them always
 * half. */
static void noise_alone_names_no_rank_and_hides_none(void)
{
    random_state = 7;
    for (uint32_t size = 2; size <= 8; size *= 2) {
        int named = 0, hidden = 0;

        for (int i = 0; i < 1000; i++) {
            struct mics_slow_ranks *slow = open_ranks(size);
            struct mics_slow_window windows[RANKS_MAX];
            const struct mics_slow_rank *found;

            set_window(windows, size, NULL, 0, 0.04f);
            named += mics_slow_ranks_judge(slow, windows, &found) > 0;
            set_window(windows, size, &(struct slow){1, MICS_SLOW_COMPUTING, 0.04f}, 1, 0.02f);
            hidden += mics_slow_ranks_judge(slow, windows, &found) != 1 || found->rank != 1;
            mics_slow_ranks_close(slow);
        }
        CHECK_INT(named, 0);
        CHECK_INT(hidden, 0);
    }
}

static void a_rank_that_is_slow_by_very_different_times_is_named(void)
{
    for (uint32_t size = 2; size <= 8; size++) {
        struct mics_slow_ranks *slow = open_ranks(size);
        struct mics_slow_window windows[RANKS_MAX];
        const struct mics_slow_rank *found;

        for (int step = 0; step < MICS_SLOW_WINDOW; step++) {
            float computes[RANKS_MAX], reads[RANKS_MAX] = {0};

            for (uint32_t rank = 0; rank < size; rank++)
                computes[rank] = compute_s + 0.001f * random_share();
            reads[0] = step % 5 ? 0.1f * random_share() + 0.005f : 0;
            set_step(windows, size, step, computes, reads);
        }
        CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 1);
        CHECK_INT(found->rank, 0);
        CHECK_INT(found->cause, MICS_SLOW_READING);
        mics_slow_ranks_close(slow);
    }
}

static void a_rank_that_is_delayed_now_and_then_is_not_slow(void)
{
    struct mics_slow_ranks *slow = open_ranks(4);
    struct mics_slow_window windows[RANKS_MAX];
    const struct mics_slow_rank *found;

    set_window(windows, 4, NULL, 0, 0);
    for (int step = 0; step < MICS_SLOW_WINDOW; step += 3)
        set_step(windows, 4, step, (float[]){0.08f, 0.3f, 0.08f, 0.08f}, (float[]){0, 0, 0, 0});
    CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 0);
    mics_slow_ranks_close(slow);
}

/* Collectives take longer than computing, and all ranks wait for them alike. */
static void what_communication_hides_costs_nothing(void)
{
    struct mics_slow_ranks *slow = open_ranks(4);
    struct mics_slow_window windows[RANKS_MAX];
    const struct mics_slow_rank *found;

    for (int step = 0; step < MICS_SLOW_WINDOW; step++)
        for (uint32_t rank = 0; rank < 4; rank++)
            windows[rank].steps[step] = (struct mics_slow_step){
                .step_s = 0.3f, .compute_s = rank == 1 ? 0.12f : 0.08f, .comm_s = 0.29f};
    CHECK_INT(mics_slow_ranks_judge(slow, windows, &found), 0);
    mics_slow_ranks_close(slow);
}

int main(void)
{
    TAP_RUN(one_slow_rank_is_named_with_its_cause_and_cost);
    TAP_RUN(it_is_named_again_only_after_a_window_in_which_it_was_not_slow);
    TAP_RUN(noise_that_comes_and_goes_names_a_slow_rank_once);
    TAP_RUN(ranks_of_a_node_are_named_together_and_those_of_others_apart);
    TAP_RUN(where_half_of_the_ranks_are_slow_none_is_named);
    TAP_RUN(noise_alone_names_no_rank_and_hides_none);
    TAP_RUN(a_rank_that_is_slow_by_very_different_times_is_named);
    TAP_RUN(a_rank_that_is_delayed_now_and_then_is_not_slow);
    TAP_RUN(what_communication_hides_costs_nothing);
    return tap_done();
}
