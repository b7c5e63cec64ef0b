/* SPDX-License-Identifier: Apache-2.0 */
#include "device/plugin.h"
#include "missing.h"

#include "plugin_path.h"
#include "tap.h"

#include <sys/stat.h>

static char fakes[4096], scratch[] = "/tmp/mics-plugin.XXXXXX";
static struct mics_err err;

/* Open what MICS_PLUGIN_PATH then names; an open one is closed again. */
static enum mics_status try_open(const char *list)
{
    struct mics_plugin_file *file = NULL;

    err.text[0] = '\0';
    setenv("MICS_PLUGIN_PATH", list, 1);
    const enum mics_status status = mics_plugin_open(&file, &err);
    mics_plugin_close(file);
    return status;
}

static bool refused(const char *fake, const char *reason)
{
    char path[5000];

    snprintf(path, sizeof path, "%s/%s.so", fakes, fake);
    if (try_open(path) != MICS_ERR_UNSUPPORTED || strncmp(err.text, path, strlen(path)) != 0 ||
        !strstr(err.text, reason)) {
        printf("# %s\n", err.text);
        return false;
    }
    return true;
}

static void a_library_that_is_no_plugin_of_this_program_is_refused_with_the_reason(void)
{
    CHECK(refused("wrong_size", "its table has 8 bytes, this program's "));
    CHECK(refused("wrong_device", "its devices have 8 bytes of functions and "));
    CHECK(refused("wrong_kernels", " bytes of functions and 3 kernels with "));
    CHECK(refused("wrong_arguments", " bytes of arguments, this program's "));
    CHECK(refused("refuses", "the plug-in refuses this program"));
    CHECK(refused("no_entry", "no symbol mics_plugin_entry: not a plug-in of ours"));
    CHECK(refused("unresolved", "undefined symbol: mics_missing_symbol"));
}

static void copy_part(const char *from, const char *to, size_t bytes)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");

    for (size_t i = 0; i < bytes; i++)
        putc(getc(in), out);
    fclose(in);
    fclose(out);
}

static void a_truncated_file_is_refused_wherever_it_ends(void)
{
    char whole[5000], cut[5000];
    struct stat about;

    snprintf(whole, sizeof whole, "%s/wrong_size.so", fakes);
    snprintf(cut, sizeof cut, "%s/cut.so", scratch);
    CHECK_INT(stat(whole, &about), 0);
    for (size_t part = 0; part < 16; part++) {
        copy_part(whole, cut, (size_t)about.st_size * part / 16);
        CHECK_INT(try_open(cut), MICS_ERR_UNSUPPORTED);
        CHECK(strstr(err.text, part == 0 ? "not a shared library" : "the file is truncated"));
    }
    copy_part(whole, cut, (size_t)about.st_size - 1);
    CHECK_INT(try_open(cut), MICS_ERR_UNSUPPORTED);
    CHECK(strstr(err.text, "the file is truncated"));
    unlink(cut);
}

static void a_file_of_another_kind_is_refused(void)
{
    CHECK_INT(try_open("/etc/passwd"), MICS_ERR_UNSUPPORTED);
    CHECK_STR(err.text, "/etc/passwd: not a shared library");
}

static void the_first_existing_file_of_the_list_is_used(void)
{
    struct mics_plugin_file *file = NULL;
    char list[9000], emulated[4096], want[5000];

    in_build("emulated", emulated);
    snprintf(list, sizeof list, "%s::%s:%s:%s/wrong_size.so", missing_path("x"), scratch, emulated,
             fakes);
    snprintf(want, sizeof want, "%s/libmics-cuda.so", emulated);
    setenv("MICS_PLUGIN_PATH", list, 1);
    CHECK_INT(mics_plugin_open(&file, &err), MICS_OK);
    if (!file)
        return;
    CHECK_STR(mics_plugin_path(file), want);
    CHECK_STR(mics_plugin_table(file)->name, "emulated");
    mics_plugin_close(file);
}

static void the_searched_places_are_reported(void)
{
    const char *missing = missing_path("x");
    CHECK_INT(try_open(missing), MICS_ERR_UNSUPPORTED);
    CHECK(strstr(err.text, "no plug-in libmics-cuda.so in MICS_PLUGIN_PATH="));
    CHECK(strstr(err.text, missing));
    CHECK_INT(try_open(""), MICS_ERR_UNSUPPORTED); /* as if not set: beside this program */
    CHECK(strstr(err.text, "no plug-in libmics-cuda.so in "));
    CHECK(strstr(err.text, "/../lib/mics (MICS_PLUGIN_PATH names another place"));
}

int main(void)
{
    in_build("tests/plugins", fakes);
    if (!mkdtemp(scratch))
        return 1;
    TAP_RUN(a_library_that_is_no_plugin_of_this_program_is_refused_with_the_reason);
    TAP_RUN(a_truncated_file_is_refused_wherever_it_ends);
    TAP_RUN(a_file_of_another_kind_is_refused);
    TAP_RUN(the_first_existing_file_of_the_list_is_used);
    TAP_RUN(the_searched_places_are_reported);
    rmdir(scratch);
    return tap_done();
}
