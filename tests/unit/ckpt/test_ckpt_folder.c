/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_folder.c - the folder of a run: replacement, stale folders, pruning, and a full
 * disk. */
#include "ckpt_ranks.h"

#include <unistd.h>

static bool has_checkpoints(void)
{
    bool has = false;

    CHECK_INT(mics_run_folder_has_checkpoints(folder, &has, NULL), MICS_OK);
    return has;
}

static void a_checkpoint_of_the_same_step_is_replaced(void)
{
    plain_save(6);
    plain_save(6);
    loads_with(mics2, 1, 3, 6, MICS_OK, "");
    CHECK_INT(entries("step-000006"), 1);
}

static void stale_folders_are_removed_and_old_checkpoints_pruned(void)
{
    char path[MICS_PATH_MAX];
    struct mics_err err = {""};
    struct mics_lock lock = MICS_LOCK_NONE, second = MICS_LOCK_NONE;

    in_folder(path, "step-000009.tmp.17/x");
    CHECK_INT(mics_file_make_folders(path, &err), MICS_OK);
    CHECK_INT(mics_run_folder_open(folder, &lock, &err), MICS_OK);
    CHECK_INT(entries(".tmp."), 0);
    CHECK(has_checkpoints());
    CHECK_INT(mics_run_folder_open(folder, &second, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "another run") != NULL);
    mics_unlock(&lock);
    plain_save(8);
    plain_save(10);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){0, 3, false}, 8, 10, &err),
              MICS_OK);
    CHECK_INT(entries("step-000008"), 1);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){2, 3, false}, 8, 10, &err),
              MICS_OK);
    CHECK_INT(entries("step-000008"), 1);
    CHECK_INT(entries("step-000006"), 1);
    CHECK_INT(entries("step-000007"), 0);
    CHECK_INT(entries("step-000010"), 1);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){1, 0, false}, 8, 10, &err),
              MICS_OK);
    CHECK_INT(entries("step-"), 1);
    loads_with(mics2, 1, 3, 10, MICS_OK, "");
}

/* The run continued step 4 of a folder that has steps 6 and 8 of the run before. */
static void later_checkpoints_of_another_run_stay_until_this_run_has_passed_them(void)
{
    const struct mics_keep keep = {.last = 2};
    struct mics_err err = {""};

    for (uint64_t step = 2; step <= 8; step += 2)
        plain_save(step);
    plain_save(5);
    CHECK_INT(mics_checkpoint_prune(folder, &keep, 4, 5, &err), MICS_OK);
    CHECK_INT(entries("step-000002"), 0);
    CHECK_INT(entries("step-000004") + entries("step-000005"), 2);
    CHECK_INT(entries("step-000006") + entries("step-000008"), 2);
    plain_save(7);
    CHECK_INT(mics_checkpoint_prune(folder, &keep, 5, 7, &err), MICS_OK);
    CHECK_INT(entries("step-000006"), 0);
    CHECK_INT(entries("step-000005") + entries("step-000007") + entries("step-000008"), 3);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){.discard_later = true}, 5, 7, &err),
              MICS_OK);
    CHECK_INT(entries("step-000008"), 0);
    CHECK_INT(entries("step-000005") + entries("step-000007"), 2);
}

/* Killed after the old checkpoint was moved aside: it counts, and the next run puts it back. */
static void a_checkpoint_that_was_moved_aside_is_found_and_put_back(void)
{
    char final[MICS_PATH_MAX], aside[MICS_PATH_MAX], found[MICS_PATH_MAX];
    struct mics_err err = {""};
    bool is_found = false;
    struct mics_lock lock = MICS_LOCK_NONE;

    plain_save(9);
    plain_save(7); /* `latest`, but not the newest */
    in_folder(final, "step-000007");
    in_folder(aside, "step-000007.old");
    CHECK_INT(rename(final, aside), 0);
    CHECK_INT(mics_checkpoint_find(folder, true, found, &is_found, &err), MICS_OK);
    CHECK_STR(found, aside);
    CHECK(has_checkpoints());
    CHECK_INT(mics_run_folder_open(folder, &lock, &err), MICS_OK);
    mics_unlock(&lock);
    mics_checkpoint_locate(found);
    CHECK_STR(found, final);
    loads_with(mics2, 1, 3, 7, MICS_OK, "");
    CHECK_INT(entries(".old"), 0);
}

static void a_run_that_begins_in_the_place_of_another_has_no_checkpoint(void)
{
    char found[MICS_PATH_MAX];
    struct mics_err err = {""};
    bool is_found = true;

    plain_save(9);
    CHECK_INT(mics_run_folder_begin(folder, &err), MICS_OK);
    CHECK_INT(mics_checkpoint_find(folder, true, found, &is_found, &err), MICS_OK);
    CHECK(!is_found);
    CHECK(!has_checkpoints());
    CHECK_INT(mics_checkpoint_find(folder, false, found, &is_found, &err), MICS_OK);
    CHECK(is_found); /* by those who name the folder */
    plain_save(3);
    loads_with(mics2, 1, 3, 3, MICS_OK, "");
    CHECK(has_checkpoints());
}

static void a_checkpoint_larger_than_the_free_space_is_refused_with_both_sizes(void)
{
    struct mics_err err = {""};

    CHECK_INT(mics_check_space(folder, 1, "it", &err), MICS_OK);
    CHECK_INT(mics_check_space(folder, (uint64_t)1 << 60, "it", &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "it needs 1") != NULL && strstr(err.text, "are free") != NULL);
}

static void a_full_device_is_an_error_of_the_file(void)
{
    struct rank rank = {.step = 1};
    struct mics_file_sum sum;
    struct mics_err err = {""};

    make_rank(&rank, mics2, 1);
    float *values = calloc(mics_shard_part_count(&rank.form, 0), sizeof *values);
    CHECK_INT(mics_shard_part_write("/dev/full", &rank.form, 0, values, &sum, NULL, &err),
              MICS_ERR_IO);
    free(values);
    CHECK_STR(err.text, "/dev/full: No space left on device");
}

int main(void)
{
    begin_ckpt();
    TAP_RUN(a_checkpoint_of_the_same_step_is_replaced);
    TAP_RUN(stale_folders_are_removed_and_old_checkpoints_pruned);
    TAP_RUN(later_checkpoints_of_another_run_stay_until_this_run_has_passed_them);
    TAP_RUN(a_checkpoint_that_was_moved_aside_is_found_and_put_back);
    TAP_RUN(a_run_that_begins_in_the_place_of_another_has_no_checkpoint);
    TAP_RUN(a_checkpoint_larger_than_the_free_space_is_refused_with_both_sizes);
    TAP_RUN(a_full_device_is_an_error_of_the_file);
    return end_ckpt();
}
