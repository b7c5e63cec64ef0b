/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "missing.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static char folder[256];

static const char *in_folder(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Files in the folder, links and subfolders too. */
static int entries(void)
{
    char command[512];
    int count = -1;

    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *pipe = popen(command, "r");
    if (pipe && fscanf(pipe, "%d", &count) != 1)
        count = -1;
    if (pipe)
        pclose(pipe);
    return count;
}

static enum mics_status put(const char *path, const char *text)
{
    struct mics_file_writer *writer = NULL;
    struct mics_err err = {""};
    enum mics_status status = mics_file_create(path, &writer, &err);

    if (status != MICS_OK)
        return status;
    fputs(text, mics_file_stream(writer));
    return mics_file_commit(writer, &err);
}

static void check_content(const char *path, const char *want)
{
    char *data = NULL;
    size_t size = 0;

    CHECK_INT(mics_file_read(path, 1 << 20, &data, &size, NULL), MICS_OK);
    if (data)
        CHECK_STR(data, want);
    CHECK_INT(size, strlen(want));
    free(data);
}

static void what_was_written_is_read_back(void)
{
    CHECK_INT(put(in_folder("a"), "one\n"), MICS_OK);
    check_content(in_folder("a"), "one\n");
    CHECK_INT(put(in_folder("a"), "two\n"), MICS_OK);
    check_content(in_folder("a"), "two\n");
    CHECK_INT(entries(), 1);
    unlink(in_folder("a"));
}

static void the_limit_is_exact(void)
{
    enum { SIZE = 100000 };
    char *text = malloc(SIZE + 1);
    char *data = NULL;
    size_t size = 0;
    struct mics_err err;

    memset(text, 'x', SIZE);
    text[SIZE] = '\0';
    put(in_folder("big"), text);
    CHECK_INT(mics_file_read(in_folder("big"), SIZE, &data, &size, &err), MICS_OK);
    CHECK_INT(size, SIZE);
    CHECK(data && strcmp(data, text) == 0);
    free(data);
    data = NULL;
    CHECK_INT(mics_file_read(in_folder("big"), SIZE - 1, &data, &size, &err), MICS_ERR_FORMAT);
    CHECK(data == NULL && strstr(err.text, "big: more than 99999 bytes"));
    free(text);
    unlink(in_folder("big"));
}

static void a_missing_file_is_named(void)
{
    char *data = NULL;
    size_t size = 0;
    struct mics_err err;

    const char *path = missing_path("x");
    CHECK_INT(mics_file_read(path, 10, &data, &size, &err), MICS_ERR_IO);
    CHECK(strncmp(err.text, path, strlen(path)) == 0);
    CHECK_STR(err.text + strlen(path), ": No such file or directory");
    CHECK_INT(mics_file_read(folder, 10, &data, &size, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "Is a directory"));
}

static void a_reader_sees_the_old_file_until_the_commit(void)
{
    struct mics_file_writer *writer = NULL;

    put(in_folder("a"), "old");
    CHECK_INT(mics_file_create(in_folder("a"), &writer, NULL), MICS_OK);
    fputs("new", mics_file_stream(writer));
    fflush(mics_file_stream(writer));
    check_content(in_folder("a"), "old");
    CHECK_INT(entries(), 2);
    mics_file_discard(writer);
    CHECK_INT(entries(), 1);
    check_content(in_folder("a"), "old");
    unlink(in_folder("a"));
}

/* Run in a child process, as a signal handler would. Returns 0 on success. */
static int die_with_open_writers(void)
{
    struct mics_file_writer *a = NULL, *b = NULL;

    mics_file_create(in_folder("a"), &a, NULL);
    mics_file_create(in_folder("b"), &b, NULL);
    if (entries() != 2)
        return 1;
    mics_temporary_remove_all();
    if (entries() != 0)
        return 2;
    mics_temporary_remove_all();
    mics_file_discard(a);
    return mics_file_commit(b, NULL) == MICS_ERR_IO ? 0 : 3;
}

static void all_temporary_files_can_be_removed_at_once(void)
{
    int status = -1;
    const pid_t child = fork();

    if (child == 0)
        _exit(die_with_open_writers());
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(entries(), 0);
}

static void two_writers_of_one_name_do_not_mix(void)
{
    struct mics_file_writer *a = NULL, *b = NULL;

    CHECK_INT(mics_file_create(in_folder("a"), &a, NULL), MICS_OK);
    CHECK_INT(mics_file_create(in_folder("a"), &b, NULL), MICS_ERR_IO);
    CHECK(b == NULL);
    CHECK_INT(mics_file_commit(a, NULL), MICS_OK);
    CHECK_INT(entries(), 1);
    unlink(in_folder("a"));
}

static void a_stale_temporary_file_is_replaced(void)
{
    char stale[600];

    snprintf(stale, sizeof stale, "%s/a.tmp.%ld", folder, (long)getpid());
    FILE *file = fopen(stale, "w");
    CHECK(file && fputs("junk", file) >= 0 && fclose(file) == 0);
    CHECK_INT(put(in_folder("a"), "good"), MICS_OK);
    check_content(in_folder("a"), "good");
    CHECK_INT(entries(), 1);
    unlink(in_folder("a"));
}

static void a_device_is_written_and_not_replaced(void)
{
    struct stat before, after;
    struct mics_file_writer *writer = NULL;
    struct mics_err err = {""};

    CHECK_INT(stat("/dev/null", &before), 0);
    CHECK_INT(put("/dev/null", "text"), MICS_OK);
    CHECK(stat("/dev/null", &after) == 0 && S_ISCHR(after.st_mode) &&
          after.st_ino == before.st_ino);
    CHECK_INT(mics_file_create("/dev/full", &writer, &err), MICS_OK);
    fputs("x", mics_file_stream(writer));
    CHECK_INT(mics_file_commit(writer, &err), MICS_ERR_IO);
    CHECK_STR(err.text, "/dev/full: No space left on device");
}

static void a_link_stays_a_link_and_permissions_stay(void)
{
    struct stat found;
    char target[512];

    snprintf(target, sizeof target, "%s", in_folder("target"));
    put(target, "old");
    chmod(target, 0600);
    CHECK_INT(symlink("target", in_folder("link")), 0);
    CHECK_INT(put(in_folder("link"), "new"), MICS_OK);
    CHECK(lstat(in_folder("link"), &found) == 0 && S_ISLNK(found.st_mode));
    CHECK(stat(target, &found) == 0 && (found.st_mode & 07777) == 0600);
    check_content(target, "new");
    unlink(in_folder("link"));
    unlink(target);
}

static void a_path_that_cannot_be_written_is_named(void)
{
    struct mics_file_writer *writer = NULL;
    struct mics_err err;

    const char *path = missing_path("x");
    CHECK_INT(mics_file_create(path, &writer, &err), MICS_ERR_IO);
    CHECK(strncmp(err.text, path, strlen(path)) == 0);
    CHECK_STR(err.text + strlen(path), ": No such file or directory");
    CHECK_INT(mics_file_create(folder, &writer, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "Is a directory"));
    CHECK(writer == NULL);
}

static void folders_are_created_with_their_parents(void)
{
    struct stat found;
    struct mics_err err;

    CHECK_INT(mics_file_make_folders(in_folder("p/q//r/"), &err), MICS_OK);
    CHECK_INT(mics_file_make_folders(in_folder("p/q/r"), &err), MICS_OK);
    CHECK(stat(in_folder("p/q/r"), &found) == 0 && S_ISDIR(found.st_mode));
    put(in_folder("p/file"), "");
    CHECK_INT(mics_file_make_folders(in_folder("p/file/x"), &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "Not a directory"));
}

static void a_tree_is_removed_but_links_are_not_followed(void)
{
    char outside[512];

    snprintf(outside, sizeof outside, "%s", in_folder("outside"));
    mics_file_make_folders(outside, NULL);
    put(in_folder("outside/kept"), "kept");
    mics_file_make_folders(in_folder("tree/deep"), NULL);
    put(in_folder("tree/deep/file"), "x");
    CHECK_INT(symlink(outside, in_folder("tree/link")), 0);
    CHECK_INT(mics_file_remove_tree(in_folder("tree"), NULL), MICS_OK);
    CHECK_INT(mics_file_remove_tree(in_folder("tree"), NULL), MICS_OK);
    check_content(in_folder("outside/kept"), "kept");
    CHECK(access(in_folder("tree"), F_OK) != 0);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/mics-test-file.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(what_was_written_is_read_back);
    TAP_RUN(the_limit_is_exact);
    TAP_RUN(a_missing_file_is_named);
    TAP_RUN(a_reader_sees_the_old_file_until_the_commit);
    TAP_RUN(all_temporary_files_can_be_removed_at_once);
    TAP_RUN(two_writers_of_one_name_do_not_mix);
    TAP_RUN(a_stale_temporary_file_is_replaced);
    TAP_RUN(a_device_is_written_and_not_replaced);
    TAP_RUN(a_link_stays_a_link_and_permissions_stay);
    TAP_RUN(a_path_that_cannot_be_written_is_named);
    TAP_RUN(folders_are_created_with_their_parents);
    TAP_RUN(a_tree_is_removed_but_links_are_not_followed);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
