/* SPDX-License-Identifier: Apache-2.0 */
/* Faults and kills at every step: tests/cli/file-sets.bats. */
#include "base/file_set.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], name[128];

static const char *in_folder(const char *file)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL);
    if (!file)
        return;
    fputs(text, file);
    fclose(file);
}

/* The text of a file of the folder; "" if there is none. */
static const char *get(const char *file)
{
    static char text[64];
    FILE *stream = fopen(in_folder(file), "r");

    text[0] = '\0';
    if (!stream)
        return text;
    text[fread(text, 1, sizeof text - 1, stream)] = '\0';
    fclose(stream);
    return text;
}

/* Begin to write x.a, the folder x.d with a file, and x.b, unless it is NULL. */
static struct mics_file_set *begin(const char *a, const char *d, const char *b)
{
    struct mics_file_set *set = NULL;
    struct mics_err err = {.text = ""};
    char path[MICS_PATH_MAX], inside[MICS_PATH_MAX + 2];

    CHECK_INT(mics_file_set_begin(name, &set, &err), MICS_OK);
    CHECK_STR(err.text, "");
    CHECK_INT(mics_file_set_add(set, "x.a", path, &err), MICS_OK);
    put(path, a);
    CHECK_INT(mics_file_set_add(set, "x.d", path, &err), MICS_OK);
    CHECK_INT(mkdir(path, 0777), 0);
    snprintf(inside, sizeof inside, "%s/f", path);
    put(inside, d);
    CHECK_INT(mics_file_set_add(set, "x.b", path, &err), MICS_OK);
    if (b)
        put(path, b);
    return set;
}

static void check_members(const char *a, const char *d, const char *b)
{
    CHECK_STR(get("x.a"), a);
    CHECK_STR(get("x.d/f"), d);
    CHECK_STR(get("x.b"), b);
    CHECK(access(in_folder("x.lock"), F_OK) != 0);
    CHECK(access(in_folder("x.commit"), F_OK) != 0);
}

static void members_are_replaced_together(void)
{
    struct mics_err err = {.text = ""};
    struct mics_file_set *set = begin("a1", "d1", "b1");
    struct stat info;

    CHECK_STR(get("x.a"), "");
    mics_file_set_free(set);
    check_members("", "", "");
    set = begin("a1", "d1", "b1");
    CHECK_INT(mics_file_set_commit(set, &err), MICS_OK);
    mics_file_set_free(set);
    check_members("a1", "d1", "b1");
    CHECK_INT(chmod(in_folder("x.a"), 0640), 0);

    set = begin("a2", "d2", NULL); /* which goes */
    CHECK_STR(get("x.b"), "b1");
    CHECK_INT(mics_file_set_commit(set, &err), MICS_OK);
    mics_file_set_free(set);
    check_members("a2", "d2", "");
    CHECK(stat(in_folder("x.a"), &info) == 0 && (info.st_mode & 0777) == 0640);
    CHECK_INT(mics_file_set_recover(name, &err), MICS_OK);
}

static void one_process_writes_a_set(void)
{
    struct mics_err err = {.text = ""};
    struct mics_file_set *set = begin("a3", "d3", "b3"), *other = NULL;
    char want[256];

    CHECK_INT(mics_file_set_begin(name, &other, &err), MICS_ERR_IO);
    CHECK(other == NULL);
    snprintf(want, sizeof want, "%s: another process is writing it: wait, or choose another name",
             name);
    CHECK_STR(err.text, want);
    mics_file_set_free(set);
    check_members("a2", "d2", "");
}

/* What a process that was killed left goes, and what is not of the set stays. */
static void leftovers_are_removed(void)
{
    static const char *const files[] = {"x.tmp.1x", "y.tmp.1"};
    char path[MICS_PATH_MAX];
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        (void)begin("a4", "d4", "b4");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    snprintf(path, sizeof path, "%s.tmp.%ld", name, (long)child);
    CHECK(access(path, F_OK) == 0);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT(mkdir(in_folder(files[i]), 0777), 0);
    mics_file_set_free(begin("a5", "d5", "b5"));
    CHECK(access(path, F_OK) != 0);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT(rmdir(in_folder(files[i])), 0);
    check_members("a2", "d2", "");
}

static void members_lie_in_the_folder(void)
{
    static const char *const names[] = {"../x", "..", "/x", "a/../b", "a/..", ""};
    struct mics_err err = {.text = ""};
    struct mics_file_set *set = NULL;
    char path[MICS_PATH_MAX];

    CHECK_INT(mics_file_set_begin(name, &set, &err), MICS_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_INT(mics_file_set_add(set, names[i], path, &err), MICS_ERR_ARG);
    mics_file_set_free(set);
    CHECK_INT(mics_file_set_begin(in_folder("none/x"), &set, &err), MICS_ERR_IO);
    CHECK(set == NULL);
}

int main(void)
{
    strcpy(folder, "/tmp/mics-file-set-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(name, sizeof name, "%s/x", folder);
    TAP_RUN(members_are_replaced_together);
    TAP_RUN(one_process_writes_a_set);
    TAP_RUN(leftovers_are_removed);
    TAP_RUN(members_lie_in_the_folder);
    CHECK_INT(mics_file_remove_tree(folder, NULL), MICS_OK);
    return tap_done();
}
