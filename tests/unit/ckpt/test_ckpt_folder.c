/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_folder.c - the folder of a run: replacement, stale folders, pruning, and a full
 * disk. */
#include "ckpt_ranks.h"

#include <unistd.h>

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
    int lock = -1, second = -1;

    in_folder(path, "step-000009.tmp.17/x");
    CHECK_INT(mics_file_make_folders(path, &err), MICS_OK);
    CHECK_INT(mics_run_folder_open(folder, &lock, &err), MICS_OK);
    CHECK_INT(entries(".tmp."), 0);
    CHECK(mics_run_folder_has_checkpoints(folder));
    CHECK_INT(mics_run_folder_open(folder, &second, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "another run") != NULL);
    close(lock);
    plain_save(8);
    plain_save(10);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){0, 3}, 10, &err), MICS_OK);
    CHECK_INT(entries("step-000008"), 1);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){2, 3}, 10, &err), MICS_OK);
    CHECK_INT(entries("step-000008"), 1);
    CHECK_INT(entries("step-000006"), 1);
    CHECK_INT(entries("step-000007"), 0);
    CHECK_INT(entries("step-000010"), 1);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){1, 0}, 10, &err), MICS_OK);
    CHECK_INT(entries("step-"), 1);
    loads_with(mics2, 1, 3, 10, MICS_OK, "");
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
    CHECK_INT(mics_shard_part_write("/dev/full", &rank.form, 0, values, &sum, &err), MICS_ERR_IO);
    free(values);
    CHECK_STR(err.text, "/dev/full: No space left on device");
}

int main(void)
{
    begin_ckpt();
    TAP_RUN(a_checkpoint_of_the_same_step_is_replaced);
    TAP_RUN(stale_folders_are_removed_and_old_checkpoints_pruned);
    TAP_RUN(a_checkpoint_larger_than_the_free_space_is_refused_with_both_sizes);
    TAP_RUN(a_full_device_is_an_error_of_the_file);
    return end_ckpt();
}
