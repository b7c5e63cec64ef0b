/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include "base/dir.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/test_lock.XXXXXX";

static const enum mics_lock_method methods[] = {MICS_LOCK_FLOCK, MICS_LOCK_FILE, MICS_LOCK_OWNER};

static void write_owner(const char *text)
{
    char path[MICS_PATH_MAX];

    CHECK_INT(mics_path_format(path, NULL, "%s/.lock-owner", folder), MICS_OK);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void a_folder_is_locked_once_by_each_method(void)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct mics_lock first = MICS_LOCK_NONE, second = MICS_LOCK_NONE;
        struct mics_err err = {""};

        CHECK_INT(mics_lock_folder(folder, methods[i], &first, &err), MICS_OK);
        CHECK_INT(first.method, methods[i]);
        CHECK_INT(mics_lock_folder(folder, methods[i], &second, &err), MICS_ERR_IO);
        CHECK(strstr(err.text, "another run is using this folder") != NULL);
        mics_unlock(&second);
        mics_unlock(&first);
        CHECK_INT(mics_lock_folder(folder, methods[i], &second, &err), MICS_OK);
        mics_unlock(&second);
    }
}

static void a_process_that_died_leaves_no_lock(void)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct mics_lock lock = MICS_LOCK_NONE;
        struct mics_err err = {""};
        const pid_t child = fork();
        int code = 0;

        if (child == 0)
            _exit(mics_lock_folder(folder, methods[i], &lock, &err) == MICS_OK ? 0 : 1);
        waitpid(child, &code, 0);
        CHECK_INT(code, 0);
        CHECK_INT(mics_lock_folder(folder, methods[i], &lock, &err), MICS_OK);
        mics_unlock(&lock);
    }
}

static void an_owner_that_may_be_alive_is_named(void)
{
    static const struct {
        const char *owner, *said;
    } cases[] = {
        {"another-host.example 17 12345\n", "process 17 on another-host.example; if that has"},
        {"", "if not, remove '"},
        {"noise", "if not, remove '"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_lock lock = MICS_LOCK_NONE;
        struct mics_err err = {""};

        write_owner(cases[i].owner);
        CHECK_INT(mics_lock_folder(folder, MICS_LOCK_OWNER, &lock, &err), MICS_ERR_IO);
        CHECK(strstr(err.text, cases[i].said) != NULL);
        mics_unlock(&lock);
    }
}

static void a_number_of_a_process_that_began_later_is_not_the_owner(void)
{
    struct mics_lock lock = MICS_LOCK_NONE;
    struct mics_err err = {""};
    char host[256] = "", text[320];

    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s %ld 1\n", host, (long)getpid());
    write_owner(text);
    CHECK_INT(mics_lock_folder(folder, MICS_LOCK_OWNER, &lock, &err), MICS_OK);
    mics_unlock(&lock);
}

static void what_is_no_folder_is_an_error(void)
{
    struct mics_lock lock = MICS_LOCK_NONE;
    struct mics_err err = {""};
    char path[MICS_PATH_MAX];

    CHECK_INT(mics_path_format(path, NULL, "%s/absent", folder), MICS_OK);
    CHECK_INT(mics_lock_folder(path, MICS_LOCK_FLOCK, &lock, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "absent: No such file") != NULL);
}

static void names_of_a_folder_come_without_its_own(void)
{
    struct mics_dir dir;
    struct mics_err err = {""};
    const char *name;
    int count = 0;

    write_owner("x");
    CHECK_INT(mics_dir_open(folder, &dir, &err), MICS_OK);
    while ((name = mics_dir_next(&dir)) != NULL)
        count += name[0] == '.' && name[1] != '.' && name[1] != '\0';
    CHECK_INT(mics_dir_close(&dir, MICS_OK, &err), MICS_OK);
    CHECK(count >= 1);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(a_folder_is_locked_once_by_each_method);
    TAP_RUN(a_process_that_died_leaves_no_lock);
    TAP_RUN(an_owner_that_may_be_alive_is_named);
    TAP_RUN(a_number_of_a_process_that_began_later_is_not_the_owner);
    TAP_RUN(what_is_no_folder_is_an_error);
    TAP_RUN(names_of_a_folder_come_without_its_own);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
